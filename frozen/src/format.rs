//! The bytes of a block: header, directories, entries. The byte diagrams stand in `docs/understand/frozen.md`.
//!
//! ```text
//! header 64 | a column 32 each | a group 24 each | zones 32 each, column by column | dictionaries | to 64 |
//! groups, each from a multiple of 64: entries 24 each, a column after another | presence | segments | … | 16 of zero
//! ```
//!
//! Rules: the first checksum covers header, directories and zones; each dictionary, each group's presence and each segment
//! (entry and data of one column in one group) has one of its own, and what lies between them is zero: so each byte is covered.
//! The zeros at the end let readers take 16 bytes wherever a value begins.

use super::GROUP_ROWS;
use super::bytes::{array_at, u16_at, u32_at, u64_at};
use super::ints::{Kind, Params};

pub(crate) const MAGIC: [u8; 8] = *b"THERMOFZ";
/// The version that is written, and the newest that is read.
pub(crate) const VERSION: u16 = 1;
pub(crate) const HEADER: usize = 64;
pub(crate) const COLUMN: usize = 32;
pub(crate) const GROUP: usize = 24;
pub(crate) const ZONE: usize = 32;
pub(crate) const ENTRY: usize = 24;
/// Zeros at the end.
pub(crate) const TAIL: usize = 16;
/// Groups begin at multiples of it: a cache line.
pub(crate) const ALIGN: usize = 64;

/// Which encodings a builder may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Whatever is smallest; a run is found in O(log runs).
    Smallest,
    /// Those that give a value by its position in O(1), for chunks that transactions still read.
    #[default]
    PointReads,
}

/// The form in which the values of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stored {
    /// The integers of a group are the values.
    Integers = 1,
    /// The integers of a group are places in the block's dictionary of the column, which is in the order of the values.
    Codes = 2,
    /// 16 bytes a value.
    Wide = 3,
    /// The integers of a group are where each value's bytes end; the bytes follow.
    Bytes = 4,
}

impl Stored {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [Stored::Integers, Stored::Codes, Stored::Wide, Stored::Bytes].into_iter().find(|s| *s as u8 == byte)
    }
}

/// The fields of the header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) columns: usize,
    pub(crate) groups: usize,
    pub(crate) total: usize,
    pub(crate) number: u64,
    pub(crate) layout: u64,
    pub(crate) rows: u32,
    pub(crate) span: u32,
}

impl Header {
    /// Bytes of header, directories and zones.
    pub(crate) fn front(&self) -> usize {
        self.zones_at() + self.columns * self.groups * ZONE
    }

    pub(crate) fn groups_at(&self) -> usize {
        HEADER + self.columns * COLUMN
    }

    pub(crate) fn zones_at(&self) -> usize {
        self.groups_at() + self.groups * GROUP
    }

    /// Positions of group `group`.
    #[inline(always)]
    pub(crate) fn positions_in(&self, group: usize) -> usize {
        (self.span as usize).saturating_sub(group * GROUP_ROWS).min(GROUP_ROWS)
    }

    pub(crate) fn write(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out[10..12].copy_from_slice(&(self.columns as u16).to_le_bytes());
        out[12..14].copy_from_slice(&(self.groups as u16).to_le_bytes());
        out[16..24].copy_from_slice(&(self.total as u64).to_le_bytes());
        out[24..32].copy_from_slice(&self.number.to_le_bytes());
        out[32..40].copy_from_slice(&self.layout.to_le_bytes());
        out[40..44].copy_from_slice(&self.rows.to_le_bytes());
        out[44..48].copy_from_slice(&self.span.to_le_bytes());
    }

    pub(crate) fn read(bytes: &[u8]) -> Self {
        Self {
            columns: u16_at(bytes, 10).into(),
            groups: u16_at(bytes, 12).into(),
            total: u64_at(bytes, 16) as usize,
            number: u64_at(bytes, 24),
            layout: u64_at(bytes, 32),
            rows: u32_at(bytes, 40),
            span: u32_at(bytes, 44),
        }
    }
}

/// Where the checksum of the front stands.
pub(crate) const CHECKSUM_AT: usize = 48;

/// The front's entry of a column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnEntry {
    pub(crate) stored: Stored,
    pub(crate) count: u32,
    pub(crate) dictionary_at: usize,
    pub(crate) dictionary_len: usize,
    pub(crate) checksum: u32,
}

impl ColumnEntry {
    pub(crate) fn write(&self, out: &mut [u8]) {
        out[0] = self.stored as u8;
        out[4..8].copy_from_slice(&self.count.to_le_bytes());
        out[8..16].copy_from_slice(&(self.dictionary_at as u64).to_le_bytes());
        out[16..24].copy_from_slice(&(self.dictionary_len as u64).to_le_bytes());
        out[24..28].copy_from_slice(&self.checksum.to_le_bytes());
    }

    pub(crate) fn read(bytes: &[u8], at: usize) -> Option<Self> {
        Some(Self {
            stored: Stored::from_byte(*bytes.get(at)?)?,
            count: u32_at(bytes, at + 4),
            dictionary_at: u64_at(bytes, at + 8) as usize,
            dictionary_len: u64_at(bytes, at + 16) as usize,
            checksum: u32_at(bytes, at + 24),
        })
    }
}

/// Which positions of a group have a row, or which rows of a segment are null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Marked {
    None = 0,
    All = 1,
    Bits = 2,
    Run = 3,
}

impl Marked {
    #[inline(always)]
    pub(crate) fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Marked::All,
            2 => Marked::Bits,
            3 => Marked::Run,
            _ => Marked::None,
        }
    }
}

/// The front's entry of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupEntry {
    pub(crate) at: usize,
    pub(crate) len: u32,
    pub(crate) checksum: u32,
    pub(crate) present: u16,
    pub(crate) presence: Marked,
}

impl GroupEntry {
    pub(crate) fn write(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&(self.at as u64).to_le_bytes());
        out[8..12].copy_from_slice(&self.len.to_le_bytes());
        out[12..16].copy_from_slice(&self.checksum.to_le_bytes());
        out[16..18].copy_from_slice(&self.present.to_le_bytes());
        out[18] = self.presence as u8;
    }

    #[inline(always)]
    pub(crate) fn read(bytes: &[u8], at: usize) -> Self {
        let entry: [u8; GROUP] = array_at(bytes, at);
        Self {
            at: u64_at(&entry, 0) as usize,
            len: u32_at(&entry, 8),
            checksum: u32_at(&entry, 12),
            present: u16_at(&entry, 16),
            presence: Marked::from_byte(entry[18]),
        }
    }
}

/// A group's entry of a column: where its data is and how it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) params: Params,
    /// Where the segment begins, from the group's start on.
    pub(crate) offset: u32,
    pub(crate) nulls: Marked,
    /// The nulls, where they are one run.
    pub(crate) null_run: (u16, u16),
}

impl Entry {
    pub(crate) fn write(&self, out: &mut [u8]) {
        let Params { kind, width, base, slope, runs } = self.params;
        out[..8].copy_from_slice(&base.to_le_bytes());
        out[8..12].copy_from_slice(&self.offset.to_le_bytes());
        out[12..16].copy_from_slice(&slope.to_le_bytes());
        out[16..18].copy_from_slice(&(runs as u16).to_le_bytes());
        out[18..20].copy_from_slice(&self.null_run.0.to_le_bytes());
        out[20..22].copy_from_slice(&self.null_run.1.to_le_bytes());
        out[22] = kind as u8 | (self.nulls as u8) << 4;
        out[23] = width as u8;
    }

    #[inline(always)]
    pub(crate) fn read(bytes: &[u8], at: usize) -> Self {
        let entry: [u8; ENTRY] = array_at(bytes, at);
        Self {
            params: Params {
                base: u64_at(&entry, 0) as i64,
                slope: u32_at(&entry, 12) as i32,
                runs: usize::from(u16_at(&entry, 16)).min(GROUP_ROWS),
                kind: Kind::from_byte(entry[22] & 15),
                width: u32::from(entry[23]).min(64),
            },
            offset: u32_at(&entry, 8),
            nulls: Marked::from_byte(entry[22] >> 4),
            null_run: (u16_at(&entry, 18), u16_at(&entry, 20)),
        }
    }
}

/// The front's entry of the values of a column in a group, for scans that skip.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ZoneEntry {
    /// Bounds of the order keys of the values that are present and not null.
    pub(crate) low: i64,
    pub(crate) high: i64,
    /// Their sum, of integers and decimals, where it fits.
    pub(crate) sum: i64,
    pub(crate) nulls: u16,
    pub(crate) has_values: bool,
    pub(crate) has_sum: bool,
    pub(crate) checksum: u32,
}

impl ZoneEntry {
    pub(crate) fn write(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.low.to_le_bytes());
        out[8..16].copy_from_slice(&self.high.to_le_bytes());
        out[16..24].copy_from_slice(&self.sum.to_le_bytes());
        out[24..26].copy_from_slice(&self.nulls.to_le_bytes());
        out[26] = u8::from(self.has_values) | u8::from(self.has_sum) << 1;
        out[28..32].copy_from_slice(&self.checksum.to_le_bytes());
    }

    pub(crate) fn read(bytes: &[u8], at: usize) -> Self {
        let entry: [u8; ZONE] = array_at(bytes, at);
        Self {
            low: u64_at(&entry, 0) as i64,
            high: u64_at(&entry, 8) as i64,
            sum: u64_at(&entry, 16) as i64,
            nulls: u16_at(&entry, 24),
            has_values: entry[26] & 1 != 0,
            has_sum: entry[26] & 2 != 0,
            checksum: u32_at(&entry, 28),
        }
    }
}
