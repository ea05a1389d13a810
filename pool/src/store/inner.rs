//! The state that the parts of a store share, and how it changes.
//!
//! Lock order: manifest, journal, control, version, queue. The manifest's lock is held while an edit becomes durable and
//! until readers see what it says; control is held for moments, by whoever changes the version.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use thermocline_base::io::LockGuard;
use thermocline_base::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, RwLock, RwLockReadGuard,
};

use super::end::EndKeeper;
use super::error::{Result, StoreError};
use super::filter::Scratch;
use super::journal::{Journal, Record};
use super::manifest::{Bound, Manifest};
use super::memory::MemoryBlock;
use super::object::ObjectWrite;
use super::options::StoreOptions;
use super::piece::{Files, Piece, PieceName};
use super::promise::Promise;
use super::statistics::KnownMemory;
use super::types::BatchId;
use super::version::{Sealed, Version};
use crate::mutation::{self, Rule};

/// No drawn version is less.
const DRAWN_LEAST: u64 = 1 << 32;

/// Something for the journal.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) record: Record,
    pub(super) done: Promise<Result<()>>,
}

/// The records that wait for the journal.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) items: VecDeque<Item>,
    pub(super) bytes: usize,
    /// Batches of which a write or a decision is in the queue or in the journal's hands, with how many.
    pub(super) in_flight: HashMap<BatchId, (usize, Promise<()>)>,
    pub(super) closed: bool,
    /// Batches with objects, which do not go through the journal.
    pub(super) objects: VecDeque<ObjectWrite>,
}

/// The work in the background that is under way.
#[derive(Debug, Default)]
pub(super) struct Control {
    pub(super) flushing: bool,
    /// Wide pieces are being merged, so leaves are not.
    pub(super) narrowing: bool,
    /// Lower bounds of the leaves that are being merged.
    pub(super) merging: BTreeSet<Bound>,
    /// Leaves that cannot be merged, because a page of theirs cannot be read.
    pub(super) broken: BTreeSet<Bound>,
    /// Discarded batches whose pieces the manifest still names.
    pub(super) discarded: Vec<(BatchId, Arc<Piece>)>,
    /// Position up to which blocks are sealed.
    pub(super) sealed_to: u64,
    /// Bytes in the journal when the last block was sealed.
    pub(super) journal_mark: u64,
    /// Work failed, for want of space or because of the device: it is tried again when something has changed.
    pub(super) stuck: bool,
}

/// Counters.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) batches: AtomicU64,
    pub(super) records_in: AtomicU64,
    pub(super) record_bytes_in: AtomicU64,
    pub(super) journal_bytes: AtomicU64,
    pub(super) journal_syncs: AtomicU64,
    pub(super) journal_memory_bytes: AtomicU64,
    pub(super) manifest_bytes: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) merges: AtomicU64,
    pub(super) merged_records: AtomicU64,
    pub(super) gets: AtomicU64,
}

/// A store.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) options: StoreOptions,
    pub(super) dir: PathBuf,
    pub(super) files: Arc<Files>,
    pub(super) version: RwLock<Arc<Version>>,
    pub(super) queue: Mutex<Queue>,
    pub(super) control: Mutex<Control>,
    pub(super) journal: Mutex<Journal>,
    pub(super) keeper: Arc<EndKeeper>,
    pub(super) manifest: Mutex<Manifest>,
    pub(super) next_piece: AtomicU64,
    /// Position up to which everything is in pieces.
    pub(super) flushed: AtomicU64,
    pub(super) journal_segments: AtomicU64,
    /// Set once, by what made the store read-only.
    pub(super) failure: OnceLock<StoreError>,
    /// The disk is full: set by the work that failed, cleared by work that succeeds.
    pub(super) full: Mutex<Option<StoreError>>,
    pub(super) closing: AtomicBool,
    /// Writers that wait for room.
    pub(super) crowd: Mutex<Vec<Waker>>,
    pub(super) queue_signal: Signal,
    pub(super) work_signal: Arc<Signal>,
    pub(super) counters: Counters,
    pub(super) memory_peak: AtomicUsize,
    pub(super) known_memory: Mutex<KnownMemory>,
    /// The entries that merges and flushes leave out.
    pub(super) dropped: RwLock<Dropped>,
    pub(super) lock: Mutex<Option<LockGuard>>,
}

/// Entries that are of no use any more. The writer of a piece takes a copy first, leaves out what that says, and
/// marks the piece with its edition: so a piece that was begun before entries became useless is known, whenever it is
/// finished.
#[derive(Clone, Debug, Default)]
pub(super) struct Dropped {
    /// Number of times that something was added that is to go at once.
    edition: u64,
    indexes: BTreeMap<u64, Useless>,
}

/// Entries of an index that are of no use any more.
#[derive(Clone, Copy, Debug, Default)]
struct Useless {
    /// Those of batches up to this one.
    to: u64,
    /// Pieces that were written without an earlier edition may have some, and are merged to be rid of them.
    edition: u64,
}

impl Dropped {
    pub(super) fn edition(&self) -> u64 {
        self.edition
    }

    /// Is an entry of an index, or a removal of it, of no use any more?
    #[inline]
    pub(super) fn has(&self, index: u64, batch: u64) -> bool {
        !self.indexes.is_empty() && self.indexes.get(&index).is_some_and(|useless| batch <= useless.to)
    }

    /// Is a piece with entries of this index, written without an edition of this, to be merged for them?
    pub(super) fn is_due(&self, index: u64, edition: u64) -> bool {
        !self.indexes.is_empty() && self.indexes.get(&index).is_some_and(|useless| edition < useless.edition)
    }
}

/// Wakes threads. A ring that comes while no thread waits is kept.
#[derive(Debug, Default)]
pub(super) struct Signal {
    rings: Mutex<u64>,
    bell: Condvar,
}

impl Signal {
    pub(super) fn ring(&self) {
        *self.rings.lock() += 1;
        self.bell.notify_all();
    }

    /// The number to pass to [`Signal::wait`]; to be asked before looking for work.
    pub(super) fn heard(&self) -> u64 {
        *self.rings.lock()
    }

    /// Waits for a ring after `heard`.
    pub(super) fn wait(&self, heard: u64) {
        let mut rings = self.rings.lock();
        while *rings == heard {
            rings = self.bell.wait(&self.rings, rings);
        }
    }
}

impl Inner {
    /// The entries of an index are of no use any more.
    pub(super) fn drop_index(&self, index: u64) {
        self.dropped.write().indexes.insert(index, Useless { to: u64::MAX, edition: u64::MAX });
        self.work_signal.ring();
    }

    /// Nor are those of some batches of it. `now`: leaves that may have some are merged for that.
    pub(super) fn drop_batches(&self, index: u64, to: u64, now: bool) {
        let mut dropped = self.dropped.write();
        dropped.edition += u64::from(now);
        let edition = if now { dropped.edition } else { 0 };
        let useless = dropped.indexes.entry(index).or_default();
        *useless = Useless { to: useless.to.max(to), edition: useless.edition.max(edition) };
        drop(dropped);
        self.work_signal.ring();
    }

    /// The entries that are of no use any more.
    pub(super) fn dropped(&self) -> RwLockReadGuard<'_, Dropped> {
        self.dropped.read()
    }

    /// The version that readers see now.
    pub(super) fn current(&self) -> Arc<Version> {
        Arc::clone(&self.version.read())
    }

    /// The current version, and how many batches of its active block are published: both of one moment. A batch that is published
    /// later may say something about one that became confirmed in a later version only.
    pub(super) fn moment(&self) -> (Arc<Version>, usize) {
        // Versions do not change while this is held.
        let version = self.version.read();
        (Arc::clone(&version), version.active.published())
    }

    /// The same for a look that does not wait: a thread that changes the version waits meanwhile.
    #[inline]
    pub(super) fn look(&self) -> RwLockReadGuard<'_, Arc<Version>> {
        self.version.read()
    }

    /// Changes what readers see. The caller holds control's lock.
    pub(super) fn publish(&self, version: Version) {
        self.memory_peak.fetch_max(version.memory_bytes(), Ordering::Relaxed);
        let version = Arc::new(version);
        let former = {
            let mut current = self.version.write();
            std::mem::replace(&mut *current, version)
        };
        // Pieces may go with it, which is no work for readers to wait for.
        drop(former);
    }

    /// The failure that made the store read-only, or that it was closed.
    pub(super) fn writable(&self) -> Result<()> {
        if let Some(failure) = self.failure.get() {
            return Err(StoreError::ReadOnly(Box::new(failure.clone())));
        }
        if self.closing.load(Ordering::Acquire) { Err(StoreError::Closed) } else { Ok(()) }
    }

    /// From now on the store is read-only.
    pub(super) fn fail(&self, error: StoreError) -> StoreError {
        tracing::error!(%error, "the store is read-only from now on");
        let _ = self.failure.set(error.clone());
        self.wake_crowd();
        StoreError::ReadOnly(Box::new(error))
    }

    pub(super) fn wake_crowd(&self) {
        let wakers = std::mem::take(&mut *self.crowd.lock());
        for waker in wakers {
            waker.wake();
        }
    }

    /// Memory for building filters.
    pub(super) fn new_scratch(&self) -> Scratch {
        Scratch::within(self.options.memory_bytes, &self.files.work_bytes)
    }

    pub(super) fn new_block(&self, entries: usize) -> Arc<MemoryBlock> {
        Arc::new(MemoryBlock::new(self.options.memory_bytes, entries))
    }

    /// The name of a piece that is to be written.
    pub(super) fn piece_name(&self) -> PieceName {
        let id = self.next_piece.fetch_add(1, Ordering::Relaxed);
        if mutation::off(Rule::VersionsAreDrawn) {
            return PieceName { id, version: id };
        }
        // Below stand the versions of pieces that were written before versions were drawn.
        let drawn = self.options.page_versions.draw_u64();
        PieceName { id, version: if drawn < DRAWN_LEAST { drawn | 1 << 63 } else { drawn } }
    }

    /// Seals the active block, whose last position is `to`. The caller holds control's lock; everything up to `to` is
    /// durable in the journal.
    pub(super) fn seal(&self, control: &mut Control, to: u64, entries: usize) {
        let version = self.current();
        let mut version = Version::clone(&version);
        let block = std::mem::replace(&mut version.active, self.new_block(entries));
        version.sealed.insert(0, Sealed::Block { block, from: control.sealed_to + 1, to });
        control.sealed_to = to;
        control.stuck = false;
        self.publish(version);
        self.work_signal.ring();
    }
}
