//! Waiting for room: operations that memory was refused to, until the governor has freed some, or says that it cannot.
//!
//! Who waits holds no latch, no pin and no half-done step; but an open transaction may itself keep what must leave: its
//! own uncommitted rows, and what its snapshot sees. So nobody waits without the governor's verdict: it is told to try
//! again, or refused.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use thermocline_base::clock::Clock;
use thermocline_base::sync::{Mutex, Ordering};

use super::Governor;
use crate::hot::budget::Budget;

/// So long a transaction waits for its turn to write.
const TURN_NS: u64 = 300_000_000;

/// What becomes of an operation that waits for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// There may be room now.
    TryAgain,
    /// There will be none.
    Refused,
}

/// An operation that waits.
#[derive(Debug)]
struct Waiter {
    /// Its transaction's place; none if that has not begun.
    place: Option<u32>,
    /// How many writes its transaction has made, which it keeps in memory.
    pins: u64,
    /// When the operation was first refused memory.
    since_ns: u64,
    waker: Option<Waker>,
    verdict: Option<Verdict>,
}

/// All that wait.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    next: u64,
    waiting: BTreeMap<u64, Waiter>,
}

/// Who waits, in short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Longest {
    /// When the first of them began.
    pub(crate) since_ns: u64,
}

impl Waiters {
    /// Who is refused stays so: the round that refuses one ends with telling all to try again.
    fn settle(&mut self, number: u64, verdict: Verdict) {
        if let Some(waiter) = self.waiting.get_mut(&number)
            && waiter.verdict != Some(Verdict::Refused)
        {
            waiter.verdict = Some(verdict);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Governor {
    /// Waits until there may be room. `pins`: the writes that the transaction in `place` has made; `since_ns`: when its
    /// operation was refused for the first time.
    pub(crate) fn wait_for_room(&self, place: Option<u32>, pins: u64, since_ns: u64) -> Room<'_> {
        let number = {
            let mut waiters = self.waiters.lock();
            waiters.next += 1;
            let number = waiters.next;
            let waiter = Waiter { place, pins, since_ns, waker: None, verdict: None };
            waiters.waiting.insert(number, waiter);
            number
        };
        self.wake();
        Room { waiters: &self.waiters, governor: self, number }
    }

    /// Since when somebody has been waiting who has no verdict yet.
    pub(crate) fn longest_wait(&self) -> Option<Longest> {
        let waiters = self.waiters.lock();
        let since = waiters.waiting.values().filter(|waiter| waiter.verdict.is_none());
        since.map(|waiter| waiter.since_ns).min().map(|since_ns| Longest { since_ns })
    }

    /// The places of the transactions that wait, or have just been told to try again.
    pub(crate) fn waiting_places(&self) -> BTreeSet<u32> {
        self.waiters.lock().waiting.values().filter_map(|waiter| waiter.place).collect()
    }

    /// Tells everybody who waits.
    pub(crate) fn settle_all(&self, verdict: Verdict) {
        let mut waiters = self.waiters.lock();
        let numbers: Vec<u64> = waiters.waiting.keys().copied().collect();
        numbers.into_iter().for_each(|number| waiters.settle(number, verdict));
    }

    /// Tells those whose operation has waited since `since_ns` or longer, in all.
    pub(crate) fn settle_since(&self, since_ns: u64, verdict: Verdict) {
        let mut waiters = self.waiters.lock();
        let due = waiters.waiting.iter().filter(|(_, waiter)| waiter.since_ns <= since_ns);
        let numbers: Vec<u64> = due.map(|(number, _)| *number).collect();
        numbers.into_iter().for_each(|number| waiters.settle(number, verdict));
    }

    /// Refuses the one whose own writes take most memory. `false`: nobody who waits has written anything.
    pub(crate) fn refuse_largest(&self) -> bool {
        let mut waiters = self.waiters.lock();
        let waiting =
            waiters.waiting.iter().filter(|(_, waiter)| waiter.verdict.is_none() && waiter.pins > 0);
        let Some(number) = waiting.max_by_key(|(_, waiter)| waiter.pins).map(|(number, _)| *number) else {
            return false;
        };
        waiters.settle(number, Verdict::Refused);
        true
    }

    /// Wakes the transaction in this place, if it waits: its snapshot was cancelled.
    pub(crate) fn settle_place(&self, place: u32) {
        let mut waiters = self.waiters.lock();
        let waiting = waiters.waiting.iter().filter(|(_, waiter)| waiter.place == Some(place));
        let numbers: Vec<u64> = waiting.map(|(number, _)| *number).collect();
        numbers.into_iter().for_each(|number| waiters.settle(number, Verdict::Refused));
    }

    /// Has the governor's thread look at once.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// Memory is short, and a transaction is about to begin, or to write for the first time: waits until it is not, for a while.
#[cold]
pub(crate) async fn take_turn(governor: &Governor, budget: &Budget, clock: &dyn Clock, place: Option<u32>) {
    let since = clock.now_ns();
    let waited = || clock.now_ns().saturating_sub(since);
    while governor.is_pressing(budget) && waited() < TURN_NS {
        if governor.wait_for_room(place, 0, since).await == Verdict::Refused {
            break;
        }
    }
    governor.counters.note_wait(waited());
}

/// Resolves when the governor has decided.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    waiters: &'a Mutex<Waiters>,
    governor: &'a Governor,
    number: u64,
}

impl Future for Room<'_> {
    type Output = Verdict;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Verdict> {
        let mut waiters = self.waiters.lock();
        // It may have ended between the refusal and the wait.
        let is_there = self.governor.there.load(Ordering::SeqCst);
        let waiter = waiters.waiting.get_mut(&self.number).expect("a waiter stays until its future goes");
        match waiter.verdict {
            Some(verdict) => Poll::Ready(verdict),
            None if !is_there => Poll::Ready(Verdict::Refused),
            None => {
                waiter.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.waiters.lock().waiting.remove(&self.number);
    }
}
