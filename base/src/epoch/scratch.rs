//! Memory of one thread that lasts as long as its outermost pin: for copies that are made for readers, such as the image of
//! a row that stands compressed elsewhere.
//!
//! Rules:
//! - A piece never moves while it lasts; it ends with the thread's outermost pin, or with the [`super::Frame`] in which it
//!   was handed out.
//! - Between pins a thread keeps [`KEPT_WORDS`] at most.
//!
//! A piece is handed out by moving a mark; a chunk that is too small for what is asked is passed over.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Words of the first chunk.
const FIRST_WORDS: usize = 1 << 10;
/// Words that are kept from one pin to the next.
const KEPT_WORDS: usize = 8 << 10;

/// A stack of pieces.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    chunks: Vec<Box<[MaybeUninit<u64>]>>,
    mark: Mark,
}

/// The top of the stack: the chunk that pieces are taken from, and the words of it that are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    chunk: usize,
    words: usize,
}

impl Scratch {
    /// A piece of so many words, with arbitrary contents.
    pub(super) fn take(&mut self, words: usize) -> NonNull<u64> {
        loop {
            if let Some(chunk) = self.chunks.get_mut(self.mark.chunk) {
                if let Some(piece) = chunk.get_mut(self.mark.words..).and_then(|rest| rest.get_mut(..words)) {
                    self.mark.words += words;
                    return NonNull::from(piece).cast();
                }
                self.mark = Mark { chunk: self.mark.chunk + 1, words: 0 };
            } else {
                let doubled = FIRST_WORDS << self.chunks.len().min(10);
                self.chunks.push(Box::new_uninit_slice(doubled.max(words)));
            }
        }
    }

    pub(super) fn mark(&self) -> Mark {
        self.mark
    }

    /// Ends all pieces that were handed out since `mark` was read.
    pub(super) fn back_to(&mut self, mark: Mark) {
        self.mark = mark;
    }

    /// Ends all pieces.
    pub(super) fn clear(&mut self) {
        self.mark = Mark::default();
        let mut kept = 0;
        self.chunks.retain(|chunk| {
            kept += chunk.len();
            kept <= KEPT_WORDS
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces do not overlap, stay where they are, and are given again once they have ended.
    #[test]
    fn pieces_stand_side_by_side() {
        let mut scratch = Scratch::default();
        let mut pieces = Vec::new();
        for number in 0..3_000_u64 {
            let words = (number % 70 + 1) as usize;
            let piece = scratch.take(words);
            // SAFETY: the piece has so many words, and they are ours.
            unsafe { (0..words).for_each(|at| piece.add(at).write(number)) };
            pieces.push((piece, words, number));
        }
        for (piece, words, number) in pieces {
            // SAFETY: the piece has not ended.
            let all = (0..words).all(|at| unsafe { piece.add(at).read() } == number);
            assert!(all, "piece {number} was written over");
        }
        scratch.clear();
        assert!(scratch.chunks.iter().map(|chunk| chunk.len()).sum::<usize>() <= KEPT_WORDS);
        let first = scratch.take(1);
        let mark = scratch.mark();
        let second = scratch.take(5);
        scratch.back_to(mark);
        assert_eq!(scratch.take(5), second);
        assert_ne!(first, second);
        assert!(scratch.take(FIRST_WORDS * 100) != first, "one that is larger than a chunk gets its own");
    }
}
