"""Hundreds of session apps: what they cost while they rest, all of them woken at once, and requests at the idle boundary.

The sizes of an ordinary run are smaller than those of a release, which SBXSV_SESSION_FULL=1 asks for: 200 apps, 50 rounds.
"""
import os
import random
import threading

import harness
import pytest
import sessions

FULL = os.environ.get("SBXSV_SESSION_FULL") == "1"
AT_ONCE = 200 if FULL else 60
BOUNDARY = (200, 50) if FULL else (30, 8)


def private_kb(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("Private_"))


@pytest.mark.timeout(1200 if FULL else 180)
def test_all_rest_start_at_once_and_rest_again(inst, record_property):
    ports = sessions.make(inst, AT_ONCE, "2s")
    up_ms, idle_ms = sessions.start(inst, AT_ONCE)
    private = private_kb(inst.daemon_pid())
    assert sessions.launches(inst) == 0
    errors, took = sessions.all_at_once(ports)
    assert not errors, f"{len(errors)} of {AT_ONCE} were not served: {errors[:5]}"
    assert sessions.launches(inst) == AT_ONCE
    sessions.wait_idle(inst, AT_ONCE)
    assert sessions.launches(inst) == AT_ONCE
    record_property("table", f"{AT_ONCE} session apps: up after {up_ms:.0f} ms, all idle after {idle_ms:.0f} ms, supervisor "
                             f"{private / 1024:.2f} MB private; {AT_ONCE} clients at once: 0 refused, median "
                             f"{took[len(took) // 2] * 1000:.0f} ms, last {took[-1] * 1000:.0f} ms")


@pytest.mark.timeout(7200 if FULL else 180)
def test_requests_at_the_idle_boundary(inst, record_property):
    n, rounds = BOUNDARY
    ports = sessions.make(inst, n)
    sessions.start(inst, n)
    errors = sessions.at_the_boundary(ports, rounds)
    starts = sessions.launches(inst)
    assert not errors, f"{len(errors)} of {n * rounds} were lost: {errors[:5]}"
    sessions.wait_idle(inst, n)
    assert n <= starts <= n * rounds
    record_property("table", f"{n} apps x {rounds} rounds at the idle boundary: {n * rounds} requests, 0 lost, {starts} starts")
    assert harness.wait_for(lambda: sessions.state_counts(inst) == {"idle": n})


@pytest.mark.timeout(7200 if FULL else 180)
def test_kills_at_the_idle_boundary(inst, record_property):
    """Clients at the boundary while the proxy and apps are killed: connections may end then, but nobody waits for ever, and all
    that is left in the end is apps that rest and can be used."""
    n, seconds = (60, 120) if FULL else (12, 12)
    ports = sessions.make(inst, n)
    sessions.start(inst, n)
    rng, kills = random.Random(7), {"proxy": 0, "app": 0}
    errors, done = [], threading.Event()
    clients = threading.Thread(target=lambda: (errors.extend(sessions.at_the_boundary(ports, seconds)), done.set()), daemon=True)
    clients.start()
    while not done.wait(rng.uniform(0.02, 0.3)):
        if rng.random() < 0.15:
            pid, what = inst.proxy_pid(), "proxy"
        else:
            pid, what = (inst.peek(rng.choice(list(ports))) or {}).get("pid"), "app"
        if pid:
            harness.kill_pid(pid)
            kills[what] += 1
    hung = [e for e in errors if "timed out" in e.lower() or "timeout" in e.lower()]
    assert not hung, hung[:5]
    sessions.wait_idle(inst, n)
    again, _ = sessions.all_at_once(ports)
    assert not again, again[:5]
    sessions.wait_idle(inst, n)
    record_property("table", f"{n} apps x {seconds} rounds with {kills['proxy']} kills of the proxy and {kills['app']} of apps: "
                             f"{len(errors)} connections ended, 0 hung")
