//! New-order (clause 2.4): enters an order of five to fifteen lines.
//!
//! One order in a hundred asks for an item that does not exist. Its whole profile is executed all the same, then the
//! output says so and the caller rolls the transaction back (clause 2.4.2.3); it counts as completed.

use thermocline_engine::row::{Dec, KeyBuf, Timestamp};
use thermocline_engine::{Result, Transaction};

use super::{Scratch, district_key, missing, number_key};
use crate::rows::{editing, in_table};
use crate::text::Text;
use crate::tpcc::ORDER_LINES_MAX;
use crate::tpcc::input::NewOrderInput;
use crate::tpcc::random::ORIGINAL;
use crate::tpcc::schema::{
    CustomerRow, DistrictRow, ItemRow, NewOrder, Order, StockRow, Tables, WarehouseRow, units,
};

/// A line as new-order displays it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NewOrderLineOutput {
    /// Warehouse that supplies the item.
    pub supply_w_id: i32,
    /// Item.
    pub i_id: i32,
    /// Name of the item; empty if there is no such item.
    pub i_name: Text<24>,
    /// Ordered quantity.
    pub quantity: i16,
    /// Quantity that is left in stock.
    pub s_quantity: i16,
    /// Is the item an original brand ("B"), rather than generic ("G")?
    pub is_brand: bool,
    /// Price of one.
    pub i_price_cents: i64,
    /// Price of the line.
    pub amount_cents: i64,
}

/// The output of new-order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrderOutput {
    /// Number that the order got.
    pub o_id: i32,
    /// Does the order ask for an item that does not exist ("Item number is not valid")? Then the caller rolls back.
    pub must_roll_back: bool,
    /// Customer's last name.
    pub c_last: Text<16>,
    /// Customer's credit: "GC" or "BC".
    pub c_credit: Text<2>,
    /// Customer's discount, in ten-thousandths.
    pub c_discount_e4: i64,
    /// Tax of the warehouse, in ten-thousandths.
    pub w_tax_e4: i64,
    /// Tax of the district, in ten-thousandths.
    pub d_tax_e4: i64,
    /// The price of the order, after discount and taxes.
    pub total_cents: i64,
    line_count: u8,
    line_space: [NewOrderLineOutput; ORDER_LINES_MAX],
}

impl NewOrderOutput {
    /// The lines, in the order of the input.
    #[must_use]
    pub fn lines(&self) -> &[NewOrderLineOutput] {
        &self.line_space[..usize::from(self.line_count)]
    }
}

/// Enters an order.
///
/// # Errors
/// A conflict with another transaction, or a row that the population lacks.
pub async fn new_order(
    transaction: &mut Transaction,
    tables: &Tables,
    scratch: &mut Scratch,
    input: &NewOrderInput,
) -> Result<NewOrderOutput> {
    let NewOrderInput { w_id, d_id, c_id, at_us, .. } = *input;
    let lines = input.lines();

    // All that the lines will need, at once: the misses overlap.
    let customer_key = number_key(w_id, d_id, c_id);
    let item_keys: [KeyBuf; ORDER_LINES_MAX] =
        std::array::from_fn(|at| lines.get(at).map_or_else(KeyBuf::new, |line| KeyBuf::new().i32(line.i_id)));
    let stock_keys: [KeyBuf; ORDER_LINES_MAX] = std::array::from_fn(|at| {
        lines.get(at).map_or_else(KeyBuf::new, |line| KeyBuf::new().i32(line.supply_w_id).i32(line.i_id))
    });
    transaction.prefetch_cold(&tables.stock, stock_keys[..lines.len()].iter().map(|key| &**key)).await?;
    transaction.prefetch_cold(&tables.item, item_keys[..lines.len()].iter().map(|key| &**key)).await?;
    transaction.prefetch_cold(&tables.customer, [&*customer_key]).await?;

    let district = transaction
        .update(
            &tables.district,
            &district_key(w_id, d_id),
            editing("district", |editor| {
                let row = DistrictRow(editor.row());
                let (o_id, d_tax_e4) = (row.d_next_o_id(), units(row.d_tax()));
                DistrictRow::set_d_next_o_id(editor, o_id + 1)?;
                Ok((o_id, d_tax_e4))
            }),
        )
        .await?;
    let (o_id, d_tax_e4) = district.ok_or_else(|| missing("district", w_id, d_id, 0))?;

    let w_tax_e4 = transaction
        .read(&tables.warehouse, &KeyBuf::new().i32(w_id), |row| units(WarehouseRow(row).w_tax()))
        .await?
        .ok_or_else(|| missing("warehouse", w_id, 0, 0))?;

    let customer = transaction
        .read(&tables.customer, &customer_key, |row| {
            let row = CustomerRow(row);
            (units(row.c_discount()), Text::new(row.c_last()), Text::new(row.c_credit()))
        })
        .await?;
    let (c_discount_e4, c_last, c_credit) = customer.ok_or_else(|| missing("customer", w_id, d_id, c_id))?;

    let order = Order {
        o_id,
        o_d_id: d_id,
        o_w_id: w_id,
        o_c_id: c_id,
        o_entry_d: Timestamp(at_us),
        o_carrier_id: None,
        o_ol_cnt: lines.len() as i16,
        o_all_local: i16::from(lines.iter().all(|line| line.supply_w_id == w_id)),
    };
    in_table("orders", order.encode(&mut scratch.row))?;
    transaction.insert(&tables.order_table, &scratch.row).await?;
    let new_order = NewOrder { no_o_id: o_id, no_d_id: d_id, no_w_id: w_id };
    in_table("new_order", new_order.encode(&mut scratch.row))?;
    transaction.insert(&tables.new_order_table, &scratch.row).await?;

    // Stock in the order of its keys; see the header of the parent module.
    let mut by_key: [u8; ORDER_LINES_MAX] = std::array::from_fn(|at| at as u8);
    let by_key = &mut by_key[..lines.len()];
    by_key.sort_unstable_by_key(|at| {
        let line = &lines[usize::from(*at)];
        (line.supply_w_id, line.i_id)
    });

    let mut outputs = [NewOrderLineOutput::default(); ORDER_LINES_MAX];
    let mut dist_infos = [Text::<24>::EMPTY; ORDER_LINES_MAX];
    let mut is_used = [true; ORDER_LINES_MAX];
    for at in by_key.iter().map(|at| usize::from(*at)) {
        let (line, output) = (&lines[at], &mut outputs[at]);
        (output.supply_w_id, output.i_id, output.quantity) = (line.supply_w_id, line.i_id, line.quantity);
        let item = transaction
            .read(&tables.item, &item_keys[at], |row| {
                let row = ItemRow(row);
                (units(row.i_price()), Text::new(row.i_name()), is_original(row.i_data()))
            })
            .await?;
        let Some((i_price_cents, i_name, is_brand)) = item else {
            is_used[at] = false;
            continue;
        };
        let is_remote = line.supply_w_id != w_id;
        let stock = transaction
            .update(
                &tables.stock,
                &stock_keys[at],
                editing("stock", |editor| {
                    let row = StockRow(editor.row());
                    let s_quantity = quantity_after(row.s_quantity(), line.quantity);
                    let s_ytd = row.s_ytd() + i64::from(line.quantity);
                    let (s_order_cnt, s_remote_cnt) = (row.s_order_cnt() + 1, row.s_remote_cnt());
                    let is_brand = is_brand && is_original(row.s_data());
                    let dist_info = Text::new(dist_info(row, d_id));
                    StockRow::set_s_quantity(editor, s_quantity)?;
                    StockRow::set_s_ytd(editor, s_ytd)?;
                    StockRow::set_s_order_cnt(editor, s_order_cnt)?;
                    if is_remote {
                        StockRow::set_s_remote_cnt(editor, s_remote_cnt + 1)?;
                    }
                    Ok((s_quantity, is_brand, dist_info))
                }),
            )
            .await?;
        let Some((s_quantity, is_brand, dist_info)) = stock else {
            return Err(missing("stock", line.supply_w_id, 0, line.i_id));
        };
        (output.i_name, output.i_price_cents) = (i_name, i_price_cents);
        (output.s_quantity, output.is_brand) = (s_quantity, is_brand);
        output.amount_cents = i64::from(line.quantity) * i_price_cents;
        dist_infos[at] = dist_info;
    }

    let mut sum_cents = 0;
    for (at, output) in outputs[..lines.len()].iter().enumerate().filter(|(at, _)| is_used[*at]) {
        sum_cents += output.amount_cents;
        let line = &mut scratch.order_line;
        (line.ol_w_id, line.ol_d_id, line.ol_o_id, line.ol_number) = (w_id, d_id, o_id, at as i16 + 1);
        (line.ol_i_id, line.ol_supply_w_id) = (output.i_id, output.supply_w_id);
        (line.ol_quantity, line.ol_amount) = (output.quantity, Dec::from_scaled(output.amount_cents));
        line.ol_delivery_d = None;
        line.ol_dist_info.clear();
        line.ol_dist_info.push_str(&dist_infos[at]);
        in_table("order_line", line.encode(&mut scratch.row))?;
        transaction.insert(&tables.order_line_table, &scratch.row).await?;
    }

    Ok(NewOrderOutput {
        o_id,
        must_roll_back: is_used.contains(&false),
        c_last,
        c_credit,
        c_discount_e4,
        w_tax_e4,
        d_tax_e4,
        total_cents: total_cents(sum_cents, c_discount_e4, w_tax_e4 + d_tax_e4),
        line_count: lines.len() as u8,
        line_space: outputs,
    })
}

/// The stock that is left after an order; what would fall under ten is filled up by 91 (clause 2.4.2.2).
#[inline]
const fn quantity_after(s_quantity: i16, ordered: i16) -> i16 {
    if s_quantity >= ordered + 10 { s_quantity - ordered } else { s_quantity - ordered + 91 }
}

/// `sum · (1 - discount) · (1 + taxes)`, rounded to cents half away from zero.
fn total_cents(sum_cents: i64, discount_e4: i64, taxes_e4: i64) -> i64 {
    const UNIT: i128 = 10_000 * 10_000;
    let exact = i128::from(sum_cents) * i128::from(10_000 - discount_e4) * i128::from(10_000 + taxes_e4);
    ((exact + exact.signum() * UNIT / 2) / UNIT) as i64
}

/// Does the text contain "ORIGINAL"?
#[inline]
fn is_original(data: &str) -> bool {
    // Eight bytes at once; a general search would take longer to prepare than this takes.
    let needle: &[u8; 8] = const {
        match ORIGINAL.as_bytes().first_chunk() {
            Some(bytes) => bytes,
            None => panic!("the mark has eight characters"),
        }
    };
    let needle = u64::from_le_bytes(*needle);
    data.as_bytes().array_windows::<8>().any(|window| u64::from_le_bytes(*window) == needle)
}

/// S_DIST_xx, where xx is the district's number.
#[inline]
fn dist_info(row: StockRow<'_>, d_id: i16) -> &str {
    match d_id {
        1 => row.s_dist_01(),
        2 => row.s_dist_02(),
        3 => row.s_dist_03(),
        4 => row.s_dist_04(),
        5 => row.s_dist_05(),
        6 => row.s_dist_06(),
        7 => row.s_dist_07(),
        8 => row.s_dist_08(),
        9 => row.s_dist_09(),
        10 => row.s_dist_10(),
        _ => unreachable!("the district {d_id} was found, and districts are numbered 1 to 10"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stock_is_filled_up_before_it_falls_under_ten() {
        assert_eq!(quantity_after(20, 10), 10);
        assert_eq!(quantity_after(19, 10), 100);
        assert_eq!(quantity_after(10, 10), 91);
        assert_eq!(quantity_after(100, 1), 99);
    }

    #[test]
    fn totals_are_exact_and_rounded_once() {
        assert_eq!(total_cents(10_000, 0, 0), 10_000);
        assert_eq!(total_cents(10_000, 5_000, 4_000), 7_000);
        // 0.01 · 0.5 = 0.005: half a cent goes up.
        assert_eq!(total_cents(1, 5_000, 0), 1);
        assert_eq!(total_cents(1, 5_001, 0), 0);
        assert_eq!(total_cents(149_999_985, 1_234, 3_999), 184_072_833);
    }

    #[test]
    fn the_mark_is_found_anywhere() {
        assert!(is_original("ORIGINAL"));
        assert!(is_original("xxORIGINAL"));
        assert!(is_original("ORIGINALxx"));
        assert!(!is_original("ORIGINAx"));
        assert!(!is_original("ORIG"));
    }
}
