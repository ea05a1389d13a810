//! Unique keys in memory and in the cold store, beside moves: at any time a key has one owner, and nobody is refused
//! because of one that has gone.

use super::*;

fn is_duplicate(outcome: &Result<()>) -> bool {
    match outcome {
        Ok(()) => false,
        Err(Error::DuplicateKey { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

fn insert(world: &ColdWorld, id: i64, value: i64) -> Result<()> {
    let mut tx = world.begin(Isolation::ReadCommitted);
    tx.insert(id, value).and_then(|()| tx.commit())
}

/// A key is inserted whose row is cold, is changed in another column, and moves.
fn key_of_a_cold_row() {
    let world = cold_world(&[(1, 10)]);
    world.migrate(&[1]);
    let changer = world.spawn(|world| {
        world.retry(Isolation::Snapshot, |tx| tx.set(1, 11)).expect("it is retried");
    });
    let mover = world.spawn(|world| {
        world.promote(1);
        world.migrate(&[1]);
    });
    let refused = is_duplicate(&insert(&world, 1, 99));
    changer.join().expect("the changer");
    mover.join().expect("the mover");
    assert_eq!(world.all(), [(1, 11)], "a key has two owners, or the wrong one");
    assert!(refused, "a key was taken over");
    world.settle_cold();
}

#[test]
fn a_key_has_one_owner_wherever_it_is() {
    model::run(1500, key_of_a_cold_row);
}

/// The same without moves, by who has read the record and need not wait for it.
fn key_of_a_changed_row() {
    let world = cold_world(&[(1, 10)]);
    world.migrate(&[1]);
    let mut tx = world.begin(Isolation::Snapshot);
    assert_eq!(tx.read(1).expect("a read"), Some(10));
    let changer = world.spawn(|world| {
        world.retry(Isolation::Snapshot, |tx| tx.set(1, 11)).expect("it is retried");
    });
    let refused = is_duplicate(&tx.insert(1, 99).and_then(|()| tx.commit()));
    changer.join().expect("the changer");
    assert_eq!(world.all(), [(1, 11)], "a key has two owners, or the wrong one");
    assert!(refused, "a key was taken over");
}

#[test]
fn a_key_that_was_read_has_one_owner() {
    model::run(1000, key_of_a_changed_row);
}

/// Two want a key of which the store has a dead record; the row of one of them goes there at once.
fn key_of_a_dead_record() {
    let world = cold_world(&[(1, 10)]);
    world.migrate(&[1]);
    world.retry(Isolation::Snapshot, |tx| tx.delete(1)).expect("nobody competes");
    let other = world.spawn(|world| {
        let outcome = insert(world, 1, 20);
        world.migrate(&[1]);
        outcome
    });
    let here = is_duplicate(&insert(&world, 1, 30));
    let there = is_duplicate(&other.join().expect("the other one"));
    let owner = if there { 30 } else { 20 };
    assert_eq!(world.all(), [(1, owner)], "a key has two owners, or none");
    assert!(here != there, "one of the two gets the key");
    world.settle_cold();
    assert_eq!(world.all(), [(1, owner)], "a key has two owners, or none");
}

#[test]
fn what_was_read_before_a_move_does_not_answer_for_it() {
    model::run(2000, key_of_a_dead_record);
}

#[test]
#[ignore = "a long search: .ci/deep model"]
fn a_move_that_is_counted_afterwards_is_caught() {
    misses(Rule::MovesCountedFirst, 20_000, key_of_a_dead_record);
}

#[test]
fn a_first_move_that_readers_are_not_told_of_is_caught() {
    misses(Rule::ColdBeforeMove, 10_000, first_move);
}

/// A key is inserted, and read, while the first row of the table moves.
fn first_move() {
    let world = cold_world(&[(1, 10)]);
    let mover = world.spawn(|world| world.migrate(&[1]));
    let refused = is_duplicate(&insert(&world, 1, 20));
    let seen = world.all();
    mover.join().expect("the mover");
    assert_eq!(seen, [(1, 10)], "a row was seen twice, or not");
    assert!(refused, "a key was taken over");
    world.settle_cold();
}

#[test]
fn the_first_move_is_seen() {
    model::run(1500, first_move);
}

/// A row gives a unique value up while its batch migrates, and another one takes it.
fn value_of_a_leaver() {
    let rows = [(1, 10), (2, 20), (3, 30), (4, 40)];
    let world =
        cold_world_with(&rows, |schema| schema.index(IndexSchema::ordered("t_value", &["value"]).unique()));
    world.store.slow_writes();
    let (inner, entry) = (Arc::clone(world.db.inner()), Arc::clone(&world.table.entry));
    let mut migration = Box::pin(async move {
        let rows = [0, 1, 2, 3].map(|slot| thermocline_base::ids::RowId::new(0, slot));
        crate::ops::migrate::migrate(&inner, &entry, &rows).await
    });
    let poll = migration.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    assert!(poll.is_pending(), "the write is under way");
    let mut tx = world.begin(Isolation::Snapshot);
    let changed = tx.set(3, 31);
    assert!(unharmed(changed), "a row was lost");
    unharmed(tx.commit());
    world.store.let_land();
    let mover = shuttle::thread::spawn(move || block_on(migration));
    assert!(!is_duplicate(&insert(&world, 9, 30)), "refused because of a record that never was the row");
    let found = unharmed(world.begin(Isolation::Snapshot).by_value(30));
    let moved = mover.join().expect("the mover").expect("the store works");
    assert_eq!(moved.rows, 3, "one row left the batch");
    assert_eq!(found, Some(9), "a value has the wrong owner");
    let rows = [(1, 10), (2, 20), (3, 31), (4, 40), (9, 30)];
    assert_eq!(world.all(), rows);
    world.settle_cold();
    assert_eq!(world.all(), rows);
}

#[test]
fn a_record_that_never_was_the_row_refuses_nobody() {
    model::run(1000, value_of_a_leaver);
}

/// Runs `body`, and all of `other` at the `point`th place in it where another thread could run. `false`: there are fewer.
fn interrupt<T>(point: usize, other: impl FnOnce() + 'static, body: impl FnOnce() -> T) -> (T, bool) {
    let is_reached = std::rc::Rc::new(std::cell::Cell::new(false));
    let (mut other, mut left, reached) = (Some(other), point, std::rc::Rc::clone(&is_reached));
    let step = move || {
        if left > 0 {
            left -= 1;
        } else if let Some(other) = other.take() {
            reached.set(true);
            other();
        }
    };
    (model::between_steps(step, body), is_reached.get())
}

/// Claims the keys of a row in a transaction that has read what the store has of them, and checks them, while `other`
/// runs at a point of the check. `None`: the check has no such point.
fn check_beside(
    tx: &mut Tx<'_>,
    (id, value): (i64, i64),
    point: usize,
    other: impl FnOnce() + 'static,
) -> Option<Result<crate::ops::Step<()>>> {
    use crate::ops::Step;
    use crate::ops::claim::Claimant;
    use crate::ops::write::Origin;
    let table = &tx.world.table;
    let mut row = crate::row::EncodedRow::new();
    table.encode_values(&[Value::Int8(id), Value::Int8(value)], &mut row).expect("a row");
    let (outcome, reached) = tx
        .tx
        .driver
        .with_session(|session| {
            let guard = session.db().epochs.pin();
            let Step::Done(form) = session.touch(&table.entry)? else { panic!("nobody holds the table") };
            let mine = session.claim_row(form, &row, Origin::Fresh, &guard)?;
            let claimant = Claimant { row: &row, suffix: &[], id: Some(mine), record: None, looks: false };
            Ok(interrupt(point, other, || session.check_claims(form, claimant, None, &guard)))
        })
        .expect("memory");
    reached.then_some(outcome)
}

/// A key is checked while its record ends, and its row comes back to memory with a change. Was the key free?
fn key_whose_record_ends(point: usize) -> Option<bool> {
    let world = cold_world(&[(1, 10)]);
    world.migrate(&[1]);
    let mut tx = world.begin(Isolation::Snapshot);
    assert_eq!(tx.read(1).expect("a read"), Some(10));
    let other = world.clone();
    let change = move || _ = other.retry(Isolation::Snapshot, |tx| tx.set(1, 11)).expect("nobody competes");
    let outcome = check_beside(&mut tx, (1, 99), point, change)?;
    drop(tx);
    assert_eq!(world.all(), [(1, 11)]);
    match outcome {
        Ok(crate::ops::Step::Done(())) => Some(true),
        Ok(crate::ops::Step::Wait(_)) | Err(Error::DuplicateKey { .. }) => Some(false),
        Err(error) => panic!("{error}"),
    }
}

/// A value is checked that a row has given up while its batch was written, and the batch moves. Was it refused?
fn value_whose_row_leaves(point: usize) -> Option<bool> {
    let rows = [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)];
    let world =
        cold_world_with(&rows, |schema| schema.index(IndexSchema::ordered("t_value", &["value"]).unique()));
    // Else the store would not be asked before the move.
    world.migrate(&[5]);
    world.store.slow_writes();
    let (inner, entry) = (Arc::clone(world.db.inner()), Arc::clone(&world.table.entry));
    let mut migration = Box::pin(async move {
        let rows = [0, 1, 2, 3].map(|slot| thermocline_base::ids::RowId::new(0, slot));
        crate::ops::migrate::migrate(&inner, &entry, &rows).await
    });
    let mut poll =
        move || migration.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    assert!(poll().is_pending(), "the write is under way");
    world.retry(Isolation::Snapshot, |tx| tx.set(3, 31)).expect("nobody competes");
    world.store.let_land();
    let mut tx = world.begin(Isolation::Snapshot);
    assert_eq!(tx.by_value(30).expect("a read"), None);
    let outcome = check_beside(&mut tx, (9, 30), point, move || {
        let std::task::Poll::Ready(Ok(moved)) = poll() else { panic!("it has nothing to wait for") };
        assert_eq!(moved.rows, 3, "one row left the batch");
    })?;
    match outcome {
        Ok(_) => Some(false),
        Err(Error::DuplicateKey { .. }) => Some(true),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn both_looks_for_a_key_count_at_one_time() {
    let wrong: Vec<bool> = (0..).map_while(key_whose_record_ends).collect();
    assert!(wrong.len() > 10 && !wrong.contains(&true), "a key was taken over: {wrong:?}");
    let wrong: Vec<bool> = (0..).map_while(value_whose_row_leaves).collect();
    assert!(wrong.len() > 10 && !wrong.contains(&true), "refused by what never was the row: {wrong:?}");
}

#[test]
fn looks_for_a_key_at_two_times_are_caught() {
    let _off = mutation::switch_off(Rule::ColdClaimAtOneTime);
    assert!((0..).map_while(key_whose_record_ends).any(|wrong| wrong), "no point misses the rule");
}

#[test]
fn an_end_that_is_asked_for_before_the_begin_is_caught() {
    let _off = mutation::switch_off(Rule::BeginBeforeEnd);
    assert!((0..).map_while(value_whose_row_leaves).any(|wrong| wrong), "no point misses the rule");
}

/// A row that is younger than a snapshot refuses a key, and is sent to the store: the refusal stays what it was.
fn refused_by_a_young_row() {
    let world = cold_world(&[(1, 10)]);
    let mut tx = world.begin(Isolation::RepeatableRead);
    assert_eq!(unharmed(tx.read(1)), Some(10));
    world.retry(Isolation::Snapshot, |tx| tx.insert(2, 20)).expect("nobody competes");
    let mover = world.spawn(|world| {
        for _ in 0..2 {
            world.migrate(&[1, 2]);
            world.prune();
        }
    });
    assert!(is_duplicate(&tx.insert(2, 99)), "a key was taken over");
    let changed = tx.set(1, 11);
    assert!(unharmed(changed), "a row was lost");
    unharmed(tx.commit());
    mover.join().expect("the mover");
    assert_eq!(world.all(), [(1, 11), (2, 20)]);
    world.settle_cold();
    assert_eq!(world.all(), [(1, 11), (2, 20)]);
}

#[test]
fn a_refusal_outlives_moves() {
    model::run(1500, refused_by_a_young_row);
}

#[test]
fn a_young_row_that_moves_after_it_has_refused_is_caught() {
    misses(Rule::RefusersStay, 10_000, refused_by_a_young_row);
}

#[test]
fn a_young_row_that_refuses_while_it_moves_is_caught() {
    misses(Rule::RefusersStayLate, 20_000, refused_by_a_young_row);
}
