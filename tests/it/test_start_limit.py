"""The start limit and the delays between starts, counted and measured: [Restart] as sbxsv.app(5) has it.

The delay before the n-th start in a row is Sec= doubled n - 1 times, at most MaxSec=; ten seconds ready begin a new row. LimitBurst= starts within
LimitInterval=, however long each lived, are the last. A machine under load makes everything later, never earlier: times have lower bounds only.
"""
import time

import pytest

from harness import wait_for
from test_sup import GENEROUS, lines, post, unit

# One line a start, with the time; then it lives as long as the next line of `lives` says, seconds
LIFE = """
import os, sys, time
with open("starts", "a") as f: f.write(f"{time.monotonic()}\\n")
n = len(open("starts").read().splitlines())
lives = open("lives").read().split()
time.sleep(float(lives[min(n, len(lives)) - 1]))
sys.exit(1)
"""
SEC, MOST = 40, 200  # ms
RESET = 10000


def liver(inst, name, lives, burst, interval="1h", more=""):
    d = inst.app_dir(name, {"life.py": LIFE, "lives": " ".join(map(str, lives))})
    inst.write_unit(name, f"[App]\nExec=/usr/bin/python3 -S -E life.py\nWorkingDirectory={d}\n[Restart]\nSec={SEC}ms\nMaxSec={MOST}ms\n"
                          f"LimitBurst={burst}\nLimitInterval={interval}\n{more}")
    return d


def row(inst, name):
    """(how long it lived, the delay that was then announced) of each start but the last, ms."""
    exits = [e for e in inst.events(name, "exit")]
    waits = [e["next_start_ms"] for e in inst.events(name, "state") if e["state"] == "backoff"]
    return [e["after_ms"] for e in exits], waits


def documented(lived):
    """The delays after lives of so many milliseconds."""
    out, failures = [], 0
    for ms in lived:
        failures = 1 if ms >= RESET else failures + 1
        out.append(min(SEC << (failures - 1), MOST))
    return out


def check(inst, name, d, starts):
    s = inst.wait_state(name, "failed", timeout=120)
    began = [float(t) * 1000 for t in lines(f"{d}/starts")]
    lived, waits = row(inst, name)
    assert len(began) == s["launches"] == len(lived) == starts, (began, lived)
    assert waits == documented(lived[:-1])
    for i, wait in enumerate(waits):  # from its beginning to the next: it lived, and then the delay passed
        assert began[i + 1] - began[i] >= wait, (i, began, waits)
    assert f"it was started {starts} times within" in s["reason"] and f"LimitBurst={starts}" in s["reason"]
    time.sleep(0.5)
    assert len(lines(f"{d}/starts")) == starts and inst.peek(name)["state"] == "failed"
    return lived


@pytest.mark.parametrize("life", [0, 0.05])
@pytest.mark.parametrize("burst", [1, 7])
def test_short_lives(inst, life, burst):
    d = liver(inst, "job", [life], burst)
    inst.foreground()
    lived = check(inst, "job", d, burst)
    assert all(ms >= life * 1000 for ms in lived)
    # a start by a person begins all anew, delays too
    post(inst, "job", "start", wait=False)
    wait_for(lambda: len(lines(f"{d}/starts")) == 2 * burst and inst.peek("job")["state"] == "failed", GENEROUS)
    waits = row(inst, "job")[1]
    assert waits == 2 * documented([0] * (burst - 1)) and inst.peek("job")["launches"] == 2 * burst


def test_just_under_and_just_over_the_reset_time(inst):
    """Side by side, for each takes its ten seconds."""
    under = liver(inst, "under", [0, 0, 9.4, 0], 4)
    over = liver(inst, "over", [0, 0, 10.1, 0], 4)
    inst.foreground()
    lived = check(inst, "under", under, 4)
    assert 9400 <= lived[2], lived
    waits = row(inst, "under")[1]
    assert lived[2] >= RESET or waits == [40, 80, 160]  # the row went on
    lived = check(inst, "over", over, 4)
    assert lived[2] >= RESET and row(inst, "over")[1] == [40, 80, 40]  # a new one began


def test_starts_before_the_interval_do_not_count(inst):
    """Three within a second are the limit, and with this delay there are never three."""
    d = inst.app_dir("job")
    inst.write_unit("job", unit(d, "echo x >> starts; exit 1", body="[Restart]\nSec=600ms\nMaxSec=600ms\nLimitBurst=3\nLimitInterval=1s\n"))
    inst.foreground()
    wait_for(lambda: len(lines(f"{d}/starts")) >= 7, GENEROUS)
    assert inst.peek("job")["state"] != "failed" and "failed" not in [e["state"] for e in inst.events("job", "state")]


@pytest.mark.parametrize("interval", ["0", "1h"])
def test_without_an_interval_there_is_no_limit(inst, interval):
    d = inst.app_dir("job")
    inst.write_unit("job", unit(d, "echo x >> starts; exit 1", body=f"[Restart]\nSec=0\nLimitBurst=5\nLimitInterval={interval}\n"))
    inst.foreground()
    if interval == "0":
        wait_for(lambda: len(lines(f"{d}/starts")) >= 25, GENEROUS)
    else:
        inst.wait_state("job", "failed")
        assert len(lines(f"{d}/starts")) == 5


def test_a_start_that_was_never_ready_counts_however_long_it_took(inst, free_port):
    d = inst.app_dir("job")
    inst.write_unit("job", unit(d, "echo x >> starts; exec sleep 1000", body=(
        f"[Network]\nListen={free_port()}\n[Ready]\nTimeout=300ms\n[Restart]\nSec={SEC}ms\nMaxSec={MOST}ms\nLimitBurst=4\n")))
    inst.foreground()
    s = inst.wait_state("job", "failed")
    assert len(lines(f"{d}/starts")) == 4 == s["launches"] and row(inst, "job")[1] == [40, 80, 160]
