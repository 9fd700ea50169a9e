"""Loopback=: the ports of other apps by name, and ports that come and go while the app runs."""
import socket
import threading

import harness
import netsup

GET = "http://127.0.0.1:{}/"


def got(sup, app, port):
    """What the agent behind that port says: "ok PID", or the name of the error."""
    return sup.run(app, f"result = read_from('127.0.0.1', {port}, b'GET / HTTP/1.0\\r\\n\\r\\n')")


def reaches(sup, app, port):
    return "ok " in got(sup, app, port)


def change(sup, name, old, new):
    text = sup.read_text(sup.unit_path(name))
    assert old in text
    sup.write_unit(name, text.replace(old, new))
    return sup.ok("reload")


@netsup.lab
def test_an_app_reaches_another_by_its_name(lab, sup):
    notes = sup.agent("notes")
    sup.agent("box", "Loopback=app:notes")
    sup.agent("other")
    sup.up_all()
    assert reaches(sup, "box", notes)
    assert got(sup, "other", notes) == "ECONNREFUSED"
    assert sup.run("box", f"result = read_from('::1', {notes}, b'GET / HTTP/1.0\\r\\n\\r\\n')").endswith("\n")
    s = sup.status("box")
    assert s["loopback_apps"] == [{"app": "notes", "port": notes, "to": notes}] and s["loopback"] == []
    assert f"app:notes at port {notes}" in sup.ok("status", "box")
    r = sup.sbxsv("check", "--allow", "box", f"localhost:{notes}")
    assert r.code == 0 and "Loopback=app:notes" in r.out and "box.app" in r.out, r
    assert sup.sbxsv("check", "--allow", "box", f"localhost:{notes + 1}").code == 6
    # while it starts again, who connects waits and is served
    answers = []
    t = threading.Thread(target=lambda: answers.append(got(sup, "box", notes)))
    before = sup.status("notes")["pid"]
    harness.kill_pid(before)
    harness.wait_for(lambda: sup.status("notes").get("pid") != before, what="the end of the first process")
    t.start()
    t.join(60)
    assert "ok " in answers[0], answers
    # stopped by a person: at once an end
    sup.ok("stop", "notes")
    assert got(sup, "box", notes) in ("", "ECONNRESET", "ECONNREFUSED")
    sup.ok("start", "notes")
    assert reaches(sup, "box", notes)


@netsup.lab
def test_it_follows_the_port(lab, sup):
    notes = sup.agent("notes")
    sup.agent("box", "Loopback=app:notes")
    sup.up_all()
    box = sup.status("box")["pid"]
    moved = harness.free_port()
    change(sup, "notes", f"Listen={notes}", f"Listen={moved}:{notes}")
    sup.ports["notes"] = moved
    sup.wait_state("notes", "running")
    harness.wait_for(lambda: reaches(sup, "box", moved), what="the new port")
    assert reaches(sup, "box", notes), "the number it had still leads there"
    s = sup.status("box")
    assert s["pid"] == box
    assert {(x["port"], x["to"]) for x in s["loopback_apps"]} == {(notes, moved), (moved, moved)}
    assert f"app:notes at port {notes} (now {moved})" in sup.ok("status", "box")
    # what is known outlives the proxy
    old = sup.proxy_pid()
    harness.kill_pid(old)
    harness.wait_for(lambda: sup.proxy_pid() not in (None, old), what="the next proxy")
    assert reaches(sup, "box", notes) and reaches(sup, "box", moved)
    # a new jail has the new number only
    sup.ok("restart", "box")
    assert reaches(sup, "box", moved) and got(sup, "box", notes) == "ECONNREFUSED"


def foreign(port):
    """A service of the host that has the port for itself."""
    listener = socket.create_server(("127.0.0.1", port))

    def serve():
        while True:
            try:
                c, _ = listener.accept()
            except OSError:
                return
            c.sendall(b"a stranger")
            c.close()
    threading.Thread(target=serve, daemon=True).start()
    return listener


def end(listener):
    listener.shutdown(socket.SHUT_RDWR)  # accept() of the thread holds it else
    listener.close()


@netsup.lab
def test_whoever_has_the_port_is_not_the_app_that_is_named(lab, sup):
    notes = sup.agent("notes")
    box = sup.agent("box", "Loopback=app:notes")
    other = foreign(notes)
    sup.up()
    sup.wait_state("box", "running")
    sup.wait_state("notes", "failed")
    assert sup.ports["box"] == box
    assert got(sup, "box", notes) in ("", "ECONNRESET", "ENOTCONN")
    v = sup.wait_violation("box", host="localhost", port=notes)
    assert "not held" in v["rule"]
    end(other)
    sup.ok("start", "notes")
    assert reaches(sup, "box", notes)
    # its unit goes, and with it the port
    sup.remove_unit("notes")
    sup.sbxsv("reload")

    def free():
        try:
            return foreign(notes)
        except OSError:
            return None
    other = harness.wait_for(free, what="the port")
    assert got(sup, "box", notes) in ("", "ECONNRESET", "ENOTCONN")
    assert sup.status("box")["state"] == "running"
    end(other)


@netsup.lab
def test_loopback_ports_come_and_go_without_a_restart(lab, sup):
    a, b = sup.agent("a"), sup.agent("b")
    sup.agent("box", f"Loopback={a}")
    sup.up_all()
    box = sup.status("box")["pid"]
    assert reaches(sup, "box", a) and got(sup, "box", b) == "ECONNREFUSED"
    hold = f"""
        s = socket.create_connection(("127.0.0.1", {a}), TIMEOUT)
        keep = globals().setdefault("keep", [])
        import builtins
        builtins.kept = s
        result = "held"
    """
    assert sup.run("box", hold) == "held"
    change(sup, "box", f"Loopback={a}", f"Loopback={b}")
    assert reaches(sup, "box", b) and got(sup, "box", a) == "ECONNREFUSED"
    ended = """
        import builtins
        try:
            result = builtins.kept.recv(1) == b""
        except ConnectionResetError:
            result = True
    """
    assert sup.run("box", ended), "a connection to a port that is no longer named"
    change(sup, "box", f"Loopback={b}", f"Loopback={b} app:a")
    assert reaches(sup, "box", b) and reaches(sup, "box", a)
    change(sup, "box", f"Loopback={b} app:a", "")
    assert got(sup, "box", a) == "ECONNREFUSED" and got(sup, "box", b) == "ECONNREFUSED"
    assert sup.status("box")["pid"] == box and sup.status("box")["launches"] == 1
    # a port that the app has taken inside: then it needs a new process, and the app is told by a restart
    taken = harness.free_port()
    assert sup.run("box", f"import builtins; builtins.mine = socket.create_server(('127.0.0.1', {taken})); result = 1")
    change(sup, "box", "Listen=", f"Loopback={taken}\nListen=")
    harness.wait_for(lambda: sup.status("box").get("pid") not in (None, box), what="a new process")
    sup.wait_state("box", "running")


def test_units_that_name_others(inst, free_port):
    inst.server_unit("notes", free_port())
    inst.server_unit("mute", free_port())
    inst.write_unit("mute", inst.read_text(inst.unit_path("mute")).replace("Listen=", "#"))
    port = free_port()
    inst.server_unit("far", port, network="ListenAddress=192.168.77.7")
    for line, words in (("app:nots", ["there is no app nots", "did you mean app:notes?"]), ("app:box", ["is the app itself"]),
                        ("app:", ["not the name of an app"]), ("app:../x", ["not the name of an app"]), ("app:mute", ["no Listen="]),
                        ("app:far", ["192.168.77.7"]), ("notes", ["neither a port"])):
        inst.server_unit("box", free_port(), network=f"Loopback={line}")
        r = inst.sbxsv("check", "box")
        assert r.code == 1 and all(w in r.out for w in words) and "box.app:" in r.out, (line, r)
        r = inst.sbxsv("check")
        assert r.code == 1 and all(w in r.out for w in words), (line, r)
    inst.server_unit("box", port + 1, network="Loopback=app:notes app:notes")
    inst.write_unit("far", inst.read_text(inst.unit_path("far")).replace("ListenAddress=", "#"))
    assert inst.ok("check", "box")
    # its own port inside is the host port of the other
    notes = inst.read_text(inst.unit_path("notes")).split("Listen=")[1].split()[0]
    inst.write_unit("box", inst.read_text(inst.unit_path("box")).replace(f"Listen={port + 1}", f"Listen={port + 1}:{notes}"))
    r = inst.sbxsv("check", "box")
    assert r.code == 1 and f"the port of notes, {notes}, is the app's own port" in r.out, r


def test_an_unknown_name_keeps_the_app_from_starting_and_no_other(inst, free_port):
    inst.server_unit("notes", free_port())
    inst.server_unit("box", free_port(), network="Loopback=app:soon")
    inst.up()
    inst.wait_state("notes", "running")
    s = inst.wait_state("box", "failed")
    assert "there is no app soon" in s["reason"]
    inst.server_unit("soon", free_port())
    inst.ok("reload")
    inst.wait_state("box", "running")
    # its unit goes: what runs goes on, and says so
    inst.remove_unit("soon")
    assert inst.sbxsv("reload").code == 1
    s = inst.status("box")
    assert s["state"] == "running" and "there is no app soon" in s["problems"][0]
