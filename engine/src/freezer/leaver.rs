//! Frozen chunks leave memory whole, while memory is short.
//!
//! Which: those first that are *done with*, of these those of whose rows the fewest were read lately for the bytes that they take, of
//! these the oldest; but none that was not watched for a while, and none that is in use: single rows leave then. A block counts its
//! reads ([`crate::hot::block::Block::note_use`]), and forgets half of them in each round.
//!
//! A chunk whose rows will change brings each of them back one by one, which costs as much as letting thirty leave in their chunk. It
//! may leave only where memory is nearly at its end all the same, and if the change is late ([`LATE`]); the latest first.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use thermocline_base::clock::{thread_cpu_ns, thread_cpu_since};
use thermocline_base::ids::{CHUNK_SLOTS, Timestamp};
use thermocline_base::multiplex::run_tasks;
use thermocline_base::sync::{Mutex, Ordering};

use crate::catalog::table::TableEntry;
use crate::error::{Error, Result};
use crate::hot::block::Block;
use crate::hot::life::{SHAPES, shape_of};
use crate::ops::leave::Leaving;
use crate::session::db::Inner;

use super::{YOUNG_PERCENT, marks, quarters_ns};

/// From here on, of what is live, frozen chunks leave, in thousandths of the memory limit. That is below the governor's goal.
const LEAVE: u64 = 800;
/// From here on those leave, too, whose rows change late.
const LEAVE_LATE: u64 = 830;
/// Of [`LATE_SECONDS`](crate::hot::life::LATE_SECONDS) so many are late enough for leaving.
const LATE: usize = 2;
/// Chunks that leave at the same time, so that the waits for the log and the store overlap; as many leave in a round before it is
/// looked again how much memory there is.
const TOGETHER: usize = 4;
/// Rows whose entries go in one step.
const CLEARED_ROWS: usize = 1 << 17;
/// So long a block is watched before it leaves, in quarters of [`crate::Options::freeze_after`].
const WATCHED: u64 = 3;
/// Rows of a block whose shapes are looked at.
const LOOKED: usize = 64;
/// A chunk of which more than one in so many rows is read in a round does not leave: single rows do then.
const USED_SHARE: u32 = 64;
/// Time between two rounds of forgetting uses; and between two rounds of any kind while there is plenty of memory.
const FORGETTING_NS: u64 = 1_000_000_000;
/// From here on, of what is used, rounds are taken each time, in thousandths of the memory limit: where freezing begins.
const LOOK: u64 = super::auto::FREEZE;
/// Time until leaving is tried again after a failure: at first, and at most.
const PATIENCE_NS: u64 = 500_000_000;
const PATIENCE_NS_MAX: u64 = 30_000_000_000;

/// Knowledge of a block.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// Uses when they were asked last.
    uses: u32,
    /// Since when it is watched.
    since_ns: u64,
    /// Of a hundred rows so many have each shape.
    shapes: [u8; SHAPES],
}

/// The memory of the thread.
#[derive(Debug, Default)]
pub(super) struct Leaver {
    forgot_ns: u64,
    /// When the last round looked at the tables.
    looked_ns: u64,
    /// Leaving has failed: what was said of it, and when it is tried again, so long after the last time.
    failure: Option<String>,
    again_ns: u64,
    patience_ns: u64,
    /// The blocks, by their numbers.
    blocks: HashMap<u64, Watched>,
}

/// A frozen chunk that may leave.
struct Candidate {
    entry: Arc<TableEntry>,
    chunk: u32,
    /// 0: it is done with. Else how soon its rows change: the place among [`LATE_SECONDS`](crate::hot::life::LATE_SECONDS), from 1 on.
    soon: usize,
    /// Reads lately, for each byte.
    density: f64,
    youngest: Timestamp,
}

impl Leaver {
    /// One round: lets chunks leave, and clears away those that have left. Did it do something?
    pub(super) fn round(&mut self, inner: &Arc<Inner>) -> bool {
        let now = inner.clock.now_ns();
        let Some(mark) = marks(inner) else { return false };
        if inner.budget.used() < mark(LOOK) && now.saturating_sub(self.looked_ns) < FORGETTING_NS {
            return false;
        }
        self.looked_ns = now;
        let live = crate::ops::memory::live_bytes(inner);
        let mut left = 0;
        let tables = super::tables(inner);
        self.forget(inner, &tables, now);
        if now >= self.again_ns && live >= mark(LEAVE) {
            let soon_max = if live >= mark(LEAVE_LATE) { LATE } else { 0 };
            let mut candidates = self.candidates(inner, &tables, now);
            candidates.retain(|candidate| candidate.soon <= soon_max);
            left = self.leave_some(inner, &candidates);
        }
        left += Self::clear(inner);
        if left > 0 {
            inner.governor.freezer.worked_ns.store(inner.clock.now_ns(), Ordering::Relaxed);
        }
        left > 0
    }

    /// Halves the counts of uses, now and then, and gets to know blocks that are new.
    fn forget(&mut self, inner: &Inner, tables: &[Arc<TableEntry>], now: u64) {
        if now.saturating_sub(self.forgot_ns) < FORGETTING_NS {
            return;
        }
        self.forgot_ns = now;
        let mut blocks = HashMap::new();
        for entry in tables {
            let guard = inner.epochs.pin();
            let form = entry.form_pinned(&guard);
            let directory = &form.store.directory;
            for chunk in (0..directory.len()).filter_map(|number| directory.get(number, &guard)) {
                for block in chunk.blocks(&guard).filter(|block| block.run().is_none()) {
                    let known = self.blocks.remove(&block.number());
                    let new =
                        || Watched { uses: 0, since_ns: now, shapes: shapes_of(block, form.shape_mask) };
                    let uses = block.take_uses();
                    blocks.insert(block.number(), Watched { uses, ..known.unwrap_or_else(new) });
                }
            }
        }
        self.blocks = blocks;
    }

    /// Frozen chunks that may leave, those first that are to.
    fn candidates(&self, inner: &Inner, tables: &[Arc<TableEntry>], now: u64) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        let watched = quarters_ns(inner, WATCHED);
        let clock = inner.registry.clock.now();
        let prospects = inner.governor.prospects.lock();
        for entry in tables {
            let guard = inner.epochs.pin();
            let directory = &entry.form_pinned(&guard).store.directory;
            for number in 0..directory.len() {
                let block = directory.get(number, &guard).and_then(|chunk| chunk.blocks(&guard).next());
                let Some(block) = block.filter(|block| block.run().is_none()) else { continue };
                let Some(known) = self.blocks.get(&block.number()) else { continue };
                let rows = block.live().saturating_sub(block.left());
                let is_used = known.uses.saturating_mul(USED_SHARE) > rows;
                if now.saturating_sub(known.since_ns) < watched
                    || is_used
                    || !crate::ops::leave::may_leave(inner, entry, number)
                {
                    continue;
                }
                let soon = prospects.get(&entry.id).map_or(0, |prospects| {
                    prospects.how_soon(&known.shapes, block.youngest(), clock, YOUNG_PERCENT)
                });
                candidates.push(Candidate {
                    entry: Arc::clone(entry),
                    chunk: number,
                    soon,
                    density: f64::from(known.uses) / block.rows().bytes_len().max(1) as f64,
                    youngest: block.youngest(),
                });
            }
        }
        candidates.sort_by(|a, b| {
            let by_uses = || a.density.total_cmp(&b.density);
            a.soon.cmp(&b.soon).then_with(by_uses).then_with(|| a.youngest.cmp(&b.youngest))
        });
        candidates
    }

    /// Lets the first few chunks leave. How many.
    fn leave_some(&mut self, inner: &Arc<Inner>, candidates: &[Candidate]) -> usize {
        if inner.closing.has_begun() || candidates.is_empty() {
            return 0;
        }
        let begun = thread_cpu_ns();
        let outcomes: Mutex<Vec<Result<Option<Leaving>>>> = Mutex::new(Vec::new());
        let mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
        for Candidate { entry, chunk, .. } in candidates.iter().take(TOGETHER) {
            let (chunk, outcomes) = (*chunk, &outcomes);
            tasks.push(Box::pin(async move {
                let outcome = crate::ops::leave::leave_chunk(inner, entry, chunk).await;
                outcomes.lock().push(outcome);
            }));
        }
        run_tasks(tasks);
        let outcomes = outcomes.into_inner();
        let done = outcomes.iter().flatten().flatten().count();
        self.note_failure(inner.clock.now_ns(), outcomes.into_iter().find_map(Result::err));
        inner.governor.freezer.leaving_cpu_ns.fetch_add(thread_cpu_since(begun), Ordering::Relaxed);
        done
    }

    /// Says what has failed, once, and tries again later and later: each try writes to the log and to the store, which may be full.
    fn note_failure(&mut self, now: u64, failure: Option<Error>) {
        let Some(error) = failure else {
            (self.failure, self.patience_ns) = (None, 0);
            return;
        };
        let said = error.to_string();
        if self.failure.as_ref() != Some(&said) {
            tracing::warn!(%error, "frozen chunks could not leave memory; this is tried again and again");
            self.failure = Some(said);
        }
        self.patience_ns = (self.patience_ns * 2).clamp(PATIENCE_NS, PATIENCE_NS_MAX);
        self.again_ns = now + self.patience_ns;
    }

    /// Lets go in memory what has left. How many rows.
    fn clear(inner: &Inner) -> usize {
        let begun = thread_cpu_ns();
        let rows = crate::ops::leave::clear_left(inner, CLEARED_ROWS * TOGETHER);
        if rows > 0 {
            inner.epochs.collect();
        }
        let took = thread_cpu_since(begun);
        inner.governor.freezer.leaving_cpu_ns.fetch_add(took, Ordering::Relaxed);
        rows
    }
}

/// Of a hundred rows of a block so many have each shape.
fn shapes_of(block: &Block, mask: u8) -> [u8; SHAPES] {
    let rows = block.rows();
    let mut shapes = [0_u32; SHAPES];
    let mut row = Vec::new();
    let step = (CHUNK_SLOTS / LOOKED).max(1);
    let near = |first: usize| (first..first + step).filter_map(|at| u16::try_from(at).ok());
    let found = (0..CHUNK_SLOTS).step_by(step);
    let mut looked = 0;
    for position in found.filter_map(|first| near(first).find(|position| rows.is_present(*position))) {
        row.clear();
        rows.row_into(position, &mut row);
        shapes[usize::from(shape_of(&row, mask))] += 1;
        looked += 1;
    }
    shapes.map(|count| u8::try_from(count * 100 / looked.max(1)).unwrap_or(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_tried_later_and_later_until_it_works() {
        let mut leaver = Leaver::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            leaver.note_failure(1000, Some(Error::Closed));
            waits.push((leaver.again_ns - 1000) / PATIENCE_NS);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        leaver.note_failure(1000, None);
        assert!(leaver.failure.is_none());
        leaver.note_failure(1000, Some(Error::Closed));
        assert_eq!(leaver.again_ns, 1000 + PATIENCE_NS);
    }
}
