//! Aggregates over a group of a block, without making values.
//!
//! ```text
//! all rows of the group, one value of each key ──► zones answer: rows, sums, extremes
//! else: keys ──► a small number a row, its *lane* ──► lanes are summed in registers' width ──► accumulators, a lane at a time
//! ```
//!
//! A lane stands for one combination of key values in this group: where the keys' zones span few integers or codes, it is the place
//! in that span, and else what a hash of the keys gives. A lane's key is looked up once a group.
//!
//! Sums of a group fit 64 bits where its zone says that no value has more than 52; else they are made in 128.

use std::collections::HashMap;

use thermocline_row::Value;

use super::GROUP_ROWS;
use super::aggregate::{Aggregator, Measured, integer_key, null_key, string_key, wide_key};
use super::block::{Block, Segment};
use super::format::{Marked, Stored};
use super::physical::Physical;
use super::scan::{Bits, count, ones};

/// Lanes that the spans of keys may have.
const MOST_LANES: usize = 2048;
/// No value of a group is so far from zero where its sums fit 64 bits.
const SMALL: i64 = 1 << 52;

/// Memory that is used again from group to group.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The lane of each place.
    lanes: Vec<u16>,
    /// A place of each lane.
    first: Vec<u16>,
    rows: Vec<u32>,
    numbers: Vec<i64>,
    values: Vec<u32>,
    sums: Vec<i64>,
    wide: Vec<i128>,
    extremes: Vec<(i64, i64)>,
}

impl Aggregator {
    /// Takes the rows of a group that have a bit. The block has the columns of the layout.
    pub fn push_group(&mut self, block: &Block<'_>, group: usize, selected: &Bits) {
        let selected_rows = count(selected);
        if selected_rows == 0 {
            return;
        }
        let keys: Vec<Segment<'_>> =
            self.keys.iter().map(|(index, _)| block.segment(group, *index)).collect();
        let measured: Vec<Segment<'_>> =
            self.measured.iter().map(|measured| block.segment(group, measured.index)).collect();
        let is_whole = *selected == block.presence(group);
        if is_whole && self.is_one_lane(block, group) && self.by_zones(block, group, &keys, selected_rows) {
            return;
        }
        let mut scratch = std::mem::take(&mut self.block);
        let lanes = scratch.find_lanes(block, group, self, &keys, selected);
        scratch.count_rows(selected, lanes);
        let groups: Vec<Option<usize>> = (0..lanes)
            .map(|lane| {
                (scratch.rows[lane] > 0).then(|| self.group_at(&keys, usize::from(scratch.first[lane])))
            })
            .collect();
        for (lane, group) in groups.iter().enumerate() {
            if let Some(group) = group {
                self.rows[*group] += u64::from(scratch.rows[lane]);
            }
        }
        for (number, segment) in measured.iter().enumerate() {
            self.measure(number, segment, (block, group), selected, &groups, &mut scratch);
        }
        self.block = scratch;
    }

    /// Have all rows of a group of a block the same keys, as far as zones tell?
    fn is_one_lane(&self, block: &Block<'_>, group: usize) -> bool {
        self.keys.iter().all(|(index, field)| {
            let zone = block.zone_entry(*index, group);
            let exact = matches!(field.physical, Physical::Int(_))
                || block.meta.columns[*index].stored == Stored::Codes;
            exact && zone.nulls == 0 && zone.has_values && zone.low == zone.high
        })
    }

    /// Answers for a whole group of one lane by its zones. `false`: they do not know enough.
    fn by_zones(
        &mut self,
        block: &Block<'_>,
        group: usize,
        keys: &[Segment<'_>],
        selected_rows: usize,
    ) -> bool {
        let zones: Vec<_> =
            self.measured.iter().map(|measured| block.group_zone(measured.index, group)).collect();
        let knows = |(measured, zone): (&Measured, &super::Zone)| {
            let has_extremes = zone.values == 0 || (zone.min.is_some() && zone.max.is_some());
            (!measured.sums || zone.sum.is_some() || zone.values == 0) && (!measured.extremes || has_extremes)
        };
        if !self.measured.iter().zip(&zones).all(knows) {
            return false;
        }
        let Some(first) = ones(&block.presence(group)).next() else { return true };
        let found = self.group_at(keys, first);
        self.rows[found] += selected_rows as u64;
        for (number, zone) in zones.into_iter().enumerate() {
            let Measured { sums, extremes, .. } = self.measured[number];
            let accumulator = self.accumulator(found, number);
            accumulator.add(zone.values.into(), if sums { zone.sum.unwrap_or(0) } else { 0 });
            if extremes {
                zone.min.into_iter().chain(zone.max).for_each(|value| accumulator.meet(value));
            }
        }
        true
    }

    /// The group of rows that the row at a place is of.
    fn group_at(&mut self, keys: &[Segment<'_>], place: usize) -> usize {
        let mut key = Vec::with_capacity(16);
        keys.iter().for_each(|segment| key_at(segment, place, &mut key));
        self.group_of(&key, || keys.iter().map(|segment| segment.value(place)).collect())
    }

    /// Measures a column of the rows that have a bit.
    fn measure(
        &mut self,
        number: usize,
        segment: &Segment<'_>,
        (block, group): (&Block<'_>, usize),
        selected: &Bits,
        groups: &[Option<usize>],
        scratch: &mut Scratch,
    ) {
        let measured = self.measured[number];
        let valid = selected_values(segment, selected);
        let codes = segment.column.stored == Stored::Codes;
        // The order of integers is that of the values but for floats and intervals.
        let ordered = match measured.field.physical {
            Physical::Int(_) => true,
            Physical::Bytes => codes,
            Physical::Float(_) | Physical::Wide => false,
        };
        let narrow = matches!(measured.field.physical, Physical::Int(_)) || !measured.sums;
        if !narrow || (measured.extremes && !ordered) {
            return self.measure_by_value(number, segment, &valid, groups, scratch);
        }
        let lanes = groups.len();
        scratch.count_values(&valid, selected, lanes);
        if measured.sums {
            let zone = block.zone_entry(measured.index, group);
            segment.numbers(&mut scratch.numbers);
            let is_small = !codes && zone.low > -SMALL && zone.high < SMALL
                || codes && scratch.numbers.iter().all(|v| (-SMALL..SMALL).contains(v));
            scratch.sum(&valid, lanes, is_small);
        }
        if measured.extremes {
            if ordered && measured.field.physical == Physical::Bytes {
                segment.integers(&mut scratch.numbers);
            } else {
                segment.numbers(&mut scratch.numbers);
            }
            scratch.find_extremes(&valid, lanes);
        }
        for (lane, group) in groups.iter().enumerate() {
            let (Some(group), values) = (group, scratch.values[lane]) else { continue };
            let accumulator = self.accumulator(*group, number);
            accumulator.add(values.into(), if measured.sums { scratch.wide[lane] } else { 0 });
            if measured.extremes && values > 0 {
                let (low, high) = scratch.extremes[lane];
                for integer in [low, high] {
                    accumulator.meet(value_of(segment, integer));
                }
            }
        }
    }

    /// The same, value by value.
    fn measure_by_value(
        &mut self,
        number: usize,
        segment: &Segment<'_>,
        valid: &Bits,
        groups: &[Option<usize>],
        scratch: &Scratch,
    ) {
        let Measured { field, sums, extremes, .. } = self.measured[number];
        for place in ones(valid) {
            let group = groups[usize::from(scratch.lanes[place])].expect("a lane with rows has a group");
            let sum = match field.physical {
                _ if !sums => 0,
                Physical::Wide => segment.wide(place),
                _ => segment.number(place).into(),
            };
            let accumulator = self.accumulator(group, number);
            accumulator.add(1, sum);
            if extremes {
                accumulator.meet(segment.value(place));
            }
        }
    }
}

/// The key of the row at a place, a column of it.
fn key_at(segment: &Segment<'_>, place: usize, key: &mut Vec<u8>) {
    if segment.is_null(place) {
        return null_key(key);
    }
    let field = &segment.column.field;
    match field.physical {
        Physical::Int(_) | Physical::Float(_) => integer_key(field, segment.number(place), key),
        Physical::Wide => wide_key(field, segment.wide(place), key),
        Physical::Bytes => string_key(segment.string(place), key),
    }
}

/// The value of an integer of a column, or of a code of strings.
fn value_of(segment: &Segment<'_>, integer: i64) -> Value {
    let field = &segment.column.field;
    if field.physical == Physical::Bytes {
        let (a, b) = segment.strings().parts(integer as usize);
        return field.bytes_value(&[a, b].concat());
    }
    field.integer_value(integer)
}

/// The selected rows that have a value.
fn selected_values(segment: &Segment<'_>, selected: &Bits) -> Bits {
    let mut valid = *selected;
    if segment.entry.nulls != Marked::None {
        valid.iter_mut().zip(segment.nulls()).for_each(|(word, nulls)| *word &= !nulls);
    }
    valid
}

/// Calls `see` with the places of bits; all of a word where it is full.
#[inline(always)]
fn each(bits: &Bits, mut see: impl FnMut(usize)) {
    for (i, word) in bits.iter().enumerate() {
        if *word == u64::MAX {
            (64 * i..64 * i + 64).for_each(&mut see);
            continue;
        }
        let mut rest = *word;
        while rest != 0 {
            see(64 * i + rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
    }
}

impl Scratch {
    /// Gives each place that has a bit its lane; how many lanes there are.
    fn find_lanes(
        &mut self,
        block: &Block<'_>,
        group: usize,
        aggregator: &Aggregator,
        keys: &[Segment<'_>],
        selected: &Bits,
    ) -> usize {
        self.lanes.clear();
        self.lanes.resize(GROUP_ROWS, 0);
        if keys.is_empty() {
            return 1;
        }
        let mut lanes = 1usize;
        let mut spans = Vec::with_capacity(keys.len());
        for (segment, (index, field)) in keys.iter().zip(&aggregator.keys) {
            let zone = block.zone_entry(*index, group);
            let exact = matches!(field.physical, Physical::Int(_)) || segment.column.stored == Stored::Codes;
            // Values of a zone, and null.
            let span = zone.high.checked_sub(zone.low).and_then(|span| usize::try_from(span).ok());
            let span = if zone.has_values { span } else { Some(0) };
            let Some(span) = span.filter(|span| exact && *span < MOST_LANES) else {
                return self.hash_lanes(keys, selected);
            };
            lanes = lanes.saturating_mul(span + 2);
            if lanes > MOST_LANES {
                return self.hash_lanes(keys, selected);
            }
            spans.push((zone.low, span));
        }
        for (segment, (low, span)) in keys.iter().zip(spans) {
            let width = (span + 2) as u16;
            // Zones are of what is stored: of codes where there are such.
            segment.integers(&mut self.numbers);
            let lane = |v: i64| v.wrapping_sub(low).clamp(0, span as i64) as u16;
            let no_nulls = segment.entry.nulls == Marked::None;
            for (i, (out, v)) in self.lanes.iter_mut().zip(&self.numbers).enumerate() {
                let own = if no_nulls || !segment.is_null(i) { lane(*v) } else { span as u16 + 1 };
                *out = *out * width + own;
            }
        }
        lanes
    }

    /// The same, where keys are many.
    fn hash_lanes(&mut self, keys: &[Segment<'_>], selected: &Bits) -> usize {
        let mut found: HashMap<Vec<u8>, u16> = HashMap::new();
        for place in ones(selected) {
            let mut key = Vec::with_capacity(16);
            keys.iter().for_each(|segment| key_at(segment, place, &mut key));
            let next = found.len() as u16;
            self.lanes[place] = *found.entry(key).or_insert(next);
        }
        found.len()
    }

    /// Counts the rows of each lane.
    fn count_rows(&mut self, selected: &Bits, lanes: usize) {
        self.rows.clear();
        self.rows.resize(lanes, 0);
        self.first.clear();
        self.first.resize(lanes, 0);
        if lanes == 1 {
            self.rows[0] = count(selected) as u32;
            self.first[0] = ones(selected).next().unwrap_or(0) as u16;
            return;
        }
        let (rows, first, of) = (&mut self.rows, &mut self.first, &self.lanes);
        each(selected, |place| {
            let lane = usize::from(of[place]);
            rows[lane] += 1;
            first[lane] = place as u16;
        });
    }

    /// Counts the values of each lane.
    fn count_values(&mut self, valid: &Bits, selected: &Bits, lanes: usize) {
        if valid == selected {
            self.values.clone_from(&self.rows);
            return;
        }
        self.values.clear();
        self.values.resize(lanes, 0);
        let (values, of) = (&mut self.values, &self.lanes);
        each(valid, |place| values[usize::from(of[place])] += 1);
    }

    /// Sums the numbers of each lane.
    fn sum(&mut self, valid: &Bits, lanes: usize, is_small: bool) {
        self.wide.clear();
        self.wide.resize(lanes, 0);
        let (of, numbers) = (&self.lanes, &self.numbers);
        if !is_small {
            let wide = &mut self.wide;
            return each(valid, |place| wide[usize::from(of[place])] += i128::from(numbers[place]));
        }
        if lanes == 1 {
            self.wide[0] = sum_selected(numbers, valid).into();
            return;
        }
        self.sums.clear();
        self.sums.resize(lanes, 0);
        let sums = &mut self.sums;
        each(valid, |place| {
            let sum = &mut sums[usize::from(of[place])];
            *sum = sum.wrapping_add(numbers[place]);
        });
        self.wide.iter_mut().zip(&self.sums).for_each(|(wide, sum)| *wide = (*sum).into());
    }

    /// The least and greatest number of each lane.
    fn find_extremes(&mut self, valid: &Bits, lanes: usize) {
        self.extremes.clear();
        self.extremes.resize(lanes, (i64::MAX, i64::MIN));
        let (extremes, of, numbers) = (&mut self.extremes, &self.lanes, &self.numbers);
        each(valid, |place| {
            let (low, high) = &mut extremes[usize::from(of[place])];
            *low = (*low).min(numbers[place]);
            *high = (*high).max(numbers[place]);
        });
    }
}

/// The sum of the numbers that have a bit; it fits, unless the block is damaged.
fn sum_selected(numbers: &[i64], bits: &Bits) -> i64 {
    let mut sum = 0i64;
    for (word, numbers) in bits.iter().zip(numbers.chunks(64)) {
        match *word {
            0 => {}
            u64::MAX => sum = numbers.iter().fold(sum, |sum, v| sum.wrapping_add(*v)),
            word => {
                let masked = |(i, v): (usize, &i64)| v & -((word >> i & 1) as i64);
                sum = numbers.iter().enumerate().map(masked).fold(sum, i64::wrapping_add);
            }
        }
    }
    sum
}
