//! Temperatures: what the governor knows of how often rows are accessed, and which cold ones are to come back.
//!
//! Sessions sample what they read and change ([`crate::temperature`]); the governor's thread collects that now and then,
//! and asks the classifier whom to leave in memory. Nothing of it is there before half of the memory limit is used: a
//! database that fits samples nothing.
//!
//! A cold row that is read although it is hot is *wanted*: its reader notes the key, and the governor brings it back if
//! it may. It may so once for every [`Options::reads_a_promotion`](crate::Options::reads_a_promotion) cold reads, and [`SETTLING`] times as often while
//! the hot set moves, promotions still make cold reads fewer, or that is being tried out; where nothing comes of it,
//! that is once for 20 on average. A row is wanted only when it is well beyond the threshold, so that those around it do not go
//! to and fro.

use std::sync::Arc;

use thermocline_base::sync::Ordering;

use crate::cold::Cold;
use crate::hot::budget::MemoryKind;
use crate::ops::temperatures;
use crate::pressure::{Wanted, Warmth};
use crate::session::db::Inner;
use crate::temperature::{Classifier, Collector, CollectorOptions};

/// What temperatures are measured for where there is no memory limit.
const LIMIT_EXPECTED: u64 = 1 << 30;
/// Records of a session's ring: sessions are many.
const RING_RECORDS: usize = 256;
/// While the hot set moves, or settles, so many times as many rows may come back.
const SETTLING: u64 = 8;
/// Promotions that may be saved up.
const PROMOTIONS_SAVED: u64 = 2_000;
/// Samples that it takes to be hot: after one it is not known whether there will be another. (Who was read lately stays in
/// memory without being hot, see [`super::hand`].)
const SAMPLES: f64 = 1.5;
const STEP_NS: u64 = 20_000_000;
const BUDGET_NS: u64 = 1_000_000_000;

fn measuring(inner: &Inner, limit: u64) -> Warmth {
    let (share, clock) = (inner.options.sampling, Arc::clone(&inner.clock));
    let options = temperatures::classifier_within(limit);
    let floor = (SAMPLES * options.alpha / share.clamp(1e-3, 1.0)) as f32;
    let classifier = Arc::new(Classifier::new(&options));
    if inner.checkpoints.are_kept() {
        temperatures::restore(inner, &classifier);
    }
    let options = CollectorOptions { share, ring_records: RING_RECORDS, ..CollectorOptions::default() };
    let collector = Collector::new(options, clock, Some(Arc::clone(&classifier)));
    Warmth::new(collector, classifier, limit / 2, floor, inner.clock.now_ns())
}

/// The temperatures of a database, which begins to measure with this if it does not yet.
pub(crate) fn warmth_of(inner: &Inner) -> &Warmth {
    inner.warm.get_or_begin(|| measuring(inner, inner.budget.limit().unwrap_or(LIMIT_EXPECTED)))
}

/// The governor's side: what it has collected, and what may come back.
#[derive(Debug, Default)]
pub(super) struct Thermometer {
    stepped_ns: u64,
    budgeted_ns: u64,
    reads_seen: u64,
    /// Cold reads that were not paid out as promotions yet.
    saved_reads: u64,
}

impl Thermometer {
    /// Begins to measure when it will be needed, and collects what sessions have sampled.
    pub(super) fn step(&mut self, inner: &Inner, now: u64, rows_share: f64, row_room: u64) {
        if now.saturating_sub(self.stepped_ns) < STEP_NS {
            return;
        }
        self.stepped_ns = now;
        let Some(warmth) = inner.warm.get() else { return self.begin(inner) };
        warmth.step();
        if now.saturating_sub(self.budgeted_ns) > BUDGET_NS {
            self.budgeted_ns = now;
            let budget = (row_room as f64 * rows_share) as u64;
            warmth.set_budget(budget);
            inner.budget.note(MemoryKind::Temperature, warmth.memory_bytes());
        }
    }

    fn begin(&self, inner: &Inner) {
        if let Some(limit) = inner.budget.limit()
            && inner.options.sampling > 0.0
            && inner.budget.used() > limit / 2
        {
            let warmth = warmth_of(inner);
            inner.budget.note(MemoryKind::Temperature, warmth.classifier().memory_bytes() as u64);
        }
    }

    /// Rows that may come back now.
    pub(super) fn due(
        &mut self,
        warmth: &Warmth,
        cold: &Cold,
        reads_a_promotion: u32,
        most: usize,
    ) -> Vec<Wanted> {
        let reads = cold.counters.reads.load(Ordering::Relaxed);
        self.saved_reads += reads - std::mem::replace(&mut self.reads_seen, reads);
        let at_rest = u64::from(reads_a_promotion);
        let each = match warmth.classifier().is_settling() {
            true => at_rest.div_ceil(SETTLING),
            false => at_rest,
        };
        if each == 0 {
            return Vec::new();
        }
        self.saved_reads = self.saved_reads.min(PROMOTIONS_SAVED * each);
        let allowed = usize::try_from(self.saved_reads / each).unwrap_or(usize::MAX).min(most);
        if allowed == 0 {
            return Vec::new();
        }
        let due = warmth.take_wanted(allowed);
        self.saved_reads -= due.len() as u64 * each;
        due
    }
}
