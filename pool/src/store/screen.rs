//! Screens: one look for many young pieces. A Bloom filter whose bits for a key lie in one cache line (Putze, Sanders and
//! Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007), over the keys of several young pieces of a leaf.
//!
//! A look for an absent key would ask the filters of all young pieces, each with three cache misses. A screen says no for
//! nearly all of them with one, and only if it says maybe are the filters asked. It is memory only: filters belong to their
//! pieces and are durable with them; a piece without a screen (after opening, or because it goes over several leaves) is
//! asked directly.
//!
//! Rules:
//! - Bits are only added, before the version with the piece is published. A reader of an older version meets them early,
//!   which makes a "maybe" out of a "no" at worst.
//! - Relaxed orders will do: publishing the version orders them before any read through it.

use thermocline_base::sync::{AtomicU64, AtomicUsize, Ordering};

use crate::prefetch::prefetch;

const BLOCK_WORDS: usize = 8;
const BITS_PER_KEY: usize = 8;

/// A filter that keys are added to.
#[derive(Debug)]
pub(super) struct Screen {
    words: Box<[AtomicU64]>,
    keys: AtomicUsize,
    capacity: usize,
}

impl Screen {
    /// For about `capacity` keys.
    pub(super) fn new(capacity: usize) -> Self {
        let blocks = (capacity * BITS_PER_KEY).div_ceil(BLOCK_WORDS * 64).max(1);
        Self {
            words: (0..blocks * BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect(),
            keys: AtomicUsize::new(0),
            capacity,
        }
    }

    /// Is there room for `count` keys?
    pub(super) fn takes(&self, count: usize) -> bool {
        self.keys.load(Ordering::Relaxed) + count <= self.capacity
    }

    fn block(&self, hash: u64) -> usize {
        let blocks = (self.words.len() / BLOCK_WORDS) as u128;
        ((u128::from(hash) * blocks) >> 64) as usize * BLOCK_WORDS
    }

    /// Adds keys by their hashes.
    pub(super) fn add(&self, hashes: &[u64]) {
        for hash in hashes {
            let block = self.block(*hash);
            for bit in bits(*hash) {
                self.words[block + bit / 64].fetch_or(1 << (bit % 64), Ordering::Relaxed);
            }
        }
        self.keys.fetch_add(hashes.len(), Ordering::Relaxed);
    }

    /// May a key with this hash be there?
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let block = self.block(hash);
        let there = |bit: usize| self.words[block + bit / 64].load(Ordering::Relaxed) >> (bit % 64) & 1;
        let [a, b, c, d] = bits(hash).map(there);
        a & b & c & d == 1
    }

    /// Asks the processor for what [`Screen::may_contain`] will look at.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(&raw const self.words[self.block(hash)]);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.words.len() * size_of::<AtomicU64>()
    }
}

/// The high bits of a hash choose the block; these are drawn from the low ones.
#[inline(always)]
fn bits(hash: u64) -> [usize; 4] {
    [0, 9, 18, 27].map(|shift| (hash >> shift) as usize & 511)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_base::rng::Rng;

    #[test]
    fn never_no_for_what_is_there_and_seldom_maybe_for_what_is_not() {
        let mut rng = Rng::new(1);
        let screen = Screen::new(20_000);
        let hashes: Vec<u64> = (0..20_000).map(|_| rng.next_u64()).collect();
        assert!(screen.takes(20_000));
        screen.add(&hashes[..15_000]);
        screen.add(&hashes[15_000..]);
        assert!(!screen.takes(1));
        assert!(hashes.iter().all(|hash| screen.may_contain(*hash)));
        let wrong = (0..100_000).filter(|_| screen.may_contain(rng.next_u64())).count();
        assert!(wrong < 5_000, "{wrong}");
    }
}
