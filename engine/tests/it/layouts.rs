//! Rows that were encoded before a definition changed: converted where that is defined, refused elsewhere, never garbled.

use std::ops::ControlFlow;

use thermocline_engine::row::{Column, EncodedRow, KeyBuf, RowError, RowRef, Type, Value, Varchar};
use thermocline_engine::{
    Database, Direction, Error, IndexSchema, KeyRange, Options, Table, TableSchema, TransactionOptions,
};

thermocline_engine::row! {
    /// The table as the program knows it that was written first.
    struct Note as NoteRow {
        id: i64,
        draft: Option<i32>,
        text: String,
        author: Varchar<40>,
    }
}

fn open(dir: &std::path::Path) -> Database {
    Database::open(dir, Options::default()).expect("it opens")
}

fn notes(db: &Database) -> Table {
    let key = IndexSchema::hash("notes_key", &["id"]);
    db.create_table(TableSchema::new("notes").columns(Note::schema_columns()).primary_key(key))
        .expect("a table")
}

fn note(id: i64) -> EncodedRow {
    let mut row = EncodedRow::new();
    let note =
        Note { id, draft: Some(7), text: "Übung macht den Meister".to_owned(), author: "ada".to_owned() };
    note.encode(&mut row).expect("it fits");
    row
}

fn insert<'r>(db: &Database, table: &Table, row: impl Into<RowRef<'r>>) -> Result<(), Error> {
    let row = row.into();
    db.run(TransactionOptions::new(), async |tx| tx.insert(table, row).await.map(drop))
}

fn read(db: &Database, table: &Table, id: i64) -> Vec<Value> {
    let row = db
        .run(TransactionOptions::new(), async |tx| {
            tx.read(&table.primary(), &KeyBuf::new().i64(id), <[u8]>::to_vec).await
        })
        .expect("a read")
        .expect("the row is there");
    table.layout().decode(&row).expect("it is a row")
}

const TEXT: &str = "Übung macht den Meister";

fn column(name: &str) -> Column {
    Column::new(name, Type::Int4).nullable()
}

/// Encodes with every encoder before a column is added, and inserts in every way after it. Of an int4 that was added, the old
/// bytes would be a valid row: the number would be the text's first bytes, and the text would lack them.
#[test]
fn rows_from_before_a_column_was_added_get_its_default() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(dir.path());
    let table = notes(&db);
    let typed = note(1);
    let mut by_values = EncodedRow::new();
    let values = [Value::Int8(2), Value::Null, Value::from(TEXT), Value::from("ada")];
    table.encode_values(&values, &mut by_values).expect("it fits");
    let bytes = note(3).to_vec();
    let layout = table.layout();
    let checked = RowRef::checked(&layout, &bytes).expect("a row");
    // A load that has not touched its table yet keeps rows.
    let mut load = db.begin_bulk_load(&table).expect("it begins");
    thermocline_engine::block_on(load.push(&note(4))).expect("it waits for its batch");
    db.add_column("notes", column("stars").default(5)).expect("a column");

    insert(&db, &table, &typed).expect("it is converted");
    insert(&db, &table, &by_values).expect("it is converted");
    insert(&db, &table, checked).expect("it is converted");
    thermocline_engine::block_on(load.push(&note(5))).expect("it waits for its batch");
    thermocline_engine::block_on(load.commit()).expect("they are converted");
    let upsert = |row: EncodedRow| {
        db.run(TransactionOptions::new(), async |tx| tx.upsert(&table, &row).await).expect("an upsert")
    };
    assert!(upsert(note(6)));
    for id in 1..=6 {
        let draft = if id == 2 { Value::Null } else { Value::Int4(7) };
        let expected = [Value::Int8(id), draft, Value::from(TEXT), Value::from("ada"), Value::Int4(5)];
        assert_eq!(read(&db, &table, id), expected);
    }
    // What the row had beyond the old columns is replaced, too.
    db.run(TransactionOptions::new(), async |tx| {
        tx.update(&table.primary(), &KeyBuf::new().i64(6), |row| Ok(row.set_i32(4, 1)?)).await
    })
    .expect("an update");
    assert!(!upsert(note(6)));
    assert_eq!(read(&db, &table, 6)[4], Value::Int4(5));

    // After a restart the program still has its old struct.
    db.close().expect("it closes");
    assert_eq!(Database::verify(dir.path()).expect("a database").findings, Vec::<String>::new());
    let db = open(dir.path());
    let table = db.table("notes").expect("it is there");
    insert(&db, &table, &note(7)).expect("it is converted");
    assert_eq!(read(&db, &table, 7)[4], Value::Int4(5));
}

#[test]
fn rows_from_before_other_changes_are_converted_change_by_change() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(dir.path());
    let table = notes(&db);
    let first = note(1);
    db.drop_column("notes", "draft").expect("it is there");
    insert(&db, &table, &first).expect("it is converted");
    assert_eq!(read(&db, &table, 1), [Value::Int8(1), Value::from(TEXT), Value::from("ada")]);
    db.rename_column("notes", "text", "body").expect("it is there");
    db.add_column("notes", column("stars")).expect("a column");
    // Same bytes, other meaning: the first int4 was a draft's number.
    db.drop_column("notes", "body").expect("it is there");
    insert(&db, &table, &note(2)).expect("it is converted");
    assert_eq!(read(&db, &table, 2), [Value::Int8(2), Value::from("ada"), Value::Null]);
    // Emptying a table changes nothing about its columns.
    db.truncate_table("notes").expect("it is emptied");
    insert(&db, &table, &note(3)).expect("it is converted");
    // A setter of the struct finds its column where it is now, and says so where it is gone.
    db.run(TransactionOptions::new(), async |tx| {
        tx.update(&table.primary(), &KeyBuf::new().i64(3), |row| Ok(NoteRow::set_author(row, "Grace")?)).await
    })
    .expect("an update");
    assert_eq!(read(&db, &table, 3), [Value::Int8(3), Value::from("Grace"), Value::Null]);
    let error = db
        .run(TransactionOptions::new(), async |tx| {
            tx.update(&table.primary(), &KeyBuf::new().i64(3), |row| Ok(NoteRow::set_draft(row, Some(1))?))
                .await
        })
        .expect_err("it is gone");
    assert_eq!(error.sqlstate(), "42703", "{error}");
}

#[test]
fn rows_of_layouts_that_the_table_never_had_are_refused() {
    thermocline_engine::row! {
        /// Like a note, but for the order of two columns: each of its rows is a valid note.
        struct Twisted as TwistedRow {
            id: i64,
            draft: Option<i32>,
            author: String,
            text: Varchar<40>,
        }
    }
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = notes(&db);
    let mut row = EncodedRow::new();
    Twisted { id: 1, draft: None, author: "a".to_owned(), text: "b".to_owned() }
        .encode(&mut row)
        .expect("it fits");
    assert!(table.layout().check(&row).is_ok() && TwistedRow(&row).id() == 1, "the bytes alone do not tell");
    let refused = |outcome: Result<(), Error>| {
        let error = outcome.expect_err("it is of other columns");
        assert!(matches!(error, Error::Row { source: RowError::OtherLayout, .. }), "{error}");
        assert_eq!(error.sqlstate(), "42804");
    };
    refused(insert(&db, &table, &row));
    refused(db.run(TransactionOptions::new(), async |tx| tx.upsert(&table, &row).await.map(drop)));
    refused(db.bulk_load(&table, [&row]).map(drop));
    // One that it will have only later.
    db.add_column("notes", column("stars")).expect("a column");
    let mut later = EncodedRow::new();
    let values = [Value::Int8(1), Value::Null, Value::from("t"), Value::from("a"), Value::Null];
    table.encode_values(&values, &mut later).expect("it fits");
    let other = Database::open_in_memory(Options::default()).expect("it opens");
    refused(insert(&other, &notes(&other), &later));
    insert(&db, &table, &later).expect("it is of this one");
}

/// A program that goes on reading by its `row!` while columns come and go.
#[test]
fn views_of_rows_are_right_or_refused_whatever_columns_the_table_has() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = notes(&db);
    db.create_index("notes", IndexSchema::ordered("by_author", &["author"])).expect("an index");
    insert(&db, &table, &note(1)).expect("a row");
    let (primary, by_author) = (table.primary(), table.index("by_author").expect("it is there"));
    let seen =
        |view: NoteRow<'_>| (view.id(), view.draft(), view.text().to_owned(), view.author().to_owned());
    let read = || {
        db.run(TransactionOptions::new(), async |tx| {
            let one = tx.read_view::<Note, _>(&primary, &KeyBuf::new().i64(1), seen).await?;
            let mut all = Vec::new();
            tx.scan_view::<Note>(&by_author, KeyRange::all(), Direction::Forward, |view| {
                all.push(seen(view));
                ControlFlow::Continue(())
            })
            .await?;
            assert_eq!(one.as_slice(), all, "both ways");
            Ok(one.expect("it is there"))
        })
    };
    let whole = (1, Some(7), TEXT.to_owned(), "ada".to_owned());
    assert_eq!(read().expect("its own layout"), whole);
    db.add_column("notes", Column::new("stars", Type::Int4).default(5)).expect("a column");
    assert_eq!(read().expect("a column more"), whole);
    let bytes = db
        .run(TransactionOptions::new(), async |tx| {
            tx.read(&primary, &KeyBuf::new().i64(1), <[u8]>::to_vec).await
        })
        .expect("a read")
        .expect("it is there");
    let refused = NoteRow::of(&table.layout(), &bytes).expect_err("of another layout");
    assert!(matches!(refused, RowError::OtherLayout), "{refused}");
    assert_eq!(NoteRow::of(Note::layout(), &note(1)).expect("its own").text(), TEXT);
    db.drop_column("notes", "draft").expect("nothing needs it");
    let error = read().expect_err("a column that the view has is gone");
    assert!(matches!(error, Error::Row { source: RowError::OtherLayout, .. }), "{error}");
    assert_eq!(error.sqlstate(), "42804");
}
