//! Queues: entries at the front of one are removed, so that its leaves get empty, and a reader that looks for its
//! head passes what is left of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use thermocline_base::depth;
use thermocline_base::io::MemoryIo;
use thermocline_base::multiplex::block_on;
use thermocline_base::rng::Rng;

use super::super::*;
use super::model::{dir, finish, options};

const INDEX: IndexId = IndexId { table: 1, index: 0 };
const ROWS: u64 = 8_000;
const LEFT: u64 = 100;

/// One that merges nothing for the sake of its size.
fn open() -> Arc<Store> {
    let options = StoreOptions {
        memory_bytes: 32 << 10,
        young_percent: 1_000_000,
        young_max: 100_000,
        threads: 0,
        ..StoreOptions::new([7; 16])
    };
    Store::open(Arc::new(MemoryIo::new()), dir(), options).expect("it opens")
}

fn write(store: &Store, fill: impl FnOnce(&mut Batch), id: u64) {
    let mut batch = Batch::confirmed(BatchId(id));
    fill(&mut batch);
    finish(store, store.write(batch)).expect("written");
}

fn head(store: &Store) -> Option<Vec<u8>> {
    let mut scan = store.scan(INDEX, b"", None, Direction::Forward);
    finish(store, scan.next()).expect("it can be read").map(|found| found.key)
}

#[test]
fn the_removed_front_of_a_queue_is_merged_away_by_those_who_pass_it() {
    let store = open();
    // So many stay behind it that leaves are not merged for the sake of the space either.
    for first in (0..2 * ROWS).step_by(100) {
        let put = |batch: &mut Batch| {
            for number in first..first + 100 {
                batch.put(INDEX, &number.to_be_bytes(), &[1; 60]).expect("short");
            }
        };
        write(&store, put, 1 + first);
    }
    for first in (0..ROWS - LEFT).step_by(100) {
        let remove = |batch: &mut Batch| {
            for number in first..first + 100 {
                let key = number.to_be_bytes();
                batch.remove(INDEX, &key, BatchId(1 + first), Removal::Only).expect("short");
            }
        };
        write(&store, remove, 2 * ROWS + first + 1);
    }
    // What is in blocks yet is no matter for merges.
    let fill = |batch: &mut Batch| {
        for number in 2 * ROWS..2 * ROWS + 600 {
            batch.put(INDEX, &number.to_be_bytes(), &[2; 60]).expect("short");
        }
    };
    write(&store, fill, 3 * ROWS);
    while store.step(Step::Work) {}
    let (before, expected) = (store.statistics(), (ROWS - LEFT).to_be_bytes().to_vec());
    assert!(before.indexes[&INDEX].removals > ROWS / 2, "removals are in pieces");

    // Passing it once or twice is cheaper than merging; not so passing it again and again.
    let mut looks = 0;
    while store.statistics().merges == before.merges {
        looks += 1;
        assert!(looks < 20, "nobody merges what everybody passes");
        assert_eq!(head(&store).as_ref(), Some(&expected));
        store.step(Step::Work);
    }
    while store.step(Step::Work) {}
    let after = store.statistics();
    assert!(after.indexes[&INDEX].removals < ROWS / 10, "{:?}", after.indexes);
    // And that is that.
    for _ in 0..20 {
        assert_eq!(head(&store).as_ref(), Some(&expected));
        assert!(!store.step(Step::Work), "there is nothing left to pass, and nothing to merge");
    }
}

/// Several queues in one index, some of whose batches are decided about late, so that they become pieces over all leaves.
struct Queues {
    io: MemoryIo,
    /// `None` only while it is opened again.
    store: Option<Arc<Store>>,
    rng: Rng,
    /// Keys, with the batches of their entries, that are confirmed; the front of each queue comes first.
    rows: BTreeMap<(u8, u64), u64>,
    /// Batches without a decision, with their keys.
    undecided: VecDeque<(u64, Vec<(u8, u64)>)>,
    ends: [u64; 3],
    next_batch: u64,
}

impl Queues {
    const LENGTH: usize = 900;

    fn new(seed: u64) -> Self {
        let io = MemoryIo::new();
        let store = Some(Self::open(&io));
        let (rng, rows) = (Rng::new(seed), BTreeMap::new());
        Self { io, store, rng, rows, undecided: VecDeque::new(), ends: [0; 3], next_batch: 0 }
    }

    fn open(io: &MemoryIo) -> Arc<Store> {
        let options =
            StoreOptions { leaf_bytes: 24 << 10, young_max: 6, young_percent: 100_000, ..options() };
        Store::open(Arc::new(io.clone()), dir(), options).expect("it opens")
    }

    fn key((queue, number): (u8, u64)) -> Vec<u8> {
        [&[queue], &number.to_be_bytes()[..]].concat()
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    /// Writes a batch behind the ends of the queues.
    fn push(&mut self) {
        self.next_batch += 1;
        let confirmed = self.rng.chance(0.5);
        let id = BatchId(self.next_batch);
        let mut batch = if confirmed { Batch::confirmed(id) } else { Batch::new(id) };
        let mut keys = Vec::new();
        for _ in 0..self.rng.below(60) + 1 {
            let queue = self.rng.below(3) as u8;
            self.ends[usize::from(queue)] += 1;
            keys.push((queue, self.ends[usize::from(queue)]));
        }
        for key in &keys {
            batch.put(INDEX, &Self::key(*key), &[id.0 as u8; 60]).expect("short");
        }
        finish(self.store(), self.store().write(batch)).expect("written");
        if confirmed {
            self.rows.extend(keys.into_iter().map(|key| (key, id.0)));
        } else {
            self.undecided.push_back((id.0, keys));
        }
    }

    fn decide(&mut self) {
        let Some((id, keys)) = self.undecided.pop_front() else { return };
        if self.rng.chance(0.8) {
            finish(self.store(), self.store().confirm(BatchId(id))).expect("it waits");
            self.rows.extend(keys.into_iter().map(|key| (key, id)));
        } else {
            finish(self.store(), self.store().discard(BatchId(id))).expect("discarded");
        }
    }

    /// Removes what is in front of the longest queue.
    fn pop(&mut self) {
        let len = |rows: &BTreeMap<(u8, u64), u64>, queue| rows.range((queue, 0)..(queue + 1, 0)).count();
        let longest = (0..3).max_by_key(|queue| len(&self.rows, *queue)).expect("there are three");
        if len(&self.rows, longest) < Self::LENGTH {
            return;
        }
        let more = Self::LENGTH * 3 / 4;
        self.next_batch += 1;
        let mut batch = Batch::confirmed(BatchId(self.next_batch));
        let front = self.rows.range((longest, 0)..).take(more).map(|(key, of)| (*key, *of));
        for (key, of) in front.collect::<Vec<_>>() {
            batch.remove(INDEX, &Self::key(key), BatchId(of), Removal::Only).expect("short");
            self.rows.remove(&key);
        }
        finish(self.store(), self.store().write(batch)).expect("written");
    }

    /// Is in the store what should be there?
    fn compare(&self, when: &str) {
        let mut scan = self.store().scan(INDEX, b"", None, Direction::Forward);
        let mut found = BTreeMap::new();
        while let Some(row) = block_on(scan.next()).expect("it can be read") {
            let number = u64::from_be_bytes(row.key[1..].try_into().expect("eight bytes"));
            let of = row.entries.iter().find(|entry| entry.confirmed);
            of.map(|of| found.insert((row.key[0], number), of.batch.0));
        }
        assert_eq!(found, self.rows, "{when}");
    }

    fn run(&mut self, name: &str) {
        for step in 0..1500 {
            match self.rng.below(100) {
                0..45 => self.push(),
                45..60 => self.decide(),
                60..70 => self.pop(),
                70..98 => _ = self.store().step(Step::Work),
                98 => {
                    self.store = None;
                    self.store = Some(Self::open(&self.io));
                }
                _ => self.compare(&format!("{name}, step {step}")),
            }
        }
    }
}

fn runs(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut queues = Queues::new(seed);
        queues.run(&format!("seed {seed}"));
        queues.compare("at the end");
    }
}

#[test]
fn what_has_left_a_queue_does_not_come_back() {
    runs(depth::seed()..depth::seed() + depth::either(2, 8));
}

/// Where an empty leaf had been, its neighbour's pieces counted, and with them what was merged away there.
#[cfg(feature = "model")]
#[test]
#[should_panic(expected = "assertion `left == right` failed: seed")]
fn an_empty_leaf_that_goes_is_caught() {
    let _off = crate::mutation::switch_off(crate::mutation::Rule::EmptyLeafStays);
    runs(0..8);
}
