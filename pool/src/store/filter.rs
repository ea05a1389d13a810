//! Filters: binary fuse filters (Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", 2022), with
//! three places a key and fingerprints of 8 or 16 bits.
//!
//! ```text
//!   key ── hash (64 bits) ── mixed with the filter's seed ──┬── three places, one in each of three segments in a row
//!                                                           └── fingerprint
//!   may contain  ⇔  fingerprint == F[place 0] ^ F[place 1] ^ F[place 2]
//! ```
//!
//! About 1.13 (large) to 1.3 (thousands of keys) fingerprints a key; the share of wrong "maybe" is 2^-8 or 2^-16.
//!
//! Rules:
//! - A filter never says no for a key that it was built from. Building tries seeds until all keys have a place; if that
//!   does not succeed (keys whose 64-bit hashes are equal are dropped first, since one stands for all), the filter says
//!   maybe to everything.
//! - The hash of a key is the same for all filters, so it is computed once for many probes.

use super::codec::Reader;
use crate::prefetch::prefetch;

/// The hash of an index's key that all filters and tables in memory use.
#[inline]
pub(super) fn hash_of(index: u64, key: &[u8]) -> u64 {
    rapidhash::v3::rapidhash_v3(key) ^ mix(index)
}

#[inline]
const fn mix(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

/// How many seeds are tried before a filter gives up.
const TRIES: u64 = 64;

/// The fingerprints.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Prints {
    Bytes(Box<[u8]>),
    Words(Box<[u16]>),
    /// No key: no to everything.
    Never,
    /// Could not be built: maybe to everything.
    Always,
}

/// Where the three places of a hash lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    seed: u64,
    /// A power of two.
    segment: u32,
    /// Segments in which a first place may lie, times their length.
    starts: u32,
}

impl Shape {
    fn for_keys(count: usize, seed: u64) -> Self {
        let size = count.max(2) as f64;
        let segment = 1_u32 << ((size.ln() / 3.33_f64.ln() + 2.25).floor() as u32).clamp(2, 18);
        let factor = (0.875 + 0.25 * 1e6_f64.ln() / size.ln()).max(1.125);
        let capacity = if count <= 1 { 0 } else { (size * factor).round() as u32 };
        let segments = capacity.div_ceil(segment).saturating_sub(2).max(1);
        Self { seed, segment, starts: segments * segment }
    }

    const fn places(self) -> usize {
        (self.starts + 2 * self.segment) as usize
    }

    #[inline(always)]
    fn mixed(self, hash: u64) -> u64 {
        mix(hash.wrapping_add(self.seed))
    }

    #[inline(always)]
    fn three(self, mixed: u64) -> [u32; 3] {
        let first = ((u128::from(mixed) * u128::from(self.starts)) >> 64) as u32;
        let mask = self.segment - 1;
        let second = (first + self.segment) ^ ((mixed >> 18) as u32 & mask);
        let third = (first + 2 * self.segment) ^ (mixed as u32 & mask);
        [first, second, third]
    }
}

#[inline(always)]
const fn print_of(mixed: u64) -> u16 {
    (mixed ^ mixed >> 32) as u16
}

/// A filter over a set of hashes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Filter {
    shape: Shape,
    prints: Prints,
}

/// Memory for building filters, used again and again.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    counts: Vec<u8>,
    sums: Vec<u64>,
    alone: Vec<u32>,
    order: Vec<u64>,
    which: Vec<u8>,
    starts: Vec<u32>,
}

impl Filter {
    /// Says no to everything.
    pub(super) const fn never() -> Self {
        Self { shape: Shape { seed: 0, segment: 4, starts: 4 }, prints: Prints::Never }
    }

    /// Builds the filter of `hashes`, which may repeat and are reordered.
    pub(super) fn build(hashes: &mut Vec<u64>, wide: bool, scratch: &mut Scratch) -> Self {
        if hashes.is_empty() {
            return Self::never();
        }
        for attempt in 0..TRIES {
            if attempt == 2 {
                // Two in a row fail by chance once in thousands of filters; or hashes repeat.
                hashes.sort_unstable();
                hashes.dedup();
            }
            let seed = mix(attempt.wrapping_add(0x5eed) ^ (hashes.len() as u64) << 32);
            let shape = Shape::for_keys(hashes.len(), seed);
            if scratch.place(hashes, shape) {
                let prints = if wide {
                    let mut prints = vec![0_u16; shape.places()].into_boxed_slice();
                    scratch.assign(shape, &mut prints, print_of);
                    Prints::Words(prints)
                } else {
                    let mut prints = vec![0_u8; shape.places()].into_boxed_slice();
                    scratch.assign(shape, &mut prints, |mixed| print_of(mixed) as u8);
                    Prints::Bytes(prints)
                };
                return Self { shape, prints };
            }
        }
        Self { prints: Prints::Always, ..Self::never() }
    }

    /// May a key with this hash be in the set?
    #[inline(always)]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        match &self.prints {
            Prints::Words(prints) => {
                let mixed = self.shape.mixed(hash);
                let [a, b, c] = self.shape.three(mixed).map(|place| prints[place as usize]);
                a ^ b ^ c == print_of(mixed)
            }
            Prints::Bytes(prints) => {
                let mixed = self.shape.mixed(hash);
                let [a, b, c] = self.shape.three(mixed).map(|place| prints[place as usize]);
                a ^ b ^ c == print_of(mixed) as u8
            }
            Prints::Never => false,
            Prints::Always => true,
        }
    }

    /// Asks the processor for what [`Filter::may_contain`] will look at.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let places = || self.shape.three(self.shape.mixed(hash));
        match &self.prints {
            Prints::Words(prints) => places().map(|place| prefetch(&raw const prints[place as usize])),
            Prints::Bytes(prints) => places().map(|place| prefetch(&raw const prints[place as usize])),
            Prints::Never | Prints::Always => return,
        };
    }

    /// Memory that it takes beyond itself.
    pub(super) fn memory_bytes(&self) -> usize {
        match &self.prints {
            Prints::Bytes(prints) => prints.len(),
            Prints::Words(prints) => prints.len() * 2,
            Prints::Never | Prints::Always => 0,
        }
    }

    /// The share of absent keys to which it says maybe.
    pub(super) fn error_rate(&self) -> f64 {
        match &self.prints {
            Prints::Bytes(_) => 1.0 / 256.0,
            Prints::Words(_) => 1.0 / 65536.0,
            Prints::Never => 0.0,
            Prints::Always => 1.0,
        }
    }

    /// Appends it to `bytes`.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        let kind: u8 = match &self.prints {
            Prints::Never => 0,
            Prints::Bytes(_) => 1,
            Prints::Words(_) => 2,
            Prints::Always => 3,
        };
        bytes.push(kind);
        bytes.extend_from_slice(&self.shape.seed.to_le_bytes());
        bytes.extend_from_slice(&self.shape.segment.to_le_bytes());
        bytes.extend_from_slice(&self.shape.starts.to_le_bytes());
        match &self.prints {
            Prints::Bytes(prints) => bytes.extend_from_slice(prints),
            Prints::Words(prints) => {
                prints.iter().for_each(|print| bytes.extend_from_slice(&print.to_le_bytes()));
            }
            Prints::Never | Prints::Always => {}
        }
    }

    /// Reads what [`Filter::encode`] wrote; `None` when the bytes are none.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let kind = reader.u8()?;
        let shape = Shape { seed: reader.u64()?, segment: reader.u32()?, starts: reader.u32()? };
        let sane = shape.segment.is_power_of_two()
            && shape.segment <= 1 << 18
            && shape.starts > 0
            && shape.starts.is_multiple_of(shape.segment)
            && shape.starts < u32::MAX / 2;
        if !sane {
            return None;
        }
        let prints = match kind {
            0 => Prints::Never,
            1 => Prints::Bytes(reader.bytes(shape.places())?.into()),
            2 => {
                let bytes = reader.bytes(shape.places().checked_mul(2)?)?;
                Prints::Words(
                    bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect(),
                )
            }
            3 => Prints::Always,
            _ => return None,
        };
        Some(Self { shape, prints })
    }
}

const ONE: u8 = 4;

impl Scratch {
    /// Finds an order in which every hash has a place of its own after those behind it. `false`: none was found.
    fn place(&mut self, hashes: &[u64], shape: Shape) -> bool {
        let places = shape.places();
        self.counts.clear();
        self.counts.resize(places, 0);
        self.sums.clear();
        self.sums.resize(places, 0);
        self.sort_by_place(hashes, shape);
        let mut overflow = false;
        for at in 0..hashes.len() {
            let mixed = self.order[at];
            for (which, place) in shape.three(mixed).into_iter().enumerate() {
                let place = place as usize;
                let count = self.counts[place].wrapping_add(ONE) ^ which as u8;
                overflow |= count < ONE;
                self.counts[place] = count;
                self.sums[place] ^= mixed;
            }
        }
        if overflow {
            return false;
        }
        self.alone.clear();
        self.alone.resize(places + 1, 0);
        let mut waiting = 0;
        for place in 0..places {
            self.alone[waiting] = place as u32;
            waiting += usize::from(self.counts[place] >> 2 == 1);
        }
        self.which.clear();
        let mut done = 0;
        while waiting > 0 {
            waiting -= 1;
            let place = self.alone[waiting] as usize;
            if self.counts[place] >> 2 != 1 {
                continue;
            }
            let mixed = self.sums[place];
            let found = self.counts[place] & 3;
            self.which.push(found);
            self.order[done] = mixed;
            done += 1;
            let three = shape.three(mixed);
            for step in 1..3 {
                let other_which = (found + step) % 3;
                let other = three[usize::from(other_which)] as usize;
                self.alone[waiting] = other as u32;
                waiting += usize::from(self.counts[other] >> 2 == 2);
                self.counts[other] = self.counts[other].wrapping_sub(ONE) ^ other_which;
                self.sums[other] ^= mixed;
            }
        }
        done == hashes.len()
    }

    /// Brings the mixed hashes roughly into the order of their places, so that placing them walks through memory.
    fn sort_by_place(&mut self, hashes: &[u64], shape: Shape) {
        let blocks = (shape.starts / shape.segment).next_power_of_two();
        let shift = 64 - blocks.trailing_zeros();
        let block_of = |mixed: u64| if shift == 64 { 0 } else { (mixed >> shift) as usize };
        self.starts.clear();
        self.starts.resize(blocks as usize + 1, 0);
        for hash in hashes {
            self.starts[block_of(shape.mixed(*hash)) + 1] += 1;
        }
        for block in 1..self.starts.len() {
            self.starts[block] += self.starts[block - 1];
        }
        self.order.clear();
        self.order.resize(hashes.len(), 0);
        for hash in hashes {
            let mixed = shape.mixed(*hash);
            let slot = &mut self.starts[block_of(mixed)];
            self.order[*slot as usize] = mixed;
            *slot += 1;
        }
    }

    /// Gives the places their fingerprints, in the reverse of the order found.
    fn assign<T: Copy + std::ops::BitXor<Output = T>>(
        &self,
        shape: Shape,
        prints: &mut [T],
        print: impl Fn(u64) -> T,
    ) {
        for (mixed, found) in self.order.iter().zip(&self.which).rev() {
            let three = shape.three(*mixed);
            let [own, one, two] = [0, 1, 2].map(|step| three[usize::from((*found + step) % 3)] as usize);
            prints[own] = print(*mixed) ^ prints[one] ^ prints[two];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_base::rng::Rng;

    fn hashes(count: usize, seed: u64) -> Vec<u64> {
        let mut rng = Rng::new(seed);
        (0..count).map(|_| rng.next_u64()).collect()
    }

    #[test]
    fn never_no_for_what_is_there_and_rarely_maybe_for_what_is_not() {
        let mut scratch = Scratch::default();
        for count in [1, 2, 3, 7, 50, 1000, 6000, 70_000] {
            for (wide, most) in [(false, 1.6 / 256.0), (true, 8.0 / 65536.0)] {
                let there = hashes(count, 1);
                let filter = Filter::build(&mut there.clone(), wide, &mut scratch);
                assert_ne!(filter.prints, Prints::Always);
                assert!(there.iter().all(|hash| filter.may_contain(*hash)), "{count}");
                let absent = hashes(100_000, 2);
                let wrong = absent.iter().filter(|hash| filter.may_contain(**hash)).count();
                assert!((wrong as f64) < 100_000.0 * most + 20.0, "{count}: {wrong}");
                let bits = filter.memory_bytes() as f64 * 8.0 / count as f64;
                assert!(count < 5000 || bits < if wide { 21.0 } else { 10.5 }, "{count}: {bits} bits a key");
            }
        }
    }

    #[test]
    fn repeated_hashes_are_no_obstacle() {
        let mut scratch = Scratch::default();
        let mut there = hashes(500, 3);
        there.extend_from_within(..);
        there.extend_from_within(..300);
        let filter = Filter::build(&mut there.clone(), false, &mut scratch);
        assert_ne!(filter.prints, Prints::Always);
        assert!(there.iter().all(|hash| filter.may_contain(*hash)));
    }

    #[test]
    fn a_filter_reads_back() {
        let mut scratch = Scratch::default();
        let always = Filter { prints: Prints::Always, ..Filter::never() };
        let built = [false, true].map(|wide| Filter::build(&mut hashes(300, 4), wide, &mut scratch));
        for filter in [Filter::never(), always].into_iter().chain(built) {
            let mut bytes = Vec::new();
            filter.encode(&mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(Filter::decode(&mut reader), Some(filter.clone()));
            assert!(reader.is_at_end());
            for cut in 0..bytes.len() {
                assert_eq!(Filter::decode(&mut Reader::new(&bytes[..cut])), None);
            }
        }
        let nothing = Filter::never();
        assert!(!hashes(100, 5).iter().any(|hash| nothing.may_contain(*hash)));
        assert_eq!(nothing.error_rate(), 0.0);
    }
}
