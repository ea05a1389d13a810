//! The layouts that a table had before its columns changed: for rows that were in the cold store then, and for programs that
//! still encode rows so.
//!
//! A row that is inserted carries the id of its layout ([`EncodedRow`](crate::row::EncodedRow)). If the table had that layout
//! before, the row is converted as those were that it had then, change by change. Layouts are kept for that while
//! records may need them, and as long as they are among the last [`KEPT`].
//!
//! A record keeps the bytes that its row had in memory, and does not say of which layout they are. It need not: the ids of
//! batches are timestamps, and so is the commit of a change of the columns, until which nothing of the table moves. What was
//! copied before it and would move after it is of another form of the table, and stays. So the batches before that timestamp
//! have rows of the layout before it, and all later ones have not. The same holds for the commits in the log: who changes the
//! columns has the table to himself, and logs his own rows as the columns are at his commit. An image of a chunk names the
//! version of its layout.
//!
//! Until the change is committed its timestamp is later than all others ([`Settled`]): to the transaction that makes it all
//! records are older.
//!
//! A record is brought up to date, change by change, when it is read. The keys of its indexes stay what they are: no
//! column of an index can be dropped.

use thermocline_base::ids::Timestamp;

use std::borrow::Cow;

use crate::catalog::table::{Settled, TableForm};
use crate::error::SchemaError;
use crate::row::{Column, Layout, MAX_ROW_BYTES, RowError, RowRef, Type, Value};
use crate::schema::{PastChange, PastColumns, StoredTable, TableSchema};

/// Layouts that are kept for programs, at most.
pub(crate) const KEPT: usize = 64;

/// A layout that a table had, and what became of it.
#[derive(Debug)]
struct PastLayout {
    /// Its number; rows of two with one number have the same bytes.
    version: u32,
    /// Batches and commits up to this have it, or an older one.
    until: Settled,
    layout: Layout,
    change: ColumnChange,
}

#[derive(Debug)]
enum ColumnChange {
    /// A column was added at the end; with this value.
    Added(Value),
    /// The column at this place was dropped.
    Dropped(usize),
    /// One got another name.
    Renamed,
}

/// The layouts of a table before the present one, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Past(Vec<PastLayout>);

impl Past {
    /// Those of a table that is defined so.
    pub(crate) fn new(stored: &[PastColumns], schema: &TableSchema) -> Result<Self, SchemaError> {
        let after = stored.iter().skip(1).map(|next| &next.columns).chain([&schema.columns]);
        let layouts = stored.iter().zip(after).map(|(past, after)| {
            let layout = Layout::new(&past.columns)
                .map_err(|source| SchemaError::Column { table: schema.name.clone(), source })?;
            let change = match past.change {
                PastChange::Dropped(column) => ColumnChange::Dropped(column as usize),
                PastChange::Renamed => ColumnChange::Renamed,
                PastChange::Added => {
                    let added = after.last().and_then(|column| column.default.clone());
                    ColumnChange::Added(added.unwrap_or(Value::Null))
                }
            };
            Ok(PastLayout { version: past.version, until: Settled::at(past.until), layout, change })
        });
        layouts.collect::<Result<_, _>>().map(Self)
    }

    /// As the manifest keeps them.
    pub(crate) fn stored(&self) -> Vec<PastColumns> {
        let stored = |past: &PastLayout| PastColumns {
            version: past.version,
            until: past.until.get(),
            columns: past.layout.columns().to_vec(),
            change: match past.change {
                ColumnChange::Added(_) => PastChange::Added,
                ColumnChange::Dropped(column) => PastChange::Dropped(column as u32),
                ColumnChange::Renamed => PastChange::Renamed,
            },
        };
        self.0.iter().map(stored).collect()
    }

    /// The change that made the present layout is committed at `at`.
    pub(crate) fn settle(&self, at: Timestamp) {
        self.0.iter().for_each(|past| past.until.settle(Timestamp(at.0 - 1)));
    }

    /// The first layout that batches and commits of this time may have; the number of past ones: the present one.
    fn at(&self, time: u64) -> usize {
        self.0.partition_point(|past| past.until.get().0 < time)
    }

    /// The layout with this number.
    fn of_version(&self, version: u32) -> Option<usize> {
        self.0.iter().position(|past| past.version == version)
    }
}

impl TableForm {
    /// May records have rows of other layouts?
    #[inline]
    pub(crate) fn has_past(&self) -> bool {
        !self.past.0.is_empty()
    }

    /// A record of a batch as the present layout has it, with what stands behind its row. `None`: it is so already.
    ///
    /// # Errors
    /// The row would be too long; or it is no row.
    pub(crate) fn try_renew(&self, batch: u64, record: &[u8]) -> Result<Option<Vec<u8>>, RowError> {
        let first = self.past.at(batch);
        if first == self.past.0.len() {
            return Ok(None);
        }
        self.renewed_from(first, record).map(Some)
    }

    fn renewed_from(&self, first: usize, payload: &[u8]) -> Result<Vec<u8>, RowError> {
        if payload.len() < self.suffix_bytes {
            return Err(RowError::OtherLayout);
        }
        let mut renewed = self.convert(first, self.row_in(payload))?;
        renewed.extend_from_slice(self.suffix_in(payload));
        Ok(renewed)
    }

    /// May there be rows of a layout with this number?
    pub(crate) fn knows_version(&self, version: u32) -> bool {
        version == self.layout_version || self.past.of_version(version).is_some()
    }

    /// The layout with this number, unless it is the present one or none of the table's.
    pub(crate) fn older_layout(&self, version: u32) -> Option<&Layout> {
        let older = self.past.of_version(version).filter(|_| version != self.layout_version);
        older.map(|place| &self.past.0[place].layout)
    }

    /// A row of an older layout with this number as the present one has it.
    ///
    /// # Errors
    /// As [`TableForm::renew_from`].
    pub(crate) fn renew_row(&self, version: u32, row: &[u8]) -> Result<Vec<u8>, RowError> {
        self.convert(self.past.of_version(version).ok_or(RowError::OtherLayout)?, row)
    }

    /// A row of a layout with this number, with what stands behind it, as the present layout has it. `None`: it is so already.
    ///
    /// # Errors
    /// The row would be too long; or it is no row; or the table never had the layout.
    pub(crate) fn renew_from(&self, version: u32, payload: &[u8]) -> Result<Option<Vec<u8>>, RowError> {
        if version == self.layout_version {
            return Ok(None);
        }
        let first = self.past.of_version(version).ok_or(RowError::OtherLayout)?;
        self.renewed_from(first, payload).map(Some)
    }

    /// A row of the past layout number `first` as the present layout has it.
    fn convert(&self, first: usize, row: &[u8]) -> Result<Vec<u8>, RowError> {
        let mut values = self.past.0[first].layout.decode(row)?;
        for past in &self.past.0[first..] {
            match &past.change {
                ColumnChange::Added(value) => values.push(value.clone()),
                ColumnChange::Dropped(column) => _ = values.remove(*column),
                ColumnChange::Renamed => {}
            }
        }
        let mut converted = Vec::with_capacity(row.len() + 32 + self.suffix_bytes);
        self.layout.encode(&values, &mut converted)?;
        Ok(converted)
    }

    /// The bytes of a row that is handed in, as the present layout has them.
    ///
    /// # Errors
    /// Its layout is none that the table has or had; or it would be too long.
    #[inline]
    pub(crate) fn accept<'r>(&self, row: RowRef<'r>) -> Result<Cow<'r, [u8]>, RowError> {
        if row.layout() == self.layout.id() {
            Ok(Cow::Borrowed(row.bytes()))
        } else {
            self.accept_older(row).map(Cow::Owned)
        }
    }

    #[cold]
    fn accept_older(&self, row: RowRef<'_>) -> Result<Vec<u8>, RowError> {
        let past = self.past.0.iter().rposition(|past| past.layout.id() == row.layout());
        self.convert(past.ok_or(RowError::OtherLayout)?, row.bytes())
    }

    /// The same. Whoever adds a column sees to it that no row gets too long.
    pub(crate) fn renew(&self, batch: u64, record: &[u8]) -> Option<Vec<u8>> {
        if !self.has_past() {
            return None;
        }
        self.try_renew(batch, record)
            .expect("records are rows of the layout of their time, and fit into later ones")
    }
}

/// Tells rows of a table from other bytes, by its definition alone.
#[derive(Debug)]
pub(crate) struct RowCheck {
    version: u32,
    layout: Layout,
    past: Past,
    suffix_bytes: usize,
}

impl RowCheck {
    /// For a table that is defined so.
    ///
    /// # Errors
    /// The definition cannot be.
    pub(crate) fn new(table: &StoredTable) -> Result<Self, SchemaError> {
        let schema = &table.schema;
        let layout = Layout::new(&schema.columns)
            .map_err(|source| SchemaError::Column { table: schema.name.clone(), source })?;
        let past = Past::new(&table.past, schema)?;
        Ok(Self { version: table.layout_version, layout, past, suffix_bytes: TableForm::suffix_for(schema) })
    }

    /// The present layout.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The layout with this number; the present one, if the table has no other.
    pub(crate) fn layout_of(&self, version: u32) -> &Layout {
        let older = self.past.of_version(version).filter(|_| version != self.version);
        older.map_or(&self.layout, |place| &self.past.0[place].layout)
    }

    /// Is this a row of the layout with this number, with its hidden key?
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn row(&self, version: u32, payload: &[u8]) -> Result<(), RowError> {
        self.layout_of(version).check(self.without_suffix(payload))
    }

    /// Is this a row of the layout that the records of this batch have?
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn record(&self, batch: u64, payload: &[u8]) -> Result<(), RowError> {
        let first = self.past.at(batch);
        let layout = self.past.0.get(first).map_or(&self.layout, |past| &past.layout);
        layout.check(self.without_suffix(payload))
    }

    fn without_suffix<'p>(&self, payload: &'p [u8]) -> &'p [u8] {
        payload.len().checked_sub(self.suffix_bytes).map_or(&[], |len| &payload[..len])
    }
}

/// What a column takes in a row beside its text, at most.
const COLUMN_BYTES: u64 = 32;

/// What a column with its default adds to a row, at most.
pub(crate) fn most_bytes(column: &Column) -> u64 {
    COLUMN_BYTES
        + match &column.default {
            Some(Value::Text(text)) => text.len() as u64,
            Some(Value::Bytes(bytes)) => bytes.len() as u64,
            _ => 0,
        }
}

/// May rows with these columns get too long?
pub(crate) fn may_be_too_long(schema: &TableSchema) -> bool {
    let bytes = schema.columns.iter().map(|column| match column.ty {
        Type::Text | Type::Bytes => MAX_ROW_BYTES as u64,
        Type::Varchar(characters) | Type::Char(characters) => COLUMN_BYTES + 4 * u64::from(characters),
        _ => COLUMN_BYTES,
    });
    bytes.sum::<u64>() + COLUMN_BYTES > MAX_ROW_BYTES as u64
}
