//! A wait for pages: it names its whole set, has frames for all of it before its first read, and keeps what has come until it
//! has looked.
//!
//! - Waiters get frames in the order of their coming (`FramesBeforeReads`): nobody who has some waits for more.
//! - A waiter whose frames are needed may lose its pages again before it looks, except the oldest one, which keeps its age
//!   until it has seen its set whole: so each waiter ends.
//! - A page that another waiter reads is not read twice. A waiter that is dropped gives its readings up; others begin them anew.
//! - A page is put in place only by whoever ends that very reading (`ReadEndsOwnReading`): a read that is late, because the net
//!   was faster or because its part was dropped, changes nothing.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use thermocline_base::backing::{PAGE_BYTES, PageName};
use thermocline_base::io::{AlignedBytes, Completion, Outcome};
use thermocline_base::sync::{Backoff, Ordering};

use crate::error::RegionError;
use crate::frames::Waiter;
use crate::mutation::{Rule, off};
use crate::own::{Inner, Span};
use crate::statistics::add;
use crate::word::{State, Word};

/// See the module. A future that is ready when the set is there, or when a page of it cannot be had; a thread may
/// [wait](Claim::wait) for it as well. Whoever waits has no pin.
#[derive(Debug)]
pub struct Claim<'p> {
    inner: &'p Inner,
    ticket: Option<u64>,
    pages: Vec<usize>,
    granted: bool,
    readings: Vec<Reading>,
}

/// A page that this waiter reads.
#[derive(Debug)]
struct Reading {
    page: usize,
    name: PageName,
    word: Word,
    completion: Option<Completion>,
}

/// How far a wait is.
enum Step {
    Ready,
    /// Reads of its own are under way.
    Reads,
    /// Others have to go on.
    Others,
}

impl<'p> Claim<'p> {
    pub(crate) fn new(inner: &'p Inner) -> Self {
        Self { inner, ticket: None, pages: Vec::new(), granted: false, readings: Vec::new() }
    }

    /// Names the set.
    pub(crate) fn want(&mut self, spans: &[Span]) -> Result<(), RegionError> {
        let mut pages: Vec<usize> = spans.iter().flat_map(|span| span.pages()).collect();
        pages.sort_unstable();
        pages.dedup();
        if self.ticket.is_some() && pages == self.pages {
            return Ok(());
        }
        let mut frames = self.inner.frames.lock();
        let most = frames.count() - 1;
        if pages.len() > most {
            return Err(RegionError::TooManyPages { pages: pages.len(), most });
        }
        if self.ticket.is_none() {
            let ticket = frames.number();
            frames.waiters.insert(ticket, Waiter::default());
            self.ticket = Some(ticket);
            add(&self.inner.counters.waits, 1);
        }
        drop(frames);
        self.let_go();
        self.pages = pages;
        Ok(())
    }

    /// Waits on the calling thread, which has no pin.
    ///
    /// # Errors
    /// A page of the set cannot be read, is damaged, or is there no more.
    pub fn wait(&mut self) -> Result<(), RegionError> {
        let mut backoff = Backoff::new();
        loop {
            match self.advance(None)? {
                Step::Ready => return Ok(()),
                Step::Reads => {
                    let mut reading = self.readings.pop().expect("a read of its own is under way");
                    let outcome = reading.completion.take().expect("a reading has a completion").wait();
                    self.finish(&reading, outcome)?;
                }
                Step::Others => backoff.wait(),
            }
        }
    }

    /// The set was seen whole, or is wanted no more.
    pub(crate) fn end(&mut self) {
        let Some(ticket) = self.ticket else { return };
        self.let_go();
        self.inner.frames.lock().waiters.remove(&ticket);
        self.ticket = None;
        self.pages.clear();
    }

    /// Gives up frames and readings, not its age.
    fn let_go(&mut self) {
        self.granted = false;
        for reading in std::mem::take(&mut self.readings) {
            self.give_up(&reading);
        }
        let Some(ticket) = self.ticket else { return };
        let mut frames = self.inner.frames.lock();
        let waiter = frames.waiters.get_mut(&ticket).expect("a waiter is listed until it ends");
        waiter.granted = false;
        for frame in std::mem::take(&mut waiter.claimed) {
            frames.unclaim(frame);
        }
    }

    fn give_up(&self, reading: &Reading) {
        let mut frames = self.inner.frames.lock();
        if self.inner.change(reading.page, reading.word, Word::ABSENT) {
            frames.release(reading.word.frame());
        }
        let wakers = frames.wakers();
        drop(frames);
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    fn advance(&mut self, mut context: Option<&mut Context<'_>>) -> Result<Step, RegionError> {
        if self.ticket.is_none() {
            return Ok(Step::Ready);
        }
        if !self.granted && !self.grant()? {
            return Ok(Step::Others);
        }
        if let Some(context) = &mut context {
            let mut at = 0;
            while at < self.readings.len() {
                let completion = self.readings[at].completion.as_mut().expect("a reading has a completion");
                match Pin::new(completion).poll(context) {
                    Poll::Ready(outcome) => {
                        let reading = self.readings.swap_remove(at);
                        self.finish(&reading, outcome)?;
                    }
                    Poll::Pending => at += 1,
                }
            }
        }
        if !self.readings.is_empty() {
            return Ok(Step::Reads);
        }
        let mut step = Step::Ready;
        for page in &self.pages {
            match self.inner.word(*page).state() {
                State::Present | State::Leaving => {}
                State::None => return Err(RegionError::NoPage { page: self.inner.name(*page) }),
                State::Reading | State::Filling | State::Taking => step = Step::Others,
                State::Absent => {
                    // Taken by an older one, or given up by its reader: from the start, with the same age.
                    self.let_go();
                    return Ok(Step::Others);
                }
            }
        }
        Ok(step)
    }

    /// Takes frames for all that is absent, if it is this waiter's turn and there are so many, and begins to read.
    fn grant(&mut self) -> Result<bool, RegionError> {
        let inner = self.inner;
        let ticket = self.ticket.expect("a waiter has its ticket");
        let mut frames = inner.frames.lock();
        let ordered = !off(Rule::FramesBeforeReads);
        let turn = frames.waiters.range(..ticket).all(|(_, older)| older.granted);
        let mut need = 0;
        let mut moving = false;
        for page in &self.pages {
            match inner.word(*page).state() {
                State::None => return Err(RegionError::NoPage { page: inner.name(*page) }),
                State::Absent => need += 1,
                State::Taking => moving = true,
                State::Reading | State::Filling | State::Present | State::Leaving => {}
            }
        }
        // One stays for the net.
        let room = frames.free.len() > need || (need == 0 && !moving);
        if ordered && (!turn || moving || !room) {
            drop(frames);
            if turn {
                inner.make_room(need + 1);
            }
            return Ok(false);
        }
        let mut claimed = Vec::with_capacity(self.pages.len());
        for page in &self.pages {
            let word = inner.word(*page);
            if word.state() == State::Absent {
                if !ordered && frames.free.len() < 2 {
                    continue;
                }
                let Some(frame) = frames.free.pop() else { continue };
                let reading = Word::reading(frame, frames.number());
                if inner.change(*page, word, reading) {
                    frames.pages[frame as usize] = *page;
                    claimed.push(frame);
                    let name = inner.name(*page);
                    self.readings.push(Reading { page: *page, name, word: reading, completion: None });
                } else {
                    frames.free.push(frame);
                }
            } else if !matches!(word.state(), State::None | State::Taking) {
                claimed.push(word.frame());
            }
        }
        claimed.iter().for_each(|frame| frames.claim(*frame));
        let waiter = frames.waiters.get_mut(&ticket).expect("a waiter is listed until it ends");
        waiter.claimed.extend(claimed);
        waiter.granted = true;
        self.granted = true;
        drop(frames);
        add(&inner.counters.reads_of_waits, self.readings.len() as u64);
        for reading in &mut self.readings {
            let buffer = AlignedBytes::zeroed(PAGE_BYTES);
            reading.completion.get_or_insert_with(|| inner.backing.read(reading.name, buffer));
        }
        Ok(true)
    }

    /// A read has ended: the page is put in place, or its error is told.
    fn finish(&self, reading: &Reading, outcome: Outcome) -> Result<(), RegionError> {
        let (inner, name) = (self.inner, reading.name);
        let bytes = outcome.buffer.as_slice();
        let problem = match outcome.result {
            Err(source) => Some(RegionError::Unreadable { page: name, source }),
            Ok(length) if length < PAGE_BYTES => Some(RegionError::Damaged { page: name }),
            Ok(_) if inner.word(reading.page) != reading.word && !off(Rule::ReadEndsOwnReading) => {
                return Ok(());
            }
            Ok(_) => (!inner.is_whole(name, bytes)).then_some(RegionError::Damaged { page: name }),
        };
        if let Some(problem) = problem {
            // Of a page that is not this reading's any more, nothing is wrong.
            let ours = inner.word(reading.page) == reading.word;
            self.give_up(reading);
            if !ours {
                return Ok(());
            }
            add(&inner.counters.failed_reads, 1);
            return Err(problem);
        }
        inner.put(reading.page, reading.word, bytes);
        Ok(())
    }
}

impl Inner {
    /// Puts a page in place, if this reading of it is still under way.
    pub(crate) fn put(&self, page: usize, reading: Word, bytes: &[u8]) -> bool {
        let frame = reading.frame();
        if off(Rule::ReadEndsOwnReading) {
            self.words[page].store(Word::filling(frame).0, Ordering::SeqCst);
        } else if !self.change(page, reading, Word::filling(frame)) {
            return false;
        }
        // Before the copy, which wakes whoever waits for it in the net.
        add(&self.counters.page_ins, 1);
        // Without memory for a page of ours there is none for anything: the limit was set too high.
        self.memory.put(page, bytes).expect("memory for a page within the pager's frames");
        let mut frames = self.frames.lock();
        self.words[page].store(Word::present(frame).0, Ordering::SeqCst);
        frames.know(frame);
        let wakers = frames.wakers();
        drop(frames);
        wakers.into_iter().for_each(std::task::Waker::wake);
        true
    }
}

impl Future for Claim<'_> {
    type Output = Result<(), RegionError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(ticket) = self.ticket {
            // Before it looks, so that no news is missed.
            let mut frames = self.inner.frames.lock();
            let waiter = frames.waiters.get_mut(&ticket).expect("a waiter is listed until it ends");
            waiter.waker = Some(context.waker().clone());
        }
        match self.advance(Some(context)) {
            Err(error) => Poll::Ready(Err(error)),
            Ok(Step::Ready) => Poll::Ready(Ok(())),
            Ok(Step::Reads) => Poll::Pending,
            Ok(Step::Others) => {
                if !self.granted {
                    // It waits for pins to end, of which nobody tells.
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
