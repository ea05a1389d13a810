//! What one open transaction has done so far: tables it uses, writes, reads, scans, locks, savepoints.
//!
//! Sessions are kept and used again, so that a transaction allocates nothing in the steady state.

pub(crate) mod cold_side;
pub(crate) mod db;
pub(crate) mod files;
pub(crate) mod handle;
pub(crate) mod paged_side;
mod pool;
mod redefining;
pub(crate) mod replaced;
pub(crate) mod standstill;
mod wait_limit;
pub(crate) mod warm;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use thermocline_base::ids::{IndexId, Lsn, RowId, TableId, Timestamp, fresh_number};
use thermocline_base::sync::{AtomicBool, Ordering};

use crate::catalog::table::{FormRef, TableEntry, TableForm};
use crate::cold::cache::PrivateCache;
use crate::cold::memo::RecordName;
use crate::error::Result;
use crate::hot::budget::{MemoryKind, OutOfMemory};
use crate::hot::chunk::leave::SlotSet;
use crate::hot::paged::Hand;
use crate::hot::version::{TxnId, Version};
use crate::mutation::{self, Rule};
use crate::options::{Isolation, TransactionOptions};
use crate::pressure::Warmth;
use crate::row::KeyBuf;
use crate::session::db::Inner;
use crate::session::handle::RowHandle;
pub(crate) use crate::session::wait_limit::WaitLimit;
use crate::temperature::Sampler;
use crate::txn::definitions::Definitions;
use crate::txn::locks::{LockKey, LockMode};
use crate::txn::registry::Place;

/// Writes that are looked through for a version, from the last one on, before an index is made.
const WRITES_LOOKED_THROUGH: usize = 32;

/// Memory of a session's lists that is not counted one by one, in bytes. The lists of most transactions fit, and so do those
/// that a session keeps between two: the first step of a transaction is never refused.
const UNCOUNTED_BYTES: usize = 64 << 10;

/// Entries of each list that a session keeps room for between transactions.
const KEPT_ENTRIES: usize = 128;

/// The transaction has not taken its snapshot yet.
pub(crate) const NO_SNAPSHOT: Timestamp = Timestamp(u64::MAX);

/// Tells a transaction from all others of the process: its session, and which of that session's transactions it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Turn {
    session: u64,
    number: u64,
}

/// A table that the transaction uses: its mark is entered, so the form stays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    pub(crate) entry: *const TableEntry,
    pub(crate) form: FormRef,
}

/// A write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) form: FormRef,
    pub(crate) row: RowId,
    /// The version that was written.
    pub(crate) version: Version,
    /// The version that it replaced; `None` for an insert.
    pub(crate) replaced: Option<Version>,
}

/// Rows that leave memory with their chunk: the words of these slots say so.
#[derive(Debug)]
pub(crate) struct ChunkLeaves {
    pub(crate) form: FormRef,
    pub(crate) chunk: u32,
    /// The number of the block whose mark is the transaction's.
    pub(crate) block: u64,
    pub(crate) slots: SlotSet,
    /// What the log says of it.
    pub(crate) record: Vec<u8>,
}

/// Where the writes of versions stand in the list, as far as it was needed: a transaction that comes back to a few
/// recent rows never fills it.
#[derive(Debug, Default)]
pub(crate) struct WriteIndex {
    places: HashMap<u64, usize, BuildHasherDefault<AddressHasher>>,
    /// Writes before this one are in it.
    covered: usize,
}

/// Hashes addresses.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only addresses are hashed");
    }

    fn write_u64(&mut self, address: u64) {
        // The product's upper half is well mixed; the table wants good bits at both ends.
        let product = address.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = product ^ product >> 32;
    }
}

/// A row that was read: validation finds it again and compares its begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) form: FormRef,
    pub(crate) row: RowId,
    pub(crate) begin: Timestamp,
}

/// A row that was read from the cold store: validation asks the memo for its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColdRead {
    pub(crate) form: FormRef,
    pub(crate) name: RecordName,
}

/// A row that moved to the cold store after the snapshot, and was changed there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Followed {
    pub(crate) table: TableId,
    pub(crate) row: RowId,
    pub(crate) name: RecordName,
}

/// A range or key that was read: validation looks for rows that have appeared in it.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub(crate) form: FormRef,
    pub(crate) index: IndexId,
    pub(crate) range: ScanRange,
}

/// What was scanned.
#[derive(Clone, Debug)]
pub(crate) enum ScanRange {
    /// The whole table.
    Table,
    /// One key.
    Key(Box<[u8]>),
    /// A range, as far as it was read.
    Range(std::ops::Bound<Box<[u8]>>, std::ops::Bound<Box<[u8]>>),
}

/// The statement that is open, and what the operation that is under way sees of the transaction's own writes.
///
/// The number of a write is its position in the session's list. A view passes over the writes from its own number on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// Own writes from this one on are passed over. `usize::MAX`: none, no statement is open.
    pub(crate) hidden_from: usize,
    /// Own writes before this one are kept for views that are open; 0: none is.
    pub(crate) floor: usize,
    /// The statement has not taken its snapshot yet.
    pub(crate) fresh: bool,
    /// The statement has looked at rows: what it has seen goes with its snapshot.
    pub(crate) looked: bool,
}

impl Default for View {
    fn default() -> Self {
        Self { hidden_from: usize::MAX, floor: 0, fresh: false, looked: false }
    }
}

impl View {
    /// Is a statement open?
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.hidden_from != usize::MAX
    }

    /// Is one open that has its snapshot?
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.is_open() && !self.fresh && mutation::on(Rule::StatementKeepsSnapshot)
    }
}

/// What a transaction knows of a cursor of its own.
#[derive(Debug)]
pub(crate) struct CursorMark {
    pub(crate) table: TableId,
    /// Own writes from this one on are passed over.
    pub(crate) number: usize,
    /// Its snapshot, and which of the session's that is.
    pub(crate) snapshot: Timestamp,
    pub(crate) snapshots: u64,
    pub(crate) is_open: AtomicBool,
}

/// Whether a transaction can go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Health {
    /// It can.
    Well,
    /// It has failed and can only be rolled back.
    Failed,
}

/// The state of one open transaction.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) db: Arc<Inner>,
    pub(crate) place_index: u32,
    place: *const Place,
    /// Given at the first write or lock.
    pub(crate) id: Option<TxnId>,
    pub(crate) isolation: Isolation,
    pub(crate) read_only: bool,
    pub(crate) wait: bool,
    /// The longest time that an operation waits for other transactions.
    pub(crate) wait_limit: WaitLimit,
    pub(crate) snapshot: Timestamp,
    /// The log's tail when the last snapshot was taken: what a read-only transaction has to see on disk.
    pub(crate) seen: Lsn,
    pub(crate) health: Health,
    /// The log had failed when it took its first snapshot: it watches whether it sees what is not on disk.
    pub(crate) watches: bool,
    /// It has seen, or may have seen, what is not on disk and never will be.
    pub(crate) saw_undurable: bool,
    /// Between begin and the end.
    open: bool,
    turn: Turn,
    /// Its first operation takes the snapshot.
    late: bool,
    /// It has looked at rows: what it has seen goes with its snapshot. Inserting is no looking.
    pub(crate) looked: bool,
    /// Operations that were offered to give way.
    pub(crate) approaches: u8,
    /// Waits for pages since it last read a row, or began an operation.
    pub(crate) page_waits: u8,
    /// Operations that its place had counted when it began.
    begun_at: u32,
    pub(crate) tables: Vec<Touched>,
    pub(crate) writes: Vec<Write>,
    /// A chunk that leaves memory by this transaction, which is the engine's own.
    pub(crate) leaves: Option<Box<ChunkLeaves>>,
    write_index: WriteIndex,
    pub(crate) reads: Vec<Read>,
    pub(crate) scans: Vec<Scan>,
    pub(crate) cold_reads: Vec<ColdRead>,
    pub(crate) cold_cache: PrivateCache,
    /// Rows on the paged side that it has waited for.
    pub(crate) hand: Hand,
    /// Rows that are in memory for the snapshot, and that this transaction has changed where they have gone.
    pub(crate) followed: Vec<Followed>,
    /// The statement has waited for cold data or pages, and goes on under its snapshot.
    pub(crate) resumed: bool,
    /// Locks that were taken or made stronger, with the mode that they had before.
    pub(crate) locks: Vec<(LockKey, FormRef, Option<LockMode>)>,
    /// Writes before this one belong to an earlier savepoint, and must stay as they are.
    pub(crate) savepoint: usize,
    /// The statement that is open, and what the operation that is under way passes over.
    pub(crate) view: View,
    /// Own versions stand below others of the statement that is open.
    pub(crate) kept_own: bool,
    /// Cursors that were opened, some of which may have ended.
    pub(crate) cursors: Vec<Arc<CursorMark>>,
    /// The row that has refused a key last.
    pub(crate) refused_by: Option<RowHandle>,
    /// Snapshots that the session has taken; tells whether a row handle's is still held.
    pub(crate) snapshots: u64,
    /// Numbers of the savepoints that can be gone back to.
    pub(crate) savepoints: Vec<u64>,
    pub(crate) last_savepoint: u64,
    /// Bytes of lists that are charged to the memory limit.
    charged: u64,
    /// When memory for the lists was refused, if it has been refused since.
    refused_ns: Option<u64>,
    /// Samples accesses, once the governor wants to know.
    pub(crate) sampler: Option<Sampler>,
    /// Changes of rows that others made, so far: one of a few is counted.
    changes: u32,
    pub(crate) scratch: Vec<u8>,
    pub(crate) key: KeyBuf,
    /// What it has changed of definitions.
    pub(crate) definitions: Option<Box<Definitions>>,
}

// SAFETY: the raw pointers lead to places and forms that other threads may share (all their fields are synchronized),
// and are kept by the session's own marks wherever the session goes.
unsafe impl Send for Session {}

impl Session {
    /// A row that another transaction committed at `begin` is changed: now and then, what it was like is counted.
    #[inline]
    pub(crate) fn note_change(&mut self, form: &TableForm, row: &[u8], begin: Timestamp) {
        self.changes = self.changes.wrapping_add(1);
        if self.changes.is_multiple_of(crate::hot::life::SAMPLED) {
            let shape = crate::hot::life::shape_of(row, form.shape_mask);
            let state = crate::hot::life::State::of(shape, begin, self.db.registry.clock.now());
            form.counters.changes.note(state);
        }
    }

    /// A session in a fresh place.
    pub(crate) fn new(db: Arc<Inner>, place_index: u32) -> Self {
        let place = std::ptr::from_ref(db.registry.place(place_index));
        Self {
            db,
            place_index,
            place,
            id: None,
            isolation: Isolation::Snapshot,
            read_only: false,
            wait: true,
            wait_limit: WaitLimit::default(),
            snapshot: Timestamp(0),
            seen: Lsn(0),
            health: Health::Well,
            watches: false,
            saw_undurable: false,
            open: false,
            turn: Turn { session: fresh_number(), number: 0 },
            late: false,
            looked: false,
            approaches: 0,
            page_waits: 0,
            begun_at: 0,
            tables: Vec::new(),
            definitions: None,
            writes: Vec::new(),
            leaves: None,
            write_index: WriteIndex::default(),
            reads: Vec::new(),
            scans: Vec::new(),
            cold_reads: Vec::new(),
            cold_cache: PrivateCache::default(),
            hand: Hand::default(),
            followed: Vec::new(),
            resumed: false,
            locks: Vec::new(),
            savepoint: 0,
            view: View::default(),
            kept_own: false,
            cursors: Vec::new(),
            refused_by: None,
            snapshots: 0,
            savepoints: Vec::new(),
            last_savepoint: 0,
            charged: 0,
            refused_ns: None,
            sampler: None,
            changes: 0,
            scratch: Vec::new(),
            key: KeyBuf::new(),
        }
    }

    /// The database, with a lifetime that the session's own `Arc` covers. Cloning that `Arc` for every operation would
    /// have all threads write one counter; borrowing it would keep the session's lists from being changed.
    #[inline]
    pub(crate) fn db<'a>(&self) -> &'a Inner {
        // SAFETY: the session keeps the database alive, and an operation's reference does not outlive the session.
        unsafe { &*Arc::as_ptr(&self.db) }
    }

    /// Begins a transaction.
    ///
    /// `late`: its snapshot is taken by its first operation, which nobody can tell from one at the beginning if the
    /// transaction does nothing else in between; fewer others commit between the snapshot and the first write.
    pub(crate) fn begin(&mut self, options: TransactionOptions, late: bool) {
        self.open = true;
        self.turn.number += 1;
        self.isolation = options.isolation.unwrap_or(self.db.options.isolation);
        self.read_only = options.read_only || self.db.options.read_only;
        self.wait = !options.no_wait;
        self.wait_limit = WaitLimit::default();
        self.snapshot = NO_SNAPSHOT;
        // A commit that failed has left its verdict in a session that may be used again.
        self.health = Health::Well;
        self.late = late;
        if self.sampler.is_none() {
            self.sampler = self.db.warm.get().map(Warmth::sampler);
        }
        (self.watches, self.saw_undurable) = (false, false);
        self.looked = false;
        self.approaches = 0;
        // A fresh transaction is not as idle as the one before it in this place.
        let operations = &self.place().operations;
        self.begun_at = operations.load(Ordering::Relaxed).wrapping_add(1);
        operations.store(self.begun_at, Ordering::Relaxed);
        self.place().cancelled.store(0, Ordering::Relaxed);
        self.place().set_validating(self.validates_scans(), &self.db.registry.clock);
        if !late {
            self.take_snapshot();
        }
    }

    /// What tells the open transaction from all others of the process.
    pub(crate) fn turn(&self) -> Turn {
        self.turn
    }

    /// May it read at a newer snapshot? At read committed always; else as long as it has seen nothing yet.
    pub(crate) fn may_renew_snapshot(&self) -> bool {
        self.isolation == Isolation::ReadCommitted && !self.view.has_begun()
            || self.late && self.place().operations.load(Ordering::Relaxed) == self.begun_at
    }

    /// The operation that is under way is a hint: the transaction has done nothing by it.
    pub(crate) fn note_hint(&mut self) {
        if self.place().operations.load(Ordering::Relaxed) == self.begun_at {
            self.begun_at = self.begun_at.wrapping_add(1);
        }
    }

    /// Gives the snapshot up while the transaction waits, if it can have a newer one then: it has done nothing yet, or it has
    /// inserted and nothing else. At read committed that is asked of the statement alone, whatever came before it.
    pub(crate) fn let_snapshot_go(&mut self) {
        let has_inserted = match self.isolation == Isolation::ReadCommitted && self.view.is_open() {
            true => !self.view.looked,
            false => self.late && !self.looked,
        };
        if self.snapshot != NO_SNAPSHOT
            && (has_inserted || self.writes.is_empty() && self.may_renew_snapshot())
        {
            self.snapshot = NO_SNAPSHOT;
            let place = self.place();
            place.drop_snapshot();
            place.set_validating(self.validates_scans(), &self.db.registry.clock);
        }
    }

    /// Has it begun, and neither committed nor rolled back?
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Its place in the registry.
    #[inline]
    pub(crate) fn place<'a>(&self) -> &'a Place {
        // SAFETY: places live as long as the registry, which the session keeps by its `Arc`; the reference is used
        // while the session lives.
        unsafe { &*self.place }
    }

    /// The transaction's id, given now if it has none.
    pub(crate) fn identify(&mut self) -> TxnId {
        match self.id {
            Some(id) => id,
            None => *self.id.insert(self.place().activate(self.place_index)),
        }
    }

    /// Does it have to remember what it reads?
    #[inline]
    pub(crate) fn validates_reads(&self) -> bool {
        !self.read_only && self.isolation >= Isolation::RepeatableRead
    }

    /// Does it have to remember what it scans?
    #[inline]
    pub(crate) fn validates_scans(&self) -> bool {
        !self.read_only && self.isolation == Isolation::Serializable
    }

    /// Forgets everything, keeping the allocations (within bounds).
    pub(crate) fn reset(&mut self) {
        self.id = None;
        self.seen = Lsn(0);
        self.open = false;
        self.health = Health::Well;
        self.tables.clear();
        self.writes.clear();
        self.leaves = None;
        if self.write_index.covered != 0 {
            self.write_index = WriteIndex::default();
        }
        self.reads.clear();
        self.scans.clear();
        self.cold_reads.clear();
        self.cold_cache.clear();
        self.hand.clear();
        self.followed.clear();
        self.locks.clear();
        self.savepoint = 0;
        self.view = View::default();
        self.kept_own = false;
        self.refused_by = None;
        self.end_cursors(0);
        self.cursors.clear();
        self.savepoints.clear();
        self.last_savepoint = 0;
        self.writes.shrink_to(KEPT_ENTRIES);
        self.reads.shrink_to(KEPT_ENTRIES);
        self.scans.shrink_to(KEPT_ENTRIES);
        self.cold_reads.shrink_to(KEPT_ENTRIES);
        self.followed.shrink_to(KEPT_ENTRIES);
        self.locks.shrink_to(KEPT_ENTRIES);
        if self.charged != 0 {
            self.db.budget.release(MemoryKind::Transactions, std::mem::take(&mut self.charged));
        }
        self.refused_ns = None;
        self.scratch.clear();
        self.scratch.shrink_to(1 << 16);
    }

    /// Bytes of memory that what it remembers takes, about.
    #[inline]
    fn list_bytes(&self) -> usize {
        /// Keys of a range.
        const RANGE_BYTES: usize = 64;
        /// The entry of a lock in the map of locks, with its holders, and its key twice.
        const LOCK_BYTES: usize = 192;
        self.writes.capacity() * size_of::<Write>()
            + self.write_index.places.capacity() * size_of::<(u64, usize)>()
            + self.reads.capacity() * size_of::<Read>()
            + self.scans.capacity() * (size_of::<Scan>() + RANGE_BYTES)
            + self.cold_reads.capacity() * size_of::<ColdRead>()
            + self.followed.capacity() * size_of::<Followed>()
            + self.locks.capacity() * size_of::<(LockKey, FormRef, Option<LockMode>)>()
            + self.locks.len() * LOCK_BYTES
            + self.cold_cache.memory_bytes()
            + self.hand.memory_bytes()
    }

    /// Charges so many bytes for a list that is about to grow by them.
    pub(crate) fn charge_ahead(&mut self, bytes: usize) -> Result<()> {
        let bytes = bytes as u64;
        self.db().budget.charge(MemoryKind::Transactions, bytes)?;
        self.charged += bytes;
        Ok(())
    }

    /// Charges to the memory limit what its lists have grown by, if that is much.
    ///
    /// # Errors
    /// There is no room, with the time (ns) since when there has been none.
    #[inline]
    pub(crate) fn charge_lists(&mut self) -> std::result::Result<(), (OutOfMemory, u64)> {
        let bytes = self.list_bytes() as u64;
        if bytes <= self.charged + UNCOUNTED_BYTES as u64 {
            return Ok(());
        }
        self.charge_up_to(bytes)
    }

    #[cold]
    fn charge_up_to(&mut self, bytes: u64) -> std::result::Result<(), (OutOfMemory, u64)> {
        let db = self.db();
        let charged = db.budget.charge(MemoryKind::Transactions, bytes - self.charged);
        match charged {
            Ok(()) => {
                self.charged = bytes;
                self.refused_ns = None;
                Ok(())
            }
            Err(refused) => Err((refused, *self.refused_ns.get_or_insert_with(|| db.clock.now_ns()))),
        }
    }

    /// Where the write of this version stands in the list, unless a savepoint or a view lies behind it.
    ///
    /// The latest writes are looked through; what lies further back is found by an index, which catches up first.
    pub(crate) fn find_write(&mut self, version: Version) -> Option<usize> {
        let floor = self.floor();
        let recent = self.writes.len().saturating_sub(WRITES_LOOKED_THROUGH).max(floor);
        if let Some(place) = self.writes[recent..].iter().rposition(|write| write.version == version) {
            return Some(recent + place);
        }
        if recent <= floor {
            return None;
        }
        self.index_writes(self.writes.len());
        self.find_indexed(version)
    }

    /// The same among the writes that are in the index.
    pub(crate) fn find_indexed(&self, version: Version) -> Option<usize> {
        let floor = self.floor();
        self.write_index.places.get(&version.address()).copied().filter(|place| *place >= floor)
    }

    /// Writes before this one stay as they are: a savepoint, a statement or a cursor that is open lies behind them.
    #[inline]
    fn floor(&self) -> usize {
        if mutation::off(Rule::OwnVersionOutlivesViews) {
            return self.savepoint;
        }
        let cursors = if self.cursors.is_empty() { 0 } else { self.cursor_floor() };
        self.savepoint.max(self.view.floor).max(cursors)
    }

    /// Enters the writes before `end` into their index.
    pub(crate) fn index_writes(&mut self, end: usize) {
        let WriteIndex { places, covered } = &mut self.write_index;
        for (place, write) in self.writes.iter().enumerate().take(end).skip(*covered) {
            places.insert(write.version.address(), place);
        }
        *covered = end.max(*covered);
    }

    /// Writes that are not in their index.
    pub(crate) fn unindexed_writes(&self) -> usize {
        self.writes.len() - self.write_index.covered
    }

    /// Where the write of this version stands in the list.
    pub(crate) fn position_of(&self, version: Version) -> Option<usize> {
        let WriteIndex { places, covered } = &self.write_index;
        let behind = self.writes[*covered..].iter().rposition(|write| write.version == version);
        behind.map(|place| covered + place).or_else(|| places.get(&version.address()).copied())
    }

    /// Takes the writes from this one on out of their index.
    pub(crate) fn unindex_writes(&mut self, from: usize) {
        let WriteIndex { places, covered } = &mut self.write_index;
        for write in self.writes.get(from..*covered).unwrap_or_default() {
            places.remove(&write.version.address());
        }
        *covered = from.min(*covered);
    }

    /// Lets a write stand for another version of its row.
    pub(crate) fn rewrite(&mut self, place: usize, version: Version) {
        let before = std::mem::replace(&mut self.writes[place].version, version);
        if place < self.write_index.covered {
            self.write_index.places.remove(&before.address());
            self.write_index.places.insert(version.address(), place);
        }
    }

    /// Takes the last write off the list.
    pub(crate) fn pop_write(&mut self) -> Option<Write> {
        let write = self.writes.pop()?;
        if self.write_index.covered > self.writes.len() {
            self.write_index.places.remove(&write.version.address());
            self.write_index.covered = self.writes.len();
        }
        Some(write)
    }
}
