//! Chunks that leave memory whole, beside writers, readers and the checkpoint (`interleavings.md`, 44 to 46, 56).

use thermocline_base::ids::RowId;
use thermocline_base::io::{Io, MemoryIo};

use super::restart::{drive, open};
use super::*;
use crate::hot::chunk::Found;

/// A table of 9 rows: the first chunk, of 8 slots in two pieces, is frozen.
fn frozen() -> ColdWorld {
    let rows: Vec<(i64, i64)> = (0..9).map(|id| (id, 10 * id)).collect();
    let world = cold_world_with(&rows, by_value);
    world.store.answer_at_once();
    world.settle();
    world.freeze();
    world.tidy();
    assert_eq!(world.frozen(), 8);
    world
}

impl ColdWorld {
    /// Lets the first chunk leave: how many rows have.
    fn leave(&self) -> usize {
        block_on(crate::ops::leave::leave_chunk(self.db.inner(), &self.table.entry, 0))
            .expect("the store works")
            .map_or(0, |left| left.rows)
    }

    /// Lets go what has left.
    fn let_go(&self) {
        crate::ops::leave::clear_left(self.db.inner(), usize::MAX);
        self.prune();
    }

    /// Slots of the first chunk that say that their row has left.
    fn left(&self) -> usize {
        let guard = self.db.inner().epochs.pin();
        let directory = &self.table.entry.form_pinned(&guard).store.directory;
        (0..8).filter(|slot| matches!(directory.look(RowId::new(0, *slot), &guard), Found::Left(_))).count()
    }

    fn expect(&self, values: &[(i64, i64)]) {
        let expected: Vec<(i64, i64)> = (0..9)
            .map(|id| (id, values.iter().find(|(of, _)| *of == id).map_or(10 * id, |(_, value)| *value)))
            .collect();
        assert_eq!(self.all(), expected, "each row is there once");
        for &(id, value) in &expected {
            assert_eq!(self.value(id), Some(value), "row {id}");
            let by_value = self.begin(Isolation::Snapshot).by_value(value).expect("a read");
            assert_eq!(by_value, Some(id), "row {id} by its value");
        }
    }
}

/// Updates, and a thaw that is taken back, at any moment of the chunk's leaving; snapshots see all rows once.
fn writers_beside_a_chunk_that_leaves() {
    let world = frozen();
    let writer = world.spawn(|world| {
        world.retry(Isolation::Snapshot, |tx| tx.set(1, 11)).expect("it is retried");
        let mut taken_back = world.begin(Isolation::ReadCommitted);
        assert!(unharmed(taken_back.set(6, -1)));
    });
    let mover = world.spawn(|world| {
        let left = world.leave();
        world.let_go();
        left
    });
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut tx = world.begin(Isolation::Snapshot);
        let by_key = [0, 1, 6].map(|id| unharmed(tx.read(id)));
        seen.push((by_key, unharmed(tx.all())));
    }
    writer.join().expect("the writer");
    mover.join().expect("the mover");
    for (by_key, all) in seen {
        let one = by_key[1].expect("a row was not seen at all");
        assert_eq!((by_key[0], by_key[2]), (Some(0), Some(60)), "rows that nobody has changed");
        assert!([10, 11].contains(&one), "{one}");
        assert_eq!(all.len(), 9, "a scan sees each row once: {all:?}");
        assert_eq!(all[1], (1, one), "a scan saw something else than a read");
    }
    world.expect(&[(1, 11)]);
    world.let_go();
    world.settle_cold();
    world.expect(&[(1, 11)]);
    assert_eq!(world.left(), 0, "nobody could see it any more");
}

#[test]
fn nothing_is_lost_or_seen_twice_while_a_chunk_leaves() {
    model::run(1500, writers_beside_a_chunk_that_leaves);
}

#[test]
fn records_of_rows_that_stay_are_caught() {
    misses(Rule::LeaversEnd, 10_000, writers_beside_a_chunk_that_leaves);
}

/// Serializable transactions read and change rows while their chunk leaves: nobody fails.
fn validators_beside_a_chunk_that_leaves() {
    let world = frozen();
    let mover = world.spawn(|world| {
        world.leave();
        world.let_go();
    });
    let mut tx = world.begin(Isolation::Serializable);
    assert_eq!(unharmed(tx.read(2)), Some(20));
    assert_eq!(unharmed(tx.scan(0, 30)), [0, 10, 20]);
    assert!(unharmed(tx.set(3, 31)));
    unharmed(tx.commit());
    mover.join().expect("the mover");
    world.expect(&[(3, 31)]);
}

#[test]
fn a_chunk_that_leaves_fails_nobody_who_validates() {
    model::run(1500, validators_beside_a_chunk_that_leaves);
}

/// A snapshot from before the move reads after it, whatever was let go meanwhile.
fn older_than_the_move() {
    let world = frozen();
    let mut old = world.begin(Isolation::Snapshot);
    assert_eq!(unharmed(old.read(8)), Some(80));
    assert_eq!(world.leave(), 8);
    world.let_go();
    assert_eq!([0, 7].map(|id| unharmed(old.read(id))), [Some(0), Some(70)]);
    assert_eq!(unharmed(old.all()).len(), 9);
    drop(old);
    world.let_go();
    assert_eq!(world.left(), 0);
    world.expect(&[]);
}

#[test]
fn what_has_left_stays_for_older_snapshots() {
    model::run(1, older_than_the_move);
}

#[test]
fn what_is_let_go_under_a_snapshot_is_caught() {
    misses(Rule::LeftOutlivesReaders, 1, older_than_the_move);
}

/// A row was thawed before its chunk leaves, and is still in its slot with all of its entries.
fn thawed_before() {
    let world = frozen();
    world.thaw(2);
    assert_eq!(world.leave(), 7);
    world.let_go();
    world.expect(&[]);
}

#[test]
fn entries_of_rows_that_stay_do_so() {
    model::run(1, thawed_before);
}

#[test]
fn entries_that_go_without_asking_the_word_are_caught() {
    misses(Rule::EntriesOfLeftGo, 1, thawed_before);
}

/// Two chunks of one table leave at once, and the freezer freezes anew what was thawed meanwhile.
fn freezing_beside_leaving() {
    let world = frozen();
    world.add(4);
    world.settle();
    let freezer = world.spawn(|world| {
        world.freeze();
        world.tidy();
    });
    let left = world.leave();
    freezer.join().expect("the freezer");
    assert!(left <= 8);
    world.let_go();
    world.expect(&[(4, 41)]);
    world.tidy();
    world.leave();
    world.let_go();
    world.expect(&[(4, 41)]);
}

#[test]
fn a_chunk_freezes_anew_while_it_leaves() {
    model::run(1500, freezing_beside_leaving);
}

/// A checkpoint has an image of the chunk; the chunk leaves; another checkpoint cuts the log; the machine stops.
fn checkpoints_around() {
    let io: Arc<dyn Io> = Arc::new(MemoryIo::new());
    {
        let db = open(Arc::clone(&io), Durability::Sync);
        let world = World::create(db.clone(), by_value);
        let mut tx = world.begin(Isolation::Snapshot);
        (0..9).for_each(|id| tx.insert(id, 10 * id).expect("a fresh row"));
        drive(&db, tx.tx.commit()).expect("nobody else is there");
        world.settle();
        world.freeze();
        world.tidy();
        db.checkpoint().expect("the disk is well");
        let left = drive(&db, crate::ops::leave::leave_chunk(db.inner(), &world.table.entry, 0))
            .expect("the store works");
        assert_eq!(left.map(|left| left.rows), Some(8));
        db.checkpoint().expect("the disk is well");
    }
    let db = open(io, Durability::Sync);
    let world = World::of(db.clone(), db.table("t").expect("its definition was durable"));
    let mut tx = world.begin(Isolation::Snapshot);
    let mut ids = Vec::new();
    let scan = tx.tx.scan_table(&world.table, |row| {
        ids.extend(world.layout.i64(row, 0));
        std::ops::ControlFlow::Continue(())
    });
    drive(&db, scan).expect("a scan");
    ids.sort_unstable();
    assert_eq!(ids, (0..9).collect::<Vec<_>>(), "each row is there once");
    assert_eq!(world.table.statistics().rows_hot, 1, "what has left is not in memory");
}

#[test]
fn what_has_left_is_not_in_memory_after_checkpoints() {
    model::run(1, checkpoints_around);
}

#[test]
fn a_chunk_that_leaves_without_a_mark_for_checkpoints_is_caught() {
    misses(Rule::LeftIsDirty, 1, checkpoints_around);
}
