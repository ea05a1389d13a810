//! The table of YCSB and its loader.
//!
//! `usertable` has an int8 key and `fields` columns of bytes, `field0`, `field1`, … Threads take stretches of keys one
//! after another and load each as a whole. Contents depend on the configuration's seed alone.

use thermocline_base::sync::{AtomicU64, Mutex, Ordering};
use thermocline_engine::row::{Column, Layout, RowEditor, RowRef, Type, Value};
use thermocline_engine::{Database, Error, Index, IndexSchema, Result, Table, TableSchema, block_on};

use super::generate::Config;

/// Name of the table.
pub const TABLE: &str = "usertable";

/// Number of the key's column; field `n` is column `n + 1`.
pub(crate) const KEY_COLUMN: usize = 0;

/// The table and its key, looked up once.
#[derive(Clone)]
pub struct UserTable {
    /// The table.
    pub table: Table,
    /// Its key.
    pub key: Index,
}

/// The definition of the table.
#[must_use]
pub fn definition(config: &Config) -> TableSchema {
    let fields = (0..config.fields).map(|field| Column::new(format!("field{field}"), Type::Bytes));
    let index =
        if config.ordered || config.workload.scans() { IndexSchema::ordered } else { IndexSchema::hash };
    TableSchema::new(TABLE)
        .column(Column::new("key", Type::Int8))
        .columns(fields)
        .primary_key(index("pk", &["key"]))
}

impl UserTable {
    /// Creates the table.
    ///
    /// # Errors
    /// It exists already, or the engine refuses.
    pub fn create(database: &Database, config: &Config) -> Result<Self> {
        let table = database.create_table(definition(config))?;
        Ok(Self { key: table.primary(), table })
    }

    /// Looks the table up.
    ///
    /// # Errors
    /// It does not exist.
    pub fn open(database: &Database) -> Result<Self> {
        let table = database.table(TABLE)?;
        Ok(Self { key: table.primary(), table })
    }
}

/// Builds rows without allocating: edits a template whose fields have the right length, so that every field is
/// overwritten in place.
#[derive(Debug)]
pub(crate) struct RowBuilder {
    layout: Layout,
    template: Vec<u8>,
    row: Vec<u8>,
    field: Vec<u8>,
}

impl RowBuilder {
    pub(crate) fn new(config: &Config) -> Self {
        let layout = Layout::new(definition(config).column_list())
            .expect("an int8 and a number of columns of bytes make a layout");
        let mut template = Vec::new();
        let values: Vec<Value> = std::iter::once(Value::Int8(0))
            .chain((0..config.fields).map(|_| Value::Bytes(vec![0; config.field_bytes as usize])))
            .collect();
        layout.encode(&values, &mut template).expect("the values are of the columns' types");
        Self { layout, template, row: Vec::new(), field: vec![0; config.field_bytes as usize] }
    }

    /// The row with `key` whose fields `fill` writes.
    pub(crate) fn build(&mut self, key: u64, mut fill: impl FnMut(u16, &mut [u8])) -> RowRef<'_> {
        let Self { layout, template, row, field } = self;
        let fields = layout.columns().len() - 1;
        let mut editor = RowEditor::new(layout, template, row);
        editor.set_i64(KEY_COLUMN, key as i64).expect("the key is an int8");
        for number in 0..fields {
            fill(number as u16, field);
            editor.set_bytes(number + 1, field).expect("the fields are bytes");
        }
        // An editor that changed nothing (key 0 with empty fields) has copied nothing.
        let row = if editor.changed_columns().is_empty() { template } else { row };
        RowRef::checked(layout, row).expect("an editor makes rows of its layout")
    }

    /// A field of random content.
    pub(crate) fn field(&mut self, fill: impl FnOnce(&mut [u8])) -> &[u8] {
        fill(&mut self.field);
        &self.field
    }
}

/// Options of a load.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Threads that generate and insert.
    pub threads: usize,
    /// Rows that are loaded at a time, as one transaction.
    pub batch_rows: u64,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { threads: 1, batch_rows: 1_000 }
    }
}

/// Creates the table, fills it, and calls `progress` with the number of rows so far after every transaction, from any
/// of the loading threads.
///
/// # Errors
/// The first error of any thread; the others stop at their next transaction.
pub fn load(
    database: &Database,
    config: &Config,
    options: LoadOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<UserTable> {
    let table = UserTable::create(database, config)?;
    let next = AtomicU64::new(0);
    let rows = AtomicU64::new(0);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let batch_rows = options.batch_rows.max(1);
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                let mut builder = RowBuilder::new(config);
                while failure.lock().is_none() {
                    let first = next.fetch_add(batch_rows, Ordering::Relaxed);
                    if first >= config.records {
                        return;
                    }
                    let end = (first + batch_rows).min(config.records);
                    let outcome = block_on(async {
                        let mut load = database.begin_bulk_load(&table.table)?;
                        for key in first..end {
                            let fill = |field, bytes: &mut [u8]| config.fill_loaded(key, field, bytes);
                            load.push(builder.build(key, fill)).await?;
                        }
                        load.commit().await
                    });
                    match outcome {
                        Ok(_) => progress(rows.fetch_add(end - first, Ordering::Relaxed) + end - first),
                        Err(error) => {
                            failure.lock().get_or_insert(error);
                        }
                    }
                }
            });
        }
    });
    failure.into_inner().map_or(Ok(table), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ycsb::generate::Workload;

    #[test]
    fn rows_are_built_in_place_and_whole() {
        let mut config = Config::new(Workload::A, 10);
        (config.fields, config.field_bytes) = (3, 17);
        let mut builder = RowBuilder::new(&config);
        let layout = builder.layout.clone();
        for key in [7u64, 8] {
            let row = builder.build(key, |field, bytes| config.fill_loaded(key, field, bytes)).to_vec();
            layout.check(&row).expect("a row of the layout");
            let values = layout.decode(&row).expect("a row of the layout");
            assert_eq!(values[0], Value::Int8(key as i64));
            for field in 0..3 {
                let mut expected = vec![0; 17];
                config.fill_loaded(key, field, &mut expected);
                assert_eq!(values[usize::from(field) + 1], Value::Bytes(expected));
            }
        }
    }
}
