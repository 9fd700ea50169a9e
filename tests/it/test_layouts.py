"""Where interpreters live under a home directory, and what of it a strict jail shows: exactly one installation.

Also what an app may reach by way of files: sockets and FIFOs of the host, its own data by full path, and what it cannot get by
rewriting its own links between two launches.
"""
import json
import os
import shutil
import socket
import stat
import uuid

import pytest

import harness

# Runs in the jail: writes what it sees to out.json, then stays.
PROBE = """
import json, os, sys, time
home = os.path.expanduser("~")
def names(d):
    try:
        return sorted(os.listdir(d))
    except OSError as e:
        return e.strerror
out = {"prefix": sys.prefix, "base": sys.base_prefix, "executable": sys.executable, "home": names(home),
       "local": names(home + "/.local"), "argv": sys.argv[1:]}
with open("out.tmp", "w") as f:
    json.dump(out, f)
os.rename("out.tmp", "out.json")
time.sleep(1000)
"""


def home_of(inst):
    """The home directory that apps have."""
    return inst.user.pw_dir if harness.ROOT else inst.home


class Tree:
    """Files of the app's user; what was made is removed again, for under root the home directory outlives the test."""

    def __init__(self, inst):
        self.inst, self.made = inst, []

    def dir(self, path):
        if not os.path.isdir(path):
            self.dir(os.path.dirname(path))
            os.mkdir(path, 0o755)
            self.own(path)
            self.made.append(path)
        return path

    def own(self, path):
        if harness.ROOT:
            os.chown(path, self.inst.user.pw_uid, self.inst.user.pw_gid, follow_symlinks=False)

    def file(self, path, text="", mode=0o644):
        self.dir(os.path.dirname(path))
        self.made.append(path)
        return self.inst.user_file(path, text, mode)

    def link(self, path, target):
        self.dir(os.path.dirname(path))
        os.symlink(target, path)
        self.own(path)
        self.made.append(path)

    def program(self, path, source):
        """A copy of a program; a hard link where that can be."""
        self.dir(os.path.dirname(path))
        try:
            os.link(os.path.realpath(source), path)
        except OSError:
            shutil.copy(source, path)
        self.made.append(path)

    def tree(self, path, source):
        self.dir(os.path.dirname(path))
        shutil.copytree(source, path, symlinks=True,
                        ignore=shutil.ignore_patterns("test", "tests", "dist-packages", "__pycache__", "lib2to3", "docs", "man"))
        self.made.append(path)

    def remove(self):
        for path in reversed(self.made):
            if os.path.isdir(path) and not os.path.islink(path):
                try:
                    os.rmdir(path)
                except OSError:
                    shutil.rmtree(path, ignore_errors=True) if uuid_in(path) else None
            elif os.path.lexists(path):
                os.unlink(path)


def uuid_in(path):
    return "sxt" in path


@pytest.fixture
def tree(inst):
    lock = harness.home_lock(alone=True)
    t = Tree(inst)
    yield t
    t.remove()
    os.close(lock)


def version():
    """A version nobody has, so that tests side by side do not meet in one home directory."""
    return "0.0.sxt" + uuid.uuid4().hex[:8]


def run_probe(inst, name, exec_line, extra="", sandbox=""):
    d = inst.app_dir(name, {"probe.py": PROBE})
    inst.write_unit(name, f"[App]\n{exec_line}\nWorkingDirectory={d}\n{extra}\n[Sandbox]\n{sandbox}\n")
    inst.up()
    return wait_out(inst, d)


def wait_out(inst, d):
    path = os.path.join(d, "out.json")
    harness.wait_for(lambda: os.path.exists(path), what=f"{path}; {inst.sbxsv('status').out}")
    with open(path) as f:
        return json.load(f)


def check_home(out, *may):
    """Nothing of the home directory shows but the way to what was granted."""
    assert set(out["home"]) <= set(may) | {"apps"}, out["home"]
    if ".local" not in may:
        assert out["local"] == "No such file or directory"


def python_install(tree, prefix):
    """A complete Python in a prefix of its own, out of the distribution's."""
    real = os.path.realpath(harness.PYTHON)
    name = os.path.basename(real)
    tree.program(f"{prefix}/bin/{name}", real)
    tree.link(f"{prefix}/bin/python3", name)
    tree.tree(f"{prefix}/lib/{name}", f"/usr/lib/{name}")
    return f"{prefix}/bin/python3"


def test_pyenv_version(inst, tree):
    home = home_of(inst)
    prefix = f"{home}/.pyenv/versions/{version()}"
    python = python_install(tree, prefix)
    tree.dir(f"{home}/.local/share")
    out = run_probe(inst, "a", f"Exec={python} probe.py")
    assert out["prefix"] == prefix
    check_home(out, ".pyenv")


def test_path_finds_it(inst, tree):
    home = home_of(inst)
    prefix = f"{home}/.pyenv/versions/{version()}"
    python_install(tree, prefix)
    out = run_probe(inst, "a", "Exec=python3 probe.py", f"Path={prefix}/bin")
    assert out["prefix"] == prefix


def test_venv_of_a_python_under_home(inst, tree):
    """The links and pyvenv.cfg lie where the app writes; they lead into a known layout."""
    home = home_of(inst)
    prefix = f"{home}/.pyenv/versions/{version()}"
    python = python_install(tree, prefix)
    d = inst.app_dir("a")
    tree.link(f"{d}/.venv/bin/python", python)
    tree.file(f"{d}/.venv/pyvenv.cfg", f"home = {prefix}/bin\n")
    out = run_probe(inst, "a", f"Exec={d}/.venv/bin/python probe.py")
    assert out["prefix"] == f"{d}/.venv" and out["base"] == prefix
    check_home(out, ".pyenv")


def test_script_of_a_venv(inst, tree):
    d = inst.app_dir("a", {"probe.py": PROBE})
    tree.link(f"{d}/.venv/bin/python", harness.PYTHON)
    tree.file(f"{d}/.venv/pyvenv.cfg", "home = /usr/bin\n")
    tree.file(f"{d}/.venv/bin/tool", f"#!{d}/.venv/bin/python\n{PROBE}", 0o755)
    out = run_probe(inst, "a", f"Exec={d}/.venv/bin/tool x")
    assert out["prefix"] == f"{d}/.venv" and out["argv"] == ["x"]


def test_tool_in_local_bin(inst, tree):
    """pipx: ~/.local/bin/tool is a link into ~/.local/share; nothing else of ~/.local shows."""
    home = home_of(inst)
    name = "tool" + version()
    venv = f"{home}/.local/share/pipx/venvs/{name}"
    tree.link(f"{venv}/bin/python", harness.PYTHON)
    tree.file(f"{venv}/pyvenv.cfg", "home = /usr/bin\n")
    tree.file(f"{venv}/bin/{name}", f"#!{venv}/bin/python\n{PROBE}", 0o755)
    tree.link(f"{home}/.local/bin/{name}", f"{venv}/bin/{name}")
    tree.file(f"{home}/.local/share/{name}-private", "x")
    out = run_probe(inst, "a", f"Exec={home}/.local/bin/{name}")
    assert out["prefix"] == venv
    assert out["local"] == ["bin", "share"]
    check_home(out, ".local")


def test_shim(inst, tree):
    """pyenv's shims: the script runs the manager, which looks into its own directory."""
    home = home_of(inst)
    if os.path.exists(f"{home}/.pyenv"):
        pytest.skip("this home directory has a pyenv already")
    tree.file(f"{home}/.pyenv/shims/python3", f'#!/usr/bin/env bash\nexec {home}/.pyenv/libexec/pyenv exec python3 "$@"\n', 0o755)
    tree.file(f"{home}/.pyenv/libexec/pyenv",
              f'#!/usr/bin/env bash\nshift 2\nexec {home}/.pyenv/versions/$(cat {home}/.pyenv/version)/bin/python3 "$@"\n', 0o755)
    v = version()
    tree.file(f"{home}/.pyenv/version", v + "\n")
    python_install(tree, f"{home}/.pyenv/versions/{v}")
    out = run_probe(inst, "a", "Exec=python3 probe.py", f"Path={home}/.pyenv/shims")
    assert out["prefix"] == f"{home}/.pyenv/versions/{v}"
    check_home(out, ".pyenv")


NODE_PROBE = """
const fs = require("fs"), os = require("os");
const names = d => { try { return fs.readdirSync(d).sort(); } catch (e) { return e.code; } };
fs.writeFileSync("out.tmp", JSON.stringify({exec: process.execPath, home: names(os.homedir()), local: "No such file or directory"}));
fs.renameSync("out.tmp", "out.json");
setInterval(() => {}, 1e6);
"""


@pytest.mark.skipif(not os.path.exists(harness.NODE), reason="no Node")
def test_nvm_npm_start(inst, tree):
    """npm's entry point is under lib, not bin; `npm start` is sh, npm and node."""
    npm = os.path.realpath("/usr/bin/npm")
    if not npm.endswith("/npm/bin/npm-cli.js"):
        pytest.skip("no npm of the usual layout")
    home = home_of(inst)
    prefix = f"{home}/.nvm/versions/node/v{version()}"
    tree.program(f"{prefix}/bin/node", harness.NODE)
    tree.dir(f"{prefix}/lib/node_modules")
    shutil.copytree(os.path.dirname(os.path.dirname(npm)), f"{prefix}/lib/node_modules/npm", symlinks=True,
                    ignore=shutil.ignore_patterns("docs", "man"))
    tree.made.append(f"{prefix}/lib/node_modules/npm")
    tree.link(f"{prefix}/bin/npm", "../lib/node_modules/npm/bin/npm-cli.js")
    d = inst.app_dir("a", {"app.js": NODE_PROBE, "package.json": json.dumps({"name": "a", "scripts": {"start": "node app.js"}})})
    inst.write_unit("a", f"[App]\nExec=npm start\nPath={prefix}/bin\nWorkingDirectory={d}\n"
                         f"Environment=npm_config_cache={d}/.npm\n")
    inst.up()
    out = wait_out(inst, d)
    assert out["exec"] == f"{prefix}/bin/node"
    check_home(out, ".nvm")


def test_missing_program_names_the_line(inst, tree):
    home = home_of(inst)
    name = "tool" + version()
    prefix = f"{home}/.nvm/versions/node/v{version()}"
    tree.file(f"{prefix}/bin/{name}", "#!/bin/sh\n", 0o755)
    inst.write_unit("a", f"[App]\nExec={name}\nWorkingDirectory={inst.app_dir('a')}\n")
    r = inst.sbxsv("check", "a")
    assert r.code == 1 and f"a.app:2: " in r.out and f"add Path={prefix}/bin" in r.out


def test_the_app_cannot_widen_its_next_launch(inst, tree):
    """Between two launches an app turns its own interpreter link to somebody else's file: the next launch is refused."""
    diary = inst.user_file(os.path.join(inst.home, "diary"), "dear diary", 0o755)
    d = inst.app_dir("a", {"probe.py": PROBE})
    tree.link(f"{d}/run", harness.PYTHON)
    inst.write_unit("a", f"[App]\nExec={d}/run probe.py\nWorkingDirectory={d}\n[Restart]\nPolicy=no\n")
    inst.up()
    wait_out(inst, d)
    os.unlink(f"{d}/run")
    os.symlink(diary, f"{d}/run")
    r = inst.sbxsv("restart", "a")
    assert r.code != 0
    assert inst.wait_state("a", "failed")
    assert "the app itself can write" in inst.sbxsv("status", "a").out + r.err + r.out


def test_data_by_full_path_below_a_hidden_tree(inst):
    """The tree above holds other apps' data: SQLite opens its own database by full path all the same."""
    home = inst.home
    for name in ("one", "two"):
        d = inst.app_dir(name, {"db.py": DATABASE})
        inst.write_unit(name, f"[App]\nExec={harness.PYTHON} db.py {home}/.data/{name} {home}/.data\nWorkingDirectory={d}\n"
                              f"DataDirectory={home}/.data/{name}\n[Sandbox]\nReadMode={'open' if name == 'two' else 'strict'}\n")
    inst.up()
    for name, other in (("one", "two"), ("two", "one")):
        out = wait_out(inst, inst.app_dir(name))
        assert out["rows"] == 1 and out["other"] in ("No such file or directory", "Permission denied"), out
        s = os.stat(f"{home}/.data/{name}")
        assert stat.S_IMODE(s.st_mode) == 0o700 and s.st_uid == inst.user.pw_uid
    # two was started after one's data existed or not; a second launch sees both
    inst.ok("restart", "two")
    os.unlink(os.path.join(inst.app_dir("two"), "out.json"))
    inst.ok("restart", "two")
    assert wait_out(inst, inst.app_dir("two"))["other"] in ("No such file or directory", "Permission denied")


DATABASE = """
import json, os, sqlite3, sys, time
mine, above = sys.argv[1:]
db = sqlite3.connect(mine + "/x.sqlite")
db.execute("create table if not exists t (a)")
db.execute("delete from t")
db.execute("insert into t values (1)")
db.commit()
other = above + ("/two" if mine.endswith("one") else "/one") + "/x.sqlite"
try:
    open(other, "rb").read(1)
    what = "read"
except OSError as e:
    what = e.strerror
with open("out.tmp", "w") as f:
    json.dump({"rows": db.execute("select count(*) from t").fetchone()[0], "other": what}, f)
os.rename("out.tmp", "out.json")
time.sleep(1000)
"""

# Tries to reach sockets and a FIFO by path; argv: names.
REACH = """
import json, os, socket, sys, time
out = {}
for path in sys.argv[1:]:
    try:
        if path.endswith(".fifo"):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        elif path.endswith(".own"):
            s = socket.socket(socket.AF_UNIX)
            if os.path.exists(path):
                os.unlink(path)
            s.bind(path)
        else:
            a, b = socket.socketpair()
            s = socket.socket(socket.AF_UNIX)
            s.connect(path)
        out[path] = "ok"
    except OSError as e:
        out[path] = e.strerror
with open("out.tmp", "w") as f:
    json.dump(out, f)
os.rename("out.tmp", "out.json")
time.sleep(1000)
"""


def reach(inst, name, paths, sandbox):
    d = inst.app_dir(name, {"reach.py": REACH})
    inst.write_unit(name, f"[App]\nExec={harness.PYTHON} reach.py {' '.join(paths)}\nWorkingDirectory={d}\n[Sandbox]\n{sandbox}\n")
    return d


def listen(path):
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    os.chmod(path, 0o777)
    s.listen(4)
    s.setblocking(False)
    return s


@pytest.mark.parametrize("mode", ["strict", "allowlist", "open"])
def test_host_sockets(inst, mode):
    """In a readable folder, before the launch and after: not connectable in any mode; FIFOs not writable."""
    folder = os.path.join(inst.home, "project")
    inst._own_dir(folder)
    early, late, fifo = f"{folder}/early.sock", f"{folder}/late.sock", f"{folder}/x.fifo"
    os.mkfifo(fifo)
    os.chmod(fifo, 0o777)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with listen(early) as one:
        d = reach(inst, "a", [early, late, fifo], f"ReadMode={mode}\nRead={folder}")
        inst.up()
        out = wait_out(inst, d)
        assert "ok" not in out.values(), out
        with listen(late) as two:
            os.unlink(f"{d}/out.json")
            inst.ok("restart", "a")
            out = wait_out(inst, d)
            assert "ok" not in out.values(), out
            for s in (one, two):
                with pytest.raises(BlockingIOError):
                    s.accept()
    os.close(reader)


def test_live_socket_in_the_apps_own_folder(inst):
    """A developer's server in the app's folder is a stranger; the app's own leftovers are its own."""
    d = inst.app_dir("a")
    with listen(f"{d}/dev.sock") as dev:
        reach(inst, "a", [f"{d}/dev.sock", f"{d}/app.own"], "")
        inst.up()
        out = wait_out(inst, d)
        assert "ok" not in out.values(), out
        with pytest.raises(BlockingIOError):
            dev.accept()
    os.unlink(f"{d}/out.json")
    inst.ok("restart", "a")  # nobody listens any more
    out = wait_out(inst, d)
    assert out == {f"{d}/dev.sock": "Connection refused", f"{d}/app.own": "ok"}, inst.peek("a")["isolation"]
    os.unlink(f"{d}/out.json")
    inst.ok("restart", "a")  # app.own is there now, left over by the app itself
    assert wait_out(inst, d)[f"{d}/app.own"] == "ok", inst.peek("a")["isolation"]


def test_unix_socket_grants_one(inst):
    folder = os.path.join(inst.home, "project")
    inst._own_dir(folder)
    with listen(f"{folder}/yes.sock"), listen(f"{folder}/no.sock") as no:
        d = reach(inst, "a", [f"{folder}/yes.sock", f"{folder}/no.sock"], f"Read={folder}\nUnixSocket={folder}/yes.sock")
        inst.up()
        out = wait_out(inst, d)
        assert out[f"{folder}/yes.sock"] == "ok" and out[f"{folder}/no.sock"] != "ok"
        with pytest.raises(BlockingIOError):
            no.accept()


def test_control_socket_even_by_mistake(inst):
    for name, line in (("a", f"UnixSocket={inst.control}"), ("b", f"Read={inst.runtime}"), ("c", f"Read={inst.base}")):
        inst.write_unit(name, f"[App]\nExec=/bin/true\nWorkingDirectory={inst.app_dir(name)}\n[Sandbox]\n{line}\n")
    inst.up()
    for name in "abc":
        inst.wait_state(name, "failed")
        assert "is refused" in inst.sbxsv("status", name).out


WRITER = """
import json, os, sys, time
out = {}
def attempt(name, fn):
    try:
        fn()
        out[name] = "ok"
    except OSError as e:
        out[name] = e.strerror
attempt("in", lambda: open("a/bin/ls", "w"))
attempt("rename", lambda: os.rename("a", "b"))
attempt("beside", lambda: open("a/x", "w"))
with open("out.tmp", "w") as f:
    json.dump(out, f)
os.rename("out.tmp", "out.json")
time.sleep(1000)
"""


def test_a_directory_of_path_stays_what_it_is(inst, tree):
    """A directory of the person's PATH inside the app's own: neither written to nor exchanged by renaming what is above."""
    d = inst.app_dir("a", {"w.py": WRITER})
    tree.dir(f"{d}/a/bin")
    inst.env["PATH"] += f":{d}/a/bin"
    inst.write_unit("a", f"[App]\nExec={harness.PYTHON} w.py\nWorkingDirectory={d}\n")
    inst.up()
    assert wait_out(inst, d) == {"in": "Read-only file system", "rename": "Device or resource busy", "beside": "ok"}
