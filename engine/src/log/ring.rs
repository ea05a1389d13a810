//! The log's memory: many threads append, one flusher reads.
//!
//! Position `p` of the log is byte `p % capacity`. A thread reserves `[head, head + span)` by moving the head, fills
//! it, and completes it. Three marks move only forward:
//!
//! ```text
//!   written ≤ filled ≤ head ≤ min(written + capacity, space_end)
//! ```
//!
//! `written`: the flusher has handed everything before it to the file. `filled`: everything before it is completely
//! there. `space_end`: files up to there are preallocated, so what is in the ring has its place on disk.
//!
//! # Argument
//! *Who may touch which byte.* Bytes in `[written, head)` belong to the reservation that covers them until it is
//! completed, then to the flusher until `written` has passed them. A thread reserves a byte again only after it has
//! loaded (acquire) a `written` that the flusher stored (release) after its last read of that byte.
//!
//! *`filled` never passes a reservation that is not completed.* A thread publishes the head that it is about to move
//! in its own slot, then moves it by a compare-and-swap (release) from that same value: while it fills, its slot holds
//! exactly its start. [`Ring::filled`] loads the head first (acquire), then the slots. Let a reservation start below
//! the head that was loaded. Its compare-and-swap precedes that head in the head's modification order, so it and the
//! slot's store before it happen before the load of the slot. The slot is then seen with the start, or with something
//! that the same thread stored later, after completing: and since each of those stores is a release, the filled bytes
//! are visible with it. A slot seen with a head whose compare-and-swap failed only makes `filled` smaller.
//!
//! A thread has one reservation at a time and keeps it in a synchronous stretch: `filled` stands still meanwhile.

use std::ptr::NonNull;

use thermocline_base::sync::{
    AtomicU64, AtomicUsize, CachePadded, MAX_THREADS, Ordering, schedule_point, thread_index,
};

use crate::mutation::{self, Rule};

/// In a slot: the thread has no reservation.
const NONE: u64 = u64::MAX;

/// The ring. See the module.
pub(super) struct Ring {
    memory: NonNull<u8>,
    capacity: u64,
    head: CachePadded<AtomicU64>,
    bounds: CachePadded<Bounds>,
    /// One more than the highest thread index that has ever reserved.
    threads: CachePadded<AtomicUsize>,
    in_flight: Box<[CachePadded<AtomicU64>]>,
}

/// What the flusher moves.
struct Bounds {
    written: AtomicU64,
    durable: AtomicU64,
    space_end: AtomicU64,
}

// SAFETY: the memory is owned by the ring, and the protocol of the module gives every byte one user at a time.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

/// Why there is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoPlace {
    /// The ring is full until `written` has passed this.
    Ring(u64),
    /// No file is there yet for the bytes.
    Space,
}

/// A place in the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) start: u64,
    pub(super) span: u64,
    /// What was durable when it was taken.
    pub(super) durable: u64,
    slot: usize,
}

impl Ring {
    /// A ring for the log from `start` on. Memory is taken from the system as it is used first.
    pub(super) fn new(capacity: u64, start: u64) -> Self {
        assert!(capacity.is_power_of_two() && capacity >= 64, "the ring's size is a power of two");
        let layout = Self::layout(capacity);
        // SAFETY: the layout has a size.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        let memory = NonNull::new(memory).unwrap_or_else(|| std::alloc::handle_alloc_error(layout));
        Self {
            memory,
            capacity,
            head: CachePadded(AtomicU64::new(start)),
            bounds: CachePadded(Bounds {
                written: AtomicU64::new(start),
                durable: AtomicU64::new(start),
                space_end: AtomicU64::new(start),
            }),
            threads: CachePadded(AtomicUsize::new(0)),
            in_flight: (0..MAX_THREADS).map(|_| CachePadded(AtomicU64::new(NONE))).collect(),
        }
    }

    fn layout(capacity: u64) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(capacity as usize, 4096).expect("a ring fits into memory")
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    pub(super) fn written(&self) -> u64 {
        self.bounds.written.load(Ordering::Acquire)
    }

    /// How many bytes are reserved or filled, and not yet written; at least as many as at the time of the call.
    pub(super) fn unwritten(&self) -> u64 {
        // In this order: whoever else flushes between the two moves `written` beyond a head that was loaded before.
        let written = self.written();
        self.head() - written
    }

    #[inline]
    pub(super) fn durable(&self) -> u64 {
        self.bounds.durable.load(Ordering::Acquire)
    }

    pub(super) fn space_end(&self) -> u64 {
        self.bounds.space_end.load(Ordering::Acquire)
    }

    /// The flusher has read everything before `to`.
    pub(super) fn set_written(&self, to: u64) {
        self.bounds.written.store(to, Ordering::Release);
    }

    /// Everything before `to` is on the device.
    pub(super) fn set_durable(&self, to: u64) {
        // Sequentially consistent with the registration of waiters, see `wait`.
        self.bounds.durable.store(to, Ordering::SeqCst);
    }

    /// There are files up to `to`.
    pub(super) fn set_space_end(&self, to: u64) {
        self.bounds.space_end.store(to, Ordering::SeqCst);
    }

    /// Takes `span` bytes at the head. Never waits.
    #[inline]
    pub(super) fn reserve(&self, span: u64) -> Result<Place, NoPlace> {
        let index = thread_index();
        if index >= self.threads.load(Ordering::Relaxed) {
            self.threads.fetch_max(index + 1, Ordering::SeqCst);
        }
        let slot = &self.in_flight[index];
        assert_eq!(slot.load(Ordering::Relaxed), NONE, "a thread has one reservation at a time");
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            slot.store(head, Ordering::Release);
            let end = head + span;
            let written = self.bounds.written.load(Ordering::Acquire);
            let refusal = if end > written + self.capacity {
                Some(NoPlace::Ring(end - self.capacity))
            } else if end > self.bounds.space_end.load(Ordering::Acquire) {
                Some(NoPlace::Space)
            } else {
                None
            };
            if let Some(refusal) = refusal {
                slot.store(NONE, Ordering::Release);
                return Err(refusal);
            }
            match self.head.compare_exchange(head, end, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(start) => {
                    schedule_point();
                    let durable = self.bounds.durable.load(Ordering::Relaxed);
                    return Ok(Place { start, span, durable, slot: index });
                }
                Err(now) => head = now,
            }
        }
    }

    /// Copies `bytes` to `offset` of a place.
    #[inline]
    pub(super) fn fill(&self, place: &Place, offset: u64, bytes: &[u8]) {
        let len = bytes.len() as u64;
        assert!(offset + len <= place.span, "a reservation is not overrun");
        let at = (place.start + offset) & (self.capacity - 1);
        let first = len.min(self.capacity - at) as usize;
        // SAFETY: both pieces lie in the ring, and the place is this thread's alone until it is completed.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.as_ptr().add(at as usize), first);
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr().add(first),
                self.memory.as_ptr(),
                bytes.len() - first,
            );
        }
    }

    /// What stands at `offset` of a place, in one or two pieces.
    pub(super) fn filled_with<'a>(&'a self, place: &'a Place, offset: u64, len: u64) -> [&'a [u8]; 2] {
        assert!(offset + len <= place.span, "a reservation is not overrun");
        // SAFETY: the place is this thread's alone until it is completed, and its owner only reads meanwhile.
        unsafe { self.pieces(place.start + offset, len) }
    }

    /// The place is completely filled; the flusher may have it.
    #[inline]
    pub(super) fn complete(&self, place: &Place) {
        let slot = &self.in_flight[place.slot];
        debug_assert_eq!(slot.load(Ordering::Relaxed), place.start, "a slot holds its reservation's start");
        slot.store(NONE, Ordering::Release);
    }

    /// Everything before this is completely there.
    pub(super) fn filled(&self) -> u64 {
        let mut filled = self.head.load(Ordering::SeqCst);
        if mutation::off(Rule::LogWritesFilledPrefix) {
            return filled;
        }
        for slot in &self.in_flight[..self.threads.load(Ordering::SeqCst)] {
            filled = filled.min(slot.load(Ordering::Acquire));
        }
        filled
    }

    /// The bytes from `start` on, in one or two pieces.
    ///
    /// # Safety
    /// They must be the caller's to read: filled and not yet written, or the caller's own reservation.
    pub(super) unsafe fn pieces(&self, start: u64, len: u64) -> [&[u8]; 2] {
        let at = start & (self.capacity - 1);
        let first = len.min(self.capacity - at);
        // SAFETY: both pieces lie in the ring; nobody writes them, as the caller vouches.
        unsafe {
            [
                std::slice::from_raw_parts(self.memory.as_ptr().add(at as usize), first as usize),
                std::slice::from_raw_parts(self.memory.as_ptr(), (len - first) as usize),
            ]
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and nobody has a place any more, since places borrow the log.
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), Self::layout(self.capacity)) };
    }
}
