//! Heat of pages outlives the merges that move them: what readers had from the SSD comes from there again.

use std::path::Path;
use std::sync::Arc;

use thermocline_base::io::{Io, MemoryIo};
use thermocline_base::multiplex::block_on;

use super::super::*;
use super::model::{dir, finish, options};
use crate::cache::{CacheKind, Savings};
use crate::ssd::SsdOptions;

const INDEX: IndexId = IndexId { table: 2, index: 0 };
const PAGE: u64 = 4096;
/// Records, of which the first ones are hot and the last ones are replaced.
const RECORDS: u64 = 8000;
const HOT: u64 = 2000;
const REPLACED: std::ops::Range<u64> = 5000..RECORDS;
/// Pages of the SSD: enough for the hot ones, and for their copies while they move.
const SLOTS: u64 = 140;

fn open(policy: CacheKind, heat_across_merges: bool) -> Arc<Store> {
    let ssd = SsdOptions {
        policy,
        thread: false,
        compares_devices: false,
        savings: Some(Savings::default()),
        heat_across_merges,
        ..SsdOptions::new(Path::new("/ssd"), (SLOTS + 1) * PAGE)
    };
    let ssd_io: Arc<dyn Io> = Arc::new(MemoryIo::new());
    let options = StoreOptions {
        memory_bytes: 4096,
        leaf_bytes: 4 << 20,
        // No frames: each look at a page is a read of the device.
        frame_bytes: 0,
        frame_bytes_max: 64 << 20,
        ssd: Some((ssd_io, ssd)),
        ..options()
    };
    Store::open(Arc::new(MemoryIo::new()), dir(), options).expect("it opens")
}

fn settle(store: &Store) {
    while store.step(Step::Work) {
        while store.inner.files.device.ssd().expect("it was opened with one").step() {}
    }
    while store.inner.files.device.ssd().expect("it was opened with one").step() {}
}

fn write(store: &Store, batch: u64, former: u64, numbers: std::ops::Range<u64>) {
    let mut entries = Batch::confirmed(BatchId(batch));
    for number in numbers {
        let key = number.to_be_bytes();
        if former > 0 {
            entries.remove(INDEX, &key, BatchId(former), Removal::Last).expect("short");
        }
        entries.put(INDEX, &key, &[batch as u8; 100]).expect("short");
    }
    finish(store, store.write(entries)).expect("written");
    settle(store);
}

/// Reads one hot record a page, about; gives which part of the pages came from the SSD.
fn read_hot(store: &Store) -> f64 {
    let before = store.ssd().expect("there is one").counts;
    for number in (0..HOT).step_by(36) {
        let found = block_on(store.get(INDEX, &number.to_be_bytes())).expect("readable");
        assert_eq!((found.len(), &found[0].record[..]), (1, &[1; 100][..]), "record {number}");
        settle(store);
    }
    let after = store.ssd().expect("there is one").counts;
    (after.hits - before.hits) as f64 / (after.reads - before.reads) as f64
}

/// The hit ratio of hot records before a merge has rewritten all pages, right after it, and how many pages were moved.
fn around_a_merge(policy: CacheKind, heat_across_merges: bool) -> (f64, f64, u64) {
    let store = open(policy, heat_across_merges);
    write(&store, 1, 0, 0..RECORDS);
    for _ in 0..5 {
        read_hot(&store);
    }
    let before = read_hot(&store);
    let merges = store.statistics().merges;
    let mut batch = 2;
    while store.statistics().merges == merges {
        write(&store, batch, batch - 1, REPLACED);
        batch += 1;
    }
    let after = read_hot(&store);
    assert!(store.verify().is_sound(), "the copies are of what the merge has written");
    (before, after, store.ssd().expect("there is one").counts.moved)
}

#[test]
fn what_was_warm_before_a_merge_is_warm_after_it() {
    for policy in
        [CacheKind::Tac, CacheKind::TacTold, CacheKind::TacPages, CacheKind::TacBands, CacheKind::Lru]
    {
        let (before, after, moved) = around_a_merge(policy, true);
        assert!(before > 0.95, "{policy}: {before} before the merge");
        assert!(after > 0.9 * before, "{policy}: {after} after the merge, {before} before it, {moved} moved");
    }
}

#[test]
fn without_heat_across_merges_a_merge_leaves_the_ssd_cold() {
    let (before, after, moved) = around_a_merge(CacheKind::TacTold, false);
    assert!(
        before > 0.95 && after < 0.1 && moved == 0,
        "{after} after the merge, {before} before it, {moved} moved"
    );
}

/// Each cached page belongs to an index, or to the rest: at work, and in the map that is saved for the next opening.
#[test]
fn the_share_of_each_index_is_counted_page_by_page() {
    let store = open(CacheKind::TacTold, true);
    write(&store, 1, 0, 0..RECORDS);
    let other = IndexId { table: 3, index: 1 };
    let mut entries = Batch::confirmed(BatchId(2));
    (0..500_u64).for_each(|number| entries.put(other, &number.to_be_bytes(), &[7; 3000]).expect("short"));
    finish(&store, store.write(entries)).expect("written");
    settle(&store);
    for _ in 0..3 {
        read_hot(&store);
    }
    let (shares, rest) = store.ssd_shares().expect("it is on");
    assert_eq!(shares.keys().copied().collect::<Vec<_>>(), [INDEX, other]);
    let on_ssd: u64 = shares.values().map(|share| share.ssd_bytes).sum::<u64>() + rest.ssd_bytes;
    assert_eq!(on_ssd, store.ssd().expect("there is one").cached * PAGE);
    assert_eq!(shares[&other].ssd_bytes, 0, "nobody has read it");
    assert!(shares[&INDEX].ssd_bytes >= 50 * PAGE && shares[&INDEX].bytes > RECORDS * 100, "{shares:?}");
    assert!(shares[&other].bytes > 500 * 3000 && rest.bytes > 0, "long records are the index's: {shares:?}");
}
