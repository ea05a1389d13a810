//! The guide's third program: an order book. Statements, row handles, changes by closure, and workers that skip locked rows.

use std::ops::ControlFlow;

use thermocline_engine::row::{Column, EncodedRow, Type, Value};
use thermocline_engine::{
    Change, Changed, Database, Direction, Error, Index, IndexSchema, Isolation, KeyRange, LockMode, LockWait,
    Locked, Options, Result, RowHandle, Statement, Table, TableSchema, TransactionOptions,
};

/// Columns of `orders`.
const ID: usize = 0;
const PRICE: usize = 1;
const LEFT: usize = 2;

struct Book {
    db: Database,
    orders: Table,
    by_price: Index,
}

fn open() -> Result<Book> {
    let db = Database::open_in_memory(Options::default().with_memory_limit(Some(64 << 20)))?;
    let orders = db.create_table(
        TableSchema::new("orders")
            .column(Column::new("id", Type::Int8))
            .column(Column::new("price", Type::Int8))
            .column(Column::new("left", Type::Int8))
            .primary_key(IndexSchema::hash("orders_key", &["id"]))
            .index(IndexSchema::ordered("orders_by_price", &["price", "id"])),
    )?;
    Ok(Book { by_price: orders.index("orders_by_price")?, orders, db })
}

impl Book {
    fn column(&self, row: &[u8], column: usize) -> i64 {
        self.orders.layout().i64(row, column).unwrap_or(0)
    }

    /// The handles of the cheapest orders, up to a price.
    async fn cheapest(&self, statement: &mut Statement<'_>, price: i64) -> Result<Vec<RowHandle>> {
        let mut found = Vec::new();
        statement
            .scan(&self.by_price, KeyRange::all(), Direction::Forward, |row| {
                if self.column(&row, PRICE) > price {
                    return ControlFlow::Break(());
                }
                found.push(row.handle());
                ControlFlow::Continue(())
            })
            .await?;
        Ok(found)
    }

    /// Buys `wanted` pieces from the cheapest orders, and says what they have cost. Orders that another buyer has in hand are
    /// passed over.
    fn buy(&self, wanted: i64, price: i64) -> Result<i64> {
        let options = TransactionOptions::new().isolation(Isolation::ReadCommitted);
        self.db.run(options, async |tx| {
            let mut statement = tx.statement()?;
            let (mut missing, mut cost) = (wanted, 0);
            for handle in self.cheapest(&mut statement, price).await? {
                if missing == 0 {
                    break;
                }
                // Under the lock the newest version is shown: another buyer may have been there since the scan.
                let left = |row: &[u8]| self.column(row, LEFT);
                let (mode, wait) = (LockMode::NoKeyUpdate, LockWait::Skip);
                let locked = statement.lock_row(&self.orders, &handle, mode, wait, |row| left(&row)).await?;
                let Locked::Locked(1..) = locked else { continue };
                let bought = statement
                    .change_row(&self.orders, &handle, |row| {
                        let left = self.column(row.row(), LEFT);
                        let bought = left.min(missing);
                        if bought == left {
                            return Ok((Change::Delete, bought));
                        }
                        row.set_i64(LEFT, left - bought)?;
                        Ok((Change::Update, bought))
                    })
                    .await?;
                if let Changed::Updated(pieces) | Changed::Deleted(pieces) = bought {
                    missing -= pieces;
                    cost += pieces * self.column(statement.old_row(), PRICE);
                }
            }
            Ok(cost)
        })
    }

    /// Makes all orders dearer. The scan goes through the index that is changed, and meets each order once.
    fn raise(&self, by: i64) -> Result<()> {
        self.db.run(TransactionOptions::new(), async |tx| {
            let mut statement = tx.statement()?;
            for handle in self.cheapest(&mut statement, i64::MAX).await? {
                let raised = statement
                    .change_row(&self.orders, &handle, |row| {
                        let price = self.column(row.row(), PRICE);
                        row.set_i64(PRICE, price + by)?;
                        Ok((Change::Update, ()))
                    })
                    .await?;
                assert_eq!(raised, Changed::Updated(()));
            }
            Ok(())
        })
    }

    /// Enters an order, or adds to the one that has its number.
    fn enter(&self, id: i64, price: i64, pieces: i64) -> Result<()> {
        let mut row = EncodedRow::new();
        self.orders.encode_values(&[Value::Int8(id), Value::Int8(price), Value::Int8(pieces)], &mut row)?;
        self.db.run(TransactionOptions::new(), async |tx| {
            let mut statement = tx.statement()?;
            match statement.insert(&self.orders, &row).await {
                Err(Error::DuplicateKey { .. }) => {}
                outcome => return outcome.map(drop),
            }
            let Some(there) = statement.take_refusing_row()? else { return Ok(()) };
            let added = statement
                .change_row(&self.orders, &there, |row| {
                    let left = self.column(row.row(), LEFT);
                    row.set_i64(LEFT, left + pieces)?;
                    Ok((Change::Update, ()))
                })
                .await?;
            assert_eq!(added, Changed::Updated(()));
            Ok(())
        })
    }

    fn left(&self) -> Result<i64> {
        self.db.run(TransactionOptions::new(), async |tx| {
            let mut left = 0;
            tx.scan_table(&self.orders, |row| {
                left += self.column(row, LEFT);
                ControlFlow::Continue(())
            })
            .await?;
            Ok(left)
        })
    }
}

fn main() -> Result<()> {
    let book = open()?;
    for id in 0..100 {
        book.enter(id, 10 + id % 10, 5)?;
    }
    book.enter(7, 17, 5)?;
    assert_eq!(book.left()?, 505);
    // Two pieces of the cheapest order.
    assert_eq!(book.buy(2, 100)?, 20);
    book.raise(1000)?;
    assert_eq!(book.buy(1, 100)?, 0);
    // Many buyers: each piece is sold once.
    let cost: Result<Vec<i64>> = std::thread::scope(|scope| {
        let buyers: Vec<_> = (0..4).map(|_| scope.spawn(|| book.buy(50, 2000))).collect();
        buyers.into_iter().map(|buyer| buyer.join().expect("a buyer panicked")).collect()
    });
    let sold = 503 - book.left()?;
    let cost: i64 = cost?.iter().sum();
    assert!(sold <= 200 && cost >= sold * 1010 && cost < sold * 1020, "{sold} pieces for {cost}");
    let key = book.by_price.table().primary().key_of_values(&[Value::Int8(99)])?;
    let row = book.db.run(TransactionOptions::new(), async |tx| {
        tx.read(&book.orders.primary(), &key, |row| book.column(row, ID)).await
    })?;
    println!("{sold} pieces sold for {cost}; order {row:?} is still there");
    Ok(())
}

#[cfg(test)]
#[test]
fn it_runs() {
    main().expect("it runs");
}
