//! The tender: a thread of the pager that does what no other thread can be asked to do while others sleep.
//!
//! | called by | because | does |
//! |---|---|---|
//! | a waiter that lacks frames ([`Tender::watch`]) | pins end without telling anybody | makes room again and again until the epochs have let the frames go, and wakes it |
//! | the net ([`Tender::tell`]) | it allocates nothing and runs no waker of its users | wakes those that wait for the page |
//! | a reader ([`Inner::prefetch`]) | it does not wait for what it will need later | reads pages into frames that no waiter needs |
//!
//! It watches only while a waiter sleeps for want of frames *and* marked pages wait for epochs; else each frame that is freed wakes
//! the waiter itself. A read that was begun ahead is like any other: a waiter that comes meanwhile waits for it, the net reads
//! for itself, and one that fails is given up; whoever needs the page then is told why.
//!
//! Lock order: the tender's lock is taken alone.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use thermocline_base::multiplex::block_on;
use thermocline_base::sync::{Backoff, Mutex};

use crate::claim::Reading;
use crate::own::{Inner, Span, tell};
use crate::statistics::add;
use crate::word::{State, Word};

/// Pages that are read ahead at the same time, at the most.
const AHEAD_MAX: usize = 64;
/// Hints that are kept, at the most; more are forgotten.
const HINTS_MAX: usize = 4096;
/// Between two looks at the epochs, at first and at the most. Pins are short.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// The calls that the tender has to answer.
#[derive(Debug, Default)]
pub(crate) struct Tender(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    stop: bool,
    watch: bool,
    tell: bool,
    hints: VecDeque<usize>,
    waker: Option<Waker>,
}

impl Tender {
    fn call(&self, change: impl FnOnce(&mut Calls)) {
        let mut calls = self.0.lock();
        change(&mut calls);
        let waker = calls.waker.take();
        drop(calls);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// A waiter sleeps for want of frames.
    pub(crate) fn watch(&self) {
        self.call(|calls| calls.watch = true);
    }

    /// A page has come, of which no waiter was told. Allocates nothing.
    pub(crate) fn tell(&self) {
        self.call(|calls| calls.tell = true);
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.call(|calls| calls.stop = true);
    }
}

/// Starts the thread.
pub(crate) fn start(inner: &Arc<Inner>) -> std::io::Result<JoinHandle<()>> {
    let inner = Arc::clone(inner);
    std::thread::Builder::new().name("thermocline-pager".to_string()).spawn(move || run(&inner))
}

/// Why it does not sleep.
enum Called {
    Stopped,
    ToWatch,
}

/// Tends until it is stopped.
pub(crate) fn run(inner: &Inner) {
    let mut readings = Vec::new();
    loop {
        match block_on(poll_fn(|context| inner.tend(&mut readings, context))) {
            Called::Stopped => break,
            Called::ToWatch => inner.watch_epochs(),
        }
    }
    readings.iter().for_each(|reading| inner.give_up(reading));
}

impl Inner {
    /// Reads ahead what of this is absent.
    pub(crate) fn prefetch(&self, spans: &[Span]) {
        let absent = |page: &usize| self.word(*page).state() == State::Absent;
        let mut pages = spans.iter().flat_map(|span| span.pages()).filter(absent).peekable();
        if pages.peek().is_none() {
            return;
        }
        self.tender.call(|calls| {
            let room = HINTS_MAX - calls.hints.len();
            calls.hints.extend(pages.take(room));
        });
    }

    /// Does what it was called for, and goes on with reads that were begun ahead.
    fn tend(&self, readings: &mut Vec<Reading>, context: &mut Context<'_>) -> Poll<Called> {
        loop {
            let mut at = 0;
            while at < readings.len() {
                match Pin::new(&mut readings[at].completion).poll(context) {
                    Poll::Ready(outcome) => {
                        // Whoever needs a page that cannot be read meets the error itself.
                        let _ = self.finish(&readings.swap_remove(at), outcome);
                    }
                    Poll::Pending => at += 1,
                }
            }
            let mut calls = self.tender.0.lock();
            if calls.stop {
                return Poll::Ready(Called::Stopped);
            }
            let (watch, tells) = (std::mem::take(&mut calls.watch), std::mem::take(&mut calls.tell));
            let room = AHEAD_MAX - readings.len();
            let wanted = calls.hints.len().min(room);
            let hints: Vec<usize> = calls.hints.drain(..wanted).collect();
            if !watch && !tells && hints.is_empty() {
                calls.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            drop(calls);
            if tells {
                tell(self.frames.lock());
            }
            if !hints.is_empty() {
                self.begin_ahead(&hints, readings);
            }
            if watch {
                return Poll::Ready(Called::ToWatch);
            }
        }
    }

    /// Begins to read pages, as far as no waiter needs the frames.
    fn begin_ahead(&self, hints: &[usize], readings: &mut Vec<Reading>) {
        self.make_room(hints.len() + 1);
        let mut begun = Vec::with_capacity(hints.len());
        let mut frames = self.frames.lock();
        let contended = frames.waiters.values().any(|waiter| !waiter.granted);
        for page in hints {
            // One stays for the net.
            if contended || frames.free.len() < 2 {
                break;
            }
            if self.word(*page) != Word::ABSENT {
                continue;
            }
            let frame = frames.free.pop().expect("two are free");
            let reading = Word::reading(frame, frames.number());
            if self.change(*page, Word::ABSENT, reading) {
                frames.pages[frame as usize] = *page;
                begun.push((*page, reading));
            } else {
                frames.free.push(frame);
            }
        }
        drop(frames);
        add(&self.counters.prefetched, begun.len() as u64);
        readings.extend(begun.into_iter().map(|(page, word)| self.begin(page, word)));
    }

    /// Makes room for the waiter whose turn it is, until it has it or the epochs hold nothing back any more.
    fn watch_epochs(&self) {
        let (mut backoff, mut pause) = (Backoff::new(), PAUSES.0);
        loop {
            let frames = self.frames.lock();
            let Some(need) = frames.lacking() else { return };
            drop(frames);
            self.make_room(need + 1);
            let frames = self.frames.lock();
            // Without marked pages, whoever frees a frame tells; it may have been freed by the call above.
            if frames.lacking().is_none() || !frames.some_leave() {
                return tell(frames);
            }
            drop(frames);
            backoff.sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}
