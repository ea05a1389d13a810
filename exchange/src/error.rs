//! What may go wrong between a table and text.

use std::fmt;

/// Why a table was not written, or not read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The text could not be read or written.
    Io(std::io::Error),
    /// A line is none of the format.
    Line {
        /// Which, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A column of a line does not fit.
    Column {
        /// Which line, from 1.
        line: u64,
        /// The column.
        column: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The database refused the row of a line.
    Row {
        /// Which line, from 1.
        line: u64,
        /// What it said.
        source: thermocline_engine::Error,
    },
    /// The database failed.
    Engine(thermocline_engine::Error),
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the text: {error}"),
            Self::Line { line, reason } => write!(f, "line {line}: {reason}"),
            Self::Column { line, column, reason } => write!(f, "line {line}, column {column:?}: {reason}"),
            Self::Row { line, source } => write!(f, "line {line}: {source}"),
            Self::Engine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ExchangeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Row { source, .. } => Some(source),
            Self::Engine(error) => Some(error),
            Self::Line { .. } | Self::Column { .. } => None,
        }
    }
}

impl From<std::io::Error> for ExchangeError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<thermocline_engine::Error> for ExchangeError {
    fn from(error: thermocline_engine::Error) -> Self {
        Self::Engine(error)
    }
}
