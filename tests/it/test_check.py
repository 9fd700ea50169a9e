"""sbxsv check: every error of every file, and the questions about hosts and paths. No supervisor runs."""
import json
import os

import harness


def good(inst, name="a", network="", sandbox=""):
    inst.write_unit(name, f"[App]\nExec=/bin/true\nWorkingDirectory={inst.app_dir(name)}\n{sandbox}[Network]\n{network}",
                    mark=False)


def test_every_error_with_file_and_line(inst):
    good(inst)
    inst.write_unit("b", "[App]\nExecc=/bin/true\nEnabled=perhaps\n[Netwrok]\nListen=1\n", mark=False)
    inst.write_unit("c", "[App]\nExec=/bin/true\n", mark=False)
    r = inst.sbxsv("check")
    assert r.code == 1
    lines = r.out.splitlines()
    assert any(x.startswith("b.app:2: ") and "did you mean Exec" in x for x in lines)
    assert any(x.startswith("b.app:3: ") and "Enabled" in x for x in lines)
    assert any(x.startswith("b.app:4: ") and "did you mean [Network]" in x for x in lines)
    assert any(x.startswith("c.app") and "WorkingDirectory" in x for x in lines)
    assert not any(x.startswith("a.app") for x in lines)
    j = json.loads(inst.sbxsv("check", "--json").out)
    assert {(p["file"], p.get("line")) for p in j["problems"]} >= {("b.app", 2), ("b.app", 3), ("b.app", 4)}
    assert j["units"] == 1


def test_one_name_and_one_file(inst):
    good(inst)
    inst.write_unit("b", "[App]\nExecc=/bin/true\n", mark=False)
    assert inst.sbxsv("check", "a").code == 0
    r = inst.sbxsv("check", "a", "b")
    assert r.code == 1 and "a.app" not in r.out
    path = os.path.join(inst.base, "elsewhere.app")
    with open(path, "w") as f:
        f.write("[App]\nExec=/bin/true\nWorkingDirectory=/nonexistent\n")
    r = inst.sbxsv("check", path)
    assert r.code == 1 and "/nonexistent" in r.out
    assert inst.sbxsv("check", "nothing").code == 4
    for name in ("No Name", "nothing@1"):
        for words in (["check", name], ["check", "--path", name, "/"], ["check", "--allow", name, "x.com"], ["cat", name]):
            assert inst.sbxsv(*words).code == 4, words


def test_a_program_that_is_not_there(inst):
    inst.write_unit("a", f"[App]\nExec=no-such-program-here x\nWorkingDirectory={inst.app_dir('a')}\n", mark=False)
    r = inst.sbxsv("check", "a")
    assert r.code == 1 and "no-such-program-here" in r.out


def test_two_units_with_one_port(inst):
    good(inst, "a", "Listen=4810\n")
    good(inst, "b", "Listen=4811\nListen=4810:80\nListenAddress=0.0.0.0\n")
    line = "b.app:6: port 4810 is already Listen= of app a (a.app:5): "
    r = inst.sbxsv("check")
    assert r.code == 1 and [x for x in r.out.splitlines() if x.startswith(line)] == r.out.splitlines()
    assert inst.sbxsv("check", "b").out.startswith(line)
    assert "a.app:5: port 4810 is already Listen= of app b (b.app:6)" in inst.sbxsv("check", "a").out
    # one that is switched off is an alternative
    inst.write_unit("b", open(inst.unit_path("b")).read().replace("[Network]", "Enabled=no\n[Network]"), mark=False)
    assert inst.sbxsv("check").code == 0


def test_keys_that_are_not_in_force_yet(inst):
    inst.write_unit("a", f"[App]\nExec=/bin/true\nWorkingDirectory={inst.app_dir('a')}\n"
                         "[Network]\nListen=4810\nAsk=yes\n", mark=False)
    out = inst.ok("check", "a")
    assert "note: " in out and "[Network] Ask=" in out and "not in force yet" in out
    assert json.loads(inst.ok("check", "--json", "a"))["notes"]


def ask(inst, *args):
    r = inst.sbxsv("check", *args)
    assert r.code in (0, 6), r
    j = json.loads(inst.sbxsv("check", "--json", *args).out)
    assert j["allowed"] == (r.code == 0)
    return r.code == 0, r.out, j


def test_hosts(inst):
    good(inst, network="Allow=x.com\nAllow=*.y.org:8000-8100\nDeny=bad.y.org\nAllowAddress=192.168.7.1:5432\nLoopback=6379\n"
         "Allow=git.test:22\n")
    for target, want, rule in [
            ("x.com", True, "a.app:5 Allow=x.com"),
            ("X.COM.:443", True, "a.app:5"),
            ("x.com:22", False, "default-deny"),
            ("sub.x.com", False, "default-deny"),
            ("sub.y.org:8050", True, "a.app:6"),
            ("bad.y.org:8050", False, "a.app:7"),
            ("192.168.7.1:5432", True, "a.app:8"),
            ("192.168.7.1:80", False, ""),
            ("169.254.169.254:80", False, "closed"),
            ("[::ffff:169.254.169.254]:80", False, "closed"),
            ("localhost:6379", True, "Loopback=6379"),
            ("127.0.0.1:6379", True, "Loopback=6379"),
            ("[::1]:6379", True, "Loopback=6379"),
            ("127.0.0.1:6380", False, ""),
    ]:
        allowed, out, j = ask(inst, "--allow", "a", target)
        assert allowed == want, (target, out)
        assert rule in j["rule"], (target, j)
    allowed, out, j = ask(inst, "--allow", "a", "new.example.com")
    assert not allowed and "Allow=new.example.com" in out and j["hint"] == "Allow=new.example.com"
    # without a port: 443, or else any that a rule has
    assert ask(inst, "--allow", "a", "git.test")[2]["rule"].endswith("Allow=git.test:22")
    assert not ask(inst, "--allow", "a", "git.test:443")[0]
    assert ask(inst, "--allow", "a", "localhost:1234")[2]["hint"] == "Loopback=1234"


def test_bad_questions(inst):
    good(inst)
    assert inst.sbxsv("check", "--allow", "a", "x.com:0").code == 2
    assert inst.sbxsv("check", "--allow", "a", "x y").code == 1
    assert inst.sbxsv("check", "--allow", "nothing", "x.com").code == 4
    assert inst.sbxsv("check", "--path", "nothing", "/").code == 4
    r = inst.sbxsv("check", "--allow", "a", "\x1b[2J")
    assert r.code == 1 and "\x1b" not in r.err


def test_paths(inst):
    other = inst.app_dir("other", {"secret": "x"})
    shared = inst.app_dir("shared")
    ssh = os.path.join(inst.home, ".ssh")
    os.mkdir(ssh, 0o700)
    good(inst, sandbox=f"[Sandbox]\nRead={shared}\n")
    good(inst, "other")
    mine = inst.app_dir("a")
    for path, want, words in [
            (mine, True, "read and write"),
            (mine + "/not/yet", True, "read and write"),
            (shared, True, "read only"),
            ("/usr/bin/env", True, "read only"),
            (other + "/secret", False, ""),
            (inst.unit_path("a"), False, ""),
            (ssh + "/id_ed25519", False, ""),
            (inst.state + "/events.jsonl", False, ""),
    ]:
        allowed, out, j = ask(inst, "--path", "a", path)
        assert allowed == want and words in out, (path, out)
        assert (j["target"], j["access"]) == (
            os.path.realpath(path), {"read and write": "write", "read only": "read", "": "none"}[words]), j
        if not harness.ROOT:  # whose apps have the home of another user
            assert bool(j["hint"]) == (path == ssh + "/id_ed25519"), j
    assert harness.ROOT or ask(inst, "--path", "a", ssh + "/id_ed25519")[2]["hint"] == "Secret=ssh"
    assert ask(inst, "--path", "a", "/srv")[2]["hint"] == "sbxsv allow a --read /srv (or --write)"
    # a link on the disk leads to what it points at
    os.symlink(other, os.path.join(mine, "link"))
    assert not ask(inst, "--path", "a", mine + "/link/secret")[0]


def test_no_jail(inst):
    good(inst, sandbox="[Sandbox]\nEnforce=off\n")
    assert "Enforce=off" in ask(inst, "--allow", "a", "x.com")[1]
    assert "Enforce=off" in ask(inst, "--path", "a", "/root")[1]


def test_the_settings_are_checked_too(inst):
    good(inst)
    inst.write_conf("[Supervisor]\nShutdwonBudget=1s\n" if not harness.ROOT else "ShutdwonBudget=1s\n")
    r = inst.sbxsv("check")
    assert r.code == 1 and "sbxsv.conf" in r.out and "ShutdownBudget" in r.out
    good(inst, "b")
    r = inst.sbxsv("check")  # once, and not again for each unit
    assert len(r.out.splitlines()) == 1 and "1 error" in r.err, r
    assert len(json.loads(inst.sbxsv("check", "--json", "a", "b").out)["problems"]) == 1


def test_up_says_what_of_the_settings_does_not_count(inst):
    good(inst)
    head = "" if harness.ROOT else "[Supervisor]\n"
    inst.write_conf(head + "ShutdwonBudget=1s\n")
    r = inst.sbxsv("up")
    assert r.code == 0 and "sbxsv.conf:" in r.err and "ShutdownBudget" in r.err, r
    inst.write_conf(head + "ShutdownBudget=1s\n")
    assert inst.sbxsv("reload").code == 0
    inst.down()
    r = inst.sbxsv("up")
    assert r.code == 0 and not r.err, r


def test_after_and_requires(inst):
    """A circle is an error of the apps in it alone, with its lines; a name that nobody has is said."""
    good(inst, "a", sandbox="Requires=b\n")
    good(inst, "b", sandbox="After=c\n")
    good(inst, "c", sandbox="Requires=a\n")
    good(inst, "d", sandbox="Requires=a\nAfter=cc\nRequires=later\n")
    r = inst.sbxsv("check")
    assert r.code == 1
    errors = [x for x in r.out.splitlines() if not x.startswith("note: ")]
    assert [x.split(":")[0] for x in errors] == ["a.app", "b.app", "c.app"], errors
    assert errors[0] == ("a.app:4: [App] Requires=b goes in a circle: b comes after c (b.app:4), c requires a "
                         "(c.app:4); remove one of these lines")
    assert "b.app:4: [App] After=c goes in a circle: " in inst.sbxsv("check", "b").out
    r = inst.sbxsv("check", "d")
    assert r.code == 0 and "d.app:5: After=cc: there is no app cc" in r.out
    assert "d.app:6: Requires=later: there is no app later; the app waits until there is one" in r.out
    # a file that is not in apps.d yet, in place of the one that is
    path = os.path.join(inst.base, "c.app")
    with open(path, "w") as f:
        f.write(open(inst.unit_path("c")).read().replace("Requires=a\n", ""))
    assert inst.sbxsv("check", path).code == 0, inst.sbxsv("check", path)


def test_circles_through_templates(inst):
    """%i makes a circle in each instance, and only where the instances are there."""
    for name, other in (("x", "y"), ("y", "x")):
        good(inst, f"{name}@", sandbox=f"Requires={other}@%i\n")
    assert inst.sbxsv("check").code == 0
    for link in "x@1", "y@1", "x@2":
        os.symlink(f"{link[0]}@.app", inst.unit_path(link))
    r = inst.sbxsv("check")
    assert r.code == 1
    lines = [x for x in r.out.splitlines() if "circle" in x]
    assert len(lines) == 2 and all("@1" in x and "@2" not in x for x in lines), r.out
