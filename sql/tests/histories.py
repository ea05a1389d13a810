#!/usr/bin/env python3
"""Draws histories of several sessions that lock, change and insert the same few rows, and records what PostgreSQL answers.

    sql/tests/with_postgres.sh sql/tests/histories.py SEED COUNT LEVEL > sql/tests/histories/LEVEL.txt

LEVEL is read_committed, repeatable_read or serializable. A history behind each `history NUMBER`, a step behind each `a> `, and below it all
answers that the step brings, each behind its session's letter:
    a| 1 2      a row, values separated by a space, null is \\N; rows stand in order if the statement orders them
    a# TAG      the command tag, which ends an answer
    a! CODE     the SQLSTATE of an error, which ends an answer
    a~          the statement waits for another session; its answer stands below the step that lets it go
PostgreSQL may answer a history in several ways, by which of two sessions wakes first. Each is played three times, and another
one is drawn in its stead where the answers differ. Needs psycopg (pip install "psycopg[binary]").
"""
import random
import sys
import time

import psycopg
from psycopg.pq import ExecStatus

# A session waits if PostgreSQL says so for so long, by which it has looked for a deadlock.
DEADLOCK_MS = 25
WAITS_S = 0.08
LETTERS = "abcd"
MEETS = ["~", "! 40001", "! 40P01", "! 55P03"]


class Draw:
    """Draws the statements of a history."""

    def __init__(self, seed, level):
        self.random = random.Random(seed)
        self.level = level
        # The next new number of a child.
        self.child = 10

    def key(self):
        return self.random.choice([1, 1, 1, 2, 2, 2, 3, 4])

    def keys(self):
        first = self.random.choice([1, 1, 2])
        return f"{first}, {first + 1}"

    def unique(self):
        return self.random.choice([10, 20, 30, 40])

    def strength(self):
        wait = self.random.choices(["", " nowait", " skip locked"], [8, 1.5, 1.5])[0]
        return self.random.choice(["update", "no key update", "share", "key share"]) + wait

    def statement(self):
        kinds = {
            self.read: 3, self.locked: 6, self.update: 6, self.change_key: 1, self.delete: 2, self.insert: 2, self.upsert: 5,
            self.add_child: 3, self.change_child: 2, self.advisory: 2, self.lock_table: 0.2,
        }
        return self.random.choices(list(kinds), list(kinds.values()))[0]()

    def read(self):
        return self.random.choice([
            f"select id, u, n from t where id = {self.key()}",
            "select id, n from t order by id",
            "select count(*), sum(n) from t",
            f"select n from t where u = {self.unique()}",
            f"select id, p from c where p = {self.key()} order by id",
        ])

    def locked(self):
        return self.random.choice([
            f"select id, n from t where id = {self.key()} for {self.strength()}",
            f"select id, n from t where id = {self.key()} for {self.strength()}",
            f"select id, n from t where id in ({self.keys()}) order by id for {self.strength()}",
            f"select id from t where id > {self.key()} order by id limit 1 for {self.strength()}",
            f"select id, u from t where u = {self.unique()} and n < 5 for {self.strength()}",
            f"select c.id, t.n from c join t on t.id = c.p where t.id = {self.key()} order by c.id for {self.strength()}",
        ])

    def update(self):
        key, more = self.key(), self.random.randint(1, 9)
        return self.random.choice([
            f"update t set n = n + {more} where id = {key}",
            f"update t set n = n + {more} where id = {key} returning id, n",
            f"update t set n = {more} where id = {key} and n < 5",
            f"update t set n = n + {more} where id in ({self.keys()})",
            f"update t set n = n * 2 where u = {self.unique()}",
            f"update t set n = (select sum(n) from t) where id = {key}",
        ])

    def change_key(self):
        return self.random.choice([
            f"update t set u = {self.unique()} where id = {self.key()}",
            f"update t set u = u + 1 where id = {self.key()} returning u",
            f"update t set id = {self.key()} where id = {self.key()}",
        ])

    def delete(self):
        return self.random.choice([
            f"delete from t where id = {self.key()}",
            f"delete from t where id = {self.key()} returning id, n",
            f"delete from t where u = {self.unique()} and n > 3",
        ])

    def row(self):
        key = self.key()
        unique = key * 10 if self.random.random() < 0.8 else self.unique()
        return f"({key}, {unique}, {self.random.randint(1, 9)})"

    def insert(self):
        return f"insert into t values {self.row()}"

    def upsert(self):
        return f"insert into t values {self.row()} on conflict " + self.random.choice([
            "do nothing",
            "(id) do nothing",
            "(u) do nothing returning id",
            "(id) do update set n = t.n + excluded.n",
            "(id) do update set n = t.n + excluded.n returning id, n",
            "(id) do update set n = excluded.n where t.n < 5",
            "(u) do update set n = t.n + 1 returning id, n",
            "(id) do update set u = excluded.u",
        ])

    def add_child(self):
        self.child += 1
        return f"insert into c values ({self.child}, {self.key()})"

    def change_child(self):
        child = self.random.choice([1, 2, 11, 12])
        return self.random.choice([
            f"delete from c where id = {child}",
            f"update c set p = {self.key()} where id = {child}",
            f"delete from c where p = {self.key()}",
        ])

    def advisory(self):
        call = self.random.choices(["pg_advisory_xact_lock", "pg_advisory_xact_lock_shared", "pg_try_advisory_xact_lock"], [3, 1, 1])
        return f"select {call[0]}({self.random.choice([1, 2])})"

    def lock_table(self):
        return f"lock table {self.random.choice('tc')} in access share mode"

    def program(self):
        """What a session says, one transaction after the other."""
        said = []
        for _ in range(self.random.choice([1, 1, 2])):
            if self.random.random() < 0.15:
                # A transaction of its own.
                statement = self.statement()
                said.append(statement if not statement.startswith("lock") else self.update())
                continue
            said.append(f"begin isolation level {self.level}")
            saved = False
            for _ in range(self.random.randint(2, 5)):
                if not saved and self.random.random() < 0.12:
                    said.append("savepoint s")
                    saved = True
                said.append(self.statement())
                if saved and self.random.random() < 0.25:
                    said.append("rollback to s")
            said.append("commit" if self.random.random() < 0.85 else "rollback")
        return said

    def schema(self):
        action = self.random.choice(["", "", " on delete cascade", " on delete set null", " on update cascade"])
        return [
            "create table t (id int primary key, u int unique, n int)",
            f"create table c (id int primary key, p int references t{action})",
            "insert into t values (1, 10, 1), (2, 20, 2), (3, 30, 3)",
            "insert into c values (1, 1)" + self.random.choice(["", ", (2, 2)"]),
        ]

    def history(self):
        """The schema, each session's program, and in which order they speak."""
        count = self.random.choice([2, 2, 2, 3, 3, 4])
        programs = [self.program() for _ in range(count)]
        turns = [number for number, program in enumerate(programs) for _ in program]
        self.random.shuffle(turns)
        return self.schema(), programs, turns


class Client:
    """A session of PostgreSQL that answers when it can."""

    def __init__(self):
        self.connection = psycopg.connect("", autocommit=True)
        self.pg = self.connection.pgconn
        self.pid = self.pg.backend_pid
        self.busy = False

    def send(self, text):
        self.pg.send_query(text.encode())
        self.busy, self.blockers, self.since = True, None, 0

    def take(self):
        """The answer's lines, if it has come."""
        self.pg.consume_input()
        if self.pg.is_busy():
            return None
        lines = []
        while result := self.pg.get_result():
            if result.status == ExecStatus.FATAL_ERROR:
                lines.append("! " + result.error_field(psycopg.pq.DiagnosticField.SQLSTATE).decode())
                continue
            for row in range(result.ntuples):
                values = [result.get_value(row, column) for column in range(result.nfields)]
                lines.append("| " + " ".join("\\N" if value is None else value.decode() for value in values))
            lines.append("# " + result.command_status.decode())
        self.busy = False
        return lines

    def failed(self):
        return self.pg.transaction_status == psycopg.pq.TransactionStatus.INERROR


def settle(control, clients):
    """Waits until each session has answered, or waits for another one. Answers by session."""
    answers = {}
    while True:
        unsettled = False
        for number, client in enumerate(clients):
            if not client.busy:
                continue
            lines = client.take()
            if lines is not None:
                answers[number] = lines
                # It may have let others go that have been looked at.
                unsettled = True
                continue
            blockers = control.execute("select pg_blocking_pids(%s)", [client.pid]).fetchone()[0]
            if blockers != client.blockers:
                client.blockers, client.since = blockers, time.monotonic()
            unsettled |= not blockers or time.monotonic() - client.since < WAITS_S
        if not unsettled:
            return answers
        time.sleep(0.001)


def play(control, history, clients):
    """The lines of a history."""
    schema, programs, turns = history
    control.execute("drop table if exists c, t")
    for statement in schema:
        control.execute(statement)
    programs = [list(program) for program in programs]
    out = ["> " + statement for statement in schema]
    turns = list(turns)
    while any(programs):
        able = [number for number, client in enumerate(clients) if programs[number] and not client.busy]
        if not able:
            return None
        number = next((turn for turn in turns if turn in able), able[0])
        if number in turns:
            turns.remove(number)
        program, client = programs[number], clients[number]
        statement = program.pop(0)
        while client.failed() and statement not in ("commit", "rollback", "rollback to s"):
            statement = program.pop(0)
        letter = LETTERS[number]
        out.append(f"{letter}> {statement}")
        client.send(statement)
        answers = settle(control, clients)
        if number not in answers:
            out.append(f"{letter}~")
        for other in sorted(answers, key=lambda other: (other != number, other)):
            out += [LETTERS[other] + line for line in answers[other]]
    if any(client.busy for client in clients):
        return None
    for table in "tc":
        statement = f"select * from {table} order by id"
        out.append("a> " + statement)
        clients[0].send(statement)
        out += ["a" + line for line in settle(control, clients)[0]]
    return out


def main():
    seed, count, level = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].replace("_", " ")
    control = psycopg.connect("", autocommit=True)
    for setting in [f"deadlock_timeout = '{DEADLOCK_MS}ms'", "autovacuum = off", "jit = off", "enable_seqscan = off", "enable_bitmapscan = off",
                    "enable_hashjoin = off", "enable_mergejoin = off"]:
        control.execute("alter system set " + setting)
    control.execute("select pg_reload_conf()")
    time.sleep(0.2)
    out, number, drawn, unsure = [], 0, 0, 0
    while number < count:
        drawn += 1
        history = Draw(f"{seed} {level} {drawn}", level).history()
        lines = []
        for _ in range(3):
            clients = [Client() for _ in history[1]]
            lines.append(play(control, history, clients))
            for client in clients:
                client.connection.close()
            if lines[-1] is None or lines[-1] != lines[0]:
                break
        if lines[-1] is None or lines[-1] != lines[0]:
            unsure += 1
            continue
        # Histories in which no session meets another one say nothing; those with a deadlock are rare.
        met = {line[1:] for line in lines[0]}
        if not met.intersection(MEETS) or ("! 40P01" not in met and drawn % 2):
            continue
        number += 1
        out += [f"history {number}"] + lines[0] + [""]
    print("\n".join(out))
    print(f"{number} of {drawn} drawn, {unsure} depend on time", file=sys.stderr)


if __name__ == "__main__":
    main()
