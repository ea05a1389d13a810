//! Disturbances of a database that runs, and the time that its throughput takes to come back: its hot set moves, or
//! it is closed and opened again.

use thermocline_base::sync::{AtomicU64, Ordering};

use crate::drive::{Sample, Watcher};
use crate::report::Disturbed;

/// The throughput is back when it is this part of what it was.
const BACK: f64 = 0.9;
/// Seconds over which that is looked at, before and after.
const SECONDS_BEFORE: usize = 10;
const SECONDS_AFTER: usize = 3;

/// When other rows become the popular ones, in measured seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shifts {
    pub(super) first: Option<f64>,
    pub(super) every: Option<f64>,
}

impl Shifts {
    /// Number of shifts until `seconds`.
    fn until(self, seconds: f64) -> u64 {
        match (self.first, self.every) {
            (Some(first), _) if seconds < first => 0,
            (Some(first), Some(every)) => 1 + ((seconds - first) / every) as u64,
            (Some(_), None) => 1,
            (None, _) => 0,
        }
    }

    /// All of them that have an effect, with the time until the next one, or the end.
    pub(super) fn all(self, seconds: f64) -> Vec<(f64, f64)> {
        let count = self.until(seconds);
        let at = |number: u64| self.first.unwrap_or(0.0) + number as f64 * self.every.unwrap_or(0.0);
        (0..count)
            .map(|number| (at(number), if number + 1 < count { at(number + 1) } else { seconds }))
            .filter(|(at, _)| *at < seconds)
            .collect()
    }
}

/// Says so when other rows become the popular ones, and passes everything on to another watcher.
pub(super) struct At<'a, W> {
    pub(super) watcher: W,
    pub(super) shifts: Shifts,
    /// Number of times that it has happened.
    pub(super) shifted: &'a AtomicU64,
}

impl<W: Watcher> Watcher for At<'_, W> {
    fn measuring(&mut self) {
        self.watcher.measuring();
    }

    fn look(&mut self, at_seconds: f64) {
        self.shifted.store(self.shifts.until(at_seconds), Ordering::Relaxed);
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

/// The course of the throughput after `at_seconds`, of which the first `lost_seconds` had none.
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
    fn shifts_come_at_their_times() {
        let shifts = Shifts { first: Some(20.0), every: Some(15.0) };
        assert_eq!([0.0, 19.9, 20.0, 34.9, 35.0, 66.0].map(|at| shifts.until(at)), [0, 0, 1, 1, 2, 4]);
        assert_eq!(shifts.all(60.0), [(20.0, 35.0), (35.0, 50.0), (50.0, 60.0)]);
        let once = Shifts { first: Some(20.0), every: None };
        assert_eq!((once.until(1e9), once.all(60.0)), (1, vec![(20.0, 60.0)]));
        assert_eq!((Shifts::default().until(1e9), Shifts::default().all(60.0)), (0, Vec::new()));
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
