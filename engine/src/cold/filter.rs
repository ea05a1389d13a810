//! Access filters of stores that have none of their own: "no such key", or "maybe" (seed 001, §4.2).
//!
//! ```text
//!   hash of a key ── top 8 bits ──► part ──► now:  a Bloom filter whose bits for a key lie in one cache line
//!                                            next: the filter that will be its successor, while the part is rebuilt
//! ```
//!
//! Many small filters instead of one: each is built in microseconds, grows and is renewed alone, and covers the keys that
//! neighbour each other in the store's hash table, so that a rebuild walks over one shard.
//!
//! A part is due to be rebuilt when it holds more keys than it was made for, or when removals have spoilt it: a Bloom
//! filter cannot forget a key, so a quarter of the keys gone means that a quarter of its "maybe" is void.
//!
//! # Why a filter never says no to what is there
//! Who writes an entry puts it *first into the store, then into the filter*, and only then says that it is written. A
//! rebuild first makes `next` known, under the part's lock, and then walks over the store. A key that was added before
//! `next` was known was in the store before the walk began, so the walk meets it; a key that is added later is added to
//! both. When the walk is over `next` takes the place of `now`, under the lock again. Bits are only ever set.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use thermocline_base::sync::{AtomicU64, AtomicUsize, CachePadded, Ordering};
use thermocline_pool::store::IndexId as StoreIndex;

/// How many parts there are.
pub(crate) const PARTS: usize = 1 << PART_BITS;
pub(crate) const PART_BITS: u32 = 8;

const BLOCK_WORDS: usize = 8;
const BITS_PER_KEY: usize = 10;
const PROBES: u32 = 5;
/// Keys that the smallest filter is made for.
const KEYS_MIN: usize = 48;

/// The hash of an index's key.
#[inline]
pub(crate) fn hash_of(index: StoreIndex, key: &[u8]) -> u64 {
    let index = u64::from(index.table) << 32 | u64::from(index.index);
    // Indexes differ in few bits, which have to reach those that choose the part.
    let mixed = (index ^ index >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    rapidhash::v3::rapidhash_v3(key) ^ mixed ^ mixed >> 31
}

/// The part of a hash.
#[inline(always)]
pub(crate) const fn part_of(hash: u64) -> usize {
    (hash >> (64 - PART_BITS)) as usize
}

/// A filter that keys are added to.
#[derive(Debug)]
struct Bloom {
    words: Box<[AtomicU64]>,
    keys: AtomicUsize,
    capacity: usize,
}

impl Bloom {
    fn new(capacity: usize) -> Self {
        let capacity = capacity.max(KEYS_MIN);
        let blocks = (capacity * BITS_PER_KEY).div_ceil(BLOCK_WORDS * 64);
        Self {
            words: (0..blocks * BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect(),
            keys: AtomicUsize::new(0),
            capacity,
        }
    }

    /// The first word of the block of a hash. Its top bits have chosen the part; the next ones choose here.
    #[inline(always)]
    fn block(&self, hash: u64) -> usize {
        let blocks = (self.words.len() / BLOCK_WORDS) as u128;
        ((u128::from(hash << PART_BITS) * blocks) >> 64) as usize * BLOCK_WORDS
    }

    #[inline(always)]
    fn bits(hash: u64) -> impl Iterator<Item = usize> {
        (0..PROBES).map(move |probe| (hash >> (probe * 9)) as usize & (BLOCK_WORDS * 64 - 1))
    }

    fn add(&self, hash: u64) {
        let block = self.block(hash);
        for bit in Self::bits(hash) {
            self.words[block + bit / 64].fetch_or(1 << (bit % 64), Ordering::Release);
        }
        self.keys.fetch_add(1, Ordering::Relaxed);
    }

    #[inline(always)]
    fn may_contain(&self, hash: u64) -> bool {
        let block = self.block(hash);
        Self::bits(hash)
            .all(|bit| self.words[block + bit / 64].load(Ordering::Acquire) >> (bit % 64) & 1 == 1)
    }

    /// The share of absent keys to which it says maybe, from how full its blocks are.
    #[cfg(test)]
    fn error_rate(&self) -> f64 {
        let of_block = |block: &[AtomicU64]| {
            let ones: u32 = block.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum();
            (f64::from(ones) / (BLOCK_WORDS * 64) as f64).powi(PROBES as i32)
        };
        let blocks = self.words.chunks(BLOCK_WORDS);
        let count = blocks.len() as f64;
        blocks.map(of_block).sum::<f64>() / count
    }

    fn memory_bytes(&self) -> usize {
        self.words.len() * size_of::<AtomicU64>()
    }
}

#[derive(Debug)]
struct Part {
    now: Bloom,
    next: Option<Arc<Bloom>>,
    removed: AtomicUsize,
}

impl Part {
    fn is_due(&self) -> bool {
        let keys = self.now.keys.load(Ordering::Relaxed);
        let removed = self.removed.load(Ordering::Relaxed);
        self.next.is_none() && (keys > self.now.capacity || (removed > KEYS_MIN && removed * 4 > keys))
    }
}

/// Filters over the keys of a store.
#[derive(Debug)]
pub(crate) struct Filters {
    parts: Box<[CachePadded<RwLock<Part>>]>,
    rebuilds: AtomicU64,
}

/// Filters in numbers.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct FilterUsage {
    /// Memory of the filters.
    pub(crate) bytes: u64,
    /// Keys that were added and, as far as is known, not removed.
    pub(crate) keys: u64,
    /// The share of absent keys to which they say maybe.
    pub(crate) error_rate: f64,
    /// How often a part was rebuilt.
    pub(crate) rebuilds: u64,
}

impl Default for Filters {
    fn default() -> Self {
        let part = || Part { now: Bloom::new(0), next: None, removed: AtomicUsize::new(0) };
        Self {
            parts: (0..PARTS).map(|_| CachePadded(RwLock::new(part()))).collect(),
            rebuilds: AtomicU64::new(0),
        }
    }
}

impl Filters {
    fn read(&self, part: usize) -> RwLockReadGuard<'_, Part> {
        self.parts[part].0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, part: usize) -> RwLockWriteGuard<'_, Part> {
        self.parts[part].0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// May a key with this hash be there?
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.read(part_of(hash)).now.may_contain(hash)
    }

    /// Asks the processor for what [`Filters::may_contain`] will look at.
    pub(crate) fn prefetch(&self, hash: u64) {
        let part = self.read(part_of(hash));
        thermocline_base::prefetch::prefetch(std::ptr::from_ref(&part.now.words[part.now.block(hash)]));
    }

    /// Adds a key that is in the store already. `true`: its part is due to be rebuilt.
    pub(crate) fn add(&self, hash: u64) -> bool {
        let part = self.read(part_of(hash));
        part.now.add(hash);
        if let Some(next) = &part.next {
            next.add(hash);
        }
        part.is_due()
    }

    /// Notes that a key is gone. `true`: its part is due to be rebuilt.
    pub(crate) fn remove(&self, hash: u64) -> bool {
        let part = self.read(part_of(hash));
        part.removed.fetch_add(1, Ordering::Relaxed);
        part.is_due()
    }

    /// Rebuilds a part, unless somebody is at it. `walk` calls what it is given with the hashes of all keys of the part
    /// that are in the store; it begins when it is called, no earlier.
    pub(crate) fn rebuild(&self, part: usize, walk: impl FnOnce(&mut dyn FnMut(u64))) {
        let next = {
            let mut part = self.write(part);
            if !part.is_due() {
                return;
            }
            let keys = part.now.keys.load(Ordering::Relaxed);
            let left = keys.saturating_sub(part.removed.swap(0, Ordering::Relaxed));
            // Room for half as many again: filters are renewed a logarithmic number of times as they grow.
            let next = Arc::new(Bloom::new(left + left / 2));
            part.next = Some(Arc::clone(&next));
            next
        };
        walk(&mut |hash| next.add(hash));
        drop(next);
        let mut part = self.write(part);
        let next = part.next.take().and_then(Arc::into_inner);
        part.now = next.expect("who adds to the next filter holds the part's lock");
        drop(part);
        self.rebuilds.fetch_add(1, Ordering::Relaxed);
    }

    /// Memory of the filters. Asked for all the time, so it looks at none of their words.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let of_part =
            |part: &Part| part.now.memory_bytes() + part.next.as_ref().map_or(0, |next| next.memory_bytes());
        (0..PARTS).map(|part| of_part(&self.read(part)) as u64).sum()
    }

    /// What they are.
    #[cfg(test)]
    pub(crate) fn usage(&self) -> FilterUsage {
        let mut usage = FilterUsage { rebuilds: self.rebuilds.load(Ordering::Relaxed), ..Default::default() };
        for part in 0..PARTS {
            let part = self.read(part);
            let keys = part.now.keys.load(Ordering::Relaxed);
            usage.keys += keys.saturating_sub(part.removed.load(Ordering::Relaxed)) as u64;
            let next = part.next.as_ref().map_or(0, |next| next.memory_bytes());
            usage.bytes += (part.now.memory_bytes() + next) as u64;
            usage.error_rate += part.now.error_rate() / PARTS as f64;
        }
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Mutex;
    use thermocline_base::rng::Rng;

    /// A set of hashes as a store would keep it.
    #[derive(Default)]
    struct Set {
        hashes: Mutex<HashSet<u64>>,
        filters: Filters,
    }

    impl Set {
        fn rebuild(&self, hash: u64) {
            let part = part_of(hash);
            self.filters.rebuild(part, |found| {
                let here: Vec<u64> = self
                    .hashes
                    .lock()
                    .unwrap()
                    .iter()
                    .copied()
                    .filter(|hash| part_of(*hash) == part)
                    .collect();
                here.into_iter().for_each(found);
            });
        }

        fn add(&self, hash: u64) {
            self.hashes.lock().unwrap().insert(hash);
            if self.filters.add(hash) {
                self.rebuild(hash);
            }
        }

        fn remove(&self, hash: u64) {
            if self.hashes.lock().unwrap().remove(&hash) && self.filters.remove(hash) {
                self.rebuild(hash);
            }
        }
    }

    #[test]
    fn never_no_for_what_is_there_and_seldom_maybe_for_what_is_not() {
        let (set, mut rng) = (Set::default(), Rng::new(1));
        let keys: Vec<u64> = (0..60_000).map(|_| rng.next_u64()).collect();
        keys.iter().for_each(|hash| set.add(*hash));
        assert!(keys.iter().all(|hash| set.filters.may_contain(*hash)));
        let wrong = (0..100_000).filter(|_| set.filters.may_contain(rng.next_u64())).count();
        let usage = set.filters.usage();
        assert!(wrong < 2_500, "{wrong} of 100,000");
        assert!((usage.error_rate - wrong as f64 / 1e5).abs() < 0.005, "{} told", usage.error_rate);
        assert_eq!(usage.keys, 60_000);
        let bits = usage.bytes as f64 * 8.0 / 60_000.0;
        assert!(bits < 17.0, "{bits} bits a key");
    }

    #[test]
    fn what_removals_have_spoilt_is_renewed() {
        let (set, mut rng) = (Set::default(), Rng::new(2));
        let keys: Vec<u64> = (0..60_000).map(|_| rng.next_u64()).collect();
        keys.iter().for_each(|hash| set.add(*hash));
        let before = set.filters.usage();
        keys[..55_000].iter().for_each(|hash| set.remove(*hash));
        assert!(keys[55_000..].iter().all(|hash| set.filters.may_contain(*hash)));
        let left = keys[..55_000].iter().filter(|hash| set.filters.may_contain(**hash)).count();
        assert!(left < 17_000, "{left} of 55,000 removed keys are still said to be there");
        let after = set.filters.usage();
        assert!(after.bytes * 2 < before.bytes && after.rebuilds > before.rebuilds, "{after:?} {before:?}");
    }

    #[test]
    fn adding_and_rebuilding_beside_each_other_loses_nothing() {
        let set = Set::default();
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let set = &set;
                scope.spawn(move || {
                    let mut rng = Rng::new(seed);
                    // Few parts, so that rebuilds and additions meet.
                    let mut mine: Vec<u64> = Vec::new();
                    for _ in 0..20_000 {
                        if mine.len() > 300 && rng.chance(0.45) {
                            set.remove(mine.swap_remove(rng.below(300) as usize));
                        } else {
                            let hash = rng.next_u64() >> 7;
                            set.add(hash);
                            mine.push(hash);
                        }
                        let known = mine[rng.below(mine.len() as u64) as usize];
                        assert!(set.filters.may_contain(known), "{known:x} was added");
                    }
                });
            }
        });
        assert!(set.filters.usage().rebuilds > 20);
        assert!(set.hashes.lock().unwrap().iter().all(|hash| set.filters.may_contain(*hash)));
    }

    #[test]
    fn a_key_that_comes_while_a_part_is_rebuilt_is_not_lost() {
        let filters = Filters::default();
        let in_part = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8;
        let first: Vec<u64> = (1..60).map(in_part).filter(|hash| part_of(*hash) == 0).collect();
        let due = first.iter().any(|hash| filters.add(*hash));
        assert!(due, "{} keys are more than the least filter takes", first.len());
        let late = in_part(1000);
        filters.rebuild(0, |found| {
            first.iter().copied().for_each(found);
            // The walk is over it; and nobody else rebuilds the part meanwhile.
            assert!(!filters.add(late));
        });
        assert_eq!(filters.usage().rebuilds, 1);
        assert!(first.iter().chain([&late]).all(|hash| filters.may_contain(*hash)));
    }

    #[test]
    fn indexes_with_the_same_keys_have_other_hashes() {
        let hashes: HashSet<u64> = (0..100)
            .flat_map(|table| [0, 1, 1 << 31].map(|index| hash_of(StoreIndex { table, index }, b"key")))
            .collect();
        assert_eq!(hashes.len(), 300);
    }
}
