//! The version latch of a node, and of the root pointer.
//!
//! ```text
//! 63,62  61…2      1         0
//! 00     version   obsolete  latched
//! ```
//!
//! A reader takes the word with `Acquire` while it is not latched, reads, and looks again behind an acquire fence: if
//! the word is the same, all that it has read belongs together. A writer turns a word that it has read into a latched
//! one (so what it has read before still holds), sets a release fence, writes, and stores the next version with
//! `Release`. Latches are only ever *tried* while another one is held, parent before child, left before right; who
//! does not get one gives all of them back and starts again. So no latch waits for another.

use std::sync::atomic::Ordering;

use thermocline_base::sync::{AtomicU64, Backoff, fence};

const LATCHED: u64 = 1;
const OBSOLETE: u64 = 2;
const VERSION_ONE: u64 = 4;

/// What was read does not belong together, or a latch was not free: start again from the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Restart;

/// The version behind a word, once nobody holds its latch.
#[inline(always)]
pub(super) fn version(word: &AtomicU64) -> Result<u64, Restart> {
    let mut version = word.load(Ordering::Acquire);
    if version & (LATCHED | OBSOLETE) != 0 {
        let mut backoff = Backoff::new();
        while version & LATCHED != 0 {
            backoff.wait();
            version = word.load(Ordering::Acquire);
        }
        if version & OBSOLETE != 0 {
            return Err(Restart);
        }
    }
    Ok(version)
}

/// The version behind a word, if its latch is free. For who holds another latch, and so must not wait.
pub(super) fn version_if_free(word: &AtomicU64) -> Result<u64, Restart> {
    let version = word.load(Ordering::Acquire);
    if version & (LATCHED | OBSOLETE) == 0 { Ok(version) } else { Err(Restart) }
}

/// Was everything since `version` was taken read from one state?
#[inline(always)]
pub(super) fn check(word: &AtomicU64, version: u64) -> Result<(), Restart> {
    fence(Ordering::Acquire);
    if word.load(Ordering::Relaxed) == version { Ok(()) } else { Err(Restart) }
}

/// A held latch; given back when it is dropped.
pub(super) struct Latch<'g> {
    word: &'g AtomicU64,
    version: u64,
    then: Then,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Unchanged,
    Changed,
    Obsolete,
}

impl<'g> Latch<'g> {
    /// Takes the latch, if the version is still the one that was read.
    #[inline]
    pub(super) fn take(word: &'g AtomicU64, version: u64) -> Result<Self, Restart> {
        if word.compare_exchange(version, version | LATCHED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(Restart);
        }
        fence(Ordering::Release);
        Ok(Self { word, version, then: Then::Unchanged })
    }

    /// The word while the latch is held.
    pub(super) fn latched_version(&self) -> u64 {
        self.version | LATCHED
    }

    /// Readers must look again.
    #[inline]
    pub(super) fn changed(&mut self) {
        if self.then == Then::Unchanged {
            self.then = Then::Changed;
        }
    }

    /// Readers must start again; the node is no longer part of the tree.
    pub(super) fn obsolete(&mut self) {
        self.then = Then::Obsolete;
    }
}

impl Drop for Latch<'_> {
    #[inline]
    fn drop(&mut self) {
        let next = match self.then {
            Then::Unchanged => self.version,
            Then::Changed => self.version + VERSION_ONE,
            Then::Obsolete => (self.version + VERSION_ONE) | OBSOLETE,
        };
        self.word.store(next, Ordering::Release);
    }
}
