//! The rows of an answer that is fetched a number at a time: what a cursor and a portal hold.
//!
//! Rows that were made stand in a [`Reel`]. A supply has a place: 0 before its first row, the number of a row, or one more than there
//! are behind the last.

use thermocline_engine::Database;

use super::reel::Reel;
use super::statement::{Given, Rows};
use crate::error::{Error, Result};
use crate::expr::Context;
use crate::parser::ast::Fetch;
use crate::types::Datum;

/// The rows of an answer. See the module.
pub struct Supply {
    reel: Reel,
    at: u64,
    /// Rows are shown once, forward: what was shown is given back.
    forward: bool,
}

impl std::fmt::Debug for Supply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supply").field("at", &self.at).field("forward", &self.forward).finish_non_exhaustive()
    }
}

impl Rows for Supply {
    fn row(&mut self, row: &[Datum]) -> usize {
        // The reel charges what it keeps; these are the few rows of a statement that has no plan.
        let _ = self.reel.append(row);
        0
    }

    fn restart(&mut self) {
        self.reel.clear();
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
    /// An empty one. `forward`: its rows are shown once, in their order.
    pub(crate) fn new(db: &Database, forward: bool) -> Self {
        Self { reel: Reel::new(db), at: 0, forward }
    }

    /// Takes a row of the statement that fills it.
    pub(super) fn push(&mut self, row: &[Datum], context: &Context) -> Result<()> {
        self.reel.push(row, context)
    }

    /// All rows of the statement that fills it have come.
    pub(super) async fn settle(&mut self, context: &Context) -> Result<()> {
        self.reel.settle(context).await
    }

    /// Goes on in this direction, and gives the rows that it passes to `given`; none: it only moves. Returns their number.
    pub(crate) async fn fetch(
        &mut self,
        direction: Fetch,
        context: &Context,
        mut given: Option<&mut Given<'_>>,
    ) -> Result<u64> {
        let (way, end) = self.way(direction)?;
        let (mut count, mut place, last, step) = match way {
            Way::Forward(first, last) => (0, first, last, 1),
            Way::Backward(first, last) => (0, last, first, -1),
        };
        while if step > 0 { place <= last } else { place >= last } {
            if let Some(given) = &mut given {
                given.row(&self.reel.row(place).await?, context)?;
                if context.is_due() {
                    context.pause().await?;
                }
            }
            (count, place) = (count + 1, place.wrapping_add_signed(step));
        }
        self.at = end;
        if self.forward {
            self.reel.forget(end.saturating_add(1));
        }
        Ok(count)
    }

    /// The rows that are passed in this direction, and the place behind that.
    fn way(&mut self, direction: Fetch) -> Result<(Way, u64)> {
        let behind = self.reel.end();
        let is_on_row = (1..behind).contains(&self.at);
        let goes_back = match direction {
            Fetch::Forward(0) | Fetch::Relative(0) => is_on_row,
            Fetch::Forward(by) | Fetch::Relative(by) => by < 0,
            Fetch::Absolute(place) => place < 0 || self.at > 0 && place.unsigned_abs() <= self.at,
        };
        if self.forward && goes_back {
            let error = Error::new("55000", "cursor can only scan forward");
            return Err(error.hint("Declare it with SCROLL option to enable backward scan."));
        }
        let one = |place: u64| {
            let place = place.min(behind);
            let is_row = (1..behind).contains(&place);
            (if is_row { Way::Forward(place, place) } else { Way::Forward(1, 0) }, place)
        };
        let (way, end) = match direction {
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
        };
        Ok((way, end))
    }
}
