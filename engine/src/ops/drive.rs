//! The driver of a transaction's session: enters an operation, runs its steps, waits between them, commits, rolls back.
//!
//! ```text
//!   user's Transaction ─┐            ┌─ enter: activity REST → BUSY, or the transaction was aborted
//!   moves, cleaning ────┴─► Driver ──┤  step:  a function over the session, `Step::Done` or `Step::Wait`
//!                                    └─ wait:  for a holder, a decision, room, cold rows, pages, the log
//! ```
//!
//! A driver owns its session. One that does nothing for longer than the idle limit is aborted by the maintenance thread (the
//! reaper), and the owner learns that from the next operation. The two agree over the word `activity` of the transaction's place:
//! the owner holds it as *busy* while an operation runs, the reaper takes it from *rest* only. A driver that is dropped rolls back.

use std::future::Future;
use std::pin::{Pin, pin};
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll};

use thermocline_base::sync::{Backoff, Ordering};

use crate::counters::WaitKind;
use crate::error::{Error, Result};
use crate::hot::budget::OutOfMemoryCause;
use crate::hot::paged::HeldRow;
use crate::hot::version::TxnId;
use crate::log::ReserveError;
use crate::log::record::Kind;
use crate::mutation::{self, Rule};
use crate::ops::cold::fetch;
use crate::ops::commit::{PartsState, Ticket};
use crate::ops::cursor::CURSOR;
use crate::ops::{Step, Wait};
use crate::options::{Isolation, TransactionOptions};
use crate::pressure::{Verdict, take_turn};
use crate::session::db::Inner;
use crate::session::{Health, Session};
use crate::txn::bodies::held_up;
use crate::txn::registry::{Place, Registry, WaitsFor, activity};

/// An open transaction: a session, and the right to touch it. Dropping it aborts the transaction.
#[derive(Debug)]
pub(crate) struct Driver {
    session: NonNull<Session>,
    place: *const Place,
}

// SAFETY: the session is owned by the driver (and touched by the reaper only under the agreement on `activity`);
// all that it points to is shared between threads anyway.
unsafe impl Send for Driver {}
// SAFETY: a shared reference gives no access to the session.
unsafe impl Sync for Driver {}

/// What the owner of a cancelled snapshot is told.
fn cancelled_error(place: &Place) -> Error {
    Error::SnapshotTooOld {
        age_ms: place.cancelled_age_ms.load(Ordering::Relaxed),
        pinned_bytes: place.cancelled_bytes.load(Ordering::Relaxed),
    }
}

/// Holds `activity` as busy.
pub(crate) struct Busy(*const Place);

// SAFETY: places are shared between threads.
unsafe impl Send for Busy {}

impl Drop for Busy {
    fn drop(&mut self) {
        // SAFETY: a `Busy` lives inside an operation of a transaction, whose session keeps the registry.
        let place = unsafe { &*self.0 };
        place.operations.store(place.operations.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        place.activity.store(activity::REST, Ordering::Release);
    }
}

impl Driver {
    /// Begins a transaction. Its snapshot is that of its first read if that may be `late`.
    pub(crate) fn begin(db: &Arc<Inner>, options: TransactionOptions, late: bool) -> Result<Self> {
        if db.closing.has_begun() {
            return Err(Error::Closed);
        }
        let mut session = db.take_session()?;
        session.begin(options, late);
        Ok(Self::start(session))
    }

    /// Begins a transaction of the engine's own. Its snapshot is that of its first read.
    pub(crate) fn internal(db: &Arc<Inner>) -> Result<Self> {
        Self::begin(db, TransactionOptions::new().isolation(Isolation::Snapshot), true)
    }

    /// Takes over a session that has been started.
    fn start(session: Box<Session>) -> Self {
        let place = std::ptr::from_ref(session.place());
        let session = NonNull::from(Box::leak(session));
        // SAFETY: the session keeps the registry alive.
        let shared = unsafe { &*place };
        shared.session.store(session.as_ptr().expose_provenance(), Ordering::Relaxed);
        shared.activity.store(activity::REST, Ordering::Release);
        Self { session, place }
    }

    /// The number of its place in the registry.
    pub(crate) fn place_index(&self) -> u32 {
        // SAFETY: it does not change while the transaction lives; the reaper does not touch it.
        unsafe { (*self.session.as_ptr()).place_index }
    }

    pub(crate) fn place(&self) -> &Place {
        // SAFETY: the session, which lives as long as the transaction, keeps the registry alive.
        unsafe { &*self.place }
    }

    #[inline]
    pub(crate) fn enter(&mut self) -> Result<Busy> {
        if !self.become_busy() {
            return Err(self.reaped());
        }
        let busy = Busy(self.place);
        if self.place().cancelled.load(Ordering::Relaxed) != 0 {
            self.check_cancelled()?;
        }
        // An operation that was dropped while it waited leaves nothing to the next one.
        let session = self.session();
        session.resumed = false;
        session.page_waits = 0;
        session.wait_limit.begin_operation();
        Ok(busy)
    }

    /// Takes `activity` from *rest*; waits for a reaper, who may find that the transaction was not idle and let it be.
    /// `false`: the transaction was aborted.
    #[inline]
    fn become_busy(&self) -> bool {
        let activity = &self.place().activity;
        activity
            .compare_exchange(activity::REST, activity::BUSY, Ordering::Acquire, Ordering::Acquire)
            .is_ok()
            || self.become_busy_after_reaper()
    }

    #[cold]
    fn become_busy_after_reaper(&self) -> bool {
        let activity = &self.place().activity;
        let mut backoff = Backoff::new();
        loop {
            match activity.compare_exchange(
                activity::REST,
                activity::BUSY,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(activity::REAPING) => backoff.wait(),
                Err(_) => return false,
            }
        }
    }

    /// The error of a transaction whose snapshot was cancelled. It is rolled back here if nobody else could.
    #[cold]
    pub(crate) fn check_cancelled(&mut self) -> Result<()> {
        let session = self.session();
        let place = session.place();
        let cancelled = place.cancelled.load(Ordering::Acquire);
        if cancelled == 0 || cancelled != session.snapshot.0.wrapping_add(1) {
            return Ok(());
        }
        if session.health == Health::Well {
            session.cancel();
        }
        let error = cancelled_error(place);
        session.db.counters.failed(&error);
        Err(error)
    }

    #[cold]
    fn reaped(&self) -> Error {
        if self.place().cancelled.load(Ordering::Acquire) != 0 {
            return cancelled_error(self.place());
        }
        // SAFETY: the reaper has finished, so the session is ours again; the options never change.
        let options = unsafe { &self.session.as_ref().db.options };
        Error::IdleTimeout {
            limit_ms: options
                .idle_limit
                .map_or(0, |limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    /// The session; only while a [`Busy`] is held.
    #[inline]
    pub(crate) fn session(&mut self) -> &mut Session {
        // SAFETY: the transaction owns the session, and `Busy` keeps the reaper away.
        unsafe { self.session.as_mut() }
    }

    /// Lets the engine's own operations work on the session.
    pub(crate) fn with_session<T>(&mut self, body: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        let _busy = self.enter()?;
        body(self.session())
    }

    /// The same for a step that may have to wait: the transaction is in an operation until the step is done.
    pub(crate) async fn finish_step<T>(
        &mut self,
        mut step: impl FnMut(&mut Session) -> Result<Step<T>>,
    ) -> Result<T> {
        let _busy = self.enter()?;
        loop {
            match step(self.session())? {
                Step::Done(outcome) => return Ok(outcome),
                Step::Wait(wait) => self.wait(wait).await?,
            }
        }
    }

    /// Notes what an error means for the rest of the transaction.
    #[cold]
    pub(crate) fn failed(&mut self, error: Error) -> Error {
        let session = self.session();
        session.db.counters.failed(&error);
        // A commit that failed has rolled back: the session is for the next transaction already.
        if error.is_retryable() && session.is_open() {
            session.health = Health::Failed;
        }
        error
    }

    pub(crate) fn wait(&mut self, wait: Wait) -> impl Future<Output = Result<()>> {
        let may = self.waits();
        self.wait_for(wait, may)
    }

    /// The same, where the operation says whether it waits for other transactions' rows.
    pub(crate) async fn wait_for(&mut self, wait: Wait, may_wait: bool) -> Result<()> {
        let session = self.session();
        let db = session.db();
        match wait {
            Wait::Decision(id) => {
                let over = Over { registry: &db.registry, id };
                db.counted(WaitKind::Decisions, over).await;
            }
            Wait::Holder { id, since, table, key } => {
                if !may_wait {
                    let error = Error::WouldWait { table, key };
                    return Err(self.failed(error));
                }
                let (me, place) = (session.id, session.place_index);
                let mut waiting = Waiting { registry: &db.registry, waiters: held_up(&db.registry, place) };
                if waiting.waiters.iter().any(|outer| !db.registry.wait_for(*outer, id, since)) {
                    return Err(self.failed(Error::WaitsForItself { table, key }));
                }
                let mut edge = None;
                if let Some(me) = me {
                    if !db.registry.wait_for(me, id, since) {
                        return Err(self.failed(Error::Deadlock { table, key }));
                    }
                    waiting.waiters.push(me);
                } else {
                    // It has written nothing, but somebody may wait for it to leave a table.
                    edge = db.registry.wait_for_places(place, WaitsFor::row_of(id, since));
                    if edge.is_none() {
                        return Err(self.failed(Error::Deadlock { table, key }));
                    }
                }
                let woken = Woken { registry: &db.registry, id, since, polled: false };
                let waited = self.within_patience(db.counted(WaitKind::Rows, woken)).await;
                drop(edge);
                if let Err(late) = waited {
                    return Err(self.failed(late.error(table, key)));
                }
            }
            Wait::Held(entry) => {
                // In a box, since it is rare: every operation's future has room for what is not.
                if let Err(error) = Box::pin(self.wait_until_let_go(&entry)).await {
                    return Err(self.failed(error));
                }
            }
            Wait::LogSpace { payload } => {
                if let Some(log) = db.log()
                    && let Err(ReserveError::Full(space)) = log.try_reserve(Kind::Commit, payload).map(drop)
                {
                    db.counted(WaitKind::LogSpace, space).await;
                }
            }
            Wait::Room { refused, since } => {
                let room =
                    db.governor.wait_for_room(Some(session.place_index), session.writes.len() as u64, since);
                let verdict = db.counted(WaitKind::Memory, room).await;
                db.governor.counters.note_wait(db.clock.now_ns().saturating_sub(since));
                // Who is cancelled is told so below.
                let is_cancelled = self.place().cancelled.load(Ordering::Relaxed) != 0;
                if verdict == Verdict::Refused && !is_cancelled {
                    return Err(self.failed(db.governor.refusal(db.cold.dir(), refused)));
                }
            }
            Wait::Cold(wait) => match db.counted(WaitKind::ColdReads, fetch(db, &wait)).await {
                Ok(answer) => self.session().note_cold_answer(&wait, answer),
                Err(error) => return Err(self.failed(error)),
            },
            Wait::Page(wait) => {
                // In a box, as above.
                match Box::pin(db.counted(WaitKind::Pages, bring_pages(&wait))).await {
                    Ok(row) => self.session().note_page_answer(row),
                    Err(error) => return Err(self.failed(error)),
                }
            }
            Wait::ColdScan => unreachable!("scans read on by themselves"),
        }
        if self.place().cancelled.load(Ordering::Relaxed) != 0 {
            self.check_cancelled()?;
        }
        Ok(())
    }

    /// A transaction is about to write. If memory is short and this is the first time, it waits now, while it keeps
    /// nothing in memory, rather than later: what its snapshot sees could not leave.
    #[inline]
    pub(crate) async fn before_write(&mut self) {
        let db = self.session().db();
        if db.governor.is_pressing(&db.budget) {
            let session = self.session();
            if session.writes.is_empty() && session.may_renew_snapshot() {
                session.let_snapshot_go();
                db.counted(
                    WaitKind::Memory,
                    take_turn(&db.governor, &db.budget, &*db.clock, Some(session.place_index)),
                )
                .await;
            }
        }
    }

    /// A step has failed. If that was for want of memory, what it has left behind is undone, down to the first `writes`
    /// writes, and the governor is waited for, without holding anything; the step may be tried again then.
    #[cold]
    pub(crate) async fn make_room(
        &mut self,
        error: Error,
        writes: usize,
        since: &mut Option<u64>,
    ) -> Result<()> {
        let Error::OutOfMemory(wanted) = error else { return Err(self.failed(error)) };
        let session = self.session();
        let db = session.db();
        if wanted.cause != OutOfMemoryCause::Limit || !db.governor.is_there() {
            return Err(self.failed(Error::OutOfMemory(wanted)));
        }
        session.undo_step(writes);
        session.let_snapshot_go();
        let pins = session.writes.len() as u64;
        let since = *since.get_or_insert_with(|| db.clock.now_ns());
        let room = db.governor.wait_for_room(Some(session.place_index), pins, since);
        let verdict = db.counted(WaitKind::Memory, room).await;
        db.governor.counters.note_wait(db.clock.now_ns().saturating_sub(since));
        if self.place().cancelled.load(Ordering::Relaxed) != 0 {
            self.check_cancelled()?;
        }
        match verdict {
            Verdict::TryAgain => Ok(()),
            Verdict::Refused => Err(self.failed(db.governor.refusal(db.cold.dir(), wanted))),
        }
    }

    /// Waits for what is in the way, until a time on the database's clock: then this is the error.
    pub(crate) async fn wait_until(&mut self, wait: Wait, at_ns: u64, error: Error) -> Result<()> {
        let db = self.session().db();
        let waited = until(db, at_ns, pin!(self.wait_for(wait, true))).await?;
        waited.unwrap_or_else(|| Err(self.failed(error)))
    }

    /// Waits for another transaction, as long as this one's limit of waits lets it ([`crate::Transaction::limit_waits`]).
    pub(crate) async fn within_patience(
        &mut self,
        wait: impl Future<Output = ()>,
    ) -> std::result::Result<(), Late> {
        let session = self.session();
        let db = session.db();
        let limit = session.wait_limit.limit_ns();
        let Some((limit_ns, at_ns)) = limit.zip(session.wait_limit.until_ns(db.clock.now_ns())) else {
            wait.await;
            return Ok(());
        };
        // In a box: every operation's future has room for what is not.
        match Box::pin(async move { until(db, at_ns, pin!(wait)).await }).await {
            Ok(Some(())) => Ok(()),
            Ok(None) => Err(Late::After(limit_ns)),
            Err(error) => Err(Late::No(error)),
        }
    }

    /// Does it wait for other transactions' rows?
    pub(crate) fn waits(&self) -> bool {
        // SAFETY: that does not change while the transaction lives; the reaper does not touch it.
        unsafe { (*self.session.as_ptr()).wait }
    }

    pub(crate) fn isolation(&self) -> crate::Isolation {
        // SAFETY: the isolation does not change while the transaction lives; the reaper does not touch it.
        unsafe { (*self.session.as_ptr()).isolation }
    }

    /// Commits a transaction of which some parts may be in the log already.
    pub(crate) async fn commit(mut self, parts: &mut PartsState, decided: impl FnOnce()) -> Result<()> {
        let (db, ticket) = {
            let _busy = self.enter()?;
            let ticket = loop {
                match self.session().try_commit(parts) {
                    Ok(Step::Done(ticket)) => break ticket,
                    Ok(Step::Wait(wait)) => self.wait(wait).await?,
                    Err(error) => return Err(self.failed(error)),
                }
            };
            (self.session().db(), ticket)
        };
        if ticket.wrote {
            decided();
        }
        // The session that keeps the database is given back only when `self` is dropped at the end.
        let acknowledged = acknowledge(db, ticket).await;
        if ticket.defined {
            crate::ops::define::free_replaced(db);
        }
        acknowledged
    }

    /// Ends the statement that is open, if the transaction still is.
    pub(crate) fn end_statement(&mut self, end: impl FnOnce(&mut Session)) {
        if self.become_busy() {
            let session = self.session();
            if session.is_open() {
                end(session);
            }
            self.place().activity.store(activity::REST, Ordering::Release);
        }
    }

    /// Rolls back, and keeps the session: all further operations fail as after a serialization failure.
    pub(crate) fn abort(&mut self) {
        // One that is reaped has been rolled back already.
        let Ok(_busy) = self.enter() else { return };
        let session = self.session();
        if session.is_open() {
            session.db.counters.rolled_back();
            session.rollback();
        }
        session.health = Health::Failed;
    }
}

/// Aborts the transaction in this place, if it does nothing and `is_it` finds that it is the right one. `false`: it
/// does something.
pub(crate) fn reap(
    db: &Inner,
    place: &Place,
    is_it: impl Fn() -> bool,
    why: impl FnOnce() -> crate::Error,
) -> bool {
    if place
        .activity
        .compare_exchange(activity::REST, activity::REAPING, Ordering::AcqRel, Ordering::Relaxed)
        .is_err()
    {
        return false;
    }
    // It may have ended, or another may have begun in its place, since it was looked at.
    let session = place.session.load(Ordering::Acquire);
    if session == CURSOR && is_it() {
        // The snapshot of a cursor: the cursor ends, its transaction does not.
        place.drop_snapshot();
        place.activity.store(activity::REAPED, Ordering::Release);
    } else if session != 0 && session != CURSOR && is_it() {
        // SAFETY: the owner puts the pointer there for as long as the session is its own, and keeps its hands off
        // while `activity` says *reaping*.
        let session = unsafe { &mut *std::ptr::with_exposed_provenance_mut::<Session>(session) };
        if mutation::off(Rule::IdleAbortUndoesFirst) {
            place.activity.store(activity::REAPED, Ordering::Release);
        }
        if session.is_open() {
            db.counters.failed(&why());
            session.rollback();
        }
        place.activity.store(activity::REAPED, Ordering::Release);
    } else {
        place.activity.store(activity::REST, Ordering::Release);
    }
    true
}

/// Waits until a committed transaction may be acknowledged.
async fn acknowledge(db: &Inner, ticket: Ticket) -> Result<()> {
    if ticket.wrote {
        if let Some(log) = db.log()
            && mutation::on(Rule::AckAfterDurable)
        {
            let acknowledged = db.counted(WaitKind::LogSync, log.wait_acknowledged(ticket.lsn)).await;
            acknowledged.map_err(|error| db.log_error(&error))?;
        }
    } else if let Some(log) = db.log_to_wait_for()
        && !ticket.harmless
        && mutation::on(Rule::ReadOnlyAckAfterDurable)
    {
        let durable = db.counted(WaitKind::LogSync, log.wait_durable(ticket.lsn)).await;
        durable.map_err(|error| db.log_error(&error))?;
    }
    Ok(())
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Aborted or not, the reaper is through with it.
        let _ = self.become_busy();
        self.place().session.store(0, Ordering::Relaxed);
        // SAFETY: the pointer came from a box in `start`, the reaper is kept away by `activity`, and nobody uses the
        // transaction any more.
        let mut session = unsafe { Box::from_raw(self.session.as_ptr()) };
        if session.is_open() {
            session.db.counters.rolled_back();
            session.rollback();
        }
        // A session that is not kept may hold the last reference to the database, so nobody borrows that any more.
        drop(session.db().give_session(session));
    }
}

/// Ready when a transaction is over.
struct Over<'a> {
    registry: &'a Registry,
    id: TxnId,
}

impl Future for Over<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.registry.is_over(self.id) || !self.registry.wake_when_over(self.id, context.waker()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// Ready when a transaction is over, or has undone something: the second time it is polled.
struct Woken<'a> {
    registry: &'a Registry,
    id: TxnId,
    since: u32,
    polled: bool,
}

impl Future for Woken<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (registry, id, since) = (self.registry, self.id, self.since);
        if std::mem::replace(&mut self.polled, true)
            || !registry.is_in_the_way(id, since)
            || !registry.wake_when_over(id, context.waker())
            // It may have undone something before the waker was there.
            || !registry.is_in_the_way(id, since)
        {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// Edges of the graph of waits, for as long as it lives: of the waiter, and of the transactions that it holds up.
struct Waiting<'a> {
    registry: &'a Registry,
    waiters: Vec<TxnId>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        for waiter in &self.waiters {
            self.registry.waited(*waiter);
        }
    }
}

/// The end of a wait that did not bring what was waited for.
pub(crate) enum Late {
    /// It took longer than the transaction waits, in nanoseconds.
    After(u64),
    /// There is no timer.
    No(Error),
}

impl Late {
    /// The error of an operation that waited for this.
    pub(crate) fn error(self, table: String, key: String) -> Error {
        match self {
            Self::After(limit_ns) => {
                Error::LockTimeout { table, key, limit_ms: limit_ns.div_ceil(1_000_000) }
            }
            Self::No(error) => error,
        }
    }
}

/// The outcome of `wait`, or none if a time on the database's clock comes first.
async fn until<T>(
    db: &Inner,
    at_ns: u64,
    mut wait: Pin<&mut (impl Future<Output = T> + ?Sized)>,
) -> Result<Option<T>> {
    let sleep = db.timer.sleep_until(at_ns);
    let mut sleep = pin!(sleep.map_err(|error| Error::Refused(format!("no thread for timers: {error}")))?);
    Ok(std::future::poll_fn(|context| match wait.as_mut().poll(context) {
        Poll::Ready(waited) => Poll::Ready(Some(waited)),
        Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
    })
    .await)
}

/// Brings the pages that the reader of an absent row waits for.
///
/// # Errors
/// A page is lost; what it is of is named.
async fn bring_pages(wait: &crate::ops::PageWait) -> Result<HeldRow> {
    wait.absent.bring().await.map_err(|source| Error::Paged { table: Some(wait.table.clone()), source })
}
