"""What the supervisor says of its apps beside what the kernel says of them: processes, ports, namespaces, descriptors.

A look at both takes time, and apps live meanwhile: only disagreement that lasts counts (agree()).
"""
import collections
import os
import time

from harness import MARK, ROOT, all_pids, describe, proc_start

NAMESPACES = ("pid", "net", "mnt", "user")
RESTING = ("stopped", "failed", "backoff", "idle", "waiting")  # nothing runs

Process = collections.namedtuple("Process", "pid parent state start app spaces")


def spaces_of(pid):
    """{kind: inode} of those namespaces of a process that may be read."""
    out = {}
    for kind in NAMESPACES:
        try:
            out[kind] = os.readlink(f"/proc/{pid}/ns/{kind}")
        except OSError:
            pass
    return out


def processes(mark):
    """Every process by its pid, and of those of the instance's apps which app they say they are."""
    want, out = f"{MARK}={mark}".encode(), {}
    for pid in all_pids():
        try:
            with open(f"/proc/{pid}/stat", "rb") as f:
                fields = f.read().rpartition(b")")[2].split()
        except OSError:
            continue
        app = None
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                env = f.read().split(b"\0")
            if want in env:
                app = next((e[10:].decode() for e in env if e.startswith(b"SBXSV_APP=")), None)
        except OSError:
            pass
        out[pid] = Process(pid, int(fields[1]), fields[0].decode(), int(fields[19]), app, spaces_of(pid) if app else {})
    return out


def living(inst):
    """The processes of the instance's apps."""
    return [p for p in processes(inst.mark).values() if p.app and p.state not in "ZX"]


def links(pid):
    """Where its descriptors lead."""
    out = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            out.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass
    return out


def listeners(pid):
    """Ports on which sockets of this process listen."""
    inodes, ports = set(links(pid)), []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as f:
            for line in f.readlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                    ports.append(int(fields[1].rpartition(":")[2], 16))
    return sorted(ports)


def descriptors(inst, daemon):
    """How many the supervisor has, and the proxy where that may be seen: it is not dumpable, closed to its own user."""
    return [len(os.listdir(f"/proc/{p}/fd")) for p in ((daemon, inst.proxy_pid()) if ROOT else (daemon,))]


def kinds_of_descriptors(inst, daemon):
    return collections.Counter(n.partition(":")[0] for p in ((daemon, inst.proxy_pid()) if ROOT else (daemon,)) for n in links(p))


class View:
    """One look at both. `agreed` is false also when too much happened meanwhile to say anything; `text` says what differs."""

    def __init__(self, inst, daemon):
        def pids(s):
            return {a["name"]: (a["state"], a.get("pid")) for a in s["apps"]}, s["supervisor"]["proxy"].get("pid")
        self.daemon, self.text = daemon, ""
        code, before = inst.api("GET", "/v1/status")
        self.seen = processes(inst.mark)
        self.ports, self.links = listeners(daemon), links(daemon)
        after = inst.api("GET", "/v1/status")[1]
        self.apps = {a["name"]: a for a in before["apps"]} if code == 200 else {}
        self.agreed = code == 200 and pids(before) == pids(after)
        if not self.agreed:
            self.text = "always changing"
            return
        self.proxy = before["supervisor"]["proxy"].get("pid")
        self.judge()

    def top(self, pid):
        """The child of the supervisor that a process descends from."""
        while pid in self.seen and self.seen[pid].parent != self.daemon:
            pid = self.seen[pid].parent
        return pid

    def judge(self):
        tops = {self.top(a["pid"]): name for name, a in self.apps.items() if a.get("pid")}
        kids = {p.pid for p in self.seen.values() if p.parent == self.daemon}
        known = set(tops) | ({self.proxy} if self.proxy else set())
        strays = [p for p in self.seen.values() if p.app and tops.get(self.top(p.pid)) != p.app]
        held = sorted(p["host"] for a in self.apps.values() for p in a["ports"] if p["state"] == "held")
        self.expect([
            ("children of sbxsvd", sorted(kids), sorted(known)),
            ("zombies", [p for p in kids if self.seen[p].state == "Z"], []),
            ("processes that no app has", [describe(p.pid) for p in strays], []),
            ("processes of what does not run", [n for n, a in self.apps.items() if a.get("pid") and a["state"] in RESTING], []),
            ("apps that run without a process", [n for n, a in self.apps.items() if not a.get("pid") and a["state"] in ("running", "unhealthy")], []),
            ("ports that sbxsvd listens on", self.ports, held),
            ("jails with a namespace in common", self.shared_spaces(), []),
            ("namespaces kept for nobody", self.kept_spaces(tops), []),
        ])

    def jailed(self):
        return [p for p in self.seen.values() if p.app and self.apps.get(p.app, {}).get("isolation", {}).get("pid_ns")]

    def shared_spaces(self):
        """Each jail has its own, and the machine's are nobody's. A jail may make more, inside."""
        own, host, out = {}, spaces_of("self"), []
        for p in self.jailed():
            for kind, inode in p.spaces.items():
                if inode == host.get(kind) or own.setdefault(inode, p.app) != p.app:
                    out.append((p.app, inode))
        return out

    def kept_spaces(self, tops):
        """What a descriptor of the supervisor keeps alive belongs to a process of an app that runs."""
        lives = {inode for p in self.seen if self.top(p) in tops for inode in spaces_of(p).values()}
        readable = any("net" in self.seen[p].spaces for p in self.seen)
        return [x for x in self.links if x.partition(":")[0] in NAMESPACES and x not in lives] if readable else []

    def expect(self, figures):
        wrong = "; ".join(f"{what}: {got}, not {want}" for what, got, want in figures if got != want)
        if wrong:
            self.agreed = False
            self.text = "; ".join(t for t in (self.text, wrong) if t)


def agree(inst, daemon, more=lambda view: None, timeout=60):
    """Waits until both say the same, and returns that look. `more(view)` adds what this test expects by view.expect()."""
    end = time.monotonic() + timeout
    while True:
        assert proc_start(daemon) is not None and inst.daemon_pid() == daemon, "sbxsvd is not who it was"
        view = View(inst, daemon)
        if view.agreed:
            more(view)
        if view.agreed:
            return view
        assert time.monotonic() < end, view.text
        time.sleep(0.03)
