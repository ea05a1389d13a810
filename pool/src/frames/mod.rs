//! The page pool: frames in DRAM over page devices, within one budget.
//!
//! ```text
//!               try_pin / read_optimistic                pin().await
//!                        │ hit, no lock                       │ miss
//!   ┌────────────────────▼─────────────────────┐    ┌─────────▼────────────┐      ┌──────────┐
//!   │ map: page → frame, pins, version         │◄───┤ reads under way      │◄────►│ devices  │
//!   │ frames: memory, given back behind limit  │    ├──────────────────────┤      │ (files)  │
//!   └────────────────────▲─────────────────────┘    │ writes under way     │◄────►│          │
//!                        │ victim                   └─────────▲────────────┘      └──────────┘
//!                        └──────────── policy ────────────────┘ changed pages first
//! ```
//!
//! Ways to a page, cheapest first:
//!
//! | call | waits | for |
//! |---|---|---|
//! | [`PagePool::read_optimistic`] | never | a few values out of a page: no atomic writes, but the read may fail and be repeated |
//! | [`PagePool::try_pin`] | never | plain bytes, as long as the guard lives |
//! | [`PagePool::pin`] | for the device, for a frame | the same, whether it is in memory or not |
//! | [`PagePool::pin_if_free`] | for the device | the same; without a frame its user reads past the pool |
//! | [`PagePool::pin_mut`], [`PagePool::create`] | for the device, for other pins | a changed or new page |
//!
//! Rules, each with the rule of `base::mutation` that a test switches off to see that it would be missed:
//! - A page is verified before a reader sees it: checksum, place, and the version that the caller expects.
//! - A pinned page stays in its frame and is not changed (`PinnedPageStays`, `PinComparesPage`).
//! - An optimistic read has read one page, or says that it has not (`OptimisticRecheck`).
//! - One read for all waiters of a page. It goes on whoever waits; a dropped future leaves no pin and no frame
//!   (`DroppedPinIsGivenBack`).
//! - No waiter sleeps beside a frame that has become free (`LastUnpinNotifies`).
//! - A changed page leaves only after it was written; it is not read from the device before; no two writes of a page are
//!   under way together (`OneWriteAPage`), and a change during a write is written later (`ChangeDuringWriteStays`).
//! - After [`PagePool::discard`] a page number may be used again: nothing of its former life is served, not by a read that
//!   began before (`DiscardDetachesReads`), and no former write lands on it (`DiscardWaitsForWrites`).
//! - A device that does not answer holds the futures that need its answer, the frames of its reads, and nothing else.
//!
//! Memory: the budget bounds the frames. Beside it, and counted in [`PoolStats`]: the map (48 to 96 bytes a frame, 1.2 to
//! 2.4 % with pages of 4 KiB, by how close the budget comes to the largest one or to a half, a quarter … of it), about 50
//! bytes a frame for what the pool and the policy know, and a buffer for each read or write that is under way. All of it
//! follows the budget. Shrinking drops the coldest pages, wherever they are, and moves the others together; it takes effect
//! at once but for pages that are pinned, changed or being read: these follow.
//!
//! Limits: one page size a pool; 2^28 frames; 65,533 devices; a million pins of one page.

mod guard;
mod map;
mod memory;
mod read;
mod resize;
mod shared;
mod stats;
mod write;

#[cfg(all(test, feature = "model"))]
mod model_tests;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use thermocline_base::io::AlignedBytes;

pub use guard::{PageGuard, WriteGuard};
pub use memory::OptimisticPage;
pub use stats::{DeviceStats, PoolStats};

use crate::device::{FIRST_PAGE, PageDevice, ReadReason, Wanted};
use crate::error::{PageReason, PoolError};
use crate::mutation::{self, Rule};
use crate::page::{self, MAX_PAGE_NUMBER, PageError, PageSize};
use crate::policy::{Policy, PolicyKind};
use crate::space::EXTENT_PAGES;
use guard::Target;
use read::ReadFlight;
use shared::{Begin, Shared, Ticket};

/// A device of a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(u16);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A page of a device of a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(u64);

impl PageId {
    /// Page `number` of a device.
    ///
    /// # Panics
    /// When the number has more than 48 bits, or is the device's header.
    #[inline]
    #[must_use]
    pub fn new(device: DeviceId, number: u64) -> Self {
        assert!((FIRST_PAGE..=MAX_PAGE_NUMBER).contains(&number), "{number} is no page number");
        Self(u64::from(device.0) << 48 | number)
    }

    /// Its device.
    #[must_use]
    pub const fn device(self) -> DeviceId {
        DeviceId((self.0 >> 48) as u16)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & MAX_PAGE_NUMBER
    }

    /// The page that many pages behind it.
    fn plus(self, pages: u64) -> Self {
        Self(self.0 + pages)
    }

    /// Both in one number, which is neither 0 nor the largest one.
    #[inline(always)]
    const fn packed(self) -> u64 {
        self.0
    }

    const fn of_packed(packed: u64) -> Self {
        Self(packed)
    }
}

impl fmt::Debug for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageId({}:{})", self.device(), self.number())
    }
}

/// The parts of a pool.
#[derive(Debug)]
pub struct PoolOptions {
    page_size: PageSize,
    budget_bytes: u64,
    budget_bytes_max: u64,
    policy: Box<dyn Policy>,
}

impl PoolOptions {
    /// A pool of so many bytes, with pages of 4 KiB and the default policy.
    #[must_use]
    pub fn new(budget_bytes: u64) -> Self {
        Self {
            page_size: PageSize::default(),
            budget_bytes,
            budget_bytes_max: budget_bytes,
            policy: PolicyKind::default().build(),
        }
    }

    /// Length of the pages, and so of the frames.
    #[must_use]
    pub fn page_size(mut self, page_size: PageSize) -> Self {
        self.page_size = page_size;
        self
    }

    /// The largest budget that [`PagePool::set_budget`] may ever give it: address space is reserved for it. Never below
    /// the first budget.
    #[must_use]
    pub fn budget_max(mut self, bytes: u64) -> Self {
        self.budget_bytes_max = bytes;
        self
    }

    /// Which pages leave.
    #[must_use]
    pub fn policy(mut self, policy: Box<dyn Policy>) -> Self {
        self.policy = policy;
        self
    }
}

/// Frames over devices. Clones are the same pool. Guards borrow it.
///
/// Changed pages that were not flushed are lost when the last clone is dropped.
#[derive(Clone)]
pub struct PagePool {
    shared: Arc<Shared>,
}

impl fmt::Debug for PagePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PagePool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl PagePool {
    /// An empty pool.
    ///
    /// # Errors
    /// When there is no address space for the largest budget.
    pub fn new(options: PoolOptions) -> Result<Self, PoolError> {
        let PoolOptions { page_size, budget_bytes, budget_bytes_max, policy } = options;
        let frames = budget_bytes_max.max(budget_bytes) / page_size.bytes() as u64;
        let shared = Shared::new(page_size, frames.max(1), policy)?;
        shared.resize(budget_bytes);
        Ok(Self { shared })
    }

    /// Length of its pages.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        self.shared.page_size
    }

    /// Puts a device under the pool.
    ///
    /// # Errors
    /// When its pages have another length than the frames.
    pub fn add_device(&self, device: Arc<PageDevice>) -> Result<DeviceId, PoolError> {
        let (pool, device_size) = (self.shared.page_size, device.page_size());
        if pool != device_size {
            return Err(PoolError::OtherPageSize { pool, device: device_size });
        }
        Ok(self.shared.with(|core| core.add_device(device)))
    }

    /// Takes a device away. Its pages are dropped, changed ones too (flush first); ends when nothing of it is under way.
    /// No user may use its pages meanwhile or later; its id may be given to another device.
    pub async fn remove_device(&self, device: DeviceId) {
        let (first, last) = (PageId::new(device, FIRST_PAGE).0, u64::from(device.0) << 48 | MAX_PAGE_NUMBER);
        self.shared.with(|core| self.shared.forget_pages(core, first, last));
        self.written(first, last).await;
        self.shared.with(|core| core.remove_device(device));
    }

    /// Reads from a page that is in memory, without pinning it: `None` if it is not there, or changed meanwhile (then
    /// [`Self::try_pin`] or [`Self::pin`] decide). `read` may see torn bytes or another page; its result counts only if it
    /// is returned, and until then it must not act on what it reads, nor loop because of it.
    #[inline(always)]
    pub fn read_optimistic<T>(&self, page: PageId, read: impl FnOnce(&OptimisticPage<'_>) -> T) -> Option<T> {
        let shared = &*self.shared;
        let value = shared
            .map
            .read(page.packed(), shared.most_uses, |frame| read(&shared.memory.optimistic(frame)))?;
        shared.count_optimistic();
        Some(value)
    }

    /// Pins a page that is in memory. `None` if it is not, or if a writer is changing it.
    #[inline(always)]
    #[must_use]
    pub fn try_pin(&self, page: PageId) -> Option<PageGuard<'_>> {
        self.shared.try_pin(page.packed())
    }

    /// Asks the processor for the page's entry in the map. With some tens of nanoseconds of other work before the page is
    /// read or pinned, its first cache miss is over then.
    #[inline(always)]
    pub fn prefetch(&self, page: PageId) {
        self.shared.map.prefetch(page.packed());
    }

    /// Asks the processor for the bytes at place `at` of the page's payload, if the page is in memory. Waits for the entry
    /// (see [`Self::prefetch`]), not for the bytes.
    #[inline(always)]
    pub fn prefetch_bytes(&self, page: PageId, at: usize) {
        if let Some(frame) = self.shared.map.peek(page.packed()) {
            self.shared.memory.prefetch(frame, at);
        }
    }

    /// Pins a page, in `version` unless that is `None`; it is read if it is not in memory. Many may be waited for at a
    /// time; dropping the future is fine at any point.
    ///
    /// # Errors
    /// When the device fails, gives another page than this one (in this version), or no frame can ever be had.
    pub async fn pin(&self, page: PageId, version: Option<u64>) -> Result<PageGuard<'_>, PoolError> {
        let guard = self.pin_checked(page, version, true).await?;
        Ok(guard.expect("who waits for a frame gets one or an error"))
    }

    /// As [`Self::pin`], for users that can do without a frame: `None` where `pin` would wait for a frame or for a
    /// writer, and where the budget holds no frame at all. So a user that keeps futures without polling them, and
    /// with them pins, holds no other one up. Still waits for the device.
    ///
    /// # Errors
    /// When the device fails, or gives another page than this one (in this version).
    pub async fn pin_if_free(
        &self,
        page: PageId,
        version: Option<u64>,
    ) -> Result<Option<PageGuard<'_>>, PoolError> {
        self.pin_checked(page, version, false).await
    }

    /// Pins a page in its version; `None` only if it would have to `wait` for a frame and shall not.
    async fn pin_checked(
        &self,
        page: PageId,
        version: Option<u64>,
        wait: bool,
    ) -> Result<Option<PageGuard<'_>>, PoolError> {
        let wanted = Wanted { version, ..Wanted::default() };
        let mut guard = match self.try_pin(page) {
            Some(guard) => guard,
            None => match self.pin_slowly(page, wanted, wait).await? {
                Some(guard) => guard,
                None => return Ok(None),
            },
        };
        let Some(expected) = version else { return Ok(Some(guard)) };
        if guard.version() != expected && self.drop_stale(page, &guard) {
            // What is in the frame may be older than what the device has by now: its user writes past the pool.
            drop(guard);
            // And a copy of it elsewhere is not asked: of this page, the device has the last word.
            let again = Wanted { again: true, ..wanted };
            let Some(anew) = self.pin_slowly(page, again, wait).await? else { return Ok(None) };
            guard = anew;
        }
        if guard.version() == expected {
            return Ok(Some(guard));
        }
        let error = PageError::Version { number: page.number(), expected, found: guard.version() };
        let path =
            self.shared.with(|core| core.device(page.device()).map(|device| Arc::clone(device.path())))?;
        Err(PoolError::Page { path, number: page.number(), reason: PageReason::Bytes(error) })
    }

    /// Drops a page that is not as its user expects it, unless it is newer than on the device.
    fn drop_stale(&self, page: PageId, guard: &PageGuard<'_>) -> bool {
        self.shared.with(|core| {
            let changed = core.dirty.contains_key(&page.packed()) || core.writes.contains_key(&page.packed());
            // Another reader may have dropped it and read it anew already.
            if !changed && self.shared.map.find(page.packed()) == Some(guard.slot()) {
                self.shared.drop_page(core, page.packed());
            }
            !changed
        })
    }

    async fn pin_slowly(
        &self,
        page: PageId,
        wanted: Wanted,
        wait: bool,
    ) -> Result<Option<PageGuard<'_>>, PoolError> {
        let mut ticket: Option<Ticket<'_>> = None;
        let mut failures_before = None;
        loop {
            let begun = match self.shared.begin(page, wanted) {
                Err(PoolError::NoFrames { .. }) if !wait => return Ok(None),
                begun => begun?,
            };
            match begun {
                Begin::Hit(guard) => return Ok(Some(guard)),
                Begin::Wait(wait) => {
                    ticket = None;
                    let of_other = wait.is_of_other(wanted);
                    match wait.await {
                        Ok(Some(guard)) => return Ok(Some(guard)),
                        Ok(None) => {}
                        Err(_) if of_other => {}
                        Err(error) => return Err(error),
                    }
                }
                Begin::Busy(..) if !wait => return Ok(None),
                Begin::Busy(failures, error) => {
                    let before = *failures_before.get_or_insert(failures);
                    if let Some(error) = error
                        && failures > before
                    {
                        return Err(PoolError::WriteBack(error));
                    }
                    match ticket.take() {
                        // Looks once more: what was busy may have become free before the ticket.
                        None => ticket = Some(Ticket::new(&self.shared)),
                        Some(ticket) => ticket.await,
                    }
                }
            }
        }
    }

    /// Pins a page alone, to change it; waits until it has no other pin.
    ///
    /// # Errors
    /// As [`Self::pin`].
    pub async fn pin_mut(&self, page: PageId, version: Option<u64>) -> Result<WriteGuard<'_>, PoolError> {
        let seal = self.shared.with(|core| core.device(page.device()).map(|device| device.seal()))?;
        let mut ticket: Option<Ticket<'_>> = None;
        loop {
            let guard = self.pin(page, version).await?;
            if self.shared.map.latch_own_pin(guard.slot()) {
                let (slot, frame) = guard.into_slot();
                let mut copy = AlignedBytes::zeroed(self.shared.page_size.bytes());
                // SAFETY: the latch is ours.
                copy.copy_from_slice(unsafe { self.shared.memory.bytes(frame) });
                return Ok(WriteGuard::new(&self.shared, page, Target::Resident(slot, frame), seal, copy));
            }
            drop(guard);
            match ticket.take() {
                None => ticket = Some(Ticket::new(&self.shared)),
                Some(ticket) => ticket.await,
            }
        }
    }

    /// Makes a new page without reading it; its payload is zero. Whatever the page held is dropped when it is published.
    ///
    /// # Errors
    /// When there is no such device, or no frame can ever be had.
    pub async fn create(&self, page: PageId) -> Result<WriteGuard<'_>, PoolError> {
        let seal = self.shared.with(|core| core.device(page.device()).map(|device| device.seal()))?;
        let mut ticket: Option<Ticket<'_>> = None;
        let mut failures_before = None;
        let frame = loop {
            let (frame, failures) =
                self.shared.with(|core| (self.shared.acquire_frame(core), core.all_write_failures()));
            if let Some(frame) = frame? {
                break frame;
            }
            let (failures, error) = failures;
            if let Some(error) = error
                && failures > *failures_before.get_or_insert(failures)
            {
                return Err(PoolError::WriteBack(error));
            }
            failures_before.get_or_insert(failures);
            match ticket.take() {
                None => ticket = Some(Ticket::new(&self.shared)),
                Some(ticket) => ticket.await,
            }
        };
        let copy = AlignedBytes::zeroed(self.shared.page_size.bytes());
        Ok(WriteGuard::new(&self.shared, page, Target::New(frame), seal, copy))
    }

    /// Begins to read pages that are not in memory, in operations of up to an extent, as far as frames can be had at
    /// once. Returns how many pages are being read because of it. Does not wait; the caller need not wait for them
    /// either. `version`: the one that all of them have to have, if that is known.
    ///
    /// # Errors
    /// When there is no such device, or the budget holds no frame.
    pub fn read_ahead(
        &self,
        device: DeviceId,
        pages: Range<u64>,
        version: Option<u64>,
    ) -> Result<u64, PoolError> {
        let wanted = Wanted { version, reason: ReadReason::Ahead, again: false };
        if pages.is_empty() {
            return Ok(0);
        }
        let (first, last) = (PageId::new(device, pages.start), PageId::new(device, pages.end - 1));
        self.shared.with(|core| {
            let file = Arc::clone(core.device(device)?);
            let mut begun = 0;
            let mut at = first.packed();
            while at <= last.packed() {
                let mut frames = Vec::new();
                let mut full = false;
                while at + frames.len() as u64 <= last.packed() && (frames.len() as u64) < EXTENT_PAGES {
                    let page = at + frames.len() as u64;
                    let there = self.shared.map.find(page).is_some() || core.reads.contains_key(&page);
                    if there || core.writes.contains_key(&page) {
                        break;
                    }
                    let Some(frame) = self.shared.acquire_frame(core)? else {
                        full = true;
                        break;
                    };
                    frames.push(frame);
                }
                let count = frames.len() as u64;
                if count > 0 {
                    let flight = ReadFlight::new(
                        Arc::clone(&self.shared),
                        Arc::clone(&file),
                        PageId::of_packed(at),
                        frames,
                        wanted,
                    );
                    core.reads.extend((0..count).map(|index| (at + index, (flight.clone(), index as usize))));
                    core.after.reads.push(flight);
                    core.counts.read_ahead += count;
                    begun += count;
                }
                if full {
                    break;
                }
                at += count.max(1);
            }
            Ok(begun)
        })
    }

    /// Writes the pages of a device that were changed before this call, and makes them durable.
    ///
    /// # Errors
    /// When a write or the sync fails. Pages whose write failed are still to be written; a failed sync is final (see
    /// [`PageDevice`]).
    pub async fn flush(&self, device: DeviceId) -> Result<(), PoolError> {
        let all = u64::from(device.0) << 48..=u64::from(device.0) << 48 | MAX_PAGE_NUMBER;
        let (file, mark, before) = self.shared.with(|core| {
            let file = Arc::clone(core.device(device)?);
            Ok::<_, PoolError>((file, core.changes, core.write_failures(device).0))
        })?;
        loop {
            let ticket = Ticket::new(&self.shared);
            let done = self.shared.with(|core| {
                if let (failures, Some(error)) = core.write_failures(device)
                    && failures > before
                {
                    return Err(PoolError::Io(error));
                }
                let old = |(page, changed): (&u64, &u64)| (*changed <= mark).then_some(*page);
                let due: Vec<u64> =
                    core.dirty.range(all.clone()).filter_map(old).take(FLUSH_AT_ONCE).collect();
                let under_way = core.writes.range(all.clone()).filter_map(old).count();
                for page in &due {
                    // It may have gone with the one before.
                    if under_way < FLUSH_AT_ONCE && core.dirty.contains_key(page) {
                        self.shared.start_write(core, *page);
                    }
                }
                Ok(due.is_empty() && under_way == 0)
            })?;
            if done {
                break;
            }
            ticket.await;
        }
        Ok(file.sync().await?)
    }

    /// Drops pages without writing them: their numbers may be used again. Done for readers when this returns; the future
    /// ends when no write of these pages is under way any more, and only then may another user write them.
    /// Guards of dropped pages go on showing what they showed.
    pub fn discard(&self, device: DeviceId, pages: Range<u64>) -> impl Future<Output = ()> + Send + '_ {
        let first = u64::from(device.0) << 48 | pages.start.min(MAX_PAGE_NUMBER);
        let count = pages.end.saturating_sub(pages.start);
        // More pages than frames: the frames are looked through instead, all at once, since pages change frames.
        let few_frames = count > 0
            && self.shared.with(|core| {
                let few = core.frames.len() as u64 <= count.min(FRAMES_AT_ONCE);
                if few {
                    self.shared.forget_pages(core, first, first + count - 1);
                }
                few
            });
        let mut at = if few_frames { count } else { 0 };
        while at < count {
            let until = count.min(at + DISCARD_AT_ONCE);
            self.shared
                .with(|core| (at..until).for_each(|index| self.shared.forget_page(core, first + index)));
            at = until;
        }
        async move {
            if count > 0 && mutation::on(Rule::DiscardWaitsForWrites) {
                self.written(first, first + count - 1).await;
            }
        }
    }

    /// Waits until no write of these pages is under way.
    async fn written(&self, first: u64, last: u64) {
        loop {
            let ticket = Ticket::new(&self.shared);
            if self.shared.with(|core| core.writes.range(first..=last).next().is_none()) {
                return;
            }
            ticket.await;
        }
    }

    /// Is the page in memory? Without a lock: the answer may be outdated, and now and then it is wrong.
    #[must_use]
    pub fn is_resident(&self, page: PageId) -> bool {
        self.shared.map.peek(page.packed()).is_some()
    }

    /// The budget.
    #[must_use]
    pub fn budget_bytes(&self) -> u64 {
        self.shared.with(|core| core.budget_bytes)
    }

    /// Changes the budget. More is there at once; less drops pages until it fits, but for those in use or to be written,
    /// which go as soon as they can. Returns by how many bytes the frames are still over. Never above the largest budget
    /// of the options.
    pub fn set_budget(&self, bytes: u64) -> u64 {
        self.shared.resize(bytes)
    }

    /// All memory of the pool that is in use: frames that hold a page, in huge pages as far as the budget consists of
    /// these, and what the pool takes beside them.
    #[must_use]
    pub fn memory_bytes_used(&self) -> u64 {
        self.shared.memory_bytes_used()
    }

    /// Counts since the start, and where the memory is.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        self.shared.stats()
    }

    /// The part of one device in them; zero if there is no such device.
    #[must_use]
    pub fn device_stats(&self, device: DeviceId) -> DeviceStats {
        self.shared.device_stats(device)
    }
}

/// Pages that are dropped under one hold of the lock.
const DISCARD_AT_ONCE: u64 = 256;
/// Frames that are looked through under one hold of the lock, instead.
const FRAMES_AT_ONCE: u64 = 16384;
/// Pages that a flush has under way.
const FLUSH_AT_ONCE: usize = 1024;

/// Checks a page that its user has read past the pool.
///
/// # Errors
/// What is wrong with it.
pub fn verify<'a>(
    device: &PageDevice,
    bytes: &'a [u8],
    number: u64,
    version: Option<u64>,
) -> Result<page::OpenPage<'a>, PoolError> {
    page::open(bytes, device.seal(), number, version).map_err(|error| PoolError::Page {
        path: Arc::clone(device.path()),
        number,
        reason: PageReason::Bytes(error),
    })
}
