//! A sample of rows, chosen by hash, from which the distribution of temperatures over bytes is known.
//!
//! A row is in the sample if its key, 32 bits of its name mixed once more, is below `limit`; then all of its records are, too.
//! So the rows of the sample, times `2^32 / limit`, stand for all rows that are accessed (Waldspurger et al., "Efficient MRC
//! Construction with SHARDS", FAST 2015). When the sample is full the limit is halved and the rows above it go; when it
//! has become rather empty the limit is doubled again. Rows that newly belong to it start without a past.
//!
//! Sums grow in weight as time goes on and are scaled back now and then, as in the offline classifier.

use thermocline_base::ids::TableId;

use super::stored::StoredRow;
use crate::{Access, RowName, SizeClass};

/// Sums below 2^-25 accesses are none, as in the table of candidates.
const FADED: f64 = 1.0 / (1 << 25) as f64;
const OCTAVES_MAX: f64 = 400.0;
pub(super) const LIMIT_ALL: u64 = 1 << 32;

/// A row; free if its size is none.
#[derive(Clone, Copy, Debug)]
struct Row {
    name: RowName,
    sum: f64,
    key: u32,
    size: Option<SizeClass>,
}

const FREE: Row = Row { name: RowName { table: TableId(0), hash: 0 }, sum: 0.0, key: 0, size: None };

/// The items that [`Sample::threshold`] sorts: density, size, table.
type Dense = (f64, SizeClass, TableId);

/// See the module.
#[derive(Debug)]
pub(super) struct Sample {
    /// Open addressing by key.
    slots: Box<[Row]>,
    rows: usize,
    rows_max: usize,
    limit: u64,
    /// The weight of an access now is two to the power of this.
    octaves: f64,
    /// Taken once, so that finding a threshold needs no memory.
    order: Vec<Dense>,
}

impl Sample {
    pub(super) fn new(bytes: usize) -> Self {
        // Three quarters of the slots are used at most, and each row needs its place in the order.
        let each = size_of::<Row>() + size_of::<Dense>() * 3 / 4;
        let slots = 1_usize << (bytes / each).max(16).ilog2();
        let rows_max = slots / 4 * 3;
        Self {
            slots: vec![FREE; slots].into_boxed_slice(),
            rows: 0,
            rows_max,
            limit: LIMIT_ALL,
            octaves: 0.0,
            order: Vec::with_capacity(rows_max),
        }
    }

    /// Takes so many bytes from now on: with fewer, the rows of a smaller share of all keys stay.
    pub(super) fn set_bytes(&mut self, bytes: usize) {
        let mut other = Self::new(bytes);
        if other.slots.len() != self.slots.len() {
            other.restore(self.limit, &self.stored());
            *self = other;
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.len() * size_of::<Row>() + self.order.capacity() * size_of::<Dense>()
    }

    #[inline]
    pub(super) fn add(&mut self, access: &Access, mixed: u64) {
        let key = key_of(mixed);
        if u64::from(key) < self.limit {
            self.add_chosen(access, key);
        }
    }

    fn add_chosen(&mut self, access: &Access, key: u32) {
        let weight = f64::from(access.weight) * self.octaves.exp2();
        self.add_weight(access.row, access.size, weight, key);
    }

    fn add_weight(&mut self, name: RowName, size: SizeClass, weight: f64, key: u32) {
        let at = self.find(name, key);
        let row = &mut self.slots[at];
        if row.size.is_some() {
            row.sum += weight;
            row.size = Some(size);
            return;
        }
        *row = Row { name, sum: weight, key, size: Some(size) };
        self.rows += 1;
        while self.rows >= self.rows_max {
            self.limit /= 2;
            self.retain(|row, limit| u64::from(row.key) < limit);
        }
    }

    /// The row's slot, or the free one for it.
    fn find(&self, name: RowName, key: u32) -> usize {
        let mask = self.slots.len() - 1;
        // Keys of the sample are below the limit: their low bits are the ones that differ.
        let mut at = key.wrapping_mul(0x9E37_79B1) as usize & mask;
        while self.slots[at].size.is_some() && self.slots[at].name != name {
            at = (at + 1) & mask;
        }
        at
    }

    /// Keeps the rows that `keep` wants. Later ones of a run move up, so that they are found again.
    fn retain(&mut self, keep: impl Fn(&Row, u64) -> bool) {
        let (mask, limit) = (self.slots.len() - 1, self.limit);
        // Begin behind a free slot: no run goes over the start.
        let start =
            self.slots.iter().position(|row| row.size.is_none()).expect("a quarter of the slots is free");
        for step in 1..=self.slots.len() {
            let at = (start + step) & mask;
            let row = std::mem::replace(&mut self.slots[at], FREE);
            if row.size.is_none() {
                continue;
            }
            if keep(&row, limit) {
                let at = self.find(row.name, row.key);
                self.slots[at] = row;
            } else {
                self.rows -= 1;
            }
        }
    }

    /// Sums are worth less by so many octaves.
    pub(super) fn cool(&mut self, octaves: f64) {
        self.octaves += octaves;
        if self.octaves > OCTAVES_MAX {
            let factor = (-self.octaves).exp2();
            self.slots.iter_mut().for_each(|row| row.sum *= factor);
            self.octaves = 0.0;
        }
    }

    /// The density (sum a byte) of the last row that fits, if the densest rows fill `budget` bytes; 0 if all that have
    /// one fit. `hot` gets what the rows that fit stand for.
    pub(super) fn threshold(&mut self, budget: u64, mut hot: impl FnMut(TableId, u64, u64)) -> f64 {
        let now = (-self.octaves).exp2();
        let faded = FADED / now;
        if self.slots.iter().any(|row| row.size.is_some() && row.sum < faded) {
            self.retain(|row, _| row.sum >= faded);
        }
        let scale = LIMIT_ALL as f64 / self.limit as f64;
        let rows = self.slots.iter().filter_map(|row| Some((row, row.size?)));
        self.order.clear();
        self.order
            .extend(rows.map(|(row, size)| (row.sum * now / size.bytes() as f64, size, row.name.table)));
        self.order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        let mut used = 0.0;
        let mut threshold = 0.0;
        for (density, size, table) in &self.order {
            let bytes = size.bytes() as f64 * scale;
            used += bytes;
            if used > budget as f64 {
                threshold = *density;
                break;
            }
            hot(*table, scale as u64, bytes as u64);
        }
        if self.rows < self.rows_max / 4 && self.limit < LIMIT_ALL {
            self.limit *= 2;
        }
        threshold
    }
}

impl Sample {
    /// Of 2^32 keys, how many belong to the sample.
    pub(super) const fn chosen(&self) -> u64 {
        self.limit
    }

    /// Its rows, with their sums as of now.
    pub(super) fn stored(&self) -> Vec<StoredRow> {
        let now = (-self.octaves).exp2();
        let rows = self.slots.iter().filter_map(|row| Some((row, row.size?)));
        let rows = rows.filter(|(row, _)| row.sum * now >= FADED);
        rows.map(|(row, size)| StoredRow { name: row.name, sum: row.sum * now, size }).collect()
    }

    /// Becomes a sample with these rows, of a share of `chosen` keys.
    pub(super) fn restore(&mut self, chosen: u64, rows: &[StoredRow]) {
        self.slots.fill(FREE);
        (self.rows, self.octaves, self.limit) = (0, 0.0, chosen.clamp(1, LIMIT_ALL));
        for row in rows {
            let key = key_of(row.name.mixed());
            if u64::from(key) < self.limit {
                self.add_weight(row.name, row.size, row.sum, key);
            }
        }
    }
}

#[inline]
fn key_of(mixed: u64) -> u32 {
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(row: u64, bytes: u32, weight: u32) -> Access {
        let row = RowName { table: TableId(row as u32 % 2), hash: row };
        Access { row, size: SizeClass::of(bytes), weight, cold: false }
    }

    fn add(sample: &mut Sample, access: &Access) {
        sample.add(access, access.row.mixed());
    }

    #[test]
    fn the_threshold_is_that_of_all_rows() {
        // 100,000 rows, of which the sample holds about a thousandth; row n is accessed n times.
        let mut sample = Sample::new(128 << 10);
        for row in 1..100_000_u64 {
            add(&mut sample, &access(row, 112, row as u32));
        }
        assert!(sample.limit < LIMIT_ALL && sample.rows < sample.rows_max);
        assert!(sample.memory_bytes() <= 128 << 10);
        let mut bytes = [0; 2];
        let density = sample.threshold(112 * 30_000, |table, _, more| bytes[table.0 as usize] += more);
        let row = density * 112.0;
        assert!((66_000.0..74_000.0).contains(&row), "{row}");
        let all = (bytes[0] + bytes[1]) as f64;
        assert!(
            (all / (112.0 * 30_000.0) - 1.0).abs() < 0.01 && bytes[0].abs_diff(bytes[1]) < 600_000,
            "{bytes:?}"
        );
        assert_eq!(sample.threshold(u64::MAX, |_, _, _| ()), 0.0);
    }

    #[test]
    fn rows_fade_and_the_share_grows_again() {
        let mut sample = Sample::new(16 << 10);
        for row in 0..20_000 {
            add(&mut sample, &access(row, 100, 1));
        }
        let (limit, rows) = (sample.limit, sample.rows);
        assert!(rows > 0 && limit < LIMIT_ALL);
        for _ in 0..60 {
            sample.cool(10.0);
            sample.threshold(1000, |_, _, _| ());
        }
        assert_eq!((sample.rows, sample.limit), (0, LIMIT_ALL));
        add(&mut sample, &access(1, 100, 3));
        assert!((sample.threshold(0, |_, _, _| ()) - 3.0 / 112.0).abs() < 1e-9);
    }
}
