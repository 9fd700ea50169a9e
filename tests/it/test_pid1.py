"""sbxsvd as pid 1 of a container: a root file system and namespaces made here with unshare, nothing of it outside."""
import json
import os
import signal
import subprocess

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.ROOT, reason="makes mounts and namespaces: needs root")

# Orphans: the grandchildren's parents exit at once, so pid 1 inherits and must reap them.
ORPHANS = """import os, sys, time
n = int(sys.argv[1])
left = n
while left:
    k = min(left, 100)
    pid = os.fork()
    if pid == 0:
        for _ in range(k):
            if os.fork() == 0:
                os._exit(0)
        os._exit(0)
    os.waitpid(pid, 0)
    left -= k
open("/run/done", "w").write(str(n))
"""

ENTRY = r"""#!/bin/sh
set -e
root=$1; shift
mount -t tmpfs none "$root"
for d in usr bin sbin lib lib64 etc build units; do
	src=/$d
	[ $d != build ] || src=$BUILD
	[ $d != units ] || src=$UNITS
	[ -e "$src" ] || continue
	if [ -L "$src" ]; then cp -P "$src" "$root/$d"; continue; fi
	mkdir -p "$root/$d"; mount --bind "$src" "$root/$d"
done
mkdir -p "$root/proc" "$root/dev" "$root/run" "$root/tmp" "$root/var/lib" "$root/cfg" "$root/home" "$root/srv"
mount --bind "$SHARED" "$root/run"
mount --bind "$CONFIG" "$root/cfg"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
cd "$root"
mkdir old
pivot_root . old
umount -l /old
rmdir /old
ip link set lo up 2>/dev/null || true
exec "$@"
"""


class Container:
    def __init__(self, inst, start=True):
        self.inst = inst
        self.shared = os.path.join(inst.base, "shared")
        self.root = os.path.join(inst.base, "root")
        for d in (self.shared, self.root):
            os.mkdir(d, 0o755)
        self.entry = inst.user_file(os.path.join(inst.base, "entry"), ENTRY, 0o755)
        self.env = dict(inst.env, BUILD=harness.build_dir(), UNITS=inst.env["SBXSV_UNITS_DIR"], SHARED=self.shared,
                        CONFIG=inst.config, SBXSV_CONFIG_DIR="/cfg", SBXSV_APPS_DIR="/cfg/apps.d", SBXSV_STATE_DIR="/var/lib/sbxsv",
                        SBXSV_RUNTIME_DIR="/run/sbxsv", SBXSV_UNITS_DIR="/units", HOME="/root", PATH="/build:" + inst.env["PATH"])
        with open(os.path.join(self.shared, "orphans.py"), "w") as f:
            f.write(ORPHANS)
        self.outer = None

    def start(self):
        log = open(os.path.join(self.inst.base, "foreground.log"), "ab")
        self.outer = self.inst.spawn(["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--propagation", "private",
                                      "--kill-child", self.entry, self.root, "/build/sbxsvd", "--foreground"],
                                     env=self.env, stdout=log, stderr=log)
        log.close()

        def up():
            assert self.outer.poll() is None, self.inst.read_text(os.path.join(self.inst.base, "foreground.log"))
            pids = harness.children(self.outer.pid)
            if not os.path.exists(os.path.join(self.shared, "sbxsv", "control.sock")) or not pids:
                return None
            direct = [p for p in pids if os.path.realpath(f"/proc/{p}/exe").endswith("/sbxsvd")]
            return self.inside("/build/sbxsv", "status", "--json", pid=min(direct)).returncode == 0 and min(direct) if direct else None
        self.pid = harness.wait_for(up, 60, "the supervisor in the container")

    def inside(self, *argv, pid=None, **kw):
        return subprocess.run(["nsenter", "-t", str(pid or self.pid), "-m", "-p", "-n", "-i", "-u", "-r", "-w", *argv], env=self.env,
                              capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, **kw)

    def zombies(self):
        n = 0
        for p in os.listdir("/proc"):
            if p.isdigit():
                try:
                    fields = open(f"/proc/{p}/stat").read().rpartition(")")[2].split()
                except OSError:
                    continue
                n += fields[0] == "Z" and fields[1] == str(self.pid)
        return n


@pytest.fixture
def container(inst):
    d = os.path.join(inst.config, "apps.d")
    with open(os.path.join(d, "sleeper.app"), "w") as f:
        f.write("[App]\nExec=/bin/sleep 600\nWorkingDirectory=/usr/share\nAppDirectory=/srv\n")
    c = Container(inst)
    c.start()
    yield c
    if c.outer.poll() is None:
        os.kill(c.pid, signal.SIGTERM)
        c.outer.wait(30)


def test_pid_1_reaps_what_it_inherits(container):
    status = json.loads(container.inside("/build/sbxsv", "status", "--json").stdout)
    assert status["supervisor"]["pid"] == 1
    # --fork: the program is a child of ours outside, so that its own orphans go to pid 1 of the container
    r = container.inside(harness.PYTHON, "/run/orphans.py", "10000")
    assert r.returncode == 0, r
    assert open(os.path.join(container.shared, "done")).read() == "10000"
    harness.wait_for(lambda: container.zombies() == 0, 60, "no zombie left")
    # and it still does its own work
    assert container.inside("/build/sbxsv", "restart", "sleeper").returncode == 0
    assert json.loads(container.inside("/build/sbxsv", "status", "sleeper", "--json").stdout)["state"] == "running"


def test_term_ends_the_container(container):
    assert container.inside("/build/sbxsv", "start", "sleeper").returncode == 0
    stray = subprocess.Popen(["nsenter", "-t", str(container.pid), "-m", "-p", "-r", "-w", "/bin/sh", "-c",
                              "trap '' TERM; sleep 600 & sleep 600"], env=container.env, stdin=subprocess.DEVNULL)
    everybody = harness.wait_for(lambda: [p for p in harness.children(container.outer.pid)] if container.pid else None)
    os.kill(container.pid, signal.SIGTERM)
    assert container.outer.wait(30) == 0
    stray.wait(30)  # the namespace went with pid 1, whatever was in it
    assert not [p for p in everybody if harness.proc_start(p) is not None]


def test_the_exit_code_when_it_cannot_start(inst):
    with open(os.path.join(inst.base, "afile"), "w"):
        pass
    c = Container(inst)
    c.env["SBXSV_STATE_DIR"] = "/cfg/../etc/passwd"
    r = subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "--propagation", "private", "--kill-child", c.entry, c.root,
                        "/build/sbxsvd", "--foreground"], env=c.env, capture_output=True, text=True, timeout=60,
                       stdin=subprocess.DEVNULL)
    assert r.returncode == 1 and "passwd" in r.stderr, r


def test_sbxsv_down_ends_it_too(container):
    assert container.inside("/build/sbxsv", "down").returncode in (0, -9, 137)  # it may go with the namespace
    assert container.outer.wait(30) == 0
