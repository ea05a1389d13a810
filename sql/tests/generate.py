#!/usr/bin/env python3
"""Writes random expressions over all types as a golden file, without answers (`record.py` adds PostgreSQL's).

    sql/tests/generate.py SEED COUNT > FILE.golden

Values are those where types change their mind: ends of integers, zeros, scales, nulls, leap days, NaN.
"""
import random
import sys

VALUES = {
    "int2": ["0::int2", "1::int2", "(-1)::int2", "32767::int2", "(-32768)::int2", "null::int2"],
    "int4": ["0", "1", "-1", "7", "2147483647", "(-2147483648)", "null::int4", "1000"],
    "int8": ["0::int8", "9223372036854775807", "(-9223372036854775808)", "5000000000", "null::int8", "3::int8"],
    "float8": ["0::float8", "1.5::float8", "'-0'::float8", "'nan'::float8", "'infinity'::float8", "1e308::float8",
               "1e-300::float8", "0.1::float8", "null::float8", "123456789.125::float8"],
    "float4": ["1.5::float4", "0.1::float4", "3e38::float4", "null::float4"],
    "numeric": ["0.0", "1.10", "-2.5", "123456789012345678901234567890.5", "0.00001", "'nan'::numeric", "null::numeric",
                "99.995", "1e20", "3::numeric"],
    "text": ["''::text", "'a'::text", "'Hello'::text", "'é%_'::text", "null::text", "'12'::text", "' x '::text"],
    "bool": ["true", "false", "null::bool"],
    "date": ["date '2024-02-29'", "date '1970-01-01'", "date '0001-01-01'", "null::date", "date '1999-12-31'"],
    "timestamp": ["timestamp '2024-02-29 12:34:56.789'", "timestamp '1969-12-31 23:59:59'", "null::timestamp",
                  "timestamp '2000-01-31'"],
    "timestamptz": ["timestamptz '2024-02-29 12:34:56+02'", "null::timestamptz"],
    "interval": ["interval '1 month'", "interval '-1 day 02:03:04.5'", "interval '1 year 1 day'", "null::interval",
                 "interval '0'", "interval '100 hours'"],
    "time": ["time '00:00'", "time '23:59:59.999999'", "null::time"],
    "bytea": ["'\\x00ff'::bytea", "''::bytea", "null::bytea"],
    "uuid": ["'550e8400-e29b-41d4-a716-446655440000'::uuid", "null::uuid"],
}
NUMBERS = ["int2", "int4", "int8", "float4", "float8", "numeric"]
COMPARE = ["=", "<>", "<", "<=", ">", ">="]
ONE = {
    "abs": NUMBERS, "ceil": ["numeric", "float8"], "floor": ["numeric", "float8"], "round": ["numeric", "float8"],
    "trunc": ["numeric", "float8"], "sign": ["numeric", "float8"], "length": ["text", "bytea"], "upper": ["text"],
    "lower": ["text"], "reverse": ["text"], "initcap": ["text"], "btrim": ["text"], "ascii": ["text"],
    "isfinite": ["date", "timestamp", "interval"], "justify_hours": ["interval"], "justify_interval": ["interval"],
}
FIELDS = ["year", "month", "day", "hour", "minute", "second", "epoch", "dow", "doy", "week", "quarter", "century",
          "decade", "milliseconds"]
CASTS = [(a, b) for a in NUMBERS for b in NUMBERS + ["text"]] + [
    ("text", "int4"), ("text", "numeric"), ("text", "float8"), ("bool", "int4"), ("int4", "bool"),
    ("bool", "text"), ("date", "timestamp"), ("timestamp", "date"), ("timestamp", "time"), ("date", "text"),
    ("timestamp", "text"), ("timestamptz", "timestamp"), ("timestamp", "timestamptz"), ("interval", "text"),
    ("time", "interval"), ("interval", "time"), ("numeric", "numeric(6,2)"), ("float8", "numeric(10,3)"),
    ("text", "varchar(2)"), ("text", "char(3)"), ("uuid", "text"), ("bytea", "text"),
]


class Random:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, of):
        return self.r.choice(of)

    def value(self, ty, depth):
        """An expression of the type, as PostgreSQL has it before errors."""
        if depth <= 0 or self.r.random() < 0.35:
            return self.pick(VALUES[ty])
        below = lambda t: self.value(t, depth - 1)
        options = [
            lambda: f"coalesce({below(ty)}, {below(ty)})",
            lambda: f"case when {below('bool')} then {below(ty)} else {below(ty)} end",
            lambda: f"nullif({below(ty)}, {below(ty)})",
            lambda: f"greatest({below(ty)}, {below(ty)})",
        ]
        if ty in NUMBERS:
            op = self.pick(["+", "-", "*", "/"])
            options += [lambda: f"({below(ty)} {op} {below(ty)})"] * 3 + [lambda: f"(- {below(ty)})"]
            if ty != "float4":
                options += [lambda: f"abs({below(ty)})"]
        if ty in ("int2", "int4", "int8"):
            options += [lambda: f"({below(ty)} % {below(ty)})"]
        if ty == "numeric":
            options += [lambda: f"round({below(ty)}, {self.r.randint(-2, 5)})", lambda: f"{below('int8')}::numeric"]
        if ty == "text":
            options += [
                lambda: f"({below(ty)} || {below(ty)})", lambda: f"substr({below(ty)}, {self.r.randint(-1, 3)}, 2)",
                lambda: f"lpad({below(ty)}, {self.r.randint(0, 6)}, 'xy')", lambda: f"replace({below(ty)}, 'l', 'L')",
                lambda: f"{below('int4')}::text", lambda: f"split_part({below(ty)}, 'l', 1)",
            ]
        if ty == "bool":
            other = self.pick(list(VALUES))
            compare = self.pick(COMPARE)
            options = [
                lambda: f"({below(other)} {compare} {below(other)})", lambda: f"({below(ty)} and {below(ty)})",
                lambda: f"({below(ty)} or {below(ty)})", lambda: f"(not {below(ty)})",
                lambda: f"({below(other)} is null)", lambda: f"({below(other)} is distinct from {below(other)})",
                lambda: f"({below(other)} in ({below(other)}, {below(other)}))",
                lambda: f"({below(other)} between {below(other)} and {below(other)})",
                lambda: f"({below('text')} like {below('text')})",
                lambda: f"({below(self.pick(NUMBERS))} {compare} {below(self.pick(NUMBERS))})",
            ]
        if ty == "date":
            options += [lambda: f"({below(ty)} + {self.r.randint(-400, 400)})"]
        if ty in ("timestamp", "timestamptz"):
            options += [lambda: f"({below(ty)} + {below('interval')})", lambda: f"date_trunc('{self.pick(FIELDS[:6])}', {below(ty)})"]
        if ty == "interval":
            options += [lambda: f"({below(ty)} + {below(ty)})", lambda: f"({below(ty)} * {self.r.randint(-3, 3)})",
                        lambda: f"({below('timestamp')} - {below('timestamp')})"]
        return self.pick(options)()

    def expression(self):
        kind = self.r.random()
        if kind < 0.55:
            return self.value(self.pick(list(VALUES)), 3)
        if kind < 0.75:
            source, target = self.pick(CASTS)
            return f"({self.value(source, 1)})::{target}"
        if kind < 0.85:
            name = self.pick(list(ONE))
            return f"{name}({self.value(self.pick(ONE[name]), 1)})"
        if kind < 0.95:
            ty = self.pick(["date", "timestamp", "timestamptz", "interval", "time"])
            return f"extract({self.pick(FIELDS)} from {self.value(ty, 1)})"
        a, b = self.pick(NUMBERS), self.pick(NUMBERS)
        return f"({self.value(a, 1)} {self.pick(['+', '-', '*', '/'])} {self.value(b, 1)})"


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    source = Random(seed)
    print(f"-- Random expressions: generate.py {seed} {count}.")
    for _ in range(count):
        # Names and positions of what a generator writes say nothing more: the code is compared.
        print("-- only the code")
        print(f"> select {source.expression()} as x")


if __name__ == "__main__":
    main()
