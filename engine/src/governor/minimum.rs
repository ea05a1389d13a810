//! The least memory limit that a database can be opened with, or be given while it runs.
//!
//! Rows can leave memory; what stays is what does not depend on how many of them are there ([`super::fixed_bytes`]), and a
//! block each for the rows, the slots and every index of a table. A limit without room for that would
//! let a database be opened in which each write waits, and then fails.

use std::fmt::Write;

use crate::db::Inner;
use crate::error::{Error, Result};

/// What a table's rows, its slots and each of its indexes are taken from the system in, at the least.
const BLOCK_BYTES: u64 = 64 << 10;

/// Is a memory limit large enough for the schema, and for what is cold?
///
/// # Errors
/// [`Error::InvalidOption`], which says how much is needed.
pub(crate) fn check(inner: &Inner, limit: Option<u64>) -> Result<()> {
    let Some(limit) = limit.filter(|_| !inner.options.read_only) else { return Ok(()) };
    let guard = inner.epochs.pin();
    let (mut tables, mut indexes) = (0, 0);
    for entry in inner.catalog.all() {
        tables += 1;
        indexes += entry.form_pinned(&guard).indexes.len() as u64;
    }
    let schema = (2 * tables + indexes) * BLOCK_BYTES;
    let fixed = super::fixed_bytes(inner, limit);
    let needed = fixed.iter().map(|(_, bytes)| bytes).sum::<u64>() + schema;
    if needed <= limit {
        return Ok(());
    }
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut parts = format!("its {tables} tables with {indexes} indexes {:.1} MiB", mebibytes(schema));
    for (name, bytes) in fixed {
        let _ = write!(parts, ", {name} {:.1} MiB", mebibytes(bytes));
    }
    Err(Error::InvalidOption {
        option: "memory_limit",
        reason: format!(
            "{} MiB are too few for this database, at least {} MiB are needed: {parts}",
            limit >> 20,
            needed.div_ceil(1 << 20)
        ),
    })
}

#[cfg(test)]
mod tests {
    use crate::row::{Column, Type};
    use crate::{Database, Error, IndexSchema, Options, TableSchema};

    #[test]
    fn a_limit_without_room_for_the_schema_is_refused_at_open() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let db = Database::open(dir.path(), Options::default()).expect("a new database");
        for number in 0..60 {
            let key = format!("key_{number}");
            let table = TableSchema::new(&format!("t{number}"))
                .column(Column::new("id", Type::Int8))
                .primary_key(IndexSchema::hash(&key, &["id"]));
            db.create_table(table).expect("a new table");
        }
        db.close().expect("closed");
        let open = |mebibytes: u64| {
            Database::open(dir.path(), Options::default().with_memory_limit(Some(mebibytes << 20)))
        };
        let Err(Error::InvalidOption { option: "memory_limit", reason }) = open(16) else {
            panic!("16 MiB are enough for 60 tables and the log");
        };
        for part in ["60 tables with 60 indexes 11.", "the log's buffers ", "at least 25 MiB"] {
            assert!(reason.contains(part), "no {part:?} in {reason:?}");
        }
        let db = open(48).expect("that is enough");
        let Err(Error::InvalidOption { option: "memory_limit", reason }) =
            db.set_memory_limit(Some(16 << 20))
        else {
            panic!("16 MiB are not enough while it runs either");
        };
        assert!(reason.contains("at least"), "{reason}");
        assert_eq!(db.statistics().memory_limit, Some(48 << 20), "it stays as it was");
        db.set_memory_limit(Some(40 << 20)).expect("that is enough, too");
        db.close().expect("closed");
    }
}
