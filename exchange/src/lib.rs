//! Tables as text: written for other programs, and read back without a difference.
//!
//! | module | what it does |
//! |---|---|
//! | `dump` | writes the rows of a table, as one moment had them |
//! | `load` | reads rows into a table |
//! | `text` | a value as text, and back |
//! | `describe` | tables and their definitions for people |
//!
//! A line is a row. CSV (RFC 4180) begins with the names of the columns; in JSON each line is an object with them as keys.
//!
//! | value | CSV | JSON |
//! |---|---|---|
//! | null | `\N` | `null` |
//! | text | as it is; one that begins with `\` has one more in front | string |
//! | integers, booleans | digits; `true`, `false` | number; boolean |
//! | floating point | the shortest digits that give the same number; `NaN`, `inf` | number; `"NaN"`, `"inf"` |
//! | decimal, dates, times, uuid | as SQL writes them | string |
//! | intervals | as ISO 8601 writes them | string |
//! | bytes | `\x` and hexadecimal digits | string of the same |
//!
//! Rule: what was dumped and loaded again is equal, value by value (test `tables::what_was_dumped_is_loaded_again`).

mod describe;
mod dump;
mod error;
mod load;
mod text;

pub use describe::describe;
pub use dump::dump;
pub use error::ExchangeError;
pub use load::load;

/// The form of rows as text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// Comma-separated values, with the names of the columns in the first line.
    #[default]
    Csv,
    /// A JSON object a line.
    Json,
}
