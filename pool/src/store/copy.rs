//! Copying a store as bytes while it goes on working.
//!
//! Pages of pieces never change, and the manifest names the pieces. So one moment of a store is kept by holding its pieces,
//! whose extents stay until the last of them is copied, and its batches in memory, which are few ([`Store::pin`]). The copy
//! has the pieces in their places, and a journal of its own with those batches.
//!
//! | of the moment | in the copy |
//! |---|---|
//! | pieces | the same pages in the same places of the page file; the rest of it is holes |
//! | sealed and active blocks | records "written and confirmed" of the journal, in the order of their positions |
//! | pieces of batches on their way into the leaves | they wait, and the journal confirms them in their turn |
//! | unconfirmed batches | they wait: as records "written" of the journal, or as pieces |
//!
//! Rules:
//! - Manifest and version are taken under both locks that change them, so they are of one moment.
//! - Positions up to `flushed` are in pieces; the journal of the copy numbers from there on without a gap.
//! - The manifest is written last: without it the copy is no store.
//!
//! Limits: a bulk load that has not ended is not in the copy. Memory: the batches until the journal is written, and the
//! fences and filters of pieces that are given up meanwhile until they are copied.

use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use thermocline_base::io::{Copier, Io, OpenMode};

use super::Store;
use super::end::{EndKeeper, OwnerPosition, StoreEnd};
use super::error::{Result, StoreError};
use super::journal::Journal;
use super::manifest::{Change, Manifest, ManifestState};
use super::piece::{Files, Piece};
use super::recover::PAGES_NAME;
use super::types::{Batch, BatchId};
use super::version::{Sealed, WaitingBatch};
use crate::space::EXTENT_PAGES;

/// Groups of the copy's journal are about so long.
const GROUP_BYTES: usize = 256 << 10;

/// A record in the journal of the copy.
#[derive(Debug)]
enum Kept {
    Written(Arc<Batch>, bool),
    Confirmed(BatchId),
}

/// One moment of a store, until it is dropped.
#[derive(Debug)]
pub struct Pinned {
    files: Arc<Files>,
    state: ManifestState,
    kept: Vec<Kept>,
    /// By their places in the file.
    pieces: Vec<Arc<Piece>>,
    database: [u8; 16],
    segment_bytes: u64,
    /// Carries the owner's position, and knows the copy's end.
    keeper: Arc<EndKeeper>,
}

impl Store {
    /// Keeps what is there now. Waits for nothing but a change of the manifest.
    ///
    /// # Panics
    /// When the manifest and the version do not fit together, which is a broken invariant.
    #[must_use]
    pub fn pin(&self) -> Pinned {
        let inner = &self.inner;
        let (mut state, version) = {
            let manifest = inner.manifest.lock();
            let _control = inner.control.lock();
            (manifest.state.clone(), inner.current())
        };
        let mut kept = Vec::new();
        let mut pieces: Vec<Arc<Piece>> = Vec::new();
        let mut waiting = Vec::new();
        for sealed in version.sealed.iter().rev() {
            match sealed {
                Sealed::Block { block, .. } => {
                    kept.extend(block.batches().map(|batch| Kept::Written(batch, true)));
                }
                Sealed::Piece { id, piece, .. } => {
                    waiting.push(*id);
                    pieces.push(Arc::clone(piece));
                    kept.push(Kept::Confirmed(*id));
                }
                Sealed::Load { .. } => {}
            }
        }
        kept.extend(version.active.batches().map(|batch| Kept::Written(batch, true)));
        for batch in &version.waiting {
            match batch {
                WaitingBatch::Memory { waiting, .. } => {
                    kept.push(Kept::Written(Arc::clone(&waiting.batch), false));
                }
                WaitingBatch::Piece { id, piece } => {
                    waiting.push(*id);
                    pieces.push(Arc::clone(piece));
                }
            }
        }
        // Batches that were discarded, whose pieces the manifest still names.
        let gone: Vec<(u64, u64)> = state.waiting.iter().map(|(batch, piece)| (*batch, *piece)).collect();
        for (batch, piece) in gone.into_iter().filter(|(batch, _)| !waiting.contains(&BatchId(*batch))) {
            let mut removed = vec![Change::RemoveWaiting(batch), Change::RemovePiece(piece)];
            if let Some(object) = state.objects.get(&batch) {
                removed.extend([Change::RemoveObject(batch), Change::RemovePiece(object.piece)]);
            }
            let fits = removed.iter().try_for_each(|change| state.apply(change));
            assert!(fits.is_some(), "the manifest names the pieces of batches that wait");
        }
        // Its journal begins anew.
        state.journal_floor = 0;
        pieces.extend(version.leaves.list.iter().flat_map(|leaf| leaf.pieces()).cloned());
        let objects = version.objects.iter().filter(|(batch, _)| state.objects.contains_key(batch));
        pieces.extend(objects.map(|(_, object)| Arc::clone(&object.piece)));
        pieces.sort_unstable_by_key(|piece| (piece.meta.runs.first().copied(), piece.meta.id));
        pieces.dedup_by_key(|piece| piece.meta.id);
        assert!(
            pieces.len() == state.pieces.len()
                && pieces.iter().all(|piece| state.pieces.contains_key(&piece.meta.id)),
            "version and manifest are of one moment"
        );
        let keeper = EndKeeper::new(None);
        // The copy goes with a checkpoint of its own, which may be an earlier one.
        keeper.found_position(OwnerPosition { checkpoint: 0, ..inner.keeper.carried() });
        state.position = keeper.carried();
        Pinned {
            keeper,
            files: Arc::clone(&inner.files),
            state,
            kept,
            pieces,
            database: inner.options.database_id,
            segment_bytes: inner.options.segment_bytes,
        }
    }
}

impl Pinned {
    /// Number of bytes that [`Pinned::copy`] will tell of.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let page_bytes = self.files.page_bytes();
        self.pieces.iter().map(|piece| piece.meta.disk_bytes(page_bytes)).sum::<u64>() + page_bytes as u64
    }

    /// Writes a store with what was there into a directory, which is empty. Blocks. `told` is as in [`Copier::copy`]; where it
    /// breaks off, what is there is no store. Gives the end of the copy.
    ///
    /// # Errors
    /// The system's, of either side.
    pub fn copy(
        mut self,
        io: &Arc<dyn Io>,
        dir: &Path,
        copier: &mut Copier,
        told: &mut dyn FnMut(u64) -> ControlFlow<(), u64>,
    ) -> Result<ControlFlow<(), StoreEnd>> {
        io.create_dir_all(dir)?;
        self.write_journal(io, dir)?;
        if self.copy_pages(io, dir, copier, told)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        io.sync_dir(dir)?;
        let page_size = self.files.device.page_size();
        let state = std::mem::take(&mut self.state);
        Manifest::create(io, dir, self.database, page_size, state, &self.keeper)?;
        Ok(ControlFlow::Continue(self.keeper.end()))
    }

    /// Batches go from memory as they are written.
    fn write_journal(&mut self, io: &Arc<dyn Io>, dir: &Path) -> Result<()> {
        let flushed = self.state.flushed;
        let (mut journal, _) =
            Journal::open(io, dir, self.database, self.segment_bytes, flushed, 0, true, 0, &self.keeper)?;
        journal.begin()?;
        let write = |journal: &mut Journal| journal.write().map_err(|(error, _): (StoreError, bool)| error);
        for kept in std::mem::take(&mut self.kept) {
            match &kept {
                Kept::Written(batch, confirmed) => journal.collect_written(batch, *confirmed),
                Kept::Confirmed(id) => _ = journal.collect(&super::journal::Record::Confirmed(*id)),
            }
            if journal.collected_bytes() >= GROUP_BYTES {
                write(&mut journal)?;
            }
        }
        write(&mut journal)
    }

    fn copy_pages(
        &mut self,
        io: &Arc<dyn Io>,
        dir: &Path,
        copier: &mut Copier,
        told: &mut dyn FnMut(u64) -> ControlFlow<(), u64>,
    ) -> Result<ControlFlow<()>> {
        let from = io.open_direct(self.files.device.path(), OpenMode::Read)?;
        let to = io.open_direct(&dir.join(PAGES_NAME), OpenMode::CreateNew)?;
        let page_bytes = self.files.page_bytes() as u64;
        let extent_bytes = EXTENT_PAGES * page_bytes;
        let ends = self.pieces.iter().flat_map(|piece| &piece.meta.runs).map(|run| run.first + run.count);
        to.set_len(ends.max().unwrap_or(1) * extent_bytes)?;
        // It says what the pages are sealed with.
        let header = 0..page_bytes;
        let mut copy = |stretches: Vec<Range<u64>>| copier.copy(&*from, &*to, stretches, told);
        if copy(Vec::from_iter([header]))?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        // Runs that follow each other in the file are one stretch; pieces go when they are copied.
        let mut rest = std::mem::take(&mut self.pieces).into_iter().peekable();
        while rest.peek().is_some() {
            let mut together: Vec<Arc<Piece>> = Vec::new();
            let mut extents = 0;
            while extents < EXTENTS_AT_ONCE
                && let Some(piece) = rest.next()
            {
                extents += piece.meta.extents();
                together.push(piece);
            }
            let mut runs: Vec<_> =
                together.iter().flat_map(|piece| piece.meta.runs.iter().copied()).collect();
            runs.sort_unstable();
            let mut stretches: Vec<Range<u64>> = Vec::new();
            for run in runs {
                let (start, end) = (run.first * extent_bytes, (run.first + run.count) * extent_bytes);
                match stretches.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => stretches.push(start..end),
                }
            }
            if copy(stretches)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        to.sync_data()?;
        Ok(ControlFlow::Continue(()))
    }
}

/// Extents that are copied before their pieces go: 64 MiB in pages of 4 KiB.
const EXTENTS_AT_ONCE: u64 = 512;
