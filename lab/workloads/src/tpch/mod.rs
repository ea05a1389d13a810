//! The rows of TPC-H (clause 4.2.3) as plain values, with the distributions that its queries depend on.
//!
//! - Knows nothing of any database, and is not dbgen: its numbers come from this crate's generator, so rows are others, and answers
//!   are compared between databases, never with the specification's.
//! - Deterministic: a row depends on the seed, the scale and its own key. Each table has a random stream of its own, cut by blocks of
//!   1,024 keys.
//! - Money, discounts and taxes are in hundredths, dates in days since 1970.
//! - Lines refer to parts and suppliers that PARTSUPP has as a pair; a third of the customers has no order; order keys use 8
//!   numbers of each 32; prices follow the part's key; dates of a line follow its order's.

mod words;

use crate::random::Random;
use words::{
    COLORS, CONTAINERS, INSTRUCTIONS, MODES, NATIONS, PRIORITIES, REGIONS, SEGMENTS, Sentences, TYPES,
};

/// 1992-01-01, the first day of orders.
const FIRST_DAY: i32 = 8_035;
/// 1995-06-17: lines received until then may have been returned, lines shipped later are open.
const CURRENT_DAY: i32 = 9_298;
/// 1998-08-02, the last day of orders.
const LAST_DAY: i32 = 10_440;
/// Keys that share a random stream.
const BLOCK: i64 = 1_024;

/// A row of REGION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are defined in clause 1.4 of the specification")]
pub struct Region<'a> {
    pub regionkey: i32,
    pub name: &'static str,
    pub comment: &'a str,
}

/// A row of NATION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are defined in clause 1.4 of the specification")]
pub struct Nation<'a> {
    pub nationkey: i32,
    pub name: &'static str,
    pub regionkey: i32,
    pub comment: &'a str,
}

/// A row of PART.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are defined in clause 1.4 of the specification")]
pub struct Part<'a> {
    pub partkey: i64,
    pub name: [&'static str; 5],
    pub mfgr: u8,
    pub brand: u8,
    pub kind: [&'static str; 3],
    pub size: i32,
    pub container: [&'static str; 2],
    pub retailprice: i64,
    pub comment: &'a str,
}

/// A row of SUPPLIER.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are defined in clause 1.4 of the specification")]
pub struct Supplier {
    pub suppkey: i64,
    pub address: String,
    pub nationkey: i32,
    pub phone: String,
    pub acctbal: i64,
    pub comment: String,
}

/// A row of PARTSUPP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are defined in clause 1.4 of the specification")]
pub struct PartSupp<'a> {
    pub partkey: i64,
    pub suppkey: i64,
    pub availqty: i32,
    pub supplycost: i64,
    pub comment: &'a str,
}

/// A row of CUSTOMER.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are defined in clause 1.4 of the specification")]
pub struct Customer<'a> {
    pub custkey: i64,
    pub address: String,
    pub nationkey: i32,
    pub phone: String,
    pub acctbal: i64,
    pub mktsegment: &'static str,
    pub comment: &'a str,
}

/// A row of ORDERS with its rows of LINEITEM.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are defined in clause 1.4 of the specification")]
pub struct Order<'a> {
    pub orderkey: i64,
    pub custkey: i64,
    pub status: char,
    pub totalprice: i64,
    pub orderdate: i32,
    pub priority: &'static str,
    pub clerk: i64,
    pub comment: &'a str,
    pub lines: Vec<Line<'a>>,
}

/// A row of LINEITEM, without its order's key. The place in the order is its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are defined in clause 1.4 of the specification")]
pub struct Line<'a> {
    pub partkey: i64,
    pub suppkey: i64,
    pub quantity: i64,
    pub extendedprice: i64,
    pub discount: i64,
    pub tax: i64,
    pub returnflag: char,
    pub linestatus: char,
    pub shipdate: i32,
    pub commitdate: i32,
    pub receiptdate: i32,
    pub shipinstruct: &'static str,
    pub shipmode: &'static str,
    pub comment: &'a str,
}

/// A population of TPC-H's tables.
#[derive(Clone, Debug)]
pub struct Population {
    seed: u64,
    /// Thousandths of the scale factor.
    scale: i64,
    sentences: Sentences,
}

/// Random streams of the tables; part of what a seed means.
#[derive(Clone, Copy)]
enum Stream {
    Fixed = 1,
    Part = 2,
    Supplier = 3,
    PartSupp = 4,
    Customer = 5,
    Order = 6,
    Sentences = 7,
}

impl Population {
    /// The population of a scale factor, at least a thousandth.
    ///
    /// # Panics
    /// If the scale is smaller, or not a number.
    #[must_use]
    pub fn new(seed: u64, scale: f64) -> Self {
        assert!(scale >= 0.001, "a scale of at least a thousandth, not {scale}");
        let sentences = Sentences::new(&mut Random::stream(seed, &[Stream::Sentences as u64]), 4 << 20);
        Self { seed, scale: (scale * 1_000.0).round() as i64, sentences }
    }

    /// Number of parts.
    #[must_use]
    pub const fn parts_count(&self) -> i64 {
        self.scale * 200
    }

    /// Number of suppliers.
    #[must_use]
    pub const fn suppliers_count(&self) -> i64 {
        self.scale * 10
    }

    /// Number of customers.
    #[must_use]
    pub const fn customers_count(&self) -> i64 {
        self.scale * 150
    }

    /// Number of orders.
    #[must_use]
    pub const fn orders_count(&self) -> i64 {
        self.scale * 1_500
    }

    /// The numbers `1..=count`, each with its block's generator behind those of the numbers before.
    fn rows<R>(
        &self,
        table: Stream,
        count: i64,
        mut row: impl FnMut(i64, &mut Random) -> R,
    ) -> impl Iterator<Item = R> {
        let seed = self.seed;
        let mut random = Random::new(seed);
        (0..count).map(move |number| {
            if number % BLOCK == 0 {
                random = Random::stream(seed, &[table as u64, (number / BLOCK) as u64]);
            }
            row(number + 1, &mut random)
        })
    }

    /// The rows of REGION.
    pub fn regions(&self) -> impl Iterator<Item = Region<'_>> {
        let mut random = Random::stream(self.seed, &[Stream::Fixed as u64, 0]);
        REGIONS.iter().zip(0..).map(move |(name, regionkey)| {
            let comment = self.sentences.piece(&mut random, 31, 115);
            Region { regionkey, name, comment }
        })
    }

    /// The rows of NATION.
    pub fn nations(&self) -> impl Iterator<Item = Nation<'_>> {
        let mut random = Random::stream(self.seed, &[Stream::Fixed as u64, 1]);
        NATIONS.iter().zip(0..).map(move |((name, regionkey), nationkey)| {
            let comment = self.sentences.piece(&mut random, 31, 114);
            Nation { nationkey, name, regionkey: *regionkey, comment }
        })
    }

    /// The rows of PART.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.rows(Stream::Part, self.parts_count(), |partkey, random| {
            let mfgr = random.between(1, 5) as u8;
            let mut colors = COLORS;
            for place in 0..5 {
                colors.swap(place, random.between(place as i64, COLORS.len() as i64 - 1) as usize);
            }
            Part {
                partkey,
                name: std::array::from_fn(|place| colors[place]),
                mfgr,
                brand: mfgr * 10 + random.between(1, 5) as u8,
                kind: TYPES.map(|words| pick(random, words)),
                size: random.between_i32(1, 50),
                container: CONTAINERS.map(|words| pick(random, words)),
                retailprice: retailprice(partkey),
                comment: self.sentences.piece(random, 5, 22),
            }
        })
    }

    /// The rows of SUPPLIER. Of each 2,000, one has complaints and one recommendations of customers in its comment.
    pub fn suppliers(&self) -> impl Iterator<Item = Supplier> {
        self.rows(Stream::Supplier, self.suppliers_count(), |suppkey, random| {
            let nationkey = random.between_i32(0, 24);
            let mut comment = self.sentences.piece(random, 25, 100).to_owned();
            let said = match suppkey % 2_000 {
                7 => "Customer good Complaints",
                1_007 => "Customer good Recommends",
                _ => "",
            };
            comment.replace_range(..said.len(), said);
            Supplier {
                suppkey,
                address: address(random),
                nationkey,
                phone: phone(random, nationkey),
                acctbal: random.between(-99_999, 999_999),
                comment,
            }
        })
    }

    /// The rows of PARTSUPP: four suppliers a part.
    pub fn partsupps(&self) -> impl Iterator<Item = PartSupp<'_>> {
        self.rows(Stream::PartSupp, 4 * self.parts_count(), |number, random| {
            let partkey = (number - 1) / 4 + 1;
            PartSupp {
                partkey,
                suppkey: self.supplier_of(partkey, (number - 1) % 4),
                availqty: random.between_i32(1, 9_999),
                supplycost: random.between(100, 100_000),
                comment: self.sentences.piece(random, 49, 198),
            }
        })
    }

    /// The key of a part's supplier, one of four (clause 4.2.3).
    const fn supplier_of(&self, partkey: i64, of_four: i64) -> i64 {
        let suppliers = self.suppliers_count();
        (partkey + of_four * (suppliers / 4 + (partkey - 1) / suppliers)) % suppliers + 1
    }

    /// The rows of CUSTOMER.
    pub fn customers(&self) -> impl Iterator<Item = Customer<'_>> {
        self.rows(Stream::Customer, self.customers_count(), |custkey, random| {
            let nationkey = random.between_i32(0, 24);
            Customer {
                custkey,
                address: address(random),
                nationkey,
                phone: phone(random, nationkey),
                acctbal: random.between(-99_999, 999_999),
                mktsegment: pick(random, &SEGMENTS),
                comment: self.sentences.piece(random, 29, 116),
            }
        })
    }

    /// The rows of ORDERS, each with its lines.
    pub fn orders(&self) -> impl Iterator<Item = Order<'_>> {
        let clerks = self.scale.max(1);
        self.rows(Stream::Order, self.orders_count(), move |number, random| {
            let orderdate = random.between_i32(FIRST_DAY, LAST_DAY);
            // Every third customer has never ordered.
            let custkey = random.between(0, self.customers_count() / 3 * 2 - 1);
            let count = random.between(1, 7);
            let lines: Vec<Line<'_>> = (0..count).map(|_| self.line(random, orderdate)).collect();
            let open = lines.iter().filter(|line| line.linestatus == 'O').count();
            let total: i64 =
                lines.iter().map(|line| line.extendedprice * (100 + line.tax) * (100 - line.discount)).sum();
            Order {
                orderkey: (number - 1) / 8 * 32 + (number - 1) % 8 + 1,
                custkey: custkey / 2 * 3 + custkey % 2 + 1,
                status: match open {
                    0 => 'F',
                    open if open == lines.len() => 'O',
                    _ => 'P',
                },
                totalprice: (total + 5_000) / 10_000,
                orderdate,
                priority: pick(random, &PRIORITIES),
                clerk: random.between(1, clerks),
                comment: self.sentences.piece(random, 19, 78),
                lines,
            }
        })
    }

    fn line(&self, random: &mut Random, orderdate: i32) -> Line<'_> {
        let partkey = random.between(1, self.parts_count());
        let quantity = random.between(1, 50);
        let shipdate = orderdate + random.between_i32(1, 121);
        let receiptdate = shipdate + random.between_i32(1, 30);
        let returned = if random.percent(50) { 'R' } else { 'A' };
        Line {
            partkey,
            suppkey: self.supplier_of(partkey, random.between(0, 3)),
            quantity,
            extendedprice: quantity * retailprice(partkey),
            discount: random.between(0, 10),
            tax: random.between(0, 8),
            returnflag: if receiptdate <= CURRENT_DAY { returned } else { 'N' },
            linestatus: if shipdate > CURRENT_DAY { 'O' } else { 'F' },
            shipdate,
            commitdate: orderdate + random.between_i32(30, 90),
            receiptdate,
            shipinstruct: pick(random, &INSTRUCTIONS),
            shipmode: pick(random, &MODES),
            comment: self.sentences.piece(random, 10, 43),
        }
    }
}

const fn retailprice(partkey: i64) -> i64 {
    90_000 + partkey / 10 % 20_001 + 100 * (partkey % 1_000)
}

fn pick(random: &mut Random, of: &[&'static str]) -> &'static str {
    of[random.below(of.len() as u64) as usize]
}

/// 10 to 40 characters.
fn address(random: &mut Random) -> String {
    const CHARACTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ,";
    let length = random.between(10, 40);
    (0..length).map(|_| char::from(CHARACTERS[random.below(64) as usize])).collect()
}

/// A number whose first two digits are the nation's key and 10.
fn phone(random: &mut Random, nationkey: i32) -> String {
    let (a, b, c) = (random.between(100, 999), random.between(100, 999), random.between(1_000, 9_999));
    format!("{}-{a}-{b}-{c}", nationkey + 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn population() -> Population {
        Population::new(3, 0.01)
    }

    #[test]
    fn a_scale_has_the_cardinalities_of_the_specification() {
        let population = population();
        assert_eq!((population.regions().count(), population.nations().count()), (5, 25));
        assert_eq!((population.parts().count(), population.partsupps().count()), (2_000, 8_000));
        assert_eq!((population.suppliers().count(), population.customers().count()), (100, 1_500));
        let orders: Vec<Order<'_>> = population.orders().collect();
        assert_eq!(orders.len(), 15_000);
        let lines: usize = orders.iter().map(|order| order.lines.len()).sum();
        assert!((59_000..61_000).contains(&lines), "{lines} lines, four an order");
        let whole = Population::new(3, 1.0);
        assert_eq!((whole.suppliers_count(), whole.orders_count()), (10_000, 1_500_000));
    }

    #[test]
    fn keys_are_unique_and_lead_to_rows() {
        let population = population();
        let pairs: HashSet<(i64, i64)> =
            population.partsupps().map(|row| (row.partkey, row.suppkey)).collect();
        assert_eq!(pairs.len(), 8_000);
        let mut keys = HashSet::new();
        for order in population.orders() {
            assert!(keys.insert(order.orderkey));
            assert!((1..=1_500).contains(&order.custkey) && order.custkey % 3 != 0, "{}", order.custkey);
            for line in &order.lines {
                assert!(pairs.contains(&(line.partkey, line.suppkey)));
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_rows_at_every_scale_that_keeps_its_keys() {
        let (one, again, other) = (population(), population(), Population::new(4, 0.01));
        assert!(one.orders().eq(again.orders()));
        assert!(one.suppliers().eq(again.suppliers()));
        assert!(one.parts().eq(Population::new(3, 0.02).parts().take(2_000)));
        assert!(!one.customers().take(3).eq(other.customers().take(3)));
    }

    #[test]
    fn the_conditions_of_queries_select_their_share() {
        let population = population();
        let lines: Vec<Line<'_>> = population.orders().flat_map(|order| order.lines).collect();
        let share = |holds: &dyn Fn(&Line<'_>) -> bool| {
            lines.iter().filter(|line| holds(line)).count() as f64 / lines.len() as f64
        };
        // Q1: shipped until 1998-09-02. Q6: a year, three of eleven discounts, less than half of the quantities.
        assert!((0.97..0.995).contains(&share(&|line| line.shipdate <= 10_471)));
        let q6 = share(&|line| {
            (8_766..9_131).contains(&line.shipdate) && (5..=7).contains(&line.discount) && line.quantity < 24
        });
        assert!((0.014..0.024).contains(&q6), "{q6}");
        assert!((0.48..0.52).contains(&share(&|line| line.returnflag == 'N')));
        let special = population
            .orders()
            .filter(|order| {
                order.comment.find("special").is_some_and(|at| order.comment[at..].contains("requests"))
            })
            .count();
        assert!((50..450).contains(&special), "{special} of 15,000 orders, about one in a hundred");
    }
}
