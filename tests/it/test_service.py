"""sbxsvd as a service of systemd's: sd_notify, the shipped units, and the syntax of units for vim."""
import configparser
import os
import re
import shutil
import signal
import socket
import subprocess

import pytest

import harness

CONTRIB = os.path.join(harness.SOURCE, "contrib")


def receive(s):
    return dict(x.split("=", 1) for x in s.recv(4096).decode().splitlines())


@pytest.mark.parametrize("abstract", [False, True])
def test_notify(inst, abstract):
    path = os.path.join(inst.base, "notify")
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    name = f"sbxsv-test-{os.getpid()}" if abstract else path
    s.bind("\0" + name if abstract else path)
    s.settimeout(30)
    d = inst.app_dir("a")
    inst.write_unit("a", f"[App]\nShell=env > env; exec sleep 1000\nWorkingDirectory={d}\nPassEnvironment=NOTIFY_SOCKET\n")
    inst.env["NOTIFY_SOCKET"] = "@" + name if abstract else path
    p = inst.foreground()
    assert receive(s) == {"READY": "1", "MAINPID": str(p.pid)}
    assert inst.answers()
    inst.wait_state("a", "running")
    p.send_signal(signal.SIGHUP)
    m = receive(s)
    assert m["RELOADING"] == "1" and int(m["MONOTONIC_USEC"]) > 0
    assert receive(s)["READY"] == "1"
    inst.ok("upgrade")
    p.send_signal(signal.SIGTERM)
    assert receive(s) == {"STOPPING": "1"}
    assert p.wait(timeout=30) == 0
    s.close()


def test_a_socket_that_is_not_there_harms_nobody(inst):
    inst.env["NOTIFY_SOCKET"] = os.path.join(inst.base, "nosuch")
    p = inst.foreground()
    inst.down()
    assert p.wait(timeout=30) == 0
    assert "NOTIFY_SOCKET" in inst.read_text(os.path.join(inst.base, "foreground.log"))


def units():
    d = os.path.join(CONTRIB, "systemd")
    return [os.path.join(d, f) for f in sorted(os.listdir(d)) if f.endswith(".service")]


def test_units_of_systemd():
    assert len(units()) == 2
    for path in units():
        u = configparser.ConfigParser(interpolation=None, strict=False)
        u.optionxform = str
        u.read(path)
        s = u["Service"]
        assert s["Type"] == "notify" and s["Delegate"] == "yes" and s["Environment"] == "SBXSV_DELEGATED=1"
        assert s["ExecStart"].endswith("/sbxsvd --foreground") and s["OOMPolicy"] == "continue"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
def test_units_pass_systemds_own_check(inst):
    for path in units():
        copy = os.path.join(inst.base, os.path.basename(path))
        with open(copy, "w") as f:
            f.write(re.sub(r"^ExecStart=.*", "ExecStart=/bin/true", inst.read_text(path), flags=re.M))
        r = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, timeout=60)
        assert r.returncode == 0 and os.path.basename(copy) not in r.stderr, r


def test_syntax_has_every_key(inst):
    out = inst.ok("help", "--completion", "vim")
    assert inst.sbxsv("help", "--completion", "emacs").code == 2
    with open(os.path.join(harness.SOURCE, "src", "unit", "keys.c")) as f:
        rows = re.findall(r'^\tU\("(\w+)", "(\w+)"', f.read(), re.M)
    assert len(rows) > 80
    for section, key in rows:
        m = re.search(rf"^syn match sbxsvKey{section} /\^\\%\((.*)\\\)\\ze=/ contained$", out, re.M)
        assert m and key in m.group(1).split("\\|"), (section, key)
        assert f"start=/^\\[{section}\\]" in out


@pytest.mark.skipif(not shutil.which("vim"), reason="no vim")
def test_vim_takes_the_syntax(inst):
    syntax, unit, out = (os.path.join(inst.base, x) for x in ("sbxsv.vim", "x.app", "groups"))
    with open(syntax, "w") as f:
        f.write(inst.ok("help", "--completion", "vim"))
    with open(unit, "w") as f:
        f.write("# hello\n[App]\nExec=/bin/true\nMode=background\nMode=sideways\nNonsense=1\nListen=1\n[Network]\nListen=4810\n[Nowhere]\n")
    script = os.path.join(inst.base, "script.vim")
    at = [(1, 1), (2, 1), (3, 1), (4, 6), (5, 6), (6, 1), (7, 1), (9, 1), (10, 1)]
    with open(script, "w") as f:
        f.write(f"syntax on\nsyntax clear\nunlet! b:current_syntax\nsource {syntax}\nlet r = []\n" +
                "".join(f"call add(r, synIDattr(synID({a}, {b}, 1), 'name'))\n" for a, b in at) + f"call writefile(r, '{out}')\nqa!\n")
    subprocess.run(["vim", "-u", "NONE", "-i", "NONE", "-n", "-es", "-S", script, unit], stdin=subprocess.DEVNULL, timeout=60,
                   env=dict(inst.env, TERM="dumb"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert inst.read_text(out).splitlines() == ["sbxsvComment", "sbxsvSection", "sbxsvKeyApp", "sbxsvWordApp", "sbxsvInApp", "sbxsvUnknown",
                                                "sbxsvUnknown", "sbxsvKeyNetwork", "sbxsvWrong"]
