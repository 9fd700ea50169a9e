"""The audit part of tests/bench/run: what it costs that the calls of a jail are looked at, beside strace; a flood of refusals; a
supervisor that is killed."""
import contextlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

import harness

PYTHON_IMPORTS = "import asyncio, email, http.server, json, logging.config, multiprocessing, sqlite3, ssl, unittest, urllib.request"
C_SOURCE = "src/unit/values.c"


def real_files(d, n):
    """n files of the size and kind that people search: Python's own library, again and again."""
    found = []
    for top, dirs, files in os.walk(os.path.dirname(os.__file__) if os.path.exists(os.__file__) else "/usr/lib/python3"):
        dirs[:] = [x for x in dirs if x not in ("__pycache__", "site-packages", "dist-packages", "test")]
        found += [os.path.join(top, f) for f in files if f.endswith(".py")]
    for i in range(n):
        to = os.path.join(d, f"d{i % 25}")
        os.makedirs(to, exist_ok=True)
        shutil.copy(found[i % len(found)], os.path.join(to, f"f{i}.py"))


def source_dir():
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def compile_argv():
    """A real file of this project, as it is compiled."""
    src = source_dir()
    return ["/usr/bin/gcc", "-std=gnu11", "-O2", "-D_GNU_SOURCE", "-I.", f"-I{src}/src", "-c", os.path.join(src, C_SOURCE), "-o", "out.o"]


def timed(argv, cwd, expect):
    begun = time.perf_counter()
    r = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                       check=False)
    took = (time.perf_counter() - begun) * 1000
    if r.returncode != expect:
        raise RuntimeError(f"{' '.join(argv)}: exit {r.returncode}: {r.stderr}")
    return took


def costs(o, line, i, d):
    files = os.path.join(d, "files")
    os.makedirs(files)
    real_files(files, 100 if o.quick else 1000)
    if harness.ROOT:
        subprocess.run(["chown", "-R", f"{i.user.pw_uid}:{i.user.pw_gid}", d], check=True)
    shutil.copy(os.path.join(harness.build_dir(), "config.h"), d)
    work = {"gcc -c of a file of this project": (compile_argv(), 0),
            "python3 imports": (["/usr/bin/python3", "-c", PYTHON_IMPORTS], 0),
            "grep -r over 1,000 files": (["/usr/bin/grep", "-r", "no such words", files], 1)}
    user = ["--user", i.user.pw_name] if harness.ROOT else []
    jail = [harness.program("sbxsv"), "exec", "--quiet", *user, "--write", d, "--read", os.path.join(source_dir(), "src")]
    strace = shutil.which("strace")
    for what, (argv, expect) in work.items():
        runs = {m: [*jail, "--violations", m, "--", *argv] for m in ("off", "writes", "all")}
        if strace:
            runs["strace"] = [strace, "-f", "-o", "/dev/null", "-e", "trace=%file", *argv]
        times = {m: [] for m in runs}
        for _ in range(2 if o.quick else 15):
            for m, a in runs.items():
                times[m].append(timed(a, d, expect))
        med = {m: statistics.median(t) for m, t in times.items()}
        for m, limit in (("writes", 1.1), ("all", 1.3)):
            line("audit", f"{what}, {m}", "ms", med[m], {"no audit": med["off"], "strace": med.get("strace")}, f"<= {limit} x no audit",
                 ratio_to="no audit", ok=lambda ours, ratio, limit=limit: None if o.quick or ratio is None else ratio <= limit)


def flood(o, line, i):
    """Refusals in a tight loop: all counted, the supervisor answers meanwhile."""
    n = 20000 if o.quick else 1000000
    d = i.app_dir("flood")
    shutil.copy(harness.program("badcalls"), f"{d}/badcalls")
    os.chmod(f"{d}/badcalls", 0o755)
    outside = os.path.join(i.home, "outside")
    i._own_dir(outside)
    path = i.user_file(f"{outside}/file", "x")
    i.write_unit("flood", f"[App]\nExec={d}/badcalls flood {path} {n}\nWorkingDirectory={d}\n[Restart]\nPolicy=no\n"
                          "[Audit]\nViolations=all\n")
    i.up()
    commands, answers, memory = [], [], []
    begun = time.perf_counter()
    while i.peek("flood")["state"] not in ("stopped", "failed"):
        a = time.perf_counter()
        i.api("GET", "/v1/apps/flood")
        answers.append((time.perf_counter() - a) * 1000)
        a = time.perf_counter()
        i.sbxsv("status", "flood")
        commands.append((time.perf_counter() - a) * 1000)
        with open(f"/proc/{i.daemon_pid()}/smaps_rollup", encoding="ascii") as f:
            memory.append(sum(int(m) for m in re.findall(r"Private_\w+:\s+(\d+) kB", f.read())) / 1024)
        time.sleep(0.1)
    took = time.perf_counter() - begun
    one = i.api("GET", "/v1/violations?app=flood")[1]["apps"][0]
    if one["total"] + one["lost"] != n:
        raise RuntimeError(f"counted {one} of {n}")
    disk = sum(os.path.getsize(os.path.join(i.state, f)) for f in os.listdir(i.state) if f.startswith("events.jsonl")) / 1024
    line("audit", f"{n:,} refusals: a second", "1/s", n / took, {})
    line("audit", "  sbxsv status meanwhile, median", "ms", statistics.median(commands), {}, "< 50",
         ok=lambda ours, _: None if o.quick else ours < 50)
    line("audit", "  sbxsv status meanwhile, slowest", "ms", max(commands), {})
    line("audit", "  of it the supervisor's answer, slowest", "ms", max(answers), {})
    line("audit", "  memory of the supervisor, highest", "MiB", max(memory), {})
    line("audit", "  events on disk", "KiB", disk, {})
    line("audit", "  not judged", "", one["lost"], {})


def killed(o, line, i):
    """kill -9 of the supervisor while programs of the app wait for it all the time."""
    d = i.app_dir("killed", {"run.sh": "for n in 1 2 3 4; do ./badcalls flood /nonexistent/x 100000000 & done\nwait\n"})
    shutil.copy(harness.program("badcalls"), f"{d}/badcalls")
    os.chmod(f"{d}/badcalls", 0o755)
    i.write_unit("killed", f"[App]\nExec=/bin/sh run.sh\nWorkingDirectory={d}\n[Audit]\nViolations=all\n")
    daemon = i.foreground()
    i.wait_state("killed", "running")
    harness.wait_for(lambda: len(harness.pids_with_mark(i.mark)) >= 5, 20, "the programs")
    begun = time.perf_counter()
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    harness.wait_for(lambda: not harness.pids_with_mark(i.mark), 20, "everything gone", step=0.005)
    line("audit", "kill -9 of the supervisor: all gone", "ms", (time.perf_counter() - begun) * 1000, {}, "< 1000",
         ok=lambda ours, _: ours < 1000)


def run(o, line, instance):
    with contextlib.ExitStack() as stack:
        i = stack.enter_context(instance())
        d = stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp"))
        os.chmod(d, 0o755)
        costs(o, line, i, d)
        flood(o, line, i)
    with instance() as i:
        killed(o, line, i)
