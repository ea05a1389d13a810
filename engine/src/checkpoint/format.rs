//! The layout of image files, and the pieces that the other files of a checkpoint share.
//!
//! ```text
//! image file = file header (64 bytes), blocks…
//! file header= magic "TCLNIMG1" | format u32 | 0 u32 | database 16 bytes | number u64 | 20 zero bytes | crc u32
//! block      = block header (56 bytes), rows…
//! header     = magic "TBLK" | payload length u32 | table u32 | chunk u32 | sequence u32 | last u32
//!            | rows so far u64 | timestamp u64 | replay lsn u64 | schema version u32 | crc u32
//! row        = slot u16 | begin timestamp u64 | length u32 | bytes
//! frozen     = 0 u16 | 2^64 - 1 u64 | length u32 | id of the base u64 | bitmap of slots
//! ```
//!
//! Rows that are frozen stand in the *base* of the chunk, which is written once for each block that the chunk is frozen into. In
//! the image stands which of the base's rows are the chunk's, in a row that has no begin. A base has the form of an image, whose
//! timestamp is its id; its first row has the hidden keys (u64 a position, or nothing), the others the block, in pieces.
//!
//! The image of a chunk is a run of blocks with sequences from 0, the last one marked. A block holds whole rows, up to
//! 1 MiB, or one larger row. Its checksum covers header and payload and starts from the database, the file's number
//! and the block's position, so that neither a bit, nor a block in the wrong place, nor one of another file passes.

use thermocline_base::checksum::{Seed, crc32c_append};
use thermocline_base::ids::{Lsn, TableId, Timestamp};

/// The format that this program writes, and the newest that it reads. Before 2 there were no bases; before 3 a manifest did not
/// name the end of the cold store.
pub(crate) const FORMAT: u32 = 3;
/// Where the begin of a row stands: this is no row, but says which rows of the base are the chunk's.
pub(crate) const FROZEN_ROWS: Timestamp = Timestamp(u64::MAX);
/// Bytes of a block that stand together in a base.
pub(crate) const PIECE_BYTES: usize = 128 << 10;
/// Bytes before the first block of an image file.
pub(crate) const FILE_HEADER_BYTES: usize = 64;
/// Bytes before the rows of a block.
pub(crate) const BLOCK_HEADER_BYTES: usize = 56;
/// Rows are gathered into blocks up to this size.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;
/// Bytes before the bytes of a row.
pub(crate) const ROW_BYTES: usize = 14;

pub(crate) const FILE_MAGIC: &[u8; 8] = b"TCLNIMG1";
const BLOCK_MAGIC: &[u8; 4] = b"TBLK";

/// What an image is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkHeader {
    pub(crate) table: TableId,
    pub(crate) chunk: u32,
    /// The image holds the versions that are visible at this time.
    pub(crate) timestamp: Timestamp,
    /// What is missing from the image stands in the log from here on.
    pub(crate) replay: Lsn,
    /// Which layout the rows have.
    pub(crate) schema_version: u32,
}

/// An image, and where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkImage {
    pub(crate) header: ChunkHeader,
    /// Number of the image file.
    pub(crate) file: u64,
    /// Position of its first block.
    pub(crate) offset: u64,
    /// Bytes of all its blocks.
    pub(crate) bytes: u64,
    /// How many rows it holds.
    pub(crate) rows: u64,
    /// What happened to the chunk since the image stands in the log from here on. Later than the image's own replay
    /// position when a later checkpoint found the chunk unchanged.
    pub(crate) replay: Lsn,
    /// Where its frozen rows stand.
    pub(crate) base: Option<Base>,
}

/// The block that a chunk was frozen into, on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Base {
    /// Drawn at random for each block; never 0.
    pub(crate) id: u64,
    pub(crate) file: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Rows that it takes: one for the hidden keys, one for each piece of the block.
    pub(crate) pieces: u64,
}

impl Base {
    /// What its blocks say that they are of.
    pub(crate) fn header(id: u64, of: &ChunkHeader) -> ChunkHeader {
        ChunkHeader { timestamp: Timestamp(id), replay: Lsn(0), ..*of }
    }

    /// The base whose rows were written as this image.
    pub(crate) fn of(image: &ChunkImage) -> Self {
        let ChunkImage { header, file, offset, bytes, rows, .. } = *image;
        Self { id: header.timestamp.0, file, offset, bytes, pieces: rows }
    }

    /// The same as an image of a chunk, to be read.
    pub(crate) fn image(&self, of: &ChunkHeader) -> ChunkImage {
        let Self { id, file, offset, bytes, pieces } = *self;
        let header = Self::header(id, of);
        ChunkImage { header, file, offset, bytes, rows: pieces, replay: header.replay, base: None }
    }
}

/// A block's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockHeader {
    pub(crate) chunk: ChunkHeader,
    pub(crate) payload: u32,
    pub(crate) sequence: u32,
    pub(crate) last: bool,
    /// Rows of the chunk up to the end of this block.
    pub(crate) rows: u64,
}

impl BlockHeader {
    /// The header's bytes for a block at a position whose checksums start from `start`.
    pub(crate) fn seal(&self, start: u32, payload: &[u8]) -> [u8; BLOCK_HEADER_BYTES] {
        debug_assert_eq!(payload.len(), self.payload as usize, "the payload's length");
        let mut bytes = Encoder::default();
        bytes.raw(BLOCK_MAGIC);
        bytes.u32(self.payload);
        bytes.u32(self.chunk.table.0);
        bytes.u32(self.chunk.chunk);
        bytes.u32(self.sequence);
        bytes.u32(u32::from(self.last));
        bytes.u64(self.rows);
        bytes.u64(self.chunk.timestamp.0);
        bytes.u64(self.chunk.replay.0);
        bytes.u32(self.chunk.schema_version);
        let sum = crc32c_append(crc32c_append(start, &bytes.0), payload);
        bytes.u32(sum);
        bytes.0.try_into().expect("the length of a block's header")
    }

    /// How long the payload claims to be: to be read before the block can be checked.
    pub(crate) fn payload_of(bytes: &[u8; BLOCK_HEADER_BYTES]) -> Option<u32> {
        (bytes[..4] == *BLOCK_MAGIC).then(|| Decoder(&bytes[4..]).u32().expect("it is long enough"))
    }

    /// The header of a block that checks out.
    pub(crate) fn open(bytes: &[u8; BLOCK_HEADER_BYTES], start: u32, payload: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_at(BLOCK_HEADER_BYTES - 4);
        if crc32c_append(crc32c_append(start, body), payload).to_le_bytes() != *sum {
            return None;
        }
        let mut fields = Decoder(&body[4..]);
        let payload = fields.u32()?;
        let table = TableId(fields.u32()?);
        let chunk = fields.u32()?;
        let sequence = fields.u32()?;
        let last = fields.u32()? != 0;
        let rows = fields.u64()?;
        let timestamp = Timestamp(fields.u64()?);
        let replay = Lsn(fields.u64()?);
        let schema_version = fields.u32()?;
        let chunk = ChunkHeader { table, chunk, timestamp, replay, schema_version };
        Some(Self { chunk, payload, sequence, last, rows })
    }
}

/// What the checksums of an image file start from.
pub(crate) fn image_seed(database: &[u8; 16], number: u64) -> Seed {
    Seed::new(database, number)
}

/// The name of an image file.
pub(crate) fn image_name(number: u64) -> String {
    format!("{number:08}.img")
}

/// The number of an image file.
pub(crate) fn image_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".img")?;
    let number = digits.parse().ok()?;
    (image_name(number) == name).then_some(number)
}

/// Appends fields in little-endian order.
#[derive(Debug, Default)]
pub(crate) struct Encoder(pub(crate) Vec<u8>);

impl Encoder {
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }
}

/// Takes fields off the front; `None` when there is not enough.
#[derive(Debug)]
pub(crate) struct Decoder<'a>(pub(crate) &'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) fn raw(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.raw(2)?.try_into().ok()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.raw(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.raw(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_come_back_and_flips_are_noticed(
            payload in proptest::collection::vec(any::<u8>(), 0..64),
            numbers: [u64; 3], small: [u32; 4], last: bool, bit: usize,
        ) {
            let chunk = ChunkHeader {
                table: TableId(small[0]), chunk: small[1], timestamp: Timestamp(numbers[0]),
                replay: Lsn(numbers[1]), schema_version: small[2],
            };
            let header = BlockHeader {
                chunk, payload: payload.len() as u32, sequence: small[3], last, rows: numbers[2],
            };
            let seed = image_seed(&[1; 16], 5);
            let sealed = header.seal(seed.at(64), &payload);
            prop_assert_eq!(BlockHeader::payload_of(&sealed), Some(payload.len() as u32));
            prop_assert_eq!(BlockHeader::open(&sealed, seed.at(64), &payload), Some(header));
            prop_assert_eq!(BlockHeader::open(&sealed, seed.at(128), &payload), None);
            let mut all = [&sealed[..], &payload[..]].concat();
            let bit = bit % (all.len() * 8);
            all[bit / 8] ^= 1 << (bit % 8);
            let (head, tail) = all.split_at(BLOCK_HEADER_BYTES);
            prop_assert_eq!(BlockHeader::open(head.try_into().expect("a header"), seed.at(64), tail), None);
        }
    }

    #[test]
    fn image_names_come_back() {
        assert_eq!(image_number(&image_name(7)), Some(7));
        assert_eq!(image_number(&image_name(123_456_789_012)), Some(123_456_789_012));
        for wrong in ["7.img", "00000007.im", "+0000007.img", "manifest-1"] {
            assert_eq!(image_number(wrong), None);
        }
    }
}
