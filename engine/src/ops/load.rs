//! Loading rows in bulk: inserts, a batch at a time, by a transaction that does nothing else.
//!
//! What makes it faster than inserting row by row:
//! - the buckets of hash indexes that a batch will enter are asked for together, before the first is looked at: the
//!   misses of a whole batch overlap;
//! - looking the table up, pinning and the like happen once a batch;
//! - the log is written while the load goes on, in the parts of a large transaction, so that the commit only has to
//!   add the last one. Nothing is undone singly in a load, so a part never holds what was taken back; parts without
//!   their commit count for nothing.
//!
//! Rules: as for any insert (see [`crate::ops::write`]): a row is claimed under all its keys first, then its claims are
//! checked. A batch claims all its rows, then checks all of them. When one has met somebody else's claim, it and the
//! rows behind it are taken back, and claimed again when its keys have been seen free.

use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::sync::Backoff;

use crate::catalog::table::{FormRef, Structure, TableEntry, TableForm};
use crate::error::Result;
use crate::index::hash_of;
use crate::log::record::WRITE_BYTES;
use crate::ops::claim::Claimant;
use crate::ops::commit::PartsState;
use crate::ops::write::Origin;
use crate::ops::{Step, Wait, step};
use crate::row::{LayoutId, RowError, RowRef};
use crate::session::{Session, Write};

/// Rows of one batch: as many misses as a processor can keep under way, and more.
const BATCH_ROWS: usize = 64;
/// Bytes of one batch, which is to stay in the processor's caches.
const BATCH_BYTES: usize = 64 << 10;

/// Encoded rows that wait to be inserted together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Where each row ends.
    ends: Vec<usize>,
    /// The layout of all rows.
    layout: Option<LayoutId>,
    /// Rows that stand in the table, their keys checked.
    done: usize,
}

impl Batch {
    /// Adds a row; only of the layout of the others ([`Batch::takes`]).
    pub(crate) fn push(&mut self, row: RowRef<'_>) {
        debug_assert!(self.takes(row.layout()), "the rows of a batch have one layout");
        self.layout = Some(row.layout());
        self.bytes.extend_from_slice(&row);
        self.ends.push(self.bytes.len());
    }

    /// May a row of this layout be added?
    pub(crate) fn takes(&self, layout: LayoutId) -> bool {
        self.layout.is_none_or(|own| own == layout)
    }

    /// Sees to it that the rows are of the table's present layout.
    fn convert(&mut self, form: &TableForm) -> std::result::Result<(), RowError> {
        let present = form.layout.id();
        let Some(layout) = self.layout.filter(|layout| *layout != present) else { return Ok(()) };
        debug_assert_eq!(self.done, 0, "a layout does not change under a transaction that has written");
        let mut converted = Self::default();
        for row in self.left() {
            let row = form.accept(RowRef::known(layout, row))?;
            converted.push(RowRef::known(present, &row));
        }
        *self = converted;
        Ok(())
    }

    /// Is it time to insert them?
    pub(crate) fn is_full(&self) -> bool {
        self.ends.len() >= BATCH_ROWS || self.bytes.len() >= BATCH_BYTES
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.layout = None;
        self.done = 0;
    }

    /// How many rows stand in the table, their keys checked.
    pub(crate) fn done(&self) -> usize {
        self.done
    }

    /// The rows that are not done yet.
    fn left(&self) -> impl Iterator<Item = &[u8]> {
        (self.done..self.ends.len()).map(|row| {
            let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.bytes[start..self.ends[row]]
        })
    }
}

/// What a load has logged so far.
#[derive(Debug, Default)]
pub(crate) struct LoadState {
    pub(crate) parts: PartsState,
    /// Log bytes of the writes that stand in no part yet.
    unlogged: u64,
    /// The next row has met somebody else's claim.
    contested: bool,
}

impl Session {
    /// Inserts the rows of a batch, and logs what there is when it is enough for a part. After an error the transaction
    /// can only be rolled back.
    pub(crate) fn try_load(
        &mut self,
        entry: &Arc<TableEntry>,
        batch: &mut Batch,
        state: &mut LoadState,
    ) -> Result<Step<()>> {
        self.must_write()?;
        let form_ref = step!(self.touch(entry)?);
        let form = form_ref.get();
        form.must_be_whole()?;
        let guard = self.db().epochs.pin();
        self.make_room(batch.ends.len() - batch.done)?;
        batch.convert(form).map_err(|error| Self::row_error(form, error))?;
        self.prefetch_entries(form, batch, &guard);
        let mut backoff = Backoff::new();
        while batch.done < batch.ends.len() {
            if state.contested {
                // Whom there is to wait for is looked for without the claims.
                let row = batch.left().next().expect("rows are left");
                step!(self.check_claims(
                    form_ref,
                    Claimant { row, suffix: &[], id: None, record: None, looks: false },
                    None,
                    &guard
                )?);
                state.contested = false;
            }
            if let Some(at) = self.claim_rows(form_ref, batch, state, &guard)? {
                while self.writes.len() > at {
                    self.undo_last(&guard);
                }
                self.place().note_undone();
                state.contested = true;
                backoff.wait();
            }
        }
        drop(guard);
        self.log_ahead(state)
    }

    /// Claims the keys of all rows that are left, then checks them one after the other. `Some`: where the write of the
    /// first row stands that met somebody else's claim.
    fn claim_rows(
        &mut self,
        form_ref: FormRef,
        batch: &mut Batch,
        state: &mut LoadState,
        guard: &Guard<'_>,
    ) -> Result<Option<usize>> {
        let form = form_ref.get();
        let first = self.writes.len();
        for row in batch.left() {
            self.claim_row(form_ref, row, Origin::Fresh, guard)?;
        }
        for at in first..self.writes.len() {
            let Write { row: id, version, .. } = self.writes[at];
            let claimant = Claimant {
                row: form.row(version),
                suffix: form.suffix(version),
                id: Some(id),
                record: None,
                looks: false,
            };
            match self.check_claims(form_ref, claimant, None, guard)? {
                Step::Done(()) => {
                    batch.done += 1;
                    state.unlogged += (WRITE_BYTES + version.len()) as u64;
                }
                Step::Wait(_) => return Ok(Some(at)),
            }
        }
        Ok(None)
    }

    /// Asks for the buckets that the keys of a batch belong into.
    fn prefetch_entries(&mut self, form: &TableForm, batch: &Batch, guard: &Guard<'_>) {
        let mut key = std::mem::take(&mut self.key);
        for index in &form.indexes {
            // A hidden key is not known yet, and ordered indexes are walked down step by step.
            if let Structure::Hash(hash) = &index.structure
                && !matches!(index.key, crate::catalog::table::KeySource::Hidden)
            {
                for row in batch.left() {
                    index.key_of_row(row, &[], &mut key);
                    hash.prefetch(guard, hash_of(&key));
                }
            }
        }
        self.key = key;
    }

    /// Room for more writes in the list of them, charged before it is taken: it is the one thing that grows with a load beside
    /// its rows.
    fn make_room(&mut self, rows: usize) -> Result<()> {
        let needed = self.writes.len() + rows;
        let before = self.writes.capacity();
        if needed <= before {
            return Ok(());
        }
        let capacity = needed.max(before + before / 2);
        self.charge_ahead((capacity - before) * size_of::<Write>())?;
        self.writes.reserve_exact(capacity - self.writes.len());
        Ok(())
    }

    /// Writes parts of the log, as soon as there is enough for one.
    fn log_ahead(&mut self, state: &mut LoadState) -> Result<Step<()>> {
        if let Some(log) = self.db().log()
            && state.unlogged > self.db.options.part_bytes
        {
            match self.write_parts(log, &mut state.parts)? {
                Step::Done(left) => state.unlogged = left,
                Step::Wait(wait @ Wait::LogSpace { .. }) => return Ok(Step::Wait(wait)),
                Step::Wait(_) => unreachable!("parts wait for room in the log only"),
            }
        }
        Ok(Step::Done(()))
    }
}
