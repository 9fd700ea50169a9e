"""Policy DNS in a real jail: what a program is told about names, what leaves the machine for it (nothing), and that addresses
given out stay what they are."""
import os
import shutil
import signal

import harness
import netlab
import netsup
import wiretap

RULES = "Allow=a.test\nAllow=*.w.test\nAllow=git.test:22\nDeny=no.w.test\n"
SITES = {"a.test": ["11.2.0.10"], "x.w.test": ["11.2.0.11"], "evil.test": ["11.2.0.66"]}

# Run in the jail, in front of a test's own lines. A connected socket takes an answer only from the address that was asked.
INSIDE = """
import os, struct, time, wiretap
from wiretap import *

def query(name, kind=A, server="10.255.255.53", raw=None, **kw):
    with socket.socket(family(server), socket.SOCK_DGRAM) as s:
        s.settimeout(3)
        s.connect((server, 53))
        for _ in range(5):  # as resolvers do: a datagram may be lost
            s.send(raw if raw is not None else ask(name, kind, **kw))
            try:
                return Answer(s.recv(65536))
            except TimeoutError:
                pass
        raise TimeoutError(name)

def told(name, kind=A, **kw):
    a = query(name, kind, **kw)
    return [a.rcode, a.addresses()]

def read_message(f):
    size = f.read(2)
    return Answer(f.read(int.from_bytes(size, "big"))) if len(size) == 2 else None

def framed(m):
    return len(m).to_bytes(2, "big") + m

def lookup(name, **kw):
    try:
        return sorted({a[4][0] for a in socket.getaddrinfo(name, 443, type=socket.SOCK_STREAM, **kw)})
    except socket.gaierror as e:
        return str(e.errno)
"""


def agent(sup, name, network, **kw):
    port = sup.agent(name, network, **kw)
    to = os.path.join(sup.app_dir(name), "wiretap.py")
    shutil.copy(wiretap.__file__, to)
    os.chmod(to, 0o644)
    return port


def inside(sup, name, source):
    return sup.run(name, INSIDE + "\n".join(line.removeprefix("        ") for line in source.splitlines()))


def is_fake(address):
    return address.startswith(("198.18.", "198.19.")) and not address.startswith("198.18.0.")


@netsup.lab
def test_what_a_program_is_told(lab, sup):
    lab.dns(SITES)
    agent(sup, "box", RULES)
    sup.up_all()
    tap = wiretap.Tap(lab, sup=sup)
    tap.take()
    # as glibc asks, with and without AI_ADDRCONFIG (and by the old call)
    first, again, old, v6, none = inside(sup, "box", """
        result = [lookup("a.test"), lookup("A.tEsT.", flags=socket.AI_ADDRCONFIG), socket.gethostbyname("a.test"),
                  lookup("a.test", family=socket.AF_INET6), lookup("evil.test")]
    """)
    assert len(first) == 1 and is_fake(first[0]) and again == first and [old] == first, (first, again, old)
    assert not v6[0].startswith("198.") and v6.startswith("-") and none == "-2", (v6, none)  # EAI_NODATA and the like; EAI_NONAME
    # whichever server is asked, by either family, in either case
    answers = inside(sup, "box", """
        servers = ["10.255.255.53", "127.0.0.53", "127.0.0.1", "203.0.113.9", "8.8.8.8", "2001:4860:4860::8888", "::1"]
        result = [told("a.test", server=s) for s in servers] + [told("A.TesT")]
    """)
    assert answers == [[0, first]] * 8, answers
    # by type
    a = inside(sup, "box", """
        q = query("x.w.test", 255)
        result = [[told("x.w.test", t) for t in (AAAA, HTTPS, 64, TXT, 15, 33, CNAME, SOA, NS)], q.rcode,
                  [(k, d.decode("latin-1")) for k, _, d in q.answers], query("aLLoWed.W.tEst").name]
    """)
    assert a == [[[0, []]] * 9, 0, [[13, "\x07RFC8482\0"]], "aLLoWed.W.tEst"], a
    # names that go nowhere, and names of addresses
    a = inside(sup, "box", """
        names = ["localhost", "db.localhost"]
        result = [[told(n) + told(n, AAAA) for n in names], lookup("localhost"), socket.gethostbyaddr(%r)[0],
                  told("8.8.8.8.in-addr.arpa", 12), told("git.test"), told("w.test")]
    """ % first[0])
    assert a[0] == [[0, ["127.0.0.1"], 0, ["::1"]]] * 2 and a[2] == "a.test" and a[3] == [3, []], a
    assert is_fake(a[4][1][0]) and is_fake(a[5][1][0]) and a[4] != a[5], a
    # names that are not allowed, and messages that are no question
    a = inside(sup, "box", r"""
        result = [[told(n, t) for n in ("evil.test", "no.w.test", "a.test.evil.test", "metadata.google.internal", "printer.local",
                                        "host.docker.internal", "single") for t in (A, AAAA, TXT, HTTPS, ANY)],
                  told("a.test", raw=ask("a.test")[:20]), told("", raw=b"\x12\x34\1\0\0\2" + bytes(6)), told("", raw=ask("a.test", flags=0x2800)),
                  told("", raw=ask("a.test")[:-1] + b"\3")]
    """)
    assert a == [[[3, []]] * 35, [1, []], [1, []], [4, []], [5, []]], a
    connects, names = tap.take()
    assert (connects, names, tap.others) == ([], [], []), "something left for a question"
    assert [n for n in sup.violations("box", operation="resolve", host="a.test")] == []


@netsup.lab
def test_a_refused_name_is_told(lab, sup):
    """The reason comes with the answer, and once as an event, with the line that allows it; the line works."""
    lab.dns(SITES)
    lab.tls_site("evil.test", "11.2.0.66")
    lab.resolv_conf(f"nameserver {lab.DNS}\nsearch corp.test lan\n")  # the host's: the jail has its own
    agent(sup, "box", RULES)
    sup.up_all()
    code, text = inside(sup, "box", """
        a = query("evil.test", extra=b"\\0\\0\\x29\\x10\\0\\0\\0\\0\\0\\0\\0", n_extra=1)
        result = [a.extended_error(), a.additional[0][2].decode("latin-1")]
    """)
    assert code == 15 and "box may not reach evil.test" in text and "Allow=evil.test" in text, text
    e = sup.wait_violation("box", operation="resolve", host="evil.test")
    assert e["action"] == "denied" and e["rule"] == "default-deny" and e["hint"] == "Allow=evil.test" and "port" not in e, e
    # A and AAAA are one lookup
    assert inside(sup, "box", 'result = lookup("other.test")') == "-2"
    sup.wait_violation("box", host="other.test")
    assert inside(sup, "box", 'result = lookup("no.w.test")') == "-2"
    e = sup.wait_violation("box", host="no.w.test")
    assert e["rule"].endswith("Deny=no.w.test") and e["hint"] == "", e
    # without a dot
    assert inside(sup, "box", 'result = lookup("single")') == "-2"
    sup.wait_violation("box", host="single")
    harness.wait_for(lambda: sup.peek("box")["counters"]["out_denied"] == 4, 20, "four refused lookups")
    hosts = {e["host"]: e.get("count", 1) for e in sup.violations("box")}
    assert hosts == dict.fromkeys(["evil.test", "other.test", "no.w.test", "single"], 1), hosts
    shown = {d["host"]: d for d in sup.peek("box")["denied"]}
    assert shown["other.test"]["operation"] == "resolve" and "port" not in shown["other.test"], shown
    assert "other.test (lookup)" in sup.ok("status", "box")
    sup.agent("wide", "Allow=evil.test")
    sup.ok("reload")
    sup.wait_state("wide", "running")
    assert sup.run("wide", "result = bare('curl', '-sS', 'https://evil.test/z')")[1].startswith("evil.test sni=evil.test")


@netsup.lab
def test_tcp(lab, sup):
    lab.dns(SITES)
    agent(sup, "box", RULES)
    sup.up_all()
    expected = inside(sup, "box", 'result = told("a.test")')
    answers = inside(sup, "box", """
        result = []
        # whole; byte by byte; and everything at once, in order
        with socket.create_connection(("10.255.255.53", 53), 20) as s, s.makefile("rb") as f:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.sendall(framed(ask("a.test")))
            a = read_message(f)
            result.append([a.rcode, a.addresses()])
            for b in framed(ask("a.test")):
                s.sendall(bytes([b]))
            a = read_message(f)
            result.append([a.rcode, a.addresses()])
            s.sendall(b"".join(framed(ask("a.test" if i % 2 else "evil.test", ident=i)) for i in range(500)))
            for i in range(500):
                a = read_message(f)
                assert a.id == i and a.rcode == (0 if i % 2 else 3), (i, a.id, a.rcode)
            # an answer is owed for every question before the end
            s.sendall(framed(ask("a.test")))
            s.shutdown(socket.SHUT_WR)
            a = read_message(f)
            result += [[a.rcode, a.addresses()], read_message(f)]
        # by IPv6; what is no question ends the connection
        for server, m in (("2001:4860:4860::8888", framed(ask("a.test"))), ("::1", b"\\xff\\xff" + bytes(2000)), ("10.0.0.1", b"\\0\\0"),
                          ("10.0.0.1", framed(b"\\0" * 11)), ("10.0.0.1", framed(ask("a.test", flags=0x8180)))):
            with socket.create_connection((server, 53), 20) as s, s.makefile("rb") as f:
                s.sendall(m)
                try:
                    a = read_message(f)
                    result.append(a and [a.rcode, a.addresses()])
                except ConnectionResetError:
                    result.append(None)
    """)
    assert answers == [expected, expected, expected, None, expected, None, None, None, None], answers
    # more connections than there are places: those beyond wait, and none is lost
    n = inside(sup, "box", """
        held = [socket.create_connection(("10.255.255.53", 53), 20) for _ in range(60)]
        for s in held[:20]:
            s.close()
        good = 0
        for s in held[20:]:
            s.settimeout(60)
            with s, s.makefile("rb") as f:
                s.sendall(framed(ask("a.test")))
                good += read_message(f).rcode == 0
        result = good
    """)
    assert n == 40


NODE = r"""
const dns = require('dns'), p = dns.promises;
(async () => {
  const out = {};
  const tell = async (k, f) => { try { out[k] = await f(); } catch (e) { out[k] = e.code; } };
  await tell('lookup', () => p.lookup('a.test'));
  await tell('all', () => p.lookup('a.test', {all: true}));
  await tell('four', () => p.resolve4('a.test'));
  await tell('six', () => p.resolve6('a.test'));
  await tell('txt', () => p.resolveTxt('a.test'));
  await tell('denied', () => p.resolve4('evil.test'));
  await tell('lookupDenied', () => p.lookup('evil.test'));
  const r = new p.Resolver(); r.setServers(['8.8.8.8', '[2001:4860:4860::8888]']);
  await tell('own', () => r.resolve4('a.test'));
  console.log(JSON.stringify(out));
})();
"""


@netsup.lab
def test_other_resolvers(lab, sup):
    """Node's two resolvers (c-ares and getaddrinfo), and musl's way: A and AAAA at once from one socket."""
    lab.dns(SITES)
    agent(sup, "box", RULES)
    sup.up_all()
    address = inside(sup, "box", 'result = told("a.test")')[1]
    both = inside(sup, "box", """
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(10)
            s.bind(("0.0.0.0", 0))
            servers = ["10.255.255.53", "10.255.255.54", "8.8.4.4"]
            for server in servers:
                for i, kind in enumerate((A, AAAA)):
                    s.sendto(ask("a.test", kind, ident=i), (server, 53))
            got = [s.recvfrom(2048) for _ in range(6)]
        result = sorted([who[0], Answer(d).id, Answer(d).addresses()] for d, who in got)
    """)
    assert both == [[s, i, [] if i else address] for s in ("10.255.255.53", "10.255.255.54", "8.8.4.4") for i in (0, 1)], both
    if not shutil.which("node", path="/usr/bin:/bin"):
        netsup.skip("no node")
    code, out, err = sup.run("box", f"result = bare('/usr/bin/node', '-e', {NODE!r})")
    assert code == 0, err
    import json
    out = json.loads(out)
    assert out["lookup"] == {"address": address[0], "family": 4} and out["all"] == [out["lookup"]], out
    assert out["four"] == address and out["own"] == address and out["six"] == out["txt"] == "ENODATA", out
    assert out["denied"] == out["lookupDenied"] == "ENOTFOUND", out


@netsup.lab
def test_addresses_survive_the_proxy(lab, sup):
    """kill -9 between the lookup and the connect, and the same names again."""
    lab.dns(SITES)
    lab.tls_site("a.test", "11.2.0.10")
    lab.tls_site("x.w.test", "11.2.0.11")
    agent(sup, "box", RULES)
    agent(sup, "other", RULES)
    sup.up_all()
    names = ["x.w.test", "a.test", *(f"n{i}.w.test" for i in range(300))]
    get = f"result = [told(n)[1][0] for n in {names!r}]"
    before, other = inside(sup, "box", get), inside(sup, "other", 'result = told("a.test")')
    assert len(set(before)) == len(names)
    for _ in range(3):
        pid = sup.proxy_pid()
        os.kill(pid, signal.SIGKILL)
        harness.wait_for(lambda: sup.proxy_pid() not in (None, pid), 20, "the next proxy")
        got = sup.run("box", f"""
            import ssl
            ctx = ssl.create_default_context()
            with socket.create_connection(({before[1]!r}, 443), 20) as s, ctx.wrap_socket(s, server_hostname="a.test") as t:
                t.sendall(b"GET /p HTTP/1.1\\r\\nHost: a.test\\r\\n\\r\\n")
                result = b"".join(iter(lambda: t.recv(65536), b"")).decode().partition("\\r\\n\\r\\n")[2]
        """)
        assert got == "a.test sni=a.test path=/p\n"
        assert inside(sup, "box", get) == before and inside(sup, "other", 'result = told("a.test")') == other
    # and a restart of the app, which is another jail
    sup.ok("restart", "box")
    sup.wait_state("box", "running")
    assert inside(sup, "box", get) == before


@netsup.lab
def test_a_flood_is_its_own_trouble(lab, sup):
    """One app asks as fast as it can, names that it may and that it may not; the other app is answered, and nobody is flooded
    with events. Names in use are not pushed out."""
    lab.dns(SITES)
    lab.tls_site("a.test", "11.2.0.10")
    agent(sup, "loud", RULES)
    agent(sup, "quiet", RULES)
    sup.up_all()
    tap = wiretap.Tap(lab, sup=sup)
    tap.take()
    memory = netsup.memory(sup.proxy_pid())
    inside(sup, "loud", """
        def flood():
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.connect(("10.255.255.53", 53))
            s.setblocking(False)
            for i in range(100000):
                try:
                    s.send(ask(f"n{i}.w.test" if i % 2 else f"n{i}.evil.test"))
                    while i % 64 == 0:
                        s.recv(2048)
                except BlockingIOError:
                    pass
        import json as keep  # a place that outlives this source
        keep.kept = told("a.test")
        keep.flood = threading.Thread(target=flood)
        keep.flood.start()
        result = None
    """)
    for i in range(50):
        assert is_fake(inside(sup, "quiet", f'result = told("q{i}.w.test")')[1][0])
    same = inside(sup, "loud", """
        import json as keep
        keep.flood.join()
        result = told("a.test") == keep.kept
    """)
    assert same
    # the map of the flooder is full: it is told so, and what it has stays
    last = inside(sup, "loud", """
        import json as keep
        i = 0
        while i < 20000 and told(f"more{i}.w.test")[0] == 0:
            i += 1
        result = [told("yet-another.w.test")[0], told("a.test") == keep.kept, i]
    """)
    assert last[0] == 2 and last[1], last
    code, out, err = sup.run("loud", "result = bare('curl', '-sS', 'https://a.test/x')")
    assert code == 0 and out == "a.test sni=a.test path=/x\n", err
    assert is_fake(inside(sup, "quiet", 'result = told("last.w.test")')[1][0])
    assert [n for n in tap.take()[1] if n != "a.test"] == []
    events = sup.violations("loud")
    assert len(events) < 3000, len(events)
    assert netsup.memory(sup.proxy_pid()) - memory < 8192


@netsup.lab
def test_no_network_no_names(lab, sup):
    lab.dns(SITES)
    agent(sup, "off", "Egress=off")
    agent(sup, "all", "Egress=all\nDeny=evil.test")
    sup.up_all()
    assert inside(sup, "off", 'result = lookup("a.test")') in ("-3", "-2")  # EAI_AGAIN: nobody answers
    assert sup.run("off", 'result = udp("10.255.255.53", 53)') == "ECONNREFUSED"
    allowed, denied, single = inside(sup, "all", 'result = [told("a.test"), told("evil.test"), told("x.y.z.example")]')
    assert is_fake(allowed[1][0]) and denied == [3, []] and is_fake(single[1][0])


@netsup.lab
def test_rules_change(lab, sup):
    """A name that is allowed now is there at the next question; one that is not any more is gone, and its address with it."""
    lab.dns(SITES)
    lab.tls_site("a.test", "11.2.0.10")
    agent(sup, "box", "Allow=a.test")
    sup.up_all()
    address = inside(sup, "box", 'result = told("a.test")')[1][0]
    path = os.path.join(sup.apps, "box.app")
    with open(path) as f:
        text = f.read()
    sup.write_unit("box", text.replace("Allow=a.test", "Allow=evil.test"))
    sup.ok("reload")
    harness.wait_for(lambda: inside(sup, "box", 'result = told("evil.test")')[0] == 0, 20, "the new rule")
    assert inside(sup, "box", 'result = told("a.test")') == [3, []]
    assert sup.run("box", f"result = read_from({address!r}, 443, b'GET')") == "ECONNRESET"
    sup.write_unit("box", text)
    sup.ok("reload")
    harness.wait_for(lambda: inside(sup, "box", 'result = told("a.test")') == [0, [address]], 20, "the old address")


@netsup.lab
def test_the_hosts_file(lab, sup):
    """/etc/hosts of the host comes before the name servers, is judged like any answer, and counts as it is now."""
    lab.dns(SITES)
    lab.http_site("a.test", "11.2.0.10")
    lab.hosts("".join(f"0.0.0.0 ad{i}.blocked.test\n" for i in range(20000)) + "127.0.0.1 a.test\n11.2.0.10 only-here.test\n")
    agent(sup, "box", "Allow=a.test\nAllow=only-here.test\nAllow=ad7.blocked.test\n")
    sup.up_all()
    tap = wiretap.Tap(lab, sup=sup)
    tap.take()
    body = sup.refused("box", "a.test:80")
    assert "127.0.0.1" in body, body
    assert sup.run("box", "result = connect('only-here.test:80')")[0] == 200
    sup.refused("box", "ad7.blocked.test:80")
    assert tap.take()[1] == []
    lab.hosts("127.0.0.1 only-here.test\n")
    assert sup.run("box", "result = connect('a.test:80')")[0] == 200
    sup.refused("box", "only-here.test:80")
    assert set(tap.take()[1]) == {"a.test"}
