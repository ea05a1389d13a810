//! Hits of an SSD over time: what the first reads of an opening find, and what the last ones before it had found.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thermocline_engine::Database;

/// Number of reads that are looked at, at the beginning and at the end.
pub(super) const READS: u64 = 100_000;

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Reads and hits at some moment.
type Moment = (u64, u64);

/// Reads and hits of an SSD since some opening, moment after moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Moments(Vec<Moment>);

impl Moments {
    pub(super) fn look(&mut self, database: &Database) {
        let Some(ssd) = database.statistics().cold.ssd else { return };
        let now = (ssd.counts.reads, ssd.counts.hits);
        if self.0.last() != Some(&now) {
            self.0.push(now);
        }
    }

    /// Does some work, and notes reads and hits meanwhile.
    pub(super) fn during<T>(database: &Database, work: impl FnOnce() -> T) -> (T, Self) {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watch = || {
                let mut moments = Self::default();
                while !done.load(Ordering::Relaxed) {
                    moments.look(database);
                    std::thread::sleep(LOOK_EVERY);
                }
                moments.look(database);
                moments
            };
            let watcher = scope.spawn(watch);
            // A panic of the work must not leave the watcher waiting.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            done.store(true, Ordering::Relaxed);
            let moments = watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match result {
                Ok(result) => (result, moments),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    fn between(from: Moment, to: Moment) -> Option<f64> {
        let reads = to.0.checked_sub(from.0).filter(|reads| *reads > 0)?;
        Some(to.1.saturating_sub(from.1) as f64 / reads as f64)
    }

    /// The hit ratio of the first [`READS`] reads after the opening, or of all if there are fewer; and of how many.
    pub(super) fn first(&self) -> Option<(f64, u64)> {
        let end = self.0.iter().find(|(reads, _)| *reads >= READS).or(self.0.last())?;
        Some((Self::between((0, 0), *end)?, end.0))
    }

    /// The hit ratio of the first [`READS`] reads after the opening, if there were so many.
    pub(super) fn first_when_done(&self) -> Option<f64> {
        self.first().filter(|(_, reads)| *reads >= READS).map(|(ratio, _)| ratio)
    }

    /// The hit ratio of the last [`READS`] reads, or of all that were seen if there are fewer.
    pub(super) fn last(&self) -> Option<f64> {
        let end = *self.0.last()?;
        let begin = self.0.iter().rev().find(|(reads, _)| reads + READS <= end.0).or(self.0.first())?;
        Self::between(*begin, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_reads_are_told_apart() {
        let moments =
            Moments(vec![(0, 0), (60_000, 6_000), (100_000, 20_000), (200_000, 100_000), (300_000, 190_000)]);
        assert_eq!(moments.first(), Some((0.2, 100_000)));
        assert_eq!(moments.last(), Some(0.9));
        assert_eq!(moments.first_when_done(), Some(0.2));
        let few = Moments(vec![(10, 1), (50, 31)]);
        assert_eq!(few.first_when_done(), None);
        assert_eq!((few.first(), few.last()), (Some((0.62, 50)), Some(0.75)));
        assert_eq!((Moments::default().first(), Moments::default().last()), (None, None));
    }
}
