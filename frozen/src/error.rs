//! Errors of a row that is pushed, and of the bytes of a block.

use std::fmt;

/// An error of this crate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Positions are pushed in ascending order, each once.
    Position {
        /// The position that was pushed.
        position: u16,
        /// The least that could follow.
        least: u32,
    },
    /// The bytes that were pushed are no row of the layout.
    Row {
        /// Where it was to stand.
        position: u16,
        /// The part that does not fit.
        reason: Box<str>,
    },
    /// The values of a column have more bytes than a block takes.
    TooLarge {
        /// The column's name.
        column: Box<str>,
    },
    /// No row was pushed: a block has at least one.
    Empty,
    /// A scan asks for a column that the block does not have, or compares one with a value of another type.
    Predicate {
        /// The column's name, or its number.
        column: Box<str>,
        /// The part that does not fit.
        reason: Box<str>,
    },
    /// A sum has more digits than a decimal.
    Sum {
        /// The column's name.
        column: Box<str>,
    },
    /// The block was written by a newer program.
    Version {
        /// The version of the block's format.
        found: u16,
        /// The newest that this program reads.
        known: u16,
    },
    /// The block is of another layout than the one it was opened with.
    OtherLayout {
        /// The block's number.
        number: u64,
    },
    /// Bytes that are no block, or are no longer what was written.
    Damaged {
        /// The block's number, if its header is whole.
        number: Option<u64>,
        /// The column at which it showed, if it showed at one.
        column: Option<Box<str>>,
        /// The group at which it showed, if it showed at one.
        group: Option<u32>,
        /// The part that does not fit.
        reason: Box<str>,
    },
}

impl Error {
    /// The SQLSTATE that a client sees.
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Error::Position { .. } | Error::Row { .. } | Error::Empty => "XX000",
            Error::Predicate { .. } => "42804",
            Error::TooLarge { .. } => "54000",
            Error::Sum { .. } => "22003",
            Error::Version { .. } => "0A000",
            Error::OtherLayout { .. } | Error::Damaged { .. } => "XX001",
        }
    }

    pub(crate) fn damaged(reason: impl Into<Box<str>>) -> Self {
        Error::Damaged { number: None, column: None, group: None, reason: reason.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Position { position, least } => {
                write!(
                    f,
                    "position {position} was pushed where at least {least} was due; push in ascending order"
                )
            }
            Error::Row { position, reason } => {
                write!(
                    f,
                    "the bytes for position {position} are no row of the layout: {reason}; push encoded rows of it"
                )
            }
            Error::TooLarge { column } => {
                write!(f, "the values of column \"{column}\" have 4 GiB or more; freeze fewer rows")
            }
            Error::Predicate { column, reason } => {
                write!(f, "a scan cannot ask column \"{column}\": {reason}; use a value of the column's type")
            }
            Error::Sum { column } => {
                write!(f, "the sum of column \"{column}\" has more than 38 digits; sum fewer rows")
            }
            Error::Empty => f.write_str("a block of no rows; push one before finishing"),
            Error::Version { found, known } => write!(
                f,
                "a block of format version {found}, this program reads versions up to {known}; use a newer program"
            ),
            Error::OtherLayout { number } => {
                write!(
                    f,
                    "block {number} has other columns than its table; open it with the layout it was made with"
                )
            }
            Error::Damaged { number, column, group, reason } => {
                f.write_str("damaged block")?;
                if let Some(number) = number {
                    write!(f, " {number}")?;
                }
                if let Some(column) = column {
                    write!(f, ", column \"{column}\"")?;
                }
                if let Some(group) = group {
                    write!(f, ", group {group}")?;
                }
                write!(f, ": {reason}; restore from a backup")
            }
        }
    }
}

impl std::error::Error for Error {}
