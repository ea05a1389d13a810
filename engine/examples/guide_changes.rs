//! Two accounts, and a transfer between them.

use thermocline_engine::row::{Column, KeyBuf, RowEditor, Type, Value};
use thermocline_engine::{Database, IndexSchema, Options, Result, TableSchema, TransactionOptions};

fn main() -> Result<()> {
    let database = Database::open_in_memory(Options::default())?;
    let schema = TableSchema::new("accounts")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("balance", Type::Int8))
        .primary_key(IndexSchema::hash("accounts_key", &["id"]));
    let accounts = database.create_table(schema)?;
    let key = |id| KeyBuf::new().i64(id);
    // The body runs again by itself if another transaction gets in its way.
    let balance = database.run(TransactionOptions::new(), async |transaction| {
        for id in [1, 2] {
            transaction.insert_values(&accounts, &[Value::Int8(id), Value::Int8(100)]).await?;
        }
        for (id, amount) in [(1, -30), (2, 30)] {
            let pay = |row: &mut RowEditor<'_>| {
                let balance = accounts.layout().i64(row.row(), 1).unwrap_or(0) + amount;
                row.set_i64(1, balance).map_err(|error| accounts.error(error))
            };
            transaction.update(&accounts.primary(), &key(id), pay).await?;
        }
        transaction.read(&accounts.primary(), &key(2), |row| accounts.layout().i64(row, 1)).await
    })?;
    println!("account 2 holds {balance:?}");
    database.close()
}

#[cfg(test)]
#[test]
fn it_runs() {
    main().expect("it runs");
}
