"""sbxsv-proxy as the explicit proxy of a jail: real names, real TLS, real refusals."""
import http.client
import json
import os
import signal
import socket
import ssl
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import netlab
import proxydrv


def policy(allow=(), deny=(), address=(), egress="hosts", connect=(), sni_match=True, ech_refuse=False, upstream=()):
    pairs = lambda v: [[text, f"notes.app:{i + 3}"] for i, text in enumerate(v)]
    return {"egress": egress, "sni_match": sni_match, "ech_refuse": ech_refuse, "allow": pairs(allow),
            "deny": pairs(deny), "address": pairs(address), "connect": pairs(connect),
            **({"upstream": pairs(upstream)} if upstream else {})}


class Setup:
    """A jail named `notes` with an egress listener, and the proxy."""

    def __init__(self, lab, program="sbxsv-proxy", nofile=None, **rules):
        self.lab = lab
        self.jail = lab.jail()
        self.proxy = proxydrv.Proxy(self.jail.pool_socket, log=open(lab.path("proxy.log"), "w"), program=program,
                                    nofile=nofile)
        self.rules(**rules)
        with self.jail.egress_listener() as listener:
            self.proxy.jail("notes", egress=listener)

    def rules(self, **rules):
        self.proxy.send("policy", app="notes", policy=policy(**rules))
        self.proxy.sync()

    def open(self):
        return self.jail.connect(netlab.Jail.PROXY)

    def connect(self, target):
        """CONNECT; returns (status, socket, head and body of a refusal)."""
        s = self.open()
        s.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        return self.answer(s)

    def answer(self, s):
        data = b""
        while b"\r\n\r\n" not in data:
            more = s.recv(1)
            assert more, f"closed without an answer: {data!r}"
            data += more
        status = int(data.split()[1])
        if status != 200:
            while more := s.recv(65536):
                data += more
        return status, s, data.decode()

    def refused(self, target, rule=None, hint=None):
        """Asserts a 403 for a CONNECT; returns its text."""
        status, s, text = self.connect(target)
        s.close()
        assert status == 403, text
        assert "X-Sbxsv-Denied: " in text
        if rule:
            assert rule in text, text
        if hint:
            assert f"add  {hint}  to [Network] of notes.app" in text, text
        return text

    def request(self, raw):
        """Sends raw bytes, reads one answer as its Content-Length says (the site may keep its connection open)."""
        s = self.open()
        s.sendall(raw)
        with s, http.client.HTTPResponse(s) as r:
            r.begin()
            return r.status, str(r.headers), r.read()

    def tls(self, name, sni=None, port=443, check=True):
        """CONNECT name, then TLS with SNI `sni` (the same by default)."""
        status, s, text = self.connect(f"{name}:{port}")
        assert status == 200, text
        ctx = ssl.create_default_context(cafile=self.lab.ca())
        if not check:
            ctx.check_hostname = False
            ctx.verify_mode = ssl.CERT_NONE
        t = ctx.wrap_socket(s, server_hostname=sni or name)
        t.sendall(b"GET /p HTTP/1.1\r\nHost: x\r\n\r\n")
        data = b""
        while more := t.recv(65536):
            data += more
        t.close()
        return data.decode()


def is_cut(fn):
    try:
        fn()
    except (ConnectionError, ssl.SSLError):
        return True
    return False


@netlab.isolated
def test_names_and_tls():
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10", "2a0e:b2::10"], "b.test": ["11.2.0.11"], "x.w.test": ["11.2.0.10"]})
        lab.tls_site("a.test", "11.2.0.10")
        lab.tls_site("b.test", "11.2.0.11")
        s = Setup(lab, allow=["a.test"])
        assert "a.test sni=a.test path=/p" in s.tls("a.test")
        # another name, with the line that would allow it
        text = s.refused("b.test:443", hint="Allow=b.test")
        assert "default-deny" in text
        d = s.proxy.wait("denied")
        assert (d["app"], d["host"], d["port"], d["hint"], d["count"]) == ("notes", "b.test", 443, "Allow=b.test", 1)
        # a port outside of the default ones
        s.refused("a.test:22")
        # the allowed name with another one inside: cut, and an event
        assert is_cut(lambda: s.tls("a.test", sni="b.test", check=False))
        d = s.proxy.wait("denied", match=lambda m: "TLS" in m["rule"])
        assert d["host"] == "a.test" and "b.test" in d["rule"]
        # no SNI at all, plain bytes on a TLS port
        status, sock, _ = s.connect("a.test:443")
        assert status == 200
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert is_cut(lambda: sock.recv(1) or (_ for _ in ()).throw(ConnectionError()))
        # live: the next connection is judged by the new rules
        s.rules(allow=["b.test"])
        assert "b.test sni=b.test" in s.tls("b.test")
        s.refused("a.test:443", hint="Allow=a.test")
        for _ in range(200):
            c = s.proxy.counters("notes")
            if not c["out_open"]:
                break
            time.sleep(0.05)
        assert c["out_allowed"] >= 4 and c["out_denied"] >= 5 and c["out_open"] == 0, c
        s.proxy.close()


@netlab.isolated
def test_addresses_refused():
    own6 = "2a0e:b1::2"
    bad = {"loop": "127.0.0.1", "loop2": "127.1.2.3", "loop6": "::1", "ten": "10.1.2.3", "lan": "192.168.1.10",
           "cgnat": "100.64.1.1", "meta": "169.254.169.254", "zero": "0.0.0.0", "own": "11.1.0.2", "own6": own6,
           "mapped": "::ffff:127.0.0.1", "mapped10": "::ffff:10.1.2.3", "mappedown": "::ffff:11.1.0.2",
           "nat64": "64:ff9b::7f00:1", "nat64meta": "64:ff9b::a9fe:a9fe", "nat64own": "64:ff9b::b01:2",
           "sixto4": "2002:7f00:1::1", "sixto4own": "2002:b01:2::1", "ula": "fd00::1", "ll": "fe80::1",
           "doc": "192.0.2.1", "bench": "198.18.0.1", "mcast": "224.0.0.1", "bcast": "255.255.255.255"}
    names = {f"{k}.test": [v] for k, v in bad.items()}
    names["mixed.test"] = ["11.2.0.10", "10.1.2.3"]
    names["mixed6.test"] = ["11.2.0.10", "::1"]
    names["mixedown.test"] = ["11.2.0.10", "11.1.0.2"]
    names["good.test"] = ["11.2.0.10"]
    with netlab.Lab() as lab:
        lab.dns(names)
        for prefix in ("10.1.2.0/24", "64:ff9b::/96", "2002::/16"):
            lab.route_to_inet(prefix)
        lab.echo_site("11.2.0.10", 80)
        lab.echo_site("10.1.2.3", 80)
        reached = []
        own = socket.create_server(("0.0.0.0", 80), backlog=16)
        threading.Thread(target=lambda: reached.append(own.accept()), daemon=True).start()
        lab.hosts("127.0.0.1 byhosts.test\n11.1.0.2 ownhosts.test\n")
        s = Setup(lab, allow=[*names, "byhosts.test", "ownhosts.test"])
        status, sock, _ = s.connect("good.test:80")
        assert status == 200
        sock.close()
        for name in [n for n in names if n != "good.test"] + ["byhosts.test", "ownhosts.test"]:
            s.refused(f"{name}:80")
        for literal in bad.values():
            s.refused(f"[{literal}]:80" if ":" in literal else f"{literal}:80")
        # with Egress=all names and addresses of this machine, the LAN and metadata stay closed
        s.rules(egress="all", connect=["80"])
        for name in [n for n in names if n != "good.test"] + ["byhosts.test", "ownhosts.test", "localhost"]:
            s.refused(f"{name}:80")
        for literal in bad.values():
            s.refused(f"[{literal}]:80" if ":" in literal else f"{literal}:80")
        status, sock, _ = s.connect("11.2.0.10:80")
        assert status == 200
        sock.close()
        # an address that becomes ours while the proxy runs
        ip = netlab.ip
        ip("addr add 11.2.0.10/32 dev lo")
        assert "this machine" in s.refused("good.test:80")
        ip("addr del 11.2.0.10/32 dev lo")
        status, sock, _ = s.connect("good.test:80")
        assert status == 200
        # AllowAddress opens a private address, by name and by number
        s.rules(allow=["ten.test"], address=["10.1.2.3:80"])
        for target in ("10.1.2.3:80", "ten.test:80"):
            status, sock, text = s.connect(target)
            assert status == 200, text
            sock.sendall(b"ping")
            assert sock.recv(4) == b"ping"
            sock.close()
        assert not reached
        s.proxy.close()


@netlab.isolated
def test_http_requests():
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10"], "b.test": ["11.2.0.11"], "dead.test": ["11.2.0.12"]})
        lab.http_site("a.test", "11.2.0.10")
        lab.http_site("b.test", "11.2.0.11")
        lab.address("11.2.0.12")
        s = Setup(lab, allow=["a.test", "dead.test", "none.test"])
        status, head, body = s.request(b"GET http://A.test/x?y=1 HTTP/1.1\r\nHost: a.test\r\nX-Mine: 1\r\n"
                                       b"Proxy-Authorization: secret\r\nConnection: keep-alive\r\n\r\n")
        seen = json.loads(body)
        headers = {k.lower(): v for k, v in seen["headers"]}
        assert status == 200 and seen["path"] == "/x?y=1" and headers["host"] == "a.test"
        assert headers["x-mine"] == "1" and "proxy-authorization" not in headers and headers["connection"] == "close"
        assert "Connection: close" in head and "keep-alive" not in head and "X-Site: a.test" in head
        # bodies: length and chunked; what follows is not sent on
        status, _, body = s.request(b"POST http://a.test/p HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello"
                                    b"GET http://b.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n")
        assert status == 200 and json.loads(body)["body"] == "hello"
        status, _, body = s.request(b"POST http://a.test/p HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
                                    b"3;x=y\r\nabc\r\n4\r\ndefg\r\n0\r\nTrailer: t\r\n\r\nGET / HTTP/1.1\r\n\r\n")
        assert status == 200 and json.loads(body)["body"] == "abcdefg"
        # a body in pieces, one byte at a time
        sock = s.open()
        for b in b"POST http://a.test/q HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nxyz":
            sock.sendall(bytes([b]))
        data = b""
        while b'"body": "xyz"' not in data:
            more = sock.recv(65536)
            assert more, data
            data += more
        sock.close()
        # big answers arrive whole
        status, _, body = s.request(b"GET http://a.test/stream/5000000 HTTP/1.1\r\nHost: a.test\r\n\r\n")
        assert len(body) == 5000000 and body == (bytes(range(256)) * 19532)[:5000000]
        # refusals: another host, Host that differs, ambiguous framing, own words only
        status, head, body = s.request(b"GET http://b.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n")
        assert status == 403 and b"add  Allow=b.test  to [Network] of notes.app" in body
        for raw in (b"GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n",
                    b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
                    b"GET http://a.test@b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                    b"GET http://evil\x00.a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                    b"CONNECT a.test HTTP/1.1\r\n\r\n", b"CONNECT 0x7f.1:80 HTTP/1.1\r\n\r\n",
                    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03junk\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"):
            status, head, body = s.request(raw)
            assert 400 <= status < 500 and status != 403, (raw, head)
            assert b"evil" not in body and b"b.test" not in body
        status, _, body = s.request(b"GET http://a.test/" + b"x" * 40000 + b" HTTP/1.1\r\nHost: a.test\r\n\r\n")
        assert status in (414, 431)
        # what does not work says why
        status, head, body = s.request(b"GET http://none.test/ HTTP/1.1\r\nHost: none.test\r\n\r\n")
        assert status == 502 and b"no such name" in body
        status, head, body = s.request(b"GET http://dead.test/ HTTP/1.1\r\nHost: dead.test\r\n\r\n")
        assert status == 502 and b"refused" in body
        # upgrade
        sock = s.open()
        sock.sendall(b"GET http://a.test/ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                     b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
        data = b""
        while b"\r\n\r\n" not in data:
            data += sock.recv(65536)
        assert b" 101 " in data and b"Upgrade: websocket" in data
        for i in range(3):
            sock.sendall(b"frame%d" % i)
            assert sock.recv(100) == b"frame%d" % i
        sock.close()
        s.proxy.close()


@netlab.isolated
def test_tunnels():
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["2a0e:b2::66", "11.2.0.10"], "ssh.test": ["11.2.0.13"]})  # ::66 is dead: happy eyeballs
        lab.echo_site("11.2.0.10", 8080)
        lab.banner_site("11.2.0.13", 22)
        s = Setup(lab, allow=["a.test:8080", "ssh.test:22"])
        # a server that speaks first, bytes both ways
        status, sock, _ = s.connect("ssh.test:22")
        assert status == 200 and sock.recv(100) == b"hello\n"
        sock.sendall(b"SSH-2.0-x\r\n")
        assert sock.recv(100) == b"SSH-2.0-x\r\n"
        sock.close()
        # early data: bytes that came with the CONNECT head
        sock = s.open()
        sock.sendall(b"CONNECT a.test:8080 HTTP/1.1\r\nHost: a.test:8080\r\n\r\nearly")
        status, sock, _ = s.answer(sock)
        assert sock.recv(100) == b"early"
        # half close: our end of file goes on, the answer comes back whole
        blob = os.urandom(1 << 20)
        got = bytearray()

        def read():
            while more := sock.recv(1 << 16):
                got.extend(more)
        t = threading.Thread(target=read)
        t.start()
        sock.sendall(blob)
        sock.shutdown(socket.SHUT_WR)
        t.join(30)
        assert bytes(got) == blob
        sock.close()
        s.proxy.close()


def client_hello(name, extra=b""):
    """A real ClientHello of OpenSSL with an extension added at its end."""
    sent = ssl.MemoryBIO()
    t = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    try:
        t.do_handshake()
    except ssl.SSLWantReadError:
        pass
    h = bytearray(sent.read())
    at = 5 + 4 + 2 + 32  # record, handshake, version, random
    at += 1 + h[at]
    at += 2 + int.from_bytes(h[at:at + 2], "big")
    at += 1 + h[at]
    for where, size in ((3, 2), (6, 3), (at, 2)):  # record, handshake, extensions
        n = int.from_bytes(h[where:where + size], "big") + len(extra)
        h[where:where + size] = n.to_bytes(size, "big")
    return bytes(h + extra)


ECH = b"\xfe\x0d\x00\x04abcd"


@netlab.isolated
def test_ech():
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10"]})
        lab.echo_site("11.2.0.10", 443)
        s = Setup(lab, allow=["a.test"])

        def send(hello, pieces=1):
            status, sock, text = s.connect("a.test:443")
            assert status == 200, text
            step = -(-len(hello) // pieces)
            for i in range(0, len(hello), step):
                sock.sendall(hello[i:i + step])
                if pieces > 1:
                    time.sleep(0.005)
            data = b""
            while len(data) < len(hello):
                more = sock.recv(65536)
                if not more:
                    raise ConnectionError
                data += more
            sock.close()
            return data
        plain, ech = client_hello("a.test"), client_hello("a.test", ECH)
        assert send(plain) == plain and send(plain, 40) == plain
        assert s.proxy.counters("notes")["out_ech"] == 0
        assert send(ech, 7) == ech
        assert s.proxy.counters("notes")["out_ech"] == 1
        s.rules(allow=["a.test"], ech_refuse=True)
        assert send(plain) == plain
        assert is_cut(lambda: send(ech))
        assert s.proxy.wait("denied", match=lambda m: "TLS" in m["rule"])["host"] == "a.test"
        assert s.proxy.counters("notes")["out_ech"] == 2
        s.proxy.close()


@netlab.isolated
def test_floods_are_folded():
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10"]})
        s = Setup(lab, allow=["a.test"])
        for i in range(300):
            s.refused(f"n{i}.evil.test:443")
        for _ in range(50):
            s.refused("same.evil.test:443")
        time.sleep(2.5)  # two folding periods
        s.proxy.settle()
        denied = [m for m in s.proxy.messages if m["t"] == "denied"]
        assert sum(m["count"] for m in denied) == 350
        assert len(denied) < 320
        same = [m for m in denied if m["host"] == "same.evil.test"]
        assert len(same) <= 5
        s.proxy.close()


@netlab.isolated
def test_closed_and_missing_policy():
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10"]})
        jail = lab.jail()
        p = proxydrv.Proxy(jail.pool_socket)
        with jail.egress_listener() as listener:
            p.jail("notes", egress=listener)
        s = Setup.__new__(Setup)
        s.jail, s.proxy, s.lab = jail, p, lab
        s.refused("a.test:443")  # no policy message yet
        p.send("policy", app="notes", policy={"nonsense": 1})
        p.sync()
        s.refused("a.test:443", rule="closed")
        p.send("policy", app="notes", policy=policy(allow=["a.test"]), closed="it crashed the parser")
        p.sync()
        text = s.refused("a.test:443")
        assert "it crashed the parser" in text
        p.close()


@netlab.isolated
def test_deadlines_and_crash_page():
    with netlab.Lab() as lab:
        dns = lab.dns({"a.test": ["11.2.0.10"]})
        s = Setup(lab, allow=["a.test"])
        s.refused("b.test:443")
        page = os.pread(s.proxy.crash_fd, 256, 0)
        assert page[0] == 0 and page[1:].split(b"\0")[0] == b"notes"
        sock = s.open()
        start = time.monotonic()
        sock.sendall(b"GET http://a.test/ HTTP/1.1\r\n")
        status, _, text = s.answer(sock)
        assert status == 408 and time.monotonic() - start < 60
        # half a ClientHello
        lab.echo_site("11.2.0.10", 443)
        status, sock, text = s.connect("a.test:443")
        assert status == 200, text
        sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
        assert is_cut(lambda: sock.recv(1) or (_ for _ in ()).throw(ConnectionError()))
        assert "in time" in s.proxy.wait("denied", match=lambda m: "TLS" in m["rule"])["rule"]
        # a name server that does not answer
        dns.send_signal(signal.SIGSTOP)
        s.rules(allow=["*.b.test"])
        status, sock, text = s.connect("x.b.test:443")
        assert status == 504 and "cannot be resolved" in text
        s.proxy.close()
