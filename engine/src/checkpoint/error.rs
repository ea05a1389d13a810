//! What can be wrong with the files of a checkpoint.

use std::fmt;
use std::path::PathBuf;

use thermocline_base::ids::{RowId, TableId};
use thermocline_base::io::IoError;

/// A file of a checkpoint, or the superblock, cannot be used.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub(crate) enum CheckpointError {
    /// Reading, writing or syncing failed. What was being written is not part of the database; the checkpoint before
    /// stays valid.
    Io(IoError),
    /// A row on the paged side cannot be read. What was being written is not part of the database.
    LostRow {
        /// Its table.
        table: TableId,
        /// Which.
        row: RowId,
    },
    /// The file's bytes are not what was written.
    Damaged {
        /// Which file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// The image of a chunk is not what was written.
    DamagedChunk {
        /// Which file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// The chunk's table.
        table: TableId,
        /// The chunk's number.
        chunk: u32,
        /// What is wrong.
        what: String,
    },
    /// The directory holds files, but no superblock.
    NotADatabase {
        /// The directory.
        dir: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// The file was written by a newer version of the program.
    Newer {
        /// Which file.
        file: PathBuf,
        /// Its format version.
        version: u32,
        /// The newest one that this program knows.
        known: u32,
    },
    /// The file belongs to another database.
    Foreign {
        /// Which file.
        file: PathBuf,
    },
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Damaged { file, offset, what } => write!(
                f,
                "{} is damaged at byte {offset}: {what}; restore the file or a backup",
                file.display()
            ),
            Self::LostRow { table, row } => write!(
                f,
                "row {row} of table {table} is on the paged side and cannot be read, so no new image of its chunk can be written; open \
                 the database again, which has all rows"
            ),
            Self::DamagedChunk { file, offset, table, chunk, what } => write!(
                f,
                "the image of chunk {chunk} of table {table} in {} is damaged at byte {offset}: {what}; restore the \
                 file or a backup",
                file.display()
            ),
            Self::NotADatabase { dir, found } => write!(
                f,
                "{} is not a Thermocline database: it holds {found} but no {}; give an empty or new directory",
                dir.display(),
                super::superblock::FILE
            ),
            Self::Newer { file, version, known } => write!(
                f,
                "{} has format {version}, this program knows up to {known}; use a newer one",
                file.display()
            ),
            Self::Foreign { file } => {
                write!(f, "{} belongs to another database; remove it from this directory", file.display())
            }
        }
    }
}

impl std::error::Error for CheckpointError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<IoError> for CheckpointError {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}
