"""sbxsv-proxy between a hostile app and a hostile server: what they send must hurt nobody else, and pass no judgement."""
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import netlab
import proxydrv
from test_proxy_egress import Setup, client_hello, policy


class Origin:
    """A server of the lab's internet: fn(connection) in a thread for each."""

    def __init__(self, lab, address, port, fn):
        if address not in lab._addresses():
            lab.address(address)
        self.fn, self.accepted, self.conns = fn, 0, []
        self.listener = lab.inet.listen((address, port), 4096)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            self.conns.append(c)
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        try:
            self.fn(c)
        except OSError:
            pass


def head_of(c):
    data = b""
    while b"\r\n\r\n" not in data:
        more = c.recv(65536)
        if not more:
            return data
        data += more
    return data


def read_all(s, limit=1 << 30):
    """(bytes, "eof" or "reset" or "open")"""
    data = bytearray()
    try:
        while len(data) < limit:
            more = s.recv(1 << 18)
            if not more:
                return bytes(data), "eof"
            data += more
    except ConnectionError:
        return bytes(data), "reset"
    except TimeoutError:
        pass
    return bytes(data), "open"


def get(s, host="a.test", path="/"):
    c = s.open()
    c.settimeout(30)
    c.sendall(f"GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return c


def cpu(pid):
    v = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(v[11]) + int(v[12])) / os.sysconf("SC_CLK_TCK")


def rss_kib(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * 4


def wait_idle(s, app="notes", key="out_open", value=0):
    for _ in range(400):
        c = s.proxy.counters(app)
        if c[key] == value:
            return c
        time.sleep(0.05)
    raise AssertionError(c)
