//! Getting a table, or a name, to oneself before it is changed: the waits of a definition.
//!
//! A changer claims the table, so that nobody begins to use it, and then looks for those who do ([`crate::catalog::hold`]). It looks
//! again every [`PAUSE_NS`]: users do not tell when they leave, which would cost each of them. Each wait stands in the graph of
//! waits while it lasts, so that a circle is found whichever of its waits comes last, row waits included.
//!
//! A wait that is dropped, refused or too long gives up what it has claimed by itself.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use thermocline_base::sync::Ordering;

use super::drive::{Driver, Late};
use crate::catalog::table::{FormRef, TableEntry};
use crate::counters::WaitKind;
use crate::error::{Error, Result};
use crate::mutation::{self, Rule};
use crate::ops::Wait;
use crate::session::Session;
use crate::session::db::Inner;
use crate::txn::bodies;
use crate::txn::registry::WaitsFor;

/// How long a changer waits before it looks again.
const PAUSE_NS: u64 = 200_000;

/// What a changer waits for, as errors call it.
const DEFINITION: &str = "the definition";

/// Lets a table go that was claimed and not secured.
struct Claim<'a> {
    entry: &'a TableEntry,
    place: u32,
    secured: bool,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.secured {
            self.entry.hold.let_go(self.place);
        }
    }
}

/// Ready when a table is let go.
pub(crate) struct LetGo<'a>(pub(crate) &'a TableEntry);

impl Future for LetGo<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.0.is_held() || !self.0.hold.wake_when_let_go(context.waker()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// How long a change has waited.
struct Patience {
    begun_ns: u64,
    limit_ns: u64,
    /// The limit is the transaction's, not the database's.
    own: bool,
}

impl Patience {
    fn of(session: &Session) -> Self {
        let db = session.db();
        let general = u64::try_from(db.options.definition_wait.as_nanos()).unwrap_or(u64::MAX);
        let (limit_ns, own) =
            (session.wait_limit.limit_ns().unwrap_or(general), session.wait_limit.limit_ns().is_some());
        Self { begun_ns: db.clock.now_ns(), limit_ns, own }
    }

    /// An error if it has been too long.
    fn check(&self, db: &Inner, table: &str, in_the_way: impl FnOnce() -> Vec<String>) -> Result<()> {
        let waited_ns = db.clock.now_ns().saturating_sub(self.begun_ns);
        if waited_ns <= self.limit_ns { Ok(()) } else { Err(self.end(table, waited_ns, in_the_way())) }
    }

    fn end(&self, table: &str, waited_ns: u64, in_the_way: Vec<String>) -> Error {
        let table = table.to_owned();
        if self.own {
            return Late::After(self.limit_ns).error(table, DEFINITION.to_owned());
        }
        Error::SchemaChangeTimeout { table, waited_ms: waited_ns / 1_000_000, in_the_way }
    }
}

/// Pauses between two looks.
async fn pause(db: &Inner) -> Result<()> {
    #[cfg(feature = "model")]
    if thermocline_base::sync::model::active() {
        // No time passes: another thread has a turn.
        thermocline_base::sync::Backoff::new().wait();
    }
    let sleep = db.timer.sleep_until(db.clock.now_ns() + PAUSE_NS);
    let sleep = sleep.map_err(|error| Error::Refused(format!("no thread for a wait: {error}")))?;
    db.counted(WaitKind::Definitions, sleep).await;
    Ok(())
}

/// Whoever holds the table.
fn owner_of(entry: &Arc<TableEntry>) -> WaitsFor {
    let entry = Arc::clone(entry);
    WaitsFor::new(move |_| entry.hold.owner().into_iter().collect())
}

/// Whoever uses the table, but for `me`.
fn users_of(entry: &TableEntry, me: u32) -> WaitsFor {
    let table = entry.id;
    WaitsFor::new(move |registry| registry.other_users(table, me).collect())
}

/// The refusal of a wait for a table whose changer waits for this transaction, or has begun it.
fn held_error(db: &Inner, entry: &TableEntry) -> Option<Error> {
    let owner = entry.hold.owner()?;
    let outer = bodies::places(&db.registry);
    outer.contains(&owner).then(|| waits_for_itself(&entry.name()))
}

fn waits_for_itself(table: &str) -> Error {
    Error::WaitsForItself { table: table.to_owned(), key: DEFINITION.to_owned() }
}

fn deadlock(table: &str) -> Error {
    Error::Deadlock { table: table.to_owned(), key: DEFINITION.to_owned() }
}

impl Driver {
    /// Waits until another transaction lets a table go.
    pub(crate) async fn wait_until_let_go(&mut self, entry: &Arc<TableEntry>) -> Result<()> {
        let session = self.session();
        let db = session.db();
        if let Some(error) = held_error(db, entry) {
            return Err(error);
        }
        let edge = db.registry.wait_for_places(session.place_index, owner_of(entry));
        let _edge = edge.ok_or_else(|| deadlock(&entry.name()))?;
        let waited = self.within_patience(db.counted(WaitKind::Definitions, LetGo(entry))).await;
        waited.map_err(|late| late.error(entry.name(), DEFINITION.to_owned()))
    }

    /// Holds the table with this name until the transaction ends, or goes back to before. `told` is asked now and then whether to
    /// go on.
    ///
    /// # Errors
    /// There is none; others use it for too long; a circle of waits; `told`'s.
    pub(crate) async fn hold_table(
        &mut self,
        name: &str,
        mut told: impl FnMut() -> Result<()>,
    ) -> Result<Arc<TableEntry>> {
        let patience = Patience::of(self.session());
        loop {
            let entry = self.session().entry(name)?;
            if self.hold(&entry, name, &patience, &mut told).await? {
                return Ok(entry);
            }
        }
    }

    /// Holds a table. `false`: it has another name by now, or was dropped.
    async fn hold(
        &mut self,
        entry: &Arc<TableEntry>,
        name: &str,
        patience: &Patience,
        told: &mut impl FnMut() -> Result<()>,
    ) -> Result<bool> {
        let session = self.session();
        let (db, place) = (session.db(), session.place_index);
        if session.holds(entry) {
            return may_change(session, entry).map(|()| true);
        }
        let is_user = session.tables.iter().any(|touched| std::ptr::eq(touched.entry, Arc::as_ptr(entry)));
        let mut claim = Claim { entry, place, secured: false };
        let early = mutation::off(Rule::HoldBeforeLook);
        loop {
            if !early && !entry.hold.claim(place, is_user) {
                let owner = entry.hold.owner();
                let in_the_way = owner.and_then(|owner| db.registry.describe_in(owner)).into_iter().collect();
                let error = patience.end(name, patience.limit_ns, in_the_way);
                let until_ns = patience.begun_ns.saturating_add(patience.limit_ns);
                self.wait_until(Wait::Held(Arc::clone(entry)), until_ns, error).await?;
                told()?;
                continue;
            }
            if !self.session().entry(name).is_ok_and(|found| Arc::ptr_eq(&found, entry)) {
                return Ok(false);
            }
            if db.registry.other_users(entry.id, place).next().is_none() {
                if early {
                    entry.hold.claim(place, true);
                }
                if entry.hold.secure(place) {
                    break;
                }
                continue;
            }
            let outer = bodies::places(&db.registry);
            if outer.iter().any(|outer| *outer != place && db.registry.place(*outer).marks.has(entry.id)) {
                return Err(waits_for_itself(name));
            }
            patience.check(db, name, || db.registry.describe_users(entry.id, place))?;
            told()?;
            let edge = db.registry.wait_for_places(place, users_of(entry, place));
            let _edge = edge.ok_or_else(|| deadlock(name))?;
            pause(db).await?;
            self.check_cancelled()?;
        }
        claim.secured = true;
        entry.count_definition();
        let session = self.session();
        session.defined().held.push(Arc::clone(entry));
        if !is_user {
            // SAFETY: the mark is entered now, and the table is this transaction's: nobody else replaces its form.
            let form = unsafe { FormRef::of(entry) };
            session.enter_mark(entry, form);
        }
        may_change(session, entry).map(|()| true)
    }

    /// Claims a name that is about to be given to a table, or taken away, until the transaction ends or goes back to before.
    ///
    /// # Errors
    /// Another transaction keeps it for too long; a circle of waits.
    pub(crate) async fn claim_name(&mut self, name: &str) -> Result<()> {
        let session = self.session();
        let (db, place) = (session.db(), session.place_index);
        let patience = Patience::of(session);
        loop {
            match db.catalog.claim(name, place) {
                Ok(true) => {
                    self.session().defined().claimed.push(name.to_owned());
                    return Ok(());
                }
                Ok(false) => return Ok(()),
                Err(owner) if bodies::places(&db.registry).contains(&owner) => {
                    return Err(waits_for_itself(name));
                }
                Err(_) => {}
            }
            patience
                .check(db, name, || vec!["a transaction that gives or takes away this name".to_owned()])?;
            let (claimed, of) = (name.to_owned(), Arc::clone(&self.session().db));
            let edge = db.registry.wait_for_places(
                place,
                WaitsFor::new(move |_| of.catalog.claimed_by(&claimed).into_iter().collect()),
            );
            let _edge = edge.ok_or_else(|| deadlock(name))?;
            pause(db).await?;
            self.check_cancelled()?;
        }
    }
}

/// Refuses to change a table on which a cursor of the transaction is open.
fn may_change(session: &Session, entry: &TableEntry) -> Result<()> {
    let is_open =
        |mark: &crate::session::CursorMark| mark.table == entry.id && mark.is_open.load(Ordering::Relaxed);
    if session.cursors.iter().any(|mark| is_open(mark)) {
        return Err(Error::InUse { table: entry.name(), by: "an open cursor of this transaction" });
    }
    Ok(())
}
