//! Samples of chunks: the states of a few of their rows, and how many of them were used lately.
//!
//! A look reads the headers of [`SLOTS`] versions and a byte of each, some microseconds. In each round the chunks whose samples are
//! the oldest have their turn. A sample is a hint: freezing judges each row again when it copies it.

use std::collections::BTreeMap;
use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{RowId, TableId, Timestamp};

use crate::catalog::table::{TableEntry, TableForm};
use crate::hot::chunk::{Chunk, Found};
use crate::hot::life::{SHAPES, State, shape_of};
use crate::hot::reuse::{Moment, moments_between};
use crate::hot::version::{Begin, HEADER_BYTES};
use crate::ops::freeze::BUILDING;
use crate::session::db::Inner;

/// Slots that are looked at of a chunk.
const SLOTS: u32 = 128;
/// Chunks that are looked at in a round.
const CHUNKS: usize = 64;
/// A row was used lately if that was so many moments ago, at most.
const LATELY: u8 = 4;
/// Of a hundred slots of a chunk so many have to have a row; see [`crate::ops::freeze`].
const FULL_PERCENT: usize = 25;
/// A chunk with a block is looked at for freezing anew if one in so many of its rows is out of the block.
const THAWED_SHARE: usize = 8;

/// The outcome of a look at a chunk.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// The round in which that was.
    round: u64,
    /// Slots that were looked at, and rows of the chunk that one of them stands for.
    looked: usize,
    weight: f64,
    /// Shapes and begins of the rows that have a version.
    rows: Vec<(u8, Timestamp)>,
    /// Rows that stand in a block.
    frozen: usize,
    /// Of a thousand rows so many were used lately. It falls slowly.
    used_permille: u32,
    /// Bytes that a row takes with its version and its slot, on average.
    row_bytes: f64,
}

impl Sample {
    fn of(form: &TableForm, number: u32, chunk: &Chunk, look: Looked, guard: &Guard<'_>) -> Self {
        let used = chunk.used();
        let step = (used / SLOTS).max(1);
        // Another one each time, so that no row speaks for its neighbours for ever.
        let first = look.round as u32 % step;
        let positions = || (first..used).step_by(step as usize).filter_map(|slot| u16::try_from(slot).ok());
        let directory = &form.store.directory;
        positions().for_each(|slot| directory.approach(RowId::new(number, slot), guard));
        let mut sample = Self { round: look.round, ..Self::default() };
        let (mut lately, mut bytes) = (0, 0);
        for slot in positions() {
            sample.looked += 1;
            let version = match chunk.look(slot, guard) {
                Found::Newest(version) => version,
                Found::Frozen(_) => {
                    sample.frozen += 1;
                    continue;
                }
                Found::Empty | Found::Left(_) | Found::Moved => continue,
            };
            // What is being changed right now changes.
            let begin = match version.begin() {
                Begin::At(begin) => begin,
                Begin::By(_) => Timestamp(u64::MAX >> 2),
            };
            if version.is_tombstone() {
                continue;
            }
            let row = version.row();
            bytes += row.len();
            sample.rows.push((shape_of(row, form.shape_mask), begin));
            let since = moments_between(version.last_use(), look.moment);
            lately += u32::from(begin <= look.before && since.is_some_and(|since| since < LATELY));
        }
        let rows = sample.rows.len().max(1);
        sample.weight = f64::from(used) / sample.looked.max(1) as f64;
        sample.used_permille = lately * 1000 / rows as u32;
        sample.row_bytes = bytes as f64 / rows as f64 + (HEADER_BYTES + size_of::<u64>()) as f64;
        sample
    }

    /// Of a thousand rows so many were used lately, although they were not new.
    pub(super) fn used_permille(&self) -> u32 {
        self.used_permille
    }

    /// Of a hundred rows so many are as `is` says, by shape and begin.
    pub(super) fn percent(&self, is: impl Fn(u8, Timestamp) -> bool) -> f64 {
        let count = self.rows.iter().filter(|(shape, begin)| is(*shape, *begin)).count();
        100.0 * count as f64 / self.rows.len().max(1) as f64
    }

    /// The states of the rows now, each with the number of rows that it stands for.
    pub(super) fn states(&self, now: Timestamp) -> impl Iterator<Item = (State, f64)> {
        self.rows.iter().map(move |(shape, begin)| (State::of(*shape, *begin, now), self.weight))
    }

    /// Bytes that building a block of the rows takes meanwhile, about.
    fn building_bytes(&self) -> u64 {
        let each = self.row_bytes - (HEADER_BYTES + size_of::<u64>()) as f64;
        (self.rows.len() as f64 * self.weight * each) as u64 * BUILDING
    }

    /// Are there enough rows to freeze?
    fn is_full(&self) -> bool {
        let (rows, all) = (self.rows.len(), self.rows.len() + self.frozen);
        match self.frozen {
            0 => rows * 100 > self.looked * FULL_PERCENT,
            _ => rows * THAWED_SHARE >= all,
        }
    }
}

/// The moment of a look.
#[derive(Clone, Copy)]
struct Looked {
    round: u64,
    moment: Moment,
    /// What began later is new.
    before: Timestamp,
}

/// The samples of all chunks in which nothing can be inserted.
#[derive(Debug, Default)]
pub(super) struct Samples {
    round: u64,
    of: BTreeMap<(TableId, u32), Sample>,
}

impl Samples {
    /// Looks at those chunks of these tables whose turn it is, of those that are mine. What began after `before` is new.
    pub(super) fn take(
        &mut self,
        inner: &Inner,
        tables: &[Arc<TableEntry>],
        before: Timestamp,
        is_mine: impl Fn(&TableEntry, u32) -> bool,
    ) {
        self.round += 1;
        let look = Looked { round: self.round, moment: inner.governor.moment(), before };
        let mut there = BTreeMap::new();
        let mut due = Vec::new();
        for entry in tables {
            let guard = inner.epochs.pin();
            let directory = &entry.form_pinned(&guard).store.directory;
            for number in (0..directory.len()).filter(|number| is_mine(entry, *number)) {
                let chunk = directory.get(number, &guard);
                if chunk.is_some_and(|chunk| chunk.is_full() && !chunk.is_packed()) {
                    let sample = self.of.remove(&(entry.id, number)).unwrap_or_default();
                    due.push((sample.round, entry, number));
                    there.insert((entry.id, number), sample);
                }
            }
        }
        self.of = there;
        due.sort_by_key(|(round, ..)| *round);
        for (_, entry, number) in due.into_iter().take(CHUNKS) {
            let guard = inner.epochs.pin();
            let form = entry.form_pinned(&guard);
            let Some(chunk) = form.store.directory.get(number, &guard) else { continue };
            let mut sample = Sample::of(form, number, chunk, look, &guard);
            let known = self.of.entry((entry.id, number)).or_default();
            sample.used_permille = sample.used_permille.max(known.used_permille / 5 * 4);
            *known = sample;
        }
    }

    /// The samples of a table's chunks.
    pub(super) fn of(&self, table: TableId) -> impl Iterator<Item = (u32, &Sample)> {
        self.of.range((table, 0)..=(table, u32::MAX)).map(|((_, chunk), sample)| (*chunk, sample))
    }

    /// The chunks of a table that have enough rows, and of which `may` says so, the oldest first, with the bytes that building
    /// their blocks takes.
    pub(super) fn chunks_that(&self, table: TableId, may: impl Fn(&Sample) -> bool) -> Vec<(u32, u64)> {
        let found = self.of(table).filter(|(_, sample)| sample.is_full() && may(sample));
        found.map(|(chunk, sample)| (chunk, sample.building_bytes())).collect()
    }

    /// A bit for each shape that less than half of a table's rows have.
    pub(super) fn rare_shapes(&self, table: TableId) -> u8 {
        let mut rows = [0.0; SHAPES];
        for (_, sample) in self.of(table) {
            sample.rows.iter().for_each(|(shape, _)| rows[usize::from(*shape)] += sample.weight);
        }
        let all: f64 = rows.iter().sum();
        (0..SHAPES).filter(|shape| rows[*shape] * 2.0 < all).fold(0, |bits, shape| bits | 1 << shape)
    }

    /// Bytes that a row of the table takes with its version and its slot, about.
    pub(super) fn row_bytes(&self, table: TableId) -> f64 {
        let (bytes, rows) = self.of(table).fold((0.0, 0.0), |(bytes, rows), (_, sample)| {
            let count = sample.rows.len() as f64;
            (bytes + sample.row_bytes * count, rows + count)
        });
        bytes / f64::max(rows, 1.0)
    }

    /// A chunk is not what its sample says any more.
    pub(super) fn forget(&mut self, table: TableId, chunk: u32) {
        if let Some(sample) = self.of.get_mut(&(table, chunk)) {
            *sample = Sample { used_permille: sample.used_permille, ..Sample::default() };
        }
    }
}
