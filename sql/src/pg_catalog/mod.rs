//! Definitions as the binder sees them: the engine's, and what the hidden tables say beside them.

mod activity;
mod constraints;
mod described;
mod more;
mod shapes;
mod tables;
mod zones;

pub(crate) use described::Described;
pub(crate) use tables::default_text;

use std::sync::Arc;

use thermocline_engine::{Database, Tables, Tiering};

use crate::catalog::{
    Catalog, Column as TableColumn, Foreign, HIDDEN_KEY, Identity, Index, System, Table, sql_type,
};
use crate::names::OWN;
use crate::objects::Objects;
use crate::objects::rows::{DefaultRow, ForeignRow};
use crate::objects::sequences::SessionSequences;
use crate::types::Type;

/// All definitions, at one moment.
#[derive(Clone, Copy)]
pub(crate) struct EngineCatalog<'d> {
    pub(crate) db: &'d Database,
    /// Tables as the session finds them.
    pub(crate) tables: &'d Tables,
    pub(crate) objects: &'d Objects,
    pub(crate) sequences: &'d SessionSequences,
    pub(crate) common: &'d crate::shared::Common,
    /// The schemas in which names without one are looked for.
    pub(crate) path: &'d [String],
    /// Tables that were described before; none where a transaction has definitions of its own, which no number tells from others'.
    pub(crate) described: Option<&'d Described>,
}

fn foreign(child: &str, name: &str, row: &ForeignRow) -> Arc<Foreign> {
    Arc::new(Foreign {
        name: name.to_owned(),
        child: child.to_owned(),
        columns: row.columns.clone(),
        parent: row.parent.clone(),
        parent_columns: row.parent_columns.clone(),
        on_delete: row.on_delete,
        on_update: row.on_update,
        deferrable: row.deferrable,
        deferred: row.deferred,
    })
}

impl EngineCatalog<'_> {
    fn column(&self, table: &str, column: &thermocline_row::Column) -> TableColumn {
        let (ty, modifier) = sql_type(column.ty);
        let mut made = TableColumn {
            name: column.name.clone(),
            ty,
            modifier,
            nullable: column.nullable,
            stored: column.ty,
            default: column.default.clone(),
            numbered: column.auto_increment,
            default_text: None,
            identity: None,
            hidden: column.name == HIDDEN_KEY,
        };
        if let Some(row) = self.objects.column(table, &column.name) {
            if let Some((oid, modifier)) = row.ty
                && let Some(ty) = Type::from_oid(oid)
            {
                (made.ty, made.modifier) = (ty, modifier);
            }
            made.nullable &= !row.not_null;
            made.identity = row.identity;
            match &row.default {
                DefaultRow::Engine => {}
                DefaultRow::Dropped => made.default = None,
                DefaultRow::Text(text) => {
                    made.default = None;
                    made.default_text = Some(text.clone());
                }
            }
        }
        made
    }

    /// A table with all that is known of it.
    fn describe(&self, name: &str, found: &thermocline_engine::Table, identity: Identity) -> Table {
        let schema = found.schema();
        let columns: Vec<TableColumn> =
            schema.column_list().iter().map(|column| self.column(name, column)).collect();
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
        let keys = |wanted: &dyn Fn(&str, &str) -> bool| {
            let all = self.objects.foreign().filter(|(child, _, row)| wanted(child, &row.parent));
            all.map(|(child, name, row)| foreign(child, name, row)).collect()
        };
        Table {
            name: name.to_owned(),
            identity,
            columns,
            primary: schema.primary().map(|_| 0),
            indexes,
            rows: found.rows_about(),
            tiering: Some(schema.row_tiering()).filter(|tiering| *tiering != Tiering::Auto),
            checks: self
                .objects
                .checks(name)
                .map(|(name, row)| (name.to_owned(), row.condition.clone()))
                .collect(),
            foreign: keys(&|child, _| child == name),
            referenced: keys(&|_, parent| parent == name),
        }
    }
}

impl Catalog for EngineCatalog<'_> {
    fn table(&self, name: &str) -> Option<Arc<Table>> {
        let found = self.tables.table(name).ok()?;
        if name.starts_with(OWN) {
            return None;
        }
        // The identity first: it may be too old then, and never too new.
        let identity = Identity::of(&found);
        let Some(described) = self.described else {
            return Some(Arc::new(self.describe(name, &found, identity)));
        };
        let (version, rows) = (self.objects.version, found.rows_about());
        if let Some(known) = described.find(version, name, identity, rows) {
            return Some(known);
        }
        let table = Arc::new(self.describe(name, &found, identity));
        described.keep(version, &table);
        Some(table)
    }
    fn names(&self) -> Vec<String> {
        self.tables.names().into_iter().filter(|name| !name.starts_with(OWN)).collect()
    }

    fn has_table(&self, name: &str) -> bool {
        !name.starts_with(OWN) && self.tables.table(name).is_ok()
    }

    fn path(&self) -> &[String] {
        self.path
    }

    fn objects(&self) -> &Objects {
        self.objects
    }

    fn common(&self) -> Option<&crate::shared::Common> {
        Some(self.common)
    }

    fn sequences(&self) -> &SessionSequences {
        self.sequences
    }

    fn pg_table(&self, schema: &str, name: &str) -> Option<System> {
        tables::pg_table(self, schema, name)
    }

    fn definitions(&self, constraints: bool) -> Vec<(i64, String)> {
        tables::definitions(self, constraints)
    }

    fn relation_names(&self) -> Vec<(i64, String)> {
        tables::names(self)
    }

    fn schema_names(&self) -> Vec<(i64, String)> {
        tables::schemas(self.objects)
    }

    fn comments(&self) -> Vec<(i64, i64, String)> {
        tables::comments(self)
    }

    fn size(&self, name: &str) -> u64 {
        self.tables.table(name).map_or(0, |table| {
            let found = table.statistics();
            found.bytes_hot + found.bytes_frozen + found.bytes_cold
        })
    }

    fn view_texts(&self) -> Vec<(i64, String)> {
        tables::view_texts(self)
    }
}
