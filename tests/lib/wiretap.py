"""What leaves a machine of the lab, and a name server that answers as a test wants.

    tap = wiretap.Tap(lab)          # every interface of the host, and the internet's end of the wire
    connects, names = tap.take()    # since the last take(): [(address, port)], names asked in DNS (lower case)
    ns = wiretap.NameServer(lab)    # instead of lab.dns(): answers(name, type) decides
    ns.zone["a.test"] = ["11.2.0.10"]
"""
import socket
import struct
import threading

A, NS, CNAME, SOA, TXT, AAAA, HTTPS, ANY = 1, 2, 5, 6, 16, 28, 65, 255
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = range(6)
TYPES = {socket.AF_INET: A, socket.AF_INET6: AAAA}


def name_to_wire(name):
    return b"".join(bytes([len(label)]) + label.encode("latin-1") for label in name.split(".") if label) + b"\0"


def question(data, at=12):
    """(name as sent, type, offset after the question); names with pointers are not followed"""
    labels = []
    while data[at]:
        labels.append(data[at + 1:at + 1 + data[at]].decode("latin-1"))
        at += 1 + data[at]
    return ".".join(labels), struct.unpack_from("!H", data, at + 1)[0], at + 5


def ask(name, kind=A, ident=0x1234, flags=0x100, extra=b"", n_extra=0):
    return struct.pack("!6H", ident, flags, 1, 0, 0, n_extra) + name_to_wire(name) + struct.pack("!HH", kind, 1) + extra


def skip_name(data, at):
    while data[at]:
        if data[at] >= 0xc0:
            return at + 2
        at += 1 + data[at]
    return at + 1


class Answer:
    """A reply, taken apart as far as tests look: rcode, the question as sent back, [(type, ttl, data)] of the answer section,
    and of the additional section."""

    def __init__(self, data):
        self.id, self.flags, qd, an, ns, ar = struct.unpack_from("!6H", data)
        self.rcode = self.flags & 15
        at, self.name = 12, None
        for _ in range(qd):
            self.name, self.type, at = question(data, at)
        sections = []
        for n in (an, ns, ar):
            records = []
            for _ in range(n):
                at = skip_name(data, at)
                kind, _, ttl, length = struct.unpack_from("!HHIH", data, at)
                records.append((kind, ttl, data[at + 10:at + 10 + length]))
                at += 10 + length
            sections.append(records)
        self.answers, self.authority, self.additional = sections

    def addresses(self):
        return [socket.inet_ntop(socket.AF_INET if kind == A else socket.AF_INET6, d) for kind, _, d in self.answers
                if kind in (A, AAAA)]

    def extended_error(self):
        """The INFO-CODE of an extended DNS error (RFC 8914), or None."""
        for kind, _, data in self.additional:
            at = 0
            while kind == 41 and at + 4 <= len(data):
                code, length = struct.unpack_from("!HH", data, at)
                if code == 15:
                    return struct.unpack_from("!H", data, at + 4)[0]
                at += 4 + length
        return None


class NameServer:
    """zone[name] is a list of addresses, or a code (NXDOMAIN, SERVFAIL), or "TIMEOUT", or ("CNAME", other), or a function of
    (name, type, over TCP) that returns a whole list of (type, data) or one of these. TTL 0: nothing is to be remembered."""

    def __init__(self, lab, default=NXDOMAIN):
        self.zone, self.default, self.asked, self.ttl = {}, default, [], 0
        self.udp = lab.inet.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind((lab.DNS, 53))
        self.tcp = lab.inet.listen((lab.DNS, 53))
        threading.Thread(target=self.serve_udp, daemon=True).start()
        threading.Thread(target=self.serve_tcp, daemon=True).start()

    def find(self, name, kind, tcp):
        found = self.zone.get(name.lower().rstrip("."), self.default)
        return found(name, kind, tcp) if callable(found) else found

    def reply(self, q, tcp=False):
        name, kind, end = question(q)
        self.asked.append((name, kind))
        found, owner, records, n, rcode = self.find(name, kind, tcp), b"\xc0\x0c", b"", 0, NOERROR
        chain = set()
        while isinstance(found, tuple) and found[0] == "CNAME":
            target = name_to_wire(found[1])
            records += owner + struct.pack("!HHIH", CNAME, 1, self.ttl, len(target)) + target
            n += 1
            owner, again = target, found[1] in chain
            chain.add(found[1])
            if again:
                found = []
                break
            found = self.find(found[1], kind, tcp)
        if found == "TIMEOUT":
            return None
        if isinstance(found, int):
            rcode, found = found, []
        for item in found:
            if isinstance(item, str):
                family = socket.AF_INET6 if ":" in item else socket.AF_INET
                if TYPES[family] != kind:
                    continue
                item = (kind, socket.inet_pton(family, item))
            records += owner + struct.pack("!HHIH", item[0], 1, self.ttl, len(item[1])) + item[1]
            n += 1
        full = q[:2] + struct.pack("!HHHHH", 0x8180 | rcode, 1, n, 0, 0) + q[12:end] + records
        if not tcp and len(full) > 1232:  # truncated: ask again over TCP
            return q[:2] + struct.pack("!HHHHH", 0x8380, 1, 0, 0, 0) + q[12:end]
        return full

    def serve_udp(self):
        while True:
            q, who = self.udp.recvfrom(4096)
            if a := self.reply(q):
                self.udp.sendto(a, who)

    def serve_tcp(self):
        while True:
            c, _ = self.tcp.accept()
            threading.Thread(target=self.serve_stream, args=(c,), daemon=True).start()

    def serve_stream(self, c):
        with c, c.makefile("rb") as f:
            while len(size := f.read(2)) == 2:
                if a := self.reply(f.read(int.from_bytes(size, "big")), tcp=True):
                    c.sendall(len(a).to_bytes(2, "big") + a)


class Tap:
    """TCP connects and DNS questions on the wire (and on the host's loopback); `others` keeps every other UDP and ICMP packet."""

    def __init__(self, lab, *interfaces, sup=None):
        self.others = []
        # what the test itself says to its apps
        self.own = sup.ports if sup else {}
        self.socks = [self.open(lab.inet, "wan")] + [self.open(None, name) for name in ("lo", *interfaces)]

    @staticmethod
    def open(ns, name):
        make = ns.socket if ns else socket.socket
        s = make(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        s.bind((name, 0))
        s.setblocking(False)
        return s

    def take(self):
        connects, names = [], []
        self.others = []
        for s in self.socks:
            while True:
                try:
                    p, where = s.recvfrom(1 << 16)
                except BlockingIOError:
                    break
                # seen twice on loopback; on the internet's end only what comes from the host counts
                if where[2] != socket.PACKET_OUTGOING:
                    self.packet(p, connects, names)
        return connects, names

    def packet(self, p, connects, names):
        kind, ip = p[12:14], p[14:]
        if kind == b"\x08\0":
            proto, to, body = ip[9], socket.inet_ntop(socket.AF_INET, ip[16:20]), ip[(ip[0] & 15) * 4:]
        elif kind == b"\x86\xdd":
            proto, to, body = ip[6], socket.inet_ntop(socket.AF_INET6, ip[24:40]), ip[40:]
        else:
            return
        port = struct.unpack_from("!H", body, 2)[0]
        if proto == 6:
            if body[13] & 0x12 == 2:  # SYN without ACK
                if to == "127.0.0.1" and port in self.own.values():
                    return
                connects.append((to, port))
            elif port == 53 and len(data := body[(body[12] >> 4) * 4:]) > 14:
                names.append(question(data, 14)[0].lower())
        elif proto == 17 and port == 53:
            names.append(question(body[8:])[0].lower())
        elif proto not in (0, 58):  # neighbour discovery and multicast reports are no traffic of an app
            self.others.append((proto, to, port))
