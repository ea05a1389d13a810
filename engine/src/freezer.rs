//! The threads that freeze what has settled, a chunk at a time: in tables with `tiering = frozen` always, in those with `auto`
//! while memory is short ([`auto`]), where frozen chunks leave memory, too ([`leaver`]).
//!
//! Each keeps a clock of its own: rounds, `freeze_after` apart. A row has settled if it began before the last round but one
//! ended, so it has been left alone for one round at least. A chunk freezes when no more than one in sixteen of its rows has
//! not settled; those stay in its slots. A chunk that is in use is looked at after two rounds, then after four, up to 64:
//! a look reads the header of each of its versions.
//!
//! Chunks that are frozen are looked at every eighth round: they are frozen anew when an eighth of their rows is out of the
//! block and has settled.
//!
//! Rows of tables that have become `hot` come back from the paged side, as far as a quarter of the memory limit stays free.
//!
//! In tables with `frozen` a thread rests after each chunk for as long as that has taken, so it takes half of a processor at most.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::ids::{TableId, Timestamp};

use crate::catalog::table::TableEntry;
use crate::ops::freeze::Settled;
use crate::schema::Tiering;
use crate::session::db::Inner;

use self::auto::Auto;
use self::leaver::Leaver;

mod auto;
mod leaver;
mod sample;
#[cfg(test)]
mod tests;

/// How often a thread looks whether the database closes.
const TICK: Duration = Duration::from_millis(100);
/// Of a hundred rows of a chunk so many may be in use.
const YOUNG_PERCENT: u32 = 6;
/// Rounds between two looks at a chunk, at most.
const ROUNDS_MAX: u64 = 64;
/// Rounds between two looks at a chunk that is frozen.
const FROZEN_ROUNDS: u64 = 8;

/// When a chunk is looked at next, and how many rounds after the look before.
#[derive(Clone, Copy, Debug)]
struct Look {
    round: u64,
    after: u64,
}

/// Bytes of so many thousandths of the memory limit. `None`: there is no limit, or no governor, so nothing needs to freeze.
fn marks(inner: &Inner) -> Option<impl Fn(u64) -> u64> {
    let room = inner.budget.room().filter(|_| inner.governor.is_there())?;
    Some(move |thousandths| room / 1000 * thousandths)
}

/// Nanoseconds of so many quarters of [`crate::Options::freeze_after`].
fn quarters_ns(inner: &Inner, quarters: u64) -> u64 {
    let after = u64::try_from(inner.options.freeze_after.as_nanos()).unwrap_or(u64::MAX / 64);
    (after / 4).saturating_mul(quarters)
}

/// The tables with `tiering = auto`, the largest first: there is most to win.
fn tables(inner: &Inner) -> Vec<Arc<TableEntry>> {
    let mut tables: Vec<Arc<TableEntry>> = inner
        .catalog
        .all()
        .into_iter()
        .filter(|entry| {
            let tiering = entry.form_pinned(&inner.epochs.pin()).schema.row_tiering();
            tiering == Tiering::Auto && !crate::schema::is_internal(entry.id) && !entry.is_held()
        })
        .collect();
    let chunks = |entry: &Arc<TableEntry>| entry.form_pinned(&inner.epochs.pin()).store.directory.len();
    tables.sort_by_cached_key(|entry| std::cmp::Reverse(chunks(entry)));
    tables
}

/// One of the threads that freeze.
#[doc(hidden)]
#[derive(Debug)]
pub struct Freezer {
    inner: Arc<Inner>,
    /// Which of how many it is.
    number: u32,
    of: u32,
    round: u64,
    /// When the last rounds began.
    last: Timestamp,
    last_but_one: Timestamp,
    looks: HashMap<(TableId, u32), Look>,
    auto: Auto,
}

/// The main function of the thread with this number.
pub(crate) fn run(inner: &Arc<Inner>, number: u32) {
    let threads = u32::try_from(inner.options.freeze_threads).unwrap_or(1);
    let mut freezer = Freezer::new(inner, number, threads);
    inner.governor.wakes(std::thread::current());
    let mut begun = inner.clock.now_ns();
    let mut was_busy = false;
    while !inner.closing.has_begun() {
        if !was_busy {
            std::thread::park_timeout(TICK.min(inner.options.freeze_after));
        }
        let waited = Duration::from_nanos(inner.clock.now_ns().saturating_sub(begun));
        if waited >= inner.options.freeze_after {
            begun = inner.clock.now_ns();
            freezer.round(true);
        }
        was_busy = freezer.auto.round(inner, number, threads);
    }
}

/// The main function of the thread by which frozen chunks leave. It is one of its own, since it waits for the log and the store, which
/// may take as long as a checkpoint; meanwhile others go on freezing.
pub(crate) fn run_leaving(inner: &Arc<Inner>) {
    let mut leaver = Leaver::default();
    inner.governor.wakes(std::thread::current());
    let mut was_busy = false;
    while !inner.closing.has_begun() {
        if !was_busy {
            std::thread::park_timeout(TICK.min(inner.options.freeze_after));
        }
        was_busy = leaver.round(inner);
    }
}

impl Freezer {
    pub(crate) fn new(inner: &Arc<Inner>, number: u32, of: u32) -> Self {
        let (inner, nothing) = (Arc::clone(inner), Timestamp(0));
        Self {
            inner,
            number,
            of,
            round: 0,
            last: nothing,
            last_but_one: nothing,
            looks: HashMap::new(),
            auto: Auto::default(),
        }
    }

    /// One round; how many chunks were frozen. `rests`: after each chunk, for as long as it took.
    pub fn round(&mut self, rests: bool) -> usize {
        self.round += 1;
        self.last_but_one = std::mem::replace(&mut self.last, self.inner.registry.clock.now());
        let which = Settled { since: self.last_but_one, young_percent: YOUNG_PERCENT, ..Settled::FULL };
        let mut frozen = 0;
        for entry in self.inner.catalog.all() {
            let (tiering, chunks) = {
                let guard = self.inner.epochs.pin();
                let form = entry.form_pinned(&guard);
                (form.schema.row_tiering(), form.store.directory.len())
            };
            if tiering == Tiering::Hot && self.number == 0 && !entry.is_held() {
                self.bring_back(&entry, chunks);
            }
            if tiering != Tiering::Frozen || entry.is_held() {
                continue;
            }
            for number in (0..chunks).filter(|chunk| chunk.wrapping_add(entry.id.0) % self.of == self.number)
            {
                if self.inner.closing.has_begun() {
                    return frozen;
                }
                let look = self.looks.entry((entry.id, number)).or_insert(Look { round: 0, after: 1 });
                if look.round > self.round {
                    continue;
                }
                let begun = self.inner.clock.now_ns();
                let after = match crate::ops::freeze::freeze_chunk(&self.inner, &entry, number, which) {
                    Ok(Some(_)) => {
                        frozen += 1;
                        FROZEN_ROUNDS
                    }
                    Ok(None) => (look.after * 2).min(ROUNDS_MAX),
                    // The governor, or whoever deletes rows, makes room sooner or later.
                    Err(error) => {
                        tracing::debug!(%error, chunk = number, "a chunk was not frozen");
                        FROZEN_ROUNDS
                    }
                };
                *look = Look { round: self.round + after, after };
                if rests {
                    std::thread::park_timeout(Duration::from_nanos(self.inner.clock.now_ns() - begun));
                }
            }
        }
        frozen
    }

    /// Rows of a table that has become `hot` come back from the paged side.
    fn bring_back(&mut self, entry: &TableEntry, chunks: u32) {
        for number in (0..chunks).take_while(|_| !self.inner.closing.has_begun()) {
            let look = self.looks.entry((entry.id, number)).or_insert(Look { round: 0, after: 1 });
            if look.round > self.round {
                continue;
            }
            let after = match crate::ops::page::bring_back(&self.inner, entry, number) {
                Ok(_) => 1,
                // A page that is lost stays so until the next opening.
                Err(error) => {
                    tracing::warn!(%error, chunk = number, "rows of a hot table stay on the paged side");
                    (look.after * 2).min(ROUNDS_MAX)
                }
            };
            *look = Look { round: self.round + after, after };
        }
    }
}
