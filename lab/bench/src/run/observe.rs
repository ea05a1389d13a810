//! Observation of the engine while a run goes on: the progress line, checkpoint marks, and counters relative to the
//! start of the measured time.

use std::collections::BTreeMap;

use thermocline_base::clock::process_cpu_ns;
use thermocline_engine::{AbortCounts, Database};

use super::files::on_disk;
use super::resident;
use crate::drive::{Failure, Glance, Phase, Watcher};
use crate::machine;
use crate::peak::anonymous_bytes;
use crate::progress::Progress;
use crate::report::{Cold, Frozen, Level, Mark, Paged, TableLevel, Throughput, Wait, grouped};
use crate::settings::Settings;
use crate::threads;

/// The engine's counters at one moment, in the words of a result.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    pub(super) commits: u64,
    pub(super) cpu_ns: u64,
    pub(super) cpu_ns_by_group: BTreeMap<&'static str, u64>,
    pub(super) aborts: BTreeMap<String, u64>,
    pub(super) waits: BTreeMap<String, Wait>,
    pub(super) memory_bytes: BTreeMap<String, u64>,
    pub(super) cold: Cold,
    pub(super) frozen: Frozen,
    pub(super) paged: Option<Paged>,
    pub(super) log_bytes: u64,
    pub(super) checkpoints: u64,
}

impl Numbers {
    pub(super) fn of(database: &Database) -> Self {
        let found = database.statistics();
        let AbortCounts { serialization, deadlock, duplicate_key, out_of_memory, idle, other, .. } =
            found.aborts;
        let named = |numbers: &[(&str, u64)]| {
            numbers.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect()
        };
        Self {
            commits: found.commits + found.read_only_commits,
            cpu_ns: process_cpu_ns(),
            cpu_ns_by_group: threads::cpu_ns_by_group(),
            aborts: named(&[
                ("serialization", serialization),
                ("deadlock", deadlock),
                ("duplicate_key", duplicate_key),
                ("out_of_memory", out_of_memory),
                ("idle", idle),
                ("other", other),
            ]),
            waits: found
                .waits
                .parts()
                .map(|(name, total)| {
                    let wait = Wait { count: total.count, seconds: total.ns as f64 / 1e9 };
                    (name.to_owned(), wait)
                })
                .collect(),
            memory_bytes: found.memory.parts().map(|(name, bytes)| (name.to_owned(), bytes)).collect(),
            cold: Cold::of(&found.cold),
            frozen: Frozen::of(&found.frozen),
            paged: found.paged.as_ref().map(Paged::of),
            log_bytes: found.log_bytes,
            checkpoints: found.checkpoints,
        }
    }
}

/// Folders of a database's directory that recovery reads: log and checkpoints.
const RECOVERED_FROM: [&str; 2] = ["log", "checkpoint"];

/// Watches a run on a database.
pub(super) struct Observer<'a> {
    database: &'a Database,
    progress: &'a mut Progress,
    settings: &'a Settings,
    at_start: Numbers,
    /// Checkpoints that had begun and that had ended at the last look.
    checkpoints: (u64, u64),
    marks: Vec<Mark>,
    unattributed_bytes_max: Option<u64>,
    levels: Vec<Level>,
    /// Rows when measuring began.
    rows_at_start: u64,
}

impl<'a> Observer<'a> {
    pub(super) fn new(database: &'a Database, progress: &'a mut Progress, settings: &'a Settings) -> Self {
        let at_start = Numbers::of(database);
        let mut observer = Self {
            database,
            progress,
            settings,
            at_start,
            checkpoints: (0, 0),
            marks: Vec::new(),
            unattributed_bytes_max: None,
            levels: Vec::new(),
            rows_at_start: 0,
        };
        observer.checkpoints = observer.count_checkpoints();
        observer
    }

    fn count_checkpoints(&self) -> (u64, u64) {
        let found = self.database.checkpoints();
        (found.begun, found.completed)
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
        found.cpu_seconds = at_end.cpu_ns.saturating_sub(self.at_start.cpu_ns) as f64 / 1e9;
        found.cpu_seconds_by_threads = threads::seconds_between(
            &self.at_start.cpu_ns_by_group,
            &at_end.cpu_ns_by_group,
            found.cpu_seconds,
        );
        found.waits = at_end
            .waits
            .into_iter()
            .map(|(of, wait)| {
                let before = self.at_start.waits.get(&of).copied().unwrap_or_default();
                (of, Wait { count: wait.count - before.count, seconds: wait.seconds - before.seconds })
            })
            .collect();
        found.log_bytes = at_end.log_bytes - self.at_start.log_bytes;
        found.checkpoints = at_end.checkpoints - self.at_start.checkpoints;
        found.checkpoint_marks = self.marks;
        found.memory_bytes = at_end.memory_bytes;
        let (end, start) = (at_end.cold, self.at_start.cold);
        found.frozen = at_end.frozen;
        found.paged = at_end.paged.map(|end| end.since(self.at_start.paged.as_ref()));
        found.cold = Cold {
            reads: end.reads - start.reads,
            device_reads: end.device_reads - start.device_reads,
            device_write_bytes: end.device_write_bytes - start.device_write_bytes,
            filter_false_positives: end.filter_false_positives - start.filter_false_positives,
            migrated_rows: end.migrated_rows - start.migrated_rows,
            promoted_rows: end.promoted_rows - start.promoted_rows,
            cancelled_snapshots: end.cancelled_snapshots - start.cancelled_snapshots,
            memory_waits: end.memory_waits - start.memory_waits,
            copies: end.copies.map(|copies| copies.since(start.copies.as_ref())),
            ..end
        };
        found.rss_bytes_max = machine::rss_bytes_max();
        found.unattributed_bytes_max = self.unattributed_bytes_max;
        found.levels = self.levels;
    }

    /// Bytes of log and checkpoints on disk; `None`: their folders cannot be read.
    fn log_disk_bytes(&self) -> Option<u64> {
        RECOVERED_FROM.iter().map(|folder| on_disk(&self.settings.data_dir.join(folder)).ok()).sum()
    }

    /// Notes the memory that is there, the part of it that the database knows, and the other levels.
    fn note_level(&mut self, at_seconds: f64) {
        let (found, anonymous_bytes) = (self.database.statistics(), anonymous_bytes());
        let tables = tables_of(self.database);
        let memory_bytes = found.memory.total();
        if let Some(there) = anonymous_bytes {
            let off = there.abs_diff(memory_bytes);
            self.unattributed_bytes_max = self.unattributed_bytes_max.max(Some(off));
        }
        self.levels.push(Level {
            at_seconds,
            commits: found.commits + found.read_only_commits,
            cpu_seconds: process_cpu_ns() as f64 / 1e9,
            memory_bytes,
            anonymous_bytes,
            memo_rows: found.cold.memo_rows,
            rows_hot: tables.values().map(|table| table.hot).sum(),
            rows_frozen: found.frozen.rows_frozen,
            rows_cold: found.cold.rows_cold,
            rows_paged: found.paged.map_or(0, |paged| paged.rows),
            cold_disk_bytes: found.cold.disk_bytes,
            log_disk_bytes: self.log_disk_bytes(),
            tables,
        });
    }
}

/// Where the rows of each table are.
fn tables_of(database: &Database) -> BTreeMap<String, TableLevel> {
    let names = database.table_names().into_iter();
    let tables = names.filter_map(|name| Some((database.table(&name).ok()?, name)));
    tables.map(|(table, name)| (name, TableLevel::of(&table.statistics()))).collect()
}

/// Rows of all tables in memory.
fn rows_hot(database: &Database) -> u64 {
    tables_of(database).values().map(|table| table.hot).sum()
}

impl Watcher for Observer<'_> {
    fn measuring(&mut self) {
        self.at_start = Numbers::of(self.database);
        self.rows_at_start = rows_hot(self.database) + self.database.statistics().cold.rows_cold;
    }

    fn is_enough(&self) -> bool {
        let Some(level) = self.levels.last() else { return false };
        let (rows, bytes) = (level.rows_hot + level.rows_cold, level.memory_bytes + level.cold_disk_bytes);
        self.settings.grow_rows.is_some_and(|grow| rows >= self.rows_at_start + grow)
            || self.settings.until_bytes.is_some_and(|until| bytes >= until)
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
        self.note_level(glance.at_seconds);
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
