"""Processes of a jail: what they inherit, how they end, and that nothing of them stays."""
import fcntl
import json
import os
import pty
import signal
import subprocess
import termios
import time

import harness
import jailbox
import pytest


@pytest.fixture(params=jailbox.MODES)
def box(request, inst):
    b = jailbox.Box(inst, request.param)
    yield b
    b.close()


def test_only_the_app_and_its_init(box):
    out = box.run("/bin/ls", "/proc").stdout.split()
    assert sorted(int(p) for p in out if p.isdigit()) == [1, 2]


def test_environment_is_built(box):
    out = box.run("/usr/bin/env", options=["--env", "ONE=1", "--pass-env", "TWO"],
                  env={"ANTHROPIC_API_KEY": "sk-x", "SSH_AUTH_SOCK": "/x", "TWO": "2", "LD_PRELOAD": ""}).stdout
    env = dict(line.split("=", 1) for line in out.splitlines())
    assert "ANTHROPIC_API_KEY" not in env and "SSH_AUTH_SOCK" not in env and "LD_PRELOAD" not in env
    assert env["ONE"] == "1" and env["TWO"] == "2" and env["SBXSV_APP"] == "exec" and env["TMPDIR"] == "/tmp"


def test_left_out_variables_are_counted(box):
    argv = [w for w in box.argv([], ["/bin/true"]) if w != "--quiet"]
    r = subprocess.run(argv, env=dict(box.inst.env, A_SECRET="x"), cwd=box.cwd, capture_output=True, text=True,
                       stdin=subprocess.DEVNULL)
    assert r.returncode == 0 and "left out" in r.stderr


def test_no_descriptor_is_inherited(box):
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert box.attack("fds", pass_fds=[fd]) == "0"
    finally:
        os.close(fd)


@pytest.mark.parametrize("script, code", [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137),
                                          ("kill -15 $$", 143)])
def test_exit_status(box, script, code):
    assert box.run("/bin/sh", "-c", script).returncode == code


def test_no_such_program(box):
    r = box.run("/usr/bin/nope-nope")
    assert r.returncode == 125 and "nope-nope" in r.stderr


def test_signals_are_passed_on(box):
    p = box.inst.spawn(box.argv([], ["/bin/sh", "-c", "trap 'echo got; exit 3' TERM; echo ready; while :; do sleep 0.05; done"]),
                       stdout=subprocess.PIPE, cwd=box.cwd, text=True)
    assert p.stdout.readline() == "ready\n"
    p.send_signal(signal.SIGTERM)
    assert p.stdout.read() == "got\n"
    assert p.wait(30) == 3


def test_on_a_terminal(box):
    """The command has the terminal and its keys: ^C ends it, not us."""
    master, tty = pty.openpty()
    try:
        p = subprocess.Popen(box.argv([], ["/bin/sh", "-c", "test -t 0 && echo ready; exec sleep 1000"]), stdin=tty, stdout=tty,
                             stderr=tty, cwd=box.cwd, env=box.inst.env, start_new_session=True,
                             preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        assert os.read(master, 100).split() == [b"ready"]
        os.write(master, b"\x03")
        assert p.wait(30) == 128 + signal.SIGINT
    finally:
        os.close(master)
        os.close(tty)


def grows(path):
    before = os.path.getsize(path)
    time.sleep(0.3)
    return os.path.getsize(path) > before


def test_daemons_die_with_the_app(box):
    d = box.inst.app_dir("data")
    path = f"{d}/ticks"
    r = box.run("/bin/sh", "-c", f"{box.attacker} daemon {path}; while [ ! -s {path} ]; do sleep 0.02; done",
                options=["--write", d])
    assert r.returncode == 0, r.stderr
    assert not grows(path)


@pytest.mark.parametrize("who", ["sbxsv", "init"])
def test_kill_9_leaves_nothing(box, who):
    d = box.inst.app_dir("data")
    path = f"{d}/ticks"
    p = box.inst.spawn(box.argv(["--write", d], [box.attacker, "daemon", path, "/", "sleep", "60000"]), cwd=box.cwd)
    harness.wait_for(lambda: os.path.exists(path) and os.path.getsize(path), what="the daemon")
    inside = harness.children(p.pid)
    assert len(inside) >= 3  # init, attacker, daemon
    victim = p.pid if who == "sbxsv" else min(inside)
    os.kill(victim, signal.SIGKILL)
    starts = {q: harness.proc_start(q) for q in inside}
    harness.wait_for(lambda: not any(s and harness.proc_start(q) == s for q, s in starts.items()), timeout=20,
                     what="the end of everything inside")
    assert p.wait(30) in (-9, 137)
    assert not grows(path)


def test_kill_9_in_the_middle_of_a_launch(box):
    """At whatever instant the parent dies, no half-built jail stays."""
    for delay in range(0, 20):
        p = subprocess.Popen(box.argv([], [box.attacker, "sleep", "60000"]), env=box.inst.env, cwd=box.cwd,
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay / 1000)
        p.kill()
        p.wait()
    harness.wait_for(lambda: not harness.pids_with_mark(box.inst.mark) and not jailed(box), timeout=20,
                     what="the end of all launches")


def jailed(box):
    found = []
    for pid in harness.all_pids():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if box.attacker.encode() in f.read():
                    found.append(pid)
        except OSError:
            pass
    return found


def test_orphans_are_reaped(box):
    r = box.run("/bin/sh", "-c", "for i in 1 2 3 4 5; do (sleep 0.01 &) ; done; sleep 0.3; ls /proc | grep -c '^[0-9]'")
    assert int(r.stdout) <= 5  # init, sh, sh of the pipe, ls, grep: no zombie


def jailrun(inst, *words, timeout=60, before=()):
    user = ["--uid", str(inst.user.pw_uid), "--gid", str(inst.user.pw_gid)] if harness.ROOT else []
    return subprocess.run([*before, harness.program("jailrun"), "--init", harness.program("sbxsv-init"), *user, *words],
                          capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)


def test_every_failed_step_is_named(inst):
    r = jailrun(inst, "--workdir", "/nope", "--", "/bin/true")
    assert r.returncode == 125 and "cannot enter /nope (step workdir): No such file" in r.stderr
    r = jailrun(inst, "--read", "/var/nope", "--", "/bin/true")
    assert r.returncode == 125 and "cannot reach /var/nope (step mounts)" in r.stderr
    r = jailrun(inst, "--", "/bin/nope")
    assert r.returncode == 125 and "cannot execute /bin/nope inside the jail" in r.stderr


def test_a_symlink_put_there_after_the_plan(inst):
    d = inst.app_dir("swap")
    os.symlink("/etc", f"{d}/link")
    r = jailrun(inst, "--read", f"{d}/link", "--", "/bin/true")
    assert r.returncode == 125 and "symbolic link" in r.stderr


def test_a_grant_below_a_hidden_place(inst):
    d = inst.app_dir("tree")
    for sub in ("hidden", "hidden/deep", "hidden/deep/granted"):
        inst._own_dir(f"{d}/{sub}")
    inst.user_file(f"{d}/hidden/other", "x")
    inst.user_file(f"{d}/hidden/deep/granted/file", "text")
    r = jailrun(inst, "--read", d, "--hide", f"{d}/hidden", "--read", f"{d}/hidden/deep/granted", "--", "/bin/sh", "-c",
                f"cat {d}/hidden/deep/granted/file; ls {d}/hidden {d}/hidden/deep; touch {d}/hidden/x")
    assert r.stdout.split() == ["text" + f"{d}/hidden:", "deep", f"{d}/hidden/deep:", "granted"]
    assert "Read-only file system" in r.stderr or "Permission denied" in r.stderr


def test_a_data_directory_is_made(inst):
    d = inst.app_dir("data")
    r = jailrun(inst, "--create", f"{d}/a/b", "--", "/bin/sh", "-c", f"echo x > {d}/a/b/f")
    assert r.returncode == 0, r.stderr
    st = os.stat(f"{d}/a/b")
    assert st.st_mode & 0o777 == 0o700 and st.st_uid == inst.user.pw_uid
    os.symlink("/tmp", f"{d}/l")
    r = jailrun(inst, "--create", f"{d}/l/b", "--", "/bin/true")
    assert r.returncode == 125


def test_without_namespaces_the_rest_is_kept(inst):
    """Enforce=off: own session, subreaper, no more privileges, and the children end with the app."""
    d = inst.app_dir("data")
    r = jailrun(inst, "--none", "--", "/bin/sh", "-c",
                f"(setsid {harness.program('attacker')} daemon {d}/ticks); while [ ! -s {d}/ticks ]; do sleep 0.02; done; "
                "grep -E 'NoNewPrivs|Seccomp:|CapEff' /proc/self/status")
    assert r.returncode == 0, r.stderr
    assert r.stdout.split() == ["ok", "CapEff:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2"]
    assert not grows(f"{d}/ticks")


def test_many_launches_leak_nothing(inst):
    r = jailrun(inst, "--repeat", "100", "--egress", "--loopback", "5432", "--", "/bin/sh", "-c", "exit 0")
    assert r.returncode == 0, r.stderr


@pytest.mark.root
def test_a_proc_with_covered_parts(inst):
    """As in a container: the kernel refuses a fresh /proc. The old one would show the processes of the host."""
    before = ["unshare", "-m", "/bin/sh", "-c", 'mount -t tmpfs none /proc/irq && exec "$@"', "sh"]
    r = jailrun(inst, "--", "/bin/true", before=before)
    assert r.returncode == 125 and "cannot mount a fresh /proc" in r.stderr and "best-effort" in r.stderr
    report = os.path.join(inst.base, "report")
    r = jailrun(inst, "--enforce", "best-effort", "--report", report, "--", "/bin/ls", "/proc", before=before)
    assert r.returncode != 0 and r.stdout == ""  # there is nothing to list
    with open(report) as f:
        missing = json.load(f)["missing"]
    assert len(missing) == 1 and "cannot mount a fresh /proc" in missing[0]


@pytest.mark.root
@pytest.mark.parametrize("enforce", ["required", "best-effort"])
def test_no_user_namespaces(inst, enforce):
    before = ["unshare", "-Ur", "/bin/sh", "-c", 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', "sh"]
    r = subprocess.run([*before, harness.program("jailrun"), "--init", harness.program("sbxsv-init"), "--uid", "1", "--enforce",
                        enforce, "--", "/bin/true"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 125 and "user namespaces are switched off" in r.stderr
    assert ("Enforce=off" in r.stderr) == (enforce == "best-effort")


def test_nested_sandbox(inst):
    """NestedSandbox=yes: namespaces and mounts of its own, and still no way to uncover what the jail hides."""
    d = inst.app_dir("tree")
    box_dir = inst._own_dir(f"{d}/hidden")
    inst.user_file(f"{box_dir}/f", "secret")
    script = (f"mount -t tmpfs none /tmp && echo mounted; umount {d}/hidden; umount -l {d}/hidden; umount /proc/sys; "
              f"mount -o remount,bind,rw {d}; cat {d}/hidden/f; touch {d}/x; ls /..")
    r = jailrun(inst, "--nested", "--read", d, "--hide", f"{d}/hidden", "--", "/usr/bin/unshare", "-Urm", "/bin/sh", "-c", script)
    assert "mounted" in r.stdout and "secret" not in r.stdout and "boot" not in r.stdout.split(), r.stdout + r.stderr
    assert not os.path.exists(f"{d}/x")
    r = jailrun(inst, "--", "/usr/bin/unshare", "-Ur", "/bin/true")
    assert r.returncode != 0
