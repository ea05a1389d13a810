//! The files of the log.
//!
//! A segment is one preallocated file, `FFFFFFFFFFFFFFFF-GGGGGGGG.log`: the position of its first byte and its
//! generation, both in hexadecimal. The bytes of the log follow the header and run on in the next segment; records
//! cross the border.
//!
//! ```text
//! header = magic "TCLNLOG1" | format u32 | 0 u32 | database 16 bytes | generation u64 | first lsn u64
//!        | bytes u64 | durable u64 | crc u32                      (the rest of 4 KiB is zero)
//! ```
//!
//! *Generation*: one more with every opening of the log, which starts a segment of its own where recovery ended. A
//! segment therefore ends where the next one starts, or when its bytes are used up. What stands behind that end (a
//! torn tail, or the bytes of a former life) never checks out, because the generation and the position are part of
//! every checksum; nothing has to be overwritten (`ChecksumBindsPosition`).
//!
//! *Birth*: the length is taken and made durable, then the header, then the name. So a valid header proves that the
//! file has its length, and no record goes into a segment that a crash could take away.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_base::checksum::{Seed, crc32c_append};
use thermocline_base::ids::Lsn;
use thermocline_base::io::{AlignedBytes, File, Io, IoError, OpenMode};

use super::error::LogError;

/// Bytes before the log's bytes in a segment.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 4096;
/// The format that this program writes, and the newest that it reads.
pub(crate) const FORMAT: u32 = 3;
const MAGIC: &[u8; 8] = b"TCLNLOG1";
const USED: usize = 68;

/// What a segment's name says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct SegmentName {
    pub(crate) first: Lsn,
    pub(crate) generation: u32,
}

impl SegmentName {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (first, generation) = name.strip_suffix(".log")?.split_once('-')?;
        if first.len() != 16 || generation.len() != 8 {
            return None;
        }
        let first = Lsn(u64::from_str_radix(first, 16).ok()?);
        Some(Self { first, generation: u32::from_str_radix(generation, 16).ok()? })
    }

    pub(crate) fn path(self, dir: &Path) -> PathBuf {
        dir.join(format!("{:016x}-{:08x}.log", self.first.0, self.generation))
    }
}

/// What a segment's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub(crate) name: SegmentName,
    /// How many bytes of the log it can hold.
    pub(crate) bytes: u64,
    /// Up to where the log was durable when the segment was made.
    pub(crate) durable: Lsn,
}

/// Why a header is none.
#[derive(Debug)]
pub(crate) enum HeaderError {
    /// It never was one, or it is damaged.
    Invalid(&'static str),
    /// A final answer.
    Log(LogError),
}

impl SegmentHeader {
    fn encode(self, database: &[u8; 16]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SEGMENT_HEADER_BYTES as usize);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(database);
        bytes.extend_from_slice(&u64::from(self.name.generation).to_le_bytes());
        bytes.extend_from_slice(&self.name.first.0.to_le_bytes());
        bytes.extend_from_slice(&self.bytes.to_le_bytes());
        bytes.extend_from_slice(&self.durable.0.to_le_bytes());
        let sum = crc32c_append(0, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        assert_eq!(bytes.len(), USED, "the length of a segment's header");
        bytes.resize(SEGMENT_HEADER_BYTES as usize, 0);
        bytes
    }

    /// Reads the header of the file that is called `name`.
    pub(crate) fn read(
        file: &dyn File,
        name: SegmentName,
        database: &[u8; 16],
    ) -> Result<SegmentHeader, HeaderError> {
        let io = |error: IoError| HeaderError::Log(error.into());
        let mut bytes = [0; USED];
        if file.read_full_at(0, &mut bytes).map_err(io)? < USED || &bytes[..8] != MAGIC {
            return Err(HeaderError::Invalid("it has no segment header"));
        }
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if word(64) != crc32c_append(0, &bytes[..64]) {
            return Err(HeaderError::Invalid("its header does not check out"));
        }
        let path = || file.path().to_path_buf();
        if word(8) > FORMAT {
            let newer = LogError::Newer { file: path(), version: word(8), known: FORMAT };
            return Err(HeaderError::Log(newer));
        }
        if bytes[16..32] != *database {
            return Err(HeaderError::Log(LogError::Foreign { file: path() }));
        }
        if long(32) != u64::from(name.generation) || long(40) != name.first.0 {
            return Err(HeaderError::Invalid("its header is of a former life"));
        }
        let header = Self { name, bytes: long(48), durable: Lsn(long(56)) };
        if file.len().map_err(io)? < SEGMENT_HEADER_BYTES + header.bytes {
            return Err(HeaderError::Log(LogError::Damaged {
                file: path(),
                offset: file.len().map_err(io)?,
                lsn: name.first,
                what: format!("the file was cut; it had {} bytes", SEGMENT_HEADER_BYTES + header.bytes),
            }));
        }
        Ok(header)
    }
}

/// What the records of a generation start their checksums from.
pub(crate) fn record_seed(database: &[u8; 16], generation: u32) -> Seed {
    Seed::new(database, u64::from(generation))
}

/// A segment that is written to, or that waits to be truncated.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) name: SegmentName,
    /// The first position that it cannot hold.
    pub(crate) end: Lsn,
    /// `None` for those of former generations, which are never written again.
    pub(crate) file: Option<Arc<dyn File>>,
    /// Has it bytes that no sync has covered?
    pub(crate) dirty: bool,
    /// The file was written, now or in a former life, up to here; behind that its space is only reserved.
    pub(crate) touched: u64,
}

impl Segment {
    /// Makes a segment; durable when this returns. `spare`: a file that may be used up for it.
    pub(crate) fn create(
        io: &dyn Io,
        dir: &Path,
        database: &[u8; 16],
        header: SegmentHeader,
        spare: Option<&Path>,
    ) -> Result<Self, IoError> {
        let path = header.name.path(dir);
        if let Some(spare) = spare {
            io.rename(spare, &path)?;
        }
        // A file of this name can only be the rest of an attempt that failed.
        let file = io.open_direct(&path, OpenMode::Create)?;
        let length = (SEGMENT_HEADER_BYTES + header.bytes).next_multiple_of(file.alignment() as u64);
        let mut first = AlignedBytes::zeroed(SEGMENT_HEADER_BYTES as usize);
        first.copy_from_slice(&header.encode(database));
        let born = file
            .allocate(length)
            .and_then(|()| file.sync_data())
            .and_then(|()| file.write_at(0, &first))
            .and_then(|()| file.sync_data())
            .and_then(|()| io.sync_dir(dir));
        if let Err(error) = born {
            // The first error counts; what is left of the file is no segment, and the next opening removes it.
            let _ = io.remove(&path);
            return Err(error);
        }
        let end = Lsn(header.name.first.0 + header.bytes);
        let touched = if spare.is_some() { length } else { SEGMENT_HEADER_BYTES };
        Ok(Self { name: header.name, end, file: Some(file), dirty: false, touched })
    }

    /// A segment of a former generation.
    pub(crate) fn former(name: SegmentName, end: Lsn) -> Self {
        Self { name, end, file: None, dirty: false, touched: 0 }
    }

    /// Where in the file a position is.
    pub(crate) fn offset(&self, lsn: u64) -> u64 {
        SEGMENT_HEADER_BYTES + (lsn - self.name.first.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_base::io::MemoryIo;

    #[test]
    fn names_come_back() {
        let name = SegmentName { first: Lsn(0xAB_CDEF), generation: 7 };
        let path = name.path(Path::new("log"));
        assert_eq!(path, Path::new("log/0000000000abcdef-00000007.log"));
        let file = path.file_name().and_then(|name| name.to_str()).expect("a name");
        assert_eq!(SegmentName::parse(file), Some(name));
        for wrong in ["x.log", "0000000000abcdef.log", "0000000000abcdef-0000007.log", "manifest-1"] {
            assert_eq!(SegmentName::parse(wrong), None);
        }
    }

    #[test]
    fn every_damaged_bit_of_a_header_is_noticed() {
        let io = MemoryIo::new();
        io.create_dir_all(Path::new("log")).expect("made");
        let name = SegmentName { first: Lsn(64), generation: 2 };
        let header = SegmentHeader { name, bytes: 1024, durable: Lsn(8) };
        Segment::create(&io, Path::new("log"), &[5; 16], header, None).expect("created");
        let path = name.path(Path::new("log"));
        let read = |database: u8| {
            let file = io.open(&path, OpenMode::Read).expect("it is there");
            SegmentHeader::read(&*file, name, &[database; 16])
        };
        assert_eq!(read(5).expect("valid"), header);
        assert!(matches!(read(6), Err(HeaderError::Log(LogError::Foreign { .. }))));
        for bit in 0..USED * 8 {
            io.flip(&path, bit as u64 / 8, 1 << (bit % 8));
            assert!(matches!(read(5), Err(HeaderError::Invalid(_))), "bit {bit}");
            io.flip(&path, bit as u64 / 8, 1 << (bit % 8));
        }
        io.open(&path, OpenMode::Write).expect("it is there").set_len(5000).expect("cut");
        assert!(matches!(read(5), Err(HeaderError::Log(LogError::Damaged { offset: 5000, .. }))));
    }
}
