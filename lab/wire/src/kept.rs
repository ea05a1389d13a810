//! Queries that keep many rows: the first few of an order, and sorts and groups of several times their memory.
//!
//! A table is filled with rows in a drawn order. All servers must answer alike before anything is measured. `work_mem` is that of
//! each server; PostgreSQL lets a hash table have `hash_mem_multiplier` times it.

use clap::Args;
use tokio_postgres::Client;

use crate::queries::{is_answered_alike, times};
use crate::{Result, Servers};

#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    servers: Servers,
    /// Rows.
    #[arg(long, default_value_t = 2_000_000)]
    rows: u64,
    /// Memory of a sort or a group, as `work_mem` has it: a quarter of what these rows take, or less.
    #[arg(long, default_value = "32MB")]
    work_mem: String,
    /// Rounds, which go from server to server.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The rows are there from a run before.
    #[arg(long)]
    loaded: bool,
}

/// Queries, each with a name. `$rows` are all rows but ten.
const QUERIES: [(&str, &str); 8] = [
    ("top 10 by a number", "select id, k from kept order by k desc, id limit 10"),
    ("top 10 by a text", "select id, t from kept order by t, id limit 10"),
    ("top 1000 of a part", "select id, k, v from kept where v > 5000 order by v, k limit 1000"),
    ("sort by a number", "select id, k, t from kept order by k, id offset $rows"),
    ("sort by a text", "select id, k, t from kept order by t, id offset $rows"),
    ("sort by two, one descending", "select id, v, t from kept order by v desc, k offset $rows"),
    (
        "group by a number",
        "select count(*), sum(n), min(s), max(s) from (select k, count(*) as n, sum(v) as s from kept group by k) as all_groups",
    ),
    (
        "group by a text",
        "select count(*), sum(n), min(s), max(s) from (select t, count(*) as n, sum(v) as s from kept group by t) as all_groups",
    ),
];

async fn fill(client: &Client, rows: u64) -> Result<()> {
    client.batch_execute("drop table if exists kept").await?;
    let columns = "id bigint primary key, k bigint not null, v numeric(10, 2) not null, t text not null";
    client.batch_execute(&format!("create table kept ({columns})")).await?;
    for from in (1..=rows).step_by(200_000) {
        let to = rows.min(from + 199_999);
        // An odd factor leaves numbers different; two rows have each number.
        let insert = format!(
            "insert into kept select g, (g / 2) * 2654435761 % 4294967296, (g * 7919 % 1000000) / 100.0, md5((g / 2)::text)
             from generate_series({from}::bigint, {to}) g"
        );
        client.batch_execute(&insert).await?;
    }
    Ok(())
}

pub(crate) async fn run(run: &Run) -> Result<()> {
    let mut clients = Vec::new();
    for server in &run.servers.servers {
        let client = server.connect().await?;
        if !run.loaded {
            fill(&client, run.rows).await?;
            if server.name.starts_with("postgres") {
                client.batch_execute("vacuum analyze kept").await?;
            }
        }
        client.batch_execute(&format!("set work_mem = '{}'", run.work_mem)).await?;
        clients.push(client);
    }
    let names: Vec<&str> = run.servers.servers.iter().map(|server| server.name.as_str()).collect();
    let mut refused = 0;
    for (what, query) in QUERIES {
        let query = query.replace("$rows", &(run.rows - 10).to_string());
        if !is_answered_alike(&clients, &names, &query).await? {
            refused += 1;
            continue;
        }
        let times = times(&clients, &query, true, run.rounds).await?;
        let told = names
            .iter()
            .zip(&times)
            .map(|(name, time)| format!("{name} {:.0} ms ({:.2})", time * 1e3, time / times[0]));
        println!("{what:<28} {}", told.collect::<Vec<_>>().join(", "));
    }
    if refused > 0 {
        return Err(format!("{refused} queries were refused, or not answered alike").into());
    }
    Ok(())
}
