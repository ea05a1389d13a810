//! Turns errors of the row module, which knows no tables, into errors of the engine that name one.

use thermocline_engine::row::{RowEditor, RowError};
use thermocline_engine::{Error, Result};

/// The outcome of encoding or changing a row of `table`.
///
/// # Errors
/// The row module's error, with the table's name.
#[inline]
pub fn in_table<T>(table: &'static str, outcome: std::result::Result<T, RowError>) -> Result<T> {
    outcome.map_err(|source| Error::Row { table: table.to_owned(), source })
}

/// An edit of a row of `table`, as updates take it.
#[inline]
pub fn editing<R>(
    table: &'static str,
    mut edit: impl FnMut(&mut RowEditor<'_>) -> std::result::Result<R, RowError>,
) -> impl FnMut(&mut RowEditor<'_>) -> Result<R> {
    move |editor| in_table(table, edit(editor))
}
