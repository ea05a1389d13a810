//! The façade over atomics, spinning and threads.
//!
//! The lock-free modules use these types only. They are `repr(transparent)` over the ones of `std`, so they may be
//! laid over raw memory. In builds with the feature `model` each operation first offers shuttle a scheduling point, if
//! the calling thread runs under `model`; outside of it, and in every other build, they are the plain operations.
//! Shuttle explores sequentially consistent interleavings; weaker orderings are argued for in the module headers and
//! exercised under the thread sanitizer.

use std::sync::atomic as std_atomic;
pub use std::sync::atomic::Ordering;

/// Offers the model checker to switch threads here. Nothing in other builds.
#[inline(always)]
pub fn schedule_point() {
    #[cfg(feature = "model")]
    model::schedule_point();
}

/// Tells the processor (and the model checker) that this thread is waiting for another one.
#[inline]
pub fn spin_loop() {
    #[cfg(feature = "model")]
    if model::active() {
        shuttle::thread::yield_now();
        return;
    }
    std::hint::spin_loop();
}

/// Spins a little, then gives the processor away: for waits that another thread ends within microseconds.
#[derive(Debug, Default)]
pub struct Backoff(u32);

impl Backoff {
    /// A fresh one.
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// One step of waiting.
    #[inline]
    pub fn wait(&mut self) {
        self.0 += 1;
        #[cfg(feature = "model")]
        if model::active() {
            shuttle::thread::yield_now();
            return;
        }
        if self.0 <= 6 {
            for _ in 0..1 << self.0 {
                std::hint::spin_loop();
            }
        } else {
            std::thread::yield_now();
        }
    }

    /// A step of waiting for something that takes its time. Under the model checker no time passes.
    pub fn sleep(&mut self, pause: std::time::Duration) {
        #[cfg(feature = "model")]
        if model::active() {
            return self.wait();
        }
        std::thread::sleep(pause);
    }
}

/// A memory fence.
#[inline(always)]
pub fn fence(order: Ordering) {
    schedule_point();
    std_atomic::fence(order);
}

/// Writes words which belong to the caller, but which others may look at, knowing that what they see means nothing yet. For
/// the model checker this is no step: whoever acts on such words is wrong at any time.
///
/// # Safety
/// From `at` on, aligned to 8 bytes, there is memory for all of them, which everybody else only reads, as atomics.
#[inline(always)]
pub unsafe fn write_unshared(at: std::ptr::NonNull<u64>, words: impl IntoIterator<Item = u64>) {
    for (number, word) in words.into_iter().enumerate() {
        // SAFETY: as the caller says.
        unsafe { std_atomic::AtomicU64::from_ptr(at.add(number).as_ptr()) }.store(word, Ordering::Relaxed);
    }
}

macro_rules! atomic {
    ($name:ident, $int:ty) => {
        #[doc = concat!("An atomic `", stringify!($int), "` of the façade.")]
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(std_atomic::$name);

        impl $name {
            /// A new one that holds `value`.
            #[must_use]
            pub const fn new(value: $int) -> Self {
                Self(std_atomic::$name::new(value))
            }

            /// As in `std`.
            #[inline(always)]
            pub fn load(&self, order: Ordering) -> $int {
                schedule_point();
                self.0.load(order)
            }

            /// As in `std`.
            #[inline(always)]
            pub fn store(&self, value: $int, order: Ordering) {
                schedule_point();
                self.0.store(value, order);
            }

            /// As in `std`.
            #[inline(always)]
            pub fn swap(&self, value: $int, order: Ordering) -> $int {
                schedule_point();
                self.0.swap(value, order)
            }

            /// As in `std`.
            ///
            /// # Errors
            /// The value that was found, if it was not `current`.
            #[inline(always)]
            pub fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                schedule_point();
                self.0.compare_exchange(current, new, success, failure)
            }

            /// As in `std`.
            ///
            /// # Errors
            /// The value that was found, if it was not `current`, or by chance.
            #[inline(always)]
            pub fn compare_exchange_weak(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                schedule_point();
                self.0.compare_exchange_weak(current, new, success, failure)
            }

            /// The value, without a scheduling point, for the only owner.
            #[inline(always)]
            pub fn get_mut(&mut self) -> &mut $int {
                self.0.get_mut()
            }
        }
    };
}

macro_rules! atomic_arithmetic {
    ($name:ident, $int:ty) => {
        impl $name {
            /// As in `std`.
            #[inline(always)]
            pub fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                schedule_point();
                self.0.fetch_add(value, order)
            }

            /// As in `std`.
            #[inline(always)]
            pub fn fetch_sub(&self, value: $int, order: Ordering) -> $int {
                schedule_point();
                self.0.fetch_sub(value, order)
            }

            /// As in `std`.
            #[inline(always)]
            pub fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                schedule_point();
                self.0.fetch_or(value, order)
            }

            /// As in `std`.
            #[inline(always)]
            pub fn fetch_and(&self, value: $int, order: Ordering) -> $int {
                schedule_point();
                self.0.fetch_and(value, order)
            }

            /// As in `std`.
            #[inline(always)]
            pub fn fetch_max(&self, value: $int, order: Ordering) -> $int {
                schedule_point();
                self.0.fetch_max(value, order)
            }
        }
    };
}

atomic!(AtomicU64, u64);
atomic!(AtomicU32, u32);
atomic!(AtomicU16, u16);
atomic!(AtomicUsize, usize);
atomic!(AtomicBool, bool);
atomic_arithmetic!(AtomicU64, u64);
atomic_arithmetic!(AtomicU32, u32);
atomic_arithmetic!(AtomicU16, u16);
atomic_arithmetic!(AtomicUsize, usize);

/// An atomic pointer of the façade.
#[derive(Debug)]
#[repr(transparent)]
pub struct AtomicPtr<T>(std_atomic::AtomicPtr<T>);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}

impl<T> AtomicPtr<T> {
    /// A new one that holds `value`.
    #[must_use]
    pub const fn new(value: *mut T) -> Self {
        Self(std_atomic::AtomicPtr::new(value))
    }

    /// The pointer, without a scheduling point, for the only owner.
    pub fn get_mut(&mut self) -> &mut *mut T {
        self.0.get_mut()
    }

    /// As in `std`.
    #[inline(always)]
    pub fn load(&self, order: Ordering) -> *mut T {
        schedule_point();
        self.0.load(order)
    }

    /// As in `std`.
    #[inline(always)]
    pub fn store(&self, value: *mut T, order: Ordering) {
        schedule_point();
        self.0.store(value, order);
    }

    /// As in `std`.
    #[inline(always)]
    pub fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
        schedule_point();
        self.0.swap(value, order)
    }

    /// As in `std`.
    ///
    /// # Errors
    /// The pointer that was found, if it was not `current`.
    #[inline(always)]
    pub fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        schedule_point();
        self.0.compare_exchange(current, new, success, failure)
    }
}

/// A mutual exclusion lock over `std`'s, which forgets poisoning (a panic in here is a broken invariant and ends the
/// process or the test) and spins through scheduling points under the model checker.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

/// The guard of a [`Mutex`].
pub type MutexGuard<'a, T> = std::sync::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    /// A new one around `value`.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(feature = "model")]
        if model::active() {
            return model::wait_for(|| self.try_lock());
        }
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// The value, for the only owner.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A lock for many readers or one writer, over `std`'s, as [`Mutex`] is.
#[derive(Debug, Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

/// The guard of a reader of a [`RwLock`].
pub type RwLockReadGuard<'a, T> = std::sync::RwLockReadGuard<'a, T>;
/// The guard of a writer of a [`RwLock`].
pub type RwLockWriteGuard<'a, T> = std::sync::RwLockWriteGuard<'a, T>;

impl<T> RwLock<T> {
    /// A new one around `value`.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }

    /// Waits until no thread writes.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        #[cfg(feature = "model")]
        if model::active() {
            return model::wait_for(|| match self.0.try_read() {
                Ok(guard) => Some(guard),
                Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(std::sync::TryLockError::WouldBlock) => None,
            });
        }
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits until no thread reads or writes.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        #[cfg(feature = "model")]
        if model::active() {
            return model::wait_for(|| match self.0.try_write() {
                Ok(guard) => Some(guard),
                Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(std::sync::TryLockError::WouldBlock) => None,
            });
        }
        self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Threads that wait for news of what a [`Mutex`] guards.
#[derive(Debug, Default)]
pub struct Condvar {
    real: std::sync::Condvar,
    /// Under the model checker: how often it was notified.
    #[cfg(feature = "model")]
    notified: std_atomic::AtomicU64,
}

impl Condvar {
    /// Lets go of the lock until a thread notifies, or for nothing; then takes it again.
    pub fn wait<'a, T>(&self, mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        #[cfg(feature = "model")]
        if model::active() {
            // No other thread has run since the caller looked, so a notification before this counts as missed.
            let before = self.notified.load(Ordering::SeqCst);
            drop(guard);
            model::wait_for(|| (self.notified.load(Ordering::SeqCst) != before).then_some(()));
            return mutex.lock();
        }
        let _ = mutex;
        self.real.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        #[cfg(feature = "model")]
        self.notified.fetch_add(1, Ordering::SeqCst);
        self.real.notify_all();
    }
}

/// Keeps neighbours off a value's cache line (two lines, as the adjacent-line prefetcher pulls pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);

impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A small dense number for the calling thread, given back when the thread ends: the place of the thread in arrays of
/// per-thread state. At most [`MAX_THREADS`] threads have one at a time.
///
/// # Panics
/// When more than [`MAX_THREADS`] threads of one process use Thermocline at the same time.
#[inline]
#[must_use]
pub fn thread_index() -> usize {
    #[cfg(feature = "model")]
    if model::active() {
        return model::thread_index();
    }
    INDEX.with(|index| index.0)
}

/// The most threads of a process that may use Thermocline at the same time.
pub const MAX_THREADS: usize = 1024;

struct ThreadIndex(usize);

static TAKEN: [std_atomic::AtomicU64; MAX_THREADS / 64] =
    [const { std_atomic::AtomicU64::new(0) }; MAX_THREADS / 64];

thread_local! {
    static INDEX: ThreadIndex = ThreadIndex::take();
}

impl ThreadIndex {
    fn take() -> Self {
        for (word_index, word) in TAKEN.iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            while bits != u64::MAX {
                let bit = (!bits).trailing_zeros() as usize;
                match word.compare_exchange(bits, bits | 1 << bit, Ordering::AcqRel, Ordering::Relaxed) {
                    Ok(_) => return Self(word_index * 64 + bit),
                    Err(now) => bits = now,
                }
            }
        }
        panic!("more than {MAX_THREADS} threads of one process use Thermocline at the same time");
    }
}

impl Drop for ThreadIndex {
    fn drop(&mut self) {
        TAKEN[self.0 / 64].fetch_and(!(1 << (self.0 % 64)), Ordering::AcqRel);
    }
}

#[cfg(feature = "model")]
pub mod model {
    //! Running a piece of code under shuttle.

    use std::cell::Cell;
    use std::sync::Arc;

    thread_local! {
        // The whole of a shuttle execution runs on one operating-system thread, as coroutines.
        static ACTIVE: Cell<bool> = const { Cell::new(false) };
    }

    /// Does the calling code run under [`run`]?
    #[must_use]
    pub fn active() -> bool {
        ACTIVE.get() && !std::thread::panicking()
    }

    thread_local! {
        static STEP: Cell<Option<Box<dyn FnMut()>>> = const { Cell::new(None) };
        // Read only, for the scheduling point that shuttle has before a read. One is enough: to make one costs a hash.
        static POINT: shuttle::sync::atomic::AtomicBool = const { shuttle::sync::atomic::AtomicBool::new(false) };
    }

    pub(super) fn schedule_point() {
        if active() {
            let _ = POINT.with(|point| point.load(std::sync::atomic::Ordering::SeqCst));
        } else if let Some(mut step) = STEP.take() {
            // Not for what it does itself.
            step();
            STEP.set(Some(step));
        }
    }

    /// Lets other threads run until `look` finds something.
    pub(super) fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            schedule_point();
            if let Some(found) = look() {
                return found;
            }
            shuttle::thread::yield_now();
        }
    }

    /// Runs `body` on the calling thread, outside of shuttle, and calls `step` before each of its operations on the
    /// façade: what another thread could do in between, at every place where it could. `step` must not need a lock
    /// that `body` may hold.
    pub fn between_steps<T>(step: impl FnMut() + 'static, body: impl FnOnce() -> T) -> T {
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                STEP.set(None);
            }
        }
        STEP.set(Some(Box::new(step)));
        let _reset = Reset;
        body()
    }

    /// The model thread's number (0 for the main one).
    pub(super) fn thread_index() -> usize {
        usize::from(shuttle::current::me())
    }

    /// Room for a thread of the model: the engine's frames are larger than shuttle's default allows for.
    const STACK_BYTES: usize = 1 << 18;

    /// Where the schedules start. The same by default, so that a run can be repeated; `THERMOCLINE_MODEL_SEED` sets
    /// another one, to search further.
    fn seed() -> u64 {
        std::env::var("THERMOCLINE_MODEL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x7e1e)
    }

    /// Runs `body` under `rounds` schedules, random ones for the first half, probabilistic concurrency testing of
    /// depth 3 for the second. Threads of the body are `shuttle::thread`s. The gate searches a third of them.
    pub fn run(rounds: usize, body: impl Fn() + Send + Sync + 'static) {
        search(crate::depth::either(rounds.div_ceil(3), rounds), body);
    }

    fn search(rounds: usize, body: impl Fn() + Send + Sync + 'static) {
        use shuttle::scheduler::{PctScheduler, RandomScheduler};
        let body = Arc::new(body);
        let with_flag = move || {
            ACTIVE.set(true);
            body();
            ACTIVE.set(false);
        };
        let again = with_flag.clone();
        let mut config = shuttle::Config::new();
        config.stack_size = STACK_BYTES;
        let rounds = rounds.div_ceil(2);
        let random = RandomScheduler::new_from_seed(seed(), rounds);
        shuttle::Runner::new(random, config.clone()).run(with_flag);
        let pct = PctScheduler::new_from_seed(seed(), 3, rounds);
        shuttle::Runner::new(pct, config).run(again);
    }

    /// Does some schedule out of `rounds` make `body` panic? For tests of mutations: a rule that is switched off must
    /// be missed.
    #[must_use]
    pub fn finds_failure(rounds: usize, body: impl Fn() + Send + Sync + 'static) -> bool {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| search(rounds, body)));
        ACTIVE.set(false);
        outcome.is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_indices_are_given_back() {
        let here = thread_index();
        let there = std::thread::spawn(thread_index).join().expect("the thread ran");
        assert_ne!(here, there);
        for _ in 0..4 * MAX_THREADS {
            let _ = std::thread::spawn(thread_index).join().expect("an index was free");
        }
    }
}
