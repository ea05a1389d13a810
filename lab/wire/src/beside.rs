//! Point selects on several connections, alone and beside a query that one more connection asks again and again.
//!
//! The selects are prepared, of a customer by its key, drawn uniformly. Told are their rate, median and 99th percentile, and how often
//! the query has been answered meanwhile. Rounds go from server to server, alone and beside in turns.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use thermocline_workloads::random::Random;

use crate::tpcc::describe;
use crate::{Result, Server, Servers, median};

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
    /// For each server, alone and beside.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// The query beside the selects.
    #[arg(long, value_enum, default_value_t = Query::Group)]
    query: Query,
}

#[derive(Clone, Copy, ValueEnum)]
enum Query {
    /// Q1 of CH-benCHmark: all order lines into 15 groups.
    Group,
    /// All order lines, with a condition that none of them meets.
    Scan,
}

impl Query {
    const fn text(self) -> &'static str {
        match self {
            Self::Group => {
                "select ol_number, sum(ol_quantity), sum(ol_amount), avg(ol_quantity), avg(ol_amount), count(*) \
                 from order_line where ol_delivery_d > timestamp '2007-01-02' group by ol_number order by ol_number"
            }
            Self::Scan => "select * from order_line where ol_dist_info like '%no such phrase%'",
        }
    }
}

/// The figures of a round.
struct Round {
    /// Of each select.
    micros: Vec<u64>,
    /// Number of answers to the query.
    queries: u64,
}

pub(crate) async fn run(run: &Run) -> Result<()> {
    // By server: p99 alone, and beside the query.
    let mut all = vec![[Vec::new(), Vec::new()]; run.servers.servers.len()];
    for number in 0..run.rounds {
        for (server, p99s) in run.servers.servers.iter().zip(&mut all) {
            for (p99s, word) in p99s.iter_mut().zip(["alone", "beside"]) {
                let mut round = round(run, server, number, word == "beside").await?;
                round.micros.sort_unstable();
                let at = |share: f64| round.micros[((round.micros.len() - 1) as f64 * share) as usize];
                let rate = round.micros.len() as u64 / run.seconds;
                println!(
                    "{:<16} round {number} {word:<6}: {rate:>7} selects a second, median {:>6} us, p99 {:>7} us, most {:>8} us, \
                     {} queries",
                    server.name,
                    at(0.5),
                    at(0.99),
                    at(1.0),
                    round.queries
                );
                p99s.push(at(0.99) as f64);
            }
        }
    }
    for (server, [alone, beside]) in run.servers.servers.iter().zip(all) {
        let (alone, beside) = (median(alone), median(beside));
        println!("{}: p99 {alone:.0} us alone, {beside:.0} us beside: {:.1} ×", server.name, beside / alone);
    }
    Ok(())
}

async fn round(run: &Run, server: &Server, number: u64, is_beside: bool) -> Result<Round> {
    let queries = Rc::new(Cell::new(0));
    let asked = if is_beside {
        let (client, queries, query) = (server.connect().await?, Rc::clone(&queries), run.query.text());
        let stop = client.cancel_token();
        let asked = tokio::task::spawn_local(async move {
            loop {
                match client.simple_query(query).await {
                    Ok(_) => queries.set(queries.get() + 1),
                    Err(error) => return describe(&error),
                }
            }
        });
        Some((asked, stop))
    } else {
        None
    };
    let end = Instant::now() + Duration::from_secs(run.seconds);
    let mut selects = Vec::new();
    for connection in 0..run.connections {
        let random = Random::stream(number, &[connection]);
        let (server, warehouses) = (server.clone(), run.warehouses);
        selects.push(tokio::task::spawn_local(async move {
            select(&server, warehouses, random, end).await.map_err(|error| describe(&*error))
        }));
    }
    let mut micros = Vec::new();
    for select in selects {
        micros.extend(select.await??);
    }
    if let Some((asked, stop)) = asked {
        if asked.is_finished() {
            return Err(format!("{}: {}", server.name, asked.await?).into());
        }
        // The next round has the server to itself.
        stop.cancel_query(tokio_postgres::NoTls).await?;
        asked.await?;
    }
    Ok(Round { micros, queries: queries.get() })
}

async fn select(server: &Server, warehouses: i32, mut random: Random, end: Instant) -> Result<Vec<u64>> {
    let client = server.connect().await?;
    let statement = client
        .prepare(
            "select c_first, c_last, c_balance from customer where c_w_id = $1 and c_d_id = $2 and c_id = $3",
        )
        .await?;
    let mut micros = Vec::new();
    while Instant::now() < end {
        let district = i16::try_from(random.between(1, 10))?;
        let (warehouse, customer) = (random.between_i32(1, warehouses), random.between_i32(1, 3_000));
        let began = Instant::now();
        client.query_one(&statement, &[&warehouse, &district, &customer]).await?;
        micros.push(u64::try_from(began.elapsed().as_micros())?);
    }
    Ok(micros)
}
