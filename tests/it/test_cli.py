"""The command without a supervisor: its table, help, usage errors, new, cat, and the man page against the program."""
import json
import os
import re
import subprocess

import harness
import pytest

MAN = os.path.join(harness.SOURCE, "doc", "sbxsv.1")


def man_commands():
    """{command: set of options} from the `.It Cm NAME` items of sbxsv(1) and the option lists below them."""
    commands, current = {}, []
    last_was_item = False
    for line in open(MAN):
        m = re.match(r"\.It Cm ([a-z]+)\b", line)
        if m:
            current = current + [m[1]] if last_was_item else [m[1]]
            for c in current:
                commands.setdefault(c, set())
            last_was_item = True
            continue
        last_was_item = False
        if line.startswith(".Sh "):
            current = []
        m = re.match(r"\.It Fl (.*)", line)
        if m and current:
            for c in current:
                commands[c] |= set(re.findall(r"Fl Fl ([a-z-]+)", line))
    return commands


def program_commands(inst):
    out = inst.ok("help")
    names = re.findall(r"^  ([a-z]+) +\S", out.split("Commands:")[1].split("Global options:")[0], re.M)
    return {n: set(re.findall(r"^  (?:-\w, )?--([a-z-]+)", inst.ok("help", n).partition("\nOptions:\n")[2]
                              .partition("\nGlobal options:\n")[0], re.M)) for n in names}


def test_man_page_and_program_agree(inst):
    man, program = man_commands(), program_commands(inst)
    assert set(man) == set(program)
    for name, options in program.items():
        assert man[name] == options, name


def test_man_page_names_the_global_options(inst):
    out = inst.ok("help").partition("Global options:")[2]
    shown = set(re.findall(r"--([a-z-]+)", out))
    section = open(MAN).read().partition(".Ss Global options")[2].partition(".Sh ")[0]
    assert shown == set(re.findall(r"\.It (?:Fl h , )?Fl Fl ([a-z-]+)", section))


def test_planned_commands_say_so(inst):
    section = open(MAN).read().partition(".Ss Not there yet")[2].partition(".Sh ")[0]
    names = re.findall(r"^\.Cm ([a-z]+)", section, re.M)
    source = open(os.path.join(harness.SOURCE, "src", "cli", "commands.c")).read()
    table = source.partition("cli_planned[] = {")[2].partition("{NULL")[0]
    assert sorted(names) == sorted(re.findall(r'^\t\{"([a-z]+)"', table, re.M)) and names
    for n in names:
        r = inst.sbxsv(n, "x")
        assert r.code == 1 and f"{n}: not there yet: " in r.err, r


def test_man_pages_are_clean():
    pages = [f for f in os.listdir(os.path.join(harness.SOURCE, "doc")) if re.search(r"\.[1-8]$", f)]
    assert len(pages) >= 5
    try:
        r = subprocess.run(["mandoc", "-Tlint", *pages], cwd=os.path.join(harness.SOURCE, "doc"), capture_output=True,
                           text=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("mandoc is not installed")
    # the pages refer to each other, and they are not installed here
    left = [x for x in r.stdout.splitlines() if "referenced manual not found" not in x and "mandoc.db" not in x]
    assert not left


def test_usage_errors(inst):
    for args, words in [
            ([], "no command given"),
            (["sttus"], 'did you mean "status"?'),
            (["status", "--jsn"], "did you mean --json?"),
            (["status", "-x"], "no option -x"),
            (["status", "a", "b"], "name one app"),
            (["start"], "--all"),
            (["start", "a", "--all"], "--all"),
            (["logs"], "name an app"),
            (["logs", "a", "-n"], "needs a value"),
            (["logs", "a", "-n", "x"], "-n"),
            (["kill", "-s"], "needs a value"),
            (["kill"], "name the app"),
            (["down", "--grace", "soon"], "10s"),
            (["up", "--watch-pid", "0"], "process id"),
            (["reload", "x"], "no arguments"),
            (["kill", "--json", "a"], "no --json"),
            (["check", "--allow", "a"], "name an app and a host"),
            (["check", "--allow", "--path", "a", "b"], "one question"),
            (["new", "a", "b"], '"--"'),
            (["new", "a", "b", "--", "c"], '"--"'),
            (["new", "A", "--", "c"], "no name of an app"),
            (["new", "a@b", "--", "c"], "no name of an app"),
            (["new", "a", "--port", "0", "--", "c"], "--port"),
            (["--instance"], "needs a value"),
            (["--instance", "../x", "status"], "the name must be like"),
            (["stat"], 'did you mean "status"'),
    ]:
        r = inst.sbxsv(*args)
        assert r.code == 2 and words in r.err and not r.out, (args, r)


def test_an_instance_in_a_directory_named_exactly(inst):
    """SBXSV_RUNTIME_DIR and the like are set: another instance there would be this one under another name."""
    r = inst.sbxsv("--instance", "other", "down")
    assert r.code == 2 and "_DIR=" in r.err and not r.out, r
    dirs = [w for kind in ("config", "apps", "state", "runtime") for w in (f"--{kind}", inst.app_dir("other"))]
    assert inst.sbxsv("--instance", "other", "status", *dirs).code == 5


def test_help_names_json_where_it_is(inst):
    assert "--json" in inst.ok("help", "status") and "--json" not in inst.ok("help", "down")


def test_an_app_that_is_not_there(inst):
    inst.write_unit("notes", f"[App]\nExec=/bin/true\nWorkingDirectory={inst.app_dir('notes')}\n")
    for args in (["check", "note"], ["check", "--allow", "note", "a.test"], ["check", "--path", "note", "/"], ["cat", "note"],
                 ["allow", "note", "a.test", "--save"]):
        r = inst.sbxsv(*args)
        assert r.code == 4 and 'did you mean "notes"?' in r.out + r.err, (args, r)
    inst.ok("up")
    for args in (["status", "note"], ["logs", "note"], ["start", "note"], ["kill", "note"], ["allow", "note", "a.test"]):
        r = inst.sbxsv(*args)
        assert r.code == 4 and 'did you mean "notes"?' in r.err, (args, r)
    assert "sbxsv status lists them" in inst.sbxsv("status", "qqqqqq").err


def test_a_path_whose_permissions_refuse(inst):
    d = inst.app_dir("notes")
    inst.write_unit("notes", f"[App]\nExec=/bin/true\nWorkingDirectory={d}\n")
    path = os.path.join(d, "closed")
    with open(path, "w"):
        pass
    assert "why" not in inst.ok("check", "--path", "notes", path)
    os.chmod(path, 0)
    out = inst.ok("check", "--path", "notes", path)
    assert ("its permissions do not let" in out) == (os.geteuid() != 0), out


def test_exec_names_its_own_options(inst):
    """There is no exec.app: what a refusal advises must be there."""
    curl = ["curl", "-sS", "-m", "20", "http://a.test/"]
    d = inst.app_dir("work")
    r = inst.sbxsv("exec", "--quiet", "--allow", "b.test", "--", *curl, cwd=d)
    assert "start  sbxsv exec  with  --allow a.test" in r.out and "exec.app" not in r.out, r
    r = inst.sbxsv("exec", "--quiet", "--", *curl, cwd=d)
    assert r.code == 6 and "Egress=off; to allow it: --allow HOST" in r.err, r  # curl(1): no such host


@pytest.mark.parametrize("option", [
    ["--egress", "some"], ["--read-mode", "shut"], ["--loopback", "x"], ["--env", "x"], ["--profile", "../x"],
    ["--violations", "some"], ["--allow", "a b"], ["--deny", "a b"], ["--egress", "off", "--allow", "x.com"]])
def test_exec_with_a_wrong_value(inst, option):
    r = inst.sbxsv("exec", *option, "--", "/bin/echo", "ran")
    assert r.code == 2 and option[0] in r.err and not r.out, r


def test_exec_of_what_is_not_there(inst):
    """There is no Path= to write: the full path of the program is what helps."""
    r = inst.sbxsv("exec", "--", "no-such-program")
    assert r.code == 125 and "not in your PATH: install it, or give its full path" in r.err and "Path=" not in r.err, r
    os.makedirs(os.path.join(inst.home, ".local/bin"))
    there = inst.user_file(os.path.join(inst.home, ".local/bin/my-program"), "#!/bin/sh\n", 0o755)
    r = inst.sbxsv("exec", "--", "my-program")
    assert r.code == 125 and (harness.ROOT or os.path.dirname(there) in r.err), r  # root has the home of its account


def test_without_a_supervisor(inst):
    inst.write_unit("a", f"[App]\nExec=/bin/true\nWorkingDirectory={inst.app_dir('a')}\n")
    for args in [("status",), ("status", "a"), ("start", "a"), ("stop", "--all"), ("kill", "a"), ("reload",), ("logs", "a"),
                 ("events",), ("ports",)]:
        r = inst.sbxsv(*args)
        assert r.code == 5 and "sbxsv up" in r.err and not r.out, (args, r)
    assert inst.sbxsv("down").code == 0
    assert inst.sbxsv("version").code == 0
    assert json.loads(inst.ok("version", "--json"))["version"] in inst.ok("version")


def test_up_names_what_cannot_be_started(inst):
    r = inst.sbxsv("up", env={"SBXSV_SBXSVD": "/nonexistent/sbxsvd"})
    assert r.code == 1 and "/nonexistent/sbxsvd: No such file" in r.err


def test_a_runtime_directory_that_is_too_long(inst):
    r = inst.sbxsv("status", "--runtime", "/tmp/" + "x" * 200)
    assert r.code == 1 and "--runtime" in r.err and "too long" in r.err


def test_output_that_cannot_be_written(inst):
    with open("/dev/full", "w") as full:
        p = subprocess.run([harness.program("sbxsv"), "help"], stdout=full, stderr=subprocess.PIPE, env=inst.env, timeout=60)
    assert p.returncode == 1 and b"No space left" in p.stderr


# --- new and cat ---

def test_new(inst):
    d = inst.app_dir("notes")
    out = inst.ok("new", "notes", "--port", "4810", "--allow", "x.com", "--allow", "*.y.org", "--", "/usr/bin/python3",
                  "-m", "http.server", "$PORT", cwd=d)
    text = open(inst.unit_path("notes")).read()
    assert "Exec=/usr/bin/python3 -m http.server $PORT\n" in text
    assert f"WorkingDirectory={d}\n" in text and "Listen=4810\n" in text
    assert "Allow=x.com\nAllow=*.y.org\n" in text
    assert inst.unit_path("notes") in out and "sbxsv check notes" in out
    assert os.stat(inst.unit_path("notes")).st_mode & 0o777 == 0o600
    assert "no errors" in inst.ok("check", "notes")
    assert [f for f in os.listdir(inst.apps) if f.startswith(".")] == []


def test_new_refuses_a_port_of_another_unit(inst):
    inst.ok("new", "a", "-p", "4810", "--", "/bin/true", cwd=inst.app_dir("a"))
    r = inst.sbxsv("new", "b", "-p", "4810", "--", "/bin/true", cwd=inst.app_dir("b"))
    assert r.code == 1 and "port 4810 is already Listen= of app a (a.app:" in r.err
    assert not os.path.exists(inst.unit_path("b"))


def test_new_never_overwrites(inst):
    inst.write_unit("notes", "precious", mark=False)
    r = inst.sbxsv("new", "notes", "--", "/bin/true", cwd=inst.app_dir("notes"))
    assert r.code == 1 and "there already" in r.err
    assert open(inst.unit_path("notes")).read() == "precious"


@pytest.mark.parametrize("words", [
    ["/bin/echo", "a b", "it's", '"q"', "\\", "100%", "%h", "~", "~/x", "K=~/x", "", "$HOME", "`x`", "a;b", "&&", "#x", " "],
    ["/bin/echo", "ümlaut", "tab\there"[:3], "$PORT"],
])
def test_new_keeps_every_word(inst, words):
    """What the unit's reader makes of the file is the command that was given."""
    d = inst.app_dir("words")
    inst.ok("new", "words", "--", *words, cwd=d)
    # the plan of a unit is made from what was read; a wrong word would change `check`, and `new` compares by itself
    assert "no errors" in inst.ok("check", "words")


@pytest.mark.parametrize("args", [
    ["new", "a", "--", "/bin/echo", "line\nbreak"],
    ["new", "a", "--allow", "bad host", "--", "/bin/true"],
    ["new", "a", "--allow", "x.com\nEgress=all", "--", "/bin/true"],
])
def test_new_writes_nothing_bad(inst, args):
    r = inst.sbxsv(*args, cwd=inst.app_dir("a"))
    assert r.code == 1 and r.err and not os.path.exists(inst.unit_path("a"))


def test_new_in_a_directory_that_is_never_granted(inst):
    r = inst.sbxsv("new", "a", "--", "/bin/true", cwd="/")
    assert r.code == 1 or inst.sbxsv("check", "a").code == 1


def test_cat(inst):
    inst.write_unit("a", f"[App]\nExec=/bin/true\nWorkingDirectory={inst.app_dir('a')}\n", mark=False)
    os.mkdir(inst.unit_path("a") + ".d")
    with open(inst.unit_path("a") + ".d/allow.conf", "w") as f:
        f.write("[Network]\nAllow=x.com\n")
    out = inst.ok("cat", "a")
    assert out.index("Exec=/bin/true") < out.index("allow.conf") < out.index("Allow=x.com")
    out = inst.ok("cat", "a", "--effective")
    assert "# a.app:2\nExec=/bin/true" in out and "allow.conf:2\nAllow=x.com" in out
    assert "# implied by Allow=\nEgress=hosts" in out
    assert inst.sbxsv("cat", "nothing").code == 4
    assert inst.sbxsv("cat", "../x").code == 4


def test_cat_shows_a_broken_unit_and_what_is_wrong(inst):
    inst.write_unit("a", "[App]\nExecc=/bin/true\nDescription=\x1b[2J\n", mark=False)
    r = inst.sbxsv("cat", "a")
    assert r.code == 1 and "Description=\\x1b[2J" in r.out and "did you mean Exec" in r.err
    assert "\x1b" not in r.out + r.err


def test_directories_by_option(inst):
    other = os.path.join(inst.base, "other")
    os.makedirs(os.path.join(other, "apps"))
    env = {k: v for k, v in inst.env.items() if not k.endswith("_DIR") or k == "SBXSV_UNITS_DIR"}
    p = subprocess.run([harness.program("sbxsv"), "--apps", "other/apps", "cat", "nothing"], cwd=inst.base, env=env,
                       capture_output=True, text=True, timeout=60)
    assert p.returncode == 4 and f"there is no app \"nothing\" in {other}/apps" in p.stderr
