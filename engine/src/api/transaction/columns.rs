//! Scans by column as users see them: a query is put together, opened, and read a batch at a time.

use std::ops::ControlFlow;

use thermocline_base::multiplex::{give_way, has_company};
use thermocline_frozen::{Aggregator, BATCH_ROWS, Batch, Condition, GroupRow, Measure, Predicate};

use super::{Statement, Stop, Transaction};
use crate::api::Table;
use crate::counters::WaitKind;
use crate::error::{Error, Result};
use crate::ops::columns::{ColumnBatch, ColumnQuery, ColumnScanState};
use crate::ops::cursor::CursorView;
use crate::ops::scan::advance;
use crate::ops::{Step, Wait};
use crate::row::Layout;
use crate::session::Session;

/// A scan by column that is being put together: see [`Transaction::scan_columns`].
#[derive(Debug)]
#[must_use = "it finds nothing before it is opened"]
pub struct ColumnScanBuilder<'t> {
    tx: &'t mut Transaction,
    table: Table,
    columns: Vec<String>,
    conditions: Vec<(String, Condition)>,
    limit: Option<u64>,
    batch_rows: usize,
    group_by: Vec<String>,
}

/// A value that is computed of a column: see [`ColumnScanBuilder::aggregate`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Aggregate {
    /// The number of rows.
    Rows,
    /// The number of values that are not null.
    Count(String),
    /// The sum, of integers and decimals.
    Sum(String),
    /// The average, of integers and decimals.
    Average(String),
    /// The least value.
    Min(String),
    /// The greatest value.
    Max(String),
}

macro_rules! of_column {
    ($($(#[$doc:meta])* $name:ident => $variant:ident;)*) => {
        impl Aggregate {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(column: &str) -> Self {
                Self::$variant(column.to_owned())
            })*
        }
    };
}

of_column! {
    /// The number of values of this column that are not null.
    count => Count;
    /// The sum of this column.
    sum => Sum;
    /// The average of this column.
    average => Average;
    /// The least value of this column.
    min => Min;
    /// The greatest value of this column.
    max => Max;
}

/// A scan by column that goes on from batch to batch.
///
/// It sees what the transaction saw when it was opened, whatever the transaction writes meanwhile. Dropping it ends it. It is of use to
/// its own transaction only; one that outlives its transaction at read committed keeps its snapshot until it is dropped.
#[derive(Debug)]
pub struct ColumnScan {
    /// Before `view`: what it has read ahead goes before the snapshot does.
    state: Box<ColumnScanState>,
    table: Table,
    view: CursorView,
}

impl ColumnScan {
    /// Has it shown its last row? It may only find out by the batch after that one.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.state.finished
    }
}

impl ColumnScanBuilder<'_> {
    /// Columns that batches have, in this order behind those named before. Without any, batches only say how many rows there are.
    pub fn columns<'c>(mut self, names: impl IntoIterator<Item = &'c str>) -> Self {
        self.columns.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// A condition on a column, which has to hold of each row beside all others.
    pub fn filter(mut self, column: &str, condition: Condition) -> Self {
        self.conditions.push((column.to_owned(), condition));
        self
    }

    /// No more rows than this.
    pub fn limit(mut self, rows: u64) -> Self {
        self.limit = Some(rows);
        self
    }

    /// No more rows a batch than this: 8,192 unless told, and at most.
    pub fn batch_rows(mut self, rows: usize) -> Self {
        self.batch_rows = rows;
        self
    }

    /// Columns of which [`ColumnScanBuilder::aggregate`] makes groups of rows with equal values, behind those named before.
    pub fn group_by<'c>(mut self, names: impl IntoIterator<Item = &'c str>) -> Self {
        self.group_by.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// Reads all rows of the scan and computes these of each group of rows with equal values ([`ColumnScanBuilder::group_by`]), in no
    /// particular order of the groups; without columns to group by, of all rows. Zone maps answer for whole groups of a block where
    /// they can, and columns that are not asked for are not read.
    ///
    /// Counts are bigints. Sums are exact decimals, averages are divided once, with 16 digits after the point if there is room. Of
    /// no values all but counts are null.
    ///
    /// ```
    /// # use thermocline_engine::columns::{Aggregate, Condition};
    /// # use thermocline_engine::row::{Column, Type, Value};
    /// # use thermocline_engine::{Database, Options, TableSchema, TransactionOptions};
    /// # fn main() -> thermocline_engine::Result<()> {
    /// # let db = Database::open_in_memory(Options::default())?;
    /// # let lines = db.create_table(
    /// #     TableSchema::new("lines").column(Column::new("number", Type::Int4)).column(Column::new("amount", Type::Int8)),
    /// # )?;
    /// db.run(TransactionOptions::new(), async |tx| {
    ///     for number in 0..100 {
    ///         tx.insert_values(&lines, &[Value::Int4(number % 10), Value::Int8(i64::from(number))]).await?;
    ///     }
    ///     let query = tx.scan_columns(&lines).filter("number", Condition::Less(Value::Int4(3))).group_by(["number"]);
    ///     let mut groups = query.aggregate(&[Aggregate::Rows, Aggregate::sum("amount")]).await?;
    ///     groups.sort_by(|a, b| a.key[0].compare(&b.key[0]).expect("integers"));
    ///     assert_eq!(groups[2].key, [Value::Int4(2)]);
    ///     assert_eq!(groups[2].values[0], Value::Int8(10));
    ///     assert_eq!(groups[2].values[1].to_string(), "470");
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`ColumnScanBuilder::open`] and [`Transaction::next_batch`]; a sum of a type that has none (42804), or of more than 38 digits
    /// (22003).
    pub async fn aggregate(self, measures: &[Aggregate]) -> Result<Vec<GroupRow>> {
        let Self { tx, table, conditions, limit, group_by, .. } = self;
        tx.touch(&table).await?;
        let layout = table.layout();
        let number = |name: &String| column(&table, &layout, name);
        let measure = |aggregate: &Aggregate| {
            Ok(match aggregate {
                Aggregate::Rows => Measure::Rows,
                Aggregate::Count(name) => Measure::Count(number(name)?),
                Aggregate::Sum(name) => Measure::Sum(number(name)?),
                Aggregate::Average(name) => Measure::Average(number(name)?),
                Aggregate::Min(name) => Measure::Min(number(name)?),
                Aggregate::Max(name) => Measure::Max(number(name)?),
            })
        };
        let measures = measures.iter().map(measure).collect::<Result<Vec<_>>>()?;
        let keys = group_by.iter().map(number).collect::<Result<Vec<_>>>()?;
        let refused = |source| table.with_form(|form| Session::columns_error(form, source));
        let query = ColumnQuery {
            columns: Vec::new(),
            predicates: predicates(&table, &layout, conditions)?,
            limit,
            batch_rows: BATCH_ROWS,
            aggregator: Some(Aggregator::new(&layout, &keys, &measures).map_err(refused)?),
        };
        let mut scan = open(tx, &table, &layout, query)?;
        while tx.next_batch(&mut scan).await?.is_some() {}
        let aggregator = scan.state.take_aggregator().expect("the scan was given one");
        aggregator.finish(&layout).map_err(refused)
    }

    /// Opens the scan. At read committed it takes a snapshot, which it keeps; else it has the transaction's.
    ///
    /// # Errors
    /// A column that the table does not have (42703), a condition that does not fit its column (42804), a dropped table (42P01); a
    /// failed, idle-aborted or outdated transaction; there are no places for more snapshots.
    pub async fn open(self) -> Result<ColumnScan> {
        let Self { tx, table, columns, conditions, limit, batch_rows, .. } = self;
        tx.touch(&table).await?;
        // In use by this transaction: its columns stay as they are.
        let layout = table.layout();
        let query = ColumnQuery {
            columns: columns.iter().map(|name| column(&table, &layout, name)).collect::<Result<_>>()?,
            predicates: predicates(&table, &layout, conditions)?,
            limit,
            batch_rows,
            aggregator: None,
        };
        open(tx, &table, &layout, query)
    }
}

/// Opens a scan of a table that the transaction uses.
fn open(tx: &mut Transaction, table: &Table, layout: &Layout, query: ColumnQuery) -> Result<ColumnScan> {
    let state = ColumnScanState::new(layout, query, &table.db.budget)
        .map_err(|source| table.with_form(|form| Session::columns_error(form, source)))?;
    let view = tx.driver.with_session(|session| {
        session.check_handle(&table.entry)?;
        session.open_cursor_view(table.entry.id)
    })?;
    Ok(ColumnScan { state: Box::new(state), table: table.clone(), view })
}

/// Rows of a batch that a statement's scan shows, about.
const STATEMENT_BATCH_ROWS: usize = 1024;

impl Statement<'_> {
    /// Reads the rows of a table of which all conditions hold, in no particular order, as batches of these columns of some thousand
    /// rows: under the statement's snapshot, as [`Statement::scan_table_pausing`] reads rows, and with its pauses. A column, here and
    /// in a condition, is its place in the table. A batch with much text has fewer rows. The scan holds nothing between two batches but
    /// its snapshot.
    ///
    /// # Errors
    /// As [`Transaction::read`]; a column that the table does not have, or a condition that does not fit its column (42804).
    pub async fn scan_batches(
        &mut self,
        table: &Table,
        columns: &[usize],
        conditions: Vec<(usize, Condition)>,
        mut see: impl FnMut(&Batch) -> ControlFlow<Stop>,
        mut pause: impl AsyncFnMut(),
    ) -> Result<()> {
        let tx = &mut *self.transaction;
        tx.touch(table).await?;
        let predicate = |(column, condition)| Predicate { column, condition };
        let query = ColumnQuery {
            columns: columns.to_vec(),
            predicates: conditions.into_iter().map(predicate).collect(),
            limit: None,
            batch_rows: STATEMENT_BATCH_ROWS,
            aggregator: None,
        };
        let mut state = ColumnScanState::new(&table.layout(), query, &table.db.budget)
            .map_err(|source| table.with_form(|form| Session::columns_error(form, source)))?;
        let mut busy = tx.driver.enter()?;
        loop {
            match tx.driver.session().try_scan_columns(&table.entry, &mut state) {
                Ok(Step::Done(None)) => return Ok(()),
                Ok(Step::Done(Some(batch))) => {
                    let flow = see(&batch);
                    drop(batch);
                    match flow {
                        ControlFlow::Continue(()) => {}
                        ControlFlow::Break(Stop::Pause) => {
                            // A pause may be long: its snapshot can be cancelled meanwhile, as that of a transaction that rests.
                            drop(busy);
                            pause().await;
                            busy = tx.driver.enter()?;
                        }
                        ControlFlow::Break(Stop::Enough) => return Ok(()),
                    }
                }
                Ok(Step::Wait(Wait::ColdScan)) => {
                    let db = tx.driver.session().db();
                    let read = db.counted(WaitKind::ColdScans, advance(state.cold())).await;
                    tx.read_cold(&table.entry, read)?;
                }
                Ok(Step::Wait(wait)) => tx.driver.wait(wait).await?,
                Err(error) => return Err(tx.driver.failed(error)),
            }
        }
    }
}

fn predicates(
    table: &Table,
    layout: &Layout,
    conditions: Vec<(String, Condition)>,
) -> Result<Vec<Predicate>> {
    let predicate = |(name, condition): (String, Condition)| {
        Ok(Predicate { column: column(table, layout, &name)?, condition })
    };
    conditions.into_iter().map(predicate).collect()
}

fn column(table: &Table, layout: &Layout, name: &str) -> Result<usize> {
    layout.column_index(name).map_err(|source| Error::Row { table: table.name(), source })
}

impl Transaction {
    /// Begins to put together a scan of a table by column: the rows of which all conditions hold, in no particular order, as batches of
    /// typed columns. Chunks that are frozen are read in place, a column at a time: conditions are asked of what is stored, and zone
    /// maps leave out what they can. Rows in memory follow as they are met, cold rows at the end. All are those of one snapshot with
    /// the transaction's own changes.
    ///
    /// ```
    /// # use thermocline_engine::columns::{Condition, Values};
    /// # use thermocline_engine::row::{Column, Type, Value};
    /// # use thermocline_engine::{Database, Options, TableSchema, TransactionOptions};
    /// # fn main() -> thermocline_engine::Result<()> {
    /// # let db = Database::open_in_memory(Options::default())?;
    /// # let lines = db.create_table(
    /// #     TableSchema::new("lines").column(Column::new("number", Type::Int4)).column(Column::new("amount", Type::Int8)),
    /// # )?;
    /// db.run(TransactionOptions::new(), async |tx| {
    ///     for number in 0..100 {
    ///         tx.insert_values(&lines, &[Value::Int4(number % 10), Value::Int8(i64::from(number))]).await?;
    ///     }
    ///     let query = tx.scan_columns(&lines).columns(["amount"]);
    ///     let mut scan = query.filter("number", Condition::Less(Value::Int4(3))).open().await?;
    ///     let mut sum = 0;
    ///     while let Some(batch) = tx.next_batch(&mut scan).await? {
    ///         let Values::Int8(amounts) = batch.columns()[0].values() else { unreachable!("a bigint") };
    ///         sum += amounts.iter().sum::<i64>();
    ///     }
    ///     assert_eq!(sum, 1380);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn scan_columns(&mut self, table: &Table) -> ColumnScanBuilder<'_> {
        ColumnScanBuilder {
            tx: self,
            table: table.clone(),
            columns: Vec::new(),
            conditions: Vec::new(),
            limit: None,
            batch_rows: BATCH_ROWS,
            group_by: Vec::new(),
        }
    }

    /// The next rows of a scan by column, at most 8,192; never none. `None`: there are no more. Gives way to other tasks of the worker
    /// before each batch.
    ///
    /// # Errors
    /// As [`Transaction::scan_table`]; a scan of another transaction, or of one that has ended, or that a rollback to a savepoint has
    /// ended (0A000); [`Error::SnapshotTooOld`] at read committed: the scan has ended, the transaction goes on; batches that are kept
    /// take more memory than there is (53200).
    pub async fn next_batch(&mut self, scan: &mut ColumnScan) -> Result<Option<ColumnBatch>> {
        let _busy = self.driver.enter()?;
        if has_company() {
            give_way().await;
        }
        if scan.is_finished() {
            return Ok(None);
        }
        loop {
            let ColumnScan { state, table, view } = &mut *scan;
            let session = self.driver.session();
            let before = session.enter_cursor(view)?;
            let step = session.try_scan_columns(&table.entry, state);
            session.leave_cursor(view, before);
            match step {
                Ok(Step::Done(batch)) => return Ok(batch),
                Ok(Step::Wait(Wait::ColdScan)) => {
                    let db = self.driver.session().db();
                    let read = db.counted(WaitKind::ColdScans, advance(state.cold())).await;
                    self.read_cold(&table.entry, read)?;
                }
                Ok(Step::Wait(wait)) => self.driver.wait(wait).await?,
                Err(error) => return Err(self.driver.failed(error)),
            }
        }
    }
}
