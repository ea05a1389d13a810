//! What stands in the log.
//!
//! ```text
//! record  = header, payload, padding; starts at a multiple of 8, span is one
//! header  = crc u32 | span u32 | payload length u32 | durable gap u32 | kind u8 | 7 zero bytes
//! commit  = timestamp u64 | part group u64 (all ones: none) | parts u32 | writes…
//! part    = part group u64 | number u32 | writes…
//! write   = op u8 | table u32 | row id u64 | length u32 | bytes
//! left    = a write whose row id is that of a chunk's first slot, and whose bytes are: batch u64 | slots (format 2)
//! define  = a write of no table and row, whose bytes are what the commit does to the catalog (format 3); it is the first
//!           one of its commit
//! mark    = nothing, or the end of the cold store, four u64
//! ```
//!
//! The checksum covers the header behind itself and the payload. It starts from database, generation and position
//! ([`thermocline_base::checksum::Seed`]), so a record checks out only where it was written (`ChecksumBindsPosition`). The
//! padding and the rest of a void record are never looked at.
//!
//! *Durable gap*: the record's position minus the position up to which the log was durable when the record was made,
//! in units of 8 bytes. A later record thus proves that earlier ones had been durable, which tells damage from a torn
//! tail.
//!
//! A transaction too big for one record writes *parts*, then a commit that names their group (the position of the
//! first part) and their number. Parts without a commit are of a transaction that never was.
//!
//! Decoding trusts nothing: every length is checked, and damaged bytes give a [`DecodeError`].

use std::fmt;

use thermocline_base::checksum::{Seed, crc32c_append};
use thermocline_base::ids::{Lsn, RowId, TableId, Timestamp};
use thermocline_pool::store::StoreEnd;

/// Bytes of a record's header.
pub(crate) const HEADER_BYTES: u64 = 24;
/// Records start at multiples of this.
pub(crate) const ALIGN: u64 = 8;
/// Bytes before the writes of a commit.
pub(crate) const COMMIT_BYTES: usize = 20;
/// Bytes before the writes of a part.
pub(crate) const PART_BYTES: usize = 12;
/// Bytes before the row of a write.
pub(crate) const WRITE_BYTES: usize = 17;

/// Bytes of a mark that names the end of the cold store.
pub(crate) const STORE_MARK_BYTES: usize = 8 * StoreEnd::FIELDS;

/// The payload of a mark that names the end of the cold store.
pub(crate) fn store_mark(end: StoreEnd) -> [u8; STORE_MARK_BYTES] {
    let mut bytes = [0; STORE_MARK_BYTES];
    for (place, field) in bytes.chunks_exact_mut(8).zip(end.fields()) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    bytes
}

/// What a mark says of the cold store, if anything.
pub(crate) fn read_store_mark(payload: &[u8]) -> Option<StoreEnd> {
    let bytes: &[u8; STORE_MARK_BYTES] = payload.try_into().ok()?;
    let field = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"));
    Some(StoreEnd::from_fields(std::array::from_fn(field)))
}

/// The space that a record takes.
pub(crate) const fn span_of(payload: u64) -> u64 {
    (HEADER_BYTES + payload).next_multiple_of(ALIGN)
}

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A transaction, or its end and last writes.
    Commit = 1,
    /// Some writes of a transaction whose commit follows.
    Part = 2,
    /// Not written so far.
    Reserved = 3,
    /// Space that was reserved and not used.
    Void = 4,
    /// Proves by its durable gap what was durable when the log was closed; may name the end of the cold store.
    Mark = 5,
}

impl Kind {
    const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Commit,
            2 => Self::Part,
            3 => Self::Reserved,
            4 => Self::Void,
            5 => Self::Mark,
            _ => return None,
        })
    }
}

/// A record's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Bytes up to the next record.
    pub(crate) span: u32,
    /// Bytes of the payload.
    pub(crate) payload: u32,
    /// See the module.
    pub(crate) durable_gap: u32,
}

impl Header {
    /// The header's bytes, the checksum still missing.
    fn bytes(self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[4..8].copy_from_slice(&self.span.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.payload.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.durable_gap.to_le_bytes());
        bytes[16] = self.kind as u8;
        bytes
    }

    /// The header's bytes for a record at `lsn` whose payload is `pieces`, one after the other.
    pub(crate) fn seal(self, seed: Seed, lsn: Lsn, pieces: [&[u8]; 2]) -> [u8; HEADER_BYTES as usize] {
        debug_assert_eq!(pieces[0].len() + pieces[1].len(), self.payload as usize, "the payload's length");
        let mut bytes = self.bytes();
        let sum = checksum(seed, lsn, &bytes, pieces);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// What the header says, if it can be one at all. Whether it is one, [`Header::check`] tells.
    pub(crate) fn peek(bytes: &[u8; HEADER_BYTES as usize]) -> Option<Self> {
        let kind = Kind::from_byte(bytes[16])?;
        if bytes[17..] != [0; 7] {
            return None;
        }
        let word = |at: usize| u32_at(bytes, at);
        let header = Self { kind, span: word(4), payload: word(8), durable_gap: word(12) };
        let fits = u64::from(header.span) >= span_of(u64::from(header.payload));
        (fits && u64::from(header.span).is_multiple_of(ALIGN)).then_some(header)
    }

    /// Do header and payload check out at `lsn`?
    pub(crate) fn check(
        bytes: &[u8; HEADER_BYTES as usize],
        seed: Seed,
        lsn: Lsn,
        pieces: [&[u8]; 2],
    ) -> bool {
        checksum(seed, lsn, bytes, pieces) == u32_at(bytes, 0)
    }

    /// Up to where the log was durable when the record at `lsn` was made.
    pub(crate) fn durable(self, lsn: Lsn) -> Lsn {
        Lsn(lsn.0.saturating_sub(u64::from(self.durable_gap) * ALIGN))
    }

    /// The gap for a record at `lsn`.
    pub(crate) fn gap(lsn: Lsn, durable: Lsn) -> u32 {
        u32::try_from(lsn.0.saturating_sub(durable.0) / ALIGN).unwrap_or(u32::MAX)
    }
}

fn checksum(seed: Seed, lsn: Lsn, header: &[u8; HEADER_BYTES as usize], pieces: [&[u8]; 2]) -> u32 {
    let sum = crc32c_append(crc32c_append(seed.at(lsn.0), &header[4..]), pieces[0]);
    if pieces[1].is_empty() { sum } else { crc32c_append(sum, pieces[1]) }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// What a write did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Op {
    /// A new row; the bytes are the row.
    Insert = 1,
    /// A new version of a row; the bytes are the whole row.
    Update = 2,
    /// The end of a row; no bytes are needed.
    Delete = 3,
    /// Rows have left memory with their chunk; the bytes are the batch and the slots (`ops::leave`).
    Left = 4,
    /// Definitions of tables; the bytes are those of `catalog::schema::Redefined`.
    Define = 5,
}

impl Op {
    const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Insert,
            2 => Self::Update,
            3 => Self::Delete,
            4 => Self::Left,
            5 => Self::Define,
            _ => return None,
        })
    }
}

/// The parts that a commit completes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PartGroup {
    /// Position of the first part.
    pub(crate) first: Lsn,
    /// How many there are.
    pub(crate) parts: u32,
}

/// Bytes at the start of a commit's payload.
pub(crate) fn commit_prefix(timestamp: Timestamp, group: Option<PartGroup>) -> [u8; COMMIT_BYTES] {
    let mut bytes = [0; COMMIT_BYTES];
    bytes[..8].copy_from_slice(&timestamp.0.to_le_bytes());
    let (first, parts) = group.map_or((u64::MAX, 0), |group| (group.first.0, group.parts));
    bytes[8..16].copy_from_slice(&first.to_le_bytes());
    bytes[16..].copy_from_slice(&parts.to_le_bytes());
    bytes
}

/// Bytes at the start of a part's payload.
pub(crate) fn part_prefix(first: Lsn, number: u32) -> [u8; PART_BYTES] {
    let mut bytes = [0; PART_BYTES];
    bytes[..8].copy_from_slice(&first.0.to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Bytes at the start of a write of `len` bytes.
#[inline]
pub(crate) fn write_prefix(op: Op, table: TableId, row: RowId, len: u32) -> [u8; WRITE_BYTES] {
    let mut bytes = [0; WRITE_BYTES];
    bytes[0] = op as u8;
    bytes[1..5].copy_from_slice(&table.0.to_le_bytes());
    bytes[5..13].copy_from_slice(&row.0.to_le_bytes());
    bytes[13..].copy_from_slice(&len.to_le_bytes());
    bytes
}

/// Bytes that are no payload of their kind, although their checksum is right: a fault of the program that wrote them,
/// or a newer one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DecodeError {
    /// The payload ends inside of something.
    Short {
        /// Where that something starts.
        at: usize,
        /// How many bytes it needs.
        needs: usize,
        /// How many are left.
        left: usize,
    },
    /// An operation that this program does not know.
    UnknownOp {
        /// Where.
        at: usize,
        /// Its number.
        op: u8,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { at, needs, left } => {
                write!(f, "{needs} bytes are needed at byte {at} of the payload, {left} are left")
            }
            Self::UnknownOp { at, op } => write!(f, "operation {op} at byte {at} of the payload is unknown"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Takes checked pieces off the front of a payload.
#[derive(Clone, Copy, Debug)]
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, needs: usize) -> Result<&'a [u8], DecodeError> {
        let left = self.bytes.len() - self.at;
        if left < needs {
            return Err(DecodeError::Short { at: self.at, needs, left });
        }
        let piece = &self.bytes[self.at..self.at + needs];
        self.at += needs;
        Ok(piece)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }
}

/// The payload of a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commit<'a> {
    /// The transaction's end timestamp.
    pub(crate) timestamp: Timestamp,
    /// The parts that belong to it, too.
    pub(crate) group: Option<PartGroup>,
    /// Its (last) writes.
    pub(crate) writes: Writes<'a>,
}

impl<'a> Commit<'a> {
    /// Reads a payload.
    pub(crate) fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor { bytes: payload, at: 0 };
        let timestamp = Timestamp(cursor.u64()?);
        let first = cursor.u64()?;
        let parts = cursor.u32()?;
        let group = (first != u64::MAX).then_some(PartGroup { first: Lsn(first), parts });
        Ok(Self { timestamp, group, writes: Writes(cursor) })
    }
}

/// The payload of a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    /// Position of the first part of its group.
    pub(crate) first: Lsn,
    /// Its number in the group, from 0.
    pub(crate) number: u32,
    /// Its writes.
    pub(crate) writes: Writes<'a>,
}

impl<'a> Part<'a> {
    /// Reads a payload.
    pub(crate) fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor { bytes: payload, at: 0 };
        let first = Lsn(cursor.u64()?);
        let number = cursor.u32()?;
        Ok(Self { first, number, writes: Writes(cursor) })
    }
}

/// One write of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Write<'a> {
    pub(crate) op: Op,
    pub(crate) table: TableId,
    pub(crate) row: RowId,
    pub(crate) bytes: &'a [u8],
}

/// The writes of a payload, in order. Ends after the first error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writes<'a>(Cursor<'a>);

impl<'a> Iterator for Writes<'a> {
    type Item = Result<Write<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.at >= self.0.bytes.len() {
            return None;
        }
        let result = self.read();
        if result.is_err() {
            self.0.at = self.0.bytes.len();
        }
        Some(result)
    }
}

impl<'a> Writes<'a> {
    fn read(&mut self) -> Result<Write<'a>, DecodeError> {
        let at = self.0.at;
        let op = self.0.u8()?;
        let op = Op::from_byte(op).ok_or(DecodeError::UnknownOp { at, op })?;
        let table = TableId(self.0.u32()?);
        let row = RowId(self.0.u64()?);
        let len = self.0.u32()?;
        Ok(Write { op, table, row, bytes: self.0.take(len as usize)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn writes() -> impl Strategy<Value = Vec<(u8, u32, u64, Vec<u8>)>> {
        proptest::collection::vec(
            (1_u8..4, any::<u32>(), any::<u64>(), proptest::collection::vec(any::<u8>(), 0..40)),
            0..8,
        )
    }

    fn encode(prefix: &[u8], writes: &[(u8, u32, u64, Vec<u8>)]) -> Vec<u8> {
        let mut payload = prefix.to_vec();
        for (op, table, row, bytes) in writes {
            let op = Op::from_byte(*op).expect("a known one");
            payload.extend(write_prefix(op, TableId(*table), RowId(*row), bytes.len() as u32));
            payload.extend(bytes);
        }
        payload
    }

    fn same(writes: Writes<'_>, expected: &[(u8, u32, u64, Vec<u8>)]) {
        let writes: Vec<_> = writes.map(|write| write.expect("a write")).collect();
        assert_eq!(writes.len(), expected.len());
        for (write, (op, table, row, bytes)) in writes.iter().zip(expected) {
            assert_eq!((write.op as u8, write.table.0, write.row.0), (*op, *table, *row));
            assert_eq!(write.bytes, bytes);
        }
    }

    proptest! {
        #[test]
        fn commits_and_parts_come_back(timestamp: u64, first in 0..u64::MAX, number: u32, writes in writes()) {
            let group = PartGroup { first: Lsn(first), parts: number };
            let payload = encode(&commit_prefix(Timestamp(timestamp), Some(group)), &writes);
            let commit = Commit::decode(&payload).expect("a commit");
            prop_assert_eq!((commit.timestamp.0, commit.group), (timestamp, Some(group)));
            same(commit.writes, &writes);
            let payload = encode(&commit_prefix(Timestamp(timestamp), None), &writes);
            prop_assert_eq!(Commit::decode(&payload).expect("a commit").group, None);
            let payload = encode(&part_prefix(Lsn(first), number), &writes);
            let part = Part::decode(&payload).expect("a part");
            prop_assert_eq!((part.first.0, part.number), (first, number));
            same(part.writes, &writes);
        }

        #[test]
        fn any_bytes_decode_or_fail_cleanly(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(commit) = Commit::decode(&payload) {
                prop_assert!(commit.writes.count() <= payload.len());
            }
            if let Ok(part) = Part::decode(&payload) {
                prop_assert!(part.writes.count() <= payload.len());
            }
        }

        #[test]
        fn a_cut_payload_is_an_error(timestamp: u64, writes in writes(), cut in 1_usize..17) {
            prop_assume!(!writes.is_empty());
            let payload = encode(&commit_prefix(Timestamp(timestamp), None), &writes);
            let payload = &payload[..payload.len() - cut.min(writes.last().map_or(0, |w| w.3.len() + 16))];
            let commit = Commit::decode(payload).expect("its front is whole");
            prop_assert!(commit.writes.last().is_some_and(|last| last.is_err()));
        }

        #[test]
        fn a_flipped_bit_is_noticed(payload in proptest::collection::vec(any::<u8>(), 0..64), bit: usize, lsn: u64) {
            let seed = Seed::new(&[7; 16], 3);
            let header =
                Header { kind: Kind::Reserved, span: 128, payload: payload.len() as u32, durable_gap: 5 };
            let split = payload.len() / 3;
            let sealed = header.seal(seed, Lsn(lsn), [&payload[..split], &payload[split..]]);
            prop_assert_eq!(Header::peek(&sealed), Some(header));
            prop_assert!(Header::check(&sealed, seed, Lsn(lsn), [&payload, &[]]));
            prop_assert!(!Header::check(&sealed, seed, Lsn(lsn ^ 8), [&payload, &[]]));
            let mut all = [&sealed[..], &payload[..]].concat();
            let bit = bit % (all.len() * 8);
            all[bit / 8] ^= 1 << (bit % 8);
            let (head, tail) = all.split_at(HEADER_BYTES as usize);
            let head = head.try_into().expect("a header");
            prop_assert!(!Header::check(head, seed, Lsn(lsn), [tail, &[]]));
        }
    }
}
