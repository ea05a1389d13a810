//! Rules of the engine that a test can switch off: see [`thermocline_base::mutation`].

#[cfg(feature = "model")]
pub use thermocline_base::mutation::{SwitchedOff, switch_off};
pub use thermocline_base::mutation::{off, on};

/// A rule of the engine that a test build can switch off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum Rule {
    /// *Preparing* is published before the end timestamp is drawn.
    PreparingBeforeTimestamp = 300,
    /// A reader waits for a preparing transaction whose timestamp it could see.
    WaitForPreparing,
    /// A commit is acknowledged only when the log is durable past it.
    AckAfterDurable,
    /// A read-only transaction is acknowledged when the log is durable up to its tail at the last snapshot.
    ReadOnlyAckAfterDurable,
    /// A snapshot's place is reserved before the clock is read.
    RegisterBeforeClock,
    /// An index entry goes only when no version of the chain has its key.
    EntryOutlivesKey,
    /// A savepoint's rollback keeps the read and scan sets.
    SavepointKeepsReads,
    /// The first updater wins.
    FirstUpdaterWins,
    /// Reads are validated at repeatable read and above.
    ValidateReads,
    /// Scans are validated at serializable.
    ValidateScans,
    /// A locker enters its lock before it looks for a writer.
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
    /// Readers of a bucket or node check its version again after reading.
    OptimisticRecheck,
    /// A packed chunk's old slots are marked as moved.
    PackMarksMoved,
    /// The log writes only the prefix that every appender has filled.
    LogWritesFilledPrefix,
    /// A chunk's replay position is noted before its timestamp is drawn.
    ReplayPositionBeforeTimestamp,
    /// A checkpoint is valid only once the log is durable past every timestamp that it images.
    CheckpointAfterLog,
    /// The first failure of a sync is final.
    SyncFailureIsFinal,
    /// Who changes a definition holds the table before it looks for transactions that use it.
    HoldBeforeLook,
    /// A transaction enters its mark for a table before it looks whether the table is held.
    MarkBeforeLook,
    /// Replay makes a table before it fills it.
    DefinedBeforeFilled,
    /// A manifest has a change of a definition only once the log is durable past its commit.
    DefinitionAfterLog,
    /// An idle transaction that is aborted loses its place only after its writes are undone.
    IdleAbortUndoesFirst,
    /// The check of a unique key looks into memory and into the cold store at one time.
    ColdClaimAtOneTime,
    /// A moved mark says when the version had begun that moved.
    MarkKeepsBegin,
    /// Two who end one record collide.
    EndsCollide,
    /// Nothing is written to the cold store before the log is durable past its notice.
    ColdWriteAfterLog,
    /// A record is removed only when the log is durable past its end.
    RemovalAfterLog,
    /// The store is told that a batch stays only when the log is durable past its move.
    ConfirmAfterLog,
    /// At the start the batches of notices that still say N are discarded.
    RecoveryDiscards,
    /// After a crash of a session without a log, all is forgotten of a database with a cold store.
    VolatileForgets,
    /// What a backup copies of a store of pages is what was there when the log was cut.
    BackupPinsAtTheCut,
    /// A backup cuts the log while no row moves.
    BackupPausesMoves,
    /// No record is removed while a backup copies the cold store.
    BackupPausesRemovals,
    /// What was in the cold store before a table was emptied is not in it (`since`).
    EmptiedForGood,
    /// What is younger than a transaction that will validate its scans stays in memory.
    YoungStay,
    /// While a snapshot older than a move lives, the row does not move again.
    MovesOnce,
    /// The record of a row that has left its batch ends with the move.
    LeaversEnd,
    /// A notice is dropped only when no snapshot is older than the removal of its record.
    NoticeOutlivesReaders,
    /// A record is removed only when no snapshot is older than its end.
    RecordOutlivesReaders,
    /// A batch's write is not in flight any more when it is discarded.
    DiscardAfterWrite,
    /// A promoted version is no phantom.
    PromotedIsNoPhantom,
    /// A promoted version is visible from the promotion on, not from the begin of the record.
    PromotedBeginsLater,
    /// Memory and the cold store are looked into at one time.
    BothLooksAtOneTime,
    /// To who is older than a batch's notice its records are not there.
    OlderThanNotice,
    /// A notice is dropped later than its record is removed.
    NoticeAfterRecord,
    /// What was read from the cold store is forgotten with the snapshot.
    CacheEndsWithSnapshot,
    /// A batch has failed only if it does not run any more and its notice says N then.
    FailedRunsNoMore,
    /// A dropped notice of a batch hides nothing, whatever stands below in its chain.
    DroppedIsThere,
    /// Of several notices of one end, of which all but one are about to be taken back, the one that counts is found.
    AllEndsCount,
    /// Levels that validate ask the memo again for every record that was read.
    ValidationProbesAgain,
    /// Nobody takes a mark away whose mover is not decided.
    MarksAreNotStolen,
    /// Who needs a row that is being moved waits that moment out, whether he waits for transactions or not.
    MovesAreWaitedOut,
    /// The check of a unique key asks for a batch's begin before its records' ends.
    BeginBeforeEnd,
    /// A move is counted before it draws its timestamp.
    MovesCountedFirst,
    /// Readers are told of cold rows before the first ones move.
    ColdBeforeMove,
    /// Who ends a record looks for locks of its row.
    EndLooksForLocks,
    /// Ends stay while a snapshot lives that is older.
    EndOutlivesFollowers,
    /// Who waits for a transaction knows how often that had undone something before he found it in his way.
    CountBeforeLook,
    /// A row that has refused a key to who validates reads, and that is younger than his snapshot, stays in memory.
    RefusersStay,
    /// … even if it was about to move.
    RefusersStayLate,
    /// What a held snapshot does not see leaves memory beside it.
    NewRowsLeave,
    /// A snapshot is cancelled when nothing is left but what it sees.
    PinnedGivesWay,
    /// Who waits for memory that he keeps himself is refused.
    NobodyWaitsForHimself,
    /// A read of a block is joined only until the block has been written.
    ReadsEndWithWrites,
    /// A frozen word names its block by a number that is given once.
    BlocksAreNotMistaken,
    /// Frozen words say *moved* before their piece is replaced.
    FrozenMarksMoved,
    /// A slot that a scan by column takes without a visit leads to a version that has begun for the snapshot.
    PlainSlotsHaveBegun,
    /// Rows of a chunk that is being filled go over from pieces alone whose slots cannot be filled any more.
    SlotsAreFilledFirst,
    /// A row that is thawed keeps its begin.
    ThawKeepsBegin,
    /// Two begins at or before a transaction's snapshot are one to its validation.
    OldBeginsAreOne,
    /// Begins of frozen rows stay until every snapshot is as new as the youngest.
    BeginsOutliveSnapshots,
    /// Of a block whose rows have left the entries go of those rows that say so.
    EntriesOfLeftGo,
    /// Rows that have left stay in memory until no snapshot is older than that.
    LeftOutlivesReaders,
    /// A chunk that leaves is marked as changed before the record of that is whole.
    LeftIsDirty,
    /// A statement passes over the versions and notices that it has written itself.
    StatementPassesOwn,
    /// A statement keeps its snapshot to its end.
    StatementKeepsSnapshot,
    /// An own version that an open statement or cursor sees is not replaced in place.
    OwnVersionOutlivesViews,
    /// The notice of an end names the row that goes on.
    EndNamesSuccessor,
    /// A removal over an own version looks for locks after it stands.
    OwnRemovalLooksForLocks,
    /// A key share compares the unique keys of all versions down to the one that was seen.
    KeyShareComparesKeys,
    /// A trail that ends without a delete is lost, not a deleted row.
    LostIsNotGone,
    /// Who uses a table is in nobody's way who changes another one whose mark has the same bit.
    MarksAreExact,
    /// A batch of cold rows adds the ranges of its keys before it is written.
    RangeBeforeWrite,
}

impl thermocline_base::mutation::Switchable for Rule {
    fn number(self) -> u32 {
        self as u32
    }
}
