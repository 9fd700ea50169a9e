"""What a jailed app reaches, with the real supervisor: names, TLS, HTTP, and every answer that is not a public site."""
import json
import socket
import threading
import time

import netlab
import netsup

SITES = {"a.test": ["11.2.0.10"], "b.test": ["11.2.0.11"], "x.w.test": ["11.2.0.11"], "six.test": ["2a0e:b2::10"]}


def sites(lab):
    lab.dns(SITES)
    lab.tls_site("a.test", "11.2.0.10")
    lab.tls_site("b.test", "11.2.0.11")
    lab.http_site("a.test", "11.2.0.10")
    lab.http_site("b.test", "11.2.0.11")


@netsup.lab
def test_an_allowed_name_works_and_no_other(lab, sup):
    sites(lab)
    sup.agent("box", "Allow=a.test")
    sup.up_all()
    # curl and Python, through the variables, with certificate check
    code, out, err = sup.run("box", "result = sh('curl', '-sS', '-i', 'https://a.test/x')")
    assert code == 0 and "a.test sni=a.test path=/x" in out, err
    status, _, body = sup.run("box", "result = fetch('https://a.test/y')")
    assert (status, body) == (200, "a.test sni=a.test path=/y\n")
    # the check is real: the same site under another authority is not believed
    code, _, err = sup.run("box", "result = sh('curl', '-sS', '--cacert', '/etc/ssl/certs/ca-certificates.crt', "
                                  "'https://a.test/x')")
    assert code in (60, 77), err  # curl(1): the peer's certificate cannot be verified; or there are no CAs here
    # spellings of the same name are the same name
    for target in ("A.TEST:443", "a.test.:443"):
        assert sup.run("box", f"result = connect({target!r})")[0] == 200
    # other names: 403, the header, the line to add
    for target, hint in (("b.test:443", "Allow=b.test"), ("x.a.test:443", "Allow=x.a.test"), ("a.test:22", "Allow=a.test:22"),
                         ("11.2.0.10:443", "Allow=11.2.0.10"), ("[2a0e:b2::10]:443", "Allow=[2a0e:b2::10]"),
                         ("no-such.test:443", "Allow=no-such.test")):
        body = sup.refused("box", target, hint=hint, rule="default-deny")
        assert target.rsplit(":", 1)[0].strip("[]") in body
    code, _, err = sup.run("box", "result = sh('curl', '-sS', '-v', 'https://b.test/')")
    assert code == 56 and "X-Sbxsv-Denied: default-deny" in err, err
    status, headers, body = sup.run("box", "result = fetch('http://b.test/')")
    assert status == 403 and headers["X-Sbxsv-Denied"] and "add  Allow=b.test  to [Network] of box.app" in body
    # the line works as it stands
    sup.agent("wide", "Allow=b.test\nAllow=a.test:22\nAllow=11.2.0.10\nAllow=[2a0e:b2::10]")
    sup.ok("reload")
    sup.wait_state("wide", "running")
    for target in ("b.test:443", "11.2.0.10:443"):
        assert sup.run("wide", f"result = connect({target!r})")[0] == 200, target
    for target in ("a.test:22", "[2a0e:b2::10]:443"):  # nobody listens there: not a refusal of ours
        assert sup.run("wide", f"result = connect({target!r})")[0] == 502, target


@netsup.lab
def test_an_allowed_name_with_another_sni_is_cut(lab, sup):
    sites(lab)
    sup.agent("box", "Allow=a.test\nAllow=11.2.0.11")
    sup.agent("loose", "Allow=a.test\nSniPolicy=off")
    sup.up_all()
    assert sup.run("box", "result = tls('a.test:443', 'a.test')").startswith("a.test sni=a.test")
    assert sup.run("box", "result = tls('a.test:443', 'b.test', verify=False)").startswith("cut: ")
    e = sup.wait_violation("box", host="a.test")
    assert e["rule"].startswith("TLS") and "b.test" in e["rule"] and e["port"] == 443 and e["action"] == "denied"
    # no SNI at all, and no TLS at all
    assert sup.run("box", "result = tls('a.test:443', None, verify=False)").startswith("cut: ")
    answer = sup.run("box", """
        s, status, _, _ = through("CONNECT a.test:443 HTTP/1.1\\r\\nHost: a.test:443\\r\\n\\r\\n")
        s.sendall(b"GET / HTTP/1.1\\r\\nHost: b.test\\r\\n\\r\\n")
        try:
            result = [status, s.recv(100).decode()]
        except OSError as e:
            result = [status, errname(e)]
    """)
    assert answer == [200, "ECONNRESET"]
    # a rule by address needs no name
    assert sup.run("box", "result = tls('11.2.0.11:443', 'b.test', verify=False)").startswith("b.test sni=b.test")
    assert sup.run("loose", "result = tls('a.test:443', 'b.test', verify=False)").startswith("a.test sni=b.test")
    assert len(sup.violations("loose")) == 0


# name: address; every one of them is refused, whatever is allowed
CLOSED = {
    "loop": "127.0.0.1", "loop2": "127.1.2.3", "loop6": "::1", "mapped": "::ffff:127.0.0.1", "nat64": "64:ff9b::7f00:1",
    "sixto4": "2002:7f00:1::", "compat": "::7f00:1",
    "ten": "10.1.2.3", "lan": "192.168.77.2", "cgnat": "100.64.1.1", "mapped10": "::ffff:10.1.2.3", "nat64ten": "64:ff9b::a01:203",
    "sixto4ten": "2002:a01:203::1", "ula": "fd00:77::2",
    "meta": "169.254.169.254", "nat64meta": "64:ff9b::a9fe:a9fe", "sixto4meta": "2002:a9fe:a9fe::1", "azure": "168.63.129.16",
    "aws6": "fd00:ec2::254", "link6": "fe80::1",
    "own": "11.1.0.2", "own6": "2a0e:b1::2", "ownlan": "192.168.77.1", "mappedown": "::ffff:11.1.0.2", "nat64own": "64:ff9b::b01:2",
    "sixto4own": "2002:b01:2::1",
    "zero": "0.0.0.0", "zero6": "::", "doc": "192.0.2.1", "bench": "198.18.0.1", "mcast": "224.0.0.1", "all": "255.255.255.255",
}
MIXED = {"mixed": ["11.2.0.10", "10.1.2.3"], "mixedloop": ["11.2.0.10", "::1"], "mixedown": ["11.2.0.10", "11.1.0.2"],
         "mixed6": ["2a0e:b2::10", "fd00:77::2"]}


class Trap:
    """Counts connections to every address of the host and of the neighbours: there must be none."""

    def __init__(self, port, *spaces):
        self.count, self.socks = 0, []
        for ns in (None, *spaces):
            open_ = ns.listen if ns else lambda a: socket.create_server(a, family=socket.AF_INET6)
            s = open_(("::", port))
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        while True:
            c, _ = s.accept()
            self.count += 1
            c.close()


@netsup.lab
def test_an_answer_that_is_not_public_is_refused(lab, sup):
    names = {f"{k}.test": [v] for k, v in CLOSED.items()}
    names.update({f"{k}.test": v for k, v in MIXED.items()})
    lab.dns({**names, "good.test": ["11.2.0.10"], "own.good.test": ["11.1.0.1"]})
    lan = lab.lan()
    lan.ip("addr add 169.254.169.254/32 dev lo")
    for prefix in ("10.1.2.0/24", "64:ff9b::/96", "2002::/16"):
        lab.route_to_inet(prefix)
    netlab.ip("route add 169.254.169.254 via 192.168.77.2")
    lab.echo_site("11.2.0.10", 80)
    for a in ("10.1.2.3", "64:ff9b::7f00:1", "2002:7f00:1::", "2002:b01:2::1"):
        lab.address(a)
    trap = Trap(8080, lan, lab.inet)
    lab.hosts("127.0.0.1 byhosts.test\n11.1.0.2 ownhosts.test\n")
    every = [*names, "byhosts.test", "ownhosts.test"]
    sup.agent("hosts", "\n".join(f"Allow={n}" for n in [*every, "good.test"]))
    sup.agent("all", "Egress=all\nConnect=80,8080")
    sup.up_all()
    for app in ("hosts", "all"):
        assert sup.run(app, "result = connect('good.test:80')")[0] == 200
        literals = [f"[{a}]" if ":" in a else a for a in CLOSED.values()]
        targets = [f"{t}:8080" for t in [*every, *literals, "localhost", "ip6-localhost", "x.localhost"]]
        answers = sup.run(app, f"result = [connect(t) for t in {targets!r}]")
        for target, (status, headers, body) in zip(targets, answers):
            assert status == 403 and headers.get("X-Sbxsv-Denied"), (app, target, status, headers, body)
        # by absolute form too
        for status, headers, body in sup.run(app, f"result = [get('http://' + t + '/') for t in {targets!r}]"):
            assert status == 403 and headers.get("X-Sbxsv-Denied"), (app, body)
    # what means this machine says so, and which line would open the port
    for target in ("localhost:8080", "127.0.0.1:8080", "own.test:8080"):
        sup.refused("all", target, hint="Loopback=8080")
    # an address that becomes this machine's own while everything runs, by whatever way and a moment after it was dialled
    for become, go in (("addr add 11.2.0.10/32 dev lo", "addr del 11.2.0.10/32 dev lo"),
                       ("route add local 11.2.0.0/28 dev lo table local", "route del local 11.2.0.0/28 dev lo table local"),
                       ("rule add pref 7 to 11.2.0.10 lookup 77", "rule del pref 7")):
        if "rule" in become:
            netlab.ip("route add local 11.2.0.10 dev lo table 77")
            time.sleep(1.5)  # what was known before that route is no help
            assert sup.run("hosts", "result = connect('good.test:80')")[0] == 200
        for _ in range(2):
            assert sup.run("hosts", "result = connect('good.test:80')")[0] == 200
            netlab.ip(become)
            sup.refused("hosts", "good.test:80", rule="this machine")
            netlab.ip(go)
    assert sup.run("hosts", "result = connect('good.test:80')")[0] == 200
    assert trap.count == 0


def fickle_dns(lab, answers):
    """A name server that gives the next of `answers` (lists of IPv4 addresses) to each question for an A record, TTL 0."""
    server = lab.inet.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((lab.DNS, 53))
    asked = [0]

    def serve():
        while True:
            q, peer = server.recvfrom(4096)
            end = q.index(0, 12) + 5
            addresses = []
            if q[end - 4:end - 2] == b"\0\x01":
                addresses = answers[asked[0] % len(answers)]
                asked[0] += 1
            head = q[:2] + b"\x81\x80\0\x01" + len(addresses).to_bytes(2, "big") + bytes(4)
            records = [b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04" + socket.inet_aton(a) for a in addresses]
            server.sendto(head + q[12:end] + b"".join(records), peer)
    threading.Thread(target=serve, daemon=True).start()
    return asked


@netsup.lab
def test_a_name_that_changes_its_address_is_dialled_where_it_was_judged(lab, sup):
    asked = fickle_dns(lab, [["11.2.0.10"], ["11.1.0.2"], ["11.2.0.10"], ["127.0.0.1"], ["11.2.0.10", "10.0.0.1"]])
    lab.echo_site("11.2.0.10", 8080)
    trap = Trap(8080)
    sup.agent("box", "Allow=fickle.test")
    sup.up_all()
    answers = sup.run("box", "result = [connect('fickle.test:8080')[0] for _ in range(20)]")
    assert answers == [200, 403, 200, 403, 403] * 4 and asked[0] == 20 and trap.count == 0
    # an answer for all who ask at the same time is one answer, and judged for each of them
    sup.run("box", """
        bad = []
        def ask():
            for _ in range(10):
                status = connect("fickle.test:8080")[0]
                if status not in (200, 403):
                    bad.append(status)
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert not bad, bad
    """)
    assert trap.count == 0


@netsup.lab
def test_allowaddress_deny_and_ports(lab, sup):
    lab.dns({"nas.test": ["192.168.77.2"], "a.test": ["11.2.0.10"], "x.a.test": ["11.2.0.10"], "b.test": ["11.2.0.11"],
             "both.test": ["11.2.0.10", "192.168.77.2"]})
    lan = lab.lan()
    for n in ("11.2.0.10", "11.2.0.11"):
        for port in (80, 81, 443, 5000, 5010):
            lab.echo_site(n, port) if n == "11.2.0.10" or port == 443 else None
    here = {a: lan.listen((a, p)) for a, p in (("192.168.77.2", 5432), ("fd00:77::2", 5432))}
    sup.agent("box", "Allow=nas.test:5432\nAllow=both.test:5432\nAllow=*.a.test\nAllow=a.test:5000-5009\nAllow=b.test\n"
                     "AllowAddress=192.168.77.2:5432\nAllowAddress=[fd00:77::]/64:*\n"
                     "Deny=x.a.test\nDeny=11.2.0.11\nDeny=[fd00:77::9]")
    sup.agent("all", "Egress=all\nConnect=80,5000-5005\nDeny=a.test\nAllow=11.2.0.11")
    sup.up_all()
    status = lambda app, *targets: [s for s, _, _ in sup.run(app, f"result = [connect(t) for t in {targets!r}]")]
    # a private address by its own line: by number and by name, and nothing beside it
    assert status("box", "192.168.77.2:5432", "nas.test:5432", "[fd00:77::2]:5432") == [200] * 3
    assert status("box", "192.168.77.2:5433", "192.168.77.1:5432", "192.168.77.3:5432", "10.0.0.1:5432") == [403] * 4
    assert status("box", "[fd00:77::2]:9") == [502] and status("box", "[fd00:78::2]:5432", "[fd00:77::9]:5432") == [403] * 2
    # a name needs Allow= too; an answer that mixes what may be dialled is fine
    assert status("box", "both.test:5432") == [200] and status("box", "both.test:443") == [403]
    sup.refused("box", "192.168.77.3:5432", hint="AllowAddress=192.168.77.3:5432")
    # ports: the default ones, ranges, and nothing else
    assert status("box", "a.test:80", "a.test:443", "a.test:5000") == [200] * 3
    assert status("box", "a.test:5010", "a.test:81", "a.test:22") == [403] * 3
    # Deny= wins: over a wildcard, and by the address a name resolves to
    assert status("box", "x.a.test:443", "b.test:443", "11.2.0.11:443") == [403] * 3
    assert "Deny=11.2.0.11" in sup.refused("box", "b.test:443", rule="Deny=11.2.0.11")
    # Egress=all: the ports of Connect=, other ports only where Allow= names the host
    assert status("all", "11.2.0.10:80", "both.test:80") == [200, 403]
    assert status("all", "11.2.0.10:443", "11.2.0.10:5010", "11.2.0.10:81") == [403] * 3
    assert status("all", "11.2.0.10:5000", "11.2.0.11:443") == [200] * 2
    assert status("all", "a.test:80", "192.168.77.2:5432", "192.168.77.2:80") == [403] * 3
    sup.refused("all", "11.2.0.10:443", hint="Connect=443")
    for s in here.values():
        s.close()


@netsup.lab
def test_plain_http_is_judged_per_request(lab, sup):
    sites(lab)
    sup.agent("box", "Allow=a.test")
    sup.up_all()
    status, headers, body = sup.run("box", "result = get('http://a.test/p?q=1')")
    seen = json.loads(body)
    assert status == 200 and seen["site"] == "a.test" and seen["path"] == "/p?q=1"
    assert sup.run("box", "result = fetch('http://a.test/')")[0] == 200
    code, out, _ = sup.run("box", "result = sh('curl', '-sS', '-d', 'x=1', 'http://a.test/form')")
    assert code == 0 and json.loads(out)["method"] == "POST" and json.loads(out)["body"] == "x=1"
    # one curl, three requests: each is judged by itself
    code, out, err = sup.run("box", """
        result = sh('curl', '-sS', '-o', '/dev/null', '-o', '/dev/null', '-o', '/dev/null', '-w', '%{http_code} ',
                    'http://a.test/1', 'http://b.test/2', 'http://a.test/3')
    """)
    assert out.split() == ["200", "403", "200"], err
    # on one connection: what follows the first request goes nowhere
    answer = sup.run("box", """
        s = socket.create_connection(proxy_address(), TIMEOUT)
        one = b"GET http://%s.test/%d HTTP/1.1\\r\\nHost: %s.test\\r\\n\\r\\n"
        s.sendall(one % (b"a", 1, b"a") + one % (b"b", 2, b"b"))
        s.shutdown(socket.SHUT_WR)
        result = b"".join(iter(lambda: s.recv(65536), b"")).decode()
    """)
    assert '"path": "/1"' in answer and '"/2"' not in answer and "b.test" not in answer
    # a Host that means another site than the target, and smuggling shapes: none of them arrives
    for raw in ("GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n", "GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET http://a.test@b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET http://b.test\\@a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET http://0x0b.2.0.11/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET http://184680459/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"):
        s, status, headers, body = None, *sup.run("box", f"s, *result = through({raw!r})")
        assert 400 <= status < 500 and ("X-Sbxsv-Error" in headers or "X-Sbxsv-Denied" in headers), (raw, status, headers)
    # a rule that went is gone for the next request, one that came is there
    sup.write_unit("box", sup.read_text(sup.unit_path("box")).replace("Allow=a.test", "Allow=b.test"))
    sup.ok("reload")
    pid = sup.wait_state("box", "running")["pid"]
    assert sup.run("box", "result = [get(u)[0] for u in ('http://a.test/', 'http://b.test/')]") == [403, 200]
    assert sup.peek("box")["pid"] == pid
