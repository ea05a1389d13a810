//! The state of the checkpoints of an open database.

use thermocline_base::ids::Lsn;
use thermocline_base::sync::{AtomicU64, Mutex};

use super::Manifest;

/// The state of the checkpoints of an open database.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// The newest manifest and what the next one must not reuse; `None` for a database in memory.
    durable: Option<Mutex<Durable>>,
    /// Held while a checkpoint is made.
    turn: Mutex<()>,
    pub(crate) completed: AtomicU64,
    pub(crate) begun: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) lost_volatile_session: bool,
    /// Bytes of the log that the opening has read.
    pub(crate) replayed_bytes: u64,
    /// Memory of the buffers that backups copy through.
    pub(crate) copying_bytes: AtomicU64,
}

/// The newest manifest, and what the next one must not reuse.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(crate) manifest: Manifest,
    pub(crate) next_sequence: u64,
    pub(crate) next_file: u64,
    /// While backups copy files, none is removed: how many do.
    pub(crate) holds: u32,
    /// Files that are removed when the holds end: images and manifests.
    pub(crate) waiting: (Vec<u64>, Vec<u64>),
}

impl Checkpoints {
    /// Those of a database whose newest manifest is this one.
    pub(crate) fn of(manifest: Manifest, replayed_to: Lsn, lost_volatile_session: bool) -> Self {
        let replayed_bytes = replayed_to.0.saturating_sub(manifest.log_start.0);
        let durable = Durable {
            next_sequence: manifest.sequence + 1,
            next_file: manifest.next_file,
            manifest,
            holds: 0,
            waiting: Default::default(),
        };
        let durable = Some(Mutex::new(durable));
        Self { durable, lost_volatile_session, replayed_bytes, ..Self::default() }
    }

    /// The newest manifest, under its lock; `None` for a database in memory.
    pub(crate) fn durable(&self) -> Option<&Mutex<Durable>> {
        self.durable.as_ref()
    }

    /// Keeps others from making a checkpoint meanwhile.
    pub(crate) fn enter(&self) -> impl Drop {
        self.turn.lock()
    }

    /// Sequence of the newest manifest.
    pub(crate) fn newest_sequence(&self) -> u64 {
        self.durable.as_ref().map_or(0, |durable| durable.lock().manifest.sequence)
    }

    /// Does the database keep anything on disk?
    pub(crate) fn are_kept(&self) -> bool {
        self.durable.is_some()
    }
}
