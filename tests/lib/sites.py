"""Servers of the lab's internet: sites.py KIND ADDRESS PORT ... (see netlab.py). Prints "ready" when it listens."""
import http.server
import json
import os
import signal
import socket
import socketserver
import ssl
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
