"""Statements of PostgreSQL's regression files: fetched, and split as psql splits them.

Lines that are psql's own commands are left out. The rows of COPY FROM STDIN, and of COPY from a file of PostgreSQL's, stand beside it.
"""

import glob
import os
import re
import subprocess
import tempfile


def folder():
    """The files: where THERMOCLINE_REGRESS says, or Debian's source package of PostgreSQL 15, in the temporary directory."""
    known = os.environ.get("THERMOCLINE_REGRESS")
    if known:
        return known
    top = os.path.join(tempfile.gettempdir(), "thermocline-regress")
    found = os.path.join(top, "sql")
    if not (os.path.isdir(found) and os.path.isdir(os.path.join(top, "data"))):
        fetch(top)
    return found


def sources(package):
    """The versions that this machine's lists have of a package, the newest first, each with the line that names its source."""
    found = subprocess.run(["apt-cache", "madison", package], check=True, capture_output=True, text=True).stdout
    for line in found.splitlines():
        _, version, place = (part.strip() for part in line.split("|"))
        address, suite, kind = place.split()[:3]
        if kind != "Sources":
            release, component = suite.split("/")
            yield version, f"deb-src {address} {release} {component}\n"


def fetch(top):
    package = "postgresql-15"
    lists = os.path.join(top, "lists")
    os.makedirs(os.path.join(lists, "partial"), exist_ok=True)
    apt = ["apt-get", "-q", "-o", "Dir::Etc::SourceList=/dev/null", "-o", f"Dir::Etc::SourceParts={top}"]
    apt += ["-o", f"Dir::State::Lists={lists}", "-o", "APT::Sandbox::User="]
    # A host may have the packages of an archive without its sources.
    for version, line in sources(package):
        with open(os.path.join(top, "source.list"), "w") as file:
            file.write(line)
        download = [*apt, "source", "--download-only", f"{package}={version}"]
        if all(subprocess.run(step, cwd=top, stdout=subprocess.DEVNULL).returncode == 0 for step in ([*apt, "update"], download)):
            break
    archives = glob.glob(os.path.join(top, "*.orig.tar.*"))
    if not archives:
        raise SystemExit(f"regress.py: this machine's lists have no source of {package} (apt-get update; THERMOCLINE_REGRESS names a folder)")
    wanted = ["--strip-components=4", "--wildcards", "*/src/test/regress/sql", "*/src/test/regress/data"]
    subprocess.run(["tar", "-xf", archives[0], "-C", top, *wanted], check=True)


TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*)
      | (?P<escape>[eE]'(?:[^'\\]|\\.|'')*')
      | (?P<string>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")*")
      | (?P<dollar>\$(?:[A-Za-z_\x80-\uffff][A-Za-z_0-9\x80-\uffff]*)?\$)
      | (?P<word>[A-Za-z_\x80-\uffff][A-Za-z_0-9$\x80-\uffff]*)
      | (?P<command>\\[^\n]*)
      | (?P<other>.|\n)""",
    re.X | re.S,
)


def split(text):
    """The statements of a file, without their semicolons."""
    return (statement for statement, _ in parts(text))


def parts(text):
    """The same, each with the rows that stand behind it, if it is COPY FROM STDIN."""
    # What of the statement lies before the last line of psql's own within it, and where the rest begins.
    before, begin = "", 0
    at, depth, body, words = 0, 0, 0, []
    while at < len(text):
        token = TOKEN.match(text, at)
        kind, found, end = token.lastgroup, token.group(), token.end()
        if found == "/*":
            end = comment_end(text, at)
        elif kind == "dollar":
            close = text.find(found, end)
            end = len(text) if close < 0 else close + len(found)
        elif kind == "word":
            words.append(found.lower())
            # The body of a function that is written in SQL has statements of its own.
            if words[0] == "create" and body == 0 and words[-2:] == ["begin", "atomic"]:
                body = 1
            elif body and found.lower() == "case":
                body += 1
            elif body and found.lower() == "end":
                body -= 1
        elif found in ("(", ")"):
            depth += 1 if found == "(" else -1
        # `\\g` and its like send what is there, `\\;` parts statements that are sent together; other commands are psql's alone.
        sends = kind == "command" and re.match(r"\\(g|;|crosstab)", found)
        if found.startswith("\\;"):
            end = at + 2
        if kind == "command" and not sends:
            before, begin = before + text[begin:at], end
        elif sends or found == ";" and depth <= 0 and body == 0:
            statement, rows = (before + text[begin:at]).strip(), None
            if words[:1] == ["copy"] and "stdin" in words:
                close = re.compile(r"^\\\.\s*$", re.M).search(text, end)
                if close:
                    rows, end = text[end : close.start()].partition("\n")[2], close.end()
            if words:
                yield statement, rows
            before, begin, depth, words = "", end, 0, []
        at = end
    if words:
        yield (before + text[begin:]).strip(), None


def comment_end(text, at):
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


def files():
    return sorted(glob.glob(os.path.join(folder(), "*.sql")))


def statements():
    """All statements, each with the name of its file."""
    for path in files():
        with open(path, encoding="utf-8", errors="replace") as file:
            for statement in split(file.read()):
                yield os.path.basename(path), statement


def loaded(name):
    """The statements of one file, each with the rows that it copies; a file of PostgreSQL's that it copies from is read."""
    with open(os.path.join(folder(), name), encoding="utf-8", errors="replace") as file:
        text = file.read()
    files = iter(re.findall(r"^\\set filename :abs_srcdir '/data/(\S+)'", text, re.M))
    for statement, rows in parts(text):
        if re.match(r"copy\b.* from :'filename'", statement, re.I | re.S):
            path = os.path.join(folder(), os.pardir, "data", next(files, ""))
            if os.path.isfile(path):
                with open(path, encoding="utf-8") as file:
                    statement, rows = statement.replace(":'filename'", "stdin"), file.read()
        yield statement, rows
