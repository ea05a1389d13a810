//! The pager `os`: the paged side left to the system, as the paper leaves it (Stoica and Ailamaki, DaMoN 2013, §4).
//!
//! ```text
//!   pinned parts   anonymous, of huge pages, locked: the system leaves them alone
//!   paged parts    a mapped file without a name, its space taken, read only ── the system's faults and its choice of what leaves
//! ```
//!
//! - A reader of a page that is not in memory sleeps in a fault, with all tasks that its thread runs.
//! - A page that cannot be read ends the process by a signal (SIGBUS); one that is not what was written is not noticed.
//! - Memory is bounded by a control group, or by the trimmer of this module.
//!
//! A run is written past the system's cache, before any of it is mapped as present, so pages of the file are never dirty: taking one
//! away costs no write, and a disk that is full or fails is an error of the writer.
//!
//! The *trimmer* is for processes that no control group bounds: a thread that compares the resident pages of mapped files of the
//! whole process with what it was allowed, and has the system take parts away (`MADV_PAGEOUT`), one after another, whoever uses them.
//! So it bounds memory; it does not choose well. The system's own choice (in a control group) is the paper's.
//!
//! Readers need no wait: [`OsPager::look`] has a proof for every page that was written. What ends a part's use waits for the epochs.

use std::marker::PhantomData;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use thermocline_base::epoch::{Epochs, Guard};
use thermocline_base::io::{AlignedBytes, Io};
use thermocline_base::sync::{AtomicBool, AtomicU32, AtomicU64, Backoff, Mutex, Ordering};
use thermocline_base::vm::paging;
use thermocline_base::vm::{self, Reservation};

use crate::error::RegionError;
use crate::file::PageFile;
use crate::sides::{Changes, Entry, Part, Side, Sides};
use crate::statistics::Statistics;
use crate::{PAGE_BYTES, PART_BYTES, PART_PAGES};

/// Between two looks of the trimmer.
const LOOK: Duration = Duration::from_millis(2);

/// Options of the pager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OsOptions {
    /// Addresses, in bytes.
    pub bytes: usize,
    /// Pages of files that may be resident in the process beyond those when the pager was made, kept to by the trimmer. `None`: a
    /// control group bounds the process.
    pub resident_pages: Option<usize>,
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

/// The pages of the spans that were asked for were written, and stay while the pin lasts. The only way to their bytes.
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

#[derive(Debug)]
struct Inner {
    reservation: Reservation,
    file: std::fs::File,
    pages: PageFile,
    epochs: Arc<Epochs>,
    sides: Sides,
    changes: Mutex<Changes>,
    /// Pages taken of each part (low half) and writes under way (high half).
    cursors: Box<[AtomicU32]>,
    /// A bit a page that was written.
    written: Box<[AtomicU64]>,
    write_bytes: AtomicU64,
    trimmed: AtomicU64,
    faults_before: u64,
    stop: AtomicBool,
}

/// See the module.
#[derive(Debug)]
pub struct OsPager {
    inner: Arc<Inner>,
    trimmer: Option<JoinHandle<()>>,
}

impl OsPager {
    /// A region whose parts are all free; what is paged lies in a file in this directory.
    ///
    /// # Errors
    /// When there are no such addresses, the file cannot be made or mapped, or the system does not say what is resident and shall be
    /// trimmed.
    pub fn new(
        options: OsOptions,
        epochs: Arc<Epochs>,
        io: &dyn Io,
        dir: &Path,
    ) -> Result<Self, RegionError> {
        let bytes = options.bytes;
        if !paging::MAPS_FILES {
            return Err(RegionError::NoMapping {
                reason: "this system, or this build, does not map files over a region; name another pager"
                    .to_owned(),
            });
        }
        let reservation = Reservation::new(bytes)
            .map_err(|error| RegionError::Addresses { bytes, reason: error.to_string() })?;
        let (pages, file) =
            PageFile::new(io, &dir.join("paged")).map_err(|source| RegionError::NoFile { source })?;
        if paging::is_in_memory(&file) {
            let reason = format!(
                "{} is in memory (tmpfs), so nothing would leave it; name a directory on a disk",
                dir.display()
            );
            return Err(RegionError::NoMapping { reason });
        }
        let parts = reservation.bytes() / PART_BYTES;
        let inner = Arc::new(Inner {
            reservation,
            file,
            pages,
            epochs,
            sides: Sides::new(parts),
            changes: Mutex::default(),
            cursors: (0..parts).map(|_| AtomicU32::new(0)).collect(),
            written: (0..parts * PART_PAGES / 64).map(|_| AtomicU64::new(0)).collect(),
            write_bytes: AtomicU64::new(0),
            trimmed: AtomicU64::new(0),
            faults_before: paging::major_faults().unwrap_or(0),
            stop: AtomicBool::new(false),
        });
        let mut pager = Self { inner, trimmer: None };
        if let Some(pages) = options.resident_pages {
            let before = paging::resident_file_bytes().ok_or_else(|| RegionError::NoMapping {
                reason: "the system does not say how much of the process is resident (/proc/self/statm), so the pager `os` can only be \
                         bounded by a control group"
                    .to_owned(),
            })?;
            let limit = before + (pages * PAGE_BYTES) as u64;
            let inner = Arc::clone(&pager.inner);
            let trimmer = std::thread::Builder::new().name("thermocline-trim".to_string());
            pager.trimmer = Some(
                trimmer.spawn(move || trim(&inner, limit)).map_err(|error| RegionError::no_thread(&error))?,
            );
        }
        Ok(pager)
    }
}

impl Drop for OsPager {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::SeqCst);
        if let Some(trimmer) = self.trimmer.take() {
            // A trimmer that panicked has said so.
            let _ = trimmer.join();
        }
    }
}

/// Keeps to the limit, taking parts away one after another.
fn trim(inner: &Inner, limit: u64) {
    let mut hand = 0;
    while !inner.stop.load(Ordering::SeqCst) {
        let over = || paging::resident_file_bytes().is_some_and(|bytes| bytes > limit);
        let mut turns = 0;
        while over() && turns < inner.sides.parts() {
            let changes = inner.changes.lock();
            if inner.sides.get(hand).side == Side::Paged {
                // SAFETY: a part of ours that stays mapped while its sides' lock is held; a thread that touches it
                // finds the same bytes.
                if unsafe { paging::page_out(inner.start(hand), PART_BYTES) }.is_ok() {
                    inner.trimmed.fetch_add(1, Ordering::Relaxed);
                }
            }
            drop(changes);
            hand = (hand + 1) % inner.sides.parts();
            turns += 1;
        }
        std::thread::sleep(LOOK);
    }
}

impl Inner {
    fn start(&self, part: usize) -> NonNull<u8> {
        assert!(part < self.sides.parts(), "a part of the region");
        // SAFETY: inside of the reservation (asserted).
        unsafe { self.reservation.base().add(part * PART_BYTES) }
    }

    fn is_written(&self, page: usize) -> bool {
        self.written[page / 64].load(Ordering::SeqCst) >> (page % 64) & 1 == 1
    }

    fn no_page(page: usize) -> RegionError {
        RegionError::NoPage { page: page as u64 }
    }

    fn write(&self, part: Part, first: usize, pages: AlignedBytes) -> Result<(), RegionError> {
        let (count, start) = (pages.len() / PAGE_BYTES, part.number as usize * PART_PAGES + first);
        let written = self.pages.write(start, pages);
        let bytes = written.map_err(|source| RegionError::Unwritten { page: start as u64, source })?;
        self.write_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        for page in start..start + count {
            self.written[page / 64].fetch_or(1 << (page % 64), Ordering::SeqCst);
        }
        Ok(())
    }
}

impl OsPager {
    /// Takes a free part for a use.
    ///
    /// # Errors
    /// All parts are in use; there is no room for a paged one; it cannot be mapped.
    ///
    /// # Panics
    /// When it is to be neither pinned nor paged.
    pub fn take(&self, side: Side) -> Result<Part, RegionError> {
        assert!(matches!(side, Side::Pinned | Side::Paged), "a part is taken to be pinned or paged");
        let inner = &*self.inner;
        let mut changes = inner.changes.lock();
        let number = inner.sides.free_for(side).ok_or(RegionError::NoPart { parts: inner.sides.parts() })?;
        let mut entry = inner.sides.get(number);
        if side == Side::Pinned {
            changes.pin(&inner.reservation, number, &mut entry);
        } else {
            changes.unpin(&inner.reservation, number, &mut entry);
            inner.pages.prepare(number).map_err(|source| RegionError::Full { source })?;
            let offset = (number * PART_BYTES) as u64;
            // SAFETY: a free part of ours, of which no thread has a way to the bytes.
            unsafe { paging::map_file(inner.start(number), PART_BYTES, &inner.file, offset) }
                // The room that was taken is of no use.
                .inspect_err(|_| inner.pages.discard(number))
                .map_err(|error| RegionError::no_mapping(&error))?;
            inner.cursors[number].store(0, Ordering::SeqCst);
        }
        let generation = entry.generation + 1;
        inner.sides.set(number, Entry { side, generation, ..entry });
        Ok(Part { number: number as u32, generation })
    }

    /// Ends a use of a part. Of a paged one, waits for the epochs: the caller is not pinned.
    ///
    /// # Errors
    /// The part is not in use, or in another use.
    pub fn free(&self, part: Part) -> Result<(), RegionError> {
        let inner = &*self.inner;
        let number = part.number as usize;
        let changes = inner.changes.lock();
        if let Ok(entry) = inner.sides.check(part, Side::Pinned) {
            changes.give_back(&inner.reservation, number);
            inner.sides.set(number, Entry { side: Side::Free, ..entry });
            return Ok(());
        }
        let entry = inner.sides.check(part, Side::Paged)?;
        inner.sides.set(number, Entry { side: Side::Going, ..entry });
        drop(changes);
        let mut backoff = Backoff::new();
        while inner.cursors[number].load(Ordering::SeqCst) >> 16 > 0 {
            backoff.wait();
        }
        let words = number * PART_PAGES / 64..(number + 1) * PART_PAGES / 64;
        inner.written[words].iter().for_each(|word| word.store(0, Ordering::SeqCst));
        let stamp = inner.epochs.stamp();
        while inner.epochs.safe() <= stamp {
            backoff.wait();
        }
        let _changes = inner.changes.lock();
        // SAFETY: the epochs have passed, so no thread has a way to the part's bytes.
        unsafe { paging::map_nothing(inner.start(number), PART_BYTES) }
            .map_err(|error| RegionError::no_mapping(&error))?;
        inner.pages.discard(number);
        inner.sides.set(number, Entry { side: Side::Free, ..entry });
        Ok(())
    }

    /// The use of a part now.
    #[must_use]
    pub fn side(&self, number: u32) -> (Side, Part) {
        let entry = self.inner.sides.get(number as usize);
        (entry.side, Part { number, generation: entry.generation })
    }

    /// The first byte of a pinned part.
    ///
    /// # Errors
    /// It is not pinned, or in another use.
    pub fn pinned(&self, part: Part) -> Result<NonNull<u8>, RegionError> {
        self.inner.sides.check(part, Side::Pinned)?;
        Ok(self.inner.start(part.number as usize))
    }

    /// Writes a run of pages to a paged part, behind those that are there. Where it begins, in bytes from the begin of the region;
    /// `None`: the part has no room for it.
    ///
    /// # Errors
    /// The medium's; the part is not paged, or in another use.
    ///
    /// # Panics
    /// When these are no whole pages.
    pub fn append(&self, part: Part, pages: AlignedBytes) -> Result<Option<u64>, RegionError> {
        let inner = &*self.inner;
        let count = pages.len() / PAGE_BYTES;
        assert!(count > 0 && pages.len().is_multiple_of(PAGE_BYTES), "a run consists of whole pages");
        let number = part.number as usize;
        let Some(first) = inner.sides.reserve(&inner.cursors[number], part, count)? else { return Ok(None) };
        // Counted first: the owner that drops the part has said so before it looks at the count.
        let result =
            inner.sides.check(part, Side::Paged).map(drop).and_then(|()| inner.write(part, first, pages));
        inner.cursors[number].fetch_sub(1 << 16, Ordering::SeqCst);
        result.map(|()| Some((number * PART_BYTES + first * PAGE_BYTES) as u64))
    }

    /// The way to the bytes of pages that were written, for as long as the pin lasts. Reading by it may fault.
    ///
    /// # Errors
    /// One of them was not written, or its part has another use.
    ///
    /// # Panics
    /// When the pin is of other epochs.
    pub fn look<'p>(&'p self, guard: &'p Guard<'_>, spans: &'p [Span]) -> Result<Proof<'p>, RegionError> {
        let inner = &*self.inner;
        assert!(std::ptr::eq(guard.epochs(), &raw const *inner.epochs), "a pin of the pager's epochs");
        for page in spans.iter().flat_map(|span| span.pages()) {
            if !inner.is_written(page) {
                return Err(Inner::no_page(page));
            }
        }
        // SAFETY: all pages were written and their parts not dropped before the pin began; the mapping is taken away only when the
        // epochs have passed the pin, and the file's pages do not change meanwhile.
        Ok(unsafe { Proof::new(inner.reservation.base(), spans) })
    }

    /// Has pages read ahead of need. A hint.
    pub fn prefetch(&self, spans: &[Span]) {
        let inner = &*self.inner;
        for page in spans.iter().flat_map(|span| span.pages()).filter(|page| inner.is_written(*page)) {
            // SAFETY: inside of the reservation, whose pages exist.
            let at = unsafe { inner.reservation.base().add(page * PAGE_BYTES) };
            paging::will_need(at, PAGE_BYTES);
        }
    }

    /// Copies a page, of a part that its owner does not free meanwhile.
    ///
    /// # Errors
    /// It was not written.
    pub fn copy(&self, at: u64, buffer: &mut [u8]) -> Result<(), RegionError> {
        let inner = &*self.inner;
        let page = (at / PAGE_BYTES as u64) as usize;
        if !inner.is_written(page) {
            return Err(Inner::no_page(page));
        }
        // SAFETY: a page that was written, of a part that its owner does not free meanwhile.
        let bytes = unsafe {
            std::slice::from_raw_parts(inner.reservation.base().add(page * PAGE_BYTES).as_ptr(), PAGE_BYTES)
        };
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    /// The counts so far, and what is where now.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let inner = &*self.inner;
        let resident =
            |part: &usize| inner.reservation.resident_bytes(part * PART_BYTES, PART_BYTES).unwrap_or(0);
        let paged = (0..inner.sides.parts()).filter(|part| inner.sides.get(*part).side == Side::Paged);
        let faults = paging::major_faults().unwrap_or(0).saturating_sub(inner.faults_before);
        Statistics {
            pinned_bytes: (inner.sides.count(Side::Pinned) * PART_BYTES) as u64,
            paged_bytes: (inner.sides.count(Side::Paged) * PART_BYTES) as u64,
            resident_bytes: paged.map(|part| resident(&part)).sum::<usize>() as u64,
            locked_bytes: (inner.sides.locked() * PART_BYTES) as u64,
            table_bytes: (inner.written.len() * 8 + inner.sides.parts() * 12) as u64,
            major_faults: faults,
            parts_trimmed: inner.trimmed.load(Ordering::Relaxed),
            write_bytes: inner.write_bytes.load(Ordering::Relaxed),
        }
    }
}

const _: () = assert!(PART_PAGES.is_multiple_of(64));

#[cfg(all(test, target_os = "linux", not(feature = "portable")))]
mod tests;

/// Does this build, on this system, lay files over regions?
#[must_use]
pub fn is_there() -> bool {
    paging::MAPS_FILES && vm::page_size() == PAGE_BYTES
}
