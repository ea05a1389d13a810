//! Delivery (clause 2.7): the oldest order of each district that is not delivered yet.
//!
//! All ten districts in one database transaction, which the specification allows. A district without such an order is
//! skipped and reported (clause 2.7.4.2).
//!
//! With [`DeliveryRule::Keep`] the rows of NEW-ORDER stay, and what tells a delivered order is its carrier. The
//! consistency conditions 5 and 11 change with it; see [`check`](crate::tpcc::check).

use std::ops::{Bound, ControlFlow};

use thermocline_engine::row::Timestamp;
use thermocline_engine::{Direction, KeyRange, Result, Transaction};

use super::{district_key, line_key, missing, number_key};
use crate::rows::editing;
use crate::tpcc::DISTRICTS;
use crate::tpcc::input::{DeliveryInput, DeliveryRule};
use crate::tpcc::schema::{CustomerRow, NewOrderRow, OrderLineRow, OrderRow, Tables, money, units};

/// The result that a delivery writes into its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DeliveryOutput {
    /// The order that was delivered in each district (the first one at 0), if there was one.
    pub delivered: [Option<i32>; DISTRICTS as usize],
}

impl DeliveryOutput {
    /// Districts that had no order to deliver.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.delivered.iter().filter(|order| order.is_none()).count()
    }
}

/// Delivers the oldest order of each district.
///
/// # Errors
/// A conflict with another transaction, or a row that the population lacks.
pub async fn delivery(
    transaction: &mut Transaction,
    tables: &Tables,
    input: &DeliveryInput,
) -> Result<DeliveryOutput> {
    let mut output = DeliveryOutput::default();
    for (d_id, delivered) in (1..=DISTRICTS).zip(&mut output.delivered) {
        *delivered = deliver_district(transaction, tables, input, d_id).await?;
    }
    Ok(output)
}

/// Delivers the oldest order of a district and returns its number.
async fn deliver_district(
    transaction: &mut Transaction,
    tables: &Tables,
    input: &DeliveryInput,
    d_id: i16,
) -> Result<Option<i32>> {
    let DeliveryInput { w_id, carrier_id, at_us, rule } = *input;
    let mut from = match rule {
        DeliveryRule::Delete => i32::MIN,
        DeliveryRule::Keep(from) => from[d_id as usize - 1],
    };
    let (o_id, c_id, o_ol_cnt) = loop {
        let Some(o_id) = oldest_new_order(transaction, tables, w_id, d_id, from).await? else {
            return Ok(None);
        };
        let key = number_key(w_id, d_id, o_id);
        // At read committed another delivery may take the order between the search and the write: search on.
        if rule == DeliveryRule::Delete && !transaction.delete(&tables.new_order, &key).await? {
            continue;
        }
        let order = transaction
            .update(
                &tables.order,
                &key,
                editing("orders", |editor| {
                    let row = OrderRow(editor.row());
                    if row.o_carrier_id().is_some() {
                        return Ok(None);
                    }
                    let (c_id, o_ol_cnt) = (row.o_c_id(), row.o_ol_cnt());
                    OrderRow::set_o_carrier_id(editor, Some(carrier_id))?;
                    Ok(Some((c_id, o_ol_cnt)))
                }),
            )
            .await?;
        match order {
            None => return Err(missing("order", w_id, d_id, o_id)),
            Some(Some((c_id, o_ol_cnt))) => break (o_id, c_id, o_ol_cnt),
            // Delivered already: the next one.
            Some(None) => from = o_id + 1,
        }
    };

    let mut sum_cents = 0;
    for number in 1..=o_ol_cnt {
        let amount_cents = transaction
            .update(
                &tables.order_line,
                &line_key(w_id, d_id, o_id, number),
                editing("order_line", |editor| {
                    let amount_cents = units(OrderLineRow(editor.row()).ol_amount());
                    OrderLineRow::set_ol_delivery_d(editor, Some(Timestamp(at_us)))?;
                    Ok(amount_cents)
                }),
            )
            .await?;
        sum_cents += amount_cents.ok_or_else(|| missing("order line of order", w_id, d_id, o_id))?;
    }

    transaction
        .update(
            &tables.customer,
            &number_key(w_id, d_id, c_id),
            editing("customer", |editor| {
                let row = CustomerRow(editor.row());
                let (balance_cents, delivery_cnt) = (units(row.c_balance()), row.c_delivery_cnt());
                CustomerRow::set_c_balance(editor, money(balance_cents + sum_cents))?;
                CustomerRow::set_c_delivery_cnt(editor, delivery_cnt + 1)?;
                Ok(())
            }),
        )
        .await?
        .ok_or_else(|| missing("customer", w_id, d_id, c_id))?;
    Ok(Some(o_id))
}

/// The number of the first order from `from` on that NEW-ORDER holds.
async fn oldest_new_order(
    transaction: &mut Transaction,
    tables: &Tables,
    w_id: i32,
    d_id: i16,
    from: i32,
) -> Result<Option<i32>> {
    let first = number_key(w_id, d_id, from);
    let end = district_key(w_id, d_id + 1);
    let mut oldest = None;
    transaction
        .scan(
            &tables.new_order,
            KeyRange::between(Bound::Included(&*first), Bound::Excluded(&*end)),
            Direction::Forward,
            |row| {
                oldest = Some(NewOrderRow(row).no_o_id());
                ControlFlow::Break(())
            },
        )
        .await?;
    Ok(oldest)
}
