//! Bulk loads, and verification.

use thermocline_base::io::MemoryIo;
use thermocline_base::multiplex::block_on;

use super::super::*;
use super::model::{finish, open};

const INDEX: IndexId = IndexId { table: 3, index: 0 };

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn load(store: &Store, batch: u64, numbers: impl Iterator<Item = u32>) -> Result<u64> {
    let entries: Vec<([u8; 4], Vec<u8>)> =
        numbers.map(|number| (key(number), format!("record {number} of {batch}").into_bytes())).collect();
    store.bulk_load(BatchId(batch), entries.iter().map(|(key, record)| (INDEX, &key[..], &record[..])))
}

fn batches(store: &Store, number: u32) -> Vec<u64> {
    let found = block_on(store.get(INDEX, &key(number))).expect("readable");
    found.iter().map(|found| found.batch.0).collect()
}

#[test]
fn a_load_is_there_at_once_and_after_opening() {
    let io = MemoryIo::new();
    let store = open(&io);
    assert_eq!(load(&store, 1, 0..5000).expect("sorted"), 5000);
    assert!(store.statistics().leaves > 1, "each piece has a leaf of its own");
    // Over what is there, and with batches before and behind.
    let mut batch = Batch::confirmed(BatchId(2));
    batch.remove(INDEX, &key(7), BatchId(1), Removal::Last).expect("short");
    batch.put(INDEX, &key(7), b"new").expect("short");
    finish(&store, store.write(batch)).expect("written");
    load(&store, 3, (0..6000).step_by(7)).expect("sorted");
    let mut batch = Batch::confirmed(BatchId(4));
    batch.remove(INDEX, &key(14), BatchId(3), Removal::Only).expect("short");
    finish(&store, store.write(batch)).expect("written");
    let check = |store: &Store| {
        assert_eq!(batches(store, 7), [3, 2]);
        assert_eq!(batches(store, 14), [1]);
        assert_eq!(batches(store, 21), [3, 1]);
        assert_eq!(batches(store, 22), [1]);
        assert_eq!(batches(store, 5998), [] as [u64; 0]);
        assert_eq!(batches(store, 5999), [3]);
        let verification = store.verify();
        assert!(verification.is_sound(), "{:?}", verification.problems);
    };
    check(&store);
    while store.step(Step::Work) {}
    check(&store);
    drop(store);
    check(&open(&io));
}

#[test]
fn unsorted_input_is_refused_and_leaves_nothing() {
    let io = MemoryIo::new();
    let store = open(&io);
    let before = store.statistics().disk_bytes;
    let error = load(&store, 1, (0..3000).chain([2999])).expect_err("a key twice");
    assert!(matches!(error, StoreError::NotSorted { entry: 3000, .. }), "{error}");
    assert_eq!(store.statistics().disk_bytes, before, "its extents are free");
    assert_eq!(batches(&store, 0), [] as [u64; 0]);
    assert_eq!(load(&store, 2, 0..0).expect("nothing is sorted"), 0);
}
