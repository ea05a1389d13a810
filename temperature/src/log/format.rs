//! The bytes of an access log.
//!
//! ```text
//!   file     header (64 bytes) | block | block | …                        all integers little-endian
//!   header   magic 8 | version u32 | partitions u32 | id 16 | quantum_us u64 | start_wall_us i64 | zeros 12 | crc u32
//!   block    header (392 bytes) | marks | definitions 0..16 | entries 0..16 | padding to 8 | length u32 | tail magic u32
//!   b-header magic u32 | crc u32 | length u32 | quanta u32 | section u64 | previous u64 | first_quantum u64 |
//!            recorded u32 | entries u32 | weight u64 | definitions u32 | zeros u32 |
//!            33 × (length u32, crc u32) of the parts | 16 × u32 id of the first definition of each partition
//! ```
//!
//! - A *section* is a run of blocks with a dictionary of its own: rows get numbers, by partition, in the order in which
//!   they first occur. So an entry is small and a reader looks a name up once a section instead of once an access.
//!   `section` is the offset of the section's first block, `previous` that of the block before (0: none).
//! - *Partition* `p` holds the rows whose mixed name starts with `p`: a reader that classifies with several threads
//!   gives each its partitions, which are contiguous bytes.
//! - `marks`: for each quantum of the block, varints: its number less that of the one before (the first: less
//!   `first_quantum`), the weight of an entry that names none, recorded accesses.
//! - A definition: table varint, hash 8 bytes, size class varint.
//! - Entries, for each quantum: their count as a varint, then each, in ascending order of the row's number: varint
//!   `gap << 1 | more`, `gap` being the number less the last one's successor; if `more`, a varint `weight << 1 | cold`.
//!   An entry is all the accesses of a row in a quantum.
//! - A quantum can be split over at most [`PORTIONS_MAX`] blocks, when it knows more rows than a dictionary holds.
//! - Checksums are CRC-32C and start from the log's id and the block's offset: a block that was moved is damaged.
//!
//! Offsets count from the beginning of the file or of the stream, so a stream that was stored is a log.

use thermocline_base::checksum::{Seed, crc32c, crc32c_append};

/// The version of the format.
pub(crate) const VERSION: u32 = 1;
pub(crate) const FILE_HEADER_BYTES: usize = 64;
pub(crate) const BLOCK_HEADER_BYTES: usize = 392;
pub(crate) const TAIL_BYTES: usize = 8;
/// Rows are divided into so many partitions by the top bits of their mixed names.
pub(crate) const PARTITIONS: usize = 16;
pub(crate) const PARTITION_SHIFT: u32 = 60;
/// Into how many blocks a quantum can be split.
pub(crate) const PORTIONS_MAX: u32 = 16;
/// No block is longer; what says so is damaged.
pub(crate) const BLOCK_BYTES_MAX: u32 = 1 << 30;
/// No row counts for more accesses in a quantum.
pub(crate) const WEIGHT_MAX: u32 = 1 << 30;

const FILE_MAGIC: [u8; 8] = *b"THCLACCL";
pub(crate) const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"ACBK");
const TAIL_MAGIC: u32 = u32::from_le_bytes(*b"KBCA");

pub(crate) const MARKS: usize = 0;
pub(crate) const DEFINITIONS: usize = 1;
pub(crate) const ENTRIES: usize = DEFINITIONS + PARTITIONS;
pub(crate) const PARTS: usize = ENTRIES + PARTITIONS;

const PARTS_AT: usize = 64;
const FIRST_IDS_AT: usize = PARTS_AT + PARTS * 8;
const _: () =
    assert!(FIRST_IDS_AT + PARTITIONS * 4 == BLOCK_HEADER_BYTES && PARTITIONS == 1 << (64 - PARTITION_SHIFT));

/// The head of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) id: [u8; 16],
    pub(crate) quantum_us: u64,
    pub(crate) start_wall_us: i64,
}

/// Why a file's head was not understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    NotALog,
    Version(u32),
}

impl FileHeader {
    pub(crate) fn encode(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut bytes = [0; FILE_HEADER_BYTES];
        bytes[..8].copy_from_slice(&FILE_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(PARTITIONS as u32).to_le_bytes());
        bytes[16..32].copy_from_slice(&self.id);
        bytes[32..40].copy_from_slice(&self.quantum_us.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.start_wall_us.to_le_bytes());
        let sum = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        let bytes: &[u8; FILE_HEADER_BYTES] =
            bytes.first_chunk().filter(|bytes| bytes[..8] == FILE_MAGIC).ok_or(BadHeader::NotALog)?;
        if u32_at(bytes, 60) != crc32c(&bytes[..60]) {
            return Err(BadHeader::NotALog);
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(BadHeader::Version(version));
        }
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[16..32]);
        Ok(Self { id, quantum_us: u64_at(bytes, 32), start_wall_us: u64_at(bytes, 40) as i64 })
    }

    pub(crate) fn seed(&self) -> Seed {
        Seed::new(&self.id, u64::from(VERSION))
    }
}

/// A part of a block: where its bytes stand, counted from the block's start, and their checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) at: u32,
    pub(crate) len: u32,
    pub(crate) sum: u32,
}

/// The head of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Where it stands; not written, but part of the checksum.
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) quanta: u32,
    pub(crate) section: u64,
    pub(crate) previous: u64,
    pub(crate) first_quantum: u64,
    pub(crate) recorded: u32,
    pub(crate) entries: u32,
    pub(crate) weight: u64,
    pub(crate) definitions: u32,
    pub(crate) parts: [Part; PARTS],
    pub(crate) first_ids: [u32; PARTITIONS],
}

impl Block {
    pub(crate) fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }

    /// The head, with its checksum.
    pub(crate) fn encode(&self, seed: Seed) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        let mut put = |at: usize, value: u64, len: usize| {
            bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        };
        put(0, u64::from(BLOCK_MAGIC), 4);
        put(8, u64::from(self.length), 4);
        put(12, u64::from(self.quanta), 4);
        put(16, self.section, 8);
        put(24, self.previous, 8);
        put(32, self.first_quantum, 8);
        put(40, u64::from(self.recorded), 4);
        put(44, u64::from(self.entries), 4);
        put(48, self.weight, 8);
        put(56, u64::from(self.definitions), 4);
        for (index, part) in self.parts.iter().enumerate() {
            put(PARTS_AT + index * 8, u64::from(part.len), 4);
            put(PARTS_AT + index * 8 + 4, u64::from(part.sum), 4);
        }
        for (index, id) in self.first_ids.iter().enumerate() {
            put(FIRST_IDS_AT + index * 4, u64::from(*id), 4);
        }
        let sum = crc32c_append(seed.at(self.offset), &bytes[8..]);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The head of the block at `offset`, or what is wrong with it.
    pub(crate) fn decode(bytes: &[u8], offset: u64, seed: Seed) -> Result<Self, &'static str> {
        let bytes: &[u8; BLOCK_HEADER_BYTES] =
            bytes.first_chunk().ok_or("the file ends inside of a block")?;
        if u32_at(bytes, 0) != BLOCK_MAGIC {
            return Err("no block begins here");
        }
        if u32_at(bytes, 4) != crc32c_append(seed.at(offset), &bytes[8..]) {
            return Err("the checksum of a block's header is wrong");
        }
        let mut parts = [Part::default(); PARTS];
        let mut at = BLOCK_HEADER_BYTES as u64;
        let length = u32_at(bytes, 8);
        for (index, part) in parts.iter_mut().enumerate() {
            let len = u32_at(bytes, PARTS_AT + index * 8);
            *part = Part {
                at: at.min(u64::from(u32::MAX)) as u32,
                len,
                sum: u32_at(bytes, PARTS_AT + index * 8 + 4),
            };
            at += u64::from(len);
        }
        let block = Self {
            offset,
            length,
            quanta: u32_at(bytes, 12),
            section: u64_at(bytes, 16),
            previous: u64_at(bytes, 24),
            first_quantum: u64_at(bytes, 32),
            recorded: u32_at(bytes, 40),
            entries: u32_at(bytes, 44),
            weight: u64_at(bytes, 48),
            definitions: u32_at(bytes, 56),
            parts,
            first_ids: std::array::from_fn(|index| u32_at(bytes, FIRST_IDS_AT + index * 4)),
        };
        // Behind a checksum these hold, unless a person made the file by hand; readers rely on them.
        let fits =
            at.next_multiple_of(8) + TAIL_BYTES as u64 == u64::from(length) && length <= BLOCK_BYTES_MAX;
        let ordered = block.section <= offset && block.previous < offset.max(1);
        if fits && ordered { Ok(block) } else { Err("a block's header contradicts itself") }
    }

    /// The checksum of a part.
    pub(crate) fn part_sum(seed: Seed, offset: u64, bytes: &[u8]) -> u32 {
        crc32c_append(seed.at(offset), bytes)
    }
}

/// The end of a block of `length` bytes.
pub(crate) fn tail(length: u32) -> [u8; TAIL_BYTES] {
    let mut bytes = [0; TAIL_BYTES];
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[4..].copy_from_slice(&TAIL_MAGIC.to_le_bytes());
    bytes
}

/// The length of the block that ends with `bytes`.
pub(crate) fn tail_length(bytes: &[u8]) -> Option<u32> {
    (bytes.len() == TAIL_BYTES && u32_at(bytes, 4) == TAIL_MAGIC).then(|| u32_at(bytes, 0))
}

/// A block's mark of one quantum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) quantum: u64,
    /// The weight of an entry that names none.
    pub(crate) weight: u32,
    pub(crate) recorded: u32,
}

/// The marks of a block, or none if the bytes do not hold as many as its head says, or more.
pub(crate) fn marks(bytes: &[u8], block: &Block) -> Option<Vec<Mark>> {
    let mut at = 0;
    let mut quantum = block.first_quantum;
    let mut marks = Vec::with_capacity((block.quanta as usize).min(bytes.len()));
    for _ in 0..block.quanta {
        quantum = quantum.checked_add(varint(bytes, &mut at)?)?;
        let weight = u32::try_from(varint(bytes, &mut at)?).ok().filter(|weight| *weight <= WEIGHT_MAX)?;
        let recorded = u32::try_from(varint(bytes, &mut at)?).ok()?;
        marks.push(Mark { quantum, weight, recorded });
    }
    (at == bytes.len()).then_some(marks)
}

/// Appends `value` in groups of seven bits, the low ones first.
#[inline]
pub(crate) fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Reads what [`put_varint`] wrote; none if it does not end, or is too long.
#[inline]
pub(crate) fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = *bytes.get(*at)?;
    *at += 1;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    let second = *bytes.get(*at)?;
    *at += 1;
    if second < 0x80 {
        return Some(u64::from(first & 0x7F) | u64::from(second) << 7);
    }
    let mut value = u64::from(first & 0x7F) | u64::from(second & 0x7F) << 7;
    for group in 2..10 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7F) << (7 * group);
        if byte < 0x80 {
            return (group < 9 || byte <= 1).then_some(value);
        }
    }
    None
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("callers give enough bytes"))
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("callers give enough bytes"))
}
