"""Connections that programs make without a proxy: where they wanted to go, and whether they get there."""
import http.client
import json
import os
import resource
import socket
import ssl
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import netlab
import proxydrv
import wiretap
from test_proxy_egress import ECH, client_hello, is_cut, policy

NAMES_BYTES = 2 << 20  # src/base/wire.h
IP_PKTINFO = 8  # linux/in.h
PORTS = (22, 25, 80, 443, 5432, 8080, 3128, 3129, 9999)


class Captured:
    """A jail whose every connect to PORTS arrives at the proxy, with policy DNS: src/net's form without nf_tables."""

    def __init__(self, lab, program="sbxsv-proxy", **rules):
        self.lab, self.jail = lab, lab.jail()
        self.names = os.memfd_create("names")
        os.ftruncate(self.names, NAMES_BYTES)
        self.proxy = proxydrv.Proxy(self.jail.pool_socket, log=open(lab.path("proxy.log"), "w"), program=program)
        self.rules(**rules)
        self.launch()

    def launch(self):
        listeners = []
        with self.jail:
            for port in PORTS:
                listeners.append((socket.create_server(("0.0.0.0", port), backlog=256), port))
                s = socket.socket(socket.AF_INET6)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                s.bind(("::", port))
                s.listen(256)
                listeners.append((s, port))
            dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            dns.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
            dns.bind(("0.0.0.0", 53))
        self.proxy.jail("notes", transparent=listeners, dns_udp=[dns], names=self.names)
        self.proxy.sync()
        for s in [s for s, _ in listeners] + [dns]:
            s.close()

    def rules(self, **rules):
        self.proxy.send("policy", app="notes", policy=policy(**rules))
        self.proxy.sync()

    def lookup(self, name):
        s = self.jail.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(20)
        s.sendto(wiretap.ask(name), ("9.9.9.9", 53))
        found = wiretap.Answer(s.recv(2048)).addresses()
        s.close()
        return found[0] if found else None

    def open(self, where, port):
        """To an address, or to a name as a program would: by what the name server says."""
        if not where.replace(".", "").isdigit() and ":" not in where:
            name, where = where, self.lookup(where)
            assert where, f"{name} does not exist"
        return self.jail.connect((where, port))

    def tls(self, where, name, port=443):
        t = ssl.create_default_context(cafile=self.lab.ca()).wrap_socket(self.open(where, port), server_hostname=name)
        t.sendall(b"GET /p HTTP/1.1\r\nHost: x\r\n\r\n")
        data = b""
        while more := t.recv(65536):
            data += more
        t.close()
        return data.decode()

    def cut(self, where, port, say=b"", end=False):
        """Asserts that the connection ends in a reset, with nothing received; returns the event."""
        try:
            with self.open(where, port) as s:
                if say:
                    s.sendall(say)
                if end:
                    s.shutdown(socket.SHUT_WR)
                got = s.recv(4096)
        except (ConnectionResetError, BrokenPipeError):
            got = None
        assert got is None, (where, port, say, got)
        return self.proxy.wait("denied")

    def http(self, where, raw, port=80):
        s = self.open(where, port)
        s.sendall(raw)
        with s, http.client.HTTPResponse(s) as r:
            r.begin()
            return r.status, str(r.headers), r.read()


def exactly(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        assert more, f"closed after {data!r}"
        data += more
    return data


@netlab.isolated
def test_names():
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10"], "b.test": ["11.2.0.11"], "ssh.test": ["11.2.0.13"], "pg.test": ["11.2.0.13"],
                 "priv.test": ["10.1.2.3"], "own.test": ["11.1.0.2"], "dead.test": ["11.2.0.14"]})
        lab.tls_site("a.test", "11.2.0.10")
        lab.tls_site("b.test", "11.2.0.11")
        lab.banner_site("11.2.0.13", 22)
        lab.echo_site("11.2.0.13", 5432)
        s = Captured(lab, allow=["a.test", "ssh.test:22", "pg.test:5432", "priv.test", "own.test", "dead.test", "gone.test"])
        # TLS, verified, by name; another name inside is cut
        assert "a.test sni=a.test path=/p" in s.tls("a.test", "a.test")
        assert is_cut(lambda: s.tls("a.test", "b.test"))
        assert s.proxy.wait("denied")["rule"].startswith("TLS to b.test:")
        assert s.lookup("b.test") is None
        s.proxy.wait("denied")
        # a server that speaks first, bytes both ways; a protocol of its own that asks for TLS (PostgreSQL)
        c = s.open("ssh.test", 22)
        assert exactly(c, 6) == b"hello\n"
        c.sendall(b"SSH-2.0-x\r\n")
        assert exactly(c, 11) == b"SSH-2.0-x\r\n"
        c.close()
        c = s.open("pg.test", 5432)
        c.sendall(b"\0\0\0\x08\x04\xd2\x16\x2f")
        assert exactly(c, 8) == b"\0\0\0\x08\x04\xd2\x16\x2f"
        hello = client_hello("other.test")  # what comes after that is not ours to read
        c.sendall(hello)
        assert exactly(c, len(hello)) == hello
        c.close()
        # not TLS on a port of TLS
        assert "not TLS" in s.cut("a.test", 443, b"SSH-2.0-x\r\n")["rule"]
        # a port that no rule has, an answer that is private or this machine's own, no such name, nobody there
        d = s.cut("ssh.test", 25)
        assert (d["host"], d["port"], d["hint"]) == ("ssh.test", 25, "Allow=ssh.test:25")
        assert s.cut("priv.test", 443)["hint"] == "AllowAddress=10.1.2.3:443"
        assert "this machine" in s.cut("own.test", 443)["rule"]
        for name in ("gone.test", "dead.test"):
            assert is_cut(lambda: s.open(name, 443).recv(1))
        # an address that stands for nothing; the jail's own, at another port
        for address in ("198.19.7.7", "198.18.0.9", "198.18.0.1"):
            d = s.cut(address, 443)
            assert d["host"] == address and "no name has this address" in d["rule"], d
        # TLS that does not begin with a ClientHello, as some servers take it, on any port
        for first in (b"\x15\x03\x01\0\x02\x01\x5a", b"\x14\x03\x01\0\x01\x01", b"\x18\x03\x01\0\x01\x01", b"\x80\x2e\x01\x03\x01"):
            assert "TLS: " in s.cut("pg.test", 5432, first + client_hello("b.test"))["rule"], first
            assert "TLS: " in s.cut("a.test", 443, first + client_hello("a.test"))["rule"], first
        # half a ClientHello and an end, and none at all
        assert "cut off" in s.cut("a.test", 443, b"\x16\x03\x01\x02", end=True)["rule"]
        s.proxy.close()


@netlab.isolated
def test_addresses():
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10", "2a0e:b2::10"], "b.test": ["11.2.0.11"]})
        lab.route_to_inet("10.1.2.0/24")
        lab.address("10.1.2.3", "11.2.0.99")
        lab.tls_site("a.test", "11.2.0.10")
        lab.echo_site("10.1.2.3", 5432)
        lab.banner_site("10.1.2.3", 22)
        lab.echo_site("11.2.0.99", 443)  # nothing of these may ever arrive there
        s = Captured(lab, allow=["a.test", "11.2.0.11", "11.2.0.99:5432"], address=["10.1.2.3:5432", "10.1.2.3:22"])
        # what the rules name by address is dialled at once
        c = s.open("10.1.2.3", 5432)
        c.sendall(b"ping")
        assert exactly(c, 4) == b"ping"
        c.close()
        c = s.open("10.1.2.3", 22)
        assert exactly(c, 6) == b"hello\n"
        c.close()
        # any other: the name inside is judged, and goes where the name goes, be the address public, private or IPv6
        for address in ("11.2.0.99", "93.184.216.34", "10.0.0.5", "2606:2800:220:1::1"):
            assert "a.test sni=a.test path=/p" in s.tls(address, "a.test"), address
        d = s.cut("11.2.0.99", 443, client_hello("b.test"))
        assert (d["host"], d["port"], d["rule"], d["hint"]) == ("b.test", 443, "default-deny", "Allow=b.test")
        # nothing that names a site
        for say, why in ((b"\0\1\2", "not TLS"), (b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "not TLS"),
                         (b"\x16\x03\x01\x00\x05\x02\0\0\1\0", "something else than a ClientHello")):
            d = s.cut("11.2.0.99", 443, say)
            assert (d["host"], d["port"], d["hint"]) == ("11.2.0.99", 443, "Allow=11.2.0.99") and why in d["rule"], d
        nameless = ssl.MemoryBIO()
        ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        ctx.check_hostname = False
        t = ctx.wrap_bio(ssl.MemoryBIO(), nameless)
        try:
            t.do_handshake()
        except ssl.SSLWantReadError:
            pass
        assert "names no server" in s.cut("11.2.0.99", 443, nameless.read())["rule"]
        assert "ended" in s.cut("11.2.0.99", 443, b"\x16\x03", end=True)["rule"]
        # no name is allowed at that port: nothing is waited for
        d = s.cut("11.2.0.99", 22)
        assert (d["rule"], d["hint"]) == ("default-deny", "Allow=11.2.0.99:22")
        assert s.cut("11.2.0.99", 3129)["hint"] == "Allow=11.2.0.99:3129"
        # closed by nature
        for address, rule in (("127.0.0.1", "loopback"), ("127.5.5.5", "loopback"), ("::1", "loopback"),
                              ("169.254.169.254", "link-local"), ("168.63.129.16", "metadata"), ("0.0.0.0", "loopback"), ("11.1.0.2", "default-deny")):
            d = s.cut(address, 443, client_hello("b.test"))
            assert rule in d["rule"], (address, d)
        # Deny= of the address stands, whatever is inside; and with Egress=all the machine is closed all the same
        s.rules(allow=["a.test"], deny=["11.2.0.99"])
        assert "Deny=11.2.0.99" in s.cut("11.2.0.99", 443, client_hello("a.test"))["rule"]
        s.rules(egress="all")
        assert "this machine" in s.cut("11.1.0.2", 443, b"x")["rule"]
        s.rules(egress="all", deny=["b.test"])  # of a program that looked b.test up by itself
        assert "TLS to b.test: notes.app:3 Deny=b.test" == s.cut("11.2.0.99", 443, client_hello("b.test"))["rule"]
        c = s.open("11.2.0.99", 443)
        c.sendall(client_hello("c.test"))
        assert exactly(c, 5) == b"\x16\x03\x01" + client_hello("c.test")[3:5]
        c.close()
        while s.proxy.counters("notes")["out_open"]:  # else it is one more that is cut
            time.sleep(0.02)
        s.rules(egress="off")
        assert s.cut("93.184.216.34", 443)["rule"] == "default-deny"
        # ECH
        s.rules(allow=["a.test"], ech_refuse=True)
        assert "Ech=refuse" in s.cut("11.2.0.99", 443, client_hello("a.test", ECH))["rule"]
        s.proxy.close()


@netlab.isolated
def test_http():
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10"], "b.test": ["11.2.0.11"]})
        lab.address("11.2.0.99")
        lab.http_site("a.test", "11.2.0.10")
        lab.http_site("b.test", "11.2.0.11")
        lab.http_site("a.test", "11.2.0.10", 9999)
        s = Captured(lab, allow=["a.test", "a.test:9999"])
        for where in ("a.test", "11.2.0.99", "10.9.9.9"):  # an address: the one that Host has, never that
            status, head, body = s.http(where, b"GET /x?y=1 HTTP/1.1\r\nHost: A.test\r\nConnection: keep-alive\r\nX-Mine: 1\r\n\r\n")
            seen = json.loads(body)
            headers = {k.lower(): v for k, v in seen["headers"]}
            assert status == 200 and seen["site"] == "a.test" and seen["path"] == "/x?y=1", where
            assert headers["host"] == "a.test" and headers["x-mine"] == "1" and headers["connection"] == "close"
            assert "Connection: close" in head
        status, _, body = s.http("a.test", b"\r\nPOST /p HTTP/1.1\r\nHost: a.test:9999\r\nTransfer-Encoding: chunked\r\n\r\n"
                                           b"3\r\nabc\r\n0\r\n\r\n", port=9999)
        assert status == 200 and json.loads(body)["body"] == "abc"
        status, _, body = s.http("a.test", b"GET http://a.test/abs HTTP/1.1\r\nHost: a.test\r\n\r\n")
        assert json.loads(body)["path"] == "/abs"
        status, _, body = s.http("a.test", b"GET /old HTTP/1.0\r\n\r\n")  # the name is known: Host is written
        assert ["Host", "a.test"] in json.loads(body)["headers"]
        # a request for another site: the first, and one that follows on the same connection
        for raw in (b"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a.test:81\r\n\r\n",
                    b"GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
                    b"GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n", b"\r\n\r\nGET / HTTP/1.1\r\nHost: b.test\r\n\r\n",
                    b"CONNECT b.test:443 HTTP/1.1\r\nHost: b.test:443\r\n\r\n", b"BREW / HTTP/1.1\r\nHost: b.test\r\n\r\n",
                    b"get / HTTP/1.1\r\nHost: b.test\r\n\r\n",
                    # as http.server of Python takes them: other white space, fields after a line of HTTP/0.9
                    b"GET\x0b/\x0cHTTP/1.1\r\nHost: b.test\r\n\r\n", b"\xa0GET / HTTP/1.1\r\nHost: b.test\r\n\r\n",
                    b"GET /\r\nHost: b.test\r\n\r\n",
                    b"GET / HTTP/1.1\nHost: b.test\n\n", b"GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
                    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n"
                    b"Transfer-Encoding: chunked\r\n\r\n"):
            d = s.cut("a.test", 80, raw)
            assert d["host"] == "a.test" and d["rule"].startswith("HTTP: "), (raw, d)
        c = s.open("a.test", 80)
        c.sendall(b"GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: b.test\r\n\r\n")
        with http.client.HTTPResponse(c) as r:
            r.begin()
            assert json.loads(r.read())["path"] == "/1"
        c.settimeout(0.5)
        try:
            assert c.recv(1) == b""  # the second was not sent on
        except TimeoutError:
            pass
        c.close()
        # by address: the name that Host has is judged
        d = s.cut("11.2.0.99", 80, b"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n")
        assert (d["host"], d["hint"]) == ("b.test", "Allow=b.test")
        for raw in (b"GET / HTTP/1.0\r\n\r\n", b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n",
                    b"GET / HTTP/1.1\r\nHost: 11.2.0.99\r\n\r\n", b"hello\n"):
            assert s.cut("11.2.0.99", 80, raw)["host"] == "11.2.0.99", raw
        # websocket; other protocols on a port of HTTP; a request cut at each byte
        c = s.open("a.test", 80)
        c.sendall(b"GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        data = b""
        while b"\r\n\r\n" not in data:
            data += c.recv(65536)
        assert b" 101 " in data
        c.sendall(b"frame")
        assert exactly(c, 5) == b"frame"
        c.close()
        c = s.open("a.test", 80)
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for b in b"GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n":
            c.sendall(bytes([b]))
        with c, http.client.HTTPResponse(c) as r:
            r.begin()
            assert json.loads(r.read())["path"] == "/slow"
        c = s.open("a.test", 80)  # in pieces, of which the first do not look like it
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for b in b"get / HTTP/1.1\r\nHost: b.test\r\n\r\n":
                c.sendall(bytes([b]))
                time.sleep(0.002)
            assert is_cut(lambda: c.recv(1))
        except OSError:
            pass  # the reset came to a send
        s.proxy.wait("denied", match=lambda m: "RFC 9112" in m["rule"])
        # SniPolicy=off: what is said inside is the app's business
        s.rules(allow=["a.test"], sni_match=False)
        status, _, body = s.http("a.test", b"GET / HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n")
        assert ["Host", "b.test"] in json.loads(body)["headers"]
        s.proxy.close()


@netlab.isolated
def test_restart_keeps_names():
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10"], "b.test": ["11.2.0.11"]})
        lab.tls_site("a.test", "11.2.0.10")
        s = Captured(lab, allow=["a.test", "b.test"])
        address, other = s.lookup("a.test"), s.lookup("b.test")
        assert address != other and address.startswith("198.1")
        s.proxy.kill()
        s.proxy.start()
        s.rules(allow=["a.test", "b.test"])
        s.launch()
        assert "a.test sni=a.test" in s.tls(address, "a.test")
        assert s.lookup("b.test") == other
        s.proxy.close()


@netlab.isolated
def test_silence_and_limits():
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10"]})
        lab.tls_site("a.test", "11.2.0.10")
        s = Captured(lab, program="proxy_quick", allow=["a.test"])
        # says nothing, to an address that could still be anything: ends
        silent = s.open("11.2.0.99", 443)
        assert is_cut(lambda: silent.recv(1))
        d = s.proxy.wait("denied")
        assert d["host"] == "11.2.0.99" and "in time" in d["rule"]
        # half a ClientHello to a name
        half = s.open("a.test", 443)
        half.sendall(client_hello("a.test")[:40])
        assert is_cut(lambda: half.recv(1))
        assert "in time" in s.proxy.wait("denied")["rule"]
        # half a request, and a first word that may become one
        lab.echo_site("11.2.0.10", 80)
        for start in (b"GET / HTTP/1.1\r\nHost: a.t", b"GET"):
            half = s.open("a.test", 80)
            half.sendall(start)
            assert is_cut(lambda: half.recv(1))
            assert "in time" in s.proxy.wait("denied")["rule"]
        # closed egress: reset before a byte is read
        s.proxy.send("policy", app="notes", policy=policy(allow=["a.test"]), closed="it crashed the parser")
        s.proxy.sync()
        assert s.cut("11.2.0.99", 443)["rule"] == "egress closed"
        s.proxy.close()


@netlab.isolated
def test_slow_hellos_are_bounded():
    """2,000 connections that each hold as much as they may: the app waits for itself, memory stays bounded, others do not notice."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert hard > 2500, f"ulimit -Hn is {hard}: too few for 2,000 connections"
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # of this test's own process
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10"]})
        lab.tls_site("a.test", "11.2.0.10")
        s = Captured(lab, allow=["a.test"])
        rss = lambda: int(open(f"/proc/{s.proxy.proc.pid}/statm").read().split()[1]) * 4
        before = rss()
        slow, piece = [], b"\x16\x03\x01\x40\x00\x01\x00\x70\x00" + b"\x03\x03" + b"x" * 12000
        for _ in range(2000):
            with s.jail:
                c = socket.socket()
            c.setblocking(False)
            c.connect_ex(("11.2.0.99", 443))
            slow.append(c)
        end = time.monotonic() + 60
        waiting = set(slow)
        while waiting and time.monotonic() < end:
            for c in list(waiting):
                try:
                    c.send(piece)
                    waiting.discard(c)
                except BlockingIOError:
                    pass
                except OSError:
                    waiting.discard(c)
            s.proxy.settle()
            if s.proxy.counters("notes")["out_open"] >= 1000:
                break
        assert rss() - before < 40 << 10, rss() - before  # KiB
        for c in slow:
            c.close()
        for _ in range(600):
            if not s.proxy.counters("notes")["out_open"]:
                break
            time.sleep(0.05)
        assert "a.test sni=a.test" in s.tls("a.test", "a.test")
        s.proxy.close()


def raw_hello(name, early=False):
    """A ClientHello in one record."""
    return client_hello(name, b"\0\x2a\0\0" if early else b"")


@netlab.isolated
def test_second_hello():
    """A server that asks for another ClientHello gets one with the same name, or none."""
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10"]})
        lab.address("11.2.0.10")
        listener = lab.inet.listen(("11.2.0.10", 443))
        s = Captured(lab, allow=["a.test"])
        seen = []

        def tls_server():
            ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            ctx.load_cert_chain(*lab.certificate("a.test"))
            ctx.set_ecdh_curve("secp384r1")  # no client sends a share of it at once: HelloRetryRequest
            raw, _ = listener.accept()
            hello = raw.recv(65536, socket.MSG_PEEK)
            with ctx.wrap_socket(raw, server_side=True) as t:
                seen.append((hello, t.version(), t.recv(100)))
                t.sendall(b"pong")
        for where in ("a.test", "10.9.9.9"):
            server = threading.Thread(target=tls_server, daemon=True)
            server.start()
            ctx = ssl.create_default_context(cafile=lab.ca())
            with ctx.wrap_socket(s.open(where, 443), server_hostname="a.test") as t:
                t.sendall(b"ping")
                assert t.recv(4) == b"pong"
            server.join(20)
            assert seen.pop()[1:] == ("TLSv1.3", b"ping")
        ccs, data = b"\x14\x03\x03\0\x01\x01", b"\x17\x03\x03\0\x02xy"
        good, evil = raw_hello("a.test"), raw_hello("b.test")
        warning, empty = b"\x15\x03\x03\0\x02\x01\x5a", b"\x16\x03\x03\0\0"  # both skipped by servers
        for where in ("a.test", "10.9.9.9"):
            for first, more, arrives in ((good, ccs + good + data, True), (good, data + evil, True), (good, ccs + evil, False),
                                         (good, evil, False), (good, ccs + warning + evil, False), (good, empty + evil, False),
                                         (good, warning + good + data, True), (raw_hello("a.test", True), data + ccs + evil, False)):
                c = s.open(where, 443)
                c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                c.sendall(first)
                site, _ = listener.accept()
                assert exactly(site, len(first)) == first
                site.sendall(b"retry")
                assert exactly(c, 5) == b"retry"
                reset = False
                for at in range(0, len(more), 7):
                    try:
                        c.sendall(more[at:at + 7])
                    except (ConnectionResetError, BrokenPipeError):
                        reset = True
                        break
                    time.sleep(0.001)
                if arrives:
                    assert exactly(site, len(more)) == more
                else:
                    assert reset or is_cut(lambda: c.recv(1))
                    d = s.proxy.wait("denied")
                    assert d["host"] == "a.test" and d["rule"].startswith("TLS: an empty" if more.startswith(empty) else "TLS to b.test"), d
                    got = b""
                    try:
                        while part := site.recv(65536):
                            got += part
                    except ConnectionResetError:
                        pass
                    assert more.startswith(got) and len(got) <= len(more) - len(evil)
                c.close()
                site.close()
        s.proxy.close()
