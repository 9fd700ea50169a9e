"""Nothing of this machine, of the LAN or of the metadata service is reachable from a jail, by whatever way, but for Loopback= ports."""
import os
import socket
import subprocess
import textwrap
import threading

import harness
import netlab
import netsup

# EINVAL: link-local without a scope. With egress a connect is taken by our proxy first, which resets it then, before a byte has gone
# anywhere; ENOTCONN is what the end of sending says when it comes that late, EPIPE what sending says.
REFUSED = {"ECONNREFUSED", "EINVAL", "EHOSTUNREACH", "ENETUNREACH", "EADDRNOTAVAIL", "EACCES", "EPERM", "ECONNRESET", "ENOTCONN", "EPIPE"}


class Service:
    """A TCP (and UDP) service on one address; counts who came."""

    def __init__(self, address, port, ns=None, text=b"hello\n"):
        self.address, self.port, self.text, self.count = address, port, text, 0
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        make = ns.socket if ns else socket.socket
        self.tcp, self.udp = make(family, socket.SOCK_STREAM), make(family, socket.SOCK_DGRAM)
        for s in (self.tcp, self.udp):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            s.bind((address, port))
        self.tcp.listen(64)
        for fn in (self._tcp, self._udp):
            threading.Thread(target=fn, daemon=True).start()

    def _tcp(self):
        while True:
            c, _ = self.tcp.accept()
            self.count += 1
            with c:
                c.sendall(self.text)

    def _udp(self):
        while True:
            _, peer = self.udp.recvfrom(65536)
            self.count += 1
            self.udp.sendto(b"pong", peer)


MODES = {"off": "", "hosts": "Allow=a.test", "all": "Egress=all\nConnect=80,443", "every": "Egress=all"}
# Every way to one address: past the proxy, through it by CONNECT and by absolute form.
TRY = """
result = {}
for host, port in TARGETS:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    ways = [read_from(host, port), udp(host, port)]
    if "HTTPS_PROXY" in os.environ:
        ways += [connect(target)[0], get(f"http://{target}/")[0]]
    result[target] = ways
"""


def tried(sup, app, targets):
    for target, (direct, datagram, *proxied) in sup.run(app, f"TARGETS = {targets!r}\n{TRY}").items():
        assert direct in REFUSED, (app, target, direct)
        assert datagram in REFUSED, (app, target, "udp", datagram)
        assert all(status == 403 for status in proxied), (app, target, proxied)


@netsup.lab
def test_no_service_of_this_machine_is_reachable(lab, sup):
    lab.dns({"a.test": ["11.2.0.10"]})
    lab.lan()
    lab.hosts("11.1.0.2 this-host this-host.test\n127.0.1.1 myname\n")
    here = ["127.0.0.1", "127.0.0.53", "::1", "11.1.0.2", "2a0e:b1::2", "192.168.77.1", "fd00:77::1"]
    port = harness.free_port("0.0.0.0")
    services = [Service(a, port) for a in here]
    for name, network in MODES.items():
        sup.agent(name, network)
    sup.agent("victim")
    sup.up_all()
    # the ports of other apps are services of this machine as well, and so is the app's own port on the host
    targets = [(h, port) for h in [*here, "0.0.0.0", "::", "::ffff:127.0.0.1", "::ffff:11.1.0.2"]]
    targets += [(h, sup.ports["victim"]) for h in ("127.0.0.1", "::1", "11.1.0.2")]
    targets += [("11.1.0.2", 22)]
    for name in MODES:
        tried(sup, name, targets)
        # by name: those of /etc/hosts, the host's name, localhost
        for host in ("localhost", "ip6-localhost", "this-host", "this-host.test", "myname", "localhost.localdomain"):
            answer = sup.run(name, f"result = read_from({host!r}, {port})")
            assert answer in REFUSED or "resolution" in answer or "not known" in answer or "gaierror" in answer or answer.startswith("-"), (name, host, answer)
            if name != "off":
                status, _, body = sup.run(name, f"result = connect('{host}:{port}')")
                assert status == 403, (name, host, status, body)
    assert [s.count for s in services] == [0] * len(services)
    # the test itself reaches them all: it was the jail that did not
    for s in services:
        with socket.create_connection((s.address, port), 20) as c:
            assert c.recv(10) == b"hello\n"
    assert [s.count for s in services] == [1] * len(services)


@netsup.lab
def test_loopback_opens_one_port_in_both_families(lab, sup):
    lab.dns({"a.test": ["11.2.0.10"]})
    open4, open6, closed, both4, both6 = (harness.free_port() for _ in range(5))
    services = {
        "v4": Service("127.0.0.1", open4, text=b"four"), "v6": Service("::1", open6, text=b"six"),
        "closed4": Service("127.0.0.1", closed), "closed6": Service("::1", closed),
        "wan": Service("11.1.0.2", open4), "wan6": Service("2a0e:b1::2", open6), "other": Service("127.0.0.2", open4),
        "both4": Service("127.0.0.1", both4, text=b"four"), "both6": Service("::1", both4, text=b"six"),
    }
    for name, network in MODES.items():
        sup.agent(name, f"{network}\nLoopback={open4}\nLoopback={open6}\nLoopback={both4}\nLoopback={both6}")
    sup.up_all()
    for name in MODES:
        for host in ("127.0.0.1", "::1", "localhost"):  # the service is found in whichever family it has
            assert sup.run(name, f"result = read_from({host!r}, {open4})") == "four", (name, host)
            assert sup.run(name, f"result = read_from({host!r}, {open6})") == "six", (name, host)
            assert sup.run(name, f"result = read_from({host!r}, {both4})") in ("four", "six")
            # nobody serves it on the host: the app's connection ends at once
            assert sup.run(name, f"result = read_from({host!r}, {both6})") in ("", "ECONNRESET", "EPIPE", "ENOTCONN"), host
        for host, port in (("127.0.0.1", closed), ("::1", closed), ("127.0.0.2", open4), ("11.1.0.2", open4), ("2a0e:b1::2", open6)):
            assert sup.run(name, f"result = read_from({host!r}, {port})") in REFUSED, (name, host, port)
        # not by UDP, and not through the proxy, which has its own rules
        assert sup.run(name, f"result = udp('127.0.0.1', {open4})") in REFUSED
        if name != "off":
            assert sup.run(name, f"result = connect('127.0.0.1:{open4}')[0]") == 403
    assert all(services[k].count == 0 for k in ("closed4", "closed6", "wan", "wan6", "other"))
    # 2 MB both ways through a Loopback= port, whole, with half close
    port = harness.free_port()
    threading.Thread(target=echo, args=(socket.create_server(("127.0.0.1", port)),), daemon=True).start()
    sup.agent("big", f"Loopback={port}")
    sup.ok("reload")
    sup.wait_state("big", "running")
    assert sup.run("big", f"""
        data = os.urandom(2 << 20)
        got = bytearray()
        s = socket.create_connection(("127.0.0.1", {port}), TIMEOUT)
        def read():
            while more := s.recv(1 << 16):
                got.extend(more)
        t = threading.Thread(target=read)
        t.start()
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        t.join()
        result = bytes(got) == data
    """)


def echo(server):
    while True:
        c, _ = server.accept()
        with c:
            while data := c.recv(1 << 16):
                c.sendall(data)
            c.shutdown(socket.SHUT_WR)


@netsup.lab
def test_metadata_and_the_lan_stay_closed_with_egress_all(lab, sup):
    lab.dns({"pub.test": ["11.2.0.10"], "meta.test": ["169.254.169.254"]})
    lan = lab.lan()
    lan.ip("addr add 169.254.169.254/32 dev lo")
    lan.ip("addr add 10.0.0.5/32 dev lo")
    lan.ip("-6 addr add fd00:ec2::254/128 dev lo nodad")
    for prefix in ("169.254.169.254", "10.0.0.0/8"):
        netlab.ip(f"route add {prefix} via 192.168.77.2")
    netlab.ip("-6 route add fd00:ec2::254 via fd00:77::2")
    traps = [Service(a, port, lan) for a in ("192.168.77.2", "fd00:77::2", "10.0.0.5", "169.254.169.254", "fd00:ec2::254") for port in (80, 443)]
    link = subprocess.run(["ip", "-6", "-o", "addr", "show", "dev", "lan", "scope", "link"], check=True, capture_output=True,
                          text=True).stdout
    targets = [(s.address, s.port) for s in traps] + [("169.254.1.1", 80), ("fe80::1", 80), ("100.100.100.200", 80)]
    targets += [(line.split()[3].split("/")[0], 80) for line in link.splitlines()]
    lab.echo_site("11.2.0.10", 80)
    lab.echo_site("11.2.0.10", 5000)
    for name, network in MODES.items():
        sup.agent(name, network)
    sup.up_all()
    for name in MODES:
        tried(sup, name, targets)
    assert sup.run("every", "result = connect('meta.test:80')[0]") == 403
    assert sup.run("every", "result = connect('metadata.google.internal:80')[0]") == 403
    assert [s.count for s in traps] == [0] * len(traps)
    # from the host they answer
    with socket.create_connection(("169.254.169.254", 80), 20) as c:
        assert c.recv(10) == b"hello\n"
    # what is public is reachable, on the ports of Connect=
    assert sup.run("all", "result = [connect(f'11.2.0.10:{p}')[0] for p in (80, 5000)]") == [200, 403]
    assert sup.run("every", "result = [connect(f'11.2.0.10:{p}')[0] for p in (80, 5000)]") == [200, 200]
    assert sup.run("hosts", "result = connect('11.2.0.10:80')[0]") == 403
    for name in MODES:  # past the proxy variables it is the same
        answer = sup.run(name, "result = read_from('11.2.0.10', 80)")
        assert answer == "" if name in ("all", "every") else answer in REFUSED, (name, answer)


def capture():
    """A socket that sees every packet on the host's link to the internet."""
    s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))  # ETH_P_ALL, packet(7)
    s.bind(("wan", 0))
    return s


@netsup.lab
def test_nothing_leaves_a_jail_by_dns_udp_or_icmp(lab, sup):
    log = lab.path("dns.log")
    lab.dns({"a.test": ["11.2.0.10"], "leak.test": ["11.2.0.10"]}, extra=("--log-queries", f"--log-facility={log}"))
    lab.http_site("a.test", "11.2.0.10")
    udp = Service("11.2.0.53", 4444, lab.inet)
    for name, network in MODES.items():
        sup.agent(name, network)
    sup.up_all()
    wire = capture()
    wire.setblocking(False)
    code = f"""
        import struct
        result = {{}}
        query = b"\\x12\\x34\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\x04leak\\x04test\\0\\0\\x01\\0\\x01"

        def code(answer):  # of the header, RFC 1035 4.1.1
            return "answer " + str(ord(answer[3]) & 15) if answer[:2] == "\\x12\\x34" else answer
        for server in ("{lab.DNS}", "127.0.0.53", "8.8.8.8", "2a0e:b2::53"):
            result["dns " + server] = code(udp(server, 53, query))
            result["dns tcp " + server] = code(read_from(server, 53, struct.pack("!H", len(query)) + query)[2 if HOSTS else 0:])
        result["udp"] = udp("{lab.DNS}", 4444)
        for name in ("leak.test", "secret-data.leak.test", "a.test"):
            try:
                result[name] = socket.getaddrinfo(name, 80)[0][4][0]
            except OSError as e:
                result[name] = "EAI"
        for kind in ((socket.AF_INET, socket.SOCK_DGRAM, 1), (socket.AF_INET, socket.SOCK_RAW, 1), (socket.AF_INET6, socket.SOCK_DGRAM, 58),
                     (socket.AF_INET, socket.SOCK_RAW, 17), (socket.AF_PACKET, socket.SOCK_RAW, 3), (40, socket.SOCK_STREAM, 0)):
            try:
                with socket.socket(*kind) as s:
                    s.settimeout(0.5)
                    s.sendto(b"\\x08\\0\\xf7\\xff\\0\\0\\0\\0" if kind[0] == socket.AF_INET else b"\\x80\\0\\0\\0\\0\\0\\0\\0",
                             ("11.2.0.10", 0) if kind[0] == socket.AF_INET else ("2a0e:b2::53", 0))
                    result[str(kind)] = "sent " + str(s.recv(100))
            except (OSError, ValueError) as e:
                result[str(kind)] = "refused"
    """
    for name in MODES:
        own = name != "off"  # then our own name server is the one that answers, with NXDOMAIN (3) or an address of ours
        for what, answer in sup.run(name, f"HOSTS = {own}\n" + textwrap.dedent(code)).items():
            if own and what.startswith("dns"):
                assert answer == ("answer 3" if name == "hosts" else "answer 0"), (name, what, answer)
            elif own and (what == "a.test" or (name != "hosts" and what.endswith("leak.test"))):
                assert answer.startswith("198.18."), (name, what, answer)
            else:
                assert answer in REFUSED | {"EAI", "refused"}, (name, what, answer)
    frames = []
    while True:
        try:
            frames.append(wire.recvfrom(2048))
        except BlockingIOError:
            break
    # outgoing (PACKET_OUTGOING, packet(7)); neighbour discovery (ICMPv6) and multicast reports (hop-by-hop) are the kernel's own
    sent = [f for f, a in frames if a[2] == 4 and a[1] in (0x0800, 0x86DD) and not (a[1] == 0x86DD and f[6] in (58, 0))]
    assert sent == [] and udp.count == 0
    assert "leak" not in harness.Instance.read_text(log)
    # the proxy asks for allowed names, and only for them
    assert sup.run("hosts", "result = [get(f'http://{n}/')[0] for n in ('a.test', 'leak.test', 'secret-data.leak.test')]") == [200, 403, 403]
    text = harness.wait_for(lambda: (lambda t: t if "a.test" in t else None)(harness.Instance.read_text(log)), 20, "the query in the log")
    assert "leak" not in text
    wire.close()


@netsup.lab
def test_the_supervisors_own_sockets_are_unreachable(lab, sup):
    lab.dns({"a.test": ["11.2.0.10"]})
    sup.agent("off")
    sup.agent("hosts", "Allow=a.test")
    sup.agent("other", "Egress=all")
    sup.up_all()
    code = f"""
        result = []
        for path in ({sup.control!r}, {os.path.basename(sup.control)!r}):
            s = socket.socket(socket.AF_UNIX)
            try:
                s.connect(path)
                result.append("connected")
            except OSError as e:
                result.append(errname(e))
        with open("/proc/net/unix") as f:
            result.append("control.sock" in f.read())
        with open("/proc/net/tcp") as f:
            result.append(sorted(int(line.split()[1].split(":")[1], 16) for line in f if ":" in line and line.split()[3] == "0A"))
    """
    for name in ("off", "hosts", "other"):
        path, relative, listed, listening = sup.run(name, code)
        assert path in ("ENOENT", "EACCES", "ECONNREFUSED") and relative == "ENOENT" and not listed
        # inside there is the app, and with Egress the proxy's listeners of this app: no other app's, none of the host
        assert set(listening) <= {sup.ports[name], *((3128, 53) if name != "off" else ())}
    # the proxy is not a way to itself, to the jail's own ports, or to another jail
    for target in ("198.18.0.1:3128", f"127.0.0.1:{sup.ports['other']}", "198.18.0.2:3128", f"198.18.0.1:{sup.ports['hosts']}"):
        for name in ("hosts", "other"):
            sup.refused(name, target)
    # neither socket is offered on the host: the proxy listens inside of jails only
    out = subprocess.run(["ss", "-ltnH"], check=True, capture_output=True, text=True).stdout
    assert {int(line.split()[3].rsplit(":", 1)[1]) for line in out.splitlines()} == set(sup.ports.values())
