//! Latencies: one histogram for each thread and kind of transaction, merged when the run is over.
//!
//! Values are nanoseconds, kept to three significant digits. Recording touches the owner's memory only.

use hdrhistogram::Histogram;
use serde::Serialize;

/// The largest latency that is told apart from larger ones: ten minutes.
const NANOSECONDS_MAX: u64 = 600_000_000_000;

/// Latencies as they are recorded.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, NANOSECONDS_MAX, 3).expect("the bounds and digits are valid"))
    }
}

impl Latencies {
    /// Records one latency.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds.max(1));
    }

    /// Adds what another thread recorded.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all histograms have the same bounds");
    }

    /// Number of latencies that were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The percentiles that results show.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        let at = |quantile| microseconds(self.0.value_at_quantile(quantile));
        Percentiles {
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: microseconds(self.0.max()),
        }
    }
}

/// Percentiles of latencies in microseconds; zeros when nothing was recorded.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct Percentiles {
    /// Half are faster.
    pub p50: f64,
    /// 95 % are faster.
    pub p95: f64,
    /// 99 % are faster.
    pub p99: f64,
    /// 99.9 % are faster.
    pub p999: f64,
    /// The slowest that was measured.
    pub max: f64,
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_come_from_all_threads() {
        let (mut one, mut other) = (Latencies::default(), Latencies::default());
        for value in 1..=500 {
            one.record(value * 1000);
            other.record((value + 500) * 1000);
        }
        one.merge(&other);
        assert_eq!(one.count(), 1000);
        let found = one.percentiles();
        for (value, expected) in
            [(found.p50, 500.0), (found.p95, 950.0), (found.p99, 990.0), (found.max, 1000.0)]
        {
            assert!((value - expected).abs() <= expected * 0.002, "{value} is not about {expected}");
        }
    }

    #[test]
    fn extremes_are_recorded() {
        let mut latencies = Latencies::default();
        latencies.record(0);
        latencies.record(u64::MAX);
        assert_eq!(latencies.count(), 2);
        assert!(latencies.percentiles().max >= 599_000_000.0);
    }

    #[test]
    fn nothing_recorded_is_zero() {
        assert_eq!(Latencies::default().percentiles(), Percentiles::default());
    }
}
