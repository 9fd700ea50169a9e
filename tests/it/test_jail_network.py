"""No service of this machine is reachable from a jail, by whatever address, but for a port named with --loopback."""
import socket
import threading

import harness
import jailbox
import pytest

CLOSED = {"ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "EPERM", "EACCES", "EADDRNOTAVAIL"}


@pytest.fixture(params=jailbox.MODES)
def box(request, inst):
    b = jailbox.Box(inst, request.param)
    yield b
    b.close()


class Server:
    """Counts the connections it gets on all addresses of the host, answers "hello"."""

    def __init__(self):
        self.s = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.port = self.s.getsockname()[1]
        self.count = 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                c, _ = self.s.accept()
            except OSError:
                return
            self.count += 1
            with c:
                c.sendall(b"hello")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.s.close()


READ = ("import errno, socket, sys\n"
        "try: print('got', socket.create_connection((sys.argv[1], int(sys.argv[2])), 30).recv(9))\n"
        "except OSError as e: print(errno.errorcode.get(e.errno, e))")


def test_services_of_this_machine(box):
    addresses = ["127.0.0.1", "127.0.0.53", "::1", "::ffff:127.0.0.1", *jailbox.host_addresses()]
    with Server() as srv:
        for a in addresses:
            assert box.attack("connect", a, srv.port) in CLOSED, a
            for options in (["--egress", "all"], ["--allow", "example.com"]):
                # the proxy inside takes it, and resets it
                r = box.run("/usr/bin/python3", "-c", READ, a, srv.port, options=options)
                assert r.stdout.strip() in CLOSED | {"ECONNRESET"}, (a, r.stdout, r.stderr)
        assert srv.count == 0


def test_elsewhere(box):
    """Metadata service, LAN, the internet: refused at once, no time-out."""
    for a in ("169.254.169.254", "10.0.0.1", "192.168.1.1", "198.51.100.1", "fd00::1", "2001:db8::1"):
        assert box.attack("connect", a, 80) in CLOSED, a
    assert box.attack("udp", "10.0.0.1", 53) == "ECONNREFUSED"


def test_loopback_is_one_port(box):
    code = ("import socket, sys\n"
            "s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20); print(s.recv(5).decode())")
    with Server() as srv, Server() as other:
        for a in ("127.0.0.1", "::1", "localhost"):
            r = box.run("/usr/bin/python3", "-c", code, a, srv.port, options=["--loopback", srv.port])
            assert r.stdout.strip() == "hello", r.stderr
        assert box.attack("connect", "127.0.0.1", other.port, options=["--loopback", srv.port]) in CLOSED
        assert other.count == 0


def test_a_socket_of_the_host_is_never_handed_in(box):
    """As standard input it could be disconnected and connected to any service of the host."""
    with Server() as srv, socket.create_server(("127.0.0.1", 0)) as s:
        with socket.create_connection(s.getsockname()) as c:
            peer, _ = s.accept()
            assert box.attack("connect_fd", 0, srv.port, stdin=c) == "ENOTSOCK"
            peer.close()
        assert srv.count == 0


def test_a_socket_as_stdin_is_relayed(box):
    a, b = socket.socketpair()
    a.sendall(b"line\n" * 30000)
    a.shutdown(socket.SHUT_WR)
    with a, b:
        r = box.run("/usr/bin/wc", "-l", stdin=b)
    assert r.stdout.strip() == "30000"


def test_own_server_is_private(box):
    """What a jail serves is not on the host."""
    port = harness.free_port()
    code = (f"import socket\ns = socket.create_server(('0.0.0.0', {port}))\n"
            f"c = socket.create_connection(('127.0.0.1', {port})); print('inside', flush=True); input()")
    p = box.inst.spawn(box.argv([], ["/usr/bin/python3", "-c", code]), stdin=-1, stdout=-1, cwd=box.cwd, text=True)
    assert p.stdout.readline().strip() == "inside"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 10)
    p.communicate("\n", timeout=30)


GET = ("import sys, urllib.request, urllib.error\n"
       "try: print(urllib.request.urlopen(sys.argv[1], timeout=30).status)\n"
       "except urllib.error.HTTPError as e: print(e.code)\n"
       "sys.exit(int(sys.argv[2]))")


def test_refusals_are_printed_when_the_command_fails(box):
    for status in (1, 0):
        r = box.run("/usr/bin/python3", "-c", GET, "http://other.example/", status, options=["--allow", "one.example"])
        assert r.stdout.strip() == "403", r.stderr
        told = "refused: connect other.example:80" in r.stderr and "; to allow it: --allow other.example" in r.stderr
        assert told == (status == 1), r.stderr


def test_egress_all_is_not_this_machine(box):
    with Server() as srv:
        for host in ("127.0.0.1", "[::1]", "localhost", "169.254.169.254", "10.0.0.1", *jailbox.host_addresses()):
            r = box.run("/usr/bin/python3", "-c", GET, f"http://{host}:{srv.port}/", 0,
                        options=["--egress", "all", "--env", "NO_PROXY=", "--env", "no_proxy="])
            assert r.stdout.strip() == "403", host + r.stderr
        assert srv.count == 0
