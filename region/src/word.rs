//! The word of a page: its state, its frame, and the number of its mark or of its reading, changed together by one atomic operation.
//!
//! ```text
//!              run written                 claim, net              ends its own reading        copied
//!      NONE ─────────────────► ABSENT ─────────────────► READING(frame, n) ─────────► FILLING(frame) ───► PRESENT(frame)
//!       ▲                        ▲ ▲        given up            │                                          │      ▲
//!       │ part dropped           │ └────────────────────────────┘                                   marked │      │ taken back
//!       │ (from any state)       │             dropped                     epochs have passed              ▼      │ by a reader
//!                                └────────────────────────── TAKING(frame) ◄─────────────────────── LEAVING(frame, n)
//! ```
//!
//! - The page's memory is there in PRESENT and LEAVING, and changes in FILLING and TAKING only, whose owner is the thread that
//!   made the transition; both last for a system call, during which their owner waits for no other thread.
//! - A frame belongs to the page in every state that names it. The thread that makes the transition out of such a
//!   state gets the frame.
//! - Numbers are unique among those that can be met (35 bits: an entry of a queue would have to stay there for 2^35 marks).

/// Bits of a state.
const STATE_BITS: u32 = 3;
/// Bits of a frame: 256 GiB of resident pages.
const FRAME_BITS: u32 = 26;
const NUMBER_BITS: u32 = 64 - STATE_BITS - FRAME_BITS;

/// The most frames that a pager can have.
pub(crate) const FRAMES_MAX: usize = 1 << FRAME_BITS;

/// The state that a word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// No page: the part is not paged, or not written so far.
    None,
    /// Only in the backing.
    Absent,
    /// Being read.
    Reading,
    /// Being put in place.
    Filling,
    /// In memory.
    Present,
    /// In memory, and marked to leave.
    Leaving,
    /// Being dropped.
    Taking,
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ABSENT: Self = Self(1);

    fn new(state: u64, frame: u32, number: u64) -> Self {
        debug_assert!((frame as usize) < FRAMES_MAX, "a frame fits into a word");
        let number = number & ((1 << NUMBER_BITS) - 1);
        Self(number << (STATE_BITS + FRAME_BITS) | u64::from(frame) << STATE_BITS | state)
    }

    pub(crate) fn reading(frame: u32, number: u64) -> Self {
        Self::new(2, frame, number)
    }

    pub(crate) fn filling(frame: u32) -> Self {
        Self::new(3, frame, 0)
    }

    pub(crate) fn present(frame: u32) -> Self {
        Self::new(4, frame, 0)
    }

    pub(crate) fn leaving(frame: u32, number: u64) -> Self {
        Self::new(5, frame, number)
    }

    pub(crate) fn taking(frame: u32) -> Self {
        Self::new(6, frame, 0)
    }

    pub(crate) fn state(self) -> State {
        match self.0 & ((1 << STATE_BITS) - 1) {
            0 => State::None,
            1 => State::Absent,
            2 => State::Reading,
            3 => State::Filling,
            4 => State::Present,
            5 => State::Leaving,
            6 => State::Taking,
            other => unreachable!("a word has one of seven states, not {other}"),
        }
    }

    pub(crate) fn frame(self) -> u32 {
        (self.0 >> STATE_BITS) as u32 & (FRAMES_MAX as u32 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hold_what_they_were_made_of() {
        for frame in [0, 1, FRAMES_MAX as u32 - 1] {
            for number in [0, 1, u64::MAX] {
                let words = [
                    (Word::reading(frame, number), State::Reading),
                    (Word::filling(frame), State::Filling),
                    (Word::present(frame), State::Present),
                    (Word::leaving(frame, number), State::Leaving),
                    (Word::taking(frame), State::Taking),
                ];
                words
                    .iter()
                    .for_each(|(word, state)| assert_eq!((word.frame(), word.state()), (frame, *state)));
            }
        }
        assert_ne!(Word::leaving(1, 5), Word::leaving(1, 6));
        assert_eq!((Word::NONE.state(), Word::ABSENT.state()), (State::None, State::Absent));
    }
}
