//! The store's statistics.

use std::sync::Arc;

use thermocline_base::io::MemoryIo;

use super::super::*;
use super::model::{dir, finish};

const INDEX: IndexId = IndexId { table: 1, index: 0 };
const RECORDS: u64 = 15_000;

/// A piece that was put into all leaves is merged leaf by leaf: what was merged already counts once, and makes no leaf more
/// due for merging than it is.
#[test]
fn what_is_merged_of_a_piece_does_not_count_twice() {
    let options = StoreOptions {
        memory_bytes: 32 << 10,
        leaf_bytes: 128 << 10,
        young_percent: 10,
        threads: 0,
        ..StoreOptions::new([7; 16])
    };
    let store: Arc<Store> = Store::open(Arc::new(MemoryIo::new()), dir(), options).expect("it opens");
    let even: Vec<[u8; 8]> = (0..RECORDS).map(|number| (2 * number).to_be_bytes()).collect();
    store.bulk_load(BatchId(1), even.iter().map(|key| (INDEX, &key[..], &[1; 60][..]))).expect("sorted");
    // Too long for memory, so it is written on its own, and confirmed it lies over all leaves.
    let mut batch = Batch::new(BatchId(2));
    for number in 0..RECORDS {
        batch.put(INDEX, &(2 * number + 1).to_be_bytes(), &[2; 60]).expect("short");
    }
    finish(&store, store.write(batch)).expect("written");
    while store.step(Step::Work) {}
    finish(&store, store.confirm(BatchId(2))).expect("it waits");
    let young = || store.inner.current().leaves.young_bytes_all;
    let (mut merges, mut most) = (0, 0);
    while store.step(Step::Work) {
        let found = store.statistics();
        let records = found.indexes[&INDEX].records;
        assert!(records.abs_diff(2 * RECORDS) < RECORDS / 10, "{records} after {merges} merges");
        // It enters the leaves, and leaves them one after the other.
        assert!(
            merges == found.merges || young() < most,
            "a merged leaf has {} of {most} bytes left",
            young()
        );
        (merges, most) = (found.merges, young());
    }
    assert!(merges > 3, "{merges} merges");
    assert!(young() > 0, "as much may stay as the share of young pieces allows");
}

/// New keys lie mostly in a few leaves: how much of a piece over many leaves is still to be merged depends on which of them
/// were. What is in blocks counts, too, until it is in a piece.
#[test]
fn records_are_counted_where_they_are() {
    let options = StoreOptions {
        memory_bytes: 32 << 10,
        leaf_bytes: 64 << 10,
        young_percent: 10,
        threads: 0,
        ..StoreOptions::new([7; 16])
    };
    let store: Arc<Store> = Store::open(Arc::new(MemoryIo::new()), dir(), options).expect("it opens");
    let old: Vec<[u8; 8]> = (0..RECORDS).map(|number| (10 * number).to_be_bytes()).collect();
    store.bulk_load(BatchId(1), old.iter().map(|key| (INDEX, &key[..], &[1; 60][..]))).expect("sorted");
    // Nineteen in twenty into the last tenth of the keys, as a table that grows has it; at first many at a time, which
    // memory has no room for, then few.
    let last = RECORDS * 9 / 10;
    let dense = (last..RECORDS).flat_map(|number| (1..10).map(move |more| 10 * number + more));
    let sparse = (0..last).step_by(19).map(|number| 10 * number + 1);
    let new: Vec<u64> = sparse.chain(dense).collect();
    let (mut expected, mut most_wrong) = (RECORDS, 0);
    let (many, few) = new.split_at(new.len() - 2000);
    for (number, keys) in [many].into_iter().chain(few.chunks(40)).enumerate() {
        let id = BatchId(2 + number as u64);
        let mut batch = Batch::new(id);
        for key in keys {
            batch.put(INDEX, &key.to_be_bytes(), &[2; 60]).expect("short");
        }
        finish(&store, store.write(batch)).expect("written");
        finish(&store, store.confirm(id)).expect("it waits");
        expected += keys.len() as u64;
        loop {
            let records = store.index_statistics()[&INDEX].records;
            most_wrong = most_wrong.max(records.abs_diff(expected));
            if !store.step(Step::Work) {
                break;
            }
        }
    }
    let found = store.statistics();
    assert!(found.flushes > 3 && found.merges > 20, "{found:?}");
    assert!(most_wrong < RECORDS / 50, "{most_wrong} of {expected} records too many or too few");
}
