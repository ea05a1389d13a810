//! Streams that wait for their pages: a closed loop over frames, an SSD and a disk, with processors between.
//!
//! ```text
//!   stream: think (a processor) ─► pages of a step ─► all there ─► think …
//!                                     │ miss
//!                                     ├─► SSD, or disk: queue, the disk chooses the nearest of those that wait
//!                                     └─► changed pages that leave frames are written meanwhile: the stream does not wait
//! ```
//!
//! A *step* is what a stream asks for at once: one page, or a run that is read ahead. It goes on when the last page is there.
//!
//! Rules: events happen in the order of their times, equal ones in that of their numbers. Admissions to the SSD are written
//! after the page was handed out. A stream whose changed page finds `QUEUED_MOST` operations waiting for a member waits for its
//! write. Of eight operations that a disk starts, one is the oldest, so none waits for ever.
//!
//! Limits: write-through only. A page counts as in its frame from when it was asked for; a second stream that wants it does not
//! wait for the first one's read.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::device::{Device, DeviceModel, Operation};
use super::frames::Frames;
use super::level::DATA_OFFSET;
use crate::cache::{Admission, CachePolicy, Request, RequestKind};
use crate::trace::{TraceKind, TraceRequest};

/// The streams of a closed loop.
pub trait Streams {
    /// Adds the pages of the stream's next step to `step`, thought included; `false` if the stream has ended.
    fn next_step(&mut self, stream: usize, step: &mut Vec<TraceRequest>) -> bool;

    /// Called when a stream begins a step, with the simulated time: whoever counts transactions does it here.
    fn at(&mut self, _stream: usize, _now_ns: f64) {}
}

/// The setup of a closed loop.
#[derive(Clone, Debug)]
pub struct ClosedLoop {
    /// Streams.
    pub streams: usize,
    /// Processors.
    pub processors: usize,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Frames.
    pub frames: u32,
    /// Where all pages are.
    pub disk: DeviceModel,
    /// Where some are.
    pub ssd: DeviceModel,
    /// It ends at this time, if its streams do not end before.
    pub until_ns: f64,
}

/// The counts of a closed loop.
#[derive(Clone, Debug, Default)]
pub struct LoopCounts {
    /// When the last stream ended, or the time was over.
    pub ended_ns: f64,
    /// When each stream ended.
    pub stream_ended_ns: Vec<f64>,
    /// Reads that missed the frames.
    pub reads: u64,
    /// Those that the SSD answered.
    pub hits: u64,
    /// Pages written to the SSD.
    pub ssd_writes: u64,
    /// Pages read from the disk.
    pub disk_reads: u64,
    /// Pages written to it.
    pub disk_writes: u64,
    /// When pages were written to the SSD, every 256th one.
    pub ssd_write_ns: Vec<f64>,
    /// Time that the disk's members were at work.
    pub disk_busy_ns: f64,
    /// Time that streams thought.
    pub think_ns: f64,
}

/// Operations that may wait for a member before writers wait, too.
const QUEUED_MOST: usize = 64;
/// One of so many operations is the oldest one.
const OLDEST_EVERY: u64 = 8;

/// An operation of the disk that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    operation: Operation,
    /// The stream that waits for it.
    stream: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Event {
    /// A stream's thought has ended: it asks for its pages.
    Ask(usize),
    /// A page, or a part of a run, is there.
    Arrived(usize),
    /// A member of the disk is free.
    Free(usize),
}

/// An event with its time; earlier ones are greater, so that a heap gives them first.
#[derive(PartialEq, Debug)]
struct Due(f64, u64, Event);

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        Reverse(self.0.to_bits())
            .cmp(&Reverse(other.0.to_bits()))
            .then(Reverse(self.1).cmp(&Reverse(other.1)))
    }
}

struct World<'a> {
    setup: &'a ClosedLoop,
    policy: Option<Box<dyn CachePolicy>>,
    frames: Frames,
    disk: Device,
    ssd: Device,
    /// By member.
    queues: Vec<VecDeque<Waiting>>,
    at_work: Vec<bool>,
    started: Vec<u64>,
    due: BinaryHeap<Due>,
    numbers: u64,
    /// By stream: its step, how many parts it waits for.
    steps: Vec<(Vec<TraceRequest>, u32)>,
    processors: Vec<f64>,
    below: Vec<Request>,
    counts: LoopCounts,
}

/// Runs streams to their end, or until the time is over.
#[must_use]
pub fn run(
    setup: &ClosedLoop,
    policy: Option<Box<dyn CachePolicy>>,
    streams: &mut dyn Streams,
) -> LoopCounts {
    let disk = Device::new(setup.disk.clone());
    let members = disk.members();
    let mut world = World {
        setup,
        policy,
        frames: Frames::new(setup.frames),
        disk,
        ssd: Device::new(setup.ssd.clone()),
        queues: vec![VecDeque::new(); members],
        at_work: vec![false; members],
        started: vec![0; members],
        due: BinaryHeap::new(),
        numbers: 0,
        steps: (0..setup.streams).map(|_| (Vec::new(), 0)).collect(),
        processors: vec![0.0; setup.processors.max(1)],
        below: Vec::new(),
        counts: LoopCounts { stream_ended_ns: vec![0.0; setup.streams], ..LoopCounts::default() },
    };
    (0..setup.streams).for_each(|stream| world.advance(stream, 0.0, streams));
    while let Some(Due(now, _, event)) = world.due.pop() {
        if now > setup.until_ns {
            world.counts.ended_ns = setup.until_ns;
            break;
        }
        match event {
            Event::Ask(stream) => {
                world.ask(stream, now);
                if world.steps[stream].1 == 0 {
                    world.advance(stream, now, streams);
                }
            }
            Event::Arrived(stream) => {
                world.steps[stream].1 -= 1;
                if world.steps[stream].1 == 0 {
                    world.advance(stream, now, streams);
                }
            }
            Event::Free(member) => {
                world.at_work[member] = false;
                world.start(member, now);
            }
        }
    }
    world.counts.disk_busy_ns = world.disk.busy_ns();
    world.counts
}

impl World<'_> {
    fn add(&mut self, at: f64, event: Event) {
        self.numbers += 1;
        self.due.push(Due(at, self.numbers, event));
    }

    /// A stream goes on with its next step that misses the frames.
    fn advance(&mut self, stream: usize, now: f64, streams: &mut dyn Streams) {
        let (mut now, mut step) = (now, std::mem::take(&mut self.steps[stream].0));
        streams.at(stream, now);
        loop {
            step.clear();
            if !streams.next_step(stream, &mut step) {
                self.counts.stream_ended_ns[stream] = now;
                self.counts.ended_ns = self.counts.ended_ns.max(now);
                self.steps[stream].0 = step;
                return;
            }
            let think_ns = step.iter().map(|request| f64::from(request.think_us)).sum::<f64>() * 1e3;
            self.counts.think_ns += think_ns;
            now = self.think(now, think_ns);
            // What is in frames needs no event, as long as the stream is not far ahead of others.
            let in_frames =
                step.iter().all(|request| request.kind != TraceKind::Free && self.frames.has(request.page));
            if !in_frames || self.due.peek().is_some_and(|next| next.0 < now) || now > self.setup.until_ns {
                self.steps[stream] = (step, 0);
                return self.add(now, Event::Ask(stream));
            }
            for request in &step {
                self.frames.request(request, &mut self.below);
            }
            streams.at(stream, now);
        }
    }

    /// Takes the processor that is free first.
    fn think(&mut self, now: f64, think_ns: f64) -> f64 {
        if think_ns == 0.0 {
            return now;
        }
        let first = self.processors.iter_mut().min_by(|a, b| a.total_cmp(b)).expect("there is a processor");
        *first = first.max(now) + think_ns;
        *first
    }

    /// A stream asks for the pages of its step.
    fn ask(&mut self, stream: usize, now: f64) {
        let step = std::mem::take(&mut self.steps[stream].0);
        let mut below = std::mem::take(&mut self.below);
        below.clear();
        for request in &step {
            self.frames.request(request, &mut below);
        }
        let mut run: Option<Operation> = None;
        for request in &below {
            match request.kind {
                RequestKind::Read => self.read(stream, now, request, &mut run),
                RequestKind::Write => self.write(stream, now, request),
                RequestKind::Leave => {}
                RequestKind::Free => _ = self.policy.as_mut().and_then(|policy| policy.discard(request.page)),
            }
        }
        if let Some(run) = run {
            self.submit(now, run, Some(stream));
        }
        self.below = below;
        self.steps[stream].0 = step;
    }

    fn operation(&self, page: u64, write: bool) -> Operation {
        let bytes = u64::from(self.setup.page_bytes);
        Operation { offset: DATA_OFFSET + page * bytes, bytes, write }
    }

    fn read(&mut self, stream: usize, now: f64, request: &Request, run: &mut Option<Operation>) {
        self.counts.reads += 1;
        if let Some(slot) = self.policy.as_mut().and_then(|policy| policy.request(request)) {
            self.counts.hits += 1;
            let done = self.ssd_operation(now, slot, false);
            self.steps[stream].1 += 1;
            return self.add(done, Event::Arrived(stream));
        }
        self.counts.disk_reads += 1;
        let operation = self.operation(request.page, false);
        match run {
            Some(run) if run.offset + run.bytes == operation.offset => run.bytes += operation.bytes,
            _ => {
                if let Some(run) = run.replace(operation) {
                    self.submit(now, run, Some(stream));
                }
            }
        }
        let admission = self.policy.as_mut().map(|policy| policy.admit(request));
        if let Some(Admission::Empty(slot) | Admission::Replace { slot, .. }) = admission {
            self.ssd_operation(now, slot, true);
        }
    }

    fn write(&mut self, stream: usize, now: f64, request: &Request) {
        self.counts.disk_writes += 1;
        let waits = self.queues.iter().any(|queue| queue.len() > QUEUED_MOST);
        self.submit(now, self.operation(request.page, true), waits.then_some(stream));
        if let Some(slot) = self.policy.as_mut().and_then(|policy| policy.request(request)) {
            self.ssd_operation(now, slot, true);
        }
    }

    fn ssd_operation(&mut self, now: f64, slot: u32, write: bool) -> f64 {
        if write {
            if self.counts.ssd_writes.is_multiple_of(256) {
                self.counts.ssd_write_ns.push(now);
            }
            self.counts.ssd_writes += 1;
        }
        let bytes = u64::from(self.setup.page_bytes);
        self.ssd.serve(now, &Operation { offset: u64::from(slot) * bytes, bytes, write })
    }

    /// Hands an operation to the members of the disk.
    fn submit(&mut self, now: f64, operation: Operation, stream: Option<usize>) {
        let mut at = operation.offset;
        while let Some((member, part)) = self.disk.part_at(&operation, at) {
            at += part.bytes;
            if let Some(stream) = stream {
                self.steps[stream].1 += 1;
            }
            self.queues[member].push_back(Waiting { operation: part, stream });
            self.start(member, now);
        }
    }

    /// Starts the nearest of the operations that wait for a member, unless it is at work.
    fn start(&mut self, member: usize, now: f64) {
        if self.at_work[member] || self.queues[member].is_empty() {
            return;
        }
        self.started[member] += 1;
        let oldest = self.started[member].is_multiple_of(OLDEST_EVERY);
        let among = self.queues[member].len().min(self.setup.disk.queue as usize);
        let estimate = |at: &usize| self.disk.estimate_ns(member, now, &self.queues[member][*at].operation);
        let nearest = (0..among).filter(|_| !oldest).min_by(|a, b| estimate(a).total_cmp(&estimate(b)));
        let nearest = nearest.unwrap_or(0);
        let Some(next) = self.queues[member].remove(nearest) else { return };
        let done = self.disk.begin(member, now, &next.operation);
        self.at_work[member] = true;
        let free = self.disk.free_ns(member);
        if let Some(stream) = next.stream {
            self.add(done, Event::Arrived(stream));
        }
        self.add(free, Event::Free(member));
    }
}
