//! Handles are trusted by nobody: each public operation refuses a table, an index or a savepoint of another database, of a
//! closed opening, of a dropped table and of a table that was dropped and made anew; typed, with nothing written.

use std::ops::ControlFlow;
use std::path::Path;

use thermocline_engine::row::{Column, EncodedRow, KeyBuf, Type, Value};
use thermocline_engine::{
    Database, Direction, Error, Index, IndexSchema, KeyRange, LockMode, Options, Result, Table, TableSchema,
    Transaction, TransactionOptions, block_on,
};

/// The two databases of a test have tables of different widths under one name, with the same ids.
fn table(db: &Database, columns: usize) -> Table {
    let mut schema = TableSchema::new("t")
        .column(Column::new("id", Type::Int8).auto_increment())
        .primary_key(IndexSchema::ordered("t_key", &["id"]))
        .index(IndexSchema::ordered("by_text", &["text"]))
        .column(Column::new("text", Type::Text));
    for column in 0..columns {
        schema = schema.column(Column::new(format!("c{column}"), Type::Int8).default(7_i64));
    }
    db.create_table(schema).expect("a table")
}

fn values(columns: usize) -> Vec<Value> {
    let mut values = vec![Value::Null, Value::from("some text")];
    values.resize(2 + columns, Value::Null);
    values
}

fn open(dir: &Path) -> Database {
    Database::open(dir, Options::default()).expect("it opens")
}

type Operation = (&'static str, fn(&Database, &mut Transaction, &Table, &EncodedRow) -> Result<()>);

/// The primary key's index, and the one by text.
fn indexes(table: &Table) -> (Index, Index) {
    (table.primary(), table.index("by_text").unwrap_or_else(|_| table.primary()))
}

/// Every public operation that takes a handle.
const OPERATIONS: &[Operation] = &[
    ("insert", |_, tx, table, row| block_on(tx.insert(table, row)).map(drop)),
    ("insert_values", |_, tx, table, _| {
        let values = values(table.layout().columns().len() - 2);
        block_on(tx.insert_values(table, &values)).map(drop)
    }),
    ("insert_from", |_, tx, table, _| {
        block_on(tx.insert_from(table, &serde_json::json!({ "text": "x" }))).map(drop)
    }),
    ("upsert", |_, tx, table, row| block_on(tx.upsert(table, row)).map(drop)),
    ("read", |_, tx, table, _| block_on(tx.read(&indexes(table).0, &KeyBuf::new().i64(1), |_| ())).map(drop)),
    ("read_as", |_, tx, table, _| {
        block_on(tx.read_as::<serde_json::Value>(&indexes(table).0, &KeyBuf::new().i64(1))).map(drop)
    }),
    ("read_all", |_, tx, table, _| {
        let key = KeyBuf::new().str("some text");
        block_on(tx.read_all(&indexes(table).1, &key, |_| ControlFlow::Continue(())))
    }),
    ("scan", |_, tx, table, _| {
        let index = indexes(table).1;
        block_on(tx.scan(&index, KeyRange::all(), Direction::Forward, |_| ControlFlow::Continue(())))
    }),
    ("scan_table", |_, tx, table, _| block_on(tx.scan_table(table, |_| ControlFlow::Continue(())))),
    ("update", |_, tx, table, _| {
        let (index, key) = (indexes(table).0, KeyBuf::new().i64(1));
        block_on(tx.update(&index, &key, |row| Ok(row.set_str(1, "changed")?))).map(drop)
    }),
    ("delete", |_, tx, table, _| block_on(tx.delete(&indexes(table).0, &KeyBuf::new().i64(1))).map(drop)),
    ("lock", |_, tx, table, _| {
        block_on(tx.lock(&indexes(table).0, &KeyBuf::new().i64(1), LockMode::Update)).map(drop)
    }),
    ("prefetch", |_, tx, table, _| {
        let key = KeyBuf::new().i64(1);
        tx.prefetch(&indexes(table).0, [&*key, &*key])
    }),
    ("prefetch_cold", |_, tx, table, _| {
        let key = KeyBuf::new().i64(1);
        block_on(tx.prefetch_cold(&indexes(table).0, [&*key, &*key]))
    }),
    ("prefetch_cold_prefix", |_, tx, table, _| block_on(tx.prefetch_cold_prefix(&indexes(table).1, b"some"))),
    ("bulk_load", |db, _, table, row| db.bulk_load(table, [row]).map(drop)),
    ("begin_bulk_load", |db, _, table, _| db.begin_bulk_load(table).map(drop)),
];

fn rows(db: &Database, table: &Table) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    db.run(TransactionOptions::new(), async |tx| {
        rows.clear();
        tx.scan_table(table, |row| {
            rows.push(row.to_vec());
            ControlFlow::Continue(())
        })
        .await
    })
    .expect("a scan");
    rows
}

/// Each operation with `handle`, in a transaction of `db`, whose own table is `own`, is refused as `expected` says, and
/// leaves the transaction able to go on.
fn all_refused(db: &Database, own: &Table, handle: &Table, expected: fn(&Error) -> bool, sqlstate: &str) {
    let before = rows(db, own);
    let mut row = EncodedRow::new();
    handle.encode_values(&values(handle.layout().columns().len() - 2), &mut row).expect("it fits");
    for (name, operation) in OPERATIONS {
        let mut tx = db.begin(TransactionOptions::new()).expect("a transaction");
        let error = operation(db, &mut tx, handle, &row).expect_err(name);
        assert!(expected(&error) && error.sqlstate() == sqlstate, "{name}: {error:?}");
        block_on(tx.read(&own.primary(), &KeyBuf::new().i64(1), |_| ()))
            .expect(name)
            .expect("the row is there");
        block_on(tx.commit()).expect("it can go on");
        assert_eq!(rows(db, own), before, "{name} has written");
    }
}

fn insert(db: &Database, table: &Table, columns: usize) -> Option<i64> {
    db.run(TransactionOptions::new(), async |tx| tx.insert_values(table, &values(columns)).await)
        .expect("the row is new")
}

#[test]
fn handles_of_another_database_are_refused_and_both_open_again() {
    let dirs = [tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory")];
    let (one, other) = (open(dirs[0].path()), open(dirs[1].path()));
    let (of_one, of_other) = (table(&one, 2), table(&other, 1));
    assert_eq!((insert(&one, &of_one, 2), insert(&other, &of_other, 1)), (Some(1), Some(1)));
    all_refused(
        &one,
        &of_one,
        &of_other,
        |error| matches!(error, Error::ForeignHandle { what: "table", name } if name == "t"),
        "55000",
    );
    // Encoding the row has drawn 2, and no operation another one.
    assert_eq!(insert(&other, &of_other, 1), Some(3), "a number was drawn for a row that was refused");
    one.close().expect("it closes");
    other.close().expect("it closes");
    for (dir, of_old) in dirs.iter().zip([of_one, of_other]) {
        let found = Database::verify(dir.path()).expect("it is a database");
        assert_eq!(found.findings, Vec::<String>::new());
        let db = open(dir.path());
        let own = db.table("t").expect("it is there");
        // The handle is of an opening that is over.
        let foreign = |error: &Error| matches!(error, Error::ForeignHandle { what: "table", .. });
        all_refused(&db, &own, &of_old, foreign, "55000");
    }
}

#[test]
fn handles_of_dropped_tables_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(dir.path());
    let dropped = table(&db, 2);
    insert(&db, &dropped, 2);
    db.drop_table("t").expect("it is there");
    // Another one, to go on with.
    let other = db
        .create_table(
            TableSchema::new("other")
                .column(Column::new("id", Type::Int8))
                .primary_key(IndexSchema::hash("other_key", &["id"])),
        )
        .expect("a table");
    db.run(TransactionOptions::new(), async |tx| tx.insert_values(&other, &[Value::Int8(1)]).await)
        .expect("a row");
    let is_told = |error: &Error| matches!(error, Error::TableDropped { name } if name == "t");
    all_refused(&db, &other, &dropped, is_told, "42P01");
    let anew = table(&db, 1);
    assert_eq!(insert(&db, &anew, 1), Some(1));
    all_refused(&db, &anew, &dropped, is_told, "42P01");
    db.close().expect("it closes");
    assert_eq!(Database::verify(dir.path()).expect("a database").findings, Vec::<String>::new());
    let db = open(dir.path());
    assert_eq!(rows(&db, &db.table("t").expect("it is there")).len(), 1);
}

#[test]
fn savepoints_of_another_transaction_are_refused() {
    let (one, other) =
        (Database::open_in_memory(Options::default()), Database::open_in_memory(Options::default()));
    let (one, other) = (one.expect("it opens"), other.expect("it opens"));
    let (of_one, of_other) = (table(&one, 0), table(&other, 0));
    let mut in_one = one.begin(TransactionOptions::new()).expect("a transaction");
    // The first transaction of its database, too.
    let mut in_other = other.begin(TransactionOptions::new()).expect("a transaction");
    let foreign = in_other.savepoint().expect("a savepoint");
    let own = in_one.savepoint().expect("a savepoint");
    block_on(in_one.insert_values(&of_one, &values(0))).expect("a row");
    block_on(in_other.insert_values(&of_other, &values(0))).expect("a row");
    let error = in_one.rollback_to(&foreign).expect_err("it is not its own");
    assert!(matches!(error, Error::ForeignHandle { what: "savepoint", .. }), "{error}");
    block_on(in_one.commit()).expect("a commit");
    assert_eq!(rows(&one, &of_one).len(), 1, "the row was rolled back");
    let mut next = one.begin(TransactionOptions::new()).expect("a transaction");
    next.savepoint().expect("a savepoint with the same number");
    let error = next.rollback_to(&own).expect_err("its transaction is over");
    assert!(matches!(error, Error::ForeignHandle { what: "savepoint", .. }), "{error}");
}

/// A key that no row of the index can have is an error, and not one that no row happens to have.
#[test]
fn keys_of_other_columns_are_refused() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = table(&db, 0);
    insert(&db, &table, 0);
    let (primary, by_text) = indexes(&table);
    let (narrow, number) = (KeyBuf::new().i32(1), KeyBuf::new().i64(1));
    let mut tx = db.begin(TransactionOptions::new()).expect("a transaction");
    let go_on = |_: &[u8]| ControlFlow::Continue(());
    let outcomes = [
        block_on(tx.read(&primary, &narrow, |_| ())).map(drop),
        block_on(tx.read_as::<serde_json::Value>(&primary, &narrow)).map(drop),
        block_on(tx.read_all(&by_text, &number, go_on)),
        block_on(tx.update(&primary, &narrow, |_| Ok(()))).map(drop),
        block_on(tx.delete(&primary, &narrow)).map(drop),
        block_on(tx.lock(&primary, &narrow, LockMode::Share)).map(drop),
        block_on(tx.scan(&primary, KeyRange::prefix(&narrow), Direction::Forward, go_on)),
        block_on(tx.scan(
            &primary,
            KeyRange::between(std::ops::Bound::Unbounded, std::ops::Bound::Excluded(&*narrow)),
            Direction::Backward,
            go_on,
        )),
    ];
    for outcome in outcomes {
        let error = outcome.expect_err("no key has four bytes");
        assert_eq!(error.sqlstate(), "42804", "{error}");
        assert!(
            error.to_string().contains("\"t\"") && error.to_string().contains("the key does not fit"),
            "{error}"
        );
    }
    // A prefix of a text is one.
    block_on(tx.scan(&by_text, KeyRange::prefix(b"some"), Direction::Forward, go_on)).expect("it scans");
    block_on(tx.read(&primary, &number, |_| ())).expect("it reads").expect("the row is there");
}
