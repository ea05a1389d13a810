//! Changes of definitions in transactions: who sees them, who waits for whom, what is undone.

use std::ops::ControlFlow;
use std::sync::mpsc;
use std::time::Duration;

use thermocline_base::multiplex::block_on;

use crate::row::{Column, KeyBuf, Type, Value};
use crate::{
    Database, Direction, Durability, Error, IndexSchema, Isolation, KeyRange, Options, Result, SchemaError,
    Table, TableSchema, Transaction, TransactionOptions,
};

fn schema(name: &str) -> TableSchema {
    TableSchema::new(name)
        .column(Column::new("id", Type::Int8))
        .column(Column::new("v", Type::Int8))
        .primary_key(IndexSchema::hash("key", &["id"]))
}

fn memory() -> Database {
    let options = Options::default().with_definition_wait(Duration::from_secs(60));
    Database::open_in_memory(options).expect("it opens")
}

/// A database with tables `a` and `b` of ten rows each.
fn two_tables() -> (Database, Table, Table) {
    let db = memory();
    let made = ["a", "b"].map(|name| {
        let table = db.create_table(schema(name)).expect("a table");
        db.bulk_load(&table, (0..10).map(|id| [Value::Int8(id), Value::Int8(id)])).expect("rows");
        table
    });
    let [a, b] = made;
    (db, a, b)
}

fn begin(db: &Database) -> Transaction {
    db.begin(TransactionOptions::new().isolation(Isolation::ReadCommitted)).expect("a transaction")
}

fn insert(tx: &mut Transaction, table: &Table, row: &[i64]) -> Result<()> {
    let values: Vec<Value> = row.iter().map(|value| Value::Int8(*value)).collect();
    block_on(tx.insert_values(table, &values)).map(drop)
}

/// All rows of a table as a transaction sees them, ordered.
fn rows(tx: &mut Transaction, name: &str) -> Vec<Vec<Value>> {
    let table = tx.table(name).expect("it is there");
    let layout = table.layout();
    let mut found = Vec::new();
    block_on(tx.scan_table(&table, |row| {
        found.push(layout.decode(row).expect("a row"));
        ControlFlow::Continue(())
    }))
    .expect("a scan");
    found.sort_unstable_by_key(|row| match row[0] {
        Value::Int8(id) => id,
        _ => unreachable!("the first column is a number"),
    });
    found
}

fn ids(tx: &mut Transaction, name: &str) -> Vec<i64> {
    let id = |row: Vec<Value>| match row[0] {
        Value::Int8(id) => id,
        _ => unreachable!("the first column is a number"),
    };
    rows(tx, name).into_iter().map(id).collect()
}

/// Waits until something is so, which another thread brings about.
fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it does not come about");
}

#[test]
fn what_a_transaction_defines_is_its_own_until_it_commits() {
    let (db, a, _) = two_tables();
    let mut tx = begin(&db);
    let made = block_on(tx.create_table(schema("c"))).expect("a table");
    insert(&mut tx, &made, &[1, 10]).expect("a row");
    block_on(tx.add_column("c", Column::new("more", Type::Int8).default(7_i64))).expect("a column");
    let own = tx.table("c").expect("it is there");
    insert(&mut tx, &own, &[2, 20, 30]).expect("a row");
    // A row of the layout before is converted, whatever handle it comes with.
    insert_of(&mut tx, &made, &[3, 30]);
    block_on(tx.create_index("c", IndexSchema::ordered("by_v", &["v"]).unique())).expect("an index");
    block_on(tx.rename_table("c", "d")).expect("a name");
    block_on(tx.drop_index("d", "by_v")).expect("it is there");
    block_on(tx.rename_column("d", "more", "other")).expect("a name");
    block_on(tx.create_index("a", IndexSchema::ordered("by_v", &["v"]))).expect("an index");
    assert_eq!(made.schema().column_list()[2].name, "other", "its handle has the definition as it is now");
    assert_eq!(tx.tables().expect("it is open").names(), ["a", "b", "d"]);
    assert_eq!(db.table_names(), ["a", "b"]);
    assert!(a.index("by_v").is_err() && tx.table("a").expect("it is there").index("by_v").is_ok());
    let expected: Vec<Vec<Value>> =
        [[1, 10, 7], [2, 20, 30], [3, 30, 7]].iter().map(|row| row.map(Value::Int8).to_vec()).collect();
    assert_eq!(rows(&mut tx, "d"), expected);
    block_on(tx.commit()).expect("it commits");
    assert_eq!(db.table_names(), ["a", "b", "d"]);
    assert!(a.index("by_v").is_ok());
    let mut tx = begin(&db);
    assert_eq!(rows(&mut tx, "d"), expected);
    assert_eq!(made.name(), "d", "its handle is everybody's now");
}

/// Inserts a row as the program has encoded it before the columns changed.
fn insert_of(tx: &mut Transaction, table: &Table, row: &[i64]) {
    let layout = crate::row::Layout::new(schema("old").column_list()).expect("a layout");
    let values: Vec<Value> = row.iter().map(|value| Value::Int8(*value)).collect();
    let mut encoded = crate::row::EncodedRow::new();
    layout.encode_row(&values, &mut encoded).expect("it fits");
    block_on(tx.insert(table, &encoded)).expect("a row");
}

#[test]
fn a_rollback_undoes_definitions() {
    let (db, a, b) = two_tables();
    let mut tx = begin(&db);
    insert(&mut tx, &a, &[100, 1]).expect("a row");
    block_on(tx.truncate_table("a")).expect("it is there");
    insert(&mut tx, &a, &[200, 1]).expect("a row");
    assert_eq!(ids(&mut tx, "a"), [200]);
    block_on(tx.drop_column("b", "v")).expect("it is there");
    block_on(tx.drop_table("b")).expect("it is there");
    assert!(matches!(insert(&mut tx, &b, &[1, 1]), Err(Error::TableDropped { .. })));
    let made = block_on(tx.create_table(schema("b"))).expect("the name is free");
    insert(&mut tx, &made, &[1, 1]).expect("a row");
    assert_eq!(ids(&mut tx, "b"), [1]);
    tx.rollback();
    let mut tx = begin(&db);
    let all: Vec<i64> = (0..10).collect();
    assert_eq!((ids(&mut tx, "a"), ids(&mut tx, "b")), (all.clone(), all));
    assert!(matches!(insert(&mut tx, &made, &[1, 1]), Err(Error::TableDropped { .. })), "it never was");
    assert_eq!(b.schema().column_list().len(), 2);
    insert(&mut tx, &a, &[100, 1]).expect("a row");
    block_on(tx.commit()).expect("it commits");
}

#[test]
fn a_rollback_to_a_savepoint_undoes_what_came_after_it_and_lets_tables_go() {
    let (db, a, b) = two_tables();
    let mut tx = begin(&db);
    insert(&mut tx, &a, &[10, 0]).expect("a row");
    block_on(tx.add_column("a", Column::new("first", Type::Int8).default(1_i64))).expect("a column");
    let own = tx.table("a").expect("it is there");
    insert(&mut tx, &own, &[11, 0, 0]).expect("a row");
    let savepoint = tx.savepoint().expect("a savepoint");
    block_on(tx.add_column("a", Column::new("second", Type::Int8).default(2_i64))).expect("a column");
    let own = tx.table("a").expect("it is there");
    insert(&mut tx, &own, &[12, 0, 0, 0]).expect("a row");
    block_on(tx.delete(&a.primary(), &KeyBuf::new().i64(11))).expect("it is there");
    block_on(tx.truncate_table("b")).expect("it is there");
    let made = block_on(tx.create_table(schema("c"))).expect("a table");
    assert!(b.entry.is_held());
    tx.rollback_to(&savepoint).expect("it is there");
    assert!(!b.entry.is_held() && a.entry.is_held(), "what was held before stays held");
    assert!(matches!(insert(&mut tx, &made, &[1, 1]), Err(Error::TableDropped { .. })));
    // Others use it while the transaction is open, and take the name.
    db.run(TransactionOptions::new(), async |tx| tx.delete(&b.primary(), &KeyBuf::new().i64(0)).await)
        .expect("it is free");
    db.create_table(schema("c")).expect("the name is free");
    assert_eq!(ids(&mut tx, "a"), (0..12).collect::<Vec<i64>>());
    assert_eq!(rows(&mut tx, "a")[11].len(), 3);
    block_on(tx.commit()).expect("it commits");
    let mut tx = begin(&db);
    assert_eq!(rows(&mut tx, "a")[10], [10, 0, 1].map(Value::Int8));
    assert_eq!(ids(&mut tx, "b"), (1..10).collect::<Vec<i64>>());
}

#[test]
fn a_user_of_a_table_changes_it_before_who_waits_for_the_user() {
    let (db, a, _) = two_tables();
    let mut reader = begin(&db);
    assert_eq!(ids(&mut reader, "a").len(), 10);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut tx = begin(&db);
            block_on(tx.add_column("a", Column::new("theirs", Type::Int8).nullable()))?;
            block_on(tx.commit())
        });
        until(|| a.entry.is_held());
        block_on(reader.add_column("a", Column::new("mine", Type::Int8).nullable())).expect("it goes first");
        block_on(reader.commit()).expect("it commits");
        other.join().expect("no panic").expect("it goes on");
    });
    let names: Vec<String> = a.schema().column_list().iter().map(|column| column.name.clone()).collect();
    assert_eq!(names, ["id", "v", "mine", "theirs"]);
}

/// Two threads do their steps, the first of them before the second begins; of their second steps one is told of a deadlock, before
/// the limit of a minute.
fn one_is_told(
    db: &Database,
    first: impl FnOnce(&mut Transaction) + Send,
    waits: impl FnOnce(&mut Transaction) -> Result<()> + Send,
    mut other: Transaction,
    is_waiting: impl FnMut() -> bool,
    closes: impl FnOnce(&mut Transaction) -> Result<()>,
) {
    let (said, ready) = mpsc::channel();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let mut tx = begin(db);
            first(&mut tx);
            said.send(()).expect("somebody listens");
            let outcome = waits(&mut tx);
            tx.rollback();
            outcome
        });
        ready.recv().expect("the first step is done");
        until(is_waiting);
        let mine = closes(&mut other);
        other.rollback();
        let theirs = thread.join().expect("no panic");
        let told = [mine, theirs].into_iter().filter_map(Result::err).collect::<Vec<_>>();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(matches!(told[0], Error::Deadlock { .. }), "{told:?}");
    });
}

#[test]
fn circles_of_users_and_changers_are_found() {
    // Two that have read a table change it.
    let (db, a, _) = two_tables();
    let mut other = begin(&db);
    ids(&mut other, "a");
    let add = |tx: &mut Transaction, table: &str, name: &str| {
        block_on(tx.add_column(table, Column::new(name, Type::Int8).nullable()))
    };
    let held = a.entry.clone();
    one_is_told(
        &db,
        |tx| _ = ids(tx, "a"),
        |tx| add(tx, "a", "x"),
        other,
        || held.is_held(),
        |tx| add(tx, "a", "y"),
    );
    // One has used a and wants b; the other holds b and waits for the users of a.
    let (db, a, _) = two_tables();
    let mut other = begin(&db);
    ids(&mut other, "a");
    let held = a.entry.clone();
    one_is_told(
        &db,
        |tx| add(tx, "b", "x").expect("nobody uses it"),
        |tx| add(tx, "a", "x"),
        other,
        || held.is_held(),
        |tx| {
            let table = db.table("b")?;
            block_on(tx.read(&table.primary(), &KeyBuf::new().i64(1), |_| ())).map(drop)
        },
    );
    // The same with a row: one waits for a row of the other, who waits for its table.
    let (db, _, b) = two_tables();
    let mut other = begin(&db);
    let set = |tx: &mut Transaction| {
        let edit = |row: &mut crate::row::RowEditor<'_>| Ok(row.set_i64(1, 5)?);
        block_on(tx.update(&b.primary(), &KeyBuf::new().i64(1), edit)).map(drop)
    };
    ids(&mut other, "a");
    set(&mut other).expect("nobody is in the way");
    one_is_told(
        &db,
        |tx| _ = ids(tx, "a"),
        set,
        other,
        // Whoever of the two waits last finds it.
        || true,
        |tx| add(tx, "a", "x"),
    );
}

#[test]
fn names_are_claimed_and_looked_at_again() {
    for commits in [true, false] {
        let (db, ..) = two_tables();
        let mut tx = begin(&db);
        block_on(tx.create_table(schema("new"))).expect("a table");
        block_on(tx.rename_table("a", "c")).expect("a name");
        let outcomes = std::thread::scope(|scope| {
            let creates = ["new", "a", "c"].map(|name| {
                let db = &db;
                scope.spawn(move || db.create_table(schema(name)).map(drop))
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(creates.iter().all(|create| !create.is_finished()), "they wait for the names");
            if commits {
                block_on(tx.commit()).expect("it commits");
            } else {
                tx.rollback();
            }
            creates.map(|create| create.join().expect("no panic").is_ok())
        });
        assert_eq!(outcomes, if commits { [false, true, false] } else { [true, false, true] });
    }
}

#[test]
fn an_open_cursor_keeps_its_table_as_it_is() {
    let (db, a, _) = two_tables();
    let mut tx = begin(&db);
    let cursor = tx.open_table_cursor(&a).expect("a cursor");
    let index = IndexSchema::ordered("by_v", &["v"]);
    let error = block_on(tx.create_index("a", index.clone())).expect_err("a cursor is open");
    assert!(
        matches!(&error, Error::InUse { table, .. } if table == "a") && error.sqlstate() == "55006",
        "{error}"
    );
    block_on(tx.create_index("b", index.clone())).expect("another table");
    drop(cursor);
    block_on(tx.create_index("a", index)).expect("it has gone");
    block_on(tx.commit()).expect("it commits");
}

#[test]
fn a_definition_that_cannot_be_leaves_the_transaction_as_it_was() {
    let (db, a, _) = two_tables();
    let mut tx = begin(&db);
    insert(&mut tx, &a, &[100, 1]).expect("a row");
    let twin = IndexSchema::ordered("by_v", &["v"]).unique();
    assert!(
        matches!(block_on(tx.create_index("a", twin)), Err(Error::DuplicateKey { .. })),
        "1 is there twice"
    );
    let error = block_on(tx.create_table(schema("b"))).expect_err("it is there");
    assert!(matches!(error, Error::Schema(SchemaError::DuplicateTable { .. })), "{error}");
    assert!(matches!(block_on(tx.drop_table("none")), Err(Error::UnknownTable { .. })));
    let bad = Column::new("bad", Type::Int8);
    assert!(matches!(block_on(tx.add_column("a", bad)), Err(Error::Schema(SchemaError::NoDefault { .. }))));
    block_on(tx.commit()).expect("it goes on");
    let mut tx = begin(&db);
    assert_eq!(ids(&mut tx, "a").len(), 11);
}

/// A transaction that has changed definitions rests. Others go on with other tables, checkpoints too, and the log stays short.
#[test]
fn who_rests_among_definitions_holds_nobody_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let options =
        Options::default().with_durability(Durability::Group).with_definition_wait(Duration::from_millis(50));
    let db = Database::open(dir.path(), options.clone()).expect("it opens");
    let [a, b] = ["a", "b"].map(|name| db.create_table(schema(name)).expect("a table"));
    let mut tx = begin(&db);
    insert(&mut tx, &a, &[1, 1]).expect("a row");
    block_on(tx.add_column("a", Column::new("more", Type::Int8).default(3_i64))).expect("a column");
    for round in 0..5 {
        db.bulk_load(&b, (0..100).map(|id| [Value::Int8(round * 100 + id), Value::Int8(id)])).expect("rows");
        db.checkpoint().expect("a checkpoint");
        db.create_index("b", IndexSchema::ordered("by_v", &["v"])).expect("another table");
        db.drop_index("b", "by_v").expect("it is there");
    }
    // Who wants the table itself is told who is in the way.
    let error = db.add_column("a", Column::new("theirs", Type::Int8).nullable()).map(drop);
    assert!(error.is_ok() || matches!(error, Err(Error::SchemaChangeTimeout { .. })), "{error:?}");
    block_on(tx.commit()).expect("it commits");
    db.close().expect("it closes");
    let found = Database::verify(dir.path()).expect("a database");
    assert_eq!((found.tables, found.findings), (2, Vec::<String>::new()));
    let db = Database::open(dir.path(), options).expect("it opens");
    let mut tx = begin(&db);
    assert_eq!(rows(&mut tx, "a"), [[1, 1, 3].map(Value::Int8).to_vec()]);
    assert_eq!(ids(&mut tx, "b").len(), 500);
}

/// A transaction that is idle for too long lets go of all that it has defined.
#[test]
fn who_idles_for_too_long_loses_its_definitions() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options::default().with_idle_limit(Some(Duration::from_millis(300)));
    let db = Database::open(dir.path(), options).expect("it opens");
    let a = db.create_table(schema("a")).expect("a table");
    let mut tx = begin(&db);
    block_on(tx.truncate_table("a")).expect("it is there");
    block_on(tx.create_table(schema("c"))).expect("a table");
    until(|| !a.entry.is_held());
    assert!(matches!(block_on(tx.drop_table("a")), Err(Error::IdleTimeout { .. })));
    db.create_table(schema("c")).expect("the name is free");
    db.drop_table("a").expect("the table is free");
}

/// Scans through an index that was made in the transaction, over rows of before and after.
#[test]
fn an_index_of_the_transaction_has_all_rows() {
    let (db, a, _) = two_tables();
    let mut tx = begin(&db);
    insert(&mut tx, &a, &[20, 3]).expect("a row");
    block_on(tx.delete(&a.primary(), &KeyBuf::new().i64(4))).expect("it is there");
    let index = block_on(tx.create_index("a", IndexSchema::ordered("by_v", &["v"]))).expect("an index");
    insert(&mut tx, &a, &[21, 5]).expect("a row");
    let layout = a.layout();
    let mut found = Vec::new();
    block_on(tx.scan(&index, KeyRange::all(), Direction::Forward, |row| {
        found.push((layout.i64(row, 1).expect("not null"), layout.i64(row, 0).expect("not null")));
        ControlFlow::Continue(())
    }))
    .expect("a scan");
    found.sort_unstable();
    assert_eq!(
        found,
        [(0, 0), (1, 1), (2, 2), (3, 3), (3, 20), (5, 5), (5, 21), (6, 6), (7, 7), (8, 8), (9, 9)]
    );
    block_on(tx.commit()).expect("it commits");
    let index = a.index("by_v").expect("everybody has it");
    let count = db.run(TransactionOptions::new().read_only(), async |tx| {
        let mut count = 0;
        let see = |_: &[u8]| {
            count += 1;
            ControlFlow::Continue(())
        };
        tx.scan(&index, KeyRange::all(), Direction::Forward, see).await?;
        Ok(count)
    });
    assert_eq!(count.expect("a scan"), 11);
}
