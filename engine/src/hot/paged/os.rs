//! Pages of runs in a region whose paged side is left to the system: the pager `os`.
//!
//! Parts of the region are given back when no run has pages in them any more. Runs go with their blocks, through the epochs; parts go
//! later ([`OsPages::tidy`]), since giving one back waits for the epochs.

use std::collections::BTreeMap;

use thermocline_base::epoch::Guard;
use thermocline_base::io::AlignedBytes;
use thermocline_base::sync::Mutex;
use thermocline_region::{OsPager, PART_PAGES, Part, Proof, RegionError, Side, Span, Statistics};

use super::{Extent, PAGE_BYTES, copy_of};

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

/// See the module.
#[derive(Debug)]
pub(crate) struct OsPages {
    pager: OsPager,
    resident_bytes: u64,
    parts: Mutex<Parts>,
}

impl OsPages {
    /// Behind a pager that keeps to so many bytes.
    pub(crate) fn new(pager: OsPager, resident_bytes: u64) -> Self {
        Self { pager, resident_bytes, parts: Mutex::default() }
    }

    /// Writes as many of these pages as go into the part that is open, or into a new one.
    ///
    /// # Errors
    /// The medium fails or has no room, or the region has none.
    pub(super) fn append(&self, pages: &[u8]) -> Result<Extent, RegionError> {
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
            let count = (pages.len() / PAGE_BYTES).min(PART_PAGES - *taken);
            *taken += count;
            let part = *part;
            parts.live.get_mut(&part.number).expect("an open part is listed").1 += count as u32;
            (part, count)
        };
        match self.pager.append(part, copy_of(&pages[..count * PAGE_BYTES])) {
            Ok(Some(at)) => Ok(Extent { first: at / PAGE_BYTES as u64, pages: count as u32 }),
            Ok(None) => unreachable!("no more pages of a part are taken than it has"),
            Err(error) => {
                // The pages' room in the part is lost, as in the region.
                self.parts.lock().let_go(part.number, count as u32);
                Err(error)
            }
        }
    }

    /// These pages have no run any more.
    pub(super) fn let_go(&self, extent: Extent) {
        self.parts.lock().let_go((extent.first / PART_PAGES as u64) as u32, extent.pages);
    }

    /// Gives back what has no live page any more. Waits for the epochs: the caller is not pinned.
    pub(super) fn tidy(&self) {
        let empty = std::mem::take(&mut self.parts.lock().empty);
        for part in empty {
            if let Err(error) = self.pager.free(part) {
                tracing::warn!(%error, "a part of the paged side stays in use");
            }
        }
    }

    /// The way to pages that were written; reading by it may fault.
    pub(super) fn look<'p>(&'p self, guard: &'p Guard<'_>, spans: &'p [Span]) -> Option<Proof<'p>> {
        self.pager.look(guard, spans).ok()
    }

    /// Has pages read ahead of need. A hint.
    pub(super) fn prefetch(&self, pages: impl Iterator<Item = u64>) {
        pages.for_each(|page| self.pager.prefetch(&[span_of(page)]));
    }

    /// Reads pages by touching them, as many as the buffer is long.
    ///
    /// # Errors
    /// One of them was not written.
    pub(super) fn read_past(
        &self,
        first: u64,
        mut buffer: AlignedBytes,
    ) -> Result<AlignedBytes, RegionError> {
        for (page, bytes) in (first..).zip(buffer.chunks_exact_mut(PAGE_BYTES)) {
            self.pager.copy(page * PAGE_BYTES as u64, bytes)?;
        }
        Ok(buffer)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.resident_bytes + self.pager.statistics().table_bytes
    }

    pub(super) fn frame_bytes(&self) -> u64 {
        self.resident_bytes
    }

    /// Pages that runs have.
    pub(super) fn pages(&self) -> u64 {
        self.parts.lock().live.values().map(|(_, pages)| u64::from(*pages)).sum()
    }

    pub(super) fn stats(&self) -> Statistics {
        self.pager.statistics()
    }
}

/// The addresses of a page.
pub(super) fn span_of(page: u64) -> Span {
    Span { at: page * PAGE_BYTES as u64, bytes: PAGE_BYTES as u32 }
}
