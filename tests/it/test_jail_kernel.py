"""System calls a jailed program may not make, and those it must still be able to make."""
import jailbox
import pytest

NEW = {"user": 0x10000000, "mnt": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000,
       "cgroup": 0x2000000}
AF_UNIX, AF_INET, AF_KEY, AF_NETLINK, AF_PACKET, AF_ALG, AF_VSOCK = 1, 2, 15, 16, 17, 38, 40
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
HIGH = 1 << 32


@pytest.fixture(params=jailbox.MODES)
def box(request, inst):
    b = jailbox.Box(inst, request.param)
    yield b
    b.close()


@pytest.mark.parametrize("ns", NEW)
def test_namespaces(box, ns):
    assert box.attack("unshare", NEW[ns], "/", "clone", NEW[ns], "/", "clone3", NEW[ns]) == ["EPERM", "EPERM", "ENOSYS"]


def test_mounts(box):
    words = ["mount", "/tmp", "/", "remount", "/usr", "/", "umount", "/tmp", "/", "umount", "/proc/sys", "/", "open_tree", "/",
             "/", "fsopen", "tmpfs", "/", "pivot_root", "/", "/", "chroot", "/tmp", "/", "setns", "/proc/self/ns/net"]
    assert set(box.attack(*words)) == {"EPERM"}


def test_init_is_out_of_reach(box):
    assert box.attack("ptrace", 1, "/", "vm_read", 1) == ["EPERM", "EPERM"]
    for path in ("/proc/1/mem", "/proc/1/environ", "/proc/1/maps"):
        assert box.attack("read", path) in ("EACCES", "EPERM")
    assert box.attack("list", "/proc/1/fd") == "EACCES"
    assert box.attack("kill", 1, 9, "/", "kill", 1, 19, "/", "sleep", 50, "/", "read", "/dev/zero") == ["ok", "ok", "ok"]


def test_doors_of_the_kernel(box):
    words = ["keyctl", "/", "add_key", "/", "bpf", "/", "perf", "/", "userfaultfd", "/", "kexec", "/", "module", "/", "handle",
             "/"]
    assert box.attack(*words) == ["EPERM"] * 8
    assert box.attack("io_uring") == "ENOSYS"


def test_privileges(box):
    assert box.attack("setuid0") in ("EPERM", "EINVAL")
    assert box.attack("seccomp_off") != "ok"
    text = box.run("/bin/cat", "/proc/self/status").stdout
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "SigBlk", "SigIgn"):
        assert int(fields[name], 16) == 0, name
    assert fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2"
    uid, gid = box.inst.user.pw_uid, box.inst.user.pw_gid
    assert fields["Uid"].split() == [str(uid)] * 4 and fields["Gid"].split() == [str(gid)] * 4


@pytest.mark.root
def test_groups_of_root_are_dropped(box):
    assert box.run("/usr/bin/id", "-G").stdout.split() == [str(box.inst.user.pw_gid)]


def test_terminal_injection(box):
    for command in (TIOCSTI, TIOCLINUX):
        assert box.attack("tiocsti", command, "/", "tiocsti", command | HIGH) == ["EPERM", "EPERM"]


def test_socket_families(box):
    for family in (AF_KEY, AF_PACKET, AF_ALG, AF_VSOCK, 3, 21, 31, 44):
        assert box.attack("socket", family, 3, 0) == "EAFNOSUPPORT", family
    assert box.attack("socket", AF_NETLINK, 3, 0) == "ok"  # NETLINK_ROUTE, for getaddrinfo
    for protocol in (4, 9, 12, 15, 16):
        assert box.attack("socket", AF_NETLINK, 3, protocol) == "EPERM", protocol
    assert box.attack("socket", AF_INET, 3, 1) == "EPERM"  # raw
    for family in AF_INET, 10:  # what would load a module: DCCP, SCTP, L2TP, UDP-Lite, SMC
        for kind, protocol in (6, 33), (5, 0), (5, 132), (1, 132), (2, 115), (2, 136), (1, 256), (1, 256 + (1 << 32)):
            assert box.attack("socket", family, kind, protocol) == "EPROTONOSUPPORT", (family, kind, protocol)
        assert box.attack("socket", family, 1, 0, "/", "socket", family, 2, 0, "/", "socket", family, 1, 6) == ["ok"] * 3
    assert box.attack("socket", AF_UNIX, 1, 0, "/", "socket", AF_UNIX, 2, 0, "/", "socket", AF_UNIX, 5, 0) == ["EPERM"] * 3
    assert box.attack("socketpair", AF_UNIX, 1, "/", "socketpair", AF_UNIX, 5) == ["ok", "ok"]
    assert box.attack("socketpair", AF_UNIX, 2, "/", "socketpair", AF_UNIX, 3) == ["EPERM", "EPERM"]


def test_personality(box):
    assert box.attack("personality", 0xFFFFFFFF, "/", "personality", 0) == ["ok", "ok"]
    assert box.attack("personality", 0x0400000, "/", "personality", 0x0100000) == ["EPERM", "EPERM"]


def test_foreign_abi(box):
    assert box.attack("i386") == "SYS"


def test_what_must_work(box):
    """Debuggers, threads, pseudo-terminals, shared memory."""
    assert box.attack("ptrace_child") == "ok"
    r = box.run("/usr/bin/python3", "-c",
                "import threading, os, pty, multiprocessing.shared_memory as m, socket, subprocess\n"
                "t = threading.Thread(target=lambda: None); t.start(); t.join()\n"
                "a, b = pty.openpty(); os.write(b, b'x'); assert os.read(a, 1) == b'x'\n"
                "s = m.SharedMemory(create=True, size=4096); s.buf[0] = 1; s.close(); s.unlink()\n"
                "a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'\n"
                "s = socket.socket(); s.bind(('127.0.0.1', 80)); s.listen()\n"
                "assert subprocess.run(['/bin/true']).returncode == 0\n"
                "print('fine')", options=["--env", "PYTHONDONTWRITEBYTECODE=1"])
    assert r.stdout.strip() == "fine", r.stderr
