//! The tree under the model checker: lookups and scans beside splits and merges.

use std::ops::Bound;

use thermocline_base::epoch::Epochs;
use thermocline_base::sync::model;

use super::*;
use crate::index::node_memory::HeapMemory;
use crate::mutation;

struct Shared {
    epochs: Arc<Epochs>,
    tree: Tree<HeapMemory, 512>,
}

/// A tree with these entries. A leaf of 512 bytes holds 27 of them.
fn shared(entries: impl Iterator<Item = u64>) -> Arc<Shared> {
    let epochs = Arc::new(Epochs::new());
    let memory = Arc::new(HeapMemory::new(Arc::clone(&epochs)));
    let shared = Shared { epochs, tree: Tree::new(memory).expect("memory") };
    for entry in entries {
        shared.insert(entry);
    }
    Arc::new(shared)
}

fn key(entry: u64) -> [u8; 8] {
    entry.to_be_bytes()
}

impl Shared {
    fn insert(&self, entry: u64) {
        assert_eq!(self.tree.insert(&self.epochs.pin(), &key(entry), RowId(entry)), Ok(true));
    }

    fn remove(&self, entry: u64) {
        assert!(self.tree.remove(&self.epochs.pin(), &key(entry), RowId(entry)));
    }

    fn has(&self, entry: u64) -> bool {
        self.tree
            .lookup(&self.epochs.pin(), &key(entry), |row| {
                assert_eq!(row.0, entry, "a lookup found an entry of another key");
                ControlFlow::Break(())
            })
            .is_some()
    }

    /// The rows of a whole scan, each batch under a pin of its own.
    fn scan(&self, direction: Direction) -> Vec<u64> {
        let mut batch = Batch::new();
        let mut rows = Vec::new();
        let everything = Bound::Unbounded;
        let mut more =
            self.tree.scan_batch(&self.epochs.pin(), Bound::Unbounded, everything, direction, &mut batch);
        loop {
            for (found, row) in batch.iter() {
                assert_eq!(found, key(row.0), "a scan returned what never was an entry");
                rows.push(row.0);
            }
            if !more {
                break;
            }
            more = self.tree.scan_next(&self.epochs.pin(), everything, &mut batch);
        }
        if direction == Direction::Backward {
            rows.reverse();
        }
        assert!(rows.is_sorted_by(|a, b| a < b), "an entry came twice or out of order: {rows:?}");
        rows
    }
}

/// The even entries stay; one more makes the leaf split in its middle.
fn lookup_beside_a_split() {
    let shared = shared((0..27).map(|n| n * 2));
    assert_eq!(shared.tree.height(&shared.epochs.pin()), 1);
    let splitter = {
        let shared = Arc::clone(&shared);
        shuttle::thread::spawn(move || shared.insert(21))
    };
    for entry in [40, 2, 26] {
        assert!(shared.has(entry), "an entry that stays was missed");
    }
    splitter.join().expect("the splitter");
    assert_eq!(shared.tree.height(&shared.epochs.pin()), 2, "the leaf has split");
}

#[test]
fn lookups_miss_nothing_while_a_leaf_splits() {
    model::run(300, lookup_beside_a_split);
}

#[test]
fn lookups_without_a_second_look_are_caught() {
    let _off = mutation::switch_off(Rule::OptimisticRecheck);
    assert!(model::finds_failure(3000, lookup_beside_a_split));
}

fn scan_beside_a_split(direction: Direction) {
    let shared = shared((0..40).map(|n| n * 2));
    let splitter = {
        let shared = Arc::clone(&shared);
        shuttle::thread::spawn(move || {
            for entry in [41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63, 65] {
                shared.insert(entry);
            }
        })
    };
    let mut found = shared.scan(direction);
    found.retain(|row| row % 2 == 0);
    assert_eq!(found, (0..40).map(|n| n * 2).collect::<Vec<_>>(), "a scan missed an entry that stays");
    splitter.join().expect("the splitter");
}

#[test]
fn scans_miss_nothing_while_a_leaf_splits() {
    model::run(100, || scan_beside_a_split(Direction::Forward));
    model::run(100, || scan_beside_a_split(Direction::Backward));
}

#[test]
fn scans_without_a_second_look_are_caught() {
    let _off = mutation::switch_off(Rule::OptimisticRecheck);
    assert!(model::finds_failure(2000, || scan_beside_a_split(Direction::Forward)));
}

fn scan_beside_a_merge(direction: Direction) {
    // Two or three leaves, then so few entries that the next removal merges them.
    let shared = shared((0..60).map(|n| n * 2));
    let stays = |n: u64| n.is_multiple_of(12);
    let mut doomed: Vec<u64> = (0..60).map(|n| n * 2).filter(|n| !stays(*n)).collect();
    let last = doomed.split_off(doomed.len() - 12);
    for entry in doomed {
        shared.remove(entry);
    }
    let height = shared.tree.height(&shared.epochs.pin());
    let merger = {
        let shared = Arc::clone(&shared);
        shuttle::thread::spawn(move || {
            last.into_iter().for_each(|entry| shared.remove(entry));
            shared.tree.maintain(&shared.epochs.pin());
        })
    };
    let mut found = shared.scan(direction);
    found.retain(|row| stays(*row));
    assert_eq!(
        found,
        (0..120).filter(|n| stays(*n)).collect::<Vec<_>>(),
        "a scan missed an entry that stays"
    );
    assert!(shared.has(84) && shared.has(12), "an entry that stays was missed");
    merger.join().expect("the merger");
    while shared.tree.maintain(&shared.epochs.pin()) {}
    assert_eq!((height, shared.tree.height(&shared.epochs.pin())), (2, 1), "the leaves have merged");
}

#[test]
fn scans_miss_nothing_while_leaves_merge() {
    model::run(100, || scan_beside_a_merge(Direction::Forward));
    model::run(100, || scan_beside_a_merge(Direction::Backward));
}

/// All nodes of a tree of two levels move, beside a lookup, a scan and a writer whose leaf may be the one that moves.
fn moves_beside_others(direction: Direction) {
    let shared = shared((0..40).map(|n| n * 2));
    shared.tree.memory.leaving.store(true, Ordering::Relaxed);
    let mover = {
        let shared = Arc::clone(&shared);
        shuttle::thread::spawn(move || {
            let mut place = TreePlace::default();
            while shared.tree.move_nodes(&shared.epochs.pin(), &mut place, 2).expect("memory") {}
        })
    };
    let writer = {
        let shared = Arc::clone(&shared);
        shuttle::thread::spawn(move || {
            shared.insert(41);
            shared.remove(20);
        })
    };
    for entry in [40, 2, 64] {
        assert!(shared.has(entry), "an entry that stays was missed");
    }
    let mut found = shared.scan(direction);
    let stays = |row: &u64| row.is_multiple_of(2) && *row != 20;
    found.retain(stays);
    assert_eq!(found, (0..80).filter(stays).collect::<Vec<_>>(), "a scan missed an entry that stays");
    mover.join().expect("the mover");
    writer.join().expect("the writer");
    assert!(shared.has(41) && !shared.has(20), "what was written into a node that moved is lost");
}

#[test]
fn nothing_is_lost_while_nodes_move() {
    model::run(150, || moves_beside_others(Direction::Forward));
    model::run(150, || moves_beside_others(Direction::Backward));
}

#[test]
fn scans_beside_moves_without_a_second_look_are_caught() {
    let _off = mutation::switch_off(Rule::OptimisticRecheck);
    assert!(model::finds_failure(3000, || moves_beside_others(Direction::Forward)));
}

#[test]
fn two_writers_meet_in_a_full_leaf() {
    model::run(150, || {
        let shared = shared((0..27).map(|n| n * 2));
        let other = {
            let shared = Arc::clone(&shared);
            shuttle::thread::spawn(move || {
                shared.insert(21);
                shared.remove(24);
                shared.insert(51);
            })
        };
        shared.insert(23);
        shared.remove(2);
        shared.insert(27);
        other.join().expect("the other writer");
        let mut expected: Vec<u64> = (0..27).map(|n| n * 2).filter(|n| ![2, 24].contains(n)).collect();
        expected.extend([21, 23, 27, 51]);
        expected.sort_unstable();
        assert_eq!(shared.scan(Direction::Forward), expected);
        assert_eq!(shared.tree.len(), 29);
    });
}
