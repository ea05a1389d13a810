//! Screens: one look for many young pieces. A Bloom filter whose bits for a key lie in one cache line (Putze, Sanders and
//! Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007), over the keys of several young pieces of a leaf.
//!
//! A look for an absent key would ask the filters of all young pieces, each with three cache misses. A screen says no for
//! nearly all of them with one, and only if it says maybe are the filters asked.
//!
//! ```text
//!   hash of a key ── its high 24 bits: the *print* ──┬── which cache line
//!                                                    └── mixed ── four bits of 512
//! ```
//!
//! Screens are in memory only. What they are made of is durable: the tail of a young piece holds the prints of its keys, so
//! opening makes the screens again, without reading a record. A piece over several leaves is behind no screen and is
//! asked directly. 24 bits are enough: with 100,000 keys behind a screen, another key has the print of one of them in
//! 0.6 % of cases, beside the 3 % in which a screen says maybe anyway.
//!
//! Rules:
//! - Bits are only added, before the version with the piece is published. A reader of an older version meets them early,
//!   which makes a "maybe" out of a "no" at worst.
//! - One thread at a time adds: flushes are done one at a time, and not beside the merging of wide pieces, so no bit is lost
//!   although adding is no atomic read-modify-write (which would take most of the time of opening).
//! - Relaxed orders will do: publishing the version orders them before any read through it.

use thermocline_base::sync::{AtomicU64, AtomicUsize, Ordering};

use super::codec::{self, Reader};
use thermocline_base::prefetch::prefetch;

const BLOCK_WORDS: usize = 8;
const BITS_PER_KEY: usize = 8;
const PRINT_BITS: u32 = 24;
const PRINT_BYTES: usize = 3;

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

    fn block(&self, print: u32) -> usize {
        let blocks = (self.words.len() / BLOCK_WORDS) as u64;
        ((u64::from(print) * blocks) >> PRINT_BITS) as usize * BLOCK_WORDS
    }

    /// Adds keys by their prints. Only one thread at a time adds: the one that puts pieces into leaves.
    pub(super) fn add(&self, prints: &[u32]) {
        for print in prints {
            let block = self.block(*print);
            for bit in bits(*print) {
                let word = &self.words[block + bit / 64];
                word.store(word.load(Ordering::Relaxed) | 1 << (bit % 64), Ordering::Relaxed);
            }
        }
        self.keys.fetch_add(prints.len(), Ordering::Relaxed);
    }

    /// May a key with this hash be there?
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let print = print_of(hash);
        let block = self.block(print);
        let there = |bit: usize| self.words[block + bit / 64].load(Ordering::Relaxed) >> (bit % 64) & 1;
        let [a, b, c, d] = bits(print).map(there);
        a & b & c & d == 1
    }

    /// Asks the processor for what [`Screen::may_contain`] will look at.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(&raw const self.words[self.block(print_of(hash))]);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.words.len() * size_of::<AtomicU64>()
    }
}

/// The part of a key's hash that a screen looks at.
#[inline(always)]
pub(super) const fn print_of(hash: u64) -> u32 {
    (hash >> (64 - PRINT_BITS)) as u32
}

/// The keys of a block have the high bits of their prints in common, so all bits of the print are mixed.
#[inline(always)]
fn bits(print: u32) -> [usize; 4] {
    let mixed = u64::from(print).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [28, 37, 46, 55].map(|shift| (mixed >> shift) as usize & 511)
}

/// Appends prints to the tail of a piece.
pub(super) fn encode(prints: &[u32], bytes: &mut Vec<u8>) {
    codec::put_varint(bytes, prints.len() as u64);
    for print in prints {
        bytes.extend_from_slice(&print.to_le_bytes()[..PRINT_BYTES]);
    }
}

/// Reads what [`encode`] wrote; `None` when the bytes are none.
pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Vec<u32>> {
    let count = usize::try_from(reader.varint()?).ok()?;
    let bytes = reader.bytes(count.checked_mul(PRINT_BYTES)?)?;
    Some(
        bytes
            .chunks_exact(PRINT_BYTES)
            .map(|print| u32::from_le_bytes([print[0], print[1], print[2], 0]))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_base::rng::Rng;

    #[test]
    fn never_no_for_what_is_there_and_seldom_maybe_for_what_is_not() {
        for count in [100, 4_000, 20_000, 100_000] {
            let mut rng = Rng::new(1);
            let screen = Screen::new(count);
            let hashes: Vec<u64> = (0..count).map(|_| rng.next_u64()).collect();
            let prints: Vec<u32> = hashes.iter().map(|hash| print_of(*hash)).collect();
            assert!(screen.takes(count));
            screen.add(&prints[..count / 4]);
            screen.add(&prints[count / 4..]);
            assert!(!screen.takes(1));
            assert!(hashes.iter().all(|hash| screen.may_contain(*hash)));
            let wrong = (0..100_000).filter(|_| screen.may_contain(rng.next_u64())).count();
            assert!(wrong < 5_000, "{count} keys: {wrong}");
        }
    }

    #[test]
    fn prints_read_back() {
        let prints: Vec<u32> = [0, 1, u64::MAX, 0x1234_5678_9abc_def0].map(print_of).to_vec();
        let mut bytes = Vec::new();
        encode(&prints, &mut bytes);
        assert_eq!(bytes.len(), 1 + 3 * prints.len());
        let mut reader = Reader::new(&bytes);
        assert_eq!(decode(&mut reader), Some(prints));
        assert!(reader.is_at_end());
        for cut in 0..bytes.len() {
            assert_eq!(decode(&mut Reader::new(&bytes[..cut])), None);
        }
    }
}
