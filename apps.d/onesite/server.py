"""Fetches a page through the proxy of the proxy variables and shows what came of it.

  GET /               https://example.com/, the one site the unit allows
  GET /?url=URL       any other http or https address: shows the refusal

The answer is text: first "allowed STATUS", "refused STATUS" or "failed", then what the site or the proxy said.
"""
import http.client
import http.server
import os
import ssl
import urllib.parse

DEFAULT = "https://example.com/"
TIMEOUT = 20
SHOWN = 4096


def proxy_for(scheme):
    name = scheme + "_proxy"
    text = os.environ.get(name) or os.environ.get(name.upper())
    if not text:
        return None
    u = urllib.parse.urlsplit(text)
    return u.hostname, u.port or 80


def connect(scheme, host, port):
    """(connection, None), or (None, the proxy's refusal). http.client's own tunnel throws the refusal's text away."""
    proxy = proxy_for(scheme)
    if scheme == "http" or not proxy:
        kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
        return kind(*(proxy or (host, port)), timeout=TIMEOUT), None
    c = http.client.HTTPConnection(*proxy, timeout=TIMEOUT)
    c.connect()
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    c.sock.sendall(f"CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
    reply = http.client.HTTPResponse(c.sock, method="CONNECT")
    reply.begin()
    if reply.status != 200:
        return None, reply
    c.sock = ssl.create_default_context().wrap_socket(c.sock, server_hostname=host)
    return c, None


def fetch(url):
    u = urllib.parse.urlsplit(url)
    if u.scheme not in ("http", "https") or not u.hostname:
        return "failed\nan address begins with http:// or https://\n"
    port = u.port or {"http": 80, "https": 443}[u.scheme]
    path = (u.path or "/") + ("?" + u.query if u.query else "")
    c, reply = connect(u.scheme, u.hostname, port)
    if c:
        target = url if u.scheme == "http" and proxy_for("http") else path
        c.request("GET", target, headers={"Host": u.netloc.rpartition("@")[2], "User-Agent": "sbxsv-onesite"})
        reply = c.getresponse()
    text = reply.read(SHOWN).decode(errors="replace")
    refused = reply.headers.get("X-Sbxsv-Denied") is not None
    return f"{'refused' if refused else 'allowed'} {reply.status}\n{text}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        u = urllib.parse.urlsplit(self.path)
        if u.path != "/":
            self.send_error(404)
            return
        url = urllib.parse.parse_qs(u.query).get("url", [DEFAULT])[0]
        try:
            text = fetch(url)
        except (OSError, ValueError, http.client.HTTPException) as e:
            text = f"failed\n{type(e).__name__}: {e}\n"
        data = f"{url}\n{text}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, fmt, *args):
        print(fmt % args, flush=True)


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("0.0.0.0", int(os.environ["PORT"])), Handler).serve_forever()
