"""The `connect` and `growth` parts of tests/bench/run: sbxsv-proxy beside other proxies, one client for all.

Everything runs in namespaces of its own (tests/lib/netlab.py): the client and the proxies in one, the server in another,
joined by veth, with public-range addresses, because the proxy under test never dials its own machine. Peers: tinyproxy,
squid (one worker, no cache), haproxy in tcp mode with and without splice (it cannot be the end of a CONNECT: it has one
fixed target and parses nothing, nor does it judge), a socat pair, and the bound, relay.c: a relay that only reads and
writes, once as it is ("relay") and once behind a CONNECT of which it reads nothing but the empty line ("connect relay").
What needs no CONNECT needs a round trip less until a tunnel is there: its set-up is shown apart, and of new tunnels there is
a second figure of it ("asked"), with the client of all others. "direct" is no proxy at all. Each figure is the median of interleaved rounds; before each round every proxy is warmed up.
"""
import contextlib
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
import harness  # noqa: E402
import netlab  # noqa: E402

SERVER, SERVER_PORT, NAME = "11.2.0.10", 7000, "site.test"
TARGET = f"{SERVER}:{SERVER_PORT}"
BOUNDS = ("relay", "connect relay")


def client(kind, port, ask, *args, host="127.0.0.1", timeout=300):
    r = subprocess.run([harness.program("netbench"), f"tunnel-{kind}", host, str(port), ask, *map(str, args)],
                       capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL)
    if r.returncode:
        raise RuntimeError(f"netbench {kind} port {port}: {r.stderr.strip()}")
    return [float(w) for w in r.stdout.split()]


def plain():
    """What an ordinary user starts may do no more than that; root's programs drop their rights themselves."""
    return None if os.getuid() == 0 else netlab.drop_capabilities


# --- what a process costs ---

def tree(pid):
    """A process and its descendants."""
    out = [pid]
    for p in out:
        with contextlib.suppress(OSError):
            for t in os.listdir(f"/proc/{p}/task"):
                with open(f"/proc/{p}/task/{t}/children") as f:
                    out += [int(c) for c in f.read().split()]
    return out


def cpu(pid):
    """Seconds of a process by its clock (clock_getcpuclockid(3)): nanoseconds, threads that ended included."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def memory(pid):
    """Private bytes, PSS, heap, in KiB, and descriptors."""
    out = {"private": 0, "pss": 0, "fds": 0}
    for p in tree(pid):
        with contextlib.suppress(OSError):
            with open(f"/proc/{p}/smaps_rollup") as f:
                for row in f.read().splitlines()[1:]:
                    name, value = row.split(":")
                    out["private"] += int(value.split()[0]) if name.startswith("Private_") else 0
                    out["pss"] += int(value.split()[0]) if name == "Pss" else 0
        try:
            out["fds"] += len(os.listdir(f"/proc/{p}/fd"))
        except PermissionError:  # not dumpable, and this is not root
            out["fds"] = float("nan")
        except OSError:
            pass
    return out


# --- the proxies ---

class Peer:
    """One proxy: starts on a port of its own; `ask` is what the client asks it for ("-": nothing, its target is fixed)."""
    name, program, ask, by_name = "", "", TARGET, False
    idle_max = 10 ** 6
    rates = True  # many tunnels a second are no question of hours

    def __init__(self, lab):
        self.lab = lab
        self.port = harness.free_port()
        self.procs = []

    @classmethod
    def found(cls):
        return not cls.program or shutil.which(cls.program)

    def spawn(self, *argv):
        with open(self.lab.path("peer-log"), "a") as log:
            self.procs.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=plain(),
                                               start_new_session=True))  # as daemons are: the kernel shares out by session

    def write(self, text):
        path = self.lab.path(f"{self.name.replace(' ', '-')}-{self.port}.conf")
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, 0o644)
        return path

    def pids(self):
        return [p for root in self.procs for p in tree(root.pid)]

    def cpu(self):
        return sum(cpu(p) for p in self.pids())

    def memory(self):
        all_of = [memory(p.pid) for p in self.procs]
        return {k: sum(m[k] for m in all_of) for k in all_of[0]}

    def up(self):
        self.start()

        def answers():
            for p in self.procs:
                if p.poll() is not None:
                    raise RuntimeError(f"{self.name} ended with status {p.returncode}")
            try:
                return client("rate", self.port, self.ask, 1, 1)[1] == 0
            except RuntimeError:
                return False
        harness.wait_for(answers, 30, what=self.name)
        return self

    def down(self):
        for p in self.procs:
            p.terminate()
        for p in self.procs:
            try:
                p.wait(5)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()


class Sbxsv(Peer):
    name, by_name, path = "sbxsv", True, None

    def start(self):
        # A master, which holds the listener, and the worker, which does the work: both count.
        self.spawn(self.path or harness.program("sbxsv-proxy"), "--listen", f"127.0.0.1:{self.port}", "--allow-address", TARGET,
                   "--allow", f"{NAME}:{SERVER_PORT}", "--nameserver", self.lab.DNS)


class Tinyproxy(Peer):
    name, program, by_name = "tinyproxy", "tinyproxy", True

    def start(self):
        who = "User nobody\nGroup nogroup\n" if os.getuid() == 0 else ""
        self.spawn("tinyproxy", "-d", "-c", self.write(
            f"{who}Port {self.port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 100000\nLogLevel Critical\nAllow 127.0.0.1\n"
            f"ConnectPort {SERVER_PORT}\nDisableViaHeader Yes\n"))


class Squid(Peer):
    name, program, by_name = "squid", "squid", True

    def start(self):
        d = self.lab.path(f"squid-{self.port}")
        os.mkdir(d)
        if os.getuid() == 0:
            os.chmod(d, 0o777)
        who = "cache_effective_user nobody\ncache_effective_group nogroup\n" if os.getuid() == 0 else ""
        self.spawn("squid", "-N", "-f", self.write(
            f"{who}http_port 127.0.0.1:{self.port}\nhttp_access allow all\ncache deny all\naccess_log none\n"
            f"cache_log {d}/cache.log\npid_filename none\nvia off\nforwarded_for delete\nvisible_hostname bench\n"
            f"coredump_dir {d}\nshutdown_lifetime 0 seconds\ndns_nameservers {self.lab.DNS}\npinger_enable off\n"
            f"mime_table /usr/share/squid/mime.conf\n"))


class Haproxy(Peer):
    name, program, ask = "haproxy", "haproxy", "-"
    option, fds = "", 2

    def start(self):
        who = "user nobody\ngroup nogroup\n" if os.getuid() == 0 else ""
        limit = (resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 200) // self.fds
        self.spawn("haproxy", "-db", "-f", self.write(
            f"global\nmaxconn {min(limit, 20000)}\nnbthread 1\n{who}defaults\nmode tcp\n{self.option}timeout connect 10s\n"
            f"timeout client 600s\ntimeout server 600s\nlisten l\nbind 127.0.0.1:{self.port}\nserver s {TARGET}\n"))


class HaproxySplice(Haproxy):
    name, option, fds, idle_max = "haproxy splice", "option splice-auto\n", 3, 5000  # a fourth may be in need of a pipe


class Socat(Peer):
    name, program, ask, idle_max, rates = "socat pair", "socat", "-", 200, False

    def start(self):
        sock = self.lab.path(f"u{self.port}")
        self.spawn("socat", f"UNIX-LISTEN:{sock},fork", f"TCP4:{TARGET}")
        self.spawn("socat", f"TCP4-LISTEN:{self.port},fork,reuseaddr,backlog=1024,bind=127.0.0.1", f"UNIX-CONNECT:{sock}")


class Relay(Peer):
    name, ask, kind = "relay", "-", "relay"

    def start(self):
        self.spawn(harness.program("netbench"), self.kind, str(self.port), SERVER, str(SERVER_PORT))


class ConnectRelay(Relay):
    name, ask, kind = "connect relay", TARGET, "connect-relay"


class Asked:
    """A proxy with one fixed target, asked by CONNECT like the others; the server gives the answer."""
    ask, by_name = TARGET, False

    def __init__(self, peer):
        self.peer, self.name, self.port, self.procs, self.cpu = peer, f"{peer.name} asked", peer.port, peer.procs, peer.cpu


class Direct(Peer):
    name, ask = "direct", "-"

    def up(self):
        self.port = SERVER_PORT
        return self


OURS = (Sbxsv, Relay, ConnectRelay)
PEERS = (Sbxsv, Tinyproxy, Squid, Haproxy, HaproxySplice, Socat, Relay, ConnectRelay)


# --- one column ---

class Column:
    """One figure of every proxy. `more`: more is better. `apart`: shown, but they do something else."""

    def __init__(self, what, unit, more, results, peers, skip=(), apart=()):
        self.what, self.unit, self.more, self.results, self.apart = what, unit, more, results, apart
        self.values = {p.name: [] for p in peers if p.name not in skip}

    def add(self, peer, value):
        if peer.name in self.values:
            self.values[peer.name].append(value)

    def show(self, goal=True, tolerance=0.05, floor=0.0):
        """Ours beside the best peer and the bounds. floor: a difference below it is none (us, KiB)."""
        med = {n: statistics.median(v) for n, v in self.values.items() if v}
        if "sbxsv" not in med:
            return
        ours = med["sbxsv"]
        peers = {n: v for n, v in med.items() if n not in BOUNDS + ("sbxsv", "direct") + self.apart}
        best = (max if self.more else min)(peers, key=peers.get) if peers else None
        ratio = {n: ours / v if v else float("inf") for n, v in med.items()}
        text = f"connect   {self.what:46} sbxsv {ours:9.2f} {self.unit}"
        for n, v in sorted(med.items(), key=lambda i: i[1], reverse=self.more):
            text += "" if n == "sbxsv" else f"   {n} {v:.2f}" + (" (best)" if n == best else "")
        verdict = None
        if best:
            text += f"   ratio {ratio[best]:.2f} to {best}"
        for b in BOUNDS:
            text += f", {ratio[b]:.2f} to {b}" if b in ratio else ""
        if goal and best:
            near = 1 - tolerance if self.more else 1 + tolerance
            verdict = (ratio[best] >= near if self.more else ratio[best] <= near) or abs(ours - med[best]) <= floor
            text += "   first or within 5 %: " + ("ok" if verdict else "MISSED")
        if goal and "connect relay" in ratio and self.more and best:
            text += "   0.9 of the bound: " + ("ok" if ratio["connect relay"] >= 0.9 else "MISSED")
        print(text, flush=True)
        self.results.append({"part": "connect", "what": self.what, "unit": self.unit, "sbxsv": ours, "peers": med, "best": best,
                             "ratio": ratio.get(best), "ratio_bound": ratio.get("connect relay"), "ok": verdict,
                             "runs": self.values})


@contextlib.contextmanager
def network():
    with netlab.Lab() as lab:
        with contextlib.suppress(OSError):
            netlab.mount("tmpfs", "/dev/shm", "tmpfs")  # squid leaves things there
        # A minute of TIME_WAIT of every tunnel of every proxy: the range is as wide as it can be, and reused after a second.
        for where in (None, lab.inet):
            cmd = ["sh", "-c", "echo 33000 65535 > /proc/sys/net/ipv4/ip_local_port_range; "
                               "echo 1 > /proc/sys/net/ipv4/tcp_tw_reuse"]
            (where.popen(cmd) if where else subprocess.Popen(cmd)).wait()
        lab.dns({NAME: [SERVER]})
        lab.address(SERVER)
        server = lab.inet.popen([harness.program("netbench"), "server", str(SERVER_PORT)], stdin=subprocess.DEVNULL)
        lab.procs.append(server)
        harness.wait_for(lambda: can_connect(), 10, what="the server")
        yield lab


def can_connect():
    with contextlib.suppress(OSError), socket.create_connection((SERVER, SERVER_PORT), timeout=1):
        return True
    return False


@contextlib.contextmanager
def running(lab, kinds):
    peers = []
    try:
        for k in list(kinds):
            peers.append(k(lab))
            try:
                peers[-1].up()
            except (RuntimeError, AssertionError) as e:
                if k in OURS:
                    raise
                peers.pop().down()
                kinds.remove(k)  # not asked again
                with open(lab.path("peer-log")) as log:
                    print(f"connect   {k.name} does not start: {e}: {log.read()[-200:].strip()}")
        yield peers
    finally:
        for p in peers:
            p.down()


def chosen(o):
    kinds = []
    for k in PEERS:
        if o.only and k.name not in o.only.split(",") and k is not Sbxsv:
            continue
        if k.found():
            kinds.append(k)
        else:
            print(f"connect   {k.name}: not installed")
    return kinds


def throughput(o, lab, kinds, results):
    """MiB/s, and CPU seconds a GiB of the proxy, through one tunnel and through 50 at the same time."""
    for streams, mib in ((1, 16 if o.quick else 1024), (50, 1 if o.quick else 21)):
        with running(lab, kinds) as peers:
            everybody = [Direct(lab).up(), *peers]
            fast = Column(f"throughput, {streams} stream{'s' if streams > 1 else ''}", "MiB/s", True, results, everybody)
            # What the children of socat used is nowhere to be read once they ended: it does not wait for them.
            cost = Column(f"CPU of the proxy, {streams} stream{'s' if streams > 1 else ''}", "s/GiB", False, results, peers,
                          skip=("socat pair",))
            for _ in range(o.rounds):
                for p in everybody:
                    size = max(mib // 4, 1) if p.name in ("socat pair", "tinyproxy") else mib
                    client("tput", p.port, p.ask, 1, 1, **p_host(p))
                    before = p.cpu() if p.procs else 0
                    fast.add(p, client("tput", p.port, p.ask, size, streams, **p_host(p))[0])
                    if p.procs:
                        cost.add(p, (p.cpu() - before) * 1024 / (size * streams))
            fast.show()
            cost.show()


def p_host(p):
    return {"host": SERVER} if p.name == "direct" else {}


def rates(o, lab, kinds, results):
    n = 300 if o.quick else 10000
    with running(lab, [k for k in kinds if k.rates]) as peers:
        # Who has one fixed target gets both: a client that sends at once, and the client of all others, whose CONNECT it passes
        # on to the server, which says yes. Only the second is the same work for client and wire.
        asked = [Asked(p) for p in peers if p.ask == "-" and p.name not in BOUNDS]
        apart = tuple(a.peer.name for a in asked)
        everybody = [Direct(lab).up(), *peers, *asked]
        named = [p for p in peers if p.by_name]
        fast = Column("new tunnels, 32 at a time", "1/s", True, results, everybody, apart=apart)
        cost = Column("CPU of the proxy, one tunnel", "us", False, results, peers + asked, apart=apart)
        by_name = Column("new tunnels asked for by name", "1/s", True, results, named)
        for _ in range(o.rounds):
            for p in everybody:
                client("rate", p.port, p.ask, 64, 32, **p_host(p))
                before = p.cpu() if p.procs else 0
                per_s, failed = client("rate", p.port, p.ask, n, 32, **p_host(p))
                fast.add(p, per_s)
                if p.procs:
                    cost.add(p, (p.cpu() - before) * 1e6 / n)
                if failed:
                    o.failed.append(f"connect: {failed:.0f} of {n} tunnels of {p.name} failed")
            for p in named:
                client("rate", p.port, f"{NAME}:{SERVER_PORT}", 64, 32)
                by_name.add(p, client("rate", p.port, f"{NAME}:{SERVER_PORT}", n, 32)[0])
        fast.show()
        cost.show()
        by_name.show()


def latency(o, lab, kinds, results):
    n = 300 if o.quick else 5000
    with running(lab, kinds) as peers:
        direct = Direct(lab).up()
        # Who has one fixed target is asked for nothing, and needs a round trip less until a tunnel is there.
        fixed = tuple(p.name for p in peers if p.ask == "-")
        for kind, what, count, skip, apart in (("trip", "one-byte round trip in a tunnel, added", n, (), ()),
                                               ("setup", "tunnel set-up to the first byte, added", n // 2, ("socat pair",), fixed)):
            p50 = Column(f"{what} p50", "us", False, results, peers, skip, apart)
            p99 = Column(f"{what} p99", "us", False, results, peers, skip, apart)
            for _ in range(o.rounds):
                base = client(kind, direct.port, "-", count, host=SERVER)[0]  # the direct p50 is taken off both
                for p in peers:
                    if p.name in skip:
                        continue
                    a, b = client(kind, p.port, p.ask, count)
                    p50.add(p, a - base)
                    p99.add(p, b - base)
            p50.show(floor=2.0)
            p99.show(floor=5.0)


def jail(o, lab, _kinds, results):
    """The same client inside a jail: captured, and through the explicit proxy, beside a direct connection from outside."""
    n, mib = (300, 16) if o.quick else (10000, 1024)
    lab.resolv_conf(f"nameserver {lab.DNS}\n")
    bench = harness.program("netbench")
    env = {"PATH": "/usr/bin:/bin", "HOME": lab.dir, "LC_ALL": "C",
           "SBXSV_UNITS_DIR": os.environ.get("SBXSV_UNITS_DIR", os.path.join(harness.SOURCE, "units"))}

    def inside(kind, ask, *args):
        where = ("198.18.0.1", "3128") if ask != "-" else (NAME, str(SERVER_PORT))
        r = subprocess.run([harness.program("sbxsv"), "exec", "--quiet", "--read", bench, "--allow", f"{NAME}:{SERVER_PORT}", "--",
                            bench, f"tunnel-{kind}", *where, ask, *map(str, args)], cwd="/", env=env, text=True,
                           capture_output=True, timeout=300, stdin=subprocess.DEVNULL, preexec_fn=plain())
        if r.returncode:
            raise RuntimeError(f"in a jail, {kind}: exit {r.returncode}: {r.stderr.strip()}")
        return [float(w) for w in r.stdout.split()]
    for kind, what, unit, args in (("tput", "one stream out of a jail", "MiB/s", (mib, 1)),
                                   ("tput", "50 streams out of a jail", "MiB/s", (max(mib // 50, 1), 50)),
                                   ("rate", "new connections out of a jail", "1/s", (n, 32)),
                                   ("trip", "one-byte round trip out of a jail", "us", (n // 2,))):
        values = {"captured": [], "explicit proxy": [], "direct": []}
        for _ in range(o.rounds):
            for name, v in (("captured", inside(kind, "-", *args)), ("explicit proxy", inside(kind, f"{NAME}:{SERVER_PORT}", *args)),
                            ("direct", client(kind, SERVER_PORT, "-", *args, host=SERVER))):
                values[name].append(v[0])
                if kind == "rate" and v[1]:
                    o.failed.append(f"connect jail: {v[1]:.0f} of {n} connections failed ({name})")
        med = {k: statistics.median(v) for k, v in values.items()}
        print(f"connect   {what:46} sbxsv {med['captured']:9.2f} {unit} captured   {med['explicit proxy']:.2f} explicit proxy   "
              f"direct {med['direct']:.2f}   ratio {med['captured'] / med['direct']:.2f}, "
              f"{med['explicit proxy'] / med['direct']:.2f}", flush=True)
        results.append({"part": "connect", "what": what, "unit": unit, "sbxsv": med["captured"], "peers": med, "runs": values,
                        "ratio": med["captured"] / med["direct"]})


@contextlib.contextmanager
def idle_tunnels(p, n):
    c = subprocess.Popen([harness.program("netbench"), "tunnel-idle", "127.0.0.1", str(p.port), p.ask, str(n)], text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    row = c.stdout.readline()
    try:
        if row != f"{n} open\n":
            raise RuntimeError(f"{p.name}: {row.strip()} of {n} tunnels")
        yield
    finally:
        c.stdin.close()
        c.wait()
        c.stdout.close()


def idle(o, lab, kinds, results):
    """Private memory and descriptors of a tunnel on which nothing goes: a fresh proxy each time."""
    many = min(10000, (resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 500) // 2)
    for n, rounds in ((100, 1), (200, 1)) if o.quick else ((1000, o.rounds), (many, min(o.rounds, 3))):
        kind = [k for k in kinds if k.idle_max >= n]
        kib = Column(f"memory of an idle tunnel, {n} of them", "KiB", False, results, kind)
        whole = Column(f"private memory of the proxy with {n}", "MiB", False, results, kind)
        fds = Column(f"descriptors of an idle tunnel, {n} of them", "", False, results, kind)
        for _ in range(rounds):
            for k in list(kind):
                try:
                    with running(lab, [k]) as one:
                        if not one:
                            kind.remove(k)
                            kinds.remove(k)
                            continue
                        p = one[0]
                        client("rate", p.port, p.ask, 64, 16)
                        time.sleep(0.2)
                        before = p.memory()
                        with idle_tunnels(p, n):
                            time.sleep(0.2)
                            after = p.memory()
                        kib.add(p, (after["private"] - before["private"]) / n)
                        whole.add(p, after["private"] / 1024)
                        if after["fds"] == after["fds"]:
                            fds.add(p, (after["fds"] - before["fds"]) / n)
                except (RuntimeError, AssertionError) as e:
                    if k in OURS:
                        raise
                    print(f"connect   {k.name}, {n} idle tunnels: {e}")
        kib.show(floor=0.25)
        whole.show(floor=1.0)
        fds.show()


SECTIONS = {"throughput": throughput, "rates": rates, "latency": latency, "idle": idle, "jail": jail}


def connect(o, results, failed):
    """In the lab. o: quick, rounds, only (peers), sections."""
    o.failed = failed
    kinds = chosen(o)
    with network() as lab:
        for name, fn in SECTIONS.items():
            if not o.sections or name in o.sections.split(","):
                try:
                    fn(o, lab, kinds, results)
                except (RuntimeError, AssertionError, OSError, subprocess.SubprocessError) as e:
                    failed.append(f"connect {name}: {type(e).__name__}: {e}")


def growth(o, results, failed):
    """Many connections, one after the other in time: descriptors and memory stay where they were."""
    total, step = (4000, 1000) if o.quick else (o.connections, max(o.connections // 10, 1))
    rows = []
    with network() as lab, running(lab, [Sbxsv]) as (p,):
        client("rate", p.port, p.ask, 2000, 32)
        for done in range(0, total + 1, step):
            if done:
                per_s, lost = client("rate", p.port, p.ask, step, 32, timeout=3600)
                if lost:
                    failed.append(f"growth: {lost:.0f} of {step} failed")
            time.sleep(0.3)
            m = p.memory()
            m["heap"] = sum(heap(pid) for pid in p.pids())
            rows.append(m)
            fds = m["fds"] if m["fds"] == m["fds"] else "(for root to see)"
            print(f"growth    after {done:8} connections: {fds} fds, PSS {m['pss']} KiB, private {m['private']} KiB, "
                  f"heap {m['heap']} KiB" + (f", {per_s:.0f}/s" if done else ""), flush=True)
        if rows[-1]["fds"] > rows[0]["fds"]:
            failed.append(f"growth: {rows[-1]['fds'] - rows[0]['fds']} descriptors more than at the start")
        # One page of a ring or of a table that was made bigger once is not growth: the second half must be flat.
        if rows[-1]["private"] > rows[len(rows) // 2]["private"] + 64:
            failed.append(f"growth: private memory {rows[len(rows) // 2]['private']} KiB in the middle, {rows[-1]['private']} at the end")
    results.append({"part": "growth", "what": f"{total} connections", "start": rows[0], "end": rows[-1]})


def heap(pid):
    inside, kib = False, 0
    with open(f"/proc/{pid}/smaps") as f:
        for row in f:
            first = row.split()[0]
            if not first.endswith(":"):
                inside = row.rstrip().endswith("[heap]")
            elif inside and first == "Rss:":
                kib += int(row.split()[1])
    return kib


def in_lab(fn, o):
    """Runs a part in namespaces of its own; returns its (results, failed)."""
    fd, path = tempfile.mkstemp(prefix="sbxsv-bench-")
    os.close(fd)

    def body():
        results, failed = [], []
        fn(o, results, failed)
        with open(path, "w") as f:
            json.dump([results, failed], f)
    try:
        netlab.run_isolated(body, timeout=7200, keep_uid=True)
        with open(path) as f:
            return json.load(f)
    finally:
        os.unlink(path)
