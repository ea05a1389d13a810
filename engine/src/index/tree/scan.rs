//! Scans: the entries of a range, one leaf at a time, in either direction.
//!
//! A batch is copied from one leaf at one version. It remembers where the next one begins: at the fence of its leaf, or
//! behind its last entry, if the caller wants shorter batches. Nothing else lasts from batch to batch, so the caller
//! may give up its pin in between, and hold a batch for as long as it likes.

use std::ops::Bound;

use super::*;

/// Which way a scan goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// From small keys to large ones.
    #[default]
    Forward,
    /// From large keys to small ones.
    Backward,
}

/// Entries that a scan has copied. To be used again for the next ones: it keeps its memory.
#[derive(Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    /// For each entry, where its key ends in `bytes`, and its row.
    entries: Vec<(usize, RowId)>,
    entries_max: usize,
    direction: Direction,
    /// The place that the next batch begins at, if there is one.
    resume: Option<(Vec<u8>, u64)>,
    /// A key buffer without a use.
    spare: Vec<u8>,
    prefix: Vec<u8>,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// An empty batch, which takes what a leaf has.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            entries: Vec::new(),
            entries_max: usize::MAX,
            direction: Direction::Forward,
            resume: None,
            spare: Vec::new(),
            prefix: Vec::new(),
        }
    }

    /// From now on takes at most so many entries at a time, for callers that need only the first ones.
    ///
    /// # Panics
    /// If it is none.
    pub fn set_entries_max(&mut self, entries_max: usize) {
        assert!(entries_max > 0, "a batch of no entries makes no progress");
        self.entries_max = entries_max;
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Has it no entries?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry at a place, in the order of the scan.
    #[inline]
    #[must_use]
    pub fn get(&self, at: usize) -> Option<(&[u8], RowId)> {
        let (end, row) = *self.entries.get(at)?;
        let start = if at == 0 { 0 } else { self.entries[at - 1].0 };
        Some((&self.bytes[start..end], row))
    }

    /// The entries in the order of the scan.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], RowId)> {
        let mut start = 0;
        self.entries.iter().map(move |(end, row)| {
            let key = &self.bytes[start..*end];
            start = *end;
            (key, *row)
        })
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }
}

/// Above every key.
static HIGHEST: [u8; KEY_BYTES_MAX + 1] = [0xff; KEY_BYTES_MAX + 1];

/// The place in the order at which a bound stands, for a range that lies above or below it.
fn place(bound: Bound<(&[u8], RowId)>, range_is_above: bool) -> Probe<'_> {
    match bound {
        Bound::Included((key, row)) if range_is_above => Probe::new(key, row.0),
        Bound::Included((key, row)) => Probe::new(key, row.0).behind(),
        Bound::Excluded((key, row)) if range_is_above => Probe::new(key, row.0).behind(),
        Bound::Excluded((key, row)) => Probe::new(key, row.0),
        Bound::Unbounded if range_is_above => Probe::new(&[], 0),
        Bound::Unbounded => Probe::new(&HIGHEST, 0),
    }
}

/// The same for a bound on keys alone.
fn key_place(bound: Bound<&[u8]>, range_is_above: bool) -> Probe<'_> {
    let row = |key, behind: bool| (key, RowId(if behind { u64::MAX } else { 0 }));
    match bound {
        Bound::Included(key) => place(Bound::Included(row(key, !range_is_above)), range_is_above),
        Bound::Excluded(key) => place(Bound::Excluded(row(key, range_is_above)), range_is_above),
        Bound::Unbounded => place(Bound::Unbounded, range_is_above),
    }
}

impl<M: NodeMemory, const N: usize> Tree<M, N> {
    /// Fills `out` with the first entries of a range, in the order of the scan: it starts at `from` (the lower bound
    /// forward, the upper one backward) and ends at `to`. Returns whether more may follow; then [`Tree::scan_next`]
    /// goes on, or this method again with the last entry, excluded. `out` is empty only when nothing follows.
    pub fn scan_batch(
        &self,
        guard: &Guard<'_>,
        from: Bound<(&[u8], RowId)>,
        to: Bound<&[u8]>,
        direction: Direction,
        out: &mut Batch,
    ) -> bool {
        let forward = direction == Direction::Forward;
        out.direction = direction;
        self.scan_from(guard, place(from, forward), key_place(to, !forward), out)
    }

    /// Fills `out` with the entries that follow its last ones, up to the same `to`.
    pub fn scan_next(&self, guard: &Guard<'_>, to: Bound<&[u8]>, out: &mut Batch) -> bool {
        let Some((key, row)) = out.resume.take() else {
            out.clear();
            return false;
        };
        let to = key_place(to, out.direction == Direction::Backward);
        let more = self.scan_from(guard, Probe::new(&key, row), to, out);
        out.spare = key;
        more
    }

    fn scan_from(&self, guard: &Guard<'_>, from: Probe<'_>, to: Probe<'_>, out: &mut Batch) -> bool {
        out.clear();
        out.resume = None;
        let nothing = match out.direction {
            Direction::Forward => from >= to,
            Direction::Backward => from <= to,
        };
        if nothing {
            return false;
        }
        let mut next = std::mem::take(&mut out.spare);
        let mut row = retry(|| self.scan_leaf(guard, from, to, out, &mut next));
        while let Some(next_row) = row
            && out.is_empty()
        {
            let here = std::mem::take(&mut next);
            row = retry(|| self.scan_leaf(guard, Probe::new(&here, next_row), to, out, &mut next));
            if next.capacity() == 0 {
                next = here;
            }
        }
        match row {
            Some(row) => out.resume = Some((next, row)),
            None => out.spare = next,
        }
        row.is_some()
    }

    /// Copies what the leaf behind a place has of the range. Returns the place to go on at: its key in `next`, and
    /// its row; `None` if the range ends here.
    fn scan_leaf(
        &self,
        guard: &Guard<'_>,
        from: Probe<'_>,
        to: Probe<'_>,
        out: &mut Batch,
        next: &mut Vec<u8>,
    ) -> Result<Option<u64>, Restart> {
        out.clear();
        let forward = out.direction == Direction::Forward;
        let leaf = self.leaf(guard, from, if forward { Side::AtOrAbove } else { Side::Below })?;
        let fence = leaf.read_fence(forward, next)?;
        let count = leaf.shape().count().min(Sizes::<N>::COUNT_MAX);
        let near = leaf.lower_bound(&from)?.0;
        let (range, mut resume) = if forward {
            let ends_here = fence.is_none_or(|high| to <= Probe::new(next, high.row));
            let in_leaf = fence.is_none_or(|high| to < Probe::new(next, high.row));
            let end = if in_leaf { leaf.lower_bound(&to)?.0 } else { count };
            (near..end, if ends_here { None } else { fence })
        } else {
            let low = fence.ok_or(Restart)?;
            let low_place = Probe::new(next, low.row);
            let start = if to > low_place { leaf.lower_bound(&to)?.0 } else { 0 };
            (start..near, if to >= low_place { None } else { fence })
        };
        leaf.read_prefix(&mut out.prefix)?;
        let wanted = range.len().min(out.entries_max);
        for step in 0..wanted {
            let slot = leaf.slot(if forward { range.start + step } else { range.end - 1 - step });
            leaf.append_key(slot, &out.prefix, &mut out.bytes)?;
            out.entries.push((out.bytes.len(), RowId(slot.value())));
        }
        if mutation::on(Rule::OptimisticRecheck) {
            leaf.check()?;
        }
        if wanted < range.len()
            && let Some((key, row)) = out.get(wanted - 1)
        {
            next.clear();
            next.extend_from_slice(key);
            resume = Some(node::FenceInfo { row: if forward { row.0 + 1 } else { row.0 }, far: 0 });
        }
        Ok(resume.map(|place| place.row))
    }
}
