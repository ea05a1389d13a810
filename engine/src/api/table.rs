//! Handles of tables and indexes.

use std::sync::Arc;

use serde::Serialize;
use thermocline_base::ids::IndexId;
use thermocline_base::sync::Ordering;

use crate::catalog::table::{FormRef, TableEntry, TableForm};
use crate::error::{Error, Result};
use crate::row::{EncodedRow, KeyBuf, Layout, RowError, Type, Value};
use crate::schema::TableSchema;
use crate::session::Session;
use crate::session::db::Inner;
use crate::txn::definitions::Names;

/// The tables that there are: as everybody has them ([`Database::tables`](crate::Database::tables)), or as a transaction has them that has changed definitions
/// ([`Transaction::tables`](crate::Transaction::tables)). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tables {
    db: Arc<Inner>,
    /// The calls of the transaction otherwise.
    names: Option<Arc<Names>>,
    definitions: u64,
}

impl Tables {
    /// As everybody has them.
    pub(crate) fn of(db: &Arc<Inner>) -> Self {
        Self { db: Arc::clone(db), names: None, definitions: 0 }
    }

    /// As a transaction has them.
    pub(crate) fn of_session(session: &Session) -> Self {
        let own = session.definitions.as_ref();
        Self {
            db: Arc::clone(&session.db),
            names: own.map(|definitions| Arc::clone(&definitions.names)),
            definitions: own.map_or(0, |definitions| definitions.number),
        }
    }

    /// The table with this name.
    ///
    /// # Errors
    /// There is none.
    pub fn table(&self, name: &str) -> Result<Table> {
        let found = match &self.names {
            Some(names) => names.find(&self.db.catalog, name),
            None => self.db.catalog.by_name(name),
        };
        let entry = found.ok_or_else(|| Error::UnknownTable { name: name.to_owned() })?;
        Ok(Table { db: Arc::clone(&self.db), entry, definitions: self.definitions })
    }

    /// Names of all tables, ordered.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        match &self.names {
            Some(names) => names.all(&self.db.catalog),
            None => self.db.catalog.names(),
        }
    }
}

/// A handle to a table. Stays valid when the table's definition changes. Operations with it fail once the table is dropped
/// ([`Error::TableDropped`], even if another one has its name by now), and in transactions of another database or of
/// another opening of the same one ([`Error::ForeignHandle`]).
#[derive(Clone, Debug)]
pub struct Table {
    pub(crate) db: Arc<Inner>,
    pub(crate) entry: Arc<TableEntry>,
    /// Those of the transaction that the handle is of, as long as that is open; 0: it is of none.
    pub(crate) definitions: u64,
}

impl Table {
    /// The handle of a transaction, for which the table may be another one than for others.
    pub(crate) fn of_session(session: &Session, entry: Arc<TableEntry>) -> Self {
        let definitions = session.definitions.as_ref().map_or(0, |definitions| definitions.number);
        Self { db: Arc::clone(&session.db), entry, definitions }
    }

    pub(crate) fn with_form<R>(&self, see: impl FnOnce(&TableForm) -> R) -> R {
        let guard = self.db.epochs.pin();
        see(self.entry.form_for(self.definitions, &guard))
    }

    /// The same table, as everybody has it.
    pub(crate) fn everybodys(self) -> Self {
        Self { definitions: 0, ..self }
    }

    /// Its present name.
    #[must_use]
    pub fn name(&self) -> String {
        self.with_form(|form| form.schema.name.clone())
    }

    /// Its present definition.
    #[must_use]
    pub fn schema(&self) -> TableSchema {
        self.with_form(|form| form.schema.clone())
    }

    /// A number that changes with each change of the table's definition, and is cheap to read: whoever has compiled something
    /// for the table reads it first, and compares it when the program runs. A change that was refused may change it, too; numbers
    /// of different tables ([`Table::number`] tells them apart), and of different openings of the database, say nothing of each
    /// other.
    ///
    /// ```
    /// use thermocline_engine::row::{Column, Type};
    /// use thermocline_engine::{Database, IndexSchema, Options, TableSchema};
    ///
    /// # fn main() -> thermocline_engine::Result<()> {
    /// let db = Database::open_in_memory(Options::default())?;
    /// let numbers = db.create_table(TableSchema::new("numbers").column(Column::new("number", Type::Int8)))?;
    /// let compiled_at = numbers.definition();
    /// assert_eq!(numbers.definition(), compiled_at);
    /// db.create_index("numbers", IndexSchema::ordered("by_number", &["number"]))?;
    /// assert_ne!(numbers.definition(), compiled_at);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn definition(&self) -> u64 {
        self.entry.definition()
    }

    /// A number that no other table of this opening of the database has or has had: it tells a table from one that gets its
    /// name later. Together with [`Table::definition`] it says what a compiled program stands on.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.entry.id.0
    }

    /// The layout of its rows.
    #[must_use]
    pub fn layout(&self) -> Arc<Layout> {
        self.with_form(|form| Arc::clone(&form.layout))
    }

    /// The primary key's index; in a table without one, the index of the hidden key.
    #[must_use]
    pub fn primary(&self) -> Index {
        let id = self.with_form(|form| form.primary().id);
        self.index_of(id)
    }

    fn index_of(&self, id: IndexId) -> Index {
        let (db, entry, definitions) = (Arc::clone(&self.db), Arc::clone(&self.entry), self.definitions);
        Index { db, entry, id, definitions }
    }

    /// The index with this name.
    ///
    /// # Errors
    /// There is none.
    pub fn index(&self, name: &str) -> Result<Index> {
        let id = self.with_form(|form| {
            form.indexes.iter().find(|index| index.schema.name == name).map(|index| index.id).ok_or_else(
                || Error::UnknownIndex { table: form.schema.name.clone(), index: name.to_owned() },
            )
        })?;
        Ok(self.index_of(id))
    }

    /// Encodes a row from values, one for each column; nulls become defaults and auto-increment numbers where the
    /// column has them. Returns the auto-increment number.
    ///
    /// # Errors
    /// Values that do not fit.
    pub fn encode_values(&self, values: &[Value], out: &mut EncodedRow) -> Result<Option<i64>> {
        self.with_form(|form| {
            let mut number = None;
            let columns = form.layout.columns();
            let filled: Vec<Value> = values
                .iter()
                .enumerate()
                .map(|(position, value)| match (value, columns.get(position)) {
                    (Value::Null, Some(column)) if column.auto_increment => {
                        let next = form.counters.auto.fetch_add(1, Ordering::Relaxed) + 1;
                        let next = i64::try_from(next).unwrap_or(i64::MAX);
                        number = Some(next);
                        integer_of(column.ty, next)
                    }
                    (Value::Null, Some(column)) => column.default.clone().unwrap_or(Value::Null),
                    (value, Some(column)) if column.auto_increment => {
                        form.note_auto(value);
                        value.clone()
                    }
                    (value, _) => value.clone(),
                })
                .collect();
            form.layout
                .encode_row(&filled, out)
                .map_err(|source| Error::Row { table: form.schema.name.clone(), source })?;
            Ok(number)
        })
    }

    /// Encodes a row from anything that serde can serialize as a struct or map of columns.
    ///
    /// # Errors
    /// Values that do not fit.
    pub fn encode_from<T: Serialize + ?Sized>(&self, row: &T, out: &mut EncodedRow) -> Result<Option<i64>> {
        let values = self
            .with_form(|form| crate::row::to_values(&form.layout, row))
            .map_err(|source| self.error(source))?;
        self.encode_values(&values, out)
    }

    /// An error about a row of this table, for closures that edit rows.
    #[must_use]
    pub fn error(&self, source: RowError) -> Error {
        Error::Row { table: self.name(), source }
    }

    /// The primary key of an encoded row.
    ///
    /// # Errors
    /// The row does not fit the table, or the key is hidden.
    pub fn primary_key_of(&self, row: &[u8], key: &mut KeyBuf) -> Result<()> {
        self.with_form(|form| {
            let table = || form.schema.name.clone();
            form.layout.check(row).map_err(|source| Error::Row { table: table(), source: source.unfit() })?;
            if form.hidden_key() {
                return Err(Error::UnknownIndex { table: table(), index: "primary key".to_owned() });
            }
            form.primary().key_of_row(row, &[], key);
            key.check_len().map_err(|source| Error::Row { table: table(), source })
        })
    }
}

/// A handle to an index; what [`Table`] says of handles holds for it, too.
#[derive(Clone, Debug)]
pub struct Index {
    pub(crate) db: Arc<Inner>,
    pub(crate) entry: Arc<TableEntry>,
    pub(crate) id: IndexId,
    /// As those of [`Table`].
    pub(crate) definitions: u64,
}

impl Index {
    /// The index with this id of a table.
    pub(crate) fn of(table: Table, id: IndexId) -> Self {
        let Table { db, entry, definitions } = table;
        Self { db, entry, id, definitions }
    }

    /// The same index, as everybody has it.
    pub(crate) fn everybodys(self) -> Self {
        Self { definitions: 0, ..self }
    }

    /// The form of its table, inside of what an operation of a transaction shows rows to.
    #[inline]
    pub(crate) fn form_in_use(&self) -> &TableForm {
        // The operation has entered its transaction's mark for the table, which keeps the form until that ends.
        FormRef::own(self.entry.form_in_use()).get()
    }

    /// Its table.
    #[must_use]
    pub fn table(&self) -> Table {
        Table { db: Arc::clone(&self.db), entry: Arc::clone(&self.entry), definitions: self.definitions }
    }

    /// Its name; empty once it was dropped.
    #[must_use]
    pub fn name(&self) -> String {
        self.table()
            .with_form(|form| form.index(self.id).map(|index| index.schema.name.clone()).unwrap_or_default())
    }

    /// The key of an encoded row in this index.
    ///
    /// # Errors
    /// The index was dropped, or the row does not fit the table.
    pub fn key_of(&self, row: &[u8], key: &mut KeyBuf) -> Result<()> {
        self.table().with_form(|form| {
            let table = || form.schema.name.clone();
            let index = Session::index_of(form, self.id)?;
            form.layout.check(row).map_err(|source| Error::Row { table: table(), source: source.unfit() })?;
            index.key_of_row(row, &[], key);
            key.check_len().map_err(|source| Error::Row { table: table(), source })
        })
    }

    /// The key made of these values, or a prefix of it.
    ///
    /// # Errors
    /// Values of other types than the columns'.
    pub fn key_of_values(&self, values: &[Value]) -> Result<KeyBuf> {
        self.table().with_form(|form| {
            let index = Session::index_of(form, self.id)?;
            match &index.key {
                crate::catalog::table::KeySource::Columns(spec) => spec
                    .encode_values(values)
                    .map_err(|source| Error::Row { table: form.schema.name.clone(), source }),
                crate::catalog::table::KeySource::Hidden => Err(Error::UnknownIndex {
                    table: form.schema.name.clone(),
                    index: "with columns (its key is hidden)".to_owned(),
                }),
            }
        })
    }
}

/// A number as a value of an integer type; out of range it becomes what the type refuses.
fn integer_of(ty: Type, number: i64) -> Value {
    match ty {
        Type::Int2 => i16::try_from(number).map_or(Value::Int8(number), Value::Int2),
        Type::Int4 => i32::try_from(number).map_or(Value::Int8(number), Value::Int4),
        _ => Value::Int8(number),
    }
}
