//! The guide's third program: definitions that change while the database runs, a backup, and a restore.

use std::ops::ControlFlow;

use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{Database, IndexSchema, Options, Result, TableSchema, TransactionOptions};

fn main() -> Result<()> {
    let place = std::env::temp_dir().join(format!("guide-operations-{}", std::process::id()));
    let options = Options::default().with_memory_limit(Some(128 << 20));
    let db = Database::open(place.join("database"), options.clone())?;
    let people = db.create_table(
        TableSchema::new("people")
            .column(Column::new("id", Type::Int8))
            .column(Column::new("name", Type::Text))
            .primary_key(IndexSchema::hash("people_key", &["id"])),
    )?;
    // Many rows at once: in portions, which may be more than memory holds.
    let rows = (1..=10_000).map(|id| [Value::Int8(id), Value::from("Ada")]);
    db.bulk_load_in_portions(&people, rows, |rows| println!("{rows} rows are there for good"))?;

    // Users of the table wait while its definition changes; rows outside of memory get the column when they are read.
    db.add_column("people", Column::new("city", Type::Text).default("London"))?;
    db.create_index("people", IndexSchema::ordered("by_city", &["city", "id"]))?;
    let layout = people.layout();
    let city = db.run(TransactionOptions::new().read_only(), async |tx| {
        tx.read(&people.primary(), &KeyBuf::new().i64(7), |row| layout.str(row, 2).map(str::to_owned)).await
    })?;
    assert_eq!(city.flatten().as_deref(), Some("London"));

    // A backup is of one moment; commits go on meanwhile. `Break` would end it and leave nothing.
    db.backup_with(place.join("backup"), |progress| {
        println!("{} of {} bytes", progress.bytes_done, progress.bytes);
        ControlFlow::Continue(())
    })?;
    db.close()?;

    // It opens as a database where it is, or is put where one is to be, every checksum looked at.
    Database::restore(place.join("backup"), place.join("restored"), |_| ControlFlow::Continue(()))?;
    let restored = Database::open(place.join("restored"), options.with_read_only(true))?;
    assert_eq!(restored.table_names(), ["people"]);
    restored.close()?;
    std::fs::remove_dir_all(&place).ok();
    Ok(())
}

#[cfg(test)]
#[test]
fn it_runs() {
    main().expect("it runs");
}
