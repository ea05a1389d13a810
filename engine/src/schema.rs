//! Definitions of tables and indexes, and their durable form.
//!
//! The durable form is part of the checkpoint manifest (`docs/understand/checkpoint.md`): a version byte, then tables
//! in order of their ids, each with name, columns (see [`mod@crate::row`]), primary key and indexes.

use std::fmt;

use thermocline_base::ids::{IndexId, TableId, Timestamp};

use crate::error::{NAME_BYTES, SchemaError};
use crate::row::Column;

/// Ids from here on are those of the engine's own tables and indexes.
pub(crate) const FIRST_INTERNAL_ID: u32 = u32::MAX - 15;

/// True for a table of the engine's own, which users do not see.
pub(crate) const fn is_internal(table: TableId) -> bool {
    table.0 >= FIRST_INTERNAL_ID
}

/// The way of an index to its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexKind {
    /// By hash: equality only, the fastest.
    Hash,
    /// In key order: equality, ranges and prefixes in both directions.
    Ordered,
}

/// Definition of an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexSchema {
    pub(crate) name: String,
    pub(crate) kind: IndexKind,
    pub(crate) columns: Vec<(String, bool)>,
    pub(crate) unique: bool,
}

impl IndexSchema {
    fn new(kind: IndexKind, name: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&column| (column.to_owned(), false)).collect();
        Self { name: name.to_owned(), kind, columns, unique: false }
    }

    /// A hash index on these columns.
    #[must_use]
    pub fn hash(name: &str, columns: &[&str]) -> Self {
        Self::new(IndexKind::Hash, name, columns)
    }

    /// An ordered index on these columns, ascending.
    #[must_use]
    pub fn ordered(name: &str, columns: &[&str]) -> Self {
        Self::new(IndexKind::Ordered, name, columns)
    }

    /// No two rows may have equal keys (rows with a null in the key aside).
    #[must_use]
    pub fn unique(mut self) -> Self {
        self.unique = true;
        self
    }

    /// Orders by this column of the index downwards.
    #[must_use]
    pub fn descending(mut self, column: &str) -> Self {
        for (name, descending) in &mut self.columns {
            *descending |= name == column;
        }
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Hash or ordered.
    #[must_use]
    pub fn kind(&self) -> IndexKind {
        self.kind
    }

    /// Is it unique?
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.unique
    }

    /// Its columns, and whether each goes downwards.
    pub fn columns(&self) -> impl Iterator<Item = (&str, bool)> {
        self.columns.iter().map(|(name, descending)| (name.as_str(), *descending))
    }
}

/// Where the rows of a table may go (`tiering`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Tiering {
    /// While memory is short, chunks whose rows have settled are compressed in place; of those the ones that are used least leave
    /// memory whole; and where that is not enough, rows leave one by one, the coldest first.
    #[default]
    Auto,
    /// No row leaves memory.
    Hot,
    /// Rows leave memory one by one, the coldest first, while more is used than may be.
    Cold,
    /// Chunks whose rows have settled are compressed in place. No row leaves memory.
    Frozen,
    /// While memory is short, the rows that are used least go over to a region of memory that is paged, as they are, and come back as
    /// they are used. Its indexes stay in memory.
    Paged,
}

impl Tiering {
    const ALL: [Self; 5] = [Self::Auto, Self::Hot, Self::Cold, Self::Frozen, Self::Paged];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Hot => "hot",
            Self::Cold => "cold",
            Self::Frozen => "frozen",
            Self::Paged => "paged",
        }
    }

    /// May rows go where they take no memory: to the cold store, or to the paged side?
    pub(crate) const fn goes_away(self) -> bool {
        self.migrates() || matches!(self, Self::Paged)
    }

    /// May rows leave memory for the cold store?
    pub(crate) const fn migrates(self) -> bool {
        matches!(self, Self::Auto | Self::Cold)
    }
}

impl fmt::Display for Tiering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Tiering {
    type Err = crate::Error;

    fn from_str(name: &str) -> Result<Self, crate::Error> {
        Self::ALL.into_iter().find(|tiering| tiering.name() == name).ok_or_else(|| {
            crate::Error::InvalidOption {
                option: "tiering",
                reason: format!("{name:?} is not one of auto, hot, cold, frozen, paged"),
            }
        })
    }
}

/// Definition of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct TableSchema {
    /// The tiering; none: that of the database's options. A table that is there has one.
    pub(crate) tiering: Option<Tiering>,
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) primary: Option<IndexSchema>,
    pub(crate) indexes: Vec<IndexSchema>,
}

impl TableSchema {
    /// A table without columns yet.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { tiering: None, name: name.to_owned(), columns: Vec::new(), primary: None, indexes: Vec::new() }
    }

    /// Says where the rows may go; without it, [`crate::Options::tiering`] does.
    #[must_use]
    pub fn tiering(mut self, tiering: Tiering) -> Self {
        self.tiering = Some(tiering);
        self
    }

    /// Where the rows may go; of a table that was not made yet and does not say it: [`Tiering::Auto`].
    #[must_use]
    pub fn row_tiering(&self) -> Tiering {
        self.tiering.unwrap_or_default()
    }

    /// Adds a column.
    #[must_use]
    pub fn column(mut self, column: Column) -> Self {
        self.columns.push(column);
        self
    }

    /// Adds columns.
    #[must_use]
    pub fn columns(mut self, columns: impl IntoIterator<Item = Column>) -> Self {
        self.columns.extend(columns);
        self
    }

    /// Sets the primary key. Without one, the table gets a hidden key.
    #[must_use]
    pub fn primary_key(mut self, index: IndexSchema) -> Self {
        self.primary = Some(index.unique());
        self
    }

    /// Adds a secondary index.
    #[must_use]
    pub fn index(mut self, index: IndexSchema) -> Self {
        self.indexes.push(index);
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its columns, in order.
    #[must_use]
    pub fn column_list(&self) -> &[Column] {
        &self.columns
    }

    /// The primary key, unless it is hidden.
    #[must_use]
    pub fn primary(&self) -> Option<&IndexSchema> {
        self.primary.as_ref()
    }

    /// The secondary indexes.
    #[must_use]
    pub fn secondary(&self) -> &[IndexSchema] {
        &self.indexes
    }

    /// Number of the column with this name.
    #[must_use]
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    pub(crate) fn check(&self) -> Result<(), SchemaError> {
        check_name(&self.name)?;
        if self.columns.is_empty() {
            return Err(SchemaError::NoColumns { table: self.name.clone() });
        }
        for (position, column) in self.columns.iter().enumerate() {
            check_name(&column.name)?;
            if self.columns[..position].iter().any(|other| other.name == column.name) {
                return Err(SchemaError::DuplicateColumn {
                    table: self.name.clone(),
                    column: column.name.clone(),
                });
            }
        }
        let all: Vec<_> = self.primary.iter().chain(&self.indexes).collect();
        for (position, index) in all.iter().enumerate() {
            self.check_index(index)?;
            if all[..position].iter().any(|other| other.name == index.name) {
                return Err(SchemaError::DuplicateIndex {
                    table: self.name.clone(),
                    index: index.name.clone(),
                });
            }
        }
        if let Some(primary) = &self.primary {
            for (name, _) in &primary.columns {
                let position = self.column_index(name).expect("the index was checked");
                if self.columns[position].nullable {
                    return Err(SchemaError::NullableKey { table: self.name.clone(), column: name.clone() });
                }
            }
        }
        Ok(())
    }

    pub(crate) fn check_index(&self, index: &IndexSchema) -> Result<(), SchemaError> {
        check_name(&index.name)?;
        if index.columns.is_empty() {
            return Err(SchemaError::NoKeyColumns { table: self.name.clone(), index: index.name.clone() });
        }
        for (name, _) in &index.columns {
            if self.column_index(name).is_none() {
                return Err(SchemaError::UnknownColumn { table: self.name.clone(), column: name.clone() });
            }
        }
        Ok(())
    }

    /// The key columns of an index, as the key module wants them.
    pub(crate) fn key_columns(&self, index: &IndexSchema) -> Vec<(usize, bool)> {
        let position = |name: &str| self.column_index(name).expect("the index was checked");
        index.columns.iter().map(|(name, descending)| (position(name), *descending)).collect()
    }
}

fn check_name(name: &str) -> Result<(), SchemaError> {
    if name.is_empty() || name.len() > NAME_BYTES || name.contains('\0') {
        return Err(SchemaError::BadName { name: name.to_owned() });
    }
    Ok(())
}

/// A table as the manifest keeps it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct StoredTable {
    pub(crate) id: TableId,
    /// The name of its rows in log and images. As numbers of tables, none is ever given twice.
    pub(crate) storage: TableId,
    pub(crate) schema: TableSchema,
    /// The primary key's first, hidden ones too.
    pub(crate) index_ids: Vec<IndexId>,
    pub(crate) layout_version: u32,
    /// Changes up to then are not the table's any more. Only in tables that were emptied or rewritten before storages had names.
    pub(crate) since: Timestamp,
    /// Cold records of batches with ids up to this are not the table's any more (it was emptied then).
    pub(crate) emptied: Timestamp,
    /// Which columns it had before, the oldest first: those of older cold records, and of rows that programs still encode so.
    pub(crate) past: Vec<PastColumns>,
    pub(crate) auto: u64,
    pub(crate) hidden: u64,
}

/// The columns that a table had before a change of them.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PastColumns {
    /// The version of their layout, which images name; 0 in catalogs that did not keep it.
    pub(crate) version: u32,
    /// Batches with ids up to this, and commits, have rows of them.
    pub(crate) until: Timestamp,
    pub(crate) columns: Vec<Column>,
    pub(crate) change: PastChange,
}

/// The fate of the columns that a table had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PastChange {
    /// A column was added at the end.
    Added,
    /// The column with this number was dropped.
    Dropped(u32),
    /// A column got another name.
    Renamed,
}

/// Version 1 had no tiering, version 2 no past columns, and one time for what `since` and `emptied` say,
/// version 3 no renamed columns among the past ones, version 4 no storages, and no versions of past columns.
const CATALOG_VERSION: u8 = 5;
const ADDED: u32 = u32::MAX;
const RENAMED: u32 = u32::MAX - 1;

/// Encodes the catalog for the manifest.
pub(crate) fn encode_catalog(tables: &[StoredTable], next_table: u32, next_index: u32) -> Vec<u8> {
    let mut out = vec![CATALOG_VERSION];
    out.extend(next_table.to_le_bytes());
    out.extend(next_index.to_le_bytes());
    put_len(&mut out, tables.len());
    for table in tables {
        out.extend(table.id.0.to_le_bytes());
        out.extend(table.storage.0.to_le_bytes());
        out.extend(table.layout_version.to_le_bytes());
        out.extend(table.since.0.to_le_bytes());
        out.extend(table.emptied.0.to_le_bytes());
        out.extend(table.auto.to_le_bytes());
        out.extend(table.hidden.to_le_bytes());
        out.push(table.schema.row_tiering() as u8);
        put_str(&mut out, &table.schema.name);
        put_len(&mut out, table.schema.columns.len());
        for column in &table.schema.columns {
            column.encode(&mut out);
        }
        out.push(u8::from(table.schema.primary.is_some()));
        put_len(&mut out, table.index_ids.len());
        for id in &table.index_ids {
            out.extend(id.0.to_le_bytes());
        }
        put_len(&mut out, usize::from(table.schema.primary.is_some()) + table.schema.indexes.len());
        for index in table.schema.primary.iter().chain(&table.schema.indexes) {
            put_str(&mut out, &index.name);
            out.push(u8::from(index.kind == IndexKind::Ordered) | u8::from(index.unique) << 1);
            put_len(&mut out, index.columns.len());
            for (name, descending) in &index.columns {
                put_str(&mut out, name);
                out.push(u8::from(*descending));
            }
        }
        put_len(&mut out, table.past.len());
        for past in &table.past {
            out.extend(past.version.to_le_bytes());
            out.extend(past.until.0.to_le_bytes());
            let change = match past.change {
                PastChange::Added => ADDED,
                PastChange::Renamed => RENAMED,
                PastChange::Dropped(column) => column,
            };
            out.extend(change.to_le_bytes());
            put_len(&mut out, past.columns.len());
            for column in &past.columns {
                column.encode(&mut out);
            }
        }
    }
    out
}

/// The changes of a commit to the catalog.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Redefined {
    /// Tables that are there from then on, or are another way. Times that the commit settles are the largest there is.
    pub(crate) tables: Vec<StoredTable>,
    pub(crate) dropped: Vec<TableId>,
    pub(crate) next_table: u32,
    pub(crate) next_index: u32,
}

impl Redefined {
    /// As the log keeps it: the catalog of these tables, then how many are dropped, and which.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = encode_catalog(&self.tables, self.next_table, self.next_index);
        let mut dropped = Vec::new();
        put_len(&mut dropped, self.dropped.len());
        self.dropped.iter().for_each(|id| dropped.extend(id.0.to_le_bytes()));
        out.extend(&dropped);
        out.extend((dropped.len() as u64).to_le_bytes());
        out
    }

    /// Makes these changes to the tables of a catalog.
    pub(crate) fn apply_to(self, tables: &mut Vec<StoredTable>) {
        let changed = |table: &StoredTable| self.tables.iter().any(|other| other.id == table.id);
        tables.retain(|table| !self.dropped.contains(&table.id) && !changed(table));
        tables.extend(self.tables);
    }

    /// Reads it back; `at`: the timestamp of the commit.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn decode(bytes: &[u8], at: Timestamp) -> Result<Self, String> {
        let (bytes, len) = bytes.split_last_chunk::<8>().ok_or("a definition ends early")?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| "a definition ends early")?;
        let split = bytes.len().checked_sub(len).ok_or("a definition ends early")?;
        let (catalog, mut dropped) = bytes.split_at(split);
        let (mut tables, next_table, next_index) = decode_catalog(catalog)?;
        let input = &mut dropped;
        let count = take_u32(input)?;
        let dropped = (0..count).map(|_| take_u32(input).map(TableId)).collect::<Result<_, _>>()?;
        for table in &mut tables {
            if table.emptied.0 == u64::MAX {
                table.emptied = at;
            }
            for past in table.past.iter_mut().filter(|past| past.until.0 == u64::MAX) {
                past.until = Timestamp(at.0.saturating_sub(1));
            }
        }
        Ok(Self { tables, dropped, next_table, next_index })
    }
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    out.extend(u32::try_from(len).expect("catalogs are small").to_le_bytes());
}

fn put_str(out: &mut Vec<u8>, text: &str) {
    put_len(out, text.len());
    out.extend(text.as_bytes());
}

/// The catalog of a manifest: tables, next table id, next index id.
pub(crate) type StoredCatalog = (Vec<StoredTable>, u32, u32);

/// Decodes the catalog of a manifest; the error says what is wrong with it.
pub(crate) fn decode_catalog(mut bytes: &[u8]) -> Result<StoredCatalog, String> {
    let input = &mut bytes;
    let version = take::<1>(input)?[0];
    if !(1..=CATALOG_VERSION).contains(&version) {
        return Err(format!("catalog version {version} is not known"));
    }
    let (next_table, next_index) = (take_u32(input)?, take_u32(input)?);
    let mut tables = Vec::new();
    for _ in 0..take_u32(input)? {
        let id = TableId(take_u32(input)?);
        let storage = if version < 5 { id } else { TableId(take_u32(input)?) };
        let layout_version = take_u32(input)?;
        let since = Timestamp(u64::from_le_bytes(take(input)?));
        let emptied = match version {
            1 | 2 => since,
            _ => Timestamp(u64::from_le_bytes(take(input)?)),
        };
        let auto = u64::from_le_bytes(take(input)?);
        let hidden = u64::from_le_bytes(take(input)?);
        let tiering = match version {
            1 => Tiering::default(),
            _ => {
                let number = take::<1>(input)?[0];
                let known = Tiering::ALL.into_iter().find(|tiering| *tiering as u8 == number);
                known.ok_or_else(|| format!("tiering {number} is not known"))?
            }
        };
        let mut schema = TableSchema::new(&take_str(input)?).tiering(tiering);
        for _ in 0..take_u32(input)? {
            schema.columns.push(Column::decode(input).map_err(|error| error.to_string())?);
        }
        let has_primary = take::<1>(input)?[0] != 0;
        let mut index_ids = Vec::new();
        for _ in 0..take_u32(input)? {
            index_ids.push(IndexId(take_u32(input)?));
        }
        for position in 0..take_u32(input)? {
            let name = take_str(input)?;
            let flags = take::<1>(input)?[0];
            let kind = if flags & 1 == 0 { IndexKind::Hash } else { IndexKind::Ordered };
            let mut columns = Vec::new();
            for _ in 0..take_u32(input)? {
                let name = take_str(input)?;
                columns.push((name, take::<1>(input)?[0] != 0));
            }
            let index = IndexSchema { name, kind, columns, unique: flags & 2 != 0 };
            if position == 0 && has_primary {
                schema.primary = Some(index);
            } else {
                schema.indexes.push(index);
            }
        }
        if index_ids.len() != 1 + schema.indexes.len() {
            return Err(format!("table {:?} has {} index ids", schema.name, index_ids.len()));
        }
        schema.check().map_err(|error| error.to_string())?;
        let past = if version < 3 { Vec::new() } else { decode_past(input, &schema, version)? };
        tables.push(StoredTable {
            id,
            storage,
            schema,
            index_ids,
            layout_version,
            since,
            emptied,
            past,
            auto,
            hidden,
        });
    }
    if !input.is_empty() {
        return Err(format!("{} bytes follow the catalog", input.len()));
    }
    Ok((tables, next_table, next_index))
}

fn decode_past(input: &mut &[u8], schema: &TableSchema, catalog: u8) -> Result<Vec<PastColumns>, String> {
    let mut all: Vec<PastColumns> = Vec::new();
    for _ in 0..take_u32(input)? {
        let version = if catalog < 5 { 0 } else { take_u32(input)? };
        let until = Timestamp(u64::from_le_bytes(take(input)?));
        let change = match take_u32(input)? {
            ADDED => PastChange::Added,
            RENAMED => PastChange::Renamed,
            column => PastChange::Dropped(column),
        };
        let mut columns = Vec::new();
        for _ in 0..take_u32(input)? {
            columns.push(Column::decode(input).map_err(|error| error.to_string())?);
        }
        all.push(PastColumns { version, until, columns, change });
    }
    // Each one leads to the next. Those of one transaction end at one time.
    let after = all.iter().skip(1).map(|next| (next.until, next.columns.len()));
    let after = after.chain([(Timestamp(u64::MAX), schema.columns.len())]);
    for (past, (until, count)) in all.iter().zip(after) {
        let expected = match past.change {
            PastChange::Dropped(column) if (column as usize) < past.columns.len() => past.columns.len() - 1,
            PastChange::Dropped(column) => {
                return Err(format!("table {:?} never had a column {column}", schema.name));
            }
            PastChange::Added => past.columns.len() + 1,
            PastChange::Renamed => past.columns.len(),
        };
        if expected != count || past.until > until {
            return Err(format!(
                "the past columns of table {:?} do not lead to its present ones",
                schema.name
            ));
        }
    }
    Ok(all)
}

fn take<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], String> {
    let (head, tail) = input.split_first_chunk::<N>().ok_or("the catalog ends early")?;
    *input = tail;
    Ok(*head)
}

fn take_u32(input: &mut &[u8]) -> Result<u32, String> {
    Ok(u32::from_le_bytes(take(input)?))
}

fn take_str(input: &mut &[u8]) -> Result<String, String> {
    let len = take_u32(input)? as usize;
    let (head, tail) = input.split_at_checked(len).ok_or("the catalog ends early")?;
    *input = tail;
    String::from_utf8(head.to_vec()).map_err(|_| "a name is not UTF-8".to_owned())
}
