//! Rows of pages that a transaction has in its hand: those that it has waited for, and has not read yet.
//!
//! A wait for a page ends with a copy of the row, since the page may have left its frame again when the step that wants the row is tried
//! once more. Where there are few frames for many readers, looking again would find nothing, again and again.
//!
//! A row of a run never changes, so its copy is as good as the page. Whether the row is still that of the run says its slot: who asks for
//! a copy has seen there, under its pin, that it names the run's block.
//!
//! There is room for a few rows: what a step looks at together, or what is read ahead of a transaction. The oldest goes first.

use std::collections::VecDeque;

/// Rows, at most.
const ROWS: usize = 64;
/// Bytes of rows, at most, unless it is a single one.
const BYTES: usize = 64 << 10;

/// A row that was copied out of its run.
#[derive(Debug)]
pub(crate) struct HeldRow {
    pub(super) run: u64,
    pub(super) position: u16,
    pub(super) bytes: Box<[u8]>,
}

impl HeldRow {
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Hand {
    rows: VecDeque<HeldRow>,
    bytes: usize,
}

impl Hand {
    /// Takes a row, and lets go what there is no room for beside it.
    pub(crate) fn take(&mut self, row: HeldRow) {
        self.bytes += row.memory_bytes();
        self.rows.push_back(row);
        while self.rows.len() > ROWS || self.bytes > BYTES && self.rows.len() > 1 {
            let oldest = self.rows.pop_front().expect("more than one is there");
            self.bytes -= oldest.memory_bytes();
        }
    }

    /// The row of a run at a position.
    #[inline]
    pub(super) fn row(&self, run: u64, position: u16) -> Option<&[u8]> {
        let is_it = |row: &&HeldRow| row.run == run && row.position == position;
        self.rows.iter().rev().find(is_it).map(|row| &*row.bytes)
    }

    /// Lets all go.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.rows.is_empty() {
            self.rows.clear();
            // A single row may be long; a list of a few is kept for the next transaction.
            self.bytes = 0;
        }
    }

    /// Bytes of memory that the rows take.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(run: u64, position: u16, bytes: usize) -> HeldRow {
        HeldRow { run, position, bytes: vec![position as u8; bytes].into() }
    }

    #[test]
    fn the_oldest_rows_go_first() {
        let mut hand = Hand::default();
        for position in 0..2 * ROWS as u16 {
            hand.take(row(7, position, 10));
        }
        for position in 0..2 * ROWS as u16 {
            let kept = usize::from(position) >= ROWS;
            assert_eq!(hand.row(7, position).is_some(), kept, "{position}");
            assert_eq!(hand.row(8, position), None, "a run is another one");
        }
        assert_eq!(hand.memory_bytes(), ROWS * (10 + size_of::<HeldRow>()));
        hand.clear();
        assert_eq!((hand.row(7, 100), hand.memory_bytes()), (None, 0));
    }

    #[test]
    fn there_is_room_for_one_row_of_any_length() {
        let mut hand = Hand::default();
        hand.take(row(7, 1, 100));
        hand.take(row(7, 2, 3 * BYTES));
        assert_eq!((hand.row(7, 1), hand.row(7, 2).map(<[u8]>::len)), (None, Some(3 * BYTES)));
        hand.take(row(7, 3, 100));
        assert_eq!((hand.row(7, 2), hand.row(7, 3).map(<[u8]>::len)), (None, Some(100)));
    }
}
