//! The rules of this crate's protocols that a test can switch off ([`thermocline_base::mutation`]).

use thermocline_base::mutation::Switchable;
pub(crate) use thermocline_base::mutation::{off, on};

/// A rule of paging.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum Rule {
    /// A page leaves only when the epochs have passed the stamp of its mark.
    PageOutThroughEpoch = 700,
    /// The stamp is taken after the mark is set.
    StampAfterMark,
    /// Each mark has a number of its own, so that the entry of an earlier one takes nothing.
    MarksAreDistinct,
    /// A reader takes a leaving page back before it uses it.
    ReaderTakesBack,
    /// A page that was read is put in place only by whoever ends that very reading.
    ReadEndsOwnReading,
    /// A waiter has frames for its whole set before its first read.
    FramesBeforeReads,
    /// The net takes pages without waiting for epochs.
    NetTakesAtOnce,
    /// Whoever frees a frame, or brings a page, wakes those that may wait for it.
    FreedFrameTells,
    /// A waiter that lacks frames which the epochs hold calls the tender, which watches the epochs.
    TenderWatchesEpochs,
}

impl Switchable for Rule {
    fn number(self) -> u32 {
        self as u32
    }
}
