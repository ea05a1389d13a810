//! Groups against scans of the same keys, with work done at random moments.

use std::collections::BTreeSet;
use std::sync::Arc;

use thermocline_base::io::{MemoryIo, RecordingIo};
use thermocline_base::multiplex::block_on;
use thermocline_base::rng::Rng;

use super::super::*;
use super::model::{dir, finish, open, options};

const INDEX: IndexId = IndexId { table: 3, index: TAILED | 9 };

fn group(of: u64) -> Vec<u8> {
    format!("group{of:02}").into_bytes()
}

fn entry(of: u64, row: u64) -> Vec<u8> {
    [&group(of)[..], &row.to_be_bytes(), &8_u16.to_be_bytes()].concat()
}

fn scan(store: &Store, low: &[u8], high: &[u8]) -> Vec<FoundKey> {
    let mut scan = store.scan(INDEX, low, Some(high), Direction::Forward);
    std::iter::from_fn(|| block_on(scan.next()).expect("readable")).collect()
}

/// Every group as a scan finds it. Gives how many entries there are.
fn compare(store: &Store) -> usize {
    let groups: Vec<_> = (0..15).map(group).collect();
    let mut together = [false; 14];
    store.may_contain_groups(INDEX, &groups[..14], &mut together);
    let mut all = 0;
    for of in 0..14 {
        let expected = scan(store, &groups[of], &groups[of + 1]);
        let found = block_on(store.get_group(INDEX, &groups[of])).expect("readable");
        assert_eq!(found, expected, "group {of}");
        assert_eq!(together[of], store.may_contain_group(INDEX, &groups[of]));
        assert!(together[of] || expected.is_empty(), "a filter says no to group {of}");
        for key in expected.iter().step_by(7) {
            assert!(store.may_contain(INDEX, &key.key));
            assert_eq!(block_on(store.get(INDEX, &key.key)).expect("readable"), key.entries);
        }
        all += expected.len();
    }
    all
}

/// An unconfirmed batch, with what it puts and what it removes.
type Waits = (u64, Vec<Vec<u8>>, Vec<(Vec<u8>, u64)>);

fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let io = MemoryIo::new();
    let mut store = open(&io);
    // Confirmed entries; and batches that wait.
    let mut there: BTreeSet<(Vec<u8>, u64)> = BTreeSet::new();
    let mut waiting: Vec<Waits> = Vec::new();
    for id in 1..260_u64 {
        let confirmed = rng.chance(0.6);
        let mut batch = if confirmed { Batch::confirmed(BatchId(id)) } else { Batch::new(BatchId(id)) };
        let (mut puts, mut removals) = (BTreeSet::new(), Vec::new());
        for _ in 0..rng.below(30) {
            // Half of all entries are of one group, which goes over several leaves.
            let of = if rng.chance(0.5) { 7 } else { rng.below(14) };
            puts.insert(entry(of, rng.below(1500)));
        }
        puts.iter().for_each(|key| batch.put(INDEX, key, &[id as u8; 70]).expect("short"));
        for _ in 0..rng.below(20) {
            let Some(one) = there.iter().nth(rng.below(there.len().max(1) as u64) as usize).cloned() else {
                break;
            };
            if !puts.contains(&one.0) {
                there.remove(&one);
                batch.remove(INDEX, &one.0, BatchId(one.1), Removal::Only).expect("short");
                removals.push(one);
            }
        }
        finish(&store, store.write(batch)).expect("written");
        if confirmed {
            there.extend(puts.into_iter().map(|key| (key, id)));
        } else {
            waiting.push((id, puts.into_iter().collect(), removals));
        }
        if waiting.len() > 4 {
            let (id, puts, removals) = waiting.swap_remove(rng.below(4) as usize);
            if rng.chance(0.7) {
                finish(&store, store.confirm(BatchId(id))).expect("it waits");
                there.extend(puts.into_iter().map(|key| (key, id)));
            } else {
                finish(&store, store.discard(BatchId(id))).expect("discarded");
                there.extend(removals);
            }
        }
        for _ in 0..rng.below(3) {
            store.step(Step::Work);
        }
        if id % 50 == 0 {
            compare(&store);
        }
        if id == 130 {
            drop(store);
            store = open(&io);
        }
    }
    while store.step(Step::Work) {}
    let pending: usize = waiting.iter().map(|(_, puts, removals)| puts.len() + removals.len()).sum();
    let count = compare(&store);
    // A key that is there and waits as well counts once.
    assert!(count <= there.len() + pending && count > 500, "{count} of {} and {pending}", there.len());
    assert!(store.statistics().leaves > 2, "the group goes over several leaves");
    assert!(store.verify().problems.is_empty(), "{:?}", store.verify().problems);
    assert_eq!(store.indexes(), [INDEX]);
}

#[test]
fn a_group_is_what_a_scan_of_it_finds() {
    (0..6).for_each(run);
}

#[test]
fn a_group_is_read_with_its_own_pages_only() {
    let store = open(&MemoryIo::new());
    for id in 1..12 {
        let mut batch = Batch::confirmed(BatchId(id));
        for of in 0..400 {
            let key =
                [&format!("name{of:05}").into_bytes()[..], &id.to_be_bytes(), &8_u16.to_be_bytes()].concat();
            batch.put(INDEX, &key, b"").expect("short");
        }
        finish(&store, store.write(batch)).expect("written");
        while store.step(Step::Work) {}
    }
    let pieces = store.statistics().pieces;
    let before = store.statistics().page_reads;
    for of in 0..400 {
        let found = block_on(store.get_group(INDEX, format!("name{of:05}").as_bytes())).expect("readable");
        assert_eq!(found.len(), 11);
    }
    let read = store.statistics().page_reads - before;
    assert!(read <= 400 * (pieces + 1), "{read} pages of {pieces} pieces for 400 groups");
    let wrong = (1000..4000).filter(|of| store.may_contain_group(INDEX, format!("name{of:05}").as_bytes()));
    assert!(wrong.count() < 300, "filters know groups");
}

#[test]
fn a_group_larger_than_a_block_is_no_long_chain() {
    // With a slot an entry this takes minutes.
    let store = open(&MemoryIo::new());
    let mut batch = Batch::confirmed(BatchId(1));
    (0..150_000).for_each(|row| batch.put(INDEX, &entry(1, row), b"").expect("short"));
    finish(&store, store.write(batch)).expect("written");
    assert_eq!(block_on(store.get_group(INDEX, &group(1))).expect("readable").len(), 150_000);
    assert!(Arc::strong_count(&store) == 1 && !store.may_contain_group(INDEX, &group(2)));
}

#[test]
fn the_space_of_a_dropped_index_is_given_back() {
    let other = IndexId { table: 3, index: 1 };
    let io = MemoryIo::new();
    let mut store = open(&io);
    for id in 1..40 {
        let mut batch = Batch::confirmed(BatchId(id));
        for row in 0..60_u64 {
            let row = id * 60 + row;
            batch.put(INDEX, &entry(row % 14, row), &[1; 60]).expect("short");
            batch.put(other, &row.to_be_bytes(), b"kept").expect("short");
        }
        finish(&store, store.write(batch)).expect("written");
    }
    while store.step(Step::Work) {}
    assert_eq!(store.indexes(), [other, INDEX]);
    let before = store.statistics();
    for round in 0..2 {
        store.drop_index(INDEX);
        while store.step(Step::Work) {}
        // What lies in blocks goes when it has been flushed.
        let left = store.statistics().indexes.get(&INDEX).map_or(0, |of| of.records);
        assert_eq!(left, 0, "round {round}");
        assert!(store.statistics().disk_bytes < before.disk_bytes / 2, "round {round}");
        let problems = store.verify().problems;
        assert!(problems.is_empty(), "{problems:?}");
        let mut scan = store.scan(other, &[], None, Direction::Backward);
        let kept = std::iter::from_fn(|| block_on(scan.next()).expect("readable")).count();
        assert_eq!(kept, 39 * 60);
        drop(scan);
        drop(store);
        store = open(&io);
    }
}

#[test]
fn the_space_of_batches_that_are_of_no_use_is_given_back() {
    let io = MemoryIo::new();
    let store = open(&io);
    let write = |id: u64, len: usize| {
        let mut batch = Batch::confirmed(BatchId(id));
        for row in 0..60_u64 {
            batch.put(INDEX, &entry(row % 14, row), &vec![1; len]).expect("short");
        }
        finish(&store, store.write(batch)).expect("written");
        while store.step(Step::Work) {}
    };
    (1..30).for_each(|id| write(id, 200));
    let before = store.statistics();
    // The last of them are in a block yet; and they are removed later, too.
    let mut removals = Batch::confirmed(BatchId(1000));
    (0..60).for_each(|row| {
        removals.remove(INDEX, &entry(row % 14, row), BatchId(29), Removal::Last).expect("short");
    });
    store.drop_batches(INDEX, BatchId(29), true);
    while store.step(Step::Work) {}
    finish(&store, store.write(removals)).expect("written");
    (30..34).for_each(|id| write(id, 20));
    let check = |store: &Store| {
        let found = block_on(store.get(INDEX, &entry(3, 3))).expect("readable");
        let mut ids: Vec<u64> = found.iter().map(|found| found.batch.0).collect();
        ids.retain(|id| *id > 29);
        assert_eq!(ids, [33, 32, 31, 30]);
        assert!(store.verify().is_sound());
    };
    check(&store);
    // Until a block of new entries has pushed them out of memory.
    (34..60).for_each(|id| write(id, 20));
    let after = store.statistics();
    assert!(after.disk_bytes < before.disk_bytes / 2, "{} of {}", after.disk_bytes, before.disk_bytes);
    let merges = after.merges;
    assert!(!store.step(Step::Work) && store.statistics().merges == merges, "that is done once");
    let found = block_on(store.get(INDEX, &entry(3, 3))).expect("readable");
    assert!(found.iter().all(|found| found.batch.0 > 29), "{found:?}");
    drop(store);
    // Said again after opening it is no reason to merge.
    let store = open(&io);
    store.drop_batches(INDEX, BatchId(29), false);
    while store.step(Step::Work) {}
    assert_eq!(store.statistics().merges, 0);
    assert_eq!(block_on(store.get(INDEX, &entry(3, 3))).expect("readable").len(), 30);
}

/// A merge does not leave out entries that become useless while it runs: their leaves are merged once more.
#[test]
fn what_becomes_useless_during_a_merge_goes_as_well() {
    let io = RecordingIo::new(&MemoryIo::new());
    let store = Store::open(Arc::new(io.clone()), dir(), options()).expect("it opens");
    for id in 1..60_u64 {
        let mut batch = Batch::confirmed(BatchId(id));
        for row in 0..60_u64 {
            batch.put(INDEX, &entry(row % 14, row), &[1; 100]).expect("short");
        }
        finish(&store, store.write(batch)).expect("written");
        while store.step(Step::Work) {}
    }
    let old = || {
        let all = scan(&store, &group(0), &group(99));
        all.iter().flat_map(|found| &found.entries).filter(|found| found.batch.0 <= 29).count()
    };
    assert_eq!(old(), 29 * 60);
    store.drop_batches(INDEX, BatchId(9), true);
    io.defer(5);
    let merged = std::thread::scope(|scope| {
        let work = scope.spawn(|| store.step(Step::Work));
        while io.under_way() == 0 {
            assert!(!work.is_finished(), "it waits for the device");
            std::thread::yield_now();
        }
        store.drop_batches(INDEX, BatchId(29), true);
        while !work.is_finished() {
            io.release();
            std::thread::yield_now();
        }
        work.join().expect("it does not fail")
    });
    io.release_all();
    assert!(merged && old() > 0);
    while store.step(Step::Work) {}
    assert_eq!(old(), 0);
    assert!(store.verify().is_sound());
}
