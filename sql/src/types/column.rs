//! Columns of results.

use super::{Datum, Type, Zone, text};

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
    /// Writes a value of this column that is not null, as PostgreSQL's text format has it; times with a zone as `zone` shows them.
    pub fn write_text(&self, value: &Datum, zone: &Zone, out: &mut String) {
        text::output(value, self.ty, zone, out);
    }
}
