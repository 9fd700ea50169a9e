"""An MCP server over HTTP in one file: the streamable HTTP transport of the Model Context Protocol, answers as JSON.

  POST /mcp   one JSON-RPC message: initialize, ping, tools/list, tools/call, notifications
  GET /       one line for people

Two tools: count_words, and add. No sessions, no event stream (GET /mcp is 405, as the specification allows).
"""
import http.server
import json
import os
import sys
import urllib.parse

VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")  # newest first
MAX_BODY = 1 << 20
LOCAL = ("localhost", "127.0.0.1", "::1")


class RpcError(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def count_words(text):
    return f"{len(text.split())} words, {len(text)} characters, {len(text.splitlines())} lines"


def add(a, b):
    return str(a + b)


def schema(**properties):
    return {"type": "object", "properties": {k: {"type": v} for k, v in properties.items()},
            "required": list(properties), "additionalProperties": False}


TOOLS = {
    "count_words": (count_words, "Counts words, characters and lines of a text.", schema(text="string")),
    "add": (add, "Adds two numbers.", schema(a="number", b="number")),
}
TYPES = {"string": str, "number": (int, float)}


def check(arguments, wanted):
    if not isinstance(arguments, dict) or set(arguments) != set(wanted["required"]):
        raise RpcError(-32602, "arguments must be exactly: " + ", ".join(wanted["required"]))
    for name, value in arguments.items():
        kind = wanted["properties"][name]["type"]
        if isinstance(value, bool) or not isinstance(value, TYPES[kind]):
            raise RpcError(-32602, f"{name} must be a {kind}")


def initialize(params):
    asked = params.get("protocolVersion")
    return {"protocolVersion": asked if asked in VERSIONS else VERSIONS[0], "capabilities": {"tools": {}},
            "serverInfo": {"name": "sbxsv-example", "version": "1"}}


def list_tools(params):
    return {"tools": [{"name": n, "description": d, "inputSchema": s} for n, (_, d, s) in TOOLS.items()]}


def call_tool(params):
    if params.get("name") not in TOOLS:
        raise RpcError(-32602, f"unknown tool: {params.get('name')}")
    fn, _, wanted = TOOLS[params["name"]]
    arguments = params.get("arguments", {})
    check(arguments, wanted)
    return {"content": [{"type": "text", "text": fn(**arguments)}], "isError": False}


METHODS = {"initialize": initialize, "ping": lambda params: {}, "tools/list": list_tools, "tools/call": call_tool}


def answer(message):
    """The reply to one message, or None for a notification or a response."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "not a JSON-RPC 2.0 message"}}
    if "method" not in message or "id" not in message:
        return None
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    params = message.get("params") or {}
    try:
        method = METHODS.get(message["method"]) if isinstance(message["method"], str) else None
        if not method:
            raise RpcError(-32601, f"unknown method: {message['method']}")
        if not isinstance(params, dict):
            raise RpcError(-32602, "params must be an object")
        reply["result"] = method(params)
    except RpcError as e:
        reply["error"] = {"code": e.code, "message": str(e)}
    return reply


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def send(self, status, value=None, kind="application/json", close=False):
        data = b"" if value is None else (value if isinstance(value, str) else json.dumps(value)).encode()
        self.send_response(status)
        if data:
            self.send_header("Content-Type", kind)
        if status == 405:
            self.send_header("Allow", "POST")
        if close:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def from_elsewhere(self):
        """A page of another site in the user's browser (DNS rebinding): the specification wants Origin checked."""
        origin = self.headers.get("Origin")
        try:
            return origin is not None and urllib.parse.urlsplit(origin).hostname not in LOCAL
        except ValueError:
            return True

    def do_GET(self):
        if self.path == "/":
            self.send(200, "An MCP server; POST JSON-RPC to /mcp\n", "text/plain; charset=utf-8")
        else:
            self.send(405 if self.path == "/mcp" else 404)

    def do_DELETE(self):
        self.send(405)

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or int(length) > MAX_BODY:
            self.send(411 if not length else 413, close=True)
            return
        body = self.rfile.read(int(length))
        if self.path != "/mcp":
            self.send(404)
        elif self.from_elsewhere():
            self.send(403)
        else:
            try:
                reply = answer(json.loads(body))
            except (ValueError, RecursionError):
                reply = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "not JSON"}}
            self.send(202 if reply is None else 200, reply)

    def log_message(self, fmt, *args):
        print(fmt % args, flush=True)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


if __name__ == "__main__":
    Server(("0.0.0.0", int(os.environ["PORT"])), Handler).serve_forever()
    sys.exit(0)
