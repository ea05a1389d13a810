//! Threads that write, decide, read and scan at the same time, while blocks, leaves and segments are so small that flushes,
//! merges and spills never end.
//!
//! ```text
//!   writer 0 ── owns table 1 ──┐
//!   writer 1 ── owns table 2 ──┼── one store, with its journal thread and two more
//!   readers  ── read both   ───┘
//! ```
//!
//! - A writer knows the exact contents of its table, and compares.
//! - A version of a key is a number that only grows, in its record. Before a read of another's key, a reader notes which
//!   version was acknowledged, and afterwards which one was begun: what it saw lies between.
//! - Keys come in pairs that are always written together, so a scan that sees half a batch sees two versions of a pair.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_base::io::{DelayedIo, Io, MemoryIo};
use thermocline_base::multiplex::block_on;
use thermocline_base::rng::Rng;

use super::super::version::WaitingBatch;
use super::super::*;
use super::model::dir;

const WRITERS: u64 = 2;
const READERS: u64 = 2;
const PAIRS: usize = 120;
/// Pairs below this one are never without a version.
const STEADY: usize = 60;
/// Batches that a writer leaves undecided for a while.
const UNDECIDED: usize = 6;

fn options() -> StoreOptions {
    StoreOptions {
        memory_bytes: 16 << 10,
        segment_bytes: 32 << 10,
        leaf_bytes: 32 << 10,
        spare_bytes: 0,
        threads: 2,
        ..StoreOptions::new([7; 16])
    }
}

fn open(io: &MemoryIo, delay: Option<Duration>) -> Arc<Store> {
    let io: Arc<dyn Io> = Arc::new(io.clone());
    let io = delay.map_or_else(|| Arc::clone(&io), |delay| Arc::new(DelayedIo::new(Arc::clone(&io), delay)));
    Store::open(io, dir(), options()).expect("it opens")
}

fn index_of(writer: u64) -> IndexId {
    IndexId { table: 1 + writer as u32, index: 0 }
}

/// The keys of a pair are neighbours.
fn keys_of(pair: usize) -> [Vec<u8>; 2] {
    ["left", "right"].map(|side| format!("pair {pair:04} {side}").into_bytes())
}

fn record(version: u64) -> Vec<u8> {
    let mut record = version.to_le_bytes().to_vec();
    record.resize(8 + (version % 13 * 17) as usize, version as u8);
    record
}

fn version_of(found: &Found) -> u64 {
    let version = u64::from_le_bytes(*found.record.first_chunk().expect("a version"));
    assert_eq!(found.record, record(version), "the bytes of a record");
    version
}

/// The facts about a pair that all threads may know.
#[derive(Default)]
struct Public {
    /// The last version that was acknowledged as confirmed.
    acknowledged: AtomicU64,
    /// The last version that anybody began to write.
    begun: AtomicU64,
}

type Board = Arc<Vec<Vec<Public>>>;

/// A batch that is not confirmed.
struct Undecided {
    id: u64,
    /// Pairs, with the version that it gives them; `None`: it removes them.
    pairs: BTreeMap<usize, Option<u64>>,
}

struct Writer {
    number: u64,
    board: Board,
    rng: Rng,
    /// Batch and version of each pair.
    contents: BTreeMap<usize, (u64, u64)>,
    undecided: Vec<Undecided>,
    next_batch: u64,
    next_version: u64,
    /// Spilled batches that it saw, and decided about.
    spilled: u64,
}

impl Writer {
    fn step(&mut self, store: &Store) {
        match self.rng.below(10) {
            0..5 => self.write(store, true),
            5..8 if self.undecided.len() < UNDECIDED => self.write(store, false),
            5..9 => self.decide(store),
            _ => self.compare(store),
        }
    }

    fn index(&self) -> IndexId {
        index_of(self.number)
    }

    fn write(&mut self, store: &Store, confirmed: bool) {
        let id = self.next_batch * WRITERS + self.number;
        self.next_batch += 1;
        let mut batch = if confirmed { Batch::confirmed(BatchId(id)) } else { Batch::new(BatchId(id)) };
        let mut pairs = BTreeMap::new();
        for _ in 0..self.rng.below(24) {
            let pair = self.rng.below(PAIRS as u64) as usize;
            let claimed = self.undecided.iter().any(|other| other.pairs.contains_key(&pair));
            if claimed || pairs.contains_key(&pair) {
                continue;
            }
            let put = pair < STEADY || self.rng.chance(0.6);
            let version = put.then(|| {
                self.next_version += 1;
                self.next_version
            });
            for key in keys_of(pair) {
                if let Some((former, _)) = self.contents.get(&pair) {
                    batch.remove(self.index(), &key, BatchId(*former), Removal::Last).expect("short");
                }
                if let Some(version) = version {
                    batch.put(self.index(), &key, &record(version)).expect("short");
                }
            }
            if let Some(version) = version {
                self.board[self.number as usize][pair].begun.store(version, SeqCst);
            }
            pairs.insert(pair, version);
        }
        let undecided = Undecided { id, pairs };
        block_on(store.write(batch)).expect("the device is well");
        if confirmed {
            self.note(store, &undecided);
        } else {
            self.undecided.push(undecided);
        }
    }

    /// A batch is confirmed.
    fn note(&mut self, store: &Store, batch: &Undecided) {
        for (pair, version) in &batch.pairs {
            match version {
                Some(version) => {
                    self.contents.insert(*pair, (batch.id, *version));
                    self.board[self.number as usize][*pair].acknowledged.store(*version, SeqCst);
                }
                None => {
                    self.contents.remove(pair);
                }
            }
        }
        if let Some(pair) = batch.pairs.keys().next().copied() {
            self.compare_pair(store, pair);
        }
    }

    fn decide(&mut self, store: &Store) {
        if self.undecided.is_empty() {
            return;
        }
        let batch = self.undecided.swap_remove(self.rng.below(self.undecided.len() as u64) as usize);
        let version = store.inner.current();
        let as_piece = |waiting: &WaitingBatch| {
            matches!(waiting, WaitingBatch::Piece { .. }) && waiting.id() == BatchId(batch.id)
        };
        self.spilled += u64::from(version.waiting.iter().any(as_piece));
        drop(version);
        if self.rng.chance(0.7) {
            block_on(store.confirm(BatchId(batch.id))).expect("it waits");
            self.note(store, &batch);
        } else {
            block_on(store.discard(BatchId(batch.id))).expect("the device is well");
            if let Some(pair) = batch.pairs.keys().next().copied() {
                self.compare_pair(store, pair);
            }
        }
    }

    /// The entries that should be found of a pair, the newest batch first.
    fn expected(&self, pair: usize) -> Vec<Found> {
        let undecided = self.undecided.iter().filter_map(|batch| {
            let version = (*batch.pairs.get(&pair)?)?;
            Some(Found::new(BatchId(batch.id), false, record(version)))
        });
        let confirmed = self
            .contents
            .get(&pair)
            .map(|(batch, version)| Found::new(BatchId(*batch), true, record(*version)));
        let mut all: Vec<Found> = undecided.chain(confirmed).collect();
        all.sort_by_key(|found| std::cmp::Reverse(found.batch));
        all
    }

    fn compare_pair(&self, store: &Store, pair: usize) {
        let expected = self.expected(pair);
        for key in keys_of(pair) {
            let found = block_on(store.get(self.index(), &key)).expect("readable");
            assert_eq!(found, expected, "writer {}, pair {pair}", self.number);
            let newest = block_on(store.get_newest(self.index(), &key)).expect("readable");
            assert_eq!(newest, expected.iter().find(|found| found.confirmed).cloned(), "pair {pair}");
            assert!(expected.is_empty() || store.may_contain(self.index(), &key), "a filter says no");
        }
    }

    /// All of it, by single reads and by scans in both directions.
    fn compare(&mut self, store: &Store) {
        for pair in 0..PAIRS {
            self.compare_pair(store, pair);
        }
        let all = (0..PAIRS).flat_map(|pair| {
            let entries = self.expected(pair);
            keys_of(pair).map(|key| FoundKey { key, entries: entries.clone() })
        });
        let mut expected: Vec<FoundKey> = all.filter(|key| !key.entries.is_empty()).collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let mut scan = store.scan(self.index(), b"", None, direction);
            for key in &expected {
                let found = block_on(scan.next()).expect("readable");
                assert_eq!(
                    found.as_ref(),
                    Some(key),
                    "{direction:?} over the table of writer {}",
                    self.number
                );
            }
            assert_eq!(block_on(scan.next()).expect("readable"), None);
            expected.reverse();
        }
    }
}

/// A reader, with what it has seen of each pair.
struct Reader {
    store: Arc<Store>,
    board: Board,
    rng: Rng,
    seen: Vec<Vec<u64>>,
}

impl Reader {
    /// The confirmed version among the entries of a key of a pair.
    fn confirmed(pair: usize, found: &[Found]) -> Option<u64> {
        let mut confirmed = found.iter().filter(|found| found.confirmed);
        let version = confirmed.next().map(version_of);
        assert!(confirmed.next().is_none(), "pair {pair} has two confirmed entries: {found:?}");
        version
    }

    /// A version that was seen, though `least` had been acknowledged before.
    fn judge(&mut self, table: usize, pair: usize, least: u64, version: Option<u64>) {
        let most = self.board[table][pair].begun.load(SeqCst);
        let Some(version) = version else {
            assert!(pair >= STEADY || least == 0, "pair {pair} of table {table} is gone: it had {least}");
            return;
        };
        // One that may be removed may have been, by what was acknowledged afterwards: versions only grow all the same.
        let seen = &mut self.seen[table][pair];
        assert!(
            (least.max(*seen)..=most).contains(&version),
            "pair {pair} of table {table}: version {version} after {least} was acknowledged, {seen} seen, {most} begun"
        );
        *seen = version;
    }

    fn step(&mut self) {
        let table = self.rng.below(WRITERS) as usize;
        let index = index_of(table as u64);
        let pair = self.rng.below(PAIRS as u64) as usize;
        let least = self.board[table][pair].acknowledged.load(SeqCst);
        match self.rng.below(8) {
            0..3 => {
                for key in keys_of(pair) {
                    let found = block_on(self.store.get(index, &key)).expect("readable");
                    self.judge(table, pair, least, Self::confirmed(pair, &found));
                }
            }
            3..6 => {
                for key in keys_of(pair) {
                    let found = block_on(self.store.get_newest(index, &key)).expect("readable");
                    assert!(found.as_ref().is_none_or(|found| found.confirmed));
                    self.judge(table, pair, least, found.as_ref().map(version_of));
                }
            }
            6 => {
                let keys: Vec<Vec<u8>> = (0..STEADY).flat_map(keys_of).collect();
                let public = &self.board[table];
                let there: Vec<bool> =
                    (0..STEADY).map(|pair| public[pair].acknowledged.load(SeqCst) > 0).collect();
                let mut answers = vec![false; keys.len()];
                self.store.may_contain_all(index, &keys, &mut answers);
                for (at, answer) in answers.iter().enumerate() {
                    assert!(*answer || !there[at / 2], "pair {} of table {table}: a filter says no", at / 2);
                }
            }
            _ => {
                let from = self.rng.below(PAIRS as u64) as usize;
                let to = from + self.rng.below((PAIRS - from) as u64 + 1) as usize;
                let direction = if self.rng.chance(0.5) { Direction::Forward } else { Direction::Backward };
                self.scan(table, from..to, direction);
            }
        }
    }

    /// A scan is of one moment.
    fn scan(&mut self, table: usize, pairs: std::ops::Range<usize>, direction: Direction) {
        let index = index_of(table as u64);
        let least: Vec<u64> =
            pairs.clone().map(|pair| self.board[table][pair].acknowledged.load(SeqCst)).collect();
        let (low, high) = (format!("pair {:04}", pairs.start), format!("pair {:04}", pairs.end));
        let mut scan = self.store.scan(index, low.as_bytes(), Some(high.as_bytes()), direction);
        let mut found: BTreeMap<Vec<u8>, Vec<Found>> = BTreeMap::new();
        let mut former: Option<Vec<u8>> = None;
        while let Some(key) = block_on(scan.next()).expect("readable") {
            let ordered = former.as_ref().is_none_or(|former| match direction {
                Direction::Forward => *former < key.key,
                Direction::Backward => *former > key.key,
            });
            assert!(ordered, "{former:?} before {:?}", key.key);
            former = Some(key.key.clone());
            found.insert(key.key, key.entries);
        }
        for (pair, least) in pairs.zip(least) {
            let [left, right] = keys_of(pair).map(|key| found.remove(&key).unwrap_or_default());
            assert_eq!(left, right, "half a batch of pair {pair}, table {table}");
            self.judge(table, pair, least, Self::confirmed(pair, &left));
        }
        assert!(found.is_empty(), "outside of the range: {found:?}");
    }
}

/// Lets threads work for a time, and compares everything before and after opening again.
fn run(seed: u64, time: Duration, delay: Option<Duration>) {
    let io = MemoryIo::new();
    let store = open(&io, delay);
    let pairs = |_| (0..PAIRS).map(|_| Public::default()).collect();
    let board: Board = Arc::new((0..WRITERS).map(pairs).collect());
    let end_ns = SystemClock.now_ns() + time.as_nanos() as u64;
    let over = AtomicBool::new(false);
    let (over, board, store_of) = (&over, &board, &store);
    /// A thread that fails ends the others.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let mut writers: Vec<Writer> = std::thread::scope(|scope| {
        for number in 0..READERS {
            scope.spawn(move || {
                let seen = vec![vec![0; PAIRS]; WRITERS as usize];
                let (store, board) = (Arc::clone(store_of), Arc::clone(board));
                let mut reader = Reader { store, board, rng: Rng::new(seed * 100 + 50 + number), seen };
                let _ends = Ends(over);
                while !over.load(SeqCst) {
                    reader.step();
                }
            });
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                scope.spawn(move || {
                    let mut writer = Writer {
                        number,
                        board: Arc::clone(board),
                        rng: Rng::new(seed * 100 + number),
                        contents: BTreeMap::new(),
                        undecided: Vec::new(),
                        next_batch: 1,
                        next_version: 0,
                        spilled: 0,
                    };
                    let ends = Ends(over);
                    // Beyond the time, until there was enough of everything: the machine may be slow.
                    let mut steps = 0;
                    while (SystemClock.now_ns() < end_ns || steps < 200) && !over.load(SeqCst) {
                        writer.step(store_of);
                        steps += 1;
                    }
                    // A writer that is done lets the other one go on.
                    if !std::thread::panicking() {
                        std::mem::forget(ends);
                    }
                    writer
                })
            })
            .collect();
        let writers = writers.into_iter().map(|writer| writer.join()).collect::<Vec<_>>();
        over.store(true, SeqCst);
        writers.into_iter().map(|writer| writer.expect("a writer")).collect()
    });
    let statistics = store.statistics();
    assert!(statistics.flushes > 10 && statistics.merges > 5, "{statistics:?}");
    assert!(statistics.leaves > 1, "{statistics:?}");
    assert!(writers.iter().map(|writer| writer.spilled).sum::<u64>() > 0, "nothing was spilled");
    let mut ids: Vec<BatchId> =
        writers.iter().flat_map(|writer| writer.undecided.iter().map(|batch| BatchId(batch.id))).collect();
    ids.sort_unstable();
    let mut judge = |store: &Store| {
        assert_eq!(store.unconfirmed(), ids);
        writers.iter_mut().for_each(|writer| writer.compare(store));
        let verification = store.verify();
        assert!(verification.is_sound(), "{:?}", verification.problems);
    };
    judge(&store);
    store.close();
    judge(&store);
    drop(store);
    let store = open(&io, None);
    judge(&store);
    // And after what is left to do is done.
    while !store.is_idle() {
        std::thread::yield_now();
    }
    judge(&store);
}

#[test]
fn threads_write_and_read_while_everything_moves() {
    run(1, Duration::from_secs(2), None);
}

#[test]
fn threads_write_and_read_on_a_slow_device() {
    run(2, Duration::from_secs(2), Some(Duration::from_micros(300)));
}
