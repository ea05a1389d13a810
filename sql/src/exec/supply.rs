//! The rows of an answer that is fetched a number at a time: what a cursor and a portal hold.
//!
//! ```text
//! statement ─► all of its rows ─► reel ─► fetch      a plan that runs at once
//! fetch ─► suspended plan ─► a row ─► given          a plan that makes rows when they are fetched
//!                              └─► reel ─► fetch     rows that were made and are kept
//! ```
//!
//! Rows that were made stand in a [`Reel`], but for those of a [`Suspended`] plan that are shown once. A supply has a place: 0 before its
//! first row, the number of a row, or one more than there are behind the last.

use thermocline_engine as engine;

use super::Row;
use super::reel::Reel;
use super::statement::{Given, Rows};
use super::suspended::Suspended;
use crate::error::{Error, Result};
use crate::expr::Context;
use crate::parser::ast::Fetch;
use crate::types::Datum;

/// The rows of an answer. See the module.
pub struct Supply {
    reel: Reel,
    /// The plan that makes the rows behind those; none: there are no others.
    rest: Option<Box<Suspended>>,
    at: u64,
    /// Rows are shown once, forward: what was shown is given back.
    forward: bool,
    /// Making a row has failed.
    failed: bool,
    /// A plan may make its rows when they are fetched.
    suspends: bool,
    /// Rows of a statement without a plan have come that there is no memory for.
    unpaid: Option<Error>,
}

impl std::fmt::Debug for Supply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supply").field("at", &self.at).field("forward", &self.forward).finish_non_exhaustive()
    }
}

impl Rows for Supply {
    fn row(&mut self, row: &[Datum]) -> usize {
        // The reel charges what it keeps.
        if let Err(error) = self.reel.append(row) {
            self.unpaid.get_or_insert(error);
        }
        0
    }

    fn restart(&mut self) {
        self.reel.clear();
        self.rest = None;
        self.unpaid = None;
    }

    fn supply(&mut self) -> Option<&mut Supply> {
        Some(self)
    }
}

/// The first and the last place of the rows that a fetch passes; none if the last one is less.
enum Way {
    Forward(u64, u64),
    Backward(u64, u64),
}

impl Supply {
    /// An empty one. `forward`: its rows are shown once, in their order. `suspends`: a plan may make them when they are fetched.
    pub(crate) fn new(db: &engine::Database, forward: bool, suspends: bool) -> Self {
        Self { reel: Reel::new(db), rest: None, at: 0, forward, failed: false, suspends, unpaid: None }
    }

    /// True if a plan may make its rows when they are fetched.
    pub(super) fn may_suspend(&self) -> bool {
        self.suspends
    }

    /// Takes a row of the statement that fills it.
    pub(super) fn push(&mut self, row: &[Datum], context: &Context) -> Result<()> {
        self.reel.push(row, context)
    }

    /// All rows of the statement that fills it have come.
    pub(super) async fn settle(&mut self, context: &Context) -> Result<()> {
        self.reel.settle(context).await
    }

    /// Takes the plan that makes all rows when they are fetched.
    pub(super) fn suspend(&mut self, plan: Suspended) {
        self.rest = Some(Box::new(plan));
    }

    /// True if a plan has rows to make.
    pub(crate) fn is_suspended(&self) -> bool {
        self.rest.is_some() && !self.failed
    }

    /// The parameters with which rows are made.
    pub(crate) fn parameters(&self) -> &[Datum] {
        self.rest.as_ref().map_or(&[], |rest| rest.parameters())
    }

    /// Ends the plan, if it is suspended: no more rows are made.
    pub(crate) fn stop(&mut self) {
        self.failed |= self.rest.take().is_some();
    }

    /// Makes the rows that are not there yet, and keeps them: nothing of the transaction is needed any more.
    pub(crate) async fn make_all(
        &mut self,
        statement: Option<&mut engine::Statement<'_>>,
        context: &Context,
    ) -> Result<()> {
        self.make(u64::MAX, true, statement, context, &mut |_, _| Ok(())).await
    }

    /// Makes the rows up to a place, and shows each of them and its place to `see`.
    async fn make(
        &mut self,
        last: u64,
        keeps: bool,
        statement: Option<&mut engine::Statement<'_>>,
        context: &Context,
        see: &mut dyn FnMut(u64, &[Datum]) -> Result<()>,
    ) -> Result<()> {
        let (Some(plan), Some(statement)) = (&mut self.rest, statement) else { return Ok(()) };
        let reel = &mut self.reel;
        let Some(most) = last.saturating_add(1).checked_sub(reel.end()).filter(|most| *most > 0) else {
            return Ok(());
        };
        // However this ends but well: rows have been made that nothing has seen.
        self.failed = true;
        let mut take = |row: &mut Row| {
            see(reel.end(), row)?;
            if keeps {
                return reel.push(row, context);
            }
            reel.pass_over();
            Ok(())
        };
        let made = plan.make(statement, context, most, &mut take).await;
        if !matches!(made, Ok(true)) {
            self.rest = None;
        }
        made?;
        self.reel.settle(context).await?;
        self.failed = false;
        Ok(())
    }

    /// Goes on in this direction, and gives the rows that it passes to `given`; none: it only moves. Returns their number.
    ///
    /// `statement`: one of the transaction that is open.
    pub(crate) async fn fetch(
        &mut self,
        direction: Fetch,
        mut statement: Option<&mut engine::Statement<'_>>,
        context: &Context,
        mut given: Option<&mut Given<'_>>,
    ) -> Result<u64> {
        if let Some(error) = &self.unpaid {
            return Err(error.clone());
        }
        if self.failed {
            return Err(Error::new("55000", "portal cannot be run"));
        }
        self.must_not_go_back(direction)?;
        if matches!(direction, Fetch::Absolute(place) if place < 0) {
            self.make_all(statement.as_deref_mut(), context).await?;
        }
        let (way, end) = self.way(direction);
        let mut count = 0;
        match way {
            Way::Forward(first, last) => {
                let made = last.min(self.reel.end() - 1);
                count += self.show((first, made), false, context, &mut given).await?;
                let mut see = |place: u64, row: &[Datum]| {
                    if place < first {
                        return Ok(());
                    }
                    count += 1;
                    given.as_mut().map_or(Ok(()), |given| given.row(row, context))
                };
                if first <= last {
                    self.make(last, !self.forward, statement, context, &mut see).await?;
                }
            }
            Way::Backward(first, last) => {
                count += self.show((first, last), true, context, &mut given).await?;
            }
        }
        // Behind the last row, if there are fewer.
        self.at = if self.rest.is_none() { end.min(self.reel.end()) } else { end };
        if self.forward {
            self.reel.forget(self.at.saturating_add(1));
        }
        Ok(count)
    }

    /// Gives rows that are kept, or passes over them.
    async fn show(
        &mut self,
        (first, last): (u64, u64),
        backward: bool,
        context: &Context,
        given: &mut Option<&mut Given<'_>>,
    ) -> Result<u64> {
        let count = (last + 1).saturating_sub(first);
        if let Some(given) = given {
            for number in 0..count {
                let place = if backward { last - number } else { first + number };
                given.row(&self.reel.row(place).await?, context)?;
                if context.is_due() {
                    context.pause().await?;
                }
            }
        }
        Ok(count)
    }

    /// Refuses a direction in which rows would be shown again that are not kept.
    fn must_not_go_back(&self, direction: Fetch) -> Result<()> {
        let is_on_row = self.at > 0 && (self.rest.is_some() || self.at < self.reel.end());
        let goes_back = match direction {
            Fetch::Forward(0) | Fetch::Relative(0) => is_on_row,
            Fetch::Forward(by) | Fetch::Relative(by) => by < 0,
            Fetch::Absolute(place) => place < 0 || self.at > 0 && place.unsigned_abs() <= self.at,
        };
        if self.forward && goes_back {
            let error = Error::new("55000", "cursor can only scan forward");
            return Err(error.hint("Declare it with SCROLL option to enable backward scan."));
        }
        Ok(())
    }

    /// The rows that are passed in this direction, and the place behind that; either may lie behind the last row if a plan has rows to
    /// make.
    fn way(&self, direction: Fetch) -> (Way, u64) {
        // As many rows as can be counted.
        const MANY: u64 = i64::MAX as u64;
        let behind = if self.rest.is_some() { MANY } else { self.reel.end() };
        let one = |place: u64| {
            let place = place.min(behind);
            let is_row = (1..behind).contains(&place);
            (if is_row { Way::Forward(place, place) } else { Way::Forward(1, 0) }, place)
        };
        match direction {
            Fetch::Absolute(place) if place < 0 => one(behind.saturating_sub(place.unsigned_abs())),
            Fetch::Absolute(place) => one(place.unsigned_abs()),
            Fetch::Relative(0) | Fetch::Forward(0) => one(self.at),
            Fetch::Relative(by) => one(self.at.saturating_add_signed(by)),
            Fetch::Forward(by) if by > 0 => {
                let end = self.at.saturating_add_signed(by).min(behind);
                (Way::Forward(self.at + 1, end.min(behind - 1)), end)
            }
            Fetch::Forward(by) => {
                let end = self.at.saturating_add_signed(by);
                (Way::Backward(end.max(1), self.at.saturating_sub(1)), end)
            }
        }
    }
}
