//! Answers that are longer than memory should ever hold: how much more of it a server has while they are read.
//!
//! Two tables are filled, one of many small rows and one of few wide ones; each is read whole, by a prepared statement, by the simple
//! protocol and by COPY, by a client that counts the rows and keeps none. Told is the memory of the server's process at rest and at
//! most (`/proc/PID/clear_refs`). PostgreSQL answers from a process of the connection's own, which has shared buffers mapped beside:
//! its private memory is looked at with every 1,000th row.

use std::pin::pin;
use std::time::Instant;

use clap::Args;
use futures_util::StreamExt;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::suite::{rest, status};
use crate::{Result, Server, Servers};

#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    servers: Servers,
    /// The process of a server that has one for all connections (`thermocline=1234`).
    #[arg(long = "memory", value_parser = crate::suite::process)]
    memory: Vec<(String, u32)>,
    /// Small rows.
    #[arg(long, default_value_t = 10_000_000)]
    rows: u64,
    /// Wide rows.
    #[arg(long, default_value_t = 20_000)]
    wide_rows: u64,
    /// Bytes of a wide row.
    #[arg(long, default_value_t = 100_000)]
    bytes: u64,
    /// Reads of each table in each way.
    #[arg(long, default_value_t = 2)]
    rounds: u64,
    /// The rows are there from a run before.
    #[arg(long)]
    loaded: bool,
}

/// Ways to ask for all rows.
const WAYS: [&str; 3] = ["prepared", "simple", "copy"];

pub(crate) async fn run(run: &Run) -> Result<()> {
    for server in &run.servers.servers {
        let client = server.connect().await?;
        if !run.loaded {
            fill(run, &client).await?;
        }
        let process = run.memory.iter().find(|(name, _)| *name == server.name).map(|(_, pid)| *pid);
        for table in ["small", "wide"] {
            for way in WAYS {
                for _ in 0..run.rounds {
                    read(server, process, table, way).await?;
                }
            }
        }
    }
    Ok(())
}

async fn fill(run: &Run, client: &Client) -> Result<()> {
    client.batch_execute("drop table if exists small; drop table if exists wide").await?;
    client.batch_execute("create table small (id bigint primary key, n int)").await?;
    client.batch_execute("create table wide (id bigint primary key, text text)").await?;
    // Texts that no server packs well.
    let text = format!("left(repeat(md5(g::text), {}), {})", run.bytes.div_ceil(32), run.bytes);
    let tables = [("small", "g % 1000".to_owned(), run.rows, 500_000), ("wide", text, run.wide_rows, 1_000)];
    for (table, value, rows, step) in tables {
        for from in (1..=rows).step_by(step) {
            let to = rows.min(from + step as u64 - 1);
            let insert =
                format!("insert into {table} select g, {value} from generate_series({from}::bigint, {to}) g");
            client.batch_execute(&insert).await?;
        }
    }
    Ok(())
}

/// Reads a table once, on a connection of its own, and tells the figures.
async fn read(server: &Server, process: Option<u32>, table: &str, way: &str) -> Result<()> {
    let client = server.connect().await?;
    let own: i32 = client.query_one("select pg_backend_pid()", &[]).await?.get(0);
    let own = u32::try_from(own)?;
    let before = process.map_or_else(|| status(own, "RssAnon"), rest);
    let (mut rows, mut most) = (0_u64, 0);
    let mut see = || {
        rows += 1;
        if process.is_none() && rows.is_multiple_of(1000) {
            most = most.max(status(own, "RssAnon").unwrap_or(0));
        }
    };
    let began = Instant::now();
    let select = format!("select * from {table}");
    match way {
        "prepared" => {
            let parameters: [i32; 0] = [];
            let mut all = pin!(client.query_raw(&select, parameters).await?);
            while let Some(row) = all.next().await {
                row?;
                see();
            }
        }
        "simple" => {
            let mut all = pin!(client.simple_query_raw(&select).await?);
            while let Some(message) = all.next().await {
                if let SimpleQueryMessage::Row(_) = message? {
                    see();
                }
            }
        }
        _ => {
            let mut all = pin!(client.copy_out(&format!("copy {table} to stdout")).await?);
            while let Some(line) = all.next().await {
                line?;
                see();
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let most = process.map_or(Some(most), |pid| status(pid, "VmHWM"));
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let memory = match before.zip(most) {
        Some((before, most)) => {
            format!(
                "{:.1} MiB at rest, {:.1} MiB more at most",
                mib(before),
                mib(most.saturating_sub(before))
            )
        }
        None => "memory unknown".to_owned(),
    };
    println!("{:<16} {table:<5} {way:<8}: {rows:>9} rows in {seconds:>6.2} s, {memory}", server.name);
    Ok(())
}
