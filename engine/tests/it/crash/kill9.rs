//! A real process on a real disk, killed at any moment, again and again: nothing acknowledged is lost.
//!
//! The driver starts this test binary once more, as a worker ([`a_worker_keeps_its_books`] with a directory in the
//! environment). Its threads commit, and each tells the driver on standard output what has been acknowledged, while
//! another one makes checkpoints all the time and a third one changes definitions. Then it is killed.
//!
//! The books: thread `t` commits its transactions `n` = 1, 2, … in order. Each sets its counter to `n`, inserts row
//! `(t, n)` and deletes row `(t, n - 10)`; each fourth adds 4 to a total that all threads share. So for counters `c`
//! the rows of `t` are the last ten up to `c`, and the total is the sum of all `c / 4 * 4`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thermocline_base::rng::Rng;
use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{
    Database, Durability, Error, IndexSchema, Options, Result, TableSchema, TransactionOptions,
};

const THREADS: i64 = 3;
const DIRECTORY: &str = "THERMOCLINE_KILL_DIRECTORY";
const DURABILITY: &str = "THERMOCLINE_KILL_DURABILITY";
const TOTAL: i64 = -1;

pub(super) fn options(durability: Durability) -> Options {
    super::tiny(durability)
        .with_log_buffer_bytes(256 << 10)
        .with_log_segment_bytes(64 << 10)
        .with_checkpoint_log_bytes(64 << 10)
        .with_threads(None)
}

pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("thermocline-kill-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes what is missing of the tables.
fn prepare(db: &Database) -> Result<()> {
    if db.table("counters").is_err() {
        let schema = TableSchema::new("counters")
            .column(Column::new("thread", Type::Int8))
            .column(Column::new("count", Type::Int8))
            .primary_key(IndexSchema::hash("key", &["thread"]));
        db.create_table(schema)?;
    }
    if db.table("items").is_err() {
        let schema = TableSchema::new("items")
            .column(Column::new("thread", Type::Int8))
            .column(Column::new("number", Type::Int8))
            .column(Column::new("text", Type::Text))
            .primary_key(IndexSchema::ordered("key", &["thread", "number"]));
        db.create_table(schema)?;
    }
    let counters = db.table("counters")?;
    db.run(TransactionOptions::new(), async |tx| {
        for id in TOTAL..THREADS {
            let key = KeyBuf::new().i64(id);
            if tx.read(&counters.primary(), &key, |_| ()).await?.is_none() {
                tx.insert_values(&counters, &[Value::Int8(id), Value::Int8(0)]).await?;
            }
        }
        Ok(())
    })
}

/// One transaction of a thread.
fn commit(db: &Database, thread: i64, number: i64) -> Result<()> {
    let (counters, items) = (db.table("counters")?, db.table("items")?);
    let text = "x".repeat((number % 50) as usize * if number % 40 == 0 { 400 } else { 1 });
    db.run(TransactionOptions::new(), async |tx| {
        tx.insert_values(&items, &[Value::Int8(thread), Value::Int8(number), Value::from(text.as_str())])
            .await?;
        let old = KeyBuf::new().i64(thread).i64(number - 10);
        assert_eq!(tx.delete(&items.primary(), &old).await?, number > 10);
        let key = KeyBuf::new().i64(thread);
        tx.update(&counters.primary(), &key, |row| Ok(row.set_i64(1, number)?)).await?;
        if number % 4 == 0 {
            let layout = counters.layout();
            let add = |row: &mut thermocline_engine::row::RowEditor<'_>| {
                let total = layout.i64(row.row(), 1).unwrap_or(0);
                Ok(row.set_i64(1, total + 4)?)
            };
            tx.update(&counters.primary(), &KeyBuf::new().i64(TOTAL), add).await?;
        }
        Ok(())
    })
}

/// Creates, fills, changes and drops table after table; tells what is there for sure, and what may be gone from now on.
fn define(db: &Database, number: i64, tell: &impl Fn(&str, i64, i64)) -> Result<()> {
    let name = format!("g{number}");
    let schema = TableSchema::new(&name).column(Column::new("id", Type::Int8));
    let table = db.create_table(schema)?;
    db.run(TransactionOptions::new(), async |tx| {
        for id in 0..5 {
            tx.insert_values(&table, &[Value::Int8(id)]).await?;
        }
        Ok(())
    })?;
    tell("made", number, 0);
    db.add_column(&name, Column::new("more", Type::Int4).nullable().default(3))?;
    db.create_index(&name, IndexSchema::ordered("by_more", &["more"]))?;
    tell("changed", number, 0);
    let old = format!("g{}", number - 2);
    if db.table(&old).is_ok() {
        tell("dropping", number - 2, 0);
        db.drop_table(&old)?;
    }
    Ok(())
}

/// The books of a database.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) counters: BTreeMap<i64, i64>,
    /// Tables of the thread that changes definitions: rows and columns.
    pub(super) tables: BTreeMap<i64, (usize, usize)>,
}

/// Reads the books; panics where they contradict themselves.
pub(super) fn books(db: &Database) -> Books {
    let mut books = Books::default();
    let mut items: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    let names: Vec<String> = db.table_names();
    let read = async {
        let mut tx = db.begin(TransactionOptions::new())?;
        for name in &names {
            let table = db.table(name)?;
            let layout = table.layout();
            let number = |row: &[u8], column: usize| layout.i64(row, column).expect("a number");
            let mut rows = 0;
            tx.scan_table(&table, |row| {
                match name.as_str() {
                    "counters" => _ = books.counters.insert(number(row, 0), number(row, 1)),
                    "items" => items.entry(number(row, 0)).or_default().push(number(row, 1)),
                    _ => rows += 1,
                }
                ControlFlow::Continue(())
            })
            .await?;
            if let Some(number) = name.strip_prefix('g') {
                let number = number.parse().expect("a number");
                books.tables.insert(number, (rows, layout.columns().len()));
            }
        }
        tx.commit().await
    };
    thermocline_engine::block_on(read).expect("reading");
    let total = books.counters.remove(&TOTAL).unwrap_or(0);
    assert_eq!(
        total,
        books.counters.values().map(|count| count / 4 * 4).sum::<i64>(),
        "{:?}",
        books.counters
    );
    for (thread, count) in &books.counters {
        let mut rows = items.remove(thread).unwrap_or_default();
        rows.sort_unstable();
        assert_eq!(rows, ((count - 9).max(1)..=*count).collect::<Vec<_>>(), "rows of thread {thread}");
    }
    assert!(items.is_empty(), "rows of nobody: {items:?}");
    for (number, (rows, columns)) in &books.tables {
        assert!([0, 5].contains(rows) && [1, 2].contains(columns), "table g{number} has {rows} rows");
        assert!(*columns == 1 || *rows == 5, "table g{number} was changed after it had been filled");
    }
    books
}

/// Works until `enough` says so. `tell` is called with what has been acknowledged.
pub(super) fn work(db: &Database, tell: &(impl Fn(&str, i64, i64) + Sync), enough: &AtomicBool, limit: i64) {
    prepare(db).expect("the tables");
    let books = books(db);
    let go_on = || !enough.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while go_on() {
                db.checkpoint().expect("a checkpoint");
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        scope.spawn(|| {
            let mut number = books.tables.keys().next_back().unwrap_or(&0) + 1;
            while go_on() {
                match define(db, number, tell) {
                    Ok(()) | Err(Error::SchemaChangeTimeout { .. }) => number += 1,
                    Err(error) => panic!("a change of definitions: {error}"),
                }
            }
        });
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let first = books.counters[&thread] + 1;
                scope.spawn(move || {
                    for number in first..first.saturating_add(limit) {
                        if enough.load(Ordering::Relaxed) {
                            break;
                        }
                        commit(db, thread, number).expect("a commit");
                        tell("committed", thread, number);
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().expect("a worker");
        }
        enough.store(true, Ordering::Relaxed);
    });
}

/// In a process that the driver has started: works until it is killed. Otherwise: for a while.
#[test]
fn a_worker_keeps_its_books() {
    let enough = AtomicBool::new(false);
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let durability = std::env::var(DURABILITY).expect("it is given").parse().expect("a durability");
        let db = Database::open(Path::new(&directory), options(durability)).expect("it opens");
        let tell = |what: &str, of: i64, number: i64| {
            // One write, so that no line is torn by another thread.
            let line = format!("{what} {of} {number}\n");
            // The driver has gone: nobody is left to work for.
            if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
                std::process::exit(1);
            }
        };
        work(&db, &tell, &enough, i64::MAX);
        return;
    }
    let scratch = Scratch::new("worker");
    let db = Database::open(&scratch.0, options(Durability::Async)).expect("it opens");
    work(&db, &|_, _, _| {}, &enough, 100);
    db.close().expect("it closes");
    let report = Database::verify(&scratch.0).expect("it can be verified");
    assert_eq!(report.findings, Vec::<String>::new());
    let db = Database::open(&scratch.0, options(Durability::Async)).expect("it opens again");
    assert_eq!(books(&db).counters, (0..THREADS).map(|thread| (thread, 100)).collect());
}

/// Starts a worker, kills it after `pause`, and returns what it had told.
fn killed_after(directory: &Path, durability: Durability, pause: Duration) -> Vec<(String, i64, i64)> {
    let mut child = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "crash::kill9::a_worker_keeps_its_books", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(DURABILITY, durability.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a worker");
    let told = BufReader::new(child.stdout.take().expect("its output"));
    let listener = std::thread::spawn(move || {
        let mut told = told;
        let (mut lines, mut line) = (Vec::new(), String::new());
        while told.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            let words: Vec<&str> = line.trim_end().split(' ').collect();
            if let [what, of, number] = words[..]
                && let (Ok(of), Ok(number)) = (of.parse(), number.parse())
                && line.ends_with('\n')
            {
                lines.push((what.to_owned(), of, number));
            }
            line.clear();
        }
        lines
    });
    std::thread::sleep(pause);
    let early = child.try_wait().expect("its state");
    assert!(early.is_none(), "the worker ended by itself: {early:?}");
    child.kill().expect("it is killed");
    child.wait().expect("it is gone");
    listener.join().expect("the listener")
}

fn rounds(few: u64) -> u64 {
    std::env::var("THERMOCLINE_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(few)
}

fn kill(name: &str, durability: Durability, rounds: u64) {
    let scratch = Scratch::new(name);
    let mut rng = Rng::new(rounds);
    let mut told = 0;
    for round in 0..rounds {
        let pause = Duration::from_millis(rng.below(150) + 20);
        let lines = killed_after(&scratch.0, durability, pause);
        told += lines.len();
        if scratch.0.join("thermocline.db").exists() {
            let report = Database::verify(&scratch.0).expect("it can be verified");
            assert_eq!(report.findings, Vec::<String>::new(), "round {round}");
        }
        let db = Database::open(&scratch.0, options(durability)).expect("it opens after the kill");
        if db.table_names().len() < 2 {
            assert!(lines.is_empty(), "round {round}: {lines:?}");
            continue;
        }
        let found = books(&db);
        if durability == Durability::Async {
            continue;
        }
        let mut last: BTreeMap<i64, i64> = BTreeMap::new();
        let mut made: BTreeMap<i64, usize> = BTreeMap::new();
        for (what, of, number) in lines {
            match what.as_str() {
                "committed" => _ = last.insert(of, number),
                "made" => _ = made.insert(of, 1),
                "changed" => _ = made.insert(of, 2),
                "dropping" => _ = made.remove(&of),
                _ => {}
            }
        }
        for (thread, number) in last {
            let count = found.counters[&thread];
            assert!(
                (number..=number + 1).contains(&count),
                "round {round}: {number} was told, {count} is there"
            );
        }
        for (number, columns) in made {
            let there = found.tables.get(&number);
            assert!(
                there.is_some_and(|there| there.0 == 5 && there.1 >= columns),
                "round {round}: g{number} is {there:?}"
            );
        }
    }
    assert!(
        told > 0,
        "nothing was acknowledged in {rounds} rounds: the pauses are too short for this machine"
    );
}

#[test]
fn a_few_kills() {
    kill("few", Durability::Group, rounds(4));
}

#[test]
#[ignore = "minutes: run by .ci/run kill9"]
fn kill9() {
    kill("group", Durability::Group, rounds(200));
    kill("sync", Durability::Sync, rounds(100));
    kill("async", Durability::Async, rounds(100));
}
