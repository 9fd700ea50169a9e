"""Upgrade in place: the supervisor executes its program anew, and nobody notices."""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

import harness
from harness import PYTHON, ROOT, build_dir, http_get, kill_pid, proc_start, wait_for
from test_sup import unit

QUICK = "[Restart]\nSec=50ms\nMaxSec=200ms\nLimitBurst=1000\n"
CLIENTS = 50


def version(inst):
    return inst.api("GET", "/v1/version")[1]


def upgrade(inst):
    before = version(inst)
    out = inst.ok("upgrade")
    after = version(inst)
    assert after["pid"] == before["pid"] and after["started"] == before["started"]
    assert after["upgrades"] == before["upgrades"] + 1
    return out


def fds(pid):
    return sorted(int(f) for f in os.listdir(f"/proc/{pid}/fd"))


def settled_fds(pid):
    """Descriptors of connections that are just being closed are no news."""
    last = []

    def same():
        last.append(len(fds(pid)))
        return len(last) > 3 and len(set(last[-4:])) == 1
    wait_for(same, 20, "descriptors to settle", step=0.05)
    return last[-1]


class Clients:
    """So many at once that ask again and again, half of them over connections that stay."""

    def __init__(self, port, n=CLIENTS):
        self.port, self.stop, self.failed, self.served, self.pids = port, False, [], 0, set()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(i % 2 == 0,)) for i in range(n)]
        for t in self.threads:
            t.start()

    def ask(self, c):
        c.request("GET", "/")
        r = c.getresponse()
        text = r.read().decode()
        assert r.status == 200 and text.startswith("ok "), (r.status, text)
        return text

    def run(self, stays):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self.stop:
            try:
                text = self.ask(c)
            except Exception as e:  # noqa: BLE001: whatever it is, it is a failed request
                with self.lock:
                    self.failed.append(repr(e))
                c.close()
                continue
            with self.lock:
                self.served += 1
                self.pids.add(text)
            if not stays:
                c.close()
            time.sleep(0.01)
        c.close()

    def end(self):
        self.stop = True
        for t in self.threads:
            t.join()


def test_under_load(inst, free_port):
    """50 clients, 20 upgrades in a row: no request fails, pids and counters stay, descriptors do not grow."""
    port = free_port()
    inst.server_unit("web", port)
    for n in range(3):
        inst.write_unit(f"job{n}", unit(inst.app_dir(f"job{n}"), "while :; do echo line; sleep 0.05; done"))
    inst.up()
    before = inst.wait_state("web", "running")
    jobs = {n: inst.wait_state(f"job{n}", "running") for n in range(3)}
    proxy, daemon = inst.proxy_pid(), inst.daemon_pid()
    clients = Clients(port)
    try:
        wait_for(lambda: clients.served > CLIENTS, what="clients that are served")
        upgrade(inst)
        some = settled_fds(daemon)
        for _ in range(19):
            served = clients.served
            assert upgrade(inst) == f"upgraded {version(inst)['version']} -> {version(inst)['version']}, pid {daemon}, 4 apps kept\n"
            wait_for(lambda: clients.served > served, what="more requests")
        assert settled_fds(daemon) <= some + 2
    finally:
        clients.end()
    assert clients.failed == []
    assert len(clients.pids) == 1
    assert inst.proxy_pid() == proxy and inst.daemon_pid() == daemon
    after = inst.peek("web")
    assert (after["pid"], after["launches"]) == (before["pid"], 1)
    wait_for(lambda: inst.peek("web")["counters"]["in_total"] >= clients.served // 2, what="the counters")
    for n, job in jobs.items():
        now = inst.peek(f"job{n}")
        assert (now["pid"], now["launches"]) == (job["pid"], 1)
    lines = inst.log("job0").splitlines()
    assert set(lines[1:]) <= {"line"} | {li for li in lines if li.startswith("[sbxsv]")}
    assert inst.peek("job0")["log"]["lines"] == len(lines)
    assert inst.api("GET", "/v1/status")[1]["supervisor"]["upgrades"] == 20
    assert not [f for f in fds(daemon) if f > 2 and not closes_on_exec(daemon, f)]


def closes_on_exec(pid, fd):
    try:
        with open(f"/proc/{pid}/fdinfo/{fd}") as f:
            flags = next(line for line in f if line.startswith("flags:"))
    except OSError:
        return True
    return int(flags.split()[1], 8) & os.O_CLOEXEC
