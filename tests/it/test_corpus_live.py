"""The bypass corpus over real sockets: a jail's client, the real sbxsv-proxy, an internet that records.

Every packet that leaves the proxy is seen by a sniffer: a row that is to be refused must cause no connect (to anywhere, this
machine included), and one that is no valid request not even a question to a name server. Where a refusal can only come later
(the body of a request, the ClientHello of a tunnel) nothing of it may arrive at the site. The internet resolves every name, so that
no row is refused because of that.
"""
import os
import socket
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import corpus
import netlab
import proxydrv
from test_proxy_egress import policy

GOOD, EVIL = "11.2.0.10", "11.2.0.66"
PORTS = (80, 443, 8080, 8443)
LISTED = ("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946")


class Dns:
    """Answers every question for an A record; names of the list get GOOD, all others EVIL."""

    def __init__(self, lab):
        self.sock = lab.inet.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((lab.DNS, 53))
        threading.Thread(target=self.serve, daemon=True).start()

    @staticmethod
    def question(q):
        labels, at = [], 12
        while q[at]:
            labels.append(q[at + 1:at + 1 + q[at]])
            at += 1 + q[at]
        return b".".join(labels).decode("latin-1"), q[12:at + 5], struct.unpack_from("!H", q, at + 1)[0]

    def serve(self):
        while True:
            q, who = self.sock.recvfrom(2048)
            name, question, kind = self.question(q)
            good = name == "allowed.example" or name.endswith("wild.example")
            record = b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04" + socket.inet_aton(GOOD if good else EVIL)
            n = 1 if kind == 1 else 0
            self.sock.sendto(q[:2] + struct.pack("!HHHHH", 0x8180, 1, n, 0, 0) + question + record * n, who)


class Recorder:
    """Takes every connection to GOOD, EVIL and LISTED and keeps what came."""

    def __init__(self, lab):
        lab.address(GOOD, EVIL, *LISTED)
        lab.route_to_inet(LISTED[1] + "/128")
        self.seen = []  # [address of the site, bytes]
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

    @staticmethod
    def serve(c, entry):
        answered = False
        try:
            while data := c.recv(1 << 16):
                entry[1] += data
                if b" HTTP/1." not in entry[1]:
                    c.sendall(b"T")  # a tunnel
                elif not answered and b"\r\n\r\n" in entry[1]:
                    answered = True
                    if b"/ws HTTP" in entry[1]:
                        c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
                    else:  # says it keeps the connection open, and does
                        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
        except OSError:
            pass
        c.close()


class Sniffer:
    """TCP connects and DNS questions that left the proxy since the last take()."""

    def __init__(self, lab):
        self.socks = []
        for ns, name in ((lab.inet, "wan"), (None, "lo")):
            if ns:
                s = ns.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
            else:
                s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            s.bind((name, 0))
            s.setblocking(False)
            self.socks.append(s)

    def take(self):
        connects, names = [], []
        for s in self.socks:
            while True:
                try:
                    p, where = s.recvfrom(1 << 16)
                except BlockingIOError:
                    break
                if where[2] == socket.PACKET_OUTGOING and where[0] == "wan":
                    continue
                self.packet(p, connects, names)
        return connects, names

    @staticmethod
    def packet(p, connects, names):
        kind, ip = p[12:14], p[14:]
        if kind == b"\x08\0":
            proto, to, body = ip[9], socket.inet_ntop(socket.AF_INET, ip[16:20]), ip[(ip[0] & 15) * 4:]
        elif kind == b"\x86\xdd":
            proto, to, body = ip[6], socket.inet_ntop(socket.AF_INET6, ip[24:40]), ip[40:]
        else:
            return
        if proto == 6 and body[13] & 0x12 == 2:  # SYN without ACK
            connects.append(to)
        elif proto == 17 and struct.unpack_from("!H", body, 2)[0] == 53:
            names.append(Dns.question(body[8:])[0])


class Live:
    def __init__(self, lab):
        self.lab = lab
        self.dns, self.recorder, self.sniffer = Dns(lab), Recorder(lab), Sniffer(lab)
        self.jail = lab.jail()
        self.proxy = proxydrv.Proxy(self.jail.pool_socket, log=open(lab.path("proxy.log"), "w"))
        self.rules = None
        with self.jail.egress_listener() as listener:
            self.proxy.jail("notes", egress=listener)

    def set_rules(self, row):
        # rows of kind http are about heads: what their tunnels carry is no TLS
        rules = (row.allow, row.kind == "connect-tls")
        if rules != self.rules:
            self.proxy.send("policy", app="notes", policy=policy(allow=row.allow, sni_match=rules[1]))
            self.rules = rules

    def play(self, row, **kw):
        with self.jail.connect(netlab.Jail.PROXY) as s:
            return corpus.play(s, row, **kw)

    def run(self, row):
        """None, or what is wrong with the row."""
        self.set_rules(row)
        self.proxy.sync()
        stray = self.sniffer.take()
        assert stray == ([], []), f"before {row.id}: {stray}"
        first = len(self.recorder.seen)
        # what is still open when nothing more is to come is a tunnel, or waits for the end of an answer
        got, end = self.play(row, timeout=0.25 if expected(row) == "allow" or row.id.startswith("ka-") else 20)
        self.proxy.sync()
        connects, names = self.sniffer.take()
        return self.judge(row, got, end, connects, names, self.recorder.seen[first:])

    @staticmethod
    def judge(row, got, end, connects, names, seen):
        want, status = expected(row), got[9:12].decode("latin-1")
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
        if got.startswith(b"\0\x5b") and end == "eof":  # SOCKS4, rejected in its own words
            return None
        if end == "open" or (got and status[:1] != "4" and status not in ("501", "505")) or \
                (want == "bad-request" and status == "403"):
            return f"refused in another way: {where}"
        return None


def expected(row):
    return DEVIATIONS.get(row.id, (row.expected,))[0]


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


DEVIATIONS = corpus.deviations()
SLOW = ("lim-slow-head", "lim-drip-tunnel", "lim-noreader")  # deadlines: other tests have them


@netlab.isolated
def test_corpus_over_sockets():
    rows = [r for r in corpus.rows("http", "connect-tls") if r.id not in SLOW]
    assert len(rows) > 320
    table, failed = {}, []
    with netlab.Lab() as lab:
        live = Live(lab)
        for row in rows:
            wrong = live.run(row)
            k = table.setdefault((row.kind, row.expected), [0, 0, 0])
            k[0] += 1
            k[1] += row.id in DEVIATIONS
            if wrong:
                k[2] += 1
                failed.append(f"{row.id} ({row.expected}; {row.reason}): {wrong}")
        assert live.proxy.proc.poll() is None
        live.proxy.close()
    print(f"\n{'kind':12} {'expected':12} {'rows':>5} {'deviate':>8} {'fail':>5}")
    for (kind, outcome), (n, deviate, fail) in sorted(table.items()):
        print(f"{kind:12} {outcome:12} {n:5} {deviate:8} {fail:5}")
    assert not failed, "\n" + "\n".join(failed)
