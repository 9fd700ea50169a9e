"""Real programs in a jail that were told nothing of a proxy: each reaches the allowed site by name, and fails clearly for others.

TLS is verified by the test's authority: one of the allowed sites has the certificate of another name, and no client may accept it.
"""
import json
import os
import re
import shutil
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import harness
import netsup
import services
import wiretap

SITE, WRONG, EVIL = "11.2.0.10", "11.2.0.11", "11.2.0.66"
NODE = ["node", "--no-warnings", "get.mjs"]
JAVA = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", ".", "Get"]


class Client:
    """argv(url); what it prints for a name that is not there, a certificate of another name, a connection that is cut."""

    def __init__(self, argv, unknown, untrusted, cut, needs=(), files=(), build=None):
        self.argv = lambda url: [*argv, url]
        self.unknown, self.untrusted, self.cut, self.needs, self.files, self.build = unknown, untrusted, cut, needs, files, build


def go(resolver):  # Go's own resolver speaks DNS by itself; the other one is that of libc
    return Client(["env", f"GODEBUG=netdns={resolver}", "./get-go"], r"lookup evil\.test.*no such host", r"certificate is valid for other\.test",
                  r"connection reset by peer|EOF", build="go")


CLIENTS = {
    "curl": Client(["curl", "-sS"], r"\(6\) Could not resolve host: evil\.test", r"\(60\) SSL", r"\((7|35|56)\) (Failed to connect|.*(reset|Reset|SYSCALL|errno 104))",
                   ["curl"]),
    "wget": Client(["wget", "-nv", "-O-", "-t1", "--no-hsts", "--ca-certificate=ca.pem"], r"unable to resolve host address .evil\.test",
                   r"certificate common name|no certificate subject alternative name|certificate's owner does not match",
                   r"reset by peer|Unable to establish SSL connection|Connection closed|Error in the pull function", ["wget"]),
    "python-urllib": Client([harness.PYTHON, "get.py", "urllib"], r"Name or service not known", r"Hostname mismatch",
                            r"Connection reset|ConnectionResetError|EOF occurred|Errno 104", files=["get.py"]),
    "python-socket": Client([harness.PYTHON, "get.py", "socket"], r"gaierror .*Name or service not known", r"Hostname mismatch",
                            r"ConnectionResetError|SSLEOFError|Connection reset", files=["get.py"]),
    "node-fetch": Client([*NODE, "fetch"], r"ENOTFOUND evil\.test", r"ERR_TLS_CERT_ALTNAME_INVALID", r"ECONNRESET|UND_ERR_SOCKET",
                         ["node"], ["get.mjs"]),
    "node-https": Client([*NODE, "https"], r"ENOTFOUND evil\.test", r"ERR_TLS_CERT_ALTNAME_INVALID", r"ECONNRESET", ["node"], ["get.mjs"]),
    "go": go("go"),
    "go-libc": go("cgo"),
    "java": Client(JAVA, r"UnresolvedAddressException|UnknownHostException|ConnectException", r"No subject alternative DNS name matching wrong\.test",
                   r"[Cc]onnection reset|EOF|terminated the handshake", build="java"),
}
BUILT = {"go": services.build_go, "java": services.build_java}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Compiled clients, each made when it is first asked for: built(name) -> paths."""
    made = {}

    def build(name):
        if name is None:
            return []
        if name not in made:
            made[name] = BUILT[name](str(tmp_path_factory.mktemp(name)))
        return made[name] if isinstance(made[name], list) else [made[name]]
    return build


def world(lab, sup, client, files, network="Allow=site.test\nAllow=wrong.test"):
    """The sites, an app `box` with the client in its directory, and a tap on the wire."""
    services.need(*client.needs)
    svc = services.Services(lab)
    lab.dns({"site.test": [SITE], "wrong.test": [WRONG], "evil.test": [EVIL]}, log=True)
    svc.web("site.test", SITE, ports=(80, 443, 9443))
    svc.web("wrong.test", WRONG, cert_for="other.test")
    svc.web("evil.test", EVIL)
    sup.agent("box", network, app=f"Environment=NODE_EXTRA_CA_CERTS={sup.home}/apps/box/ca.pem")
    d = sup.app_dir("box")
    for f in [os.path.join(services.HERE, f) for f in client.files] + list(files):
        to = shutil.copy(f, d)
        os.chmod(to, 0o755)
    sup.up_all()
    return wiretap.Tap(lab, sup=sup)


def bare(sup, argv, **kw):
    code, out, err = sup.run("box", f"result = bare(*{argv!r})", **kw)
    return code, out, out + err


def fails(sup, client, url, pattern, run=bare):
    """The client exits with an error that matches, and the test did not have to end it: the text."""
    code, _, text = run(sup, client.argv(url))
    assert code != 0, f"{url} was reached:\n{text}"
    assert re.search(pattern, text), f"{url}: exit {code}, no {pattern} in\n{text}"
    return text


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_that_knows_no_proxy(name, built):
    play(name=name, files=built(CLIENTS[name].build))


@netsup.lab
def play(lab, sup, name, files):
    client = CLIENTS[name]
    tap = world(lab, sup, client, files)
    ports = {443} if name == "node-https" else {443, 80}
    for url in [f"{'https' if p == 443 else 'http'}://site.test/p" for p in ports]:
        code, out, text = bare(sup, client.argv(url))
        assert code == 0 and "site.test\n" in out, f"{url}: exit {code}\n{text}"
    connects, _ = tap.take()
    assert set(connects) == {(SITE, p) for p in ports}, connects
    # verified, not believed
    fails(sup, client, "https://wrong.test/p", client.untrusted)
    # a name that is not allowed does not exist, and nobody outside hears of it
    tap.take()
    fails(sup, client, "https://evil.test/p", client.unknown)
    e = sup.wait_violation("box", host="evil.test")
    assert (e["action"], e["operation"], e["hint"]) == ("denied", "resolve", "Allow=evil.test"), e
    # an allowed name on a port that is not
    fails(sup, client, "https://site.test:9443/p", client.cut)
    e = sup.wait_violation("box", host="site.test", port=9443)
    assert (e["action"], e["operation"], e["hint"]) == ("denied", "connect", "Allow=site.test:9443"), e
    # an address that nobody allowed: the TLS to it has no name, or one that is not that address's
    fails(sup, client, f"https://{EVIL}/p", client.cut)
    e = sup.wait_violation("box", host=EVIL, port=443)
    assert e["hint"] == f"Allow={EVIL}", e
    assert tap.take() == ([], []), "a refused connection or name left the machine"
    assert "evil.test" not in services.upstream_names(lab.path("dns.log"))
    # and a person sees it
    rows = {(d["host"], d.get("port")): d for d in sup.status("box")["denied"]}
    assert rows[("site.test", 9443)]["hint"] == "Allow=site.test:9443" and rows[(EVIL, 443)]["hint"] == f"Allow={EVIL}", rows
    assert rows[("evil.test", None)]["hint"] == "Allow=evil.test", rows


@pytest.mark.parametrize("name", ("curl", "python-socket", "node-fetch", "go"))
def test_a_client_where_there_is_no_nf_tables(name, built):
    play_ports(name=name, files=built(CLIENTS[name].build))


@netsup.lab
def play_ports(lab, sup, name, files):
    """A listener for each port that a rule names: the same, but that other ports are closed, without a word in the events."""
    client = CLIENTS[name]
    sup.env["SBXSV_NO_NFTABLES"] = "1"
    tap = world(lab, sup, client, files)
    assert "listed ports only" in sup.ok("status", "box")
    for url in ("https://site.test/p", "http://site.test/p"):
        code, out, text = bare(sup, client.argv(url))
        assert code == 0 and "site.test\n" in out, f"{url}: exit {code}\n{text}"
    fails(sup, client, "https://wrong.test/p", client.untrusted)
    tap.take()
    fails(sup, client, "https://evil.test/p", client.unknown)
    assert sup.wait_violation("box", host="evil.test")["hint"] == "Allow=evil.test"
    fails(sup, client, "https://site.test:9443/p", r"refused|REFUSED|Failed to connect")
    fails(sup, client, f"https://{EVIL}/p", client.cut)
    assert sup.wait_violation("box", host=EVIL, port=443)["hint"] == f"Allow={EVIL}"
    assert tap.take() == ([], [])


# --- told of the proxy by the usual variables, which the supervisor sets ---

def told(sup, argv, **kw):
    code, out, err = sup.run("box", f"result = sh(*{argv!r})", **kw)
    return code, out, out + err


VARIABLES = {
    "curl": (CLIENTS["curl"].argv, r"403"),
    "wget": (CLIENTS["wget"].argv, r"Proxy tunneling failed: Forbidden|403"),
    "python-urllib": (CLIENTS["python-urllib"].argv, r"403"),
    "go": (CLIENTS["go"].argv, r"Forbidden"),
    "java": (lambda url: [*JAVA, url, "198.18.0.1", "3128"], r"error:|403"),
}


@pytest.mark.parametrize("name", VARIABLES)
def test_a_client_that_was_told_of_the_proxy(name, built):
    play_told(name=name, files=built(CLIENTS[name].build))


@netsup.lab
def play_told(lab, sup, name, files):
    argv, refused = VARIABLES[name]
    client = CLIENTS[name]
    tap = world(lab, sup, client, files)
    for url in ("https://site.test/p", "http://site.test/p"):
        code, out, text = told(sup, argv(url))
        assert code == 0 and "site.test\n" in out, f"{url}: exit {code}\n{text}"
    code, _, text = told(sup, argv("https://wrong.test/p"))
    assert code != 0 and re.search(client.untrusted, text), text
    tap.take()
    code, _, text = told(sup, argv("https://evil.test/p"))
    assert code != 0 and re.search(refused, text), text
    e = sup.wait_violation("box", host="evil.test", port=443)
    assert (e["operation"], e["hint"]) == ("connect", "Allow=evil.test"), e
    assert tap.take() == ([], [])


@netsup.lab
def test_socks_for_curl_and_by_hand(lab, sup):
    client = CLIENTS["curl"]
    tap = world(lab, sup, client, [])
    curl = ["curl", "-sS", "--proxy", "socks5h://198.18.0.1:3128"]
    for url in ("https://site.test/p", "http://site.test/p"):
        code, out, text = bare(sup, [*curl, url])
        assert code == 0 and out == "site.test\n", text
    code, _, text = bare(sup, [*curl, "https://wrong.test/p"])
    assert code == 60, text
    tap.take()
    code, _, text = bare(sup, [*curl, "https://evil.test/p"])
    assert code == 97 and "(2)" in text, text  # CURLE_PROXY; RFC 1928: 2, not allowed by ruleset
    assert sup.wait_violation("box", host="evil.test", port=443)["hint"] == "Allow=evil.test"
    # a client that asks the jail's name server itself and sends the address it was given
    code, out, text = bare(sup, ["curl", "-sS", "--proxy", "socks5://198.18.0.1:3128", "https://site.test/p"])
    assert code == 0 and out == "site.test\n", text
    for host, port in (("evil.test", 80), (EVIL, 443), ("site.test", 22), ("169.254.169.254", 80), ("127.0.0.1", 22), ("::1", 22)):
        tap.take()
        assert sup.run("box", f"result = socks({host!r}, {port})") == [2, ""], (host, port)
        assert tap.take() == ([], []), (host, port)
    answer = sup.run("box", r"result = socks('site.test', 80, b'GET /p HTTP/1.0\r\nHost: site.test\r\n\r\n')")
    assert answer[0] == 0 and answer[1].endswith("site.test\n"), answer


@netsup.lab
def test_tls_to_an_address_goes_where_its_name_is(lab, sup):
    """What a program with a resolver of its own does: the address is only a hint, the ClientHello's name is judged and dialled."""
    tap = world(lab, sup, CLIENTS["curl"], [])
    elsewhere = "11.2.9.9"
    curl = lambda name, address: bare(sup, ["curl", "-sS", "--resolve", f"{name}:443:{address}", f"https://{name}/p"])
    code, out, text = curl("site.test", elsewhere)
    assert code == 0 and out == "site.test\n", text
    assert tap.take()[0] == [(SITE, 443)]
    # a private address is no more than a hint either, and never dialled (corpus: tp-wrongip)
    code, out, text = curl("site.test", "10.0.0.7")
    assert code == 0 and tap.take()[0] == [(SITE, 443)], text
    for name, address in (("evil.test", elsewhere), ("evil.test", SITE), ("evil.test", EVIL), ("site.test", "127.0.0.1"),
                          ("evil.test", "10.0.0.7"), ("site.test", "198.19.7.7"), ("site.test", "198.18.0.9")):
        code, _, text = curl(name, address)
        assert code in (7, 35, 56), (name, address, code, text)
        assert tap.take()[0] == [], (name, address)
    assert json.dumps(sup.violations("box", host="evil.test"))
