"""What a jailed app reaches, with the real supervisor: names, TLS, HTTP, and every answer that is not a public site."""
import netsup

SITES = {"a.test": ["11.2.0.10", "2a0e:b2::10"], "b.test": ["11.2.0.11"], "x.w.test": ["11.2.0.10"], "c.test": ["11.2.0.12"]}


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
