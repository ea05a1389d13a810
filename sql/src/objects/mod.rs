//! The hidden tables of SQL: what definitions say that the engine does not keep, as rows of two hidden ordinary tables.
//!
//! | table | a row is | key |
//! |---|---|---|
//! | [`OBJECTS`] | an object of a table: see [`rows`] | kind, owner, name |
//! | [`SEQUENCES`] | a sequence and its position | name |
//!
//! Both are made when the first row is written. Their names begin with [`OWN`](crate::names::OWN), which the parser refuses, so
//! that no statement names them, and catalogs leave them out.
//!
//! Rules:
//! - A definition changes rows in the transaction that makes it, after the engine's own definition.
//! - Sessions read them at present: the newest committed rows, kept in [`Shared`] until [`Shared::changed`] counts on, which each
//!   writer does once its transaction is committed. A transaction that has changed rows itself reads through itself.
//! - What an object is about is dropped and renamed by the definition that drops or renames it ([`Objects::about`]).

mod change;
pub(crate) mod rows;
pub(crate) mod sequences;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use thermocline_engine::{Database, Table, Transaction, TransactionOptions, block_on};
use thermocline_row::Layout;

use crate::error::{Error, Result};
use crate::names;
use rows::{CheckRow, ColumnRow, ForeignRow, Kind, Object, SchemaRow, SequenceRow, ViewRow};

pub(crate) use change::{Change, tables, write};

/// The table of objects.
pub(crate) const OBJECTS: &str = "\u{1}objects";
/// The table of sequences.
pub(crate) const SEQUENCES: &str = "\u{1}sequences";

/// The name of an object: its kind, the table it belongs to (empty: none), its name.
pub(crate) type Name = (Kind, String, String);

/// All objects, as some moment has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    all: BTreeMap<Name, Object>,
    sequences: BTreeMap<String, SequenceRow>,
    /// No two states of a database have the same number.
    pub(crate) version: u64,
}

impl Objects {
    fn one(&self, kind: Kind, owner: &str, name: &str) -> Option<&Object> {
        self.all.get(&(kind, owner.to_owned(), name.to_owned()))
    }

    /// Are the objects those of another state?
    fn is_as(&self, other: &Self) -> bool {
        self.all == other.all && self.sequences == other.sequences
    }

    /// Objects of a kind that belong to a table, by name.
    fn of<'o>(&'o self, kind: Kind, owner: &'o str) -> impl Iterator<Item = (&'o str, &'o Object)> {
        let from = (kind, owner.to_owned(), String::new());
        let all = self.all.range(from..).take_while(move |((k, o, _), _)| *k == kind && o == owner);
        all.map(|((_, _, name), object)| (name.as_str(), object))
    }

    pub(crate) fn column(&self, table: &str, column: &str) -> Option<&ColumnRow> {
        match self.one(Kind::Column, table, column) {
            Some(Object::Column(row)) => Some(row),
            _ => None,
        }
    }

    /// The rows of the columns of all tables: table, column, row.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&str, &str, &ColumnRow)> {
        self.all.iter().filter_map(|((_, owner, name), object)| match object {
            Object::Column(row) => Some((owner.as_str(), name.as_str(), row)),
            _ => None,
        })
    }

    pub(crate) fn checks<'o>(&'o self, table: &'o str) -> impl Iterator<Item = (&'o str, &'o CheckRow)> {
        self.of(Kind::Check, table).filter_map(|(name, object)| match object {
            Object::Check(row) => Some((name, row)),
            _ => None,
        })
    }

    /// Foreign keys of all tables: child, name, row.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = (&str, &str, &ForeignRow)> {
        self.all.iter().filter_map(|((_, owner, name), object)| match object {
            Object::Foreign(row) => Some((owner.as_str(), name.as_str(), row)),
            _ => None,
        })
    }

    pub(crate) fn view(&self, name: &str) -> Option<&ViewRow> {
        match self.one(Kind::View, "", name) {
            Some(Object::View(row)) => Some(row),
            _ => None,
        }
    }

    /// Is there a schema with this name? PostgreSQL's own are always there, and `public` until it is dropped.
    pub(crate) fn has_schema(&self, name: &str) -> bool {
        match self.one(Kind::Schema, "", name) {
            Some(Object::Schema(SchemaRow { dropped })) => !dropped,
            _ => name == names::PUBLIC || names::SYSTEM.contains(&name),
        }
    }

    /// All schemas that are not PostgreSQL's own.
    pub(crate) fn schemas(&self) -> impl Iterator<Item = &str> {
        let public = Some(names::PUBLIC).filter(|name| self.has_schema(name));
        let others = self.of(Kind::Schema, "").map(|(name, _)| name);
        public.into_iter().chain(others.filter(|name| *name != names::PUBLIC))
    }

    /// Is the unique index no constraint?
    pub(crate) fn is_unique_index(&self, table: &str, name: &str) -> bool {
        self.one(Kind::UniqueIndex, table, name).is_some()
    }

    /// All views by name.
    pub(crate) fn views(&self) -> impl Iterator<Item = (&str, &ViewRow)> {
        self.of(Kind::View, "").filter_map(|(name, object)| match object {
            Object::View(row) => Some((name, row)),
            _ => None,
        })
    }

    pub(crate) fn sequence(&self, name: &str) -> Option<&SequenceRow> {
        self.sequences.get(name)
    }

    pub(crate) fn sequences(&self) -> impl Iterator<Item = (&str, &SequenceRow)> {
        self.sequences.iter().map(|(name, row)| (name.as_str(), row))
    }

    /// The comment on a table, view, sequence or index.
    pub(crate) fn comment(&self, name: &str) -> Option<&str> {
        text_of(self.one(Kind::Comment, "", name))
    }

    pub(crate) fn column_comment(&self, table: &str, column: &str) -> Option<&str> {
        text_of(self.one(Kind::ColumnComment, table, column))
    }

    pub(crate) fn constraint_comment(&self, table: &str, name: &str) -> Option<&str> {
        text_of(self.one(Kind::ConstraintComment, table, name))
    }

    /// Names of the objects that belong to a table, or are the comment on it.
    pub(crate) fn about(&self, table: &str) -> Vec<Name> {
        let mine = |(kind, owner, name): &&Name| {
            owner == table || (*kind == Kind::Comment && owner.is_empty() && name == table)
        };
        self.all.keys().filter(mine).cloned().collect()
    }

    pub(crate) fn get(&self, name: &Name) -> Option<&Object> {
        self.all.get(name)
    }
}

fn text_of(object: Option<&Object>) -> Option<&str> {
    match object {
        Some(Object::Comment(row) | Object::ColumnComment(row) | Object::ConstraintComment(row)) => {
            Some(&row.text)
        }
        _ => None,
    }
}

/// The state of the hidden tables, for all sessions of a database.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Counts changes of the rows.
    changes: AtomicU64,
    /// Transactions that have changed rows and are committing. A session keeps for itself what it reads meanwhile.
    committing: AtomicU64,
    cache: Mutex<Option<(u64, Arc<Objects>)>>,
    pub(crate) sequences: sequences::Ahead,
}

/// Databases with hidden tables in this process, told apart by the layout of [`OBJECTS`], of which each has its own.
static SHARED: Mutex<Vec<(Weak<Layout>, Arc<Shared>)>> = Mutex::new(Vec::new());

/// Numbers of states, over all databases and sessions.
static VERSIONS: AtomicU64 = AtomicU64::new(1);

/// A number that no state has had.
pub(crate) fn fresh_version() -> u64 {
    VERSIONS.fetch_add(1, Ordering::Relaxed)
}

impl Shared {
    /// The state that sessions of the database share; none before it has hidden tables.
    pub(crate) fn of(db: &Database) -> Option<Arc<Shared>> {
        let layout = db.table(OBJECTS).ok()?.layout();
        let mut all = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(known, _)| known.strong_count() > 0);
        let found = all.iter().find(|(known, _)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(&layout)));
        if let Some((_, shared)) = found {
            return Some(shared.clone());
        }
        let shared = Arc::new(Shared {
            changes: AtomicU64::new(0),
            committing: AtomicU64::new(0),
            cache: Mutex::new(None),
            sequences: sequences::Ahead::default(),
        });
        all.push((Arc::downgrade(&layout), shared.clone()));
        Some(shared)
    }

    /// A transaction that has changed rows begins to commit: before anybody can see them, or use the tables that they are about.
    pub(crate) fn committing(self: &Arc<Self>) -> Committing {
        self.committing.fetch_add(1, Ordering::AcqRel);
        Committing(Arc::clone(self))
    }

    /// Rows have changed, and are committed.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// All objects, as they are committed: `known`, if they have not changed since while others are committing. What is read then
    /// has a number of its own, and a plan must not age by looking.
    pub(crate) fn objects(&self, db: &Database, known: &Arc<Objects>) -> Result<Arc<Objects>> {
        // The count is taken first: rows that change meanwhile make it another one.
        let now = self.changes.load(Ordering::Acquire);
        let is_quiet = self.committing.load(Ordering::Acquire) == 0;
        if is_quiet
            && let Some((at, objects)) = &*self.cache.lock().unwrap_or_else(PoisonError::into_inner)
            && *at == now
        {
            return Ok(objects.clone());
        }
        let mut transaction = db.begin(TransactionOptions::new().read_only())?;
        let objects = Arc::new(block_on(load(db, &mut transaction))?);
        transaction.rollback();
        if !is_quiet && objects.is_as(known) {
            return Ok(known.clone());
        }
        // Whoever begins to commit after this look changes the count when he is through.
        if is_quiet {
            *self.cache.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, objects.clone()));
        }
        Ok(objects)
    }
}

/// See [`Shared::committing`]: the commit is over, whatever came of it.
#[derive(Debug)]
pub(crate) struct Committing(Arc<Shared>);

impl Drop for Committing {
    fn drop(&mut self) {
        self.0.changed();
        self.0.committing.fetch_sub(1, Ordering::AcqRel);
    }
}

/// All objects, as a transaction sees them.
pub(crate) async fn load(db: &Database, transaction: &mut Transaction) -> Result<Objects> {
    let mut objects = Objects { version: fresh_version(), ..Objects::default() };
    let (Ok(table), Ok(sequences)) = (db.table(OBJECTS), db.table(SEQUENCES)) else { return Ok(objects) };
    let layout = table.layout();
    let mut failed = None;
    let text = |layout: &Layout, bytes: &[u8], column| layout.str(bytes, column).unwrap_or("").to_owned();
    transaction
        .scan_table(&table, |row| {
            let bytes = row;
            let (kind, body) = (text(&layout, bytes, 0), text(&layout, bytes, 3));
            // Kinds of a later version mean nothing to this one.
            if let Some(kind) = Kind::from_name(&kind) {
                match Object::read(kind, &body) {
                    Ok(object) => {
                        let name = (kind, text(&layout, bytes, 1), text(&layout, bytes, 2));
                        objects.all.insert(name, object);
                    }
                    Err(error) => failed = Some(damaged(&table, &error)),
                }
            }
            ControlFlow::Continue(())
        })
        .await?;
    let layout = sequences.layout();
    transaction
        .scan_table(&sequences, |row| {
            match serde_json::from_str(&text(&layout, row, 1)) {
                Ok(sequence) => {
                    objects.sequences.insert(text(&layout, row, 0), sequence);
                }
                Err(error) => failed = Some(damaged(&sequences, &error)),
            }
            ControlFlow::Continue(())
        })
        .await?;
    failed.map_or(Ok(objects), Err)
}

fn damaged(table: &Table, error: &serde_json::Error) -> Error {
    let name = table.name();
    Error::new("XX001", format!("a row of the system table {name:?} cannot be read: {error}"))
        .hint("A later version may have written it.")
}
