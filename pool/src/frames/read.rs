//! Reads of pages from a device: one for all waiters of a page.
//!
//! A read has its frames before it starts and a buffer of its own that the device fills; when the answer is there, each
//! page is verified, copied into its frame and put into the map, with a pin for each future that waits for it. So a
//! waiter has its page for certain when it runs, however scarce frames are.
//!
//! - A future that is dropped before the answer is not counted any more; one that is dropped with its pin gives it back.
//! - Errors go to all waiters, and to no later pin: the frame is free again and the next pin reads anew.
//! - A page that is discarded while it is read is *detached*: the map of reads does not lead to it any more, what
//!   comes is thrown away, and its waiters start over.
//! - A read says which version is expected, if its user knows, and why it is made. A future that joins a read of
//!   another version takes nothing from it but a page that is right.
//! - Several pages (read-ahead) are one operation. A short answer gives the whole pages that it has; for the rest the
//!   device is asked again, a few times if it gives not even a page.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use thermocline_base::io::{Completion, Driven, Job, Outcome};
use thermocline_base::sync::Mutex;

use super::PageId;
use super::guard::PageGuard;
use super::map::Slot;
use super::shared::{Core, Shared};
use crate::device::{PageDevice, Wanted};
use crate::error::{PageReason, PoolError};
use crate::mutation::{self, Rule};
use crate::page;

/// Number of times that a device may give less than a page before that is an error.
const SHORT_ANSWERS: u32 = 4;

/// A read that is under way, shared by the device's answer, the pool and the waiters.
#[derive(Clone)]
pub(super) struct ReadFlight(Arc<Driven<ReadJob>>);

pub(super) struct ReadJob {
    shared: Arc<Shared>,
    device: Arc<PageDevice>,
    first: PageId,
    wanted: Wanted,
    state: Mutex<State>,
}

struct State {
    /// The first page that is not settled.
    next: usize,
    short_answers: u32,
    pages: Vec<Page>,
}

struct Page {
    frame: u32,
    detached: bool,
    /// Number of futures that wait.
    waiting: u64,
    wakers: Vec<Option<Waker>>,
    settled: Option<Settled>,
}

#[derive(Clone)]
enum Settled {
    /// It is in the map, with a pin for each future that waited.
    Ready(Slot, u32),
    Failed(PoolError),
    /// It was discarded meanwhile.
    Again,
}

impl ReadFlight {
    /// A read of as many pages as there are frames, which the caller has reserved.
    pub(super) fn new(
        shared: Arc<Shared>,
        device: Arc<PageDevice>,
        first: PageId,
        frames: Vec<u32>,
        wanted: Wanted,
    ) -> Self {
        let page = |frame| Page { frame, detached: false, waiting: 0, wakers: Vec::new(), settled: None };
        let pages = frames.into_iter().map(page).collect();
        let state = Mutex::new(State { next: 0, short_answers: 0, pages });
        Self(Driven::new(ReadJob { shared, device, first, wanted, state }))
    }

    /// Asks the device.
    pub(super) fn begin(&self) {
        let job = &self.0.job;
        let completion = job.submit();
        self.0.start(completion);
    }

    /// A page of it has been discarded. Under the pool's lock.
    pub(super) fn detach(&self, index: usize) {
        self.0.job.state.lock().pages[index].detached = true;
    }
}

impl ReadJob {
    fn submit(&self) -> Completion {
        let (next, count) = {
            let state = self.state.lock();
            (state.next, state.pages.len() - state.next)
        };
        let buffer = self.shared.take_buffer(count);
        self.device.read(self.first.number() + next as u64, buffer, self.wanted)
    }

    fn verify(&self, index: usize, bytes: &[u8]) -> Result<(), PoolError> {
        let number = self.first.number() + index as u64;
        match page::open(bytes, self.device.seal(), number, None) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.failed(index, PageReason::Bytes(error))),
        }
    }

    fn failed(&self, index: usize, reason: PageReason) -> PoolError {
        let number = self.first.number() + index as u64;
        PoolError::Page { path: Arc::clone(self.device.path()), number, reason }
    }

    /// One page is there, or cannot be had.
    fn settle(&self, core: &mut Core, state: &mut State, index: usize, result: Result<(), PoolError>) {
        let key = self.first.plus(index as u64).packed();
        let page = &mut state.pages[index];
        if !page.detached {
            core.reads.remove(&key);
        }
        let settled = match result {
            Ok(()) if page.detached => Settled::Again,
            // No future waits for it, and its frame has to go.
            Ok(()) if page.waiting == 0 && page.frame >= core.limit => Settled::Again,
            Ok(()) => {
                let slot = self.shared.settle_frame(core, page.frame, key, 0, page.waiting);
                Settled::Ready(slot, page.frame)
            }
            Err(_) if page.detached => Settled::Again,
            Err(error) => {
                core.counts.read_errors += 1;
                Settled::Failed(error)
            }
        };
        if !matches!(settled, Settled::Ready(..)) {
            self.shared.release_frame(core, page.frame);
        }
        page.settled = Some(settled);
        core.after.wakers.extend(page.wakers.drain(..).flatten());
    }
}

impl Job for ReadJob {
    fn answered(&self, outcome: Outcome) -> Option<Completion> {
        let page_bytes = self.shared.page_size.bytes();
        let (next, count) = {
            let state = self.state.lock();
            (state.next, state.pages.len())
        };
        let buffer = outcome.buffer.into_aligned().expect("a read gives back the buffer that it was given");
        let mut results = Vec::with_capacity(1);
        if let Ok(bytes) = outcome.result {
            for (index, bytes) in (next..count).zip(buffer[..bytes].chunks_exact(page_bytes)) {
                let verified = self.verify(index, bytes);
                if verified.is_ok() {
                    // The frame is ours: no page in the map is in there.
                    let frame = self.state.lock().pages[index].frame;
                    self.shared.memory.fill(frame, bytes);
                }
                results.push(verified);
            }
        }
        self.shared.give_buffer(buffer);
        let answered = results.len();
        let reason = match outcome.result {
            Err(error) => Some(PageReason::Io(error)),
            Ok(_) if answered > 0 => None,
            Ok(0) => Some(PageReason::Cut),
            Ok(bytes) => {
                let mut state = self.state.lock();
                state.short_answers += 1;
                (state.short_answers >= SHORT_ANSWERS).then_some(PageReason::Short { bytes })
            }
        };
        if let Some(reason) = reason {
            results.extend((next..count).map(|index| Err(self.failed(index, reason.clone()))));
        }
        let done = self.shared.with(|core| {
            core.counts.reads += 1;
            core.counts_of(self.first.device(), |counts| {
                counts.reads += 1;
                counts.bytes_read += ((count - next) * page_bytes) as u64;
            });
            let mut state = self.state.lock();
            for result in results {
                let index = state.next;
                self.settle(core, &mut state, index, result);
                state.next += 1;
            }
            state.next == count
        });
        (!done).then(|| self.submit())
    }
}

/// A future's place at a page that is being read.
pub(super) struct ReadWait<'a> {
    shared: &'a Shared,
    flight: ReadFlight,
    index: usize,
    place: usize,
    done: bool,
}

impl<'a> ReadWait<'a> {
    /// Under the pool's lock, so that the page is not settled yet.
    pub(super) fn join(shared: &'a Shared, flight: &ReadFlight, index: usize) -> Self {
        let place = {
            let page = &mut flight.0.job.state.lock().pages[index];
            page.waiting += 1;
            page.wakers.push(None);
            page.wakers.len() - 1
        };
        Self { shared, flight: flight.clone(), index, place, done: false }
    }

    /// Is the page read as another version's? Then its failure is no news of this version: the SSD may have been asked for
    /// that one, and this one was not looked for.
    pub(super) fn is_of_other(&self, wanted: Wanted) -> bool {
        self.flight.0.job.wanted.version != wanted.version
    }
}

impl<'a> Future for ReadWait<'a> {
    /// `None`: start over.
    type Output = Result<Option<PageGuard<'a>>, PoolError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = context.waker().clone();
        // The former waker goes when the lock is free: with it a whole task may go, and the guards that it holds.
        let (settled, _former) = {
            let page = &mut self.flight.0.job.state.lock().pages[self.index];
            match &page.settled {
                Some(settled) => (Some(settled.clone()), None),
                None => (None, page.wakers[self.place].replace(waker)),
            }
        };
        let Some(settled) = settled else { return Poll::Pending };
        self.done = true;
        Poll::Ready(match settled {
            Settled::Ready(slot, frame) => Ok(Some(PageGuard::new(self.shared, slot, frame))),
            Settled::Failed(error) => Err(error),
            Settled::Again => Ok(None),
        })
    }
}

impl Drop for ReadWait<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let (granted, waker) = {
            let page = &mut self.flight.0.job.state.lock().pages[self.index];
            match page.settled {
                None => {
                    page.waiting -= 1;
                    (None, page.wakers[self.place].take())
                }
                Some(Settled::Ready(slot, _)) => (Some(slot), None),
                Some(_) => (None, None),
            }
        };
        drop(waker);
        if let Some(slot) = granted
            && mutation::on(Rule::DroppedPinIsGivenBack)
        {
            self.shared.unpin(slot);
        }
    }
}
