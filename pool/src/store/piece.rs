//! A piece: an immutable sorted run of pages, with its fences and its filter.
//!
//! ```text
//!   page of the piece   0      1            n−1      n               m
//!                      ┌──────┬──────┬─ ┄ ─┬────────┬───────┬─ ┄ ─┬───────┐
//!                      │ data │ data │     │ data   │ tail  │     │ tail  │     (long records between the data pages)
//!                      └──────┴──────┴─ ┄ ─┴────────┴───────┴─ ┄ ─┴───────┘
//!   its extents         ├── run of extents ──┼─ run ─┼──── run ────┤
//! ```
//!
//! Rules:
//! - A piece belongs to itself: fences and filter are written, made durable, loaded and given up with its records
//!   (`FilterOfAllEntries`).
//! - All of its pages carry its version, 64 bits drawn for it alone (`VersionsAreDrawn`), so a page that another piece has left
//!   in its place is noticed: also one of a piece that a crash cut off and whose id is given again, and one that a copy of the
//!   page elsewhere kept while this file was restored from an older one.
//! - Its extents are free again when no reader refers to it any more (`Arc`), *and* the manifest without it is
//!   durable ([`Piece::give_up`]). Until then a reader that began before sees what it saw. Its pages leave the
//!   frames, and reads of them that are under way lose their place there, *before* the extents are free.
//! - Readers look at a page through the frames, inside of a closure that cannot wait ([`Piece::look`]): no pin
//!   survives an await. Where no frame is free they read past them, so no reader waits for a frame either. Flushes,
//!   merges, verification and tails, which read everything once, read past the frames always.

use std::sync::{Arc, OnceLock};

use thermocline_base::io::{AlignedBytes, Completion};
use thermocline_base::multiplex::block_on;
use thermocline_base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

use super::block::{self, LongRecord, NewEntry, PageBuilder, Value};
use super::codec::{self, Reader};
use super::error::{PageReason, Result, StoreError};
use super::fence::{Fences, FencesBuilder};
use super::filter::{Filter, Scratch};
use super::held::{Held, Sum};
use super::inner::Dropped;
use super::merge::{Kept, Merged};
use super::tail::Tail;
use super::types::{IndexId, Kind};
use super::writer::Writer;
use crate::device::{PageDevice, PageHeat, ReadReason, Wanted};
use crate::frames::{DeviceId, PageGuard, PageId, PagePool, PoolOptions};
use crate::page::{self, HEADER_BYTES, PageKind};
use crate::space::{EXTENT_PAGES, ExtentRun, Space};

/// The page file with its free space, and what was done to it.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) device: Arc<PageDevice>,
    pub(super) space: Space,
    /// The frames, and the file's name there.
    pub(super) pool: PagePool,
    pub(super) in_pool: DeviceId,
    /// The frames are others' too, and outlive the store.
    pool_is_shared: bool,
    pub(super) bytes_written: AtomicU64,
    /// Past the frames.
    pub(super) bytes_read: AtomicU64,
    /// Reads for readers, past the frames.
    pub(super) page_reads: AtomicU64,
    /// Looks at pages that were in a frame.
    pub(super) frame_hits: AtomicU64,
    /// Looks that found no free frame.
    pub(super) frame_bypasses: AtomicU64,
    /// Memory of what readers read past the frames.
    pub(super) buffer_bytes: AtomicU64,
    /// Memory that flushes and merges hold for their work.
    pub(super) work_bytes: Sum,
    /// Pages that they read and write at once.
    chunk_pages: u64,
    pub(super) false_positives: AtomicU64,
    /// Tails that were damaged when the store was opened.
    pub(super) remade_tails: AtomicU64,
}

impl Files {
    pub(super) fn new(
        device: Arc<PageDevice>,
        space: Space,
        options: &super::options::StoreOptions,
    ) -> Result<Self> {
        let pool = match &options.frames {
            Some(shared) => shared.clone(),
            None => {
                let pool = PoolOptions::new(options.frame_bytes).budget_max(options.frame_bytes_max);
                PagePool::new(pool.page_size(device.page_size()))?
            }
        };
        let page_bytes = device.page_size().bytes();
        Ok(Self {
            chunk_pages: (CHUNK_BYTES.min(options.memory_bytes / 8) / page_bytes).max(CHUNK_PAGES_MIN) as u64,
            in_pool: pool.add_device(Arc::clone(&device))?,
            pool,
            pool_is_shared: options.frames.is_some(),
            device,
            space,
            bytes_written: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            page_reads: AtomicU64::new(0),
            frame_hits: AtomicU64::new(0),
            frame_bypasses: AtomicU64::new(0),
            buffer_bytes: AtomicU64::new(0),
            work_bytes: Sum::default(),
            false_positives: AtomicU64::new(0),
            remade_tails: AtomicU64::new(0),
        })
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.device.page_size().bytes()
    }

    pub(super) fn payload_bytes(&self) -> usize {
        self.device.page_size().payload_bytes()
    }

    /// Are there so many frames that those of pages that are asked for together are not needed before they are looked at?
    pub(super) fn has_frames_for(&self, pages: u64) -> bool {
        pages * FRAMES_SHARE <= self.pool.budget_bytes() / self.page_bytes() as u64
    }

    /// Pages that merges read and write at once: 256 KiB of them, less beside short blocks.
    pub(super) fn chunk_pages(&self) -> u64 {
        self.chunk_pages
    }

    /// Pages of a long record that are read at once: 256 KiB of them, and at least an extent.
    fn long_pages(&self) -> u64 {
        (CHUNK_BYTES as u64 / self.page_bytes() as u64).max(EXTENT_PAGES)
    }
}

/// Pages that are asked for together go into frames if there are this many times as many frames.
const FRAMES_SHARE: u64 = 32;

/// Counts a buffer as long as it is there.
#[derive(Debug)]
pub(super) struct Counted {
    files: Arc<Files>,
    bytes: u64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.files.buffer_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if self.pool_is_shared {
            // Waits for writes only, and the store writes past the frames.
            block_on(self.pool.remove_device(self.in_pool));
        }
    }
}

const CHUNK_BYTES: usize = 256 << 10;
pub(super) const CHUNK_PAGES_MIN: usize = 4;

/// The counts of a piece's entries of one index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct IndexCounts {
    pub(super) index: u64,
    pub(super) records: u64,
    pub(super) removals: u64,
    /// Bytes of keys and records.
    pub(super) bytes: u64,
    /// Pages, those of long records counted.
    pub(super) pages: u64,
}

/// The name of a piece that is being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PieceName {
    /// Counts on, but a crash may have an id given twice: what it cut off is in no manifest.
    pub(super) id: u64,
    /// The version of its pages, drawn anew.
    pub(super) version: u64,
}

/// The manifest's entry of a piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PieceMeta {
    pub(super) id: u64,
    /// The version of its pages: drawn for it alone, and the id of a piece that was written before versions were
    /// drawn.
    pub(super) version: u64,
    /// Everything in it was confirmed at a position from `from` to `to`.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) runs: Vec<ExtentRun>,
    /// Data pages and pages of long records.
    pub(super) pages: u32,
    pub(super) tail_pages: u32,
    pub(super) tail_bytes: u32,
    pub(super) counts: Vec<IndexCounts>,
}

impl PieceMeta {
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.version.to_le_bytes());
        for number in [self.id, self.from, self.to] {
            codec::put_varint(bytes, number);
        }
        for number in [self.pages, self.tail_pages, self.tail_bytes] {
            codec::put_varint(bytes, u64::from(number));
        }
        codec::put_varint(bytes, self.runs.len() as u64);
        for run in &self.runs {
            codec::put_varint(bytes, run.first);
            codec::put_varint(bytes, run.count);
        }
        codec::put_varint(bytes, self.counts.len() as u64);
        for counts in &self.counts {
            for number in [counts.index, counts.records, counts.removals, counts.bytes, counts.pages] {
                codec::put_varint(bytes, number);
            }
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let version = reader.u64()?;
        Some(Self { version, ..Self::decode_unversioned(reader)? })
    }

    /// As format 1 of the manifest has it: the id is the version.
    pub(super) fn decode_unversioned(reader: &mut Reader<'_>) -> Option<Self> {
        let (id, from, to) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let mut small = || u32::try_from(reader.varint()?).ok();
        let (pages, tail_pages, tail_bytes) = (small()?, small()?, small()?);
        let mut runs = Vec::new();
        let mut room = 0_u64;
        for _ in 0..reader.varint()? {
            let run = ExtentRun { first: reader.varint()?, count: reader.varint()? };
            room = room.checked_add(run.count.checked_mul(EXTENT_PAGES)?)?;
            if run.count == 0 || run.first.checked_add(run.count)? > page::MAX_PAGE_NUMBER / EXTENT_PAGES {
                return None;
            }
            runs.push(run);
        }
        let mut counts = Vec::new();
        for _ in 0..reader.varint()? {
            counts.push(IndexCounts {
                index: reader.varint()?,
                records: reader.varint()?,
                removals: reader.varint()?,
                bytes: reader.varint()?,
                pages: reader.varint()?,
            });
        }
        let fits = u64::from(pages) + u64::from(tail_pages) <= room;
        let fits = fits && from <= to;
        fits.then_some(Self { id, version: id, from, to, runs, pages, tail_pages, tail_bytes, counts })
    }

    /// The number in the file of a page of the piece, and how many of the piece's pages follow it directly, itself
    /// counted.
    pub(super) fn locate(&self, page: u32) -> (u64, u64) {
        let mut rest = u64::from(page);
        for run in &self.runs {
            if rest < run.pages() {
                return (run.first_page() + rest, run.pages() - rest);
            }
            rest -= run.pages();
        }
        panic!("page {page} lies in an extent of piece {}", self.id)
    }

    pub(super) fn extents(&self) -> u64 {
        self.runs.iter().map(|run| run.count).sum()
    }

    pub(super) fn disk_bytes(&self, page_bytes: usize) -> u64 {
        self.extents() * EXTENT_PAGES * page_bytes as u64
    }

    pub(super) fn records(&self) -> u64 {
        self.counts.iter().map(|counts| counts.records).sum()
    }

    pub(super) fn removals(&self) -> u64 {
        self.counts.iter().map(|counts| counts.removals).sum()
    }
}

/// A piece that can be read.
#[derive(Debug)]
pub(super) struct Piece {
    /// `from` and `to` in here are those of its writing; see [`Piece::from`].
    pub(super) meta: PieceMeta,
    /// An unconfirmed batch gets its position when it is confirmed.
    position: OnceLock<u64>,
    /// The edition of [`Dropped`] that it was written without.
    edition: u64,
    /// The prints that screens need of its keys, if it is young, until it is put into the leaves.
    prints: Mutex<Vec<u32>>,
    pub(super) fences: Fences,
    pub(super) filter: Filter,
    files: Arc<Files>,
    given_up: AtomicBool,
    /// In how many leaves it has been, at most. Not the façade's: it decides what is merged when, and nothing else.
    spread: std::sync::atomic::AtomicU32,
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.given_up.load(Ordering::Acquire) {
            let Files { pool, in_pool, space, device, .. } = &*self.files;
            for run in &self.meta.runs {
                let pages = run.first_page()..run.first_page() + run.pages();
                // Done when it returns; the rest of it waits for writes, and the store writes past the frames.
                drop(pool.discard(*in_pool, pages.clone()));
                device.discard(pages);
                space.free(*run);
            }
        }
    }
}

impl Piece {
    /// The manifest does not name it any more, durably: its extents are free when the last reader is gone.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    /// It is in so many leaves now.
    pub(super) fn note_leaves(&self, leaves: u32) {
        self.spread.fetch_max(leaves, std::sync::atomic::Ordering::Relaxed);
    }

    /// Of what is in it, about how much is one leaf's: where it was merged already, nothing of it counts any more.
    /// (After opening it is not known in how many leaves it has been; then those count where it is.)
    pub(super) fn share_of_leaf(&self) -> f64 {
        1.0 / f64::from(self.spread.load(std::sync::atomic::Ordering::Relaxed).max(1))
    }

    /// Is it in several leaves, or was it, as far as is known?
    pub(super) fn lies_over_several(&self) -> bool {
        self.spread.load(std::sync::atomic::Ordering::Relaxed) > 1
    }

    /// Everything in it was confirmed at this position or a later one.
    pub(super) fn from(&self) -> u64 {
        self.position.get().copied().unwrap_or(self.meta.from)
    }

    /// Everything in it was confirmed at this position or an earlier one.
    pub(super) fn to(&self) -> u64 {
        self.position.get().copied().unwrap_or(self.meta.to)
    }

    /// The prints of its keys, once, if it was written as a young piece.
    pub(super) fn take_prints(&self) -> Vec<u32> {
        std::mem::take(&mut *self.prints.lock())
    }

    /// Is it to be merged for entries that are of no use any more?
    pub(super) fn has_useless(&self, dropped: &Dropped) -> bool {
        self.meta.counts.iter().any(|counts| dropped.is_due(counts.index, self.edition))
    }

    /// The batch in it is confirmed.
    pub(super) fn confirm(&self, position: u64) {
        let fresh = self.position.set(position).is_ok();
        assert!(fresh, "a batch is confirmed once");
    }

    /// A piece that the manifest names. A tail that cannot be read is made again from the records. `young`: it is not the
    /// last one of a leaf.
    pub(super) fn load(
        files: &Arc<Files>,
        meta: PieceMeta,
        young: bool,
        scratch: &mut Scratch,
    ) -> Result<Self> {
        let tail = match Tail::load(files, &meta, ReadReason::Tail) {
            Err(error @ StoreError::Tail { .. }) => {
                tracing::warn!(%error, "fences and filter are made again from the records");
                files.remade_tails.fetch_add(1, Ordering::Relaxed);
                Tail::remake(files, &meta, young, scratch)
            }
            loaded => loaded,
        };
        Ok(Self::with_tail(files, meta, tail?))
    }

    /// A piece of pages without entries.
    pub(super) fn without_entries(files: &Arc<Files>, meta: PieceMeta) -> Self {
        Self::with_tail(files, meta, Tail::none())
    }

    fn with_tail(files: &Arc<Files>, meta: PieceMeta, tail: Tail) -> Self {
        Self {
            meta,
            position: OnceLock::new(),
            edition: 0,
            prints: Mutex::new(tail.prints),
            fences: tail.fences,
            filter: tail.filter,
            files: Arc::clone(files),
            given_up: AtomicBool::new(false),
            spread: Default::default(),
        }
    }

    /// It was written without what this says.
    pub(super) fn written_without(mut self, dropped: &Dropped) -> Self {
        self.edition = dropped.edition();
        self
    }

    pub(super) fn files(&self) -> &Arc<Files> {
        &self.files
    }

    /// Memory of its fences and filter.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.prints.lock().capacity() * size_of::<u32>()
            + self.fences.memory_bytes()
            + self.filter.memory_bytes()
            + self.meta.runs.len() * size_of::<ExtentRun>()
            + self.meta.counts.len() * size_of::<IndexCounts>()
    }

    /// Looks at the payload of a page, in its frame if that is possible. `look` cannot wait, so no pin survives an await.
    pub(super) async fn look<T>(
        &self,
        index: u64,
        page: u32,
        kind: PageKind,
        look: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        let (number, _) = self.meta.locate(page);
        let files = &*self.files;
        let id = PageId::new(files.in_pool, number);
        if let Some(guard) = self.try_pin(id) {
            self.check_is(index, page, kind, guard.kind())?;
            return look(guard.payload());
        }
        let pinned = files.pool.pin_if_free(id, Some(self.meta.version)).await;
        if let Some(guard) = pinned.map_err(|error| self.broken(index, page, error.into()))? {
            self.check_is(index, page, kind, guard.kind())?;
            return look(guard.payload());
        }
        files.frame_bypasses.fetch_add(1, Ordering::Relaxed);
        let _counted = self.count_read(1);
        let wanted = Wanted::of(self.meta.version, ReadReason::Point);
        let bytes =
            read_pages(files, number, 1, wanted).await.map_err(|reason| self.broken(index, page, reason))?;
        let payload = check(files, &bytes, number, self.meta.version, kind);
        look(payload.map_err(|reason| self.broken(index, page, reason))?)
    }

    /// [`Piece::look`], if the page is in a frame. Does not wait.
    pub(super) fn look_now<T>(
        &self,
        index: u64,
        page: u32,
        kind: PageKind,
        look: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<Option<T>> {
        let (number, _) = self.meta.locate(page);
        let Some(guard) = self.try_pin(PageId::new(self.files.in_pool, number)) else { return Ok(None) };
        self.check_is(index, page, kind, guard.kind())?;
        look(guard.payload()).map(Some)
    }

    /// A page of it that is in a frame.
    fn try_pin(&self, id: PageId) -> Option<PageGuard<'_>> {
        let guard = self.files.pool.try_pin(id).filter(|guard| guard.version() == self.meta.version)?;
        self.files.frame_hits.fetch_add(1, Ordering::Relaxed);
        Some(guard)
    }

    /// Counts a read past the frames for a reader, and the buffer of so many pages as long as the result lives.
    pub(super) fn count_read(&self, pages: u32) -> Counted {
        let bytes = u64::from(pages) * self.files.page_bytes() as u64;
        self.files.page_reads.fetch_add(1, Ordering::Relaxed);
        self.files.buffer_bytes.fetch_add(bytes, Ordering::Relaxed);
        Counted { files: Arc::clone(&self.files), bytes }
    }

    /// A page of it as the frames name it.
    pub(super) fn page_id(&self, page: u32) -> PageId {
        PageId::new(self.files.in_pool, self.meta.locate(page).0)
    }

    /// Starts reading pages from `page` on, as many as lie together, at most `count`. Gives how many.
    pub(super) fn start_read(&self, page: u32, count: u32, reason: ReadReason) -> (Reading, u32) {
        let (number, together) = self.meta.locate(page);
        let count = together.min(u64::from(count)) as u32;
        (read_pages(&self.files, number, count, Wanted::of(self.meta.version, reason)), count)
    }

    /// Checks a page of a kind that was read, and gives its payload.
    pub(super) fn check_kind<'a>(
        &self,
        index: u64,
        page: u32,
        bytes: &'a [u8],
        kind: PageKind,
    ) -> Result<&'a [u8]> {
        let (number, _) = self.meta.locate(page);
        check(&self.files, bytes, number, self.meta.version, kind)
            .map_err(|reason| self.broken(index, page, reason))
    }

    /// Checks a page that was read.
    pub(super) fn check<'a>(&self, index: u64, page: u32, bytes: &'a [u8]) -> Result<(PageKind, &'a [u8])> {
        let (number, _) = self.meta.locate(page);
        let open = page::open(bytes, self.files.device.seal(), number, Some(self.meta.version));
        let open = open.map_err(|error| self.broken(index, page, PageReason::Bytes(error)))?;
        Ok((open.kind, open.payload))
    }

    /// An error about one of its pages.
    pub(super) fn broken(&self, index: u64, page: u32, reason: PageReason) -> StoreError {
        StoreError::Page {
            index: IndexId::from_u64(index),
            number: self.meta.locate(page).0,
            keys: self.fences.keys_of(index, page).map(Box::new),
            reason,
        }
    }

    fn check_is(&self, index: u64, page: u32, kind: PageKind, found: PageKind) -> Result<()> {
        if found == kind {
            return Ok(());
        }
        Err(self.broken(index, page, PageReason::Contents(OTHER_KIND)))
    }

    /// Reads a long record for a reader: one of few pages through the frames.
    pub(super) async fn look_long(&self, index: u64, record: LongRecord) -> Result<Vec<u8>> {
        self.look_long_within(LONG_FRAMES_MAX, index, record).await
    }

    /// The same, where up to so many pages are few.
    pub(super) async fn look_long_within(
        &self,
        few_max: u32,
        index: u64,
        record: LongRecord,
    ) -> Result<Vec<u8>> {
        let payload = self.files.payload_bytes();
        let pages = (record.bytes as usize).div_ceil(payload) as u32;
        let first = record.page;
        let end = first.saturating_add(pages);
        let few = pages == 1 || (pages <= few_max && self.files.has_frames_for(u64::from(pages)));
        if !few || end > self.meta.pages {
            let operations = u64::from(pages).div_ceil(self.files.long_pages());
            self.files.page_reads.fetch_add(operations, Ordering::Relaxed);
            return self.read_long(index, record, ReadReason::Scan).await;
        }
        if pages > 1 {
            let (number, together) = self.meta.locate(first);
            let together = together.min(u64::from(pages));
            // Without frames the pages are read one by one, below.
            let pages = number..number + together;
            let _ = self.files.pool.read_ahead(self.files.in_pool, pages, Some(self.meta.version));
        }
        let mut bytes = Vec::with_capacity(record.bytes as usize);
        for page in first..end {
            let take = |part: &[u8]| {
                bytes.extend_from_slice(&part[..payload.min(record.bytes as usize - bytes.len())]);
                Ok(())
            };
            self.look(index, page, block::LONG, take).await?;
        }
        Ok(bytes)
    }

    /// Reads a long record, past the frames.
    pub(super) async fn read_long(
        &self,
        index: u64,
        record: LongRecord,
        reason: ReadReason,
    ) -> Result<Vec<u8>> {
        let payload = self.files.payload_bytes();
        let mut bytes = Vec::with_capacity(record.bytes as usize);
        let mut page = record.page;
        while bytes.len() < record.bytes as usize {
            let left = (record.bytes as usize - bytes.len()).div_ceil(payload) as u32;
            if page.checked_add(left).is_none_or(|end| end > self.meta.pages) {
                let reason = PageReason::Contents("a long record lies outside of its piece");
                return Err(self.broken(index, self.meta.pages.saturating_sub(1), reason));
            }
            let count = left.min(self.files.long_pages() as u32);
            let (reading, count) = self.start_read(page, count, reason);
            let number = self.meta.locate(page).0;
            let read = reading.await.map_err(|reason| self.broken(index, page, reason))?;
            for (at, of_page) in read.chunks_exact(self.files.page_bytes()).enumerate() {
                let part = check(&self.files, of_page, number + at as u64, self.meta.version, block::LONG)
                    .map_err(|reason| self.broken(index, page + at as u32, reason))?;
                bytes.extend_from_slice(&part[..payload.min(record.bytes as usize - bytes.len())]);
            }
            page += count;
        }
        Ok(bytes)
    }
}

pub(super) fn check<'a>(
    files: &Files,
    bytes: &'a [u8],
    number: u64,
    version: u64,
    kind: PageKind,
) -> std::result::Result<&'a [u8], PageReason> {
    let open = page::open(bytes, files.device.seal(), number, Some(version)).map_err(PageReason::Bytes)?;
    if open.kind == kind { Ok(open.payload) } else { Err(PageReason::Contents(OTHER_KIND)) }
}

const OTHER_KIND: &str = "it is of another kind";

/// Long records of up to so many pages go through the frames; the others would push out too much.
const LONG_FRAMES_MAX: u32 = 8;

/// A read of whole pages under way.
#[derive(Debug)]
pub(super) struct Reading {
    completion: Completion,
    device: Arc<PageDevice>,
    number: u64,
    bytes: usize,
    wanted: Wanted,
}

pub(super) fn read_pages(files: &Files, number: u64, count: u32, wanted: Wanted) -> Reading {
    let bytes = count as usize * files.page_bytes();
    files.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    let completion = files.device.read(number, AlignedBytes::zeroed(bytes), wanted);
    Reading { completion, device: Arc::clone(&files.device), number, bytes, wanted }
}

impl Reading {
    /// For the store's own threads.
    pub(super) fn wait(self) -> std::result::Result<AlignedBytes, PageReason> {
        let outcome = self.completion.wait();
        match taken(outcome, self.bytes)? {
            (bytes, 0) => Ok(bytes),
            (bytes, missing) => finish_short(&self.device, self.number, bytes, missing, self.wanted),
        }
    }

    async fn into_pages(self) -> std::result::Result<AlignedBytes, PageReason> {
        let outcome = self.completion.await;
        let (mut bytes, mut missing) = taken(outcome, self.bytes)?;
        // Reads may be short. What follows begins where a page does, so that direct files take it.
        let page = self.device.page_size().bytes();
        while missing > 0 {
            let done = (bytes.len() - missing) / page * page;
            let rest = AlignedBytes::zeroed(bytes.len() - done);
            let outcome = self.device.read(self.number + (done / page) as u64, rest, self.wanted).await;
            missing = patch(outcome, &mut bytes, done, missing)?;
        }
        Ok(bytes)
    }
}

impl std::future::IntoFuture for Reading {
    type Output = std::result::Result<AlignedBytes, PageReason>;
    type IntoFuture = std::pin::Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.into_pages())
    }
}

/// The buffer, and how many bytes at its end did not come.
fn taken(
    outcome: thermocline_base::io::Outcome,
    bytes: usize,
) -> std::result::Result<(AlignedBytes, usize), PageReason> {
    match outcome.result {
        Err(error) => Err(PageReason::Io(error)),
        Ok(0) => Err(PageReason::Cut),
        Ok(count) => {
            let buffer = outcome.buffer.into_aligned().expect("the buffer that was given");
            Ok((buffer, bytes - count))
        }
    }
}

/// Puts what a further read gave behind `done` bytes; how many are missing then.
fn patch(
    outcome: thermocline_base::io::Outcome,
    bytes: &mut AlignedBytes,
    done: usize,
    missing: usize,
) -> std::result::Result<usize, PageReason> {
    let (rest, still) = taken(outcome, bytes.len() - done)?;
    if still >= missing {
        return Err(PageReason::Cut);
    }
    let come = rest.len() - still;
    bytes[done..done + come].copy_from_slice(&rest[..come]);
    Ok(still)
}

fn finish_short(
    device: &PageDevice,
    number: u64,
    mut bytes: AlignedBytes,
    mut missing: usize,
    wanted: Wanted,
) -> std::result::Result<AlignedBytes, PageReason> {
    let page = device.page_size().bytes();
    while missing > 0 {
        let done = (bytes.len() - missing) / page * page;
        let rest = AlignedBytes::zeroed(bytes.len() - done);
        let outcome = device.read(number + (done / page) as u64, rest, wanted).wait();
        missing = patch(outcome, &mut bytes, done, missing)?;
    }
    Ok(bytes)
}

/// Writes a piece. Dropped before [`PieceBuilder::finish`], it gives its extents back.
#[derive(Debug)]
pub(super) struct PieceBuilder {
    files: Arc<Files>,
    name: PieceName,
    wide_filter: bool,
    page: PageBuilder,
    fences: FencesBuilder,
    hashes: Vec<u64>,
    last_hash: Option<u64>,
    counts: Vec<IndexCounts>,
    /// Long records that the page being built refers to, in bytes.
    long_bytes: usize,
    /// Heat of the page being built.
    heat: PageHeat,
    writer: Writer,
    held: Held,
}

/// A data page refers to no more bytes of long records than this, unless one alone is longer.
const LONG_BYTES_MAX: usize = 1 << 20;

impl PieceBuilder {
    /// A piece of about `expected_bytes`.
    pub(super) fn new(files: &Arc<Files>, name: PieceName, wide_filter: bool, expected_bytes: u64) -> Self {
        let expected_pages = expected_bytes / files.page_bytes() as u64 + 1;
        Self {
            name,
            wide_filter,
            page: PageBuilder::default(),
            fences: FencesBuilder::default(),
            hashes: Vec::new(),
            last_hash: None,
            counts: Vec::new(),
            long_bytes: 0,
            heat: PageHeat::default(),
            writer: Writer::new(Arc::clone(files), name.version, expected_pages),
            held: Held::new(&files.work_bytes),
            files: Arc::clone(files),
        }
    }

    /// Bytes written so far, about.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.writer.pages()) * self.files.page_bytes() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Adds an entry, which sorts behind those before it.
    #[inline]
    pub(super) fn add(&mut self, entry: Merged<'_>) -> Result<Kept> {
        let Merged { index, key, head, hash, batch, kind, value: record, heat } = entry;
        let payload = self.files.payload_bytes();
        let value = if record.len() > PageBuilder::inline_max(payload) {
            if self.long_bytes + record.len() > LONG_BYTES_MAX {
                self.end_page()?;
            }
            self.long_bytes += record.len();
            Value::Long(self.add_long(record)?)
        } else {
            Value::Inline(record)
        };
        let entry = NewEntry { index, key, head, batch, kind, value };
        if !self.page.add(payload, entry) {
            self.end_page()?;
            let fits = self.page.add(payload, entry);
            assert!(fits, "an empty page takes any entry");
        }
        self.heat += heat;
        if self.last_hash != Some(hash) {
            self.last_hash = Some(hash);
            self.hashes.push(hash);
        }
        if self.counts.last().is_none_or(|counts| counts.index != index) {
            self.counts.push(IndexCounts { index, ..IndexCounts::default() });
        }
        let counts = self.counts.last_mut().expect("it was pushed");
        if kind == Kind::Put {
            counts.records += 1;
            counts.bytes += (key.len() + record.len()) as u64;
        } else {
            counts.removals += 1;
        }
        if let Value::Long(_) = value {
            counts.pages += record.len().div_ceil(payload) as u64;
        }
        Ok(Kept::Yes)
    }

    /// Long records lie before the page that refers to them, so one that starts a new page begins with the page.
    fn add_long(&mut self, record: &[u8]) -> Result<LongRecord> {
        let page = self.writer.pages();
        for part in record.chunks(self.files.payload_bytes()) {
            self.writer.page(block::LONG, PageHeat::default(), |page| {
                page[HEADER_BYTES..HEADER_BYTES + part.len()].copy_from_slice(part);
                page[HEADER_BYTES + part.len()..].fill(0);
            })?;
        }
        Ok(LongRecord { page, bytes: record.len() as u32 })
    }

    fn end_page(&mut self) -> Result<()> {
        if self.page.is_empty() {
            return Ok(());
        }
        let index = self.page.index();
        self.fences.add(index, self.writer.pages(), self.page.first_key(), &self.page.last_key());
        let counts = self.counts.iter_mut().rev().find(|counts| counts.index == index);
        counts.expect("the page's entries were counted").pages += 1;
        self.long_bytes = 0;
        self.held.set(self.hashes.capacity() * size_of::<u64>() + self.fences.memory_bytes());
        let page = &mut self.page;
        self.writer.page(block::DATA, std::mem::take(&mut self.heat), |bytes| page.write(bytes))
    }

    /// Writes what is left, with fences and filter. The bytes are on their way to the device, not durable.
    pub(super) fn finish(mut self, from: u64, to: u64, scratch: &mut Scratch) -> Result<Piece> {
        self.end_page()?;
        let pages = self.writer.pages();
        let fences = std::mem::take(&mut self.fences).finish();
        let young = self.wide_filter;
        let made = Tail::build(fences, &mut self.hashes, young, scratch);
        let tail = made.encode(young);
        self.held.set(self.hashes.capacity() * size_of::<u64>() + tail.capacity());
        for part in tail.chunks(self.files.payload_bytes()) {
            self.writer.page(block::TAIL, PageHeat::default(), |page| {
                page[HEADER_BYTES..HEADER_BYTES + part.len()].copy_from_slice(part);
                page[HEADER_BYTES + part.len()..].fill(0);
            })?;
        }
        let (runs, all_pages) = self.writer.finish()?;
        let meta = PieceMeta {
            id: self.name.id,
            version: self.name.version,
            from,
            to,
            runs,
            pages,
            tail_pages: all_pages - pages,
            tail_bytes: tail.len() as u32,
            counts: self.counts,
        };
        Ok(Piece::with_tail(&self.files, meta, made))
    }
}
