//! Pressure on memory, as transactions feel it: the governor that they wait for, their waits, temperatures.
//!
//! The thread that governs ([`crate::governor`]) stands above: it knows the database, what is here does not.

mod room;
mod warmth;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::thread::Thread;

use thermocline_base::clock::Clock;
use thermocline_base::ids::TableId;
use thermocline_base::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};

use self::room::Waiters;
pub(crate) use self::room::{Verdict, take_turn};
pub(crate) use self::warmth::{Hot, Wanted, Warmth};
use crate::error::Error;
use crate::hot::budget::{Budget, OutOfMemory, OutOfMemoryCause};
use crate::hot::life::Prospects;
use crate::hot::reuse::Moment;

/// The state that writers and the governor's thread share.
#[derive(Debug, Default)]
pub(crate) struct Governor {
    there: AtomicBool,
    /// When more is used, no transaction should begin to write. 0: all may.
    brake: AtomicU64,
    /// Now, as what is read is marked with; 0: there is no governor.
    moment: AtomicU32,
    thread: OnceLock<Thread>,
    /// The threads that freeze.
    freezers: Mutex<Vec<Thread>>,
    /// The work that they have done.
    pub(crate) freezer: Done,
    /// Their expectations of the rows of tables; none until they know.
    pub(crate) prospects: Mutex<BTreeMap<TableId, Prospects>>,
    waiters: Mutex<Waiters>,
    /// Rows cannot leave memory, since the disk of the cold store, or of the log, is full.
    disk_is_full: AtomicBool,
    pub(crate) counters: GovernorCounters,
}

/// Counters since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct GovernorCounters {
    /// CPU time of the governor's thread.
    pub(crate) cpu_ns: AtomicU64,
    /// Rounds over the soft mark.
    pub(crate) rounds: AtomicU64,
    /// Snapshots that were cancelled.
    pub(crate) cancelled: AtomicU64,
    /// Waits of operations and beginning transactions for room, and how long the longest of them took.
    pub(crate) waits: AtomicU64,
    pub(crate) longest_wait_ns: AtomicU64,
}

impl GovernorCounters {
    /// Notes a wait for room.
    pub(crate) fn note_wait(&self, ns: u64) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.longest_wait_ns.fetch_max(ns, Ordering::Relaxed);
    }
}

impl Governor {
    /// True if a thread governs, so that waiting makes sense.
    pub(crate) fn is_there(&self) -> bool {
        self.there.load(Ordering::SeqCst)
    }

    /// The error of a transaction that found no room: the disk's fault, if rows cannot leave memory for want of space there.
    pub(crate) fn refusal(&self, directory: &Path, refused: OutOfMemory) -> Error {
        match self.disk_is_full() && refused.cause == OutOfMemoryCause::Limit {
            true => Error::DiskFull { directory: directory.to_owned() },
            false => Error::OutOfMemory(refused),
        }
    }

    /// The calling thread governs from now on, once it has [begun](Self::begin).
    pub(crate) fn bind_thread(&self) {
        let _ = self.thread.set(std::thread::current());
    }

    /// Transactions may wait for the governor from now on.
    pub(crate) fn begin(&self) {
        self.there.store(true, Ordering::SeqCst);
    }

    /// The governor has ended: all waiters are refused.
    pub(crate) fn end(&self) {
        self.brake.store(0, Ordering::Relaxed);
        self.there.store(false, Ordering::SeqCst);
        self.settle_all(Verdict::Refused);
    }

    /// Sets what is taken for now.
    pub(crate) fn set_moment(&self, moment: Moment) {
        self.moment.store(u32::from(moment.0), Ordering::Relaxed);
    }

    /// Sets from how many bytes on no transaction should begin to write; 0: all may.
    pub(crate) fn set_brake(&self, bytes: u64) {
        self.brake.store(bytes, Ordering::Relaxed);
    }

    /// Notes whether rows can leave memory, as far as space on disk is concerned.
    pub(crate) fn set_disk_is_full(&self, is_full: bool) {
        self.disk_is_full.store(is_full, Ordering::Relaxed);
    }

    /// True if rows cannot leave memory for want of space on disk.
    pub(crate) fn disk_is_full(&self) -> bool {
        self.disk_is_full.load(Ordering::Relaxed)
    }

    /// Wakes the threads that freeze.
    pub(crate) fn wake_freezers(&self) {
        self.freezers.lock().iter().for_each(Thread::unpark);
    }

    /// Wakes this thread, too, when memory gets short.
    pub(crate) fn wakes(&self, thread: Thread) {
        self.freezers.lock().push(thread);
    }

    /// The mark of rows that are used now.
    #[inline]
    pub(crate) fn moment(&self) -> Moment {
        Moment(self.moment.load(Ordering::Relaxed) as u8)
    }

    /// True if a transaction that has not written anything yet should wait before it does.
    #[inline]
    pub(crate) fn is_pressing(&self, budget: &Budget) -> bool {
        let brake = self.brake.load(Ordering::Relaxed);
        brake != 0 && budget.used() > brake
    }
}

/// The work of the threads since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Processor time that freezing took, and the rows that were frozen by that.
    pub(crate) freezing_cpu_ns: AtomicU64,
    pub(crate) frozen_rows: AtomicU64,
    /// The same of leaving, letting go in memory included.
    pub(crate) leaving_cpu_ns: AtomicU64,
    /// When a chunk last froze or left for want of memory.
    pub(crate) worked_ns: AtomicU64,
}

/// Has the allocator give back what moves, merges and copies have left in it.
#[derive(Default)]
pub(crate) struct Trimmer {
    ended_ns: u64,
    took_ns: u64,
}

impl Trimmer {
    /// Trims the heap, `pause_ns` after the last time at the earliest, and so that it takes one `share`th of the time.
    pub(crate) fn trim(&mut self, clock: &dyn Clock, pause_ns: u64, share: u64) {
        let began = clock.now_ns();
        if began < self.ended_ns + pause_ns.max(share * self.took_ns) {
            return;
        }
        thermocline_base::vm::trim_heap();
        self.ended_ns = clock.now_ns();
        self.took_ns = self.ended_ns.saturating_sub(began);
    }
}
