//! The map of a level, saved beside its file, so that the next opening begins warm.
//!
//! ```text
//!   file PATH.map
//!   0        8       12      16       20      24           40        48       52      64
//!   ┌────────┬───────┬───────┬────────┬───────┬────────────┬─────────┬────────┬───────┬─────────┬─ ┄
//!   │thclssdm│format │page   │slots   │0      │database id │entries  │checksum│0      │ entry 0 │ entry 1
//!   │        │       │bytes  │        │       │            │         │        │       │         │
//!   └────────┴───────┴───────┴────────┴───────┴────────────┴─────────┴────────┴───────┴─────────┴─ ┄      little-endian
//!   entry    page u64 · slot u32 · warmth f32 · tag u16 · 0 u16              the checksum is of entries, then of 0..48
//! ```
//!
//! Rules:
//! - The map is a hint. An entry of it is *unproven* until its page was read: what is in the slot then is checked as ever, and if it
//!   is not the page in the version that the reader expects, that is a miss and no fault. So a map that is lost, torn, old, or of
//!   another time than the slots costs warmth, and never gives a wrong page.
//! - It names only slots whose writes were answered before the SSD was synced; it is written beside the former one and replaces it
//!   in one step.
//! - Entries are taken a few at a time under the table's lock, and written by the level's own thread.

use std::path::{Path, PathBuf};

use thermocline_base::checksum::{crc32c, crc32c_append};
use thermocline_base::io::{Io, IoError, OpenMode};

use super::{SsdLevel, table::Entry};

const MAGIC: &[u8; 8] = b"thclssdm";
const FORMAT: u32 = 1;
const HEADER: usize = 64;
const SUMMED: usize = 48;
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

fn header(owner: &Owner, entries: u64, sum: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[12..16].copy_from_slice(&owner.page_bytes.to_le_bytes());
    bytes[16..20].copy_from_slice(&owner.slots.to_le_bytes());
    bytes[24..40].copy_from_slice(&owner.database);
    bytes[40..48].copy_from_slice(&entries.to_le_bytes());
    let sum = crc32c_append(sum, &bytes[..SUMMED]);
    bytes[48..52].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Saves the map of a level. Blocks.
pub(super) fn save(level: &SsdLevel) -> Result<u64, IoError> {
    let (io, path) = (&level.io, &level.options.path);
    let temporary = with_suffix(path, ".map.tmp");
    if io.exists(&temporary)? {
        io.remove(&temporary)?;
    }
    let file = io.open(&temporary, OpenMode::CreateNew)?;
    let (mut at, mut sum, mut entries) = (HEADER as u64, crc32c(&[]), 0_u64);
    let mut slot = 0;
    let mut found = Vec::new();
    while slot < level.slots {
        let until = level.slots.min(slot + SLOTS_AT_ONCE);
        found.clear();
        level.table.lock().entries(slot..until, &mut found);
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
    file.write_at(0, &header(&level.owner, entries, sum))?;
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
pub(super) fn load(io: &dyn Io, path: &Path, owner: &Owner) -> Vec<Entry> {
    match try_load(io, &with_suffix(path, ".map"), owner) {
        Ok(Some(entries)) => entries,
        Ok(None) => Vec::new(),
        Err(error) => {
            tracing::warn!(%error, "the map of the SSD cache cannot be read; it begins cold");
            Vec::new()
        }
    }
}

fn try_load(io: &dyn Io, path: &Path, owner: &Owner) -> Result<Option<Vec<Entry>>, IoError> {
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
    if head != header(owner, entries as u64, crc32c(rest)) || rest.len() % ENTRY != 0 {
        return Ok(None);
    }
    let u32_at = |of: &[u8], at: usize| u32::from_le_bytes([of[at], of[at + 1], of[at + 2], of[at + 3]]);
    let entry = |of: &[u8]| Entry {
        page: u64::from(u32_at(of, 0)) | u64::from(u32_at(of, 4)) << 32,
        slot: u32_at(of, 8),
        warmth: f32::from_bits(u32_at(of, 12)),
        tag: u16::from_le_bytes([of[16], of[17]]),
    };
    Ok(Some(rest.chunks_exact(ENTRY).map(entry).collect()))
}
