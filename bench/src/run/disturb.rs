//! What is done to a database that runs, and how long its throughput takes to come back: its hot set moves, or it is closed
//! and opened again.

use thermocline_base::sync::{AtomicBool, Ordering};

use crate::drive::{Sample, Watcher};
use crate::report::Disturbed;

/// The throughput is back when it is this part of what it was.
const BACK: f64 = 0.9;
/// Seconds over which that is looked at, before and after.
const SECONDS_BEFORE: usize = 10;
const SECONDS_AFTER: usize = 3;

/// Says so when a moment of the measured time has come, and passes everything on to another watcher.
pub(super) struct At<'a, W> {
    pub(super) watcher: W,
    pub(super) seconds: Option<f64>,
    pub(super) shifted: &'a AtomicBool,
}

impl<W: Watcher> Watcher for At<'_, W> {
    fn measuring(&mut self) {
        self.watcher.measuring();
    }

    fn look(&mut self, at_seconds: f64) {
        if self.seconds.is_some_and(|seconds| at_seconds >= seconds) {
            self.shifted.store(true, Ordering::Relaxed);
        }
        self.watcher.look(at_seconds);
    }

    fn second(&mut self, glance: crate::drive::Glance) {
        self.watcher.second(glance);
    }

    fn settle(&mut self) -> Result<(), crate::drive::Failure> {
        self.watcher.settle()
    }
}

/// Mean of the last seconds up to `at_seconds`.
pub(super) fn before(samples: &[Sample], at_seconds: f64) -> f64 {
    let until = samples.partition_point(|sample| sample.at_seconds <= at_seconds + 0.05);
    mean(&samples[until.saturating_sub(SECONDS_BEFORE)..until])
}

/// How the throughput went on after `at_seconds`, of which the first `lost_seconds` had none.
pub(super) fn disturbed(
    what: &'static str,
    at_seconds: f64,
    before_tps: f64,
    samples: &[Sample],
    lost_seconds: f64,
) -> Disturbed {
    let from = samples.partition_point(|sample| sample.at_seconds <= at_seconds + 0.05);
    let after = &samples[from..];
    let back = after.windows(SECONDS_AFTER).find(|window| mean(window) >= BACK * before_tps);
    Disturbed {
        what,
        at_seconds,
        before_tps,
        least_tps: after.iter().map(|sample| sample.throughput_tps).fold(before_tps, f64::min),
        back_seconds: back.map(|window| lost_seconds + window[0].at_seconds - at_seconds),
    }
}

fn mean(samples: &[Sample]) -> f64 {
    samples.iter().map(|sample| sample.throughput_tps).sum::<f64>() / samples.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rates: &[f64]) -> Vec<Sample> {
        let sample =
            |(at, rate): (usize, &f64)| Sample { at_seconds: at as f64 + 1.0, throughput_tps: *rate };
        rates.iter().enumerate().map(sample).collect()
    }

    #[test]
    fn the_throughput_is_back_when_it_stays() {
        let run = samples(&[100.0, 110.0, 90.0, 20.0, 95.0, 40.0, 80.0, 95.0, 96.0]);
        assert_eq!(before(&run, 3.0), 100.0);
        let found = disturbed("shift", 3.0, 100.0, &run, 0.0);
        assert_eq!((found.least_tps, found.back_seconds), (20.0, Some(4.0)));
        assert_eq!(disturbed("restart", 3.0, 100.0, &run, 2.5).back_seconds, Some(6.5));
        assert_eq!(disturbed("shift", 3.0, 120.0, &run, 0.0).back_seconds, None);
        assert_eq!(disturbed("shift", 9.0, 100.0, &run, 0.0).back_seconds, None);
    }
}
