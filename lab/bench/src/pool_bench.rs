//! The page pool alone: pages that are in memory, and pages that are not beside what the device gives without a pool.
//!
//! ```text
//!   file of sealed pages ─► hits:   pages as large as the frames, all loaded; optimistic and pinned reads in turns
//!                        └► misses: few frames, uniform pages of the whole file ─┐ in turns
//!                           device: the same reads by io_uring, without a pool   ┘
//! ```
//!
//! Each measure is taken in slices of about half a second, which alternate with the ones that it is compared with; the
//! result is the median slice. So what else the machine does, or its disk, meets both sides alike.
//!
//! Every value that is read is compared with what was written there.
//!
//! A hit is a read of eight bytes at any place of a uniformly chosen page. Page numbers do not depend on each other; the
//! reader knows them ahead and asks the pool for them ([`PagePool::prefetch`]), as the tasks of a worker do. The rates
//! of reads one by one, without that, are reported beside.

mod raw;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use thermocline_base::io::{AlignedBytes, Buffer, IoError, SystemIo};
use thermocline_base::multiplex::{block_on, run_tasks};
use thermocline_base::rng::{Rng, fresh_id};
use thermocline_pool::device::{FIRST_PAGE, PageDevice};
use thermocline_pool::error::{DeviceError, PoolError};
use thermocline_pool::frames::{DeviceId, PageId, PagePool, PoolOptions};
use thermocline_pool::page::{HEADER_BYTES, PageKind, PageSize, seal};

use crate::calibration::{Calibration, CalibrationError, calibrate};
use crate::machine::Machine;
use crate::progress::Progress;
use crate::report::{grouped, size};
use crate::time;
use raw::RawDevice;

/// Settings of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct PoolSettings {
    /// Seconds of each measure.
    pub seconds: f64,
    /// Threads that read.
    pub threads: usize,
    /// Reads in flight on each of them, when pages are not in memory.
    pub depth: usize,
    /// Length of a page.
    pub page_bytes: u32,
    /// Frames, when pages are in memory.
    pub frame_bytes: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Where the file lies.
    pub data_dir: PathBuf,
    /// One seed gives one sequence of pages.
    pub seed: u64,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct PoolReport {
    /// The version of Thermocline.
    pub version: &'static str,
    /// `pool`.
    pub benchmark: &'static str,
    /// The settings.
    pub settings: PoolSettings,
    /// Where.
    pub machine: Machine,
    /// The machine's own speed just before; none if it was skipped.
    pub calibration: Option<Calibration>,
    /// The replacement policy.
    pub policy: &'static str,
    /// The method by which the pool's device reads: `io_uring` or `threads`.
    pub io: &'static str,
    /// Optimistic reads a second of pages in memory.
    pub hit_optimistic_per_s: f64,
    /// Pinned reads a second of pages in memory.
    pub hit_pinned_per_s: f64,
    /// The first without asking for pages ahead.
    pub hit_optimistic_one_by_one_per_s: f64,
    /// The second without asking for pages ahead.
    pub hit_pinned_one_by_one_per_s: f64,
    /// Reads of the device a second because of pages that are not in memory.
    pub miss_reads_per_s: f64,
    /// Processor time of one of them, the kernel's included.
    pub miss_cpu_us: f64,
    /// The same reads a second without a pool, at [`PoolSettings::depth`].
    pub device_reads_per_s_depth64: f64,
    /// Processor time of one of them.
    pub device_cpu_us: f64,
    /// The method: `io_uring`, or `threads` where it is refused.
    pub device_method: &'static str,
    /// The median of the pool's share of the device's rate, slice by slice.
    pub miss_share: f64,
}

/// Why there is no result.
#[derive(Debug)]
pub enum PoolBenchError {
    /// The machine could not be measured.
    Calibration(CalibrationError),
    /// A setting that cannot be.
    Setting(String),
    /// The file could not be made.
    Device(DeviceError),
    /// The file could not be written or read.
    Io(IoError),
    /// The pool refused.
    Pool(PoolError),
    /// The device could not be read without a pool.
    Raw(std::io::Error),
    /// A page holds something else than what was written.
    Wrong {
        /// Its number.
        page: u64,
    },
}

impl fmt::Display for PoolBenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Calibration(error) => error.fmt(f),
            Self::Setting(said) => f.write_str(said),
            Self::Device(error) => error.fmt(f),
            Self::Io(error) if error.is_full() => {
                write!(f, "{error}; free some space, choose another --data-dir, or a smaller --file")
            }
            Self::Io(error) => error.fmt(f),
            Self::Pool(error) => error.fmt(f),
            Self::Raw(error) => write!(f, "the device cannot be read without a pool: {error}"),
            Self::Wrong { page } => {
                write!(
                    f,
                    "page {page} was served with other bytes than were written; please report this as a bug"
                )
            }
        }
    }
}

impl std::error::Error for PoolBenchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Calibration(error) => Some(error),
            Self::Device(error) => Some(error),
            Self::Io(error) => Some(error),
            Self::Pool(error) => Some(error),
            Self::Raw(error) => Some(error),
            Self::Setting(_) | Self::Wrong { .. } => None,
        }
    }
}

impl From<DeviceError> for PoolBenchError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<IoError> for PoolBenchError {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}

impl From<PoolError> for PoolBenchError {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

type Result<T> = std::result::Result<T, PoolBenchError>;

/// Measures the pool.
///
/// # Errors
/// When there is nothing to report.
pub fn run(settings: &PoolSettings, with_calibration: bool, quiet: bool) -> Result<PoolReport> {
    let mut progress = Progress::new(quiet);
    let calibration = if with_calibration {
        progress.begin("calibrating");
        Some(calibrate(&settings.data_dir).map_err(PoolBenchError::Calibration)?)
    } else {
        None
    };
    let bench = Bench::prepare(settings, &mut progress)?;
    let hits = bench.hits(&mut progress)?;
    let misses = bench.misses(&mut progress)?;
    progress.end();
    Ok(PoolReport {
        version: env!("CARGO_PKG_VERSION"),
        benchmark: "pool",
        settings: settings.clone(),
        machine: Machine::here(),
        calibration,
        policy: misses.policy,
        io: bench.io.method(),
        hit_optimistic_per_s: hits[0],
        hit_pinned_per_s: hits[1],
        hit_optimistic_one_by_one_per_s: hits[2],
        hit_pinned_one_by_one_per_s: hits[3],
        miss_reads_per_s: misses.pool.0,
        miss_cpu_us: misses.pool.1,
        device_reads_per_s_depth64: misses.device.0,
        device_cpu_us: misses.device.1,
        device_method: misses.method,
        miss_share: misses.share,
    })
}

impl PoolReport {
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
        let mut lines = vec![
            (
                "pool",
                format!(
                    "{} threads, pages of {}, {} of frames, file of {}, policy {}",
                    settings.threads,
                    size(settings.page_bytes.into()),
                    size(settings.frame_bytes),
                    size(settings.file_bytes),
                    self.policy
                ),
            ),
            (
                "machine",
                format!("{}, {} cores, {}", self.machine.cpu, self.machine.cores, self.machine.kernel),
            ),
        ];
        if let Some(found) = &self.calibration {
            let dram = format!(
                "{:.0} ns a random read of memory ({:.0} with huge pages)",
                found.dram_random_read_ns, found.dram_random_read_huge_pages_ns
            );
            lines.push(("calibration", dram));
        }
        let rate = |value: f64, one_by_one: f64| {
            format!("{} reads/s ({} one by one)", grouped(value), grouped(one_by_one))
        };
        lines.extend([
            ("hits, optimistic", rate(self.hit_optimistic_per_s, self.hit_optimistic_one_by_one_per_s)),
            ("hits, pinned", rate(self.hit_pinned_per_s, self.hit_pinned_one_by_one_per_s)),
            (
                "misses",
                format!(
                    "{} reads/s at depth {} by {}, {:.2} µs of processor time each",
                    grouped(self.miss_reads_per_s),
                    settings.depth,
                    self.io,
                    self.miss_cpu_us
                ),
            ),
            (
                "device",
                format!(
                    "{} reads/s at depth {} by {}, {:.2} µs of processor time each",
                    grouped(self.device_reads_per_s_depth64),
                    settings.depth,
                    self.device_method,
                    self.device_cpu_us
                ),
            ),
            ("share", format!("{:.1} % of the device's rate", 100.0 * self.miss_share)),
        ]);
        lines.into_iter().map(|(name, value)| format!("{name:<22}{value}\n")).collect()
    }
}

// --- pages ----------------------------------------------------------------------------------------------------------

/// Word `index` of the payload of page `page`.
#[inline]
fn word(page: u64, index: u64) -> u64 {
    let mixed = (page << 16 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

/// The eight bytes at `at` of the payload of page `page`, as a little-endian number.
#[inline]
fn expected(page: u64, at: usize) -> u64 {
    let (index, shift) = ((at / 8) as u64, (at % 8 * 8) as u32);
    word(page, index) >> shift | (word(page, index + 1) << 1) << (63 - shift)
}

/// A place that is read: a page and an offset in its payload.
#[derive(Clone, Copy)]
struct Place {
    page: u64,
    at: usize,
}

/// Uniform places.
struct Places {
    rng: Rng,
    pages: u64,
    offsets: u64,
}

impl Places {
    fn new(seed: u64, pages: u64, page_size: PageSize) -> Self {
        // The last word is not complete for other offsets.
        Self { rng: Rng::new(seed), pages, offsets: page_size.payload_bytes() as u64 - 15 }
    }

    #[inline]
    fn next(&mut self) -> Place {
        let page = FIRST_PAGE + self.rng.below(self.pages);
        Place { page, at: self.rng.below(self.offsets) as usize }
    }
}

// --- the runs -------------------------------------------------------------------------------------------------------

/// Bytes of one write while the file is made.
const PIECE_BYTES: usize = 1 << 20;

/// Places that a reader of pages in memory knows ahead.
const AHEAD: usize = 32;

/// Reads between two looks at the clock.
const READS_A_LOOK: u64 = 4_096;

struct Bench<'a> {
    settings: &'a PoolSettings,
    page_size: PageSize,
    io: SystemIo,
    path: PathBuf,
    device: Arc<PageDevice>,
    /// Pages of the file without its header.
    pages: u64,
    slices: u32,
    slice: Duration,
}

/// Times a second that something happened, and processor time in µs each.
type Rate = (f64, f64);

struct Misses {
    pool: Rate,
    device: Rate,
    method: &'static str,
    share: f64,
    policy: &'static str,
}

impl<'a> Bench<'a> {
    /// Makes the file.
    fn prepare(settings: &'a PoolSettings, progress: &mut Progress) -> Result<Self> {
        let refuse = |said: String| Err(PoolBenchError::Setting(said));
        let page_size = match PageSize::new(settings.page_bytes) {
            Ok(page_size) => page_size,
            Err(error) => return refuse(format!("--page-size: {error}")),
        };
        let pages = (settings.file_bytes / u64::from(settings.page_bytes)).saturating_sub(FIRST_PAGE);
        if settings.frame_bytes / u64::from(settings.page_bytes) > pages {
            return refuse("--file must be larger than --frames, which are filled from it".to_owned());
        }
        if pages < 64 * settings.depth as u64 * settings.threads as u64 {
            return refuse(
                "--file is too small to miss: it must have 64 pages for each read in flight".to_owned(),
            );
        }
        let io = SystemIo::new();
        let path = settings.data_dir.join("pool.pages");
        let device = Arc::new(PageDevice::create(&io, &path, page_size, fresh_id())?);
        device.allocate(FIRST_PAGE + pages)?;
        let slices = (settings.seconds / 0.5).round().max(3.0) as u32;
        let slice = Duration::from_secs_f64(settings.seconds / f64::from(slices));
        let bench = Self { settings, page_size, io, path, device, pages, slices, slice };
        bench.fill(progress)?;
        Ok(bench)
    }

    /// Writes all pages.
    fn fill(&self, progress: &mut Progress) -> Result<()> {
        let page_bytes = self.page_size.bytes();
        let piece_pages = (PIECE_BYTES / page_bytes) as u64;
        let mut piece = AlignedBytes::zeroed(piece_pages as usize * page_bytes);
        let mut first = FIRST_PAGE;
        let end = FIRST_PAGE + self.pages;
        progress.begin("writing the file");
        // One piece is made while the other one is written.
        let mut under_way = None;
        while first < end {
            let count = piece_pages.min(end - first);
            if count < piece_pages {
                piece = AlignedBytes::zeroed(count as usize * page_bytes);
            }
            for (page, bytes) in (first..).zip(piece.chunks_exact_mut(page_bytes)) {
                for (index, bytes) in bytes[HEADER_BYTES..].chunks_exact_mut(8).enumerate() {
                    bytes.copy_from_slice(&word(page, index as u64).to_le_bytes());
                }
                seal(bytes, self.device.seal(), page, 1, PageKind(1));
            }
            let full = std::mem::replace(&mut piece, AlignedBytes::zeroed(piece_pages as usize * page_bytes));
            if let Some(completion) = under_way.replace(self.device.write(first, Buffer::from(full))) {
                completion.wait().result?;
            }
            first += count;
            progress.show(|| {
                format!(
                    "writing the file: {} of {}",
                    size((first - FIRST_PAGE) * page_bytes as u64),
                    size(self.settings.file_bytes)
                )
            });
        }
        if let Some(completion) = under_way {
            completion.wait().result?;
        }
        block_on(self.device.sync())?;
        Ok(())
    }

    /// A pool of so many bytes over the file.
    fn pool(&self, frame_bytes: u64) -> Result<(PagePool, DeviceId)> {
        let pool = PagePool::new(PoolOptions::new(frame_bytes).page_size(self.page_size))?;
        let device = pool.add_device(Arc::clone(&self.device))?;
        Ok((pool, device))
    }

    /// Reads a second of pages in memory: optimistic, pinned, and both one by one.
    fn hits(&self, progress: &mut Progress) -> Result<[f64; 4]> {
        let (pool, device) = self.pool(self.settings.frame_bytes)?;
        let pages = self.settings.frame_bytes / self.page_size.bytes() as u64;
        progress.begin("loading the frames");
        let mut first = FIRST_PAGE;
        while first < FIRST_PAGE + pages {
            let end = (first + 256).min(FIRST_PAGE + pages);
            pool.read_ahead(device, first..end, None)?;
            block_on(async {
                for page in first..end {
                    drop(pool.pin(PageId::new(device, page), None).await?);
                }
                Ok::<_, PoolError>(())
            })?;
            first = end;
        }
        let kinds = [(true, true), (false, true), (true, false), (false, false)];
        let mut rates: [Vec<f64>; 4] = Default::default();
        for slice in 0..self.slices {
            progress.show(|| format!("hits: slice {} of {}", slice + 1, self.slices));
            for (kind, (optimistic, ahead)) in kinds.into_iter().enumerate() {
                let rate = self.on_threads(slice * 4 + kind as u32, |seed| {
                    let places = Places::new(seed, pages, self.page_size);
                    let reader = HitReader { pool: &pool, device, places, limit: self.slice };
                    match (optimistic, ahead) {
                        (true, true) => reader.run_ahead(HitReader::optimistic),
                        (false, true) => reader.run_ahead(HitReader::pinned),
                        (true, false) => reader.run(HitReader::optimistic),
                        (false, false) => reader.run(HitReader::pinned),
                    }
                })?;
                rates[kind].push(rate);
            }
        }
        Ok(rates.map(|mut rates| median(&mut rates)))
    }

    /// Runs `body` on each thread with a seed of its own; the sum of what it gives.
    fn on_threads(&self, round: u32, body: impl Fn(u64) -> Result<f64> + Sync) -> Result<f64> {
        let body = &body;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.settings.threads as u64)
                .map(|thread| {
                    let seed = self.settings.seed << 40 ^ u64::from(round) << 20 ^ thread;
                    scope.spawn(move || body(seed))
                })
                .collect();
            let rates = threads.into_iter().map(|thread| thread.join().expect("a reader does not panic"));
            rates.sum()
        })
    }

    /// Reads a second that miss, beside the device's.
    fn misses(&self, progress: &mut Progress) -> Result<Misses> {
        let in_flight = (self.settings.threads * self.settings.depth) as u64;
        // As few frames as the reads need, so that hardly a page is there by chance.
        let frames = (self.pages / 64).max(2 * in_flight);
        let (pool, device) = self.pool(frames * self.page_size.bytes() as u64)?;
        let raw = RawDevice { path: &self.path, page_size: self.page_size, depth: self.settings.depth };
        let (mut pool_rates, mut pool_cpu) = (Vec::new(), Vec::new());
        let (mut raw_rates, mut raw_cpu) = (Vec::new(), Vec::new());
        let mut shares = Vec::new();
        let mut method = "";
        // The first of each is not counted: it fills the frames and starts threads.
        for slice in 0..=self.slices {
            progress.show(|| format!("misses: slice {slice} of {}", self.slices));
            let round = 1 << 16 | slice;
            let (raw_reads, raw_each) = timed(|| {
                self.on_threads(round << 1, |seed| {
                    Ok(raw.read(self.slice, Places::new(seed, self.pages, self.page_size))? as f64)
                })
            })?;
            method = raw.method();
            let before = pool.stats().reads;
            let (pool_reads, pool_each) = timed(|| {
                self.on_threads(round << 1 | 1, |seed| self.miss(&pool, device, seed).map(|()| 0.0))?;
                Ok((pool.stats().reads - before) as f64)
            })?;
            if slice > 0 {
                raw_rates.push(raw_reads);
                raw_cpu.push(raw_each);
                pool_rates.push(pool_reads);
                pool_cpu.push(pool_each);
                shares.push(pool_reads / raw_reads);
            }
        }
        Ok(Misses {
            pool: (median(&mut pool_rates), median(&mut pool_cpu)),
            device: (median(&mut raw_rates), median(&mut raw_cpu)),
            method,
            share: median(&mut shares),
            policy: pool.stats().policy,
        })
    }

    /// Pins random pages of the whole file, `depth` at a time, for a slice.
    fn miss(&self, pool: &PagePool, device: DeviceId, seed: u64) -> Result<()> {
        let began = time::now();
        let failure = std::cell::RefCell::new(None);
        run_tasks(
            (0..self.settings.depth as u64)
                .map(async |task| {
                    let mut places = Places::new(seed ^ task << 32, self.pages, self.page_size);
                    while began.elapsed() < self.slice && failure.borrow().is_none() {
                        let Place { page, at } = places.next();
                        let found = match pool.pin(PageId::new(device, page), Some(1)).await {
                            Ok(guard) => u64_at(guard.payload(), at),
                            Err(error) => {
                                failure.replace(Some(PoolBenchError::Pool(error)));
                                return;
                            }
                        };
                        if found != expected(page, at) {
                            failure.replace(Some(PoolBenchError::Wrong { page }));
                        }
                    }
                })
                .collect(),
        );
        failure.into_inner().map_or(Ok(()), Err)
    }
}

/// Runs `body`, which gives how much it did: how much a second, and processor time in µs each.
fn timed(body: impl FnOnce() -> Result<f64>) -> Result<Rate> {
    let (began, cpu) = (time::now(), cpu_us());
    let done = body()?;
    Ok((done / began.elapsed().as_secs_f64(), (cpu_us() - cpu) / done))
}

/// Processor time of the process.
fn cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    (low + high) / 2.0
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Reads pages that are in memory.
struct HitReader<'a> {
    pool: &'a PagePool,
    device: DeviceId,
    places: Places,
    limit: Duration,
}

impl HitReader<'_> {
    #[inline(always)]
    fn optimistic(&self, Place { page, at }: Place) -> Option<u64> {
        self.pool.read_optimistic(PageId::new(self.device, page), |page| page.u64(at)).flatten()
    }

    #[inline(always)]
    fn pinned(&self, Place { page, at }: Place) -> Option<u64> {
        self.pool.try_pin(PageId::new(self.device, page)).map(|guard| u64_at(guard.payload(), at))
    }

    /// One after the other. Gives reads a second.
    #[inline(always)]
    fn run(mut self, read: impl Fn(&Self, Place) -> Option<u64>) -> Result<f64> {
        let began = time::now();
        let (mut reads, mut hits) = (0, 0_u64);
        while began.elapsed() < self.limit {
            for _ in 0..READS_A_LOOK {
                let place = self.places.next();
                hits += self.check(place, read(&self, place))?;
            }
            reads += READS_A_LOOK;
        }
        Self::rate(hits, reads, began.elapsed())
    }

    /// The same with places known ahead.
    #[inline(always)]
    fn run_ahead(mut self, read: impl Fn(&Self, Place) -> Option<u64>) -> Result<f64> {
        let began = time::now();
        let (mut reads, mut hits) = (0, 0_u64);
        let mut ahead = [Place { page: FIRST_PAGE, at: 0 }; AHEAD];
        while began.elapsed() < self.limit {
            for turn in 0..READS_A_LOOK as usize {
                let place = ahead[turn % AHEAD];
                hits += self.check(place, read(&self, place))?;
                let next = self.places.next();
                ahead[turn % AHEAD] = next;
                self.pool.prefetch(PageId::new(self.device, next.page));
                let Place { page, at } = ahead[(turn + AHEAD / 2) % AHEAD];
                self.pool.prefetch_bytes(PageId::new(self.device, page), at);
            }
            reads += READS_A_LOOK;
        }
        Self::rate(hits, reads, began.elapsed())
    }

    /// 1 if it was a hit. What was not there by chance is brought back.
    #[inline(always)]
    fn check(&self, place: Place, found: Option<u64>) -> Result<u64> {
        match found {
            Some(found) if found == expected(place.page, place.at) => Ok(1),
            Some(_) => Err(PoolBenchError::Wrong { page: place.page }),
            None => {
                drop(block_on(self.pool.pin(PageId::new(self.device, place.page), None))?);
                Ok(0)
            }
        }
    }

    fn rate(hits: u64, reads: u64, took: Duration) -> Result<f64> {
        if hits < reads / 100 * 99 {
            let said = format!("of {reads} reads only {hits} found their page in memory; use fewer --frames");
            return Err(PoolBenchError::Setting(said));
        }
        Ok(hits as f64 / took.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn settings(dir: &Path) -> PoolSettings {
        PoolSettings {
            seconds: 0.06,
            threads: 2,
            depth: 4,
            page_bytes: 4096,
            frame_bytes: 1 << 20,
            file_bytes: 4 << 20,
            data_dir: dir.to_owned(),
            seed: 1,
        }
    }

    #[test]
    fn a_small_run_reports_everything() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let report = run(&settings(dir.path()), false, true).expect("it runs");
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("valid JSON");
        for name in [
            "hit_optimistic_per_s",
            "hit_pinned_per_s",
            "hit_optimistic_one_by_one_per_s",
            "hit_pinned_one_by_one_per_s",
            "miss_reads_per_s",
            "device_reads_per_s_depth64",
            "miss_share",
        ] {
            assert!(json[name].as_f64().is_some_and(|value| value > 0.0), "{name} is missing: {json}");
        }
        assert_eq!(json["settings"]["depth"], 4);
        let table = report.to_table();
        assert!(table.contains("hits, optimistic") && table.contains("of the device's rate"), "{table}");
    }

    #[test]
    fn the_device_is_read_by_threads_where_io_uring_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let settings = settings(dir.path());
        let bench = Bench::prepare(&settings, &mut Progress::new(true)).expect("prepared");
        let raw = RawDevice { path: &bench.path, page_size: bench.page_size, depth: 4 };
        let places = Places::new(1, bench.pages, bench.page_size);
        assert!(raw.read_by_threads(Duration::from_millis(20), places).expect("read") > 0);
    }

    #[test]
    fn settings_that_cannot_be_are_refused() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let good = settings(dir.path());
        let refused = |settings: PoolSettings| match run(&settings, false, true) {
            Err(PoolBenchError::Setting(said)) => said,
            other => panic!("not refused: {other:?}"),
        };
        assert!(refused(PoolSettings { page_bytes: 5000, ..good.clone() }).contains("--page-size"));
        assert!(refused(PoolSettings { frame_bytes: 8 << 20, ..good.clone() }).contains("--frames"));
        assert!(refused(PoolSettings { depth: 1000, ..good }).contains("too small"));
    }

    #[test]
    fn eight_bytes_anywhere_are_what_was_written() {
        let bytes: Vec<u8> = (0..4).flat_map(|index| word(7, index).to_le_bytes()).collect();
        for at in 0..=16 {
            assert_eq!(expected(7, at), u64_at(&bytes, at));
        }
    }
}
