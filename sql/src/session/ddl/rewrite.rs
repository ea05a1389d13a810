//! Tables that are written anew, for changes that the engine's rows cannot take: the type of a column, and NOT NULL that a table was
//! made with.
//!
//! Another table takes the name, in the transaction, and its rows are those of the old one, by an `INSERT … SELECT`. What the
//! hidden tables say goes by the name of the table, and stays.

use thermocline_engine::row::Column as RowColumn;
use thermocline_engine::{TableSchema, Tiering};

use super::tables::{plain_column, stored_type};
use super::unique::may_index;
use crate::bind::Binder;
use crate::catalog::{Catalog, Table, sql_type};
use crate::error::{Error, Result};
use crate::functions::{Context as Cast, cast};
use crate::names::quoted;
use crate::objects::Change;
use crate::objects::rows::{ColumnRow, DefaultRow, Object};
use crate::parser::ast::{TypeName, Written};
use crate::parser::edited;
use crate::session::Session;
use crate::types::{Type, display};

impl Session {
    /// Writes a table anew with one column changed. `value`: the expression over the old row that is the new column's value.
    async fn rewrite(&mut self, table: &str, column: RowColumn, kept: ColumnRow, value: &str) -> Result<()> {
        let name = column.name.clone();
        let old = self.tables.table(table)?;
        let schema = old.schema();
        let tiering: Tiering = schema.row_tiering();
        let columns: Vec<RowColumn> = schema
            .column_list()
            .iter()
            .map(|old| if old.name == name { column.clone() } else { old.clone() })
            .collect();
        let hidden = crate::catalog::HIDDEN_KEY;
        let shown: Vec<&RowColumn> = columns.iter().filter(|column| column.name != hidden).collect();
        let names: Vec<String> = shown.iter().map(|column| quoted(&column.name)).collect();
        let values: Vec<String> = shown
            .iter()
            .map(|column| if column.name == name { format!("({value})") } else { quoted(&column.name) })
            .collect();
        let mut new = TableSchema::new(table).tiering(tiering).columns(columns.clone());
        if let Some(primary) = schema.primary() {
            new = new.primary_key(primary.clone());
        }
        for index in schema.secondary() {
            new = new.index(index.clone());
        }
        let aside = self.free_name(table, None, "old", &[]);
        // Its columns keep their types while it is read.
        let types = shown.iter().filter_map(|column| {
            let row = ColumnRow { ty: Some(self.kept(table, &column.name).ty?), ..ColumnRow::default() };
            Some(Change::Put(aside.clone(), column.name.clone(), Object::Column(row)))
        });
        let types: Vec<Change> = types.collect();
        self.transaction().rename_table(table, &aside).await?;
        self.transaction().create_table(new).await?;
        self.look_again()?;
        self.record(&types).await?;
        self.keep(table, &name, kept).await?;
        let insert = format!(
            "insert into {} ({}) overriding system value select {} from {}",
            quoted(table),
            names.join(", "),
            values.join(", "),
            quoted(&aside)
        );
        self.internal(&insert).await.map_err(Error::nowhere)?;
        self.transaction().drop_table(&aside).await?;
        let gone: Vec<Change> = self.objects.about(&aside).into_iter().map(Change::Remove).collect();
        self.record(&gone).await?;
        self.look_again()
    }

    /// DROP NOT NULL of a column that the table was made with.
    pub(super) async fn make_nullable(&mut self, table: &str, column: &str) -> Result<()> {
        self.transaction().lock_table(table).await?;
        let schema = self.tables.table(table)?.schema();
        let stored = schema.column_list().iter().find(|it| it.name == column).expect("it is known").clone();
        let kept = ColumnRow { not_null: false, ..self.kept(table, column) };
        self.rewrite(table, RowColumn { nullable: true, ..stored }, kept, &quoted(column)).await
    }

    /// `ALTER COLUMN … TYPE … [USING …]`
    pub(super) async fn set_type(
        &mut self,
        table: &str,
        (column, at): (&str, u32),
        wanted: &TypeName,
        using: Option<&Written>,
    ) -> Result<()> {
        self.column_known(table, column)?;
        let (ty, modifier) = Binder::type_of(wanted)?;
        let stored = stored_type(ty, modifier).ok_or_else(|| no_column_of(ty, modifier, wanted.at))?;
        self.transaction().lock_table(table).await?;
        let known = self.catalog().table(table).expect("it is known");
        let place = known.columns.iter().position(|it| it.name == column).expect("it is known");
        let before = &known.columns[place];
        if (before.ty, before.modifier) == (ty, modifier) && using.is_none() {
            return Ok(());
        }
        self.no_view_of_column(table, column)?;
        let value = self.value_for(&known, (column, at), ty, using)?;
        let mut kept = self.kept(table, column);
        if kept.identity.is_some() && !ty.is_integer() {
            return Err(Error::new("22023", "identity column type must be smallint, integer, or bigint"));
        }
        if known.indexes.iter().any(|index| index.columns.iter().any(|(column, _)| *column == place)) {
            may_index(ty, stored, "btree")?;
        }
        self.keys_stay_comparable(&known, column, ty)?;
        kept.ty = (sql_type(stored) != (ty, modifier)).then(|| (ty.oid(), modifier));
        let schema = self.tables.table(table)?.schema();
        let old = schema.column_list().iter().find(|it| it.name == column).expect("it is known");
        let mut new = RowColumn::new(column, stored);
        new.nullable = old.nullable;
        if kept.identity.is_none()
            && let Some(text) = crate::pg_catalog::default_text(before)
        {
            let default = self.default_as(&text, column, (ty, modifier), stored)?;
            (new.default, kept.default) = default;
        } else if kept.identity.is_none() {
            kept.default = DefaultRow::Engine;
        }
        self.rewrite(table, new, kept, &value).await?;
        // Conditions have to have a meaning over the new type.
        let table = self.catalog().table(table).expect("it was just made");
        let catalog = self.catalog();
        Binder::new(&catalog, Vec::new(), self.local()).checks(&table).map(drop).map_err(Error::nowhere)
    }

    /// The expression that makes values of the new type of those of a row.
    fn value_for(
        &self,
        table: &Table,
        (column, at): (&str, u32),
        ty: Type,
        using: Option<&Written>,
    ) -> Result<String> {
        let catalog = self.catalog();
        let mut binder = Binder::new(&catalog, Vec::new(), self.local()).for_keeping();
        let (from, text) = match using {
            Some(using) => {
                let bound = binder.value_over(&using.expr, table)?;
                (bound.ty, edited(&using.text, binder.zone_edits(&using.text, using.at)))
            }
            None => {
                let found = table.columns.iter().find(|it| it.name == column).expect("it is known");
                (found.ty, quoted(column))
            }
        };
        if cast(from, ty, Cast::Assignment).is_some() {
            return Ok(text);
        }
        let (name, shown) = (quoted(column), ty.sql_name());
        let error = match using {
            Some(_) => format!(
                "result of USING clause for column \"{column}\" cannot be cast automatically to type {shown}"
            ),
            None => format!("column \"{column}\" cannot be cast automatically to type {shown}"),
        };
        let hint = match using {
            Some(_) => "You might need to add an explicit cast.".to_owned(),
            None => format!("You might need to specify \"USING {name}::{shown}\"."),
        };
        let error = Error::new("42804", error).hint(hint);
        Err(if using.is_some() { error } else { error.at(at).nowhere() })
    }

    /// A default as one of another type.
    fn default_as(
        &self,
        text: &str,
        column: &str,
        (ty, modifier): (Type, i32),
        stored: thermocline_row::Type,
    ) -> Result<(Option<thermocline_row::Value>, DefaultRow)> {
        let parsed = crate::parser::parse_expr(text)?;
        let target = plain_column(column, ty, modifier, stored);
        let default = Written { expr: parsed, text: text.to_owned(), at: 0 };
        let (value, row, _) = self.default_row(&default, &target).map_err(|_| {
            let shown = ty.sql_name();
            let message =
                format!("default for column \"{column}\" cannot be cast automatically to type {shown}");
            Error::new("42804", message)
        })?;
        Ok((value, row))
    }

    fn no_view_of_column(&self, table: &str, column: &str) -> Result<()> {
        let Some(view) = self.view_of_column(table, column) else { return Ok(()) };
        let message = "cannot alter type of a column used by a view or rule";
        let detail = format!("rule _RETURN on view {view} depends on column \"{column}\"");
        Err(Error::new("0A000", message).detail(detail))
    }
}

/// The refusal of a column of a type that the engine does not store.
pub(super) fn no_column_of(ty: Type, modifier: i32, at: u32) -> Error {
    Error::unsupported(format!("a column of type {}", display(ty, modifier))).at(at)
}
