//! The files of a database: where they lie, the id that they carry, the log, and how far each was durable at the start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_base::ids::Lsn;
use thermocline_base::io::Io;
use thermocline_pool::store::StoreEnd;

use crate::checkpoint::Ends;
use crate::log::Log;

/// See the module. What opens a database fills it in; from then on nothing of it changes.
pub(crate) struct Files {
    io: Arc<dyn Io>,
    dir: PathBuf,
    id: [u8; 16],
    log: Option<Log>,
    log_end: Lsn,
    ends: Option<Arc<Ends>>,
    store_least: StoreEnd,
}

impl Files {
    /// Files in a directory, with a fresh id and no log.
    pub(crate) fn new(io: Arc<dyn Io>, dir: PathBuf) -> Self {
        let id = thermocline_base::rng::fresh_id();
        Self { io, dir, id, log: None, log_end: Lsn(0), ends: None, store_least: StoreEnd::default() }
    }

    /// What reads and writes them.
    pub(crate) fn io(&self) -> &Arc<dyn Io> {
        &self.io
    }

    /// The directory of the database.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The id that all files of the database carry.
    pub(crate) fn id(&self) -> [u8; 16] {
        self.id
    }

    /// The log, unless the database keeps none.
    #[inline]
    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    /// The end of the log when the database was opened.
    pub(crate) fn log_end(&self) -> Lsn {
        self.log_end
    }

    /// The memory of the ends of log and cold store; none while nothing is written.
    pub(crate) fn ends(&self) -> Option<&Arc<Ends>> {
        self.ends.as_ref()
    }

    /// The end up to which the cold store had been durable, as was found when the database was opened.
    pub(crate) fn store_least(&self) -> StoreEnd {
        self.store_least
    }

    /// Notes the id that the superblock has.
    pub(crate) fn found_id(&mut self, id: [u8; 16]) {
        self.id = id;
    }

    /// Notes where the log ends.
    pub(crate) fn found_log_end(&mut self, end: Lsn) {
        self.log_end = end;
    }

    /// Notes the end up to which the cold store has to be there.
    pub(crate) fn found_store(&mut self, least: StoreEnd) {
        self.store_least = least;
    }

    /// Keeps the ends of log and cold store from now on.
    pub(crate) fn keep_ends(&mut self, ends: Arc<Ends>) {
        self.ends = Some(ends);
    }

    /// Keeps a log from now on.
    pub(crate) fn keep_log(&mut self, log: Log) {
        self.log = Some(log);
    }
}
