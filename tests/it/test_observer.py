"""The observer against programs that mean it ill, and against its own end: it crashes for nobody, holds nobody up, and gives
nothing away."""
import ctypes
import os
import re
import shutil
import signal
import struct
import subprocess
import threading
import time

import harness
import pytest
from test_violations import Outside, exec_argv, refused, write_unit

FLOOD = int(os.environ.get("SBXSV_FLOOD", "100000"))  # the bench makes it a million


@pytest.fixture
def outside(inst):
    o = Outside(inst)
    yield o
    o.close()


@pytest.fixture
def bad(inst):
    d = inst.app_dir("bad")
    shutil.copy(harness.program("badcalls"), f"{d}/badcalls")
    os.chmod(f"{d}/badcalls", 0o755)
    return d


def run(inst, d, *args, options=(), timeout=120):
    return inst.sbxsv(*exec_argv(inst, *options), f"{d}/badcalls", *map(str, args), cwd=d, timeout=timeout)


def test_a_path_that_changes_under_way(inst, outside, bad):
    """It fools the record at most: the jail is not made of it."""
    inst.user_file(outside.file, "b\n")
    good = inst.user_file(f"{bad}/good", "g\n")
    r = run(inst, bad, "rewrite", good, outside.file, 20000, options=["--read", bad])
    found = re.match(r"bad (\d+) good (\d+)", r.out)
    assert r.code == 0 and found and int(found[1]) == 0 and int(found[2]) > 0, r


def test_bad_pointers(inst, outside, bad):
    good = inst.user_file(f"{bad}/good", "g\n")
    r = run(inst, bad, "pointers", good, options=["--read", bad])
    assert r.code == 0, r
    got = [line.split() for line in r.out.splitlines()]
    refused_by_kernel = {"EFAULT", "EINVAL", "EBADF", "ENOENT", "ENOTSOCK", "ENAMETOOLONG", "E2BIG", "EISCONN", "ENOTDIR", "EAFNOSUPPORT",
                         "ENOTCONN", "ECONNREFUSED", "EPERM"}
    for word, error in got:
        assert error in refused_by_kernel or (word, error) in {("border", "ok"), ("slashes", "ok"), ("longest", "ok")}, (word, error)
    assert ["border", "ok"] in got and ["huge", "ENAMETOOLONG"] in got and ["hole", "EFAULT"] in got, got
    assert "ENOSYS" not in r.out


def test_ends_in_the_middle(inst, outside, bad):
    r = run(inst, bad, "die", 150, outside.file)
    assert r.code == 0 and r.out == "done\n", r


def test_a_hostile_app_of_a_supervisor(inst, outside, bad):
    """After all of it the supervisor lives, looks at others, and holds no more descriptors than before."""
    good = inst.user_file(f"{bad}/good", "g\n")
    inst.user_file(f"{bad}/run.sh", f"./badcalls pointers {good}\n./badcalls die 40 {outside.file}\n"
                                    f"./badcalls rewrite {good} {outside.file} 5000\nexit 1\n")
    write_unit(inst, "bad", bad, "/bin/sh run.sh")
    inst.up()
    inst.wait_state("bad", "failed", timeout=120)
    before = inst.status()["supervisor"]["fds"]
    inst.sbxsv("start", "bad")
    inst.wait_state("bad", "failed", timeout=120)
    harness.wait_for(lambda: inst.status()["supervisor"]["fds"] <= before, 10, "descriptors closed")
    assert "ENOSYS" not in inst.log("bad")
    assert {v["path"] for v in refused(inst, "bad")} >= {outside.file}


@pytest.mark.parametrize("kinds", ["one", "many"])
def test_a_flood(inst, outside, bad, kinds):
    """Counted right, bounded in memory and on disk; the supervisor answers meanwhile."""
    path = outside.file
    n = FLOOD
    if kinds == "many":
        n = FLOOD // 10
        for i in range(200):
            inst.user_file(f"{outside.dir}/many-{i}", "x")
        inst.user_file(f"{bad}/run.sh", f"i=0\nwhile [ $i -lt {n // 200} ]; do ./badcalls flood {outside.dir}/many-%ld 200; i=$((i+1)); done\n"
                                        "exit 1\n")
    else:
        inst.user_file(f"{bad}/run.sh", f"./badcalls flood {path} {n}\nexit 1\n")
    write_unit(inst, "bad", bad, "/bin/sh run.sh")
    inst.up()
    slowest, memory = 0, 0
    while inst.peek("bad")["state"] != "failed":
        begun = time.monotonic()
        inst.status("bad")
        slowest = max(slowest, time.monotonic() - begun)
        with open(f"/proc/{inst.daemon_pid()}/smaps_rollup", encoding="ascii") as f:
            memory = max(memory, sum(int(m) for m in re.findall(r"Private_\w+:\s+(\d+) kB", f.read())))
        time.sleep(0.05)
    one = inst.api("GET", "/v1/violations?app=bad")[1]["apps"][0]
    assert one["total"] + one["lost"] == n, (one, inst.log("bad"))
    if kinds == "one":
        assert one["lost"] == 0
        assert sum(v["count"] for v in refused(inst, "bad")) == n
    assert slowest < 5, f"status took {slowest:.3f} s"
    assert memory < 40 * 1024, f"{memory} kB"
    size = sum(os.path.getsize(os.path.join(inst.state, f)) for f in os.listdir(inst.state) if f.startswith("events.jsonl"))
    assert size < 5 << 20, size


def test_a_killed_supervisor_takes_the_app_along(inst, outside, bad):
    inst.user_file(f"{bad}/run.sh", f"for i in 1 2 3 4; do ./badcalls flood {outside.file} 100000000 & done\nwait\n")
    write_unit(inst, "bad", bad, "/bin/sh run.sh")
    daemon = inst.foreground()
    s = inst.wait_state("bad", "running")
    harness.wait_for(lambda: refused(inst, "bad"), 20, "a violation")
    marked = harness.pids_with_mark(inst.mark)
    assert len(marked) >= 5, marked
    daemon.send_signal(signal.SIGKILL)
    begun = time.monotonic()
    daemon.wait()
    harness.wait_for(lambda: not harness.pids_with_mark(inst.mark) and not os.path.exists(f"/proc/{s['pid']}"), 10, "everything gone")
    assert time.monotonic() - begun < 5  # a guard; the bench measures it


def test_a_stopped_supervisor_delays_no_longer_than_it_is_stopped(inst, outside, bad):
    good = inst.user_file(f"{bad}/good", "g\n")
    inst.user_file(f"{bad}/run.sh", f"./badcalls latency {good} 3000\nexit 1\n")
    write_unit(inst, "bad", bad, "/bin/sh run.sh")
    daemon = inst.foreground()
    inst.wait_state("bad", "running")
    time.sleep(0.5)
    seconds = float(os.environ.get("SBXSV_STOP_SECONDS", "3"))
    begun = time.monotonic()
    daemon.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    daemon.send_signal(signal.SIGCONT)
    stopped = time.monotonic() - begun
    inst.wait_state("bad", "failed", timeout=60)
    longest = re.search(r"longest (\d+)", inst.log("bad"))
    assert longest, inst.log("bad")
    assert (stopped - 0.5) * 1000 * 0.5 < int(longest[1]) < (stopped + 2) * 1000, (stopped, longest[0])


def threads(inst):
    with open(f"/proc/{inst.daemon_pid()}/status", encoding="ascii") as f:
        return int(re.search(r"^Threads:\t(\d+)", f.read(), re.M)[1])


def test_an_idle_app_has_no_thread_and_is_heard_again(inst, outside, bad):
    """What it does after a long silence is seen like what it did before, and it waits for nobody; each time anew."""
    apps = ["bad", "worse"]
    dirs = {"bad": bad, "worse": inst.app_dir("worse")}
    for app in apps:
        os.mkfifo(f"{dirs[app]}/go")
        shutil.chown(f"{dirs[app]}/go", inst.user.pw_uid, inst.user.pw_gid)
        inst.user_file(f"{dirs[app]}/run.sh", f"while read x < go; do cat {outside.file}; echo seen $x; done\n")
        write_unit(inst, app, dirs[app], "/bin/sh run.sh")
    inst.up()
    for app in apps:
        inst.wait_state(app, "running")
    before = inst.status()["supervisor"]["fds"]
    for n in (1, 2, 3):
        harness.wait_for(lambda: threads(inst) == 1, 20, "no thread of an observer")
        for app in apps[:n]:
            with open(f"{dirs[app]}/go", "w") as go:
                go.write(f"{n}\n")
        for app in apps[:n]:
            harness.wait_for(lambda: f"seen {n}" in inst.log(app), 20, "an answer")
            expected = n if app == "bad" else n - 1
            harness.wait_for(lambda: sum(v["count"] for v in refused(inst, app)) == expected, 20, f"{expected} refusals of {app}")
            assert {v["path"] for v in refused(inst, app)} == {outside.file}
    assert threads(inst) > 1
    inst.ok("stop", "bad")  # while it is listened to
    harness.wait_for(lambda: threads(inst) == 1, 20, "no thread of an observer")
    inst.ok("stop", "worse")  # while it is not
    inst.ok("start", "worse")
    inst.wait_state("worse", "running")
    harness.wait_for(lambda: inst.status()["supervisor"]["fds"] < before, 10, "descriptors closed")


def test_no_file_that_the_jail_does_not_show_is_opened(inst, outside, bad):
    """The first line of a script is read to find its interpreter: never of a file that the app itself cannot read."""
    libc = ctypes.CDLL(None, use_errno=True)
    IN_ACCESS_OPEN, NONBLOCK = 0x1 | 0x20, 0o4000
    hidden = inst.user_file(f"{outside.dir}/hidden", "#!/etc/hostname\n", 0o644)
    shown = inst.user_file(f"{bad}/shown", f"#!{outside.tool}\n", 0o755)
    watch = libc.inotify_init1(NONBLOCK)
    assert watch >= 0 and libc.inotify_add_watch(watch, hidden.encode(), IN_ACCESS_OPEN) >= 0
    try:
        r = inst.sbxsv(*exec_argv(inst), harness.PYTHON, "-c", "import os,sys\nfor p in sys.argv[1:]:\n  for i in range(3):\n    try:\n"
                       "      os.execv(p, [p])\n    except OSError:\n      pass\nsys.exit(7)", hidden, shown, cwd=bad)
        assert r.code == 7 and f"refused: exec {outside.tool}" in r.err and "hostname" not in r.err, r
        with pytest.raises(BlockingIOError):
            os.read(watch, 4096)
        with open(hidden, encoding="ascii"):
            assert os.read(watch, 4096)  # it would have been seen
    finally:
        os.close(watch)


def mount_fuse(point):
    """A FUSE file system at `point`, whose server is whoever reads the descriptor; None where that is not to be had."""
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    data = f"fd={fd},rootmode=40755,user_id=0,group_id=0,allow_other"
    r = subprocess.run([harness.PYTHON, "-c", "import ctypes,sys,os\n"
                        "c=ctypes.CDLL(None,use_errno=True)\n"
                        "sys.exit(ctypes.get_errno() if c.mount(b'told',sys.argv[1].encode(),b'fuse',0,sys.argv[2].encode()) else 0)",
                        point, data], pass_fds=[fd], capture_output=True, text=True)
    if r.returncode:
        os.close(fd)
        pytest.skip(f"a FUSE mount is refused here: {r}")
    return fd


class FuseRoot(threading.Thread):
    """A server that has only its root directory, and remembers which names it was asked for (linux/fuse.h)."""
    LOOKUP, GETATTR, INIT = 1, 3, 26

    def __init__(self, fd):
        super().__init__(daemon=True)
        self.fd, self.names = fd, []

    def run(self):
        while True:
            try:
                q = os.read(self.fd, 1 << 20)
            except OSError:
                return
            op, unique = struct.unpack_from("=IQ", q, 4)
            if op == self.INIT:
                body = struct.pack("=IIIIHHIIHHI", 7, 23, 0, 0, 12, 9, 1 << 16, 1, 0, 0, 0)[:24] + bytes(40)
            elif op == self.GETATTR:
                body = struct.pack("=QII", 0, 0, 0) + struct.pack("=QQQQQQIIIIIIIIII", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0)
            else:
                if op == self.LOOKUP:
                    self.names.append(q[40:].rstrip(b"\0").decode())
                body = None
            head = struct.pack("=IiQ", 16 + len(body or b""), 0 if body is not None else -2, unique)
            os.write(self.fd, head + (body or b""))


def test_no_name_is_looked_up_where_that_tells_somebody(inst, outside, bad):
    """An app without a way out asks for names on a file system that hands them on: they must not arrive there. What lies in
    others is reported as ever, also across a mount."""
    if not os.path.exists("/dev/fuse") or not harness.ROOT:
        pytest.skip("needs /dev/fuse and root for a mount by hand")
    point, plain = f"{outside.dir}/told", f"{outside.dir}/plain"
    inst._own_dir(point)
    inst._own_dir(plain)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "plain", plain], check=True)
    fd = mount_fuse(point)
    try:
        server = FuseRoot(fd)
        server.start()
        assert os.listdir(outside.dir) and not os.path.exists(f"{point}/by-the-host")
        assert server.names == ["by-the-host"]  # the server hears of what is looked up
        inst.user_file(f"{plain}/file", "x\n")
        os.makedirs(f"{plain}/deep/dir")
        os.symlink("../../../file", f"{plain}/deep/dir/up")
        os.symlink(f"{plain}/file", f"{plain}/deep/absolute")
        os.symlink(point, f"{bad}/link")
        asked = [f"{point}/secret-1", "link/secret-2", f"{plain}/../told/secret-3", f"{plain}/deep/dir/../../../told/secret-4/x",
                 f"{bad}/link/../told/secret-5", f"{plain}/file", f"{plain}/deep/dir/up", f"{plain}/deep/absolute", f"{plain}/deep//dir/../dir/",
                 outside.file]
        inst.user_file(f"{bad}/run.sh", "for f in " + " ".join(asked) + "; do cat $f; echo x > $f; mkdir $f; done\nsleep 1\nexit 1\n")
        write_unit(inst, "bad", bad, "/bin/sh run.sh")
        inst.up()
        inst.wait_state("bad", "failed", timeout=30)
        reads = {v.get("asked", v["path"]): v["path"] for v in refused(inst, "bad") if v["operation"] == "file-read"}
        assert reads.get(outside.file) == outside.file and reads.get(f"{plain}/deep/absolute") == f"{plain}/file", reads
        assert set(reads.values()) <= {outside.file, f"{plain}/file", f"{plain}/deep/dir"}, reads
        assert f"{plain}/file" in reads.values(), reads
        assert server.names == ["by-the-host"], server.names
    finally:
        subprocess.run(["umount", "-l", point], check=False)
        subprocess.run(["umount", "-l", plain], check=False)
        os.close(fd)


def test_a_file_system_that_hangs_holds_up_nobody_else(inst, outside, bad):
    """A path on a FUSE file system whose server does not answer, that the jail does not show: nobody waits for it."""
    if not os.path.exists("/dev/fuse") or not harness.ROOT:
        pytest.skip("needs /dev/fuse and root for a mount by hand")
    point = f"{outside.dir}/hung"
    inst._own_dir(point)
    fd = mount_fuse(point)
    try:
        other = inst.app_dir("other", {"run.sh": f"sleep 2\ncat {outside.file}\nexit 1\n"})
        inst.user_file(f"{bad}/run.sh", f"cat {point}/x &\nsleep 1\ncat {outside.file}\nexec sleep 1000\n")
        write_unit(inst, "bad", bad, "/bin/sh run.sh")
        write_unit(inst, "other", other, "/bin/sh run.sh")
        inst.up()
        inst.wait_state("other", "failed", timeout=30)
        assert [v["path"] for v in refused(inst, "other")] == [outside.file]
        assert [v["path"] for v in refused(inst, "bad")] == [outside.file]
        inst.ok("stop", "bad")
    finally:
        os.close(fd)  # the server is gone: whatever waits for it fails
        subprocess.run(["umount", "-l", point], check=False)
