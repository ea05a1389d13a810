//! Randomness: a small seedable generator for workloads, tests and sampling, and fresh 128-bit ids.
//!
//! [`Rng`] is xoshiro256++ (Blackman and Vigna, 2019), seeded by SplitMix64: one seed gives one sequence on every
//! machine. It is no source of secrets. [`fresh_id`] and [`SystemDraw`] draw from the operating system, anew each time: so a
//! machine that goes on from its saved memory does not draw again what it has drawn before.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// A deterministic generator.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// The sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut mixed = state;
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ mixed >> 31
        }))
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// The next 32 bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// A number below `bound` (Lemire's multiplication; the bias is below `bound` / 2^64).
    ///
    /// # Panics
    /// When `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    ///
    /// # Panics
    /// When `low` is greater than `high`.
    #[inline]
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        assert!(low <= high, "an empty range");
        let width = high.wrapping_sub(low) as u64;
        if width == u64::MAX {
            self.next_u64() as i64
        } else {
            low.wrapping_add(self.below(width + 1) as i64)
        }
    }

    /// A number from 0 (included) to 1 (excluded).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with the given probability.
    #[inline]
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&self.next_u64().to_le_bytes()[..piece.len()]);
        }
    }

    /// A random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// A generator of its own, for another thread or purpose.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}

/// A source of numbers that were never drawn before.
pub trait Draw: Send + Sync + fmt::Debug {
    /// 64 bits.
    fn draw_u64(&self) -> u64;
}

/// The operating system's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SystemDraw;

impl Draw for SystemDraw {
    fn draw_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        system_bytes(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// 128 bits that were never drawn before, from the operating system.
#[must_use]
pub fn fresh_id() -> [u8; 16] {
    let mut id = [0; 16];
    system_bytes(&mut id);
    id
}

/// Fills with random bytes of the system; of the keys that `std` gives its hash maps where it has none to give.
fn system_bytes(bytes: &mut [u8]) {
    #[cfg(all(target_os = "linux", not(miri), not(feature = "portable")))]
    if rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())
        .is_ok_and(|n| n == bytes.len())
    {
        return;
    }
    for part in bytes.chunks_mut(8) {
        let drawn = RandomState::new().hash_one(std::process::id());
        part.copy_from_slice(&drawn.to_le_bytes()[..part.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let (mut one, mut two, mut other) = (Rng::new(42), Rng::new(42), Rng::new(43));
        let first: Vec<u64> = (0..100).map(|_| one.next_u64()).collect();
        assert!(first.iter().all(|number| *number == two.next_u64()));
        assert!(first.iter().any(|number| *number != other.next_u64()));
        // The reference implementation's answer for the state {1, 2, 3, 4}.
        let mut reference = Rng([1, 2, 3, 4]);
        assert_eq!([reference.next_u64(), reference.next_u64()], [41_943_041, 58_720_359]);
    }

    #[test]
    fn ranges_are_hit_at_both_ends() {
        let mut rng = Rng::new(7);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[(rng.between(-2, 2) + 2) as usize] = true;
            assert!(rng.below(3) < 3);
            assert!((0.0..1.0).contains(&rng.unit()));
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.between(9, 9), 9);
        let _ = rng.between(i64::MIN, i64::MAX);
    }

    #[test]
    fn shuffling_keeps_the_items() {
        let mut items: Vec<u32> = (0..50).collect();
        Rng::new(1).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn fresh_ids_differ() {
        assert_ne!(fresh_id(), fresh_id());
        assert_ne!(SystemDraw.draw_u64(), SystemDraw.draw_u64());
    }
}
