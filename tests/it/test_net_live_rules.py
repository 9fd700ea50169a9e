"""Rules that change while connections are open: those whose rule went are cut at once, the others are left alone."""
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import netlab
from test_net_socks import Socks
from test_net_transparent import Captured, exactly
from test_proxy_egress import is_cut, policy

BLOB = bytes(range(256)) * 4096


class Source:
    """Sends without end to whoever connects, and counts."""

    def __init__(self, lab, address, port):
        lab.address(address)
        self.listener = lab.inet.listen((address, port))
        self.sent, self.ended = 0, threading.Event()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            c, _ = self.listener.accept()
            threading.Thread(target=self.send, args=(c,), daemon=True).start()

    def send(self, c):
        try:
            while True:
                c.sendall(BLOB)
                self.sent += len(BLOB)
        except OSError:
            self.ended.set()


class Reader:
    """Takes everything that comes, until the end; 1 GiB of it or whatever came before it was cut."""

    def __init__(self, sock):
        self.sock, self.got, self.end = sock, 0, None
        sock.settimeout(60)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            while more := self.sock.recv(1 << 18):
                self.got += len(more)
            self.end = "eof"
        except ConnectionResetError:
            self.end = "reset"
        except OSError as e:
            self.end = repr(e)

    def busy(self):
        end = time.monotonic() + 60
        was = self.got
        while self.got < was + (8 << 20):
            assert self.end is None and time.monotonic() < end, (self.end, self.got)
            time.sleep(0.01)


@netlab.isolated
def test_running_transfer_is_cut():
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10"], "b.test": ["11.2.0.11"]})
        gone, stays = Source(lab, "11.2.0.10", 8080), Source(lab, "11.2.0.11", 8080)
        s = Socks(lab, allow=["a.test:8080", "b.test:8080"])
        code, c = s.socks("a.test", 8080)
        code2, other = s.socks("b.test", 8080)
        status, tunnel, _ = s.connect("a.test:8080")
        assert (code, code2, status) == (0, 0, 200)
        readers = [Reader(c), Reader(tunnel)]
        kept = Reader(other)
        for r in [*readers, kept]:
            r.busy()
        s.proxy.send("policy", app="notes", policy=policy(allow=["b.test:8080"]))
        for r in readers:
            r.thread.join(30)
            assert r.end == "reset", (r.end, r.got)
        assert gone.ended.wait(30)
        d = s.proxy.wait("denied")
        assert (d["app"], d["host"], d["port"]) == ("notes", "a.test", 8080)
        assert d["rule"] == "rule removed: notes.app:3 Allow=a.test:8080" and d["hint"] == "Allow=a.test"
        kept.busy()
        # the next try is judged by the rules of now; and works again when the rule is back, without a restart
        assert s.socks("a.test", 8080)[0] == 2
        s.rules(allow=["b.test:8080", "a.test:8080"])
        code, c = s.socks("a.test", 8080)
        assert code == 0 and exactly(c, 100) == BLOB[:100]
        kept.busy()
        s.proxy.close()


@netlab.isolated
def test_what_closes_what():
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10"], "x.w.test": ["11.2.0.11"], "ten.test": ["10.1.2.3"]})
        lab.route_to_inet("10.1.2.0/24")
        for address in ("11.2.0.10", "11.2.0.11", "10.1.2.3"):
            lab.echo_site(address, 8080)
        s = Socks(lab, allow=[])

        def opened(rules, host, fine):
            """Opens under the one set of rules, then these come; the connection lives or not, with the event."""
            s.rules(**rules)
            code, c = s.socks(host, 8080)
            assert code == 0, (host, rules)
            s.rules(**fine[0])
            if fine[1]:
                c.sendall(b"ping")
                assert exactly(c, 4) == b"ping", fine
                c.close()
                while s.proxy.counters("notes")["out_open"]:
                    time.sleep(0.01)
                assert not [m for m in s.proxy.messages if m["t"] == "denied"]
                return None
            assert is_cut(lambda: c.recv(1)), fine
            c.close()
            return s.proxy.wait("denied")
        named = {"allow": ["a.test"]}
        # still allowed: by another line, by a wider rule, by Egress=all
        for other in ({"allow": ["b.test", "a.test"]}, {"allow": ["a.test:8080"]}, {"egress": "all"}):
            opened(named, "a.test", (other, True))
        # a port less, a Deny= of the name or of the address that it went to, another Egress=
        assert "rule removed" in opened(named, "a.test", ({"allow": ["a.test:443"]}, False))["rule"]
        d = opened(named, "a.test", ({"allow": ["a.test"], "deny": ["a.test"]}, False))
        assert d["rule"] == "rule removed: notes.app:3 Allow=a.test, now notes.app:3 Deny=a.test", d
        assert "Deny=11.2.0.10" in opened(named, "a.test", ({"allow": ["a.test"], "deny": ["11.2.0.10"]}, False))["rule"]
        opened(named, "a.test", ({"allow": ["a.test"], "deny": ["11.2.0.11"]}, True))
        assert "rule removed" in opened(named, "a.test", ({"egress": "off"}, False))["rule"]
        assert "rule removed" in opened({"egress": "all"}, "x.w.test", ({"egress": "all", "connect": ["443"]}, False))["rule"]
        assert "rule removed" in opened({"allow": ["*.w.test"]}, "x.w.test", ({"allow": ["*.v.test"]}, False))["rule"]
        # private: both rules are needed for a name, one for an address
        both = {"allow": ["ten.test"], "address": ["10.1.2.0/24:8080"]}
        assert "AllowAddress" in opened(both, "ten.test", ({"allow": ["ten.test"]}, False))["hint"]
        opened(both, "10.1.2.3", ({"address": ["10.1.2.0/24:8080"]}, True))
        opened({"allow": ["11.2.0.10"]}, "11.2.0.10", ({"allow": ["11.2.0.10:8080"]}, True))
        assert "rule removed" in opened({"allow": ["11.2.0.10"]}, "11.2.0.10", ({"allow": ["a.test"]}, False))["rule"]
        # egress closed: all of it
        s.rules(**named)
        code, c = s.socks("a.test", 8080)
        s.proxy.send("policy", app="notes", policy=policy(**named), closed="it crashed the parser")
        assert is_cut(lambda: c.recv(1))
        assert s.proxy.wait("denied")["rule"] == "egress closed"
        s.proxy.close()


@netlab.isolated
def test_in_every_phase():
    """Rules that go while a connection waits for the resolver, for the site, or in the middle of its first bytes."""
    with netlab.Lab() as lab:
        dns = lab.dns({"a.test": ["11.2.0.10"], "slow.test": ["11.2.0.12"],
                       "late.test": ["11.2.0.10"]})
        lab.echo_site("11.2.0.10", 443)
        lab.inet.ip("route add blackhole 11.2.0.12/32")
        s = Captured(lab, allow=["a.test", "slow.test", "late.test"])
        # in the lookup: judged when the answer comes
        dns.send_signal(signal.SIGSTOP)
        waiting = s.open("late.test", 443)
        s.rules(allow=["a.test", "slow.test"])
        dns.send_signal(signal.SIGCONT)
        assert is_cut(lambda: waiting.recv(1))
        d = s.proxy.wait("denied")
        assert d["host"] == "late.test" and d["rule"] == "default-deny"
        # in the dial, where nobody answers; in the middle of a ClientHello
        dialling = s.open("slow.test", 443)
        half = s.open("a.test", 443)
        half.sendall(b"\x16\x03\x01\x02\x00\x01")
        time.sleep(0.2)
        s.rules(allow=["b.test"])
        assert is_cut(lambda: half.recv(1))
        d = s.proxy.wait("denied")
        assert d["host"] == "a.test" and d["rule"].startswith("rule removed")
        dialling.close()
        s.proxy.close()


@netlab.isolated
def test_many_connections():
    """Judging thousands again is quick, and takes none that is still allowed."""
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    n = min(3000, (min(hard, 65536) - 1000) // 8)
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10"], "b.test": ["11.2.0.10"]})
        lab.address("11.2.0.10")
        listener = lab.inet.listen(("11.2.0.10", 8080), backlog=4096)
        s = Socks(lab, allow=["a.test:8080", "b.test:8080"])
        held, socks = [], []
        for i in range(n):
            code, c = s.socks("ab"[i % 2] + ".test", 8080)
            assert code == 0
            socks.append(c)
            held.append(listener.accept()[0])
        rules = [f"n{i}.test" for i in range(2000)]
        start = time.monotonic()
        for _ in range(20):  # all of them twenty times
            s.rules(allow=[*rules, "a.test:8080", "b.test:8080"])
        assert time.monotonic() - start < 60
        assert s.proxy.counters("notes")["out_open"] == n
        s.rules(allow=[*rules, "b.test:8080"])
        assert s.proxy.counters("notes")["out_open"] == n // 2
        for i, c in enumerate(socks):
            if i % 2 == 0:
                assert is_cut(lambda: c.recv(1))
            else:
                held[i].sendall(b"x")
                assert c.recv(1) == b"x"
        denied = sum(m["count"] for m in s.proxy.messages if m["t"] == "denied")
        time.sleep(1.5)
        s.proxy.settle()
        denied = sum(m["count"] for m in s.proxy.messages if m["t"] == "denied")
        assert denied == n - n // 2, denied  # one event and its repeats, folded
        s.proxy.close()


@netlab.isolated
def test_rules_are_counted():
    with netlab.Lab() as lab:
        names = [f"n{i}.test" for i in range(100)]
        lab.dns({"a.test": ["11.2.0.10"], **{n: ["11.2.0.10"] for n in names}})
        lab.echo_site("11.2.0.10", 443)
        s = Socks(lab, allow=["a.test", *names], deny=["b.test"])
        for host, port, code in (("a.test", 443, 0), ("a.test", 443, 0), ("b.test", 443, 2), ("c.test", 443, 2),
                                 ("a.test", 22, 2), ("127.0.0.1", 80, 2)):
            assert s.socks(host, port)[0] == code
        code, c = s.socks("a.test", 443)
        c.sendall(b"no TLS")  # cut: counts for the rule that had allowed it
        assert is_cut(lambda: c.recv(1))
        assert s.proxy.counters("notes")["rules"] == {
            "notes.app:3 Allow=a.test": {"allowed": 3, "denied": 1}, "notes.app:3 Deny=b.test": {"allowed": 0, "denied": 1},
            "default-deny": {"allowed": 0, "denied": 2}, "closed: loopback": {"allowed": 0, "denied": 1}}
        # of itself only what changed
        assert s.socks("c.test", 443)[0] == 2
        m = s.proxy.wait("counters", match=lambda m: "default-deny" in m["apps"].get("notes", {}).get("rules", {}))
        assert m["apps"]["notes"]["rules"] == {"default-deny": {"allowed": 0, "denied": 3}}
        # bounded: those used last are known
        for n in names:
            code, c = s.socks(n, 443)
            assert code == 0
            c.close()
        rules = s.proxy.counters("notes")["rules"]
        assert len(rules) == 64 and rules["notes.app:103 Allow=n99.test"] == {"allowed": 1, "denied": 0}
        s.proxy.close()
