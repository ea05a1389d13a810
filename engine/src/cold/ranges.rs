//! Ranges of cold keys: "no such key", or "maybe", where keys come in runs.
//!
//! Rows that leave memory are neighbours more often than not: the order lines of a district up to some order, the payments of a month.
//! Their keys fill a few intervals, and a fresh key lies outside of all of them. So for each index of the cold store at most
//! [`INTERVALS`] disjoint intervals of key heads are kept, in sorted order: a look is a binary search in 32 KiB, whose upper steps stay
//! in the processor's cache, instead of the cache misses of a filter for each piece; it is right about fresh keys (a filter says
//! *maybe* to one in a hundred, which costs a read of the device); and it answers for ranges of keys, which a filter cannot.
//! Keys that come in no order end up in a few wide intervals that say *maybe* to all: there filters decide, as without.
//!
//! # Why a range never says no to what is there
//! A batch adds its keys *before* its write begins ([`Ranges::before`]). What was added stays: an interval only grows, or becomes one
//! with its neighbour. A writer that looks for a key has either looked before the batch was decided, and then looks again for that reason (see
//! `Session::cold_claim`), or sees the intervals of that time or later: they are published before the write, and the write is long
//! before the decision. `Rule::RangeBeforeWrite` is what this stands on.
//!
//! Intervals are replaced in place, under a number that is odd meanwhile: a reader that has met an odd number, or another one than
//! before, looks again. Bounds are stored with release and loaded with acquire, so a reader that has met a new bound meets the odd
//! number behind it, too. What was there when the store was opened is one interval without ends: its gaps are not known.

use std::sync::OnceLock;

use thermocline_base::sync::{AtomicBool, AtomicU64, Backoff, Mutex, Ordering};
use thermocline_pool::store::IndexId as StoreIndex;

use crate::mutation::{self, Rule};

/// Intervals of an index, at most, and how many are left when there are more.
const INTERVALS: usize = 1024;
const INTERVALS_LEFT: usize = 512;
/// Intervals that a batch adds, at most.
const OF_BATCH: usize = 256;
/// Indexes whose intervals are kept; of others everything may be there.
const INDEXES: usize = 1024;
/// Bytes of a key that count.
const HEAD_BYTES: usize = size_of::<Head>();

/// The first bytes of a key, as a number in the order of keys.
type Head = u128;

/// From one head to another one, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Interval {
    low: Head,
    high: Head,
}

/// The head of a key, or of a bound, whose missing bytes are `pad`.
#[inline]
fn head(key: &[u8], pad: u8) -> Head {
    let mut bytes = [pad; HEAD_BYTES];
    let len = key.len().min(HEAD_BYTES);
    bytes[..len].copy_from_slice(&key[..len]);
    Head::from_be_bytes(bytes)
}

/// A head that is replaced while others read it: its halves need not belong together until the number says so.
#[derive(Debug, Default)]
struct Shared([AtomicU64; 2]);

impl Shared {
    fn load(&self) -> Head {
        let [high, low] = &self.0;
        Head::from(high.load(Ordering::Acquire)) << 64 | Head::from(low.load(Ordering::Acquire))
    }

    fn store(&self, head: Head) {
        let [high, low] = &self.0;
        high.store((head >> 64) as u64, Ordering::Release);
        low.store(head as u64, Ordering::Release);
    }
}

/// The intervals of one index.
#[derive(Debug)]
struct OfIndex {
    index: StoreIndex,
    /// Odd while they are being replaced.
    number: AtomicU64,
    len: AtomicU64,
    lows: Box<[Shared]>,
    highs: Box<[Shared]>,
    /// The same for the batch that adds some.
    all: Mutex<Vec<Interval>>,
}

impl OfIndex {
    fn new(index: StoreIndex) -> Self {
        let heads = || (0..INTERVALS).map(|_| Shared::default()).collect();
        Self {
            index,
            number: AtomicU64::new(0),
            len: AtomicU64::new(0),
            lows: heads(),
            highs: heads(),
            all: Mutex::new(Vec::new()),
        }
    }

    fn add(&self, new: &[Interval]) {
        let mut all = self.all.lock();
        *all = merged(&all, new);
        if all.len() > INTERVALS {
            *all = cut(&all, INTERVALS_LEFT);
        }
        let number = self.number.load(Ordering::Relaxed);
        self.number.store(number + 1, Ordering::Relaxed);
        self.len.store(all.len() as u64, Ordering::Release);
        for (interval, (low, high)) in all.iter().zip(self.lows.iter().zip(&self.highs)) {
            low.store(interval.low);
            high.store(interval.high);
        }
        self.number.store(number + 2, Ordering::Release);
    }

    /// May there be a key between two heads, both included?
    fn overlaps(&self, low: Head, high: Head) -> bool {
        let mut backoff = Backoff::new();
        loop {
            let number = self.number.load(Ordering::Acquire);
            if number.is_multiple_of(2) {
                let len = (self.len.load(Ordering::Acquire) as usize).min(INTERVALS);
                let at = self.highs[..len].partition_point(|of| of.load() < low);
                let overlaps = at < len && self.lows[at].load() <= high;
                if self.number.load(Ordering::Acquire) == number {
                    return overlaps;
                }
            }
            backoff.wait();
        }
    }
}

/// Two sorted lists of intervals as one. Those that overlap become one.
fn merged(one: &[Interval], other: &[Interval]) -> Vec<Interval> {
    let mut all: Vec<Interval> = one.iter().chain(other).copied().collect();
    // Two runs, of which the sort is aware.
    all.sort_by_key(|interval| interval.low);
    let mut merged: Vec<Interval> = Vec::with_capacity(all.len());
    for interval in all {
        match merged.last_mut() {
            Some(last) if interval.low <= last.high => last.high = last.high.max(interval.high),
            _ => merged.push(interval),
        }
    }
    merged
}

/// The same intervals with all gaps closed but the widest, so that so many are left at most.
fn cut(intervals: &[Interval], left: usize) -> Vec<Interval> {
    if intervals.len() <= left {
        return intervals.to_vec();
    }
    let mut gaps: Vec<(Head, usize)> =
        (1..intervals.len()).map(|at| (intervals[at].low - intervals[at - 1].high, at)).collect();
    gaps.select_nth_unstable_by(left - 1, |a, b| b.cmp(a));
    gaps.truncate(left - 1);
    gaps.sort_unstable_by_key(|(_, at)| *at);
    let starts = std::iter::once(0).chain(gaps.iter().map(|(_, at)| *at));
    let ends = gaps.iter().map(|(_, at)| *at).chain(std::iter::once(intervals.len()));
    starts
        .zip(ends)
        .map(|(start, end)| Interval { low: intervals[start].low, high: intervals[end - 1].high })
        .collect()
}

/// The intervals of a batch, index by index.
#[derive(Debug, Default)]
pub(crate) struct New(Vec<(StoreIndex, Vec<Interval>)>);

impl New {
    /// Adds the keys of an index, in any order.
    pub(crate) fn add<'k>(&mut self, index: StoreIndex, keys: impl Iterator<Item = &'k [u8]>) {
        let mut heads: Vec<Head> = keys.map(|key| head(key, 0)).collect();
        heads.sort_unstable();
        heads.dedup();
        let points: Vec<Interval> =
            heads.into_iter().map(|head| Interval { low: head, high: head }).collect();
        if !points.is_empty() {
            self.0.push((index, cut(&points, OF_BATCH)));
        }
    }
}

/// The ranges of a store's keys.
#[derive(Debug)]
pub(crate) struct Ranges {
    /// By a hash of the index, one behind the other.
    indexes: Box<[OnceLock<OfIndex>]>,
    /// There was no place for an index.
    full: AtomicBool,
}

impl Ranges {
    /// Nothing is there but keys of these indexes, of which nothing is known.
    pub(crate) fn new(there: impl IntoIterator<Item = StoreIndex>) -> Self {
        let indexes = (0..INDEXES).map(|_| OnceLock::new()).collect();
        let ranges = Self { indexes, full: AtomicBool::new(false) };
        let everything = Interval { low: 0, high: Head::MAX };
        there.into_iter().for_each(|index| ranges.add(&New(vec![(index, vec![everything])])));
        ranges
    }

    /// Adds the ranges of what `write` begins to write, before it does.
    pub(crate) fn before<T>(&self, new: New, write: impl FnOnce() -> T) -> T {
        if mutation::off(Rule::RangeBeforeWrite) {
            let written = write();
            self.add(&new);
            return written;
        }
        self.add(&new);
        write()
    }

    fn add(&self, new: &New) {
        for (index, intervals) in &new.0 {
            let mut places = self.places(*index);
            let place = places.find_map(|place| {
                let of = place.get_or_init(|| OfIndex::new(*index));
                (of.index == *index).then_some(of)
            });
            match place {
                Some(of) => of.add(intervals),
                None => self.full.store(true, Ordering::SeqCst),
            }
        }
    }

    /// The places where an index may stand, in the order in which they are taken.
    fn places(&self, index: StoreIndex) -> impl Iterator<Item = &OnceLock<OfIndex>> {
        let first =
            (u64::from(index.table) << 32 | u64::from(index.index)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (before, from) = self.indexes.split_at((first >> 32) as usize % self.indexes.len());
        from.iter().chain(before)
    }

    /// May there be a key between two heads, both included?
    fn overlaps(&self, index: StoreIndex, low: Head, high: Head) -> bool {
        for place in self.places(index) {
            match place.get() {
                Some(of) if of.index == index => return of.overlaps(low, high),
                Some(_) => {}
                None => return false,
            }
        }
        self.full.load(Ordering::SeqCst)
    }

    /// May this key be there?
    pub(crate) fn may_contain(&self, index: StoreIndex, key: &[u8]) -> bool {
        let head = head(key, 0);
        self.overlaps(index, head, head)
    }

    /// May a key be there that begins with these bytes?
    pub(crate) fn may_contain_prefix(&self, index: StoreIndex, prefix: &[u8]) -> bool {
        self.overlaps(index, head(prefix, 0), head(prefix, 0xff))
    }

    /// May a key be there from `low` (included) to `high` (excluded; `None`: to the end)?
    pub(crate) fn may_contain_range(&self, index: StoreIndex, low: &[u8], high: Option<&[u8]>) -> bool {
        self.overlaps(index, head(low, 0), high.map_or(Head::MAX, |high| head(high, 0)))
    }

    /// Bytes that the intervals take.
    pub(crate) fn bytes(&self) -> u64 {
        let places = self.indexes.len() * size_of::<OnceLock<OfIndex>>();
        let known = self.indexes.iter().filter(|place| place.get().is_some()).count();
        // Bounds, and once more in the list that batches are added to.
        (places + known * 2 * INTERVALS * size_of::<Interval>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_base::rng::Rng;

    const INDEX: StoreIndex = StoreIndex { table: 7, index: 0 };

    fn new(keys: &[Vec<u8>]) -> New {
        let mut new = New::default();
        new.add(INDEX, keys.iter().map(Vec::as_slice));
        new
    }

    fn line(district: u32, order: u32, line: u16) -> Vec<u8> {
        [&district.to_be_bytes()[..], &order.to_be_bytes(), &line.to_be_bytes()].concat()
    }

    #[test]
    fn fresh_keys_lie_outside() {
        let ranges = Ranges::new([]);
        assert!(!ranges.may_contain(INDEX, b"key"));
        let mut order = [1; 100];
        for _ in 0..50 {
            let mut keys = Vec::new();
            for (district, next) in (0..).zip(&mut order) {
                for of in *next..*next + 30 {
                    keys.extend((0..10).map(|at| line(district, of, at)));
                }
                *next += 30;
            }
            ranges.before(new(&keys), || ());
        }
        for (district, next) in (0..).zip(order) {
            assert!((1..next).all(|of| ranges.may_contain(INDEX, &line(district, of, 3))));
            assert!(!ranges.may_contain(INDEX, &line(district, next, 0)), "it is fresh");
            let (low, high) = (line(district, next, 0), line(district, next + 20, 0));
            assert!(!ranges.may_contain_range(INDEX, &low, Some(&high)));
            let low = line(district, next - 1, 0);
            assert!(ranges.may_contain_range(INDEX, &low, Some(&high)));
            assert!(ranges.may_contain_prefix(INDEX, &low[..8]));
            assert!(!ranges.may_contain_prefix(INDEX, &high[..8]));
        }
        assert!(!ranges.may_contain(StoreIndex { table: 7, index: 1 }, &line(0, 1, 3)), "another index");
        assert!(ranges.bytes() < 1 << 18);
    }

    #[test]
    fn nothing_that_was_added_is_denied() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let ranges = Ranges::new([]);
            let mut known: Vec<Vec<u8>> = Vec::new();
            for _ in 0..30 {
                let keys: Vec<Vec<u8>> = (0..rng.below(700))
                    .map(|_| {
                        let len = rng.below(24) as usize;
                        (0..len).map(|_| (rng.below(4) * 85) as u8).collect()
                    })
                    .collect();
                ranges.before(new(&keys), || ());
                known.extend(keys);
                for key in &known {
                    assert!(ranges.may_contain(INDEX, key), "{seed}: {key:?}");
                    let of = rng.below(key.len() as u64 + 1) as usize;
                    assert!(ranges.may_contain_prefix(INDEX, &key[..of]), "{seed}: {key:?}");
                    let behind = [&key[..], &[0]].concat();
                    assert!(ranges.may_contain_range(INDEX, &key[..of], Some(&behind)), "{seed}: {key:?}");
                    assert!(ranges.may_contain_range(INDEX, key, None), "{seed}: {key:?}");
                }
            }
            let of = ranges.places(INDEX).next().and_then(OnceLock::get).expect("keys were added");
            let all = of.all.lock();
            assert!(all.is_sorted_by(|a, b| a.high < b.low) && all.len() <= INTERVALS);
        }
    }

    #[test]
    fn of_what_was_there_nothing_is_known() {
        let ranges = Ranges::new([INDEX]);
        assert!(ranges.may_contain(INDEX, b"") && ranges.may_contain(INDEX, &[0xff; 40]));
        ranges.before(new(&[b"key".to_vec()]), || ());
        assert!(ranges.may_contain(INDEX, b"another"));
    }
}

/// A batch is written while a writer looks for one of its keys: once the batch is in the store, the look says *maybe*.
#[cfg(all(test, feature = "model"))]
mod model_tests {
    use std::sync::Arc;

    use thermocline_base::sync::{AtomicBool, model};

    use super::*;
    use crate::mutation::switch_off;

    const INDEX: StoreIndex = StoreIndex { table: 7, index: 0 };

    fn batches_and_looks() {
        let ranges = Arc::new(Ranges::new([]));
        let stored: Arc<[AtomicBool; 2]> = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let writers: Vec<_> = (0..2_u8)
            .map(|key| {
                let (ranges, stored) = (Arc::clone(&ranges), Arc::clone(&stored));
                shuttle::thread::spawn(move || {
                    let mut new = New::default();
                    new.add(INDEX, std::iter::once(&[key][..]));
                    ranges.before(new, || stored[usize::from(key)].store(true, Ordering::SeqCst));
                })
            })
            .collect();
        for key in [0_u8, 1, 0] {
            let is_there = stored[usize::from(key)].load(Ordering::SeqCst);
            assert!(ranges.may_contain(INDEX, &[key]) || !is_there, "a key that is stored is denied");
        }
        writers.into_iter().for_each(|writer| writer.join().expect("it does not panic"));
        assert!((0..2_u8).all(|key| ranges.may_contain(INDEX, &[key])), "one of two batches was lost");
    }

    #[test]
    fn model_ranges_come_before_what_they_are_of() {
        model::run(4000, batches_and_looks);
    }

    #[test]
    fn mutations_of_ranges_are_caught() {
        let _off = switch_off(Rule::RangeBeforeWrite);
        assert!(model::finds_failure(4000, batches_and_looks));
    }
}
