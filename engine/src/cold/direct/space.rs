//! Space that comes back: files of slots that hold nothing of use any more, and a file of decisions that has become long.
//!
//! | a file of slots goes when | because |
//! |---|---|
//! | none of its slots is taken, and nobody waits for a write | its rows have come back to memory, or were deleted |
//! | its table is dropped | nobody asks for it any more |
//! | its table was emptied after its latest batch was written | nobody may see what it holds |
//!
//! First a decision says that the file is gone, durably; then it is removed. What a crash leaves of a file without a
//! decision counts for nothing: opening removes it, and who creates a file of that name begins with an empty one.
//!
//! The file of decisions is replaced, as it is at open, by one with what still counts: the batches that have slots or wait, and the
//! files. What it forgets are removals, so slots are durable first.

use std::collections::BTreeMap;
use std::sync::Arc;

use thermocline_base::sync::Ordering;
use thermocline_pool::store::{BatchId, IndexId as StoreIndex, StoreError};

use super::decisions::{Decision, NewDecisions};
use super::slots::{Segment, SegmentId};
use super::writer::Writer;
use super::{Shared, read, write};

/// How many slots each batch has in each table, by its stamp.
#[derive(Debug, Default)]
pub(super) struct Live(BTreeMap<(u64, u32), (BatchId, u32)>);

impl Live {
    /// A slot has this stamp.
    pub(super) fn add(&mut self, stamp: u64, batch: BatchId, table: u32) {
        self.0.entry((stamp, table)).or_insert((batch, 0)).1 += 1;
    }

    /// A slot with this stamp is free.
    pub(super) fn remove(&mut self, stamp: u64, table: u32) {
        if let Some((_, slots)) = self.0.get_mut(&(stamp, table)) {
            *slots -= 1;
            if *slots == 0 {
                self.0.remove(&(stamp, table));
            }
        }
    }

    /// All files of a table are gone.
    fn forget_table(&mut self, table: u32) {
        self.0.retain(|(_, of), _| *of != table);
    }

    /// The stamps that slots have.
    fn stamps(&self) -> BTreeMap<u64, BatchId> {
        self.0.iter().map(|((stamp, _), (batch, _))| (*stamp, *batch)).collect()
    }
}

impl Shared {
    /// The decisions that count, if removals that did not get into their slots are decided under this stamp.
    pub(super) fn kept(&self, stamp: u64) -> Vec<Decision> {
        let written =
            |stamp, batch, confirmed, removals| Decision::Written { stamp, batch, confirmed, removals };
        let mut stamps = self.live.lock().stamps();
        let waiting = read(&self.waiting);
        stamps.retain(|stamp, _| waiting.values().all(|of| of.stamp != *stamp));
        let mut kept: Vec<Decision> =
            stamps.into_iter().map(|(stamp, batch)| written(stamp, batch, true, Vec::new())).collect();
        kept.extend(waiting.iter().map(|(batch, of)| written(of.stamp, *batch, false, of.removals.clone())));
        drop(waiting);
        // A batch of nobody.
        let unapplied = read(&self.unapplied).clone();
        if !unapplied.is_empty() {
            kept.push(written(stamp, BatchId(0), true, unapplied));
        }
        let undecided = self.new_files.lock().clone();
        let files = self.segments().into_iter().map(|segment| segment.id);
        kept.extend(files.filter(|id| !undecided.contains(id)).map(Decision::File));
        kept
    }

    /// All files of slots.
    fn segments(&self) -> Vec<Arc<Segment>> {
        read(&self.tables).values().flat_map(|table| table.segments.values().cloned()).collect()
    }

    fn is_there(&self, segment: &Arc<Segment>) -> bool {
        let tables = read(&self.tables);
        let there = tables.get(&segment.id.table).and_then(|table| table.segments.get(&segment.id.segment));
        there.is_some_and(|there| Arc::ptr_eq(there, segment))
    }

    /// What has become of no use goes, while nobody waits for a write.
    pub(super) fn tidy(&self, writer: &mut Writer) {
        if self.failure.get().is_some() {
            return;
        }
        let emptied = std::mem::take(&mut *self.emptied.lock());
        // Noted several times, perhaps, or gone already.
        let emptied: BTreeMap<SegmentId, Arc<Segment>> =
            emptied.into_iter().map(|segment| (segment.id, segment)).collect();
        let is_empty = |segment: &Arc<Segment>| segment.taken_count() == 0 && self.is_there(segment);
        self.give_back(writer, emptied.into_values().filter(is_empty).collect());
        if writer.decisions.bytes() >= writer.replace_at {
            self.replace_decisions(writer);
        }
    }

    /// Gives files of slots back. `false`: they stay, for now.
    fn give_back(&self, writer: &mut Writer, segments: Vec<Arc<Segment>>) -> bool {
        if segments.is_empty() {
            return true;
        }
        let gone: Vec<SegmentId> = segments.iter().map(|segment| segment.id).collect();
        let decisions: Vec<Decision> = gone.iter().copied().map(Decision::Gone).collect();
        if let Err((error, is_final)) = writer.decisions.append(&decisions) {
            tracing::warn!(%error, "files of slots that hold nothing any more stay");
            if is_final {
                self.fail(error);
            }
            return false;
        }
        self.new_files.lock().retain(|id| !gone.contains(id));
        let mut tables = write(&self.tables);
        for id in &gone {
            if let Some(table) = tables.get_mut(&id.table) {
                table.segments.remove(&id.segment);
            }
        }
        drop(tables);
        for segment in segments {
            if let Err(error) = self.io.remove(segment.file.path()) {
                tracing::warn!(%error, "a file of slots that holds nothing any more stays until the store is opened again");
            }
        }
        true
    }

    /// Gives the files of a table back in which nothing is of a later batch, and its place if none is left and `is_dropped`.
    /// Those that stay for now go when this is asked for again, at the latest after the store was opened.
    pub(super) fn drop_files(&self, table: u32, to: BatchId, is_dropped: bool) {
        let mut writer = self.writer.lock();
        let Some(writer) = writer.as_mut().filter(|_| self.failure.get().is_none()) else { return };
        let is_old = |segment: &&Arc<Segment>| segment.is_up_to(to);
        let segments = {
            let tables = read(&self.tables);
            let Some(of) = tables.get(&table) else { return };
            of.segments.values().filter(is_old).cloned().collect()
        };
        if !self.give_back(writer, segments) {
            return;
        }
        let mut tables = write(&self.tables);
        let Some(of) = tables.get_mut(&table).filter(|of| of.segments.is_empty()) else { return };
        of.damage = None;
        if is_dropped {
            tables.remove(&table);
        }
        drop(tables);
        self.live.lock().forget_table(table);
    }

    /// Forgets the secondary entries that batches up to this one have written.
    pub(super) fn drop_entries(&self, index: StoreIndex, to: BatchId) {
        if let Some(keys) = write(&self.secondaries).get_mut(&index) {
            keys.retain(|_, batch| *batch > to);
        }
    }

    /// Puts a file of decisions without what nobody needs any more in the place of the one that has become long.
    fn replace_decisions(&self, writer: &mut Writer) {
        let prepared = || -> Result<NewDecisions, StoreError> {
            for segment in self.segments() {
                segment.file.sync_data().map_err(|error| self.fail(error.into()))?;
            }
            let kept = self.kept(writer.next_stamp);
            let generation = writer.decisions.generation() + 1;
            NewDecisions::write(&*self.io, &self.dir, self.geometry, generation, &kept, &self.ties)
        };
        let bytes = writer.decisions.bytes();
        match prepared() {
            Ok(new) => {
                // The old file is gone from here on, or nobody knows.
                match new.install(&*self.io, &self.dir) {
                    Ok(decisions) => writer.decisions = decisions,
                    Err(error) => drop(self.fail(error)),
                }
                writer.next_stamp += 1;
                let now = writer.decisions.bytes();
                self.counters.bytes_written.fetch_add(now, Ordering::Relaxed);
                writer.replace_at = writer.replace_least.max(2 * now);
            }
            Err(error) => {
                tracing::warn!(%error, "the file of decisions of a direct store stays long for now");
                writer.replace_at = bytes + writer.replace_least;
            }
        }
    }
}
