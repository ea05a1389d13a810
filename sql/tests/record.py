#!/usr/bin/env python3
"""Runs the statements of golden files on PostgreSQL and writes its answers into them.

    sql/tests/with_postgres.sh sql/tests/record.py sql/tests/golden/*.golden

A golden file has a statement behind each `> ` (further lines behind `| `), and below it the answer:
    ? type:name …       columns; then a line a row, values separated by tabs, null is \\N
    # TAG               the command tag of a statement without rows
    ! CODE POSITION MESSAGE
Lines that begin with `--` are remarks, and stay. Rows are sorted unless the statement has an ORDER BY.
Needs psycopg (pip install "psycopg[binary]").
"""
import sys
import psycopg

TYPES = {}


def escape(value):
    if value is None:
        return "\\N"
    return value.decode().replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def answer(connection, statement):
    result = connection.pgconn.exec_(statement.encode())
    status = psycopg.pq.ExecStatus(result.status)
    if status == psycopg.pq.ExecStatus.FATAL_ERROR:
        field = lambda f: (result.error_field(f) or b"").decode()
        F = psycopg.pq.DiagnosticField
        return [f"! {field(F.SQLSTATE)} {field(F.STATEMENT_POSITION) or '-'} {field(F.MESSAGE_PRIMARY)}"]
    if status != psycopg.pq.ExecStatus.TUPLES_OK:
        return ["# " + (result.command_status or b"").decode()]
    columns = " ".join(f"{TYPES[result.ftype(i)]}:{result.fname(i).decode().replace(' ', '_')}" for i in range(result.nfields))
    rows = ["\t".join(escape(result.get_value(r, c)) for c in range(result.nfields)) for r in range(result.ntuples)]
    if "order by" not in statement.lower():
        rows.sort(key=str.encode)
    return ["? " + columns] + ["  " + row for row in rows]


def statements(path):
    """Remarks and statements of a file, in order."""
    entry = None
    for line in open(path, encoding="utf-8").read().split("\n"):
        if line.startswith("--"):
            yield ("remark", line)
        elif line.startswith("> "):
            entry = [line[2:]]
            yield ("statement", entry)
        elif line.startswith("| ") and entry:
            entry.append(line[2:])


def main():
    for path in sys.argv[1:]:
        with psycopg.connect("", autocommit=True) as connection:
            for oid, name in connection.execute("select oid, typname from pg_type").fetchall():
                TYPES[oid] = name
            connection.execute("drop schema public cascade")
            connection.execute("create schema public")
            out = []
            for kind, what in list(statements(path)):
                if kind == "remark":
                    out.append(what)
                    continue
                out += ["> " + what[0]] + ["| " + more for more in what[1:]]
                out += answer(connection, "\n".join(what)) + [""]
            open(path, "w", encoding="utf-8").write("\n".join(out).rstrip("\n") + "\n")


if __name__ == "__main__":
    main()
