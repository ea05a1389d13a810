//! Chunks that freeze and thaw: what each arrow of the life of a frozen row does, by hand.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use thermocline_base::depth;
use thermocline_base::io::{Io, MemoryIo, OpenMode};
use thermocline_base::multiplex::block_on;

use crate::hot::budget::MemoryKind;
use crate::row::{Column, KeyBuf, Type, Value};
use crate::{
    Database, Durability, Error, IndexSchema, Isolation, LockMode, Options, Table, TableSchema, Tiering,
    TransactionOptions,
};

pub(crate) const ROWS: i64 = 400;

pub(crate) fn schema() -> TableSchema {
    schema_of("t")
}

pub(crate) fn schema_of(name: &str) -> TableSchema {
    TableSchema::new(name)
        .column(Column::new("id", Type::Int8))
        .column(Column::new("name", Type::Text).nullable())
        .column(Column::new("value", Type::Int8))
        .primary_key(IndexSchema::ordered("t_key", &["id"]))
        .index(IndexSchema::hash("t_value", &["value"]))
}

pub(crate) fn open(io: &Arc<dyn Io>) -> Database {
    let options = Options::default().with_durability(Durability::Sync).with_memory_limit(Some(64 << 20));
    Database::open_with(Path::new("/db"), options, Arc::clone(io), true).expect("the options are fine")
}

pub(crate) fn memory() -> Arc<dyn Io> {
    Arc::new(MemoryIo::new())
}

pub(crate) fn row(id: i64, value: i64) -> [Value; 3] {
    let name = if id % 3 == 0 { Value::Null } else { Value::from(format!("row {id}").as_str()) };
    [Value::Int8(id), name, Value::Int8(value)]
}

/// A table with frozen rows 0 to 399.
pub(crate) fn frozen(db: &Database) -> Table {
    let table = db.create_table(schema()).expect("the definition is fine");
    insert(db, &table, 0..ROWS);
    let frozen = db.freeze("t").expect("there is room");
    assert_eq!((frozen.chunks, frozen.rows), (1, ROWS as u64));
    assert_eq!(in_blocks(db), ROWS as u64);
    table
}

pub(crate) fn insert(db: &Database, table: &Table, ids: std::ops::Range<i64>) {
    db.run(TransactionOptions::new(), async |tx| {
        for id in ids.clone() {
            tx.insert_values(table, &row(id, id * 10)).await?;
        }
        Ok(())
    })
    .expect("there is room");
}

pub(crate) fn in_blocks(db: &Database) -> u64 {
    db.statistics().frozen.rows_frozen
}

pub(crate) fn key(id: i64) -> KeyBuf {
    KeyBuf::new().i64(id)
}

pub(crate) fn read(db: &Database, table: &Table, id: i64) -> Option<Vec<Value>> {
    db.run(TransactionOptions::new().read_only(), async |tx| {
        tx.read(&table.primary(), &key(id), |row| table.layout().decode(row).expect("a row")).await
    })
    .expect("it reads")
}

pub(crate) fn set(db: &Database, table: &Table, id: i64, value: i64) {
    let found = db.run(TransactionOptions::new(), async |tx| {
        tx.update(&table.primary(), &key(id), |row| Ok(row.set_value(2, &Value::Int8(value))?)).await
    });
    assert!(found.expect("it writes").is_some());
}

/// All rows are there, by the table, by each index and by their keys; those in `changed` with another value.
pub(crate) fn check(db: &Database, table: &Table, rows: i64, changed: &[(i64, Option<i64>)]) {
    let expected = |id: i64| match changed.iter().find(|(changed, _)| *changed == id) {
        Some((_, value)) => value.map(|value| row(id, value).to_vec()),
        None => Some(row(id, id * 10).to_vec()),
    };
    let all: Vec<_> = (0..rows).filter_map(expected).collect();
    let (mut by_table, mut by_key) = (Vec::new(), Vec::new());
    db.run(TransactionOptions::new().read_only(), async |tx| {
        by_table.clear();
        by_key.clear();
        let decode = |row: &[u8]| table.layout().decode(row).expect("a row");
        tx.scan_table(table, |row| {
            by_table.push(decode(row));
            ControlFlow::Continue(())
        })
        .await?;
        tx.scan(&table.primary(), crate::KeyRange::all(), crate::Direction::Forward, |row| {
            by_key.push(decode(row));
            ControlFlow::Continue(())
        })
        .await
    })
    .expect("it scans");
    let id = |row: &Vec<Value>| if let Value::Int8(id) = row[0] { id } else { unreachable!("an id") };
    by_table.sort_by_key(id);
    assert_eq!(by_table, all, "by table");
    assert_eq!(by_key, all, "by key");
    for id in 0..rows {
        assert_eq!(read(db, table, id), expected(id), "row {id}");
    }
    let by_value = table.index("t_value").expect("it is there");
    for row in all {
        let Value::Int8(value) = row[2] else { unreachable!("a value") };
        let found = db
            .run(TransactionOptions::new().read_only(), async |tx| {
                tx.read(&by_value, &key(value), |row| table.layout().decode(row).expect("a row")).await
            })
            .expect("it reads");
        assert_eq!(found, Some(row));
    }
}

#[test]
fn frozen_rows_are_read_in_every_way() {
    let db = open(&memory());
    let table = frozen(&db);
    check(&db, &table, ROWS, &[]);
    assert_eq!(in_blocks(&db), ROWS as u64, "reading thaws nothing");
    insert(&db, &table, ROWS..ROWS + 20);
    check(&db, &table, ROWS + 20, &[]);
}

#[test]
fn a_change_thaws_its_row_alone() {
    let db = open(&memory());
    let table = frozen(&db);
    set(&db, &table, 7, 1);
    assert_eq!(in_blocks(&db), ROWS as u64 - 1);
    let gone = db.run(TransactionOptions::new(), async |tx| tx.delete(&table.primary(), &key(8)).await);
    assert!(gone.expect("it deletes"));
    let refused = db
        .run(TransactionOptions::new(), async |tx| tx.insert_values(&table, &row(9, 9)).await)
        .expect_err("a row that is frozen has its key");
    assert!(matches!(refused, Error::DuplicateKey { .. }), "{refused}");
    check(&db, &table, ROWS, &[(7, Some(1)), (8, None)]);
    let mut steps = db.maintenance_steps();
    (0..3).for_each(|_| steps.step());
    check(&db, &table, ROWS, &[(7, Some(1)), (8, None)]);
    assert_eq!(in_blocks(&db), ROWS as u64 - 2);
}

/// Interleaving "a thawed row that is younger than a snapshot".
#[test]
fn a_row_keeps_its_begin_through_freezing_and_thawing() {
    let db = open(&memory());
    let table = db.create_table(schema()).expect("the definition is fine");
    insert(&db, &table, 0..ROWS / 2);
    let mut old = db.begin(TransactionOptions::new().isolation(Isolation::Snapshot)).expect("it begins");
    let count = async |tx: &mut crate::Transaction| {
        let mut count = 0;
        tx.scan_table(&table, |_| {
            count += 1;
            ControlFlow::Continue(())
        })
        .await
        .map(|()| count)
    };
    assert_eq!(block_on(count(&mut old)).expect("it scans"), ROWS / 2);
    insert(&db, &table, ROWS / 2..ROWS);
    db.freeze("t").expect("there is room");
    assert_eq!(in_blocks(&db), ROWS as u64);
    let mut steps = db.maintenance_steps();
    (0..3).for_each(|_| steps.step());
    assert_eq!(block_on(count(&mut old)).expect("it scans"), ROWS / 2, "frozen rows are as young as before");
    // Thawed, and rolled back.
    let mut writer = db.begin(TransactionOptions::new()).expect("it begins");
    block_on(writer.update(&table.primary(), &key(ROWS - 1), |row| Ok(row.set_value(2, &Value::Int8(0))?)))
        .expect("it writes");
    writer.rollback();
    assert_eq!(in_blocks(&db), ROWS as u64 - 1);
    assert_eq!(block_on(count(&mut old)).expect("it scans"), ROWS / 2, "and so are thawed ones");
    drop(old);
    (0..3).for_each(|_| steps.step());
    assert_eq!(db.statistics().frozen.bytes_begins, 0, "nobody can tell begins apart any more");
    check(&db, &table, ROWS, &[]);
}

/// Interleaving "a begin that is forgotten under a validator".
#[test]
fn thaws_fail_nobody_who_validates() {
    let db = open(&memory());
    let table = frozen(&db);
    let options = TransactionOptions::new().isolation(Isolation::Serializable);
    let mut tx = db.begin(options).expect("it begins");
    let seen = block_on(tx.read(&table.primary(), &key(5), |_| ())).expect("it reads");
    assert!(seen.is_some());
    let mut steps = db.maintenance_steps();
    (0..3).for_each(|_| steps.step());
    assert_eq!(db.statistics().frozen.bytes_begins, 0, "all snapshots are newer");
    let mut writer = db.begin(TransactionOptions::new()).expect("it begins");
    block_on(writer.update(&table.primary(), &key(5), |row| Ok(row.set_value(2, &Value::Int8(0))?)))
        .expect("it writes");
    writer.rollback();
    block_on(tx.update(&table.primary(), &key(6), |row| Ok(row.set_value(2, &Value::Int8(0))?)))
        .expect("it writes");
    block_on(tx.commit()).expect("nothing about the row has changed");
}

#[test]
fn a_lock_thaws_nothing_and_keeps_writers_away() {
    let db = open(&memory());
    let table = frozen(&db);
    let mut locker = db.begin(TransactionOptions::new()).expect("it begins");
    assert!(block_on(locker.lock(&table.primary(), &key(5), LockMode::Share)).expect("it locks"));
    assert_eq!(in_blocks(&db), ROWS as u64);
    let mut writer = db.begin(TransactionOptions::new().no_wait()).expect("it begins");
    let refused = block_on(writer.delete(&table.primary(), &key(5))).expect_err("the row is locked");
    assert!(matches!(refused, Error::WouldWait { .. }), "{refused}");
    drop(writer);
    block_on(locker.commit()).expect("it commits");
    check(&db, &table, ROWS, &[]);
}

#[test]
fn what_was_thawed_freezes_again_once_it_is_an_eighth() {
    let db = open(&memory());
    let table = frozen(&db);
    let few: Vec<_> = (0..ROWS / 16).map(|id| (id, Some(-id))).collect();
    few.iter().for_each(|&(id, value)| set(&db, &table, id, value.expect("a value")));
    let mut steps = db.maintenance_steps();
    (0..3).for_each(|_| steps.step());
    assert_eq!(db.freeze("t").expect("there is room").chunks, 0, "too few have thawed");
    let many: Vec<_> = (0..ROWS / 4).map(|id| (id, Some(-id))).collect();
    many.iter().for_each(|&(id, value)| set(&db, &table, id, value.expect("a value")));
    (0..3).for_each(|_| steps.step());
    assert_eq!(db.freeze("t").expect("there is room").chunks, 1);
    assert_eq!(in_blocks(&db), ROWS as u64);
    (0..3).for_each(|_| steps.step());
    check(&db, &table, ROWS, &many);
}

#[test]
fn a_chunk_is_thawed_whole_and_its_block_goes() {
    let db = open(&memory());
    let table = frozen(&db);
    let with_block = db.statistics().memory.frozen;
    assert!(with_block > 0);
    assert_eq!(db.thaw("t").expect("there is room"), ROWS as u64);
    let mut steps = db.maintenance_steps();
    (0..3).for_each(|_| steps.step());
    assert_eq!((in_blocks(&db), db.statistics().memory.frozen), (0, 0));
    check(&db, &table, ROWS, &[]);
    assert_eq!(db.freeze("t").expect("there is room").rows, ROWS as u64);
    check(&db, &table, ROWS, &[]);
}

#[test]
fn a_frozen_chunk_whose_rows_are_deleted_goes() {
    let db = open(&memory());
    let table = frozen(&db);
    db.run(TransactionOptions::new(), async |tx| {
        for id in 0..ROWS {
            tx.delete(&table.primary(), &key(id)).await?;
        }
        Ok(())
    })
    .expect("it deletes");
    let mut steps = db.maintenance_steps();
    (0..6).for_each(|_| steps.step());
    let statistics = db.statistics();
    assert_eq!((statistics.frozen.chunks_frozen, statistics.frozen.rows_frozen), (0, 0));
    assert_eq!(statistics.memory.frozen, 0);
    check(&db, &table, 0, &[]);
}

#[test]
fn frozen_rows_are_frozen_after_a_restart() {
    let io = memory();
    let changed = [(3, Some(33)), (4, Some(44)), (5, Some(55)), (6, None)];
    {
        let db = open(&io);
        let table = frozen(&db);
        set(&db, &table, 3, 33);
        db.checkpoint().expect("there is room");
        set(&db, &table, 4, 44);
        db.checkpoint().expect("there is room");
        // In the log alone.
        set(&db, &table, 5, 55);
        let gone = db.run(TransactionOptions::new(), async |tx| tx.delete(&table.primary(), &key(6)).await);
        assert!(gone.expect("it deletes"));
        db.close().expect("it closes");
    }
    for _ in 0..2 {
        let db = open(&io);
        let table = db.table("t").expect("it is there");
        check(&db, &table, ROWS, &changed);
        assert_eq!(in_blocks(&db), ROWS as u64 - 4, "opening thaws only what the log changes");
        db.checkpoint().expect("there is room");
        db.close().expect("it closes");
    }
    let report = crate::ops::verify::verify(Path::new("/db"), &io).expect("it can be read");
    assert_eq!((report.findings.len(), report.rows), (0, ROWS as u64 - 1), "{:?}", report.findings);
}

/// A block is written once; what follows it is which of its rows are still there, and the rows that are not.
#[test]
fn a_checkpoint_writes_a_block_once() {
    let db = open(&memory());
    let table = frozen(&db);
    let written = || db.statistics().checkpoint_bytes;
    let before = written();
    db.checkpoint().expect("there is room");
    let first = written() - before;
    set(&db, &table, 3, 33);
    let before = written();
    db.checkpoint().expect("there is room");
    let second = written() - before;
    assert!(second * 2 < first, "{second} bytes after {first}");
}

/// Whatever byte of a base is flipped: checking names the chunk, and nothing wrong is served.
#[test]
fn a_flipped_byte_of_a_block_is_named() {
    let io = MemoryIo::new();
    {
        let db = open(&(Arc::new(io.clone()) as Arc<dyn Io>));
        frozen(&db);
        db.checkpoint().expect("there is room");
        db.close().expect("it closes");
    }
    let dir = Path::new("/db/checkpoint");
    let names = io.list(dir).expect("a directory");
    let image = names.iter().filter(|name| name.ends_with(".img")).max().expect("an image");
    let path = dir.join(image);
    let whole = io.open(&path, OpenMode::Read).and_then(|file| {
        let mut bytes = vec![0; file.len()? as usize];
        file.read_full_at(0, &mut bytes)?;
        Ok(bytes)
    });
    let whole = whole.expect("it is read");
    for at in (0..whole.len()).step_by(whole.len() / depth::either(15, 40)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        let file = io.open(&path, OpenMode::Write).expect("it is there");
        file.write_at(0, &bytes).expect("it is written");
        let io: Arc<dyn Io> = Arc::new(io.clone());
        let report = crate::ops::verify::verify(Path::new("/db"), &io).expect("it can be read");
        assert!(!report.findings.is_empty(), "the byte at {at} was not missed");
        let options = Options::default().with_memory_limit(Some(64 << 20));
        let scanned = Database::open_with(Path::new("/db"), options, io, true).and_then(|db| {
            let table = db.table("t")?;
            db.run(TransactionOptions::new(), async |tx| {
                tx.scan_table(&table, |_| ControlFlow::Continue(())).await
            })
        });
        let error = scanned.expect_err("it is served over a flipped byte");
        assert_eq!(error.sqlstate(), "XX001", "the byte at {at}: {error}");
    }
}

#[test]
fn definitions_change_over_frozen_rows() {
    let db = open(&memory());
    let table = frozen(&db);
    set(&db, &table, 3, 33);
    db.create_index("t", IndexSchema::ordered("t_name", &["name", "id"])).expect("there is room");
    check(&db, &table, ROWS, &[(3, Some(33))]);
    db.add_column("t", Column::new("more", Type::Int4).nullable()).expect("there is room");
    let found = read(&db, &db.table("t").expect("it is there"), 7).expect("a row");
    assert_eq!((found.len(), &found[2]), (4, &Value::Int8(70)));
    assert_eq!(in_blocks(&db), 0, "rows of new columns are written anew");
    db.freeze("t").expect("there is room");
    assert_eq!(read(&db, &db.table("t").expect("it is there"), 7), Some(found));
    db.truncate_table("t").expect("it is emptied");
    assert_eq!(in_blocks(&db), 0);
}

/// Names of columns change under blocks, in memory and on disk.
#[test]
fn columns_are_renamed_over_frozen_rows() {
    let io = memory();
    {
        let db = open(&io);
        frozen(&db);
        db.checkpoint().expect("there is room");
        db.rename_column("t", "name", "called").expect("it is renamed");
        assert_eq!(in_blocks(&db), ROWS as u64);
        db.close().expect("it closes");
    }
    let db = open(&io);
    let table = db.table("t").expect("it is there");
    check(&db, &table, ROWS, &[]);
    assert_eq!(in_blocks(&db), ROWS as u64);
}

/// What a block is made in counts under the memory limit: without room for that nothing freezes, and nothing is lost.
#[test]
fn a_block_without_room_is_not_made() {
    let db = open(&memory());
    let table = db.create_table(schema()).expect("the definition is fine");
    insert(&db, &table, 0..ROWS);
    let budget = &db.inner().budget;
    let mut taken = 0;
    for piece in [1 << 20, 64 << 10, 1 << 10] {
        while budget.charge(MemoryKind::Other, piece).is_ok() {
            taken += piece;
        }
    }
    let refused = db.freeze("t").expect_err("there is no room");
    assert_eq!(refused.sqlstate(), "53200", "{refused}");
    budget.release(MemoryKind::Other, taken);
    assert_eq!((in_blocks(&db), db.statistics().memory.frozen), (0, 0));
    assert_eq!(db.freeze("t").expect("there is room").rows, ROWS as u64);
    check(&db, &table, ROWS, &[]);
}

/// A table without a key has a hidden one, which stands behind each row.
#[test]
fn rows_with_hidden_keys_freeze() {
    let db = open(&memory());
    let schema = TableSchema::new("t").column(Column::new("text", Type::Text));
    let table = db.create_table(schema).expect("the definition is fine");
    db.run(TransactionOptions::new(), async |tx| {
        for id in 0..ROWS {
            tx.insert_values(&table, &[Value::from(format!("text {id}").as_str())]).await?;
        }
        Ok(())
    })
    .expect("there is room");
    assert_eq!(db.freeze("t").expect("there is room").rows, ROWS as u64);
    let mut texts = Vec::new();
    db.run(TransactionOptions::new().read_only(), async |tx| {
        texts.clear();
        tx.scan_table(&table, |row| {
            texts.push(table.layout().str(row, 0).map(str::to_owned));
            ControlFlow::Continue(())
        })
        .await
    })
    .expect("it scans");
    assert_eq!(texts, (0..ROWS).map(|id| Some(format!("text {id}"))).collect::<Vec<_>>());
}

/// Rounds of the thread that freezes: what is at rest freezes, what is in use stays, and what changes later freezes anew.
#[test]
fn tables_that_freeze_do_so_by_themselves() {
    const CHUNK: i64 = 512;
    let db = open(&memory());
    let table = db.create_table(schema().tiering(Tiering::Frozen)).expect("the definition is fine");
    let hot = db.create_table(schema_of("hot")).expect("the definition is fine");
    insert(&db, &table, 0..CHUNK + 10);
    insert(&db, &hot, 0..CHUNK + 10);
    let mut freezer = db.freezer();
    assert_eq!(freezer.round(false), 0, "nothing is known of the past");
    set(&db, &table, 7, 1);
    let steps = &mut db.maintenance_steps();
    steps.step();
    let rounds = |freezer: &mut crate::Freezer| (0..200).map(|_| freezer.round(false)).sum::<usize>();
    assert_eq!(rounds(&mut freezer), 1, "the full chunk of the one table");
    assert_eq!(in_blocks(&db), CHUNK as u64);
    // A tenth in use is too much for a chunk to freeze anew, and too little.
    (0..CHUNK / 10).for_each(|id| set(&db, &table, id, -id));
    steps.step();
    assert_eq!(rounds(&mut freezer), 0);
    (0..CHUNK / 4).for_each(|id| set(&db, &table, id, -id));
    steps.step();
    assert_eq!(rounds(&mut freezer), 1);
    assert_eq!(in_blocks(&db), CHUNK as u64);
    let changed: Vec<_> = (0..CHUNK / 4).map(|id| (id, Some(-id))).collect();
    check(&db, &table, CHUNK + 10, &changed);
}

/// A table that may only freeze, under a limit that is too small for it even so.
#[test]
fn a_frozen_table_that_does_not_fit_is_refused_rows() {
    let db = open(&memory());
    db.set_memory_limit(Some(32 << 20)).expect("it is enough");
    let table = db.create_table(schema().tiering(Tiering::Frozen)).expect("the definition is fine");
    let outcome = (0..2000).try_for_each(|batch| {
        db.run(TransactionOptions::new(), async |tx| {
            for id in batch * 500..(batch + 1) * 500 {
                tx.insert_values(&table, &row(id, id * 10)).await?;
            }
            Ok(())
        })
    });
    let error = outcome.expect_err("there is no room for a million rows");
    assert_eq!(error.sqlstate(), "53200", "{error}");
}
