//! Changes of definitions where memory is short, and beside transactions that use other tables or the same one.

use std::time::Duration;

use thermocline_base::depth;
use thermocline_base::multiplex::block_on;
use thermocline_base::sync::{AtomicBool, Ordering};

use crate::hot::budget::MemoryKind;
use crate::row::{Column, KeyBuf, Type, Value};
use crate::{
    ColdStoreKind, Database, Durability, Error, IndexSchema, Options, TableSchema, TransactionOptions,
};

const MIB: u64 = 1 << 20;

fn options(limit: u64) -> Options {
    Options::default().with_memory_limit(Some(limit)).with_durability(Durability::Group)
}

fn open(dir: &std::path::Path, limit: u64) -> Database {
    Database::open(dir, options(limit)).expect("it opens")
}

fn schema(name: &str) -> TableSchema {
    TableSchema::new(name)
        .column(Column::new("id", Type::Int8))
        .column(Column::new("text", Type::Text))
        .primary_key(IndexSchema::hash("key", &["id"]))
}

fn fill(db: &Database, name: &str, rows: i64) {
    let table = db.table(name).expect("it is there");
    let text = "x".repeat(250);
    for first in (0..rows).step_by(500) {
        db.run(TransactionOptions::new(), async |tx| {
            for id in first..rows.min(first + 500) {
                tx.insert_values(&table, &[Value::Int8(id), Value::from(text.as_str())]).await?;
            }
            Ok(())
        })
        .expect("there is room");
    }
}

/// Takes all memory that anybody may have; how much it was.
fn take_all(db: &Database) -> u64 {
    let budget = &db.inner().budget;
    let mut taken = 0;
    for piece in [MIB, 64 << 10, 1 << 10] {
        while budget.charge(MemoryKind::Other, piece).is_ok() {
            taken += piece;
        }
    }
    taken
}

#[test]
fn changes_of_definitions_wait_for_room() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(dir.path(), 64 * MIB);
    db.create_table(schema("t")).expect("a table");
    fill(&db, "t", 100_000);
    let waits = |db: &Database| db.statistics().cold.memory_waits;
    let before = waits(&db);
    let mut taken = take_all(&db);
    let table = db.create_table(schema("new")).expect("rows leave memory for it");
    taken += take_all(&db);
    let index =
        db.create_index("new", IndexSchema::ordered("by_text", &["text"])).expect("and for its index");
    taken += take_all(&db);
    db.truncate_table("new").expect("and for an empty one");
    assert!(waits(&db) > before, "nobody had to wait");
    db.inner().budget.release(MemoryKind::Other, taken);
    assert_eq!((table.name(), index.name()), ("new".to_owned(), "by_text".to_owned()));
    drop((table, index));
    db.close().expect("it closes");
    let report = Database::verify(dir.path()).expect("it can be verified");
    assert_eq!((report.tables, report.findings), (2, Vec::<String>::new()));
}

#[test]
fn a_change_for_which_there_will_be_no_room_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(dir.path(), 64 * MIB);
    db.create_table(schema("t")).expect("a table");
    let taken = take_all(&db);
    let refused = [
        db.create_table(schema("new")).map(drop),
        db.create_index("t", IndexSchema::ordered("by_text", &["text"])).map(drop),
        db.truncate_table("t"),
    ];
    for outcome in refused {
        assert!(matches!(outcome, Err(Error::OutOfMemory(_))), "{outcome:?}");
    }
    assert_eq!(db.table_names(), ["t"]);
    // What gives memory back needs none.
    db.drop_table("t").expect("it goes");
    db.inner().budget.release(MemoryKind::Other, taken);
    db.create_table(schema("new")).expect("there is room again");
    db.close().expect("it closes");
    let report = Database::verify(dir.path()).expect("it can be verified");
    assert_eq!((report.tables, report.findings), (1, Vec::<String>::new()));
}

/// Does something, while another thread sees to it that memory stays within the limit.
fn within_the_limit<T>(db: &Database, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    let limit = db.statistics().memory_limit.expect("there is a limit");
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = db.statistics().memory;
            while !done.load(Ordering::SeqCst) {
                let now = db.statistics().memory;
                if now.total() > most.total() {
                    most = now;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            most
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::SeqCst);
        let most = watcher.join().expect("it watches");
        // What the store takes for moments is told afterwards, the later the busier the machine is.
        let percent = depth::either(120, 105);
        assert!(most.total() <= limit / 100 * percent, "{} of {limit} bytes: {most:?}", most.total());
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
#[cfg_attr(feature = "model", ignore = "chunks have eight slots in that build, and take more memory")]
fn tables_of_several_times_the_limit_get_indexes() {
    const ROWS: i64 = 100_000;
    let dir = tempfile::tempdir().expect("a directory");
    let options = options(28 * MIB)
        .with_part_bytes(64 << 10)
        .with_log_buffer_bytes(1 << 20)
        .with_log_segment_bytes(1 << 20);
    let db = Database::open(dir.path(), options).expect("it opens");
    let columns = schema("t").column(Column::new("other", Type::Int8));
    let table = db.create_table(columns).expect("a table");
    let text = "x".repeat(600);
    for first in (0..ROWS).step_by(500) {
        db.run(TransactionOptions::new(), async |tx| {
            for id in first..first + 500 {
                let row = [Value::Int8(id), Value::from(text.as_str()), Value::Int8(id * 7919 % ROWS)];
                tx.insert_values(&table, &row).await?;
            }
            Ok(())
        })
        .expect("there is room");
    }
    let cold = db.statistics().cold;
    assert!(cold.bytes_cold > 3 * 28 * MIB / 2, "{cold:?}");
    let index = |name: &str| IndexSchema::ordered(name, &["other"]);
    let late = within_the_limit(&db, || db.create_index("t", index("late").unique())).expect("it is filled");
    let count = |other: i64| {
        let mut found = Vec::new();
        db.run(TransactionOptions::new().read_only(), async |tx| {
            tx.read_all(&late, &KeyBuf::new().i64(other), |row| {
                found.push(table.layout().i64(row, 0).expect("a number"));
                std::ops::ControlFlow::Continue(())
            })
            .await
        })
        .expect("it can be read");
        found
    };
    for id in (0..ROWS).step_by(997) {
        assert_eq!(count(id * 7919 % ROWS), [id]);
    }
    // Cold rows get a column when they are read, those in memory at once; with both, the limit is kept.
    let more = Column::new("more", Type::Text).default("more");
    let patiently = |change: &dyn Fn() -> Result<(), Error>| {
        // On a machine that is busy with other things it may take longer than anybody waits by himself.
        let mut tries = 0;
        while let Err(error) = within_the_limit(&db, change) {
            tries += 1;
            assert!(matches!(error, Error::OutOfMemory(_)) && tries < 10, "{error}");
        }
    };
    patiently(&|| db.add_column("t", more.clone()));
    patiently(&|| db.drop_column("t", "text"));
    for id in (0..ROWS).step_by(997) {
        let (layout, key) = (table.layout(), KeyBuf::new().i64(id));
        let row = db.run(TransactionOptions::new().read_only(), async |tx| {
            tx.read(&table.primary(), &key, |row| layout.decode(row).expect("a row")).await
        });
        let expected = [Value::Int8(id), Value::Int8(id * 7919 % ROWS), Value::from("more")];
        assert_eq!(row.expect("it can be read").as_deref(), Some(&expected[..]));
        assert_eq!(count(id * 7919 % ROWS), [id]);
    }
    // A twin among so many rows is found, and leaves nothing.
    let twin = [Value::Int8(ROWS), Value::Int8(ROWS), Value::from("x")];
    db.drop_index("t", "late").expect("it is there");
    for id in [ROWS, ROWS + 1] {
        let mut row = twin.clone();
        row[0] = Value::Int8(id);
        db.run(TransactionOptions::new(), async |tx| tx.insert_values(&table, &row).await.map(drop))
            .expect("it is new");
    }
    db.cold_steps()
        .migrate(&table, |row| table.layout().i64(row, 0).is_some_and(|id| id >= ROWS), 1)
        .expect("they move");
    let refused = within_the_limit(&db, || db.create_index("t", index("again").unique()));
    assert!(matches!(refused, Err(Error::DuplicateKey { .. })), "{refused:?}");
    drop((table, late, refused));
    db.close().expect("it closes");
    let report = Database::verify(dir.path()).expect("it can be verified");
    assert_eq!(report.findings, Vec::<String>::new());
}

/// What a round of cleaning removes, an index would get entries of.
#[test]
fn an_index_waits_for_the_round_of_cleaning_that_is_under_way() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), options(64 * MIB).with_definition_wait(Duration::from_millis(50)))
        .expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    fill(&db, "t", 100);
    assert_eq!(db.cold_steps().migrate(&table, |_| true, 30).expect("they move"), 100);
    let cold = db.inner().cold.get().expect("rows are there");
    let create = || db.create_index("t", IndexSchema::ordered("by_text", &["text"])).map(drop);
    let round = loop {
        match cold.begin_cleaning() {
            Some(round) => break round,
            None => std::thread::yield_now(),
        }
    };
    for _ in 0..2 {
        let refused = create();
        assert!(matches!(refused, Err(Error::SchemaChangeTimeout { .. })), "{refused:?}");
        assert!(cold.begin_cleaning().is_none(), "the round is still under way");
    }
    drop(round);
    create().expect("nobody cleans");
}

#[test]
fn a_direct_store_takes_columns_but_no_index() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut direct = options(64 * MIB);
    direct.cold_store = ColdStoreKind::Direct;
    let db = Database::open(dir.path(), direct.clone()).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    fill(&db, "t", 100);
    assert_eq!(db.cold_steps().migrate(&table, |_| true, 30).expect("they move"), 100);
    let refused = db.create_index("t", IndexSchema::ordered("by_text", &["text"])).expect_err("no room");
    assert!(refused.to_string().contains("cold_store = direct"), "{refused}");
    assert!(table.index("by_text").is_err());
    db.add_column("t", Column::new("more", Type::Int8).default(7_i64))
        .expect("rows get it when they are read");
    let read = |db: &Database, id: i64| {
        let table = db.table("t").expect("it is there");
        let (layout, primary) = (table.layout(), table.primary());
        let row = db.run(TransactionOptions::new().read_only(), async |tx| {
            tx.read(&primary, &KeyBuf::new().i64(id), |row| layout.decode(row).expect("a row")).await
        });
        row.expect("it can be read").expect("it is there").pop()
    };
    // Records of both layouts, and a row that has come back.
    db.run(TransactionOptions::new(), async |tx| {
        let row = [Value::Int8(100), Value::from("x"), Value::Int8(8)];
        tx.insert_values(&table, &row).await.map(drop)
    })
    .expect("it is new");
    assert_eq!(db.cold_steps().migrate(&table, |_| true, 30).expect("it moves"), 1);
    assert!(db.cold_steps().promote(&table, &KeyBuf::new().i64(3)).expect("nothing fails"));
    drop(table);
    db.close().expect("it closes");
    let db = Database::open(dir.path(), direct).expect("it opens again");
    for id in 0..=100 {
        assert_eq!(read(&db, id), Some(Value::Int8(if id == 100 { 8 } else { 7 })), "row {id}");
    }
}

/// A table with as many rows in memory as in the cold store, over a device that a crash can be taken of.
fn half_cold(rows: i64) -> (thermocline_base::io::MemoryIo, Options, Database) {
    let io = thermocline_base::io::MemoryIo::new();
    let options = Options::default()
        .with_durability(Durability::Async)
        .with_log_buffer_bytes(8 << 20)
        .with_log_segment_bytes(1 << 20);
    let db = over(&io, &options);
    let table = db.create_table(schema("t")).expect("a table");
    fill(&db, "t", rows);
    let layout = table.layout();
    let is_even = |row: &[u8]| layout.i64(row, 0).expect("not null") % 2 == 0;
    assert_eq!(db.cold_steps().migrate(&table, is_even, 500).expect("they move") as i64, rows / 2);
    (io, options, db)
}

fn over(io: &thermocline_base::io::MemoryIo, options: &Options) -> Database {
    let io = std::sync::Arc::new(io.clone());
    Database::open_with(std::path::Path::new("/db"), options.clone(), io, true).expect("it opens")
}

/// A change that is ended at any of the calls leaves nothing behind, whether the process goes on or crashes; and the last call
/// says that all rows were gone over.
#[test]
fn changes_that_are_cancelled_leave_nothing_behind() {
    use std::ops::ControlFlow;

    const ROWS: i64 = 4_000;

    type Told<'a> = &'a mut dyn FnMut(crate::DefinitionProgress) -> ControlFlow<()>;
    type Changing = fn(&Database, Told<'_>) -> crate::Result<()>;
    let changes: [Changing; 3] = [
        |db, told| {
            let index = IndexSchema::ordered("by_text", &["text", "id"]).unique();
            db.create_index_with("t", index, told).map(drop)
        },
        |db, told| db.add_column_with("t", Column::new("more", Type::Int4).default(1), told),
        |db, told| db.drop_column_with("t", "text", told),
    ];
    let (io, options, db) = half_cold(ROWS);
    db.flush().expect("there is space");
    let (io, schema) = (io.copy(), db.table("t").expect("a table").schema());
    for (number, change) in changes.iter().enumerate() {
        let mut calls = Vec::new();
        let db = over(&io.copy(), &options);
        change(&db, &mut |progress| {
            calls.push(progress);
            ControlFlow::Continue(())
        })
        .expect("nobody ends it");
        let last = calls.last().expect("somebody was told");
        assert!(calls.len() > 4 && last.rows_done == last.rows, "change {number}: {calls:?}");
        assert!(calls.is_sorted_by_key(|progress| progress.rows_done), "change {number}: {calls:?}");
        assert_ne!(db.table("t").expect("a table").schema(), schema);
        for ending in (0..calls.len()).step_by(depth::either(3, 1)) {
            let io = io.copy();
            let db = over(&io, &options);
            let mut left = ending;
            let used = || {
                use MemoryKind::{Hash, Other, Slots, Tree, Versions};
                db.inner().epochs.collect();
                [Versions, Slots, Hash, Tree, Other].map(|kind| db.inner().budget.used_by(kind))
            };
            let before = used();
            let error = change(&db, &mut |_| {
                left = left.wrapping_sub(1);
                if left == usize::MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let error = error.expect_err("it was ended");
            assert!(error.to_string().contains("was cancelled; nothing of it is left"), "{error}");
            assert_eq!(used(), before, "change {number} ended at call {ending} has left something in memory");
            let crashed = over(&io.copy(), &options);
            for db in [db, crashed] {
                let table = db.table("t").expect("a table");
                assert_eq!(table.schema(), schema, "change {number} ended at call {ending}");
                db.run(TransactionOptions::new(), async |tx| {
                    for id in [2, 3] {
                        let (index, key) = (table.primary(), KeyBuf::new().i64(id));
                        let changed = tx.update(&index, &key, |row| Ok(row.set_str(1, "changed")?)).await?;
                        assert_eq!(changed, Some(()));
                    }
                    Ok(())
                })
                .expect("the table is free");
                change(&db, &mut |_| ControlFlow::Continue(())).expect("it can be made again");
                if let Ok(by) = table.index("by_text") {
                    let mut rows = 0;
                    let scan = async |tx: &mut crate::Transaction| {
                        let (all, forward) = (crate::KeyRange::all(), crate::Direction::Forward);
                        tx.scan(&by, all, forward, |_| {
                            rows += 1;
                            ControlFlow::Continue(())
                        })
                        .await
                    };
                    db.run(TransactionOptions::new().read_only(), scan).expect("a scan");
                    assert_eq!(rows, ROWS, "change {number} ended at call {ending} and made again");
                }
            }
        }
    }
}

/// While the cold rows are looked through, which takes long, users of the table do not wait.
#[test]
fn the_table_is_free_while_a_column_looks_for_its_longest_cold_row() {
    use std::ops::ControlFlow;
    const ROWS: i64 = 8_000;

    let (_, _, db) = half_cold(ROWS);
    let entry = db.table("t").expect("a table").entry;
    let mut held = Vec::new();
    let column = Column::new("more", Type::Int8).default(7_i64);
    db.add_column_with("t", column, |_| {
        held.push(entry.is_held());
        ControlFlow::Continue(())
    })
    .expect("nobody ends it");
    let free = held.iter().take_while(|held| !**held).count();
    assert!(free >= ROWS as usize / 2 / 1024 && held[free..].iter().all(|held| *held), "{held:?}");
    // A row that would get too long is found all the same, whether it is looked at before or moves meanwhile.
    let table = db.table("t").expect("a table");
    let long = "x".repeat(crate::row::MAX_ROW_BYTES - 100);
    let insert = |id: i64| {
        let row = [Value::Int8(id), Value::from(long.as_str()), Value::Int8(1)];
        db.run(TransactionOptions::new(), async |tx| tx.insert_values(&table, &row).await).expect("it fits");
        assert_eq!(db.cold_steps().migrate(&table, |row| row.len() > 1 << 16, 1).expect("it moves"), 1);
    };
    let add = |name: &str, told: &mut dyn FnMut()| {
        let column = Column::new(name, Type::Text).default("y".repeat(200));
        db.add_column_with("t", column, |_| {
            told();
            ControlFlow::Continue(())
        })
    };
    let mut has_moved = false;
    let error = add("later", &mut || {
        if !std::mem::replace(&mut has_moved, true) {
            insert(ROWS);
        }
    });
    assert!(matches!(error, Err(Error::Row { .. })), "{error:?}");
    let error = add("now", &mut || ());
    assert!(matches!(error, Err(Error::Row { .. })), "{error:?}");
    db.run(TransactionOptions::new(), async |tx| tx.delete(&table.primary(), &KeyBuf::new().i64(ROWS)).await)
        .expect("it is there");
}

/// A record with a right checksum that is no row, in each kind of store that is on disk.
#[test]
fn a_record_that_is_no_row_is_found_in_each_store() {
    use crate::cold::store::primary_of;
    use thermocline_pool::store::{Batch, BatchId};

    for kind in [ColdStoreKind::Pages, ColdStoreKind::Direct] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut options = options(64 * MIB);
        options.cold_store = kind;
        let db = Database::open(dir.path(), options).expect("it opens");
        let table = db.create_table(schema("t")).expect("a table");
        fill(&db, "t", 20);
        assert_eq!(db.cold_steps().migrate(&table, |_| true, 30).expect("they move"), 20);
        let cold = db.inner().cold.get().expect("rows have left memory");
        let mut batch = Batch::confirmed(BatchId(db.inner().registry.clock.tick().0));
        let key = KeyBuf::new().i64(77);
        batch.put(primary_of(table.entry.id), &key, b"this is no row").expect("it fits");
        cold.finish(cold.store.write(batch)).expect("it is written");
        db.close().expect("it closes");
        let found = Database::verify(dir.path()).expect("a database");
        assert_eq!(found.findings.len(), 1, "{kind}: {:?}", found.findings);
        assert!(found.findings[0].contains("(id)=(77)"), "{kind}: {:?}", found.findings);
    }
}

/// `check` looks at rows, not at checksums alone: an image with a right checksum whose row is none is a finding.
#[test]
fn a_row_that_is_none_is_found_in_memory_and_in_the_cold_store() {
    use crate::ops::verify_rows::RowChecks;
    use crate::schema::decode_catalog;
    use thermocline_pool::store::{BatchId, IndexId as StoreIndex};

    let dir = tempfile::tempdir().expect("a directory");
    let options = Options::default().with_durability(crate::Durability::Async);
    let db = Database::open(dir.path(), options.clone()).expect("it opens");
    let schema = TableSchema::new("t")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("text", Type::Text))
        .primary_key(IndexSchema::hash("t_key", &["id"]));
    let table = db.create_table(schema).expect("a table");
    let insert = |id: i64, text: &str| {
        let row = [Value::Int8(id), Value::from(text)];
        db.run(TransactionOptions::new(), async |tx| tx.insert_values(&table, &row).await).expect("a row");
    };
    insert(1, "first");
    insert(2, "second");
    db.cold_steps().migrate(&table, |_| true, 10).expect("they move");
    db.add_column("t", Column::new("n", Type::Int4).default(3)).expect("a column");
    let row = [Value::Int8(3), Value::from("third"), Value::Null];
    db.run(TransactionOptions::new(), async |tx| tx.insert_values(&table, &row).await).expect("a row");
    db.cold_steps().migrate(&table, |_| true, 10).expect("it moves");
    let row = [Value::Int8(4), Value::from("fourth"), Value::Null];
    db.run(TransactionOptions::new(), async |tx| tx.insert_values(&table, &row).await).expect("a row");
    let catalog = db.inner().catalog.encode(&db.inner().epochs.pin());
    let layout = table.layout();
    let id = table.entry.id;
    db.close().expect("it closes");
    let found = Database::verify(dir.path()).expect("a database");
    assert_eq!(found.findings, Vec::<String>::new(), "rows of each layout are rows");

    let (tables, ..) = decode_catalog(&catalog).expect("a catalog");
    let mut row = Vec::new();
    layout.encode(&[Value::Int8(1), Value::from("text"), Value::Int4(-1)], &mut row).expect("it fits");
    let mut checks = RowChecks::new(&tables);
    checks.row(id, 2, &row, || "here".to_owned());
    let primary = StoreIndex { table: id.0, index: 0 };
    let key = crate::row::KeyBuf::new().i64(1);
    checks.record(primary, &key, BatchId(u64::MAX >> 1), &row);
    assert_eq!(checks.finish(), Vec::<String>::new());
    // The first batch had other columns, and a text has to be one.
    let mut checks = RowChecks::new(&tables);
    checks.record(primary, &key, BatchId(1), &row);
    *row.last_mut().expect("a text") = 0xff;
    checks.row(id, 2, &row, || "here".to_owned());
    let findings = checks.finish();
    assert!(
        findings.len() == 2 && findings[0].contains("(id)=(1)") && findings[1].contains("here"),
        "{findings:?}"
    );
}

/// A reader of one table, which is open for as long as `work` takes.
fn beside_a_reader<T>(db: &Database, name: &str, work: impl FnOnce() -> T) -> T {
    let table = db.table(name).expect("it is there");
    let mut reader = db.begin(TransactionOptions::new().read_only()).expect("it begins");
    let found = block_on(reader.read(&table.primary(), &KeyBuf::new().i64(1), <[u8]>::to_vec));
    assert!(found.expect("it can be read").is_some());
    let done = work();
    block_on(reader.commit()).expect("nobody competes");
    done
}

/// 500 tables, one after the other, beside a reader of another one.
fn tables_come_and_go(patience: Duration) -> Result<(), Error> {
    let db = Database::open_in_memory(Options::default().with_definition_wait(patience))?;
    db.create_table(schema("t"))?;
    fill(&db, "t", 10);
    beside_a_reader(&db, "t", || {
        for _ in 0..500 {
            let table = db.create_table(schema("other"))?;
            db.run(TransactionOptions::new(), async |tx| {
                tx.insert_values(&table, &[Value::Int8(1), Value::from("x")]).await
            })?;
            db.drop_table("other")?;
        }
        Ok::<_, Error>(())
    })?;
    assert_eq!(db.table_names(), ["t"]);
    Ok(())
}

#[test]
fn five_hundred_tables_come_and_go_beside_a_reader_of_another() {
    tables_come_and_go(Duration::from_secs(60)).expect("the reader is in nobody's way");
}

#[cfg(feature = "model")]
#[test]
fn a_mark_that_stands_for_other_tables_is_caught() {
    let _off = crate::mutation::switch_off(crate::mutation::Rule::MarksAreExact);
    let refused = tables_come_and_go(Duration::from_millis(10));
    assert!(matches!(refused, Err(Error::SchemaChangeTimeout { .. })), "{refused:?}");
}

#[test]
fn who_waits_for_too_long_is_told_for_whom() {
    let db = Database::open_in_memory(Options::default().with_definition_wait(Duration::from_millis(10)))
        .expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    fill(&db, "t", 10);
    let before = table.definition();
    let error = beside_a_reader(&db, "t", || db.drop_table("t").expect_err("a reader uses it"));
    let Error::SchemaChangeTimeout { in_the_way, .. } = &error else { panic!("{error}") };
    assert!(matches!(&in_the_way[..], [one] if one.contains("has written nothing, at rest")), "{error}");
    assert!(error.to_string().contains(&in_the_way[0]), "{error}");
    assert_eq!(table.definition(), before);
    db.rename_table("t", "u").expect("nobody uses it any more");
    assert_ne!(table.definition(), before);
}

/// A transaction's own limit takes the place of the database's, for changers and for users that wait for them. What was refused leaves
/// nothing held, and may be done when nothing is in the way any more.
#[test]
fn waits_for_tables_and_names_may_have_a_limit() {
    let db = Database::open_in_memory(Options::default().with_definition_wait(Duration::from_secs(3600)))
        .expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    fill(&db, "t", 10);
    let limited = || {
        let mut tx = db.begin(TransactionOptions::new()).expect("there is room");
        tx.limit_waits(Some(Duration::from_millis(1))).expect("it is open");
        tx
    };
    let is_late = |refused: Result<(), Error>| {
        assert!(
            matches!(&refused, Err(error @ Error::LockTimeout { .. }) if error.sqlstate() == "55P03"),
            "{refused:?}"
        );
    };
    let see = |_: &[u8]| std::ops::ControlFlow::Continue(());
    beside_a_reader(&db, "t", || {
        let mut tx = limited();
        is_late(block_on(tx.drop_table("t")));
        is_late(block_on(tx.truncate_table("t")));
        is_late(block_on(tx.rename_table("t", "u")));
        is_late(block_on(tx.add_column("t", Column::new("more", Type::Int8).nullable())));
        is_late(block_on(tx.drop_column("t", "text")));
        is_late(block_on(tx.rename_column("t", "text", "words")));
        is_late(block_on(tx.create_index("t", IndexSchema::hash("by_text", &["text"]))).map(drop));
        is_late(block_on(tx.lock_table("t")));
        // Others may begin to use it.
        block_on(limited().scan_table(&table, see)).expect("nobody holds it");
    });
    let mut holder = db.begin(TransactionOptions::new()).expect("there is room");
    block_on(holder.rename_table("t", "u")).expect("nobody uses it");
    is_late(block_on(limited().scan_table(&table, see)));
    is_late(block_on(limited().create_table(schema("u"))).map(drop));
    is_late(block_on(limited().drop_table("t")));
    // Without a limit again it waits for as long as it takes.
    let mut tx = limited();
    tx.limit_waits(None).expect("it is open");
    let mut dropping = Box::pin(tx.drop_table("u"));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(dropping.as_mut().poll(&mut context).is_pending());
    holder.rollback();
    let refused = block_on(dropping);
    assert!(matches!(refused, Err(Error::UnknownTable { .. })), "{refused:?}");
    drop(tx);
    let mut tx = limited();
    block_on(tx.drop_table("t")).expect("nobody uses it any more");
    block_on(tx.commit()).expect("nobody competes");
}

/// Columns are found by their names when their table is held: others that came before have moved them.
#[test]
fn a_column_is_where_it_is_when_its_turn_has_come() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let columns = ["a", "b", "c"].map(|name| Column::new(name, Type::Text).nullable());
    let table = db.create_table(schema("t").columns(columns)).expect("a table");
    let values = [Value::Int8(1), Value::from("text"), Value::from("a"), Value::from("b"), Value::from("c")];
    db.run(TransactionOptions::new(), async |tx| tx.insert_values(&table, &values).await.map(drop))
        .expect("it is new");
    let (mut first, mut second) = (
        db.begin(TransactionOptions::new()).expect("there is room"),
        db.begin(TransactionOptions::new()).expect("there is room"),
    );
    block_on(first.drop_column("t", "a")).expect("nobody uses it");
    block_on(first.add_column("t", Column::new("d", Type::Text).default("d"))).expect("it is held");
    {
        let mut waiting = Box::pin(second.drop_column("t", "b"));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        block_on(first.commit()).expect("nobody competes");
        block_on(waiting).expect("it is still there");
    }
    block_on(second.commit()).expect("nobody competes");
    let mut seen = Vec::new();
    db.run(TransactionOptions::new(), async |tx| {
        tx.scan_table(&table, |row| {
            seen = table.layout().decode(row).expect("it is a row");
            std::ops::ControlFlow::Continue(())
        })
        .await
    })
    .expect("it is there");
    assert_eq!(seen, [Value::Int8(1), Value::from("text"), Value::from("c"), Value::from("d")]);
}

/// A duplicate key is told as data, with the columns' present names.
#[test]
fn a_duplicate_key_is_told_as_data() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    db.create_index("t", IndexSchema::ordered("both", &["text", "id"]).unique()).expect("nothing is double");
    db.rename_column("t", "text", "words").expect("the name is free");
    fill(&db, "t", 1);
    let insert = |id: i64, text: &str| {
        let values = [Value::Int8(id), Value::from(text)];
        db.run(TransactionOptions::new(), async |tx| tx.insert_values(&table, &values).await.map(drop))
    };
    let taken = |outcome: Result<(), Error>| match outcome {
        Err(Error::DuplicateKey { table, index, key }) => (table, index, key),
        outcome => panic!("{outcome:?}"),
    };
    let (of, index, key) = taken(insert(0, "y"));
    assert_eq!((of.as_str(), index.as_str(), key.columns()), ("t", "key", &["id".to_owned()][..]));
    assert_eq!((key.values(), key.to_string().as_str()), (&[Value::Int8(0)][..], "(id)=(0)"));
    insert(1, "y").expect("it is new");
    db.drop_column("t", "words").expect_err("an index has it");
    let created = db.create_index("t", IndexSchema::ordered("words", &["words"]).unique()).map(drop);
    created.expect("no two are equal");
    let (_, index, key) = taken(insert(2, "y"));
    assert_eq!((index.as_str(), key.columns()), ("words", &["words".to_owned()][..]));
    assert_eq!(key.values(), [Value::from("y")]);
    db.drop_index("t", "words").expect("it is there");
    insert(2, "y").expect("the index has gone");
    let (_, index, key) =
        taken(db.create_index("t", IndexSchema::hash("words", &["words"]).unique()).map(drop));
    assert_eq!(
        (index.as_str(), key.columns(), key.values()),
        ("words", &["words".to_owned()][..], &[Value::from("y")][..])
    );
}

/// A body that has used a table and changes its definition from outside of its transaction is told at once that it waits for
/// itself; it may change others.
#[test]
fn who_changes_a_table_that_the_body_around_uses_is_told_at_once() {
    let db =
        Database::open_in_memory(Options::default().with_definition_wait(Duration::MAX)).expect("it opens");
    let table = db.create_table(schema("t")).expect("a table");
    db.create_table(schema("other")).expect("a table");
    fill(&db, "t", 10);
    db.run(TransactionOptions::new(), async |tx| {
        db.drop_table("other")?;
        tx.read(&table.primary(), &KeyBuf::new().i64(1), |_| ()).await?.expect("it is there");
        let error = db.truncate_table("t").expect_err("it would wait for itself");
        assert!(matches!(error, Error::WaitsForItself { .. }), "{error}");
        Ok(())
    })
    .expect("the transaction has not failed");
    assert_eq!(db.table_names(), ["t"]);
    db.truncate_table("t").expect("nobody uses it any more");
}
