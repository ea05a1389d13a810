//! The longest time that the operations of a transaction wait for other transactions.

/// The limit of a transaction's waits. All waits of one operation count together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitLimit {
    /// In nanoseconds; none: as long as it takes.
    limit_ns: Option<u64>,
    /// The time on the database's clock at which the operation that is under way ends waiting, once it has waited.
    until_ns: Option<u64>,
}

impl WaitLimit {
    pub(crate) fn new(limit_ns: Option<u64>) -> Self {
        Self { limit_ns, until_ns: None }
    }

    /// Forgets the waits of the operation before.
    #[inline]
    pub(crate) fn begin_operation(&mut self) {
        self.until_ns = None;
    }

    /// The limit, in nanoseconds.
    pub(crate) fn limit_ns(self) -> Option<u64> {
        self.limit_ns
    }

    /// Begins to count, or goes on: the end of the operation's waits.
    pub(crate) fn until_ns(&mut self, now_ns: u64) -> Option<u64> {
        let limit_ns = self.limit_ns?;
        Some(*self.until_ns.get_or_insert(now_ns.saturating_add(limit_ns)))
    }
}
