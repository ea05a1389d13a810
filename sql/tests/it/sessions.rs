//! Sessions as programs use them: parameters, prepared statements, transactions of several sessions, definitions between.

use thermocline_engine::{Database, Options};
use thermocline_sql::{Answer, Datum, Session, Type};

fn database() -> Database {
    Database::open_in_memory(Options::default().with_memory_limit(Some(256 << 20))).expect("it opens")
}

fn run(session: &mut Session, text: &str) -> Answer {
    session.execute(text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn code(session: &mut Session, text: &str) -> &'static str {
    session.execute(text, &[]).expect_err(text).code
}

fn one(session: &mut Session, text: &str) -> String {
    run(session, text).text(0, 0).unwrap_or_else(|| "null".to_owned())
}

#[test]
fn parameters_get_their_types_from_where_they_stand() {
    let db = database();
    let mut session = Session::new(&db);
    run(&mut session, "create table t (id bigint primary key, name varchar(20), at date)");
    let prepared = session.prepare("insert into t values ($1, $2, $3)", &[]).expect("it binds");
    assert_eq!(prepared.parameters(), [Type::Int8, Type::Varchar, Type::Date]);
    let prepared = session.prepare("select $1 + 1, $2 || 'x', $3", &[]).expect("it binds");
    assert_eq!(prepared.parameters(), [Type::Int4, Type::Text, Type::Text]);
    let answer =
        session.execute("insert into t values ($1, $2, null) returning id", &[Datum::Int(7), Datum::Null]);
    assert_eq!(answer.expect("it runs").rows, [[Datum::Int(7)]]);
    let error = session.execute("select * from t where id = $1", &[]).expect_err("no value");
    assert_eq!(error.code, "08P01");
    let error =
        session.execute("select * from t where id = $1", &[Datum::Bool(true)]).expect_err("no number");
    assert_eq!(error.code, "42804");
}

#[test]
fn a_prepared_statement_follows_definitions() {
    let db = database();
    let mut session = Session::new(&db);
    run(&mut session, "create table t (id int primary key, a int)");
    run(&mut session, "insert into t values (1, 10), (2, 20)");
    let mut prepared = session.prepare("select * from t where id = $1", &[]).expect("it binds");
    let answer = session.execute_prepared(&mut prepared, &[Datum::Int(2)]).expect("it runs");
    assert_eq!(answer.rows, [[Datum::Int(2), Datum::Int(20)]]);
    run(&mut session, "alter table t add column b int default 5");
    let answer = session.execute_prepared(&mut prepared, &[Datum::Int(2)]).expect("it runs");
    assert_eq!(answer.rows, [[Datum::Int(2), Datum::Int(20), Datum::Int(5)]]);
    run(&mut session, "drop table t");
    let error = session.execute_prepared(&mut prepared, &[Datum::Int(2)]).expect_err("it is gone");
    assert_eq!(error.code, "42P01");
}

#[test]
fn a_failed_transaction_waits_for_its_end() {
    let db = database();
    let mut session = Session::new(&db);
    run(&mut session, "create table t (id int primary key)");
    run(&mut session, "begin");
    run(&mut session, "insert into t values (1)");
    run(&mut session, "savepoint s");
    assert_eq!(code(&mut session, "insert into t values (1)"), "23505");
    assert_eq!(session.status(), 'E');
    assert_eq!(code(&mut session, "select 1"), "25P02");
    run(&mut session, "rollback to s");
    run(&mut session, "insert into t values (2)");
    assert_eq!(code(&mut session, "select 1 / 0"), "22012");
    assert_eq!(run(&mut session, "commit").tag, "ROLLBACK");
    assert_eq!(one(&mut session, "select count(*) from t"), "0");
    run(&mut session, "begin");
    assert_eq!(code(&mut session, "create table u (id int)"), "25001");
    run(&mut session, "rollback");
}

/// Without the comparison with the row that was read, the second increment would be computed from what the first one replaced.
#[test]
fn no_increment_is_lost_at_read_committed() {
    let db = database();
    let mut session = Session::new(&db);
    run(&mut session, "create table t (id int primary key, n int not null)");
    run(&mut session, "insert into t values (1, 0)");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut session = Session::new(&db);
                for round in 0..50 {
                    let alone = round % 2 == 0;
                    if !alone {
                        run(&mut session, "begin");
                    }
                    run(&mut session, "update t set n = n + 1 where id = 1");
                    if !alone {
                        run(&mut session, "commit");
                    }
                }
            });
        }
    });
    assert_eq!(one(&mut session, "select n from t"), "200");
}

#[test]
fn an_update_does_not_meet_its_own_writes() {
    let db = database();
    let mut session = Session::new(&db);
    run(&mut session, "create table t (id int primary key, n int)");
    run(&mut session, "create index on t (n)");
    run(&mut session, "insert into t select g, g from generate_series(1, 100) g");
    assert_eq!(run(&mut session, "update t set n = n + 50 where n > 0").tag, "UPDATE 100");
    assert_eq!(one(&mut session, "select sum(n) from t"), "10050");
    assert_eq!(run(&mut session, "insert into t select id + 100, n from t").tag, "INSERT 0 100");
    assert_eq!(run(&mut session, "delete from t where n > (select avg(n) from t)").tag, "DELETE 100");
}

#[test]
fn tables_without_a_primary_key_change_too() {
    let db = database();
    let mut session = Session::new(&db);
    run(&mut session, "create table t (a int, b text)");
    run(&mut session, "insert into t values (1, 'x'), (1, 'x'), (2, null)");
    assert_eq!(run(&mut session, "update t set b = 'y' where a = 1").tag, "UPDATE 2");
    assert_eq!(run(&mut session, "select * from t").columns.len(), 2);
    assert_eq!(run(&mut session, "delete from t where b is null").tag, "DELETE 1");
    assert_eq!(one(&mut session, "select count(*) from t where b = 'y'"), "2");
}

/// Nothing that depends on the time is computed when a statement is bound.
#[test]
fn the_time_is_that_of_the_transaction() {
    let db = database();
    let clock = std::sync::Arc::new(thermocline_base::clock::ManualClock::new(1_700_000_000_000_000));
    let mut session = Session::with_clock(&db, clock.clone());
    assert_eq!(one(&mut session, "select now()"), "2023-11-14 22:13:20+00");
    assert_eq!(one(&mut session, "select now()::date + 1"), "2023-11-15");
    assert_eq!(
        one(&mut session, "select date_trunc('hour', now()) - interval '1 hour'"),
        "2023-11-14 21:00:00+00"
    );
    let mut prepared = session.prepare("select 'today'::date, current_timestamp", &[]).expect("it binds");
    run(&mut session, "begin");
    clock.advance(std::time::Duration::from_secs(86_400));
    assert_eq!(one(&mut session, "select now()"), "2023-11-14 22:13:20+00");
    assert_eq!(one(&mut session, "select statement_timestamp()"), "2023-11-15 22:13:20+00");
    run(&mut session, "commit");
    let answer = session.execute_prepared(&mut prepared, &[]).expect("it runs");
    assert_eq!(answer.text(0, 0).as_deref(), Some("2023-11-15"));
    assert_eq!(answer.text(0, 1).as_deref(), Some("2023-11-15 22:13:20+00"));
}

/// What is not there yet says so, and is nothing else.
#[test]
fn what_is_missing_is_refused_by_name() {
    let db = database();
    let mut session = Session::new(&db);
    run(&mut session, "create table t (id int primary key, a int)");
    for text in [
        "select sum(a) over () from t",
        "select * from t for update",
        "select * from t group by rollup (a)",
        "with recursive x as (select 1) select * from x",
        "select array[1, 2]",
        "select '{}'::jsonb",
        "create view v as select 1",
        "create table u (a numeric)",
        "create table u (a int references t)",
        "create table u (a int check (a > 0))",
        "create table u (a timestamptz default now())",
        "create index on t (lower(a::text))",
        "create index on t (a) where a > 0",
        "alter table t add constraint c check (a > 0)",
        "copy t from stdin",
        "merge into t using t s on true when matched then do nothing",
        "prepare p as select 1",
        "listen x",
        "lock table t",
        "set timezone to 'Europe/Berlin'",
    ] {
        let error = session.execute(text, &[]).expect_err(text);
        assert_eq!(error.code, "0A000", "{text}: {error}");
    }
}

#[test]
fn snapshots_stand_still_at_repeatable_read() {
    let db = database();
    let (mut a, mut b) = (Session::new(&db), Session::new(&db));
    run(&mut a, "create table t (id int primary key, n int)");
    run(&mut a, "insert into t values (1, 0)");
    run(&mut a, "begin isolation level repeatable read");
    assert_eq!(one(&mut a, "select n from t"), "0");
    run(&mut b, "update t set n = 1");
    assert_eq!(one(&mut a, "select n from t"), "0");
    assert_eq!(code(&mut a, "update t set n = 2"), "40001");
    run(&mut a, "rollback");
    run(&mut a, "begin");
    assert_eq!(one(&mut a, "show transaction isolation level"), "read committed");
    run(&mut b, "update t set n = 3");
    assert_eq!(one(&mut a, "select n from t"), "3");
    run(&mut a, "commit");
}
