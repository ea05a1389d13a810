//! Changes of definitions: create, drop, truncate, rename, add and drop column, create and drop index. All of them happen in
//! transactions, among other operations.
//!
//! ```text
//!   name claimed, table held ─► new form made ─► pending: the transaction's own ─► … ─► commit: record, switch ─► published
//!   └ waits (`transaction`) ──┘  └ one step, under the lock of maintenance ┘         └ under the lock of definitions ┘
//! ```
//!
//! - Names are claimed and tables held until the transaction ends ([`crate::txn::definitions`]); then nobody else uses the table.
//!   Maintenance leaves it alone, checkpoints image it as everybody has it.
//! - A change leaves a new [`TableForm`]. One of the same rows shares store and indexes with the one before; emptying makes a
//!   new store under another name (*storage*); changing the columns writes the rows anew (same RowIds, same storage, a layout of a
//!   higher version), those that the transaction itself has written, too, which then are writes of it once more.
//! - Rows in the cold store stay as they are, and are brought up to date when they are read ([`crate::catalog::past`]); in a
//!   new index they get entries ([`crate::ops::backfill`]).
//! - The commit record says what the catalog has become ([`commit`]); replay does the same.
//!
//! A change that goes over rows tells how far it is, and can be ended ([`crate::ops::progress`]). Before a table is held for a column
//! that is added, the longest row in the cold store is looked for: that may take seconds, and users go on meanwhile.

mod commit;
mod rows;

pub(crate) use commit::{free_replaced, redefine};
pub(crate) use rows::fill_index;

use std::sync::Arc;

use thermocline_base::ids::{IndexId, Timestamp};
use thermocline_base::sync::Ordering;

use crate::catalog::make::schema_error;
use crate::catalog::past::{KEPT, Past, may_be_too_long, most_bytes};
use crate::catalog::table::{FormRef, Settled, TableEntry, TableForm};
use crate::cold::store::secondary_of;
use crate::error::SchemaError;
use crate::error::{Error, Result};
use crate::ops::progress::Advance;
use crate::row::{Column, Layout, MAX_ROW_BYTES, Value};
use crate::schema::{IndexSchema, PastChange, PastColumns, StoredTable, TableSchema, Tiering};
use crate::session::db::Inner;
use crate::session::{Health, Session, Touched};
use crate::txn::definitions::{Changed, Definitions, OwnForm, What};

/// Another name for the table, and what stands for the names from then on.
type NewNames = Vec<(String, Option<Arc<TableEntry>>)>;

pub(crate) fn may_define(db: &Inner) -> Result<()> {
    if db.options.read_only {
        return Err(Error::ReadOnly);
    }
    if db.closing.has_begun() {
        return Err(Error::Closed);
    }
    Ok(())
}

impl Session {
    /// May it change definitions now?
    pub(crate) fn may_define(&mut self) -> Result<()> {
        if self.health != Health::Well {
            return Err(Error::TransactionFailed);
        }
        self.must_write()?;
        may_define(&self.db)?;
        self.definitions.get_or_insert_with(|| Box::new(Definitions::new()));
        Ok(())
    }

    /// Is a table the transaction's alone?
    pub(crate) fn holds(&self, entry: &Arc<TableEntry>) -> bool {
        self.definitions.as_ref().is_some_and(|definitions| {
            definitions.has_made(entry) || definitions.held.iter().any(|held| Arc::ptr_eq(held, entry))
        })
    }

    /// What it has changed of definitions; there is something, or about to be.
    pub(crate) fn defined(&mut self) -> &mut Definitions {
        self.definitions.get_or_insert_with(|| Box::new(Definitions::new()))
    }

    /// The table that the transaction finds under a name.
    pub(crate) fn entry(&self, name: &str) -> Result<Arc<TableEntry>> {
        let found = match &self.definitions {
            Some(definitions) => definitions.names.find(&self.db.catalog, name),
            None => self.db.catalog.by_name(name),
        };
        found.ok_or_else(|| Error::UnknownTable { name: name.to_owned() })
    }

    /// Where a held table stands in the list of tables that the transaction uses.
    fn place_of(&self, entry: &TableEntry) -> usize {
        let place = self.tables.iter().position(|touched| std::ptr::eq(touched.entry, entry));
        place.expect("a table that is changed is used")
    }

    /// The form of a held table, as the transaction has it. It stays until the transaction ends.
    fn present<'f>(&self, entry: &TableEntry) -> &'f TableForm {
        self.tables[self.place_of(entry)].form.get()
    }

    /// The table has this form from now on, for the transaction.
    fn enter_form(&mut self, entry: &Arc<TableEntry>, form: OwnForm, names: NewNames) {
        let place = self.place_of(entry);
        let form_before = std::mem::replace(&mut self.tables[place].form, form.reference());
        let guard = self.db().epochs.pin();
        let before =
            entry.pending(&guard).map_or(std::ptr::null_mut(), |form| std::ptr::from_ref(form).cast_mut());
        let number = self.defined().number;
        entry.set_pending(form.pointer(), number);
        let change = Changed::new(entry, What::Altered { form, before }, place, form_before);
        self.defined().enter(change, names);
        // What it has read of the cold store is as the table was.
        self.cold_cache.clear();
    }

    /// Makes a table whose name has been claimed.
    pub(crate) fn create_table(&mut self, mut schema: TableSchema) -> Result<Arc<TableEntry>> {
        let db = self.db();
        schema.check()?;
        crate::ops::page::check_tiering(db, *schema.tiering.get_or_insert(db.options.tiering))?;
        let name = schema.name.clone();
        if self.entry(&name).is_ok() {
            return Err(SchemaError::DuplicateTable { table: name }.into());
        }
        let id = db.catalog.fresh_table_id();
        let stored = StoredTable {
            id,
            storage: id,
            schema,
            index_ids: Vec::new(),
            layout_version: 1,
            since: Timestamp(0),
            emptied: Timestamp(0),
            past: Vec::new(),
            auto: 0,
            hidden: 0,
        };
        let form = db.forms().form(stored, Arc::default())?;
        let entry = Arc::new(TableEntry::new(id, &db.epochs, form));
        // SAFETY: the mark is entered, and nobody else knows of the table.
        let form = unsafe { FormRef::of(&entry) };
        let place = self.enter_mark(&entry, form);
        let change = Changed::new(&entry, What::Created, place, form);
        self.defined().enter(change, vec![(name, Some(Arc::clone(&entry)))]);
        Ok(entry)
    }

    /// Uses a table from now on that nobody else can begin to use.
    pub(crate) fn enter_mark(&mut self, entry: &Arc<TableEntry>, form: FormRef) -> usize {
        let place = self.tables.len();
        self.place().marks.enter(place, entry.id);
        self.tables.push(Touched { entry: Arc::as_ptr(entry), form });
        place
    }

    /// Drops a held table whose name has been claimed.
    pub(crate) fn drop_table(&mut self, entry: &Arc<TableEntry>) {
        let place = self.place_of(entry);
        let form = self.tables[place].form;
        // The mark stays, but no operation finds the table any more.
        self.tables[place].entry = std::ptr::null();
        let name = form.get().schema.name.clone();
        self.defined().enter(Changed::new(entry, What::Dropped, place, form), vec![(name, None)]);
    }

    /// Empties a held table.
    pub(crate) fn truncate_table(&mut self, entry: &Arc<TableEntry>) -> Result<()> {
        let db = self.db();
        let old = self.present(entry);
        let storage = db.catalog.fresh_table_id();
        let stored =
            StoredTable { storage, since: Timestamp(0), emptied: Timestamp(u64::MAX), ..old.stored() };
        let new = db.forms().form(stored, Arc::clone(&old.counters))?;
        let new = TableForm { changed: Settled::at_commit(), ..new };
        self.enter_form(entry, OwnForm::new(new), Vec::new());
        Ok(())
    }

    /// Gives a held table another name; both have been claimed.
    pub(crate) fn rename_table(&mut self, entry: &Arc<TableEntry>, to: &str) -> Result<()> {
        if self.entry(to).is_ok() {
            return Err(SchemaError::DuplicateTable { table: to.to_owned() }.into());
        }
        let old = self.present(entry);
        let schema = TableSchema { name: to.to_owned(), ..old.schema.clone() };
        schema.check()?;
        let names = vec![(old.schema.name.clone(), None), (to.to_owned(), Some(Arc::clone(entry)))];
        self.enter_form(entry, OwnForm::new(TableForm { schema, ..old.share() }), names);
        Ok(())
    }

    /// Says anew where the rows of a held table may go.
    pub(crate) fn alter_tiering(&mut self, entry: &Arc<TableEntry>, tiering: Tiering) -> Result<()> {
        let old = self.present(entry);
        let schema = old.schema.clone().tiering(tiering);
        schema.check()?;
        crate::ops::page::check_tiering(self.db(), tiering)?;
        self.enter_form(entry, OwnForm::new(TableForm { schema, ..old.share() }), Vec::new());
        Ok(())
    }

    /// Gives a column of a held table another name.
    pub(crate) fn rename_column(&mut self, entry: &Arc<TableEntry>, from: &str, to: &str) -> Result<()> {
        let old = self.present(entry);
        let position = old.column(from)?;
        let mut schema = old.schema.clone();
        to.clone_into(&mut schema.columns[position].name);
        for index in schema.primary.iter_mut().chain(&mut schema.indexes) {
            for (name, _) in index.columns.iter_mut().filter(|(name, _)| name == from) {
                to.clone_into(name);
            }
        }
        schema.check()?;
        let layout = Layout::new(&schema.columns).map_err(|error| schema_error(&schema.name, error))?;
        // The indexes stay as they are: only their own memory of the names in messages is older.
        let mut stored = old.stored();
        note_past(self.db(), old, &mut stored, PastChange::Renamed);
        let past = Past::new(&stored.past, &schema)?;
        let new = TableForm { schema, layout: Arc::new(layout), past: Arc::new(past), ..old.share() };
        self.enter_form(entry, OwnForm::new(new), Vec::new());
        Ok(())
    }

    /// Makes an index on the rows of a held table, and says which it is.
    pub(crate) fn create_index(
        &mut self,
        entry: &Arc<TableEntry>,
        index: &IndexSchema,
        advance: &mut Advance<'_>,
    ) -> Result<IndexId> {
        let db = self.db();
        let maintenance = db.standstill.enter();
        let old = self.present(entry);
        old.must_be_whole()?;
        let looks = 1 + u64::from(index.unique);
        advance.begin(looks * (old.primary().len() + crate::ops::backfill::cold_records(db, old.id)))?;
        let mut schema = old.schema.clone();
        schema.indexes.push(index.clone());
        schema.check()?;
        let fresh = db.forms().index(db.catalog.fresh_index_id(), &schema, index, &old.layout)?;
        let id = fresh.id;
        let guard = db.epochs.pin();
        crate::ops::define::fill_index(old, &fresh, &guard, &mut || advance.row())?;
        crate::ops::define::rows::check_unique(old, &fresh, &guard, advance)?;
        drop(guard);
        // That may take long: maintenance and checkpoints go on, which leave a held table alone, or only read it.
        drop(maintenance);
        let has_cold = old.counters.cold.load(Ordering::SeqCst) && old.emptied.get() != Timestamp(u64::MAX);
        let filled = if has_cold {
            // Uses up the index's number, and makes the log durable past the moves of what is cold.
            crate::ops::checkpoint::write_definitions(db)?;
            crate::ops::backfill::fill_cold_index(db, old, &fresh, advance)?
        } else {
            None
        };
        advance.tell()?;
        let mut indexes = old.indexes.clone();
        indexes.push(fresh);
        let new = TableForm { schema, indexes, ..old.share() };
        self.enter_form(entry, OwnForm::new(new), Vec::new());
        if let Some(filled) = filled {
            let last = self.defined().changes.last_mut().expect("it was just entered");
            last.cold_index = Some(secondary_of(old.id, id));
            filled.keep();
        }
        Ok(id)
    }

    /// Drops an index of a held table.
    pub(crate) fn drop_index(&mut self, entry: &Arc<TableEntry>, index: &str) -> Result<()> {
        let old = self.present(entry);
        let table = || old.schema.name.clone();
        let position = old
            .indexes
            .iter()
            .position(|form| form.schema.name == index)
            .ok_or_else(|| Error::UnknownIndex { table: table(), index: index.to_owned() })?;
        if position == 0 {
            return Err(SchemaError::PrimaryKey { table: table() }.into());
        }
        let (mut schema, mut indexes) = (old.schema.clone(), old.indexes.clone());
        schema.indexes.remove(position - 1);
        indexes.remove(position);
        self.enter_form(entry, OwnForm::new(TableForm { schema, indexes, ..old.share() }), Vec::new());
        Ok(())
    }

    /// Writes the rows of a held table anew, with other columns. `looked`: what was known of it before it was held.
    pub(crate) fn change_columns(
        &mut self,
        entry: &Arc<TableEntry>,
        change: &ColumnChange,
        looked: Looked,
        advance: &mut Advance<'_>,
    ) -> Result<()> {
        let db = self.db();
        let old = self.present(entry);
        old.must_be_whole()?;
        let mut stored = old.stored();
        let at = change.place_in(&old.schema)?;
        let of = change.apply(at, &mut stored.schema)?;
        stored.layout_version += 1;
        note_past(db, old, &mut stored, of);
        let new = db.forms().form(stored, Arc::clone(&old.counters))?;
        let new = OwnForm::new(TableForm { changed: Settled::at_commit(), ..new });
        // Others may have added columns since it was looked at.
        let longest = if looked.layout_version == old.layout_version { looked.longest } else { u64::MAX };
        let made = self.write_anew(old, &new, (change, at), longest, advance);
        let writes = match made {
            Ok(writes) => writes,
            Err(error) => {
                drop(new.into_box());
                return Err(error);
            }
        };
        let added = change.added_bytes();
        let counters = Arc::clone(&old.counters);
        self.enter_form(entry, new, Vec::new());
        self.writes.extend(writes);
        // Rows that have moved are longer now, as the table has them.
        counters.longest_moved.fetch_add(added, Ordering::Relaxed);
        Ok(())
    }

    fn write_anew(
        &mut self,
        old: &TableForm,
        new: &OwnForm,
        (change, at): (&ColumnChange, usize),
        longest: u64,
        advance: &mut Advance<'_>,
    ) -> Result<Vec<crate::session::Write>> {
        let db = self.db();
        let new_form = new.reference().get();
        let added = change.added_bytes();
        // Those that have moved since it was looked for are known. Only if one may be too long all are looked at again.
        let longest = longest.max(old.counters.longest_moved.load(Ordering::Relaxed));
        if added != 0
            && may_be_too_long(&new_form.schema)
            && longest.saturating_add(added) > MAX_ROW_BYTES as u64
        {
            crate::ops::backfill::check_cold_lengths(db, new_form, advance)?;
        }
        let _maintenance = db.standstill.enter();
        let row_error = |source| Error::Row { table: old.schema.name.clone(), source };
        let convert = |row: &[u8], out: &mut Vec<u8>| {
            let mut values = old.layout.decode(row).map_err(row_error)?;
            change.convert(at, &mut values);
            new_form.layout.encode(&values, out).map_err(row_error)
        };
        let writes =
            crate::ops::define::rows::rewrite(db, old, new.reference(), self.id, &convert, &mut || {
                advance.row()
            })?;
        let guard = db.epochs.pin();
        for index in &new_form.indexes {
            crate::ops::define::fill_index(new_form, index, &guard, &mut || advance.row())?;
        }
        advance.tell()?;
        Ok(writes)
    }
}

/// A column that comes or goes.
#[derive(Clone, Debug)]
pub(crate) enum ColumnChange {
    Added(Column),
    /// The column with this name. Its place is known once the table is held: others' columns come and go before.
    Dropped(String),
}

/// Knowledge of a table that a change of its columns has before it holds the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    /// The longest row in the cold store.
    longest: u64,
    /// The layout that it was looked at with.
    layout_version: u32,
}

impl ColumnChange {
    /// The change of a table's columns, as far as it can be told without the table.
    pub(crate) fn added(table: &str, column: &Column) -> Result<Self> {
        if column.nullable || column.default.is_some() {
            return Ok(Self::Added(column.clone()));
        }
        Err(SchemaError::NoDefault { table: table.to_owned(), column: column.name.clone() }.into())
    }

    /// The place of the column in the rows of a table.
    fn place_in(&self, schema: &TableSchema) -> Result<usize> {
        match self {
            Self::Added(_) => Ok(schema.columns.len()),
            Self::Dropped(column) => schema.column_index(column).ok_or_else(|| {
                SchemaError::UnknownColumn { table: schema.name.clone(), column: column.clone() }.into()
            }),
        }
    }

    /// Changes a schema.
    fn apply(&self, at: usize, schema: &mut TableSchema) -> Result<PastChange> {
        let table = schema.name.clone();
        match self {
            Self::Added(column) => {
                schema.columns.push(column.clone());
                Ok(PastChange::Added)
            }
            Self::Dropped(column) => {
                let has_it = |index: &&IndexSchema| index.columns.iter().any(|(name, _)| name == column);
                if let Some(index) = schema.primary.iter().chain(&schema.indexes).find(has_it) {
                    let index = index.name.clone();
                    return Err(SchemaError::ColumnInUse { table, column: column.clone(), index }.into());
                }
                schema.columns.remove(at);
                Ok(PastChange::Dropped(u32::try_from(at).expect("a table has few columns")))
            }
        }
    }

    fn convert(&self, at: usize, values: &mut Vec<Value>) {
        match self {
            Self::Added(column) => values.insert(at, column.default.clone().unwrap_or(Value::Null)),
            Self::Dropped(_) => _ = values.remove(at),
        }
    }

    /// By how much a row gets longer, at most.
    fn added_bytes(&self) -> u64 {
        match self {
            Self::Added(column) => most_bytes(column),
            Self::Dropped(_) => 0,
        }
    }

    /// Looks for the longest row in the cold store, if the change may make one too long. The table is in use meanwhile.
    pub(crate) fn look(&self, db: &Inner, form: &TableForm, advance: &mut Advance<'_>) -> Result<Looked> {
        let looks_cold = matches!(self, Self::Added(_)) && may_be_too_long(&form.schema);
        let cold = if looks_cold { crate::ops::backfill::cold_records(db, form.id) } else { 0 };
        advance.begin(form.primary().len() * (1 + form.indexes.len() as u64) + cold)?;
        let longest = if looks_cold { crate::ops::backfill::longest_cold_row(db, form, advance)? } else { 0 };
        Ok(Looked { longest, layout_version: form.layout_version })
    }
}

/// Enters the present columns of a form among the past ones, as of the commit that is to come.
fn note_past(db: &Inner, old: &TableForm, stored: &mut StoredTable, change: PastChange) {
    stored.past.push(PastColumns {
        version: old.layout_version,
        until: Timestamp(u64::MAX),
        columns: old.schema.columns.clone(),
        change,
    });
    // As long as there are cold rows, some of them may be of any of these layouts; and so may images, and the log since.
    if !old.counters.cold.load(Ordering::SeqCst) {
        let oldest = crate::ops::checkpoint::oldest_layout(db, old);
        let surplus = stored.past.len().saturating_sub(KEPT);
        let unneeded = stored.past.iter().take_while(|past| past.version < oldest).count();
        stored.past.drain(..surplus.min(unneeded));
    }
}
