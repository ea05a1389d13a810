//! One run, from its settings to its report: calibrates, opens a database, hands it to the benchmark, and watches.

mod delete;
mod disturb;
mod files;
mod observe;
mod plain;
mod point;
mod recovery;
mod ssd;
#[cfg(test)]
mod tests;
mod tpcc;
mod verify;
mod ycsb;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::device_model::DeviceModel;
use thermocline_base::io::{ProfileIo, SystemIo};
use thermocline_base::sync::{AtomicU64, Mutex, Ordering};
use thermocline_engine::temperature::LogError;
use thermocline_engine::{
    Database, Durability, Isolation, Options, PageCapture, Transaction, TransactionOptions,
};

use crate::calibration::{CalibrationError, calibrate};
use crate::drive::{DriveError, End, Load, Workload, drive};
use crate::machine;
use crate::peak::Peak;
use crate::progress::Progress;
use crate::report::{Outcome, Report, Throughput, grouped, size};
use crate::settings::{Benchmark, Settings, Storage, named};
use crate::time;
use disturb::{At, Shifts};
use observe::{Numbers, Observer};

pub use recovery::{Builder, Built, build_for_recovery};
pub use ssd::{
    Killer, ReplayReport, ReplaySettings, SsdExtras, SsdReport, SsdSize, Told, Way, bench_ssd,
    drive_until_killed, replay_trace,
};
pub use verify::{Checked, check, open_to_look};

/// Gives options memory of servers, anew for each opening.
pub type Lend<'a> = dyn Fn(Options) -> Result<Options, String> + 'a;

/// The tasks of a run beside its benchmark.
#[derive(Clone, Copy)]
pub struct RunOptions<'a> {
    /// Measure the machine first.
    pub calibrate: bool,
    /// Check the consistency conditions of TPC-C afterwards.
    pub check: bool,
    /// Show no progress.
    pub quiet: bool,
    /// Where databases have memory of servers.
    pub lend: Option<&'a Lend<'a>>,
}

/// Why there is no report.
#[derive(Debug)]
pub enum RunError {
    /// The machine could not be measured.
    Calibration(CalibrationError),
    /// The engine refused something outside of the measured transactions.
    Engine {
        /// The step that failed.
        step: &'static str,
        /// The engine's error.
        source: thermocline_engine::Error,
    },
    /// The measured part failed.
    Drive(DriveError),
    /// The process that builds the database for `recovery` failed.
    Builder(String),
    /// A setting that cannot be.
    Setting(String),
    /// The database does not hold what it should.
    Wrong(String),
    /// A trace could not be captured, or not be read again.
    Capture(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Calibration(error) => error.fmt(f),
            Self::Engine { step, source } => write!(f, "could not {step}: {source}"),
            Self::Drive(error) => error.fmt(f),
            Self::Builder(said) => write!(f, "the process that builds the database failed: {said}"),
            Self::Setting(said) | Self::Capture(said) => f.write_str(said),
            Self::Wrong(found) => write!(f, "the database is wrong: {found}; please report this as a bug"),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Calibration(error) => Some(error),
            Self::Engine { source, .. } => Some(source),
            Self::Drive(error) => Some(error),
            Self::Builder(_) | Self::Setting(_) | Self::Wrong(_) | Self::Capture(_) => None,
        }
    }
}

impl RunError {
    /// Is a setting to blame, so that the run never began?
    #[must_use]
    pub const fn is_setting(&self) -> bool {
        matches!(
            self,
            Self::Setting(_) | Self::Engine { source: thermocline_engine::Error::InvalidOption { .. }, .. }
        )
    }
}

impl From<DriveError> for RunError {
    fn from(error: DriveError) -> Self {
        Self::Drive(error)
    }
}

/// Names the step in which the engine refused.
fn engine(step: &'static str) -> impl FnOnce(thermocline_engine::Error) -> RunError {
    move |source| RunError::Engine { step, source }
}

/// Runs the benchmark of `settings`.
///
/// `builder` makes, for `recovery`, the process that builds a database and is killed; the others do not call it.
///
/// # Errors
/// When there is nothing to report.
pub fn run(settings: &Settings, options: &RunOptions<'_>, builder: &Builder<'_>) -> Result<Report, RunError> {
    let mut progress = Progress::new(options.quiet);
    let calibration = if options.calibrate {
        progress.begin("calibrating");
        Some(calibrate(&settings.data_dir).map_err(RunError::Calibration)?)
    } else {
        None
    };
    // What the calibration took is not the database's.
    let _ = machine::forget_rss_max();
    let mut session = Session {
        settings,
        check: options.check,
        progress,
        peak: Peak::watch(),
        capture: capture(&settings.storage)?,
        lend: options.lend,
    };
    let outcome = match &settings.benchmark {
        Benchmark::Ycsb { .. } => ycsb::run(&mut session).map(throughput),
        Benchmark::Tpcc { .. } => tpcc::run(&mut session).map(throughput),
        Benchmark::Point { records } => point::run(&mut session, *records).map(throughput),
        Benchmark::Delete { records, percent, migrate } => {
            delete::run(&mut session, *records, *percent, *migrate).map(Outcome::Delete)
        }
        Benchmark::Recovery { .. } => recovery::run(&mut session, builder).map(Outcome::Recovery),
    }?;
    end_capture(&settings.storage, session.capture.as_deref())?;
    Ok(Report::new(settings.clone(), calibration, outcome))
}

/// Begins the trace that the settings name.
fn capture(storage: &Storage) -> Result<Option<Arc<PageCapture>>, RunError> {
    let Some(path) = &storage.capture else { return Ok(None) };
    let file = std::fs::File::create(path).map_err(|error| {
        RunError::Setting(format!(
            "cannot write the trace {}: {error}; name a file in a directory that exists and is writable",
            path.display()
        ))
    })?;
    Ok(Some(Arc::new(PageCapture::new(Box::new(std::io::BufWriter::new(file))))))
}

/// Ends it, so that it can be read. Gives how many requests it has.
fn end_capture(storage: &Storage, capture: Option<&PageCapture>) -> Result<u64, RunError> {
    let (Some(path), Some(capture)) = (&storage.capture, capture) else { return Ok(0) };
    capture
        .finish()
        .map_err(|error| RunError::Capture(format!("the trace {} was not written: {error}", path.display())))
}

/// Has a database write its access log to a file, or to `HOST:PORT`.
fn log_accesses(database: &Database, target: &str) -> Result<(), LogError> {
    const PATIENCE: Duration = Duration::from_secs(5);
    if target.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
        return database.log_accesses_to_file(target);
    }
    let socket = std::net::TcpStream::connect(target).map_err(LogError::Stream)?;
    socket.set_write_timeout(Some(PATIENCE)).map_err(LogError::Stream)?;
    database.log_accesses_to(socket)
}

fn throughput(found: Throughput) -> Outcome {
    Outcome::Throughput(Box::new(found))
}

/// Called with how many rows of how many are done, by any thread.
type Count<'a> = dyn Fn(u64, u64) + Sync + 'a;

/// The state that the parts of a run share.
struct Session<'a> {
    settings: &'a Settings,
    check: bool,
    progress: Progress,
    peak: Peak,
    capture: Option<Arc<PageCapture>>,
    lend: Option<&'a Lend<'a>>,
}

/// The counts of a load.
struct Loaded {
    rows: u64,
    seconds: f64,
}

impl Session<'_> {
    /// Opens the database of the settings.
    fn open(&self) -> Result<Database, RunError> {
        let options = self.options()?;
        let dir = &self.settings.data_dir;
        let database = match &self.settings.storage.profile {
            None => Database::open(dir, options),
            Some(name) => {
                let place = self.settings.storage.cold_dir.clone().unwrap_or_else(|| dir.join("cold"));
                let place = std::path::absolute(&place).unwrap_or(place);
                let model = DeviceModel::named(name).ok_or_else(|| {
                    let names = DeviceModel::NAMES.join(", ");
                    RunError::Setting(format!("--profile {name}: name one of {names}"))
                })?;
                let slow = ProfileIo::new(Arc::new(SystemIo::new()), &place, model);
                Database::open_with_cold(dir, options, Arc::new(slow))
            }
        };
        let database = database.map_err(engine("open the database"))?;
        if let Some(target) = &self.settings.access_log {
            log_accesses(&database, target).map_err(|error| {
                RunError::Setting(format!("cannot write an access log to {target}: {error}"))
            })?;
        }
        Ok(database)
    }

    /// Closes it, so that its directory can be kept and opened again.
    fn close(&self, database: Database) -> Result<(), RunError> {
        database.close().map_err(engine("close the database"))
    }

    fn options(&self) -> Result<Options, RunError> {
        let settings = self.settings;
        let durability: Durability = setting("durability", &settings.durability)?;
        let isolation: Isolation = setting("isolation", &settings.isolation)?;
        let mut options = Options::default().with_durability(durability).with_isolation(isolation);
        if settings.hold_snapshot {
            // It idles for the whole run.
            options = options.with_idle_limit(None);
        }
        if let Some(bytes) = settings.memory_limit_bytes {
            options = options.with_memory_limit(Some(bytes));
        }
        if let Some(threads) = settings.freeze_threads {
            options = options.with_freeze_threads(threads);
        }
        let storage = &settings.storage;
        options = options
            .with_cold_dir(storage.cold_dir.clone())
            .with_ssd_cache(storage.ssd.clone())
            .with_ssd_cache_bytes(storage.ssd_bytes.unwrap_or(0))
            .with_ssd_heat_across_merges(!storage.ssd_forgets_heat)
            .with_page_capture(self.capture.clone());
        if let Some(policy) = &storage.ssd_policy {
            options = options.with_ssd_policy(setting("ssd-policy", policy)?);
        }
        options = settings.paging.within(options).map_err(RunError::Setting)?;
        if let Some(lend) = self.lend {
            options = lend(options).map_err(RunError::Setting)?;
        }
        if let Some(seconds) = settings.checkpoint_interval_seconds {
            options = options.with_checkpoint_interval(Duration::from_secs_f64(seconds));
        }
        Ok(options)
    }

    /// Runs `load`, which tells how many rows of how many it has made, and times it.
    ///
    /// # Errors
    /// The engine's. Where the memory limit has become less than what so many rows need, that is named, and how much they do.
    fn load<T>(
        &mut self,
        database: &Database,
        load: impl FnOnce(&Count<'_>) -> thermocline_engine::Result<T>,
    ) -> Result<(T, Loaded), RunError> {
        let began = time::now();
        let rows = AtomicU64::new(0);
        let made = self
            .with_progress("loading", |count| {
                load(&|done, of| {
                    rows.fetch_max(done, Ordering::Relaxed);
                    count(done, of);
                })
            })
            .map_err(|error| engine("load the data")(self.cause_of(database, error)))?;
        let rows = rows.load(Ordering::Relaxed);
        Ok((made, Loaded { rows, seconds: began.elapsed().as_secs_f64() }))
    }

    /// Why memory was refused: a limit that is too small for what is there by now says so when it is set again.
    fn cause_of(&self, database: &Database, error: thermocline_engine::Error) -> thermocline_engine::Error {
        let limit = self.settings.memory_limit_bytes;
        match error {
            thermocline_engine::Error::OutOfMemory(_) if limit.is_some() => {
                database.set_memory_limit(limit).err().unwrap_or(error)
            }
            error => error,
        }
    }

    /// Runs `work`, which tells how many rows of how many are done, and shows that.
    fn with_progress<T>(&mut self, what: &str, work: impl FnOnce(&Count<'_>) -> T) -> T {
        let began = time::now();
        self.progress.begin(what);
        let progress = Mutex::new(&mut self.progress);
        work(&|done, of| {
            // A thread that meets another one here has better things to do.
            let Some(mut progress) = progress.try_lock() else { return };
            progress.show(|| {
                format!(
                    "{what}: {} rows, {} %, {} rows/s, resident {}",
                    grouped(done as f64),
                    (100 * done / of.max(1)).min(100),
                    grouped(done as f64 / began.elapsed().as_secs_f64()),
                    resident()
                )
            });
        })
    }

    /// Drives `workload`, and adds what the engine knows of the run.
    fn measure<W: Workload>(
        &mut self,
        database: &Database,
        loaded: &Loaded,
        workload: &W,
    ) -> Result<Throughput, RunError> {
        self.measure_shifting(database, loaded, workload, Shifts::default(), &AtomicU64::new(0))
    }

    /// The same; `shifted` counts the shifts of the measured time.
    fn measure_shifting<W: Workload>(
        &mut self,
        database: &Database,
        loaded: &Loaded,
        workload: &W,
        shifts: Shifts,
        shifted: &AtomicU64,
    ) -> Result<Throughput, RunError> {
        let held = if self.settings.hold_snapshot { Some(hold_snapshot(database)?) } else { None };
        let load = self.settings.load();
        let observer = Observer::new(database, &mut self.progress, self.settings);
        let mut watcher = At { watcher: observer, shifts, shifted };
        let measured = drive(workload, &load, &mut watcher)?;
        let observer = watcher.watcher;
        let mut found = Throughput::of(&measured, load.time_one_in);
        found.load_seconds = loaded.seconds;
        found.load_rows = loaded.rows;
        observer.finish(&mut found);
        found.anonymous_bytes_max = self.peak.bytes();
        if let Some(first) = shifts.first {
            let before = disturb::before(&found.samples, first);
            for (at, until) in shifts.all(found.seconds) {
                let samples = found.samples.partition_point(|sample| sample.at_seconds <= until + 0.05);
                let after = disturb::disturbed("shift", at, before, &found.samples[..samples], 0.0);
                found.disturbed.push(after);
            }
        }
        drop(held);
        Ok(found)
    }

    /// Closes the database and opens it again; how many seconds opening took.
    fn reopen(&mut self, database: Database) -> Result<(Database, f64), RunError> {
        self.close(database)?;
        self.progress.begin("opening again");
        let began = time::now();
        let database = self.open()?;
        Ok((database, began.elapsed().as_secs_f64()))
    }

    /// Drives `workload` as long as before, on a database that was opened again, and adds how its throughput came back.
    fn measure_again<W: Workload>(
        &mut self,
        database: &Database,
        workload: &W,
        opening_seconds: f64,
        found: &mut Throughput,
    ) -> Result<(), RunError> {
        let load = Load { warm_up: Duration::ZERO, ..self.settings.load() };
        let mut observer = Observer::new(database, &mut self.progress, self.settings);
        let measured = drive(workload, &load, &mut observer)?;
        let before = disturb::before(&found.samples, f64::INFINITY);
        let mut after = disturb::disturbed("restart", 0.0, before, &measured.samples, opening_seconds);
        after.at_seconds = found.seconds;
        found.disturbed.push(after);
        found.anonymous_bytes_max = self.peak.bytes();
        Ok(())
    }
}

/// Begins a transaction that does nothing: its snapshot keeps old versions alive.
fn hold_snapshot(database: &Database) -> Result<Transaction, RunError> {
    let options = TransactionOptions::default().isolation(Isolation::Snapshot).read_only();
    database.begin(options).map_err(engine("begin the transaction that holds a snapshot"))
}

/// The end of a transaction that the engine did not commit.
fn end_of(error: thermocline_engine::Error) -> End {
    if error.is_retryable() { End::GaveUp } else { End::Failed(error.into()) }
}

fn setting<T: std::str::FromStr<Err: fmt::Display>>(name: &str, value: &str) -> Result<T, RunError> {
    named(name, value).map_err(RunError::Setting)
}

fn resident() -> String {
    machine::rss_bytes().map_or_else(|| "unknown".to_owned(), size)
}
