//! The findings of a simulation, as a table, as JSON and as plots.

use std::path::{Path, PathBuf};

use serde::Serialize;
use thermocline_pool::simulate::Outcome;

use super::{SimulateSettings, WriteMode};
use crate::inspect::aligned;
use crate::plot::{self, Line};
use crate::report::{grouped, size};

/// One policy with one size over one trace.
#[derive(Clone, Debug, Serialize)]
pub struct SimulationRow {
    /// The trace, or `model:NAME`.
    pub trace: String,
    /// The policy; `none`: without an SSD.
    pub policy: String,
    /// Frames before the SSD.
    pub dram_bytes: u64,
    /// The SSD.
    pub ssd_bytes: u64,
    /// Requests of the trace.
    pub requests: u64,
    /// Reads that missed the frames.
    pub ssd_requests: u64,
    /// Those of them that the SSD answered.
    pub ssd_hits: u64,
    /// Their share.
    pub hit_ratio: f64,
    /// Pages read from the SSD.
    pub ssd_reads: u64,
    /// Pages written to it.
    pub ssd_writes: u64,
    /// Pages read from the disk that did not follow the last one.
    pub disk_reads_random: u64,
    /// Pages read from the disk that did.
    pub disk_reads_sequential: u64,
    /// Pages written to the disk.
    pub disk_writes: u64,
    /// Pages written to the journal.
    pub journal_writes: u64,
    /// Simulated seconds of all I/O, each operation after the one before.
    pub io_seconds: f64,
    /// Requests below the frames that the simulator did in a second of a processor.
    pub requests_per_s: f64,
    /// Memory of the policy, by page of the SSD.
    pub policy_bytes_per_page: f64,
}

/// The rows, and what was emulated.
#[derive(Clone, Debug, Serialize)]
pub struct SimulationReport {
    /// The version of Thermocline.
    pub version: &'static str,
    /// The models that stand for the devices.
    pub emulated: String,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages of an extent.
    pub extent_pages: u32,
    /// The model of the disk.
    pub disk: String,
    /// The model of the SSD.
    pub ssd: String,
    /// The way that changed pages take.
    pub mode: WriteMode,
    /// The part of its model's size that a database has.
    pub scale: f64,
    /// The seed of models.
    pub seed: u64,
    /// The findings.
    pub rows: Vec<SimulationRow>,
}

pub(super) fn rows(trace: &str, settings: &SimulateSettings, outcome: &Outcome) -> Vec<SimulationRow> {
    let row = |row: &thermocline_pool::simulate::Row| {
        let counts = row.counts;
        SimulationRow {
            trace: trace.to_owned(),
            policy: row.policy.map_or("none", |policy| policy.name()).to_owned(),
            dram_bytes: settings.dram_bytes,
            ssd_bytes: u64::from(row.slots) * settings.page_bytes,
            requests: outcome.frames.requests,
            ssd_requests: counts.reads,
            ssd_hits: counts.hits,
            hit_ratio: counts.hits as f64 / counts.reads.max(1) as f64,
            ssd_reads: counts.ssd_reads,
            ssd_writes: counts.ssd_writes,
            disk_reads_random: counts.disk_reads_random,
            disk_reads_sequential: counts.disk_reads_sequential,
            disk_writes: counts.disk_writes,
            journal_writes: counts.journal_writes,
            io_seconds: counts.io_ns / 1e9,
            requests_per_s: row.requests as f64 / row.cpu_ns as f64 * 1e9,
            policy_bytes_per_page: row.policy_bytes as f64 / f64::from(row.slots.max(1)),
        }
    };
    outcome.rows.iter().map(row).collect()
}

impl SimulationReport {
    pub(super) fn new(settings: &SimulateSettings, rows: Vec<SimulationRow>) -> Self {
        let (disk, ssd) = (settings.devices.disk.name.clone(), settings.devices.ssd.name.clone());
        Self {
            version: env!("CARGO_PKG_VERSION"),
            emulated: format!(
                "both devices: disk {disk}, SSD {ssd}; seconds of I/O are simulated, one operation after the other"
            ),
            page_bytes: settings.page_bytes,
            extent_pages: settings.extent_pages,
            disk,
            ssd,
            mode: settings.mode,
            scale: settings.scale,
            seed: settings.seed,
            rows,
        }
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
        let mode = match self.mode {
            WriteMode::WriteThrough => "write-through",
            WriteMode::WriteBack => "write-back",
        };
        let mut text = format!(
            "emulated {}\npages    {}, extents of {}, {mode}\n",
            self.emulated,
            size(self.page_bytes),
            self.extent_pages
        );
        for trace in self.traces() {
            let of: Vec<&SimulationRow> = self.rows.iter().filter(|row| row.trace == trace).collect();
            let requests = grouped(of[0].requests as f64);
            let below = grouped(of[0].ssd_requests as f64);
            let dram = size(of[0].dram_bytes);
            text += &format!("\n{trace}: {requests} requests, {below} reads below {dram} of frames\n");
            text += &aligned(&Self::lines(&of));
        }
        text
    }

    fn lines(rows: &[&SimulationRow]) -> Vec<Vec<String>> {
        let head = [
            "policy",
            "SSD",
            "hits %",
            "I/O s",
            "of none",
            "random reads",
            "sequential",
            "disk writes",
            "SSD writes",
        ];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        let none = rows[0].io_seconds;
        for row in rows {
            lines.push(vec![
                row.policy.clone(),
                if row.ssd_bytes == 0 { String::new() } else { size(row.ssd_bytes) },
                format!("{:.1}", 100.0 * row.hit_ratio),
                format!("{:.1}", row.io_seconds),
                format!("{:.2}", row.io_seconds / none),
                grouped(row.disk_reads_random as f64),
                grouped(row.disk_reads_sequential as f64),
                grouped(row.disk_writes as f64),
                grouped(row.ssd_writes as f64),
            ]);
        }
        lines
    }

    fn traces(&self) -> Vec<String> {
        let mut traces: Vec<String> = self.rows.iter().map(|row| row.trace.clone()).collect();
        traces.dedup();
        traces
    }

    /// Writes table, JSON and two plots of each trace (hits and seconds of I/O by size) into a directory.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, dir: &Path) -> std::io::Result<Vec<PathBuf>> {
        let mut written = Vec::new();
        for (name, text) in [("simulate.txt", self.to_table()), ("simulate.json", self.to_json())] {
            let path = dir.join(name);
            std::fs::write(&path, text)?;
            written.push(path);
        }
        let hits: fn(&SimulationRow) -> f64 = |row| 100.0 * row.hit_ratio;
        let seconds: fn(&SimulationRow) -> f64 = |row| row.io_seconds;
        for (number, trace) in self.traces().iter().enumerate() {
            for (what, y, of) in [("hits", "hits of the SSD, %", hits), ("io", "simulated I/O, s", seconds)] {
                let path = dir.join(format!("simulate-{number}-{what}.svg"));
                let title = format!("{trace}, emulated: {} and {}", self.disk, self.ssd);
                plot::lines(&path, &title, ("SSD, MiB", y), &self.plotted(trace, of))?;
                written.push(path);
            }
        }
        Ok(written)
    }

    fn plotted(&self, trace: &str, of: fn(&SimulationRow) -> f64) -> Vec<Line> {
        let rows = || self.rows.iter().filter(|row| row.trace == trace && row.policy != "none");
        let mut names: Vec<&str> = rows().map(|row| row.policy.as_str()).collect();
        names.dedup();
        let line = |name: &str| Line {
            name: name.to_owned(),
            points: rows()
                .filter(|row| row.policy == name)
                .map(|row| (row.ssd_bytes as f64 / 1_048_576.0, of(row)))
                .collect(),
            paper: false,
        };
        names.into_iter().map(line).collect()
    }
}
