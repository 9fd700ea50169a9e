"""Hidden places stay hidden while the host changes them under a running app, in `open` and below Read= in strict."""
import ctypes
import os
import shutil
import socket
import threading
from urllib.parse import quote

import harness
import jailbox
import pytest

SECRETS = [".git-credentials", ".netrc", ".npmrc", ".ssh/id_ed25519", ".config/gh/hosts.yml",
           ".local/share/keyrings/login.keyring", ".aws/credentials", ".cargo/credentials.toml"]


class App:
    """A running app that reads what it is told to."""

    def __init__(self, inst, sandbox, **kw):
        self.inst = inst
        self.port = harness.free_port()
        self.dir = inst.server_unit("nosy", self.port, body=f"[Sandbox]\n{sandbox}", **kw)

    def up(self):
        self.inst.up()
        self.inst.wait_state("nosy", "running")
        return self

    def get(self, what, path):
        return harness.http_get(self.port, f"/{what}?p={quote(path)}").text

    def sees(self, path):
        text = self.get("read", path)
        assert text.endswith("\n") or "Error" in text, text
        return "Error" not in text

    def names(self, path):
        return self.get("ls", path).splitlines()


@pytest.fixture
def box(inst):
    b = jailbox.Box(inst, "open", alone=True)
    yield b
    b.close()


def replace(inst, path, text="fresh\n"):
    """As editors and credential helpers save."""
    inst.user_file(path + ".lock", text, 0o644)
    os.rename(path + ".lock", path)


def recreate(inst, directory, name, text="fresh\n"):
    shutil.rmtree(directory)
    inst._own_dir(directory)
    inst.user_file(os.path.join(directory, name), text)


def check_path(inst, path):
    """What `sbxsv check --path` says: may it be read?"""
    r = inst.sbxsv("check", "--path", "nosy", path)
    assert r.code in (0, 6), r.err
    return r.code == 0


def test_open_secrets_that_are_there(inst, box):
    """Replaced by renaming, removed and made again, with everything above them renamed."""
    there = [box.secret(rel, "old\n") for rel in SECRETS[:6]]
    plain = box.secret("hidden-plain.txt", "plain\n")
    app = App(inst, "ReadMode=open\n").up()
    home, config = box.home, os.path.join(box.home, ".config")

    assert [p for p in there if app.sees(p)] == []
    for path in there[:3]:
        replace(inst, path)
        assert not app.sees(path), path
        os.unlink(path)
        inst.user_file(path, "fresh\n")
        assert not app.sees(path), path
    recreate(inst, f"{home}/.ssh", "id_ed25519")
    recreate(inst, f"{config}/gh", "hosts.yml")
    assert [p for p in there if app.sees(p)] == []
    os.rename(config, config + ".away")
    box.made.append(config + ".away")
    try:
        for d in (config, config + "/gh"):
            inst._own_dir(d)
        inst.user_file(f"{config}/gh/hosts.yml", "fresh\n")
        assert [p for p in there if app.sees(p)] == []
        assert not app.sees(f"{config}.away/gh/hosts.yml")
    finally:
        shutil.rmtree(config)
        os.rename(config + ".away", config)
    assert app.sees(plain) and app.sees("/etc/passwd")


def test_open_secrets_that_come(inst, box):
    """Neither they nor the directories they lie in were there."""
    for rel in SECRETS:
        assert not os.path.exists(os.path.join(box.home, rel)), "left behind by another test"
    app = App(inst, "ReadMode=open\n").up()
    paths = [box.secret(rel, "fresh\n") for rel in SECRETS]
    assert [p for p in paths if app.sees(p)] == []
    # the command asks the same plan, made of the disk as it is now
    assert [p for p in paths if check_path(inst, p)] == []
    inst.ok("restart", "nosy")
    inst.wait_state("nosy", "running")
    assert [p for p in paths if app.sees(p)] == []


def test_open_a_secret_behind_a_symlink(inst, box):
    """~/.netrc and ~/.config/gh are links into a directory of dotfiles; then the links are exchanged."""
    dots = os.path.join(box.home, "hidden-dots")
    box.secret("hidden-dots/netrc", "old\n")
    box.secret("hidden-dots/gh/hosts.yml", "old\n")
    box.secret(".config/hidden-beside", "plain\n")
    for link, target in ((".netrc", "hidden-dots/netrc"), (".config/gh", "../hidden-dots/gh")):
        os.symlink(target, os.path.join(box.home, link))
        box.made.append(os.path.join(box.home, link))
    app = App(inst, "ReadMode=open\n").up()
    netrc, gh = os.path.join(box.home, ".netrc"), os.path.join(box.home, ".config/gh")
    paths = [netrc, gh + "/hosts.yml", dots + "/netrc", dots + "/gh/hosts.yml"]
    assert [p for p in paths if app.sees(p)] == []
    replace(inst, netrc)
    os.unlink(gh)
    inst._own_dir(gh)
    inst.user_file(gh + "/hosts.yml", "fresh\n")
    replace(inst, dots + "/netrc")
    recreate(inst, dots + "/gh", "hosts.yml")
    assert [p for p in paths if app.sees(p)] == []


def test_open_shows_the_rest(inst, box):
    """Other files of the home directory, odd names, links, and the app's own database by its full path."""
    box.secret(".netrc")
    odd = [b"hidden \xff\n", b"hidden-plain", b"hidden \"'$x", b"hidden-" + b"n" * 240]
    home = os.fsencode(box.home)
    for name in odd:
        inst.user_file(os.path.join(home, name), "plain\n")
        box.made.append(os.path.join(home, name))
    os.symlink("hidden-plain", os.path.join(box.home, "hidden-link"))
    os.mkfifo(os.path.join(box.home, "hidden-fifo"))
    box.made += [os.path.join(box.home, "hidden-link"), os.path.join(box.home, "hidden-fifo")]
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(os.path.join(box.home, "hidden-sock"))
    box.made.append(os.path.join(box.home, "hidden-sock"))
    data = os.path.join(box.home, ".hidden-app", "data")
    box.made.append(os.path.dirname(data))
    app = App(inst, "ReadMode=open\n", extra_app=f"DataDirectory={data}").up()
    for name in odd[1:] + [b"hidden-link"]:
        assert app.sees(os.path.join(home, name)), name
    # the first is no UTF-8, which the server's URLs have to be
    assert harness.http_get(app.port, "/sh?c=" + quote(f"cat {box.home}/hidden\\ ??")).text == "plain\n"
    names = harness.http_get(app.port, "/sh?c=" + quote(f"ls -A {box.home}")).text.splitlines()
    assert "hidden-link" in names and ".netrc" in names
    assert not {"hidden-fifo", "hidden-sock"} & set(names)
    assert app.get("write", f"{data}/db") == "written" and app.sees("/etc/passwd")
    assert open(f"{data}/db").read() == "x"
    for top in ("/usr", "/etc", "/proc", "/dev", "/tmp", "/home"):
        assert os.path.basename(top) in app.names("/"), top
    sql = ("import sqlite3,sys; d=sqlite3.connect(sys.argv[1]); d.execute('create table if not exists t(x)'); "
           "d.execute('insert into t values(1)'); d.commit(); print(d.execute('select count(*) from t').fetchone())")
    out = harness.http_get(app.port, "/sh?c=" + quote(f"/usr/bin/python3 -c \"{sql}\" {data}/sql.db 2>&1")).text
    assert "(1,)" in out


@pytest.mark.parametrize("way", ["file", "directory", "absent", "link"])
def test_strict_hide_below_read(inst, way):
    """Read= of a tree with Hide= in it, in strict."""
    top = inst.app_dir("tree")
    for d in ("sub", "sub/deep"):
        inst._own_dir(f"{top}/{d}")
    inst.user_file(f"{top}/sub/plain", "plain\n")
    hidden = f"{top}/sub/deep/secret"
    if way == "file":
        inst.user_file(hidden, "old\n")
    elif way == "directory":
        inst._own_dir(hidden)
        inst.user_file(f"{hidden}/f", "old\n")
    elif way == "link":
        inst._own_dir(f"{top}/other")
        inst.user_file(f"{top}/other/real", "old\n")
        os.symlink("../../other/real", hidden)
    app = App(inst, f"Read={top}\nHide=-{hidden}\n").up()
    file = f"{hidden}/f" if way == "directory" else hidden
    assert not app.sees(file) and app.sees(f"{top}/sub/plain")
    if way == "directory":
        recreate(inst, hidden, "f")
    else:
        replace(inst, hidden)
    assert not app.sees(file)
    if way == "link":
        replace(inst, f"{top}/other/real")
        assert not app.sees(f"{top}/other/real")
    os.rename(f"{top}/sub", f"{top}/sub.away")
    assert not app.sees(file.replace("/sub/", "/sub.away/"))
    for d in ("sub", "sub/deep"):
        inst._own_dir(f"{top}/{d}")
    if way == "directory":
        inst._own_dir(hidden)
    inst.user_file(file, "fresh\n")
    assert not app.sees(file)


def test_a_covered_socket_is_bound_again(inst):
    """With AF_UNIX in the jail, another program's socket below Read= is covered, also when its server starts again."""
    top = inst.app_dir("tree", {"plain": "plain\n"})
    path = f"{top}/server.sock"
    with socket.socket(socket.AF_UNIX) as old, socket.socket(socket.AF_UNIX) as new:
        old.bind(path)
        old.listen(1)
        app = App(inst, f"Read={top}\nUnixSocket=-{inst.base}/absent.sock\n").up()
        assert app.get("unix", path) != "connected" and app.sees(f"{top}/plain")
        os.unlink(path)
        new.bind(path)
        os.chmod(path, 0o777)
        new.listen(1)
        assert app.get("unix", path) != "connected"
        new.settimeout(0)
        with pytest.raises(BlockingIOError):
            new.accept()


@pytest.mark.root
def test_an_environment_file_below_etc(inst, write_unit):
    """Another app's, which root edits: shown by no jail, though /etc is, and everybody may read it."""
    path, beside = f"/etc/sbxsv-hidden-{os.getpid()}.env", f"/etc/sbxsv-hidden-{os.getpid()}.plain"
    try:
        for p in (path, beside):
            with open(p, "w") as f:
                f.write("KEY=old\n")
            os.chmod(p, 0o644)
        d = inst.app_dir("other")
        write_unit("other", f"[App]\nShell=exec sleep 1000\nWorkingDirectory={d}\nEnvironmentFile={path}\nEnabled=no\n")
        app = App(inst, "").up()
        assert not app.sees(path) and app.sees(beside)
        with open(path + ".new", "w") as f:
            f.write("KEY=fresh\n")
        os.chmod(path + ".new", 0o644)
        os.rename(path + ".new", path)
        assert not app.sees(path) and app.sees(beside)
    finally:
        for p in (path, path + ".new", beside):
            if os.path.exists(p):
                os.unlink(p)


@pytest.mark.root
def test_the_home_of_somebody_else(inst):
    """What lies openly in it is shown; a careless token is not, nor one that comes."""
    home = f"/home/sbxsv-hidden-{os.getpid()}"
    os.mkdir(home, 0o755)
    try:
        for name in ("plain", ".npmrc"):
            with open(f"{home}/{name}", "w") as f:
                f.write("old\n")
        app = App(inst, "ReadMode=open\n").up()
        assert app.sees(f"{home}/plain") and not app.sees(f"{home}/.npmrc")
        for name in (".npmrc", ".pypirc"):
            with open(f"{home}/new", "w") as f:
                f.write("fresh\n")
            os.rename(f"{home}/new", f"{home}/{name}")
            assert not app.sees(f"{home}/{name}")
    finally:
        shutil.rmtree(home)


def test_the_command_agrees(inst, box):
    """`sbxsv check --path` and the running app, over what lies in the home directory."""
    box.secret(".netrc")
    box.secret(".ssh/id_ed25519")
    box.secret(".config/hidden-plain", "plain\n")
    box.secret("hidden-dir/plain", "plain\n")
    app = App(inst, "ReadMode=open\n").up()
    for rel in (".netrc", ".ssh/id_ed25519", ".config/hidden-plain", "hidden-dir/plain"):
        path = os.path.join(box.home, rel)
        assert app.sees(path) == check_path(inst, path), path
    assert not app.sees(os.path.join(inst.state, "events.jsonl"))
    assert not check_path(inst, os.path.join(inst.state, "events.jsonl"))


def landlock():
    """ABI of this kernel's Landlock; 0: none."""
    return max(0, ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1))


def bind_into(pid, source, target):
    """Mounts a file of the host at `target` in the mount namespace of a process."""
    libc = ctypes.CDLL(None, use_errno=True)
    ns = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    tree = libc.syscall(428, -100, os.fsencode(source), 1)  # open_tree(AT_FDCWD, OPEN_TREE_CLONE)
    assert tree >= 0
    child = os.fork()
    if child == 0:
        ok = libc.setns(ns, 0x20000) == 0  # CLONE_NEWNS
        ok = ok and libc.syscall(429, tree, b"", -100, os.fsencode(target), 4) == 0  # move_mount(F_EMPTY_PATH)
        os._exit(0 if ok else ctypes.get_errno() or 1)
    assert os.waitpid(child, 0)[1] == 0
    os.close(tree)
    os.close(ns)


@pytest.mark.root
@pytest.mark.skipif(landlock() < 2, reason="no Landlock here")
def test_the_second_layer_has_no_secrets_either(inst, box):
    """Were a cover to go away, Landlock would still refuse: its rules name the entries shown, not the directory."""
    netrc = box.secret(".netrc", "old\n")
    plain = box.secret("hidden-plain.txt", "plain\n")
    app = App(inst, "ReadMode=open\n").up()
    pid = inst.status("nosy")["pid"]
    bind_into(pid, plain, netrc)
    assert app.sees(netrc)  # the mount works: what is shown elsewhere may be read here too
    bind_into(pid, netrc, netrc)
    assert "PermissionError" in app.get("read", netrc)


def test_races_of_host_and_launch(inst, box):
    """The host changes everything all the time while apps are started: some launches may fail, none shows a secret."""
    for rel in SECRETS:
        box.secret(rel, "secret\n")
    home, stop = box.home, threading.Event()
    extra = [os.path.join(home, d) for d in (".netrc", ".ssh", ".config", ".local", ".aws", ".cargo")]
    box.made += [p + ".away" for p in extra]

    def churn():
        while not stop.is_set():
            for p in extra:
                os.rename(p, p + ".away")
                os.rename(p + ".away", p)
            replace(inst, os.path.join(home, ".git-credentials"), "secret\n")

    t = threading.Thread(target=churn)
    t.start()
    paths = [os.path.join(home, rel) for rel in SECRETS]
    started = 0
    try:
        for _ in range(15):
            r = box.run("/bin/cat", *paths)
            assert "secret" not in r.stdout.split(), r.stdout
            started += r.returncode == 1
            assert r.returncode in (1, 125), r.stderr
    finally:
        stop.set()
        t.join()
    r = box.run("/bin/cat", *paths)
    assert r.returncode == 1 and r.stdout == "", r.stderr


def test_too_many_names(inst, box):
    """A home directory with more names than a launch may mount: refused in words, not shown by halves."""
    many = os.path.join(box.home, ".config")
    if not os.path.isdir(many):
        inst._own_dir(many, 0o700)
        box.made.append(many)
    names = [os.path.join(many, f"hidden-{i}") for i in range(8200)]
    try:
        for n in names:
            os.close(os.open(n, os.O_CREAT | os.O_WRONLY, 0o644))
        r = box.run("/bin/true")
        assert r.returncode == 125 and "more than 8192 names" in r.stderr and ".config" in r.stderr
    finally:
        for n in names:
            os.unlink(n)
