//! The two switches of a database: rows stand still, and the database is closed.

use thermocline_base::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

/// Keeps rows where they are: chunks are packed, imaged, frozen and swapped by one thread at a time.
///
/// Threads take turns. A checkpoint enters again as soon as it has left, chunk by chunk, for seconds; with the lock alone it would
/// be first each time, and threads that freeze chunks or clear away what has left would wait for its end. So a thread that
/// waits for the lock holds the turnstile, and the checkpoint waits behind it.
#[derive(Default)]
pub(crate) struct Standstill {
    turnstile: Mutex<()>,
    lock: Mutex<()>,
}

/// The right to move rows, and the promise that no other thread does.
pub(crate) type Standing<'a> = MutexGuard<'a, ()>;

impl Standstill {
    /// Waits until no other thread moves rows.
    pub(crate) fn enter(&self) -> Standing<'_> {
        let _turn = self.turnstile.lock();
        self.lock.lock()
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

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    /// A thread that leaves and enters again at once comes after the one that has waited meanwhile.
    #[test]
    fn a_thread_that_comes_back_waits_behind_the_one_that_waits() {
        let standstill = Standstill::default();
        let has_entered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let first = standstill.enter();
            scope.spawn(|| {
                let _standing = standstill.enter();
                has_entered.store(true, Ordering::SeqCst);
            });
            while standstill.turnstile.try_lock().is_some() {
                std::thread::yield_now();
            }
            drop(first);
            let _again = standstill.enter();
            assert!(has_entered.load(Ordering::SeqCst), "it came in between");
        });
    }
}
