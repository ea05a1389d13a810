//! TPC-C: loads it, runs its mix without keying and think times, and checks its twelve consistency conditions.
//!
//! Clients stand in one warehouse each, as the specification has it, one after the other; when there are fewer clients
//! than warehouses, each transaction draws its warehouse.

use std::sync::Arc;

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_engine::{Database, TransactionOptions};
use thermocline_workloads::random::Random;
use thermocline_workloads::tpcc::check::{ConditionResult, NewOrders, check_with};
use thermocline_workloads::tpcc::generate::Population;
use thermocline_workloads::tpcc::input::{Deck, Home, InputGenerator, Kind};
use thermocline_workloads::tpcc::load::{LoadOptions, load as load_population};
use thermocline_workloads::tpcc::schema::Tables;
use thermocline_workloads::tpcc::terminal::{DeliveryCursor, Terminal, TerminalOptions};
use thermocline_workloads::tpcc::{DISTRICTS, Scale};

use super::{Loaded, RunError, Session, end_of, engine};
use crate::drive::{Client, End, Ended, Place, Workload};
use crate::report::{Condition, Throughput};
use crate::settings::{Benchmark, Mix};

/// Moments of the run are drawn from the wall clock; the population's from this one (2026-01-01).
const LOADED_AT_US: i64 = 1_767_225_600_000_000;

pub(super) fn run(session: &mut Session<'_>) -> Result<Throughput, RunError> {
    let Benchmark::Tpcc { warehouses, skewed_growth, deck } = session.settings.benchmark else {
        unreachable!("`tpcc` runs with its own settings");
    };
    let database = session.open()?;
    let (mut tpcc, loaded) = load(session, &database, warehouses, skewed_growth)?;
    tpcc.deck = deck;
    let mut found = session.measure(&database, &loaded, &tpcc)?;
    drop(tpcc);
    if session.check {
        found.conditions = Some(check(session, &database, skewed_growth)?);
    }
    session.close(database)?;
    Ok(found)
}

/// Loads `warehouses` and returns what runs the mix on them.
pub(super) fn load<'a>(
    session: &mut Session<'_>,
    database: &'a Database,
    warehouses: u32,
    skewed_growth: bool,
) -> Result<(Tpcc<'a>, Loaded), RunError> {
    let warehouses = i32::try_from(warehouses)
        .map_err(|_| RunError::Setting(format!("--warehouses {warehouses} is too many")))?;
    let scale = Scale::full(warehouses);
    let seed = session.settings.seed;
    let population = Population { scale, seed, at_us: LOADED_AT_US };
    let options = LoadOptions { threads: session.settings.threads, ..LoadOptions::default() };
    let (tables, loaded) = session.load(database, |count| {
        load_population(database, &population, options, &|progress| {
            count(progress.rows, progress.rows_expected);
        })
    })?;
    let cursor = skewed_growth.then(|| DeliveryCursor::new(&scale));
    Ok((Tpcc { database, tables, scale, seed, cursor, deck: Mix::Standard, first: 0 }, loaded))
}

/// The workload that runs the mix on warehouses that are loaded, by clients with numbers from `first` on.
pub(super) fn loaded<'a>(
    database: &'a Database,
    warehouses: u32,
    seed: u64,
    first: u64,
) -> Result<Tpcc<'a>, RunError> {
    let tables = Tables::open(database).map_err(engine("find the tables"))?;
    // Loading has refused a number that is too large.
    let scale = Scale::full(i32::try_from(warehouses).unwrap_or(i32::MAX));
    Ok(Tpcc { database, tables, scale, seed, cursor: None, deck: Mix::Standard, first })
}

/// Checks the twelve conditions.
pub(super) fn check(
    session: &mut Session<'_>,
    database: &Database,
    skewed_growth: bool,
) -> Result<Vec<Condition>, RunError> {
    session.progress.begin("checking the consistency conditions");
    let new_orders = if skewed_growth { NewOrders::Kept } else { NewOrders::Deleted };
    let results = check_with(database, new_orders).map_err(engine("check the consistency conditions"))?;
    session.progress.end();
    Ok(results.into_iter().map(Condition::from).collect())
}

impl From<ConditionResult> for Condition {
    fn from(result: ConditionResult) -> Self {
        Self {
            number: u32::from(result.number),
            statement: result.statement.to_owned(),
            checked: result.checked,
            violated: result.violated,
            violations: result.violations.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The mix on a loaded database.
pub(super) struct Tpcc<'a> {
    database: &'a Database,
    tables: Tables,
    scale: Scale,
    seed: u64,
    cursor: Option<Arc<DeliveryCursor>>,
    deck: Mix,
    /// The number of the first client: others draw other requests.
    first: u64,
}

/// In the order of [`Kind::ALL`].
const KINDS: [&str; 5] = ["new-order", "payment", "order-status", "delivery", "stock-level"];

impl Workload for Tpcc<'_> {
    type Client<'a>
        = TpccClient
    where
        Self: 'a;

    fn kinds(&self) -> &[&'static str] {
        &KINDS
    }

    fn client(&self, place: Place) -> TpccClient {
        let warehouses = self.scale.warehouses as usize;
        let home = if place.clients < warehouses {
            Home::Uniform
        } else {
            // Neighbouring clients in different warehouses, and those of one warehouse in different districts.
            let warehouse = place.client % warehouses;
            let district = place.client / warehouses % DISTRICTS as usize;
            Home::District(warehouse as i32 + 1, district as i16 + 1)
        };
        let number = self.first + place.client as u64;
        let generator = InputGenerator::new(self.scale, self.seed, self.seed.wrapping_add(1), number, home);
        let options = TerminalOptions {
            transaction: TransactionOptions::default(),
            waits: false,
            keep_new_orders: self.cursor.clone(),
        };
        TpccClient {
            terminal: Terminal::new(self.database, &self.tables, generator, options),
            deck: Deck::new(match self.deck {
                Mix::Standard => Deck::STANDARD,
                Mix::Balanced => Deck::BALANCED,
            }),
            random: Random::stream(self.seed, &[0x006d_6978, number]),
        }
    }
}

/// A terminal and its deck of cards.
pub(super) struct TpccClient {
    terminal: Terminal,
    deck: Deck,
    random: Random,
}

impl Client for TpccClient {
    async fn transaction(&mut self) -> Ended {
        let kind = self.deck.draw(&mut self.random);
        let input = self.terminal.input(kind, SystemClock.wall_us());
        let end = match self.terminal.execute(&input).await {
            Ok(completed) if completed.rolled_back => End::RolledBack,
            Ok(_) => End::Committed,
            Err(error) => end_of(error),
        };
        Ended { kind: kind_index(kind), end }
    }
}

fn kind_index(kind: Kind) -> usize {
    match kind {
        Kind::NewOrder => 0,
        Kind::Payment => 1,
        Kind::OrderStatus => 2,
        Kind::Delivery => 3,
        Kind::StockLevel => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_as_the_workload_names_them() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!((kind_index(kind), KINDS[index]), (index, kind.to_string().as_str()));
        }
    }
}
