//! ALTER TABLE … ADD PRIMARY KEY and ADD UNIQUE.
//!
//! A row is named by its primary key from its first version on, so a table that gets one is written anew, in the transaction: another
//! table with the key takes its name and its rows. A unique key is an index, which the engine builds over rows of any temperature.

use thermocline_engine::row::{EncodedRow, Value};
use thermocline_engine::{Error as EngineError, IndexSchema, Table, TableSchema};

use super::unique::may_index;
use crate::catalog::{HIDDEN_KEY, sql_type};
use crate::error::{Error, Result};
use crate::names::plain;
use crate::parser::ast::{CreateIndex, KeyDef, ObjectName};
use crate::session::Session;
use crate::types::Type;

/// Rows that are copied together.
const BATCH: usize = 1000;

impl Session {
    pub(super) async fn add_key(&mut self, table: &ObjectName, key: &KeyDef) -> Result<()> {
        let names: Vec<&str> = key.columns.iter().map(|(name, _)| name.as_str()).collect();
        if !key.primary {
            let columns = key.columns.iter().map(|(name, at)| (name.clone(), *at, false)).collect();
            let (table, method, if_not_exists, unique) = (table.clone(), None, false, true);
            let name = key.name.clone();
            let create = CreateIndex { name, if_not_exists, unique, table, method, columns };
            return self.make_index(&create, true).await.map(drop);
        }
        let name = &table.name;
        self.transaction().lock_table(name).await?;
        let old = self.tables.table(name)?;
        let schema = old.schema();
        if schema.primary().is_some_and(|key| key.columns().all(|(column, _)| column != HIDDEN_KEY)) {
            let message = format!("multiple primary keys for table \"{name}\" are not allowed");
            return Err(Error::new("42P16", message));
        }
        let mut columns: Vec<_> =
            schema.column_list().iter().filter(|column| column.name != HIDDEN_KEY).cloned().collect();
        for (wanted, at) in &key.columns {
            let Some(column) = columns.iter_mut().find(|column| column.name == *wanted) else {
                let message = format!("column \"{wanted}\" of relation \"{name}\" does not exist");
                return Err(Error::new("42703", message).at(*at));
            };
            column.nullable = false;
            let kept = self.objects.column(name, wanted).and_then(|row| row.ty);
            let ty = kept.and_then(|(oid, _)| Type::from_oid(oid));
            may_index(ty.unwrap_or_else(|| sql_type(column.ty).0), column.ty, "btree")?;
        }
        let index = match &key.name {
            Some(given) => given.clone(),
            None => plain(&self.free_name(name, None, "pkey", &[])).to_owned(),
        };
        let mut new = TableSchema::new(name)
            .tiering(schema.row_tiering())
            .primary_key(IndexSchema::ordered(&index, &names))
            .columns(columns);
        for index in schema.secondary() {
            new = new.index(index.clone());
        }
        let aside = self.free_name(name, None, "old", &[]);
        self.transaction().rename_table(name, &aside).await?;
        let new = self.transaction().create_table(new).await?;
        self.copy_rows(&aside, &new, &index).await?;
        self.transaction().drop_table(&aside).await?;
        self.look_again()
    }

    /// Copies the rows of a table without a key into the one that has it, `index`.
    async fn copy_rows(&mut self, old: &str, new: &Table, index: &str) -> Result<()> {
        let old = self.transaction().table(old)?;
        let hidden = old.schema().column_index(HIDDEN_KEY);
        let (from, to) = (old.layout(), new.layout());
        let name = new.name();
        let context = self.own_context();
        let mut cursor = self.transaction().open_table_cursor(&old)?;
        while !cursor.is_finished() {
            let mut rows: Vec<Vec<Value>> = Vec::with_capacity(BATCH);
            let see = |row: thermocline_engine::SeenRow<'_>| {
                let mut values = from.decode(row.bytes()).expect("a row of the table");
                if let Some(hidden) = hidden {
                    values.remove(hidden);
                }
                rows.push(values);
            };
            self.transaction().fetch(&mut cursor, BATCH, see).await?;
            for values in rows {
                if context.is_due() {
                    context.pause().await?;
                }
                let missing = to.columns().iter().zip(&values);
                let mut missing =
                    missing.filter(|(column, value)| !column.nullable && **value == Value::Null);
                if let Some((column, _)) = missing.next() {
                    let message =
                        format!("column \"{}\" of relation \"{name}\" contains null values", column.name);
                    return Err(Error::new("23502", message).table(&name).column(&column.name));
                }
                let mut encoded = EncodedRow::new();
                to.encode_row(&values, &mut encoded).map_err(|source| new.error(source))?;
                match self.transaction().insert(new, &encoded).await {
                    Ok(_) => {}
                    Err(EngineError::DuplicateKey { key, .. }) => {
                        let message = format!("could not create unique index \"{index}\"");
                        return Err(Error::new("23505", message).detail(format!("Key {key} is duplicated.")));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}
