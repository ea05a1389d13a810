//! `bench ssd`: one database whose cold store lies in turns on a slow device alone, on that device below an SSD, and on the local
//! disk.
//!
//! The slow device is emulated, over the files of the local disk; the SSD is the local disk. Each way the database is opened
//! anew, driven until it is warm, and then measured.

use serde::Serialize;
use thermocline_engine::{Database, SsdStats};
use thermocline_workloads::ycsb::generate::{Config, KeySpace};
use thermocline_workloads::ycsb::load::{LoadOptions, UserTable, load};

use super::ycsb::{Ycsb, config};
use super::{Loaded, RunError, Session, engine};
use crate::peak::Peak;
use crate::progress::Progress;
use crate::report::{Throughput, grouped, size};
use crate::settings::{Settings, Storage};

/// How large the SSD is.
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

/// What the benchmark found.
#[derive(Clone, Debug, Serialize)]
pub struct SsdReport {
    /// The program's version.
    pub version: &'static str,
    /// The settings of all ways.
    #[serde(flatten)]
    pub settings: Settings,
    /// What is emulated, and over what.
    pub emulated: String,
    /// What the cold store takes of its device.
    pub cold_bytes: u64,
    /// How long the SSD's file is.
    pub ssd_size_bytes: u64,
    /// The slow device alone.
    pub alone: Way,
    /// The slow device below the SSD.
    pub ssd: Way,
    /// The local disk, without the SSD.
    pub local: Way,
    /// The SSD's throughput against the local disk's.
    pub share_of_local: f64,
    /// The SSD's throughput against that of the slow device alone.
    pub gain: f64,
    /// Which part of the pages that were looked for there the SSD gave, in the measured time.
    pub hit_ratio: f64,
    /// The same right after opening again.
    pub restart_hit_ratio: Option<f64>,
    /// Pages that were there in another version, since the opening, as all that follows.
    pub stale: u64,
    /// Pages that were admitted.
    pub admitted: u64,
    /// Pages that the policy refused.
    pub refused: u64,
    /// Admitted pages that were dropped before they were written.
    pub dropped: u64,
    /// Bytes written to the SSD.
    pub ssd_bytes_written: u64,
    /// Bytes that merges had from it.
    pub merge_bytes_saved: u64,
    /// Memory for each cached page.
    pub bytes_per_page: f64,
    /// Its policy.
    pub policy: &'static str,
    /// Is it on, and if not, why.
    pub state: String,
}

/// Runs it. `restart`: afterwards the database is opened again with its SSD, and its first seconds are told.
///
/// # Errors
/// When there is nothing to report.
pub fn bench_ssd(
    settings: &Settings,
    ssd_size: SsdSize,
    restart: bool,
    quiet: bool,
) -> Result<SsdReport, RunError> {
    let config = config(settings)?;
    let profile = settings.storage.profile.clone().unwrap_or_else(|| "network-volume".to_owned());
    let cold_dir = settings.storage.cold_dir.clone().unwrap_or_else(|| settings.data_dir.join("primary"));
    let path = settings.storage.ssd.clone().unwrap_or_else(|| settings.data_dir.join("ssd-cache"));
    let local = Storage { cold_dir: Some(cold_dir), ..Storage::default() };
    let way = |storage: Storage| Settings {
        storage,
        data_dir: settings.data_dir.join("database"),
        ..settings.clone()
    };
    let local = way(local);
    let cold_bytes = fill(&local, &config, quiet)?;
    let ssd_bytes = match ssd_size {
        SsdSize::Bytes(bytes) => bytes,
        SsdSize::Share(share) => (cold_bytes as f64 * share) as u64,
    };
    let on_profile = Storage { profile: Some(profile.clone()), ..local.storage.clone() };
    let below_ssd = Storage {
        ssd: Some(path),
        ssd_bytes: Some(ssd_bytes),
        ssd_policy: settings.storage.ssd_policy.clone(),
        ..on_profile.clone()
    };
    let (on_local, _) = measure(&local, &config, quiet)?;
    let (alone, _) = measure(&way(on_profile), &config, quiet)?;
    let below_ssd = way(below_ssd);
    let (ssd, before) = measure(&below_ssd, &config, quiet)?;
    let (warm, now) =
        before.ok_or_else(|| RunError::Wrong("no row is cold; set --memory-limit".to_owned()))?;
    let restart_hit_ratio = if restart { first_hits(&below_ssd, &config, quiet)? } else { None };
    Ok(SsdReport {
        version: env!("CARGO_PKG_VERSION"),
        emulated: format!("{profile}, over the local disk; the SSD is the local disk"),
        settings: below_ssd,
        cold_bytes,
        ssd_size_bytes: ssd_bytes,
        alone,
        ssd,
        local: on_local,
        share_of_local: ssd.throughput_tps / on_local.throughput_tps,
        gain: ssd.throughput_tps / alone.throughput_tps,
        hit_ratio: hit_ratio(&warm, &now),
        restart_hit_ratio,
        stale: now.counts.stale,
        admitted: now.counts.admitted,
        refused: now.counts.refused,
        dropped: now.counts.dropped,
        ssd_bytes_written: now.counts.bytes_written,
        merge_bytes_saved: now.counts.merge_hits * PAGE_BYTES,
        bytes_per_page: now.memory_bytes as f64 / now.cached.max(1) as f64,
        policy: now.policy.name(),
        state: now.state.to_string(),
    })
}

const PAGE_BYTES: u64 = 4096;

fn hit_ratio(before: &SsdStats, after: &SsdStats) -> f64 {
    let reads = after.counts.reads - before.counts.reads;
    (after.counts.hits - before.counts.hits) as f64 / reads.max(1) as f64
}

fn session(settings: &Settings, quiet: bool) -> Session<'_> {
    Session { settings, check: false, progress: Progress::new(quiet), peak: Peak::watch() }
}

/// Loads the rows; gives what the cold store takes of its device.
fn fill(settings: &Settings, config: &Config, quiet: bool) -> Result<u64, RunError> {
    let mut session = session(settings, quiet);
    let database = session.open()?;
    let options = LoadOptions { threads: settings.threads, ..LoadOptions::default() };
    session.load(|count| load(&database, config, options, &|done| count(done, config.records)))?;
    session.close(database)?;
    // What the journal holds becomes pieces.
    let database = session.open()?;
    let bytes = database.statistics().cold.disk_bytes;
    session.close(database)?;
    Ok(bytes)
}

/// Opens the database one way, warms it, and measures. With an SSD: what it did before the measured time, and at its end.
fn measure(
    settings: &Settings,
    config: &Config,
    quiet: bool,
) -> Result<(Way, Option<(SsdStats, SsdStats)>), RunError> {
    let warming = Settings { seconds: settings.warm_up_seconds, warm_up_seconds: 0.0, ..settings.clone() };
    let database = session(&warming, quiet).open()?;
    if warming.seconds > 0.0 {
        drive(&warming, &database, config, quiet)?;
    }
    let before = database.statistics().cold.ssd;
    let measured = Settings { warm_up_seconds: 0.0, ..settings.clone() };
    let found = drive(&measured, &database, config, quiet)?;
    let after = database.statistics().cold.ssd;
    session(settings, quiet).close(database)?;
    let commits = found.commits.max(1) as f64;
    let way = Way {
        throughput_tps: found.throughput_tps,
        p99_us: found.latency_us.p99,
        cpu_us: found.cpu_seconds * 1e6 / commits,
        device_reads: found.cold.device_reads as f64 / commits,
    };
    Ok((way, before.zip(after)))
}

/// The hit ratio of the first second after an opening.
fn first_hits(settings: &Settings, config: &Config, quiet: bool) -> Result<Option<f64>, RunError> {
    let first = Settings { seconds: 1.0, warm_up_seconds: 0.0, ..settings.clone() };
    let database = session(&first, quiet).open()?;
    drive(&first, &database, config, quiet)?;
    let found = database.statistics().cold.ssd.map(|ssd| ssd.hit_ratio());
    session(&first, quiet).close(database)?;
    Ok(found)
}

fn drive(
    settings: &Settings,
    database: &Database,
    config: &Config,
    quiet: bool,
) -> Result<Throughput, RunError> {
    let table = UserTable::open(database).map_err(engine("find the table"))?;
    let ycsb = Ycsb::new(database, table, config, KeySpace::new(config.records));
    session(settings, quiet).measure(database, &Loaded { rows: config.records, seconds: 0.0 }, &ycsb)
}

impl SsdReport {
    /// The result for programs.
    #[must_use]
    pub fn to_json(&self) -> String {
        crate::report::json(self)
    }

    /// The result for people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut text = format!(
            "emulated: {}\ncold store {}, SSD {} with policy {}\n\n{:<22}{:>14}{:>12}{:>12}\n",
            self.emulated,
            size(self.cold_bytes),
            size(self.ssd_size_bytes),
            self.policy,
            "cold rows on",
            "commits/s",
            "p99 µs",
            "cpu µs"
        );
        let ways = [
            ("the slow device alone", &self.alone),
            ("the same below an SSD", &self.ssd),
            ("the local disk", &self.local),
        ];
        for (name, way) in ways {
            text += &format!(
                "{name:<22}{:>14}{:>12}{:>12.1}\n",
                grouped(way.throughput_tps),
                grouped(way.p99_us),
                way.cpu_us
            );
        }
        text += &format!(
            "\nSSD: {}; {:.1} % of the pages from there; {:.2} × the slow device, {:.0} % of the local disk\n",
            self.state,
            100.0 * self.hit_ratio,
            self.gain,
            100.0 * self.share_of_local
        );
        text += &format!(
            "admitted {}, refused {}, dropped {}, stale {}, {} written, {:.1} bytes of memory a page\n",
            grouped(self.admitted as f64),
            grouped(self.refused as f64),
            grouped(self.dropped as f64),
            grouped(self.stale as f64),
            size(self.ssd_bytes_written),
            self.bytes_per_page
        );
        if let Some(ratio) = self.restart_hit_ratio {
            text += &format!("the first second after opening again: {:.1} % from the SSD\n", 100.0 * ratio);
        }
        text
    }
}
