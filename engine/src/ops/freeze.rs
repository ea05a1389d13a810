//! Freezing chunks that have settled, and thawing them whole (Funke, Kemper, Neumann, VLDB 2012, §3.3).
//!
//! One chunk at a time, beside transactions, none of which it aborts or lets wait for longer than a slot's move takes:
//!
//! 1. The rows that have settled are copied into a block: committed, with one version, not changed lately. Short pins, no
//!    lock. What is changed meanwhile is told by its begin when the slots are swapped, and stays as it is.
//! 2. Under the maintenance lock, if the table's form is still the one whose rows were copied: the block is linked to the
//!    chunk, and each slot that still leads to what was copied is swapped to name the block (`hot/chunk/freeze.rs`).
//! 3. The versions are retired through the epochs.
//!
//! Only a chunk freezes in which no slot can be filled any more: all of its slots are taken, no cursor holds one, and each
//! pin from before that has gone.
//!
//! An example: a chunk of four rows freezes while a transaction updates the third.
//!
//! | time | freezer | writer | slots |
//! |---|---|---|---|
//! | 1 | copies rows 0, 1, 2, 3 into block 9 | | versions |
//! | 2 | | updates row 2 | versions; row 2 has two |
//! | 3 | swaps 0 and 1, leaves 2 alone, swaps 3 | | 9, 9, version, 9 |
//! | 4 | | updates row 0: thaws it, then installs its version above that | version, 9, version, 9 |
//!
//! Freezing changes no row: nothing is logged, no image is made anew for it.

use std::sync::Arc;

use thermocline_base::ids::{RowId, Timestamp};
use thermocline_base::sync::Backoff;
use thermocline_frozen::{Builder, Choice};

use crate::catalog::table::{TableEntry, TableForm};
use crate::error::Result;
use crate::hot::block::{Begins, Block, Rows};
use crate::hot::budget::{Charge, MemoryKind};
use crate::hot::chunk::freeze::settled;
use crate::hot::chunk::{Chunk, Found};
use crate::hot::life::Outlook;
use crate::hot::store::Store;
use crate::mutation::{self, Rule};
use crate::row::Layout;
use crate::schema::is_internal;
use crate::session::db::Inner;

/// Slots that are looked at under one pin.
const SLOTS_A_PIN: u32 = 256;
/// How far ahead the processor is asked for versions: freezing is nothing but cache misses otherwise.
const SLOTS_AHEAD: u32 = 16;
/// A chunk with fewer rows than this share of its slots is packed rather than frozen.
const FULL_PERCENT: u32 = 25;
/// A chunk that is frozen is frozen anew when this share of its rows is out of its block and has settled.
const THAWED_SHARE: u32 = 8;

/// A builder takes so many times the bytes of its rows: columns stand as numbers of 64 bits, and once more while they are encoded.
pub(crate) const BUILDING: u64 = 3;

/// What freezing came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Freezing {
    /// Chunks that were frozen, or frozen anew.
    pub chunks: u64,
    /// Rows that are in their blocks now.
    pub rows: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
}

/// Which rows of a chunk freeze.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    /// Those that began at or before this.
    pub(crate) since: Timestamp,
    /// And those of them that are not to be expected to change.
    pub(crate) outlook: Option<Outlook>,
    /// Of a hundred rows so many may be otherwise, else the chunk is in use.
    pub(crate) young_percent: u32,
    /// Of a hundred slots so many have to have a row, at least.
    pub(crate) full_percent: u32,
    /// Chunks that are being filled are closed, so that they may freeze.
    pub(crate) closes: bool,
}

impl Settled {
    /// All of them, in chunks without free slots that are not sparse.
    pub(crate) const FULL: Self = Self {
        since: Timestamp(u64::MAX >> 2),
        outlook: None,
        young_percent: 100,
        full_percent: FULL_PERCENT,
        closes: false,
    };
    /// The same, and the last chunk, if it is not sparse either.
    pub(crate) const MOST: Self = Self { closes: true, ..Self::FULL };
    /// All of them, however few (tests).
    pub(crate) const ANY: Self = Self { full_percent: 0, ..Self::MOST };
}

/// Rows of a chunk that were copied.
struct Copied {
    builder: Builder,
    begins: Begins,
    hidden: Vec<u64>,
    layout: Arc<Layout>,
    /// What the builder takes.
    room: Charge,
}

impl Copied {
    /// Adds a row with what stands behind it.
    fn push(
        &mut self,
        position: u16,
        begin: Timestamp,
        row: &[u8],
        suffix: &[u8],
    ) -> std::result::Result<(), thermocline_frozen::Error> {
        self.builder.push(position, row)?;
        self.begins.push(position, begin);
        if !suffix.is_empty() {
            self.hidden.resize(usize::from(position), 0);
            self.hidden.push(u64::from_le_bytes(suffix.try_into().expect("a hidden key has 8 bytes")));
        }
        Ok(())
    }

    /// The block of what was pushed.
    fn finish(mut self) -> std::result::Result<(Rows, Begins), thermocline_frozen::Error> {
        let bytes = self.builder.finish(fresh_id(), Choice::PointReads)?;
        Ok((Rows::parse(bytes, self.hidden, &self.layout)?, self.begins))
    }
}

/// What a block is known by on disk; never 0.
fn fresh_id() -> u64 {
    let id = thermocline_base::rng::fresh_id();
    u64::from_le_bytes(id[..8].try_into().expect("an id has 16 bytes")).max(1)
}

/// Freezes the chunks of a table whose rows have settled.
///
/// # Errors
/// There is no room for a block below the memory limit, or the table was dropped.
pub(crate) fn freeze_table(db: &Inner, entry: &TableEntry, which: Settled) -> Result<Freezing> {
    let mut done = Freezing::default();
    if is_internal(entry.id) {
        return Ok(done);
    }
    let chunks = entry.form_pinned(&db.epochs.pin()).store.directory.len();
    for number in 0..chunks {
        if db.closing.has_begun() || entry.is_dropped() {
            break;
        }
        if let Some((rows, bytes)) = freeze_chunk(db, entry, number, which)? {
            done.chunks += 1;
            done.rows += u64::from(rows);
            done.bytes += bytes;
        }
    }
    Ok(done)
}

/// Freezes one chunk: how many of its rows are in a block now, and the block's bytes. `None`: it is not one to freeze.
///
/// # Errors
/// There is no room for the block, or for slots that stay.
pub(crate) fn freeze_chunk(
    db: &Inner,
    entry: &TableEntry,
    number: u32,
    which: Settled,
) -> Result<Option<(u32, u64)>> {
    let store = Arc::clone(&entry.form_pinned(&db.epochs.pin()).store);
    let _turn = store.freezing.lock();
    if which.closes {
        close_chunk(db, &store, number, which);
    }
    if !may_freeze(db, &store, number) {
        return Ok(None);
    }
    let Some(copied) = copy_settled(db, entry, &store, number, which)? else { return Ok(None) };
    let (rows, begins) = match copied.finish() {
        Ok(finished) => finished,
        Err(error) => {
            tracing::warn!(%error, chunk = number, "a chunk was not frozen");
            return Ok(None);
        }
    };
    let block = Block::new(rows, begins, &db.budget)?;
    let bytes = block.rows().bytes_len() as u64;
    let _maintenance = db.standstill.enter();
    if !is_current(db, entry, &store, number) {
        return Ok(None);
    }
    let rows = store.freeze(number, block, &db.epochs)?;
    let guard = db.epochs.pin();
    if let Some(chunk) = store.directory.get(number, &guard) {
        chunk.drop_dead_blocks(&db.epochs, &guard);
    }
    Ok(Some((rows, bytes)))
}

/// Is this still the table's store, whose rows were copied, and the chunk as it was? The columns may have changed since, or the chunk may
/// have been packed. Under the maintenance lock.
pub(crate) fn is_current(db: &Inner, entry: &TableEntry, store: &Arc<Store>, number: u32) -> bool {
    let guard = db.epochs.pin();
    Arc::ptr_eq(&entry.form_pinned(&guard).store, store)
        && !entry.is_held()
        && !entry.is_dropped()
        && store.directory.get(number, &guard).is_some_and(|chunk| !chunk.is_packed())
}

/// Sees to it that no slot of the chunk can be filled any more, if enough of them are.
pub(crate) fn close_chunk(db: &Inner, store: &Store, number: u32, which: Settled) {
    let guard = db.epochs.pin();
    let Some(chunk) = store.directory.get(number, &guard) else { return };
    let rows = chunk.used();
    if rows > 0 && rows * 100 > chunk.capacity() * which.full_percent {
        store.close(number, &guard);
    }
}

/// Can no slot of the chunk be filled any more, and is it one that may freeze?
pub(crate) fn may_freeze(db: &Inner, store: &Store, number: u32) -> bool {
    let may = || {
        let guard = db.epochs.pin();
        store.directory.get(number, &guard).is_some_and(|chunk| chunk.is_full() && !chunk.is_packed())
    };
    if !may() || store.has_open_run(number) {
        return false;
    }
    // Who has taken a slot fills it under the same pin.
    let stamp = db.epochs.stamp();
    let mut backoff = Backoff::new();
    while db.epochs.safe() <= stamp {
        backoff.wait();
    }
    may()
}

/// Copies what may freeze. `None`: too little of the chunk has settled, or nothing new.
///
/// # Errors
/// There is no room for the rows beside themselves.
fn copy_settled(
    db: &Inner,
    entry: &TableEntry,
    store: &Store,
    number: u32,
    which: Settled,
) -> Result<Option<Copied>> {
    let oldest = db.registry.active_snapshots().oldest();
    let (capacity, suffix_bytes, layout) = {
        let guard = db.epochs.pin();
        let form = entry.form_pinned(&guard);
        let capacity = store.directory.get(number, &guard).map_or(0, Chunk::used);
        (capacity, form.suffix_bytes, Arc::clone(&form.layout))
    };
    let builder = Builder::new(&layout);
    let room = Charge::none(&db.budget, MemoryKind::Frozen);
    let mut copied = Copied { builder, begins: Begins::default(), hidden: Vec::new(), layout, room };
    let (mut rows, mut fresh, mut frozen, mut young) = (0, 0, 0, 0);
    let mut slot = 0;
    while slot < capacity {
        let guard = db.epochs.pin();
        let end = (slot + SLOTS_A_PIN).min(capacity);
        let mut bytes_pushed = 0;
        let approach = |slot: u32| {
            if let Ok(slot) = u16::try_from(slot) {
                store.directory.approach(RowId::new(number, slot), &guard);
            }
        };
        (slot..(slot + SLOTS_AHEAD).min(capacity)).for_each(approach);
        for position in (slot..end).filter_map(|slot| u16::try_from(slot).ok()) {
            let row = RowId::new(number, position);
            let ahead = u32::from(position) + SLOTS_AHEAD;
            if ahead < end {
                approach(ahead);
            }
            let _frame = guard.frame();
            if matches!(store.directory.look(row, &guard), Found::Left(_)) {
                continue;
            }
            // What is on the paged side and cannot be read stays there.
            let Ok(Some(version)) = store.directory.newest_now(row, &guard) else { continue };
            rows += 1;
            let stays = |begin: &Timestamp| {
                let changes = which.outlook.is_some_and(|outlook| outlook.changes(version.row(), *begin));
                *begin <= which.since && !changes
            };
            let Some(begin) = settled(version).filter(stays) else {
                young += 1;
                if young * 100 > capacity * which.young_percent {
                    return Ok(None);
                }
                continue;
            };
            if version.is_promoted() && begin > oldest {
                continue;
            }
            *if version.is_image() { &mut frozen } else { &mut fresh } += 1;
            let bytes = version.row();
            bytes_pushed += bytes.len() as u64;
            let (row, suffix) = bytes.split_at(bytes.len() - suffix_bytes);
            if let Err(error) = copied.push(position, begin, row, suffix) {
                tracing::warn!(%error, chunk = number, "a chunk was not frozen");
                return Ok(None);
            }
        }
        copied.room.add(bytes_pushed * BUILDING)?;
        slot = end;
    }
    let enough = if frozen > 0 {
        fresh * THAWED_SHARE >= rows
    } else {
        rows * 100 > capacity * which.full_percent && fresh > 0
    };
    Ok((enough && young * 100 <= rows * which.young_percent).then_some(copied))
}

/// Makes ordinary versions of all frozen rows of a table.
///
/// # Errors
/// The memory limit is reached; what was thawed by then stays so.
pub(crate) fn thaw_table(db: &Inner, entry: &TableEntry) -> Result<u64> {
    let mut thawed = 0;
    let chunks = entry.form_pinned(&db.epochs.pin()).store.directory.len();
    for number in 0..chunks {
        let mut slot = 0;
        loop {
            let guard = db.epochs.pin();
            let store = &entry.form_pinned(&guard).store;
            let Some(chunk) = store.directory.get(number, &guard).filter(|chunk| chunk.has_block()) else {
                break;
            };
            let end = (slot + SLOTS_A_PIN).min(chunk.used());
            for position in (slot..end).filter_map(|slot| u16::try_from(slot).ok()) {
                if matches!(chunk.look(position, &guard), Found::Frozen(_)) {
                    store.thaw(RowId::new(number, position), false, &guard)?;
                    thawed += 1;
                }
            }
            if end == chunk.used() {
                break;
            }
            slot = end;
        }
        let _maintenance = db.standstill.enter();
        let guard = db.epochs.pin();
        let store = &entry.form_pinned(&guard).store;
        if let Some(chunk) = store.directory.get(number, &guard) {
            chunk.drop_dead_blocks(&db.epochs, &guard);
        }
    }
    Ok(thawed)
}

/// Lets begins go that no snapshot can tell apart any more, and blocks that no slot names.
pub(crate) fn tidy_blocks(db: &Inner, form: &TableForm) {
    let oldest = db.registry.active_snapshots().oldest();
    let guard = db.epochs.pin();
    for number in 0..form.store.directory.len() {
        let Some(chunk) = form.store.directory.get(number, &guard).filter(|chunk| chunk.has_block()) else {
            continue;
        };
        chunk.drop_dead_blocks(&db.epochs, &guard);
        for block in chunk.blocks(&guard) {
            if mutation::on(Rule::BeginsOutliveSnapshots) {
                block.forget_begins(oldest, &db.epochs);
            } else {
                block.forget_begins(Timestamp(u64::MAX), &db.epochs);
            }
        }
    }
}
