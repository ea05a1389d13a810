//! The indexes, each behind the same trait. Loops over rows stand inside of the trait's functions, so that none pays a
//! virtual call for a key.

use super::key;
use crate::store::Failure;
use bf_tree::{BfTree, LeafReadResult, ScanReturnField, StorageBackend};
use congee::Congee;
use crossbeam_skiplist::SkipMap;
use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::{Bound, ControlFlow, Range};
use std::sync::{Arc, RwLock};
use thermocline_base::epoch::Epochs;
use thermocline_base::ids::RowId;
use thermocline_engine::index::hash::HashIndex;
use thermocline_engine::index::node_memory::HeapMemory;
use thermocline_engine::index::tree::{Batch, Direction, Tree};

/// Maps [`key`] of a row to the row.
pub trait Index: Sync {
    /// Inserts the keys of `rows`.
    fn insert(&self, rows: Range<u64>);

    /// Number of the keys of `rows` that lead to their row.
    fn lookup(&self, rows: &[u64]) -> u64;

    /// Number of keys, of up to `count` from `from` upwards, that are there; in order.
    fn scan(&self, from: u64, count: usize) -> usize;
}

/// Names of all indexes, ours first.
pub const NAMES: [&str; 8] = [
    "thermocline-hash",
    "thermocline-tree",
    "congee",
    "scc-tree",
    "scc-hash",
    "skip-map",
    "bf-tree",
    "locked-btree",
];

/// Can it scan?
pub fn is_ordered(name: &str) -> bool {
    !["thermocline-hash", "scc-hash"].contains(&name)
}

/// An empty index for about `keys` keys.
pub fn make(name: &str, keys: u64) -> Result<Box<dyn Index>, Failure> {
    Ok(match name {
        "thermocline-hash" => Box::new(Ours::new(keys, HashIndex::new)?),
        "thermocline-tree" => Box::new(Ours::new(keys, Tree::<HeapMemory>::new)?),
        "congee" => Box::new(Congee::<usize, usize>::default()),
        "scc-tree" => Box::new(scc::TreeIndex::<u64, u64>::new()),
        "scc-hash" => Box::new(Hashed::default()),
        "skip-map" => Box::new(SkipMap::<u64, u64>::new()),
        "bf-tree" => Box::new(bf(keys)?),
        "locked-btree" => Box::new(RwLock::new(BTreeMap::<u64, u64>::new())),
        _ => return Err(format!("there is no index \"{name}\"; there are {}", NAMES.join(", ")).into()),
    })
}

/// One of ours, with the epochs that it lives in and the rows that prove keys: it holds part of a key's hash, or the
/// key, and the RowId.
struct Ours<I> {
    index: I,
    epochs: Arc<Epochs>,
    rows: Vec<u64>,
}

impl<I> Ours<I> {
    fn new(
        keys: u64,
        make: impl FnOnce(Arc<HeapMemory>) -> Result<I, thermocline_engine::index::OutOfMemory>,
    ) -> Result<Self, Failure> {
        let epochs = Arc::new(Epochs::new());
        let memory = Arc::new(HeapMemory::new(Arc::clone(&epochs)));
        let index = make(memory).map_err(|_| "no memory for an empty index")?;
        Ok(Self { index, epochs, rows: (0..keys).map(key).collect() })
    }

    fn proves(&self, row: RowId, key: u64) -> ControlFlow<RowId> {
        if self.rows[row.0 as usize] == key { ControlFlow::Break(row) } else { ControlFlow::Continue(()) }
    }
}

impl Index for Ours<HashIndex<HeapMemory>> {
    fn insert(&self, rows: Range<u64>) {
        for row in rows {
            self.index.insert(&self.epochs.pin(), hash(key(row)), RowId(row)).expect("memory is enough");
        }
    }

    fn lookup(&self, rows: &[u64]) -> u64 {
        let one = |row: u64| {
            let wanted = key(row);
            let guard = self.epochs.pin();
            self.index.lookup(&guard, hash(wanted), |found| self.proves(found, wanted)) == Some(RowId(row))
        };
        rows.iter().filter(|&&row| one(row)).count() as u64
    }

    fn scan(&self, _from: u64, _count: usize) -> usize {
        unreachable!("a hash index is not asked to scan")
    }
}

impl Index for Ours<Tree<HeapMemory>> {
    fn insert(&self, rows: Range<u64>) {
        for row in rows {
            let key = key(row).to_be_bytes();
            self.index.insert(&self.epochs.pin(), &key, RowId(row)).expect("memory is enough");
        }
    }

    // The tree holds whole keys, so that the row need not prove anything.
    fn lookup(&self, rows: &[u64]) -> u64 {
        let one = |row: u64| {
            let guard = self.epochs.pin();
            self.index.lookup(&guard, &key(row).to_be_bytes(), ControlFlow::Break) == Some(RowId(row))
        };
        rows.iter().filter(|&&row| one(row)).count() as u64
    }

    fn scan(&self, from: u64, count: usize) -> usize {
        let guard = self.epochs.pin();
        let from = from.to_be_bytes();
        let mut batch = Batch::new();
        let mut more = self.index.scan_batch(
            &guard,
            Bound::Included((&from[..], RowId(0))),
            Bound::Unbounded,
            Direction::Forward,
            &mut batch,
        );
        let mut found = batch.iter().count();
        while more && found < count {
            more = self.index.scan_next(&guard, Bound::Unbounded, &mut batch);
            found += batch.iter().count();
        }
        found.min(count)
    }
}

/// The hash of a key for all hash indexes: one multiplication and a shift are enough for scattered keys.
fn hash(key: u64) -> u64 {
    let product = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
    product as u64 ^ (product >> 64) as u64
}

/// scc's map with the same hash as ours: its default one withstands attackers and would decide the comparison.
type Hashed = scc::HashMap<u64, u64, BuildHasherDefault<Hash>>;

#[derive(Default)]
struct Hash(u64);

impl Hasher for Hash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are u64")
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = hash(key);
    }
}

impl Index for Congee<usize, usize> {
    fn insert(&self, rows: Range<u64>) {
        for row in rows {
            self.insert(key(row) as usize, row as usize, &self.pin()).expect("memory is enough");
        }
    }

    fn lookup(&self, rows: &[u64]) -> u64 {
        let one = |row: u64| self.get(&(key(row) as usize), &self.pin()) == Some(row as usize);
        rows.iter().filter(|&&row| one(row)).count() as u64
    }

    fn scan(&self, from: u64, count: usize) -> usize {
        let mut found = [(0, 0); super::SCANNED];
        self.range(&(from as usize), &usize::MAX, &mut found[..count], &self.pin())
    }
}

impl Index for scc::TreeIndex<u64, u64> {
    fn insert(&self, rows: Range<u64>) {
        for row in rows {
            self.insert_sync(key(row), row).expect("keys are unique");
        }
    }

    fn lookup(&self, rows: &[u64]) -> u64 {
        rows.iter().filter(|&&row| self.peek_with(&key(row), |_, found| *found == row) == Some(true)).count()
            as u64
    }

    fn scan(&self, from: u64, count: usize) -> usize {
        let guard = scc::Guard::new();
        self.range(from.., &guard).take(count).count()
    }
}

impl Index for Hashed {
    fn insert(&self, rows: Range<u64>) {
        for row in rows {
            self.insert_sync(key(row), row).expect("keys are unique");
        }
    }

    fn lookup(&self, rows: &[u64]) -> u64 {
        rows.iter().filter(|&&row| self.read_sync(&key(row), |_, found| *found == row) == Some(true)).count()
            as u64
    }

    fn scan(&self, _from: u64, _count: usize) -> usize {
        unreachable!("a hash index is not asked to scan")
    }
}

impl Index for SkipMap<u64, u64> {
    fn insert(&self, rows: Range<u64>) {
        for row in rows {
            self.insert(key(row), row);
        }
    }

    fn lookup(&self, rows: &[u64]) -> u64 {
        rows.iter().filter(|&&row| self.get(&key(row)).is_some_and(|entry| *entry.value() == row)).count()
            as u64
    }

    fn scan(&self, from: u64, count: usize) -> usize {
        self.range(from..).take(count).count()
    }
}

impl Index for RwLock<BTreeMap<u64, u64>> {
    fn insert(&self, rows: Range<u64>) {
        for row in rows {
            self.write().expect("nobody panics").insert(key(row), row);
        }
    }

    fn lookup(&self, rows: &[u64]) -> u64 {
        let one = |row: u64| self.read().expect("nobody panics").get(&key(row)) == Some(&row);
        rows.iter().filter(|&&row| one(row)).count() as u64
    }

    fn scan(&self, from: u64, count: usize) -> usize {
        self.read().expect("nobody panics").range(from..).take(count).count()
    }
}

fn bf(keys: u64) -> Result<BfTree, Failure> {
    let mut config = bf_tree::Config::default();
    // Large enough that nothing is evicted.
    let bytes = (keys as usize * 128).next_power_of_two().max(64 << 20);
    config.storage_backend(StorageBackend::Memory).cb_size_byte(bytes);
    BfTree::with_config(config, None).map_err(|error| format!("bf-tree: {error:?}").into())
}

impl Index for BfTree {
    fn insert(&self, rows: Range<u64>) {
        for row in rows {
            self.insert(&key(row).to_be_bytes(), &row.to_be_bytes());
        }
    }

    fn lookup(&self, rows: &[u64]) -> u64 {
        let one = |row: u64| {
            let mut value = [0; 8];
            let found = self.read(&key(row).to_be_bytes(), &mut value);
            matches!(found, LeafReadResult::Found(8)) && value == row.to_be_bytes()
        };
        rows.iter().filter(|&&row| one(row)).count() as u64
    }

    fn scan(&self, from: u64, count: usize) -> usize {
        let mut value = [0; 64];
        let Ok(mut scan) = self.scan_with_count(&from.to_be_bytes(), count, ScanReturnField::Value) else {
            return 0;
        };
        std::iter::from_fn(|| scan.next(&mut value)).count()
    }
}
