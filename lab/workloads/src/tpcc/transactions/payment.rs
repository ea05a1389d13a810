//! Payment (clause 2.5): a customer pays, and the warehouse, the district and the customer take note.

use std::fmt::Write;

use thermocline_engine::row::{Dec, KeyBuf, Timestamp};
use thermocline_engine::{Result, Transaction};

use super::{Scratch, district_key, missing, number_key, select_customer};
use crate::rows::{editing, in_table};
use crate::text::Text;
use crate::tpcc::input::{CustomerSelector, PaymentInput};
use crate::tpcc::schema::{CustomerRow, DistrictRow, Tables, WarehouseRow, money, units};

/// An address, as payment displays three of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AddressOutput {
    /// First line.
    pub street_1: Text<20>,
    /// Second line.
    pub street_2: Text<20>,
    /// City.
    pub city: Text<20>,
    /// State.
    pub state: Text<2>,
    /// Zip code.
    pub zip: Text<9>,
}

/// The output of payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaymentOutput {
    /// Address of the warehouse.
    pub warehouse: AddressOutput,
    /// Address of the district.
    pub district: AddressOutput,
    /// Number of the customer.
    pub c_id: i32,
    /// First name.
    pub c_first: Text<16>,
    /// Middle initials.
    pub c_middle: Text<2>,
    /// Last name.
    pub c_last: Text<16>,
    /// Address of the customer.
    pub customer: AddressOutput,
    /// Phone number.
    pub c_phone: Text<16>,
    /// Customer since, in microseconds since 1970 (UTC).
    pub c_since_us: i64,
    /// Credit: "GC" or "BC".
    pub c_credit: Text<2>,
    /// Credit limit.
    pub c_credit_lim_cents: i64,
    /// Discount, in ten-thousandths.
    pub c_discount_e4: i64,
    /// Balance after the payment.
    pub c_balance_cents: i64,
    /// The first 200 characters of C_DATA after the payment, for a customer with bad credit; else empty.
    pub c_data: Text<200>,
}

/// The address that stands in columns with the given prefix.
macro_rules! address {
    ($row:expr, $street_1:ident, $street_2:ident, $city:ident, $state:ident, $zip:ident) => {
        AddressOutput {
            street_1: Text::new($row.$street_1()),
            street_2: Text::new($row.$street_2()),
            city: Text::new($row.$city()),
            state: Text::new($row.$state()),
            zip: Text::new($row.$zip()),
        }
    };
}

/// Takes a payment.
///
/// # Errors
/// A conflict with another transaction, or a row that the population lacks.
pub async fn payment(
    transaction: &mut Transaction,
    tables: &Tables,
    scratch: &mut Scratch,
    input: &PaymentInput,
) -> Result<PaymentOutput> {
    let PaymentInput { w_id, d_id, c_w_id, c_d_id, amount_cents, at_us, .. } = *input;

    // Whatever is cold is read before anybody can wait for this payment's locks.
    match &input.customer {
        CustomerSelector::Id(c_id) => {
            transaction.prefetch_cold(&tables.customer, [&*number_key(c_w_id, c_d_id, *c_id)]).await?;
        }
        CustomerSelector::LastName(name) => {
            let prefix = district_key(c_w_id, c_d_id).str(name);
            transaction.prefetch_cold_prefix(&tables.customer_by_name, &prefix).await?;
        }
    }

    let warehouse = transaction
        .update(
            &tables.warehouse,
            &KeyBuf::new().i32(w_id),
            editing("warehouse", |editor| {
                let row = WarehouseRow(editor.row());
                let address = address!(row, w_street_1, w_street_2, w_city, w_state, w_zip);
                let (name, ytd_cents) = (Text::<10>::new(row.w_name()), units(row.w_ytd()));
                WarehouseRow::set_w_ytd(editor, money(ytd_cents + amount_cents))?;
                Ok((name, address))
            }),
        )
        .await?;
    let (w_name, warehouse) = warehouse.ok_or_else(|| missing("warehouse", w_id, 0, 0))?;

    let district = transaction
        .update(
            &tables.district,
            &district_key(w_id, d_id),
            editing("district", |editor| {
                let row = DistrictRow(editor.row());
                let address = address!(row, d_street_1, d_street_2, d_city, d_state, d_zip);
                let (name, ytd_cents) = (Text::<10>::new(row.d_name()), units(row.d_ytd()));
                DistrictRow::set_d_ytd(editor, money(ytd_cents + amount_cents))?;
                Ok((name, address))
            }),
        )
        .await?;
    let (d_name, district) = district.ok_or_else(|| missing("district", w_id, d_id, 0))?;

    let c_id = select_customer(transaction, tables, scratch, c_w_id, c_d_id, &input.customer).await?;
    let output = transaction
        .update(
            &tables.customer,
            &number_key(c_w_id, c_d_id, c_id),
            editing("customer", |editor| {
                let row = CustomerRow(editor.row());
                let mut output = PaymentOutput {
                    warehouse,
                    district,
                    c_id,
                    c_first: Text::new(row.c_first()),
                    c_middle: Text::new(row.c_middle()),
                    c_last: Text::new(row.c_last()),
                    customer: address!(row, c_street_1, c_street_2, c_city, c_state, c_zip),
                    c_phone: Text::new(row.c_phone()),
                    c_since_us: row.c_since().0,
                    c_credit: Text::new(row.c_credit()),
                    c_credit_lim_cents: units(row.c_credit_lim()),
                    c_discount_e4: units(row.c_discount()),
                    c_balance_cents: units(row.c_balance()) - amount_cents,
                    c_data: Text::EMPTY,
                };
                let (ytd_payment_cents, payment_cnt) = (units(row.c_ytd_payment()), row.c_payment_cnt());
                let data = (&*output.c_credit == "BC").then(|| bad_credit_data(input, c_id, row.c_data()));
                CustomerRow::set_c_balance(editor, money(output.c_balance_cents))?;
                CustomerRow::set_c_ytd_payment(editor, money(ytd_payment_cents + amount_cents))?;
                CustomerRow::set_c_payment_cnt(editor, payment_cnt + 1)?;
                if let Some(data) = data {
                    CustomerRow::set_c_data(editor, &data)?;
                    output.c_data = Text::new(&data);
                }
                Ok(output)
            }),
        )
        .await?
        .ok_or_else(|| missing("customer", c_w_id, c_d_id, c_id))?;

    let history = &mut scratch.history;
    (history.h_c_w_id, history.h_c_d_id, history.h_c_id) = (c_w_id, c_d_id, c_id);
    (history.h_w_id, history.h_d_id) = (w_id, d_id);
    (history.h_date, history.h_amount) = (Timestamp(at_us), Dec::from_scaled(amount_cents));
    history.h_data.clear();
    for part in [&*w_name, "    ", &*d_name] {
        history.h_data.push_str(part);
    }
    in_table("history", history.encode(&mut scratch.row))?;
    transaction.insert(&tables.history_table, &scratch.row).await?;
    Ok(output)
}

/// C_DATA of a customer with bad credit: the payment in front of what stood there, cut at 500 characters (2.5.2.2).
fn bad_credit_data(input: &PaymentInput, c_id: i32, old: &str) -> Text<500> {
    let PaymentInput { w_id, d_id, c_w_id, c_d_id, amount_cents, .. } = *input;
    let mut data = Text::EMPTY;
    write!(data, "{c_id} {c_d_id} {c_w_id} {d_id} {w_id} {}.{:02}|", amount_cents / 100, amount_cents % 100)
        .expect("a Text cuts what does not fit and never fails");
    data.push_str(old);
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::input::CustomerSelector;

    #[test]
    fn bad_credit_pushes_the_older_data_to_the_right() {
        let input = PaymentInput {
            w_id: 2,
            d_id: 3,
            c_w_id: 4,
            c_d_id: 5,
            customer: CustomerSelector::Id(6),
            amount_cents: 123_405,
            at_us: 0,
        };
        let data = bad_credit_data(&input, 6, &"x".repeat(500));
        assert!(data.starts_with("6 5 4 3 2 1234.05|xxx"), "{data}");
        assert_eq!(data.len(), 500);
        assert_eq!(&*bad_credit_data(&input, 6, "old"), "6 5 4 3 2 1234.05|old");
    }
}
