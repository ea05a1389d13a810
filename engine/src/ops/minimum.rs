//! The least memory limit that a database can be opened with, or be given while it runs.
//!
//! Rows can leave memory; what stays is what does not depend on how many of them are there ([`fixed_bytes`]), a block
//! each for the rows, the slots and every index of a table, and the rows that are in use at the moment. Under a governor all of
//! that has to lie below its *goal*: what is above, it brings out of memory, whatever it is needed for.
//!
//! ```text
//!   0 ── log, process, temperatures, filters, schema ── WORKING_BYTES ── goal ── marks, reserve, buffers of the store ── limit
//! ```
//!
//! How many bytes the rows in use need was measured ([`WORKING_BYTES`]). With less, operations fail with 53200 however few
//! rows each of them touches, or wait most of the time.

use std::fmt::Write;

use crate::cold::store::StoreMemory;
use crate::error::{Error, Result};
use crate::hot::budget::reserve_bytes;
use crate::ops::memory::{GOAL, fixed_bytes, is_wanted};
use crate::options::ColdStoreKind;
use crate::schema::is_internal;
use crate::session::db::Inner;

/// What a table's rows, its slots and each of its indexes take, at the least: a page of metadata, and one of cells.
const SMALL_BYTES: u64 = 8 << 10;
/// Of the update memo: a block for the rows, the slots and the indexes of each of its two tables.
const MEMO_BYTES: u64 = 6 * (64 << 10);
/// Of a schema, at the least: a database that was opened without tables is to be opened again with a few.
const SCHEMA_BYTES: u64 = 1 << 20;
/// Of rows in use: with 2.2 MiB eight threads that change rows of 400 bytes at random (YCSB A, 200,000 rows) are refused memory,
/// with 3.6 they are not, with 4.9 they are three times as fast (docs/understand/governor.md).
const WORKING_BYTES: u64 = 4 << 20;
/// No limit that is looked at is larger: more than that is needed only where the schema alone takes it.
const LARGEST: u64 = 1 << 46;

/// What a database needs under a limit, by what it is for.
struct Need {
    limit: u64,
    parts: Vec<(String, u64)>,
}

impl Need {
    fn of(inner: &Inner, limit: u64) -> Self {
        let mut parts = vec![schema_part(inner)];
        parts.extend(fixed_bytes(inner, limit).into_iter().map(|(name, bytes)| (name.to_owned(), bytes)));
        if is_wanted(inner) {
            parts.push(("rows in use".to_owned(), WORKING_BYTES + MEMO_BYTES));
            let below_goal = parts.iter().map(|(_, bytes)| bytes).sum::<u64>();
            let (store, reserve) = (kept_for_store(inner, limit), reserve_bytes(limit));
            // The reserve lies above the goal as well.
            let room = below_goal * 1000 / GOAL;
            if store > 0 {
                parts.push(("buffers and frames".to_owned(), store));
            }
            parts.push(("room for rows on their way out".to_owned(), (room - below_goal).max(reserve)));
        }
        Self { limit, parts }
    }

    fn bytes(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes).sum()
    }

    fn is_met(&self) -> bool {
        self.bytes() <= self.limit
    }
}

/// What tables and indexes take without any rows.
fn schema_part(inner: &Inner) -> (String, u64) {
    let guard = inner.epochs.pin();
    let (mut tables, mut indexes) = (0, 0);
    for entry in inner.catalog.all().into_iter().filter(|entry| !is_internal(entry.id)) {
        tables += 1;
        indexes += entry.form_pinned(&guard).indexes.len() as u64;
    }
    let bytes = (2 * tables + indexes) * SMALL_BYTES;
    (format!("its {tables} tables with {indexes} indexes"), bytes.max(SCHEMA_BYTES))
}

/// What is kept free for the store's buffers and frames, once there is one.
fn kept_for_store(inner: &Inner, limit: u64) -> u64 {
    match inner.options.cold_store {
        ColdStoreKind::Pages => StoreMemory::within(Some(limit)).most_bytes(),
        ColdStoreKind::Direct | ColdStoreKind::Memory => 0,
    }
}

/// The least limit, in whole MiB, above one that does not suffice.
fn least_above(inner: &Inner, too_small: u64) -> Need {
    let (mut below, mut enough) = (too_small >> 20, (too_small >> 20) + 1);
    while !Need::of(inner, enough << 20).is_met() && enough << 20 < LARGEST {
        below = enough;
        enough *= 2;
    }
    while enough - below > 1 {
        let middle = below.midpoint(enough);
        match Need::of(inner, middle << 20).is_met() {
            true => enough = middle,
            false => below = middle,
        }
    }
    Need::of(inner, enough << 20)
}

/// Is a memory limit large enough for the schema, for what is cold, and for working? `before`: a limit that the database ran under.
/// What it was closed under it can be opened under, and does what it did then.
///
/// # Errors
/// [`Error::InvalidOption`], which says how much is needed.
pub(crate) fn check(inner: &Inner, limit: Option<u64>, before: u64) -> Result<()> {
    let Some(limit) = limit.filter(|_| !inner.options.read_only) else { return Ok(()) };
    if Need::of(inner, limit).is_met() {
        return Ok(());
    }
    let least = least_above(inner, limit);
    if before != 0 && limit >= before {
        let (mebibytes, least) = (limit >> 20, least.limit >> 20);
        tracing::warn!(
            mebibytes,
            least,
            "the memory limit leaves little room beside tables and indexes; raise it"
        );
        return Ok(());
    }
    let mut parts = String::new();
    for (name, bytes) in &least.parts {
        let comma = if parts.is_empty() { "" } else { ", " };
        let _ = write!(parts, "{comma}{name} {:.1} MiB", *bytes as f64 / f64::from(1 << 20));
    }
    Err(Error::InvalidOption {
        option: "memory_limit",
        reason: format!(
            "{} MiB are too few for this database, at least {} MiB are needed: {parts}",
            limit >> 20,
            least.limit >> 20
        ),
    })
}

#[cfg(test)]
mod tests {
    use thermocline_base::depth;
    use thermocline_base::rng::Rng;

    use crate::row::{Column, KeyBuf, Type, Value};
    use crate::{
        Database, Durability, Error, IndexSchema, Options, Result, Table, TableSchema, TransactionOptions,
    };

    const MIB: u64 = 1 << 20;

    fn within(mebibytes: u64) -> Options {
        Options::default().with_memory_limit(Some(mebibytes * MIB)).with_durability(Durability::Async)
    }

    /// What a refusal says would be enough.
    fn least_of<T>(outcome: Result<T>) -> (u64, String) {
        let Err(Error::InvalidOption { option: "memory_limit", reason }) = outcome else {
            panic!("it was not refused for its memory limit");
        };
        let rest = reason.split_once("at least ").expect("it names the least").1;
        let number = rest.split(' ').next().expect("a number");
        (number.parse().expect("a number"), reason)
    }

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
        let open = |mebibytes| Database::open(dir.path(), within(mebibytes));
        let (least, reason) = least_of(open(16));
        for part in ["60 tables with 60 indexes 1.", "the log's buffers ", "rows in use 4.", "temperatures "]
        {
            assert!(reason.contains(part), "no {part:?} in {reason:?}");
        }
        assert!((24..=32).contains(&least), "{least}");
        let db = open(48).expect("that is enough");
        let (again, _) = least_of(db.set_memory_limit(Some(16 * MIB)));
        assert_eq!(again, least, "it is the same while it runs");
        assert_eq!(db.statistics().memory_limit, Some(48 * MIB), "it stays as it was");
        db.set_memory_limit(Some(least * MIB)).expect("that is enough, too");
        db.close().expect("closed");
    }

    /// An empty table takes little, and what was closed under a limit is opened under it.
    #[test]
    fn a_thousand_empty_tables_fit_into_64_mib() {
        const TABLES: u64 = 1_000;
        let io = std::sync::Arc::new(thermocline_base::io::MemoryIo::new());
        let open = |mebibytes| {
            let io = std::sync::Arc::clone(&io);
            Database::open_with(std::path::Path::new("/db"), within(mebibytes), io, true)
        };
        let db = open(64).expect("a new database");
        let before = db.statistics().memory.total();
        for number in 0..TABLES {
            let table = TableSchema::new(&format!("t{number}"))
                .column(Column::new("id", Type::Int8))
                .column(Column::new("text", Type::Text))
                .primary_key(IndexSchema::ordered(&format!("key_{number}"), &["id"]));
            db.create_table(table).expect("there is room for it");
        }
        let each = (db.statistics().memory.total() - before) / TABLES;
        assert!(each <= 16 << 10, "{each} bytes for an empty table");
        db.close().expect("closed");
        let db = open(64).expect("it is opened under the limit that it was closed with");
        db.table("t999").expect("the last one is there, too");
        let table = db.table("t77").expect("it is there");
        db.run(TransactionOptions::new(), async |tx| {
            tx.insert_values(&table, &[Value::Int8(1), Value::Text("text".to_owned())]).await.map(drop)
        })
        .expect("there is room for a row");
        db.close().expect("closed");
    }

    /// A table with columns, indexes and rows of lengths as they are drawn.
    fn draw_table(rng: &mut Rng, number: u64) -> (TableSchema, usize) {
        let index = |rng: &mut Rng, name: &str, column: &str| match rng.chance(0.5) {
            true => IndexSchema::ordered(name, &[column]),
            false => IndexSchema::hash(name, &[column]),
        };
        let mut table = TableSchema::new(&format!("t{number}"))
            .column(Column::new("id", Type::Int8))
            .column(Column::new("text", Type::Text))
            .primary_key(index(rng, &format!("key_{number}"), "id"));
        for other in 0..rng.below(3) {
            table = table.index(index(rng, &format!("index_{number}_{other}"), "text"));
        }
        let bytes = [10, 100, 400, 900][rng.below(4) as usize];
        (table, bytes)
    }

    /// Fills a database until it has enough, or is full: how many rows each table has.
    fn fill(db: &Database, rng: &mut Rng) -> Vec<(Table, i64)> {
        let mut tables = Vec::new();
        let wanted = [1, 10, 100, 400][rng.below(4) as usize];
        for number in 0..1 + rng.below(wanted) {
            let (schema, bytes) = draw_table(rng, number);
            match db.create_table(schema) {
                Ok(table) => tables.push((table, 0, bytes)),
                Err(Error::OutOfMemory(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        for _ in 0..rng.below(60) {
            let at = rng.below(tables.len() as u64) as usize;
            let (table, rows, bytes) = &mut tables[at];
            let more = rng.below(1_000) as i64;
            let filled = db.run(TransactionOptions::new(), async |tx| {
                for id in *rows..*rows + more {
                    let text = Value::Text(format!("{id:0>width$}", width = *bytes));
                    tx.insert_values(table, &[Value::Int8(id), text]).await?;
                }
                Ok(())
            });
            match filled {
                Ok(()) => *rows += more,
                Err(Error::OutOfMemory(_) | Error::SnapshotTooOld { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        tables.into_iter().map(|(table, rows, _)| (table, rows)).collect()
    }

    /// A database that could be closed can be opened again, at the limit that it was closed with, and has its rows.
    #[test]
    fn drawn_databases_open_at_the_limit_that_they_were_closed_with() {
        for number in 0..depth::either(5, 100) {
            let mut rng = Rng::new(depth::seed() + number);
            let io = std::sync::Arc::new(thermocline_base::io::MemoryIo::new());
            let open = |mebibytes| {
                let io = std::sync::Arc::clone(&io);
                Database::open_with(std::path::Path::new("/db"), within(mebibytes), io, true)
            };
            let (least, _) = least_of(open(16));
            let mut limit = least + [0, 1, 5, 20, 60][rng.below(5) as usize];
            let db = open(limit).expect("a new database");
            let tables = fill(&db, &mut rng);
            while rng.chance(0.5) {
                // Down to what it takes now.
                let lower = least.max(limit - 1 - rng.below(8).min(limit - 1));
                match db.set_memory_limit(Some(lower * MIB)) {
                    Ok(()) => limit = lower,
                    Err(Error::InvalidOption { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            let known: Vec<(String, i64)> =
                tables.iter().map(|(table, rows)| (table.name(), *rows)).collect();
            drop(tables);
            db.close().expect("closed");
            for _ in 0..2 {
                let db =
                    open(limit).unwrap_or_else(|error| panic!("database {number}, {limit} MiB: {error}"));
                for (name, rows) in &known {
                    let table = db.table(name).expect("it is there");
                    let (mut seen, mut sum) = (0, 0);
                    db.run(TransactionOptions::new().read_only(), async |tx| {
                        (seen, sum) = (0, 0);
                        let layout = table.layout();
                        tx.scan_table(&table, |row| {
                            (seen, sum) = (seen + 1, sum + layout.i64(row, 0).unwrap_or(-1));
                            std::ops::ControlFlow::Continue(())
                        })
                        .await
                    })
                    .expect("read");
                    assert_eq!((seen, sum), (*rows, rows * (rows - 1) / 2), "database {number}, {name}");
                }
                db.close().expect("closed");
            }
        }
    }

    fn round(db: &Database, table: &Table, seed: u64, rows: i64) -> Result<()> {
        let mut rng = Rng::new(seed);
        for _ in 0..1_500 {
            let key = KeyBuf::new().i64(rng.below(rows as u64) as i64);
            let (layout, text) = (table.layout(), format!("{:0>400}", rng.below(1 << 40)));
            db.run(TransactionOptions::new(), async |tx| {
                let found = tx.read(&table.primary(), &key, |row| layout.str(row, 1).map(str::len)).await?;
                assert_eq!(found, Some(Some(400)));
                tx.update(&table.primary(), &key, |row| Ok(row.set_str(1, &text)?)).await.map(drop)
            })?;
        }
        Ok(())
    }

    /// What the least limit promises: no operation is refused memory, with more rows than it has room for.
    #[test]
    fn the_least_limit_is_one_that_works() {
        const ROWS: i64 = 30_000;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (least, _) = least_of(Database::open(dir.path(), within(16)));
        let (again, _) = least_of(Database::open(dir.path(), within(least - 1)));
        assert_eq!(again, least, "the one before is refused, and names the same");
        let db = Database::open(dir.path(), within(least)).expect("the least limit");
        let table = TableSchema::new("t")
            .column(Column::new("id", Type::Int8))
            .column(Column::new("text", Type::Text))
            .primary_key(IndexSchema::hash("t_key", &["id"]));
        let table = db.create_table(table).expect("a new table");
        for first in (0..ROWS).step_by(500) {
            db.run(TransactionOptions::new(), async |tx| {
                for id in first..first + 500 {
                    tx.insert_values(&table, &[Value::Int8(id), Value::Text(format!("{id:0>400}"))]).await?;
                }
                Ok(())
            })
            .expect("rows make room for rows");
        }
        std::thread::scope(|scope| {
            let (db, table) = (&db, &table);
            let threads: Vec<_> =
                (0..4).map(|seed| scope.spawn(move || round(db, table, seed, ROWS))).collect();
            for thread in threads {
                thread.join().expect("no panic").expect("changes make room for changes");
            }
        });
        assert!(db.statistics().cold.migrated_rows > 0, "{ROWS} rows had room in {least} MiB");
        db.close().expect("closed");
        Database::open(dir.path(), within(least)).expect("it opens again").close().expect("closed");
    }
}
