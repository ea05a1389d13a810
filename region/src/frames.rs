//! The frames of a pager, under its lock: which page is in which, what is free, what leaves, which waiters there are.
//!
//! Rules under the lock: no thread touches a page, waits, or pins; so the net may take it while any thread sleeps in
//! a fault.
//!
//! Page-out has three steps. *Mark*: the policy chooses frames, their words say *leaving* with a number of their own, and then
//! (`StampAfterMark`) a stamp of the epochs is taken. *Settle*: entries whose stamp the epochs have passed are taken by their
//! very word (`MarksAreDistinct`), 64 at a time; a reader that took its page back has changed it. *Drop*, without the lock.
//!
//! A waiter that has to wait for others leaves a waker under the lock, in the same turn in which it saw that it must. Each change
//! that it may wait for is followed by [`Frames::news`], under the lock as well, so no news is lost (`FreedFrameTells`).
//!
//! The net is given what it needs without an allocation: a frame by [`Frames::seize`], and a list with room for all frames, from which
//! the policy learns later ([`Frames::note`]).

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use thermocline_base::epoch::Epochs;
use thermocline_base::sync::{AtomicU16, AtomicU64, Ordering};
use thermocline_pool::policy::{Candidates, Policy, PolicyKind};

use crate::mutation::{Rule, off, on};
use crate::word::{State, Word};

/// Pages that are dropped together.
pub(crate) const BATCH: usize = 64;
/// No page.
pub(crate) const EMPTY: usize = usize::MAX;

/// A frame that was marked.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    frame: u32,
    page: usize,
    word: Word,
    stamp: u64,
}

/// Whoever waits for pages.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    /// It has frames for its whole set.
    pub(crate) granted: bool,
    /// Left while it waits for its turn or for frames, or (granted) for pages that others bring.
    pub(crate) waker: Option<Waker>,
    /// Frames that it found wanting.
    pub(crate) need: usize,
    /// Frames of its pages.
    pub(crate) claimed: Vec<u32>,
}

#[derive(Debug)]
pub(crate) struct Frames {
    policy: Box<dyn Policy>,
    pub(crate) free: Vec<u32>,
    pub(crate) pages: Vec<usize>,
    /// Frames that the policy knows.
    known: Vec<bool>,
    /// Frames that the net has filled, of which the policy is told later; each at most once (`noted`).
    fresh: Vec<u32>,
    noted: Vec<bool>,
    claims: Vec<u32>,
    leaving: VecDeque<Leaving>,
    pub(crate) waiters: BTreeMap<u64, Waiter>,
    next_number: u64,
    hand: usize,
}

/// The frames as a policy sees them.
struct Choice<'a> {
    words: &'a [AtomicU64],
    uses: &'a [AtomicU16],
    pages: &'a [usize],
    claims: &'a [u32],
    /// Frames that are not taken although claimed ones are; `None`: no claimed one is.
    keep: Option<&'a [u32]>,
    number: u64,
    marked: Vec<(u32, usize, Word)>,
}

impl Candidates for Choice<'_> {
    fn uses(&self, frame: u32) -> u16 {
        self.uses[frame as usize].load(Ordering::Relaxed)
    }

    fn set_uses(&self, frame: u32, uses: u16) {
        self.uses[frame as usize].store(uses, Ordering::Relaxed);
    }

    fn take(&mut self, frame: u32) -> bool {
        let at = frame as usize;
        if self.claims[at] > 0 && self.keep.is_none_or(|keep| keep.contains(&frame)) {
            return false;
        }
        let number = if off(Rule::MarksAreDistinct) { 0 } else { self.number };
        let (page, word) = (self.pages[at], Word::leaving(frame, number));
        let marked = self.words[page]
            .compare_exchange(Word::present(frame).0, word.0, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        if marked {
            self.number += 1;
            self.marked.push((frame, page, word));
        }
        marked
    }
}

impl Frames {
    pub(crate) fn new(count: usize, policy: PolicyKind) -> Self {
        Self {
            policy: policy.build(),
            free: (0..count as u32).rev().collect(),
            pages: vec![EMPTY; count],
            known: vec![false; count],
            fresh: Vec::with_capacity(count),
            noted: vec![false; count],
            claims: vec![0; count],
            leaving: VecDeque::new(),
            waiters: BTreeMap::new(),
            next_number: 1,
            hand: 0,
        }
    }

    pub(crate) fn most_uses(&self) -> u16 {
        self.policy.most_uses()
    }

    pub(crate) fn count(&self) -> usize {
        self.pages.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.policy.bytes() + self.count() * (size_of::<usize>() + 4 + 4 + 1 + 1 + 2)
    }

    /// A number that no mark, reading or waiter has had.
    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(crate) fn claim(&mut self, frame: u32) {
        self.claims[frame as usize] += 1;
    }

    pub(crate) fn unclaim(&mut self, frame: u32) {
        self.claims[frame as usize] -= 1;
    }

    /// A page is in the frame and can be chosen.
    pub(crate) fn know(&mut self, frame: u32) {
        if !std::mem::replace(&mut self.known[frame as usize], true) {
            self.policy.insert(frame, self.pages[frame as usize] as u64);
        }
    }

    /// As [`Frames::know`], later: for the net, which may not allocate, as a policy may.
    pub(crate) fn note(&mut self, frame: u32) {
        if !std::mem::replace(&mut self.noted[frame as usize], true) {
            self.fresh.push(frame);
        }
    }

    fn learn(&mut self) {
        while let Some(frame) = self.fresh.pop() {
            self.noted[frame as usize] = false;
            if self.pages[frame as usize] != EMPTY {
                self.know(frame);
            }
        }
    }

    /// The frame has no page any more.
    pub(crate) fn release(&mut self, frame: u32) {
        if std::mem::take(&mut self.known[frame as usize]) {
            self.policy.remove(frame);
        }
        self.pages[frame as usize] = EMPTY;
        self.free.push(frame);
    }

    /// Marks pages until so many frames are free or leave, and some to spare. Claimed ones only if there is no other way, not to
    /// spare, and never those of the oldest waiter.
    pub(crate) fn mark(
        &mut self,
        (want, spare): (usize, usize),
        words: &[AtomicU64],
        uses: &[AtomicU16],
        epochs: &Epochs,
    ) {
        self.learn();
        let early = off(Rule::StampAfterMark).then(|| epochs.stamp());
        let oldest = self.waiters.first_key_value().map_or(&[][..], |(_, waiter)| &waiter.claimed);
        let mut choice = Choice {
            words,
            uses,
            pages: &self.pages,
            claims: &self.claims,
            keep: None,
            number: self.next_number + 1,
            marked: Vec::new(),
        };
        let mut goal = want + spare;
        while self.free.len() + self.leaving.len() + choice.marked.len() < goal {
            if self.policy.choose(&mut choice).is_none() {
                if choice.keep.is_some() {
                    break;
                }
                choice.keep = Some(oldest);
                goal = want;
            }
        }
        self.next_number = choice.number;
        let marked = choice.marked;
        if marked.is_empty() {
            return;
        }
        let stamp = early.unwrap_or_else(|| epochs.stamp());
        for (frame, page, word) in marked {
            self.known[frame as usize] = false;
            self.leaving.push_back(Leaving { frame, page, word, stamp });
        }
    }

    /// Takes what may go by now: pages and frames that the caller has to drop.
    pub(crate) fn settle(&mut self, words: &[AtomicU64], epochs: &Epochs) -> Vec<(usize, u32)> {
        let mut taken = Vec::new();
        if self.leaving.is_empty() {
            return taken;
        }
        let safe = epochs.safe();
        while taken.len() < BATCH {
            let Some(&Leaving { frame, page, word, stamp }) = self.leaving.front() else { break };
            if stamp >= safe && on(Rule::PageOutThroughEpoch) {
                break;
            }
            self.leaving.pop_front();
            let taking = Word::taking(frame).0;
            if words[page].compare_exchange(word.0, taking, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                taken.push((page, frame));
            } else {
                // A reader took it back, or the net took the frame, which may have another page by now, or none.
                if self.pages[frame as usize] != EMPTY {
                    self.know(frame);
                }
            }
        }
        taken
    }

    /// A frame for the net, at once: a free one, or that of a page whose contents need not be kept. The caller has
    /// dropped nothing so far: `drop_page` does, between the two transitions of its word.
    pub(crate) fn seize(&mut self, words: &[AtomicU64], drop_page: impl Fn(usize)) -> Option<u32> {
        if let Some(frame) = self.free.pop() {
            return Some(frame);
        }
        if off(Rule::NetTakesAtOnce) {
            return None;
        }
        for spares_claimed in [true, false] {
            for _ in 0..self.count() {
                let at = self.hand;
                self.hand = (at + 1) % self.count();
                let (page, frame) = (self.pages[at], at as u32);
                if page == EMPTY || (spares_claimed && self.claims[at] > 0) {
                    continue;
                }
                let word = Word(words[page].load(Ordering::SeqCst));
                let taking = Word::taking(frame).0;
                if matches!(word.state(), State::Present | State::Leaving)
                    && word.frame() == frame
                    && words[page]
                        .compare_exchange(word.0, taking, Ordering::SeqCst, Ordering::Relaxed)
                        .is_ok()
                {
                    drop_page(page);
                    words[page].store(Word::ABSENT.0, Ordering::SeqCst);
                    return Some(frame);
                }
            }
        }
        None
    }

    /// Forgets marks of pages that are dropped with their part.
    pub(crate) fn forget_marks(&mut self, frames: &[u32]) {
        self.leaving.retain(|leaving| !frames.contains(&leaving.frame));
    }

    /// With fewer free frames than this, room is made ahead of need.
    pub(crate) fn low(&self) -> usize {
        (self.count() / 64).min(BATCH)
    }

    /// Do marked pages wait for epochs?
    pub(crate) fn some_leave(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Frames that the waiter whose turn it is lacks, if it sleeps for want of them.
    pub(crate) fn lacking(&self) -> Option<usize> {
        let first = self.waiters.values().find(|waiter| !waiter.granted)?;
        (first.waker.is_some() && self.free.len() <= first.need).then_some(first.need)
    }

    /// A frame was freed, a page has come, or a waiter has gone on: the wakers of the waiters that it may concern.
    /// They are the waiter whose turn it is, and those that wait for pages which others bring.
    pub(crate) fn news(&mut self) -> Vec<Waker> {
        let mut turn = true;
        let concerned = |waiter: &mut Waiter| {
            let concerned = waiter.granted || std::mem::take(&mut turn);
            if concerned { waiter.waker.take() } else { None }
        };
        self.waiters.values_mut().filter_map(concerned).collect()
    }
}
