//! CH-benCHmark: suppliers, nations and regions beside TPC-C, and a dress for its rows that makes the 22 queries say something.
//!
//! The mixed workload CH-benCHmark (Cole et al., DBTest 2011) asks TPC-C's tables queries after those of TPC-H. As TPC-C loads
//! them, all times are one moment, amounts of what is delivered are zero and strings are noise that no block compresses. A
//! [`Dress`] changes that, and keeps the twelve conditions of consistency:
//!
//! | column | becomes |
//! |---|---|
//! | `o_entry_d` | ten years from 2005 on, in the order of the keys; `ol_delivery_d` up to 30 days later |
//! | `ol_quantity`, `ol_amount` | 1 to 10, and 0.01 to 9,999.99 where it is delivered, too: `c_balance` counts it |
//! | `ol_dist_info`, `s_dist_01` to `s_dist_10` | 1,000 phrases by Zipf's law |
//! | `c_city`, `i_name` | 5,000 names each, by Zipf's law |
//! | `c_state` | its first character is a nation's key; nations come by Zipf's law, too |
//! | `s_order_cnt`, `s_ytd` | few items are ordered often |
//!
//! A dressed row depends on the seed and its own key.

use super::generate::{Customer, Item, Order, Stock};
use super::random::a_string;
use crate::random::Random;
use crate::text::Text;
use crate::zipf::Zipf;

/// Number of suppliers.
pub const SUPPLIERS: i32 = 10_000;
/// Names of regions; the key is the place.
pub const REGIONS: [&str; 5] = ["Africa", "America", "Asia", "Australia", "Europe"];
/// 62 nations with their regions; a key is the code of the character of [`KEYS`] at the nation's place.
pub const NATIONS: [(&str, i32); 62] = [
    ("Germany", 4),
    ("Cambodia", 2),
    ("France", 4),
    ("Japan", 2),
    ("Brazil", 1),
    ("Egypt", 0),
    ("India", 2),
    ("Canada", 1),
    ("Italy", 4),
    ("Kenya", 0),
    ("Australia", 3),
    ("Spain", 4),
    ("China", 2),
    ("Mexico", 1),
    ("Poland", 4),
    ("Nigeria", 0),
    ("Sweden", 4),
    ("Peru", 1),
    ("Vietnam", 2),
    ("Ghana", 0),
    ("Norway", 4),
    ("Chile", 1),
    ("Thailand", 2),
    ("Fiji", 3),
    ("Austria", 4),
    ("Morocco", 0),
    ("Greece", 4),
    ("Cuba", 1),
    ("Nepal", 2),
    ("Mali", 0),
    ("Ireland", 4),
    ("Bolivia", 1),
    ("Laos", 2),
    ("Samoa", 3),
    ("Finland", 4),
    ("Senegal", 0),
    ("Hungary", 4),
    ("Ecuador", 1),
    ("Malaysia", 2),
    ("Tunisia", 0),
    ("Portugal", 4),
    ("Panama", 1),
    ("Mongolia", 2),
    ("Tonga", 3),
    ("Denmark", 4),
    ("Uganda", 0),
    ("Croatia", 4),
    ("Jamaica", 1),
    ("Iran", 2),
    ("Zambia", 0),
    ("Iceland", 4),
    ("Uruguay", 1),
    ("Jordan", 2),
    ("Vanuatu", 3),
    ("Latvia", 4),
    ("Angola", 0),
    ("Estonia", 4),
    ("Paraguay", 1),
    ("Qatar", 2),
    ("Malta", 4),
    ("Togo", 0),
    ("Belgium", 4),
];
/// The characters whose codes are keys of nations, in the order of [`NATIONS`].
pub const KEYS: &[u8; 62] = b"GCABDEFHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// 2005-01-01 in microseconds since 1970.
const FIRST_US: i64 = 1_104_537_600_000_000;
const DAY_US: i64 = 86_400_000_000;
const DAYS: i64 = 3_652;

/// A row of SUPPLIER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are those of TPC-H's table, as the benchmark takes it")]
pub struct Supplier {
    pub su_suppkey: i32,
    pub su_address: Text<40>,
    pub su_nationkey: u8,
    pub su_acctbal_cents: i64,
    pub su_comment: Text<100>,
}

/// Random streams; part of what a seed means, and none of TPC-C's.
#[derive(Clone, Copy)]
enum Stream {
    Words = 100,
    Supplier = 101,
    Item = 102,
    Stock = 103,
    Customer = 104,
    Order = 105,
}

/// The rows of SUPPLIER, keys from 0 on. Of each hundred, one has a comment that ends with *bad*.
pub fn suppliers(seed: u64) -> impl Iterator<Item = Supplier> {
    let mut random = Random::stream(seed, &[Stream::Supplier as u64]);
    (0..SUPPLIERS).map(move |su_suppkey| {
        let mut su_comment: Text<100> = a_string(&mut random, 30, 90);
        if su_suppkey % 100 == 7 {
            su_comment.push_str(" bad");
        }
        Supplier {
            su_suppkey,
            su_address: a_string(&mut random, 10, 40),
            su_nationkey: KEYS[random.below(62) as usize],
            su_acctbal_cents: random.between(-99_999, 999_999),
            su_comment,
        }
    })
}

/// The dress of a population; see the module.
#[derive(Clone, Debug)]
pub struct Dress {
    seed: u64,
    /// Orders of a district, over which the ten years are spread.
    orders: i64,
    phrases: Vec<Text<24>>,
    phrase: Zipf,
    cities: Vec<Text<20>>,
    names: Vec<Text<24>>,
    name: Zipf,
    nation: Zipf,
    count: Zipf,
}

impl Dress {
    /// The dress of a population with this seed, and as many orders in each of its districts.
    #[must_use]
    pub fn new(seed: u64, orders: i32) -> Self {
        let random = &mut Random::stream(seed, &[Stream::Words as u64]);
        Self {
            seed,
            orders: i64::from(orders),
            phrases: (0..1_000).map(|_| a_string(random, 24, 24)).collect(),
            phrase: Zipf::new(1_000, 1.0),
            cities: (0..5_000).map(|_| a_string(random, 10, 20)).collect(),
            names: (0..5_000).map(|_| a_string(random, 14, 24)).collect(),
            name: Zipf::new(5_000, 1.0),
            nation: Zipf::new(62, 0.5),
            count: Zipf::new(1_000, 1.2),
        }
    }

    fn stream(&self, table: Stream, w_id: i32, d_id: i16, id: i32) -> Random {
        Random::stream(self.seed, &[table as u64, w_id as u64, d_id as u64, id as u64])
    }

    fn phrase(&self, random: &mut Random) -> Text<24> {
        self.phrases[self.phrase.draw(random) as usize - 1]
    }

    /// Dresses a row of ITEM.
    pub fn item(&self, item: &mut Item) {
        let random = &mut self.stream(Stream::Item, 0, 0, item.i_id);
        item.i_name = self.names[self.name.draw(random) as usize - 1];
    }

    /// Dresses a row of STOCK.
    pub fn stock(&self, stock: &mut Stock) {
        let random = &mut self.stream(Stream::Stock, stock.s_w_id, 0, stock.s_i_id);
        stock.s_dist = std::array::from_fn(|_| self.phrase(random));
        stock.s_order_cnt = self.count.draw(random) as i32;
        stock.s_ytd = i64::from(stock.s_order_cnt) * 5;
    }

    /// Dresses a row of CUSTOMER, of whose orders this amount is delivered.
    pub fn customer(&self, customer: &mut Customer, delivered_cents: i64) {
        let random = &mut self.stream(Stream::Customer, customer.c_w_id, customer.c_d_id, customer.c_id);
        customer.c_address.city = self.cities[self.name.draw(random) as usize - 1];
        let nation = KEYS[self.nation.draw(random) as usize - 1];
        customer.c_address.state =
            Text::new(&String::from_utf8_lossy(&[nation, KEYS[random.below(62) as usize]]));
        customer.c_balance_cents += delivered_cents;
    }

    /// Dresses a row of ORDER with its lines. Returns the amount that is delivered.
    pub fn order(&self, order: &mut Order) -> i64 {
        let random = &mut self.stream(Stream::Order, order.o_w_id, order.o_d_id, order.o_id);
        let day = (i64::from(order.o_id) - 1) * DAYS / self.orders;
        // Whole seconds.
        order.o_entry_d_us = FIRST_US + day * DAY_US + random.below(86_400) as i64 * 1_000_000;
        let entry = order.o_entry_d_us;
        let mut delivered = 0;
        for line in order.lines_mut() {
            line.ol_quantity = random.between(1, 10) as i16;
            line.ol_dist_info = self.phrase(random);
            if let Some(at) = &mut line.ol_delivery_d_us {
                *at = entry + random.between(0, 30) * DAY_US;
                line.ol_amount_cents = random.between(1, 999_999);
                delivered += line.ol_amount_cents;
            }
        }
        delivered
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::super::generate::Population;
    use super::*;
    use std::collections::{HashMap, HashSet};

    fn population() -> Population {
        Population { scale: Scale::full(1), seed: 5, at_us: FIRST_US }
    }

    #[test]
    fn there_are_10_000_suppliers_62_nations_and_5_regions() {
        let keys: HashSet<u8> = KEYS.iter().copied().collect();
        let names: HashSet<&str> = NATIONS.iter().map(|(name, _)| *name).collect();
        assert_eq!((keys.len(), names.len(), REGIONS.len()), (62, 62, 5));
        assert!(NATIONS.iter().all(|(_, region)| (0..5).contains(region)));
        assert!(suppliers(1).eq(suppliers(1)));
        assert!(!suppliers(1).take(3).eq(suppliers(2).take(3)));
        assert_eq!(suppliers(1).count(), 10_000);
        assert!(suppliers(1).all(|supplier| keys.contains(&supplier.su_nationkey)));
        assert_eq!(suppliers(1).filter(|supplier| supplier.su_comment.ends_with(" bad")).count(), 100);
    }

    #[test]
    fn strings_are_skewed_and_dates_spread_over_ten_years() {
        let dress = Dress::new(5, 3_000);
        let mut phrases: HashMap<String, usize> = HashMap::new();
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        for mut order in population().orders(1, 1) {
            let before = order;
            let delivered = dress.order(&mut order);
            assert_eq!(delivered == 0, order.is_new());
            assert_eq!((before.o_c_id, before.o_carrier_id), (order.o_c_id, order.o_carrier_id));
            first = first.min(order.o_entry_d_us);
            last = last.max(order.o_entry_d_us);
            for line in order.lines() {
                *phrases.entry(line.ol_dist_info.to_string()).or_default() += 1;
                assert!(line.ol_delivery_d_us.is_none_or(|at| at >= order.o_entry_d_us));
            }
        }
        assert!(
            first >= FIRST_US && last - first > (DAYS - 3) * DAY_US && last < FIRST_US + (DAYS + 1) * DAY_US
        );
        let lines: usize = phrases.values().sum();
        let most = phrases.values().max().expect("a phrase");
        assert!(phrases.len() > 900 && *most * 10 > lines, "{most} of {lines}, {} phrases", phrases.len());
    }

    #[test]
    fn a_row_depends_on_seed_and_key_alone() {
        let dressed = |seed| {
            let dress = Dress::new(seed, 3_000);
            let mut rows: Vec<Customer> = population().customers(1, 2).take(50).collect();
            rows.iter_mut().for_each(|customer| dress.customer(customer, 100));
            rows
        };
        assert_eq!(dressed(1), dressed(1));
        assert_ne!(dressed(1), dressed(2));
        assert!(dressed(1).iter().all(|customer| customer.c_balance_cents == -900));
        let dress = Dress::new(1, 3_000);
        let one = |id: usize| {
            let mut stock = population().stock(1).nth(id).expect("a row");
            dress.stock(&mut stock);
            stock
        };
        assert_eq!(one(7), one(7));
        assert!(one(7).s_dist.iter().all(|phrase| dress.phrases.contains(phrase)));
        let mut item = population().items().next().expect("a row");
        dress.item(&mut item);
        assert!(dress.names.contains(&item.i_name));
    }
}
