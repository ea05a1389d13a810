//! Errors of the paged side.

use std::fmt;

use thermocline_base::io::IoError;
use thermocline_pool::error::{PageReason, PoolError};
use thermocline_region::RegionError;

/// An error of the paged side. Cheap to clone, since a page that cannot be read may have many waiters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PagedError {
    /// The file of pages cannot be made.
    NoFile {
        /// The system's reason.
        source: IoError,
    },
    /// There can be no frames.
    NoFrames {
        /// The pool's reason.
        source: PoolError,
    },
    /// The medium has no room for more pages.
    Full {
        /// The medium's reason.
        source: IoError,
    },
    /// Pages could not be written. What they would have held stays in memory.
    Unwritten {
        /// The medium's reason.
        source: IoError,
    },
    /// A page cannot be read, or is not what was written. Others are served.
    Lost {
        /// The pool's reason.
        source: PoolError,
    },
    /// The pager `os` failed.
    Os {
        /// Its reason.
        source: RegionError,
    },
}

impl PagedError {
    pub(crate) fn sqlstate(&self) -> &'static str {
        match self {
            Self::Full { .. } | Self::Os { source: RegionError::Full { .. } } => "53100",
            Self::Os { source: RegionError::NoPart { .. } } => "53200",
            _ => "58030",
        }
    }

    /// A failed write or a failed look for room.
    pub(super) fn unwritten(source: IoError) -> Self {
        if source.is_full() { Self::Full { source } } else { Self::Unwritten { source } }
    }
}

impl From<RegionError> for PagedError {
    fn from(source: RegionError) -> Self {
        Self::Os { source }
    }
}

impl fmt::Display for PagedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile { source } => write!(f, "the file of pages cannot be made: {source}"),
            Self::NoFrames { source } => source.fmt(f),
            Self::Full { source } => {
                write!(f, "there is no room for more pages: {source}; free space on the medium")
            }
            Self::Unwritten { source } => write!(f, "pages were not written: {source}"),
            Self::Lost { source: PoolError::Page { number, reason, .. } } => match reason {
                PageReason::Io(error) => write!(f, "page {number} cannot be read: {error}"),
                PageReason::Bytes(error) => error.fmt(f),
                PageReason::Cut => write!(f, "page {number} is behind the end of its file"),
                PageReason::Short { bytes } => write!(f, "only {bytes} bytes of page {number} came"),
                other => write!(f, "page {number}: {other}"),
            },
            Self::Lost { source } => source.fmt(f),
            Self::Os { source } => source.fmt(f),
        }
    }
}

impl std::error::Error for PagedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoFile { source } | Self::Full { source } | Self::Unwritten { source } => Some(source),
            Self::NoFrames { source } | Self::Lost { source } => Some(source),
            Self::Os { source } => Some(source),
        }
    }
}
