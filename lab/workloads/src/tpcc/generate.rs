//! The initial population of TPC-C (clause 4.3.3.1) as plain values.
//!
//! - Knows nothing of the engine: the loader of this crate and those of competitors draw from here.
//! - Deterministic: a row depends on the seed, the scale and its own place. Every table of every warehouse (and
//!   district) has a random stream of its own, so warehouses may be generated in any order and in parallel.
//! - Money is in cents, taxes and discounts in ten-thousandths, times in microseconds since 1970 (UTC).
//! - "The date and time given by the operating system" is a parameter.
//!
//! With a [`Scale`] smaller than the specification's, the amounts follow it: a district's `D_YTD` is 10.00 for each of
//! its customers, a warehouse's `W_YTD` the sum over its districts. With the full scale these are the 30,000.00 and
//! 300,000.00 of the specification, and the consistency conditions hold at every scale.

use super::random::{Constants, a_string, data_string, last_name, n_string, nurand, state, zip};
use super::{DISTRICTS, ORDER_LINES_MAX, ORDER_LINES_MIN, Scale};
use crate::random::Random;
use crate::text::Text;

/// A street address, as warehouses, districts and customers have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Address {
    /// First line.
    pub street_1: Text<20>,
    /// Second line.
    pub street_2: Text<20>,
    /// City.
    pub city: Text<20>,
    /// Two letters.
    pub state: Text<2>,
    /// Nine digits.
    pub zip: Text<9>,
}

impl Address {
    fn generate(random: &mut Random) -> Self {
        Self {
            street_1: a_string(random, 10, 20),
            street_2: a_string(random, 10, 20),
            city: a_string(random, 10, 20),
            state: state(random),
            zip: zip(random),
        }
    }
}

/// A row of ITEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are defined in clause 1.3 of the specification")]
pub struct Item {
    pub i_id: i32,
    pub i_im_id: i32,
    pub i_name: Text<24>,
    pub i_price_cents: i64,
    pub i_data: Text<50>,
}

/// A row of WAREHOUSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are defined in clause 1.3 of the specification")]
pub struct Warehouse {
    pub w_id: i32,
    pub w_name: Text<10>,
    pub w_address: Address,
    pub w_tax_e4: i64,
    pub w_ytd_cents: i64,
}

/// A row of STOCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are defined in clause 1.3 of the specification")]
pub struct Stock {
    pub s_i_id: i32,
    pub s_w_id: i32,
    pub s_quantity: i16,
    pub s_dist: [Text<24>; DISTRICTS as usize],
    pub s_ytd: i64,
    pub s_order_cnt: i32,
    pub s_remote_cnt: i32,
    pub s_data: Text<50>,
}

/// A row of DISTRICT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are defined in clause 1.3 of the specification")]
pub struct District {
    pub d_id: i16,
    pub d_w_id: i32,
    pub d_name: Text<10>,
    pub d_address: Address,
    pub d_tax_e4: i64,
    pub d_ytd_cents: i64,
    pub d_next_o_id: i32,
}

/// A row of CUSTOMER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are defined in clause 1.3 of the specification")]
pub struct Customer {
    pub c_id: i32,
    pub c_d_id: i16,
    pub c_w_id: i32,
    pub c_first: Text<16>,
    pub c_middle: Text<2>,
    pub c_last: Text<16>,
    pub c_address: Address,
    pub c_phone: Text<16>,
    pub c_since_us: i64,
    pub c_credit: Text<2>,
    pub c_credit_lim_cents: i64,
    pub c_discount_e4: i64,
    pub c_balance_cents: i64,
    pub c_ytd_payment_cents: i64,
    pub c_payment_cnt: i32,
    pub c_delivery_cnt: i32,
    pub c_data: Text<500>,
}

/// A row of HISTORY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are defined in clause 1.3 of the specification")]
pub struct History {
    pub h_c_id: i32,
    pub h_c_d_id: i16,
    pub h_c_w_id: i32,
    pub h_d_id: i16,
    pub h_w_id: i32,
    pub h_date_us: i64,
    pub h_amount_cents: i64,
    pub h_data: Text<24>,
}

/// A row of ORDER with its rows of ORDER-LINE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are defined in clause 1.3 of the specification")]
pub struct Order {
    pub o_id: i32,
    pub o_d_id: i16,
    pub o_w_id: i32,
    pub o_c_id: i32,
    pub o_entry_d_us: i64,
    pub o_carrier_id: Option<i16>,
    pub o_ol_cnt: i16,
    pub o_all_local: bool,
    /// The first `o_ol_cnt` are meant; see [`Order::lines`].
    line_space: [OrderLine; ORDER_LINES_MAX],
}

impl Order {
    /// The order's lines.
    #[must_use]
    pub fn lines(&self) -> &[OrderLine] {
        &self.line_space[..self.o_ol_cnt as usize]
    }

    /// The order's lines, to be changed.
    #[must_use]
    pub fn lines_mut(&mut self) -> &mut [OrderLine] {
        &mut self.line_space[..self.o_ol_cnt as usize]
    }

    /// Does NEW-ORDER hold the order, because it is not delivered yet?
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.o_carrier_id.is_none()
    }
}

/// A row of ORDER-LINE, without the columns that it shares with its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the columns are defined in clause 1.3 of the specification")]
pub struct OrderLine {
    pub ol_number: i16,
    pub ol_i_id: i32,
    pub ol_supply_w_id: i32,
    pub ol_delivery_d_us: Option<i64>,
    pub ol_quantity: i16,
    pub ol_amount_cents: i64,
    pub ol_dist_info: Text<24>,
}

/// An initial population.
#[derive(Clone, Copy, Debug)]
pub struct Population {
    /// Its size.
    pub scale: Scale,
    /// The seed on which it depends.
    pub seed: u64,
    /// The time at which it is said to have been generated, in microseconds since 1970 (UTC).
    pub at_us: i64,
}

/// Random streams of the tables; part of what a seed means.
#[derive(Clone, Copy)]
enum Stream {
    Item = 1,
    Warehouse = 2,
    Stock = 3,
    District = 4,
    Customer = 5,
    History = 6,
    Order = 7,
}

impl Population {
    fn stream(&self, table: Stream, w_id: i32, d_id: i16) -> Random {
        Random::stream(self.seed, &[table as u64, w_id as u64, d_id as u64])
    }

    /// All rows of ITEM.
    pub fn items(&self) -> impl Iterator<Item = Item> + use<> {
        let mut random = self.stream(Stream::Item, 0, 0);
        (1..=self.scale.items).map(move |i_id| Item {
            i_id,
            i_im_id: random.between_i32(1, 10_000),
            i_name: a_string(&mut random, 14, 24),
            i_price_cents: random.between(100, 10_000),
            i_data: data_string(&mut random),
        })
    }

    /// The row of a warehouse.
    #[must_use]
    pub fn warehouse(&self, w_id: i32) -> Warehouse {
        let random = &mut self.stream(Stream::Warehouse, w_id, 0);
        Warehouse {
            w_id,
            w_name: a_string(random, 6, 10),
            w_address: Address::generate(random),
            w_tax_e4: random.between(0, 2_000),
            w_ytd_cents: i64::from(DISTRICTS) * self.district_ytd_cents(),
        }
    }

    /// A warehouse's rows of STOCK.
    pub fn stock(&self, w_id: i32) -> impl Iterator<Item = Stock> + use<> {
        let mut random = self.stream(Stream::Stock, w_id, 0);
        (1..=self.scale.items).map(move |s_i_id| Stock {
            s_i_id,
            s_w_id: w_id,
            s_quantity: random.between(10, 100) as i16,
            s_dist: std::array::from_fn(|_| a_string(&mut random, 24, 24)),
            s_ytd: 0,
            s_order_cnt: 0,
            s_remote_cnt: 0,
            s_data: data_string(&mut random),
        })
    }

    /// The row of a district.
    #[must_use]
    pub fn district(&self, w_id: i32, d_id: i16) -> District {
        let random = &mut self.stream(Stream::District, w_id, d_id);
        District {
            d_id,
            d_w_id: w_id,
            d_name: a_string(random, 6, 10),
            d_address: Address::generate(random),
            d_tax_e4: random.between(0, 2_000),
            d_ytd_cents: self.district_ytd_cents(),
            d_next_o_id: self.scale.customers + 1,
        }
    }

    /// A district's rows of CUSTOMER.
    pub fn customers(&self, w_id: i32, d_id: i16) -> impl Iterator<Item = Customer> + use<> {
        let mut random = self.stream(Stream::Customer, w_id, d_id);
        let constant = Constants::new(self.seed, 0).c_last_load;
        let at_us = self.at_us;
        let names = i64::from(self.scale.last_names());
        (1..=self.scale.customers).map(move |c_id| {
            let random = &mut random;
            let name = i64::from(c_id) - 1;
            Customer {
                c_id,
                c_d_id: d_id,
                c_w_id: w_id,
                c_first: a_string(random, 8, 16),
                c_middle: Text::new("OE"),
                c_last: last_name(if name < names {
                    name
                } else {
                    nurand(random, 255, constant, 0, names - 1)
                }),
                c_address: Address::generate(random),
                c_phone: n_string(random, 16, 16),
                c_since_us: at_us,
                c_credit: Text::new(if random.percent(10) { "BC" } else { "GC" }),
                c_credit_lim_cents: 5_000_000,
                c_discount_e4: random.between(0, 5_000),
                c_balance_cents: -1_000,
                c_ytd_payment_cents: 1_000,
                c_payment_cnt: 1,
                c_delivery_cnt: 0,
                c_data: a_string(random, 300, 500),
            }
        })
    }

    /// A district's rows of HISTORY, one for each customer.
    pub fn history(&self, w_id: i32, d_id: i16) -> impl Iterator<Item = History> + use<> {
        let mut random = self.stream(Stream::History, w_id, d_id);
        let at_us = self.at_us;
        (1..=self.scale.customers).map(move |c_id| History {
            h_c_id: c_id,
            h_c_d_id: d_id,
            h_c_w_id: w_id,
            h_d_id: d_id,
            h_w_id: w_id,
            h_date_us: at_us,
            h_amount_cents: 1_000,
            h_data: a_string(&mut random, 12, 24),
        })
    }

    /// A district's rows of ORDER with their lines, one for each customer, in a random order of the customers. The
    /// last ones are new (clause 4.3.3.1: 900 of 3,000).
    pub fn orders(&self, w_id: i32, d_id: i16) -> impl Iterator<Item = Order> + use<> {
        let mut random = self.stream(Stream::Order, w_id, d_id);
        let mut customers: Vec<i32> = (1..=self.scale.customers).collect();
        random.shuffle(&mut customers);
        let (at_us, items) = (self.at_us, self.scale.items);
        let delivered = self.scale.orders_delivered();
        customers.into_iter().zip(1..).map(move |(o_c_id, o_id)| {
            let random = &mut random;
            let is_delivered = o_id <= delivered;
            let o_ol_cnt = random.between(ORDER_LINES_MIN as i64, ORDER_LINES_MAX as i64) as i16;
            let mut order = Order {
                o_id,
                o_d_id: d_id,
                o_w_id: w_id,
                o_c_id,
                o_entry_d_us: at_us,
                o_carrier_id: is_delivered.then(|| random.between(1, 10) as i16),
                o_ol_cnt,
                o_all_local: true,
                line_space: [OrderLine::default(); ORDER_LINES_MAX],
            };
            for (line, ol_number) in order.line_space[..o_ol_cnt as usize].iter_mut().zip(1..) {
                *line = OrderLine {
                    ol_number,
                    ol_i_id: random.between_i32(1, items),
                    ol_supply_w_id: w_id,
                    ol_delivery_d_us: is_delivered.then_some(at_us),
                    ol_quantity: 5,
                    ol_amount_cents: if is_delivered { 0 } else { random.between(1, 999_999) },
                    ol_dist_info: a_string(random, 24, 24),
                };
            }
            order
        })
    }

    const fn district_ytd_cents(&self) -> i64 {
        1_000 * self.scale.customers as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn population() -> Population {
        Population { scale: Scale::full(2), seed: 11, at_us: 1_700_000_000_000_000 }
    }

    #[test]
    fn the_full_scale_has_the_cardinalities_and_amounts_of_the_specification() {
        let population = population();
        assert_eq!(population.items().count(), 100_000);
        assert_eq!(population.stock(1).count(), 100_000);
        assert_eq!(population.customers(1, 1).count(), 3_000);
        assert_eq!(population.history(1, 1).count(), 3_000);
        assert_eq!(population.warehouse(1).w_ytd_cents, 30_000_000);
        let district = population.district(1, 10);
        assert_eq!((district.d_ytd_cents, district.d_next_o_id), (3_000_000, 3_001));
        let orders: Vec<Order> = population.orders(2, 3).collect();
        assert_eq!(orders.len(), 3_000);
        for order in &orders {
            assert_eq!(order.is_new(), order.o_id >= 2_101);
            assert!((5..=15).contains(&order.lines().len()));
            for line in order.lines() {
                assert_eq!(line.ol_delivery_d_us.is_none(), order.is_new());
                assert_eq!(line.ol_amount_cents == 0, !order.is_new());
            }
        }
        let customers: HashSet<i32> = orders.iter().map(|order| order.o_c_id).collect();
        assert_eq!(customers.len(), 3_000, "every customer has one order");
        assert!(orders.iter().zip(1..).any(|(order, number)| order.o_c_id != number), "in a random order");
    }

    #[test]
    fn a_population_depends_on_its_seed_alone() {
        let (one, other) = (population(), Population { seed: 12, ..population() });
        assert!(one.items().eq(one.items()));
        assert!(one.customers(2, 7).eq(one.customers(2, 7)));
        assert_eq!(one.warehouse(2), one.warehouse(2));
        assert!(!one.items().take(5).eq(other.items().take(5)));
        assert!(!one.orders(1, 1).take(5).eq(one.orders(1, 2).take(5)));
        assert_ne!(one.stock(1).next().expect("a row").s_data, one.stock(2).next().expect("a row").s_data);
    }

    #[test]
    fn every_last_name_exists_and_some_customers_have_bad_credit() {
        let names: HashSet<String> = population().customers(1, 4).map(|c| c.c_last.to_string()).collect();
        assert_eq!(names.len(), 1_000);
        let bad = population().customers(1, 4).filter(|customer| &*customer.c_credit == "BC").count();
        assert!((220..380).contains(&bad), "{bad} of 3,000");
    }

    #[test]
    fn a_small_scale_keeps_the_proportions() {
        let population = Population { scale: Scale::new(1, 10, 100), ..population() };
        assert_eq!(population.orders(1, 1).filter(Order::is_new).count(), 3);
        assert_eq!(population.district(1, 1).d_ytd_cents, 10_000);
        assert_eq!(population.warehouse(1).w_ytd_cents, 100_000);
        assert_eq!(population.customers(1, 1).count(), 10);
    }
}
