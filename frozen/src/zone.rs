//! Facts that a block gives of its columns without reading them: zones, sizes; and aggregates, which use both.

use std::ops::ControlFlow;

use thermocline_row::{Type, Value};

use super::GROUP_ROWS;
use super::block::Block;
use super::dictionary;
use super::error::Error;
use super::format::{ENTRY, Entry, Stored};
use super::ints::Kind;
use super::physical::Physical;
use super::predicate::Predicate;
use super::scan::ones;

/// Bounds of the values of a column that are there.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    /// No value is less; `None` if none is known, or there are no values.
    pub min: Option<Value>,
    /// No value is greater; `None` if none is known, or there are no values.
    pub max: Option<Value>,
    /// Rows whose value is null.
    pub nulls: u32,
    /// Rows whose value is not.
    pub values: u32,
    /// The sum of the values times 10^scale, of integers and decimals, if it is known.
    pub sum: Option<i128>,
}

/// Count, sum and bounds of the values of a column in the rows of a scan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Aggregate {
    /// Rows, those with a null included.
    pub rows: u64,
    /// Values that are not null.
    pub values: u64,
    /// Their sum times 10^scale, of integers and decimals; 0 for other types. `None`: it needs more than 127 bits.
    pub sum: Option<i128>,
    /// The least.
    pub min: Option<Value>,
    /// The greatest.
    pub max: Option<Value>,
}

/// A column in a block: its form and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnInfo<'a> {
    /// Its name.
    pub name: &'a str,
    /// The form in which it is stored; for a column of several forms, that of most groups.
    pub encoding: &'static str,
    /// Bytes of its dictionary.
    pub dictionary_bytes: usize,
    /// Entries of its dictionary.
    pub dictionary_entries: u32,
    /// All its bytes: dictionary, zones, entries, segments.
    pub bytes: usize,
    /// Bytes that its values take in rows.
    pub row_bytes: usize,
}

impl Zone {
    /// Of the values of two zones.
    fn with(self, other: Self) -> Self {
        let bound = |a: Option<Value>, b: Option<Value>, greater: bool| match (a, b) {
            (Some(a), Some(b)) => {
                let takes_a = a.compare(&b).is_none_or(|order| order.is_ge() == greater);
                Some(if takes_a { a } else { b })
            }
            _ => None,
        };
        let (min, max) = match (self.values, other.values) {
            (0, _) => (other.min, other.max),
            (_, 0) => (self.min, self.max),
            _ => (bound(self.min, other.min, false), bound(self.max, other.max, true)),
        };
        Self {
            min,
            max,
            nulls: self.nulls + other.nulls,
            values: self.values + other.values,
            sum: self.sum.zip(other.sum).and_then(|(a, b)| a.checked_add(b)),
        }
    }
}

impl<'a> Block<'a> {
    /// Groups of the block.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.meta.header.groups
    }

    /// The zone of a column in the block. Panics if there is no such column.
    #[must_use]
    pub fn zone(&self, column: usize) -> Zone {
        let first = self.group_zone(column, 0);
        (1..self.groups()).fold(first, |zone, group| zone.with(self.group_zone(column, group)))
    }

    /// The zone of a column in a group. Panics if there is no such column.
    #[must_use]
    pub fn group_zone(&self, column: usize, group: usize) -> Zone {
        let entry = self.zone_entry(column, group);
        let nulls = u32::from(entry.nulls.min(self.group(group).present));
        let values = u32::from(self.group(group).present).saturating_sub(nulls);
        let known = entry.has_values && values > 0;
        // With a NaN at one end the other end is no bound either.
        let bounds =
            if known { self.bound(column, entry.low).zip(self.bound(column, entry.high)) } else { None };
        let (min, max) = bounds.unzip();
        Zone { min, max, nulls, values, sum: entry.has_sum.then_some(entry.sum.into()) }
    }

    /// The value of an order key, if it has only one.
    fn bound(&self, index: usize, key: i64) -> Option<Value> {
        let column = &self.meta.columns[index];
        let (field, code) = (&column.field, key as usize);
        let integer = |v: i64| match field.integer_value(v) {
            // A NaN below all numbers is the greatest value, so these are no bounds.
            Value::Float4(f) if f.is_nan() => None,
            Value::Float8(f) if f.is_nan() => None,
            value => Some(value),
        };
        match (column.stored, field.physical) {
            (Stored::Integers, Physical::Wide) => Some(field.wide_value(key.into())),
            (Stored::Integers, _) => integer(key),
            (Stored::Codes, _) if code >= column.count => None,
            (Stored::Codes, Physical::Wide) if field.ty == Type::Interval => None,
            (Stored::Codes, Physical::Wide) => {
                Some(field.wide_value(dictionary::wide(self.bytes, column.dictionary_at, code)))
            }
            (Stored::Codes, Physical::Bytes) => {
                let strings =
                    dictionary::Strings { bytes: self.bytes, at: column.dictionary_at, count: column.count };
                let (a, b) = strings.parts(code);
                Some(field.bytes_value(&[a, b].concat()))
            }
            (Stored::Codes, _) => integer(dictionary::integer(self.bytes, column.dictionary_at, code)),
            (Stored::Wide | Stored::Bytes, _) => None,
        }
    }

    /// Rows, sum and bounds of a column in the rows of which all predicates hold, but for positions in `skip` (see
    /// [`Block::scan`]). A group whose rows all count is answered by its zone.
    ///
    /// # Errors
    /// A predicate or a column that the block does not have, a value of another type than its column.
    pub fn aggregate(
        &self,
        column: usize,
        predicates: &[Predicate],
        skip: &[u64],
    ) -> Result<Aggregate, Error> {
        let plan = self.plan(predicates)?;
        let Some(field) = self.meta.columns.get(column).map(|column| column.field) else {
            let reason = format!("the block has {} columns", self.meta.columns.len());
            return Err(Error::Predicate {
                column: format!("number {column}").into(),
                reason: reason.into(),
            });
        };
        let mut total = Aggregate { sum: Some(0), ..Aggregate::default() };
        let mut scratch = Vec::new();
        for group in 0..self.groups() {
            let kept = |i| !skip.get(group * GROUP_ROWS / 64 + i).copied().unwrap_or(0);
            let kept = std::array::from_fn(kept);
            let Some(selected) = self.select(&plan, group, &kept, &mut scratch) else { continue };
            let zone = self.group_zone(column, group);
            let known = zone.values == 0 || (zone.min.is_some() && zone.max.is_some());
            if known && (zone.sum.is_some() || !field.is_summed()) && selected == self.presence(group) {
                total.rows += u64::from(zone.nulls + zone.values);
                total.values += u64::from(zone.values);
                total.sum = total.sum.and_then(|sum| sum.checked_add(zone.sum.unwrap_or(0)));
                total.meet(zone.min.into_iter().chain(zone.max));
                continue;
            }
            let segment = self.segment(group, column);
            for i in ones(&selected) {
                total.rows += 1;
                if segment.is_null(i) {
                    continue;
                }
                total.values += 1;
                if field.is_summed() {
                    let number = if field.physical == Physical::Wide {
                        segment.wide(i)
                    } else {
                        segment.number(i).into()
                    };
                    total.sum = total.sum.and_then(|sum| sum.checked_add(number));
                }
                total.meet([segment.value(i)]);
            }
        }
        Ok(total)
    }

    /// The number of rows of which all predicates hold.
    ///
    /// # Errors
    /// As [`Block::scan`].
    pub fn count(&self, predicates: &[Predicate], skip: &[u64]) -> Result<u64, Error> {
        self.scan(&[], predicates, skip, |_| ControlFlow::Continue(())).map(|scanned| scanned.rows)
    }

    /// The form and the bytes of each column.
    pub fn columns(&self) -> impl Iterator<Item = ColumnInfo<'a>> + use<'a> {
        let block = *self;
        (0..self.meta.columns.len()).map(move |index| block.column(index))
    }

    fn column(&self, index: usize) -> ColumnInfo<'a> {
        let (meta, column) = (self.meta, &self.meta.columns[index]);
        let mut bytes = column.dictionary_len + super::format::COLUMN;
        let mut row_bytes = 0;
        let mut kinds = [0usize; 4];
        for group in 0..self.groups() {
            let (entry, segment) = (self.group(group), self.segment(group, index));
            let next = if index + 1 < meta.columns.len() {
                Entry::read(self.bytes, entry.at + (index + 1) * ENTRY).offset
            } else {
                entry.len
            };
            bytes +=
                (next as usize).saturating_sub(segment.entry.offset as usize) + ENTRY + super::format::ZONE;
            let params = segment.entry.params;
            kinds[match params.kind {
                Kind::Line if params.width == 0 => 0,
                Kind::Line => 1,
                Kind::Positions => 2,
                Kind::Marks => 3,
            }] += 1;
            let words = self.presence(group);
            row_bytes += match column.field.ty.width() {
                Some(width) => width * usize::from(entry.present),
                None => ones(&words).map(|i| 4 + segment.string_len(i)).sum(),
            };
        }
        let form = (0..4).max_by_key(|kind| kinds[*kind]).unwrap_or(0);
        let encoding = match column.stored {
            Stored::Integers => ["constant", "frame of reference", "runs", "marked runs"][form],
            Stored::Codes => {
                ["dictionary, constant", "dictionary", "dictionary, runs", "dictionary, marked runs"][form]
            }
            Stored::Wide | Stored::Bytes => "plain",
        };
        ColumnInfo {
            name: &meta.names[index],
            encoding,
            dictionary_bytes: column.dictionary_len,
            dictionary_entries: column.count as u32,
            bytes,
            row_bytes,
        }
    }
}

impl Aggregate {
    fn meet(&mut self, values: impl IntoIterator<Item = Value>) {
        for value in values {
            if self.min.as_ref().is_none_or(|min| value.compare(min).is_some_and(std::cmp::Ordering::is_lt)) {
                self.min = Some(value.clone());
            }
            if self.max.as_ref().is_none_or(|max| value.compare(max).is_some_and(std::cmp::Ordering::is_gt)) {
                self.max = Some(value);
            }
        }
    }
}
