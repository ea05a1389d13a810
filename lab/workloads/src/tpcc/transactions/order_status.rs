//! Order-status (clause 2.6): a customer's last order and its lines. Read-only.

use std::ops::ControlFlow;

use thermocline_engine::{Direction, KeyRange, Result, Transaction};

use super::{Scratch, missing, number_key, select_customer};
use crate::text::Text;
use crate::tpcc::ORDER_LINES_MAX;
use crate::tpcc::input::OrderStatusInput;
use crate::tpcc::schema::{CustomerRow, OrderLineRow, OrderRow, Tables, units};

/// A line as order-status displays it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OrderStatusLine {
    /// Item.
    pub i_id: i32,
    /// Warehouse that supplied it.
    pub supply_w_id: i32,
    /// Quantity.
    pub quantity: i16,
    /// Amount.
    pub amount_cents: i64,
    /// When it was delivered, in microseconds since 1970 (UTC), if it was.
    pub delivery_us: Option<i64>,
}

/// The output of order-status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderStatusOutput {
    /// Number of the customer.
    pub c_id: i32,
    /// First name.
    pub c_first: Text<16>,
    /// Middle initials.
    pub c_middle: Text<2>,
    /// Last name.
    pub c_last: Text<16>,
    /// Balance.
    pub c_balance_cents: i64,
    /// Number of the last order.
    pub o_id: i32,
    /// When it was entered, in microseconds since 1970 (UTC).
    pub entry_us: i64,
    /// The carrier that delivered it, if it was delivered.
    pub carrier_id: Option<i16>,
    line_count: u8,
    line_space: [OrderStatusLine; ORDER_LINES_MAX],
}

impl OrderStatusOutput {
    /// The lines of the order.
    #[must_use]
    pub fn lines(&self) -> &[OrderStatusLine] {
        &self.line_space[..usize::from(self.line_count)]
    }
}

/// Asks for a customer's last order.
///
/// # Errors
/// A conflict with another transaction, or a row that the population lacks.
pub async fn order_status(
    transaction: &mut Transaction,
    tables: &Tables,
    scratch: &mut Scratch,
    input: &OrderStatusInput,
) -> Result<OrderStatusOutput> {
    let OrderStatusInput { w_id, d_id, .. } = *input;
    let c_id = select_customer(transaction, tables, scratch, w_id, d_id, &input.customer).await?;
    let customer_key = number_key(w_id, d_id, c_id);
    let customer = transaction
        .read(&tables.customer, &customer_key, |row| {
            let row = CustomerRow(row);
            let (first, middle) = (Text::new(row.c_first()), Text::new(row.c_middle()));
            (first, middle, Text::new(row.c_last()), units(row.c_balance()))
        })
        .await?;
    let (c_first, c_middle, c_last, c_balance_cents) =
        customer.ok_or_else(|| missing("customer", w_id, d_id, c_id))?;

    let mut last_order = None;
    transaction
        .scan(&tables.order_by_customer, KeyRange::prefix(&customer_key), Direction::Backward, |row| {
            let row = OrderRow(row);
            last_order = Some((row.o_id(), row.o_entry_d().0, row.o_carrier_id()));
            ControlFlow::Break(())
        })
        .await?;
    let (o_id, entry_us, carrier_id) =
        last_order.ok_or_else(|| missing("order of customer", w_id, d_id, c_id))?;

    let mut line_space = [OrderStatusLine::default(); ORDER_LINES_MAX];
    let mut line_count = 0;
    transaction
        .scan(
            &tables.order_line,
            KeyRange::prefix(&number_key(w_id, d_id, o_id)),
            Direction::Forward,
            |row| {
                let row = OrderLineRow(row);
                // An order has at most fifteen lines; should there be more, the display has no room for them.
                let Some(line) = line_space.get_mut(line_count) else { return ControlFlow::Break(()) };
                *line = OrderStatusLine {
                    i_id: row.ol_i_id(),
                    supply_w_id: row.ol_supply_w_id(),
                    quantity: row.ol_quantity(),
                    amount_cents: units(row.ol_amount()),
                    delivery_us: row.ol_delivery_d().map(|at| at.0),
                };
                line_count += 1;
                ControlFlow::Continue(())
            },
        )
        .await?;
    Ok(OrderStatusOutput {
        c_id,
        c_first,
        c_middle,
        c_last,
        c_balance_cents,
        o_id,
        entry_us,
        carrier_id,
        line_count: line_count as u8,
        line_space,
    })
}
