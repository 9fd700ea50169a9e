"""An app for tests: it runs the Python it is sent, in its jail, and says what came of it.

POST / with source: the source runs (in a thread of its own) with everything below at hand and leaves its answer in `result`,
which comes back as JSON: {"result": ...}, or {"error": traceback}. GET / is for readiness: "ok PID". BIND says where to
listen (default ::, both families).
"""
import http.client
import http.server
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import traceback
import urllib.error
import urllib.request
from errno import errorcode
from urllib.parse import urlsplit

TIMEOUT = 30


def errname(e):
    return errorcode.get(e.errno, str(e)) if e.errno else type(e).__name__


def family(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def dial(host, port):
    """"connected", or the name of the error, for a connect() past the proxy."""
    try:
        socket.create_connection((host, port), TIMEOUT).close()
        return "connected"
    except OSError as e:
        return errname(e)


def read_from(host, port, data=b""):
    """What a server says, past the proxy; or the name of the error."""
    try:
        with socket.create_connection((host, port), TIMEOUT) as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: s.recv(65536), b"")).decode("latin-1")
    except OSError as e:
        return errname(e)


def udp(host, port, data=b"x"):
    """What came back for one datagram, or the name of the error."""
    with socket.socket(family(host), socket.SOCK_DGRAM) as s:
        s.settimeout(3)
        try:
            s.connect((host, port))
            s.send(data)
            return s.recv(65536).decode("latin-1")
        except OSError as e:
            return errname(e)


def proxy_address():
    u = urlsplit(os.environ["HTTPS_PROXY"])
    return u.hostname, u.port


def through(raw):
    """Sends raw bytes to the proxy: (socket, status, headers, body); body is None while a tunnel is open."""
    s = socket.create_connection(proxy_address(), TIMEOUT)
    s.sendall(raw.encode() if isinstance(raw, str) else raw)
    method = (raw if isinstance(raw, str) else raw.decode("latin-1")).split(" ")[0]
    if method != "CONNECT":
        r = http.client.HTTPResponse(s, method=method)
        r.begin()
        return s, r.status, dict(r.headers), r.read().decode("latin-1")
    head = b""
    while b"\r\n\r\n" not in head:
        more = s.recv(1)
        if not more:
            raise ConnectionError(f"closed without an answer: {head!r}")
        head += more
    first, *fields = head.decode("latin-1").split("\r\n")
    headers = dict(f.split(": ", 1) for f in fields if f)
    status = int(first.split()[1])
    body = None if status == 200 else b"".join(iter(lambda: s.recv(65536), b"")).decode("latin-1")
    return s, status, headers, body


def connect(target):
    """CONNECT, and the tunnel closed again: [status, headers, body]."""
    s, *answer = through(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
    s.close()
    return answer


def get(url, host=None):
    """An absolute-form GET: [status, headers, body]."""
    s, *answer = through(f"GET {url} HTTP/1.1\r\nHost: {host or urlsplit(url).netloc}\r\n\r\n")
    s.close()
    return answer


def tls(target, sni, verify=True):
    """TLS through the proxy with this SNI: what the site answers, or "cut: ..."."""
    s, status, headers, body = through(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
    if status != 200:
        return f"{status}: {body}"
    ctx = ssl.create_default_context()
    if not verify:
        ctx.check_hostname = False
        ctx.verify_mode = ssl.CERT_NONE
    try:
        t = ctx.wrap_socket(s, server_hostname=sni)
        t.sendall(b"GET /p HTTP/1.1\r\nHost: x\r\n\r\n")
        return b"".join(iter(lambda: t.recv(65536), b"")).decode().partition("\r\n\r\n")[2]
    except ssl.SSLCertVerificationError as e:
        return f"unverified: {e}"
    except OSError as e:
        return f"cut: {errname(e)}"
    finally:
        s.close()


def fetch(url):
    """As a Python program would, through the variables: [status, headers, body], or ["error", text]."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as r:
            return [r.status, dict(r.headers), r.read().decode("latin-1")]
    except urllib.error.HTTPError as e:
        return [e.code, dict(e.headers), e.read().decode("latin-1")]
    except OSError as e:
        return ["error", str(e)]


def sh(*argv):
    r = subprocess.run(argv, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    return [r.returncode, r.stdout, r.stderr]


def no_proxy_env():
    """The environment of a program that was told nothing of a proxy."""
    return {k: v for k, v in os.environ.items() if not k.upper().endswith("_PROXY")}


def bare(*argv, timeout=90, **env):
    """A program that knows of no proxy: [exit status, stdout, stderr]."""
    r = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
                       env={**no_proxy_env(), **env})
    return [r.returncode, r.stdout, r.stderr]


def socks(host, port, data=b""):
    """SOCKS5 with the name left to the proxy (or an address as such): [reply, what the site said]."""
    with socket.create_connection(proxy_address(), TIMEOUT) as s:
        s.sendall(b"\5\1\0")
        if s.recv(2) != b"\5\0":
            return [-1, ""]
        try:
            kind = b"\1" + socket.inet_pton(socket.AF_INET, host)
        except OSError:
            try:
                kind = b"\4" + socket.inet_pton(socket.AF_INET6, host)
            except OSError:
                kind = b"\3" + bytes([len(host)]) + host.encode()
        s.sendall(b"\5\1\0" + kind + port.to_bytes(2, "big"))
        reply = b""
        while len(reply) < 10:
            more = s.recv(10 - len(reply))
            if not more:
                break
            reply += more
        if len(reply) < 2 or reply[1]:
            return [reply[1] if len(reply) > 1 else -2, ""]
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        return [0, b"".join(iter(lambda: s.recv(65536), b"")).decode("latin-1")]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, text):
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply(f"ok {os.getpid()}\n")

    def do_POST(self):
        source = self.rfile.read(int(self.headers["Content-Length"])).decode()
        scope = dict(globals(), peer=self.client_address[0])
        try:
            exec(compile(source, "<test>", "exec"), scope)
            answer = {"result": scope.get("result")}
        except BaseException:  # the test wants to see it, whatever it is
            answer = {"error": traceback.format_exc()}
        self.reply(json.dumps(answer))

    def log_message(self, fmt, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 512

    def __init__(self, bind):
        self.address_family = family(bind)
        super().__init__((bind, int(os.environ["PORT"])), Handler)

    def handle_error(self, request, client_address):
        pass

    def server_bind(self):
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(os.environ.get("BIND") is not None))
        self.socket.bind(self.server_address)


if __name__ == "__main__":
    threading.stack_size(256 << 10)
    print("serving", flush=True)
    Server(os.environ.get("BIND", "::")).serve_forever()
    sys.exit(0)
