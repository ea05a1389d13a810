//! Advisory locks of several sessions, and waits that end after `lock_timeout`.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use thermocline_sql::{Common, Session};

use crate::sessions::{blocked, code, database, one, run};

/// Sessions that share locks with each other and with no other test.
fn sessions<const N: usize>() -> [Session; N] {
    let (db, common) = (database(), Arc::new(Common::default()));
    std::array::from_fn(|number| Session::new(&db).with_common(&common, number as i32 + 1))
}

#[test]
fn a_session_waits_for_another_ones_lock() {
    let [mut a, mut b] = sessions();
    assert_eq!(one(&mut b, "select pg_backend_pid()"), "2");
    run(&mut a, "select pg_advisory_lock(10)");
    assert_eq!(one(&mut b, "select pg_try_advisory_lock(10)"), "f");
    assert_eq!(one(&mut b, "select pg_try_advisory_lock(10, 0)"), "t");
    let answer = blocked(&mut b, "select pg_advisory_lock(10)", || {
        run(&mut a, "select pg_advisory_unlock(10)");
    });
    answer.expect("it has the lock");
    assert_eq!(one(&mut a, "select pg_try_advisory_lock_shared(10)"), "f");
    // It holds it once: what it waited with has been given back.
    assert_eq!(one(&mut b, "select pg_advisory_unlock(10)"), "t");
    assert_eq!(one(&mut a, "select pg_try_advisory_lock_shared(10)"), "t");
    assert_eq!(one(&mut b, "select pg_try_advisory_lock_shared(10)"), "t");
    drop(a);
    assert_eq!(one(&mut b, "select pg_try_advisory_lock(10)"), "t", "a session that has ended holds nothing");
}

#[test]
fn a_transactions_locks_end_with_it() {
    let [mut a, mut b] = sessions();
    run(&mut a, "begin");
    run(&mut a, "select pg_advisory_xact_lock(1)");
    let answer = blocked(&mut b, "select pg_advisory_xact_lock(1)", || {
        run(&mut a, "rollback");
    });
    answer.expect("it has the lock");
    // Its statement was a transaction.
    assert_eq!(one(&mut a, "select pg_try_advisory_lock(1)"), "t");
    run(&mut b, "begin");
    assert_eq!(code(&mut b, "select 1 / 0, pg_try_advisory_xact_lock(2)"), "22012");
    run(&mut b, "rollback");
    run(&mut a, "select pg_advisory_unlock_all()");
    run(&mut a, "begin");
    run(&mut a, "select pg_advisory_xact_lock(3)");
    run(&mut a, "commit");
    assert_eq!(one(&mut b, "select pg_try_advisory_lock(3)"), "t");
    run(&mut b, "discard all");
    assert_eq!(one(&mut a, "select pg_try_advisory_lock(3)"), "t");
}

#[test]
fn what_waits_starts_anew_and_has_written_nothing_twice() {
    let [mut a, mut b] = sessions();
    run(&mut a, "create table t (id int primary key, n int)");
    run(&mut a, "insert into t values (1, 0)");
    run(&mut a, "select pg_advisory_lock(1)");
    run(&mut b, "begin");
    let text = "update t set n = n + 1 where pg_advisory_xact_lock(1) is not null returning n";
    let answer = blocked(&mut b, text, || {
        run(&mut a, "update t set n = 10");
        run(&mut a, "select pg_advisory_unlock(1)");
    });
    assert_eq!(answer.expect("it runs").text(0, 0).as_deref(), Some("11"));
    run(&mut b, "commit");
    assert_eq!(one(&mut a, "select n from t"), "11");
}

#[test]
fn a_circle_of_waiting_sessions_is_refused() {
    let [mut a, mut b] = sessions();
    run(&mut a, "select pg_advisory_lock(1)");
    run(&mut b, "select pg_advisory_lock(2)");
    let waits = a.execute_async("select pg_advisory_lock(2)", &[]);
    let mut waits = std::pin::pin!(waits);
    assert!(matches!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    assert_eq!(code(&mut b, "select pg_advisory_lock(1)"), "40P01");
    run(&mut b, "select pg_advisory_unlock_all()");
    assert!(matches!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(_))));
}

#[test]
fn waits_end_after_lock_timeout() {
    let [mut a, mut b] = sessions();
    run(&mut a, "create table t (id int primary key, n int)");
    run(&mut a, "insert into t values (1, 0), (2, 0)");
    run(&mut a, "select pg_advisory_lock(1)");
    run(&mut a, "begin");
    run(&mut a, "update t set n = 1 where id = 1");
    run(&mut b, "set lock_timeout = '10ms'");
    for text in [
        "select pg_advisory_lock(1)",
        "select n from t where id = 1 for update",
        "update t set n = 2 where id = 1",
        "delete from t where id = 1",
    ] {
        let error = b.execute(text, &[]).expect_err(text);
        assert_eq!(
            (error.code, &error.message[..]),
            ("55P03", "canceling statement due to lock timeout"),
            "{text}"
        );
    }
    run(&mut b, "update t set n = 2 where id = 2");
    run(&mut b, "set lock_timeout = 0");
    run(&mut b, "set statement_timeout = '10ms'");
    assert_eq!(code(&mut b, "select pg_advisory_lock(1)"), "57014");
    run(&mut a, "commit");
    run(&mut a, "select pg_advisory_unlock(1)");
    run(&mut b, "select pg_advisory_lock(1)");
}
