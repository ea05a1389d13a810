//! Accesses: by tasks that await their pages, or by threads that the system puts to sleep.

use std::cell::RefCell;
use std::path::Path;

use thermocline_base::backing::{Backing, FileBacking, PAGE_BYTES, PART_BYTES, PART_PAGES, PageName};
use thermocline_base::clock::{process_cpu_ns, process_cpu_since};
use thermocline_base::epoch::Epochs;
use thermocline_base::io::{AlignedBytes, IoError, SystemIo};
use thermocline_base::multiplex::run_tasks;
use thermocline_base::sync::{AtomicBool, Ordering};
use thermocline_region::{Paging, Span, Statistics};
use thermocline_workloads::random::Random;

use super::layout::{Place, Places, Tuples};
use super::{Contender, PagedError, PagedSettings, seconds};
use crate::latency::Latencies;
use crate::time::now;

/// Seconds that the bare device is read, at the most.
const DEVICE_SECONDS: f64 = 1.0;
/// Parts of the file that the bare device is read from.
const DEVICE_PARTS: u32 = 64;

/// The counts of a run.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) seconds: f64,
    pub(super) accesses: u64,
    pub(super) threads: usize,
    pub(super) tasks: usize,
    pub(super) cpu_us: f64,
    pub(super) server_cpu_us: Option<f64>,
    pub(super) access: Latencies,
    /// Of accesses that had to await a page.
    pub(super) waits: Latencies,
}

/// A run that is about to be.
pub(super) struct Driven<'a> {
    pub(super) settings: &'a PagedSettings,
    pub(super) contender: Contender,
    pub(super) tuples: &'a Tuples,
    pub(super) places: &'a Places,
    pub(super) pager: &'a dyn Paging,
    pub(super) epochs: &'a Epochs,
    pub(super) server_cpu: &'a dyn Fn() -> Option<f64>,
}

/// The flags that the threads of a run share.
struct Flags {
    measures: AtomicBool,
    ends: AtomicBool,
}

/// The counts of a thread.
#[derive(Default)]
struct Tally {
    accesses: u64,
    access: Latencies,
    waits: Latencies,
    wrong: Option<PagedError>,
}

impl Driven<'_> {
    /// Warms up and measures; what the pager had counted before and after.
    pub(super) fn run(&self, round: u32) -> Result<(Measured, Statistics, Statistics), PagedError> {
        // Those that sleep in faults have a thread for each access in flight, at most as many as a machine likes.
        let all = self.settings.threads * self.settings.in_flight;
        let (threads, tasks) = match self.contender {
            Contender::Memory => (self.settings.threads, 1),
            _ if self.contender.is_of_the_system() => (all.min(64), 1),
            _ => (self.settings.threads, self.settings.in_flight),
        };
        let flags = Flags { measures: AtomicBool::new(false), ends: AtomicBool::new(false) };
        let mut measured = Measured { threads, tasks, ..Measured::default() };
        let mut statistics = (Statistics::default(), Statistics::default());
        let tallies: Vec<Tally> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads)
                .map(|thread| {
                    let (pager, flags) = (self.shared(), &flags);
                    scope.spawn(move || pager.thread(thread, tasks, round, flags))
                })
                .collect();
            std::thread::sleep(seconds(self.settings.warm_up));
            statistics.0 = self.pager.statistics();
            let (cpu, servers, began) = (process_cpu_ns(), (self.server_cpu)(), now());
            flags.measures.store(true, Ordering::SeqCst);
            std::thread::sleep(seconds(self.settings.seconds));
            flags.ends.store(true, Ordering::SeqCst);
            measured.seconds = began.elapsed().as_secs_f64();
            measured.cpu_us = process_cpu_since(cpu) as f64 / 1e3;
            measured.server_cpu_us = (self.server_cpu)().zip(servers).map(|(after, before)| after - before);
            statistics.1 = self.pager.statistics();
            handles.into_iter().map(|handle| handle.join().expect("no thread of a run panics")).collect()
        });
        for tally in tallies {
            if let Some(wrong) = tally.wrong {
                return Err(wrong);
            }
            measured.accesses += tally.accesses;
            measured.access.merge(&tally.access);
            measured.waits.merge(&tally.waits);
        }
        Ok((measured, statistics.0, statistics.1))
    }

    /// The parts that threads may have: not how the processor time of servers is asked for.
    fn shared(&self) -> Shared<'_> {
        let Self { settings, contender, tuples, places, pager, epochs, .. } = *self;
        Shared { seed: settings.seed, contender, tuples, places, pager, epochs }
    }
}

#[derive(Clone, Copy)]
struct Shared<'a> {
    seed: u64,
    contender: Contender,
    tuples: &'a Tuples,
    places: &'a Places,
    pager: &'a dyn Paging,
    epochs: &'a Epochs,
}

impl Shared<'_> {
    fn thread(self, thread: usize, tasks: usize, round: u32, flags: &Flags) -> Tally {
        let tally = RefCell::new(Tally::default());
        let task = async |task: usize| {
            let path = [3, u64::from(round), thread as u64, task as u64];
            let mut random = Random::stream(self.seed, &path);
            while !flags.ends.load(Ordering::Relaxed) && tally.borrow().wrong.is_none() {
                let tuple = self.tuples.draw(&mut random);
                let began = now();
                let outcome = self.access(tuple).await;
                let took = began.elapsed_ns();
                let mut tally = tally.borrow_mut();
                match outcome {
                    Err(wrong) => tally.wrong = Some(wrong),
                    Ok(waited) if flags.measures.load(Ordering::Relaxed) => {
                        tally.accesses += 1;
                        tally.access.record(took);
                        if waited {
                            tally.waits.record(took);
                        }
                    }
                    Ok(_) => {}
                }
            }
        };
        run_tasks((0..tasks).map(&task).collect());
        tally.into_inner()
    }

    /// Reads a tuple; whether it had to wait.
    async fn access(self, tuple: u64) -> Result<bool, PagedError> {
        let bytes = self.tuples.bytes;
        let wrong = PagedError::Wrong { contender: self.contender, tuple };
        let at = match self.places.of(tuple, bytes) {
            Place::Pinned(found) if self.tuples.is_whole(tuple, found) => return Ok(false),
            Place::Pinned(_) => return Err(wrong),
            Place::Paged(at) => at,
        };
        let spans = [Span { at, bytes }];
        let mut claim = self.pager.claim();
        let mut waited = false;
        loop {
            {
                let guard = self.epochs.pin();
                if let Some(proof) = self.pager.ask(&guard, &spans, &mut claim)? {
                    let whole = self.tuples.is_whole(tuple, proof.bytes(spans[0]));
                    return if whole { Ok(waited) } else { Err(wrong) };
                }
            }
            waited = true;
            (&mut claim).await?;
        }
    }
}

/// Pages a second that the bare device gives, read past the system's cache at random, so many in flight.
pub(super) fn device(dir: &Path, in_flight: usize, most_seconds: f64) -> Result<f64, IoError> {
    let seconds = most_seconds.min(DEVICE_SECONDS);
    let backing = FileBacking::new(&SystemIo::new(), &dir.join("device"))?;
    for part in 0..DEVICE_PARTS {
        backing.prepare(part)?;
        let mut run = AlignedBytes::zeroed(PART_BYTES);
        run.fill(part as u8 + 1);
        backing.write_run(PageName { part, generation: 1, page: 0 }, run).wait().result?;
    }
    let (count, failed) = (std::cell::Cell::new(0_u64), RefCell::new(None));
    let began = now();
    let task = async |task: usize| {
        let mut random = Random::stream(task as u64, &[4]);
        while began.elapsed().as_secs_f64() < seconds && failed.borrow().is_none() {
            let at = random.next_u64();
            let (part, page) = (at as u32 % DEVICE_PARTS, (at >> 32) as u32 % PART_PAGES as u32);
            let name = PageName { part, generation: 1, page };
            match backing.read(name, AlignedBytes::zeroed(PAGE_BYTES)).await.result {
                Ok(_) => count.set(count.get() + 1),
                Err(error) => *failed.borrow_mut() = Some(error),
            }
        }
    };
    run_tasks((0..in_flight).map(&task).collect());
    match failed.into_inner() {
        Some(error) => Err(error),
        None => Ok(count.get() as f64 / began.elapsed().as_secs_f64()),
    }
}
