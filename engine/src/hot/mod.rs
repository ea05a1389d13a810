//! The hot store: rows in DRAM.
//!
//! A row is a chain of [versions](version) that a [slot](chunk) leads to; slots stand in chunks; versions and slot
//! arrays come from size-class [memory], one reserved address range per table, charged to one
//! [budget]. [`store`] puts them together for one table. Rows that have settled stand compressed in the [block] of their
//! chunk, and their slots say so.

pub(crate) mod block;
pub(crate) mod budget;
pub(crate) mod chunk;
pub(crate) mod damage;
pub(crate) mod life;
pub(crate) mod memory;
pub(crate) mod paged;
pub(crate) mod reuse;
pub(crate) mod store;
pub(crate) mod version;
