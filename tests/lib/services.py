"""Servers of the lab's internet that are no toys: nginx, sshd, PostgreSQL, git over https.

    svc = services.Services(lab)
    svc.web("site.test", "11.2.0.10")              # 80 and 443; GET / and /p answer "site.test\n"
    svc.git("git.test", "11.2.0.11", {"README": "text\n"})   # https://git.test/repo.git
    key, known_hosts = svc.ssh("ssh.test", "11.2.0.12")      # 22; texts for the app's directory
    svc.postgres("db.test", "11.2.0.13")           # 5432, with and without TLS; user sbx, database postgres, no password

All run in the lab's `inet` namespace, as the tests' ordinary user also when root runs the tests (sshd and PostgreSQL want it so), with
certificates of the lab's authority, files below the lab's directory, and die with the lab. What is not installed is a skip
that says so.
"""
import glob
import os
import pwd
import re
import shutil
import socket
import subprocess

import harness
import netlab
import pytest

# pg_wrapper(1) hides the server programs of Debian and Ubuntu here
PG_DIRS = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda d: int(d.split("/")[4]), reverse=True) + ["/usr/bin"]


def need(*programs):
    """Skips the test, with the reason, when one of these is not installed."""
    missing = [p for p in programs if not shutil.which(p)]
    if missing:
        pytest.skip("not installed: " + ", ".join(missing))


class Services:
    def __init__(self, lab):
        self.lab = lab
        self.user = harness.app_user() if harness.ROOT else pwd.getpwuid(os.getuid())

    # -- running --

    def dir(self, name):
        """A new directory of the servers' user."""
        d = self.lab.path(name)
        os.mkdir(d, 0o700)
        self.give(d)
        return d

    def give(self, path, mode=None):
        if mode is not None:
            os.chmod(path, mode)
        if harness.ROOT:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)
        return path

    def write(self, path, text, mode=0o600):
        with open(path, "w") as f:
            f.write(text)
        return self.give(path, mode)

    def as_user(self, argv):
        if not harness.ROOT:  # with the capabilities that the test has in its namespaces
            return argv
        low_ports = ["--inh-caps", "+net_bind_service", "--ambient-caps", "+net_bind_service"]
        return ["setpriv", "--reuid", str(self.user.pw_uid), "--regid", str(self.user.pw_gid), "--clear-groups", *low_ports, *argv]

    def run(self, argv, **kw):
        r = subprocess.run(self.as_user(argv), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120,
                           env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": self.lab.dir}, cwd="/", **kw)
        assert r.returncode == 0, f"{argv}: exit {r.returncode}\n{r.stdout}{r.stderr}"
        return r.stdout

    def start(self, argv, log, *ports, address):
        """Starts a server and waits until it takes connections."""
        if address not in self.lab._addresses():
            self.lab.address(address)
        with open(self.lab.path(log), "ab") as out:
            p = self.lab.inet.popen(self.as_user(argv), stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/",
                                    env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": self.lab.dir})
        self.lab.procs.append(p)

        def there():
            assert p.poll() is None, f"{argv[0]} ended:\n{self.log(log)}"
            for port in ports:
                try:
                    self.lab.inet.connect((address, port), timeout=5).close()
                except OSError:
                    return False
            return True
        harness.wait_for(there, 60, f"{argv[0]} on {address}")
        return p

    def log(self, name):
        with open(self.lab.path(name), errors="replace") as f:
            return f.read()

    def certificate(self, *names):
        """Copies of a certificate and its key that the servers' user may read."""
        out = []
        for path in self.lab.certificate(*names):
            copy = path + ".server"
            shutil.copy(path, copy)
            out.append(self.give(copy, 0o600))
        return out

    # -- servers --

    def web(self, name, address, ports=(80, 443), cert_for=None):
        """nginx. Its access log is web_log(name): lines "HOST REQUEST STATUS SNI"."""
        need("nginx")
        cert, key = self.certificate(cert_for or name, *([] if cert_for else [address]))
        d = self.dir(f"nginx-{name}")
        temp = " ".join(f"{k}_temp_path {d}/{k};" for k in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        listens = "".join(f"listen {address}:{p}{'' if p % 1000 == 80 else ' ssl'};" for p in ports)
        conf = self.write(f"{d}/nginx.conf", f"""
daemon off; master_process off; pid {d}/pid; error_log stderr notice;
events {{ worker_connections 512; }}
http {{ {temp}
  log_format lab '$host "$request" $status $ssl_server_name';
  access_log {d}/access lab;
  server {{ {listens} ssl_certificate {cert}; ssl_certificate_key {key};
    default_type text/plain; location / {{ return 200 "{name}\\n"; }} }}
}}
""")
        self.start(["nginx", "-e", "stderr", "-p", d, "-c", conf], f"nginx-{name}.log", *ports, address=address)
        return self.lab.path(f"nginx-{name}/access")

    def git(self, name, address, files):
        """https://NAME/repo.git with one commit of these files."""
        need("git")
        work, root = self.dir("git-work"), self.dir("git-root")
        for rel, text in files.items():
            self.write(os.path.join(work, rel), text)
        git = ["git", "-c", "user.name=lab", "-c", "user.email=lab@lab.test", "-c", "init.defaultBranch=main", "-C", work]
        for args in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"],
                     ["clone", "-q", "--bare", work, f"{root}/repo.git"]):
            self.run([*git, *args])
        cert, key = self.certificate(name)
        here = os.path.dirname(os.path.abspath(__file__))
        script = self.lab.path("sites.py")  # where the servers' user can read it
        shutil.copy(os.path.join(here, "sites.py"), script)
        os.chmod(script, 0o644)
        self.start(["/usr/bin/python3", script, "git", address, "443", cert, key, root], "git.log", 443, address=address)

    def ssh(self, name, address):
        """(private key, known_hosts line) of a server that runs commands as the servers' user."""
        need("sshd", "ssh", "ssh-keygen")
        d = self.dir("sshd")
        for key in ("host", "user"):
            self.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{d}/{key}"])
        conf = self.write(f"{d}/conf", f"""
Port 22
ListenAddress {address}
HostKey {d}/host
AuthorizedKeysFile {d}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
UseDNS no
""")
        self.start([shutil.which("sshd"), "-D", "-e", "-f", conf], "sshd.log", 22, address=address)
        with open(f"{d}/user") as f, open(f"{d}/host.pub") as g:
            return f.read(), f"{name} {g.read()}"

    def postgres(self, name, address):
        tools = next((d for d in PG_DIRS if os.access(f"{d}/initdb", os.X_OK)), None)
        if not tools:
            pytest.skip("not installed: postgresql")
        d = self.dir("pg")
        self.run([f"{tools}/initdb", "-D", f"{d}/data", "-U", "sbx", "-A", "trust", "--no-sync", "--no-instructions",
                  "--locale=C", "-E", "UTF8"])
        cert, key = self.certificate(name)
        self.write(f"{d}/data/pg_hba.conf", "host all all 0.0.0.0/0 trust\n")
        options = {"listen_addresses": address, "port": 5432, "unix_socket_directories": d, "fsync": "off", "ssl": "on",
                   "ssl_cert_file": cert, "ssl_key_file": key, "shared_buffers": "8MB", "max_connections": 20,
                   "autovacuum": "off", "dynamic_shared_memory_type": "mmap"}
        argv = [f"{tools}/postgres", "-D", f"{d}/data"]
        for k, v in options.items():
            argv += ["-c", f"{k}={v}"]
        self.start(argv, "pg.log", 5432, address=address)


# -- clients that have to be compiled, outside of the jail and without a network --

HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "it", "clients")


def build_go(directory):
    """The Go client; the directory is a scratch directory of the test."""
    need("go")
    shutil.copy(os.path.join(HERE, "get.go"), directory)
    env = {"PATH": os.environ["PATH"], "HOME": directory, "GOCACHE": f"{directory}/cache", "GOPATH": f"{directory}/path",
           "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "GOPROXY": "off", "GO111MODULE": "off", "LC_ALL": "C"}
    out = os.path.join(directory, "get-go")
    r = subprocess.run(["go", "build", "-p", "2", "-o", out, "get.go"], cwd=directory, env=env, capture_output=True, text=True,
                       timeout=240)
    if r.returncode:
        pytest.skip(f"go cannot build here: {r.stderr[-500:]}")
    shutil.rmtree(env["GOCACHE"], ignore_errors=True)
    return out


def build_java(directory):
    need("javac", "java")
    r = subprocess.run(["javac", "-d", directory, os.path.join(HERE, "Get.java")], capture_output=True, text=True, timeout=240,
                       env={"PATH": os.environ["PATH"], "LC_ALL": "C"})
    if r.returncode:
        pytest.skip(f"javac does not work here: {r.stderr[-500:]}")
    return [os.path.join(directory, f) for f in os.listdir(directory) if f.endswith(".class")]


def upstream_names(path):
    """Names that were asked of the lab's dnsmasq (lab.dns(..., log=True)), without the lab's own test question."""
    with open(path, errors="replace") as f:
        return {m[1] for m in re.finditer(r"query\[[^]]*\] (\S+) from", f.read())} - {"ready.test"}


def answers(address, port, lab, what=b""):
    """What a server says to the lab's host itself: for tests of the lab."""
    with socket.create_connection((address, port), 20) as s:
        s.sendall(what)
        return s.recv(65536)
