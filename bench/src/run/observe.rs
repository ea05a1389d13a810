//! What the engine tells while a run goes on: the progress line, checkpoint marks, and counters relative to the start
//! of the measured time.

use std::collections::BTreeMap;

use thermocline_engine::Database;

use super::resident;
use crate::drive::{Failure, Glance, Phase, Watcher};
use crate::machine;
use crate::progress::Progress;
use crate::report::{Mark, Throughput, grouped};
use crate::settings::Settings;

/// The engine's counters at one moment, in the words of a result.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    pub(super) commits: u64,
    pub(super) aborts: BTreeMap<String, u64>,
    pub(super) memory_bytes: BTreeMap<String, u64>,
    pub(super) log_bytes: u64,
    pub(super) checkpoints: u64,
    pub(super) checkpoint_runs: bool,
}

/// Watches a run on a database.
pub(super) struct Observer<'a> {
    database: &'a Database,
    progress: &'a mut Progress,
    settings: &'a Settings,
    at_start: Numbers,
    checkpoint_runs: bool,
    marks: Vec<Mark>,
}

impl<'a> Observer<'a> {
    pub(super) fn new(database: &'a Database, progress: &'a mut Progress, settings: &'a Settings) -> Self {
        let at_start = Numbers::of(database);
        let checkpoint_runs = at_start.checkpoint_runs;
        Self { database, progress, settings, at_start, checkpoint_runs, marks: Vec::new() }
    }

    /// Adds what the engine knows of the run.
    pub(super) fn finish(self, found: &mut Throughput) {
        let at_end = Numbers::of(self.database);
        found.aborts = at_end
            .aborts
            .into_iter()
            .map(|(cause, count)| {
                let before = self.at_start.aborts.get(&cause).copied().unwrap_or(0);
                (cause, count - before)
            })
            .collect();
        found.log_bytes = at_end.log_bytes - self.at_start.log_bytes;
        found.checkpoints = at_end.checkpoints - self.at_start.checkpoints;
        found.checkpoint_marks = self.marks;
        found.memory_bytes = at_end.memory_bytes;
        found.rss_bytes_max = machine::rss_bytes_max();
    }
}

impl Watcher for Observer<'_> {
    fn measuring(&mut self) {
        self.at_start = Numbers::of(self.database);
    }

    fn look(&mut self, at_seconds: f64) {
        let runs = Numbers::of(self.database).checkpoint_runs;
        if runs != self.checkpoint_runs {
            self.checkpoint_runs = runs;
            self.marks.push(Mark { at_seconds, begins: runs });
        }
    }

    fn second(&mut self, glance: Glance) {
        let Settings { warm_up_seconds, seconds, benchmark, .. } = self.settings;
        let name = benchmark.name();
        self.progress.show(|| {
            let rate = grouped(glance.throughput_tps);
            let (what, at, of) = match glance.phase {
                Phase::WarmUp => ("warming up", glance.at_seconds + warm_up_seconds, warm_up_seconds),
                _ => ("measuring", glance.at_seconds, seconds),
            };
            format!("{name}: {what} {at:.0}/{of:.0} s, {rate} transactions/s, resident {}", resident())
        });
    }

    fn settle(&mut self) -> Result<(), Failure> {
        Ok(self.database.flush()?)
    }
}
