//! Options with which a store is opened.

use std::sync::Arc;

use thermocline_base::io::Io;
use thermocline_base::rng::{Draw, SystemDraw};

use super::end::{StoreEnd, StoreOwner};
use super::error::{Result, StoreError};
use crate::frames::PagePool;
use crate::page::PageSize;
use crate::simulate::capture::PageCapture;
use crate::ssd::{Lent, SsdOptions};

/// Options with which a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The id of the database that the store belongs to.
    pub database_id: [u8; 16],
    /// Length of pages, for a store that is created; one that is there keeps its own.
    pub page_size: PageSize,
    /// When a block in memory is full. Up to three blocks exist at a time: one that takes batches, two that are being
    /// written.
    pub memory_bytes: usize,
    /// Length of a journal segment.
    pub segment_bytes: u64,
    /// Length up to which the last-level piece of a leaf grows: a merge needs about this much space for a while.
    pub leaf_bytes: u64,
    /// Young pieces, as a percentage of last-level pieces, that wait to be merged. More is less work and more space.
    pub young_percent: u64,
    /// Young pieces of one leaf, at most: each costs a reader a look at its filter.
    pub young_max: usize,
    /// The page file grows by at least this much at a time, and so much of what is free in it stays there when the file system
    /// gets it back.
    pub spare_bytes: u64,
    /// Bytes of frames at first, which keep pages that were read: [`super::Store::set_frame_bytes`] changes them. 0: none.
    pub frame_bytes: u64,
    /// The most that they may ever be: address space is reserved for them.
    pub frame_bytes_max: u64,
    /// Frames that others use as well, instead of those of its own; the budget is theirs together.
    pub frames: Option<PagePool>,
    /// An SSD that keeps copies of pages, and the files that it is reached by: with I/O threads of its own, so that a
    /// slow one holds up no other file.
    pub ssd: Option<(Arc<dyn Io>, SsdOptions)>,
    /// Instead of an SSD: memory that may go at any time.
    pub lent: Option<Lent>,
    /// Has a trace of what the page file is asked for.
    pub capture: Option<Arc<PageCapture>>,
    /// Hears up to where the files are durable, and tells its own position.
    pub owner: Option<Arc<dyn StoreOwner>>,
    /// Files that end before this are refused: its owner has heard that they were durable up to there.
    pub least: StoreEnd,
    /// Where the versions of pages are drawn. Whatever draws twice makes one piece's pages pass for another's.
    pub page_versions: Arc<dyn Draw>,
    /// Threads that flush and merge, beside the one of the journal. 0: none at all, and whoever has the store calls
    /// [`super::Store::step`]. Tests do, to decide what happens when.
    pub threads: usize,
}

impl StoreOptions {
    /// The usual ones.
    #[must_use]
    pub fn new(database_id: [u8; 16]) -> Self {
        Self {
            database_id,
            page_size: PageSize::default(),
            memory_bytes: 32 << 20,
            segment_bytes: 16 << 20,
            leaf_bytes: 32 << 20,
            young_percent: 18,
            young_max: 40,
            spare_bytes: 8 << 20,
            frame_bytes: 8 << 20,
            frame_bytes_max: 1 << 30,
            frames: None,
            ssd: None,
            lent: None,
            capture: None,
            owner: None,
            least: StoreEnd::default(),
            page_versions: Arc::new(SystemDraw),
            threads: 2,
        }
    }

    /// These with the memory that suits a program under such a limit: three blocks, what merges take beside them and a
    /// sixty-fourth of the limit each, and frames of a thirty-second.
    #[must_use]
    pub fn within(self, memory_limit: u64) -> Self {
        const BLOCK_BYTES: u64 = 4 << 20;
        const FRAME_BYTES: u64 = 64 << 20;
        Self {
            memory_bytes: (memory_limit / 64).clamp(256 << 10, BLOCK_BYTES) as usize,
            frame_bytes: (memory_limit / 32).min(FRAME_BYTES),
            frame_bytes_max: 4 * FRAME_BYTES,
            ..self
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.memory_bytes < 4096 || self.leaf_bytes < 4096 || self.segment_bytes < 4096 {
            return Err(StoreError::BadOption(
                "blocks in memory, leaves and journal segments have at least 4 KiB",
            ));
        }
        if self.young_percent == 0 || self.young_max < 2 {
            return Err(StoreError::BadOption(
                "young pieces need room: a percentage above 0, and two a leaf",
            ));
        }
        Ok(())
    }
}
