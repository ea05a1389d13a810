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

    /// Takes so many more. None are had at any time, though more is in use than the limit allows.
    ///
    /// # Errors
    /// As [`Budget::charge`]; nothing is taken then.
    pub(crate) fn add(&mut self, bytes: u64) -> Result<(), OutOfMemory> {
        if bytes == 0 {
            return Ok(());
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_had_beyond_the_limit() {
        let budget = Arc::new(Budget::new(Some(1 << 20)));
        let mut all = Charge::none(&budget, MemoryKind::Transactions);
        all.add(900 << 10).expect("there is room");
        budget.set_limit(Some(512 << 10));
        let mut more = Charge::none(&budget, MemoryKind::Transactions);
        assert!(more.add(1).is_err());
        more.add(0).expect("nothing is asked for");
    }
}
