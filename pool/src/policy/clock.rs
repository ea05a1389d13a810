//! CLOCK: a hand goes round over the frames, spares a page that was used since its last turn (once), and takes the first
//! one that was not.
//!
//! A new page counts as not used: its first read brought it in, and only a second one says that it is worth a turn.

use super::{Candidates, Policy};

/// The policy.
#[derive(Debug, Default)]
pub struct Clock {
    /// Is there a page in the frame?
    full: Vec<bool>,
    pages: usize,
    hand: usize,
}

impl Clock {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Policy for Clock {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn most_uses(&self) -> u16 {
        1
    }

    fn insert(&mut self, frame: u32, _page: u64) {
        let frame = frame as usize;
        if self.full.len() <= frame {
            self.full.resize(frame + 1, false);
        }
        assert!(!self.full[frame], "a page comes into an empty frame");
        self.full[frame] = true;
        self.pages += 1;
    }

    fn remove(&mut self, frame: u32) {
        assert!(std::mem::take(&mut self.full[frame as usize]), "a page leaves a full frame");
        self.pages -= 1;
    }

    fn choose(&mut self, candidates: &mut dyn Candidates) -> Option<u32> {
        // One turn clears every use, the next one finds what can be taken.
        for _ in 0..2 * self.full.len() {
            let frame = self.hand;
            self.hand = if frame + 1 == self.full.len() { 0 } else { frame + 1 };
            if !self.full[frame] {
                continue;
            }
            let number = frame as u32;
            if candidates.uses(number) > 0 {
                candidates.set_uses(number, 0);
            } else if candidates.take(number) {
                self.remove(number);
                return Some(number);
            }
        }
        None
    }

    fn moved(&mut self, from: u32, to: u32) {
        self.remove(from);
        self.insert(to, 0);
    }

    fn shrink(&mut self, frames: u32) {
        self.full.truncate(frames as usize);
        self.full.shrink_to_fit();
        self.hand = if self.hand < self.full.len() { self.hand } else { 0 };
    }

    fn bytes(&self) -> usize {
        self.full.capacity()
    }
}
