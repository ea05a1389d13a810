//! What the engine tells while a run goes on: the progress line, checkpoint marks, and counters relative to the start
//! of the measured time.

use std::collections::BTreeMap;

use thermocline_engine::{AbortCounts, Database, MemoryUse};

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
}

impl Numbers {
    pub(super) fn of(database: &Database) -> Self {
        let found = database.statistics();
        let AbortCounts { serialization, deadlock, duplicate_key, out_of_memory, idle, other, .. } =
            found.aborts;
        let MemoryUse { versions, slots, hash_indexes, ordered_indexes, log_buffer, .. } = found.memory;
        let named = |numbers: &[(&str, u64)]| {
            numbers.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect()
        };
        Self {
            commits: found.commits + found.read_only_commits,
            aborts: named(&[
                ("serialization", serialization),
                ("deadlock", deadlock),
                ("duplicate_key", duplicate_key),
                ("out_of_memory", out_of_memory),
                ("idle", idle),
                ("other", other),
            ]),
            memory_bytes: named(&[
                ("versions", versions),
                ("slots", slots),
                ("hash_indexes", hash_indexes),
                ("ordered_indexes", ordered_indexes),
                ("log_buffer", log_buffer),
                ("other", found.memory.other),
            ]),
            log_bytes: found.log_bytes,
            checkpoints: found.checkpoints,
        }
    }
}

/// Watches a run on a database.
pub(super) struct Observer<'a> {
    database: &'a Database,
    progress: &'a mut Progress,
    settings: &'a Settings,
    at_start: Numbers,
    /// Checkpoints that had begun and that had ended at the last look.
    checkpoints: (u64, u64),
    marks: Vec<Mark>,
}

impl<'a> Observer<'a> {
    pub(super) fn new(database: &'a Database, progress: &'a mut Progress, settings: &'a Settings) -> Self {
        let at_start = Numbers::of(database);
        let mut observer =
            Self { database, progress, settings, at_start, checkpoints: (0, 0), marks: Vec::new() };
        observer.checkpoints = observer.count_checkpoints();
        observer
    }

    fn count_checkpoints(&self) -> (u64, u64) {
        let found = self.database.statistics();
        (found.checkpoints_begun, found.checkpoints)
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
        let (begun, ended) = self.count_checkpoints();
        let before = std::mem::replace(&mut self.checkpoints, (begun, ended));
        // A short one may begin and end between two looks; one may also end just before the next one begins.
        let ended_an_older_one = ended > before.1 && before.0 > before.1;
        if ended_an_older_one {
            self.marks.push(Mark { at_seconds, begins: false });
        }
        if begun > before.0 {
            self.marks.push(Mark { at_seconds, begins: true });
            if ended == begun {
                self.marks.push(Mark { at_seconds, begins: false });
            }
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
