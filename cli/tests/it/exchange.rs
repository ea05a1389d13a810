//! `tables`, `dump`, `load`, `backup` and `restore`: what one program writes, the other reads.

use std::path::Path;

use crate::{directory, errors, results, thermocline};

/// Makes the database of the guide's third program: one table, a thousand rows of which two are hard to write.
fn make(dir: &Path) {
    use thermocline_engine::row::{Column, Type, Value};
    use thermocline_engine::{Database, IndexSchema, Options, TableSchema};
    let db = Database::open(dir, Options::default()).expect("it opens");
    let schema = TableSchema::new("people")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("name", Type::Text).nullable())
        .column(Column::new("balance", Type::Decimal { precision: 12, scale: 2 }))
        .primary_key(IndexSchema::ordered("people_key", &["id"]));
    let people = db.create_table(schema).expect("a table");
    let name = |id: i64| match id {
        1 => Value::Null,
        2 => Value::from(""),
        id => Value::from(format!("name, \"{id}\"\nof two lines").as_str()),
    };
    let balance = |id: i64| Value::Decimal(format!("{id}.{:02}", id % 100).parse().expect("a decimal"));
    let rows = (1..=1_000).map(|id| [Value::Int8(id), name(id), balance(id)]);
    db.bulk_load(&people, rows).expect("the rows are new");
    db.close().expect("it closes");
}

fn run(arguments: &[&str]) -> String {
    let output = thermocline(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", errors(&output));
    results(&output)
}

fn fails(arguments: &[&str], code: i32) -> String {
    let output = thermocline(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", results(&output));
    errors(&output)
}

#[test]
fn what_is_dumped_is_loaded_into_a_copy_without_its_rows() {
    let outer = directory();
    let path = |name: &str| outer.path().join(name).to_str().expect("a path of text").to_owned();
    let (db, backup, restored) = (path("db"), path("backup"), path("restored"));
    make(Path::new(&db));
    let tables = run(&["tables", &db]);
    assert!(tables.contains("people") && tables.contains("balance decimal(12,2) not null"), "{tables}");

    assert!(run(&["--quiet", "backup", &db, &backup]).contains("backed up"));
    let said = run(&["--quiet", "restore", &backup, &restored]);
    assert!(said.contains("every checksum is right"), "{said}");
    assert!(fails(&["--quiet", "restore", &backup, &restored], 2).contains("not empty"));

    for form in ["--csv", "--json"] {
        let all = run(&["dump", &db, "--table", "people", form]);
        assert_eq!(all, run(&["dump", &restored, "--table", "people", form]), "{form}");
        let file = path("rows");
        std::fs::write(&file, &all).expect("writable");
        // Its own rows are in the way.
        let said = fails(&["--quiet", "load", &restored, "--table", "people", form, &file], 1);
        assert!(said.contains("line ") && said.contains("0 rows before it were loaded"), "{said}");
        let empty = path(&format!("empty{form}"));
        make_empty(Path::new(&empty));
        let said = run(&["--quiet", "load", &empty, "--table", "people", form, &file]);
        assert!(said.contains("1,000 rows loaded"), "{said}");
        assert_eq!(run(&["dump", &empty, "--table", "people", form]), all);
    }
}

/// The same table without rows.
fn make_empty(dir: &Path) {
    use thermocline_engine::{Database, Options};
    make(dir);
    let db = Database::open(dir, Options::default()).expect("it opens");
    db.truncate_table("people").expect("it is emptied");
    db.close().expect("it closes");
}

#[test]
fn what_cannot_be_is_told() {
    let outer = directory();
    let path = |name: &str| outer.path().join(name).to_str().expect("a path of text").to_owned();
    let db = path("db");
    make(Path::new(&db));
    assert!(fails(&["dump", &db, "--table", "persons"], 2).contains("persons"));
    assert!(fails(&["tables", &path("nothing")], 2).contains("no database is in"));
    assert!(fails(&["load", &db, "--table", "people", &path("nothing")], 2).contains("cannot read"));
    let file = path("rows");
    std::fs::write(&file, "id,balance\n5000,1.00\n5001,one\n").expect("writable");
    let said = fails(&["--quiet", "load", &db, "--table", "people", &file], 1);
    assert!(said.contains("line 3, column \"balance\""), "{said}");
    assert!(fails(&["--quiet", "backup", &db, &db], 2).contains("not empty"));
}
