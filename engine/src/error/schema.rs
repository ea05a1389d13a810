//! Errors of definitions: a table or an index that cannot be.

use std::fmt;

use crate::row::RowError;

/// Bytes of the longest name.
pub(crate) const NAME_BYTES: usize = 63;

/// A definition that cannot be.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SchemaError {
    /// A name is empty, longer than 63 bytes, or holds a zero byte.
    BadName {
        /// The name.
        name: String,
    },
    /// A table needs a column.
    NoColumns {
        /// The table.
        table: String,
    },
    /// An index needs a column.
    NoKeyColumns {
        /// The table.
        table: String,
        /// The index.
        index: String,
    },
    /// Two columns have one name.
    DuplicateColumn {
        /// The table.
        table: String,
        /// The name.
        column: String,
    },
    /// Two indexes have one name.
    DuplicateIndex {
        /// The table.
        table: String,
        /// The name.
        index: String,
    },
    /// The table exists already.
    DuplicateTable {
        /// The name.
        table: String,
    },
    /// There is no such column.
    UnknownColumn {
        /// The table.
        table: String,
        /// The name.
        column: String,
    },
    /// A column of the primary key may be null.
    NullableKey {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// The column is part of a key and cannot be dropped.
    ColumnInUse {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The index that needs it.
        index: String,
    },
    /// A new column that may not be null needs a default.
    NoDefault {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// The primary key cannot be dropped.
    PrimaryKey {
        /// The table.
        table: String,
    },
    /// A type, length or default is not acceptable.
    Column {
        /// The table.
        table: String,
        /// The fault.
        source: RowError,
    },
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName { name } => {
                write!(f, "{name:?} is no name: 1 to {NAME_BYTES} bytes, none of them zero")
            }
            Self::NoColumns { table } => write!(f, "table {table:?} needs at least one column"),
            Self::NoKeyColumns { table, index } => {
                write!(f, "index {index:?} of table {table:?} needs at least one column")
            }
            Self::DuplicateColumn { table, column } => {
                write!(f, "table {table:?} would have two columns {column:?}")
            }
            Self::DuplicateIndex { table, index } => {
                write!(f, "table {table:?} would have two indexes {index:?}")
            }
            Self::DuplicateTable { table } => write!(f, "there is a table {table:?} already"),
            Self::UnknownColumn { table, column } => write!(f, "table {table:?} has no column {column:?}"),
            Self::NullableKey { table, column } => {
                write!(f, "column {column:?} of the primary key of table {table:?} may not be nullable")
            }
            Self::ColumnInUse { table, column, index } => write!(
                f,
                "column {column:?} of table {table:?} is part of index {index:?}; drop the index first"
            ),
            Self::NoDefault { table, column } => write!(
                f,
                "the new column {column:?} of table {table:?} needs a default, or must be nullable: the table may \
                 have rows"
            ),
            Self::PrimaryKey { table } => write!(f, "the primary key of table {table:?} cannot be dropped"),
            Self::Column { table, source } => write!(f, "table {table:?}: {source}"),
        }
    }
}

impl std::error::Error for SchemaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Column { source, .. } => Some(source),
            _ => None,
        }
    }
}
