//! Chunks that freeze beside transactions: slots that are swapped, pieces that are replaced, rows that thaw.

use thermocline_base::ids::RowId;

use super::*;
use crate::hot::chunk::Found;
use crate::ops::freeze::Settled;

/// A table of 9 rows: the first chunk, of 8 slots in two pieces, is full.
pub(super) fn full() -> World {
    let rows: Vec<(i64, i64)> = (0..9).map(|id| (id, 0)).collect();
    let world = world(&rows);
    world.settle();
    world
}

impl World {
    pub(super) fn freeze(&self) {
        let inner = self.db.inner();
        crate::ops::freeze::freeze_chunk(inner, &self.table.entry, 0, Settled::ANY).expect("memory");
        inner.epochs.collect();
        let guard = inner.epochs.pin();
        let store = &self.table.entry.form_pinned(&guard).store;
        store.memory.collect();
        store.slots.collect();
    }

    /// How many rows of the first chunk are frozen.
    pub(super) fn frozen(&self) -> usize {
        let guard = self.db.inner().epochs.pin();
        let directory = &self.table.entry.form_pinned(&guard).store.directory;
        let is_frozen = |slot| matches!(directory.look(RowId::new(0, slot), &guard), Found::Frozen(_));
        (0..8).filter(|&slot| is_frozen(slot)).count()
    }

    /// Lets begins and blocks go that nobody needs.
    pub(super) fn tidy(&self) {
        let inner = self.db.inner();
        let guard = inner.epochs.pin();
        crate::ops::freeze::tidy_blocks(inner, self.table.entry.form_pinned(&guard));
        drop(guard);
        inner.epochs.collect();
    }

    pub(super) fn add(&self, id: i64) {
        self.retry(Isolation::ReadCommitted, |tx| {
            let layout = &self.layout;
            tx.edit(id, |row| {
                let value = layout.i64(row.row(), 1).unwrap_or(-100);
                row.set_i64(1, value + 1)
            })
        })
        .expect("nobody fails because of freezing");
    }

    /// Makes an ordinary version of a row, and changes nothing about it.
    pub(super) fn thaw(&self, id: i64) {
        let mut tx = self.begin(Isolation::Snapshot);
        assert!(tx.set(id, -1).expect("nobody competes"));
        drop(tx);
    }
}

/// Updates of two rows while their chunk freezes, and freezes anew, and is read.
fn writers_beside_freezers() {
    let world = full();
    let writers = [1, 7].map(|id| {
        world.spawn(move |world| {
            world.add(id);
            world.prune();
            world.add(id);
        })
    });
    let freezer = world.spawn(|world| {
        for _ in 0..3 {
            world.freeze();
            world.prune();
        }
    });
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut tx = world.begin(Isolation::Snapshot);
        let rows: Vec<_> = [0, 1, 7].map(|id| tx.read(id).expect("a read")).into();
        seen.push((rows.clone(), [0, 1, 7].map(|id| tx.read(id).expect("a read")).to_vec()));
    }
    writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
    freezer.join().expect("the freezer");
    for (first, second) in seen {
        assert!(
            first.iter().all(Option::is_some) && first == second,
            "a snapshot has changed: {first:?}, {second:?}"
        );
    }
    assert_eq!([1, 7].map(|id| world.value(id)), [Some(2), Some(2)], "an update was lost");
    world.settle();
    world.freeze();
    world.tidy();
    assert_eq!(world.frozen(), 8, "what has settled freezes");
    assert_eq!((0..8).filter_map(|id| world.value(id)).sum::<i64>(), 4);
    assert_eq!(world.entries(), 9);
}

#[test]
fn nothing_is_lost_while_chunks_freeze() {
    model::run(2000, writers_beside_freezers);
}

/// Somebody has a frozen row's image in hand, and goes on only after the row was thawed, changed and frozen again. (Epochs and
/// snapshots make that rare: so the pause is made here by hand, at the worst moment.)
fn thawed_and_frozen_again() {
    let world = full();
    world.freeze();
    let row = RowId::new(0, 1);
    let inner = world.db.inner();
    let (number, copy) = {
        let guard = inner.epochs.pin();
        let store = &world.table.entry.form_pinned(&guard).store;
        let Found::Frozen(number) = store.directory.look(row, &guard) else { panic!("it is frozen") };
        let image = store.directory.newest(row, &guard).expect("it is there");
        let copy = store.create(image.begin(), None, row, false, image.row(), &[]).expect("memory");
        (number, copy)
    };
    world.add(1);
    world.settle();
    world.freeze();
    assert_eq!(world.frozen(), 8, "it is frozen again");
    let guard = inner.epochs.pin();
    let store = &world.table.entry.form_pinned(&guard).store;
    let chunk = store.directory.get(0, &guard).expect("it is there");
    let thawed = chunk.thaw(1, number, copy, (&store.slots, false), &guard).expect("memory");
    if !thawed {
        store.discard(copy);
    }
    drop(guard);
    assert_eq!(world.value(1), Some(1), "an update was lost");
}

#[test]
fn a_block_is_not_mistaken_for_a_later_one() {
    model::run(1, thawed_and_frozen_again);
}

#[test]
fn a_block_that_is_mistaken_for_a_later_one_is_caught() {
    misses(Rule::BlocksAreNotMistaken, 1, thawed_and_frozen_again);
}

/// A piece has one row that cannot freeze, so that it is copied out of the dense array, while a row of it is thawed.
fn pieces_are_replaced() {
    let world = full();
    let old = world.begin(Isolation::Snapshot);
    let mut old = old;
    assert_eq!(old.read(0).expect("a read"), Some(0));
    world.add(0);
    let writer = world.spawn(|world| world.add(1));
    world.freeze();
    writer.join().expect("the writer");
    assert_eq!((old.read(0).expect("a read"), old.read(1).expect("a read")), (Some(0), Some(0)));
    drop(old);
    assert_eq!((world.value(0), world.value(1)), (Some(1), Some(1)), "an update was lost");
}

#[test]
fn rows_that_thaw_go_along_with_their_piece() {
    model::run(4000, pieces_are_replaced);
}

#[test]
fn a_frozen_word_that_is_not_marked_is_caught() {
    misses(Rule::FrozenMarksMoved, 40_000, pieces_are_replaced);
}

/// A row is younger than a snapshot, and is thawed while that lives.
fn younger_than_a_snapshot() {
    let world = world(&(0..7).map(|id| (id, 0)).collect::<Vec<_>>());
    let mut old = world.begin(Isolation::Snapshot);
    assert_eq!(old.read(0).expect("a read"), Some(0));
    world.retry(Isolation::Snapshot, |tx| tx.insert(7, 7)).expect("nobody competes");
    world.retry(Isolation::Snapshot, |tx| tx.insert(8, 8)).expect("nobody competes");
    world.freeze();
    world.tidy();
    assert_eq!(world.frozen(), 8);
    assert_eq!(
        [0, 7].map(|id| old.read(id).expect("a read")),
        [Some(0), None],
        "frozen rows are as old as before"
    );
    world.thaw(7);
    world.thaw(0);
    assert_eq!(
        [0, 7].map(|id| old.read(id).expect("a read")),
        [Some(0), None],
        "thawed rows are as old as before"
    );
    assert_eq!([0, 7].map(|id| world.value(id)), [Some(0), Some(7)]);
}

#[test]
fn rows_keep_their_begins() {
    model::run(1, younger_than_a_snapshot);
}

#[test]
fn a_thawed_row_that_has_no_begin_is_caught() {
    misses(Rule::ThawKeepsBegin, 1, younger_than_a_snapshot);
}

#[test]
fn begins_that_are_forgotten_under_a_snapshot_are_caught() {
    misses(Rule::BeginsOutliveSnapshots, 1, younger_than_a_snapshot);
}

/// A transaction has read a row whose begin is forgotten before it validates that.
fn forgotten_under_a_validator() {
    let world = full();
    // Rows of several begins.
    (0..3).for_each(|id| world.add(id));
    world.settle();
    world.freeze();
    let mut tx = world.begin(Isolation::Serializable);
    assert_eq!([0, 5].map(|id| tx.read(id).expect("a read")), [Some(1), Some(0)]);
    world.tidy();
    world.thaw(0);
    world.thaw(5);
    assert!(tx.set(8, 1).expect("nobody competes"));
    tx.commit().expect("nothing that was read has changed");
}

#[test]
fn begins_that_nobody_can_tell_apart_fail_nobody() {
    model::run(1, forgotten_under_a_validator);
}

#[test]
fn begins_that_are_told_apart_are_caught() {
    misses(Rule::OldBeginsAreOne, 1, forgotten_under_a_validator);
}

/// A lock on a frozen row, and a delete of it.
fn locks_of_frozen_rows() {
    let world = full();
    world.freeze();
    let deleter =
        world.spawn(|world| world.retry(Isolation::ReadCommitted, |tx| tx.delete(1)).is_ok_and(|it| it));
    let seen = world.retry(Isolation::ReadCommitted, |tx| {
        let locked = tx.lock(1, LockMode::KeyShare)?;
        // While it is locked it stays.
        Ok((locked, tx.read(1)?.is_some(), tx.read(1)?.is_some()))
    });
    let (locked, first, second) = seen.expect("a lock");
    assert!(deleter.join().expect("the deleter"));
    assert!(locked == first && first == second, "a locked row was deleted: {locked} {first} {second}");
    assert_eq!(world.value(1), None);
}

#[test]
fn a_lock_of_a_frozen_row_keeps_it() {
    model::run(3000, locks_of_frozen_rows);
}
