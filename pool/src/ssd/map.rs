//! The map of a level, saved beside its file, so that the next opening begins warm.
//!
//! ```text
//!   file PATH.map
//!   0        8       12      16      20       24           40        48       96       100     128
//!   ┌────────┬───────┬───────┬────────┬───────┬────────────┬─────────┬────────┬────────┬───────┬─────────┬─ ┄
//!   │thclssdm│format │page   │slots   │state  │database id │entries  │counts  │checksum│0      │ entry 0 │ entry 1
//!   │        │       │bytes  │        │       │            │         │        │        │       │         │
//!   └────────┴───────┴───────┴────────┴───────┴────────────┴─────────┴────────┴────────┴───────┴─────────┴─ ┄   little-endian
//!   state    0 on · 1 failing · 2 late · 3 no faster, u16 · 0 warmth is a temperature · 1 it is a rank, u16
//!   counts   of the opening that saved it, u64 each: reads · hits · bytes written · admitted · SSD's and primary's mean time of a read in ns
//!   entry    page u64 · slot u32 · warmth f32 · tag u16 · 0 u16              the checksum is of entries, then of 0..96
//! ```
//!
//! Rules:
//! - The map is a hint. An entry of it is *unproven* until its page was read: what is in the slot then is checked as ever, and if it
//!   is not the page in the version that the reader expects, that is a miss and no fault. So a map that is lost, torn, old, or of
//!   another time than the slots costs warmth, and never gives a wrong page.
//! - It names only slots whose writes were answered before the SSD was synced; it is written beside the former one and replaces it
//!   in one step.
//! - A level that goes off because it is no faster saves a map without entries, which says so: the next opening begins cold. One
//!   that fails, or is late, is left alone, and its former map stays.
//! - A map of format 1 is one that is lost.
//! - Entries are taken a few at a time under the table's lock, or all at once where the policy keeps them in a list; the level's own
//!   thread writes them.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};

use thermocline_base::checksum::{crc32c, crc32c_append};
use thermocline_base::io::{Io, IoError, OpenMode};

use super::{Kept, SsdCounts, SsdLevel, SsdState, SsdStats, table::Entry};

const MAGIC: &[u8; 8] = b"thclssdm";
const FORMAT: u32 = 2;
const HEADER: usize = 128;
const SUMMED: usize = 96;
const COUNTS: usize = 48;
const ENTRY: usize = 20;
/// Slots that are looked at under one hold of the table's lock.
const SLOTS_AT_ONCE: u32 = 1024;

/// Whose map it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    pub(super) page_bytes: u32,
    pub(super) slots: u32,
    pub(super) database: [u8; 16],
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The counts, until then, of the opening that saved a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SavedCounts {
    /// Was it in use, and if not, why.
    pub state: SsdState,
    /// Pages for which readers came by.
    pub reads: u64,
    /// Those of them that the SSD gave.
    pub hits: u64,
    /// Bytes written to it.
    pub bytes_written: u64,
    /// Pages that were admitted.
    pub admitted: u64,
}

impl SavedCounts {
    fn of(stats: &SsdStats) -> Self {
        let SsdCounts { reads, hits, bytes_written, admitted, .. } = stats.counts;
        Self { state: stats.state, reads, hits, bytes_written, admitted }
    }

    /// Its code, and the times that belong to it.
    fn coded(&self) -> (u32, u64, u64) {
        match self.state {
            SsdState::On => (0, 0, 0),
            SsdState::Failing => (1, 0, 0),
            SsdState::Late => (2, 0, 0),
            SsdState::NoFaster { ssd_ns, primary_ns } => (3, ssd_ns, primary_ns),
        }
    }
}

fn header(owner: &Owner, counts: &SavedCounts, ranked: bool, entries: u64, sum: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[12..16].copy_from_slice(&owner.page_bytes.to_le_bytes());
    bytes[16..20].copy_from_slice(&owner.slots.to_le_bytes());
    bytes[24..40].copy_from_slice(&owner.database);
    bytes[40..48].copy_from_slice(&entries.to_le_bytes());
    let (state, ssd_ns, primary_ns) = counts.coded();
    bytes[20..24].copy_from_slice(&(state | u32::from(ranked) << 16).to_le_bytes());
    let numbers = [counts.reads, counts.hits, counts.bytes_written, counts.admitted, ssd_ns, primary_ns];
    for (number, bytes) in numbers.iter().zip(bytes[COUNTS..SUMMED].chunks_exact_mut(8)) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    let sum = crc32c_append(sum, &bytes[..SUMMED]);
    bytes[SUMMED..SUMMED + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Saves the map of a level. Blocks.
pub(super) fn save(level: &SsdLevel, kept: &Kept) -> Result<u64, IoError> {
    let (io, path) = (&kept.io, &level.options.path);
    let temporary = with_suffix(path, ".map.tmp");
    if io.exists(&temporary)? {
        io.remove(&temporary)?;
    }
    let file = io.open(&temporary, OpenMode::CreateNew)?;
    let (mut at, mut sum, mut entries) = (HEADER as u64, crc32c(&[]), 0_u64);
    let mut slot = 0;
    let mut found = Vec::new();
    let counts = SavedCounts::of(&level.stats());
    let mut listed = level.table.lock().listed().map(VecDeque::from);
    while slot < level.slots && counts.state == SsdState::On {
        let until = level.slots.min(slot + SLOTS_AT_ONCE);
        found.clear();
        match &mut listed {
            Some(all) => {
                while all.front().is_some_and(|entry| entry.slot < until) {
                    found.extend(all.pop_front());
                }
            }
            None => level.table.lock().entries(slot..until, &mut found),
        }
        let mut bytes = Vec::with_capacity(found.len() * ENTRY);
        for entry in &found {
            bytes.extend_from_slice(&entry.page.to_le_bytes());
            bytes.extend_from_slice(&entry.slot.to_le_bytes());
            bytes.extend_from_slice(&entry.warmth.to_le_bytes());
            bytes.extend_from_slice(&entry.tag.to_le_bytes());
            bytes.extend_from_slice(&[0; 2]);
        }
        if !bytes.is_empty() {
            file.write_at(at, &bytes)?;
        }
        sum = crc32c_append(sum, &bytes);
        at += bytes.len() as u64;
        entries += found.len() as u64;
        slot = until;
    }
    file.write_at(0, &header(&kept.owner, &counts, listed.is_some(), entries, sum))?;
    // The slots first: a map that is there names what is there.
    level.file.sync_data()?;
    file.sync_data()?;
    io.rename(&temporary, &with_suffix(path, ".map"))?;
    if let Some(parent) = path.parent() {
        io.sync_dir(parent)?;
    }
    Ok(entries)
}

/// The entries of a saved map; none where there is no map that counts.
pub(super) fn load(io: &dyn Io, path: &Path, owner: &Owner) -> Loaded {
    match try_load(io, &with_suffix(path, ".map"), owner) {
        Ok(Some(loaded)) => loaded,
        Ok(None) => Loaded::default(),
        Err(error) => {
            tracing::warn!(%error, "the map of the SSD cache cannot be read; it begins cold");
            Loaded::default()
        }
    }
}

fn u32_at(of: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|byte| of[at + byte]))
}

fn counts_in(head: &[u8]) -> SavedCounts {
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[COUNTS + 8 * at + byte]));
    let state = match u32_at(head, 20) & 0xffff {
        0 => SsdState::On,
        1 => SsdState::Failing,
        2 => SsdState::Late,
        _ => SsdState::NoFaster { ssd_ns: number(4), primary_ns: number(5) },
    };
    SavedCounts { state, reads: number(0), hits: number(1), bytes_written: number(2), admitted: number(3) }
}

/// The saved map of a level, for a program that looks at a database without opening its SSD.
#[derive(Clone, Debug, Default)]
pub struct SavedMap {
    /// The counts, until then, of the opening that saved it.
    pub counts: SavedCounts,
    /// Pages that fit on the SSD.
    pub slots: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// By page.
    entries: Vec<Entry>,
}

impl SavedMap {
    /// Pages that were there.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Number of these pages that were there, in this version as far as a map tells.
    #[must_use]
    pub fn cached(&self, pages: Range<u64>, version: u64) -> u64 {
        let from = self.entries.partition_point(|entry| entry.page < pages.start);
        let there = self.entries[from..].iter().take_while(|entry| entry.page < pages.end);
        there.filter(|entry| entry.is_of(version)).count() as u64
    }
}

/// The map that a level has saved beside its file `path`, if it is whole and this database's. Changes nothing.
///
/// # Errors
/// The system's.
pub fn saved_map(io: &dyn Io, path: &Path, database: [u8; 16]) -> Result<Option<SavedMap>, IoError> {
    let map = with_suffix(path, ".map");
    if !io.exists(&map)? {
        return Ok(None);
    }
    let mut head = [0; HEADER];
    if io.open(&map, OpenMode::Read)?.read_full_at(0, &mut head)? < HEADER {
        return Ok(None);
    }
    // What does not check out is found by the header that is made of it.
    let owner = Owner { page_bytes: u32_at(&head, 12), slots: u32_at(&head, 16), database };
    let Some(Loaded { counts, mut entries, .. }) = try_load(io, &map, &owner)? else { return Ok(None) };
    entries.sort_unstable_by_key(|entry| entry.page);
    let (slots, page_bytes) = (u64::from(owner.slots), u64::from(owner.page_bytes));
    Ok(Some(SavedMap { counts, slots, page_bytes, entries }))
}

/// A map that counts.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    counts: SavedCounts,
    /// In the order of their slots.
    pub(super) entries: Vec<Entry>,
    /// Their warmth is a rank.
    pub(super) ranked: bool,
}

fn try_load(io: &dyn Io, path: &Path, owner: &Owner) -> Result<Option<Loaded>, IoError> {
    if !io.exists(path)? {
        return Ok(None);
    }
    let file = io.open(path, OpenMode::Read)?;
    let most = HEADER as u64 + u64::from(owner.slots) * ENTRY as u64;
    let len = file.len()?;
    if !(HEADER as u64..=most).contains(&len) {
        return Ok(None);
    }
    let mut bytes = vec![0; len as usize];
    if file.read_full_at(0, &mut bytes)? < bytes.len() {
        return Ok(None);
    }
    let (head, rest) = bytes.split_at(HEADER);
    let entries = rest.len() / ENTRY;
    let (counts, ranked) = (counts_in(head), u32_at(head, 20) >> 16 == 1);
    if head != header(owner, &counts, ranked, entries as u64, crc32c(rest)) || rest.len() % ENTRY != 0 {
        return Ok(None);
    }
    let entry = |of: &[u8]| Entry {
        page: u64::from(u32_at(of, 0)) | u64::from(u32_at(of, 4)) << 32,
        slot: u32_at(of, 8),
        warmth: f32::from_bits(u32_at(of, 12)),
        tag: u16::from_le_bytes([of[16], of[17]]),
    };
    let entries = rest.chunks_exact(ENTRY).map(entry).collect();
    Ok(Some(Loaded { counts, entries, ranked }))
}
