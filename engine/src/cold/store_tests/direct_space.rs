//! The direct store gives space back, and shares reads: what is of no use goes, and nothing else does, whenever the machine stops.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use thermocline_base::ids::{IndexId, TableId};
use thermocline_base::io::{Action, FaultKind, MemoryIo, RecordingIo};
use thermocline_base::multiplex::block_on;
use thermocline_pool::store::{Batch, BatchId, Direction, Found, Removal, StoreError};

use super::super::direct::{DirectOptions, DirectStore};
use super::super::store::{ColdStore, Pending, primary_of, push_secondary, secondary_of};
use super::direct::{batch, dir, fault, file_of, finish, open, open_with, options, records};
use super::model::{TABLE, collect, group, key};

const OTHER: TableId = TableId(TABLE.0 + 1);

fn others(id: u64, keys: std::ops::Range<u64>) -> Batch {
    let mut batch = Batch::confirmed(BatchId(id));
    keys.for_each(|number| batch.put(primary_of(OTHER), &key(number), &[id as u8; 300]).expect("short"));
    batch
}

fn removal(id: u64, keys: std::ops::Range<u64>, of: u64) -> Batch {
    let mut batch = Batch::confirmed(BatchId(id));
    for number in keys {
        batch.remove(primary_of(TABLE), &key(number), BatchId(of), Removal::Only).expect("short");
        let mut entry = Vec::new();
        push_secondary(&mut entry, &group(number), &key(number));
        batch.remove(secondary_of(TABLE, IndexId(3)), &entry, BatchId(of), Removal::Only).expect("short");
    }
    batch
}

fn files(io: &MemoryIo) -> usize {
    let is_of_slots = |path: &&std::path::PathBuf| path.to_string_lossy().contains("slots-");
    io.files().keys().filter(is_of_slots).count()
}

fn others_in(store: &Arc<DirectStore>) -> usize {
    let store = Arc::clone(store) as Arc<dyn ColdStore>;
    collect(&store, primary_of(OTHER), &[], None, Direction::Forward).len()
}

#[test]
fn files_go_when_nothing_is_left_in_them() {
    let io = MemoryIo::new();
    let store = open(&io);
    // 16 slots a file.
    finish(&store, store.write(batch(1, 0..40))).expect("written");
    assert_eq!(files(&io), 3);
    let before = store.usage();
    finish(&store, store.write(removal(2, 0..33, 1))).expect("removed");
    assert_eq!(files(&io), 1);
    assert!(store.usage().disk_bytes * 3 == before.disk_bytes && store.usage().records == 7);
    finish(&store, store.write(batch(3, 3..5))).expect("the file is made again");
    drop(store);
    for _ in 0..2 {
        let store = open(&io);
        assert_eq!((files(&io), records(&store), store.usage().records), (2, 9, 9));
    }
}

#[test]
fn a_dropped_table_is_no_missing_file() {
    let io = MemoryIo::new();
    let store = open(&io);
    finish(&store, store.write(batch(1, 0..8))).expect("written");
    finish(&store, store.write(others(2, 0..20))).expect("written");
    store.drop_index(primary_of(OTHER));
    assert_eq!((files(&io), others_in(&store)), (1, 0));
    drop(store);
    let store = open(&io);
    assert_eq!((records(&store), others_in(&store)), (8, 0));
}

#[test]
fn an_emptied_table_gives_its_files_back_and_takes_new_rows() {
    let io = MemoryIo::new();
    let store = open(&io);
    finish(&store, store.write(batch(1, 0..40))).expect("written");
    let index = secondary_of(TABLE, IndexId(3));
    let empty = |store: &Arc<DirectStore>| {
        store.drop_batches(primary_of(TABLE), BatchId(5), true);
        store.drop_batches(index, BatchId(5), true);
    };
    empty(&store);
    assert_eq!((files(&io), records(&store), store.usage().records), (0, 0, 0));
    assert!(!store.may_contain_range(index, &[], None));
    // A batch that was on its way when the table was emptied, and later ones in two files, one of them the same.
    finish(&store, store.write(batch(4, 0..4))).expect("written");
    finish(&store, store.write(batch(6, 4..6))).expect("written");
    finish(&store, store.write(batch(7, 20..22))).expect("written");
    assert_eq!(records(&store), 8);
    drop(store);
    let store = open(&io);
    empty(&store);
    // What lies in one file with later rows stays for now; the engine passes over it.
    assert_eq!((files(&io), records(&store)), (2, 8));
    assert_eq!(collect(&(store as Arc<dyn ColdStore>), index, &[], None, Direction::Forward).len(), 4);
}

#[test]
fn decisions_do_not_pile_up() {
    let io = MemoryIo::new();
    let store = open(&io);
    finish(&store, store.write(batch(1, 0..8))).expect("written");
    finish(&store, store.write(Batch::new(BatchId(2)))).expect("it waits");
    let mut waits = Batch::new(BatchId(3));
    waits.put(primary_of(TABLE), &key(9), b"waits").expect("short");
    waits.remove(primary_of(TABLE), &key(7), BatchId(1), Removal::Only).expect("short");
    finish(&store, store.write(waits)).expect("it waits");
    for id in 10..200 {
        finish(&store, store.write(batch(2 * id, 12..14))).expect("written");
        finish(&store, store.write(removal(2 * id + 1, 12..14, 2 * id))).expect("removed");
    }
    // 380 groups of a block each, and the space that is taken ahead.
    let len = io.files()[&file_of(&io, "direct")].len();
    assert!(len <= 1 << 20, "{len} bytes");
    drop(store);
    let store = open(&io);
    assert_eq!(store.unconfirmed(), [BatchId(2), BatchId(3)]);
    assert_eq!(records(&store), 9);
    finish(&store, store.confirm(BatchId(3))).expect("it waits");
    assert_eq!(records(&store), 8, "its removal counts with it");
    drop(store);
    assert_eq!(records(&open(&io)), 8);
}

#[test]
fn a_file_of_decisions_that_cannot_be_replaced_stays() {
    for (on, kind) in [
        (Action::Sync, FaultKind::Broken),
        (Action::Rename, FaultKind::Broken),
        (Action::Write, FaultKind::Full),
    ] {
        // From the file's growing until it is too long at the latest: each of the operations fails once.
        let mut failed = 0;
        for skip in 0..40 {
            let io = RecordingIo::new(&MemoryIo::new());
            let store = open(&io);
            finish(&store, store.write(batch(1, 0..8))).expect("written");
            io.inject(fault(on, skip, 1, kind));
            let mut written = 8;
            for id in 2..12 {
                match finish(&store, store.write(batch(id, 10 * id..10 * id + 1))) {
                    Ok(()) => written += 1,
                    Err(error) => {
                        failed += 1;
                        let told =
                            matches!(error, StoreError::ReadOnly(_) | StoreError::Io(_)) || error.is_full();
                        assert!(told, "{error}");
                    }
                }
            }
            io.heal();
            assert_eq!(records(&store), written, "{on:?}, after {skip}");
            drop(store);
            let found = records(&open(&io));
            // Of a write whose sync has failed nobody knows.
            assert!((written..=written + 1).contains(&found), "{on:?}, after {skip}: {found} of {written}");
        }
        assert!(failed > 0, "{on:?}");
    }
}

/// Files go, and the file of decisions is replaced, wherever the machine stops.
#[test]
fn every_operation_of_tidying_may_be_the_last() {
    let io = RecordingIo::new(&MemoryIo::new());
    let store = open(&io);
    finish(&store, store.write(batch(1, 0..20))).expect("written");
    finish(&store, store.write(others(2, 0..20))).expect("written");
    let begun = io.operations();
    store.drop_index(primary_of(OTHER));
    let dropped = io.operations();
    finish(&store, store.write(removal(3, 16..20, 1))).expect("removed");
    let removed = io.operations();
    for id in 4..16 {
        finish(&store, store.write(batch(id, 12 + id..13 + id))).expect("written");
    }
    let generations = io.memory().files()[&file_of(io.memory(), "direct")][40];
    assert!(generations > 1, "the file of decisions was replaced");
    drop(store);
    for operations in begun..=io.operations() {
        for seed in 0..4 {
            let at = format!("crash after {operations} operations, seed {seed}");
            let image = io.crash(operations, seed);
            for _ in 0..2 {
                let store = open_with(&image, options()).unwrap_or_else(|error| panic!("{at}: {error}"));
                let of_others = others_in(&store);
                assert!(of_others == 0 || (of_others == 20 && operations < dropped), "{at}: {of_others}");
                let found = records(&store);
                let allowed = if operations < removed { 16..=20 } else { 16..=28 };
                assert!(allowed.contains(&found), "{at}: {found}");
                if operations == io.operations() {
                    assert_eq!(found, 28);
                }
            }
            // What was dropped is dropped again, and the store goes on.
            let store = open(&image);
            store.drop_index(primary_of(OTHER));
            assert_eq!(others_in(&store), 0, "{at}");
            finish(&store, store.write(batch(90, 40..42))).unwrap_or_else(|error| panic!("{at}: {error}"));
        }
    }
}

#[test]
fn a_lost_file_of_decisions_is_an_error() {
    let io = MemoryIo::new();
    let store = open(&io);
    finish(&store, store.write(batch(1, 0..8))).expect("written");
    drop(store);
    thermocline_base::io::Io::remove(&io, &dir().join("direct")).expect("it is there");
    let error = open_with(&io, options()).expect_err("records may be lost");
    assert!(error.to_string().contains("missing"), "{error}");
    assert_eq!(files(&io), 1, "nothing is removed");
}

/// What cannot be read when the store is opened may be read the next time: no decision about it is forgotten meanwhile.
#[test]
fn what_could_not_be_read_for_once_is_there_later() {
    let mut opened = 0;
    for skip in 0..30 {
        let io = RecordingIo::new(&MemoryIo::new());
        let store = open(&io);
        // Each block has a batch of its own.
        (0..10).for_each(|id| {
            finish(&store, store.write(batch(1 + id, 4 * id..4 * id + 4))).expect("written");
        });
        drop(store);
        // A stretch of blocks, and then one of them.
        io.inject(fault(Action::Read, skip, 2, FaultKind::Broken));
        if let Ok(store) = open_with(&io, options()) {
            opened += usize::from(!store.damages().is_empty());
            io.heal();
            // Records are removed that were not counted.
            finish(&store, store.write(batch(91, 40..41))).expect("written");
            (0..10).for_each(|of| {
                finish(&store, store.write(removal(100 + of, 4 * of..4 * of + 1, 1 + of))).expect("removed");
            });
            assert!(store.usage().records <= 31, "{}", store.usage().records);
            drop(store);
            assert_eq!(records(&open(&io)), 31, "after {skip}");
            continue;
        }
        io.heal();
        for _ in 0..2 {
            assert_eq!(records(&open(&io)), 40, "after {skip}");
        }
    }
    assert!(opened > 0, "no stretch of blocks has met the fault");
}

#[test]
fn files_follow_the_length_of_blocks() {
    let usual = DirectOptions::new([0; 16]);
    let for_blocks = |bytes| usual.for_blocks_of(bytes);
    assert_eq!(for_blocks(4 << 20), usual);
    assert_eq!(for_blocks(1 << 30), usual);
    assert_eq!((for_blocks(8 << 10).segment_slots, for_blocks(8 << 10).decisions_bytes), (128, 32 << 10));
    assert_eq!(for_blocks(1).segment_slots, 8);
}

fn poll<T>(future: &mut Pending<'_, T>) -> Poll<Result<T, StoreError>> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn batch_of(found: Poll<Result<Vec<Found>, StoreError>>) -> Option<u64> {
    match found {
        Poll::Ready(found) => found.expect("readable").first().map(|found| found.batch.0),
        Poll::Pending => panic!("it waits for a read that began too early"),
    }
}

#[test]
fn who_reads_one_block_asks_the_device_once() {
    let io = RecordingIo::new(&MemoryIo::new());
    let store = open(&io);
    // Four slots a block.
    finish(&store, store.write(batch(1, 0..8))).expect("written");
    let keys: Vec<Vec<u8>> = (0..5).map(key).collect();
    io.hold_reads(true);
    let mut looks: Vec<_> = keys.iter().map(|key| store.get(primary_of(TABLE), key)).collect();
    assert!(looks.iter_mut().all(|look| poll(look).is_pending()));
    // The one that began the read of the first block is not interested any more.
    drop(looks.remove(0));
    assert_eq!(io.answer_reads(), 2);
    for look in &mut looks {
        assert_eq!(batch_of(poll(look)), Some(1));
    }
    assert_eq!(store.usage().device_reads, 2);
    // Errors go to all who wait, and to nobody later.
    io.inject(fault(Action::Read, 0, 1, FaultKind::Broken));
    let mut looks: Vec<_> = keys[..3].iter().map(|key| store.get(primary_of(TABLE), key)).collect();
    assert!(looks.iter_mut().all(|look| poll(look).is_pending()));
    io.hold_reads(false);
    io.answer_reads();
    assert!(looks.iter_mut().all(|look| matches!(poll(look), Poll::Ready(Err(StoreError::Io(_))))));
    drop(looks);
    assert_eq!(block_on(store.get(primary_of(TABLE), &key(1))).expect("readable").len(), 1);
}

/// A neighbour's block is being read while a record is removed from it, and another one takes its place. Which batch does a look
/// find that begins afterwards?
fn found_after_a_write() -> Option<u64> {
    let io = RecordingIo::new(&MemoryIo::new());
    let store = open(&io);
    finish(&store, store.write(batch(1, 0..4))).expect("written");
    let neighbour = key(3);
    io.hold_reads(true);
    let mut before = store.get(primary_of(TABLE), &neighbour);
    assert!(poll(&mut before).is_pending());
    io.hold_reads(false);
    finish(&store, store.write(removal(2, 0..1, 1))).expect("removed");
    finish(&store, store.write(batch(3, 0..1))).expect("written");
    let first = key(0);
    let mut after = store.get(primary_of(TABLE), &first);
    let mut found = poll(&mut after);
    io.answer_reads();
    if found.is_pending() {
        found = poll(&mut after);
    }
    assert_eq!(batch_of(poll(&mut before)), Some(1), "it has not changed");
    batch_of(found)
}

#[test]
fn a_look_does_not_join_a_read_from_before_a_write() {
    assert_eq!(found_after_a_write(), Some(3));
}

/// 22.
#[cfg(feature = "model")]
#[test]
fn a_look_that_joins_a_read_from_before_a_write_is_caught() {
    let _off = crate::mutation::switch_off(crate::mutation::Rule::ReadsEndWithWrites);
    assert_ne!(found_after_a_write(), Some(3));
}
