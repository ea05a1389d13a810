//! What a row handle consists of; [`crate::ops::handle`] finds rows by them.

use thermocline_base::ids::{RowId, TableId};

use crate::cold::memo::RecordName;
use crate::session::Turn;

/// Names a row that a read or scan of a [`Statement`](crate::Statement) has shown.
///
/// It is good for the transaction that it was given by, as long as the snapshot is held: at read committed for the rest of the
/// statement, at the other levels to the end of the transaction.
#[derive(Clone, Debug)]
pub struct RowHandle {
    pub(crate) stamp: Stamp,
    pub(crate) place: HandlePlace,
}

/// Where the snapshot sees the row.
#[derive(Clone, Debug)]
pub(crate) enum HandlePlace {
    Memory(RowId),
    Cold(RecordName, Box<[u8]>),
    /// In memory, where it has refused a key, whether the snapshot sees it or not.
    Refusing(RowId),
    /// The same of a record.
    RefusingCold(RecordName, Box<[u8]>),
}

/// What a handle is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) table: TableId,
    /// The storage of the table's rows, which emptying replaces.
    pub(crate) storage: TableId,
    pub(crate) turn: Turn,
    pub(crate) snapshot: u64,
}
