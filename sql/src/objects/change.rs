//! Changes of the hidden tables: a definition's rows, written in its transaction.

use thermocline_engine::row::{Column, EncodedRow, Type, Value};
use thermocline_engine::{
    Change as RowChange, Database, Error as EngineError, IndexSchema, TableSchema, Transaction,
};

use super::rows::{Object, SequenceRow};
use super::{Name, OBJECTS, Objects, SEQUENCES};
use crate::error::Result;

/// A change of one row.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put(String, String, Object),
    Remove(Name),
    /// A sequence's definition, and its position if that is another one: the last value and whether it was given.
    PutSequence(String, SequenceRow, Option<(i64, bool)>),
    RemoveSequence(String),
    /// A sequence goes on here, whatever else its row says.
    Position(String, i64, bool),
}

impl Objects {
    /// The objects after a change.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Put(owner, name, object) => {
                self.all.insert((object.kind(), owner.clone(), name.clone()), object.clone());
            }
            Change::Remove(name) => {
                self.all.remove(name);
            }
            Change::PutSequence(name, row, _) => {
                self.sequences.insert(name.clone(), row.clone());
            }
            Change::RemoveSequence(name) => {
                self.sequences.remove(name);
            }
            Change::Position(..) => {}
        }
    }
}

/// Makes the hidden tables, if they are not there.
pub(crate) fn tables(db: &Database) -> Result<()> {
    if db.table(SEQUENCES).is_ok() {
        return Ok(());
    }
    let text = |name: &str| Column::new(name, Type::Text);
    let objects = TableSchema::new(OBJECTS)
        .columns(["kind", "owner", "name", "body"].map(text))
        .primary_key(IndexSchema::ordered("\u{1}objects_key", &["kind", "owner", "name"]));
    let sequences = TableSchema::new(SEQUENCES)
        .columns([text("name"), text("body")])
        .column(Column::new("last", Type::Int8))
        .column(Column::new("called", Type::Boolean))
        .primary_key(IndexSchema::ordered("\u{1}sequences_key", &["name"]));
    for schema in [objects, sequences] {
        let name = schema.name().to_owned();
        match db.create_table(schema) {
            Ok(_) => {}
            // Another session was first.
            Err(_) if db.table(&name).is_ok() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

/// Writes changes in a transaction. [`tables`] have been made.
pub(crate) async fn write(db: &Database, transaction: &mut Transaction, changes: &[Change]) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let (objects, sequences) = (db.table(OBJECTS)?, db.table(SEQUENCES)?);
    for change in changes {
        match change {
            Change::Put(owner, name, object) => {
                let key = [text(object.kind().name()), text(owner), text(name)];
                let body = text(&object.body());
                let values = [key[0].clone(), key[1].clone(), key[2].clone(), body.clone()];
                put(transaction, &objects, &key, &values, &[(3, body)]).await?;
            }
            Change::Remove((kind, owner, name)) => {
                remove(transaction, &objects, &[text(kind.name()), text(owner), text(name)]).await?;
            }
            Change::PutSequence(name, row, position) => {
                let body = text(&serde_json::to_string(row).expect("a sequence is texts and numbers"));
                let (last, called) = position.unwrap_or((row.start, false));
                let (last, called) = (Value::Int8(last), Value::Boolean(called));
                let values = [text(name), body.clone(), last.clone(), called.clone()];
                let mut changed = vec![(1, body)];
                if position.is_some() {
                    changed.extend([(2, last), (3, called)]);
                }
                put(transaction, &sequences, &[text(name)], &values, &changed).await?;
            }
            Change::RemoveSequence(name) => remove(transaction, &sequences, &[text(name)]).await?,
            Change::Position(name, last, called) => {
                let changed = [(2, Value::Int8(*last)), (3, Value::Boolean(*called))];
                edit(transaction, &sequences, &[text(name)], &changed).await?;
            }
        }
    }
    Ok(())
}

/// Changes columns of the row with this key; says whether there is one.
async fn edit(
    transaction: &mut Transaction,
    table: &thermocline_engine::Table,
    key: &[Value],
    changed: &[(usize, Value)],
) -> Result<bool> {
    let index = table.primary();
    let key = index.key_of_values(key)?;
    let mut statement = transaction.statement()?;
    let done = statement
        .change(&index, &key, |row| {
            for (column, value) in changed {
                row.set_value(*column, value).map_err(|source| table.error(source))?;
            }
            Ok((RowChange::Update, ()))
        })
        .await?;
    Ok(matches!(done, thermocline_engine::Changed::Updated(())))
}

/// Changes the row with this key, or inserts it.
async fn put(
    transaction: &mut Transaction,
    table: &thermocline_engine::Table,
    key: &[Value],
    values: &[Value],
    changed: &[(usize, Value)],
) -> Result<()> {
    if edit(transaction, table, key, changed).await? {
        return Ok(());
    }
    let mut encoded = EncodedRow::new();
    table.encode_values(values, &mut encoded)?;
    match transaction.insert(table, &encoded).await {
        Ok(_) => Ok(()),
        Err(EngineError::DuplicateKey { .. }) => {
            Err(crate::error::Error::new("40001", "another session has defined the same thing")
                .hint("Run the statement again."))
        }
        Err(error) => Err(error.into()),
    }
}

async fn remove(
    transaction: &mut Transaction,
    table: &thermocline_engine::Table,
    key: &[Value],
) -> Result<()> {
    let index = table.primary();
    let key = index.key_of_values(key)?;
    let mut statement = transaction.statement()?;
    let _ = statement.change(&index, &key, |_| Ok((RowChange::Delete, ()))).await?;
    Ok(())
}
