//! Servers that speak PostgreSQL's protocol, measured beside each other with one client for all of them.
//!
//! `tpcc`: TPC-C with one statement a round trip. Each server has the same tables and rows; the rounds go from server to
//! server in turn. Connections share one thread, which waits for no answer while another one is there.
//!
//! `queries`: what applications ask of these tables. `ch`, `tpch`: suites of 22 analytical queries, DuckDB beside the servers.
//! `beside`: point selects while a query runs. `stream`: memory while long answers are read. `kept`: queries that keep many rows.

mod analytics;
mod beside;
mod duck;
mod kept;
mod queries;
mod schema;
mod stream;
mod suite;
mod tpcc;
mod transactions;

use clap::{Args, Parser, Subcommand};
use tokio_postgres::{Client, NoTls};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
#[command(version, about)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Makes the tables of TPC-C anew and fills them.
    Load(tpcc::Load),
    /// Runs TPC-C, and checks its conditions afterwards.
    Tpcc(tpcc::Run),
    /// Asks what applications ask of these tables.
    Queries(queries::Run),
    /// Fills the tables of CH-benCHmark, and asks its 22 queries.
    Ch(analytics::Ch),
    /// Fills the tables of TPC-H, and asks its 22 queries.
    Tpch(analytics::TpcH),
    /// Measures point selects alone and beside a query that never ends, over the tables of `ch`.
    Beside(beside::Run),
    /// Asks queries that keep many rows: the first few of an order, sorts and groups beyond their memory.
    Kept(kept::Run),
    /// Reads answers that are longer than memory should hold, and tells how much of it the server takes for them.
    Stream(stream::Run),
}

/// Which servers.
#[derive(Args, Clone)]
pub(crate) struct Servers {
    /// A server: its name, and how to connect to it (`thermocline=host=127.0.0.1 port=5433 user=postgres dbname=postgres`).
    #[arg(long = "server", required = true, value_parser = server)]
    servers: Vec<Server>,
}

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) name: String,
    connection: String,
}

fn server(text: &str) -> std::result::Result<Server, String> {
    let (name, connection) = text.split_once('=').ok_or("NAME=CONNECTION")?;
    Ok(Server { name: name.to_owned(), connection: connection.to_owned() })
}

impl Server {
    /// A connection, driven by a task of its own.
    pub(crate) async fn connect(&self) -> Result<Client> {
        let (client, connection) = tokio_postgres::connect(&self.connection, NoTls)
            .await
            .map_err(|error| format!("{}: {error}", self.name))?;
        tokio::task::spawn_local(async move {
            if let Err(error) = connection.await {
                eprintln!("a connection has ended: {error}");
            }
        });
        Ok(client)
    }
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> Result<()> {
    let command = Command::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        match command.what {
            What::Load(load) => tpcc::load(&load).await,
            What::Tpcc(run) => tpcc::run(&run).await,
            What::Queries(run) => queries::run(&run).await,
            What::Ch(run) => analytics::ch(&run).await,
            What::Tpch(run) => analytics::tpch(&run).await,
            What::Beside(run) => beside::run(&run).await,
            What::Kept(run) => kept::run(&run).await,
            What::Stream(run) => stream::run(&run).await,
        }
    })
}
