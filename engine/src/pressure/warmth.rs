//! Temperatures, as sessions see them: what they sample, and which cold rows are wanted.

use std::collections::VecDeque;
use std::sync::Arc;

use thermocline_base::ids::TableId;
use thermocline_base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

use crate::temperature::{
    Classifier, Collector, CollectorThread, LogError, LogWriter, Sampler, SizeClass, Temperatures,
};

/// Rows that are wanted at a time.
const WANTED: usize = 1024;
/// By how much a row has to be denser in accesses than the threshold to be wanted.
const CLEARLY: f32 = 1.5;

/// A cold row that is hot.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) table: TableId,
    pub(crate) key: Box<[u8]>,
}

/// The temperatures of a database.
#[derive(Debug)]
pub(crate) struct Warmth {
    collector: Arc<Collector>,
    /// Collects while an access log is written: that may wait for the receiver, and the governor must not.
    logging: Mutex<Option<CollectorThread>>,
    is_logging: AtomicBool,
    classifier: Arc<Classifier>,
    wanted: Mutex<VecDeque<Wanted>>,
    /// When temperatures were written to their file.
    stored_ns: AtomicU64,
    storing: Mutex<()>,
    /// Bytes of rows that may be hot.
    budget: AtomicU64,
    /// The least temperature of a hot row, however much room there is.
    floor: f32,
}

impl Warmth {
    /// Measures with these. `budget` bytes of rows may be hot; `floor`: whose temperature is lower is not.
    pub(crate) fn new(
        collector: Collector,
        classifier: Arc<Classifier>,
        budget: u64,
        floor: f32,
        now_ns: u64,
    ) -> Self {
        Self {
            collector: Arc::new(collector),
            logging: Mutex::default(),
            is_logging: AtomicBool::new(false),
            classifier,
            wanted: Mutex::default(),
            stored_ns: AtomicU64::new(now_ns),
            storing: Mutex::default(),
            budget: AtomicU64::new(budget),
            floor,
        }
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

    /// Fits what is known into so many bytes; more than what it had at first it does not take.
    pub(crate) fn fit(&self, bytes: usize) {
        self.classifier.set_memory(bytes);
    }

    /// Collects what sessions have sampled, unless a log is written: then another thread does.
    pub(crate) fn step(&self) {
        if !self.is_logging.load(Ordering::Relaxed) {
            self.collector.step();
        }
    }

    /// Sets how many bytes of rows may be hot.
    pub(crate) fn set_budget(&self, bytes: u64) {
        self.classifier.set_budget(bytes);
        self.budget.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that all of it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.classifier.memory_bytes() + self.collector.statistics().memory_bytes) as u64
    }

    /// Knows temperatures.
    pub(crate) fn classifier(&self) -> &Classifier {
        &self.classifier
    }

    /// The first of the rows that are wanted, so many at most.
    pub(crate) fn take_wanted(&self, most: usize) -> Vec<Wanted> {
        let mut wanted = self.wanted.lock();
        let count = most.min(wanted.len());
        wanted.drain(..count).collect()
    }

    /// Keeps others from writing the file of temperatures meanwhile, and notes the time.
    pub(crate) fn storing(&self, now_ns: u64) -> impl Drop {
        let turn = self.storing.lock();
        self.stored_ns.store(now_ns, Ordering::Relaxed);
        turn
    }

    /// When the file of temperatures was written, or measuring began.
    pub(crate) fn stored_ns(&self) -> u64 {
        self.stored_ns.load(Ordering::Relaxed)
    }

    /// A sampler for a session.
    pub(crate) fn sampler(&self) -> Sampler {
        self.collector.sampler()
    }

    /// The spread of temperatures over rows.
    pub(crate) fn temperatures(&self) -> Temperatures {
        self.classifier.temperatures()
    }

    /// Knows what is hot, if of the bytes that may be so many are to be. `None`: nothing is.
    pub(crate) fn hot(&self, share: impl FnOnce(u64) -> u64) -> Option<Hot<'_>> {
        let all = self.budget.load(Ordering::Relaxed);
        let density = match share(all) {
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
        // A reader that finds another one here has better things to do; the row will be read again.
        if let Some(mut wanted) = self.wanted.try_lock()
            && wanted.len() < WANTED
        {
            wanted.push_back(Wanted { table, key: key.into() });
        }
    }
}

/// Tells what is hot.
#[derive(Clone, Copy)]
pub(crate) struct Hot<'a> {
    classifier: &'a Classifier,
    /// Accesses a byte from which on it is.
    density: f32,
    /// And the least temperature.
    floor: f32,
}

impl Hot<'_> {
    /// Is this row?
    pub(crate) fn holds(&self, table: TableId, hash: u64, bytes: u32) -> bool {
        let size = SizeClass::of(bytes).bytes() as f32;
        self.classifier.temperature(table, hash) >= self.floor.max(self.density * size)
    }
}
