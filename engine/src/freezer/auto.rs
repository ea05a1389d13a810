//! Freezing in tables with `tiering = auto`: chunks whose rows are done with freeze while memory is short.
//!
//! ```text
//!   0 ───────────── half ─────────────── leaving ── late ── governor's goal, soft mark … ── limit
//!     nothing to do  │ freeze what is     │ frozen   │ freeze what   │ single rows leave, if no chunk does
//!                    │ done with          │ chunks   │ changes late  │
//!                    │                    │ leave    │
//! ```
//!
//! Freezing comes first: it gives three quarters of a row back at once and costs readers little. What cools further
//! [leaves](super::leaver) as one object for a third of the processor time that single rows take; so that begins below the governor's
//! marks, and single rows leave only where that is not enough: rows of chunks that are in use, and of those that never freeze.
//!
//! *Done with* is what the [life table](crate::hot::life) of the table expects not to change: an order line that was delivered, a payment
//! at once. Chunks are [sampled](super::sample) for it. One freezes if no more than [`YOUNG_PERCENT`] of its rows are to be expected to
//! change, or were committed just now, and no more than [`USED_PERMILLE`] of them were used lately; those rows stay in its slots. Where
//! memory is nearly at its end, more of them may stay.
//!
//! *Late*: where what is live does not fall although all that is done with freezes and leaves, chunks freeze whose rows will change, but
//! not soon ([`LATE_SECONDS`]), those first that have the longest time: the lines of orders at the end of a long queue. Each of their
//! rows will be thawed once, which costs as much as freezing three.
//!
//! After a load nothing is known, and nothing is in use: tables that are about to be the busiest look as if they were done with. So
//! until changes have been seen for [`KNOWING`], only the table with the most chunks freezes, and only while memory is nearly at its end;
//! of the shapes of its rows the rarer ones are taken to change.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use thermocline_base::clock::{thread_cpu_ns, thread_cpu_since};
use thermocline_base::ids::{TableId, Timestamp};
use thermocline_base::sync::Ordering;

use crate::catalog::table::TableEntry;
use crate::hot::life::{LATE_SECONDS, LifeTable, Outlook, Prospects};
use crate::ops::freeze::Settled;
use crate::session::db::Inner;

use super::sample::{Sample, Samples};
use super::{YOUNG_PERCENT, marks, quarters_ns};

/// From here on chunks freeze, in thousandths of the memory limit.
pub(super) const FREEZE: u64 = 500;
/// From here on chunks freeze of which more rows stay in their slots, and those of a table of which nothing is known yet.
const SHORT: u64 = 840;
/// From here on, of what is live, chunks freeze whose rows change late. Frozen ones leave before, as far as they may.
const LATE: u64 = 815;
/// Of a hundred rows of a chunk so many may be expected to change while memory is nearly at its end.
const YOUNG_PERCENT_SHORT: u32 = 40;
/// Chunks that freeze before it is looked again how much memory there is.
const FROZEN_A_ROUND: usize = 2;
/// One part in so many of the limit stays free for writers while a block is built.
const WRITERS_SHARE: u64 = 64;
/// Of a thousand rows of a chunk so many may have been used lately, or it does not freeze.
const USED_PERMILLE: u32 = 30;
/// So long after it was committed a row does not freeze yet, in quarters of [`crate::Options::freeze_after`]; so long its
/// uses do not count; so long changes have to have been seen; and so long after one sample of a chunk the next is taken.
const SETTLES: u64 = 3;
const NEW: u64 = 4;
const KNOWING: u64 = 6;
const SAMPLING: u64 = 1;
/// A table whose rows take no less in a block than this share of what they take in slots wins nothing by freezing, in hundredths. One
/// of its chunks in so many is tried again.
const WINS_PERCENT: f64 = 75.0;
const TRIED_AGAIN: u32 = 64;
/// Moments of the clock that are remembered: a round each, so they reach further back than rows take to settle.
const MOMENTS: usize = 1024;
/// In so many seconds a pace that was kept once is taken for half.
const PACE_HALF_LIFE: f64 = 20.0;

/// Knowledge of one table.
#[derive(Debug)]
struct OfTable {
    life: LifeTable,
    /// The bits that tell shapes apart.
    mask: u8,
    /// Conclusions from the life table, as of the last samples.
    prospects: Prospects,
    /// Bytes of its last block, in hundredths of what its rows took before.
    block_percent: f64,
    /// Chunks that were not tried since, because nothing is won.
    passed: u32,
}

/// The memory of one thread that freezes.
#[derive(Debug, Default)]
pub(super) struct Auto {
    samples: Samples,
    tables: BTreeMap<TableId, OfTable>,
    /// When samples were last taken, and the clock then.
    sampled: Option<(u64, Timestamp)>,
    /// Seconds in which changes were seen.
    known_seconds: f64,
    /// Commits a second: the most of the last time.
    pace: f64,
    /// The clock at moments of the past, the oldest first.
    past: VecDeque<(u64, Timestamp)>,
}

impl Auto {
    /// One round: freezes a few chunks. `number`, `of`: which of the threads it is. Did it do something?
    pub(super) fn round(&mut self, inner: &Arc<Inner>, number: u32, of: u32) -> bool {
        let now = inner.clock.now_ns();
        self.remember(now, inner.registry.clock.now());
        let Some(mark) = marks(inner) else { return false };
        if inner.budget.used() < mark(FREEZE) {
            return false;
        }
        let tables = super::tables(inner);
        self.sample(inner, &tables, now, (number, of));
        let clock = inner.registry.clock.now();
        let is_short = inner.budget.used() >= mark(SHORT);
        let mut frozen = match self.is_known(inner) {
            true => self.freeze(inner, &tables, now, is_short, |table| table.prospects.life(clock)),
            // Only the table with the most chunks, whose rarer shapes are taken to change.
            false if is_short => {
                let largest = tables.get(..1).unwrap_or_default();
                let rare = largest.first().map_or(0, |entry| self.samples.rare_shapes(entry.id));
                let outlook = |table: &OfTable| Outlook::of_shapes(rare, table.mask, clock);
                self.freeze(inner, largest, now, is_short, outlook)
            }
            false => 0,
        };
        // What leaves soon makes room, too.
        let is_late = || self.is_known(inner) && crate::ops::memory::live_bytes(inner) >= mark(LATE);
        if frozen == 0 && is_short && is_late() {
            frozen = (0..LATE_SECONDS.len())
                .map(|span| {
                    self.freeze(inner, &tables, now, false, |table| table.prospects.late(clock)[span])
                })
                .find(|frozen| *frozen > 0)
                .unwrap_or(0);
        }
        if frozen > 0 {
            inner.governor.freezer.worked_ns.store(inner.clock.now_ns(), Ordering::Relaxed);
        }
        frozen > 0
    }

    /// Have changes been seen for long enough?
    fn is_known(&self, inner: &Inner) -> bool {
        self.known_seconds * 1e9 >= quarters_ns(inner, KNOWING) as f64
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
            let (counters, mask) = {
                let guard = inner.epochs.pin();
                let form = entry.form_pinned(&guard);
                (Arc::clone(&form.counters), form.shape_mask)
            };
            let table = self.tables.entry(entry.id).or_insert_with(|| {
                let life = LifeTable::new(&counters.changes);
                let prospects = life.prospects(0.0, mask, clock);
                OfTable { life, mask, prospects, block_percent: 0.0, passed: 0 }
            });
            table.mask = mask;
            self.samples.of(entry.id).for_each(|(_, sample)| {
                sample.states(clock).for_each(|(state, rows)| {
                    table.life.expose(state, rows * f64::from(of), commits);
                });
            });
            any |= table.life.count(&counters.changes, passed as f64 / 1e9);
        }
        self.tables.retain(|id, _| tables.iter().any(|entry| entry.id == *id));
        let seconds = passed as f64 / 1e9;
        if any {
            self.known_seconds += seconds;
        }
        if seconds > 0.0 {
            self.pace = (self.pace * 0.5_f64.powf(seconds / PACE_HALF_LIFE)).max(commits as f64 / seconds);
        }
        self.publish(inner, clock);
    }

    /// Draws conclusions from what was counted, and tells the thread by which chunks leave.
    fn publish(&mut self, inner: &Inner, clock: Timestamp) {
        for table in self.tables.values_mut() {
            table.prospects = table.life.prospects(self.pace, table.mask, clock);
        }
        if self.is_known(inner) {
            let all = self.tables.iter().map(|(id, table)| (*id, table.prospects.clone()));
            *inner.governor.prospects.lock() = all.collect();
        }
    }

    /// Freezes a few of those chunks whose rows are not to be expected to change, by an outlook of each table.
    fn freeze(
        &mut self,
        inner: &Inner,
        tables: &[Arc<TableEntry>],
        now: u64,
        is_short: bool,
        outlook_of: impl Fn(&OfTable) -> Outlook,
    ) -> usize {
        let since = self.clock_before(now, quarters_ns(inner, SETTLES));
        if since == Timestamp(0) {
            return 0;
        }
        let young_percent = if is_short { YOUNG_PERCENT_SHORT } else { YOUNG_PERCENT };
        // Writers need what is left while a block is built.
        let slack = inner.budget.limit().unwrap_or(0) / WRITERS_SHARE;
        let mut count = 0;
        for entry in tables {
            let Some(table) = self.tables.get_mut(&entry.id) else { continue };
            let outlook = outlook_of(table);
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
}
