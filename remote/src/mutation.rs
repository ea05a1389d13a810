//! The rules of this crate's protocol that a test can switch off ([`thermocline_base::mutation`]).

use thermocline_base::mutation::Switchable;
pub(crate) use thermocline_base::mutation::{off, on};

/// A rule of the protocol between a memory server and the holder of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum Rule {
    /// A slot is given anew only when no read of it is under way.
    ReadHoldsSlot = 600,
    /// A slot is given anew only when its write was answered, or the lease has ended.
    WriteHoldsSlot,
    /// A server refuses a request that is not younger than the last one of its lease.
    RequestsInOrder,
    /// A holder gives its lease up at half of the grace.
    LeaseEndsAtHalf,
    /// A holder takes no answer that names another lease.
    AnswersNameLease,
    /// A segment is zeroed before another lease gets it.
    WipeBeforeGrant,
    /// A server does a request only on segments of the lease that it names.
    OwnerOnly,
}

impl Switchable for Rule {
    fn number(self) -> u32 {
        self as u32
    }
}
