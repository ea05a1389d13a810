//! A wait for pages: it names its whole set, has frames for all of it before its first read, and keeps what has come until it
//! has looked.
//!
//! - Waiters get frames in the order of their coming (`FramesBeforeReads`): no waiter that has some waits for more.
//! - A waiter whose frames are needed may lose its pages again before it looks, except the oldest one, which keeps its age
//!   until it has seen its set whole: so each waiter ends.
//! - A waiter that has to wait sleeps: its own reads wake it, or whoever frees a frame, brings a page or goes out of its way
//!   (`FreedFrameTells`). Epochs pass without telling anybody, so the tender watches them for it (`TenderWatchesEpochs`).
//! - A page that another waiter reads is not read twice. A waiter that is dropped gives its readings up; others begin them anew.
//! - A page is put in place only by whoever ends that very reading (`ReadEndsOwnReading`): a read that is late, because the net
//!   was faster or because its part was dropped, changes nothing.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use thermocline_base::backing::{PAGE_BYTES, PageName};
use thermocline_base::io::{AlignedBytes, Completion, Outcome};
use thermocline_base::multiplex::block_on;
use thermocline_base::sync::Ordering;

use crate::error::RegionError;
use crate::frames::{Frames, Waiter};
use crate::mutation::{Rule, off, on};
use crate::own::{Inner, Span, tell};
use crate::statistics::add;
use crate::word::{State, Word};

/// See the module. A future that is ready when the set is there, or when a page of it cannot be had; a thread may
/// [wait](Claim::wait) for it as well. Whoever waits has no pin.
#[derive(Debug)]
pub struct Claim<'p> {
    /// `None`: of a pager that has nothing to wait for.
    inner: Option<&'p Inner>,
    ticket: Option<u64>,
    pages: Vec<usize>,
    granted: bool,
    readings: Vec<Reading>,
}

/// A page that is being read.
#[derive(Debug)]
pub(crate) struct Reading {
    page: usize,
    name: PageName,
    word: Word,
    pub(crate) completion: Completion,
}

/// The result of an attempt to have frames.
enum Grant {
    Done,
    /// Older ones come first.
    LaterTurn,
    /// It needs so many that are free.
    Lacks(usize),
}

/// The state of a waiter's set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    All,
    /// Others bring or take some.
    Others,
    /// Some are absent again.
    Gone,
}

impl<'p> Claim<'p> {
    pub(crate) fn new(inner: &'p Inner) -> Self {
        let mut claim = Self::of_nothing();
        claim.inner = Some(inner);
        claim
    }

    pub(crate) fn of_nothing() -> Self {
        Self { inner: None, ticket: None, pages: Vec::new(), granted: false, readings: Vec::new() }
    }

    fn inner(&self) -> &'p Inner {
        self.inner.expect("who has a ticket waits for a pager of ours")
    }

    /// Names the set.
    pub(crate) fn want(&mut self, spans: &[Span]) -> Result<(), RegionError> {
        let mut pages: Vec<usize> = spans.iter().flat_map(|span| span.pages()).collect();
        pages.sort_unstable();
        pages.dedup();
        if self.ticket.is_some() && pages == self.pages {
            return Ok(());
        }
        let mut frames = self.inner().frames.lock();
        let most = frames.count() - 1;
        if pages.len() > most {
            return Err(RegionError::TooManyPages { pages: pages.len(), most });
        }
        if self.ticket.is_none() {
            let ticket = frames.number();
            frames.waiters.insert(ticket, Waiter::default());
            self.ticket = Some(ticket);
            add(&self.inner().counters.waits, 1);
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
        block_on(self)
    }

    /// The set was seen whole, or is wanted no more.
    pub(crate) fn end(&mut self) {
        let Some(ticket) = self.ticket else { return };
        self.let_go();
        let mut frames = self.inner().frames.lock();
        frames.waiters.remove(&ticket);
        // It was in the way of younger ones.
        tell(frames);
        self.ticket = None;
        self.pages.clear();
    }

    /// Gives up frames and readings, not its age.
    fn let_go(&mut self) {
        self.granted = false;
        for reading in std::mem::take(&mut self.readings) {
            self.inner().give_up(&reading);
        }
        let Some(ticket) = self.ticket else { return };
        let mut frames = self.inner().frames.lock();
        let waiter = frames.waiters.get_mut(&ticket).expect("a waiter is listed until it ends");
        waiter.granted = false;
        for frame in std::mem::take(&mut waiter.claimed) {
            frames.unclaim(frame);
        }
    }

    /// Goes on as far as it can. Whoever has to wait has left a waker.
    fn advance(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RegionError>> {
        while self.ticket.is_some() {
            if !self.granted && !self.has_frames(context)? {
                return Poll::Pending;
            }
            let mut at = 0;
            while at < self.readings.len() {
                match Pin::new(&mut self.readings[at].completion).poll(context) {
                    Poll::Ready(outcome) => {
                        let reading = self.readings.swap_remove(at);
                        self.inner().finish(&reading, outcome)?;
                    }
                    Poll::Pending => at += 1,
                }
            }
            if !self.readings.is_empty() {
                return Poll::Pending;
            }
            let mut seen = self.see()?;
            if seen == Seen::Others {
                self.leave_waker(context);
                // A page that came before the waker was there has not woken this waiter.
                seen = self.see()?;
            }
            match seen {
                Seen::All => break,
                Seen::Others => return Poll::Pending,
                // Taken by an older one, or given up by its reader: from the start, with the same age.
                Seen::Gone => self.let_go(),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Looks at the pages of a set for which there are frames, and of which this waiter reads none any more.
    fn see(&self) -> Result<Seen, RegionError> {
        let mut seen = Seen::All;
        for page in &self.pages {
            match self.inner().word(*page).state() {
                State::Present | State::Leaving => {}
                State::None => return Err(RegionError::NoPage { page: self.inner().name(*page) }),
                State::Reading | State::Filling | State::Taking => seen = Seen::Others,
                State::Absent => return Ok(Seen::Gone),
            }
        }
        Ok(seen)
    }

    fn leave_waker(&self, context: &Context<'_>) {
        let ticket = self.ticket.expect("a waiter has its ticket");
        let mut frames = self.inner().frames.lock();
        let waiter = frames.waiters.get_mut(&ticket).expect("a waiter is listed until it ends");
        waiter.waker = Some(context.waker().clone());
    }

    /// Has frames, or has left a waker.
    fn has_frames(&mut self, context: &Context<'_>) -> Result<bool, RegionError> {
        // The second time after it has made room as far as that is possible now.
        for last in [false, true] {
            match self.grant(context)? {
                Grant::Done => return Ok(true),
                Grant::LaterTurn => return Ok(false),
                Grant::Lacks(frames) if !last => self.inner().make_room(frames),
                Grant::Lacks(_) => {}
            }
        }
        if on(Rule::TenderWatchesEpochs) {
            self.inner().tender.watch();
        }
        Ok(false)
    }

    /// Takes frames for all that is absent, if it is this waiter's turn and there are so many, and begins to read.
    fn grant(&mut self, context: &Context<'_>) -> Result<Grant, RegionError> {
        let inner = self.inner();
        let ticket = self.ticket.expect("a waiter has its ticket");
        let mut frames = inner.frames.lock();
        let ordered = on(Rule::FramesBeforeReads);
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
        let waiter = frames.waiters.get_mut(&ticket).expect("a waiter is listed until it ends");
        if ordered && (!turn || moving || !room) {
            waiter.waker = Some(context.waker().clone());
            waiter.need = need;
            return Ok(if turn { Grant::Lacks(need + 1) } else { Grant::LaterTurn });
        }
        waiter.waker = None;
        waiter.granted = true;
        let mut claimed = Vec::with_capacity(self.pages.len());
        let mut reads = Vec::with_capacity(need);
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
                    reads.push((*page, reading));
                } else {
                    frames.free.push(frame);
                }
            } else if !matches!(word.state(), State::None | State::Taking) {
                claimed.push(word.frame());
            }
        }
        claimed.iter().for_each(|frame| frames.claim(*frame));
        frames.waiters.get_mut(&ticket).expect("it was there some lines before").claimed.extend(claimed);
        self.granted = true;
        let low = (frames.free.len() < frames.low()).then(|| frames.low());
        // The next one's turn.
        tell(frames);
        add(&inner.counters.reads_of_waits, reads.len() as u64);
        self.readings.extend(reads.into_iter().map(|(page, word)| inner.begin(page, word)));
        if let Some(frames) = low {
            // While the device works: what is marked now may go when it is needed, whatever is pinned at that moment.
            inner.make_room(frames);
        }
        Ok(Grant::Done)
    }
}

impl Inner {
    /// Begins to read a page whose word says so.
    pub(crate) fn begin(&self, page: usize, word: Word) -> Reading {
        let name = self.name(page);
        let completion = self.backing.read(name, AlignedBytes::zeroed(PAGE_BYTES));
        Reading { page, name, word, completion }
    }

    /// Gives a reading up; another waiter may read the page.
    pub(crate) fn give_up(&self, reading: &Reading) {
        let mut frames = self.frames.lock();
        if self.change(reading.page, reading.word, Word::ABSENT) {
            frames.release(reading.word.frame());
        }
        tell(frames);
    }

    /// A read has ended: the page is put in place, or its error is told.
    pub(crate) fn finish(&self, reading: &Reading, outcome: Outcome) -> Result<(), RegionError> {
        let name = reading.name;
        let bytes = outcome.buffer.as_slice();
        let problem = match outcome.result {
            Err(source) => Some(RegionError::Unreadable { page: name, source }),
            Ok(length) if length < PAGE_BYTES => Some(RegionError::Damaged { page: name }),
            Ok(_) if self.word(reading.page) != reading.word && on(Rule::ReadEndsOwnReading) => {
                return Ok(());
            }
            Ok(_) => (!self.is_whole(name, bytes)).then_some(RegionError::Damaged { page: name }),
        };
        if let Some(problem) = problem {
            // Of a page that is not this reading's any more, nothing is wrong.
            let ours = self.word(reading.page) == reading.word;
            self.give_up(reading);
            if !ours {
                return Ok(());
            }
            add(&self.counters.failed_reads, 1);
            return Err(problem);
        }
        if self.put(reading.page, reading.word, bytes, Frames::know) {
            tell(self.frames.lock());
        }
        Ok(())
    }

    /// Puts a page in place, if this reading of it is still under way; the caller tells those that wait for it. `learn`: how
    /// the policy learns of it.
    pub(crate) fn put(&self, page: usize, reading: Word, bytes: &[u8], learn: fn(&mut Frames, u32)) -> bool {
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
        learn(&mut frames, frame);
        true
    }
}

impl Future for Claim<'_> {
    type Output = Result<(), RegionError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.advance(context)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
