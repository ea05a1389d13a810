//! Verification of rows: checksums prove that bytes are those that were written, this proves that they are rows.
//!
//! Each row of an image and each record of the cold store is checked against the layout that it has to have: its length, places,
//! null bits, texts, and the range of each value. A record has the layout of its batch's time ([`crate::catalog::past`]).
//!
//! Limits: rows in the log are checked when they are replayed.

use std::collections::BTreeMap;

use thermocline_base::ids::TableId;
use thermocline_frozen::BlockMeta;
use thermocline_pool::store::{BatchId, IndexId as StoreIndex};

use crate::catalog::past::RowCheck;
use crate::cold::store::is_secondary;
use crate::row::{KeySpec, RowError};
use crate::schema::StoredTable;

/// Rows of a table that are named one by one.
const NAMED: u64 = 8;

/// What is checked of one table.
#[derive(Debug)]
struct OfTable {
    name: String,
    check: RowCheck,
    primary: Option<KeySpec>,
    /// Records of batches up to this are not the table's any more.
    emptied: u64,
    bad: u64,
}

/// Checks rows of all tables of a catalog, and keeps what it finds in words.
#[derive(Debug)]
pub(crate) struct RowChecks {
    tables: BTreeMap<TableId, OfTable>,
    /// Which table has the rows of which storage.
    storages: BTreeMap<TableId, TableId>,
    findings: Vec<String>,
}

impl RowChecks {
    /// For the tables of a catalog. One whose definition cannot be is a finding.
    pub(crate) fn new(tables: &[StoredTable]) -> Self {
        let storages = tables.iter().map(|table| (table.storage, table.id)).collect();
        let mut checks = Self { tables: BTreeMap::new(), storages, findings: Vec::new() };
        for table in tables {
            let name = table.schema.name.clone();
            match RowCheck::new(table) {
                Ok(check) => {
                    let primary = table.schema.primary.as_ref();
                    let primary = primary
                        .and_then(|key| KeySpec::new(check.layout(), &table.schema.key_columns(key)).ok());
                    let emptied = table.emptied.0;
                    checks.tables.insert(table.id, OfTable { name, check, primary, emptied, bad: 0 });
                }
                Err(error) => checks.findings.push(format!("the definition of table {name:?}: {error}")),
            }
        }
        checks
    }

    /// Looks at a row in memory's form, of an image with a layout of this version.
    pub(crate) fn row(
        &mut self,
        storage: TableId,
        version: u32,
        payload: &[u8],
        place: impl FnOnce() -> String,
    ) {
        let Some(of) = self.storages.get(&storage).and_then(|table| self.tables.get_mut(table)) else {
            return;
        };
        let outcome = of.check.row(version, payload);
        of.note(outcome, place, &mut self.findings);
    }

    /// Looks at those rows of a block that have a bit; how many they are.
    ///
    /// # Errors
    /// The block is damaged, in words.
    pub(crate) fn frozen<F: FnOnce() -> String>(
        &mut self,
        storage: TableId,
        version: u32,
        bytes: &[u8],
        hidden: &[u64],
        slots: &[u64],
        place: impl Fn(u16) -> F,
    ) -> Result<u64, String> {
        let Some(of) = self.storages.get(&storage).and_then(|table| self.tables.get(table)) else {
            return Ok(0);
        };
        let layout = of.check.layout_of(version);
        let meta = BlockMeta::parse(bytes, layout).map_err(|error| error.to_string())?;
        let block = meta.block(bytes);
        block.verify().map_err(|error| error.to_string())?;
        let (mut rows, mut row) = (0, Vec::new());
        for position in 0..=u16::MAX {
            if slots.get(usize::from(position) / 64).is_none_or(|word| word >> (position % 64) & 1 == 0) {
                continue;
            }
            row.clear();
            if !block.row_into(position, &mut row) {
                return Err(format!("slot {position} has none"));
            }
            row.extend(hidden.get(usize::from(position)).into_iter().flat_map(|key| key.to_le_bytes()));
            self.row(storage, version, &row, place(position));
            rows += 1;
        }
        Ok(rows)
    }

    /// Looks at an entry of the cold store.
    pub(crate) fn record(&mut self, index: StoreIndex, key: &[u8], batch: BatchId, record: &[u8]) {
        let Some(of) = self.tables.get_mut(&TableId(index.table)) else { return };
        if is_secondary(index) || batch.0 <= of.emptied {
            return;
        }
        let outcome = of.check.record(batch.0, record);
        let words = of.primary.as_ref().filter(|_| outcome.is_err()).map(|spec| spec.display_key(key));
        let place =
            || format!("the cold store, {batch}, {}", words.unwrap_or_else(|| format!("key {key:02x?}")));
        of.note(outcome, place, &mut self.findings);
    }

    /// What was found, in words.
    pub(crate) fn finish(mut self) -> Vec<String> {
        for of in self.tables.values().filter(|of| of.bad > NAMED) {
            self.findings.push(format!("table {:?}: {} more rows are none", of.name, of.bad - NAMED));
        }
        self.findings
    }
}

impl OfTable {
    fn note(
        &mut self,
        outcome: Result<(), RowError>,
        place: impl FnOnce() -> String,
        findings: &mut Vec<String>,
    ) {
        let Err(error) = outcome else { return };
        self.bad += 1;
        if self.bad <= NAMED {
            findings.push(format!("a row of table {:?} ({}): {error}", self.name, place()));
        }
    }
}
