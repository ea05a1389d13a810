//! What the store says of itself.

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
