//! What the threads that freeze do for tables with `tiering = auto`, while memory is short: chunks that have settled freeze, and
//! frozen ones leave memory whole.
//!
//! ```text
//!   0 ───────────── half ─────────────── goal ──── mark ──── governor's goal, soft mark … ── limit
//!     nothing to do  │ freeze what settles │ leave │ leave    │ single rows leave, too
//!                    │                     │ (until)│
//! ```
//!
//! Freezing comes first: it gives three quarters of a row back at once and costs readers little. What cools further leaves as
//! one object for a third of the processor time that single rows take; so it begins below the governor's marks, and single rows
//! leave only where that is not enough: rows of chunks that do not settle, and of those that never freeze.
//!
//! *Settled* is not the same time for all tables. An order line is inserted, and changed once more when it is delivered, some
//! seconds later; a chunk that froze between the two would thaw row by row. So each table has a time of its own
//! ([`OfTable::settles_ns`]): longer when more of its rows thaw than an eighth of those that freeze, and shorter again slowly.
//!
//! What is idle is not always done with: an order line is idle until it is delivered. So of each table it is counted how old frozen rows
//! are when they change ([`OfTable::changes`]). A chunk whose age is below that of most such changes stays.
//!
//! Which of the frozen chunks leave: those of whose rows the fewest were read lately for the bytes that they take, the oldest
//! first; but none that was not watched for a while, and none that is in use: single rows leave then. A block counts its reads
//! ([`crate::hot::block::Block::note_use`]), and forgets half of them in each round.
//!
//! Chunks are watched for a minute before they freeze, since what was just loaded is in no use at all, and in the next second
//! perhaps in all: faster settings lost throughput (`docs/understand/decisions/0014-freezing-late.md`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use thermocline_base::clock::{thread_cpu_ns, thread_cpu_since};
use thermocline_base::ids::{TableId, Timestamp};
use thermocline_base::multiplex::run_tasks;
use thermocline_base::sync::{Mutex, Ordering};

use crate::catalog::table::TableEntry;
use crate::error::{Error, Result};
use crate::hot::store::{Store, age_class};
use crate::ops::freeze::Settled;
use crate::ops::leave::Leaving;
use crate::schema::Tiering;
use crate::session::db::Inner;

use super::YOUNG_PERCENT;

/// From here on chunks freeze, in thousandths of the memory limit.
const FREEZE: u64 = 500;
/// From here on frozen chunks leave, and until what is live is less than that. Both lie below the governor's goal.
const LEAVE: u64 = 800;
const LEAVE_UNTIL: u64 = 770;
/// Chunks that leave at the same time, so that the waits for the log and the store overlap.
const TOGETHER: usize = 4;
/// Rows whose entries go in one step.
const CLEARED_ROWS: usize = 1 << 17;
/// How long rows have to be left alone before they freeze, at least and at most, in times of [`crate::Options::freeze_after`].
const SETTLES_MIN: u64 = 1;
const SETTLES_MAX: u64 = 30;
/// A chunk is watched for so many times of [`crate::Options::freeze_after`] before it freezes for the first time, and so long its
/// rows have to be left alone at least: what was just loaded is in no use at all, and in the next second perhaps in all.
const WATCHED: u64 = 30;
/// A block is watched for this part of that before it leaves: only then its reads say anything.
const WATCHED_BLOCK: u64 = 6;
/// More of the rows that were frozen may not thaw, or they were not settled.
const THAWED_SHARE: u64 = 8;
/// So many frozen rows say whether rows freeze too early.
const JUDGED_ROWS: u64 = 1 << 16;
/// A chunk that was looked at in vain is looked at again after a quarter of the time that its rows take to settle, then after
/// twice that, and so on, up to so many quarters.
const LOOKS_MAX: u64 = 64;
/// A chunk of which more than one in so many rows is read in a round does not leave: single rows do then.
const USED_SHARE: u32 = 64;
/// A chunk stays if no fewer than one in so many changes of frozen rows are of rows as old as its own, or older; and if such changes
/// are more than one in so many of the table's frozen rows.
const LATER_SHARE: f64 = 8.0;
/// What is left of the changes of a second after the next.
const REMEMBERED: f64 = 0.95;
/// Time between two rounds of forgetting uses.
const FORGETTING_NS: u64 = 1_000_000_000;
/// Time until leaving is tried again after a failure: at first, and at most.
const PATIENCE_NS: u64 = 500_000_000;
const PATIENCE_NS_MAX: u64 = 30_000_000_000;
/// Moments of the clock that are remembered: a round each, so they reach further back than rows take to settle.
const MOMENTS: usize = 1024;

/// How long a chunk is watched before it freezes for the first time.
fn watched_ns(inner: &Inner) -> u64 {
    let after = u64::try_from(inner.options.freeze_after.as_nanos()).unwrap_or(u64::MAX / WATCHED);
    after.saturating_mul(WATCHED)
}

/// When a chunk is looked at next, and how many quarters after the look before.
#[derive(Clone, Copy, Debug)]
struct Look {
    at_ns: u64,
    quarters: u64,
}

#[derive(Debug)]
pub(super) struct OfTable {
    /// So long its rows have to be left alone before they freeze.
    settles_ns: u64,
    /// Changes of frozen rows lately, by how old the rows were, and what the store had counted.
    changes: [f64; 64],
    counted: [u64; 64],
    /// Rows that had been frozen and thawed when that was judged.
    frozen: u64,
    thawed: u64,
}

impl OfTable {
    /// Once a second: which frozen rows were changed since.
    fn count_changes(&mut self, store: &Store) {
        for (class, ages) in store.thaw_ages.iter().enumerate() {
            let all = ages.load(Ordering::Relaxed);
            // Where the columns have changed the table has a new store, which counts from zero.
            let new = all.saturating_sub(std::mem::replace(&mut self.counted[class], all));
            self.changes[class] = self.changes[class] * REMEMBERED + new as f64;
        }
    }

    /// Are rows of this age to be expected to change later? `frozen`: the table's frozen rows.
    fn changes_later(&self, age: usize, frozen: u64) -> bool {
        let all: f64 = self.changes.iter().sum();
        let later: f64 = self.changes[age..].iter().sum();
        later * LATER_SHARE > all && later * LATER_SHARE > frozen as f64
    }
}

/// What one thread remembers.
#[derive(Debug, Default)]
pub(super) struct Auto {
    looks: HashMap<(TableId, u32), Look>,
    tables: BTreeMap<TableId, OfTable>,
    /// The clock at moments of the past, the oldest first.
    past: VecDeque<(u64, Timestamp)>,
    forgot_ns: u64,
    /// Leaving has failed: what was said of it, and when it is tried again, so long after the last time.
    failure: Option<String>,
    again_ns: u64,
    patience_ns: u64,
    /// Uses of blocks when they were asked last, and when they were first.
    uses: HashMap<u64, (u32, u64)>,
}

/// A frozen chunk that may leave.
struct Candidate {
    entry: Arc<TableEntry>,
    chunk: u32,
    /// Reads lately, for each byte.
    density: f64,
}

impl Auto {
    /// One round: what is to be done now. `number`, `of`: which of the threads it is. Did it do something?
    pub(super) fn round(&mut self, inner: &Arc<Inner>, number: u32, of: u32) -> bool {
        let now = inner.clock.now_ns();
        self.remember(now, inner.registry.clock.now());
        if !inner.governor.is_there() {
            return false;
        }
        let Some(room) = inner.budget.room() else { return false };
        let mark = |thousandths: u64| room / 1000 * thousandths;
        if inner.budget.used() < mark(FREEZE) {
            return false;
        }
        let mut tables: Vec<Arc<TableEntry>> = inner
            .catalog
            .all()
            .into_iter()
            .filter(|entry| {
                let tiering = entry.form_pinned(&inner.epochs.pin()).schema.row_tiering();
                tiering == Tiering::Auto && !crate::schema::is_internal(entry.id) && !entry.is_held()
            })
            .collect();
        // The largest first: there is most to win.
        let chunks = |entry: &Arc<TableEntry>| entry.form_pinned(&inner.epochs.pin()).store.directory.len();
        tables.sort_by_cached_key(|entry| std::cmp::Reverse(chunks(entry)));
        self.judge(inner, &tables);
        let mut frozen = 0;
        for entry in &tables {
            frozen += self.freeze(inner, entry, now, |chunk| chunk.wrapping_add(entry.id.0) % of == number);
        }
        let mut left = 0;
        if number == 0 {
            self.forget(inner, &tables, now);
            if now >= self.again_ns && crate::ops::memory::live_bytes(inner) >= mark(LEAVE) {
                let candidates = self.candidates(inner, &tables, now);
                let is_enough = || crate::ops::memory::live_bytes(inner) < mark(LEAVE_UNTIL);
                left = self.leave_until(inner, &candidates, is_enough);
            }
            left += Self::clear(inner);
        }
        frozen + left > 0
    }

    fn remember(&mut self, now: u64, clock: Timestamp) {
        self.past.push_back((now, clock));
        if self.past.len() > MOMENTS {
            self.past.pop_front();
        }
    }

    /// The clock so long ago, as far as that is known.
    fn clock_before(&self, now: u64, ns: u64) -> Timestamp {
        let then = now.saturating_sub(ns);
        let later = self.past.partition_point(|(at, _)| *at <= then);
        later.checked_sub(1).map_or(Timestamp(0), |at| self.past[at].1)
    }

    /// Do rows freeze too early?
    fn judge(&mut self, inner: &Inner, tables: &[Arc<TableEntry>]) {
        let after = u64::try_from(inner.options.freeze_after.as_nanos()).unwrap_or(u64::MAX / SETTLES_MAX);
        let (least, most) = (after.saturating_mul(SETTLES_MIN), after.saturating_mul(SETTLES_MAX));
        for entry in tables {
            let (frozen, thawed) = {
                let guard = inner.epochs.pin();
                let store = &entry.form_pinned(&guard).store;
                (store.frozen_rows.load(Ordering::Relaxed), store.thawed_rows.load(Ordering::Relaxed))
            };
            let of = self.tables.entry(entry.id).or_insert(OfTable {
                settles_ns: least,
                changes: [0.0; 64],
                counted: [0; 64],
                frozen,
                thawed,
            });
            let (new, back) = (frozen.saturating_sub(of.frozen), thawed.saturating_sub(of.thawed));
            if back * THAWED_SHARE > JUDGED_ROWS && back * THAWED_SHARE > new {
                of.settles_ns = (of.settles_ns + of.settles_ns / 2).min(most);
            } else if new > JUDGED_ROWS {
                of.settles_ns = (of.settles_ns - of.settles_ns / 64).max(least);
            } else {
                continue;
            }
            (of.frozen, of.thawed) = (frozen, thawed);
        }
    }

    /// Freezes those chunks of a table that have settled, the oldest first.
    fn freeze(
        &mut self,
        inner: &Inner,
        entry: &TableEntry,
        now: u64,
        is_mine: impl Fn(u32) -> bool,
    ) -> usize {
        let settles = self.tables.get(&entry.id).map_or(0, |of| of.settles_ns);
        let watched = watched_ns(inner);
        let since = self.clock_before(now, settles.max(watched));
        if since == Timestamp(0) {
            return 0;
        }
        let which = Settled { since, young_percent: YOUNG_PERCENT, ..Settled::FULL };
        let mut count = 0;
        for number in self.full_chunks(inner, entry).into_iter().filter(|chunk| is_mine(*chunk)) {
            if inner.closing.has_begun() || inner.budget.used() >= inner.budget.hard_mark() {
                break;
            }
            let look =
                self.looks.entry((entry.id, number)).or_insert(Look { at_ns: now + watched, quarters: 1 });
            if look.at_ns > now {
                continue;
            }
            let begun = thread_cpu_ns();
            match crate::ops::freeze::freeze_chunk(inner, entry, number, which) {
                Ok(Some((rows, _))) => {
                    count += 1;
                    let done = &inner.governor.freezer;
                    done.frozen_rows.fetch_add(u64::from(rows), Ordering::Relaxed);
                    *look = Look { at_ns: now + settles, quarters: 4 };
                }
                Ok(None) => {
                    let quarters = (look.quarters * 2).min(LOOKS_MAX);
                    *look = Look { at_ns: now + settles / 4 * quarters, quarters };
                }
                // Others make room.
                Err(error) => {
                    tracing::debug!(%error, chunk = number, "a chunk was not frozen");
                    *look = Look { at_ns: now + settles / 4, ..*look };
                }
            }
            let took = thread_cpu_since(begun);
            inner.governor.freezer.freezing_cpu_ns.fetch_add(took, Ordering::Relaxed);
        }
        count
    }

    /// The chunks of a table in which nothing can be inserted, as far as a look tells, that are not packed.
    fn full_chunks(&mut self, inner: &Inner, entry: &TableEntry) -> Vec<u32> {
        let guard = inner.epochs.pin();
        let directory = &entry.form_pinned(&guard).store.directory;
        let is_full = |number: &u32| {
            directory.get(*number, &guard).is_some_and(|chunk| chunk.is_full() && !chunk.is_packed())
        };
        let full: Vec<u32> = (0..directory.len()).filter(is_full).collect();
        self.looks.retain(|(table, number), _| *table != entry.id || full.binary_search(number).is_ok());
        full
    }

    /// Halves the counts of uses, now and then.
    fn forget(&mut self, inner: &Inner, tables: &[Arc<TableEntry>], now: u64) {
        if now.saturating_sub(self.forgot_ns) < FORGETTING_NS {
            return;
        }
        self.forgot_ns = now;
        let mut uses = HashMap::new();
        let guard = inner.epochs.pin();
        for entry in tables {
            if let Some(of) = self.tables.get_mut(&entry.id) {
                of.count_changes(&entry.form_pinned(&guard).store);
            }
            let directory = &entry.form_pinned(&guard).store.directory;
            for chunk in (0..directory.len()).filter_map(|number| directory.get(number, &guard)) {
                for block in chunk.blocks(&guard) {
                    let first = self.uses.get(&block.number()).map_or(now, |(_, first)| *first);
                    uses.insert(block.number(), (block.take_uses(), first));
                }
            }
        }
        self.uses = uses;
    }

    /// Frozen chunks that may leave, those first whose rows are read least.
    fn candidates(&self, inner: &Inner, tables: &[Arc<TableEntry>], now: u64) -> Vec<Candidate> {
        let (mut candidates, clock) = (Vec::new(), inner.registry.clock.now());
        for entry in tables {
            let guard = inner.epochs.pin();
            let directory = &entry.form_pinned(&guard).store.directory;
            let of_table = self.tables.get(&entry.id);
            let blocks = (0..directory.len()).filter_map(|number| {
                directory.get(number, &guard)?.blocks(&guard).find(|block| block.run().is_none())
            });
            let frozen: u64 = blocks.map(|block| u64::from(block.live().saturating_sub(block.left()))).sum();
            for number in 0..directory.len() {
                let block = directory.get(number, &guard).and_then(|chunk| chunk.blocks(&guard).next());
                let Some(block) = block.filter(|block| block.run().is_none()) else { continue };
                let Some(&(uses, first)) = self.uses.get(&block.number()) else { continue };
                let settles = self.tables.get(&entry.id).map_or(0, |of| of.settles_ns);
                let watched = watched_ns(inner) / WATCHED_BLOCK;
                let is_watched = now.saturating_sub(first) >= watched.max(2 * settles);
                let rows = block.live().saturating_sub(block.left());
                let is_used = uses.saturating_mul(USED_SHARE) > rows;
                let age = age_class(block.youngest(), clock);
                let changes_later = of_table.is_some_and(|of| of.changes_later(age, frozen));
                if is_watched
                    && !changes_later
                    && !is_used
                    && crate::ops::leave::may_leave(inner, entry, number)
                {
                    let bytes = block.rows().bytes_len().max(1) as f64;
                    candidates.push(Candidate {
                        entry: Arc::clone(entry),
                        chunk: number,
                        density: f64::from(uses) / bytes,
                    });
                }
            }
        }
        // Stable: of those that are used alike the oldest leave first.
        candidates.sort_by(|a, b| a.density.total_cmp(&b.density));
        candidates
    }

    /// Lets chunks leave until there is enough room, or none may any more. How many.
    fn leave_until(
        &mut self,
        inner: &Arc<Inner>,
        candidates: &[Candidate],
        is_enough: impl Fn() -> bool,
    ) -> usize {
        let mut left = 0;
        for candidates in candidates.chunks(TOGETHER) {
            if is_enough() || inner.closing.has_begun() {
                break;
            }
            let begun = thread_cpu_ns();
            let outcomes: Mutex<Vec<Result<Option<Leaving>>>> = Mutex::new(Vec::new());
            let mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
            for Candidate { entry, chunk, .. } in candidates {
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
            let took = thread_cpu_since(begun);
            inner.governor.freezer.leaving_cpu_ns.fetch_add(took, Ordering::Relaxed);
            Self::clear(inner);
            left += done;
            if done == 0 || self.failure.is_some() {
                break;
            }
        }
        left
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_tried_later_and_later_until_it_works() {
        let mut auto = Auto::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            auto.note_failure(1000, Some(Error::Closed));
            waits.push((auto.again_ns - 1000) / PATIENCE_NS);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        auto.note_failure(1000, None);
        assert!(auto.failure.is_none());
        auto.note_failure(1000, Some(Error::Closed));
        assert_eq!(auto.again_ns, 1000 + PATIENCE_NS);
    }

    #[test]
    fn rows_are_expected_to_change_at_the_age_at_which_others_did() {
        let mut of = OfTable { settles_ns: 0, changes: [0.0; 64], counted: [0; 64], frozen: 0, thawed: 0 };
        assert!(!of.changes_later(3, 1000), "nothing is known");
        of.changes[17] = 900.0;
        of.changes[20] = 30.0;
        let later: Vec<bool> = [10, 17, 18, 20, 21].map(|age| of.changes_later(age, 1000)).to_vec();
        assert_eq!(later, [true, true, false, false, false]);
        assert!(!of.changes_later(10, 1_000_000), "few of so many rows change at all");
    }
}
