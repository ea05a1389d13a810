//! Where the rows of a table may go: said as the table is made, changed, and taken back.

use thermocline_engine::{Database, Options, PagerKind, Tiering};
use thermocline_sql::Session;

/// A database in memory, but for pages of paged tables, whose tables are of this tiering.
fn database(tiering: Tiering) -> (tempfile::TempDir, Database) {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let options = Options::default()
        .with_memory_limit(Some(64 << 20))
        .with_paged_dir(Some(dir.path().to_owned()))
        .with_pager(PagerKind::Os)
        .with_tiering(tiering);
    let db = Database::open_in_memory(options).expect("it opens");
    (dir, db)
}

fn tiering(db: &Database, table: &str) -> Tiering {
    db.table(table).expect("it is there").statistics().tiering
}

fn run(session: &mut Session, text: &str) {
    session.execute(text, &[]).expect(text);
}

/// The parameters that `pg_class` shows.
fn shown(session: &mut Session, table: &str) -> Option<String> {
    let text = format!("select reloptions from pg_class where oid = '{table}'::regclass");
    session.execute(&text, &[]).expect("the catalog answers").text(0, 0)
}

fn refused(session: &mut Session, text: &str) -> (String, String) {
    let error = session.execute(text, &[]).expect_err(text);
    (error.code.to_owned(), error.message)
}

#[test]
fn a_tiering_is_set_and_taken_back() {
    let (_dir, db) = database(Tiering::Frozen);
    let mut session = Session::new(&db);
    run(&mut session, "create table t (id int primary key, v text)");
    run(&mut session, "insert into t select i, 'row ' || i from generate_series(1, 1000) i");
    assert_eq!(tiering(&db, "t"), Tiering::Frozen, "that of the database");
    for wanted in [Tiering::Hot, Tiering::Frozen, Tiering::Cold, Tiering::Paged, Tiering::Auto] {
        run(&mut session, &format!("alter table t set (tiering = {wanted}, fillfactor = 70)"));
        assert_eq!(tiering(&db, "t"), wanted);
        let text = (wanted != Tiering::Auto).then(|| format!("{{tiering={wanted}}}"));
        assert_eq!(shown(&mut session, "t"), text);
        let answer = session.execute("select count(*), sum(id) from t", &[]).expect("it answers");
        assert_eq!(
            (answer.text(0, 0).as_deref(), answer.text(0, 1).as_deref()),
            (Some("1000"), Some("500500"))
        );
    }
    run(&mut session, "alter table t reset (fillfactor)");
    assert_eq!(tiering(&db, "t"), Tiering::Auto, "another parameter is reset");
    run(&mut session, "alter table t reset (tiering, autovacuum_enabled)");
    assert_eq!(tiering(&db, "t"), Tiering::Frozen, "that of the database");
    assert_eq!(db.table_names(), ["t"], "the table that was made for it is gone");
    run(&mut session, "create table u (a int) with (tiering = 'hot', autovacuum_enabled = off)");
    assert_eq!(tiering(&db, "u"), Tiering::Hot);
    assert_eq!(shown(&mut session, "u").as_deref(), Some("{tiering=hot}"));
}

#[test]
fn a_transaction_that_rolls_back_leaves_the_tiering() {
    let (_dir, db) = database(Tiering::Auto);
    let mut session = Session::new(&db);
    run(&mut session, "create table t (id int primary key) with (tiering = cold)");
    run(&mut session, "insert into t select generate_series(1, 100)");
    for change in ["set (tiering = paged)", "reset (tiering)"] {
        run(&mut session, "begin");
        run(&mut session, &format!("alter table t {change}"));
        run(&mut session, "insert into t values (1000)");
        run(&mut session, "rollback");
        assert_eq!(tiering(&db, "t"), Tiering::Cold, "{change}");
        assert_eq!(shown(&mut session, "t").as_deref(), Some("{tiering=cold}"));
    }
    run(&mut session, "begin");
    run(&mut session, "savepoint s");
    run(&mut session, "alter table t set (tiering = hot)");
    run(&mut session, "rollback to s");
    run(&mut session, "commit");
    assert_eq!(tiering(&db, "t"), Tiering::Cold);
    run(&mut session, "begin");
    run(&mut session, "alter table t set (tiering = hot), add column b int");
    run(&mut session, "commit");
    assert_eq!(tiering(&db, "t"), Tiering::Hot);
}

#[test]
fn parameters_that_mean_nothing_are_refused_as_postgresql_does() {
    let (_dir, db) = database(Tiering::Auto);
    let mut session = Session::new(&db);
    run(&mut session, "create table t (id int primary key)");
    for (text, code, message) in [
        ("alter table t set (speed = 1)", "22023", "unrecognized parameter \"speed\""),
        ("create table u (a int) with (speed = 1)", "22023", "unrecognized parameter \"speed\""),
        ("alter table t set (x.tiering = hot)", "22023", "unrecognized parameter namespace \"x\""),
        ("alter table t set (tiering = warm)", "22023", "invalid value for enum option \"tiering\": warm"),
        ("create table u (a int) with (tiering)", "22023", "invalid value for enum option \"tiering\": true"),
        (
            "alter table t set (tiering = hot, tiering = cold)",
            "22023",
            "parameter \"tiering\" specified more than once",
        ),
        ("alter table t reset (tiering = hot)", "42601", "RESET must not include values for parameters"),
        ("alter table missing set (tiering = hot)", "42P01", "relation \"missing\" does not exist"),
    ] {
        assert_eq!(refused(&mut session, text), (code.to_owned(), message.to_owned()), "{text}");
    }
    run(
        &mut session,
        "alter table t set (autovacuum_vacuum_scale_factor = 0.1, toast.autovacuum_enabled = false)",
    );
    run(&mut session, "alter table t reset (speed)");
    assert_eq!(tiering(&db, "t"), Tiering::Auto);
}
