//! The file of a level: a header, and slots.
//!
//! ```text
//!   0        8       12      16      20   24           40       44        4096
//!   ┌────────┬───────┬───────┬───────┬────┬────────────┬────────┬─── ┄ ───┬────────┬────────┬─ ┄
//!   │thclssdc│format │page   │slots  │ 0  │ database id│checksum│ 0       │ slot 0 │ slot 1 │
//!   │        │       │bytes  │       │    │            │of 0..40│         │        │        │
//!   └────────┴───────┴───────┴───────┴────┴────────────┴────────┴─── ┄ ───┴────────┴────────┴─ ┄
//!                                              little-endian           a slot holds a page as it stands in the page file
//! ```
//!
//! The header says whose file it is, and nothing about slots: what lies there is proved page by page. Its space is taken when it
//! is opened, so a write of a slot finds its space later. A file of this database in another size, page size or older format is
//! made anew; one of another database, or of anybody else, is refused and left as it is.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::checksum::crc32c;
use thermocline_base::io::{AlignedBytes, DIRECT_ALIGNMENT, File, Io, IoError, LockGuard, OpenMode};
use thermocline_base::sync::Backoff;

use super::SsdError;
use crate::error::WrongFile;
use crate::page::EXTENT_PAGES;
use crate::page::PageSize;

/// The format of files that this program writes, and the newest that it reads.
pub const SSD_FORMAT: u32 = 1;

const MAGIC: &[u8; 8] = b"thclssdc";
const SUMMED: usize = 40;
const HEADER_BYTES: u64 = DIRECT_ALIGNMENT as u64;

/// Where slots begin.
pub(super) const SLOTS_AT: u64 = HEADER_BYTES;

/// Pages that so many bytes have room for.
pub(super) fn slots_in(bytes: u64, page_size: PageSize) -> u32 {
    u32::try_from(bytes / page_size.bytes() as u64).unwrap_or(u32::MAX).min(SLOTS_MAX)
}

pub(super) fn open(
    io: &dyn Io,
    path: &Path,
    bytes: u64,
    page_size: PageSize,
    database: [u8; 16],
) -> Result<(Arc<dyn File>, u32, LockGuard), SsdError> {
    let page_bytes = page_size.bytes() as u64;
    let least = HEADER_BYTES + EXTENT_PAGES * page_bytes;
    if bytes < least {
        return Err(SsdError::TooSmall { bytes, least });
    }
    let slots = slots_in(bytes - HEADER_BYTES, page_size);
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let lock = lock(io, Path::new(&lock_path)).map_err(|error| match error.is_locked() {
        true => SsdError::InUse(path.to_path_buf()),
        false => SsdError::Io(error),
    })?;
    let there = io.exists(path)?;
    let file = io.open_direct(path, if there { OpenMode::Write } else { OpenMode::CreateNew })?;
    if there {
        check(&*file, path, database)?;
    }
    let len = SLOTS_AT + u64::from(slots) * page_bytes;
    let taken = take_space(&*file, len).and_then(|()| write_header(&*file, slots, page_size, database));
    if let Err(error) = taken {
        drop(file);
        if !there {
            // Nothing was in it; if it stays, the next opening takes it over.
            let _ = io.remove(path);
        }
        return Err(if error.is_full() { SsdError::Full { bytes, error } } else { error.into() });
    }
    Ok((file, slots, lock))
}

/// Slots have 31 bits: 8 TiB in pages of 4 KiB.
const SLOTS_MAX: u32 = 1 << 31;

/// The lock of the file. Operations that an opening before has left under way hold it for some moments more.
fn lock(io: &dyn Io, path: &Path) -> Result<LockGuard, IoError> {
    let mut backoff = Backoff::new();
    for _ in 0..LOCK_TRIES {
        match io.lock_exclusive(path) {
            Err(error) if error.is_locked() => backoff.sleep(Duration::from_millis(10)),
            locked => return locked,
        }
    }
    io.lock_exclusive(path)
}

const LOCK_TRIES: u32 = 40;

fn take_space(file: &dyn File, len: u64) -> Result<(), IoError> {
    if file.len()? > len {
        file.set_len(len)?;
    }
    file.allocate(len)
}

fn write_header(file: &dyn File, slots: u32, page_size: PageSize, database: [u8; 16]) -> Result<(), IoError> {
    let mut bytes = AlignedBytes::zeroed(HEADER_BYTES as usize);
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&SSD_FORMAT.to_le_bytes());
    bytes[12..16].copy_from_slice(&(page_size.bytes() as u32).to_le_bytes());
    bytes[16..20].copy_from_slice(&slots.to_le_bytes());
    bytes[24..40].copy_from_slice(&database);
    let sum = crc32c(&bytes[..SUMMED]);
    bytes[40..44].copy_from_slice(&sum.to_le_bytes());
    file.write_at(0, &bytes)?;
    file.sync_data()
}

/// Is it this database's, or empty?
fn check(file: &dyn File, path: &Path, database: [u8; 16]) -> Result<(), SsdError> {
    let mut bytes = AlignedBytes::zeroed(HEADER_BYTES as usize);
    let come = file.read_at(0, &mut bytes)?;
    let bytes = &bytes[..come];
    if bytes.iter().all(|byte| *byte == 0) {
        // Its creation was interrupted.
        return Ok(());
    }
    let path = || Arc::new(path.to_path_buf());
    if !bytes.starts_with(MAGIC) || come < SUMMED + 4 {
        return Err(SsdError::File(WrongFile::Foreign { path: path() }));
    }
    let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let found = u32_at(8);
    if found > SSD_FORMAT {
        return Err(SsdError::File(WrongFile::Newer { path: path(), found, supported: SSD_FORMAT }));
    }
    if u32_at(SUMMED) != crc32c(&bytes[..SUMMED]) {
        // Torn while it was written: whose it is cannot be told, and nothing in it counts.
        return Ok(());
    }
    let found: [u8; 16] = std::array::from_fn(|at| bytes[24 + at]);
    if found != database {
        let wrong = WrongFile::OtherDatabase { path: path(), expected: database, found };
        return Err(SsdError::File(wrong));
    }
    Ok(())
}
