//! Errors of the engine: what happened, with the names a person needs, and what to do.
//!
//! Every variant has an SQLSTATE, so that a server above can pass it on. A broken invariant is a panic, never an error.

use std::fmt;
use std::path::PathBuf;

use thermocline_base::io::IoError;

use crate::checkpoint::CheckpointError;
use crate::hot::budget::OutOfMemory;
use crate::hot::store::{RowAbsent, ThawError};
use crate::row::{RowError, Value};

mod schema;

pub(crate) use schema::NAME_BYTES;
pub use schema::SchemaError;

/// Result of the engine.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure of the engine.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Another transaction committed a change to the row after this one took its snapshot. Run it again.
    SerializationFailure {
        /// The table.
        table: String,
        /// The row's key, in words.
        key: String,
        /// The exact cause.
        cause: SerializationCause,
    },
    /// Transactions waited for each other in a circle; this one gave way. Run it again.
    Deadlock {
        /// The table where this one waited.
        table: String,
        /// The key that it waited for.
        key: String,
    },
    /// The transaction would wait for one whose body runs it, and which therefore does not go on before this one has ended.
    /// Running it again helps nothing.
    WaitsForItself {
        /// The table where this one would wait.
        table: String,
        /// The key that it would wait for.
        key: String,
    },
    /// The row is being changed or is locked by another transaction, and the caller did not want to wait.
    WouldWait {
        /// The table.
        table: String,
        /// The row's key, in words.
        key: String,
    },
    /// Another transaction was in the way for longer than this one waits
    /// ([`Transaction::limit_waits`](crate::Transaction::limit_waits)).
    LockTimeout {
        /// The table.
        table: String,
        /// The row's key, in words, or the table's definition.
        key: String,
        /// The limit, in milliseconds.
        limit_ms: u64,
    },
    /// A row with this key exists already.
    DuplicateKey {
        /// The table.
        table: String,
        /// The unique index.
        index: String,
        /// The key.
        key: TakenKey,
    },
    /// The transaction did nothing for longer than the idle limit and was aborted.
    IdleTimeout {
        /// The limit, in milliseconds.
        limit_ms: u64,
    },
    /// The transaction has failed before; only a rollback is possible.
    TransactionFailed,
    /// A write in a read-only transaction or a database opened read-only.
    ReadOnly,
    /// No table has this name.
    UnknownTable {
        /// The name.
        name: String,
    },
    /// The table that a handle was made of was dropped; another one may have its name by now.
    TableDropped {
        /// The name that it had.
        name: String,
    },
    /// A table, index or savepoint of another database, of another opening of this one, or of another transaction.
    ForeignHandle {
        /// Its kind.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// The table has no such index, or the index was dropped.
    UnknownIndex {
        /// The table.
        table: String,
        /// The name.
        index: String,
    },
    /// The definition of a table, column or index is not acceptable.
    Schema(SchemaError),
    /// A row or key is not acceptable.
    Row {
        /// The table.
        table: String,
        /// The fault.
        source: RowError,
    },
    /// A scan by column asks for what the table does not have, or compares a column with a value of another type.
    Columns {
        /// The table.
        table: String,
        /// The fault.
        source: thermocline_frozen::Error,
    },
    /// The memory limit is reached.
    OutOfMemory(OutOfMemory),
    /// The transaction's snapshot was older than any other, and kept memory from being freed that others need.
    SnapshotTooOld {
        /// Its age, in milliseconds.
        age_ms: u64,
        /// Bytes that it kept in memory, about.
        pinned_bytes: u64,
    },
    /// The disk is full: the write was refused; the database can be read, and written again once space returns.
    DiskFull {
        /// The database's directory.
        directory: PathBuf,
    },
    /// A row stands on a page that is lost, and what was asked for needs all rows of its chunk: a checkpoint, a change of the table's
    /// definition. Nothing has changed; all rows are there again when the database is opened again.
    PageLost {
        /// Which row, and what for.
        what: String,
    },
    /// Pages of the paged side cannot be had. Where a page is lost, the rest goes on, and all rows are there again when the database is
    /// opened again.
    Paged {
        /// The table whose rows they hold, where it is known.
        table: Option<String>,
        /// The event.
        source: crate::PagedError,
    },
    /// The log cannot be written any more. What was acknowledged is on disk; close the database and open it again.
    LogFailed {
        /// The message of the system.
        reason: String,
    },
    /// The database is open already, in another process or in this one.
    Locked {
        /// The database's directory.
        directory: PathBuf,
        /// It is open in this process.
        here: bool,
    },
    /// The directory holds something else.
    NotADatabase {
        /// The directory.
        directory: PathBuf,
        /// The thing that was found.
        found: String,
    },
    /// The files were written by a newer version of Thermocline.
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// The version in the file.
        found: u32,
        /// The highest version that this program reads.
        supported: u32,
    },
    /// A file is damaged.
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where and how.
        what: String,
    },
    /// Rows of a table that have left memory cannot be read or written now.
    ColdStore {
        /// The table.
        table: String,
        /// Which of its rows, as far as that is known: an index, and between which of its keys they are.
        rows: Option<String>,
        /// The fault.
        source: thermocline_pool::store::StoreError,
    },
    /// The system refused a file operation.
    Io(IoError),
    /// An option has a value that makes no sense.
    InvalidOption {
        /// The option.
        option: &'static str,
        /// Why, and what would do.
        reason: String,
    },
    /// The operation cannot be done with this index, savepoint or database.
    Unsupported {
        /// The operation.
        operation: &'static str,
        /// Why, and what would do.
        reason: String,
    },
    /// A change of a table's definition waited too long for transactions that use the table.
    SchemaChangeTimeout {
        /// The table.
        table: String,
        /// The time that it waited, in milliseconds.
        waited_ms: u64,
        /// The transactions that use it, or what else was waited for, in words.
        in_the_way: Vec<String>,
    },
    /// The definition of a table cannot be changed while the transaction itself uses it so.
    InUse {
        /// The table.
        table: String,
        /// Its user.
        by: &'static str,
    },
    /// More transactions are open at once than the engine has places for.
    TooManyTransactions {
        /// The number of places.
        limit: usize,
    },
    /// The database was closed.
    Closed,
    /// The caller's own closure refused; carries its words.
    Refused(String),
}

/// A key that a row has already: as words, `(w_id, name)=(7, 'x')`, when it is displayed, and as data.
#[derive(Clone, PartialEq, Debug)]
pub struct TakenKey(Box<TakenKeyParts>);

#[derive(Clone, PartialEq, Debug)]
struct TakenKeyParts {
    words: String,
    columns: Vec<String>,
    values: Vec<Value>,
}

impl TakenKey {
    pub(crate) fn new(words: String, columns: Vec<String>, values: Vec<Value>) -> Self {
        Self(Box::new(TakenKeyParts { words, columns, values }))
    }

    /// The names of the key's columns, in the order of the index. None for a hidden key.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.0.columns
    }

    /// Their values, as far as a key keeps them: an interval has its days carried into months, a char has no trailing blanks.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        &self.0.values
    }
}

impl fmt::Display for TakenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.words)
    }
}

/// Why a transaction cannot be serialized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SerializationCause {
    /// Another transaction updated or deleted the row first.
    ConcurrentUpdate,
    /// A row that was read has changed by the time of the commit.
    ReadChanged,
    /// A range or key that was read has got a row by the time of the commit.
    Phantom,
}

impl fmt::Display for SerializationCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConcurrentUpdate => "another transaction changed it first",
            Self::ReadChanged => "it was read and has changed since",
            Self::Phantom => "a row has appeared in what was read",
        })
    }
}

impl Error {
    /// Stands for a table where an error of the cold store is about none.
    pub(crate) const ALL_TABLES: &str = "(all)";

    /// Would the same transaction have a chance if it ran again?
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        // A transaction that ran into a shortage of memory may find more of it; one that was long will be long again.
        matches!(self, Self::SerializationFailure { .. } | Self::Deadlock { .. })
            || matches!(self, Self::SnapshotTooOld { age_ms, .. } if *age_ms < 5_000)
    }

    /// The SQLSTATE of the error (PostgreSQL's where it has one).
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::SerializationFailure { .. } => "40001",
            Self::Deadlock { .. } | Self::WaitsForItself { .. } => "40P01",
            Self::WouldWait { .. } | Self::LockTimeout { .. } => "55P03",
            Self::DuplicateKey { .. } => "23505",
            Self::IdleTimeout { .. } => "25P03",
            Self::TransactionFailed => "25P02",
            Self::ReadOnly => "25006",
            Self::UnknownTable { .. } | Self::TableDropped { .. } => "42P01",
            Self::ForeignHandle { .. } => "55000",
            Self::UnknownIndex { .. } => "42704",
            Self::Schema(_) => "42P16",
            Self::Row { source, .. } => source.sqlstate(),
            Self::Columns { source, .. } => source.sqlstate(),
            Self::OutOfMemory(_) => "53200",
            Self::SnapshotTooOld { .. } => "72000",
            Self::DiskFull { .. } => "53100",
            Self::Paged { source, .. } => source.sqlstate(),
            Self::LogFailed { .. } | Self::Io(_) | Self::PageLost { .. } => "58030",
            Self::Locked { .. } => "55006",
            Self::NotADatabase { .. } | Self::NewerFormat { .. } | Self::InvalidOption { .. } => "22023",
            Self::Unsupported { operation: "scan", .. } => "42809",
            Self::Unsupported { operation: "rollback_to", .. } => "3B001",
            Self::Unsupported { .. } => "0A000",
            Self::Damaged { .. } => "XX001",
            Self::ColdStore { source, .. } => match source {
                thermocline_pool::store::StoreError::Full(_) => "53100",
                thermocline_pool::store::StoreError::Io(_) => "58030",
                _ => "XX001",
            },
            Self::SchemaChangeTimeout { .. } => "57014",
            Self::InUse { .. } => "55006",
            Self::TooManyTransactions { .. } => "53300",
            Self::Closed => "57P01",
            Self::Refused(_) => "P0001",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SerializationFailure { table, key, cause } => {
                write!(
                    f,
                    "could not serialize access to {key} in table {table:?}: {cause}; run the transaction again"
                )
            }
            Self::Deadlock { table, key } => {
                write!(f, "deadlock while waiting for {key} in table {table:?}; run the transaction again")
            }
            Self::WaitsForItself { table, key } => write!(
                f,
                "deadlock of a thread with itself: {key} in table {table:?} is held by a transaction whose body has begun this \
                 one and waits for it; do both in one transaction, or one after the other"
            ),
            Self::WouldWait { table, key } => {
                write!(
                    f,
                    "{key} in table {table:?} is in use by another transaction; try later, or let it wait"
                )
            }
            Self::LockTimeout { table, key, limit_ms } => write!(
                f,
                "{key} in table {table:?} has been in use by another transaction for {limit_ms} ms, and this one waits no \
                 longer; try again"
            ),
            Self::DuplicateKey { table, index, key } => {
                write!(f, "table {table:?} has a row with {key} already (unique index {index:?})")
            }
            Self::IdleTimeout { limit_ms } => write!(
                f,
                "the transaction was idle for more than {limit_ms} ms and was aborted; keep transactions short, or \
                 raise the idle limit"
            ),
            Self::TransactionFailed => {
                f.write_str("the transaction has failed; roll it back (or to a savepoint) and start again")
            }
            Self::ReadOnly => f.write_str("this transaction or database is read-only"),
            Self::UnknownTable { name } => write!(f, "there is no table {name:?}"),
            Self::TableDropped { name } => write!(
                f,
                "the table {name:?} of this handle was dropped; if there is a new one of that name, get a handle to it"
            ),
            Self::ForeignHandle { what: "savepoint", name } => {
                write!(f, "savepoint {name} belongs to another transaction; nothing was rolled back")
            }
            Self::ForeignHandle { what, name } => write!(
                f,
                "the handle of {what} {name:?} belongs to another database, or to one that was closed and opened again; \
                 get one from the database that the transaction is of"
            ),
            Self::UnknownIndex { table, index } => write!(f, "table {table:?} has no index {index:?}"),
            Self::Schema(error) => error.fmt(f),
            Self::Row { table, source } if table.is_empty() => source.fmt(f),
            Self::Row { table, source } => write!(f, "table {table:?}: {source}"),
            Self::Columns { table, source } => write!(f, "table {table:?}: {source}"),
            Self::OutOfMemory(error) => error.fmt(f),
            Self::SnapshotTooOld { age_ms, pinned_bytes } => write!(
                f,
                "snapshot too old: after {age_ms} ms it kept about {pinned_bytes} bytes in memory that others need, \
                 and was cancelled; run the transaction again, shorter, or raise memory_limit"
            ),
            Self::DiskFull { directory } => write!(
                f,
                "the disk of {} is full: nothing can be written until space is freed; reading goes on",
                directory.display()
            ),
            Self::LogFailed { reason } => write!(
                f,
                "the log cannot be written any more ({reason}); everything acknowledged is safe; the database is \
                 read-only until it is closed and opened again"
            ),
            Self::Locked { directory, here: false } => write!(
                f,
                "another process has the database in {} open; end it, or wait until it has closed the database",
                directory.display()
            ),
            Self::Locked { directory, here: true } => write!(
                f,
                "this process has the database in {} open already; use a clone of that handle, or close it first",
                directory.display()
            ),
            Self::NotADatabase { directory, found } => write!(
                f,
                "{} is not a Thermocline database: {found}; name an empty or new directory to create one",
                directory.display()
            ),
            Self::NewerFormat { file, found, supported } => write!(
                f,
                "{} has format version {found}, this program reads up to {supported}; use a newer Thermocline",
                file.display()
            ),
            Self::Damaged { file, what } => {
                write!(f, "{} is damaged: {what}; restore it from a backup", file.display())
            }
            Self::ColdStore { table, source, .. } if table == Self::ALL_TABLES => {
                write!(f, "the cold store cannot be opened: {source}")
            }
            Self::ColdStore { table, rows, source } => {
                write!(f, "cold rows of table {table:?} cannot be reached")?;
                if let Some(rows) = rows {
                    write!(f, " ({rows})")?;
                }
                write!(f, ": {source}; the rest goes on")
            }
            Self::Io(error) => error.fmt(f),
            Self::Paged { table: Some(table), source } => {
                write!(
                    f,
                    "rows of table {table:?} on the paged side cannot be reached: {source}; the rest goes on, and opening the database again has all rows"
                )
            }
            Self::PageLost { what } => f.write_str(what),
            Self::Paged { table: None, source } => write!(f, "there can be no paged side: {source}"),
            Self::InvalidOption { option, reason } => write!(f, "option {option}: {reason}"),
            Self::Unsupported { operation, reason } => write!(f, "{operation}: {reason}"),
            Self::SchemaChangeTimeout { table, waited_ms, in_the_way } => write!(
                f,
                "the definition of table {table:?} was not changed: the table was in use for {waited_ms} ms; end what uses it \
                 and try again (in the way: {})",
                in_the_way.join("; ")
            ),
            Self::InUse { table, by } => {
                write!(
                    f,
                    "the definition of table {table:?} cannot be changed: {by} uses it; close that first"
                )
            }
            Self::TooManyTransactions { limit } => {
                write!(f, "{limit} transactions are open, and that is the limit; end some first")
            }
            Self::Closed => f.write_str("the database is closed"),
            Self::Refused(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Schema(error) => Some(error),
            Self::Row { source, .. } => Some(source),
            Self::Columns { source, .. } => Some(source),
            Self::OutOfMemory(error) => Some(error),
            Self::Io(error) => Some(error),
            Self::ColdStore { source, .. } => Some(source),
            Self::Paged { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<RowAbsent> for Error {
    fn from(RowAbsent(row): RowAbsent) -> Self {
        let what = format!("row {row} is on the paged side and cannot be read; open the database again");
        Self::PageLost { what }
    }
}

impl From<ThawError> for Error {
    fn from(error: ThawError) -> Self {
        match error {
            ThawError::OutOfMemory(error) => error.into(),
            ThawError::Absent(error) => error.into(),
        }
    }
}

impl From<OutOfMemory> for Error {
    fn from(error: OutOfMemory) -> Self {
        Self::OutOfMemory(error)
    }
}

impl From<IoError> for Error {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}

impl From<SchemaError> for Error {
    fn from(error: SchemaError) -> Self {
        Self::Schema(error)
    }
}

impl From<CheckpointError> for Error {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Io(io) => Self::Io(io),
            CheckpointError::Damaged { file, offset, what } => {
                Self::Damaged { file, what: format!("at byte {offset}: {what}") }
            }
            CheckpointError::DamagedChunk { file, offset, table, chunk, what } => Self::Damaged {
                file,
                what: format!("at byte {offset}, chunk {chunk} of the table with id {table}: {what}"),
            },
            lost @ CheckpointError::LostRow { .. } => Self::PageLost { what: lost.to_string() },
            CheckpointError::NotADatabase { dir, found } => Self::NotADatabase { directory: dir, found },
            CheckpointError::Newer { file, version, known } => {
                Self::NewerFormat { file, found: version, supported: known }
            }
            CheckpointError::Foreign { file } => {
                Self::Damaged { file, what: "it belongs to another database".to_owned() }
            }
        }
    }
}

/// For closures that edit rows: the engine fills the table's name in.
impl From<RowError> for Error {
    fn from(source: RowError) -> Self {
        Self::Row { table: String::new(), source }
    }
}
