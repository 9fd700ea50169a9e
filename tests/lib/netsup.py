"""A supervisor in a network of the test's own: what tests/it/test_net_*.py are written with.

    @netsup.lab
    def test_something(lab, sup):
        lab.dns({"site.test": ["11.2.0.10"]})
        sup.agent("box", "Allow=site.test")     # an app that runs the Python it is sent, see agent.py
        sup.up_all()
        assert sup.run("box", "result = connect('site.test:443')")[0] == 200

The body runs in namespaces of its own (netlab.py): as root with a root supervisor whose apps run as another user, as an
ordinary user with that user's supervisor in a user namespace made for the test. `sup` is a harness.Instance: what it starts
has the rights of an ordinary user there. It is taken down and checked for leftovers at the end.
"""
import functools
import http.client
import io
import json
import os
import shutil
import subprocess
import textwrap

import harness
import netlab


class Failure(AssertionError):
    pass


class LabInstance(harness.Instance):
    def __init__(self, lab):
        super().__init__()
        self.lab = lab
        self.ports = {}

    # -- as an ordinary user: without the capabilities that the test itself has in its user namespace --

    def _plain(self, kw):
        if not harness.ROOT:
            kw.setdefault("preexec_fn", netlab.drop_capabilities)
        return kw

    def spawn(self, argv, **kw):
        return super().spawn(argv, **self._plain(kw))

    def sbxsv(self, *args, timeout=60, env=None):
        p = subprocess.run([harness.program("sbxsv"), *map(str, args)], capture_output=True, timeout=timeout, text=True,
                           env=dict(self.env, **(env or {})), cwd=self.base, stdin=subprocess.DEVNULL, **self._plain({}))
        return harness.Result(p.returncode, p.stdout, p.stderr)

    def api(self, method, path, body=None, timeout=20):
        if harness.ROOT:
            return super().api(method, path, body, timeout)
        # The supervisor cannot look at a process that may do more than itself, so it would refuse this one.
        r = subprocess.run(["curl", "-s", "-i", "-X", method, "--unix-socket", self.control, "--max-time", str(timeout),
                            *(["--data", json.dumps(body)] if body is not None else []), "http://localhost" + path],
                           capture_output=True, stdin=subprocess.DEVNULL, **self._plain({}))
        if r.returncode:
            raise ConnectionError(f"curl: exit {r.returncode}")
        head, _, text = r.stdout.decode(errors="replace").partition("\r\n\r\n")
        is_json = "content-type: application/json" in head.lower()
        return int(head.split()[1]), json.loads(text) if is_json and text else text

    # -- agents --

    def agent(self, name, network="", app="", listen=None, bind=None, body=""):
        """A unit whose app runs what `run` sends it; its host port is in self.ports."""
        d = self.app_dir(name)
        for f in (os.path.join(harness.TESTS, "lib", "agent.py"), self.lab.ca()):
            to = os.path.join(d, os.path.basename(f))
            shutil.copy(f, to)
            os.chmod(to, 0o644)
        port = harness.free_port()
        ca = os.path.join(d, "ca.pem")
        env = f"SSL_CERT_FILE={ca} CURL_CA_BUNDLE={ca} PYTHONUNBUFFERED=1" + (f" BIND={bind}" if bind else "")
        self.ports[name] = port
        self.write_unit(name, f"[App]\nExec={harness.PYTHON} agent.py\nWorkingDirectory={d}\nEnvironment={env}\n{app}\n"
                              f"[Network]\nListen={listen(port) if listen else port}\n{network}\n{body}\n")
        return port

    def up_all(self, timeout=60):
        self.up()
        for name in self.ports:
            self.wait_state(name, "running", timeout=timeout)

    def post(self, name, source, host="127.0.0.1", timeout=120):
        c = http.client.HTTPConnection(host, self.ports[name], timeout=timeout)
        try:
            c.request("POST", "/", body=textwrap.dedent(source).encode())
            return json.loads(c.getresponse().read())
        finally:
            c.close()

    def run(self, name, source, **kw):
        """`result` of this source, run in the app's jail."""
        answer = self.post(name, source, **kw)
        if "error" in answer:
            raise Failure(f"inside {name}:\n{answer['error']}")
        return answer["result"]

    def violations(self, app, **fields):
        return [e for e in self.events(app, "violation") if all(e.get(k) == v for k, v in fields.items())]

    def wait_violation(self, app, timeout=30, **fields):
        return harness.wait_for(lambda: self.violations(app, **fields), timeout, f"a violation of {app}: {fields}")[-1]

    def refused(self, app, target, hint=None, rule=None):
        """A CONNECT of the app gets the one shape of a refusal; returns its body."""
        status, headers, body = self.run(app, f"result = connect({target!r})")
        assert status == 403, f"{app} {target}: {status} {headers} {body}"
        assert headers.get("X-Sbxsv-Denied"), headers
        if rule:
            assert rule in headers["X-Sbxsv-Denied"], (target, headers, body)
        if hint:
            assert f"add  {hint}  to [Network] of {app}.app" in body, (target, body)
        return body


def _body(fn, kw):
    with netlab.Lab() as lab:
        sup = LabInstance(lab)
        try:
            fn(lab, sup, **kw)
        except BaseException as e:
            out = io.StringIO()
            sup.report(out)
            problems = sup.close()
            if type(e).__name__ == "Skipped":
                raise
            raise Failure("\n".join([out.getvalue(), *problems])) from e
        problems = sup.close()
        assert not problems, "after the test: " + "; ".join(problems)


def lab(fn):
    @functools.wraps(fn)
    def wrapper(**kw):
        why = netlab.can_isolate()
        if why:
            import pytest
            pytest.skip(why)
        harness.app_user()  # outside: it may have to be made
        netlab.run_isolated(_body, fn, kw, timeout=170, keep_uid=True)
    # pytest must see neither `lab` nor `sup`: they are no fixtures
    import inspect
    del wrapper.__wrapped__
    wrapper.__signature__ = inspect.Signature([p for n, p in inspect.signature(fn).parameters.items()
                                               if n not in ("lab", "sup")])
    return wrapper


def memory(pid):
    """Private memory in KiB; 0 for a build with AddressSanitizer, which gives back nothing for a while."""
    with open(harness.program("sbxsv-proxy"), "rb") as f:
        if b"__asan_" in f.read():
            return 0
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("Private"))


def raises(kind):
    import pytest
    return pytest.raises(kind)


def skip(why):
    import pytest
    pytest.skip(why)
