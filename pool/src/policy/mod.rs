//! Which page leaves its frame when another one needs it.
//!
//! A policy sees frames, not pages' contents: which page came into which frame, which frame was emptied, and when the
//! pool needs one, it chooses. Its methods run under the pool's lock. *Hits* do not: a hit adds one to the *uses* of
//! its page, up to [`Policy::most_uses`], by a plain store beside the page's entry, and nothing at all once that is
//! reached. A policy therefore sees how often a page was used since it looked last, never in which order.
//!
//! | policy | a hit costs | scans | file |
//! |---|---|---|---|
//! | [`Clock`] | a store, the first time | a scan pushes everything out that was not used during one turn of the hand | `clock.rs` |
//! | [`S3Fifo`] | up to two stores | pages used once pass through a tenth of the frames | `s3fifo.rs` |

mod clock;
mod s3fifo;

use std::fmt;

pub use clock::Clock;
pub use s3fifo::S3Fifo;

/// The frames, for a policy that chooses a victim.
pub trait Candidates {
    /// Number of times that the page in the frame was used since [`Self::set_uses`], up to the policy's maximum.
    fn uses(&self, frame: u32) -> u16;

    /// Sets that number.
    fn set_uses(&self, frame: u32, uses: u16);

    /// Takes the page out of the frame, unless it is in use or has to be written first. If so the policy has to forget
    /// the frame.
    fn take(&mut self, frame: u32) -> bool;
}

/// A replacement policy.
pub trait Policy: Send + fmt::Debug {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// Hits above this number (since it was set) are not counted.
    fn most_uses(&self) -> u16;

    /// A page came into an empty frame.
    fn insert(&mut self, frame: u32, page: u64);

    /// A frame was emptied in another way than by [`Self::choose`].
    fn remove(&mut self, frame: u32);

    /// Takes the page out of one frame. `None` if no frame could be taken; ends in any case.
    fn choose(&mut self, candidates: &mut dyn Candidates) -> Option<u32>;

    /// The page of a frame is in another one now, which was empty, and is as cold or hot as before.
    fn moved(&mut self, from: u32, to: u32);

    /// Frames from this one on are empty and stay so for long: what is known of them can go.
    fn shrink(&mut self, frames: u32);

    /// Memory that it uses.
    fn bytes(&self) -> usize;
}

/// The policies that a pool can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum PolicyKind {
    /// A hand that goes round and spares what was used.
    Clock,
    /// A small queue before a large one, and a memory of what left the small one.
    #[default]
    S3Fifo,
}

impl PolicyKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Clock, Self::S3Fifo];

    /// A fresh one.
    #[must_use]
    pub fn build(self) -> Box<dyn Policy> {
        match self {
            Self::Clock => Box::new(Clock::new()),
            Self::S3Fifo => Box::new(S3Fifo::new()),
        }
    }
}

#[cfg(test)]
mod tests;
