#!/usr/bin/python3
"""Writes the seeds of the fuzzers that the bypass corpus gives: tests/fuzz/seeds/NAME/corpus-ID, from tests/corpus/proxy.tsv.

    tests/fuzz/seeds_from_corpus.py            writes them, and takes away those whose row went
    tests/fuzz/seeds_from_corpus.py --check    exit 1 when they are not as they would be written

The first byte that some fuzzers take (how long the pieces are that they feed; which parser) is fixed here. Rows longer than LONGEST are
cut: a fuzzer has its own limits, and what a row of a mebibyte shows is shown by its first bytes too.
"""
import os
import re
import socket
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import corpus  # noqa: E402

LONGEST = 20000
HOST, RULE, JSON, ADDRESS = b"\0", b"\1", b"\2", b"\3"  # fuzz_policy.c
PIECES = b"\4"  # fuzz_request.c, fuzz_sni.c, fuzz_socks.c


def addresses(row):
    """The answers that a row of kind dns describes, as 16 bytes each."""
    out = []
    for word in re.split(r"[,\s]|=>|->", row.text):
        word = word.replace("(blackhole)", "")
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                raw = socket.inet_pton(family, word)
            except OSError:
                continue
            out.append(raw if len(raw) == 16 else bytes(10) + b"\xff\xff" + raw)
    return out


def seeds(row):
    """(fuzzer, bytes) of a row"""
    data = row.bytes()[:LONGEST]
    if row.kind in ("http", "connect-tls"):
        yield "request", PIECES + data
        rest = row.bytes().partition(b"\r\n\r\n")[2][:LONGEST]
        if row.kind == "connect-tls" and rest:
            yield "sni", PIECES + rest
    elif row.kind == "socks5":
        yield "socks", PIECES + data
    elif row.kind == "transparent":
        yield "sni" if data[0] in (0, 22) else "request", PIECES + data
    elif row.kind == "udp":
        yield "dns", data
    elif row.kind == "dns":
        found = addresses(row)
        for raw in found:
            yield "policy", ADDRESS + raw
        if not found:  # no address: the name itself
            yield "policy", HOST + row.text.partition("=>")[0].encode()
    elif row.kind == "addr":
        yield "policy", HOST + row.text.encode()
    elif row.kind == "pattern":
        yield "policy", RULE + data


def wanted():
    out = {}
    for row in corpus.rows(*corpus.KINDS):
        for i, (fuzzer, data) in enumerate(seeds(row)):
            name = "corpus-" + re.sub(r"[^A-Za-z0-9._-]", "_", row.id) + (f"-{i}" if i and fuzzer == "policy" else "")
            out[os.path.join("seeds", fuzzer, name)] = data
    return out


def present():
    out = {}
    for d, _, files in os.walk(os.path.join(HERE, "seeds")):
        for f in files:
            if f.startswith("corpus-"):
                path = os.path.join(d, f)
                with open(path, "rb") as s:
                    out[os.path.relpath(path, HERE)] = s.read()
    return out


def main():
    want, have = wanted(), present()
    if "--check" in sys.argv:
        wrong = sorted(p for p in want.keys() | have.keys() if want.get(p) != have.get(p))
        for p in wrong:
            print(f"{p}: {'not written' if p not in have else 'of no row' if p not in want else 'not as the row says'}")
        return bool(wrong)
    for path, data in want.items():
        full = os.path.join(HERE, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as f:
            f.write(data)
    for path in have.keys() - want.keys():
        os.unlink(os.path.join(HERE, path))
    count = {}
    for path in want:
        count[path.split("/")[1]] = count.get(path.split("/")[1], 0) + 1
    print(", ".join(f"{n} of {fuzzer}" for fuzzer, n in sorted(count.items())))
    return 0


sys.exit(main())
