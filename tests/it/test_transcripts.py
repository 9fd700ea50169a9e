"""Three apps whose unit forgets a path: `sbxsv status` alone tells the command to type, and after it the app runs.

The transcripts are data/transcripts/*.txt: "$ " begins a command, what follows is its output. "..." stands for anything in a line,
and alone for any lines. @WORD@ is replaced by what the test made. The test types what the transcript says; it also takes the
command out of the output of status and checks that the transcript has the very same one.
"""
import os
import re
import shlex
import shutil

import harness
import pytest

TRANSCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "transcripts")


def matches(expected, got):
    """Do these lines, with "..." in them, stand for those?"""
    if not expected:
        return not got
    if expected[0].strip() == "...":
        return any(matches(expected[1:], got[i:]) for i in range(len(got) + 1))
    if not got:
        return False
    pattern = ".*".join(re.escape(p) for p in expected[0].split("..."))
    return re.fullmatch(pattern, got[0]) is not None and matches(expected[1:], got[1:])


def steps(text):
    """(command, lines of output) of a transcript."""
    out = []
    for line in text.splitlines():
        if line.startswith("$ "):
            out.append((line[2:], []))
        elif out:
            out[-1][1].append(line)
    return out


def play(inst, name, **words):
    with open(os.path.join(TRANSCRIPTS, f"{name}.txt"), encoding="utf-8") as f:
        text = f.read()
    for k, v in words.items():
        text = text.replace(f"@{k}@", v)
    assert "@" not in re.sub(r"\S+@\S+", "", text), "a word of the transcript is not filled in"
    told = None
    for command, expected in steps(text):
        argv = shlex.split(command)
        if argv[1] == "allow":
            assert told == command, f"status told {told!r}"
        if argv[0] == "sbxsv":
            r = inst.sbxsv(*argv[1:])
            got = (r.out + r.err).splitlines()
        else:
            port = int(argv[-1].rsplit(":", 1)[1].rstrip("/"))
            got = [harness.http_get(port).text.rstrip()]
        assert matches(expected, got), "\n".join([f"$ {command}", *got, "--- is not", *expected])
        if argv[1] == "status":
            found = re.findall(r"sbxsv allow \S+ --\S+ \S+", "\n".join(got))
            told = found[0] if found else told
    return told


def missing(inst, name, directory, command, body=""):
    inst.write_unit(name, f"[App]\nExec={command}\nWorkingDirectory={directory}\n[Restart]\nSec=20ms\nLimitBurst=3\n{body}")


def outside(inst, name):
    top = os.path.join(inst.home, "shared")
    if not os.path.isdir(top):
        inst._own_dir(top)
    d = os.path.join(top, name)
    inst._own_dir(d)
    return d


def test_python_web_app_without_its_fonts(inst, free_port):
    fonts, port = outside(inst, "fonts"), free_port()
    inst.user_file(f"{fonts}/serif.ttf", "font\n")
    d = inst.app_dir("posters", {"main.py": f"""import http.server, os, sys
fonts = [f for f in os.listdir({fonts!r}) if f.endswith(".ttf")]
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ("posters in " + " ".join(fonts)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), H).serve_forever()
"""})
    missing(inst, "posters", d, f"{harness.PYTHON} main.py", f"[Network]\nListen={port}\n")
    inst.up()
    inst.wait_state("posters", "failed")
    play(inst, "python-fonts", FONTS=fonts, PORT=str(port))
    assert inst.wait_state("posters", "running")


@pytest.mark.skipif(not os.path.exists("/usr/bin/node"), reason="no Node")
def test_node_app_without_its_config_file(inst):
    config = inst.user_file(f"{outside(inst, 'etc')}/bot.json", '{"name":"bot"}')
    d = inst.app_dir("bot", {"main.mjs": f"""import fs from "node:fs";
const config = JSON.parse(fs.readFileSync({config!r}));
console.log("I am", config.name);
setInterval(() => {{}}, 1000);
"""})
    missing(inst, "bot", d, "/usr/bin/node main.mjs")
    inst.up()
    inst.wait_state("bot", "failed")
    play(inst, "node-config", CONFIG=config)
    inst.wait_state("bot", "running")
    harness.wait_for(lambda: "I am bot" in inst.log("bot"), 20, "it read its configuration")


def test_shell_app_without_its_output_directory(inst):
    out = outside(inst, "reports")
    d = inst.app_dir("report", {"run.sh": f"set -e\ndate >{out}/today\necho written\nexec sleep 1000\n"})
    missing(inst, "report", d, "/bin/sh run.sh")
    inst.up()
    inst.wait_state("report", "failed")
    play(inst, "shell-output", OUT=out)
    inst.wait_state("report", "running")
    harness.wait_for(lambda: os.path.exists(f"{out}/today"), 20, "the report")


def test_the_matcher_can_fail():
    assert matches(["a ... c", "...", "z"], ["a b c", "1", "2", "z"])
    assert not matches(["a ... c"], ["a b d"]) and not matches(["a"], ["a", "b"]) and not matches(["a", "b"], ["a"])
    assert shutil.which("sh")
