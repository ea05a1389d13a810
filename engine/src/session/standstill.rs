//! The two switches of a database: rows stand still, and the database is closed.

use thermocline_base::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

/// Keeps rows where they are: chunks are packed, imaged, frozen and swapped by one thread at a time.
#[derive(Default)]
pub(crate) struct Standstill(Mutex<()>);

/// The right to move rows, and the promise that no other thread does.
pub(crate) type Standing<'a> = MutexGuard<'a, ()>;

impl Standstill {
    /// Waits until no other thread moves rows.
    pub(crate) fn enter(&self) -> Standing<'_> {
        self.0.lock()
    }
}

/// Tells all threads of a database that it is being closed.
#[derive(Default)]
pub(crate) struct Closing(AtomicBool);

impl Closing {
    /// True once the database is being closed.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Begins to close the database. `false`: that has begun already.
    pub(crate) fn begin(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }
}
