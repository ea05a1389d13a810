//! Handles of users, and the loops that await.

pub(crate) mod access_log;
pub(crate) mod admin;
pub(crate) mod database;
pub(crate) mod load;
pub(crate) mod reservation;
pub(crate) mod spill;
pub(crate) mod ssd;
pub(crate) mod statistics;
pub(crate) mod table;
pub(crate) mod transaction;

pub use database::{BodyFuture, Database};
pub use table::{Index, Table, Tables};
pub(crate) use transaction::Transaction;
