#!/usr/bin/env python3
"""Random queries, asked of PostgreSQL 15 and of a server of ours: columns, rows and SQLSTATEs must be the same.

    sql/tests/with_postgres.sh sql/tests/queries.py SEED COUNT PORT     compares; refusals by name (0A000) are counted
    sql/tests/queries.py SEED COUNT > FILE.golden                       a golden file, without answers (`record.py` adds them)

`--large` draws from other tables and forms: rows that are read by batches, and go beyond memory with `--set work_mem=64kB`; cursors
that are fetched in pieces, and changes, each in a transaction that is rolled back.

A query is made of joins, groups, sub-queries, set operations, windows and WITH over small tables in which much is null. Each has one
answer: rows are in the order of all columns, windows and LIMIT look at orders that ties do not change. One in eight may fail, by one
expression over the rows of its answer: which rows are evaluated is not left to a plan, and only one SQLSTATE can come of it.
`TABLES` says what there is: another schema takes another list.
"""
import argparse
import collections
import decimal
import random
import sys

# Name, columns and their types; what is put into it by `rows`.
TABLES = {
    "t": [("id", "int"), ("a", "int"), ("b", "int"), ("s", "text"), ("n", "numeric"), ("o", "bool"), ("d", "date")],
    "u": [("id", "int"), ("a", "int"), ("s", "text"), ("d", "date")],
    "v": [("k", "int"), ("n", "numeric"), ("o", "bool")],
    "empty": [("a", "int"), ("s", "text")],
}
DEFINITIONS = [
    "create table t (id int primary key, a int, b int, s text, n numeric(6,2), o bool, d date)",
    "create index t_a on t (a, b)",
    "create table u (id int primary key, a int, s text, d date)",
    "create unique index u_a_id on u (a, id)",
    "create table v (k int, n numeric(6,2), o bool)",
    "create table empty (a int, s text)",
]
VALUES = {
    "int": ["0", "1", "2", "3", "-1", "7", "null"],
    "text": ["''", "'a'", "'b'", "'ab'", "'A'", "null"],
    "numeric": ["0", "1.00", "2.50", "-1.25", "3", "null"],
    "bool": ["true", "false", "null"],
    "date": ["'2024-02-29'", "'2024-03-01'", "'1999-12-31'", "null"],
}
CAST = {"int": "int", "text": "text", "numeric": "numeric(6,2)", "bool": "bool", "date": "date"}
NUMERIC = 1700
COMPARE = ["=", "<>", "<", "<=", ">", ">="]
JOINS = ["join", "left join", "right join", "full join", "join", "left join"]
FRAMES = ["rows between 1 preceding and 1 following", "rows between unbounded preceding and 1 preceding", "rows 2 preceding",
          "rows between current row and unbounded following", "groups between 1 preceding and current row",
          "range between current row and unbounded following", "rows between 1 following and 2 following",
          "rows between 1 preceding and 1 following exclude current row", "groups between 1 preceding and 1 following exclude ties",
          "range between unbounded preceding and current row exclude group"]
# By type: what fails for some values of a column, each with one SQLSTATE.
FAILS = {
    "int": ["10 / {0}", "10 % {0}", "{0} + 2147483646", "ln({0})", "substr('abc', 1, {0})", "(select x from generate_series(1, {0}) as g (x))"],
    "text": ["{0}::int", "{0}::date", "{0}::bool"],
    "numeric": ["1 / {0}", "{0}::numeric(2,2)", "sqrt({0})"],
    "date": ["{0} + 2147483647", "make_date(extract(year from {0})::int, 2, 29)"],
    "bool": ["1 / ({0}::int)"],
}


class Source:
    """The random choices, and the names that are free."""

    def __init__(self, seed, refused=0.0, wide=False):
        """`refused`: how often a condition of a join may have a sub-query, which an outer join refuses. `wide`: draws from all forms;
        else only from those of which the golden file is made."""
        self.refused = refused
        self.wide = wide
        self.r = random.Random(seed)
        self.names = 0
        # No sub-queries are made meanwhile.
        self.plain = False

    def pick(self, of):
        return self.r.choice(list(of))

    def chance(self, p):
        return self.r.random() < p

    def wider(self, p):
        """A chance of a form that only the wide draw has."""
        return self.wide and self.chance(p)

    def name(self, letter):
        self.names += 1
        return f"{letter}{self.names}"

    def rows(self):
        """INSERTs into all tables."""
        for table, count in (("t", 12), ("u", 9), ("v", 7)):
            for number in range(count):
                values = [str(number) if name == "id" else self.pick(VALUES[ty]) for name, ty in TABLES[table]]
                yield f"insert into {table} values ({', '.join(values)})"

    # Expressions over a scope: a list of names with their types.

    def column(self, scope, ty):
        names = [name for name, of in scope if of == ty]
        return self.pick(names) if names else None

    def constant(self, ty):
        value = self.pick(VALUES[ty])
        return f"{value}::{CAST[ty]}" if value == "null" or ty in ("date", "text") or self.chance(0.3) else f"({value})"

    def value(self, scope, ty, depth, outer=()):
        if depth <= 0 or self.chance(0.4):
            return self.column([*scope, *outer] if self.chance(0.3) else scope, ty) or self.constant(ty)
        below = lambda of: self.value(scope, of, depth - 1, outer)
        options = [
            lambda: f"coalesce({below(ty)}, {below(ty)})",
            lambda: f"nullif({below(ty)}, {below(ty)})",
            lambda: f"case when {self.condition(scope, depth - 1, outer)} then {below(ty)} else {below(ty)} end",
            lambda: f"greatest({below(ty)}, {below(ty)})",
        ]
        if not self.plain:
            options += [lambda: self.scalar([*scope, *outer], ty, depth - 1)]
        if ty == "int":
            options += [lambda: f"({below('int')} {self.pick('+-')} {below('int')})"] * 2
            options += [lambda: f"length({below('text')})", lambda: f"({below('date')} - {below('date')})"]
        if ty == "numeric":
            options += [lambda: f"({below('numeric')} {self.pick('+-')} {below('numeric')})", lambda: f"round({below('numeric')}, 1)"]
            options += [lambda: f"({below('int')} + {below('numeric')})"]
        if ty == "text":
            options += [lambda: f"({below('text')} || {below('text')})", lambda: f"upper({below('text')})", lambda: f"{below('int')}::text"]
        if ty == "date":
            options += [lambda: f"({below('date')} + {self.r.randint(-3, 3)})"]
        if ty == "bool":
            options += [lambda: self.condition(scope, depth, outer)] * 3
        return self.pick(options)()

    def condition(self, scope, depth, outer=()):
        ty = self.pick(VALUES)
        below = lambda of: self.value(scope, of, depth - 1, outer)
        around = [*scope, *outer]
        if depth <= 0:
            return f"({below(ty)} {self.pick(COMPARE)} {below(ty)})"
        again = lambda: self.condition(scope, depth - 1, outer)
        options = [
            lambda: f"({below(ty)} {self.pick(COMPARE)} {below(ty)})",
            lambda: f"({below(ty)} {self.pick(COMPARE)} {below(ty)})",
            lambda: f"({again()} and {again()})",
            lambda: f"({again()} or {again()})",
            lambda: f"(not {again()})",
            lambda: f"({below(ty)} is {self.pick(['', 'not '])}null)",
            lambda: f"({below(ty)} is {self.pick(['', 'not '])}distinct from {below(ty)})",
            lambda: f"({below(ty)} {self.pick(['', 'not '])}in ({below(ty)}, {below(ty)}))",
            lambda: f"({below(ty)} {self.pick(['', 'not '])}between {below(ty)} and {below(ty)})",
            lambda: f"({below('bool')} is {self.pick(['', 'not '])}{self.pick(['true', 'false', 'unknown'])})",
            lambda: f"(({below('int')}, {below('text')}) {self.pick(COMPARE)} ({below('int')}, {below('text')}))",
            lambda: f"({below('text')} {self.pick(['', 'not '])}like {self.pick(['a', '%a', '_', '%', 'A%'])!r})",
        ]
        if self.plain:
            return self.pick(options)()
        if self.wider(0.05):
            inner = self.query(depth - 1, ["int", "text"], around)[0]
            return f"(({below('int')}, {below('text')}) {self.pick(['', 'not '])}in ({inner}))"
        options += [
            lambda: f"{self.pick(['', 'not '])}exists ({self.query(depth - 1, [self.pick(VALUES)], around)[0]})",
            lambda: f"({below(ty)} {self.pick(['', 'not '])}in ({self.query(depth - 1, [ty], around)[0]}))",
            lambda: f"({below(ty)} {self.pick(COMPARE)} {self.pick(['any', 'all'])} ({self.query(depth - 1, [ty], around)[0]}))",
        ]
        return self.pick(options)()

    def scalar(self, outer, ty, depth):
        """A sub-query of one row."""
        relation, scope = self.relation(depth, ())
        where = f" where {self.condition(scope, max(depth, 1), outer)}" if self.chance(0.7) else ""
        return f"(select {self.aggregate(scope, ty, outer)} from {relation}{where})"

    def aggregate(self, scope, ty, outer=()):
        value = lambda of: self.value(scope, of, 1, ())
        if ty == "int":
            made = self.pick([f"count(*)::int", f"count({value(self.pick(VALUES))})::int", f"count(distinct {value(self.pick(VALUES))})::int",
                              f"sum({value('int')})::int", f"max({value('int')})"])
        elif ty == "numeric":
            made = self.pick([f"sum({value('numeric')})", f"round(avg({value('int')}), 3)", f"min({value('numeric')})"])
        elif ty == "bool":
            made = f"{self.pick(['bool_and', 'bool_or', 'every'])}({value('bool')})"
        elif ty == "text" and self.wider(0.3):
            # Two copies of a sub-query are not the same expression here: the binder refuses them with DISTINCT (42P10).
            plain, self.plain = self.plain, True
            one, way = value("text"), self.pick(["", " desc", " nulls first"])
            self.plain = plain
            made = self.pick([f"string_agg({one}, ',' order by {one}{way})", f"array_agg(distinct {one} order by {one}{way})::text"])
        else:
            made = f"{self.pick(['min', 'max'])}({value(ty)})"
        if self.chance(0.2) and "::" not in made and not made.startswith("round"):
            made += f" filter (where {self.condition(scope, 1)})"
        return made

    def window(self, scope, ty):
        part = ", ".join(filter(None, [self.column(scope, self.pick(VALUES)) for _ in range(self.r.randint(0, 2))]))
        by = f"partition by {part}" if part else ""
        if self.wider(0.4):
            return self.placed(scope, ty, by)
        order = f" order by {self.value(scope, self.pick(VALUES), 1)}{self.pick(['', ' desc', ' nulls first'])}"
        ordered = self.chance(0.6)
        over = f"over ({by}{order if ordered else ''})"
        if ty == "int":
            ranks = [f"rank() {over}::int", f"dense_rank() {over}::int"] if ordered else []
            return self.pick([f"count(*) {over}::int", f"sum({self.value(scope, 'int', 1)}) {over}::int", *ranks])
        if ty == "numeric":
            return f"sum({self.value(scope, 'numeric', 1)}) {over}"
        if ty == "bool":
            return f"bool_or({self.value(scope, 'bool', 1)}) {over}"
        return f"{self.pick(['min', 'max'])}({self.value(scope, ty, 1)}) {over}"

    def placed(self, scope, ty, by):
        """A window function that depends on places or frames: rows that tie in all columns are the same row."""
        whole = ", ".join(name + self.pick(["", "", " desc", " nulls first"]) for name, _ in self.r.sample(scope, len(scope)))
        value = self.value(scope, ty, 1)
        options = [f"{self.pick(['lag', 'lead'])}({value}{self.pick(['', ', 2', ', 0'])})", f"{self.pick(['first', 'last'])}_value({value})",
                   f"nth_value({value}, 2)"]
        if ty == "int":
            options += ["row_number()", "ntile(3)", "count(*)", f"sum({value})", "rank()"]
        if ty == "numeric":
            options += [f"sum({value})", "round(cume_dist()::numeric, 6)", "round(percent_rank()::numeric, 6)"]
        made = self.pick(options)
        frame = f" {self.pick(FRAMES)}" if self.chance(0.5) else ""
        over = f"over ({by} order by {whole}{frame})"
        if made.startswith("round("):
            return made.replace("()::", f"() {over}::")
        cast = "::int" if ty == "int" else ""
        return f"{made} {over}{cast}"

    # Relations and queries.

    def relation(self, depth, ctes, lateral=()):
        """Something for FROM, and the names that it brings."""
        kind = self.r.random()
        alias = self.name("r")
        if ctes and kind < 0.3:
            name, columns = self.pick(ctes)
            return f"{name} as {alias}", [(f"{alias}.{column}", ty) for column, ty in columns]
        if depth > 0 and kind < 0.5:
            types = [self.pick(VALUES) for _ in range(self.r.randint(1, 3))]
            inner, names = self.query(depth - 1, types, lateral, ctes)
            word = "lateral " if lateral else ""
            return f"{word}({inner}) as {alias}", [(f"{alias}.{name}", ty) for name, ty in zip(names, types)]
        if kind < 0.57:
            rows = ", ".join(f"({self.constant('int')}, {self.constant('text')})" for _ in range(self.r.randint(1, 4)))
            return f"(values {rows}) as {alias} (x, y)", [(f"{alias}.x", "int"), (f"{alias}.y", "text")]
        if kind < 0.62:
            return f"generate_series(0, {self.r.randint(0, 3)}) as {alias} (g)", [(f"{alias}.g", "int")]
        table = self.pick(["t", "t", "u", "u", "v", "empty"])
        return f"{table} as {alias}", [(f"{alias}.{column}", ty) for column, ty in TABLES[table]]

    def joined(self, depth, ctes):
        text, scope = self.relation(depth, ctes)
        for _ in range(self.pick([0, 0, 1, 1, 2])):
            kind = self.pick(JOINS)
            lateral = scope if kind in ("join", "left join") and self.chance(0.15) else ()
            right, more = self.relation(depth - 1, ctes, lateral)
            if self.chance(0.1):
                text, scope = f"{text} cross join {right}", [*scope, *more]
                continue
            shared = [(l, r) for l, a in scope for r, b in more if a == b]
            equal = " = ".join(self.pick(shared)) if shared else None
            both = [*scope, *more]
            # Conditions of outer joins have no sub-queries here.
            self.plain = not self.chance(self.refused)
            if kind == "full join" or equal and self.chance(0.6):
                on = equal or "true"
                if kind != "full join" and self.chance(0.4):
                    on = f"{on} and {self.condition(both, 1)}"
            else:
                on = self.condition(both, 1)
            self.plain = False
            names = lambda of: [name.rpartition(".")[2] for name, _ in of]
            merged = [name for (l, a), name in zip(scope, names(scope)) if names(scope).count(name) == 1 and names(more).count(name) == 1
                      and any(r.endswith("." + name) and a == b for r, b in more)]
            if merged and self.wider(0.15):
                text, scope = f"{text} {kind} {right} using ({self.pick(merged)})", both
                continue
            text, scope = f"{text} {kind} {right} on {on}", both
        return text, scope

    def select(self, depth, types, outer=(), ctes=()):
        """One SELECT of columns with these types, and their names."""
        relation, scope = self.joined(depth, ctes)
        names = [f"c{place}" for place in range(len(types))]
        where = f" where {self.condition(scope, depth, outer)}" if self.chance(0.6) else ""
        if self.chance(0.3):
            keys = [self.pick(scope) for _ in range(self.r.randint(0, 2))]
            def item(ty):
                known = [name for name, of in keys if of == ty]
                return self.pick(known) if known and self.chance(0.6) else self.aggregate(scope, ty)
            items = [item(ty) for ty in types]
            listed = ", ".join(name for name, _ in keys)
            group = f" group by {listed}" if keys else ""
            if keys and self.wider(0.15):
                group = f" group by {self.pick([f'rollup ({listed})', f'cube ({listed})', f'grouping sets (({listed}), ())'])}"
            having = ""
            if self.chance(0.3):
                ty = self.pick(VALUES)
                having = f" having {self.aggregate(scope, ty)} {self.pick(COMPARE)} {self.constant(ty)}"
            listed = ", ".join(f"{item} as {name}" for item, name in zip(items, names))
            return f"select {listed} from {relation}{where}{group}{having}", names
        windows = self.chance(0.2)
        def item(ty):
            return self.window(scope, ty) if windows and self.chance(0.5) else self.value(scope, ty, max(depth, 1), outer)
        listed = ", ".join(f"{item(ty)} as {name}" for ty, name in zip(types, names))
        distinct = "distinct " if self.chance(0.15) else ""
        return f"select {distinct}{listed} from {relation}{where}", names

    def query(self, depth, types, outer=(), ctes=()):
        text, names = self.select(depth, types, outer, ctes)
        if depth > 0 and self.chance(0.2):
            word = self.pick(["union", "union all", "intersect", "intersect all", "except", "except all"])
            text = f"({text}) {word} ({self.select(depth - 1, types, outer, ctes)[0]})"
            if self.wider(0.25):
                word = self.pick(["union", "union all", "intersect", "except"])
                text = f"{text} {word} ({self.select(depth - 1, types, outer, ctes)[0]})"
        if self.chance(0.1):
            order = ", ".join(str(place + 1) + self.pick(["", " desc", " nulls first"]) for place in range(len(types)))
            offset = f" offset {self.r.randint(0, 2)}" if self.chance(0.3) else ""
            text = f"{text} order by {order} limit {self.r.randint(0, 5)}{offset}"
        return text, names

    def whole(self):
        self.names = 0
        ctes, written = [], []
        for _ in range(self.pick([0, 0, 0, 1, 2])):
            types = [self.pick(VALUES) for _ in range(self.r.randint(1, 3))]
            text, names = self.query(1, types, (), ctes)
            name = self.name("w")
            written.append(f"{name} as {self.pick(['', '', 'materialized ', 'not materialized '])}({text})")
            ctes.append((name, list(zip(names, types))))
        recursive = ""
        if self.wider(0.08):
            recursive = "recursive "
            name = self.name("w")
            again = self.pick([f"select c0 + 1, c1 from {name} where c0 < {self.r.randint(1, 5)}",
                               f"select t.b, t.s from {name} join t on t.a = {name}.c0"])
            # UNION ends it: there are few rows.
            written.append(f"{name} (c0, c1) as (select {self.r.randint(-1, 1)}, 'a'::text union {again})")
            ctes.append((name, [("c0", "int"), ("c1", "text")]))
        types = [self.pick(VALUES) for _ in range(self.r.randint(1, 4))]
        text, names = self.query(2, types, (), ctes)
        start = f"with {recursive}{', '.join(written)} " if written else ""
        order = ", ".join(str(place + 1) for place in range(len(types)))
        listed, distinct, end = "*", "", ""
        if self.wider(0.125):
            place = self.r.randrange(len(types))
            listed = f"*, {self.pick(FAILS[types[place]]).format('q.' + names[place])} as failing"
            # Without OFFSET PostgreSQL puts a column's constant into the expression and fails before there is a row.
            text = f"select * from ({text}) as p offset 0"
        elif self.wider(0.05):
            distinct = "distinct on (1) "
        elif self.wider(0.05):
            # All rows that tie with the last one come, in any order: the order of all columns says which.
            return f"{start}select * from (select * from ({text}) as p order by 1 fetch first {self.r.randint(0, 4)} rows with ties) as q order by {order}"
        elif self.wider(0.1):
            end = f" limit {self.r.randint(0, 6)} offset {self.r.randint(0, 2)}"
        return f"{start}select {distinct}{listed} from ({text}) as q order by {order}{end}"


# The tables of the large draw. Of `y` there are no rows.
LARGE = {
    "w": [("id", "int"), ("a", "int"), ("b", "int"), ("s", "text"), ("l", "text"), ("n", "numeric"), ("m", "numeric"), ("f", "float"),
          ("o", "bool"), ("d", "date")],
    "x": [("id", "int"), ("a", "int"), ("s", "text"), ("m", "numeric"), ("d", "date")],
    "y": [("a", "int"), ("s", "text"), ("n", "numeric"), ("d", "date")],
}
LARGE_ROWS = {"w": 1500, "x": 700}
LARGE_DEFINITIONS = [
    "create table w (id int primary key, a int, b int, s text, l text, n numeric(8,2), m numeric, f float8, o bool, d date)",
    "create index w_d_n on w (d desc, n)",
    "create table x (id int, a int, s text, m numeric, d date)",
    "create index x_a on x (a)",
    "create index x_s_d on x (s, d desc)",
    "create table y (a int, s text, n numeric, d date)",
]
NUMBERS = ["0", "1", "1.0", "1.00", "-1.5", "12345678901234567890.125", "1e-7", "'nan'", "'infinity'", "100", "1e2", "-0.00"]
FLOATS = ["0", "1.5", "-1.5", "'nan'", "'infinity'", "'-infinity'", "1e300", "1e-300", "0.1"]
TYPES = ["int", "text", "numeric", "bool", "date", "float"]
WAYS = ["", "", " desc", " nulls first", " desc nulls last"]


class Large(Source):
    """Queries over more rows, of fewer forms: sorts, groups, DISTINCT, set operations, windows, cursors, changes."""

    def __init__(self, seed):
        super().__init__(seed, wide=True)
        self.plain = True

    def rows(self):
        stems = ["", "a", "ab", "prefix ", "a longer prefix of texts ", "ärger ", "Ab"]
        words = [self.pick(stems) + self.pick(stems) + str(self.r.randint(0, 40)) for _ in range(150)]
        long = ["same start " * 12, "other " * 300, ""]
        def drawn(name, number):
            if name == "id":
                return str(number)
            if self.chance(0.6 if name == "l" else 0.12):
                return "null"
            return {
                "a": lambda: str(self.r.randint(-3, 35)),
                "b": lambda: str(self.r.randint(-5, 1500)),
                "s": lambda: repr(self.pick(words)),
                "l": lambda: repr(self.pick(long) + self.pick(words) * self.pick([1, 1, 20, 200])),
                "n": lambda: self.pick(["0", "1", "2.50", "-1.25", str(self.r.randint(-99999, 99999) / 100)]),
                "m": lambda: self.pick([*NUMBERS, str(self.r.randint(-999, 999)), str(self.r.randint(-99999, 99999) / 1000)]) + "::numeric",
                "f": lambda: self.pick([*FLOATS, str(self.r.randint(-999, 999) / 8)]) + "::float8",
                "o": lambda: self.pick(["true", "false"]),
                "d": lambda: f"date '2024-01-01' + {self.r.randint(0, 500)}",
            }[name]()
        for table, count in LARGE_ROWS.items():
            for begin in range(0, count, 50):
                made = [f"({', '.join(drawn(name, number) for name, _ in LARGE[table])})" for number in range(begin, begin + 50)]
                yield f"insert into {table} values {', '.join(made)}"

    def constant(self, ty):
        if ty == "float":
            return f"{self.pick(FLOATS)}::float8"
        return super().constant(ty)

    # Expressions.

    def item(self, scope, ty, depth=1):
        column = self.column(scope, ty)
        return column if column and self.chance(0.5) else self.value(scope, ty, depth)

    def where(self, scope, p=0.5):
        if not self.chance(p):
            return ""
        parts = [self.condition(scope, self.pick([1, 1, 2]))]
        if self.chance(0.3):
            parts.append(self.member(scope))
        if self.chance(0.2):
            parts.append(self.pick([column for column, _ in scope]) + self.pick([" is null", " is not null"]))
        return f" where {self.pick([' and ', ' and ', ' or ']).join(parts)}"

    def member(self, scope):
        ty = self.pick(["int", "text", "numeric", "date"])
        name, column = self.name("i"), {"int": "a", "text": "s", "numeric": "m", "date": "d"}[ty]
        inner = [(f"{name}.{column}", of) for column, of in LARGE["x"]]
        where = self.where(inner, 0.6) if self.chance(0.7) else ""
        value = self.item(scope, ty)
        return self.pick([
            lambda: f"{value} {self.pick(['', '', 'not '])}in (select {name}.{column} from x as {name}{where})",
            lambda: f"{value} {self.pick(COMPARE)} {self.pick(['any', 'all'])} (select {name}.{column} from x as {name}{where})",
            lambda: f"{self.pick(['', 'not '])}exists (select from x as {name} where {name}.id = {self.item(scope, 'int', 0)})",
        ])()

    def total(self, scope):
        """An aggregate and its type."""
        ty = self.pick(TYPES)
        value = self.item(scope, ty)
        where = f" filter (where {self.condition(scope, 1)})" if self.chance(0.15) else ""
        options = [(f"count({value}){where}", "bigint"), (f"count(distinct {value}){where}", "bigint"), (f"count(*){where}", "bigint")]
        if ty == "bool":
            options.append((f"bool_or({value}){where}", ty))
        else:
            options += [(f"{self.pick(['min', 'max'])}({value}){where}", ty)] * 2
        if ty in ("int", "numeric"):
            options += [(f"sum({value}){where}", "numeric"), (f"sum(distinct {value}){where}", "numeric"),
                        (f"round(avg({value}){where}, 4)", "numeric")]
        if ty == "text":
            options.append((f"string_agg({value}, ',' order by {value}{self.pick(WAYS)}){where}", ty))
            options.append((f"string_agg(distinct {value}, ',' order by {value}{self.pick(WAYS)}){where}", ty))
        # Of equal numbers any form may come first.
        if ty in ("int", "date"):
            options.append((f"array_agg({self.pick(['', 'distinct '])}{value} order by {value}{self.pick(WAYS)}){where}::text", "text"))
        return self.pick(options)

    # Relations and queries.

    def relation(self, depth, ctes=(), lateral=()):
        alias = self.name("r")
        kind = self.r.random()
        if depth > 0 and kind < 0.3:
            types = [self.pick(TYPES) for _ in range(self.r.randint(1, 4))]
            text, names, types = self.some(depth - 1, types)
            return f"({text}) as {alias}", [(f"{alias}.{name}", ty) for name, ty in zip(names, types)]
        table = "w" if kind < 0.75 else "x"
        return f"{table} as {alias}", [(f"{alias}.{column}", ty) for column, ty in LARGE[table]]

    def joined(self, depth, ctes=()):
        text, scope = self.relation(depth)
        if not self.chance(0.3):
            return text, scope
        # One side has each key once.
        table, alias = self.pick(["w", "x"]), self.name("r")
        more = [(f"{alias}.{column}", ty) for column, ty in LARGE[table]]
        kind = self.pick(JOINS)
        on = f"{self.column(scope, 'int') or self.constant('int')} = {alias}.id"
        if kind == "full join" and not self.column(scope, "int"):
            kind = "left join"
        if kind != "full join" and self.chance(0.3):
            on += f" and {self.condition([*scope, *more], 1)}"
        return f"{text} {kind} {table} as {alias} on {on}", [*scope, *more]

    def grouped(self, depth, types):
        """A query with GROUP BY: it has types of its own."""
        relation, scope = self.joined(depth)
        keys = [self.pick(scope) if self.chance(0.7) else (self.item(scope, ty), ty) for ty in self.r.sample(TYPES, self.pick([0, 1, 1, 2, 3]))]
        totals = [self.total(scope) for _ in range(self.r.randint(0 if keys else 1, 3))]
        group = f" group by {', '.join(str(place + 1) for place in range(len(keys)))}" if keys else ""
        if self.chance(0.1) and keys:
            listed = ", ".join(name for name, _ in keys)
            group = f" group by {self.pick([f'rollup ({listed})', f'cube ({listed})', f'grouping sets (({listed}), ())'])}"
        having = f" having count(*) {self.pick(COMPARE)} {self.r.randint(1, 4)}" if self.chance(0.2) else ""
        names = [f"c{place}" for place in range(len(keys) + len(totals))]
        items = ", ".join(f"{item} as {name}" for (item, _), name in zip([*keys, *totals], names))
        return f"select {items} from {relation}{self.where(scope)}{group}{having}", names, [ty for _, ty in [*keys, *totals]]

    def plainly(self, depth, types):
        relation, scope = self.joined(depth)
        names = [f"c{place}" for place in range(len(types))]
        items = ", ".join(f"{self.item(scope, ty)} as {name}" for ty, name in zip(types, names))
        return f"select {self.pick(['', '', 'distinct '])}{items} from {relation}{self.where(scope)}", names, types

    def combined(self, depth, types):
        text, names, _ = self.plainly(depth, types)
        for _ in range(self.pick([1, 1, 2])):
            word = self.pick(["union", "union all", "intersect", "intersect all", "except", "except all"])
            text = f"({text}) {word} ({self.plainly(depth, types)[0]})"
        return text, names, types

    def windowed(self, depth, types):
        relation, scope = self.joined(depth)
        scope = [(name, ty) for name, ty in scope if ty != "float"]
        if not scope:
            return self.plainly(depth, types)
        types = [ty for ty in types if ty != "float"] or ["int"]
        names = [f"c{place}" for place in range(len(types))]
        make = lambda ty: self.window(scope, ty) if self.chance(0.6) else self.item(scope, ty)
        items = ", ".join(f"{make(ty)} as {name}" for ty, name in zip(types, names))
        return f"select {items} from {relation}{self.where(scope)}", names, types

    def some(self, depth, types):
        """A query in which the order of the rows does not matter, its names and types."""
        form = self.pick([self.grouped, self.grouped, self.plainly, self.plainly, self.combined, self.windowed])
        text, names, types = form(depth, types)
        if self.chance(0.15):
            order = ", ".join(str(place + 1) + self.pick(WAYS) for place in self.r.sample(range(len(types)), len(types)))
            text = f"select * from ({text}) as p order by {order} limit {self.pick([0, 1, 10, 100, 1000])}"
        return text, names, types

    def ordered(self, depth, types):
        """A query whose rows come in one order."""
        kind = self.r.random()
        if kind < 0.45:
            relation, scope = self.joined(depth)
            names = [f"c{place}" for place in range(len(types))]
            items = ", ".join(f"{self.item(scope, ty)} as {name}" for ty, name in zip(types, names))
            keys = [self.item(scope, self.pick(TYPES)) for _ in range(self.r.randint(0, 3))]
            # A constant would be a place in the select list.
            keys = [f"coalesce({key})" + self.pick(WAYS) for key in keys]
            text = f"select {items} from {relation}{self.where(scope)}"
        elif kind < 0.6:
            relation, scope = self.joined(depth)
            on = [self.pick(scope) for _ in range(self.r.randint(1, 2))]
            types = [ty for _, ty in on] + types
            listed = [name for name, _ in on] + [self.item(scope, ty) for ty in types[len(on):]]
            items = ", ".join(f"{item} as c{place}" for place, item in enumerate(listed))
            chosen = ", ".join(name for name, _ in on)
            keys = [name + self.pick(WAYS) for name, _ in on]
            text = f"select distinct on ({chosen}) {items} from {relation}{self.where(scope)}"
        else:
            text, _, types = self.some(depth, types)
            text, keys = f"select * from ({text}) as q", []
        places = self.r.sample(range(len(types)), len(types))
        text = f"{text} order by {', '.join([*keys, *(str(place + 1) + self.pick(WAYS) for place in places)])}"
        if self.chance(0.35):
            text += f" limit {self.pick([0, 1, 10, 100, 900])}" + self.pick(["", "", f" offset {self.pick([1, 50, 1000])}"])
        elif self.chance(0.1):
            text += f" offset {self.pick([1, 50, 1000])}"
        return text

    def change(self):
        """A statement that changes `w` or fills `y`."""
        scope = [(f"w.{column}", ty) for column, ty in LARGE["w"]]
        kind = self.r.random()
        if kind < 0.4:
            # The type of `n` here has no NaN.
            sets = self.r.sample([column for column in LARGE["w"] if column[0] not in ("id", "n")], self.r.randint(1, 3))
            sets = ", ".join(f"{name} = {self.item(scope, ty)}" for name, ty in sets)
            return f"update w set {sets}{self.where(scope)} returning id, a, b, s, n, m, d"
        if kind < 0.6:
            return f"delete from w{self.where(scope, 0.9)} returning *"
        text = self.pick([self.plainly, self.combined])(1, [ty for _, ty in LARGE["y"]])[0]
        return f"insert into y {text} returning *"

    def fetches(self, name, scroll):
        for _ in range(self.r.randint(2, 6)):
            count = self.pick([1, 7, 64, 65, 300, 2000])
            ways = [f"forward {count}", f"forward {count}", f"forward {count}", "next"]
            if scroll:
                ways += [f"backward {count}", f"absolute {count}", f"absolute -{count}", f"relative -{count}", "prior", "first", "last"]
            yield f"{self.pick(['fetch', 'fetch', 'move'])} {self.pick(ways)} from {name}"
        yield f"fetch all from {name}"

    def whole(self):
        """Statements, each with whether its rows come in one order."""
        self.names = 0
        types = [self.pick(TYPES) for _ in range(self.r.randint(1, 4))]
        kind = self.r.random()
        if kind < 0.45:
            return [(self.ordered(1, types), True)]
        if kind < 0.75:
            return [(self.some(1, types)[0], False)]
        if kind < 0.8:
            relation, scope = self.relation(0)
            ty = self.pick(FAILS)
            failing = self.pick(FAILS[ty]).format(self.column(scope, ty) or self.constant(ty))
            forms = [f"select count({failing}) from {relation}", f"select count(*) from {relation} where ({failing}) is not null",
                     f"select {failing} as failing from {relation}", f"select distinct {failing} as failing from {relation}",
                     f"select {self.column(scope, 'int')} as c, max(({failing})::text) from {relation} group by 1",
                     f"select {self.column(scope, 'int')} as c from {relation} order by {failing}, 1"]
            return [(self.pick(forms), False)]
        statements = [("begin", True)]
        if kind < 0.9:
            scroll = self.chance(0.5)
            text = self.ordered(1, types)
            if self.chance(0.3):
                text = f"select {self.pick(['*', 'id, s, m', 'd, a, id'])} from w order by id{self.pick(WAYS)}"
            word = self.pick(["scroll ", "", ""]) if scroll else "no scroll "
            scroll = scroll and word == "scroll "
            statements.append((f"declare c {word}cursor for {text}", True))
            steps = [(step, True) for step in self.fetches("c", scroll)]
            if self.chance(0.4):
                steps.insert(self.r.randint(0, len(steps)), (self.change(), False))
            statements += [*steps, ("close c", True)]
        else:
            statements += [(self.change(), False) for _ in range(self.r.randint(1, 2))]
            statements.append((self.ordered(1, types), True))
            statements.append(("select * from y order by a, s desc, n, d", True))
        return [*statements, ("rollback", True)]


def untied(columns, rows, ordered):
    """The answer with equal numbers written alike: 1.0 and 1.00 tie, so either may stand first, be the least, or be the one that
    DISTINCT keeps. Rows without an order are sorted."""
    if not isinstance(columns, list):
        return columns, rows
    numbers = [place for place, (_, ty) in enumerate(columns) if ty == NUMERIC]
    plain = [[normal(value) if place in numbers else value for place, value in enumerate(row)] for row in rows]
    if ordered:
        return columns, plain
    return columns, sorted(plain, key=lambda row: [(value is None, value or b"") for value in row])


def normal(number):
    return number if number is None else str(decimal.Decimal(number.decode()).normalize()).encode()


def compare(source, tables, definitions, count, port, settings):
    import psycopg
    F = psycopg.pq.DiagnosticField
    def asked(connection, text):
        result = connection.exec_(text.encode())
        if result.status == psycopg.pq.ExecStatus.COMMAND_OK:
            return [], [[result.command_status]]
        if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
            return (result.error_field(F.SQLSTATE) or b"").decode(), (result.error_field(F.MESSAGE_PRIMARY) or b"").decode()
        columns = [(result.fname(place), result.ftype(place)) for place in range(result.nfields)]
        rows = [[result.get_value(row, place) for place in range(result.nfields)] for row in range(result.ntuples)]
        return columns, rows
    theirs = psycopg.connect("", autocommit=True).pgconn
    ours = psycopg.connect(f"host=127.0.0.1 port={port} user=postgres dbname=postgres", autocommit=True).pgconn
    for connection in (theirs, ours):
        for table in tables:
            connection.exec_(f"drop table if exists {table}".encode())
        connection.exec_(b"set statement_timeout = '20s'")
    for statement in [*definitions, *source.rows(), *settings]:
        for connection in (theirs, ours):
            assert connection.exec_(statement.encode()).status == psycopg.pq.ExecStatus.COMMAND_OK, statement
    counts = {"same": 0, "same error": 0, "refused by name": 0, "too long": 0, "different": 0}
    refusals = collections.Counter()
    for _ in range(count):
        drawn = source.whole()
        statements = [(drawn, True)] if isinstance(drawn, str) else drawn
        for place, (text, ordered) in enumerate(statements):
            expected, found = asked(theirs, text), asked(ours, text)
            if isinstance(expected[0], str) and expected[0] == found[0]:
                kind = "same error"
            elif expected == found or untied(*expected, ordered) == untied(*found, ordered):
                kind = "same"
            elif found[0] == "0A000":
                kind = "refused by name"
                refusals[found[1]] += 1
            elif "57014" in (expected[0], found[0]):
                kind = "too long"
            else:
                kind = "different"
                before = "".join(f"{text};\n" for text, _ in statements[:place])
                print(f"{before}{text};\n  PostgreSQL: {shown(expected)}\n  here:       {shown(found)}", flush=True)
            if kind != "same":
                for connection in (theirs, ours):
                    connection.exec_(b"rollback")
                break
        counts[kind] += 1
    for message, times in refusals.most_common():
        print(f"refused {times} times: {message}")
    print(f"{count} queries: {counts}")
    return counts["different"] > 0


def shown(answer):
    """An answer, or its beginning."""
    text = repr(answer)
    return text if len(text) < 4000 else f"{text[:4000]} … {len(answer[1])} rows"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("port", nargs="?")
    parser.add_argument("--large", action="store_true", help="more rows, other forms")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of both sessions")
    # The port stands behind the options.
    args = parser.parse_intermixed_args()
    if args.port:
        source = Large(args.seed) if args.large else Source(args.seed, 0.1, wide=True)
        tables, definitions = (LARGE, LARGE_DEFINITIONS) if args.large else (TABLES, DEFINITIONS)
        settings = ["set {} = '{}'".format(*setting.split("=", 1)) for setting in args.set]
        return compare(source, tables, definitions, args.count, args.port, settings)
    source = Source(args.seed)
    print(f"-- Random queries: queries.py {args.seed} {args.count}.")
    for statement in [*DEFINITIONS, *source.rows()]:
        print(f"> {statement}")
    # Long ones would fill the file.
    short = (text for text in iter(source.whole, None) if len(text) < 600)
    for text, _ in zip(short, range(args.count)):
        print(f"-- only the code\n> {text}")


if __name__ == "__main__":
    sys.exit(main())
