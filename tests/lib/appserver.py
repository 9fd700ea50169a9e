"""A small HTTP server that tests run as an app: it says what it sees and does what it is asked.

  GET /                  "ok PID\n"
  GET /env               the environment as JSON
  GET /read?p=PATH       the file, or 500 and the error
  GET /write?p=PATH      writes "x" there
  GET /ls?p=PATH         names, one a line
  GET /connect?h=H&p=P   "connected", or the error
  GET /unix?p=PATH       the same for a Unix socket
  GET /fetch?u=URL       through the proxy variables: status and body
  GET /sh?c=CMD          output of a shell command
  GET /exit?code=N       ends the process
  GET /sleep?s=N         answers after N seconds
  GET /peer              the client's address as the app sees it
"""
import http.server
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request


def connect(family, address):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(5)
    try:
        s.connect(address)
        return "connected"
    finally:
        s.close()


def fetch(url):
    try:
        with urllib.request.urlopen(url, timeout=20) as r:
            return f"{r.status}\n{r.read().decode(errors='replace')}"
    except urllib.error.HTTPError as e:
        return f"{e.code}\n{e.read().decode(errors='replace')}"


def write(path):
    with open(path, "w") as f:
        f.write("x")
    return "written"


def read(path):
    with open(path, "rb") as f:
        return f.read(1 << 20).decode(errors="replace")


ROUTES = {
    "/": lambda q: f"ok {os.getpid()}\n",
    "/env": lambda q: json.dumps(dict(os.environ)),
    "/read": lambda q: read(q["p"]),
    "/write": lambda q: write(q["p"]),
    "/ls": lambda q: "\n".join(sorted(os.listdir(q["p"]))),
    "/connect": lambda q: connect(socket.AF_INET6 if ":" in q["h"] else socket.AF_INET, (q["h"], int(q["p"]))),
    "/unix": lambda q: connect(socket.AF_UNIX, q["p"]),
    "/fetch": lambda q: fetch(q["u"]),
    "/sh": lambda q: subprocess.run(q["c"], shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    timeout=20).stdout.decode(errors="replace"),
    "/sleep": lambda q: (time.sleep(float(q["s"])), "slept")[1],
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        u = urllib.parse.urlsplit(self.path)
        q = dict(urllib.parse.parse_qsl(u.query, keep_blank_values=True))
        if u.path == "/exit":
            os._exit(int(q.get("code", "0")))
        code, text = 200, ""
        try:
            if u.path == "/peer":
                text = str(self.client_address[0])
            elif u.path in ROUTES:
                text = ROUTES[u.path](q)
            else:
                code, text = 404, "no such path"
        except Exception as e:  # whatever it is, the test wants to see it
            code, text = 500, f"{type(e).__name__}: {e}"
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, fmt, *args):
        print(fmt % args, flush=True)


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    request_queue_size = 256

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


if __name__ == "__main__":
    port = int(os.environ["PORT"])
    if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
        Server.address_family = socket.AF_INET
    print(f"serving on {port}", flush=True)
    Server(("::" if Server.address_family == socket.AF_INET6 else "0.0.0.0", port), Handler).serve_forever()
    sys.exit(0)
