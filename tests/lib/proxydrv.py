"""Drives a real sbxsv-proxy over its channel, in place of sbxsvd (the protocol: doc/design.md, section 11)."""
import json
import os
import resource
import select
import signal
import socket
import subprocess
import time

WIRE_VERSION = 4


def find_program(name="sbxsv-proxy"):
    """The program under test: $SBXSV_BUILD (make check sets it) or the directory above tests/."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for d in (os.environ.get("SBXSV_BUILD"), os.environ.get("top_builddir"), os.getcwd(), here):
        if d and os.access(os.path.join(d, name), os.X_OK):
            return os.path.join(d, name)
    raise RuntimeError(f"{name} is not built: run make first, or set SBXSV_BUILD")


class Proxy:
    """One sbxsv-proxy. `make_socket()` returns a TCP socket made inside the jail: what `need` asks for."""

    def __init__(self, make_socket=None, args=(), env=None, log=None, nofile=None, program="sbxsv-proxy"):
        self.program = program  # proxy_quick: with deadlines that pass twenty times as fast
        self.make_socket = make_socket
        self.args = list(args)
        self.env = env
        self.log = log
        self.nofile = nofile  # limit of open files
        self.crash_fd = os.memfd_create("crash-page")
        os.ftruncate(self.crash_fd, 4096)
        self.messages = []
        self.launch = 0
        self.start()

    def start(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.wire = ours

        def fds():
            os.dup2(theirs.fileno(), 3, inheritable=True)
            os.closerange(4, 256)
            if self.nofile:
                resource.setrlimit(resource.RLIMIT_NOFILE, (self.nofile, self.nofile))

        # theirs may be any number; dup2 in the child puts it at 3
        self.proc = subprocess.Popen([find_program(self.program), "--parent", str(os.getpid()), *self.args], close_fds=False,
                                     preexec_fn=fds, stdin=subprocess.DEVNULL, stderr=self.log, env=self.env)
        theirs.close()
        self.send("hello", fds=[self.crash_fd], v=WIRE_VERSION, status=4096)
        hello = self.wait("hello")
        assert hello["v"] == WIRE_VERSION and hello["pid"] == self.proc.pid

    def send(self, t, fds=(), **fields):
        text = json.dumps({"t": t, **fields}).encode()
        if fds:
            socket.send_fds(self.wire, [text], [f if isinstance(f, int) else f.fileno() for f in fds])
        else:
            self.wire.send(text)

    def pump(self, timeout=0.0):
        """Takes what has arrived; answers `need`. True when there was something."""
        if not select.select([self.wire], [], [], timeout)[0]:
            return False
        data = self.wire.recv(1 << 18)
        if not data:
            raise EOFError("sbxsv-proxy closed its channel")
        m = json.loads(data)
        if m["t"] == "need" and self.make_socket:
            socks = [self.make_socket() for _ in range(m["n"])]
            self.send("pool", fds=socks, app=m["app"], launch=m["launch"])
            for s in socks:
                s.close()
        self.messages.append(m)
        return True

    def wait(self, t, timeout=20.0, match=lambda m: True):
        """The next message of a type (one that came before counts too; it is taken out)."""
        end = time.monotonic() + timeout
        while True:
            for i, m in enumerate(self.messages):
                if m["t"] == t and match(m):
                    return self.messages.pop(i)
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no {t} message; got {self.messages}")
            self.pump(left)

    def counters(self, app):
        self.settle()
        self.messages = [m for m in self.messages if m["t"] != "counters"]
        self.send("stats", app=app)
        return self.wait("counters", match=lambda m: app in m["apps"])["apps"][app]

    def sync(self):
        """Returns when everything sent so far was handled."""
        self.settle()
        self.messages = [m for m in self.messages if m["t"] != "counters"]
        self.send("stats")
        self.wait("counters")

    def settle(self):
        while self.pump():
            pass

    def listen(self, app, pairs):
        """pairs: (listening socket, app port)"""
        self.send("listen", fds=[s for s, _ in pairs], app=app,
                  ports=[{"host": s.getsockname()[1], "app": p} for s, p in pairs])

    def gate(self, app, mode):
        self.send("gate", app=app, mode=mode)

    def jail(self, app, egress=None, loopback=(), transparent=(), dns_udp=(), dns_tcp=(), names=None):
        """loopback, transparent: (listening socket made inside, port); names: the fd of the app's name map"""
        self.launch += 1
        fds = [egress] if egress else []
        fds += [s for s, _ in transparent] + [*dns_udp, *dns_tcp] + ([names] if names is not None else []) + \
            [s for s, _ in loopback]
        self.send("jail", fds=fds, app=app, launch=self.launch, egress=egress is not None,
                  transparent=[p for _, p in transparent], dns_udp=len(dns_udp), dns_tcp=len(dns_tcp),
                  names=names is not None, loopback=[p for _, p in loopback])

    def kill(self, sig=signal.SIGKILL):
        self.proc.send_signal(sig)
        self.proc.wait()
        self.wire.close()
        self.messages = []

    def close(self):
        if self.proc.poll() is None:
            self.wire.close()
            try:
                self.proc.wait(10)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        os.close(self.crash_fd)
