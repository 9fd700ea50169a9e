"""sbxsv import: what comes out is a unit that check takes, never one that runs without a jail."""
import glob
import json
import os

import harness
import pytest

CORPUS = os.path.join(harness.TESTS, "corpus")


def lines(text):
    """The live lines of a unit, without comments: {section: [line]}."""
    out, section = {}, None
    for line in text.splitlines():
        if line.startswith("["):
            section = out.setdefault(line[1:-1], [])
        elif line and not line.startswith("#"):
            section.append(line)
    return out


def imported(inst, path, *args):
    r = inst.sbxsv("import", path, *args)
    assert r.code == 0, r
    live = lines(r.out)
    assert "Enforce=off" not in r.out and "Hooks" not in live and "Prepare" not in live
    return r.out, live


def checks(inst, name, text):
    inst.write_unit(name, text, mark=False)
    r = inst.sbxsv("check", name)
    assert r.code == 0, (text, r)


def file(inst, name, text):
    return inst.user_file(os.path.join(inst.app_dir("in"), name), text)


@pytest.mark.parametrize("path", sorted(glob.glob(os.path.join(CORPUS, "manifests", "*.json"))))
def test_manifests(inst, path):
    m = json.load(open(path))
    d = inst.app_dir(m["id"])
    if m["id"] == "bad-mode":
        r = inst.sbxsv("import", path)
        assert r.code == 1 and not r.out and "did you mean background?" in r.err
        return
    start = m["runtime"]["start"].split()[0]
    if start.startswith("./"):
        inst.user_file(os.path.join(d, start[2:]), "#!/bin/sh\nexec sleep 60\n", 0o755)
    else:  # python of a .venv, npm: a program of the app's own stands for it
        os.makedirs(os.path.join(d, ".venv", "bin"))
        inst.user_file(os.path.join(d, ".venv", "bin", start), "#!/bin/sh\nexec sleep 60\n", 0o755)
    here = inst.user_file(os.path.join(d, "senclaw-manifest.json"), open(path).read())
    if start == "npm":
        m["runtime"]["venv"] = True
        inst.user_file(here, json.dumps(m))
    text, live = imported(inst, here)
    assert f"WorkingDirectory={d}" in live["App"] and f"Listen={m['runtime']['port']}" in live["Network"]
    assert f"Mode={m['runtime'].get('mode', 'session')}" in live["App"]
    assert f"DataDirectory=~/.senclaw/apps/{m['id']}" in live["App"]
    checks(inst, m["id"], text)


def test_all_keys_of_a_manifest(inst):
    _, live = imported(inst, os.path.join(CORPUS, "manifests", "full.json"))
    assert live["Network"] == ["Listen=4810", "Allow=api.openai.com", "Loopback=5432"]
    assert live["Sandbox"] == ["ReadMode=strict", "Read=-~/Movies"]
    assert live["Needs"] == ["Bin=ffmpeg", "Bin=git", "OptionalBin=yt-dlp", "Env=SOME_TOKEN", "Os=macos", "Os=linux",
                             "Node=>=18", "Python=>=3.10"]
    assert live["Ready"] == ["Type=http", "Path=/api/status"]


def manifest(**kw):
    m = {"id": "app", "runtime": {"kind": "server", "mode": "background", "start": "./x", "port": 4999}}
    for k, v in kw.items():
        if isinstance(v, dict):
            m.setdefault(k, {}).update(v)
        else:
            m[k] = v
    return json.dumps(m)


@pytest.mark.parametrize("kw, words", [
    (dict(runtime={"mode": "backgroud"}), "did you mean background"),
    (dict(runtime={"kind": "static"}), "only \"server\""),
    (dict(runtime={"start": "./x\nEnforce=off"}), "control characters"),
    (dict(runtime={"start": "./x \u202e"}), "control characters"),
    (dict(runtime={"start": ""}), "runtime.start"),
    (dict(runtime={"port": 70000}), "no port"),
    (dict(runtime={"start": "./x\\"}), "backslash"),
    (dict(runtime={"strat": "./y"}), "did you mean start"),
    (dict(runtime={"runner": "pyhton"}), "did you mean python"),
    (dict(sandbox={"network": "of"}), "none of off"),
    (dict(sandbox={"readMode": "srict"}), "did you mean strict"),
    (dict(sandbox={"hosts": ["a.com b.com"]}), "not one word"),
    (dict(sandbox={"hosts": ["a.com\nEgress=all"]}), "hosts"),
    (dict(sandbox={"folders": [{"path": "x\u0007"}]}), "control"),
    (dict(id="../evil"), "no name of an app"),
    (dict(id="a\n[Hooks]"), "control"),
    (dict(name="x\n[Sandbox]\nEnforce=off"), "control"),
    (dict(mcp={"transport": "htp"}), "did you mean http"),
    (dict(runtime=[]), "runtime"),
])
def test_manifests_refused(inst, kw, words):
    r = inst.sbxsv("import", file(inst, "m.json", manifest(**kw)))
    assert r.code == 1 and not r.out and words in r.err, r


def test_a_manifest_of_edges(inst):
    text, live = imported(inst, file(inst, "m.json", manifest(
        name="100% $HOME", runtime={"start": "cd x && ./y 'a' --p=$PORT %h", "mode": "resident", "install": "rm -rf ~",
                                    "idleTimeoutSecs": 5},
        sandbox={"enabled": False, "network": "hosts", "hosts": [], "folders": [{"path": "d e", "readOnly": False}]})))
    assert "Shell=cd x && ./y 'a' --p=$PORT %%h" in live["App"] and "Description=100%% $HOME" in live["App"]
    assert f"Write=-{inst.app_dir('in')}/d e" in live["Sandbox"] and "Allow" not in str(live)
    assert "#   Exec=/bin/sh -c 'rm -rf ~'" in text and "Mode=background" in live["App"]
    _, live = imported(inst, file(inst, "m.json", manifest(
        sandbox={"network": "off", "hosts": ["x.com"]}, mcp={"transport": "stdio"})))
    assert live["Network"] == ["Egress=off"] and "Mode=stdio" in live["App"]
    # the reader's refusal is a comment, the rest stands
    text, live = imported(inst, file(inst, "m.json", manifest(sandbox={"hosts": ["localhost", "ok.example"]},
                                                              requires={"node": "whatever"})))
    assert live["Network"] == ["Listen=4999", "Allow=ok.example"] and "# Allow=localhost is not carried over" in text
    assert not live["Needs"]


def test_a_session_app_needs_a_port(inst):
    m = json.loads(manifest(runtime={"mode": "lazy"}))
    del m["runtime"]["port"]
    path = file(inst, "m.json", json.dumps(m))
    r = inst.sbxsv("import", path)
    assert r.code == 1 and "--port" in r.err
    _, live = imported(inst, path, "--port", "4321")
    assert live["Network"] == ["Listen=4321"] and "IdleTimeout=60s" in live["Session"]


def test_systemd(inst):
    text, live = imported(inst, os.path.join(CORPUS, "import", "web.service"))
    assert live["App"][0] == "Shell=set -f; exec /opt/web/bin/serve --port 8080 'a b' \"${TOKEN}\" $MORE"
    assert "Environment='A=1 2'" in live["App"] and "EnvironmentFile=-/etc/web.env" in live["App"]
    assert live["Restart"] == ["Policy=on-failure", "Sec=45", "MaxSec=45"]
    assert live["Sandbox"] == ["Hide=/srv/secret"] and live["Limits"] == ["OpenFiles=4096"]
    assert ("User=www-data" in live["App"]) == harness.ROOT
    for said in ("# After=network.target", "# ProtectHome=yes", "# WantedBy=multi-user.target", "# SuccessExitStatus=143"):
        assert said in text
    d = inst.app_dir("svc", {"run.py": "import time\ntime.sleep(60)\n"})
    text, live = imported(inst, file(inst, "svc.service", f"[Service]\nExecStart={harness.PYTHON} {d}/run.py -- \"50%%\" %n\n"
                                                          f"ReadWritePaths={d} /x:/y\nExecStartPre=/bin/true\nPrivateNetwork=yes\n"))
    assert f"Exec={harness.PYTHON} {d}/run.py -- 50%% svc" in live["App"] and f"WorkingDirectory={d}" in live["App"]
    assert live["Restart"] == ["Policy=no"] and live["Network"] == ["Egress=off"] and "# ExecStartPre=/bin/true" in text
    checks(inst, "svc", text)


@pytest.mark.parametrize("text, words", [
    ("[Service]\nType=simple\n", "0 ExecStart"),
    ("[Service]\nExecStart=/a\nExecStart=/b\n", "2 ExecStart"),
    ("[Service]\nExecStart=/srv/a/b x$Y\n", "variable inside"),
    ("[Service]\nExecStart=/srv/a/b %H\n", "specifier"),
    ("[Service]\nExecStart=/srv/a/b \"x\n", "quote"),
    ("[Service]\nExecStart=/srv/a/b \\x41\n", "escape"),
    ("[Service]\nExecStart=/srv/a/b\nType=forking\n", "foreground"),
    ("[Service]\nExecStart=/usr/bin/sleep 1\n", "--directory"),
    ("[Service]\nExecStart=/srv/a/b\nInaccessiblePaths=relative\n", "Hide"),
    ("[Service]\nExecStart=/srv/a/b \x1b[2J\n", "control"),
    ("[Service]\nnonsense\n", "line 2"),
])
def test_systemd_refused(inst, text, words):
    r = inst.sbxsv("import", "--from", "systemd", file(inst, "x.service", text))
    assert r.code == 1 and not r.out and words in r.err, r


def test_supervisord(inst):
    text, live = imported(inst, os.path.join(CORPUS, "import", "sup.conf"))
    assert live["App"][:2] == ["Exec=/usr/bin/python3 /opt/cat/main.py '--x=a b' cat", "WorkingDirectory=/opt/cat"]
    assert "Environment=KEY=val,1" in live["App"] and live["Stop"] == ["Signal=INT", "Timeout=7"]
    assert live["Restart"] == ["Policy=always", "LimitBurst=4", "SuccessExitStatus=2"] and live["Log"] == ["MaxSize=50M"]
    d = inst.app_dir("sv")
    two = file(inst, "two.conf", f"[program:a]\ncommand=/bin/sleep 60\ndirectory={d}\n[program:b]\ncommand=/bin/true 50%%\n"
                                 f"  more ; note\ndirectory={d}\nautostart=false\n")
    r = inst.sbxsv("import", two)
    assert r.code == 1 and "program:a, program:b" in r.err
    text, live = imported(inst, two, "--name", "b")
    assert "Exec=/bin/true 50%% more" in live["App"] and "Enabled=no" in live["App"]
    checks(inst, "b", text)
    for body, words in [("numprocs=3", "one command"), ("environment=A=%(ENV_X)s", "expansion"),
                        ("autorestart=treu", "did you mean true"), ("command=x", "twice")]:
        r = inst.sbxsv("import", file(inst, "x.conf", f"[program:a]\ncommand=/srv/a/b\n{body}\n"))
        assert r.code == 1 and words in r.err, r


def test_srt(inst):
    path = os.path.join(CORPUS, "import", "srt.json")
    d = inst.app_dir("srt")
    text, live = imported(inst, path, "--directory", d, "--", "/bin/echo", "a'b $x %")
    assert live["Network"] == ["Allow=*.github.com", "Deny=github.com", "Allow=npmjs.org:443", "Allow=github.io",
                               "Deny=evil.github.com"]
    assert live["Sandbox"] == ["ReadMode=open", "Hide=-~/.ssh", "Hide=-/srv/x", f"Write=-{d}", "Write=-/var/tmp/q",
                               f"Read=-{d}/.env"]
    assert "Exec=/bin/echo 'a'\\''b $x %%'" in live["App"]
    text, live = imported(inst, path, "--directory", d)
    assert "Enabled=no" in live["App"]
    text, live = imported(inst, file(inst, "s.json", json.dumps(
        {"network": {"allowedDomains": ["x.org"], "deniedDomains": ["*"]},
         "filesystem": {"denyRead": ["/"], "allowRead": ["lib", "/opt/x/**"]}})))
    assert not live["Network"] and live["Sandbox"][0] == "ReadMode=strict" and "Read=-/opt/x" in live["Sandbox"]
    for s, words in [({"network": {"allowedDomain": []}}, "did you mean allowedDomains"),
                     ({"network": []}, "not an object"),
                     ({"filesystem": {"denyReads": []}}, "did you mean denyRead"),
                     ({"filesystem": {"denyRead": ["*.pem"]}}, "pattern"),
                     ({"network": {"deniedDomains": ["a b"]}}, "no domain")]:
        r = inst.sbxsv("import", "--from", "srt", file(inst, "s.json", json.dumps(s)))
        assert r.code == 1 and not r.out and words in r.err, r


def test_what_it_is(inst):
    for text in ("", "x", "{}", "[1]", "{", "\0", "[Unit]\n"):
        r = inst.sbxsv("import", file(inst, "q", text))
        assert r.code == 1 and not r.out and r.err
    r = inst.sbxsv("import", "-", "--directory", inst.app_dir("in"), input=manifest())
    assert r.code == 0 and "Exec=./x" in r.out
    for args in ((), ("a", "b"), ("--from", "pm2", "a"), ("--port", "0", "a"), ("--", "a")):
        assert inst.sbxsv("import", *args).code == 2
    assert inst.sbxsv("import", "/nonexistent").code == 1
