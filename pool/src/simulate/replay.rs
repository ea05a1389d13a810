//! All policies of all sizes over one trace, in threads beside the one that reads it.
//!
//! ```text
//!   caller: trace ─► frames ─► batch ──┬─► worker 1: its cells, one after the other
//!                                      └─► worker 2: …            (queues of a few batches)
//!   then, if it was asked for: OPT, over the batches that were kept
//! ```
//!
//! A *cell* is a policy with a size. One more has no SSD at all. Cells do not know each other; a worker's speed does not change
//! what is found.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use thermocline_base::clock::{Clock, SystemClock, thread_cpu_ns};

use super::device::DeviceModel;
use super::frames::{FrameCounts, Frames};
use super::level::{Counts, Level, Mode};
use crate::cache::{CacheKind, CachePolicy, CacheSetup, Future, Opt, Request, Savings};
use crate::trace::{Result, TraceError, TraceRequest, TraceSource};

/// The setup of a simulation.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of an extent.
    pub extent_pages: u32,
    /// Frames before the SSD; 0: the trace was captured below them.
    pub frames: u32,
    /// Sizes of the SSD in pages.
    pub slots: Vec<u32>,
    /// Its policies.
    pub policies: Vec<CacheKind>,
    /// Where all pages are.
    pub disk: DeviceModel,
    /// Where some are.
    pub ssd: DeviceModel,
    /// The way that changed pages take.
    pub mode: Mode,
    /// Threads that simulate.
    pub threads: usize,
}

impl Simulation {
    /// Time that a cached page saves, by the models of the devices.
    #[must_use]
    pub fn savings(&self) -> Savings {
        let (sequential, random) = self.disk.read_ns(u64::from(self.page_bytes));
        let (_, ssd) = self.ssd.read_ns(u64::from(self.page_bytes));
        Savings { sequential_ns: sequential - ssd, random_ns: random - ssd }
    }

    fn setup(&self, slots: u32) -> CacheSetup {
        CacheSetup { slots, extent_pages: self.extent_pages, savings: self.savings() }
    }
}

/// The result for a policy with a size.
#[derive(Clone, Debug)]
pub struct Row {
    /// The policy; `None`: no SSD.
    pub policy: Option<CacheKind>,
    /// Pages that fit on the SSD.
    pub slots: u32,
    /// The counts of the level.
    pub counts: Counts,
    /// Pages cached at the end.
    pub cached: u32,
    /// Memory of the policy.
    pub policy_bytes: usize,
    /// Requests that came to the level.
    pub requests: u64,
    /// Time of the processor that simulating took, in nanoseconds.
    pub cpu_ns: u64,
}

/// The results for a trace.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The counts of the frames.
    pub frames: FrameCounts,
    /// The row without an SSD first, then those of the policies, in the order that was asked for.
    pub rows: Vec<Row>,
}

type Batch = Arc<Vec<Request>>;

struct Cell {
    /// Where its row belongs.
    place: usize,
    policy: Option<CacheKind>,
    slots: u32,
    level: Level,
    requests: u64,
    cpu_ns: u64,
}

impl Cell {
    fn run(&mut self, batch: &[Request]) {
        let begin = now_ns();
        batch.iter().for_each(|request| self.level.request(request));
        self.requests += batch.len() as u64;
        // The clock of a thread goes back now and then on a virtual machine.
        self.cpu_ns += now_ns().saturating_sub(begin);
    }

    fn row(&self) -> Row {
        Row {
            policy: self.policy,
            slots: self.slots,
            counts: self.level.counts(),
            cached: self.level.cached(),
            policy_bytes: self.level.policy_bytes(),
            requests: self.requests,
            cpu_ns: self.cpu_ns.max(1),
        }
    }
}

/// Time of this thread's processor, or of the clock where the system does not tell.
fn now_ns() -> u64 {
    match thread_cpu_ns() {
        0 => SystemClock.now_ns(),
        ns => ns,
    }
}

/// Runs a simulation to the end of its trace. `progress` is told how many requests were read.
///
/// # Errors
/// What is wrong with the trace.
///
/// # Panics
/// When a thread cannot be started.
pub fn replay(
    source: &mut dyn TraceSource,
    simulation: &Simulation,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome> {
    let mut frames = Frames::new(simulation.frames);
    let (online, offline) = places(simulation);
    let cell = |(place, policy, slots): (usize, Option<CacheKind>, u32)| {
        let built = policy.and_then(|kind| kind.build(&simulation.setup(slots)));
        cell(simulation, place, policy, slots, built)
    };
    let workers = simulation.threads.clamp(1, online.len());
    let mut shares: Vec<Vec<Cell>> = (0..workers).map(|_| Vec::new()).collect();
    for (number, of) in online.into_iter().enumerate() {
        shares[number % workers].push(cell(of));
    }
    let mut kept: Vec<Batch> = Vec::new();
    let mut rows: Vec<(usize, Row)> = std::thread::scope(|scope| {
        let mut queues = Vec::new();
        let mut threads = Vec::new();
        for share in shares {
            let (queue, batches) = sync_channel::<Batch>(4);
            queues.push(queue);
            threads.push(scope.spawn(move || work(share, &batches)));
        }
        let keep = (!offline.is_empty()).then_some(&mut kept);
        let read = feed(source, &mut frames, &queues, keep, progress);
        drop(queues);
        let mut rows = Vec::new();
        for thread in threads {
            rows.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        read.map(|()| rows)
    })?;
    rows.extend(run_opt(simulation, &offline, &kept)?);
    rows.sort_by_key(|(place, _)| *place);
    Ok(Outcome { frames: frames.counts(), rows: rows.into_iter().map(|(_, row)| row).collect() })
}

type Place = (usize, Option<CacheKind>, u32);

/// The cells, by whether they need the future.
fn places(simulation: &Simulation) -> (Vec<Place>, Vec<Place>) {
    let policies = simulation.policies.iter();
    let of = policies.flat_map(|kind| simulation.slots.iter().map(|slots| (Some(*kind), *slots)));
    std::iter::once((None, 0))
        .chain(of)
        .enumerate()
        .map(|(place, (policy, slots))| (place, policy, slots))
        .partition(|(_, policy, _)| policy.is_none_or(CacheKind::is_online))
}

fn cell(
    simulation: &Simulation,
    place: usize,
    policy: Option<CacheKind>,
    slots: u32,
    built: Option<Box<dyn CachePolicy>>,
) -> Cell {
    let devices = (&simulation.disk, &simulation.ssd);
    let tells_leaves = simulation.frames > 0;
    let level = Level::new(built, slots, devices, simulation.page_bytes, simulation.mode, tells_leaves);
    Cell { place, policy, slots, level, requests: 0, cpu_ns: 0 }
}

fn work(mut cells: Vec<Cell>, batches: &Receiver<Batch>) -> Vec<(usize, Row)> {
    while let Ok(batch) = batches.recv() {
        cells.iter_mut().for_each(|cell| cell.run(&batch));
    }
    cells.iter().map(|cell| (cell.place, cell.row())).collect()
}

/// Reads the trace and hands on what the frames let through.
fn feed(
    source: &mut dyn TraceSource,
    frames: &mut Frames,
    queues: &[SyncSender<Batch>],
    mut kept: Option<&mut Vec<Batch>>,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut requests: Vec<TraceRequest> = Vec::new();
    let mut most = 0;
    loop {
        requests.clear();
        if !source.next_batch(&mut requests)? {
            return Ok(());
        }
        let mut below = Vec::with_capacity(most);
        requests.iter().for_each(|request| frames.request(request, &mut below));
        most = most.max(below.len());
        let below = Arc::new(below);
        for queue in queues {
            // A worker that has ended has panicked; that is told when it is joined.
            let _ = queue.send(Arc::clone(&below));
        }
        if let Some(kept) = kept.as_deref_mut() {
            kept.push(below);
        }
        progress(frames.counts().requests);
    }
}

fn run_opt(simulation: &Simulation, offline: &[Place], kept: &[Batch]) -> Result<Vec<(usize, Row)>> {
    if offline.is_empty() {
        return Ok(Vec::new());
    }
    let requests: usize = kept.iter().map(|batch| batch.len()).sum();
    if requests >= u32::MAX as usize {
        return Err(TraceError::TooLong(format!(
            "opt can look {} requests ahead, this trace has {requests}: leave opt out of --policies",
            u32::MAX - 1
        )));
    }
    // Leaves are no requests of the policy.
    let counted = |request: &&Request| request.kind != crate::cache::RequestKind::Leave;
    let all: Vec<Request> = kept.iter().flat_map(|batch| batch.iter().filter(counted).copied()).collect();
    let future = Arc::new(Future::new(&all));
    drop(all);
    let todo = Mutex::new(offline.iter().copied().collect::<VecDeque<Place>>());
    let take = || todo.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let run = || {
        let mut rows = Vec::new();
        while let Some((place, policy, slots)) = take() {
            let opt = Box::new(Opt::new(&simulation.setup(slots), Arc::clone(&future)));
            let mut cell = cell(simulation, place, policy, slots, Some(opt));
            kept.iter().for_each(|batch| cell.run(batch));
            rows.push((place, cell.row()));
        }
        rows
    };
    Ok(std::thread::scope(|scope| {
        let threads: Vec<_> = (0..simulation.threads.max(1)).map(|_| scope.spawn(run)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(rows) => rows,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().flat_map(join).collect()
    }))
}
