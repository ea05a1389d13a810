//! Decisions over a plan: by which index each table is read, and which orders and extremes an index has already.
//!
//! | file | decides |
//! |---|---|
//! | `access` | by which index a table is read, and how many rows that gives |
//! | `improve` | what a whole plan saves by the order of an index |
//!
//! In which order tables are joined is still decided where FROM is bound (`bind/from`).

pub(crate) mod access;
pub(crate) mod improve;
