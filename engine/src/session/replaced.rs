//! Remains of changed definitions, kept until they can be freed.

use std::sync::Arc;

use thermocline_base::ids::{Lsn, TableId, Timestamp};
use thermocline_pool::store::IndexId as StoreIndex;

use crate::catalog::table::TableEntry;
use crate::txn::definitions::OwnForm;

/// A remain of a changed definition that is to be freed.
#[derive(Debug)]
pub(crate) enum Replaced {
    /// A form that no transaction begins to follow any more.
    Form(OwnForm),
    /// A dropped table, whose handles keep it.
    Table(Arc<TableEntry>),
    /// The log has to be durable up to here before this goes.
    Cold(Lsn, ColdGarbage),
}

/// Entries that go from the cold store.
#[derive(Clone, Debug)]
pub(crate) enum ColdGarbage {
    Table(TableId),
    Index(StoreIndex),
    /// The indexes' entries of batches up to this one.
    Batches(Vec<StoreIndex>, Timestamp),
}
