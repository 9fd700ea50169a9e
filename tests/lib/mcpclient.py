"""An MCP client over stdin and stdout, as desktop programs have one: reads a configuration of the form

    {"mcpServers": {"name": {"command": "...", "args": [...], "env": {...}}}}

starts exactly the command that stands there, and speaks JSON-RPC 2.0 with it, a message a line."""
import json
import os
import subprocess
import threading


class RpcError(Exception):
    pass


class Client:
    """One server of the configuration. `env`: what the client itself has; the server's entry comes on top, as the clients do it."""

    def __init__(self, config, name, env, **kw):
        with open(config) as f:
            entry = json.load(f)["mcpServers"][name]
        self.p = subprocess.Popen([entry["command"], *entry.get("args", [])], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env=dict(env, **entry.get("env", {})), **kw)
        self.errors = []
        self.reader = threading.Thread(target=lambda: self.errors.extend(iter(self.p.stderr.readline, b"")), daemon=True)
        self.reader.start()
        self.last = 0

    def send(self, message):
        self.p.stdin.write(json.dumps(dict(message, jsonrpc="2.0")).encode() + b"\n")
        self.p.stdin.flush()

    def call(self, method, **params):
        self.last += 1
        # a client writes while it reads: a large request may meet a large answer
        writer = threading.Thread(target=self.send, args=({"id": self.last, "method": method, "params": params},))
        writer.start()
        line = self.p.stdout.readline()
        writer.join()
        if not line:
            raise EOFError(f"the server ended: {self.err()}")
        reply = json.loads(line)
        assert reply["jsonrpc"] == "2.0" and reply["id"] == self.last, reply
        if "error" in reply:
            raise RpcError(reply["error"]["message"])
        return reply["result"]

    def start(self):
        r = self.call("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test", "version": "1"})
        self.send({"method": "notifications/initialized"})
        return r

    def tool(self, tool, **arguments):
        r = self.call("tools/call", name=tool, arguments=arguments)
        return r["content"][0]["text"]

    def err(self):
        self.reader.join(5)
        return b"".join(self.errors).decode(errors="replace")

    def close(self, timeout=30):
        """The end of a session as the protocol has it: standard input is closed. The exit status."""
        self.p.stdin.close()
        return self.p.wait(timeout)


PYTHON_SERVER = r'''
import http.client, json, os, socket, sys, urllib.parse

def connect(target):
    """Through the proxy that the environment names; the status of its answer."""
    proxy = urllib.parse.urlsplit(os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or "http://127.0.0.1:1")
    s = socket.create_connection((proxy.hostname, proxy.port), timeout=20)
    s.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    return s.makefile("rb").readline().decode().strip()

TOOLS = {
    "echo": lambda text: text,
    "read": lambda path: open(path).read(),
    "connect": connect,
    "env": lambda name: os.environ.get(name, "(not set)"),
    "args": lambda: " ".join(sys.argv[1:]),
    "complain": lambda text: print(text, file=sys.stderr, flush=True) or "ok",
    "crash": lambda: os._exit(7),
    "pid": lambda: str(os.getpid()),
}

def answer(m):
    p = m.get("params", {})
    if m["method"] == "initialize":
        return {"protocolVersion": p["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "py", "version": "1"}}
    if m["method"] == "tools/list":
        return {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in TOOLS]}
    return {"content": [{"type": "text", "text": TOOLS[p["name"]](**p["arguments"])}]}

for line in sys.stdin.buffer:
    m = json.loads(line)
    if "id" not in m:
        continue
    r = {"jsonrpc": "2.0", "id": m["id"]}
    try:
        r["result"] = answer(m)
    except Exception as e:
        r["error"] = {"code": -32000, "message": f"{type(e).__name__}: {e}"}
    sys.stdout.buffer.write(json.dumps(r).encode() + b"\n")
    sys.stdout.buffer.flush()
'''

NODE_SERVER = r'''
const fs = require("fs");
const tools = {
  echo: a => a.text,
  read: a => fs.readFileSync(a.path, "utf8"),
  pid: () => String(process.pid),
};
function answer(m) {
  const p = m.params || {};
  if (m.method === "initialize")
    return {protocolVersion: p.protocolVersion, capabilities: {tools: {}}, serverInfo: {name: "node", version: "1"}};
  if (m.method === "tools/list")
    return {tools: Object.keys(tools).map(name => ({name, inputSchema: {type: "object"}}))};
  return {content: [{type: "text", text: tools[p.name](p.arguments)}]};
}
require("readline").createInterface({input: process.stdin}).on("line", line => {
  const m = JSON.parse(line);
  if (m.id === undefined) return;
  const r = {jsonrpc: "2.0", id: m.id};
  try { r.result = answer(m); } catch (e) { r.error = {code: -32000, message: String(e)}; }
  process.stdout.write(JSON.stringify(r) + "\n");
});
'''
