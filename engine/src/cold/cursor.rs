//! The cold side of a scan: the next entries of a range read of the store, fetched one key at a time, when the scan has
//! come that far. So the first `k` rows of a scan need `k` keys of the store and one more, to see who is next.
//!
//! In a secondary index each entry leads to a record somewhere else, and a scan that read one after the other would wait for
//! the device once a row. So entries are read a *window* at a time, and then the records of those that the scan's snapshot sees:
//! in the order of their primary keys, which is that of their pages, [`TOGETHER`] at the same time. The scan still shows them in
//! the order of the index, and judges each one as it would without: a record that has been read ahead was read under the scan's
//! snapshot, which keeps the notices that say when it is valid (see [`crate::cold::cache`]).
//!
//! All rows of one key are read the same way: its entries are known at once, if they are few, or come from a scan of its group.
//!
//! - The first window of a scan is one entry, that of a key eight; each further one is twice as long, to [`WINDOW`] entries or [`WINDOW_BYTES`] of records, so a
//!   scan that stops early has read no more than twice what it needed.
//! - A window counts under the memory limit, beyond what small scans take ([`UNCOUNTED_BYTES`]), from before it is read until the
//!   next one is. Where it has no room it is halved, down to one entry, which is read in any case: a scan gets slower, and never an error.
//! - What was not found, or not read for an error, is looked up again by who shows the row.

use std::collections::VecDeque;
use std::sync::Arc;

use thermocline_pool::store::{Found, IndexId as StoreIndex, StoreError};

use crate::cold::cache::Fetched;
use crate::cold::store::{ColdScan, ColdStore, split_secondary};
use crate::cold::together::together;
use crate::hot::budget::{Budget, Charge, MemoryKind};

/// Entries of a window, at most.
const WINDOW: usize = 1024;
/// Entries of the first window where all rows of a key are wanted.
const FIRST_OF_KEY: usize = 8;
/// Bytes of the records of a window, about, at most.
const WINDOW_BYTES: usize = 512 << 10;
/// Records that are read at the same time.
const TOGETHER: usize = 64;

/// Bytes of a window that are not counted under the memory limit.
const UNCOUNTED_BYTES: u64 = 64 << 10;
/// What an entry of a window is taken to need before one was read.
const ENTRY_BYTES: u64 = 512;

/// An entry that comes next.
#[derive(Debug)]
pub(crate) struct ColdEntry {
    /// Its key in the index.
    pub(crate) key: Vec<u8>,
    /// Its batch.
    pub(crate) batch: u64,
    /// Its primary key.
    pub(crate) primary: Box<[u8]>,
    /// The row with its hidden key, as it left memory; empty in secondary indexes, unless it was read ahead.
    pub(crate) bytes: Vec<u8>,
    /// `bytes` are those of the record.
    pub(crate) has_record: bool,
    /// The scan's snapshot may see it.
    pub(crate) is_wanted: bool,
}

/// Where entries come from.
#[derive(Debug)]
enum Source {
    Scan(Box<dyn ColdScan>),
    /// Those of one key of a secondary index, and the number of the next one.
    Key(Box<[u8]>, Arc<Fetched>, usize),
}

/// Where a scan stands in the cold store.
#[derive(Debug)]
pub(crate) struct ColdCursor {
    source: Source,
    secondary: bool,
    ready: VecDeque<ColdEntry>,
    ended: bool,
    /// Entries of the next window, if there is room.
    window: usize,
    /// What an entry takes, with its record.
    entry_bytes: u64,
    charge: Charge,
}

impl ColdEntry {
    fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + self.key.capacity() + self.primary.len() + self.bytes.capacity()) as u64
    }
}

impl ColdCursor {
    pub(crate) fn new(scan: Box<dyn ColdScan>, secondary: bool, budget: &Arc<Budget>) -> Self {
        Self::over(Source::Scan(scan), secondary, 1, ENTRY_BYTES, budget)
    }

    /// The rows of a key of a secondary index, of which the longest takes about so many bytes. `scan`: of the key's entries.
    pub(crate) fn of_scanned_key(scan: Box<dyn ColdScan>, longest: u64, budget: &Arc<Budget>) -> Self {
        Self::of_source(Source::Scan(scan), longest, budget)
    }

    /// The same, of a key whose entries are known.
    pub(crate) fn of_key(key: &[u8], entries: Arc<Fetched>, longest: u64, budget: &Arc<Budget>) -> Self {
        Self::of_source(Source::Key(key.into(), entries, 0), longest, budget)
    }

    fn of_source(source: Source, longest: u64, budget: &Arc<Budget>) -> Self {
        let fitting = (WINDOW_BYTES as u64 / longest.max(1)).clamp(1, FIRST_OF_KEY as u64);
        Self::over(source, true, fitting as usize, longest.max(ENTRY_BYTES), budget)
    }

    fn over(source: Source, secondary: bool, window: usize, entry_bytes: u64, budget: &Arc<Budget>) -> Self {
        Self {
            source,
            secondary,
            ready: VecDeque::new(),
            ended: false,
            window,
            entry_bytes,
            charge: Charge::none(budget, MemoryKind::Transactions),
        }
    }

    /// The next entry, if it is known.
    pub(crate) fn head(&self) -> Option<&ColdEntry> {
        self.ready.front()
    }

    /// Is there nothing behind what is known?
    pub(crate) fn is_at_end(&self) -> bool {
        self.ended && self.ready.is_empty()
    }

    /// Goes on to the next entry.
    pub(crate) fn pop(&mut self) {
        self.ready.pop_front();
    }

    /// Does it lead to records that are somewhere else?
    pub(crate) fn is_secondary(&self) -> bool {
        self.secondary
    }

    /// The entries that are known.
    pub(crate) fn known(&mut self) -> impl Iterator<Item = &mut ColdEntry> {
        self.ready.iter_mut()
    }

    /// Reads the next key; of a secondary index, the next window of them.
    pub(crate) async fn advance(&mut self) -> Result<(), StoreError> {
        let keys = if self.secondary { self.affordable() } else { 1 };
        while !self.ended && self.ready.len() < keys {
            self.read_key().await?;
        }
        self.window = (2 * keys).min(WINDOW);
        Ok(())
    }

    /// Counts a window of so many bytes under the memory limit. `false`: there is no room for that, and what was counted stays so.
    fn count(&mut self, window_bytes: u64) -> bool {
        let (counted, before) = (window_bytes.saturating_sub(UNCOUNTED_BYTES), self.charge.bytes());
        self.charge.give_back(before.saturating_sub(counted));
        counted <= before || self.charge.add(counted - before).is_ok()
    }

    /// Takes memory for the next window: how many entries there is room for.
    fn affordable(&mut self) -> usize {
        let mut keys = self.window;
        while !self.count(keys as u64 * self.entry_bytes) && keys > 1 {
            keys /= 2;
        }
        keys
    }

    async fn read_key(&mut self) -> Result<(), StoreError> {
        let scan = match &mut self.source {
            Source::Scan(scan) => scan,
            Source::Key(key, entries, next) => {
                if *next == entries.len() {
                    self.ended = true;
                    return Ok(());
                }
                let record = entries.record(*next);
                let (key, primary, bytes) = (key.to_vec(), record.key.into(), Vec::new());
                *next += 1;
                let batch = record.batch;
                self.ready.push_back(ColdEntry {
                    key,
                    batch,
                    primary,
                    bytes,
                    has_record: false,
                    is_wanted: true,
                });
                return Ok(());
            }
        };
        let Some(found) = scan.next().await? else {
            self.ended = true;
            return Ok(());
        };
        let (key, primary) = match split_secondary(&found.key) {
            Some((key, primary)) if self.secondary => (key, primary),
            _ => (&*found.key, &*found.key),
        };
        self.ready.extend(found.entries.into_iter().map(|entry| ColdEntry {
            key: key.to_vec(),
            batch: entry.batch.0,
            primary: primary.into(),
            bytes: entry.record,
            has_record: !self.secondary,
            is_wanted: true,
        }));
        Ok(())
    }

    /// Reads the records of the entries that are known and wanted; how many.
    pub(crate) async fn fetch(&mut self, store: &dyn ColdStore, primary: StoreIndex) -> usize {
        let is_due = |at: &usize| self.ready[*at].is_wanted && !self.ready[*at].has_record;
        let mut due: Vec<usize> = (0..self.ready.len()).filter(is_due).collect();
        if due.is_empty() {
            return 0;
        }
        due.sort_unstable_by(|one, other| self.ready[*one].primary.cmp(&self.ready[*other].primary));
        let found = read_all(store, primary, &self.ready, &due).await;
        let (mut records, mut bytes) = (0, 0);
        for (at, found) in found {
            let entry = &mut self.ready[at];
            if let Some(found) = found.into_iter().find(|found| found.batch.0 == entry.batch) {
                (records, bytes) = (records + 1, bytes + found.record.len());
                (entry.bytes, entry.has_record) = (found.record, true);
            }
        }
        let fitting = WINDOW_BYTES * records / bytes.max(1);
        self.window = self.window.min(fitting.max(1));
        let taken: u64 = self.ready.iter().map(ColdEntry::memory_bytes).sum();
        self.entry_bytes = taken.div_ceil(self.ready.len().max(1) as u64).max(1);
        // What it has not been counted for is there already: the next one is as much smaller.
        self.count(taken);
        due.len()
    }
}

/// Reads the records of the entries `due`, in this order, [`TOGETHER`] at a time. What fails is left out.
async fn read_all(
    store: &dyn ColdStore,
    primary: StoreIndex,
    entries: &VecDeque<ColdEntry>,
    due: &[usize],
) -> Vec<(usize, Vec<Found>)> {
    let reads = due.iter().map(|at| {
        let read = store.get(primary, &entries[*at].primary);
        async move { (*at, read.await) }
    });
    let mut done = Vec::with_capacity(due.len());
    together(TOGETHER, reads, |(at, outcome)| done.extend(outcome.ok().map(|found| (at, found)))).await;
    done
}
