//! Operations, keys and field contents of YCSB. Knows nothing of the engine.
//!
//! A [`Generator`] draws the operations of one terminal, by its seed and number. The terminals of a run share a
//! [`KeySpace`], which gives out the keys of inserts and tells how far the keys are there without gaps: the
//! distribution over the latest records never asks for a key whose insert has not ended.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thermocline_base::sync::{AtomicU64, Mutex, Ordering};

use crate::random::Random;
use crate::zipf::{Scatter, Zipf};

/// A workload: how often which operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Update heavy: 50 % reads, 50 % updates.
    A,
    /// Read mostly: 95 % reads, 5 % updates.
    B,
    /// Read only.
    C,
    /// Read latest: 95 % reads of recent records, 5 % inserts.
    D,
    /// Short ranges: 95 % scans, 5 % inserts.
    E,
    /// Read-modify-write: 50 % reads, 50 % reads followed by an update of the same record.
    F,
    /// This many per cent of reads, the rest updates.
    Reads(u8),
}

/// The part of each operation, in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mix {
    read: u8,
    update: u8,
    insert: u8,
    scan: u8,
    // Whatever is left over is read-modify-write.
}

impl Workload {
    const fn mix(self) -> Mix {
        let (read, update, insert, scan) = match self {
            Self::A => (50, 50, 0, 0),
            Self::B => (95, 5, 0, 0),
            Self::C => (100, 0, 0, 0),
            Self::D => (95, 0, 5, 0),
            Self::E => (0, 0, 5, 95),
            Self::F => (50, 0, 0, 0),
            Self::Reads(percent) => (percent, 100 - percent, 0, 0),
        };
        Mix { read, update, insert, scan }
    }

    /// Does it scan, so that the key needs an ordered index?
    #[must_use]
    pub const fn scans(self) -> bool {
        matches!(self, Self::E)
    }

    /// Does it write at all?
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::C | Self::Reads(100))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::A => f.write_str("a"),
            Self::B => f.write_str("b"),
            Self::C => f.write_str("c"),
            Self::D => f.write_str("d"),
            Self::E => f.write_str("e"),
            Self::F => f.write_str("f"),
            Self::Reads(percent) => write!(f, "reads-{percent}"),
        }
    }
}

/// A text that names no workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWorkload(String);

impl fmt::Display for UnknownWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no workload \"{}\"; use a, b, c, d, e, f or reads-N with N from 0 to 100", self.0)
    }
}

impl std::error::Error for UnknownWorkload {}

impl FromStr for Workload {
    type Err = UnknownWorkload;

    fn from_str(text: &str) -> Result<Self, UnknownWorkload> {
        Ok(match text.to_ascii_lowercase().as_str() {
            "a" => Self::A,
            "b" => Self::B,
            "c" => Self::C,
            "d" => Self::D,
            "e" => Self::E,
            "f" => Self::F,
            other => other
                .strip_prefix("reads-")
                .and_then(|percent| percent.parse().ok())
                .filter(|percent| *percent <= 100)
                .map(Self::Reads)
                .ok_or_else(|| UnknownWorkload(text.to_owned()))?,
        })
    }
}

/// Which records are asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Requests {
    /// Every loaded record equally often.
    Uniform,
    /// Loaded records by Zipf's law with this skew; the popular ones lie scattered over the keys.
    Zipf(f64),
    /// All records by Zipf's law with this skew; the newest are the most popular.
    Latest(f64),
}

/// Everything that a table and a run depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The workload.
    pub workload: Workload,
    /// Records loaded at the start, with the keys `0..records`.
    pub records: u64,
    /// Columns besides the key.
    pub fields: u16,
    /// Bytes of each field.
    pub field_bytes: u32,
    /// Which records are asked for.
    pub requests: Requests,
    /// Scans ask for 1 to so many records.
    pub scan_length_max: u32,
    /// Operations of one transaction.
    pub operations_per_transaction: u32,
    /// An update writes every field instead of one.
    pub updates_all_fields: bool,
    /// The key has an ordered index although the workload does not scan.
    pub ordered: bool,
    /// The seed on which everything random depends.
    pub seed: u64,
}

impl Config {
    /// The workload as published: ten fields of 100 bytes, skew 0.99, scans of 1 to 100 records; one operation a
    /// transaction.
    #[must_use]
    pub const fn new(workload: Workload, records: u64) -> Self {
        Self {
            workload,
            records,
            fields: 10,
            field_bytes: 100,
            requests: match workload {
                Workload::D => Requests::Latest(0.99),
                _ => Requests::Zipf(0.99),
            },
            scan_length_max: 100,
            operations_per_transaction: 1,
            updates_all_fields: false,
            ordered: workload.scans(),
            seed: 1,
        }
    }

    /// Writes the loaded content of field `field` of record `key`.
    pub fn fill_loaded(&self, key: u64, field: u16, bytes: &mut [u8]) {
        Random::stream(self.seed, &[0x4c, key, u64::from(field)]).fill(bytes);
    }

    /// Writes the content that an operation with `value_seed` gives to field `field`.
    #[inline]
    pub fn fill_updated(value_seed: u64, field: u16, bytes: &mut [u8]) {
        Random::new(value_seed ^ u64::from(field) << 48).fill(bytes);
    }
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads all fields of a record.
    Read {
        /// The record.
        key: u64,
    },
    /// Writes a field of a record (or all of them, if the configuration says so).
    Update {
        /// The record.
        key: u64,
        /// The field, from 0.
        field: u16,
        /// The seed on which its new content depends.
        value_seed: u64,
    },
    /// Adds a record.
    Insert {
        /// Its key.
        key: u64,
        /// The seed on which its content depends.
        value_seed: u64,
    },
    /// Reads records in key order.
    Scan {
        /// The first key.
        key: u64,
        /// Number of records.
        length: u32,
    },
    /// Reads all fields of a record, then writes one (or all), as a function of what was read.
    ReadModifyWrite {
        /// The record.
        key: u64,
        /// The field, from 0.
        field: u16,
        /// The seed on which its new content depends, besides the old one.
        value_seed: u64,
    },
}

/// The keys of a table that terminals insert into at the same time.
#[derive(Debug)]
pub struct KeySpace {
    next: AtomicU64,
    complete: AtomicU64,
    /// Keys at or above `complete` whose insert has ended.
    settled: Mutex<BTreeSet<u64>>,
}

impl KeySpace {
    /// The keys of a table with `records` loaded records.
    #[must_use]
    pub fn new(records: u64) -> Arc<Self> {
        Arc::new(Self {
            next: AtomicU64::new(records),
            complete: AtomicU64::new(records),
            settled: Mutex::new(BTreeSet::new()),
        })
    }

    /// The key of a new record.
    fn allocate(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Below this key the insert of every key has ended.
    #[inline]
    #[must_use]
    pub fn complete(&self) -> u64 {
        self.complete.load(Ordering::Acquire)
    }

    /// Says that the insert of `key` has ended, successfully or for good.
    pub fn settle(&self, key: u64) {
        let mut settled = self.settled.lock();
        settled.insert(key);
        let mut complete = self.complete.load(Ordering::Relaxed);
        while settled.first() == Some(&complete) {
            settled.pop_first();
            complete += 1;
        }
        self.complete.store(complete, Ordering::Release);
    }
}

/// Draws the operations of one terminal.
#[derive(Clone, Debug)]
pub struct Generator {
    random: Random,
    mix: Mix,
    requests: Requests,
    zipf: Zipf,
    scatter: Scatter,
    records: u64,
    fields: u16,
    scan_length_max: u32,
    keys: Arc<KeySpace>,
}

impl Generator {
    /// The generator of terminal number `terminal`, which shares `keys` with the others.
    ///
    /// # Panics
    /// If the configuration has no records or no fields, asks for empty scans, or has a negative skew.
    #[must_use]
    pub fn new(config: &Config, keys: Arc<KeySpace>, terminal: u64) -> Self {
        assert!(config.records > 0 && config.fields > 0 && config.scan_length_max > 0, "{config:?}");
        let theta = match config.requests {
            Requests::Uniform => 0.0,
            Requests::Zipf(theta) | Requests::Latest(theta) => theta,
        };
        Self {
            random: Random::stream(config.seed, &[0x59, terminal]),
            mix: config.workload.mix(),
            requests: config.requests,
            zipf: Zipf::new(config.records, theta),
            scatter: Scatter::new(config.records, config.seed),
            records: config.records,
            fields: config.fields,
            scan_length_max: config.scan_length_max,
            keys,
        }
    }

    /// Makes other records the popular ones, as if the working set had shifted. Terminals that are given the same
    /// `seed` agree on them.
    pub fn shift(&mut self, seed: u64) {
        self.scatter = Scatter::new(self.records, seed);
    }

    /// The next operation.
    #[inline]
    pub fn operation(&mut self) -> Operation {
        let card = self.random.below(100) as u8;
        let Mix { read, update, insert, scan } = self.mix;
        if card < read {
            return Operation::Read { key: self.key() };
        }
        if card < read + update {
            let (key, field) = (self.key(), self.field());
            return Operation::Update { key, field, value_seed: self.random.next_u64() };
        }
        if card < read + update + insert {
            return Operation::Insert { key: self.keys.allocate(), value_seed: self.random.next_u64() };
        }
        if card < read + update + insert + scan {
            let length = self.random.between(1, i64::from(self.scan_length_max)) as u32;
            return Operation::Scan { key: self.key(), length };
        }
        let (key, field) = (self.key(), self.field());
        Operation::ReadModifyWrite { key, field, value_seed: self.random.next_u64() }
    }

    /// A key to ask for.
    #[inline]
    pub fn key(&mut self) -> u64 {
        match self.requests {
            Requests::Uniform => self.random.below(self.records),
            Requests::Zipf(_) => self.scatter.place(self.zipf.draw(&mut self.random) - 1),
            Requests::Latest(_) => {
                let complete = self.keys.complete();
                self.zipf.set_elements(complete);
                complete - self.zipf.draw(&mut self.random)
            }
        }
    }

    #[inline]
    fn field(&mut self) -> u16 {
        if self.fields == 1 { 0 } else { self.random.below(u64::from(self.fields)) as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn shares(workload: Workload) -> HashMap<&'static str, usize> {
        let config = Config::new(workload, 1_000);
        let keys = KeySpace::new(config.records);
        let mut generator = Generator::new(&config, Arc::clone(&keys), 0);
        let mut counts = HashMap::new();
        for _ in 0..10_000 {
            let name = match generator.operation() {
                Operation::Read { .. } => "read",
                Operation::Update { field, .. } => {
                    assert!(field < 10);
                    "update"
                }
                Operation::Insert { key, .. } => {
                    keys.settle(key);
                    "insert"
                }
                Operation::Scan { length, .. } => {
                    assert!((1..=100).contains(&length));
                    "scan"
                }
                Operation::ReadModifyWrite { .. } => "modify",
            };
            *counts.entry(name).or_insert(0) += 1;
        }
        counts
    }

    #[test]
    fn the_mixes_are_the_published_ones() {
        let expected: [(Workload, &[(&str, usize)]); 8] = [
            (Workload::A, &[("read", 50), ("update", 50)]),
            (Workload::B, &[("read", 95), ("update", 5)]),
            (Workload::C, &[("read", 100)]),
            (Workload::D, &[("read", 95), ("insert", 5)]),
            (Workload::E, &[("scan", 95), ("insert", 5)]),
            (Workload::F, &[("read", 50), ("modify", 50)]),
            (Workload::Reads(0), &[("update", 100)]),
            (Workload::Reads(80), &[("read", 80), ("update", 20)]),
        ];
        for (workload, shares_expected) in expected {
            let counts = shares(workload);
            assert_eq!(counts.len(), shares_expected.len(), "{workload}: {counts:?}");
            for (name, percent) in shares_expected {
                assert!(counts[name].abs_diff(percent * 100) < 250, "{workload}: {counts:?}");
            }
        }
    }

    #[test]
    fn names_round_trip() {
        for workload in [Workload::A, Workload::D, Workload::F, Workload::Reads(0), Workload::Reads(100)] {
            assert_eq!(workload.to_string().parse(), Ok(workload));
        }
        assert!("g".parse::<Workload>().is_err());
        assert!("reads-101".parse::<Workload>().is_err());
        assert_eq!("E".parse(), Ok(Workload::E));
    }

    #[test]
    fn popular_records_are_scattered_and_move_with_a_shift() {
        let config = Config::new(Workload::C, 100_000);
        let mut generator = Generator::new(&config, KeySpace::new(config.records), 0);
        let top = |generator: &mut Generator| {
            let mut counts = HashMap::<u64, u32>::new();
            for _ in 0..50_000 {
                *counts.entry(generator.key()).or_default() += 1;
            }
            let mut keys: Vec<_> = counts.into_iter().collect();
            keys.sort_unstable_by_key(|(key, count)| (std::cmp::Reverse(*count), *key));
            keys.into_iter().take(5).map(|(key, _)| key).collect::<Vec<_>>()
        };
        let first = top(&mut generator);
        assert!(first.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 10), "{first:?}");
        assert_eq!(first[0], Scatter::new(100_000, config.seed).place(0));
        generator.shift(99);
        assert_ne!(top(&mut generator)[0], first[0]);
    }

    #[test]
    fn latest_asks_for_complete_keys_only_and_mostly_for_new_ones() {
        let config = Config::new(Workload::D, 1_000);
        let keys = KeySpace::new(1_000);
        let mut generator = Generator::new(&config, Arc::clone(&keys), 0);
        let (first, second) = (keys.allocate(), keys.allocate());
        keys.settle(second);
        assert_eq!(keys.complete(), 1_000, "an older insert is still under way");
        assert!((0..1_000).all(|_| generator.key() < 1_000));
        keys.settle(first);
        assert_eq!(keys.complete(), 1_002);
        let newest = (0..1_000).filter(|_| generator.key() == 1_001).count();
        assert!(newest > 80, "{newest} of 1,000 ask for the newest record");
    }

    #[test]
    fn contents_depend_on_record_and_field() {
        let config = Config::new(Workload::A, 10);
        let content = |key, field| {
            let mut bytes = [0; 20];
            config.fill_loaded(key, field, &mut bytes);
            bytes
        };
        assert_eq!(content(1, 2), content(1, 2));
        assert_ne!(content(1, 2), content(1, 3));
        assert_ne!(content(1, 2), content(2, 2));
    }
}
