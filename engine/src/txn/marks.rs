//! The tables that a transaction uses, as whoever changes a definition sees them.
//!
//! A word with one bit for each `id % 64` is the filter; behind it stand the ids of the first tables. A transaction that uses
//! more of them says so, and counts as a user of all that the filter lets through.
//!
//! The owner enters the id first, then the bit, with a full fence, and then looks whether the table is held. The changer holds
//! the table, with a full fence, and then looks for the bit, and then for the id. A changer that sees the bit of another table
//! and misses the id has read the filter before the owner's fence: the owner sees the hold. At the end the ids go before the
//! filter, each with *release*: a changer that misses an id that was there has all that the transaction did behind it.

use thermocline_base::ids::TableId;
use thermocline_base::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::catalog::table::mark_of;
use crate::mutation::{self, Rule};

/// Tables whose ids are kept.
const EXACT: usize = 6;

/// The marks of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    filter: AtomicU64,
    /// 0: none; else the id + 1.
    tables: [AtomicU32; EXACT],
    /// There are more tables than words for them.
    overflowed: AtomicBool,
}

impl Marks {
    /// Enters the mark of a table; `entered` is the number of those that were entered before. Returns the filter as it was.
    #[inline]
    pub(crate) fn enter(&self, entered: usize, table: TableId) -> u64 {
        match self.tables.get(entered) {
            Some(word) => word.store(table.0.wrapping_add(1), Ordering::Release),
            None => self.overflowed.store(true, Ordering::Release),
        }
        self.filter.fetch_or(mark_of(table), Ordering::SeqCst)
    }

    /// Takes the mark back that was entered last, and nothing was done under. `filter`: as it was before.
    #[cold]
    pub(crate) fn take_back(&self, entered: usize, filter: u64) {
        self.clear_from(entered, entered + 1);
        self.filter.store(filter, Ordering::SeqCst);
    }

    /// Leaves all tables, of which `entered` were entered.
    #[inline]
    pub(crate) fn leave(&self, entered: usize) {
        self.clear_from(0, entered);
        self.filter.store(0, Ordering::Release);
    }

    #[inline]
    fn clear_from(&self, first: usize, entered: usize) {
        for word in self.tables.iter().take(entered).skip(first) {
            word.store(0, Ordering::Release);
        }
        if entered > EXACT && first <= EXACT {
            self.overflowed.store(false, Ordering::Release);
        }
    }

    /// The filter of the tables, as the owner has it.
    pub(crate) fn filter(&self) -> u64 {
        self.filter.load(Ordering::Relaxed)
    }

    /// Does the transaction use the table, as far as is known?
    pub(crate) fn has(&self, table: TableId) -> bool {
        self.filter.load(Ordering::SeqCst) & mark_of(table) != 0
            && (mutation::off(Rule::MarksAreExact)
                || self.overflowed.load(Ordering::Acquire)
                || self.tables.iter().any(|word| word.load(Ordering::Acquire) == table.0.wrapping_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_tell_tables_of_one_bit_apart() {
        let marks = Marks::default();
        let (one, other) = (TableId(1), TableId(65));
        let before = marks.enter(0, one);
        assert!(before == 0 && marks.has(one) && !marks.has(other));
        let before = marks.enter(1, other);
        assert!(marks.has(one) && marks.has(other));
        marks.take_back(1, before);
        assert!(marks.has(one) && !marks.has(other));
        marks.leave(1);
        assert!(!marks.has(one) && marks.filter() == 0);
        // Nothing of the one before is left to the next one.
        marks.enter(0, other);
        assert!(!marks.has(one) && marks.has(other));
    }

    #[test]
    fn a_transaction_of_many_tables_uses_what_the_filter_lets_through() {
        let marks = Marks::default();
        let last = EXACT;
        for entered in 0..last {
            marks.enter(entered, TableId(entered as u32));
        }
        assert!(!marks.has(TableId(64)) && !marks.has(TableId(9)));
        let before = marks.enter(last, TableId(9));
        assert!(marks.has(TableId(64)) && marks.has(TableId(9)) && marks.has(TableId(73)));
        marks.take_back(last, before);
        assert!(!marks.has(TableId(64)) && marks.has(TableId(0)));
        marks.enter(last, TableId(9));
        let before = marks.enter(last + 1, TableId(10));
        marks.take_back(last + 1, before);
        assert!(marks.has(TableId(9)), "one that overflows is left");
        marks.leave(last + 1);
        assert!(!marks.has(TableId(0)) && !marks.has(TableId(9)));
        marks.enter(0, TableId(0));
        assert!(!marks.has(TableId(64)), "nothing of that is left to the next one");
    }
}
