//! Who waits for whom, and until when: locks of transactions that have failed, circles of waits, insertions that give way.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use thermocline_sql::{Answer, Error, Session};

use super::sessions::{code, database, one};

/// Runs statements one after the other; the answer of the last one.
fn run(session: &mut Session, texts: &str) -> Answer {
    texts.split("; ").map(|text| super::sessions::run(session, text)).last().expect("a statement")
}

/// Polls a statement until it waits for another transaction.
fn poll<'f>(
    mut future: Pin<&mut (impl Future<Output = Result<Answer, Error>> + 'f)>,
) -> Poll<Result<Answer, Error>> {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100 {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut context) {
            return Poll::Ready(answer);
        }
        std::thread::yield_now();
    }
    Poll::Pending
}

#[test]
fn a_transaction_that_has_failed_lets_go_of_its_locks() {
    let db = database();
    let (mut one_session, mut other) = (Session::new(&db), Session::new(&db));
    run(
        &mut one_session,
        "create table t (id int primary key, n int); insert into t select i, 0 from generate_series(1, 9) i",
    );
    run(&mut one_session, "create table child (id int primary key, parent int references t)");
    for error in ["select 1 / 0", "insert into t values (3, 3)", "select * from nowhere", "selec"] {
        run(&mut one_session, "begin");
        run(&mut one_session, "update t set n = 1 where id = 1");
        run(&mut one_session, "select * from t where id = 2 for update");
        run(&mut one_session, "insert into child values (1, 3)");
        run(&mut one_session, "insert into t values (100, 0)");
        run(&mut one_session, "select pg_advisory_xact_lock(7)");
        for held in [
            "select * from t where id = 1 for update nowait",
            "select * from t where id = 2 for share nowait",
        ] {
            assert_eq!(code(&mut other, held), "55P03", "{held}");
        }
        code(&mut one_session, error);
        assert_eq!(code(&mut one_session, "select 1"), "25P02");
        // Nobody has said ROLLBACK yet.
        run(&mut other, "select * from t where id in (1, 2) for update nowait");
        run(&mut other, "delete from t where id = 3; insert into t values (3, 0), (100, 0)");
        run(&mut other, "delete from t where id = 100");
        assert_eq!(one(&mut other, "select pg_try_advisory_xact_lock(7)"), "t");
        assert_eq!(run(&mut one_session, "commit").tag, "ROLLBACK");
        assert_eq!(one(&mut one_session, "select sum(n) from t"), "0");
    }
}

#[test]
fn a_failed_transaction_keeps_what_it_did_before_its_savepoint() {
    let db = database();
    let (mut one_session, mut other) = (Session::new(&db), Session::new(&db));
    run(
        &mut one_session,
        "create table t (id int primary key, n int); insert into t values (1, 0), (2, 0), (3, 0)",
    );
    run(
        &mut one_session,
        "begin; update t set n = 1 where id = 1; savepoint a; update t set n = 1 where id = 2",
    );
    run(&mut one_session, "savepoint b; update t set n = 1 where id = 3");
    code(&mut one_session, "select 1 / 0");
    run(&mut other, "select * from t where id = 3 for update nowait");
    for held in
        ["select * from t where id = 1 for update nowait", "select * from t where id = 2 for update nowait"]
    {
        assert_eq!(code(&mut other, held), "55P03", "{held}");
    }
    run(&mut one_session, "rollback to a");
    run(&mut other, "select * from t where id = 2 for update nowait");
    run(&mut one_session, "update t set n = 5 where id = 3");
    assert_eq!(run(&mut one_session, "commit").tag, "COMMIT");
    assert_eq!(one(&mut other, "select string_agg(n::text, ',' order by id) from t"), "1,0,5");
}

#[test]
fn two_that_share_locks_and_change_the_rows_close_a_circle() {
    let cases = [
        (
            "select * from t where id = 1 for share",
            "select * from t where id = 1 for share",
            "update t set n = 1 where id = 1",
            "update t set n = 2 where id = 1",
        ),
        (
            "select * from t where id = 1 for share",
            "select * from t where id = 2 for share",
            "update t set n = 1 where id = 2",
            "update t set n = 2 where id = 1",
        ),
        (
            "insert into child values (1, 1)",
            "insert into child values (2, 2)",
            "delete from t where id = 2",
            "delete from t where id = 1",
        ),
        (
            "select * from t where id = 1 for key share",
            "insert into child values (2, 1)",
            "delete from t where id = 1",
            "update t set id = 10 where id = 1",
        ),
    ];
    for (first, second, wants, closes) in cases {
        let db = database();
        let (mut a, mut b) = (Session::new(&db), Session::new(&db));
        run(&mut a, "create table t (id int primary key, n int); insert into t values (1, 0), (2, 0)");
        run(&mut a, "create table child (id int primary key, parent int references t)");
        run(&mut a, "begin");
        run(&mut a, first);
        run(&mut b, "begin");
        run(&mut b, second);
        {
            let mut waiting = pin!(a.execute_async(wants, &[]));
            assert!(poll(waiting.as_mut()).is_pending(), "{wants} waits for the lock");
            assert_eq!(code(&mut b, closes), "40P01", "{closes}");
            // The victim's locks are gone, though it has not said ROLLBACK.
            assert!(matches!(poll(waiting.as_mut()), Poll::Ready(Ok(_))), "{wants} goes on");
        }
        run(&mut a, "commit");
        run(&mut b, "rollback");
    }
}

#[test]
fn an_insertion_gives_way_to_rows_that_it_may_know_of_only() {
    let db = database();
    let (mut a, mut b) = (Session::new(&db), Session::new(&db));
    run(&mut a, "create table t (id int primary key, u int unique, n int); insert into t values (1, 10, 0)");
    let nothing = [
        "insert into t values (2, 20, 1) on conflict do nothing",
        "insert into t values (3, 20, 1) on conflict (u) do nothing",
    ];
    for level in ["repeatable read", "serializable"] {
        for insert in nothing {
            run(&mut a, &format!("begin isolation level {level}"));
            assert_eq!(one(&mut a, "select count(*) from t"), "1");
            // One that the snapshot sees is in the way as it ever was.
            assert_eq!(run(&mut a, "insert into t values (1, 11, 1) on conflict do nothing").count, 0);
            run(&mut b, "insert into t values (2, 20, 0)");
            assert_eq!(code(&mut a, insert), "40001", "{level}: {insert}");
            run(&mut a, "rollback");
            run(&mut b, "delete from t where id = 2");
        }
    }
    run(&mut a, "begin");
    assert_eq!(one(&mut a, "select count(*) from t"), "1");
    run(&mut b, "insert into t values (2, 20, 0)");
    nothing.iter().for_each(|insert| assert_eq!(run(&mut a, insert).count, 0));
    run(&mut a, "commit");
}

#[test]
fn the_index_that_on_conflict_names_decides_whichever_refuses_first() {
    let db = database();
    let mut session = Session::new(&db);
    run(
        &mut session,
        "create table t (id int primary key, u int unique, n int); insert into t values (1, 10, 0), (2, 20, 0)",
    );
    let insert = "insert into t values (1, 20, 5) on conflict";
    assert_eq!(run(&mut session, &format!("{insert} (u) do nothing")).count, 0);
    assert_eq!(run(&mut session, &format!("{insert} (id) do nothing")).count, 0);
    for (index, rows) in [("u", "0,5"), ("id", "5,5")] {
        let update = format!("{insert} ({index}) do update set n = t.n + excluded.n");
        assert_eq!(run(&mut session, &update).count, 1);
        assert_eq!(one(&mut session, "select string_agg(n::text, ',' order by id) from t"), rows, "{index}");
    }
    // One that the index does not refuse is refused by the other one.
    for values in ["(1, 30, 0)", "(1, null, 0)"] {
        let insert = format!("insert into t values {values} on conflict (u) do nothing");
        assert_eq!(code(&mut session, &insert), "23505", "{insert}");
    }
}

/// PostgreSQL locks a row that is in the way as what DO UPDATE may set asks for, before it looks at the condition.
#[test]
fn a_row_in_the_way_is_locked_though_it_stays_as_it_is() {
    let db = database();
    let (mut a, mut b) = (Session::new(&db), Session::new(&db));
    run(&mut a, "create table t (id int primary key, u int unique, n int); insert into t values (1, 10, 0)");
    let insert = "insert into t values (1, 10, 5) on conflict (id) do update set";
    for (set, key_share, share) in [
        ("n = t.n", true, false),
        ("n = excluded.n where t.n > 5", true, false),
        ("u = excluded.u", false, false),
        ("u = 11, n = 5 where t.n > 5", false, false),
    ] {
        run(&mut a, "begin");
        run(&mut a, &format!("{insert} {set}"));
        for (strength, free) in [("key share", key_share), ("share", share)] {
            let select = format!("select * from t for {strength} skip locked");
            assert_eq!(run(&mut b, &select).rows.len(), usize::from(free), "{set}: {strength}");
        }
        run(&mut a, "rollback");
    }
}

#[test]
fn a_key_share_shows_what_was_read_and_nothing_that_is_not_committed() {
    let db = database();
    let (mut a, mut b) = (Session::new(&db), Session::new(&db));
    run(&mut a, "create table t (id int primary key, n int); insert into t values (1, 0)");
    let select = "select n from t where id = 1 for key share";
    for level in ["read committed", "repeatable read", "serializable"] {
        run(&mut b, &format!("begin isolation level {level}; select 1 from t"));
        run(&mut a, "begin; update t set n = n + 1");
        assert_eq!(one(&mut b, select), one(&mut b, "select n from t"), "{level}");
        run(&mut a, "commit");
        assert_eq!(one(&mut b, select), one(&mut b, "select n from t"), "{level}");
        run(&mut b, "rollback");
    }
}

#[test]
fn a_child_does_not_wait_for_changes_that_leave_its_parents_key() {
    for change in ["update p set n = 1", "select * from p for no key update", "insert into p values (2, 0)"] {
        let db = database();
        let (mut a, mut b) = (Session::new(&db), Session::new(&db));
        run(&mut a, "create table p (id int primary key, n int); insert into p values (1, 0)");
        run(&mut a, "create table c (id int primary key, p int references p)");
        run(&mut a, "begin");
        run(&mut a, change);
        let insert = "insert into c values (1, 1)";
        {
            let mut running = pin!(b.execute_async(insert, &[]));
            assert!(matches!(poll(running.as_mut()), Poll::Ready(Ok(_))), "{change}");
        }
        run(&mut a, "commit");
        assert_eq!(code(&mut b, "delete from p where id = 1"), "23503", "{change}");
    }
}

/// What others commit between BEGIN and the first statement is seen, and can be changed.
#[test]
fn a_snapshot_is_that_of_the_first_statement() {
    let db = database();
    let (mut a, mut b) = (Session::new(&db), Session::new(&db));
    run(&mut a, "create table t (id int primary key, n int); insert into t values (1, 0)");
    for level in ["repeatable read", "serializable"] {
        for before in
            ["begin", "set local statement_timeout = 0", "savepoint s", "lock table t in access share mode"]
        {
            run(&mut a, &format!("begin isolation level {level}"));
            if before != "begin" {
                run(&mut a, before);
            }
            run(&mut b, "update t set n = n + 1");
            let there = one(&mut b, "select n from t");
            assert_eq!(one(&mut a, "select n from t"), there, "{level}, behind {before}");
            run(&mut a, "update t set n = n + 1");
            if before == "savepoint s" {
                run(&mut a, "rollback to s");
                assert_eq!(one(&mut a, "select n from t"), there);
            }
            run(&mut b, "insert into t values (2, 0); delete from t where id = 2");
            assert_eq!(one(&mut a, "select count(*) from t"), "1");
            run(&mut a, "commit");
        }
    }
}
