//! Statements that are refused by name, since PostgreSQL's answer cannot be given.

use thermocline_engine::{Database, Options};
use thermocline_sql::Session;

/// Values of `jsonb` that are equal may be written differently, and an index tells them apart.
#[test]
fn no_index_stands_on_jsonb() {
    let db =
        Database::open_in_memory(Options::default().with_memory_limit(Some(64 << 20))).expect("it opens");
    let mut session = Session::new(&db);
    session.execute("create table t (id int primary key, x jsonb)", &[]).expect("a column of it may stand");
    for text in [
        "create table u (x jsonb unique)",
        "create table u (x jsonb primary key)",
        "create index on t (x)",
        "create unique index on t (id, x)",
        "alter table t add unique (x)",
    ] {
        let error = session.execute(text, &[]).expect_err(text);
        assert_eq!(error.code, "0A000", "{text}");
        assert!(error.message.contains("jsonb"), "{text}: {}", error.message);
    }
}

/// An aggregate of a query around it is bound with that query; texts of many of them end.
#[test]
fn queries_that_are_bound_again_are_bounded() {
    let db =
        Database::open_in_memory(Options::default().with_memory_limit(Some(64 << 20))).expect("it opens");
    let mut session = Session::new(&db);
    let mut text = "select 1".to_owned();
    for level in (0..20).rev() {
        text = format!("select ({text}) + (select sum(t{level}.x)) from (values (1)) t{level}(x)");
    }
    // Either it is answered, or it is too much.
    match session.execute(&text, &[]) {
        Ok(answer) => assert_eq!(answer.text(0, 0).as_deref(), Some("21")),
        Err(error) => assert_eq!(error.code, "54001", "{}", error.message),
    }
}

/// Numbers with scales of their own are equal though they are stored differently, and an index tells them apart.
#[test]
fn no_index_stands_on_numbers_without_bounds() {
    let db =
        Database::open_in_memory(Options::default().with_memory_limit(Some(64 << 20))).expect("it opens");
    let mut session = Session::new(&db);
    for text in [
        "create table t (id int primary key, x numeric, y numeric(39, 2), z numeric(10, 2))",
        "create table p (x numeric)",
    ] {
        session.execute(text, &[]).expect(text);
    }
    for text in [
        "create table u (x numeric unique)",
        "create table u (x numeric, primary key (x))",
        "create index on t (x)",
        "create index on t using hash (x)",
        "create unique index on t (id, x)",
        "create index on t (y)",
        "alter table t add unique (x)",
        "alter table p add primary key (x)",
        "alter table t alter column id type numeric",
    ] {
        let error = session.execute(text, &[]).expect_err(text);
        assert_eq!(error.code, "0A000", "{text}");
        assert!(error.hint.is_some_and(|hint| hint.contains("numeric(p, s)")), "{text}");
    }
    for text in ["create unique index on t (z)", "alter table t alter column id type numeric(10, 0)"] {
        session.execute(text, &[]).expect(text);
    }
}

/// Functions that PostgreSQL has and this database has not are told from those that no database has.
#[test]
fn functions_and_operators_of_postgresql_alone_are_refused_by_name() {
    let db =
        Database::open_in_memory(Options::default().with_memory_limit(Some(64 << 20))).expect("it opens");
    let mut session = Session::new(&db);
    for (text, code) in [
        ("select regr_count(1.0, 2)", "0A000"),
        ("select to_tsvector('a')", "0A000"),
        ("select point '(1,2)' <-> point '(1,2)'", "0A000"),
        ("select set_byte('\\x00'::bytea, 0, 1)", "0A000"),
        ("select '\\x00'::bytea like '\\x00'::bytea", "0A000"),
        ("select regr_count(1.0)", "42883"),
        ("select regr_count('a'::text, 'b'::text)", "42883"),
        ("select nobody_has_this(1)", "42883"),
        ("select lower(1)", "42883"),
        ("select true + 1", "42883"),
        ("select abs('x'::text)", "42883"),
    ] {
        let error = session.execute(text, &[]).expect_err(text);
        assert_eq!(error.code, code, "{text}: {}", error.message);
    }
}
