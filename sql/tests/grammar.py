#!/usr/bin/env python3
"""grammar.py PORT: what PostgreSQL's grammar accepts must parse here, or be refused by name (0A000).

Every statement of PostgreSQL's regression files is sent as a Parse message, which runs nothing, to the server that the environment
names and to the one at PORT. If PostgreSQL finds no fault in its syntax, and here it is one, the statement is shown. Other faults
that have its SQLSTATE (options that have no such value) are told by PostgreSQL when it runs the statement.
"""

import collections
import sys

import psycopg

import regress

DIAGNOSTIC = psycopg.pq.DiagnosticField


def parsed(connection, statement):
    """SQLSTATE and message; none if it was parsed."""
    result = connection.prepare(b"", statement)
    connection.exec_(b"rollback")
    if result.status == psycopg.pq.ExecStatus.COMMAND_OK:
        return None, ""
    fields = (result.error_field(field) or b"" for field in (DIAGNOSTIC.SQLSTATE, DIAGNOSTIC.MESSAGE_PRIMARY))
    return tuple(field.decode() for field in fields)


def connected(options):
    return psycopg.connect(options, autocommit=True).pgconn


def main(port):
    theirs, ours = connected(""), connected(f"host=127.0.0.1 port={port} user=postgres dbname=postgres")
    counts, seen = collections.Counter(), set()
    for file, statement in regress.statements():
        text = statement.encode()
        if text in seen or b"\0" in text:
            continue
        seen.add(text)
        if parsed(theirs, text)[0] == "42601":
            counts["not PostgreSQL's"] += 1
            continue
        code, message = parsed(ours, text)
        if code == "42601" and not message.startswith("syntax error"):
            code = "an option's value"
        counts[code or "parsed"] += 1
        if code == "42601":
            print(f"{file}: {message}\n    {statement}", file=sys.stderr)
    total = sum(counts.values()) - counts["not PostgreSQL's"]
    print(f"{total} statements, {counts['42601']} of which are an error of syntax here: {dict(counts)}")
    return counts["42601"] > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
