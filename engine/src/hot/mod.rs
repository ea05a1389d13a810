//! The hot store: rows in DRAM.
//!
//! A row is a chain of [versions](version) that a [slot](chunk) leads to; slots stand in chunks; versions and slot
//! arrays come from size-class [memory], one reserved address range per table, charged to one
//! [budget]. [`store`] puts them together for one table.

pub(crate) mod budget;
pub(crate) mod chunk;
pub(crate) mod memory;
pub(crate) mod store;
pub(crate) mod version;
