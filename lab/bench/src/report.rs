//! The result of a run: one JSON object for programs, one table for people.
//!
//! A result carries its settings, its machine and (unless it was skipped) the calibration, so that no reader has to
//! remember where a number came from.

mod places;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytesize::ByteSize;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use thermocline_engine::TableStatistics;

use crate::calibration::Calibration;
use crate::drive::{Measured, Sample};
use crate::latency::Percentiles;
use crate::machine::Machine;
use crate::settings::Settings;
pub use places::{Cold, Copies, Frozen, Paged};

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of Thermocline.
    pub version: &'static str,
    /// The settings of the run.
    pub settings: Settings,
    /// Where.
    pub machine: Machine,
    /// The machine's own speed just before; none if it was skipped.
    pub calibration: Option<Calibration>,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The outcome of a run.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// Of a benchmark that counts transactions.
    Throughput(Box<Throughput>),
    /// Of `delete`.
    Delete(Deleted),
    /// Of `recovery`.
    Recovery(Recovered),
}

/// Transactions and what they cost.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    /// Seconds that the load took.
    pub load_seconds: f64,
    /// Rows that it made.
    pub load_rows: u64,
    /// From the end of the warm-up until everything counted was on disk.
    pub seconds: f64,
    /// Commits after the warm-up.
    pub commits: u64,
    /// Commits after the warm-up, a second.
    pub throughput_tps: f64,
    /// Latencies of all kinds together.
    pub latency_us: Percentiles,
    /// One transaction in so many was timed.
    pub latency_timed_one_in: u32,
    /// Each kind of transaction.
    #[serde(serialize_with = "as_map")]
    pub by_type: Vec<(&'static str, ByType)>,
    /// Processor time of the whole process in the measured time: transactions, and all that goes on beside them.
    pub cpu_seconds: f64,
    /// The same by group of threads: clients, governor, freezer, store and so on.
    pub cpu_seconds_by_threads: BTreeMap<String, f64>,
    /// Rolled back as the workload wants it.
    pub rolled_back: u64,
    /// Given up after retries.
    pub gave_up: u64,
    /// Aborted attempts by cause, retried ones included.
    pub aborts: BTreeMap<String, u64>,
    /// The waits of transactions in the measured time, by their causes.
    pub waits: BTreeMap<String, Wait>,
    /// Memory at the end of the run, by component.
    pub memory_bytes: BTreeMap<String, u64>,
    /// The highest resident memory of the process during load and run.
    pub rss_bytes_max: Option<u64>,
    /// The most anonymous memory of the process during load and run, sampled every 10 ms.
    pub anonymous_bytes_max: Option<u64>,
    /// By how much anonymous memory and what the database counts differed, at most, seen once a second of the run. What the
    /// benchmark takes itself is in it.
    pub unattributed_bytes_max: Option<u64>,
    /// The disturbances of the database while it ran, and how its throughput came back.
    pub disturbed: Vec<Disturbed>,
    /// Rows outside of memory.
    pub cold: Cold,
    /// Rows that are compressed in memory, and chunks that have left it: what there was at the end, and since the opening.
    pub frozen: Frozen,
    /// Rows that are paged; none: none has gone over.
    pub paged: Option<Paged>,
    /// Log written in the measured time.
    pub log_bytes: u64,
    /// Checkpoints completed in the measured time.
    pub checkpoints: u64,
    /// Throughput second by second.
    pub samples: Vec<Sample>,
    /// The levels of memory and disk, second by second.
    pub levels: Vec<Level>,
    /// When checkpoints began and ended.
    pub checkpoint_marks: Vec<Mark>,
    /// The consistency conditions that were checked after the run.
    pub conditions: Option<Vec<Condition>>,
}

/// Seconds at the end of a run that is twice as long or longer, of which the cost of a transaction is told apart.
const LAST_SECONDS: f64 = 40.0;

impl Throughput {
    /// Processor time of a transaction in the last `seconds`, in microseconds; `None` where the run is not twice as long.
    fn cpu_us_in_the_last(&self, seconds: f64) -> Option<f64> {
        let last = self.levels.last()?;
        let from = last.at_seconds - seconds;
        let first = self.levels.iter().rfind(|level| level.at_seconds <= from)?;
        let commits = last.commits.saturating_sub(first.commits);
        let is_long = self.seconds >= 2.0 * seconds && commits > 0;
        is_long.then(|| (last.cpu_seconds - first.cpu_seconds) * 1e6 / commits as f64)
    }

    /// Where the rows of each table are at the end, with what has come and gone since measuring began.
    fn tables_since_measuring(&self) -> BTreeMap<String, TableLevel> {
        let Some(last) = self.levels.last() else { return BTreeMap::new() };
        let first = self.levels.iter().rfind(|level| level.at_seconds <= 0.0).or(self.levels.first());
        let before = |name| first.and_then(|level| level.tables.get(name)).copied().unwrap_or_default();
        last.tables.iter().map(|(name, table)| (name.clone(), table.since(&before(name)))).collect()
    }
}

/// The levels at one moment of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Level {
    /// When, in seconds since measuring began; negative while warming up.
    pub at_seconds: f64,
    /// Commits since the database was opened.
    pub commits: u64,
    /// Processor time of the process since it began.
    pub cpu_seconds: f64,
    /// Memory that the database counts.
    pub memory_bytes: u64,
    /// Anonymous memory of the process.
    pub anonymous_bytes: Option<u64>,
    /// Notices in the update memo.
    pub memo_rows: u64,
    /// Rows in memory, with those that have left with their chunk and that a snapshot may still see there.
    pub rows_hot: u64,
    /// Of these, rows in blocks.
    pub rows_frozen: u64,
    /// Rows in the cold store.
    pub rows_cold: u64,
    /// Rows on the paged side, those that came back or were changed since among them. They count as rows in memory, too.
    pub rows_paged: u64,
    /// Bytes of the cold store on disk.
    pub cold_disk_bytes: u64,
    /// Bytes of log and checkpoints on disk; none: their folders cannot be read.
    pub log_disk_bytes: Option<u64>,
    /// The same of each table that has rows.
    pub tables: BTreeMap<String, TableLevel>,
}

/// Where the rows of a table are at one moment, and how many have come and gone since the database was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TableLevel {
    /// Rows in memory.
    pub hot: u64,
    /// Of these, rows in blocks.
    pub frozen: u64,
    /// Rows in the cold store.
    pub cold: u64,
    /// Rows that froze, each time.
    pub froze: u64,
    /// Rows that thawed.
    pub thawed: u64,
    /// Rows that left memory with their chunk.
    pub left: u64,
    /// Rows that left memory one by one.
    pub moved: u64,
    /// Rows that came back because they were read often.
    pub promoted: u64,
}

impl TableLevel {
    /// Where the rows of a table are.
    pub(crate) fn of(found: &TableStatistics) -> Self {
        Self {
            hot: found.rows_hot,
            frozen: found.rows_frozen,
            cold: found.rows_cold,
            froze: found.frozen_rows,
            thawed: found.thawed_rows,
            left: found.left_rows,
            moved: found.moved_rows,
            promoted: found.promoted_rows,
        }
    }

    /// The same, with what has come and gone counted from `before` on.
    const fn since(self, before: &Self) -> Self {
        Self {
            froze: self.froze - before.froze,
            thawed: self.thawed - before.thawed,
            left: self.left - before.left,
            moved: self.moved - before.moved,
            promoted: self.promoted - before.promoted,
            ..self
        }
    }
}

/// One kind of transaction.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ByType {
    /// Commits after the warm-up.
    pub commits: u64,
    /// The same, a second.
    pub throughput_tps: f64,
    /// Its latencies.
    pub latency_us: Percentiles,
}

/// Something that was done to a database that ran, and what became of its throughput.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Disturbed {
    /// `shift`: other rows became the popular ones. `restart`: it was closed and opened again.
    pub what: &'static str,
    /// When, in measured seconds.
    pub at_seconds: f64,
    /// Transactions a second in the ten seconds before; before the first, if there are several.
    pub before_tps: f64,
    /// The same in the slowest second after.
    pub least_tps: f64,
    /// Seconds until three seconds together had 90 % of that; none: they never had, until the next one. Closing is not in it,
    /// opening is.
    pub back_seconds: Option<f64>,
}

/// Waits for one kind of thing, of all transactions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Wait {
    /// Number of waits.
    pub count: u64,
    /// Seconds that they took together.
    pub seconds: f64,
}

/// A checkpoint begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// Seconds since measuring began.
    pub at_seconds: f64,
    /// Does one begin here? Else one ends.
    pub begins: bool,
}

/// A consistency condition.
#[derive(Clone, Debug, Serialize)]
pub struct Condition {
    /// Its number in the specification.
    pub number: u32,
    /// Its statement.
    pub statement: String,
    /// Warehouses, districts or rows that were looked at.
    pub checked: u64,
    /// Number of them that violate it.
    pub violated: u64,
    /// The first violations.
    pub violations: Vec<String>,
}

/// The findings of `delete`.
#[derive(Clone, Debug, Serialize)]
pub struct Deleted {
    /// Rows that were deleted.
    pub rows_deleted: u64,
    /// Rows that moved into the cold store instead.
    pub rows_migrated: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// Resident memory before the load.
    pub rss_bytes_empty: u64,
    /// Resident memory with all rows.
    pub rss_bytes_full: u64,
    /// Resident memory in the end.
    pub rss_bytes_after: u64,
    /// The part of what all rows took that went back to the operating system.
    pub given_back_percent: f64,
    /// The part of what the rows that went had taken, if each row took the same, that did.
    pub given_back_of_theirs_percent: f64,
    /// Memory that each row in the cold store takes: all of the table's, its indexes', the filters', fences' and the memo's
    /// beyond the part of the former of the rows that stay. Not with rows that are deleted.
    pub resident_bytes_per_cold_row: Option<f64>,
    /// Of that, filters, fences and the memo.
    pub store_bytes_per_cold_row: Option<f64>,
    /// Processor time of the process for each row that moved, in microseconds.
    pub cpu_us_per_migrated_row: Option<f64>,
    /// Seconds from the last row's end until resident memory fell no further.
    pub given_back_seconds: f64,
    /// Memory in the end, by component.
    pub memory_bytes: BTreeMap<String, u64>,
    /// Rows outside of memory, from the opening on.
    pub cold: Cold,
}

/// The findings of `recovery`.
#[derive(Clone, Debug, Serialize)]
pub struct Recovered {
    /// Log written after the checkpoint that followed the load.
    pub log_bytes: u64,
    /// Bytes of the database on disk when its process ended.
    pub disk_bytes: u64,
    /// Transactions that had been acknowledged after the load.
    pub commits: u64,
    /// From opening to the first answer.
    pub open_seconds: f64,
    /// Log replayed a second.
    pub replay_bytes_per_s: f64,
    /// The highest resident memory while opening.
    pub rss_bytes_max: Option<u64>,
    /// Rows outside of memory, from the opening on.
    pub cold: Cold,
    /// The consistency conditions that were checked afterwards.
    pub conditions: Option<Vec<Condition>>,
}

/// A result as one JSON object, and the end of a line.
///
/// # Panics
/// When a map in it has other keys than strings, which none of ours has.
pub(crate) fn json(result: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(result).expect("a report has string keys only");
    text.push('\n');
    text
}

fn as_map<S: Serializer, V: Serialize>(entries: &[(&'static str, V)], to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(entries.len()))?;
    for (name, value) in entries {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

impl Throughput {
    /// The part of the result that the driver knows; the caller fills in the rest.
    #[must_use]
    pub fn of(measured: &Measured, time_one_in: u32) -> Self {
        let by_type = measured.kinds.iter().map(|kind| {
            let by_type = ByType {
                commits: kind.commits,
                throughput_tps: kind.commits as f64 / measured.seconds,
                latency_us: kind.latencies.percentiles(),
            };
            (kind.name, by_type)
        });
        Self {
            load_seconds: 0.0,
            load_rows: 0,
            seconds: measured.seconds,
            commits: measured.commits(),
            throughput_tps: measured.throughput_tps(),
            latency_us: measured.latencies().percentiles(),
            latency_timed_one_in: time_one_in,
            by_type: by_type.collect(),
            cpu_seconds: 0.0,
            cpu_seconds_by_threads: BTreeMap::new(),
            rolled_back: measured.rolled_back,
            gave_up: measured.gave_up,
            aborts: BTreeMap::new(),
            waits: BTreeMap::new(),
            memory_bytes: BTreeMap::new(),
            rss_bytes_max: None,
            anonymous_bytes_max: None,
            unattributed_bytes_max: None,
            disturbed: Vec::new(),
            cold: Cold::default(),
            frozen: Frozen::default(),
            paged: None,
            log_bytes: 0,
            checkpoints: 0,
            samples: measured.samples.clone(),
            levels: Vec::new(),
            checkpoint_marks: Vec::new(),
            conditions: None,
        }
    }
}

impl Report {
    /// A result with this machine and version.
    #[must_use]
    pub fn new(settings: Settings, calibration: Option<Calibration>, outcome: Outcome) -> Self {
        Self { version: env!("CARGO_PKG_VERSION"), settings, machine: Machine::here(), calibration, outcome }
    }

    /// Does every condition that was checked hold?
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let conditions = match &self.outcome {
            Outcome::Throughput(throughput) => &throughput.conditions,
            Outcome::Recovery(recovered) => &recovered.conditions,
            Outcome::Delete(_) => &None,
        };
        conditions.iter().flatten().all(|condition| condition.violated == 0)
    }

    /// The result as one JSON object.
    ///
    /// # Panics
    /// Never: a report has string keys only.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// The result for people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut table = Table::default();
        table.machine(self);
        match &self.outcome {
            Outcome::Throughput(throughput) => table.throughput(throughput),
            Outcome::Delete(deleted) => table.deleted(deleted),
            Outcome::Recovery(recovered) => table.recovered(recovered),
        }
        table.0
    }
}

#[derive(Default)]
struct Table(String);

impl Table {
    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        writeln!(self.0, "{name:<22}{value}").expect("writing to a string");
    }

    fn machine(&mut self, report: &Report) {
        let settings = &report.settings;
        self.line(
            settings.benchmark.name(),
            format_args!(
                "{} threads × {} in flight, {} isolation, durability {}",
                settings.threads, settings.in_flight, settings.isolation, settings.durability
            ),
        );
        let machine = &report.machine;
        self.line("machine", format_args!("{}, {} cores, {}", machine.cpu, machine.cores, machine.kernel));
        if let Some(found) = &report.calibration {
            self.line(
                "calibration",
                format_args!(
                    "{:.0} ns a random read of memory ({:.0} with huge pages), {} device reads/s at depth 64{}, \
                     {} fdatasync/s",
                    found.dram_random_read_ns,
                    found.dram_random_read_huge_pages_ns,
                    grouped(found.device_reads_per_s_depth64),
                    if found.device_direct { "" } else { " (cached)" },
                    grouped(found.fdatasync_per_s)
                ),
            );
        }
    }

    fn throughput(&mut self, found: &Throughput) {
        if found.load_rows > 0 {
            let rate = grouped(found.load_rows as f64 / found.load_seconds.max(1e-9));
            let rows = grouped(found.load_rows as f64);
            self.line("load", format_args!("{rows} rows in {:.1} s ({rate} rows/s)", found.load_seconds));
        }
        self.line(
            "throughput",
            format_args!("{} transactions/s over {:.2} s", grouped(found.throughput_tps), found.seconds),
        );
        self.0.push('\n');
        writeln!(
            self.0,
            "{:<18}{:>14}{:>12}{:>10}{:>10}{:>10}{:>10}{:>11}",
            "", "commits", "tx/s", "p50 µs", "p95 µs", "p99 µs", "p99.9 µs", "max µs"
        )
        .expect("writing to a string");
        let ran = found.by_type.iter().filter(|(_, kind)| kind.commits > 0);
        let kinds = ran.clone().count();
        for (name, kind) in ran {
            self.kind(name, kind.commits, kind.throughput_tps, &kind.latency_us);
        }
        if kinds > 1 {
            self.kind("all", found.commits, found.throughput_tps, &found.latency_us);
        }
        if found.latency_timed_one_in > 1 {
            writeln!(self.0, "(one transaction in {} was timed)", found.latency_timed_one_in)
                .expect("writing to a string");
        }
        self.0.push('\n');
        let causes = found.aborts.iter().filter(|(_, count)| **count > 0);
        let mut causes: Vec<String> =
            causes.map(|(cause, count)| format!("{cause} {}", grouped(*count as f64))).collect();
        if found.gave_up > 0 {
            causes.push(format!("given up {}", grouped(found.gave_up as f64)));
        }
        self.line("aborts", if causes.is_empty() { "none".to_owned() } else { causes.join(", ") });
        let mut waits: Vec<_> = found.waits.iter().filter(|(_, wait)| wait.count > 0).collect();
        waits.sort_by(|(_, one), (_, other)| other.seconds.total_cmp(&one.seconds));
        let all = |seconds: f64| seconds / found.seconds.max(f64::MIN_POSITIVE);
        let waits = waits.into_iter().map(|(of, wait)| {
            let us = wait.seconds * 1e6 / wait.count as f64;
            format!("{of} {:.2} ({} of {us:.0} µs)", all(wait.seconds), grouped(wait.count as f64))
        });
        let waits: Vec<String> = waits.collect();
        if found.commits > 0 {
            let us = |seconds: f64| seconds * 1e6 / found.commits as f64;
            let (each, share) = (us(found.cpu_seconds), all(found.cpu_seconds));
            self.line("processor time", format_args!("{each:.1} µs a transaction, {share:.2} processors"));
            let mut groups: Vec<(&String, f64)> =
                found.cpu_seconds_by_threads.iter().map(|(group, seconds)| (group, us(*seconds))).collect();
            groups.sort_by(|(_, a), (_, b)| b.total_cmp(a));
            let groups: Vec<String> = groups
                .into_iter()
                .filter(|(_, us)| *us >= 0.005)
                .map(|(group, us)| format!("{group} {us:.2}"))
                .collect();
            if !groups.is_empty() {
                self.line("", format_args!("of these µs: {}", groups.join(", ")));
            }
            if let Some(last) = found.cpu_us_in_the_last(LAST_SECONDS) {
                self.line("", format_args!("{last:.1} µs a transaction in the last {LAST_SECONDS:.0} s"));
            }
        }
        if !waits.is_empty() {
            self.line("waiting", format_args!("transactions at a time for {}", waits.join(", ")));
        }
        if found.rolled_back > 0 {
            self.line(
                "rolled back",
                format_args!("{} (as the workload wants it)", grouped(found.rolled_back as f64)),
            );
        }
        self.memory(&found.memory_bytes, found.rss_bytes_max);
        if let (Some(most), Some(off)) = (found.anonymous_bytes_max, found.unattributed_bytes_max) {
            let text = format_args!("{} at most, {} of them not counted above", size(most), size(off));
            self.line("anonymous memory", text);
        }
        self.frozen(&found.frozen);
        self.tables(&found.tables_since_measuring());
        self.paged(found.paged.as_ref());
        self.cold(&found.cold);
        for of in &found.disturbed {
            let back = match of.back_seconds {
                Some(seconds) => format!("90 % of that again after {seconds:.0} s"),
                None => "not 90 % of that again".to_owned(),
            };
            let (before, least) = (grouped(of.before_tps), grouped(of.least_tps));
            let at = of.at_seconds;
            self.line(
                of.what,
                format_args!("at {at:.0} s: {before}/s before, {least}/s at the least, {back}"),
            );
        }
        self.line("log", size(found.log_bytes));
        self.line("checkpoints", found.checkpoints);
        self.conditions(found.conditions.as_deref());
    }

    fn kind(&mut self, name: &str, commits: u64, tps: f64, latency: &Percentiles) {
        writeln!(
            self.0,
            "{name:<18}{:>14}{:>12}{:>10}{:>10}{:>10}{:>10}{:>11}",
            grouped(commits as f64),
            grouped(tps),
            short(latency.p50),
            short(latency.p95),
            short(latency.p99),
            short(latency.p999),
            short(latency.max)
        )
        .expect("writing to a string");
    }

    fn memory(&mut self, components: &BTreeMap<String, u64>, rss_bytes_max: Option<u64>) {
        let parts: Vec<String> = components
            .iter()
            .filter(|(_, bytes)| **bytes > 0)
            .map(|(name, bytes)| format!("{name} {}", size(*bytes)))
            .collect();
        if !parts.is_empty() {
            self.line("memory", parts.join(", "));
        }
        if let Some(bytes) = rss_bytes_max {
            self.line("resident memory", format_args!("{} at most", size(bytes)));
        }
    }

    fn paged(&mut self, found: Option<&Paged>) {
        let Some(found) = found else { return };
        self.line(
            "paged",
            format_args!(
                "{} rows on {} ({} in memory, pager {} on {}), {} pages in, {} rows over at {:.2} µs, {} came back",
                grouped(found.rows as f64),
                size(found.paged_bytes),
                size(found.resident_bytes),
                found.pager,
                found.medium,
                grouped(found.page_ins as f64),
                grouped(found.rows_over as f64),
                found.cpu_us_per_row_over,
                grouped(found.came_back as f64),
            ),
        );
        self.copies(found.copies.as_ref());
    }

    fn copies(&mut self, found: Option<&Copies>) {
        let Some(found) = found else { return };
        let count = |number: u64| grouped(number as f64);
        self.line(
            "copies",
            format_args!(
                "{} of {} pages on {}, which had {} of {} pages that were read; {} late, {} faults, {} dropped, {} written",
                count(found.pages),
                count(found.pages_max),
                found.medium,
                count(found.hits),
                count(found.reads),
                count(found.late),
                count(found.faults),
                count(found.dropped),
                size(found.write_bytes),
            ),
        );
    }

    fn frozen(&mut self, found: &Frozen) {
        if found.frozen_rows == 0 {
            return;
        }
        let count = |number: u64| grouped(number as f64);
        self.line(
            "frozen",
            format_args!(
                "{} rows in {} chunks ({}), {} froze ({:.2} µs of CPU each), {} thawed, {} left in {} chunks ({:.2} µs of CPU \
                 each)",
                count(found.rows_frozen),
                count(found.chunks_frozen),
                size(found.bytes_blocks),
                count(found.frozen_rows),
                found.cpu_us_per_frozen_row,
                count(found.thawed_rows),
                count(found.left_rows),
                count(found.left_chunks),
                found.cpu_us_per_left_row,
            ),
        );
    }

    /// The tables of which rows have come or gone in the measured time.
    fn tables(&mut self, found: &BTreeMap<String, TableLevel>) {
        for (name, table) in found {
            let TableLevel { hot, frozen, cold, froze, thawed, left, moved, promoted } = *table;
            let traffic = [
                (froze, "froze"),
                (thawed, "thawed"),
                (left, "left in chunks"),
                (moved, "left one by one"),
                (promoted, "came back"),
            ];
            let count = |rows: u64| grouped(rows as f64);
            let traffic: Vec<String> = traffic
                .into_iter()
                .filter(|(rows, _)| *rows > 0)
                .map(|(rows, did)| format!("{} {did}", count(rows)))
                .collect();
            if !traffic.is_empty() {
                let (hot, frozen, cold) = (count(hot), count(frozen), count(cold));
                let there = format!("{hot} rows in memory, {frozen} of them frozen, {cold} cold");
                self.line(&format!("  {name}"), format_args!("{there}; {}", traffic.join(", ")));
            }
        }
    }

    fn cold(&mut self, found: &Cold) {
        if *found == Cold::default() {
            return;
        }
        let count = |number: u64| grouped(number as f64);
        self.line(
            "cold",
            format_args!(
                "{} rows ({:.1} bytes of memory each), {} reads ({} of the device, {} for nothing), {} migrated \
                 ({:.2} µs of CPU each), {} promoted, {} notices, {} written, {} waits for memory (up to {:.0} ms), \
                 {} snapshots cancelled",
                count(found.rows_cold),
                found.bytes_per_cold_row,
                count(found.reads),
                count(found.device_reads),
                count(found.filter_false_positives),
                count(found.migrated_rows),
                found.cpu_us_per_migrated_row,
                count(found.promoted_rows),
                count(found.memo_rows),
                size(found.device_write_bytes),
                count(found.memory_waits),
                found.memory_wait_us_max as f64 / 1e3,
                count(found.cancelled_snapshots)
            ),
        );
        self.copies(found.copies.as_ref());
    }

    fn conditions(&mut self, conditions: Option<&[Condition]>) {
        let Some(conditions) = conditions else { return };
        self.0.push('\n');
        let broken = conditions.iter().filter(|condition| condition.violated > 0).count();
        if broken == 0 {
            self.line("consistency", format_args!("all {} conditions hold", conditions.len()));
        } else {
            self.line(
                "consistency",
                format_args!("{broken} of {} conditions are VIOLATED", conditions.len()),
            );
        }
        self.0.push_str(&conditions_text(conditions));
    }

    fn deleted(&mut self, found: &Deleted) {
        self.line(
            if found.rows_migrated > 0 { "migrated" } else { "deleted" },
            format_args!(
                "{} rows in {:.1} s",
                grouped((found.rows_migrated + found.rows_deleted) as f64),
                found.seconds
            ),
        );
        self.line(
            "resident memory",
            format_args!(
                "{} empty, {} with all rows, {} in the end",
                size(found.rss_bytes_empty),
                size(found.rss_bytes_full),
                size(found.rss_bytes_after)
            ),
        );
        self.line(
            "given back",
            format_args!(
                "{:.1} % of what the rows took ({:.1} % of what those took that went), within {:.1} s",
                found.given_back_percent, found.given_back_of_theirs_percent, found.given_back_seconds
            ),
        );
        if let (Some(bytes), Some(store), Some(cpu)) =
            (found.resident_bytes_per_cold_row, found.store_bytes_per_cold_row, found.cpu_us_per_migrated_row)
        {
            self.line(
                "a cold row",
                format_args!(
                    "{bytes:.2} bytes of memory, {store:.2} of them filters, fences and memo; {cpu:.2} µs of processor \
                     time to move it"
                ),
            );
        }
        self.memory(&found.memory_bytes, None);
    }

    fn recovered(&mut self, found: &Recovered) {
        self.line(
            "on disk",
            format_args!("{}, log to replay {}", size(found.disk_bytes), size(found.log_bytes)),
        );
        self.line("commits", grouped(found.commits as f64));
        self.line(
            "open",
            format_args!(
                "{:.2} s ({} of log a second)",
                found.open_seconds,
                size(found.replay_bytes_per_s as u64)
            ),
        );
        self.memory(&BTreeMap::new(), found.rss_bytes_max);
        self.conditions(found.conditions.as_deref());
    }
}

/// One line for each condition, and the first violations under those that have any.
#[must_use]
pub fn conditions_text(conditions: &[Condition]) -> String {
    let mut text = String::new();
    for Condition { number, statement, checked, violated, violations } in conditions {
        let checked = grouped(*checked as f64);
        let verdict = if *violated == 0 { "holds".to_owned() } else { format!("{violated} VIOLATED") };
        writeln!(text, "  {number:>2}. {verdict}, {checked} checked: {statement}")
            .expect("writing to a string");
        for violation in violations.iter().take(5) {
            writeln!(text, "        {violation}").expect("writing to a string");
        }
    }
    text
}

/// A byte count for people.
#[must_use]
pub fn size(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

/// A whole number with its thousands told apart.
#[must_use]
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.max(0.0));
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three digits or so.
fn short(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => grouped(v),
    }
}
