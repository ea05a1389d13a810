//! What background threads do, as single steps: for tests that open a database without threads
//! ([`Database::open_with`]) and decide themselves what happens when.

pub(crate) mod cold;

use std::path::Path;
use std::sync::Arc;

use thermocline_base::io::Io;

use crate::api::Database;
use crate::error::Result;
use crate::ops::maintain::Rounds;
use crate::ops::verify::{Verification, verify};
use crate::session::db::Inner;

#[doc(hidden)]
impl Database {
    /// Maintenance for a test to drive.
    #[must_use]
    pub fn maintenance_steps(&self) -> MaintenanceSteps {
        MaintenanceSteps { inner: Arc::clone(self.inner()), rounds: Rounds::default() }
    }

    /// One flush of the log.
    ///
    /// # Errors
    /// The log has failed, or the disk is full.
    pub fn step_flush(&self) -> Result<()> {
        let inner = self.inner();
        if let Some(cold) = inner.cold.get()
            && inner.options.cold_threads == 0
        {
            while cold.store.step(false) {}
        }
        match inner.log() {
            Some(log) => log.flush_once().map(drop).map_err(|error| inner.log_error(&error)),
            None => Ok(()),
        }
    }

    /// Prunes, packs and drops everything that can be.
    pub fn step_maintenance(&self) {
        let inner = self.inner();
        let mut rounds = Rounds::default();
        // A chunk is packed or dropped in a round after the one that has found it.
        for _ in 0..3 {
            crate::ops::prune::prune_all(inner, false);
            crate::ops::define::free_replaced(inner);
            inner.epochs.collect();
            crate::ops::maintain::shrink(inner, &mut rounds);
        }
    }

    /// [`Database::verify`] over any [`Io`].
    ///
    /// # Errors
    /// As [`Database::verify`].
    pub fn verify_with(directory: &Path, io: Arc<dyn Io>) -> Result<Verification> {
        verify(directory, &io)
    }
}

/// Drives maintenance step by step, for tests of a database without background threads.
#[doc(hidden)]
#[derive(Debug)]
pub struct MaintenanceSteps {
    inner: Arc<Inner>,
    rounds: Rounds,
}

impl MaintenanceSteps {
    /// Prunes, and frees what nobody can reach any more.
    pub fn prune(&self) {
        crate::ops::prune::prune_all(&self.inner, false);
        crate::ops::define::free_replaced(&self.inner);
        self.inner.epochs.collect();
    }

    /// Aborts transactions that have been idle for the limit, since the call before.
    pub fn abort_idle(&mut self) {
        crate::ops::maintain::abort_idle(&self.inner, &mut self.rounds);
    }

    /// Gives memory back: packs, drops and shrinks.
    pub fn shrink(&mut self) {
        crate::ops::leave::clear_left(&self.inner, usize::MAX);
        crate::ops::maintain::shrink(&self.inner, &mut self.rounds);
        crate::ops::maintain::compact_indexes(&self.inner, &mut self.rounds);
    }

    /// All that the maintenance thread does, once.
    pub fn step(&mut self) {
        self.prune();
        self.abort_idle();
        self.shrink();
    }
}
