//! The cold store `pages`: sorted runs of pages, by the store of crate `pool`, whose filters and fences stand in memory.
//!
//! What is here is the way from the engine's words to that store's; the store itself is described with it
//! (`docs/understand/store.md`).
//!
//! Rules:
//! - Rows of a frozen chunk stand in one object ([`super::objects`]); above this file a record is a record.
//! - [`Presence`] of a table is set before a batch that has entries of it is written, and from all that is there when the
//!   store is opened. It is never taken back: "no" is certain, "maybe" lasts until the store is opened again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use thermocline_base::ids::TableId;
use thermocline_base::io::Io;
use thermocline_pool::ssd::{SavedMap, SsdStats};
use thermocline_pool::store::{
    Batch, BatchId, Change, Direction, Found, FoundKey, IndexId as StoreIndex, OwnerPosition, Pinned, Scan,
    SsdShare, Step, Store, StoreEnd, StoreError, StoreOptions,
};

use super::objects::{self, Fronts, RowScan};
use super::ranges::{New, Ranges};
use super::store::{
    BlockBatch, ColdScan, ColdStore, Entries, Look, Pending, Presence, StoreMemory, StoreMemoryUse,
    StoreUsage, TableUsage, is_secondary,
};

/// The options of a database's store: as much memory as a store may have under the limit, and one thread for its work
/// beside the journal's.
pub(crate) fn options(database_id: [u8; 16], memory: StoreMemory) -> StoreOptions {
    StoreOptions {
        memory_bytes: memory.block_bytes,
        frame_bytes: memory.frame_bytes,
        frame_bytes_max: memory.frame_bytes_max,
        threads: 1,
        ..StoreOptions::new(database_id)
    }
}

/// A group on more pages is scanned.
const GROUP_PAGES: usize = 8;

/// A store of pages.
#[derive(Debug)]
pub(crate) struct PageStore {
    store: Arc<Store>,
    tables: Presence,
    ranges: Ranges,
    /// Of the objects that were read last.
    fronts: Arc<Fronts>,
}

impl PageStore {
    /// Opens the store in a directory, or creates it. Blocks.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub(crate) fn open(io: Arc<dyn Io>, dir: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        let fronts = Arc::new(Fronts::beside(options.frame_bytes));
        let store = Store::open(io, dir, options)?;
        let tables = Presence::default();
        let indexes = store.indexes();
        indexes.iter().for_each(|index| tables.add(index.table));
        Ok(Self { store, tables, ranges: Ranges::new(indexes), fronts })
    }
}

impl ColdStore for PageStore {
    fn takes_blocks(&self) -> bool {
        true
    }

    fn write(&self, batch: Batch) -> Pending<'static, ()> {
        self.tables.add_batch(&batch);
        self.ranges.before(ranges_of(&batch), || Box::pin(self.store.write(batch)))
    }

    fn write_block(&self, batch: BlockBatch) -> Pending<'static, ()> {
        self.tables.add(batch.table.0);
        let mut new = New::default();
        for of in &batch.indexes {
            new.add(of.index, of.keys.iter());
        }
        self.ranges.before(new, || Box::pin(self.store.write_object(objects::encode(batch))))
    }

    fn confirm(&self, batch: BatchId) -> Pending<'static, ()> {
        Box::pin(self.store.confirm(batch))
    }

    fn discard(&self, batch: BatchId) -> Pending<'static, ()> {
        Box::pin(self.store.discard(batch))
    }

    fn quiescent(&self, batch: BatchId) -> Pending<'static, ()> {
        let quiescent = self.store.quiescent(batch);
        Box::pin(async move {
            quiescent.await;
            Ok(())
        })
    }

    fn unconfirmed(&self) -> Vec<BatchId> {
        self.store.unconfirmed()
    }

    fn may_contain(&self, index: StoreIndex, key: &[u8]) -> bool {
        self.ranges.may_contain(index, key) && self.store.may_contain(index, key)
    }

    fn may_contain_group(&self, index: StoreIndex, key: &[u8]) -> bool {
        self.ranges.may_contain_prefix(index, key) && self.store.may_contain_group(index, key)
    }

    fn may_contain_range(&self, index: StoreIndex, low: &[u8], high: Option<&[u8]>) -> bool {
        self.ranges.may_contain_range(index, low, high) && self.store.may_contain_range(index, low, high)
    }

    fn look(&self, index: StoreIndex, key: &[u8], entries: &mut Entries) -> Look {
        if !self.ranges.may_contain(index, key) {
            return Look::Absent;
        }
        match self.store.get_now(index, key) {
            Ok(Some(found)) if found.is_empty() => Look::Absent,
            Ok(Some(mut found)) => {
                if !matches!(self.fronts.resolve_now(&mut found), Ok(true)) {
                    return Look::Away;
                }
                found.iter().for_each(|found| entries.push(found.batch, key, &found.record));
                Look::Here
            }
            // What is wrong with a page is told by who reads it.
            Ok(None) | Err(_) => Look::Away,
        }
    }

    fn is_long_group(&self, index: StoreIndex, key: &[u8]) -> bool {
        self.store.group_pages(index, key) > GROUP_PAGES
    }

    fn prefetch(&self, index: StoreIndex, key: &[u8]) {
        if self.ranges.may_contain(index, key) {
            self.store.prefetch(index, key);
        }
    }

    fn get<'a>(&'a self, index: StoreIndex, key: &'a [u8]) -> Pending<'a, Vec<Found>> {
        Box::pin(async move {
            let mut found = self.store.get(index, key).await?;
            self.fronts.resolve(&mut found).await?;
            Ok(found)
        })
    }

    fn get_group<'a>(&'a self, index: StoreIndex, key: &'a [u8]) -> Pending<'a, Vec<FoundKey>> {
        Box::pin(self.store.get_group(index, key))
    }

    fn scan(
        &self,
        index: StoreIndex,
        low: &[u8],
        high: Option<&[u8]>,
        direction: Direction,
    ) -> Box<dyn ColdScan> {
        let scan = self.store.scan(index, low, high, direction);
        if is_secondary(index) { Box::new(scan) } else { Box::new(RowScan::new(scan, &self.fronts)) }
    }

    fn may_contain_table(&self, table: TableId) -> bool {
        self.tables.may_contain(table)
    }

    fn drop_index(&self, index: StoreIndex) {
        self.store.drop_index(index);
    }

    fn drop_batches(&self, index: StoreIndex, to: BatchId, now: bool) {
        self.store.drop_batches(index, to, now);
    }

    fn retain(&self, is_wanted: &dyn Fn(StoreIndex) -> bool) {
        let unwanted = self.store.indexes().into_iter().filter(|index| !is_wanted(*index));
        unwanted.for_each(|index| self.store.drop_index(index));
    }

    fn pin(&self) -> Option<Pinned> {
        Some(self.store.pin())
    }

    fn end(&self) -> StoreEnd {
        self.store.end()
    }

    fn owner_position(&self) -> OwnerPosition {
        self.store.owner_position()
    }

    fn usage(&self) -> StoreUsage {
        let all = self.store.statistics();
        let primary = all.indexes.iter().filter(|(index, _)| index.index == 0);
        StoreUsage {
            device_reads: all.page_reads,
            device_write_bytes: all.device_bytes_written,
            false_positives: all.false_positives,
            records: primary.map(|(_, of)| of.records.saturating_sub(of.removals)).sum(),
            filter_bytes: all.filter_memory_bytes,
            fence_bytes: all.fence_memory_bytes,
            buffer_bytes: all.block_memory_bytes,
            frame_bytes: all.frame_bytes,
            disk_bytes: all.file_bytes + all.journal_disk_bytes,
        }
    }

    fn ssd(&self) -> Option<SsdStats> {
        self.store.ssd()
    }

    fn ssd_shares(&self, saved: Option<&SavedMap>) -> Option<(BTreeMap<StoreIndex, SsdShare>, SsdShare)> {
        match saved {
            Some(map) => Some(self.store.ssd_shares_of(map)),
            None => self.store.ssd_shares(),
        }
    }

    fn memory(&self) -> StoreMemoryUse {
        let all = self.store.memory();
        StoreMemoryUse {
            filters: all.filters,
            fences: all.fences + self.fronts.bytes() + self.ranges.bytes(),
            buffers: all.blocks + all.buffers + all.ssd,
            frames: all.frames,
        }
    }

    fn step(&self, work: bool) -> bool {
        self.store.step(if work { Step::Work } else { Step::Journal })
    }

    fn is_idle(&self) -> bool {
        self.store.is_idle()
    }

    fn keeps_pages(&self) -> bool {
        true
    }

    fn set_frame_bytes(&self, bytes: u64) {
        self.store.set_frame_bytes(bytes);
        self.fronts.fit(bytes);
    }

    fn tables(&self) -> BTreeMap<u32, TableUsage> {
        let mut tables: BTreeMap<u32, TableUsage> = BTreeMap::new();
        for (index, of) in self.store.index_statistics() {
            let table = tables.entry(index.table).or_default();
            table.filter_bytes += of.filter_bytes;
            if index.index == 0 {
                table.records = of.records.saturating_sub(of.removals);
                table.bytes = of.bytes;
                table.filter_error_rate = of.filter_error_rate;
            }
        }
        tables
    }

    fn close(&self) {
        self.store.close();
    }
}

/// The ranges of the keys that a batch puts.
fn ranges_of(batch: &Batch) -> New {
    let mut keys: BTreeMap<StoreIndex, Vec<&[u8]>> = BTreeMap::new();
    for entry in batch.entries().filter(|entry| matches!(entry.change, Change::Put(_))) {
        keys.entry(entry.index).or_default().push(entry.key);
    }
    let mut new = New::default();
    keys.into_iter().for_each(|(index, keys)| new.add(index, keys.into_iter()));
    new
}

impl ColdScan for Scan {
    fn next(&mut self) -> Pending<'_, Option<FoundKey>> {
        Box::pin(Scan::next(self))
    }
}
