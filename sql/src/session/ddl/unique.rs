//! Columns that may stand in indexes, and unique indexes that are no constraints: CREATE UNIQUE INDEX makes one, UNIQUE in a table a constraint;
//! the engine does not tell them apart, so that a row of the hidden tables does.

use thermocline_row::Type as Stored;

use crate::error::{Error, Result};
use crate::objects::Change;
use crate::objects::rows::{Kind, Object, UniqueIndexRow};
use crate::session::{Answer, Session};
use crate::types::Type;

/// May a column of this type, stored so, stand in an index? Bytes of arrays and of numbers with a scale of their own are in
/// another order than the values are, and equal ones differ (`1.0`, `1.00`).
pub(super) fn may_index(ty: Type, stored: Stored, method: &str) -> Result<()> {
    if ty.element().is_some() {
        return Err(Error::unsupported(format!("an index on a column of type {}", ty.sql_name()))
            .hint("An array stands in no index: put its elements into a table of their own."));
    }
    if ty == Type::Numeric && stored == Stored::Bytes {
        let what = "an index on a column of type numeric whose digits are not bounded";
        return Err(Error::unsupported(what)
            .hint("Say how many digits the column has: numeric(p, s), of at most 38 in all."));
    }
    if ty == Type::Jsonb {
        return Err(Error::unsupported("an index on a column of type jsonb")
            .hint("Values of jsonb that are equal may be written differently: put what is looked up into a column of its own."));
    }
    if ty == Type::Json {
        let message = format!("data type json has no default operator class for access method \"{method}\"");
        return Err(Error::new("42704", message).hint(
            "You must specify an operator class for the index or define a default operator class for the data type.",
        ));
    }
    Ok(())
}

impl Session {
    /// Notes an index that CREATE INDEX has made.
    pub(super) async fn index_made(&mut self, table: &str, name: &str, unique: bool) -> Result<Answer> {
        if unique {
            let object = Object::UniqueIndex(UniqueIndexRow {});
            self.record(&[Change::Put(table.to_owned(), name.to_owned(), object)]).await?;
        }
        Ok(Answer::tagged("CREATE INDEX"))
    }

    /// Forgets what is noted of an index that is gone.
    pub(super) async fn index_gone(&mut self, table: &str, name: &str) -> Result<()> {
        if !self.objects.is_unique_index(table, name) {
            return Ok(());
        }
        self.record(&[Change::Remove((Kind::UniqueIndex, table.to_owned(), name.to_owned()))]).await
    }
}
