"""asyncpg: a pool, parameters of several types, jsonb, a cursor, an error, advisory locks of two connections.

Needs asyncpg; PGHOST and PGPORT name the server.
"""
import asyncio
import datetime
import decimal
import json
import os
import uuid

import asyncpg

from steps import ended, step


async def one(connection):
    with step("a table and a codec"):
        await connection.execute(
            "create table visits (id bigserial primary key, who text not null, at timestamptz not null default now(),"
            " tags text[], n numeric(10, 2), data jsonb, u uuid, born date)"
        )
        await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    with step("types both ways"):
        u, born = uuid.uuid4(), datetime.date(1815, 12, 10)
        row = await connection.fetchrow(
            "insert into visits (who, tags, n, data, u, born) values ($1, $2, $3, $4, $5, $6) returning *",
            "Ada", ["a", None], decimal.Decimal("1.50"), {"x": [1, 2]}, u, born,
        )
        assert row["data"] == {"x": [1, 2]} and row["tags"] == ["a", None] and row["u"] == u and row["born"] == born, row
        assert row["n"] == decimal.Decimal("1.50") and row["at"].tzinfo is not None, row
    with step("executemany"):
        many = [(f"w{number}", decimal.Decimal(number)) for number in range(100)]
        await connection.executemany("insert into visits (who, n) values ($1, $2)", many)
    with step("a cursor"):
        async with connection.transaction():
            total = decimal.Decimal(0)
            async for row in connection.cursor("select n from visits where n is not null order by id"):
                total += row["n"]
            assert total == decimal.Decimal("4951.50"), total
    with step("an error"):
        try:
            async with connection.transaction():
                await connection.execute("insert into visits (who) values ('lost')")
                await connection.execute("insert into visits (id, who) values (1, 'x')")
            raise AssertionError("the key is there twice")
        except asyncpg.UniqueViolationError as error:
            assert error.constraint_name == "visits_pkey", error.constraint_name
        assert await connection.fetchval("select count(*) from visits where who = any($1::text[])", ["Ada", "lost"]) == 1
    with step("a prepared statement"):
        prepared = await connection.prepare("select $1::int + 1 as n, $2 || 'x' as t")
        assert [a.type.name for a in prepared.get_attributes()] == ["int4", "text"]
        assert await prepared.fetchrow(41, "y") == (42, "yx")
    with step("jsonb"):
        assert await connection.fetchval("select data -> 'x' ->> 1 from visits where data @> $1", {"x": [2]}) == "2"


async def locks(pool):
    async with pool.acquire() as a, pool.acquire() as b:
        await a.execute("select pg_advisory_lock(42)")
        assert await b.fetchval("select pg_try_advisory_lock(42)") is False
        waits = asyncio.create_task(b.execute("select pg_advisory_lock(42)"))
        assert not waits.done()
        assert await a.fetchval("select pg_advisory_unlock(42)") is True
        await asyncio.wait_for(waits, 60)
        assert await a.fetchval("select pg_try_advisory_lock(42)") is False


async def main():
    pool = await asyncpg.create_pool(
        host=os.environ["PGHOST"], port=int(os.environ["PGPORT"]), user="postgres", database="postgres",
        min_size=2, max_size=2,
    )
    async with pool.acquire() as connection:
        await one(connection)
    with step("advisory locks"):
        await locks(pool)
    with step("what a pool takes back holds no locks"):
        async with pool.acquire() as a, pool.acquire() as b:
            assert await a.fetchval("select pg_try_advisory_lock(42)") is True
            await b.execute("drop table visits")
    await pool.close()


asyncio.run(main())
ended("asyncpg")
