//! The cold store `direct`: the place of a record follows from its key (the direct-mapped file of Eldawy et al., VLDB 2014, §6.1.3).
//!
//! ```text
//!   write(batch) ──► queue ──► the store's thread, a group at a time:
//!                                1. slots of new records  ──► written and synced      (nobody looks at them yet)
//!                                2. decisions             ──► written and synced      (from here on they count)
//!                                3. removed and discarded ──► slots' headers zeroed   (again at the next opening, if need be)
//!                                4. bits of the filter, secondary keys; answers
//!   get(key) ──► segment and slot ──► bit: no │ maybe ──► one read of 4 KiB, past the system's cache
//! ```
//!
//! | file | what |
//! |---|---|
//! | `slots-…` | slots of a table's keys from n × [`DirectOptions::segment_slots`] on; see `slots` |
//! | `direct` | the decisions: which batches count, and what was removed; see `decisions` |
//!
//! Rules:
//! - A record is put into a free slot only: [`StoreError::Occupied`] while its predecessor has not been cleaned. So writing
//!   destroys nothing, and slots whose stamp no decision names are void, whatever a crash left in them. Stamps are never
//!   used again: the next one is above all that are found anywhere.
//! - A slot that was removed is given to another record only after the removal is durable. A crash in between leaves the
//!   old header or the new one, and the decisions know what to do with either.
//! - One thread writes, readers wait for nobody: a block is rewritten with the bytes of its other slots as they are. A reader
//!   that meets a slot in the making finds that the checksum is wrong, and asks the bit again.
//! - Bits are set after the batch is durable and before that is acknowledged; they are cleared after a removal is durable
//!   and before the slot is touched. So what is acknowledged has its bit.
//! - Who wants a block that is being read waits for that read, but not if the block has been written since it began; see `reads`.
//! - A failed sync is final: the store is read-only from then on (`SyncFailureIsFinal`).
//!
//! Limits:
//! - A primary key is one integer (2, 4 or 8 bytes; one length a table), a record with its secondary keys fits into a slot.
//! - Secondary indexes stand in memory, from opening on, and are exact: their entries are written into the slot of the
//!   record that they lead to, in the batch that writes the record. They cost tens of bytes a row.
//! - Opening reads all slot files.
//! - The file of decisions grows by about 4 KiB for each group of batches, until it is replaced; files of slots go when they
//!   are empty, not before: see `space`.

pub(super) mod decisions;
mod open;
mod reads;
mod scan;
mod slots;
mod space;
mod writer;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::future::Future;
use std::ops::Bound;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::{Context, Poll, Waker};

use thermocline_base::ids::TableId;
use thermocline_base::io::{Io, LockGuard};
use thermocline_base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use thermocline_pool::store::{
    Batch, BatchId, Direction, Found, FoundKey, IndexId as StoreIndex, OwnerPosition, StoreEnd, StoreError,
};

use self::decisions::Removed;
use self::reads::Reads;
use self::scan::DirectScan;
use self::slots::{BLOCK, Geometry, Segment, SegmentId};
use self::space::Live;
use super::store::{ColdScan, ColdStore, Pending, Presence, StoreUsage, TableUsage, behind, is_secondary};

/// What a store is opened with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DirectOptions {
    /// The id of the database that the store belongs to.
    pub(crate) database_id: [u8; 16],
    /// Length of a slot: 512, 1024, 2048 or 4096. For a store that is created; one that is there keeps its own.
    pub(crate) slot_bytes: u32,
    /// Slots of a file, a multiple of those of a block. As above.
    pub(crate) segment_slots: u32,
    /// The length from which on the file of decisions is replaced by one with what counts, in bytes.
    pub(crate) decisions_bytes: u64,
    /// With a thread of its own; without one somebody calls [`DirectStore::step`].
    pub(crate) thread: bool,
}

impl DirectOptions {
    /// The usual ones.
    pub(crate) fn new(database_id: [u8; 16]) -> Self {
        Self { database_id, slot_bytes: 512, segment_slots: 1 << 16, decisions_bytes: 16 << 20, thread: true }
    }

    /// The same with files that suit blocks of so many bytes: those of slots as long as eight of them, at most as they are.
    pub(crate) fn for_blocks_of(self, block_bytes: usize) -> Self {
        let per_block = BLOCK as u32 / self.slot_bytes;
        let slots =
            (8 * block_bytes as u64 / u64::from(self.slot_bytes)).min(u64::from(self.segment_slots)) as u32;
        let segment_slots = (slots / per_block).max(1) * per_block;
        let decisions_bytes = self.decisions_bytes.min(4 * block_bytes as u64);
        Self { segment_slots, decisions_bytes, ..self }
    }
}

/// Where a record lies.
#[derive(Clone, Debug)]
struct Place {
    segment: Arc<Segment>,
    slot: u32,
}

/// An unconfirmed batch.
#[derive(Debug)]
struct Waiting {
    stamp: u64,
    places: Vec<Place>,
    tails: Vec<(StoreIndex, Vec<u8>)>,
    removals: Vec<Removed>,
}

/// A table: all its keys have one length.
#[derive(Debug)]
struct Table {
    key_len: u32,
    segments: BTreeMap<u64, Arc<Segment>>,
    /// A slot that cannot be read may have had secondary keys, which nobody knows: then their indexes cannot answer.
    damage: Option<StoreError>,
}

type SecondaryKeys = BTreeMap<Vec<u8>, BatchId>;

/// What was asked for.
#[derive(Debug)]
enum Task {
    Write(Box<Batch>),
    Confirm(BatchId),
    Discard(BatchId),
}

impl Task {
    fn batch(&self) -> BatchId {
        match self {
            Self::Write(batch) => batch.id(),
            Self::Confirm(id) | Self::Discard(id) => *id,
        }
    }
}

#[derive(Debug)]
struct Item {
    task: Task,
    done: Promise<Result<(), StoreError>>,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    /// Batches of which something is in the queue or in the thread's hands, with how much.
    in_flight: HashMap<BatchId, (usize, Promise<()>)>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Counters {
    bytes_written: AtomicU64,
    false_positives: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    io: Arc<dyn Io>,
    dir: PathBuf,
    geometry: Geometry,
    tables: RwLock<BTreeMap<u32, Table>>,
    secondaries: RwLock<BTreeMap<StoreIndex, SecondaryKeys>>,
    waiting: RwLock<BTreeMap<BatchId, Waiting>>,
    /// Removals that are durable as decisions, but could not be written into their slots: by table and key.
    unapplied: RwLock<Vec<Removed>>,
    any_unapplied: AtomicBool,
    /// Files of slots of which no decision tells yet.
    new_files: Mutex<Vec<SegmentId>>,
    /// Files of slots that may have no taken slot any more.
    emptied: Mutex<Vec<Arc<Segment>>>,
    live: Mutex<Live>,
    reads: Reads,
    /// Secondary indexes that are gone.
    dropped: RwLock<BTreeSet<StoreIndex>>,
    presence: Presence,
    queue: Mutex<Queue>,
    /// The store's thread, which sleeps while the queue is empty.
    worker: OnceLock<std::thread::Thread>,
    /// Who works on the queue has it. It is there when the store is open.
    writer: Mutex<Option<writer::Writer>>,
    failure: OnceLock<StoreError>,
    counters: Counters,
    ties: Arc<decisions::Ties>,
    _lock: LockGuard,
}

/// A store of slots.
#[derive(Debug)]
pub(crate) struct DirectStore {
    shared: Arc<Shared>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// The number that a key stands for, and the length of the key.
fn number_of(key: &[u8]) -> Option<(u64, u32)> {
    if !matches!(key.len(), 2 | 4 | 8) {
        return None;
    }
    let number = key.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Some((number, key.len() as u32))
}

impl DirectStore {
    /// Does what is in the queue, for stores without a thread. `false`: nothing was there.
    #[cfg(test)]
    pub(crate) fn step(&self) -> bool {
        self.shared.step()
    }

    fn ask(&self, task: impl FnOnce() -> Task + Send + 'static) -> Pending<'static, ()> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let done = shared.enqueue(task())?;
            done.wait().await
        })
    }
}

impl Shared {
    fn wake(&self) {
        if let Some(worker) = self.worker.get() {
            worker.unpark();
        }
    }

    fn enqueue(&self, task: Task) -> Result<Promise<Result<(), StoreError>>, StoreError> {
        if let Some(failure) = self.failure.get() {
            return Err(StoreError::ReadOnly(Box::new(failure.clone())));
        }
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err(StoreError::Closed);
        }
        queue.in_flight.entry(task.batch()).or_insert_with(|| (0, Promise::new())).0 += 1;
        let done = Promise::new();
        queue.items.push_back(Item { task, done: done.clone() });
        drop(queue);
        self.wake();
        Ok(done)
    }

    /// Where a key's record is, if its segment exists.
    fn place(&self, index: StoreIndex, key: &[u8]) -> Option<Place> {
        let (number, len) = number_of(key)?;
        let slots = u64::from(self.geometry.segment_slots);
        let tables = read(&self.tables);
        let table = tables.get(&index.table).filter(|table| table.key_len == len)?;
        let segment = Arc::clone(table.segments.get(&(number / slots))?);
        Some(Place { segment, slot: (number % slots) as u32 })
    }

    fn is_confirmed(&self, batch: BatchId) -> bool {
        !read(&self.waiting).contains_key(&batch)
    }

    fn is_unapplied(&self, index: StoreIndex, key: &[u8], batch: BatchId) -> bool {
        self.any_unapplied.load(Ordering::Acquire)
            && read(&self.unapplied).iter().any(|of| of.batch == batch && of.index == index && of.key == key)
    }

    /// The record in a block that was read. `None`: there is none any more.
    ///
    /// # Errors
    /// What is wrong with the slot.
    fn record_in(&self, place: &Place, block: &[u8]) -> Result<Option<Found>, &'static str> {
        let (_, at) = self.geometry.place(place.slot);
        match place.segment.decode(place.slot, &block[at..]) {
            Ok(Some(slot)) => {
                let index = StoreIndex { table: place.segment.id.table, index: 0 };
                let Some(record) = slot.record() else { return Ok(None) };
                if self.is_unapplied(index, &place.segment.key(place.slot), slot.batch) {
                    return Ok(None);
                }
                let confirmed = self.is_confirmed(slot.batch);
                Ok(Some(Found::new(slot.batch, confirmed, record.to_vec())))
            }
            Ok(None) => Ok(None),
            Err(broken) => Err(broken.what),
        }
    }

    /// Reads a place.
    async fn look(&self, place: &Place) -> Result<Option<Found>, StoreError> {
        let mut tries = 0;
        while place.segment.is_taken(place.slot) {
            let (block, _) = self.geometry.place(place.slot);
            let bytes = self.reads.read(&place.segment, block).await?;
            // A removal that was acknowledged while the block was on its way has cleared the bit.
            match self.record_in(place, &bytes) {
                Ok(found) if place.segment.is_taken(place.slot) => return Ok(found),
                Ok(_) => break,
                // It may be in the making, then the bit says so, or the next look finds it whole.
                Err(what) if tries == LOOKS_MAX => return Err(place.segment.damaged(place.slot, what)),
                Err(_) => tries += 1,
            }
        }
        Ok(None)
    }

    fn secondary_range(&self, index: StoreIndex, low: &[u8], high: Option<&[u8]>) -> Vec<(Vec<u8>, BatchId)> {
        if high.is_some_and(|high| high <= low) {
            return Vec::new();
        }
        let secondaries = read(&self.secondaries);
        let Some(keys) = secondaries.get(&index) else { return Vec::new() };
        let range = (Bound::Included(low), high.map_or(Bound::Unbounded, Bound::Excluded));
        keys.range::<[u8], _>(range).map(|(key, batch)| (key.clone(), *batch)).collect()
    }

    fn has_secondary(&self, index: StoreIndex, low: &[u8], high: Option<&[u8]>) -> bool {
        if high.is_some_and(|high| high <= low) {
            return false;
        }
        let range = (Bound::Included(low), high.map_or(Bound::Unbounded, Bound::Excluded));
        let there = |keys: &SecondaryKeys| keys.range::<[u8], _>(range).next().is_some();
        read(&self.secondaries).get(&index).is_some_and(there) || self.damage(index).is_some()
    }

    /// Why a secondary index cannot answer.
    fn damage(&self, index: StoreIndex) -> Option<StoreError> {
        read(&self.tables).get(&index.table).and_then(|table| table.damage.clone())
    }

    fn secondary_entry(&self, batch: BatchId) -> Found {
        Found::new(batch, self.is_confirmed(batch), Vec::new())
    }

    fn group(&self, index: StoreIndex, key: &[u8]) -> Result<Vec<FoundKey>, StoreError> {
        if let Some(damage) = self.damage(index) {
            return Err(damage);
        }
        let all = self.secondary_range(index, key, behind(key).as_deref());
        Ok(all
            .into_iter()
            .map(|(key, batch)| FoundKey { key, entries: vec![self.secondary_entry(batch)] })
            .collect())
    }

    /// The taken slots of a range of keys, segment by segment, in order.
    fn slots_between(
        &self,
        index: StoreIndex,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> VecDeque<(Arc<Segment>, std::ops::Range<u32>)> {
        let tables = read(&self.tables);
        let Some(table) = tables.get(&index.table) else { return VecDeque::new() };
        let slots = u64::from(self.geometry.segment_slots);
        let first = least_at(low, table.key_len);
        let Some(first) = first else { return VecDeque::new() };
        // `None`: up to the last key.
        let end = high.and_then(|high| least_at(high, table.key_len));
        let mut all = VecDeque::new();
        for (number, segment) in &table.segments {
            let start = number.saturating_mul(slots);
            let from = first.saturating_sub(start).min(slots) as u32;
            let to = end.map_or(slots, |end| end.saturating_sub(start).min(slots)) as u32;
            if from < to {
                all.push_back((Arc::clone(segment), from..to));
            }
        }
        all
    }
}

/// The least number whose key of `len` bytes is not below some bytes. `None`: there is none.
fn least_at(bytes: &[u8], len: u32) -> Option<u64> {
    let len = len as usize;
    let mut key = [0; 8];
    let taken = bytes.len().min(len);
    key[8 - len..8 - len + taken].copy_from_slice(&bytes[..taken]);
    let number = u64::from_be_bytes(key);
    if bytes.len() <= len {
        return Some(number);
    }
    // Longer bytes are above the key that they begin with.
    let greatest = if len == 8 { u64::MAX } else { (1 << (8 * len)) - 1 };
    (number < greatest).then(|| number + 1)
}

/// Looks at a slot whose checksum is wrong before it is given up.
const LOOKS_MAX: u32 = 8;

impl ColdStore for DirectStore {
    fn write(&self, batch: Batch) -> Pending<'static, ()> {
        self.shared.presence.add_batch(&batch);
        self.ask(move || Task::Write(Box::new(batch)))
    }

    fn confirm(&self, batch: BatchId) -> Pending<'static, ()> {
        self.ask(move || Task::Confirm(batch))
    }

    fn discard(&self, batch: BatchId) -> Pending<'static, ()> {
        self.ask(move || Task::Discard(batch))
    }

    fn quiescent(&self, batch: BatchId) -> Pending<'static, ()> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let promise = shared.queue.lock().in_flight.get(&batch).map(|(_, promise)| promise.clone());
            if let Some(promise) = promise {
                promise.wait().await;
            }
            Ok(())
        })
    }

    fn unconfirmed(&self) -> Vec<BatchId> {
        read(&self.shared.waiting).keys().copied().collect()
    }

    /// Not while the record before has its slot, nor if it is longer than one. (Tables whose keys are none for this store are
    /// refused when their rows are written.)
    fn has_room_for(
        &self,
        index: StoreIndex,
        key: &[u8],
        record_bytes: usize,
        keys: &mut dyn Iterator<Item = &[u8]>,
    ) -> bool {
        let (mut bytes, mut tails) = (record_bytes, 0);
        for key in keys {
            bytes += slots::tail_bytes(key);
            tails += 1;
        }
        let fits = bytes <= self.shared.geometry.body_max() && tails <= slots::TAILS_MAX;
        fits && self.shared.place(index, key).is_none_or(|place| !place.segment.is_taken(place.slot))
    }

    fn may_contain(&self, index: StoreIndex, key: &[u8]) -> bool {
        if is_secondary(index) {
            return self.shared.has_secondary(index, key, Some(&[key, &[0]].concat()));
        }
        self.shared.place(index, key).is_some_and(|place| place.segment.is_taken(place.slot))
    }

    fn may_contain_group(&self, index: StoreIndex, key: &[u8]) -> bool {
        self.shared.has_secondary(index, key, behind(key).as_deref())
    }

    fn may_contain_range(&self, index: StoreIndex, low: &[u8], high: Option<&[u8]>) -> bool {
        if is_secondary(index) {
            return self.shared.has_secondary(index, low, high);
        }
        let mut slots = self.shared.slots_between(index, low, high).into_iter();
        slots.any(|(segment, slots)| segment.next_taken(slots).is_some())
    }

    fn get(&self, index: StoreIndex, key: &[u8]) -> Pending<'static, Vec<Found>> {
        let shared = Arc::clone(&self.shared);
        if is_secondary(index) {
            let found = shared.secondary_range(index, key, Some(&[key, &[0]].concat()));
            let entries = found.iter().map(|(_, batch)| shared.secondary_entry(*batch)).collect();
            return Box::pin(std::future::ready(shared.damage(index).map_or(Ok(entries), Err)));
        }
        let Some(place) = shared.place(index, key) else {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        };
        Box::pin(async move {
            let found = shared.look(&place).await?;
            if found.is_none() {
                shared.counters.false_positives.fetch_add(1, Ordering::Relaxed);
            }
            Ok(found.into_iter().collect())
        })
    }

    fn get_group(&self, index: StoreIndex, key: &[u8]) -> Pending<'static, Vec<FoundKey>> {
        Box::pin(std::future::ready(self.shared.group(index, key)))
    }

    fn scan(
        &self,
        index: StoreIndex,
        low: &[u8],
        high: Option<&[u8]>,
        direction: Direction,
    ) -> Box<dyn ColdScan> {
        Box::new(DirectScan::new(&self.shared, index, low, high, direction))
    }

    fn may_contain_table(&self, table: TableId) -> bool {
        self.shared.presence.may_contain(table)
    }

    fn drop_index(&self, index: StoreIndex) {
        if !is_secondary(index) {
            return self.shared.drop_files(index.table, BatchId(u64::MAX), true);
        }
        // What slots say about it counts as gone when anything is removed from them.
        write(&self.shared.dropped).insert(index);
        write(&self.shared.secondaries).remove(&index);
    }

    /// Whole files only: one in which there is something newer stays until that has gone.
    fn drop_batches(&self, index: StoreIndex, to: BatchId, _now: bool) {
        match is_secondary(index) {
            true => self.shared.drop_entries(index, to),
            false => self.shared.drop_files(index.table, to, false),
        }
    }

    fn retain(&self, is_wanted: &dyn Fn(StoreIndex) -> bool) {
        let mut all: Vec<StoreIndex> = read(&self.shared.secondaries).keys().copied().collect();
        all.extend(read(&self.shared.tables).keys().map(|table| StoreIndex { table: *table, index: 0 }));
        all.into_iter().filter(|index| !is_wanted(*index)).for_each(|index| self.drop_index(index));
    }

    fn end(&self) -> StoreEnd {
        *self.shared.ties.end.lock()
    }

    fn owner_position(&self) -> OwnerPosition {
        *self.shared.ties.position.lock()
    }

    fn usage(&self) -> StoreUsage {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.shared.counters;
        let mut usage = StoreUsage {
            device_reads: self.shared.reads.begun(),
            device_write_bytes: load(&counters.bytes_written),
            false_positives: load(&counters.false_positives),
            ..StoreUsage::default()
        };
        for segment in read(&self.shared.tables).values().flat_map(|table| table.segments.values()) {
            usage.filter_bytes += segment.filter_bytes() as u64;
            usage.disk_bytes += segment.disk_bytes();
            usage.records += segment.record_count();
        }
        let of_keys = |keys: &SecondaryKeys| keys.keys().map(|key| (key.len() + 40) as u64).sum::<u64>();
        usage.fence_bytes = read(&self.shared.secondaries).values().map(of_keys).sum();
        usage
    }

    fn tables(&self) -> BTreeMap<u32, TableUsage> {
        let slot_bytes = u64::from(self.shared.geometry.slot_bytes);
        let of_table = |table: &Table| {
            let segments = || table.segments.values();
            let records = segments().map(|segment| segment.taken_count()).sum();
            TableUsage {
                records,
                bytes: records * slot_bytes,
                filter_bytes: segments().map(|segment| segment.filter_bytes() as u64).sum(),
                // A bit a slot is exact.
                filter_error_rate: 0.0,
            }
        };
        read(&self.shared.tables).iter().map(|(id, table)| (*id, of_table(table))).collect()
    }

    fn step(&self, work: bool) -> bool {
        !work && self.thread.lock().is_none() && self.shared.step()
    }

    fn close(&self) {
        self.shared.queue.lock().closed = true;
        self.shared.wake();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
        while self.shared.step() {}
    }
}

impl Drop for DirectStore {
    fn drop(&mut self) {
        self.close();
    }
}

/// A value that one side gives once and others await.
#[derive(Debug)]
struct Promise<T>(Arc<Mutex<(Option<T>, Vec<Waker>)>>);

impl<T> Clone for Promise<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone> Promise<T> {
    fn new() -> Self {
        Self(Arc::new(Mutex::new((None, Vec::new()))))
    }

    fn keep(&self, value: T) {
        let wakers = {
            let mut state = self.0.lock();
            state.0 = Some(value);
            std::mem::take(&mut state.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn wait(&self) -> Awaited<T> {
        Awaited(self.clone())
    }
}

struct Awaited<T>(Promise<T>);

impl<T: Clone> Future for Awaited<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.0.lock();
        if let Some(value) = &state.0 {
            return Poll::Ready(value.clone());
        }
        if !state.1.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.1.push(cx.waker().clone());
        }
        Poll::Pending
    }
}
