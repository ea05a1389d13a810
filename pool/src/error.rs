//! Errors of the page pool. All errors can be cloned, since one read has many waiters.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use thermocline_base::io::IoError;

use crate::page::{BadPageSize, PageError, PageSize};

/// A file that is not the one that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WrongFile {
    /// The file is none of ours.
    Foreign {
        /// The file.
        path: Arc<PathBuf>,
    },
    /// The file was written by a newer program.
    Newer {
        /// The file.
        path: Arc<PathBuf>,
        /// Its format.
        found: u32,
        /// The newest format that this program reads.
        supported: u32,
    },
    /// The file was written by an older program, in a format that is not read any more.
    Older {
        /// The file.
        path: Arc<PathBuf>,
        /// Its format.
        found: u32,
        /// The oldest format that this program reads.
        supported: u32,
    },
    /// The file belongs to another database.
    OtherDatabase {
        /// The file.
        path: Arc<PathBuf>,
        /// The database that was asked for.
        expected: [u8; 16],
        /// The database that it belongs to.
        found: [u8; 16],
    },
}

struct Id<'a>(&'a [u8; 16]);

impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for WrongFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign { path } => {
                write!(f, "{} is no file of Thermocline's cold store; name another path", path.display())
            }
            Self::Newer { path, found, supported } => write!(
                f,
                "{} has format {found}, this program reads formats up to {supported}; use a newer program",
                path.display()
            ),
            Self::Older { path, found, supported } => write!(
                f,
                "{} has format {found}, this program reads formats from {supported} on; use the program that wrote it",
                path.display()
            ),
            Self::OtherDatabase { path, expected, found } => write!(
                f,
                "{} belongs to database {}, not to {}; put the right file there",
                path.display(),
                Id(found),
                Id(expected)
            ),
        }
    }
}

impl std::error::Error for WrongFile {}

/// Why a page cannot be read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PageReason {
    /// The device failed. Repeating the operation asks it again.
    Io(IoError),
    /// The bytes are not those of the page: it was damaged, lost, or is of another time.
    Bytes(PageError),
    /// The page checks out, but what it holds makes no sense: a program error wrote it.
    Contents(&'static str),
    /// The file ends before the page: it was cut, or the page was never written.
    Cut,
    /// The device gives ever fewer bytes than it was asked for.
    Short {
        /// Bytes of the page that came.
        bytes: usize,
    },
}

impl fmt::Display for PageReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Bytes(error) => write!(f, "{error}; restore the file from a backup"),
            Self::Contents(what) => write!(f, "{what}; restore the file from a backup"),
            Self::Cut => f.write_str("the file ends before it; restore the file from a backup"),
            Self::Short { bytes } => {
                write!(f, "the device gives only {bytes} bytes of it; repair the device")
            }
        }
    }
}

impl PageReason {
    /// The error behind it.
    pub(crate) fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Bytes(error) => Some(error),
            _ => None,
        }
    }
}

/// Why a device file could not be created or opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DeviceError {
    /// The system's error.
    Io(IoError),
    /// The page size asked for is impossible.
    BadPageSize(BadPageSize),
    /// The file is not the one that was asked for.
    File(WrongFile),
    /// The header is one of ours, but damaged.
    Damaged {
        /// The file.
        path: Arc<PathBuf>,
    },
    /// The file has no header yet: its creation was interrupted.
    Unfinished {
        /// The file.
        path: Arc<PathBuf>,
    },
    /// The file has pages of another size.
    OtherPageSize {
        /// The file.
        path: Arc<PathBuf>,
        /// The page size that was asked for.
        expected: PageSize,
        /// Its page size.
        found: PageSize,
    },
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::BadPageSize(error) => error.fmt(f),
            Self::File(error) => error.fmt(f),
            Self::Damaged { path } => {
                write!(f, "the header of {} is damaged; restore the file from a backup", path.display())
            }
            Self::Unfinished { path } => {
                write!(f, "{} has no header: its creation was interrupted; remove it", path.display())
            }
            Self::OtherPageSize { path, expected, found } => write!(
                f,
                "{} has pages of {found}, not of {expected}; open it with its own page size",
                path.display()
            ),
        }
    }
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::BadPageSize(error) => Some(error),
            Self::File(error) => Some(error),
            _ => None,
        }
    }
}

impl From<IoError> for DeviceError {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}

impl From<WrongFile> for DeviceError {
    fn from(error: WrongFile) -> Self {
        Self::File(error)
    }
}

impl From<BadPageSize> for DeviceError {
    fn from(error: BadPageSize) -> Self {
        Self::BadPageSize(error)
    }
}

/// Why a page could not be had, or not be written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PoolError {
    /// The device failed to make changes durable. Repeating the operation asks it again.
    Io(IoError),
    /// A page cannot be read. Others can.
    Page {
        /// The file.
        path: Arc<PathBuf>,
        /// The page.
        number: u64,
        /// The fault.
        reason: PageReason,
    },
    /// No frame can be had, and waiting for one would never end: the budget holds none.
    NoFrames {
        /// The budget.
        budget_bytes: u64,
        /// The length of a frame.
        page_bytes: usize,
    },
    /// No frame can be had, because the changed pages that occupy them could not be written.
    WriteBack(IoError),
    /// No such device was added to the pool, or it was removed.
    UnknownDevice(u16),
    /// The device has pages of another size than the frames.
    OtherPageSize {
        /// The frames'.
        pool: PageSize,
        /// The device's.
        device: PageSize,
    },
    /// The system refuses address space for the frames.
    Memory {
        /// Bytes that the pool asked for.
        bytes: u64,
        /// The system's reason.
        error: Arc<std::io::Error>,
    },
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Page { path, number, reason } => {
                write!(f, "cannot read page {number} of {}: {reason}", path.display())
            }
            Self::NoFrames { budget_bytes, page_bytes } => write!(
                f,
                "the page pool's budget of {budget_bytes} bytes holds no frame of {page_bytes} bytes; raise it"
            ),
            Self::WriteBack(error) => {
                write!(f, "no frame is free, because changed pages cannot be written: {error}")
            }
            Self::UnknownDevice(device) => write!(f, "the page pool has no device {device}"),
            Self::OtherPageSize { pool, device } => {
                write!(f, "a device with pages of {device} does not fit frames of {pool}")
            }
            Self::Memory { bytes, error } => {
                write!(
                    f,
                    "cannot reserve {bytes} bytes of address space for frames ({error}); lower the budget"
                )
            }
        }
    }
}

impl std::error::Error for PoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) | Self::WriteBack(error) => Some(error),
            Self::Page { reason, .. } => reason.source(),
            Self::Memory { error, .. } => Some(&**error),
            _ => None,
        }
    }
}

impl From<IoError> for PoolError {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}
