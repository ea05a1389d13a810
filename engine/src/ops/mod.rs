//! Operations: one file each, its whole control flow readable top-down. Operations decide; the other modules do.
//!
//! Each operation is a synchronous step (`try_…`) that either finishes or says what it has to wait for ([`Step`]);
//! [`crate::Transaction`] awaits in between and tries again. No pointer into version memory survives a step.

pub(crate) mod ahead;
pub(crate) mod backfill;
pub(crate) mod backup;
pub(crate) mod backup_rows;
pub(crate) mod change;
pub(crate) mod checkpoint;
pub(crate) mod claim;
pub(crate) mod clean;
pub(crate) mod cold;
pub(crate) mod columns;
pub(crate) mod commit;
pub(crate) mod cursor;
pub(crate) mod define;
pub(crate) mod drive;
pub(crate) mod freeze;
pub(crate) mod handle;
pub(crate) mod handles;
pub(crate) mod hold;
pub(crate) mod leave;
pub(crate) mod load;
pub(crate) mod lock;
pub(crate) mod maintain;
pub(crate) mod memory;
pub(crate) mod migrate;
pub(crate) mod minimum;
pub(crate) mod page;
pub(crate) mod progress;
pub(crate) mod promote;
pub(crate) mod prune;
pub(crate) mod read;
pub(crate) mod recover;
pub(crate) mod restore;
pub(crate) mod rollback;
pub(crate) mod scan;
pub(crate) mod statement;
pub(crate) mod target;
pub(crate) mod temperatures;
pub(crate) mod verify;
pub(crate) mod verify_rows;
pub(crate) mod write;

use std::sync::Arc;

use crate::catalog::table::TableEntry;
use crate::hot::budget::OutOfMemory;
use crate::hot::paged::Absent;
use crate::hot::version::TxnId;

/// What a step came to.
#[derive(Debug)]
pub(crate) enum Step<T> {
    /// Finished.
    Done(T),
    /// To be tried again after this.
    Wait(Wait),
}

/// What a step has to wait for.
#[derive(Debug)]
pub(crate) enum Wait {
    /// Another transaction holds the row; the caller may refuse to wait. It had undone something `since` times then.
    Holder { id: TxnId, since: u32, table: String, key: String },
    /// A transaction is being decided this moment; nobody refuses that.
    Decision(TxnId),
    /// The table's definition is being changed.
    Held(Arc<TableEntry>),
    /// Room in the log.
    LogSpace { payload: u64 },
    /// Memory for what the transaction remembers, which was refused at first at this time (ns).
    Room { refused: OutOfMemory, since: u64 },
    /// A read of the cold store.
    Cold(cold::ColdWait),
    /// Pages of the paged side.
    Page(Box<PageWait>),
    /// The next entry of the scan of the cold store that is part of the scan.
    ColdScan,
}

/// What is missing of a row on the paged side.
#[derive(Debug)]
pub(crate) struct PageWait {
    pub(crate) table: String,
    pub(crate) absent: Absent,
}

/// Unwraps a step, or hands the wait up.
macro_rules! step {
    ($step:expr) => {
        match $step {
            $crate::ops::Step::Done(value) => value,
            $crate::ops::Step::Wait(wait) => return Ok($crate::ops::Step::Wait(wait)),
        }
    };
}
pub(crate) use step;
