//! The layouts that a table had before its columns changed, for rows that were in the cold store then.
//!
//! A record keeps the bytes that its row had in memory, and does not say of which layout they are. It need not: the ids of
//! batches are timestamps, and a change of the columns draws one while nothing of the table moves. What was copied
//! before it and would move after it is of another form of the table, and stays. So the batches up to that timestamp have
//! rows of the layout before it, and all later ones have not.
//!
//! A record is brought up to date, change by change, when it is read. The keys of its indexes stay what they are: no
//! column of an index can be dropped.

use thermocline_base::ids::Timestamp;

use crate::catalog::schema::{PastColumns, SchemaError, TableSchema};
use crate::catalog::table::TableForm;
use crate::row::{Layout, MAX_ROW_BYTES, RowError, Type, Value};

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
            let change = match past.dropped {
                Some(column) => ColumnChange::Dropped(column as usize),
                None => {
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
            dropped: match past.change {
                ColumnChange::Added(_) => None,
                ColumnChange::Dropped(column) => Some(column as u32),
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
        let Some(was) = self.past.0.get(first) else { return Ok(None) };
        let mut values = was.layout.decode(self.row_in(record))?;
        for past in &self.past.0[first..] {
            match &past.change {
                ColumnChange::Added(value) => values.push(value.clone()),
                ColumnChange::Dropped(column) => _ = values.remove(*column),
            }
        }
        let mut renewed = Vec::with_capacity(record.len() + 32);
        self.layout.encode(&values, &mut renewed)?;
        renewed.extend_from_slice(self.suffix_in(record));
        Ok(Some(renewed))
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

/// May rows with these columns get too long?
pub(crate) fn may_be_too_long(schema: &TableSchema) -> bool {
    /// What a column takes beside its text, at most.
    const COLUMN_BYTES: u64 = 32;
    let bytes = schema.columns.iter().map(|column| match column.ty {
        Type::Text | Type::Bytes => MAX_ROW_BYTES as u64,
        Type::Varchar(characters) | Type::Char(characters) => COLUMN_BYTES + 4 * u64::from(characters),
        _ => COLUMN_BYTES,
    });
    bytes.sum::<u64>() + COLUMN_BYTES > MAX_ROW_BYTES as u64
}
