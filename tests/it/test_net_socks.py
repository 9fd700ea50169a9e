"""SOCKS5 on the port of the explicit proxy: the same verdicts as for HTTP, with the answers of RFC 1928."""
import os
import socket
import ssl
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import netlab
from test_proxy_egress import Setup, is_cut

GREETING = b"\5\1\0"


def request(host, port, command=1):
    if isinstance(host, bytes):
        address = b"\3" + bytes([len(host)]) + host
    elif ":" in host:
        address = b"\4" + socket.inet_pton(socket.AF_INET6, host)
    elif host.replace(".", "").isdigit():
        address = b"\1" + socket.inet_aton(host)
    else:
        address = b"\3" + bytes([len(host)]) + host.encode()
    return b"\5" + bytes([command]) + b"\0" + address + struct.pack("!H", port)


def exactly(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        assert more, f"closed after {data!r}"
        data += more
    return data


class Socks(Setup):
    def socks(self, host, port, command=1):
        """(reply code, socket)"""
        s = self.open()
        s.sendall(GREETING)
        assert exactly(s, 2) == b"\5\0"
        s.sendall(request(host, port, command))
        return self.reply(s), s

    @staticmethod
    def reply(s):
        r = exactly(s, 10)
        assert r[:1] == b"\5" and r[2:] == b"\0\1\0\0\0\0\0\0"
        if r[1]:
            assert s.recv(1) == b""  # and closed, not reset
        return r[1]


@netlab.isolated
def test_targets_and_refusals():
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10", "2a0e:b2::10"], "b.test": ["11.2.0.11"], "ten.test": ["10.1.2.3"],
                 "own.test": ["11.1.0.2"], "dead.test": ["11.2.0.12"], "nonet.test": ["11.2.0.13"]})
        lab.route_to_inet("10.1.2.0/24")
        lab.tls_site("a.test", "11.2.0.10")
        lab.echo_site("11.2.0.10", 8080)
        lab.address("11.2.0.12")
        lab.inet.ip("route add prohibit 11.2.0.13/32")
        netlab.ip("route add unreachable 11.2.0.14/32")
        s = Socks(lab, allow=["a.test", "dead.test", "none.test", "ten.test", "own.test", "11.2.0.10", "nonet.test",
                              "11.2.0.14"])
        for host in ("a.test", "A.Test.", "11.2.0.10", b"11.2.0.10"):
            code, c = s.socks(host, 8080)
            assert code == 0, host
            c.sendall(b"ping")
            assert exactly(c, 4) == b"ping"
            c.close()
        # TLS inside, with the name compared
        code, c = s.socks("a.test", 443)
        t = ssl.create_default_context(cafile=lab.ca()).wrap_socket(c, server_hostname="a.test")
        t.sendall(b"GET /p HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"a.test sni=a.test path=/p" in t.recv(65536) + t.recv(65536)
        t.close()
        code, c = s.socks("a.test", 443)
        assert is_cut(lambda: ssl.create_default_context(cafile=lab.ca()).wrap_socket(c, server_hostname="b.test"))
        assert s.proxy.wait("denied", match=lambda m: m["rule"].startswith("TLS to b.test"))["host"] == "a.test"
        # refused by a rule: 2, with the event that a 403 has
        for host, port in (("b.test", 443), ("a.test", 22), ("10.1.2.3", 80), ("127.0.0.1", 3128), ("::1", 80),
                           ("169.254.169.254", 80), (b"127.0.0.1", 80), ("::ffff:10.1.2.3", 80), ("ten.test", 80),
                           ("own.test", 80), ("11.1.0.2", 80), ("198.18.0.1", 3128)):
            code, _ = s.socks(host, port)
            assert code == 2, (host, port, code)
        d = s.proxy.wait("denied", match=lambda m: m["host"] == "b.test")
        assert (d["port"], d["hint"], d["rule"]) == (443, "Allow=b.test", "default-deny")
        # what does not work says which way
        assert s.socks("none.test", 80)[0] == 4
        assert s.socks("dead.test", 80)[0] == 5
        assert s.socks("11.2.0.14", 80)[0] in (3, 4)
        # commands, types, names that are none
        for command in (0, 2, 3, 0xf0):
            assert s.socks("a.test", 443, command)[0] == 7
        for host in (b"evil.test\0.a.test", b"a.test:443", b"[::1]", b"", b"x@a.test", b"a.test/", b"\xe9.test", b"a" * 255):
            assert s.socks(host, 443)[0] == 1, host
        assert s.socks("a.test", 0)[0] == 1
        s.proxy.close()


@netlab.isolated
def test_split_joined_early():
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10"]})
        lab.echo_site("11.2.0.10", 8080)
        lab.banner_site("11.2.0.10", 22)
        s = Socks(lab, allow=["a.test:8080", "a.test:22"])
        # all in one segment, with what the tunnel carries
        c = s.open()
        c.sendall(GREETING + request("a.test", 8080) + b"early")
        assert exactly(c, 2) == b"\5\0" and s.reply(c) == 0 and exactly(c, 5) == b"early"
        c.close()
        # a byte at a time
        c = s.open()
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for b in GREETING + request("a.test", 8080) + b"late!":
            c.sendall(bytes([b]))
        assert exactly(c, 2) == b"\5\0" and s.reply(c) == 0 and exactly(c, 5) == b"late!"
        c.close()
        # a server that speaks first; half-close
        code, c = s.socks("a.test", 22)
        assert code == 0 and exactly(c, 6) == b"hello\n"
        blob = os.urandom(1 << 20)
        threading.Thread(target=lambda: (c.sendall(blob), c.shutdown(socket.SHUT_WR)), daemon=True).start()
        got = bytearray()
        while more := c.recv(1 << 16):
            got += more
        assert bytes(got) == blob
        # other greetings: no method that we have, SOCKS4, neither
        for hello, answer in ((b"\5\1\2", b"\5\xff"), (b"\5\1\1", b"\5\xff"), (b"\5\0", b"\5\xff"),
                              (b"\4\1\1\xbb\x7f\0\0\1user\0", b"\0\x5b\0\0\0\0\0\0")):
            c = s.open()
            c.sendall(hello)
            assert exactly(c, len(answer)) == answer and c.recv(1) == b""
        # cut off in the middle: closed, nothing dialled, nothing reported
        c = s.open()
        c.sendall((GREETING + request("a.test", 8080))[:-3])
        c.shutdown(socket.SHUT_WR)
        assert exactly(c, 2) == b"\5\0" and c.recv(1) == b""
        s.proxy.close()


@netlab.isolated
def test_deadline_and_closed():
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10"]})
        s = Socks(lab, program="proxy_quick", allow=["a.test"])
        slow = [s.open() for _ in range(3)]
        slow[0].sendall(b"\5")
        slow[1].sendall(b"\5G")  # 71 methods are to follow
        slow[2].sendall(GREETING + request("a.test", 443)[:-1])
        for c in slow:
            while c.recv(16):
                pass
        s.proxy.send("policy", app="notes", policy={"nonsense": 1})
        s.proxy.sync()
        c = s.open()  # not a byte is parsed: the answer is the one of HTTP, and the client sees an end
        assert c.recv(12) == b"HTTP/1.1 403"
        s.proxy.close()
