#!/usr/bin/python3
"""Sums test results: tally.py DIRECTORY... -> "N passed, N failed, N skipped", exit status 1 when something failed.

Below each directory: *.part (lines "pass NAME", "fail NAME", "skip NAME"), *.xml (JUnit, of pytest), and *.trs with its *.log
(of automake; a cmocka log counts by its tests, any other program as one).
"""
import os
import re
import sys
import xml.etree.ElementTree as ET

CMOCKA = re.compile(rb"^\[  (PASSED|FAILED|SKIPPED) +\] (\d+) test\(s\)", re.M)
TRS = re.compile(r"^:test-result: *(\w+)", re.M)


def part(path):
    with open(path) as f:
        words = [line.split(None, 1)[0] for line in f if line.strip()]
    return [words.count(w) for w in ("pass", "fail", "skip")]


def junit(path):
    try:
        root = ET.parse(path).getroot()
    except ET.ParseError:
        return [0, 1, 0]  # pytest ended in the middle of it
    n = [0, 0, 0]
    for suite in root.iter("testsuite"):
        total, bad, skip = (sum(int(suite.get(k, 0)) for k in keys)
                            for keys in (("tests",), ("failures", "errors"), ("skipped",)))
        n = [n[0] + total - bad - skip, n[1] + bad, n[2] + skip]
    return n


def automake(path):
    with open(path) as f:
        m = TRS.search(f.read())
    result = m.group(1) if m else "ERROR"
    try:
        with open(path[:-4] + ".log", "rb") as f:
            found = CMOCKA.findall(f.read())
    except OSError:
        found = []
    n = [sum(int(k) for w, k in found if w == what) for what in (b"PASSED", b"FAILED", b"SKIPPED")]
    if result in ("FAIL", "ERROR", "XPASS"):
        n[1] = max(n[1], 1)
    elif not found:
        n[2 if result == "SKIP" else 0] += 1
    return n


def main():
    total = [0, 0, 0]
    for top in sys.argv[1:]:
        for where, _, names in os.walk(top):
            for name in names:
                kind = {".part": part, ".xml": junit, ".trs": automake}.get(os.path.splitext(name)[1])
                if kind:
                    total = [a + b for a, b in zip(total, kind(os.path.join(where, name)))]
    print("{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
