//! Makes a block of rows: takes each row apart, decides how each column stands, writes all of it.
//!
//! A column is decided by what it would measure: the bytes of its groups as integers of the values, against those of its codes
//! with the dictionary. In a group the integers take the smallest form that the [`Choice`] allows. A place without a value
//! (a null, a position without a row) repeats its neighbour, so that it breaks no run and widens nothing.
//!
//! Limits: 65,536 positions; 4 GiB of bytes a column. A builder belongs to one thread, and is used again after each block.

use thermocline_base::checksum::crc32c;
use thermocline_row::{Layout, Type};

use super::bytes::u32_at;
use super::distinct::Distinct;
use super::error::Error;
use super::format::{
    ALIGN, CHECKSUM_AT, COLUMN, Choice, ColumnEntry, ENTRY, Entry, GROUP, GroupEntry, HEADER, Header, Marked,
    Stored, TAIL, ZONE, ZoneEntry,
};
use super::ints::{self, Kind, Params};
use super::physical::{Field, Physical, bytes_key, fields, shape_of};
use super::{GROUP_ROWS, MAX_ROWS, dictionary};

/// The values of a column, one a position.
#[derive(Debug)]
enum Values {
    Integers(Vec<i64>),
    Wide(Vec<i128>),
    Bytes { heap: Vec<u8>, ends: Vec<u32> },
}

impl Values {
    fn clear(&mut self) {
        match self {
            Values::Integers(v) => v.clear(),
            Values::Wide(v) => v.clear(),
            Values::Bytes { heap, ends } => {
                heap.clear();
                ends.clear();
            }
        }
    }

    /// Repeats the last value, for positions without a row.
    fn repeat(&mut self, count: usize) {
        fn more<T: Copy + Default>(v: &mut Vec<T>, count: usize) {
            v.resize(v.len() + count, v.last().copied().unwrap_or_default());
        }
        match self {
            Values::Integers(v) => more(v, count),
            Values::Wide(v) => more(v, count),
            Values::Bytes { ends, .. } => more(ends, count),
        }
    }
}

fn string<'a>(heap: &'a [u8], ends: &[u32], i: usize) -> &'a [u8] {
    let begin = if i == 0 { 0 } else { ends[i - 1] as usize };
    &heap[begin..ends[i] as usize]
}

/// Bits by position.
#[derive(Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn set(&mut self, i: usize) {
        if self.0.len() <= i / 64 {
            self.0.resize(i / 64 + 1, 0);
        }
        self.0[i / 64] |= 1 << (i % 64);
    }

    #[inline]
    fn get(&self, i: usize) -> bool {
        self.0.get(i / 64).is_some_and(|word| word >> (i % 64) & 1 != 0)
    }

    fn count(&self, from: usize, to: usize) -> usize {
        // Groups begin at multiples of 64, and nothing is set behind the last position.
        let words = self.0.get(from / 64..self.0.len().min(to.div_ceil(64))).unwrap_or(&[]);
        words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The form in which the bits of `from..to` stand, with the run if they are one.
    fn marked(&self, from: usize, to: usize) -> (Marked, (u16, u16)) {
        let count = self.count(from, to);
        if count == 0 {
            return (Marked::None, (0, 0));
        }
        if count == to - from {
            return (Marked::All, (0, 0));
        }
        let first = (from..to).find(|i| self.get(*i)).unwrap_or(from);
        if (first..first + count).all(|i| self.get(i)) {
            return (Marked::Run, ((first - from) as u16, (first - from + count) as u16));
        }
        (Marked::Bits, (0, 0))
    }

    fn write(&self, from: usize, to: usize, out: &mut Vec<u8>) {
        for word in from / 64..to.div_ceil(64) {
            out.extend(self.0.get(word).copied().unwrap_or(0).to_le_bytes());
        }
    }
}

#[derive(Debug)]
struct Buffer {
    field: Field,
    name: Box<str>,
    values: Values,
    nulls: Bits,
}

/// A column as it will stand.
struct Decided {
    stored: Stored,
    /// The integers of all positions: values, codes or ends; none of `Wide`.
    stream: Vec<i64>,
    /// The form in which those of each group stand.
    plans: Vec<Params>,
    dictionary: Vec<u8>,
    count: usize,
    /// The numbers of a dictionary of integers.
    numbers: Vec<i64>,
}

/// Makes blocks of rows of one layout.
#[derive(Debug)]
pub struct Builder {
    layout: u64,
    fixed: usize,
    columns: Vec<Buffer>,
    present: Bits,
    /// Positions so far, those without a row included.
    span: usize,
    rows: u32,
    distinct: Distinct,
}

impl Builder {
    /// A builder for rows of this layout.
    #[must_use]
    pub fn new(layout: &Layout) -> Self {
        let buffer = |(field, column): (Field, &thermocline_row::Column)| Buffer {
            field,
            name: column.name.as_str().into(),
            values: match field.physical {
                Physical::Int(_) | Physical::Float(_) => Values::Integers(Vec::new()),
                Physical::Wide => Values::Wide(Vec::new()),
                Physical::Bytes => Values::Bytes { heap: Vec::new(), ends: Vec::new() },
            },
            nulls: Bits::default(),
        };
        Self {
            layout: shape_of(layout),
            fixed: layout.fixed_len(),
            columns: fields(layout).into_iter().zip(layout.columns()).map(buffer).collect(),
            present: Bits::default(),
            span: 0,
            rows: 0,
            distinct: Distinct::default(),
        }
    }

    /// Rows that were pushed since the last block.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.rows
    }

    /// True if none was pushed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Forgets the rows that were pushed.
    pub fn clear(&mut self) {
        for column in &mut self.columns {
            column.values.clear();
            column.nulls.0.clear();
        }
        self.present.0.clear();
        (self.span, self.rows) = (0, 0);
    }

    /// Adds the row of a position: the bytes of an encoded row of the layout. Positions ascend.
    ///
    /// # Errors
    /// A position that does not ascend, or bytes whose lengths are not those of a row; nothing was added then. What stands in
    /// the places of a row is not looked at: a block gives back the bytes that it got.
    pub fn push(&mut self, position: u16, row: &[u8]) -> Result<(), Error> {
        let at = usize::from(position);
        if at < self.span {
            return Err(Error::Position { position, least: self.span as u32 });
        }
        self.check(position, row)?;
        if at > self.span {
            let gap = at - self.span;
            self.columns.iter_mut().for_each(|column| column.values.repeat(gap));
        }
        let mut begin = self.fixed;
        for Buffer { field, values, nulls, .. } in &mut self.columns {
            match values {
                Values::Integers(v) => v.push(field.integer(row)),
                Values::Wide(v) => v.push(field.wide(row)),
                Values::Bytes { heap, ends } => {
                    let end = u32_at(row, field.place.offset as usize) as usize;
                    heap.extend_from_slice(&row[begin..end]);
                    ends.push(heap.len() as u32);
                    begin = end;
                }
            }
            if field.nullable() && field.place.is_null(row) {
                nulls.set(at);
                // The place of a null is zero: its neighbour stands there instead.
                match values {
                    Values::Integers(v) if v.len() > 1 => v[at] = v[at - 1],
                    Values::Wide(v) if v.len() > 1 => v[at] = v[at - 1],
                    _ => {}
                }
            }
        }
        self.present.set(at);
        self.span = at + 1;
        self.rows += 1;
        Ok(())
    }

    fn check(&self, position: u16, row: &[u8]) -> Result<(), Error> {
        let flaw = |reason: String| Error::Row { position, reason: reason.into() };
        if row.len() < self.fixed {
            return Err(flaw(format!("{} bytes, where a row has at least {}", row.len(), self.fixed)));
        }
        let mut end = self.fixed;
        for Buffer { field, name, values, .. } in &self.columns {
            let Values::Bytes { heap, .. } = values else { continue };
            let begin = end;
            end = u32_at(row, field.place.offset as usize) as usize;
            if end < begin || end > row.len() {
                return Err(flaw(format!(
                    "column \"{name}\" has the bytes {begin} to {end} of {}",
                    row.len()
                )));
            }
            if heap.len() + (end - begin) > u32::MAX as usize {
                return Err(Error::TooLarge { column: name.clone() });
            }
        }
        if end != row.len() {
            return Err(flaw(format!("{} bytes, and its last column ends at {end}", row.len())));
        }
        Ok(())
    }

    /// The block of the rows that were pushed, under this number. The builder is empty then.
    ///
    /// # Errors
    /// There are none.
    pub fn finish(&mut self, number: u64, choice: Choice) -> Result<Vec<u8>, Error> {
        if self.rows == 0 {
            return Err(Error::Empty);
        }
        debug_assert!(self.span <= MAX_ROWS, "positions have 16 bits");
        let mut distinct = std::mem::take(&mut self.distinct);
        let decided: Vec<Decided> = {
            let (span, present) = (self.span, &self.present);
            let columns = self.columns.iter_mut();
            columns.map(|column| column.decide(span, present, choice, &mut distinct)).collect()
        };
        self.distinct = distinct;
        let bytes = self.write(number, &decided);
        self.clear();
        Ok(bytes)
    }

    fn write(&self, number: u64, decided: &[Decided]) -> Vec<u8> {
        let groups = self.span.div_ceil(GROUP_ROWS);
        let mut header = Header {
            columns: self.columns.len(),
            groups,
            total: 0,
            number,
            layout: self.layout,
            rows: self.rows,
            span: self.span as u32,
        };
        let mut out = vec![0; header.front()];
        for (index, column) in decided.iter().enumerate() {
            let at = out.len();
            out.extend_from_slice(&column.dictionary);
            let entry = ColumnEntry {
                stored: column.stored,
                count: column.count as u32,
                dictionary_at: at,
                dictionary_len: column.dictionary.len(),
                checksum: crc32c(&column.dictionary),
            };
            entry.write(&mut out[HEADER + index * COLUMN..][..COLUMN]);
        }
        for group in 0..groups {
            out.resize(out.len().next_multiple_of(ALIGN), 0);
            self.write_group(&header, decided, group, &mut out);
        }
        out.resize(out.len() + TAIL, 0);
        header.total = out.len();
        header.write(&mut out[..HEADER]);
        let sum = crc32c(&out[..header.front()]);
        out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn write_group(&self, header: &Header, decided: &[Decided], group: usize, out: &mut Vec<u8>) {
        let (start, from) = (out.len(), group * GROUP_ROWS);
        let to = (from + GROUP_ROWS).min(self.span);
        out.resize(start + decided.len() * ENTRY, 0);
        let present = self.present.count(from, to);
        let presence = if present == to - from { Marked::All } else { Marked::Bits };
        let bits_at = out.len();
        if presence == Marked::Bits {
            self.present.write(from, to, out);
        }
        let checksum = crc32c(&out[bits_at..]);
        for (index, (buffer, column)) in self.columns.iter().zip(decided).enumerate() {
            let at = out.len();
            let (nulls, null_run) = buffer.nulls.marked(from, to);
            if nulls == Marked::Bits {
                buffer.nulls.write(from, to, out);
            }
            let params = column.plans[group];
            if column.stored != Stored::Wide {
                ints::write(&column.stream[from..to], &params, out);
            }
            buffer.write_heap(column.stored, from, to, out);
            let entry = Entry { params, offset: (at - start) as u32, nulls, null_run };
            let entry_at = start + index * ENTRY;
            entry.write(&mut out[entry_at..entry_at + ENTRY]);
            let mut zone = buffer.zone(column, from, to, &self.present);
            zone.nulls = buffer.nulls.count(from, to) as u16;
            zone.checksum = segment_checksum(&out[entry_at..entry_at + ENTRY], &out[at..]);
            let zone_at = header.zones_at() + (index * header.groups + group) * ZONE;
            zone.write(&mut out[zone_at..zone_at + ZONE]);
        }
        let len = (out.len() - start) as u32;
        let entry = GroupEntry { at: start, len, checksum, present: present as u16, presence };
        let entry_at = header.groups_at() + group * GROUP;
        entry.write(&mut out[entry_at..entry_at + GROUP]);
    }
}

/// The checksum of a column in a group: its entry, then its data.
pub(crate) fn segment_checksum(entry: &[u8], data: &[u8]) -> u32 {
    thermocline_base::checksum::crc32c_append(crc32c(entry), data)
}

impl Buffer {
    fn decide(&mut self, span: usize, present: &Bits, choice: Choice, distinct: &mut Distinct) -> Decided {
        let nulls = &self.nulls;
        let whole = nulls.0.is_empty() && present.count(0, span) == span;
        let hidden = |i: usize| !whole && (nulls.get(i) || !present.get(i));
        match &mut self.values {
            Values::Integers(values) => integers(std::mem::take(values), whole, hidden, choice, distinct),
            Values::Wide(values) => {
                let narrow = matches!(self.field.ty, Type::Decimal { .. })
                    && values.iter().all(|v| i64::try_from(*v).is_ok());
                if narrow {
                    let stream = values.iter().map(|v| *v as i64).collect();
                    return integers(stream, whole, hidden, choice, distinct);
                }
                if let Some((sorted, codes)) = distinct.integers(values, span / 2, hidden) {
                    let dictionary: Vec<u8> = sorted.iter().flat_map(|v| v.to_le_bytes()).collect();
                    let coded = coded(codes, whole, hidden, choice, dictionary, sorted.len());
                    if coded.bytes() < 16 * span {
                        return coded;
                    }
                }
                let plan = Params { kind: Kind::Line, width: 0, base: 0, slope: 0, runs: 0 };
                let plans = vec![plan; span.div_ceil(GROUP_ROWS)];
                Decided {
                    stored: Stored::Wide,
                    stream: Vec::new(),
                    plans,
                    dictionary: Vec::new(),
                    count: 0,
                    numbers: Vec::new(),
                }
            }
            Values::Bytes { heap, ends } => {
                let plain = ends_of(ends, choice);
                let found = distinct.strings(span, span * 3 / 4, hidden, |i| string(heap, ends, i));
                if let Some((sorted, codes)) = found {
                    let mut dictionary = Vec::new();
                    // A dictionary has offsets of 32 bits, and so has the heap that it is a part of.
                    dictionary::write_strings(&sorted, &mut dictionary);
                    let coded = coded(codes, whole, hidden, choice, dictionary, sorted.len());
                    if coded.bytes() <= plain.bytes() + heap.len() {
                        return coded;
                    }
                }
                plain
            }
        }
    }

    /// Writes the bytes that follow the integers of a group.
    fn write_heap(&self, stored: Stored, from: usize, to: usize, out: &mut Vec<u8>) {
        match (&self.values, stored) {
            (Values::Wide(values), Stored::Wide) => {
                values[from..to].iter().for_each(|v| out.extend(v.to_le_bytes()));
            }
            (Values::Bytes { heap, ends }, Stored::Bytes) => {
                let begin = if from == 0 { 0 } else { ends[from - 1] as usize };
                out.extend_from_slice(&heap[begin..ends[to - 1] as usize]);
            }
            _ => {}
        }
    }

    /// Bounds and sum of a group.
    fn zone(&self, column: &Decided, from: usize, to: usize, present: &Bits) -> ZoneEntry {
        let mut zone = ZoneEntry {
            low: i64::MAX,
            high: i64::MIN,
            has_sum: self.field.is_summed(),
            ..ZoneEntry::default()
        };
        let mut sum = Some(0i128);
        let shown = (from..to).filter(|i| present.get(*i) && !self.nulls.get(*i));
        let mut add = |key: i64, number: i128| {
            zone.low = zone.low.min(key);
            zone.high = zone.high.max(key);
            sum = sum.and_then(|sum| sum.checked_add(number));
        };
        match &self.values {
            Values::Integers(_) => shown.for_each(|i| {
                let v = column.stream[i];
                let number = column.numbers.get(v as usize).filter(|_| column.stored == Stored::Codes);
                add(v, number.copied().unwrap_or(v).into());
            }),
            Values::Wide(values) if column.stored == Stored::Codes => {
                shown.for_each(|i| add(column.stream[i], values[i]));
            }
            Values::Wide(values) => shown.for_each(|i| add(self.field.wide_key(values[i]), values[i])),
            Values::Bytes { .. } if column.stored == Stored::Codes => {
                shown.for_each(|i| add(column.stream[i], 0));
            }
            Values::Bytes { heap, ends } => shown.for_each(|i| add(bytes_key(string(heap, ends, i)), 0)),
        }
        zone.has_values = zone.low <= zone.high;
        match sum.and_then(|sum| i64::try_from(sum).ok()) {
            Some(sum) => zone.sum = sum,
            None => zone.has_sum = false,
        }
        if !zone.has_values {
            (zone.low, zone.high) = (0, 0);
        }
        if !zone.has_sum {
            zone.sum = 0;
        }
        zone
    }
}

impl Decided {
    /// Bytes of dictionary and integers.
    fn bytes(&self) -> usize {
        let groups = self.stream.chunks(GROUP_ROWS).zip(&self.plans);
        self.dictionary.len() + groups.map(|(values, plan)| plan.bytes(values.len())).sum::<usize>()
    }
}

/// Gives each hidden place the value of a neighbour in its group.
fn fill(stream: &mut [i64], hidden: impl Fn(usize) -> bool) {
    for (group, values) in stream.chunks_mut(GROUP_ROWS).enumerate() {
        let from = group * GROUP_ROWS;
        let Some(first) = (0..values.len()).find(|i| !hidden(from + i)) else {
            values.fill(0);
            continue;
        };
        let mut last = values[first];
        for (i, v) in values.iter_mut().enumerate() {
            if hidden(from + i) { *v = last } else { last = *v }
        }
    }
}

fn plans(stream: &[i64], choice: Choice) -> Vec<Params> {
    stream.chunks(GROUP_ROWS).map(|values| ints::plan(values, choice)).collect()
}

/// Integers as such or in a dictionary.
fn integers(
    mut stream: Vec<i64>,
    whole: bool,
    hidden: impl Fn(usize) -> bool + Copy,
    choice: Choice,
    distinct: &mut Distinct,
) -> Decided {
    if !whole {
        fill(&mut stream, hidden);
    }
    let plans = plans(&stream, choice);
    let plain = Decided {
        stored: Stored::Integers,
        stream,
        plans,
        dictionary: Vec::new(),
        count: 0,
        numbers: Vec::new(),
    };
    let count = plain.stream.len();
    // A dictionary costs a look a read; below eight bits a value there is little to win.
    if plain.bytes() < count {
        return plain;
    }
    let Some((sorted, codes)) = distinct.integers(&plain.stream, count / 4, hidden) else { return plain };
    let mut dictionary = Vec::new();
    dictionary::write_integers(&sorted, &mut dictionary);
    let coded = coded(codes, whole, hidden, choice, dictionary, sorted.len());
    if coded.bytes() < plain.bytes() * 7 / 8 { Decided { numbers: sorted, ..coded } } else { plain }
}

fn coded(
    mut codes: Vec<i64>,
    whole: bool,
    hidden: impl Fn(usize) -> bool,
    choice: Choice,
    dictionary: Vec<u8>,
    count: usize,
) -> Decided {
    if !whole {
        fill(&mut codes, hidden);
    }
    let plans = plans(&codes, choice);
    Decided { stored: Stored::Codes, stream: codes, plans, dictionary, count, numbers: Vec::new() }
}

/// Where the bytes of each position end, from the begin of its group's on.
fn ends_of(ends: &[u32], choice: Choice) -> Decided {
    let mut stream = Vec::with_capacity(ends.len());
    for (group, chunk) in ends.chunks(GROUP_ROWS).enumerate() {
        let begin = if group == 0 { 0 } else { ends[group * GROUP_ROWS - 1] };
        stream.extend(chunk.iter().map(|end| i64::from(end - begin)));
    }
    let plans = plans(&stream, choice);
    Decided { stored: Stored::Bytes, stream, plans, dictionary: Vec::new(), count: 0, numbers: Vec::new() }
}
