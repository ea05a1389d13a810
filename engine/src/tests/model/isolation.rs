//! What transactions may see of each other (`interleavings.md`, 1, 5 and the lock part of 6).

use super::*;

/// Rows 1 and 2 begin with 1 each. Either transaction may take its own row down to 0 if the sum allows it.
fn write_skew() {
    let world = world(&[(1, 1), (2, 1)]);
    let take = |world: &World, mine: i64| {
        let mut tx = world.begin(Isolation::Serializable);
        let sum = tx.read(1)?.unwrap_or(0) + tx.read(2)?.unwrap_or(0);
        if sum == 2 {
            tx.set(mine, 0)?;
        }
        tx.commit()
    };
    let other = world.spawn(move |world| may_lose(take(world, 2)));
    let here = may_lose(take(&world, 1));
    let there = other.join().expect("the other transaction");
    assert!(here || there, "both gave way");
    assert_eq!(world.value(1).max(world.value(2)), Some(1), "both rows were taken down");
}

#[test]
fn two_validators_never_miss_each_other() {
    model::run(6000, write_skew);
}

#[test]
fn drawing_the_timestamp_before_preparing_is_caught() {
    misses(Rule::PreparingBeforeTimestamp, 40_000, write_skew);
}

#[test]
fn reads_that_are_not_validated_are_caught() {
    misses(Rule::ValidateReads, 10_000, write_skew);
}

/// The same with predicates: each inserts if it has seen nobody.
fn predicate_write_skew() {
    let world = world_with(&[(9, 900)], by_value);
    let enter = |world: &World, id: i64| {
        let mut tx = world.begin(Isolation::Serializable);
        if tx.scan(0, 100)?.is_empty() {
            tx.insert(id, id)?;
        }
        tx.commit()
    };
    let other = world.spawn(move |world| may_lose(enter(world, 2)));
    let here = may_lose(enter(&world, 1));
    let there = other.join().expect("the other transaction");
    assert!(here || there, "both gave way");
    let found = world.begin(Isolation::Snapshot).scan(0, 100).expect("a scan");
    assert_eq!(found.len(), 1, "both have entered");
}

#[test]
fn no_phantom_gets_through() {
    model::run(3000, predicate_write_skew);
}

#[test]
fn scans_that_are_not_validated_are_caught() {
    misses(Rule::ValidateScans, 10_000, predicate_write_skew);
}

#[test]
fn a_late_timestamp_lets_phantoms_through_and_is_caught() {
    misses(Rule::PreparingBeforeTimestamp, 40_000, predicate_write_skew);
}

/// A writer moves 1 from row 1 to row 2; a reader's snapshot sees all of that or nothing, by key and by scan.
fn whole_transactions() {
    let world = world_with(&[(1, 10), (2, 20)], by_value);
    let writer = world.spawn(|world| {
        world.retry(Isolation::Snapshot, |tx| {
            tx.set(1, 9)?;
            tx.set(2, 21)
        })
    });
    let mut sums = Vec::new();
    for _ in 0..2 {
        let mut tx = world.begin(Isolation::Snapshot);
        let one = tx.read(1).expect("a read").expect("row 1");
        sums.push(one + tx.read(2).expect("a read").expect("row 2"));
        sums.push(tx.scan(0, 100).expect("a scan").into_iter().sum());
    }
    writer.join().expect("the writer").expect("nobody competes");
    assert_eq!(sums, [30; 4], "a snapshot saw half of a transaction");
}

#[test]
fn a_snapshot_sees_whole_transactions() {
    model::run(5000, whole_transactions);
}

#[test]
fn half_a_transaction_is_seen_with_a_late_timestamp() {
    misses(Rule::PreparingBeforeTimestamp, 40_000, whole_transactions);
}

#[test]
fn half_a_transaction_is_seen_without_waiting_for_its_decision() {
    misses(Rule::WaitForPreparing, 40_000, whole_transactions);
}

/// A transaction whose first operation may wait and then take a newer snapshot: what it reads later is at that one.
fn late_snapshot() {
    let world = world(&[(1, 10), (2, 20)]);
    let writer = world.spawn(|world| {
        world.retry(Isolation::Snapshot, |tx| {
            tx.set(1, 9)?;
            tx.set(2, 21)
        })
    });
    let World { db, table, primary, layout } = &world;
    let one = key(1);
    let seen = db.run(TransactionOptions::new(), async |tx| {
        let first = tx.update(primary, &one, |row| {
            let value = layout.i64(row.row(), 1).unwrap_or(0);
            row.set_i64(1, value + 100).map(|()| value).map_err(|error| table.error(error))
        });
        let first = first.await?;
        let second = tx.read(primary, &key(2), |row| layout.i64(row, 1)).await?;
        Ok((first, second.flatten()))
    });
    writer.join().expect("the writer").expect("it is retried");
    let seen = seen.expect("it is retried");
    assert!([(Some(10), Some(20)), (Some(9), Some(21))].contains(&seen), "half of a transaction: {seen:?}");
}

#[test]
fn a_renewed_snapshot_is_one_snapshot() {
    model::run(3000, late_snapshot);
}

/// Two transactions count up what they have read.
fn lost_update() {
    let world = world(&[(1, 0)]);
    let count = |world: &World| {
        world.retry(Isolation::Snapshot, |tx| {
            let value = tx.read(1)?.unwrap_or(-1);
            tx.set(1, value + 1)
        })
    };
    let other = world.spawn(move |world| count(world));
    count(&world).expect("it is retried");
    other.join().expect("the other transaction").expect("it is retried");
    assert_eq!(world.value(1), Some(2), "an update was lost");
    world.settle();
}

#[test]
fn no_update_is_lost() {
    model::run(4000, lost_update);
}

#[test]
fn a_second_updater_that_wins_is_caught() {
    misses(Rule::FirstUpdaterWins, 10_000, lost_update);
}

/// As the write skew, but what was read is rolled back to a savepoint before.
fn savepoint_reads() {
    let world = world(&[(1, 1), (2, 1)]);
    let take = |world: &World, mine: i64| {
        let mut tx = world.begin(Isolation::Serializable);
        let savepoint = tx.tx.savepoint()?;
        let sum = tx.read(1)?.unwrap_or(0) + tx.read(2)?.unwrap_or(0);
        tx.tx.rollback_to(&savepoint)?;
        if sum == 2 {
            tx.set(mine, 0)?;
        }
        tx.commit()
    };
    let other = world.spawn(move |world| may_lose(take(world, 2)));
    may_lose(take(&world, 1));
    other.join().expect("the other transaction");
    assert_eq!(world.value(1).max(world.value(2)), Some(1), "both rows were taken down");
}

#[test]
fn a_savepoint_keeps_what_was_read() {
    model::run(3000, savepoint_reads);
}

#[test]
fn a_savepoint_that_forgets_reads_is_caught() {
    misses(Rule::SavepointKeepsReads, 10_000, savepoint_reads);
}

/// Two want key 5: one inserts it, the other inserts it or moves a row there.
fn unique_key(moves: bool) {
    let world = world(&[(1, 10)]);
    let other = world.spawn(move |world| {
        let mut tx = world.begin(Isolation::ReadCommitted);
        let outcome = if moves { tx.set_key(1, 5).map(drop) } else { tx.insert(5, 52) };
        outcome.and_then(|()| tx.commit())
    });
    let mut tx = world.begin(Isolation::ReadCommitted);
    let here = tx.insert(5, 51).and_then(|()| tx.commit());
    let there = other.join().expect("the other transaction");
    let won = [&here, &there].iter().filter(|outcome| outcome.is_ok()).count();
    for lost in [here, there].into_iter().filter_map(Result::err) {
        // Nobody has to give way: of two who have both claimed the key, one takes it back and waits.
        assert!(matches!(lost, Error::DuplicateKey { .. }), "{lost}");
    }
    assert_eq!(won, 1, "one of the two gets the key");
    world.settle();
    let rows = if moves && world.value(1).is_none() { 1 } else { 2 };
    assert_eq!(world.entries(), rows, "the loser leaves nothing behind");
    assert!(world.value(5).is_some());
}

fn two_inserters() {
    unique_key(false);
}

fn inserter_and_mover() {
    unique_key(true);
}

#[test]
fn a_key_has_one_owner() {
    model::run(3000, two_inserters);
    model::run(3000, inserter_and_mover);
}

#[test]
fn a_check_before_the_claim_is_caught() {
    misses(Rule::ClaimBeforeCheck, 10_000, two_inserters);
}

/// A holder leaves its key and comes back to it, while another wants it, by inserting or by moving a row there.
fn back_to_the_key(moves: bool) {
    let world = world(&[(1, 10), (2, 20)]);
    let other = world.spawn(move |world| {
        let mut tx = world.begin(Isolation::ReadCommitted);
        let outcome = if moves { tx.set_key(2, 1).map(drop) } else { tx.insert(1, 12) };
        outcome.and_then(|()| tx.commit())
    });
    let mut tx = world.begin(Isolation::ReadCommitted);
    let here = tx.delete(1).and_then(|_| tx.insert(1, 11)).and_then(|()| tx.commit());
    let there = other.join().expect("the other transaction");
    assert!(here.is_ok(), "whoever waits for a key is in the way of its holder: {here:?}");
    assert!(matches!(there, Err(Error::DuplicateKey { .. })), "{there:?}");
    world.settle();
    assert_eq!((world.value(1), world.value(2), world.entries()), (Some(11), Some(20), 2));
}

fn back_to_an_inserted_key() {
    back_to_the_key(false);
}

fn back_to_a_moved_key() {
    back_to_the_key(true);
}

#[test]
fn a_holder_comes_back_to_its_key() {
    model::run(4000, back_to_an_inserted_key);
    model::run(4000, back_to_a_moved_key);
}

#[test]
fn a_claim_that_stays_while_it_waits_is_caught() {
    misses(Rule::WaitWithoutClaim, 10_000, back_to_an_inserted_key);
}

#[test]
fn a_claim_that_is_taken_back_in_silence_is_caught() {
    misses(Rule::UndoingIsTold, 40_000, back_to_an_inserted_key);
}

/// Rows 1 and 2 are there. Each is refused one of them, and takes the other one away on the strength of that.
fn refusals() {
    let world = world(&[(1, 10), (2, 20)]);
    let take = |world: &World, refusing: i64, gone: i64| {
        let mut tx = world.begin(Isolation::Serializable);
        match tx.insert(refusing, 0) {
            Err(Error::DuplicateKey { .. }) => drop(tx.delete(gone)?),
            outcome => outcome?,
        }
        tx.commit()
    };
    let other = world.spawn(move |world| may_lose(take(world, 2, 1)));
    let here = may_lose(take(&world, 1, 2));
    let there = other.join().expect("the other transaction");
    assert!(here || there, "both gave way");
    assert!(
        world.value(1).or(world.value(2)).is_some(),
        "each was refused a row that the other has taken away"
    );
}

#[test]
fn a_refusal_is_a_read() {
    model::run(3000, refusals);
}

#[test]
fn a_refusal_that_is_not_validated_is_caught() {
    misses(Rule::RefusalIsRead, 10_000, refusals);
}

/// Two loads of the same keys, in opposite orders: one is refused as a whole.
fn two_loads() {
    let world = world(&[]);
    let load = |world: &World, ids: [i64; 3], value: i64| {
        world.db.bulk_load(&world.table, ids.map(|id| [Value::Int8(id), Value::Int8(value)]))
    };
    let other = world.spawn(move |world| load(world, [3, 2, 1], 2));
    let here = load(&world, [1, 2, 3], 1);
    let there = other.join().expect("the other load");
    let won = if here.is_ok() { 1 } else { 2 };
    assert!(here.is_ok() != there.is_ok(), "one of the two gets the keys: {here:?}, {there:?}");
    for lost in [here, there].into_iter().filter_map(Result::err) {
        assert!(matches!(lost, Error::DuplicateKey { .. } | Error::Deadlock { .. }), "{lost}");
    }
    world.settle();
    assert_eq!([1, 2, 3].map(|id| world.value(id)), [Some(won); 3], "a load is there by halves");
    assert_eq!(world.entries(), 3, "the loser leaves nothing behind");
}

/// A load beside a reader, who sees all of it or nothing, by key and by scan.
fn a_load_and_a_reader() {
    let world = world_with(&[(1, 10)], by_value);
    let loader = world.spawn(|world| {
        let rows = (2..11).map(|id| [Value::Int8(id), Value::Int8(id)]);
        world.db.bulk_load(&world.table, rows)
    });
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut tx = world.begin(Isolation::Snapshot);
        let (first, last) = (tx.read(2).expect("a read"), tx.read(10).expect("a read"));
        seen.push((first.is_some(), last.is_some(), tx.scan(2, 10).expect("a scan").len()));
    }
    assert_eq!(loader.join().expect("the loader").expect("nobody competes"), 9);
    for state in seen {
        assert!([(false, false, 0), (true, true, 8)].contains(&state), "{state:?}");
    }
}

#[test]
fn a_load_is_there_as_a_whole() {
    model::run(2000, two_loads);
    model::run(2000, a_load_and_a_reader);
}

#[test]
fn half_a_load_is_seen_without_waiting_for_its_decision() {
    misses(Rule::WaitForPreparing, 40_000, a_load_and_a_reader);
}

/// Row 1 is a parent, row 2 its child. One locks the parent's key and inserts the child, the other deletes the parent
/// unless there is a child.
fn foreign_key() {
    let world = world(&[(1, 10)]);
    let deleter = world.spawn(|world| {
        let mut tx = world.begin(Isolation::ReadCommitted);
        tx.delete(1)?;
        // After the delete: no new child can come any more.
        if tx.read(2)?.is_none() { tx.commit() } else { Ok(()) }
    });
    let mut tx = world.begin(Isolation::ReadCommitted);
    let here = tx.lock(1, LockMode::KeyShare).and_then(|found| {
        if found {
            tx.insert(2, 20)?;
        }
        tx.commit()
    });
    let there = deleter.join().expect("the deleter");
    assert!(here.is_ok() && there.is_ok(), "nobody has to give way: {here:?}, {there:?}");
    assert!(
        world.value(1).is_some() || world.value(2).is_none(),
        "the parent is gone, and its child is there"
    );
    assert!(world.value(1).is_some() || world.value(2).is_some() || world.entries() > 0);
}

#[test]
fn a_lock_and_a_writer_see_each_other() {
    model::run(6000, foreign_key);
}

#[test]
fn a_lock_that_is_entered_after_the_look_is_caught() {
    misses(Rule::LockBeforeLook, 40_000, foreign_key);
}

/// A row that is changed under a key share, and then deleted by the same writer.
fn change_then_delete() {
    let world = world(&[(1, 10)]);
    let deleter = world.spawn(|world| {
        let mut tx = world.begin(Isolation::ReadCommitted);
        tx.set(1, 11)?;
        tx.delete(1)?;
        if tx.read(2)?.is_none() { tx.commit() } else { Ok(()) }
    });
    let mut tx = world.begin(Isolation::ReadCommitted);
    let here = tx.lock(1, LockMode::KeyShare).and_then(|found| {
        if found {
            tx.insert(2, 20)?;
        }
        tx.commit()
    });
    let there = deleter.join().expect("the deleter");
    assert!(here.is_ok() && there.is_ok(), "nobody has to give way: {here:?}, {there:?}");
    assert!(world.value(1).is_some() || world.value(2).is_none(), "the parent is gone, its child is there");
}

#[test]
fn a_second_write_meets_the_lock_that_the_first_was_admitted_by() {
    model::run(4000, change_then_delete);
}

#[test]
fn a_removal_over_an_own_version_that_looks_for_locks_too_early_is_caught() {
    misses(Rule::OwnRemovalLooksForLocks, 40_000, change_then_delete);
}

/// A parent's key changes, in a version over one that has changed nothing of it.
fn change_then_new_key() {
    let world = world(&[(1, 10)]);
    let other = world.spawn(|world| {
        let mut tx = world.begin(Isolation::ReadCommitted);
        tx.set(1, 11)?;
        tx.set_key(1, 3)?;
        if tx.read(2)?.is_none() { tx.commit() } else { Ok(()) }
    });
    let mut tx = world.begin(Isolation::ReadCommitted);
    let here = tx.lock(1, LockMode::KeyShare).and_then(|found| {
        if found {
            tx.insert(2, 20)?;
        }
        tx.commit()
    });
    let there = other.join().expect("the other");
    assert!(here.is_ok() && there.is_ok(), "nobody has to give way: {here:?}, {there:?}");
    assert!(
        world.value(1).is_some() || world.value(2).is_none(),
        "the parent's key is gone, its child is there"
    );
}

#[test]
fn a_key_share_guards_the_key_over_versions_that_are_being_written() {
    model::run(4000, change_then_new_key);
}

#[test]
fn a_key_share_that_compares_no_keys_is_caught() {
    misses(Rule::KeyShareComparesKeys, 40_000, change_then_new_key);
}

/// Crossed order: one is told of a deadlock at most, nobody sleeps for ever, and who rolls back to a savepoint lets
/// the other one through.
fn crossed_writers() {
    let world = world(&[(1, 0), (2, 0)]);
    let write = |world: &World, first: i64, second: i64| {
        let mut tx = world.begin(Isolation::ReadCommitted);
        let savepoint = tx.tx.savepoint()?;
        tx.set(first, first)?;
        match tx.set(second, first) {
            Err(Error::Deadlock { .. }) => tx.tx.rollback_to(&savepoint)?,
            outcome => drop(outcome?),
        }
        tx.commit()
    };
    let other = world.spawn(move |world| write(world, 2, 1));
    write(&world, 1, 2).expect("a savepoint heals it");
    other.join().expect("the other transaction").expect("a savepoint heals it");
    let values = (world.value(1), world.value(2));
    assert!(values == (Some(1), Some(1)) || values == (Some(2), Some(2)), "{values:?}");
}

#[test]
fn crossed_writers_come_apart() {
    model::run(6000, crossed_writers);
}
