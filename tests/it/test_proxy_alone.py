"""sbxsv-proxy by itself: real clients, the policy file and its reload, the access log, the end."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import alone
import netlab
import proxydrv
from alone import Alone, curl

NODE_CONNECT = """
const http = require('http'), tls = require('tls'), fs = require('fs');
const [port, host, ca] = process.argv.slice(1);
http.request({host: '127.0.0.1', port, method: 'CONNECT', path: host + ':443', headers: {host: host + ':443'}}).on('connect', (res, socket, head) => {
  if (res.statusCode !== 200) { console.log('refused', res.statusCode, res.headers['x-sbxsv-denied'], head.toString()); process.exit(3); }
  const s = tls.connect({socket, servername: host, ca: fs.readFileSync(ca)}, () => {
    s.write('GET /node HTTP/1.1\\r\\nHost: ' + host + '\\r\\n\\r\\n');
    s.on('data', d => { console.log(d.toString()); process.exit(0); });
  });
}).end();
"""
PYTHON_GET = """
import sys, urllib.request, ssl
c = ssl.create_default_context(cafile=sys.argv[2])
print(urllib.request.build_opener(urllib.request.HTTPSHandler(context=c), urllib.request.ProxyHandler(
    {"https": sys.argv[3], "http": sys.argv[3]})).open(sys.argv[1], timeout=30).read().decode())
"""


def sites(lab):
    lab.dns({"a.test": ["11.2.0.10"], "www.a.test": ["11.2.0.10"], "b.test": ["11.2.0.20"]})
    lab.tls_site("a.test", "11.2.0.10")
    lab.http_site("a.test", "11.2.0.10")
    lab.tls_site("b.test", "11.2.0.20")
    lab.http_site("b.test", "11.2.0.20")


def run(*argv):
    r = subprocess.run(argv, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    return r.returncode, r.stdout + r.stderr


def received(s):
    try:
        return s.recv(4096)
    except ConnectionResetError:
        return b""


@alone.lab
def test_clients(lab):
    sites(lab)
    with Alone(lab.dir, "--allow", "a.test", "--allow", "*.c.test:443", "--deny", "bad.c.test") as p:
        assert curl(p, "https://a.test/one", lab=lab)[::2] == (0, "a.test sni=a.test path=/one\n")
        assert curl(p, "http://a.test/two")[:2] == (0, 200)
        code, status, text = curl(p, "https://b.test/", lab=lab)
        assert (code, status) == (56, 403)
        code, status, text = curl(p, "http://b.test/")
        assert status == 403 and "proxy may not connect to b.test port 80" in text
        assert "To allow it, start  sbxsv-proxy  with  --allow b.test" in text
        code, status, text = curl(p, "http://127.0.0.1:80/")
        assert status == 403 and "No rule of sbxsv-proxy can allow it" in text
        code, status, text = curl(p, "http://bad.c.test:443/")
        assert status == 403 and "command line Deny=bad.c.test" in text
        socks = f"socks5h://127.0.0.1:{p.port}"
        assert curl(socks, "https://a.test/three", lab=lab)[::2] == (0, "a.test sni=a.test path=/three\n")
        assert curl(socks, "http://a.test/four")[:2] == (0, 200)
        assert curl(socks, "https://b.test/")[0] == 97  # "not allowed by ruleset"
        env = ["-e", f"https_proxy={p.url}", "-e", f"http_proxy={p.url}", "-O", "-", "-q", "--tries=1"]
        code, text = run("wget", *env, "--ca-certificate", lab.ca(), "https://a.test/wget")
        assert (code, text) == (0, "a.test sni=a.test path=/wget\n")
        assert run("wget", *env, "http://b.test/")[0] == 8
        code, text = run("/usr/bin/python3", "-c", PYTHON_GET, "https://a.test/py", lab.ca(), p.url)
        assert code == 0 and "path=/py" in text
        code, text = run("/usr/bin/python3", "-c", PYTHON_GET, "https://b.test/py", lab.ca(), p.url)
        assert code == 1 and "403" in text
        code, text = run("/usr/bin/node", "-e", NODE_CONNECT, "--", str(p.port), "a.test", lab.ca())
        assert code == 0 and "path=/node" in text, text
        code, text = run("/usr/bin/node", "-e", NODE_CONNECT, "--", str(p.port), "b.test", lab.ca())
        assert code == 3 and "refused 403 default-deny" in text


@alone.lab
def test_own_services_are_closed(lab):
    """What listens on this machine is not reached through the proxy, however it is named; the proxy itself included."""
    lab.dns({"evil.test": ["127.0.0.1"], "mixed.test": ["11.2.0.10", "127.0.0.1"], "own.test": [lab.HOST4]})
    with Alone(lab.dir, "--egress", "all") as p:
        for name in ("evil.test", "mixed.test", "own.test", "127.0.0.1", "localhost", lab.HOST4, "[::1]"):
            code, status, text = curl(p, f"http://{name}:{p.port}/")
            assert status == 403, (name, status, text)


@alone.lab
def test_reload(lab):
    sites(lab)
    lab.echo_site("11.2.0.10", 2000)
    with Alone(lab.dir, policy="[Network]\nAllow=a.test a.test:2000\n") as p:
        assert curl(p, "https://a.test/", lab=lab)[0] == 0
        status = curl(p, "http://b.test/")
        assert status[1] == 403 and f"to the policy file {p.policy}" in status[2]
        open_one = socket.create_connection(("127.0.0.1", p.port), timeout=20)
        open_one.sendall(b"CONNECT a.test:2000 HTTP/1.1\r\nHost: a.test:2000\r\n\r\n")
        assert open_one.recv(4096).startswith(b"HTTP/1.1 200 ")

        said = p.reload("Allow=b.test\nAllow=*\nAlow=a.test\n")
        assert f"{p.policy}:2: Allow=*" in said and f"{p.policy}:3: Alow= is not a key" in said
        assert "the rules are left as they were" in said
        assert curl(p, "https://a.test/", lab=lab)[0] == 0
        assert curl(p, "http://b.test/")[1] == 403
        said = p.reload("Allow=b.test\n", mode=0o666)
        assert "others can change it" in said and "left as they were" in said
        open_one.sendall(b"still there")
        assert open_one.recv(4096) == b"still there"

        assert "read again" in p.reload("# only b\nAllow=b.test\n")
        assert curl(p, "https://b.test/", lab=lab)[0] == 0
        status = curl(p, "http://a.test/")
        assert status[1] == 403
        assert received(open_one) == b"", "a connection whose rule went is still open"
        open_one.close()


@alone.lab
def test_worker_dies(lab):
    """The listener stays, the rules stay, the log goes on."""
    sites(lab)
    with Alone(lab.dir, policy="Allow=a.test\n") as p:
        assert curl(p, "https://a.test/", lab=lab)[0] == 0
        for n in range(3):
            worker = p.worker()
            p.lines(1 + 2 * n)
            os.kill(worker, signal.SIGKILL)
            assert curl(p, "https://a.test/", lab=lab)[0] == 0
            assert curl(p, "http://b.test/")[1] == 403
            assert p.worker() != worker
        assert "the worker was killed by signal 9" in p.err()
        assert len(p.lines(7)) == 7


@alone.lab
def test_log(lab):
    sites(lab)
    lab.echo_site("11.2.0.10", 2000)
    with Alone(lab.dir, "--allow", "a.test", "--allow", "gone.test",) as p:
        assert curl(p, "http://a.test/stream/100000")[:2] == (0, 200)
        one, = p.lines(1)
        assert one["front"] == "http" and one["method"] == "GET"
        assert (one["host"], one["port"], one["address"]) == ("a.test", 80, "11.2.0.10")
        assert (one["verdict"], one["rule"]) == ("allowed", "command line Allow=a.test")
        assert one["bytes_in"] > 100000 and 20 < one["bytes_out"] < 1000
        assert re.fullmatch(r"127\.0\.0\.1:\d+", one["client"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one["time"]) and 0 <= one["ms"] < 60000
        assert "error" not in one and "upstream" not in one

        assert curl(p, "https://a.test/x", lab=lab)[0] == 0
        assert curl(p, "https://b.test/")[1] == 403
        assert curl(p, "http://gone.test/")[1] == 502
        assert curl(p, "http://a.test:2002/")[1] == 403  # another port than the rule's default ones
        tls, refused, gone, port = p.lines(5)[1:]
        assert tls["method"] == "CONNECT" and tls["port"] == 443 and tls["verdict"] == "allowed"
        assert refused["verdict"] == "denied" and refused["rule"] == "default-deny" and refused["host"] == "b.test"
        assert "address" not in refused and refused["bytes_in"] == 0
        assert "verdict" not in gone and "gone.test cannot be resolved" in gone["error"]

        assert curl(f"socks5h://127.0.0.1:{p.port}", "https://b.test/")[0] == 97
        line = p.lines(6)[5]
        assert (line["front"], line["host"], line["verdict"]) == ("socks5", "b.test", "denied") and "method" not in line
        with socket.create_connection(("127.0.0.1", p.port), timeout=20) as s:  # no request at all
            s.sendall(b"\x00\x01\"\\\x1b[31m\r\n\r\n")
            assert b" 400 " in s.recv(4096)
        line = p.lines(7)[6]
        assert line["error"] and "host" not in line
        with socket.create_connection(("127.0.0.1", p.port), timeout=20) as s:  # a server name that was not judged
            s.sendall(b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n")
            assert s.recv(4096).startswith(b"HTTP/1.1 200 ")
            s.sendall(b"no TLS\r\n\r\n")
            assert received(s) == b""
        line = p.lines(8)[7]
        assert line["verdict"] == "denied" and line["rule"].startswith("TLS"), line
        assert os.stat(p.log_path).st_mode & 0o777 == 0o600


@alone.lab
def test_log_rotates(lab):
    sites(lab)
    with Alone(lab.dir, policy="Allow=a.test\n") as p:
        assert curl(p, "http://a.test/")[0] == 0
        p.lines(1)
        os.rename(p.log_path, p.log_path + ".1")
        p.reload("Allow=b.test\n")
        assert curl(p, "http://b.test/")[0] == 0
        assert [line["host"] for line in p.lines(1)] == ["b.test"]
        assert [line["host"] for line in p.lines(1, p.log_path + ".1")] == ["a.test"]


@alone.lab
def test_log_nobody_reads(lab):
    """A reader that takes nothing stops no request; what it missed is counted."""
    r, w = os.pipe()
    with Alone(lab.dir, "--allow", "x.test", "--access-log", "-", log=False, stdout=w) as p:
        os.close(w)
        n = 2500  # a pipe holds 64 KiB, the proxy 256 KiB
        for _ in range(n):
            with socket.create_connection(("127.0.0.1", p.port), timeout=20) as s:
                s.sendall(b"GET http://refused.test/ HTTP/1.0\r\n\r\n")
                assert s.recv(100).startswith(b"HTTP/1.1 403")
        got = b""
        os.set_blocking(r, False)

        def drain():
            nonlocal got
            try:
                while data := os.read(r, 65536):
                    got += data
            except BlockingIOError:
                pass
        alone.wait("the old lines", lambda: drain() or got.count(b"\n") > 500 and got.endswith(b"\n"))
        quiet = got.count(b"\n")
        for _ in range(3):
            assert curl(p, "http://refused.test/")[1] == 403
        alone.wait("the new lines", lambda: drain() or got.count(b"\n") >= quiet + 3 and got.endswith(b"\n"))
        lines = [json.loads(line) for line in got.decode().splitlines()]
        dropped = sum(line.get("dropped", 0) for line in lines)
        assert dropped > 0
        alone.wait("all of them", lambda: drain() or sum(json.loads(x).get("dropped", 1) for x in got.splitlines()) == n + 3)
    os.close(r)


@alone.lab
def test_log_on_a_full_disk(lab):
    """What does not fit is lost by whole lines, and nothing else is lost."""
    small = lab.path("small")
    os.mkdir(small)
    netlab.mount("none", small, "tmpfs", 0, "size=16k,mode=0777")
    with Alone(lab.dir, "--allow", "x.test", "--access-log", small + "/log", log=False) as p:
        p.log_path = small + "/log"
        for _ in range(200):
            assert curl(p, "http://refused.test/")[1] == 403
        alone.wait("the warning", lambda: "loses lines: No space left on device" in p.err())
        os.truncate(p.log_path, 0)  # what copytruncate of logrotate(8) does
        for _ in range(3):
            assert curl(p, "http://again.test/")[1] == 403
        alone.wait("lines again", lambda: open(p.log_path).read().count("again.test") == 3)
        assert [x["host"] for x in p.lines()][-3:] == ["again.test"] * 3


@alone.lab
def test_log_reader_leaves(lab):
    r, w = os.pipe()
    with Alone(lab.dir, "--allow", "x.test", "--access-log", "-", log=False, stdout=w) as p:
        os.close(w)
        os.close(r)
        for _ in range(5):
            assert curl(p, "http://refused.test/")[1] == 403
        assert "the access log loses lines: Broken pipe" in p.err()


@alone.lab
def test_end(lab):
    for sig in (signal.SIGTERM, signal.SIGINT):
        p = Alone(lab.dir, "--allow", "x.test")
        worker = p.worker()
        idle = socket.create_connection(("127.0.0.1", p.port), timeout=20)
        assert p.end(sig) == 0
        assert not os.path.exists(f"/proc/{worker}")
        assert received(idle) == b""
        idle.close()
        with socket.create_server(("127.0.0.1", p.port)):
            pass


@alone.lab
def test_ipv6_and_no_file(lab):
    sites(lab)
    with Alone(lab.dir, "--allow", "a.test", listen="[::1]:0") as p:
        p.url = f"http://[::1]:{p.port}"
        assert curl(p, "http://a.test/")[0] == 0
        assert re.fullmatch(r"\[::1\]:\d+", p.lines(1)[0]["client"])
        p.proc.send_signal(signal.SIGHUP)  # nothing to read again but the log
        alone.wait("an answer", lambda: "the rules were read again" in p.err())
        assert curl(p, "http://a.test/")[0] == 0


@alone.lab
def test_master_is_killed(lab):
    p = Alone(lab.dir, "--allow", "x.test")
    worker = p.worker()
    p.proc.kill()
    p.proc.wait()
    alone.wait("the end of the worker", lambda: "State:\tZ" in (s := alone.status_of(worker)) or not s)


@alone.lab
def test_notify(lab):
    where = os.path.join(lab.dir, "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(where)
        s.settimeout(20)
        with Alone(lab.dir, "--allow", "x.test", env=dict(os.environ, NOTIFY_SOCKET=where)):
            assert s.recv(100) == b"READY=1"
        assert s.recv(100) == b"STOPPING=1"


def refused(*args, status=1):
    r = subprocess.run([proxydrv.find_program(), *args], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
    assert r.returncode == status, r.stderr
    return r.stderr


def test_wrong_options():
    assert "--listen-anywhere" in refused("--listen", "0.0.0.0:0", "--allow", "x.com")
    assert "--listen-anywhere" in refused("--listen", "[::]:0", "--allow", "x.com")
    assert "not PORT, ADDRESS:PORT" in refused("--listen", "example.com:80", "--allow", "x.com", status=2)
    assert "not PORT, ADDRESS:PORT" in refused("--listen", "::1:80", "--allow", "x.com", status=2)
    assert "no address of this machine" in refused("--listen", "203.0.113.9:0", "--allow", "x.com", "--listen-anywhere")
    assert "nothing would be allowed" in refused("--listen", "0", status=2)
    assert "--listen [ADDRESS:]PORT is missing" in refused("--allow", "x.com", status=2)
    assert "--listen [ADDRESS:]PORT is missing" in refused(status=2)
    assert "command line: Allow=*: " in refused("--listen", "0", "--allow", "*", status=2)
    assert "Connect= needs Egress=all" in refused("--listen", "0", "--allow", "x.com", "--connect", "443", status=2)
    text = refused("--listen", "0", "--allow", "x.com", "--upstream-proxy", "http://u:hunter2@p:1", status=2)
    assert "UpstreamProxy=" in text and "hunter2" not in text
    assert "/nowhere/rules: it cannot be opened" in refused("--listen", "0", "--policy", "/nowhere/rules")
    assert "--access-log /nowhere/log: No such file" in refused("--listen", "0", "--allow", "x.com", "--access-log", "/nowhere/log")
    assert "exclude each other" in refused("--listen", "0", "--allow", "x.com", "--uid", "5", status=2)


def test_taken_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        text = refused("--listen", f"127.0.0.1:{s.getsockname()[1]}", "--allow", "x.com")
        assert re.search(rf"is taken by \S+ \(pid {os.getpid()}\)", text), text


def test_many_rules():
    """A blocklist: as many as the file may hold."""
    with tempfile.TemporaryDirectory() as d:
        os.chmod(d, 0o755)
        rules = "".join(f"Deny=host-{n}.example.com\n" for n in range(20000))
        with Alone(d, policy="Egress=all\n" + rules) as p:
            for n in (0, 9999, 19999):
                status, text = alone.ask(p, f"host-{n}.example.com:443")
                assert status == 403 and f":{n + 2} Deny=host-{n}.example.com" in text
            p.reload(rules)
            assert "default-deny" in alone.ask(p, "example.org:443")[1]
            assert f"{p.policy}: it is larger than 1024 KiB" in p.reload(rules * 3)


def test_check():
    r = subprocess.run([proxydrv.find_program(), "--check", "--allow", "x.com"], capture_output=True, text=True, timeout=30)
    assert (r.returncode, r.stdout) == (0, "the rules are good\n")
    assert "command line: Allow=x" in refused("--check", "--allow", "x", status=2)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "rules")
        for text, option, status in (("Allow=x\n", "x.com", 1), ("Allow=x.com\n", "x", 2)):
            with open(path, "w") as f:
                f.write(text)
            assert "no full host name" in refused("--check", "--policy", path, "--allow", option, status=status)


@pytest.mark.root
def test_user_of_the_worker():
    """Root reads its own policy file; what meets strangers is nobody."""
    with tempfile.TemporaryDirectory() as d:
        with Alone(d, policy="Allow=x.test\n") as p:
            status = alone.status_of(p.worker())
            assert re.search(r"^Uid:\t65534\t65534\t65534\t65534$", status, re.M), status
            assert re.search(r"^Groups:\s*$", status, re.M), status
            assert "read again" in p.reload("Allow=y.test\n")
    assert "ordinary user" in refused("--listen", "0", "--allow", "x.com", "--user", "root")
    assert "there is no user" in refused("--listen", "0", "--allow", "x.com", "--user", "no-such-user-here")


@pytest.mark.user
def test_user_option_needs_root():
    assert "--user needs root" in refused("--listen", "0", "--allow", "x.com", "--user", "nobody")
