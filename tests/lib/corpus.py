"""The bypass corpus (tests/corpus/proxy.tsv): rows, their bytes as steps for a socket, and the known deviations."""
import os
import re
import socket
import time

HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "corpus")
_ESCAPE = re.compile(r"\\(r|n|t|\\|[0-7]{3})")
_PLAIN = {"r": "\r", "n": "\n", "t": "\t", "\\": "\\"}


class Row:
    def __init__(self, line):
        self.id, self.kind, self.text, allow, self.expected, self.reason = line.rstrip("\n").split("\t")
        self.allow = allow.split(";")

    def destination(self):
        """Kind transparent: (host, port text) of the original destination."""
        return re.match(r"<<DST:([0-9.]+):(\d+|<proxy-port>)", self.text).groups()

    def steps(self):
        """[bytes or (marker, argument)]: ("RD", None), ("FIN", None), ("SEG", None), ("SLEEP", milliseconds)"""
        out = []
        text = re.sub(r"^<<DST:[^>]*>?>>", "", self.text)
        for part in re.split(r"(<<(?:RD|SEG|FIN|SLEEP:\d+|REP:\d+:.*?)>>)", text):
            if not part:
                continue
            if part.startswith("<<REP:"):
                _, n, what = part[2:-2].split(":", 2)
                out.append(unescape(what) * int(n))
            elif part.startswith("<<"):
                name, _, arg = part[2:-2].partition(":")
                out.append((name, int(arg) if arg else None))
            else:
                out.append(unescape(part))
        return out

    def bytes(self):
        return b"".join(s for s in self.steps() if isinstance(s, bytes))


def unescape(text):
    return _ESCAPE.sub(lambda m: _PLAIN.get(m[1]) or chr(int(m[1], 8)), text).encode("latin-1")


KINDS = ("http", "connect-tls", "socks5", "transparent", "dns", "udp", "addr", "pattern")


def table(results):
    """The table of what came out: results is {id: (verdict here, "" or what is wrong)}."""
    known, counts = deviations(), {}
    for r in rows(*KINDS):
        k = counts.setdefault((KINDS.index(r.kind), r.kind, r.expected), [0, 0, 0, 0])
        k[0] += 1
        if r.id not in results:
            continue
        k[1 + (2 if results[r.id][1] else 1 if r.id in known else 0)] += 1
    lines = [f"{'kind':12} {'expected':12} {'rows':>5} {'agree':>6} {'deviate':>8} {'fail':>5}"]
    for (_, kind, outcome), n in sorted(counts.items()):
        lines.append(f"{kind:12} {outcome:12} {n[0]:5} {n[1]:6} {n[2]:8} {n[3]:5}")
    lines.append(f"{'all':25} " + f"{sum(n[0] for n in counts.values()):5} {sum(n[1] for n in counts.values()):6} "
                 f"{sum(n[2] for n in counts.values()):8} {sum(n[3] for n in counts.values()):5}")
    return "\n".join(lines)


def rows(*kinds):
    with open(os.path.join(HERE, "proxy.tsv"), encoding="latin-1") as f:
        next(f)
        return [r for r in map(Row, f) if r.kind in kinds]


def deviations():
    """{id: (outcome here, why)}"""
    with open(os.path.join(HERE, "deviations.tsv")) as f:
        lines = [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]
    return {v[0]: (v[1], v[2]) for v in lines}


def play(sock, row, timeout=10.0, longest_sleep=60.0, enough=1 << 30):
    """Plays the row; returns (all bytes received, "eof", "reset" or "open": still open when nothing more was to come)."""
    got, end = bytearray(), "open"
    sock.settimeout(timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        for s in row.steps():
            if isinstance(s, bytes):
                sock.sendall(s)
            elif s[0] == "RD":
                data = sock.recv(1 << 16)
                if not data:
                    return bytes(got), "eof"
                got += data
            elif s[0] == "FIN":
                sock.shutdown(socket.SHUT_WR)
            elif s[0] == "SEG":
                time.sleep(0.01)
            else:
                time.sleep(min(s[1] / 1000, longest_sleep))
    except (ConnectionError, BrokenPipeError):
        end = "reset"
    try:
        while (end == "open" or not got) and len(got) < enough:
            data = sock.recv(1 << 16)
            if not data:
                end = "eof"
                break
            got += data
    except ConnectionError:
        end = "reset"
    except TimeoutError:
        pass
    return bytes(got), end
