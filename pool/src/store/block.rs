//! A data page: entries of one index, sorted by key, then by batch, the newest first.
//!
//! ```text
//!   page header (see `page`) · table u32 · index u32 · entries u16 · prefix length u16 · end of the entries u16
//!   · 0 u16 · base batch u64 · prefix · entry, entry, … · mark u16, mark, …
//!   entry    (suffix length << 2 | form) varint · (batch − base batch) varint · record length varint (form inline)
//!            · suffix · record (form inline) | first page of the piece u32, record length u32 (form long)
//!            suffix length 4095: the key of the entry before, so no suffix (a removal behind the entry that replaces)
//!   mark     where the 16th entry lies (counted from 0), the 32nd, …: each has a suffix of its own
//!   form     0 removal that says last · 1 removal · 2 record inline · 3 long record on pages of its own  little-endian
//! ```
//!
//! Rules:
//! - A page is of one index, so entries do not repeat it, and an error can name it.
//! - The prefix is one of all keys of the page, and the base batch at or below all of its batches; neither need be the
//!   longest or the greatest that is.
//! - A mark is where a search may begin ([`PageCursor::seek`]), so that it goes over 16 entries and not over half a page.
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
pub(super) const TAIL: PageKind = PageKind(0x5304);

const BLOCK_HEADER: usize = 24;
const FORM_INLINE: u64 = 2;
const FORM_LONG: u64 = 3;
const LONG_REFERENCE_BYTES: usize = 8;
/// A suffix length that says: the key of the entry before. Two bytes as a varint, with the form.
const SAME_KEY: usize = 4095;
/// Every so many entries there is a mark.
const MARK_EVERY: u16 = 16;
const MARK_BYTES: usize = 2;

/// Number of marks that so many entries have.
const fn marks_of(entries: u16) -> usize {
    (entries.saturating_sub(1) / MARK_EVERY) as usize
}

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
    /// It has the key of the entry before.
    pub(super) same_key: bool,
    pub(super) batch: u64,
    pub(super) kind: Kind,
    pub(super) value: Value<'a>,
}

/// An entry for a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewEntry<'a> {
    pub(super) index: u64,
    pub(super) key: &'a [u8],
    /// The key's, as [`codec::head_of`] gives it.
    pub(super) head: u64,
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
    base_batch: u64,
    /// Where the suffix before lies; none before the first entry.
    suffix: Option<(u32, u32)>,
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
        let base_batch = reader.u64()?;
        reader.bytes(usize::from(prefix_len))?;
        let at = reader.at() as u32;
        let sound = u32::from(end) >= at && usize::from(end) + marks_of(left) * MARK_BYTES <= payload.len();
        let index = u64::from(table) << 32 | u64::from(index);
        sound.then_some(Self { index, prefix_len, left, end: u32::from(end), at, base_batch, suffix: None })
    }

    /// Number of entries that are left.
    pub(super) fn left(&self) -> usize {
        usize::from(self.left)
    }

    /// The bytes with which the keys of the page begin.
    #[inline]
    pub(super) fn prefix<'a>(&self, payload: &'a [u8]) -> &'a [u8] {
        &payload[BLOCK_HEADER..BLOCK_HEADER + usize::from(self.prefix_len)]
    }

    /// Passes over entries whose keys are less than `key`, not all of them: after it come at most 16 such. Only for a cursor
    /// that is at the first entry.
    ///
    /// # Errors
    /// When the page makes no sense.
    #[inline]
    pub(super) fn seek(&mut self, payload: &[u8], key: &[u8]) -> Result<(), &'static str> {
        let marks = marks_of(self.left);
        if marks == 0 {
            return Ok(());
        }
        let prefix = self.prefix(payload);
        let rest = match key.strip_prefix(prefix) {
            Some(rest) => rest,
            // All keys of the page are greater, or all are less: the last mark serves then.
            None if key < prefix => return Ok(()),
            None => return self.go_to(payload, marks).map(|_| ()),
        };
        let (mut low, mut high) = (0, marks);
        let begin = *self;
        while low < high {
            let middle = low + (high - low) / 2;
            *self = begin;
            // Equal keys may lie on both sides of a mark.
            if self.go_to(payload, middle + 1)?.suffix < rest {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        *self = begin;
        match low {
            0 => Ok(()),
            mark => self.go_to(payload, mark).map(|_| ()),
        }
    }

    /// Goes on to a mark, counted from 1, and gives the entry that is there and that comes next.
    fn go_to<'a>(&mut self, payload: &'a [u8], mark: usize) -> Result<PageEntry<'a>, &'static str> {
        const NONSENSE: &str = "a mark makes no sense";
        let at = self.end as usize + (mark - 1) * MARK_BYTES;
        let at = payload.get(at..).and_then(<[u8]>::first_chunk).map(|bytes| u16::from_le_bytes(*bytes));
        let at = at.map(u32::from).filter(|at| (self.at..self.end).contains(at)).ok_or(NONSENSE)?;
        let left = usize::from(self.left).checked_sub(mark * usize::from(MARK_EVERY)).ok_or(NONSENSE)?;
        (self.at, self.left, self.suffix) = (at, left as u16, None);
        let mut there = *self;
        // Without a suffix of its own it is refused.
        there.next(payload)?.ok_or(NONSENSE)
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
        self.entry(payload).map(Some).ok_or("an entry makes no sense")
    }

    #[inline]
    fn entry<'a>(&mut self, payload: &'a [u8]) -> Option<PageEntry<'a>> {
        let start = self.at as usize;
        let mut reader = Reader::new(payload.get(start..self.end as usize)?);
        let head = reader.varint()?;
        let batch = self.base_batch.checked_add(reader.varint()?)?;
        let suffix_len = usize::try_from(head >> 2).ok()?;
        let (kind, value_len) = match head & 3 {
            FORM_INLINE => (Kind::Put, usize::try_from(reader.varint()?).ok()?),
            FORM_LONG => (Kind::Put, LONG_REFERENCE_BYTES),
            form => (Kind::from_bits(form as u8)?, 0),
        };
        let same_key = suffix_len == SAME_KEY;
        let suffix = if same_key {
            let (at, end) = self.suffix?;
            &payload[at as usize..end as usize]
        } else {
            let at = start + reader.at();
            self.suffix = Some((at as u32, (at + suffix_len) as u32));
            reader.bytes(suffix_len)?
        };
        let bytes = reader.bytes(value_len)?;
        let value = if head & 3 == FORM_LONG {
            let mut reference = Reader::new(bytes);
            Value::Long(LongRecord { page: reference.u32()?, bytes: reference.u32()? })
        } else {
            Value::Inline(bytes)
        };
        self.at = (start + reader.at()) as u32;
        Some(PageEntry { suffix, same_key, batch, kind, value })
    }
}

/// Collects the entries of one page, in the form in which they will lie there.
///
/// How much of the keys is the page's prefix, and which batch the others are counted from, is guessed when a page begins:
/// what the first keys of this page and of the one before have in common, and the least batch so far. Almost always that is
/// right to the end; an entry that does not fit in with it has those before it laid out anew. (A guess may be worse than
/// what the whole page would allow, by a byte an entry on a page that follows a change of the prefix.)
#[derive(Debug, Default)]
pub(super) struct PageBuilder {
    index: u64,
    /// The payload: header, prefix, entries.
    bytes: Vec<u8>,
    /// For laying out anew.
    spare: Vec<u8>,
    places: Vec<u16>,
    at: usize,
    entries: u16,
    /// Where every 16th entry lies, but the first.
    marks: Vec<u16>,
    prefix_len: usize,
    base_batch: u64,
    first_key: Vec<u8>,
    first_head: u64,
    /// Where the suffix of the last entry lies.
    last_suffix: (usize, usize),
}

/// An entry's head and its three numbers take no more.
const HEADS_MAX: usize = 24;

impl PageBuilder {
    /// The longest record that lies inline in pages with this payload.
    pub(super) const fn inline_max(payload: usize) -> usize {
        payload / 3
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    pub(super) fn index(&self) -> u64 {
        self.index
    }

    pub(super) fn first_key(&self) -> &[u8] {
        &self.first_key
    }

    pub(super) fn last_key(&self) -> Vec<u8> {
        let (at, len) = self.last_suffix;
        [&self.first_key[..self.prefix_len], &self.bytes[at..at + len]].concat()
    }

    fn begin(&mut self, payload: usize, index: u64, key: &[u8], batch: u64) {
        let guess = if index == self.index { codec::common_prefix(&self.first_key, key) } else { 0 };
        if index != self.index || self.bytes.is_empty() {
            (self.index, self.base_batch) = (index, batch);
        }
        self.base_batch = self.base_batch.min(batch);
        self.prefix_len = guess;
        self.marks.clear();
        self.first_key.clear();
        self.first_key.extend_from_slice(key);
        // Heads are written before it is known whether they fit.
        self.bytes.resize(payload + HEADS_MAX, 0);
        self.at = BLOCK_HEADER + guess;
        self.bytes[BLOCK_HEADER..self.at].copy_from_slice(&key[..guess]);
    }

    /// Lays out the entries anew, with another prefix and another batch to count from, if there is room for them.
    #[cold]
    fn lay_out(&mut self, payload: usize, prefix_len: usize, base_batch: u64) -> bool {
        self.seal();
        let mut spare = std::mem::take(&mut self.spare);
        spare.clear();
        spare.resize(payload + HEADS_MAX, 0);
        let mut at = BLOCK_HEADER + prefix_len;
        spare[BLOCK_HEADER..at].copy_from_slice(&self.first_key[..prefix_len]);
        let mut last_suffix = (0, 0);
        let mut number = 0_u16;
        let room = payload - self.marks.len() * MARK_BYTES;
        let mut places = std::mem::take(&mut self.places);
        places.clear();
        let mut cursor = PageCursor::new(&self.bytes).expect("a page that was just made");
        while let Some(entry) = cursor.next(&self.bytes).expect("a page that was just made") {
            let more = if entry.same_key { &[] } else { &self.first_key[prefix_len..self.prefix_len] };
            let suffix = if entry.same_key { &[] } else { entry.suffix };
            let suffix_len = more.len() + suffix.len();
            let (form, value_len) = match entry.value {
                Value::Inline(bytes) => (entry.kind as u64, bytes.len()),
                Value::Long(_) => (FORM_LONG, LONG_REFERENCE_BYTES),
            };
            if at + suffix_len + value_len + HEADS_MAX > room {
                (self.spare, self.places) = (spare, places);
                return false;
            }
            if number > 0 && number.is_multiple_of(MARK_EVERY) {
                places.push(at as u16);
            }
            number += 1;
            let length = if entry.same_key { SAME_KEY } else { suffix_len };
            at = put_varint_at(&mut spare, at, (length as u64) << 2 | form);
            at = put_varint_at(&mut spare, at, entry.batch - base_batch);
            if form == FORM_INLINE {
                at = put_varint_at(&mut spare, at, value_len as u64);
            }
            if !entry.same_key {
                last_suffix = (at, suffix_len);
            }
            spare[at..at + more.len()].copy_from_slice(more);
            at += more.len();
            spare[at..at + suffix.len()].copy_from_slice(suffix);
            at += suffix.len();
            match entry.value {
                Value::Inline(bytes) => spare[at..at + value_len].copy_from_slice(bytes),
                Value::Long(record) => put_long_at(&mut spare, at, record),
            }
            at += value_len;
        }
        self.spare = std::mem::replace(&mut self.bytes, spare);
        self.places = std::mem::replace(&mut self.marks, places);
        (self.at, self.prefix_len, self.base_batch) = (at, prefix_len, base_batch);
        self.last_suffix = last_suffix;
        true
    }

    /// Adds an entry, whose key has this head, if it fits into a page with this payload. An empty page takes any.
    #[inline]
    pub(super) fn add(&mut self, payload: usize, entry: NewEntry<'_>) -> bool {
        let NewEntry { index, key, head, batch, kind, value } = entry;
        if self.entries == 0 {
            self.begin(payload, index, key, batch);
            self.first_head = head;
        } else if index != self.index {
            return false;
        }
        let value_len = match value {
            Value::Inline(bytes) => bytes.len(),
            Value::Long(_) => LONG_REFERENCE_BYTES,
        };
        let prefix = &self.first_key[..self.prefix_len];
        if !codec::starts_with(key, head, prefix, self.first_head) || batch < self.base_batch {
            if self.at + key.len() - self.prefix_len + value_len > payload {
                return false;
            }
            let prefix_len = codec::common_prefix(prefix, key);
            if !self.lay_out(payload, prefix_len, batch.min(self.base_batch)) {
                return false;
            }
        }
        let is_marked = self.entries > 0 && self.entries.is_multiple_of(MARK_EVERY);
        let payload = payload - (self.marks.len() + usize::from(is_marked)) * MARK_BYTES;
        let mut suffix = &key[self.prefix_len..];
        let mut length = suffix.len();
        let same_key = !is_marked && kind.is_removal() && self.entries > 0 && {
            let (at, len) = self.last_suffix;
            suffix == &self.bytes[at..at + len]
        };
        if same_key {
            (suffix, length) = (&[], SAME_KEY);
        }
        if self.at + suffix.len() + value_len > payload {
            return false;
        }
        let bytes = &mut self.bytes[..];
        let form = match value {
            Value::Inline(_) => kind as u64,
            Value::Long(_) => FORM_LONG,
        };
        let mut at = put_varint_at(bytes, self.at, (length as u64) << 2 | form);
        at = put_varint_at(bytes, at, batch - self.base_batch);
        if form == FORM_INLINE {
            at = put_varint_at(bytes, at, value_len as u64);
        }
        let end = at + suffix.len() + value_len;
        if end > payload {
            return false;
        }
        let (to_suffix, to_value) = bytes[at..end].split_at_mut(suffix.len());
        codec::copy(to_suffix, suffix);
        match value {
            Value::Inline(record) => codec::copy(to_value, record),
            Value::Long(record) => put_long_at(to_value, 0, record),
        }
        if !same_key {
            self.last_suffix = (at, suffix.len());
        }
        if is_marked {
            self.marks.push(self.at as u16);
        }
        self.at = end;
        self.entries += 1;
        true
    }

    /// Writes the header.
    fn seal(&mut self) {
        let (prefix_len, at) = (self.prefix_len as u16, self.at as u16);
        let payload = &mut self.bytes[..];
        payload[..4].copy_from_slice(&((self.index >> 32) as u32).to_le_bytes());
        payload[4..8].copy_from_slice(&(self.index as u32).to_le_bytes());
        payload[8..10].copy_from_slice(&self.entries.to_le_bytes());
        payload[10..12].copy_from_slice(&prefix_len.to_le_bytes());
        payload[12..14].copy_from_slice(&at.to_le_bytes());
        payload[14..16].fill(0);
        payload[16..24].copy_from_slice(&self.base_batch.to_le_bytes());
        let marks = payload[self.at..].chunks_exact_mut(MARK_BYTES);
        marks.zip(&self.marks).for_each(|(place, mark)| place.copy_from_slice(&mark.to_le_bytes()));
    }

    /// Writes the payload into `page`, which holds zeros or an old page, and empties the builder.
    pub(super) fn write(&mut self, page: &mut [u8]) {
        self.seal();
        let payload = &mut page[HEADER_BYTES..];
        let end = self.at + self.marks.len() * MARK_BYTES;
        payload[..end].copy_from_slice(&self.bytes[..end]);
        payload[end..].fill(0);
        self.entries = 0;
    }
}

fn put_long_at(bytes: &mut [u8], at: usize, record: LongRecord) {
    bytes[at..at + 4].copy_from_slice(&record.page.to_le_bytes());
    bytes[at + 4..at + 8].copy_from_slice(&record.bytes.to_le_bytes());
}

#[inline(always)]
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
                // Keys of any order will do.
                match rng.below(4) {
                    0 => {}
                    1 if !key.is_empty() => *key.last_mut().expect("not empty") ^= 1,
                    2 if rng.chance(0.1) && !key.is_empty() => {
                        let at = rng.below(key.len() as u64) as usize;
                        key[at] ^= 1;
                    }
                    _ => key.push(rng.next_u64() as u8),
                }
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
                let head = codec::head_of(&key);
                let entry = NewEntry { index: 9, key: &key, head, batch, kind, value };
                if !builder.add(payload, entry) {
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
    fn a_search_passes_over_nothing_that_it_should_find() {
        let mut rng = Rng::new(7);
        for round in 0..300 {
            let payload = 4096 - HEADER_BYTES;
            let prefix = vec![round as u8; rng.below(4) as usize];
            let mut entries: Vec<(Vec<u8>, u64)> = (0..1 + rng.below(300))
                .map(|_| {
                    let key = [&prefix[..], &rng.next_u64().to_be_bytes()[..rng.below(3) as usize]].concat();
                    (key, rng.below(5))
                })
                .collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            let mut builder = PageBuilder::default();
            let kinds = [Kind::Put, Kind::Remove];
            entries.truncate(
                entries
                    .iter()
                    .take_while(|(key, batch)| {
                        let kind = kinds[rng.below(2) as usize];
                        let value = Value::Inline(if kind == Kind::Put { b"12345678" } else { b"" });
                        let head = codec::head_of(key);
                        builder.add(payload, NewEntry { index: 9, key, head, batch: *batch, kind, value })
                    })
                    .count(),
            );
            let mut page = vec![0xaa; 4096];
            builder.write(&mut page);
            let payload = &page[HEADER_BYTES..];
            let begin = PageCursor::new(payload).expect("a page");
            let wanted = entries.iter().map(|(key, _)| key.clone());
            let others = (0..20).map(|_| rng.next_u64().to_be_bytes()[..rng.below(5) as usize].to_vec());
            for key in wanted.chain(others.collect::<Vec<_>>()) {
                let mut cursor = begin;
                cursor.seek(payload, &key).expect("a sound page");
                let at = entries.len() - cursor.left();
                let first = entries.partition_point(|(other, _)| *other < key);
                assert!(at <= first && first - at <= usize::from(MARK_EVERY), "{at} for {first}");
                for (other, batch) in &entries[at..] {
                    let entry = cursor.next(payload).expect("sound").expect("one more");
                    assert_eq!([cursor.prefix(payload), entry.suffix].concat(), *other);
                    assert_eq!(entry.batch, *batch);
                }
                assert_eq!(cursor.next(payload), Ok(None));
            }
        }
    }

    #[test]
    fn the_longest_key_fits_with_the_longest_inline_record() {
        let payload = 4096 - HEADER_BYTES;
        let (key, record) = (vec![1; 2048], vec![2; PageBuilder::inline_max(payload)]);
        let mut builder = PageBuilder::default();
        let (head, kind, value) = (codec::head_of(&key), Kind::Put, Value::Inline(&record));
        assert!(builder.add(payload, NewEntry { index: 1, key: &key, head, batch: u64::MAX, kind, value }));
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
