//! What can go wrong with the log.

use std::fmt;
use std::path::PathBuf;

use thermocline_base::ids::Lsn;
use thermocline_base::io::IoError;

/// The log cannot do what it was asked to. Cheap to clone: one failed sync has many waiters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub(crate) enum LogError {
    /// A write or a sync failed. Final: nobody knows which of the bytes before it are on the device (interleaving
    /// 31). Reads go on; a restart recovers what is there.
    Failed(IoError),
    /// There is no space on disk for more of the log. Goes away by itself once there is.
    DiskFull(IoError),
    /// The log has been closed.
    Closed,
    /// The thread that flushes has panicked: a broken invariant, told in its message.
    FlusherDied,
    /// A file could not be read, listed or opened.
    Io(IoError),
    /// Bytes that were durable are not what was written.
    Damaged {
        /// Which file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// The position in the log.
        lsn: Lsn,
        /// What is wrong, and how it is known that something valid was there.
        what: String,
    },
    /// A segment that recovery needs is not there.
    Missing {
        /// The directory of the log.
        dir: PathBuf,
        /// The position that no segment has.
        lsn: Lsn,
    },
    /// The segment was written by a newer version of the program.
    Newer {
        /// Which file.
        file: PathBuf,
        /// Its format version.
        version: u32,
        /// The newest one that this program knows.
        known: u32,
    },
    /// The segment belongs to another database.
    Foreign {
        /// Which file.
        file: PathBuf,
    },
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => write!(
                f,
                "the log failed and takes no more commits: {error}; the database is read-only until it is \
                 reopened on a sound device"
            ),
            Self::DiskFull(error) => {
                write!(f, "no space for the log: {error}; free some, commits go on by themselves then")
            }
            Self::Closed => f.write_str("the log is closed"),
            Self::FlusherDied => f.write_str(
                "the log's flusher panicked (see its message above) and takes no more commits; reopen the database",
            ),
            Self::Io(error) => write!(f, "the log is not accessible: {error}"),
            Self::Damaged { file, offset, lsn, what } => write!(
                f,
                "log file {} is damaged at byte {offset} (log position {lsn}): {what}; restore a backup",
                file.display()
            ),
            Self::Missing { dir, lsn } => write!(
                f,
                "no log segment in {} holds position {lsn}, which recovery needs; restore the file or a backup",
                dir.display()
            ),
            Self::Newer { file, version, known } => write!(
                f,
                "log file {} has format {version}, this program knows up to {known}; use a newer one",
                file.display()
            ),
            Self::Foreign { file } => write!(
                f,
                "log file {} belongs to another database; remove it from this directory",
                file.display()
            ),
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(error) | Self::DiskFull(error) | Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<IoError> for LogError {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}
