//! A real process on a real disk, killed at any moment, again and again: nothing acknowledged is lost.
//!
//! The driver starts this test binary once more, as a worker ([`a_worker_keeps_its_books`] with a directory in the
//! environment). Its threads commit, and each tells the driver on standard output what has been acknowledged, while
//! another one makes checkpoints all the time and a third one changes definitions. Then it is killed. With
//! [`Rows::Cold`] a fourth one lets rows migrate, and chunks leave, promotes and cleans all the time, and there are several times as many
//! rows as stay in memory; with [`Rows::Paged`] it lets them go over to the paged side, and some come back. With [`Rows::Governed`] there are, besides, eight times as many bytes of rows as the memory limit
//! admits ([`super::ballast`]).
//!
//! The books: thread `t` commits its transactions `n` = 1, 2, … in order. Each sets its counter to `n`, inserts row
//! `(t, n)` and deletes row `(t, n - 10)` (200 where rows are cold); each fourth adds 4 to a total that all threads share. So for counters `c`
//! the rows of `t` are the last ten up to `c`, and the total is the sum of all `c / 4 * 4`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thermocline_base::rng::Rng;
use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{
    Database, Durability, Error, IndexSchema, Options, Result, TableSchema, Tiering, TransactionOptions,
};

pub(super) const THREADS: i64 = 3;
const DIRECTORY: &str = "THERMOCLINE_KILL_DIRECTORY";
const ROWS: &str = "THERMOCLINE_KILL_ROWS";
const DURABILITY: &str = "THERMOCLINE_KILL_DURABILITY";
const TOTAL: i64 = -1;
/// What a worker tells of which a thread has panicked.
const PANICKED: &str = "panicked";

pub(super) fn options(durability: Durability, rows: Rows) -> Options {
    let mut options = super::tiny(durability).with_threads(None).with_cold_threads(1);
    if rows == Rows::Paged {
        options = options.with_tiering(Tiering::Paged).with_paged_bytes(1);
    }
    if rows == Rows::Governed {
        return options
            .with_memory_limit(Some(super::ballast::MEMORY_LIMIT))
            .with_part_bytes(64 << 10)
            .with_log_buffer_bytes(1 << 20)
            .with_log_segment_bytes(1 << 20)
            .with_checkpoint_log_bytes(8 << 20)
            .with_cold_block_bytes(256 << 10);
    }
    options
        .with_log_buffer_bytes(256 << 10)
        .with_log_segment_bytes(64 << 10)
        .with_checkpoint_log_bytes(64 << 10)
}

/// Where the rows of the books are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rows {
    InMemory,
    /// They leave memory as fast as they can, and some come back.
    Cold,
    /// They go over to the paged side as fast as they can, and some come back.
    Paged,
    /// As cold ones, and the governor has enough to do beside them.
    Governed,
}

impl Rows {
    /// How many of its rows each thread keeps.
    fn kept(self) -> i64 {
        match self {
            Self::InMemory => 10,
            Self::Cold | Self::Paged | Self::Governed => 200,
        }
    }

    fn name(self) -> String {
        format!("{self:?}")
    }

    fn named(name: &str) -> Self {
        let all = [Self::InMemory, Self::Cold, Self::Paged, Self::Governed];
        all.into_iter().find(|rows| rows.name() == name).expect("it is one of these")
    }
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
        // What a test has failed over is worth a look.
        if std::thread::panicking() {
            eprintln!("what is there stays in {}", self.0.display());
            return;
        }
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
fn commit(db: &Database, rows: Rows, thread: i64, number: i64) -> Result<()> {
    let (counters, items) = (db.table("counters")?, db.table("items")?);
    let text = "x".repeat((number % 50) as usize * if number % 40 == 0 { 400 } else { 1 });
    db.run(TransactionOptions::new(), async |tx| {
        tx.insert_values(&items, &[Value::Int8(thread), Value::Int8(number), Value::from(text.as_str())])
            .await?;
        let old = KeyBuf::new().i64(thread).i64(number - rows.kept());
        assert_eq!(tx.delete(&items.primary(), &old).await?, number > rows.kept());
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
        if rows == Rows::Governed {
            super::ballast::stamp(db, tx, thread, number).await?;
        }
        Ok(())
    })
}

/// Lets rows leave memory as fast as they can, brings some back, and cleans up behind those who change them.
fn move_about(db: &Database, rows: Rows, go_on: &impl Fn() -> bool) -> Result<()> {
    let (steps, items, counters) = (db.cold_steps(), db.table("items")?, db.table("counters")?);
    // What moves needs memory, and nobody waits for him who moves it.
    let unless_short = |outcome: Result<()>| match outcome {
        Err(Error::OutOfMemory(_)) if rows == Rows::Governed => Ok(()),
        outcome => outcome,
    };
    let mut round = 0;
    while go_on() {
        if rows == Rows::Paged {
            steps.page_out(if round % 3 == 0 { &counters } else { &items })?;
            if round % 8 == 7 {
                steps.thaw(&items)?;
            }
            round += 1;
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        if round % 4 == 3 {
            // All that is there leaves with its chunk.
            unless_short(steps.freeze(&items).map(drop))?;
            unless_short(steps.leave(&items).map(drop))?;
            steps.clear_left();
        } else {
            unless_short(steps.migrate(&items, |_| true, 64).map(drop))?;
        }
        if round % 3 == 0 {
            unless_short(steps.migrate(&counters, |_| true, 8).map(drop))?;
        }
        unless_short(steps.promote(&counters, &KeyBuf::new().i64(round % THREADS)).map(drop))?;
        unless_short(steps.clean().map(drop))?;
        round += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Creates, fills, changes and drops table after table; tells what is there for sure, and what may be gone from now on.
fn define(db: &Database, rows: Rows, number: i64, tell: &impl Fn(&str, i64, i64)) -> Result<()> {
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
    if rows == Rows::Paged {
        db.cold_steps().page_out(&table)?;
    } else if rows != Rows::InMemory {
        db.cold_steps().migrate(&table, |_| true, 3)?;
    }
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

/// Reads the books; panics where they contradict themselves. `all`: the ballast, too.
pub(super) fn books(db: &Database, kept: Rows, all: bool) -> Books {
    let mut books = Books::default();
    let mut items: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    let names: Vec<String> = db.table_names();
    let read = async {
        let mut tx = db.begin(TransactionOptions::new())?;
        for name in names.iter().filter(|name| *name != "ballast") {
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
        if kept == Rows::Governed && all {
            super::ballast::check(db, &mut tx, &books.counters).await?;
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
        assert_eq!(
            rows,
            ((count - kept.kept() + 1).max(1)..=*count).collect::<Vec<_>>(),
            "rows of thread {thread}"
        );
    }
    assert!(items.is_empty(), "rows of nobody: {items:?}");
    for (number, (rows, columns)) in &books.tables {
        assert!([0, 5].contains(rows) && [1, 2].contains(columns), "table g{number} has {rows} rows");
        assert!(*columns == 1 || *rows == 5, "table g{number} was changed after it had been filled");
    }
    books
}

/// Works until `enough` says so. `tell` is called with what has been acknowledged.
pub(super) fn work(
    db: &Database,
    rows: Rows,
    tell: &(impl Fn(&str, i64, i64) + Sync),
    enough: &AtomicBool,
    limit: i64,
) {
    prepare(db).expect("the tables");
    let books = books(db, rows, false);
    let go_on = || !enough.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while go_on() {
                db.checkpoint().expect("a checkpoint");
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        if rows != Rows::InMemory {
            scope.spawn(|| move_about(db, rows, &go_on).expect("moves do not fail"));
        }
        scope.spawn(|| {
            let mut number = books.tables.keys().next_back().unwrap_or(&0) + 1;
            while go_on() {
                match define(db, rows, number, tell) {
                    Ok(()) | Err(Error::SchemaChangeTimeout { .. }) => number += 1,
                    Err(Error::OutOfMemory(_)) if rows == Rows::Governed => number += 1,
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
                        // Memory may be short for a moment on a machine that is busy with other things.
                        while let Err(error) = commit(db, rows, thread, number) {
                            let short = matches!(error, Error::OutOfMemory(_) | Error::SnapshotTooOld { .. });
                            assert!(rows == Rows::Governed && short, "a commit: {error}");
                        }
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
        // Whichever thread panics, the driver is to see it, also if it kills this process while that is being printed.
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = std::io::stdout().write_all(format!("{PANICKED} 0 0\n").as_bytes());
            print(panic);
            std::process::abort();
        }));
        let durability = std::env::var(DURABILITY).expect("it is given").parse().expect("a durability");
        let rows = Rows::named(&std::env::var(ROWS).expect("it is given"));
        let open = || Database::open(Path::new(&directory), options(durability, rows));
        let db = patiently(open).expect("it opens");
        let tell = |what: &str, of: i64, number: i64| {
            // One write, so that no line is torn by another thread.
            let line = format!("{what} {of} {number}\n");
            // The driver has gone: nobody is left to work for.
            if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
                std::process::exit(1);
            }
        };
        work(&db, rows, &tell, &enough, i64::MAX);
        return;
    }
    for rows in [Rows::InMemory, Rows::Cold, Rows::Paged] {
        works_for_a_while(rows);
    }
}

fn works_for_a_while(rows: Rows) {
    let limit = if rows == Rows::InMemory { 100 } else { 300 };
    let enough = AtomicBool::new(false);
    let scratch = Scratch::new(&format!("worker-{rows:?}"));
    let db = Database::open(&scratch.0, options(Durability::Async, rows)).expect("it opens");
    work(&db, rows, &|_, _, _| {}, &enough, limit);
    let items = db.table("items").expect("it is there");
    if rows == Rows::Cold {
        db.cold_steps().migrate(&items, |_| true, 64).expect("they move");
        let hot = db.cold_steps().rows_in_memory(&items) as i64;
        assert!(hot * 4 < rows.kept() * THREADS, "{hot} rows are still in memory");
    }
    if rows == Rows::Paged {
        // How often they did beside the work, a busy machine decides.
        let over = || db.statistics().paged.map_or(0, |paged| paged.rows_over);
        for _ in 0..1_000 {
            if over() > 100 {
                break;
            }
            db.cold_steps().page_out(&items).expect("they go over");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(over() > 100, "only {} rows have gone over", over());
    }
    db.close().expect("it closes");
    let report = Database::verify(&scratch.0).expect("it can be verified");
    assert_eq!(report.findings, Vec::<String>::new());
    // The handle to a table is still there.
    let db = Database::open(&scratch.0, options(Durability::Async, rows)).expect("it opens again");
    assert_eq!(books(&db, rows, true).counters, (0..THREADS).map(|thread| (thread, limit)).collect());
    drop(items);
}

/// A worker, which does not outlive the driver if that panics.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a worker, kills it after `pause`, which begins when it starts or when it has told something, and returns what it
/// had told.
fn killed_after(
    directory: &Path,
    durability: Durability,
    rows: Rows,
    pause: Duration,
    from_start: bool,
) -> Vec<(String, i64, i64)> {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    let command = command
        .env(ROWS, rows.name())
        .args(["--exact", "crash::kill9::a_worker_keeps_its_books", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(DURABILITY, durability.to_string())
        .stdout(Stdio::piped());
    let mut worker = Worker(command.spawn().expect("a worker"));
    let child = &mut worker.0;
    let told = BufReader::new(child.stdout.take().expect("its output"));
    let (first, is_first) = std::sync::mpsc::channel();
    let listener = std::thread::spawn(move || {
        let mut told = told;
        let (mut lines, mut line) = (Vec::new(), String::new());
        while told.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            let words: Vec<&str> = line.trim_end().split(' ').collect();
            if let [what, of, number] = words[..]
                && let (Ok(of), Ok(number)) = (of.parse(), number.parse())
                && line.ends_with('\n')
            {
                // Only the first one may be waited for.
                let _ = first.send(());
                lines.push((what.to_owned(), of, number));
            }
            line.clear();
        }
        lines
    });
    if !from_start {
        is_first.recv_timeout(Duration::from_secs(60)).expect("it commits sooner or later");
    }
    std::thread::sleep(pause);
    let early = child.try_wait().expect("its state");
    assert!(early.is_none(), "the worker ended by itself: {early:?}");
    drop(worker);
    let lines = listener.join().expect("the listener");
    assert!(lines.iter().all(|(what, ..)| what != PANICKED), "a thread of the worker panicked");
    lines
}

/// Tries again while the directory is locked, for some seconds: another test of this process may be starting a worker, which
/// has all that is open here until it is another program, locks too.
fn patiently<T>(attempt: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 0..500 {
        match attempt() {
            Err(Error::Locked { .. }) => std::thread::sleep(Duration::from_millis(10)),
            outcome => return outcome,
        }
    }
    attempt()
}

fn rounds(few: u64) -> u64 {
    std::env::var("THERMOCLINE_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(few)
}

fn kill(name: &str, durability: Durability, rows: Rows, rounds: u64) {
    let scratch = Scratch::new(name);
    if rows == Rows::Governed {
        let db = Database::open(&scratch.0, options(durability, rows)).expect("it opens");
        super::ballast::prepare(&db).expect("rows leave memory as others come");
        let used = db.statistics().memory.total();
        assert!(used <= super::ballast::MEMORY_LIMIT, "{used} bytes are over the limit");
    }
    let mut rng = Rng::new(rounds);
    let mut told = 0;
    // A machine on which nobody gets to acknowledge anything gets more time, and more rounds.
    let mut patience = 1;
    for round in 0..rounds + 10 {
        if round >= rounds && told > 0 {
            break;
        }
        let pause = Duration::from_millis((rng.below(150) + 20) * patience);
        let from_start = rows != Rows::Governed || round % 2 == 1;
        let lines = killed_after(&scratch.0, durability, rows, pause, from_start);
        told += lines.len();
        patience = if lines.is_empty() { (patience * 2).min(128) } else { 1 };
        if scratch.0.join("thermocline.db").exists() {
            let report = patiently(|| Database::verify(&scratch.0)).expect("it can be verified");
            assert_eq!(report.findings, Vec::<String>::new(), "round {round}");
        }
        let open = || Database::open(&scratch.0, options(durability, rows));
        let db = patiently(open).expect("it opens after the kill");
        if db.table("items").is_err() {
            assert!(lines.is_empty(), "round {round}: {lines:?}");
            continue;
        }
        let found = books(&db, rows, true);
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
    assert!(told > 0, "nothing was acknowledged, however long it worked");
}

#[test]
fn a_few_kills() {
    kill("few", Durability::Group, Rows::InMemory, rounds(4));
}

#[test]
fn a_few_kills_while_rows_move() {
    kill("few-cold", Durability::Group, Rows::Cold, rounds(4));
}

#[test]
fn a_few_kills_while_rows_are_paged() {
    kill("few-paged", Durability::Group, Rows::Paged, rounds(4));
}

#[test]
fn a_few_kills_over_the_memory_limit() {
    kill("few-governed", Durability::Group, Rows::Governed, rounds(4));
}

fn kill_long(name: &str, rows: Rows) {
    kill(&format!("group{name}"), Durability::Group, rows, rounds(200));
    kill(&format!("sync{name}"), Durability::Sync, rows, rounds(100));
    kill(&format!("async{name}"), Durability::Async, rows, rounds(100));
}

#[test]
#[ignore = "minutes: .ci/deep kill9"]
fn kill9_over_the_memory_limit() {
    kill("group-governed", Durability::Group, Rows::Governed, rounds(100).min(30));
    kill("async-governed", Durability::Async, Rows::Governed, rounds(50).min(15));
}

#[test]
#[ignore = "minutes: .ci/deep kill9"]
fn kill9_while_rows_move() {
    kill_long("-cold", Rows::Cold);
}

#[test]
#[ignore = "minutes: .ci/deep kill9"]
fn kill9_while_rows_are_paged() {
    kill_long("-paged", Rows::Paged);
}

#[test]
#[ignore = "minutes: .ci/deep kill9"]
fn kill9_in_memory() {
    kill_long("", Rows::InMemory);
}
