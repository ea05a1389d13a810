//! Forms of tables: made from a definition, shared, told as the manifest and the log keep them.

use std::sync::Arc;

use thermocline_base::ids::{IndexId, TableId};

use thermocline_base::epoch::Epochs;

use crate::catalog::Catalog;
use crate::catalog::past::Past;
use crate::catalog::table::{IndexForm, KeySource, Settled, Structure, TableCounters, TableForm};
use crate::error::SchemaError;
use crate::error::{Error, Result};
use crate::hot::budget::{Budget, MemoryKind};
use crate::hot::life::shape_mask;
use crate::hot::memory::Memory;
use crate::hot::store::Store;
use crate::index::hash::HashIndex;
use crate::index::tree::Tree;
use crate::row::{ColumnSet, KeySpec, Layout, RowError};
use crate::schema::{IndexKind, IndexSchema, StoredTable, TableSchema, is_internal};

/// The error of a column of a table that is being defined.
pub(crate) fn schema_error(table: &str, source: RowError) -> Error {
    Error::Schema(SchemaError::Column { table: table.to_owned(), source })
}

/// Makes forms: what a table takes of its database.
#[derive(Clone, Copy)]
pub(crate) struct FormMaker<'d> {
    pub(crate) epochs: &'d Arc<Epochs>,
    pub(crate) budget: &'d Arc<Budget>,
    /// Address space that each memory of a table or index reserves.
    pub(crate) address_bytes: usize,
    /// Gives indexes their ids.
    pub(crate) catalog: &'d Catalog,
}

impl FormMaker<'_> {
    /// A fresh, empty form for a schema; index ids are new unless given. Batches of any time may take rows of it.
    pub(crate) fn form(self, stored: StoredTable, counters: Arc<TableCounters>) -> Result<TableForm> {
        let schema = stored.schema;
        schema.check()?;
        let layout = Layout::new(&schema.columns).map_err(|error| schema_error(&schema.name, error))?;
        let past = Past::new(&stored.past, &schema)?;
        let is_memo = is_internal(stored.id);
        let store = Store::new(self.address_bytes, is_memo, self.budget, self.epochs)?;
        let mut indexes = Vec::new();
        let mut ids = stored.index_ids.into_iter();
        let mut next_id = || ids.next().unwrap_or_else(|| self.catalog.fresh_index_id());
        match &schema.primary {
            Some(primary) => {
                indexes.push(self.index_of(next_id(), &schema, primary, &layout, is_memo)?);
            }
            None => indexes.push(self.hidden_index(next_id())?),
        }
        for index in &schema.indexes {
            indexes.push(self.index_of(next_id(), &schema, index, &layout, is_memo)?);
        }
        counters.auto.fetch_max(stored.auto, std::sync::atomic::Ordering::Relaxed);
        counters.hidden.fetch_max(stored.hidden, std::sync::atomic::Ordering::Relaxed);
        Ok(TableForm {
            id: stored.id,
            storage: stored.storage,
            suffix_bytes: TableForm::suffix_for(&schema),
            shape_mask: shape_mask(&layout),
            auto_column: schema.columns.iter().position(|column| column.auto_increment),
            layout: Arc::new(layout),
            layout_version: stored.layout_version,
            since: stored.since,
            changed: Settled::default(),
            emptied: Settled::at(stored.emptied),
            past: Arc::new(past),
            store: Arc::new(store),
            indexes,
            counters,
            schema,
        })
    }

    fn index_memory(self, kind: MemoryKind) -> Result<Arc<Memory>> {
        Ok(Arc::new(Memory::new(kind, self.address_bytes, Arc::clone(self.budget), Arc::clone(self.epochs))?))
    }

    pub(crate) fn index(
        self,
        id: IndexId,
        table: &TableSchema,
        schema: &IndexSchema,
        layout: &Layout,
    ) -> Result<Arc<IndexForm>> {
        self.index_of(id, table, schema, layout, false)
    }

    fn index_of(
        self,
        id: IndexId,
        table: &TableSchema,
        schema: &IndexSchema,
        layout: &Layout,
        is_memo: bool,
    ) -> Result<Arc<IndexForm>> {
        let spec = KeySpec::new(layout, &table.key_columns(schema))
            .map_err(|error| schema_error(&table.name, error))?;
        let columns = spec.columns().clone();
        self.build(id, schema.clone(), KeySource::Columns(spec), columns, is_memo)
    }

    fn hidden_index(self, id: IndexId) -> Result<Arc<IndexForm>> {
        let schema = IndexSchema::hash("hidden key", &[]).unique();
        self.build(id, schema, KeySource::Hidden, ColumnSet::default(), false)
    }

    fn build(
        self,
        id: IndexId,
        schema: IndexSchema,
        key: KeySource,
        columns: ColumnSet,
        is_memo: bool,
    ) -> Result<Arc<IndexForm>> {
        let kind = |kind| if is_memo { MemoryKind::Memo } else { kind };
        let refused = |memory: &Memory| Error::OutOfMemory(memory.refusal(4096));
        let (memory, structure) = match schema.kind {
            IndexKind::Hash => {
                let memory = self.index_memory(kind(MemoryKind::Hash))?;
                let hash = HashIndex::new(Arc::clone(&memory)).map_err(|_| refused(&memory))?;
                (memory, Structure::Hash(hash))
            }
            IndexKind::Ordered => {
                let memory = self.index_memory(kind(MemoryKind::Tree))?;
                let tree = Tree::new(Arc::clone(&memory)).map_err(|_| refused(&memory))?;
                (memory, Structure::Tree(tree))
            }
        };
        Ok(Arc::new(IndexForm { id, schema, key, columns, memory, structure }))
    }
}

impl TableForm {
    /// Its definition as the manifest keeps it.
    pub(crate) fn stored(&self) -> StoredTable {
        StoredTable {
            id: self.id,
            storage: self.storage,
            schema: self.schema.clone(),
            index_ids: self.indexes.iter().map(|index| index.id).collect(),
            layout_version: self.layout_version,
            since: self.since,
            emptied: self.emptied.get(),
            past: self.past.stored(),
            auto: self.counters.auto.load(std::sync::atomic::Ordering::Relaxed),
            hidden: self.counters.hidden.load(std::sync::atomic::Ordering::Relaxed),
        }
    }

    /// The same form once more, sharing rows and indexes.
    pub(crate) fn share(&self) -> Self {
        Self {
            id: self.id,
            storage: self.storage,
            schema: self.schema.clone(),
            layout: Arc::clone(&self.layout),
            layout_version: self.layout_version,
            since: self.since,
            changed: self.changed.clone(),
            emptied: self.emptied.clone(),
            past: Arc::clone(&self.past),
            store: Arc::clone(&self.store),
            indexes: self.indexes.clone(),
            counters: Arc::clone(&self.counters),
            suffix_bytes: self.suffix_bytes,
            shape_mask: self.shape_mask,
            auto_column: self.auto_column,
        }
    }

    /// `empty`, under this form's name: what handles of a dropped table see.
    pub(crate) fn emptied_as(&self, empty: Self) -> Self {
        Self { id: TableId(self.id.0), ..empty }
    }

    /// Number of a column.
    pub(crate) fn column(&self, name: &str) -> Result<usize> {
        self.schema.column_index(name).ok_or_else(|| {
            SchemaError::UnknownColumn { table: self.schema.name.clone(), column: name.to_owned() }.into()
        })
    }
}
