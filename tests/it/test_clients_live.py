"""The policy changes and the proxy dies while programs are at work: what goes on, what is cut, and what a person is told."""
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import harness
import netlab
import netsup
import services

SITE, OTHER = "11.2.0.10", "11.2.0.11"
GIB = 1 << 30
TOLD, SLOWLY = 32 << 20, 100 << 20  # bytes to the mark, bytes a second after it
# A program that reads a long answer: fast to a mark, which it tells by a file, then slowly enough that the test can act in the middle of it.
LONG = f"""
import time
TOLD, SLOWLY = {TOLD}, {SLOWLY}
""" + """
def fetch_long(host, port, how, size):
    s = socket.create_connection((host, port) if how == "plain" else proxy_address(), TIMEOUT)
    got = 0
    with s:
        if how == "connect":
            s.sendall(f"CONNECT {host}:{port} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n".encode())
            head = s.recv(65536)
            if b" 200 " not in head:
                return ["refused", 0]
        s.sendall(f"GET /stream/{size} HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n".encode())
        try:
            while data := s.recv(1 << 20):
                got += len(data)
                if got > TOLD and not os.path.exists("reading"):
                    open("reading", "w").close()
                if got > TOLD:
                    time.sleep(len(data) / SLOWLY)
        except OSError as e:
            return [errname(e), got]
    return ["eof", got]
"""


class InThread(threading.Thread):
    """fn(*args) beside the test; .result() waits for it."""

    def __init__(self, fn, *args, **kw):
        super().__init__(daemon=True)
        self.fn, self.args, self.kw, self.value, self.error = fn, args, kw, None, None
        self.start()

    def run(self):
        try:
            self.value = self.fn(*self.args, **self.kw)
        except BaseException as e:  # noqa: shown by result()
            self.error = e

    def result(self, timeout=120):
        self.join(timeout)
        assert not self.is_alive(), "still at work"
        if self.error:
            raise self.error
        return self.value


def reach(sup, host, port=80):
    return sup.run("box", f"result = read_from({host!r}, {port}, b'GET /p HTTP/1.0\\r\\nHost: {host}\\r\\n\\r\\n')")


def reaches(sup, host, port=80):
    return reach(sup, host, port).startswith("HTTP/1.1 200")


def keep(sup, what):
    """A value in the app that lives on when the request that made it is over."""
    assert sup.run("box", f"import __main__\n__main__.kept = {what}\nresult = True")


def start_long(sup, how, size=GIB):
    mark = os.path.join(sup.app_dir("box"), "reading")
    if os.path.exists(mark):
        os.unlink(mark)
    t = InThread(sup.run, "box", f"{LONG}\nresult = fetch_long('site.test', 80, {how!r}, {size})")
    harness.wait_for(lambda: os.path.exists(mark) or not t.is_alive(), 60, "the transfer")
    assert t.is_alive(), t.result()
    return t


def cut(sup, transfer, since):
    """The transfer was cut, long before its end, and the event says why."""
    how, got = transfer.result(60)
    print(f"cut after {time.monotonic() - since:.3f} s at {got >> 20} MiB: {how}")
    assert got < GIB // 2 and how in ("ECONNRESET", "eof"), (how, got)
    assert time.monotonic() - since < 10
    e = harness.wait_for(lambda: [v for v in sup.violations("box", host="site.test") if "removed" in v["rule"] or "Deny" in v["rule"]
                                  or "deny" in v["rule"]], 30, "the event of the cut")[-1]
    assert e["action"] == "denied" and "Allow=site.test" in e["rule"] + e.get("hint", ""), e


def live_world(lab, sup, network):
    lab.dns({"site.test": [SITE], "other.test": [OTHER]})
    lab.http_site("site.test", SITE)
    lab.http_site("other.test", OTHER)
    sup.agent("box", network)
    sup.up_all()


def rewrite(sup, name, old, new):
    path = sup.unit_path(name)
    text = sup.read_text(path)
    assert old in text
    sup.write_unit(name, text.replace(old, new), mark=False)  # the drop-in is there, and not to be written twice
    sup.ok("reload")


@netsup.lab
def test_a_rule_removed_while_a_gibibyte_runs(lab, sup):
    """By the unit and by `sbxsv deny`; the next try fails, and after the rule is back it succeeds: the app's process stays the same."""
    live_world(lab, sup, "Allow=site.test\nAllow=other.test")
    pid = sup.status("box")["pid"]
    for how in ("plain", "connect"):
        keep(sup, "socket.create_connection(('other.test', 80))")
        transfer = start_long(sup, how)
        since = time.monotonic()
        rewrite(sup, "box", "Allow=site.test\n", "")
        cut(sup, transfer, since)
        assert not reaches(sup, "site.test") and reaches(sup, "other.test")
        # a connection by another rule lives
        assert sup.run("box", """
import __main__
__main__.kept.sendall(b"GET / HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n")
result = __main__.kept.recv(100).decode()
""").startswith("HTTP/1.1 200")
        rewrite(sup, "box", "Allow=other.test", "Allow=site.test\nAllow=other.test")
        assert reaches(sup, "site.test")
    transfer = start_long(sup, "plain")
    since = time.monotonic()
    sup.ok("deny", "box", "site.test")
    cut(sup, transfer, since)
    assert not reaches(sup, "site.test") and reaches(sup, "other.test")
    assert sup.status("box")["pid"] == pid


@netsup.lab
def test_a_connection_whose_rule_stays_stays(lab, sup):
    live_world(lab, sup, "Allow=site.test\nAllow=other.test")
    transfer = start_long(sup, "plain", GIB // 4)
    rewrite(sup, "box", "Allow=other.test", "Allow=more.test")
    sup.ok("allow", "box", "third.test")
    sup.ok("deny", "box", "fourth.test")
    assert transfer.result()[1] > GIB // 4


@netsup.lab
def test_rules_at_run_time(lab, sup):
    """allow, allow --for, deny: the next try, without a restart."""
    live_world(lab, sup, "Allow=other.test")
    pid = sup.status("box")["pid"]
    assert not reaches(sup, "site.test")
    sup.ok("allow", "box", "site.test", "--for", "2s")
    began = time.monotonic()
    assert reaches(sup, "site.test")
    transfer = start_long(sup, "plain")
    how, got = transfer.result(60)
    assert how in ("ECONNRESET", "eof") and got < GIB and time.monotonic() - began < 30, (how, got)
    assert not reaches(sup, "site.test") and reaches(sup, "other.test")
    sup.ok("allow", "box", "site.test")
    assert reaches(sup, "site.test")
    sup.ok("deny", "box", "site.test")
    assert not reaches(sup, "site.test")
    assert sup.status("box")["pid"] == pid


# 200 connections a round, each by name through the capture, half of them through the explicit proxy; a connect that is refused would be a lost
# listener. `held` are addresses that a client got before the kill and keeps.
STORM = """
import time, concurrent.futures
def one(i):
    t = time.monotonic()
    try:
        if i % 2:
            s = socket.create_connection((held[i % len(held)], 80), TIMEOUT)
        else:
            s = socket.create_connection(proxy_address(), TIMEOUT)
        with s:
            path = "p" if i % 2 else "http://a%d.w.test/p" % (i % len(held))
            s.sendall(f"GET {path if i % 2 == 0 else '/p'} HTTP/1.1\\r\\nHost: a{i % len(held)}.w.test\\r\\nConnection: close\\r\\n\\r\\n".encode())
            data = s.recv(65536)  # the site keeps its connection open
            return ["ok" if data.startswith(b"HTTP/1.1 200") else data[:60].decode("latin-1") or "closed", time.monotonic() - t]
    except OSError as e:
        return [errname(e), time.monotonic() - t]
def storm(n):
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        return list(pool.map(one, range(n)))
"""


def ask(sup, source):
    """What the app answers, or None while nobody takes the question on."""
    try:
        return sup.run("box", source)
    except OSError:
        return None


@netsup.lab
def test_the_proxy_is_killed_in_the_middle_of_200_connections(lab, sup):
    names = [f"a{i}.w.test" for i in range(10)]
    lab.dns({n: [SITE] for n in names})
    lab.http_site("site", SITE)
    sup.agent("box", "Allow=*.w.test")
    sup.up_all()
    held = sup.run("box", f"result = [socket.gethostbyname(n) for n in {names!r}]")
    assert len(set(held)) == 10
    source = f"held = {held!r}\n{STORM}\nresult = storm(200)"
    assert {r[0] for r in sup.run("box", source)} == {"ok"}
    # open connections of all kinds while it dies
    keep(sup, f"[socket.create_connection((a, 80)) for a in {held!r} * 20]")
    first = sup.proxy_pid()
    # not in a request of ours, which goes through the proxy too
    sup.run("box", f"""
held = {held!r}
{STORM}
import __main__
def background():
    __main__.during = storm(2000)
__main__.during = None
threading.Thread(target=background).start()
result = None
""")
    time.sleep(0.5)
    harness.kill_pid(first)
    killed = time.monotonic()
    during = harness.wait_for(lambda: ask(sup, "import __main__\nresult = __main__.during"), 90, "the storm")
    # what was open when it died may be reset, never refused: every listener is still there
    kinds = {k: sum(r[0] == k for r in during) for k in {r[0] for r in during}}
    print(f"while it died: {kinds}, median {sorted(r[1] for r in during)[1000] * 1000:.0f} ms, worst {max(r[1] for r in during) * 1000:.0f} ms")
    assert "ECONNREFUSED" not in kinds and "gaierror" not in kinds and "ETIMEDOUT" not in kinds, kinds
    harness.wait_for(lambda: sup.proxy_pid() not in (None, first), 30, "a new proxy")
    # from now on all is as before: the old addresses, the same address for the same name
    after = sup.run("box", source)
    times = sorted(r[1] for r in after)
    print(f"after: {len(after)} connections, median {times[100] * 1000:.0f} ms, worst {times[-1] * 1000:.0f} ms; {time.monotonic() - killed:.2f} s since the kill")
    assert {r[0] for r in after} == {"ok"}, after
    assert sup.run("box", f"result = [socket.gethostbyname(n) for n in {names!r}]") == held
    # the connect right after a kill waits for the new proxy
    for _ in range(5):
        pid = sup.proxy_pid()
        harness.kill_pid(pid)
        r = sup.run("box", f"held = {held!r}\n{STORM}\nresult = [one(1), one(2), socket.gethostbyname('a3.w.test')]")
        assert r[0][0] == "ok" and r[1][0] == "ok" and r[2] == held[3], r
        harness.wait_for(lambda: sup.proxy_pid() not in (None, pid), 30, "a new proxy")
        assert {x[0] for x in sup.run("box", f"held = {held!r}\n{STORM}\nresult = storm(20)")} == {"ok"}
