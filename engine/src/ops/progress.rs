//! How far a change of definitions is that goes over a table's rows, and whether it is to go on.
//!
//! A function of the caller's is told every [`ROWS`] rows, and while the change waits for transactions that use the table. `Break`
//! ends the change as an error would: nothing of it is left, neither in memory nor in the cold store, nor after a crash.
//!
//! Rules:
//! - It is asked for the last time before the change becomes durable: what has been shown is not taken back.
//! - It is called on the caller's thread, mostly while the table is held: it must not use the table, and not block for long.

use std::ops::ControlFlow;

use crate::error::{Error, Result};

/// So many rows lie between two calls.
const ROWS: u64 = 1024;

/// How far a change of a table's definition has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DefinitionProgress {
    /// Rows that have been gone over: a row counts once for each time that it has to be looked at. It begins anew when the change
    /// is tried again, after it was refused memory.
    pub rows_done: u64,
    /// Rows that there are to go over, about.
    pub rows: u64,
}

/// Tells somebody how far a change is.
pub(crate) struct Advance<'a> {
    progress: DefinitionProgress,
    told: &'a mut dyn FnMut(DefinitionProgress) -> ControlFlow<()>,
    ended: bool,
}

impl<'a> Advance<'a> {
    pub(crate) fn new(told: &'a mut dyn FnMut(DefinitionProgress) -> ControlFlow<()>) -> Self {
        Self { progress: DefinitionProgress::default(), told, ended: false }
    }

    /// A try begins, which has about so many rows to go over.
    ///
    /// # Errors
    /// The change is to end.
    pub(crate) fn begin(&mut self, rows: u64) -> Result<()> {
        self.progress = DefinitionProgress { rows_done: 0, rows };
        self.tell()
    }

    /// One more row.
    ///
    /// # Errors
    /// The change is to end.
    #[inline]
    pub(crate) fn row(&mut self) -> Result<()> {
        self.progress.rows_done += 1;
        if self.progress.rows_done.is_multiple_of(ROWS) { self.tell() } else { Ok(()) }
    }

    /// Asks whether to go on.
    ///
    /// # Errors
    /// The change is to end.
    pub(crate) fn tell(&mut self) -> Result<()> {
        self.progress.rows = self.progress.rows.max(self.progress.rows_done);
        self.ended = self.ended || (self.told)(self.progress).is_break();
        match self.ended {
            true => Err(Error::Refused(
                "the change of the definition was cancelled; nothing of it is left".to_owned(),
            )),
            false => Ok(()),
        }
    }
}

/// For changes that nobody wants to hear of.
pub(crate) fn silent(_: DefinitionProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}
