"""Every connection of every program arrives at the proxy, with its destination; what stays inside a jail stays untouched."""
import json
import os
import shutil
import signal
import socket
import subprocess
import textwrap
import threading

import harness
import netlab
import netsup
import pytest

PORTS_ONLY = "SBXSV_NO_NFTABLES"  # what a kernel without nf_tables is like

# What the tests run inside.
TOOLS = """
import struct, time
def raw(host, port, data=b""):
    "What came, or the name of the error."
    s = socket.socket(family(host), socket.SOCK_STREAM)
    s.settimeout(TIMEOUT)
    try:
        s.connect((host, port))
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)  # or the proxy would wait for what names the site
        return s.recv(100).decode("latin-1")
    except OSError as e:
        return errname(e)
    finally:
        s.close()
def serve(bind, port, text):
    s = socket.socket(family(bind), socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if ":" in bind:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind((bind, port))
    s.listen(100)
    def run():
        while True:
            c, peer = s.accept()
            c.sendall((text + " " + peer[0]).encode())
            c.close()
    threading.Thread(target=run, daemon=True).start()
def name(host):
    "Its addresses, as a program gets them that wants only what this machine can use."
    try:
        return sorted({a[4][0] for a in socket.getaddrinfo(host, 443, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)})
    except OSError as e:
        return errname(e)
def tls_to(host, port, sni):
    ctx = ssl.create_default_context()
    try:
        with socket.create_connection((host, port), TIMEOUT) as s, ctx.wrap_socket(s, server_hostname=sni) as t:
            t.sendall(b"GET /p HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
            return b"".join(iter(lambda: t.recv(65536), b"")).decode().partition("\\r\\n\\r\\n")[2]
    except OSError as e:
        return errname(e)
"""
RESET = ("ECONNRESET", "ENOTCONN", "EPIPE")
LISTED = (80, 443, 8080, 8443)


def inside(sup, app, code, **kw):
    return sup.run(app, TOOLS + textwrap.dedent(code), **kw)


def mechanism(sup, app):
    return sup.peek(app)["transparent"]


@pytest.fixture(params=["nf_tables", "ports"])
def how(request):
    return request.param


def force(sup, how):
    if how == "ports":
        sup.env[PORTS_ONLY] = "1"


def check_mechanism(sup, app, how):
    text = mechanism(sup, app)
    if how == "nf_tables":
        if text != "nf_tables":
            pytest.skip(f"this kernel: {text}")
        return
    assert text.startswith("listed ports only") and f"(no nf_tables: {PORTS_ONLY} is set)" in text, text


@netsup.lab
def test_every_connect_arrives(lab, sup, how):
    force(sup, how)
    lan = lab.lan()
    lab.dns({"a.test": ["11.2.0.10"]})
    lab.tls_site("a.test", "11.2.0.10")
    service = lan.listen(("192.168.77.2", 443))
    threading.Thread(target=lambda: [service.accept()[0].sendall(b"lan") for _ in range(2)], daemon=True).start()
    sup.agent("box", "Allow=a.test\nAllowAddress=192.168.77.2:443")
    sup.agent("shut")
    sup.up_all()
    check_mechanism(sup, "box", how)
    assert mechanism(sup, "shut") == "off"
    # by number, past all variables: each arrives with its own destination, in both families, and is reset
    # (8.8.8.8:53 is the app's name server, like any address at that port)
    targets = [("11.2.0.99", 80), ("8.8.8.8", 443), ("2a0e:b2::99", 8443), ("10.0.0.1", 8080), ("2001:db8::7", 80), ("198.18.7.7", 443),
               ("169.254.169.254", 80), ("198.18.0.3", 443), ("64:ff9b::c612:3", 443), ("11.1.0.2", 80), ("240.0.0.1", 80)]
    others = [("11.2.0.99", 1), ("11.2.0.99", 65535), ("9.9.9.9", 3128), ("9.9.9.9", 3129), ("198.18.0.3", 3128), ("2a0e:b2::99", 22),
              ("64:ff9b::c612:3", 3128), ("192.168.77.2", 444)]
    all_of_them = targets + (others if how == "nf_tables" else [])
    answers = inside(sup, "box", f"result = [raw(*t) for t in {all_of_them!r}]")
    for target, answer in zip(all_of_them, answers):
        assert answer in RESET, (target, answer)
        sup.wait_violation("box", operation="connect", host=target[0], port=target[1])
    if how == "ports":
        assert inside(sup, "box", f"result = [raw(*t) for t in {others!r}]") == ["ECONNREFUSED"] * len(others)
    # what is allowed is reached: by number, and by name with TLS verified
    assert inside(sup, "box", "result = raw('192.168.77.2', 443)") == "lan"
    address, = inside(sup, "box", "result = name('a.test')")
    assert address.startswith("198.18.")
    assert "a.test sni=a.test path=/p" in inside(sup, "box", "result = tls_to('a.test', 443, 'a.test')")
    assert inside(sup, "box", "result = name('b.test')") not in ([], [address])
    # without egress there is nobody who would take it
    assert inside(sup, "shut", f"result = [raw(*t) for t in {targets + others!r}]") == ["ECONNREFUSED"] * len(targets + others)
    assert inside(sup, "shut", "result = udp('8.8.8.8', 53)") == "ECONNREFUSED"


@netsup.lab
def test_own_servers_are_left_alone(lab, sup, how):
    force(sup, how)
    lan = lab.lan()
    lab.dns({"a.test": ["11.2.0.10"]})
    lab.tls_site("a.test", "11.2.0.10")
    sup.agent("box", "Allow=a.test\nListenAddress=0.0.0.0")
    sup.up_all()
    check_mechanism(sup, "box", how)
    port = sup.ports["box"]
    own = [("127.0.0.1", 9443), ("::1", 9443), ("127.0.0.7", 9444), ("198.18.0.1", 9445), ("127.0.0.1", 3128), ("127.0.0.1", 3129)]
    if how == "nf_tables":  # an app's own 80 and 443, on every address
        own += [("0.0.0.0", 443), ("::", 443), ("0.0.0.0", 80)]
    for host, number in own:
        at = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        peer = "198.18.0.1" if at.startswith("198") else "::1" if ":" in at else "127.0.0.1"
        assert inside(sup, "box", f"serve({host!r}, {number}, 'own {number}')\nresult = raw({at!r}, {number})") == f"own {number} {peer}"
    # beside them the sites of the rules are reached, on the same port
    assert "a.test sni=a.test path=/p" in inside(sup, "box", "result = tls_to('a.test', 443, 'a.test')")
    assert inside(sup, "box", "result = raw('8.8.8.8', 443)") in RESET
    if how == "nf_tables":
        assert inside(sup, "box", "result = raw('localhost', 80)") == "own 80 127.0.0.1"
    # clients from outside, who are seen as who they are: what the app answers them is not taken for a connection
    with lan:
        assert sup.run("box", "result = peer", host="192.168.77.1").endswith("192.168.77.2")
    for _ in range(3):
        with lab.inet:
            assert sup.run("box", "result = peer", host="11.1.0.2").endswith("11.1.0.1")
    # what an address of the network range means is the proxy's to say, whoever is bound there
    if how == "nf_tables":
        assert inside(sup, "box", "serve('11.2.0.77', 8443, 'mine')\nresult = raw('11.2.0.77', 8443)") in RESET
    # on this app's own port it reaches itself on loopback, and nobody by another address
    assert inside(sup, "box", f"result = raw('127.0.0.1', {port}, b'GET / HTTP/1.0\\r\\n\\r\\n')").startswith("HTTP/1.")
    if how == "nf_tables":
        assert inside(sup, "box", f"result = raw('8.8.8.8', {port})") in RESET


@netsup.lab
def test_names_by_any_server(lab, sup, how):
    force(sup, how)
    lab.dns({"a.test": ["11.2.0.10"]})
    sup.agent("box", "Allow=a.test")
    sup.up_all()
    check_mechanism(sup, "box", how)
    answers = inside(sup, "box", """
        query = b"\\x12\\x34\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\1a\\4test\\0\\0\\x01\\0\\x01"
        def tcp(server):
            with socket.create_connection((server, 53), TIMEOUT) as s:
                s.sendall(struct.pack("!H", len(query)) + query)
                n, = struct.unpack("!H", s.recv(2, socket.MSG_WAITALL))
                return s.recv(n, socket.MSG_WAITALL).decode("latin-1")
        servers = "198.18.0.1", "10.255.255.53", "127.0.0.53", "127.0.0.1", "203.0.113.9", "8.8.8.8", "::1", "fd00::53", "2001:4860:4860::8888"
        result = [f(s) for s in servers for f in (lambda s: udp(s, 53, query), tcp)]
        with open("/etc/resolv.conf") as f:
            result.append(f.read())
    """)
    *answers, text = answers
    assert len(set(answers)) == 1 and answers[0][:2] == "\x124" and "\xc6\x12" in answers[0], answers  # 198.18.
    assert "nameserver 198.18.0.1\n" in text and "search .\n" in text
    # one host name, one question
    assert inside(sup, "box", "result = name('b.test')") != []
    sup.wait_violation("box", operation="resolve", host="b.test")
    assert {e["host"] for e in sup.violations("box", operation="resolve")} == {"b.test"}


@netsup.lab
def test_no_other_way(lab, sup, how):
    """UDP, ICMP, raw sockets, and what would need a capability."""
    force(sup, how)
    lab.dns({"a.test": ["11.2.0.10"]})
    sup.agent("box", "Allow=a.test\nEgress=all")
    sup.up_all()
    check_mechanism(sup, "box", how)
    code = """
result = {}
for host in ("8.8.8.8", "2a0e:b2::53", "198.18.1.0", "11.2.0.53"):
    for port in (443, 80, 123, 54):
        start = time.monotonic()
        with socket.socket(family(host), socket.SOCK_DGRAM) as s:
            s.settimeout(20)
            s.connect((host, port))
            s.send(b"x")
            try:
                s.recv(1)
            except OSError as e:
                result[f"udp {host} {port}"] = errname(e)
def attempt(what, fn):
    try:
        result[what] = repr(fn())
    except OSError as e:
        result[what] = errname(e)
def option(f, level, number):
    with socket.socket(f, socket.SOCK_STREAM) as s:
        s.setsockopt(level, number, 1)
attempt("transparent", lambda: option(socket.AF_INET, socket.IPPROTO_IP, 19))
attempt("transparent6", lambda: option(socket.AF_INET6, socket.IPPROTO_IPV6, 75))
attempt("mark", lambda: option(socket.AF_INET, socket.SOL_SOCKET, 36))
for what, kind in {"raw": (socket.AF_INET, socket.SOCK_RAW, 1), "raw tcp": (socket.AF_INET, socket.SOCK_RAW, 6), "raw6": (socket.AF_INET6, socket.SOCK_RAW, 58),
                   "ping": (socket.AF_INET, socket.SOCK_DGRAM, 1), "ping6": (socket.AF_INET6, socket.SOCK_DGRAM, 58),
                   "packet": (socket.AF_PACKET, socket.SOCK_RAW, 0x300)}.items():
    attempt(what, lambda: socket.socket(*kind).close())
def request(protocol, kind, body):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as s:
        s.settimeout(20)
        s.send(struct.pack("=IHHII", 16 + len(body), kind, 5, 1, 0) + body)
        answer = s.recv(4096)
        if struct.unpack_from("=H", answer, 4)[0] == 2:  # NLMSG_ERROR
            error = -struct.unpack_from("=i", answer, 16)[0]
            if error:
                raise OSError(error, os.strerror(error))
        return len(answer)
attempt("list rules", lambda: request(12, 10 << 8 | 1, b"\\0\\0\\0\\0"))
attempt("delete rules", lambda: request(12, 10 << 8 | 2, b"\\0\\0\\0\\0"))
attempt("a route", lambda: request(0, 25, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 255, 4, 254, 2, 0) + struct.pack("=HHI", 8, 4, 1)))
"""
    for what, answer in inside(sup, "box", code).items():
        assert answer == "ECONNREFUSED" if what.startswith("udp") else answer in ("EPERM", "EACCES", "EPROTONOSUPPORT", "EAFNOSUPPORT"), (what, answer)


@netsup.lab
def test_what_a_proxy_gave_out_outlives_it(lab, sup, how):
    force(sup, how)
    lab.dns({"a.test": ["11.2.0.10"], "b.test": ["11.2.0.11"]})
    for name, address in (("a.test", "11.2.0.10"), ("b.test", "11.2.0.11")):
        lab.tls_site(name, address)
    sup.agent("box", "Allow=a.test\nAllow=b.test")
    sup.up_all()
    check_mechanism(sup, "box", how)
    (a,), (b,) = inside(sup, "box", "result = [name('a.test'), name('b.test')]")
    for _ in range(5):
        before = sup.status()["supervisor"]["proxy"]["pid"]
        os.kill(before, signal.SIGKILL)
        # nothing is refused: the listeners are the supervisor's too, and who comes meanwhile waits
        assert "sni=b.test" in inside(sup, "box", f"result = tls_to({b!r}, 443, 'b.test')")
        assert "sni=a.test" in inside(sup, "box", f"result = tls_to({a!r}, 443, 'a.test')")
        assert inside(sup, "box", "result = [name('b.test'), name('a.test')]") == [[b], [a]]
    # a new launch keeps them too, and another app has a map of its own
    sup.ok("restart", "box")
    sup.wait_state("box", "running")
    assert inside(sup, "box", "result = [name('b.test'), name('a.test')]") == [[b], [a]]
    assert "sni=a.test" in inside(sup, "box", f"result = tls_to({a!r}, 443, 'a.test')")


@netsup.lab
def test_many(lab, sup, how):
    """A thousand at once to where nothing is allowed: all are reset, nothing is left behind, others are served meanwhile."""
    force(sup, how)
    lab.dns({"a.test": ["11.2.0.10"]})
    lab.tls_site("a.test", "11.2.0.10")
    sup.agent("box", "Allow=a.test")
    sup.agent("good", "Allow=a.test")
    sup.up_all()
    check_mechanism(sup, "box", how)
    proxy = sup.status()["supervisor"]["proxy"]["pid"]
    fds = lambda: len(os.listdir(f"/proc/{proxy}/fd"))
    assert "sni=a.test" in inside(sup, "good", "result = tls_to('a.test', 443, 'a.test')")
    idle = fds() if harness.ROOT else 0
    flood = """
import resource, select
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
ends = {}
for turn in range(3):
    p, socks = select.poll(), {}
    for i in range(1000):
        s = socket.socket()
        s.setblocking(False)
        # at once, or (a ClientHello may come) after a while
        s.connect_ex((f"{(240, 11)[turn == 2]}.{i % 200}.9.9", (80, 443)[i % 2]))
        socks[s.fileno()] = s
        p.register(s, 0)
    while socks:
        found = p.poll(20000)
        assert found, f"{len(socks)} of turn {turn} are neither refused nor served"
        for fd, _ in found:
            p.unregister(fd)
            e = socks[fd].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            socks.pop(fd).close()
            ends[errorcode.get(e, e)] = ends.get(errorcode.get(e, e), 0) + 1
result = ends
"""
    answer = {}
    t = threading.Thread(target=lambda: answer.update(inside(sup, "box", flood)))
    t.start()
    for _ in range(5):
        assert "sni=a.test" in inside(sup, "good", "result = tls_to('a.test', 443, 'a.test')")
    t.join()
    assert answer == {"ECONNRESET": 3000}, answer
    assert sup.status()["supervisor"]["proxy"]["pid"] == proxy
    if harness.ROOT:
        harness.wait_for(lambda: fds() <= idle + 20, 30, "the descriptors of the flood to be closed")
    assert "sni=a.test" in inside(sup, "box", "result = tls_to('a.test', 443, 'a.test')")


@netsup.lab
def test_a_port_of_both_loopback_and_the_rules(lab, sup, how):
    force(sup, how)
    lab.dns({"db.test": ["11.2.0.10"]})
    port = harness.free_port()
    server = socket.create_server(("127.0.0.1", port))
    threading.Thread(target=lambda: [server.accept()[0].sendall(b"host") for _ in range(9)], daemon=True).start()
    lab.banner_site("11.2.0.10", port)
    lab.banner_site("11.2.0.10", 3128)
    sup.agent("box", f"Allow=db.test:{port}\nAllow=db.test:3128\nLoopback={port}")
    sup.up_all()
    check_mechanism(sup, "box", how)
    assert inside(sup, "box", f"result = raw('127.0.0.1', {port})") == "host"
    assert inside(sup, "box", f"result = raw('db.test', {port})").startswith("hello")
    assert inside(sup, "box", "result = raw('db.test', 3128)").startswith("hello")
    sup.refused("box", "other.test:443")  # the explicit proxy is on that port too


@netsup.lab
def test_ports_without_a_listener_are_told(lab, sup):
    """The fallback has its limits, and says so."""
    sup.env[PORTS_ONLY] = "1"
    lab.dns({"a.test": ["11.2.0.10"]})
    sup.agent("some", "Allow=a.test:5000-5100")
    sup.agent("every", "Egress=all")
    sup.agent("own", "Allow=a.test", listen=lambda port: f"{port}:443")
    sup.agent("few", "Allow=a.test:5000-5005")
    sup.up_all()
    for name in ("some", "every", "own"):
        assert mechanism(sup, name).startswith("listed ports only, not all of them"), name
        assert "listed ports only, not all of them" in sup.ok("status", name)
    assert mechanism(sup, "few") == f"listed ports only (no nf_tables: {PORTS_ONLY} is set)"
    # the app's own port is its own
    assert sup.run("own", "result = peer") == "127.0.0.1" or sup.run("own", "result = peer") == "::ffff:127.0.0.1"
    # a port that comes later waits for the next start, and that is said
    assert not sup.peek("few").get("restart_needed")
    sup.ok("allow", "few", "b.test:5003")
    assert not sup.peek("few").get("restart_needed")
    sup.ok("allow", "few", "b.test:6000")
    assert sup.peek("few")["restart_needed"]
    sup.ok("restart", "few")
    sup.wait_state("few", "running")
    assert not sup.peek("few").get("restart_needed")
    # the explicit proxy has no such limits
    assert sup.run("some", "result = connect('b.test:5100')[0]") == 403
    doctor = sup.sbxsv("doctor", "--refresh")
    assert "listed ports only" in doctor.out, doctor.out


@netsup.lab
def test_doctor_and_exec(lab, sup, how):
    force(sup, how)
    lab.dns({"a.test": ["11.2.0.10"]})
    lab.tls_site("a.test", "11.2.0.10")
    doctor = sup.sbxsv("doctor", "--refresh")
    assert "transparent            " + ("nf_tables" if how == "nf_tables" else "listed ports only") in doctor.out, doctor.out
    for mode in ("strict", "open"):
        assert f"ok    jail, ReadMode={mode}" in doctor.out, doctor.out
    ca = shutil.copy(lab.ca(), sup.app_dir("exec"))
    os.chmod(ca, 0o644)
    user = ["--user", harness.app_user().pw_name] if harness.ROOT else []
    code = TOOLS.strip() + "\nimport json\nprint(json.dumps([tls_to('a.test', 443, 'a.test'), name('b.test'), raw('8.8.8.8', 443)]))\nsys.exit(3)"
    program = os.path.join(os.path.dirname(ca), "x.py")
    shutil.copy(os.path.join(harness.TESTS, "lib", "agent.py"), os.path.dirname(ca))
    with open(program, "w") as f:
        f.write("from agent import *\nimport sys\n" + code)
    os.chmod(program, 0o644)
    r = subprocess.run([harness.program("sbxsv"), "exec", *user, "--quiet", "--allow", "a.test", "--env", f"SSL_CERT_FILE={ca}", "--",
                        harness.PYTHON, program], cwd=os.path.dirname(ca), env=sup.env, capture_output=True, text=True, timeout=60,
                       stdin=subprocess.DEVNULL, **sup._plain({}))
    assert r.returncode == 3, r
    site, unknown, address = json.loads(r.stdout)
    assert "sni=a.test" in site and "Name" in unknown and address in RESET, r
    assert "--allow b.test" in r.stderr and "8.8.8.8:443" in r.stderr, r
    assert ("transparent: listed ports only" in r.stderr) == (how == "ports"), r


@netsup.lab
@pytest.mark.parametrize("link", ["../run/systemd/resolve/stub-resolv.conf", "/run/NetworkManager/resolv.conf", "resolv.real", "/run/./a//resolv", "gone/resolv"])
def test_resolv_conf_behind_a_link(lab, sup, link):
    """Distributions make /etc/resolv.conf a symbolic link to where a jail shows nothing, or nothing exists."""
    made = "run/" in link  # below /etc nothing can be made; then programs ask 127.0.0.1
    etc = lab.path("etc")
    subprocess.run(["cp", "-a", "/etc/.", etc], check=False, capture_output=True)  # what an ordinary user can read of it
    for name in ("ssl/private", "ssh"):
        shutil.rmtree(os.path.join(etc, name), ignore_errors=True)
    os.unlink(os.path.join(etc, "resolv.conf"))
    os.symlink(link, os.path.join(etc, "resolv.conf"))
    if link == "resolv.real":
        with open(os.path.join(etc, link), "w") as f:
            f.write("nameserver 10.1.1.1\nsearch corp.example\n")
    netlab.mount(etc, "/etc", flags=4096)  # MS_BIND
    for mode in ("strict", "open"):
        sup.agent(mode, "Allow=a.test", body=f"[Sandbox]\nReadMode={mode}")
    sup.agent("off")
    sup.up_all()
    for mode in ("strict", "open"):
        if link == "resolv.real" or (made and mode == "strict"):
            assert "nameserver 198.18.0.1" in inside(sup, mode, "result = open('/etc/resolv.conf').read()"), mode
        assert inside(sup, mode, "result = name('a.test')")[0].startswith("198.18."), mode
        assert inside(sup, mode, "result = os.readlink('/etc/resolv.conf')") == link
