//! Rules of the access rings that a test can switch off: see [`thermocline_base::mutation`].

#[cfg(feature = "model")]
pub use thermocline_base::mutation::{SwitchedOff, switch_off};
pub use thermocline_base::mutation::{off, on};

/// A rule of the access rings that a test build can switch off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum Rule {
    /// A record of an access ring is whole before the tail passes it.
    AccessRingFillsBeforeTail = 100,
    /// The writer of an access ring uses a slot again only when the reader's head has passed it.
    AccessRingWaitsForReader,
    /// The reader of an access ring moves its head only when it has read what is behind it.
    AccessRingReadsBeforeHead,
}

impl thermocline_base::mutation::Switchable for Rule {
    fn number(self) -> u32 {
        self as u32
    }
}
