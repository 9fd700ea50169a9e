"""Policy DNS of sbxsv-proxy alone, driven over its channel: deadlines, limits, what is in the memory it is given, what it does when
an app's egress is closed."""
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import netlab
import proxydrv
import wiretap
from test_proxy_egress import policy

NAMES_BYTES = 2 << 20  # src/base/wire.h
IP_PKTINFO = 8  # linux/in.h
IPV6_FREEBIND = 78  # linux/in6.h: an answer may leave from any address
SERVER = "203.0.113.9"


def names_map(size=NAMES_BYTES, content=b""):
    fd = os.memfd_create("names")
    os.ftruncate(fd, size)
    os.pwrite(fd, content, 0)
    return fd


class Setup:
    """A jail whose port 53 is the proxy's."""

    def __init__(self, lab, program="sbxsv-proxy", names=None, **rules):
        self.jail = lab.jail()
        self.names = names_map() if names is None else names
        self.proxy = proxydrv.Proxy(self.jail.pool_socket, log=open(lab.path("proxy.log"), "w"), program=program)
        self.rules = rules or {"allow": ["a.test", "*.w.test"]}
        self.launch()

    def sockets(self):
        udp, tcp = [], []
        with self.jail:
            for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
                u, t = socket.socket(family, socket.SOCK_DGRAM), socket.socket(family, socket.SOCK_STREAM)
                if family == socket.AF_INET:
                    u.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
                else:
                    u.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
                    u.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
                    for s in (u, t):
                        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                t.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                for s in (u, t):
                    s.bind((host, 53))
                t.listen(256)
                udp.append(u)
                tcp.append(t)
        return udp, tcp

    def launch(self):
        udp, tcp = self.sockets()
        self.proxy.send("policy", app="notes", policy=policy(**self.rules))
        self.proxy.jail("notes", dns_udp=udp, dns_tcp=tcp, names=self.names)
        for s in udp + tcp:
            s.close()
        self.proxy.sync()

    def socket(self, server=SERVER):
        s = self.jail.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(20)
        s.connect((server, 53))
        return s

    def ask(self, name, server=SERVER, **kw):
        with self.socket(server) as s:
            s.settimeout(2)
            for _ in range(10):  # as resolvers do: a datagram may be lost in a flood
                s.send(wiretap.ask(name, **kw))
                try:
                    return wiretap.Answer(s.recv(4096))
                except TimeoutError:
                    pass
            raise TimeoutError(f"{name} at {server}")

    def open(self, server=SERVER):
        return self.jail.connect((server, 53))

    def close(self):
        self.proxy.close()


def framed(m):
    return len(m).to_bytes(2, "big") + m


def exchange(s, m):
    s.sendall(framed(m))
    return read_message(s)


def read_message(s):
    data = b""
    while len(data) < 2 or len(data) < 2 + int.from_bytes(data[:2], "big"):
        more = s.recv(2 - len(data) if len(data) < 2 else 2 + int.from_bytes(data[:2], "big") - len(data))
        if not more:
            return None
        data += more
    return wiretap.Answer(data[2:])


@netlab.isolated
def test_both_families_and_every_server():
    with netlab.Lab() as lab:
        s = Setup(lab)
        want = s.ask("a.test").addresses()
        assert want[0].startswith("198.18.")
        for server in ("127.0.0.1", "127.0.0.53", "8.8.8.8", "198.18.0.1", "::1", "2001:4860:4860::8888", "fd00::1"):
            assert s.ask("a.test", server).addresses() == want, server
            with s.open(server) as c:
                assert exchange(c, wiretap.ask("a.test")).addresses() == want, server
        assert s.ask("b.test").rcode == wiretap.NXDOMAIN
        d = s.proxy.wait("denied")
        assert (d["host"], d["port"], d["operation"], d["hint"], d["count"]) == ("b.test", 0, "resolve", "Allow=b.test", 1), d
        s.close()


@netlab.isolated
def test_slow_and_silent_tcp():
    """Deadlines of proxy_quick pass twenty times as fast: 0.5 s of silence, or without a whole question, and the place is free."""
    with netlab.Lab() as lab:
        s = Setup(lab, program="proxy_quick")
        silent, half = s.open(), s.open()
        half.sendall(framed(wiretap.ask("a.test"))[:9])
        assert silent.recv(1) == b"" and half.recv(1) == b""
        # a byte now and then does not keep it
        drip, ended = s.open(), False
        for b in framed(wiretap.ask("a" * 60 + ".w.test")) * 3:
            try:
                drip.sendall(bytes([b]))
                time.sleep(0.02)
            except OSError:
                ended = True
                break
        assert ended
        # one that asks and does not read: its answers are not kept for ever, and others are served meanwhile
        deaf = s.open()
        deaf.settimeout(1)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            while True:
                deaf.sendall(framed(wiretap.ask("a.test")) * 500)
        except TimeoutError:
            pass
        except OSError:
            pass
        with s.open() as c:
            assert exchange(c, wiretap.ask("a.test")).rcode == 0
        # it takes its time: up to then its questions are answered, at the rate of one app, into the buffers of the kernel
        end, ended = time.monotonic() + 60, False
        while not ended and time.monotonic() < end:
            try:
                deaf.send(b"x")
                time.sleep(0.05)
            except TimeoutError:
                pass
            except OSError:
                ended = True
        assert ended, "the connection that reads nothing is still there"
        # and while it works it stays
        with s.open() as c:
            for _ in range(20):
                assert exchange(c, wiretap.ask("a.test")).rcode == 0
                time.sleep(0.1)
        s.close()


@netlab.isolated
def test_descriptors_and_memory_of_tcp():
    """A thousand connections: 32 at a time, every one is served, none is left behind."""
    with netlab.Lab() as lab:
        s = Setup(lab)
        fds = lambda: len(os.listdir(f"/proc/{s.proxy.proc.pid}/fd"))
        before = fds()
        for _ in range(10):
            conns = [s.open() for _ in range(100)]
            assert fds() <= before + 2 * 32
            for c in conns:
                assert exchange(c, wiretap.ask("a.test")).rcode == 0
                c.close()
        s.proxy.sync()
        end = time.monotonic() + 20
        while fds() > before:
            assert time.monotonic() < end, "descriptors are left"
            time.sleep(0.02)
        # the end of the jail ends its connections
        c = s.open()
        assert exchange(c, wiretap.ask("a.test")).rcode == 0
        s.proxy.send("drop", app="notes")
        assert c.recv(1) == b""
        s.close()


@netlab.isolated
def test_the_map_outlives_the_proxy():
    with netlab.Lab() as lab:
        s = Setup(lab)
        names = ["a.test", *(f"n{i}.w.test" for i in range(500))]
        before = [s.ask(n).addresses() for n in names]
        stop = threading.Event()

        def load():  # new names all the time, while it is killed
            i = 0
            while not stop.is_set():
                i += 1
                try:
                    with s.socket() as c:
                        c.settimeout(0.2)
                        c.send(wiretap.ask(f"more{i}.w.test"))
                        c.recv(4096)
                except OSError:
                    pass

        t = threading.Thread(target=load)
        t.start()
        for _ in range(5):
            time.sleep(0.05)
            s.proxy.kill()
            s.proxy.start()
            s.launch()
            for n, a in list(zip(names, before))[::50]:
                assert s.ask(n).addresses() == a
        stop.set()
        t.join()
        assert [s.ask(n).addresses() for n in names] == before
        s.close()


@netlab.isolated
def test_any_memory_will_do():
    """Too small, full of nonsense, or none: names work, they only do not outlive the proxy."""
    with netlab.Lab() as lab:
        for names in (names_map(size=0), names_map(size=4096), names_map(content=os.urandom(NAMES_BYTES)),
                      names_map(content=b"\xff" * NAMES_BYTES)):
            s = Setup(lab, names=names)
            first = [s.ask(n).addresses() for n in ("a.test", "x.w.test")]
            assert first[0] != first[1] and [s.ask(n).addresses() for n in ("a.test", "x.w.test")] == first
            s.close()


@netlab.isolated
def test_closed_egress_is_not_parsed():
    """When an app's bytes have brought the proxy down three times: a fixed answer, whatever the message holds."""
    with netlab.Lab() as lab:
        s = Setup(lab)
        s.proxy.send("policy", app="notes", policy=policy(allow=["a.test"]), closed="it broke the proxy")
        s.proxy.sync()
        for m in (wiretap.ask("a.test"), b"\x12\x34\1\0" + os.urandom(500), bytes(12)):
            with s.socket() as c:
                c.send(m)
                a = c.recv(4096)
                assert a == m[:2] + bytes([0x80 | m[2] & 1, 0x85]) + bytes(8), a
        with s.socket() as c:  # an answer gets none, nor does a stump
            c.send(b"\x12\x34\x81\x80" + bytes(8))
            c.send(b"short")
            c.send(wiretap.ask("a.test", ident=7))
            assert wiretap.Answer(c.recv(4096)).id == 7
        with s.open() as c:
            assert exchange(c, wiretap.ask("a.test")).rcode == wiretap.REFUSED
        s.proxy.send("policy", app="notes", policy=policy(allow=["a.test"]))
        s.proxy.sync()
        assert s.ask("a.test").addresses()
        s.close()


@netlab.isolated
def test_a_flood_of_datagrams():
    """More than the rate: the proxy sleeps between, and goes on when it is over; refusals are counted, not one message each."""
    with netlab.Lab() as lab:
        s = Setup(lab)
        cpu = lambda: sum(map(int, open(f"/proc/{s.proxy.proc.pid}/stat").read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")
        c = s.socket()
        c.setblocking(False)
        sent = answered = 0
        start, used = time.monotonic(), cpu()
        while time.monotonic() - start < 2:
            for _ in range(100):
                try:
                    c.send(wiretap.ask(f"n{sent}.evil.test"))
                    sent += 1
                except BlockingIOError:
                    pass
            try:
                while True:
                    c.recv(4096)
                    answered += 1
            except BlockingIOError:
                pass
            s.proxy.settle()
        took, used = time.monotonic() - start, cpu() - used
        print(f"{sent} questions, {answered} answers in {took:.1f} s, {used:.2f} s CPU")
        # DNS_RATE of proxy/dns.h, in windows of a tenth of a second, and what one batch may be over it
        assert answered <= 10000 * (took + 0.2) * 1.1
        assert s.ask("a.test").addresses()
        counted = s.proxy.counters("notes")["out_denied"]
        assert answered <= counted <= sent
        denied = [m for m in s.proxy.messages if m["t"] == "denied"]
        assert len(denied) < 1000 and any(m["host"] == "(other targets)" for m in denied)
        s.close()


@netlab.isolated
def test_what_counts_as_one_lookup():
    """A, AAAA and HTTPS, and the same once more as glibc does; then it is another. Other types count each."""
    with netlab.Lab() as lab:
        s = Setup(lab)
        counted = lambda: s.proxy.counters("notes")["out_denied"]
        for kind in (wiretap.A, wiretap.AAAA, wiretap.HTTPS, wiretap.AAAA, wiretap.A):
            assert s.ask("b.test", kind=kind).rcode == wiretap.NXDOMAIN
        assert counted() == 1
        s.ask("b.test")
        assert counted() == 2
        for _ in range(3):
            s.ask("b.test", kind=wiretap.TXT)
        assert counted() == 5
        # many names at once, each with both its questions
        names = [f"n{i}.evil.test" for i in range(8)]
        for kind in (wiretap.AAAA, wiretap.A):
            for n in names:
                s.ask(n, kind=kind)
        assert counted() == 13
        # messages that are no question, and names that are no host's
        with s.socket() as c:
            for m in (b"\x12\x34\1\0\0\2" + bytes(6), wiretap.ask("a b.test"), wiretap.ask("a.test")[:-2]):
                c.send(m)
                c.recv(4096)
        assert counted() == 14
        hosts = {m["host"] for m in s.proxy.messages if m["t"] == "denied"}
        assert hosts == {"b.test", "(no host name)", *names}, hosts
        s.close()


@netlab.isolated
def test_noise():
    """Messages with bytes changed, cut, doubled and run together, by UDP and by TCP in pieces of any size: every connection ends or is
    answered, and the next question is."""
    import random
    rng = random.Random(53)
    with netlab.Lab() as lab:
        s = Setup(lab)
        good = [wiretap.ask(n, kind=k, extra=x, n_extra=bool(x)) for n in ("a.test", "b.test", "x.w.test", "a" * 63 + ".w.test")
                for k in (wiretap.A, wiretap.ANY) for x in (b"", b"\0\0\x29\4\xd0\0\0\0\0\0\0", b"\0\0\x29\4\xd0\0\0\0\0\0\6\0\x0c\0\2\0\0")]

        def broken():
            m = bytearray(rng.choice(good))
            for _ in range(rng.randrange(4)):
                what, at = rng.randrange(4), rng.randrange(len(m)) if m else 0
                if what == 0 and m:
                    m[at] = rng.randrange(256)
                elif what == 1:
                    del m[at:at + rng.randrange(8)]
                elif what == 2:
                    m[at:at] = m[at:at + rng.randrange(40)]
                else:
                    m[at:at] = rng.randbytes(rng.randrange(5))
            return bytes(m)

        c = s.socket()
        c.setblocking(False)
        for i in range(5000):
            c.send(broken())
            if i % 20 == 0:
                s.proxy.sync()
                try:
                    while a := c.recv(4096):
                        assert a[2] & 0x80 and len(a) >= 12
                except BlockingIOError:
                    pass
        for i in range(300):
            stream = b"".join(framed(broken()) if rng.random() < 0.9 else rng.randbytes(rng.randrange(40)) for _ in range(rng.randrange(1, 12)))
            with s.open() as t:
                try:
                    while stream:
                        n = rng.randrange(1, 60)
                        t.sendall(stream[:n])
                        stream = stream[n:]
                    t.shutdown(socket.SHUT_WR)
                    while t.recv(65536):
                        pass
                except OSError:
                    pass
        assert s.ask("a.test").addresses() and s.proxy.proc.poll() is None
        s.close()
