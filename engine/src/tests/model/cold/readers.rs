//! Readers beside moves and cleaning (8, 9, 13, 17, 21-23): at each snapshot a row is seen once, wherever it is.

use super::*;

/// Rows are moved to and fro and changed; snapshots see all of them once, by key, by range and by table.
fn seen_once_in(at_once: bool) {
    let world = cold_world_with(&[(1, 10), (2, 20)], by_value);
    if at_once {
        world.store.answer_at_once();
    }
    world.migrate(&[1]);
    let writer = world.spawn(|world| {
        world
            .retry(Isolation::Snapshot, |tx| {
                tx.set(1, 11)?;
                tx.set(2, 19)
            })
            .expect("it is retried");
    });
    let mover = world.spawn(|world| {
        world.migrate(&[2]);
        world.promote(1);
        world.clean();
        world.prune();
    });
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut tx = world.begin(Isolation::Snapshot);
        let by_key = unharmed(tx.read(1)).zip(unharmed(tx.read(2)));
        seen.push((by_key, unharmed(tx.scan(0, 100)), unharmed(tx.all())));
    }
    writer.join().expect("the writer");
    mover.join().expect("the mover");
    for (by_key, range, table) in seen {
        let (one, two) = by_key.expect("a row was not seen at all");
        assert!([(10, 20), (11, 19)].contains(&(one, two)), "half of a transaction: {one}, {two}");
        assert_eq!(range, [one, two], "a scan saw something else than a read");
        assert_eq!(table, [(1, one), (2, two)], "a scan of the table saw something else than a read");
    }
    world.settle_cold();
    assert_eq!(world.all(), [(1, 11), (2, 19)]);
}

fn seen_once() {
    seen_once_in(false);
}

#[test]
fn whoever_reads_sees_each_row_once() {
    model::run(1500, seen_once);
    model::run(1500, || seen_once_in(true));
}

#[test]
fn a_promoted_version_that_begins_with_its_record_is_caught() {
    misses(Rule::PromotedBeginsLater, 10_000, seen_once);
}

#[test]
fn looks_into_memory_and_store_at_two_times_are_caught() {
    misses(Rule::BothLooksAtOneTime, 10_000, seen_once);
}

#[test]
fn a_dropped_notice_that_hides_its_batch_is_caught() {
    misses(Rule::DroppedIsThere, 10_000, seen_once);
}

/// A snapshot that is older than a row, which has been inserted and migrated since.
fn older_than_the_row() {
    let world = cold_world_with(&[(1, 10)], by_value);
    let mut old = world.begin(Isolation::Snapshot);
    assert_eq!(old.read(1).expect("a read"), Some(10));
    let mover = world.spawn(|world| {
        world.retry(Isolation::Snapshot, |tx| tx.insert(2, 20)).expect("a fresh row");
        assert_eq!(world.migrate(&[1, 2]), 2, "an open snapshot keeps rows in memory");
        for _ in 0..2 {
            world.clean();
            world.prune();
        }
    });
    for _ in 0..2 {
        assert_eq!(unharmed(old.read(2)), None, "a row is seen by who is older");
        assert_eq!(unharmed(old.all()), [(1, 10)], "a row is seen twice, or by who is older");
    }
    mover.join().expect("the mover");
    assert_eq!(unharmed(old.scan(0, 100)), [10], "a row is seen twice, or by who is older");
    drop(old);
    world.settle_cold();
    assert_eq!(world.all(), [(1, 10), (2, 20)]);
}

#[test]
fn who_is_older_than_a_batch_does_not_see_it() {
    model::run(1500, older_than_the_row);
}

#[test]
fn a_notice_that_hides_nothing_from_who_is_older_is_caught() {
    misses(Rule::OlderThanNotice, 2000, older_than_the_row);
}

#[test]
fn a_begin_that_is_dropped_under_older_snapshots_is_caught() {
    misses(Rule::RecordOutlivesReaders, 2000, older_than_the_row);
}

/// A reader has copied a record of a batch that is then given up and discarded.
fn copied_from_a_discarded_batch() {
    let world = cold_world(&[(1, 10)]);
    world.store.slow_writes();
    world.store.slow_reads();
    let mover = world.spawn(|world| {
        assert_eq!(world.migrate(&[1]), 0, "the row has been deleted");
        for _ in 0..3 {
            world.clean();
            world.prune();
        }
        world.store.let_answer();
    });
    let reader = world.spawn(|world| {
        world.retry(Isolation::Snapshot, |tx| tx.delete(1)).expect("it is retried");
        world.store.let_land();
        let mut tx = world.begin(Isolation::Snapshot);
        unharmed(tx.read(1))
    });
    let seen = reader.join().expect("the reader");
    mover.join().expect("the mover");
    assert_eq!(seen, None, "a deleted row is back");
    world.settle_cold();
    assert_eq!(world.all(), []);
}

#[test]
fn a_copy_from_a_discarded_batch_is_not_the_row() {
    model::run(1500, copied_from_a_discarded_batch);
}

/// The same with a reader who is older than the batch's notice, and sees the row in memory.
fn scanned_a_discarded_batch() {
    let world = cold_world(&[(1, 10), (2, 20)]);
    world.migrate(&[2]);
    let mut old = world.begin(Isolation::Snapshot);
    world.store.slow_writes();
    world.store.slow_reads();
    let mover = world.spawn(|world| {
        world.migrate(&[1]);
        for _ in 0..2 {
            world.clean();
            world.prune();
        }
        world.store.let_answer();
    });
    let changer = world.spawn(|world| {
        world.retry(Isolation::Snapshot, |tx| tx.set(1, 11)).expect("it is retried");
        world.store.let_land();
    });
    let seen = unharmed(old.all());
    changer.join().expect("the changer");
    mover.join().expect("the mover");
    assert_eq!(seen, [(1, 10), (2, 20)], "a row is seen twice");
    drop(old);
    world.settle_cold();
    assert_eq!(world.all(), [(1, 11), (2, 20)]);
}

#[test]
fn a_scan_passes_over_a_discarded_batch() {
    model::run(1000, scanned_a_discarded_batch);
}

#[test]
fn a_notice_that_is_dropped_under_readers_of_its_batch_is_caught() {
    misses(Rule::NoticeOutlivesReaders, 20_000, scanned_a_discarded_batch);
}

/// A reader has copied a record that is then ended and removed.
fn copied_before_its_removal() {
    let world = cold_world(&[(1, 10)]);
    world.migrate(&[1]);
    world.store.slow_reads();
    let cleaner = world.spawn(|world| {
        for _ in 0..3 {
            world.clean();
            world.prune();
        }
        world.store.let_answer();
    });
    // Its bytes come late; its snapshot sees the row, or not.
    let reader = world.spawn(|world| unharmed(world.begin(Isolation::Snapshot).read(1)));
    let deleted = {
        let mut tx = world.begin(Isolation::Snapshot);
        let outcome = tx.delete(1).and_then(|found| tx.commit().map(|()| found));
        unharmed(outcome)
    };
    assert!(deleted, "a row was lost");
    let mut late = world.begin(Isolation::Snapshot);
    let after = unharmed(late.read(1));
    drop(late);
    let seen = reader.join().expect("the reader");
    cleaner.join().expect("the cleaner");
    assert!([None, Some(10)].contains(&seen) && after.is_none(), "a deleted row is back");
    world.settle_cold();
    assert_eq!((world.all(), world.records(1)), (vec![], 0));
}

#[test]
fn a_copy_of_a_removed_record_is_not_the_row() {
    model::run(1500, copied_before_its_removal);
}

/// The removal of a dead record takes its time.
fn removed_slowly() {
    let world = cold_world(&[(1, 10)]);
    world.migrate(&[1]);
    world.retry(Isolation::Snapshot, |tx| tx.delete(1)).expect("nobody competes");
    world.store.slow_writes();
    let cleaner = world.spawn(|world| {
        for _ in 0..2 {
            world.clean();
        }
    });
    let mut seen = Vec::new();
    for _ in 0..3 {
        world.prune();
        seen.push(world.value(1));
    }
    world.store.let_land();
    cleaner.join().expect("the cleaner");
    assert_eq!(seen, [None; 3], "a deleted row is back");
    world.settle_cold();
    assert_eq!((world.all(), world.records(1)), (vec![], 0));
}

#[test]
fn a_record_is_dead_until_it_has_gone() {
    model::run(1500, removed_slowly);
}

#[test]
fn a_notice_that_is_dropped_before_its_record_is_caught() {
    misses(Rule::NoticeAfterRecord, 10_000, removed_slowly);
}

/// Statements of a read committed transaction, whose row is deleted and removed between them.
fn deleted_between_statements() {
    let world = cold_world(&[(1, 10)]);
    world.migrate(&[1]);
    let changer = world.spawn(|world| {
        world.retry(Isolation::Snapshot, |tx| tx.delete(1)).expect("it is retried");
        for _ in 0..2 {
            world.clean();
            world.prune();
        }
    });
    let mut tx = world.begin(Isolation::ReadCommitted);
    let seen: Vec<_> = (0..3).map(|_| unharmed(tx.read(1))).collect();
    changer.join().expect("the changer");
    let last = unharmed(tx.read(1));
    assert!(seen.is_sorted_by(|a, b| a >= b) && last.is_none(), "a deleted row is back");
    drop(tx);
    world.settle_cold();
}

/// The same with a row that is inserted, and migrates, where a dead record was before.
fn inserted_between_statements() {
    let world = cold_world(&[(1, 10)]);
    world.migrate(&[1]);
    world.retry(Isolation::Snapshot, |tx| tx.delete(1)).expect("nobody competes");
    let changer = world.spawn(|world| {
        world.retry(Isolation::Snapshot, |tx| tx.insert(1, 20)).expect("nobody competes");
        world.migrate(&[1]);
    });
    let mut tx = world.begin(Isolation::ReadCommitted);
    let seen: Vec<_> = (0..3).map(|_| unharmed(tx.read(1))).collect();
    changer.join().expect("the changer");
    let last = unharmed(tx.read(1));
    assert!(seen.is_sorted() && last == Some(20), "a row is not seen any more: {seen:?}, {last:?}");
    drop(tx);
    world.settle_cold();
}

#[test]
fn a_statement_reads_the_store_anew() {
    model::run(1000, deleted_between_statements);
    model::run(1000, inserted_between_statements);
}

#[test]
fn what_an_earlier_statement_has_read_is_caught() {
    misses(Rule::CacheEndsWithSnapshot, 10_000, inserted_between_statements);
}

/// A migration is dropped while its batch is being written, and cleaned while the write is still under way.
fn dropped_under_a_write() {
    let world = cold_world(&[(1, 10)]);
    world.store.slow_writes();
    {
        let inner = world.db.inner();
        let rows = [thermocline_base::ids::RowId::new(0, 0)];
        let mut migration = Box::pin(crate::ops::migrate::migrate(inner, &world.table.entry, &rows));
        let waker = std::task::Waker::noop();
        let poll = migration.as_mut().poll(&mut std::task::Context::from_waker(waker));
        assert!(poll.is_pending(), "the write is under way");
    }
    let writer = world.spawn(|world| {
        world.retry(Isolation::Snapshot, |tx| tx.delete(1)).expect("it is retried");
        world.store.let_land();
    });
    for _ in 0..3 {
        world.clean();
        world.prune();
    }
    writer.join().expect("the writer");
    assert_eq!(world.value(1), None, "a record without a notice is visible to all");
    world.settle_cold();
    assert_eq!((world.all(), world.records(1)), (vec![], 0), "a batch was forgotten");
}

#[test]
fn a_batch_is_discarded_when_its_write_is_over() {
    model::run(1500, dropped_under_a_write);
}

#[test]
fn a_batch_that_is_discarded_under_its_write_is_caught() {
    misses(Rule::DiscardAfterWrite, 10_000, dropped_under_a_write);
}
