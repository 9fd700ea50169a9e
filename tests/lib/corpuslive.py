"""What plays the bypass corpus over real sockets (tests/it/test_corpus_live.py): an internet that records, and a jail with its proxy.

Every packet that leaves the proxy is seen by a tap: a row that is to be refused must cause no connect (to anywhere, this machine
included), and one that is no valid request not even a question to a name server. Where a refusal can only come later (the body of a
request, the ClientHello of a tunnel) nothing of it may arrive at the site. The internet resolves every name, so that no row is
refused because of that.
"""
import json
import socket
import threading

import corpus
import netlab
import proxydrv
import wiretap

GOOD, EVIL = "11.2.0.10", "11.2.0.66"
PORTS = (22, 80, 443, 8080, 8443)
LISTED = ("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946")
DEVIATIONS = corpus.deviations()


def policy(allow=(), egress="hosts", connect=(), sni_match=True):
    pairs = lambda v: [[text, f"notes.app:{i + 3}"] for i, text in enumerate(v)]
    return {"egress": egress, "sni_match": sni_match, "ech_refuse": False, "allow": pairs(allow), "deny": [], "address": [],
            "connect": pairs(connect)}


def expected(row):
    return DEVIATIONS.get(row.id, (row.expected,))[0]


def every_name(name, kind, tcp):
    """The internet's zone: names of the list lead to GOOD, all others to EVIL."""
    name = name.lower()
    return [GOOD if name == "allowed.example" or name.endswith("wild.example") else EVIL]


class Recorder:
    """Takes every connection to the sites and keeps what came: seen is a list of [address of the site, bytes]."""

    def __init__(self, lab):
        lab.address(GOOD, EVIL, *LISTED)
        lab.route_to_inet(LISTED[1] + "/128")
        self.seen, self.sent = [], 0
        for port in PORTS:
            for any_address in ("0.0.0.0", "::"):
                with lab.inet:
                    s = socket.socket(socket.AF_INET6 if ":" in any_address else socket.AF_INET)
                    if ":" in any_address:
                        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    s.bind((any_address, port))
                    s.listen(128)
                threading.Thread(target=self.accept, args=(s,), daemon=True).start()

    def accept(self, listener):
        while True:
            c, _ = listener.accept()
            entry = [c.getsockname()[0], b""]
            self.seen.append(entry)
            threading.Thread(target=self.serve, args=(c, entry), daemon=True).start()

    def serve(self, c, entry):
        answered = False
        try:
            while data := c.recv(1 << 16):
                entry[1] += data
                if b" HTTP/1." not in entry[1]:
                    c.sendall(b"T")  # a tunnel
                elif not answered and b"\r\n\r\n" in entry[1]:
                    answered = True
                    self.answer(c, entry[1])
        except OSError:
            pass
        c.close()

    def answer(self, c, head):
        if b"/1GiB HTTP" in head:
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
            for _ in range(1 << 14):
                c.sendall(bytes(1 << 16))
                self.sent += 1 << 16
        elif b"/ws HTTP" in head:
            c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        else:  # says it keeps the connection open, and does
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")


class Live:
    """The lab with an internet, and one sbxsv-proxy with a jail named `notes`."""

    def __init__(self, lab, program="sbxsv-proxy", internet=every_name):
        self.lab, self.program = lab, program
        self.ns = wiretap.NameServer(lab, default=internet)
        self.recorder, self.tap = Recorder(lab), wiretap.Tap(lab)
        self.jail = lab.jail()
        self.proxy, self.rules = None, None
        self.listener = self.jail.egress_listener()
        self.restart()

    def restart(self):
        """A new proxy: nothing is remembered."""
        if self.proxy:
            self.proxy.close()
        with open(self.lab.path("proxy.log"), "a") as log:
            self.proxy = proxydrv.Proxy(self.jail.pool_socket, log=log, program=self.program)
        self.rules = None
        self.give_jail()

    def give_jail(self):
        self.proxy.jail("notes", egress=self.listener)

    def set_rules(self, **rules):
        if rules != self.rules:
            self.proxy.send("policy", app="notes", policy=policy(**rules))
            self.rules = rules
        self.proxy.sync()

    def connect(self):
        return self.jail.connect(netlab.Jail.PROXY)

    def clean(self, row):
        stray = self.tap.take()
        assert stray == ([], []), f"before {row.id}: {stray}"
        return len(self.recorder.seen)

    def play(self, row, first, sock=None, **kw):
        """(answer, how it ended, addresses connected to, names asked, what arrived at sites)"""
        with sock or self.connect() as s:
            got, end = corpus.play(s, row, **kw)
        self.proxy.sync()
        connects, names = self.tap.take()
        return got, end, [a for a, _ in connects], names, self.recorder.seen[first:]

    def close(self):
        assert self.proxy.proc.poll() is None, "the proxy died"
        self.proxy.close()


class Results:
    """What a test found out, kept for the table at the end: the tests run in processes of their own."""

    def __init__(self, path):
        self.path, self.rows = path, {}

    def add(self, row, verdict, wrong=None):
        self.rows[row.id] = (verdict, f"{row.id} ({row.kind}, {row.expected}; {row.reason}): {wrong}" if wrong else "")

    def verdict(self, row, verdict, where=""):
        """A verdict that is not the expected one is wrong."""
        self.add(row, verdict, None if verdict == expected(row) else f"{verdict}, not {expected(row)}: {where}")

    def finish(self):
        with open(self.path, "w") as f:
            json.dump(self.rows, f)
        wrong = [w for _, w in self.rows.values() if w]
        assert not wrong, "\n" + "\n".join(wrong)
