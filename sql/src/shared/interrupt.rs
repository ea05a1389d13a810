//! The end of a statement that another thread asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::error::{Error, Result};

/// Ends the statement that runs in a session, from any thread: a number that the executor looks at with each row it reads.
///
/// Once the statement's commit is decided it can no longer be ended: it happens, and the answer says so.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Asked>);

#[derive(Debug, Default)]
struct Asked {
    cause: AtomicU8,
    decided: AtomicBool,
}

/// Why a statement is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// The user asked for it.
    Cancelled = 1,
    /// It took longer than `statement_timeout`.
    TimedOut = 2,
    /// The server ends.
    Shutdown = 3,
}

impl Cause {
    /// The error that the statement ends with.
    #[must_use]
    pub fn error(self) -> Error {
        match self {
            Self::Cancelled => Error::new("57014", "canceling statement due to user request"),
            Self::TimedOut => Error::new("57014", "canceling statement due to statement timeout"),
            Self::Shutdown => Error::new("57P01", "terminating connection due to administrator command"),
        }
    }
}

impl Interrupt {
    /// Asks the statement that runs to end.
    pub fn raise(&self, cause: Cause) {
        self.0.cause.store(cause as u8, Ordering::Relaxed);
    }

    /// Forgets what was asked for: another statement begins.
    pub fn clear(&self) {
        self.0.cause.store(0, Ordering::Relaxed);
        self.0.decided.store(false, Ordering::Relaxed);
    }

    /// The statement's commit can no longer be taken back.
    pub(crate) fn decide(&self) {
        self.0.decided.store(true, Ordering::Relaxed);
    }

    /// True once the statement's commit is decided. It only waits for the disk then, and is to be waited for.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        self.0.decided.load(Ordering::Relaxed)
    }

    /// The cause that was asked for.
    #[must_use]
    #[inline]
    pub fn raised(&self) -> Option<Cause> {
        match self.0.cause.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Cause::Cancelled),
            2 => Some(Cause::TimedOut),
            _ => Some(Cause::Shutdown),
        }
    }

    /// Is the statement to go on?
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.raised().map_or(Ok(()), |cause| Err(cause.error()))
    }
}
