//! Columns of results.

use super::{Datum, Type, text};

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Its modifier as PostgreSQL encodes it; -1 is none.
    pub modifier: i32,
}

impl Column {
    /// Writes a value of this column that is not null, as PostgreSQL's text format has it.
    pub fn write_text(&self, value: &Datum, out: &mut String) {
        text::output(value, self.ty, out);
    }
}
