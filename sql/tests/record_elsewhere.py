#!/usr/bin/env python3
"""Writes the functions, aggregates, operators, types and catalogs that PostgreSQL has, so that those missing here are refused by name.

    sql/tests/with_postgres.sh sql/tests/record_elsewhere.py > sql/src/functions/elsewhere.txt

A line is a name and the types of its arguments; a function whose last arguments have defaults has a line for each number of them.
"""
import psycopg

with psycopg.connect("") as connection:
    names = {oid: name for oid, name in connection.execute("select oid, typname from pg_type").fetchall()}
    lines = set()
    query = """select proname, proargtypes::oid[], pronargdefaults from pg_proc
        where pronamespace = 'pg_catalog'::regnamespace and provariadic = 0 and prorettype not in (2281, 2279, 3838)"""
    for name, args, defaults in connection.execute(query).fetchall():
        args = [names[arg] for arg in args]
        if "internal" not in args and "cstring" not in args:
            lines.update(" ".join([name, *args[: len(args) - left]]) for left in range(defaults + 1))
    query = "select oprname, oprleft, oprright from pg_operator where oprnamespace = 'pg_catalog'::regnamespace"
    for name, left, right in connection.execute(query).fetchall():
        lines.add(" ".join([name, *(names[arg] for arg in (left, right) if arg)]))
    query = """select relnamespace::regnamespace, relname from pg_class where relkind in ('r', 'v')
        and relnamespace in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)"""
    lines.update(f"relation {schema}.{name}" for schema, name in connection.execute(query).fetchall())
    query = "select typname from pg_type where typtype <> 'c' and typcategory <> 'A' and typnamespace = 'pg_catalog'::regnamespace"
    lines.update(f"type {name}" for (name,) in connection.execute(query).fetchall())
    query = """select distinct proname, pronargs - 1 from pg_proc where pronamespace = 'pg_catalog'::regnamespace and provariadic <> 0
        and prorettype not in (2281, 2279, 3838)"""
    lines.update(f"variadic {fixed} {name}" for name, fixed in connection.execute(query).fetchall())
    print("\n".join(sorted(lines)))
