//! A block's bytes, read in place: rows and values by position.
//!
//! [`BlockMeta`] is what a reader needs to know beside the bytes: the layout's places and where each column's dictionary lies.
//! It is parsed once and owned; with the bytes, which stay wherever the owner keeps them, it makes a [`Block`], a pair of
//! references. A point read then looks at the group's line of the directory, at the entries of the group, and at one place a
//! column (two with a dictionary).
//!
//! Rule: `parse` has checked everything in the front against the bytes' length, so the rest of the crate reads at places that
//! are inside or reads zeros (see `bytes`). A damaged block gives wrong values, bounded in number and length by its own bytes.

use std::ops::Range;

use thermocline_base::checksum::{crc32c, crc32c_append};
use thermocline_row::{ColumnSet, Layout, Value};

use super::bytes::{bit, range, set_null, u16_at, u128_at};
use super::dictionary::{self, Strings};
use super::error::Error;
use super::format::{
    CHECKSUM_AT, COLUMN, ColumnEntry, ENTRY, Entry, GROUP, GroupEntry, HEADER, Header, MAGIC, Marked, Stored,
    TAIL, VERSION, ZONE, ZoneEntry,
};
use super::ints;
use super::physical::{Field, Physical, fields, shape_of};
use super::{GROUP_ROWS, MAX_ROWS};

/// A column of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockColumn {
    pub(crate) field: Field,
    pub(crate) stored: Stored,
    pub(crate) count: usize,
    pub(crate) dictionary_at: usize,
    pub(crate) dictionary_len: usize,
    pub(crate) checksum: u32,
}

/// The facts of a block beside its bytes.
#[derive(Clone, Debug)]
pub struct BlockMeta {
    pub(crate) header: Header,
    pub(crate) columns: Box<[BlockColumn]>,
    pub(crate) names: Box<[Box<str>]>,
    fixed: usize,
}

impl BlockMeta {
    /// Reads and checks the front of a block of this layout: header, directories and zone maps with their checksum, and that
    /// all they name lies inside of the bytes.
    ///
    /// # Errors
    /// Bytes that are no block, are damaged, of a newer format or of another layout.
    pub fn parse(bytes: &[u8], layout: &Layout) -> Result<Self, Error> {
        let header = read_header(bytes)?;
        if header.total != bytes.len() {
            let reason = format!("{} bytes, where its header says {}", bytes.len(), header.total);
            return Err(Error::damaged(reason));
        }
        Self::check_front(bytes, header, layout)
    }

    /// The same, of a block whose groups are elsewhere: `front` is what comes before the first of them, dictionaries included
    /// (as long as [`BlockMeta::front_len`] says). Groups are read one by one ([`BlockMeta::group`]).
    ///
    /// # Errors
    /// As [`BlockMeta::parse`].
    pub fn parse_front(front: &[u8], layout: &Layout) -> Result<Self, Error> {
        let meta = Self::check_front(front, read_header(front)?, layout)?;
        let inside = |column: &BlockColumn| column.dictionary_at + column.dictionary_len <= front.len();
        if meta.front_len(front) != front.len() || !meta.columns.iter().all(inside) {
            return Err(Error::damaged(format!("a front of {} bytes ends elsewhere", front.len())));
        }
        Ok(meta)
    }

    /// Checks what the front says; `bytes` begins with it, and has the dictionaries.
    fn check_front(bytes: &[u8], header: Header, layout: &Layout) -> Result<Self, Error> {
        let damaged = |column: Option<usize>, group: Option<usize>, reason: String| Error::Damaged {
            number: Some(header.number),
            column: column.and_then(|c| layout.columns().get(c)).map(|c| c.name.as_str().into()),
            group: group.map(|group| group as u32),
            reason: reason.into(),
        };
        if header.layout != shape_of(layout) || header.columns != layout.columns().len() {
            return Err(Error::OtherLayout { number: header.number });
        }
        let inside = header.total - TAIL;
        let mut columns = Vec::with_capacity(header.columns);
        for (index, field) in fields(layout).into_iter().enumerate() {
            let entry = ColumnEntry::read(bytes, HEADER + index * COLUMN);
            let Some(entry) = entry.filter(|entry| fits(field.physical, entry.stored)) else {
                return Err(damaged(Some(index), None, "an unknown encoding".to_owned()));
            };
            let end = entry.dictionary_at.checked_add(entry.dictionary_len);
            if end.is_none_or(|end| end > inside)
                || entry.dictionary_at < header.front()
                || entry.count as usize > MAX_ROWS
            {
                let reason =
                    format!("a dictionary of {} bytes at {}", entry.dictionary_len, entry.dictionary_at);
                return Err(damaged(Some(index), None, reason));
            }
            columns.push(BlockColumn {
                field,
                stored: entry.stored,
                count: entry.count as usize,
                dictionary_at: entry.dictionary_at,
                dictionary_len: entry.dictionary_len,
                checksum: entry.checksum,
            });
        }
        for group in 0..header.groups {
            let entry = GroupEntry::read(bytes, header.groups_at() + group * GROUP);
            let least = header.columns * ENTRY;
            let end = entry.at.checked_add(entry.len as usize);
            if end.is_none_or(|end| end > inside) || (entry.len as usize) < least || entry.at < header.front()
            {
                return Err(damaged(None, Some(group), format!("{} bytes at {}", entry.len, entry.at)));
            }
        }
        let names = layout.columns().iter().map(|column| column.name.as_str().into()).collect();
        Ok(Self { header, columns: columns.into(), names, fixed: layout.fixed_len() })
    }

    /// The number in the header, if the front is whole.
    pub(crate) fn reread(bytes: &[u8]) -> Result<u64, Error> {
        read_header(bytes).map(|header| header.number)
    }

    /// The block of these bytes, which are those that were parsed: others of the same length give wrong values.
    #[inline]
    #[must_use]
    pub fn block<'a>(&'a self, bytes: &'a [u8]) -> Block<'a> {
        Block { meta: self, bytes }
    }

    /// Number of bytes of the front: what is before the first group, and as many behind that as a read of one number
    /// may take in. `bytes` begins with it.
    #[must_use]
    pub fn front_len(&self, bytes: &[u8]) -> usize {
        GroupEntry::read(bytes, self.header.groups_at()).at.saturating_add(TAIL)
    }

    /// Where the bytes of the group lie that has this position, in the block, with as many behind them as a read of one number may
    /// take in. `None`: the block has no such position.
    #[must_use]
    pub fn group_range(&self, front: &[u8], position: u16) -> Option<Range<usize>> {
        let (group, _) = split(position);
        let entry = (u32::from(position) < self.header.span)
            .then(|| GroupEntry::read(front, self.header.groups_at() + group * GROUP))?;
        Some(entry.at..entry.at + entry.len as usize + TAIL)
    }

    /// The group with this position: `front` is what was parsed, `bytes` are those of [`BlockMeta::group_range`]. Others give
    /// wrong values.
    #[must_use]
    pub fn group<'a>(&'a self, front: &'a [u8], bytes: &'a [u8], position: u16) -> Group<'a> {
        Group { meta: self, front, bytes, number: split(position).0 }
    }

    /// The number that the block was made with.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.header.number
    }

    /// Rows of the block.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a block has at least one row")]
    pub fn len(&self) -> u32 {
        self.header.rows
    }

    /// Positions of the block: one more than the last that has a row.
    #[must_use]
    pub fn span(&self) -> u32 {
        self.header.span
    }

    /// Bytes of the block.
    #[must_use]
    pub fn bytes_len(&self) -> usize {
        self.header.total
    }

    /// Bytes that this takes beside the block's.
    #[must_use]
    pub fn memory(&self) -> usize {
        let names = self.names.iter().map(|name| name.len()).sum::<usize>() + size_of_val(&*self.names);
        size_of::<Self>() + size_of_val(&*self.columns) + names
    }
}

/// The number and rows of a block, and what stands for the types of its columns: without its layout.
///
/// # Errors
/// Bytes that are no block, are damaged or of a newer format.
pub fn identify(bytes: &[u8]) -> Result<(u64, u32, u64), Error> {
    let header = read_header(bytes)?;
    if header.total != bytes.len() {
        return Err(Error::damaged(format!("{} bytes, where its header says {}", bytes.len(), header.total)));
    }
    Ok((header.number, header.rows, header.layout))
}

fn read_header(bytes: &[u8]) -> Result<Header, Error> {
    if bytes.len() < HEADER + TAIL || bytes[..8] != MAGIC {
        return Err(Error::damaged("the bytes do not begin as a block does"));
    }
    let found = u16_at(bytes, 8);
    if found != VERSION {
        return Err(Error::Version { found, known: VERSION });
    }
    let header = Header::read(bytes);
    if header.front() > bytes.len() || header.front() > header.total.saturating_sub(TAIL) {
        return Err(Error::damaged(format!("{} bytes, where its header says {}", bytes.len(), header.total)));
    }
    let (head, rest) = bytes[..header.front()].split_at(CHECKSUM_AT);
    let (stored, rest) = rest.split_at(4);
    let sum = crc32c_append(crc32c_append(crc32c(head), &[0; 4]), rest);
    if stored != sum.to_le_bytes() {
        return Err(Error::damaged("the checksum of its front does not match"));
    }
    let span = header.span as usize;
    if header.rows == 0
        || header.rows > header.span
        || span > MAX_ROWS
        || header.groups != span.div_ceil(GROUP_ROWS)
    {
        return Err(Error::damaged(format!(
            "{} rows in {} positions of {} groups",
            header.rows, span, header.groups
        )));
    }
    Ok(header)
}

fn fits(physical: Physical, stored: Stored) -> bool {
    match physical {
        Physical::Int(_) | Physical::Float(_) => matches!(stored, Stored::Integers | Stored::Codes),
        Physical::Wide => matches!(stored, Stored::Integers | Stored::Codes | Stored::Wide),
        Physical::Bytes => matches!(stored, Stored::Codes | Stored::Bytes),
    }
}

/// A block: its bytes and what is known of them.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    pub(crate) meta: &'a BlockMeta,
    pub(crate) bytes: &'a [u8],
}

/// The values of one column in one group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) column: &'a BlockColumn,
    /// In which the group lies.
    pub(crate) bytes: &'a [u8],
    /// In which the dictionaries lie, at the block's places.
    pub(crate) front: &'a [u8],
    pub(crate) entry: Entry,
    /// Where the segment begins.
    pub(crate) at: usize,
    /// Where its integers begin.
    pub(crate) integers_at: usize,
    /// Positions of the group.
    pub(crate) n: usize,
}

impl<'a> Segment<'a> {
    /// A column in a group that begins at `at` of `bytes` and has `n` positions.
    #[inline(always)]
    fn at(
        (bytes, front): (&'a [u8], &'a [u8]),
        at: usize,
        n: usize,
        index: usize,
        column: &'a BlockColumn,
    ) -> Self {
        let entry = Entry::read(bytes, at + index * ENTRY);
        let at = at + entry.offset as usize;
        let integers_at = if entry.nulls == Marked::Bits { at + 8 * n.div_ceil(64) } else { at };
        Self { column, bytes, front, entry, at, integers_at, n }
    }

    /// True if the value at `i` is null.
    #[inline(always)]
    pub(crate) fn is_null(&self, i: usize) -> bool {
        match self.entry.nulls {
            Marked::None => false,
            Marked::All => true,
            Marked::Bits => bit(self.bytes, self.at, i),
            Marked::Run => {
                (usize::from(self.entry.null_run.0)..usize::from(self.entry.null_run.1)).contains(&i)
            }
        }
    }

    /// The integer at `i`.
    #[inline(always)]
    pub(crate) fn integer(&self, i: usize) -> i64 {
        ints::value(self.bytes, self.integers_at, &self.entry.params, self.n, i)
    }

    /// The value at `i` of integers and floats, and of decimals that stand as integers.
    #[inline(always)]
    pub(crate) fn number(&self, i: usize) -> i64 {
        let integer = self.integer(i);
        match self.column.stored {
            Stored::Codes => dictionary::integer(self.front, self.column.dictionary_at, self.code(integer)),
            _ => integer,
        }
    }

    /// A code of the dictionary, whatever the bytes say.
    #[inline(always)]
    fn code(&self, integer: i64) -> usize {
        (integer as usize).min(self.column.count.saturating_sub(1))
    }

    /// The 128 bits at `i`.
    #[inline]
    pub(crate) fn wide(&self, i: usize) -> i128 {
        match self.column.stored {
            Stored::Wide => u128_at(self.bytes, self.integers_at + 16 * i) as i128,
            Stored::Codes => {
                dictionary::wide(self.front, self.column.dictionary_at, self.code(self.integer(i)))
            }
            _ => self.integer(i).into(),
        }
    }

    /// The dictionary of a column of strings.
    #[inline]
    pub(crate) fn strings(&self) -> Strings<'a> {
        Strings { bytes: self.front, at: self.column.dictionary_at, count: self.column.count }
    }

    /// The bytes at `i`, in two parts.
    #[inline]
    pub(crate) fn string(&self, i: usize) -> (&'a [u8], &'a [u8]) {
        if self.column.stored == Stored::Codes {
            return self.strings().parts(self.integer(i) as usize);
        }
        let heap = self.integers_at + self.entry.params.bytes(self.n);
        let begin = if i == 0 { 0 } else { self.integer(i - 1) };
        let place = |offset: i64| usize::try_from(offset).ok().and_then(|offset| heap.checked_add(offset));
        match (place(begin), place(self.integer(i))) {
            (Some(from), Some(to)) => (&[], range(self.bytes, from, to)),
            _ => (&[], &[]),
        }
    }

    /// Bytes of the string at `i`.
    pub(crate) fn string_len(&self, i: usize) -> usize {
        if self.is_null(i) {
            return 0;
        }
        let (a, b) = self.string(i);
        a.len() + b.len()
    }

    /// The value at `i`.
    pub(crate) fn value(&self, i: usize) -> Value {
        if self.is_null(i) {
            return Value::Null;
        }
        let field = &self.column.field;
        match field.physical {
            Physical::Int(_) | Physical::Float(_) => field.integer_value(self.number(i)),
            Physical::Wide => field.wide_value(self.wide(i)),
            Physical::Bytes => {
                let (a, b) = self.string(i);
                field.bytes_value(&[a, b].concat())
            }
        }
    }

    #[inline(always)]
    fn put(&self, i: usize, row: &mut Vec<u8>) {
        let field = &self.column.field;
        let null = self.entry.nulls != Marked::None && self.is_null(i);
        if null {
            set_null(row, field.place);
        }
        match field.physical {
            Physical::Int(_) | Physical::Float(_) if !null => field.put_integer(self.number(i), row),
            Physical::Wide if !null => field.put_wide(self.wide(i), row),
            Physical::Bytes => {
                if !null {
                    let (a, b) = self.string(i);
                    row.extend_from_slice(a);
                    row.extend_from_slice(b);
                }
                let (end, at) = (row.len() as u32, field.place.offset as usize);
                if let Some(place) = row.get_mut(at..at + 4) {
                    place.copy_from_slice(&end.to_le_bytes());
                }
            }
            _ => {}
        }
    }
}

impl<'a> Block<'a> {
    /// The facts of the block beside its bytes.
    #[must_use]
    pub fn meta(&self) -> &'a BlockMeta {
        self.meta
    }

    /// The block's bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The number that the block was made with.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.meta.number()
    }

    /// Rows of the block.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a block has at least one row")]
    pub fn len(&self) -> u32 {
        self.meta.len()
    }

    /// Positions of the block: one more than the last that has a row.
    #[must_use]
    pub fn span(&self) -> u32 {
        self.meta.span()
    }

    /// Bytes of the block.
    #[must_use]
    pub fn bytes_len(&self) -> usize {
        self.meta.bytes_len()
    }

    /// The front's entry of a group.
    #[inline(always)]
    pub(crate) fn group(&self, group: usize) -> GroupEntry {
        GroupEntry::read(self.bytes, self.meta.header.groups_at() + group * GROUP)
    }

    /// The front's entry of a column in a group.
    pub(crate) fn zone_entry(&self, column: usize, group: usize) -> ZoneEntry {
        let header = &self.meta.header;
        ZoneEntry::read(self.bytes, header.zones_at() + (column * header.groups + group) * ZONE)
    }

    /// A column in a group that begins at `at` and has `n` positions.
    #[inline(always)]
    pub(crate) fn segment_at(
        &self,
        at: usize,
        n: usize,
        index: usize,
        column: &'a BlockColumn,
    ) -> Segment<'a> {
        Segment::at((self.bytes, self.bytes), at, n, index, column)
    }

    /// A column in a group.
    pub(crate) fn segment(&self, group: usize, index: usize) -> Segment<'a> {
        let n = self.meta.header.positions_in(group);
        self.segment_at(self.group(group).at, n, index, &self.meta.columns[index])
    }

    #[inline(always)]
    fn is_present_in(&self, entry: &GroupEntry, i: usize) -> bool {
        is_present(self.meta, self.bytes, entry.at, entry.presence, i)
    }

    /// The presence bits of a group, 64 a word.
    pub(crate) fn presence(&self, group: usize) -> [u64; GROUP_ROWS / 64] {
        let (entry, n) = (self.group(group), self.meta.header.positions_in(group));
        let bits_at = entry.at + self.meta.columns.len() * ENTRY;
        std::array::from_fn(|word| {
            let rest = n.saturating_sub(64 * word);
            let mask = if rest >= 64 { u64::MAX } else { (1 << rest) - 1 };
            let all = entry.presence == Marked::All;
            mask & if all { u64::MAX } else { super::bytes::u64_at(self.bytes, bits_at + 8 * word) }
        })
    }

    /// True if there is a row at the position.
    #[inline]
    #[must_use]
    pub fn is_present(&self, position: u16) -> bool {
        let (group, i) = split(position);
        u32::from(position) < self.meta.header.span && self.is_present_in(&self.group(group), i)
    }

    /// The positions that have a row, in ascending order.
    pub fn positions(&self) -> impl Iterator<Item = u16> + use<'a> {
        let block = *self;
        (0..self.meta.header.groups).flat_map(move |group| {
            let words = block.presence(group);
            (0..GROUP_ROWS)
                .filter(move |i| words[i / 64] >> (i % 64) & 1 != 0)
                .map(move |i| (group * GROUP_ROWS + i) as u16)
        })
    }

    /// The row at the position, into `out`, whose content goes: byte for byte the row that was pushed. `false`, and no bytes,
    /// if there is none.
    #[inline]
    pub fn row_into(&self, position: u16, out: &mut Vec<u8>) -> bool {
        out.clear();
        let (group, i) = split(position);
        if u32::from(position) >= self.meta.header.span {
            return false;
        }
        let entry = self.group(group);
        if !self.is_present_in(&entry, i) {
            return false;
        }
        put_row(self.meta, (self.bytes, self.bytes), entry.at, (group, i), out);
        true
    }

    /// Writes the row at a position with the values of these columns alone; the bytes of the others mean nothing. `false`: there
    /// is none. Variable-width columns stand behind each other, so if one is wanted, all of them have to be.
    pub fn columns_into(&self, position: u16, columns: &ColumnSet, out: &mut Vec<u8>) -> bool {
        out.clear();
        let (group, i) = split(position);
        if u32::from(position) >= self.meta.header.span {
            return false;
        }
        let entry = self.group(group);
        if !self.is_present_in(&entry, i) {
            return false;
        }
        put_columns(self.meta, (self.bytes, self.bytes), entry.at, (group, i), out, |column| {
            columns.contains(column)
        });
        true
    }

    /// The segment and place of a position, if the column and a row are there.
    #[inline]
    fn find(&self, column: usize, position: u16) -> Option<(Segment<'a>, usize)> {
        let (group, i) = split(position);
        if u32::from(position) >= self.meta.header.span {
            return None;
        }
        let entry = self.group(group);
        if !self.is_present_in(&entry, i) {
            return None;
        }
        let n = self.meta.header.positions_in(group);
        Some((self.segment_at(entry.at, n, column, self.meta.columns.get(column)?), i))
    }

    /// The value of a column; `None` if there is no such column or no row.
    #[must_use]
    pub fn value(&self, column: usize, position: u16) -> Option<Value> {
        self.find(column, position).map(|(segment, i)| segment.value(i))
    }

    /// True if the column is null at the position; false where there is no row.
    #[must_use]
    pub fn is_null(&self, column: usize, position: u16) -> bool {
        self.find(column, position).is_some_and(|(segment, i)| segment.is_null(i))
    }

    /// The integer of a column: of booleans, integers, dates, times and decimals of up to 18 digits (times 10^scale). `None` is null,
    /// no row, or a column of another type.
    #[inline]
    #[must_use]
    pub fn int(&self, column: usize, position: u16) -> Option<i64> {
        let (segment, i) = self.find(column, position)?;
        let fits = matches!(segment.column.field.physical, Physical::Int(_)) && !segment.is_null(i);
        fits.then(|| segment.number(i))
    }

    /// The bytes of a text or bytea column, into `out`, whose content goes. `false` is null, no row, or another type.
    #[inline]
    pub fn bytes_into(&self, column: usize, position: u16, out: &mut Vec<u8>) -> bool {
        out.clear();
        let Some((segment, i)) = self.find(column, position) else { return false };
        if segment.column.field.physical != Physical::Bytes || segment.is_null(i) {
            return false;
        }
        let (a, b) = segment.string(i);
        out.extend_from_slice(a);
        out.extend_from_slice(b);
        true
    }
}

/// One group of a block whose other groups are elsewhere; see [`BlockMeta::group`].
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    meta: &'a BlockMeta,
    front: &'a [u8],
    bytes: &'a [u8],
    number: usize,
}

impl Group<'_> {
    /// As [`Block::row_into`], of a position of this group.
    pub fn row_into(&self, position: u16, out: &mut Vec<u8>) -> bool {
        out.clear();
        let (group, i) = split(position);
        if group != self.number || u32::from(position) >= self.meta.header.span {
            return false;
        }
        let entry = GroupEntry::read(self.front, self.meta.header.groups_at() + group * GROUP);
        if !is_present(self.meta, self.bytes, 0, entry.presence, i) {
            return false;
        }
        put_row(self.meta, (self.bytes, self.front), 0, (group, i), out);
        true
    }
}

/// Has the group that begins at `at` of `bytes` a row at its place `i`?
#[inline(always)]
fn is_present(meta: &BlockMeta, bytes: &[u8], at: usize, presence: Marked, i: usize) -> bool {
    presence == Marked::All || bit(bytes, at + meta.columns.len() * ENTRY, i)
}

/// Puts a row together: of the group that begins at `at` of the first bytes, with the dictionaries of the second.
#[inline(always)]
fn put_row(meta: &BlockMeta, bytes: (&[u8], &[u8]), at: usize, place: (usize, usize), out: &mut Vec<u8>) {
    put_columns(meta, bytes, at, place, out, |_| true);
}

/// The same with those columns alone of which `is_wanted` says so.
#[inline(always)]
fn put_columns(
    meta: &BlockMeta,
    bytes: (&[u8], &[u8]),
    at: usize,
    (group, i): (usize, usize),
    out: &mut Vec<u8>,
    is_wanted: impl Fn(usize) -> bool,
) {
    out.resize(meta.fixed, 0);
    let n = meta.header.positions_in(group);
    for (index, column) in meta.columns.iter().enumerate().filter(|(index, _)| is_wanted(*index)) {
        Segment::at(bytes, at, n, index, column).put(i, out);
    }
}

/// Group and place in it.
#[inline(always)]
pub(crate) fn split(position: u16) -> (usize, usize) {
    (usize::from(position) / GROUP_ROWS, usize::from(position) % GROUP_ROWS)
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;
