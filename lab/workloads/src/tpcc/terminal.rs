//! A terminal: draws transactions by the mix, runs each until it is decided, and tells its observer.
//!
//! What a terminal cannot know stands in [`Hooks`]: the time of day, whether to go on, how to wait, and what to make of
//! a finished transaction (counting, measuring). Keying and think times (clause 5.2.5) are kept when
//! [`TerminalOptions::waits`] is set; engine benchmarks leave them out.

use std::sync::Arc;

use thermocline_base::sync::{AtomicU32, Ordering};
use thermocline_engine::{Database, Error, Result, TransactionOptions};

use super::input::{
    DeliveryInput, DeliveryRule, InputGenerator, Kind, NewOrderInput, OrderStatusInput, PaymentInput,
    StockLevelInput,
};
use super::schema::Tables;
use super::transactions::{
    DeliveryOutput, NewOrderOutput, OrderStatusOutput, PaymentOutput, Scratch, StockLevelOutput, delivery,
    new_order, order_status, payment, stock_level,
};
use super::{DISTRICTS, Scale};

/// A transaction to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// New-order.
    NewOrder(NewOrderInput),
    /// Payment.
    Payment(PaymentInput),
    /// Order-status.
    OrderStatus(OrderStatusInput),
    /// Delivery.
    Delivery(DeliveryInput),
    /// Stock-level.
    StockLevel(StockLevelInput),
}

impl Input {
    /// Which transaction it is for.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::NewOrder(_) => Kind::NewOrder,
            Self::Payment(_) => Kind::Payment,
            Self::OrderStatus(_) => Kind::OrderStatus,
            Self::Delivery(_) => Kind::Delivery,
            Self::StockLevel(_) => Kind::StockLevel,
        }
    }
}

/// The output of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "outputs live on the stack of one terminal; boxing them would allocate"
)]
pub enum Output {
    /// New-order.
    NewOrder(NewOrderOutput),
    /// Payment.
    Payment(PaymentOutput),
    /// Order-status.
    OrderStatus(OrderStatusOutput),
    /// Delivery.
    Delivery(DeliveryOutput),
    /// Stock-level.
    StockLevel(StockLevelOutput),
}

/// A transaction that is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Which it was.
    pub kind: Kind,
    /// It was rolled back because the order asked for an unused item. Counts as completed (clause 2.4.1.4).
    pub rolled_back: bool,
    /// Number of times that it was begun: 1 if no conflict made it repeat.
    pub attempts: u32,
    /// Its output.
    pub output: Output,
}

/// The lowest number in each district that may still have to be delivered, for [`DeliveryRule::Keep`]: shared by
/// all terminals of a run.
#[derive(Debug)]
pub struct DeliveryCursor {
    next: Box<[AtomicU32]>,
}

impl DeliveryCursor {
    /// A cursor in front of everything. On a database that has seen deliveries before, the first one of each district
    /// searches its way past them.
    #[must_use]
    pub fn new(scale: &Scale) -> Arc<Self> {
        let districts = scale.warehouses as usize * DISTRICTS as usize;
        Arc::new(Self { next: (0..districts).map(|_| AtomicU32::new(0)).collect() })
    }

    fn of_warehouse(&self, w_id: i32) -> &[AtomicU32] {
        let first = (w_id as usize - 1) * DISTRICTS as usize;
        &self.next[first..first + DISTRICTS as usize]
    }

    /// Where the search starts in each district of a warehouse.
    #[must_use]
    pub fn start(&self, w_id: i32) -> [i32; DISTRICTS as usize] {
        let next = self.of_warehouse(w_id);
        std::array::from_fn(|district| next[district].load(Ordering::Relaxed) as i32)
    }

    /// Moves behind what a committed delivery delivered.
    pub fn advance(&self, w_id: i32, output: &DeliveryOutput) {
        for (next, delivered) in self.of_warehouse(w_id).iter().zip(output.delivered) {
            if let Some(o_id) = delivered {
                // Orders are delivered by ascending numbers: all up to this one are.
                next.fetch_max(o_id as u32 + 1, Ordering::Relaxed);
            }
        }
    }
}

/// After so many attempts a terminal gives up on a transaction: something is wrong that repeating does not mend.
pub const ATTEMPTS_MAX: u32 = 10_000;

/// Options of a terminal.
#[derive(Clone, Default)]
pub struct TerminalOptions {
    /// Options of every transaction.
    pub transaction: TransactionOptions,
    /// Keeps keying and think times.
    pub waits: bool,
    /// Deliveries keep the rows of NEW-ORDER, so that one more table grows.
    pub keep_new_orders: Option<Arc<DeliveryCursor>>,
}

/// The services that a terminal needs from the outside.
pub trait Hooks {
    /// The date and time, in microseconds since 1970 (UTC).
    fn now_us(&mut self) -> i64;

    /// Shall another transaction be run?
    fn goes_on(&mut self) -> bool;

    /// Waits; called for keying and think times only.
    fn sleep(&mut self, time_us: u64) -> impl Future<Output = ()>;

    /// A transaction is about to begin.
    fn begins(&mut self, kind: Kind);

    /// The transaction that was about to begin is decided.
    fn completed(&mut self, completed: &Completed);
}

/// A terminal.
pub struct Terminal {
    database: Database,
    tables: Tables,
    generator: InputGenerator,
    options: TerminalOptions,
    scratch: Scratch,
}

impl Terminal {
    /// A terminal that draws from `generator`.
    #[must_use]
    pub fn new(
        database: &Database,
        tables: &Tables,
        generator: InputGenerator,
        options: TerminalOptions,
    ) -> Self {
        let (database, tables) = (database.clone(), tables.clone());
        Self { database, tables, generator, options, scratch: Scratch::default() }
    }

    /// Runs transactions for as long as `hooks` says.
    ///
    /// # Errors
    /// The first error that is not a conflict, or a conflict after [`ATTEMPTS_MAX`] attempts.
    pub async fn run(&mut self, hooks: &mut impl Hooks) -> Result<()> {
        while hooks.goes_on() {
            let kind = self.generator.kind();
            if self.options.waits {
                hooks.sleep(kind.keying_time_us()).await;
            }
            let input = self.input(kind, hooks.now_us());
            hooks.begins(kind);
            let completed = self.execute(&input).await?;
            hooks.completed(&completed);
            if self.options.waits {
                let think_time_us = kind.think_time_us(self.generator.random());
                hooks.sleep(think_time_us).await;
            }
        }
        Ok(())
    }

    /// Draws an input for a transaction at `now_us`.
    pub fn input(&mut self, kind: Kind, now_us: i64) -> Input {
        match kind {
            Kind::NewOrder => Input::NewOrder(self.generator.new_order(now_us)),
            Kind::Payment => Input::Payment(self.generator.payment(now_us)),
            Kind::OrderStatus => Input::OrderStatus(self.generator.order_status()),
            Kind::Delivery => {
                let mut input = self.generator.delivery(now_us);
                if let Some(cursor) = &self.options.keep_new_orders {
                    input.rule = DeliveryRule::Keep(cursor.start(input.w_id));
                }
                Input::Delivery(input)
            }
            Kind::StockLevel => Input::StockLevel(self.generator.stock_level()),
        }
    }

    /// Runs one transaction until it is committed, or rolled back as its input asks: the engine's own retries are
    /// bounded, a terminal's patience is not, but for [`ATTEMPTS_MAX`].
    ///
    /// # Errors
    /// An error that is not a conflict, or a conflict after so many attempts.
    pub async fn execute(&mut self, input: &Input) -> Result<Completed> {
        let mut attempts = 0;
        loop {
            match self.attempt(input, &mut attempts).await {
                Err(error) if error.is_retryable() && attempts < ATTEMPTS_MAX => {}
                decided => return decided,
            }
        }
    }

    /// Runs one transaction as often as the engine repeats it, and counts the attempts.
    async fn attempt(&mut self, input: &Input, attempts: &mut u32) -> Result<Completed> {
        let Self { database, tables, scratch, options, .. } = self;
        let mut display = None;
        let outcome = database
            .transaction(options.transaction, async |transaction| {
                *attempts += 1;
                display = None;
                let output = match input {
                    Input::NewOrder(input) => {
                        Output::NewOrder(new_order(transaction, tables, scratch, input).await?)
                    }
                    Input::Payment(input) => {
                        Output::Payment(payment(transaction, tables, scratch, input).await?)
                    }
                    Input::OrderStatus(input) => {
                        Output::OrderStatus(order_status(transaction, tables, scratch, input).await?)
                    }
                    Input::Delivery(input) => Output::Delivery(delivery(transaction, tables, input).await?),
                    Input::StockLevel(input) => {
                        Output::StockLevel(stock_level(transaction, tables, scratch, input).await?)
                    }
                };
                let must_roll_back = matches!(&output, Output::NewOrder(order) if order.must_roll_back);
                display = Some(output);
                // An error is what makes the engine roll back.
                if must_roll_back {
                    Err(Error::Refused("Item number is not valid".to_owned()))
                } else {
                    Ok(())
                }
            })
            .await;
        let rolled_back = match (outcome, &display) {
            (Ok(()), _) => false,
            (Err(Error::Refused(_)), Some(Output::NewOrder(order))) if order.must_roll_back => true,
            (Err(error), _) => return Err(error),
        };
        let output = display.expect("the body has run to its end");
        if let (Input::Delivery(input), Output::Delivery(output), Some(cursor)) =
            (input, &output, &options.keep_new_orders)
        {
            cursor.advance(input.w_id, output);
        }
        Ok(Completed { kind: input.kind(), rolled_back, attempts: *attempts, output })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_moves_behind_what_was_delivered_and_never_back() {
        let cursor = DeliveryCursor::new(&Scale::new(2, 10, 100));
        let mut output = DeliveryOutput::default();
        output.delivered[3] = Some(8);
        cursor.advance(2, &output);
        output.delivered[3] = Some(7);
        cursor.advance(2, &output);
        assert_eq!(cursor.start(2), [0, 0, 0, 9, 0, 0, 0, 0, 0, 0]);
        assert_eq!(cursor.start(1), [0; 10]);
    }
}
