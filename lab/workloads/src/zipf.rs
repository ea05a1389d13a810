//! Zipf's distribution over ranks `1..=n`: rank `k` has a probability proportional to `1 / k^theta`.
//!
//! [`Zipf`] draws exactly (up to the rounding of `f64`) by rejection-inversion after W. Hörmann and G. Derflinger,
//! "Rejection-inversion to generate variates from monotone discrete distributions", ACM TOMACS 6(3), 1996, for every
//! `theta >= 0`, 1 and above included. Nothing is summed or tabulated: set-up takes constant time, and so does a
//! change of `n`, which the distribution over the latest records needs. The usual generator of benchmarks (Gray et
//! al. 1994) is an approximation and defined for `theta < 1` only.
//!
//! Inversion: with `H(x) = (x^(1-theta) - 1) / (1 - theta)` (`ln x` for theta = 1), the integral of `h(x) = x^-theta`,
//! a uniform `u` in `(H(1.5) - h(1), H(n + 0.5)]` is mapped to `x = H⁻¹(u)`, and `k = round(x)` is accepted if
//! `u >= H(k + 0.5) - h(k)`. As `h` is convex that area of `k` fits into its strip, so every accepted `u` belongs to
//! exactly one `k` and has length `h(k)`. `k - x <= s` accepts most draws without computing the bound.
//!
//! [`Scatter`] spreads ranks over a key space: a keyed permutation of `0..n`, so that the popular records do not stand
//! side by side, yet each record keeps exactly one rank. (Hashing a rank modulo `n` merges some ranks and leaves a third of the
//! records without any.)
//!
//! Limits: `n` up to 2^52, where `n + 0.5` is still exact.

use crate::random::{Random, mix64};

/// The distribution; see the module.
#[derive(Clone, Debug)]
pub struct Zipf {
    elements: u64,
    theta: f64,
    h_integral_first: f64,
    h_integral_last: f64,
    threshold: f64,
}

/// Most elements that a [`Zipf`] may have.
pub const ELEMENTS_MAX: u64 = 1 << 52;

impl Zipf {
    /// Zipf's distribution over `1..=elements` with skew `theta` (0: uniform).
    ///
    /// # Panics
    /// If `elements` is 0 or above [`ELEMENTS_MAX`], or `theta` is negative or not finite.
    #[must_use]
    pub fn new(elements: u64, theta: f64) -> Self {
        assert!(
            theta.is_finite() && theta >= 0.0,
            "the skew of a Zipf distribution is 0 or more, not {theta}"
        );
        let mut zipf =
            Self { elements: 0, theta, h_integral_first: 0.0, h_integral_last: 0.0, threshold: 0.0 };
        zipf.h_integral_first = zipf.h_integral(1.5) - 1.0;
        zipf.threshold = 2.0 - zipf.h_integral_inverse(zipf.h_integral(2.5) - zipf.h(2.0));
        zipf.set_elements(elements);
        zipf
    }

    /// Changes the number of elements.
    ///
    /// # Panics
    /// If `elements` is 0 or above [`ELEMENTS_MAX`].
    pub fn set_elements(&mut self, elements: u64) {
        assert!((1..=ELEMENTS_MAX).contains(&elements), "a Zipf distribution over {elements} elements");
        if elements != self.elements {
            self.elements = elements;
            self.h_integral_last = self.h_integral(elements as f64 + 0.5);
        }
    }

    /// Number of elements.
    #[must_use]
    pub const fn elements(&self) -> u64 {
        self.elements
    }

    /// The skew.
    #[must_use]
    pub const fn theta(&self) -> f64 {
        self.theta
    }

    /// Draws a rank in `1..=elements`.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        if self.theta == 0.0 {
            return random.below(self.elements) + 1;
        }
        loop {
            // In (first, last]: `unit` is below 1.
            let u = self.h_integral_last + random.unit() * (self.h_integral_first - self.h_integral_last);
            let x = self.h_integral_inverse(u);
            // Rounding may carry the ends just outside.
            let k = ((x + 0.5) as u64).clamp(1, self.elements);
            let rank = k as f64;
            if rank - x <= self.threshold || u >= self.h_integral(rank + 0.5) - self.h(rank) {
                return k;
            }
        }
    }

    /// The probability of `rank`, by summation: for tests and for reports, in time proportional to the elements.
    #[must_use]
    pub fn probability(&self, rank: u64) -> f64 {
        // From the small terms to the large ones, which keeps the rounding error down.
        let sum: f64 = (1..=self.elements).rev().map(|k| self.h(k as f64)).sum();
        self.h(rank as f64) / sum
    }

    #[inline]
    fn h(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    #[inline]
    fn h_integral(&self, x: f64) -> f64 {
        let log_x = x.ln();
        expm1_over_x((1.0 - self.theta) * log_x) * log_x
    }

    #[inline]
    fn h_integral_inverse(&self, y: f64) -> f64 {
        // Rounding may carry the argument below the pole of the logarithm, at -1.
        let t = (y * (1.0 - self.theta)).max(-1.0);
        (ln1p_over_x(t) * y).exp()
    }
}

/// `ln(1 + x) / x`, continuous at 0.
#[inline]
fn ln1p_over_x(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x * (0.5 - x * (1.0 / 3.0 - 0.25 * x)) }
}

/// `(e^x - 1) / x`, continuous at 0.
#[inline]
fn expm1_over_x(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x * 0.5 * (1.0 + x * (1.0 / 3.0) * (1.0 + 0.25 * x)) }
}

/// A keyed permutation of `0..n`: mixing rounds on the smallest power of two that holds `n`, repeated while the
/// result lies outside (less than once on average).
#[derive(Clone, Debug)]
pub struct Scatter {
    elements: u64,
    mask: u64,
    shift: u32,
    keys: [u64; 2],
}

impl Scatter {
    /// The permutation of `0..elements` that belongs to `seed`.
    ///
    /// # Panics
    /// If `elements` is 0 or above [`ELEMENTS_MAX`].
    #[must_use]
    pub fn new(elements: u64, seed: u64) -> Self {
        assert!((1..=ELEMENTS_MAX).contains(&elements), "a permutation of {elements} elements");
        let bits = elements.next_power_of_two().trailing_zeros().max(1);
        let key = mix64(seed);
        Self { elements, mask: (1 << bits) - 1, shift: bits.div_ceil(2), keys: [key, mix64(key)] }
    }

    /// Where `rank` (counted from 0) goes.
    ///
    /// # Panics
    /// If `rank` is not below the number of elements.
    #[inline]
    #[must_use]
    pub fn place(&self, rank: u64) -> u64 {
        assert!(rank < self.elements, "rank {rank} of a permutation of {} elements", self.elements);
        let mut value = rank;
        loop {
            // Each step is a bijection of the masked numbers: adding, multiplying by an odd number, and xoring a
            // number with its own upper half.
            for (key, factor) in self.keys.into_iter().zip([0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb]) {
                value = value.wrapping_add(key) & self.mask;
                value ^= value >> self.shift;
                value = value.wrapping_mul(factor) & self.mask;
            }
            value ^= value >> self.shift;
            if value < self.elements {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws `draws` ranks and compares their frequencies with the exact probabilities by Pearson's chi-square.
    fn assert_exact(elements: u64, theta: f64, draws: u32) {
        let zipf = Zipf::new(elements, theta);
        let mut random = Random::new(elements ^ theta.to_bits());
        let mut counts = vec![0u32; elements as usize + 1];
        for _ in 0..draws {
            counts[zipf.draw(&mut random) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        let weight: Vec<f64> = (1..=elements).map(|k| (k as f64).powf(-theta)).collect();
        let sum: f64 = weight.iter().rev().sum();
        // Ranks are pooled until a pool expects at least ten draws.
        let (mut statistic, mut pools) = (0.0, 0u32);
        let (mut expected, mut observed) = (0.0, 0.0);
        for (weight, count) in weight.iter().zip(&counts[1..]) {
            expected += weight / sum * f64::from(draws);
            observed += f64::from(*count);
            if expected >= 10.0 {
                statistic += (observed - expected).powi(2) / expected;
                pools += 1;
                (expected, observed) = (0.0, 0.0);
            }
        }
        // What is left over joins the statistic as a pool of its own, if it expects anything worth counting.
        if expected >= 1.0 {
            statistic += (observed - expected).powi(2) / expected;
            pools += 1;
        }
        // Chi-square has mean k and variance 2k; five standard deviations.
        let freedom = f64::from(pools.max(2) - 1);
        let limit = freedom + 5.0 * (2.0 * freedom).sqrt();
        assert!(statistic <= limit, "n {elements}, theta {theta}: chi-square {statistic} of {pools} pools");
    }

    #[test]
    fn frequencies_are_exact_for_every_skew() {
        for theta in [0.0, 0.1, 0.5, 0.9, 0.99, 1.0 - 1e-12, 1.0, 1.0 + 1e-9, 1.01, 1.5, 2.0, 4.0] {
            for elements in [1, 2, 3, 10, 1_000] {
                assert_exact(elements, theta, 100_000);
            }
        }
    }

    #[test]
    fn large_ranges_are_exact_where_it_can_be_computed() {
        let (elements, draws) = (10_000_000u64, 300_000u32);
        for theta in [0.5, 0.99, 1.0, 1.2] {
            let zipf = Zipf::new(elements, theta);
            let mut random = Random::new(5);
            let mut head = 0u32;
            for _ in 0..draws {
                let rank = zipf.draw(&mut random);
                assert!((1..=elements).contains(&rank));
                head += u32::from(rank <= 100);
            }
            let weight = |k: u64| (k as f64).powf(-theta);
            let sum: f64 = (1..=elements).rev().map(weight).sum();
            let share = (1..=100).rev().map(weight).sum::<f64>() / sum;
            let deviation = (share * (1.0 - share) / f64::from(draws)).sqrt();
            let measured = f64::from(head) / f64::from(draws);
            assert!(
                (measured - share).abs() < 5.0 * deviation + 1e-9,
                "theta {theta}: {measured} for {share}"
            );
        }
    }

    #[test]
    fn a_wrong_skew_would_be_noticed() {
        // The test of frequencies is only worth something if it rejects a neighbouring distribution.
        let outcome = std::panic::catch_unwind(|| {
            let zipf = Zipf::new(1_000, 0.99);
            let mut random = Random::new(1);
            let mut first = 0u32;
            for _ in 0..100_000 {
                first += u32::from(zipf.draw(&mut random) == 1);
            }
            let wrong = Zipf::new(1_000, 0.90).probability(1);
            let deviation = (wrong * (1.0 - wrong) / 100_000.0).sqrt();
            assert!((f64::from(first) / 100_000.0 - wrong).abs() < 5.0 * deviation);
        });
        assert!(outcome.is_err());
    }

    #[test]
    fn the_number_of_elements_may_change() {
        let mut zipf = Zipf::new(10, 0.99);
        zipf.set_elements(1_000);
        let fresh = Zipf::new(1_000, 0.99);
        let (mut a, mut b) = (Random::new(2), Random::new(2));
        for _ in 0..1_000 {
            assert_eq!(zipf.draw(&mut a), fresh.draw(&mut b));
        }
    }

    #[test]
    fn probabilities_sum_to_one() {
        let zipf = Zipf::new(50, 1.3);
        let sum: f64 = (1..=50).map(|rank| zipf.probability(rank)).sum();
        assert!((sum - 1.0).abs() < 1e-12);
    }

    #[test]
    fn scattering_is_a_permutation() {
        for elements in [1u64, 2, 3, 7, 8, 9, 1_000, 1_024, 65_537] {
            for seed in 0..3 {
                let scatter = Scatter::new(elements, seed);
                let mut seen = vec![false; elements as usize];
                for rank in 0..elements {
                    let place = &mut seen[scatter.place(rank) as usize];
                    assert!(!*place, "two ranks of {elements} share a place");
                    *place = true;
                }
            }
        }
    }

    #[test]
    fn scattering_parts_neighbours() {
        let scatter = Scatter::new(10_000_000, 1);
        let mut close = 0;
        for rank in 0..10_000 {
            close += u32::from(scatter.place(rank).abs_diff(scatter.place(rank + 1)) < 100_000);
        }
        // Two random places lie closer than a hundredth of the range in about 2 % of the cases.
        assert!(close < 400, "{close} of 10,000 neighbours stay close");
        let low = (0..10_000).filter(|rank| scatter.place(*rank) < 5_000_000).count();
        assert!((4_500..5_500).contains(&low), "{low}");
    }
}
