//! Epoch-based reclamation: memory that readers may still look at is freed only after they have gone.
//!
//! A reader [pins](Epochs::pin) the current epoch for a short, synchronous step: never across an await, so an idle
//! transaction blocks nothing. The thread that unlinks an object takes a [stamp](Epochs::stamp) *after* the unlinking
//! and frees the object once [`Epochs::safe`] has passed the stamp. Owners of much garbage (version memory) keep
//! their own lists of stamped objects; rare garbage goes through [`Epochs::defer`].
//!
//! # Argument
//! Let a reader hold a pin with epoch `p`, and let an object be stamped `e` after it was unlinked. Freeing needs
//! `e < p` for every pin that the scan sees.
//!
//! 1. The scan sees the pin with `p > e`. The pin's epoch was read from the clock after a thread had advanced it past
//!    `e`, and the stamp read `e` before that advance. Both sides stand behind a sequentially consistent fence (stamp:
//!    unlink, fence, load; pin: load, store, fence), so the unlinking is visible to all that the reader does under
//!    the pin: it cannot reach the object.
//! 2. The scan does not see the pin, because it came later. The pin's store and fence then follow the scan's fence,
//!    which follows the unlinking: the reader cannot reach the object either.
//! 3. The scan sees a pin with `p ≤ e`: the object stays.
//!
//! Limits: [`MAX_THREADS`] threads; a pin is two plain stores and one fence (about 5 ns), a scan touches one cache
//! line for each thread that has ever pinned.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use self::scratch::{Mark, Scratch};

use crate::mutation::{self, Rule};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, CachePadded, MAX_THREADS, Mutex, thread_index};

mod scratch;

/// The epochs of one database.
pub struct Epochs {
    clock: CachePadded<AtomicU64>,
    /// One more than the highest thread index that has ever pinned.
    threads: CachePadded<AtomicUsize>,
    pins: Box<[CachePadded<Pin>]>,
    deferred: Mutex<Vec<Deferred>>,
}

/// A stamp, and the function that runs once it has passed.
type Deferred = (u64, Box<dyn FnOnce() + Send>);

#[derive(Default)]
struct Pin {
    /// 0: not pinned.
    epoch: AtomicU64,
    /// Nesting; touched by its own thread only.
    depth: AtomicU32,
    /// Has something been kept since the outermost pin began? Touched by its own thread only, as the rest.
    has_kept: Cell<bool>,
    scratch: UnsafeCell<Scratch>,
}

// SAFETY: `has_kept` and `scratch` are touched by the thread whose index the pin has, through its guards, which are not
// `Send`; an index passes from a thread that has ended to one that begins, through a lock. `epoch` is an atomic.
unsafe impl Sync for Pin {}

impl std::fmt::Debug for Epochs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epochs").field("clock", &self.clock.0).finish_non_exhaustive()
    }
}

impl Default for Epochs {
    fn default() -> Self {
        Self::new()
    }
}

impl Epochs {
    /// Fresh epochs, without a pin.
    #[must_use]
    pub fn new() -> Self {
        Self {
            clock: CachePadded(AtomicU64::new(1)),
            threads: CachePadded(AtomicUsize::new(0)),
            pins: (0..MAX_THREADS).map(|_| CachePadded::default()).collect(),
            deferred: Mutex::new(Vec::new()),
        }
    }

    /// Keeps everything that can be reached from now on alive until the guard is dropped. Pins nest.
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        let index = thread_index();
        let pin = &self.pins[index];
        let depth = pin.depth.load(Ordering::Relaxed);
        pin.depth.store(depth + 1, Ordering::Relaxed);
        if depth == 0 {
            if index >= self.threads.load(Ordering::Relaxed) {
                self.threads.fetch_max(index + 1, Ordering::SeqCst);
            }
            pin.epoch.swap(self.clock.load(Ordering::Relaxed), Ordering::SeqCst);
            // On x86 the swap is a store and a full fence in one instruction; elsewhere a later load may pass its store.
            #[cfg(not(target_arch = "x86_64"))]
            crate::sync::fence(Ordering::SeqCst);
        }
        Guard { epochs: self, index, not_send: PhantomData }
    }

    /// The stamp for objects that the caller has just unlinked.
    #[inline]
    pub fn stamp(&self) -> u64 {
        crate::sync::fence(Ordering::SeqCst);
        self.clock.load(Ordering::SeqCst)
    }

    /// Advances the clock. No reader can reach an object any more whose stamp is less than the result.
    pub fn safe(&self) -> u64 {
        let mut safe = self.clock.fetch_add(1, Ordering::SeqCst) + 1;
        if mutation::off(Rule::RetireThroughEpoch) {
            return safe;
        }
        crate::sync::fence(Ordering::SeqCst);
        for pin in &self.pins[..self.threads.load(Ordering::SeqCst)] {
            let epoch = pin.epoch.load(Ordering::SeqCst);
            if epoch != 0 {
                safe = safe.min(epoch);
            }
        }
        safe
    }

    /// Runs `free` once no reader can reach any more what the caller has unlinked before. For rare garbage: it boxes.
    pub fn defer(&self, free: impl FnOnce() + Send + 'static) {
        let stamp = self.stamp();
        self.deferred.lock().push((stamp, Box::new(free)));
    }

    /// Runs what was deferred and has become safe. Returns how many are left.
    pub fn collect(&self) -> usize {
        let due: Vec<_> = {
            let Some(mut deferred) = self.deferred.try_lock() else { return 1 };
            if deferred.is_empty() {
                return 0;
            }
            let safe = self.safe();
            deferred.extract_if(.., |(stamp, _)| *stamp < safe).collect()
        };
        for (_, free) in due {
            free();
        }
        self.deferred.lock().len()
    }
}

impl Drop for Epochs {
    fn drop(&mut self) {
        for (_, free) in self.deferred.get_mut().drain(..) {
            free();
        }
    }
}

/// A pin. Not `Send`: it belongs to its thread, and so cannot be held across an await of a `Send` future.
#[derive(Debug)]
pub struct Guard<'a> {
    epochs: &'a Epochs,
    index: usize,
    not_send: PhantomData<*mut ()>,
}

impl Guard<'_> {
    /// The epochs that are pinned.
    #[must_use]
    pub fn epochs(&self) -> &Epochs {
        self.epochs
    }

    /// Memory for a copy that a reader is given: so many words, with arbitrary contents, until the thread's outermost pin
    /// ends, or the [`Frame`] that was begun last.
    #[must_use]
    pub fn keep(&self, words: usize) -> NonNull<u64> {
        let pin = &self.epochs.pins[self.index];
        pin.has_kept.set(true);
        // SAFETY: the thread's own (see `Pin`), and nothing is called while it is borrowed.
        unsafe { &mut *pin.scratch.get() }.take(words)
    }

    /// Begins a frame: what is [kept](Guard::keep) from now on ends with it. For loops over many rows under one pin.
    #[must_use]
    pub fn frame(&self) -> Frame<'_> {
        // SAFETY: as in `keep`.
        let mark = unsafe { &*self.epochs.pins[self.index].scratch.get() }.mark();
        Frame { guard: self, mark }
    }

    #[cold]
    fn let_go(&self) {
        let pin = &self.epochs.pins[self.index];
        pin.has_kept.set(false);
        // SAFETY: as in `keep`.
        unsafe { &mut *pin.scratch.get() }.clear();
    }
}

/// See [`Guard::frame`]. Frames end in the reverse order of their beginnings.
#[derive(Debug)]
pub struct Frame<'g> {
    guard: &'g Guard<'g>,
    mark: Mark,
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        let pin = &self.guard.epochs.pins[self.guard.index];
        // SAFETY: as in `Guard::keep`.
        unsafe { &mut *pin.scratch.get() }.back_to(self.mark);
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        let pin = &self.epochs.pins[self.index];
        let depth = pin.depth.load(Ordering::Relaxed) - 1;
        pin.depth.store(depth, Ordering::Relaxed);
        if depth == 0 {
            if pin.has_kept.get() {
                self.let_go();
            }
            pin.epoch.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_pin_keeps_what_was_stamped_under_it() {
        let epochs = Epochs::new();
        let guard = epochs.pin();
        let stamp = epochs.stamp();
        assert!(epochs.safe() <= stamp);
        drop(guard);
        assert!(epochs.safe() > stamp);
    }

    #[test]
    fn pins_nest() {
        let epochs = Epochs::new();
        let outer = epochs.pin();
        let inner = epochs.pin();
        let stamp = epochs.stamp();
        drop(inner);
        assert!(epochs.safe() <= stamp);
        drop(outer);
        assert!(epochs.safe() > stamp);
    }

    /// Kept words last until the outermost pin ends, or its frame.
    #[test]
    fn copies_last_as_long_as_the_outermost_pin() {
        let epochs = Epochs::new();
        let outer = epochs.pin();
        let first = {
            let inner = epochs.pin();
            let first = inner.keep(2);
            // SAFETY: it has two words.
            unsafe { first.write(7) };
            first
        };
        let in_frame = {
            let _frame = outer.frame();
            outer.keep(1)
        };
        assert_eq!(outer.keep(1), in_frame, "a frame that ends gives back what was kept in it");
        // SAFETY: the outermost pin is still there.
        assert_eq!(unsafe { first.read() }, 7);
        drop(outer);
        let again = epochs.pin();
        assert_eq!(again.keep(2), first, "the next pin begins anew");
    }

    #[test]
    fn deferred_work_runs_once_it_is_safe() {
        let epochs = Epochs::new();
        let ran = Arc::new(AtomicBool::new(false));
        let guard = epochs.pin();
        let flag = Arc::clone(&ran);
        epochs.defer(move || flag.store(true, Ordering::SeqCst));
        assert_eq!(epochs.collect(), 1);
        assert!(!ran.load(Ordering::SeqCst));
        drop(guard);
        assert_eq!(epochs.collect(), 0);
        assert!(ran.load(Ordering::SeqCst));
    }
}

#[cfg(all(test, feature = "model"))]
mod model_tests {
    use super::*;
    use crate::sync::{AtomicPtr, model};
    use std::sync::Arc;

    /// A reader and a writer that replaces a value; "freeing" poisons the old value instead.
    fn replace_under_a_reader() {
        let epochs = Arc::new(Epochs::new());
        let values: Arc<[AtomicU64; 2]> = Arc::new([AtomicU64::new(7), AtomicU64::new(7)]);
        let current = Arc::new(AtomicPtr::new(std::ptr::from_ref(&values[0]).cast_mut()));
        let reader = {
            let (epochs, values, current) = (Arc::clone(&epochs), Arc::clone(&values), Arc::clone(&current));
            shuttle::thread::spawn(move || {
                let _guard = epochs.pin();
                let place = current.load(Ordering::Acquire);
                let index = usize::from(!std::ptr::eq(place, &raw const values[0]));
                assert_eq!(values[index].load(Ordering::Acquire), 7, "a reader met freed memory");
            })
        };
        current.store(std::ptr::from_ref(&values[1]).cast_mut(), Ordering::Release);
        let stamp = epochs.stamp();
        if epochs.safe() > stamp {
            values[0].store(0, Ordering::Release);
        }
        reader.join().expect("the reader");
    }

    #[test]
    fn readers_never_meet_freed_memory() {
        model::run(4000, replace_under_a_reader);
    }

    #[test]
    fn freeing_without_epochs_is_caught() {
        let _off = mutation::switch_off(Rule::RetireThroughEpoch);
        assert!(model::finds_failure(4000, replace_under_a_reader));
    }
}
