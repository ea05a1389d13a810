//! Constraints, sequences and definitions between sessions: who waits, who is refused, who knows what.

use thermocline_engine::{Database, Options};
use thermocline_sql::{Datum, Error, Session};

use crate::sessions::{blocked, code, database, one, run};

const LEVELS: [&str; 2] = ["read committed", "repeatable read"];

/// Parents and children; `index`: is there an index on the child's column?
fn family(session: &mut Session, index: bool, rules: &str) {
    run(session, "create table p (id int primary key, t text)");
    run(
        session,
        &format!("create table c (id int primary key, p_id int constraint c_fk references p {rules})"),
    );
    if index {
        run(session, "create index on c (p_id)");
    }
    run(session, "insert into p values (1, 'a'), (2, 'b')");
}

fn refused(result: Result<thermocline_sql::Answer, Error>) -> Error {
    result.expect_err("a foreign key is in the way")
}

/// The child comes first: the parent's end waits for it, and finds it.
#[test]
fn a_parent_does_not_go_while_a_child_comes() {
    for level in LEVELS {
        for index in [true, false] {
            let db = database();
            let (mut child, mut parent) = (Session::new(&db), Session::new(&db));
            family(&mut child, index, "");
            run(&mut parent, &format!("begin isolation level {level}"));
            // The snapshot is older than the child.
            assert_eq!(one(&mut parent, "select count(*) from c"), "0");
            run(&mut child, &format!("begin isolation level {level}"));
            run(&mut child, "insert into c values (1, 1)");
            let error = refused(blocked(&mut parent, "delete from p where id = 1", || {
                run(&mut child, "commit");
            }));
            if level == "read committed" {
                assert_eq!(error.code, "23503", "{level}, index: {index}");
                assert_eq!(
                    error.message,
                    "update or delete on table \"p\" violates foreign key constraint \"c_fk\" on table \"c\""
                );
                assert_eq!(
                    error.detail.as_deref(),
                    Some("Key (id)=(1) is still referenced from table \"c\".")
                );
                assert_eq!(error.about.as_ref().and_then(|about| about.constraint.as_deref()), Some("c_fk"));
            } else {
                assert!(["23503", "40001"].contains(&error.code), "{level}, index: {index}: {error:?}");
            }
            run(&mut parent, "rollback");
            assert_eq!(one(&mut parent, "select count(*) from p where id = 1"), "1");
        }
    }
}

/// A child that was committed after the snapshot, before the delete began.
#[test]
fn children_that_are_younger_than_the_snapshot_count() {
    for level in LEVELS {
        for (index, rules) in
            [(true, ""), (false, ""), (true, "on delete cascade"), (false, "on delete cascade")]
        {
            let db = database();
            let (mut child, mut parent) = (Session::new(&db), Session::new(&db));
            family(&mut child, index, rules);
            run(&mut parent, &format!("begin isolation level {level}"));
            assert_eq!(one(&mut parent, "select count(*) from c"), "0");
            run(&mut child, "insert into c values (1, 1)");
            let done = parent.execute("delete from p where id = 1", &[]);
            match (level, rules) {
                ("read committed", "on delete cascade") => {
                    done.expect("the child goes with its parent");
                    run(&mut parent, "commit");
                    assert_eq!(one(&mut parent, "select count(*) from c"), "0");
                }
                ("read committed", _) => assert_eq!(refused(done).code, "23503"),
                _ => {
                    let error = refused(done);
                    assert!(["23503", "40001"].contains(&error.code), "index: {index}, {rules}: {error:?}");
                }
            }
            parent.execute("rollback", &[]).expect("it ends");
            assert_eq!(
                one(&mut parent, "select count(*) from c left join p on p.id = p_id where p.id is null"),
                "0"
            );
        }
    }
}

/// The parent goes first: the child waits for its end.
#[test]
fn a_child_does_not_come_while_its_parent_goes() {
    for level in LEVELS {
        for commits in [true, false] {
            let db = database();
            let (mut child, mut parent) = (Session::new(&db), Session::new(&db));
            family(&mut child, true, "");
            run(&mut child, &format!("begin isolation level {level}"));
            assert_eq!(one(&mut child, "select count(*) from p"), "2");
            run(&mut parent, "begin");
            run(&mut parent, "delete from p where id = 1");
            let done = blocked(&mut child, "insert into c values (1, 1)", || {
                run(&mut parent, if commits { "commit" } else { "rollback" });
            });
            if commits {
                let error = refused(done);
                assert!(
                    error.code == "23503" || (error.code == "40001" && level != "read committed"),
                    "{error:?}"
                );
                if error.code == "23503" {
                    assert_eq!(
                        error.detail.as_deref(),
                        Some("Key (p_id)=(1) is not present in table \"p\".")
                    );
                }
                run(&mut child, "rollback");
            } else {
                done.expect("the parent has stayed");
                run(&mut child, "commit");
            }
            assert_eq!(one(&mut child, "select count(*) from c"), if commits { "0" } else { "1" });
        }
    }
}

/// Changes of other columns of the parent, and children of one parent, are in nobody's way.
#[test]
fn a_child_locks_no_more_than_its_parents_key() {
    let db = database();
    let (mut first, mut other) = (Session::new(&db), Session::new(&db));
    family(&mut first, true, "");
    run(&mut first, "begin");
    run(&mut first, "insert into c values (1, 1)");
    run(&mut other, "update p set t = 'z' where id = 1");
    run(&mut other, "insert into c values (2, 1)");
    run(&mut first, "commit");
    assert_eq!(one(&mut first, "select count(*) from c"), "2");
}

/// A parent counts at read committed from its commit on.
#[test]
fn a_parent_may_be_younger_than_the_snapshot() {
    let db = database();
    let (mut child, mut parent) = (Session::new(&db), Session::new(&db));
    family(&mut child, true, "");
    run(&mut parent, "begin");
    run(&mut parent, "insert into p values (3, 'c')");
    // As long as it may never be, the child does not wait for it.
    assert_eq!(code(&mut child, "insert into c values (1, 3)"), "23503");
    run(&mut child, "begin");
    run(&mut child, "select * from c");
    run(&mut parent, "commit");
    run(&mut child, "insert into c values (1, 3)");
    run(&mut child, "commit");
    assert_eq!(one(&mut child, "select p_id from c"), "3");
}

#[test]
fn no_value_of_a_sequence_is_given_twice() {
    let db = database();
    let mut session = Session::new(&db);
    run(&mut session, "create table t (id bigserial primary key, n int)");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                let mut session = Session::new(db);
                for round in 0..100 {
                    run(&mut session, "begin");
                    run(&mut session, &format!("insert into t (n) values ({thread})"));
                    run(&mut session, if round % 3 == 0 { "rollback" } else { "commit" });
                }
            });
        }
    });
    assert_eq!(one(&mut session, "select count(*) from t"), "264");
    run(&mut session, "insert into t (n) values (9)");
    // Those that were rolled back are not given again.
    let last: i64 = one(&mut session, "select max(id) from t").parse().expect("a number");
    assert!(last > 400 && last <= 400 + 4 * 32, "{last}");
}

/// One transaction has reset a sequence: others do not wait for it, since it may be theirs to go on.
#[test]
fn a_sequence_that_is_being_reset_is_refused_to_others() {
    let db = database();
    let (mut first, mut other) = (Session::new(&db), Session::new(&db));
    run(&mut first, "create sequence s");
    run(&mut first, "begin");
    run(&mut first, "alter sequence s restart with 1000");
    assert_eq!(one(&mut first, "select nextval('s')"), "1000");
    assert_eq!(code(&mut other, "select nextval('s')"), "55P03");
    run(&mut first, "commit");
    assert_eq!(one(&mut other, "select nextval('s')"), "1001");
}

/// What one session defines, the others know with their next statement, in statements that were prepared as well.
#[test]
fn definitions_are_known_to_all_sessions() {
    let db = database();
    let (mut first, mut other) = (Session::new(&db), Session::new(&db));
    run(&mut first, "create table t (id int primary key, a int)");
    let mut insert = other.prepare("insert into t values ($1, $2)", &[]).expect("it binds");
    let pair = |a: i64, b: i64| [Datum::Int(a), Datum::Int(b)];
    other.execute_prepared(&mut insert, &pair(1, -1)).expect("it runs");
    run(&mut first, "delete from t");
    run(&mut first, "alter table t add constraint positive check (a > 0)");
    let error = other.execute_prepared(&mut insert, &pair(1, -1)).expect_err("it is checked");
    assert_eq!((error.code, error.detail.as_deref()), ("23514", Some("Failing row contains (1, -1).")));
    run(&mut first, "create view v as select a from t");
    assert_eq!(run(&mut other, "select * from v").rows.len(), 0);
    run(&mut first, "drop view v");
    assert_eq!(code(&mut other, "select * from v"), "42P01");
    run(&mut first, "alter table t alter column a set default 7");
    assert_eq!(one(&mut other, "insert into t (id) values (5) returning a"), "7");
}

#[test]
fn definitions_outlive_the_database_being_closed() {
    let directory = tempfile::tempdir().expect("there is room");
    let open = || {
        let options = Options::default().with_memory_limit(Some(256 << 20));
        Database::open(directory.path(), options).expect("it opens")
    };
    let db = open();
    let mut session = Session::new(&db);
    run(&mut session, "create table p (id serial primary key, v varchar, at timestamptz default now())");
    run(&mut session, "create table c (id int, p_id int references p on delete cascade, check (id > 0))");
    run(&mut session, "create view pairs as select p.id, c.id as c from p left join c on p_id = p.id");
    run(&mut session, "insert into p (v) values ('a'), ('b')");
    run(&mut session, "insert into c values (1, 1)");
    drop(session);
    db.close().expect("it closes");
    let db = open();
    let mut session = Session::new(&db);
    assert_eq!(one(&mut session, "select count(*) from pairs"), "2");
    assert_eq!(code(&mut session, "insert into c values (0, 1)"), "23514");
    assert_eq!(code(&mut session, "insert into c values (1, 9)"), "23503");
    let next: i64 =
        one(&mut session, "insert into p (v) values ('c') returning id").parse().expect("a number");
    assert!(next > 2, "{next}");
    run(&mut session, "delete from p where id = 1");
    assert_eq!(one(&mut session, "select count(*) from c"), "0");
    assert_eq!(
        one(&mut session, "select format_type(atttypid, atttypmod) from pg_attribute where attname = 'v'"),
        "character varying"
    );
}

/// The database's own tables have no name in SQL, and stand in no catalog.
#[test]
fn the_system_tables_are_hidden() {
    let db = database();
    let mut session = Session::new(&db);
    run(&mut session, "create table t (id serial)");
    assert!(db.table_names().iter().any(|name| name == "\u{1}objects"));
    for text in
        ["select * from \"\u{1}objects\"", "drop table \"\u{1}objects\"", "create table \"\u{1}x\" (a int)"]
    {
        assert_eq!(code(&mut session, text), "42602", "{text:?}");
    }
    assert_eq!(one(&mut session, "select count(*) from pg_class where relkind = 'r'"), "1");
    assert_eq!(one(&mut session, "select count(*) from pg_tables"), "1");
}

/// Foreign keys that wait are looked at before the transaction commits, which is rolled back if one does not hold.
#[test]
fn a_commit_is_refused_for_what_has_waited() {
    let db = database();
    let mut session = Session::new(&db);
    family(&mut session, true, "deferrable initially deferred");
    run(&mut session, "begin");
    run(&mut session, "insert into c values (1, 77)");
    let error = session.execute("commit", &[]).expect_err("there is no parent");
    assert_eq!((error.code, session.status()), ("23503", 'I'));
    assert_eq!(one(&mut session, "select count(*) from c"), "0");
    run(&mut session, "begin");
    run(&mut session, "insert into c values (1, 77)");
    run(&mut session, "insert into p values (77, 'x')");
    run(&mut session, "commit");
    assert_eq!(one(&mut session, "select count(*) from c"), "1");
}

#[test]
fn explain_tells_how_rows_are_found() {
    let db = database();
    let mut session = Session::new(&db);
    family(&mut session, true, "");
    let lines = |session: &mut Session, text: &str| -> Vec<String> {
        let answer = run(session, text);
        (0..answer.rows.len()).filter_map(|row| answer.text(row, 0)).collect()
    };
    assert_eq!(lines(&mut session, "explain select * from p"), ["Seq Scan on p"]);
    let found = lines(&mut session, "explain select t from c join p on p.id = p_id where c.id = 1");
    assert_eq!(
        found,
        [
            "Nested Loop",
            "  ->  Index Scan using c_pkey on c (id =), 1 condition",
            "  ->  Index Scan using p_pkey on p (id =), 1 condition",
        ]
    );
    assert_eq!(
        lines(&mut session, "explain delete from c where p_id = 5"),
        ["Delete on c", "  ->  Index Scan using c_p_id_idx on c (p_id =), 1 condition"]
    );
}
