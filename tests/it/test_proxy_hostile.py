"""sbxsv-proxy between a hostile app and a hostile server: what they send must hurt nobody else, and pass no judgement."""
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import netlab
import wiretap
from test_proxy_egress import Setup, client_hello, policy


class Origin:
    """A server of the lab's internet: fn(connection) in a thread for each."""

    def __init__(self, lab, address, port, fn):
        if address not in lab._addresses():
            lab.address(address)
        self.fn, self.accepted, self.conns = fn, 0, []
        self.listener = lab.inet.listen((address, port), 4096)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            self.conns.append(c)
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        try:
            self.fn(c)
        except OSError:
            pass


def head_of(c):
    data = b""
    while b"\r\n\r\n" not in data:
        more = c.recv(65536)
        if not more:
            return data
        data += more
    return data


def read_all(s, limit=1 << 30):
    """(bytes, "eof" or "reset" or "open")"""
    data = bytearray()
    try:
        while len(data) < limit:
            more = s.recv(1 << 18)
            if not more:
                return bytes(data), "eof"
            data += more
    except ConnectionError:
        return bytes(data), "reset"
    except TimeoutError:
        pass
    return bytes(data), "open"


def get(s, host="a.test", path="/"):
    c = s.open()
    c.settimeout(30)
    c.sendall(f"GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return c


def cpu(pid):
    v = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(v[11]) + int(v[12])) / os.sysconf("SC_CLK_TCK")


def rss_kib(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * 4


def wait_idle(s, app="notes", key="out_open", value=0):
    for _ in range(400):
        c = s.proxy.counters(app)
        if c[key] == value:
            return c
        time.sleep(0.05)
    raise AssertionError(c)


def addresses(*names):
    """{"a.test": ["11.2.0.10"], "b.test": ["11.2.0.11"], ...}"""
    return {n: [f"11.2.0.{10 + i}"] for i, n in enumerate(names)}


# --- hostile servers ---

@netlab.isolated
def test_hostile_answers():
    """Whatever a site answers, the client gets an end, and the next request is served."""
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    cases = {  # path: (what the site sends, what must be at the front of the client's answer, what must not be in it)
        "/not-http": (b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 502", b"SSH"),
        "/garbage": (os.urandom(70000).replace(b"\n", b"x"), b"HTTP/1.1 502", None),
        "/endless-head": (b"HTTP/1.1 200 OK\r\n" + b"X: yyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n" * 10000, b"HTTP/1.1 502", b"yyyy"),
        "/one-long-line": (b"HTTP/1.1 200 " + b"x" * 300000, b"HTTP/1.1 502", b"xxxx"),
        "/101": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nPRI * HTTP/2.0", b"HTTP/1.1 502", b"PRI"),
        "/interim": (b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + ok, b"HTTP/1.1 100", b"keep-alive"),
        "/cut-head": (b"HTTP/1.1 200 OK\r\nX: y", b"HTTP/1.1 502", None),
        "/nothing": (b"", b"HTTP/1.1 502", None),
        "/hop": (b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Y\r\nKeep-Alive: timeout=99\r\nProxy-Connection: keep-alive\r\n"
                 b"Proxy-Authenticate: Basic\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nok", b"HTTP/1.1 200", b"eep-"),
        "/folded": (b"HTTP/1.1 200 OK\r\nConnection: keep-\r\n alive\r\nContent-Length: 2\r\n\r\nok", b"HTTP/1.1 200", b"alive"),
        "/bare-lf": (b"HTTP/1.1 200 OK\nConnection: keep-alive\nContent-Length: 2\n\nok", b"HTTP/1.1 200", b"alive"),
        "/more-body": (ok + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", None),
        "/version": (b"HTTP/9.9 200 OK\r\n\r\n", b"HTTP/1.1 502", None),
    }
    with netlab.Lab() as lab:
        lab.dns(addresses("a.test", "b.test"))

        def answer(c):
            path = head_of(c).split()[1].decode()
            c.sendall(cases[path][0])
            c.shutdown(socket.SHUT_WR)
        Origin(lab, "11.2.0.10", 80, answer)
        lab.http_site("b.test", "11.2.0.11")
        s = Setup(lab, program="proxy_quick", allow=["a.test", "b.test"])
        for path, (_, front, never) in cases.items():
            c = get(s, path=path)
            data, end = read_all(c)
            assert data.startswith(front), (path, data[:300], end)
            assert never is None or never not in data, (path, data[:300])
            assert data.count(b"\nConnection: close\r\n") == 1, (path, data[:300])
            assert end == "eof", path
            c.close()
            c = get(s, "b.test")
            assert c.recv(12) == b"HTTP/1.1 200", path
            c.close()
        wait_idle(s)
        s.proxy.close()


@netlab.isolated
def test_flood_of_interim_answers():
    """An endless row of 1xx heads, as small as they can be: ended, and no work of seconds for everybody."""
    with netlab.Lab() as lab:
        lab.dns(addresses("a.test", "b.test"))
        stopped = []

        def flood(c):
            head_of(c)
            try:
                while True:
                    c.sendall(b"HTTP/1.1 100 \r\n\r\n" * 20000)
            finally:
                stopped.append(1)
        Origin(lab, "11.2.0.10", 80, flood)
        lab.http_site("b.test", "11.2.0.11")
        s = Setup(lab, program="proxy_quick", allow=["a.test", "b.test"])
        for _ in range(4):
            c = get(s)
            data, end = read_all(c, 1 << 22)
            assert end != "open" and 0 < data.count(b"HTTP/1.1 100") < 100, (end, len(data))
            c.close()
        served(s, "b.test", 1)
        wait_idle(s)
        for _ in range(200):
            if len(stopped) == 4:
                break
            time.sleep(0.05)
        assert len(stopped) == 4  # the site was told, too
        s.proxy.close()


@netlab.isolated
def test_many_long_heads_keep_bounded_memory():
    """Sites that never end the head of their answer: a bound for the app, not for each connection."""
    with netlab.Lab() as lab:
        lab.dns(addresses("a.test", "b.test"))
        big, n = 60000, 400

        def long_head(c):
            head_of(c)
            c.sendall(b"HTTP/1.1 200 OK\r\nX: " + b"y" * big)
            read_all(c)
            c.close()
        Origin(lab, "11.2.0.10", 80, long_head)
        lab.http_site("b.test", "11.2.0.11")
        s = Setup(lab, allow=["a.test", "b.test"])
        served(s, "b.test", 1)
        before = rss_kib(s.proxy.proc.pid)
        kept = [get(s) for _ in range(n)]
        for _ in range(200):
            left = s.proxy.counters("notes")["out_open"]
            if left <= n // 2:
                break
            time.sleep(0.05)
        assert left <= n // 2, left  # the others got a 502, and have closed or were closed
        assert any(read_all(c)[0].startswith(b"HTTP/1.1 502") for c in kept[-5:])
        if "sanitizers" not in open(lab.path("proxy.log")).read():
            assert rss_kib(s.proxy.proc.pid) - before < (8 << 10) * 2 + (4 << 10)
        for c in kept:
            c.close()
        wait_idle(s)
        served(s, "b.test", 1)  # nothing is counted any more
        s.proxy.close()


@netlab.isolated
def test_nothing_is_cut_off():
    """The site closes right after its answer; a client that takes a break, longer than the proxy lingers, gets all of it."""
    with netlab.Lab() as lab:
        lab.dns(addresses("a.test"))
        size = 24 << 20

        def big(c):
            head_of(c)
            c.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * size)
            c.close()
        Origin(lab, "11.2.0.10", 80, big)
        s = Setup(lab, program="proxy_quick", allow=["a.test"])
        small_buffers(s.jail)
        c = get(s)
        got = len(c.recv(1000))
        for _ in range(4):  # the last break has the end of the answer in the proxy's own buffer
            time.sleep(0.6)
            data, end = read_all(c, size - got - 200000 if _ < 3 else 1 << 30)
            got += len(data)
        assert (got - len(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"), end) == (size, "eof")
        wait_idle(s)
        s.proxy.close()


def small_buffers(ns):
    """So that what a proxy keeps is in the proxy, not in the kernel."""
    with ns:
        for name in ("tcp_wmem", "tcp_rmem"):
            with open(f"/proc/sys/net/ipv4/{name}", "w") as f:
                f.write("4096 16384 32768")


@netlab.isolated
def test_silent_sites_keep_nothing():
    """Clients that give up on a site that neither answers nor closes do not use up the app's connections."""
    with netlab.Lab() as lab:
        lab.dns(addresses("a.test"))
        mute = Origin(lab, "11.2.0.10", 80, lambda c: time.sleep(1000))
        s = Setup(lab, program="proxy_quick", allow=["a.test"])
        for i in range(40):
            c = get(s) if i % 2 else s.connect("a.test:80")[1]
            c.close()
        wait_idle(s)
        assert mute.accepted == 40
        # what is half closed and speaks goes on, longer than the silence may be
        slow = Origin(lab, "11.2.0.11", 80, lambda c: [(c.sendall(b"x"), time.sleep(1)) for _ in range(14)] and c.close())
        s.rules(allow=["11.2.0.11"])
        c = s.connect("11.2.0.11:80")[1]
        c.shutdown(socket.SHUT_WR)
        assert read_all(c) == (b"x" * 14, "eof") and slow.accepted == 1
        s.proxy.close()


@netlab.isolated
def test_receivers_that_take_nothing():
    """Memory for what nobody takes is bounded for all of them together."""
    n = 700
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    with netlab.Lab() as lab:
        lab.dns(addresses("a.test"))
        go = threading.Event()
        Origin(lab, "11.2.0.10", 8080, lambda c: (go.wait(), c.sendall(b"x" * 2000000), time.sleep(1000)))
        s = Setup(lab, allow=["a.test"])
        small_buffers(s.jail)
        kept = []
        for _ in range(n):
            c = s.open()
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            c.sendall(b"CONNECT a.test:8080 HTTP/1.1\r\nHost: a.test:8080\r\n\r\n")
            kept.append(c)
        for c in kept:
            head_of(c)
        # bytes pile up while the proxy is stopped: then every read gets as much as a read can get
        s.proxy.proc.send_signal(signal.SIGSTOP)
        go.set()
        time.sleep(2)
        s.proxy.proc.send_signal(signal.SIGCONT)
        last = -1
        for _ in range(100):
            got = s.proxy.counters("notes")["bytes_in"]
            if got == last:
                break
            last = got
            time.sleep(0.3)
        assert s.proxy.counters("notes")["out_open"] == n
        grown = rss_kib(s.proxy.proc.pid)
        if "sanitizers" not in open(lab.path("proxy.log")).read():
            assert grown < (32 << 10) + n * 16 + (8 << 10), f"{grown} KiB"
        # and all of it still arrives
        data, _ = read_all(kept[n // 2], 2000000)
        assert data == b"x" * 2000000
        s.proxy.close()


# --- hostile apps ---

def evil_app(s, lab, allow):
    """A second app of the same proxy: (its jail, a function that opens a connection to its proxy)"""
    jail = lab.jail()
    with jail:
        for name, value in (("core/somaxconn", "4096"), ("ipv4/tcp_max_syn_backlog", "8192")):
            with open("/proc/sys/net/" + name, "w") as f:
                f.write(value)
    s.proxy.send("policy", app="evil", policy=policy(allow=allow))
    with jail.listen(netlab.Jail.PROXY, 4096) as listener:
        s.proxy.jail("evil", egress=listener)
    s.proxy.sync()

    def start():
        with jail:
            c = socket.socket()
        c.setblocking(False)
        c.connect_ex(netlab.Jail.PROXY)
        return c
    return jail, start


def served(s, host="a.test", n=20):
    for _ in range(n):
        c = get(s, host)
        assert c.recv(12) == b"HTTP/1.1 200"
        c.close()


@netlab.isolated
def test_ten_thousand_half_open():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 32768), hard))
    with netlab.Lab() as lab:
        lab.dns(addresses("a.test"))
        lab.http_site("a.test", "11.2.0.10")
        for nofile in (None, 1024):
            s = Setup(lab, nofile=nofile, allow=["a.test"])
            jail, start = evil_app(s, lab, ["a.test"])
            socks = [start() for _ in range(10000 if nofile is None else 3000)]
            for c in socks[:500]:
                try:
                    c.send(b"GET http://a.te")
                except BlockingIOError:
                    pass
            served(s)
            assert s.proxy.counters("evil")["out_open"] > 100  # they were all there meanwhile
            for c in socks:
                c.close()
            wait_idle(s, "evil")
            served(s, n=3)
            s.proxy.close()


@netlab.isolated
def test_out_of_descriptors_with_pools():
    """Sockets for the jails come over the channel: when there is no room for them the channel must not break."""
    import test_proxy_forward as forward
    with netlab.Lab() as lab:
        s = forward.Setup(lab, nofile=200)

        def once(conn, _):
            try:
                conn.recv(1)
                conn.sendall(b"x")
            except OSError:
                pass
            conn.close()
        forward.App(s.jail, once)

        def client():
            for _ in range(60):
                c = s.connect()
                c.sendall(b"q")
                results.append(c.recv(1))
                c.close()
        results = []
        threads = [threading.Thread(target=client) for _ in range(24)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        assert results.count(b"x") == 24 * 60 and s.proxy.proc.poll() is None
        s.close()


@netlab.isolated
def test_resets_and_ends_in_every_phase():
    """A client, then a site, that goes in any way at any moment: nothing stays, nobody else is hurt."""
    hello = client_hello("a.test")
    request = b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    tunnel = b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n"

    def leave(c, how):
        try:
            if how == "reset":
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif how == "half":
                c.shutdown(socket.SHUT_WR)
                read_all(c)
        except OSError:
            pass
        c.close()

    with netlab.Lab() as lab:
        lab.dns(addresses("a.test"))

        def site(c):
            n = next(counter)
            how, mode = ("reset", "half", "close")[n % 3], n // 3 % 3
            if mode:
                c.recv(100)
            if mode == 2:
                c.sendall(b"HTTP/1.1 200 OK\r\nContent-")
            leave(c, how)
        counter = iter(range(1 << 30))
        Origin(lab, "11.2.0.10", 80, site)
        Origin(lab, "11.2.0.10", 443, site)
        s = Setup(lab, program="proxy_quick", allow=["a.test"])
        for how in ("reset", "half", "close"):
            for data in (request, tunnel + hello):
                for at in sorted({0, 1, 20, len(tunnel) - 1, len(tunnel), len(tunnel) + 3, len(data) - 1, len(data)}):
                    for wait in (False, True):
                        c = s.open()
                        c.settimeout(5)
                        try:
                            c.sendall(data[:at])
                            if wait:
                                time.sleep(0.01)
                        except OSError:
                            pass
                        leave(c, how)
        wait_idle(s)
        assert s.proxy.proc.poll() is None
        page = os.pread(s.proxy.crash_fd, 1, 0)
        assert page == b"\0"
        s.proxy.close()


@netlab.isolated
def test_smuggling():
    """One request a connection, whatever follows it and however it is cut up; the site sees nothing else."""
    with netlab.Lab() as lab:
        lab.dns(addresses("a.test"))
        seen = []

        def site(c):
            data = b""
            c.settimeout(0.3)
            try:
                while more := c.recv(65536):
                    data += more
            except TimeoutError:
                pass
            seen.append(data)
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            c.close()
        Origin(lab, "11.2.0.10", 80, site)
        s = Setup(lab, allow=["a.test"])
        second = b"GET /second HTTP/1.1\r\nHost: a.test\r\n\r\n"
        heads = {
            b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n": b"",
            b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody": b"body",
            b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n": b"",
            b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n1;ext\r\nx\r\n0\r\nA: b\r\n\r\n":
                b"1\r\nx\r\n0\r\n\r\n",
            # the body looks like the end of the body
            b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n":
                b"7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n",
        }
        for head, body in heads.items():
            for step in (1 << 20, 1, 3):
                seen.clear()
                c = s.open()
                c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                data = head + second
                for i in range(0, len(data), step):
                    c.sendall(data[i:i + step])
                read_all(c)
                c.close()
                assert len(seen) == 1 and seen[0].partition(b"\r\n\r\n")[2] == body, (head, step, seen)
        # malformed later than the first segment: the site never gets a whole body
        for bad in (b"-1\r\n", b"g\r\n", b"1 \r\nx\r\n", b"1\nx", b"fffffffffffffffff\r\n", b"1\r\nxy\r\n", b"0\r\n x: y\r\n\r\n", b"0\r\r\n",
                    b"1;" + b"e" * 5000 + b"\r\nx\r\n0\r\n\r\n"):
            seen.clear()
            c = s.open()
            c.sendall(b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n")
            time.sleep(0.05)
            try:
                c.sendall(bad)
            except OSError:
                pass
            read_all(c)
            c.close()
            for _ in range(100):
                if seen:
                    break
                time.sleep(0.02)
            assert not any(d.endswith(b"0\r\n\r\n") for d in seen), (bad, seen)
        s.proxy.close()


@netlab.isolated
def test_client_hellos():
    """One byte a segment, one byte a record, at the limit and beyond; nothing arrives before the verdict."""
    with netlab.Lab() as lab:
        lab.dns(addresses("a.test"))
        got = []

        def site(c):
            data = bytearray()
            got.append(data)
            while more := c.recv(65536):
                data += more
        Origin(lab, "11.2.0.10", 443, site)
        s = Setup(lab, program="proxy_quick", allow=["a.test"])

        def records(hello, size):
            body = hello[5:]
            return b"".join(b"\x16\x03\x01" + len(body[i:i + size]).to_bytes(2, "big") + body[i:i + size]
                            for i in range(0, len(body), size))

        def padded(name, total):
            """With a padding extension (RFC 7685), in records of 16 KiB; `total` bytes with their headers."""
            plain = client_hello(name)
            for n in range(total - len(plain) - 40, total):
                h = client_hello(name, b"\0\x15" + n.to_bytes(2, "big") + bytes(n)) if n < 16000 else None
                if h is None:
                    body = plain[5:]
                    ext = b"\0\x15" + n.to_bytes(2, "big") + bytes(n)
                    at = 4 + 2 + 32
                    at += 1 + body[at]
                    at += 2 + int.from_bytes(body[at:at + 2], "big")
                    at += 1 + body[at]
                    b = bytearray(body + ext)
                    b[1:4] = (len(b) - 4).to_bytes(3, "big")
                    b[at:at + 2] = (len(b) - at - 2).to_bytes(2, "big")
                    h = records(b"\0" * 5 + bytes(b), 16384)
                if len(h) == total:
                    return h
            raise AssertionError("no such length")

        def send(data, step=1 << 20):
            got.clear()
            status, c, text = s.connect("a.test:443")
            assert status == 200, text
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                for i in range(0, len(data), step):
                    c.sendall(data[i:i + step])
            except OSError:
                pass
            for _ in range(100):
                if got and bytes(got[0]) == data:
                    c.close()
                    return True
                c.settimeout(0.02)
                try:
                    if c.recv(1) == b"":
                        break
                except TimeoutError:
                    continue
                except ConnectionError:
                    break
            c.close()
            assert not got or not got[0], bytes(got[0])[:50]
            return False

        hello, other = client_hello("a.test"), client_hello("b.test")
        assert send(hello) and send(hello, 1) and send(records(hello, 1)) and send(records(hello, 1), 7)
        assert not send(other) and not send(other, 1) and not send(records(other, 1), 7)
        for n in (16000, 30000, 32760):
            assert send(padded("a.test", n)), n
            assert send(padded("a.test", n), 1000), n
        assert not send(padded("b.test", 32760)) and not send(padded("a.test", 32769)) and not send(padded("a.test", 40000), 1000)
        assert not send(hello[:-1])  # never complete: the deadline
        wait_idle(s)
        s.proxy.close()


# --- names ---

class Resolver:
    """A name server of the lab with manners of its own: fn(name, type, query) -> list of datagrams; over TCP fn(..., tcp=True)."""

    def __init__(self, lab, fn, address=None):
        self.fn, self.asked = fn, []
        address = address or lab.DNS
        self.udp = lab.inet.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind((address, 53))
        self.tcp = lab.inet.listen((address, 53))
        threading.Thread(target=self.serve, daemon=True).start()
        threading.Thread(target=self.serve_tcp, daemon=True).start()

    def answer(self, q, tcp):
        labels, at = [], 12
        while q[at]:
            labels.append(q[at + 1:at + 1 + q[at]])
            at += 1 + q[at]
        name = b".".join(labels).decode()
        kind = struct.unpack_from("!H", q, at + 1)[0]
        self.asked.append(name)
        return self.fn(name.lower(), kind, q[:at + 5], tcp)

    def serve(self):
        while True:
            q, who = self.udp.recvfrom(4096)
            for a in self.answer(q, False):
                if callable(a):
                    a(self, q, who)
                else:
                    self.udp.sendto(a, who)

    def serve_tcp(self):
        while True:
            c, _ = self.tcp.accept()
            try:
                n = struct.unpack("!H", c.recv(2))[0]
                for a in self.answer(c.recv(n), True):
                    c.sendall(struct.pack("!H", len(a)) + a)
            except OSError:
                pass
            c.close()


def reply(q, records=(), rcode=0, flags=0x8180):
    """records: (owner as bytes, type, ttl, data)"""
    body = b"".join(o + struct.pack("!HHIH", t, 1, ttl, len(d)) + d for o, t, ttl, d in records)
    return q[:2] + struct.pack("!HHHHH", flags | rcode, 1, len(records), 0, 0) + q[12:] + body


HERE = b"\xc0\x0c"


def a_record(address, ttl=0, owner=HERE):
    return (owner, 1, ttl, socket.inet_aton(address))


def wire_name(name):
    return b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0"


@netlab.isolated
def test_hostile_name_servers():
    flips = {}

    def serve(name, kind, q, tcp):
        if kind != 1:
            return [reply(q)]
        key = name.split(".")[0]
        flips[key] = flips.get(key, 0) + 1
        if key == "flip":  # rebinding: good at first, then this machine
            return [reply(q, [a_record("11.2.0.10" if flips[key] == 1 else "127.0.0.1")])]
        if key == "chain":
            names = [wire_name(f"c{i}.test") for i in range(8)]
            chain = [(HERE, 5, 5, names[0])] + [(names[i], 5, 5, names[i + 1]) for i in range(7)]
            return [reply(q, chain + [a_record("11.2.0.10", 5, names[7])])]
        if key == "chainbad":
            return [reply(q, [(HERE, 5, 5, wire_name("in.test")), a_record("10.0.0.1", 5, wire_name("in.test"))])]
        if key == "loop":
            return [reply(q, [(HERE, 5, 5, wire_name("loop2.test")), (wire_name("loop2.test"), 5, 5, wire_name("loop.test"))])]
        if key == "ptrloop":
            return [reply(q)[:-5] + b"\xc0\x0c" * 20]
        if key == "many":
            return [reply(q, [a_record(f"11.3.{i}.{k}", 5) for i in range(4) for k in range(1, 31)])] if tcp \
                else [reply(q, flags=0x8380)]
        if key == "sixty":
            return [reply(q, [a_record("11.2.0.10", 5)] + [a_record(f"11.3.0.{k}", 5) for k in range(1, 60)])] if tcp \
                else [reply(q, flags=0x8380)]
        if key == "hidden":  # the one bad address is the last of many
            return [reply(q, [a_record("11.2.0.10", 5)] * 27 + [a_record("127.0.0.1", 5)])]
        if key == "extra":  # an address of somebody else's name
            return [reply(q, [a_record("11.2.0.66", 5, wire_name("other.test"))])]
        if key == "trunc":
            return [reply(q, [a_record("11.2.0.10", 5)], flags=0x8380)] if not tcp else [reply(q, [a_record("127.0.0.1", 5)])]
        if key == "short":
            return [(HERE[:1] * 3), reply(q)[:11], reply(q, [a_record("11.2.0.66")])[:-3], reply(q, [a_record("11.2.0.10")])]
        if key == "wrongid":
            return [bytes([q[0] ^ 255]) + reply(q, [a_record("11.2.0.66")])[1:], reply(q, [a_record("11.2.0.10")])]
        if key == "wrongsource":
            def elsewhere(r, _, who):
                s = lab.inet.socket(socket.AF_INET, socket.SOCK_DGRAM)
                s.bind(("11.2.0.66", 53))
                s.sendto(reply(q, [a_record("11.2.0.66", 60)]), who)
                s.close()
                time.sleep(0.1)
            return [elsewhere, reply(q, [a_record("11.2.0.10")])]
        if key == "ttl":
            return [reply(q, [a_record("11.2.0.10", 0xffffffff)])]
        if key == "refused":
            return [reply(q, rcode=5)]
        if key == "nx":
            return [reply(q, rcode=3)]
        if key == "empty":
            return [reply(q)]
        if key == "mute":
            return []
        return [reply(q, [a_record("11.2.0.10", 5)])]

    allowed = ["chain", "sixty", "wrongid", "wrongsource", "ttl", "plain"]
    refused = ["chainbad", "hidden"]
    failing = ["loop", "ptrloop", "many", "refused", "nx", "empty", "mute"]
    with netlab.Lab() as lab:
        lab.address("11.2.0.66")
        names = Resolver(lab, serve)
        Origin(lab, "11.2.0.10", 8080, lambda c: c.sendall(b"good"))
        s = Setup(lab, allow=["*.w.test"])
        sniffer = wiretap.Tap(lab)
        for key in allowed:
            status, c, text = s.connect(f"{key}.w.test:8080")
            assert status == 200 and c.recv(4) == b"good", (key, text)
            c.close()
        for key in refused:
            s.refused(f"{key}.w.test:8080")
        for key in failing:
            status, c, text = s.connect(f"{key}.w.test:8080")
            assert status in (502, 504), (key, text)
            c.close()
        for key in ("trunc", "extra", "short"):  # whatever is made of it, it is judged: no address but the site's is dialled
            status, c, text = s.connect(f"{key}.w.test:8080")
            assert status != 200 or c.recv(4) == b"good", (key, text)
            c.close()
        # judged and dialled are the same answer, and each connection is judged
        status, c, text = s.connect("flip.w.test:8080")
        assert status == 200 and c.recv(4) == b"good", text
        c.close()
        s.refused("flip.w.test:8080", rule="loopback")
        connects = [address for address, _ in sniffer.take()[0]]
        assert set(connects) <= {"11.2.0.10", "11.2.0.53"} | {f"11.3.0.{k}" for k in range(1, 60)}, connects
        # names that are one name are asked for once
        before = len(names.asked)
        for spelled in ("PLAIN.w.test", "plain.W.TEST.", "plain.w.test"):
            c = s.connect(f"{spelled}:8080")[1]
            assert c.recv(4) == b"good"
            c.close()
        assert len(names.asked) - before <= 2, names.asked[before:]  # A and AAAA, if the first answer is too old
        s.proxy.close()


@netlab.isolated
def test_new_name_servers_while_lookups_wait():
    """The name servers changed while lookups wait for those that are gone: they, and the next ones, go to the new ones."""
    with netlab.Lab() as lab:
        Resolver(lab, lambda name, kind, q, tcp: [])
        lab.address("11.2.0.54")
        Resolver(lab, lambda name, kind, q, tcp: [reply(q, [a_record("11.2.0.10", 5)] if kind == 1 else [])], "11.2.0.54")
        Origin(lab, "11.2.0.10", 8080, lambda c: c.sendall(b"good"))
        s = Setup(lab, allow=["*.w.test"])
        waiting = []
        for i in range(10):
            c = s.open()
            c.sendall(f"CONNECT w{i}.w.test:8080 HTTP/1.1\r\nHost: w{i}.w.test:8080\r\n\r\n".encode())
            waiting.append(c)
        s.proxy.sync()
        time.sleep(0.2)
        lab.resolv_conf("nameserver 11.2.0.54\n")
        status, c, text = s.connect("next.w.test:8080")
        assert status == 200, text
        for c in waiting:
            status, _, text = s.answer(c)
            assert status == 200, text
        s.proxy.close()


# --- changes in the middle ---

@netlab.isolated
def test_rules_that_change_meanwhile():
    """A connection is judged by the rules of the moment: after the lookup, and when it is made."""
    gate = threading.Event()

    def serve(name, kind, q, tcp):
        if name.startswith("late"):
            gate.wait(20)
        return [reply(q, [a_record("11.2.0.99" if name.startswith("far") else "11.2.0.10", 5)] if kind == 1 else [])]
    with netlab.Lab() as lab:
        Resolver(lab, serve)
        site = Origin(lab, "11.2.0.10", 443, lambda c: time.sleep(1000))
        s = Setup(lab, allow=["*.w.test", "11.2.0.99"])

        def ask(target):
            c = s.open()
            c.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
            return c
        head = s.open()
        head.sendall(b"CONNECT a.w.test:443 HTTP/1.1\r\nHost: a.w")
        lookup = ask("late.w.test:443")
        dialling = [ask("far.w.test:443"), ask("11.2.0.99:443")]  # nobody answers there yet
        for _ in range(200):
            if s.proxy.counters("notes")["out_open"] == 4:
                break
            time.sleep(0.02)
        time.sleep(0.3)
        s.rules(allow=["other.test"])
        far = Origin(lab, "11.2.0.99", 443, lambda c: time.sleep(1000))
        gate.set()
        head.sendall(b".test:443\r\n\r\n")
        for c in (head, lookup, *dialling):
            status, _, text = s.answer(c)
            assert status == 403, text
        assert site.accepted == 0
        assert s.proxy.counters("notes")["out_allowed"] == 0
        assert far.accepted <= 2  # the kernel connected; not a byte went
        # closed altogether, in each phase
        s.rules(allow=["*.w.test"])
        gate.clear()
        head = s.open()
        head.sendall(b"CONNECT a.w.test:443 HTTP/1.1\r\nHost: a.w")
        lookup = ask("late2.w.test:443")
        time.sleep(0.3)
        s.proxy.send("policy", app="notes", policy=policy(allow=["*.w.test"]), closed="it crashed the parser")
        s.proxy.sync()
        gate.set()
        head.sendall(b".test:443\r\n\r\n")
        for c in (head, lookup):
            status, _, text = s.answer(c)
            assert status == 403 and "it crashed the parser" in text, text
        s.proxy.close()


@netlab.isolated
def test_jail_replaced_in_every_phase():
    """A new launch takes every connection of the one before down, whatever it waits for."""
    gate = threading.Event()

    def serve(name, kind, q, tcp):
        if name.startswith("late"):
            gate.wait(20)
        return [reply(q, [a_record("11.2.0.99" if name.startswith("far") else "11.2.0.10", 5)] if kind == 1 else [])]
    with netlab.Lab() as lab:
        Resolver(lab, serve)
        Origin(lab, "11.2.0.10", 443, lambda c: (c.sendall(b"hi"), read_all(c), c.close()))
        Origin(lab, "11.2.0.10", 80, lambda c: (head_of(c), c.sendall(b"HTTP/1.1 200 OK\r\nX"), read_all(c), c.close()))
        s = Setup(lab, allow=["*.w.test"])
        for action in ("jail", "drop", "remove"):
            socks = []
            for data in (b"", b"GET http", b"CONNECT late.w.test:443 HTTP/1.1\r\nHost: late.w.test:443\r\n\r\n",
                         b"CONNECT far.w.test:443 HTTP/1.1\r\nHost: far.w.test:443\r\n\r\n",
                         b"CONNECT a.w.test:443 HTTP/1.1\r\nHost: a.w.test:443\r\n\r\n",
                         b"CONNECT a.w.test:443 HTTP/1.1\r\nHost: a.w.test:443\r\n\r\n\x16\x03\x01\x02\x00\x01",
                         b"CONNECT a.w.test:443 HTTP/1.1\r\nHost: a.w.test:443\r\n\r\n" + client_hello("a.w.test"),
                         b"GET http://a.w.test/ HTTP/1.1\r\nHost: a.w.test\r\n\r\n",
                         b"POST http://a.w.test/ HTTP/1.1\r\nHost: a.w.test\r\nContent-Length: 9\r\n\r\nxx",
                         b"CONNECT no.test:443 HTTP/1.1\r\nHost: no.test:443\r\n\r\n"):
                c = s.open()
                c.sendall(data)
                socks.append(c)
            time.sleep(0.3)
            gate.clear()
            s.proxy.send("drop", app="notes") if action == "drop" else None
            if action == "remove":
                s.proxy.send("remove", app="notes")
                s.rules(allow=["*.w.test"])
            s.jail = lab.jail()
            with s.jail.egress_listener() as listener:
                s.proxy.jail("notes", egress=listener)
            s.proxy.sync()
            for c in socks:
                c.settimeout(20)
                assert read_all(c)[1] != "open"
                c.close()
            gate.set()
            status, c, text = s.connect("a.w.test:443")
            assert status == 200 and c.recv(2) == b"hi", text
            c.close()
            wait_idle(s)
        s.proxy.close()


@netlab.isolated
def test_quiet_after_a_flood():
    """Thousands of refusals and broken heads: memory stays, and when it is over nothing ticks."""
    with netlab.Lab() as lab:
        lab.dns(addresses("a.test"))
        s = Setup(lab, program="proxy_quick", allow=["a.test"])
        pid = s.proxy.proc.pid

        def burst(n):
            for i in range(n):
                with s.open() as c:
                    if i % 4 == 3:
                        c.sendall(b"GET http://a.test/ HTTP/1.1\r\n" + b"X-%d: y\r\n" % i * 99 + b"\0\r\n\r\n")
                    else:
                        c.sendall(b"CONNECT n%d.evil.test:443 HTTP/1.1\r\nHost: n%d.evil.test:443\r\n\r\n" % (i, i))
                    read_all(c)
                if i % 50 == 0:
                    s.proxy.settle()
                    s.proxy.messages.clear()
        burst(1000)
        before = rss_kib(pid)
        burst(3000)
        if "sanitizers" not in open(lab.path("proxy.log")).read():
            assert rss_kib(pid) - before < 1024
        wait_idle(s)
        time.sleep(2.5)  # what is folded is told
        s.proxy.settle()

        def switches():
            return sum(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if "ctxt_switches" in line)
        first, ticks = switches(), cpu(pid)
        time.sleep(2)
        assert switches() - first <= 1 and cpu(pid) - ticks < 0.05
        s.proxy.close()


@netlab.isolated
def test_every_address_of_this_machine():
    """The kernel knows what is local: secondary addresses, prefixes, other tables, broadcast and anycast, the proxy's own listener."""
    with netlab.Lab() as lab:
        for command in ("addr add 11.5.0.1/32 dev lo", "addr add 11.1.0.77/24 dev wan", "-6 addr add 2a0e:b5::1/128 dev lo",
                        "route add local 11.6.0.0/16 dev lo", "-6 route add local 2a0e:b6::/64 dev lo",
                        "route add local 11.7.0.0/16 dev lo table 100", "rule add to 11.7.0.0/16 lookup 100"):
            netlab.ip(command)
        own = {"secondary": "11.5.0.1", "second": "11.1.0.77", "six": "2a0e:b5::1", "prefix": "11.6.7.8", "prefix6": "2a0e:b6::9",
               "table": "11.7.0.9", "broadcast": "11.1.0.255", "all": "255.255.255.255", "zero": "0.0.0.0",
               "zero6": "::", "mapped": "::ffff:11.5.0.1", "nat64": "64:ff9b::b05:1", "sixto4": "2002:b05:1::1",
               "proxy": netlab.Jail.PROXY[0]}
        lab.dns({f"{k}.test": [v] for k, v in own.items()} | {"good.test": ["11.2.0.10"]})
        for prefix in ("64:ff9b::/96", "2002::/16"):
            lab.route_to_inet(prefix)
        Origin(lab, "11.2.0.10", 8080, lambda c: c.sendall(b"good"))
        listeners = [socket.create_server(("0.0.0.0", 8080)), socket.create_server(("::", 8080), family=socket.AF_INET6)]
        sniffer = wiretap.Tap(lab)
        s = Setup(lab, allow=[f"{k}.test" for k in own])
        for rules in ({"allow": [f"{k}.test" for k in own] + ["good.test"]},
                      {"egress": "all", "address": ["10.0.0.0/8:*", "172.16.0.0/12:*", "192.168.0.0/16:*"]}):
            s.rules(**rules)
            for name, address in own.items():
                s.refused(f"{name}.test:8080")
                s.refused(f"[{address}]:8080" if ":" in address else f"{address}:8080")
            s.refused("localhost:8080")
            s.refused(f"{netlab.Jail.PROXY[0]}:{netlab.Jail.PROXY[1]}")
            status, c, text = s.connect("good.test:8080")
            assert status == 200 and c.recv(4) == b"good", text
            c.close()
        connects = [address for address, _ in sniffer.take()[0]]
        assert set(connects) == {"11.2.0.10"}, connects
        for listener in listeners:
            listener.setblocking(False)
            try:
                listener.accept()
                raise AssertionError("a service of this machine was reached")
            except BlockingIOError:
                pass
        s.proxy.close()
