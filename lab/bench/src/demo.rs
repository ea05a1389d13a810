//! The same database twice: in memory, and under a memory limit that is several times smaller than it.
//!
//! ```text
//!   TPC-C without a limit ─► what it took in memory ─► TPC-C under that ÷ times as limit ─► both, side by side
//! ```

use std::path::Path;

use serde::Serialize;

use crate::inspect::aligned;
use crate::plot::{self, Line};
use crate::report::{Outcome, Report, Throughput, grouped, size};
use crate::run::{RunError, RunOptions, run};
use crate::settings::Settings;

/// Both runs.
#[derive(Clone, Debug, Serialize)]
pub struct Demo {
    /// The factor by which the database in memory is larger than the limit.
    pub times: f64,
    /// Without a limit.
    pub in_memory: Report,
    /// Under the limit.
    pub limited: Report,
}

/// Bytes that the rows, indexes and all that belongs to them took in the end; the log's ring is as large without any.
fn taken(found: &Throughput) -> u64 {
    found.memory_bytes.iter().filter(|(name, _)| *name != "log_buffer").map(|(_, bytes)| bytes).sum()
}

fn throughput(report: &Report) -> &Throughput {
    match &report.outcome {
        Outcome::Throughput(found) => found,
        Outcome::Delete(_) | Outcome::Recovery(_) => unreachable!("a demonstration runs transactions"),
    }
}

/// Runs `settings` without a limit, and again under one that is `times` smaller than what the first run took. Each has a
/// directory of its own below that of the settings.
///
/// # Errors
/// When there is nothing to report.
pub fn demonstrate(settings: &Settings, times: f64, options: &RunOptions<'_>) -> Result<Demo, RunError> {
    let none = |_: &Settings| Err("this benchmark needs no builder".to_owned());
    let mut settings = settings.clone();
    let dir = settings.data_dir.clone();
    settings.memory_limit_bytes = None;
    settings.data_dir = dir.join("in-memory");
    let in_memory = run(&settings, options, &none)?;
    let mebibytes = ((taken(throughput(&in_memory)) as f64 / times) as u64 >> 20).max(1);
    settings.memory_limit_bytes = Some(mebibytes << 20);
    settings.data_dir = dir.join("limited");
    let limited = run(&settings, options, &none)?;
    Ok(Demo { times, in_memory, limited })
}

impl Demo {
    /// Do all conditions hold that were checked?
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.in_memory.is_consistent() && self.limited.is_consistent()
    }

    /// The result as one JSON object.
    ///
    /// # Panics
    /// Never: a report has string keys only.
    #[must_use]
    pub fn to_json(&self) -> String {
        crate::report::json(self)
    }

    /// The result for people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let [all, part] = [&self.in_memory, &self.limited].map(throughput);
        let limit = self.limited.settings.memory_limit_bytes.unwrap_or_default();
        let mut lines = vec![vec![String::new(), "in memory".to_owned(), format!("under {}", size(limit))]];
        let mut line = |name: &str, of: &dyn Fn(&Throughput) -> String| {
            lines.push(vec![name.to_owned(), of(all), of(part)]);
        };
        let rate = |count: u64, of: &Throughput| grouped(count as f64 / of.seconds);
        line("transactions/s", &|of| grouped(of.throughput_tps));
        line("p50 µs", &|of| grouped(of.latency_us.p50));
        line("p99 µs", &|of| grouped(of.latency_us.p99));
        line("memory that the limit counts", &|of| size(of.memory_bytes.values().sum()));
        let most = |of: &Throughput| of.anonymous_bytes_max.map_or_else(|| "unknown".to_owned(), size);
        line("anonymous memory at most", &most);
        line("rows in the cold store", &|of| grouped(of.cold.rows_cold as f64));
        line("rows moved there/s", &|of| rate(of.cold.migrated_rows, of));
        line("rows brought back/s", &|of| rate(of.cold.promoted_rows, of));
        line("reads of the cold store/s", &|of| rate(of.cold.reads, of));
        line("consistency conditions", &|of| match &of.conditions {
            None => "not checked".to_owned(),
            Some(all) => match all.iter().filter(|condition| condition.violated > 0).count() {
                0 => format!("all {} hold", all.len()),
                violated => format!("{violated} VIOLATED"),
            },
        });
        let machine = &self.in_memory.machine;
        format!(
            "TPC-C, {} for each run, {} threads × {} in flight, durability {}\n{}, {} cores, {}\n\n{}\n\
             the database takes {} in memory: {:.1} times its limit; under it, it ran at {:.0} % of the speed\n",
            seconds(all.seconds),
            self.in_memory.settings.threads,
            self.in_memory.settings.in_flight,
            self.in_memory.settings.durability,
            machine.cpu,
            machine.cores,
            machine.kernel,
            aligned(&lines),
            size(taken(all)),
            taken(all) as f64 / limit.max(1) as f64,
            100.0 * part.throughput_tps / all.throughput_tps
        )
    }

    /// Plots the throughput of both runs over time.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn plot(&self, path: &Path) -> std::io::Result<()> {
        let line = |name: String, report: &Report| {
            let mut points: Vec<(f64, f64)> = Vec::new();
            let mut before = -1.0;
            for sample in throughput(report).samples.iter().filter(|sample| sample.at_seconds >= 0.0) {
                // The last one is of the moments in which clients end, and says little.
                if sample.at_seconds - before > 0.5 {
                    points.push((sample.at_seconds, sample.throughput_tps));
                }
                before = sample.at_seconds;
            }
            Line { name, points, paper: false }
        };
        let limit = size(self.limited.settings.memory_limit_bytes.unwrap_or_default());
        let lines =
            [line("in memory".to_owned(), &self.in_memory), line(format!("under {limit}"), &self.limited)];
        let title = format!("TPC-C in memory, and under {limit}");
        plot::lines(path, &title, ("seconds since measuring began", "transactions/s"), &lines)
    }
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.0} s")
}
