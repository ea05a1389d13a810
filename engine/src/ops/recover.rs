//! Recovery.
use std::path::Path;
use std::sync::Arc;

use thermocline_base::clock::Clock;
use thermocline_base::epoch::Epochs;
use thermocline_base::ids::Timestamp;
use thermocline_base::io::{Io, LockGuard};
use thermocline_base::sync::{AtomicBool, AtomicU64, Mutex};

use crate::catalog::Catalog;
use crate::counters::Counters;
use crate::db::Inner;
use crate::error::Result;
use crate::hot::budget::Budget;
use crate::options::Options;
use crate::txn::locks::Locks;
use crate::txn::prune::Garbage;
use crate::txn::registry::Registry;

pub(crate) fn open(
    path: &Path,
    options: Options,
    io: Arc<dyn Io>,
    clock: Arc<dyn Clock>,
) -> Result<(Arc<Inner>, Option<LockGuard>)> {
    let limit =
        options.memory_limit.or_else(|| thermocline_base::vm::available_memory().map(|bytes| bytes / 5 * 4));
    Ok((
        Arc::new(Inner {
            epochs: Arc::new(Epochs::new()),
            budget: Arc::new(Budget::new(limit)),
            registry: Registry::new(Timestamp(0)),
            locks: Locks::new(),
            garbage: Garbage::new(),
            counters: Counters::new(),
            catalog: Catalog::default(),
            log: None,
            io,
            clock,
            dir: path.to_path_buf(),
            maintenance: Mutex::new(()),
            definition: Mutex::new(()),
            checkpoints: Default::default(),
            sessions: (0..64).map(|_| Default::default()).collect(),
            numbers: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            options,
        }),
        None,
    ))
}
