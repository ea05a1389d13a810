//! Cursors, and portals that are read a number of rows at a time: what both hold is a [`Supply`].
//!
//! | | found by | its rows are shown | ends with |
//! |---|---|---|---|
//! | cursor | its name: DECLARE, FETCH, MOVE, CLOSE | in any direction; with NO SCROLL once, forward | its transaction, unless it is WITH HOLD and that was committed |
//! | portal | its [`Remainder`], which the embedder holds | once, forward | its transaction, and with the `Remainder` |
//!
//! Both end when the transaction goes back to a savepoint before them. FETCH hands its rows over as a query does
//! ([`Rows::outlet`]), and is no idleness of its transaction meanwhile. Plans that can be suspended make their rows when they are
//! fetched; those of a cursor WITH HOLD make the rest before the commit.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::dispatch::check_open;
use super::{Answer, Prepared, Session};
use crate::error::{Error, Result};
use crate::exec::{Given, Rows, Supply};
use crate::expr::memory::Grant;
use crate::expr::outlet::Of;
use crate::expr::{Context, Deadline};
use crate::parser::ast::Fetch;
use crate::types::{Column, Datum};

/// Plans that a transaction suspends at the same time: at read committed each takes one of the places that transactions share.
const SUSPENDED: usize = 16;

#[derive(Default)]
pub(super) struct Cursors {
    named: HashMap<String, Cursor>,
    /// Those of the open transaction, each with the savepoints that it had when the portal was opened.
    portals: Vec<(Weak<Slot>, usize)>,
}

/// A portal's rows, which are taken out while it is read; none: the portal has ended.
type Slot = RefCell<Option<Supply>>;

struct Cursor {
    columns: Vec<Column>,
    supply: Supply,
    hold: bool,
    /// Its transaction is still open: the savepoints that the transaction had when it was declared.
    fresh: Option<usize>,
}

/// The rows of a statement that its client has not fetched yet.
///
/// They end with the statement's transaction, and when this is dropped.
#[derive(Debug)]
pub struct Remainder {
    slot: Rc<Slot>,
    text: Arc<str>,
}

/// A portal that is read. Its rows go back however that ends.
struct Reading<'r> {
    slot: &'r Slot,
    supply: Option<Supply>,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.slot.replace(self.supply.take());
    }
}

impl Cursors {
    /// Closes the cursors and portals that end with their transaction.
    pub(super) fn end(&mut self, committed: bool) {
        self.named.retain(|_, cursor| cursor.fresh.is_none() || (cursor.hold && committed));
        self.named.values_mut().for_each(|cursor| cursor.fresh = None);
        self.end_portals(|_| true);
    }

    fn end_portals(&mut self, ends: impl Fn(usize) -> bool) {
        self.portals.retain(|(slot, since)| {
            let Some(slot) = slot.upgrade() else { return false };
            if ends(*since) {
                drop(slot.take());
            }
            !ends(*since)
        });
    }

    /// Closes the cursors and portals that were made behind a savepoint, which has this number of others before it: the transaction
    /// goes back to it.
    pub(super) fn undone(&mut self, savepoints: usize) {
        self.named.retain(|_, cursor| cursor.fresh.is_none_or(|since| since <= savepoints));
        self.end_portals(|since| since > savepoints);
    }

    /// Cursors and portals that were made behind a savepoint that is released belong to the one before it.
    pub(super) fn released(&mut self, savepoints: usize) {
        let named = self.named.values_mut().filter_map(|cursor| cursor.fresh.as_mut());
        for since in named.chain(self.portals.iter_mut().map(|(_, since)| since)) {
            *since = savepoints.min(*since);
        }
    }

    /// True if another plan may be suspended.
    fn may_suspend(&self) -> bool {
        let named = self.named.values().filter(|cursor| cursor.supply.is_suspended());
        let portals = self.portals.iter().filter_map(|(slot, _)| slot.upgrade());
        let portals = portals.filter(|slot| slot.borrow().as_ref().is_some_and(Supply::is_suspended));
        named.count() + portals.count() < SUSPENDED
    }

    /// Ends the plans that read within the transaction, which is about to end.
    pub(super) fn stop(&mut self) {
        let named = self.named.values_mut().filter(|cursor| cursor.fresh.is_some());
        named.for_each(|cursor| cursor.supply.stop());
        for slot in self.portals.iter().filter_map(|(slot, _)| slot.upgrade()) {
            if let Some(supply) = &mut *slot.borrow_mut() {
                supply.stop();
            }
        }
    }

    pub(super) fn columns(&self, name: &str) -> Result<Vec<Column>> {
        self.named.get(name).map(|cursor| cursor.columns.clone()).ok_or_else(|| missing(name))
    }

    /// Closes all that have a name.
    pub(super) fn clear(&mut self) {
        self.named.clear();
    }
}

fn missing(name: &str) -> Error {
    Error::new("34000", format!("cursor \"{name}\" does not exist"))
}

impl Session {
    /// Columns of the cursor with this name.
    #[must_use]
    pub fn cursor_columns(&self, name: &str) -> Option<Vec<Column>> {
        self.cursors.named.get(name).map(|cursor| cursor.columns.clone())
    }

    /// Declares a cursor over the rows of a query.
    pub(super) async fn declare(
        &mut self,
        (name, hold, forward): (&str, bool, bool),
        prepared: &mut Prepared,
        parameters: Vec<Datum>,
    ) -> Result<Answer> {
        if self.open.is_none() && !hold {
            return Err(Error::new("25P01", "DECLARE CURSOR can only be used in transaction blocks"));
        }
        if self.cursors.named.contains_key(name) {
            return Err(Error::new("42P03", format!("cursor \"{name}\" already exists")));
        }
        let mut supply = Supply::new(&self.db, forward, self.cursors.may_suspend());
        self.rows_statement(prepared, parameters, &mut supply, false).await?;
        let columns = prepared.bound.as_ref().map_or(Vec::new(), |bound| bound.columns().to_vec());
        let fresh = self.open.as_ref().map(|open| open.savepoints.len());
        self.cursors.named.insert(name.to_owned(), Cursor { columns, supply, hold, fresh });
        Ok(Answer::tagged("DECLARE CURSOR"))
    }

    /// Makes the rows that cursors WITH HOLD still have to make: their transaction is about to be committed.
    pub(super) async fn keep_held(&mut self) -> Result<()> {
        let held = |cursor: &&mut Cursor| cursor.hold && cursor.supply.is_suspended();
        if !self.cursors.named.values_mut().any(|cursor| held(&cursor)) {
            return Ok(());
        }
        let mut context = self.context_of_fetch(None);
        let Some(open) = &mut self.open else { return Ok(()) };
        let mut statement = open.transaction.statement()?;
        for cursor in self.cursors.named.values_mut().filter(held) {
            context.parameters = cursor.supply.parameters().to_vec();
            cursor.supply.make_all(Some(&mut statement), &context).await?;
        }
        Ok(())
    }

    /// The context in which rows of a cursor or portal are fetched.
    fn context_of_fetch(&self, rows: Option<&dyn Rows>) -> Context {
        let context = self.own_context();
        let deadline = self
            .settings
            .statement_timeout
            .map(|limit| Deadline::new(self.clock.clone(), context.statement + limit.as_micros() as i64));
        let outlet = rows.and_then(Rows::outlet).cloned();
        let grant = Grant::new(context.memory.limit(), self.settings.work_mem, self.settings.temp_file_limit);
        Context { deadline, grant, read_only: self.only_reads(), outlet, ..context }
    }

    pub(super) async fn fetch(
        &mut self,
        name: &str,
        direction: Fetch,
        moving: bool,
        rows: &mut dyn Rows,
    ) -> Result<Answer> {
        let mut context = self.context_of_fetch(Some(rows));
        let cursor = self.cursors.named.get_mut(name).ok_or_else(|| missing(name))?;
        context.parameters = cursor.supply.parameters().to_vec();
        let transaction = self.open.as_mut().map(|open| &mut open.transaction);
        let rows = if moving { None } else { Some(rows) };
        let count = fetch_rows(&mut cursor.supply, direction, transaction, &context, rows).await?;
        let word = if moving { "MOVE" } else { "FETCH" };
        let held = self.spare.leave(context.memory).map(Arc::new);
        Ok(Answer { count, held, ..Answer::tagged(&format!("{word} {count}")) })
    }

    pub(super) fn close_cursor(&mut self, name: Option<&str>) -> Result<Answer> {
        let Some(name) = name else {
            self.cursors.clear();
            return Ok(Answer::tagged("CLOSE CURSOR ALL"));
        };
        self.cursors.named.remove(name).ok_or_else(|| missing(name))?;
        Ok(Answer::tagged("CLOSE CURSOR"))
    }

    /// Runs a prepared statement whose rows are to be fetched a number at a time: a plan that can be is suspended in
    /// the open transaction; others run, and their rows are kept, in memory and beyond that in a file.
    ///
    /// # Errors
    /// As [`Session::execute`].
    pub async fn open_portal(
        &mut self,
        prepared: &mut Prepared,
        parameters: Vec<Datum>,
    ) -> Result<(Answer, Remainder)> {
        let mut supply = Supply::new(&self.db, true, self.cursors.may_suspend());
        let answer = self.execute_inner(prepared, parameters, &mut supply, true).await?;
        let slot = Rc::new(RefCell::new(Some(supply)));
        if let Some(open) = &self.open {
            self.cursors.end_portals(|_| false);
            self.cursors.portals.push((Rc::downgrade(&slot), open.savepoints.len()));
        }
        Ok((answer, Remainder { slot, text: prepared.text.clone() }))
    }

    /// Hands over the next rows of a statement, `most` of them at the most; none: all. The answer counts them.
    ///
    /// # Errors
    /// As [`Session::execute_to`]; the statement's transaction has ended, or went back to a savepoint before it (34000).
    pub async fn fetch_portal(
        &mut self,
        remainder: &Remainder,
        most: Option<u64>,
        rows: &mut dyn Rows,
    ) -> Result<Answer> {
        self.note_begin(&remainder.text);
        if let Some(outlet) = rows.outlet() {
            outlet.shut();
        }
        let fetched = self.fetch_remainder(remainder, most, rows).await;
        let fetched = fetched.map_err(|error| self.failed(error.nowhere()));
        self.note_rest();
        fetched
    }

    async fn fetch_remainder(
        &mut self,
        remainder: &Remainder,
        most: Option<u64>,
        rows: &mut dyn Rows,
    ) -> Result<Answer> {
        check_open(self)?;
        let mut context = self.context_of_fetch(Some(rows));
        let mut reading = Reading { slot: &remainder.slot, supply: remainder.slot.take() };
        let Some(supply) = &mut reading.supply else {
            return Err(Error::new("34000", "the portal has ended with its transaction"));
        };
        context.parameters = supply.parameters().to_vec();
        let direction = Fetch::Forward(most.map_or(i64::MAX, |most| i64::try_from(most).unwrap_or(i64::MAX)));
        let transaction = self.open.as_mut().map(|open| &mut open.transaction);
        let count = fetch_rows(supply, direction, transaction, &context, Some(rows)).await?;
        let held = self.spare.leave(context.memory).map(Arc::new);
        Ok(Answer { count, held, ..Answer::default() })
    }
}

/// Fetches from a supply; none for `rows`: only goes on in it. Returns the number of rows that it has passed.
async fn fetch_rows(
    supply: &mut Supply,
    direction: Fetch,
    transaction: Option<&mut thermocline_engine::Transaction>,
    context: &Context,
    rows: Option<&mut dyn Rows>,
) -> Result<u64> {
    let mut statement = transaction.map(thermocline_engine::Transaction::statement).transpose()?;
    if let Some(outlet) = &context.outlet {
        if let Some(statement) = &mut statement {
            statement.attend()?;
        }
        // A held cursor's rows were durable before its transaction had ended. At read committed a suspended plan has a snapshot of its
        // own, which can be taken from it while its client stalls, and the transaction's is no older than this statement.
        outlet.begin(Of::Open(false));
    }
    let Some(rows) = rows else { return supply.fetch(direction, statement.as_mut(), context, None).await };
    let mut given = Given::new(rows, context);
    let count = supply.fetch(direction, statement.as_mut(), context, Some(&mut given)).await?;
    given.end(context).await?;
    Ok(count)
}
