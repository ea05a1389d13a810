//! The store of cold records: sorted runs, appended and merged in the background.
//!
//! ```text
//!   write(batch)                     get(index, key), scan(index, range), may_contain
//!      │                                        ▲
//!      ▼                                        │ newest first
//!   journal ──durable──► waiting (unconfirmed) ─┤
//!                        active block ──────────┤
//!                          │ full               │
//!                        sealed blocks ─────────┤
//!                          │ flush              │
//!                        young pieces ──────────┤    each with fences and a filter in memory
//!                          │ merge              │
//!                        last-level pieces ─────┘
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | `types`, `codec` | batches and entries, and their bytes |
//! | `commit`, `journal`, `memory` | the way of a batch: queue, journal, blocks in memory |
//! | `work`, `merge`, `wide` | flushing and merging, and when |
//! | `piece`, `writer`, `block`, `fence`, `filter`, `screen` | sorted runs of pages, and what of them is in memory |
//! | `manifest`, `recover` | which pieces there are, durably; opening |
//! | `object` | bytes that the entries of a batch share |
//! | `copy` | one moment of a store, and a copy of it as bytes |
//! | `version`, `read`, `scan` | what readers see, and how they read it |
//!
//! An *entry* is (table, index, key, batch) → record. A *batch* becomes durable as one; its owner confirms or discards it, by
//! its id alone, and until then it is not merged with others. A *removal* kills exactly one entry, whose batch is
//! confirmed. The store is not transactional: it tells which batch an entry is of, and its owner knows what that means.
//!
//! States of a batch: written → durable (unconfirmed) → confirmed | discarded.
//!
//! Invariant: a filter never says no for an entry that is there; nothing acknowledged is lost; nothing of a batch is seen
//! before all of it is durable.

mod block;
mod bulk;
mod codec;
mod commit;
mod copy;
mod end;
mod error;
mod fence;
mod filter;
pub mod fuzzing;
mod group;
mod heat;
mod held;
mod inner;
mod journal;
mod manifest;
mod memory;
mod merge;
#[cfg(all(test, feature = "model"))]
mod model_tests;
mod object;
mod options;
mod piece;
mod promise;
mod read;
mod recover;
mod scan;
mod screen;
mod share;
mod statistics;
mod tail;
#[cfg(test)]
mod tests;
mod types;
mod verify;
mod version;
mod wide;
mod work;
mod writer;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use thermocline_base::io::Io;
use thermocline_base::sync::{Mutex, Ordering};

use crate::mutation::{self, Rule};
use crate::ssd::{SavedMap, SsdState, SsdStats};

pub use copy::Pinned;
pub use end::{OwnerPosition, StoreEnd, StoreOwner};
pub use error::{PageReason, Result, StoreError};
use filter::Scratch;
use inner::Inner;
pub use manifest::MANIFEST_NAME;
pub use object::{MAX_OBJECT_BYTES, Object, ObjectBatch, ObjectEntries};
pub use options::StoreOptions;
use read::Want;
pub use scan::{Direction, FoundKey, Scan};
pub use share::SsdShare;
pub use statistics::{IndexStatistics, MemoryUse, Statistics};
pub use types::{
    Batch, BatchEntry, BatchId, Change, Found, IndexId, KeyRange, MAX_BATCH_BYTES, MAX_KEY_BYTES,
    MAX_RECORD_BYTES, Removal, TAILED,
};
pub use verify::{Look, Seen, Verification};

/// A store of cold records in a directory.
#[derive(Debug)]
pub struct Store {
    inner: Arc<Inner>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
    /// For steps by hand.
    scratch: Mutex<Scratch>,
}

/// The steps that [`Store::step`] may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// One group of the journal.
    Journal,
    /// One flush, merge or the like.
    Work,
}

impl Store {
    /// Opens the store in `dir`, or creates it, and starts its threads. Blocks.
    ///
    /// # Errors
    /// When the files are foreign, newer, damaged or another database's, when the store is open already, and the system's.
    pub fn open(io: Arc<dyn Io>, dir: &Path, options: StoreOptions) -> Result<Arc<Self>> {
        let inner = recover::open(&io, dir, options)?;
        let store = Self { threads: Mutex::new(Vec::new()), scratch: Mutex::new(inner.new_scratch()), inner };
        store.start()?;
        Ok(Arc::new(store))
    }

    fn start(&self) -> Result<()> {
        if self.inner.options.threads == 0 {
            return Ok(());
        }
        let mut threads = self.threads.lock();
        let spawn = |name: &str, body: fn(&Arc<Inner>)| {
            let inner = Arc::clone(&self.inner);
            std::thread::Builder::new().name(name.into()).spawn(move || body(&inner)).map_err(|error| {
                let dir = &self.inner.dir;
                StoreError::Io(thermocline_base::io::IoError::new(
                    thermocline_base::io::Action::Open,
                    dir,
                    None,
                    error,
                ))
            })
        };
        threads.push(spawn("store journal", journal_thread)?);
        for _ in 0..self.inner.options.threads {
            threads.push(spawn("store work", work_thread)?);
        }
        Ok(())
    }

    /// Writes a batch. Resolves when it is durable. Dropping the future does not take back what is in flight; the batch may
    /// then be there or not, and [`Store::quiescent`] tells when that is decided. Once a batch is confirmed, another confirmed
    /// one with its id may add entries under other keys.
    ///
    /// # Errors
    /// [`StoreError::Full`], when nothing of it is there; and when the store is read-only or closed.
    pub fn write(&self, batch: Batch) -> impl Future<Output = Result<()>> + Send + 'static {
        let inner = Arc::clone(&self.inner);
        async move { inner.write(batch).await }
    }

    /// Writes a batch whose records stand in one object, past the journal: all of it or nothing. Resolves when it is durable,
    /// unconfirmed. Dropping the future does not take back what is in flight.
    ///
    /// # Errors
    /// [`StoreError::NotSorted`], what is too long, and those of [`Store::write`].
    pub fn write_object(&self, batch: ObjectBatch) -> impl Future<Output = Result<()>> + Send + 'static {
        self.inner.write_object(batch)
    }

    /// Confirms a batch: it may be merged with others from now on, and its removals take effect. Durable no later than the
    /// first merge that it is part of; a crash before that leaves it unconfirmed, and its owner decides again.
    ///
    /// # Errors
    /// [`StoreError::UnknownBatch`] when no such batch waits.
    pub fn confirm(&self, batch: BatchId) -> impl Future<Output = Result<()>> + Send + 'static {
        let inner = Arc::clone(&self.inner);
        async move { inner.confirm(batch).await }
    }

    /// Discards a batch: nothing of it is there any more. Resolves when that is durable. A write of the batch that is in
    /// flight comes first. A batch that is not there needs no discarding, which is no error.
    ///
    /// # Errors
    /// When the store is read-only, full or closed.
    pub fn discard(&self, batch: BatchId) -> impl Future<Output = Result<()>> + Send + 'static {
        let inner = Arc::clone(&self.inner);
        async move { inner.discard(batch).await }
    }

    /// Resolves when nothing of a batch is in flight: no write of it will land any more.
    pub fn quiescent(&self, batch: BatchId) -> impl Future<Output = ()> + Send + 'static {
        let inner = Arc::clone(&self.inner);
        async move { inner.quiescent(batch).await }
    }

    /// The batches that wait for a decision.
    #[must_use]
    pub fn unconfirmed(&self) -> Vec<BatchId> {
        let mut ids: Vec<_> = self.inner.current().waiting.iter().map(version::WaitingBatch::id).collect();
        ids.sort_unstable();
        ids
    }

    /// May there be an entry of this key? No I/O. "No" is certain.
    #[must_use]
    #[inline]
    pub fn may_contain(&self, index: IndexId, key: &[u8]) -> bool {
        self.inner.may_contain(index.as_u64(), key)
    }

    /// [`Store::may_contain`] for many keys at once: their cache misses overlap, which makes it several times as fast.
    ///
    /// # Panics
    /// When there are not as many answers as keys.
    pub fn may_contain_all<K: AsRef<[u8]>>(&self, index: IndexId, keys: &[K], answers: &mut [bool]) {
        assert_eq!(keys.len(), answers.len(), "each key has an answer");
        self.inner.may_contain_all(index.as_u64(), keys, answers);
    }

    /// May there be an entry of this group, in an index whose keys have tails ([`TAILED`])? No I/O. "No" is certain.
    #[must_use]
    #[inline]
    pub fn may_contain_group(&self, index: IndexId, group: &[u8]) -> bool {
        self.inner.may_contain_group(index.as_u64(), group)
    }

    /// [`Store::may_contain_group`] for many groups at once; see [`Store::may_contain_all`].
    ///
    /// # Panics
    /// When there are not as many answers as groups.
    pub fn may_contain_groups<K: AsRef<[u8]>>(&self, index: IndexId, groups: &[K], answers: &mut [bool]) {
        assert_eq!(groups.len(), answers.len(), "each group has an answer");
        self.inner.may_contain_groups(index.as_u64(), groups, answers);
    }

    /// Number of pages that may have entries of a group, as far as what is in memory tells. No I/O.
    #[must_use]
    pub fn group_pages(&self, index: IndexId, group: &[u8]) -> usize {
        self.inner.group_pages(index.as_u64(), group)
    }

    /// All live entries of a group, in an index whose keys have tails, in the order of their keys; unconfirmed ones too.
    ///
    /// # Errors
    /// When a page cannot be read.
    pub async fn get_group(&self, index: IndexId, group: &[u8]) -> Result<Vec<FoundKey>> {
        self.inner.get_group(index.as_u64(), group).await
    }

    /// May there be an entry of the index from `low` (included) to `high` (excluded)? No I/O. "No" is certain.
    #[must_use]
    pub fn may_contain_range(&self, index: IndexId, low: &[u8], high: Option<&[u8]>) -> bool {
        self.inner.may_contain_range(index.as_u64(), low, high)
    }

    /// The entries of the index from `low` (included) to `high` (excluded; `None`: to the end), in either direction, as they
    /// are now.
    #[must_use]
    pub fn scan(&self, index: IndexId, low: &[u8], high: Option<&[u8]>, direction: Direction) -> Scan {
        self.inner.scan(index.as_u64(), low, high, direction)
    }

    /// All live entries of a key, the newest batch first, unconfirmed ones too.
    ///
    /// # Errors
    /// When a page cannot be read.
    pub async fn get(&self, index: IndexId, key: &[u8]) -> Result<Vec<Found>> {
        self.inner.get(index.as_u64(), key, Want::All).await
    }

    /// [`Store::get`], as far as it goes without waiting: if blocks in memory and cached pages have the answer, or filters
    /// deny the key. `None`: it takes a read of the device to know.
    ///
    /// # Errors
    /// When a page makes no sense.
    pub fn get_now(&self, index: IndexId, key: &[u8]) -> Result<Option<Vec<Found>>> {
        self.inner.get_now(index.as_u64(), key, Want::All)
    }

    /// Asks the processor for what [`Store::may_contain`] and [`Store::get_now`] will look at first. Changes nothing.
    pub fn prefetch(&self, index: IndexId, key: &[u8]) {
        self.inner.prefetch(index.as_u64(), key);
    }

    /// The live entry of a key that was confirmed last.
    ///
    /// # Errors
    /// When a page cannot be read.
    pub async fn get_newest(&self, index: IndexId, key: &[u8]) -> Result<Option<Found>> {
        Ok(self.inner.get(index.as_u64(), key, Want::Newest).await?.pop())
    }

    /// Reads all pages of all pieces and checks them: checksums, order, fences, filters, counts, and that no extent has two
    /// users. Blocks, and reads everything; the store goes on meanwhile.
    #[must_use]
    pub fn verify(&self) -> Verification {
        self.inner.verify(&mut |_| {})
    }

    /// The same, and shows each record to `look`, of whose bytes the store knows nothing.
    #[must_use]
    pub fn verify_with(&self, look: &mut Look<'_>) -> Verification {
        self.inner.verify(look)
    }

    /// Writes entries straight into the last level: `entries` gives (index, key, record) in order of index and key, each
    /// key once. They are of `batch`, confirmed, and durable all together when this returns. Blocks.
    ///
    /// # Errors
    /// [`StoreError::NotSorted`], and those of [`Store::write`]. Nothing was loaded then.
    pub fn bulk_load<'a>(
        &self,
        batch: BatchId,
        entries: impl Iterator<Item = (IndexId, &'a [u8], &'a [u8])>,
    ) -> Result<u64> {
        self.inner.bulk_load(batch, entries)
    }

    /// The indexes of which something may be there, sorted.
    #[must_use]
    pub fn indexes(&self) -> Vec<IndexId> {
        self.inner.indexes()
    }

    /// An index is gone for good; no caller will ask for its entries or write any. Merges leave them out, and leaves
    /// that have some are merged. Not durable: its owner, which knows which indexes exist, says it again after
    /// opening.
    pub fn drop_index(&self, index: IndexId) {
        self.inner.drop_index(index.as_u64());
    }

    /// Entries that batches up to this one have written to an index are of no use any more, and no caller will ask
    /// for them: merges and flushes leave them out. `now`: leaves that may have some are merged for it; else that
    /// waits until they are anyway. Not durable: its owner says it again after opening.
    pub fn drop_batches(&self, index: IndexId, to: BatchId, now: bool) {
        self.inner.drop_batches(index.as_u64(), to.0, now);
    }

    /// The store's statistics.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.inner.statistics()
    }

    /// Each index in numbers: what [`Statistics::indexes`] says, and in records, removals and bytes what is confirmed and
    /// stands in memory, and in the journal, until its block is flushed. Goes through all of that: not for every
    /// millisecond.
    #[must_use]
    pub fn index_statistics(&self) -> std::collections::BTreeMap<IndexId, IndexStatistics> {
        self.inner.indexes_with_blocks()
    }

    /// Memory that it takes, by purpose. Cheaper than [`Store::statistics`].
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        self.inner.memory()
    }

    /// Changes the bytes of frames, up to those of the options; less takes effect at once but for pages that are in use,
    /// and drops the coldest ones. Returns by how many bytes they are still over. Frames that are shared change for all.
    pub fn set_frame_bytes(&self, bytes: u64) -> u64 {
        self.inner.files.pool.set_budget(bytes)
    }

    /// The SSD below the page file, if there is one.
    #[must_use]
    pub fn ssd(&self) -> Option<SsdStats> {
        self.inner.files.device.ssd().map(|ssd| ssd.stats())
    }

    /// The shares of each index, and of filters and fences, that lie on the SSD. Asks about each page of the store:
    /// not for every second. `None`: there is no SSD in use.
    #[must_use]
    pub fn ssd_shares(&self) -> Option<(std::collections::BTreeMap<IndexId, SsdShare>, SsdShare)> {
        let level = self.inner.files.device.ssd().filter(|level| level.stats().state == SsdState::On)?;
        Some(self.inner.ssd_shares(&|pages, version| level.cached(pages, version)))
    }

    /// The same, of what a level has saved for the next opening.
    #[must_use]
    pub fn ssd_shares_of(&self, map: &SavedMap) -> (std::collections::BTreeMap<IndexId, SsdShare>, SsdShare) {
        self.inner.ssd_shares(&|pages, version| map.cached(pages, version))
    }

    /// Is there nothing to do in the background, now?
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.inner.is_idle()
    }

    /// Does one piece of background work, for stores without threads. `false`: there was none.
    pub fn step(&self, step: Step) -> bool {
        match step {
            Step::Journal => self.inner.step_journal(),
            Step::Work => self.inner.step_work(&mut self.scratch.lock()),
        }
    }

    /// The greatest position of its owner that the store carries: what is in it depends on the owner's log up to there.
    #[must_use]
    pub fn owner_position(&self) -> OwnerPosition {
        self.inner.keeper.carried()
    }

    /// Up to where its files are durable.
    #[must_use]
    pub fn end(&self) -> StoreEnd {
        self.inner.keeper.end()
    }

    /// Ends the threads, after what is in the queue is durable. Reads go on; writes are refused.
    pub fn close(&self) {
        self.inner.queue.lock().closed = true;
        self.inner.queue_signal.ring();
        if self.inner.options.threads == 0 {
            while self.inner.step_journal() {}
        }
        let mut threads = std::mem::take(&mut *self.threads.lock()).into_iter();
        if let Some(journal) = threads.next() {
            let _ = journal.join();
        }
        self.inner.write_collected();
        self.inner.closing.store(true, Ordering::Release);
        self.inner.work_signal.ring();
        for thread in threads {
            let _ = thread.join();
        }
        self.inner.refuse_objects(&StoreError::Closed);
        self.inner.wake_crowd();
        // A caller that keeps the handle does not keep others from opening the store.
        self.inner.lock.lock().take();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

fn journal_thread(inner: &Arc<Inner>) {
    loop {
        let mut heard = inner.queue_signal.heard();
        if inner.step_journal() {
            continue;
        }
        if inner.queue.lock().closed {
            return;
        }
        if mutation::off(Rule::HeardBeforeLook) {
            heard = inner.queue_signal.heard();
        }
        inner.queue_signal.wait(heard);
    }
}

fn work_thread(inner: &Arc<Inner>) {
    thermocline_base::background::stand_back();
    let mut scratch = inner.new_scratch();
    loop {
        let heard = inner.work_signal.heard();
        if inner.closing.load(Ordering::Acquire) {
            return;
        }
        if !inner.step_work(&mut scratch) {
            inner.work_signal.wait(heard);
        }
    }
}
