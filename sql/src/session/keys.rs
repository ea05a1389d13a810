//! ALTER TABLE … ADD PRIMARY KEY and ADD UNIQUE, and TRUNCATE within a transaction.
//!
//! A row is named by its primary key from its first version on, so the engine adds none to rows that are there: an empty table
//! gets its key, another one is refused. A unique key is an index, which the engine builds over rows of any temperature.

use std::ops::ControlFlow;

use thermocline_engine::{IndexSchema, TableSchema, TransactionOptions, block_on};

use super::{Answer, Session, rows};
use crate::catalog::{HIDDEN_KEY, quoted};
use crate::error::{Error, Result};
use crate::expr::Context;
use crate::parser::ast::{CreateIndex, KeyDef, ObjectName};
use crate::plan::Bound;

impl Session {
    pub(super) fn add_key(&mut self, table: &ObjectName, key: &KeyDef, at: u32) -> Result<()> {
        let names: Vec<&str> = key.columns.iter().map(|(name, _)| name.as_str()).collect();
        if !key.primary {
            let name = key.name.clone().unwrap_or_else(|| format!("{}_{}_key", table.name, names.join("_")));
            let columns = key.columns.iter().map(|(name, at)| (name.clone(), *at, false)).collect();
            let (table, method, if_not_exists, unique) = (table.clone(), None, false, true);
            let create = CreateIndex { name: Some(name), if_not_exists, unique, table, method, columns };
            return self.create_index(&create).map(drop);
        }
        let found = self.db.table(&table.name)?;
        let old = found.schema();
        let name = &table.name;
        if old.primary().is_some_and(|key| key.columns().all(|(column, _)| column != HIDDEN_KEY)) {
            let message = format!("multiple primary keys for table \"{name}\" are not allowed");
            return Err(Error::new("42P16", message));
        }
        let mut columns: Vec<_> =
            old.column_list().iter().filter(|column| column.name != HIDDEN_KEY).cloned().collect();
        for (wanted, at) in &key.columns {
            let Some(column) = columns.iter_mut().find(|column| column.name == *wanted) else {
                let message = format!("column \"{wanted}\" of relation \"{name}\" does not exist");
                return Err(Error::new("42703", message).at(*at));
            };
            column.nullable = false;
        }
        let mut transaction = self.db.begin(TransactionOptions::new().read_only())?;
        let mut rows = false;
        block_on(transaction.scan_table(&found, |_| {
            rows = true;
            ControlFlow::Break(())
        }))?;
        transaction.rollback();
        if rows {
            return Err(Error::unsupported(format!(
                "adding a primary key to table \"{name}\", which has rows,"
            ))
            .at(at)
            .hint("Add the key while the table is empty; pgbench does so with -I dtpg."));
        }
        let index = key.name.clone().unwrap_or_else(|| format!("{name}_pkey"));
        let mut schema = TableSchema::new(name)
            .tiering(old.row_tiering())
            .primary_key(IndexSchema::ordered(&index, &names))
            .columns(columns);
        for index in old.secondary() {
            schema = schema.index(index.clone());
        }
        self.db.drop_table(name)?;
        self.db.create_table(schema)?;
        Ok(())
    }

    /// TRUNCATE in an open transaction: all rows are deleted, so that a rollback brings them back.
    pub(super) async fn truncate_within(
        &mut self,
        names: &[ObjectName],
        restart: bool,
        cascade: bool,
    ) -> Result<Answer> {
        let mut answer = Answer::tagged("TRUNCATE TABLE");
        let mut all = self.truncated(names, cascade, &mut answer)?;
        // Children before their parents, so that foreign keys find nothing.
        all.reverse();
        for name in &all {
            let text = format!("delete from {}", quoted(name));
            let delete = crate::parser::parse(&text)?.pop().expect("it is a statement");
            let mut bound = self.bind(&delete.statement, Vec::new())?.0.expect("a DELETE is bound");
            if let Bound::Delete(delete) = &mut bound {
                // All tables that refer to each other are emptied together.
                let mut table = (*delete.table).clone();
                table.referenced.clear();
                delete.table = std::sync::Arc::new(table);
            }
            let context = Context { interrupt: self.interrupt.clone(), ..Context::default() };
            let catalog =
                super::EngineCatalog { db: &self.db, objects: &self.objects, sequences: &self.sequences };
            let open = self.open.as_mut().expect("a transaction is open");
            rows::run_open(catalog, open, &bound, &context, &mut Vec::new()).await?;
        }
        if restart {
            self.record(&self.restarted(&all))?;
        }
        Ok(answer)
    }
}
