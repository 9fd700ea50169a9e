"""One private sbxsv instance for a test, and small helpers around it. See tests/README.md.

Nothing here is shared between tests: directories, ports, users' processes and the marker in the environment belong to one
Instance, so tests run side by side (pytest -n 2). Whatever an instance started is found again by that marker and ended by
pid; a test whose apps outlive `down` fails in its teardown.
"""
import collections
import errno
import fcntl
import http.client
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = os.path.dirname(TESTS)
PYTHON = "/usr/bin/python3"  # of the distribution: a jailed app must find all of it below /usr
NODE = "/usr/bin/node"
ROOT = os.geteuid() == 0
TEST_USER = os.environ.get("SBXSV_TEST_USER", "sbxsvtest")  # apps of a root supervisor run as this user
MARK = "SBXSV_TEST_ID"
STEP = 0.02  # seconds between two looks at something that is waited for

Result = collections.namedtuple("Result", "code out err")


class WaitTimeout(AssertionError):
    pass


def wait_for(fn, timeout=30.0, what="condition", step=STEP):
    """Calls fn until it returns something true, and returns that. The timeout only guards against hanging."""
    end = time.monotonic() + timeout
    while True:
        value = fn()
        if value:
            return value
        if time.monotonic() > end:
            raise WaitTimeout(f"waited {timeout} s for {what}")
        time.sleep(step)


# --- where things are ---

def build_dir():
    """The directory with the built programs: $SBXSV_BUILD, or the source tree itself."""
    for d in (os.environ.get("SBXSV_BUILD"), os.environ.get("top_builddir"), SOURCE):
        if d and os.access(os.path.join(d, "sbxsvd"), os.X_OK):
            return os.path.abspath(d)
    raise RuntimeError("sbxsvd is not built: run make, and set SBXSV_BUILD to the build directory")


def program(name):
    return os.path.join(build_dir(), name)


def app_user():
    """passwd entry of the user that apps run as: ourselves, or a user that root makes."""
    if not ROOT:
        return pwd.getpwuid(os.getuid())
    try:
        return pwd.getpwnam(TEST_USER)
    except KeyError:
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", TEST_USER], check=True,
                       stdin=subprocess.DEVNULL)
        return pwd.getpwnam(TEST_USER)


def home_lock(alone):
    """Under root the tests share the home directory of the app user: those that make, remove or rename something in it are
    alone with it. A descriptor; closing it ends the lock."""
    fd = os.open(f"/var/tmp/sbxsv-test-home-{os.getuid()}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    return fd


# --- processes ---

def proc_start(pid):
    """Start time of a process (with its pid, a name for it that is never given again), or None."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            fields = f.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def all_pids():
    return [int(d) for d in os.listdir("/proc") if d.isdigit()]


def pids_with_mark(mark):
    """Living processes with the marker in their environment."""
    want = f"{MARK}={mark}".encode()
    found = []
    for pid in all_pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if want in f.read().split(b"\0") and proc_start(pid) is not None:
                    found.append(pid)
        except OSError:
            pass
    return found


def children(pid):
    """Living descendants of a process, itself not included."""
    parents = {}
    for p in all_pids():
        try:
            with open(f"/proc/{p}/stat", "rb") as f:
                parents[p] = int(f.read().rpartition(b")")[2].split()[1])
        except OSError:
            pass
    out, todo = [], [pid]
    while todo:
        top = todo.pop()
        more = [p for p, pp in parents.items() if pp == top]
        out += more
        todo += more
    return out


def describe(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f"{pid} ({f.read().replace(bytes(1), b' ').decode(errors='replace').strip()})"
    except OSError:
        return str(pid)


def lives(pid):
    """Neither gone nor a zombie that somebody has yet to reap."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def kill_pid(pid, sig=signal.SIGKILL):
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass


# --- network ---

_ports = None  # the number of a port is a byte of this file, locked until this process ends


def _open_ports():
    path = "/var/tmp/sbxsv-test-ports.lock"  # of all users: a port that a test has is nobody else's, also while nothing listens
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        os.fchmod(fd, 0o666)
        return fd
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)  # without O_CREAT: another user's file, fs.protected_regular


def free_port(host="127.0.0.1"):
    """A port nobody has, below the range the kernel hands out by itself, so that it stays free. Never the same twice."""
    global _ports
    if _ports is None:
        _ports = (_open_ports(), set())
    fd, given = _ports
    for _ in range(500):
        port = random.randint(20000, 32000)
        if port in given:
            continue
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:  # another process's
            continue
        given.add(port)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind((host, port))
            except OSError:
                continue
        return port
    raise RuntimeError("no free port")


HttpReply = collections.namedtuple("HttpReply", "status headers body text")


def http_request(port, path="/", method="GET", body=None, headers=None, host="127.0.0.1", timeout=20):
    c = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        c.request(method, path, body=body, headers=headers or {})
        r = c.getresponse()
        data = r.read()
        return HttpReply(r.status, r.headers, data, data.decode(errors="replace"))
    finally:
        c.close()


def http_get(port, path="/", **kw):
    return http_request(port, path, **kw)


class UnixHttp(http.client.HTTPConnection):
    def __init__(self, path, timeout=20):
        super().__init__("localhost", timeout=timeout)
        self.unix_path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.unix_path)


# --- the instance ---

class Instance:
    """Directories, environment and processes of one supervisor. `base` is short, for sun_path."""

    def __init__(self, base=None, env=None):
        self.mark = uuid.uuid4().hex
        # Not below /tmp: a jail has a /tmp of its own, and tests of that are separate.
        self.base = base or tempfile.mkdtemp(prefix="sx-", dir="/var/tmp")
        os.chmod(self.base, 0o755)
        self.user = app_user()
        self.config = os.path.join(self.base, "c")
        self.apps = os.path.join(self.config, "apps.d")
        self.state = os.path.join(self.base, "s")
        self.runtime = os.path.join(self.base, "r")
        self.home = os.path.join(self.base, "home")
        self.control = os.path.join(self.runtime, "control.sock")
        for d in (self.config, self.apps):
            os.mkdir(d, 0o755)
        self._own_dir(self.home)
        self.seen = {}  # pid -> start time, of every jail status ever showed
        self.procs = []
        self.env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8",
            "HOME": self.home, "USER": self.user.pw_name, "LOGNAME": self.user.pw_name, "TERM": "dumb",
            "SBXSV_CONFIG_DIR": self.config, "SBXSV_APPS_DIR": self.apps, "SBXSV_STATE_DIR": self.state,
            "SBXSV_RUNTIME_DIR": self.runtime,
            "SBXSV_UNITS_DIR": os.environ.get("SBXSV_UNITS_DIR", os.path.join(SOURCE, "units")),
            MARK: self.mark,
        }
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "LLVM_PROFILE_FILE"):
            if name in os.environ:
                self.env[name] = os.environ[name]
        self.env.update(env or {})
        if ROOT:
            self.write_conf("")

    def _own_dir(self, path, mode=0o755):
        os.mkdir(path, mode)
        if ROOT:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)
        return path

    # -- files --

    def app_dir(self, name, files=None):
        """A directory of the app's user below the instance's home, with files in it ({name: text})."""
        apps = os.path.join(self.home, "apps")
        if not os.path.isdir(apps):
            self._own_dir(apps)
        d = os.path.join(apps, name)
        if not os.path.isdir(d):
            self._own_dir(d)
        for rel, text in (files or {}).items():
            self.user_file(os.path.join(d, rel), text)
        return d

    def user_file(self, path, text="", mode=0o644):
        """A file that belongs to the app's user."""
        with open(path, "wb" if isinstance(text, bytes) else "w") as f:
            f.write(text)
        os.chmod(path, mode)
        if ROOT:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)
        return path

    def unit_path(self, name):
        return os.path.join(self.apps, name if "." in name else name + ".app")

    def write_unit(self, name, text, mark=True):
        """Writes apps.d/NAME.app in one step, and a drop-in that puts the marker into the app's environment."""
        if mark and "." not in name:
            d = self.unit_path(name) + ".d"
            os.makedirs(d, 0o755, exist_ok=True)
            with open(os.path.join(d, "00-test.conf"), "w") as f:
                f.write(f"[App]\nEnvironment={MARK}={self.mark}\n")
        path = self.unit_path(name)
        tmp = os.path.join(self.apps, "." + os.path.basename(path) + ".tmp")
        with open(tmp, "wb" if isinstance(text, bytes) else "w") as f:
            f.write(text)
        os.chmod(tmp, 0o644)
        os.rename(tmp, path)
        return path

    def remove_unit(self, name):
        os.unlink(self.unit_path(name))
        shutil.rmtree(self.unit_path(name) + ".d", ignore_errors=True)

    def write_conf(self, text):
        """sbxsv.conf. Under root the test user is the default user of apps."""
        head = f"[Supervisor]\nUser={self.user.pw_name}\n" if ROOT else ""
        with open(os.path.join(self.config, "sbxsv.conf"), "w") as f:
            f.write(head + text)

    def server_unit(self, name, port, body="", extra_app="", network=""):
        """A unit of a small HTTP server (tests/lib/appserver.py) in its own directory, and that directory."""
        d = self.app_dir(name)
        shutil.copy(os.path.join(TESTS, "lib", "appserver.py"), d)
        os.chmod(os.path.join(d, "appserver.py"), 0o644)
        self.write_unit(name, f"[App]\nExec={PYTHON} appserver.py\nWorkingDirectory={d}\n{extra_app}\n"
                              f"[Network]\nListen={port}\n{network}\n{body}\n")
        return d

    # -- running things --

    def sbxsv(self, *args, input=None, timeout=60, env=None, cwd=None):
        """(code, out, err) of the command."""
        e = dict(self.env, **(env or {}))
        p = subprocess.run([program("sbxsv"), *map(str, args)], input=input, capture_output=True, timeout=timeout,
                           env=e, cwd=cwd or self.base, text=not isinstance(input, bytes),
                           **({} if input is not None else {"stdin": subprocess.DEVNULL}))
        return Result(p.returncode, p.stdout, p.stderr)

    def ok(self, *args, **kw):
        """The command must succeed; its stdout."""
        r = self.sbxsv(*args, **kw)
        assert r.code == 0, f"sbxsv {' '.join(map(str, args))}: exit {r.code}\n{r.out}{r.err}"
        return r.out

    def up(self, *args):
        return self.ok("up", *args)

    def down(self, *args):
        return self.ok("down", *args)

    def foreground(self, *args, wait=True):
        """sbxsvd --foreground as our child (a Popen): for kill -9 and for its stderr."""
        log = open(os.path.join(self.base, "foreground.log"), "ab")
        p = self.spawn([program("sbxsvd"), "--foreground", *args], stderr=log, stdout=log)
        log.close()
        if wait:
            wait_for(lambda: self.answers() or p.poll() is not None, what="the control socket")
            assert p.poll() is None, self.read_text(os.path.join(self.base, "foreground.log"))
        return p

    def spawn(self, argv, **kw):
        """Any process of the test; ended by pid in the teardown."""
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("env", self.env)
        kw.setdefault("cwd", self.base)
        p = subprocess.Popen(argv, **kw)
        self.procs.append(p)
        return p

    def as_app_user(self, argv, **kw):
        """Like spawn, as the user the apps run as."""
        if ROOT:
            kw.update(user=self.user.pw_uid, group=self.user.pw_gid, extra_groups=[])
        return self.spawn(argv, **kw)

    # -- asking --

    def api(self, method, path, body=None, timeout=20):
        """One request over the control socket: (status, decoded JSON or text)."""
        c = UnixHttp(self.control, timeout)
        try:
            c.request(method, path, body=None if body is None else json.dumps(body),
                      headers={"Content-Type": "application/json"})
            r = c.getresponse()
            text = r.read().decode(errors="replace")
            is_json = r.headers.get("Content-Type", "").startswith("application/json")
            return r.status, json.loads(text) if is_json and text else text
        finally:
            c.close()

    def answers(self):
        try:
            return self.api("GET", "/v1/version", timeout=5)[0] == 200
        except OSError:
            return False

    def _note_pids(self, app):
        pid = app.get("pid")
        if pid and pid not in self.seen:
            start = proc_start(pid)
            if start is not None:
                self.seen[pid] = start

    def status(self, app=None):
        """The object of `status --json`: one app, or everything."""
        r = self.sbxsv("status", *([app] if app else []), "--json")
        assert r.code in (0, 3), f"status: exit {r.code}\n{r.out}{r.err}"
        s = json.loads(r.out)
        for a in [s] if app else s["apps"]:
            self._note_pids(a)
        return s

    def peek(self, app):
        """The same over the API, without a process: for loops. None when there is no such app."""
        code, s = self.api("GET", f"/v1/apps/{app}")
        if code != 200:
            return None
        self._note_pids(s)
        return s

    def wait_state(self, app, *states, timeout=60):
        """Waits until the app is in one of the states; its status."""
        last = {}

        def there():
            s = self.peek(app) or {}
            last.update(s)
            return s if s.get("state") in states else None
        try:
            return wait_for(there, timeout)
        except WaitTimeout:
            raise WaitTimeout(f"{app} is {last.get('state')}, not {' or '.join(states)}, after {timeout} s: "
                              f"{last.get('reason')}\n{self.log(app)[-2000:]}") from None

    def daemon_pid(self):
        return self.api("GET", "/v1/version")[1]["pid"]

    def proxy_pid(self):
        return self.api("GET", "/v1/status")[1]["supervisor"]["proxy"].get("pid")

    @staticmethod
    def read_text(path):
        try:
            with open(path, "rb") as f:
                return f.read().decode(errors="replace")
        except OSError as e:
            if e.errno != errno.ENOENT:
                raise
            return ""

    def log_path(self, app):
        s = self.peek(app)
        if s and s.get("log", {}).get("path"):
            return s["log"]["path"]
        return os.path.join(self.state, "logs", f"{app}.log")

    def log(self, app):
        try:
            return self.read_text(self.log_path(app))
        except OSError:
            return self.read_text(os.path.join(self.state, "logs", f"{app}.log"))

    def events(self, app=None, type=None):
        """Events in the file, oldest first."""
        out = []
        for name in ("events.jsonl.1", "events.jsonl"):
            for line in self.read_text(os.path.join(self.state, name)).splitlines():
                e = json.loads(line)
                if (app is None or e.get("app") == app) and (type is None or e.get("type") == type):
                    out.append(e)
        return out

    def wait_event(self, app=None, type=None, timeout=30, **fields):
        def there():
            for e in self.events(app, type):
                if all(e.get(k) == v for k, v in fields.items()):
                    return e
            return None
        return wait_for(there, timeout, what=f"event app={app} type={type} {fields}")

    # -- the end --

    def alive(self):
        """Every process of this instance that still lives."""
        pids = set(pids_with_mark(self.mark)) - {os.getpid()}
        pids |= {p for p, start in self.seen.items() if proc_start(p) == start}
        return sorted(pids)

    def mounts(self):
        with open("/proc/self/mountinfo") as f:
            return [line.split()[4] for line in f if line.split()[4].startswith(self.base + "/")]

    def report(self, out=sys.stdout):
        """What a person needs when a test failed."""
        for title, path in (("sbxsvd", os.path.join(self.state, "sbxsvd.log")),
                            ("sbxsvd --foreground", os.path.join(self.base, "foreground.log")),
                            ("events", os.path.join(self.state, "events.jsonl"))):
            text = self.read_text(path) if os.path.isfile(path) else ""
            if text:
                out.write(f"--- {title}: {path}\n{text[-6000:]}\n")
        logs = os.path.join(self.state, "logs")
        for name in sorted(n for n in os.listdir(logs) if os.path.isfile(os.path.join(logs, n))) if os.path.isdir(logs) else []:
            out.write(f"--- log {name}\n{self.read_text(os.path.join(logs, name))[-2000:]}\n")

    def close(self):
        """Takes everything down; returns what should not have been left (texts)."""
        problems = []
        try:
            if os.path.exists(self.control) and self.answers():
                r = self.sbxsv("down", timeout=30)
                if r.code != 0:
                    problems.append(f"down: exit {r.code} {r.out}{r.err}")
        except (subprocess.TimeoutExpired, OSError) as e:
            problems.append(f"down: {e}")
        for p in self.procs:
            if p.poll() is None:
                p.terminate()
                try:
                    p.wait(10)
                except subprocess.TimeoutExpired:
                    problems.append(f"{p.args[0]} ignored SIGTERM for 10 s")
                    p.kill()
                    p.wait()
            for f in (p.stdin, p.stdout, p.stderr):
                if f:
                    f.close()
        try:
            wait_for(lambda: not self.alive(), 5, what="the end of everything", step=0.05)
        except WaitTimeout:
            problems += [f"left behind: {describe(p)}" for p in self.alive()]
            for _ in range(20):
                left = self.alive()
                if not left:
                    break
                for p in left:
                    kill_pid(p)
                time.sleep(0.05)
        for m in reversed(self.mounts()):
            problems.append(f"mount left behind: {m}")
            subprocess.run(["umount", "-l", m], check=False)
        shutil.rmtree(self.base, ignore_errors=True)
        return problems
