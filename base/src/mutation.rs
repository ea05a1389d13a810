//! Rules of the protocols that a test can switch off.
//!
//! A rule that no test misses is a rule that nobody checks. Each variant names one rule of the transaction, pruning,
//! log or checkpoint protocol; [`off`] asks at the place of the rule whether it is switched off. Outside of builds
//! with the feature `model` the answer is the constant `false`, so the question costs nothing.
//!
//! A switch holds for the thread that set it, so tests run beside each other: a model-checked execution lives on one
//! operating-system thread, and the crash tests of a mutation drive the engine's steps from theirs.

/// A rule that a test build can switch off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum Rule {
    /// *Preparing* is published before the end timestamp is drawn (interleaving 1).
    PreparingBeforeTimestamp = 1,
    /// A reader waits for a preparing transaction whose timestamp it could see.
    WaitForPreparing,
    /// A commit is acknowledged only when the log is durable past it (2).
    AckAfterDurable,
    /// A read-only transaction is acknowledged when the log is durable up to its tail at the last snapshot (2).
    ReadOnlyAckAfterDurable,
    /// A snapshot's place is reserved before the clock is read (3).
    RegisterBeforeClock,
    /// An index entry goes only when no version of the chain has its key (4).
    EntryOutlivesKey,
    /// A savepoint's rollback keeps the read and scan sets (5).
    SavepointKeepsReads,
    /// The first updater wins.
    FirstUpdaterWins,
    /// Reads are validated at repeatable read and above.
    ValidateReads,
    /// Scans are validated at serializable.
    ValidateScans,
    /// A locker enters its lock before it looks for a writer (6).
    LockBeforeLook,
    /// A unique claim is made before the check.
    ClaimBeforeCheck,
    /// Who waits for a unique key has taken its own claim back.
    WaitWithoutClaim,
    /// Who undoes something tells those whose way it may have been in.
    UndoingIsTold,
    /// A row that refuses a key was read by who is refused.
    RefusalIsRead,
    /// Pruning keeps what an active snapshot can see.
    PruneKeepsSnapshots,
    /// The item of a parked version looks past settled versions, until it has passed its own.
    WaiterPassesSettled,
    /// Chain changes are made under the slot's latch.
    LatchChain,
    /// Freed memory waits for the epochs of its readers.
    RetireThroughEpoch,
    /// Readers of a bucket or node check its version again after reading.
    OptimisticRecheck,
    /// A packed chunk's old slots are marked as moved.
    PackMarksMoved,
    /// The log writes only the prefix that every appender has filled.
    LogWritesFilledPrefix,
    /// A chunk's replay position is noted before its timestamp is drawn (28).
    ReplayPositionBeforeTimestamp,
    /// A checkpoint is valid only once the log is durable past every timestamp that it images (27).
    CheckpointAfterLog,
    /// A log record's checksum is bound to its position and generation (30).
    ChecksumBindsPosition,
    /// The first failure of a sync is final (31).
    SyncFailureIsFinal,
    /// Who changes a definition holds the table before it looks for transactions that use it.
    HoldBeforeLook,
    /// A transaction enters its mark for a table before it looks whether the table is held.
    MarkBeforeLook,
    /// A new table is held until a manifest has it.
    TableDurableBeforeUse,
    /// A change of a definition is in a manifest only once the log is durable up to everything committed before.
    DefinitionAfterLog,
    /// An idle transaction that is aborted loses its place only after its writes are undone.
    IdleAbortUndoesFirst,
    /// A batch of the cold store is merged with others only when its owner has confirmed it.
    MergeOnlyConfirmed,
    /// A piece's extents are free only when the manifest without it is durable.
    FreeAfterManifest,
    /// A removal vanishes only with its entry, or where nothing older can be.
    RemovalVanishesWithEntry,
    /// A piece's filter is built from all of its entries, removals too (24).
    FilterOfAllEntries,
    /// A journal segment is used again only when all that it holds is in pieces.
    SegmentOutlivesBatches,
    /// A batch that was decided about while it was written as a piece is not entered as one that waits.
    SpillLooksAgain,
    /// A batch in memory can be seen only when all of its entries can be found.
    BatchPublishedLast,
    /// Who reads a block in memory passes over entries of batches that cannot be seen yet.
    ReaderPassesUnpublished,
    /// What is flushed leaves memory and enters the leaves at once.
    FlushSwitchesAtOnce,
    /// A screen says maybe to all keys of the pieces behind it.
    ScreenOfAllEntries,
    /// A confirmed batch is in its block before it stops waiting.
    ConfirmTakesInFirst,
    /// A leaf of which a merge leaves nothing stays between its neighbours.
    EmptyLeafStays,
    /// What readers of the store see is changed by one at a time.
    VersionChangesUnderControl,
    /// A batch is acknowledged, and quiescent, only when it has taken effect.
    AckAfterEffect,
    /// Who awaits a promise is entered before it can be kept unseen.
    PromiseEntersUnderLock,
    /// A thread notes how often it was called before it looks for work.
    HeardBeforeLook,
    /// A removal that says *last* ends a read only behind the structure that it was found in.
    LastEndsBehindStructure,
    /// A pinned page stays in its frame.
    PinnedPageStays,
    /// Who has pinned a slot looks whether it is still the page's.
    PinComparesPage,
    /// Who gives the last pin of a page back looks for those who wait.
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
    /// A record of an access ring is whole before the tail passes it.
    AccessRingFillsBeforeTail,
    /// The writer of an access ring uses a slot again only when the reader's head has passed it.
    AccessRingWaitsForReader,
    /// The reader of an access ring moves its head only when it has read what is behind it.
    AccessRingReadsBeforeHead,
    /// The check of a unique key looks into memory and into the cold store at one time (18).
    ColdClaimAtOneTime,
    /// A moved mark says when the version had begun that moved (10, 11).
    MarkKeepsBegin,
    /// Two who end one record collide (19).
    EndsCollide,
    /// Nothing is written to the cold store before the log is durable past its notice (25).
    ColdWriteAfterLog,
    /// A record is removed only when the log is durable past its end (26).
    RemovalAfterLog,
    /// The store is told that a batch stays only when the log is durable past its move.
    ConfirmAfterLog,
    /// At the start the batches of notices that still say N are discarded (29).
    RecoveryDiscards,
    /// After a crash of a session without a log, all is forgotten of a database with a cold store.
    VolatileForgets,
    /// What a backup copies of a store of pages is what was there when the log was cut (32).
    BackupPinsAtTheCut,
    /// A backup cuts the log while no row moves (32).
    BackupPausesMoves,
    /// No record is removed while a backup copies the cold store (32).
    BackupPausesRemovals,
    /// What was in the cold store before a table was emptied is not in it (`since`).
    EmptiedForGood,
    /// What is younger than a transaction that will validate its scans stays in memory.
    YoungStay,
    /// While a snapshot older than a move lives, the row does not move again (11).
    MovesOnce,
    /// The record of a row that has left its batch ends with the move (16).
    LeaversEnd,
    /// A notice is dropped only when no snapshot is older than the removal of its record (22).
    NoticeOutlivesReaders,
    /// A record is removed only when no snapshot is older than its end.
    RecordOutlivesReaders,
    /// A batch's write is not in flight any more when it is discarded (21).
    DiscardAfterWrite,
    /// A promoted version is no phantom (12).
    PromotedIsNoPhantom,
    /// A promoted version is visible from the promotion on, not from the begin of the record (13).
    PromotedBeginsLater,
    /// Memory and the cold store are looked into at one time (17).
    BothLooksAtOneTime,
    /// To who is older than a batch's notice its records are not there (8).
    OlderThanNotice,
    /// A notice is dropped later than its record is removed (23).
    NoticeAfterRecord,
    /// What was read from the cold store is forgotten with the snapshot (17, 22).
    CacheEndsWithSnapshot,
    /// A batch has failed only if it does not run any more and its notice says N then.
    FailedRunsNoMore,
    /// A dropped notice of a batch hides nothing, whatever stands below in its chain.
    DroppedIsThere,
    /// Of several notices of one end, of which all but one are about to be taken back, the one that counts is found.
    AllEndsCount,
    /// Levels that validate ask the memo again for every record that was read (20).
    ValidationProbesAgain,
    /// Nobody takes a mark away whose mover is not decided (14).
    MarksAreNotStolen,
    /// Who needs a row that is being moved waits that moment out, whether he waits for transactions or not (15).
    MovesAreWaitedOut,
    /// The check of a unique key asks for a batch's begin before its records' ends (18).
    BeginBeforeEnd,
    /// A move is counted before it draws its timestamp (18).
    MovesCountedFirst,
    /// Readers are told of cold rows before the first ones move.
    ColdBeforeMove,
    /// Who ends a record looks for locks of its row (6).
    EndLooksForLocks,
    /// Ends stay while a snapshot lives that is older (10).
    EndOutlivesFollowers,
    /// Who waits for a transaction knows how often that had undone something before he found it in his way.
    CountBeforeLook,
    /// A row that has refused a key to who validates reads, and that is younger than his snapshot, stays in memory.
    RefusersStay,
    /// … even if it was about to move.
    RefusersStayLate,
    /// What a held snapshot does not see leaves memory beside it (33).
    NewRowsLeave,
    /// A snapshot is cancelled when nothing is left but what it sees (33).
    PinnedGivesWay,
    /// Who waits for memory that he keeps himself is refused (34).
    NobodyWaitsForHimself,
    /// A read of a block is joined only until the block has been written (22).
    ReadsEndWithWrites,
}

#[cfg(feature = "model")]
mod switch {
    use super::Rule;
    use std::cell::Cell;

    thread_local! {
        static OFF: Cell<Option<Rule>> = const { Cell::new(None) };
    }

    /// Keeps a rule switched off until it is dropped.
    #[derive(Debug)]
    #[must_use = "the rule is on again when this is dropped"]
    pub struct SwitchedOff(());

    /// Switches `rule` off on the calling thread for as long as the guard lives.
    pub fn switch_off(rule: Rule) -> SwitchedOff {
        assert!(OFF.replace(Some(rule)).is_none(), "one mutation at a time");
        SwitchedOff(())
    }

    impl Drop for SwitchedOff {
        fn drop(&mut self) {
            OFF.set(None);
        }
    }

    /// Is `rule` switched off?
    #[must_use]
    pub fn off(rule: Rule) -> bool {
        OFF.get() == Some(rule)
    }
}

#[cfg(feature = "model")]
pub use switch::{SwitchedOff, off, switch_off};

/// Is `rule` switched off? Always `false` outside of model builds.
#[cfg(not(feature = "model"))]
#[inline(always)]
#[must_use]
pub const fn off(_rule: Rule) -> bool {
    false
}
