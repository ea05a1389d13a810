//! Errors in words: what a message names is what it is about, and says what would help.

use std::ops::ControlFlow;

use thermocline_engine::row::{Column, Type, Value};
use thermocline_engine::{
    Database, Direction, Error, IndexSchema, KeyRange, Options, Table, TableSchema, Transaction,
    TransactionOptions,
};

fn table(db: &Database) -> Table {
    let schema = TableSchema::new("t")
        .column(Column::new("id", Type::Int8))
        .primary_key(IndexSchema::hash("t_key", &["id"]));
    db.create_table(schema).expect("the definition is fine")
}

#[test]
fn a_database_that_this_process_has_open_is_not_said_to_be_open_in_another() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path(), Options::default()).expect("a new database");
    let again = |options| Database::open(dir.path().join("."), options).expect_err("it is open");
    for options in [Options::default(), Options::default().with_read_only(true)] {
        let error = again(options);
        assert!(matches!(error, Error::Locked { here: true, .. }), "{error:?}");
        assert!(error.to_string().contains("this process has the database in"), "{error}");
    }
    db.close().expect("closed");
    Database::open(dir.path(), Options::default()).expect("it is closed").close().expect("closed");
    // Another process would hold the same lock of the system, which nobody here took.
    let lock = std::fs::File::open(dir.path().join("thermocline.lock")).expect("the file of the lock");
    lock.lock().expect("nobody has it");
    let error = again(Options::default());
    assert!(matches!(error, Error::Locked { here: false, .. }), "{error:?}");
    assert!(error.to_string().contains("another process has the database in"), "{error}");
}

#[test]
fn the_limit_of_open_transactions_is_as_many_as_were_open() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let begin = || db.begin(TransactionOptions::new());
    let mut open: Vec<Transaction> = Vec::new();
    let error = loop {
        match begin() {
            Ok(tx) => open.push(tx),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().starts_with(&format!("{} transactions are open", open.len())), "{error}");
    open.pop();
    begin().expect("one has ended");
}

#[test]
fn what_is_no_option_is_not_called_one() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = table(&db);
    let scan = async |tx: &mut Transaction| {
        let all = KeyRange::all();
        tx.scan(&table.primary(), all, Direction::Forward, |_| ControlFlow::Continue(())).await
    };
    let error = db.run(TransactionOptions::new(), scan).expect_err("a hash index");
    assert_eq!(error.sqlstate(), "42809");
    assert!(error.to_string().starts_with("scan: index \"t_key\" of table \"t\" is a hash index"), "{error}");
    let mut tx = db.begin(TransactionOptions::new()).expect("it begins");
    let first = tx.savepoint().expect("a savepoint");
    let second = tx.savepoint().expect("a savepoint");
    tx.rollback_to(&first).expect("it is there");
    let error = tx.rollback_to(&second).expect_err("it is gone");
    assert_eq!(error.sqlstate(), "3B001");
    assert!(error.to_string().starts_with("rollback_to: an earlier rollback"), "{error}");
    drop(tx);
    let error = db.backup("anywhere").expect_err("it is in memory");
    assert!(error.to_string().starts_with("backup: only"), "{error}");
    db.run(TransactionOptions::new(), async |tx| tx.insert_values(&table, &[Value::Int8(1)]).await)
        .expect("all of this was harmless");
}
