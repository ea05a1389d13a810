//! Loads the initial population into a database.
//!
//! The work is cut into units (the items; a warehouse with its stock; a district), which threads take one after
//! another. A unit is inserted in transactions of [`LoadOptions::batch_rows`] rows. What is loaded depends on the
//! population alone, not on the number of threads. Loading is not resumable: after an error drop the tables, or the
//! directory, and start again.

use thermocline_base::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use thermocline_engine::row::{Dec, EncodedRow, RowError, Timestamp};
use thermocline_engine::{Database, Error, Result, Table, TransactionOptions};

use super::generate::{self, Population};
use super::schema::{
    Customer, District, History, Item, Money, NewOrder, Order, OrderLine, Stock, Tables, Warehouse,
};
use super::{DISTRICTS, Scale};
use crate::rows::in_table;
use crate::text::Text;

/// Options of a load.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Threads that generate and insert.
    pub threads: usize,
    /// Rows of one transaction.
    pub batch_rows: usize,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { threads: 1, batch_rows: 1_000 }
    }
}

/// The progress of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Rows inserted and committed.
    pub rows: u64,
    /// Rows that there will be, but for the order lines beyond ten an order on average.
    pub rows_expected: u64,
}

impl Scale {
    /// Rows of the initial population, with ten lines an order.
    #[must_use]
    pub const fn rows_expected(&self) -> u64 {
        // Customer, history, order, ten lines; new-orders for three in ten.
        let customers = self.customers as u64;
        let district = 1 + customers * 13 + (customers - self.orders_delivered() as u64);
        let warehouse = 1 + self.items as u64 + DISTRICTS as u64 * district;
        self.items as u64 + self.warehouses as u64 * warehouse
    }
}

/// Creates the tables, fills them with `population` and calls `progress` after every transaction, from any of the
/// loading threads.
///
/// # Errors
/// The first error of any thread; the others stop at their next transaction.
pub fn load(
    database: &Database,
    population: &Population,
    options: LoadOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Tables> {
    let tables = Tables::create(database)?;
    let next = AtomicU32::new(0);
    let rows = AtomicU64::new(0);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let rows_expected = population.scale.rows_expected();
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                let done = |count| {
                    if failure.lock().is_some() {
                        return false;
                    }
                    let rows = rows.fetch_add(count, Ordering::Relaxed) + count;
                    progress(Progress { rows, rows_expected });
                    true
                };
                let mut batch = Batch::new(database, options.batch_rows, &done);
                while let Some(unit) = Unit::number(next.fetch_add(1, Ordering::Relaxed), &population.scale) {
                    match load_unit(&mut batch, &tables, population, unit) {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(error) => {
                            failure.lock().get_or_insert(error);
                            return;
                        }
                    }
                }
            });
        }
    });
    failure.into_inner().map_or(Ok(tables), Err)
}

/// A part of the population that one thread loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Items,
    Warehouse(i32),
    District(i32, i16),
}

impl Unit {
    /// Unit `number` of a population, from 0; none behind the last.
    fn number(number: u32, scale: &Scale) -> Option<Self> {
        let Some(number) = number.checked_sub(1) else { return Some(Self::Items) };
        let parts = u32::from(DISTRICTS.unsigned_abs()) + 1;
        let (w_id, part) = ((number / parts + 1) as i32, (number % parts) as i16);
        (w_id <= scale.warehouses).then_some(match part {
            0 => Self::Warehouse(w_id),
            d_id => Self::District(w_id, d_id),
        })
    }
}

/// Rows that wait for their transaction.
struct Batch<'a> {
    database: &'a Database,
    rows_max: usize,
    /// Tells how many rows were committed; says whether to go on.
    done: &'a dyn Fn(u64) -> bool,
    rows: Vec<(Table, EncodedRow)>,
    row: EncodedRow,
}

impl<'a> Batch<'a> {
    fn new(database: &'a Database, rows_max: usize, done: &'a dyn Fn(u64) -> bool) -> Self {
        Self { database, rows_max: rows_max.max(1), done, rows: Vec::new(), row: EncodedRow::new() }
    }

    /// Adds the row that `encode` writes, for the table called `name`. Says whether to go on.
    fn add(
        &mut self,
        name: &'static str,
        table: &Table,
        encode: impl FnOnce(&mut EncodedRow) -> std::result::Result<(), RowError>,
    ) -> Result<bool> {
        in_table(name, encode(&mut self.row))?;
        self.rows.push((table.clone(), self.row.clone()));
        if self.rows.len() < self.rows_max { Ok(true) } else { self.flush() }
    }

    /// Inserts what waits. Says whether to go on.
    fn flush(&mut self) -> Result<bool> {
        if self.rows.is_empty() {
            return Ok(true);
        }
        let rows = &self.rows;
        self.database.run(TransactionOptions::default(), async |transaction| {
            for (table, row) in rows {
                transaction.insert(table, row).await?;
            }
            Ok(())
        })?;
        let count = self.rows.len() as u64;
        self.rows.clear();
        Ok((self.done)(count))
    }
}

/// Loads one unit. Says whether to go on.
fn load_unit(batch: &mut Batch<'_>, tables: &Tables, population: &Population, unit: Unit) -> Result<bool> {
    match unit {
        Unit::Items => {
            for item in population.items() {
                if !batch.add("item", &tables.item_table, |row| item_row(&item).encode(row))? {
                    return Ok(false);
                }
            }
        }
        Unit::Warehouse(w_id) => {
            let warehouse = population.warehouse(w_id);
            batch.add("warehouse", &tables.warehouse_table, |row| warehouse_row(&warehouse).encode(row))?;
            for stock in population.stock(w_id) {
                if !batch.add("stock", &tables.stock_table, |row| stock_row(&stock).encode(row))? {
                    return Ok(false);
                }
            }
        }
        Unit::District(w_id, d_id) => {
            let district = population.district(w_id, d_id);
            batch.add("district", &tables.district_table, |row| district_row(&district).encode(row))?;
            for customer in population.customers(w_id, d_id) {
                if !batch
                    .add("customer", &tables.customer_table, |row| customer_row(&customer).encode(row))?
                {
                    return Ok(false);
                }
            }
            for history in population.history(w_id, d_id) {
                if !batch.add("history", &tables.history_table, |row| history_row(&history).encode(row))? {
                    return Ok(false);
                }
            }
            for order in population.orders(w_id, d_id) {
                batch.add("orders", &tables.order_table, |row| order_row(&order).encode(row))?;
                for line in order.lines() {
                    batch.add("order_line", &tables.order_line_table, |row| {
                        order_line_row(&order, line).encode(row)
                    })?;
                }
                let new_order = NewOrder { no_o_id: order.o_id, no_d_id: d_id, no_w_id: w_id };
                if order.is_new()
                    && !batch.add("new_order", &tables.new_order_table, |row| new_order.encode(row))?
                {
                    return Ok(false);
                }
            }
        }
    }
    batch.flush()
}

fn text<const N: usize>(text: &Text<N>) -> String {
    text.as_str().to_owned()
}

/// The row of an item.
#[must_use]
pub fn item_row(item: &generate::Item) -> Item {
    Item {
        i_id: item.i_id,
        i_im_id: item.i_im_id,
        i_name: text(&item.i_name),
        i_price: Dec::from_scaled(item.i_price_cents),
        i_data: text(&item.i_data),
    }
}

/// The row of a warehouse.
#[must_use]
pub fn warehouse_row(warehouse: &generate::Warehouse) -> Warehouse {
    let address = &warehouse.w_address;
    Warehouse {
        w_id: warehouse.w_id,
        w_name: text(&warehouse.w_name),
        w_street_1: text(&address.street_1),
        w_street_2: text(&address.street_2),
        w_city: text(&address.city),
        w_state: text(&address.state),
        w_zip: text(&address.zip),
        w_tax: Dec::from_scaled(warehouse.w_tax_e4),
        w_ytd: Money::from_scaled(warehouse.w_ytd_cents),
    }
}

/// The row of a district.
#[must_use]
pub fn district_row(district: &generate::District) -> District {
    let address = &district.d_address;
    District {
        d_id: district.d_id,
        d_w_id: district.d_w_id,
        d_name: text(&district.d_name),
        d_street_1: text(&address.street_1),
        d_street_2: text(&address.street_2),
        d_city: text(&address.city),
        d_state: text(&address.state),
        d_zip: text(&address.zip),
        d_tax: Dec::from_scaled(district.d_tax_e4),
        d_ytd: Money::from_scaled(district.d_ytd_cents),
        d_next_o_id: district.d_next_o_id,
    }
}

/// The row of a customer.
#[must_use]
pub fn customer_row(customer: &generate::Customer) -> Customer {
    let address = &customer.c_address;
    Customer {
        c_id: customer.c_id,
        c_d_id: customer.c_d_id,
        c_w_id: customer.c_w_id,
        c_first: text(&customer.c_first),
        c_middle: text(&customer.c_middle),
        c_last: text(&customer.c_last),
        c_street_1: text(&address.street_1),
        c_street_2: text(&address.street_2),
        c_city: text(&address.city),
        c_state: text(&address.state),
        c_zip: text(&address.zip),
        c_phone: text(&customer.c_phone),
        c_since: Timestamp(customer.c_since_us),
        c_credit: text(&customer.c_credit),
        c_credit_lim: Dec::from_scaled(customer.c_credit_lim_cents),
        c_discount: Dec::from_scaled(customer.c_discount_e4),
        c_balance: Money::from_scaled(customer.c_balance_cents),
        c_ytd_payment: Money::from_scaled(customer.c_ytd_payment_cents),
        c_payment_cnt: customer.c_payment_cnt,
        c_delivery_cnt: customer.c_delivery_cnt,
        c_data: text(&customer.c_data),
    }
}

/// The row of a payment.
#[must_use]
pub fn history_row(history: &generate::History) -> History {
    History {
        h_c_id: history.h_c_id,
        h_c_d_id: history.h_c_d_id,
        h_c_w_id: history.h_c_w_id,
        h_d_id: history.h_d_id,
        h_w_id: history.h_w_id,
        h_date: Timestamp(history.h_date_us),
        h_amount: Dec::from_scaled(history.h_amount_cents),
        h_data: text(&history.h_data),
    }
}

/// The row of an order.
#[must_use]
pub fn order_row(order: &generate::Order) -> Order {
    Order {
        o_id: order.o_id,
        o_d_id: order.o_d_id,
        o_w_id: order.o_w_id,
        o_c_id: order.o_c_id,
        o_entry_d: Timestamp(order.o_entry_d_us),
        o_carrier_id: order.o_carrier_id,
        o_ol_cnt: order.o_ol_cnt,
        o_all_local: i16::from(order.o_all_local),
    }
}

/// The row of a line of `order`.
#[must_use]
pub fn order_line_row(order: &generate::Order, line: &generate::OrderLine) -> OrderLine {
    OrderLine {
        ol_o_id: order.o_id,
        ol_d_id: order.o_d_id,
        ol_w_id: order.o_w_id,
        ol_number: line.ol_number,
        ol_i_id: line.ol_i_id,
        ol_supply_w_id: line.ol_supply_w_id,
        ol_delivery_d: line.ol_delivery_d_us.map(Timestamp),
        ol_quantity: line.ol_quantity,
        ol_amount: Dec::from_scaled(line.ol_amount_cents),
        ol_dist_info: text(&line.ol_dist_info),
    }
}

/// The row of an item's stock.
#[must_use]
pub fn stock_row(stock: &generate::Stock) -> Stock {
    let district = |d_id: usize| text(&stock.s_dist[d_id - 1]);
    Stock {
        s_i_id: stock.s_i_id,
        s_w_id: stock.s_w_id,
        s_quantity: stock.s_quantity,
        s_dist_01: district(1),
        s_dist_02: district(2),
        s_dist_03: district(3),
        s_dist_04: district(4),
        s_dist_05: district(5),
        s_dist_06: district(6),
        s_dist_07: district(7),
        s_dist_08: district(8),
        s_dist_09: district(9),
        s_dist_10: district(10),
        s_ytd: stock.s_ytd,
        s_order_cnt: stock.s_order_cnt,
        s_remote_cnt: stock.s_remote_cnt,
        s_data: text(&stock.s_data),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn units_cover_the_population_once() {
        let scale = Scale::new(3, 10, 100);
        let units: Vec<Unit> = (0..).map_while(|number| Unit::number(number, &scale)).collect();
        assert_eq!(units.len(), 1 + 3 * 11);
        assert_eq!(units[0], Unit::Items);
        let districts: HashSet<(i32, i16)> = units
            .iter()
            .filter_map(|unit| match unit {
                Unit::District(w_id, d_id) => Some((*w_id, *d_id)),
                Unit::Items | Unit::Warehouse(_) => None,
            })
            .collect();
        assert_eq!(districts.len(), 30);
        assert!(districts.contains(&(3, 10)) && districts.contains(&(1, 1)));
    }

    #[test]
    fn the_full_scale_has_half_a_million_rows_a_warehouse() {
        assert_eq!(Scale::full(1).rows_expected(), 100_000 + 1 + 100_000 + 10 * (1 + 39_000 + 900));
    }
}
