//! The handle of an open database: opening, transactions, closing.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use thermocline_base::clock::SystemClock;
use thermocline_base::ids::Timestamp;
use thermocline_base::io::{Io, LockGuard, MemoryIo, StdIo, SystemIo};
use thermocline_base::sync::Mutex;

use super::{Table, Tables, Transaction};
use crate::counters::WaitKind;
use crate::error::{Error, Result};
use crate::mutation::{self, Rule};
use crate::options::{Durability, IN_MEMORY, Options, TransactionOptions};
use crate::pressure::{Warmth, take_turn};
use crate::session::db::Inner;
use crate::txn::bodies::Running;

/// The work of a background thread.
type Work = Box<dyn FnOnce(&Arc<Inner>) + Send>;

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
        Self::open_with(Path::new(IN_MEMORY), options, Arc::new(MemoryIo::new()), true)
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
    #[cfg(test)]
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
            if inner.options.freeze_threads > 0 {
                start("thermocline-leaver", Box::new(crate::freezer::run_leaving))?;
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
        Transaction::begin(self.inner(), options, false)
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
            let mut transaction = Transaction::begin(self.inner(), options, true)?;
            let place = transaction.driver.place_index();
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
            let mut transaction = Transaction::begin(self.inner(), options, true)?;
            let place = transaction.driver.place_index();
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
        Tables::of(self.inner())
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

    /// Waits until all that is committed now is as durable as acknowledged commits are: with
    /// [`Durability::Async`] and [`Durability::Off`] for nothing. A reader that
    /// tells what it has read before it commits waits so first: a commit is seen by others before it is on disk.
    ///
    /// # Errors
    /// The log has failed.
    pub async fn acknowledged(&self) -> Result<()> {
        let inner = self.inner();
        let Some(log) = inner.log_to_wait_for().filter(|_| mutation::on(Rule::ReadOnlyAckAfterDurable))
        else {
            return Ok(());
        };
        let durable = inner.counted(WaitKind::LogSync, log.wait_durable(log.tail())).await;
        durable.map_err(|error| inner.log_error(&error))
    }

    /// The last timestamp of the serialization order.
    #[doc(hidden)]
    #[must_use]
    pub fn clock(&self) -> Timestamp {
        self.inner().registry.clock.now()
    }
}

/// The future that the body of a [`Database::transaction_boxed`] returns.
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
        if !inner.closing.begin() {
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
        crate::ops::define::free_replaced(inner);
        let outcome = crate::ops::checkpoint::close(inner);
        if let Some(cold) = inner.cold.get() {
            cold.store.close();
        }
        crate::ops::checkpoint::seal(inner);
        inner.sessions.clear();
        // Behind the sessions, so that it has all that they have sampled.
        if let Some(Err(error)) = inner.warm.get().map(Warmth::end_log) {
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
