//! A data page: entries of one index, sorted by key, then by batch, the newest first.
//!
//! ```text
//!   page header (see `page`) · table u32 · index u32 · entries u16 · prefix length u16 · end of the entries u16 · 0 u16
//!   · least batch u64 · prefix · entry, entry, …
//!   entry    (suffix length << 2 | form) varint · (batch − least batch) varint · record length varint (form inline)
//!            · suffix · record (form inline) | first page of the piece u32, record length u32 (form long)
//!   form     0 removal that says last · 1 removal · 2 record inline · 3 long record on pages of its own  little-endian
//! ```
//!
//! Rules:
//! - A page is of one index, so entries do not repeat it, and an error can name it.
//! - [`PageCursor`] checks lengths and form as it goes: whatever the bytes, it ends and never panics.
//! - Long records lie on the pages of the piece before the data page that refers to them.

use super::codec::{self, Reader};
use super::types::Kind;
use crate::page::{self, HEADER_BYTES, PageKind};

/// A page of entries.
pub(super) const DATA: PageKind = PageKind(0x5301);
/// A page of a long record.
pub(super) const LONG: PageKind = PageKind(0x5302);
/// A page of a piece's tail: its fences and filter.
pub(super) const TAIL: PageKind = PageKind(0x5303);

const BLOCK_HEADER: usize = 24;
const FORM_INLINE: u64 = 2;
const FORM_LONG: u64 = 3;
const LONG_REFERENCE_BYTES: usize = 8;

/// Where a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value<'a> {
    /// Here. Empty for a removal.
    Inline(&'a [u8]),
    /// On pages of its own.
    Long(LongRecord),
}

/// A record on pages of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LongRecord {
    /// The first of them, counted within the piece.
    pub(super) page: u32,
    /// Length of the record.
    pub(super) bytes: u32,
}

/// An entry on a page; its key is the page's prefix and this suffix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PageEntry<'a> {
    pub(super) suffix: &'a [u8],
    pub(super) batch: u64,
    pub(super) kind: Kind,
    pub(super) value: Value<'a>,
}

/// Walks over the entries of a data page, whose payload is passed to each call.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageCursor {
    pub(super) index: u64,
    prefix_len: u16,
    left: u16,
    end: u32,
    at: u32,
    least_batch: u64,
}

impl PageCursor {
    /// At the first entry of a payload; `None` when it makes no sense.
    pub(super) fn new(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let table = reader.u32()?;
        let index = reader.u32()?;
        let left = reader.u16()?;
        let prefix_len = reader.u16()?;
        let end = reader.u16()?;
        reader.u16()?;
        let least_batch = reader.u64()?;
        reader.bytes(usize::from(prefix_len))?;
        let at = reader.at() as u32;
        let sound = u32::from(end) >= at && usize::from(end) <= payload.len();
        let index = u64::from(table) << 32 | u64::from(index);
        sound.then_some(Self { index, prefix_len, left, end: u32::from(end), at, least_batch })
    }

    /// How many entries are left.
    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        usize::from(self.left)
    }

    /// What the keys of the page begin with.
    #[inline]
    pub(super) fn prefix<'a>(&self, payload: &'a [u8]) -> &'a [u8] {
        &payload[BLOCK_HEADER..BLOCK_HEADER + usize::from(self.prefix_len)]
    }

    /// The next entry; `Ok(None)` at the end.
    ///
    /// # Errors
    /// When the page makes no sense.
    #[inline]
    pub(super) fn next<'a>(&mut self, payload: &'a [u8]) -> Result<Option<PageEntry<'a>>, &'static str> {
        if self.left == 0 {
            return if self.at == self.end { Ok(None) } else { Err("there are bytes behind its entries") };
        }
        self.left -= 1;
        let entries = payload.get(self.at as usize..self.end as usize);
        let (entry, used) = entries.and_then(|bytes| self.entry(bytes)).ok_or("an entry makes no sense")?;
        self.at += used as u32;
        Ok(Some(entry))
    }

    #[inline]
    fn entry<'a>(&self, bytes: &'a [u8]) -> Option<(PageEntry<'a>, usize)> {
        let mut reader = Reader::new(bytes);
        let head = reader.varint()?;
        let batch = self.least_batch.checked_add(reader.varint()?)?;
        let suffix_len = usize::try_from(head >> 2).ok()?;
        let (kind, value_len) = match head & 3 {
            FORM_INLINE => (Kind::Put, usize::try_from(reader.varint()?).ok()?),
            FORM_LONG => (Kind::Put, LONG_REFERENCE_BYTES),
            form => (Kind::from_bits(form as u8)?, 0),
        };
        let suffix = reader.bytes(suffix_len)?;
        let bytes = reader.bytes(value_len)?;
        let value = if head & 3 == FORM_LONG {
            let mut reference = Reader::new(bytes);
            Value::Long(LongRecord { page: reference.u32()?, bytes: reference.u32()? })
        } else {
            Value::Inline(bytes)
        };
        Some((PageEntry { suffix, batch, kind, value }, reader.at()))
    }
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    key_at: u32,
    key_len: u16,
    form: u8,
    batch: u64,
    value_at: u32,
    value_len: u32,
}

/// Collects the entries of one page.
#[derive(Debug, Default)]
pub(super) struct PageBuilder {
    index: u64,
    entries: Vec<Pending>,
    /// Keys and records of the entries.
    bytes: Vec<u8>,
    prefix_len: usize,
    keys_len: usize,
    values_len: usize,
    least_batch: u64,
    greatest_batch: u64,
}

impl PageBuilder {
    /// The longest record that lies inline in pages with this payload.
    pub(super) const fn inline_max(payload: usize) -> usize {
        payload / 3
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn index(&self) -> u64 {
        self.index
    }

    fn key(&self, entry: &Pending) -> &[u8] {
        &self.bytes[entry.key_at as usize..][..usize::from(entry.key_len)]
    }

    pub(super) fn first_key(&self) -> &[u8] {
        self.entries.first().map_or(&[], |entry| self.key(entry))
    }

    pub(super) fn last_key(&self) -> &[u8] {
        self.entries.last().map_or(&[], |entry| self.key(entry))
    }

    /// An upper bound of the page's payload with `entries` entries like that.
    fn bytes_with(prefix: usize, entries: usize, keys: usize, values: usize, batches: u64) -> usize {
        // A suffix below 32 bytes needs a byte for its length; the quotient is a bound for the longer ones' second.
        let lengths = entries * (1 + codec::varint_bytes(batches)) + keys / 31;
        BLOCK_HEADER + prefix + (keys - entries * prefix) + values + lengths
    }

    /// Adds an entry, if it fits into a page with this payload. An empty page takes any.
    #[inline]
    pub(super) fn add(
        &mut self,
        payload: usize,
        index: u64,
        key: &[u8],
        batch: u64,
        kind: Kind,
        value: Value<'_>,
    ) -> bool {
        let value_len = match value {
            Value::Inline(bytes) => bytes.len(),
            Value::Long(_) => LONG_REFERENCE_BYTES,
        };
        let with_length = match value {
            Value::Inline(_) if kind == Kind::Put => value_len + codec::varint_bytes(value_len as u64),
            _ => value_len,
        };
        let (mut prefix, mut least, mut greatest) = (key.len(), batch, batch);
        if !self.entries.is_empty() {
            if index != self.index {
                return false;
            }
            let first = &self.first_key()[..self.prefix_len];
            prefix = if key.starts_with(first) { self.prefix_len } else { codec::common_prefix(first, key) };
            (least, greatest) = (batch.min(self.least_batch), batch.max(self.greatest_batch));
            let (keys, values) = (self.keys_len + key.len(), self.values_len + with_length);
            if Self::bytes_with(prefix, self.entries.len() + 1, keys, values, greatest - least) > payload {
                return false;
            }
        }
        self.index = index;
        (self.prefix_len, self.least_batch, self.greatest_batch) = (prefix, least, greatest);
        self.keys_len += key.len();
        self.values_len += with_length;
        let key_at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let form = match value {
            Value::Inline(bytes) => {
                self.bytes.extend_from_slice(bytes);
                kind as u8
            }
            Value::Long(record) => {
                self.bytes.extend_from_slice(&record.page.to_le_bytes());
                self.bytes.extend_from_slice(&record.bytes.to_le_bytes());
                FORM_LONG as u8
            }
        };
        self.entries.push(Pending {
            key_at: key_at as u32,
            key_len: key.len() as u16,
            form,
            batch,
            value_at: (key_at + key.len()) as u32,
            value_len: value_len as u32,
        });
        true
    }

    /// Writes the payload into `page`, which holds zeros or an old page, and empties the builder.
    pub(super) fn write(&mut self, page: &mut [u8]) {
        let payload = &mut page[HEADER_BYTES..];
        let prefix_len = self.prefix_len;
        let mut at = BLOCK_HEADER;
        payload[at..at + prefix_len].copy_from_slice(&self.first_key()[..prefix_len]);
        at += prefix_len;
        for entry in &self.entries {
            let suffix_len = usize::from(entry.key_len) - prefix_len;
            at = put_varint_at(payload, at, (suffix_len as u64) << 2 | u64::from(entry.form));
            at = put_varint_at(payload, at, entry.batch - self.least_batch);
            if u64::from(entry.form) == FORM_INLINE {
                at = put_varint_at(payload, at, u64::from(entry.value_len));
            }
            let from = entry.key_at as usize + prefix_len;
            let to = entry.value_at as usize + entry.value_len as usize;
            payload[at..at + to - from].copy_from_slice(&self.bytes[from..to]);
            at += to - from;
        }
        payload[at..].fill(0);
        payload[..4].copy_from_slice(&((self.index >> 32) as u32).to_le_bytes());
        payload[4..8].copy_from_slice(&(self.index as u32).to_le_bytes());
        payload[8..10].copy_from_slice(&(self.entries.len() as u16).to_le_bytes());
        payload[10..12].copy_from_slice(&(prefix_len as u16).to_le_bytes());
        payload[12..14].copy_from_slice(&(at as u16).to_le_bytes());
        payload[14..16].fill(0);
        payload[16..24].copy_from_slice(&self.least_batch.to_le_bytes());
        self.entries.clear();
        self.bytes.clear();
        (self.keys_len, self.values_len) = (0, 0);
    }
}

#[inline]
fn put_varint_at(bytes: &mut [u8], mut at: usize, mut number: u64) -> usize {
    while number >= 0x80 {
        bytes[at] = number as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    bytes[at] = number as u8;
    at + 1
}

// The end of the entries fits into 16 bits on the longest page, and an entry with the longest key fits on the shortest.
const _: () = assert!(page::MAX_PAGE_BYTES as usize - HEADER_BYTES <= u16::MAX as usize);
const _: () = assert!(
    super::types::MAX_KEY_BYTES + PageBuilder::inline_max(page::MIN_PAGE_BYTES as usize) + BLOCK_HEADER + 32
        <= page::MIN_PAGE_BYTES as usize - HEADER_BYTES
);

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_base::rng::Rng;

    #[test]
    fn entries_read_back() {
        let mut rng = Rng::new(5);
        for round in 0..200 {
            let mut builder = PageBuilder::default();
            let mut entries = Vec::new();
            let payload = 4096 - HEADER_BYTES;
            let mut key = vec![7_u8; rng.below(60) as usize];
            loop {
                key.push(rng.next_u64() as u8);
                let kind = Kind::from_bits(rng.below(3) as u8).expect("a kind");
                let record = vec![
                    3;
                    if kind == Kind::Put { rng.below(if round % 2 == 0 { 200 } else { 1300 }) } else { 0 }
                        as usize
                ];
                let batch = rng.next_u64() >> rng.below(64);
                let long = LongRecord { page: 1, bytes: 7000 };
                let is_long = kind == Kind::Put && rng.chance(0.1);
                let value = if is_long { Value::Long(long) } else { Value::Inline(&record) };
                if !builder.add(payload, 9, &key, batch, kind, value) {
                    break;
                }
                entries.push((key.clone(), batch, kind, record, is_long));
            }
            let mut page = vec![0xaa; 4096];
            builder.write(&mut page);
            assert!(builder.is_empty());
            let payload = &page[HEADER_BYTES..];
            let mut found = PageCursor::new(payload).expect("a page");
            assert_eq!((found.left(), found.index), (entries.len(), 9));
            for (key, batch, kind, record, is_long) in &entries {
                let entry = found.next(payload).expect("sound").expect("one more");
                assert_eq!([found.prefix(payload), entry.suffix].concat(), *key);
                assert_eq!((entry.batch, entry.kind), (*batch, *kind));
                match entry.value {
                    Value::Inline(bytes) => assert!(!is_long && bytes == record),
                    Value::Long(record) => assert!(*is_long && record.bytes == 7000),
                }
            }
            assert_eq!(found.next(payload), Ok(None));
        }
    }

    #[test]
    fn the_longest_key_fits_with_the_longest_inline_record() {
        let payload = 4096 - HEADER_BYTES;
        let (key, record) = (vec![1; 2048], vec![2; PageBuilder::inline_max(payload)]);
        let mut builder = PageBuilder::default();
        assert!(builder.add(payload, 1, &key, u64::MAX, Kind::Put, Value::Inline(&record)));
        builder.write(&mut vec![0; 4096]);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let mut rng = Rng::new(6);
        for _ in 0..3000 {
            let mut bytes = vec![0; rng.below(300) as usize];
            rng.fill(&mut bytes);
            if bytes.len() > 14 && rng.chance(0.8) {
                let end = bytes.len() as u16;
                bytes[12..14].copy_from_slice(&end.to_le_bytes());
                bytes[9] = 0;
                bytes[10] &= 15;
                bytes[11] = 0;
            }
            if let Some(mut entries) = PageCursor::new(&bytes) {
                while let Ok(Some(_)) = entries.next(&bytes) {}
            }
        }
    }
}
