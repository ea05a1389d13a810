//! The part of an ordered index that a range means: where a scan of it begins, and the row at which it is over.

use std::ops::Bound;
use std::sync::Arc;

use thermocline_engine::{self as engine, Direction, KeyRange};
use thermocline_row::{KeyBuf, Layout};

use super::operators::Range;
use super::source::value_of;
use crate::catalog::Table;
use crate::error::Result;
use crate::types::Datum;
use crate::types::stored::datum_at;

/// A range as keys of its index, and the conditions that end a scan of them.
pub(super) struct Stretch {
    table: Arc<Table>,
    range: Range,
    /// The key of the values that its first columns equal, and that with the bound at which a scan begins.
    equal_key: KeyBuf,
    near_key: Option<KeyBuf>,
    /// All columns of the index have equal values.
    is_point: bool,
    /// All columns of the index stand in `near_key`.
    is_whole: bool,
}

/// A range as a place to begin a scan of.
pub(super) enum Begin {
    /// No row is in it.
    Nowhere,
    /// All columns of the index equal these values: their key.
    Point(KeyBuf, Range),
    Stretch(Stretch),
}

impl Begin {
    pub(super) fn of(index: &engine::Index, table: &Arc<Table>, range: Range) -> Result<Self> {
        let definition = &table.indexes[range.index];
        let mut values = Vec::with_capacity(range.equal.len() + 1);
        for (datum, (column, _)) in range.equal.iter().zip(&definition.columns) {
            // A value that the column cannot have equals nothing in it.
            let Ok(value) = value_of(datum, table, *column) else { return Ok(Begin::Nowhere) };
            values.push(value);
        }
        let equal_key = index.key_of_values(&values)?;
        if values.len() == definition.columns.len() {
            return Ok(Begin::Point(equal_key, range));
        }
        let (column, descending) = definition.columns[values.len()];
        let (near, _) = sides(&range, descending);
        let mut near_key = None;
        if let Bound::Included(datum) | Bound::Excluded(datum) = near
            && let Ok(value) = value_of(datum, table, column)
        {
            values.push(value);
            near_key = Some(index.key_of_values(&values)?);
        }
        let is_whole = values.len() == definition.columns.len();
        let table = Arc::clone(table);
        Ok(Begin::Stretch(Stretch { table, range, equal_key, near_key, is_point: false, is_whole }))
    }
}

/// The bounds of a range's next column in the direction of its scan: the near one and the far one.
fn sides(range: &Range, descending: bool) -> (&Bound<Datum>, &Bound<Datum>) {
    let (lower, upper) = if descending { (&range.high, &range.low) } else { (&range.low, &range.high) };
    if range.backward { (upper, lower) } else { (lower, upper) }
}

impl Stretch {
    /// The rows whose values equal those of a point.
    pub(super) fn of_point(table: &Arc<Table>, key: KeyBuf, range: Range) -> Self {
        let table = Arc::clone(table);
        Self { table, range, equal_key: key, near_key: None, is_point: true, is_whole: true }
    }

    pub(super) fn direction(&self) -> Direction {
        if self.range.backward { Direction::Backward } else { Direction::Forward }
    }

    fn next_column(&self) -> (usize, bool) {
        self.table.indexes[self.range.index].columns[self.range.equal.len()]
    }

    /// The keys to be scanned.
    pub(super) fn keys(&self) -> KeyRange<'_> {
        let key = &self.equal_key[..];
        if self.is_point {
            return KeyRange::between(Bound::Included(key), Bound::Included(key));
        }
        let is_excluded = || matches!(sides(&self.range, self.next_column().1).0, Bound::Excluded(_));
        let has_equal = !self.range.equal.is_empty();
        let beginning = if has_equal { Bound::Included(key) } else { Bound::Unbounded };
        match &self.near_key {
            Some(near) if !self.range.backward => KeyRange::between(Bound::Included(near), Bound::Unbounded),
            Some(near) if is_excluded() => KeyRange::between(beginning, Bound::Excluded(near)),
            Some(near) if self.is_whole => KeyRange::between(beginning, Bound::Included(near)),
            // Keys that begin with the bound go on behind it: those beyond are passed over.
            _ if has_equal => KeyRange::prefix(key),
            _ => KeyRange::all(),
        }
    }

    /// True if the scan ends before this row: the beginning of the key, unless the keys end with that, or the far bound is left behind.
    #[inline]
    pub(super) fn is_over(&self, layout: &Layout, row: &[u8]) -> bool {
        if self.is_point {
            return false;
        }
        let columns = &self.table.indexes[self.range.index].columns;
        if self.near_key.is_some() && !self.range.backward {
            for (wanted, (column, _)) in self.range.equal.iter().zip(columns) {
                if datum_at(layout, row, *column) != *wanted {
                    return true;
                }
            }
        }
        let (column, descending) = columns[self.range.equal.len()];
        let (Bound::Included(far) | Bound::Excluded(far)) = sides(&self.range, descending).1 else {
            return false;
        };
        let value = datum_at(layout, row, column);
        let order = value.compare_nulls_last(far);
        let rises = descending == self.range.backward;
        !value.is_null() && if rises { order.is_gt() } else { order.is_lt() }
    }
}
