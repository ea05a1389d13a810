//! The time that a row in memory takes in a scan, in nanoseconds, by row and by column, where rows lie as they came and where each was
//! changed in any order: `cargo run --release -p thermocline-engine --example column_bench [rows]`.

use std::ops::ControlFlow;

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_base::rng::Rng;
use thermocline_engine::columns::Values;
use thermocline_engine::row::{Column, Decimal, KeyBuf, Timestamp, Type, Value};
use thermocline_engine::{Database, IndexSchema, Options, Table, TableSchema, TransactionOptions};

const ROUNDS: usize = 5;
/// Rows that a transaction writes.
const TRANSACTION: i64 = 10_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows: i64 = std::env::args().nth(1).map_or(Ok(2_000_000), |rows| rows.parse())?;
    let db = Database::open_in_memory(Options::default().with_memory_limit(Some(6 << 30)))?;
    let lines = db.create_table(
        TableSchema::new("lines")
            .column(Column::new("line", Type::Int8))
            .column(Column::new("number", Type::Int2))
            .column(Column::new("delivered", Type::Timestamp).nullable())
            .column(Column::new("quantity", Type::Int2))
            .column(Column::new("amount", Type::Decimal { precision: 6, scale: 2 }))
            .column(Column::new("info", Type::Char(24)))
            .primary_key(IndexSchema::hash("lines_key", &["line"])),
    )?;
    for from in (0..rows).step_by(TRANSACTION as usize) {
        db.run(TransactionOptions::new(), async |tx| {
            for line in from..(from + TRANSACTION).min(rows) {
                let delivered = if line % 10 < 3 { Value::Null } else { Value::Timestamp(Timestamp(line)) };
                let values = [
                    Value::Int8(line),
                    Value::Int2((line % 10) as i16),
                    delivered,
                    Value::Int2(5),
                    Value::Decimal(Decimal::new(i128::from(line % 999_999), 2).expect("four digits")),
                    Value::Text(format!("information {line:012}")),
                ];
                tx.insert_values(&lines, &values).await?;
            }
            Ok(())
        })?;
    }
    measure(&db, &lines, rows, "as they came")?;
    let mut random = Rng::new(1);
    for _ in 0..rows / TRANSACTION {
        db.run(TransactionOptions::new(), async |tx| {
            for _ in 0..TRANSACTION {
                let key = KeyBuf::new().i64(random.below(rows as u64) as i64);
                tx.update(&lines.primary(), &key, |row| Ok(row.set_i16(3, 5)?)).await?;
            }
            Ok(())
        })?;
    }
    measure(&db, &lines, rows, "changed in any order")
}

fn measure(db: &Database, lines: &Table, rows: i64, name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let layout = lines.layout();
    let (mut by_row, mut by_column) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (mut sum, mut total) = (0_i64, 0_i64);
        let began = SystemClock.now_ns();
        db.run(TransactionOptions::new().read_only(), async |tx| {
            sum = 0;
            tx.scan_table(lines, |row| {
                sum += i64::from(layout.i16(row, 3).unwrap_or(0));
                ControlFlow::Continue(())
            })
            .await
        })?;
        by_row.push((SystemClock.now_ns() - began) as f64 / rows as f64);
        let began = SystemClock.now_ns();
        db.run(TransactionOptions::new().read_only(), async |tx| {
            total = 0;
            let query = tx.scan_columns(lines).columns(["number", "quantity", "amount", "delivered"]);
            let mut scan = query.batch_rows(1024).open().await?;
            while let Some(batch) = tx.next_batch(&mut scan).await? {
                let Values::Int2(values) = batch.columns()[1].values() else { unreachable!("a smallint") };
                total += values.iter().map(|value| i64::from(*value)).sum::<i64>();
            }
            Ok(())
        })?;
        by_column.push((SystemClock.now_ns() - began) as f64 / rows as f64);
        assert_eq!(sum, total, "both have the same rows");
    }
    for (how, times) in [("one column by row", &mut by_row), ("four columns by column", &mut by_column)] {
        times.sort_by(f64::total_cmp);
        let (least, median, most) = (times[0], times[ROUNDS / 2], times[ROUNDS - 1]);
        println!("{rows} rows {name}, {how}: {median:.1} ns a row ({least:.1} to {most:.1})");
    }
    Ok(())
}
