//! Errors of the store. All errors can be cloned, since one failed sync has many waiters.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use thermocline_base::io::IoError;

use super::types::{BatchId, IndexId, KeyRange};
pub use crate::error::PageReason;
use crate::error::{DeviceError, PoolError, WrongFile};
use crate::space::ClaimError;
use crate::ssd::SsdError;

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
        /// Between which keys of the index those are that it has, if that is known.
        keys: Option<Box<KeyRange>>,
        /// The fault.
        reason: PageReason,
    },
    /// A page that leads to records cannot be read: fences and filters. They can be made again from the records, which
    /// opening the store does.
    Tail {
        /// Its number in the page file.
        number: u64,
        /// The fault.
        reason: PageReason,
    },
    /// A file of the store is damaged: restore it from a backup.
    Damaged {
        /// The file.
        path: Arc<PathBuf>,
        /// Where in it.
        offset: u64,
        /// The fault.
        what: &'static str,
    },
    /// There are no frames for the pages: no address space for them, or those that were given are of another length.
    Frames(PoolError),
    /// The manifest describes pages that the page file cannot have.
    Claim(ClaimError),
    /// The SSD cache cannot be used.
    Ssd(SsdError),
    /// A file is not the one that was asked for.
    File(WrongFile),
    /// Another process, or another handle of this one, has the store open.
    InUse {
        /// The directory.
        path: Arc<PathBuf>,
    },
    /// There is no space for more. Reads go on, and writes do again as soon as there is space.
    Full(IoError),
    /// An earlier failure to make data durable was final: what the disk holds is not known. Reads go on; open the
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
    /// The store keeps no such entries.
    Unsupported {
        /// The index.
        index: IndexId,
        /// The kind of entry that it does not keep, and what to do.
        what: &'static str,
    },
    /// The place of a key is taken: the record that another batch put there has not been removed yet. Nothing of the
    /// batch is there; write it again when that record is gone.
    Occupied {
        /// The index.
        index: IndexId,
        /// Whose record it is.
        predecessor: BatchId,
    },
    /// Options that make no sense.
    BadOption(&'static str),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Page { index, number, reason, .. } => {
                write!(f, "cannot read page {number} of {index}: {reason}")
            }
            Self::Tail { number, reason } => {
                write!(
                    f,
                    "cannot read page {number}, which has fences and a filter: {reason}; no row is lost by it"
                )
            }
            Self::Damaged { path, offset, what } => write!(
                f,
                "{} is damaged at byte {offset}: {what}; restore the store from a backup",
                path.display()
            ),
            Self::Frames(error) => error.fmt(f),
            Self::Ssd(error) => error.fmt(f),
            Self::Claim(error) => write!(f, "{error}; restore the store from a backup"),
            Self::File(error) => error.fmt(f),
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
            Self::Unsupported { index, what } => write!(f, "{index}: {what}"),
            Self::Occupied { index, predecessor } => write!(
                f,
                "a key of {index} still has the record of {predecessor}; write the batch again when that is cleaned"
            ),
            Self::BadOption(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) | Self::Full(error) => Some(error),
            Self::Device(error) => Some(error),
            Self::Ssd(error) => Some(error),
            Self::Claim(error) => Some(error),
            Self::Frames(error) => Some(error),
            Self::ReadOnly(error) => Some(&**error),
            Self::File(error) => Some(error),
            Self::Page { reason, .. } | Self::Tail { reason, .. } => reason.source(),
            _ => None,
        }
    }
}

impl From<IoError> for StoreError {
    fn from(error: IoError) -> Self {
        if error.is_full() { Self::Full(error) } else { Self::Io(error) }
    }
}

impl From<WrongFile> for StoreError {
    fn from(error: WrongFile) -> Self {
        Self::File(error)
    }
}

impl From<DeviceError> for StoreError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Io(error) => error.into(),
            DeviceError::File(error) => error.into(),
            error => Self::Device(error),
        }
    }
}

impl From<ClaimError> for StoreError {
    fn from(error: ClaimError) -> Self {
        Self::Claim(error)
    }
}

impl From<SsdError> for StoreError {
    fn from(error: SsdError) -> Self {
        Self::Ssd(error)
    }
}

impl From<PoolError> for StoreError {
    fn from(error: PoolError) -> Self {
        Self::Frames(error)
    }
}

impl From<PoolError> for PageReason {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Io(error) | PoolError::WriteBack(error) => Self::Io(error),
            PoolError::Page { reason, .. } => reason,
            other => unreachable!("the store has its device in the pool and waits for no frame: {other}"),
        }
    }
}

impl StoreError {
    /// Is the disk full? Freeing space helps.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }
}
