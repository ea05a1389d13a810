//! TPC-C, standard specification revision 5.11, against the engine's API.
//!
//! ```text
//!  random, generate, input   what the specification draws: knows nothing of the engine; `lines`: rows that freeze
//!          │
//!      ch                    CH-benCHmark: three tables more, and rows that its queries tell apart
//!          │
//!  schema ─┴─ load           nine tables, their indexes, the initial population
//!          │
//!  transactions              the five business transactions over a `Transaction`
//!          │
//!  terminal                  mix, retries, keying and think times      check   the twelve consistency conditions
//! ```
//!
//! Not a published result: no priced configuration, no remote terminal emulator in front of it. The transactions, the
//! mix and the population are the specification's; [`Home::Uniform`](input::Home::Uniform) (each transaction draws its
//! warehouse) and zero think times are the usual deviations of engine benchmarks, and are said in every figure.

pub mod ch;
pub mod check;
pub mod generate;
pub mod input;
pub mod lines;
pub mod load;
pub mod random;
pub mod schema;
pub mod terminal;
pub mod transactions;

/// Districts of a warehouse.
pub const DISTRICTS: i16 = 10;
/// Fewest lines of an order.
pub const ORDER_LINES_MIN: usize = 5;
/// Most lines of an order.
pub const ORDER_LINES_MAX: usize = 15;

/// The size of a population.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses, numbered from 1.
    pub warehouses: i32,
    /// Customers of a district: 3,000 in the specification. A district starts with as many orders.
    pub customers: i32,
    /// Items, and so rows of STOCK a warehouse: 100,000 in the specification.
    pub items: i32,
}

impl Scale {
    /// The specification's population for `warehouses`.
    ///
    /// # Panics
    /// If `warehouses` is not positive.
    #[must_use]
    pub const fn full(warehouses: i32) -> Self {
        Self::new(warehouses, 3_000, 100_000)
    }

    /// A population of other cardinalities, for tests.
    ///
    /// # Panics
    /// If a number is not positive.
    #[must_use]
    pub const fn new(warehouses: i32, customers: i32, items: i32) -> Self {
        assert!(warehouses > 0 && customers > 0 && items > 0, "a population needs one of everything");
        Self { warehouses, customers, items }
    }

    /// Different last names in a district: the first customers have one each.
    #[must_use]
    pub const fn last_names(&self) -> i32 {
        if self.customers < 1_000 { self.customers } else { 1_000 }
    }

    /// Orders of a district that are delivered at the start.
    #[must_use]
    pub const fn orders_delivered(&self) -> i32 {
        orders_delivered(self.customers)
    }
}

/// Orders that are delivered at the start in a district of `customers`: all but the newest 30 %.
pub(crate) const fn orders_delivered(customers: i32) -> i32 {
    customers - (customers as i64 * 3 / 10) as i32
}
