//! Checkpoints.
use std::sync::Arc;

use thermocline_base::sync::AtomicU64;

use crate::catalog::table::TableEntry;
use crate::db::Inner;
use crate::error::Result;

#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    pub(crate) completed: AtomicU64,
    pub(crate) begun: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) lost_volatile_session: bool,
}

impl Checkpoints {
    pub(crate) fn are_kept(&self) -> bool {
        false
    }
}

pub(crate) fn run(_inner: &Inner) {}
pub(crate) fn close(_inner: &Inner) -> Result<()> {
    Ok(())
}
impl Inner {
    pub(crate) fn write_definitions(&self) -> Result<()> {
        Ok(())
    }
    pub(crate) fn write_definitions_with(&self, _entry: &Arc<TableEntry>) -> Result<()> {
        Ok(())
    }
}
