"""The observer against programs that mean it ill, and against its own end: it crashes for nobody, holds nobody up, and gives
nothing away."""
import os
import re
import shutil
import signal
import subprocess
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


@pytest.mark.skipif(not shutil.which("python3"), reason="no python3")
def test_a_file_system_that_hangs_holds_up_nobody_else(inst, outside, bad):
    """A path on a FUSE file system whose server does not answer: the app that asks for it waits, as without any jail; the
    supervisor and other apps do not."""
    if not os.path.exists("/dev/fuse") or not harness.ROOT:
        pytest.skip("needs /dev/fuse and root for a mount by hand")
    point = f"{outside.dir}/hung"
    inst._own_dir(point)
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    data = f"fd={fd},rootmode=40755,user_id=0,group_id=0,allow_other"
    r = subprocess.run([harness.PYTHON, "-c", "import ctypes,sys,os\n"
                        "c=ctypes.CDLL(None,use_errno=True)\n"
                        "sys.exit(ctypes.get_errno() if c.mount(b'hung',sys.argv[1].encode(),b'fuse',0,sys.argv[2].encode()) else 0)",
                        point, data], pass_fds=[fd], capture_output=True, text=True)
    if r.returncode:
        pytest.skip(f"a FUSE mount is refused here: {r}")
    try:
        other = inst.app_dir("other", {"run.sh": f"sleep 2\ncat {outside.file}\nexit 1\n"})
        inst.user_file(f"{bad}/run.sh", f"cat {point}/x &\nsleep 1\ncat {outside.file}\nexec sleep 1000\n")
        write_unit(inst, "bad", bad, "/bin/sh run.sh")
        write_unit(inst, "other", other, "/bin/sh run.sh")
        inst.up()
        inst.wait_state("other", "failed", timeout=30)
        assert [v["path"] for v in refused(inst, "other")] == [outside.file]
        inst.ok("stop", "bad")
    finally:
        os.close(fd)  # the server is gone: whatever waits for it fails
        subprocess.run(["umount", "-l", point], check=False)
