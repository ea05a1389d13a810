//! Rows that go over to the paged side beside transactions, in chunks that are still being filled, too.

use thermocline_base::ids::Timestamp;
use thermocline_base::io::Io;

use super::*;
use crate::Tiering;
use crate::hot::chunk::Found;
use crate::hot::version::Begin;
use crate::ops::freeze::Settled;

/// A paged table of so many rows; a chunk has 8 slots, in two pieces.
fn paged(rows: i64) -> World {
    let options = Options::default()
        .with_durability(Durability::Off)
        .with_memory_limit(Some(64 << 20))
        .with_paged_dir(Some("pages".into()))
        .with_paged_bytes(1)
        .with_idle_limit(Some(std::time::Duration::ZERO));
    let io = MemoryIo::new();
    io.create_dir_all(Path::new("pages")).expect("made");
    let db = Database::open_with(Path::new(IN_MEMORY), options, Arc::new(io), false)
        .expect("the options are fine");
    let world = World::create(db, |schema| schema.tiering(Tiering::Paged));
    let mut tx = world.begin(Isolation::Snapshot);
    (0..rows).for_each(|id| tx.insert(id, 0).expect("a fresh row"));
    tx.commit().expect("nobody else is there");
    world.settle();
    world
}

impl World {
    /// Lets what may go over, of the first chunk. How many rows did.
    fn go_over(&self) -> u64 {
        let inner = self.db.inner();
        let over =
            crate::ops::page::page_chunk(inner, &self.table.entry, 0, Settled::MOST).expect("there is room");
        inner.epochs.collect();
        let guard = inner.epochs.pin();
        let store = &self.table.entry.form_pinned(&guard).store;
        store.memory.collect();
        store.slots.collect();
        over.rows
    }
}

/// The last slot of a chunk is filled while its rows go over.
fn filled_beside_page_out() {
    let world = paged(7);
    let inserter = world.spawn(|world| {
        world.retry(Isolation::ReadCommitted, |tx| tx.insert(7, 7)).expect("nobody competes");
    });
    world.go_over();
    inserter.join().expect("the inserter");
    world.settle();
    assert_eq!((0..8).map(|id| world.value(id)).collect::<Vec<_>>()[6..], [Some(0), Some(7)]);
    world.go_over();
    assert_eq!((0..8).filter_map(|id| world.value(id)).sum::<i64>(), 7);
    assert_eq!(world.entries(), 8);
}

#[test]
fn a_row_that_comes_into_a_chunk_beside_page_out_is_there() {
    model::run(300, filled_beside_page_out);
}

/// The same, with an inserter who has the slot in hand and dwells there: a moment that schedules seldom find.
fn filled_at_the_last_moment() {
    let world = paged(7);
    let inserter = world.spawn(|world| {
        let guard = world.db.inner().epochs.pin();
        let store = &world.table.entry.form_pinned(&guard).store;
        let row = store.take_slot(&guard).expect("memory");
        let chunk = store.directory.get(row.chunk(), &guard).expect("it is there");
        let slot = chunk.slot(row.slot(), &guard).expect("it was taken just now");
        let version = store.create(Begin::At(Timestamp(1)), None, row, false, &[0; 16], &[]).expect("memory");
        (0..100).for_each(|_| shuttle::thread::yield_now());
        slot.fill(version);
        row
    });
    world.go_over();
    let row = inserter.join().expect("the inserter");
    let guard = world.db.inner().epochs.pin();
    let store = &world.table.entry.form_pinned(&guard).store;
    assert!(matches!(store.directory.look(row, &guard), Found::Newest(_)), "a row was lost");
}

#[test]
fn a_slot_in_hand_stays_where_it_is() {
    model::run(300, filled_at_the_last_moment);
}

#[test]
fn rows_that_go_over_beside_an_open_slot_are_caught() {
    misses(Rule::SlotsAreFilledFirst, 2000, filled_at_the_last_moment);
}

/// Updates of two rows while their chunk goes over, and over again, and is read.
fn writers_beside_page_out() {
    let world = paged(9);
    let writers = [1, 7].map(|id| {
        world.spawn(move |world| {
            world.add(id);
            world.prune();
        })
    });
    let pager = world.spawn(|world| {
        world.go_over();
        world.prune();
        world.go_over();
    });
    let mut tx = world.begin(Isolation::Snapshot);
    let first = [0, 1, 7].map(|id| tx.read(id).expect("a read"));
    let second = [0, 1, 7].map(|id| tx.read(id).expect("a read"));
    drop(tx);
    writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
    pager.join().expect("the pager");
    assert!(
        first.iter().all(Option::is_some) && first == second,
        "a snapshot has changed: {first:?}, {second:?}"
    );
    assert_eq!([1, 7].map(|id| world.value(id)), [Some(1), Some(1)], "an update was lost");
    world.settle();
    world.go_over();
    assert_eq!((0..9).filter_map(|id| world.value(id)).sum::<i64>(), 2);
}

#[test]
fn nothing_is_lost_while_rows_go_over() {
    model::run(300, writers_beside_page_out);
}
