//! Work in the background: flushing blocks, merging leaves, writing unconfirmed batches that are many as pieces.
//!
//! # Merge policy (lazy leveling over a partition of the keys)
//! ```text
//!   sealed block ──flush──► a young piece for each leaf (or one for all of them, if they would be too small)
//!   leaf: young pieces + last-level piece ──merge──► a new last-level piece, or several and as many leaves
//! ```
//! - As long as all young pieces together are below a share of the last level nothing is merged; then the leaf with the most
//!   young bytes for its last-level bytes is. So leaves are merged one after the other, each when it holds about twice
//!   the share, and on average half of that waits: that is where write amplification (1 / twice the share) and space
//!   amplification (1 + the share) come from. No merge is larger than a leaf, so little space is needed meanwhile.
//! - A leaf in which scans pass many keys that were removed (the front of a queue, say) is merged as soon as passing them has
//!   cost about as much as merging it does.
//! - A leaf is merged when it holds removals of half of its records: they take less room than what they remove, so it would
//!   otherwise wait for its last row to go. When much of the page file is free then, the file system gets it back.
//! - A leaf that gets too long is cut, one that gets short is merged together with its neighbour. One that gets empty stays
//!   until then: a piece may lie over several leaves, and where it was merged it must not be seen again.
//! - In a store with many leaves a block's part for each would be a few pages: such a block becomes one *wide* piece in all
//!   leaves. When there are many wide pieces they are merged with each other and cut by leaves.
//!
//! Rules:
//! - Sealed blocks are flushed one at a time and in their order, so that pieces come in the order of positions.
//! - A merge takes in all pieces that a leaf has when it begins, but for the newest wide ones in a store with many leaves;
//!   or wide ones only, which are the newest: always a contiguous stretch of positions of each leaf.
//! - Pages are durable before the manifest names them; the manifest is durable before readers see what it says; and
//!   extents and journal segments are given up after that.
//! - Only confirmed batches are in blocks, so only they are merged with others.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use thermocline_base::multiplex::block_on;
use thermocline_base::sync::Ordering;

use super::error::{Result, StoreError};
use super::filter::Scratch;
use super::inner::{Dropped, Inner};
use super::manifest::{Bound, Change, Manifest};
use super::memory::{MemoryBlock, Waiting};
use super::merge::{Kept, Merge, Merged, Source};
use super::object::{self, Dead, ObjectWrite};
use super::piece::{CHUNK_PAGES_MIN, Piece, PieceBuilder};
use super::version::{Leaf, Leaves, Sealed, Version, WaitingBatch};
use super::wide::Wide;
use crate::mutation::{self, Rule};

/// A block's part for a leaf is at least this long on average; else the block becomes one wide piece.
const SLICE_BYTES_MIN: u64 = 64 << 10;
/// Journal segments in use at which the batches that keep them are written as pieces.
const SEGMENTS_MAX: u64 = 16;

/// The next task.
#[derive(Debug)]
enum Task {
    Flush(Sealed),
    Spill {
        waiting: Arc<Waiting>,
    },
    /// Leaves that lie next to each other.
    Merge {
        lowers: Vec<Bound>,
    },
    /// Wide pieces.
    Narrow {
        wide: Wide,
    },
    ForgetDiscarded,
    WriteObject(ObjectWrite),
}

/// A piece and the part of the keys that it is for.
type Placed = (Arc<Piece>, Bound, Option<Bound>);

impl Inner {
    /// Does one thing. `false`: there was nothing to do.
    pub(super) fn step_work(self: &Arc<Self>, scratch: &mut Scratch) -> bool {
        if let Some(failure) = self.failure.get() {
            self.refuse_objects(&StoreError::ReadOnly(Box::new(failure.clone())));
            return false;
        }
        let Some(task) = self.pick() else { return false };
        let task = match task {
            Task::WriteObject(write) => {
                self.do_write_object(write, scratch);
                return true;
            }
            task => task,
        };
        let result = match &task {
            Task::WriteObject(_) => unreachable!("it was written above"),
            Task::Flush(sealed) => self.flush(sealed, scratch),
            Task::Spill { waiting } => self.spill(waiting, scratch),
            Task::Merge { lowers } => self.merge(lowers, scratch),
            Task::Narrow { wide } => self.narrow(wide, scratch),
            Task::ForgetDiscarded => self.change(Vec::new(), |_| None, Vec::new(), |_| Ok(())),
        };
        self.finish(&task, result);
        true
    }

    fn finish(self: &Arc<Self>, task: &Task, result: Result<()>) {
        {
            let mut control = self.control.lock();
            match task {
                Task::Flush(_) | Task::ForgetDiscarded => control.flushing = false,
                Task::Narrow { .. } => (control.flushing, control.narrowing) = (false, false),
                Task::Spill { .. } | Task::WriteObject(_) => {}
                Task::Merge { lowers } => lowers.iter().for_each(|lower| {
                    control.merging.remove(lower);
                }),
            }
            match (&result, task) {
                (Ok(()), _) => control.stuck = false,
                (Err(StoreError::Page { .. }), Task::Merge { lowers }) => {
                    // Its other pages can be read, and other leaves merged.
                    control.broken.extend(lowers.iter().cloned());
                }
                (Err(_), _) => control.stuck = true,
            }
        }
        match result {
            Ok(()) => {
                *self.full.lock() = None;
                if matches!(task, Task::Merge { .. } | Task::Narrow { .. })
                    && let Err(error) = self.files.space.give_back()
                {
                    tracing::warn!(%error, "free space of the page file stays with it");
                }
            }
            Err(error) if error.is_full() => {
                tracing::warn!(%error, "the store cannot write records on until there is space");
                *self.full.lock() = Some(error);
            }
            Err(error) => tracing::error!(%error, "work of the store in the background failed"),
        }
        self.wake_crowd();
        self.work_signal.ring();
    }

    /// Is nothing being done, and nothing to be done?
    pub(super) fn is_idle(&self) -> bool {
        let control = self.control.lock();
        let version = self.current();
        let quiet = !control.flushing && control.merging.is_empty() && control.discarded.is_empty();
        let nothing = version.sealed.is_empty() && self.pick_leaves(&version.leaves, &control).is_none();
        let queue = self.queue.lock();
        quiet && nothing && queue.in_flight.is_empty()
    }

    /// Something has changed: work that failed may be tried again.
    pub(super) fn try_again(&self) {
        let stuck = std::mem::take(&mut self.control.lock().stuck);
        if stuck {
            self.work_signal.ring();
        }
    }

    /// Unconfirmed batches take a lot of memory, or hold on to a lot of the journal.
    pub(super) fn is_spill_due(&self) -> bool {
        let version = self.current();
        let flushed = self.flushed.load(Ordering::Relaxed);
        version.waiting_bytes() > self.options.memory_bytes / 2
            || (self.journal_segments.load(Ordering::Relaxed) > SEGMENTS_MAX
                && version.waiting_numbers().min().is_some_and(|number| number <= flushed))
    }

    /// Merging is so far behind that writers have to wait. They do not wait for what cannot be merged.
    pub(super) fn is_behind(&self, version: &Version) -> bool {
        let leaves = &version.leaves;
        let most = self.young_target(leaves) * 9 / 8 + self.options.memory_bytes as u64;
        let behind = leaves.young_bytes_all > most;
        if !behind {
            return false;
        }
        let control = self.control.lock();
        !control.merging.is_empty() || self.pick_leaves(leaves, &control).is_some()
    }

    /// Bytes of young pieces above which leaves are merged.
    fn young_target(&self, leaves: &Leaves) -> u64 {
        (leaves.last_bytes_all * self.options.young_percent / 100).max(2 * self.options.memory_bytes as u64)
    }

    fn pick(&self) -> Option<Task> {
        // Its writer waits for it, and it has not become too crowded for him.
        if let Some(write) = self.next_object() {
            return Some(Task::WriteObject(write));
        }
        let mut control = self.control.lock();
        let version = self.current();
        if control.stuck && self.options.threads > 0 {
            return None;
        }
        if !control.flushing {
            if let Some(oldest) = version.sealed.last() {
                control.flushing = true;
                return Some(Task::Flush(oldest.clone()));
            }
            if !control.discarded.is_empty() {
                control.flushing = true;
                return Some(Task::ForgetDiscarded);
            }
        }
        if self.is_spill_due()
            && let Some(waiting) = self.mark_spilling(&version)
        {
            return Some(Task::Spill { waiting });
        }
        if !control.flushing && control.merging.is_empty() {
            let wide = Wide::of(&version.leaves);
            if wide.are_many() {
                (control.flushing, control.narrowing) = (true, true);
                return Some(Task::Narrow { wide });
            }
        }
        if control.narrowing {
            return None;
        }
        let lowers = self.pick_leaves(&version.leaves, &control)?;
        control.merging.extend(lowers.iter().cloned());
        Some(Task::Merge { lowers })
    }

    /// The leaf that most needs to be merged, with short neighbours.
    fn pick_leaves(&self, leaves: &Leaves, control: &super::inner::Control) -> Option<Vec<Bound>> {
        let free =
            |leaf: &Leaf| !control.merging.contains(&leaf.lower) && !control.broken.contains(&leaf.lower);
        let last = |at: usize| {
            let last = leaves.list[at].last.as_ref();
            last.map_or(0, |piece| piece.meta.disk_bytes(self.files.page_bytes()))
        };
        let all = leaves.young_bytes_all > self.young_target(leaves);
        let dropped = self.dropped();
        let useless = |leaf: &Leaf| leaf.pieces().any(|piece| piece.has_useless(&dropped));
        let due = |at: usize| {
            let leaf = &leaves.list[at];
            let young = !leaf.young.is_empty() && (all || leaf.young.len() > self.options.young_max);
            free(leaf) && (young || leaves.is_worn(at) || leaves.is_hollow(at) || useless(leaf))
        };
        // The share of young bytes, in 2^-16; too many pieces go first, and then what holds scans up. What has wide pieces
        // only comes last: they are to be merged with each other.
        let wide = Wide::of(leaves);
        let need = |at: usize| {
            let leaf = &leaves.list[at];
            let many = leaf.young.len() > self.options.young_max;
            (
                many,
                leaves.is_worn(at) || leaves.is_hollow(at),
                leaf.young.len() > wide.in_leaf(at),
                (leaves.young_bytes[at] << 16) / (last(at) + self.options.leaf_bytes / 16),
            )
        };
        let chosen = (0..leaves.list.len()).filter(|at| due(*at)).max_by_key(|at| need(*at))?;
        let bytes = |at: usize| leaves.young_bytes[at] + last(at);
        let mut total = bytes(chosen);
        let mut range = chosen..chosen + 1;
        let short = self.options.leaf_bytes / 2;
        // What was merged in one leaf must not be seen there again because its neighbour has it.
        let joins = |at: usize, total| {
            let like = wide.in_leaf(at) == wide.in_leaf(chosen);
            like && free(&leaves.list[at]) && (bytes(at) == 0 || total + bytes(at) < short)
        };
        while range.end < leaves.list.len() && joins(range.end, total) {
            total += bytes(range.end);
            range.end += 1;
        }
        while range.start > 0 && joins(range.start - 1, total) {
            range.start -= 1;
            total += bytes(range.start);
        }
        Some(leaves.list[range].iter().map(|leaf| leaf.lower.clone()).collect())
    }

    /// Writes a sealed block, or a late confirmed batch, into the leaves.
    fn flush(&self, sealed: &Sealed, scratch: &mut Scratch) -> Result<()> {
        let (pieces, to, confirm) = match sealed {
            Sealed::Load { load, position } => {
                let floor = self.journal.lock().floor(*position, self.current().pinned());
                if let Err(error) = self.flush_load(load, *position, floor) {
                    // Its pieces are given up; the loader may try again.
                    let _control = self.control.lock();
                    let mut version = Version::clone(&self.current());
                    version.sealed.pop();
                    self.publish(version);
                    load.done.keep(Err(error.clone()));
                    return Err(error);
                }
                load.done.keep(Ok(()));
                return self.flushed(*position, floor);
            }
            Sealed::Block { block, from, to } => (self.write_block(block, *from, *to, scratch)?, *to, None),
            Sealed::Piece { id, piece, position } => {
                (vec![(Arc::clone(piece), Bound::default(), None)], *position, Some(*id))
            }
        };
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        let mut changes = match confirm {
            Some(id) => vec![Change::Confirm { batch: id.0, position: to }],
            None => placing(&pieces),
        };
        changes.push(Change::Flushed(to));
        let floor = self.journal.lock().floor(to, self.current().pinned());
        changes.push(Change::JournalFloor(floor));
        let new = if confirm.is_some() {
            Vec::new()
        } else {
            pieces.iter().map(|(piece, ..)| Arc::clone(piece)).collect()
        };
        self.change(
            new,
            |_| Some(changes),
            Vec::new(),
            |version| {
                version.sealed.pop();
                if mutation::off(Rule::FlushSwitchesAtOnce) {
                    self.publish(version.clone());
                }
                version.leaves = Arc::new(version.leaves.with(&pieces));
                Ok(())
            },
        )?;
        self.flushed(to, floor)
    }

    /// The manifest says that everything up to `to` is in pieces.
    fn flushed(&self, to: u64, floor: u64) -> Result<()> {
        self.flushed.store(to, Ordering::Relaxed);
        let mut journal = self.journal.lock();
        journal.release(floor);
        self.journal_segments.store(journal.segment_count() as u64, Ordering::Relaxed);
        self.control.lock().journal_mark = journal.bytes_in_use();
        Ok(())
    }

    fn write_block(
        &self,
        block: &Arc<MemoryBlock>,
        from: u64,
        to: u64,
        scratch: &mut Scratch,
    ) -> Result<Vec<Placed>> {
        let segments = block.segments(block.published());
        let sources = segments.into_iter().map(|segment| Source::segment(block, segment)).collect();
        let leaves = Arc::clone(&self.current().leaves);
        let bytes = block.batch_bytes() as u64;
        let narrow = bytes / leaves.list.len() as u64 >= SLICE_BYTES_MIN.min(self.options.leaf_bytes / 64);
        let bounds = if narrow { bounds_of(&leaves) } else { vec![Bound::default()] };
        let merge = Merge::new(sources, false)?;
        self.cut((merge, &mut Dead::default()), (&bounds, None), from, to, bytes, scratch)
    }

    /// Writes what a merge gives (and counts what it drops) as pieces for the parts of the keys that begin at `bounds`, the last one up to `end`.
    fn cut(
        &self,
        (merge, dead): (Merge, &mut Dead),
        (bounds, end): (&[Bound], Option<&Bound>),
        from: u64,
        to: u64,
        bytes: u64,
        scratch: &mut Scratch,
    ) -> Result<Vec<Placed>> {
        let dropped = self.dropped().clone();
        let expected = bytes / bounds.len() as u64;
        let new_piece = || PieceBuilder::new(&self.files, self.piece_name(), true, expected);
        let mut placed: Vec<Placed> = Vec::new();
        let mut part = 0;
        let mut builder = new_piece();
        let upper = |part: usize| bounds.get(part + 1);
        let until = |part: usize| upper(part).or(end).cloned();
        let mut add = |placed: &mut Vec<Placed>, entry: Merged<'_>, scratch: &mut Scratch| {
            if dropped.has(entry.index, entry.batch) {
                return Ok(Kept::No);
            }
            while let Some(next) = upper(part)
                && (entry.index, entry.key) >= (next.index, &*next.key)
            {
                if !builder.is_empty() {
                    let full = std::mem::replace(&mut builder, new_piece());
                    let piece = Arc::new(full.finish(from, to, scratch)?.written_without(&dropped));
                    placed.push((piece, bounds[part].clone(), until(part)));
                }
                part += 1;
            }
            builder.add(entry)
        };
        let result = merge.run(dead, |entry| add(&mut placed, entry, scratch)).and_then(|()| {
            if !builder.is_empty() {
                let piece = Arc::new(builder.finish(from, to, scratch)?.written_without(&dropped));
                placed.push((piece, bounds[part].clone(), until(part)));
            }
            Ok(())
        });
        if let Err(error) = result {
            // Nothing refers to them.
            placed.iter().for_each(|(piece, ..)| piece.give_up());
            return Err(error);
        }
        Ok(placed)
    }

    /// Pages that each of the sources of a merge reads at once: two such stretches of each are as much as a block, if the
    /// sources are not too many.
    fn chunk_among(&self, sources: usize) -> u32 {
        let share = self.options.memory_bytes / (2 * sources.max(1) * self.files.page_bytes());
        (share as u64).clamp(CHUNK_PAGES_MIN as u64, self.files.chunk_pages()) as u32
    }

    /// Merges wide pieces with each other and cuts them by leaves.
    fn narrow(&self, wide: &Wide, scratch: &mut Scratch) -> Result<()> {
        // No leaf is being merged, and no other piece comes meanwhile: the leaves stay those of the beginning.
        let version = self.current();
        let leaves = Arc::clone(&version.leaves);
        let mut dead = Dead::among(&version.objects);
        let mut placed: Vec<Placed> = Vec::new();
        for (range, pieces) in wide.stretches() {
            match self.narrow_in(&leaves, range, pieces, &mut dead, scratch) {
                Ok(more) => placed.extend(more),
                Err(error) => {
                    placed.iter().for_each(|(piece, ..)| piece.give_up());
                    return Err(error);
                }
            }
        }
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        let gone: HashSet<u64> = wide.pieces.iter().map(|piece| piece.meta.id).collect();
        let new = placed.iter().map(|(piece, ..)| Arc::clone(piece)).collect();
        let without =
            leaves.list.iter().map(|leaf| Arc::new(leaf.without(|piece| gone.contains(&piece.meta.id))));
        let next = Leaves::new(without.collect()).with(&placed);
        let mut changes: Vec<Change> =
            placed.iter().map(|(piece, ..)| Change::AddPiece(piece.meta.clone())).collect();
        changes.extend(next.list.iter().map(|leaf| set_leaf(leaf)));
        changes.extend(gone.iter().map(|id| Change::RemovePiece(*id)));
        let mut manifest = self.manifest.lock();
        let objects = dead.settle(&manifest.state, &mut changes);
        self.change_locked(&mut manifest, new, changes, wide.pieces.clone(), |version| {
            version.leaves = Arc::new(next);
            Ok(object::without(version, &objects))
        })
    }

    /// The same in a stretch of leaves that have the same ones.
    fn narrow_in(
        &self,
        leaves: &Leaves,
        range: Range<usize>,
        pieces: &[Arc<Piece>],
        dead: &mut Dead,
        scratch: &mut Scratch,
    ) -> Result<Vec<Placed>> {
        let chunk = self.chunk_among(pieces.len());
        let (lower, upper) = (&leaves.list[range.start].lower, leaves.upper(range.end - 1));
        let sources = pieces.iter().map(|piece| Source::piece(piece, lower, upper, chunk)).collect();
        let from = pieces.iter().map(|piece| piece.from()).min().unwrap_or(0);
        let to = pieces.iter().map(|piece| piece.to()).max().unwrap_or(0);
        let all: u64 = pieces.iter().map(|piece| piece.meta.disk_bytes(self.files.page_bytes())).sum();
        let bytes = all * range.len() as u64 / leaves.list.len() as u64;
        let bounds: Vec<Bound> = leaves.list[range].iter().map(|leaf| leaf.lower.clone()).collect();
        self.cut((Merge::new(sources, false)?, dead), (&bounds, upper), from, to, bytes, scratch)
    }

    /// Merges leaves that lie next to each other.
    fn merge(&self, lowers: &[Bound], scratch: &mut Scratch) -> Result<()> {
        let version = self.current();
        let leaves = Arc::clone(&version.leaves);
        let mut dead = Dead::among(&version.objects);
        drop(version);
        let first = leaves.find(lowers[0].index, &lowers[0].key);
        let range = first..first + lowers.len();
        let bytes: u64 = range
            .clone()
            .map(|at| {
                let last = leaves.list[at].last.as_ref();
                leaves.young_bytes[at]
                    + last.map_or(0, |piece| piece.meta.disk_bytes(self.files.page_bytes()))
            })
            .sum();
        let left = self.left_to_narrowing(&leaves, range.clone());
        let is_input = |piece: &&Arc<Piece>| !left.contains(&piece.meta.id);
        let inputs: Vec<Arc<Piece>> = leaves.list[range.clone()]
            .iter()
            .flat_map(|leaf| leaf.pieces().filter(is_input).cloned())
            .collect();
        let from = inputs.iter().map(|piece| piece.from()).min().unwrap_or(0);
        let to = inputs.iter().map(|piece| piece.to()).max().unwrap_or(0);
        let parts = bytes.div_ceil(self.options.leaf_bytes).max(1);
        let part_bytes = bytes.div_ceil(parts);
        let mut output = Output {
            inner: self,
            from,
            to,
            part_bytes,
            cut_at: if parts > 1 { part_bytes } else { u64::MAX },
            builder: None,
            last: Bound::default(),
            pieces: Vec::new(),
            lower: lowers[0].clone(),
            records: 0,
            dropped: self.dropped().clone(),
        };
        let result = range.clone().try_for_each(|at| {
            let leaf = &leaves.list[at];
            let chunk = self.chunk_among(leaf.pieces().filter(is_input).count());
            let sources = leaf
                .pieces()
                .filter(is_input)
                .map(|piece| Source::piece(piece, &leaf.lower, leaves.upper(at), chunk))
                .collect();
            Merge::new(sources, true)?.run(&mut dead, |entry| output.add(entry, scratch))
        });
        if let Err(error) = result.and_then(|()| output.end_piece(scratch)) {
            output.pieces.iter().for_each(|(_, piece)| piece.give_up());
            return Err(error);
        }
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        self.counters.merged_records.fetch_add(output.records, Ordering::Relaxed);
        self.install(lowers, &inputs, &output.pieces, &dead)
    }

    /// The wide pieces that a merge of leaves leaves alone, so that they come together with those of the others. None, if
    /// nothing else is young there, or is to go for another reason than its length.
    fn left_to_narrowing(&self, leaves: &Leaves, range: Range<usize>) -> HashSet<u64> {
        let dropped = self.dropped();
        let has_reasons = |at: usize| {
            let useless = || leaves.list[at].pieces().any(|piece| piece.has_useless(&dropped));
            leaves.is_worn(at) || leaves.is_hollow(at) || useless()
        };
        if range.clone().any(has_reasons) {
            return HashSet::new();
        }
        let wide = Wide::of(leaves);
        if range.clone().all(|at| leaves.list[at].young.len() == wide.in_leaf(at)) {
            return HashSet::new();
        }
        wide.in_all(range).iter().map(|piece| piece.meta.id).collect()
    }

    /// Replaces merged leaves by those of the pieces that came out.
    fn install(
        &self,
        lowers: &[Bound],
        inputs: &[Arc<Piece>],
        pieces: &[(Bound, Arc<Piece>)],
        dead: &Dead,
    ) -> Result<()> {
        let merged: HashSet<u64> = inputs.iter().map(|piece| piece.meta.id).collect();
        let mut next = None;
        let mut gone = Vec::new();
        let new = pieces.iter().map(|(_, piece)| Arc::clone(piece)).collect();
        let mut plan = |version: &Version| {
            let leaves = &version.leaves;
            let first = leaves.find(lowers[0].index, &lowers[0].key);
            let old = &leaves.list[first..first + lowers.len()];
            // What came while the merge was under way is newer, and stays.
            let mut young: Vec<Arc<Piece>> = old.iter().flat_map(|leaf| leaf.young.iter().cloned()).collect();
            young.retain(|piece| !merged.contains(&piece.meta.id));
            young.sort_by_key(|piece| (std::cmp::Reverse(piece.from()), piece.meta.id));
            young.dedup_by_key(|piece| piece.meta.id);
            let mut fresh: Vec<Arc<Leaf>> = pieces
                .iter()
                .map(|(lower, piece)| {
                    Arc::new(Leaf::new(lower.clone(), young.clone(), Some(Arc::clone(piece))))
                })
                .collect();
            // Of these keys nothing is left. If their leaf went, its neighbour's young pieces would count for them, and
            // some of those may be what was merged here.
            let stays = mutation::on(Rule::EmptyLeafStays) || first == 0 || !young.is_empty();
            if fresh.is_empty() && stays {
                fresh.push(Arc::new(Leaf::new(lowers[0].clone(), young, None)));
            }
            let mut list = leaves.list.clone();
            let kept: BTreeSet<&Bound> = fresh.iter().map(|leaf| &leaf.lower).collect();
            let mut changes: Vec<Change> =
                pieces.iter().map(|(_, piece)| Change::AddPiece(piece.meta.clone())).collect();
            changes
                .extend(lowers.iter().filter(|lower| !kept.contains(lower)).cloned().map(Change::RemoveLeaf));
            changes.extend(fresh.iter().map(|leaf| set_leaf(leaf)));
            list.splice(first..first + lowers.len(), fresh);
            let used: HashSet<u64> =
                list.iter().flat_map(|leaf| leaf.pieces().map(|piece| piece.meta.id)).collect();
            for piece in inputs {
                if !used.contains(&piece.meta.id)
                    && !gone.iter().any(|other: &Arc<Piece>| Arc::ptr_eq(other, piece))
                {
                    changes.push(Change::RemovePiece(piece.meta.id));
                    gone.push(Arc::clone(piece));
                }
            }
            next = Some(Leaves::new(list));
            Some(changes)
        };
        let mut manifest = self.manifest.lock();
        let mut changes = plan(&self.current()).expect("a plan always has changes");
        let next = Arc::new(next.expect("the plan made it"));
        let objects = dead.settle(&manifest.state, &mut changes);
        self.change_locked(&mut manifest, new, changes, gone, |version| {
            version.leaves = next;
            Ok(object::without(version, &objects))
        })
    }

    fn change(
        &self,
        new: Vec<Arc<Piece>>,
        changes: impl FnOnce(&Version) -> Option<Vec<Change>>,
        gone: Vec<Arc<Piece>>,
        update: impl FnOnce(&mut Version) -> Result<()>,
    ) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let changes = changes(&self.current()).unwrap_or_default();
        let update = |version: &mut Version| update(version).map(|()| Vec::new());
        self.change_locked(&mut manifest, new, changes, gone, update)
    }

    /// Makes changes durable, lets readers see them, and gives up what is gone. `new` pieces are written, not durable. `update`
    /// may find more that is gone.
    pub(super) fn change_locked(
        &self,
        manifest: &mut Manifest,
        new: Vec<Arc<Piece>>,
        mut changes: Vec<Change>,
        mut gone: Vec<Arc<Piece>>,
        update: impl FnOnce(&mut Version) -> Result<Vec<Arc<Piece>>>,
    ) -> Result<()> {
        if !new.is_empty()
            && let Err(error) = block_on(self.files.device.sync())
        {
            return Err(self.fail(StoreError::Io(error)));
        }
        let discarded = std::mem::take(&mut self.control.lock().discarded);
        let mut objects = Vec::new();
        for (id, piece) in &discarded {
            changes.push(Change::RemoveWaiting(id.0));
            changes.push(Change::RemovePiece(piece.meta.id));
            if let Some(object) = manifest.state.objects.get(&id.0) {
                changes.push(Change::RemoveObject(id.0));
                changes.push(Change::RemovePiece(object.piece));
                objects.push(id.0);
            }
        }
        changes.insert(0, Change::NextPiece(self.next_piece.load(Ordering::Relaxed)));
        if mutation::off(Rule::FreeAfterManifest) {
            gone.iter().for_each(|piece| piece.meta.runs.iter().for_each(|run| self.files.space.free(*run)));
        }
        if let Err((error, unknown)) = manifest.commit(&changes) {
            if unknown {
                return Err(self.fail(error));
            }
            self.control.lock().discarded.extend(discarded);
            new.iter().for_each(|piece| piece.give_up());
            return Err(error);
        }
        self.counters.manifest_bytes.store(manifest.bytes_written, Ordering::Relaxed);
        {
            let _control = (mutation::on(Rule::VersionChangesUnderControl)).then(|| self.control.lock());
            let mut version = Version::clone(&self.current());
            gone.extend(update(&mut version)?);
            gone.extend(object::without(&mut version, &objects));
            self.publish(version);
        }
        if mutation::on(Rule::FreeAfterManifest) {
            gone.iter().for_each(|piece| piece.give_up());
        }
        discarded.iter().for_each(|(_, piece)| piece.give_up());
        Ok(())
    }

    /// The oldest unconfirmed batch that is in memory and not being written, now being written. Under control's lock.
    fn mark_spilling(&self, version: &Version) -> Option<Arc<Waiting>> {
        let at = version
            .waiting
            .iter()
            .position(|waiting| matches!(waiting, WaitingBatch::Memory { spilling: false, .. }))?;
        let mut version = Version::clone(version);
        let WaitingBatch::Memory { waiting, spilling, .. } = &mut version.waiting[at] else { return None };
        *spilling = true;
        let waiting = Arc::clone(waiting);
        self.publish(version);
        Some(waiting)
    }

    /// Writes an unconfirmed batch as a piece of its own.
    fn spill(&self, waiting: &Arc<Waiting>, scratch: &mut Scratch) -> Result<()> {
        let result = self.try_spill(waiting, scratch);
        if result.is_err() {
            let _control = self.control.lock();
            let mut version = Version::clone(&self.current());
            for other in &mut version.waiting {
                if let WaitingBatch::Memory { waiting: of, spilling, .. } = other
                    && Arc::ptr_eq(of, waiting)
                {
                    *spilling = false;
                }
            }
            self.publish(version);
        }
        result
    }

    fn try_spill(&self, waiting: &Arc<Waiting>, scratch: &mut Scratch) -> Result<()> {
        let bytes = waiting.batch.bytes.len() as u64;
        let mut builder = PieceBuilder::new(&self.files, self.piece_name(), true, bytes);
        let merge = Merge::new(vec![Source::waiting(waiting)], false)?;
        merge.run(&mut Dead::default(), |entry| builder.add(entry))?;
        let piece = Arc::new(builder.finish(0, 0, scratch)?);
        let id = waiting.id();
        let place = |version: &Version| {
            version.waiting.iter().position(
                |other| matches!(other, WaitingBatch::Memory { waiting: of, .. } if Arc::ptr_eq(of, waiting)),
            )
        };
        let mut manifest = self.manifest.lock();
        if place(&self.current()).is_none() && mutation::on(Rule::SpillLooksAgain) {
            // Its owner has decided meanwhile, and the journal may have forgotten the decision already: a manifest that
            // said that the batch waits would bring it back after a crash.
            piece.give_up();
            return Ok(());
        }
        let changes = vec![
            Change::AddPiece(piece.meta.clone()),
            Change::AddWaiting { batch: id.0, piece: piece.meta.id },
        ];
        let mut decided = false;
        self.change_locked(&mut manifest, vec![Arc::clone(&piece)], changes, Vec::new(), |version| {
            match place(version) {
                Some(at) => version.waiting[at] = WaitingBatch::Piece { id, piece: Arc::clone(&piece) },
                None => decided = true,
            }
            Ok(Vec::new())
        })?;
        if decided {
            // Its owner has decided since the lock was taken. It is still held, so no flush has told the journal that the
            // decision is not needed any more.
            self.control.lock().discarded.push((id, piece));
            self.change_locked(&mut manifest, Vec::new(), Vec::new(), Vec::new(), |_| Ok(Vec::new()))?;
        }
        Ok(())
    }
}

fn bounds_of(leaves: &Leaves) -> Vec<Bound> {
    leaves.list.iter().map(|leaf| leaf.lower.clone()).collect()
}

pub(super) fn set_leaf(leaf: &Leaf) -> Change {
    Change::SetLeaf {
        lower: leaf.lower.clone(),
        young: leaf.young.iter().map(|piece| piece.meta.id).collect(),
        last: leaf.last.as_ref().map(|piece| piece.meta.id),
    }
}

fn placing(pieces: &[Placed]) -> Vec<Change> {
    let add = pieces.iter().map(|(piece, ..)| Change::AddPiece(piece.meta.clone()));
    let place = pieces.iter().map(|(piece, from, to)| Change::Place {
        piece: piece.meta.id,
        from: from.clone(),
        to: to.clone(),
    });
    add.chain(place).collect()
}

/// The pieces that come out of the merge of leaves.
struct Output<'a> {
    inner: &'a Inner,
    from: u64,
    to: u64,
    part_bytes: u64,
    cut_at: u64,
    builder: Option<PieceBuilder>,
    /// The entry added last.
    last: Bound,
    pieces: Vec<(Bound, Arc<Piece>)>,
    /// Where the piece being built begins.
    lower: Bound,
    records: u64,
    /// The entries that are left out.
    dropped: Dropped,
}

impl Output<'_> {
    fn add(&mut self, entry: Merged<'_>, scratch: &mut Scratch) -> Result<Kept> {
        if self.dropped.has(entry.index, entry.batch) {
            return Ok(Kept::No);
        }
        let full = self.builder.as_ref().is_some_and(|builder| builder.bytes() >= self.cut_at);
        // Entries of one key stay in one leaf.
        if full && (self.last.index, &*self.last.key) != (entry.index, entry.key) {
            self.end_piece(scratch)?;
            self.lower = Bound::new(entry.index, entry.key);
        }
        let inner = self.inner;
        let bytes = self.part_bytes;
        let builder = self
            .builder
            .get_or_insert_with(|| PieceBuilder::new(&inner.files, inner.piece_name(), false, bytes));
        builder.add(entry)?;
        self.records += 1;
        if builder.bytes() >= self.cut_at {
            self.last = Bound::new(entry.index, entry.key);
        }
        Ok(Kept::Yes)
    }

    fn end_piece(&mut self, scratch: &mut Scratch) -> Result<()> {
        if let Some(builder) = self.builder.take() {
            let piece = Arc::new(builder.finish(self.from, self.to, scratch)?.written_without(&self.dropped));
            self.pieces.push((self.lower.clone(), piece));
        }
        Ok(())
    }
}
