//! Statements by their kinds: what runs each of them, and what stands round it.

use super::attempt::changed_result;
use super::{Answer, Prepared, Session, transaction};
use crate::error::{Error, Result, aborted};
use crate::exec::Rows;
use crate::names::{self, quoted};
use crate::parser::ast::Statement;
use crate::types::Datum;

impl Session {
    /// Runs a statement, and ends what has ended with it.
    ///
    /// `fixed`: its columns must be those that it was described with.
    pub(super) async fn execute_inner(
        &mut self,
        prepared: &mut Prepared,
        parameters: Vec<Datum>,
        rows: &mut dyn Rows,
        fixed: bool,
    ) -> Result<Answer> {
        self.note_begin(&prepared.text);
        if let Some(outlet) = rows.outlet() {
            outlet.shut();
        }
        if !prepared.is_end() {
            check_open(self)?;
            self.refresh_objects().map_err(|error| self.failed(error))?;
        }
        let statement = &prepared.statement.statement;
        if transaction::needs_snapshot(statement) {
            self.take_snapshot().map_err(|error| self.failed(error))?;
        }
        self.limit_waits().map_err(|error| self.failed(error))?;
        let boundary = matches!(statement, Statement::Begin(_) | Statement::SetTransaction(_));
        let mut answer = self.dispatch(prepared, parameters, rows, fixed).await;
        if answer.is_ok()
            && self.open.is_none()
            && let Err(error) = self.sequences.settle().await
        {
            answer = Err(error);
        }
        match &mut self.open {
            Some(open) => open.fresh = open.fresh && boundary,
            None => self.facts.transaction_ended(),
        }
        self.end_definitions();
        let answer = answer.map_err(|error| self.failed(error.locate(&prepared.text)));
        self.note_rest();
        let mut answer = answer?;
        for notice in &mut answer.notices {
            if let Some(shown) = names::shown(&notice.message, &self.path) {
                notice.message = shown;
            }
        }
        Ok(answer)
    }

    async fn dispatch(
        &mut self,
        prepared: &mut Prepared,
        parameters: Vec<Datum>,
        rows: &mut dyn Rows,
        fixed: bool,
    ) -> Result<Answer> {
        if let Statement::Declare { name, hold, forward, .. } = &prepared.statement.statement {
            let (name, hold, forward) = (name.clone(), *hold, *forward);
            return Box::pin(self.declare((&name, hold, forward), prepared, parameters)).await;
        }
        if prepared.bound.is_some() {
            return self.rows_statement(prepared, parameters, rows, fixed).await;
        }
        match &prepared.statement.statement {
            Statement::Begin(modes) => self.begin(modes),
            Statement::Commit => self.commit().await,
            Statement::Rollback => Ok(self.rollback()),
            Statement::Savepoint(name) => self.savepoint(name),
            Statement::Release(name) => self.release(name),
            Statement::RollbackTo(name) => self.rollback_to(name).await,
            Statement::SetTransaction(modes) => self.set_transaction(modes),
            // Names are kept as they have to be written.
            Statement::Set { local, name, value: Some(value) } if name == "search_path" => {
                let value: Vec<String> = value.iter().map(|name| quoted(name)).collect();
                self.set_setting(*local, name, Some(&value))
            }
            Statement::Set { local, name, value } => self.set_setting(*local, name, value.as_deref()),
            Statement::Show(name) if name == "all" => {
                let all = self.settings();
                for (name, value) in &all {
                    rows.row(&[Datum::text(name), Datum::text(value)]);
                }
                Ok(Answer { count: all.len() as u64, ..Answer::tagged("SHOW") })
            }
            Statement::Show(name) => {
                rows.row(&[Datum::text(self.setting(name)?)]);
                Ok(Answer { count: 1, ..Answer::tagged("SHOW") })
            }
            Statement::Reset(name) => self.reset_setting(name.clone().as_deref()),
            Statement::Nothing(tag) => Ok(Answer::tagged(tag)),
            Statement::Refused(what) => Err(Error::unsupported(what)),
            Statement::Fetch { name, direction, moving } => {
                if fixed && !moving && self.cursors.columns(name)? != prepared.shown {
                    return Err(changed_result());
                }
                let (name, direction, moving) = (name.clone(), *direction, *moving);
                Box::pin(self.fetch(&name, direction, moving, rows)).await
            }
            Statement::Close(name) => self.close_cursor(name.as_deref()),
            Statement::Copy(_) => {
                Err(Error::new("0A000", "COPY FROM STDIN needs a client that sends the rows"))
            }
            Statement::Deallocate(name) => self.deallocate(name.as_deref()),
            Statement::Prepare { name, types, statement, before } => {
                let (name, types, statement) = (name.clone(), types.clone(), statement.clone());
                let before = *before;
                self.prepare_named(&name, &types, &statement).map_err(|mut error| {
                    error.position = error.position.map(|position| position + before);
                    error
                })
            }
            Statement::Execute { name, args } => {
                if fixed && self.named_columns(name)? != prepared.shown {
                    return Err(changed_result());
                }
                let (name, args) = (name.clone(), args.clone());
                self.execute_named(&name, &args, rows).await
            }
            Statement::Explain(statement, options) => {
                let (statement, options) = (statement.clone(), *options);
                let types = prepared.parameters.clone();
                let lines = self.explain(&statement, options, &types, parameters).await?;
                for line in &lines {
                    rows.row(&[Datum::text(line)]);
                }
                Ok(Answer { count: lines.len() as u64, ..Answer::tagged("EXPLAIN") })
            }
            Statement::SetConstraints { names, deferred } => {
                let (names, deferred) = (names.clone(), *deferred);
                self.set_constraints(&names, deferred).await
            }
            Statement::LockShared(names) => {
                for name in names {
                    let mut name = name.clone();
                    self.settle(&mut name);
                    self.known(&name)?;
                }
                if self.open.as_ref().is_none_or(|open| open.implicit) {
                    return Err(Error::new("25P01", "LOCK TABLE can only be used in transaction blocks"));
                }
                Ok(Answer::tagged("LOCK TABLE"))
            }
            Statement::Discard => {
                if self.open.as_ref().is_some_and(|open| !open.implicit) {
                    return Err(Error::new("25001", "DISCARD ALL cannot run inside a transaction block"));
                }
                self.settings.reset(None)?;
                self.cursors.clear();
                self.prepares.clear();
                self.sequences.discard();
                self.facts.unlock_all();
                Ok(Answer::tagged("DISCARD ALL"))
            }
            Statement::DiscardSequences => {
                self.sequences.discard();
                Ok(Answer::tagged("DISCARD SEQUENCES"))
            }
            Statement::AlterIndex => Err(Error::unsupported("ALTER INDEX")),
            // A sequence's position is a row: it changes within a transaction.
            Statement::AlterSequence { name, if_exists, options, rename: None } => {
                if self.only_reads() {
                    return Err(transaction::refused_to_read_only("ALTER SEQUENCE"));
                }
                let (mut name, if_exists, mut options) = (name.clone(), *if_exists, options.clone());
                self.settle(&mut name);
                self.settle_options(&mut options);
                self.alter_sequence(&name, if_exists, &options).await
            }
            definition => {
                if self.only_reads() {
                    return Err(transaction::refused_to_read_only(definition.command()));
                }
                self.definition(definition).await
            }
        }
    }
}

/// Is the open transaction, if there is one, still good?
pub(super) fn check_open(session: &Session) -> Result<()> {
    if session.is_failed() { Err(aborted()) } else { Ok(()) }
}
