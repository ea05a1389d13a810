#!/usr/bin/env python3
"""outcomes.py THERMOCLINE [FILE…]: PostgreSQL's regression statements have PostgreSQL's outcome here, or are refused by name.

    sql/tests/with_postgres.sh sql/tests/outcomes.py target/debug/thermocline [int4.sql …]

The files are those of Debian's source package of PostgreSQL 15 (`regress.py` fetches them). Each begins with a database in which
`test_setup.sql` has run. A statement is asked here first; one that is refused by name (0A000, or a limit, 54000 and its like) is not
asked of PostgreSQL, so that both go on from the same state. Names and types of columns, rows, and SQLSTATEs are compared, messages are
not. Rows may come in any order where the statement itself has no ORDER BY.

`outcomes.txt` beside this file has the statements that are known to differ, under the reason; it may only shrink. A difference that
is not in it fails, and so does a statement in it that does not differ: take it out. OUTCOMES_SHOW=FILE writes all differences to a
file, one JSON object a line.
"""

import collections
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import psycopg

import regress

pq = psycopg.pq
FIELD = pq.DiagnosticField
KNOWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "outcomes.txt")
SETUP = "test_setup.sql"
# What says how a statement is run, or waits, or is about the server that runs it.
PASSED_OVER = re.compile(r"\s*(?:--[^\n]*\n\s*)*(explain|vacuum|analyze|listen|checkpoint|load|show all|select pg_sleep)\b", re.I)
# Types of numbers that are each server's own: oid, regproc, regclass, regprocedure, regtype, regrole, regnamespace.
OWN_NUMBERS = {26, 24, 2205, 2202, 2206, 4096, 4089}
# Both servers are asked with these; pg_regress has its own style of dates, which is refused here.
SETTINGS = {"datestyle": "'ISO, MDY'", "timezone": "'PST8PDT'", "statement_timeout": "'30s'"}


class Server:
    """A connection, and what is asked through it."""

    def __init__(self, options):
        self.options = options
        self.connect()

    def connect(self):
        self.pgconn = psycopg.connect(self.options, autocommit=True).pgconn
        for name, value in SETTINGS.items():
            self.ask(f"set {name} = {value}")

    def close(self):
        self.pgconn.finish()

    def ask(self, text, rows=None):
        """The SQLSTATE, message, columns and rows of a statement."""
        try:
            result = self.pgconn.exec_(text.encode())
            if result.status == pq.ExecStatus.COPY_IN:
                if rows:
                    self.pgconn.put_copy_data(rows.encode())
                self.pgconn.put_copy_end()
                result = self.pgconn.get_result()
                self.rest()
            elif result.status == pq.ExecStatus.COPY_OUT:
                return self.copied()
        except (MemoryError, psycopg.Error):
            result = None
        if result is None or self.pgconn.status != pq.ConnStatus.OK:
            self.connect()
            return "gone", "", None, None
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY):
            code, message = ((result.error_field(field) or b"?").decode() for field in (FIELD.SQLSTATE, FIELD.MESSAGE_PRIMARY))
            return code, message, None, None
        columns = [((result.fname(place) or b"").decode(), result.ftype(place)) for place in range(result.nfields)]
        places = [place for place, (_, ty) in enumerate(columns) if ty not in OWN_NUMBERS]
        value = lambda row, place: None if (it := result.get_value(row, place)) is None else it.decode(errors="replace")
        found = [[value(row, place) for place in places] for row in range(result.ntuples)]
        if not is_ordered(text):
            found.sort(key=lambda row: [(it is None, it or "") for it in row])
        return "", "", columns, found

    def copied(self):
        """The lines of COPY TO STDOUT."""
        lines = []
        while (got := self.pgconn.get_copy_data(0))[0] > 0:
            lines.append([bytes(got[1]).decode(errors="replace")])
        result = self.pgconn.get_result()
        self.rest()
        code = (result.error_field(FIELD.SQLSTATE) or b"").decode() if result else ""
        return code, "", [], sorted(lines)

    def rest(self):
        while self.pgconn.get_result() is not None:
            pass

    @property
    def transaction(self):
        return self.pgconn.transaction_status


@contextlib.contextmanager
def serving(program, data):
    """The options with which a server over this directory is reached."""
    with tempfile.TemporaryDirectory(prefix="thermocline-outcomes.") as sockets:
        command = [program, "serve", "--data-dir", data, "--listen", "127.0.0.1:0", "--socket-dir", sockets]
        with open(os.path.join(sockets, "log"), "wb") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield f"host={sockets} port={port_in(sockets, server)} user=postgres dbname=postgres"
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


def port_in(sockets, server):
    for _ in range(300):
        for name in os.listdir(sockets):
            if re.fullmatch(r"\.s\.PGSQL\.\d+", name):
                return name.rpartition(".")[2]
        if server.poll() is not None:
            break
        time.sleep(0.1)
    with open(os.path.join(sockets, "log")) as log:
        raise SystemExit(f"outcomes.py: no server: {log.read()}")


def is_ordered(text):
    """Does the statement itself say an order, and not only something within parentheses?"""
    while True:
        outside = re.sub(r"\([^()]*\)", " ", text)
        if outside == text:
            return bool(re.search(r"\border\s+by\b|^\s*fetch\b", text, re.I))
        text = outside


def is_refusal(code):
    return code == "0A000" or code.startswith("54")


def asked(theirs, ours, file):
    """Each statement of a file with its name in the list and both answers; None in place of PostgreSQL's, which was not asked."""
    seen = collections.Counter()
    for statement, rows in regress.loaded(file):
        if "\0" in statement or PASSED_OVER.match(statement):
            continue
        name = hashlib.md5(" ".join(statement.split()).encode()).hexdigest()[:7]
        seen[name] += 1
        if seen[name] > 1:
            name = f"{name}.{seen[name]}"
        found = ours.ask(statement, rows)
        if is_refusal(found[0]):
            # Its transaction has failed here, so it does there.
            if ours.transaction == pq.TransactionStatus.INERROR and theirs.transaction == pq.TransactionStatus.INTRANS:
                theirs.ask("select 1/0")
            yield name, statement, None, found
        else:
            yield name, statement, theirs.ask(statement, rows), found


def is_same(expected, found):
    """Errors have the same code, answers the same columns and rows."""
    return expected[0] == found[0] and (expected[0] != "" or expected[2:] == found[2:])


def known_differences():
    """The reason of each file and statement that is known to differ; one whose reason begins with `~` may be alike, too."""
    known, reason = {}, None
    with open(KNOWN, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("#"):
                reason = line[1:].strip()
            elif line.strip():
                file, *names = line.split()
                known.update(((file, name), reason) for name in names)
    return known


def make_template(theirs):
    theirs.ask("drop database if exists outcomes_template")
    theirs.ask("create database outcomes_template")


def main(program, only):
    known, counts, wrong = known_differences(), collections.Counter(), []
    show = open(os.environ["OUTCOMES_SHOW"], "w", encoding="utf-8") if os.environ.get("OUTCOMES_SHOW") else None
    control = Server("")
    make_template(control)
    with tempfile.TemporaryDirectory(prefix="thermocline-outcomes.") as top:
        prepared = os.path.join(top, "prepared")
        with serving(program, prepared) as options:
            theirs, ours = Server("dbname=outcomes_template"), Server(options)
            for _ in asked(theirs, ours, SETUP):
                pass
            theirs.close(), ours.close()
        for path in regress.files():
            file = os.path.basename(path)
            if only and file not in only:
                continue
            data = os.path.join(top, "data")
            shutil.copytree(prepared, data)
            control.ask("create database outcomes template outcomes_template")
            begun, before = time.monotonic(), counts.copy()
            with serving(program, data) as options:
                theirs, ours = Server("dbname=outcomes"), Server(options)
                for name, statement, expected, found in asked(theirs, ours, file):
                    if expected is None:
                        counts["refused"] += 1
                    elif is_same(expected, found):
                        counts["alike"] += 1
                    else:
                        counts["different"] += 1
                        if show:
                            shown = {"file": file, "name": name, "statement": statement, "postgres": expected, "here": found}
                            print(json.dumps(shown), file=show, flush=True)
                        if (file, name) not in known:
                            tell = lambda answer: " ".join(answer[:2]) if answer[0] else f"{answer[2]} {answer[3]}"
                            told = f"  PostgreSQL: {tell(expected)[:400]}\n  here:       {tell(found)[:400]}"
                            wrong.append(f"{file} {name} differs, and is not in the list: {statement};\n{told}")
                        continue
                    if not known.get((file, name), "~").startswith("~"):
                        wrong.append(f"{file} {name} does not differ, take it out of the list: {statement};")
                theirs.close(), ours.close()
            control.ask("drop database outcomes with (force)")
            shutil.rmtree(data)
            print(f"{file}: {dict(counts - before)}, {time.monotonic() - begun:.1f} s", flush=True)
    total = sum(counts.values())
    print(f"{total} statements: {dict(counts)}; {len(known)} in the list")
    if wrong:
        print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
