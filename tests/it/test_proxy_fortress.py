"""What a running sbxsv-proxy is to the kernel, and how fast it is back. What it may still do once it is confined is
tried from inside by tests/unit/test_harden.c."""
import os
import re
import signal
import sys
import tempfile
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import alone
import harness
import netlab
import netsup
from alone import Alone, ask, connect
from test_proxy_egress import Setup


unconfined = pytest.mark.skipif(alone.sanitized(), reason="a build with sanitizers does not confine itself")


def fds(pid):
    """What its descriptors are: numbers to link texts."""
    d, out = f"/proc/{pid}/fd", {}
    for n in os.listdir(d):
        try:
            out[int(n)] = os.readlink(os.path.join(d, n))
        except FileNotFoundError:
            pass  # closed meanwhile
    return out


def field(status, name):
    return re.search(rf"^{name}:\s*(.*)$", status, re.M).group(1).strip()


def check_process(pid):
    status = alone.status_of(pid)
    assert field(status, "NoNewPrivs") == "1"
    assert field(status, "Seccomp") == "2" and int(field(status, "Seccomp_filters")) >= 1
    for caps in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(field(status, caps), 16) == 0, (caps, status)
    assert field(status, "Threads") == "1"
    with open(f"/proc/{pid}/stat") as f:
        session = int(f.read().rsplit(") ", 1)[1].split()[3])
    assert session == pid  # no terminal to type into
    if harness.ROOT:
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert set(field(status, "Uid").split()) != {"0"}
        with open(f"/proc/{pid}/limits") as f:
            limits = f.read()
        assert re.search(r"^Max core file size\s+0\s+0 ", limits, re.M)
        assert re.search(r"^Max processes\s+0\s+0 ", limits, re.M)
        with open(f"/proc/{pid}/environ", "rb") as f:
            assert {v.split(b"=")[0] for v in f.read().split(b"\0") if v} <= {b"PATH", b"LC_ALL"}
    else:  # not dumpable: not even its own user looks into it
        for name in ("environ", "mem", "maps"):
            with pytest.raises(PermissionError):
                open(f"/proc/{pid}/{name}", "rb").read(1)


def check_fds(pid, allowed=()):
    """Sockets and what the loop needs. Standard error is whoever's started it."""
    kinds = [r"socket:\[\d+\]", r"anon_inode:\[(eventpoll|eventfd|timerfd)\]", "/dev/null",
             r"/memfd:sbxsv-\S* \(deleted\)", *allowed]
    for n, what in fds(pid).items():
        if n == 2:
            continue
        assert any(re.fullmatch(k, what) for k in kinds), (n, what)


@unconfined
def test_stand_alone():
    with tempfile.TemporaryDirectory() as d:
        os.chmod(d, 0o755)
        with Alone(d, policy="Allow=x.test\n") as p:
            assert ask(p, "y.test:443")[0] == 403
            worker = p.worker()
            check_process(worker)
            if harness.ROOT:
                check_fds(worker, allowed=[r"pipe:\[\d+\]"])  # to the master, who has the log file
                master = fds(p.proc.pid).values()
                assert p.log_path in master


def test_stand_alone_is_back_at_once():
    """Killed again and again under load: nobody is refused, everybody is served soon."""
    with tempfile.TemporaryDirectory() as d:
        os.chmod(d, 0o755)
        with Alone(d, "--allow", "x.test") as p:
            times = []
            for _ in range(10):
                worker = p.worker()
                os.kill(worker, signal.SIGKILL)
                began = time.monotonic()
                with connect(p, "y.test:443") as s:
                    assert s.recv(100).startswith(b"HTTP/1.1 403"), "refused or lost"
                times.append(time.monotonic() - began)
                time.sleep(0.1)  # two deaths within 100 ms are taken for a crash loop
            print("answered after", [f"{1000 * t:.0f} ms" for t in sorted(times)])
            assert sorted(times)[len(times) // 2] < 5  # a guard; the numbers are printed


@unconfined
@netsup.lab
def test_under_the_supervisor(lab, sup):
    """The same process, with the same listeners, policy and names after it was killed."""
    lab.dns({"a.test": ["11.2.0.10"]})
    lab.tls_site("a.test", "11.2.0.10")
    sup.agent("box", "Allow=a.test")
    sup.up_all()
    assert sup.run("box", "result = connect('a.test:443')")[0] == 200
    before = sup.status()["supervisor"]["proxy"]
    pid = before["pid"]
    status = alone.status_of(pid)
    assert field(status, "Seccomp") == "2" and field(status, "NoNewPrivs") == "1"
    assert int(field(status, "CapPrm"), 16) == 0 and int(field(status, "CapEff"), 16) == 0
    if harness.ROOT:
        check_process(pid)
        check_fds(pid)
    os.kill(pid, signal.SIGKILL)
    assert sup.run("box", "result = connect('a.test:443')")[0] == 200
    assert sup.run("box", "result = connect('b.test:443')")[0] == 403
    after = sup.status()["supervisor"]["proxy"]
    assert after["pid"] != pid and after["restarts"] == before["restarts"] + 1


@netlab.isolated
def test_a_hanging_proxy_ends_itself():
    """... and names the app; one that has much to do, and gets on with it, does not."""
    with netlab.Lab() as lab:
        lab.dns({"a.test": ["11.2.0.10"]})
        lab.http_site("a.test", "11.2.0.10")
        s = Setup(lab, program="proxy_hang", allow=["a.test"])

        def used():
            with open(f"/proc/{s.proxy.proc.pid}/stat") as f:
                fields = f.read().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        while used() < 0.5:  # the watch of this one looks every 0.1 s
            for _ in range(50):
                with s.open() as c:
                    c.sendall(b"GET http://b.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n")
                    assert c.recv(12) == b"HTTP/1.1 403"
        c = s.open()
        c.sendall(b"HANG")
        assert s.proxy.proc.wait(60) == -signal.SIGABRT
        assert os.pread(s.proxy.crash_fd, 7, 0) == b"\1notes\0"
        c.close()
