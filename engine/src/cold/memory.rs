//! The cold store `memory`: records in memory, to measure the machinery alone. Nothing waits, and nothing outlives it.
//!
//! ```text
//!   (index, key) ── hash ──► shard ──► slots of the hash: batch, record                primary indexes
//!                              │
//!                              └─ access filter of the shard (see `filter`)
//!   index ──► ordered map: key ──► batches                                           all indexes, for scans and groups
//! ```
//!
//! Rules:
//! - Batches are written, confirmed and discarded one at a time (`writing`), so a batch's state changes as a whole;
//!   readers meet its entries one by one, as they do before any write is acknowledged.
//! - An unconfirmed batch is known as such before its first entry can be found, and until its last one is gone.
//! - An entry is in its shard first, then in the filter, then acknowledged.
//! - Locks: writing → a shard → the map of indexes → an index's map; a shard → its filter, for looks; the unconfirmed batches' lock is taken under any of
//!   them, and none under it. All are held for moments: no lock waits for anything but memory.
//!
//! Its filters deny primary keys. Groups of secondary indexes are denied by the ordered map itself, which is exact.

use std::collections::BTreeMap;
use std::future::ready;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use thermocline_base::ids::TableId;
use thermocline_base::sync::{AtomicU64, AtomicUsize, CachePadded, Mutex, Ordering};
use thermocline_pool::store::{
    Batch, BatchId, Change, Direction, Found, FoundKey, IndexId as StoreIndex, StoreError,
};

use super::filter::{Filters, PART_BITS, PARTS, hash_of, part_of};
use super::store::{ColdScan, ColdStore, Entries, Look, Pending, Presence, StoreUsage, behind, is_secondary};

/// The records whose hashes begin with the same bits: their bytes one behind the other, and a table of where they lie.
///
/// ```text
///   slot    next 24 bits of the hash │ where the record begins, and one      0: empty
///   record  index u64 │ batch u64 │ length of key u32 │ length of record u32 │ key │ record
/// ```
///
/// Open addressing, from the slot that the hash's bits name on; no empty slot lies between that one and the record's. So
/// that a table of many records fits into the processor's caches, slots are short, and a look costs one miss more. Bytes
/// of what was removed are given back when they are more than half.
#[derive(Debug, Default)]
struct Shard {
    slots: Vec<u64>,
    used: usize,
    bytes: Vec<u8>,
    /// Bytes of removed records.
    garbage: usize,
}

const PLACE_BITS: u32 = 40;
const TAG_BITS: u32 = 64 - PLACE_BITS;
const RECORD_HEAD: usize = 24;

/// A record in a shard.
#[derive(Clone, Copy, Debug)]
struct Stored<'s> {
    index: u64,
    batch: BatchId,
    key: &'s [u8],
    record: &'s [u8],
}

fn number_of(index: StoreIndex) -> u64 {
    u64::from(index.table) << 32 | u64::from(index.index)
}

impl Stored<'_> {
    fn len(&self) -> usize {
        RECORD_HEAD + self.key.len() + self.record.len()
    }
}

impl Shard {
    const SLOTS_MIN: usize = 16;

    /// The top bits have chosen the shard, the next ones choose here.
    #[inline(always)]
    const fn tag(hash: u64) -> u64 {
        hash << PART_BITS >> PLACE_BITS
    }

    /// The slot that a tag names.
    #[inline(always)]
    fn home(&self, tag: u64) -> usize {
        debug_assert!(self.slots.len().is_power_of_two());
        (tag >> (TAG_BITS - self.slots.len().trailing_zeros())) as usize
    }

    /// Asks the processor for the slot of a hash.
    #[inline]
    fn prefetch(&self, hash: u64) {
        if !self.slots.is_empty() {
            thermocline_base::prefetch::prefetch(std::ptr::from_ref(&self.slots[self.home(Self::tag(hash))]));
        }
    }

    /// The record that a slot leads to.
    #[inline]
    fn stored(&self, slot: u64) -> Stored<'_> {
        let at = (slot & ((1 << PLACE_BITS) - 1)) as usize - 1;
        let (head, rest) = self.bytes[at..].split_at(RECORD_HEAD);
        let number = |from: usize| u64::from_le_bytes(head[from..from + 8].try_into().expect("eight bytes"));
        let (key_len, record_len) = (number(16) as u32 as usize, (number(16) >> 32) as usize);
        let (key, rest) = rest.split_at(key_len);
        Stored { index: number(0), batch: BatchId(number(8)), key, record: &rest[..record_len] }
    }

    /// The records of a key, with their slots.
    #[inline]
    fn find<'s>(
        &'s self,
        hash: u64,
        index: StoreIndex,
        key: &'s [u8],
    ) -> impl Iterator<Item = (usize, Stored<'s>)> {
        let (tag, index, mask) = (Self::tag(hash), number_of(index), self.slots.len().wrapping_sub(1));
        let home = if self.slots.is_empty() { 0 } else { self.home(tag) };
        (0..self.slots.len())
            .map(move |step| (home + step) & mask)
            .take_while(|at| self.slots[*at] != 0)
            .filter(move |at| self.slots[*at] >> PLACE_BITS == tag)
            .map(|at| (at, self.stored(self.slots[at])))
            .filter(move |(_, stored)| stored.index == index && stored.key == key)
    }

    fn push(&mut self, hash: u64, stored: Stored<'_>) {
        if (self.used + 1) * 4 > self.slots.len() * 3 {
            let wider = (self.slots.len() * 2).max(Self::SLOTS_MIN);
            assert!(wider <= 1 << TAG_BITS, "a shard has no more records than its tags tell apart");
            let before = std::mem::replace(&mut self.slots, vec![0; wider]);
            before.into_iter().filter(|slot| *slot != 0).for_each(|slot| self.place(slot));
        }
        let at = Self::append(&mut self.bytes, stored);
        self.place(Self::tag(hash) << PLACE_BITS | at);
        self.used += 1;
    }

    /// Where it begins, and one.
    fn append(bytes: &mut Vec<u8>, stored: Stored<'_>) -> u64 {
        let at = bytes.len() as u64 + 1;
        assert!(at + stored.len() as u64 <= 1 << PLACE_BITS, "a shard has less than a terabyte");
        bytes.extend_from_slice(&stored.index.to_le_bytes());
        bytes.extend_from_slice(&stored.batch.0.to_le_bytes());
        bytes.extend_from_slice(&(stored.key.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(stored.record.len() as u32).to_le_bytes());
        bytes.extend_from_slice(stored.key);
        bytes.extend_from_slice(stored.record);
        at
    }

    fn place(&mut self, slot: u64) {
        let mask = self.slots.len() - 1;
        let mut at = self.home(slot >> PLACE_BITS);
        while self.slots[at] != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }

    /// Removes the record of a slot. What stands in the slots behind it moves up, as far as that brings it no further than
    /// the slot that its tag names.
    fn remove(&mut self, mut gap: usize) {
        let mask = self.slots.len() - 1;
        self.garbage += self.stored(self.slots[gap]).len();
        self.used -= 1;
        self.slots[gap] = 0;
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot == 0 {
                break;
            }
            let away = at.wrapping_sub(self.home(slot >> PLACE_BITS)) & mask;
            if away >= at.wrapping_sub(gap) & mask {
                self.slots[gap] = slot;
                self.slots[at] = 0;
                gap = at;
            }
        }
        if self.garbage * 2 > self.bytes.len() {
            self.collect();
        }
    }

    /// Gives the bytes of removed records back.
    fn collect(&mut self) {
        let mut bytes = Vec::with_capacity(self.bytes.len() - self.garbage);
        for at in 0..self.slots.len() {
            let slot = self.slots[at];
            if slot != 0 {
                let place = Self::append(&mut bytes, self.stored(slot));
                self.slots[at] = slot >> PLACE_BITS << PLACE_BITS | place;
            }
        }
        (self.bytes, self.garbage) = (bytes, 0);
    }

    /// The hashes of all keys.
    fn hashes(&self) -> impl Iterator<Item = u64> {
        let index = |number: u64| StoreIndex { table: (number >> 32) as u32, index: number as u32 };
        let stored = self.slots.iter().filter(|slot| **slot != 0).map(|slot| self.stored(*slot));
        stored.map(move |stored| hash_of(index(stored.index), stored.key))
    }
}

type Keys = BTreeMap<Box<[u8]>, Vec<BatchId>>;

#[derive(Debug)]
struct Shared {
    shards: Box<[CachePadded<RwLock<Shard>>]>,
    indexes: RwLock<BTreeMap<StoreIndex, Arc<RwLock<Keys>>>>,
    filters: Filters,
    waiting: RwLock<BTreeMap<BatchId, Arc<Batch>>>,
    /// How many wait: readers ask this first.
    waiting_count: AtomicUsize,
    writing: Mutex<()>,
    tables: Presence,
    records: AtomicU64,
    bytes: AtomicU64,
    bytes_written: AtomicU64,
    reads: AtomicU64,
    false_positives: AtomicU64,
}

/// A store in memory.
#[derive(Clone, Debug)]
pub(crate) struct MemoryStore(Arc<Shared>);

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared {
            shards: (0..PARTS).map(|_| CachePadded(RwLock::default())).collect(),
            indexes: RwLock::default(),
            filters: Filters::default(),
            waiting: RwLock::default(),
            waiting_count: AtomicUsize::new(0),
            writing: Mutex::new(()),
            tables: Presence::default(),
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            false_positives: AtomicU64::new(0),
        }))
    }
}

impl Shared {
    fn keys(&self, index: StoreIndex) -> Option<Arc<RwLock<Keys>>> {
        read(&self.indexes).get(&index).cloned()
    }

    fn keys_to_write(&self, index: StoreIndex) -> Arc<RwLock<Keys>> {
        match self.keys(index) {
            Some(keys) => keys,
            None => Arc::clone(write(&self.indexes).entry(index).or_default()),
        }
    }

    fn is_confirmed(&self, batch: BatchId) -> bool {
        self.waiting_count.load(Ordering::Acquire) == 0 || !read(&self.waiting).contains_key(&batch)
    }

    fn found(&self, batch: BatchId, record: &[u8]) -> Found {
        Found::new(batch, self.is_confirmed(batch), record.to_vec())
    }

    fn write(&self, batch: Batch) -> Result<(), StoreError> {
        let _one_at_a_time = self.writing.lock();
        if read(&self.waiting).contains_key(&batch.id()) {
            return Err(StoreError::BatchExists(batch.id()));
        }
        let batch = Arc::new(batch);
        if !batch.is_confirmed() {
            let mut waiting = write(&self.waiting);
            waiting.insert(batch.id(), Arc::clone(&batch));
            self.waiting_count.store(waiting.len(), Ordering::Release);
        }
        for entry in batch.entries() {
            if let Change::Put(record) = entry.change {
                self.put(entry.index, entry.key, batch.id(), record);
            }
        }
        if batch.is_confirmed() {
            self.take_effect(&batch);
        }
        self.bytes_written.fetch_add(batch.record_bytes(), Ordering::Relaxed);
        Ok(())
    }

    fn confirm(&self, id: BatchId) -> Result<(), StoreError> {
        let _one_at_a_time = self.writing.lock();
        let batch = read(&self.waiting).get(&id).cloned();
        let batch = batch.ok_or(StoreError::UnknownBatch(id))?;
        self.take_effect(&batch);
        self.decided(id);
        Ok(())
    }

    fn discard(&self, id: BatchId) {
        let _one_at_a_time = self.writing.lock();
        let Some(batch) = read(&self.waiting).get(&id).cloned() else { return };
        for entry in batch.entries() {
            if let Change::Put(_) = entry.change {
                self.remove(entry.index, entry.key, id);
            }
        }
        self.decided(id);
    }

    fn decided(&self, id: BatchId) {
        let mut waiting = write(&self.waiting);
        waiting.remove(&id);
        self.waiting_count.store(waiting.len(), Ordering::Release);
    }

    /// The removals of a batch.
    fn take_effect(&self, batch: &Batch) {
        for entry in batch.entries() {
            if let Change::Remove(named, _) = entry.change {
                self.remove(entry.index, entry.key, named);
            }
        }
    }

    fn put(&self, index: StoreIndex, key: &[u8], batch: BatchId, record: &[u8]) {
        let order = self.keys_to_write(index);
        let in_order = || match write(&order).entry(key.into()) {
            std::collections::btree_map::Entry::Occupied(mut batches) => batches.get_mut().push(batch),
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(vec![batch]);
            }
        };
        self.bytes.fetch_add((key.len() + record.len()) as u64, Ordering::Relaxed);
        if is_secondary(index) {
            return in_order();
        }
        let hash = hash_of(index, key);
        {
            let mut shard = write(&self.shards[part_of(hash)].0);
            shard.push(hash, Stored { index: number_of(index), batch, key, record });
            in_order();
        }
        self.records.fetch_add(1, Ordering::Relaxed);
        if self.filters.add(hash) {
            self.rebuild(hash);
        }
    }

    fn remove(&self, index: StoreIndex, key: &[u8], batch: BatchId) {
        let Some(order) = self.keys(index) else { return };
        let in_order = || {
            let mut keys = write(&order);
            let Some(batches) = keys.get_mut(key) else { return false };
            let before = batches.len();
            batches.retain(|of| *of != batch);
            let gone = batches.len() < before;
            if batches.is_empty() {
                keys.remove(key);
            }
            gone
        };
        if is_secondary(index) {
            if in_order() {
                self.bytes.fetch_sub(key.len() as u64, Ordering::Relaxed);
            }
            return;
        }
        let hash = hash_of(index, key);
        let mut freed = None;
        {
            let mut shard = write(&self.shards[part_of(hash)].0);
            let place = shard.find(hash, index, key).find(|(_, stored)| stored.batch == batch);
            if let Some((slot, stored)) = place {
                freed = Some(stored.key.len() + stored.record.len());
                shard.remove(slot);
            }
            in_order();
        }
        if let Some(bytes) = freed {
            self.records.fetch_sub(1, Ordering::Relaxed);
            self.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
            if self.filters.remove(hash) {
                self.rebuild(hash);
            }
        }
    }

    /// Rebuilds the filter of a shard.
    fn rebuild(&self, hash: u64) {
        let part = part_of(hash);
        self.filters.rebuild(part, |found| read(&self.shards[part].0).hashes().for_each(found));
    }

    /// The entries of a key.
    fn find(&self, index: StoreIndex, key: &[u8]) -> Vec<Found> {
        let mut found = Vec::new();
        if is_secondary(index) {
            if let Some(order) = self.keys(index)
                && let Some(batches) = read(&order).get(key)
            {
                found.extend(batches.iter().map(|batch| self.found(*batch, &[])));
            }
        } else {
            let hash = hash_of(index, key);
            let shard = read(&self.shards[part_of(hash)].0);
            let stored = shard.find(hash, index, key).map(|(_, stored)| stored);
            found.extend(stored.map(|stored| self.found(stored.batch, stored.record)));
        }
        if found.len() > 1 {
            found.sort_by_key(|found| std::cmp::Reverse(found.batch));
        }
        found
    }

    /// The first or last key of a range.
    fn next_key(
        &self,
        index: StoreIndex,
        low: &[u8],
        high: Option<&[u8]>,
        direction: Direction,
    ) -> Option<Vec<u8>> {
        if high.is_some_and(|high| high <= low) {
            return None;
        }
        let order = self.keys(index)?;
        let keys = read(&order);
        let range = (Bound::Included(low), high.map_or(Bound::Unbounded, Bound::Excluded));
        let mut range = keys.range::<[u8], _>(range);
        let next = match direction {
            Direction::Forward => range.next(),
            Direction::Backward => range.next_back(),
        };
        next.map(|(key, _)| key.to_vec())
    }
}

impl MemoryStore {
    /// A look that the filter let through is over.
    fn answered(&self, entries: &Entries) -> Look {
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        if entries.len() == 0 {
            self.0.false_positives.fetch_add(1, Ordering::Relaxed);
            return Look::Absent;
        }
        Look::Here
    }
}

impl ColdStore for MemoryStore {
    fn takes_blocks(&self) -> bool {
        true
    }

    fn write(&self, batch: Batch) -> Pending<'static, ()> {
        let shared = Arc::clone(&self.0);
        shared.tables.add_batch(&batch);
        Box::pin(async move { shared.write(batch) })
    }

    fn confirm(&self, batch: BatchId) -> Pending<'static, ()> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.confirm(batch) })
    }

    fn discard(&self, batch: BatchId) -> Pending<'static, ()> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            shared.discard(batch);
            Ok(())
        })
    }

    fn quiescent(&self, _: BatchId) -> Pending<'static, ()> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            // A write happens within one poll. If another thread is at one, it is over in a moment.
            drop(shared.writing.lock());
            Ok(())
        })
    }

    fn unconfirmed(&self) -> Vec<BatchId> {
        read(&self.0.waiting).keys().copied().collect()
    }

    fn may_contain(&self, index: StoreIndex, key: &[u8]) -> bool {
        if is_secondary(index) {
            return self.0.keys(index).is_some_and(|keys| read(&keys).contains_key(key));
        }
        self.0.filters.may_contain(hash_of(index, key))
    }

    fn may_contain_group(&self, index: StoreIndex, key: &[u8]) -> bool {
        self.may_contain_range(index, key, behind(key).as_deref())
    }

    fn may_contain_range(&self, index: StoreIndex, low: &[u8], high: Option<&[u8]>) -> bool {
        if high.is_some_and(|high| high <= low) {
            return false;
        }
        let Some(keys) = self.0.keys(index) else { return false };
        let range = (Bound::Included(low), high.map_or(Bound::Unbounded, Bound::Excluded));
        read(&keys).range::<[u8], _>(range).next().is_some()
    }

    fn look(&self, index: StoreIndex, key: &[u8], entries: &mut Entries) -> Look {
        debug_assert!(!is_secondary(index), "secondary indexes are looked up by group");
        let hash = hash_of(index, key);
        let shard = read(&self.0.shards[part_of(hash)].0);
        // The filter's line and the slot's come at the same time.
        shard.prefetch(hash);
        if !self.0.filters.may_contain(hash) {
            return Look::Absent;
        }
        for (_, stored) in shard.find(hash, index, key) {
            entries.push(stored.batch, key, stored.record);
        }
        drop(shard);
        self.answered(entries)
    }

    fn look_group(&self, index: StoreIndex, key: &[u8], entries: &mut Entries) -> Look {
        let Some(order) = self.0.keys(index) else { return Look::Absent };
        let keys = read(&order);
        let from = (Bound::Included(key), Bound::Unbounded);
        let of_group = keys.range::<[u8], _>(from).take_while(|(found, _)| found.starts_with(key));
        let mut found = of_group.peekable();
        if found.peek().is_none() {
            return Look::Absent;
        }
        found.for_each(|(key, batches)| entries.push_group(key, batches.iter().copied()));
        drop(keys);
        self.answered(entries)
    }

    fn prefetch(&self, index: StoreIndex, key: &[u8]) {
        let hash = hash_of(index, key);
        self.0.filters.prefetch(hash);
        read(&self.0.shards[part_of(hash)].0).prefetch(hash);
    }

    fn get(&self, index: StoreIndex, key: &[u8]) -> Pending<'static, Vec<Found>> {
        let found = self.0.find(index, key);
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        if found.is_empty() {
            self.0.false_positives.fetch_add(1, Ordering::Relaxed);
        }
        Box::pin(ready(Ok(found)))
    }

    fn get_group(&self, index: StoreIndex, key: &[u8]) -> Pending<'static, Vec<FoundKey>> {
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        let mut scan = MemoryScan::new(self, index, key, behind(key).as_deref(), Direction::Forward);
        Box::pin(ready(Ok(std::iter::from_fn(|| scan.advance()).collect())))
    }

    fn scan(
        &self,
        index: StoreIndex,
        low: &[u8],
        high: Option<&[u8]>,
        direction: Direction,
    ) -> Box<dyn ColdScan> {
        Box::new(MemoryScan::new(self, index, low, high, direction))
    }

    fn may_contain_table(&self, table: TableId) -> bool {
        self.0.tables.may_contain(table)
    }

    fn drop_index(&self, index: StoreIndex) {
        self.drop_batches(index, BatchId(u64::MAX), true);
        let _one_at_a_time = self.0.writing.lock();
        write(&self.0.indexes).remove(&index);
    }

    fn drop_batches(&self, index: StoreIndex, to: BatchId, _now: bool) {
        let _one_at_a_time = self.0.writing.lock();
        let Some(order) = self.0.keys(index) else { return };
        let entries: Vec<_> =
            read(&order).iter().map(|(key, batches)| (key.clone(), batches.clone())).collect();
        for (key, batches) in entries {
            let gone = batches.into_iter().filter(|batch| *batch <= to);
            gone.for_each(|batch| self.0.remove(index, &key, batch));
        }
    }

    fn retain(&self, is_wanted: &dyn Fn(StoreIndex) -> bool) {
        let all: Vec<_> = read(&self.0.indexes).keys().copied().collect();
        all.into_iter().filter(|index| !is_wanted(*index)).for_each(|index| self.drop_index(index));
    }

    fn usage(&self) -> StoreUsage {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreUsage {
            device_reads: load(&self.0.reads),
            device_write_bytes: load(&self.0.bytes_written),
            false_positives: load(&self.0.false_positives),
            records: load(&self.0.records),
            filter_bytes: self.0.filters.memory_bytes(),
            disk_bytes: load(&self.0.bytes),
            ..StoreUsage::default()
        }
    }

    fn close(&self) {}
}

/// A range read: key by key, each as it is when its turn comes.
#[derive(Debug)]
struct MemoryScan {
    shared: Arc<Shared>,
    index: StoreIndex,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    direction: Direction,
}

impl MemoryScan {
    fn new(
        store: &MemoryStore,
        index: StoreIndex,
        low: &[u8],
        high: Option<&[u8]>,
        direction: Direction,
    ) -> Self {
        let high = high.map(<[u8]>::to_vec);
        Self { shared: Arc::clone(&store.0), index, low: low.to_vec(), high, direction }
    }

    fn advance(&mut self) -> Option<FoundKey> {
        loop {
            let key = self.shared.next_key(self.index, &self.low, self.high.as_deref(), self.direction)?;
            match self.direction {
                Direction::Forward => {
                    self.low.clone_from(&key);
                    self.low.push(0);
                }
                Direction::Backward => self.high = Some(key.clone()),
            }
            let entries = self.shared.find(self.index, &key);
            // They may have gone in between.
            if !entries.is_empty() {
                return Some(FoundKey { key, entries });
            }
        }
    }
}

impl ColdScan for MemoryScan {
    fn next(&mut self) -> Pending<'_, Option<FoundKey>> {
        Box::pin(ready(Ok(self.advance())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_base::rng::Rng;

    #[test]
    fn a_shard_finds_what_is_in_it_whatever_went_before() {
        const INDEX: StoreIndex = StoreIndex { table: 1, index: 0 };
        let (mut shard, mut there, mut rng) = (Shard::default(), BTreeMap::new(), Rng::new(5));
        assert_eq!(shard.find(7, INDEX, b"none").count(), 0);
        // Few tags, some of them at the end of the table: places run into each other, and round the end.
        let hash = |key: u64| if key.is_multiple_of(3) { u64::MAX >> PART_BITS } else { (key % 40) << 49 };
        let mut collected = false;
        for round in 0..6_000_u64 {
            let key = rng.below(120);
            let bytes = key.to_be_bytes();
            let garbage = shard.garbage;
            if rng.chance(if round / 1_000 % 2 == 0 { 0.6 } else { 0.4 }) {
                let (index, record) = (number_of(INDEX), round.to_le_bytes());
                shard.push(hash(key), Stored { index, batch: BatchId(round), key: &bytes, record: &record });
                there.entry(key).or_insert_with(Vec::new).push(round);
            } else if let Some(batch) = there.get_mut(&key).and_then(Vec::pop) {
                let place = shard.find(hash(key), INDEX, &bytes).find(|(_, stored)| stored.batch.0 == batch);
                let slot = place.expect("it is there").0;
                shard.remove(slot);
            }
            collected |= shard.garbage < garbage;
            let key = rng.below(120);
            let mut found: Vec<u64> = shard
                .find(hash(key), INDEX, &key.to_be_bytes())
                .map(|(_, stored)| {
                    assert_eq!(stored.record, stored.batch.0.to_le_bytes());
                    stored.batch.0
                })
                .collect();
            found.sort_unstable();
            assert_eq!(found, there.get(&key).cloned().unwrap_or_default(), "key {key} in round {round}");
            assert_eq!(shard.used, shard.hashes().count());
            assert!(shard.garbage * 2 <= shard.bytes.len());
        }
        assert!(collected, "no bytes were given back");
        let other = StoreIndex { table: 2, index: 0 };
        assert!((0..120).all(|key| shard.find(hash(key), other, &key.to_be_bytes()).next().is_none()));
    }
}
