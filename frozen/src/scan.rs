//! Scans: the rows of which predicates hold, in vectors of up to 1,024, without making rows.
//!
//! ```text
//! group: presence ∧ ¬skipped ──► each predicate: zone excludes → next group · zone includes → nothing to do
//!                                │               else: integers of the column → compare → and
//!                                └─► rows left? ──► the columns asked for are unpacked ──► visit(vector)
//! ```

use std::ops::ControlFlow;

use thermocline_row::Value;

use super::GROUP_ROWS;
use super::block::{Block, Segment};
use super::dictionary;
use super::error::Error;
use super::format::{Marked, Stored};
use super::ints;
use super::physical::Physical;
use super::predicate::{Predicate, Range, Ready, Test};

const WORDS: usize = GROUP_ROWS / 64;

/// A bit a position of a group, 64 a word.
pub type Bits = [u64; WORDS];

/// Predicates made ready for the block of one number. Of use with that block only.
#[derive(Debug)]
pub struct Plan {
    number: u64,
    ready: Vec<Ready>,
}

impl Plan {
    /// The number of the block that it was made for.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// The rows of a group of which all predicates of a scan hold.
#[derive(Debug)]
pub struct Vector<'a> {
    group: usize,
    selected: Bits,
    segments: Vec<Segment<'a>>,
    integers: Vec<Vec<i64>>,
}

impl Vector<'_> {
    /// Rows.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a vector has at least one row")]
    pub fn len(&self) -> usize {
        count(&self.selected)
    }

    /// The position of the first row that the group could have.
    #[must_use]
    pub fn first_position(&self) -> u16 {
        (self.group * GROUP_ROWS) as u16
    }

    /// The places of the rows in the group, in ascending order: positions, counted from the first.
    pub fn places(&self) -> impl Iterator<Item = usize> + use<'_> {
        ones(&self.selected)
    }

    /// A bit for each place: whether it is one of the rows.
    #[must_use]
    pub fn selected(&self) -> &[u64; 16] {
        &self.selected
    }

    /// The integers of the column that was asked for as number `index`, one a place of the group (those that are not selected,
    /// too): as [`Block::int`] gives them. Empty for a column of another type; any number where the value is null.
    #[must_use]
    pub fn ints(&self, index: usize) -> &[i64] {
        &self.integers[index]
    }

    /// True if the value at a place is null.
    #[must_use]
    pub fn is_null(&self, index: usize, place: usize) -> bool {
        self.segments[index].is_null(place)
    }

    /// True if no value of the column in this group is null.
    #[must_use]
    pub fn has_no_nulls(&self, index: usize) -> bool {
        self.segments[index].entry.nulls == Marked::None
    }

    /// The bytes of a text or bytea, in two parts; none if it is null.
    #[must_use]
    pub fn bytes(&self, index: usize, place: usize) -> Option<(&[u8], &[u8])> {
        let segment = &self.segments[index];
        let fits = segment.column.field.physical == Physical::Bytes && !segment.is_null(place);
        fits.then(|| segment.string(place))
    }

    /// The value at a place.
    #[must_use]
    pub fn value(&self, index: usize, place: usize) -> Value {
        self.segments[index].value(place)
    }
}

/// Counts of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Rows that were visited.
    pub rows: u64,
    /// Groups that zone maps or skipped rows have left out.
    pub groups_skipped: u32,
    /// Groups of which some column was read.
    pub groups_read: u32,
}

pub(crate) fn count(bits: &Bits) -> usize {
    bits.iter().map(|word| word.count_ones() as usize).sum()
}

/// The places of the bits that are set.
pub(crate) fn ones(bits: &Bits) -> impl Iterator<Item = usize> + use<'_> {
    bits.iter().enumerate().flat_map(|(i, word)| {
        let mut rest = *word;
        std::iter::from_fn(move || {
            let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some(64 * i + bit)
        })
    })
}

impl<'a> Block<'a> {
    /// Visits the rows of which all predicates hold, group after group, with the columns asked for. Positions whose bit is set in
    /// `skip` (64 a word; words that are missing skip nothing) are left out. The visitor may end the scan.
    ///
    /// # Errors
    /// A predicate or a column that the block does not have, a value of another type than its column.
    pub fn scan(
        &self,
        columns: &[usize],
        predicates: &[Predicate],
        skip: &[u64],
        mut visit: impl FnMut(&Vector<'_>) -> ControlFlow<()>,
    ) -> Result<Scanned, Error> {
        let plan = self.plan(predicates)?;
        if let Some(column) = columns.iter().find(|column| **column >= self.meta.columns.len()) {
            let reason = format!("the block has {} columns", self.meta.columns.len());
            return Err(Error::Predicate {
                column: format!("number {column}").into(),
                reason: reason.into(),
            });
        }
        let mut scanned = Scanned::default();
        let mut scratch = Vec::with_capacity(GROUP_ROWS);
        let mut vector = Vector {
            group: 0,
            selected: [0; WORDS],
            segments: Vec::with_capacity(columns.len()),
            integers: vec![Vec::new(); columns.len()],
        };
        for group in 0..self.meta.header.groups {
            let kept = std::array::from_fn(|i| !skip.get(group * WORDS + i).copied().unwrap_or(0));
            let Some(selected) = self.select(&plan, group, &kept, &mut scratch) else {
                scanned.groups_skipped += 1;
                continue;
            };
            scanned.groups_read += 1;
            if selected == [0; WORDS] {
                continue;
            }
            (vector.group, vector.selected) = (group, selected);
            vector.segments.clear();
            for (column, integers) in columns.iter().zip(&mut vector.integers) {
                let segment = self.segment(group, *column);
                segment.numbers_into(integers);
                vector.segments.push(segment);
            }
            scanned.rows += count(&selected) as u64;
            if visit(&vector).is_break() {
                break;
            }
        }
        Ok(scanned)
    }

    /// Makes predicates ready for this block.
    ///
    /// # Errors
    /// A predicate on a column that the block does not have, a value of another type than its column.
    pub fn plan(&self, predicates: &[Predicate]) -> Result<Plan, Error> {
        let ready = predicates.iter().map(|p| p.ready(self)).collect::<Result<_, _>>()?;
        Ok(Plan { number: self.number(), ready })
    }

    /// Of the rows of a group that have a bit in `kept`, those of which all predicates hold; `None` if the front alone tells that
    /// there are none. `scratch` is of no meaning before and after.
    #[must_use]
    pub fn select(&self, plan: &Plan, group: usize, kept: &Bits, scratch: &mut Vec<i64>) -> Option<Bits> {
        let mut selected = self.presence(group);
        meet(&mut selected, kept);
        let mut asked = Vec::new();
        for predicate in &plan.ready {
            let zone = self.zone_entry(predicate.column, group);
            match predicate.test {
                Test::Null if zone.nulls == 0 => return None,
                Test::NotNull if zone.nulls == 0 => {}
                Test::Null => asked.push(predicate),
                // All are null.
                _ if !zone.has_values && predicate.nulls => {}
                _ if !zone.has_values => return None,
                Test::NotNull => asked.push(predicate),
                _ if predicate.excludes(zone.low, zone.high) && !(predicate.nulls && zone.nulls > 0) => {
                    return None;
                }
                _ if zone.nulls == 0 && predicate.includes(zone.low, zone.high) => {}
                _ => asked.push(predicate),
            }
        }
        if selected == [0; WORDS] {
            return None;
        }
        for predicate in asked {
            self.segment(group, predicate.column).test(predicate, &mut selected, scratch);
        }
        Some(selected)
    }
}

impl Segment<'_> {
    /// The stored integers, into `out`.
    pub(crate) fn integers(&self, out: &mut Vec<i64>) {
        out.resize(self.n, 0);
        ints::unpack(self.bytes, self.integers_at, &self.entry.params, out);
    }

    /// The numbers of an integer column, into `out`; none of another.
    pub(crate) fn numbers_into(&self, out: &mut Vec<i64>) {
        out.clear();
        if matches!(self.column.field.physical, Physical::Int(_)) {
            self.numbers(out);
        }
    }

    /// The numbers of a column of integers or floats, into `out`.
    pub(crate) fn numbers(&self, out: &mut Vec<i64>) {
        self.integers(out);
        if self.column.stored == Stored::Codes {
            let numbers = dictionary::Integers::new(self.front, self.column.dictionary_at);
            let last = self.column.count.saturating_sub(1);
            for v in out {
                *v = numbers.get((*v as usize).min(last));
            }
        }
    }

    /// The null bits, 64 a word.
    pub(crate) fn nulls(&self) -> Bits {
        std::array::from_fn(|word| match self.entry.nulls {
            Marked::None => 0,
            Marked::All => u64::MAX,
            Marked::Bits => super::bytes::u64_at(self.bytes, self.at + 8 * word),
            Marked::Run => {
                (0..64).fold(0, |bits, bit| bits | u64::from(self.is_null(64 * word + bit)) << bit)
            }
        })
    }

    /// Leaves those rows selected of which the predicate holds.
    fn test(&self, predicate: &Ready, selected: &mut Bits, scratch: &mut Vec<i64>) {
        let nulls = self.nulls();
        if let Test::Null = predicate.test {
            return meet(selected, &nulls);
        }
        let kept: Bits = std::array::from_fn(|i| if predicate.nulls { selected[i] & nulls[i] } else { 0 });
        selected.iter_mut().zip(nulls).for_each(|(word, nulls)| *word &= !nulls);
        match &predicate.test {
            Test::Null | Test::NotNull => {}
            Test::Ranges(ranges) => {
                self.integers(scratch);
                for (word, values) in selected.iter_mut().zip(scratch.chunks(64)) {
                    *word &= in_ranges(values, ranges);
                }
            }
            Test::Codes(bits) => {
                self.integers(scratch);
                for (word, codes) in selected.iter_mut().zip(scratch.chunks(64)) {
                    *word &= among(codes, bits);
                }
            }
            Test::Values(condition) => {
                for (i, word) in selected.iter_mut().enumerate() {
                    let bits = (0..64).filter(|bit| *word >> bit & 1 != 0);
                    *word = bits
                        .filter(|bit| condition.holds(&self.value(64 * i + bit)))
                        .fold(0, |w, bit| w | 1 << bit);
                }
            }
        }
        selected.iter_mut().zip(kept).for_each(|(word, kept)| *word |= kept);
    }
}

/// Leaves what is in both.
fn meet(bits: &mut Bits, others: &Bits) {
    bits.iter_mut().zip(others).for_each(|(word, other)| *word &= other);
}

/// A bit for each code that has one.
fn among(codes: &[i64], bits: &[u64]) -> u64 {
    let has =
        |code: i64| bits.get(code as usize / 64).is_some_and(|word| word >> (code as usize % 64) & 1 != 0);
    codes.iter().enumerate().fold(0, |found, (i, code)| found | u64::from(has(*code)) << i)
}

/// A bit for each value that is in one of the ranges.
#[inline]
fn in_ranges(values: &[i64], ranges: &[Range]) -> u64 {
    let mut bits = 0;
    for (low, high) in ranges {
        for (i, v) in values.iter().enumerate() {
            bits |= u64::from(low <= v && v <= high) << i;
        }
    }
    bits
}

#[cfg(test)]
#[path = "scan_tests.rs"]
pub(crate) mod tests;
