//! The paged side of a database: runs of rows that lie on pages of a file, of which as many are in memory as there are frames for.
//!
//! ```text
//!   block ──► run ──► extents ──► pages of a file ──► frames of a page pool          (pager own)
//!             │                └► pages of a region, mapped ──► the system's memory  (pager os)
//!             first position of each page
//! ```
//!
//! A run is written once and read until its block goes (Stoica and Ailamaki, DaMoN 2013, §4: cold tuples on pages of their own).
//! Whoever reads a row copies it out of its page, under a pin; no caller keeps a way into a page:
//!
//! | who | if a page is not there |
//! |---|---|
//! | a transaction's read, scan or write | is told what is [missing](Absent), awaits it without holding anything, and has a [copy](hand) of the row then |
//! | everybody else (checkpoints, walks for definitions) | reads it past the frames, on its own thread |
//!
//! Rules:
//! - Whoever waits for a page holds its run; so its number names that page for as long as anybody asks for it.
//! - Runs go with their blocks, through the epochs; their pages are freed later, when a thread that has no pin comes by
//!   ([`Paged::tidy`]).
//! - Nothing here is durable: the rows are those of images and log, from which an opening fills new pages.

mod error;
mod hand;
mod os;
mod pool;
pub(crate) mod rows;

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::io::AlignedBytes;
use thermocline_base::multiplex::block_on;
use thermocline_base::sync::{AtomicU64, Ordering};
use thermocline_pool::page::{DEFAULT_PAGE_BYTES, HEADER_BYTES};
use thermocline_pool::ssd::SsdStats;

pub use error::PagedError;
pub(crate) use hand::{Hand, HeldRow};
pub(crate) use os::OsPages;
pub(crate) use pool::PoolPages;
use rows::{PAYLOAD_BYTES, PageIndex, Pages};

/// Length of a page.
pub(crate) const PAGE_BYTES: usize = DEFAULT_PAGE_BYTES as usize;

/// Pages that follow each other on their medium.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// The number of the first one.
    first: u64,
    pages: u32,
}

/// Where pages are, and who decides which of them are in memory.
#[derive(Debug)]
pub(crate) enum Medium {
    /// A file under a page pool.
    Pool(PoolPages),
    /// A mapped file, left to the system.
    Os(OsPages),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Paged {
    medium: Medium,
    rows: AtomicU64,
    row_bytes: AtomicU64,
    past_reads: AtomicU64,
    /// Readers that wait for a page.
    awaited: AtomicU64,
    /// What has gone over so far, and what that took.
    pub(crate) over: OverCounters,
}

/// Rows that have gone over since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct OverCounters {
    pub(crate) rows: AtomicU64,
    pub(crate) row_bytes: AtomicU64,
    /// Processor time of the threads that let them go.
    pub(crate) cpu_ns: AtomicU64,
}

/// What is on the paged side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PagedUse {
    pub(crate) pager: &'static str,
    /// Rows of runs, dead ones among them, and their bytes.
    pub(crate) rows: u64,
    pub(crate) row_bytes: u64,
    /// Pages of runs.
    pub(crate) pages: u64,
    /// Pages that were read past the frames.
    pub(crate) past_reads: u64,
    /// Bytes of pages in memory.
    pub(crate) resident_bytes: u64,
    pub(crate) page_ins: u64,
    pub(crate) page_outs: u64,
    pub(crate) write_bytes: u64,
    /// Pages that were waited for, and reads that waiters began.
    pub(crate) waits: u64,
    pub(crate) reads_of_waits: u64,
    /// Of the pager `os`: faults of the process for which the system read.
    pub(crate) major_faults: u64,
}

impl Paged {
    /// On this medium.
    pub(crate) fn new(medium: Medium) -> Self {
        Self {
            medium,
            rows: AtomicU64::new(0),
            row_bytes: AtomicU64::new(0),
            past_reads: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            over: OverCounters::default(),
        }
    }

    /// Writes the pages of a run. The caller has no pin.
    ///
    /// # Errors
    /// The medium is full or fails; nothing is kept then.
    pub(crate) fn append(self: &Arc<Self>, pages: Pages) -> Result<Run, PagedError> {
        self.tidy();
        let mut run = Run {
            paged: Arc::clone(self),
            number: thermocline_base::ids::fresh_number(),
            extents: Vec::new(),
            index: pages.index,
            rows: pages.rows,
            row_bytes: pages.row_bytes,
        };
        self.rows.fetch_add(u64::from(run.rows), Ordering::Relaxed);
        self.row_bytes.fetch_add(run.row_bytes, Ordering::Relaxed);
        let mut rest = &pages.bytes[..run.page_bytes()];
        while !rest.is_empty() {
            // An error drops the run with what it has by then.
            let extent = match &self.medium {
                Medium::Pool(pool) => pool.append(rest, run.number)?,
                Medium::Os(os) => os.append(rest)?,
            };
            run.extents.push(extent);
            rest = &rest[extent.pages as usize * PAGE_BYTES..];
        }
        run.extents.shrink_to_fit();
        Ok(run)
    }

    fn let_go(&self, extent: Extent) {
        match &self.medium {
            Medium::Pool(pool) => pool.let_go(extent),
            Medium::Os(os) => os.let_go(extent),
        }
    }

    /// Frees pages that have no run any more. May wait for the file system and for the epochs: the caller is not pinned.
    pub(crate) fn tidy(&self) {
        match &self.medium {
            Medium::Pool(pool) => pool.tidy(),
            Medium::Os(os) => os.tidy(),
        }
    }

    /// Counts a reader that waits for pages, until what this returns is dropped.
    pub(crate) fn note_reader(&self) -> impl Drop {
        struct Reader<'p>(&'p AtomicU64);
        impl Drop for Reader<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.awaited.fetch_add(1, Ordering::Relaxed);
        Reader(&self.awaited)
    }

    /// True while a reader waits for a page.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) != 0
    }

    /// Lets the pages that are in memory leave it, as far as none is being read, for a test.
    pub(crate) fn let_pages_go(&self) {
        if let Medium::Pool(pool) = &self.medium {
            pool.let_pages_go();
        }
    }

    /// Bytes of the pages that are in memory, at most.
    pub(crate) fn frame_bytes(&self) -> u64 {
        match &self.medium {
            Medium::Pool(pool) => pool.frame_bytes(),
            Medium::Os(os) => os.frame_bytes(),
        }
    }

    /// Changes that, where it can be changed.
    pub(crate) fn set_frame_bytes(&self, bytes: u64) {
        if let Medium::Pool(pool) = &self.medium {
            pool.set_frame_bytes(bytes);
        }
    }

    /// Bytes of memory that it takes: all frames, and the tables beside them.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match &self.medium {
            Medium::Pool(pool) => pool.memory_bytes(),
            Medium::Os(os) => os.memory_bytes(),
        }
    }

    /// The level below its frames, if there is one.
    pub(crate) fn level(&self) -> Option<SsdStats> {
        match &self.medium {
            Medium::Pool(pool) => pool.level(),
            Medium::Os(_) => None,
        }
    }

    /// What is there now.
    pub(crate) fn usage(&self) -> PagedUse {
        let common = PagedUse {
            rows: self.rows.load(Ordering::Relaxed),
            row_bytes: self.row_bytes.load(Ordering::Relaxed),
            past_reads: self.past_reads.load(Ordering::Relaxed),
            ..PagedUse::default()
        };
        match &self.medium {
            Medium::Pool(pool) => {
                let stats = pool.stats();
                PagedUse {
                    pager: "own",
                    pages: pool.pages(),
                    resident_bytes: stats.used_bytes,
                    page_ins: stats.misses + stats.read_ahead,
                    page_outs: stats.evictions,
                    write_bytes: pool.write_bytes(),
                    waits: pool.waits(),
                    reads_of_waits: stats.misses,
                    ..common
                }
            }
            Medium::Os(os) => {
                let stats = os.stats();
                PagedUse {
                    pager: "os",
                    pages: os.pages(),
                    resident_bytes: stats.resident_bytes,
                    page_ins: stats.major_faults,
                    write_bytes: stats.write_bytes,
                    major_faults: stats.major_faults,
                    ..common
                }
            }
        }
    }
}

/// Whole pages in a buffer of their own.
fn copy_of(pages: &[u8]) -> AlignedBytes {
    let mut copy = AlignedBytes::zeroed(pages.len());
    copy.copy_from_slice(pages);
    copy
}

/// A row whose pages a reader lacks. It holds the row's run, so that the pages stay what they are.
#[derive(Debug)]
pub(crate) struct Absent {
    run: Arc<Run>,
    position: u16,
}

impl Absent {
    /// Waits until the row is read: its page is in a frame by then, if there is one to be had, and may leave it at once again. The caller
    /// has no pin.
    ///
    /// # Errors
    /// A page cannot be read, or is not what was written.
    pub(crate) async fn bring(&self) -> Result<HeldRow, PagedError> {
        let (run, position) = (&*self.run, self.position);
        let _reader = run.paged.note_reader();
        let pages = run.index.pages_of(position);
        let mut row = Vec::new();
        let found = match &run.paged.medium {
            Medium::Pool(pool) if pages.len() == 1 => {
                let see = |payload: &[u8]| rows::row_into(1, position, |_| payload, &mut row);
                pool.bring(run.page(pages.start), run.number, see).await?
            }
            // A long row would take many frames.
            Medium::Pool(_) | Medium::Os(_) => {
                let bytes = run.read_apart(pages.clone()).await?;
                rows::row_into(pages.len(), position, |page| payload_of(&bytes, page), &mut row)
            }
        };
        assert!(found, "slots name a block for rows that it has");
        Ok(HeldRow { run: run.number, position, bytes: row.into() })
    }
}

/// The payload of one of these pages.
fn payload_of(pages: &[u8], page: usize) -> &[u8] {
    &pages[page * PAGE_BYTES + HEADER_BYTES..][..PAYLOAD_BYTES]
}

/// The last page that a thread has read past the frames.
struct LastPage {
    run: u64,
    page: usize,
    bytes: AlignedBytes,
}

thread_local! {
    static LAST: Cell<Option<LastPage>> = const { Cell::new(None) };
}

/// The rows of a block on the paged side.
#[derive(Debug)]
pub(crate) struct Run {
    paged: Arc<Paged>,
    number: u64,
    extents: Vec<Extent>,
    index: PageIndex,
    rows: u32,
    row_bytes: u64,
}

impl Run {
    /// Its number, which no other run has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Rows that were written.
    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    /// Their bytes.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// Bytes of its pages.
    pub(crate) fn page_bytes(&self) -> usize {
        self.index.len() * PAGE_BYTES
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.index.bytes() + self.extents.capacity() * size_of::<Extent>()
    }

    /// The number of a page of the run on its medium.
    fn page(&self, page: usize) -> u64 {
        let mut before = 0;
        for extent in &self.extents {
            let pages = extent.pages as usize;
            if page < before + pages {
                return extent.first + (page - before) as u64;
            }
            before += pages;
        }
        unreachable!("page {page} of a run of {}", self.index.len())
    }

    /// The pages of the row at a position, counted within the run.
    pub(crate) fn pages_of(&self, position: u16) -> Range<usize> {
        self.index.pages_of(position)
    }

    /// Has pages read ahead of need, as far as the run has them. A hint.
    pub(crate) fn prefetch(&self, pages: Range<usize>) {
        let pages = pages.start..pages.end.min(self.index.len());
        match &self.paged.medium {
            Medium::Pool(pool) => {
                let mut at = pages.start;
                while at < pages.end {
                    let (first, mut count) = (self.page(at), 1);
                    while at + count < pages.end && self.page(at + count) == first + count as u64 {
                        count += 1;
                    }
                    pool.prefetch(first..first + count as u64, self.number);
                    at += count;
                }
            }
            Medium::Os(os) => os.prefetch(pages.map(|page| self.page(page))),
        }
    }

    /// Appends the row at a position, if it is in the reader's hand, or its pages are there.
    ///
    /// # Errors
    /// They are not, or one of them is lost: whoever waits for it is told.
    ///
    /// # Panics
    /// When the run has no row at the position.
    #[inline]
    pub(crate) fn row_if_there(
        self: &Arc<Self>,
        position: u16,
        hand: &Hand,
        guard: &Guard<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Box<Absent>> {
        if let Some(row) = hand.row(self.number, position) {
            out.extend_from_slice(row);
            return Ok(());
        }
        self.copy_if_there(position, guard, out)
            .ok_or_else(|| Box::new(Absent { run: Arc::clone(self), position }))
    }

    #[inline]
    fn copy_if_there(&self, position: u16, guard: &Guard<'_>, out: &mut Vec<u8>) -> Option<()> {
        let pages = self.index.pages_of(position);
        let count = pages.len();
        let found = match &self.paged.medium {
            Medium::Pool(pool) if count == 1 => {
                let page = pool.look(self.page(pages.start), self.number)?;
                rows::row_into(1, position, |_| page.payload(), out)
            }
            Medium::Pool(pool) => {
                let held: Option<Vec<_>> =
                    pages.map(|page| pool.look(self.page(page), self.number)).collect();
                let held = held?;
                rows::row_into(count, position, |page| held[page].payload(), out)
            }
            Medium::Os(os) => {
                let spans: Vec<_> = pages.map(|page| os::span_of(self.page(page))).collect();
                let proof = os.look(guard, &spans)?;
                rows::row_into(count, position, |page| &proof.bytes(spans[page])[HEADER_BYTES..], out)
            }
        };
        assert!(found, "slots name a block for rows that it has");
        Some(())
    }

    /// Appends the row at a position, reading its pages past the frames where they are not there.
    ///
    /// # Errors
    /// One of them cannot be read, or is not what was written.
    ///
    /// # Panics
    /// When the run has no row at the position.
    pub(crate) fn row_now(
        &self,
        position: u16,
        guard: &Guard<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), PagedError> {
        if self.copy_if_there(position, guard, out).is_some() {
            return Ok(());
        }
        let pages = self.index.pages_of(position);
        let is_last =
            |last: &LastPage| pages.len() == 1 && (last.run, last.page) == (self.number, pages.start);
        let bytes = match LAST.take() {
            Some(last) if is_last(&last) => last.bytes,
            _ => self.read_past(pages.clone())?,
        };
        let found = rows::row_into(pages.len(), position, |page| payload_of(&bytes, page), out);
        assert!(found, "slots name a block for rows that it has");
        if pages.len() == 1 {
            LAST.set(Some(LastPage { run: self.number, page: pages.start, bytes }));
        }
        Ok(())
    }

    /// Reads pages past the frames, on this thread.
    fn read_past(&self, pages: Range<usize>) -> Result<AlignedBytes, PagedError> {
        block_on(self.read_apart(pages))
    }

    /// Reads pages past the frames, an extent at a time.
    async fn read_apart(&self, pages: Range<usize>) -> Result<AlignedBytes, PagedError> {
        self.paged.past_reads.fetch_add(pages.len() as u64, Ordering::Relaxed);
        let mut all = AlignedBytes::zeroed(pages.len() * PAGE_BYTES);
        let (mut before, mut done) = (0, 0);
        for extent in &self.extents {
            let behind = before + extent.pages as usize;
            let (from, to) = (pages.start.max(before), pages.end.min(behind));
            if from < to {
                let (first, length) = (extent.first + (from - before) as u64, (to - from) * PAGE_BYTES);
                let buffer = AlignedBytes::zeroed(length);
                let read = match &self.paged.medium {
                    Medium::Pool(pool) => pool.read_past(first, self.number, buffer).await?,
                    Medium::Os(os) => os.read_past(first, buffer)?,
                };
                if length == pages.len() * PAGE_BYTES {
                    return Ok(read);
                }
                all[done..done + length].copy_from_slice(&read[..length]);
                done += length;
            }
            before = behind;
        }
        Ok(all)
    }

    /// Reads all of its pages past the frames, on this thread, which holds no pin and no lock.
    ///
    /// # Errors
    /// One of them cannot be read, or is not what was written.
    pub(crate) fn load(self: &Arc<Self>) -> Result<LoadedRun, PagedError> {
        let bytes = self.read_past(0..self.index.len())?;
        Ok(LoadedRun { run: Arc::clone(self), bytes })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.paged.rows.fetch_sub(u64::from(self.rows), Ordering::Relaxed);
        self.paged.row_bytes.fetch_sub(self.row_bytes, Ordering::Relaxed);
        self.extents.iter().for_each(|extent| self.paged.let_go(*extent));
    }
}

/// All pages of a run, as they were read past the frames.
#[derive(Debug)]
pub(crate) struct LoadedRun {
    run: Arc<Run>,
    bytes: AlignedBytes,
}

impl LoadedRun {
    /// Appends the row at a position.
    ///
    /// # Panics
    /// When the run has no row at the position.
    pub(crate) fn row_into(&self, position: u16, out: &mut Vec<u8>) {
        let pages = self.run.index.pages_of(position);
        let page = |at: usize| payload_of(&self.bytes, pages.start + at);
        let found = rows::row_into(pages.len(), position, page, out);
        assert!(found, "slots name a block for rows that it has");
    }
}
