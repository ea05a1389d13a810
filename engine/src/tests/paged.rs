//! Rows on the paged side: how they go over, are read and changed there, and come back.

use std::path::Path;

use thermocline_base::ids::RowId;

use crate::hot::budget::{Charge, MemoryKind};
use crate::row::{Column, Type, Value};
use crate::tests::freeze::{check, insert, key, read, schema, set};
use crate::{
    Database, Durability, Error, IndexSchema, Options, PagedStatistics, PagerKind, Table, TableSchema,
    Tiering, TransactionOptions,
};

const ROWS: i64 = 400;

fn options() -> Options {
    Options::default()
        .with_durability(Durability::Sync)
        .with_memory_limit(Some(64 << 20))
        // As few frames as a pager takes.
        .with_paged_bytes(1)
        .with_reads_a_promotion(0)
}

fn open(dir: &Path) -> Database {
    Database::open(dir, options()).expect("the options are fine")
}

/// A table whose rows 0 to 399 are on the paged side.
fn paged(db: &Database) -> Table {
    let table = db.create_table(schema().tiering(Tiering::Paged)).expect("the definition is fine");
    insert(db, &table, 0..ROWS);
    let over = db.page_out("t").expect("there is a paged side");
    assert_eq!((over.rows, over.stayed), (ROWS as u64, 0));
    assert_eq!(side(db).rows, ROWS as u64);
    table
}

fn side(db: &Database) -> PagedStatistics {
    db.statistics().paged.expect("rows have gone over")
}

#[test]
fn rows_on_the_paged_side_are_read_in_every_way() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = paged(&db);
    assert_eq!(side(&db).page_ins, 0);
    check(&db, &table, ROWS, &[]);
    let after = side(&db);
    assert!(after.page_ins > 0 && after.came_back == 0, "{after:?}");
    db.close().unwrap();
}

/// Has so many rows go over. Only a row of one version does, and the maintenance thread may have taken an older one that it has
/// not freed yet: such a row goes later.
fn go_over(db: &Database, rows: usize) {
    let mut gone = 0;
    for _ in 0..60_000 {
        db.maintenance_steps().prune();
        let over = db.page_out("t").expect("there is room");
        gone += over.rows as usize;
        assert!(gone <= rows, "{over:?}");
        if gone == rows {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{gone} of {rows} rows went over");
}

#[test]
fn rows_on_the_paged_side_are_changed_and_go_over_again() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = paged(&db);
    let mut changed = Vec::new();
    for round in 0..12 {
        let of_round = |id: i64| id % 12 == round;
        for id in (0..ROWS).filter(|id| of_round(*id)) {
            set(&db, &table, id, id + 10_000);
            changed.push((id, Some(id + 10_000)));
        }
        go_over(&db, (0..ROWS).filter(|id| of_round(*id)).count());
        check(&db, &table, ROWS, &changed);
    }
    // Blocks of before are taken in: dead rows do not pile up.
    assert!(side(&db).rows < 3 * ROWS as u64, "{:?}", side(&db));
    db.close().unwrap();
}

#[test]
fn what_is_rolled_back_on_the_paged_side_is_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = paged(&db);
    let undone: Result<(), Error> = db.run(TransactionOptions::new(), async |tx| {
        for id in 0..ROWS {
            match id % 3 {
                0 => _ = tx.delete(&table.primary(), &key(id)).await?,
                1 => {
                    let (index, key) = (table.primary(), key(id));
                    let updated =
                        tx.update(&index, &key, |row| Ok(row.set_value(2, &Value::Int8(-id))?)).await?;
                    assert!(updated.is_some());
                }
                _ => {
                    let twice = tx.insert_values(&table, &crate::tests::freeze::row(id, 0)).await;
                    assert_eq!(twice.expect_err("the key is taken").sqlstate(), "23505");
                }
            }
        }
        Err(Error::Refused("enough".to_owned()))
    });
    assert_eq!(undone.expect_err("it was refused").to_string(), "enough");
    check(&db, &table, ROWS, &[]);
    db.close().unwrap();
}

#[test]
fn rows_on_the_paged_side_outlive_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let changed = [(7, Some(1)), (9, None)];
    {
        let db = open(dir.path());
        let table = paged(&db);
        db.checkpoint().expect("it writes");
        set(&db, &table, 7, 1);
        db.run(TransactionOptions::new(), async |tx| tx.delete(&table.primary(), &key(9)).await).unwrap();
        check(&db, &table, ROWS, &changed);
        // As if it had been killed.
        std::mem::forget(db.page_out("t"));
    }
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().filter(is_paged_file).count(),
        0,
        "the file has no name"
    );
    let db = open(dir.path());
    let table = db.table("t").unwrap();
    check(&db, &table, ROWS, &changed);
    let over = db.page_out("t").expect("there is room");
    assert!(over.rows > 0);
    check(&db, &table, ROWS, &changed);
    db.checkpoint().expect("it writes");
    db.close().unwrap();
    let db = open(dir.path());
    check(&db, &db.table("t").unwrap(), ROWS, &changed);
    db.close().unwrap();
    let checked = Database::verify(dir.path()).expect("it can be read");
    assert!(checked.findings.is_empty(), "{checked:?}");
}

fn is_paged_file(entry: &std::io::Result<std::fs::DirEntry>) -> bool {
    entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("paged"))
}

#[test]
fn readers_bring_rows_back() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options().with_reads_a_promotion(1)).unwrap();
    let table = paged(&db);
    for _ in 0..2 {
        for id in 0..10 {
            assert!(read(&db, &table, id).is_some());
        }
    }
    assert_eq!(side(&db).came_back, 10, "each of them once");
    check(&db, &table, ROWS, &[]);
    db.close().unwrap();
}

/// The pager `os`, as far as the directory is on a disk.
#[test]
fn the_system_may_page() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options().with_pager(PagerKind::Os)).unwrap();
    let table = db.create_table(schema().tiering(Tiering::Paged)).unwrap();
    insert(&db, &table, 0..ROWS);
    match db.page_out("t") {
        Ok(over) => assert_eq!((over.rows, side(&db).pager), (ROWS as u64, "os")),
        Err(error) => {
            assert!(error.to_string().contains("tmpfs") || error.to_string().contains("map"), "{error}");
        }
    }
    check(&db, &table, ROWS, &[]);
    db.close().unwrap();
}

/// What is dropped gives its pages back.
#[test]
fn pages_of_a_dropped_table_go() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    drop(paged(&db));
    assert!(side(&db).page_bytes > 0);
    db.drop_table("t").unwrap();
    let mut steps = db.maintenance_steps();
    while side(&db).page_bytes > 0 {
        steps.step();
        std::thread::yield_now();
    }
    db.close().unwrap();
}

#[test]
fn long_rows_go_over() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let wide = TableSchema::new("wide")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("body", Type::Text))
        .primary_key(IndexSchema::hash("wide_key", &["id"]))
        .tiering(Tiering::Paged);
    let table = db.create_table(wide).unwrap();
    // The last one takes more pages than the pager has frames.
    let body = |id: i64| format!("{id} ").repeat(if id == 300 { 100_000 } else { (id as usize * 37) % 4000 });
    db.run(TransactionOptions::new(), async |tx| {
        for id in 0..=300 {
            tx.insert_values(&table, &[Value::Int8(id), Value::from(body(id).as_str())]).await?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(db.page_out("wide").unwrap().rows, 301);
    for id in (0..=300).rev() {
        assert_eq!(read(&db, &table, id), Some(vec![Value::Int8(id), Value::from(body(id).as_str())]));
    }
    assert!(side(&db).past_reads > 64);
    db.close().unwrap();
}

#[test]
fn a_database_in_memory_has_no_paged_side() {
    let db = Database::open_in_memory(Options::default()).unwrap();
    let error = db.create_table(schema().tiering(Tiering::Paged)).expect_err("there is no directory");
    assert_eq!(error.sqlstate(), "22023");
    assert!(error.to_string().contains("paged_dir"), "{error}");
    let table = db.create_table(schema()).unwrap();
    insert(&db, &table, 0..1);
    assert!(db.page_out("t").expect_err("it is auto").to_string().contains("not paged"));
    assert!(db.alter_tiering("t", Tiering::Paged).is_err());
}

/// A table of twice the limit is filled, read and changed under it.
#[test]
fn a_table_outgrows_memory() {
    const MANY: i64 = 120_000;
    let dir = tempfile::tempdir().unwrap();
    let limit = 32 << 20;
    let options = || Options::default().with_durability(Durability::Async).with_memory_limit(Some(limit));
    let db = Database::open(dir.path(), options()).unwrap();
    let wide = TableSchema::new("wide")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("body", Type::Text))
        .primary_key(IndexSchema::hash("wide_key", &["id"]))
        .tiering(Tiering::Paged);
    let table = db.create_table(wide).unwrap();
    let body = |id: i64| format!("{id:0500}");
    for first in (0..MANY).step_by(500) {
        db.run(TransactionOptions::new(), async |tx| {
            for id in first..first + 500 {
                tx.insert_values(&table, &[Value::Int8(id), Value::from(body(id).as_str())]).await?;
            }
            Ok(())
        })
        .unwrap();
    }
    let look = |db: &Database| {
        let table = db.table("wide").unwrap();
        for id in (0..MANY).step_by(97) {
            assert_eq!(read(db, &table, id), Some(vec![Value::Int8(id), Value::from(body(id).as_str())]));
        }
        let statistics = db.statistics();
        assert!(statistics.memory.total() <= limit, "{:?}", statistics.memory);
        assert!(side(db).rows > MANY as u64 / 3, "{:?}", side(db));
        assert_eq!(statistics.cold.migrated_rows, 0, "nothing went to the cold store");
    };
    look(&db);
    db.checkpoint().unwrap();
    db.close().unwrap();
    // Opening keeps to the limit, too.
    let db = Database::open(dir.path(), options()).unwrap();
    look(&db);
    db.close().unwrap();
}

#[test]
fn rows_of_a_chunk_that_is_being_filled_go_over() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table(schema().tiering(Tiering::Paged)).expect("the definition is fine");
    // The first chunk has 512 slots, and the second one 4096.
    insert(&db, &table, 0..2000);
    let over = db.page_out("t").expect("there is a paged side");
    assert!((1900..=2000).contains(&over.rows), "{over:?}");
    // It is still that chunk which rows come into.
    insert(&db, &table, 2000..2500);
    check(&db, &table, 2500, &[]);
    let over = db.page_out("t").expect("there is a paged side");
    assert!(over.rows >= 400, "{over:?}");
    set(&db, &table, 2499, 1);
    set(&db, &table, 700, 2);
    check(&db, &table, 2500, &[(2499, Some(1)), (700, Some(2))]);
    db.close().unwrap();
}

/// A hand that comes round under pressure lists rows that it has listed before.
#[test]
fn rows_that_are_listed_twice_go_over_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let wide = TableSchema::new("wide")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("body", Type::Text))
        .primary_key(IndexSchema::hash("wide_key", &["id"]))
        .tiering(Tiering::Paged);
    let table = db.create_table(wide).unwrap();
    let row = |id: i64| vec![Value::Int8(id), Value::from(&*format!("{id:01000}"))];
    // All of the first chunk, three rows a page.
    db.run(TransactionOptions::new(), async |tx| {
        for id in 0..512 {
            tx.insert_values(&table, &row(id)).await?;
        }
        Ok(())
    })
    .unwrap();
    let rows: Vec<RowId> = (0..512).flat_map(|slot| [RowId::new(0, slot); 3]).collect();
    let over = crate::ops::page::page_rows(db.inner(), &table.entry, &rows).expect("there is a paged side");
    assert_eq!((over.rows, over.stayed), (512, 0));
    for id in 0..512 {
        assert_eq!(read(&db, &table, id), Some(row(id)));
    }
    db.close().unwrap();
}

/// Rows go over when nothing is free, so what the paged side takes has to be taken before.
#[test]
fn frames_count_as_soon_as_a_table_is_paged() {
    let dir = tempfile::tempdir().unwrap();
    let limit = 64_u64 << 20;
    let options = Options::default().with_durability(Durability::Async).with_memory_limit(Some(limit));
    let db = Database::open(dir.path(), options).unwrap();
    let counted = || {
        crate::ops::memory::note_memory(db.inner());
        let by_kind: u64 = MemoryKind::ALL.iter().map(|kind| db.inner().budget.used_by(*kind)).sum();
        let found = db.statistics().memory;
        assert!(found.total().abs_diff(by_kind) < limit / 16, "{by_kind} are used: {found:?}");
        db.inner().budget.used_by(MemoryKind::Paged)
    };
    assert_eq!(counted(), 0);
    for name in ["t", "u"] {
        let table =
            db.create_table(TableSchema { name: name.to_owned(), ..schema() }.tiering(Tiering::Paged));
        insert(&db, &table.expect("there is room"), 0..ROWS);
    }
    assert_eq!(counted(), limit / 32);
    let mut rest = Charge::none(&db.inner().budget, MemoryKind::Other);
    while rest.add(1 << 12).is_ok() {}
    // The governor, which works beside this, may pass the limit by the reserve for a moment.
    let most = limit + db.inner().budget.reserve_bytes();
    for name in ["t", "u"] {
        assert_eq!(db.page_out(name).expect("what frees memory has room").rows, ROWS as u64);
        let (paged, used) = (counted(), db.inner().budget.used());
        assert!(paged < limit / 4 && used <= most, "{paged} bytes of pages, {used} in all");
    }
    drop(rest);
    db.close().unwrap();
}
