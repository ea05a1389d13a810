//! The hold of a table: who changes its definition, and who waits for that.
//!
//! ```text
//!            claim                   nobody else has a mark
//!   free ───────────► waiting for users ────────────────────► had until the changer's transaction ends
//!                        │      ▲ claim by a user of the table
//!                        └──────┘
//! ```
//!
//! One word: 0, or the place of the changer + 1, shifted left by one, and a bit that says that he has the table. Whoever wants
//! to begin to use the table enters his mark and then looks at the word; whoever changes it sets the word and then looks for
//! marks. Both steps are sequentially consistent, so one sees the other ([`crate::catalog::table`]).
//!
//! Rules:
//! - While the word is not 0 nobody begins to use the table. What moves about beside transactions (moves, pruning, packing,
//!   freezing) leaves it alone.
//! - A changer who still waits for users is passed by a user of the table who wants to change it, too: he could not go first,
//!   since the other waits for him. If he waits himself for the one he has passed, there is a circle, and the
//!   graph of waits has it.
//! - A changer who has the table is passed by nobody, so it is his until his transaction ends or goes back to before the claim.

use std::task::Waker;

use thermocline_base::sync::{AtomicU64, Mutex, Ordering};

const HAD: u64 = 1;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    word: AtomicU64,
    waiters: Mutex<Vec<Waker>>,
}

impl Hold {
    const fn word_of(place: u32) -> u64 {
        (place as u64 + 1) << 1
    }

    /// Does somebody change the table, or wait to?
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.word.load(Ordering::SeqCst) != 0
    }

    /// The place of who does.
    pub(crate) fn owner(&self) -> Option<u32> {
        (self.word.load(Ordering::SeqCst) >> 1).checked_sub(1).map(|place| place as u32)
    }

    /// Claims the table for the transaction in `place`; `is_user`: it uses the table already. `false`: another one is first.
    pub(crate) fn claim(&self, place: u32, is_user: bool) -> bool {
        let mine = Self::word_of(place);
        let mut word = 0;
        loop {
            match self.word.compare_exchange(word, mine, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return true,
                Err(found) if found & !HAD == mine => return true,
                Err(found) if found & HAD == 0 && (found == 0 || is_user) => word = found,
                Err(_) => return false,
            }
        }
    }

    /// The claimant has seen no other user: from now on he has the table. `false`: a user has passed him.
    pub(crate) fn secure(&self, place: u32) -> bool {
        let mine = Self::word_of(place);
        match self.word.compare_exchange(mine, mine | HAD, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => true,
            Err(found) => found == mine | HAD,
        }
    }

    /// Lets the table go, if it is the transaction's in `place`, and wakes who waits for it.
    pub(crate) fn let_go(&self, place: u32) {
        let word = self.word.load(Ordering::SeqCst);
        if word & !HAD == Self::word_of(place)
            && self.word.compare_exchange(word, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            for waker in std::mem::take(&mut *self.waiters.lock()) {
                waker.wake();
            }
        }
    }

    /// Has `waker` woken when the table is let go. `false`: nobody holds it.
    pub(crate) fn wake_when_let_go(&self, waker: &Waker) -> bool {
        self.waiters.lock().push(waker.clone());
        self.is_held()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_pass_who_waits_for_them_and_nobody_passes_who_has_it() {
        let hold = Hold::default();
        assert!(!hold.is_held() && hold.claim(0, false) && hold.owner() == Some(0));
        assert!(!hold.claim(1, false), "no user passes nobody");
        assert!(hold.claim(1, true) && hold.owner() == Some(1));
        assert!(!hold.secure(0), "it was passed");
        hold.let_go(0);
        assert!(hold.is_held() && hold.secure(1) && hold.secure(1));
        assert!(!hold.claim(0, true) && hold.claim(1, false));
        hold.let_go(1);
        assert!(!hold.is_held() && hold.owner().is_none());
    }
}
