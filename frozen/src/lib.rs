//! Compressed columns of frozen chunks: the block, its encodings, zone maps, and reads of all of it in place.
//!
//! A *block* holds the rows of up to 2^16 positions of one table, column by column, and never changes. Its bytes in memory are
//! its bytes in a file. A position is a slot's number in its chunk; positions without a row are allowed.
//!
//! ```text
//! rows ──Builder::push, finish──► bytes ──BlockMeta::parse──► BlockMeta (owned, small) ──with the bytes──► Block: reads
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`builder`] | rows → bytes: which encoding a column gets |
//! | [`block`] | bytes → rows and values, by position |
//! | [`predicate`], [`scan`] | rows of which conditions hold, found on what is stored |
//! | [`rows`] | the same conditions, of encoded rows |
//! | [`batch`], [`gather`] | rows as typed columns, gathered from blocks and encoded rows |
//! | [`aggregate`] | counts, sums, averages and extremes by groups of equal values, of blocks and encoded rows |
//! | [`zone`] | bounds, sums and sizes of columns; aggregates |
//! | [`verify`] | checksums of all parts |
//! | `format`, `ints`, `dictionary`, `physical` | the bytes: entries, integers of a group, dictionaries, columns as integers |
//!
//! Rules:
//! - A row that is read is byte for byte the row that was pushed.
//! - Bytes of unknown quality make no reader panic and no reader look beyond them: [`BlockMeta::parse`] checks what the front
//!   says; what groups say is clamped where it is used; what lies outside of the bytes reads as zero. Whether bytes are those that
//!   were written, [`Block::verify`] tells.
//!
//! Invariant: this crate knows nothing of tables, versions or transactions; it is safe code over byte slices. (Funke, Kemper,
//! Neumann: Compacting Transactional Data in Hybrid OLTP & OLAP Databases, VLDB 2012, §3.4, §4.1.)

#![forbid(unsafe_code)]

pub mod aggregate;
mod aggregate_block;
pub mod batch;
pub mod block;
pub mod builder;
mod bytes;
mod dictionary;
mod distinct;
mod error;
mod format;
pub mod gather;
mod ints;
mod physical;
pub mod predicate;
pub mod rows;
pub mod scan;
pub mod verify;
pub mod zone;

#[cfg(test)]
mod testing;

pub use aggregate::{Aggregator, GroupRow, Measure};
pub use batch::{Array, Batch, Bitmap, Strings, Values};
pub use block::{Block, BlockMeta, Group};
pub use builder::Builder;
pub use error::Error;
pub use format::Choice;
pub use gather::{BATCH_ROWS, Gather};
pub use predicate::{Condition, Function, Predicate};
pub use rows::RowFilter;
pub use scan::{Bits, Plan, Scanned, Vector};
pub use zone::{Aggregate, ColumnInfo, Zone};

/// Positions of a group, the unit that scans skip and unpack.
pub const GROUP_ROWS: usize = 1024;
/// Positions of a block at most.
pub const MAX_ROWS: usize = 1 << 16;
