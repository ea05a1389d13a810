//! Temperatures: what the governor knows of how often rows are accessed, and which cold ones are to come back.
//!
//! Sessions sample what they read and change ([`crate::temperature`]); the governor's thread collects that now and then,
//! and asks the classifier whom to leave in memory. Nothing of it is there before half of the memory limit is used: a
//! database that fits samples nothing.
//!
//! A cold row that is read although it is hot is *wanted*: its reader notes the key, and the governor brings it back if
//! it may. It may so once for every [`Options::reads_a_promotion`](crate::Options::reads_a_promotion) cold reads, and [`SETTLING`] times as often while
//! the hot set moves, promotions still make cold reads fewer, or that is being tried out; where nothing comes of it,
//! that is once for 20 on average. A row is wanted only when it is well beyond the threshold, so that those around it do not go
//! to and fro.

mod stored;

pub(crate) use self::stored::{store, store_now_and_then, temperatures, verify as verify_temperatures};

use std::collections::VecDeque;
use std::sync::Arc;

use thermocline_base::ids::TableId;
use thermocline_base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

use super::hand::Mood;
use crate::cold::Cold;
use crate::db::Inner;
use crate::hot::budget::MemoryKind;
use crate::temperature::{
    Classifier, ClassifierOptions, Collector, CollectorOptions, CollectorThread, LogError, LogWriter,
    Sampler, SizeClass, Temperatures,
};

/// What temperatures are measured for where there is no memory limit.
const LIMIT_EXPECTED: u64 = 1 << 30;
/// Records of a session's ring: sessions are many.
const RING_RECORDS: usize = 256;
/// The classifier takes no more, however large the limit is.
const CLASSIFIER_BYTES_MAX: usize = 64 << 20;
/// While the hot set moves, or settles, so many times as many rows may come back.
const SETTLING: u64 = 8;
/// Promotions that may be saved up.
const PROMOTIONS_SAVED: u64 = 2_000;
/// Rows that are wanted at a time.
const WANTED: usize = 1024;
/// Samples that it takes to be hot: after one it is not known whether there will be another. (Who was read lately stays in
/// memory without being hot, see [`super::hand`].)
const SAMPLES: f64 = 1.5;
/// By how much a row has to be denser in accesses than the threshold to be wanted.
const CLEARLY: f32 = 1.5;
const STEP_NS: u64 = 20_000_000;
const BUDGET_NS: u64 = 1_000_000_000;

/// A cold row that is hot.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) table: TableId,
    pub(super) key: Box<[u8]>,
}

/// What is known of temperatures.
#[derive(Debug)]
pub(crate) struct Warmth {
    collector: Arc<Collector>,
    /// Collects while an access log is written: that may wait for whoever receives it, and the governor must not.
    logging: Mutex<Option<CollectorThread>>,
    is_logging: AtomicBool,
    classifier: Arc<Classifier>,
    wanted: Mutex<VecDeque<Wanted>>,
    /// When temperatures were written to their file.
    stored_ns: AtomicU64,
    storing: Mutex<()>,
    /// How many bytes of rows may be hot.
    budget: AtomicU64,
    /// Whose temperature is lower is not hot, however much room there is.
    floor: f32,
}

/// A classifier's options under a limit.
fn classifier_within(limit: u64) -> ClassifierOptions {
    let options = ClassifierOptions::for_limit(limit, limit / 2);
    ClassifierOptions { memory_bytes: options.memory_bytes.min(CLASSIFIER_BYTES_MAX), ..options }
}

/// What temperatures take under a limit, once they are measured.
pub(super) fn bytes_within(inner: &Inner, limit: u64) -> u64 {
    match inner.options.sampling > 0.0 {
        true => classifier_within(limit).memory_bytes as u64,
        false => 0,
    }
}

impl Warmth {
    fn new(inner: &Inner, limit: u64) -> Self {
        let (share, clock) = (inner.options.sampling, Arc::clone(&inner.clock));
        let options = classifier_within(limit);
        let floor = (SAMPLES * options.alpha / share.clamp(1e-3, 1.0)) as f32;
        let classifier = Arc::new(Classifier::new(&options));
        if inner.checkpoints.are_kept() {
            stored::restore(inner, &classifier);
        }
        let options = CollectorOptions { share, ring_records: RING_RECORDS, ..CollectorOptions::default() };
        Self {
            collector: Arc::new(Collector::new(options, clock, Some(Arc::clone(&classifier)))),
            logging: Mutex::default(),
            is_logging: AtomicBool::new(false),
            classifier,
            wanted: Mutex::default(),
            stored_ns: AtomicU64::new(inner.clock.now_ns()),
            storing: Mutex::default(),
            budget: AtomicU64::new(limit / 2),
            floor,
        }
    }

    /// That of a database, which begins to measure with this if it does not yet.
    pub(crate) fn of(inner: &Inner) -> &Self {
        inner.warmth.get_or_init(|| Self::new(inner, inner.budget.limit().unwrap_or(LIMIT_EXPECTED)))
    }

    /// Writes what is collected to a log from now on.
    pub(crate) fn begin_log(&self, log: LogWriter) -> Result<(), LogError> {
        let mut logging = self.logging.lock();
        self.collector.set_log(Some(log));
        self.is_logging.store(true, Ordering::Relaxed);
        if logging.is_none() {
            *logging = Some(self.collector.start().map_err(LogError::Stream)?);
        }
        Ok(())
    }

    /// Ends the log, with all that was collected. Returns its length in bytes; 0 if there is none.
    pub(crate) fn end_log(&self) -> Result<u64, LogError> {
        let mut logging = self.logging.lock();
        // Its last step is taken when it ends.
        drop(logging.take());
        let was_logging = self.is_logging.swap(false, Ordering::Relaxed);
        let failure = self.collector.statistics().log_error;
        match self.collector.set_log(None) {
            Some(log) => Ok(log.bytes()),
            None if was_logging => {
                let why = failure.unwrap_or_else(|| "its end was not written".to_owned());
                Err(LogError::Stream(std::io::Error::other(why)))
            }
            None => Ok(0),
        }
    }

    /// Why the log has ended, if it was not to.
    #[cfg(test)]
    pub(crate) fn log_failure(&self) -> Option<String> {
        self.collector.statistics().log_error
    }

    /// Drains what sessions have noted, in the middle of what a test does.
    #[cfg(test)]
    pub(crate) fn collect(&self) {
        self.collector.step();
    }

    /// From now on such a share of accesses to rows in memory is sampled.
    pub(crate) fn set_sampling(&self, share: f64) {
        self.collector.set_share(share);
    }

    /// Fits what is known into another memory limit; more than what it had at first it does not take.
    pub(super) fn fit(&self, limit: u64) {
        self.classifier.set_memory(classifier_within(limit).memory_bytes);
    }

    /// A sampler for a session.
    pub(crate) fn sampler(&self) -> Sampler {
        self.collector.sampler()
    }

    /// How temperatures spread over rows.
    pub(crate) fn temperatures(&self) -> Temperatures {
        self.classifier.temperatures()
    }

    /// Who knows what is hot in this mood. `None`: nothing is.
    pub(super) fn hot(&self, mood: Mood) -> Option<Hot<'_>> {
        let all = self.budget.load(Ordering::Relaxed);
        let density = match mood.hot_of(all) {
            0 => return None,
            bytes if bytes >= all / 1000 * 1000 => self.classifier.threshold(),
            bytes => self.classifier.threshold_for(bytes),
        };
        Some(Hot { classifier: &self.classifier, density, floor: self.floor })
    }

    /// A transaction has read this row in the cold store.
    pub(crate) fn note_cold(&self, table: TableId, key: &[u8], hash: u64, bytes: usize) {
        let size = SizeClass::of(u32::try_from(bytes).unwrap_or(u32::MAX)).bytes() as f32;
        let temperature = self.classifier.temperature(table, hash);
        if temperature == 0.0 || temperature < CLEARLY * self.classifier.threshold() * size {
            return;
        }
        // Who finds somebody else here has better things to do; the row will be read again.
        if let Some(mut wanted) = self.wanted.try_lock()
            && wanted.len() < WANTED
        {
            wanted.push_back(Wanted { table, key: key.into() });
        }
    }
}

/// Tells what is hot.
#[derive(Clone, Copy)]
pub(super) struct Hot<'a> {
    classifier: &'a Classifier,
    /// Accesses a byte from which on it is.
    density: f32,
    /// And the least temperature.
    floor: f32,
}

impl Hot<'_> {
    /// Is this row?
    pub(super) fn holds(&self, table: TableId, hash: u64, bytes: u32) -> bool {
        let size = SizeClass::of(bytes).bytes() as f32;
        self.classifier.temperature(table, hash) >= self.floor.max(self.density * size)
    }
}

/// The governor's side: what it has collected, and what may come back.
#[derive(Debug, Default)]
pub(super) struct Thermometer {
    stepped_ns: u64,
    budgeted_ns: u64,
    reads_seen: u64,
    /// Cold reads that were not paid out as promotions yet.
    saved_reads: u64,
}

impl Thermometer {
    /// Begins to measure when it will be needed, and collects what sessions have sampled.
    pub(super) fn step(&mut self, inner: &Inner, now: u64, rows_share: f64, row_room: u64) {
        if now.saturating_sub(self.stepped_ns) < STEP_NS {
            return;
        }
        self.stepped_ns = now;
        let Some(warmth) = inner.warmth.get() else { return self.begin(inner) };
        if !warmth.is_logging.load(Ordering::Relaxed) {
            warmth.collector.step();
        }
        if now.saturating_sub(self.budgeted_ns) > BUDGET_NS {
            self.budgeted_ns = now;
            let budget = (row_room as f64 * rows_share) as u64;
            warmth.classifier.set_budget(budget);
            warmth.budget.store(budget, Ordering::Relaxed);
            let bytes = warmth.classifier.memory_bytes() + warmth.collector.statistics().memory_bytes;
            inner.budget.note(MemoryKind::Temperature, bytes as u64);
        }
    }

    fn begin(&self, inner: &Inner) {
        if let Some(limit) = inner.budget.limit()
            && inner.options.sampling > 0.0
            && inner.budget.used() > limit / 2
        {
            let warmth = Warmth::of(inner);
            inner.budget.note(MemoryKind::Temperature, warmth.classifier.memory_bytes() as u64);
        }
    }

    /// Rows that may come back now.
    pub(super) fn due(
        &mut self,
        warmth: &Warmth,
        cold: &Cold,
        reads_a_promotion: u32,
        most: usize,
    ) -> Vec<Wanted> {
        let reads = cold.counters.reads.load(Ordering::Relaxed);
        self.saved_reads += reads - std::mem::replace(&mut self.reads_seen, reads);
        let at_rest = u64::from(reads_a_promotion);
        let each = match warmth.classifier.is_settling() {
            true => at_rest.div_ceil(SETTLING),
            false => at_rest,
        };
        if each == 0 {
            return Vec::new();
        }
        self.saved_reads = self.saved_reads.min(PROMOTIONS_SAVED * each);
        let allowed = usize::try_from(self.saved_reads / each).unwrap_or(usize::MAX).min(most);
        if allowed == 0 {
            return Vec::new();
        }
        let mut wanted = warmth.wanted.lock();
        let count = allowed.min(wanted.len());
        let due: Vec<Wanted> = wanted.drain(..count).collect();
        self.saved_reads -= count as u64 * each;
        due
    }
}
