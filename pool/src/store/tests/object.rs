//! Objects: written as a whole or not, read in ranges, gone with their last entry, and with a batch that is discarded.

use std::path::Path;

use thermocline_base::io::{Io, MemoryIo};
use thermocline_base::multiplex::block_on;

use super::super::*;
use super::model::{dir, finish, open, options};

const INDEX: IndexId = IndexId { table: 1, index: 0 };

fn key(at: u32) -> Vec<u8> {
    format!("key {at:06}").into_bytes()
}

/// A batch of so many entries, each of which says its place in an object of that many bytes each.
fn batch(id: u64, keys: std::ops::Range<u32>) -> ObjectBatch {
    let mut of = ObjectEntries { index: INDEX, ..ObjectEntries::default() };
    let mut bytes = Vec::new();
    for at in keys {
        of.keys.extend_from_slice(&key(at));
        of.ends.push(of.keys.len() as u32);
        of.records.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&content(id, at));
    }
    ObjectBatch { id: BatchId(id), index: INDEX, bytes, front_bytes: 7, entries: vec![of] }
}

fn content(id: u64, at: u32) -> [u8; 100] {
    std::array::from_fn(|byte| (id as u8).wrapping_mul(31) ^ (at as u8) ^ byte as u8)
}

fn read(store: &Store, at: u32) -> Option<Vec<u8>> {
    let found = block_on(store.get(INDEX, &key(at))).expect("readable").pop()?;
    let object = found.object.expect("it stands in an object");
    let from = u64::from(u32::from_le_bytes(found.record.try_into().expect("a place")));
    Some(block_on(object.read(from..from + 100)).expect("readable"))
}

fn settle(store: &Store) {
    while store.step(Step::Journal) || store.step(Step::Work) {}
}

fn remove(store: &Store, id: u64, of: u64, keys: std::ops::Range<u32>) {
    let mut batch = Batch::confirmed(BatchId(id));
    for at in keys {
        batch.remove(INDEX, &key(at), BatchId(of), Removal::Only).expect("short");
    }
    finish(store, store.write(batch)).expect("written");
}

#[test]
fn an_object_is_read_in_ranges_and_goes_with_its_last_entry() {
    let io = MemoryIo::new();
    let mut store = open(&io);
    let empty = store.statistics().disk_bytes;
    finish(&store, store.write_object(batch(1, 0..500))).expect("written");
    assert_eq!(store.unconfirmed(), [BatchId(1)]);
    for at in [0, 17, 40, 41, 499] {
        assert_eq!(read(&store, at).as_deref(), Some(&content(1, at)[..]), "unconfirmed, key {at}");
    }
    finish(&store, store.confirm(BatchId(1))).expect("it waits");
    settle(&store);
    drop(store);
    store = open(&io);
    assert!(store.unconfirmed().is_empty());
    for at in [0, 17, 40, 41, 499] {
        assert_eq!(read(&store, at).as_deref(), Some(&content(1, at)[..]), "opened again, key {at}");
    }
    // All but one.
    remove(&store, 2, 1, 0..321);
    remove(&store, 3, 1, 322..500);
    let reader = block_on(store.get(INDEX, &key(321))).expect("readable").pop().expect("it is there");
    // Enough of others for merges to come round.
    let fill = |from: u64| {
        for id in from..from + 60 {
            let mut batch = Batch::confirmed(BatchId(id));
            for at in 0..40 {
                batch.put(IndexId { table: 2, index: 0 }, &key(at), &[id as u8; 100]).expect("short");
                if id > from {
                    let index = IndexId { table: 2, index: 0 };
                    let mut gone = Batch::confirmed(BatchId(id + 10_000 + u64::from(at)));
                    gone.remove(index, &key(at), BatchId(id - 1), Removal::Only).expect("short");
                    finish(&store, store.write(gone)).expect("written");
                }
            }
            finish(&store, store.write(batch)).expect("written");
            settle(&store);
        }
    };
    fill(100);
    assert_eq!(read(&store, 321).as_deref(), Some(&content(1, 321)[..]), "one entry keeps the object");
    assert_eq!(read(&store, 320), None);
    assert!(store.verify().is_sound(), "{:?}", store.verify().problems);
    remove(&store, 4, 1, 321..322);
    store.drop_index(IndexId { table: 2, index: 0 });
    settle(&store);
    store.drop_batches(INDEX, BatchId(4), true);
    settle(&store);
    assert!(block_on(store.get(INDEX, &key(321))).expect("readable").is_empty());
    // A reader that has found it may read it to the end.
    let object = reader.object.expect("it stood in an object");
    assert_eq!(block_on(object.read(32_100..32_200)).expect("readable"), content(1, 321));
    assert!(store.statistics().disk_bytes > empty);
    drop(object);
    assert_eq!(store.statistics().disk_bytes, empty, "nothing is left");
    assert!(store.verify().is_sound());
    drop(store);
    assert_eq!(open(&io).statistics().disk_bytes, empty);
}

/// A range that is longer than a long record may be there: the next look at it reads nothing.
#[test]
fn a_range_of_many_pages_stays_in_frames() {
    let io: std::sync::Arc<dyn Io> = std::sync::Arc::new(MemoryIo::new());
    let frames = StoreOptions { frame_bytes: 8 << 20, frame_bytes_max: 8 << 20, ..options() };
    let store = Store::open(io, dir(), frames).expect("it opens");
    finish(&store, store.write_object(batch(1, 0..2000))).expect("written");
    let object = block_on(store.get(INDEX, &key(0))).expect("readable").pop().expect("it is there").object;
    let object = object.expect("it stands in an object");
    let range = 50_000..50_000 + 20 * 4096;
    assert_eq!(object.read_now(range.clone()).expect("readable"), None);
    let read = block_on(object.read(range.clone())).expect("readable");
    assert_eq!(object.read_now(range).expect("readable"), Some(read));
}

#[test]
fn of_a_discarded_batch_no_object_is_left() {
    let io = MemoryIo::new();
    let store = open(&io);
    let empty = store.statistics().disk_bytes;
    for id in 1..4 {
        finish(&store, store.write_object(batch(id, 0..50))).expect("written");
    }
    let again = finish(&store, store.write_object(batch(2, 0..50)));
    assert!(matches!(again, Err(StoreError::BatchExists(BatchId(2)))), "{again:?}");
    finish(&store, store.discard(BatchId(1))).expect("discarded");
    assert_eq!(store.unconfirmed(), [BatchId(2), BatchId(3)]);
    finish(&store, store.discard(BatchId(2))).expect("discarded");
    finish(&store, store.discard(BatchId(3))).expect("discarded");
    assert_eq!(read(&store, 7), None);
    settle(&store);
    assert_eq!(store.statistics().disk_bytes, empty);
    drop(store);
    let store = open(&io);
    assert_eq!((store.unconfirmed(), store.statistics().disk_bytes), (Vec::new(), empty));
}

#[test]
fn a_copy_has_the_objects() {
    let io = MemoryIo::new();
    let store = open(&io);
    for id in 1..4 {
        let keys = 100 * id as u32..100 * id as u32 + 100;
        finish(&store, store.write_object(batch(id, keys))).expect("written");
    }
    finish(&store, store.confirm(BatchId(2))).expect("it waits");
    finish(&store, store.discard(BatchId(3))).expect("discarded");
    let pinned = store.pin();
    settle(&store);
    let (shared, to): (std::sync::Arc<dyn Io>, _) = (std::sync::Arc::new(io.clone()), Path::new("/copy"));
    let mut copier = thermocline_base::io::Copier::new(2, 16 << 10);
    let copied = pinned.copy(&shared, to, &mut copier, &mut |_| std::ops::ControlFlow::Continue(0));
    assert!(copied.expect("there is space").is_continue());
    let copy = Store::open(shared, to, options()).expect("it opens");
    assert!(copy.verify().is_sound(), "{:?}", copy.verify().problems);
    assert_eq!(copy.unconfirmed(), [BatchId(1)]);
    assert_eq!(read(&copy, 142).as_deref(), Some(&content(1, 142)[..]));
    assert_eq!(read(&copy, 242).as_deref(), Some(&content(2, 242)[..]));
    assert_eq!(read(&copy, 342), None);
}

#[test]
fn what_is_no_batch_is_refused() {
    let io = MemoryIo::new();
    let store = open(&io);
    let mut unsorted = batch(1, 0..5);
    unsorted.entries[0].keys[..10].copy_from_slice(&key(9));
    let refused = finish(&store, store.write_object(unsorted));
    assert!(matches!(refused, Err(StoreError::NotSorted { entry: 1, .. })), "{refused:?}");
    let mut twice = batch(1, 0..5);
    twice.entries.push(twice.entries[0].clone());
    let refused = finish(&store, store.write_object(twice));
    assert!(matches!(refused, Err(StoreError::NotSorted { entry: 0, .. })), "{refused:?}");
    store.close();
    let refused = finish(&store, store.write_object(batch(1, 0..5)));
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
}

#[test]
fn a_flipped_byte_of_an_object_is_found() {
    let io = MemoryIo::new();
    let store = open(&io);
    let mut one = batch(1, 0..200);
    one.bytes[10_000..10_016].copy_from_slice(b"look here, here!");
    finish(&store, store.write_object(one)).expect("written");
    finish(&store, store.confirm(BatchId(1))).expect("it waits");
    settle(&store);
    drop(store);
    let path = dir().join("store.pages");
    let file = io.open(&path, thermocline_base::io::OpenMode::Write).expect("it is there");
    let mut all = vec![0; file.len().expect("it has a length") as usize];
    file.read_full_at(0, &mut all).expect("readable");
    let at = all.windows(16).position(|window| window == b"look here, here!").expect("it was written");
    file.write_at(at as u64, b"L").expect("writable");
    drop(file);
    let store = open(&io);
    assert_eq!(store.verify().damaged_indexes(), [INDEX]);
    let found = block_on(store.get(INDEX, &key(100))).expect("readable").pop().expect("it is there");
    let object = found.object.expect("it stands in an object");
    assert!(matches!(block_on(object.read(10_000..10_100)), Err(StoreError::Page { .. })));
    assert_eq!(block_on(object.read(0..100)).expect("readable"), content(1, 0));
}
