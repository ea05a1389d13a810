//! The pager: the threads that ask for pages and write them, and the parts that they are in.
//!
//! | actor | does | may wait for |
//! |---|---|---|
//! | reader | asks words under a pin, reads bytes by a proof | – |
//! | waiter ([`Claim`]), without a pin | takes frames for its whole set, reads, puts in place | device, epochs, older waiters |
//! | writer | appends a run to a part, which is then absent | device |
//! | owner of a part | takes one for a side, drops it | epochs, writes under way |
//! | net | serves touches without asking | device |
//! | tender | wakes those that lack frames once the epochs have passed; reads what was asked ahead | epochs, device |
//!
//! Why a proof holds: a reader pins, and then finds a word *present*, or makes it so by taking the page back. A mark that
//! takes it away comes later, and its stamp later still, so the epochs do not pass that stamp before the pin has ended.
//!
//! Lock order: `changes` before `frames`. No thread that is pinned waits for a page: one that has a guard and calls
//! [`Claim::wait`] may wait for itself.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::JoinHandle;

use thermocline_base::backing::{Backing, PAGE_BYTES, PART_BYTES, PART_PAGES, PageName};
use thermocline_base::epoch::{Epochs, Guard};
use thermocline_base::io::AlignedBytes;
use thermocline_base::sync::{AtomicU16, AtomicU32, AtomicU64, Backoff, Mutex, MutexGuard, Ordering};
use thermocline_base::vm::{self, Reservation};
use thermocline_pool::policy::PolicyKind;

use crate::claim::Claim;
use crate::error::RegionError;
use crate::frames::{BATCH, Frames};
use crate::memory::{PageMemory, Poisoned, System};
use crate::mutation::{Rule, off};
use crate::net;
use crate::sides::{Changes, Entry, Part, Side, Sides};
use crate::statistics::{Counters, Statistics, add};
use crate::tender::{self, Tender};
use crate::word::{FRAMES_MAX, State, Word};

/// Options of a pager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Addresses, in bytes.
    pub bytes: usize,
    /// Pages that may be in memory at once. At least 2: one is kept for the net.
    pub frames: usize,
    /// Which page leaves.
    pub policy: PolicyKind,
}

/// A stretch of a region's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span {
    /// Its first byte, counted from the begin of the region.
    pub at: u64,
    /// Its length, at least 1.
    pub bytes: u32,
}

impl Span {
    /// The pages that it touches.
    pub(crate) fn pages(self) -> std::ops::RangeInclusive<usize> {
        let page = |at: u64| (at / PAGE_BYTES as u64) as usize;
        page(self.at)..=page(self.at + u64::from(self.bytes.max(1)) - 1)
    }

    fn contains(self, other: Self) -> bool {
        self.at <= other.at && other.at + u64::from(other.bytes) <= self.at + u64::from(self.bytes)
    }
}

/// The state that all threads of a pager share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) memory: Box<dyn PageMemory>,
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) words: Box<[AtomicU64]>,
    sums: Box<[AtomicU32]>,
    /// Of frames, since the policy looked last.
    uses: Box<[AtomicU16]>,
    most_uses: u16,
    pub(crate) frames: Mutex<Frames>,
    pub(crate) sides: Sides,
    /// Pages appended to each part (low half) and writes under way (high half).
    cursors: Box<[AtomicU32]>,
    changes: Mutex<Changes>,
    pub(crate) counters: Counters,
    pub(crate) tender: Tender,
}

/// Ends a change under the frames' lock of which waiters are told.
pub(crate) fn tell(mut frames: MutexGuard<'_, Frames>) {
    let wakers = if off(Rule::FreedFrameTells) { Vec::new() } else { frames.news() };
    drop(frames);
    wakers.into_iter().for_each(std::task::Waker::wake);
}

/// A region with the pager of its paged parts.
#[derive(Debug)]
pub struct Pager {
    inner: Arc<Inner>,
    net: Option<JoinHandle<()>>,
    tender: Option<JoinHandle<()>>,
}

/// The pages of the spans that were asked for are in memory, and stay while the pin lasts. The only way to their bytes.
#[derive(Debug)]
pub struct Proof<'p> {
    base: NonNull<u8>,
    spans: &'p [Span],
    pin: PhantomData<&'p Guard<'p>>,
}

impl<'p> Proof<'p> {
    /// # Safety
    /// The base is a region's, and no thread writes the pages of these spans or takes them away while the pin lasts.
    pub(crate) unsafe fn new(base: NonNull<u8>, spans: &'p [Span]) -> Self {
        Self { base, spans, pin: PhantomData }
    }

    /// The bytes of a stretch.
    ///
    /// # Panics
    /// When it is not within a span that was asked for.
    #[must_use]
    pub fn bytes(&self, span: Span) -> &'p [u8] {
        assert!(self.spans.iter().any(|asked| asked.contains(span)), "bytes are read that were asked for");
        // SAFETY: within what was asked for (asserted), so whoever made the proof has promised that; the lifetime is the pin's.
        unsafe { std::slice::from_raw_parts(self.base.add(span.at as usize).as_ptr(), span.bytes as usize) }
    }
}

impl Pager {
    /// A region whose parts are all free. On Linux, pages are the system's and a thread serves touches without asking.
    ///
    /// # Errors
    /// When there are no such addresses, or userfaultfd is refused: the text names the setting.
    ///
    /// # Panics
    /// With fewer than 2 frames, or more than 2^26.
    pub fn new(
        options: Options,
        epochs: Arc<Epochs>,
        backing: Arc<dyn Backing>,
    ) -> Result<Self, RegionError> {
        let reservation = Self::reserve(options)?;
        if cfg!(all(target_os = "linux", not(feature = "portable"))) && vm::page_size() == PAGE_BYTES {
            let memory = System::new(reservation).map_err(|error| RegionError::no_faults(&error))?;
            let inner = Arc::new(Inner::new(options, Box::new(memory), epochs, backing));
            let net = net::start(&inner).map_err(|error| RegionError::no_thread(&error))?;
            return Self { inner, net: Some(net), tender: None }.tended();
        }
        let inner = Arc::new(Inner::new(options, Box::new(Poisoned::new(reservation)), epochs, backing));
        Self { inner, net: None, tender: None }.tended()
    }

    /// The portable twin, which poisons what it takes away: for tests and models, on every system.
    ///
    /// # Errors
    /// As [`Pager::new`].
    ///
    /// # Panics
    /// As [`Pager::new`].
    pub fn poisoned(
        options: Options,
        epochs: Arc<Epochs>,
        backing: Arc<dyn Backing>,
    ) -> Result<Self, RegionError> {
        let memory = Poisoned::new(Self::reserve(options)?);
        let inner = Arc::new(Inner::new(options, Box::new(memory), epochs, backing));
        Self { inner, net: None, tender: None }.tended()
    }

    /// With the thread that tends waiters; under the model checker, a model runs [`tender::run`] on one of its own.
    fn tended(mut self) -> Result<Self, RegionError> {
        #[cfg(feature = "model")]
        if thermocline_base::sync::model::active() {
            return Ok(self);
        }
        let tender = tender::start(&self.inner).map_err(|error| RegionError::no_thread(&error))?;
        self.tender = Some(tender);
        Ok(self)
    }

    fn reserve(options: Options) -> Result<Reservation, RegionError> {
        assert!((2..=FRAMES_MAX).contains(&options.frames), "a pager has from 2 to 2^26 frames");
        let bytes = options.bytes;
        Reservation::new(bytes).map_err(|error| RegionError::Addresses { bytes, reason: error.to_string() })
    }

    #[cfg(test)]
    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Takes a free part for a side. A pinned one reads as zeros; a paged one has no page so far.
    ///
    /// # Errors
    /// When no part is free, the medium is full, or the system refuses.
    ///
    /// # Panics
    /// When the side is neither pinned nor paged.
    pub fn take(&self, side: Side) -> Result<Part, RegionError> {
        self.inner.take(side)
    }

    /// Gives a part back. What was in it is gone. Waits for its readers and writers: the caller is not pinned.
    ///
    /// # Errors
    /// When it is not in use in this generation.
    pub fn free(&self, part: Part) -> Result<(), RegionError> {
        self.inner.free(part)
    }

    /// The side of a part, and its present use.
    #[must_use]
    pub fn side(&self, number: u32) -> (Side, Part) {
        let entry = self.inner.sides.get(number as usize);
        (entry.side, Part { number, generation: entry.generation })
    }

    /// Where a pinned part lies: [`PART_BYTES`] of ordinary memory, its owner's alone.
    ///
    /// # Errors
    /// When it is not pinned in this generation.
    pub fn pinned(&self, part: Part) -> Result<NonNull<u8>, RegionError> {
        self.inner.sides.check(part, Side::Pinned)?;
        // SAFETY: a part of the reservation.
        Ok(unsafe { self.inner.memory.reservation().base().add(part.number as usize * PART_BYTES) })
    }

    /// Appends whole pages to a paged part; they are in the backing then, and not in memory. Returns the first page's place
    /// in the region. `None`: the part has no room for all of them.
    ///
    /// # Errors
    /// When the part is not paged in this generation, or the medium fails: the pages' room in the part is lost then.
    ///
    /// # Panics
    /// When it is not a whole number of pages, one at least.
    pub fn append(&self, part: Part, pages: AlignedBytes) -> Result<Option<u64>, RegionError> {
        self.inner.append(part, pages)
    }

    /// A waiter for pages. One for each reader that may have to wait.
    #[must_use]
    pub fn claim(&self) -> Claim<'_> {
        Claim::new(&self.inner)
    }

    /// Looks for all pages of these spans at once, without waiting for any. `None`: some are not there.
    ///
    /// # Errors
    /// When there is no such page.
    ///
    /// # Panics
    /// When the pin is of other epochs than the pager's, or a span leads out of the region.
    pub fn look<'p>(
        &'p self,
        guard: &'p Guard<'_>,
        spans: &'p [Span],
    ) -> Result<Option<Proof<'p>>, RegionError> {
        let inner = &*self.inner;
        assert!(std::ptr::eq(guard.epochs(), &raw const *inner.epochs), "a pin of the pager's epochs");
        let mut all_there = true;
        for page in spans.iter().flat_map(|span| span.pages()) {
            all_there &= inner.look(page)?;
        }
        // SAFETY: `look` found the pages in the region and present, and no thread writes them or takes them away
        // while the pin lasts (see the module).
        Ok(all_there.then(|| unsafe { Proof::new(inner.memory.reservation().base(), spans) }))
    }

    /// Asks for all pages of these spans at once. `None`: some are not there; let the pin end, wait for the claim, and ask again.
    ///
    /// # Errors
    /// As [`Pager::look`], or the set is larger than one waiter's share.
    ///
    /// # Panics
    /// As [`Pager::look`].
    pub fn ask<'p>(
        &'p self,
        guard: &'p Guard<'_>,
        spans: &'p [Span],
        claim: &mut Claim<'_>,
    ) -> Result<Option<Proof<'p>>, RegionError> {
        let proof = self.look(guard, spans)?;
        match proof {
            Some(_) => claim.end(),
            None => claim.want(spans)?,
        }
        Ok(proof)
    }

    /// Has pages read that will be asked for soon, as far as there are frames that no waiter needs. A hint: it may do
    /// nothing.
    ///
    /// # Panics
    /// When a span leads out of the region.
    pub fn prefetch(&self, spans: &[Span]) {
        self.inner.prefetch(spans);
    }

    /// Reads a page that was written past the frames, on this thread, into a buffer of a page's length: for those
    /// that read much once. The owner of its part does not free that meanwhile.
    ///
    /// # Errors
    /// When there is no such page, or it cannot be read or is not what was written. The buffer is lost then.
    ///
    /// # Panics
    /// When the place is not that of a page of the region.
    pub fn read_past(&self, at: u64, buffer: AlignedBytes) -> Result<AlignedBytes, RegionError> {
        let page = (at / PAGE_BYTES as u64) as usize;
        let name = self.inner.name(page);
        if self.inner.word(page).state() == State::None {
            return Err(RegionError::NoPage { page: name });
        }
        let mut buffer = Some(buffer);
        self.inner.read_apart(name, &mut buffer)?;
        Ok(buffer.expect("a read gives back the buffer that it was given"))
    }

    /// Frees so many frames ahead of need, as far as the epochs allow now: for a thread that has time.
    pub fn make_room(&self, frames: usize) {
        self.inner.make_room(frames);
    }

    /// Its counts so far, and what it holds.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.inner.statistics()
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        self.inner.tender.stop();
        if let Some(tender) = self.tender.take() {
            // A tender that panicked has said so.
            let _ = tender.join();
        }
        if let Some(net) = self.net.take() {
            self.inner.memory.faults().expect("a pager with a net has faults").stop();
            // A net that panicked has ended the process.
            let _ = net.join();
        }
    }
}

const _: () = assert!(Word::NONE.0 == 0);

/// Words of pages that were never written. The system gives memory for those only that are touched, so a region may be much
/// longer than what is in it.
#[cfg(not(feature = "model"))]
fn words(pages: usize) -> Box<[AtomicU64]> {
    // SAFETY: zeros are valid atomics.
    unsafe { Box::new_zeroed_slice(pages).assume_init() }
}

/// The same for their checksums.
#[cfg(not(feature = "model"))]
fn sums(pages: usize) -> Box<[AtomicU32]> {
    // SAFETY: zeros are valid atomics.
    unsafe { Box::new_zeroed_slice(pages).assume_init() }
}

#[cfg(feature = "model")]
fn words(pages: usize) -> Box<[AtomicU64]> {
    (0..pages).map(|_| AtomicU64::new(Word::NONE.0)).collect()
}

#[cfg(feature = "model")]
fn sums(pages: usize) -> Box<[AtomicU32]> {
    (0..pages).map(|_| AtomicU32::new(0)).collect()
}

impl Inner {
    fn new(
        options: Options,
        memory: Box<dyn PageMemory>,
        epochs: Arc<Epochs>,
        backing: Arc<dyn Backing>,
    ) -> Self {
        let parts = memory.reservation().bytes() / PART_BYTES;
        let frames = Frames::new(options.frames, options.policy);
        Self {
            memory,
            backing,
            epochs,
            words: words(parts * PART_PAGES),
            sums: sums(parts * PART_PAGES),
            uses: (0..options.frames).map(|_| AtomicU16::new(0)).collect(),
            most_uses: frames.most_uses(),
            frames: Mutex::new(frames),
            sides: Sides::new(parts),
            cursors: (0..parts).map(|_| AtomicU32::new(0)).collect(),
            changes: Mutex::default(),
            counters: Counters::default(),
            tender: Tender::default(),
        }
    }

    pub(crate) fn word(&self, page: usize) -> Word {
        Word(self.words[page].load(Ordering::SeqCst))
    }

    /// Changes a word from what it was; whether it was that.
    pub(crate) fn change(&self, page: usize, from: Word, to: Word) -> bool {
        self.words[page].compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn name(&self, page: usize) -> PageName {
        let part = page / PART_PAGES;
        let generation = self.sides.get(part).generation;
        PageName { part: part as u32, generation, page: (page % PART_PAGES) as u32 }
    }

    /// Is this what was written as that page?
    pub(crate) fn is_whole(&self, name: PageName, bytes: &[u8]) -> bool {
        let page = name.part as usize * PART_PAGES + name.page as usize;
        name.checksum(bytes) == self.sums[page].load(Ordering::Relaxed)
    }

    /// Is the page there, for whoever is pinned? Takes it back if it was leaving.
    pub(crate) fn look(&self, page: usize) -> Result<bool, RegionError> {
        loop {
            let word = self.word(page);
            let frame = word.frame();
            match word.state() {
                State::Present => {
                    let uses = &self.uses[frame as usize];
                    let count = uses.load(Ordering::Relaxed);
                    if count < self.most_uses {
                        uses.store(count + 1, Ordering::Relaxed);
                    }
                    return Ok(true);
                }
                State::Leaving if off(Rule::ReaderTakesBack) => return Ok(true),
                State::Leaving => {
                    if self.change(page, word, Word::present(frame)) {
                        add(&self.counters.taken_back, 1);
                        return Ok(true);
                    }
                }
                State::None => return Err(RegionError::NoPage { page: self.name(page) }),
                State::Absent | State::Reading | State::Filling | State::Taking => return Ok(false),
            }
        }
    }

    /// Marks, and drops what may go.
    pub(crate) fn make_room(&self, want: usize) {
        let mut frames = self.frames.lock();
        let spare = (frames.count() / 32).clamp(1, BATCH);
        if frames.free.len() < want {
            frames.mark((want, spare), &self.words, &self.uses, &self.epochs);
        }
        let taken = frames.settle(&self.words, &self.epochs);
        drop(frames);
        if taken.is_empty() {
            return;
        }
        self.drop_pages(&taken, Word::ABSENT);
        add(&self.counters.page_outs, taken.len() as u64);
    }

    /// Drops pages whose words say *taking*, on behalf of this thread, and wakes the waiters.
    fn drop_pages(&self, taken: &[(usize, u32)], then: Word) {
        let pages: Vec<usize> = taken.iter().map(|(page, _)| *page).collect();
        self.memory.take(&pages);
        let mut frames = self.frames.lock();
        for (page, frame) in taken {
            self.words[*page].store(then.0, Ordering::SeqCst);
            frames.release(*frame);
        }
        tell(frames);
    }

    fn take(&self, side: Side) -> Result<Part, RegionError> {
        assert!(matches!(side, Side::Pinned | Side::Paged), "a part is taken to be pinned or paged");
        let mut changes = self.changes.lock();
        let number = self.sides.free_for(side).ok_or(RegionError::NoPart { parts: self.sides.parts() })?;
        let mut entry = self.sides.get(number);
        let faults = |error: std::io::Error| RegionError::no_faults(&error);
        if side == Side::Paged {
            self.backing.prepare(number as u32).map_err(|source| RegionError::Full { source })?;
            changes.unpin(self.memory.reservation(), number, &mut entry);
            if !entry.registered {
                let registered = self.memory.register(number);
                // The room that was taken is of no use.
                registered
                    .inspect_err(|_| self.backing.discard(number as u32, entry.generation + 1))
                    .map_err(faults)?;
            }
            entry.registered = true;
            self.cursors[number].store(0, Ordering::SeqCst);
        } else {
            // Before its first touch, which would wait in the net for a page that is nowhere.
            if entry.registered {
                self.memory.unregister(number).map_err(faults)?;
            }
            entry.registered = false;
            changes.pin(self.memory.reservation(), number, &mut entry);
        }
        let generation = entry.generation + 1;
        self.sides.set(number, Entry { side, generation, ..entry });
        Ok(Part { number: number as u32, generation })
    }

    fn free(&self, part: Part) -> Result<(), RegionError> {
        let changes = self.changes.lock();
        let number = part.number as usize;
        if let Ok(entry) = self.sides.check(part, Side::Pinned) {
            changes.give_back(self.memory.reservation(), number);
            self.sides.set(number, Entry { side: Side::Free, ..entry });
            return Ok(());
        }
        let entry = self.sides.check(part, Side::Paged)?;
        self.sides.set(number, Entry { side: Side::Going, ..entry });
        drop(changes);
        let mut backoff = Backoff::new();
        while self.cursors[number].load(Ordering::SeqCst) >> 16 > 0 {
            backoff.wait();
        }
        self.drop_part(number);
        self.backing.discard(part.number, part.generation);
        // Still registered: a thread that touches it meets the net, which knows no such page.
        self.sides.set(number, Entry { side: Side::Free, ..entry });
        Ok(())
    }

    /// Takes all pages of a part that gets no new ones; whoever may still have a way to their bytes is waited for.
    fn drop_part(&self, part: usize) {
        let mut taken: Vec<(usize, u32)> = Vec::new();
        let mut backoff = Backoff::new();
        let written = self.cursors[part].load(Ordering::SeqCst) as usize & 0xFFFF;
        for page in part * PART_PAGES..part * PART_PAGES + written {
            loop {
                let mut frames = self.frames.lock();
                let word = self.word(page);
                let frame = word.frame();
                let done = match word.state() {
                    State::None => true,
                    State::Absent => self.change(page, word, Word::NONE),
                    State::Reading => {
                        // Its reader finds that it is not its reading any more.
                        let ended = self.change(page, word, Word::NONE);
                        if ended {
                            frames.release(frame);
                            tell(frames);
                            break;
                        }
                        false
                    }
                    State::Present | State::Leaving => {
                        let ended = self.change(page, word, Word::taking(frame));
                        if ended {
                            frames.forget_marks(&[frame]);
                            taken.push((page, frame));
                        }
                        ended
                    }
                    // For the length of a system call of another thread.
                    State::Filling | State::Taking => false,
                };
                drop(frames);
                if done {
                    break;
                }
                backoff.wait();
            }
        }
        let stamp = self.epochs.stamp();
        while !taken.is_empty() && self.epochs.safe() <= stamp {
            backoff.wait();
        }
        self.drop_pages(&taken, Word::NONE);
    }

    fn append(&self, part: Part, pages: AlignedBytes) -> Result<Option<u64>, RegionError> {
        let count = pages.len() / PAGE_BYTES;
        assert!(count > 0 && pages.len().is_multiple_of(PAGE_BYTES), "a run consists of whole pages");
        let number = part.number as usize;
        let Some(first) = self.sides.reserve(&self.cursors[number], part, count)? else { return Ok(None) };
        // Counted first: the owner that drops the part has said so before it looks at the count.
        let result =
            self.sides.check(part, Side::Paged).map(drop).and_then(|()| self.write(part, first, pages));
        self.cursors[number].fetch_sub(1 << 16, Ordering::SeqCst);
        result.map(|()| Some(number as u64 * PART_BYTES as u64 + (first * PAGE_BYTES) as u64))
    }

    fn write(&self, part: Part, first: usize, pages: AlignedBytes) -> Result<(), RegionError> {
        let name = |page: usize| PageName {
            part: part.number,
            generation: part.generation,
            page: (first + page) as u32,
        };
        let (bytes, start) = (pages.len(), part.number as usize * PART_PAGES + first);
        for (at, page) in pages.chunks(PAGE_BYTES).enumerate() {
            self.sums[start + at].store(name(at).checksum(page), Ordering::Relaxed);
        }
        let outcome = self.backing.write_run(name(0), pages).wait();
        outcome.result.map_err(|source| RegionError::Unwritten { page: name(0), source })?;
        add(&self.counters.write_bytes, bytes as u64);
        for page in start..start + bytes / PAGE_BYTES {
            self.words[page].store(Word::ABSENT.0, Ordering::SeqCst);
        }
        Ok(())
    }

    fn statistics(&self) -> Statistics {
        let frames = self.frames.lock();
        let mut all = Statistics {
            pinned_bytes: (self.sides.count(Side::Pinned) * PART_BYTES) as u64,
            paged_bytes: (self.sides.count(Side::Paged) * PART_BYTES) as u64,
            resident_bytes: ((frames.count() - frames.free.len()) * PAGE_BYTES) as u64,
            locked_bytes: (self.sides.locked() * PART_BYTES) as u64,
            table_bytes: (self.sides.ever_used() * PART_PAGES * 12 + frames.bytes() + self.sides.parts() * 12)
                as u64,
            ..Statistics::default()
        };
        self.counters.fill(&mut all);
        all
    }
}
