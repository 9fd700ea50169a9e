"""Writes the malformed units of cases.txt into a directory: make_broken.py DIRECTORY, or import cases() and write()."""
import os
import socket
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BASE = b"[App]\nExec=/bin/true\nWorkingDirectory=/srv/x\n"


class Case:
    def __init__(self, name, line, text):
        self.name, self.line, self.text = name, int(line), text
        self.content, self.kind = b"", ""

    @property
    def file(self):
        return self.name + ".app"

    def add(self, line):
        word, _, rest = line.partition(" ")
        if word == "!base":
            self.content += BASE
        elif word == "!bytes":
            self.content += bytes.fromhex(rest)
        elif word == "!repeat":
            char, count = rest.split()
            self.content += char.encode() * int(count)
        elif word == "!chop":
            self.content = self.content[:-1]
        elif word == "!kind":
            self.kind = rest
        else:
            self.content += line.encode() + b"\n"


def cases():
    """All cases in order. Blank lines and comments between cases are no content."""
    found = []
    with open(os.path.join(HERE, "cases.txt"), encoding="utf-8") as f:
        for line in f.read().split("\n"):
            if line.startswith("@ "):
                head = line[2:]
                # NAME may contain a space: the line number is the first all-digit word
                words = head.split(" ")
                at = next(i for i, w in enumerate(words) if w.isdigit())
                found.append(Case(" ".join(words[:at]), words[at], " ".join(words[at + 1:])))
            elif found and line:
                found[-1].add(line)
    return found


def write(directory):
    """Makes every case in directory; returns the cases."""
    made = cases()
    for c in made:
        path = os.path.join(directory, c.file)
        if c.kind == "dir":
            os.mkdir(path)
        elif c.kind == "fifo":
            os.mkfifo(path)
        elif c.kind == "socket":
            with socket.socket(socket.AF_UNIX) as s:
                s.bind(path)
        elif c.kind == "loop":
            os.symlink(c.file, path)
        elif c.kind == "dangling":
            os.symlink("nowhere.app", path)
        else:
            with open(path, "wb") as f:
                f.write(c.content)
            os.chmod(path, int(c.kind[5:], 8) if c.kind.startswith("mode=") else 0o644)
    return made


if __name__ == "__main__":
    write(sys.argv[1])
