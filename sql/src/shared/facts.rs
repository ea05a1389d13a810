//! A session as its expressions see it.
//!
//! Expressions run without the session, so what they tell it to do is noted here and done when the statement has ended
//! ([`Facts::take_wishes`]): settings of `set_config`, which later expressions of the statement see already. An advisory lock that
//! has to be waited for ends the attempt with [`must_wait`]: the statement is taken back, the session waits, and the
//! statement runs once more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thermocline_engine::Isolation;

use super::Common;
use super::activity::Backend;
use super::advisory::{Lock, SessionNumber};
use super::interrupt::Cause;
use crate::error::{Again, Error, Result};
use crate::settings::{self, Values};

/// A setting that an expression asks for: name, value, whether for the transaction only.
pub(crate) type Wish = (String, String, bool);

#[derive(Debug, Default)]
struct Inner {
    values: Values,
    level: Option<(Isolation, bool)>,
    wishes: Vec<Wish>,
    /// Advisory locks that this attempt of the statement has taken.
    taken: Vec<Lock>,
    waiting: Option<Lock>,
    warnings: Vec<String>,
}

/// The part of a session that its expressions know.
#[derive(Debug)]
pub(crate) struct Facts {
    common: Arc<Common>,
    number: SessionNumber,
    /// Its entry in the list of clients.
    backend: Option<Arc<Backend>>,
    inner: Mutex<Inner>,
    /// It may hold locks of a transaction.
    transaction_locks: AtomicBool,
}

impl Facts {
    /// `number`: what clients know the session by; none: one of its own.
    pub(crate) fn new(common: Arc<Common>, number: Option<i32>) -> Self {
        let number = number.unwrap_or_else(|| common.number());
        let transaction_locks = AtomicBool::new(false);
        Self { common, number, backend: None, inner: Mutex::default(), transaction_locks }
    }

    pub(crate) fn with_backend(mut self, backend: Arc<Backend>) -> Self {
        self.backend = Some(backend);
        self
    }

    pub(crate) fn backend(&self) -> Option<&Arc<Backend>> {
        self.backend.as_ref()
    }

    /// Reaches the session with this number: whether there is one.
    pub(crate) fn raise(&self, number: i32, cause: Cause) -> bool {
        let found = self.common.activity.raise(number, cause);
        if !found {
            self.inner().warnings.push(format!("PID {number} is not a PostgreSQL server process"));
        }
        found
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn common(&self) -> &Arc<Common> {
        &self.common
    }

    pub(crate) fn number(&self) -> SessionNumber {
        self.number
    }

    /// An attempt of a statement begins, with these settings.
    pub(crate) fn begin(&self, values: &Values, level: (Isolation, bool)) {
        let mut inner = self.inner();
        inner.values.clone_from(values);
        inner.level = Some(level);
        inner.wishes.clear();
        inner.taken.clear();
        inner.warnings.clear();
        inner.waiting = None;
    }

    /// The value of a setting.
    pub(crate) fn setting(&self, name: &str) -> Result<String> {
        let inner = self.inner();
        let (isolation, read_only) = inner.level.expect("a statement has begun");
        settings::show(&inner.values, name, isolation, read_only)
    }

    /// Notes a setting; its value as it is shown.
    pub(crate) fn wish(&self, name: &str, value: &str, local: bool) -> Result<String> {
        let (known, shown, _) = settings::checked(name, Some(&[value.to_owned()]))?;
        let mut inner = self.inner();
        inner.values.retain(|(other, _)| *other != known);
        inner.values.push((known, shown.clone()));
        inner.wishes.push((name.to_owned(), value.to_owned(), local));
        Ok(shown)
    }

    /// The wishes of the statement, and its warnings.
    pub(crate) fn take_wishes(&self) -> (Vec<Wish>, Vec<String>) {
        let mut inner = self.inner();
        (std::mem::take(&mut inner.wishes), std::mem::take(&mut inner.warnings))
    }

    pub(crate) fn try_lock(&self, lock: Lock) -> bool {
        let done = self.common.locks.try_lock(self.number, lock);
        if done {
            self.inner().taken.push(lock);
            if lock.transaction {
                self.transaction_locks.store(true, Ordering::Relaxed);
            }
        }
        done
    }

    /// Takes the lock, or ends the attempt.
    pub(crate) fn lock(&self, lock: Lock) -> Result<()> {
        if self.try_lock(lock) {
            return Ok(());
        }
        self.inner().waiting = Some(lock);
        Err(must_wait())
    }

    pub(crate) fn unlock(&self, lock: Lock) -> bool {
        let done = self.common.locks.unlock(self.number, lock);
        if !done {
            let mode = if lock.exclusive { "ExclusiveLock" } else { "ShareLock" };
            self.inner().warnings.push(format!("you don't own a lock of type {mode}"));
        }
        done
    }

    pub(crate) fn unlock_all(&self) {
        self.common.locks.unlock_all(self.number);
    }

    /// The lock that the attempt has ended for; what it had taken is given back.
    pub(crate) fn take_waiting(&self) -> Option<Lock> {
        let mut inner = self.inner();
        let waiting = inner.waiting.take()?;
        std::mem::take(&mut inner.taken).into_iter().for_each(|lock| {
            self.common.locks.unlock(self.number, lock);
        });
        Some(waiting)
    }

    /// No transaction is open: its locks go.
    pub(crate) fn transaction_ended(&self) {
        if self.transaction_locks.load(Ordering::Relaxed) {
            self.transaction_locks.store(false, Ordering::Relaxed);
            self.common.locks.transaction_ended(self.number);
        }
    }
}

impl Drop for Facts {
    fn drop(&mut self) {
        if self.backend.is_some() {
            self.common.activity.leave(self.number);
        }
        self.common.locks.unlock_all(self.number);
        self.common.locks.transaction_ended(self.number);
    }
}

/// The error that ends an attempt which has to wait for an advisory lock.
fn must_wait() -> Error {
    Error::new("55P03", "the advisory lock is held by another session").again_as(Again::Lock)
}

/// Gives a transaction's advisory locks back when it ends.
#[derive(Debug)]
pub(crate) struct TransactionLocks(pub(crate) Arc<Facts>);

impl Drop for TransactionLocks {
    fn drop(&mut self) {
        self.0.transaction_ended();
    }
}

/// A lock that was waited for, and is held until the statement has run again.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) facts: Arc<Facts>,
    pub(crate) lock: Lock,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.facts.common.locks.unlock(self.facts.number, self.lock);
    }
}
