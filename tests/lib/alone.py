"""A stand-alone sbxsv-proxy in a lab (netlab.py), as root or as an ordinary user."""
import functools
import json
import os
import re
import signal
import socket
import subprocess
import time

import harness
import netlab
import proxydrv


def lab(fn):
    """The body gets a Lab in namespaces of its own, where an ordinary user stays one."""
    @functools.wraps(fn)
    def wrapper():
        why = netlab.can_isolate()
        if why:
            import pytest
            pytest.skip(why)

        def body():
            with netlab.Lab() as where:
                fn(where)
        netlab.run_isolated(body, keep_uid=True)
    del wrapper.__wrapped__  # pytest would take the body's argument for a fixture
    return wrapper


def plain():
    """Popen arguments: what runs has no more rights than its user."""
    return {} if harness.ROOT else {"preexec_fn": netlab.drop_capabilities}


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(p) for p in f.read().split()]


@functools.lru_cache
def sanitized():
    """Such a build does not confine itself."""
    with open(proxydrv.find_program(), "rb") as f:
        return b"__asan_" in f.read()


def status_of(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            return f.read()
    except OSError:
        return ""


def wait(what, condition, timeout=20):
    end = time.monotonic() + timeout
    while not (r := condition()):
        assert time.monotonic() < end, f"timeout: {what}"
        time.sleep(0.01)
    return r


class Alone:
    def __init__(self, where, *args, policy=None, listen="127.0.0.1:0", log=True, env=None, stdout=None, name="alone"):
        self.policy = os.path.join(where, name + ".conf")
        self.log_path = os.path.join(where, name + ".log")
        self.err_path = os.path.join(where, name + ".err")
        argv = [proxydrv.find_program(), "--listen", listen, *args]
        if policy is not None:
            self.write(policy)
            argv += ["--policy", self.policy]
        if log:
            argv += ["--access-log", self.log_path]
        self.proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=open(self.err_path, "w"), env=env,
                                     **plain())
        m = wait("listening", lambda: re.search(r"listening on \S*:(\d+)", self.err()) or self.proc.poll() is not None)
        assert m is not True, self.err()
        self.port = int(m.group(1))
        self.url = f"http://127.0.0.1:{self.port}"

    def err(self):
        with open(self.err_path) as f:
            return f.read()

    def write(self, text, mode=0o600):
        with open(self.policy + ".new", "w") as f:
            f.write(text)
        os.chmod(self.policy + ".new", mode)
        os.rename(self.policy + ".new", self.policy)

    def reload(self, text, mode=0o600):
        """Gives it new rules; returns what it said about them."""
        before = len(self.err())
        self.write(text, mode)
        self.proc.send_signal(signal.SIGHUP)
        wait("an answer to SIGHUP", lambda: re.search("the rules (were read again|are left)", self.err()[before:]))
        return self.err()[before:]

    def worker(self):
        """Its pid, once it has shut itself in."""
        def confined():
            for pid in children(self.proc.pid):
                status = status_of(pid)
                if "NoNewPrivs:\t1" in status and ("Seccomp:\t2" in status or sanitized()):
                    return pid
        return wait("a worker", confined)

    def lines(self, n=None, path=None):
        """The access log, when it has n lines."""
        def read():
            with open(path or self.log_path) as f:
                text = f.read()
            lines = [json.loads(line) for line in text.splitlines()]
            return lines if n is None or len(lines) >= n else None
        return wait(f"{n} lines in the access log", read) if n else read()

    def end(self, sig=signal.SIGTERM):
        if self.proc.poll() is None:
            self.proc.send_signal(sig)
        return self.proc.wait(20)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        status = self.end()
        if exc[0] is None:
            assert status == 0, (status, self.err())
            assert "Sanitizer" not in self.err() and "runtime error" not in self.err(), self.err()


def curl(proxy, url, *args, lab=None, timeout=30):
    """(exit code, status of the last answer, body). proxy: an Alone or a URL."""
    via = getattr(proxy, "url", proxy)
    ca = ["--cacert", lab.ca()] if lab else []
    r = subprocess.run(["curl", "-s", "-S", "-x", via, "--noproxy", "", *ca, "--max-time", str(timeout), "-w",
                        "\n%{http_code} %{http_connect}", *args, url], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    body, _, codes = r.stdout.rpartition("\n")
    http, connect = (int(x) for x in codes.split()) if codes else (0, 0)
    return r.returncode, http or connect, body + r.stderr


def connect(p, target, early=b""):
    """CONNECT by hand; the socket."""
    s = socket.create_connection(("127.0.0.1", p.port), timeout=30)
    s.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode() + early)
    return s


def ask(p, target):
    """CONNECT that is not granted: (status, all of the answer). curl does not show its body."""
    data = b""
    with connect(p, target) as s:
        while more := s.recv(65536):
            data += more
    return int(data.split()[1]), data.decode()
