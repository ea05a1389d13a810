//! Giving way: a statement that runs for long lets the others of its thread have a turn every [`TURN_NS`].
//!
//! Whatever loops over rows asks [`Context::is_due`] with each, outside of pins, and awaits [`Context::pause`] then. The clock is
//! looked at only once in a stride of rows, which adapts to how long they take.

use std::cell::Cell;
use std::pin::Pin;
use std::task::Poll;

use thermocline_base::clock::{Clock, SystemClock};

use crate::error::{Error, Result};
use crate::expr::Context;
use crate::shared::interrupt::Cause;

/// How long a statement runs before others have a turn.
const TURN_NS: u64 = 200_000;
/// Rows between two looks at the clock, at the most.
const STRIDE: u32 = 64;

/// Lets the other tasks of the thread have a turn: how, the embedder says.
pub type GiveWay = fn() -> Pin<Box<dyn Future<Output = ()>>>;

/// When a statement has given way last.
pub(crate) struct Pace {
    give_way: GiveWay,
    /// The beginning of its turn; 0: it has not looked at the clock yet.
    since_ns: Cell<u64>,
    looked_ns: Cell<u64>,
    /// When the statement goes on, on the clock of `now_ns`; 0: it does not sleep.
    asleep_until_ns: Cell<u64>,
    /// Rows until the next look.
    left: Cell<u32>,
    stride: Cell<u32>,
}

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pace").field("stride", &self.stride).finish_non_exhaustive()
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self::new(|| Box::pin(thermocline_engine::yield_now()))
    }
}

impl Pace {
    pub(crate) fn new(give_way: GiveWay) -> Self {
        Self {
            give_way,
            since_ns: Cell::new(0),
            looked_ns: Cell::new(0),
            asleep_until_ns: Cell::new(0),
            left: Cell::new(STRIDE),
            stride: Cell::new(STRIDE),
        }
    }

    /// Is the turn over?
    #[inline]
    fn is_over(&self) -> bool {
        let left = self.left.get() - 1;
        if left > 0 {
            self.left.set(left);
            return false;
        }
        self.look(SystemClock.now_ns())
    }

    /// The turn is over: its beginning is long ago, and the clock is looked at with the next row.
    fn end_turn(&self) {
        self.since_ns.set(1);
        self.left.set(1);
    }

    /// Looks at the clock.
    fn look(&self, now_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.looked_ns.replace(now_ns));
        // Some ten looks a turn.
        let stride = self.stride.get();
        let stride = match passed_ns {
            0..15_000 => (stride * 2).min(STRIDE),
            15_000..40_000 => stride,
            _ => (stride / 4).max(1),
        };
        self.stride.set(stride);
        self.left.set(stride);
        if self.since_ns.get() == 0 {
            self.since_ns.set(now_ns);
            return false;
        }
        let is_over = now_ns.saturating_sub(self.since_ns.get()) >= TURN_NS;
        if is_over {
            // Whatever has asked may be unable to pause.
            self.left.set(1);
        }
        is_over
    }
}

impl Context {
    /// Is it time to pause?
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.memory.is_short() || self.pace.is_over()
    }

    /// The statement sleeps for so long when it pauses next, which it does with its next row.
    pub(crate) fn sleep(&self, ns: u64) {
        let now_ns = SystemClock.now_ns();
        let from_ns = self.pace.asleep_until_ns.get().max(now_ns);
        self.pace.asleep_until_ns.set(from_ns.saturating_add(ns));
        self.pace.end_turn();
    }

    /// Rows of the answer have gathered.
    #[inline]
    pub(crate) fn gather(&self, bytes: usize) {
        if self.outlet.as_ref().is_some_and(|outlet| outlet.gather(bytes)) {
            self.pace.end_turn();
        }
    }

    /// Sleeps as long as the statement has been told to.
    pub(crate) async fn slept(&self) -> Result<()> {
        let until_ns = self.pace.asleep_until_ns.replace(0);
        let Some(facts) = self.facts.as_ref().filter(|_| until_ns > 0) else { return Ok(()) };
        let until_ns = self.deadline.as_ref().map_or(until_ns, |deadline| until_ns.min(deadline.at_ns()));
        let sleeper = facts.common().timer.sleep_until(until_ns);
        let mut sleeper = sleeper.map_err(|error| Error::new("53000", error.to_string()))?;
        std::future::poll_fn(|waiting| {
            if let Some(cause) = self.interrupt.raised() {
                return Poll::Ready(Err(cause.error()));
            }
            Pin::new(&mut sleeper).poll(waiting).map(|_| Ok(()))
        })
        .await?;
        match &self.deadline {
            Some(deadline) if deadline.is_over() => Err(Cause::TimedOut.error()),
            _ => Ok(()),
        }
    }

    /// Lets others have a turn, and gets the memory that was taken ahead.
    #[cold]
    pub(crate) async fn pause(&self) -> Result<()> {
        self.check()?;
        self.slept().await?;
        self.let_out().await?;
        (self.pace.give_way)().await;
        self.memory.settle().await?;
        let now_ns = SystemClock.now_ns();
        self.pace.since_ns.set(now_ns);
        self.pace.looked_ns.set(now_ns);
        self.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_in_time_however_long_rows_take() {
        for row_ns in [5, 300, 10_000, 150_000, 400_000] {
            let pace = Pace::default();
            let mut now_ns = 1_000_000_000;
            let mut turns = Vec::new();
            while turns.len() < 40 {
                now_ns += row_ns;
                let left = pace.left.get() - 1;
                pace.left.set(left);
                if left == 0 && pace.look(now_ns) {
                    turns.push(now_ns - pace.since_ns.get());
                    pace.since_ns.set(now_ns);
                    pace.looked_ns.set(now_ns);
                }
            }
            // Behind the first ones, in which the stride adapts.
            let longest = turns[20..].iter().max().expect("there are turns");
            assert!(*longest <= TURN_NS + row_ns.max(45_000), "{row_ns} ns a row: {longest} ns a turn");
        }
    }
}
