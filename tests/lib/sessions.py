"""Many session apps, and clients that come at the worst moment; for tests/it/test_session_many.py and tests/bench/run session."""
import random
import shutil
import os
import socket
import threading
import time

import harness

PATIENCE = 120  # of a client: a guard against hanging


def make(inst, n, idle="1s"):
    """n session apps of tests/lib/tinyserver.c in one directory: {name: port}."""
    d = inst.app_dir("many")
    shutil.copy(harness.program("tinyserver"), d)
    os.chmod(os.path.join(d, "tinyserver"), 0o755)
    ports = {f"app{i:03d}": harness.free_port() for i in range(n)}
    for name, port in ports.items():
        inst.write_unit(name, f"[App]\nExec={d}/tinyserver\nWorkingDirectory={d}\nMode=session\n[Network]\nListen={port}\n"
                              f"[Session]\nIdleTimeout={idle}\n[Ready]\nTimeout=120s\n")
    return ports


def state_counts(inst):
    counts = {}
    for a in inst.api("GET", "/v1/status")[1]["apps"]:
        counts[a["state"]] = counts.get(a["state"], 0) + 1
    return counts


def wait_idle(inst, n, timeout=PATIENCE):
    harness.wait_for(lambda: state_counts(inst) == {"idle": n}, timeout, what=f"{n} idle apps", step=0.1)


def launches(inst):
    return sum(a["launches"] for a in inst.api("GET", "/v1/status")[1]["apps"])


def start(inst, n):
    """Brings up the instance: milliseconds until `sbxsv up` is back, and until all apps are idle."""
    begun = time.monotonic()
    inst.up()
    up = time.monotonic()
    wait_idle(inst, n)
    return (up - begun) * 1000, (time.monotonic() - begun) * 1000


def ask(name, port):
    """One request on a connection of its own; the error as text, or None."""
    try:
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as s:
            s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            data = b""
            while not data.endswith(f"ok {name}\n".encode()):
                more = s.recv(4096)
                if not more:
                    return f"{name}: ended after {data!r}"
                data += more
    except OSError as e:
        return f"{name}: {e!r}"
    return None


def all_at_once(ports):
    """One client an app, all at the same moment: (errors, seconds until each was served)."""
    errors, took = [], []
    ready = threading.Barrier(len(ports) + 1)

    def client(name, port):
        ready.wait()
        begun = time.monotonic()
        e = ask(name, port)
        took.append(time.monotonic() - begun)
        if e:
            errors.append(e)
    threads = [threading.Thread(target=client, args=p, daemon=True) for p in ports.items()]
    for t in threads:
        t.start()
    ready.wait()
    for t in threads:
        t.join()
    return errors, sorted(took)


def at_the_boundary(ports, rounds, idle=1.0, seed=1):
    """Each app has a client that comes again when its IdleTimeout= is just about over, `rounds` times: errors."""
    errors = []

    def client(name, port, rng):
        for _ in range(rounds):
            e = ask(name, port)
            if e:
                errors.append(e)
            # 40 ms before to 60 ms after: before the proxy's decision, in it, while the app is told, while it ends
            time.sleep(idle + rng.uniform(-0.04, 0.06))
    threads = [threading.Thread(target=client, args=(*p, random.Random(f"{seed} {p[0]}")), daemon=True) for p in ports.items()]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return errors
