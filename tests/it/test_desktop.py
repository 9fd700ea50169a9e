"""contrib/desktop: the start and stop hooks of a desktop app, its autostart entry, and the launchd job."""
import configparser
import os
import plistlib
import subprocess

import harness
import pytest

CONTRIB = os.path.join(harness.SOURCE, "contrib")


def hook(inst, name, *args, env=None):
    e = dict(env or inst.env, SBXSV=harness.program("sbxsv"))
    return subprocess.run([os.path.join(CONTRIB, "desktop", name), *map(str, args)], env=e, cwd=inst.base, capture_output=True,
                          text=True, timeout=60, stdin=subprocess.DEVNULL)


def directories(inst):
    """An environment in which the directories follow from --instance alone, below the test's."""
    e = {k: v for k, v in inst.env.items() if not k.startswith("SBXSV_") or k in ("SBXSV_UNITS_DIR", harness.MARK)}
    e["XDG_RUNTIME_DIR"] = os.path.join(inst.base, "run")
    os.makedirs(e["XDG_RUNTIME_DIR"], 0o700, exist_ok=True)
    return e


def answers(inst, name, env):
    r = subprocess.run([harness.program("sbxsv"), "--instance", name, "status"], env=env, capture_output=True, text=True, timeout=60)
    assert r.returncode in (0, 5), r
    return r.returncode == 0


@pytest.mark.skipif(harness.ROOT, reason="an instance of root has its directories in /etc and /run")
def test_two_desktop_apps_do_not_stop_each_other(inst):
    one, two = directories(inst), directories(inst)
    desktop = [inst.spawn(["/bin/sleep", "600"]), inst.spawn(["/bin/sleep", "600"])]
    try:
        for name, env, p in (("one", one, desktop[0]), ("two", two, desktop[1])):
            r = hook(inst, "start", name, p.pid, env=env)
            assert r.returncode == 0 and "started" in r.stdout, r
        r = hook(inst, "start", "one", desktop[0].pid, env=one)
        assert r.returncode == 0 and "is running already" in r.stdout, r
        assert answers(inst, "one", one) and answers(inst, "two", two)
        r = hook(inst, "stop", "one", env=one)
        assert r.returncode == 0, r
        assert not answers(inst, "one", one) and answers(inst, "two", two)
        assert hook(inst, "stop", "one", env=one).returncode == 0
        # a desktop app that crashed
        desktop[1].kill()
        desktop[1].wait()
        harness.wait_for(lambda: not answers(inst, "two", two), what="the end of the second instance", step=0.1)
    finally:
        hook(inst, "stop", "one", env=one)
        hook(inst, "stop", "two", "1s", env=two)


def test_hooks_say_how_they_are_used(inst):
    for name in ("start", "stop"):
        r = hook(inst, name)
        assert r.returncode != 0 and f"usage: {name} INSTANCE" in r.stderr
        assert hook(inst, name, "../x").returncode == 2


def autostart(inst, word, env=None, instance=()):
    e = {k: v for k, v in inst.env.items() if not k.startswith("SBXSV_")}
    e.update(XDG_CONFIG_HOME=os.path.join(inst.base, "xdg"), XDG_RUNTIME_DIR=os.path.join(inst.base, "run"), **(env or {}))
    os.makedirs(e["XDG_RUNTIME_DIR"], 0o700, exist_ok=True)
    return subprocess.run([harness.program("sbxsv"), *instance, "autostart", word], env=e, capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)


@pytest.mark.skipif(harness.ROOT, reason="root is told the command instead")
def test_autostart_by_a_desktop_entry(inst):
    assert "was not on" in autostart(inst, "off").stdout
    for instance, name in (((), "sbxsv"), (("--instance", "two"), "sbxsv-two")):
        path = os.path.join(inst.base, "xdg", "autostart", name + ".desktop")
        assert autostart(inst, "on", instance=instance).returncode == 0
        assert autostart(inst, "on", instance=instance).returncode == 0
        entry = configparser.ConfigParser(interpolation=None)
        entry.read(path)
        assert entry["Desktop Entry"]["exec"] == " ".join([harness.program("sbxsv"), *instance, "up"])
        assert path in autostart(inst, "off", instance=instance).stdout and not os.path.exists(path)
    with open(os.path.join(inst.base, "xdg", "autostart", "sbxsv.desktop"), "w") as f:
        f.write("[Desktop Entry]\n")
    for word in ("on", "off"):
        r = autostart(inst, word)
        assert r.returncode == 1 and "nothing was changed" in r.stderr


@pytest.mark.skipif(harness.ROOT, reason="root is told the command instead")
def test_autostart_by_systemd(inst):
    calls = os.path.join(inst.base, "calls")
    tools = inst.app_dir("tools")
    inst.user_file(os.path.join(tools, "systemctl"), f"#!/bin/sh\necho \"$@\" >>{calls}\n", 0o755)
    env = {"PATH": tools + ":" + inst.env["PATH"]}
    os.makedirs(os.path.join(inst.base, "run", "systemd"))
    with open(os.path.join(inst.base, "run", "systemd", "private"), "w"):
        pass
    assert autostart(inst, "on", env).returncode == 0
    path = os.path.join(inst.base, "xdg", "systemd", "user", "sbxsv.service")
    assert f"ExecStart={harness.program('sbxsvd')} --foreground" in inst.read_text(path)
    assert inst.read_text(calls).splitlines() == ["--user daemon-reload", "--user --quiet enable sbxsv"]
    assert autostart(inst, "off", env).returncode == 0 and not os.path.exists(path)
    assert "disable sbxsv" in inst.read_text(calls)


@pytest.mark.skipif(not harness.ROOT, reason="of root")
def test_autostart_as_root(inst):
    r = autostart(inst, "on")
    assert r.returncode == 1 and "systemctl enable --now sbxsv" in r.stderr
    assert autostart(inst, "maybe").returncode == 2


def test_autostart_entry_and_launchd_job():
    entry = configparser.ConfigParser(interpolation=None)
    entry.optionxform = str
    entry.read(os.path.join(CONTRIB, "desktop", "sbxsv.desktop"))
    d = entry["Desktop Entry"]
    assert d["Type"] == "Application" and d["Exec"] == "sbxsv up" and d["Name"]
    with open(os.path.join(CONTRIB, "launchd", "org.sbxsv.sbxsvd.plist"), "rb") as f:
        job = plistlib.load(f)
    assert job["Label"] + ".plist" in os.listdir(os.path.join(CONTRIB, "launchd"))
    assert job["ProgramArguments"] == ["/usr/local/sbin/sbxsvd", "--foreground"] and job["KeepAlive"] == {"SuccessfulExit": False}
