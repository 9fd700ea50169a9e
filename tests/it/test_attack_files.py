"""Attacks on what a running jail sees: what the host changes after the launch, and what it kept in odd places."""
import os
import resource
import shutil
import socket
import subprocess

import harness
import jailbox
import pytest


def get(port, path, p):
    return harness.http_get(port, f"{path}?p={p}").text


@pytest.fixture
def open_app(inst):
    """An app in ReadMode=open, and the box that makes secrets in its user's home."""
    box = jailbox.Box(inst, "open", alone=True)
    port = harness.free_port()

    def start(**kw):
        inst.server_unit("nosy", port, body="[Sandbox]\nReadMode=open\n", **kw)
        inst.up()
        inst.wait_state("nosy", "running")
        return port
    yield box, start
    box.close()


def replace(inst, path, text):
    """As editors and credential helpers save: a new file, renamed over the old one."""
    inst.user_file(path + ".new", text, 0o600)
    os.rename(path + ".new", path)


def test_secrets_that_come_after_the_launch(inst, open_app):
    box, start = open_app
    netrc = box.secret(".netrc", "old\n")
    key = box.secret(".ssh/id_ed25519", "old\n")
    port = start()
    assert "PermissionError" in get(port, "/read", netrc)

    replace(inst, netrc, "fresh\n")  # takes a mere cover away with the file below it
    aws = box.secret(".aws/credentials", "fresh\n")  # was not there to be covered
    away = os.path.join(box.home, ".ssh.away")
    os.rename(os.path.dirname(key), away)  # takes a mere cover along
    box.made.append(away)
    key = box.secret(".ssh/id_ed25519", "fresh\n")

    for path in (netrc, aws, key, os.path.join(away, "id_ed25519")):
        assert "Error" in get(port, "/read", path), path
    names = get(port, "/ls", box.home).split()
    assert ".aws" not in names and ".ssh.away" not in names and ".netrc" in names


def test_what_is_beside_a_secret_stays_readable(inst, open_app):
    box, start = open_app
    box.secret(".netrc")
    plain = box.secret("attack-plain.txt", "plain\n")
    deep = box.secret("attack-dir/sub/deep.txt", "deep\n")
    link = os.path.join(box.home, "attack-link")
    os.symlink("attack-dir/sub", link)
    box.made.append(link)
    port = start()
    assert get(port, "/read", plain) == "plain\n"
    assert get(port, "/read", deep) == "deep\n"
    assert get(port, "/read", link + "/deep.txt") == "deep\n"
    for path in (plain, deep, box.home + "/attack-new"):
        assert "Read-only file system" in get(port, "/write", path) or "PermissionError" in get(port, "/write", path)


def test_the_way_to_a_secret_is_renamed(inst, open_app):
    box, start = open_app
    path = box.secret(".config/gh/hosts.yml", "old\n")
    port = start()
    config, away = os.path.join(box.home, ".config"), os.path.join(box.home, ".config.away")
    os.rename(config, away)
    try:
        inst._own_dir(config, 0o700)
        inst._own_dir(os.path.dirname(path), 0o700)
        inst.user_file(path, "fresh\n")
        assert "Error" in get(port, "/read", path)
        assert "Error" in get(port, "/read", away + "/gh/hosts.yml")
    finally:
        shutil.rmtree(config, ignore_errors=True)
        os.rename(away, config)


def test_a_read_grant_above_another_apps_directory(inst, write_unit):
    """The same for Read= above the directory of another app, in strict."""
    top = inst.app_dir("tree")
    victim = os.path.join(top, "victim")
    inst._own_dir(victim)
    inst.user_file(f"{victim}/data", "old\n")
    write_unit("victim", f"[App]\nShell=exec sleep 1000\nWorkingDirectory={victim}\nEnabled=no\n")
    inst.user_file(f"{top}/plain", "plain\n")
    port = harness.free_port()
    inst.server_unit("nosy", port, body=f"[Sandbox]\nRead={top}\n")
    inst.up()
    inst.wait_state("nosy", "running")
    assert get(port, "/read", f"{top}/plain") == "plain\n"
    assert "Error" in get(port, "/read", f"{victim}/data")
    os.rename(victim, victim + ".away")
    inst._own_dir(victim)
    inst.user_file(f"{victim}/data", "fresh\n")
    assert "Error" in get(port, "/read", f"{victim}/data")
    assert "Error" in get(port, "/read", f"{victim}.away/data")


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_CORE)[1] == 0, reason="this shell may not raise the limit to 1")
@pytest.mark.parametrize("enforce", ["required", "off"])
def test_no_core_dump_handler(inst, write_unit, enforce):
    """With a pipe as core_pattern a limit of 0 is no limit: the host would run its handler as root (core(5))."""
    d = inst.app_dir("core", {"core.py": """
import ctypes, resource
libc = ctypes.CDLL(None, use_errno=True)
zero = (ctypes.c_ulong * 2)(0, 0)
old = (ctypes.c_ulong * 2)()
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
libc.prlimit64(0, 4, zero, None)
libc.prlimit64(0, 4, zero, old)
print("limit", *resource.getrlimit(resource.RLIMIT_CORE), flush=True)
"""})
    write_unit("core", f"[App]\nExec={harness.PYTHON} core.py\nWorkingDirectory={d}\n[Restart]\nPolicy=no\n"
                       f"[Sandbox]\nEnforce={enforce}\n")
    inst.up()
    inst.wait_state("core", "stopped", "failed")
    assert "limit 1 1\n" in inst.log("core")


def test_core_dumps_that_are_wanted(inst, write_unit):
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY:
        pytest.skip("this shell may not raise the limit")
    d = inst.app_dir("core")
    write_unit("core", f"[App]\nShell=ulimit -c; ulimit -c 8; ulimit -c\nWorkingDirectory={d}\n[Restart]\nPolicy=no\n"
                       "[Limits]\nCore=64K\n")
    inst.up()
    inst.wait_state("core", "stopped", "failed")
    assert [line for line in inst.log("core").splitlines() if line.isdigit()] == ["128", "8"]


@pytest.mark.root
def test_a_socket_in_a_system_directory(inst):
    """A server below /usr/local with its socket there, open to everybody: not in the app's reach."""
    path = f"/usr/local/sbxsv-attack-{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
        try:
            os.chmod(path, 0o777)
            s.listen(1)
            port = harness.free_port()
            inst.server_unit("nosy", port)
            inst.up()
            inst.wait_state("nosy", "running")
            assert "PermissionError" in get(port, "/unix", path)
        finally:
            os.unlink(path)


def test_an_app_that_comes_later(inst, open_app, write_unit):
    """What a jail hides is settled at its launch; status says when that is not enough any more."""
    box, start = open_app
    port = start()
    late = inst.app_dir("late", {"data": "secret\n"})
    assert not inst.peek("nosy")["restart_needed"]
    write_unit("late", f"[App]\nShell=exec sleep 1000\nWorkingDirectory={late}\n")
    inst.ok("reload")
    inst.wait_state("late", "running")
    assert inst.peek("nosy")["restart_needed"]
    assert "restart needed" in inst.ok("status")
    inst.ok("restart", "nosy")
    inst.wait_state("nosy", "running")
    assert not inst.peek("nosy")["restart_needed"]
    assert "Error" in get(port, "/read", f"{late}/data")


@pytest.mark.root
@pytest.mark.parametrize("mode", ["strict", "open"])
def test_a_second_proc_of_the_host(inst, mode):
    """A chroot with its own /proc in sight of an app does not show it the processes of the host."""
    box = jailbox.Box(inst, mode)
    top = os.path.join(inst.base, "chroot")
    for d in ("proc", "a mq", "etc"):
        os.makedirs(os.path.join(top, d))
    subprocess.run(["mount", "-t", "proc", "proc", f"{top}/proc"], check=True)
    subprocess.run(["mount", "-t", "mqueue", "mqueue", f"{top}/a mq"], check=True)
    try:
        options = ["--read", top] if mode == "strict" else []
        results = box.attack("list", f"{top}/etc", "/", "list", f"{top}/proc", "/", "read", f"{top}/proc/1/cmdline", "/",
                             "list", f"{top}/a mq", options=options)
        assert results[0] == "ok" and all(r in jailbox.REFUSED for r in results[1:]), results
    finally:
        subprocess.run(["umount", f"{top}/proc", f"{top}/a mq"], check=True)
        box.close()


@pytest.mark.root
@pytest.mark.parametrize("mode", ["strict", "open"])
def test_a_home_directory_that_is_mounted_twice(inst, mode):
    """What is hidden is hidden under its other name too; what lies beside it is read as ever, and login files are not written."""
    box = jailbox.Box(inst, mode)
    secret, netrc = box.secret(".ssh/id_rsa"), box.secret("photos/netrc")
    box.secret(".config/autostart/x.desktop")
    again, keys = (os.path.join(inst.base, d) for d in ("again", "keys"))
    for d in (again, keys):
        os.makedirs(d)
    subprocess.run(["mount", "--bind", box.home, again], check=True)
    subprocess.run(["mount", "--bind", os.path.dirname(secret), keys], check=True)
    try:
        options = ["--read", f"{again}/photos"] if mode == "strict" else []
        results = box.attack("read", netrc.replace(box.home, again), "/", "read", secret.replace(box.home, again), "/",
                             "read", f"{keys}/id_rsa", "/", "list", keys, options=options)
        assert results[0] == "ok" and all(r in jailbox.REFUSED for r in results[1:]), results
        for option, path in (("--read", again), ("--read", f"{again}/.ssh"), ("--read", keys), ("--write", f"{again}/.config/autostart")):
            r = box.run(box.attacker, "list", "/", options=[option, path])
            assert r.returncode == 125 and " is refused: " in r.stderr, (path, r.stderr)
    finally:
        subprocess.run(["umount", again, keys], check=True)
        box.close()
