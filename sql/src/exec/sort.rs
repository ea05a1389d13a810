//! Orders: rows sorted in pieces, between which others have a turn.
//!
//! Places of rows are sorted, in runs of [`RUN`], and runs merged until one is left. Equal rows stay as they were.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{KeptRows, Row};
use crate::error::Result;
use crate::expr::Context;
use crate::expr::memory::size_of_row;
use crate::plan::SortKey;
use crate::types::Datum;

/// Places that are sorted at once.
const RUN: usize = 512;

/// The order of two rows of keys.
pub(super) fn order(keys: &[SortKey], a: &[Datum], b: &[Datum]) -> Ordering {
    for ((key, a), b) in keys.iter().zip(a).zip(b) {
        let order = match (a.is_null(), b.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => {
                if key.nulls_first {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
            (false, true) => {
                if key.nulls_first {
                    Ordering::Greater
                } else {
                    Ordering::Less
                }
            }
            (false, false) => {
                let order = a.compare(b);
                if key.descending { order.reverse() } else { order }
            }
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

/// The places `0..count` in this order; equal ones as they were.
pub(super) async fn sorted_places(
    context: &Context,
    count: usize,
    mut compare: impl FnMut(usize, usize) -> Ordering,
) -> Result<Vec<u32>> {
    let mut kept = context.memory.kept();
    kept.add(count * 8)?;
    let mut places: Vec<u32> =
        (0..u32::try_from(count).expect("fewer rows than 2^32 fit into memory")).collect();
    for run in places.chunks_mut(RUN) {
        run.sort_by(|a, b| compare(*a as usize, *b as usize));
        if context.is_due() {
            context.pause().await?;
        }
    }
    let (mut width, mut merged) = (RUN, Vec::with_capacity(count));
    while width < count {
        merged.clear();
        for pair in places.chunks(2 * width) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while let (Some(a), Some(b)) = (left.first(), right.first()) {
                if compare(*a as usize, *b as usize).is_le() {
                    merged.push(*a);
                    left = &left[1..];
                } else {
                    merged.push(*b);
                    right = &right[1..];
                }
                if context.is_due() {
                    context.pause().await?;
                }
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        std::mem::swap(&mut places, &mut merged);
        width *= 2;
    }
    Ok(places)
}

/// The first rows in an order, of those that come.
pub(super) struct First<'k, 'e> {
    keys: &'k [SortKey],
    count: usize,
    heap: BinaryHeap<Entry<'k>>,
    kept: crate::expr::memory::Kept<'e>,
    arrived: u64,
}

struct Entry<'k> {
    keys: &'k [SortKey],
    key: Row,
    row: Row,
    arrived: u64,
}

impl Ord for Entry<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        order(self.keys, &self.key, &other.key).then(self.arrived.cmp(&other.arrived))
    }
}

impl PartialOrd for Entry<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry<'_> {}

impl<'k, 'e> First<'k, 'e> {
    pub(super) fn new(context: &'e Context, keys: &'k [SortKey], count: usize) -> Self {
        Self { keys, count, heap: BinaryHeap::new(), kept: context.memory.kept(), arrived: 0 }
    }

    pub(super) fn take(&mut self, row: &mut Row, outer: &[Datum], context: &Context) -> Result<()> {
        let env = crate::expr::Env { row, outer, context };
        let key = self.keys.iter().map(|key| key.expr.eval(&env)).collect::<Result<Row>>()?;
        self.arrived += 1;
        if self.heap.len() == self.count {
            // What is equal and comes later is behind.
            let Some(mut last) = self.heap.peek_mut() else { return Ok(()) };
            if order(self.keys, &key, &last.key).is_ge() {
                return Ok(());
            }
            self.kept.remove(size_of_row(&last.row) + size_of_row(&last.key));
            self.kept.add(size_of_row(row) + size_of_row(&key))?;
            (last.key, last.row, last.arrived) = (key, std::mem::take(row), self.arrived);
            return Ok(());
        }
        self.kept.add(size_of_row(row) + size_of_row(&key))?;
        let (keys, row, arrived) = (self.keys, std::mem::take(row), self.arrived);
        self.heap.push(Entry { keys, key, row, arrived });
        Ok(())
    }

    /// The keys of the last of them, once there are as many as are wanted: what comes behind is passed over.
    pub(super) fn last_key(&self) -> Option<&[Datum]> {
        if self.heap.len() == self.count { self.heap.peek().map(|last| &*last.key) } else { None }
    }

    /// The rows in their order.
    pub(super) fn finish(self) -> KeptRows<'e> {
        let rows = self.heap.into_sorted_vec().into_iter().map(|entry| entry.row).collect();
        KeptRows { rows, kept: self.kept }
    }
}
