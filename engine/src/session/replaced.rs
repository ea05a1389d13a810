//! What changes of definitions leave behind until nobody needs it any more.

use std::sync::Arc;

use thermocline_base::ids::{Lsn, TableId, Timestamp};
use thermocline_pool::store::IndexId as StoreIndex;

use crate::catalog::table::TableEntry;
use crate::txn::definitions::OwnForm;

/// What changes of definitions have left to be freed.
#[derive(Debug)]
pub(crate) enum Replaced {
    /// A form that nobody begins to follow any more.
    Form(OwnForm),
    /// A dropped table, whose handles keep it.
    Table(Arc<TableEntry>),
    /// The log has to be durable up to here before this goes.
    Cold(Lsn, ColdGarbage),
}

/// What goes from the cold store.
#[derive(Clone, Debug)]
pub(crate) enum ColdGarbage {
    Table(TableId),
    Index(StoreIndex),
    /// What the indexes have of batches up to this one.
    Batches(Vec<StoreIndex>, Timestamp),
}
