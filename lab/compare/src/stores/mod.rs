//! The stores, one file each.

mod bf_tree;
mod fjall;
mod lmdb;
mod ours;
mod redb;
mod rocksdb;
mod sqlite;

use crate::store::{Failure, Store};
use std::path::Path;

/// Names of all stores, ours first.
pub const NAMES: [&str; 7] = ["thermocline", "bf-tree", "lmdb", "redb", "fjall", "rocksdb", "sqlite"];

/// The setup of a store, the same for all.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// An empty directory of its own.
    pub directory: &'a Path,
    /// Memory for its caches.
    pub cache_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
}

/// Makes the store called `name`.
pub fn open(name: &str, setup: Setup<'_>) -> Result<Box<dyn Store>, Failure> {
    Ok(match name {
        "thermocline" => Box::new(ours::Ours::open(setup)?),
        "bf-tree" => Box::new(bf_tree::Bf::open(setup)?),
        "lmdb" => Box::new(lmdb::Lmdb::open(setup)?),
        "redb" => Box::new(redb::Redb::open(setup)?),
        "fjall" => Box::new(fjall::Fjall::open(setup)?),
        "rocksdb" => Box::new(rocksdb::Rocks::open(setup)?),
        "sqlite" => Box::new(sqlite::Sqlite::open(setup)?),
        _ => return Err(format!("there is no store \"{name}\"; there are {}", NAMES.join(", ")).into()),
    })
}
