//! Memory that is charged as long as something lives.

use std::sync::Arc;

use super::{Budget, MemoryKind, OutOfMemory};

/// Bytes of one kind, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    kind: MemoryKind,
    bytes: u64,
}

impl Charge {
    /// None so far.
    pub(crate) fn none(budget: &Arc<Budget>, kind: MemoryKind) -> Self {
        Self { budget: Arc::clone(budget), kind, bytes: 0 }
    }

    /// So many bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes so many more.
    ///
    /// # Errors
    /// As [`Budget::charge`]; nothing is taken then.
    pub(crate) fn add(&mut self, bytes: u64) -> Result<(), OutOfMemory> {
        self.budget.charge(self.kind, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// The same for what frees memory.
    ///
    /// # Errors
    /// As [`Budget::charge_reserve`]; nothing is taken then.
    pub(crate) fn add_from_reserve(&mut self, bytes: u64) -> Result<(), OutOfMemory> {
        self.budget.charge_reserve(self.kind, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Gives so many back, at most all.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.budget.release(self.kind, bytes);
        self.bytes -= bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.release(self.kind, self.bytes);
    }
}
