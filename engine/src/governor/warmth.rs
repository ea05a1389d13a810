//! Temperatures: what the governor knows of how often rows are accessed, and which cold ones are to come back.
//!
//! Sessions sample what they read and change ([`crate::temperature`]); the governor's thread collects that now and then,
//! and asks the classifier whom to leave in memory. Nothing of it is there before half of the memory limit is used: a
//! database that fits samples nothing.
//!
//! A cold row that is read although it is hot is *wanted*: its reader notes the key, and the governor brings it back if
//! it may. It may so once for every [`READS_A_PROMOTION`] cold reads, and once for every [`READS_A_PROMOTION_SETTLING`] while
//! the hot set moves, promotions still make cold reads fewer, or that is being tried out; where nothing comes of it,
//! that is once for 20 on average. A row is wanted only when it is well beyond the threshold, so that those around it do not go
//! to and fro.

mod stored;

pub(crate) use self::stored::{store, store_now_and_then, temperatures};

use std::collections::VecDeque;
use std::sync::Arc;

use thermocline_base::ids::TableId;
use thermocline_base::sync::{AtomicU64, Mutex, Ordering};

use super::hand::Mood;
use crate::cold::Cold;
use crate::db::Inner;
use crate::hot::budget::MemoryKind;
use crate::temperature::{
    Classifier, ClassifierOptions, Collector, CollectorOptions, Sampler, SizeClass, Temperatures,
};

/// Records of a session's ring: sessions are many.
const RING_RECORDS: usize = 256;
/// The classifier takes no more, however large the limit is.
const CLASSIFIER_BYTES_MAX: usize = 64 << 20;
/// Cold reads for each row that comes back.
const READS_A_PROMOTION: u64 = 32;
/// The same while the hot set moves, or settles.
const READS_A_PROMOTION_SETTLING: u64 = 4;
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
    collector: Collector,
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

impl Warmth {
    fn new(inner: &Inner, limit: u64) -> Self {
        let (share, clock) = (inner.options.sampling, Arc::clone(&inner.clock));
        let mut options = ClassifierOptions::for_limit(limit, limit / 2);
        options.memory_bytes = options.memory_bytes.min(CLASSIFIER_BYTES_MAX);
        let floor = (SAMPLES * options.alpha / share.clamp(1e-3, 1.0)) as f32;
        let classifier = Arc::new(Classifier::new(&options));
        if inner.checkpoints.are_kept() {
            stored::restore(inner, &classifier);
        }
        let options = CollectorOptions { share, ring_records: RING_RECORDS, ..CollectorOptions::default() };
        Self {
            collector: Collector::new(options, clock, Some(Arc::clone(&classifier))),
            classifier,
            wanted: Mutex::default(),
            stored_ns: AtomicU64::new(inner.clock.now_ns()),
            storing: Mutex::default(),
            budget: AtomicU64::new(limit / 2),
            floor,
        }
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
        warmth.collector.step();
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
            let warmth = inner.warmth.get_or_init(|| Warmth::new(inner, limit));
            inner.budget.note(MemoryKind::Temperature, warmth.classifier.memory_bytes() as u64);
        }
    }

    /// Rows that may come back now.
    pub(super) fn due(&mut self, warmth: &Warmth, cold: &Cold, most: usize) -> Vec<Wanted> {
        let reads = cold.counters.reads.load(Ordering::Relaxed);
        self.saved_reads += reads - std::mem::replace(&mut self.reads_seen, reads);
        let each = match warmth.classifier.is_settling() {
            true => READS_A_PROMOTION_SETTLING,
            false => READS_A_PROMOTION,
        };
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
