//! The time that the parser takes for a statement, in microseconds: `cargo run --release -p thermocline-sql --example parse_time`.

use std::hint::black_box;

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_engine::{Database, Options};
use thermocline_sql::Session;

/// Statements of one kind each, as decision 0013 compares parsers by them.
const STATEMENTS: [(&str, &str); 2] = [
    ("a point select", "select abalance from pgbench_accounts where aid = 4711"),
    (
        "a join of three tables with grouping",
        "select c.name, count(*) as orders, sum(l.quantity * l.price) as turnover from customers c \
         join orders o on o.customer_id = c.id join order_lines l on l.order_id = o.id \
         where o.placed >= date '2026-01-01' and c.country in ('DE', 'FR', 'IT') \
         group by c.name having sum(l.quantity * l.price) > 1000 order by turnover desc, c.name limit 20",
    ),
];
const ROUNDS: usize = 21;
const TIMES: u32 = 2_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = Database::open_in_memory(Options::default().with_memory_limit(Some(64 << 20)))?;
    let mut session = Session::new(&db);
    for (name, text) in STATEMENTS {
        let mut rounds: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let began = SystemClock.now_ns();
                (0..TIMES).for_each(|_| _ = black_box(session.parse(black_box(text))));
                (SystemClock.now_ns() - began) as f64 / 1e3 / f64::from(TIMES)
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        let (least, median, most) = (rounds[0], rounds[ROUNDS / 2], rounds[ROUNDS - 1]);
        println!("{name}: {median:.2} µs ({least:.2} to {most:.2})");
    }
    Ok(())
}
