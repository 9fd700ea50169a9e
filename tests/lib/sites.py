"""Servers of the lab's internet: sites.py KIND ADDRESS PORT ... (see netlab.py). Prints "ready" when it listens."""
import http.server
import json
import os
import signal
import socket
import socketserver
import ssl
import subprocess
import sys
import threading


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, address, handler):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, request, client_address):
        pass


class Tls(socketserver.BaseRequestHandler):
    """Keeps the SNI of each connection and answers one HTTP request."""

    def handle(self):
        self.request.settimeout(60)
        try:
            s = self.server.context.wrap_socket(self.request, server_side=True)
        except (OSError, ssl.SSLError):
            return
        data = b""
        while b"\r\n\r\n" not in data:
            more = s.recv(65536)
            if not more:
                return
            data += more
        path = data.split()[1].decode()
        body = f"{self.server.name} sni={getattr(s, 'sni', None)} path={path}\n".encode()
        s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))
        s.close()


def serve_tls(address, name, cert, key):
    server = Server(address, Tls)
    server.name = name
    server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.context.load_cert_chain(cert, key)
    server.context.sni_callback = lambda s, sni, ctx: setattr(s, "sni", sni)
    return server


class Http(http.server.BaseHTTPRequestHandler):
    """Answers with JSON of the request. /stream/N: N bytes; /ws: upgrades and echoes; /slow: head, then waits."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            data = b""
            while True:
                n = int(self.rfile.readline().split(b";")[0], 16)
                data += self.rfile.read(n)
                self.rfile.readline()
                if not n:
                    return data
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self):
        if self.path.startswith("/stream/"):
            n = int(self.path.rsplit("/", 1)[1])
            self.send_response(200)
            self.send_header("Content-Length", str(n))
            self.end_headers()
            block = bytes(range(256)) * 256
            for at in range(0, n, len(block)):
                self.wfile.write(block[:min(len(block), n - at)])
            return
        if self.path == "/ws" and self.headers.get("Upgrade", "").lower() == "websocket":
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.end_headers()
            self.close_connection = True
            while data := self.rfile.read1(65536):
                self.wfile.write(data)
            return
        text = json.dumps({"site": self.server.name, "method": self.command, "path": self.path,
                           "headers": [[k, v] for k, v in self.headers.items()],
                           "body": self.body().decode("latin-1")}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Connection", "keep-alive")
        self.send_header("X-Site", self.server.name)
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_DELETE = do_OPTIONS = answer


class Git(http.server.BaseHTTPRequestHandler):
    """git's smart protocol over https: git-http-backend(1) as a CGI program."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def body(self):
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while n := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(n)
                self.rfile.readline()
            self.rfile.readline()
        return data

    def answer(self):
        path, _, query = self.path.partition("?")
        env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": self.server.root, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
               "QUERY_STRING": query, "REQUEST_METHOD": self.command, "REMOTE_ADDR": self.client_address[0],
               "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        for name, header in (("CONTENT_TYPE", "Content-Type"), ("HTTP_CONTENT_ENCODING", "Content-Encoding"),
                             ("GIT_PROTOCOL", "Git-Protocol"), ("HTTP_GIT_PROTOCOL", "Git-Protocol")):
            if header in self.headers:
                env[name] = self.headers[header]
        body = self.body()
        env["CONTENT_LENGTH"] = str(len(body))
        r = subprocess.run(["git", "http-backend"], input=body, capture_output=True, env=env, timeout=60)
        head, _, data = r.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode("latin-1").split("\r\n") if ": " in line)
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for k, v in fields.items():
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = answer


def serve_git(address, cert, key, root):
    server = Server(address, Git)
    server.root = root
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server


class Echo(socketserver.BaseRequestHandler):
    greeting = b""

    def handle(self):
        self.request.sendall(self.greeting)
        while data := self.request.recv(1 << 16):
            self.request.sendall(data)
        self.request.shutdown(socket.SHUT_WR)


class Banner(Echo):
    greeting = b"hello\n"


def main():
    kind, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    where = (address, port)
    if kind == "tls":
        server = serve_tls(where, *sys.argv[4:7])
    elif kind == "git":
        server = serve_git(where, *sys.argv[4:7])
    elif kind == "http":
        server = Server(where, Http)
        server.name = sys.argv[4]
    else:
        server = Server(where, {"echo": Echo, "banner": Banner}[kind])
    signal.signal(signal.SIGTERM, lambda *a: os._exit(0))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)
    signal.pause()


main()
