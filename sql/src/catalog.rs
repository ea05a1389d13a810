//! What the binder knows of tables: a trait, so that it runs over any source of definitions.

use std::sync::Arc;

use thermocline_row as row;

use crate::objects::Objects;
use crate::objects::rows::ActionRow;
use crate::objects::sequences::SessionSequences;
use crate::types::{NO_MOD, Type, numeric_mod};

/// Definitions by name.
pub(crate) trait Catalog {
    /// The table with this full name (`names`).
    fn table(&self, name: &str) -> Option<Arc<Table>>;
    /// Is there a table with this full name?
    fn has_table(&self, name: &str) -> bool;
    /// The schemas in which names without one are looked for.
    fn path(&self) -> &[String];
    /// Full names of all tables.
    fn names(&self) -> Vec<String>;
    /// What is known beside tables: views, sequences, comments.
    fn objects(&self) -> &Objects;
    /// What sessions share; none where there is no session.
    fn common(&self) -> Option<&crate::shared::Common>;
    /// Positions of sequences.
    fn sequences(&self) -> &SessionSequences;
    /// A table of the system catalogs, with its rows.
    fn pg_table(&self, schema: &str, name: &str) -> Option<System>;
    /// Definitions of indexes, or of the constraints that are indexes, by OID.
    fn definitions(&self, constraints: bool) -> Vec<(i64, String)>;
    /// Full names of relations by OID.
    fn relation_names(&self) -> Vec<(i64, String)>;
    /// Schemas by OID.
    fn schema_names(&self) -> Vec<(i64, String)>;
    /// Comments: the OID of a relation or constraint, the number of its column (0: itself), the text.
    fn comments(&self) -> Vec<(i64, i64, String)>;
    /// Bytes that a table's rows take, wherever they are.
    fn size(&self, name: &str) -> u64;
    /// The columns of a view, if columns are all that is asked for: its query is not bound then.
    fn view_columns(&self, _: &str) -> Option<Vec<crate::types::Column>> {
        None
    }
    /// Queries of views by OID.
    fn view_texts(&self) -> Vec<(i64, String)>;
}

/// A table of the system catalogs.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) columns: Vec<(&'static str, Type)>,
    pub(crate) rows: Vec<Vec<crate::types::Datum>>,
}

/// What tells a table, as it is defined, from every other one: a plan stands on it. Names tell nothing: a table that is dropped
/// leaves its name to the next one, whose definitions are counted from the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    /// [`thermocline_engine::Table::number`].
    table: u32,
    /// [`thermocline_engine::Table::definition`].
    definition: u64,
}

impl Identity {
    /// That of a table, now.
    pub(crate) fn of(table: &thermocline_engine::Table) -> Self {
        Self { table: table.number(), definition: table.definition() }
    }
}

/// A table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    /// Which table it is, and which of its definitions it shows.
    pub(crate) identity: Identity,
    pub(crate) columns: Vec<Column>,
    pub(crate) indexes: Vec<Index>,
    /// Place of the primary key in `indexes`.
    pub(crate) primary: Option<usize>,
    /// Rows, about.
    pub(crate) rows: u64,
    /// The tiering, unless it is `auto`.
    pub(crate) tiering: Option<thermocline_engine::Tiering>,
    /// CHECK constraints: names and conditions, as they were written.
    pub(crate) checks: Vec<(String, String)>,
    /// Foreign keys of the table.
    pub(crate) foreign: Vec<Arc<Foreign>>,
    /// Foreign keys that refer to it.
    pub(crate) referenced: Vec<Arc<Foreign>>,
}

/// A foreign key.
#[derive(Debug)]
pub(crate) struct Foreign {
    pub(crate) name: String,
    pub(crate) child: String,
    pub(crate) columns: Vec<String>,
    pub(crate) parent: String,
    pub(crate) parent_columns: Vec<String>,
    pub(crate) on_delete: ActionRow,
    pub(crate) on_update: ActionRow,
    pub(crate) deferrable: bool,
    pub(crate) deferred: bool,
}

impl Table {
    /// Places of columns by their names.
    pub(crate) fn places(&self, names: &[String]) -> Option<Vec<usize>> {
        names.iter().map(|name| self.columns.iter().position(|column| column.name == *name)).collect()
    }

    /// The unique index whose columns are these, in any order.
    pub(crate) fn unique_on(&self, places: &[usize]) -> Option<usize> {
        self.indexes.iter().position(|index| {
            index.unique
                && index.columns.len() == places.len()
                && index.columns.iter().all(|(column, _)| places.contains(column))
        })
    }
}

/// A column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) modifier: i32,
    pub(crate) nullable: bool,
    pub(crate) stored: row::Type,
    /// In what `insert` leaves out: a constant, or the table's next number.
    pub(crate) default: Option<row::Value>,
    pub(crate) numbered: bool,
    /// The default where it is no constant of the engine's, as it was written.
    pub(crate) default_text: Option<String>,
    /// GENERATED AS IDENTITY; `true`: ALWAYS.
    pub(crate) identity: Option<bool>,
    /// Stands for the key of a table without one; `*` leaves it out and no name finds it.
    pub(crate) hidden: bool,
}

/// An index.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) name: String,
    pub(crate) ordered: bool,
    pub(crate) unique: bool,
    /// Columns, and whether each descends.
    pub(crate) columns: Vec<(usize, bool)>,
}

/// The name of the hidden key.
pub(crate) const HIDDEN_KEY: &str = "\u{1}row";

/// The index of that key.
pub(crate) const HIDDEN_INDEX: &str = "\u{1}row_key";

/// The type of SQL that a stored type is, with its modifier.
pub(crate) fn sql_type(stored: row::Type) -> (Type, i32) {
    match stored {
        row::Type::Boolean => (Type::Bool, NO_MOD),
        row::Type::Int2 => (Type::Int2, NO_MOD),
        row::Type::Int4 => (Type::Int4, NO_MOD),
        row::Type::Int8 => (Type::Int8, NO_MOD),
        row::Type::Float4 => (Type::Float4, NO_MOD),
        row::Type::Float8 => (Type::Float8, NO_MOD),
        row::Type::Decimal { precision, scale } => {
            (Type::Numeric, numeric_mod(i32::from(precision), i32::from(scale)))
        }
        row::Type::Text => (Type::Text, NO_MOD),
        row::Type::Varchar(n) => (Type::Varchar, n as i32 + 4),
        row::Type::Char(n) => (Type::BpChar, n as i32 + 4),
        row::Type::Bytes => (Type::Bytea, NO_MOD),
        row::Type::Date => (Type::Date, NO_MOD),
        row::Type::Time => (Type::Time, NO_MOD),
        row::Type::Timestamp => (Type::Timestamp, NO_MOD),
        row::Type::TimestampTz => (Type::TimestampTz, NO_MOD),
        row::Type::Interval => (Type::Interval, NO_MOD),
        row::Type::Uuid => (Type::Uuid, NO_MOD),
    }
}
