//! Sessions as programs use them: parameters, prepared statements, transactions of several sessions, definitions between.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use thermocline_engine::{Database, Options};
use thermocline_sql::{Answer, Datum, Session, Type};

pub(crate) fn database() -> Database {
    let options = Options::default().with_memory_limit(Some(256 << 20));
    // However busy the machine is, a definition waits for its turn.
    Database::open_in_memory(options.with_definition_wait(Duration::from_secs(3600))).expect("it opens")
}

pub(crate) fn run(session: &mut Session, text: &str) -> Answer {
    session.execute(text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(crate) fn code(session: &mut Session, text: &str) -> &'static str {
    session.execute(text, &[]).expect_err(text).code
}

pub(crate) fn one(session: &mut Session, text: &str) -> String {
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
}

/// Definitions stand in transactions as rows do: PostgreSQL's answers are in `definitions.golden`; here two sessions.
#[test]
fn definitions_are_seen_when_they_are_committed() {
    let db = database();
    let (mut one_session, mut other) = (Session::new(&db), Session::new(&db));
    run(&mut one_session, "create table t (id int primary key, a int)");
    run(&mut one_session, "insert into t select i, i from generate_series(1, 5) i");
    let mut prepared = other.prepare("insert into t values ($1, $2)", &[]).expect("it binds");
    run(&mut one_session, "begin");
    run(
        &mut one_session,
        "create table u (id serial primary key, t int references t, made timestamp default now())",
    );
    run(&mut one_session, "insert into u (t) values (1), (2)");
    assert_eq!(one(&mut one_session, "select max(id) from u"), "2");
    assert_eq!(code(&mut other, "select * from u"), "42P01");
    assert_eq!(one(&mut other, "select count(*) from pg_class where relname = 'u'"), "0");
    run(&mut one_session, "commit");
    assert_eq!(one(&mut other, "select count(*) from u"), "2");
    // A statement that was prepared before a constraint is bound anew, whatever it was told when it was prepared.
    run(&mut one_session, "begin");
    run(&mut one_session, "alter table t add constraint small check (a < 10)");
    run(&mut one_session, "commit");
    let error =
        other.execute_prepared(&mut prepared, &[Datum::Int(6), Datum::Int(60)]).expect_err("it is large");
    assert_eq!(error.code, "23514");
    other.execute_prepared(&mut prepared, &[Datum::Int(6), Datum::Int(6)]).expect("it is small");
    // What fails in the middle leaves nothing.
    run(&mut one_session, "begin");
    run(&mut one_session, "alter table t add column b int default 7, drop column a");
    run(&mut one_session, "truncate t, u");
    run(&mut one_session, "drop table u");
    assert_eq!(code(&mut one_session, "select 1 / 0"), "22012");
    run(&mut one_session, "rollback");
    assert_eq!(one(&mut other, "select sum(a) from t"), "21");
    assert_eq!(one(&mut other, "select count(*) from u"), "2");
}

/// While a constraint is checked in an open transaction, a writer that was bound before waits, and is bound anew.
#[test]
fn a_writer_waits_for_a_constraint_and_keeps_it() {
    let db = database();
    let mut definer = Session::new(&db);
    run(&mut definer, "create table t (id int primary key, a int)");
    run(&mut definer, "begin");
    run(&mut definer, "alter table t add constraint small check (a < 10)");
    let writer = std::thread::spawn({
        let db = db.clone();
        move || {
            let mut session = Session::new(&db);
            code(&mut session, "insert into t values (1, 100)")
        }
    });
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!writer.is_finished(), "it waits");
    run(&mut definer, "commit");
    assert_eq!(writer.join().expect("no panic"), "23514");
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
    run(&mut session, "create table arrays (n int, a int[])");
    for text in [
        "select * from t group by rollup (a)",
        "select sum(a) over (order by a groups 1 preceding) from t",
        "select array[array[1], array[2]]",
        "create table u (a int, foreign key (a) references t match full)",
        "create table u (a int check (a > 0), exclude (a with =))",
        "alter table t alter column a set (n_distinct = 5)",
        "explain (format xml) select 1",
        "create index on t (lower(a::text))",
        "create index on t (a) where a > 0",
        "copy t from stdin",
        "merge into t using t s on true when matched then do nothing",
        "listen x",
        "lock table t",
        "create temporary table u (a int)",
        "select time '10:00' at time zone 'UTC'",
        // Arrays stand in no index.
        "create table u (a int[] unique)",
        "create table u (a int[] primary key)",
        "create table u (a int, b text[], unique (a, b))",
        "create table u (a int, b text[], primary key (b, a))",
        "create table u (a int references t, b numeric(5,2)[] constraint one unique)",
        "create index on arrays (a)",
        "create index on arrays (n, a desc)",
        "create index on arrays using hash (a)",
        "create unique index on arrays (a)",
        "alter table arrays add unique (a)",
        "alter table arrays add constraint key primary key (a)",
        "alter table arrays add column b int[] unique",
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

/// Runs a statement of `waiter` until it waits, then `unblock`, then the statement to its end.
pub(crate) fn blocked(
    waiter: &mut Session,
    text: &str,
    unblock: impl FnOnce(),
) -> Result<Answer, thermocline_sql::Error> {
    let mut future = std::pin::pin!(waiter.execute_async(text, &[]));
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_pending(), "{text} does not wait");
    unblock();
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut context) {
            return answer;
        }
        std::thread::yield_now();
    }
}

/// Conditions and new values are computed again for the row as it is after the wait: without that, 110 would become 101, and
/// the deleted row of 10 would be one of 60.
#[test]
fn what_others_have_changed_is_looked_at_again_at_read_committed() {
    let db = database();
    let (mut one_session, mut other) = (Session::new(&db), Session::new(&db));
    run(&mut one_session, "create table t (id int primary key, n int)");
    run(&mut one_session, "create table u (id int primary key, add int)");
    run(&mut one_session, "insert into u values (1, 1), (2, 2), (60, 60)");
    for (inside, change, statement, tag, left) in [
        (
            false,
            "update t set n = 110 where id = 1",
            "update t set n = n + 1 where id = 1",
            "UPDATE 1",
            "111",
        ),
        (true, "update t set n = 110 where id = 1", "update t set n = n + 1 where id = 1", "UPDATE 1", "111"),
        (true, "update t set n = 60 where id = 1", "delete from t where n = 10", "DELETE 0", "60"),
        (true, "update t set n = 60 where id = 1", "update t set n = 5 where n < 50", "UPDATE 0", "60"),
        (true, "delete from t where id = 1", "update t set n = 5 where n < 50", "UPDATE 0", "null"),
        // The condition of the join finds another partner.
        (
            true,
            "update t set n = 60",
            "update t set n = n + add from u where t.n / 10 = u.id or t.n = u.id",
            "UPDATE 1",
            "120",
        ),
        (true, "update t set id = 7", "update t set n = 5 where id = 1", "UPDATE 0", "10"),
        (true, "update t set id = 7", "update t set n = 5 where n = 10", "UPDATE 1", "5"),
        (
            true,
            "update t set n = 20",
            "insert into t values (1, 3) on conflict (id) do update set n = t.n + excluded.n",
            "INSERT 0 1",
            "23",
        ),
    ] {
        run(&mut one_session, "delete from t");
        run(&mut one_session, "insert into t values (1, 10)");
        run(&mut one_session, "begin");
        run(&mut one_session, change);
        if inside {
            run(&mut other, "begin");
        }
        let answer = blocked(&mut other, statement, || _ = run(&mut one_session, "commit"));
        assert_eq!(
            answer.unwrap_or_else(|error| panic!("{statement}: {error}")).tag,
            tag,
            "{change}; {statement}"
        );
        if inside {
            run(&mut other, "commit");
        }
        assert_eq!(one(&mut one_session, "select sum(n) from t"), left, "{change}; {statement}");
    }
}

/// A row that was inserted after the statement began refuses the key, and is the one that changes; a row that the statement has
/// made itself is not changed by it.
#[test]
fn an_upsert_changes_rows_that_are_younger_than_it() {
    let db = database();
    let (mut one_session, mut other) = (Session::new(&db), Session::new(&db));
    run(&mut one_session, "create table t (id int primary key, n int)");
    let upsert =
        "insert into t values (1, 3) on conflict (id) do update set n = t.n + excluded.n returning n";
    run(&mut one_session, "begin");
    run(&mut one_session, "insert into t values (1, 10)");
    let answer = blocked(&mut other, upsert, || _ = run(&mut one_session, "commit")).expect("it runs");
    assert_eq!(answer.rows, [[Datum::Int(13)]]);
    run(&mut one_session, "begin isolation level repeatable read");
    run(&mut one_session, "select * from t");
    run(&mut other, "insert into t values (2, 1)");
    assert_eq!(
        code(&mut one_session, "insert into t values (2, 1) on conflict (id) do update set n = 5"),
        "40001"
    );
    run(&mut one_session, "rollback");
    let twice = "insert into t values (3, 1), (3, 2) on conflict (id) do update set n = excluded.n";
    assert_eq!(code(&mut one_session, twice), "21000");
    let again = "insert into t values (1, 1), (1, 2) on conflict (id) do update set n = excluded.n";
    assert_eq!(code(&mut one_session, again), "21000");
    let nothing = "insert into t values (3, 1), (3, 2) on conflict do nothing";
    assert_eq!(run(&mut one_session, nothing).tag, "INSERT 0 1");
}

/// A row that several rows of FROM match changes once.
#[test]
fn a_row_changes_once_in_a_statement() {
    let db = database();
    let mut session = Session::new(&db);
    run(&mut session, "create table t (id int, n int)");
    run(&mut session, "insert into t values (1, 1), (1, 1), (2, 5)");
    assert_eq!(
        run(&mut session, "update t set n = n + g from generate_series(1, 3) g where id = 1").tag,
        "UPDATE 2"
    );
    assert_eq!(one(&mut session, "select count(*) from t where n in (2, 3, 4)"), "2");
    assert_eq!(run(&mut session, "delete from t using generate_series(1, 3) g where n = 5").tag, "DELETE 1");
}

#[test]
fn rows_are_locked_and_looked_at_under_the_lock() {
    let db = database();
    let (mut first, mut other) = (Session::new(&db), Session::new(&db));
    run(&mut first, "create table jobs (id int primary key, state text, n int)");
    run(&mut first, "create table owners (id int primary key, name text)");
    run(&mut first, "insert into jobs select g, 'new', g from generate_series(1, 10) g");
    run(&mut first, "insert into owners values (1, 'a'), (2, 'b')");
    let next = "select id from jobs where state = 'new' order by id limit 1 for update skip locked";
    run(&mut first, "begin");
    run(&mut other, "begin");
    assert_eq!(one(&mut first, next), "1");
    assert_eq!(one(&mut other, next), "2");
    assert_eq!(one(&mut first, next), "1", "an own lock is in nobody's way");
    assert_eq!(code(&mut other, "select * from jobs where id = 1 for update nowait"), "55P03");
    run(&mut other, "rollback");
    run(&mut first, "update jobs set state = 'done' where id = 1");
    run(&mut other, "begin");
    // The condition is asked of the newest version; the row of the other table stays as it was read.
    let waits =
        "select jobs.n, owners.name from jobs join owners using (id) where state = 'new' for update of jobs";
    let answer = blocked(&mut other, waits, || _ = run(&mut first, "commit")).expect("it runs");
    assert_eq!(answer.rows, [[Datum::Int(2), Datum::Text("b".into())]]);
    run(&mut other, "commit");
    run(&mut first, "begin");
    run(&mut first, "update jobs set n = n * 10 where id = 3");
    let waits = "select n from jobs where id = 3 for no key update";
    let answer = blocked(&mut other, waits, || _ = run(&mut first, "commit")).expect("it runs");
    assert_eq!(answer.rows, [[Datum::Int(30)]]);
    run(&mut first, "begin");
    run(&mut first, "select * from jobs where id = 4 for share");
    run(&mut other, "begin");
    assert_eq!(one(&mut other, "select n from jobs where id = 4 for share nowait"), "4");
    assert_eq!(code(&mut other, "select n from jobs where id = 4 for update nowait"), "55P03");
    run(&mut other, "rollback");
    run(&mut first, "commit");
    // A queue in one statement.
    let take = "delete from jobs where id = (select id from jobs where state = 'new' order by id for update skip locked limit 1) returning id";
    run(&mut first, "begin");
    assert_eq!(one(&mut first, take), "2");
    assert_eq!(one(&mut other, take), "3");
    run(&mut first, "rollback");
    assert_eq!(code(&mut first, "select count(*) from jobs for update"), "0A000");
    assert_eq!(code(&mut first, "select * from jobs for update of owners"), "42P01");
    run(&mut first, "begin read only");
    assert_eq!(code(&mut first, "select * from jobs for update"), "25006");
    run(&mut first, "rollback");
}

/// A script is read a statement at a time: its length takes no memory, and an error is told where it stands in the whole.
#[test]
fn a_script_is_as_long_as_it_likes() {
    const ROWS: usize = 20_000;
    let options = Options::default().with_memory_limit(Some(32 << 20));
    let db = Database::open_in_memory(options).expect("it opens");
    let mut session = Session::new(&db);
    let mut script = String::from("create table t (id int primary key, a text); -- a ';' in a comment\n");
    for id in 0..ROWS {
        script += &format!("insert into t values ({id}, 'a;''b'); /* ; */\n");
    }
    script += " ;; ; \n";
    let mut tags = 0;
    session.run(&script, |_| tags += 1).expect("it runs");
    assert_eq!(tags, ROWS + 1);
    assert_eq!(one(&mut session, "select count(*) from t where a = 'a;''b'"), ROWS.to_string());
    for (text, code, at) in [
        ("select 'é'; select nothing_there from t; select 1", "42703", "nothing_there"),
        ("select 1; selec 2; select 3", "42601", "selec"),
        ("select 1;\nselect 'no end", "42601", "'no"),
        ("select $$;$$ from nowhere", "42P01", "nowhere"),
    ] {
        let error = session.run(text, |_| {}).expect_err(text);
        let found = error.position.map(|position| text.chars().skip(position - 1).collect::<String>());
        assert_eq!(error.code, code, "{text}");
        assert!(found.as_deref().is_some_and(|rest| rest.starts_with(at)), "{text}: {found:?}");
    }
}

/// A definition that runs alone and meets another session's is run again, as a statement on rows is: neither session is told of the
/// other one.
#[test]
fn definitions_at_the_same_time_all_succeed() {
    const SESSIONS: u32 = 4;
    const ROUNDS: u32 = 40;
    let db = database();
    let mut session = Session::new(&db);
    run(&mut session, "create table seen (client int primary key, last bigint)");
    run(&mut session, "insert into seen select generate_series(1, 4), 0");
    std::thread::scope(|scope| {
        for number in 1..=SESSIONS {
            let db = &db;
            scope.spawn(move || {
                let mut session = Session::new(db);
                for round in 0..ROUNDS {
                    let name = format!("made_{number}_{round}");
                    let texts = [
                        format!("create table {name} (a int check (a > 0), b serial)"),
                        format!("create index {name}_i on seen (last)"),
                        format!("create sequence {name}_s"),
                        format!("create view {name}_v as select client, a from seen, {name}"),
                        format!("comment on table {name} is 'made'"),
                        format!("update seen set last = last + 1 where client = {number}"),
                        format!("drop index {name}_i"),
                    ];
                    texts.iter().for_each(|text| drop(run(&mut session, text)));
                }
            });
        }
    });
    let made = "select count(*) from pg_class where relname ~ '^made_'";
    // A table, its sequence, one by itself, and a view.
    assert_eq!(one(&mut session, made), (SESSIONS * ROUNDS * 4).to_string());
}
