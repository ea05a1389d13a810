//! Files for what statements keep and memory does not hold: sorted rows, groups.
//!
//! ```text
//! <data-dir>/spill/ ── spill-<number>, whose name goes as soon as it is open
//! file: block, block, …    block: the bytes as they were given, and up to the alignment of direct files some of any earlier block
//! ```
//!
//! Rules:
//! - A file goes with its handle, and with the process: nothing of it is ever found again, so there is no format.
//! - A block is written once, and its place and checksum stand in memory ([`SpillBlock`]): bytes that are not those that were written
//!   are an error.
//! - Reads and writes pass by the system's cache and block no thread.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use thermocline_base::checksum::crc32c;
use thermocline_base::ids::fresh_number;
use thermocline_base::io::{AlignedBytes, Buffer, File, IoError, OpenMode, Operation};
use thermocline_base::sync::{AtomicU64, Ordering};

use crate::api::Database;
use crate::api::reservation::Reservation;
use crate::error::{Error, Result};
use crate::options::IN_MEMORY;
use crate::session::db::Inner;

/// A file for what a statement keeps beyond memory.
///
/// ```
/// # use thermocline_engine::{Database, Options, block_on};
/// # fn main() -> thermocline_engine::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory can be made");
/// let db = Database::open(dir.path(), Options::default())?;
/// let file = db.spill_file()?.expect("the database has a directory");
/// let block = block_on(file.write(b"rows"))?;
/// let mut back = Vec::new();
/// block_on(file.read(&block, &mut back))?;
/// assert_eq!(back, b"rows");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SpillFile {
    file: Arc<dyn File>,
    dir: PathBuf,
    end: AtomicU64,
    /// Buffers that no operation has.
    spare: Mutex<Vec<AlignedBytes>>,
}

/// Buffers that a file keeps between two operations: to map and to clear one takes as long as to copy it.
const SPARE: usize = 8;
/// Bytes that a buffer may have more than are asked for.
const LONGER: usize = 16 << 10;

/// Bytes in a [`SpillFile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpillBlock {
    offset: u64,
    len: usize,
    checksum: u32,
}

impl Database {
    /// A new file in the directory `spill` of the database. It has no name: it goes when it is dropped. `None`: a database in memory
    /// has no directory.
    ///
    /// # Errors
    /// The directory or the file cannot be made (58030), or the disk is full (53100).
    pub fn spill_file(&self) -> Result<Option<SpillFile>> {
        spill_file(self.inner())
    }
}

impl Reservation {
    /// A new file of its database: see [`Database::spill_file`].
    ///
    /// # Errors
    /// As there.
    pub fn spill_file(&self) -> Result<Option<SpillFile>> {
        spill_file(self.database())
    }
}

fn spill_file(db: &Inner) -> Result<Option<SpillFile>> {
    let (io, dir) = (db.files.io(), db.files.dir());
    if dir == std::path::Path::new(IN_MEMORY) {
        return Ok(None);
    }
    let dir = dir.join("spill");
    let open = || {
        io.create_dir_all(&dir)?;
        let path = dir.join(format!("spill-{:016x}", fresh_number()));
        // Of a process that was killed before it could take the name away.
        let _ = io.remove(&path);
        let file = io.open_direct(&path, OpenMode::CreateNew)?;
        io.remove(&path)?;
        Ok(file)
    };
    let file = open().map_err(|error| spill_error(&dir, error))?;
    Ok(Some(SpillFile { file, dir, end: AtomicU64::new(0), spare: Mutex::default() }))
}

fn spill_error(dir: &std::path::Path, error: IoError) -> Error {
    if error.is_full() { Error::DiskFull { directory: dir.to_owned() } } else { Error::Io(error) }
}

impl SpillBlock {
    /// Bytes of the block.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len
    }
}

impl SpillFile {
    /// Bytes that it takes on the disk.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// A buffer for so many bytes, or somewhat more.
    fn buffer(&self, len: usize) -> AlignedBytes {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = spare.iter().position(|buffer| (len..=len + LONGER).contains(&buffer.len()));
        fits.map_or_else(|| AlignedBytes::zeroed(len), |place| spare.swap_remove(place))
    }

    fn give_back(&self, buffer: Buffer) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(buffer) = buffer.into_aligned()
            && spare.len() < SPARE
        {
            spare.push(buffer);
        }
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The disk is full (53100) or does not take them (58030).
    pub async fn write(&self, bytes: &[u8]) -> Result<SpillBlock> {
        let mut buffer = self.buffer(bytes.len());
        buffer[..bytes.len()].copy_from_slice(bytes);
        // The place is taken whether or not the write ends: nothing else is written there.
        let offset = self.end.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        let outcome = self.file.submit(Operation::Write { offset, buffer: buffer.into() }).await;
        outcome.result.map_err(|error| spill_error(&self.dir, error))?;
        self.give_back(outcome.buffer);
        Ok(SpillBlock { offset, len: bytes.len(), checksum: crc32c(bytes) })
    }

    /// Reads a block that was written here, behind what stands in `into`.
    ///
    /// # Errors
    /// The disk does not give it (58030), or other bytes (XX001).
    pub async fn read(&self, block: &SpillBlock, into: &mut Vec<u8>) -> Result<()> {
        let buffer = self.buffer(block.len);
        let outcome = self.file.submit(Operation::Read { offset: block.offset, buffer: buffer.into() }).await;
        let count = outcome.result.map_err(|error| spill_error(&self.dir, error))?;
        let bytes = outcome.buffer.as_slice().get(..block.len).filter(|_| count >= block.len);
        let bytes = bytes.filter(|bytes| crc32c(bytes) == block.checksum);
        let damaged = || Error::Damaged {
            file: self.file.path().to_owned(),
            what: format!(
                "the block at {} is not the one that a statement has kept there; run it again",
                block.offset
            ),
        };
        into.extend_from_slice(bytes.ok_or_else(damaged)?);
        self.give_back(outcome.buffer);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use thermocline_base::io::{Io, MemoryIo};

    use super::*;
    use crate::{Options, block_on};

    fn open(io: &Arc<MemoryIo>) -> Database {
        Database::open_with(Path::new("/db"), Options::default(), Arc::clone(io) as Arc<dyn Io>, false)
            .expect("it opens")
    }

    #[test]
    fn blocks_come_back_as_they_went() {
        let io = Arc::new(MemoryIo::new());
        let db = open(&io);
        let file = db.spill_file().expect("it is made").expect("there is a directory");
        assert_eq!(io.list(Path::new("/db/spill")).expect("it was made"), [""; 0], "the file has no name");
        let texts: Vec<Vec<u8>> = [0, 1, 4095, 4096, 4097, 200_000].map(|len| vec![len as u8; len]).into();
        let blocks: Vec<SpillBlock> =
            texts.iter().map(|text| block_on(file.write(text)).expect("it is written")).collect();
        for (text, block) in texts.iter().zip(&blocks).rev() {
            let mut back = b"before".to_vec();
            block_on(file.read(block, &mut back)).expect("it is read");
            assert!(back.starts_with(b"before") && back[6..] == **text);
            assert_eq!(block.bytes(), text.len());
        }
        let wrong = SpillBlock { checksum: 1, ..blocks[2] };
        let error = block_on(file.read(&wrong, &mut Vec::new())).expect_err("it is another block");
        assert_eq!(error.sqlstate(), "XX001", "{error}");
        let beyond = SpillBlock { offset: file.bytes(), ..blocks[2] };
        assert!(block_on(file.read(&beyond, &mut Vec::new())).is_err());
    }

    #[test]
    fn a_database_in_memory_has_no_files() {
        let db = Database::open_in_memory(Options::default()).expect("it opens");
        assert!(db.spill_file().expect("that is no error").is_none());
        assert!(db.reservation().spill_file().expect("that is no error").is_none());
    }
}
