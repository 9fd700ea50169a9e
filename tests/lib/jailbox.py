"""Attacks from inside a jail, for tests/it/test_jail_*.py: the attacker of tests/lib/attacker.c run by `sbxsv exec`."""
import os
import shutil
import subprocess

import harness

MODES = ["strict", "allowlist", "open"]
REFUSED = {"EACCES", "EPERM", "EROFS", "ENOENT"}


class Box:
    """One private instance, a directory of the app's user as working directory, and the attacker in it.

    Under root the tests share one home directory. alone=True waits until no other box uses it: for tests that rename
    what is in it.
    """

    def __init__(self, inst, mode, alone=False):
        self.inst = inst
        self.mode = mode
        self.lock = harness.home_lock(alone)
        # Under root the home of the app's user is what the system says; else it is the instance's.
        self.home = inst.user.pw_dir if harness.ROOT else inst.home
        self.cwd = inst.app_dir("box")
        self.attacker = os.path.join(self.cwd, "attacker")
        shutil.copy(harness.program("attacker"), self.attacker)
        os.chmod(self.attacker, 0o755)
        self.made = []

    # -- running --

    def argv(self, options, command):
        user = ["--user", self.inst.user.pw_name] if harness.ROOT else []
        return [harness.program("sbxsv"), "exec", "--quiet", "--read-mode", self.mode, *user, *map(str, options), "--",
                *map(str, command)]

    def run(self, *command, options=(), env=None, timeout=60, **kw):
        """One command in the jail: a CompletedProcess."""
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("cwd", self.cwd)
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        return subprocess.run(self.argv(options, command), env=dict(self.inst.env, **(env or {})), text=True,
                              timeout=timeout, **kw)

    def attack(self, *words, options=(), **kw):
        """Results of one or more attacks ("read", path, "/", "write", path ...), one word each."""
        r = self.run(self.attacker, *words, options=options, **kw)
        assert r.returncode == 0, f"{words}: exit {r.returncode}\n{r.stdout}{r.stderr}"
        out = r.stdout.split()
        return out[0] if len(out) == 1 else out

    # -- what the host has --

    def secret(self, rel, text="secret\n"):
        """A file below the user's home, removed after the test when it was not there before."""
        path = os.path.join(self.home, rel)
        top = self.home
        for part in os.path.dirname(rel).split("/"):
            top = os.path.join(top, part) if part else top
            if not os.path.isdir(top):
                self.inst._own_dir(top, 0o700)
                self.made.append(top)
        if not os.path.exists(path):
            self.inst.user_file(path, text, 0o600)
            self.made.append(path)
        return path

    def close(self):
        for path in reversed(self.made):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            elif os.path.lexists(path):
                os.unlink(path)
        os.close(self.lock)


def host_addresses():
    """IPv4 addresses of this machine beside loopback."""
    out = subprocess.run(["ip", "-4", "-o", "addr", "show", "scope", "global"], capture_output=True, text=True).stdout
    return [line.split()[3].split("/")[0] for line in out.splitlines()]
