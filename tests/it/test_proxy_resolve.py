"""How sbxsv-proxy looks names up: what is remembered and for how long, dead and lying name servers."""
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import netlab
import wiretap
from test_proxy_egress import Setup

SITE = "11.2.0.10"


def lab_with_site(lab):
    lab.http_site("a.test", SITE)
    return wiretap.NameServer(lab)


def status(s, name):
    code, conn, text = s.connect(f"{name}:80")
    conn.close()
    return code, text


def asked(ns, name):
    return [kind for n, kind in ns.asked if n.lower() == name]


@netlab.isolated
def test_what_is_remembered():
    with netlab.Lab() as lab:
        ns = lab_with_site(lab)
        s = Setup(lab, allow=["a.test", "zero.test", "short.test", "none.test", "broken.test"])
        # as long as the answer says
        ns.ttl = 30
        ns.zone.update({"a.test": [SITE], "zero.test": [SITE], "short.test": [SITE]})
        assert [status(s, "a.test")[0] for _ in range(10)] == [200] * 10
        assert sorted(asked(ns, "a.test")) == [wiretap.A, wiretap.AAAA]
        # not at all when it says 0: the answer of each time is judged
        ns.ttl = 0
        for want, address in ((200, SITE), (403, "10.0.0.1"), (200, SITE), (403, "127.0.0.1")):
            ns.zone["zero.test"] = [address]
            assert status(s, "zero.test")[0] == want
        # and no longer
        ns.ttl = 1
        assert status(s, "short.test")[0] == 200
        ns.zone["short.test"] = ["10.0.0.1"]
        end = time.monotonic() + 20
        while status(s, "short.test")[0] == 200:
            assert time.monotonic() < end, "an answer of a second is kept"
            time.sleep(0.1)
        # what is not there, and what fails, for a moment
        for name, zone, code in (("none.test", wiretap.NXDOMAIN, 502), ("broken.test", wiretap.SERVFAIL, 502)):
            ns.zone[name] = zone
            assert status(s, name)[0] == code
            n = len(asked(ns, name))
            for _ in range(3):
                assert status(s, name)[0] == code
            assert len(asked(ns, name)) <= n + 2 * 2, "asked each time"  # once more if the moment passed between
            ns.zone[name] = [SITE]
            end = time.monotonic() + 20
            while status(s, name)[0] != 200:
                assert time.monotonic() < end, "a failure is kept"
                time.sleep(0.1)
        s.proxy.close()


@netlab.isolated
def test_many_names():
    """Far more names than are kept: memory is bounded, and each is looked up."""
    with netlab.Lab() as lab:
        ns = lab_with_site(lab)
        ns.ttl, ns.default = 300, [SITE]
        s = Setup(lab, allow=["*.w.test"])
        assert status(s, "first.w.test")[0] == 200
        for i in range(600):
            assert status(s, f"n{i}.w.test")[0] == 200
        assert len(asked(ns, "first.w.test")) == 2
        assert status(s, "first.w.test")[0] == 200 and len(asked(ns, "first.w.test")) == 4  # forgotten
        assert status(s, "n599.w.test")[0] == 200 and len(asked(ns, "n599.w.test")) == 2
        s.proxy.close()


@netlab.isolated
def test_one_lookup_for_many_connections():
    with netlab.Lab() as lab:
        ns = lab_with_site(lab)
        go = threading.Event()

        def slow(name, kind, tcp):
            go.wait(20)
            return [SITE]

        ns.zone["a.test"] = slow
        s = Setup(lab, allow=["a.test", "b.test"])
        conns = [s.open() for _ in range(50)]
        for c in conns:
            c.sendall(b"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n")
        s.proxy.sync()
        for c in conns[:10]:  # some give up
            c.close()
        s.proxy.sync()
        go.set()
        assert [s.answer(c)[0] for c in conns[10:]] == [200] * 40
        # the server answers one after the other, so c-ares may have asked once more
        assert len(asked(ns, "a.test")) <= 4
        s.proxy.close()


@netlab.isolated
def test_dead_servers_and_limits():
    """The first server does not answer: the second does. None does: 504, and the names that are known go on."""
    with netlab.Lab() as lab:
        ns = lab_with_site(lab)
        ns.ttl = 300
        ns.zone.update({"a.test": [SITE], "b.test": [SITE], "dead.test": "TIMEOUT"})
        lab.address("11.2.0.99")  # nobody listens there, or it is silent
        silent = lab.inet.socket(socket.AF_INET, socket.SOCK_DGRAM)
        silent.bind(("11.2.0.99", 53))
        lab.resolv_conf(f"nameserver 11.2.0.99\nnameserver {lab.DNS}\n")
        s = Setup(lab, allow=["a.test", "b.test", "dead.test", "*.w.test"])
        assert status(s, "a.test")[0] == 200
        code, text = status(s, "dead.test")
        assert code == 504 and "name server" in text, text
        assert status(s, "a.test")[0] == 200
        # other servers from now on
        lab.resolv_conf(f"nameserver {lab.DNS}\n")
        start = time.monotonic()
        assert status(s, "b.test")[0] == 200
        print(f"{time.monotonic() - start:.3f} s with the new servers")
        # an answer of more addresses than are judged is none
        ns.zone["many.w.test"] = [f"11.3.{i}.1" for i in range(200)]
        code, text = status(s, "many.w.test")
        assert code == 502 and "too many addresses" in text, text
        s.proxy.close()
