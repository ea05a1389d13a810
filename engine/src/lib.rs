//! The transactional main-memory engine of Thermocline.
//!
//! ```
//! use thermocline_engine::row::{Column, KeyBuf, Type, Value};
//! use thermocline_engine::{Database, IndexSchema, Options, TableSchema, TransactionOptions};
//!
//! # fn main() -> thermocline_engine::Result<()> {
//! # let directory = std::env::temp_dir().join(format!("thermocline-doc-{}", std::process::id()));
//! let db = Database::open(&directory, Options::default())?;
//! let accounts = db.create_table(
//!     TableSchema::new("accounts")
//!         .column(Column::new("id", Type::Int8))
//!         .column(Column::new("owner", Type::Text))
//!         .column(Column::new("balance", Type::Int8))
//!         .primary_key(IndexSchema::hash("accounts_key", &["id"]))
//!         .index(IndexSchema::ordered("accounts_by_owner", &["owner"])),
//! )?;
//! db.run(TransactionOptions::new(), async |tx| {
//!     tx.insert_values(&accounts, &[Value::Int8(1), Value::from("Ada"), Value::Int8(100)]).await
//! })?;
//! let key = KeyBuf::new().i64(1);
//! let balance = db.run(TransactionOptions::new(), async |tx| {
//!     tx.update(&accounts.primary(), &key, |row| {
//!         let balance = accounts.layout().i64(row.row(), 2).unwrap_or(0) + 50;
//!         row.set_i64(2, balance)?;
//!         Ok(balance)
//!     })
//!     .await
//! })?;
//! assert_eq!(balance, Some(150));
//! db.close()?;
//! # std::fs::remove_dir_all(&directory).ok();
//! # Ok(())
//! # }
//! ```
//!
//! Invariant: the engine knows nothing of SQL text, sockets or any asynchronous runtime. `index` knows nothing of versions, `log` nothing of tables.

/// Questions and answers of scans by column: see [`Transaction::scan_columns`].
pub mod columns {
    pub use thermocline_frozen::{Array, Batch, Bitmap, Condition, Function, GroupRow, Strings, Values};

    pub use crate::api::transaction::Aggregate;
}

mod api;
mod catalog;
mod checkpoint;
mod cold;
mod counters;
mod error;
mod freezer;
#[doc(hidden)]
pub mod fuzzing;
mod governor;
mod hot;
#[doc(hidden)]
pub mod index;
mod log;
#[doc(hidden)]
pub mod mutation;
mod ops;
mod options;
mod pressure;
mod schema;
mod session;
mod steps;
#[cfg(test)]
mod tests;
mod txn;

pub use api::load::{BulkLoad, LoadRow};
pub use api::reservation::Reservation;
pub use api::spill::{SpillBlock, SpillFile};
pub use api::ssd::{IndexOnSsd, SsdShares};
pub use api::statistics::{
    CheckpointCounts, ColdStatistics, FrozenStatistics, MemoryUse, PagedStatistics, Statistics,
    TableStatistics,
};
pub use api::transaction::{ColumnScan, ColumnScanBuilder, Cursor, LockWait, Statement, Stop, Transaction};
pub use api::{BodyFuture, Database, Index, Table, Tables};
pub use counters::{AbortCounts, MemoNotices, WaitTotal, Waits};
pub use error::{Error, Result, SchemaError, SerializationCause, TakenKey};
pub use freezer::Freezer;
pub use hot::budget::OutOfMemory;
pub use hot::paged::PagedError;
pub use index::tree::Direction;
pub use ops::backup::BackupProgress;
pub use ops::change::{Change, Changed};
#[doc(hidden)]
pub use ops::columns::ColumnBatch;
pub use ops::freeze::Freezing;
pub use ops::handle::{RowHandle, SeenRow};
pub use ops::handles::RowHandles;
pub use ops::lock::Locked;
pub use ops::page::WentOver;
pub use ops::progress::DefinitionProgress;
pub use ops::rollback::Savepoint;
pub use ops::scan::KeyRange;
pub use ops::verify::Verification;
#[doc(hidden)]
pub use options::PageCapture;
pub use options::{ColdStoreKind, Durability, Isolation, Options, PagerKind, SsdPolicy, TransactionOptions};
pub use schema::{IndexKind, IndexSchema, TableSchema, Tiering};
#[doc(hidden)]
pub use steps::MaintenanceSteps;
pub use steps::cold::ColdSteps;
pub use thermocline_base::multiplex::{block_on, run_tasks, yield_now};
pub use thermocline_pool::ssd::{SavedCounts, SsdCounts, SsdState, SsdStats};
pub use thermocline_pool::store::SsdShare;
pub use thermocline_row::{self as row, row};
pub use thermocline_temperature as temperature;
pub use txn::locks::LockMode;
