//! Rows outside of memory: the cold store, the update memo that says when its records are valid, and what transactions
//! keep of what they have read there (Eldawy et al., VLDB 2014, §4-5).
//!
//! | module | what |
//! |---|---|
//! | `store` | what the engine asks of a store |
//! | `memo` | notices: from when to when records are valid |
//! | `cache` | records that one transaction has read |
//! | `cursor` | the cold side of a scan |
//! | `place` | which rows an error is about |

pub(crate) mod cache;
pub(crate) mod cursor;
mod direct;
mod filter;
pub(crate) mod location;
pub(crate) mod memo;
mod memory;
pub(crate) mod objects;
mod pages;
pub(crate) mod place;
mod ranges;
pub(crate) mod store;
#[cfg(test)]
mod store_tests;
mod together;

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use thermocline_base::ids::{RowId, Timestamp};
use thermocline_base::io::{Io, IoError, SystemIo};
use thermocline_base::multiplex::block_on;
use thermocline_base::sync::{AtomicU64, Mutex, Ordering};
use thermocline_pool::ssd::SsdOptions;
use thermocline_pool::store::{Found, IndexId, OwnerPosition, StoreEnd, StoreError, StoreOptions};

use crate::cold::direct::{DirectOptions, DirectStore};
use crate::cold::memory::MemoryStore;
use crate::cold::pages::PageStore;
use crate::cold::store::{ColdStore, StoreMemory, StoreTies};
use crate::mutation::{self, Rule};
use crate::options::{ColdStoreKind, Options};

/// What is cold in a database, and what is being done about it.
#[derive(Debug)]
pub(crate) struct Cold {
    pub(crate) store: Arc<dyn ColdStore>,
    /// The store has no threads: a test does its steps.
    driven: bool,
    /// What is under way.
    pub(crate) progress: Mutex<Progress>,
    pub(crate) counters: ColdCounters,
}

impl Cold {
    pub(crate) fn new(store: Arc<dyn ColdStore>, driven: bool) -> Self {
        Self { store, driven, progress: Mutex::default(), counters: ColdCounters::default() }
    }

    /// Runs a future of the store to its end, blocking. Where nobody else does the store's work, this does.
    pub(crate) fn finish<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return output;
            }
            if !self.driven || !self.store.step(false) && !self.store.step(true) {
                return block_on(future);
            }
        }
    }
}

impl Cold {
    /// Waits until the store has no more than so many bytes on their way to the device, or nothing to do; but not for long.
    pub(crate) fn let_catch_up(&self, bytes: u64) {
        const TURNS: usize = 5000;
        for _ in 0..TURNS {
            if self.store.memory().buffers <= bytes || self.store.is_idle() {
                return;
            }
            if !self.driven {
                std::thread::sleep(Duration::from_micros(200));
            } else if !self.store.step(false) && !self.store.step(true) {
                return;
            }
        }
    }
}

/// A round of cleaning, or what keeps others from beginning one, until it is dropped.
#[derive(Debug)]
pub(crate) struct CleaningRound<'a>(&'a Cold);

impl Cold {
    /// Begins a round of cleaning. `None`: one is under way, or a backup wants none.
    pub(crate) fn begin_cleaning(&self) -> Option<CleaningRound<'_>> {
        let mut progress = self.progress.lock();
        let wanted = progress.no_cleaning == 0 || mutation::off(Rule::BackupPausesRemovals);
        if !wanted {
            return None;
        }
        self.take_round(&mut progress)
    }

    /// Nothing is cleaned until what is returned is dropped. `None`: a round is under way.
    pub(crate) fn instead_of_cleaning(&self) -> Option<CleaningRound<'_>> {
        self.take_round(&mut self.progress.lock())
    }

    fn take_round(&self, progress: &mut Progress) -> Option<CleaningRound<'_>> {
        if progress.cleaning {
            return None;
        }
        progress.cleaning = true;
        Some(CleaningRound(self))
    }
}

impl Drop for CleaningRound<'_> {
    fn drop(&mut self) {
        self.0.progress.lock().cleaning = false;
    }
}

impl Cold {
    /// May what is left of dropped tables and indexes go? Not while a backup copies records: its catalog may be from before
    /// the drop. It goes when the store is opened again. Asked by who changes definitions, under the lock for that.
    pub(crate) fn may_drop(&self) -> bool {
        self.progress.lock().no_cleaning == 0
    }
}

/// What is under way between memory and the store.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Batches whose migration runs, up to the store's knowing that they stay.
    pub(crate) running: BTreeSet<u64>,
    /// Notices whose records have gone, and the clock then.
    pub(crate) removed: VecDeque<Removed>,
    /// Rows of notices in `removed`.
    pub(crate) removing: BTreeSet<(NoticeTable, RowId)>,
    /// A round of cleaning is under way. There is one at a time.
    pub(crate) cleaning: bool,
    /// Backups that want no row to leave memory now, and those that want no record to be removed.
    pub(crate) no_moves: u32,
    pub(crate) no_cleaning: u32,
}

/// Which of the memo's tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum NoticeTable {
    Batches,
    Ends,
}

/// A notice whose record has gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removed {
    pub(crate) table: NoticeTable,
    pub(crate) row: RowId,
    /// The clock when the removal had become durable.
    pub(crate) at: Timestamp,
}

/// Counters since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct ColdCounters {
    /// Reads of the store by transactions.
    pub(crate) reads: AtomicU64,
    /// Rows that were migrated, batches that were given up, rows that left their batch.
    pub(crate) migrated_rows: AtomicU64,
    pub(crate) migrated_bytes: AtomicU64,
    pub(crate) abandoned_batches: AtomicU64,
    pub(crate) left_rows: AtomicU64,
    /// Chunks that have left memory whole, and their rows.
    pub(crate) left_chunks: AtomicU64,
    pub(crate) left_chunk_rows: AtomicU64,
    pub(crate) promoted_rows: AtomicU64,
    pub(crate) removed_records: AtomicU64,
    pub(crate) dropped_notices: AtomicU64,
}

impl ColdCounters {
    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// What a database's store of pages is opened with. Its files follow the length of its blocks in memory.
pub(crate) fn page_options(options: &Options, database: [u8; 16], memory: StoreMemory) -> StoreOptions {
    let usual = pages::options(database, memory);
    let block_bytes = options.cold_block_bytes.min(memory.block_bytes);
    StoreOptions {
        memory_bytes: block_bytes,
        segment_bytes: usual.segment_bytes.min(2 * block_bytes as u64),
        leaf_bytes: usual.leaf_bytes.min(8 * block_bytes as u64),
        threads: options.cold_threads,
        ..usual
    }
}

/// The SSD that the options name. Whoever opens a database to look has none: opening it would write.
pub(crate) fn ssd_options(options: &Options) -> Option<(Arc<dyn Io>, SsdOptions)> {
    let path = options.ssd_cache.as_ref().filter(|_| !options.read_only)?;
    // Threads of its own, where there are threads: a slow SSD holds up no read of the primary.
    let io = options.ssd_io.clone().unwrap_or_else(|| Arc::new(SystemIo::new()));
    let ssd = SsdOptions {
        policy: options.ssd_policy,
        heat_across_merges: options.ssd_heat_across_merges,
        ..SsdOptions::new(path, options.ssd_cache_bytes)
    };
    Some((io, ssd))
}

/// Is this the name of a file of a store?
pub(crate) fn is_name_of_store(name: &str) -> bool {
    let names = ["store.", "journal-", "slots-", direct::decisions::FILE_NAME];
    names.iter().any(|of_store| name.starts_with(of_store))
}

/// Which kind of store there is in a directory, if any.
pub(crate) fn kind_in(io: &dyn Io, dir: &Path) -> Result<Option<ColdStoreKind>, IoError> {
    let kinds = [
        (thermocline_pool::store::MANIFEST_NAME, ColdStoreKind::Pages),
        (direct::decisions::FILE_NAME, ColdStoreKind::Direct),
    ];
    for (name, kind) in kinds {
        if io.exists(&dir.join(name))? {
            return Ok(Some(kind));
        }
    }
    Ok(None)
}

/// Reads every slot of a store of the kind `direct`, and shows its records: the database's position that it carries, how many
/// records there are, and what is damaged.
pub(crate) fn verify_direct(
    io: &Arc<dyn Io>,
    dir: &Path,
    database: [u8; 16],
    least: StoreEnd,
    see: impl FnMut(IndexId, &[u8], &Found),
) -> Result<(OwnerPosition, u64, Vec<StoreError>), StoreError> {
    let options = DirectOptions { thread: false, ..DirectOptions::new(database) };
    let store = DirectStore::open(io, dir, options, StoreTies { owner: None, least })?;
    store.for_each_record(see);
    let found = (store.owner_position(), store.usage().records, store.damages());
    store.close();
    Ok(found)
}

/// Opens the cold store of a database in a directory, to use about so much memory.
pub(crate) fn open_store(
    options: &Options,
    io: &Arc<dyn Io>,
    dir: &Path,
    database: [u8; 16],
    memory: StoreMemory,
    ssd: Option<(Arc<dyn Io>, SsdOptions)>,
    ties: StoreTies,
) -> Result<Arc<dyn ColdStore>, StoreError> {
    Ok(match options.cold_store {
        ColdStoreKind::Pages => {
            let capture = options.page_capture.clone();
            let StoreTies { owner, least } = ties;
            let usual = page_options(options, database, memory);
            let pages = StoreOptions { ssd, lent: options.lent_to(false), capture, owner, least, ..usual };
            Arc::new(PageStore::open(Arc::clone(io), dir, pages)?)
        }
        ColdStoreKind::Memory => Arc::new(MemoryStore::new()),
        ColdStoreKind::Direct => {
            let thread = options.cold_threads > 0;
            let usual = DirectOptions::new(database).for_blocks_of(options.cold_block_bytes);
            let options = DirectOptions { thread, ..usual };
            Arc::new(DirectStore::open(io, dir, options, ties)?)
        }
    })
}
