//! Pieces that lie over many leaves, and what is merged with each other of them.
//!
//! In a store with many leaves a block becomes one *wide* piece. A look asks the filter of each, and a scan reads a page of each, so
//! when there are [`WIDE_MAX`] they are merged with each other and cut by leaves. Merges of leaves leave them alone until then, unless
//! a leaf has a reason of its own (scans pass too many removed keys in it, say): then it takes them along, and has only those
//! afterwards that came later.
//!
//! ```text
//!   leaf        0      1      2      3      4
//!   newest      w3     w3     w3     w3     w3
//!               w2     w2     w2     w2     w2        leaf 2 was merged when there were w0 and w1
//!               w1     w1     ·      w1     w1
//!               w0     w0     ·      w0     w0
//!   merged      0 ──── 1   │  2   │  3 ──── 4         stretches of leaves that have the same ones
//! ```
//!
//! So the wide pieces of a leaf are the newest so many of all wide ones, and in front of its other young pieces. What is older than
//! those was merged there and must not be seen again: each stretch of leaves that have equally many is merged by itself.
//! (When only pieces counted that were in *all* leaves, one leaf that is merged again and again, the front of a queue, kept
//! the others from ever being rid of theirs.)

use std::ops::Range;
use std::sync::Arc;

use super::piece::Piece;
use super::version::Leaves;

/// Wide pieces that wait to be merged with each other.
pub(super) const WIDE_MAX: usize = 16;

/// The wide pieces of a store.
#[derive(Debug, Default)]
pub(super) struct Wide {
    /// The newest first.
    pub(super) pieces: Vec<Arc<Piece>>,
    /// Number of them, the newest ones, that each leaf has.
    in_leaf: Vec<usize>,
}

impl Wide {
    /// Those that are to be merged with each other one day. None, if there are so few leaves that it would save no looks.
    ///
    /// Complexity: the number of leaves, and of pieces in them that lie over several.
    pub(super) fn of(leaves: &Leaves) -> Self {
        let none = || Self { pieces: Vec::new(), in_leaf: vec![0; leaves.list.len()] };
        if leaves.list.len() <= 2 * WIDE_MAX {
            return none();
        }
        let Some(longest) = leaves.list.iter().max_by_key(|leaf| leaf.unscreened().len()) else {
            return none();
        };
        let is_wide = |piece: &&Arc<Piece>| piece.lies_over_several() && longest.has_unscreened(piece);
        let mut pieces: Vec<_> = longest.young.iter().take_while(is_wide).cloned().collect();
        let common = |young: &[Arc<Piece>], pieces: &[Arc<Piece>]| {
            young.iter().zip(pieces).take_while(|(one, two)| Arc::ptr_eq(one, two)).count()
        };
        for leaf in &leaves.list {
            let front = common(&leaf.young, &pieces);
            // One that is behind others in some leaf cannot be merged without those.
            let behind = pieces[front..].iter().position(|piece| leaf.has_unscreened(piece));
            if let Some(behind) = behind {
                pieces.truncate(front + behind);
            }
        }
        let in_leaf = leaves.list.iter().map(|leaf| common(&leaf.young, &pieces)).collect();
        Self { pieces, in_leaf }
    }

    /// Number of them that a leaf has.
    pub(super) fn in_leaf(&self, leaf: usize) -> usize {
        self.in_leaf[leaf]
    }

    /// Those that all of these leaves have.
    pub(super) fn in_all(&self, leaves: Range<usize>) -> &[Arc<Piece>] {
        let least = leaves.map(|leaf| self.in_leaf[leaf]).min().unwrap_or(0);
        &self.pieces[..least]
    }

    /// Does at least half of the leaves have so many that they are to be merged?
    pub(super) fn are_many(&self) -> bool {
        let many = self.in_leaf.iter().filter(|count| **count >= WIDE_MAX).count();
        self.pieces.len() >= WIDE_MAX && 2 * many >= self.in_leaf.len()
    }

    /// Stretches of leaves that have the same ones, with those; not where there are none.
    pub(super) fn stretches(&self) -> impl Iterator<Item = (Range<usize>, &[Arc<Piece>])> {
        let mut next = 0;
        let all = std::iter::from_fn(move || {
            let count = *self.in_leaf.get(next)?;
            let begin = next;
            next += self.in_leaf[begin..].iter().take_while(|other| **other == count).count();
            Some((begin..next, &self.pieces[..count]))
        });
        all.filter(|(_, pieces)| !pieces.is_empty())
    }
}
