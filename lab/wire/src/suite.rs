//! Queries of a suite, asked of servers and of DuckDB on the same rows: answers are compared, times and memory told.
//!
//! - The rows are files in the text form of COPY, one a table, made once; each contender is filled from them.
//! - Each query is asked once for its answer, then `rounds` times in turns; its time is the median. A contender that took longer than
//!   ten seconds the first time is not asked again, and one that is over the limit is given up: `> limit`.
//! - The first server is what the others are compared with. Answers are alike if they have the same rows, in any order among those
//!   that the query's ORDER BY leaves open; numbers may differ by 10⁻¹² where the server's column is a float, and by 10⁻⁹ in
//!   DuckDB's, which divides and averages as floats.
//! - Memory is the most that a process held resident during a query beyond what it held before (Linux).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use futures_util::SinkExt as _;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::duck::Duck;
use crate::tpcc::describe;
use crate::{Result, Server, Servers, median};

/// A first answer that takes longer is the only one asked for.
const ONCE: f64 = 10.0;

#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) servers: Servers,
    /// A Python that has DuckDB's package, to ask DuckDB as well.
    #[arg(long, value_name = "PYTHON")]
    duckdb: Option<String>,
    /// Threads of DuckDB.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// A folder for the rows as files; servers must not need to read it, DuckDB does.
    #[arg(long)]
    files: PathBuf,
    /// Takes the files and the servers' tables as they are.
    #[arg(long)]
    loaded: bool,
    /// Numbers of queries: `1,3,7-9`; all of them if it is left out.
    #[arg(long, value_parser = numbers)]
    only: Option<Numbers>,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds after which a query is given up.
    #[arg(long, default_value_t = 60)]
    limit: u64,
    /// The process of a server whose memory is told: `NAME=PID`.
    #[arg(long = "memory", value_parser = process)]
    processes: Vec<(String, u32)>,
}

#[derive(Clone)]
struct Numbers(Vec<usize>);

fn numbers(text: &str) -> std::result::Result<Numbers, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<usize>().map_err(|error| format!("{text}: {error}"));
        all.extend(number(first)?..=number(last)?);
    }
    Ok(Numbers(all))
}

pub(crate) fn process(text: &str) -> std::result::Result<(String, u32), String> {
    let (name, pid) = text.split_once('=').ok_or("NAME=PID")?;
    Ok((name.to_owned(), pid.parse().map_err(|error| format!("{pid}: {error}"))?))
}

/// Tables, rows and queries.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// Each table with the definition of its columns, keys among them.
    pub(crate) tables: Vec<(&'static str, &'static str)>,
    /// Statements that make the indexes.
    pub(crate) indexes: Vec<&'static str>,
    /// A file that has each query behind a line `-- Q` and its number.
    pub(crate) queries: &'static str,
}

impl Suite {
    /// The queries with their numbers.
    pub(crate) fn queries(&self) -> Vec<(usize, &'static str)> {
        let parts = self.queries.split("\n-- Q").skip(1);
        parts
            .filter_map(|part| {
                let (number, text) = part.split_once('\n')?;
                Some((number.parse().ok()?, text.trim()))
            })
            .collect()
    }

    async fn define(&self, client: &Client) -> Result<()> {
        for (table, columns) in &self.tables {
            client.batch_execute(&format!("drop table if exists {table}")).await?;
            client.batch_execute(&format!("create table {table} ({columns})")).await?;
        }
        Ok(())
    }
}

/// A definition without its keys: DuckDB scans, and its keys would cost memory and time.
fn without_keys(columns: &str) -> String {
    let columns = columns.split(", primary key (").next().unwrap_or(columns);
    columns.replace(" primary key", "")
}

enum Contender {
    Server(Server, Client),
    DuckDb(Box<Duck>),
}

/// An answer.
struct Answer {
    seconds: f64,
    rows: Vec<Vec<Option<String>>>,
    floats: Vec<bool>,
}

/// The time of a query, or the reason why there is none, in one line.
type Outcome = std::result::Result<Answer, String>;

impl Contender {
    fn name(&self) -> &str {
        match self {
            Self::Server(server, _) => &server.name,
            Self::DuckDb(_) => "duckdb",
        }
    }

    /// The answer as a whole. `limit` is in seconds.
    async fn ask(&mut self, query: &str, limit: u64) -> Result<Outcome> {
        match self {
            Self::DuckDb(duck) => Ok(match duck.ask(query, limit)? {
                Ok((seconds, rows)) => Ok(Answer { seconds, rows, floats: Vec::new() }),
                Err(error) if error.contains("INTERRUPT") => Err(format!("> {limit} s")),
                Err(error) => Err(error),
            }),
            Self::Server(server, client) => {
                // A server that does not hear its own limit is left behind.
                let patience = Duration::from_secs(limit + 60);
                if let Ok(outcome) = tokio::time::timeout(patience, ask(client, query, limit)).await {
                    return Ok(outcome);
                }
                *client = connect(server, limit).await?;
                Ok(Err(format!("not ended {} s after its limit", patience.as_secs() - limit)))
            }
        }
    }
}

async fn connect(server: &Server, limit: u64) -> Result<Client> {
    let client = server.connect().await?;
    client.batch_execute(&format!("set statement_timeout = '{limit}s'")).await?;
    Ok(client)
}

async fn ask(client: &Client, query: &str, limit: u64) -> Outcome {
    let told = |error: tokio_postgres::Error| match error.code().map(|code| code.code()) {
        Some("57014") => format!("> {limit} s"),
        _ => describe(&error),
    };
    let statement = client.prepare(query).await.map_err(told)?;
    let floats =
        statement.columns().iter().map(|column| [Type::FLOAT4, Type::FLOAT8].contains(column.type_()));
    let floats: Vec<bool> = floats.collect();
    let began = Instant::now();
    let messages = client.simple_query(query).await.map_err(told)?;
    let seconds = began.elapsed().as_secs_f64();
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect())
        }
        _ => None,
    });
    Ok(Answer { seconds, rows: rows.collect(), floats })
}

/// True if two values are equal, or numbers that differ by the tolerance at most.
fn is_alike(one: Option<&str>, other: Option<&str>, tolerance: f64) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return one == other };
    // DuckDB does not keep the blanks of char(n).
    if one == other || one.trim_end() == other.trim_end() {
        return true;
    }
    let (Ok(one), Ok(other)) = (one.parse::<f64>(), other.parse::<f64>()) else { return false };
    tolerance > 0.0 && (one - other).abs() <= tolerance * one.abs().max(other.abs())
}

/// The first difference of two answers, in one line.
fn difference(first: &Answer, other: &Answer, loose: bool) -> Option<String> {
    if first.rows.len() != other.rows.len() {
        return Some(format!("{} rows, not {}", other.rows.len(), first.rows.len()));
    }
    let alike = |one: &[Option<String>], other: &[Option<String>]| {
        one.iter().zip(other).enumerate().all(|(at, (one, other))| {
            let tolerance = match first.floats.get(at) {
                _ if loose => 1e-9,
                Some(true) => 1e-12,
                _ => 0.0,
            };
            is_alike(one.as_deref(), other.as_deref(), tolerance)
        })
    };
    let find = |one: &[Vec<Option<String>>], other: &[Vec<Option<String>>]| {
        one.iter().zip(other).position(|(one, other)| one.len() != other.len() || !alike(one, other))
    };
    find(&first.rows, &other.rows)?;
    // Rows that the ORDER BY leaves open may stand in any order.
    let (mut one, mut two) = (first.rows.clone(), other.rows.clone());
    one.sort();
    two.sort();
    let at = find(&one, &two)?;
    Some(format!("{:?}, not {:?}", two[at], one[at]))
}

/// Fills a server from the files.
async fn fill(suite: &Suite, server: &Server, files: &Path) -> Result<()> {
    let client = server.connect().await?;
    let began = Instant::now();
    suite.define(&client).await?;
    for (table, _) in &suite.tables {
        let sink = client.copy_in::<_, bytes::Bytes>(&format!("copy {table} from stdin")).await?;
        let mut sink = std::pin::pin!(sink);
        let mut file = std::fs::File::open(files.join(table))?;
        loop {
            let mut piece = Vec::with_capacity(1 << 18);
            std::io::Read::read_to_end(&mut std::io::Read::take(&mut file, 1 << 18), &mut piece)?;
            if piece.is_empty() {
                break;
            }
            sink.send(piece.into()).await?;
        }
        sink.as_mut().finish().await?;
    }
    let copied = began.elapsed().as_secs_f64();
    for index in &suite.indexes {
        client.batch_execute(index).await?;
    }
    client.batch_execute("analyze").await?;
    let seconds = began.elapsed().as_secs_f64();
    println!("{}: filled in {copied:.1} s, with indexes in {seconds:.1} s", server.name);
    Ok(())
}

fn fill_duck(suite: &Suite, duck: &mut Duck, files: &Path) -> Result<()> {
    let began = Instant::now();
    for (table, columns) in &suite.tables {
        let file = files.join(table);
        let copy = format!(
            "copy {table} from '{}' (format csv, delimiter '\t', nullstr '\\N', header false, quote '', escape '')",
            file.display()
        );
        for statement in [format!("create table {table} ({})", without_keys(columns)), copy] {
            duck.ask(&statement, 600)?.map_err(|error| format!("duckdb: {statement}: {error}"))?;
        }
    }
    println!("duckdb: filled in {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Bytes of a line of `/proc/PID/status`.
pub(crate) fn status(pid: u32, line: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|found| found.strip_prefix(line))?;
    Some(line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
}

/// Forgets the most that a process has held, and returns what it holds.
pub(crate) fn rest(pid: u32) -> Option<u64> {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").ok()?;
    status(pid, "VmRSS")
}

/// The answer and the figures of one contender for a query.
struct Told {
    first: Outcome,
    times: Vec<f64>,
    /// MiB beyond rest.
    memory: Option<f64>,
}

impl Told {
    fn median(&self) -> Option<f64> {
        (!self.times.is_empty()).then(|| median(self.times.clone()))
    }

    fn time(&self) -> String {
        match (&self.first, self.median()) {
            (_, Some(time)) => seconds(time),
            (Err(reason), None) if reason.starts_with('>') => reason.clone(),
            (Err(_), None) => "–".to_owned(),
            (Ok(answer), None) => seconds(answer.seconds),
        }
    }
}

fn seconds(time: f64) -> String {
    if time < 0.1 { format!("{:.1} ms", time * 1e3) } else { format!("{time:.2} s") }
}

/// Fills all contenders, made by `generate` into the folder, and asks.
pub(crate) async fn run(
    run: &Run,
    suite: &Suite,
    generate: impl AsyncFnOnce(&Path) -> Result<u64>,
) -> Result<()> {
    if !run.loaded {
        if run.files.exists() {
            std::fs::remove_dir_all(&run.files)?;
        }
        std::fs::create_dir_all(&run.files)?;
        let began = Instant::now();
        let rows = generate(&run.files).await?;
        println!("{}: {rows} rows as files in {:.1} s", suite.name, began.elapsed().as_secs_f64());
        for server in &run.servers.servers {
            fill(suite, server, &run.files).await?;
        }
    }
    let mut contenders = Vec::new();
    for server in &run.servers.servers {
        contenders.push(Contender::Server(server.clone(), connect(server, run.limit).await?));
    }
    if let Some(python) = &run.duckdb {
        let mut duck = Duck::start(python, run.threads)?;
        println!("duckdb: version {}, {} threads", duck.version, run.threads);
        fill_duck(suite, &mut duck, &run.files)?;
        contenders.push(Contender::DuckDb(Box::new(duck)));
    }
    table(run, suite, &mut contenders).await
}

async fn table(run: &Run, suite: &Suite, contenders: &mut [Contender]) -> Result<()> {
    let processes: Vec<Option<u32>> = contenders
        .iter()
        .map(|contender| match contender {
            Contender::DuckDb(duck) => Some(duck.pid()),
            Contender::Server(server, _) => {
                run.processes.iter().find(|(name, _)| *name == server.name).map(|(_, pid)| *pid)
            }
        })
        .collect();
    let names: Vec<String> = contenders.iter().map(|contender| contender.name().to_owned()).collect();
    let mut header = vec!["query".to_owned(), names[0].clone()];
    header.extend(
        names[1..].iter().flat_map(|name| [name.clone(), "ratio".to_owned(), "least to most".to_owned()]),
    );
    header.extend(
        names.iter().zip(&processes).filter(|(_, pid)| pid.is_some()).map(|(name, _)| format!("MiB {name}")),
    );
    header.push("answers".to_owned());
    println!("| {} |\n|{}", header.join(" | "), "---|".repeat(header.len()));
    // By contender: the ratios of the queries that it and the first have answered, and the sums of both times.
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); contenders.len()];
    let mut sums = vec![(0.0, 0.0); contenders.len()];
    let wanted = |number: &usize| run.only.as_ref().is_none_or(|only| only.0.contains(number));
    let mut told_of = Vec::new();
    for (number, query) in suite.queries().into_iter().filter(|(number, _)| wanted(number)) {
        let told = one(run, contenders, &processes, query).await?;
        let mut row = vec![format!("{number}"), told[0].time()];
        for (at, found) in told.iter().enumerate().skip(1) {
            row.push(found.time());
            let pair = told[0].median().zip(found.median());
            row.push(pair.map_or("–".to_owned(), |(theirs, time)| format!("{:.2}", time / theirs)));
            let spread = found
                .times
                .iter()
                .copied()
                .reduce(f64::min)
                .zip(found.times.iter().copied().reduce(f64::max));
            row.push(spread.map_or("–".to_owned(), |(least, most)| {
                format!("{} to {}", seconds(least), seconds(most))
            }));
            if let Some((theirs, time)) = pair {
                ratios[at].push(time / theirs);
                sums[at] = (sums[at].0 + theirs, sums[at].1 + time);
            }
        }
        let memory = told.iter().zip(&processes).filter(|(_, pid)| pid.is_some());
        row.extend(
            memory.map(|(found, _)| {
                found.memory.map_or("–".to_owned(), |mebibytes| format!("{mebibytes:.0}"))
            }),
        );
        row.push(alike(&names, &told, number, &mut told_of));
        println!("| {} |", row.join(" | "));
    }
    println!();
    for (name, (ratios, (theirs, time))) in names.iter().zip(ratios.iter().zip(&sums)).skip(1) {
        if ratios.is_empty() {
            continue;
        }
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        println!(
            "{name}: {} queries in {time:.1} s beside {theirs:.1} s of {}: {:.2}; geometric mean of the ratios {mean:.2}",
            ratios.len(),
            names[0],
            time / theirs
        );
    }
    for line in &told_of {
        println!("{line}");
    }
    for (name, pid) in names.iter().zip(&processes) {
        if let Some(resident) = pid.and_then(|pid| status(pid, "VmRSS")) {
            println!("{name}: {} MiB resident", resident >> 20);
        }
    }
    Ok(())
}

/// Asks one query of all.
async fn one(
    run: &Run,
    contenders: &mut [Contender],
    processes: &[Option<u32>],
    query: &str,
) -> Result<Vec<Told>> {
    let mut told = Vec::new();
    for (contender, pid) in contenders.iter_mut().zip(processes) {
        let before = pid.and_then(rest);
        let first = contender.ask(query, run.limit).await?;
        let most = pid.and_then(|pid| status(pid, "VmHWM"));
        let memory =
            before.zip(most).map(|(before, most)| most.saturating_sub(before) as f64 / f64::from(1 << 20));
        told.push(Told { first, times: Vec::new(), memory });
    }
    for _ in 0..run.rounds {
        for (contender, told) in contenders.iter_mut().zip(&mut told) {
            let Ok(first) = &told.first else { continue };
            if first.seconds > ONCE {
                told.times = vec![first.seconds];
            } else if let Ok(answer) = contender.ask(query, run.limit).await? {
                told.times.push(answer.seconds);
            }
        }
    }
    Ok(told)
}

/// Are the answers alike? Reasons why not are noted.
fn alike(names: &[String], told: &[Told], number: usize, notes: &mut Vec<String>) -> String {
    for (name, told) in names.iter().zip(told) {
        if let Err(reason) = &told.first
            && !reason.starts_with('>')
        {
            notes.push(format!("Q{number}, {name}: {reason}"));
        }
    }
    let Ok(first) = &told[0].first else { return "–".to_owned() };
    let mut compared = Vec::new();
    for (name, told) in names.iter().zip(told).skip(1) {
        let Ok(other) = &told.first else { continue };
        match difference(first, other, name == "duckdb") {
            None => compared.push("alike"),
            Some(difference) => {
                compared.push("differ");
                notes.push(format!("Q{number}, {name} answers otherwise: {difference}"));
            }
        }
    }
    let word = ["differ", "alike"].into_iter().find(|word| compared.contains(word)).unwrap_or("–");
    format!("{word}, {} rows", first.rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(rows: &[&[&str]], floats: &[bool]) -> Answer {
        let rows = rows.iter().map(|row| row.iter().map(|value| Some((*value).to_owned())).collect());
        Answer { seconds: 1.0, rows: rows.collect(), floats: floats.to_vec() }
    }

    #[test]
    fn floats_and_duckdb_have_a_tolerance_and_numbers_none() {
        let [one, other] = ["0.30000000000000004", "0.3"].map(|value| answer(&[&[value]], &[false]));
        assert!(difference(&one, &other, false).is_some());
        assert!(difference(&one, &other, true).is_none());
        let [one, other] = ["0.30000000000000004", "0.3"].map(|value| answer(&[&[value]], &[true]));
        assert!(difference(&one, &other, false).is_none());
        assert!(difference(&one, &answer(&[&["0.31"]], &[true]), true).is_some());
    }

    #[test]
    fn ties_may_stand_in_any_order_and_rows_may_not_be_missing() {
        let one = answer(&[&["1", "a"], &["1", "b"]], &[]);
        assert!(difference(&one, &answer(&[&["1", "b"], &["1", "a"]], &[]), false).is_none());
        assert!(difference(&one, &answer(&[&["1", "b"], &["1", "b"]], &[]), false).is_some());
        assert!(difference(&one, &answer(&[&["1", "b"]], &[]), false).is_some());
    }

    #[test]
    fn blanks_of_char_are_no_difference() {
        assert!(is_alike(Some("ab  "), Some("ab"), 0.0));
        assert!(!is_alike(Some("ab"), None, 0.0));
        assert!(is_alike(None, None, 0.0));
    }

    #[test]
    fn numbers_of_queries_are_lists_of_ranges() {
        assert_eq!(numbers("1,3-5").expect("a list").0, [1, 3, 4, 5]);
        assert!(numbers("x").is_err());
    }

    #[test]
    fn keys_are_left_out_for_duckdb() {
        assert_eq!(without_keys("a int primary key, b int"), "a int, b int");
        assert_eq!(without_keys("a int, b int, primary key (a, b)"), "a int, b int");
    }
}
