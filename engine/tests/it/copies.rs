//! Backups and restores: how they end early, and what is left then.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use thermocline_base::io::{Io, MemoryIo};
use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{Database, Error, IndexSchema, Options, TableSchema, TransactionOptions};

fn options() -> Options {
    Options::default()
        .with_memory_limit(Some(256 << 20))
        .with_part_bytes(8 << 10)
        .with_log_buffer_bytes(256 << 10)
        .with_log_segment_bytes(256 << 10)
        .with_cold_block_bytes(64 << 10)
}

const ROWS: i64 = 600;

/// A database whose rows are cold, but for the last hundred.
fn fill(db: &Database) {
    let schema = TableSchema::new("t")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("text", Type::Text))
        .primary_key(IndexSchema::ordered("key", &["id"]));
    let table = db.create_table(schema).expect("a table");
    let text = "x".repeat(1_000);
    let rows = (0..ROWS).map(|id| [Value::Int8(id), Value::from(text.as_str())]);
    db.bulk_load(&table, rows).expect("the rows are new");
    let layout = table.layout();
    let old = |row: &[u8]| layout.i64(row, 0).is_some_and(|id| id < ROWS - 100);
    assert!(db.cold_steps().migrate(&table, old, 50).expect("they move") > 400);
}

fn count(db: &Database) -> i64 {
    let table = db.table("t").expect("a table");
    let found = db.run(TransactionOptions::new().read_only(), async |tx| {
        let mut found = 0;
        for id in 0..ROWS {
            found += i64::from(tx.read(&table.primary(), &KeyBuf::new().i64(id), |_| ()).await?.is_some());
        }
        Ok(found)
    });
    found.expect("reads go on")
}

fn in_memory() -> (MemoryIo, Database) {
    let io = MemoryIo::new();
    let db = Database::open_with(Path::new("/db"), options(), Arc::new(io.clone()), true).expect("it opens");
    fill(&db);
    (io, db)
}

fn copy() -> &'static Path {
    Path::new("/copy")
}

/// What is there of a copy: no file in any of its directories.
fn nothing_is_left(io: &MemoryIo) -> bool {
    !io.files().keys().any(|path| path.starts_with(copy()))
}

#[test]
fn a_backup_tells_how_far_it_is_and_can_be_ended() {
    let (io, db) = in_memory();
    let mut told = Vec::new();
    db.backup_with(copy(), |progress| {
        told.push(progress);
        ControlFlow::Continue(())
    })
    .expect("a backup");
    let last = told.last().expect("it was told");
    assert_eq!(last.bytes_done, last.bytes, "all of it in the end");
    assert!(last.bytes > 500_000 && told.is_sorted_by_key(|progress| progress.bytes_done));
    for name in ["", "log", "checkpoint", "cold"] {
        let dir = if name.is_empty() { copy().to_owned() } else { copy().join(name) };
        io.list(&dir)
            .expect("it is there")
            .iter()
            .for_each(|name| io.remove(&dir.join(name)).expect("there"));
    }
    for end in [0, told.len() / 2, told.len() - 1] {
        let mut times = 0;
        let ended = db.backup_with(copy(), |_| {
            times += 1;
            if times > end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let error = ended.expect_err("it was ended").to_string();
        assert!(error.contains("cancelled"), "{error}");
        assert!(nothing_is_left(&io), "after {end}: {:?}", io.files().keys().collect::<Vec<_>>());
    }
    // The same directory will do.
    db.backup(copy()).expect("a backup");
    let copied = Database::open_with(copy(), options(), Arc::new(io.copy()), false).expect("it opens");
    assert_eq!(count(&copied), ROWS);
}

#[test]
fn a_backup_to_a_full_disk_leaves_nothing_and_harms_nothing() {
    let (io, db) = in_memory();
    let mut refused = 0;
    for room in (0..).step_by(300_000) {
        io.set_capacity(Some(io.used() + room));
        let outcome = db.backup(copy());
        io.set_capacity(None);
        if outcome.is_ok() {
            break;
        }
        let error = outcome.expect_err("there is no room");
        assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
        assert!(nothing_is_left(&io), "{room} bytes: {:?}", io.files().keys().collect::<Vec<_>>());
        assert_eq!(count(&db), ROWS);
        refused += 1;
    }
    assert!(refused > 3, "{refused}");
    assert_eq!(
        count(&Database::open_with(copy(), options(), Arc::new(io.copy()), false).expect("it opens")),
        ROWS
    );
}

#[test]
fn a_backup_is_restored_and_damage_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let (from, backup, to) = (dir.path().join("db"), dir.path().join("backup"), dir.path().join("restored"));
    let db = Database::open(&from, options()).expect("it opens");
    fill(&db);
    db.backup(&backup).expect("a backup");
    db.close().expect("it closes");
    let go_on = |_| ControlFlow::Continue(());
    let mut told = 0;
    Database::restore(&backup, &to, |progress| {
        told = progress.bytes_done;
        ControlFlow::Continue(())
    })
    .expect("restored");
    assert!(told > 500_000);
    assert!(!backup.join("thermocline.lock").exists(), "the backup stays as it is");
    let restored = Database::open(&to, options()).expect("it opens");
    assert_eq!(count(&restored), ROWS);
    restored.close().expect("it closes");
    let refused = Database::restore(&backup, &to, go_on).expect_err("there is a database");
    assert!(matches!(refused, Error::NotADatabase { .. }), "{refused}");
    let refused = Database::restore(dir.path(), dir.path().join("new"), go_on).expect_err("no database");
    assert!(matches!(refused, Error::NotADatabase { .. }), "{refused}");
    let other = dir.path().join("other");
    let ended = Database::restore(&backup, &other, |_| ControlFlow::Break(())).expect_err("it was ended");
    assert!(ended.to_string().contains("cancelled"), "{ended}");
    // One byte of a record on a page.
    let pages = backup.join("cold").join("store.pages");
    let mut bytes = std::fs::read(&pages).expect("readable");
    let at = bytes.windows(50).position(|window| window == [b'x'; 50]).expect("a record");
    bytes[at] ^= 1;
    std::fs::write(&pages, &bytes).expect("writable");
    let error = Database::restore(&backup, &other, go_on).expect_err("it is damaged");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert!(!other.join("thermocline.db").exists(), "nothing of it opens");
}
