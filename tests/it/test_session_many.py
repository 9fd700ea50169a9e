"""Hundreds of session apps: what they cost while they rest, all of them woken at once, and requests at the idle boundary.

The sizes of an ordinary run are smaller than those of a release, which SBXSV_SESSION_FULL=1 asks for: 200 apps, 50 rounds.
"""
import os

import harness
import sessions

FULL = os.environ.get("SBXSV_SESSION_FULL") == "1"
AT_ONCE = 200 if FULL else 60
BOUNDARY = (200, 50) if FULL else (30, 8)


def private_kb(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("Private_"))


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
