//! Each of the twelve conditions, violated on purpose, is reported with its key. Which other conditions a
//! violation breaks is part of the expectation.

use thermocline_engine::row::{Dec, EncodedRow, KeyBuf, Timestamp};
use thermocline_engine::{Database, Result, Transaction, TransactionOptions};
use thermocline_workloads::rows::editing;
use thermocline_workloads::tpcc::check::{NewOrders, VIOLATIONS_MAX, check, check_with};
use thermocline_workloads::tpcc::schema::{
    CustomerRow, DistrictRow, History, NewOrder, OrderLineRow, OrderRow, Tables, WarehouseRow, money, units,
};

use crate::{LOADED_AT_US, loaded};

fn district(d: i16) -> KeyBuf {
    KeyBuf::new().i32(1).i16(d)
}

/// Key of customer or order `number` of district `d`.
fn number(d: i16, number: i32) -> KeyBuf {
    district(d).i32(number)
}

fn line(d: i16, o_id: i32, line: i16) -> KeyBuf {
    number(d, o_id).i16(line)
}

/// Plants a violation into a fresh population and returns the conditions that report one, having looked for `key`
/// among what condition `condition` reports.
fn violated(
    condition: u8,
    key: &str,
    mut plant: impl AsyncFnMut(&mut Transaction, &Tables) -> Result<()>,
) -> Vec<u8> {
    let (database, tables) = loaded(1);
    assert_eq!(numbers(&database), [], "the population is consistent before the violation is planted");
    database
        .run(TransactionOptions::default(), async |transaction| plant(transaction, &tables).await)
        .unwrap();
    let results = check(&database).unwrap();
    let result = &results[usize::from(condition) - 1];
    assert_eq!(result.number, condition);
    assert!(result.violations.iter().any(|violation| violation.key.contains(key)), "{result}");
    numbers(&database)
}

/// The numbers of the violated conditions.
fn numbers(database: &Database) -> Vec<u8> {
    let results = check(database).unwrap();
    results.iter().filter(|result| !result.holds()).map(|result| result.number).collect()
}

async fn add_to_w_ytd(transaction: &mut Transaction, tables: &Tables, cents: i64) -> Result<()> {
    let updated = transaction
        .update(
            &tables.warehouse,
            &KeyBuf::new().i32(1),
            editing("warehouse", |editor| {
                let ytd = units(WarehouseRow(editor.row()).w_ytd());
                WarehouseRow::set_w_ytd(editor, money(ytd + cents))
            }),
        )
        .await?;
    assert!(updated.is_some());
    Ok(())
}

async fn add_to_d_ytd(transaction: &mut Transaction, tables: &Tables, d: i16, cents: i64) -> Result<()> {
    let updated = transaction
        .update(
            &tables.district,
            &district(d),
            editing("district", |editor| {
                let ytd = units(DistrictRow(editor.row()).d_ytd());
                DistrictRow::set_d_ytd(editor, money(ytd + cents))
            }),
        )
        .await?;
    assert!(updated.is_some());
    Ok(())
}

async fn add_to_ol_cnt(transaction: &mut Transaction, tables: &Tables, key: &[u8], count: i16) -> Result<()> {
    let updated = transaction
        .update(
            &tables.order,
            key,
            editing("orders", |editor| {
                let ol_cnt = OrderRow(editor.row()).o_ol_cnt();
                OrderRow::set_o_ol_cnt(editor, ol_cnt + count)
            }),
        )
        .await?;
    assert!(updated.is_some());
    Ok(())
}

#[test]
fn condition_1_compares_warehouse_and_districts() {
    let found = violated(1, "W_ID 1", async |transaction, tables| add_to_w_ytd(transaction, tables, 1).await);
    assert_eq!(found, [1, 8]);
}

#[test]
fn condition_2_compares_the_next_order_with_the_last() {
    let found = violated(2, "(1, 4)", async |transaction, tables| {
        let updated = transaction
            .update(
                &tables.district,
                &district(4),
                editing("district", |editor| DistrictRow::set_d_next_o_id(editor, 12)),
            )
            .await?;
        assert!(updated.is_some());
        Ok(())
    });
    assert_eq!(found, [2]);
}

#[test]
fn condition_3_finds_a_gap_among_the_new_orders() {
    let found = violated(3, "(1, 2)", async |transaction, tables| {
        assert!(transaction.delete(&tables.new_order, &number(2, 9)).await?);
        Ok(())
    });
    assert_eq!(found, [3, 5, 11]);
}

#[test]
fn condition_4_counts_the_lines_of_a_district() {
    let found = violated(4, "(1, 3)", async |transaction, tables| {
        add_to_ol_cnt(transaction, tables, &number(3, 5), 1).await
    });
    assert_eq!(found, [4, 6]);
}

#[test]
fn condition_5_compares_carriers_and_new_orders() {
    let found = violated(5, "(1, 1, 10)", async |transaction, tables| {
        let updated = transaction
            .update(
                &tables.order,
                &number(1, 10),
                editing("orders", |editor| OrderRow::set_o_carrier_id(editor, Some(3))),
            )
            .await?;
        assert!(updated.is_some());
        Ok(())
    });
    assert_eq!(found, [5, 7]);
}

#[test]
fn condition_6_counts_the_lines_of_an_order() {
    let found = violated(6, "(1, 3, 6)", async |transaction, tables| {
        add_to_ol_cnt(transaction, tables, &number(3, 5), 1).await?;
        add_to_ol_cnt(transaction, tables, &number(3, 6), -1).await
    });
    assert_eq!(found, [6]);
}

#[test]
fn condition_6_reports_lines_without_an_order() {
    let found = violated(6, "(1, 9, 3)", async |transaction, tables| {
        assert!(transaction.delete(&tables.order, &number(9, 3)).await?);
        Ok(())
    });
    assert_eq!(found, [4, 6, 11]);
}

#[test]
fn condition_7_compares_delivery_dates_and_carriers() {
    let found = violated(7, "(1, 8, 2, 1)", async |transaction, tables| {
        let updated = transaction
            .update(
                &tables.order_line,
                &line(8, 2, 1),
                editing("order_line", |editor| OrderLineRow::set_ol_delivery_d(editor, None)),
            )
            .await?;
        assert!(updated.is_some());
        Ok(())
    });
    assert_eq!(found, [7]);
}

#[test]
fn condition_8_compares_the_warehouse_with_its_history() {
    let found = violated(8, "W_ID 1", async |transaction, tables| {
        add_to_w_ytd(transaction, tables, 5).await?;
        add_to_d_ytd(transaction, tables, 6, 5).await
    });
    assert_eq!(found, [8, 9]);
}

#[test]
fn condition_9_compares_the_districts_with_their_history() {
    let found = violated(9, "(1, 7)", async |transaction, tables| {
        add_to_d_ytd(transaction, tables, 6, 5).await?;
        add_to_d_ytd(transaction, tables, 7, -5).await
    });
    assert_eq!(found, [9]);
}

/// Changes a customer's balance and payments by so many cents, and its deliveries by a count.
async fn change_customer(
    transaction: &mut Transaction,
    tables: &Tables,
    (balance, paid, deliveries): (i64, i64, i32),
) -> Result<()> {
    let updated = transaction
        .update(
            &tables.customer,
            &number(5, 7),
            editing("customer", |editor| {
                let row = CustomerRow(editor.row());
                let old = (units(row.c_balance()), units(row.c_ytd_payment()), row.c_delivery_cnt());
                CustomerRow::set_c_balance(editor, money(old.0 + balance))?;
                CustomerRow::set_c_ytd_payment(editor, money(old.1 + paid))?;
                CustomerRow::set_c_delivery_cnt(editor, old.2 + deliveries)
            }),
        )
        .await?;
    assert!(updated.is_some());
    Ok(())
}

#[test]
fn condition_10_compares_balances_with_deliveries_and_payments() {
    let found = violated(10, "(1, 5, 7)", async |transaction, tables| {
        change_customer(transaction, tables, (1, -1, 0)).await
    });
    assert_eq!(found, [10]);
}

#[test]
fn condition_11_counts_deliveries() {
    let found = violated(11, "(1, 5)", async |transaction, tables| {
        change_customer(transaction, tables, (0, 0, 1)).await
    });
    assert_eq!(found, [11]);
}

#[test]
fn condition_12_compares_payments_with_deliveries() {
    let found = violated(12, "(1, 5, 7)", async |transaction, tables| {
        change_customer(transaction, tables, (0, 1, 0)).await
    });
    assert_eq!(found, [12]);
}

#[test]
fn rows_of_districts_that_do_not_exist_are_reported() {
    let found = violated(3, "(2, 1)", async |transaction, tables| {
        let mut row = EncodedRow::new();
        NewOrder { no_o_id: 1, no_d_id: 1, no_w_id: 2 }.encode(&mut row).unwrap();
        transaction.insert(&tables.new_order_table, &row).await?;
        Ok(())
    });
    assert_eq!(found, [3]);
    let found = violated(4, "(1, 6)", async |transaction, tables| {
        assert!(transaction.delete(&tables.district, &district(6)).await?);
        Ok(())
    });
    assert_eq!(found, [1, 2, 3, 4, 9, 10]);
}

#[test]
fn districts_without_their_warehouse_are_reported() {
    let found = violated(1, "W_ID 1", async |transaction, tables| {
        assert!(transaction.delete(&tables.warehouse, &KeyBuf::new().i32(1)).await?);
        Ok(())
    });
    assert_eq!(found, [1, 8]);
}

#[test]
fn payments_of_nobody_to_nobody_are_reported() {
    let found = violated(8, "W_ID 3", async |transaction, tables| {
        let payment = History {
            h_c_id: 99,
            h_c_d_id: 1,
            h_c_w_id: 1,
            h_d_id: 1,
            h_w_id: 3,
            h_date: Timestamp(LOADED_AT_US),
            h_amount: Dec::from_scaled(100),
            h_data: String::new(),
        };
        let mut row = EncodedRow::new();
        payment.encode(&mut row).unwrap();
        transaction.insert(&tables.history_table, &row).await?;
        Ok(())
    });
    assert_eq!(found, [8, 9, 10]);
}

#[test]
fn violations_are_counted_beyond_those_that_are_listed() {
    let (database, tables) = loaded(1);
    database
        .run(TransactionOptions::default(), async |transaction| {
            for d in 1..=10 {
                for o_id in 8..=10 {
                    assert!(transaction.delete(&tables.new_order, &number(d, o_id)).await?);
                }
            }
            Ok(())
        })
        .unwrap();
    let results = check(&database).unwrap();
    let fifth = &results[4];
    assert_eq!((fifth.violated, fifth.violations.len()), (30, VIOLATIONS_MAX));
    assert!(fifth.checked >= 100);
    assert!(fifth.to_string().contains("O_CARRIER_ID is null, NEW-ORDER does not hold it"), "{fifth}");
    let kept = check_with(&database, NewOrders::Kept).unwrap();
    assert_eq!(kept[4].violated, 30, "kept or not, an order that is not delivered is a new one");
}
