"""The bypass corpus over real sockets: every row of tests/corpus/proxy.tsv, played by a client in a jail; the last test prints the table.

tests/lib/corpuslive.py says what is watched. Rows of kinds transparent, udp and pattern are played against the real supervisor, the others
against a real sbxsv-proxy that is driven by the test. Rows that come out otherwise on purpose are in tests/corpus/deviations.tsv.
"""
import json
import os
import socket
import subprocess
import sys
import threading

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import alone
import corpus
import netlab
import netsup
import wiretap
from corpuslive import GOOD, LISTED, Live, Recorder, Results, every_name, expected

SLOW = ("lim-slow-head", "lim-drip-tunnel", "lim-noreader")  # deadlines: test_deadlines


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Where each test leaves what came out."""
    return str(tmp_path_factory.mktemp("corpus"))


def isolated(fn):
    def test(results):
        why = netlab.can_isolate()
        if why:
            pytest.skip(why)
        netlab.run_isolated(fn, Results(os.path.join(results, fn.__name__)))
    return test


# --- http, connect-tls ---

SOCKS4_NO = b"\0\x5b" + bytes(6)  # "request rejected", as SOCKS4 says it


@isolated
def test_http_and_tls(results):
    rows = [r for r in corpus.rows("http", "connect-tls") if r.id not in SLOW]
    with netlab.Lab() as lab:
        live = Live(lab)
        for row in rows:
            # rows of kind http are about heads: what their tunnels carry is no TLS
            live.set_rules(allow=row.allow, sni_match=row.kind == "connect-tls")
            first = live.clean(row)
            # what is still open when nothing more is to come is a tunnel, or waits for the end of an answer
            r = live.play(row, first, timeout=0.25 if expected(row) == "allow" or row.id.startswith("ka-") else 20)
            wrong = judge_http(row, *r)
            results.add(row, expected(row) if not wrong else "?", wrong)
        live.close()
    results.finish()


def judge_http(row, got, end, connects, names, seen):
    want, status = expected(row), got[9:12].decode("latin-1") if got.startswith(b"HTTP/") else "400" if got == SOCKS4_NO else ""
    where = f"answer {got[:60]!r} {end}, connects {connects}, DNS {names}, arrived {[b[:200] for _, b in seen]}"
    if any(a not in (GOOD, *LISTED) for a in connects):
        return f"an address that nobody allowed was dialled: {where}"
    if want == "allow":
        ok = status in ("200", "101") and len(connects) == 1 and end != "reset"
        return None if ok and tunnelled(row) in (None, *(b for _, b in seen)) else f"not allowed: {where}"
    if late(row):
        # the first request was fine, so the site was reached: once, and with nothing of what came after
        if len(connects) > 1 or any(spoils(row, b) for _, b in seen):
            return f"refused bytes arrived: {where}"
        return None
    if connects:
        return f"refused, but dialled: {where}"
    if want == "bad-request" and names:
        return f"no valid request, but a name was looked up: {where}"
    if end == "open" or (got and status[:1] != "4" and status not in ("501", "505")) or (want == "bad-request" and status == "403"):
        return f"refused in another way: {where}"
    return None


def head_and_rest(row):
    head, _, rest = row.bytes().lstrip(b"\r\n").partition(b"\r\n\r\n")
    return head, rest


def late(row):
    """The head alone is fine: what is refused comes after it."""
    head, rest = head_and_rest(row)
    if row.kind == "connect-tls":
        return expected(row) == "deny" and head.startswith((b"CONNECT allowed.example:", b"CONNECT allowed.example.:"))
    return row.id in LATE_ROWS and bool(rest)


LATE_ROWS = {"abs-ws-no101", "ka-second-evil-late", "ka-then-connect", "ka-origin-after", "chunk-extlong"}


def spoils(row, arrived):
    if row.kind == "connect-tls":
        return bool(arrived)
    _, _, body = arrived.partition(b"\r\n\r\n")
    return b"\r\n" in body or b"evil" in arrived


def tunnelled(row):
    """What must arrive at the site of an allowed tunnel, byte for byte."""
    head, rest = head_and_rest(row)
    if row.kind == "connect-tls" and rest.startswith(b"GET "):  # judged, so written anew
        rest = rest.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    return rest if rest and head.startswith(b"CONNECT ") else None


# --- socks5 ---

@isolated
def test_socks(results):
    with netlab.Lab() as lab:
        live = Live(lab, program="proxy_quick")  # a row that is never complete meets a deadline
        for row in corpus.rows("socks5"):
            live.set_rules(allow=row.allow, sni_match=False)
            first = live.clean(row)
            verdict, where = judge_socks(row, *live.play(row, first, timeout=0.25 if expected(row) == "allow" else 20, longest_sleep=3))
            results.verdict(row, verdict, where)
        live.close()
    results.finish()


def judge_socks(row, got, end, connects, names, seen):
    """Verdict by what the client and the internet saw; a deny and a bad request differ in whether a name may be asked."""
    where = f"answer {got[:40]!r} {end}, connects {connects}, DNS {names}, arrived {[b[:80] for _, b in seen]}"
    if got.startswith(b"\5\0\5\0"):
        whole = not row.id.endswith("early") or any(b == b"EARLYDATA" for _, b in seen)
        return ("allow" if connects == [GOOD] and end != "reset" and whole else "half allowed"), where
    if connects or end == "open":
        return "refused late", where
    if expected(row) == "timeout":
        return ("timeout" if not got and not names else "answered"), where
    if expected(row) == "bad-request":
        return ("bad-request" if not names and not got.startswith(b"\5\0\5\2") else "deny"), where
    # RFC 1928 6: a ruleset's refusal is 2; a command that is not there 7; an address type 8. Without a reply: the method was refused
    return ("deny" if got[:2] == b"\5\xff" or got[2:4] in (b"\5\2", b"\5\7") else "refused oddly"), where


# --- deadlines: proxy_quick's pass twenty times as fast ---

@isolated
def test_deadlines(results):
    rows = {r.id: r for r in corpus.rows("http") if r.id in SLOW}
    assert len(rows) == len(SLOW)
    with netlab.Lab() as lab:
        live = Live(lab, program="proxy_quick")
        live.set_rules(allow=rows["lim-slow-head"].allow, sni_match=False)
        ended = {}

        def play(row):
            with live.connect() as s:
                if row.id == "lim-noreader":
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                ended[row.id] = corpus.play(s, row, timeout=3, longest_sleep=3,
                                            enough=1 << 20)
        threads = [threading.Thread(target=play, args=(r,), daemon=True) for r in rows.values()]
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            live.proxy.pump(0.1)
        got, end = ended["lim-slow-head"]
        ok = end in ("eof", "reset") and got.startswith(b"HTTP/1.1 408 ")
        results.verdict(rows["lim-slow-head"], "timeout" if ok else "open", f"{got[:60]!r} {end}")
        got, end = ended["lim-drip-tunnel"]
        results.verdict(rows["lim-drip-tunnel"], "allow" if end == "open" and got.startswith(b"HTTP/1.1 200") else "timeout", f"{got[:60]!r} {end}")
        got, end = ended["lim-noreader"]
        # the origin was not read any further than what kernel and proxy hold for one connection
        ok = got.startswith(b"HTTP/1.1 200") and live.recorder.sent < 64 << 20
        results.verdict(rows["lim-noreader"], "allow" if ok else "unbounded", f"{got[:60]!r} {end}, {live.recorder.sent >> 20} MiB")
        live.close()
    results.finish()


# --- addr ---

@isolated
def test_addresses(results):
    """Each address by number, for an app that may reach all that is public; the internet has every address there is."""
    with netlab.Lab() as lab:
        live = Live(lab)
        lab.inet.ip("route add local 0.0.0.0/0 dev lo table main")
        lab.inet.ip("-6 route add local ::/0 dev lo table main")
        live.set_rules(egress="all", connect=["443"])
        for row in corpus.rows("addr"):
            live.clean(row)
            target = f"[{row.text}]:443" if ":" in row.text else f"{row.text}:443"
            with live.connect() as s:
                s.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
                s.settimeout(20)
                status = s.recv(4096)[9:12].decode()
            live.proxy.sync()
            connects, names = live.tap.take()
            verdict = "allow" if status == "200" and len(connects) == 1 else "deny" if status == "403" and not connects else "?"
            results.verdict(row, verdict, f"{status}, connects {connects}")
        live.close()
    results.finish()


# --- dns ---

def zone_of(row, lab):
    """The name server's zone for what the row describes."""
    what = row.text.partition("=>")[2]
    if what == "CNAME a->b->a":
        return {"allowed.example": ("CNAME", "a.example"), "a.example": ("CNAME", "b.example"), "b.example": ("CNAME", "a.example")}
    if what.startswith("CNAME intranet.corp"):
        return {"allowed.example": ("CNAME", "intranet.corp"), "intranet.corp": ["10.0.0.5"]}
    if "additional records" in what:
        return {"allowed.example": lambda name, kind, tcp: [LISTED[0]] + [(wiretap.TXT, b"\xff" + b"x" * 255)] * 240}
    if what.startswith("/etc/hosts"):
        lab.hosts("127.0.0.1 allowed.example\n")
        return {"allowed.example": [GOOD]}
    codes = {"NXDOMAIN": wiretap.NXDOMAIN, "SERVFAIL": wiretap.SERVFAIL, "TIMEOUT": "TIMEOUT", "": []}
    if what in codes:
        return {"allowed.example": codes[what]}
    what = what.replace("<proxy-own-address>", netlab.Lab.HOST4).replace("(blackhole)", "")
    return {"allowed.example": what.split(",")}


HELLO = next(r for r in corpus.rows("transparent") if r.id == "tp-pos").bytes()


class DnsLive(Live):
    """Also with policy DNS, and a listener for port 443, as in a jail without nf_tables."""

    def give_jail(self):
        if not hasattr(self, "captured"):
            self.captured = self.jail.listen(("0.0.0.0", 443))
            self.dns_socket = self.jail.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.dns_socket.setsockopt(socket.IPPROTO_IP, 8, 1)  # IP_PKTINFO
            self.dns_socket.bind(("0.0.0.0", 53))
        self.proxy.jail("notes", egress=self.listener, transparent=[(self.captured, 443)], dns_udp=[self.dns_socket])

    def lookup(self, name):
        with self.jail.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(20)
            s.connect(("8.8.8.8", 53))
            s.send(wiretap.ask(name))
            return wiretap.Answer(s.recv(4096)).addresses()


@isolated
def test_answers(results):
    """Each answer twice: for a CONNECT, and for a program that asks policy DNS and connects to the address it gets."""
    with netlab.Lab() as lab:
        netlab.ip("-6 route add blackhole 2001:4860::dead/128")
        live = DnsLive(lab, internet=wiretap.NXDOMAIN)
        for row in corpus.rows("dns"):
            live.restart()
            live.set_rules(allow=row.allow)
            live.ns.zone = zone_of(row, lab)
            live.clean(row)
            verdicts = [by_connect(live), by_name(live)]
            live.proxy.sync()
            connects = {a for a, port in live.tap.take()[0] if (a, port) != (lab.DNS, 53)}  # a truncated answer is asked for again by TCP
            if connects - {LISTED[0]} or (connects and "deny" in verdicts[0][0]):
                verdicts.append((f"dialled {connects}", ""))
            verdict = verdicts[0][0] if len({v for v, _ in verdicts}) == 1 else " but ".join(v for v, _ in verdicts)
            results.verdict(row, verdict, f"{verdicts}, connects {connects}")
            if row.id in ("dns-nx", "dns-empty", "dns-servfail", "dns-timeout"):  # not a denial by policy
                status = verdicts[0][1]
                if status != ("504" if row.id == "dns-timeout" else "502"):
                    results.add(row, verdict, f"answer {status}")
        live.close()
    results.finish()


def by_connect(live):
    with live.connect() as s:
        s.settimeout(30)
        s.sendall(b"CONNECT allowed.example:443 HTTP/1.1\r\nHost: allowed.example:443\r\n\r\n")
        status = s.recv(4096)[9:12].decode()
        return ("allow" if status == "200" else "deny"), status


def by_name(live):
    before = len(live.recorder.seen)
    try:
        address = live.lookup("allowed.example")[0]
        with live.jail.connect((address, 443), timeout=30) as s:
            s.sendall(HELLO)
            answer = s.recv(100)
    except (ConnectionError, IndexError) as e:
        return "deny", repr(e)
    arrived = [b for _, b in live.recorder.seen[before:] if b]  # the CONNECT said nothing
    return ("allow" if arrived == [HELLO] and answer else "deny"), f"{address} {answer!r}"


# --- kinds for the whole: supervisor, jail, capture, policy DNS ---

def whole(fn):
    @netsup.lab
    def body(lab, sup, results):
        r = Results(os.path.join(results, fn.__name__))
        fn(lab, sup, r)
        r.finish()

    def test(results):
        body(results=results)
    return test


def jail_world(lab, sup, row):
    ns = wiretap.NameServer(lab, default=every_name)
    recorder = Recorder(lab)
    sup.agent("box", "".join(f"Allow={a}\n" for a in row.allow))
    sup.up_all()
    return ns, recorder, wiretap.Tap(lab, sup=sup), netlab.Inside(sup.status("box")["pid"])


def ask_inside(inside, name):
    with inside.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(20)
        s.connect(("8.8.8.8", 53))
        s.send(wiretap.ask(name))
        return wiretap.Answer(s.recv(4096)).addresses()


@whole
def test_transparent(lab, sup, results):
    rows = corpus.rows("transparent")
    _, recorder, tap, inside = jail_world(lab, sup, rows[0])
    for row in rows:
        host, port = row.destination()
        targets = [(host, port)]
        if row.id == "tp-fakeip-mismatch":
            targets = [(ask_inside(inside, "b.wild.example")[0], 443)]
        elif row.id == "tp-self":
            targets = [(host, 3128), (host, 443), ("198.18.0.1", 3128), ("198.18.0.1", 443), ("198.18.0.3", 3128)]
        verdicts = []
        for host, port in targets:
            tap.take()
            first = len(recorder.seen)
            try:
                with inside.connect((host, int(port))) as s:
                    got, end = corpus.play(s, row, timeout=0.5 if expected(row) == "allow" else 20)
            except ConnectionError:  # at once, or before connect() had returned
                got, end = b"", "refused"
            connects, names = tap.take()
            verdicts.append(judge_transparent(row, got, end, [a for a, _ in connects], names, recorder.seen[first:]))
        verdict = next((v for v, _ in verdicts if v != expected(row)), expected(row))
        results.verdict(row, verdict, verdicts)
    inside.close()


def judge_transparent(row, got, end, connects, names, seen):
    where = f"answer {got[:60]!r} {end}, connects {connects}, DNS {names}, arrived {[b[:60] for _, b in seen]}"
    arrived = [b for _, b in seen]
    if set(connects) - {GOOD}:
        return "dialled what nobody allowed", where
    if any(arrived):
        http = row.bytes().startswith(b"GET")
        whole = got.startswith(b"HTTP/1.1 200") and b"Host: allowed.example\r\n" in arrived[0] if http else arrived == [row.bytes()] and got == b"T"
        return ("allow" if whole and len(connects) == 1 else "half allowed"), where
    # a name that policy DNS gave out is dialled before the client says anything; then only its bytes are refused
    if connects and row.id != "tp-fakeip-mismatch":
        return "dialled, then refused", where
    if end == "open" or got.startswith(b"HTTP/1.1 2"):
        return "neither", where
    if expected(row) == "bad-request":
        return ("bad-request" if not names and not got.startswith(b"HTTP/1.1 403") else "deny"), where
    return "deny", where


@whole
def test_udp(lab, sup, results):
    rows = corpus.rows("udp")
    _, recorder, tap, inside = jail_world(lab, sup, rows[0])
    for row in rows:
        tap.take()
        verdict, where = play_udp(row, inside)
        connects, names = tap.take()
        if connects or names or tap.others:
            verdict, where = "left the machine", f"{connects} {names} {tap.others}"
        results.verdict(row, verdict, where)
    assert not recorder.seen
    inside.close()


def play_udp(row, inside):
    with inside.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(20)
        s.connect((GOOD, 443 if row.id == "udp-quic" else 53))
        try:
            s.send(row.bytes())
            if row.id == "udp-dns-resp":  # no answer must come: a question behind it gets one
                s.send(wiretap.ask("allowed.example", ident=0x7777))
            data = s.recv(4096)
        except ConnectionRefusedError:
            return "deny", "refused"
    answer = wiretap.Answer(data)
    where = f"rcode {answer.rcode} {answer.answers}"
    if answer.id == 0x7777:
        return "bad-request", "nothing"
    if answer.rcode == wiretap.FORMERR:
        return "bad-request", where
    if answer.addresses():
        asked = wiretap.question(row.bytes())[0]
        fake = answer.addresses()[0].startswith(("198.18.", "198.19."))
        return ("allow" if answer.name == asked and fake else "a wrong answer"), f"{where} {answer.name}"
    return ("deny" if answer.rcode in (wiretap.NOERROR, wiretap.NXDOMAIN, wiretap.NOTIMP, wiretap.REFUSED) else "?"), where


@whole
def test_patterns(lab, sup, results):
    """As a rule of a unit, which `check` judges, and as one that is added at run time, over the control socket."""
    sup.agent("box", "Egress=hosts")
    sup.up_all()
    for row in corpus.rows("pattern"):
        if row.text == "<20000 entries>":
            results.verdict(row, *many_rules(lab))
            continue
        text = row.bytes().decode("latin-1")
        lines = f"Allow={text}\n"
        path = os.path.join(sup.base, "rule.app")
        with open(path, "w") as f:
            f.write(f"[App]\nExec=/bin/true\nWorkingDirectory={sup.app_dir('box')}\n[Network]\n{lines}")
        r = sup.sbxsv("check", path)
        by_unit = "accept" if r.code == 0 else "config-error" if r.code == 1 and "rule.app:5" in r.out + r.err else f"exit {r.code}"
        a = sup.sbxsv("allow", "box", text)
        by_command = "accept" if a.code == 0 else "config-error" if a.code in (1, 2, 6) else f"exit {a.code}"
        if row.id == "pat-empty":  # in a unit this clears the list (doc/design.md 4)
            by_unit = by_command
        verdict = by_unit if by_unit == by_command else f"{by_unit} in a unit, {by_command} at run time"
        results.verdict(row, verdict, (r.out + r.err + a.out + a.err)[-400:])


def many_rules(lab):
    """20,000 rules are more than a unit may hold (256 KiB): a policy file of a proxy by itself, and what each of some stands for."""
    proxy = alone.Alone(lab.dir, policy="".join(f"Allow=*.h{i}.example\n" for i in range(20000)), log=False)
    wiretap.NameServer(lab)  # no name is there: what is allowed gets 502
    got = {}
    for name in ("h0.example", "a.h19999.example", "h7777.example", "h20000.example", "xh5.example"):
        with socket.create_connection(("127.0.0.1", proxy.port), 30) as s:
            s.sendall(f"CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n\r\n".encode())
            got[name] = s.recv(4096)[9:12].decode()
    proxy.proc.terminate()
    proxy.proc.wait(20)
    return ("accept" if list(got.values()) == ["502"] * 3 + ["403"] * 2 else "config-error"), f"{got} {proxy.err()[-500:]}"


# --- all of them ---

def test_every_row_is_a_seed_of_a_fuzzer():
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz", "seeds_from_corpus.py")
    r = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, f"run tests/fuzz/seeds_from_corpus.py\n{r.stdout[-1500:]}{r.stderr}"


def test_every_row_was_played(results, record_property):
    done = {}
    for name in os.listdir(results):
        with open(os.path.join(results, name)) as f:
            done.update(json.load(f))
    if not done:
        pytest.skip("no test of this file was run")
    text = "corpus over sockets:\n" + corpus.table(done)
    record_property("table", text)
    missing = [r.id for r in corpus.rows(*corpus.KINDS) if r.id not in done]
    assert not missing, f"{len(missing)} rows were not played: {missing[:9]}"
    assert not [w for _, w in done.values() if w]
    # a deviation that is none any more is to be taken out of the list
    rows = {r.id: r for r in corpus.rows(*corpus.KINDS)}
    for id, (outcome, _) in corpus.deviations().items():
        assert outcome != rows[id].expected, f"{id} is no deviation"
