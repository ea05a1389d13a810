//! Rules of the frames and the store that a test can switch off: see [`thermocline_base::mutation`].

#[cfg(feature = "model")]
pub use thermocline_base::mutation::{SwitchedOff, switch_off};
pub use thermocline_base::mutation::{off, on};

/// A rule of the frames and the store that a test build can switch off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum Rule {
    /// A reader of a bucket of the page map checks its version again after reading.
    OptimisticRecheck = 200,
    /// A batch of the cold store is merged with others only when its owner has confirmed it.
    MergeOnlyConfirmed,
    /// A piece's extents are free only when the manifest without it is durable.
    FreeAfterManifest,
    /// A removal vanishes only with its entry, or where nothing older can be.
    RemovalVanishesWithEntry,
    /// A piece's filter is built from all of its entries, removals too.
    FilterOfAllEntries,
    /// A journal segment is used again only when all that it holds is in pieces.
    SegmentOutlivesBatches,
    /// A batch that was decided about while it was written as a piece is not entered as one that waits.
    SpillLooksAgain,
    /// An object goes with the last of its entries.
    ObjectsOutliveEntries,
    /// A batch in memory can be seen only when all of its entries can be found.
    BatchPublishedLast,
    /// A reader of a block in memory passes over entries of batches that cannot be seen yet.
    ReaderPassesUnpublished,
    /// A flush takes entries out of memory and into the leaves at once.
    FlushSwitchesAtOnce,
    /// A screen says maybe to all keys of the pieces behind it.
    ScreenOfAllEntries,
    /// A confirmed batch is in its block before it stops waiting.
    ConfirmTakesInFirst,
    /// A leaf of which a merge leaves nothing stays between its neighbours.
    EmptyLeafStays,
    /// The version that readers of the store see is changed by one thread at a time.
    VersionChangesUnderControl,
    /// A batch is acknowledged, and quiescent, only when it has taken effect.
    AckAfterEffect,
    /// A waiter for a promise is entered before the promise can be kept unseen.
    PromiseEntersUnderLock,
    /// A thread notes how often it was called before it looks for work.
    HeardBeforeLook,
    /// A removal that says *last* ends a read only behind the structure that it was found in.
    LastEndsBehindStructure,
    /// A pinned page stays in its frame.
    PinnedPageStays,
    /// A thread that has pinned a slot looks whether it is still the page's.
    PinComparesPage,
    /// The thread that gives the last pin of a page back looks for waiters.
    LastUnpinNotifies,
    /// A dropped future gives the pin back that it was granted.
    DroppedPinIsGivenBack,
    /// Discarding a page detaches it from a read that is under way.
    DiscardDetachesReads,
    /// Discarding a page waits for a write of it that is under way.
    DiscardWaitsForWrites,
    /// No two writes of a page are under way together.
    OneWriteAPage,
    /// A page that is changed while it is written is still to be written afterwards.
    ChangeDuringWriteStays,
    /// A piece's pages carry a version that was drawn for it, not its id.
    VersionsAreDrawn,
    /// The SSD level admits only pages whose seal, number and version were right.
    SsdAdmitsChecked,
    /// A read is admitted only where its extent was not voided meanwhile.
    SsdCountsDiscards,
    /// A slot is written only when it is at rest.
    SsdWritesAtRest,
    /// No reader finds a page in its slot before its write was answered.
    SsdWritesBeforeFound,
    /// A thread that drops a page leaves its slot alone where that is another page's.
    SsdDropsNamePages,
    /// Pages are voided before a write of them begins, and again after it.
    SsdVoidsWrites,
    /// A page that is known from a saved map only and is not there is a miss, and no fault of the SSD.
    SsdProvesSavedMaps,
}

impl thermocline_base::mutation::Switchable for Rule {
    fn number(self) -> u32 {
        self as u32
    }
}
