//! `bench ssd`: one database whose cold store lies in turns on a slow device alone, on that device below an SSD, and on the local
//! disk.
//!
//! The slow device is emulated, over the files of the local disk; the SSD is the local disk. Each way the database is opened
//! anew, driven until it is warm, and then measured. No part of a run repeats the requests of another.
//!
//! | module | what it is |
//! |---|---|
//! | `best` | the captured reads of the run in the simulator, with all policies |
//! | `kill` | restarts of a process that was killed |
//! | `replay` | a trace through the real level, without a database |
//! | `report` | what was found |
//! | `watch` | hits over time, for restarts |

mod best;
mod kill;
mod replay;
mod report;
mod watch;

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use thermocline_base::sync::{AtomicU64, Ordering};
use thermocline_engine::{Database, PageCapture, SsdStats};
use thermocline_workloads::ycsb::generate::{Config, KeySpace};
use thermocline_workloads::ycsb::load::{LoadOptions, UserTable, load};

use super::ycsb::{Ycsb, config};
use super::{Loaded, RunError, Session, capture, end_capture, engine, tpcc};
use crate::peak::Peak;
use crate::progress::Progress;
use crate::report::Throughput;
use crate::settings::{Benchmark, Settings, Storage};
pub use kill::{Killer, Told, drive_until_killed};
pub use replay::{ReplayReport, ReplaySettings, replay_trace};
pub use report::SsdReport;
use watch::Moments;

/// The size of the SSD.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SsdSize {
    /// Bytes.
    Bytes(u64),
    /// A share of what the cold store takes of its device.
    Share(f64),
}

/// One way to keep cold rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Way {
    /// Commits a second.
    pub throughput_tps: f64,
    /// 99 % are faster.
    pub p99_us: f64,
    /// Processor time a commit.
    pub cpu_us: f64,
    /// Reads of the cold store's page file for each commit, whichever device gave them.
    pub device_reads: f64,
}

/// Bytes of a page of the cold store.
const PAGE_BYTES: u64 = 4096;

/// Numbers of clients of one part of the run.
const CLIENTS_A_PART: u64 = 1 << 20;

/// The benchmark with what its parts share.
struct Bench<'a> {
    settings: &'a Settings,
    /// Of YCSB; none: TPC-C.
    ycsb: Option<Config>,
    warehouses: u32,
    quiet: bool,
    /// Parts so far: each has clients of its own.
    parts: AtomicU64,
}

/// The measurements of one way.
struct Measured {
    way: Way,
    commits: u64,
    written_bytes: u64,
    /// Statistics of the SSD before the measured time, and at its end.
    ssd: Option<(SsdStats, SsdStats)>,
    /// Requests of the trace before the measured time.
    warm_requests: u64,
    moments: Moments,
}

/// The tasks beside the three ways.
#[derive(Clone, Copy)]
pub struct SsdExtras<'a> {
    /// The database is opened again with its SSD, and its first reads are told.
    pub restart: bool,
    /// So often a process that uses it is killed, and the first reads of the next one are told.
    pub kills: u64,
    /// Runs and kills such a process.
    pub killer: &'a Killer<'a>,
}

/// Runs it.
///
/// # Errors
/// When there is nothing to report.
pub fn bench_ssd(
    settings: &Settings,
    ssd_size: SsdSize,
    extras: &SsdExtras<'_>,
    quiet: bool,
) -> Result<SsdReport, RunError> {
    let bench = Bench::new(settings, quiet)?;
    let profile = settings.storage.profile.clone().unwrap_or_else(|| "network-volume".to_owned());
    let cold_dir = settings.storage.cold_dir.clone().unwrap_or_else(|| settings.data_dir.join("primary"));
    let path = settings.storage.ssd.clone().unwrap_or_else(|| settings.data_dir.join("ssd-cache"));
    let trace = settings.storage.capture.clone().unwrap_or_else(|| settings.data_dir.join("reads.trace"));
    let local = bench.way(Storage { cold_dir: Some(cold_dir), ..Storage::default() });
    let cold_bytes = bench.fill(&local)?;
    let ssd_bytes = match ssd_size {
        SsdSize::Bytes(bytes) => bytes,
        SsdSize::Share(share) => (cold_bytes as f64 * share) as u64,
    };
    let on_profile = Storage { profile: Some(profile.clone()), ..local.storage.clone() };
    let on_ssd = Storage {
        ssd: Some(path.clone()),
        ssd_bytes: Some(ssd_bytes),
        ssd_policy: settings.storage.ssd_policy.clone(),
        ..on_profile.clone()
    };
    let on_local = bench.measure(&local)?;
    let alone = bench.measure(&bench.way(on_profile))?;
    let below_ssd = bench.way(Storage { capture: Some(trace.clone()), ..on_ssd.clone() });
    let ssd = bench.measure(&below_ssd)?;
    let (warm, now) =
        ssd.ssd.ok_or_else(|| RunError::Wrong("no row is cold; set --memory-limit".to_owned()))?;
    let restart_hit_ratio = match extras.restart {
        true => bench.first_hits(&bench.way(on_ssd.clone()))?,
        false => None,
    };
    let kills = match extras.kills {
        0 => None,
        kills => kill::kills(&bench.way(on_ssd.clone()), kills, extras.killer)?,
    };
    // Each page of a merge that is written anew has been read before, so only workloads that write tell the difference.
    let hit_ratio_without_heat = match bench.writes() {
        true => {
            let forgets =
                Storage { ssd: Some(with_suffix(&path, "-forgets")), ssd_forgets_heat: true, ..on_ssd };
            bench.measure(&bench.way(forgets))?.ssd.map(|(warm, now)| hit_ratio(&warm, &now))
        }
        false => None,
    };
    let best = best::best(&trace, ssd.warm_requests, now.slots, now.policy, &profile)?;
    if settings.storage.capture.is_none() {
        // It was for this run only.
        let _ = std::fs::remove_file(&trace);
    }
    let hits = (now.counts.hits - warm.counts.hits) as f64 / ssd.commits.max(1) as f64;
    Ok(SsdReport {
        version: env!("CARGO_PKG_VERSION"),
        emulated: format!("{profile}, over the local disk; the SSD is the local disk"),
        settings: below_ssd,
        cold_bytes,
        ssd_size_bytes: ssd_bytes,
        alone: alone.way,
        ssd: ssd.way,
        local: on_local.way,
        share_of_local: ssd.way.throughput_tps / on_local.way.throughput_tps,
        gain: ssd.way.throughput_tps / alone.way.throughput_tps,
        hit_ratio: hit_ratio(&warm, &now),
        simulated_hit_ratio: best.map(|best| best.own.hit_ratio),
        best_hit_ratio: best.map(|best| best.best.hit_ratio),
        best_policy: best.map(|best| best.best.policy.name()),
        hit_ratio_without_heat,
        rewritten: ssd.written_bytes as f64 / cold_bytes.max(1) as f64,
        last_hit_ratio: ssd.moments.last(),
        restart_hit_ratio,
        before_kill_hit_ratio: kills.map(|kills| kills.before),
        killed_hit_ratio: kills.map(|kills| kills.after),
        cpu_us_per_hit: if hits > 0.0 { (ssd.way.cpu_us - on_local.way.cpu_us) / hits } else { 0.0 },
        stale: now.counts.stale,
        admitted: now.counts.admitted,
        moved: now.counts.moved,
        refused: now.counts.refused,
        dropped: now.counts.dropped,
        ssd_bytes_written: now.counts.bytes_written,
        merge_bytes_saved: now.counts.merge_hits * PAGE_BYTES,
        bytes_per_page: now.memory_bytes as f64 / now.cached.max(1) as f64,
        policy: now.policy.name(),
        state: now.state.to_string(),
    })
}

fn with_suffix(path: &Path, suffix: &str) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn hit_ratio(before: &SsdStats, after: &SsdStats) -> f64 {
    let reads = after.counts.reads - before.counts.reads;
    (after.counts.hits - before.counts.hits) as f64 / reads.max(1) as f64
}

impl<'a> Bench<'a> {
    fn new(settings: &'a Settings, quiet: bool) -> Result<Self, RunError> {
        let (ycsb, warehouses) = match &settings.benchmark {
            Benchmark::Tpcc { warehouses, .. } => (None, *warehouses),
            _ => (Some(config(settings)?), 0),
        };
        Ok(Self { settings, ycsb, warehouses, quiet, parts: AtomicU64::new(0) })
    }

    /// The settings of one way.
    fn way(&self, storage: Storage) -> Settings {
        Settings { storage, data_dir: self.settings.data_dir.join("database"), ..self.settings.clone() }
    }

    /// Does the workload change rows?
    fn writes(&self) -> bool {
        match &self.settings.benchmark {
            Benchmark::Ycsb { workload, .. } => !workload.eq_ignore_ascii_case("c"),
            _ => true,
        }
    }

    fn session<'b>(&self, settings: &'b Settings, capture: Option<Arc<PageCapture>>) -> Session<'b> {
        Session {
            settings,
            check: false,
            progress: Progress::new(self.quiet),
            peak: Peak::watch(),
            capture,
            lend: None,
        }
    }

    /// Loads the rows; gives what the cold store takes of its device.
    fn fill(&self, settings: &Settings) -> Result<u64, RunError> {
        let mut session = self.session(settings, None);
        let database = session.open()?;
        match &self.ycsb {
            Some(config) => {
                let options = LoadOptions { threads: settings.threads, ..LoadOptions::default() };
                session.load(&database, |count| {
                    load(&database, config, options, &|done| count(done, config.records))
                })?;
            }
            None => drop(tpcc::load(&mut session, &database, self.warehouses, false)?),
        }
        session.close(database)?;
        // What the journal holds becomes pieces.
        let database = session.open()?;
        let bytes = database.statistics().cold.disk_bytes;
        session.close(database)?;
        Ok(bytes)
    }

    /// Opens the database one way, warms it, and measures.
    fn measure(&self, settings: &Settings) -> Result<Measured, RunError> {
        let trace = capture(&settings.storage)?;
        let warming =
            Settings { seconds: settings.warm_up_seconds, warm_up_seconds: 0.0, ..settings.clone() };
        let database = self.session(&warming, trace.clone()).open()?;
        if warming.seconds > 0.0 {
            self.drive(&warming, &database)?;
        }
        let before = database.statistics().cold;
        let warm_requests = trace.as_ref().map_or(0, |trace| trace.requests());
        let measured = Settings { warm_up_seconds: 0.0, ..settings.clone() };
        let (found, moments) = Moments::during(&database, || self.drive(&measured, &database));
        let found = found?;
        let after = database.statistics().cold;
        self.session(settings, None).close(database)?;
        end_capture(&settings.storage, trace.as_deref())?;
        let commits = found.commits.max(1) as f64;
        let way = Way {
            throughput_tps: found.throughput_tps,
            p99_us: found.latency_us.p99,
            cpu_us: found.cpu_seconds * 1e6 / commits,
            device_reads: found.cold.device_reads as f64 / commits,
        };
        Ok(Measured {
            way,
            commits: found.commits,
            written_bytes: after.device_write_bytes - before.device_write_bytes,
            ssd: before.ssd.zip(after.ssd),
            warm_requests,
            moments,
        })
    }

    /// The hit ratio of the first reads after an opening.
    fn first_hits(&self, settings: &Settings) -> Result<Option<f64>, RunError> {
        let first = Settings { warm_up_seconds: 0.0, ..settings.clone() };
        let database = self.session(&first, None).open()?;
        let (driven, moments) = Moments::during(&database, || self.drive(&first, &database));
        driven?;
        self.session(&first, None).close(database)?;
        Ok(moments.first().map(|(ratio, _)| ratio))
    }

    fn drive(&self, settings: &Settings, database: &Database) -> Result<Throughput, RunError> {
        let first = self.parts.fetch_add(1, Ordering::Relaxed) * CLIENTS_A_PART;
        let mut session = self.session(settings, None);
        let Some(config) = &self.ycsb else {
            let tpcc = tpcc::loaded(database, self.warehouses, settings.seed, first)?;
            return session.measure(database, &Loaded { rows: 0, seconds: 0.0 }, &tpcc);
        };
        let table = UserTable::open(database).map_err(engine("find the table"))?;
        let ycsb = Ycsb::new(database, table, config, KeySpace::new(config.records), first);
        session.measure(database, &Loaded { rows: config.records, seconds: 0.0 }, &ycsb)
    }
}
