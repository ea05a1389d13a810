//! The hash index under the model checker: lookups beside splits, merges and changes of the same chain.

use thermocline_base::epoch::Epochs;
use thermocline_base::sync::model;

use super::*;
use crate::index::node_memory::HeapMemory;
use crate::mutation::{self, Rule};

type Shared = Arc<(Arc<Epochs>, HashIndex<HeapMemory>)>;

fn shared() -> Shared {
    let epochs = Arc::new(Epochs::new());
    let memory = Arc::new(HeapMemory::new(Arc::clone(&epochs)));
    Arc::new((epochs, HashIndex::new(memory).expect("memory")))
}

fn rows(shared: &Shared, hash: u64) -> Vec<u64> {
    let mut rows = Vec::new();
    let _: Option<()> = shared.1.lookup(&shared.0.pin(), hash, |row| {
        rows.push(row.0);
        ControlFlow::Continue(())
    });
    rows
}

fn resize(shared: &Shared, grow: bool) {
    let mut scratch = shared.1.resize.lock();
    let guard = shared.0.pin();
    let done = if grow { shared.1.grow(&guard, &mut scratch) } else { shared.1.shrink(&guard, &mut scratch) };
    assert!(done.is_ok());
}

/// Entries of bucket 0: the even ones stay in a split, the odd ones go to the new bucket.
fn in_bucket_0(entry: u64) -> u64 {
    entry * SEGMENT
}

fn lookup_beside_splits_and_merges(entries: u64) {
    let shared = shared();
    for entry in 0..entries {
        shared.1.insert(&shared.0.pin(), in_bucket_0(entry), RowId(entry)).expect("memory");
    }
    let resizer = {
        let shared = Arc::clone(&shared);
        shuttle::thread::spawn(move || {
            resize(&shared, true);
            resize(&shared, false);
            resize(&shared, true);
        })
    };
    for entry in [3, 2, 5] {
        assert_eq!(
            rows(&shared, in_bucket_0(entry)),
            [entry],
            "an entry that stays was missed or came twice"
        );
    }
    resizer.join().expect("the resizer");
}

#[test]
fn lookups_miss_nothing_while_buckets_split_and_merge() {
    model::run(1000, || lookup_beside_splits_and_merges(6));
    // With an overflow line.
    model::run(1000, || lookup_beside_splits_and_merges(8));
}

#[test]
fn lookups_without_a_second_look_are_caught() {
    let _off = mutation::switch_off(Rule::OptimisticRecheck);
    assert!(model::finds_failure(4000, || lookup_beside_splits_and_merges(6)));
}

#[test]
fn lookups_miss_nothing_while_the_chain_changes() {
    model::run(800, || {
        let shared = shared();
        let hash = in_bucket_0(1);
        for row in 0..7 {
            shared.1.insert(&shared.0.pin(), hash, RowId(row)).expect("memory");
        }
        let writer = {
            let shared = Arc::clone(&shared);
            shuttle::thread::spawn(move || {
                // Row 0 leaves its place to the last one, and the overflow line goes, and comes again.
                assert!(shared.1.remove(&shared.0.pin(), hash, RowId(0)));
                assert!(shared.1.remove(&shared.0.pin(), hash, RowId(1)));
                assert!(shared.1.insert(&shared.0.pin(), hash, RowId(8)).expect("memory"));
            })
        };
        for _ in 0..2 {
            let mut found = rows(&shared, hash);
            found.sort_unstable();
            found.retain(|row| (2..7).contains(row));
            assert_eq!(found, [2, 3, 4, 5, 6]);
        }
        writer.join().expect("the writer");
    });
}

/// The overflow lines of a chain move, beside lookups and a writer of the same chain.
fn moves_beside_others() {
    let shared = shared();
    for entry in 0..8 {
        shared.1.insert(&shared.0.pin(), in_bucket_0(entry), RowId(entry)).expect("memory");
    }
    shared.1.memory.leaving.store(true, Ordering::Relaxed);
    let mover = {
        let shared = Arc::clone(&shared);
        shuttle::thread::spawn(move || {
            let mut bucket = 0;
            assert!(!shared.1.move_lines(&shared.0.pin(), &mut bucket, SEGMENT).expect("memory"));
        })
    };
    let writer = {
        let shared = Arc::clone(&shared);
        shuttle::thread::spawn(move || {
            // The last entry takes the place of what is removed: another line's.
            assert!(shared.1.remove(&shared.0.pin(), in_bucket_0(0), RowId(0)));
            assert!(shared.1.insert(&shared.0.pin(), in_bucket_0(9), RowId(9)).expect("memory"));
        })
    };
    for entry in [3, 7, 5, 6] {
        let found = rows(&shared, in_bucket_0(entry));
        assert_eq!(found, [entry], "an entry that stays was missed or came twice");
    }
    mover.join().expect("the mover");
    writer.join().expect("the writer");
    assert_eq!(rows(&shared, in_bucket_0(9)), [9], "what was written into a line that moved is lost");
    assert!(rows(&shared, in_bucket_0(0)).is_empty());
}

#[test]
fn nothing_is_lost_while_lines_move() {
    model::run(800, moves_beside_others);
}

#[test]
fn lookups_beside_moves_without_a_second_look_are_caught() {
    let _off = mutation::switch_off(Rule::OptimisticRecheck);
    assert!(model::finds_failure(4000, moves_beside_others));
}

#[test]
fn writers_meet_in_a_bucket_that_splits() {
    model::run(800, || {
        let shared = shared();
        for entry in 0..5 {
            shared.1.insert(&shared.0.pin(), in_bucket_0(entry), RowId(entry)).expect("memory");
        }
        let writer = {
            let shared = Arc::clone(&shared);
            shuttle::thread::spawn(move || {
                assert!(shared.1.insert(&shared.0.pin(), in_bucket_0(9), RowId(9)).expect("memory"));
                assert!(shared.1.remove(&shared.0.pin(), in_bucket_0(3), RowId(3)));
                assert_eq!(rows(&shared, in_bucket_0(9)), [9]);
            })
        };
        resize(&shared, true);
        assert!(!shared.1.insert(&shared.0.pin(), in_bucket_0(4), RowId(4)).expect("memory"));
        resize(&shared, false);
        writer.join().expect("the writer");
        for entry in 0..10 {
            let there = matches!(entry, 0 | 1 | 2 | 4 | 9);
            assert_eq!(rows(&shared, in_bucket_0(entry)).len(), usize::from(there), "entry {entry}");
        }
    });
}
