//! The table of candidates: sums of accesses by fingerprint, 24 rows in a cache line.
//!
//! ```text
//!   bucket  8 words, each: entry | entry << 21 | entry << 42        entry: fingerprint 12 bits << 9 | logarithm 9 bits
//! ```
//!
//! - A fingerprint of 0 is a free entry. A row's bucket comes from the upper bits of its mixed name, its fingerprint from the lower.
//! - The logarithm of a sum is in steps of an eighth of an octave, and *absolute*: an access weighs more the later it comes,
//!   so cooling changes no entry, only `now`, the logarithm that stands for a sum of 1. It is stored modulo 512: a value
//!   up to 256 steps below `now` is a sum below 1, up to 255 above it one above. An entry that is more than
//!   [`FADED`] steps below is cleared by a sweep that runs ahead of `now`, so none comes round to the other side.
//! - A row that is not in its bucket takes the least entry's place if it is worth as much as that already. Otherwise it
//!   does so with probability `weight ÷ (least + weight)` and takes over its sum, so that what an entry says is right on average
//!   (random admission; Basat et al., "Randomized admission policy for efficient top-k and frequency estimation", 2017).
//!
//! # Argument
//! One thread changes words (the classifier's lock); readers load a word, which holds whole entries, and `now`. Between the two, `now`
//! may move by a step or so, which makes a sum wrong by so many eighths of an octave; the sweep is more than 40 steps ahead of
//! where that could make an entry come round.

use thermocline_base::rng::Rng;
use thermocline_base::sync::{AtomicU32, AtomicU64, Ordering};

/// Entries of a bucket.
const ENTRIES: usize = 24;
const WORD_ENTRIES: usize = 3;
pub(super) const WORDS: usize = ENTRIES / WORD_ENTRIES;
const ENTRY_BITS: u32 = 21;
const ENTRY_MASK: u64 = (1 << ENTRY_BITS) - 1;
const CODE_BITS: u32 = 9;
const CODES: i64 = 1 << CODE_BITS;
/// Steps an octave.
const STEPS: f64 = 8.0;
/// A sum so many steps below 1 is none (2^-25).
const FADED: i64 = -200;
/// The sweep passes the whole table while `now` moves by so many steps.
const SWEEP_STEPS: f64 = 8.0;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; WORDS]);

/// See the module.
#[derive(Debug)]
pub(super) struct Table {
    /// All that there are. Those in use are the first of them, fewer by so many powers of two.
    all: Box<[Bucket]>,
    folds: AtomicU32,
    /// The logarithm of a sum of 1, in whole steps.
    now: AtomicU64,
    /// The same with its fraction, as bits of an `f64`; for the thread that changes things.
    exact: AtomicU64,
    /// Number of buckets that the sweep has passed, in all rounds.
    swept: AtomicU64,
}

impl Table {
    pub(super) fn new(bytes: usize) -> Self {
        let buckets = (bytes / size_of::<Bucket>()).max(1);
        Self {
            all: (0..buckets).map(|_| Bucket::default()).collect(),
            folds: AtomicU32::new(0),
            now: AtomicU64::new(0),
            exact: AtomicU64::new(0.0_f64.to_bits()),
            swept: AtomicU64::new(0),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buckets() * size_of::<Bucket>()
    }

    fn in_use(&self) -> &[Bucket] {
        &self.all[..self.buckets()]
    }

    /// Takes so many bytes from now on, or a part of that, and never more than at first. Of rows in buckets that
    /// become one the warmest stay. By the thread that may change entries.
    pub(super) fn set_bytes(&self, bytes: usize) {
        let wanted = (bytes / size_of::<Bucket>()).max(1);
        let folds = |folds: u32| self.folds.store(folds, Ordering::Relaxed);
        let now = self.now.load(Ordering::Relaxed);
        while self.buckets() > wanted {
            let before = self.buckets();
            for at in 0..before.div_ceil(2) {
                let (one, other) = (self.words(2 * at), 2 * at + 1);
                let other = if other < before { self.words(other) } else { [0; WORDS] };
                self.set_words(at, warmest(&one, &other, now));
            }
            folds(self.folds.load(Ordering::Relaxed) + 1);
            let rest = &self.all[self.buckets()..before];
            rest.iter().for_each(Bucket::clear);
            // SAFETY: atomics that are zero.
            #[cfg(not(feature = "model"))]
            unsafe {
                thermocline_base::vm::discard_zeros(rest);
            }
        }
        while let Some(fewer) = self.folds.load(Ordering::Relaxed).checked_sub(1)
            && ((self.all.len() - 1) >> fewer) < wanted
        {
            let before = self.buckets();
            folds(fewer);
            // A row is in one of the two; in the other its entry fades.
            for at in (0..before).rev() {
                let words = self.words(at);
                for to in [2 * at + 1, 2 * at] {
                    if to < self.buckets() {
                        self.set_words(to, words);
                    }
                }
            }
        }
        let exact = self.exact();
        self.swept.store((exact / SWEEP_STEPS * self.buckets() as f64) as u64, Ordering::Relaxed);
    }

    #[inline]
    fn bucket(&self, mixed: u64) -> &Bucket {
        let at = ((u128::from(mixed) * self.all.len() as u128) >> 64) as usize;
        &self.all[at >> self.folds.load(Ordering::Relaxed)]
    }

    #[inline]
    pub(super) fn ask_ahead(&self, mixed: u64) {
        thermocline_base::prefetch::prefetch(self.bucket(mixed));
    }

    /// The row's sum; 0 if it is not there.
    #[inline]
    pub(super) fn sum(&self, mixed: u64) -> f32 {
        let now = self.now.load(Ordering::Relaxed);
        let fingerprint = fingerprint(mixed);
        for word in &self.bucket(mixed).0 {
            let mut entries = word.load(Ordering::Relaxed);
            for _ in 0..WORD_ENTRIES {
                if (entries & ENTRY_MASK) >> CODE_BITS == fingerprint {
                    let relative = relative(entries, now);
                    return if relative < FADED { 0.0 } else { (relative as f32 / STEPS as f32).exp2() };
                }
                entries >>= ENTRY_BITS;
            }
        }
        0.0
    }

    /// Adds accesses of a row.
    pub(super) fn add(&self, mixed: u64, weight: f32, rng: &mut Rng) {
        let now = self.now.load(Ordering::Relaxed);
        let fraction = f64::from_bits(self.exact.load(Ordering::Relaxed)) - now as f64;
        let weight = f64::from(weight) * (fraction / STEPS).exp2();
        let fingerprint = fingerprint(mixed);
        let bucket = self.bucket(mixed);
        // The entry of the row, else a free one or the least.
        let mut least = (i64::MAX, 0, 0);
        let mut found = None;
        'search: for (number, word) in bucket.0.iter().enumerate() {
            let mut entries = word.load(Ordering::Relaxed);
            for place in 0..WORD_ENTRIES {
                let entry = entries & ENTRY_MASK;
                if entry >> CODE_BITS == fingerprint {
                    found = Some((relative(entry, now), number, place));
                    break 'search;
                }
                let value = if entry == 0 { i64::MIN } else { relative(entry, now) };
                if value < least.0 {
                    least = (value, number, place);
                }
                entries >>= ENTRY_BITS;
            }
        }
        let (value, number, place) = found.unwrap_or(least);
        let before = if value == i64::MIN { 0.0 } else { (value as f64 / STEPS).exp2() };
        let sum = if found.is_some() {
            before + weight
        } else if before <= weight {
            weight
        } else if rng.chance(weight / (before + weight)) {
            before + weight
        } else {
            return;
        };
        // Rounded at random between two steps, so that small additions to a large sum are not lost.
        let steps = sum.log2() * STEPS;
        let low = steps.floor();
        let at_low = (low / STEPS).exp2();
        let share = (sum - at_low) / (((low + 1.0) / STEPS).exp2() - at_low);
        let rounded = (low as i64 + i64::from(rng.chance(share))).clamp(FADED, CODES / 2 - 1);
        let code = (now as i64 + rounded).rem_euclid(CODES) as u64;
        let shift = place as u32 * ENTRY_BITS;
        let word = &bucket.0[number];
        let others = word.load(Ordering::Relaxed) & !(ENTRY_MASK << shift);
        word.store(others | (fingerprint << CODE_BITS | code) << shift, Ordering::Relaxed);
    }

    /// Sums are worth less by so many octaves.
    pub(super) fn cool(&self, octaves: f64) {
        let mut left = octaves * STEPS;
        if left >= CODES as f64 {
            // Nothing is left of what there was.
            self.in_use().iter().for_each(Bucket::clear);
            left %= SWEEP_STEPS;
        }
        while left > 0.0 {
            let step = left.min(SWEEP_STEPS / 2.0);
            left -= step;
            let exact = f64::from_bits(self.exact.load(Ordering::Relaxed)) + step;
            self.sweep(exact);
            self.exact.store(exact.to_bits(), Ordering::Relaxed);
            self.now.store(exact as u64, Ordering::Relaxed);
        }
    }

    /// Clears what will have faded when `now` has moved to `exact`.
    fn sweep(&self, exact: f64) {
        let buckets = self.buckets() as u64;
        let target = (exact / SWEEP_STEPS * buckets as f64) as u64;
        let from = self.swept.load(Ordering::Relaxed);
        let now = self.now.load(Ordering::Relaxed);
        for number in from..target.min(from + buckets) {
            self.all[(number % buckets) as usize].clear_faded(now);
        }
        self.swept.store(target.max(from), Ordering::Relaxed);
    }
}

impl Table {
    /// Those in use.
    pub(super) fn buckets(&self) -> usize {
        ((self.all.len() - 1) >> self.folds.load(Ordering::Relaxed)) + 1
    }

    /// The logarithm of a sum of 1.
    pub(super) fn exact(&self) -> f64 {
        f64::from_bits(self.exact.load(Ordering::Relaxed))
    }

    /// The words of a bucket.
    pub(super) fn words(&self, bucket: usize) -> [u64; WORDS] {
        std::array::from_fn(|word| self.all[bucket].0[word].load(Ordering::Relaxed))
    }

    /// Sets the words of a bucket. By the thread that may change them.
    pub(super) fn set_words(&self, bucket: usize, words: [u64; WORDS]) {
        for (word, value) in self.all[bucket].0.iter().zip(words) {
            word.store(value & ((1 << (WORD_ENTRIES as u32 * ENTRY_BITS)) - 1), Ordering::Relaxed);
        }
    }

    /// Forgets everything; a sum of 1 has this logarithm from now on. By the thread that may change it.
    pub(super) fn reset(&self, exact: f64) {
        self.in_use().iter().for_each(Bucket::clear);
        self.exact.store(exact.to_bits(), Ordering::Relaxed);
        self.now.store(exact as u64, Ordering::Relaxed);
        let swept = (exact / SWEEP_STEPS * self.buckets() as f64) as u64;
        self.swept.store(swept, Ordering::Relaxed);
    }
}

impl Bucket {
    fn clear(&self) {
        for word in &self.0 {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn clear_faded(&self, now: u64) {
        for word in &self.0 {
            let before = word.load(Ordering::Relaxed);
            let mut after = before;
            for place in 0..WORD_ENTRIES as u32 {
                let entry = before >> (place * ENTRY_BITS) & ENTRY_MASK;
                // What fades before the next round would be too late then.
                if entry != 0 && relative(entry, now) < FADED + SWEEP_STEPS as i64 {
                    after &= !(ENTRY_MASK << (place * ENTRY_BITS));
                }
            }
            if after != before {
                word.store(after, Ordering::Relaxed);
            }
        }
    }
}

/// The warmest entries of two buckets, as one bucket.
fn warmest(one: &[u64; WORDS], other: &[u64; WORDS], now: u64) -> [u64; WORDS] {
    let of_word =
        |word: u64| (0..WORD_ENTRIES as u32).map(move |place| word >> (place * ENTRY_BITS) & ENTRY_MASK);
    let mut entries: Vec<u64> =
        one.iter().chain(other).copied().flat_map(of_word).filter(|entry| *entry != 0).collect();
    entries.sort_by_key(|entry| std::cmp::Reverse(relative(*entry, now)));
    let mut words = [0; WORDS];
    let mut taken: Vec<u64> = Vec::with_capacity(ENTRIES);
    for entry in entries {
        if taken.len() < ENTRIES && !taken.contains(&(entry >> CODE_BITS)) {
            let at = taken.len();
            words[at / WORD_ENTRIES] |= entry << ((at % WORD_ENTRIES) as u32 * ENTRY_BITS);
            taken.push(entry >> CODE_BITS);
        }
    }
    words
}

/// 12 bits, never 0.
#[inline]
fn fingerprint(mixed: u64) -> u64 {
    (mixed & 0xFFF).max(1)
}

/// The steps of an entry above `now`: from -256 to 255.
#[inline]
fn relative(entry: u64, now: u64) -> i64 {
    let code = (entry & (CODES as u64 - 1)) as i64;
    (code - now as i64 + CODES / 2).rem_euclid(CODES) - CODES / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixed(row: u64) -> u64 {
        crate::RowName { table: thermocline_base::ids::TableId(1), hash: row }.mixed()
    }

    #[test]
    fn sums_add_up_on_average_and_cool() {
        let table = Table::new(1 << 16);
        let mut rng = Rng::new(1);
        for _ in 0..1_000 {
            (0..100).for_each(|row| table.add(mixed(row), 1.0, &mut rng));
        }
        let mean = |table: &Table| (0..100).map(|row| f64::from(table.sum(mixed(row)))).sum::<f64>() / 100.0;
        let before = mean(&table);
        assert!((before - 1_000.0).abs() < 60.0, "{before}");
        assert_eq!(table.sum(mixed(5_000)), 0.0);
        table.cool(3.0);
        assert!((mean(&table) - before / 8.0).abs() < 1.0);
    }

    #[test]
    fn the_warmest_stay_when_it_gets_smaller() {
        let table = Table::new(1 << 16);
        let mut rng = Rng::new(1);
        table.cool(3.3);
        // Ten thousand rows that are cool, and a thousand that are not.
        (0..10_000).for_each(|row| table.add(mixed(row), 1.0, &mut rng));
        (0..1_000).for_each(|row| table.add(mixed(row), 1_000.0, &mut rng));
        let warm = |table: &Table| (0..1_000).filter(|row| table.sum(mixed(*row)) > 500.0).count();
        assert_eq!(warm(&table), 1_000);
        for bytes in [1 << 15, 20_000, 1 << 13] {
            table.set_bytes(bytes);
            assert!(table.memory_bytes() <= bytes && table.memory_bytes() > bytes / 4, "{bytes}");
            assert!(warm(&table) > 990, "{} are left", warm(&table));
        }
        // And when it has grown again, they are found where they belong now.
        table.set_bytes(1 << 20);
        assert_eq!(table.memory_bytes(), 1 << 16);
        assert!(warm(&table) > 990, "{} are left", warm(&table));
        table.cool(40.0);
        assert_eq!((0..10_000).map(|row| table.sum(mixed(row))).fold(0.0, f32::max), 0.0);
    }

    #[test]
    fn nothing_comes_round() {
        for octaves in [0.01, 0.7, 5.0, 13.0] {
            let table = Table::new(1 << 14);
            let mut rng = Rng::new(1);
            for row in 0..2_000 {
                table.add(mixed(row), 1000.0, &mut rng);
            }
            let mut cooled = 0.0;
            let mut last = f32::INFINITY;
            while cooled < 200.0 {
                table.cool(octaves);
                cooled += octaves;
                let most = (0..2_000).map(|row| table.sum(mixed(row))).fold(0.0, f32::max);
                assert!(most <= last, "{most} after {last}, {cooled} octaves");
                last = most;
            }
            assert_eq!(last, 0.0);
        }
        let table = Table::new(1 << 14);
        table.add(mixed(1), 5.0, &mut Rng::new(1));
        table.cool(1e9);
        assert_eq!(table.sum(mixed(1)), 0.0);
    }

    #[test]
    fn few_strangers_are_taken_for_others() {
        let table = Table::new(1 << 18);
        let mut rng = Rng::new(1);
        (0..100_000).for_each(|row| table.add(mixed(row), 8.0, &mut rng));
        let known = (0..100_000).filter(|row| table.sum(mixed(*row)) > 0.0).count();
        assert!(known > 90_000, "{known}");
        let strangers = (200_000..300_000).filter(|row| table.sum(mixed(*row)) > 0.0).count();
        assert!(strangers < 1_000, "{strangers}");
    }

    #[test]
    fn the_hot_stay_when_more_rows_come_than_fit() {
        // 24 rows in each of 16 buckets; 100 hot rows among 10,000.
        let table = Table::new(1 << 10);
        let mut rng = Rng::new(1);
        for round in 0..50 {
            (0..100).for_each(|row| table.add(mixed(row), 10.0, &mut rng));
            (0..200).for_each(|row| table.add(mixed(1_000 + round * 200 + row), 1.0, &mut rng));
            table.cool(0.1);
        }
        let kept = (0..100).filter(|row| table.sum(mixed(*row)) > 20.0).count();
        assert!(kept >= 90, "{kept}");
    }
}
