//! The work of the threads that freeze on tables with `tiering = auto`, while memory is short: chunks whose rows are done with freeze, and
//! frozen ones leave memory whole.
//!
//! ```text
//!   0 ───────────── half ─────────────── goal ──── mark ──── governor's goal, soft mark … ── limit
//!     nothing to do  │ freeze what is     │ leave │ leave    │ single rows leave, if no chunk does
//!                    │ done with          │ (until)│
//! ```
//!
//! Freezing comes first: it gives three quarters of a row back at once and costs readers little. What cools further leaves as
//! one object for a third of the processor time that single rows take; so it begins below the governor's marks, and single rows
//! leave only where that is not enough: rows of chunks that are in use, and of those that never freeze.
//!
//! *Done with* is what the [life table](crate::hot::life) of the table expects not to change: an order line that was delivered, a payment
//! at once. Chunks are [sampled](super::sample) for it. One freezes if no more than [`YOUNG_PERCENT`] of its rows are to be expected to
//! change, or were committed just now, and no more than [`USED_SHARE`] of them were used lately; those rows stay in its slots. Where
//! memory is nearly at its end, more of them may stay.
//!
//! After a load nothing is known, and nothing is in use: tables that are about to be the busiest look as if they were done with. So
//! until changes have been seen for [`KNOWING`], only the table with the most chunks freezes, and only while memory is nearly at its end;
//! of the shapes of its rows the rarer ones are taken to change.
//!
//! Which of the frozen chunks leave: those of whose rows the fewest were read lately for the bytes that they take, the oldest
//! first; but none that was not watched for a while, and none that is in use: single rows leave then. A block counts its reads
//! ([`crate::hot::block::Block::note_use`]), and forgets half of them in each round.

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
use crate::hot::life::{LifeTable, Outlook};
use crate::ops::freeze::Settled;
use crate::ops::leave::Leaving;
use crate::schema::Tiering;
use crate::session::db::Inner;

use super::YOUNG_PERCENT;
use super::sample::{Sample, Samples};

/// From here on chunks freeze, in thousandths of the memory limit.
const FREEZE: u64 = 500;
/// From here on frozen chunks leave, and until what is live is less than that. Both lie below the governor's goal.
const LEAVE: u64 = 800;
const LEAVE_UNTIL: u64 = 770;
/// From here on chunks freeze of which more rows stay in their slots, and those of a table of which nothing is known yet.
const SHORT: u64 = 840;
/// Of a hundred rows of a chunk so many may be expected to change while memory is nearly at its end.
const YOUNG_PERCENT_SHORT: u32 = 40;
/// Chunks that leave at the same time, so that the waits for the log and the store overlap; as many leave in a round, and half as many
/// freeze, before it is looked again how much memory there is.
const TOGETHER: usize = 4;
const FROZEN_A_ROUND: usize = 2;
/// One part in so many of the limit stays free for writers while a block is built.
const WRITERS_SHARE: u64 = 64;
/// Rows whose entries go in one step.
const CLEARED_ROWS: usize = 1 << 17;
/// Of a thousand rows of a chunk so many may have been used lately, or it does not freeze.
const USED_PERMILLE: u32 = 30;
/// So long after it was committed a row does not freeze yet, in quarters of [`crate::Options::freeze_after`]; so long its
/// uses do not count; so long a block is watched before it leaves; so long changes have to have been seen; and so long after one sample of a chunk the next is taken.
const SETTLES: u64 = 3;
const NEW: u64 = 4;
const WATCHED_BLOCK: u64 = 3;
const KNOWING: u64 = 6;
const SAMPLING: u64 = 1;
/// A table whose rows take no less in a block than this share of what they take in slots wins nothing by freezing, in hundredths. One
/// of its chunks in so many is tried again.
const WINS_PERCENT: f64 = 75.0;
const TRIED_AGAIN: u32 = 64;
/// A chunk of which more than one in so many rows is read in a round does not leave: single rows do then.
const USED_SHARE: u32 = 64;
/// Time between two rounds of forgetting uses.
const FORGETTING_NS: u64 = 1_000_000_000;
/// Time until leaving is tried again after a failure: at first, and at most.
const PATIENCE_NS: u64 = 500_000_000;
const PATIENCE_NS_MAX: u64 = 30_000_000_000;
/// Moments of the clock that are remembered: a round each, so they reach further back than rows take to settle.
const MOMENTS: usize = 1024;

/// Nanoseconds of so many quarters of [`crate::Options::freeze_after`].
fn quarters_ns(inner: &Inner, quarters: u64) -> u64 {
    let after = u64::try_from(inner.options.freeze_after.as_nanos()).unwrap_or(u64::MAX / 64);
    (after / 4).saturating_mul(quarters)
}

/// Knowledge of one table.
#[derive(Debug)]
struct OfTable {
    life: LifeTable,
    /// Bytes of its last block, in hundredths of what its rows took before.
    block_percent: f64,
    /// Chunks that were not tried since, because nothing is won.
    passed: u32,
}

/// What one thread remembers.
#[derive(Debug, Default)]
pub(super) struct Auto {
    samples: Samples,
    tables: BTreeMap<TableId, OfTable>,
    /// When samples were last taken, and the clock then.
    sampled: Option<(u64, Timestamp)>,
    /// Seconds in which changes were seen.
    known_seconds: f64,
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
    youngest: Timestamp,
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
        self.sample(inner, &tables, now, (number, of));
        let frozen = self.freeze(inner, &tables, now, inner.budget.used() >= mark(SHORT));
        let mut left = 0;
        if number == 0 {
            self.forget(inner, &tables, now);
            if now >= self.again_ns && crate::ops::memory::live_bytes(inner) >= mark(LEAVE) {
                let candidates = self.candidates(inner, &tables, now);
                let is_enough = || crate::ops::memory::live_bytes(inner) < mark(LEAVE_UNTIL);
                left = self.leave_some(inner, &candidates, is_enough);
            }
            left += Self::clear(inner);
        }
        if frozen + left > 0 {
            inner.governor.freezer.worked_ns.store(inner.clock.now_ns(), Ordering::Relaxed);
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

    /// Takes samples of chunks, now and then, and counts what was changed.
    fn sample(&mut self, inner: &Inner, tables: &[Arc<TableEntry>], now: u64, (number, of): (u32, u32)) {
        let clock = inner.registry.clock.now();
        let (before, then) = *self.sampled.get_or_insert((now, clock));
        let passed = now.saturating_sub(before);
        if passed < quarters_ns(inner, SAMPLING) && before != now {
            return;
        }
        self.sampled = Some((now, clock));
        let commits = clock.0.saturating_sub(then.0);
        let is_mine = |entry: &TableEntry, chunk: u32| chunk.wrapping_add(entry.id.0) % of == number;
        let before = self.clock_before(now, quarters_ns(inner, NEW));
        self.samples.take(inner, tables, before, is_mine);
        let mut any = false;
        for entry in tables {
            let counters = Arc::clone(&entry.form_pinned(&inner.epochs.pin()).counters);
            let table = self.tables.entry(entry.id).or_insert_with(|| OfTable {
                life: LifeTable::new(&counters.changes),
                block_percent: 0.0,
                passed: 0,
            });
            self.samples.of(entry.id).for_each(|(_, sample)| {
                sample.states(clock).for_each(|(state, rows)| {
                    table.life.expose(state, rows * f64::from(of), commits);
                });
            });
            any |= table.life.count(&counters.changes, passed as f64 / 1e9);
        }
        self.tables.retain(|id, _| tables.iter().any(|entry| entry.id == *id));
        if any {
            self.known_seconds += passed as f64 / 1e9;
        }
    }

    /// Freezes a few of those chunks whose rows are done with.
    fn freeze(&mut self, inner: &Inner, tables: &[Arc<TableEntry>], now: u64, is_short: bool) -> usize {
        let since = self.clock_before(now, quarters_ns(inner, SETTLES));
        if since == Timestamp(0) {
            return 0;
        }
        let clock = inner.registry.clock.now();
        let is_known = self.known_seconds * 1e9 >= quarters_ns(inner, KNOWING) as f64;
        let young_percent = if is_short { YOUNG_PERCENT_SHORT } else { YOUNG_PERCENT };
        // Writers need what is left while a block is built.
        let slack = inner.budget.limit().unwrap_or(0) / WRITERS_SHARE;
        let mut count = 0;
        for entry in tables {
            let is_largest = entry.id == tables[0].id;
            if !is_known && (!is_short || !is_largest) {
                continue;
            }
            let mask = entry.form_pinned(&inner.epochs.pin()).shape_mask;
            let Some(table) = self.tables.get_mut(&entry.id) else { continue };
            let outlook = match is_known {
                true => table.life.outlook(mask, clock),
                false => Outlook::of_shapes(self.samples.rare_shapes(entry.id), mask, clock),
            };
            let which = Settled { since, young_percent, outlook: Some(outlook), ..Settled::FULL };
            let may = |sample: &Sample| {
                sample.used_permille() <= USED_PERMILLE
                    && sample.percent(|shape, begin| begin > since || outlook.shape_changes(shape, begin))
                        <= f64::from(young_percent)
            };
            let row_bytes = self.samples.row_bytes(entry.id).max(1.0);
            for (chunk, building) in self.samples.chunks_that(entry.id, may) {
                if count >= FROZEN_A_ROUND || inner.closing.has_begun() {
                    return count;
                }
                if inner.budget.used() + building + slack > inner.budget.hard_mark() {
                    continue;
                }
                if table.block_percent > WINS_PERCENT {
                    table.passed += 1;
                    if !table.passed.is_multiple_of(TRIED_AGAIN) {
                        continue;
                    }
                }
                self.samples.forget(entry.id, chunk);
                let begun = thread_cpu_ns();
                match crate::ops::freeze::freeze_chunk(inner, entry, chunk, which) {
                    Ok(Some((rows, bytes))) => {
                        count += 1;
                        let done = &inner.governor.freezer;
                        done.frozen_rows.fetch_add(u64::from(rows), Ordering::Relaxed);
                        table.block_percent = 100.0 * bytes as f64 / (f64::from(rows.max(1)) * row_bytes);
                    }
                    Ok(None) => {}
                    // Others make room.
                    Err(error) => tracing::debug!(%error, chunk, "a chunk was not frozen"),
                }
                inner.governor.freezer.freezing_cpu_ns.fetch_add(thread_cpu_since(begun), Ordering::Relaxed);
            }
        }
        count
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
        let mut candidates = Vec::new();
        let watched = quarters_ns(inner, WATCHED_BLOCK);
        for entry in tables {
            let guard = inner.epochs.pin();
            let directory = &entry.form_pinned(&guard).store.directory;
            for number in 0..directory.len() {
                let block = directory.get(number, &guard).and_then(|chunk| chunk.blocks(&guard).next());
                let Some(block) = block.filter(|block| block.run().is_none()) else { continue };
                let Some(&(uses, first)) = self.uses.get(&block.number()) else { continue };
                let rows = block.live().saturating_sub(block.left());
                let is_used = uses.saturating_mul(USED_SHARE) > rows;
                if now.saturating_sub(first) >= watched
                    && !is_used
                    && crate::ops::leave::may_leave(inner, entry, number)
                {
                    let bytes = block.rows().bytes_len().max(1) as f64;
                    candidates.push(Candidate {
                        entry: Arc::clone(entry),
                        chunk: number,
                        density: f64::from(uses) / bytes,
                        youngest: block.youngest(),
                    });
                }
            }
        }
        candidates.sort_by(|a, b| a.density.total_cmp(&b.density).then_with(|| a.youngest.cmp(&b.youngest)));
        candidates
    }

    /// Lets a few chunks leave, unless there is enough room. How many.
    fn leave_some(
        &mut self,
        inner: &Arc<Inner>,
        candidates: &[Candidate],
        is_enough: impl Fn() -> bool,
    ) -> usize {
        if is_enough() || inner.closing.has_begun() || candidates.is_empty() {
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
}
