//! Writing pages: into extents, a chunk at a time, one chunk ahead of the device.
//!
//! Rules:
//! - What was written belongs to the writer until [`Writer::finish`]; dropped before, it gives its extents back, when the write that
//!   is under way is over.
//! - A chunk's heat is handed over when its bytes are on the device.

use std::sync::Arc;

use thermocline_base::io::{AlignedBytes, Buffer};
use thermocline_base::sync::Ordering;

use super::error::Result;
use super::heat::UnderWay;
use super::held::Held;
use super::piece::Files;
use crate::device::PageHeat;
use crate::page::{self, PageKind};
use crate::space::{EXTENT_PAGES, ExtentRun};

/// Writes pages into extents, a chunk at a time, one chunk ahead of the device. What was written is handed over with its heat.
#[derive(Debug)]
pub(super) struct Writer {
    files: Arc<Files>,
    version: u64,
    expected_pages: u64,
    runs: Vec<ExtentRun>,
    /// Pages handed in.
    pages: u32,
    /// Room in the runs, in pages.
    room: u64,
    chunk: Option<AlignedBytes>,
    /// Pages in the chunk.
    filled: usize,
    /// Number of the chunk's first page.
    chunk_page: u64,
    /// By page of the chunk.
    heats: Vec<PageHeat>,
    under_way: Option<UnderWay>,
    held: Held,
}

impl Writer {
    /// For about so many pages, which carry a version.
    pub(super) fn new(files: Arc<Files>, version: u64, expected_pages: u64) -> Self {
        Self {
            held: Held::new(&files.work_bytes),
            files,
            version,
            expected_pages,
            runs: Vec::new(),
            pages: 0,
            room: 0,
            chunk: None,
            filled: 0,
            chunk_page: 0,
            heats: Vec::new(),
            under_way: None,
        }
    }

    /// Pages that were handed in.
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    /// Fills the next page.
    ///
    /// # Errors
    /// There is no space, or the device fails.
    pub(super) fn page(
        &mut self,
        kind: PageKind,
        heat: PageHeat,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let page_bytes = self.files.page_bytes();
        if self.filled == 0 {
            self.begin_chunk()?;
        }
        let chunk = self.chunk.as_mut().expect("a chunk was begun");
        let bytes = &mut chunk[self.filled * page_bytes..][..page_bytes];
        fill(bytes);
        let number = self.chunk_page + self.filled as u64;
        page::seal(bytes, self.files.device.seal(), number, self.version, kind);
        self.heats.push(heat);
        self.filled += 1;
        self.pages += 1;
        if self.filled * page_bytes == chunk.len() || u64::from(self.pages) == self.room {
            self.end_chunk()?;
        }
        Ok(())
    }

    fn begin_chunk(&mut self) -> Result<()> {
        let chunk_pages = self.files.chunk_pages();
        if u64::from(self.pages) == self.room {
            let left = self.expected_pages.saturating_sub(self.room).clamp(1, 8 * chunk_pages);
            let run = self.files.space.allocate(ExtentRun::extents_for(left))?;
            match self.runs.last_mut() {
                Some(last) if last.first + last.count == run.first => last.count += run.count,
                _ => self.runs.push(run),
            }
            self.room += run.pages();
        }
        let last = self.runs.last().expect("a run was allocated");
        let left = self.room - u64::from(self.pages);
        self.chunk_page = last.first_page() + last.pages() - left;
        if self.chunk.is_none() {
            let bytes = chunk_pages as usize * self.files.page_bytes();
            self.chunk = Some(AlignedBytes::zeroed(bytes));
            // Of this one and the one under way.
            self.held.set(2 * bytes);
        }
        Ok(())
    }

    fn end_chunk(&mut self) -> Result<()> {
        if self.filled == 0 {
            return Ok(());
        }
        let spare = self.wait()?;
        let mut chunk = self.chunk.take().expect("a chunk was begun");
        let bytes = self.filled * self.files.page_bytes();
        if bytes < chunk.len() {
            let mut exact = AlignedBytes::zeroed(bytes);
            exact.copy_from_slice(&chunk[..bytes]);
            chunk = exact;
        }
        self.files.bytes_written.fetch_add(bytes as u64, Ordering::Relaxed);
        self.under_way = Some(UnderWay {
            completion: self.files.device.write(self.chunk_page, Buffer::from(chunk)),
            first: self.chunk_page,
            heats: std::mem::take(&mut self.heats),
        });
        self.chunk = spare;
        self.filled = 0;
        Ok(())
    }

    /// Waits for the chunk that is under way; gives its buffer back if it is a whole one.
    fn wait(&mut self) -> Result<Option<AlignedBytes>> {
        let Some(under_way) = self.under_way.take() else { return Ok(None) };
        let buffer = under_way.wait(&self.files, self.version)?;
        let whole = self.files.chunk_pages() as usize * self.files.page_bytes();
        Ok(buffer.into_aligned().filter(|buffer| buffer.len() == whole))
    }

    /// Writes what is left: the extents, which are the caller's from now on, and the pages in them.
    ///
    /// # Errors
    /// As [`Writer::page`].
    pub(super) fn finish(&mut self) -> Result<(Vec<ExtentRun>, u32)> {
        self.end_chunk()?;
        self.wait()?;
        // Extents that were not needed go back.
        let mut spare = (self.room - u64::from(self.pages)) / EXTENT_PAGES;
        let mut runs = std::mem::take(&mut self.runs);
        while spare > 0 {
            let last = runs.last_mut().expect("spare extents are in runs");
            let count = spare.min(last.count);
            last.count -= count;
            spare -= count;
            self.files.space.free(ExtentRun { first: last.first + last.count, count });
            if last.count == 0 {
                runs.pop();
            }
        }
        Ok((runs, self.pages))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The extents may be used by others only when the write is over.
        if let Some(under_way) = self.under_way.take() {
            let _ = under_way.completion.wait();
        }
        for run in &self.runs {
            // What was handed over of them goes first.
            self.files.device.discard(run.first_page()..run.first_page() + run.pages());
            self.files.space.free(*run);
        }
    }
}
