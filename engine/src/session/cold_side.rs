//! The cold side of a database: memo and store, where the store lies, and the copies that backups make of it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use thermocline_base::io::Io;
use thermocline_base::sync::Mutex;

use crate::cold::Cold;
use crate::cold::memo::Memo;
use crate::cold::store::ColdStore;

/// See the module. Memo and store are made when the first row leaves memory, or when they are found at the start.
pub(crate) struct ColdSide {
    memo: OnceLock<Memo>,
    store: OnceLock<Cold>,
    io: Arc<dyn Io>,
    dir: PathBuf,
    copies: Mutex<Vec<Arc<dyn ColdStore>>>,
}

impl ColdSide {
    /// A side without memo and store. Workers wait for reads of the store, so `io` must not read on the calling thread.
    pub(crate) fn new(io: Arc<dyn Io>, dir: PathBuf) -> Self {
        Self { memo: OnceLock::new(), store: OnceLock::new(), io, dir, copies: Mutex::default() }
    }

    /// The memo, if there is one.
    #[inline]
    pub(crate) fn memo(&self) -> Option<&Memo> {
        self.memo.get()
    }

    /// The memo; `memo` becomes it if there is none.
    pub(crate) fn keep_memo(&self, memo: Memo) -> &Memo {
        self.memo.get_or_init(|| memo)
    }

    /// The cold store, if it is open.
    #[inline]
    pub(crate) fn get(&self) -> Option<&Cold> {
        self.store.get()
    }

    /// The cold store; `cold` becomes it if none is open.
    pub(crate) fn keep(&self, cold: Cold) -> &Cold {
        self.store.get_or_init(|| cold)
    }

    /// What reads and writes the store's files.
    pub(crate) fn io(&self) -> &Arc<dyn Io> {
        &self.io
    }

    /// The directory of the store.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Notes where the store lies.
    pub(crate) fn found_dir(&mut self, dir: PathBuf) {
        self.dir = dir;
    }

    /// Stores that backups are being written to.
    pub(crate) fn copies(&self) -> &Mutex<Vec<Arc<dyn ColdStore>>> {
        &self.copies
    }
}
