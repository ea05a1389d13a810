//! Writers beside moves and cleaning (6, 10, 14-16, 19, 36): no change is lost, none is made twice, nobody fails because
//! of a move.

use super::*;

fn count(world: &ColdWorld, id: i64) {
    let counted = world.retry(Isolation::Snapshot, |tx| {
        let value = tx.read(id)?.unwrap_or(-100);
        tx.set(id, value + 1)
    });
    assert!(counted.expect("it is retried"), "a row was lost");
}

/// Two transactions count a row up that is moved to and fro.
fn counted(cold_first: bool) {
    let world = cold_world(&[(1, 0)]);
    if cold_first {
        world.migrate(&[1]);
    }
    let other = world.spawn(|world| count(world, 1));
    let mover = world.spawn(move |world| {
        for _ in 0..2 {
            if cold_first {
                world.promote(1);
            }
            world.migrate(&[1]);
            world.clean();
            world.prune();
            world.clean();
            world.prune();
        }
    });
    count(&world, 1);
    other.join().expect("the other writer");
    mover.join().expect("the mover");
    assert_eq!(world.all(), [(1, 2)], "an update was lost, or a row is there twice");
    world.settle_cold();
    assert_eq!(world.all(), [(1, 2)], "a row was lost, or is there twice");
}

fn counted_hot() {
    counted(false);
}

fn counted_cold() {
    counted(true);
}

#[test]
fn no_update_is_lost_over_a_move() {
    model::run(1000, counted_hot);
    model::run(1000, counted_cold);
}

#[test]
fn a_mark_without_the_begin_of_what_moved_is_caught() {
    misses(Rule::MarkKeepsBegin, 10_000, counted_hot);
}

#[test]
fn a_stolen_mark_is_caught() {
    misses(Rule::MarksAreNotStolen, 10_000, counted_hot);
}

#[test]
fn two_ends_of_one_record_are_caught() {
    misses(Rule::EndsCollide, 10_000, counted_cold);
}

#[test]
fn an_end_that_is_dropped_under_who_follows_a_mark_is_caught() {
    misses(Rule::EndOutlivesFollowers, 10_000, counted_hot);
}

/// One at read committed, which takes the newest row, and one at snapshot, which fails and tries again.
fn at_two_levels() {
    let world = cold_world(&[(1, 0)]);
    world.migrate(&[1]);
    let other = world.spawn(|world| count(world, 1));
    let layout = Arc::clone(&world.layout);
    let mut tx = world.begin(Isolation::ReadCommitted);
    let edited = tx.edit(1, |row| {
        let value = layout.i64(row.row(), 1).unwrap_or(-100);
        row.set_i64(1, value + 1)
    });
    assert!(unharmed(edited), "a row was lost");
    unharmed(tx.commit());
    other.join().expect("the other writer");
    assert_eq!(world.all(), [(1, 2)], "an update was lost, or a row is there twice");
    world.settle_cold();
}

#[test]
fn writers_of_two_levels_collide_over_a_record() {
    model::run(1500, at_two_levels);
}

#[test]
fn two_ends_at_two_levels_are_caught() {
    misses(Rule::EndsCollide, 10_000, at_two_levels);
}

/// One who does not wait for anybody, beside moves of what he changes, of which some are given up.
fn never_waits() {
    let world = cold_world(&[(1, 0), (2, 0)]);
    let mover = world.spawn(|world| {
        world.migrate(&[1, 2]);
        world.promote(1);
        world.clean();
        world.prune();
    });
    for value in 1..3 {
        let options = TransactionOptions::new().isolation(Isolation::Snapshot).no_wait();
        let mut tx = Tx { world: &world, tx: world.db.begin(options).expect("it begins") };
        let changed = tx.set(2, value).and_then(|_| tx.set(1, value));
        assert!(unharmed(changed), "a row was lost");
        unharmed(tx.commit());
    }
    mover.join().expect("the mover");
    assert_eq!(world.all(), [(1, 2), (2, 2)]);
    world.settle_cold();
}

#[test]
fn who_does_not_wait_waits_out_a_move() {
    model::run(1500, never_waits);
}

#[test]
fn a_move_that_is_waited_for_like_a_transaction_is_caught() {
    misses(Rule::MovesAreWaitedOut, 10_000, never_waits);
}

/// A row of a batch is updated again and again while the batch migrates.
fn leavers() {
    let world = cold_world(&[(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)]);
    let mover = world.spawn(|world| world.migrate(&[1, 2, 3, 4, 5]));
    for value in 31..33 {
        let mut tx = world.begin(Isolation::Snapshot);
        let changed = tx.set(3, value);
        assert!(unharmed(changed), "a row was lost");
        unharmed(tx.commit());
    }
    let seen = world.all();
    let moved = mover.join().expect("the mover");
    assert!(moved >= 4, "one row kept the others from migrating");
    let rows = [(1, 10), (2, 20), (3, 32), (4, 40), (5, 50)];
    assert_eq!(seen, rows, "a row was seen twice, or not");
    assert_eq!(world.all(), rows, "a row is there twice, or not");
    world.settle_cold();
    assert_eq!(world.all(), rows, "a row is there twice, or not");
}

#[test]
fn a_changed_row_leaves_its_batch() {
    model::run(1000, leavers);
}

#[test]
fn a_leaver_whose_record_stays_is_caught() {
    misses(Rule::LeaversEnd, 10_000, leavers);
}

/// A child is inserted under a lock on its parent, which is moved and deleted meanwhile.
fn orphan(cold_first: bool) {
    const CHILD: i64 = 10;
    let world = cold_world(&[(1, 10)]);
    if cold_first {
        world.migrate(&[1]);
    }
    let mover = world.spawn(move |world| {
        if cold_first {
            world.promote(1);
        }
        world.migrate(&[1]);
    });
    let deleter = world.spawn(|world| {
        let mut tx = world.begin(Isolation::ReadCommitted);
        let outcome = tx.delete(1).and_then(|_| tx.read(CHILD));
        if unharmed(outcome).is_none() {
            unharmed(tx.commit());
        }
    });
    let mut tx = world.begin(Isolation::ReadCommitted);
    if unharmed(tx.lock(1, LockMode::KeyShare)) {
        unharmed(tx.insert(CHILD, 0));
    }
    unharmed(tx.commit());
    deleter.join().expect("the deleter");
    mover.join().expect("the mover");
    let rows = world.all();
    assert!([&[][..], &[(1, 10), (CHILD, 0)]].contains(&&*rows), "an orphan, or a row twice: {rows:?}");
    world.settle_cold();
    assert_eq!(world.all(), rows);
}

fn orphan_of_hot() {
    orphan(false);
}

fn orphan_of_cold() {
    orphan(true);
}

#[test]
fn a_lock_holds_wherever_the_row_goes() {
    model::run(1000, orphan_of_hot);
    model::run(1000, orphan_of_cold);
}

#[test]
fn an_end_that_ignores_locks_is_caught() {
    misses(Rule::EndLooksForLocks, 10_000, orphan_of_hot);
    misses(Rule::EndLooksForLocks, 10_000, orphan_of_cold);
}

#[test]
#[ignore = "a long search: .ci/deep model"]
fn a_look_at_a_record_before_its_lock_is_caught() {
    misses(Rule::LockBeforeLook, 40_000, orphan_of_cold);
}

/// The end of a record is rolled back to a savepoint, while somebody else wants to change the row.
fn ended_and_not() {
    let world = cold_world(&[(1, 0), (2, 0)]);
    world.migrate(&[1]);
    let other = world.spawn(|world| count(world, 1));
    let mover = world.spawn(|world| {
        world.promote(1);
        world.clean();
    });
    let seen = world.retry(Isolation::Snapshot, |tx| {
        let before = tx.read(1)?;
        let savepoint = tx.tx.savepoint()?;
        let deleted = tx.delete(1)?;
        let between = tx.read(1)?;
        tx.tx.rollback_to(&savepoint)?;
        let after = tx.read(1)?;
        tx.set(2, 1)?;
        Ok((before == after && before.is_some(), deleted, between))
    });
    other.join().expect("the other writer");
    mover.join().expect("the mover");
    assert_eq!(seen.expect("it is retried"), (true, true, None), "a savepoint has changed what is seen");
    assert_eq!(world.all(), [(1, 1), (2, 1)], "an update was lost, or a row is there twice");
    world.settle_cold();
    assert_eq!(world.all(), [(1, 1), (2, 1)]);
}

#[test]
fn an_end_that_is_taken_back_never_was() {
    model::run(1500, ended_and_not);
}

/// Cleaning beside a migration that begins, moves and ends.
fn cleaned_beside() {
    let world = cold_world(&[(1, 10)]);
    let cleaner = world.spawn(|world| {
        for _ in 0..2 {
            world.clean();
        }
    });
    let moved = world.migrate(&[1]);
    world.clean();
    cleaner.join().expect("the cleaner");
    assert_eq!(moved, 1);
    world.prune();
    assert_eq!(world.all(), [(1, 10)], "a row was lost");
    world.settle_cold();
    assert_eq!(world.all(), [(1, 10)], "a row was lost");
}

#[test]
fn a_batch_that_is_under_way_is_not_cleaned() {
    model::run(3000, cleaned_beside);
}

#[test]
fn a_batch_that_is_taken_for_a_failed_one_is_caught() {
    misses(Rule::FailedRunsNoMore, 20_000, cleaned_beside);
}

/// Somebody is about to end a record that was ended this moment, and his notice is found first.
fn one_end_counts() {
    let world = cold_world(&(1..9).map(|id| (id, id)).collect::<Vec<_>>());
    world.migrate(&[1, 2, 3, 4, 5, 6, 7, 8]);
    // Notices of other records, which leave places in the index in front of the one that counts.
    let mut others = world.begin(Isolation::Snapshot);
    for id in 2..9 {
        assert!(others.delete(id).expect("nobody competes"));
    }
    let second = world.spawn(|world| {
        let options = TransactionOptions::new().isolation(Isolation::Snapshot).no_wait();
        let mut tx = Tx { world, tx: world.db.begin(options).expect("it begins") };
        if let Err(error) = tx.set(1, 200) {
            assert!(error.is_retryable() || matches!(error, Error::WouldWait { .. }), "{error}");
            return false;
        }
        tx.commit().is_ok()
    });
    let mut first = world.begin(Isolation::Snapshot);
    let changed = first.set(1, 100);
    drop(others);
    let committed = may_lose(changed.and_then(|_| first.commit()));
    let seen: Vec<_> = (0..2).map(|_| world.all()).collect();
    let another = second.join().expect("the second writer");
    assert!(committed || another, "both gave way");
    for rows in seen {
        let ids: Vec<i64> = rows.iter().map(|row| row.0).collect();
        assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 8], "a row was seen twice, or not");
    }
}

#[test]
fn the_end_that_counts_is_found() {
    model::run(1500, one_end_counts);
}

/// The moment of that: one notice counts, the other one is about to be taken back. In either order.
fn two_notices(first_counts: bool) -> Option<i64> {
    let world = cold_world(&[(1, 10)]);
    world.migrate(&[1]);
    let inner = world.db.inner();
    let index = crate::cold::store::primary_of(world.table.entry.id);
    let cold = inner.cold.get().expect("it was opened");
    let records = block_on(cold.store.get(index, &key(1))).expect("the store works");
    let name = crate::cold::memo::RecordName::new(records[0].batch.0, &key(1));
    let end = || {
        let mut tx = crate::ops::drive::Driver::internal(inner).expect("it begins");
        let ended = tx.with_session(|session| {
            let guard = session.db().epochs.pin();
            session.end_record(world.table.entry.id, name, Vec::new(), crate::cold::memo::Heir::None, &guard)
        });
        ended.expect("memory");
        tx
    };
    let (first, second) = (end(), end());
    let (counts, other) = if first_counts { (first, second) } else { (second, first) };
    block_on(counts.commit(&mut Default::default(), || ())).expect("nobody competes");
    let seen = world.value(1);
    drop(other);
    assert_eq!(world.value(1), None, "the record has ended");
    seen
}

#[test]
fn a_notice_that_hides_the_one_that_counts_is_caught() {
    assert_eq!((two_notices(true), two_notices(false)), (None, None), "a dead record was seen");
    let _off = mutation::switch_off(Rule::AllEndsCount);
    assert_ne!((two_notices(true), two_notices(false)), (None, None), "no order misses the rule");
}

/// What somebody does with row 1 and takes back to a savepoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TakenBack {
    Change,
    Lock,
    /// … and what the other one wants is the key.
    Key,
}

/// One takes something back that the other one has met, and then waits for him: no circle, since nothing of it is in
/// anybody's way any more.
fn taken_back(what: TakenBack, is_cold: bool) {
    let world = cold_world(&[(1, 10), (2, 20)]);
    if is_cold {
        world.migrate(&[1, 2]);
    }
    let other = world.spawn(move |world| {
        let mut tx = world.begin(Isolation::ReadCommitted);
        tx.set(2, 21)?;
        match what {
            TakenBack::Key => match tx.insert(1, 11) {
                Err(Error::DuplicateKey { .. }) => {}
                Err(error) => return Err(error),
                Ok(()) => return Err(Error::Refused("a key was taken over".to_owned())),
            },
            TakenBack::Change | TakenBack::Lock => assert!(tx.set(1, 11)?, "a row was lost"),
        }
        tx.commit()
    });
    let mut tx = world.begin(Isolation::ReadCommitted);
    let savepoint = tx.tx.savepoint().expect("it is well");
    let done = match what {
        TakenBack::Change => tx.set(1, 12),
        TakenBack::Lock => tx.lock(1, LockMode::Update),
        TakenBack::Key => tx.delete(1),
    };
    let outcome = done.and_then(|_| tx.tx.rollback_to(&savepoint)).and_then(|()| tx.set(2, 22));
    assert!(unharmed(outcome), "a row was lost");
    unharmed(tx.commit());
    unharmed(other.join().expect("the other one"));
    assert_eq!(world.all().len(), 2);
}

fn change_taken_back() {
    taken_back(TakenBack::Change, false);
}

fn change_of_cold_taken_back() {
    taken_back(TakenBack::Change, true);
}

fn lock_taken_back() {
    taken_back(TakenBack::Lock, true);
}

fn key_taken_back() {
    taken_back(TakenBack::Key, true);
}

#[test]
fn nobody_waits_for_what_was_taken_back() {
    for scenario in [change_taken_back, change_of_cold_taken_back, lock_taken_back, key_taken_back] {
        model::run(1000, scenario);
    }
}

#[test]
fn a_count_that_is_read_after_the_look_is_caught() {
    let _off = mutation::switch_off(Rule::CountBeforeLook);
    let scenarios = [change_taken_back, change_of_cold_taken_back, lock_taken_back, key_taken_back];
    assert!(
        scenarios.into_iter().any(|scenario| model::finds_failure(20_000, scenario)),
        "no schedule of any of them misses the rule"
    );
}
