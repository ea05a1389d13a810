//! Rows from and to the engine: the one trait by which the executor reaches it, and the change of form between the engine's
//! values and those of SQL.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use thermocline_engine as engine;
use thermocline_row::{self as row, EncodedRow, Layout, Value};

use super::Row;
use super::operators::Range;
use super::stretch::{Begin, Stretch};
use crate::catalog::{Column, Identity, Table};
use crate::error::{Again, Error, Result};
use crate::expr::Context;
use crate::expr::memory::Kept;
use crate::parser::ast::{LockWait, Strength};
use crate::types::stored::{datum_at, stored_value};
use crate::types::{Datum, Type, Zone};

/// What the executor asks of a store of rows: one statement's reads, which see one moment, and its changes, which they do not
/// see.
pub(crate) trait Source {
    /// Hands each row of the table (or of a range of one of its indexes) to `see`, with these columns filled in and null in the
    /// others, until it has enough. The range may hand over more rows than it contains. With `true`, a number stands behind the
    /// columns, by which [`Source::change`] finds the row.
    fn scan(
        &mut self,
        table: &Arc<Table>,
        columns: &[usize],
        range: (Option<Range>, bool),
        see: &mut dyn FnMut(&mut Row) -> Seen,
    ) -> impl Future<Output = Result<()>>;

    /// Hands the rows of a table of which these conditions hold to `see`, in no particular order, as batches of these columns, until it
    /// has enough.
    fn batches(
        &mut self,
        table: &Arc<Table>,
        columns: &[usize],
        conditions: Vec<(usize, engine::columns::Condition)>,
        see: &mut dyn FnMut(&engine::columns::Batch) -> Seen,
    ) -> impl Future<Output = Result<()>>;

    /// Inserts a row. `numbered`: the number of its numbered column is still to be drawn; it is put into the row.
    fn insert(
        &mut self,
        table: &Arc<Table>,
        row: &mut Row,
        numbered: bool,
    ) -> impl Future<Output = Result<Inserted>>;

    /// Changes a row as `decide` says, which is shown its newest version, and may be shown it more than once. `lock`: so strongly it
    /// is locked first, even if it is left as it is.
    fn change(
        &mut self,
        table: &Arc<Table>,
        which: Which,
        lock: Option<Strength>,
        decide: &mut dyn FnMut(&[Datum]) -> Result<Decision>,
    ) -> impl Future<Output = Result<Changed>>;

    /// Looks whether the row that has refused an insertion is one that the transaction may know of: above read committed a row that
    /// others have made or changed since the snapshot is [`Changed::Lost`], for the transaction could not have been alone.
    fn sees_refusing(&mut self, table: &Arc<Table>, which: Which) -> impl Future<Output = Result<Changed>>;

    /// Locks a row that a scan has given this number, until the transaction ends.
    fn lock(
        &mut self,
        table: &Arc<Table>,
        number: i64,
        strength: Strength,
        wait: LockWait,
    ) -> impl Future<Output = Result<Locked>>;

    /// Looks, at present, for a row with these values in an index, whatever the snapshot; waits for a transaction that is not
    /// over. The row's number, for [`Source::lock`] and [`Source::change`].
    fn present(
        &mut self,
        table: &Arc<Table>,
        index: usize,
        values: &[Datum],
    ) -> impl Future<Output = Result<Option<i64>>>;

    /// The rows that are committed now, whatever this transaction sees and has changed.
    fn committed(
        &mut self,
        table: &Arc<Table>,
        range: Option<Range>,
    ) -> impl Future<Output = Result<Vec<Row>>>;

    /// A row that a scan has given this number, as it was read, and behind its columns its number.
    fn numbered(&mut self, table: &Arc<Table>, number: i64) -> impl Future<Output = Result<Row>>;
}

/// What asking for a row's lock came to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Locked {
    /// It is as it was read; in key share its unique keys are.
    Same,
    /// Its newest version, which is another one than was read, and behind its columns its number.
    Another(Row),
    /// It has gone, or is passed over.
    NotThere,
    /// See [`Changed::Lost`].
    Lost,
}

/// A table is not as it was when the statement was bound: it is to be bound anew.
fn redefined() -> Error {
    Error::new("40001", "a definition has changed since the statement was prepared")
        .hint("Run the statement again.")
        .again_as(Again::Rebind)
}

/// What became of a row that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A condition has refused it.
    Passed,
    Taken,
    /// Taken or not, no more are wanted.
    Enough,
}

/// What an insert came to.
pub(crate) enum Inserted {
    Done,
    /// A row has the same key in this unique index.
    Duplicate {
        index: usize,
        error: Error,
    },
}

/// The row that is to be changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// The one that a scan has given this number.
    Numbered(i64),
    /// The one that has just refused a key.
    Refusing,
}

/// What becomes of a row.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    Update(Vec<(usize, Datum)>),
    Delete,
    Leave,
}

/// What a change came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// As was decided.
    Done,
    /// Another transaction has deleted it.
    Gone,
    /// The statement itself has changed it before.
    Already,
    /// Nobody knows any more where the row is that was read: the statement has to be run again.
    Lost,
}

/// The engine, through a statement of a transaction.
pub(crate) struct EngineSource<'t> {
    db: &'t engine::Database,
    /// Tables as the session finds them.
    names: &'t engine::Tables,
    statement: engine::Statement<'t>,
    /// Tables that it has used, by what plans know them by.
    tables: Vec<(Identity, engine::Table, Arc<Layout>)>,
    /// Rows that scans have numbered.
    handles: engine::RowHandles,
    /// Room for the row that is inserted, kept for the next one.
    values: Vec<Value>,
    encoded: EncodedRow,
    /// What the statement runs with, and memory that it is charged for.
    context: Option<(&'t Context, Kept<'t>)>,
}

/// A table with more rows may have so many with one key that reading them takes long.
const MANY_ROWS: u64 = 4096;

impl<'t> EngineSource<'t> {
    pub(crate) fn new(
        (db, names): (&'t engine::Database, &'t engine::Tables),
        transaction: &'t mut engine::Transaction,
    ) -> Result<Self> {
        Ok(Self {
            db,
            names,
            statement: transaction.statement()?,
            tables: Vec::new(),
            handles: engine::RowHandles::default(),
            values: Vec::new(),
            encoded: EncodedRow::new(),
            context: None,
        })
    }

    /// The zone in which messages show times.
    fn zone(&self) -> &'t Zone {
        self.context.as_ref().map_or(&Zone::UTC, |(context, _)| &context.local.zone)
    }

    /// The same, which lets others have a turn, and charges what it keeps.
    pub(crate) fn within(self, context: &'t Context) -> Self {
        Self { context: Some((context, context.memory.kept())), ..self }
    }

    /// Takes back what the statement has changed.
    pub(crate) fn undo(self) {
        self.statement.undo();
    }

    /// Opens tables: from here on their definitions stay what they are.
    pub(crate) async fn open(&mut self, tables: &[(String, Identity)]) -> Result<()> {
        for (name, identity) in tables {
            self.opened(name, *identity).await?;
        }
        Ok(())
    }

    /// Waiting for a client is no idleness until the statement ends.
    pub(crate) fn attend(&mut self) -> Result<()> {
        Ok(self.statement.attend()?)
    }

    pub(super) async fn table(&mut self, table: &Table) -> Result<(engine::Table, Arc<Layout>)> {
        let (found, layout) = self.opened(&table.name, table.identity).await?;
        if layout.columns().len() != table.columns.len() {
            return Err(redefined());
        }
        Ok((found, layout))
    }

    async fn opened(&mut self, name: &str, identity: Identity) -> Result<(engine::Table, Arc<Layout>)> {
        if let Some((_, found, layout)) = self.tables.iter().find(|(known, ..)| *known == identity) {
            return Ok((found.clone(), layout.clone()));
        }
        let found = self.names.table(name)?;
        // From here on the definition stays what it is. What was bound before must be of that.
        match self.statement.use_table(&found).await {
            Ok(()) => {}
            // Another one may have its name by now.
            Err(engine::Error::TableDropped { .. }) => return Err(redefined()),
            Err(error) => return Err(error.into()),
        }
        let layout = found.layout();
        if Identity::of(&found) != identity {
            return Err(redefined());
        }
        self.tables.push((identity, found.clone(), layout.clone()));
        Ok((found, layout))
    }

    pub(super) fn index(found: &engine::Table, table: &Table, index: usize) -> Result<engine::Index> {
        if table.primary == Some(index) {
            return Ok(found.primary());
        }
        Ok(found.index(&table.indexes[index].name)?)
    }
}

/// Fills a row with columns of encoded bytes. The other columns are null or what an earlier row has left there: nobody asks for
/// them.
#[inline]
pub(super) fn decode(layout: &Layout, bytes: &[u8], columns: &[usize], width: usize, row: &mut Row) {
    row.resize(width, Datum::Null);
    for column in columns {
        row[*column] = datum_at(layout, bytes, *column);
    }
}

/// Does a column stand in another form than its values have here?
pub(super) fn is_formed(column: &Column) -> bool {
    column.ty == Type::Jsonb || is_in_bytes(column)
}

/// Are a column's values kept in PostgreSQL's binary form? Those of arrays are, and numbers that no decimal of the engine holds.
fn is_in_bytes(column: &Column) -> bool {
    column.ty.element().is_some() || column.ty == Type::Numeric && column.stored == row::Type::Bytes
}

/// Makes values of the columns that stand in another form.
pub(super) fn with_forms(table: &Table, columns: &[usize], row: &mut Row) {
    for place in columns {
        let stored = std::mem::replace(&mut row[*place], Datum::Null);
        row[*place] = with_form(&table.columns[*place], stored);
    }
}

/// The value that a column's stored one stands for.
pub(super) fn with_form(column: &Column, stored: Datum) -> Datum {
    match &stored {
        _ if column.ty == Type::Jsonb => stored.in_form_of(column.ty),
        Datum::Bytes(bytes) if is_in_bytes(column) => {
            Datum::read_binary(bytes, column.ty).expect("a column holds the bytes that were written into it")
        }
        _ => stored,
    }
}

impl Source for EngineSource<'_> {
    async fn sees_refusing(&mut self, table: &Arc<Table>, which: Which) -> Result<Changed> {
        if !self.statement.keeps_snapshot() {
            return Ok(Changed::Done);
        }
        self.change(table, which, None, &mut |_| Ok(Decision::Leave)).await
    }

    async fn scan(
        &mut self,
        table: &Arc<Table>,
        columns: &[usize],
        (range, named): (Option<Range>, bool),
        see: &mut dyn FnMut(&mut Row) -> Seen,
    ) -> Result<()> {
        let (found, layout) = self.table(table).await?;
        let width = table.columns.len();
        let mut row = Row::with_capacity(width + 1);
        let formed = columns.iter().any(|column| is_formed(&table.columns[*column]));
        let Self { statement, handles, context, .. } = self;
        let given = context.as_ref().map(|(context, _)| *context);
        if let Some(outlet) = given.and_then(|context| context.outlet.as_ref()) {
            outlet.note_read();
        }
        let failed = RefCell::new(None);
        let pause = async || {
            if let Some(context) = given
                && let Err(error) = context.pause().await
            {
                failed.replace(Some(error));
            }
        };
        let mut show = |seen: engine::SeenRow<'_>| {
            if failed.borrow().is_some() {
                return ControlFlow::Break(engine::Stop::Enough);
            }
            decode(&layout, seen.bytes(), columns, width, &mut row);
            if formed {
                with_forms(table, columns, &mut row);
            }
            if named {
                row.push(Datum::Int(handles.len() as i64));
            }
            let taken = see(&mut row);
            if named && taken != Seen::Passed {
                let bytes = handles.push_seen(seen);
                if let Some((_, kept)) = context
                    && let Err(error) = kept.add(bytes)
                {
                    failed.replace(Some(error));
                    return ControlFlow::Break(engine::Stop::Enough);
                }
            }
            match taken {
                Seen::Enough => ControlFlow::Break(engine::Stop::Enough),
                _ if given.is_some_and(Context::is_due) => ControlFlow::Break(engine::Stop::Pause),
                _ => ControlFlow::Continue(()),
            }
        };
        let Some(range) = range else {
            Box::pin(statement.scan_table_pausing(&found, show, pause)).await?;
            return failed.into_inner().map_or(Ok(()), Err);
        };
        let definition = &table.indexes[range.index];
        let index = Self::index(&found, table, range.index)?;
        let stretch = match Begin::of(&index, table, range)? {
            Begin::Nowhere => return Ok(()),
            Begin::Point(key, range) => {
                if definition.unique {
                    let shown = statement.read(&index, &key, |seen| {
                        let _ = show(seen);
                    });
                    shown.await?;
                } else if definition.ordered && table.rows > MANY_ROWS {
                    let point = Stretch::of_point(table, key, range);
                    let scan =
                        statement.scan_pausing(&index, point.keys(), engine::Direction::Forward, show, pause);
                    Box::pin(scan).await?;
                } else {
                    let through = |seen: engine::SeenRow<'_>| match show(seen) {
                        ControlFlow::Break(engine::Stop::Enough) => ControlFlow::Break(()),
                        _ => ControlFlow::Continue(()),
                    };
                    Box::pin(statement.read_all(&index, &key, through)).await?;
                }
                return failed.into_inner().map_or(Ok(()), Err);
            }
            Begin::Stretch(stretch) => stretch,
        };
        let through = |seen: engine::SeenRow<'_>| {
            if stretch.is_over(&layout, seen.bytes()) {
                return ControlFlow::Break(engine::Stop::Enough);
            }
            show(seen)
        };
        let (keys, direction) = (stretch.keys(), stretch.direction());
        Box::pin(statement.scan_pausing(&index, keys, direction, through, pause)).await?;
        failed.into_inner().map_or(Ok(()), Err)
    }

    async fn batches(
        &mut self,
        table: &Arc<Table>,
        columns: &[usize],
        conditions: Vec<(usize, engine::columns::Condition)>,
        see: &mut dyn FnMut(&engine::columns::Batch) -> Seen,
    ) -> Result<()> {
        let (found, _) = self.table(table).await?;
        let Self { statement, context, .. } = self;
        let given = context.as_ref().map(|(context, _)| *context);
        if let Some(outlet) = given.and_then(|context| context.outlet.as_ref()) {
            outlet.note_read();
        }
        let failed = RefCell::new(None);
        let pause = async || {
            if let Some(context) = given
                && let Err(error) = context.pause().await
            {
                failed.replace(Some(error));
            }
        };
        let show = |batch: &engine::columns::Batch| {
            if failed.borrow().is_some() {
                return ControlFlow::Break(engine::Stop::Enough);
            }
            match see(batch) {
                Seen::Enough => ControlFlow::Break(engine::Stop::Enough),
                _ if given.is_some_and(|context| context.is_due_after(batch.rows())) => {
                    ControlFlow::Break(engine::Stop::Pause)
                }
                _ => ControlFlow::Continue(()),
            }
        };
        Box::pin(statement.scan_batches(&found, columns, conditions, show, pause)).await?;
        failed.into_inner().map_or(Ok(()), Err)
    }

    async fn insert(&mut self, table: &Arc<Table>, row: &mut Row, numbered: bool) -> Result<Inserted> {
        let (found, layout) = self.table(table).await?;
        let (values, encoded) = (&mut self.values, &mut self.encoded);
        values.resize(row.len(), Value::Null);
        for (column, (datum, value)) in row.iter().zip(&mut *values).enumerate() {
            match (datum, &mut *value) {
                (Datum::Text(text) | Datum::Jsonb(text), Value::Text(room)) => {
                    room.clear();
                    room.push_str(text);
                }
                _ => *value = value_of(datum, table, column)?,
            }
        }
        if numbered && let Some(column) = table.columns.iter().position(|column| column.numbered) {
            if let Some(number) = found.encode_values(values, encoded)? {
                row[column] = Datum::Int(number);
                values[column] = value_of(&row[column], table, column)?;
            }
        } else if let Some(column) = table.columns.iter().position(|column| column.hidden && column.numbered)
            && let Some(number) = found.encode_values(values, encoded)?
        {
            values[column] = Value::Int8(number);
        }
        layout.encode_row(values, encoded).map_err(|source| row_error(table, source))?;
        match self.statement.insert(&found, &*encoded).await {
            Ok(_) => Ok(Inserted::Done),
            Err(engine::Error::DuplicateKey { index: name, table: owner, key }) => {
                let index = table.indexes.iter().position(|index| index.name == name).unwrap_or(0);
                let error = duplicate(table, index, row, self.zone());
                let error = if table.indexes.iter().any(|index| index.name == name) {
                    error
                } else {
                    engine::Error::DuplicateKey { index: name, table: owner, key }.into()
                };
                Ok(Inserted::Duplicate { index, error })
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn change(
        &mut self,
        table: &Arc<Table>,
        which: Which,
        lock: Option<Strength>,
        decide: &mut dyn FnMut(&[Datum]) -> Result<Decision>,
    ) -> Result<Changed> {
        let (found, layout) = self.table(table).await?;
        let handle = &match which {
            Which::Numbered(number) => self.handles.get(number as usize),
            Which::Refusing => match self.statement.take_refusing_row()? {
                Some(handle) => handle,
                None => return Ok(Changed::Gone),
            },
        };
        if let Some(strength) = lock {
            let (wait, mode) = (engine::LockWait::Wait, mode_of(strength));
            let _ = self.statement.lock_row(&found, handle, mode, wait, |_| ()).await?;
        }
        let columns: Vec<usize> = (0..table.columns.len()).collect();
        let mut row = Row::with_capacity(columns.len());
        let mut failed = None;
        let edit = |editor: &mut engine::row::RowEditor<'_>| {
            decode(&layout, editor.row(), &columns, columns.len(), &mut row);
            with_forms(table, &columns, &mut row);
            let decided = decide(&row).and_then(|decision| {
                let Decision::Update(changes) = decision else { return Ok((decision, Vec::new())) };
                let values =
                    changes.iter().map(|(column, datum)| Ok((*column, value_of(datum, table, *column)?)));
                let values = values.collect::<Result<Vec<_>>>()?;
                for (column, datum) in &changes {
                    row[*column] = datum.clone();
                }
                Ok((Decision::Update(changes), values))
            });
            match decided {
                Ok((Decision::Update(_), values)) => {
                    for (column, value) in &values {
                        editor.set_value(*column, value).map_err(|source| found.error(source))?;
                    }
                    Ok((engine::Change::Update, ()))
                }
                Ok((Decision::Delete, _)) => Ok((engine::Change::Delete, ())),
                Ok((Decision::Leave, _)) => Ok((engine::Change::Leave, ())),
                Err(error) => {
                    failed = Some(error);
                    Ok((engine::Change::Leave, ()))
                }
            }
        };
        let changed = self.statement.change_row(&found, handle, edit).await;
        if let Some(error) = failed {
            return Err(error);
        }
        match changed {
            Ok(engine::Changed::Updated(()) | engine::Changed::Deleted(()) | engine::Changed::Left(())) => {
                Ok(Changed::Done)
            }
            Ok(engine::Changed::Gone) => Ok(Changed::Gone),
            Ok(engine::Changed::ByStatement) => Ok(Changed::Already),
            Ok(engine::Changed::Lost) => Ok(Changed::Lost),
            Err(engine::Error::DuplicateKey { index: name, table: owner, key }) => {
                match table.indexes.iter().position(|index| index.name == name) {
                    Some(index) => Err(duplicate(table, index, &row, self.zone())),
                    None => Err(engine::Error::DuplicateKey { index: name, table: owner, key }.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn lock(
        &mut self,
        table: &Arc<Table>,
        number: i64,
        strength: Strength,
        wait: LockWait,
    ) -> Result<Locked> {
        let (found, layout) = self.table(table).await?;
        let handle = &self.handles.get(number as usize);
        let before = self.statement.read_row(&found, handle, |seen| seen.bytes().to_vec()).await?;
        let mode = mode_of(strength);
        let how = match wait {
            LockWait::Wait => engine::LockWait::Wait,
            LockWait::NoWait => engine::LockWait::NoWait,
            LockWait::SkipLocked => engine::LockWait::Skip,
        };
        let width = table.columns.len();
        let columns: Vec<usize> = (0..width).collect();
        let unique = table.indexes.iter().filter(|index| index.unique);
        let keys: Vec<usize> =
            unique.flat_map(|index| index.columns.iter().map(|(column, _)| *column)).collect();
        let see = |seen: engine::SeenRow<'_>| {
            if let Some(before) = &before {
                // A key share stands over other changes, even such as are not committed: then the row is what was read.
                let stays = |column: &usize| {
                    datum_at(&layout, before, *column) == datum_at(&layout, seen.bytes(), *column)
                };
                if before == seen.bytes() || mode == engine::LockMode::KeyShare && keys.iter().all(stays) {
                    return None;
                }
            }
            let mut row = Row::with_capacity(width + 1);
            decode(&layout, seen.bytes(), &columns, width, &mut row);
            with_forms(table, &columns, &mut row);
            row.push(Datum::Int(number));
            Some(row)
        };
        let locked = self.statement.lock_row(&found, handle, mode, how, see).await;
        Ok(match locked {
            Ok(engine::Locked::Locked(newest)) => newest.map_or(Locked::Same, Locked::Another),
            Ok(engine::Locked::Gone | engine::Locked::Skipped | engine::Locked::ByStatement) => {
                Locked::NotThere
            }
            Ok(engine::Locked::Lost) => Locked::Lost,
            Err(engine::Error::WouldWait { .. }) => {
                let message = format!("could not obtain lock on row in relation \"{}\"", table.name);
                return Err(Error::new("55P03", message));
            }
            Err(error) => return Err(error.into()),
        })
    }

    async fn present(&mut self, table: &Arc<Table>, index: usize, values: &[Datum]) -> Result<Option<i64>> {
        let (found, _) = self.table(table).await?;
        let definition = &table.indexes[index];
        let index = Self::index(&found, table, index)?;
        let mut key = Vec::with_capacity(values.len());
        for (datum, (column, _)) in values.iter().zip(&definition.columns) {
            // A value that the column cannot have stands in no row.
            let Ok(value) = value_of(datum, table, *column) else { return Ok(None) };
            key.push(value);
        }
        let key = index.key_of_values(&key)?;
        let Some(handle) = self.statement.look_at_present(&index, &key).await? else { return Ok(None) };
        self.handles.push(&handle);
        Ok(Some(self.handles.len() as i64 - 1))
    }

    async fn committed(&mut self, table: &Arc<Table>, range: Option<Range>) -> Result<Vec<Row>> {
        let (found, _) = self.table(table).await?;
        let mut rows = Vec::new();
        if self.statement.holds(&found)? {
            // Nobody else has changed it since, or reads it now.
            return Ok(rows);
        }
        let mut transaction = self.db.begin(engine::TransactionOptions::new().read_only())?;
        let columns: Vec<usize> = (0..table.columns.len()).collect();
        let mut other = EngineSource::new((self.db, self.names), &mut transaction)?;
        let mut see = |row: &mut Row| {
            rows.push(row.clone());
            Seen::Taken
        };
        if let Some((context, _)) = &self.context {
            other = other.within(context);
        }
        other.scan(table, &columns, (range, false), &mut see).await?;
        drop(other);
        transaction.rollback();
        Ok(rows)
    }

    async fn numbered(&mut self, table: &Arc<Table>, number: i64) -> Result<Row> {
        let (found, layout) = self.table(table).await?;
        let width = table.columns.len();
        let columns: Vec<usize> = (0..width).collect();
        let mut row = Row::with_capacity(width + 1);
        let see = |seen: engine::SeenRow<'_>| decode(&layout, seen.bytes(), &columns, width, &mut row);
        self.statement.read_row(&found, &self.handles.get(number as usize), see).await?;
        with_forms(table, &columns, &mut row);
        row.push(Datum::Int(number));
        Ok(row)
    }
}

fn mode_of(strength: Strength) -> engine::LockMode {
    match strength {
        Strength::KeyShare => engine::LockMode::KeyShare,
        Strength::Share => engine::LockMode::Share,
        Strength::NoKeyUpdate => engine::LockMode::NoKeyUpdate,
        Strength::Update => engine::LockMode::Update,
    }
}

/// PostgreSQL's error of a second row with a key.
fn duplicate(table: &Table, index: usize, row: &[Datum], zone: &Zone) -> Error {
    let index = &table.indexes[index];
    let names: Vec<&str> =
        index.columns.iter().map(|(column, _)| table.columns[*column].name.as_str()).collect();
    let values: Vec<String> = index
        .columns
        .iter()
        .map(|(column, _)| crate::types::text::show(&row[*column], table.columns[*column].ty, zone))
        .collect();
    Error::new("23505", format!("duplicate key value violates unique constraint \"{}\"", index.name))
        .detail(format!("Key ({})=({}) already exists.", names.join(", "), values.join(", ")))
        .table(&table.name)
        .constraint(&index.name)
}

fn row_error(table: &Table, source: thermocline_row::RowError) -> Error {
    engine::Error::Row { table: table.name.clone(), source }.into()
}

/// A value of SQL as a column stores it, or why it does not.
pub(crate) fn value_of(datum: &Datum, table: &Table, column: usize) -> Result<Value> {
    let column = &table.columns[column];
    if is_in_bytes(column) && !datum.is_null() {
        let mut bytes = Vec::new();
        datum.write_binary(column.ty, &mut bytes);
        return Ok(Value::Bytes(bytes));
    }
    stored_value(datum, column.stored).ok_or_else(|| {
        let shown = crate::types::text::show(datum, column.ty, &Zone::UTC);
        Error::new("22003", format!("column \"{}\" cannot store the value {shown}", column.name))
    })
}
