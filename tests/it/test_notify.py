"""Type=notify, Type=fd and WatchdogSec=: what an app says of itself, and who is not listened to."""
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from harness import PYTHON, ROOT, proc_start, wait_for

GENEROUS = 60  # guards against hanging, not a limit of the product

# A program that knows systemd: the C library's own sd_notify(3), which is in every jail as part of /usr.
LIBSYSTEMD = """
import ctypes, os, signal, sys, time
lib = ctypes.CDLL("libsystemd.so.0")
def notify(text):
    assert lib.sd_notify(0, text.encode()) > 0, text
"""


def run(inst, name, script, ready="Type=notify", more="", up=True, files=None):
    d = inst.app_dir(name, {"app.py": script, **(files or {})})
    inst.write_unit(name, f"[App]\nExec={PYTHON} -u app.py\nWorkingDirectory={d}\n[Ready]\n{ready}\n{more}")
    if up:
        inst.foreground()
    return d


def touch(inst, d, name):
    inst.user_file(os.path.join(d, name), "")


WAITS = "def wait(name):\n    while not os.path.exists(name): time.sleep(0.02)\n"


# --- notify ---

def test_ready_status_reloading_and_stopping_of_a_systemd_program(inst):
    d = run(inst, "svc", LIBSYSTEMD + WAITS + """
notify("STATUS=reading \\x1b[31mthe index")
wait("go")
notify("READY=1\\nSTATUS=serving 3 users")
wait("reload")
notify("RELOADING=1\\nMONOTONIC_USEC=1")
wait("reloaded")
notify("READY=1")
wait("stop")
notify("STOPPING=1\\nSTATUS=")
time.sleep(1000)
""")
    wait_for(lambda: inst.peek("svc").get("notify", {}).get("status"), GENEROUS)
    s = inst.peek("svc")
    assert s["state"] == "starting" and s["notify"]["status"] == "reading \\x1b[31mthe index"
    touch(inst, d, "go")
    s = inst.wait_state("svc", "running")
    assert s["notify"] == {"status": "serving 3 users", "reloading": False, "stopping": False, "ignored": 0}
    assert "serving 3 users" in inst.sbxsv("status", "svc")[1]
    ready = inst.events("svc", "ready")
    assert len(ready) == 1 and ready[0]["message"].startswith("READY=1 after ") and ready[0]["launch"] == 1
    touch(inst, d, "reload")
    wait_for(lambda: inst.peek("svc")["notify"]["reloading"], GENEROUS)
    touch(inst, d, "reloaded")
    wait_for(lambda: not inst.peek("svc")["notify"]["reloading"], GENEROUS)
    touch(inst, d, "stop")
    wait_for(lambda: inst.peek("svc")["notify"]["stopping"], GENEROUS)
    assert "status" not in inst.peek("svc")["notify"] and inst.peek("svc")["state"] == "running"
    assert len(inst.events("svc", "ready")) == 1


def test_a_shell_script_says_it_through_short_lived_senders(inst):
    """Each message comes from a process that is gone before anybody could look it up."""
    d = inst.app_dir("sh", {"app.sh": """
socat - "UNIX-SENDTO:$NOTIFY_SOCKET" <<X
STATUS=from socat
X
systemd-notify --status="from systemd-notify"
/usr/bin/python3 -c 'import os, socket
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
os._exit(0)'
exec sleep 1000
"""})
    inst.write_unit("sh", f"[App]\nExec=/bin/sh app.sh\nWorkingDirectory={d}\n[Ready]\nType=notify\n")
    inst.foreground()
    s = inst.wait_state("sh", "running")
    assert s["notify"]["status"] == "from systemd-notify" and s["notify"]["ignored"] == 0
    assert s["launches"] == 1


def test_a_program_that_uses_the_systemd_module_of_python(inst):
    if subprocess.run([PYTHON, "-c", "import systemd.daemon"], stderr=subprocess.DEVNULL, timeout=GENEROUS).returncode:
        pytest.skip("no python3-systemd")
    d = run(inst, "svc", """
import os, time
from systemd import daemon
assert daemon.notify("STATUS=warming up")
while not os.path.exists("go"): time.sleep(0.02)
assert daemon.notify("READY=1\\nSTATUS=open")
while True:
    daemon.notify("WATCHDOG=1")
    time.sleep(0.3)
""", more="[Health]\nWatchdogSec=2s\n")
    wait_for(lambda: inst.peek("svc").get("notify", {}).get("status") == "warming up", GENEROUS)
    assert inst.peek("svc")["state"] == "starting"
    touch(inst, d, "go")
    s = inst.wait_state("svc", "running")
    assert s["notify"]["status"] == "open" and s["notify"]["ignored"] == 0
    time.sleep(3)
    assert inst.peek("svc")["launches"] == 1 and inst.peek("svc")["state"] == "running"


HOST_SENDER = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.sendto(sys.argv[2].encode(), sys.argv[1])
os._exit(0)
"""


def from_host(path, text="READY=1\nSTATUS=I am another", stay=False):
    """Sends from outside of the jail; without `stay` by a process that is gone at once."""
    if stay:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.sendto(text.encode(), path)
    else:
        subprocess.run([sys.executable, "-c", HOST_SENDER, path, text], check=True, timeout=GENEROUS)


def test_the_host_is_not_listened_to(inst):
    d = run(inst, "svc", LIBSYSTEMD + WAITS + "wait('go')\nnotify('READY=1')\ntime.sleep(1000)\n")
    s = inst.wait_state("svc", "starting")
    path = f"/proc/{s['pid']}/root/dev/sbxsv-notify"
    wait_for(lambda: os.path.exists(path), GENEROUS)
    for i in range(10):
        from_host(path, stay=i % 2 == 0)
    wait_for(lambda: inst.peek("svc")["notify"]["ignored"] == 10, GENEROUS)
    s = inst.peek("svc")
    assert s["state"] == "starting" and "status" not in s["notify"]
    touch(inst, d, "go")
    s = inst.wait_state("svc", "running")
    assert "status" not in s["notify"]


def test_another_app_cannot_reach_it_and_is_not_listened_to(inst):
    """Two apps of the same user: each has a socket of its own at the same path, and its word counts for itself alone."""
    for name in ("good", "bad"):
        d = inst.app_dir(name, {"app.py": LIBSYSTEMD + WAITS + f"""
notify("STATUS=I am {name}")
if "{name}" == "bad":
    notify("READY=1")
    for n in range(1, 40):
        for p in (f"/proc/{{n}}/root/dev/sbxsv-notify",):
            if n == os.getpid(): continue
            try:
                import socket
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1\\nSTATUS=hijacked", p)
            except OSError: pass
    open("tried", "w").close()
time.sleep(1000)
"""})
        inst.write_unit(name, f"[App]\nExec={PYTHON} -u app.py\nWorkingDirectory={d}\n[Ready]\nType=notify\n")
    inst.foreground()
    inst.wait_state("bad", "running")
    wait_for(lambda: os.path.exists(os.path.join(d.replace("/good", "/bad"), "tried")), GENEROUS)
    wait_for(lambda: inst.peek("good").get("notify", {}).get("status"), GENEROUS)
    s = inst.peek("good")
    assert s["state"] == "starting" and s["notify"]["status"] == "I am good" and s["notify"]["ignored"] == 0


def test_main_pid_and_nonsense_change_nothing(inst):
    run(inst, "svc", LIBSYSTEMD + """
import socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
to = os.environ["NOTIFY_SOCKET"]
for m in (b"", b"READY", b"READY=1\\0x", b"=1", b"\\xff" * 100, b"READY=1\\n" + b"X" * 100000):
    s.sendto(m, to)
r, w = os.pipe()
import array
s.sendmsg([b"FDSTORE=1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [r, w, 0, 1]))], 0, to)
s.sendto(b"MAINPID=1\\nERRNO=2\\nSTATUS=" + b"a" * 3000 + b"\\nREADY=1", to)
time.sleep(1000)
""")
    s = inst.wait_state("svc", "running")
    assert s["notify"]["ignored"] == 6 and s["notify"]["status"] == "a" * 512
    first = s["pid"]
    time.sleep(0.2)
    assert inst.peek("svc")["pid"] == first and inst.peek("svc")["state"] == "running"


def test_a_flood_is_read_to_its_end_and_hurts_nobody(inst):
    run(inst, "svc", LIBSYSTEMD + """
for i in range(20000): notify(f"STATUS=message {i}")
notify("READY=1")
time.sleep(1000)
""", up=False)
    inst.foreground()
    sup = inst.procs[-1]
    time.sleep(0.3)
    os.kill(sup.pid, signal.SIGSTOP)  # nobody reads for a while: senders wait, nothing is lost
    time.sleep(1)
    os.kill(sup.pid, signal.SIGCONT)
    s = inst.wait_state("svc", "running")
    assert s["notify"]["status"] == "message 19999" and s["launches"] == 1
    assert inst.sbxsv("stop", "svc")[0] == 0


def test_without_a_word_it_is_late_and_the_reason_says_so(inst):
    run(inst, "svc", "import time\ntime.sleep(1000)\n", ready="Type=notify\nTimeout=500ms", more="[Restart]\nPolicy=no\n")
    s = inst.wait_state("svc", "failed")
    assert "READY=1" in s["reason"] and "NOTIFY_SOCKET" in s["reason"]


def test_more_time_on_request(inst):
    run(inst, "svc", LIBSYSTEMD + """
notify("EXTEND_TIMEOUT_USEC=60000000")
time.sleep(2.5)
notify("READY=1")
time.sleep(1000)
""", ready="Type=notify\nTimeout=2s", more="[Restart]\nPolicy=no\n")
    assert inst.wait_state("svc", "running")["launches"] == 1


def test_a_word_of_the_last_process_does_not_make_the_next_one_ready(inst):
    d = run(inst, "svc", LIBSYSTEMD + WAITS + """
first = not os.path.exists("second")
open("second", "w").close()
if first:
    notify("READY=1\\nSTATUS=first")
    wait("die")
    sys.exit(1)
time.sleep(1000)
""")
    inst.wait_state("svc", "running")
    touch(inst, d, "die")
    wait_for(lambda: inst.peek("svc")["launches"] == 2 and inst.peek("svc")["state"] == "starting"
             and "pid" in inst.peek("svc"), GENEROUS)
    assert "status" not in inst.peek("svc")["notify"]
    assert len(inst.events("svc", "ready")) == 1


def test_where_unix_sockets_are_refused_it_does_not_start(inst):
    for name, ready, more in (("a", "Type=notify", ""), ("b", "Type=exec", "[Health]\nWatchdogSec=5s\n")):
        run(inst, name, "pass\n", ready=ready, more="[Sandbox]\nReadMode=open\nEnforce=best-effort\n" + more, up=False)
    inst.foreground()
    for name, key in (("a", "Type=notify"), ("b", "WatchdogSec=")):
        s = inst.wait_state(name, "failed")
        assert key in s["reason"] and "ReadMode=open" in s["reason"], s["reason"]


def test_without_a_jail_it_is_an_error_of_the_unit(inst):
    run(inst, "svc", "pass\n", more="[Sandbox]\nEnforce=off\n", up=False)
    code, out, err = inst.sbxsv("check")
    assert code == 1 and "Type=notify needs a jail" in out + err


# --- the watchdog ---

def test_the_watchdog_replaces_a_program_that_hangs(inst):
    run(inst, "svc", LIBSYSTEMD + """
assert os.environ["WATCHDOG_USEC"] == "2000000"
usec = ctypes.c_uint64()
assert lib.sd_watchdog_enabled(0, ctypes.byref(usec)) > 0 and usec.value == 2000000
hang = not os.path.exists("again")
open("again", "w").close()
notify("READY=1")
while True:
    if not hang: notify("WATCHDOG=1")
    time.sleep(0.3)
""", more="[Health]\nWatchdogSec=2s\n")
    wait_for(lambda: inst.peek("svc").get("launches") == 2, GENEROUS)
    s = inst.wait_state("svc", "running")
    assert s["notify"]["watchdog_ms"] == 2000
    stops = [e for e in inst.events("svc", "state") if e["state"] == "stopping"]
    assert len(stops) == 1 and "WATCHDOG=1" in stops[0]["reason"] and "2000 ms" in stops[0]["reason"]
    time.sleep(5)
    assert inst.peek("svc")["launches"] == 2 and inst.peek("svc")["state"] == "running"


def test_a_program_that_says_it_hangs(inst):
    run(inst, "svc", LIBSYSTEMD + """
trigger = not os.path.exists("again")
open("again", "w").close()
notify("READY=1")
time.sleep(0.2)
if trigger: notify("WATCHDOG=trigger")
while True:
    notify("WATCHDOG=1"); time.sleep(0.5)
""", more="[Health]\nWatchdogSec=60s\n")
    wait_for(lambda: inst.peek("svc").get("launches") == 2, GENEROUS)
    inst.wait_state("svc", "running")


def test_the_watchdog_works_beside_another_readiness(inst, free_port):
    port = free_port()
    run(inst, "svc", LIBSYSTEMD + f"""
import socket
s = socket.socket(); s.bind(("127.0.0.1", {port})); s.listen()
while True:
    notify("WATCHDOG=1"); time.sleep(0.2)
""", ready="Type=listen", more=f"[Health]\nWatchdogSec=3s\n[Network]\nListen={port}\n")
    inst.wait_state("svc", "running")
    time.sleep(4)
    assert inst.peek("svc")["launches"] == 1


def test_a_stopped_supervisor_bites_nobody(inst):
    """SIGSTOP for longer than WatchdogSec=: the app went on all the time, and is not to blame."""
    run(inst, "svc", LIBSYSTEMD + "notify('READY=1')\nwhile True:\n    notify('WATCHDOG=1'); time.sleep(0.2)\n",
        more="[Health]\nWatchdogSec=3s\n")
    first = inst.wait_state("svc", "running")["pid"]
    sup = inst.procs[-1]
    os.kill(sup.pid, signal.SIGSTOP)
    time.sleep(5)
    os.kill(sup.pid, signal.SIGCONT)
    time.sleep(1)
    s = inst.peek("svc")
    assert s["pid"] == first and s["launches"] == 1 and s["state"] == "running"


# --- fd ---

@pytest.mark.parametrize("enforce", ["required", "off"])
def test_ready_by_a_line_on_descriptor_3(inst, enforce):
    d = run(inst, "svc", "import os, time\n" + WAITS + """
fd = int(os.environ["SBXSV_READY_FD"])
os.write(fd, b"almost")
wait("go")
os.write(fd, b"\\n")
os.close(fd)
open("fds", "w").write(" ".join(sorted(os.listdir("/proc/self/fd"))))
time.sleep(1000)
""", ready="Type=fd", more=f"[Sandbox]\nEnforce={enforce}\n")
    inst.wait_state("svc", "starting")
    time.sleep(0.5)
    assert inst.peek("svc")["state"] == "starting"
    touch(inst, d, "go")
    inst.wait_state("svc", "running")
    assert inst.events("svc", "ready")[0]["message"].startswith("a line on descriptor 3 after ")
    wait_for(lambda: os.path.exists(f"{d}/fds") and open(f"{d}/fds").read(), GENEROUS)
    assert open(f"{d}/fds").read().split()[:3] == ["0", "1", "2"]


def test_a_descriptor_closed_without_a_line_is_not_ready(inst):
    run(inst, "svc", "import os, time\nos.close(3)\ntime.sleep(1000)\n", ready="Type=fd\nTimeout=700ms",
        more="[Restart]\nPolicy=no\n")
    s = inst.wait_state("svc", "failed")
    assert "closed descriptor 3" in s["reason"]


def test_a_shell_line_makes_it_ready(inst):
    d = inst.app_dir("sh")
    inst.write_unit("sh", f"[App]\nShell=echo >&3; exec sleep 1000\nWorkingDirectory={d}\n[Ready]\nType=fd\n")
    inst.foreground()
    s = inst.wait_state("sh", "running")
    assert s["launches"] == 1 and proc_start(s["pid"])


def test_a_change_of_type_needs_a_new_process(inst):
    d = run(inst, "svc", "import os, time\nos.write(3, b'\\n')\ntime.sleep(1000)\n", ready="Type=fd")
    first = inst.wait_state("svc", "running")["pid"]
    inst.write_unit("svc", f"[App]\nExec={PYTHON} -c 'import time; time.sleep(1000)'\nWorkingDirectory={d}\n[Ready]\nType=exec\n")
    assert inst.sbxsv("reload")[0] == 0
    wait_for(lambda: inst.peek("svc")["state"] == "running" and inst.peek("svc")["pid"] != first, GENEROUS)


def test_it_works_for_every_kind_of_supervisor(inst):
    """As root the app runs as another user: the socket must be writable for that one."""
    run(inst, "svc", LIBSYSTEMD + "notify('READY=1')\ntime.sleep(1000)\n")
    s = inst.wait_state("svc", "running")
    assert (s["user"] != "root") and bool(ROOT) == (os.geteuid() == 0)
