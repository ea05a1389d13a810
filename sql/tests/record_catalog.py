#!/usr/bin/env python3
"""Writes what PostgreSQL's catalogs say of the types, functions, operators and casts over the types that this crate has.

    sql/tests/with_postgres.sh sql/tests/record_catalog.py > sql/tests/catalog.txt
"""
import psycopg

TYPES = """bool int2 int4 int8 float4 float8 numeric text varchar bpchar name bytea date time timestamp timestamptz
interval uuid oid char json jsonb int2vector oidvector regclass regtype regnamespace regproc _text void""".split()

with psycopg.connect("") as connection:
    names = {oid: name for oid, name in connection.execute("select oid, typname from pg_type").fetchall()}
    lines = []
    for oid, name, length in connection.execute("select oid, typname, typlen from pg_type").fetchall():
        if name.removeprefix("_") in TYPES + ["unknown", "record", "void"] and name != "_char":
            lines.append(f"type {name} {oid} {length}")
    query = "select proname, proargtypes::oid[], prorettype, prokind from pg_proc where prokind in ('f', 'a')"
    for name, args, returns, kind in connection.execute(query).fetchall():
        args = [names[arg] for arg in args]
        if all(arg in TYPES for arg in args) and names[returns] in TYPES:
            kind = "aggregate" if kind == "a" else "function"
            lines.append(f"{kind} {name}({','.join(args)}) {names[returns]}")
    query = "select oprname, oprleft, oprright, oprresult from pg_operator"
    for name, left, right, result in connection.execute(query).fetchall():
        args = [names[arg] for arg in (left, right) if arg]
        if all(arg in TYPES for arg in args) and names.get(result) in TYPES:
            lines.append(f"operator {name}({','.join(args)}) {names[result]}")
    query = "select castsource, casttarget, castcontext from pg_cast"
    for source, target, context in connection.execute(query).fetchall():
        if names[source] in TYPES and names[target] in TYPES:
            context = context.decode() if isinstance(context, bytes) else context
            lines.append(f"cast {names[source]} {names[target]} {context}")
    print("\n".join(sorted(set(lines))))
