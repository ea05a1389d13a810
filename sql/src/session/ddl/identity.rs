//! Identity columns of tables that are there: ADD GENERATED, SET GENERATED, DROP IDENTITY.

use super::tables::next_value_of;
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::objects::Change;
use crate::objects::rows::{DefaultRow, Object};
use crate::parser::ast::IdentityDef;
use crate::session::Session;

fn state(table: &str, column: &str, what: &str) -> Error {
    Error::new("55000", format!("column \"{column}\" of relation \"{table}\" {what}"))
}

impl Session {
    pub(super) async fn add_identity(
        &mut self,
        table: &str,
        column: &str,
        identity: &IdentityDef,
    ) -> Result<()> {
        self.column_known(table, column)?;
        let known = self.catalog().table(table).expect("it is known");
        let found = known.columns.iter().find(|it| it.name == column).expect("it is known");
        let mut kept = self.kept(table, column);
        if !found.ty.is_integer() {
            return Err(Error::new("22023", "identity column type must be smallint, integer, or bigint"));
        }
        if found.nullable {
            return Err(state(table, column, "must be declared NOT NULL before identity can be added"));
        }
        if found.identity.is_some() {
            return Err(state(table, column, "is already an identity column"));
        }
        if found.default.is_some() || found.default_text.is_some() {
            return Err(state(table, column, "already has a default value"));
        }
        let mut row = Self::sequence_row(&identity.options, Some(found.ty))?;
        let name = self.free_name(table, Some(column), "seq", &[]);
        row.owner = Some((table.to_owned(), column.to_owned()));
        row.identity = true;
        kept.identity = Some(identity.always);
        kept.default = DefaultRow::Text(next_value_of(&name));
        let start = row.start;
        let made = Change::PutSequence(name, row, Some((start, false)));
        let column = Change::Put(table.to_owned(), column.to_owned(), Object::Column(kept));
        self.record(&[made, column]).await
    }

    pub(super) async fn set_identity(&mut self, table: &str, column: &str, always: bool) -> Result<()> {
        self.column_known(table, column)?;
        let mut kept = self.kept(table, column);
        if kept.identity.is_none() {
            return Err(state(table, column, "is not an identity column"));
        }
        kept.identity = Some(always);
        self.keep(table, column, kept).await
    }

    /// DROP IDENTITY: whether there was one.
    pub(super) async fn drop_identity(&mut self, table: &str, column: &str, if_exists: bool) -> Result<bool> {
        self.column_known(table, column)?;
        let mut kept = self.kept(table, column);
        if kept.identity.is_none() {
            return if if_exists {
                Ok(false)
            } else {
                Err(state(table, column, "is not an identity column"))
            };
        }
        let owned = self.objects.sequences().filter(|(_, row)| {
            row.identity && row.owner.as_ref().is_some_and(|(own, of)| own == table && of == column)
        });
        let changes: Vec<Change> =
            owned.map(|(sequence, _)| Change::RemoveSequence(sequence.to_owned())).collect();
        kept.identity = None;
        let schema = self.tables.table(table)?.schema();
        let stored = schema.column_list().iter().find(|it| it.name == column).expect("it is known");
        kept.default = if stored.default.is_none() { DefaultRow::Engine } else { DefaultRow::Dropped };
        self.record(&changes).await?;
        self.keep(table, column, kept).await?;
        Ok(true)
    }
}
