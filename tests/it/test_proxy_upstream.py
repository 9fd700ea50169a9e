"""UpstreamProxy=: through tinyproxy, squid and through proxies that misbehave."""
import base64
import json
import os
import socket
import ssl
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import alone
import netsup
from alone import Alone, ask, connect, curl
import netlab
from test_net_transparent import Captured
from test_proxy_egress import is_cut

PARENT = "11.2.0.99"


def sites(lab):
    """What the host itself cannot resolve: only the parent, in the other namespace, knows these names."""
    lab.dns({"direct.test": ["11.2.0.30"], "parent.test": [PARENT]})
    lab.address(PARENT)
    lab.tls_site("a.test", "11.2.0.10")
    lab.http_site("a.test", "11.2.0.10")
    lab.http_site("direct.test", "11.2.0.30")
    lab.banner_site("11.2.0.10", 2222)


def wait_port(lab, address, port):
    def up():
        try:
            lab.inet.connect((address, port), timeout=5).close()
            return True
        except OSError:
            return False
    alone.wait(f"{address}:{port}", up)


def parent_hosts(lab):
    """The parent's own name resolution: a mount namespace with its own /etc/hosts."""
    path = lab.path("parent-hosts")
    with open(path, "w") as f:
        f.write("127.0.0.1 localhost\n11.2.0.10 a.test\n")
    os.chmod(path, 0o644)
    return path


def tinyproxy(lab, port=8888, auth=None, extra=""):
    conf = lab.path(f"tinyproxy-{port}.conf")
    with open(conf, "w") as f:
        f.write(f"Port {port}\nListen {PARENT}\nTimeout 60\nLogLevel Error\nMaxClients 50\n{extra}\n"
                + (f"BasicAuth {auth}\n" if auth else ""))
    os.chmod(conf, 0o644)
    hosts = parent_hosts(lab)
    p = lab.inet.popen(["unshare", "-m", "sh", "-c", f"mount --bind {hosts} /etc/hosts && exec tinyproxy -d -c {conf}"],
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lab.procs.append(p)
    wait_port(lab, PARENT, port)
    return p


class Fake:
    """A parent that answers each request with fixed bytes; keeps what it was asked."""

    def __init__(self, lab, answer, port=7000, then=b"", close=True):
        self.asked, self.answer, self.then, self.close_after = [], answer, then, close
        self.listener = lab.inet.listen((PARENT, port))
        self.port = port
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        s.settimeout(60)
        data = b""
        try:
            while b"\r\n\r\n" not in data:
                more = s.recv(65536)
                if not more:
                    return
                data += more
            self.asked.append(data.decode("latin-1"))
            for part in self.answer if isinstance(self.answer, list) else [self.answer]:
                s.sendall(part)
            if self.close_after:
                s.close()
            else:
                while s.recv(65536):
                    pass
        except OSError:
            pass


def url(port, credentials=""):
    return f"UpstreamProxy=http://{credentials}{PARENT}:{port}\n"


def receive(s, want):
    data = b""
    while want not in data:
        more = s.recv(65536)
        assert more, f"closed after {data!r}"
        data += more
    return data


@alone.lab
def test_tinyproxy(lab):
    sites(lab)
    tinyproxy(lab)
    rules = "Allow=a.test a.test:2222 direct.test other.test\nDeny=a.test:8080\nNoProxy=direct.test\n"
    with Alone(lab.dir, policy=rules + url(8888)) as p:
        assert curl(p, "https://a.test/x", lab=lab)[::2] == (0, "a.test sni=a.test path=/x\n")
        code, status, body = curl(p, "http://a.test/y?z=1", "-d", "body")
        seen = json.loads(body)
        assert (code, status) == (0, 200) and seen["path"] == "/y?z=1" and seen["body"] == "body"
        assert not [h for h, _ in seen["headers"] if h.lower().startswith("proxy-")]
        tls, plain = p.lines(2)
        assert tls["upstream"] == plain["upstream"] == f"http://{PARENT}:8888" and "address" not in tls
        assert tls["verdict"] == "allowed" and tls["rule"] == f"{p.policy}:1 Allow=a.test" and plain["bytes_in"] > 0

        # judged here, before the parent hears of it
        code, status, text = curl(p, "http://b.test/")
        assert status == 403 and "b.test port 80" in text
        assert curl(p, "http://a.test:8080/")[1] == 403
        # a server that speaks first, and bytes that came with the request
        with connect(p, "a.test:2222", early=b"early") as s:
            data = receive(s, b"early")
            assert data.startswith(b"HTTP/1.1 200 ") and data.endswith(b"hello\nearly")
        # fronting is found as ever
        c = ssl.create_default_context(cafile=lab.ca())
        with connect(p, "a.test:443") as s:
            receive(s, b"\r\n\r\n")
            try:
                c.wrap_socket(s, server_hostname="b.test")
                raise AssertionError("another name passed")
            except (ssl.SSLError, OSError):
                pass
        # without the parent: found here, and not through it
        assert curl(p, "http://direct.test/")[:2] == (0, 200)
        line = alone.wait("its line", lambda: [x for x in p.lines() if x.get("host") == "direct.test"])[0]
        assert line["address"] == "11.2.0.30" and "upstream" not in line
        # names that the parent does not find
        status, text = ask(p, "other.test:443")
        assert status == 502 and f"the upstream proxy http://{PARENT}:8888 " in text


@alone.lab
def test_password(lab):
    sites(lab)
    tinyproxy(lab, auth="alice p.w_1")
    with Alone(lab.dir, policy="Allow=a.test\n" + url(8888, "alice:p%2Ew_1@")) as p:
        assert curl(p, "https://a.test/", lab=lab)[0] == 0
        assert curl(p, "http://a.test/")[:2] == (0, 200)
        said = p.reload("Allow=a.test\n" + url(8888, "alice:wrong@"))
        status, text = ask(p, "a.test:443")
        assert status == 502 and "does not take the user and password of UpstreamProxy= (401)" in text, text
        p.reload("Allow=a.test\n" + url(8888))
        for status, text in (curl(p, "http://a.test/")[1:], ask(p, "a.test:443")):
            assert status == 502 and "wants a user and a password (407)" in text
        assert "others can read it" in p.reload("Allow=a.test\n" + url(8888, "alice:secretword@"), mode=0o644)
        # nowhere to be seen
        lines = open(p.log_path).read() + p.err() + said
        for pid in (p.proc.pid, p.worker()):
            with open(f"/proc/{pid}/cmdline") as f:
                lines += f.read()
        for secret in ("alice", "wrong", "secretword", base64.b64encode(b"alice:wrong").decode()):
            assert secret not in lines, secret


def squid(lab):
    """A squid with a password, and with its usual rule: CONNECT to port 443 only."""
    d = lab.path("squid")
    os.mkdir(d)
    os.chmod(d, 0o777)
    with open(os.path.join(d, "users"), "w") as f:
        f.write("bob:" + subprocess.run(["openssl", "passwd", "-apr1", "h:u@n%ter 2"], check=True, capture_output=True,
                                        text=True).stdout)
    with open(os.path.join(d, "conf"), "w") as f:
        f.write(f"""http_port {PARENT}:3128
acl SSL_ports port 443
acl CONNECT method CONNECT
auth_param basic program /usr/lib/squid/basic_ncsa_auth {d}/users
acl known proxy_auth REQUIRED
http_access deny CONNECT !SSL_ports
http_access allow known
http_access deny all
cache deny all
hosts_file {parent_hosts(lab)}
access_log none
cache_log {d}/cache.log
pid_filename {d}/pid
coredump_dir {d}
shutdown_lifetime 0
pinger_enable off
dns_nameservers {lab.DNS}
visible_hostname parent
""")
    for name in os.listdir(d):
        os.chmod(os.path.join(d, name), 0o644)
    # its shared memory has fixed names, and another squid may run on this machine
    start = f"mount -t tmpfs none /dev/shm && exec squid -N -f {d}/conf"
    lab.procs.append(lab.inet.popen(["unshare", "-m", "sh", "-c", start], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL))
    wait_port(lab, PARENT, 3128)
    return url(3128, "bob:h%3Au%40n%25ter%202@")


@alone.lab
def test_squid(lab):
    sites(lab)
    with Alone(lab.dir, policy="Allow=a.test a.test:2222\n" + squid(lab)) as p:
        assert curl(p, "https://a.test/", lab=lab)[0] == 0
        assert curl(p, "http://a.test/", "-X", "OPTIONS", "--request-target", "http://a.test")[:2] == (0, 200)
        assert curl(p, "http://a.test/q")[:2] == (0, 200)
        with connect(p, "a.test:2222") as s:  # squid's own rule: CONNECT to 443 only
            text = s.recv(65536)
            assert b" 502 " in text and b"does not allow it (403)" in text
        p.reload("Allow=a.test\n" + url(3128, "bob:hunter3@"))
        for status, text in (curl(p, "http://a.test/")[1:], ask(p, "a.test:443")):
            assert status == 502 and "does not take the user and password of UpstreamProxy= (407)" in text, text


@alone.lab
def test_parent_that_misbehaves(lab):
    sites(lab)
    with Alone(lab.dir, policy="Allow=a.test\n" + url(7000)) as p:
        status, text = ask(p, "a.test:443")
        assert status == 502 and "cannot be reached: Connection refused" in text
        cases = [
            (b"HTTP/1.1 503 Busy\r\n\r\n", "cannot reach it (503)"),
            (b"HTTP/1.1 403 Forbidden\r\nX: y\r\n\r\nbody", "does not allow it (403)"),
            (b"HTTP/1.0 302 Found\r\nLocation: http://evil.test/\r\n\r\n", "answers 302"),
            (b"HTTP/1.1 101 Switching\r\n\r\n", "answers 101"),
            (b"SSH-2.0-x\r\n\r\n", "does not answer in HTTP"),
            (b"", "closed the connection without an answer"),
            (b"HTTP/1.1 200 OK\r\nX: y\r\n", "closed the connection without an answer"),
            (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 20000, "answers with a head that is too long"),
            (b"HTTP/1.1 407 Auth\r\nProxy-Authenticate: Basic realm=x\r\n\r\n", "wants a user and a password (407)"),
        ]
        for port, (answer, want) in enumerate(cases, 7001):
            fake = Fake(lab, answer, port)
            p.reload("Allow=a.test\n" + url(port))
            status, text = ask(p, "a.test:443")
            assert status == 502 and want in text, (answer, status, text)
            assert fake.asked == ["CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n"]
            alone.wait("its line in the log", lambda: want in p.lines()[-1].get("error", ""))
        # a reply in pieces, an interim answer, bytes of the site right behind the head
        Fake(lab, [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 20", b"0 OK\r\nA: b\r", b"\n\r", b"\nthe site speaks"], 7100)
        p.reload("Allow=a.test:2222\n" + url(7100))
        with connect(p, "a.test:2222") as s:
            assert receive(s, b"speaks") == b"HTTP/1.1 200 Connection established\r\n\r\nthe site speaks"


@alone.lab
def test_rule_goes_while_the_parent_thinks(lab):
    sites(lab)
    fake = Fake(lab, b"", 7000, close=False)
    with Alone(lab.dir, policy="Allow=a.test\n" + url(7000)) as p:
        with connect(p, "a.test:443") as s:
            alone.wait("the parent is asked", lambda: fake.asked)
            fake.answer = b"HTTP/1.1 200 OK\r\n\r\n"
            with connect(p, "a.test:443") as open_one:
                receive(open_one, b"\r\n\r\n")
                p.reload("Allow=b.test\n" + url(7000))
                try:
                    assert open_one.recv(100) == b"", "a tunnel whose rule went is still open"
                except ConnectionResetError:
                    pass
            p.reload("Allow=a.test\n" + url(7000))
            with connect(p, "a.test:443") as again:
                receive(again, b"\r\n\r\n")


@alone.lab
def test_loop_and_own_parent(lab):
    """A parent on this machine is fine, because a person named it; this proxy itself is not, nor is anything else here."""
    sites(lab)
    own = socket.create_server(("127.0.0.1", 0))
    port = own.getsockname()[1]
    with Alone(lab.dir, policy=f"Egress=all\nUpstreamProxy=http://localhost:{port}\n") as p:
        with connect(p, "a.test:443") as s:
            peer, _ = own.accept()
            assert peer.recv(4096).startswith(b"CONNECT a.test:443 ")
            peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            receive(s, b"200")
            peer.close()
        for target in (f"127.0.0.1:{port}", f"{lab.HOST4}:{port}", f"localhost:{port}"):
            with connect(p, target) as s:
                assert b" 403 " in s.recv(4096)
        said = p.reload(f"Egress=all\nUpstreamProxy=http://127.0.0.1:{p.port}\n")
        assert "read again" in said
        for status, text in (curl(p, "http://a.test/")[1:], ask(p, "a.test:443")):
            assert status == 502 and "is this proxy itself" in text
    own.close()


@netsup.lab
def test_an_app(lab, sup):
    """A unit's UpstreamProxy=: by the variables and past them, changed live, and its password nowhere to be seen."""
    sites(lab)
    tinyproxy(lab, auth="alice p.w_1")
    fake = Fake(lab, b"HTTP/1.1 503 Busy\r\n\r\n", 7000)
    sup.agent("box", "Allow=a.test direct.test\nNoProxy=direct.test\n" + url(8888, "alice:p.w_1@"))
    sup.up_all()
    assert not sup.status("box").get("not_in_force")
    assert sup.run("box", "result = fetch('https://a.test/x')")[::2] == [200, "a.test sni=a.test path=/x\n"]
    assert sup.run("box", "result = fetch('http://a.test/y')")[0] == 200
    assert sup.run("box", "result = bare('curl', '-sS', 'https://a.test/z')")[:2] == [0, "a.test sni=a.test path=/z\n"]
    assert sup.run("box", "result = bare('curl', '-sS', 'http://direct.test/')")[0] == 0
    sup.refused("box", "b.test:443", hint="Allow=b.test")
    assert sup.run("box", "result = bare('curl', '-sS', 'https://b.test/')")[0] != 0
    # a program of the jail cannot make the parent reach what is not allowed: it does not reach the parent
    assert sup.run("box", f"result = connect('{PARENT}:8888')")[0] == 403
    said = sup.run("box", f"result = read_from('{PARENT}', 8888, b'CONNECT b.test:443 HTTP/1.0\\r\\n\\r\\n')")
    assert "HTTP" not in said, said

    shown = sup.sbxsv("check", "--allow", "box", "a.test:443").out
    assert f"the proxy http://{PARENT}:8888 resolves it (box.app:" in shown, shown
    assert "resolves to must be public" in sup.sbxsv("check", "--allow", "box", "direct.test:80").out
    status = sup.status("box")
    assert status["upstream_proxy"] == f"http://{PARENT}:8888" and status["no_proxy"] == ["direct.test"]

    with open(sup.unit_path("box")) as f:
        unit = f.read()
    shown = json.dumps([sup.status(), sup.status("box"), sup.events("box")])
    shown += sup.sbxsv("cat", "box", "--effective").out + sup.sbxsv("status", "box").out + sup.sbxsv("check").out
    with open(f"/proc/{sup.status()['supervisor']['proxy']['pid']}/cmdline") as f:
        shown += f.read()
    assert "alice" not in shown and "p.w_1" not in shown
    assert f"UpstreamProxy=http://(hidden)@{PARENT}:8888" in shown
    launches = sup.status("box")["launches"]
    sup.write_unit("box", unit.replace("alice:p.w_1@", "").replace(":8888", ":7000"))
    alone.wait("the other parent", lambda: sup.run("box", "result = connect('a.test:443')")[0] == 502)
    assert fake.asked and sup.status("box")["launches"] == launches


@netsup.lab
def test_captured_through_squid(lab, sup):
    """A program that knows of no proxy, behind one that grants CONNECT to port 443 only."""
    sites(lab)
    sup.agent("box", "Allow=a.test a.test:2222 b.test\n" + squid(lab))
    sup.up_all()
    assert sup.run("box", "result = bare('curl', '-sS', 'https://a.test/z')")[:2] == [0, "a.test sni=a.test path=/z\n"]
    code, out, err = sup.run("box", "result = bare('curl', '-sS', '-d', 'body', 'http://a.test/plain?q')")
    seen = json.loads(out)
    assert code == 0 and seen["path"] == "/plain?q" and seen["body"] == "body", err
    assert ["Host", "a.test"] in seen["headers"] and "hunter" not in out
    # the name in the request counts, and is judged: no way to another one
    assert sup.run("box", "result = bare('curl', '-sS', '-H', 'Host: other.test', 'http://a.test/')")[0] != 0
    sup.wait_violation("box", host="other.test", port=80)
    assert sup.run("box", "result = bare('curl', '-sS', 'http://c.test/')")[0] != 0
    # neither a request nor TLS: a tunnel, which this squid does not grant
    assert sup.run("box", "result = read_from('a.test', 80, b'\\0\\1\\2\\3 raw')") in ("", "ECONNRESET", "ENOTCONN", "EPIPE")


@netlab.isolated
def test_half_a_request_goes_nowhere():
    """A captured connection to port 80 is read before anybody is dialled; what is not whole in time is not sent on."""
    with netlab.Lab() as lab:
        sites(lab)
        parent = Fake(lab, b"HTTP/1.1 200 OK\r\n\r\nhello")
        s = Captured(lab, program="proxy_quick", allow=["a.test"], upstream=[f"http://{PARENT}:{parent.port}"])
        for half in (b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nX: y", b"\x16\x03\x01\x02\0\x01\0\x01"):
            c = s.open("a.test", 80)
            c.sendall(half)
            assert is_cut(lambda: c.recv(100)), half
            c.close()
        assert not parent.asked
        c = s.open("a.test", 80)
        c.sendall(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
        assert receive(c, b"hello").startswith(b"HTTP/1.1 200")
        c.close()
        s.proxy.close()
