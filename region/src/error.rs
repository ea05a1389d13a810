//! Errors of a region.

use std::fmt;
use std::io;

use thermocline_base::io::IoError;

use crate::sides::{Part, Side};

/// An error of a region.
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
    /// There can be no such region here, or a part of it cannot be mapped.
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
        /// Its number, counted from the begin of the region.
        page: u64,
    },
    /// The file of the pages cannot be made.
    NoFile {
        /// Why.
        source: IoError,
    },
    /// The medium has no room for another part.
    Full {
        /// The medium's reason.
        source: IoError,
    },
    /// A run could not be written.
    Unwritten {
        /// The number of its first page.
        page: u64,
        /// The medium's reason.
        source: IoError,
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
            Self::NoMapping { reason } => f.write_str(reason),
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
                write!(
                    f,
                    "page {page} of the region holds nothing: it was not written, or its part was dropped"
                )
            }
            Self::NoFile { source } => write!(f, "the file of the paged side cannot be made: {source}"),
            Self::Full { source } => {
                write!(f, "there is no room for another part of pages: {source}; free space on the medium")
            }
            Self::Unwritten { page, source } => {
                write!(f, "the run from page {page} on was not written: {source}")
            }
        }
    }
}

impl std::error::Error for RegionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoFile { source } | Self::Full { source } | Self::Unwritten { source, .. } => Some(source),
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
}
