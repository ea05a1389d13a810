//! The paged side of a database: one region whose parts are all paged, and the runs of rows that lie in it.
//!
//! ```text
//!   block ──► run ──► extents ──► parts of the region ──► frames in memory │ pages in the backing
//!             first position of each page
//! ```
//!
//! A run is written once and read until its block goes (Stoica and Ailamaki, DaMoN 2013, §4: cold tuples on pages of their own).
//! Whoever reads a row asks whether its pages are there, under its pin:
//!
//! | who | if a page is not there |
//! |---|---|
//! | a transaction's read, scan or write | is told what is [missing](Absent), and awaits it without holding anything |
//! | everybody else (checkpoints, walks for definitions, validation) | reads it past the frames, on its own thread |
//!
//! Rules:
//! - A part is given back when no run has pages in it any more. Runs go with their blocks, through the epochs; parts go later, when
//!   somebody who has no pin comes by ([`Paged::tidy`]), since giving one back waits for the epochs.
//! - Nothing here is durable: the rows are those of images and log, from which an opening fills a new region.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use thermocline_base::backing::{PAGE_BYTES, PART_PAGES};
use thermocline_base::epoch::Guard;
use thermocline_base::io::AlignedBytes;
use thermocline_base::sync::{AtomicU64, Mutex, Ordering};
use thermocline_region::{Paging, Part, RegionError, Side, Span, Statistics};

use crate::hot::run::{self, PageIndex, Pages};

/// Pages of one run that are neighbours in the region.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Its first byte, counted from the begin of the region.
    at: u64,
    pages: u32,
}

impl Extent {
    fn part(self) -> u32 {
        (self.at / (PAGE_BYTES * PART_PAGES) as u64) as u32
    }
}

/// Which parts are in use.
#[derive(Debug, Default)]
struct Parts {
    /// The part that runs are appended to, and how many of its pages were taken.
    open: Option<(Part, usize)>,
    /// By number: the part, and its pages that runs have.
    live: BTreeMap<u32, (Part, u32)>,
    /// Parts without a live page.
    empty: Vec<Part>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Paged {
    pager: Box<dyn Paging>,
    frame_bytes: u64,
    parts: Mutex<Parts>,
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
    pub(crate) region: Statistics,
}

impl Paged {
    /// Behind a pager with frames of so many bytes.
    pub(crate) fn new(pager: Box<dyn Paging>, frame_bytes: u64) -> Self {
        Self {
            pager,
            frame_bytes,
            parts: Mutex::default(),
            rows: AtomicU64::new(0),
            row_bytes: AtomicU64::new(0),
            past_reads: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            over: OverCounters::default(),
        }
    }

    /// Writes the pages of a run.
    ///
    /// # Errors
    /// The medium is full or fails, or the region is; nothing is kept then.
    pub(crate) fn append(self: &Arc<Self>, pages: Pages) -> Result<Run, RegionError> {
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
        let mut rest = &pages.bytes[..];
        while !rest.is_empty() {
            // An error drops the run with what it has by then.
            let extent = self.append_some(rest)?;
            run.extents.push(extent);
            rest = &rest[extent.pages as usize * PAGE_BYTES..];
        }
        run.extents.shrink_to_fit();
        Ok(run)
    }

    /// Writes as much of this as goes into the part that is open, or into a new one.
    fn append_some(&self, bytes: &[u8]) -> Result<Extent, RegionError> {
        let (part, count) = {
            let mut parts = self.parts.lock();
            if parts.open.is_none_or(|(_, taken)| taken == PART_PAGES) {
                let part = self.pager.take(Side::Paged)?;
                if let Some((before, _)) = parts.open.replace((part, 0)) {
                    parts.note_if_empty(before.number);
                }
                parts.live.insert(part.number, (part, 0));
            }
            let (part, taken) = parts.open.as_mut().expect("just seen to");
            let count = (bytes.len() / PAGE_BYTES).min(PART_PAGES - *taken);
            *taken += count;
            let part = *part;
            parts.live.get_mut(&part.number).expect("an open part is listed").1 += count as u32;
            (part, count)
        };
        let mut run = AlignedBytes::zeroed(count * PAGE_BYTES);
        run[..count * PAGE_BYTES].copy_from_slice(&bytes[..count * PAGE_BYTES]);
        match self.pager.append(part, run) {
            Ok(Some(at)) => Ok(Extent { at, pages: count as u32 }),
            Ok(None) => unreachable!("no more pages of a part are taken than it has"),
            Err(error) => {
                // The pages' room in the part is lost, as in the region.
                self.parts.lock().let_go(part.number, count as u32);
                Err(error)
            }
        }
    }

    /// Gives back what has no live page any more. Waits for the epochs: the caller is not pinned.
    pub(crate) fn tidy(&self) {
        let empty = std::mem::take(&mut self.parts.lock().empty);
        for part in empty {
            if let Err(error) = self.pager.free(part) {
                tracing::warn!(%error, "a part of the paged side stays in use");
            }
        }
    }

    /// Waits until all pages of these spans are in memory at one time, or are none any more: the caller, who has no pin, looks for the
    /// row again. More pages than there are frames are not waited for.
    ///
    /// # Errors
    /// One of them cannot be read, or is not what was written.
    pub(crate) async fn bring(
        &self,
        epochs: &thermocline_base::epoch::Epochs,
        spans: &[Span],
    ) -> Result<(), RegionError> {
        let mut claim = self.pager.claim();
        loop {
            let asked = {
                let guard = epochs.pin();
                self.pager.ask(&guard, spans, &mut claim).map(|proof| proof.is_some())
            };
            let outcome = match asked {
                Ok(true) => return Ok(()),
                Ok(false) => (&mut claim).await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(()) => {}
                // Its block has gone: the row was brought back or changed, or went into another block.
                Err(RegionError::NoPage { .. } | RegionError::TooManyPages { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Has these pages read ahead of need. A hint.
    pub(crate) fn prefetch(&self, spans: &[Span]) {
        self.pager.prefetch(spans);
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

    /// Lets the pages that are in memory leave it, as far as nobody looks at them, for a test.
    pub(crate) fn let_pages_go(&self) {
        self.pager.make_room((self.frame_bytes / PAGE_BYTES as u64) as usize);
    }

    /// Bytes of the pages that are in memory, at most.
    pub(crate) fn frame_bytes(&self) -> u64 {
        self.frame_bytes
    }

    /// Bytes of the tables that lead to its pages.
    pub(crate) fn table_bytes(&self) -> u64 {
        // A word and a checksum a page.
        (self.parts.lock().live.len() * PART_PAGES * 12) as u64
    }

    /// What is there now.
    pub(crate) fn usage(&self) -> PagedUse {
        let pages = self.parts.lock().live.values().map(|(_, pages)| u64::from(*pages)).sum();
        PagedUse {
            pager: self.pager.name(),
            rows: self.rows.load(Ordering::Relaxed),
            row_bytes: self.row_bytes.load(Ordering::Relaxed),
            pages,
            past_reads: self.past_reads.load(Ordering::Relaxed),
            region: self.pager.statistics(),
        }
    }
}

impl Parts {
    /// So many pages of a part are dead.
    fn let_go(&mut self, number: u32, pages: u32) {
        let (_, live) = self.live.get_mut(&number).expect("a part with pages is listed");
        *live = live.checked_sub(pages).expect("no more pages die than were written");
        self.note_if_empty(number);
    }

    fn note_if_empty(&mut self, number: u32) {
        let is_open = self.open.is_some_and(|(open, taken)| open.number == number && taken < PART_PAGES);
        if !is_open && self.live.get(&number).is_some_and(|(_, live)| *live == 0) {
            let (part, _) = self.live.remove(&number).expect("just seen");
            if self.open.is_some_and(|(open, _)| open.number == number) {
                self.open = None;
            }
            self.empty.push(part);
        }
    }
}

/// Pages that a reader lacks.
#[derive(Debug)]
pub(crate) struct Absent {
    pub(crate) paged: Arc<Paged>,
    pub(crate) spans: Vec<Span>,
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
    /// Rows that were written.
    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    /// Their bytes.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.index.bytes() + self.extents.capacity() * size_of::<Extent>()
    }

    /// Where a page of the run lies in the region.
    fn place_of(&self, page: usize) -> u64 {
        let mut before = 0;
        for extent in &self.extents {
            let pages = extent.pages as usize;
            if page < before + pages {
                return extent.at + ((page - before) * PAGE_BYTES) as u64;
            }
            before += pages;
        }
        unreachable!("page {page} of a run of {}", self.index.len())
    }

    fn span_of(&self, page: usize) -> Span {
        Span { at: self.place_of(page), bytes: PAGE_BYTES as u32 }
    }

    /// The pages of the row at a position.
    pub(crate) fn spans(&self, position: u16) -> impl Iterator<Item = Span> {
        self.index.pages_of(position).map(|page| self.span_of(page))
    }

    /// So many pages behind those of the row at a position.
    pub(crate) fn spans_behind(&self, position: u16, pages: usize) -> Vec<Span> {
        let end = self.index.pages_of(position).end;
        (end..(end + pages).min(self.index.len())).map(|page| self.span_of(page)).collect()
    }

    /// The paged side that it is on.
    pub(crate) fn paged(&self) -> &Paged {
        &self.paged
    }

    /// Appends the row at a position, if its pages are there.
    ///
    /// # Errors
    /// They are not, or one of them is known to be lost: whoever waits for it is told.
    ///
    /// # Panics
    /// When the run has no row at the position.
    #[inline]
    pub(crate) fn row_if_there(
        &self,
        position: u16,
        guard: &Guard<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Box<Absent>> {
        let pages = self.index.pages_of(position);
        if pages.len() == 1 {
            let span = [self.span_of(pages.start)];
            return self.read(position, guard, &span, out).ok_or_else(|| self.absent(span.to_vec()));
        }
        let spans: Vec<Span> = self.spans(position).collect();
        self.read(position, guard, &spans, out).ok_or_else(|| self.absent(spans))
    }

    #[cold]
    fn absent(&self, spans: Vec<Span>) -> Box<Absent> {
        Box::new(Absent { paged: Arc::clone(&self.paged), spans })
    }

    #[inline]
    fn read(&self, position: u16, guard: &Guard<'_>, spans: &[Span], out: &mut Vec<u8>) -> Option<()> {
        let proof = self.paged.pager.look(guard, spans).ok()??;
        let found = run::row_into(spans.len(), position, |page| proof.bytes(spans[page]), out);
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
    ) -> Result<(), RegionError> {
        let Err(absent) = self.row_if_there(position, guard, out) else { return Ok(()) };
        let first = self.index.pages_of(position).start;
        let mut read = Vec::new();
        for (at, span) in absent.spans.iter().enumerate() {
            let last = LAST.take();
            let is_last = |last: &LastPage| {
                (last.run, last.page) == (self.number, first + at) && absent.spans.len() == 1
            };
            let bytes = match last {
                Some(last) if is_last(&last) => last.bytes,
                last => {
                    let buffer = last.map_or_else(|| AlignedBytes::zeroed(PAGE_BYTES), |last| last.bytes);
                    self.paged.past_reads.fetch_add(1, Ordering::Relaxed);
                    self.paged.pager.read_past(span.at, buffer)?
                }
            };
            read.push(bytes);
        }
        let found = run::row_into(read.len(), position, |page| &read[page][..PAGE_BYTES], out);
        assert!(found, "slots name a block for rows that it has");
        if let [_] = read[..] {
            let bytes = read.pop().expect("just seen");
            LAST.set(Some(LastPage { run: self.number, page: first, bytes }));
        }
        Ok(())
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
        let page = |at: usize| &self.bytes[(pages.start + at) * PAGE_BYTES..][..PAGE_BYTES];
        let found = run::row_into(pages.len(), position, page, out);
        assert!(found, "slots name a block for rows that it has");
    }
}

impl Run {
    /// Bytes of its pages.
    pub(crate) fn page_bytes(&self) -> usize {
        self.index.len() * PAGE_BYTES
    }

    /// Reads all of its pages past the frames, on this thread, which holds no pin and no lock.
    ///
    /// # Errors
    /// One of them cannot be read, or is not what was written.
    pub(crate) fn load(self: &Arc<Self>) -> Result<LoadedRun, RegionError> {
        let mut bytes = AlignedBytes::zeroed(self.page_bytes());
        let mut buffer = AlignedBytes::zeroed(PAGE_BYTES);
        for (page, to) in bytes.chunks_exact_mut(PAGE_BYTES).take(self.index.len()).enumerate() {
            buffer = self.paged.pager.read_past(self.place_of(page), buffer)?;
            to.copy_from_slice(&buffer[..PAGE_BYTES]);
        }
        self.paged.past_reads.fetch_add(self.index.len() as u64, Ordering::Relaxed);
        Ok(LoadedRun { run: Arc::clone(self), bytes })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.paged.rows.fetch_sub(u64::from(self.rows), Ordering::Relaxed);
        self.paged.row_bytes.fetch_sub(self.row_bytes, Ordering::Relaxed);
        let mut parts = self.paged.parts.lock();
        for extent in &self.extents {
            parts.let_go(extent.part(), extent.pages);
        }
    }
}
