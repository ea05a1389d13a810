//! Transactions of a session: BEGIN to COMMIT, savepoints, and the one that stands round several statements of one request.
//!
//! PostgreSQL runs the statements of one query string, and those between two `Sync`s of the extended protocol, as one
//! transaction, the *implicit* one, unless they say BEGIN themselves: then it becomes the one that they began.

use thermocline_engine::{Isolation, TransactionOptions};

use super::{Answer, Open, Session};
use crate::error::{Error, Result};
use crate::names;
use crate::parser::ast::{Modes, Statement};

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
            constraints: super::constraints::ConstraintModes::default(),
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
            advisory: Some(super::TransactionLocks(self.facts.clone())),
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
            // There is nothing to go back from.
            for (_, savepoint, _) in &mut open.savepoints {
                *savepoint = open.transaction.savepoint()?;
            }
        }
        Ok(())
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

    /// What an open transaction still has to do: it is rolled back if that is refused.
    async fn before_commit(&mut self) -> Result<()> {
        if self.is_failed() || self.open.is_none() {
            return Ok(());
        }
        let done = match self.settle_deferred(true).await {
            Ok(()) => self.write_sequences().await,
            refused => refused,
        };
        if done.is_err() {
            self.rollback();
        }
        done
    }
}

fn no_savepoint(name: &str) -> Error {
    Error::new("3B001", format!("savepoint \"{name}\" does not exist"))
}
