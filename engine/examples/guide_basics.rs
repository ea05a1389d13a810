//! The guide's first program: open, define, write, read, scan, close.

use std::ops::{Bound, ControlFlow};

use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{
    Database, Direction, IndexSchema, KeyRange, Options, Result, TableSchema, TransactionOptions,
};

fn main() -> Result<()> {
    let directory = std::env::temp_dir().join(format!("guide-basics-{}", std::process::id()));
    let db = Database::open(&directory, Options::default().with_memory_limit(Some(256 << 20)))?;

    // A definition is durable when this returns.
    let books = db.create_table(
        TableSchema::new("books")
            .column(Column::new("id", Type::Int8).auto_increment())
            .column(Column::new("title", Type::Text))
            .column(Column::new("year", Type::Int4).nullable())
            .primary_key(IndexSchema::hash("books_key", &["id"]))
            .index(IndexSchema::ordered("by_year", &["year", "id"])),
    )?;

    // All of it or nothing; run again by itself where another transaction was in its way.
    db.run(TransactionOptions::new(), async |tx| {
        for (title, year) in [("Dune", 1965), ("Solaris", 1961), ("Roadside Picnic", 1972)] {
            tx.insert_values(&books, &[Value::Null, Value::from(title), Value::Int4(year)]).await?;
        }
        Ok(())
    })?;

    // By key. What the closure makes of the row is what comes back.
    let layout = books.layout();
    let title = db.run(TransactionOptions::new().read_only(), async |tx| {
        tx.read(&books.primary(), &KeyBuf::new().i64(1), |row| layout.str(row, 1).map(str::to_owned)).await
    })?;
    println!("the first one is {:?}", title.flatten());

    // By an ordered index: the books of the sixties.
    let by_year = books.index("by_year")?;
    let mut titles = Vec::new();
    db.run(TransactionOptions::new().read_only(), async |tx| {
        titles.clear();
        // The key of a column that may be null says first whether it is.
        let [from, to] = [1960, 1970].map(|year| KeyBuf::new().nullable(Some(year), KeyBuf::i32));
        let range = KeyRange::between(Bound::Included(&from), Bound::Excluded(&to));
        tx.scan(&by_year, range, Direction::Forward, |row| {
            titles.extend(layout.str(row, 1).map(str::to_owned));
            ControlFlow::Continue(())
        })
        .await
    })?;
    println!("of the sixties: {titles:?}");

    db.close()?;
    std::fs::remove_dir_all(&directory).ok();
    Ok(())
}

#[cfg(test)]
#[test]
fn it_runs() {
    main().expect("it runs");
}
