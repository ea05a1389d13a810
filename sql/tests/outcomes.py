#!/usr/bin/env python3
"""outcomes.py [FILE…] PORT: PostgreSQL's regression statements have PostgreSQL's outcome here, or are refused by name (0A000).

    sql/tests/with_postgres.sh sql/tests/with_server.sh THERMOCLINE sql/tests/outcomes.py

Each file begins with an empty database in which `test_setup.sql` has run. A statement is asked here first; one that is refused is not
asked of PostgreSQL, so that both go on from the same state. Columns, their types, rows (in any order where the statement has none)
and SQLSTATEs are compared. `outcomes.txt` beside this file says of each regression file how many statements are known to differ: more
fail, and fewer fail, too, until the number is made smaller, so that it only shrinks. OUTCOMES_SHOW=1 shows them all.
"""

import collections
import os
import re
import sys

import psycopg

import regress

pq = psycopg.pq
KNOWN = os.path.join(os.path.dirname(__file__), "outcomes.txt")
# What says how a statement is run, or waits, or is about the server that runs it.
PASSED_OVER = re.compile(r"\s*(?:--[^\n]*\n\s*)*(explain|vacuum|analyze|listen|checkpoint|load|show all|select pg_sleep)\b", re.I)
# Messages of the protocol that are not rows; types whose numbers are each server's own.
OIDS = {26, 2205, 2206, 24, 2202}


class Server:
    def __init__(self, options):
        self.options = options
        self.connect()

    def connect(self):
        self.pgconn = psycopg.connect(self.options, autocommit=True).pgconn
        self.ask("set statement_timeout = '5s'")
        self.ask("set datestyle = 'postgres, mdy'")
        self.ask("set timezone = 'PST8PDT'")
        self.ask("set intervalstyle = 'postgres_verbose'")

    def ask(self, text):
        """The SQLSTATE, columns and rows of a statement."""
        try:
            result = self.pgconn.exec_(text.encode())
        except (MemoryError, psycopg.Error):
            result = None
        if result is None or self.pgconn.status != pq.ConnStatus.OK:
            self.connect()
            return "gone", None, None
        if result.status in (pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT):
            self.connect()
            return "copy", None, None
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY):
            return (result.error_field(pq.DiagnosticField.SQLSTATE) or b"?").decode(), None, None
        columns = [(result.fname(place), result.ftype(place)) for place in range(result.nfields)]
        places = [place for place, (_, ty) in enumerate(columns) if ty not in OIDS]
        rows = [[result.get_value(row, place) for place in places] for row in range(result.ntuples)]
        if not is_ordered(text):
            rows.sort(key=lambda row: [(value is None, value or b"") for value in row])
        return "", columns, rows

    @property
    def transaction(self):
        return self.pgconn.transaction_status


def is_ordered(text):
    """Does the statement itself say an order, and not only something within parentheses?"""
    while True:
        outside = re.sub(r"\([^()]*\)", " ", text)
        if outside == text:
            return bool(re.search(r"\border\s+by\b|^\s*fetch\b", text, re.I))
        text = outside


def begin(server):
    server.connect()
    server.ask("drop schema public cascade")
    server.ask("create schema public")


def kinds(theirs, ours, statements, show):
    """How many statements of a file have which outcome."""
    counts = collections.Counter()
    for statement in statements:
        if not statement or "\0" in statement or PASSED_OVER.match(statement):
            continue
        found = ours.ask(statement)
        if found[0] == "0A000":
            counts["refused"] += 1
            if ours.transaction == pq.TransactionStatus.INERROR and theirs.transaction == pq.TransactionStatus.INTRANS:
                theirs.ask("select 1/0")
            continue
        expected = theirs.ask(statement)
        same = expected == found or expected[0] == found[0] != ""
        counts["same" if same else "different"] += 1
        if not same and show:
            tell = lambda answer: answer[0] or f"{answer[1]} {answer[2]}"
            print(f"{statement};\n  PostgreSQL: {tell(expected)[:500]}\n  here:       {tell(found)[:500]}", flush=True)
    return counts


def main(port, only):
    theirs, ours = Server(""), Server(f"host=127.0.0.1 port={port} user=postgres dbname=postgres")
    show = bool(os.environ.get("OUTCOMES_SHOW"))
    known, total, wrong = {}, collections.Counter(), []
    with open(KNOWN, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                name, count = line.split()
                known[name] = int(count)
    of_file = collections.defaultdict(list)
    for name, statement in regress.statements():
        of_file[name].append(statement)
    for name, statements in of_file.items():
        if only and name not in only:
            continue
        for server in (theirs, ours):
            begin(server)
        if name != "test_setup.sql":
            kinds(theirs, ours, of_file["test_setup.sql"], False)
        if show:
            print(f"--- {name}", flush=True)
        counts = kinds(theirs, ours, statements, show)
        total += counts
        if counts["different"] != known.get(name, 0):
            wrong.append(f"{name} {counts['different']}")
    print(f"{dict(total)}")
    if wrong:
        print("other counts than outcomes.txt has:", *wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[-1], sys.argv[1:-1]))
