//! The guide's second program: many threads, tasks of tokio, and what to do about errors.

use thermocline_engine::row::{Column, KeyBuf, RowEditor, Type, Value};
use thermocline_engine::{
    Database, Error, IndexSchema, Isolation, Options, Result, Table, TableSchema, TransactionOptions,
};

fn counters(db: &Database) -> Result<Table> {
    let counters = db.create_table(
        TableSchema::new("counters")
            .column(Column::new("id", Type::Int8))
            .column(Column::new("count", Type::Int8))
            .primary_key(IndexSchema::hash("counters_key", &["id"])),
    )?;
    db.run(TransactionOptions::new(), async |tx| {
        tx.insert_values(&counters, &[Value::Int8(1), Value::Int8(0)]).await.map(drop)
    })?;
    Ok(counters)
}

/// Adds one, in a task of any runtime.
async fn add(db: Database, counters: Table) -> Result<()> {
    let options = TransactionOptions::new().isolation(Isolation::Serializable);
    db.transaction_boxed(options, |tx| {
        let counters = counters.clone();
        Box::pin(async move {
            let layout = counters.layout();
            let one_more = |row: &mut RowEditor<'_>| {
                let count = layout.i64(row.row(), 1).unwrap_or(0);
                row.set_i64(1, count + 1).map_err(|error| counters.error(error))
            };
            tx.update(&counters.primary(), &KeyBuf::new().i64(1), one_more).await.map(drop)
        })
    })
    .await
}

/// Tries again what may go well later; says what has to be done about the rest.
async fn insist(db: &Database, counters: &Table) -> Result<()> {
    let mut tries = 0;
    loop {
        match add(db.clone(), counters.clone()).await {
            Err(error) if error.is_retryable() || matches!(error, Error::OutOfMemory(_)) && tries < 20 => {
                tries += 1;
                tokio::time::sleep(std::time::Duration::from_millis(10 * tries)).await;
            }
            Err(error @ Error::DiskFull { .. }) => {
                eprintln!("{error}; reads go on meanwhile");
                return Err(error);
            }
            outcome => return outcome,
        }
    }
}

fn main() -> Result<()> {
    let db = Database::open_in_memory(Options::default().with_memory_limit(Some(64 << 20)))?;
    let counters = counters(&db)?;
    // Handles are cheap to clone, and may go to any thread.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| thermocline_engine::block_on(add(db.clone(), counters.clone())));
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (db, counters) = (db.clone(), counters.clone());
                tokio::spawn(async move { insist(&db, &counters).await })
            })
            .collect();
        for task in tasks {
            task.await.expect("no task panics")?;
        }
        Ok::<(), Error>(())
    })?;
    let layout = counters.layout();
    let count = db.run(TransactionOptions::new().read_only(), async |tx| {
        tx.read(&counters.primary(), &KeyBuf::new().i64(1), |row| layout.i64(row, 1)).await
    })?;
    assert_eq!(count.flatten(), Some(10));
    db.close()
}

#[cfg(test)]
#[test]
fn it_runs() {
    main().expect("it runs");
}
