"""psycopg 3 against the server that PGHOST names: types both ways, transactions, errors, COPY, pipelines."""
import datetime
import decimal
import uuid

import psycopg

# A transaction is begun before the first statement: definitions stand in it, too.
with psycopg.connect("") as connection:
    connection.execute("create table migrated (id int primary key, v text)")
    connection.execute("insert into migrated values (1, 'one')")
    connection.execute("alter table migrated add column n int default 7")
    connection.rollback()
    try:
        connection.execute("select * from migrated")
        raise AssertionError("it was rolled back")
    except psycopg.errors.UndefinedTable:
        connection.rollback()
    connection.execute("create table migrated (id int primary key, v text)")
    connection.execute("create index on migrated (v)")
    connection.execute("insert into migrated values (1, 'one')")
    connection.commit()
    assert connection.execute("select v from migrated where id = 1").fetchone() == ("one",)

with psycopg.connect("", autocommit=True) as connection:
    connection.execute(
        "create table all_types (id bigint primary key, b boolean, s smallint, i integer, f double precision,"
        " n numeric(20, 4), t text, y bytea, d date, ts timestamp, tz timestamptz, u uuid)"
    )
    row = (
        1,
        True,
        -2,
        3,
        0.5,
        decimal.Decimal("-12345.6780"),
        "naïve \\ 'text'",
        b"\x00\xff",
        datetime.date(1999, 12, 31),
        datetime.datetime(2024, 2, 29, 12, 30, 0, 5),
        datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.timezone.utc),
        uuid.UUID("12345678-1234-5678-1234-567812345678"),
    )
    marks = ", ".join(["%s"] * len(row))
    connection.execute(f"insert into all_types values ({marks})", row)
    connection.execute(f"insert into all_types values ({marks})", (2,) + (None,) * (len(row) - 1))
    for binary in (False, True):
        with connection.cursor(binary=binary) as cursor:
            assert cursor.execute("select * from all_types where id = %s", (1,)).fetchone() == row, cursor.fetchone()
            assert cursor.execute("select * from all_types where id = 2").fetchone() == (2,) + (None,) * (len(row) - 1)

    # A statement that is prepared, run often, and forgotten.
    for number in range(20):
        found = connection.execute("select i + %s from all_types where id = 1", (number,), prepare=True).fetchone()
        assert found == (3 + number,)

    try:
        connection.execute("insert into all_types (id) values (1)")
        raise AssertionError("the key is there already")
    except psycopg.errors.UniqueViolation as error:
        assert error.diag.constraint_name == "all_types_pkey", error.diag.constraint_name
        assert error.diag.message_detail == "Key (id)=(1) already exists."

    connection.execute("create table copied (id integer primary key, name text)")
    with connection.cursor() as cursor:
        with cursor.copy("copy copied (id, name) from stdin") as copy:
            for number in range(1000):
                copy.write_row((number, f"name\t{number}" if number % 2 else None))
        with cursor.copy("copy (select * from copied order by id) to stdout") as copy:
            rows = list(copy.rows())
    assert len(rows) == 1000 and rows[1] == ("1", "name\t1") and rows[2] == ("2", None), rows[:3]

    with connection.pipeline():
        cursors = [connection.execute("select %s::int8 * 2", (number,)) for number in range(50)]
    assert [cursor.fetchone()[0] for cursor in cursors] == [number * 2 for number in range(50)]

with psycopg.connect("") as connection:
    connection.execute("update copied set name = 'changed' where id = 0")
    with connection.transaction(force_rollback=True):
        connection.execute("delete from copied")
    try:
        with connection.transaction():
            connection.execute("select 1 / 0")
    except psycopg.errors.DivisionByZero:
        pass
    assert connection.execute("select count(*), min(name) from copied where id = 0").fetchone() == (1, "changed")
    connection.rollback()
    assert connection.execute("select name from copied where id = 0").fetchone() == (None,)
    # A cursor of the server, read in parts.
    with connection.cursor(name="parts") as cursor:
        cursor.itersize = 100
        cursor.execute("select id from copied where id >= %s order by id", (500,))
        assert [number for (number,) in cursor] == list(range(500, 1000))
print("psycopg: well")
