//! The engine's definitions as the binder sees them.

use thermocline_engine::Database;

use super::system;
use crate::catalog::{Catalog, Column as TableColumn, HIDDEN_KEY, Index, System, Table, sql_type};

/// The engine's definitions.
pub(super) struct EngineCatalog<'d> {
    pub(super) db: &'d Database,
}

impl Catalog for EngineCatalog<'_> {
    fn table(&self, name: &str) -> Option<std::sync::Arc<Table>> {
        let found = self.db.table(name).ok()?;
        let schema = found.schema();
        let columns: Vec<TableColumn> = schema
            .column_list()
            .iter()
            .map(|column| {
                let (ty, modifier) = sql_type(column.ty);
                TableColumn {
                    name: column.name.clone(),
                    ty,
                    modifier,
                    nullable: column.nullable,
                    stored: column.ty,
                    default: column.default.clone(),
                    numbered: column.auto_increment,
                    hidden: column.name == HIDDEN_KEY,
                }
            })
            .collect();
        let index = |index: &thermocline_engine::IndexSchema, unique: bool| Index {
            name: index.name().to_owned(),
            ordered: index.kind() == thermocline_engine::IndexKind::Ordered,
            unique,
            columns: index
                .columns()
                .map(|(column, descending)| {
                    (schema.column_index(column).expect("an index is on columns of its table"), descending)
                })
                .collect(),
        };
        let mut indexes: Vec<Index> = schema.primary().iter().map(|it| index(it, true)).collect();
        indexes.extend(schema.secondary().iter().map(|it| index(it, it.is_unique())));
        Some(std::sync::Arc::new(Table {
            name: name.to_owned(),
            columns,
            primary: schema.primary().map(|_| 0),
            indexes,
            rows: found.rows_about(),
        }))
    }

    fn names(&self) -> Vec<String> {
        self.db.table_names()
    }

    fn system(&self, schema: &str, name: &str) -> Option<System> {
        system::system(self, schema, name)
    }

    fn definitions(&self, constraints: bool) -> Vec<(i64, String)> {
        system::definitions(self, constraints)
    }

    fn relation_names(&self) -> Vec<(i64, String)> {
        system::names(self)
    }
}
