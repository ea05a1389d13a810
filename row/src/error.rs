//! What can be wrong with a schema, a value, a row or a key.
//!
//! Every error names the column it is about. Values that a caller hands in are errors; bytes that the engine itself
//! stored and that do not fit their layout are a broken invariant, and the accessors panic on them. Bytes of foreign
//! origin (log, checkpoint, backup) go through [`Layout::check`](super::Layout::check) first, which reports
//! [`RowError::Damaged`].

use std::fmt;

use super::types::Type;

/// What is wrong with one value for one column.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flaw {
    /// Null for a column that takes none.
    Null,
    /// A value of another type than the column's.
    WrongType {
        /// What the value is.
        found: &'static str,
    },
    /// A string with more characters than the column takes.
    TooLong {
        /// Characters of the value (bytes, for a value that no row can hold).
        found: usize,
        /// The most the column takes.
        limit: usize,
    },
    /// A number or a date outside of what the column's type holds.
    OutOfRange {
        /// The value as text.
        found: Box<str>,
    },
    /// A decimal with more digits after the point than the column keeps.
    Inexact {
        /// The value as text.
        found: Box<str>,
    },
    /// Text that cannot be read as the column's type.
    Syntax {
        /// The text, cut after its first characters.
        found: Box<str>,
        /// What is wrong with it.
        reason: Box<str>,
    },
}

/// An error about a schema, a value, a row or a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowError {
    /// A value does not fit its column.
    Value {
        /// The column's name.
        column: Box<str>,
        /// The column's type.
        ty: Type,
        /// What is wrong.
        flaw: Flaw,
    },
    /// Another number of values than the layout has columns.
    ColumnCount {
        /// Columns of the layout.
        expected: usize,
        /// Values given.
        found: usize,
    },
    /// The layout has no such column.
    UnknownColumn {
        /// Name or number, as it was asked for.
        column: Box<str>,
    },
    /// A schema that cannot be: a type's parameters, a name used twice, too many columns.
    Schema {
        /// The column at fault.
        column: Box<str>,
        /// What is wrong with it and what is allowed.
        reason: Box<str>,
    },
    /// The row would be longer than [`MAX_ROW_BYTES`](super::MAX_ROW_BYTES).
    RowTooLong {
        /// Its length in bytes, as far as it was counted.
        bytes: usize,
    },
    /// The key would be longer than [`MAX_KEY_BYTES`](super::MAX_KEY_BYTES).
    KeyTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// Bytes that are no row, key or schema: damaged, or of another layout.
    Damaged {
        /// The column at which it showed, if it showed at one.
        column: Option<Box<str>>,
        /// What does not fit.
        reason: Box<str>,
    },
    /// A message of a serde implementation, or a shape that has no row.
    Serde {
        /// The message.
        reason: Box<str>,
    },
}

impl RowError {
    /// The SQLSTATE that a client sees.
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            RowError::Value { flaw, .. } => match flaw {
                Flaw::Null => "23502",
                Flaw::WrongType { .. } => "42804",
                Flaw::TooLong { .. } => "22001",
                Flaw::OutOfRange { .. } | Flaw::Inexact { .. } => "22003",
                Flaw::Syntax { .. } => "22P02",
            },
            RowError::ColumnCount { .. } => "42601",
            RowError::UnknownColumn { .. } => "42703",
            RowError::Schema { .. } => "42611",
            RowError::RowTooLong { .. } | RowError::KeyTooLong { .. } => "54000",
            RowError::Damaged { .. } => "XX001",
            RowError::Serde { .. } => "22000",
        }
    }

    pub(crate) fn damaged(column: &str, reason: impl Into<Box<str>>) -> Self {
        RowError::Damaged { column: Some(column.into()), reason: reason.into() }
    }

    pub(crate) fn damaged_bytes(reason: impl Into<Box<str>>) -> Self {
        RowError::Damaged { column: None, reason: reason.into() }
    }

    pub(crate) fn schema(column: &str, reason: impl Into<Box<str>>) -> Self {
        RowError::Schema { column: column.into(), reason: reason.into() }
    }

    /// Names the column of a flaw. Used by the code that `row!` generates.
    #[doc(hidden)]
    #[cold]
    #[must_use]
    pub fn value(column: &str, ty: Type, flaw: Flaw) -> Self {
        if let Flaw::TooLong { found, limit: super::MAX_ROW_BYTES } = flaw {
            return RowError::RowTooLong { bytes: found };
        }
        RowError::Value { column: column.into(), ty, flaw }
    }
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowError::Value { column, ty, flaw } => match flaw {
                Flaw::Null => write!(f, "column \"{column}\" ({ty} not null) got null; give a value"),
                Flaw::WrongType { found } => {
                    write!(f, "column \"{column}\" is of type {ty}, the value is {found}; convert it first")
                }
                Flaw::TooLong { found, limit } => write!(
                    f,
                    "column \"{column}\" ({ty}) takes at most {limit} characters, the value has {found}; shorten it"
                ),
                Flaw::OutOfRange { found } => {
                    write!(f, "column \"{column}\" ({ty}): {found} is out of range for the type")
                }
                Flaw::Inexact { found } => write!(
                    f,
                    "column \"{column}\" ({ty}): {found} has more digits after the point than the type; round it first"
                ),
                Flaw::Syntax { found, reason } => {
                    write!(f, "column \"{column}\" ({ty}): cannot read \"{found}\": {reason}")
                }
            },
            RowError::ColumnCount { expected, found } => {
                write!(
                    f,
                    "the row has {expected} columns, {found} values were given; give one value a column"
                )
            }
            RowError::UnknownColumn { column } => {
                write!(f, "there is no column \"{column}\"; use a name of the table's schema")
            }
            RowError::Schema { column, reason } => write!(f, "column \"{column}\": {reason}"),
            RowError::RowTooLong { bytes } => write!(
                f,
                "the row would have {bytes} bytes, a row has at most {}; shorten its texts",
                super::MAX_ROW_BYTES
            ),
            RowError::KeyTooLong { bytes } => write!(
                f,
                "the key would have {bytes} bytes, a key has at most {}; index shorter columns",
                super::MAX_KEY_BYTES
            ),
            RowError::Damaged { column: Some(column), reason } => {
                write!(f, "damaged or foreign bytes: column \"{column}\": {reason}; restore from a backup")
            }
            RowError::Damaged { column: None, reason } => {
                write!(f, "damaged or foreign bytes: {reason}; restore from a backup")
            }
            RowError::Serde { reason } => f.write_str(reason),
        }
    }
}

impl std::error::Error for RowError {}
