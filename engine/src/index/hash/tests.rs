//! The hash index against a model, with several threads, and in the memory that it takes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering as StdOrdering};

use proptest::prelude::*;
use thermocline_base::epoch::Epochs;

use super::*;
use crate::index::node_memory::HeapMemory;

fn index_with_limit(bytes_max: usize) -> (Arc<Epochs>, Arc<HeapMemory>, HashIndex<HeapMemory>) {
    let epochs = Arc::new(Epochs::new());
    let memory = Arc::new(HeapMemory::with_limit(Arc::clone(&epochs), bytes_max));
    let index = HashIndex::new(Arc::clone(&memory)).unwrap();
    (epochs, memory, index)
}

fn mix(key: u64) -> u64 {
    let mut x = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

fn rows<M: NodeMemory>(index: &HashIndex<M>, guard: &Guard<'_>, hash: u64) -> Vec<u64> {
    let mut rows = Vec::new();
    let broke: Option<()> = index.lookup(guard, hash, |row| {
        rows.push(row.0);
        ControlFlow::Continue(())
    });
    assert_eq!(broke, None);
    rows.sort_unstable();
    rows
}

fn overflow_lines_of(index: &HashIndex<HeapMemory>) -> HashSet<NonNull<Line>> {
    let mut scratch = Scratch::default();
    for number in 0..index.buckets.load(Ordering::Relaxed) {
        let bucket = index.latch_number(number);
        scratch.gather(&bucket, |_| false);
        bucket.line.unlatch_unchanged(bucket.head);
    }
    scratch.lines.into_iter().collect()
}

/// Moves all overflow lines, and says how many there are.
fn move_all(
    epochs: &Epochs,
    memory: &HeapMemory,
    index: &HashIndex<HeapMemory>,
) -> Result<usize, OutOfMemory> {
    // What has moved must not come to stand where something else was.
    let guard = epochs.pin();
    let before = overflow_lines_of(index);
    memory.leaving.store(true, StdOrdering::Relaxed);
    let mut bucket = 0;
    let moved = loop {
        match index.move_lines(&guard, &mut bucket, 7) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    memory.leaving.store(false, StdOrdering::Relaxed);
    moved?;
    let after = overflow_lines_of(index);
    assert!(before.is_disjoint(&after), "a line did not move");
    // What removes have left in a chain is gathered into as few lines as can be.
    assert!(after.len() <= before.len());
    Ok(after.len())
}

#[test]
fn addresses_follow_linear_hashing() {
    for buckets in SEGMENT..200 {
        for tag in 0..2000u32 {
            let bucket = bucket_of(tag, buckets);
            assert!(bucket < buckets);
            if bucket_of(tag, buckets + 1) != bucket {
                assert_eq!(bucket_of(tag, buckets + 1), buckets);
                assert_eq!(bucket, parent_of(buckets));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Few hashes, so that chains get long and entries collide; the upper RowId bits are used too.
    #[test]
    fn behaves_like_a_set(
        hashes in 1u64..40,
        operations in prop::collection::vec((any::<u8>(), any::<u64>(), 0u64..12), 1..600),
        sparse in any::<bool>(),
    ) {
        let (epochs, _memory, index) = index_with_limit(usize::MAX);
        let mut model: HashSet<(u64, u64)> = HashSet::new();
        for (kind, key, row) in operations {
            let guard = epochs.pin();
            let hash = if sparse { mix(key % (hashes * 50)) } else { key % hashes };
            let row = row * 0x1111_1111_1111 % (1 << 48);
            if kind % 5 < 3 {
                prop_assert_eq!(index.insert(&guard, hash, RowId(row)).unwrap(), model.insert((hash, row)));
            } else {
                prop_assert_eq!(index.remove(&guard, hash, RowId(row)), model.remove(&(hash, row)));
            }
            let mut expected: Vec<u64> =
                model.iter().filter(|(other, _)| tag(*other) == tag(hash)).map(|(_, row)| *row).collect();
            expected.sort_unstable();
            prop_assert_eq!(rows(&index, &guard, hash), expected);
        }
        let guard = epochs.pin();
        while index.maintain(&guard) {}
        prop_assert_eq!(index.len(), model.len() as u64);
        let mut all = HashSet::new();
        index.for_each(&guard, |tag, row| assert!(all.insert((tag, row.0)), "an entry came twice"));
        prop_assert_eq!(all, model.into_iter().map(|(hash, row)| (tag(hash), row)).collect());
    }
}

#[test]
fn grows_shrinks_and_gives_memory_back() {
    let (epochs, memory, index) = index_with_limit(usize::MAX);
    let empty_bytes = memory.bytes();
    let keys = 100_000u64;
    for key in 0..keys {
        assert!(index.insert(&epochs.pin(), mix(key), RowId(key)).unwrap());
    }
    memory.collect();
    assert_eq!(index.len(), keys);
    let full_bytes = memory.bytes();
    assert!(full_bytes < 17 * keys as usize, "{full_bytes} bytes");
    assert_eq!(index.memory_bytes(), full_bytes as u64 + size_of::<HashIndex<HeapMemory>>() as u64);
    for key in 0..keys {
        assert!(rows(&index, &epochs.pin(), mix(key)).contains(&key));
    }
    for key in (0..keys).filter(|key| key % 100 != 0) {
        assert!(index.remove(&epochs.pin(), mix(key), RowId(key)));
    }
    while index.maintain(&epochs.pin()) {}
    memory.collect();
    assert!(memory.bytes() < full_bytes / 40, "{} of {full_bytes} bytes are left", memory.bytes());
    for key in 0..keys {
        assert_eq!(rows(&index, &epochs.pin(), mix(key)).contains(&key), key % 100 == 0);
    }
    let (before, lines) = (memory.bytes(), move_all(&epochs, &memory, &index).unwrap());
    assert!(lines > 0, "some chains have overflow lines");
    memory.collect();
    assert!(memory.bytes() <= before);
    for key in 0..keys {
        assert_eq!(rows(&index, &epochs.pin(), mix(key)).contains(&key), key % 100 == 0);
    }
    for key in (0..keys).filter(|key| key % 100 == 0) {
        assert!(index.remove(&epochs.pin(), mix(key), RowId(key)));
    }
    while index.maintain(&epochs.pin()) {}
    memory.collect();
    assert_eq!((index.len(), memory.bytes()), (0, empty_bytes));
    drop(index);
    assert_eq!(memory.bytes(), 0);
}

#[test]
fn a_full_memory_is_an_error_and_changes_nothing() {
    let (epochs, memory, index) = index_with_limit(16 << 10);
    let mut inserted = 0u64;
    let refused = loop {
        match index.insert(&epochs.pin(), mix(inserted), RowId(inserted)) {
            Ok(new) => assert!(new),
            Err(OutOfMemory) => break inserted,
        }
        inserted += 1;
    };
    assert!(inserted > 500, "{inserted} entries in 16 KiB");
    assert_eq!(index.len(), inserted);
    assert!(!rows(&index, &epochs.pin(), mix(refused)).contains(&refused));
    for key in 0..inserted {
        assert!(rows(&index, &epochs.pin(), mix(key)).contains(&key));
        assert!(!index.insert(&epochs.pin(), mix(key), RowId(key)).unwrap());
    }
    // So do moves of them.
    assert_eq!(move_all(&epochs, &memory, &index), Err(OutOfMemory));
    for key in 0..inserted {
        assert!(rows(&index, &epochs.pin(), mix(key)).contains(&key));
    }
    // Merges that find no memory for overflow lines leave the index whole.
    for key in (0..inserted).rev() {
        assert!(index.remove(&epochs.pin(), mix(key), RowId(key)));
        index.maintain(&epochs.pin());
    }
    drop(index);
    memory.collect();
    assert_eq!(memory.bytes(), 0);
}

#[test]
fn callbacks_may_break_and_use_the_index() {
    let (epochs, _memory, index) = index_with_limit(usize::MAX);
    let guard = epochs.pin();
    for row in 0..40 {
        index.insert(&guard, 7, RowId(row)).unwrap();
    }
    let mut calls = 0;
    let broke = index.lookup(&guard, 7, |row| {
        calls += 1;
        assert!(index.remove(&guard, 7, row));
        if calls == 20 { ControlFlow::Break(row) } else { ControlFlow::Continue(()) }
    });
    assert!(broke.is_some());
    let left = rows(&index, &guard, 7);
    assert_eq!(left.len(), 20);
    // What a lookup falls back to when writers leave it no gap.
    let mut latched = index.collect_latched(tag(7));
    latched.sort_unstable();
    assert_eq!(latched, left);
}

/// Stable keys are always found, and found once, while others grow and shrink the index around them, and one more moves
/// what can move.
#[test]
fn stable_entries_are_found_while_others_come_and_go() {
    let (epochs, memory, index) = index_with_limit(usize::MAX);
    let stable = 2_000u64;
    let rounds = 4;
    let volatile = 20_000u64;
    for key in 0..stable {
        index.insert(&epochs.pin(), mix(key), RowId(key)).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=2u64)
            .map(|writer| {
                let (index, epochs) = (&index, &epochs);
                scope.spawn(move || {
                    let key = |n: u64| writer << 32 | n;
                    for _ in 0..rounds {
                        for n in 0..volatile {
                            assert!(index.insert(&epochs.pin(), mix(key(n)), RowId(key(n))).unwrap());
                        }
                        for n in 0..volatile {
                            assert!(rows(index, &epochs.pin(), mix(key(n))).contains(&key(n)));
                            assert!(index.remove(&epochs.pin(), mix(key(n)), RowId(key(n))));
                        }
                    }
                })
            })
            .collect();
        let (index, epochs, done) = (&index, &epochs, &done);
        memory.leaving.store(true, StdOrdering::Relaxed);
        scope.spawn(move || {
            while !done.load(StdOrdering::Relaxed) {
                let mut bucket = 0;
                while index.move_lines(&epochs.pin(), &mut bucket, 100).unwrap() {}
            }
        });
        scope.spawn(move || {
            let mut at = 1u64;
            while !done.load(StdOrdering::Relaxed) {
                at = mix(at);
                let key = at % stable;
                let found = rows(index, &epochs.pin(), mix(key));
                assert_eq!(found.iter().filter(|row| **row == key).count(), 1, "key {key}");
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, StdOrdering::Relaxed);
    });
    while index.maintain(&epochs.pin()) {}
    assert_eq!(index.len(), stable);
    let mut all = HashSet::new();
    index.for_each(&epochs.pin(), |_, row| assert!(all.insert(row.0)));
    assert_eq!(all.len() as u64, stable);
    drop(index);
    drop(epochs);
    memory.collect();
    assert_eq!(memory.bytes(), 0);
}
