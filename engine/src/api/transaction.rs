//! Transactions as users see them: each operation is `async`, ready at once as long as nothing has to be waited for.
//!
//! A [`Transaction`] is `Send`, needs no runtime, and aborts when it is dropped. One that does nothing for longer than
//! the idle limit is aborted by the maintenance thread; its owner learns that from the next operation. The two agree
//! over the word `activity` of the transaction's place: the owner holds it as *busy* while an operation runs, the
//! other side takes it from *rest* only.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

use serde::Serialize;
use serde::de::DeserializeOwned;
use thermocline_base::ids::RowId;
use thermocline_base::sync::{Backoff, Ordering};

use crate::api::{Index, Table};
use crate::counters::WaitKind;
use crate::db::Inner;
use crate::error::{Error, Result};
use crate::hot::budget::OutOfMemoryCause;
use crate::hot::version::TxnId;
use crate::index::tree::Direction;
use crate::log::ReserveError;
use crate::log::record::Kind;
use crate::ops::ahead::read_ahead;
use crate::ops::change::Named;
use crate::ops::cold::fetch;
use crate::ops::commit::{PartsState, Ticket};
use crate::ops::load::{Batch, LoadState};
use crate::ops::lock::Locked;
use crate::ops::read::Approach;
use crate::ops::rollback::Savepoint;
use crate::ops::scan::KeyRange;
use crate::ops::write::InsertState;
use crate::ops::{Step, Wait};
use crate::pressure::{Verdict, take_turn};
use crate::row::{EncodedRow, KeyBuf, RowEditor, RowRef, TypedRow, Value};
use crate::session::{Health, NO_SNAPSHOT, Session};
use crate::txn::bodies::held_up;
use crate::txn::locks::LockMode;
use crate::txn::registry::{Place, Registry, WaitsFor, activity};
use thermocline_base::multiplex::{give_way, has_company};

mod columns;
mod cursor;
mod define;
mod define_alone;
mod hold;
mod reads;
mod statement;

pub use columns::{Aggregate, ColumnScan, ColumnScanBuilder};
pub use cursor::Cursor;
pub use reads::Stop;
pub use statement::{LockWait, Statement};

/// An open transaction. Dropping it aborts it.
///
/// Rows that go in are encoded with their layout ([`EncodedRow`]), rows that are read are bytes (see [`mod@crate::row`]); keys are order-preserving encoded bytes ([`KeyBuf`]).
#[derive(Debug)]
pub struct Transaction {
    session: NonNull<Session>,
    place: *const Place,
}

// SAFETY: the session is owned by the transaction (and touched by the reaper only under the agreement on `activity`);
// all that it points to is shared between threads anyway.
unsafe impl Send for Transaction {}
// SAFETY: a shared reference gives no access to the session.
unsafe impl Sync for Transaction {}

/// What the owner of a cancelled snapshot is told.
fn cancelled_error(place: &Place) -> Error {
    Error::SnapshotTooOld {
        age_ms: place.cancelled_age_ms.load(Ordering::Relaxed),
        pinned_bytes: place.cancelled_bytes.load(Ordering::Relaxed),
    }
}

/// Holds `activity` as busy.
struct Busy(*const Place);

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

impl Transaction {
    /// Takes over a session that has been started.
    pub(crate) fn start(session: Box<Session>) -> Self {
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

    fn place(&self) -> &Place {
        // SAFETY: the session, which lives as long as the transaction, keeps the registry alive.
        unsafe { &*self.place }
    }

    #[inline]
    fn enter(&mut self) -> Result<Busy> {
        if !self.become_busy() {
            return Err(self.reaped());
        }
        let busy = Busy(self.place);
        if self.place().cancelled.load(Ordering::Relaxed) != 0 {
            self.check_cancelled()?;
        }
        // An operation that was dropped while it waited leaves nothing to the next one.
        self.session().resumed = false;
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
    fn failed(&mut self, error: Error) -> Error {
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
    async fn wait_for(&mut self, wait: Wait, may_wait: bool) -> Result<()> {
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
                db.counted(WaitKind::Rows, woken).await;
                drop(edge);
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
                    return Err(self.failed(db.governor.refusal(&db.cold_dir, refused)));
                }
            }
            Wait::Cold(wait) => match db.counted(WaitKind::ColdReads, fetch(db, &wait)).await {
                Ok(answer) => self.session().note_cold_answer(&wait, answer),
                Err(error) => return Err(self.failed(error)),
            },
            Wait::Page(wait) => {
                // In a box, as above.
                if let Err(error) = Box::pin(db.counted(WaitKind::Pages, db.bring_pages(&wait))).await {
                    return Err(self.failed(error));
                }
                let session = self.session();
                session.page_waits = session.page_waits.saturating_add(1);
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
    async fn before_write(&mut self) {
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
    async fn make_room(&mut self, error: Error, writes: usize, since: &mut Option<u64>) -> Result<()> {
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
            Verdict::Refused => Err(self.failed(db.governor.refusal(&db.cold_dir, wanted))),
        }
    }

    /// Brings what a lookup will need into the processor's caches while other tasks of the worker run.
    #[inline]
    async fn approach(&mut self, index: &Index, key: &[u8]) {
        if has_company() && self.session().may_give_way() {
            let mut state = Approach::default();
            while self.session().approach(&index.entry, index.id, key, &mut state) {
                give_way().await;
            }
        }
    }

    /// Asks the processor for what reads or updates of these keys will need, all at the same time. A hint: it changes
    /// nothing but the time that the following operations take. Worth it from two keys on.
    ///
    /// # Errors
    /// The transaction was aborted for idleness; a dropped table, or one of another database.
    pub fn prefetch<'k>(&mut self, index: &Index, keys: impl IntoIterator<Item = &'k [u8]>) -> Result<()> {
        let _busy = self.enter()?;
        self.session().check_handle(&index.entry)?;
        self.session().note_hint();
        self.session().prefetch(&index.entry, index.id, keys.into_iter());
        Ok(())
    }

    /// As [`Transaction::prefetch`], and reads what is cold: waits for all of these rows (32 at most) at the same time, so
    /// that the following operations do not wait for one after the other. Best before anything else, while the
    /// transaction has neither a snapshot nor locks.
    ///
    /// # Errors
    /// The transaction was aborted for idleness.
    pub async fn prefetch_cold<'k>(
        &mut self,
        index: &Index,
        keys: impl IntoIterator<Item = &'k [u8], IntoIter: Clone>,
    ) -> Result<()> {
        let _busy = self.enter()?;
        let session = self.session();
        session.check_handle(&index.entry)?;
        session.note_hint();
        let keys = keys.into_iter();
        session.prefetch(&index.entry, index.id, keys.clone());
        let cold = session.keys_to_read(&index.entry, index.id, keys);
        if !cold.is_empty() {
            let db = session.db();
            db.counted(WaitKind::ReadsAhead, read_ahead(db, &cold)).await;
        }
        Ok(())
    }

    /// The same for the rows whose keys in a secondary index begin with `prefix`, as far as they are cold: the first 32.
    ///
    /// # Errors
    /// The transaction was aborted for idleness.
    pub async fn prefetch_cold_prefix(&mut self, index: &Index, prefix: &[u8]) -> Result<()> {
        let _busy = self.enter()?;
        let session = self.session();
        session.check_handle(&index.entry)?;
        session.note_hint();
        let cold = session.prefix_to_read(&index.entry, index.id, prefix);
        if !cold.is_empty() {
            let db = session.db();
            db.counted(WaitKind::ReadsAhead, read_ahead(db, &cold)).await;
        }
        Ok(())
    }

    /// Reads the row with this key: `see` looks at the encoded row in place. In a non-unique index, one of the rows.
    ///
    /// `see` runs under an epoch pin: it must not block.
    ///
    /// # Errors
    /// A failed, idle-aborted or outdated transaction, or a dropped table or index.
    pub fn read<R>(
        &mut self,
        index: &Index,
        key: &[u8],
        see: impl FnOnce(&[u8]) -> R,
    ) -> impl Future<Output = Result<Option<R>>> {
        self.read_row(index, key, move |row| see(row.bytes()))
    }

    /// Reads the row with this key as a view of a [`row!`](crate::row!): `tx.read_view::<Stock, _>(&index, &key, |stock| stock.s_ytd())`.
    /// Unlike a view made of the bare bytes, this one is right whatever columns the table has got or lost since the program
    /// was written: a row of another layout is brought into that of the view, or refused.
    ///
    /// # Errors
    /// As [`Transaction::read`], and [`RowError::OtherLayout`](crate::row::RowError::OtherLayout) (42804): the table lacks a column of the view.
    pub async fn read_view<S: TypedRow, R>(
        &mut self,
        index: &Index,
        key: &[u8],
        see: impl for<'r> FnOnce(S::View<'r>) -> R,
    ) -> Result<Option<R>> {
        let seen = self
            .read(index, key, |row| {
                let row = S::fit(&index.form_in_use().layout, row)?;
                Ok(see(S::view(&row)))
            })
            .await?;
        seen.transpose().map_err(|source| Error::Row { table: index.table().name(), source })
    }

    /// As [`Transaction::scan`], with views as [`Transaction::read_view`] gives them.
    ///
    /// # Errors
    /// As [`Transaction::scan`], and [`RowError::OtherLayout`](crate::row::RowError::OtherLayout) (42804): the table lacks a column of the view.
    pub async fn scan_view<S: TypedRow>(
        &mut self,
        index: &Index,
        range: KeyRange<'_>,
        direction: Direction,
        mut see: impl for<'r> FnMut(S::View<'r>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut refused = None;
        self.scan(index, range, direction, |row| match S::fit(&index.form_in_use().layout, row) {
            Ok(row) => see(S::view(&row)),
            Err(error) => {
                refused = Some(error);
                ControlFlow::Break(())
            }
        })
        .await?;
        let table = || index.table().name();
        refused.map_or(Ok(()), |source| Err(Error::Row { table: table(), source }))
    }

    /// Reads all rows with this key, in any order, until `see` breaks.
    ///
    /// # Errors
    /// As [`Transaction::read`].
    pub fn read_all(
        &mut self,
        index: &Index,
        key: &[u8],
        mut see: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> impl Future<Output = Result<()>> {
        self.read_rows(index, key, move |row| see(row.bytes()))
    }

    /// Reads the rows of a range of an ordered index in key order, until `see` breaks.
    ///
    /// # Errors
    /// As [`Transaction::read`], and [`Error::Unsupported`] for a hash index.
    pub fn scan(
        &mut self,
        index: &Index,
        range: KeyRange<'_>,
        direction: Direction,
        mut see: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> impl Future<Output = Result<()>> {
        self.scan_rows(index, range, direction, move |row| see(row.bytes()))
    }

    /// Reads all rows of a table, in no particular order, until `see` breaks.
    ///
    /// # Errors
    /// As [`Transaction::read`].
    pub fn scan_table(
        &mut self,
        table: &Table,
        mut see: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> impl Future<Output = Result<()>> {
        self.scan_table_rows(table, move |row| see(row.bytes()))
    }

    /// Inserts an encoded row: an [`EncodedRow`], or a [`RowRef`] of bytes of other origin. A row of columns that the table had
    /// before is converted: columns that were added get their defaults, columns that were dropped are left out.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`] leaves the transaction as it was before; a row of columns that the table neither has nor had
    /// (SQLSTATE 42804); the memory limit.
    pub async fn insert(&mut self, table: &Table, row: impl Into<RowRef<'_>>) -> Result<RowId> {
        let row = row.into();
        let _busy = self.enter()?;
        self.before_write().await;
        let mut state = InsertState::default();
        let (writes, mut since) = (self.session().writes.len(), None);
        loop {
            match self.session().try_insert(&table.entry, row, &mut state) {
                Ok(Step::Done(row_id)) => return Ok(row_id),
                Ok(Step::Wait(wait)) => self.wait(wait).await?,
                Err(error) => self.make_room(error, writes, &mut since).await?,
            }
        }
    }

    /// Begins to use a table, which the transaction's operations do by themselves.
    async fn touch(&mut self, table: &Table) -> Result<()> {
        let _busy = self.enter()?;
        self.session().note_hint();
        loop {
            match self.session().touch(&table.entry) {
                Ok(Step::Done(_)) => return Ok(()),
                Ok(Step::Wait(wait)) => self.wait(wait).await?,
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Is the handle of this database, and its table still there? Asked before a row is encoded: that may draw an
    /// auto-increment number.
    fn check_handle(&mut self, table: &Table) -> Result<()> {
        let _busy = self.enter()?;
        let session = self.session();
        session.note_hint();
        session.check_handle(&table.entry)
    }

    /// Inserts a row given by values; missing defaults and auto-increment numbers are filled in for nulls. Returns the
    /// auto-increment number, if the table has such a column.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub async fn insert_values(&mut self, table: &Table, values: &[Value]) -> Result<Option<i64>> {
        self.check_handle(table)?;
        let mut row = EncodedRow::new();
        let number = table.encode_values(values, &mut row)?;
        self.insert(table, &row).await?;
        Ok(number)
    }

    /// Inserts a row given by anything that serde can serialize as a struct or map of columns.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub async fn insert_from<T: Serialize + ?Sized>(&mut self, table: &Table, row: &T) -> Result<RowId> {
        self.check_handle(table)?;
        let mut bytes = EncodedRow::new();
        table.encode_from(row, &mut bytes)?;
        self.insert(table, &bytes).await
    }

    /// Reads the row with this key as anything that serde can make of a map of columns.
    ///
    /// # Errors
    /// As [`Transaction::read`], and a row that does not fit the type.
    pub async fn read_as<T: DeserializeOwned>(&mut self, index: &Index, key: &[u8]) -> Result<Option<T>> {
        let Some(row) = self.read(index, key, <[u8]>::to_vec).await? else { return Ok(None) };
        // Asked for now: since the read nobody changes the table's columns before the transaction ends.
        let found = crate::row::from_row(&index.table().layout(), &row);
        found.map(Some).map_err(|source| Error::Row { table: index.table().name(), source })
    }

    /// Inserts the rows of a batch of a bulk load.
    pub(crate) async fn load(
        &mut self,
        table: &Table,
        batch: &mut Batch,
        state: &mut LoadState,
    ) -> Result<()> {
        let _busy = self.enter()?;
        self.before_write().await;
        let mut since = None;
        loop {
            let (writes, done) = (self.session().writes.len(), batch.done());
            match self.session().try_load(&table.entry, batch, state) {
                Ok(Step::Done(())) => break,
                Ok(Step::Wait(wait)) => {
                    // What is read of the cold store needs the notices that a snapshot keeps.
                    if matches!(wait, Wait::Cold(_)) && self.session().snapshot == NO_SNAPSHOT {
                        self.session().take_snapshot();
                    }
                    self.wait(wait).await?;
                }
                // Each row that is done is a write.
                Err(error) => self.make_room(error, writes + batch.done() - done, &mut since).await?,
            }
        }
        self.session().let_snapshot_go();
        Ok(())
    }

    /// Changes the row with this key through `edit`, which may run more than once. `None`: there is no such row.
    ///
    /// # Errors
    /// What `edit` returns; a serialization failure or a deadlock; a row that no longer fits.
    pub async fn update<R>(
        &mut self,
        index: &Index,
        key: &[u8],
        mut edit: impl FnMut(&mut RowEditor<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let _busy = self.enter()?;
        self.before_write().await;
        self.approach(index, key).await;
        let mut contested = false;
        let (writes, mut since) = (self.session().writes.len(), None);
        loop {
            match self.session().try_update(&index.entry, index.id, key, &mut edit, &mut contested) {
                Ok(Step::Done(result)) => return Ok(result),
                Ok(Step::Wait(wait)) => self.wait(wait).await?,
                Err(error) => self.make_room(error, writes, &mut since).await?,
            }
        }
    }

    /// Deletes the row with this key. `false`: there is no such row.
    ///
    /// # Errors
    /// A serialization failure or a deadlock.
    pub async fn delete(&mut self, index: &Index, key: &[u8]) -> Result<bool> {
        let _busy = self.enter()?;
        self.before_write().await;
        self.approach(index, key).await;
        let (writes, mut since) = (self.session().writes.len(), None);
        loop {
            match self.session().try_delete(&index.entry, index.id, key) {
                Ok(Step::Done(found)) => return Ok(found),
                Ok(Step::Wait(wait)) => self.wait(wait).await?,
                Err(error) => self.make_room(error, writes, &mut since).await?,
            }
        }
    }

    /// Inserts the row, or replaces the one with the same primary key. `true`: it was inserted.
    ///
    /// # Errors
    /// As [`Transaction::insert`] and [`Transaction::update`].
    pub async fn upsert(&mut self, table: &Table, row: impl Into<RowRef<'_>>) -> Result<bool> {
        let given = row.into();
        self.touch(table).await?;
        // In use by this transaction: nobody changes its columns any more.
        let index = table.primary();
        let layout = table.layout();
        let accepted =
            table.with_form(|form| form.accept(given).map_err(|source| Session::row_error(form, source)))?;
        let row = RowRef::known(layout.id(), &accepted);
        let mut key = KeyBuf::new();
        table.primary_key_of(&row, &mut key)?;
        loop {
            let replaced = self
                .update(&index, &key, |editor| {
                    for column in 0..layout.columns().len() {
                        editor
                            .set_value(column, &layout.value(&row, column))
                            .map_err(|source| Error::Row { table: table.name(), source })?;
                    }
                    Ok(())
                })
                .await?;
            if replaced.is_some() {
                return Ok(false);
            }
            match self.insert(table, row).await {
                Ok(_) => return Ok(true),
                // Somebody else inserted it since this transaction's snapshot.
                Err(Error::DuplicateKey { index: name, key, .. }) if name == index.name() => {
                    if self.isolation() == crate::Isolation::ReadCommitted {
                        continue;
                    }
                    let cause = crate::error::SerializationCause::ConcurrentUpdate;
                    let _busy = self.enter()?;
                    let (table, key) = (table.name(), key.to_string());
                    return Err(self.failed(Error::SerializationFailure { table, key, cause }));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Does it wait for other transactions' rows?
    fn waits(&self) -> bool {
        // SAFETY: that does not change while the transaction lives; the reaper does not touch it.
        unsafe { (*self.session.as_ptr()).wait }
    }

    fn isolation(&self) -> crate::Isolation {
        // SAFETY: the isolation does not change while the transaction lives; the reaper does not touch it.
        unsafe { (*self.session.as_ptr()).isolation }
    }

    /// Locks the row with this key until the transaction ends. `false`: there is no such row.
    ///
    /// # Errors
    /// A serialization failure or a deadlock; [`Error::WouldWait`] if the transaction does not wait.
    pub async fn lock(&mut self, index: &Index, key: &[u8], mode: LockMode) -> Result<bool> {
        let wait = if self.waits() { LockWait::Wait } else { LockWait::NoWait };
        let named = Named::Key(index.id, key);
        Ok(matches!(self.lock_named(&index.entry, named, mode, wait, |_| ()).await?, Locked::Locked(())))
    }

    /// Marks a point that [`Transaction::rollback_to`] goes back to.
    ///
    /// # Errors
    /// The transaction was aborted for idleness.
    pub fn savepoint(&mut self) -> Result<Savepoint> {
        let _busy = self.enter()?;
        Ok(self.session().savepoint())
    }

    /// Undoes all writes and locks since the savepoint, which stays valid; later savepoints go. Also heals a
    /// transaction that has failed since.
    ///
    /// # Errors
    /// The transaction was aborted for idleness, or the savepoint belongs to another one or is gone.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        let _busy = self.enter()?;
        let session = self.session();
        if savepoint.transaction != session.turn() {
            return Err(Error::ForeignHandle {
                what: "savepoint",
                name: format!("number {}", savepoint.number),
            });
        }
        if !session.rollback_to(savepoint) {
            return Err(Error::Unsupported {
                operation: "rollback_to",
                reason: "an earlier rollback has removed this savepoint; go back to an earlier one"
                    .to_owned(),
            });
        }
        Ok(())
    }

    /// Commits. When this returns, the transaction is as durable as the database's setting says.
    ///
    /// # Errors
    /// A serialization failure, a full disk: the transaction was rolled back. [`Error::LogFailed`]: it is not known
    /// whether the transaction will be there after a restart; or, if it has written nothing, whether what it has seen
    /// will be.
    pub async fn commit(self) -> Result<()> {
        self.commit_parts(&mut PartsState::default(), || ()).await
    }

    /// Commits, and calls `decided` as soon as nothing can take the commit back any more: from then on it only waits for the disk,
    /// and dropping the future undoes nothing. So who may stop waiting knows what to tell. Not called for a transaction that has
    /// written nothing, nor for one that fails.
    ///
    /// # Errors
    /// As [`Transaction::commit`]. After `decided` only the log's: whether the commit lasts is not known then.
    pub async fn commit_with(self, decided: impl FnOnce()) -> Result<()> {
        self.commit_parts(&mut PartsState::default(), decided).await
    }

    /// Commits a transaction of which some parts may be in the log already.
    pub(crate) async fn commit_parts(mut self, parts: &mut PartsState, decided: impl FnOnce()) -> Result<()> {
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
            db.free_replaced();
        }
        acknowledged
    }

    /// Rolls back; the same as dropping the transaction.
    pub fn rollback(self) {}

    /// Rolls back now, and keeps the handle: its locks, and whatever else others wait for, are gone when this returns. All further
    /// operations fail as after a serialization failure. For whoever still has to tell that the transaction has failed.
    pub fn abort(&mut self) {
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

/// Waits until a committed transaction may be acknowledged.
async fn acknowledge(db: &Inner, ticket: Ticket) -> Result<()> {
    if ticket.wrote {
        if let Some(log) = db.log()
            && !crate::mutation::off(crate::mutation::Rule::AckAfterDurable)
        {
            let acknowledged = db.counted(WaitKind::LogSync, log.wait_acknowledged(ticket.lsn)).await;
            acknowledged.map_err(|error| db.log_error(&error))?;
        }
    } else if let Some(log) = db.log_to_wait_for()
        && !ticket.harmless
        && !crate::mutation::off(crate::mutation::Rule::ReadOnlyAckAfterDurable)
    {
        let durable = db.counted(WaitKind::LogSync, log.wait_durable(ticket.lsn)).await;
        durable.map_err(|error| db.log_error(&error))?;
    }
    Ok(())
}

impl Drop for Transaction {
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
