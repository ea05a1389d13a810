//! Filters: binary fuse filters (Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", 2022), with
//! three places a key and fingerprints of 8 or 16 bits.
//!
//! ```text
//!   key ── hash (64 bits) ── mixed with the filter's seed ──┬── three places, one in each of three segments in a row
//!                                                           └── fingerprint
//!   may contain  ⇔  fingerprint == F[place 0] ^ F[place 1] ^ F[place 2]
//! ```
//!
//! About 1.16 (large) to 1.3 (thousands of keys) fingerprints a key; the share of wrong "maybe" is 2^-8 or 2^-16.
//!
//! Many keys are divided, by their hashes, into *parts* of at most 2^18, each with places and a seed of its own: what it
//! takes to build a part then stays in a core's caches, which halves the time for a million keys and costs 3 % of memory.
//!
//! ```text
//!   on disk   kind u8 · parts u32 · part (seed u64 · segment u32 · starts u32), … · fingerprints of all parts
//! ```
//!
//! Rules:
//! - A filter never says no for a key that it was built from. Building tries seeds until all keys have a place; if that
//!   does not succeed (keys whose 64-bit hashes are equal are dropped first, since one stands for all), the filter says
//!   maybe to everything.
//! - The hash of a key is the same for all filters, so it is computed once for many probes.

use super::codec::Reader;
use super::held::{Held, Sum};
use thermocline_base::prefetch::prefetch;

/// The hash of an entry's key that all filters and tables in memory use. Entries of a group share the group's.
#[inline]
pub(super) fn hash_of(index: u64, key: &[u8]) -> u64 {
    let group = if has_tails(index) { group_of(key) } else { key };
    hash_of_group(index, group)
}

/// The hash of a group's key: what its entries' keys have before their tails.
#[inline]
pub(super) fn hash_of_group(index: u64, group: &[u8]) -> u64 {
    rapidhash::v3::rapidhash_v3(group) ^ mix(index)
}

/// Do the keys of the index have tails?
#[inline]
pub(super) const fn has_tails(index: u64) -> bool {
    index as u32 & super::types::TAILED != 0
}

/// A key with a tail without it; a key that is too short for the tail that it claims to have is a group of its own.
#[inline]
fn group_of(key: &[u8]) -> &[u8] {
    let without = key.split_last_chunk::<2>().and_then(|(rest, tail)| {
        rest.len().checked_sub(usize::from(u16::from_be_bytes(*tail))).map(|len| &rest[..len])
    });
    without.unwrap_or(key)
}

#[inline]
const fn mix(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

/// Seeds that are tried before a filter gives up.
const TRIES: u64 = 64;
/// Keys of a part, at most; but for chance, which divides them. Building one takes some 40 bytes a key.
const PART_KEYS: usize = 1 << 18;
const PART_KEYS_MIN: usize = 1 << 12;
/// More parts than any piece has: only nonsense says so.
const PARTS_MAX: u32 = 1 << 16;

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

/// Where the three places of a part's hash lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    seed: u64,
    /// The first place of the part.
    base: u32,
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
        Self { seed, base: 0, segment, starts: segments * segment }
    }

    /// Where it is in the fingerprints of all parts.
    fn range(self) -> std::ops::Range<usize> {
        self.base as usize..self.base as usize + self.places()
    }

    const fn places(self) -> usize {
        (self.starts + 2 * self.segment) as usize
    }

    /// The hash as this filter sees it: 56 bits, and 8 that are zero (see [`Scratch`]).
    #[inline(always)]
    fn mixed(self, hash: u64) -> u64 {
        mix(hash.wrapping_add(self.seed)) & !LOW
    }

    #[inline(always)]
    fn three(self, mixed: u64) -> [u32; 3] {
        let first = ((u128::from(mixed) * u128::from(self.starts)) >> 64) as u32;
        let mask = self.segment - 1;
        let second = (first + self.segment) ^ ((mixed >> 26) as u32 & mask);
        let third = (first + 2 * self.segment) ^ ((mixed >> 8) as u32 & mask);
        [first, second, third]
    }
}

#[inline(always)]
const fn print_of(mixed: u64) -> u16 {
    (mixed >> 8 ^ mixed >> 40) as u16
}

/// A filter over a set of hashes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Filter {
    parts: Box<[Shape]>,
    prints: Prints,
}

/// Memory for building filters, used again and again.
///
/// ```text
///   word of a place   the keys that have it, xored, 56 bits · how many, 6 bits · which of their places it is, xored, 2 bits
///   word of the order the key, 56 bits · 0 · which of its places it got, 2 bits
/// ```
///
/// One word a place, so that a key costs three cache lines when it is put in and two when it is taken out.
#[derive(Debug)]
pub(super) struct Scratch {
    words: Vec<u64>,
    alone: Vec<u32>,
    order: Vec<u64>,
    starts: Vec<u32>,
    part_keys: usize,
    held: Held,
}

/// The low bits of words, which do not belong to the key.
const LOW: u64 = 0xff;
const WHICH: u64 = 3;
const ONE: u64 = 4;
/// The count goes no further. That many keys at one place only come of equal hashes.
const MOST: u64 = LOW & !WHICH;

/// Parts and their fingerprints.
type Built<T> = (Box<[Shape]>, Box<[T]>);

/// The part of a hash, of `parts`.
#[inline(always)]
fn part_of(hash: u64, parts: usize) -> usize {
    ((u128::from(hash) * parts as u128) >> 64) as usize
}

impl Filter {
    /// Says no to everything.
    pub(super) fn never() -> Self {
        Self { parts: Box::default(), prints: Prints::Never }
    }

    /// Builds the filter of `hashes`, which may repeat and are reordered.
    pub(super) fn build(hashes: &mut [u64], wide: bool, scratch: &mut Scratch) -> Self {
        if hashes.is_empty() {
            return Self::never();
        }
        let built = if wide {
            Self::build_parts(hashes, scratch, print_of).map(|(parts, prints)| (parts, Prints::Words(prints)))
        } else {
            Self::build_parts(hashes, scratch, |mixed| print_of(mixed) as u8)
                .map(|(parts, prints)| (parts, Prints::Bytes(prints)))
        };
        match built {
            Some((parts, prints)) => Self { parts, prints },
            None => Self { parts: Box::default(), prints: Prints::Always },
        }
    }

    fn build_parts<T: Copy + Default + std::ops::BitXor<Output = T>>(
        hashes: &mut [u64],
        scratch: &mut Scratch,
        print: impl Fn(u64) -> T,
    ) -> Option<Built<T>> {
        let count = hashes.len().div_ceil(scratch.part_keys);
        let mut ends = vec![0; count];
        if count > 1 {
            scratch.divide(hashes, &mut ends);
        } else {
            ends[0] = hashes.len();
        }
        let (mut parts, mut prints) = (Vec::with_capacity(count), Vec::new());
        let mut start = 0;
        for end in ends {
            let mut shape = scratch.place_somehow(&mut hashes[start..end])?;
            shape.base = prints.len() as u32;
            prints.resize(prints.len() + shape.places(), T::default());
            scratch.assign(shape, &mut prints[shape.range()], &print);
            parts.push(shape);
            start = end;
        }
        Some((parts.into(), prints.into()))
    }

    /// May a key with this hash be in the set?
    #[inline(always)]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        match &self.prints {
            Prints::Words(prints) => {
                let shape = &self.parts[part_of(hash, self.parts.len())];
                let mixed = shape.mixed(hash);
                let [a, b, c] = shape.three(mixed).map(|place| prints[(shape.base + place) as usize]);
                a ^ b ^ c == print_of(mixed)
            }
            Prints::Bytes(prints) => {
                let shape = &self.parts[part_of(hash, self.parts.len())];
                let mixed = shape.mixed(hash);
                let [a, b, c] = shape.three(mixed).map(|place| prints[(shape.base + place) as usize]);
                a ^ b ^ c == print_of(mixed) as u8
            }
            Prints::Never => false,
            Prints::Always => true,
        }
    }

    /// Asks the processor for what [`Filter::may_contain`] will look at.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let places = || {
            let shape = &self.parts[part_of(hash, self.parts.len())];
            shape.three(shape.mixed(hash)).map(|place| (shape.base + place) as usize)
        };
        match &self.prints {
            Prints::Words(prints) => places().map(|place| prefetch(&raw const prints[place])),
            Prints::Bytes(prints) => places().map(|place| prefetch(&raw const prints[place])),
            Prints::Never | Prints::Always => return,
        };
    }

    /// Memory that it takes beyond itself.
    pub(super) fn memory_bytes(&self) -> usize {
        let prints = match &self.prints {
            Prints::Bytes(prints) => prints.len(),
            Prints::Words(prints) => prints.len() * 2,
            Prints::Never | Prints::Always => 0,
        };
        prints + size_of_val(&*self.parts)
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
        bytes.extend_from_slice(&(self.parts.len() as u32).to_le_bytes());
        for shape in &self.parts {
            bytes.extend_from_slice(&shape.seed.to_le_bytes());
            bytes.extend_from_slice(&shape.segment.to_le_bytes());
            bytes.extend_from_slice(&shape.starts.to_le_bytes());
        }
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
        let count = reader.u32()?;
        if count > PARTS_MAX || (count > 0) != (kind == 1 || kind == 2) {
            return None;
        }
        let (mut parts, mut places) = (Vec::new(), 0_u32);
        for _ in 0..count {
            let shape =
                Shape { seed: reader.u64()?, base: places, segment: reader.u32()?, starts: reader.u32()? };
            let sane = shape.segment.is_power_of_two()
                && shape.segment <= 1 << 18
                && shape.starts > 0
                && shape.starts.is_multiple_of(shape.segment)
                && shape.starts < u32::MAX / 2;
            if !sane {
                return None;
            }
            places = places.checked_add(shape.places() as u32)?;
            parts.push(shape);
        }
        let prints = match kind {
            0 => Prints::Never,
            1 => Prints::Bytes(reader.bytes(places as usize)?.into()),
            2 => {
                let bytes = reader.bytes((places as usize).checked_mul(2)?)?;
                Prints::Words(
                    bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect(),
                )
            }
            3 => Prints::Always,
            _ => return None,
        };
        Some(Self { parts: parts.into(), prints })
    }
}

/// Stacks of places that can be taken out next. Each step needs what the one before on its stack has changed, and waits for
/// the cache; steps on several stacks do not wait for each other.
const STACKS: usize = 4;

impl Default for Scratch {
    fn default() -> Self {
        Self::within(usize::MAX, &Sum::default())
    }
}

impl Scratch {
    /// For a store with blocks in memory of so many bytes, whose share of memory it keeps to; `sum` counts what it takes.
    pub(super) fn within(block_bytes: usize, sum: &Sum) -> Self {
        let part_keys = (block_bytes / 16).clamp(PART_KEYS_MIN, PART_KEYS);
        Self {
            words: Vec::new(),
            alone: Vec::new(),
            order: Vec::new(),
            starts: Vec::new(),
            part_keys,
            held: Held::new(sum),
        }
    }

    /// Counts the memory that it has taken, from now on.
    fn count(&mut self) {
        let words = self.words.capacity() + self.order.capacity();
        self.held.set(
            words * size_of::<u64>() + (self.alone.capacity() + self.starts.capacity()) * size_of::<u32>(),
        );
    }

    /// Brings the hashes into the order of their parts; tells where each part ends.
    fn divide(&mut self, hashes: &mut [u64], ends: &mut [usize]) {
        let parts = ends.len();
        for hash in hashes.iter() {
            ends[part_of(*hash, parts)] += 1;
        }
        let mut start = 0;
        for end in ends.iter_mut() {
            (start, *end) = (start + *end, start);
        }
        self.order.clear();
        self.order.extend_from_slice(hashes);
        for hash in &self.order {
            let end = &mut ends[part_of(*hash, parts)];
            hashes[*end] = *hash;
            *end += 1;
        }
    }

    /// Tries seeds until an order is found.
    fn place_somehow(&mut self, hashes: &mut [u64]) -> Option<Shape> {
        let mut count = hashes.len();
        for attempt in 0..TRIES {
            if attempt == 2 {
                // Two in a row fail by chance once in thousands of filters; or hashes repeat.
                hashes.sort_unstable();
                count = 0;
                for at in 0..hashes.len() {
                    if count == 0 || hashes[at] != hashes[count - 1] {
                        hashes[count] = hashes[at];
                        count += 1;
                    }
                }
            }
            let seed = mix(attempt.wrapping_add(0x5eed) ^ (count as u64) << 32);
            let shape = Shape::for_keys(count, seed);
            if self.place(&hashes[..count], shape) {
                return Some(shape);
            }
        }
        None
    }

    /// Finds an order in which every hash has a place of its own after those behind it. `false`: none was found.
    fn place(&mut self, hashes: &[u64], shape: Shape) -> bool {
        let places = shape.places();
        self.words.clear();
        self.words.resize(places, 0);
        self.sort_by_place(hashes, shape);
        let words = &mut self.words[..];
        let mut full = false;
        for mixed in &self.order {
            for (which, place) in (0..).zip(shape.three(*mixed)) {
                let word = &mut words[place as usize];
                full |= *word & MOST == MOST;
                *word = word.wrapping_add(ONE) ^ (mixed | which);
            }
        }
        if full {
            return false;
        }
        // One more than places: what is on a stack is written before it is known to count.
        let room = places + 1;
        if self.alone.len() < STACKS * room {
            self.alone.resize(STACKS * room, 0);
        }
        let mut waiting = [0; STACKS];
        let share = places.div_ceil(STACKS);
        for (number, words) in words.chunks(share).enumerate() {
            let stack = &mut self.alone[number * room..][..room];
            for (place, word) in ((number * share) as u32..).zip(words) {
                stack[waiting[number]] = place;
                waiting[number] += usize::from(word & MOST == ONE);
            }
        }
        let mut done = 0;
        while waiting.iter().any(|waiting| *waiting > 0) {
            for (number, waiting) in waiting.iter_mut().enumerate() {
                if *waiting == 0 {
                    continue;
                }
                *waiting -= 1;
                let stack = &mut self.alone[number * room..][..room];
                let word = words[stack[*waiting] as usize];
                if word & MOST != ONE {
                    continue;
                }
                let (mixed, found) = (word & !LOW, word & WHICH);
                self.order[done] = mixed | found;
                done += 1;
                let three = shape.three(mixed);
                for other_which in [NEXT[found as usize], NEXT[NEXT[found as usize] as usize]] {
                    let other = three[other_which as usize];
                    let word = &mut words[other as usize];
                    stack[*waiting] = other;
                    *waiting += usize::from(*word & MOST == 2 * ONE);
                    *word = word.wrapping_sub(ONE) ^ (mixed | other_which);
                }
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
        self.count();
    }

    /// Gives the places their fingerprints, in the reverse of the order found.
    fn assign<T: Copy + std::ops::BitXor<Output = T>>(
        &self,
        shape: Shape,
        prints: &mut [T],
        print: impl Fn(u64) -> T,
    ) {
        for word in self.order.iter().rev() {
            let (mixed, found) = (word & !LOW, (word & WHICH) as usize);
            let three = shape.three(mixed);
            let [own, one, two] = [0, 1, 2].map(|step| three[(found + step) % 3] as usize);
            prints[own] = print(mixed) ^ prints[one] ^ prints[two];
        }
    }
}

/// The place of a key after each of its three.
const NEXT: [u64; 3] = [1, 2, 0];

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_base::rng::Rng;

    fn hashes(count: usize, seed: u64) -> Vec<u64> {
        let mut rng = Rng::new(seed);
        (0..count).map(|_| rng.next_u64()).collect()
    }

    #[test]
    fn entries_of_a_group_share_its_hash() {
        let (tailed, plain) = (1 << 32 | 1 << 31 | 5, 1 << 32 | 5);
        let entries: [&[u8]; 3] = [b"groupone\0\x03", b"groupthree\0\x05", b"group\0\0"];
        let group = hash_of_group(tailed, b"group");
        assert!(entries.iter().all(|key| hash_of(tailed, key) == group));
        assert!(entries.iter().all(|key| hash_of(plain, key) == hash_of_group(plain, key)));
        for odd in [&b"a\0\x02"[..], b"\0", b""] {
            assert_eq!(hash_of(tailed, odd), hash_of_group(tailed, odd));
        }
    }

    #[test]
    fn never_no_for_what_is_there_and_rarely_maybe_for_what_is_not() {
        let mut scratch = Scratch::default();
        for count in [1, 2, 3, 7, 50, 1000, 6000, 70_000, 700_000] {
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
        let parts = Filter::build(&mut hashes(3 * PART_KEYS / 2, 4), false, &mut scratch);
        assert_eq!(parts.parts.len(), 2);
        let mut bytes = Vec::new();
        parts.encode(&mut bytes);
        assert_eq!(Filter::decode(&mut Reader::new(&bytes)), Some(parts));
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
