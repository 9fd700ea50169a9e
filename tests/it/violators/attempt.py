"""Tries what it is told, one word and its argument after the other, and says what came of it. See test_violations.py."""
import os
import socket
import subprocess
import sys
import time


def work(seconds, own):
    """What an app does that is allowed to."""
    import email, html, json, sqlite3, tempfile, xml.dom.minidom  # noqa: E401,F401
    end, n = time.monotonic() + float(seconds), 0
    db = sqlite3.connect(os.path.join(own, "work-py.db"))
    db.execute("create table if not exists t (x)")
    while time.monotonic() < end:
        n += 1
        db.execute("insert into t values (?)", (n,))
        db.commit()
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("x")
        path = os.path.join(own, f"py-{n % 7}")
        with open(path + ".new", "w") as f:
            f.write(json.dumps({"n": n}))
        os.rename(path + ".new", path)
        os.makedirs(os.path.join(own, "py-dir", "a"), exist_ok=True)
        os.listdir(own)
        for p in ("/etc/passwd", "/nonexistent/x", "/dev/null", "/proc/self/stat"):
            try:
                with open(p) as f:
                    f.read()
            except FileNotFoundError:
                pass
        subprocess.run(["true"], check=True)
        time.sleep(0.02)


def connect_unix(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)


def connect(host, port):
    with socket.create_connection((host, port), timeout=20) as s:
        s.settimeout(20)
        s.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return s.recv(10)


def attempt(word, arg):
    if word == "read":
        open(arg).read()
    elif word == "dirfd":  # DIR::NAME
        d, name = arg.split("::")
        fd = os.open(d, os.O_RDONLY | os.O_DIRECTORY)
        os.close(os.open(name, os.O_RDONLY, dir_fd=fd))
    elif word == "relative":  # DIR::NAME
        d, name = arg.split("::")
        os.chdir(d)
        open(name).read()
    elif word == "write":
        open(arg, "w").close()
    elif word == "exec":
        subprocess.run([arg], check=True)
    elif word == "unix":
        connect_unix(arg)
    elif word == "host":
        connect(arg, 80)
    elif word == "raw":
        connect(arg, 443)
    elif word == "work":
        work(*arg.split("::"))
    elif word == "sleep":
        time.sleep(float(arg))
    else:
        raise ValueError(word)


for w, a in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        attempt(w, a)
        print(w, a, "ok", flush=True)
    except Exception as e:  # noqa: BLE001
        print(w, a, repr(e), flush=True)
