//! The attempts of a statement on rows: the one loop that runs it again.
//!
//! | an attempt has ended since | before the next one | bound |
//! |---|---|---|
//! | a definition has changed under the plan ([`Again::Rebind`]) | it is bound anew | [`REBINDS`] bindings |
//! | at read committed a row has changed since the statement read it ([`Again::Stale`]) | nothing: it goes on in its transaction, with a new snapshot | [`TRIES`] attempts |
//! | others were in the way of the statement's own transaction (40001, 40P01) | that one ends, and another begins | [`TRIES`] transactions |
//! | another session holds an advisory lock ([`Again::Lock`]) | the session waits for the lock | the timeouts of each wait |
//!
//! A bound counts anew when one further down in the table has let the statement begin from its start: a new plan has all of its
//! transactions, and a new transaction has all of its attempts.
//!
//! Rules:
//! - An attempt that another one follows has been taken back ([`exec::run`]), and its rows are forgotten ([`Rows::restart`], which
//!   is called here alone).
//! - Rows leave when the statement has ended, or before that through an outlet ([`Rows::outlet`]): once rows have left, no further
//!   attempt follows ([`Attempts::after`]).
//! - All attempts with one plan share its [`Context`]: the deadline is that of the first.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use thermocline_engine::{Isolation, Transaction, TransactionOptions};

use super::prepared::Noted;
use super::transaction::{Open, refused_to_read_only};
use super::{Answer, Prepared, Session};
use crate::catalog::Identity;
use crate::error::{Again, Error, Result, lock_timeout};
use crate::exec::{self, Pending, Rows, Terms};
use crate::expr::outlet::Outlet;
use crate::expr::pace::Pace;
use crate::expr::{Context, Deadline};
use crate::parser::ast::{Statement, Strength};
use crate::pg_catalog::EngineCatalog;
use crate::plan::Bound;
use crate::shared::advisory::Lock;
use crate::shared::facts::Kept;
use crate::shared::interrupt::Cause;
use crate::types::{Datum, Local, Type};

/// Bindings of a statement under which definitions keep changing.
pub(super) const REBINDS: u32 = 100;
/// Attempts within a transaction, and transactions of a statement that runs alone.
pub(super) const TRIES: u32 = 100;

/// Were others in the way of the statement's transaction, so that it may succeed in another one?
pub(super) fn is_in_the_way(error: &Error) -> bool {
    ["40001", "40P01"].contains(&error.code)
}

/// The statement that is attempted.
enum Work<'w, 'p> {
    Prepared(&'w mut Run<'p>),
    /// A tree of the session's own, in the open transaction.
    Tree {
        bound: &'w Bound,
        context: &'w Context,
    },
}

/// A run of a prepared statement.
struct Run<'p> {
    prepared: &'p mut Prepared,
    /// Its columns must be those that it was described with.
    fixed: bool,
    parameters: Vec<Datum>,
    /// Expressions have been told the settings with which the statement begins.
    begun: bool,
    /// The context of all attempts with one plan, which has the parameters. None: the plan is to be looked at first.
    context: Option<Context>,
}

impl Run<'_> {
    /// Gives up the context: the plan is looked at before the next attempt.
    fn leave_plan(&mut self) {
        if let Some(context) = self.context.take() {
            self.parameters = context.parameters;
        }
    }
}

/// The attempts of a statement so far, by the kind of what has ended them.
#[derive(Debug, Default)]
struct Attempts {
    rebinds: u32,
    transactions: u32,
    stale: u32,
}

/// The step that follows an attempt that has failed.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    GiveUp,
    Rebind,
    /// It waits for an advisory lock.
    Wait,
    /// Another transaction of the statement's own.
    Anew,
    /// The same transaction.
    GoOn,
}

impl Attempts {
    /// Those of a tree that cannot be bound anew.
    fn of_tree() -> Self {
        Self { rebinds: REBINDS, ..Self::default() }
    }

    /// Counts a binding that definitions have made useless; true if another one may follow.
    fn may_rebind(&mut self) -> bool {
        *self = Self { rebinds: self.rebinds + 1, ..Self::default() };
        self.rebinds < REBINDS
    }

    /// Counts an attempt that has ended with this error, and decides what follows: nothing if rows of it have `left`.
    fn after(&mut self, error: &Error, terms: Terms, left: bool) -> Next {
        if left {
            return Next::GiveUp;
        }
        match error.again() {
            Again::Rebind => return if self.may_rebind() { Next::Rebind } else { Next::GiveUp },
            Again::Lock => {
                *self = Self::default();
                return Next::Wait;
            }
            Again::Stale if terms.isolation == Isolation::ReadCommitted => {
                self.stale += 1;
                if self.stale < TRIES {
                    return Next::GoOn;
                }
            }
            Again::Stale | Again::No => {}
        }
        if terms.alone && is_in_the_way(error) {
            self.transactions += 1;
            self.stale = 0;
            if self.transactions < TRIES {
                return Next::Anew;
            }
        }
        Next::GiveUp
    }
}

impl Session {
    /// Runs a statement on rows. `fixed`: its columns must be those that it was described with.
    pub(super) async fn rows_statement(
        &mut self,
        prepared: &mut Prepared,
        parameters: Vec<Datum>,
        rows: &mut dyn Rows,
        fixed: bool,
    ) -> Result<Answer> {
        if self.only_reads()
            && let Some(command) =
                prepared.bound.as_ref().and_then(|bound| writing(bound, &prepared.statement.statement))
        {
            return Err(refused_to_read_only(command));
        }
        let mut run = Run { prepared, fixed, parameters, begun: false, context: None };
        let count = self.attempts(&mut Work::Prepared(&mut run), Attempts::default(), rows).await?;
        let Run { prepared, context, .. } = run;
        let context = context.expect("a statement that has run has its context");
        let bound = prepared.bound.as_ref().expect("a statement on rows is bound");
        let tag = match &prepared.statement.statement {
            Statement::Copy(_) => format!("COPY {count}"),
            _ => tag_of(bound, count),
        };
        let held = self.spare.leave(context.memory).map(Arc::new);
        let mut answer = Answer { tag, count, held, ..Answer::default() };
        if prepared.asks {
            let (wishes, warnings) = self.facts.take_wishes();
            for (name, value, local) in wishes {
                let set = self.set_setting(local, &name, Some(&[value]))?;
                // SET LOCAL of its own has an effect on nothing, and says so; this says nothing.
                drop(set);
            }
            warnings.into_iter().for_each(|warning| answer.warn("01000", warning));
        }
        Ok(answer)
    }

    /// Runs a bound tree of the session's own in the open transaction: the rows that it counts.
    pub(super) async fn run_tree(
        &mut self,
        bound: &Bound,
        context: &Context,
        rows: &mut dyn Rows,
    ) -> Result<u64> {
        self.attempts(&mut Work::Tree { bound, context }, Attempts::of_tree(), rows).await
    }

    /// Attempts a statement until it is done, or refused.
    async fn attempts(
        &mut self,
        work: &mut Work<'_, '_>,
        mut made: Attempts,
        rows: &mut dyn Rows,
    ) -> Result<u64> {
        // The statement's own transaction, if none is open.
        let mut own = None;
        // An advisory lock that was waited for: the session's until an attempt has taken it itself.
        let mut kept: Option<Kept> = None;
        loop {
            if let Work::Prepared(run) = work
                && run.context.is_none()
            {
                if !self.bind_if_needed(run, &mut made)? {
                    continue;
                }
                run.context = Some(self.context_of(run, rows.outlet()));
            }
            let error = match self.attempt(work, &mut own, rows).await {
                Ok(count) => return Ok(count),
                Err(error) => error,
            };
            let left = rows.outlet().is_some_and(Outlet::has_let_out);
            let next = made.after(&error, self.terms(), left);
            if next == Next::GiveUp {
                return Err(error);
            }
            rows.restart();
            if next != Next::GoOn {
                own = None;
            }
            match (next, &mut *work) {
                (Next::Rebind, Work::Prepared(run)) => {
                    run.leave_plan();
                    self.refresh_objects()?;
                }
                (Next::Wait, Work::Prepared(run)) => {
                    drop(kept.take());
                    let Some(lock) = self.facts.take_waiting() else { return Err(error) };
                    kept = Some(self.wait_for(lock).await?);
                    run.leave_plan();
                    run.begun = false;
                }
                (Next::Anew | Next::GoOn, _) => {}
                (_, Work::Tree { .. }) | (Next::GiveUp, _) => return Err(error),
            }
        }
    }

    /// The transaction that a statement runs in now.
    fn terms(&self) -> Terms {
        let alone = self.open.is_none();
        Terms { isolation: self.open.as_ref().map_or(self.settings.isolation, |open| open.isolation), alone }
    }

    /// Runs a statement once: in the open transaction, or in `own`, which then is committed.
    async fn attempt(
        &mut self,
        work: &Work<'_, '_>,
        own: &mut Option<Transaction>,
        rows: &mut dyn Rows,
    ) -> Result<u64> {
        let (bound, context, tables) = match work {
            Work::Tree { bound, context } => (*bound, *context, &[][..]),
            Work::Prepared(run) => (
                run.prepared.bound.as_ref().expect("a statement on rows is bound"),
                run.context.as_ref().expect("it was made when the plan was looked at"),
                &run.prepared.definitions[..],
            ),
        };
        if let Some(outlet) = &context.outlet {
            outlet.shut();
        }
        let terms = self.terms();
        let (read_only, patience) = (self.settings.read_only, self.settings.lock_timeout);
        let (catalog, open) = self.catalog_and_open();
        if let Some(open) = open {
            let modes = &open.constraints;
            let waits = |one: &Pending| one.may_wait() && modes.deferred(&one.key().name, one.key().deferred);
            let ran =
                exec::run(catalog, &mut open.transaction, terms, (bound, tables), context, rows, &waits)
                    .await;
            let (count, later) = ran?;
            open.deferred.extend(later);
            return Ok(count);
        }
        let transaction = match own {
            Some(transaction) => transaction,
            None => {
                let options = TransactionOptions::new().isolation(terms.isolation);
                let only_reads = matches!(bound, Bound::Query(query) if !query.locks);
                let options = if read_only || only_reads { options.read_only() } else { options };
                let own = own.insert(catalog.db.begin(options)?);
                if patience.is_some() {
                    own.limit_waits(patience)?;
                }
                own
            }
        };
        let (count, _) =
            exec::run(catalog, transaction, terms, (bound, tables), context, rows, &|_| false).await?;
        let transaction = own.take().expect("the statement has run in it");
        transaction.commit_with(|| context.interrupt.decide()).await?;
        Ok(count)
    }

    /// Binds a statement anew if its plan is no longer that of the definitions. False: they have changed meanwhile, and it is to be
    /// bound once more.
    ///
    /// A plan is made of tables and hidden tables of one moment: the latter are looked at once more when the numbers of the tables'
    /// definitions have been taken, which a table that is used meanwhile is compared with.
    fn bind_if_needed(&mut self, run: &mut Run<'_>, made: &mut Attempts) -> Result<bool> {
        let prepared = &mut *run.prepared;
        let (given, needed) = (run.parameters.len(), prepared.statement.parameters as usize);
        if given < needed {
            let message =
                format!("bind message supplies {given} parameters, but prepared statement requires {needed}");
            return Err(Error::new("08P01", message));
        }
        if !prepared.volatile && self.is_current(prepared) {
            return Ok(true);
        }
        let version = self.objects.version;
        let outcome = self.bind_noting(&prepared.statement.statement, prepared.parameters.clone());
        self.refresh_objects()?;
        // While definitions are being committed each look is a new one. The last plan is run as it is. A refusal, too, is one of
        // two moments if they have changed: a condition may name a column that its table has no more.
        if self.objects.version != version && made.may_rebind() {
            return Ok(false);
        }
        let (bound, _, noted) = outcome?;
        if run.fixed && bound.as_ref().is_some_and(|bound| bound.columns() != prepared.columns()) {
            return Err(changed_result());
        }
        let Noted { rebinds, asks, absent } = noted;
        // What was noted of the old plan stays as long as that does.
        prepared.asks |= asks;
        prepared.volatile = rebinds;
        prepared.absent = absent;
        prepared.definitions = bound.as_ref().map_or(Vec::new(), Bound::tables);
        prepared.bound = bound;
        prepared.objects = self.objects.version;
        prepared.path = self.path_number;
        Ok(true)
    }

    /// Are the definitions those that the statement was bound with?
    fn is_current(&self, prepared: &Prepared) -> bool {
        let same = |(name, identity): &(String, Identity)| {
            self.tables.table(name).is_ok_and(|table| Identity::of(&table) == *identity)
        };
        prepared.objects == self.objects.version
            && prepared.path == self.path_number
            && prepared.absent.iter().all(|name| self.tables.table(name).is_err())
            && prepared.definitions.iter().all(same)
    }

    /// The context of the attempts with one plan.
    fn context_of(&mut self, run: &mut Run<'_>, outlet: Option<&Outlet>) -> Context {
        let statement = self.clock.wall_us();
        let limit = self.settings.statement_timeout;
        let meter = self.meter.clone();
        // A plan that was bound anew stands elsewhere.
        meter.iter().for_each(|meter| meter.clear());
        if run.prepared.asks && !run.begun {
            let level = match &self.open {
                Some(open) => (open.isolation, open.read_only),
                None => (self.settings.isolation, self.settings.read_only),
            };
            self.facts.begin(self.settings.values(), level);
            run.begun = true;
        }
        Context {
            interrupt: self.interrupt.clone(),
            deadline: limit
                .map(|limit| Deadline::new(self.clock.clone(), statement + limit.as_micros() as i64)),
            parameters: in_forms(std::mem::take(&mut run.parameters), &run.prepared.parameters),
            local: Local {
                now_us: self.open.as_ref().map_or(statement, |open| open.now),
                zone: self.settings.zone.clone(),
            },
            statement,
            sequences: Some(self.sequences.clone()),
            facts: run.prepared.asks.then(|| self.facts.clone()),
            read_only: self.only_reads(),
            meter,
            pace: Pace::new(self.give_way),
            memory: self.spare.take(&self.db),
            outlet: outlet.cloned(),
        }
    }

    /// Definitions, as the statement that runs knows them, and the open transaction.
    pub(super) fn catalog_and_open(&mut self) -> (EngineCatalog<'_>, Option<&mut Open>) {
        let catalog = EngineCatalog {
            db: &self.db,
            tables: &self.tables,
            objects: &self.objects,
            sequences: &self.sequences,
            common: self.facts.common(),
            path: &self.path,
            described: Some(&self.described).filter(|_| !self.own_tables),
        };
        (catalog, self.open.as_mut())
    }

    /// Waits for an advisory lock, as long as the timeouts allow.
    async fn wait_for(&self, lock: Lock) -> Result<Kept> {
        let common = self.facts.common().clone();
        // It is the session's until the statement has taken it itself.
        let lock = Lock { transaction: false, ..lock };
        let mut waiting = common.locks.lock(self.facts.number(), lock)?;
        let (by_lock, by_statement) = (self.settings.lock_timeout, self.settings.statement_timeout);
        let limit = [by_lock, by_statement].into_iter().flatten().min();
        let mut sleep = match limit {
            Some(limit) => Some(
                common
                    .timer
                    .sleep_until(now_ns(limit))
                    .map_err(|error| Error::new("53000", error.to_string()))?,
            ),
            None => None,
        };
        let interrupt = self.interrupt.clone();
        std::future::poll_fn(|context| {
            use std::future::Future;
            if let Some(cause) = interrupt.raised() {
                return Poll::Ready(Err(cause.error()));
            }
            if std::pin::Pin::new(&mut waiting).poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let late = sleep.as_mut().is_some_and(|it| std::pin::Pin::new(it).poll(context).is_ready());
            match (late, by_lock, by_statement) {
                (true, Some(lock), statement) if statement.is_none_or(|statement| lock <= statement) => {
                    Poll::Ready(Err(lock_timeout()))
                }
                (true, ..) => Poll::Ready(Err(Cause::TimedOut.error())),
                _ => Poll::Pending,
            }
        })
        .await?;
        Ok(Kept { facts: self.facts.clone(), lock })
    }
}

/// Parameters as values of their types: a user may give the text of a `jsonb` or a `char(n)`.
fn in_forms(mut values: Vec<Datum>, types: &[Type]) -> Vec<Datum> {
    for (value, ty) in values.iter_mut().zip(types) {
        *value = std::mem::replace(value, Datum::Null).in_form_of(*ty);
    }
    values
}

/// The time on the timer's clock that is `limit` from now.
fn now_ns(limit: Duration) -> u64 {
    use thermocline_base::clock::{Clock, SystemClock};
    let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    SystemClock.now_ns().saturating_add(limit)
}

/// The command that a statement on rows is, if it changes or locks rows.
fn writing(bound: &Bound, statement: &Statement) -> Option<&'static str> {
    Some(match bound {
        Bound::Query(query) if !query.locks => return None,
        Bound::Query(_) => match statement {
            Statement::Query(query) => match query.locks.first().map(|lock| lock.strength) {
                Some(Strength::NoKeyUpdate) => "SELECT FOR NO KEY UPDATE",
                Some(Strength::Share) => "SELECT FOR SHARE",
                Some(Strength::KeyShare) => "SELECT FOR KEY SHARE",
                Some(Strength::Update) | None => "SELECT FOR UPDATE",
            },
            _ => "SELECT FOR UPDATE",
        },
        Bound::Insert(_) => "INSERT",
        Bound::Update(_) => "UPDATE",
        Bound::Delete(_) => "DELETE",
    })
}

/// The command tag, and the rows that it counts.
fn tag_of(bound: &Bound, count: u64) -> String {
    match bound {
        Bound::Query(_) => format!("SELECT {count}"),
        Bound::Insert(_) => format!("INSERT 0 {count}"),
        Bound::Update(_) => format!("UPDATE {count}"),
        Bound::Delete(_) => format!("DELETE {count}"),
    }
}

/// The statement would return other columns than its user was told of.
pub(super) fn changed_result() -> Error {
    Error::new("0A000", "cached plan must not change result type").hint("Prepare the statement again.")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Terms = Terms { isolation: Isolation::ReadCommitted, alone: false };
    const ALONE: Terms = Terms { isolation: Isolation::ReadCommitted, alone: true };

    fn error(code: &'static str, again: Again) -> Error {
        Error::new(code, "it has failed").again_as(again)
    }

    /// The step that follows, its number until another one follows, and that one.
    fn follows(attempts: &mut Attempts, error: &Error, terms: Terms) -> (Next, u32, Next) {
        let first = attempts.after(error, terms, false);
        let mut times = 1;
        loop {
            let next = attempts.after(error, terms, false);
            if next != first || times > 1000 {
                return (first, times, next);
            }
            times += 1;
        }
    }

    #[test]
    fn each_kind_has_its_bound() {
        let (stale, rebind) = (error("40001", Again::Stale), error("40001", Again::Rebind));
        let conflict = error("40P01", Again::No);
        let cases = [
            (&rebind, OPEN, (Next::Rebind, 99, Next::GiveUp)),
            (&rebind, ALONE, (Next::Rebind, 99, Next::GiveUp)),
            (&stale, OPEN, (Next::GoOn, 99, Next::GiveUp)),
            // A new transaction of its own has all of its attempts.
            (&stale, ALONE, (Next::GoOn, 99, Next::Anew)),
            (&conflict, ALONE, (Next::Anew, 99, Next::GiveUp)),
        ];
        for (error, terms, expected) in cases {
            assert_eq!(follows(&mut Attempts::default(), error, terms), expected, "{error:?} {terms:?}");
        }
        let mut attempts = Attempts::default();
        let mut count = 1;
        while attempts.after(&stale, ALONE, false) != Next::GiveUp {
            count += 1;
        }
        assert_eq!(count, TRIES * TRIES);
        // Its waits are bounded by time.
        let lock = error("55P03", Again::Lock);
        assert_eq!(follows(&mut Attempts::default(), &lock, OPEN).0, Next::Wait);
        assert!(follows(&mut Attempts::default(), &lock, OPEN).1 > 1000);
    }

    #[test]
    fn errors_that_others_have_not_caused_end_the_statement() {
        let snapshot = Terms { isolation: Isolation::Snapshot, alone: false };
        let cases = [
            (error("23505", Again::No), ALONE),
            (error("40001", Again::No), OPEN),
            (error("40P01", Again::No), OPEN),
            (error("40001", Again::Stale), snapshot),
        ];
        for (error, terms) in cases {
            assert_eq!(Attempts::default().after(&error, terms, false), Next::GiveUp, "{error:?} {terms:?}");
        }
        let alone = Terms { alone: true, ..snapshot };
        assert_eq!(Attempts::default().after(&error("40001", Again::Stale), alone, false), Next::Anew);
        let rebind = error("40001", Again::Rebind);
        assert_eq!(Attempts::of_tree().after(&rebind, OPEN, false), Next::GiveUp);
        assert_eq!(Attempts::of_tree().after(&error("40001", Again::Stale), OPEN, false), Next::GoOn);
    }

    #[test]
    fn nothing_follows_rows_that_have_left() {
        for again in [Again::No, Again::Stale, Again::Rebind, Again::Lock] {
            for terms in [OPEN, ALONE] {
                let next = Attempts::default().after(&error("40001", again), terms, true);
                assert_eq!(next, Next::GiveUp, "{again:?} {terms:?}");
            }
        }
    }

    #[test]
    fn a_new_plan_and_a_new_lock_begin_from_the_start() {
        let stale = error("40001", Again::Stale);
        for (again, next) in [(Again::Rebind, Next::Rebind), (Again::Lock, Next::Wait)] {
            let mut attempts = Attempts::default();
            follows(&mut attempts, &stale, OPEN);
            assert_eq!(attempts.after(&error("40001", again), OPEN, false), next);
            assert_eq!(follows(&mut attempts, &stale, OPEN), (Next::GoOn, 99, Next::GiveUp));
        }
    }
}
