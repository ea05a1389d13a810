//! What all transactions of a database share.

use std::sync::Arc;

use thermocline_base::epoch::Epochs;
use thermocline_base::ids::Timestamp;
use thermocline_base::timer::Timer;

use super::Session;
use super::cold_side::ColdSide;
use super::files::Files;
use super::paged_side::PagedSide;
use super::pool::Pool;
use super::redefining::Redefining;
use super::standstill::{Closing, Standstill};
use super::warm::Warm;
use crate::catalog::Catalog;
use crate::catalog::make::FormMaker;
use crate::checkpoint::Checkpoints;
use crate::counters::{Counters, WaitKind};
use crate::error::{Error, Result};
use crate::hot::budget::Budget;
use crate::log::error::LogError;
use crate::log::{Log, ReserveError};
use crate::options::{Durability, Options};
use crate::pressure::Governor;
use crate::txn::locks::Locks;
use crate::txn::prune::Garbage;
use crate::txn::registry::{MAX_TRANSACTIONS, Registry};
use crate::txn::undurable::Undurable;

/// What all transactions of a database share.
pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) budget: Arc<Budget>,
    /// Address space that each memory of a table or index reserves.
    address_bytes: usize,
    pub(crate) registry: Registry,
    pub(crate) locks: Locks,
    pub(crate) garbage: Garbage,
    pub(crate) undurable: Undurable,
    pub(crate) counters: Counters,
    pub(crate) catalog: Catalog,
    pub(crate) cold: ColdSide,
    pub(crate) paged: PagedSide,
    pub(crate) files: Files,
    pub(crate) clock: Arc<dyn thermocline_base::clock::Clock>,
    pub(crate) standstill: Standstill,
    pub(crate) redefining: Redefining,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) sessions: Pool,
    pub(crate) governor: Governor,
    pub(crate) warm: Warm,
    pub(crate) closing: Closing,
    /// Wakes those who wait until a time.
    pub(crate) timer: Timer,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What was deferred may hold memory that holds the epochs: without this neither would ever be freed. Nobody is
        // left who could be pinned.
        for _ in 0..2 {
            self.epochs.collect();
        }
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("dir", &self.files.dir()).finish_non_exhaustive()
    }
}

impl Inner {
    /// A database without tables and without a log, as it is while it is being opened: it has no memory limit yet.
    pub(crate) fn new(
        options: Options,
        address_bytes: usize,
        files: Files,
        cold: ColdSide,
        clock: Arc<dyn thermocline_base::clock::Clock>,
    ) -> Self {
        Self {
            options,
            epochs: Arc::new(Epochs::new()),
            // A database that is at its limit, or beyond a lower one, opens all the same, and refuses writers.
            budget: Arc::new(Budget::new(None)),
            address_bytes,
            registry: Registry::new(Timestamp(0)),
            locks: Locks::new(),
            garbage: Garbage::new(),
            undurable: Undurable::new(),
            counters: Counters::new(),
            catalog: Catalog::default(),
            cold,
            paged: PagedSide::default(),
            files,
            timer: Timer::new(Arc::clone(&clock)),
            clock,
            standstill: Standstill::default(),
            redefining: Redefining::default(),
            checkpoints: Checkpoints::default(),
            sessions: Pool::default(),
            governor: Governor::default(),
            warm: Warm::default(),
            closing: Closing::default(),
        }
    }

    /// The maker of forms of its tables.
    pub(crate) fn forms(&self) -> FormMaker<'_> {
        let Self { epochs, budget, address_bytes, catalog, .. } = self;
        FormMaker { epochs, budget, address_bytes: *address_bytes, catalog }
    }

    /// Waits, and counts that unless it is over at once.
    pub(crate) async fn counted<T>(&self, kind: WaitKind, wait: impl Future<Output = T>) -> T {
        let mut wait = std::pin::pin!(wait);
        let mut waited = None;
        std::future::poll_fn(|context| {
            let polled = wait.as_mut().poll(context);
            if polled.is_pending() {
                waited.get_or_insert_with(|| self.counters.waiting(&*self.clock, kind));
            }
            polled
        })
        .await
    }

    /// The memory limit; while the database is being opened, the one that it will have.
    pub(crate) fn memory_limit(&self) -> Option<u64> {
        self.budget.limit().or(self.options.memory_limit)
    }

    /// The log, unless the database keeps none.
    #[inline]
    pub(crate) fn log(&self) -> Option<&Log> {
        self.files.log()
    }

    /// The log, if commits are acknowledged only when it is on disk.
    #[inline]
    pub(crate) fn log_to_wait_for(&self) -> Option<&Log> {
        match self.options.durability {
            Durability::Sync | Durability::Group => self.files.log(),
            Durability::Async | Durability::Off => None,
        }
    }

    /// What a failure of the log means for a user.
    pub(crate) fn log_error(&self, error: &LogError) -> Error {
        match error {
            LogError::DiskFull(_) => Error::DiskFull { directory: self.files.dir().to_owned() },
            LogError::Closed => Error::Closed,
            LogError::Damaged { file, offset, what, .. } => {
                Error::Damaged { file: file.clone(), what: format!("at byte {offset}: {what}") }
            }
            LogError::Missing { dir, .. } => Error::Damaged { file: dir.clone(), what: error.to_string() },
            LogError::Newer { file, version, known } => {
                Error::NewerFormat { file: file.clone(), found: *version, supported: *known }
            }
            LogError::Foreign { file } => {
                Error::Damaged { file: file.clone(), what: "it belongs to another database".to_owned() }
            }
            LogError::FlusherDied => Error::LogFailed { reason: error.to_string() },
            LogError::Failed(io) => Error::LogFailed { reason: io.to_string() },
            LogError::Io(io) => Error::Io(io.clone()),
        }
    }

    /// What a refused reservation means for a user.
    pub(crate) fn reserve_error(&self, error: &ReserveError<'_>) -> Error {
        match error {
            ReserveError::Refused(error) => self.log_error(error),
            ReserveError::TooLarge => Error::InvalidOption {
                option: "log_buffer_bytes",
                reason: "one row does not fit; raise it".to_owned(),
            },
            ReserveError::Full(_) => unreachable!("a full ring is waited for"),
        }
    }

    /// Takes a session out of the pool, or makes one.
    pub(crate) fn take_session(self: &Arc<Self>) -> Result<Box<Session>> {
        if let Some(session) = self.sessions.take() {
            return Ok(session);
        }
        match self.registry.take_place() {
            Some(place) => Ok(Box::new(Session::new(Arc::clone(self), place))),
            // Idle sessions of other threads' shards have places, too.
            None => self.sessions.take_any().ok_or(Error::TooManyTransactions { limit: MAX_TRANSACTIONS }),
        }
    }

    /// Takes a session back into the pool; one that is not kept is returned, for the caller to drop.
    pub(crate) fn give_session(&self, session: Box<Session>) -> Option<Box<Session>> {
        let session = self.sessions.give(session, || self.closing.has_begun())?;
        self.registry.give_place(session.place_index);
        Some(session)
    }
}
