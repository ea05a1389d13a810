//! The cost of the machinery of cold rows: transactions of a few accesses to one table, some of whose rows are cold.
//!
//! ```text
//!   load ─► rows below a bound migrate (placed by predicate) ─► cleaning ─► slices, in turns, of:
//!           each share of accesses that go to cold rows · the bare device under the same reads (pages, direct)
//!           one client, all accesses hot or cold, the memo empty or not                         (memory)
//! ```
//!
//! The set-up is that of Eldawy et al., VLDB 2014, §6: rows of 56 bytes with their header, most of them cold, four accesses a
//! transaction, clients with or without think time. Slices of one round alternate, and differences are taken within a
//! round; the result is the median round with its spread. So what else the machine does meets all sides alike.
//!
//! Every row that is read is checked for its key. Rows that updates bring back to memory migrate again between slices.
//!
//! Limits: think time is spent asking for the time, so it takes processor time of the worker; places are uniform; rows
//! are promoted by updates only.

use std::cell::{Cell, RefCell};
use std::fmt;
mod moving;
mod report;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use thermocline_base::io::{AlignedBytes, Buffer, File, Io, IoError, OpenMode, Operation, SystemIo};
use thermocline_base::multiplex::{block_on, run_tasks, yield_now};
use thermocline_base::rng::Rng;
use thermocline_engine::row::{Column, KeyBuf, Layout, Type, Value};
use thermocline_engine::{
    ColdSteps, ColdStoreKind, Database, Durability, Error, Index, IndexSchema, Options, Table, TableSchema,
};

use crate::calibration::{Calibration, CalibrationError, calibrate};
use crate::machine::Machine;
use crate::progress::Progress;
use crate::report::Cold;
use crate::time;

/// Accesses of a transaction.
const ACCESSES: u64 = 4;
/// Rows of a batch that migrates.
const BATCH_ROWS: usize = 1_000;
/// Seconds of a slice.
const SLICE_SECONDS: f64 = if cfg!(test) { 0.02 } else { 0.4 };
/// Transactions of each thread in a slice at the least, however long they take: a busy machine measures the same things.
const SLICE_TRANSACTIONS_MIN: u64 = 100;
/// Time that a thread waits for them beyond its slice.
const PATIENCE: Duration = Duration::from_secs(10);
/// Length of the file that the bare device is read from.
const DEVICE_FILE_BYTES: u64 = if cfg!(test) { 4 << 20 } else { 128 << 20 };
/// Length of a read of it.
const PAGE_BYTES: usize = 4096;
/// One cold row in so many has its end noted, where the memo is to hold ends.
const ENDED_SHARE: u64 = 10;

/// Settings of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct SiberiaSettings {
    /// Rows of the table.
    pub rows: u64,
    /// The part of them that is placed in the cold store.
    pub cold_share: f64,
    /// Parts of the accesses that go to cold rows; each is compared with none.
    pub cold_access: Vec<f64>,
    /// The part of the transactions that update their rows instead of reading them.
    pub updates: f64,
    /// Microseconds that a client waits before each transaction.
    pub think_us: u64,
    /// Clients, on all threads together.
    pub clients: usize,
    /// Threads.
    pub threads: usize,
    /// `pages`, `direct` or `memory`.
    pub store: String,
    /// Is the memo cleaned?
    pub clean: bool,
    /// Do hot rows come back that are only read?
    pub promote: bool,
    /// Bytes of pages that the store `pages` may cache.
    pub frame_bytes: u64,
    /// Are latencies measured at half the rate, while rows move to and fro all the time?
    pub paced: bool,
    /// Is it measured what throughput is lost while rows migrate?
    pub moving: bool,
    /// Rows of 100 bytes whose migration is measured.
    pub migrate_rows: u64,
    /// Memory limit of the databases.
    pub memory_limit_bytes: Option<u64>,
    /// Seconds of each measure.
    pub seconds: f64,
    /// Where the files lie.
    pub data_dir: PathBuf,
    /// One seed gives one sequence of accesses.
    pub seed: u64,
}

/// A median of rounds, and the least and the greatest.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let (first, last) = (values.first().copied(), values.last().copied());
        let median = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
        Self { median, min: first.unwrap_or(median), max: last.unwrap_or(median) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2}-{:.2})", self.median, self.min, self.max)
    }
}

/// Transactions with one share of cold accesses.
#[derive(Clone, Debug, Serialize)]
pub struct ShareReport {
    /// The part of the accesses that go to cold rows.
    pub cold_access: f64,
    /// Transactions a second.
    pub per_s: Spread,
    /// Mean latency.
    pub latency_us: Spread,
    /// Part of the throughput without cold accesses that is lost.
    pub lost: Option<Spread>,
    /// Mean latency beyond that without cold accesses, by cold access.
    pub added_us_per_cold_access: Option<Spread>,
    /// Processor time of the clients' threads beyond that without cold accesses, by cold access. Without think time only,
    /// which is processor time itself.
    pub added_cpu_us_per_cold_access: Option<Spread>,
    /// Mean latency of a read of the bare device by as many clients with the same think time and as many reads.
    pub device_us: Option<Spread>,
    /// The former by the latter.
    pub device_ratio: Option<Spread>,
    /// The part of the lesser of the rate without cold accesses and the device's rate by its reads a transaction.
    /// Without think time only.
    pub reachable_share: Option<Spread>,
    /// Reads of the device by the store for each cold access. Not with the store `memory`.
    pub device_reads_per_cold_access: Option<Spread>,
    /// Transactions that were aborted, in all slices.
    pub aborted: u64,
}

/// The machinery alone: one client, nanoseconds of its thread's processor time an access, which other programs disturb
/// less than its latency.
#[derive(Clone, Debug, Serialize)]
pub struct MachineryReport {
    /// An access to a hot row, with its part of beginning and committing.
    pub hot_ns: Spread,
    /// Time that a cold access adds, the memo being empty.
    pub cold_added_ns: Spread,
    /// Time that the memo adds to that with ends of other records in it.
    pub memo_without_hit_added_ns: Spread,
    /// Time that the memo adds with the notice of the record's batch in it.
    pub memo_with_hit_added_ns: Spread,
    /// Ends and batches in the memo then.
    pub notices: (usize, usize),
}

/// Latencies at half the rate that was reached, from when a transaction should have begun, while one thread migrates rows
/// and brings them back as fast as it can.
#[derive(Clone, Debug, Serialize)]
pub struct PacedReport {
    /// The part of the accesses that go to cold rows.
    pub cold_access: f64,
    /// Transactions a second that should begin.
    pub wanted_per_s: f64,
    /// Those that ended.
    pub per_s: f64,
    /// Half of the transactions take less.
    pub p50_us: f64,
    /// 99 % do.
    pub p99_us: f64,
    /// 99.9 % do.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Rows that moved meanwhile, in either direction, a second.
    pub moved_per_s: f64,
}

/// The cost of migration for transactions that run meanwhile: slices in turns, in which rows migrate at an even pace
/// or none do. No transaction uses the rows that migrate.
#[derive(Clone, Debug, Serialize)]
pub struct MovingReport {
    /// The part of the accesses that go to cold rows.
    pub cold_access: f64,
    /// Transactions a second, while none migrate.
    pub still_per_s: Spread,
    /// Transactions a second, while some do.
    pub moving_per_s: Spread,
    /// The part of the throughput that is lost.
    pub lost: Spread,
    /// The part of all processors' time that the process takes beside its clients while rows migrate, less what it takes
    /// while none do.
    pub cpu_share: Spread,
    /// Rows that migrated a second.
    pub rows_per_s: f64,
    /// Transactions that were aborted.
    pub aborted: u64,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct SiberiaReport {
    /// The version of Thermocline.
    pub version: &'static str,
    /// `siberia`.
    pub benchmark: &'static str,
    /// The settings.
    pub settings: SiberiaSettings,
    /// Where.
    pub machine: Machine,
    /// The machine's own speed, if it was measured.
    pub calibration: Option<Calibration>,
    /// By share of cold accesses; the first one has none.
    pub shares: Vec<ShareReport>,
    /// With the store `memory`.
    pub machinery: Option<MachineryReport>,
    /// If that was asked for.
    pub paced: Option<PacedReport>,
    /// If that was asked for.
    pub moving: Option<MovingReport>,
    /// The process's time by row of 100 bytes that migrates.
    pub cpu_us_per_migrated_row: Spread,
    /// Of the database with the rows of 56 bytes, from its opening on.
    pub cold: Cold,
}

/// Why there is no result.
#[derive(Debug)]
pub enum SiberiaError {
    /// A setting that cannot be.
    Setting(String),
    /// The engine refused.
    Engine(Error),
    /// The machine could not be measured.
    Calibration(CalibrationError),
    /// The bare device failed.
    Io(IoError),
    /// A row is not what was written.
    Wrong(i64),
    /// The memo does not become empty.
    NotClean((usize, usize)),
    /// Entries of rows that have moved stay in the indexes.
    NotSettled(u64),
}

impl fmt::Display for SiberiaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(said) => f.write_str(said),
            Self::Engine(error) => error.fmt(f),
            Self::Calibration(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Wrong(id) => {
                write!(f, "row {id} was lost, or served with another key; please report this as a bug")
            }
            Self::NotClean((batches, ends)) => write!(
                f,
                "cleaning leaves {batches} notices of batches and {ends} of ends though no transaction is open; please \
                 report this as a bug"
            ),
            Self::NotSettled(entries) => write!(
                f,
                "{entries} entries stay in the indexes though their rows have moved and no transaction is open; please \
                 report this as a bug"
            ),
        }
    }
}

impl std::error::Error for SiberiaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Engine(error) => Some(error),
            Self::Calibration(error) => Some(error),
            Self::Io(error) => Some(error),
            Self::Setting(_) | Self::Wrong(_) | Self::NotClean(_) | Self::NotSettled(_) => None,
        }
    }
}

impl From<Error> for SiberiaError {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<IoError> for SiberiaError {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}

type Result<T> = std::result::Result<T, SiberiaError>;

/// Measures.
///
/// # Errors
/// When there is nothing to report.
pub fn run(settings: &SiberiaSettings, with_calibration: bool, quiet: bool) -> Result<SiberiaReport> {
    let kind = check(settings)?;
    let mut progress = Progress::new(quiet);
    let calibration = if with_calibration {
        progress.begin("calibrating");
        Some(calibrate(&settings.data_dir).map_err(SiberiaError::Calibration)?)
    } else {
        None
    };
    progress.begin("migrating rows of 100 B");
    let cpu_us_per_migrated_row = migration(settings, kind)?;
    progress.begin("loading");
    let mut world = World::fill(settings, kind, "main")?;
    world.steps.set_frame_bytes(settings.frame_bytes)?;
    world.place_again()?;
    if settings.clean {
        world.clean()?;
    }
    let machinery = match kind {
        ColdStoreKind::Memory => Some(machinery(settings, &world, &mut progress)?),
        _ => None,
    };
    let shares = shares(settings, kind, &world, &mut progress)?;
    let paced = match shares.get(1) {
        Some(share) if settings.paced => {
            progress.begin("half the rate, rows moving");
            Some(paced(settings, &world, share)?)
        }
        _ => None,
    };
    let moving = match settings.cold_access.first() {
        Some(cold_access) if settings.moving => {
            Some(moving::measure(settings, *cold_access, &mut world, &mut progress)?)
        }
        _ => None,
    };
    progress.end();
    Ok(SiberiaReport {
        version: env!("CARGO_PKG_VERSION"),
        benchmark: "siberia",
        settings: settings.clone(),
        machine: Machine::here(),
        calibration,
        shares,
        machinery,
        paced,
        moving,
        cpu_us_per_migrated_row,
        cold: Cold::of(&world.db.statistics().cold),
    })
}

fn check(settings: &SiberiaSettings) -> Result<ColdStoreKind> {
    let refuse = |said: &str| Err(SiberiaError::Setting(said.to_owned()));
    let cold = cold_rows(settings);
    if cold < 100 || settings.rows - cold < 100 {
        return refuse("--rows and --cold-share must leave 100 rows on either side");
    }
    if settings.clients < settings.threads {
        return refuse("--clients must be as many as --threads, at least");
    }
    if settings.migrate_rows < 5 {
        return refuse("--migrate-rows must be 5, at least");
    }
    let shares = || settings.cold_access.iter().chain([&settings.updates]);
    if shares().any(|share| !(0.0..=1.0).contains(share)) {
        return refuse("--cold-access and --updates are numbers from 0 to 1");
    }
    match settings.store.as_str() {
        "pages" => Ok(ColdStoreKind::Pages),
        "direct" => Ok(ColdStoreKind::Direct),
        "memory" => Ok(ColdStoreKind::Memory),
        _ => refuse("--store is pages, direct or memory"),
    }
}

fn cold_rows(settings: &SiberiaSettings) -> u64 {
    (settings.rows as f64 * settings.cold_share).round() as u64
}

/// Processor time of the process, or of the calling thread.
fn cpu_us(clock: rustix::time::ClockId) -> f64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

// --- the table ------------------------------------------------------------------------------------------------------

/// A database whose rows with ids below `cold` are in the cold store.
struct World {
    db: Database,
    table: Table,
    layout: Arc<Layout>,
    key: Index,
    steps: ColdSteps,
    rows: u64,
    cold: u64,
}

fn create(settings: &SiberiaSettings, kind: ColdStoreKind, name: &str) -> Result<Database> {
    let mut options = Options::default().with_durability(Durability::Async);
    options.cold_store = kind;
    if !settings.promote {
        options.reads_a_promotion = 0;
    }
    if let Some(bytes) = settings.memory_limit_bytes {
        options = options.with_memory_limit(Some(bytes));
    }
    Ok(Database::open(settings.data_dir.join(name), options)?)
}

/// A table of rows with so many columns of eight bytes, and one of four if `odd`; filled.
fn fill(db: &Database, name: &str, words: usize, odd: bool, rows: u64) -> Result<Table> {
    let index = format!("{name}_key");
    let mut schema = TableSchema::new(name).column(Column::new("id", Type::Int8));
    for word in 1..words {
        schema = schema.column(Column::new(format!("c{word}"), Type::Int8));
    }
    if odd {
        schema = schema.column(Column::new("odd", Type::Int4));
    }
    let table = db.create_table(schema.primary_key(IndexSchema::hash(&index, &["id"])))?;
    db.bulk_load(
        &table,
        (0..rows.cast_signed()).map(|id| {
            let mut row = vec![Value::Int8(id); words];
            row.extend(odd.then_some(Value::Int4(0)));
            row
        }),
    )?;
    Ok(table)
}

impl World {
    /// Loads the table, and places its rows.
    fn fill(settings: &SiberiaSettings, kind: ColdStoreKind, name: &str) -> Result<Self> {
        let db = create(settings, kind, name)?;
        // 32 bytes, and the header of 24.
        let table = fill(&db, "t", 4, false, settings.rows)?;
        let (layout, key, steps) = (table.layout(), table.primary(), db.cold_steps());
        let cold = cold_rows(settings);
        Ok(Self { db, table, layout, key, steps, rows: settings.rows, cold })
    }

    /// Waits until what has moved has left the indexes in memory: notices apart, nothing there tells of it any more.
    fn settle(&self) -> Result<()> {
        const PATIENCE: Duration = Duration::from_secs(30);
        let begin = time::now();
        loop {
            let (batches, ends) = self.steps.notices();
            let wanted = self.steps.rows_in_memory(&self.table) + batches + ends;
            let left = self.db.statistics().index_entries;
            if left <= wanted as u64 + 1_000 {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(SiberiaError::NotSettled(left));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Migrates what belongs into the cold store and is in memory.
    fn place_again(&self) -> Result<()> {
        let is_cold = |row: &[u8]| self.layout.i64(row, 0).is_some_and(|id| id < self.cold.cast_signed());
        self.steps.migrate(&self.table, is_cold, BATCH_ROWS)?;
        Ok(())
    }

    /// Cleans until the memo is empty.
    fn clean(&self) -> Result<()> {
        const PATIENCE: Duration = Duration::from_secs(30);
        let begin = time::now();
        while self.steps.notices() != (0, 0) {
            if !self.steps.clean()? {
                std::thread::sleep(Duration::from_millis(5));
            }
            if begin.elapsed() > PATIENCE {
                return Err(SiberiaError::NotClean(self.steps.notices()));
            }
        }
        Ok(())
    }

    /// One transaction. How many of its accesses were to cold rows.
    async fn transact(&self, load: &Load, rng: &mut Rng) -> Result<u64> {
        let (mut ids, mut cold) = ([0; ACCESSES as usize], 0);
        for at in 0..ids.len() {
            let is_cold = rng.chance(load.cold_access);
            cold += u64::from(is_cold);
            ids[at] = loop {
                let id = match is_cold {
                    true => load.cold_from + rng.below(self.cold - load.cold_from),
                    false => load.hot_from + rng.below(self.rows - load.hot_from),
                };
                if !ids[..at].contains(&id.cast_signed()) {
                    break id.cast_signed();
                }
            };
        }
        let updates = rng.chance(load.updates);
        let mut tx = self.db.begin(thermocline_engine::TransactionOptions::new())?;
        for id in ids {
            let key = KeyBuf::new().i64(id);
            let found = if updates {
                let edit = |row: &mut thermocline_engine::row::RowEditor<'_>| {
                    let value = rng.next_u64().cast_signed();
                    row.set_i64(1, value).map_err(|error| self.table.error(error))?;
                    Ok(id)
                };
                tx.update(&self.key, &key, edit).await?.map(Some)
            } else {
                tx.read(&self.key, &key, |row| self.layout.i64(row, 0)).await?
            };
            if found != Some(Some(id)) {
                return Err(SiberiaError::Wrong(id));
            }
        }
        tx.commit().await?;
        Ok(cold)
    }
}

// --- clients --------------------------------------------------------------------------------------------------------

/// The work of clients in one slice.
#[derive(Clone, Copy)]
struct Load {
    cold_access: f64,
    /// Cold rows below this are left alone.
    cold_from: u64,
    /// Rows in memory below this are left alone.
    hot_from: u64,
    updates: f64,
    think: Duration,
    clients: usize,
    threads: usize,
    seed: u64,
    seconds: f64,
}

/// The result of a slice.
#[derive(Clone, Copy, Default)]
struct Slice {
    done: u64,
    aborted: u64,
    cold: u64,
    latency_ns: u64,
    /// Processor time of the clients' threads.
    cpu_us: f64,
    seconds: f64,
    /// Reads of the device by the cold store.
    device_reads: u64,
}

impl Slice {
    fn cpu_each_us(&self) -> f64 {
        self.cpu_us / self.done.max(1) as f64
    }

    fn per_s(&self) -> f64 {
        self.done as f64 / self.seconds
    }

    fn latency_us(&self) -> f64 {
        self.latency_ns as f64 / self.done.max(1) as f64 / 1e3
    }

    fn cold_each(&self) -> f64 {
        self.cold as f64 / self.done.max(1) as f64
    }
}

/// Runs clients, each of which thinks and then does `work`, which gives what it adds to the slice.
fn clients<W>(load: &Load, work: impl Fn() -> W + Sync) -> Result<Slice>
where
    W: AsyncFnMut(&mut Rng) -> Result<Slice>,
{
    let limit = Duration::from_secs_f64(load.seconds);
    let begin = time::now();
    let one_thread = |thread: usize| {
        let (sum, failure) = (Cell::new(Slice::default()), RefCell::new(None));
        let here = (load.clients + thread) / load.threads;
        let tasks = (0..here).map(async |client| {
            let mut rng = Rng::new(load.seed << 24 ^ (thread << 16 | client) as u64);
            let mut work = work();
            let goes_on = |done: u64| {
                let elapsed = begin.elapsed();
                elapsed < limit || done < SLICE_TRANSACTIONS_MIN && elapsed < limit + PATIENCE
            };
            while goes_on(sum.get().done) && failure.borrow().is_none() {
                if !load.think.is_zero() {
                    let until = time::now() + load.think;
                    while time::now() < until {
                        yield_now().await;
                    }
                }
                let outcome = work(&mut rng).await;
                let mut total = sum.get();
                match outcome {
                    Ok(one) => {
                        total.done += one.done;
                        total.cold += one.cold;
                        total.latency_ns += one.latency_ns;
                    }
                    Err(SiberiaError::Engine(error)) if error.is_retryable() => total.aborted += 1,
                    Err(error) => {
                        failure.replace(Some(error));
                    }
                }
                sum.set(total);
                if here > 1 {
                    yield_now().await;
                }
            }
        });
        let cpu_before = cpu_us(rustix::time::ClockId::ThreadCPUTime);
        run_tasks(tasks.collect());
        let mut total = sum.get();
        total.cpu_us = cpu_us(rustix::time::ClockId::ThreadCPUTime) - cpu_before;
        sum.set(total);
        failure.into_inner().map_or(Ok(sum.get()), Err)
    };
    let mut sum = Slice::default();
    std::thread::scope(|scope| {
        let one_thread = &one_thread;
        let threads: Vec<_> =
            (0..load.threads).map(|thread| scope.spawn(move || one_thread(thread))).collect();
        for thread in threads {
            let slice = thread.join().expect("clients do not panic")?;
            sum.done += slice.done;
            sum.aborted += slice.aborted;
            sum.cold += slice.cold;
            sum.latency_ns += slice.latency_ns;
            sum.cpu_us += slice.cpu_us;
        }
        Ok::<_, SiberiaError>(())
    })?;
    sum.seconds = begin.elapsed().as_secs_f64();
    if sum.done == 0 {
        return Err(SiberiaError::Setting("no transaction ended within a slice; use fewer --clients".into()));
    }
    Ok(sum)
}

fn transactions(world: &World, load: &Load) -> Result<Slice> {
    clients(load, || {
        async |rng: &mut Rng| {
            let begin = time::now();
            let cold = world.transact(load, rng).await?;
            Ok(Slice { done: 1, cold, latency_ns: begin.elapsed_ns(), ..Slice::default() })
        }
    })
}

/// The bare device.
struct Device {
    file: Arc<dyn File>,
}

impl Device {
    fn create(dir: &Path) -> Result<Self> {
        const PIECE_BYTES: usize = 1 << 20;
        let (io, path) = (SystemIo::new(), dir.join("device"));
        let file = io.open_direct(&path, OpenMode::CreateNew)?;
        let mut piece = AlignedBytes::zeroed(PIECE_BYTES);
        Rng::new(1).fill(&mut piece);
        let mut buffer = Buffer::from(piece);
        for offset in (0..DEVICE_FILE_BYTES).step_by(PIECE_BYTES) {
            let outcome = block_on(file.submit(Operation::Write { offset, buffer }));
            outcome.result?;
            buffer = outcome.buffer;
        }
        file.sync_data()?;
        Ok(Self { file })
    }

    /// Clients that read it as often as they would read cold rows.
    fn read(&self, load: &Load) -> Result<Slice> {
        clients(load, || {
            let mut spare = Some(Buffer::from(AlignedBytes::zeroed(PAGE_BYTES)));
            async move |rng: &mut Rng| {
                let mut slice = Slice::default();
                for _ in 0..ACCESSES {
                    if !rng.chance(load.cold_access) {
                        continue;
                    }
                    let offset = rng.below(DEVICE_FILE_BYTES / PAGE_BYTES as u64) * PAGE_BYTES as u64;
                    let buffer = spare.take().expect("a client reads one page at a time");
                    let begin = time::now();
                    let outcome = self.file.submit(Operation::Read { offset, buffer }).await;
                    outcome.result?;
                    spare = Some(outcome.buffer);
                    slice.done += 1;
                    slice.latency_ns += begin.elapsed_ns();
                }
                Ok(slice)
            }
        })
    }
}

// --- measures -------------------------------------------------------------------------------------------------------

fn rounds(settings: &SiberiaSettings) -> u32 {
    (settings.seconds / SLICE_SECONDS).round().max(3.0) as u32
}

/// The shares of cold accesses, in turns.
fn shares(
    settings: &SiberiaSettings,
    kind: ColdStoreKind,
    world: &World,
    progress: &mut Progress,
) -> Result<Vec<ShareReport>> {
    let mut wanted = vec![0.0];
    wanted.extend(settings.cold_access.iter().copied().filter(|share| *share > 0.0));
    let device = match kind {
        ColdStoreKind::Memory => None,
        _ => Some(Device::create(&settings.data_dir)?),
    };
    let load = |cold_access: f64, round: u32| Load {
        cold_access,
        cold_from: 0,
        hot_from: world.cold,
        updates: settings.updates,
        think: Duration::from_micros(settings.think_us),
        clients: settings.clients,
        threads: settings.threads,
        seed: settings.seed << 16 ^ u64::from(round),
        seconds: SLICE_SECONDS,
    };
    let mut slices: Vec<Vec<Slice>> = vec![Vec::new(); wanted.len()];
    let mut bare: Vec<Vec<Slice>> = vec![Vec::new(); wanted.len()];
    let mut deep = Vec::new();
    let rounds = rounds(settings);
    // The first round is not counted: it starts threads and fills caches.
    for round in 0..=rounds {
        progress.show(|| format!("round {round} of {rounds}"));
        for (at, share) in wanted.iter().enumerate() {
            let load = load(*share, round);
            let reads_before = world.db.statistics().cold.device_reads;
            let mut slice = transactions(world, &load)?;
            slice.device_reads = world.db.statistics().cold.device_reads - reads_before;
            if settings.updates > 0.0 {
                world.place_again()?;
                if settings.clean {
                    world.clean()?;
                }
            }
            if round > 0 {
                slices[at].push(slice);
            }
            if let Some(device) = device.as_ref().filter(|_| *share > 0.0) {
                let slice = device.read(&load)?;
                if round > 0 {
                    bare[at].push(slice);
                }
            }
        }
        if let Some(device) = device.as_ref().filter(|_| settings.think_us == 0) {
            let slice = device.read(&load(1.0, round))?;
            if round > 0 {
                deep.push(slice);
            }
        }
    }
    let (all, none) = (&slices, &slices[0]);
    let report = |at: usize| {
        let each = |value: &dyn Fn(usize) -> f64| Spread::of((0..none.len()).map(value).collect());
        let added = |round: usize| {
            (all[at][round].latency_us() - none[round].latency_us()) / all[at][round].cold_each()
        };
        let added_cpu = |round: usize| {
            (all[at][round].cpu_each_us() - none[round].cpu_each_us()) / all[at][round].cold_each()
        };
        let reads = |round: usize| {
            let slice = &all[at][round];
            slice.device_reads as f64 / slice.cold.max(1) as f64
        };
        let reachable = |round: usize| {
            let slice = &all[at][round];
            let reads_each = slice.device_reads as f64 / slice.done as f64;
            let device = if reads_each > 0.0 { deep[round].per_s() / reads_each } else { f64::INFINITY };
            all[at][round].per_s() / none[round].per_s().min(device)
        };
        let (cold, device) = (at > 0, !bare[at].is_empty());
        ShareReport {
            cold_access: wanted[at],
            per_s: each(&|round| all[at][round].per_s()),
            latency_us: each(&|round| all[at][round].latency_us()),
            lost: cold.then(|| each(&|round| 1.0 - all[at][round].per_s() / none[round].per_s())),
            added_us_per_cold_access: cold.then(|| each(&added)),
            added_cpu_us_per_cold_access: (cold && settings.think_us == 0).then(|| each(&added_cpu)),
            device_us: device.then(|| each(&|round| bare[at][round].latency_us())),
            device_ratio: device.then(|| each(&|round| added(round) / bare[at][round].latency_us())),
            reachable_share: (cold && !deep.is_empty()).then(|| each(&reachable)),
            device_reads_per_cold_access: device.then(|| each(&reads)),
            aborted: all[at].iter().map(|slice| slice.aborted).sum(),
        }
    };
    Ok((0..wanted.len()).map(report).collect())
}

/// Latencies at half the rate of a share, beside a thread that moves rows all the time.
fn paced(settings: &SiberiaSettings, world: &World, share: &ShareReport) -> Result<PacedReport> {
    /// Rows that come back before they migrate again.
    const MOVED: u64 = 1_000;
    let wanted_per_s = share.per_s.median / 2.0;
    let interval = Duration::from_secs_f64(settings.clients as f64 / wanted_per_s);
    let limit = Duration::from_secs_f64(settings.seconds);
    let load = Load {
        cold_access: share.cold_access,
        cold_from: 0,
        hot_from: world.cold,
        updates: settings.updates,
        think: Duration::ZERO,
        clients: settings.clients,
        threads: settings.threads,
        seed: settings.seed << 16 ^ 1 << 14,
        seconds: settings.seconds,
    };
    let ended = AtomicBool::new(false);
    let mut latencies: Vec<u64> = Vec::new();
    let mut moved = 0;
    let begin = time::now();
    let one_thread = |thread: usize| {
        let (found, failure) = (RefCell::new(Vec::new()), RefCell::new(None));
        let here = (load.clients + thread) / load.threads;
        let tasks = (0..here).map(async |client| {
            let mut rng = Rng::new(load.seed << 24 ^ (thread << 16 | client) as u64);
            let mut due = begin + interval.mul_f64(rng.below(1_000) as f64 / 1e3);
            while begin.elapsed() < limit && failure.borrow().is_none() {
                while time::now() < due {
                    yield_now().await;
                }
                match world.transact(&load, &mut rng).await {
                    Ok(_) => found.borrow_mut().push(due.elapsed_ns()),
                    // Its successor is late then, which is measured.
                    Err(SiberiaError::Engine(error)) if error.is_retryable() => continue,
                    Err(error) => {
                        failure.replace(Some(error));
                    }
                }
                due += interval;
                yield_now().await;
            }
        });
        run_tasks(tasks.collect());
        failure.into_inner().map_or(Ok(found.into_inner()), Err)
    };
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let mut rng = Rng::new(load.seed);
            let mut moved = 0;
            while !ended.load(Ordering::Relaxed) {
                for _ in 0..MOVED {
                    let key = KeyBuf::new().i64(rng.below(world.cold).cast_signed());
                    moved += u64::from(world.steps.promote(&world.table, &key)?);
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                }
                let is_cold =
                    |row: &[u8]| world.layout.i64(row, 0).is_some_and(|id| id < world.cold.cast_signed());
                moved += world.steps.migrate(&world.table, is_cold, BATCH_ROWS)? as u64;
            }
            Ok::<_, SiberiaError>(moved)
        });
        let one_thread = &one_thread;
        let threads: Vec<_> =
            (0..load.threads).map(|thread| scope.spawn(move || one_thread(thread))).collect();
        let outcomes: Vec<_> =
            threads.into_iter().map(|thread| thread.join().expect("clients do not panic")).collect();
        ended.store(true, Ordering::Relaxed);
        moved = mover.join().expect("the mover does not panic")?;
        for outcome in outcomes {
            latencies.extend(outcome?);
        }
        Ok::<_, SiberiaError>(())
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    if latencies.is_empty() {
        return Err(SiberiaError::Setting("no transaction ended; use fewer --clients".into()));
    }
    latencies.sort_unstable();
    let part = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize] as f64 / 1e3;
    Ok(PacedReport {
        cold_access: share.cold_access,
        wanted_per_s,
        per_s: latencies.len() as f64 / settings.seconds,
        p50_us: part(0.5),
        p99_us: part(0.99),
        p999_us: part(0.999),
        max_us: part(1.0),
        moved_per_s: moved as f64 / seconds,
    })
}

/// One client; the memo empty, with ends of other records, and with notices of batches.
fn machinery(settings: &SiberiaSettings, main: &World, progress: &mut Progress) -> Result<MachineryReport> {
    progress.begin("placing rows for the memo");
    let (ends, batches) = (
        World::fill(settings, ColdStoreKind::Memory, "ends")?,
        World::fill(settings, ColdStoreKind::Memory, "batches")?,
    );
    ends.place_again()?;
    main.clean()?;
    ends.clean()?;
    // The engine cleans by itself what no reader needs.
    ends.steps.stop_cleaning()?;
    batches.steps.stop_cleaning()?;
    batches.place_again()?;
    let first = main.cold / ENDED_SHARE;
    block_on(async {
        for from in (0..first).step_by(BATCH_ROWS) {
            let mut tx = ends.db.begin(thermocline_engine::TransactionOptions::new())?;
            for id in from..first.min(from + BATCH_ROWS as u64) {
                let key = KeyBuf::new().i64(id.cast_signed());
                let edit = |row: &mut thermocline_engine::row::RowEditor<'_>| {
                    row.set_i64(1, -1).map_err(|error| ends.table.error(error))
                };
                tx.update(&ends.key, &key, edit).await?;
            }
            tx.commit().await?;
        }
        Ok::<_, Error>(())
    })?;
    for world in [main, &ends, &batches] {
        world.settle()?;
    }
    let mut all: [Vec<f64>; 4] = Default::default();
    let rounds = rounds(settings);
    for round in 0..=rounds {
        progress.show(|| format!("machinery: round {round} of {rounds}"));
        for (at, (world, cold_access)) in
            [(main, 0.0), (main, 1.0), (&ends, 1.0), (&batches, 1.0)].into_iter().enumerate()
        {
            let load = Load {
                cold_access,
                cold_from: first,
                hot_from: world.cold,
                updates: 0.0,
                think: Duration::ZERO,
                clients: 1,
                threads: 1,
                seed: settings.seed << 16 ^ 1 << 15 ^ u64::from(round),
                seconds: SLICE_SECONDS,
            };
            let slice = transactions(world, &load)?;
            if round > 0 {
                all[at].push(slice.cpu_each_us() * 1e3 / ACCESSES as f64);
            }
        }
    }
    let difference =
        |more: usize, less: usize| Spread::of(all[more].iter().zip(&all[less]).map(|(a, b)| a - b).collect());
    Ok(MachineryReport {
        cold_added_ns: difference(1, 0),
        memo_without_hit_added_ns: difference(2, 1),
        memo_with_hit_added_ns: difference(3, 1),
        notices: (ends.steps.notices().1, batches.steps.notices().0),
        hot_ns: Spread::of(all[0].clone()),
    })
}

/// Processor time by row of 100 bytes that migrates, everything included.
fn migration(settings: &SiberiaSettings, kind: ColdStoreKind) -> Result<Spread> {
    const TABLES: u64 = 5;
    let db = create(settings, kind, "migration")?;
    let steps = db.cold_steps();
    let mut found = Vec::new();
    for table in 0..TABLES {
        let table = fill(&db, &format!("m{table}"), 12, true, settings.migrate_rows / TABLES)?;
        db.flush()?;
        let begin = cpu_us(rustix::time::ClockId::ProcessCPUTime);
        let moved = steps.migrate(&table, |_| true, BATCH_ROWS)?;
        let took = cpu_us(rustix::time::ClockId::ProcessCPUTime) - begin;
        found.push(took / moved.max(1) as f64);
    }
    db.close()?;
    Ok(Spread::of(found))
}
