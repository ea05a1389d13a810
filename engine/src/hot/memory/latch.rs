//! A spin latch for per-shard state: nearly always free, and its cache line already with the thread that takes it.
//!
//! One atomic exchange to take it and a plain store to leave it, half the price of a mutex. Who waits yields the
//! processor after some microseconds, so an owner that the scheduler has put aside can go on.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use thermocline_base::sync::{AtomicU32, Backoff, Ordering};

pub(super) struct Latch<T> {
    taken: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and one guard exists at a time.
unsafe impl<T: Send> Sync for Latch<T> {}

impl<T> Latch<T> {
    pub(super) const fn new(value: T) -> Self {
        Self { taken: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(super) fn lock(&self) -> LatchGuard<'_, T> {
        if self.taken.swap(1, Ordering::Acquire) != 0 {
            self.wait();
        }
        LatchGuard(self)
    }

    #[cold]
    fn wait(&self) {
        let mut backoff = Backoff::new();
        while self.taken.load(Ordering::Relaxed) != 0 || self.taken.swap(1, Ordering::Acquire) != 0 {
            backoff.wait();
        }
    }
}

pub(super) struct LatchGuard<'a, T>(&'a Latch<T>);

impl<T> Deref for LatchGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only one.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for LatchGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the only one.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for LatchGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.taken.store(0, Ordering::Release);
    }
}
