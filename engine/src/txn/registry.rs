//! The registry of open transactions: their states, snapshots, and who waits for whom.
//!
//! ```text
//!   state of a place        (generation, state) in one word
//!
//!   idle ──begin──► active ──► preparing ──► committed ──► idle, generation + 1
//!                     │            │                          ▲
//!                     └────────────┴── aborted: writes undone ┘
//! ```
//!
//! A transaction id names a place and a generation. Whoever finds an id in a version looks the place up; if the
//! generation has moved on, the transaction is over and all its versions were published or taken away, so the version
//! (or the chain) is read again.
//!
//! # Why a snapshot sees whole transactions
//!
//! A committing transaction publishes *preparing* first and draws its end timestamp from the clock afterwards. A
//! snapshot is a reading of the clock. So for every timestamp that a snapshot covers, the transaction that has it was
//! seen as preparing, or further, by whoever reads the clock then (both are sequentially consistent). A reader that
//! meets a preparing transaction waits until it has its timestamp (a moment: nothing lies between the two), and if the
//! snapshot covers the timestamp, until it is decided. A validator does the same with its own end timestamp, so of two
//! validators at least one sees the other. Waits for a decision go from larger timestamps to smaller ones only:
//! no circle.
//!
//! # Why the pruner sees every snapshot
//!
//! A reader stores a *reserved* mark (a past reading of the clock, which is a lower bound) in its place, with a full
//! fence, and only then reads the clock for its snapshot. The pruner reads the clock first and then the places. If it
//! misses a reader's mark, the mark came after the pruner's reading of the clock, so the snapshot is not older than
//! that reading, and the pruner keeps everything that is visible from there on. If it sees the mark only, it keeps
//! everything visible from the lower bound on.

use std::sync::OnceLock;
use std::task::Waker;

use thermocline_base::ids::{TableId, Timestamp};
use thermocline_base::sync::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Backoff, CachePadded, Mutex, Ordering,
};

use crate::hot::version::TxnId;
use crate::mutation::{self, Rule};
use crate::txn::marks::Marks;

const PLACE_BITS: u32 = 12;
const PLACES: usize = 1 << PLACE_BITS;
/// Transactions that can be open at once. One place is the checkpointer's.
pub(crate) const MAX_TRANSACTIONS: usize = PLACES - 1;
const SEGMENT: usize = 64;
const CHECKPOINTER: u32 = 0;
const STATE_BITS: u32 = 2;

/// State of a transaction, as others see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Running.
    Active,
    /// Committing: it has its end timestamp, or gets it this moment.
    Preparing,
    /// Committed; its versions are being published.
    Committed,
    /// Over: the id in hand is from the past.
    Over,
}

const IDLE: u64 = 0;
const ACTIVE: u64 = 1;
const PREPARING: u64 = 2;
const COMMITTED: u64 = 3;

/// What the owner of a transaction and the one who aborts idle transactions agree on.
pub(crate) mod activity {
    /// No operation is running.
    pub(crate) const REST: u32 = 0;
    /// An operation is running.
    pub(crate) const BUSY: u32 = 1;
    /// The idle transaction is being aborted.
    pub(crate) const REAPING: u32 = 2;
    /// The idle transaction was aborted.
    pub(crate) const REAPED: u32 = 3;
}

/// The place of one open transaction.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Place {
    state: AtomicU64,
    end: AtomicU64,
    /// 0: none; else the timestamp + 1, shifted left by one, and a bit that says that it is exact.
    snapshot: AtomicU64,
    /// A lower bound, plus one, of the snapshot of a transaction that will validate its scans, or keys that it was
    /// refused; 0: it will not.
    validating: AtomicU64,
    /// Tables that the transaction uses.
    pub(crate) marks: Marks,
    /// See [`activity`].
    pub(crate) activity: AtomicU32,
    /// Counts operations, so that idleness shows without a clock on the hot path.
    pub(crate) operations: AtomicU32,
    /// The snapshot, plus one, that was cancelled because it kept memory that others need; 0: none.
    pub(crate) cancelled: AtomicU64,
    /// How old that was, in milliseconds, and how many bytes it kept. Written before `cancelled`.
    pub(crate) cancelled_age_ms: AtomicU64,
    pub(crate) cancelled_bytes: AtomicU64,
    /// The session, for whoever aborts an idle transaction; 0: none.
    pub(crate) session: AtomicUsize,
    /// While the parts of a large transaction are being written: a log position before the first one, plus one.
    pub(crate) parts_from: AtomicU64,
    /// The owner waits for its own user amid a statement, which is no idleness.
    pub(crate) attended: AtomicBool,
    /// Id of the transaction that this one waits for; 0: none.
    waiting_for: AtomicU64,
    /// How often that one had undone something when it was found in the way.
    waiting_since: AtomicU32,
    /// Counts how often transactions in this place have undone something before their end.
    undone: AtomicU32,
    has_waiters: AtomicBool,
    waiters: Mutex<Vec<Waker>>,
}

impl Place {
    /// Starts a transaction's writing life; the id for its versions.
    pub(crate) fn activate(&self, index: u32) -> TxnId {
        let generation = self.state.load(Ordering::Relaxed) >> STATE_BITS;
        self.end.store(0, Ordering::Relaxed);
        self.state.store(generation << STATE_BITS | ACTIVE, Ordering::Release);
        TxnId(generation << PLACE_BITS | u64::from(index))
    }

    fn set(&self, state: u64) {
        let generation = self.state.load(Ordering::Relaxed) >> STATE_BITS;
        self.state.store(generation << STATE_BITS | state, Ordering::SeqCst);
    }

    /// Enters *preparing* and draws the end timestamp, in this order, with nothing between.
    pub(crate) fn prepare(&self, clock: &Clock) -> Timestamp {
        if mutation::off(Rule::PreparingBeforeTimestamp) {
            let end = clock.tick();
            thermocline_base::sync::schedule_point();
            self.end.store(end.0, Ordering::SeqCst);
            self.set(PREPARING);
            return end;
        }
        self.set(PREPARING);
        let end = clock.tick();
        self.end.store(end.0, Ordering::SeqCst);
        end
    }

    /// The transaction is committed from here on.
    pub(crate) fn commit(&self) {
        self.set(COMMITTED);
    }

    /// The transaction's versions are published or undone: its id is history. Wakes whoever waited for it.
    pub(crate) fn finish(&self) {
        let generation = self.state.load(Ordering::Relaxed) >> STATE_BITS;
        self.state.store((generation + 1) << STATE_BITS | IDLE, Ordering::SeqCst);
        self.wake_waiters();
    }

    /// Notes that the transaction has undone something without ending: who found that in its way looks again.
    pub(crate) fn note_undone(&self) {
        if mutation::on(Rule::UndoingIsTold) {
            self.undone.fetch_add(1, Ordering::SeqCst);
            self.wake_waiters();
        }
    }

    fn wake_waiters(&self) {
        if self.has_waiters.load(Ordering::SeqCst) {
            self.has_waiters.store(false, Ordering::SeqCst);
            for waker in std::mem::take(&mut *self.waiters.lock()) {
                waker.wake();
            }
        }
    }

    /// Reserves a place among the snapshots, then reads the clock: the new snapshot.
    #[inline]
    pub(crate) fn take_snapshot(&self, clock: &Clock) -> Timestamp {
        if mutation::off(Rule::RegisterBeforeClock) {
            let now = clock.now();
            thermocline_base::sync::schedule_point();
            self.snapshot.swap((now.0 + 1) << 1 | 1, Ordering::SeqCst);
            return now;
        }
        // An older snapshot of this transaction is a lower bound as good as the clock.
        let held = self.snapshot.load(Ordering::Relaxed);
        let bound = if held == 0 { (clock.now().0 + 1) << 1 } else { held & !1 };
        self.snapshot.swap(bound, Ordering::SeqCst);
        let now = clock.now();
        self.snapshot.store((now.0 + 1) << 1 | 1, Ordering::Release);
        now
    }

    /// Says whether the transaction that begins will validate its scans, before it takes its snapshot. Nothing that was
    /// committed after that snapshot may leave memory before the transaction ends, so that it finds its phantoms there.
    #[inline]
    pub(crate) fn set_validating(&self, validates: bool, clock: &Clock) {
        if validates {
            self.validating.swap(clock.now().0 + 1, Ordering::SeqCst);
        }
    }

    /// Says from now on that nothing younger than `snapshot` may leave memory, until the transaction ends. `false`: that
    /// was said before.
    pub(crate) fn keep_young(&self, snapshot: Timestamp) -> bool {
        if self.validating.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.validating.swap(snapshot.0 + 1, Ordering::SeqCst);
        true
    }

    /// The snapshot that is held here, if it is known exactly.
    pub(crate) fn snapshot(&self) -> Option<Timestamp> {
        let word = self.snapshot.load(Ordering::SeqCst);
        (word & 1 == 1).then(|| Timestamp((word >> 1) - 1))
    }

    /// Gives the snapshot up.
    #[inline]
    pub(crate) fn drop_snapshot(&self) {
        if self.validating.load(Ordering::Relaxed) != 0 {
            self.validating.store(0, Ordering::Release);
        }
        self.snapshot.store(0, Ordering::Release);
    }
}

/// The clock of the serialization order.
#[derive(Debug, Default)]
pub(crate) struct Clock(CachePadded<AtomicU64>);

impl Clock {
    /// A clock that has reached `now`.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self(CachePadded(AtomicU64::new(now.0)))
    }

    /// The last timestamp that was drawn.
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    /// Draws the next timestamp.
    #[inline]
    pub(crate) fn tick(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Moves the clock to at least `timestamp` (recovery).
    pub(crate) fn reach(&self, timestamp: Timestamp) {
        self.0.fetch_max(timestamp.0, Ordering::SeqCst);
    }
}

/// Snapshots that somebody may read at.
#[derive(Debug, Default, Clone)]
pub(crate) struct ActiveSnapshots {
    /// Exact ones, ascending.
    exact: Vec<u64>,
    /// From here on, any snapshot may exist.
    floor: u64,
}

impl ActiveSnapshots {
    /// May somebody see a version that was valid from `begin` until just before `end`? If so, the newest snapshot
    /// that may; [`Timestamp`] of the clock and later count as the future.
    #[inline]
    pub(crate) fn pins(&self, begin: Timestamp, end: Timestamp) -> Option<Timestamp> {
        if mutation::off(Rule::PruneKeepsSnapshots) {
            return (end.0 > self.floor).then_some(Timestamp(self.floor));
        }
        if end.0 > self.floor {
            // Never a snapshot from before the version: whoever waits for it finds the version again by that.
            return Some(Timestamp(self.floor.max(begin.0)));
        }
        let below_end = self.exact.partition_point(|&snapshot| snapshot < end.0);
        match self.exact[..below_end].last() {
            Some(&newest) if newest >= begin.0 => Some(Timestamp(newest)),
            _ => None,
        }
    }

    /// The oldest snapshot that somebody may hold.
    pub(crate) fn oldest(&self) -> Timestamp {
        Timestamp(self.exact.first().copied().unwrap_or(self.floor).min(self.floor))
    }

    /// Is anybody reading at exactly this timestamp, or may somebody be?
    pub(crate) fn holds(&self, snapshot: Timestamp) -> bool {
        snapshot.0 >= self.floor || self.exact.binary_search(&snapshot.0).is_ok()
    }
}

type Segment = Box<[Place]>;

/// All places.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) clock: Clock,
    segments: Box<[OnceLock<Segment>]>,
    /// Places that were ever used.
    used: CachePadded<AtomicUsize>,
    free: Mutex<Vec<u32>>,
    /// Held while somebody looks for a circle of waits, so that of those who close one only one finds it. Waits for what is no
    /// row stand in it, with the places that wait.
    circles: Mutex<Vec<(u32, WaitsFor)>>,
}

/// What a transaction waits for that is no row: says which places that are, at the moment when it is asked.
pub(crate) struct WaitsFor(Box<Places>);

/// Places of transactions, at the moment when they are asked for.
type Places = dyn Fn(&Registry) -> Vec<u32> + Send;

impl WaitsFor {
    pub(crate) fn new(places: impl Fn(&Registry) -> Vec<u32> + Send + 'static) -> Self {
        Self(Box::new(places))
    }

    /// What is in the way of a transaction without an id: as [`Registry::wait_for`] has it for others.
    pub(crate) fn row_of(id: TxnId, since: u32) -> Self {
        let place =
            move |registry: &Registry| registry.is_in_the_way(id, since).then(|| Registry::index_of(id));
        Self::new(move |registry| place(registry).into_iter().collect())
    }
}

impl std::fmt::Debug for WaitsFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WaitsFor")
    }
}

/// A wait for something that is no row, for as long as it lives.
pub(crate) struct Edge<'a> {
    registry: &'a Registry,
    place: u32,
}

impl Drop for Edge<'_> {
    fn drop(&mut self) {
        // A transaction waits for one thing at a time.
        self.registry.circles.lock().retain(|(place, _)| *place != self.place);
    }
}

impl Registry {
    /// A registry without open transactions.
    pub(crate) fn new(now: Timestamp) -> Self {
        let registry = Self {
            clock: Clock::new(now),
            segments: (0..PLACES / SEGMENT).map(|_| OnceLock::new()).collect(),
            used: CachePadded(AtomicUsize::new(0)),
            free: Mutex::new(Vec::new()),
            circles: Mutex::new(Vec::new()),
        };
        let checkpointer = registry.take_place();
        assert_eq!(checkpointer, Some(CHECKPOINTER), "the first place is the checkpointer's");
        registry
    }

    /// The place of whoever images chunks (one at a time, under the maintenance lock).
    pub(crate) fn checkpointer(&self) -> &Place {
        self.place(CHECKPOINTER)
    }

    /// Takes a place; `None` when all are taken.
    pub(crate) fn take_place(&self) -> Option<u32> {
        let mut free = self.free.lock();
        if let Some(index) = free.pop() {
            return Some(index);
        }
        let index = self.used.load(Ordering::Relaxed);
        if index == PLACES {
            return None;
        }
        self.segments[index / SEGMENT].get_or_init(|| (0..SEGMENT).map(|_| Place::default()).collect());
        self.used.store(index + 1, Ordering::SeqCst);
        Some(u32::try_from(index).expect("places are few"))
    }

    /// Gives a place back.
    pub(crate) fn give_place(&self, index: u32) {
        self.free.lock().push(index);
    }

    /// The place with this index, which was taken before.
    #[inline]
    pub(crate) fn place(&self, index: u32) -> &Place {
        let index = index as usize;
        &self.segments[index / SEGMENT].get().expect("a place that was taken has its segment")
            [index % SEGMENT]
    }

    /// All places that were ever taken.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        (0..self.used.load(Ordering::SeqCst)).map(|index| self.place(index as u32))
    }

    #[inline]
    fn place_of(&self, id: TxnId) -> (&Place, u64) {
        (self.place((id.0 & ((1 << PLACE_BITS) - 1)) as u32), id.0 >> PLACE_BITS)
    }

    /// State and end timestamp of a transaction. Waits out the moment between *preparing* and the timestamp.
    #[inline]
    pub(crate) fn state(&self, id: TxnId) -> (State, Timestamp) {
        let (place, generation) = self.place_of(id);
        let mut backoff = Backoff::new();
        loop {
            let word = place.state.load(Ordering::SeqCst);
            if word >> STATE_BITS != generation {
                return (State::Over, Timestamp(0));
            }
            let state = match word & ((1 << STATE_BITS) - 1) {
                ACTIVE => return (State::Active, Timestamp(0)),
                PREPARING => State::Preparing,
                COMMITTED => State::Committed,
                // The generation changes together with the return to idle.
                _ => return (State::Over, Timestamp(0)),
            };
            let end = place.end.load(Ordering::SeqCst);
            if end != 0 && place.state.load(Ordering::SeqCst) >> STATE_BITS == generation {
                return (state, Timestamp(end));
            }
            backoff.wait();
        }
    }

    /// Is the transaction over?
    pub(crate) fn is_over(&self, id: TxnId) -> bool {
        let (place, generation) = self.place_of(id);
        place.state.load(Ordering::SeqCst) >> STATE_BITS != generation
    }

    /// The transaction in this place, if it has an id.
    pub(crate) fn active_in(&self, index: u32) -> Option<TxnId> {
        let word = self.place(index).state.load(Ordering::SeqCst);
        let is_idle = word & ((1 << STATE_BITS) - 1) == IDLE;
        (!is_idle).then_some(TxnId((word >> STATE_BITS) << PLACE_BITS | u64::from(index)))
    }

    /// Has `waker` woken when the transaction is over. `false`: it is over already.
    pub(crate) fn wake_when_over(&self, id: TxnId, waker: &Waker) -> bool {
        let (place, _) = self.place_of(id);
        place.waiters.lock().push(waker.clone());
        place.has_waiters.store(true, Ordering::SeqCst);
        !self.is_over(id)
    }

    /// How often the transaction has undone something.
    pub(crate) fn undone(&self, id: TxnId) -> u32 {
        self.place_of(id).0.undone.load(Ordering::SeqCst)
    }

    /// Is there still a reason to wait for a transaction that had undone something `since` times when it was found in
    /// the way? Not if it is over, or has undone something else: what was in the way may be gone.
    pub(crate) fn is_in_the_way(&self, id: TxnId, since: u32) -> bool {
        !self.is_over(id) && self.undone(id) == since
    }

    /// Notes that `me` waits for `other`, which had undone something `since` times when it was found in the way.
    /// `false`: that would close a circle, and `me` must not wait.
    pub(crate) fn wait_for(&self, me: TxnId, other: TxnId, since: u32) -> bool {
        let (place, _) = self.place_of(me);
        let others = self.circles.lock();
        place.waiting_since.store(since, Ordering::SeqCst);
        place.waiting_for.store(other.0 + 1, Ordering::SeqCst);
        if !others.is_empty() {
            let closes = self.is_in_the_way(other, since)
                && self.closes_circle(&others, Self::index_of(me), vec![Self::index_of(other)]);
            if closes {
                place.waiting_for.store(0, Ordering::SeqCst);
            }
            return !closes;
        }
        let (mut next, mut since) = (other, since);
        for _ in 0..PLACES {
            // Who waits for something that is not in its way any more is about to look again; for `me`, too, which may have
            // undone what was met.
            if !self.is_in_the_way(next, since) {
                return true;
            }
            if next == me {
                place.waiting_for.store(0, Ordering::SeqCst);
                return false;
            }
            let place = self.place_of(next).0;
            since = place.waiting_since.load(Ordering::SeqCst);
            match place.waiting_for.load(Ordering::SeqCst) {
                0 => return true,
                id => next = TxnId(id - 1),
            }
        }
        true
    }

    /// The place in an id.
    fn index_of(id: TxnId) -> u32 {
        (id.0 & ((1 << PLACE_BITS) - 1)) as u32
    }

    /// Does somebody whom `me` is about to wait for wait for `me`, directly or not?
    fn closes_circle(&self, others: &[(u32, WaitsFor)], me: u32, first: Vec<u32>) -> bool {
        let (mut seen, mut next) = (vec![false; PLACES], first);
        while let Some(index) = next.pop() {
            if index == me {
                return true;
            }
            if std::mem::replace(&mut seen[index as usize], true) {
                continue;
            }
            let place = self.place(index);
            let since = place.waiting_since.load(Ordering::SeqCst);
            if let Some(id) = place.waiting_for.load(Ordering::SeqCst).checked_sub(1)
                && self.is_in_the_way(TxnId(id), since)
            {
                next.push(Self::index_of(TxnId(id)));
            }
            next.extend(others.iter().filter(|(of, _)| *of == index).flat_map(|(_, whom)| whom.0(self)));
        }
        false
    }

    /// Notes that the transaction in `place` waits for something that is no row, until the edge is dropped. `None`: that would
    /// close a circle, and it must not wait.
    pub(crate) fn wait_for_places(&self, place: u32, whom: WaitsFor) -> Option<Edge<'_>> {
        let mut others = self.circles.lock();
        if self.closes_circle(&others, place, whom.0(self)) {
            return None;
        }
        others.push((place, whom));
        Some(Edge { registry: self, place })
    }

    /// `me` waits no longer.
    pub(crate) fn waited(&self, me: TxnId) {
        self.place_of(me).0.waiting_for.store(0, Ordering::SeqCst);
    }

    /// The oldest snapshot of a transaction that will validate its scans, or a lower bound of it; at most the clock. Who
    /// begins later has a newer one.
    pub(crate) fn oldest_validating(&self) -> Timestamp {
        let now = self.clock.now().0;
        let bound = |place: &Place| match place.validating.load(Ordering::SeqCst) {
            0 => None,
            bound => Some(bound - 1),
        };
        Timestamp(self.places().filter_map(bound).fold(now, u64::min))
    }

    /// Who is open and who waits for whom, a line each, for people who look into a hang.
    pub(crate) fn describe(&self) -> Vec<String> {
        let users = self.places().enumerate().skip(CHECKPOINTER as usize + 1);
        users.filter_map(|(index, place)| Self::describe_place(index, place)).collect()
    }

    /// The places of transactions that use this table, but for one.
    pub(crate) fn other_users(&self, table: TableId, me: u32) -> impl Iterator<Item = u32> {
        let places = self.places().enumerate().map(|(index, place)| (index as u32, place));
        places.filter(move |(index, place)| *index != me && place.marks.has(table)).map(|(index, _)| index)
    }

    /// The transactions that use this table but for one, in words.
    pub(crate) fn describe_users(&self, table: TableId, me: u32) -> Vec<String> {
        let users = self.other_users(table, me).map(|index| (index as usize, self.place(index)));
        users.filter_map(|(index, place)| Self::describe_place(index, place)).collect()
    }

    /// The transaction in this place, in words.
    pub(crate) fn describe_in(&self, index: u32) -> Option<String> {
        Self::describe_place(index as usize, self.place(index))
    }

    /// What the transaction in a place does, if there is one.
    fn describe_place(index: usize, place: &Place) -> Option<String> {
        let word = place.state.load(Ordering::SeqCst);
        let is_open = place.session.load(Ordering::SeqCst) != 0;
        let state = match word & ((1 << STATE_BITS) - 1) {
            IDLE if !is_open => return None,
            IDLE => "has written nothing",
            ACTIVE => "active",
            PREPARING => "preparing",
            _ => "committed",
        };
        let id = TxnId((word >> STATE_BITS) << PLACE_BITS | index as u64);
        let activity = match place.activity.load(Ordering::SeqCst) {
            activity::REST => "at rest",
            activity::BUSY => "in an operation",
            activity::REAPING => "being aborted for idleness",
            _ => "aborted for idleness",
        };
        let snapshot = place.snapshot().map_or_else(|| "none".to_owned(), |at| at.0.to_string());
        let waits = match place.waiting_for.load(Ordering::SeqCst) {
            0 => String::new(),
            other => format!(", waits for {:?}", TxnId(other - 1)),
        };
        let operations = place.operations.load(Ordering::Relaxed);
        Some(format!("{id:?}: {state}, {activity}, {operations} operations, snapshot {snapshot}{waits}"))
    }

    /// The places of transactions with the snapshots that they hold. Not the checkpointer's.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = (u32, Timestamp)> {
        (CHECKPOINTER + 1..self.used.load(Ordering::SeqCst) as u32)
            .filter_map(|index| self.place(index).snapshot().map(|snapshot| (index, snapshot)))
    }

    /// The snapshots that somebody may read at.
    pub(crate) fn active_snapshots(&self) -> ActiveSnapshots {
        let mut active = ActiveSnapshots { exact: Vec::new(), floor: self.clock.now().0 };
        for place in self.places() {
            match place.snapshot.load(Ordering::SeqCst) {
                0 => {}
                word if word & 1 == 1 => active.exact.push((word >> 1) - 1),
                word => active.floor = active.floor.min((word >> 1) - 1),
            }
        }
        active.exact.sort_unstable();
        active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registering_reader_never_pins_a_version_at_a_snapshot_before_it() {
        let registry = Registry::new(Timestamp(200));
        let place = registry.place(registry.take_place().expect("a place"));
        // Its lower bound is 50; what it will read at is open.
        place.snapshot.store((50 + 1) << 1, Ordering::SeqCst);
        let active = registry.active_snapshots();
        assert_eq!(active.pins(Timestamp(100), Timestamp(150)), Some(Timestamp(100)));
        assert_eq!(active.pins(Timestamp(40), Timestamp(60)), Some(Timestamp(50)));
        assert_eq!(active.pins(Timestamp(40), Timestamp(50)), None);
        assert!(active.holds(Timestamp(100)));
    }

    #[test]
    fn a_version_between_snapshots_is_not_pinned() {
        let registry = Registry::new(Timestamp(50));
        let place = registry.place(registry.take_place().expect("a place"));
        place.take_snapshot(&registry.clock);
        registry.clock.reach(Timestamp(100));
        let active = registry.active_snapshots();
        assert_eq!(active.pins(Timestamp(40), Timestamp(60)), Some(Timestamp(50)));
        assert_eq!(active.pins(Timestamp(60), Timestamp(100)), None);
        assert_eq!(active.pins(Timestamp(60), Timestamp(101)), Some(Timestamp(100)));
        assert_eq!(active.oldest(), Timestamp(50));
        place.drop_snapshot();
        assert_eq!(registry.active_snapshots().pins(Timestamp(40), Timestamp(60)), None);
    }

    #[test]
    fn a_circle_of_waits_is_found() {
        let registry = Registry::new(Timestamp(0));
        let ids: Vec<TxnId> = (0..3)
            .map(|_| {
                let index = registry.take_place().expect("a place");
                registry.place(index).activate(index)
            })
            .collect();
        assert!(registry.wait_for(ids[0], ids[1], 0));
        assert!(registry.wait_for(ids[1], ids[2], 0));
        assert!(!registry.wait_for(ids[2], ids[0], 0));
        registry.waited(ids[1]);
        assert!(registry.wait_for(ids[2], ids[0], 0));
        registry.waited(ids[2]);
        // The first stays in the way of the third, but nothing of the second is in the way of the first any more.
        assert!(registry.wait_for(ids[1], ids[2], 0));
        registry.place_of(ids[1]).0.note_undone();
        assert!(registry.wait_for(ids[2], ids[0], 0));
        assert!(!registry.is_in_the_way(ids[1], 0) && registry.is_in_the_way(ids[1], 1));
        registry.waited(ids[1]);
        registry.waited(ids[2]);
        // Nor is anything of the one whose wait would close the circle.
        assert!(registry.wait_for(ids[0], ids[1], 1));
        registry.place_of(ids[1]).0.note_undone();
        assert!(registry.wait_for(ids[1], ids[0], 0));
    }

    #[test]
    fn an_old_id_is_over() {
        let registry = Registry::new(Timestamp(0));
        let index = registry.take_place().expect("a place");
        let place = registry.place(index);
        let first = place.activate(index);
        assert_eq!(registry.state(first).0, State::Active);
        let end = place.prepare(&registry.clock);
        assert_eq!(registry.state(first), (State::Preparing, end));
        place.commit();
        assert_eq!(registry.state(first), (State::Committed, end));
        place.finish();
        assert_eq!(registry.state(first).0, State::Over);
        assert_ne!(place.activate(index), first);
    }
}
