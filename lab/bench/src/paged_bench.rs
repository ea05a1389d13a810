//! Tables larger than memory under each pager: rows read by Zipf, one contender after another, in turns on one machine.
//!
//! | contender | rows that memory has no room for |
//! |---|---|
//! | `memory` | there are none: there is no limit. What the others are compared with |
//! | `own` | on pages of a file, under frames of ours |
//! | `os` | on pages of a mapped file, left to the system |
//! | `remote` | on pages of memory servers, under frames of ours |
//! | `cold` | in the cold store, one by one |
//!
//! Each turn is workload C of YCSB on a database of its own ([`crate::run`]): load, warm up, measure. After (Stoica and Ailamaki, DaMoN 2013,
//! §6), whose tables had no database around them.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::latency::Percentiles;
use crate::machine::Machine;
use crate::report::{Outcome, Paged, Report, Throughput, json};
use crate::run::{Lend, RunError, RunOptions, run as run_benchmark};
use crate::settings::{Benchmark, Paging, Settings, Storage};

/// A contender of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// Everything in memory.
    Memory,
    /// The pager `own`, over a file.
    Own,
    /// The pager `os`.
    Os,
    /// The pager `own`, over memory servers.
    Remote,
    /// The cold store.
    Cold,
}

impl Contender {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Memory, Self::Own, Self::Os, Self::Remote, Self::Cold];

    /// On the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Own => "own",
            Self::Os => "os",
            Self::Remote => "remote",
            Self::Cold => "cold",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|contender| contender.name() == name)
    }

    fn paging(self) -> Paging {
        let (tiering, pager) = match self {
            Self::Memory => ("hot", None),
            Self::Own => ("paged", Some("own")),
            Self::Os => ("paged", Some("os")),
            Self::Remote => ("paged", Some("remote")),
            Self::Cold => ("cold", None),
        };
        Paging { tiering: Some(tiering.to_owned()), pager: pager.map(str::to_owned), ..Paging::default() }
    }
}

/// Settings of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct PagedSettings {
    /// Number of rows.
    pub records: u64,
    /// Bytes of the column beside the key.
    pub record_bytes: u32,
    /// The memory limit of all contenders but `memory`.
    pub memory_bytes: u64,
    /// Skew of the accesses.
    pub theta: f64,
    /// The contenders, in this order.
    pub contenders: Vec<Contender>,
    /// Threads that run transactions.
    pub threads: usize,
    /// Transactions in flight on each of them.
    pub in_flight: usize,
    /// Seconds before it is measured.
    pub warm_up: f64,
    /// Seconds that are measured.
    pub seconds: f64,
    /// Number of turns that each contender has.
    pub rounds: u32,
    /// Where memory servers are, or that they were started for this.
    pub servers: String,
    /// The network that is emulated; `none`: as fast as this machine.
    pub profile: &'static str,
    /// Of all draws.
    pub seed: u64,
}

/// One turn of a contender.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Whose.
    pub contender: Contender,
    /// Which turn, from 0.
    pub round: u32,
    /// Transactions a second.
    pub throughput_tps: f64,
    latency_us: Percentiles,
    cpu_us_per_transaction: f64,
    /// Of memory servers that were started for this, by page that came in.
    server_cpu_us_per_page_in: Option<f64>,
    anonymous_bytes_max: Option<u64>,
    /// None: no row has gone over.
    paged: Option<Paged>,
    /// Reads of the cold store, a transaction.
    cold_reads: f64,
}

impl Run {
    fn new(contender: Contender, round: u32, found: &Throughput, server_cpu_us: Option<f64>) -> Self {
        let commits = found.commits.max(1) as f64;
        let page_ins = found.paged.map_or(0, |paged| paged.page_ins);
        Self {
            contender,
            round,
            throughput_tps: found.throughput_tps,
            latency_us: found.latency_us,
            cpu_us_per_transaction: found.cpu_seconds * 1e6 / commits,
            server_cpu_us_per_page_in: server_cpu_us
                .filter(|_| contender == Contender::Remote && page_ins > 0)
                .map(|us| us / page_ins as f64),
            anonymous_bytes_max: found.anonymous_bytes_max,
            paged: found.paged,
            cold_reads: found.cold.reads as f64 / commits,
        }
    }
}

/// Why there is no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum PagedError {
    /// A turn failed.
    Run {
        /// Whose.
        contender: Contender,
        /// Why.
        source: RunError,
    },
    /// The directory of a turn cannot be made.
    Directory(std::io::Error),
}

impl std::fmt::Display for PagedError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run { contender, source } => write!(f, "{}: {source}", contender.name()),
            Self::Directory(error) => write!(f, "a directory for a turn cannot be made: {error}"),
        }
    }
}

impl std::error::Error for PagedError {}

impl PagedError {
    /// Is a setting to blame?
    #[must_use]
    pub fn is_setting(&self) -> bool {
        matches!(self, Self::Run { source, .. } if source.is_setting())
    }
}

impl PagedSettings {
    fn of(&self, contender: Contender, dir: &Path) -> Settings {
        Settings {
            benchmark: Benchmark::Ycsb {
                workload: "c".to_owned(),
                read_percent: None,
                records: self.records,
                fields: 1,
                field_bytes: self.record_bytes,
                theta: self.theta,
                shift_seconds: None,
                shift_every_seconds: None,
                restart: false,
            },
            threads: self.threads,
            in_flight: self.in_flight,
            warm_up_seconds: self.warm_up,
            seconds: self.seconds,
            isolation: "snapshot".to_owned(),
            durability: "async".to_owned(),
            memory_limit_bytes: (contender != Contender::Memory).then_some(self.memory_bytes),
            access_log: None,
            data_dir: dir.to_owned(),
            seed: self.seed,
            hold_snapshot: false,
            grow_rows: None,
            until_bytes: None,
            freeze_threads: None,
            checkpoint_interval_seconds: None,
            storage: Storage::default(),
            paging: contender.paging(),
        }
    }
}

/// Measures. `lend` gives options memory of servers, `server_cpu` gives their processor time so far in microseconds, if it is known; `told`
/// hears of each run.
///
/// # Errors
/// A turn fails.
pub fn run(
    settings: &PagedSettings,
    dir: &Path,
    lend: &Lend<'_>,
    server_cpu: &dyn Fn() -> Option<f64>,
    told: &mut dyn FnMut(&Run),
) -> Result<PagedReport, PagedError> {
    let mut runs = Vec::new();
    for round in 0..settings.rounds {
        for contender in &settings.contenders {
            let contender = *contender;
            let place = dir.join(format!("{}-{round}", contender.name()));
            std::fs::create_dir_all(&place).map_err(PagedError::Directory)?;
            let lend = (contender == Contender::Remote).then_some(lend);
            let options = RunOptions { calibrate: false, check: false, quiet: true, lend };
            let before = server_cpu();
            let report: Report = run_benchmark(&settings.of(contender, &place), &options, &|_| {
                Err("nothing is built for this".to_owned())
            })
            .map_err(|source| PagedError::Run { contender, source })?;
            let servers = server_cpu().zip(before).map(|(after, before)| after - before);
            let Outcome::Throughput(found) = &report.outcome else {
                unreachable!("YCSB reports a throughput")
            };
            let run = Run::new(contender, round, found, servers);
            told(&run);
            runs.push(run);
            // The next turn has the space.
            let _ = std::fs::remove_dir_all(&place);
        }
    }
    Ok(PagedReport::new(settings.clone(), runs))
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct PagedReport {
    settings: PagedSettings,
    machine: Machine,
    /// The parts that are emulated.
    emulated: Vec<String>,
    /// Of each contender the run with the median rate.
    medians: Vec<Run>,
    /// All of them.
    runs: Vec<Run>,
}

impl PagedReport {
    fn new(settings: PagedSettings, runs: Vec<Run>) -> Self {
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
        let median = |contender: &Contender| {
            let mut own: Vec<&Run> = runs.iter().filter(|run| run.contender == *contender).collect();
            own.sort_by(|a, b| a.throughput_tps.total_cmp(&b.throughput_tps));
            own.get(own.len() / 2).map(|run| (*run).clone())
        };
        let medians = settings.contenders.iter().filter_map(median).collect();
        Self { settings, machine: Machine::here(), emulated, medians, runs }
    }

    /// As one JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// As lines for people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let settings = &self.settings;
        let mut text = format!(
            "paged: {} rows of {} bytes under {} MiB, θ {}, {} threads × {}, medians of {}\n",
            settings.records,
            settings.record_bytes,
            settings.memory_bytes >> 20,
            settings.theta,
            settings.threads,
            settings.in_flight,
            settings.rounds
        );
        let mut line = |said: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{said}");
        };
        line(format!(
            "{:7} {:>12} {:>9} {:>9} {:>9} {:>9} {:>12} {:>11}",
            "pager", "tx/s", "p50 µs", "p99 µs", "p99.9 µs", "cpu µs", "page-ins/s", "cold reads"
        ));
        for run in &self.medians {
            let page_ins = run
                .paged
                .map_or("-".to_owned(), |paged| format!("{:.0}", paged.page_ins as f64 / settings.seconds));
            line(format!(
                "{:7} {:>12.0} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>12} {:>11.3}",
                run.contender.name(),
                run.throughput_tps,
                run.latency_us.p50,
                run.latency_us.p99,
                run.latency_us.p999,
                run.cpu_us_per_transaction,
                page_ins,
                run.cold_reads
            ));
        }
        self.emulated.iter().for_each(|emulated| line(format!("emulated: {emulated}")));
        text
    }
}
