//! Skewed accesses for tests.

use thermocline_base::rng::Rng;

/// Zipf's distribution over `0..rows`, by its cumulative sums.
pub(super) struct Zipf(Vec<f64>);

impl Zipf {
    pub(super) fn new(rows: u64, theta: f64) -> Self {
        let mut sum = 0.0;
        Self(
            (1..=rows)
                .map(|rank| {
                    sum += (rank as f64).powf(-theta);
                    sum
                })
                .collect(),
        )
    }

    pub(super) fn draw(&self, rng: &mut Rng) -> u64 {
        let point = rng.unit() * self.0.last().expect("some rows");
        self.0.partition_point(|sum| *sum <= point) as u64
    }
}
