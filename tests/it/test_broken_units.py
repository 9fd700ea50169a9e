"""Malformed units: one clear error each, and the good apps beside them are untouched."""
import json
import os
import sys

import harness

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "broken-units"))
import make_broken  # noqa: E402


def relevant(cases):
    """root reads what has mode 0000"""
    return [c for c in cases if not (harness.ROOT and c.kind == "mode=0000")]


def write_broken(inst):
    cases = make_broken.write(inst.apps)
    for c in cases:
        if c not in relevant(cases):
            os.unlink(os.path.join(inst.apps, c.file))
    return relevant(cases)


def test_check_names_each_once(inst):
    inst.write_unit("good", f"[App]\nExec=/bin/true\nWorkingDirectory={inst.app_dir('good')}\n", mark=False)
    cases = write_broken(inst)
    r = inst.sbxsv("check", "--json")
    assert r.code == 1
    found = json.loads(r.out)
    assert found["units"] == 1
    by_file = {}
    for p in found["problems"]:
        by_file.setdefault(p["file"], []).append(p)
    assert len(cases) >= 45
    for c in cases:
        got = by_file.pop(c.file)
        assert len(got) == 1, (c.file, got)
        assert got[0].get("line", 0) == c.line and c.text in got[0]["text"], (c.file, got)
    assert not by_file


def test_a_running_app_does_not_notice(inst, free_port):
    port = free_port()
    inst.server_unit("web", port)
    inst.up()
    inst.wait_state("web", "running")
    before = inst.status("web")["pid"]
    cases = write_broken(inst)
    inst.sbxsv("reload")
    assert inst.status("web")["pid"] == before
    assert harness.http_get(port).status == 200
    for c in cases[:3]:
        out = inst.sbxsv("status", os.path.splitext(c.file)[0]).out
        assert c.text in out, out
    # the unit of a running app that becomes broken: the app runs on with what it has
    inst.write_unit("web", "[App]\nExek=x\n", mark=False)
    inst.sbxsv("reload")
    assert inst.status("web")["pid"] == before
    assert harness.http_get(port).status == 200
