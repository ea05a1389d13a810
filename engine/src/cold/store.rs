//! What the engine asks of a cold store: to keep batches of records durably, and to find them again.
//!
//! A store is not transactional. It knows batches (written as a whole or not at all, discarded by their id alone) and
//! which batch a record is of; the update memo knows what that means at which time.
//!
//! | index | key of an entry | record |
//! |---|---|---|
//! | primary ([`primary_of`]) | the primary key | the row as it stood in memory, hidden key included |
//! | secondary ([`secondary_of`]) | see [`push_secondary`]: the index's key, then the primary key | none |
//!
//! A secondary key is looked up as a *group*: all entries that begin with it. Encoded keys of one index are never
//! prefixes of each other, so a group holds one key only.
//!
//! Rules that every store keeps:
//! - What `may_contain` and its likes deny is not there. They do no I/O.
//! - A batch that [`ColdStore::write`] has made durable is seen by every look that begins afterwards, confirmed or not.
//! - Of a discarded batch nothing is seen by a look that begins after [`ColdStore::discard`] has resolved.
//! - A removal kills exactly one entry: this key's of that batch.
//! - A look without waiting ([`ColdStore::look`]) that answers is a look like any other: it sees what was durable when it
//!   began. It holds nothing when it returns.
//! - Nothing blocks: what has to wait is a future, and a future that is dropped takes back nothing that is in flight
//!   ([`ColdStore::quiescent`] tells when nothing is).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use thermocline_base::ids::{IndexId, TableId};
use thermocline_base::sync::{AtomicU64, Ordering};
use thermocline_pool::ssd::{SavedMap, SsdStats};
use thermocline_pool::store::{
    Batch, BatchId, Change, Direction, Found, FoundKey, IndexId as StoreIndex, OwnerPosition, Pinned,
    SsdShare, StoreEnd, StoreError, StoreOptions, StoreOwner,
};

use crate::catalog::table::TableForm;
use crate::hot::block::Rows;
use crate::row::Layout;

/// What ties a store to its database.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreTies {
    /// Hears up to where the store is durable.
    pub(crate) owner: Option<Arc<dyn StoreOwner>>,
    /// Up to where it is known to have been durable.
    pub(crate) least: StoreEnd,
}

/// What a store works on.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A batch whose records stand in one block: the rows of a frozen chunk.
#[derive(Clone, Debug)]
pub(crate) struct BlockBatch {
    /// Its id.
    pub(crate) id: BatchId,
    /// The table.
    pub(crate) table: TableId,
    /// The block's bytes ([`thermocline_frozen`]), as they stand in memory.
    pub(crate) block: Vec<u8>,
    /// Hidden keys by position; none in a table with a key.
    pub(crate) hidden: Vec<u64>,
    /// Layout of the rows (to read the block).
    pub(crate) layout: Arc<Layout>,
    /// Of each index its entries, ascending by key; the primary index's first. Only rows that leave have entries.
    pub(crate) indexes: Vec<BlockEntries>,
}

/// The entries of one index of such a batch.
#[derive(Clone, Debug)]
pub(crate) struct BlockEntries {
    pub(crate) index: StoreIndex,
    /// As the store has them: those of a secondary index end with the primary key (see [`push_secondary`]).
    pub(crate) keys: PackedKeys,
    /// The row of each key: its position in the block.
    pub(crate) positions: Vec<u16>,
}

impl BlockBatch {
    /// The same as a batch of records, for stores that have no better place for a block.
    ///
    /// # Errors
    /// A key or the batch is too long for that.
    pub(crate) fn into_records(self) -> Result<Batch, StoreError> {
        let rows =
            Rows::parse(self.block, self.hidden, &self.layout).expect("the block was made in this process");
        let mut batch = Batch::new(self.id);
        let mut record = Vec::new();
        for BlockEntries { index, keys, positions } in &self.indexes {
            for (key, &position) in keys.iter().zip(positions) {
                record.clear();
                if !is_secondary(*index) {
                    rows.row_into(position, &mut record);
                }
                batch.put(*index, key, &record)?;
            }
        }
        Ok(batch)
    }
}

/// Keys one behind the other, in two allocations.
#[derive(Clone, Debug, Default)]
pub(crate) struct PackedKeys {
    bytes: Vec<u8>,
    /// Where each key ends.
    ends: Vec<u32>,
}

impl PackedKeys {
    /// Adds a key behind the others.
    pub(crate) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(u32::try_from(self.bytes.len()).expect("the keys of a chunk have less than 4 GiB"));
    }

    /// Their bytes, and where each ends.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Vec<u32>) {
        (self.bytes, self.ends)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The key with this number.
    pub(crate) fn get(&self, at: usize) -> &[u8] {
        let from = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[from as usize..self.ends[at] as usize]
    }

    /// All of them, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|at| self.get(at))
    }
}

/// Durable storage for rows that have left memory.
pub(crate) trait ColdStore: Send + Sync + Debug {
    /// Writes a batch. Resolves when it is durable. A batch that was confirmed may get more entries, under other keys: in a
    /// confirmed batch with its id. (`direct` takes none.)
    ///
    /// # Errors
    /// [`StoreError::Full`] when there is no space: nothing of it is there then.
    fn write(&self, batch: Batch) -> Pending<'static, ()>;

    /// Does it take rows of a frozen chunk as one block?
    fn takes_blocks(&self) -> bool {
        false
    }

    /// Writes a batch whose records stand in one block: all or nothing, durable when it resolves, unconfirmed until
    /// [`ColdStore::confirm`]; [`ColdStore::discard`] takes it back.
    ///
    /// # Errors
    /// As [`ColdStore::write`]; what is too long for the store, which keeps its records one by one.
    fn write_block(&self, batch: BlockBatch) -> Pending<'static, ()> {
        match batch.into_records() {
            Ok(batch) => self.write(batch),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    /// The batch stays: it may be merged with others from now on.
    fn confirm(&self, batch: BatchId) -> Pending<'static, ()>;

    /// Nothing of the batch is there any more, durably. No error if there is no such batch.
    fn discard(&self, batch: BatchId) -> Pending<'static, ()>;

    /// Resolves when no write of the batch is in flight (`DiscardAfterWrite`).
    fn quiescent(&self, batch: BatchId) -> Pending<'static, ()>;

    /// Batches that are neither confirmed nor discarded.
    fn unconfirmed(&self) -> Vec<BatchId>;

    /// Can a row be put there now, as far as that depends on its key and length? `keys`: those of its secondary entries.
    fn has_room_for(
        &self,
        index: StoreIndex,
        key: &[u8],
        record_bytes: usize,
        keys: &mut dyn Iterator<Item = &[u8]>,
    ) -> bool {
        let _ = (index, key, record_bytes, keys);
        true
    }

    /// May there be an entry of this key?
    fn may_contain(&self, index: StoreIndex, key: &[u8]) -> bool;

    /// May there be an entry whose key begins with this one?
    fn may_contain_group(&self, index: StoreIndex, key: &[u8]) -> bool;

    /// May there be an entry from `low` (included) to `high` (excluded)?
    fn may_contain_range(&self, index: StoreIndex, low: &[u8], high: Option<&[u8]>) -> bool;

    /// Looks for the entries of a key as far as that goes without waiting: filters, what is in memory, cached pages.
    /// What is found is added to `entries`; if the answer is not [`Look::Here`], what is added means nothing.
    fn look(&self, index: StoreIndex, key: &[u8], entries: &mut Entries) -> Look {
        let _ = entries;
        if self.may_contain(index, key) { Look::Away } else { Look::Absent }
    }

    /// The same for the entries whose keys begin with this one.
    fn look_group(&self, index: StoreIndex, key: &[u8], entries: &mut Entries) -> Look {
        let _ = entries;
        if self.may_contain_group(index, key) { Look::Away } else { Look::Absent }
    }

    /// True if the entries whose keys begin with this one are so many that they are better scanned than read all at once.
    fn is_long_group(&self, index: StoreIndex, key: &[u8]) -> bool {
        let _ = (index, key);
        false
    }

    /// Asks the processor for what a look for this key begins with. Changes nothing.
    fn prefetch(&self, index: StoreIndex, key: &[u8]) {
        let _ = (index, key);
    }

    /// All entries of a key, of all batches.
    fn get<'a>(&'a self, index: StoreIndex, key: &'a [u8]) -> Pending<'a, Vec<Found>>;

    /// All entries whose key begins with this one, in the order of their keys.
    fn get_group<'a>(&'a self, index: StoreIndex, key: &'a [u8]) -> Pending<'a, Vec<FoundKey>>;

    /// The entries from `low` (included) to `high` (excluded), as they are now, in either direction.
    fn scan(
        &self,
        index: StoreIndex,
        low: &[u8],
        high: Option<&[u8]>,
        direction: Direction,
    ) -> Box<dyn ColdScan>;

    /// Does the store hold anything of this table, or may it?
    fn may_contain_table(&self, table: TableId) -> bool;

    /// The index is gone for good: nobody will ask for its entries or write any, and they may go, in time. Not durable: see
    /// [`ColdStore::retain`]. For changes of definitions: it may wait for a write that is under way.
    fn drop_index(&self, index: StoreIndex);

    /// What batches up to this one have written to an index is of no use any more, and may go, in time. `now`: for the sake of
    /// the space that it takes. Not durable either. A store for which that is too much may keep it.
    fn drop_batches(&self, index: StoreIndex, to: BatchId, now: bool) {
        let _ = (index, to, now);
    }

    /// Drops every index of which something is there and that is not wanted. To be called when the store has been opened,
    /// with what the catalog knows: so no drop has to be durable here.
    fn retain(&self, is_wanted: &dyn Fn(StoreIndex) -> bool);

    /// Drops all indexes of a table of which something is there. No write to it is in flight.
    fn drop_table(&self, table: TableId) {
        self.retain(&|index| index.table != table.0);
    }

    /// Keeps what is there now, to be copied as bytes. `None`: the store cannot.
    fn pin(&self) -> Option<Pinned> {
        None
    }

    /// Up to where its files are durable. A store without files has no end.
    fn end(&self) -> StoreEnd {
        StoreEnd::default()
    }

    /// How far the database was durable when the store last wrote: what is in it depends on log and manifests up to there.
    fn owner_position(&self) -> OwnerPosition {
        OwnerPosition::default()
    }

    /// What it has done and what it holds.
    fn usage(&self) -> StoreUsage;

    /// The SSD that keeps copies of its pages, if there is one.
    fn ssd(&self) -> Option<SsdStats> {
        None
    }

    /// What of each index lies on that SSD, or lay there by a map that it has saved, and what of the rest does.
    fn ssd_shares(&self, _saved: Option<&SavedMap>) -> Option<(BTreeMap<StoreIndex, SsdShare>, SsdShare)> {
        None
    }

    /// The memory that it takes, as cheap to ask for as can be.
    fn memory(&self) -> StoreMemoryUse {
        let usage = self.usage();
        StoreMemoryUse {
            filters: usage.filter_bytes,
            fences: usage.fence_bytes,
            buffers: usage.buffer_bytes,
            frames: usage.frame_bytes,
        }
    }

    /// Does one piece of what the store's threads would do: a write of what waits for the disk (`work`: of the work in
    /// the background), for tests that open a store without threads. `false`: there was none.
    fn step(&self, work: bool) -> bool {
        let _ = work;
        false
    }

    /// Has it nothing to do? What its buffers take then, they keep.
    fn is_idle(&self) -> bool {
        true
    }

    /// Does it keep pages that were read, so that reading them early saves reading them later?
    fn keeps_pages(&self) -> bool {
        false
    }

    /// Changes how many bytes of pages it may cache.
    fn set_frame_bytes(&self, _bytes: u64) {}

    /// What it holds of each table, as far as that is known: ended records count until they are removed.
    fn tables(&self) -> BTreeMap<u32, TableUsage> {
        BTreeMap::new()
    }

    /// Finishes what is in flight, and ends the store's threads.
    fn close(&self);
}

/// What a look without waiting came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// Nothing is there.
    Absent,
    /// All that is there was found.
    Here,
    /// Whether something is there takes a read of the device to know.
    Away,
}

/// An entry that was found: the record of a primary key, or an entry of a secondary index that leads to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record<'a> {
    /// Its batch.
    pub(crate) batch: u64,
    /// Its primary key.
    pub(crate) key: &'a [u8],
    /// The row with its hidden key, as it left memory; empty in an entry of a secondary index.
    pub(crate) bytes: &'a [u8],
}

/// What a look has found, in two allocations that the next look uses again.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    list: Vec<EntryPlace>,
    /// Primary key and record of each entry.
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct EntryPlace {
    batch: u64,
    key: usize,
    record: usize,
    end: usize,
}

impl Entries {
    /// Adds an entry.
    pub(crate) fn push(&mut self, batch: BatchId, primary_key: &[u8], record: &[u8]) {
        let key = self.bytes.len();
        self.bytes.extend_from_slice(primary_key);
        self.bytes.extend_from_slice(record);
        let end = self.bytes.len();
        self.list.push(EntryPlace { batch: batch.0, key, record: key + primary_key.len(), end });
    }

    /// Adds the entries of a key of a secondary index. What has no tail leads nowhere, and is left out.
    pub(crate) fn push_group(&mut self, key: &[u8], batches: impl IntoIterator<Item = BatchId>) {
        if let Some((_, primary)) = split_secondary(key) {
            batches.into_iter().for_each(|batch| self.push(batch, primary, &[]));
        }
    }

    /// Brings records of a table's primary index up to date.
    #[cold]
    pub(crate) fn renew(&mut self, form: &TableForm) {
        let mut renewed = Self::default();
        for at in 0..self.len() {
            let Record { batch, key, bytes } = self.get(at);
            match form.renew(batch, bytes) {
                Some(bytes) => renewed.push(BatchId(batch), key, &bytes),
                None => renewed.push(BatchId(batch), key, bytes),
            }
        }
        *self = renewed;
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The entry with this number.
    pub(crate) fn get(&self, at: usize) -> Record<'_> {
        let EntryPlace { batch, key, record, end } = self.list[at];
        Record { batch, key: &self.bytes[key..record], bytes: &self.bytes[record..end] }
    }

    /// Forgets all, but keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
    }

    /// Memory that it keeps.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.list.capacity() * size_of::<EntryPlace>()
    }
}

/// A range read.
pub(crate) trait ColdScan: Send + Debug {
    /// The next key that has entries; lazily.
    fn next(&mut self) -> Pending<'_, Option<FoundKey>>;
}

/// How much memory a store may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StoreMemory {
    /// Of a block on its way to the device; there are up to three.
    pub(crate) block_bytes: usize,
    /// Of cached pages.
    pub(crate) frame_bytes: u64,
    /// The most that these may become.
    pub(crate) frame_bytes_max: u64,
}

impl StoreMemory {
    /// What suits a memory limit: a twentieth for blocks, half of that for pages. Work in the background takes as much
    /// as the blocks.
    pub(crate) fn within(limit: Option<u64>) -> Self {
        let of = StoreOptions::new([0; 16]).within(limit.unwrap_or(u64::MAX));
        Self {
            block_bytes: of.memory_bytes,
            frame_bytes: of.frame_bytes,
            frame_bytes_max: of.frame_bytes_max,
        }
    }

    /// What comes and goes within milliseconds: three blocks; a merge, what it builds, and the journal.
    pub(crate) fn buffer_bytes(self) -> u64 {
        6 * self.block_bytes as u64
    }

    /// With the frames.
    pub(crate) fn most_bytes(self) -> u64 {
        self.buffer_bytes() + self.frame_bytes
    }
}

/// How much memory a store takes, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct StoreMemoryUse {
    /// Filters.
    pub(crate) filters: u64,
    /// Fences and the like.
    pub(crate) fences: u64,
    /// What is on its way to the device, or in the hands of those who bring it into order.
    pub(crate) buffers: u64,
    /// Cached pages.
    pub(crate) frames: u64,
}

impl std::iter::Sum for StoreMemoryUse {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, of| Self {
            filters: sum.filters + of.filters,
            fences: sum.fences + of.fences,
            buffers: sum.buffers + of.buffers,
            frames: sum.frames + of.frames,
        })
    }
}

/// A store in numbers. Counters count from its opening.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct StoreUsage {
    /// Reads of the device for lookups and scans.
    pub(crate) device_reads: u64,
    /// Bytes written to the device.
    pub(crate) device_write_bytes: u64,
    /// Reads of the device that found nothing, because a filter was wrong.
    pub(crate) false_positives: u64,
    /// Entries of primary indexes, as far as that is known.
    pub(crate) records: u64,
    /// Memory of filters.
    pub(crate) filter_bytes: u64,
    /// Memory of fences and the like.
    pub(crate) fence_bytes: u64,
    /// Memory of what is on its way to the device.
    pub(crate) buffer_bytes: u64,
    /// Memory of cached pages.
    pub(crate) frame_bytes: u64,
    /// Bytes on the device.
    pub(crate) disk_bytes: u64,
}

/// What a store holds of a table.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct TableUsage {
    /// Records.
    pub(crate) records: u64,
    /// Bytes of their keys and records.
    pub(crate) bytes: u64,
    /// Memory of the filters of all of the table's indexes.
    pub(crate) filter_bytes: u64,
    /// Reads of the device that a look for an absent primary key costs on average, because filters are wrong.
    pub(crate) filter_error_rate: f64,
}

/// The number that marks a secondary index: its keys have a tail.
pub(crate) const SECONDARY: u32 = 1 << 31;

/// The primary index of a table, as stores number it.
pub(crate) fn primary_of(table: TableId) -> StoreIndex {
    StoreIndex { table: table.0, index: 0 }
}

/// A secondary index of a table, as stores number it.
pub(crate) fn secondary_of(table: TableId, index: IndexId) -> StoreIndex {
    StoreIndex { table: table.0, index: SECONDARY | index.0 }
}

/// Is it a secondary one?
pub(crate) fn is_secondary(index: StoreIndex) -> bool {
    index.index & SECONDARY != 0
}

/// Bytes at the end of a secondary entry's key that say how long the primary key before them is.
pub(crate) const TAIL_BYTES: usize = 2;

/// Writes the key of a secondary entry: key, primary key, length of the primary key (u16, big-endian).
pub(crate) fn push_secondary(bytes: &mut Vec<u8>, key: &[u8], primary: &[u8]) {
    let len = u16::try_from(primary.len()).expect("keys have at most 2 KiB");
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(primary);
    bytes.extend_from_slice(&len.to_be_bytes());
}

/// Takes the key of a secondary entry apart: key and primary key. `None`: it is none.
pub(crate) fn split_secondary(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (rest, len) = bytes.split_last_chunk::<TAIL_BYTES>()?;
    rest.split_at_checked(rest.len().checked_sub(usize::from(u16::from_be_bytes(*len)))?)
}

/// The least key above all that begin with this one. `None`: there is none, they are the last ones.
pub(crate) fn behind(key: &[u8]) -> Option<Vec<u8>> {
    let last = key.iter().rposition(|byte| *byte != 0xff)?;
    let mut behind = key[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}

/// Which tables a store may hold something of: a bit a table, shared by tables whose numbers are far apart.
///
/// Set before what it announces can be found, and never taken back.
#[derive(Debug)]
pub(crate) struct Presence([AtomicU64; Self::WORDS]);

impl Default for Presence {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Presence {
    const WORDS: usize = 16;

    /// The table has something from now on.
    pub(crate) fn add(&self, table: u32) {
        let word = &self.0[table as usize / 64 % Self::WORDS];
        let bit = 1 << (table % 64);
        // Batches come often, tables seldom: the line stays shared.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Release);
        }
    }

    /// The tables of a batch have something from now on.
    pub(crate) fn add_batch(&self, batch: &Batch) {
        let mut last = None;
        for entry in batch.entries() {
            let table = entry.index.table;
            if last != Some(table) && matches!(entry.change, Change::Put(_)) {
                self.add(table);
                last = Some(table);
            }
        }
    }

    /// May the table have something?
    #[inline]
    pub(crate) fn may_contain(&self, table: TableId) -> bool {
        self.0[table.0 as usize / 64 % Self::WORDS].load(Ordering::Acquire) >> (table.0 % 64) & 1 == 1
    }
}

/// The directory of the store inside a database's.
pub(crate) fn dir_of(database: &Path) -> std::path::PathBuf {
    database.join("cold")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secondary_keys_come_apart() {
        let mut bytes = Vec::new();
        push_secondary(&mut bytes, b"name", b"id");
        assert_eq!(split_secondary(&bytes), Some((&b"name"[..], &b"id"[..])));
        assert_eq!(split_secondary(b"x\x00\x05"), None);
        assert_eq!(split_secondary(b"x"), None);
    }

    #[test]
    fn what_is_behind_a_prefix() {
        assert_eq!(behind(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(behind(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(behind(b"\xff"), None);
        assert_eq!(behind(b""), None);
    }

    #[test]
    fn presence_never_denies_what_was_added() {
        let presence = Presence::default();
        assert!((0..5000).all(|table| !presence.may_contain(TableId(table))));
        for table in [0, 63, 64, 1024, 70_000] {
            presence.add(table);
            assert!(presence.may_contain(TableId(table)));
        }
        assert!(!presence.may_contain(TableId(5)));
    }
}
