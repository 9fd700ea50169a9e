"""What is shown is what is enforced: `check --allow` against the proxy, status and events of refusals, floods of them."""
import json
import os

import harness
import netlab
import netsup

# What the units below are asked about. Whatever the answer is: it must be the same from `sbxsv check --allow` and inside.
TARGETS = [
    "a.test:443", "a.test:80", "a.test:8080", "a.test:8443", "a.test:22", "a.test:1", "a.test:65535", "A.Test.:443",
    "x.a.test:443", "w.test:443", "x.w.test:443", "y.x.w.test:443", "deny.w.test:443", "deny.w.test:80", "aw.test:443",
    "b.test:443", "b.test:5000", "b.test:5009", "b.test:5010", "b.test:4999", "c.test:443", "nas.test:5432",
    "11.2.0.10:443", "11.2.0.10:22", "11.2.0.11:443", "11.2.0.12:443", "[2a0e:b2::10]:443", "[2a0e:b2::11]:443", "[2A0E:B2:0::10]:443",
    "192.168.77.2:5432", "192.168.77.2:5433", "192.168.77.3:5432", "[fd00:77::2]:7", "[fd00:78::2]:7", "[::ffff:192.168.77.2]:5432",
    "10.0.0.1:443", "169.254.169.254:80", "[fe80::1]:80", "0.0.0.0:80", "[::]:80", "224.0.0.1:80", "192.0.2.1:80", "198.18.0.9:3128",
    "0.0.0.0:4999", "[::]:4999", "127.0.0.1:4999", "127.0.0.1:5000", "127.0.0.2:4999", "[::1]:4999", "[::1]:5000", "localhost:4999", "localhost:5000", "x.localhost:4999",
    "[::ffff:127.0.0.1]:4999", "[64:ff9b::7f00:1]:4999", "[2002:7f00:1::]:4999",
    "11.1.0.2:443", "[2a0e:b1::2]:443", "192.168.77.1:5432", "[::ffff:11.1.0.2]:443", "[64:ff9b::b01:2]:443",
    "0x7f.1:443", "127.1:443", "2130706433:443", "a..test:443", "-a.test:443", "a_b.w.test:443", "metadata.google.internal:80",
]
UNITS = {
    "off": "Loopback=4999",
    "hosts": "Allow=a.test\nAllow=*.w.test\nAllow=b.test:5000-5009\nAllow=11.2.0.10\nAllow=11.1.0.2\nAllow=[2a0e:b2::10]\nAllow=nas.test:5432\n"
             "Deny=deny.w.test:443\nAllowAddress=192.168.77.0/24:5432\nAllowAddress=[fd00:77::]/64:*\nLoopback=4999",
    "all": "Egress=all\nConnect=80,443,5000-5004\nAllow=b.test:5009\nDeny=11.2.0.11\nDeny=x.w.test\nDeny=c.test:443",
    "any": "Egress=all\nAllowAddress=192.168.77.2:5432",
}
# Reaches a target as a program would that heeds NO_PROXY, and answers whether sbxsv let it: a site that does not answer was let.
REACH = """
def reach(target):
    host, port = target.rsplit(":", 1)
    host = host.strip("[]")
    try:
        if dial(host, int(port)) == "connected":
            return True
    except UnicodeError:  # Python's own opinion of a name
        pass
    if "HTTPS_PROXY" not in os.environ:
        return False
    return connect(target)[0] in (200, 502, 504)
result = {t: reach(t) for t in TARGETS}
"""


@netsup.lab
def test_check_gives_the_answer_of_the_proxy(lab, sup):
    names = ("a.test", "w.test", "x.w.test", "y.x.w.test", "deny.w.test", "b.test", "c.test", "aw.test", "x.a.test", "a_b.w.test")
    lab.dns({**{n: ["11.2.0.10"] for n in names}, "nas.test": ["192.168.77.2"], "c.test": ["11.2.0.12"]})
    lab.address("11.2.0.10", "11.2.0.11", "11.2.0.12", "2a0e:b2::10", "2a0e:b2::11")
    lan = lab.lan()
    lan.ip("addr add 192.168.77.3/24 dev lan")
    for prefix in ("64:ff9b::/96", "2002::/16", "fd00:78::/64"):
        lab.route_to_inet(prefix)
    netlab.ip("route add 169.254.169.254 via 192.168.77.2")
    for port in (4999, 5000, 443, 80, 5432):
        server = sup.spawn([harness.PYTHON, "-c", "import socket, sys\n"
                            "s = socket.create_server(('::', int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)\n"
                            "print('ready', flush=True)\nwhile True: s.accept()[0].close()", str(port)], stdout=-1,
                           preexec_fn=None)
        assert server.stdout.readline() == b"ready\n"
    for name, network in UNITS.items():
        sup.agent(name, network)
    sup.up_all()
    wrong = []
    for name in UNITS:
        inside = sup.run(name, f"TARGETS = {TARGETS!r}\n{REACH}")
        for target in TARGETS:
            r = sup.sbxsv("check", "--allow", name, target, "--json")
            if r.code not in (0, 6):  # no target at all: a word of usage, and refused inside too
                assert r.code in (1, 2) and r.err, (name, target, r)
            if (r.code == 0) != inside[target]:
                wrong.append((name, target, f"check: exit {r.code}, inside: {inside[target]}", r.out, r.err))
    assert not wrong, "\n".join(map(str, wrong))
