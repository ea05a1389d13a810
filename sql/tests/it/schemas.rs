//! Schemas: what goldens cannot show: notices, limits, databases that are opened again, and sessions beside each other.

use thermocline_engine::{Database, Options};
use thermocline_sql::Session;

use crate::sessions::{database, one};

fn run(session: &mut Session, text: &str) -> Vec<String> {
    let mut notices = Vec::new();
    session.run(text, |answer| notices.extend(answer.notices.into_iter().map(|it| it.message))).expect(text);
    notices
}

#[test]
fn notices_and_details_name_things_as_the_path_shows_them() {
    let db = database();
    let mut session = Session::new(&db);
    run(
        &mut session,
        "create schema s; create table s.t (id int primary key); create table u (id int references s.t)",
    );
    run(&mut session, "create view s.v as select * from s.t");
    let error = session.execute("drop table s.t", &[]).expect_err("two things need it");
    let detail = "constraint u_id_fkey on table u depends on table s.t\nview s.v depends on table s.t";
    assert_eq!(
        (error.message.as_str(), error.detail.as_deref()),
        ("cannot drop table s.t because other objects depend on it", Some(detail))
    );
    run(&mut session, "set search_path = s, public");
    let error = session.execute("drop table t", &[]).expect_err("two things need it");
    assert_eq!(error.message, "cannot drop table t because other objects depend on it");
    let error = session.execute("insert into u values (1)", &[]).expect_err("there is no parent");
    assert_eq!(error.detail.as_deref(), Some("Key (id)=(1) is not present in table \"t\"."));
    let error = session.execute("insert into s.t values (1), (1)", &[]).expect_err("a key comes twice");
    assert_eq!(error.about.expect("it is about a table").table.as_deref(), Some("t"));
    assert_eq!(run(&mut session, "drop schema s cascade"), ["drop cascades to 3 other objects"]);
    assert_eq!(one(&mut session, "select count(*) from u"), "0");
}

#[test]
fn a_database_that_is_opened_again_has_its_schemas() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || Database::open(directory.path(), Options::default()).expect("it opens");
    let db = open();
    let mut session = Session::new(&db);
    run(
        &mut session,
        "create schema a; create schema b; create table a.t (id serial primary key, x text unique)",
    );
    run(
        &mut session,
        "insert into a.t (x) values ('one'); set search_path = a; create view b.v as select x from t",
    );
    run(&mut session, "create table public.t (id int); drop schema if exists c");
    drop(session);
    drop(db);
    let db = open();
    let mut session = Session::new(&db);
    run(&mut session, "insert into a.t (x) values ('two')");
    assert_eq!(one(&mut session, "select string_agg(x, ',' order by x) from b.v"), "one,two");
    assert_eq!(one(&mut session, "select count(*) from t"), "0");
    assert_eq!(session.execute("insert into a.t (x) values ('two')", &[]).expect_err("twice").code, "23505");
}

#[test]
fn names_that_the_engine_cannot_have_are_refused() {
    let db = database();
    let mut session = Session::new(&db);
    let (schema, table) = ("s".repeat(30), "t".repeat(32));
    run(&mut session, &format!("create schema {schema}; create table {table} (a int)"));
    let error =
        session.execute(&format!("create table {schema}.{table} (a int)"), &[]).expect_err("too long");
    assert_eq!(error.code, "42622");
    run(&mut session, &format!("create table {schema}.{} (a int primary key)", "t".repeat(31)));
    // The signs that stand between the two in the engine's names.
    for text in [
        "create table \"\u{2}s\u{2}t\" (a int)",
        "create schema \"a\u{2}b\"",
        "select * from \"\u{1}objects\"",
    ] {
        assert_eq!(session.execute(text, &[]).expect_err(text).code, "42602");
    }
}

#[test]
fn sessions_have_paths_of_their_own_and_see_schemas_go() {
    let db = database();
    let (mut one_session, mut other) = (Session::new(&db), Session::new(&db));
    run(&mut one_session, "create table t (a int); insert into t values (1); create schema s");
    run(&mut other, "set search_path = s, public");
    let mut prepared = other.prepare("select a from t", &[]).expect("it is bound");
    assert_eq!(other.execute_prepared(&mut prepared, &[]).expect("it runs").text(0, 0).as_deref(), Some("1"));
    // A table that comes between is found next time, and one that goes is not.
    run(&mut one_session, "create table s.t (a int); insert into s.t values (2)");
    assert_eq!(other.execute_prepared(&mut prepared, &[]).expect("it runs").text(0, 0).as_deref(), Some("2"));
    run(&mut one_session, "drop schema s cascade");
    assert_eq!(other.execute_prepared(&mut prepared, &[]).expect("it runs").text(0, 0).as_deref(), Some("1"));
    assert_eq!(one(&mut other, "select current_schema()"), "public");
}
