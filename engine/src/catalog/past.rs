//! The layouts that a table had before its columns changed: for rows that were in the cold store then, and for programs that
//! still encode rows so.
//!
//! A row that is inserted carries the id of its layout ([`EncodedRow`](crate::row::EncodedRow)). If the table had that layout
//! before, the row is converted as those were that it had then, change by change. Layouts are kept for that while
//! records may need them, and as long as they are among the last [`KEPT`].
//!
//! A record keeps the bytes that its row had in memory, and does not say of which layout they are. It need not: the ids of
//! batches are timestamps, and a change of the columns draws one while nothing of the table moves. What was copied
//! before it and would move after it is of another form of the table, and stays. So the batches up to that timestamp have
//! rows of the layout before it, and all later ones have not.
//!
//! A record is brought up to date, change by change, when it is read. The keys of its indexes stay what they are: no
//! column of an index can be dropped.

use thermocline_base::ids::Timestamp;

use std::borrow::Cow;

use crate::catalog::schema::{PastChange, PastColumns, SchemaError, StoredTable, TableSchema};
use crate::catalog::table::TableForm;
use crate::row::{Column, Layout, MAX_ROW_BYTES, RowError, RowRef, Type, Value};

/// Layouts that are kept for programs, at most.
pub(crate) const KEPT: usize = 64;

/// A layout that a table had, and what became of it.
#[derive(Debug)]
struct PastLayout {
    /// Batches with ids up to this have it, or an older one.
    until: Timestamp,
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
            Ok(PastLayout { until: past.until, layout, change })
        });
        layouts.collect::<Result<_, _>>().map(Self)
    }

    /// As the manifest keeps them.
    pub(crate) fn stored(&self) -> Vec<PastColumns> {
        let stored = |past: &PastLayout| PastColumns {
            until: past.until,
            columns: past.layout.columns().to_vec(),
            change: match past.change {
                ColumnChange::Added(_) => PastChange::Added,
                ColumnChange::Dropped(column) => PastChange::Dropped(column as u32),
                ColumnChange::Renamed => PastChange::Renamed,
            },
        };
        self.0.iter().map(stored).collect()
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
        let first = self.past.0.partition_point(|past| past.until.0 < batch);
        if first == self.past.0.len() {
            return Ok(None);
        }
        let mut renewed = self.convert(first, self.row_in(record))?;
        renewed.extend_from_slice(self.suffix_in(record));
        Ok(Some(renewed))
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
        Ok(Self { layout, past, suffix_bytes: TableForm::suffix_for(schema) })
    }

    /// The present layout.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Is this a row of the present layout, with its hidden key?
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn row(&self, payload: &[u8]) -> Result<(), RowError> {
        self.layout.check(self.without_suffix(payload))
    }

    /// Is this a row of the layout that the records of this batch have?
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn record(&self, batch: u64, payload: &[u8]) -> Result<(), RowError> {
        let first = self.past.0.partition_point(|past| past.until.0 < batch);
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
