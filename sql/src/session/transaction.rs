//! Transactions of a session: BEGIN to COMMIT, savepoints, and the one that stands round several statements of one request.
//!
//! PostgreSQL runs the statements of one query string, and those between two `Sync`s of the extended protocol, as one
//! transaction, the *implicit* one, unless they say BEGIN themselves: then it becomes the one that they began.
//!
//! SET CONSTRAINTS says when foreign keys are looked at; what waits is looked at before COMMIT.

use std::collections::HashMap;

use thermocline_engine::{Isolation, Savepoint, Transaction, TransactionOptions};

use super::{Answer, Session};
use crate::error::{Error, Result};
use crate::exec::{self, Pending};
use crate::names;
use crate::parser::ast::{Modes, ObjectName, Statement};
use crate::settings::Values;
use crate::shared::facts::TransactionLocks;

/// An open transaction of a session.
pub(super) struct Open {
    pub(super) transaction: Transaction,
    /// Names, and how many looks of foreign keys were put off before each.
    pub(super) savepoints: Vec<(String, Savepoint, usize)>,
    /// The modes that SET CONSTRAINTS has set.
    pub(super) constraints: ConstraintModes,
    /// The questions of foreign keys that wait for its commit.
    pub(super) deferred: Vec<Pending>,
    /// It has changed the hidden tables: only `Session::objects` has them as they are in it.
    pub(super) defines: bool,
    pub(super) failed: bool,
    pub(super) isolation: Isolation,
    /// When it began, in microseconds since 1970.
    pub(super) now: i64,
    /// No statement has run in it yet.
    pub(super) fresh: bool,
    /// No statement of it has needed a snapshot yet.
    pub(super) unseeing: bool,
    /// It stands round the statements of one request, none of which said BEGIN.
    pub(super) implicit: bool,
    pub(super) read_only: bool,
    /// Settings before the first one that it has changed.
    pub(super) settings: Option<Values>,
    /// Settings are those of the transaction only.
    pub(super) local_settings: bool,
    /// How long it waits for others, as the engine was told last.
    pub(super) patience: Option<std::time::Duration>,
    /// Gives its advisory locks back when it ends.
    pub(super) advisory: Option<TransactionLocks>,
}

/// The modes that SET CONSTRAINTS has set in this transaction.
#[derive(Debug, Default)]
pub(super) struct ConstraintModes {
    all: Option<bool>,
    named: HashMap<String, bool>,
}

impl ConstraintModes {
    /// Does a deferrable constraint wait for COMMIT?
    pub(super) fn deferred(&self, name: &str, initially: bool) -> bool {
        self.named.get(name).copied().or(self.all).unwrap_or(initially)
    }
}

/// Does a statement look at rows? Others leave the snapshot to those behind them.
pub(super) fn needs_snapshot(statement: &Statement) -> bool {
    !matches!(
        statement,
        Statement::Begin(_)
            | Statement::SetTransaction(_)
            | Statement::Commit
            | Statement::Rollback
            | Statement::Set { .. }
            | Statement::Show(_)
            | Statement::Reset(_)
            | Statement::LockShared(_)
            | Statement::Savepoint(_)
            | Statement::Release(_)
            | Statement::RollbackTo(_)
            | Statement::SetConstraints { .. }
            | Statement::Prepare { .. }
            | Statement::Deallocate(_)
    )
}

impl Session {
    pub(super) fn options(
        modes: &Modes,
        default: (Isolation, bool),
    ) -> (TransactionOptions, Isolation, bool) {
        let isolation = match modes.isolation.as_deref() {
            Some("serializable") => Isolation::Serializable,
            Some("repeatable read") => Isolation::Snapshot,
            Some(_) => Isolation::ReadCommitted,
            None => default.0,
        };
        let read_only = modes.read_only.unwrap_or(default.1);
        let options = TransactionOptions::new().isolation(isolation);
        let options = if read_only { options.read_only() } else { options };
        (options, isolation, read_only)
    }

    pub(super) fn begin(&mut self, modes: &Modes) -> Result<Answer> {
        let mut answer = Answer::tagged("BEGIN");
        if let Some(open) = self.open.as_mut().filter(|open| open.implicit) {
            // The statements before it in the same request belong to the transaction that it begins.
            if open.fresh {
                self.open = None;
            } else {
                open.implicit = false;
                if modes.isolation.is_some() || modes.read_only.is_some() {
                    let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
                    return Err(Error::new("25001", message));
                }
                return Ok(answer);
            }
        }
        if self.open.is_some() {
            answer.warn("25001", "there is already a transaction in progress");
            return Ok(answer);
        }
        let default = (self.settings.isolation, self.settings.read_only);
        let (options, isolation, read_only) = Self::options(modes, default);
        let transaction = self.db.begin(options)?;
        let now = self.clock.wall_us();
        self.open = Some(Open {
            transaction,
            savepoints: Vec::new(),
            constraints: ConstraintModes::default(),
            deferred: Vec::new(),
            defines: false,
            failed: false,
            isolation,
            now,
            fresh: true,
            unseeing: true,
            implicit: false,
            read_only,
            settings: None,
            local_settings: false,
            patience: None,
            advisory: Some(TransactionLocks(self.facts.clone())),
        });
        Ok(answer)
    }

    pub(super) fn set_transaction(&mut self, modes: &Modes) -> Result<Answer> {
        let mut answer = Answer::tagged("SET");
        let Some(open) = &mut self.open else {
            answer.warn("25P01", "SET TRANSACTION can only be used in transaction blocks");
            return Ok(answer);
        };
        if !open.fresh {
            return Err(Error::new(
                "25001",
                "SET TRANSACTION ISOLATION LEVEL must be called before any query",
            ));
        }
        let (options, isolation, read_only) = Self::options(modes, (open.isolation, open.read_only));
        open.transaction = self.db.begin(options)?;
        open.patience = None;
        open.isolation = isolation;
        open.read_only = read_only;
        Ok(answer)
    }

    /// A transaction that keeps its snapshot sees what was committed when its first statement begins, as in PostgreSQL, not what
    /// was at BEGIN.
    pub(super) fn take_snapshot(&mut self) -> Result<()> {
        let Some(open) = self.open.as_mut().filter(|open| open.unseeing) else { return Ok(()) };
        open.unseeing = false;
        if open.isolation != Isolation::ReadCommitted && !open.failed {
            let modes = Modes { isolation: None, read_only: None };
            open.transaction = self.db.begin(Self::options(&modes, (open.isolation, open.read_only)).0)?;
            open.patience = None;
            // There is nothing to go back from.
            for (_, savepoint, _) in &mut open.savepoints {
                *savepoint = open.transaction.savepoint()?;
            }
        }
        Ok(())
    }

    /// The open transaction waits for others as long as `lock_timeout` says.
    pub(super) fn limit_waits(&mut self) -> Result<()> {
        let patience = self.settings.lock_timeout;
        let Some(open) = self.open.as_mut().filter(|open| open.patience != patience && !open.failed) else {
            return Ok(());
        };
        open.patience = patience;
        open.transaction.limit_waits(patience).map_err(Error::from)
    }

    pub(super) async fn commit(&mut self) -> Result<Answer> {
        self.before_commit().await?;
        match self.open.take() {
            Some(open) if open.failed => {
                self.cursors.end(false);
                self.sequences.ended(0);
                if let Some(before) = open.settings {
                    self.settings.restore(before);
                }
                Ok(Answer::tagged("ROLLBACK"))
            }
            Some(open) => {
                let mut answer = Answer::tagged("COMMIT");
                if open.implicit {
                    answer.warn("25P01", "there is no transaction in progress");
                }
                let committing = self.committing(open.defines);
                let committed = open.transaction.commit_with(|| self.interrupt.decide()).await;
                drop(committing);
                self.sequences.ended(0);
                self.cursors.end(committed.is_ok());
                if let Some(before) = open.settings.filter(|_| open.local_settings || committed.is_err()) {
                    self.settings.restore(before);
                }
                committed?;
                Ok(answer)
            }
            None => {
                let mut answer = Answer::tagged("COMMIT");
                answer.warn("25P01", "there is no transaction in progress");
                Ok(answer)
            }
        }
    }

    pub(super) fn rollback(&mut self) -> Answer {
        let mut answer = Answer::tagged("ROLLBACK");
        match self.open.take() {
            Some(open) => {
                open.transaction.rollback();
                self.sequences.ended(0);
                self.cursors.end(false);
                if let Some(before) = open.settings {
                    self.settings.restore(before);
                }
            }
            None => answer.warn("25P01", "there is no transaction in progress"),
        }
        answer
    }

    pub(super) fn open_for(&mut self, statement: &str) -> Result<&mut Open> {
        self.open
            .as_mut()
            .filter(|open| !open.implicit)
            .ok_or_else(|| Error::new("25P01", format!("{statement} can only be used in transaction blocks")))
    }

    pub(super) fn savepoint(&mut self, name: &str) -> Result<Answer> {
        let open = self.open_for("SAVEPOINT")?;
        let savepoint = open.transaction.savepoint()?;
        open.savepoints.push((name.to_owned(), savepoint, open.deferred.len()));
        Ok(Answer::tagged("SAVEPOINT"))
    }

    pub(super) fn release(&mut self, name: &str) -> Result<Answer> {
        let open = self.open_for("RELEASE SAVEPOINT")?;
        let place = open
            .savepoints
            .iter()
            .rposition(|(known, ..)| known == name)
            .ok_or_else(|| no_savepoint(name))?;
        open.savepoints.truncate(place);
        self.cursors.released(place);
        Ok(Answer::tagged("RELEASE"))
    }

    pub(super) async fn rollback_to(&mut self, name: &str) -> Result<Answer> {
        let open = self.open_for("ROLLBACK TO SAVEPOINT")?;
        let place = open
            .savepoints
            .iter()
            .rposition(|(known, ..)| known == name)
            .ok_or_else(|| no_savepoint(name))?;
        open.transaction.rollback_to(&open.savepoints[place].1)?;
        // What has been looked at before its time is looked at once more.
        let (deferred, defines) = (open.savepoints[place].2, open.defines);
        open.deferred.truncate(deferred);
        open.savepoints.truncate(place + 1);
        open.failed = false;
        self.cursors.undone(place);
        self.sequences.ended(place + 1);
        if defines {
            self.reload_objects().await?;
        }
        Ok(Answer::tagged("ROLLBACK"))
    }

    /// Opens the implicit transaction of several statements, if no transaction is open.
    ///
    /// # Errors
    /// The engine's, if it has no room for a transaction.
    pub fn begin_implicit(&mut self) -> Result<()> {
        if self.open.is_none() {
            self.begin(&Modes::default())?;
            if let Some(open) = &mut self.open {
                open.implicit = true;
            }
        }
        Ok(())
    }

    /// Ends the implicit transaction, if one is open: commits it, or rolls it back after an error.
    ///
    /// # Errors
    /// Those of a commit.
    pub async fn end_implicit(&mut self) -> Result<()> {
        let ended = self.end_implicit_inner().await;
        self.end_definitions();
        self.note_rest();
        ended.map_err(|error| names::shown_error(error, &self.path))
    }

    async fn end_implicit_inner(&mut self) -> Result<()> {
        if self.open.as_ref().is_some_and(|open| open.implicit) {
            self.before_commit().await?;
        }
        match self.open.take_if(|open| open.implicit) {
            Some(open) if open.failed => {
                open.transaction.rollback();
                self.sequences.ended(0);
                self.cursors.end(false);
                Ok(())
            }
            Some(open) => {
                let committing = self.committing(open.defines);
                let committed = open.transaction.commit_with(|| self.interrupt.decide()).await;
                drop(committing);
                self.sequences.ended(0);
                self.cursors.end(committed.is_ok());
                committed?;
                self.sequences.settle().await
            }
            None => Ok(()),
        }
    }

    /// Does the rest of an open transaction's work, and rolls it back if that is refused.
    async fn before_commit(&mut self) -> Result<()> {
        if self.is_failed() || self.open.is_none() {
            return Ok(());
        }
        let done = self.finish_work().await;
        if done.is_err() {
            self.rollback();
        }
        self.cursors.stop();
        done
    }

    async fn finish_work(&mut self) -> Result<()> {
        self.settle_deferred(true).await?;
        Box::pin(self.keep_held()).await?;
        self.write_sequences().await
    }

    /// The open transaction has failed. What it did since its last savepoint, or all, is undone at once: others wait for its locks,
    /// and its client may be long in saying ROLLBACK.
    pub(super) fn fail(&mut self) {
        let Some(open) = self.open.as_mut().filter(|open| !open.failed) else { return };
        open.failed = true;
        let undone = open.savepoints.last().map(|(_, savepoint, _)| open.transaction.rollback_to(savepoint));
        if !matches!(undone, Some(Ok(()))) {
            open.transaction.abort();
            open.advisory = None;
            self.cursors.end(false);
        }
    }

    /// Does the transaction only read that a statement would run in?
    pub(super) fn only_reads(&self) -> bool {
        self.open.as_ref().map_or(self.settings.read_only, |open| open.read_only)
    }

    /// Has the open transaction failed?
    pub(super) fn is_failed(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.failed)
    }

    pub(super) async fn set_constraints(&mut self, names: &[ObjectName], deferred: bool) -> Result<Answer> {
        for name in names {
            let known: Vec<bool> = self
                .objects
                .foreign()
                .filter(|(_, own, _)| *own == name.name)
                .map(|(_, _, row)| row.deferrable)
                .collect();
            if known.is_empty() {
                let message = format!("constraint \"{}\" does not exist", name.name);
                return Err(Error::new("42704", message));
            }
            if known.contains(&false) {
                return Err(Error::new("42809", format!("constraint \"{}\" is not deferrable", name.name)));
            }
        }
        let mut answer = Answer::tagged("SET CONSTRAINTS");
        let Some(open) = &mut self.open else {
            answer.warn("25P01", "SET CONSTRAINTS can only be used in transaction blocks");
            return Ok(answer);
        };
        if names.is_empty() {
            open.constraints.named.clear();
            open.constraints.all = Some(deferred);
        }
        for name in names {
            open.constraints.named.insert(name.name.clone(), deferred);
        }
        self.settle_deferred(false).await?;
        Ok(answer)
    }

    /// Looks at what has waited: at all of it, before COMMIT, or at what does not wait any more.
    pub(super) async fn settle_deferred(&mut self, all: bool) -> Result<()> {
        if self.open.as_ref().is_none_or(|open| open.deferred.is_empty()) {
            return Ok(());
        }
        let context = self.own_context();
        let (catalog, Some(open)) = self.catalog_and_open() else { return Ok(()) };
        let modes = &open.constraints;
        let waits = |one: &Pending| !all && modes.deferred(&one.key().name, one.key().deferred);
        let (later, now) = std::mem::take(&mut open.deferred).into_iter().partition(waits);
        open.deferred = later;
        exec::settle(catalog, &mut open.transaction, open.isolation, &context, now).await
    }
}

/// A command that changes something, in a transaction that only reads.
pub(super) fn refused_to_read_only(command: &str) -> Error {
    Error::new("25006", format!("cannot execute {command} in a read-only transaction"))
}

fn no_savepoint(name: &str) -> Error {
    Error::new("3B001", format!("savepoint \"{name}\" does not exist"))
}
