//! The README's example: two accounts, and a transfer between them.

use thermocline_engine::row::{KeyBuf, RowEditor};
use thermocline_engine::{Database, IndexSchema, Options, Result, TableSchema, TransactionOptions, row};

row! { struct Account as AccountRow { id: i32, balance: i64 } }

fn main() -> Result<()> {
    let database = Database::open_in_memory(Options::default())?;
    let schema = TableSchema::new("accounts").columns(Account::schema_columns());
    let accounts = database.create_table(schema.primary_key(IndexSchema::hash("pk", &["id"])))?;
    let pay = |amount: i64| {
        move |row: &mut RowEditor<'_>| {
            let balance = AccountRow(row.row()).balance();
            Ok(AccountRow::set_balance(row, balance + amount)?)
        }
    };
    // Runs again by itself if another transaction gets in its way.
    database.run(TransactionOptions::default(), async |transaction| {
        let mut row = Vec::new();
        for id in [1, 2] {
            Account { id, balance: 100 }.encode(&mut row)?;
            transaction.insert(&accounts, &row).await?;
        }
        transaction.update(&accounts.primary(), &KeyBuf::new().i32(1), pay(-30)).await?;
        transaction.update(&accounts.primary(), &KeyBuf::new().i32(2), pay(30)).await?;
        let balance = transaction
            .read(&accounts.primary(), &KeyBuf::new().i32(2), |row| AccountRow(row).balance())
            .await?;
        println!("account 2 holds {balance:?}");
        Ok(())
    })
}
