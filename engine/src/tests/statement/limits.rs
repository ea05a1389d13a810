//! Waits for locks and changed rows that have a limit.

use std::time::Duration;

use super::*;

/// Who waits for a lock for some time at most gets it when its holder ends, is told when the time is over, and goes on.
#[test]
fn a_wait_for_a_lock_may_have_a_limit() {
    let world = world(&[(1, 10), (2, 20)]);
    let mut locker = world.begin(Isolation::ReadCommitted);
    let mut holds = locker.statement().expect("it begins");
    let held = lock(&world, &mut holds, 1, LockMode::Update, LockWait::Wait);
    assert!(matches!(held, Ok(Locked::Locked(10))), "{held:?}");
    drop(holds);
    let mut tx = world.begin(Isolation::ReadCommitted);
    for limit in [Duration::ZERO, Duration::from_millis(2)] {
        tx.limit_waits(Some(limit)).expect("it is open");
        let mut statement = tx.statement().expect("it begins");
        let error = lock(&world, &mut statement, 1, LockMode::Share, LockWait::Wait);
        let error = error.expect_err("it is locked");
        assert_eq!(
            (matches!(error, Error::LockTimeout { .. }), error.sqlstate()),
            (true, "55P03"),
            "{error}"
        );
        // Changes wait as locks do.
        let error = block_on(statement.change(&world.primary, &key(1), |_| Ok((Change::Delete, ()))));
        assert!(matches!(error, Err(Error::LockTimeout { .. })), "{error:?}");
        let free = lock(&world, &mut statement, 2, LockMode::Update, LockWait::Wait);
        assert!(matches!(free, Ok(Locked::Locked(20))), "{free:?}");
    }
    // A circle is found at once, whatever the limit.
    let timer = &world.db.inner().timer;
    let (mut locker, hour) = (locker, LockWait::Wait);
    for tx in [&mut tx, &mut locker] {
        tx.limit_waits(Some(Duration::from_secs(3600))).expect("it is open");
    }
    let mut statement = tx.statement().expect("it begins");
    std::thread::scope(|scope| {
        let world = &world;
        let waiter = scope.spawn(move || {
            let held = lock(world, &mut statement, 1, LockMode::Share, hour);
            (held, timer.sleepers())
        });
        while timer.sleepers() == 0 {
            std::thread::yield_now();
        }
        let mut other = locker.statement().expect("it begins");
        let error = lock(world, &mut other, 2, LockMode::Share, hour).expect_err("a circle");
        assert!(matches!(error, Error::Deadlock { .. }), "{error}");
        drop(other);
        drop(locker);
        let (held, sleepers) = waiter.join().expect("the waiter");
        assert!(matches!(held, Ok(Locked::Locked(10))), "{held:?}");
        assert_eq!(sleepers, 0, "who has got the lock is still among those who sleep");
    });
    block_on(tx.commit()).expect("nobody competes");
}
