//! Cursors: the rows of a query, kept when it is declared, and read in any direction.
//!
//! A cursor ends with its transaction, unless it was declared WITH HOLD and that was committed. Its place is between the rows
//! (before the first, behind the last) or on one, counted from 1.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Answer, Session};
use crate::error::{Error, Result};
use crate::exec::Rows;
use crate::expr::memory::Held;
use crate::parser::ast::Fetch;
use crate::types::Column;
use crate::types::Datum;

#[derive(Default)]
pub(super) struct Cursors(HashMap<String, Cursor>);

struct Cursor {
    columns: Vec<Column>,
    rows: Vec<Vec<Datum>>,
    /// 0: before the first row; one more than there are: behind the last.
    at: usize,
    hold: bool,
    /// Its transaction is still open: the savepoints that the transaction had when it was declared.
    fresh: Option<usize>,
    /// The memory of its rows.
    _held: Option<Arc<Held>>,
}

impl Cursors {
    /// Closes the cursors that end with their transaction.
    pub(super) fn end(&mut self, committed: bool) {
        self.0.retain(|_, cursor| cursor.fresh.is_none() || (cursor.hold && committed));
        self.0.values_mut().for_each(|cursor| cursor.fresh = None);
    }

    /// Closes the cursors that were declared behind a savepoint, which has so many before it: the transaction goes back to it.
    pub(super) fn undone(&mut self, savepoints: usize) {
        self.0.retain(|_, cursor| cursor.fresh.is_none_or(|since| since <= savepoints));
    }

    /// Cursors that were declared behind a savepoint that is released belong to the one before it.
    pub(super) fn released(&mut self, savepoints: usize) {
        for since in self.0.values_mut().filter_map(|cursor| cursor.fresh.as_mut()) {
            *since = savepoints.min(*since);
        }
    }

    pub(super) fn columns(&self, name: &str) -> Result<Vec<Column>> {
        self.0.get(name).map(|cursor| cursor.columns.clone()).ok_or_else(|| missing(name))
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

fn missing(name: &str) -> Error {
    Error::new("34000", format!("cursor \"{name}\" does not exist"))
}

impl Cursor {
    /// Moves, and says which rows it passes, first and last included, in their order.
    fn go(&mut self, direction: Fetch) -> (Vec<usize>, bool) {
        let count = self.rows.len() as i64;
        let at = self.at as i64;
        let one = |this: &mut Self, place: i64| {
            this.at = place.clamp(0, count + 1) as usize;
            if (1..=count).contains(&place) { (vec![this.at], false) } else { (Vec::new(), false) }
        };
        match direction {
            Fetch::Absolute(place) if place < 0 => one(self, count + 1 + place),
            Fetch::Absolute(place) => one(self, place),
            Fetch::Relative(by) => one(self, at.saturating_add(by)),
            Fetch::Forward(0) => one(self, at),
            Fetch::Forward(by) => {
                let end = at.saturating_add(by).clamp(0, count + 1);
                self.at = end as usize;
                let places = if by > 0 { at + 1..=end.min(count) } else { end.max(1)..=(at - 1).min(count) };
                (places.map(|place| place as usize).collect(), by < 0)
            }
        }
    }
}

impl Session {
    /// Columns of the cursor with this name.
    #[must_use]
    pub fn cursor_columns(&self, name: &str) -> Option<Vec<Column>> {
        self.cursors.0.get(name).map(|cursor| cursor.columns.clone())
    }

    pub(super) fn declare(
        &mut self,
        name: &str,
        hold: bool,
        columns: Vec<Column>,
        (rows, held): (Vec<Vec<Datum>>, Option<Arc<Held>>),
    ) -> Answer {
        let fresh = self.open.as_ref().map(|open| open.savepoints.len());
        self.cursors.0.insert(name.to_owned(), Cursor { columns, rows, at: 0, hold, fresh, _held: held });
        Answer::tagged("DECLARE CURSOR")
    }

    /// May a cursor with this name be declared?
    pub(super) fn may_declare(&self, name: &str, hold: bool) -> Result<()> {
        if self.open.is_none() && !hold {
            return Err(Error::new("25P01", "DECLARE CURSOR can only be used in transaction blocks"));
        }
        if self.cursors.0.contains_key(name) {
            return Err(Error::new("42P03", format!("cursor \"{name}\" already exists")));
        }
        Ok(())
    }

    pub(super) async fn fetch(
        &mut self,
        name: &str,
        direction: Fetch,
        moving: bool,
        rows: &mut dyn Rows,
    ) -> Result<Answer> {
        let context = self.own_context();
        let cursor = self.cursors.0.get_mut(name).ok_or_else(|| missing(name))?;
        let (mut places, backward) = cursor.go(direction);
        if backward {
            places.reverse();
        }
        if !moving {
            let mut kept = context.memory.kept();
            for place in &places {
                kept.add(rows.row(&cursor.rows[place - 1]))?;
                if context.is_due() {
                    context.pause().await?;
                }
            }
            kept.leave();
        }
        let count = places.len() as u64;
        let word = if moving { "MOVE" } else { "FETCH" };
        let held = self.spare.leave(context.memory).map(Arc::new);
        Ok(Answer { count, held, ..Answer::tagged(&format!("{word} {count}")) })
    }

    pub(super) fn close_cursor(&mut self, name: Option<&str>) -> Result<Answer> {
        let Some(name) = name else {
            self.cursors.clear();
            return Ok(Answer::tagged("CLOSE CURSOR ALL"));
        };
        self.cursors.0.remove(name).ok_or_else(|| missing(name))?;
        Ok(Answer::tagged("CLOSE CURSOR"))
    }
}
