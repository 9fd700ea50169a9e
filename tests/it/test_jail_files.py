"""What a jailed program sees of the disk, tried from the inside in every read mode."""
import os
import socket
import subprocess
import tempfile
import uuid

import harness
import jailbox
import pytest
from jailbox import REFUSED


@pytest.fixture(params=jailbox.MODES)
def box(request, inst):
    b = jailbox.Box(inst, request.param)
    yield b
    b.close()


@pytest.mark.parametrize("rel", [".ssh/id_ed25519", ".aws/credentials", ".netrc", ".config/gh/hosts.yml", ".npmrc"])
def test_secrets_of_the_user(box, rel):
    path = box.secret(rel)
    assert box.attack("read", path) in REFUSED
    assert box.attack("write", path) in REFUSED
    if "/" in rel:
        assert box.attack("list", os.path.dirname(path)) in REFUSED


def test_a_secret_below_a_granted_directory(box):
    path = box.secret(".ssh/id_ed25519")
    r = box.run(box.attacker, "read", path, options=["--read", os.path.dirname(path)])
    assert r.returncode == 125, r.stdout
    r = box.run(box.attacker, "read", path, options=["--read", box.home])
    assert r.returncode == 125, r.stdout


def test_data_of_another_app(box):
    inst = box.inst
    d = inst.app_dir("other", {"main.py": "", "data.db": "rows"})
    inst.write_unit("other", f"[App]\nExec=/usr/bin/python3 main.py\nWorkingDirectory={d}\n")
    assert box.attack("read", f"{d}/data.db") in REFUSED
    assert box.attack("list", d) in REFUSED
    # also when the directory above is granted
    above = os.path.dirname(d)
    assert box.attack("read", f"{d}/data.db", options=["--hide", d, "--read", above]) in REFUSED


def test_the_supervisors_own_files(box):
    inst = box.inst
    for d in (inst.state, inst.runtime):
        os.makedirs(d, 0o700, exist_ok=True)
    for path in (os.path.join(inst.apps, "x.app"), os.path.join(inst.config, "sbxsv.conf"),
                 os.path.join(inst.state, "events.jsonl")):
        with open(path, "a"):
            pass
        assert box.attack("read", path) in REFUSED, path
        assert box.attack("write", path) in REFUSED, path


@pytest.mark.parametrize("grant", [(), ("--unix-socket",), ("--read",), ("--write",)])
def test_the_control_socket(box, grant):
    inst = box.inst
    os.makedirs(inst.runtime, 0o755, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(inst.control)
        os.chmod(inst.control, 0o777)  # whatever the mode: the jail must not depend on it
        s.listen()
        s.settimeout(0)
        options = [grant[0], inst.control] if grant else []
        r = box.run(box.attacker, "connect_unix", inst.control, 1, options=options)
        assert r.returncode == 125 or r.stdout.strip() != "ok", r.stdout
        with pytest.raises(BlockingIOError):
            s.accept()


def test_writes_are_refused_not_swallowed(box):
    new = f"sbxsv-test-{uuid.uuid4().hex}"  # a name that nobody else leaves there
    for where in ("/usr", "/etc", box.home, box.cwd, "/", "/dev", "/var/tmp", "/opt", "/proc"):
        path = os.path.join(where, new)
        assert box.attack("write", path) in REFUSED, path
        assert not os.path.lexists(path)
    assert box.attack("mkdir", f"{box.home}/d") in REFUSED
    assert box.attack("chmod", box.attacker) in REFUSED
    assert box.attack("unlink", box.attacker) in REFUSED
    assert box.attack("write", f"/tmp/{new}") == "ok"
    assert not os.path.lexists(f"/tmp/{new}")


def test_a_granted_path_is_the_real_one(box):
    d = box.inst.app_dir("data", {"rows.db": "rows"})
    assert box.attack("read", f"{d}/rows.db", "/", "write", f"{d}/new", "/", "rename", f"{d}/new", f"{d}/newer",
                      options=["--write", d]) == ["ok", "ok", "ok"]
    assert open(f"{d}/newer").read() == "x"
    assert box.attack("read", f"{d}/rows.db", "/", "write", f"{d}/rows.db", options=["--read", d]) in (
        ["ok", "EROFS"], ["ok", "EACCES"])


def test_the_most_specific_path_wins(box):
    d = box.inst.app_dir("tree")
    for sub in ("ro", "hidden"):
        box.inst._own_dir(f"{d}/{sub}")
        box.inst.user_file(f"{d}/{sub}/f", "x")
    got = box.attack("write", f"{d}/f", "/", "read", f"{d}/ro/f", "/", "write", f"{d}/ro/f", "/", "read", f"{d}/hidden/f",
                     "/", "list", f"{d}/hidden",
                     options=["--write", d, "--read", f"{d}/ro", "--hide", f"{d}/hidden"])
    assert got[0] == "ok" and got[1] == "ok"
    assert all(g in REFUSED for g in got[2:]), got


def test_sockets_of_the_host(box):
    """Whatever folder they lie in, whatever the mode of the folder's grant, now or later."""
    d = box.inst.app_dir("project", {"file": "x"})
    sock, dgram = f"{d}/s.sock", f"{d}/d.sock"
    with socket.socket(socket.AF_UNIX) as s, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as g:
        s.bind(sock)
        s.listen()
        g.bind(dgram)
        g.settimeout(0)
        s.settimeout(0)
        for path in (sock, dgram):
            os.chmod(path, 0o777)
        for grant in (["--read", d], ["--write", d], []):
            assert box.attack("connect_unix", sock, 1, options=grant) != "ok"
            assert box.attack("connect_unix", dgram, 2, options=grant) != "ok"
            assert box.attack("redirect_pair", dgram, options=grant) != "ok"
        with pytest.raises(BlockingIOError):
            s.accept()
        with pytest.raises(BlockingIOError):
            g.recv(1)


def test_system_sockets(box):
    for path in ("/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private",
                 f"/run/user/{box.inst.user.pw_uid}/bus"):
        assert box.attack("connect_unix", path, 1) != "ok"


def test_abstract_sockets(box):
    name = f"@sbxsv-test-{os.getpid()}-{box.mode}"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("\0" + name[1:])
        s.listen()
        assert box.attack("connect_unix", name, 1) != "ok"


def test_fifos_of_the_host(box):
    d = box.inst.app_dir("project")
    fifo = f"{d}/fifo"
    os.mkfifo(fifo)
    os.chmod(fifo, 0o666)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert box.attack("fifo", fifo, options=["--read", d]) in REFUSED
        assert box.attack("fifo", fifo) in REFUSED
    finally:
        os.close(reader)


def test_there_is_no_way_up(box):
    """"/.." is "/": no piece of the old root may hang above the new one."""
    r = box.run("/bin/sh", "-c", "ls -a /.. && cd /.. && ls -a . && ls -a /proc/1/root/ ; ls -a /proc/self/root/..")
    assert "Permission denied" in r.stderr  # /proc/1/root
    if box.mode != "open":
        assert not {"root", "boot", "mnt", "run", "sys", "srv"} & set(r.stdout.split())
    mounts = box.run("/bin/cat", "/proc/self/mountinfo").stdout
    writable = [m for m in mounts.splitlines() if "rw," in m.split()[5] + ","]
    points = {m.split()[4] for m in writable}
    allowed = {"/tmp", "/dev/shm", "/dev/pts", "/proc", "/dev/null", "/dev/zero", "/dev/full", "/dev/random",
               "/dev/urandom", "/dev/tty"}
    assert points <= allowed, points - allowed


def test_devices(box):
    assert box.attack("mknod", "/tmp/dev") in REFUSED
    assert box.attack("read", "/dev/zero", "/", "read", "/dev/urandom", "/", "write", "/dev/null") == ["ok"] * 3
    for path in ("/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/fuse", "/dev/kvm", "/dev/net/tun"):
        assert box.attack("read", path) in REFUSED, path


def test_kernel_knobs(box):
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/net/ipv4/ip_forward",
                 "/proc/sys/user/max_user_namespaces", "/proc/sysrq-trigger", "/proc/sys/kernel/hostname",
                 "/sys/kernel/uevent_helper", "/sys/power/state"):
        assert box.attack("write", path) in REFUSED, path
    for path in ("/proc/kcore", "/proc/kmsg"):
        assert box.attack("read", path) in REFUSED, path


@pytest.mark.root
def test_submounts_are_read_only_too(box):
    d = box.inst.app_dir("tree")
    sub = f"{d}/sub"
    box.inst._own_dir(sub)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "none", sub], check=True)
    try:
        assert box.attack("write", f"{sub}/x", options=["--read", d]) in REFUSED
        assert box.attack("write", f"{sub}/x", options=["--write", d]) == "ok"
    finally:
        subprocess.run(["umount", sub], check=True)


def test_a_symlink_to_a_secret(box):
    """A link in a granted folder leads where its target's own rules allow, and no grant follows it."""
    secret = box.secret(".ssh/id_ed25519")
    d = box.inst.app_dir("links")
    os.symlink(secret, f"{d}/key")
    os.symlink(os.path.dirname(secret), f"{d}/dir")
    assert box.attack("read", f"{d}/key", "/", "read", f"{d}/dir/id_ed25519", options=["--read", d]) in (
        ["ENOENT", "ENOENT"], ["EACCES", "EACCES"])
    for link in ("key", "dir"):
        assert box.run(box.attacker, "fds", options=["--read", f"{d}/{link}"]).returncode == 125


def test_working_directory_is_kept(box):
    assert box.run("/bin/pwd").stdout.strip() == box.cwd
    assert box.attack("read", "attacker") == "ok"
    assert box.attack("write", "attacker") in REFUSED | {"ETXTBSY"}
    assert box.attack("write", "new", options=["--write", "."]) == "ok"
    assert os.path.exists(os.path.join(box.cwd, "new"))


def test_working_directory_tmp_is_the_jails_own(box):
    """/tmp is never granted as a whole, and every jail has one: a command typed there runs, and sees none of the host's."""
    with tempfile.NamedTemporaryFile(dir="/tmp", prefix="sbxsv-host-") as host:
        r = box.run("/bin/sh", "-c", "pwd; ls", cwd="/tmp")
        assert r.returncode == 0, r.stderr
        assert r.stdout.splitlines()[0] == "/tmp" and os.path.basename(host.name) not in r.stdout


def test_a_directory_as_stdin_is_refused(box):
    d = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        r = box.run(box.attacker, "openat", 0, "etc/shadow", stdin=d)
    finally:
        os.close(d)
    assert r.returncode == 125 and "directory" in r.stderr


def test_a_file_as_stdin_cannot_be_reopened(box):
    path = box.inst.user_file(os.path.join(box.inst.base, "input"), "text")
    with open(path) as f:
        assert box.attack("write", "/proc/self/fd/0", stdin=f) in REFUSED | {"ok"}
    assert open(path).read() == "text"
    with open(path) as f:
        assert box.run("/bin/cat", stdin=f).stdout == "text"


def test_interpreter_under_home(box):
    """A venv layout below the home directory starts; the rest of the home stays hidden."""
    if harness.ROOT:
        pytest.skip("the home of the test user is shared by tests")
    private = box.secret(".local/private/file")
    venv = os.path.join(box.home, "venvs/one")
    subprocess.run([harness.PYTHON, "-m", "venv", "--without-pip", venv], check=True)
    r = box.run(f"{venv}/bin/python", "-c", "import sys; print(sys.prefix)")
    assert r.stdout.strip() == venv, r.stderr
    if box.mode != "open":
        assert box.attack("read", private) in REFUSED
        assert box.attack("list", os.path.dirname(private)) in REFUSED
