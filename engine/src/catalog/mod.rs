//! The catalog: which tables there are, by name and by id.
//!
//! Its durable form is part of the checkpoint manifest; a change of a definition stands in the record of its commit
//! (`ops/define`).
//!
//! A name that a transaction gives or takes away is *claimed* by it until it ends, so that of two that want one name the
//! second waits, and looks again.

pub(crate) mod hold;
pub(crate) mod make;
pub(crate) mod past;
pub(crate) mod table;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{IndexId, TableId};

use crate::catalog::table::TableEntry;
use crate::schema::is_internal;
use crate::schema::{Redefined, StoredTable, encode_catalog};

/// Names and ids of all tables.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    tables: RwLock<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    by_name: HashMap<String, Arc<TableEntry>>,
    by_id: BTreeMap<TableId, Arc<TableEntry>>,
    /// Names that are being given or taken away, and the places of the transactions that do.
    claims: HashMap<String, u32>,
    next_table: u32,
    next_index: u32,
}

impl Catalog {
    fn read(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table with this name.
    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<TableEntry>> {
        self.read().by_name.get(name).cloned()
    }

    /// The table with this id.
    pub(crate) fn by_id(&self, id: TableId) -> Option<Arc<TableEntry>> {
        self.read().by_id.get(&id).cloned()
    }

    /// The name of the table with this id.
    pub(crate) fn name_of(&self, id: TableId) -> Option<String> {
        let tables = self.read();
        tables.by_name.iter().find(|(_, entry)| entry.id == id).map(|(name, _)| name.clone())
    }

    /// All tables, by id, those that users do not see too.
    pub(crate) fn all(&self) -> Vec<Arc<TableEntry>> {
        self.read().by_id.values().cloned().collect()
    }

    /// All names, ordered.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.read().by_name.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// A table id that was never given before.
    pub(crate) fn fresh_table_id(&self) -> TableId {
        let mut tables = self.write();
        tables.next_table += 1;
        TableId(tables.next_table)
    }

    /// An index id that was never given before.
    pub(crate) fn fresh_index_id(&self) -> IndexId {
        let mut tables = self.write();
        tables.next_index += 1;
        IndexId(tables.next_index)
    }

    /// Was this table id ever given?
    pub(crate) fn has_given(&self, id: TableId) -> bool {
        id.0 <= self.read().next_table
    }

    /// Keeps ids ahead of those of a manifest.
    pub(crate) fn reach(&self, next_table: u32, next_index: u32) {
        let mut tables = self.write();
        tables.next_table = tables.next_table.max(next_table);
        tables.next_index = tables.next_index.max(next_index);
    }

    /// Adds a table.
    pub(crate) fn add(&self, name: &str, entry: Arc<TableEntry>) {
        let mut tables = self.write();
        tables.by_id.insert(entry.id, Arc::clone(&entry));
        tables.by_name.insert(name.to_owned(), entry);
    }

    /// Adds a table that users do not see: it has no name, and is no part of the catalog's durable form.
    pub(crate) fn add_system(&self, entry: Arc<TableEntry>) {
        self.write().by_id.insert(entry.id, entry);
    }

    /// Claims a name for the transaction in `place`. `Err`: another one has claimed it.
    pub(crate) fn claim(&self, name: &str, place: u32) -> Result<bool, u32> {
        let mut tables = self.write();
        match tables.claims.get(name) {
            Some(&owner) if owner == place => Ok(false),
            Some(&owner) => Err(owner),
            None => {
                tables.claims.insert(name.to_owned(), place);
                Ok(true)
            }
        }
    }

    /// Who has claimed a name.
    pub(crate) fn claimed_by(&self, name: &str) -> Option<u32> {
        self.read().claims.get(name).copied()
    }

    /// Gives a claimed name up.
    pub(crate) fn release(&self, name: &str) {
        self.write().claims.remove(name);
    }

    /// Tables are called otherwise from now on: each with the name that it had, if it was there, and the one that it has, if it
    /// stays.
    pub(crate) fn rename_all<'n>(&self, all: &[(Arc<TableEntry>, Option<&'n str>, Option<&'n str>)]) {
        let mut tables = self.write();
        for (entry, before, after) in all {
            if let Some(name) = before {
                tables.by_name.remove(*name);
            }
            if after.is_none() {
                tables.by_id.remove(&entry.id);
            }
        }
        for (entry, _, after) in all {
            if let Some(name) = after {
                tables.by_id.insert(entry.id, Arc::clone(entry));
                tables.by_name.insert((*name).to_owned(), Arc::clone(entry));
            }
        }
    }

    /// The durable form of the whole catalog.
    pub(crate) fn encode(&self, guard: &Guard<'_>) -> Vec<u8> {
        let tables = self.read();
        let stored: Vec<StoredTable> = tables
            .by_id
            .values()
            .filter(|entry| !is_internal(entry.id))
            .map(|entry| {
                let form = entry.form_pinned(guard);
                StoredTable { id: entry.id, ..form.stored() }
            })
            .collect();
        encode_catalog(&stored, tables.next_table, tables.next_index)
    }

    /// What a commit does, with the numbers that have been given by now.
    pub(crate) fn redefined(&self, tables: Vec<StoredTable>, dropped: Vec<TableId>) -> Redefined {
        let known = self.read();
        Redefined { tables, dropped, next_table: known.next_table, next_index: known.next_index }
    }
}
