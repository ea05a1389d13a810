//! A database: what all its transactions share, and the handles that users hold.
//!
//! [`Database`] is a cheap handle. The last one that goes closes the database: background threads end, the log is
//! flushed, and transactions that are still open can only be rolled back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use serde::Serialize;
use thermocline_base::clock::SystemClock;
use thermocline_base::epoch::Epochs;
use thermocline_base::ids::{IndexId, Lsn, Timestamp};
use thermocline_base::io::{Io, LockGuard, MemoryIo, StdIo, SystemIo};
use thermocline_base::sync::{AtomicBool, AtomicU64, CachePadded, Mutex, Ordering, thread_index};
use thermocline_base::timer::Timer;
use thermocline_pool::store::StoreEnd;

use crate::catalog::Catalog;
use crate::catalog::make::FormMaker;
use crate::catalog::table::{FormRef, TableEntry, TableForm};
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
use crate::ops::checkpoint::Checkpoints;
use crate::ops::define::Replaced;
use crate::options::{Durability, Isolation, Options, TransactionOptions};
use crate::pressure::{Governor, Warmth, take_turn};
use crate::row::{EncodedRow, KeyBuf, Layout, RowError, Type, Value};
use crate::schema::TableSchema;
use crate::session::Session;
use crate::transaction::Transaction;
use crate::txn::bodies::Running;
use crate::txn::definitions::Names;
use crate::txn::locks::Locks;
use crate::txn::prune::Garbage;
use crate::txn::registry::{MAX_TRANSACTIONS, Registry};
use crate::txn::undurable::Undurable;

const POOL_SHARDS: usize = 64;

/// What a background thread does.
type Work = Box<dyn FnOnce(&Arc<Inner>) + Send>;

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
    pub(crate) misused: Mutex<Vec<Box<TableForm>>>,
    /// Held by who commits a change of definitions, and by who looks which have been committed by when.
    pub(crate) definition: Mutex<()>,
    /// What changes of definitions have left to be freed.
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
    /// What makes forms of its tables.
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

/// A handle to an open database. Cloning it is cheap; the last one that is dropped closes the database.
#[derive(Clone, Debug)]
pub struct Database {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    lock: Mutex<Option<LockGuard>>,
}

impl Database {
    /// Opens the database in this directory, or creates one if the directory is empty or missing.
    ///
    /// # Errors
    /// The directory cannot be used, belongs to something else, is open in another process, or holds damaged or newer
    /// files; options that make no sense.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_over(path.as_ref(), options, (Arc::new(StdIo), Arc::new(SystemIo::new())), true)
    }

    /// Opens a database that lives in memory only, and is gone when it is closed.
    ///
    /// # Errors
    /// Options that make no sense.
    pub fn open_in_memory(options: Options) -> Result<Self> {
        let options = Options { durability: Durability::Off, ..options };
        Self::open_with(Path::new(crate::options::IN_MEMORY), options, Arc::new(MemoryIo::new()), true)
    }

    /// Opens a database over any [`Io`], with or without background threads (tests drive the steps themselves).
    ///
    /// # Errors
    /// As [`Database::open`].
    #[doc(hidden)]
    pub fn open_with(path: &Path, options: Options, io: Arc<dyn Io>, background: bool) -> Result<Self> {
        let cold_io = Arc::clone(&io);
        Self::open_over(path, options, (io, cold_io), background)
    }

    /// As [`Database::open`], with the cold store reached in another way: through a device that is emulated.
    ///
    /// # Errors
    /// As [`Database::open`].
    #[doc(hidden)]
    pub fn open_with_cold(path: &Path, options: Options, cold_io: Arc<dyn Io>) -> Result<Self> {
        Self::open_over(path, options, (Arc::new(StdIo), cold_io), true)
    }

    /// The same without threads, and with a clock that a test moves.
    #[cfg(all(test, feature = "model"))]
    pub(crate) fn open_by(
        clock: Arc<dyn thermocline_base::clock::Clock>,
        options: Options,
        io: Arc<dyn Io>,
    ) -> Result<Self> {
        options.check()?;
        let io = (Arc::clone(&io), io);
        let (inner, lock) = crate::ops::recover::open(Path::new("/memory"), options, io, clock)?;
        Ok(Self {
            handle: Arc::new(Handle { inner, threads: Mutex::new(Vec::new()), lock: Mutex::new(lock) }),
        })
    }

    /// Opens a database over one [`Io`] for log and checkpoints, whose threads may block, and one for the cold store.
    fn open_over(
        path: &Path,
        options: Options,
        io: (Arc<dyn Io>, Arc<dyn Io>),
        background: bool,
    ) -> Result<Self> {
        options.check()?;
        let (inner, lock) = crate::ops::recover::open(path, options, io, Arc::new(SystemClock))?;
        let database = Self {
            handle: Arc::new(Handle { inner, threads: Mutex::new(Vec::new()), lock: Mutex::new(lock) }),
        };
        if background {
            database.start_threads()?;
        }
        Ok(database)
    }

    fn start_threads(&self) -> Result<()> {
        let inner = &self.handle.inner;
        if let Some(log) = inner.log() {
            log.start_flusher().map_err(|error| Error::Refused(format!("no thread for the log: {error}")))?;
        }
        let mut threads = self.handle.threads.lock();
        let mut start = |name: &str, work: Work| {
            let inner = Arc::clone(inner);
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || work(&inner))
                .map(|thread| threads.push(thread))
                .map_err(|error| Error::Refused(format!("no thread for {name}: {error}")))
        };
        start("thermocline-maintenance", Box::new(|inner| crate::ops::maintain::run(inner)))?;
        if inner.checkpoints.are_kept() && !inner.options.read_only {
            start("thermocline-checkpoint", Box::new(|inner| crate::ops::checkpoint::run(inner)))?;
        }
        if crate::ops::memory::is_wanted(inner) {
            start("thermocline-governor", Box::new(crate::governor::run))?;
        }
        if !inner.options.read_only {
            for number in 0..u32::try_from(inner.options.freeze_threads).unwrap_or(u32::MAX) {
                start("thermocline-freezer", Box::new(move |inner| crate::freezer::run(inner, number)))?;
            }
        }
        Ok(())
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.handle.inner
    }

    /// Closes the database: waits for background work, flushes the log, and leaves a checkpoint if nothing was logged.
    ///
    /// Open transactions are not waited for; they can only be rolled back afterwards. Dropping the last handle does
    /// the same, but cannot tell of an error.
    ///
    /// # Errors
    /// The log could not be flushed.
    pub fn close(self) -> Result<()> {
        self.handle.shut_down()
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// Too many are open, or the database is closed.
    pub fn begin(&self, options: TransactionOptions) -> Result<Transaction> {
        self.inner().begin(options, false)
    }

    /// Runs `body` in a transaction and commits it; runs it again when it could not be serialized (at most
    /// [`Options::retries`] times, with growing pauses). An error of `body` rolls back.
    ///
    /// # Errors
    /// What `body` or the commit returned last.
    pub async fn transaction<T>(
        &self,
        options: TransactionOptions,
        mut body: impl AsyncFnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let mut attempt = 0;
        loop {
            self.before_begin(options).await;
            let mut transaction = self.inner().begin(options, true)?;
            let place = transaction.place_index();
            let outcome = {
                let body = std::pin::pin!(body(&mut transaction));
                Running { registry: &self.inner().registry, place, body }.await
            };
            if let Some(outcome) = self.conclude(transaction, outcome, &mut attempt).await {
                return outcome;
            }
        }
    }

    /// As [`Database::transaction`], for tasks of a runtime that moves them between threads (`tokio::spawn`): the
    /// compiler cannot prove yet that an `async` closure's future is `Send` for every lifetime of its argument, so this
    /// one takes a boxed future.
    ///
    /// ```
    /// # use thermocline_engine::{Database, Options, TransactionOptions};
    /// # async fn example(db: Database) -> thermocline_engine::Result<()> {
    /// db.transaction_boxed(TransactionOptions::new(), |tx| Box::pin(async move {
    ///     let savepoint = tx.savepoint()?;
    ///     tx.rollback_to(&savepoint)
    /// }))
    /// .await
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `body` or the commit returned last.
    pub async fn transaction_boxed<T: Send>(
        &self,
        options: TransactionOptions,
        mut body: impl for<'t> FnMut(&'t mut Transaction) -> BodyFuture<'t, T> + Send,
    ) -> Result<T> {
        let mut attempt = 0;
        loop {
            self.before_begin(options).await;
            let mut transaction = self.inner().begin(options, true)?;
            let place = transaction.place_index();
            let outcome = {
                let body = std::pin::pin!(body(&mut transaction));
                Running { registry: &self.inner().registry, place, body }.await
            };
            if let Some(outcome) = self.conclude(transaction, outcome, &mut attempt).await {
                return outcome;
            }
        }
    }

    /// A transaction that may write waits while memory is short, before it keeps anything there.
    #[inline]
    async fn before_begin(&self, options: TransactionOptions) {
        let inner = self.inner();
        if !options.read_only && inner.governor.is_pressing(&inner.budget) {
            inner
                .counted(WaitKind::Memory, take_turn(&inner.governor, &inner.budget, &*inner.clock, None))
                .await;
        }
    }

    /// Ends one attempt at a transaction; `None`: it is to be run again.
    async fn conclude<T>(
        &self,
        transaction: Transaction,
        outcome: Result<T>,
        attempt: &mut u32,
    ) -> Option<Result<T>> {
        let outcome = match outcome {
            Ok(value) => transaction.commit().await.map(|()| value),
            Err(error) => {
                drop(transaction);
                Err(error)
            }
        };
        match outcome {
            Err(error) if error.is_retryable() && *attempt < self.inner().options.retries => {
                *attempt += 1;
                pause(*attempt).await;
                None
            }
            outcome => Some(outcome),
        }
    }

    /// As [`Database::transaction`], blocking the calling thread.
    ///
    /// A body may run other transactions, of which it sees what they commit only if its level lets it. One that needs what the
    /// outer one holds (a changed or locked row, a unique key) fails with [`Error::WaitsForItself`]: it could wait for ever.
    ///
    /// # Errors
    /// What `body` or the commit returned last.
    pub fn run<T>(
        &self,
        options: TransactionOptions,
        body: impl AsyncFnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        thermocline_base::multiplex::block_on(self.transaction(options, body))
    }

    /// The table with this name.
    ///
    /// # Errors
    /// There is none.
    pub fn table(&self, name: &str) -> Result<Table> {
        self.tables().table(name)
    }

    /// True if there is a table with this name.
    #[must_use]
    pub fn has_table(&self, name: &str) -> bool {
        self.inner().catalog.by_name(name).is_some()
    }

    /// The tables as everybody has them.
    #[must_use]
    pub fn tables(&self) -> Tables {
        Tables { db: Arc::clone(self.inner()), names: None, definitions: 0 }
    }

    /// Names of all tables, ordered.
    #[must_use]
    pub fn table_names(&self) -> Vec<String> {
        self.inner().catalog.names()
    }

    /// Waits until everything committed so far is on disk, whatever the durability setting.
    ///
    /// # Errors
    /// The log has failed.
    pub fn flush(&self) -> Result<()> {
        let inner = self.inner();
        let Some(log) = inner.log() else { return Ok(()) };
        thermocline_base::multiplex::block_on(log.wait_durable(log.tail()))
            .map_err(|error| inner.log_error(&error))
    }

    /// The last timestamp of the serialization order.
    #[doc(hidden)]
    #[must_use]
    pub fn clock(&self) -> Timestamp {
        self.inner().registry.clock.now()
    }
}

/// What the body of a [`Database::transaction_boxed`] returns.
pub type BodyFuture<'t, T> = std::pin::Pin<Box<dyn Future<Output = Result<T>> + Send + 't>>;

/// The pause before a transaction is run again: others have a turn, more of them each time.
async fn pause(attempt: u32) {
    for _ in 0..1_u32 << attempt.min(6) {
        thermocline_base::multiplex::yield_now().await;
    }
}

impl Handle {
    fn shut_down(&self) -> Result<()> {
        let inner = &self.inner;
        if inner.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let mut threads = self.threads.lock();
        for thread in threads.drain(..) {
            thread.thread().unpark();
            if let Err(panic) = thread.join()
                && !std::thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
        inner.free_replaced();
        let outcome = crate::ops::checkpoint::close(inner);
        if let Some(cold) = inner.cold.get() {
            cold.store.close();
        }
        crate::ops::checkpoint::seal(inner);
        for shard in &inner.sessions {
            shard.lock().clear();
        }
        // Behind the sessions, so that it has all that they have sampled.
        if let Some(Err(error)) = inner.warmth.get().map(Warmth::end_log) {
            tracing::warn!(%error, "the access log was not written to its end");
        }
        self.lock.lock().take();
        outcome
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Err(error) = self.shut_down() {
            tracing::error!(%error, "the database was not closed cleanly");
        }
    }
}

/// The tables that there are: as everybody has them ([`Database::tables`]), or as a transaction has them that has changed definitions
/// ([`Transaction::tables`]). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tables {
    db: Arc<Inner>,
    /// What the transaction calls otherwise.
    names: Option<Arc<Names>>,
    definitions: u64,
}

impl Tables {
    /// The table with this name.
    ///
    /// # Errors
    /// There is none.
    pub fn table(&self, name: &str) -> Result<Table> {
        let found = match &self.names {
            Some(names) => names.find(&self.db.catalog, name),
            None => self.db.catalog.by_name(name),
        };
        let entry = found.ok_or_else(|| Error::UnknownTable { name: name.to_owned() })?;
        Ok(Table { db: Arc::clone(&self.db), entry, definitions: self.definitions })
    }

    /// Names of all tables, ordered.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        match &self.names {
            Some(names) => names.all(&self.db.catalog),
            None => self.db.catalog.names(),
        }
    }
}

impl Session {
    /// The tables as the transaction has them.
    pub(crate) fn own_tables(&self) -> Tables {
        let own = self.definitions.as_ref();
        Tables {
            db: Arc::clone(&self.db),
            names: own.map(|definitions| Arc::clone(&definitions.names)),
            definitions: own.map_or(0, |definitions| definitions.number),
        }
    }
}

/// A handle to a table. Stays valid when the table's definition changes. Operations with it fail once the table is dropped
/// ([`Error::TableDropped`], even if another one has its name by now), and in transactions of another database or of
/// another opening of the same one ([`Error::ForeignHandle`]).
#[derive(Clone, Debug)]
pub struct Table {
    pub(crate) db: Arc<Inner>,
    pub(crate) entry: Arc<TableEntry>,
    /// Those of the transaction that the handle is of, as long as that is open; 0: it is of none.
    pub(crate) definitions: u64,
}

impl Table {
    pub(crate) fn with_form<R>(&self, see: impl FnOnce(&TableForm) -> R) -> R {
        let guard = self.db.epochs.pin();
        see(self.entry.form_for(self.definitions, &guard))
    }

    /// The same table, as everybody has it.
    pub(crate) fn everybodys(self) -> Self {
        Self { definitions: 0, ..self }
    }

    /// Its present name.
    #[must_use]
    pub fn name(&self) -> String {
        self.with_form(|form| form.schema.name.clone())
    }

    /// Its present definition.
    #[must_use]
    pub fn schema(&self) -> TableSchema {
        self.with_form(|form| form.schema.clone())
    }

    /// A number that changes with each change of the table's definition, and is cheap to read: whoever has compiled something
    /// for the table reads it first, and compares it when the program runs. A change that was refused may change it, too; numbers
    /// of different tables ([`Table::number`] tells them apart), and of different openings of the database, say nothing of each
    /// other.
    ///
    /// ```
    /// use thermocline_engine::row::{Column, Type};
    /// use thermocline_engine::{Database, IndexSchema, Options, TableSchema};
    ///
    /// # fn main() -> thermocline_engine::Result<()> {
    /// let db = Database::open_in_memory(Options::default())?;
    /// let numbers = db.create_table(TableSchema::new("numbers").column(Column::new("number", Type::Int8)))?;
    /// let compiled_at = numbers.definition();
    /// assert_eq!(numbers.definition(), compiled_at);
    /// db.create_index("numbers", IndexSchema::ordered("by_number", &["number"]))?;
    /// assert_ne!(numbers.definition(), compiled_at);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn definition(&self) -> u64 {
        self.entry.definition()
    }

    /// A number that no other table of this opening of the database has or has had: it tells a table from one that gets its
    /// name later. Together with [`Table::definition`] it says what a compiled program stands on.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.entry.id.0
    }

    /// The layout of its rows.
    #[must_use]
    pub fn layout(&self) -> Arc<Layout> {
        self.with_form(|form| Arc::clone(&form.layout))
    }

    /// The primary key's index; in a table without one, the index of the hidden key.
    #[must_use]
    pub fn primary(&self) -> Index {
        let id = self.with_form(|form| form.primary().id);
        self.index_of(id)
    }

    fn index_of(&self, id: IndexId) -> Index {
        let (db, entry, definitions) = (Arc::clone(&self.db), Arc::clone(&self.entry), self.definitions);
        Index { db, entry, id, definitions }
    }

    /// The index with this name.
    ///
    /// # Errors
    /// There is none.
    pub fn index(&self, name: &str) -> Result<Index> {
        let id = self.with_form(|form| {
            form.indexes.iter().find(|index| index.schema.name == name).map(|index| index.id).ok_or_else(
                || Error::UnknownIndex { table: form.schema.name.clone(), index: name.to_owned() },
            )
        })?;
        Ok(self.index_of(id))
    }

    /// Encodes a row from values, one for each column; nulls become defaults and auto-increment numbers where the
    /// column has them. Returns the auto-increment number.
    ///
    /// # Errors
    /// Values that do not fit.
    pub fn encode_values(&self, values: &[Value], out: &mut EncodedRow) -> Result<Option<i64>> {
        self.with_form(|form| {
            let mut number = None;
            let columns = form.layout.columns();
            let filled: Vec<Value> = values
                .iter()
                .enumerate()
                .map(|(position, value)| match (value, columns.get(position)) {
                    (Value::Null, Some(column)) if column.auto_increment => {
                        let next = form.counters.auto.fetch_add(1, Ordering::Relaxed) + 1;
                        let next = i64::try_from(next).unwrap_or(i64::MAX);
                        number = Some(next);
                        integer_of(column.ty, next)
                    }
                    (Value::Null, Some(column)) => column.default.clone().unwrap_or(Value::Null),
                    (value, Some(column)) if column.auto_increment => {
                        form.note_auto(value);
                        value.clone()
                    }
                    (value, _) => value.clone(),
                })
                .collect();
            form.layout
                .encode_row(&filled, out)
                .map_err(|source| Error::Row { table: form.schema.name.clone(), source })?;
            Ok(number)
        })
    }

    /// Encodes a row from anything that serde can serialize as a struct or map of columns.
    ///
    /// # Errors
    /// Values that do not fit.
    pub fn encode_from<T: Serialize + ?Sized>(&self, row: &T, out: &mut EncodedRow) -> Result<Option<i64>> {
        let values = self
            .with_form(|form| crate::row::to_values(&form.layout, row))
            .map_err(|source| self.error(source))?;
        self.encode_values(&values, out)
    }

    /// An error about a row of this table, for closures that edit rows.
    #[must_use]
    pub fn error(&self, source: RowError) -> Error {
        Error::Row { table: self.name(), source }
    }

    /// The primary key of an encoded row.
    ///
    /// # Errors
    /// The row does not fit the table, or the key is hidden.
    pub fn primary_key_of(&self, row: &[u8], key: &mut KeyBuf) -> Result<()> {
        self.with_form(|form| {
            let table = || form.schema.name.clone();
            form.layout.check(row).map_err(|source| Error::Row { table: table(), source: source.unfit() })?;
            if form.hidden_key() {
                return Err(Error::UnknownIndex { table: table(), index: "primary key".to_owned() });
            }
            form.primary().key_of_row(row, &[], key);
            key.check_len().map_err(|source| Error::Row { table: table(), source })
        })
    }
}

/// A handle to an index; what [`Table`] says of handles holds for it, too.
#[derive(Clone, Debug)]
pub struct Index {
    pub(crate) db: Arc<Inner>,
    pub(crate) entry: Arc<TableEntry>,
    pub(crate) id: IndexId,
    /// As those of [`Table`].
    pub(crate) definitions: u64,
}

impl Index {
    /// The same index, as everybody has it.
    pub(crate) fn everybodys(self) -> Self {
        Self { definitions: 0, ..self }
    }

    /// The form of its table, inside of what an operation of a transaction shows rows to.
    #[inline]
    pub(crate) fn form_in_use(&self) -> &TableForm {
        // The operation has entered its transaction's mark for the table, which keeps the form until that ends.
        FormRef::own(self.entry.form_in_use()).get()
    }

    /// Its table.
    #[must_use]
    pub fn table(&self) -> Table {
        Table { db: Arc::clone(&self.db), entry: Arc::clone(&self.entry), definitions: self.definitions }
    }

    /// Its name; empty once it was dropped.
    #[must_use]
    pub fn name(&self) -> String {
        self.table()
            .with_form(|form| form.index(self.id).map(|index| index.schema.name.clone()).unwrap_or_default())
    }

    /// The key of an encoded row in this index.
    ///
    /// # Errors
    /// The index was dropped, or the row does not fit the table.
    pub fn key_of(&self, row: &[u8], key: &mut KeyBuf) -> Result<()> {
        self.table().with_form(|form| {
            let table = || form.schema.name.clone();
            let index = Session::index_of(form, self.id)?;
            form.layout.check(row).map_err(|source| Error::Row { table: table(), source: source.unfit() })?;
            index.key_of_row(row, &[], key);
            key.check_len().map_err(|source| Error::Row { table: table(), source })
        })
    }

    /// The key made of these values, or a prefix of it.
    ///
    /// # Errors
    /// Values of other types than the columns'.
    pub fn key_of_values(&self, values: &[Value]) -> Result<KeyBuf> {
        self.table().with_form(|form| {
            let index = Session::index_of(form, self.id)?;
            match &index.key {
                crate::catalog::table::KeySource::Columns(spec) => spec
                    .encode_values(values)
                    .map_err(|source| Error::Row { table: form.schema.name.clone(), source }),
                crate::catalog::table::KeySource::Hidden => Err(Error::UnknownIndex {
                    table: form.schema.name.clone(),
                    index: "with columns (its key is hidden)".to_owned(),
                }),
            }
        })
    }
}

/// A number as a value of an integer type; out of range it becomes what the type refuses.
fn integer_of(ty: Type, number: i64) -> Value {
    match ty {
        Type::Int2 => i16::try_from(number).map_or(Value::Int8(number), Value::Int2),
        Type::Int4 => i32::try_from(number).map_or(Value::Int8(number), Value::Int4),
        _ => Value::Int8(number),
    }
}
