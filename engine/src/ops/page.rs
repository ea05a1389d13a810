//! Rows that go over to the paged side (Stoica and Ailamaki, DaMoN 2013, §4), and those that come back.
//!
//! A row goes over as it freezes (`ops/freeze.rs`): copied, written, and then its slot is swapped to name the block of the copy,
//! unless it was changed meanwhile. The block's rows lie on pages instead of in columns ([`crate::hot::paged`]). A row comes
//! back by being thawed: by whoever changes it, or by one of its readers, now and then, so that what is used stays in memory.
//!
//! | time | governor | reader | writer | slots of rows 0 to 3 |
//! |---|---|---|---|---|
//! | 1 | chooses rows 0, 2, 3, copies them | | | versions |
//! | 2 | writes them to the paged side as block 9 | | updates row 2 | versions; row 2 has two |
//! | 3 | swaps rows 0 and 3, leaves row 2 alone | | | 9, version, version, 9 |
//! | 4 | | reads row 3: awaits its page, reads, thaws it | | 9, version, version, version |
//!
//! Unlike a chunk that freezes, one whose rows go over has several blocks, one for each time that rows of it were chosen. So that they
//! do not become many, the new block takes in those of before that are small or mostly dead.
//!
//! Nothing about a row changes by that: nothing is logged, and images stay good.

use std::collections::HashMap;
use std::sync::Arc;

use thermocline_base::clock::{thread_cpu_ns, thread_cpu_since};
use thermocline_base::epoch::Guard;
use thermocline_base::ids::{RowId, Timestamp};
use thermocline_base::io::{File, OpenMode};
use thermocline_base::sync::{Backoff, Ordering};
use thermocline_region::{OsOptions, OsPager};

use crate::catalog::table::{TableEntry, TableForm};
use crate::error::{Error, Result};
use crate::hot::block::{Begins, Block};
use crate::hot::budget::{Charge, MemoryKind};
use crate::hot::chunk::freeze::settled;
use crate::hot::chunk::{Chunk, Found, PIECE_SLOTS};
use crate::hot::paged::rows::RunBuilder;
use crate::hot::paged::{LoadedRun, Medium, OsPages, PAGE_BYTES, Paged, PagedError, PoolPages, Run};
use crate::hot::store::Store;
use crate::hot::version::Version;
use crate::mutation::{self, Rule};
use crate::ops::freeze::Settled;
use crate::options::PagerKind;
use crate::schema::Tiering;
use crate::session::db::Inner;

/// Rows that are looked at under one pin.
const ROWS_A_PIN: usize = 256;
/// Rows of one block, at most.
const ROWS_A_BLOCK: usize = 1 << 14;
/// A block is taken in by a new one that has at least this share of its rows, or if no more than half of it lives.
const TAKEN_IN: u64 = 2;
/// A builder has the pages that it makes in a vector that grows, and once more as they are written.
const BUILDING: u64 = 3;
/// A block has no more bytes than this part of the memory limit, within bounds.
const BLOCK_SHARE: u64 = 128;
const BLOCK_BYTES_MIN: u64 = 128 << 10;
const BLOCK_BYTES_MAX: u64 = 4 << 20;
/// Frames of the pager, at least.
const FRAMES_MIN: u64 = 64;
/// The region is so many times as long as the limit. Addresses cost nothing.
const REGION_SHARE: u64 = 64;
const REGION_MIN: u64 = 4 << 30;
const REGION_MAX: u64 = 4 << 40;

/// What going over came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct WentOver {
    /// Rows that are on the paged side now.
    pub rows: u64,
    /// Bytes that their versions took.
    pub bytes: u64,
    /// Rows that were to go, and stayed: they are in use, or their chunk is.
    pub stayed: u64,
}

impl WentOver {
    fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.stayed += other.stayed;
    }
}

/// Rows of a chunk that are to go over together.
struct Copied {
    builder: RunBuilder,
    begins: Begins,
    present: Vec<u64>,
    /// Rows that were in memory, and the bytes that their versions take.
    fresh: u64,
    bytes: u64,
    /// The last position that was looked at.
    last: u16,
    room: Charge,
}

/// The paged side, made now if it is not there.
///
/// # Errors
/// There is no directory for it, or the system refuses what the pager needs.
pub(crate) fn paged_side(db: &Inner) -> Result<&Arc<Paged>> {
    db.paged.get_or_open(|| open_medium(db).map(Paged::new).map_err(|error| paged_error(None, error)))
}

fn open_medium(db: &Inner) -> std::result::Result<Medium, PagedError> {
    let frame_bytes = frame_bytes(db);
    let dir = db.options.paged_dir.as_deref().unwrap_or(db.files.dir());
    let lent = db.options.lent_to(true);
    match (db.options.pager, &db.options.paged_file) {
        (PagerKind::Own, Some(file)) => {
            Ok(Medium::Pool(PoolPages::new(Arc::clone(file), frame_bytes, lent)?))
        }
        (PagerKind::Own, None) => {
            let file = nameless_file(db, dir).map_err(|source| PagedError::NoFile { source })?;
            Ok(Medium::Pool(PoolPages::new(file, frame_bytes, lent)?))
        }
        (PagerKind::Os, _) => {
            let _ = db.cold.io().remove(&dir.join("paged"));
            let bytes = db.memory_limit().map_or(REGION_MAX / 16, |limit| {
                limit.saturating_mul(REGION_SHARE).clamp(REGION_MIN, REGION_MAX)
            });
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let options =
                OsOptions { bytes, resident_pages: Some((frame_bytes / PAGE_BYTES as u64) as usize) };
            let pager = OsPager::new(options, Arc::clone(&db.epochs), &**db.cold.io(), dir)?;
            Ok(Medium::Os(OsPages::new(pager, frame_bytes)))
        }
    }
}

/// A file for pages, whose name is removed as soon as it is open: a process that is killed leaves nothing behind.
fn nameless_file(
    db: &Inner,
    dir: &std::path::Path,
) -> std::result::Result<Arc<dyn File>, thermocline_base::io::IoError> {
    let id = u64::from_le_bytes(db.files.id()[..8].try_into().expect("an id has 16 bytes"));
    let path = dir.join(format!("paged-{id:016x}"));
    let io = db.cold.io();
    // Of a process that was killed before it could take the name away.
    let _ = io.remove(&path);
    let file = io.open_direct(&path, OpenMode::CreateNew)?;
    io.remove(&path)?;
    Ok(file)
}

/// Can a table's rows go over here?
///
/// # Errors
/// There is no directory that their pages could lie in.
pub(crate) fn check_tiering(db: &Inner, tiering: Tiering) -> Result<()> {
    let in_memory = db.files.dir() == std::path::Path::new(crate::options::IN_MEMORY);
    let has_place = db.options.paged_dir.is_some() || db.options.paged_file.is_some();
    if tiering == Tiering::Paged && in_memory && !has_place {
        return Err(Error::InvalidOption {
            option: "paged_dir",
            reason: "a database in memory has no directory for pages of a paged table; name one".to_owned(),
        });
    }
    if tiering == Tiering::Paged {
        db.paged.set_wanted(true);
    }
    Ok(())
}

/// Looks whether any table is paged.
pub(crate) fn look_for_paged_tables(db: &Inner) {
    let guard = db.epochs.pin();
    let is_paged = |entry: &Arc<TableEntry>| entry.form_pinned(&guard).schema.row_tiering() == Tiering::Paged;
    db.paged.set_wanted(db.catalog.all().iter().any(is_paged));
}

/// An error of the paged side; of a table, where that is known.
pub(crate) fn paged_error(form: Option<&TableForm>, source: PagedError) -> Error {
    Error::Paged { table: form.map(|form| form.schema.name.clone()), source }
}

/// Lets these rows of a table go over, in the order of their places. What is in use stays.
///
/// # Errors
/// The paged side cannot be written; there is no room for what is written beside the rows.
pub(crate) fn page_rows(db: &Inner, entry: &TableEntry, rows: &[RowId]) -> Result<WentOver> {
    let begun = thread_cpu_ns();
    let over = page_sorted(db, entry, rows);
    if let (Ok(over), Some(paged)) = (&over, db.paged.get()) {
        paged.over.rows.fetch_add(over.rows, Ordering::Relaxed);
        paged.over.row_bytes.fetch_add(over.bytes, Ordering::Relaxed);
        paged.over.cpu_ns.fetch_add(thread_cpu_since(begun), Ordering::Relaxed);
    }
    over
}

fn page_sorted(db: &Inner, entry: &TableEntry, rows: &[RowId]) -> Result<WentOver> {
    let mut rows = rows.to_vec();
    rows.sort_unstable();
    // A hand that comes round lists a row twice; a run has it once.
    rows.dedup();
    let mut all = WentOver::default();
    for of_chunk in rows.chunk_by(|one, other| one.chunk() == other.chunk()) {
        let positions: Vec<u16> = of_chunk.iter().map(|row| row.slot()).collect();
        let mut rest = &positions[..];
        while !rest.is_empty() {
            let some = &rest[..rest.len().min(ROWS_A_BLOCK)];
            let (over, last) = page_some(db, entry, of_chunk[0].chunk(), some)?;
            all.add(over);
            // A block may be full of what it took in: then the first of them stays.
            let last = last.max(some[0]);
            rest = &rest[rest.partition_point(|position| *position <= last)..];
        }
    }
    Ok(all)
}

/// Lets all rows of a table go over that may. `which` says how full a chunk has to be that is closed for that; else those stay that share a
/// piece with a slot that may still be filled.
///
/// # Errors
/// As [`page_rows`].
pub(crate) fn page_table(db: &Inner, entry: &TableEntry, which: Settled) -> Result<WentOver> {
    let chunks = entry.form_pinned(&db.epochs.pin()).store.directory.len();
    let mut all = WentOver::default();
    for number in 0..chunks {
        all.add(page_chunk(db, entry, number, which)?);
    }
    Ok(all)
}

/// The same of one chunk.
///
/// # Errors
/// As [`page_rows`].
pub(crate) fn page_chunk(db: &Inner, entry: &TableEntry, number: u32, which: Settled) -> Result<WentOver> {
    let store = Arc::clone(&entry.form_pinned(&db.epochs.pin()).store);
    crate::ops::freeze::close_chunk(db, &store, number, which);
    let rows: Vec<RowId> = {
        let guard = db.epochs.pin();
        let directory = &entry.form_pinned(&guard).store.directory;
        let slots = directory.get(number, &guard).map_or(0, Chunk::used);
        let rows = (0..slots).filter_map(|slot| u16::try_from(slot).ok());
        rows.map(|slot| RowId::new(number, slot))
            .filter(|row| matches!(directory.look(*row, &guard), Found::Newest(_)))
            .collect()
    };
    page_rows(db, entry, &rows)
}

/// Makes ordinary versions of the rows of a chunk that are on the paged side, as far as there is room: its table has become `hot`. How many
/// have come back. The caller holds nothing.
///
/// # Errors
/// A page cannot be read; the rows of its block stay where they are.
pub(crate) fn bring_back(db: &Inner, entry: &TableEntry, number: u32) -> Result<u64> {
    let runs: Vec<(u64, Arc<Run>)> = {
        let guard = db.epochs.pin();
        let chunk = entry.form_pinned(&guard).store.directory.get(number, &guard);
        let run = |block: &Block| Some((block.number(), Arc::clone(block.run()?)));
        chunk.into_iter().flat_map(|chunk| chunk.blocks(&guard)).filter_map(run).collect()
    };
    let mut back = 0;
    for (block, run) in &runs {
        let mut room = Charge::none(&db.budget, MemoryKind::Other);
        let is_short = |limit: u64| db.budget.used() + 2 * run.row_bytes() > limit / 4 * 3;
        if db.memory_limit().is_some_and(is_short) || room.add(run.page_bytes() as u64).is_err() {
            break;
        }
        let loaded = run.load().map_err(|error| {
            let guard = db.epochs.pin();
            paged_error(Some(entry.form_pinned(&guard)), error)
        })?;
        for from in (0..=u16::MAX).step_by(ROWS_A_PIN) {
            let guard = db.epochs.pin();
            let store = &entry.form_pinned(&guard).store;
            let Some(chunk) = store.directory.get(number, &guard) else { break };
            let Some(of_chunk) = chunk.block(*block, &guard).filter(|_| u32::from(from) < chunk.used())
            else {
                break;
            };
            for position in from..=from.saturating_add(ROWS_A_PIN as u16 - 1) {
                if chunk.look(position, &guard) != Found::Frozen(*block) {
                    continue;
                }
                let _frame = guard.frame();
                let row = RowId::new(number, position);
                let begin = of_chunk.begin(position, &guard);
                let fill = |out: &mut Vec<u8>| loaded.row_into(position, out);
                let image = Version::image(&guard, *block, begin, row, fill);
                back += u64::from(store.thaw_image(image, false, &guard)?.is_some());
            }
        }
    }
    if !runs.is_empty() {
        let _maintenance = db.standstill.enter();
        let guard = db.epochs.pin();
        if let Some(chunk) = entry.form_pinned(&guard).store.directory.get(number, &guard) {
            chunk.drop_dead_blocks(&db.epochs, &guard);
        }
    }
    Ok(back)
}

/// Lets some of these rows of a chunk go over, in one block; up to which position it has come.
fn page_some(db: &Inner, entry: &TableEntry, number: u32, positions: &[u16]) -> Result<(WentOver, u16)> {
    let stay = |upto: u16| {
        let stayed = positions.iter().filter(|position| **position <= upto).count() as u64;
        (WentOver { stayed, ..WentOver::default() }, upto)
    };
    let store = Arc::clone(&entry.form_pinned(&db.epochs.pin()).store);
    let _turn = store.freezing.lock();
    let filled = filled(db, &store, number);
    let below = positions.partition_point(|position| u32::from(*position) < filled);
    let positions = &positions[..below];
    if positions.is_empty() {
        return Ok(stay(u16::MAX));
    }
    let small = small_blocks(db, &store, number, positions.len())?;
    let all = with_rows_of(db, &store, number, positions, &small);
    let Copied { builder, begins, present, fresh, bytes, last, room } =
        copy_over(db, &store, number, &all, &small)?;
    drop(small);
    if fresh == 0 {
        // Nothing but what was over there already.
        return Ok(stay(last));
    }
    let Some(pages) = builder.finish() else { return Ok(stay(last)) };
    let taken_in = u64::from(pages.rows) - fresh;
    let paged = paged_side(db)?;
    let run = paged.append(pages).map_err(|error| {
        let guard = db.epochs.pin();
        paged_error(Some(entry.form_pinned(&guard)), error)
    })?;
    drop(room);
    let block = Block::paged(run, begins, &db.budget)?;
    let _maintenance = db.standstill.enter();
    if !crate::ops::freeze::is_current(db, entry, &store, number) {
        return Ok(stay(u16::MAX));
    }
    let has = |position: u16| present[usize::from(position) / 64] >> (position % 64) & 1 != 0;
    let live = store.page((number, filled), block, &has, &db.epochs)?;
    let guard = db.epochs.pin();
    if let Some(chunk) = store.directory.get(number, &guard) {
        chunk.drop_dead_blocks(&db.epochs, &guard);
    }
    let rows = u64::from(live).saturating_sub(taken_in);
    let (stayed, last) = stay(last);
    Ok((WentOver { rows, bytes, stayed: stayed.stayed.saturating_sub(rows) }, last))
}

/// Slots of a chunk below this one are filled, or stay empty: those of whole pieces, or all. None where the chunk is packed.
fn filled(db: &Inner, store: &Store, number: u32) -> u32 {
    let taken = {
        let guard = db.epochs.pin();
        let Some(chunk) = store.directory.get(number, &guard).filter(|chunk| !chunk.is_packed()) else {
            return 0;
        };
        let taken = store.taken(number, &guard);
        if taken == chunk.capacity() { taken } else { taken / PIECE_SLOTS * PIECE_SLOTS }
    };
    if mutation::off(Rule::SlotsAreFilledFirst) {
        let guard = db.epochs.pin();
        return store.directory.get(number, &guard).map_or(0, Chunk::used);
    }
    // Who has taken a slot fills it under the same pin.
    let stamp = db.epochs.stamp();
    let mut backoff = Backoff::new();
    while db.epochs.safe() <= stamp {
        backoff.wait();
    }
    let guard = db.epochs.pin();
    if store.directory.get(number, &guard).is_none_or(Chunk::is_packed) { 0 } else { taken }
}

/// Bytes of one block, at most.
fn block_bytes(db: &Inner) -> u64 {
    let share = db.memory_limit().map_or(BLOCK_BYTES_MAX, |limit| limit / BLOCK_SHARE);
    share.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
}

/// Blocks of a chunk that a new one takes in: their numbers and pages.
struct Small {
    runs: HashMap<u64, LoadedRun>,
    _room: Charge,
}

/// The blocks of a chunk that a new one of so many rows takes in, each read in one go: its pages one by one would take as many times as
/// long, while others wait for the memory. What cannot be read stays in the block where it is.
///
/// # Errors
/// There is no room for the pages.
fn small_blocks(db: &Inner, store: &Store, number: u32, mut rows: usize) -> Result<Small> {
    let most = block_bytes(db);
    let mut chosen = Vec::new();
    {
        let guard = db.epochs.pin();
        let chunk = store.directory.get(number, &guard);
        let mut blocks: Vec<(u64, u64, &Arc<Run>)> = chunk
            .into_iter()
            .flat_map(|chunk| chunk.blocks(&guard))
            .filter_map(|block| Some((u64::from(block.live()), block.number(), block.run()?)))
            .collect();
        blocks.sort_unstable_by_key(|(live, number, _)| (*live, *number));
        let (mut bytes, mut pages) = (0, 0);
        for (live, number, run) in blocks {
            let written = u64::from(run.rows()).max(1);
            let (of_live, of_pages) = (run.row_bytes() * live / written, run.page_bytes() as u64);
            let is_small = live * TAKEN_IN <= written || live <= (rows as u64) * TAKEN_IN;
            // Half of a block is room for those that go over now.
            let has_room = rows + live as usize <= ROWS_A_BLOCK && bytes + of_live <= most / 2;
            if live > 0 && is_small && has_room && pages + of_pages <= most * TAKEN_IN {
                chosen.push((number, Arc::clone(run)));
                rows += live as usize;
                bytes += of_live;
                pages += of_pages;
            }
        }
    }
    let mut room = Charge::none(&db.budget, MemoryKind::Other);
    let mut runs = HashMap::new();
    for (number, run) in chosen {
        room.add_from_reserve(run.page_bytes() as u64)?;
        match run.load() {
            Ok(loaded) => drop(runs.insert(number, loaded)),
            Err(error) => tracing::error!(%error, "a block of the paged side cannot be read"),
        }
    }
    Ok(Small { runs, _room: room })
}

/// These positions, and those of the rows of small blocks.
fn with_rows_of(db: &Inner, store: &Store, number: u32, positions: &[u16], small: &Small) -> Vec<u16> {
    let guard = db.epochs.pin();
    let chunk = store.directory.get(number, &guard).filter(|_| !small.runs.is_empty());
    let Some(chunk) = chunk else { return positions.to_vec() };
    let is_in = |position: &u16| matches!(chunk.look(*position, &guard), Found::Frozen(number) if small.runs.contains_key(&number));
    let slots = (0..chunk.used()).filter_map(|slot| u16::try_from(slot).ok());
    let mut all: Vec<u16> = slots.filter(is_in).collect();
    all.extend_from_slice(positions);
    all.sort_unstable();
    all.dedup();
    all
}

/// Copies those of these rows that have settled, as many as go into one block: rows in memory, and rows of small blocks.
///
/// # Errors
/// There is no room for the rows beside themselves.
fn copy_over(db: &Inner, store: &Store, number: u32, positions: &[u16], small: &Small) -> Result<Copied> {
    let oldest = db.registry.active_snapshots().oldest();
    let mut copied = Copied {
        builder: RunBuilder::default(),
        begins: Begins::default(),
        present: vec![0; (usize::from(u16::MAX) + 1) / 64],
        fresh: 0,
        bytes: 0,
        last: u16::MAX,
        room: Charge::none(&db.budget, MemoryKind::Other),
    };
    let most = block_bytes(db);
    let mut written = 0;
    for some in positions.chunks(ROWS_A_PIN) {
        let guard = db.epochs.pin();
        let mut bytes = 0;
        for &position in some {
            let row = RowId::new(number, position);
            let _frame = guard.frame();
            let newest = match store.directory.look(row, &guard) {
                Found::Frozen(block) => small.image(store, row, block, &guard),
                Found::Left(_) | Found::Empty => None,
                // What has gone over since is bare.
                Found::Newest(_) | Found::Moved => {
                    store.directory.newest(row, &guard).filter(|newest| !newest.is_image())
                }
            };
            let Some((version, begin)) = newest.and_then(may_go(oldest)) else { continue };
            if !version.is_image() {
                copied.fresh += 1;
                copied.bytes += version.cell_bytes() as u64;
            }
            bytes += version.len() as u64;
            copied.builder.push(position, version.row());
            copied.begins.push(position, begin);
            copied.present[usize::from(position) / 64] |= 1 << (position % 64);
            if written + bytes >= most {
                copied.last = position;
                break;
            }
        }
        copied.room.add_from_reserve(bytes * BUILDING)?;
        written += bytes;
        if written >= most {
            break;
        }
    }
    Ok(copied)
}

impl Small {
    /// A row of one of these blocks, which its slot names.
    fn image(&self, store: &Store, row: RowId, block: u64, guard: &Guard<'_>) -> Option<Version> {
        let loaded = self.runs.get(&block)?;
        let begin = store.directory.get(row.chunk(), guard)?.block(block, guard)?.begin(row.slot(), guard);
        Some(Version::image(guard, block, begin, row, |out| loaded.row_into(row.slot(), out)))
    }
}

/// A version that may go over, with its begin.
fn may_go(oldest: Timestamp) -> impl Fn(Version) -> Option<(Version, Timestamp)> {
    move |version| {
        let begin = settled(version)?;
        (!version.is_promoted() || begin <= oldest).then_some((version, begin))
    }
}

/// Bytes of the pager's frames, of the memory limit as it is now.
fn frame_bytes(inner: &Inner) -> u64 {
    let bytes = inner.options.paged_frame_bytes(inner.memory_limit());
    bytes.max(FRAMES_MIN * PAGE_BYTES as u64)
}

/// What the paged side takes of the memory limit: all of its frames, and the tables that lead to its pages. The frames count as soon as a
/// table is paged, so that they are free when rows go over, which is when nothing else is. They follow the limit.
pub(crate) fn note_paged(inner: &Inner) {
    let (frames, bytes) = match inner.paged.get() {
        Some(paged) => {
            paged.set_frame_bytes(frame_bytes(inner));
            (paged.frame_bytes(), paged.memory_bytes())
        }
        None if inner.paged.is_wanted() => (frame_bytes(inner), frame_bytes(inner)),
        None => (0, 0),
    };
    let of_file = inner.options.paged_file.as_ref().map_or(0, |file| file.table_bytes());
    let before = inner.budget.used_by(MemoryKind::Paged);
    inner.budget.note(MemoryKind::Paged, bytes + of_file);
    if before < frames {
        // Rows have to be able to go over from there.
        inner.budget.note_beginning();
    }
}
