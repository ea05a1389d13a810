//! Queries as applications and their mappers write them, over the tables of TPC-C: all servers must answer alike, and the
//! times are compared.

use std::time::Instant;

use clap::Args;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::tpcc::describe;
use crate::{Result, Servers, median};

#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    servers: Servers,
    /// How often each query is asked of each server.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Tells the times of each query.
    #[arg(long)]
    each: bool,
}

/// Short queries: a screen of an application each. Values stand in them; a prepared statement is made of the whole text.
const SHORT: [&str; 30] = [
    "select * from customer where c_w_id = 1 and c_d_id = 3 and c_id = 42",
    "select c_id, c_first, c_last from customer where c_w_id = 1 and c_d_id = 3 and c_last = 'BARBARBAR' order by c_first",
    "select c_id, c_first from customer where c_w_id = 1 and c_d_id = 2 and c_last like 'BARB%' order by c_last, c_first limit 20",
    "select o_id, o_entry_d, o_ol_cnt from orders where o_w_id = 1 and o_d_id = 1 and o_c_id = 17 order by o_id desc limit 10",
    "select o.o_id, l.ol_number, l.ol_amount from orders o join order_line l on l.ol_w_id = o.o_w_id and l.ol_d_id = o.o_d_id and l.ol_o_id = o.o_id where o.o_w_id = 1 and o.o_d_id = 1 and o.o_id = 1500 order by l.ol_number",
    "select l.ol_number, i.i_name, i.i_price, l.ol_quantity from order_line l inner join item i on i.i_id = l.ol_i_id where l.ol_w_id = 1 and l.ol_d_id = 4 and l.ol_o_id = 77 order by l.ol_number",
    "select w.w_name, d.d_name, d.d_next_o_id from warehouse w join district d on d.d_w_id = w.w_id where w.w_id = 1 order by d.d_id",
    "select count(*) from orders where o_w_id = 1 and o_d_id = 5",
    "select sum(ol_amount), avg(ol_quantity) from order_line where ol_w_id = 1 and ol_d_id = 5 and ol_o_id between 100 and 200",
    "select ol_o_id, count(*), sum(ol_amount) from order_line where ol_w_id = 1 and ol_d_id = 6 and ol_o_id between 300 and 340 group by ol_o_id having count(*) > 9 order by ol_o_id",
    "select i_id, i_name from item where i_id in (3, 1, 4, 15, 92, 65, 35, 89, 79) order by i_id",
    "select s_i_id, s_quantity from stock where s_w_id = 1 and s_i_id in (10, 20, 30, 40, 50) and s_quantity > 15 order by s_i_id",
    "select i.i_id, i.i_name, s.s_quantity from item i join stock s on s.s_i_id = i.i_id where s.s_w_id = 1 and i.i_id between 500 and 540 and s.s_quantity < 30 order by i.i_id",
    "select exists (select 1 from new_order where no_w_id = 1 and no_d_id = 7)",
    "select c_id from customer c where c_w_id = 1 and c_d_id = 8 and c_id < 50 and exists (select 1 from orders o where o.o_w_id = c.c_w_id and o.o_d_id = c.c_d_id and o.o_c_id = c.c_id and o.o_ol_cnt > 12) order by c_id",
    "select c_id from customer c where c_w_id = 1 and c_d_id = 8 and c_id < 50 and not exists (select 1 from orders o where o.o_w_id = c.c_w_id and o.o_d_id = c.c_d_id and o.o_c_id = c.c_id and o.o_ol_cnt > 12) order by c_id",
    "select no_o_id from new_order where no_w_id = 1 and no_d_id = 9 order by no_o_id limit 1",
    "select max(o_id), min(o_id) from orders where o_w_id = 1 and o_d_id = 9",
    "select d_id, (select count(*) from new_order where no_w_id = d_w_id and no_d_id = d_id) as waiting from district where d_w_id = 1 order by d_id",
    "select c.c_id, c.c_last, count(o.o_id) from customer c left join orders o on o.o_w_id = c.c_w_id and o.o_d_id = c.c_d_id and o.o_c_id = c.c_id where c.c_w_id = 1 and c.c_d_id = 10 and c.c_id between 1 and 20 group by c.c_id, c.c_last order by c.c_id",
    "select distinct c_credit from customer where c_w_id = 1 and c_d_id = 1 and c_id < 200 order by c_credit",
    "select c_id, case when c_balance < 0 then 'debt' else 'credit' end as state, coalesce(c_middle, '-') from customer where c_w_id = 1 and c_d_id = 1 and c_id between 5 and 25 order by c_id",
    "select c_id, upper(c_last) || ', ' || c_first as name, length(c_data) from customer where c_w_id = 1 and c_d_id = 2 and c_id between 5 and 25 order by name",
    "select c_id, c_balance from customer where c_w_id = 1 and c_d_id = 3 order by c_balance desc, c_id limit 10",
    "select o_id, o_carrier_id from orders where o_w_id = 1 and o_d_id = 4 and o_carrier_id is null order by o_id offset 20 limit 10",
    "select o.o_id, c.c_last, w.w_name, d.d_name from orders o join customer c on c.c_w_id = o.o_w_id and c.c_d_id = o.o_d_id and c.c_id = o.o_c_id join district d on d.d_w_id = o.o_w_id and d.d_id = o.o_d_id join warehouse w on w.w_id = o.o_w_id where o.o_w_id = 1 and o.o_d_id = 5 and o.o_id between 1000 and 1010 order by o.o_id",
    "select i.i_id, sum(l.ol_quantity) as sold from order_line l join item i on i.i_id = l.ol_i_id where l.ol_w_id = 1 and l.ol_d_id = 5 and l.ol_o_id between 1 and 60 group by i.i_id order by sold desc, i.i_id limit 5",
    "select date_trunc('day', o_entry_d) as day, count(*) from orders where o_w_id = 1 and o_d_id = 6 and o_id < 100 group by day order by day",
    "with late as (select o_id, o_c_id from orders where o_w_id = 1 and o_d_id = 7 and o_carrier_id is null order by o_id limit 15) select late.o_id, c.c_last from late join customer c on c.c_w_id = 1 and c.c_d_id = 7 and c.c_id = late.o_c_id order by late.o_id",
    "select c_id from customer where (c_w_id, c_d_id, c_id) in ((1, 1, 5), (1, 2, 6), (1, 3, 7)) order by c_id",
];

/// Queries over whole tables, without an index that helps.
const LONG: [&str; 5] = [
    "select count(*) from order_line",
    "select sum(ol_amount) from order_line",
    "select ol_number, count(*), sum(ol_quantity), sum(ol_amount) from order_line group by ol_number order by ol_number",
    "select count(*) from order_line where ol_quantity < 5 and ol_amount > 1000",
    "select ol_supply_w_id, ol_d_id, avg(ol_amount) from order_line group by ol_supply_w_id, ol_d_id order by 1, 2",
];

/// The rows of an answer, as text.
async fn answer(client: &Client, query: &str) -> Result<Vec<Vec<Option<String>>>> {
    let mut rows = Vec::new();
    for message in client.simple_query(query).await? {
        if let SimpleQueryMessage::Row(row) = message {
            rows.push((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect());
        }
    }
    Ok(rows)
}

pub(crate) async fn run(run: &Run) -> Result<()> {
    let mut clients = Vec::new();
    for server in &run.servers.servers {
        clients.push(server.connect().await?);
    }
    let names: Vec<&str> = run.servers.servers.iter().map(|server| server.name.as_str()).collect();
    let mut refused = 0;
    for (kind, queries) in [("short", &SHORT[..]), ("long", &LONG[..])] {
        // By protocol and server: the time of each query, by that of the first server.
        let mut ratios = [vec![Vec::new(); clients.len()], vec![Vec::new(); clients.len()]];
        for query in queries {
            if !is_answered_alike(&clients, &names, query).await? {
                refused += 1;
                continue;
            }
            for (protocol, ratios) in ["prepared", "simple"].into_iter().zip(&mut ratios) {
                let times = times(&clients, query, protocol == "prepared", run.rounds).await?;
                for (ratios, time) in ratios.iter_mut().zip(&times) {
                    ratios.push(time / times[0]);
                }
                if run.each {
                    let times: Vec<String> = names
                        .iter()
                        .zip(&times)
                        .map(|(name, time)| format!("{name} {:.0} us", time * 1e6))
                        .collect();
                    println!("{protocol:<9} {} | {}", times.join(", "), &query[..query.len().min(90)]);
                }
            }
        }
        for (protocol, ratios) in ["prepared", "simple"].into_iter().zip(&ratios) {
            for (name, ratios) in names.iter().zip(ratios) {
                let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
                let worst = ratios.iter().copied().fold(0.0, f64::max);
                let count = ratios.len();
                println!(
                    "{kind} {protocol:<9} {name:<16} {count} queries: mean of ratios {mean:.2}, worst {worst:.2}"
                );
            }
        }
    }
    if refused > 0 {
        return Err(format!("{refused} queries were refused, or not answered alike").into());
    }
    Ok(())
}

/// Do all servers give the same answer? Tells it if not.
pub(crate) async fn is_answered_alike(clients: &[Client], names: &[&str], query: &str) -> Result<bool> {
    let mut first = None;
    for (client, name) in clients.iter().zip(names) {
        let rows = match answer(client, query).await {
            Ok(rows) => rows,
            Err(error) => {
                println!("{name} refuses {query}: {}", describe(&*error));
                return Ok(false);
            }
        };
        match &first {
            None => first = Some(rows),
            Some(first) if *first == rows => {}
            Some(first) => {
                let at = first.iter().zip(&rows).position(|(one, other)| one != other);
                let at = at.unwrap_or(first.len().min(rows.len()));
                println!("{name} answers {query} otherwise: {:?}, not {:?}", rows.get(at), first.get(at));
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Seconds that each server takes for a query: the median of rounds that go from server to server.
pub(crate) async fn times(
    clients: &[Client],
    query: &str,
    prepared: bool,
    rounds: usize,
) -> Result<Vec<f64>> {
    let mut all = vec![Vec::new(); clients.len()];
    let mut statements = Vec::new();
    for client in clients {
        statements.push(if prepared { Some(client.prepare(query).await?) } else { None });
    }
    for _ in 0..rounds {
        for (at, client) in clients.iter().enumerate() {
            let began = Instant::now();
            match &statements[at] {
                Some(statement) => _ = client.query(statement, &[]).await?,
                None => _ = client.simple_query(query).await?,
            }
            all[at].push(began.elapsed().as_secs_f64());
        }
    }
    Ok(all.into_iter().map(median).collect())
}
