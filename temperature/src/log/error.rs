//! Faults of an access log.

use std::fmt;

use thermocline_base::io::IoError;

/// Why an access log cannot be written or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum LogError {
    /// The file could not be read or written.
    Io(IoError),
    /// The stream could not be written.
    Stream(std::io::Error),
    /// The file does not begin as an access log does.
    NotALog {
        /// The file.
        path: String,
    },
    /// Another version of the format.
    OtherVersion {
        /// The file.
        path: String,
        /// Its version.
        found: u32,
    },
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Stream(error) => write!(f, "the access log's stream broke: {error}"),
            Self::NotALog { path } => {
                write!(f, "{path} is no access log: its header is damaged, or it is another kind of file")
            }
            Self::OtherVersion { path, found } => write!(
                f,
                "{path} is an access log of format version {found}; this program reads version {}: use the one that \
                 wrote it",
                super::format::VERSION
            ),
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Stream(error) => Some(error),
            Self::NotALog { .. } | Self::OtherVersion { .. } => None,
        }
    }
}

impl From<IoError> for LogError {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}

/// A piece of an access log that could not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Where it begins.
    pub offset: u64,
    /// Number of bytes that were passed over.
    pub bytes: u64,
    /// The fault.
    pub what: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {} ({} bytes passed over)", self.offset, self.what, self.bytes)
    }
}
