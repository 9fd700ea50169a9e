"""What a jail refuses is seen: the program, the path or host, the rule, and the command that would allow it. Nothing else is."""
import os
import shutil
import socket
import subprocess
import time

import harness
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
VIOLATORS = os.path.join(HERE, "violators")
SECONDS = float(os.environ.get("SBXSV_WORK_SECONDS", "12"))  # of allowed work; contrib/check makes it a minute


class Outside:
    """What the host has and no unit grants: a key, a file, a directory, a program, a socket."""

    def __init__(self, inst):
        self.inst = inst
        self.lock = harness.home_lock(False)
        self.home = inst.user.pw_dir if harness.ROOT else inst.home
        self.made = []
        ssh = os.path.join(self.home, ".ssh")
        if not os.path.isdir(ssh):
            inst._own_dir(ssh, 0o700)
            self.made.append(ssh)
        self.key = os.path.join(ssh, f"key_{os.path.basename(inst.base)}")
        inst.user_file(self.key, "key\n", 0o600)
        self.dir = os.path.join(inst.home, "outside")
        inst._own_dir(self.dir)
        self.file = inst.user_file(os.path.join(self.dir, "file"), "x\n")
        self.new = os.path.join(self.dir, "new")
        self.tool = inst.user_file(os.path.join(self.dir, "tool"), "#!/bin/sh\nexit 0\n", 0o755)
        self.socket = os.path.join(self.dir, "s.sock")
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.socket)
        os.chmod(self.socket, 0o777)
        self.server.listen()

    def close(self):
        self.server.close()
        os.unlink(self.key)
        for path in self.made:
            if not os.listdir(path):
                os.rmdir(path)
        os.close(self.lock)


@pytest.fixture
def outside(inst):
    o = Outside(inst)
    yield o
    o.close()


@pytest.fixture(scope="session")
def go_program(tmp_path_factory):
    if not shutil.which("go"):
        pytest.skip("no Go here")
    d = tmp_path_factory.mktemp("go")
    env = {"PATH": os.environ["PATH"], "HOME": str(d), "GOCACHE": str(d / "cache"), "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local",
           "GOPROXY": "off", "GO111MODULE": "off", "CGO_ENABLED": "0"}
    subprocess.run(["go", "build", "-o", str(d / "attempt"), os.path.join(VIOLATORS, "attempt.go")], env=env, check=True, timeout=300)
    return str(d / "attempt")


def place(inst, directory, language, request):
    """The program, copied into the app's directory: how it is started."""
    if language == "go":
        path = os.path.join(directory, "attempt")
        shutil.copy(request.getfixturevalue("go_program"), path)
        os.chmod(path, 0o755)
        return path
    ext = {"python": "py", "node": "mjs", "shell": "sh"}[language]
    with open(os.path.join(VIOLATORS, f"attempt.{ext}"), encoding="utf-8") as f:
        path = inst.user_file(os.path.join(directory, f"attempt.{ext}"), f.read())
    runs = {"python": harness.PYTHON, "node": shutil.which("node", path="/usr/bin:/usr/local/bin"), "shell": "/bin/sh"}[language]
    if not runs:
        pytest.skip(f"no {language} here")
    return f"{runs} {path}"


def write_unit(inst, name, directory, command, audit="all", sandbox="", network="", restart="Policy=no"):
    inst.write_unit(name, f"[App]\nExec={command}\nWorkingDirectory={directory}\n[Restart]\n{restart}\n[Sandbox]\n{sandbox}\n"
                          f"[Network]\n{network}\n[Audit]\nViolations={audit}\n")


def refused(inst, app):
    return inst.api("GET", f"/v1/violations?app={app}")[1]["violations"]


def wait_refused(inst, app, n, timeout=30):
    return harness.wait_for(lambda: len(refused(inst, app)) >= n and refused(inst, app), timeout, f"{n} violations of {app}")


def words(pairs):
    return " ".join(f"{w} {a}" for w, a in pairs)


@pytest.mark.parametrize("language", ["python", "node", "go", "shell"])
def test_each_refusal_is_seen_once(inst, outside, language, request):
    d = inst.app_dir("app")
    os.symlink(outside.file, f"{d}/link")
    command = place(inst, d, language, request)
    pairs = [("read", outside.key), ("read", outside.file), ("write", outside.new), ("exec", outside.tool), ("unix", outside.socket),
             ("host", "refused.example"), ("raw", "11.2.0.10"), ("sleep", "1")]
    write_unit(inst, "app", d, f"{command} {words(pairs)}", network="Allow=allowed.example")
    inst.up()
    inst.wait_state("app", "stopped", "failed")
    log = inst.log("app")
    found = refused(inst, "app")
    seen = {(v["operation"], v.get("path") or v["host"]): v for v in found}
    want = {("file-read", outside.key), ("file-read", outside.file), ("file-write", outside.new), ("exec", outside.tool),
            ("unix-connect", outside.socket), ("connect", "11.2.0.10")}
    host = [k for k in seen if k[1] == "refused.example"]
    assert len(host) == 1 and host[0][0] in ("resolve", "connect"), (seen.keys(), log)
    assert set(seen) == want | set(host), (set(seen) ^ (want | set(host)), log)
    assert len(found) == len(seen), found
    for v in found:
        assert v["app"] == "app" and v["pid"] > 1 and v["command"] and v["rule"] and v["hint"], v
    program = {"python": "python3", "node": "node", "go": "attempt", "shell": "cat"}[language]
    assert seen["file-read", outside.key]["command"].startswith(program), seen
    assert seen["file-read", outside.key]["rule"].startswith("secret place (ssh)")
    assert "Secret=ssh" in seen["file-read", outside.key]["hint"]
    assert seen["file-read", outside.file]["hint"] == f"sbxsv allow app --read {outside.file}"
    assert seen["file-write", outside.new]["hint"] == f"sbxsv allow app --write {outside.dir}"
    assert seen["exec", outside.tool]["hint"] == f"sbxsv allow app --read {outside.tool}"
    assert seen["unix-connect", outside.socket]["hint"] == f"sbxsv allow app --unix-socket {outside.socket}"
    text = inst.ok("violations", "app")
    assert f"sbxsv allow app --read {outside.file}" in text and "sbxsv allow app refused.example" in text
    status = inst.sbxsv("status", "app").out
    assert f"to allow it: sbxsv allow app --write {outside.dir}" in status
    events = {(e["operation"], e.get("path") or e["host"]) for e in inst.events("app", "violation")}
    assert events == set(seen)


@pytest.mark.parametrize("language", ["python", "node", "go", "shell"])
def test_by_every_kind_of_path(inst, outside, language, request):
    """Relative, through a symlink in the app's directory and in its own /tmp, through a descriptor: the same file each time."""
    d = inst.app_dir("app")
    os.symlink(outside.file, f"{d}/link")
    command = place(inst, d, language, request)
    up = os.path.relpath(outside.file, d)
    pairs = [("read", up), ("read", "link"), ("relative", f"{os.path.dirname(d)}::../outside/file"), ("read", f"{d}/link")]
    if language == "python":
        pairs.append(("dirfd", f"{d}::{up}"))
    write_unit(inst, "app", d, f"{command} {words(pairs)} sleep 0.5")
    inst.up()
    inst.wait_state("app", "stopped", "failed")
    found = refused(inst, "app")
    assert [(v["operation"], v["path"]) for v in found] == [("file-read", outside.file)], (found, inst.log("app"))
    # "relative" fails at chdir where the directory is not seen
    assert found[0]["count"] >= len(pairs) - 1, found


@pytest.mark.parametrize("audit", ["writes", "all"])
def test_allowed_work_gives_none(inst, outside, audit, request):
    apps = []
    for language in "python", "node", "go", "shell":
        if language == "go" and not shutil.which("go") or language == "node" and not os.path.exists("/usr/bin/node"):
            continue
        d = inst.app_dir(language)
        command = place(inst, d, language, request)
        write_unit(inst, language, d, f"{command} work {SECONDS:g}::{d}", audit=audit, network="Allow=allowed.example")
        apps.append(language)
    inst.up()
    for a in apps:
        s = inst.wait_state(a, "stopped", "failed", timeout=SECONDS + 60)
        assert s["state"] == "stopped", (s, inst.log(a))
        assert "ok" in inst.log(a) or "nil" in inst.log(a) or " 0" in inst.log(a), inst.log(a)
    for a in apps:
        assert refused(inst, a) == [], inst.log(a)
        assert inst.api("GET", f"/v1/violations?app={a}")[1]["apps"][0]["lost"] == 0


def test_noise_is_not_reported(inst, outside):
    """What is not there, and what the host's own permissions refuse."""
    d = inst.app_dir("app", {"run.sh": "cat /nonexistent/x ~/nothing-here 2>&1\nrm -f ~/nothing-here\n: >/etc/passwd\n: >/etc/new\n"
                             "cat /etc/shadow\n/usr/bin/nothing-here\nmkdir -p ~ /usr\ncat /proc/1/environ\nexit 1\n"})
    write_unit(inst, "app", d, "/bin/sh run.sh")
    inst.up()
    inst.wait_state("app", "failed")
    assert refused(inst, "app") == [], inst.log("app")


def test_hidden_by_the_unit_and_by_other_apps(inst, outside):
    other = inst.app_dir("other", {"data": "x"})
    d = inst.app_dir("app", {"run.sh": f"cat {other}/data {outside.dir}/sub/f\n: >{outside.file}\nexit 1\n"})
    inst._own_dir(f"{outside.dir}/sub")
    inst.user_file(f"{outside.dir}/sub/f", "x")
    inst.write_unit("other", f"[App]\nExec=/bin/sleep 1000\nWorkingDirectory={other}\nEnabled=no\n")
    write_unit(inst, "app", d, "/bin/sh run.sh", sandbox=f"Read={outside.dir}\nHide={outside.dir}/sub")
    inst.up()
    inst.wait_state("app", "failed")
    seen = {(v["operation"], v["path"]): v for v in refused(inst, "app")}
    assert seen["file-read", f"{other}/data"]["rule"] == "belongs to another app"
    assert "DataDirectory=" in seen["file-read", f"{other}/data"]["hint"]
    assert seen["file-read", f"{outside.dir}/sub/f"]["rule"].endswith(" Hide=")
    w = seen["file-write", outside.file]
    assert w["rule"].endswith(" Read=") and w["hint"] == f"sbxsv allow app --write {outside.dir}", w
    assert len(seen) == 3, seen


def test_a_script_whose_interpreter_is_not_granted(inst, outside):
    """The kernel says that the script does not exist."""
    shutil.copy("/bin/true", f"{outside.dir}/interpreter")
    os.chmod(f"{outside.dir}/interpreter", 0o755)
    d = inst.app_dir("app", {"run.sh": "./tool\n./fine\nsleep 0.2\nexit 1\n"})
    inst.user_file(f"{d}/tool", f"#! {outside.dir}/interpreter -x\n", 0o755)
    inst.user_file(f"{d}/fine", "#!/bin/sh\nexit 0\n", 0o755)
    write_unit(inst, "app", d, "/bin/sh run.sh", audit="writes")
    inst.up()
    inst.wait_state("app", "failed")
    found = refused(inst, "app")
    assert [(v["operation"], v["path"], v["asked"]) for v in found] == [("exec", f"{outside.dir}/interpreter", f"{d}/./tool")], found
    assert found[0]["hint"] == f"sbxsv allow app --read {outside.dir}/interpreter"


def test_off_writes_all(inst, outside):
    script = f"cat {outside.file}\n: >{outside.new}\nsleep 0.3\nexit 1\n"
    for mode in "off", "writes", "all":
        d = inst.app_dir(mode, {"run.sh": script})
        write_unit(inst, mode, d, "/bin/sh run.sh", audit=mode)
    inst.up()
    ops = {}
    for mode in "off", "writes", "all":
        inst.wait_state(mode, "failed")
        ops[mode] = sorted(v["operation"] for v in refused(inst, mode))
    assert ops == {"off": [], "writes": ["file-write"], "all": ["file-read", "file-write"]}


def test_without_egress(inst, outside):
    """Nobody but the observer hears of these."""
    d = inst.app_dir("app", {"run.sh": "curl -s --max-time 5 http://11.2.0.10:81/\ncurl -s --max-time 5 http://127.0.0.1:1/\nsleep 0.3\n"
                             "exit 1\n"})
    write_unit(inst, "app", d, "/bin/sh run.sh", audit="writes")
    inst.up()
    inst.wait_state("app", "failed")
    found = refused(inst, "app")
    assert [(v["operation"], v["host"], v["port"], v["rule"]) for v in found] == [("connect", "11.2.0.10", 81, "Egress=off")], found
    assert found[0]["command"] == "curl"


def test_all_of_a_burst_is_told_soon(inst, outside):
    """What is found right after others is told with them or a moment later, not when the app has been quiet for long."""
    d = inst.app_dir("box")
    files = [inst.user_file(f"{outside.dir}/burst{i}", "x\n") for i in range(30)]
    inst.user_file(f"{d}/run.sh", "for f in " + " ".join(files) + "; do cat $f; sleep 0.02; done\necho over\nexec sleep 1000\n")
    write_unit(inst, "box", d, "/bin/sh run.sh")
    inst.up()
    harness.wait_for(lambda: "over" in inst.log("box"), 30, "the end of the burst")
    begun = time.monotonic()
    harness.wait_for(lambda: {v["path"] for v in refused(inst, "box")} == set(files), 30, "all of the burst")
    assert time.monotonic() - begun < 2.5  # a judge that has nothing to do ends after 3 s, and tells what it has


def test_since_and_json(inst, outside):
    d = inst.app_dir("app", {"run.sh": f"cat {outside.file}\nsleep 0.2\nexit 1\n"})
    write_unit(inst, "app", d, "/bin/sh run.sh")
    inst.up()
    inst.wait_state("app", "failed")
    assert outside.file in inst.ok("violations", "--since", "10min")
    assert "nothing was refused" in inst.sbxsv("violations", "app", "--since", "1ms").out
    assert inst.sbxsv("violations", "app", "--since", "x").code == 2
    assert inst.sbxsv("violations", "nosuch").code == 4


# --- adaptive ---

def test_the_attempt_after_a_failed_one_is_seen_whole(inst, outside):
    d = inst.app_dir("app", {"run.sh": f"cat {outside.file} || exit 3\n"})
    write_unit(inst, "app", d, "/bin/sh run.sh", audit="writes", restart="Policy=on-failure\nSec=10ms\nLimitBurst=3")
    inst.up()
    s = inst.wait_state("app", "failed")
    assert f"refused: file-read {outside.file} (nothing grants it)" in s["reason"], s["reason"]
    assert f"sbxsv allow app --read {outside.file}" in s["hint"], s["hint"]
    assert refused(inst, "app")[0]["count"] == 2, "the first attempt is looked at as the unit says"


# --- allow --read, --write ---

def test_allow_a_path(inst, outside):
    d = inst.app_dir("app", {"run.sh": f"cat {outside.file} || exit 3\necho y >{outside.new} || exit 4\nexec sleep 1000\n"})
    write_unit(inst, "app", d, "/bin/sh run.sh", restart="Policy=no")
    inst.up()
    inst.wait_state("app", "failed")
    out = inst.ok("allow", "app", "--read", outside.file)
    assert "50-allow.conf" in out and "started again" in out
    inst.wait_state("app", "failed")
    assert inst.sbxsv("check", "--path", "app", outside.file).code == 0
    assert inst.sbxsv("check", "--path", "app", outside.new).code == 6
    inst.ok("allow", "app", "--write", outside.dir)
    inst.wait_state("app", "running")
    harness.wait_for(lambda: os.path.exists(outside.new), 20, "the file that it may write now")
    with open(f"{inst.unit_path('app')}.d/50-allow.conf", encoding="utf-8") as f:
        text = f.read()
    assert f"Read={outside.file}\n" in text and f"Write={outside.dir}\n" in text
    assert "stands already in" in inst.ok("allow", "app", "--write", outside.dir)


def test_what_is_never_granted_is_refused_with_the_reason(inst, outside):
    d = inst.app_dir("app")
    write_unit(inst, "app", d, "/bin/sleep 1000", sandbox=f"Hide={outside.dir}")
    before = os.listdir(f"{inst.unit_path('app')}.d")
    for option, path, why in [("--read", outside.key, "Secret=ssh"), ("--read", outside.home, "home directory"), ("--write", "/etc", "never"),
                              ("--write", "/usr/lib", "never"), ("--read", inst.config, "sbxsv"), ("--read", outside.file, "Hide=")]:
        r = inst.sbxsv("allow", "app", option, path)
        assert r.code == 6 and why in r.err, (path, r)
    assert inst.sbxsv("allow", "app", "--read", f"{outside.dir}/nothing").code == 1
    assert inst.sbxsv("allow", "app", "--read", outside.file, "--for", "1h").code == 2
    assert inst.sbxsv("allow", "nosuch", "--read", outside.file).code == 4
    assert os.listdir(f"{inst.unit_path('app')}.d") == before


def test_a_hint_is_one_that_can_be_typed(inst, outside):
    """Pasted into a shell, a hint grants what was refused and does nothing else; where no unit can name the path, or the command
    would be refused, there is none."""
    d = inst.app_dir("app")
    typed = ["a; touch typed", "-rf", "q'; touch typed; '", "$(touch typed)", "`touch typed`", "sp ace", "pct%n", "~x", "#c", "back\\s", 'd"q', "star*",
             "$HOME", "{a,b}", "!x", "a&touch typed", "uml\u00e4ut"]
    untyped = ["new\nline", "esc\x1b[31m", "r\rr", "broken\udcff", "blank ", "tab\t", "$PORT", "slash\\"]
    for name in typed + untyped:
        inst.user_file(os.path.join(outside.dir, name), "x\n")
    paths = [os.path.join(outside.dir, n) for n in typed + untyped]
    inst.user_file(f"{d}/app.py", f"import sys\nbad = 0\nfor p in {paths!r}:\n  try:\n    open(p).close()\n  except OSError:\n    bad += 1\n"
                                  "print('missing', bad, flush=True)\nsys.exit(1)\n")
    write_unit(inst, "app", d, f"{harness.PYTHON} {d}/app.py")
    inst.up()
    inst.wait_state("app", "failed", timeout=30)
    hints = {v["path"]: v.get("hint") for v in refused(inst, "app")}
    assert len(hints) == len(paths), hints
    for name in typed:
        hint = hints[os.path.join(outside.dir, name)]
        assert hint.startswith("sbxsv allow app --read "), hint
        r = subprocess.run(["/bin/sh", "-c", f'sbxsv() {{ printf "%s\\n" "$#" "$4"; }}\n{hint}'], cwd=d, capture_output=True, text=True)
        assert r.stdout == f"4\n{os.path.join(outside.dir, name)}\n" and not r.stderr, (hint, r)
        assert inst.sbxsv("allow", "app", "--read", os.path.join(outside.dir, name)).code in (0, 1), name  # 1: it fails again
    assert not os.path.exists(f"{d}/typed")
    assert sum(h is None for h in hints.values()) == len(untyped), hints
    harness.wait_for(lambda: f"missing {len(untyped)}" in inst.log("app"), 30, "what was allowed")


# --- exec ---

def exec_argv(inst, *options):
    user = ["--user", inst.user.pw_name] if harness.ROOT else []
    return ["exec", "--quiet", *user, *options, "--"]


def test_exec_says_what_was_refused_and_reports(inst, outside):
    import json
    d = inst.app_dir("box")
    report = os.path.join(inst.base, "report.json")
    r = inst.sbxsv(*exec_argv(inst), "/bin/cat", outside.file, cwd=d)
    assert r.code == 1 and f"refused: file-read {outside.file}" in r.err and f"to allow it: --read {outside.file}" in r.err, r
    r = inst.sbxsv(*exec_argv(inst, "--read", outside.file), "/bin/cat", outside.file, cwd=d)
    assert r.code == 0 and r.out == "x\n" and "refused" not in r.err
    r = inst.sbxsv(*exec_argv(inst, "--report", report), "/bin/sh", "-c", f"cat {outside.file}; true", cwd=d)
    assert r.code == 0 and "refused" not in r.err
    with open(report, encoding="utf-8") as f:
        o = json.load(f)
    assert o["exit"] == 0 and o["lost"] == 0 and [v["path"] for v in o["refusals"]] == [outside.file]
    r = inst.sbxsv(*exec_argv(inst, "--violations", "off"), "/bin/cat", outside.file, cwd=d)
    assert r.code == 1 and "refused" not in r.err
    assert inst.sbxsv(*exec_argv(inst, "--violations", "some"), "/bin/true", cwd=d).code == 2


def test_no_hint_hands_over_a_socket_that_commands_the_host(inst, outside):
    d = inst.app_dir("box")
    for name in "docker.sock", "plain.sock":
        path = f"{outside.dir}/{name}"
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(path)
            os.chmod(path, 0o777)
            s.listen()
            r = inst.sbxsv(*exec_argv(inst), harness.PYTHON, "-c", "import ctypes,struct,sys\n"
                           "a = struct.pack('H', 1) + sys.argv[1].encode() + b'\\0'\n"
                           "sys.exit(7 if ctypes.CDLL(None).connect(0, a, len(a)) else 0)", path, cwd=d)
        assert r.code == 7 and f"refused: unix-connect {path}" in r.err, r
        assert ("to allow it: --unix-socket" in r.err) == (name == "plain.sock"), r
        assert ("outside of the jail" in r.err) == (name == "docker.sock"), r


def test_no_hint_lets_an_app_write_where_people_run_programs_from(inst, outside):
    d = inst.app_dir("box")
    tools = f"{outside.dir}/tools"
    inst._own_dir(tools)
    env = {"PATH": f"{tools}:/usr/bin:/bin"}
    for name in "tools/new", "tools/ls", "new":
        if name == "tools/ls":
            inst.user_file(f"{tools}/ls", "x\n")
        r = inst.sbxsv(*exec_argv(inst), "/bin/sh", "-c", f"echo x > {outside.dir}/{name}", cwd=d, env=env)
        assert r.code and f"refused: file-write {outside.dir}/{name}" in r.err, r
        assert ("to allow it" in r.err) == (name == "new"), r


# --- ports of this machine ---

LOCAL = """
import socket, sys, time
def attempt(port, host="127.0.0.1"):
    try:
        socket.create_connection((host, port), 5).close()
        return "reached"
    except OSError as e:
        return e.strerror
own = socket.create_server(("127.0.0.1", 0))
print("own", attempt(own.getsockname()[1]), flush=True)
while True:
    print(*[f"{p}={attempt(int(p))}" for p in sys.argv[1:]], flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def service():
    """Something of the host that listens on loopback, as a database does."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        s.listen(1000)
        yield s.getsockname()[1]


@pytest.mark.parametrize("egress", ["off", "hosts"])
def test_a_port_of_this_machine_is_named_and_allowed_at_once(inst, service, free_port, egress):
    nobody, own = free_port(), free_port()
    d = inst.app_dir("app", {"run.py": LOCAL})
    write_unit(inst, "app", d, f"{harness.PYTHON} run.py {service} {nobody} {own}", audit="writes",
               network=f"Listen={own}\n" + ("Allow=example.com" if egress == "hosts" else "") + "\n[Ready]\nType=exec")
    inst.up()
    v = wait_refused(inst, "app", 1)[0]
    assert (v["operation"], v["host"], v["port"], v["rule"], v["hint"]) == \
        ("connect", "localhost", service, "no Loopback= names it", f"Loopback={service}"), v
    assert v["command"].startswith("python3")
    command = f"sbxsv allow app --loopback {service}"
    harness.wait_for(lambda: command in inst.ok("status", "app"), what="the command in status")
    pid = inst.status("app")["pid"]
    harness.wait_for(lambda: f"{nobody}=Connection refused" in inst.log("app"), what="a round")
    assert f"{service}=reached" not in inst.log("app") and "own reached" in inst.log("app")
    inst.ok(*command.split()[1:])
    harness.wait_for(lambda: f"{service}=reached" in inst.log("app"), what="the way to it")
    assert inst.status("app")["pid"] == pid
    seen = {(x["host"], x["port"]) for x in refused(inst, "app")}
    assert seen == {("localhost", service)}, seen  # not its own server, not itself, not what nobody serves
    count = refused(inst, "app")[0].get("count", 1)
    rounds = inst.log("app").count("\n")
    harness.wait_for(lambda: inst.log("app").count("\n") > rounds + 5, what="more rounds")
    assert refused(inst, "app")[0].get("count", 1) == count


def test_the_port_of_another_app_is_named_by_that_app(inst, free_port):
    port = free_port()
    inst.server_unit("web", port)
    write_unit(inst, "app", inst.app_dir("app", {"run.py": LOCAL}), f"{harness.PYTHON} run.py {port}")
    inst.up()
    v = wait_refused(inst, "app", 1)[0]
    assert (v["host"], v["port"], v["hint"]) == ("localhost", port, "Loopback=app:web"), v
    inst.ok("allow", "app", "--loopback", "app:web")
    harness.wait_for(lambda: f"{port}=reached" in inst.log("app"), what="the way to it")


def test_allow_a_port_wants_a_port(inst):
    write_unit(inst, "app", inst.app_dir("app"), "/bin/sleep 1000")
    for bad in "", "5432 5433", "seventy", "0", "app:":
        r = inst.sbxsv("allow", "app", "--loopback", bad)
        assert r.code in (1, 2) and r.err, (bad, r)
    r = inst.sbxsv("allow", "app", "--loopback", "5432", "--read", "/etc/hostname")
    assert r.code == 2 and "apart" in r.err, r
    written = os.path.join(inst.apps, "app.app.d", "50-allow.conf")
    assert not os.path.exists(written)
    inst.ok("allow", "app", "--loopback", "5432")
    assert "Loopback=5432" in inst.read_text(written)


def test_exec_says_which_port_of_this_machine_was_refused(inst, service):
    connect = f"import socket; socket.create_connection(('127.0.0.1', {service}), 5)"
    d = inst.app_dir("box")
    r = inst.sbxsv(*exec_argv(inst), harness.PYTHON, "-c", connect, cwd=d)
    assert r.code == 1 and f"refused: connect localhost:{service}" in r.err and f"to allow it: --loopback {service}" in r.err, r
    r = inst.sbxsv(*exec_argv(inst, "--loopback", str(service)), harness.PYTHON, "-c", connect, cwd=d)
    assert r.code == 0 and "refused" not in r.err, r
