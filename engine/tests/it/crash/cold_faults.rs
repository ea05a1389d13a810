//! Devices that fail, fill up or lie under cold rows, and what is refused while there are some: errors that name the
//! table, rows in memory go on, and what is repaired is whole again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_base::io::{Action, Fault, FaultKind, Io, MemoryIo, OpenMode, RecordingIo};
use thermocline_engine::row::{Column, KeyBuf, Type};
use thermocline_engine::{
    Database, Durability, Error, IndexSchema, Result, Table, Transaction, TransactionOptions,
};

use super::cold::{fill, migrate, texts};
use super::faults::{Rows, sweep_with};
use super::{State, check_places, drive, dump, open, path, recover, settle, tiny, try_drive};

/// Rows with these ids are in the cold store; those from the end on up to [`ROWS`] in memory.
const COLD: i64 = 120;
const ROWS: i64 = 140;

/// A database with cold rows, most of them in pages on the device.
fn with_cold_rows() -> (RecordingIo, Database, Table) {
    let io = RecordingIo::new(&MemoryIo::new());
    let db = open(&io, &tiny(Durability::Group)).expect("a new database");
    let table = texts(&db);
    fill(&db, &table, 0..ROWS);
    for from in (0..COLD).step_by(20) {
        assert_eq!(migrate(&db, &table, from..from + 20), 20);
        while db.cold_steps().store_work() {}
    }
    settle(&db).expect("it cleans");
    db.step_maintenance();
    assert_eq!(db.cold_steps().rows_in_memory(&table), (ROWS - COLD) as usize);
    (io, db, table)
}

fn begin(db: &Database) -> Transaction {
    db.begin(TransactionOptions::new()).expect("a transaction")
}

fn read(db: &Database, tx: &mut Transaction, table: &Table, id: i64) -> Result<Option<()>> {
    let (primary, key) = (table.primary(), KeyBuf::new().i64(id));
    try_drive(db, tx.read(&primary, &key, |_| ())).expect("it is answered")
}

fn is_about(error: &Error, name: &str) -> bool {
    matches!(error, Error::ColdStore { table, .. } if table == name)
}

#[test]
fn broken_reads_fail_one_transaction_and_hot_rows_go_on() {
    let (io, db, table) = with_cold_rows();
    io.inject(Fault { on: Action::Read, skip: 0, times: u64::MAX, kind: FaultKind::Broken });
    let mut failed = 0;
    for id in 0..ROWS {
        let mut tx = begin(&db);
        match read(&db, &mut tx, &table, id) {
            Ok(found) => assert!(found.is_some(), "row {id} is there"),
            Err(error) => {
                assert!(id < COLD && is_about(&error, "t"), "row {id}: {error}");
                failed += 1;
                // The same transaction reads what is in memory, and can be rolled back.
                assert!(read(&db, &mut tx, &table, ROWS - 1).expect("it is in memory").is_some());
                tx.rollback();
            }
        }
    }
    assert!(failed > 50, "only {failed} reads went to the device");
    let set = db.transaction(TransactionOptions::new(), async |tx| {
        let key = KeyBuf::new().i64(ROWS - 1);
        tx.update(&table.primary(), &key, |row| Ok(row.set_str(1, "hot rows go on")?)).await.map(drop)
    });
    drive(&db, set).expect("a hot row is changed");
    io.heal();
    let after = dump(&db).expect("whole again");
    assert_eq!(after.0["t"].rows.len(), usize::try_from(ROWS).expect("a small number"));
}

#[test]
fn short_reads_are_completed() {
    let (io, db, _table) = with_cold_rows();
    let state = dump(&db).expect("whole");
    io.short_reads(true);
    assert!(dump(&db).expect("whole") == state);
}

#[test]
fn a_migration_that_fails_leaves_the_rows_where_they_are() {
    for kind in [FaultKind::Full, FaultKind::Broken] {
        for on in [Action::Write, Action::Sync, Action::Allocate] {
            // A failed sync of a log is final.
            let skips = if on == Action::Sync { 1..3 } else { 0..6 };
            for skip in skips {
                fails_to_migrate(Fault { on, skip, times: 1, kind });
            }
        }
    }
}

fn fails_to_migrate(fault: Fault) {
    let (io, db, table) = with_cold_rows();
    let state = dump(&db).expect("whole");
    io.inject(fault);
    let layout = table.layout();
    let which = |row: &[u8]| layout.i64(row, 0).is_some_and(|id| id < COLD + 10);
    let outcome = try_drive(&db, db.cold_steps().migrate_batch(&table, which)).expect("it is answered");
    if let Err(error) = &outcome {
        assert!(
            matches!(error, Error::ColdStore { .. } | Error::DiskFull { .. } | Error::LogFailed { .. }),
            "{fault:?}: {error}"
        );
        assert!(db.cold_steps().rows_in_memory(&table) >= 10, "{fault:?}: the rows are still in memory");
    }
    let now = dump(&db).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    assert!(now == state, "{fault:?}: {}", state.difference(&now));
    io.heal();
    if fault.kind == FaultKind::Full && fault.on != Action::Sync {
        settle(&db).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        let left = db.cold_steps().rows_in_memory(&table) - 10;
        assert_eq!(migrate(&db, &table, COLD..COLD + 10), left, "{fault:?}: it works again");
        check_places(&db, &state).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    }
    let (found, ..) = recover(&io.crash(io.operations(), 0), &tiny(Durability::Group))
        .unwrap_or_else(|error| panic!("{fault:?}, after a crash: {error}"));
    assert!(found == state, "{fault:?}, after a crash: {}", state.difference(&found));
}

#[test]
fn runs_go_on_beside_failing_devices() {
    for (action, kind, times, stride) in [
        (Action::Write, FaultKind::Broken, 1, 3),
        (Action::Sync, FaultKind::Broken, 1, 3),
        (Action::Write, FaultKind::Full, 1, 3),
        (Action::Write, FaultKind::Full, 1_000_000, 7),
        (Action::Allocate, FaultKind::Full, 1, 1),
        (Action::SyncDir, FaultKind::Broken, 1, 2),
    ] {
        sweep_with(action, kind, times, stride, Rows::Cold).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// A database with cold rows that was closed.
fn closed() -> (MemoryIo, State) {
    let (io, db, table) = with_cold_rows();
    let state = dump(&db).expect("whole");
    drop(table);
    db.close().expect("it closes");
    (io.memory().copy(), state)
}

fn replace(io: &MemoryIo, path: &Path, bytes: &[u8]) {
    let file = io.open(path, OpenMode::Create).expect("it opens");
    file.set_len(0).and_then(|()| file.write_at(0, bytes)).expect("it is written");
}

#[test]
fn a_damaged_page_is_named_and_the_rest_is_served() {
    const PAGE: usize = 4096;
    let (image, state) = closed();
    let file = path().join("cold/store.pages");
    let bytes = image.files().remove(&file).expect("the pages");
    let (mut lost, mut made_again) = (0, 0);
    for page in 1..bytes.len() / PAGE {
        if bytes[page * PAGE..(page + 1) * PAGE].iter().all(|byte| *byte == 0) {
            continue;
        }
        let io = image.copy();
        let mut damaged = bytes.clone();
        damaged[page * PAGE + 1000] ^= 0x10;
        replace(&io, &file, &damaged);
        let report = Database::verify_with(path(), Arc::new(io.copy())).expect("it can be verified");
        let db = open(&io, &tiny(Durability::Group)).expect("the rest is served");
        let table = db.table("t").expect("it is there");
        let mut failed = 0;
        for id in 0..ROWS {
            match read(&db, &mut begin(&db), &table, id) {
                Ok(found) => assert!(found.is_some(), "page {page}, row {id} is there"),
                Err(error) => {
                    assert!(id < COLD && is_about(&error, "t"), "page {page}, row {id}: {error}");
                    let (low, high) = named_ids(&error);
                    assert!((low..=high).contains(&id) && high - low < 100, "page {page}, row {id}: {error}");
                    failed += 1;
                }
            }
        }
        assert!(failed < 100, "page {page}: {failed} rows are behind one page");
        if failed > 0 {
            let named =
                |finding: &String| finding.contains("table \"t\"") && finding.contains("between (id)=(");
            assert!(report.findings.iter().any(named), "page {page}: {report:?}");
            lost += 1;
            continue;
        }
        made_again += usize::from(report.findings.iter().any(|finding| finding.contains("no row is lost")));
        // A page of another index leads to no row that cannot be read by its primary key.
        let is_of_rows = |finding: &String| finding.contains("rows of table");
        if !report.findings.iter().any(is_of_rows) {
            let now = dump(&db).expect("whole");
            assert!(now == state, "page {page}: {}", state.difference(&now));
        }
    }
    assert!(lost > 2 && made_again > 0, "{lost} pages of rows, {made_again} that lead to them");
}

/// Between which keys of the primary index an error says that rows cannot be read.
fn named_ids(error: &Error) -> (i64, i64) {
    let text = error.to_string();
    let ids: Vec<i64> = text
        .split("(id)=(")
        .skip(1)
        .map(|rest| rest.split(')').next().and_then(|id| id.parse().ok()).expect("a number"))
        .collect();
    assert_eq!(ids.len(), 2, "{text}");
    (ids[0], ids[1])
}

fn files_of_the_store(io: &MemoryIo) -> Vec<(PathBuf, Vec<u8>)> {
    io.files().into_iter().filter(|(file, _)| file.starts_with(path().join("cold"))).collect()
}

#[test]
fn the_store_of_another_database_is_refused() {
    let ((image, _), (other, _)) = (closed(), closed());
    for (file, _) in files_of_the_store(&image) {
        image.remove(&file).expect("it is removed");
    }
    for (file, bytes) in files_of_the_store(&other) {
        replace(&image, &file, &bytes);
    }
    let error = open(&image, &tiny(Durability::Group)).expect_err("it is another database's");
    assert!(error.to_string().contains("belongs to database"), "{error}");
    let report = Database::verify_with(path(), Arc::new(image)).expect("it can be verified");
    assert!(report.findings[0].contains("belongs to database"), "{report:?}");
}

#[test]
fn a_newer_store_is_refused() {
    let (image, _) = closed();
    let mut files = 0;
    for (file, mut bytes) in files_of_the_store(&image) {
        if bytes.len() < 12 {
            continue;
        }
        bytes[8..12].copy_from_slice(&9_u32.to_le_bytes());
        let io = image.copy();
        replace(&io, &file, &bytes);
        let error = open(&io, &tiny(Durability::Group)).expect_err("it is newer");
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
        let text = error.to_string();
        assert!(matches!(error, Error::ColdStore { .. }), "{text}");
        assert!(text.contains("newer program") && text.contains(name), "{text}");
        files += 1;
    }
    assert!(files >= 3, "{files} files have a format");
}

#[test]
fn a_missing_store_is_missed() {
    let (image, _) = closed();
    for (file, _) in files_of_the_store(&image) {
        image.remove(&file).expect("it is removed");
    }
    let error = open(&image, &tiny(Durability::Group)).expect_err("rows are in it");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("cold store is missing"), "{error}");
    let report = Database::verify_with(path(), Arc::new(image)).expect("it can be verified");
    assert!(report.findings[0].contains("cold store is missing"), "{report:?}");
}

#[test]
fn cold_rows_are_read_where_nothing_can_be_written() {
    let (image, io) = (closed().0, RecordingIo::new(&closed().0));
    let options = tiny(Durability::Group).with_read_only(true);
    for _ in 0..2 {
        // Two readers at a time do not mind each other; a writer waits for both.
        let (first, second) =
            (open(&io, &options).expect("it opens"), open(&io, &options).expect("it opens"));
        assert_eq!((rows_of(&first, "t"), rows_of(&second, "t")), (ROWS as usize, ROWS as usize));
        assert!(first.create_index("t", IndexSchema::ordered("more", &["id", "v"])).is_err());
    }
    let report = Database::verify_with(path(), Arc::new(io.clone())).expect("it can be verified");
    assert_eq!((report.findings.len(), report.cold_entries > 0), (0, true), "{report:?}");
    assert_eq!(io.operations(), 0, "nothing was written, renamed, removed or synced");
    let readers = [open(&io, &options).expect("it opens"), open(&io, &options).expect("it opens")];
    for reader in readers {
        let refused = open(&io, &tiny(Durability::Group)).expect_err("a reader has it");
        assert!(matches!(refused, Error::Locked { .. }), "{refused}");
        drop(reader);
    }
    drop(open(&io, &tiny(Durability::Group)).expect("they are gone"));
    let writer = open(&image, &tiny(Durability::Group)).expect("it opens");
    let refused = open(&image, &options).expect_err("a writer has it");
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    drop(writer);
    // A copy without the file of the lock, as somebody may make one.
    image.remove(&path().join("thermocline.lock")).expect("it is there");
    let before = image.files();
    drop(open(&image, &options).expect("it opens"));
    assert_eq!(image.files(), before);
}

fn rows_of(db: &Database, name: &str) -> usize {
    dump(db).expect("whole").0[name].rows.len()
}

fn reopened(io: &RecordingIo, db: Database) -> Database {
    db.close().expect("it closes");
    open(io, &tiny(Durability::Group)).expect("it opens")
}

#[test]
fn definitions_of_tables_with_cold_rows() {
    let (io, db, table) = with_cold_rows();
    db.create_index("t", IndexSchema::ordered("more", &["id", "v"]))
        .map(drop)
        .expect("rows have entries in it");
    db.add_column("t", Column::new("new", Type::Int8).nullable()).expect("rows get it when they are read");
    let db = reopened(&io, db);
    assert_eq!(rows_of(&db, "t"), ROWS as usize);
    db.drop_column("t", "new").expect("rows lose it when they are read");
    // An index that goes takes nothing along.
    db.drop_index("t", "by_v").expect("it goes");
    let db = reopened(&io, db);
    assert_eq!(rows_of(&db, "t"), ROWS as usize);
    // Rows of before do not come back, and are in nobody's way. A handle to the table is still there.
    db.truncate_table("t").expect("it is emptied");
    assert_eq!(rows_of(&db, "t"), 0);
    let db = reopened(&io, db);
    assert_eq!(rows_of(&db, "t"), 0);
    fill(&db, &db.table("t").expect("it is there"), 0..10);
    assert_eq!(migrate(&db, &db.table("t").expect("it is there"), 0..5), 5);
    let db = reopened(&io, db);
    assert_eq!(rows_of(&db, "t"), 10);
    settle(&db).expect("it cleans");
    db.drop_table("t").expect("it goes");
    texts(&db);
    let db = reopened(&io, db);
    assert_eq!(rows_of(&db, "t"), 0);
    fill(&db, &db.table("t").expect("it is there"), 0..10);
    assert_eq!(rows_of(&db, "t"), 10);
    drop(table);
}
