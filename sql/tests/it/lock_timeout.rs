//! `lock_timeout` beside definitions: those that wait, and statements that wait for them.

use thermocline_sql::Session;

use crate::sessions::{blocked, code, database, one, run};

/// Definitions of `t`, whose column is `n` and whose index is `t_n`.
const DEFINITIONS: [&str; 24] = [
    "drop table t",
    "drop table t cascade",
    "truncate t",
    "truncate p cascade",
    "alter table t add column b int",
    "alter table t add column b int default random()",
    "alter table t add column b int references p",
    "alter table t drop column n",
    "alter table t rename column n to m",
    "alter table t rename to u",
    "alter table t set schema s",
    "alter table t alter column n set default 1",
    "alter table t alter column n set not null",
    "alter table t alter column id add generated always as identity",
    "alter table t alter column n type bigint",
    "alter table t add check (n > 0)",
    "alter table t drop constraint positive",
    "alter table t add unique (n)",
    "alter table t add foreign key (n) references p",
    "alter table c add foreign key (n) references t",
    "alter table t add column b int, alter column n set default 1",
    "create index on t (id, n)",
    "create unique index on t (n)",
    "drop index t_n",
];

fn made() -> (Session, Session) {
    let db = database();
    let (mut a, b) = (Session::new(&db), Session::new(&db));
    for text in [
        "create schema s",
        "create table p (id int primary key)",
        "create table t (id int primary key, n int references p constraint positive check (id > 0))",
        "create table c (n int)",
        "create index t_n on t (n)",
        "create view v as select * from c",
        "insert into p values (1), (2)",
        "insert into t values (1, 1)",
    ] {
        run(&mut a, text);
    }
    (a, b)
}

/// Everything that there is, as the catalogs tell it.
fn state(session: &mut Session) -> String {
    let queries = [
        "select n.nspname, c.relname, c.relkind from pg_class c join pg_namespace n on n.oid = c.relnamespace \
         where n.nspname in ('public', 's') order by 1, 2",
        "select table_name, column_name, data_type, is_nullable, column_default, is_identity \
         from information_schema.columns where table_schema in ('public', 's') order by 1, 2",
        "select conname, contype from pg_constraint order by 1, 2",
        "select id, n from t",
    ];
    queries.iter().map(|query| format!("{:?}\n", run(session, query).rows)).collect()
}

#[test]
fn definitions_wait_as_long_as_it_says_and_leave_nothing() {
    for text in DEFINITIONS {
        for use_of_it in ["select * from t", "update t set n = 2", "select * from t for key share"] {
            let (mut a, mut b) = made();
            let before = state(&mut b);
            run(&mut a, "begin");
            run(&mut a, use_of_it);
            run(&mut b, "set lock_timeout = '3ms'");
            let error = b.execute(text, &[]).expect_err(text);
            assert_eq!(
                (error.code, &error.message[..]),
                ("55P03", "canceling statement due to lock timeout"),
                "{text} beside {use_of_it}"
            );
            // In a transaction it is the statement that fails, and what was before it stands.
            run(&mut b, "begin");
            run(&mut b, "create table beside (n int)");
            run(&mut b, "savepoint s");
            assert_eq!(code(&mut b, text), "55P03", "{text}");
            assert_eq!(b.status(), 'E');
            run(&mut b, "rollback to s");
            run(&mut b, "drop table beside");
            run(&mut b, "commit");
            // The table is not kept from others, and is as it was.
            run(&mut a, "rollback");
            assert_eq!(state(&mut a), before, "{text}");
            run(&mut b, text);
        }
    }
}

#[test]
fn statements_wait_for_a_definition_as_long_as_it_says() {
    for definition in ["alter table t add column b int", "create index on t (id, n)", "truncate t cascade"] {
        let (mut a, mut b) = made();
        run(&mut a, "begin");
        run(&mut a, definition);
        run(&mut b, "set lock_timeout = '3ms'");
        let statements = [
            "select * from t",
            "select * from p where exists (select 1 from t)",
            "insert into t values (2, 2)",
            "update t set n = 2",
            "delete from t",
            "select * from t for update",
            "delete from p",
            "create table more as select * from t",
            "explain analyze select * from t",
        ];
        for text in statements.iter().chain(&DEFINITIONS) {
            assert_eq!(code(&mut b, text), "55P03", "{text} beside {definition}");
            run(&mut b, "begin isolation level repeatable read");
            assert_eq!(code(&mut b, text), "55P03", "{text} beside {definition}");
            run(&mut b, "rollback");
        }
        // What is not in the way goes on; without a limit a statement waits.
        run(&mut b, "insert into c values (1)");
        run(&mut b, "set lock_timeout = 0");
        let answer = blocked(&mut b, "insert into t values (2, 2)", || {
            run(&mut a, "commit");
        });
        assert_eq!(answer.expect("it runs").tag, "INSERT 0 1");
    }
}

/// A name that another transaction gives or takes away is waited for, too, and so is a row with the key.
#[test]
fn names_and_keys_are_waited_for_as_long_as_it_says() {
    for (first, second) in [
        ("create table x (n int)", "create table x (m int)"),
        ("create table x (n int)", "create table x as select 1"),
        ("create table x (n int)", "alter table c rename to x"),
        ("alter table c rename to x", "create table x (n int)"),
        ("create schema x", "create schema x"),
        ("create view x as select 1 as n", "create view x as select 2 as n"),
        ("create sequence x", "create sequence x"),
        ("comment on table c is 'a'", "comment on table c is 'b'"),
        ("insert into p values (3)", "insert into p values (3)"),
        ("insert into p values (3)", "insert into p values (3) on conflict do nothing"),
        ("update p set id = 3 where id = 2", "insert into t values (2, 2)"),
        ("delete from p where id = 2", "insert into t values (2, 2)"),
    ] {
        let (mut a, mut b) = made();
        let before = state(&mut b);
        run(&mut a, "begin");
        run(&mut a, first);
        run(&mut b, "begin");
        run(&mut b, "set local lock_timeout = '3ms'");
        assert_eq!(code(&mut b, second), "55P03", "{second} beside {first}");
        run(&mut b, "rollback");
        assert_eq!(one(&mut b, "show lock_timeout"), "0");
        run(&mut a, "rollback");
        assert_eq!(state(&mut b), before, "{second}");
        run(&mut b, second);
    }
}

/// The limit is that of each wait, and one that is longer than the wait changes nothing.
#[test]
fn a_long_limit_waits() {
    let (mut a, mut b) = made();
    run(&mut a, "begin");
    run(&mut a, "select * from t");
    run(&mut b, "set lock_timeout = '1h'");
    let answer = blocked(&mut b, "alter table t add column b int", || {
        run(&mut a, "commit");
    });
    answer.expect("it runs");
    assert_eq!(one(&mut a, "select count(b) from t"), "0");
}
