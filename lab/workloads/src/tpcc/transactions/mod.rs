//! The five business transactions (clauses 2.4 to 2.8), each in a file of its own, and what they share.
//!
//! - Each is an asynchronous function over a [`Transaction`] that the caller begins and commits. It takes an input that
//!   was drawn outside, so that a retry asks for the same thing, and returns what the specification has the terminal
//!   display.
//! - Amounts are exact: cents, and taxes in ten-thousandths. They are added as integers and rounded once, half away from
//!   zero, where the specification multiplies.
//! - The most contended row (the warehouse of a payment, the district of a new-order) is written first: whoever comes
//!   second learns it before it has done any work. Stock rows are written in the order of their keys, so that two
//!   orders cannot wait for each other in a circle over them.
//! - Nothing is allocated per transaction beyond what [`Scratch`] keeps.

mod delivery;
mod new_order;
mod order_status;
mod payment;
mod stock_level;

pub use delivery::{DeliveryOutput, delivery};
pub use new_order::{NewOrderLineOutput, NewOrderOutput, new_order};
pub use order_status::{OrderStatusLine, OrderStatusOutput, order_status};
pub use payment::{AddressOutput, PaymentOutput, payment};
pub use stock_level::{StockLevelOutput, stock_level};

use std::ops::ControlFlow;

use thermocline_engine::row::{EncodedRow, KeyBuf};
use thermocline_engine::{Direction, Error, KeyRange, Result, Transaction};

use super::input::CustomerSelector;
use super::schema::{CustomerRow, History, OrderLine, Tables};

/// Buffers that a terminal keeps from one transaction to the next.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The encoded row that is about to be inserted.
    pub(crate) row: EncodedRow,
    /// The rows that hold a text, so that the text's memory is used again.
    pub(crate) order_line: OrderLine,
    pub(crate) history: History,
    /// Customers of one name, or items of recent orders.
    pub(crate) numbers: Vec<i32>,
}

/// The key of a district, and the prefix of everything in it.
#[inline]
pub(crate) fn district_key(w_id: i32, d_id: i16) -> KeyBuf {
    KeyBuf::new().i32(w_id).i16(d_id)
}

/// The key of a customer or of an order.
#[inline]
pub(crate) fn number_key(w_id: i32, d_id: i16, number: i32) -> KeyBuf {
    district_key(w_id, d_id).i32(number)
}

/// The key of an order line.
#[inline]
pub(crate) fn line_key(w_id: i32, d_id: i16, o_id: i32, number: i16) -> KeyBuf {
    number_key(w_id, d_id, o_id).i16(number)
}

/// A row that the population must contain is not there.
#[cold]
pub(crate) fn missing(what: &str, w_id: i32, d_id: i16, number: i32) -> Error {
    Error::Refused(format!(
        "the TPC-C population has no {what} ({w_id}, {d_id}, {number}); load it with the scale that the terminals use"
    ))
}

/// The number of the customer that `selector` means: by last name, of the customers that bear it the one in the
/// middle by first name, at position ⌈n/2⌉ (clause 2.5.2.2).
pub(crate) async fn select_customer(
    transaction: &mut Transaction,
    tables: &Tables,
    scratch: &mut Scratch,
    w_id: i32,
    d_id: i16,
    selector: &CustomerSelector,
) -> Result<i32> {
    let name = match selector {
        CustomerSelector::Id(c_id) => return Ok(*c_id),
        CustomerSelector::LastName(name) => name,
    };
    let numbers = &mut scratch.numbers;
    numbers.clear();
    let prefix = district_key(w_id, d_id).str(name);
    transaction
        .scan(&tables.customer_by_name, KeyRange::prefix(&prefix), Direction::Forward, |row| {
            numbers.push(CustomerRow(row).c_id());
            ControlFlow::Continue(())
        })
        .await?;
    if numbers.is_empty() {
        return Err(Error::Refused(format!(
            "no customer of district ({w_id}, {d_id}) is named {name}; load the population with the scale that the \
             terminals use"
        )));
    }
    Ok(numbers[numbers.len().div_ceil(2) - 1])
}
