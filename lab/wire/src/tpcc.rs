//! Loading and running TPC-C on each of the servers.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use serde_json::json;
use thermocline_workloads::tpcc::Scale;
use thermocline_workloads::tpcc::generate::Population;
use thermocline_workloads::tpcc::input::{Home, InputGenerator, Kind};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::schema::Target;
use crate::transactions::{self, End, Statements};
use crate::{Result, Server, Servers, median, schema};

pub(crate) const SEED: u64 = 1;

#[derive(Args)]
pub(crate) struct Load {
    #[command(flatten)]
    servers: Servers,
    #[arg(long, default_value_t = 4)]
    warehouses: i32,
}

#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    servers: Servers,
    /// As many as were loaded.
    #[arg(long, default_value_t = 4)]
    warehouses: i32,
    #[arg(long, default_value_t = 8)]
    connections: u64,
    /// Of a round.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// For each server.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Prints the figures as JSON, too.
    #[arg(long)]
    json: bool,
}

pub(crate) fn population(warehouses: i32) -> Population {
    // 2025-01-01: what has happened before the run.
    Population { scale: Scale::full(warehouses), seed: SEED, at_us: 1_735_689_600_000_000 }
}

pub(crate) async fn load(load: &Load) -> Result<()> {
    for server in &load.servers.servers {
        let client = server.connect().await?;
        let began = Instant::now();
        schema::define(&client).await?;
        let rows = schema::load(Target::Server(&client), &population(load.warehouses), None).await?;
        // So that plans know how large tables are, where a server wants that to be said.
        client.batch_execute("analyze").await?;
        let seconds = began.elapsed().as_secs_f64();
        println!("{}: {rows} rows in {seconds:.1} s", server.name);
        report_broken(server, &client).await?;
    }
    Ok(())
}

pub(crate) async fn report_broken(server: &Server, client: &Client) -> Result<()> {
    let broken = schema::check(client).await?;
    if broken.is_empty() {
        println!("{}: all 12 conditions hold", server.name);
        return Ok(());
    }
    let broken: Vec<String> =
        broken.iter().map(|(number, rows)| format!("condition {number} by {rows} rows")).collect();
    Err(format!("{}: {}", server.name, broken.join(", ")).into())
}

/// The counts of a round.
#[derive(Default)]
struct Round {
    committed: u64,
    rolled_back: u64,
    /// Attempts that the server has ended, for the client to repeat.
    repeated: u64,
    micros: BTreeMap<usize, Vec<u64>>,
}

pub(crate) async fn run(run: &Run) -> Result<()> {
    let mut figures: Vec<Vec<f64>> = vec![Vec::new(); run.servers.servers.len()];
    let mut latencies: Vec<BTreeMap<usize, Vec<u64>>> = vec![BTreeMap::new(); run.servers.servers.len()];
    for round in 0..run.rounds {
        for (at, server) in run.servers.servers.iter().enumerate() {
            let outcome = one_round(run, server, round).await?;
            let rate = (outcome.committed + outcome.rolled_back) as f64 / run.seconds as f64;
            println!(
                "{:<16} round {round}: {rate:>8.0} tx/s, {} rolled back as asked, {} repeated",
                server.name, outcome.rolled_back, outcome.repeated
            );
            figures[at].push(rate);
            for (kind, micros) in outcome.micros {
                latencies[at].entry(kind).or_default().extend(micros);
            }
        }
    }
    let base = median(figures[0].clone());
    for ((server, rates), latency) in run.servers.servers.iter().zip(&figures).zip(&mut latencies) {
        let rate = median(rates.clone());
        println!(
            "{:<16} median {rate:>8.0} tx/s, {:.2} of {}",
            server.name,
            rate / base,
            run.servers.servers[0].name
        );
        for (kind, micros) in latency.iter_mut() {
            micros.sort_unstable();
            let at = |share: f64| micros[((micros.len() - 1) as f64 * share) as usize];
            println!(
                "    {:<13} {:>8} times, median {:>7} us, p99 {:>8} us",
                Kind::ALL[*kind].to_string(),
                micros.len(),
                at(0.5),
                at(0.99)
            );
        }
        report_broken(server, &server.connect().await?).await?;
        if run.json {
            println!("{}", json!({ "server": server.name, "connections": run.connections, "rates": rates }));
        }
    }
    Ok(())
}

async fn one_round(run: &Run, server: &Server, round: u64) -> Result<Round> {
    let end = Instant::now() + Duration::from_secs(run.seconds);
    let mut terminals = Vec::new();
    let server = Rc::new(server.clone());
    for number in 0..run.connections {
        let generator =
            InputGenerator::new(Scale::full(run.warehouses), SEED, 2 + round, number, Home::Uniform);
        let server = Rc::clone(&server);
        terminals.push(tokio::task::spawn_local(async move {
            terminal(&server, generator, end).await.map_err(|error| describe(&*error))
        }));
    }
    let mut all = Round::default();
    for terminal in terminals {
        let part = terminal.await??;
        all.committed += part.committed;
        all.rolled_back += part.rolled_back;
        all.repeated += part.repeated;
        for (kind, micros) in part.micros {
            all.micros.entry(kind).or_default().extend(micros);
        }
    }
    Ok(all)
}

/// An error with what the server says.
pub(crate) fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    match error.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::as_db_error) {
        Some(server) => format!("{} {}: {}", server.code().code(), server.severity(), server.message()),
        None => error.to_string(),
    }
}

async fn terminal(server: &Server, mut inputs: InputGenerator, end: Instant) -> Result<Round> {
    let mut client = server.connect().await?;
    let statements = Statements::prepare(&client).await?;
    let mut round = Round::default();
    while Instant::now() < end {
        let at_us = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_micros();
        let at_us = i64::try_from(at_us).expect("a time of this age");
        let kind = inputs.kind();
        let input = Input::draw(&mut inputs, kind, at_us);
        let began = Instant::now();
        let outcome = loop {
            match input.run(&mut client, &statements).await {
                Ok(outcome) => break outcome,
                Err(error) if is_to_repeat(&*error) => round.repeated += 1,
                Err(error) => return Err(error),
            }
        };
        let micros = u64::try_from(began.elapsed().as_micros()).expect("less than an age");
        round.micros.entry(kind as usize).or_default().push(micros);
        match outcome {
            End::Committed => round.committed += 1,
            End::RolledBack => round.rolled_back += 1,
        }
    }
    Ok(round)
}

/// Does the server ask for another attempt?
fn is_to_repeat(error: &(dyn std::error::Error + 'static)) -> bool {
    let code = error.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
    code.is_some_and(|code| {
        *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED
    })
}

/// One transaction, as it was drawn.
enum Input {
    NewOrder(thermocline_workloads::tpcc::input::NewOrderInput),
    Payment(thermocline_workloads::tpcc::input::PaymentInput),
    OrderStatus(thermocline_workloads::tpcc::input::OrderStatusInput),
    Delivery(thermocline_workloads::tpcc::input::DeliveryInput),
    StockLevel(thermocline_workloads::tpcc::input::StockLevelInput),
}

impl Input {
    fn draw(inputs: &mut InputGenerator, kind: Kind, at_us: i64) -> Self {
        match kind {
            Kind::NewOrder => Self::NewOrder(inputs.new_order(at_us)),
            Kind::Payment => Self::Payment(inputs.payment(at_us)),
            Kind::OrderStatus => Self::OrderStatus(inputs.order_status()),
            Kind::Delivery => Self::Delivery(inputs.delivery(at_us)),
            Kind::StockLevel => Self::StockLevel(inputs.stock_level()),
        }
    }

    async fn run(&self, client: &mut Client, statements: &Statements) -> Result<End> {
        let tx = client.transaction().await?;
        match self {
            Self::NewOrder(input) => transactions::new_order(tx, statements, input).await,
            Self::Payment(input) => transactions::payment(tx, statements, input).await,
            Self::OrderStatus(input) => transactions::order_status(tx, statements, input).await,
            Self::Delivery(input) => transactions::delivery(tx, statements, input).await,
            Self::StockLevel(input) => transactions::stock_level(tx, statements, input).await,
        }
    }
}
