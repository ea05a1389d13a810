//! The governor: keeps a database under its `memory_limit`.
//!
//! ```text
//!   0 ─────────────── goal ──── soft mark ───────── hard mark ── limit
//!        nothing to do │ migrate  │ migrate, shrink │ │ writers   │
//!                      │ (until)  │                 │ │ wait      │ nobody gets here
//!                                            brake ─┘ └ reserve: for what frees memory
//! ```
//!
//! One thread works in rounds. A round over the soft mark chooses rows ([`hand`]), migrates them in batches, several in
//! flight so that the waits for the log and the store overlap, cleans the update memo beside that, prunes, and gives
//! memory back: chunks are packed, versions moved out of sparse memory, indexes shrunk. Then it wakes the writers that
//! wait for room ([`crate::pressure`]).
//!
//! What counts is what the [budget](crate::hot::budget) says: memory that was taken from the system, whole blocks. Part of
//! that is free cells, which new rows can have, so the goal is about what is *live*: migration ends when that is below
//! the goal, and shrinking gives back the difference. Who waits although there are free cells (of other tables, or other
//! sizes) makes the goal go down.
//!
//! Between the soft and the hard mark stands the *brake*: from there on a transaction waits before its first write, while
//! it has no snapshot and has written nothing. One that waits later may keep in memory, by its snapshot, all that is to
//! leave.
//!
//! When rounds get nowhere and somebody waits for room, what is left is pinned. Then, in this order: the oldest
//! snapshot is cancelled, if it is old enough to be to blame (its transaction gets SQLSTATE 72000), and with it those that
//! wait for room as it does, for they see the same; the waiting
//! transaction with the most writes of its own is refused (53200), since nobody can wait for itself; everybody is refused.
//!
//! Rules:
//! - The governor waits for the log and for the store, never for a transaction.
//! - A migration, a promotion or a round of cleaning that fails is not the end: rows are where they were, and the next
//!   round tries again. Who waits meanwhile is refused in the end.
//! - Databases without a directory have no governor, unless they were told to keep cold rows in memory.

mod ages;
mod hand;
#[cfg(all(test, feature = "model"))]
mod pressed_tests;
#[cfg(test)]
mod tests;
mod warmth;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::ids::Timestamp;
use thermocline_base::multiplex::run_tasks;
use thermocline_base::sync::{Mutex, Ordering};

use crate::cold::store::StoreMemory;
use crate::error::Error;
use crate::hot::budget::MemoryKind;
use crate::hot::reuse::{self, Leaving, Moment};
use crate::mutation::{self, Rule};
use crate::ops::drive::reap;
use crate::ops::maintain::Rounds;
use crate::ops::memory::{
    BATCH_ROWS, GOAL, each_memory, live_bytes, moving_bytes_max, note_memory, row_bytes,
};
use crate::ops::temperatures;
use crate::pressure::{Trimmer, Verdict, Wanted};
use crate::session::db::Inner;

use self::ages::{Ages, Held};
use self::hand::{Choice, Hands, Mood, Portion, Rules};
use self::warmth::Thermometer;
pub(crate) use self::warmth::warmth_of;

/// From here on memory is given back: free cells, sparse chunks, indexes. In thousandths of the limit.
const SHRINK: u64 = 860;
/// The soft mark: from here on single rows leave.
const SOFT: u64 = 880;
/// The same while chunks freeze and leave: single rows would leave that are in use, while whole chunks free more for less.
const SOFT_BESIDE_CHUNKS: u64 = 940;
/// But so many bytes below the hard mark: under a small limit chunks are too coarse to keep away from it.
const BESIDE_CHUNKS_SLACK: u64 = 16 << 20;
/// So long writers wait for chunks before single rows leave for them.
const PATIENCE_NS: u64 = 20_000_000;
/// So long after one has, chunks are taken to free what is needed.
const BESIDE_CHUNKS_NS: u64 = 1_000_000_000;
/// Where who has not written yet waits before he does, in thousandths of the limit.
const BRAKE: u64 = 920;
const GOAL_MIN: u64 = 300;
/// By how much the goal goes down when writers wait in vain, and up again.
const GOAL_STEP: u64 = 20;
/// So long shrinking has to have given nothing back before the goal goes down by a step.
const LOWERING_NS: u64 = 50_000_000;
const BATCH_ROWS_MIN: usize = 128;
/// Rows that are brought back in one round.
const PROMOTIONS: usize = 256;
/// Time between two rounds when there is nothing to do.
const PAUSE: Duration = Duration::from_millis(10);
/// The same when memory is short, and nothing can be done at the moment.
const PAUSE_SHORT: Duration = Duration::from_millis(2);
/// Time between two rounds of cleaning, and when memory is short.
const CLEANING: Duration = Duration::from_millis(50);
const CLEANING_SHORT: Duration = Duration::from_millis(5);
/// Time between two rounds of shrinking while memory is short.
const SHRINKING_NS: u64 = 20_000_000;
/// The same when shrinking brings nothing.
const SHRINKING_NS_MAX: u64 = 1_000_000_000;
/// Time between two rounds of trimming the heap while memory is short, and while it is not: merges go on.
const TRIMMING_NS: u64 = 200_000_000;
const TRIMMING_CALM_NS: u64 = 1_000_000_000;
/// Time between two looks for tables that are paged.
const PAGED_NS: u64 = 1_000_000_000;
/// What part of the time it may take: a large heap, which others in the process may have, takes long.
const TRIMMING_SHARE: u64 = 100;
/// A snapshot that is older may be cancelled.
const OLD_NS: u64 = 250_000_000;
/// So long the governor may get nowhere while somebody waits.
const STUCK_NS: u64 = 100_000_000;
/// So long nothing may move, and then what those see who wait for it is to blame.
const BLOCKED_NS: u64 = 300_000_000;
/// So long writers may wait for their turn, one after the other, before a snapshot that is as old is cancelled, if it keeps
/// more than this part of the limit.
const PRESSED_NS: u64 = 1_000_000_000;
const PRESSING_SHARE: u64 = 3;
/// So long an operation waits for room in all, although the governor gets somewhere.
const WAIT_NS: u64 = 10_000_000_000;

/// The thread's main function.
pub(crate) fn run(inner: &Arc<Inner>) {
    let governor = &inner.governor;
    governor.bind_thread();
    inner.budget.set_governed(true);
    crate::ops::page::look_for_paged_tables(inner);
    // What has been allocated since recovery ended, log and cold store among it, is no reason to leave a database that
    // was opened beyond its limit there for ever.
    note_memory(inner);
    inner.budget.note_beginning();
    governor.begin();
    std::thread::scope(|scope| {
        // Inside, so that those who wait learn of a panic before the cleaner ends.
        let _ended = Ended(inner);
        let clean = || clean_on(inner);
        // Without a thread for it nothing is cleaned until the database is opened again, and memory gets tight earlier.
        if let Err(error) =
            std::thread::Builder::new().name("thermocline-cleaner".to_owned()).spawn_scoped(scope, clean)
        {
            tracing::error!(%error, "the cold store is not cleaned: there is no thread for it");
        }
        let mut work = Work::new(inner);
        while !inner.closing.has_begun() {
            let pause = work.round();
            governor.counters.cpu_ns.store(thermocline_base::clock::thread_cpu_ns(), Ordering::Relaxed);
            if !pause.is_zero() {
                std::thread::park_timeout(pause);
            }
        }
    });
    temperatures::store(inner);
}

/// Cleans beside the governor's rounds: a round of cleaning may wait long for the store, and nobody waits for it.
fn clean_on(inner: &Arc<Inner>) {
    let mut failure = None;
    while !inner.closing.has_begun() {
        let outcome = thermocline_base::multiplex::block_on(crate::ops::clean::clean(inner));
        let was_idle = outcome.as_ref().is_ok_and(|cleaning| cleaning.is_empty());
        note_failure(&mut failure, outcome.err(), "the cold store could not be cleaned");
        let is_short = inner.governor.is_pressing(&inner.budget);
        std::thread::sleep(if is_short && !was_idle { CLEANING_SHORT } else { CLEANING });
    }
}

/// True if the error is a full disk.
fn is_full(error: &Error) -> bool {
    match error {
        Error::DiskFull { .. } => true,
        Error::ColdStore { source, .. } => source.is_full(),
        _ => false,
    }
}

/// Says what has failed, once.
fn note_failure(known: &mut Option<String>, failure: Option<Error>, what: &str) {
    let failure = failure.map(|error| error.to_string());
    if failure != *known
        && let Some(error) = &failure
    {
        tracing::error!(%error, "{what}; this is tried again and again");
    }
    *known = failure;
}

/// Sends away who waits, however the thread ends.
struct Ended<'a>(&'a Inner);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.governor.end();
    }
}

/// What the governor remembers between its rounds.
struct Work<'a> {
    inner: &'a Arc<Inner>,
    hands: Hands,
    thermometer: Thermometer,
    rounds: Rounds,
    ages: Ages,
    /// The limit of the last round.
    limit: u64,
    goal: u64,
    batch_rows: usize,
    /// Bytes that have moved and that somebody may still see, with the clock after the move.
    leaving: VecDeque<(Timestamp, u64)>,
    /// When the last round began.
    round_ns: u64,
    shrunk_ns: u64,
    shrinking_ns: u64,
    relaxed_ns: u64,
    lowered_ns: u64,
    /// When shrinking has last given something back.
    freed_ns: u64,
    trimmer: Trimmer,
    /// When it was looked for paged tables.
    paged_ns: u64,
    /// When somebody was last seen to wait. Who was told to try again is about to wait again, but is not seen meanwhile.
    waited_ns: u64,
    /// Since when nothing has moved, nor will, although somebody waits again and again.
    blocked_ns: Option<u64>,
    /// Since when nothing has been gained.
    stuck_ns: Option<u64>,
    /// For how long more has been used than the brake says while writers waited, less for how long that was not so.
    pressed_ns: u64,
    /// Nothing can be gained: nobody need wait for his turn.
    futile: bool,
    /// Migrating has failed, and why.
    failure: Option<String>,
}

/// What a round of migration came to.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    rows: usize,
    bytes: usize,
    stayed: usize,
}

impl<'a> Work<'a> {
    fn new(inner: &'a Arc<Inner>) -> Self {
        Self {
            inner,
            hands: Hands::default(),
            thermometer: Thermometer::default(),
            rounds: Rounds::default(),
            ages: Ages::default(),
            limit: 0,
            goal: GOAL,
            batch_rows: BATCH_ROWS,
            leaving: VecDeque::new(),
            round_ns: 0,
            shrunk_ns: 0,
            shrinking_ns: SHRINKING_NS,
            relaxed_ns: 0,
            lowered_ns: 0,
            freed_ns: 0,
            trimmer: Trimmer::default(),
            paged_ns: inner.clock.now_ns(),
            waited_ns: 0,
            blocked_ns: None,
            stuck_ns: None,
            pressed_ns: 0,
            futile: false,
            failure: None,
        }
    }

    /// One round; how long to wait for the next.
    fn round(&mut self) -> Duration {
        let now = self.inner.clock.now_ns();
        let passed = now.saturating_sub(std::mem::replace(&mut self.round_ns, now));
        self.inner.governor.set_moment(Moment::at(now));
        self.ages.look(&self.inner.registry, now);
        if now.saturating_sub(self.paged_ns) > PAGED_NS {
            self.paged_ns = now;
            crate::ops::page::look_for_paged_tables(self.inner);
        }
        note_memory(self.inner);
        if let Some(paged) = self.inner.paged.get() {
            paged.tidy();
        }
        let budget = &self.inner.budget;
        budget.note_progress();
        let (Some(limit), Some(room)) = (budget.limit(), budget.room()) else {
            self.inner.governor.set_brake(0);
            self.inner.governor.settle_all(Verdict::TryAgain);
            return PAUSE;
        };
        let of = |thousandths: u64| room / 1000 * thousandths;
        if limit != self.limit {
            self.limit = limit;
            if let Some(cold) = self.inner.cold.get() {
                cold.store.set_frame_bytes(StoreMemory::within(Some(limit)).frame_bytes);
            }
            if let Some(warmth) = self.inner.warm.get() {
                warmth.fit(temperatures::classifier_within(limit).memory_bytes);
            }
        }
        self.measure(now, of(self.goal));
        let brake = if self.futile { 0 } else { of(BRAKE) };
        self.inner.governor.set_brake(brake);
        let waiting = self.inner.governor.longest_wait();
        self.inner.governor.waiting_places().into_iter().for_each(|place| self.ages.excuse(place));
        let waits = waiting.is_some() || now.saturating_sub(self.waited_ns) <= STUCK_NS;
        self.note_pressure(now, passed, waits && budget.used() > of(BRAKE), limit);
        if budget.used() <= of(SHRINK) && waiting.is_none() {
            self.stuck_ns = None;
            if now.saturating_sub(self.relaxed_ns) > 200_000_000 {
                self.relaxed_ns = now;
                self.goal = (self.goal + GOAL_STEP / 4).min(GOAL);
                self.hands.relax();
            }
            if budget.used() > limit / 2 {
                self.trimmer.trim(&*self.inner.clock, TRIMMING_CALM_NS, TRIMMING_SHARE);
            }
            self.promote();
            return PAUSE;
        }
        self.inner.governor.counters.rounds.fetch_add(1, Ordering::Relaxed);
        self.inner.governor.wake_freezers();
        let before = live_bytes(self.inner);
        let used_before = budget.used();
        let leaving = self.leaving_bytes();
        // Waiters are patient for a moment while chunks free memory.
        let patience = if self.chunks_work(now) { PATIENCE_NS } else { 0 };
        let beside_chunks =
            of(SOFT_BESIDE_CHUNKS).min(budget.hard_mark().saturating_sub(BESIDE_CHUNKS_SLACK));
        let soft = if patience > 0 { of(SOFT).max(beside_chunks) } else { of(SOFT) };
        let is_late = waiting.is_some_and(|waiting| now.saturating_sub(waiting.since_ns) >= patience);
        let wanted = match used_before > soft || is_late {
            true => before.saturating_sub(of(self.goal)).saturating_sub(leaving),
            false => 0,
        };
        let moved = self.migrate(wanted);
        if moved.rows > 0 {
            self.leaving.push_back((self.inner.registry.clock.now(), moved.bytes as u64));
        }
        let rests = wanted == 0 && leaving == 0 && waiting.is_none();
        if !rests {
            self.prune();
        }
        let shrinking = if waiting.is_some() { SHRINKING_NS } else { self.shrinking_ns };
        if budget.used() > of(SHRINK) && now.saturating_sub(self.shrunk_ns) > shrinking {
            let before = budget.used();
            crate::ops::maintain::shrink_eagerly(self.inner, &mut self.rounds);
            self.shrunk_ns = self.inner.clock.now_ns();
            // It need not look again at once where it has found nothing.
            let freed = budget.used() + limit / 1000 < before;
            if freed {
                self.freed_ns = self.shrunk_ns;
            }
            let paid = freed || waiting.is_some();
            self.shrinking_ns =
                if paid { SHRINKING_NS } else { (self.shrinking_ns * 2).min(SHRINKING_NS_MAX) };
        }
        self.trimmer.trim(&*self.inner.clock, TRIMMING_NS, TRIMMING_SHARE);
        if !rests {
            note_memory(self.inner);
        }
        self.futile &= moved.rows == 0;
        let after = live_bytes(self.inner);
        let gained = moved.rows > 0 || after < before || budget.used() < used_before;
        // What others give back of what they had just taken is no progress.
        let is_blocked = moved.rows == 0 && leaving == 0 && after + limit / 4096 >= before;
        if !is_blocked || waiting.is_none() && now.saturating_sub(self.waited_ns) > STUCK_NS {
            self.blocked_ns = None;
        }
        let Some(waiting) = waiting else {
            self.stuck_ns = None;
            return match (rests, gained) {
                (true, _) => PAUSE,
                (false, true) => Duration::ZERO,
                (false, false) => PAUSE_SHORT,
            };
        };
        // There was work for everybody to do with what is free: if they still wait, the free memory is no use to them.
        let now = self.inner.clock.now_ns();
        self.waited_ns = now;
        // What shrinking frees may help for a moment, unless it is what the same waiters give back again and again.
        let may_help = now.saturating_sub(self.freed_ns) <= LOWERING_NS
            && now.saturating_sub(waiting.since_ns) <= 2 * LOWERING_NS;
        if self.mark_of_live(limit) < of(self.goal)
            && !may_help
            && now.saturating_sub(self.lowered_ns) > LOWERING_NS
        {
            self.lowered_ns = now;
            self.goal = (self.goal - GOAL_STEP).max(GOAL_MIN);
        }
        if gained || leaving > 0 {
            self.stuck_ns = None;
        }
        if is_blocked && now.saturating_sub(*self.blocked_ns.get_or_insert(now)) > BLOCKED_NS {
            self.blocked_ns = None;
            self.cancel_oldest(now, OLD_NS);
        }
        let stuck_since = *self.stuck_ns.get_or_insert(now);
        if now.saturating_sub(stuck_since) > STUCK_NS {
            self.give_way(now);
            self.stuck_ns = None;
        } else if now.saturating_sub(waiting.since_ns) > WAIT_NS {
            self.inner.governor.settle_since(now - WAIT_NS, Verdict::Refused);
        }
        self.inner.governor.settle_all(Verdict::TryAgain);
        if gained { Duration::ZERO } else { PAUSE_SHORT }
    }

    /// Has a chunk frozen or left just now?
    fn chunks_work(&self, now: u64) -> bool {
        let worked = self.inner.governor.freezer.worked_ns.load(Ordering::Relaxed);
        worked != 0 && now.saturating_sub(worked) < BESIDE_CHUNKS_NS
    }

    /// Writers wait for their turn, or do not, since `passed` ago. If they do most of the time, rounds get somewhere but not far
    /// enough, and the oldest snapshot keeps so much that little can come and go beside it, then it is cancelled.
    fn note_pressure(&mut self, now: u64, passed: u64, is_pressed: bool, limit: u64) {
        if !is_pressed {
            self.pressed_ns = self.pressed_ns.saturating_sub(passed);
            return;
        }
        // Rounds that take long say little of the time between them.
        self.pressed_ns = (self.pressed_ns + passed.min(PRESSED_NS / 4)).min(PRESSED_NS);
        if self.pressed_ns == PRESSED_NS
            && self.pinned_bytes() > limit / PRESSING_SHARE
            && self.cancel_oldest(now, PRESSED_NS)
        {
            self.pressed_ns = 0;
        }
    }

    /// What snapshots that are held keep in memory, about.
    fn pinned_bytes(&self) -> u64 {
        let garbage = self.inner.garbage.len() as u64 * row_bytes(self.inner);
        (self.hands.held_bytes() + garbage).min(self.inner.budget.used())
    }

    /// What has moved, and is in memory until those end who may see it there.
    fn leaving_bytes(&mut self) -> u64 {
        let oldest = self.inner.registry.active_snapshots().oldest();
        // What an old snapshot sees besides is no news to anybody who waits.
        let since = self.inner.clock.now_ns().saturating_sub(self.ages.lasting_ns());
        let recent = self.ages.timestamp_of(since);
        let has_gone = |moved: Timestamp| moved <= oldest || recent.is_none_or(|recent| moved <= recent);
        while self.leaving.front().is_some_and(|(moved, _)| has_gone(*moved)) {
            self.leaving.pop_front();
        }
        self.leaving.iter().map(|(_, bytes)| bytes).sum()
    }

    fn mark_of_live(&self, limit: u64) -> u64 {
        live_bytes(self.inner).min(limit)
    }

    /// Migrates about so many bytes.
    fn migrate(&mut self, bytes: u64) -> Moved {
        if bytes == 0 {
            self.promote();
            return Moved::default();
        }
        self.migrate_some(bytes, None)
    }

    /// The same; `leaving` says what leaves of each table, if it is not what is planned.
    fn migrate_some(&mut self, bytes: u64, leaving: Option<Leaving>) -> Moved {
        let rows = usize::try_from(bytes / row_bytes(self.inner)).unwrap_or(usize::MAX);
        let batches = rows.div_ceil(self.batch_rows).clamp(1, self.inner.options.batches_in_flight);
        let now = self.inner.clock.now_ns();
        let rules = Rules {
            now_ns: now,
            young: self.young(now),
            begins: std::array::from_fn(|class| self.timestamp_before(now, reuse::begin_ns(class))),
            leaving,
            held: match mutation::off(Rule::NewRowsLeave) {
                false => self.ages.newest_before(now.saturating_sub(self.ages.lasting_ns())),
                true => self.ages.oldest().map(|_| Timestamp(u64::MAX)),
            },
            hot: self.inner.warm.get().and_then(|warmth| {
                let mood = self.hands.mood;
                warmth.hot(|bytes| mood.hot_of(bytes))
            }),
        };
        let wanted = self.wanted();
        let portion = Portion { batches, rows: self.batch_rows, bytes: moving_bytes_max(self.inner) };
        let choices = self.hands.choose(self.inner, &rules, portion);
        let moved = Mutex::new(Moved::default());
        let failure = Mutex::new(None);
        let mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
        for Choice { entry, paged, rows } in &choices {
            if *paged {
                match crate::ops::page::page_rows(self.inner, entry, rows) {
                    Ok(over) => {
                        let mut moved = moved.lock();
                        moved.rows += over.rows as usize;
                        moved.bytes += over.bytes as usize;
                    }
                    Err(error) => *failure.lock() = Some(error),
                }
                continue;
            }
            tasks.push(Box::pin(async {
                match crate::ops::migrate::migrate(self.inner, entry, rows).await {
                    Ok(migration) => {
                        let mut moved = moved.lock();
                        moved.rows += migration.rows;
                        moved.bytes += migration.bytes;
                        moved.stayed += migration.stayed;
                    }
                    Err(error) => *failure.lock() = Some(error),
                }
            }));
        }
        tasks.extend(wanted.iter().map(|wanted| Self::bring_back(self.inner, wanted)));
        run_tasks(tasks);
        let (moved, failure) = (*moved.lock(), failure.lock().take());
        if !choices.is_empty() {
            let full = failure.as_ref().is_some_and(is_full);
            self.inner.governor.set_disk_is_full(full);
        }
        note_failure(&mut self.failure, failure, "rows could not leave memory");
        let (stayed, asked) = (moved.stayed, moved.rows + moved.stayed);
        if stayed * 4 > asked {
            self.batch_rows = (self.batch_rows / 2).max(BATCH_ROWS_MIN);
        } else if stayed * 16 < asked {
            self.batch_rows = (self.batch_rows + self.batch_rows / 8).min(BATCH_ROWS);
        }
        moved
    }

    /// What began later is too young to leave memory.
    fn young(&self, now: u64) -> Timestamp {
        match self.hands.mood.young_ns() {
            0 => Timestamp(u64::MAX),
            ns => self.timestamp_before(now, ns),
        }
    }

    /// The clock so long ago, as far as that is known.
    fn timestamp_before(&self, now: u64, ns: u64) -> Timestamp {
        self.ages.timestamp_of(now.saturating_sub(ns)).unwrap_or(Timestamp(0))
    }

    /// Collects accesses, and says how many bytes of rows may be hot when `goal` bytes are to be live in all.
    fn measure(&mut self, now: u64, goal: u64) {
        let used = |kind| self.inner.budget.used_by(kind);
        let versions = used(MemoryKind::Versions);
        let entries = used(MemoryKind::Hash) + used(MemoryKind::Tree) + used(MemoryKind::Slots);
        let others = self.inner.budget.used().saturating_sub(versions + entries);
        let rows_share = versions as f64 / (versions + entries).max(1) as f64;
        // Beside what is hot there has to be room for what is young, and for what was cold and has been changed.
        let room = goal.saturating_sub(others) / 10 * 8;
        self.thermometer.step(self.inner, now, rows_share, room);
    }

    /// Rows that are to come back from the cold store now.
    fn wanted(&mut self) -> Vec<Wanted> {
        let (Some(warmth), Some(cold)) = (self.inner.warm.get(), self.inner.cold.get()) else {
            return Vec::new();
        };
        if self.inner.budget.used() >= self.inner.budget.hard_mark() {
            return Vec::new();
        }
        self.thermometer.due(warmth, cold, self.inner.options.reads_a_promotion, PROMOTIONS)
    }

    /// Brings one of them back. Whether that succeeds matters to nobody.
    fn bring_back<'w>(inner: &'w Arc<Inner>, wanted: &'w Wanted) -> Pin<Box<dyn Future<Output = ()> + 'w>> {
        Box::pin(async move {
            if let Some(entry) = inner.catalog.by_id(wanted.table)
                && let Err(error) = crate::ops::promote::promote(inner, &entry, &wanted.key).await
            {
                tracing::debug!(%error, "a row was not brought back");
            }
        })
    }

    /// Brings hot rows back.
    fn promote(&mut self) {
        let wanted = self.wanted();
        if !wanted.is_empty() {
            run_tasks(wanted.iter().map(|wanted| Self::bring_back(self.inner, wanted)).collect());
        }
    }

    /// Frees what the moves have left behind.
    fn prune(&self) {
        let inner = self.inner;
        crate::ops::prune::prune_all(inner, false);
        // Twice: what is unlinked now is free when the pins of now have gone.
        for _ in 0..2 {
            inner.epochs.collect();
            each_memory(inner, |memory| {
                memory.collect();
            });
        }
    }

    /// The governor gets nowhere, and somebody waits: cancels or refuses.
    fn give_way(&mut self, now: u64) {
        let governor = &self.inner.governor;
        if self.hands.mood < Mood::DESPERATE {
            // Not everything has been tried.
            self.hands.mood = Mood::DESPERATE;
            return;
        }
        if self.cancel_oldest(now, OLD_NS) {
            return;
        }
        if mutation::off(Rule::NobodyWaitsForHimself) {
            return;
        }
        if !governor.refuse_largest() {
            governor.settle_all(Verdict::Refused);
            self.futile = true;
        }
    }

    /// Cancels the oldest snapshot, if it has been held for so long and keeps something; and if its transaction is waiting
    /// for room itself, all others that do and are so old: they wait for each other, and each would be the next.
    fn cancel_oldest(&mut self, now: u64, old_ns: u64) -> bool {
        self.ages.look(&self.inner.registry, now);
        let Some(oldest) = self.ages.oldest() else { return false };
        // While rows cannot leave for want of space on disk, readers go on, and writers are told.
        if mutation::off(Rule::PinnedGivesWay) || self.inner.governor.disk_is_full() {
            return false;
        }
        let pinned = self.pinned_bytes();
        let is_old = |held: &Held| now.saturating_sub(held.taken_ns) >= old_ns;
        if !is_old(&oldest) || pinned == 0 {
            return false;
        }
        let waiting = self.inner.governor.waiting_places();
        let together: Vec<Held> = match waiting.contains(&oldest.place) {
            true => self.ages.open().filter(|held| is_old(held) && waiting.contains(&held.place)).collect(),
            false => vec![oldest],
        };
        tracing::warn!(
            snapshots = together.len(),
            age_ms = now.saturating_sub(oldest.taken_ns) / 1_000_000,
            pinned_bytes = pinned,
            "the oldest snapshots were cancelled to free memory"
        );
        together.iter().for_each(|held| self.cancel(held, now, pinned));
        true
    }

    fn cancel(&mut self, held: &Held, now: u64, pinned_bytes: u64) {
        let age_ms = now.saturating_sub(held.taken_ns) / 1_000_000;
        let place = self.inner.registry.place(held.place);
        place.cancelled_age_ms.store(age_ms, Ordering::Relaxed);
        place.cancelled_bytes.store(pinned_bytes, Ordering::Relaxed);
        place.cancelled.store(held.snapshot.0 + 1, Ordering::SeqCst);
        let is_it = || place.snapshot() == Some(held.snapshot);
        // One that is in the middle of an operation finds the mark itself.
        reap(self.inner, place, is_it, || Error::SnapshotTooOld { age_ms, pinned_bytes });
        self.ages.excuse(held.place);
        self.inner.governor.settle_place(held.place);
        self.inner.governor.counters.cancelled.fetch_add(1, Ordering::Relaxed);
    }
}

/// A round as the governor's thread does it where nothing may stay that can go: for tests that decide what happens when.
/// How many rows have left memory. It blocks, so the store answers at once or has threads of its own.
pub(crate) fn press(inner: &Arc<Inner>) -> usize {
    let mut work = Work::new(inner);
    work.hands.mood = Mood::DESPERATE;
    work.ages.look(&inner.registry, inner.clock.now_ns());
    let moved = work.migrate_some(u64::MAX, Some(Leaving::from(0)));
    work.prune();
    crate::ops::maintain::shrink_eagerly(inner, &mut work.rounds);
    moved.rows
}
