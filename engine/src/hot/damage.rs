//! Rows of a table that could not be read when the database was opened: which chunks they are of, and why.
//!
//! The keys of such rows are not known. So a look that finds a row by a unique key is right, and each operation that depends on a
//! row *not* being there is refused: looks that find nothing, scans, and every write. The images that the rows are in stay as they
//! are, and so does the log from before them: once the file is restored, all rows are there again.

use std::path::PathBuf;

use thermocline_base::sync::{AtomicBool, Mutex, Ordering};

/// A chunk of which rows are missing.
#[derive(Clone, Debug)]
pub(crate) struct DamagedChunk {
    pub(crate) chunk: u32,
    /// The file that they are in.
    pub(crate) file: PathBuf,
    /// The defect.
    pub(crate) what: String,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    is_there: AtomicBool,
    chunks: Mutex<Vec<DamagedChunk>>,
}

impl Damage {
    /// Are rows missing?
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }

    /// Rows of this chunk are missing.
    pub(crate) fn note(&self, chunk: DamagedChunk) {
        let mut chunks = self.chunks.lock();
        let at = chunks.partition_point(|known| known.chunk <= chunk.chunk);
        chunks.insert(at, chunk);
        self.is_there.store(true, Ordering::Relaxed);
    }

    /// The chunks, in order; one that has several defects several times.
    pub(crate) fn chunks(&self) -> Vec<DamagedChunk> {
        self.chunks.lock().clone()
    }
}
