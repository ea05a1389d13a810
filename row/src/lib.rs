//! Rows and keys as bytes: types, values, the layout of rows, their editing, and keys that sort as SQL does.
//!
//! | module | holds |
//! |---|---|
//! | [`types`], [`value`], [`decimal`], [`temporal`] | what a column can contain |
//! | [`layout`] | how a row stands in memory, and access by column number |
//! | [`encoded`] | rows on their way into a table, which know of which layout they are |
//! | [`editor`] | the copy of a row that an update changes |
//! | [`key`] | order-preserving bytes of index columns |
//! | [`typed`] | the macro `row!`: access by column name at constant offsets |
//! | [`serde`] | rows from and to any type that serde knows |
//!
//! Invariant: this crate knows nothing of tables, versions or transactions; it is safe code over byte slices.

#![forbid(unsafe_code)]

mod codec;
pub mod decimal;
pub mod editor;
pub mod encoded;
pub mod error;
pub mod key;
pub mod layout;
pub mod serde;
pub mod temporal;
#[cfg(test)]
mod testing;
pub mod typed;
pub mod types;
pub mod value;

pub use self::serde::{from_row, to_row, to_values};
pub use decimal::{Decimal, DecimalError};
pub use editor::{ColumnSet, RowEditor};
pub use encoded::{EncodedRow, LayoutId, RowRef};
pub use error::{Flaw, RowError};
pub use key::{KeyBuf, KeySpec, MAX_KEY_BYTES};
pub use layout::{Layout, MAX_COLUMNS, MAX_ROW_BYTES};
#[doc(hidden)]
pub use layout::{Lengths, Place, RowWriter, Shape, places};
pub use temporal::{Date, Interval, TemporalError, Time, Timestamp, TimestampTz, Uuid};
pub use typed::{Bytes, Char, Dec, TypedRow, Varchar};
#[doc(hidden)]
pub use typed::{ColumnType, Field};
pub use types::{Column, Type};
pub use value::Value;

/// Names that the code that `row!` generates refers to.
#[doc(hidden)]
pub mod __private {
    pub use pastey::paste;
}
