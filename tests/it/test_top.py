"""top: what the apps use, as a table and as JSON."""
import json
import os
import pty
import select
import subprocess
import time

import harness
import netsup


def picture(inst, *args):
    return json.loads(inst.ok("top", "--once", "-d", "300ms", "--json", *args))


def test_top_shows_who_works(inst, free_port):
    d = inst.app_dir("busy", {"spin.sh": "while :; do :; done\n"})
    inst.write_unit("busy", f"[App]\nExec=/bin/sh spin.sh\nWorkingDirectory={d}\n")
    port = free_port()
    inst.server_unit("calm", port)
    inst.write_unit("off", inst.read_text(inst.unit_path("calm")).replace(str(port), str(free_port()))
                    .replace("[App]\n", "[App]\nEnabled=no\n"))
    assert inst.sbxsv("top").code == 5
    inst.up()
    inst.wait_state("calm", "running")
    inst.wait_state("busy", "running")
    p = picture(inst)
    apps = {a["name"]: a for a in p["apps"]}
    assert p["interval_ms"] >= 300 and set(apps) == {"busy", "calm", "off"}
    assert p["apps"][0]["name"] == "busy" and apps["busy"]["cpu_percent"] > apps["calm"]["cpu_percent"]
    assert apps["calm"]["memory_bytes"] > 1 << 20 and apps["calm"]["processes"] >= 2 and apps["calm"]["pid"]
    assert apps["off"]["state"] == "stopped" and "pid" not in apps["off"] and "cpu_percent" not in apps["off"]
    # bytes: a transfer while it looks
    sent = harness.http_get(port, "/").body
    harness.wait_for(lambda: picture(inst)["apps"] and
                     {a["name"]: a for a in picture(inst)["apps"]}["calm"]["bytes_out"] >= len(sent), what="the counters")
    out = inst.ok("top", "--once", "-d", "100ms")
    lines = out.splitlines()
    assert lines[0].startswith("sbxsv: 3 apps, supervisor up ") and lines[2].split()[:4] == ["NAME", "STATE", "CPU%", "MEMORY"]
    assert [x.split()[0] for x in lines[3:]][0] == "busy" and "\x1b" not in out
    assert len(inst.ok("top", "-n", "3", "-d", "100ms", "--json").splitlines()) == 3
    for args in (["-n", "0"], ["-n", "x"], ["-d", "1ms"], ["-d", "x"], ["busy"]):
        assert inst.sbxsv("top", *args).code == 2, args


def test_top_on_a_terminal(inst, free_port):
    inst.server_unit("calm", free_port())
    inst.up()
    inst.wait_state("calm", "running")
    main, side = pty.openpty()
    p = inst.spawn([harness.program("sbxsv"), "top", "-d", "100ms"], stdout=side, stderr=subprocess.STDOUT)
    os.close(side)
    seen = b""
    end = time.monotonic() + 30
    while seen.count(b"\x1b[H\x1b[J") < 3 and time.monotonic() < end:
        if select.select([main], [], [], 1)[0]:
            seen += os.read(main, 65536)
    assert seen.count(b"\x1b[H\x1b[J") >= 3 and b"calm" in seen
    inst.down()  # it ends with a message when there is nothing to look at any more
    while True:
        try:
            more = os.read(main, 65536)
        except OSError:
            break
        if not more:
            break
        seen += more
    assert p.wait(timeout=30) in (1, 5)
    os.close(main)


@netsup.lab
def test_top_shows_bytes_of_a_transfer(lab, sup):
    lab.dns({"a.test": ["11.2.0.10"]})
    lab.http_site("a.test", "11.2.0.10")
    sup.agent("box", "Allow=a.test")
    sup.up_all()
    p = sup.spawn([harness.program("sbxsv"), "top", "-n", "20", "-d", "200ms", "--json"], stdout=subprocess.PIPE)
    for _ in range(20):
        assert sup.run("box", "result = get('http://a.test/x')[0]") == 200
    out = p.communicate(timeout=60)[0].decode()
    rows = [json.loads(x)["apps"][0] for x in out.splitlines()]
    assert len(rows) == 20
    assert max(r["bytes_out_per_s"] for r in rows) > 0 and max(r["bytes_in_per_s"] for r in rows) > 0
    assert rows[-1]["out_allowed"] >= 1
