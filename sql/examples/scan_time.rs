//! The time that queries over a whole table take, in nanoseconds a row: `cargo run --release -p thermocline-sql --example scan_time [rows]`.

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_engine::{Database, Options};
use thermocline_sql::Session;

const TABLE: &str = "create table order_line (
    ol_o_id integer not null, ol_d_id smallint not null, ol_w_id integer not null, ol_number smallint not null,
    ol_i_id integer not null, ol_supply_w_id integer not null, ol_delivery_d timestamp, ol_quantity smallint not null,
    ol_amount numeric(6,2) not null, ol_dist_info char(24) not null, primary key (ol_w_id, ol_d_id, ol_o_id, ol_number))";
const ROWS: &str = "insert into order_line select n / 10, n % 7, n / 300000, n % 10, n::bigint * 7919 % 100000, n % 4 + 1,
    case when n % 10 >= 3 then timestamp '2026-01-01' + n * interval '1 minute' end, n % 10, (n % 999999) / 100.0,
    'dist' || lpad((n % 100)::text, 20, '0') from generate_series($1::int, $2::int - 1) as n";
const QUERIES: [&str; 10] = [
    "select count(*) from order_line",
    "select sum(ol_amount) from order_line",
    "select ol_number, count(*), sum(ol_quantity), sum(ol_amount) from order_line group by ol_number order by ol_number",
    "select count(*) from order_line where ol_quantity < 5 and ol_amount > 1000",
    "select ol_supply_w_id, ol_d_id, avg(ol_amount) from order_line group by ol_supply_w_id, ol_d_id order by 1, 2",
    "select ol_dist_info, sum(ol_amount * (1 - ol_amount) * ol_quantity) from order_line group by 1 order by 2 limit 3",
    "select ol_i_id, count(*), max(ol_delivery_d) from order_line group by 1 order by 2 desc, 1 limit 3",
    "select sum(case when ol_quantity < 5 then ol_amount else 0 end) from order_line",
    "select * from order_line order by ol_amount desc, ol_o_id limit 10",
    "select ol_o_id, ol_number from order_line order by ol_i_id limit 100",
];
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows: usize = std::env::args().nth(1).map_or(Ok(1_000_000), |rows| rows.parse())?;
    let db = Database::open_in_memory(Options::default().with_memory_limit(Some(4 << 30)))?;
    let mut session = Session::new(&db);
    session.execute(TABLE, &[])?;
    for from in (0..rows).step_by(50_000) {
        let to = (from + 50_000).min(rows);
        let text = ROWS.replace("$1", &from.to_string()).replace("$2", &to.to_string());
        session.execute(&text, &[])?;
    }
    for query in QUERIES {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let began = SystemClock.now_ns();
            session.execute(query, &[])?;
            times.push((SystemClock.now_ns() - began) as f64 / rows as f64);
        }
        times.sort_by(f64::total_cmp);
        let (least, median, most) = (times[0], times[ROUNDS / 2], times[ROUNDS - 1]);
        println!("{median:7.1} ns a row ({least:.1} to {most:.1})  {query}");
    }
    Ok(())
}
