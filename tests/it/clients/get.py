"""One GET with urllib or with a raw socket and ssl: get.py urllib|socket URL. Prints the body, or "error: ..." and exits 1."""
import socket
import ssl
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit


def by_urllib(url):
    with urllib.request.urlopen(url, timeout=30) as r:
        return f"{r.status}\n{r.read().decode()}"


def by_socket(url):
    u = urlsplit(url)
    port = u.port or {"http": 80, "https": 443}[u.scheme]
    s = socket.create_connection((u.hostname, port), 30)
    if u.scheme == "https":
        s = ssl.create_default_context().wrap_socket(s, server_hostname=u.hostname)
    s.sendall(f"GET {u.path or '/'} HTTP/1.1\r\nHost: {u.hostname}\r\nConnection: close\r\n\r\n".encode())
    data = b"".join(iter(lambda: s.recv(65536), b"")).decode()
    head, _, body = data.partition("\r\n\r\n")
    if not head:
        raise ConnectionError("closed without an answer")
    return f"{head.split()[1]}\n{body}"


try:
    print({"urllib": by_urllib, "socket": by_socket}[sys.argv[1]](sys.argv[2]), end="")
except urllib.error.HTTPError as e:
    print(f"error: {e.code} {e.read().decode()}")
    sys.exit(1)
except OSError as e:
    print(f"error: {type(e).__name__} {e}")
    sys.exit(1)
