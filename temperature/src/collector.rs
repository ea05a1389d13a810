//! Empties the workers' rings and gives what was in them to the online classifier and to an access log.
//!
//! ```text
//!   every 20 ms   rings ─► classifier, open quantum of the log
//!   every second  the quantum ends: log and classifier close it, throttled workers may sample more
//! ```
//!
//! One thread does that ([`Collector::start`]), or whoever calls [`Collector::step`]. A record belongs to the quantum in
//! which it is drained, so workers read no clock; it is late by at most the time between two steps.
//!
//! **Back-pressure.** The log's target may be slow (a socket writes as fast as the other side reads). Then steps come late
//! and rings fill up. A worker whose ring is full loses the record and samples half as much from then on; one whose
//! ring was found more than three quarters full is told the same. At the end of each quantum in which a ring stayed
//! below half, its worker may sample twice as much again, up to what was asked for. [`CollectorStatistics`] says how many workers are held back,
//! and an event is sent when that begins and ends.
//!
//! Locks: a step holds `work` while it runs, which may be as long as the log's target takes; `rings` and `statistics`
//! only for moments, so a worker that comes, or a caller that asks for figures, never waits for the target.

use std::sync::Arc;
use std::time::Duration;

use thermocline_base::clock::Clock;
use thermocline_base::rng::Rng;
use thermocline_base::sync::{AtomicBool, Mutex, Ordering};

use super::log::writer::LogWriter;
use super::online::Classifier;
use super::ring::{self, Reader};
use super::sampler::{Rate, Sampler, decode};
use super::{Access, LogError};

/// Options of the collection of accesses.
#[derive(Clone, Debug)]
pub struct CollectorOptions {
    /// Which share of the hot accesses is recorded, from 0 (off) to 1.
    pub share: f64,
    /// Records that a worker's ring holds, a power of two; each takes 16 bytes.
    pub ring_records: usize,
    /// The length of a quantum.
    pub quantum: Duration,
    /// The time between two steps.
    pub pause: Duration,
    /// After so many quanta what has gathered is written to the log, however little it is.
    pub flush_quanta: u32,
    /// Seeds the workers' strides.
    pub seed: u64,
}

impl Default for CollectorOptions {
    fn default() -> Self {
        Self {
            share: 0.1,
            ring_records: 4096,
            quantum: Duration::from_secs(1),
            pause: Duration::from_millis(20),
            flush_quanta: 5,
            seed: 1,
        }
    }
}

/// Counts of what was collected so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectorStatistics {
    /// Records drained.
    pub recorded: u64,
    /// Those of cold rows among them.
    pub recorded_cold: u64,
    /// Records that found a full ring.
    pub lost: u64,
    /// Workers there are.
    pub workers: usize,
    /// Workers that sample less than was asked for, because records were not drained fast enough.
    pub held_back: usize,
    /// Quanta that have ended.
    pub quanta: u64,
    /// Bytes of the access log, if one is written.
    pub log_bytes: u64,
    /// Accesses that the log left out for want of memory.
    pub log_dropped: u64,
    /// Why no log is written any more.
    pub log_error: Option<String>,
    /// Memory of rings and log, without the classifier's.
    pub memory_bytes: usize,
}

/// Collects accesses; see the module.
#[derive(Debug)]
pub struct Collector {
    options: CollectorOptions,
    clock: Arc<dyn Clock>,
    start_ns: u64,
    rate: Arc<Rate>,
    rings: Mutex<Rings>,
    work: Mutex<Work>,
    statistics: Mutex<CollectorStatistics>,
    classifier: Option<Arc<Classifier>>,
    stop: AtomicBool,
}

#[derive(Debug)]
struct Rings {
    readers: Vec<Ring>,
    rng: Rng,
}

#[derive(Debug)]
struct Ring {
    reader: Reader,
    /// The most records that one step found in it in this quantum.
    most: usize,
}

#[derive(Debug)]
struct Work {
    log: Option<LogWriter>,
    quantum: u64,
    batch: Vec<Access>,
    unflushed: u32,
    was_held_back: bool,
    /// Records lost by workers that are gone.
    lost_before: u64,
    statistics: CollectorStatistics,
}

impl Collector {
    /// A collector without workers. `classifier` gets every record.
    ///
    /// # Panics
    /// When [`CollectorOptions::ring_records`] is no power of two.
    #[must_use]
    pub fn new(
        options: CollectorOptions,
        clock: Arc<dyn Clock>,
        classifier: Option<Arc<Classifier>>,
    ) -> Self {
        assert!(options.ring_records.is_power_of_two(), "the records of a ring are a power of two");
        let start_ns = clock.now_ns();
        Self {
            start_ns,
            rate: Arc::new(Rate::new(options.share)),
            rings: Mutex::new(Rings { readers: Vec::new(), rng: Rng::new(options.seed) }),
            work: Mutex::new(Work {
                log: None,
                quantum: 0,
                batch: Vec::with_capacity(options.ring_records),
                unflushed: 0,
                was_held_back: false,
                lost_before: 0,
                statistics: CollectorStatistics::default(),
            }),
            statistics: Mutex::default(),
            classifier,
            stop: AtomicBool::new(false),
            clock,
            options,
        }
    }

    /// A sampler for a worker. Its ring goes when it is dropped and drained.
    #[must_use]
    pub fn sampler(&self) -> Sampler {
        let (writer, reader) = ring::ring(self.options.ring_records);
        let mut rings = self.rings.lock();
        rings.readers.push(Ring { reader, most: 0 });
        let rng = rings.rng.fork();
        Sampler::new(writer, Arc::clone(&self.rate), rng)
    }

    /// Records `share` of the hot accesses from now on: from 0 (sampling is off) to 1. A worker notices at its next
    /// record, or after some thousand accesses if it was off.
    pub fn set_share(&self, share: f64) {
        self.rate.set(share);
    }

    /// Writes what is collected to `log` from now on, or to none. Gives back the one before, with all it was given, unless
    /// it failed. Waits for a step that is under way.
    pub fn set_log(&self, log: Option<LogWriter>) -> Option<LogWriter> {
        let mut work = self.work.lock();
        let quantum = work.quantum;
        let before = std::mem::replace(&mut work.log, log);
        work.statistics.log_error = None;
        let mut before = before?;
        before
            .end_quantum(quantum)
            .and_then(|()| before.flush())
            .map_err(|error| work.log_failed(&error))
            .ok()?;
        Some(before)
    }

    /// The online classifier.
    #[must_use]
    pub fn classifier(&self) -> Option<&Arc<Classifier>> {
        self.classifier.as_ref()
    }

    /// Drains all rings, and ends the quantum if it is over.
    pub fn step(&self) {
        let mut work = self.work.lock();
        // Not under their lock: a worker that comes meanwhile waits for nothing, and the next step drains its ring.
        let mut readers = std::mem::take(&mut self.rings.lock().readers);
        readers.retain_mut(|ring| {
            let closed = ring.reader.is_closed();
            let found = ring.reader.drain(|record| work.batch.push(decode(record)));
            work.take(self.classifier.as_deref());
            ring.most = ring.most.max(found);
            if found > ring.reader.capacity() / 4 * 3 {
                ring.reader.press();
            }
            if closed {
                work.lost_before += ring.reader.lost();
            }
            !closed
        });
        let quantum_ns = (self.options.quantum.as_nanos() as u64).max(1);
        let quantum = (self.clock.now_ns() - self.start_ns) / quantum_ns;
        if quantum > work.quantum {
            let ended = quantum - work.quantum;
            work.end_quantum(self.options.flush_quanta);
            work.quantum = quantum;
            if let Some(classifier) = &self.classifier {
                classifier.end_quanta(ended);
            }
            for ring in &mut readers {
                if ring.most < ring.reader.capacity() / 2 {
                    ring.reader.ease();
                }
                ring.most = 0;
            }
        }
        let held_back = readers.iter().filter(|ring| ring.reader.throttle() > 0).count();
        let lost = work.lost_before + readers.iter().map(|ring| ring.reader.lost()).sum::<u64>();
        work.account(readers.len(), held_back, lost);
        work.statistics.memory_bytes += readers.len() * ring::bytes(self.options.ring_records);
        self.rings.lock().readers.append(&mut readers);
        self.statistics.lock().clone_from(&work.statistics);
    }

    /// The counts of what was collected, as of the last step.
    #[must_use]
    pub fn statistics(&self) -> CollectorStatistics {
        self.statistics.lock().clone()
    }

    /// Runs the collector on a thread of its own until the handle is dropped.
    ///
    /// # Errors
    /// The system's, when it has no thread for us.
    pub fn start(self: &Arc<Self>) -> std::io::Result<CollectorThread> {
        let collector = Arc::clone(self);
        self.stop.store(false, Ordering::Relaxed);
        let thread =
            std::thread::Builder::new().name("thermocline-temperature".to_owned()).spawn(move || {
                thermocline_base::background::stand_back();
                while !collector.stop.load(Ordering::Acquire) {
                    collector.step();
                    std::thread::park_timeout(collector.options.pause);
                }
                collector.step();
            })?;
        Ok(CollectorThread { collector: Arc::clone(self), thread: Some(thread) })
    }
}

impl Work {
    /// Gives the batch on.
    fn take(&mut self, classifier: Option<&Classifier>) {
        if self.batch.is_empty() {
            return;
        }
        self.statistics.recorded += self.batch.len() as u64;
        self.statistics.recorded_cold += self.batch.iter().filter(|access| access.cold).count() as u64;
        if let Some(classifier) = classifier {
            classifier.observe(&self.batch);
        }
        if let Some(log) = &mut self.log
            && let Err(error) = log.add(self.quantum, &self.batch)
        {
            self.log_failed(&error);
        }
        self.batch.clear();
    }

    fn end_quantum(&mut self, flush_quanta: u32) {
        self.statistics.quanta += 1;
        self.unflushed += 1;
        let quantum = self.quantum;
        let Some(log) = &mut self.log else { return };
        let mut outcome = log.end_quantum(quantum);
        if outcome.is_ok() && self.unflushed >= flush_quanta {
            self.unflushed = 0;
            outcome = log.flush();
        }
        if let Err(error) = outcome {
            self.log_failed(&error);
        }
    }

    /// The log ends here; everything else goes on.
    fn log_failed(&mut self, error: &LogError) {
        tracing::error!(%error, "the access log ends: it cannot be written");
        self.statistics.log_error = Some(error.to_string());
        self.log = None;
    }

    fn account(&mut self, workers: usize, held_back: usize, lost: u64) {
        if (held_back > 0) != self.was_held_back {
            self.was_held_back = held_back > 0;
            if held_back > 0 {
                tracing::warn!(
                    held_back,
                    lost,
                    "accesses are sampled less: records are not drained fast enough"
                );
            } else {
                tracing::info!(lost, "accesses are sampled as asked for again");
            }
        }
        let statistics = &mut self.statistics;
        (statistics.workers, statistics.held_back, statistics.lost) = (workers, held_back, lost);
        if let Some(log) = &self.log {
            (statistics.log_bytes, statistics.log_dropped) = (log.bytes(), log.dropped());
        }
        statistics.memory_bytes = self.batch.capacity() * size_of::<Access>()
            + self.log.as_ref().map_or(0, LogWriter::memory_bytes);
    }
}

/// The thread of a [`Collector`]; dropping it takes one more step and ends it.
#[derive(Debug)]
pub struct CollectorThread {
    collector: Arc<Collector>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for CollectorThread {
    fn drop(&mut self) {
        self.collector.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("the thread that collects accesses panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use thermocline_base::clock::ManualClock;
    use thermocline_base::ids::TableId;
    use thermocline_base::io::{Io, MemoryIo, OpenMode};

    use super::*;
    use crate::classify::{Algorithm, Budget, ClassifyOptions, classify};
    use crate::{LogOptions, LogReader};

    fn collector(options: CollectorOptions) -> (Arc<ManualClock>, Collector) {
        let clock = Arc::new(ManualClock::new(0));
        let collector = Collector::new(options, Arc::clone(&clock) as Arc<dyn Clock>, None);
        (clock, collector)
    }

    #[test]
    fn accesses_of_two_workers_reach_the_log_in_their_quanta() {
        let io = MemoryIo::new();
        let file = io.open(Path::new("log"), OpenMode::CreateNew).expect("a new file");
        let (clock, collector) = collector(CollectorOptions { share: 1.0, ..Default::default() });
        collector.set_log(Some(LogWriter::to_file(file, &LogOptions::new([3; 16])).expect("begun")));
        let mut samplers = [collector.sampler(), collector.sampler()];
        for quantum in 0..10_u64 {
            for sampler in &mut samplers {
                sampler.touch(TableId(1), || 7, 100);
                sampler.touch_cold(TableId(1), 100 + quantum, 100);
            }
            collector.step();
            clock.advance(Duration::from_secs(1));
            collector.step();
        }
        let statistics = collector.statistics();
        assert_eq!((statistics.recorded, statistics.recorded_cold, statistics.quanta), (40, 20, 10));
        assert_eq!((statistics.workers, statistics.lost, statistics.held_back), (2, 0, 0));
        drop(samplers);
        collector.step();
        assert_eq!(collector.statistics().workers, 0);
        assert!(collector.set_log(None).is_some());
        let log = LogReader::open(io.open(Path::new("log"), OpenMode::Read).expect("there")).expect("a log");
        let options =
            ClassifyOptions { algorithm: Algorithm::Forward, budget: Budget::Rows(1), ..Default::default() };
        let found = classify(&log, &options).expect("read");
        assert_eq!((found.recorded, found.quanta, found.rows, found.damages.len()), (40, 10, 11, 0));
        assert_eq!(found.hottest[0].row.hash, 7);
        // Two accesses in each of ten quanta.
        let exact = 2.0 * (1.0 - 0.95_f64.powi(10));
        assert!((found.hottest[0].estimate - exact).abs() < 1e-9, "{}", found.hottest[0].estimate);
    }

    #[test]
    fn a_lagging_collector_holds_workers_back_and_lets_them_go_again() {
        let (clock, collector) =
            collector(CollectorOptions { share: 1.0, ring_records: 64, ..Default::default() });
        let mut sampler = collector.sampler();
        let work = |sampler: &mut Sampler| (0..5_000).for_each(|row| sampler.touch(TableId(1), || row, 100));
        work(&mut sampler);
        collector.step();
        let pressed = collector.statistics();
        assert!(pressed.lost > 0 && pressed.held_back == 1, "{pressed:?}");
        for _ in 0..20 {
            clock.advance(Duration::from_secs(1));
            collector.step();
        }
        assert_eq!(collector.statistics().held_back, 0);
        for row in 0..5_000 {
            sampler.touch(TableId(1), || row, 100);
            if row % 20 == 0 {
                collector.step();
            }
        }
        assert_eq!(collector.statistics().lost, pressed.lost);
    }

    #[test]
    fn a_broken_stream_ends_the_log_and_nothing_else() {
        #[derive(Default)]
        struct Breaks(usize);
        impl std::io::Write for Breaks {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0 += bytes.len();
                if self.0 > 64 { Err(std::io::ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) }
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (clock, collector) =
            collector(CollectorOptions { share: 1.0, flush_quanta: 1, ..Default::default() });
        let log = LogWriter::to_stream(Box::<Breaks>::default(), &LogOptions::new([3; 16])).expect("begun");
        collector.set_log(Some(log));
        let mut sampler = collector.sampler();
        for _ in 0..3 {
            sampler.touch(TableId(1), || 1, 100);
            clock.advance(Duration::from_secs(1));
            collector.step();
        }
        let statistics = collector.statistics();
        assert_eq!(statistics.recorded, 3);
        assert!(statistics.log_error.is_some_and(|error| error.contains("stream broke")));
    }

    #[test]
    fn a_thread_drains_by_itself_and_ends() {
        let options = CollectorOptions { share: 1.0, pause: Duration::from_millis(1), ..Default::default() };
        let collector =
            Arc::new(Collector::new(options, Arc::new(thermocline_base::clock::SystemClock), None));
        let thread = collector.start().expect("a thread");
        let mut sampler = collector.sampler();
        for row in 0..100 {
            sampler.touch(TableId(1), || row, 100);
        }
        drop(thread);
        assert_eq!(collector.statistics().recorded, 100);
    }
}
