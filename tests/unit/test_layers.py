#!/usr/bin/python3
"""The include table of doc/design.md section 3: which directory may include which, and which file may use which library.

Reads the #include lines of src/ and proxy/. A new edge is a decision: it is made in the design and here, not by accident.
"""
import glob
import os
import re
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOW = {"unit", "policy", "base"}
MIDDLE = {"sandbox", "net", "ports", "logs", "monitor", "trace"}
MAY = {
    "base": set(),
    "policy": {"base"},
    "unit": {"base"},
    **{m: LOW for m in MIDDLE},
    "sup": MIDDLE | LOW,
    "ctl": {"sup", "logs", "trace"} | LOW,
    "cli": {"ctl", "sandbox", "net", "trace"} | LOW,
    "init": set(),
    "main": {"ctl", "sup"} | MIDDLE | LOW,
    "proxy": {"policy", "base"},
}
ONLY = {  # the headers of a directory that are all another may have of it
    ("cli", "ctl"): {"ctl/client.h", "ctl/protocol.h", "ctl/route.h"},  # route.h: the API as data, and its limits
    ("cli", "trace"): {"trace/observer.h"},  # exec sees what its command is refused
    ("ctl", "sup"): {"sup/sup.h"},
    ("ctl", "logs"): {"logs/logs.h"},
    ("ctl", "trace"): {"trace/events.h"},
}
CLIENT = re.compile(r"src/ctl/client[^/]*\.[ch]$")  # runs in the command, where there is no supervisor
LIBRARIES = {
    "ev.h": ["src/base/loop.c"],
    "cjson/cJSON.h": ["src/base/json.c"],
    "ini.h": ["src/unit/"],
    "curl/curl.h": ["src/ctl/client", "src/ctl/curl_lazy.c", "src/monitor/"],
    "microhttpd.h": ["src/ctl/"],
    "ares.h": ["proxy/"],
    "seccomp.h": ["src/sandbox/", "proxy/harden"],
    "libmnl/libmnl.h": ["src/net/", "src/ports/", "src/policy/local.c"],
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)


def owner(path):
    """src/sup/app.c -> sup, proxy/x.c -> proxy, src/main.c -> main"""
    parts = path.split("/")
    if parts[0] == "proxy":
        return "proxy"
    return parts[1] if len(parts) > 2 else "main"


def problems_of(path, text):
    me, out = owner(path), []
    if me not in MAY:
        return [f"{path}: the directory {me} is not in the table of tests/unit/test_layers.py"]
    for kind, name in INCLUDE.findall(text):
        if kind == "<":
            places = LIBRARIES.get(name)
            if places and not any(path == p or (p != path and not p.endswith(".c") and path.startswith(p)) for p in places):
                out.append(f"{path}: <{name}> belongs to {' '.join(places)} alone")
            continue
        if name.startswith("../") or "/../" in name:
            out.append(f'{path}: "{name}": no way up')
            continue
        if "/" not in name:
            if name != "config.h" and not os.path.exists(os.path.join(SOURCE, os.path.dirname(path), name)):
                out.append(f'{path}: "{name}" is not beside it; write it as directory/name')
            continue
        them = name.split("/")[0]
        if them == me:
            continue
        if them not in MAY[me] or (CLIENT.search(path) and them not in LOW):
            out.append(f'{path}: "{name}": {me} may not include {them}')
        elif (me, them) in ONLY and name not in ONLY[me, them]:
            out.append(f'{path}: "{name}": of {them}, {me} may include only {" ".join(sorted(ONLY[me, them]))}')
    return out


def self_test():
    """The test must be able to fail."""
    bad = {
        "src/base/x.c": '#include "unit/unit.h"', "src/logs/x.c": '#include "trace/events.h"',
        "src/policy/x.c": '#include "unit/unit.h"', "proxy/x.c": '#include "sup/sup.h"',
        "src/cli/x.c": '#include "ctl/ctl.h"', "src/ctl/client.c": '#include "sup/sup.h"',
        "src/init/x.c": '#include "base/fd.h"', "src/sup/x.c": "#include <ev.h>", "src/unit/x.c": '# include "../base/fd.h"',
        "src/new/x.c": "", "src/base/y.c": "#include <ini.h>",
    }
    for path, text in bad.items():
        if not problems_of(path, text):
            return [f"self test: {path} with {text} passed"]
    good = {"src/sup/x.c": '#include "logs/logs.h"\n#include "sup/app.h"', "src/base/loop.c": "#include <ev.h>",
            "src/cli/x.c": '#include "ctl/client.h"', "src/unit/x.c": "#include <ini.h>"}
    return [p for path, text in good.items() for p in problems_of(path, text)]


def main():
    out, files = self_test(), 0
    for top in ("src", "proxy"):
        for full in sorted(glob.glob(os.path.join(SOURCE, top, "**", "*.[ch]"), recursive=True)):
            with open(full, encoding="utf-8") as f:
                out += problems_of(os.path.relpath(full, SOURCE), f.read())
            files += 1
    if files < 20:
        out.append(f"only {files} files found below {SOURCE}")
    for line in out:
        print(line)
    print(f"{files} files, {len(out)} problems")
    return 1 if out else 0


if __name__ == "__main__":
    sys.exit(main())
