//! The README's example: two accounts, and a transfer between them that survives a crash.

use thermocline_engine::row::{KeyBuf, row};
use thermocline_engine::{Database, IndexSchema, Options, Result, TableSchema, TransactionOptions};

row! { pub struct Account as AccountRow { id: i32, balance: i64 } }

fn main() -> Result<()> {
    let database = Database::open_in_memory(Options::default())?;
    let schema = TableSchema::new("accounts").columns(Account::schema_columns());
    let accounts = database.create_table(schema.primary_key(IndexSchema::hash("pk", &["id"])))?;
    database.run(TransactionOptions::default(), async |transaction| {
        for id in [1, 2] {
            let mut row = Vec::new();
            Account { id, balance: 100 }.encode(&mut row);
            transaction.insert(&accounts, &row).await?;
        }
        Ok(())
    })?;
    // Runs again by itself if another transaction gets in its way.
    database.run(TransactionOptions::default(), async |transaction| {
        for (id, amount) in [(1, -30), (2, 30)] {
            let change = |row: &mut RowEditor<'_>| {
                let balance = AccountRow(row.row()).balance();
                AccountRow::set_balance(row, balance + amount);
                Ok(())
            };
            transaction.update(&accounts.primary(), &KeyBuf::new().i32(id), change).await?;
        }
        Ok(())
    })
}
