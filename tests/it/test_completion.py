"""Completions are written from the table of commands, and bash really completes with them."""
import os
import re
import shutil
import subprocess

import pytest


def script(inst, shell):
    path = os.path.join(inst.base, "completion." + shell)
    with open(path, "w") as f:
        f.write(inst.ok("help", "--completion", shell))
    return path


def commands(inst):
    return re.findall(r"^  ([a-z]+) +\S", inst.ok("help").split("Commands:")[1].split("Global options:")[0], re.M)


def complete(inst, path, *words):
    """What bash offers for these words, the last one being typed."""
    quoted = " ".join("'" + w + "'" for w in words)
    r = subprocess.run(["bash", "--norc", "-c", f"set -u; . '{path}'; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
                        "_sbxsv; printf '%s\\n' \"${COMPREPLY[@]-}\""], env=inst.env, cwd=inst.base, capture_output=True, text=True,
                       timeout=30)
    assert r.returncode == 0 and not r.stderr, r
    return r.stdout.split()


def test_bash(inst):
    path = script(inst, "bash")
    subprocess.run(["bash", "-n", path], check=True, timeout=30)
    for name in ("notes", "web", "web2"):
        inst.write_unit(name, "[App]\n", mark=False)
    assert set(commands(inst)) <= set(complete(inst, path, "sbxsv", ""))
    assert complete(inst, path, "sbxsv", "resta") == ["restart"]
    assert complete(inst, path, "sbxsv", "--instance", "x", "rel") == ["reload"]
    assert complete(inst, path, "sbxsv", "restart", "we") == ["web", "web2"]
    assert complete(inst, path, "sbxsv", "restart", "web", "n") == ["notes"]
    assert complete(inst, path, "sbxsv", "down", "--gr") == ["--grace"]
    assert {"--follow", "-f", "--lines", "--json"} <= set(complete(inst, path, "sbxsv", "logs", "-"))
    assert complete(inst, path, "sbxsv", "import", "completion.b") == ["completion.bash"]
    assert complete(inst, path, "sbxsv", "zzz") == []
    # the value of an option is a file, and an operand of check may be one
    assert complete(inst, path, "sbxsv", "allow", "web", "--read", "completion.b") == ["completion.bash"]
    assert complete(inst, path, "sbxsv", "--config", "completion.b") == ["completion.bash"]
    assert complete(inst, path, "sbxsv", "logs", "-n", "we") == []
    open(os.path.join(inst.base, "web.app"), "w").close()
    assert complete(inst, path, "sbxsv", "check", "we") == ["web", "web2", "web.app"]


def test_every_command_and_option_is_in_each(inst):
    texts = {s: open(script(inst, s)).read() for s in ("bash", "zsh", "fish")}
    for name in commands(inst):
        options = re.findall(r"^  (?:-\w, )?--([a-z-]+)", inst.ok("help", name).partition("\nOptions:\n")[2]
                             .partition("\nGlobal options:\n")[0], re.M)
        assert re.search(rf"^\t{name}\)", texts["bash"], re.M) and re.search(rf"^\t{name}\)", texts["zsh"], re.M)
        assert f"-a {name} -d " in texts["fish"]
        for o in options:
            assert re.search(rf"^\t{name}\) .*--{o}[ ']", texts["bash"], re.M), (name, o)
            assert f"*--{o}[" in texts["zsh"]
            assert f"from {name}' -l {o}" in texts["fish"]
    r = inst.sbxsv("help", "--completion", "tcsh")
    assert r.code == 2 and "bash, zsh, fish or vim" in r.err


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_others_parse(inst, shell):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", script(inst, shell)], check=True, timeout=30)
