//! The report of `bench paged`: each run, and the median of each contender.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::drive::Measured;
use super::{Contender, PagedSettings};
use crate::latency::Percentiles;
use crate::machine::Machine;
use crate::report::json;

/// The counts of a pager during a run, or its holdings at the end.
pub(super) struct Counted {
    pub(super) page_ins: u64,
    pub(super) page_outs: u64,
    pub(super) net_faults: u64,
    pub(super) major_faults: u64,
    pub(super) pinned_bytes: u64,
    pub(super) paged_bytes: u64,
    pub(super) resident_bytes: u64,
    pub(super) locked_bytes: u64,
    pub(super) table_bytes: u64,
    pub(super) lost_servers: u64,
}

/// One turn of a contender.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Whose.
    pub contender: Contender,
    /// Which turn, from 0.
    pub round: u32,
    /// The bound of the paged side.
    pub bound: &'static str,
    /// Threads that read.
    pub threads: usize,
    /// Accesses in flight on each.
    pub in_flight: usize,
    /// Accesses a second.
    pub accesses_per_s: f64,
    /// Pages that came in, a second.
    pub page_ins_per_s: f64,
    /// Pages that came in, an access.
    pub page_ins_per_access: f64,
    page_outs_per_s: f64,
    access_us: Percentiles,
    /// Of those that had to await a page; zeros where no access awaits.
    wait_us: Percentiles,
    cpu_us_per_access: f64,
    /// All processor time of the process, hits included.
    cpu_us_per_page_in: Option<f64>,
    server_cpu_us_per_page_in: Option<f64>,
    net_faults: u64,
    major_faults: u64,
    pinned_bytes: u64,
    paged_bytes: u64,
    /// At the end.
    resident_bytes: u64,
    locked_bytes: u64,
    table_bytes: u64,
    lost_servers: u64,
}

impl Run {
    pub(super) fn new(
        contender: Contender,
        round: u32,
        bound: &'static str,
        measured: &Measured,
        counted: Counted,
    ) -> Self {
        let (accesses, page_ins) = (measured.accesses.max(1) as f64, counted.page_ins as f64);
        let per_page_in = |us: f64| (counted.page_ins > 0).then(|| us / page_ins);
        Self {
            contender,
            round,
            bound: if contender == Contender::Memory { "none" } else { bound },
            threads: measured.threads,
            in_flight: measured.tasks,
            accesses_per_s: measured.accesses as f64 / measured.seconds,
            page_ins_per_s: page_ins / measured.seconds,
            page_ins_per_access: page_ins / accesses,
            page_outs_per_s: counted.page_outs as f64 / measured.seconds,
            access_us: measured.access.percentiles(),
            wait_us: measured.waits.percentiles(),
            cpu_us_per_access: measured.cpu_us / accesses,
            cpu_us_per_page_in: per_page_in(measured.cpu_us),
            server_cpu_us_per_page_in: match contender {
                Contender::Remote => measured.server_cpu_us.and_then(per_page_in),
                _ => None,
            },
            net_faults: counted.net_faults,
            major_faults: counted.major_faults,
            pinned_bytes: counted.pinned_bytes,
            paged_bytes: counted.paged_bytes,
            resident_bytes: counted.resident_bytes,
            locked_bytes: counted.locked_bytes,
            table_bytes: counted.table_bytes,
            lost_servers: counted.lost_servers,
        }
    }
}

/// The device that is read when a page is not there.
#[derive(Clone, Debug, Serialize)]
struct Device {
    dir: String,
    /// Pages a second past the system's cache, at random, as many in flight as accesses.
    reads_per_s: f64,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct PagedReport {
    settings: PagedSettings,
    machine: Machine,
    device: Device,
    /// The parts that are emulated.
    emulated: Vec<String>,
    /// Of each contender the run with the median rate.
    medians: Vec<Run>,
    /// All of them.
    runs: Vec<Run>,
}

impl PagedReport {
    pub(super) fn new(
        settings: PagedSettings,
        machine: Machine,
        dir: &Path,
        reads_per_s: f64,
        runs: Vec<Run>,
    ) -> Self {
        let mut emulated = Vec::new();
        if settings.contenders.contains(&Contender::Remote) {
            if settings.servers.starts_with("spawn:") {
                emulated
                    .push("memory servers are processes of this machine and share its processors".to_owned());
            }
            if settings.profile != "none" {
                emulated.push(format!("their network behaves like {}", settings.profile));
            }
        }
        if runs.iter().any(|run| run.bound == "trimmer") {
            let text = "no control group could be made: what leaves under os is chosen by a trimmer that does not look at use";
            emulated.push(text.to_owned());
        }
        let median = |contender: &Contender| {
            let mut own: Vec<&Run> = runs.iter().filter(|run| run.contender == *contender).collect();
            own.sort_by(|a, b| a.accesses_per_s.total_cmp(&b.accesses_per_s));
            own.get(own.len() / 2).map(|run| (*run).clone())
        };
        let medians = settings.contenders.iter().filter_map(median).collect();
        let device = Device { dir: dir.display().to_string(), reads_per_s };
        Self { settings, machine, device, emulated, medians, runs }
    }

    /// As one JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// The run of each contender with the median rate.
    #[must_use]
    pub fn medians(&self) -> &[Run] {
        &self.medians
    }

    /// As lines for people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let settings = &self.settings;
        let data = settings.tuples * u64::from(settings.tuple_bytes);
        let mut text = format!(
            "paged: {} tuples of {} bytes ({:.2} × the memory of {} MiB), θ {}, medians of {}\n",
            settings.tuples,
            settings.tuple_bytes,
            data as f64 / settings.memory_bytes as f64,
            settings.memory_bytes >> 20,
            settings.theta,
            settings.rounds
        );
        let mut line = |said: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{said}");
        };
        line(format!(
            "{:11} {:>7} {:>12} {:>12} {:>8} {:>9} {:>9} {:>9} {:>11} {:>12}",
            "pager",
            "threads",
            "accesses/s",
            "page-ins/s",
            "a page",
            "p50 µs",
            "p99 µs",
            "p99.9 µs",
            "cpu µs/pg",
            "bound"
        ));
        for run in &self.medians {
            let cpu = run.cpu_us_per_page_in.map_or("-".to_owned(), |us| format!("{us:.2}"));
            line(format!(
                "{:11} {:>7} {:>12.0} {:>12.0} {:>8.4} {:>9.2} {:>9.2} {:>9.2} {:>11} {:>12}",
                run.contender.name(),
                format!("{}x{}", run.threads, run.in_flight),
                run.accesses_per_s,
                run.page_ins_per_s,
                run.page_ins_per_access,
                run.access_us.p50,
                run.access_us.p99,
                run.access_us.p999,
                cpu,
                run.bound
            ));
        }
        line(format!(
            "device: {:.0} reads/s of 4 KiB at random in {}",
            self.device.reads_per_s, self.device.dir
        ));
        self.emulated.iter().for_each(|emulated| line(format!("emulated: {emulated}")));
        text
    }
}
