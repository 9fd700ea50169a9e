"""git over https, ssh and psql in a jail: any protocol to an allowed host and port, by name, with nothing set up for a proxy."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import netsup
import services
import wiretap

EVIL = "11.2.0.66"


def bare(sup, *argv, **env):
    code, out, err = sup.run("box", f"result = bare(*{argv!r}, **{env!r})")
    return code, out, out + err


def refused(sup, host, port=None, operation="resolve"):
    fields = {"host": host, **({"port": port} if port else {})}
    e = sup.wait_violation("box", **fields)
    hint = f"Allow={host}" + (f":{port}" if port else "")
    assert (e["action"], e["operation"], e["hint"]) == ("denied", operation, hint), e
    assert any(d["host"] == host and d["hint"] == hint for d in sup.status("box")["denied"])


@netsup.lab
def test_git_clones_over_https(lab, sup):
    services.need("git")
    svc = services.Services(lab)
    lab.dns({"git.test": ["11.2.0.20"], "evil.test": [EVIL]}, log=True)
    svc.git("git.test", "11.2.0.20", {"README": "from the lab\n"})
    sup.agent("box", "Allow=git.test")
    sup.up_all()
    git = ["git", "-c", "http.sslCAInfo=ca.pem"]
    read = lambda d: sup.run("box", f"result = open({d!r} + '/README').read()")
    code, _, text = bare(sup, *git, "clone", "-q", "https://git.test/repo.git", "one")
    assert code == 0 and read("one") == "from the lab\n", text
    # a real check of the certificate
    code, _, text = bare(sup, "git", "-c", "http.sslCAInfo=/etc/passwd", "clone", "-q", "https://git.test/repo.git", "two")
    assert code == 128 and re.search("certificate|CAfile", text), text
    tap = wiretap.Tap(lab, sup=sup)
    code, _, text = bare(sup, *git, "clone", "-q", "https://evil.test/repo.git", "three")
    assert code == 128 and "Could not resolve host: evil.test" in text, text
    refused(sup, "evil.test")
    # told of the proxy: by the variables, and SOCKS
    code, _, text = sup.run("box", f"result = sh(*{git!r}, 'clone', '-q', 'https://git.test/repo.git', 'four')")
    assert code == 0 and read("four") == "from the lab\n", text
    code, _, text = bare(sup, *git, "-c", "http.proxy=socks5h://198.18.0.1:3128", "clone", "-q", "https://git.test/repo.git", "five")
    assert code == 0 and read("five") == "from the lab\n", text
    tap.take()
    code, _, err = sup.run("box", f"result = sh(*{git!r}, 'clone', '-q', 'https://evil.test/repo.git', 'six')")
    assert code == 128 and "403" in err, err
    assert tap.take() == ([], [])
    assert "evil.test" not in services.upstream_names(lab.path("dns.log"))


@netsup.lab
def test_ssh_to_an_allowed_host(lab, sup):
    svc = services.Services(lab)
    lab.dns({"ssh.test": ["11.2.0.22"], "evil.test": [EVIL]})
    key, known = svc.ssh("ssh.test", "11.2.0.22")
    sup.agent("box", "Allow=ssh.test:22")
    d = sup.app_dir("box")
    sup.user_file(f"{d}/key", key, 0o600)
    sup.user_file(f"{d}/known", known)
    sup.up_all()
    ssh = ["ssh", "-F", "/dev/null", "-i", f"{d}/key", "-o", f"UserKnownHostsFile={d}/known", "-o", "StrictHostKeyChecking=yes",
           "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-l", svc.user.pw_name]
    code, out, text = bare(sup, *ssh, "ssh.test", "echo reached; cat")
    assert code == 0 and out == "reached\n", text + svc.log("sshd.log")
    code, _, text = bare(sup, *ssh, "evil.test", "echo reached")
    assert code == 255 and re.search("Could not resolve hostname evil.test", text), text
    refused(sup, "evil.test")
    code, _, text = bare(sup, *ssh, "-p", "2222", "ssh.test", "echo reached")
    assert code == 255 and re.search("reset|closed", text), text
    refused(sup, "ssh.test", 2222, "connect")
    code, _, text = bare(sup, *ssh, EVIL, "echo reached")
    assert code == 255 and re.search("reset|closed", text), text
    refused(sup, EVIL, 22, "connect")
    # a megabyte each way, to the last byte
    code, out, text = sup.run("box", f"""
r = subprocess.run([*{ssh!r}, "ssh.test", "cat"], input=bytes(range(256)) * 4096, capture_output=True, env=no_proxy_env(), timeout=60)
result = [r.returncode, r.stdout == bytes(range(256)) * 4096, r.stderr.decode()]
""")
    assert code == 0 and out is True, text


@netsup.lab
def test_psql_with_and_without_tls(lab, sup):
    services.need("psql")
    svc = services.Services(lab)
    lab.dns({"db.test": ["11.2.0.25"], "evil.test": [EVIL]})
    svc.postgres("db.test", "11.2.0.25")
    sup.agent("box", "Allow=db.test:5432")
    sup.up_all()

    def psql(host, mode, port=5432, ca="ca.pem"):
        return bare(sup, "psql", "-X", "-At", "-c", "select 6 * 7, ssl from pg_stat_ssl where pid = pg_backend_pid()",
                    f"host={host} port={port} user=sbx dbname=postgres sslmode={mode} sslrootcert={ca} connect_timeout=30")
    for mode, encrypted in (("disable", "f"), ("require", "t"), ("verify-full", "t")):
        code, out, text = psql("db.test", mode, ca="" if mode == "require" else "ca.pem")
        assert code == 0 and out == f"42|{encrypted}\n", (mode, text, svc.log("pg.log")[-2000:])
    for mode in ("disable", "require"):
        code, _, text = psql("evil.test", mode, ca="")
        assert code == 2 and 'could not translate host name "evil.test"' in text, text
        code, _, text = psql("db.test", mode, port=5433, ca="")
        assert code == 2 and re.search("reset by peer|closed the connection unexpectedly|server closed", text), text
        code, _, text = psql(EVIL, mode, ca="")
        assert code == 2 and re.search("reset by peer|closed the connection unexpectedly|server closed", text), text
    refused(sup, "evil.test")
    refused(sup, "db.test", 5433, "connect")
    refused(sup, EVIL, 5432, "connect")
