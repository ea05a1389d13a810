//! What can go wrong in the store. All errors can be cloned, since one failed sync has many waiters.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use thermocline_base::io::IoError;

use super::types::{BatchId, IndexId};
use crate::error::DeviceError;
use crate::page::PageError;
use crate::space::ClaimError;

/// The result of an operation on the store.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Why an operation on the store failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The system's error. Only what needed the operation failed; repeating it asks the device again.
    Io(IoError),
    /// The page file cannot be used.
    Device(DeviceError),
    /// A page of a table's index cannot be read: the device failed there, or the page is damaged. Other pages can.
    Page {
        /// Whose page it is.
        index: IndexId,
        /// Its number in the page file.
        number: u64,
        /// What is wrong.
        reason: PageReason,
    },
    /// A file of the store is damaged: restore it from a backup.
    Damaged {
        /// The file.
        path: Arc<PathBuf>,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The manifest describes pages that the page file cannot have.
    Claim(ClaimError),
    /// A file is none of ours.
    Foreign {
        /// The file.
        path: Arc<PathBuf>,
    },
    /// A file was written by a newer program.
    Newer {
        /// The file.
        path: Arc<PathBuf>,
        /// Its format.
        found: u32,
        /// The newest format that this program reads.
        supported: u32,
    },
    /// A file belongs to another database.
    OtherDatabase {
        /// The file.
        path: Arc<PathBuf>,
        /// The database that was asked for.
        expected: [u8; 16],
        /// The database that it belongs to.
        found: [u8; 16],
    },
    /// Another process, or another handle of this one, has the store open.
    InUse {
        /// The directory.
        path: Arc<PathBuf>,
    },
    /// There is no space for more. Reads go on, and writes do again as soon as there is space.
    Full(IoError),
    /// An earlier failure to make data durable was final: nobody knows what the disk holds. Reads go on; open the
    /// store again when the device is repaired.
    ReadOnly(Box<StoreError>),
    /// The store was closed.
    Closed,
    /// The key is longer than a key may be.
    KeyTooLong {
        /// Its length.
        bytes: usize,
        /// The longest one.
        max_bytes: usize,
    },
    /// The record is longer than a record may be.
    RecordTooLong {
        /// Its length.
        bytes: usize,
        /// The longest one.
        max_bytes: usize,
    },
    /// The batch as a whole is longer than a batch may be: split it.
    BatchTooLong {
        /// Its length.
        bytes: usize,
        /// The longest one.
        max_bytes: usize,
    },
    /// The batch is there already: a batch is written once.
    BatchExists(BatchId),
    /// No such batch waits for a decision.
    UnknownBatch(BatchId),
    /// Input of a bulk load that is not sorted, or repeats a key.
    NotSorted {
        /// The index.
        index: IndexId,
        /// Number of the entry in the input, from 0.
        entry: u64,
    },
    /// Options that make no sense.
    BadOption(&'static str),
}

/// What is wrong with a page.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PageReason {
    /// The device failed.
    Io(IoError),
    /// The bytes are not those of the page.
    Bytes(PageError),
    /// The page checks out, but what it holds makes no sense: a program error wrote it.
    Contents(&'static str),
    /// The file ends before the page.
    Cut,
}

struct Id<'a>(&'a [u8; 16]);

impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Page { index, number, reason } => {
                write!(f, "cannot read page {number} of {index}: ")?;
                match reason {
                    PageReason::Io(error) => error.fmt(f),
                    PageReason::Bytes(error) => error.fmt(f),
                    PageReason::Contents(what) => write!(f, "{what}; restore the store from a backup"),
                    PageReason::Cut => write!(f, "the file ends before it; restore the store from a backup"),
                }
            }
            Self::Damaged { path, offset, what } => write!(
                f,
                "{} is damaged at byte {offset}: {what}; restore the store from a backup",
                path.display()
            ),
            Self::Claim(error) => write!(f, "{error}; restore the store from a backup"),
            Self::Foreign { path } => {
                write!(f, "{} is no file of a store; name another directory", path.display())
            }
            Self::Newer { path, found, supported } => write!(
                f,
                "{} has format {found}, this program reads formats up to {supported}; use a newer program",
                path.display()
            ),
            Self::OtherDatabase { path, expected, found } => write!(
                f,
                "{} belongs to database {}, not to {}; put the right files there",
                path.display(),
                Id(found),
                Id(expected)
            ),
            Self::InUse { path } => {
                write!(f, "the store in {} is open already; close it there first", path.display())
            }
            Self::Full(error) => write!(f, "no space for more records ({error}); free some"),
            Self::ReadOnly(error) => write!(
                f,
                "the store is read-only since a failure left unknown what the disk holds ({error}); open it again \
                 when the device is repaired"
            ),
            Self::Closed => f.write_str("the store was closed"),
            Self::KeyTooLong { bytes, max_bytes } => {
                write!(f, "a key of {bytes} bytes is too long; keys have up to {max_bytes}")
            }
            Self::RecordTooLong { bytes, max_bytes } => {
                write!(f, "a record of {bytes} bytes is too long; records have up to {max_bytes}")
            }
            Self::BatchTooLong { bytes, max_bytes } => {
                write!(f, "a batch of {bytes} bytes is too long; split it below {max_bytes}")
            }
            Self::BatchExists(batch) => write!(f, "{batch} was written already; a batch is written once"),
            Self::UnknownBatch(batch) => write!(f, "{batch} does not wait for a decision"),
            Self::NotSorted { index, entry } => {
                write!(
                    f,
                    "entry {entry} of the bulk load into {index} is not above its predecessor; sort the input"
                )
            }
            Self::BadOption(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) | Self::Full(error) => Some(error),
            Self::Device(error) => Some(error),
            Self::Claim(error) => Some(error),
            Self::ReadOnly(error) => Some(&**error),
            Self::Page { reason: PageReason::Io(error), .. } => Some(error),
            Self::Page { reason: PageReason::Bytes(error), .. } => Some(error),
            _ => None,
        }
    }
}

impl From<IoError> for StoreError {
    fn from(error: IoError) -> Self {
        if error.is_full() { Self::Full(error) } else { Self::Io(error) }
    }
}

impl From<DeviceError> for StoreError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Io(error) => error.into(),
            error => Self::Device(error),
        }
    }
}

impl From<ClaimError> for StoreError {
    fn from(error: ClaimError) -> Self {
        Self::Claim(error)
    }
}

impl StoreError {
    /// Is the disk full? Freeing space helps.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }
}
