//! Pages of runs in a file under a page pool: the pager `own`.
//!
//! ```text
//!   append ─► extents of the file, written past the frames          a run's pages, each once; copies go to a level, if there is one
//!   look ─► a frame, or nothing     bring ─► a frame, or a buffer, awaited      read_past ─► a buffer, awaited
//!   let_go ─► extents without a live page ─► tidy ─► frames and extents are free again
//! ```
//!
//! - A page is written once in a life of its number, before anything names it, past the frames; so frames are never to be written.
//! - The version of a page is the number of its run, and the seal of the file is drawn at each opening: what is read is this run's page,
//!   or an error.
//! - A number is used again when the run has gone to which it belonged, and a run goes with its last holder. Whoever waits for a page
//!   holds its run. A read-ahead may still be under way then: the pool detaches it ([`PagePool::discard`]).
//! - Runs go through the epochs, wherever these are looked at. So their pages are only listed then; [`PoolPages::tidy`] frees them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use thermocline_base::io::{AlignedBytes, Buffer, File};
use thermocline_base::multiplex::block_on;
use thermocline_base::sync::{AtomicU64, Mutex, Ordering};
use thermocline_pool::device::{PageDevice, ReadReason, Wanted};
use thermocline_pool::error::{PageReason, PoolError};
use thermocline_pool::frames::{self, DeviceId, PageGuard, PageId, PagePool, PoolOptions, PoolStats};
use thermocline_pool::page::{self, HEADER_BYTES, PageKind, PageSize};
use thermocline_pool::space::{EXTENT_PAGES, ExtentRun, Space};
use thermocline_pool::ssd::{Lent, SsdFile, SsdStats};

use super::error::PagedError;
use super::{Extent, PAGE_BYTES, copy_of};

/// The kind of pages of rows.
const ROWS: PageKind = PageKind(0x5001);
/// Extents by which the file grows, at least.
const SPARE_EXTENTS: u64 = 8;
/// Addresses that are reserved for frames, at least: the budget may be raised up to there.
const ADDRESSES_MIN: u64 = 4 << 30;

/// Which pages of the file runs have.
#[derive(Debug, Default)]
struct Extents {
    /// Pages that were allocated and are not taken yet.
    open: Vec<Range<u64>>,
    /// By extent: pages that runs have.
    live: HashMap<u64, u32>,
    /// Extents without a live page.
    dead: Vec<u64>,
}

impl Extents {
    /// Up to so many pages that follow each other, if any are left.
    fn take(&mut self, pages: u32) -> Option<Extent> {
        let open = self.open.last_mut()?;
        let first = open.start;
        let end = open.end.min(first + u64::from(pages));
        open.start = end;
        if open.is_empty() {
            self.open.pop();
        }
        let extent = Extent { first, pages: (end - first) as u32 };
        for (number, pages) in by_extent(extent) {
            *self.live.entry(number).or_default() += pages;
        }
        Some(extent)
    }

    fn let_go(&mut self, extent: Extent) {
        for (number, pages) in by_extent(extent) {
            let live = self.live.get_mut(&number).expect("an extent with pages is listed");
            *live = live.checked_sub(pages).expect("no more pages die than were taken");
            let begins = number * EXTENT_PAGES;
            let is_open =
                self.open.iter().any(|open| open.start < begins + EXTENT_PAGES && begins < open.end);
            if self.live[&number] == 0 && !is_open {
                self.live.remove(&number);
                self.dead.push(number);
            }
        }
    }
}

/// The extents of the file that pages are in, and how many are in each.
fn by_extent(pages: Extent) -> impl Iterator<Item = (u64, u32)> {
    let (first, end) = (pages.first, pages.first + u64::from(pages.pages));
    (first / EXTENT_PAGES..end.div_ceil(EXTENT_PAGES)).map(move |number| {
        let begins = number * EXTENT_PAGES;
        (number, (end.min(begins + EXTENT_PAGES) - first.max(begins)) as u32)
    })
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PoolPages {
    pool: PagePool,
    device: Arc<PageDevice>,
    id: DeviceId,
    space: Space,
    extents: Mutex<Extents>,
    budget: AtomicU64,
    write_bytes: AtomicU64,
    waits: AtomicU64,
}

impl PoolPages {
    /// Over a file that has nothing in it, with so many bytes of frames, and copies of pages on memory that is lent.
    ///
    /// # Errors
    /// There are no addresses for the frames; the file's.
    pub(crate) fn new(file: Arc<dyn File>, frame_bytes: u64, lent: Option<Lent>) -> Result<Self, PagedError> {
        let frames = |source| PagedError::NoFrames { source };
        let options = PoolOptions::new(frame_bytes).budget_max(frame_bytes.max(ADDRESSES_MIN));
        let pool = PagePool::new(options).map_err(frames)?;
        let mut device = PageDevice::scratch(file, PageSize::default());
        if let Some(lent) = lent {
            let level = SsdFile::lent(lent, device.page_size());
            device.attach(level.expect("options with less than some extents were refused"));
        }
        let device = Arc::new(device);
        let id = pool.add_device(Arc::clone(&device)).map_err(frames)?;
        let space =
            Space::new(Arc::clone(&device), SPARE_EXTENTS).map_err(|source| PagedError::NoFile { source })?;
        Ok(Self {
            pool,
            device,
            id,
            space,
            extents: Mutex::default(),
            budget: AtomicU64::new(frame_bytes),
            write_bytes: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        })
    }

    /// Writes as many of these pages as have room that follows each other, for the run of this number. May wait for the file system.
    ///
    /// # Errors
    /// The medium fails or has no room.
    pub(super) fn append(&self, pages: &[u8], run: u64) -> Result<Extent, PagedError> {
        let extent = self.take((pages.len() / PAGE_BYTES) as u32)?;
        let mut pages = copy_of(&pages[..extent.pages as usize * PAGE_BYTES]);
        for (number, page) in (extent.first..).zip(pages.chunks_exact_mut(PAGE_BYTES)) {
            page::seal(page, self.device.seal(), number, run, ROWS);
        }
        let outcome = self.device.write(extent.first, Buffer::from(pages)).wait();
        match outcome.result {
            Ok(bytes) => self.write_bytes.fetch_add(bytes as u64, Ordering::Relaxed),
            Err(error) => {
                self.let_go(extent);
                return Err(PagedError::unwritten(error));
            }
        };
        Ok(extent)
    }

    fn take(&self, pages: u32) -> Result<Extent, PagedError> {
        loop {
            if let Some(extent) = self.extents.lock().take(pages) {
                return Ok(extent);
            }
            let count = ExtentRun::extents_for(u64::from(pages));
            let run = self.space.allocate(count).map_err(PagedError::unwritten)?;
            self.extents.lock().open.push(run.first_page()..run.first_page() + run.pages());
        }
    }

    /// These pages have no run any more.
    pub(super) fn let_go(&self, extent: Extent) {
        self.extents.lock().let_go(extent);
    }

    /// Frees the extents that have no live page. May wait for the file system.
    pub(super) fn tidy(&self) {
        let mut dead = std::mem::take(&mut self.extents.lock().dead);
        if dead.is_empty() {
            return;
        }
        dead.sort_unstable();
        for of_run in dead.chunk_by(|one, next| one + 1 == *next) {
            let run = ExtentRun { first: of_run[0], count: of_run.len() as u64 };
            let pages = run.first_page()..run.first_page() + run.pages();
            // No page is ever written through the pool, so there is no write that this waits for.
            block_on(self.pool.discard(self.id, pages.clone()));
            self.device.discard(pages);
            self.space.free(run);
        }
        if let Err(error) = self.space.give_back() {
            tracing::warn!(%error, "free space of the paged side is not given back to the file system");
        }
    }

    /// A page of a run, if it is in memory.
    #[inline]
    pub(super) fn look(&self, page: u64, run: u64) -> Option<PageGuard<'_>> {
        self.pool.try_pin(PageId::new(self.id, page)).filter(|guard| guard.version() == run)
    }

    /// Waits for a page of a run, and lets `see` look at its payload: in a frame, which it may leave at once again, or where none is to be
    /// had, in a buffer of its own.
    ///
    /// # Errors
    /// It cannot be read, or is not what was written.
    pub(super) async fn bring<R>(
        &self,
        page: u64,
        run: u64,
        see: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, PagedError> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        match self.pool.pin_if_free(PageId::new(self.id, page), Some(run)).await {
            Ok(Some(guard)) => Ok(see(guard.payload())),
            Ok(None) | Err(PoolError::NoFrames { .. }) => {
                let bytes = self.read_past(page, run, AlignedBytes::zeroed(PAGE_BYTES)).await?;
                Ok(see(&bytes[HEADER_BYTES..]))
            }
            Err(source) => Err(PagedError::Lost { source }),
        }
    }

    /// Has pages of a run read ahead of need, as far as there are frames.
    pub(super) fn prefetch(&self, pages: Range<u64>, run: u64) {
        // It is a hint: whoever needs a page is told why it cannot be had.
        let _ = self.pool.read_ahead(self.id, pages, Some(run));
    }

    /// Reads pages of a run past the frames, as many as the buffer is long, and verifies each.
    ///
    /// # Errors
    /// One of them cannot be read, or is not what was written.
    pub(super) async fn read_past(
        &self,
        first: u64,
        run: u64,
        buffer: AlignedBytes,
    ) -> Result<AlignedBytes, PagedError> {
        let length = buffer.len();
        let outcome = self.device.read(first, buffer, Wanted::of(run, ReadReason::Scan)).await;
        let bytes = outcome.result.map_err(|error| self.lost(first, PageReason::Io(error)))?;
        if bytes < length {
            let whole = bytes / PAGE_BYTES;
            return Err(
                self.lost(first + whole as u64, PageReason::Short { bytes: bytes - whole * PAGE_BYTES })
            );
        }
        let buffer = outcome.buffer.into_aligned().expect("a read gives the buffer back that it was given");
        for (at, page) in buffer.chunks_exact(PAGE_BYTES).enumerate() {
            frames::verify(&self.device, page, first + at as u64, Some(run))
                .map_err(|source| PagedError::Lost { source })?;
        }
        Ok(buffer)
    }

    fn lost(&self, number: u64, reason: PageReason) -> PagedError {
        PagedError::Lost { source: PoolError::Page { path: Arc::clone(self.device.path()), number, reason } }
    }

    /// Changes the bytes of frames.
    pub(super) fn set_frame_bytes(&self, bytes: u64) {
        if self.budget.swap(bytes, Ordering::Relaxed) != bytes {
            self.pool.set_budget(bytes);
        }
    }

    /// Lets all pages leave memory that are not in use, for a test.
    pub(super) fn let_pages_go(&self) {
        self.pool.set_budget(0);
        self.pool.set_budget(self.budget.load(Ordering::Relaxed));
    }

    /// Bytes of memory that it takes, all frames counted whether they hold a page or not.
    pub(super) fn memory_bytes(&self) -> u64 {
        let stats = self.pool.stats();
        let frames = self.budget.load(Ordering::Relaxed).max(stats.used_bytes);
        let tables = {
            let extents = self.extents.lock();
            extents.live.capacity() * size_of::<(u64, u32)>() + extents.dead.capacity() * size_of::<u64>()
        };
        let level = self.device.ssd().map_or(0, |level| level.memory_bytes());
        frames + stats.buffer_bytes + stats.map_bytes + stats.bookkeeping_bytes + tables as u64 + level
    }

    pub(super) fn frame_bytes(&self) -> u64 {
        self.budget.load(Ordering::Relaxed)
    }

    /// Pages that runs have.
    pub(super) fn pages(&self) -> u64 {
        self.extents.lock().live.values().map(|pages| u64::from(*pages)).sum()
    }

    /// The level below, if there is one.
    pub(super) fn level(&self) -> Option<SsdStats> {
        self.device.ssd().map(|level| level.stats())
    }

    pub(super) fn stats(&self) -> PoolStats {
        self.pool.stats()
    }

    pub(super) fn write_bytes(&self) -> u64 {
        self.write_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
