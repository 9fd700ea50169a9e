"""What is shown is what is enforced: `check --allow` against the proxy, status and events of refusals, floods of them."""
import json
import os

import harness
import netlab
import netsup

# What the units below are asked about. Whatever the answer is: it must be the same from `sbxsv check --allow` and inside.
TARGETS = [
    "a.test:443", "a.test:80", "a.test:8080", "a.test:8443", "a.test:22", "a.test:1", "a.test:65535", "A.Test.:443",
    "x.a.test:443", "w.test:443", "x.w.test:443", "y.x.w.test:443", "deny.w.test:443", "deny.w.test:80", "aw.test:443",
    "b.test:443", "b.test:5000", "b.test:5009", "b.test:5010", "b.test:4999", "c.test:443", "nas.test:5432",
    "11.2.0.10:443", "11.2.0.10:22", "11.2.0.11:443", "11.2.0.12:443", "[2a0e:b2::10]:443", "[2a0e:b2::11]:443", "[2A0E:B2:0::10]:443",
    "192.168.77.2:5432", "192.168.77.2:5433", "192.168.77.3:5432", "[fd00:77::2]:7", "[fd00:78::2]:7", "[::ffff:192.168.77.2]:5432",
    "10.0.0.1:443", "169.254.169.254:80", "[fe80::1]:80", "0.0.0.0:80", "[::]:80", "224.0.0.1:80", "192.0.2.1:80", "198.18.0.9:3128",
    "0.0.0.0:4999", "[::]:4999", "127.0.0.1:4999", "127.0.0.1:5000", "127.0.0.2:4999", "[::1]:4999", "[::1]:5000", "localhost:4999", "localhost:5000", "x.localhost:4999",
    "[::ffff:127.0.0.1]:4999", "[64:ff9b::7f00:1]:4999", "[2002:7f00:1::]:4999",
    "11.1.0.2:443", "[2a0e:b1::2]:443", "192.168.77.1:5432", "[::ffff:11.1.0.2]:443", "[64:ff9b::b01:2]:443",
    "0x7f.1:443", "127.1:443", "2130706433:443", "a..test:443", "-a.test:443", "a_b.w.test:443", "metadata.google.internal:80",
]
UNITS = {
    "off": "Loopback=4999",
    "hosts": "Allow=a.test\nAllow=*.w.test\nAllow=b.test:5000-5009\nAllow=11.2.0.10\nAllow=11.1.0.2\nAllow=[2a0e:b2::10]\nAllow=nas.test:5432\n"
             "Deny=deny.w.test:443\nAllowAddress=192.168.77.0/24:5432\nAllowAddress=[fd00:77::]/64:*\nLoopback=4999",
    "all": "Egress=all\nConnect=80,443,5000-5004\nAllow=b.test:5009\nDeny=11.2.0.11\nDeny=x.w.test\nDeny=c.test:443",
    "any": "Egress=all\nAllowAddress=192.168.77.2:5432",
}
# Reaches a target as a program would that heeds NO_PROXY, and answers whether sbxsv let it: a site that does not answer was let.
REACH = """
def reach(target):
    host, port = target.rsplit(":", 1)
    host = host.strip("[]")
    # what NO_PROXY names, and what the kernel takes for loopback; the rest asks the proxy
    if host in ("localhost", "0.0.0.0", "::") or host.startswith(("127.", "::1", "::ffff:127.")):
        return dial(host, int(port)) == "connected" or connect_through(target)
    return connect_through(target)
def connect_through(target):
    if "HTTPS_PROXY" not in os.environ:
        return False
    return connect(target)[0] in (200, 502, 504)
result = {t: reach(t) for t in TARGETS}
"""


@netsup.lab
def test_check_gives_the_answer_of_the_proxy(lab, sup):
    names = ("a.test", "w.test", "x.w.test", "y.x.w.test", "deny.w.test", "b.test", "c.test", "aw.test", "x.a.test", "a_b.w.test")
    lab.dns({**{n: ["11.2.0.10"] for n in names}, "nas.test": ["192.168.77.2"], "c.test": ["11.2.0.12"]})
    lab.address("11.2.0.10", "11.2.0.11", "11.2.0.12", "2a0e:b2::10", "2a0e:b2::11")
    lan = lab.lan()
    lan.ip("addr add 192.168.77.3/24 dev lan")
    for prefix in ("64:ff9b::/96", "2002::/16", "fd00:78::/64"):
        lab.route_to_inet(prefix)
    netlab.ip("route add 169.254.169.254 via 192.168.77.2")
    for port in (4999, 5000, 443, 80, 5432):
        server = sup.spawn([harness.PYTHON, "-c", "import socket, sys\n"
                            "s = socket.create_server(('::', int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)\n"
                            "print('ready', flush=True)\nwhile True: s.accept()[0].close()", str(port)], stdout=-1,
                           preexec_fn=None)
        assert server.stdout.readline() == b"ready\n"
    for name, network in UNITS.items():
        sup.agent(name, network)
    sup.up_all()
    wrong = []
    for name in UNITS:
        inside = sup.run(name, f"TARGETS = {TARGETS!r}\n{REACH}")
        for target in TARGETS:
            r = sup.sbxsv("check", "--allow", name, target, "--json")
            if r.code not in (0, 6):  # no target at all: a word of usage, and refused inside too
                assert r.code in (1, 2) and r.err, (name, target, r)
            if (r.code == 0) != inside[target]:
                wrong.append((name, target, f"check: exit {r.code}, inside: {inside[target]}", r.out, r.err))
    assert not wrong, "\n".join(map(str, wrong))


@netsup.lab
def test_status_and_events_tell_what_was_refused(lab, sup):
    lab.dns({"a.test": ["11.2.0.10"], "inner.test": ["10.0.0.7"]})
    lab.http_site("a.test", "11.2.0.10")
    sup.agent("box", "Allow=a.test\nAllow=inner.test\nDeny=evil.test")
    sup.agent("quiet", "Allow=a.test")
    sup.up_all()
    assert sup.run("box", "result = [get('http://a.test/')[0] for _ in range(7)]") == [200] * 7
    asked = [("b.test", 443, "Allow=b.test", "default-deny"), ("evil.test", 80, "", "box.app"),
             ("inner.test", 80, "AllowAddress=10.0.0.7:80", "default-deny"), ("127.0.0.1", 22, "Loopback=22", "closed: loopback")]
    for host, port, _, _ in asked:
        assert sup.run("box", f"result = [connect('{host}:{port}')[0] for _ in range(3)]") == [403] * 3
    s = harness.wait_for(lambda: (lambda s: s if s["counters"]["out_denied"] == 12 and
                                  sum(d["count"] for d in s["denied"]) == 12 else None)(sup.peek("box")), 30, "12 refusals in status")
    assert s["counters"]["out_allowed"] == 7 and s["counters"]["bytes_in"] > 0 and s["counters"]["bytes_out"] > 0
    assert sup.peek("quiet")["counters"]["out_denied"] == 0 and not sup.peek("quiet")["denied"]
    shown = {(d["host"], d["port"]): d for d in s["denied"]}
    assert s["denied"][0]["host"] == "127.0.0.1" or s["denied"][0]["last"] >= shown["127.0.0.1", 22]["last"]
    text = sup.ok("status", "box")
    for host, port, hint, rule in asked:
        d = shown[host, port]
        assert d["count"] == 3 and d["hint"] == hint and rule in d["rule"] and d["last"], d
        assert f"{host}:{port}" in text and hint in text, text
    # one line for the first of each target, the rest counted in one more
    for host, port, hint, rule in asked:
        ours = lambda: sup.violations("box", host=host, port=port)
        harness.wait_for(lambda: sum(e.get("count", 1) for e in ours()) == 3, 30, f"three refusals of {host} in the events")
        lines = ours()
        assert len(lines) <= 3 and "count" not in lines[0], lines
        assert all(e["operation"] == "connect" and e["action"] == "denied" and e["hint"] == hint and rule in e["rule"] for e in lines)
    # the commands show them too
    assert "b.test" in sup.ok("events", "box") and "b.test" not in sup.ok("events", "quiet")
    line = [json.loads(x) for x in sup.ok("events", "--json", "box").splitlines() if "b.test" in x][0]
    assert line["hint"] == "Allow=b.test" and line["app"] == "box"


@netsup.lab
def test_an_allowed_site_that_is_not_reached_is_told(lab, sup):
    """A captured connect can only be reset: why, stands in status and in the events. It is no refusal."""
    lab.dns({"a.test": ["11.2.0.10"]})
    lab.http_site("a.test", "11.2.0.10")
    sup.agent("box", "Allow=a.test:81\nAllow=nowhere.test")
    sup.up_all()
    assert sup.run("box", "result = [connect(t)[0] for t in ('a.test:81', 'nowhere.test:443', 'a.test:81')]") == [502] * 3
    raw = "import socket\ntry:\n    with socket.create_connection(('a.test', 81), 10) as s:\n        s.sendall(b'hello')\n" \
          "        result = repr(s.recv(10))\nexcept OSError as e:\n    result = type(e).__name__\n"
    assert sup.run("box", raw) in ("ConnectionResetError", "ConnectionRefusedError")
    want = {("a.test", 81): (3, "refused"), ("nowhere.test", 443): (1, "cannot be resolved")}
    s = harness.wait_for(lambda: (lambda s: s if sum(d["count"] for d in s["unreachable"]) == 4 else None)(sup.peek("box")), 30, "4 in status")
    for d in s["unreachable"]:
        count, why = want.pop((d["host"], d["port"]))
        assert d["count"] == count and why in d["reason"] and d["last"], d
    assert not want and not s["denied"] and s["counters"]["out_denied"] == 0, s
    text = sup.ok("status", "box")
    assert "unreachable: " in text and "a.test:81 3x" in text and "denied hosts" not in text, text
    events = [e for e in map(json.loads, sup.ok("events", "--json", "box").splitlines()) if e["type"] == "unreachable"]
    assert {(e["host"], e["port"], e["action"]) for e in events} == {("a.test", 81, "failed"), ("nowhere.test", 443, "failed")}
    assert not sup.violations("box")


FLOOD = """
import threading
left, lock, bad = [COUNT], threading.Lock(), []
def work():
    while True:
        with lock:
            if not left[0]:
                return
            left[0] -= 1
            n = left[0]
        host = f"n{n}.evil.test:443" if n % 4 else "same.evil.test:443"
        with socket.create_connection(proxy_address(), TIMEOUT) as s:
            s.sendall(f"CONNECT {host} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n".encode())
            answer = s.recv(65536)
        if not answer.startswith(b"HTTP/1.1 403 "):
            bad.append(answer.decode())
threads = [threading.Thread(target=work) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
result = bad
"""


@netsup.lab
def test_a_flood_of_refusals_is_folded_and_counted(lab, sup):
    lab.dns({"a.test": ["11.2.0.10"]})
    lab.http_site("a.test", "11.2.0.10")
    sup.agent("box", "Allow=a.test")
    sup.agent("other", "Allow=a.test")
    sup.up_all()
    sup.refused("other", "seen.test:443")
    total = 10000
    assert sup.run("box", FLOOD.replace("COUNT", "200")) == []
    before = [netsup.memory(sup.daemon_pid()), netsup.memory(sup.proxy_pid())]
    assert sup.run("box", FLOOD.replace("COUNT", str(total - 200))) == []
    # every one of them is counted: in status, and in the events, which are few
    harness.wait_for(lambda: sup.peek("box")["counters"]["out_denied"] == total, 30, "all refusals in the counters")
    stand_for = lambda e: e.get("dropped", e.get("count", 1))
    harness.wait_for(lambda: sum(map(stand_for, sup.violations("box"))) == total, 30, "all refusals in the events")
    path = os.path.join(sup.state, "events.jsonl")
    assert len(sup.violations("box")) < total / 4 and os.stat(path).st_size < 2 << 20 and not os.path.exists(path + ".1")
    denied = sup.peek("box")["denied"]
    assert 0 < len(denied) <= 32 and 0 < sum(d["count"] for d in denied) <= total
    same = sum(map(stand_for, sup.violations("box", host="same.evil.test")))
    assert same in (0, 1) or len(sup.violations("box", host="same.evil.test")) < same
    # in memory too: what the flood left behind is little, and did not push out what others did
    for was, pid in zip(before, (sup.daemon_pid(), sup.proxy_pid())):
        assert netsup.memory(pid) - was < 4096, f"{harness.describe(pid)}: {was} KiB, now {netsup.memory(pid)}"
    assert "seen.test" in sup.ok("events", "other") and len(sup.ok("events", "box").splitlines()) < 200
    assert sup.run("box", "result = get('http://a.test/')[0]") == 200
