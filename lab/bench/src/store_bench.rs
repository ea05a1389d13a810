//! The store of cold records alone: what it takes to write, keep and find records.
//!
//! ```text
//!   load      all records, one primary and one secondary entry each, in batches of 1,000
//!   replace   random records are replaced, one in ten of them is deleted (and comes back when its turn comes again),
//!             with confirmed batches of 1,000 records, as fast as it goes
//!   reads     hits, misses and deleted keys, while merges run; the latency of reads, idle and while merging
//!   check     every key is compared with what should be there
//! ```
//!
//! The driver remembers for each record which batch wrote it (8 bytes a record), as the engine's notices would.
//!
//! Whose processor time it is: the driver draws keys, looks up and notes the batches that wrote them, and makes up
//! the contents of records (`Plan`). Those stretches have no `await` in them and are timed with the clock of the
//! thread that runs them. All other processor time of the process is the store's: making batches (hashes and copies),
//! waiting and waking, journal, blocks, flushes and merges. Afterwards the same stretches are run without the store,
//! for comparison.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use thermocline_base::io::SystemIo;
use thermocline_base::multiplex::run_tasks;
use thermocline_base::rng::{Rng, fresh_id};
use thermocline_pool::store::{Batch, BatchId, IndexId, Removal, Store, StoreError, StoreOptions};

use crate::calibration::{Calibration, CalibrationError, calibrate};
use crate::latency::Latencies;
use crate::machine::Machine;
use crate::progress::Progress;
use crate::report::{grouped, size};
use crate::time;

/// Records of a batch.
const BATCH_RECORDS: u64 = 1000;
/// Frames: so few that almost every read is one of the device.
const FRAME_BYTES: u64 = 1 << 20;
/// Keys that are asked for together.
const TOGETHER: usize = 16;
const PRIMARY: IndexId = IndexId { table: 1, index: 0 };
const SECONDARY: IndexId = IndexId { table: 1, index: 1 };

/// Settings of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct StoreSettings {
    /// Records.
    pub records: u64,
    /// Length of a record.
    pub record_bytes: usize,
    /// Replacements and deletes, as a multiple of the records.
    pub rounds: f64,
    /// Seconds of each measure of reads.
    pub seconds: f64,
    /// Threads that write.
    pub threads: usize,
    /// Reads, and batches of a thread, in flight.
    pub depth: usize,
    /// Is there a secondary index?
    pub secondary: bool,
    /// Blocks and frames are those of a database under this limit; `None`: the store's own, and 1 MiB of frames.
    pub memory_limit_bytes: Option<u64>,
    /// Where the store lies.
    pub data_dir: PathBuf,
    /// One seed gives one sequence of keys.
    pub seed: u64,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct StoreReport {
    /// The version of Thermocline.
    pub version: &'static str,
    /// `store`.
    pub benchmark: &'static str,
    /// The settings.
    pub settings: StoreSettings,
    /// Where.
    pub machine: Machine,
    /// The machine's own speed just before; none if it was skipped.
    pub calibration: Option<Calibration>,
    /// Records a second while loading.
    pub load_records_per_s: f64,
    /// Keys a second that are asked for, one thread, 16 together, keys that are there.
    pub may_contain_per_s: f64,
    /// The same, keys that are not there.
    pub may_contain_absent_per_s: f64,
    /// One by one, keys that are there.
    pub may_contain_one_by_one_per_s: f64,
    /// The same, keys that are not there.
    pub may_contain_absent_one_by_one_per_s: f64,
    /// Device reads of a point read of a record that is there, merges running.
    pub device_reads_per_hit: f64,
    /// Pages that such a read found in a frame instead.
    pub frame_hits_per_hit: f64,
    /// Device reads of a point read of a record that never was there, merges running.
    pub device_reads_per_miss: f64,
    /// Device reads of a point read of a deleted record, merges running.
    pub device_reads_per_deleted: f64,
    /// Memory of filters and fences, a record.
    pub bytes_per_record: f64,
    /// Bytes on disk, journal included, in relation to keys and records that are live.
    pub space_amplification: f64,
    /// The page file's extents alone.
    pub space_amplification_pages: f64,
    /// Records a second that durable batches replace or delete, merges included.
    pub records_per_s: f64,
    /// The store's own processor time for each of them: that of the whole process without the driver's.
    pub cpu_us_per_record: f64,
    /// The driver's processor time for each of them: keys, the batches that wrote them, and the contents of records.
    /// It is not in the store's; clock calls around it are.
    pub driver_cpu_us_per_record: f64,
    /// Processor time of the driver's work when the store is not called, on an otherwise idle process, by the
    /// process's clock.
    pub driver_alone_cpu_us_per_record: f64,
    /// Device bytes written in relation to bytes of keys and records.
    pub write_amplification: f64,
    /// 99th percentile of point reads at depth 16 of a store that does nothing else.
    pub read_p99_us_idle: f64,
    /// The same while batches are written and merged at full rate.
    pub read_p99_us_merging: f64,
    /// Reads a second then.
    pub reads_per_s_idle: f64,
    /// Reads a second then.
    pub reads_per_s_merging: f64,
    /// Memory of blocks, at most.
    pub block_memory_bytes_max: u64,
    /// Merges.
    pub merges: u64,
    /// Seconds to open the store afterwards.
    pub open_seconds: f64,
}

/// Why there is no result.
#[derive(Debug)]
pub enum StoreBenchError {
    /// The machine could not be measured.
    Calibration(CalibrationError),
    /// The store refused.
    Store(StoreError),
    /// A record is not what was written.
    Wrong {
        /// Which one.
        record: u64,
    },
}

impl fmt::Display for StoreBenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Calibration(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Wrong { record } => {
                write!(f, "record {record} is not what was written; please report this as a bug")
            }
        }
    }
}

impl std::error::Error for StoreBenchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Calibration(error) => Some(error),
            Self::Store(error) => Some(error),
            Self::Wrong { .. } => None,
        }
    }
}

impl From<StoreError> for StoreBenchError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

type Result<T> = std::result::Result<T, StoreBenchError>;

/// Processor time of the process so far, in nanoseconds.
fn process_ns() -> u64 {
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
    #[cfg(not(unix))]
    0
}

/// Processor time of the calling thread so far, in nanoseconds.
fn thread_ns() -> u64 {
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
    #[cfg(not(unix))]
    0
}

/// Spreads record numbers over the keys, one to one.
const fn scrambled(record: u64) -> u64 {
    let mut mixed = record.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^= mixed >> 32;
    mixed.wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

fn primary_key(record: u64) -> [u8; 8] {
    scrambled(record).to_be_bytes()
}

/// Another order than the primary key's, and the primary key behind it, as secondary indexes have it.
fn secondary_key(record: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&scrambled(record ^ 0x5555_0000_0000).to_be_bytes());
    key[8..].copy_from_slice(&primary_key(record));
    key
}

struct Bench<'a> {
    settings: &'a StoreSettings,
    options: StoreOptions,
    /// The batch that wrote each record; 0: it is deleted.
    batches: Vec<AtomicU64>,
    next_batch: AtomicU64,
    /// Processor time of the driver, in nanoseconds.
    driver_ns: AtomicU64,
}

/// The fate of a record.
#[derive(Clone, Copy)]
struct Change {
    record: u64,
    key: [u8; 8],
    secondary: [u8; 16],
    /// The batch that wrote it; 0: it is deleted.
    former: u64,
    delete: bool,
}

impl Change {
    fn new(record: u64, former: u64, delete: bool) -> Self {
        Self { record, key: primary_key(record), secondary: secondary_key(record), former, delete }
    }
}

/// The changes of a batch, and the contents of its records: all that the driver does before the store is called.
struct Plan {
    id: u64,
    changes: Vec<Change>,
    /// The contents of those that are not deleted.
    contents: Vec<u8>,
}

impl Bench<'_> {
    fn fill(&self, record: u64, batch: u64, bytes: &mut [u8]) {
        let mut value = record ^ batch.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for part in bytes.chunks_mut(8) {
            value = value.wrapping_mul(0xD6E8_FEB8_6659_FD93).wrapping_add(1);
            part.copy_from_slice(&value.to_le_bytes()[..part.len()]);
        }
    }

    /// Runs a stretch of the driver's own work.
    fn as_driver<T>(&self, body: impl FnOnce() -> T) -> T {
        let began = thread_ns();
        let result = body();
        self.driver_ns.fetch_add(thread_ns() - began, Ordering::Relaxed);
        result
    }

    /// Replaces or deletes records.
    fn plan(&self, rng: &mut Rng, part: (u64, u64)) -> Plan {
        let id = self.next_batch.fetch_add(1, Ordering::Relaxed);
        let mut records: Vec<u64> = (0..BATCH_RECORDS).map(|_| part.0 + rng.below(part.1 - part.0)).collect();
        records.sort_unstable();
        records.dedup();
        let length = self.settings.record_bytes;
        let mut contents = vec![0; records.len() * length];
        let mut at = 0;
        let changes = records.into_iter().map(|record| {
            let former = self.batches[record as usize].load(Ordering::Relaxed);
            let delete = former != 0 && rng.below(10) == 0;
            if !delete {
                self.fill(record, id, &mut contents[at..at + length]);
                at += length;
            }
            Change::new(record, former, delete)
        });
        let changes = changes.collect();
        Plan { id, changes, contents }
    }

    /// All records of a part of the load.
    fn load_plan(&self, number: u64) -> Plan {
        let id = self.next_batch.fetch_add(1, Ordering::Relaxed);
        let records = number * BATCH_RECORDS..((number + 1) * BATCH_RECORDS).min(self.settings.records);
        let mut contents = vec![0; (records.end - records.start) as usize * self.settings.record_bytes];
        for (record, bytes) in records.clone().zip(contents.chunks_mut(self.settings.record_bytes)) {
            self.fill(record, id, bytes);
        }
        let changes = records.map(|record| Change::new(record, 0, false)).collect();
        Plan { id, changes, contents }
    }

    /// Notes what a plan has done.
    fn note(&self, plan: &Plan) {
        for change in &plan.changes {
            let now = if change.delete { 0 } else { plan.id };
            self.batches[change.record as usize].store(now, Ordering::Relaxed);
        }
    }

    /// The batch that a plan asks for.
    fn batch(&self, plan: &Plan) -> Result<Batch> {
        let mut batch = Batch::confirmed(BatchId(plan.id));
        let mut contents = plan.contents.chunks(self.settings.record_bytes);
        for change in &plan.changes {
            if change.former != 0 {
                batch.remove(PRIMARY, &change.key, BatchId(change.former), Removal::Last)?;
            }
            if !change.delete {
                batch.put(PRIMARY, &change.key, contents.next().expect("each has its contents"))?;
            }
        }
        if self.settings.secondary {
            for change in &plan.changes {
                if change.former != 0 {
                    batch.remove(SECONDARY, &change.secondary, BatchId(change.former), Removal::Last)?;
                }
                if !change.delete {
                    batch.put(SECONDARY, &change.secondary, &change.key)?;
                }
            }
        }
        Ok(batch)
    }

    /// Processor time that the driver's work takes for a record when the store is not called, in microseconds.
    fn driver_alone_us(&self) -> f64 {
        let mut rng = Rng::new(self.settings.seed ^ 3);
        let began = process_ns();
        let mut records = 0;
        for _ in 0..200 {
            let plan = self.as_driver(|| self.plan(&mut rng, (0, self.settings.records)));
            for change in &plan.changes {
                // What is there stays there, since the store knows of nothing.
                self.batches[change.record as usize].store(change.former, Ordering::Relaxed);
            }
            records += plan.changes.len();
            std::hint::black_box(plan);
        }
        (process_ns() - began) as f64 / 1e3 / records as f64
    }

    fn load(&self, store: &Arc<Store>) -> Result<f64> {
        let began = time::now();
        let batches = self.settings.records.div_ceil(BATCH_RECORDS);
        self.for_all_writers(|thread, threads| {
            let failed = std::sync::Mutex::new(None);
            let next = AtomicU64::new(thread as u64);
            let tasks = (0..self.settings.depth.min(8)).map(|_| async {
                loop {
                    let number = next.fetch_add(threads as u64, Ordering::Relaxed);
                    if number >= batches {
                        return;
                    }
                    if let Err(error) = self.load_batch(store, number).await {
                        *failed.lock().expect("nobody panics") = Some(error);
                        return;
                    }
                }
            });
            run_tasks(tasks.collect());
            failed.into_inner().expect("nobody panics").map_or(Ok(()), Err)
        })?;
        Ok(self.settings.records as f64 / began.elapsed().as_secs_f64())
    }

    async fn load_batch(&self, store: &Arc<Store>, number: u64) -> Result<()> {
        let plan = self.as_driver(|| self.load_plan(number));
        store.write(self.batch(&plan)?).await?;
        self.as_driver(|| self.note(&plan));
        Ok(())
    }

    fn for_all_writers(&self, body: impl Fn(usize, usize) -> Result<()> + Sync) -> Result<()> {
        let threads = self.settings.threads;
        std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads)
                .map(|thread| {
                    scope.spawn({
                        let body = &body;
                        move || body(thread, threads)
                    })
                })
                .collect();
            handles.into_iter().try_for_each(|handle| handle.join().expect("a writer does not panic"))
        })
    }

    /// Replaces and deletes `count` records, or until `stop`. Each task has records of its own.
    fn replace(&self, store: &Arc<Store>, count: u64, stop: &AtomicBool, seed: u64) -> Result<u64> {
        let done = AtomicU64::new(0);
        self.for_all_writers(|thread, threads| {
            let failed = std::sync::Mutex::new(None);
            let depth = self.settings.depth.min(8);
            let tasks = (0..depth).map(|task| {
                let parts = (threads * depth) as u64;
                let part = (thread * depth + task) as u64;
                let records = self.settings.records;
                let part = (records * part / parts, records * (part + 1) / parts);
                let mut rng = Rng::new(seed ^ part.0);
                let (done, failed) = (&done, &failed);
                async move {
                    while done.load(Ordering::Relaxed) < count && !stop.load(Ordering::Relaxed) {
                        let plan = self.as_driver(|| self.plan(&mut rng, part));
                        let result = async { Ok(store.write(self.batch(&plan)?).await?) };
                        match result.await {
                            Ok(()) => {
                                done.fetch_add(plan.changes.len() as u64, Ordering::Relaxed);
                                self.as_driver(|| self.note(&plan));
                            }
                            Err(error) => {
                                *failed.lock().expect("nobody panics") = Some(error);
                                return;
                            }
                        }
                    }
                }
            });
            run_tasks(tasks.collect());
            failed.into_inner().expect("nobody panics").map_or(Ok(()), Err)
        })?;
        Ok(done.into_inner())
    }

    /// Point reads at a depth for a while, on one thread: reads, device reads, latencies.
    fn read(&self, store: &Arc<Store>, what: What, depth: usize, seconds: f64, seed: u64) -> Result<Reads> {
        let before = store.statistics();
        let began = time::now();
        let limit = Duration::from_secs_f64(seconds);
        let wrong = std::sync::Mutex::new(None);
        let results = std::sync::Mutex::new((0_u64, Latencies::default()));
        let tasks = (0..depth).map(|task| {
            let mut rng = Rng::new(seed.wrapping_add(task as u64 * 7919));
            let (wrong, results) = (&wrong, &results);
            async move {
                let mut latencies = Latencies::default();
                let mut reads = 0;
                let mut expected = vec![0; self.settings.record_bytes];
                while began.elapsed() < limit {
                    let record = rng.below(self.settings.records);
                    let batch = self.batches[record as usize].load(Ordering::Relaxed);
                    let record = match what {
                        What::There if batch != 0 => record,
                        What::Deleted if batch == 0 => record,
                        What::Never => record + (1 << 40),
                        _ => continue,
                    };
                    let start = time::now();
                    let found = store.get(PRIMARY, &primary_key(record)).await;
                    latencies.record(start.elapsed_ns());
                    reads += 1;
                    let fine = match (&found, what) {
                        (Err(_), _) => false,
                        // Writers may have been there since.
                        (Ok(found), What::There) => {
                            let written = found.first().map(|found| found.batch.0);
                            let same = written == Some(batch);
                            self.fill(record, written.unwrap_or(0), &mut expected);
                            let now = self.batches[record as usize].load(Ordering::Relaxed);
                            found.first().is_none_or(|found| found.record == expected)
                                && (same || now != batch || written > Some(batch) || found.is_empty())
                        }
                        (Ok(found), _) => found.is_empty() || what == What::Deleted,
                    };
                    if !fine {
                        *wrong.lock().expect("nobody panics") = Some(match found {
                            Err(error) => StoreBenchError::Store(error),
                            Ok(_) => StoreBenchError::Wrong { record },
                        });
                        return;
                    }
                }
                let mut results = results.lock().expect("nobody panics");
                results.0 += reads;
                results.1.merge(&latencies);
            }
        });
        run_tasks(tasks.collect());
        if let Some(error) = wrong.into_inner().expect("nobody panics") {
            return Err(error);
        }
        let (reads, latencies) = results.into_inner().expect("nobody panics");
        let after = store.statistics();
        let each = |count: u64| count as f64 / reads.max(1) as f64;
        Ok(Reads {
            device_reads: each(after.page_reads - before.page_reads),
            frame_hits: each(after.frame_hits - before.frame_hits),
            per_s: reads as f64 / began.elapsed().as_secs_f64(),
            p99_us: latencies.percentiles().p99,
        })
    }

    fn may_contain(&self, store: &Store, there: bool, together: bool, seconds: f64) -> f64 {
        let mut rng = Rng::new(self.settings.seed ^ 0xc0ffee);
        let keys: Vec<[u8; 8]> = (0..1 << 16)
            .map(|_| primary_key(rng.below(self.settings.records) + if there { 0 } else { 1 << 40 }))
            .collect();
        let began = time::now();
        let (mut asked, mut yes) = (0_u64, 0_u64);
        let mut answers = [false; TOGETHER];
        while began.elapsed() < Duration::from_secs_f64(seconds) {
            if together {
                for keys in keys.chunks_exact(TOGETHER) {
                    store.may_contain_all(PRIMARY, keys, &mut answers);
                    yes += answers.iter().filter(|yes| **yes).count() as u64;
                }
            } else {
                for key in &keys {
                    yes += u64::from(store.may_contain(PRIMARY, key));
                }
            }
            asked += keys.len() as u64;
        }
        std::hint::black_box(yes);
        asked as f64 / began.elapsed().as_secs_f64()
    }

    /// Compares every record, of which nothing is being changed.
    fn check(&self, store: &Arc<Store>, share: f64) -> Result<()> {
        let next = AtomicU64::new(0);
        let step = (1.0 / share).max(1.0) as u64;
        let wrong = std::sync::Mutex::new(None);
        let tasks = (0..32).map(|_| async {
            let mut expected = vec![0; self.settings.record_bytes];
            loop {
                let record = next.fetch_add(step, Ordering::Relaxed);
                if record >= self.settings.records {
                    return;
                }
                let batch = self.batches[record as usize].load(Ordering::Relaxed);
                self.fill(record, batch, &mut expected);
                let found = store.get(PRIMARY, &primary_key(record)).await;
                let fine = match &found {
                    Ok(found) if batch == 0 => found.is_empty(),
                    Ok(found) => found.len() == 1 && found[0].batch.0 == batch && found[0].record == expected,
                    Err(_) => false,
                };
                if !fine {
                    *wrong.lock().expect("nobody panics") = Some(match found {
                        Err(error) => StoreBenchError::Store(error),
                        Ok(_) => StoreBenchError::Wrong { record },
                    });
                    return;
                }
            }
        });
        run_tasks(tasks.collect());
        wrong.into_inner().expect("nobody panics").map_or(Ok(()), Err)
    }

    fn live_bytes(&self) -> f64 {
        let live = self.batches.iter().filter(|batch| batch.load(Ordering::Relaxed) != 0).count();
        let entry = 8 + self.settings.record_bytes + if self.settings.secondary { 24 } else { 0 };
        (live * entry) as f64
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    There,
    Deleted,
    Never,
}

#[derive(Clone, Copy, Debug)]
struct Reads {
    device_reads: f64,
    frame_hits: f64,
    per_s: f64,
    p99_us: f64,
}

/// Measures the store.
///
/// # Errors
/// When there is nothing to report.
pub fn run(settings: &StoreSettings, with_calibration: bool, quiet: bool) -> Result<StoreReport> {
    let mut progress = Progress::new(quiet);
    let calibration = if with_calibration {
        progress.begin("calibrating");
        Some(calibrate(&settings.data_dir).map_err(StoreBenchError::Calibration)?)
    } else {
        None
    };
    let bench = Bench {
        settings,
        options: match settings.memory_limit_bytes {
            Some(limit) => StoreOptions::new(fresh_id()).within(limit),
            None => StoreOptions { frame_bytes: FRAME_BYTES, ..StoreOptions::new(fresh_id()) },
        },
        batches: (0..settings.records).map(|_| AtomicU64::new(0)).collect(),
        next_batch: AtomicU64::new(1),
        driver_ns: AtomicU64::new(0),
    };
    let open =
        || Store::open(Arc::new(SystemIo::new()), &settings.data_dir.join("store"), bench.options.clone());
    let store = open()?;
    progress.begin("loading");
    let load_records_per_s = bench.load(&store)?;
    // Half a round first: the steady state, not the beginning, is measured.
    progress.begin("replacing and deleting");
    let never = AtomicBool::new(false);
    let all = (settings.records as f64 * settings.rounds) as u64;
    bench.replace(&store, all / 4, &never, settings.seed)?;
    let driver_ns = || bench.driver_ns.load(Ordering::Relaxed);
    let (began, before) = (time::now(), store.statistics());
    let (process, driver) = (process_ns(), driver_ns());
    let replaced = bench.replace(&store, all - all / 4, &never, settings.seed ^ 1)?;
    let seconds = began.elapsed().as_secs_f64();
    let (process, driver) = (process_ns() - process, driver_ns() - driver);
    let driver_cpu_us_per_record = driver as f64 / 1e3 / replaced as f64;
    let cpu_us_per_record = process as f64 / 1e3 / replaced as f64 - driver_cpu_us_per_record;
    let after = store.statistics();
    let written = (after.device_bytes_written - before.device_bytes_written) as f64;
    let write_amplification = written / (after.record_bytes_in - before.record_bytes_in) as f64;
    let entries = settings.records as f64;
    let bytes_per_record = (after.filter_memory_bytes + after.fence_memory_bytes) as f64 / entries;
    let live = bench.live_bytes();
    let space_amplification = (after.disk_bytes + after.journal_disk_bytes) as f64 / live;
    let space_amplification_pages = after.disk_bytes as f64 / live;
    progress.begin("filters");
    while !store.is_idle() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let driver_alone_cpu_us_per_record = bench.driver_alone_us();
    let filters = |there, together| bench.may_contain(&store, there, together, settings.seconds);
    let may_contain_per_s = filters(true, true);
    let may_contain_absent_per_s = filters(false, true);
    let may_contain_one_by_one_per_s = filters(true, false);
    let may_contain_absent_one_by_one_per_s = filters(false, false);
    progress.begin("reads while merging");
    let stop = AtomicBool::new(false);
    let (there, absent, deleted) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| bench.replace(&store, u64::MAX, &stop, settings.seed ^ 2));
        let read = |what, seed| bench.read(&store, what, 16, settings.seconds, seed);
        let all = || -> Result<_> {
            Ok((read(What::There, 11)?, read(What::Never, 12)?, read(What::Deleted, 13)?))
        };
        let reads = all();
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("the writers do not panic")?;
        reads
    })?;
    progress.begin("reads alone");
    while !store.is_idle() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let idle = bench.read(&store, What::There, 16, settings.seconds, 14)?;
    progress.begin("checking");
    bench.check(&store, (500_000.0 / entries).min(1.0))?;
    let merges = store.statistics().merges;
    let block_memory_bytes_max = store.statistics().block_memory_bytes_max;
    drop(store);
    let began = time::now();
    let store = open()?;
    let open_seconds = began.elapsed().as_secs_f64();
    bench.check(&store, (100_000.0 / entries).min(1.0))?;
    drop(store);
    progress.end();
    Ok(StoreReport {
        version: env!("CARGO_PKG_VERSION"),
        benchmark: "store",
        settings: settings.clone(),
        machine: Machine::here(),
        calibration,
        load_records_per_s,
        may_contain_per_s,
        may_contain_absent_per_s,
        may_contain_one_by_one_per_s,
        may_contain_absent_one_by_one_per_s,
        device_reads_per_hit: there.device_reads,
        frame_hits_per_hit: there.frame_hits,
        device_reads_per_miss: absent.device_reads,
        device_reads_per_deleted: deleted.device_reads,
        bytes_per_record,
        space_amplification,
        space_amplification_pages,
        records_per_s: replaced as f64 / seconds,
        cpu_us_per_record,
        driver_cpu_us_per_record,
        driver_alone_cpu_us_per_record,
        write_amplification,
        read_p99_us_idle: idle.p99_us,
        read_p99_us_merging: there.p99_us,
        reads_per_s_idle: idle.per_s,
        reads_per_s_merging: there.per_s,
        block_memory_bytes_max,
        merges,
        open_seconds,
    })
}

impl StoreReport {
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
        let settings = &self.settings;
        let indexes = if settings.secondary { "primary and secondary index" } else { "primary index" };
        let lines = [
            (
                "store",
                format!(
                    "{} records of {} bytes, {indexes}, {:.1} rounds of replacements and deletes",
                    grouped(settings.records as f64),
                    settings.record_bytes,
                    settings.rounds
                ),
            ),
            (
                "machine",
                format!("{}, {} cores, {}", self.machine.cpu, self.machine.cores, self.machine.kernel),
            ),
            ("loading", format!("{} records/s", grouped(self.load_records_per_s))),
            (
                "replacing",
                format!(
                    "{} records/s, write amplification {:.2}, {} merges",
                    grouped(self.records_per_s),
                    self.write_amplification,
                    self.merges
                ),
            ),
            (
                "processor time",
                format!(
                    "{:.2} µs a record for the store itself; the driver took {:.2} ({:.2} when it ran alone)",
                    self.cpu_us_per_record,
                    self.driver_cpu_us_per_record,
                    self.driver_alone_cpu_us_per_record
                ),
            ),
            (
                "space",
                format!(
                    "{:.3} times the live bytes ({:.3} without the journal)",
                    self.space_amplification, self.space_amplification_pages
                ),
            ),
            (
                "memory",
                format!(
                    "{:.2} bytes a record for filters and fences; blocks {} at most",
                    self.bytes_per_record,
                    size(self.block_memory_bytes_max)
                ),
            ),
            (
                "filters",
                format!(
                    "{} may_contain/s, {} for absent keys ({} and {} one by one)",
                    grouped(self.may_contain_per_s),
                    grouped(self.may_contain_absent_per_s),
                    grouped(self.may_contain_one_by_one_per_s),
                    grouped(self.may_contain_absent_one_by_one_per_s)
                ),
            ),
            (
                "device reads",
                format!(
                    "{:.4} a hit (and {:.4} in frames), {:.4} a miss, {:.4} a deleted record",
                    self.device_reads_per_hit,
                    self.frame_hits_per_hit,
                    self.device_reads_per_miss,
                    self.device_reads_per_deleted
                ),
            ),
            (
                "reads, depth 16",
                format!(
                    "p99 {:.0} µs and {} reads/s alone, {:.0} µs and {} reads/s while merging",
                    self.read_p99_us_idle,
                    grouped(self.reads_per_s_idle),
                    self.read_p99_us_merging,
                    grouped(self.reads_per_s_merging)
                ),
            ),
            ("opening", format!("{:.3} s", self.open_seconds)),
        ];
        lines.iter().map(|(name, text)| format!("{name:<20}  {text}\n")).collect()
    }
}
