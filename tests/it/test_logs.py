"""Captured output: rotation, followers, and what happens when it cannot be written."""
import calendar
import json
import os
import resource
import shutil
import stat
import subprocess
import threading
import time

import harness
import pytest

CHATTER = r"""
import http.server, os, sys, threading
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        what, _, n = self.path[1:].partition("/")
        if what == "say":
            print(n, flush=True)
        elif what == "flood":           # N lines of 100 bytes
            os.write(1, b"")
            for _ in range(int(n)):
                sys.stdout.write("f" * 99 + "\n")
            sys.stdout.flush()
        elif what == "count":           # FROM-TO: numbered lines, on both streams in turn
            out = [b"", b""]
            for i in range(*map(int, n.split("-"))):
                out[i % 2] += b"%d of the numbered lines\n" % i
                if i % 1000 > 997:
                    os.write(1 + i % 2, out[i % 2]); out[i % 2] = b""
            for i in 0, 1:
                os.write(1 + i, out[i])
        elif what == "long":            # one line of N bytes
            print("l" * int(n), flush=True)
        elif what == "raw":
            sys.stdout.buffer.write(bytes.fromhex(n) + b"\n")
            sys.stdout.flush()
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("0.0.0.0", int(os.environ["PORT"])), H).serve_forever()
"""


@pytest.fixture
def chatter(inst, free_port):
    """chatter(name, body) -> port of an app that prints what it is asked to."""
    def make(name="chat", body=""):
        port = free_port()
        d = inst.app_dir(name, {"chat.py": CHATTER})
        inst.write_unit(name, f"[App]\nExec={harness.PYTHON} chat.py\nWorkingDirectory={d}\n[Network]\nListen={port}\n{body}\n")
        return port
    return make


def say(port, what):
    assert harness.http_get(port, "/" + what).text == "ok\n"


def wait_log(inst, app, text, timeout=20):
    harness.wait_for(lambda: text in inst.log(app), timeout, what=f"{text!r} in the log of {app}")


def test_output_is_kept_and_shown(inst, chatter):
    port = chatter()
    inst.up()
    inst.wait_state("chat", "running")
    for i in range(300):
        say(port, f"say/line-{i}")
    wait_log(inst, "chat", "line-299\n")
    assert inst.ok("logs", "chat", "-n", "2").splitlines()[-2:] == ["line-298", "line-299"]
    assert stat.S_IMODE(os.stat(inst.log_path("chat")).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(inst.log_path("chat"))).st_mode) == 0o700


def test_control_bytes_do_not_reach_the_terminal_but_stay_in_the_file(inst, chatter):
    port = chatter()
    inst.up()
    inst.wait_state("chat", "running")
    say(port, "raw/1b5d303b6f776e65640700c3")  # ESC ] 0 ; owned BEL NUL, half a UTF-8 character
    say(port, "say/after")
    wait_log(inst, "chat", "after\n")
    with open(inst.log_path("chat"), "rb") as f:
        assert b"\x1b]0;owned\x07\x00\xc3\n" in f.read()
    out = inst.ok("logs", "chat", "-n", "5")
    assert "owned" in out and not any(c in out for c in "\x1b\x07\x00")


def test_rotation(inst, chatter):
    port = chatter(body="[Log]\nMaxSize=64K\nMaxFiles=3")
    inst.up()
    inst.wait_state("chat", "running")
    for _ in range(20):
        say(port, "flood/200")
    say(port, "say/the-end")
    wait_log(inst, "chat", "the-end\n")
    d, base = os.path.split(inst.log_path("chat"))
    files = sorted(f for f in os.listdir(d) if f.startswith(base))
    assert files == [base, base + ".1", base + ".2"]
    for f in files:
        path = os.path.join(d, f)
        assert os.path.getsize(path) <= 64 << 10
        with open(path) as text:
            lines = text.read().split("\n")
        assert lines[-1] == "" and all(len(x) == 99 for x in lines[:-1] if x.startswith("f"))
    assert inst.peek("chat")["log"]["dropped_lines"] == 0


def numbers(text):
    """The numbers of whole numbered lines; any other line but sbxsv's own is an error."""
    found = []
    for line in text.splitlines():
        if line.startswith("[sbxsv] "):
            continue
        number, _, rest = line.partition(" ")
        assert rest == "of the numbered lines", repr(line)
        found.append(int(number))
    return found


def test_300000_lines_through_rotation_with_delete_and_rename_under_it(inst, chatter):
    port = chatter(body="[Log]\nMaxSize=32K\nMaxFiles=300")
    inst.up()
    inst.wait_state("chat", "running")
    log = inst.log_path("chat")
    aside = os.path.join(inst.base, "aside")
    os.mkdir(aside)
    taken = []  # descriptors: what is written before the supervisor notices is seen too
    over, allowed = threading.Event(), [0]

    def meddle():
        while not over.wait(0.005):
            if len(taken) == allowed[0]:
                continue
            to = os.path.join(aside, str(len(taken)))
            try:
                os.rename(log, to)
            except FileNotFoundError:
                continue
            taken.append(os.open(to, os.O_RDONLY))
            if len(taken) % 2:
                os.unlink(to)

    thread = threading.Thread(target=meddle)
    thread.start()
    try:
        for i in range(0, 300000, 20000):
            was = len(taken)
            allowed[0] = was + 3  # of half a megabyte: what lies between two is more than a file holds
            say(port, f"count/{i}-{i + 20000}")
            harness.wait_for(lambda was=was: len(taken) > was, 20, what="the file taken away")
    finally:
        over.set()
        thread.join()
    harness.wait_for(lambda: inst.peek("chat")["log"]["lines"] >= 300001, 60, what="all lines read")
    found = []
    rotated = [log + f".{i}" for i in range(1, 300)] + [log]
    for path in rotated:
        if os.path.exists(path):
            found += numbers(inst.read_text(path))
    for fd in taken:
        with open(fd, encoding="ascii") as f:
            found += numbers(f.read())
    assert len(taken) >= 15 and os.path.exists(log + ".1")
    assert len(found) == 300000 and sorted(found) == list(range(300000))
    s = inst.peek("chat")["log"]
    assert s["dropped_bytes"] == 0 and s["dropped_lines"] == 0


def test_long_lines_are_split_and_marked(inst, chatter):
    port = chatter()
    inst.up()
    inst.wait_state("chat", "running")
    say(port, "long/100000")
    wait_log(inst, "chat", "line split]\n")
    whole = inst.log("chat").replace(" [sbxsv: line split]\n", "")
    harness.wait_for(lambda: "l" * 100000 in inst.log("chat").replace(" [sbxsv: line split]\n", ""), 20, what="all of it")
    assert whole


def test_follow_and_the_tail_of_an_earlier_run(inst, chatter):
    port = chatter()
    inst.up()
    inst.wait_state("chat", "running")
    say(port, "say/from-the-first-run")
    wait_log(inst, "chat", "from-the-first-run\n")
    inst.down()
    inst.up()
    inst.wait_state("chat", "running")
    assert "from-the-first-run" in inst.ok("logs", "chat", "-n", "50")
    out = os.path.join(inst.base, "follow")
    with open(out, "wb") as f:
        inst.spawn([harness.program("sbxsv"), "logs", "chat", "-f", "-n", "1"], stdout=f)
    harness.wait_for(lambda: os.path.getsize(out) > 0, 20, what="the last line")
    say(port, "say/live")
    harness.wait_for(lambda: "live\n" in inst.read_text(out), 20, what="the followed line")


def follow(inst, name, *args):
    out = os.path.join(inst.base, name)
    with open(out, "wb") as f:
        inst.spawn([harness.program("sbxsv"), "logs", *args], stdout=f)
    return out


def test_follow_over_restarts_and_rotations_has_each_line_once(inst, chatter):
    port = chatter(body="[Log]\nMaxSize=64K\nMaxFiles=3")
    inst.up()
    inst.wait_state("chat", "running")
    say(port, "count/0-5000")
    out = follow(inst, "f", "chat", "-f", "-n", "5000")
    harness.wait_for(lambda: "4999 of" in inst.read_text(out), 20, what="the old lines")
    for i in range(5000, 50000, 5000):
        say(port, f"count/{i}-{i + 5000}")
        if i % 15000 == 0:
            inst.ok("restart", "chat")
    harness.wait_for(lambda: "49999 of" in inst.read_text(out), 20, what="the last line")
    found = numbers(inst.read_text(out))
    assert len(found) == len(set(found))
    assert set(found) >= set(range(5000, 50000))
    assert inst.read_text(out).count("[sbxsv] started, pid") >= 3


def test_old_lines_come_from_rotated_files_too(inst, chatter):
    port = chatter(body="[Log]\nMaxSize=64K\nMaxFiles=100")
    inst.up()
    inst.wait_state("chat", "running")
    say(port, "count/0-50000")
    wait_log(inst, "chat", "49999 of")
    assert sorted(numbers(inst.ok("logs", "chat", "-n", "40000"))) == list(range(10000, 50000))
    assert sorted(numbers(inst.ok("logs", "chat", "--since", "1h"))) == list(range(50000))
    assert len(numbers(inst.ok("logs", "chat", "--since", "1h", "-n", "10"))) == 10


@pytest.mark.parametrize("stamps", ["yes", "no"])
def test_since(inst, chatter, stamps):
    port = chatter(body=f"[Log]\nTimestamps={stamps}")
    inst.up()
    inst.wait_state("chat", "running")
    say(port, "say/before")
    wait_log(inst, "chat", "before\n")
    time.sleep(2.1)  # without stamps a time is known to the second
    then = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time()))
    say(port, "say/after")
    wait_log(inst, "chat", "after\n")
    out = inst.ok("logs", "chat", "--since", then)
    assert "after\n" in out and "before" not in out
    assert "before\n" in inst.ok("logs", "chat", "--since", "1h")
    assert inst.ok("logs", "chat", "--since", "0s") == ""
    r = inst.sbxsv("logs", "chat", "--since", "yesterday")
    assert r.code == 2 and "10min" in r.err


@pytest.mark.parametrize("stamps", ["yes", "no"])
def test_json(inst, chatter, stamps):
    port = chatter(body=f"[Log]\nTimestamps={stamps}")
    inst.up()
    inst.wait_state("chat", "running")
    say(port, "say/plain")
    say(port, "raw/4100c3425c")
    wait_log(inst, "chat", "plain\n")
    out = follow(inst, "j", "chat", "-f", "--json")
    harness.wait_for(lambda: "escaped" in inst.read_text(out), 20, what="the old lines")
    say(port, "say/live")
    harness.wait_for(lambda: "live" in inst.read_text(out), 20, what="the live line")
    lines = [json.loads(x) for x in inst.read_text(out).splitlines()]
    assert all(x["app"] == "chat" and abs(calendar.timegm(time.strptime(x["time"][:19], "%Y-%m-%dT%H:%M:%S")) - time.time()) < 600
               for x in lines)
    by_line = {x["line"]: x for x in lines}
    assert "escaped" not in by_line["plain"] and "escaped" not in by_line["live"]
    assert by_line["A\\x00\\xc3B\\"]["escaped"] is True


def test_several_apps(inst, chatter):
    one, two = chatter("one"), chatter("two")
    inst.up()
    inst.wait_state("one", "running")
    inst.wait_state("two", "running")
    say(one, "say/first")
    say(two, "say/second")
    wait_log(inst, "one", "first\n")
    wait_log(inst, "two", "second\n")
    out = inst.ok("logs", "two", "one", "-n", "1")
    assert out.splitlines() == ["two | second", "one | first"]
    path = follow(inst, "f", "-f", "-n", "1", "one", "two")
    harness.wait_for(lambda: inst.read_text(path).count("\n") == 2, 20, what="the last lines")
    say(two, "count/0-5000")
    say(one, "count/0-5000")
    harness.wait_for(lambda: inst.read_text(path).count("\n") == 10002, 20, what="the followed lines")
    for app in "one", "two":
        mine = [x.split(" | ", 1)[1] for x in inst.read_text(path).splitlines() if x.startswith(app + " | ")]
        assert len(mine) == 5001 and len(set(mine)) == 5001
    assert inst.sbxsv("logs", "one", "nothing").code == 4
    # when nobody reads any more, the next line ends it, whosever it is
    p = inst.spawn(["/bin/sh", "-c", '"$0" logs -f -n 2 one two | head -n 3 >/dev/null', harness.program("sbxsv")])
    for port in one, two:
        harness.wait_for(lambda port=port: (say(port, "say/more"), p.poll() is not None)[1], 30, what="its end", step=0.2)
    assert p.returncode == 0


def test_a_deleted_log_directory_comes_back(inst, chatter):
    port = chatter()
    inst.up()
    inst.wait_state("chat", "running")
    say(port, "say/one")
    wait_log(inst, "chat", "one\n")
    shutil.rmtree(os.path.dirname(inst.log_path("chat")))
    say(port, "say/two")
    wait_log(inst, "chat", "two\n")
    assert inst.peek("chat")["state"] == "running"


def test_a_log_that_cannot_be_written_is_counted_and_shown(inst, chatter):
    port = chatter()
    inst.up()
    inst.wait_state("chat", "running")
    say(port, "say/one")
    wait_log(inst, "chat", "one\n")
    d = os.path.dirname(inst.log_path("chat"))
    shutil.rmtree(d)
    with open(d, "w"):
        pass  # a file where the directory must be
    for _ in range(5):
        say(port, "flood/1000")
    s = harness.wait_for(lambda: (lambda s: s if s["log"].get("dropped_lines", 0) >= 5000 else None)(inst.peek("chat")), 20,
                         what="the loss in status")
    assert s["state"] == "running" and d in s["log"]["error"]
    assert "5000" in inst.ok("status", "chat")
    os.unlink(d)
    say(port, "say/two")
    wait_log(inst, "chat", "two\n")
    assert "[sbxsv] 5000 lines (500000 bytes) are missing here" in inst.log("chat")


@pytest.mark.root
def test_what_a_full_disk_costs_is_counted_to_the_byte(inst, chatter):
    port = chatter()
    p = inst.spawn(["unshare", "--mount", "/bin/sh", "-c",
                    'mkdir -m 700 "$1" && mount -t tmpfs -o size=1m,mode=700 tmpfs "$1" && exec "$2" --foreground', "sh",
                    inst.state, harness.program("sbxsvd")])
    harness.wait_for(inst.answers, 30, what="the control socket")
    inst.wait_state("chat", "running")
    say(port, "count/0-100000")  # comes back: the app was not held up
    s = harness.wait_for(lambda: (lambda s: s if s["log"]["lines"] >= 100001 else None)(inst.peek("chat")), 30,
                         what="all lines read")["log"]
    log = f"/proc/{p.pid}/root{s['path']}"
    text = inst.read_text(log)
    assert text.endswith("\n") and s["dropped_lines"] > 0
    found = numbers(text)
    assert len(set(found)) == len(found) == 100000 - s["dropped_lines"]
    total = sum(len(f"{i} of the numbered lines\n") for i in range(100000))
    assert sum(len(x) + 1 for x in text.splitlines() if not x.startswith("[sbxsv]")) + s["dropped_bytes"] == total
    assert str(s["dropped_bytes"]) in inst.ok("status", "chat")
    os.truncate(log, 0)
    say(port, "say/after")
    harness.wait_for(lambda: "after\n" in inst.read_text(log), 20, what="the log going on")
    assert f"[sbxsv] {s['dropped_lines']} lines ({s['dropped_bytes']} bytes) are missing here" in inst.read_text(log)
    assert f"{s['dropped_lines']} lines ({s['dropped_bytes']} bytes) were lost" in inst.ok("events", "chat")


@pytest.mark.root
def test_a_full_disk_costs_log_lines_and_nothing_else(inst, chatter):
    """The state directory is a tmpfs of 1 MB, in a mount namespace of the supervisor's own."""
    port, other = chatter("chat"), chatter("other")
    p = inst.spawn(["unshare", "--mount", "/bin/sh", "-c",
                    'mkdir -m 700 "$1" && mount -t tmpfs -o size=1m,mode=700 tmpfs "$1" && exec "$2" --foreground', "sh",
                    inst.state, harness.program("sbxsvd")])
    harness.wait_for(inst.answers, 30, what="the control socket")
    inst.wait_state("chat", "running")
    inst.wait_state("other", "running")
    for _ in range(20):
        say(port, "flood/1000")
    s = harness.wait_for(lambda: (lambda s: s if s["log"].get("dropped_lines", 0) > 0 else None)(inst.peek("chat")), 20,
                         what="the loss in status")
    assert s["state"] == "running" and "No space left" in s["log"]["error"]
    say(other, "say/still-here")
    # apps can still be stopped and started
    assert inst.sbxsv("restart", "other").code == 0
    say(other, "say/again")
    # room again: the supervisor's view of the directory is below its /proc/PID/root
    log = f"/proc/{p.pid}/root{s['log']['path']}"
    os.truncate(log, 0)
    say(port, "say/after")
    harness.wait_for(lambda: "after\n" in inst.read_text(log), 20, what="the log going on")
    assert "lines (" in inst.read_text(log) and "are missing here" in inst.read_text(log)


def test_no_file_descriptors_left(inst, chatter):
    """Running apps go on; a start fails with a reason; when there is room again everything works."""
    port, other = chatter("chat"), chatter("other")
    inst.up()
    inst.wait_state("chat", "running")
    inst.wait_state("other", "running")
    pid = inst.daemon_pid()
    was = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = max(int(f) for f in os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 3, was[1]))  # enough for one request, not for a launch
    try:
        r = subprocess.run([harness.program("sbxsv"), "restart", "other"], env=inst.env, capture_output=True, text=True,
                           timeout=60, check=False, stdin=subprocess.DEVNULL)
        assert r.returncode != 0
        say(port, "say/still-here")
        wait_log(inst, "chat", "still-here\n")
        assert harness.proc_start(pid) is not None
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, was)
    harness.wait_for(inst.answers, 20, what="the control socket")
    inst.ok("start", "other")
    say(other, "say/again")


LISTENER = r"""
import ctypes, os, socket, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: it ends with the supervisor
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
with open(sys.argv[2], "ab", buffering=0) as out:
    while True:
        data, fds, flags, addr = socket.recv_fds(s, 1 << 20, 1)
        for fd in fds:
            data += os.pread(fd, 1 << 20, 0)
            os.close(fd)
        out.write(data + b"\n==\n")
"""


@pytest.mark.root
@pytest.mark.parametrize("target", ["journal", "syslog"])
def test_the_machines_own_log(inst, chatter, target):
    """The sockets are the test's, in a mount namespace of the supervisor's own."""
    port = chatter(body=f"[Log]\nTarget={target}")
    got, sock = os.path.join(inst.base, "got"), "/run/systemd/journal/socket" if target == "journal" else "/dev/log"
    listener = os.path.join(inst.base, "listener.py")
    with open(listener, "w", encoding="ascii") as f:
        f.write(LISTENER)
    inst.spawn(["unshare", "--mount", "/bin/sh", "-ec", r"""
        if [ "$1" = /dev/log ]; then
            mkdir "$5"; mount --rbind /dev "$5"; mount -t tmpfs -o mode=755 tmpfs /dev
            for f in null zero full random urandom tty; do : >/dev/$f; mount --bind "$5/$f" /dev/$f; done
            for d in pts shm; do mkdir /dev/$d; mount --rbind "$5/$d" /dev/$d; done
            ln -s /proc/self/fd /dev/fd
        else
            mount -t tmpfs -o mode=755 tmpfs /run; mkdir -p /run/systemd/journal
        fi
        "$2" "$3" "$1" "$4" & exec "$6" --foreground""", "sh", sock, harness.PYTHON, listener, got,
                os.path.join(inst.base, "dev"), harness.program("sbxsvd")])
    harness.wait_for(inst.answers, 30, what="the control socket")
    inst.wait_state("chat", "running")
    say(port, "say/to-the-machine")
    say(port, "raw/411b42")
    say(port, "long/60000")
    harness.wait_for(lambda: os.path.exists(got) and "l" * 1000 in inst.read_text(got), 30, what="the lines")
    harness.wait_for(lambda: inst.read_text(got).count("l" * 1000) >= (1 if target == "journal" else 14), 30, what="the long line")
    text = inst.read_text(got)
    if target == "journal":
        assert "SBXSV_APP=chat\n" in text and "to-the-machine\n" in text and "A\x1bB" in text and "l" * 60000 in text
    else:
        assert "sbxsv/chat: to-the-machine\n" in text and "sbxsv/chat: A\\x1bB\n" in text
    log = inst.peek("chat")["log"]
    assert log["target"] == target and "path" not in log and log["dropped_lines"] == 0
    assert not os.path.exists(os.path.join(inst.state, "logs", "chat.log"))
    assert "to-the-machine\n" in inst.ok("logs", "chat")
    assert target in inst.ok("status", "chat")


def test_a_target_that_changes(inst, chatter):
    """There is no syslog to be relied on here: what matters is that the app runs on, and the file after it."""
    port = chatter(body="[Log]\nTarget=file")
    inst.up()
    inst.wait_state("chat", "running")
    say(port, "say/one")
    wait_log(inst, "chat", "one\n")
    pid = inst.peek("chat")["pid"]
    unit = inst.unit_path("chat")
    with open(unit, encoding="utf-8") as f:
        text = f.read()
    for target in "syslog", "journal", "file":
        with open(unit, "w", encoding="utf-8") as f:
            f.write(text.replace("Target=file", f"Target={target}"))
        inst.ok("reload")
        harness.wait_for(lambda target=target: inst.peek("chat")["log"]["target"] == target, 20, what=target)
        say(port, f"say/{target}")
        harness.wait_for(lambda target=target: f"{target}\n" in inst.ok("logs", "chat"), 20, what="the line")
    wait_log(inst, "chat", "file\n")
    assert inst.peek("chat")["pid"] == pid and inst.peek("chat")["state"] == "running"
