//! A database: what all its transactions share, and the handles that users hold.
//!
//! [`Database`](crate::Database) is a cheap handle. The last one that goes closes the database: background threads end, the log is
//! flushed, and transactions that are still open can only be rolled back.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use thermocline_base::epoch::Epochs;
use thermocline_base::ids::Lsn;
use thermocline_base::io::Io;
use thermocline_base::sync::{AtomicBool, AtomicU64, CachePadded, Mutex, Ordering, thread_index};
use thermocline_base::timer::Timer;
use thermocline_pool::store::StoreEnd;

use crate::api::transaction::Transaction;
use crate::catalog::Catalog;
use crate::catalog::make::FormMaker;
use crate::checkpoint::Checkpoints;
use crate::checkpoint::Ends;
use crate::cold::Cold;
use crate::cold::memo::Memo;
use crate::cold::store::ColdStore;
use crate::counters::{Counters, WaitKind};
use crate::error::{Error, Result};
use crate::hot::budget::Budget;
use crate::hot::paged::Paged;
use crate::log::error::LogError;
use crate::log::{Log, ReserveError};
use crate::options::{Durability, Isolation, Options, TransactionOptions};
use crate::pressure::{Governor, Warmth};
use crate::session::Session;
use crate::session::replaced::Replaced;
use crate::txn::locks::Locks;
use crate::txn::prune::Garbage;
use crate::txn::registry::{MAX_TRANSACTIONS, Registry};
use crate::txn::undurable::Undurable;

const POOL_SHARDS: usize = 64;

type Pool = Box<[CachePadded<Mutex<Vec<Box<Session>>>>]>;

/// A pool without sessions.
pub(crate) fn empty_pool() -> Pool {
    (0..POOL_SHARDS).map(|_| CachePadded::default()).collect()
}

/// What all transactions of a database share.
pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) budget: Arc<Budget>,
    /// Address space that each memory of a table or index reserves.
    pub(crate) address_bytes: usize,
    pub(crate) registry: Registry,
    pub(crate) locks: Locks,
    pub(crate) garbage: Garbage,
    pub(crate) undurable: Undurable,
    pub(crate) counters: Counters,
    pub(crate) catalog: Catalog,
    /// Made when the first row leaves memory, or when it is found at the start.
    pub(crate) memo: OnceLock<Memo>,
    /// As `memo`.
    pub(crate) cold: OnceLock<Cold>,
    /// Made when the first row goes over to it.
    pub(crate) paged: OnceLock<Arc<Paged>>,
    /// Is any table paged? As of a moment ago.
    pub(crate) has_paged_tables: AtomicBool,
    /// Held by who makes it.
    pub(crate) paged_opening: Mutex<()>,
    /// Rows that came back from it since their readers wanted them in memory.
    pub(crate) came_back: AtomicU64,
    pub(crate) log: Option<Log>,
    /// Remembers the ends of log and cold store; none while nothing is written.
    pub(crate) ends: Option<Arc<Ends>>,
    /// Up to where the cold store had been durable, as was found when the database was opened.
    pub(crate) store_least: StoreEnd,
    /// Where the log ended when the database was opened.
    pub(crate) log_end: Lsn,
    pub(crate) io: Arc<dyn Io>,
    /// That of the cold store: workers wait for its reads, so they must not happen on the calling thread.
    pub(crate) cold_io: Arc<dyn Io>,
    /// The id that all files of the database carry.
    pub(crate) database: [u8; 16],
    pub(crate) clock: Arc<dyn thermocline_base::clock::Clock>,
    pub(crate) dir: PathBuf,
    /// Where the cold store lies.
    pub(crate) cold_dir: PathBuf,
    /// Stores that backups are being written to.
    pub(crate) copies: Mutex<Vec<Arc<dyn ColdStore>>>,
    /// Held by who moves things about: maintenance, checkpoints, whoever goes over all rows for a change of definitions.
    pub(crate) maintenance: Mutex<()>,
    /// Forms that transactions may follow though they must not, while a rule is switched off: kept as long as the database.
    #[cfg(feature = "model")]
    #[expect(clippy::vec_box, reason = "they are followed where they are")]
    pub(crate) misused: Mutex<Vec<Box<crate::catalog::table::TableForm>>>,
    /// Held by who commits a change of definitions, and by who looks which have been committed by when.
    pub(crate) definition: Mutex<()>,
    /// A remain of a changed definition that is to be freed.
    pub(crate) replaced: Mutex<Vec<Replaced>>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) sessions: Pool,
    pub(crate) governor: Governor,
    /// Made when memory begins to be short.
    pub(crate) warmth: OnceLock<Warmth>,
    pub(crate) closed: AtomicBool,
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
        f.debug_struct("Database").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Inner {
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
        self.log.as_ref()
    }

    /// The log, if commits are acknowledged only when it is on disk.
    #[inline]
    pub(crate) fn log_to_wait_for(&self) -> Option<&Log> {
        match self.options.durability {
            Durability::Sync | Durability::Group => self.log.as_ref(),
            Durability::Async | Durability::Off => None,
        }
    }

    /// What a failure of the log means for a user.
    pub(crate) fn log_error(&self, error: &LogError) -> Error {
        match error {
            LogError::DiskFull(_) => Error::DiskFull { directory: self.dir.clone() },
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
    fn take_session(self: &Arc<Self>) -> Result<Box<Session>> {
        if let Some(session) = self.sessions[thread_index() % POOL_SHARDS].lock().pop() {
            return Ok(session);
        }
        let place = self.registry.take_place().ok_or(Error::TooManyTransactions { limit: MAX_TRANSACTIONS });
        let place = match place {
            Ok(place) => place,
            // Idle sessions of other threads' shards have places, too.
            Err(error) => {
                return self.sessions.iter().find_map(|shard| shard.lock().pop()).ok_or(error);
            }
        };
        Ok(Box::new(Session::new(Arc::clone(self), place)))
    }

    /// Takes a session back into the pool; one that is not kept is returned, for the caller to drop.
    pub(crate) fn give_session(&self, session: Box<Session>) -> Option<Box<Session>> {
        const KEEP: usize = 256;
        let mut pool = self.sessions[thread_index() % POOL_SHARDS].lock();
        // Who closes the database empties the pools after setting the flag, each under its lock.
        if pool.len() < KEEP && !self.closed.load(Ordering::Acquire) {
            pool.push(session);
            return None;
        }
        drop(pool);
        self.registry.give_place(session.place_index);
        Some(session)
    }

    /// Begins a transaction of the engine's own. Its snapshot is that of its first read.
    pub(crate) fn begin_internal(self: &Arc<Self>) -> Result<Transaction> {
        self.begin(TransactionOptions::new().isolation(Isolation::Snapshot), true)
    }

    /// Begins a transaction.
    pub(crate) fn begin(self: &Arc<Self>, options: TransactionOptions, late: bool) -> Result<Transaction> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        let mut session = self.take_session()?;
        session.begin(options, late);
        Ok(Transaction::start(session))
    }
}
