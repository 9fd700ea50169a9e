"""status --watch: drawn anew when something happens, a line for each change without a terminal; top fits 80 columns and knows q."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

import harness

CLEAR = b"\x1b[H\x1b[J"


class Terminal:
    """A command on a pseudo-terminal of its own session."""

    def __init__(self, inst, *args, columns=80, rows=24):
        self.main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(side)
        self.side = side

        def control():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.p = inst.spawn([harness.program("sbxsv"), *args], stdin=side, stdout=side, stderr=side, preexec_fn=control)
        self.seen = b""

    def read(self, until, what):
        end = time.monotonic() + 30
        while not until(self.seen):
            assert time.monotonic() < end, (what, self.seen[-2000:])
            if select.select([self.main], [], [], 1)[0]:
                try:
                    self.seen += os.read(self.main, 65536)
                except OSError:
                    break

    def picture(self):
        return self.seen.split(CLEAR)[-1].decode()

    def pictures(self):
        return self.seen.count(CLEAR)

    def key(self, k):
        os.write(self.main, k)

    def end(self):
        code = self.p.wait(timeout=30)
        assert termios.tcgetattr(self.side) == self.before
        os.close(self.main)
        os.close(self.side)
        return code


def sleeper(inst, name, enabled=True):
    inst.write_unit(name, f"[App]\nExec=/bin/sleep 1000\nWorkingDirectory={inst.app_dir(name)}\nEnabled={'yes' if enabled else 'no'}\n")


def cpu_ticks(pid):
    f = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return int(f[11]) + int(f[12])


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_on_a_terminal(inst, key):
    long_name = "a-name-that-is-much-too-long-for-a-column-of-this-table"
    sleeper(inst, long_name)
    sleeper(inst, "b", enabled=False)
    inst.write_unit("broken", "[App]\nExec=/bin/true\nNonsense=" + "x" * 100 + "\n")
    inst.up()
    inst.wait_state(long_name, "running")
    t = Terminal(inst, "status", "--watch")
    t.read(lambda s: b"q ends" in s, "the first picture")
    first = t.picture()
    assert re.search(r"^a-name-that-is-\.\.\. +running +\d+ +\d\d:\d\d:\d\d +1 ", first, re.M), first
    assert re.search(r"^broken +failed .*\.\.\.\r?$", first, re.M), first
    # nothing happens: nothing is drawn
    n = t.pictures()
    time.sleep(1)
    assert not select.select([t.main], [], [], 0)[0] and t.pictures() == n
    inst.ok("start", "b")
    t.read(lambda s: re.search(rb"\nb +running", s.split(CLEAR)[-1]), "b running")
    inst.ok("stop", "b")
    t.read(lambda s: re.search(rb"\nb +stopped", s.split(CLEAR)[-1]) and s.endswith(b"q ends"), "b stopped")
    assert t.pictures() > n
    for line in t.seen.decode().replace("\x1b[H\x1b[J", "\n").splitlines():
        assert len(line.rstrip("\r")) <= 80, line
    t.key(key)
    assert t.end() == 0


def test_narrow_terminal_and_one_app(inst):
    for name in ("a", "b"):
        sleeper(inst, name)
    inst.up()
    inst.wait_state("a", "running")
    t = Terminal(inst, "status", "a", "--watch", columns=60, rows=10)
    t.read(lambda s: b"q ends" in s, "the first picture")
    assert re.search(r"^a +running", t.picture(), re.M) and not re.search(r"^b ", t.picture(), re.M)
    assert max(len(x.rstrip("\r")) for x in t.picture().splitlines()) <= 60
    t.key(b"q")
    assert t.end() == 0
    assert inst.sbxsv("status", "nosuch", "--watch").code == 4
    assert inst.sbxsv("status", "../x", "--watch").code == 4


def test_end_of_the_supervisor(inst):
    assert inst.sbxsv("status", "--watch").code == 5
    sleeper(inst, "a")
    inst.up()
    t = Terminal(inst, "status", "--watch")
    t.read(lambda s: b"q ends" in s, "the first picture")
    inst.down()
    assert t.end() == 5


def test_lines(inst):
    sleeper(inst, "a")
    sleeper(inst, "b")
    inst.up()
    inst.wait_state("a", "running")
    inst.wait_state("b", "running")
    p = inst.spawn([harness.program("sbxsv"), "status", "--watch"], stdout=subprocess.PIPE, text=True)
    j = inst.spawn([harness.program("sbxsv"), "status", "a", "--watch", "--json"], stdout=subprocess.PIPE, text=True)
    stamp = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z "
    first = sorted(p.stdout.readline() for _ in range(2))
    assert re.match(stamp + "a running\n$", first[0]) and re.match(stamp + "b running\n$", first[1])
    assert json.loads(j.stdout.readline())["state"] == "running"
    inst.ok("stop", "b")
    inst.ok("stop", "a")
    seen = [p.stdout.readline().split(" ", 1)[1].strip() for _ in range(4)]
    assert seen == ["b stopping", "b stopped", "a stopping", "a stopped"]
    states = [json.loads(j.stdout.readline()) for _ in range(2)]
    assert [(s["app"], s["state"]) for s in states] == [("a", "stopping"), ("a", "stopped")]
    # a reader that goes away ends it, though nothing is written any more; a signal does too
    p.stdout.close()
    assert p.wait(timeout=30) == 0
    j.send_signal(signal.SIGTERM)
    assert j.wait(timeout=30) == 0


def test_an_upgrade_is_survived(inst):
    sleeper(inst, "a")
    inst.up()
    inst.wait_state("a", "running")
    p = inst.spawn([harness.program("sbxsv"), "status", "--watch"], stdout=subprocess.PIPE, text=True)
    assert " a running" in p.stdout.readline()
    inst.ok("upgrade")
    # it may need a moment to listen again: what changes meanwhile is asked for
    time.sleep(0.5)
    inst.ok("stop", "a")
    assert " a sto" in p.stdout.readline()
    p.send_signal(signal.SIGINT)
    assert p.wait(timeout=30) == 0


def test_it_sleeps(inst):
    sleeper(inst, "a")
    inst.up()
    inst.wait_state("a", "running")
    t = Terminal(inst, "status", "--watch")
    t.read(lambda s: b"q ends" in s, "the first picture")

    def switches():
        text = inst.read_text(f"/proc/{t.p.pid}/status")
        return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M).group(1))
    time.sleep(0.3)
    before = switches()
    time.sleep(2)
    assert switches() - before <= 1
    t.key(b"q")
    assert t.end() == 0


def test_top_fits_and_q_ends_it(inst):
    name = "an-app-with-a-name-of-sixty-three-characters-which-is-the-most"
    sleeper(inst, name)
    inst.up()
    inst.wait_state(name, "running")
    t = Terminal(inst, "top", "-d", "100ms")
    t.read(lambda s: s.count(CLEAR) >= 2 and b"an-app" in s.split(CLEAR)[-1], "two pictures")
    lines = t.picture().splitlines()
    header = [x for x in lines if x.startswith("NAME")][0].split()
    assert len(set(header)) == len(header)
    assert max(len(x.rstrip("\r")) for x in lines) <= 80
    t.key(b"q")
    assert t.end() == 0
