//! Errors of a region.

use std::fmt;
use std::io;

use thermocline_base::backing::PageName;
use thermocline_base::io::IoError;

use crate::sides::{Part, Side};

/// An error of a region. Cheap to clone, since a page that cannot be read may have many waiters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RegionError {
    /// The system grants no range of addresses of that length.
    Addresses {
        /// Bytes of the range.
        bytes: usize,
        /// Why.
        reason: String,
    },
    /// The pager cannot have faults sent to it.
    NoFaults {
        /// Why, and what to do.
        reason: String,
    },
    /// The pager `os` cannot be had, or a part of it not be mapped.
    NoMapping {
        /// Why, and what to do.
        reason: String,
    },
    /// The system gives the pager no thread.
    NoThread {
        /// Why.
        reason: String,
    },
    /// No part is free.
    NoPart {
        /// Parts of the region.
        parts: usize,
    },
    /// The part is not on the side that the operation needs, or not in the generation that the caller knows.
    WrongSide {
        /// The caller's part.
        part: Part,
        /// On which side it is now.
        side: Side,
    },
    /// A page that was never written, or whose part is gone, was asked for.
    NoPage {
        /// Which.
        page: PageName,
    },
    /// The file of the pager `os` cannot be made.
    NoFile {
        /// Why.
        source: IoError,
    },
    /// The medium has no room for another part.
    Full {
        /// The medium's reason.
        source: IoError,
    },
    /// A page could not be read. Others are served.
    Unreadable {
        /// Which.
        page: PageName,
        /// The medium's reason.
        source: IoError,
    },
    /// A page is not what was written: its checksum differs, or it came short. Others are served.
    Damaged {
        /// Which.
        page: PageName,
    },
    /// A run could not be written.
    Unwritten {
        /// Its first page.
        page: PageName,
        /// The medium's reason.
        source: IoError,
    },
    /// A set of pages has more of them than there are frames for one waiter.
    TooManyPages {
        /// Pages that are needed at once.
        pages: usize,
        /// Pages that one waiter may have.
        most: usize,
    },
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addresses { bytes, reason } => {
                write!(
                    f,
                    "the system grants no range of {bytes} bytes of addresses ({reason}); raise the limit on address space"
                )
            }
            Self::NoFaults { reason } | Self::NoMapping { reason } => f.write_str(reason),
            Self::NoThread { reason } => {
                write!(f, "the system gives the pager no thread ({reason}); raise the limit on threads")
            }
            Self::NoPart { parts } => {
                write!(f, "all {parts} parts of the region are in use; make the region longer")
            }
            Self::WrongSide { part, side } => write!(
                f,
                "part {} (generation {}) is {side:?} now, or has another generation; look the place up again",
                part.number, part.generation
            ),
            Self::NoPage { page } => {
                write!(f, "{page} holds nothing: it was not written, or its part was dropped")
            }
            Self::NoFile { source } => write!(f, "the file of the paged side cannot be made: {source}"),
            Self::Full { source } => {
                write!(f, "there is no room for another part of pages: {source}; free space on the medium")
            }
            Self::Unreadable { page, source } => {
                write!(f, "{page} cannot be read: {source}; what it held can be made again by its owner")
            }
            Self::Damaged { page } => {
                write!(f, "{page} is not what was written; what it held can be made again by its owner")
            }
            Self::Unwritten { page, source } => write!(f, "the run from {page} on was not written: {source}"),
            Self::TooManyPages { pages, most } => {
                write!(
                    f,
                    "{pages} pages are needed at once and {most} are the most for one waiter; split the set, or give the pager more frames"
                )
            }
        }
    }
}

impl std::error::Error for RegionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoFile { source }
            | Self::Full { source }
            | Self::Unreadable { source, .. }
            | Self::Unwritten { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl RegionError {
    pub(crate) fn no_mapping(error: &io::Error) -> Self {
        let reason =
            format!("a part cannot be mapped ({error}); the limit is vm.max_map_count, or the pager `own`");
        Self::NoMapping { reason }
    }

    pub(crate) fn no_thread(error: &io::Error) -> Self {
        Self::NoThread { reason: error.to_string() }
    }

    pub(crate) fn no_faults(error: &io::Error) -> Self {
        Self::NoFaults { reason: error.to_string() }
    }
}
