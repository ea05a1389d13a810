//! Inputs of the five transactions (clauses 2.4.1 to 2.8.1), the mix (5.2.4) and the waiting times of terminals
//! (5.2.5).
//!
//! Knows nothing of the engine. An input is drawn once and then handed to its transaction as often as conflicts make
//! it repeat, so that a retried transaction asks for the same thing.

use super::random::{Constants, customer_id, item_id, last_name_for_run};
use super::{DISTRICTS, ORDER_LINES_MAX, ORDER_LINES_MIN, Scale};
use crate::random::Random;
use crate::text::Text;
use std::fmt;

/// The five business transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Enters an order (clause 2.4).
    NewOrder = 0,
    /// Updates a customer's balance (2.5).
    Payment = 1,
    /// Asks for a customer's last order (2.6).
    OrderStatus = 2,
    /// Delivers the oldest order of each district (2.7).
    Delivery = 3,
    /// Counts recently sold items whose stock is low (2.8).
    StockLevel = 4,
}

impl Kind {
    /// All of them, in the order of the specification; `ALL[kind as usize] == kind`.
    pub const ALL: [Self; 5] =
        [Self::NewOrder, Self::Payment, Self::OrderStatus, Self::Delivery, Self::StockLevel];

    /// The time that keying the input takes at least (clause 5.2.5.7), in microseconds.
    #[must_use]
    pub const fn keying_time_us(self) -> u64 {
        match self {
            Self::NewOrder => 18_000_000,
            Self::Payment => 3_000_000,
            Self::OrderStatus | Self::Delivery | Self::StockLevel => 2_000_000,
        }
    }

    /// The mean of the time that the user thinks about the output (clause 5.2.5.7), in microseconds.
    #[must_use]
    pub const fn think_time_mean_us(self) -> u64 {
        match self {
            Self::NewOrder | Self::Payment => 12_000_000,
            Self::OrderStatus => 10_000_000,
            Self::Delivery | Self::StockLevel => 5_000_000,
        }
    }

    /// Draws a think time: negative exponential, cut at ten times its mean (clause 5.2.5.4), in microseconds.
    pub fn think_time_us(self, random: &mut Random) -> u64 {
        let mean = self.think_time_mean_us() as f64;
        // 1 - [0, 1) is in (0, 1]: the logarithm is finite.
        (-(1.0 - random.unit()).ln() * mean).min(10.0 * mean) as u64
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NewOrder => "new-order",
            Self::Payment => "payment",
            Self::OrderStatus => "order-status",
            Self::Delivery => "delivery",
            Self::StockLevel => "stock-level",
        })
    }
}

/// A deck of cards, one for each transaction to come (clause 5.2.4.2): drawn without putting back, so that the mix is
/// exact over every pass through the deck.
#[derive(Clone, Debug)]
pub struct Deck {
    cards: Vec<Kind>,
    drawn: usize,
}

impl Deck {
    /// The usual mix: 45 % new-order, 43 % payment, 4 % of each other.
    pub const STANDARD: [u32; 5] = [45, 43, 4, 4, 4];
    /// As many payments as new orders, and as many deliveries as bring all of those: the queue of undelivered orders does not grow
    /// (clause 5.2.4.2).
    pub const BALANCED: [u32; 5] = [10, 10, 1, 1, 1];

    /// A deck with `cards[kind]` cards of each kind.
    ///
    /// # Panics
    /// If there is no card at all.
    #[must_use]
    pub fn new(cards: [u32; 5]) -> Self {
        let cards: Vec<Kind> = Kind::ALL
            .into_iter()
            .zip(cards)
            .flat_map(|(kind, count)| (0..count).map(move |_| kind))
            .collect();
        assert!(!cards.is_empty(), "a deck without cards");
        let drawn = cards.len();
        Self { cards, drawn }
    }

    /// The next card. When none is left, the whole deck is shuffled anew.
    #[inline]
    pub fn draw(&mut self, random: &mut Random) -> Kind {
        if self.drawn == self.cards.len() {
            random.shuffle(&mut self.cards);
            self.drawn = 0;
        }
        self.drawn += 1;
        self.cards[self.drawn - 1]
    }
}

/// Where a terminal stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// Nowhere: each transaction draws its warehouse uniformly.
    Uniform,
    /// In one warehouse, as the specification has it.
    Warehouse(i32),
    /// In one district of one warehouse: stock-level asks for this district only (clause 2.8.1.1).
    District(i32, i16),
}

/// The way in which a customer is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CustomerSelector {
    /// By number.
    Id(i32),
    /// By last name: of the customers that bear it, the one in the middle by first name.
    LastName(Text<16>),
}

/// One line of an order to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NewOrderLine {
    /// The item; one that does not exist makes the transaction roll back.
    pub i_id: i32,
    /// The warehouse that supplies it.
    pub supply_w_id: i32,
    /// The quantity.
    pub quantity: i16,
}

/// Input of new-order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrderInput {
    /// Warehouse.
    pub w_id: i32,
    /// District.
    pub d_id: i16,
    /// Customer.
    pub c_id: i32,
    /// Time of entry, in microseconds since 1970 (UTC).
    pub at_us: i64,
    line_count: u8,
    line_space: [NewOrderLine; ORDER_LINES_MAX],
}

impl NewOrderInput {
    /// An order of `lines`.
    ///
    /// # Panics
    /// If there are more lines than [`ORDER_LINES_MAX`], or none.
    #[must_use]
    pub fn new(w_id: i32, d_id: i16, c_id: i32, at_us: i64, lines: &[NewOrderLine]) -> Self {
        assert!((1..=ORDER_LINES_MAX).contains(&lines.len()), "an order of {} lines", lines.len());
        let mut line_space = [NewOrderLine::default(); ORDER_LINES_MAX];
        line_space[..lines.len()].copy_from_slice(lines);
        Self { w_id, d_id, c_id, at_us, line_count: lines.len() as u8, line_space }
    }

    /// The lines of the order.
    #[must_use]
    pub fn lines(&self) -> &[NewOrderLine] {
        &self.line_space[..usize::from(self.line_count)]
    }
}

/// Input of payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaymentInput {
    /// Warehouse that is paid.
    pub w_id: i32,
    /// District that is paid.
    pub d_id: i16,
    /// The customer's warehouse.
    pub c_w_id: i32,
    /// The customer's district.
    pub c_d_id: i16,
    /// The customer.
    pub customer: CustomerSelector,
    /// The amount, in cents.
    pub amount_cents: i64,
    /// Time of the payment, in microseconds since 1970 (UTC).
    pub at_us: i64,
}

/// Input of order-status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderStatusInput {
    /// Warehouse.
    pub w_id: i32,
    /// District.
    pub d_id: i16,
    /// The customer.
    pub customer: CustomerSelector,
}

/// Input of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryInput {
    /// Warehouse.
    pub w_id: i32,
    /// Carrier.
    pub carrier_id: i16,
    /// Time of the delivery, in microseconds since 1970 (UTC).
    pub at_us: i64,
    /// The treatment of the rows of NEW-ORDER.
    pub rule: DeliveryRule,
}

/// The treatment of the rows of NEW-ORDER by a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryRule {
    /// Deletes them, as the specification says.
    Delete,
    /// Keeps them, so that one more table grows (Stoica and Ailamaki 2013, section 4.2). The oldest row then no longer
    /// tells the oldest order that is not delivered: each district's search starts from the number given here, which
    /// must not lie above that order's.
    Keep([i32; DISTRICTS as usize]),
}

/// Input of stock-level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockLevelInput {
    /// Warehouse.
    pub w_id: i32,
    /// District.
    pub d_id: i16,
    /// Items with less in stock than this are counted.
    pub threshold: i16,
}

/// Draws transactions and their inputs for one terminal.
#[derive(Clone, Debug)]
pub struct InputGenerator {
    random: Random,
    constants: Constants,
    scale: Scale,
    home: Home,
    deck: Deck,
}

impl InputGenerator {
    /// The generator of terminal number `terminal` in the run with `run_seed` on a population of `scale` that was
    /// generated from `population_seed`.
    #[must_use]
    pub fn new(scale: Scale, population_seed: u64, run_seed: u64, terminal: u64, home: Home) -> Self {
        Self {
            random: Random::stream(run_seed, &[0x54, terminal]),
            constants: Constants::new(population_seed, run_seed),
            scale,
            home,
            deck: Deck::new(Deck::STANDARD),
        }
    }

    /// Replaces the mix.
    #[must_use]
    pub fn with_deck(mut self, deck: Deck) -> Self {
        self.deck = deck;
        self
    }

    /// The kind of the next transaction.
    #[inline]
    pub fn kind(&mut self) -> Kind {
        self.deck.draw(&mut self.random)
    }

    /// The randomness of the terminal, for think times.
    #[inline]
    pub const fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// An order, entered at `at_us`.
    pub fn new_order(&mut self, at_us: i64) -> NewOrderInput {
        let w_id = self.warehouse();
        let d_id = self.district();
        let random = &mut self.random;
        let c_id = customer_id(random, &self.constants, &self.scale);
        let count = random.between(ORDER_LINES_MIN as i64, ORDER_LINES_MAX as i64) as usize;
        let has_unused_item = random.percent(1);
        let mut line_space = [NewOrderLine::default(); ORDER_LINES_MAX];
        for line in &mut line_space[..count] {
            let i_id = item_id(random, &self.constants, &self.scale);
            let supply_w_id = if self.scale.warehouses > 1 && random.percent(1) {
                other_warehouse(random, self.scale.warehouses, w_id)
            } else {
                w_id
            };
            *line = NewOrderLine { i_id, supply_w_id, quantity: random.between(1, 10) as i16 };
        }
        if has_unused_item {
            line_space[count - 1].i_id = self.scale.items + 1;
        }
        NewOrderInput { w_id, d_id, c_id, at_us, line_count: count as u8, line_space }
    }

    /// A payment, made at `at_us`.
    pub fn payment(&mut self, at_us: i64) -> PaymentInput {
        let w_id = self.warehouse();
        let d_id = self.district();
        let customer = self.customer();
        let random = &mut self.random;
        let (c_w_id, c_d_id) = if random.percent(85) {
            (w_id, d_id)
        } else {
            let c_d_id = random.between(1, i64::from(DISTRICTS)) as i16;
            (other_warehouse(random, self.scale.warehouses, w_id), c_d_id)
        };
        let amount_cents = random.between(100, 500_000);
        PaymentInput { w_id, d_id, c_w_id, c_d_id, customer, amount_cents, at_us }
    }

    /// A question for a customer's last order.
    pub fn order_status(&mut self) -> OrderStatusInput {
        let w_id = self.warehouse();
        let d_id = self.district();
        OrderStatusInput { w_id, d_id, customer: self.customer() }
    }

    /// A delivery, made at `at_us`, that deletes what it delivers from NEW-ORDER.
    pub fn delivery(&mut self, at_us: i64) -> DeliveryInput {
        let w_id = self.warehouse();
        let carrier_id = self.random.between(1, 10) as i16;
        DeliveryInput { w_id, carrier_id, at_us, rule: DeliveryRule::Delete }
    }

    /// A question for low stock.
    pub fn stock_level(&mut self) -> StockLevelInput {
        let w_id = self.warehouse();
        let d_id = match self.home {
            Home::District(_, d_id) => d_id,
            Home::Uniform | Home::Warehouse(_) => self.district(),
        };
        StockLevelInput { w_id, d_id, threshold: self.random.between(10, 20) as i16 }
    }

    #[inline]
    fn warehouse(&mut self) -> i32 {
        match self.home {
            Home::Uniform => self.random.between_i32(1, self.scale.warehouses),
            Home::Warehouse(w_id) | Home::District(w_id, _) => w_id,
        }
    }

    #[inline]
    fn district(&mut self) -> i16 {
        self.random.between(1, i64::from(DISTRICTS)) as i16
    }

    #[inline]
    fn customer(&mut self) -> CustomerSelector {
        let (random, constants) = (&mut self.random, &self.constants);
        if random.percent(60) {
            CustomerSelector::LastName(last_name_for_run(random, constants, &self.scale))
        } else {
            CustomerSelector::Id(customer_id(random, constants, &self.scale))
        }
    }
}

/// A warehouse other than `home`, if there is one.
#[inline]
fn other_warehouse(random: &mut Random, warehouses: i32, home: i32) -> i32 {
    if warehouses == 1 {
        return home;
    }
    let other = random.between_i32(1, warehouses - 1);
    if other >= home { other + 1 } else { other }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 20_000;

    fn generator(scale: Scale, home: Home) -> InputGenerator {
        InputGenerator::new(scale, 1, 2, 3, home)
    }

    fn assert_share(what: &str, count: usize, of: usize, share: f64) {
        let deviation = (share * (1.0 - share) / of as f64).sqrt();
        let measured = count as f64 / of as f64;
        assert!((measured - share).abs() < 5.0 * deviation, "{what}: {measured}, expected {share}");
    }

    #[test]
    fn a_deck_holds_its_mix_exactly() {
        let mut deck = Deck::new(Deck::STANDARD);
        let mut random = Random::new(1);
        let mut orders = Vec::new();
        for _ in 0..5 {
            let pass: Vec<Kind> = (0..100).map(|_| deck.draw(&mut random)).collect();
            for (kind, count) in Kind::ALL.into_iter().zip(Deck::STANDARD) {
                assert_eq!(pass.iter().filter(|card| **card == kind).count(), count as usize, "{kind}");
            }
            orders.push(pass);
        }
        assert_ne!(orders[0], orders[1], "each pass is shuffled anew");
    }

    #[test]
    fn new_orders_follow_the_percentages() {
        let scale = Scale::full(5);
        let mut generator = generator(scale, Home::Uniform);
        let (mut lines, mut remote, mut unused) = (0, 0, 0);
        for _ in 0..DRAWS {
            let input = generator.new_order(7);
            assert!((1..=5).contains(&input.w_id) && (1..=DISTRICTS).contains(&input.d_id));
            assert!((1..=3_000).contains(&input.c_id));
            assert!((5..=15).contains(&input.lines().len()));
            let (last, others) = input.lines().split_last().expect("an order has lines");
            assert!(others.iter().all(|line| (1..=100_000).contains(&line.i_id)));
            unused += usize::from(last.i_id == 100_001);
            for line in input.lines() {
                assert!((1..=10).contains(&line.quantity));
                lines += 1;
                remote += usize::from(line.supply_w_id != input.w_id);
            }
        }
        assert_share("rolled back", unused, DRAWS, 0.01);
        assert_share("remote lines", remote, lines, 0.01);
        assert_share("lines in excess of five", lines - 5 * DRAWS, 10 * DRAWS, 0.5);
    }

    #[test]
    fn payments_follow_the_percentages() {
        let mut generator = generator(Scale::full(4), Home::Warehouse(2));
        let (mut remote, mut by_name) = (0, 0);
        for _ in 0..DRAWS {
            let input = generator.payment(7);
            assert_eq!(input.w_id, 2);
            assert!((100..=500_000).contains(&input.amount_cents));
            remote += usize::from(input.c_w_id != 2);
            assert!(input.c_w_id != 2 || input.c_d_id == input.d_id, "a local customer pays at home");
            by_name += usize::from(matches!(input.customer, CustomerSelector::LastName(_)));
        }
        assert_share("remote", remote, DRAWS, 0.15);
        assert_share("by name", by_name, DRAWS, 0.6);
    }

    #[test]
    fn a_terminal_stays_at_home_and_a_single_warehouse_has_no_others() {
        let mut fixed = generator(Scale::new(3, 10, 100), Home::District(3, 4));
        for _ in 0..100 {
            let input = fixed.stock_level();
            assert_eq!((input.w_id, input.d_id), (3, 4));
            assert!((10..=20).contains(&input.threshold));
            assert_eq!(fixed.order_status().w_id, 3);
            assert_eq!(fixed.delivery(1).w_id, 3);
        }
        let mut alone = generator(Scale::new(1, 10, 100), Home::Uniform);
        for _ in 0..200 {
            assert_eq!(alone.payment(1).c_w_id, 1);
            assert!(alone.new_order(1).lines().iter().all(|line| line.supply_w_id == 1));
        }
    }

    #[test]
    fn names_asked_for_exist_at_every_scale() {
        let scale = Scale::new(1, 7, 10);
        let mut generator = generator(scale, Home::Uniform);
        let known: Vec<_> = (0..7).map(super::super::random::last_name).collect();
        for _ in 0..500 {
            if let CustomerSelector::LastName(name) = generator.order_status().customer {
                assert!(known.contains(&name), "{name}");
            }
        }
    }

    #[test]
    fn terminals_differ_and_repeat() {
        let draw = |terminal| {
            let scale = Scale::full(2);
            let mut generator = InputGenerator::new(scale, 1, 2, terminal, Home::Uniform);
            (0..10).map(|_| generator.new_order(0)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn think_times_have_their_mean_and_their_cut() {
        let mut random = Random::new(4);
        let draws: Vec<u64> = (0..DRAWS).map(|_| Kind::Payment.think_time_us(&mut random)).collect();
        let mean = draws.iter().sum::<u64>() as f64 / DRAWS as f64;
        assert!((mean / 12e6 - 1.0).abs() < 0.05, "{mean}");
        assert!(draws.iter().all(|time| *time <= 120_000_000));
    }
}
