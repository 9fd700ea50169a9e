"""A private network for tests: this machine ("host"), the internet ("inet") and, if wanted, jails.

Everything happens in namespaces that the test itself makes: as an ordinary user inside a user namespace, as root without
one. Nothing ever leaves them. Layout:

    host  (where the program under test runs)         inet (another network namespace)
    lo 127.0.0.1 ::1                                  lo
    wan 11.1.0.2/24, 2a0e:b1::2/64  <-- veth -->      wan 11.1.0.1/24, 2a0e:b1::1/64
    default routes to inet                            site addresses: 11.2.0.N, 2a0e:b2::N (public ranges)
                                                      dnsmasq on 11.2.0.53

Public-range addresses, because the proxy refuses what is not public; a second namespace, because an address of the proxy's
own namespace is refused as "this machine".

Use:

    @netlab.isolated                   # the body runs in the lab; a failure there fails the test
    def test_something():
        with netlab.Lab() as lab:
            lab.dns({"site.test": ["11.2.0.10"]})
            lab.tls_site("site.test", "11.2.0.10")
            ...

`isolated` forks: the body sees a private mount, pid and network namespace (/etc/resolv.conf may be replaced), and whatever
it leaves running dies with it. It may use pytest's assert, but no fixtures.
"""
import ctypes
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
MS_REC, MS_PRIVATE, MS_BIND = 16384, 1 << 18, 4096
_libc = ctypes.CDLL(None, use_errno=True)
# dnsmasq and ip: not on an ordinary user's PATH everywhere
os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"


def _check(r, what):
    if r < 0:
        e = ctypes.get_errno()
        raise OSError(e, f"{what}: {os.strerror(e)}")


def unshare(flags):
    _check(_libc.unshare(flags), "unshare")


def setns(fd, flags):
    _check(_libc.setns(fd, flags), "setns")


def mount(source, target, fstype=None, flags=0, data=None):
    enc = lambda s: s.encode() if s else None
    _check(_libc.mount(enc(source), enc(target), enc(fstype), ctypes.c_ulong(flags), enc(data)), f"mount {target}")


def can_isolate():
    """None, or why this machine cannot run labs."""
    flags = ["-n", "-m", "-p", "-f"] + (["-U", "-r"] if os.geteuid() else [])
    r = subprocess.run(["unshare", *flags, "true"], capture_output=True, text=True)
    return None if r.returncode == 0 else f"no namespaces: {r.stderr.strip()}"


def _keep_capabilities():
    """What this process may do in its user namespace, the programs it executes may do too."""
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()  # capget(2), version 3
    _check(_libc.capget(header, data), "capget")
    for word in (0, 3):
        data[word + 2] = data[word + 1]  # inheritable = permitted
    _check(_libc.capset(header, data), "capset")
    permitted = data[1] | data[4] << 32
    for cap in range(64):
        if permitted >> cap & 1:
            _check(_libc.prctl(47, 2, cap, 0, 0), "PR_CAP_AMBIENT_RAISE")


def drop_capabilities():
    """For Popen(preexec_fn=...): what is executed next is an ordinary user's process."""
    _libc.prctl(47, 4, 0, 0, 0)  # PR_CAP_AMBIENT_CLEAR_ALL


def _enter_namespaces(keep_uid=False):
    uid, gid = os.geteuid(), os.getegid()
    if uid:
        unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID)
        inner = (uid, gid) if keep_uid else (0, 0)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{inner[0]} {uid} 1"), ("gid_map", f"{inner[1]} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as f:
                f.write(text)
        if keep_uid:
            _keep_capabilities()
    else:
        unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID)
    mount(None, "/", None, MS_REC | MS_PRIVATE)


def _run_body(fn, args, kwargs, pipe):
    try:
        try:
            mount("proc", "/proc", "proc")
        except OSError:
            pass  # a container that hides parts of /proc: the old one stays
        ip("link set lo up")
        fn(*args, **kwargs)
        code = 0
    except BaseException as e:  # noqa: the parent reports it
        if type(e).__name__ == "Skipped":
            os.write(pipe, str(e).encode()[:60000])
            code = 77
        else:
            os.write(pipe, traceback.format_exc().encode()[-60000:])
            code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_isolated(fn, *args, timeout=240, keep_uid=False, **kwargs):
    """Runs fn in the lab's namespaces; raises AssertionError with its traceback.

    An ordinary user is root there, or with keep_uid itself, with capabilities: what it runs with drop_capabilities() is then
    a program of an ordinary user."""
    r, w = os.pipe()
    outer = os.fork()
    if outer == 0:
        os.close(r)
        try:
            _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            _enter_namespaces(keep_uid)
            inner = os.fork()
            if inner == 0:  # pid 1 of the lab: everything dies with it, and it with us (fork() clears that)
                _libc.prctl(1, signal.SIGKILL)
                _run_body(fn, args, kwargs, w)
            os.close(w)
            _, status = os.waitpid(inner, 0)
            os._exit(os.waitstatus_to_exitcode(status) & 0xff)
        except BaseException:
            os.write(w, traceback.format_exc().encode())
            os._exit(1)
    os.close(w)
    text, end = b"", time.monotonic() + timeout
    os.set_blocking(r, False)
    status = None
    while status is None:
        pid, st = os.waitpid(outer, os.WNOHANG)
        if pid:
            status = os.waitstatus_to_exitcode(st)
        elif time.monotonic() > end:
            os.kill(outer, signal.SIGKILL)
            os.waitpid(outer, 0)
            raise AssertionError(f"the lab hung for {timeout} s")
        else:
            time.sleep(0.01)
        try:
            text += os.read(r, 65536)
        except BlockingIOError:
            pass
    os.close(r)
    if status == 77:
        import pytest
        pytest.skip(text.decode(errors="replace"))
    if status:
        raise AssertionError(f"in the lab (status {status}):\n" + text.decode(errors="replace"))


def isolated(fn):
    @functools.wraps(fn)
    def wrapper():
        why = can_isolate()
        if why:
            import pytest
            pytest.skip(why)
        run_isolated(fn)
    return wrapper


def ip(args, netns=None):
    cmd = ["ip", *args.split()]
    if netns:
        cmd = ["nsenter", f"--net=/proc/{netns}/ns/net", *cmd]
    subprocess.run(cmd, check=True)


class NetNs:
    """A network namespace, kept by a sleeping process. `with ns:` runs a block inside it (this thread)."""

    def __init__(self):
        r, w = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(r)
            unshare(CLONE_NEWNET)
            os.write(w, b"x")
            os.close(w)
            os.execvp("sleep", ["sleep", "infinity"])
        os.close(w)
        assert os.read(r, 1) == b"x"
        os.close(r)
        self.fd = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.saved = threading.local()  # each thread has its own namespace
        self.ip("link set lo up")

    def ip(self, args):
        ip(args, self.pid)

    def __enter__(self):
        if not hasattr(self.saved, "fds"):
            self.saved.fds = []
        self.saved.fds.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        setns(self.fd, CLONE_NEWNET)
        return self

    def __exit__(self, *exc):
        fd = self.saved.fds.pop()
        setns(fd, CLONE_NEWNET)
        os.close(fd)

    def popen(self, cmd, **kw):
        return subprocess.Popen(["nsenter", f"--net=/proc/{self.pid}/ns/net", *cmd], **kw)

    def socket(self, *args):
        with self:
            return socket.socket(*args)

    def connect(self, address, timeout=20, source=None):
        with self:
            return socket.create_connection(address, timeout=timeout, source_address=source)

    def listen(self, address, backlog=256):
        with self:
            f = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            return socket.create_server(address, family=f, backlog=backlog)

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


class Jail(NetNs):
    """The network of a jail, as src/net makes it: loopback, AnyIP, and the proxy's address on lo."""
    PROXY = ("198.18.0.1", 3128)

    def __init__(self):
        super().__init__()
        self.ip("addr add 198.18.0.1/32 dev lo")
        self.ip("route add local 0.0.0.0/0 dev lo")
        self.ip("-6 route add local ::/0 dev lo")

    def pool_socket(self):
        s = self.socket(socket.AF_INET6, socket.SOCK_STREAM)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        return s

    def egress_listener(self):
        return self.listen(self.PROXY)


class Inside(NetNs):
    """The network namespace of a process that somebody else made and ends: a jail's, by the pid of its app."""

    def __init__(self, pid):
        self.pid = pid
        self.fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.saved = threading.local()

    def close(self):
        os.close(self.fd)


class Lab:
    DNS = "11.2.0.53"
    HOST4, HOST6 = "11.1.0.2", "2a0e:b1::2"

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="netlab-")
        os.chmod(self.dir, 0o755)
        self.procs, self.spaces = [], []
        self.inet = self.space(NetNs())
        ip(f"link add wan type veth peer name wan netns {self.inet.pid}")
        for ns, n in ((None, 2), (self.inet.pid, 1)):
            ip("link set wan up", ns)
            ip(f"addr add 11.1.0.{n}/24 dev wan", ns)
            ip(f"-6 addr add 2a0e:b1::{n}/64 dev wan nodad", ns)
        ip("route add default via 11.1.0.1")
        ip("-6 route add default via 2a0e:b1::1")
        self.address(self.DNS)
        self.resolv_conf(f"nameserver {self.DNS}\n")
        self._ca = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for p in self.procs:
            p.kill()
            p.wait()
        for ns in self.spaces:
            ns.close()
        with open("/proc/self/mountinfo") as f:  # what a test mounted in there would stay, and the directory with it
            below = [line.split()[4] for line in f if line.split()[4].startswith(self.dir + "/")]
        for m in reversed(below):
            _libc.umount2(m.encode(), 2)  # MNT_DETACH
        shutil.rmtree(self.dir, ignore_errors=True)

    def space(self, ns):
        self.spaces.append(ns)
        return ns

    def jail(self):
        return self.space(Jail())

    def lan(self):
        """A neighbour on a private network: 192.168.77.2, fd00:77::2; the host is .1 and ::1 there."""
        ns = self.space(NetNs())
        ip(f"link add lan type veth peer name lan netns {ns.pid}")
        for where, n in ((None, 1), (ns.pid, 2)):
            ip("link set lan up", where)
            ip(f"addr add 192.168.77.{n}/24 dev lan", where)
            ip(f"-6 addr add fd00:77::{n}/64 dev lan nodad", where)
        return ns

    def path(self, name):
        return os.path.join(self.dir, name)

    def address(self, *addresses):
        """Gives the internet an address."""
        for a in addresses:
            self.inet.ip(f"-6 addr add {a}/128 dev lo nodad" if ":" in a else f"addr add {a}/32 dev lo")

    def route_to_inet(self, prefix):
        """Routes a prefix (a private network, NAT64, 6to4) to the internet, where it may be given as an address."""
        ip(f"-6 route add {prefix} via 2a0e:b1::1" if ":" in prefix else f"route add {prefix} via 11.1.0.1")

    def _cover(self, target, text):
        """Puts a file over one of /etc, in this mount namespace only."""
        name = self.path(os.path.basename(target))
        fresh = not os.path.exists(name)
        with open(name, "w") as f:
            f.write(text)
        os.chmod(name, 0o644)
        if fresh:
            mount(name, os.path.realpath(target), None, MS_BIND)

    def resolv_conf(self, text):
        self._cover("/etc/resolv.conf", text)

    def hosts(self, text):
        self._cover("/etc/hosts", "127.0.0.1 localhost\n" + text)

    def dns(self, names, extra=(), log=False):
        """Starts dnsmasq: {"name": ["address", ...]}. Anything else is NXDOMAIN. `log`: its log is path("dns.log")."""
        if log:
            extra = [*extra, "--log-queries", f"--log-facility={self.path('dns.log')}"]
        hosts = self.path("dns-hosts")
        with open(hosts, "w") as f:
            for name, addresses in names.items():
                f.writelines(f"{a} {name}\n" for a in addresses)
        os.chmod(hosts, 0o644)
        p = self.inet.popen(["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
                             f"--addn-hosts={hosts}", f"--listen-address={self.DNS}", "--bind-interfaces", "--no-poll",
                             "--no-daemon", "--local=/#/", "--user=root", "--group=root", "--pid-file=",
                             "--local-ttl=30", "--no-round-robin", *extra], stderr=subprocess.DEVNULL)
        self.procs.append(p)
        self._wait_dns()
        return p

    def _wait_dns(self):
        query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05ready\x04test\x00\x00\x01\x00\x01"
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(0.1)
        for _ in range(200):
            try:
                s.sendto(query, (self.DNS, 53))
                s.recv(512)
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("dnsmasq does not answer")

    # --- TLS ---

    def ca(self):
        """Path of the certificate of the lab's own authority."""
        if not self._ca:
            self._ca = self.path("ca.pem")
            self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                          "-subj", "/CN=netlab", "-keyout", self.path("ca.key"), "-out", self._ca)
        return self._ca

    def certificate(self, *names):
        """(certificate, key) for DNS names or addresses, signed by ca()."""
        base = self.path("cert-" + names[0].replace(":", "_").replace("*", "_"))
        if not os.path.exists(base + ".pem"):
            is_ip = lambda n: ":" in n or n.replace(".", "").isdigit()
            with open(base + ".ext", "w") as f:
                f.write("subjectAltName=" + ",".join(("IP:" if is_ip(n) else "DNS:") + n for n in names) + "\n")
            self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                          "/CN=netlab site", "-keyout", base + ".key", "-out", base + ".csr")
            self._openssl("x509", "-req", "-in", base + ".csr", "-CA", self.ca(), "-CAkey", self.path("ca.key"),
                          "-CAcreateserial", "-days", "2", "-extfile", base + ".ext", "-out", base + ".pem")
        return base + ".pem", base + ".key"

    def _openssl(self, *args):
        subprocess.run(["openssl", *args], check=True, capture_output=True)

    # --- sites ---

    def _site(self, kind, address, port, *args):
        if address not in self._addresses():
            self.address(address)
        here = os.path.dirname(os.path.abspath(__file__))
        p = self.inet.popen(["/usr/bin/python3", os.path.join(here, "sites.py"), kind, address, str(port), *args],
                            stdout=subprocess.PIPE)
        self.procs.append(p)
        assert p.stdout.readline() == b"ready\n", f"site {kind} {address}:{port} did not start"
        return p

    def _addresses(self):
        out = subprocess.run(["nsenter", f"--net=/proc/{self.inet.pid}/ns/net", "ip", "-o", "addr"], check=True,
                             capture_output=True, text=True).stdout
        return {line.split()[3].split("/")[0] for line in out.splitlines()}

    def tls_site(self, name, address, port=443):
        """HTTPS that answers "NAME sni=SNI path=PATH\\n"."""
        return self._site("tls", address, port, name, *self.certificate(name, address))

    def http_site(self, name, address, port=80):
        """HTTP that answers with what it saw: see sites.py."""
        return self._site("http", address, port, name)

    def echo_site(self, address, port):
        """TCP: sends back what it gets; half-close correct."""
        return self._site("echo", address, port)

    def banner_site(self, address, port):
        """TCP that speaks first: "hello\\n", then echo."""
        return self._site("banner", address, port)
