//! Cancels and time-outs at any moment of a statement: who is told that it was cancelled finds nothing of it, and who is told that it
//! was done finds all of it. A client that is told of a cancel does its work again.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thermocline_base::depth;
use thermocline_base::rng::Rng;
use thermocline_engine::{Database, Durability, Options};

use super::client::Client;
use super::{Config, Running};

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("thermocline-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How a client makes a row with a number, or a table.
const KINDS: [&[&str]; 9] = [
    &["insert into t values ({})"],
    &["begin", "insert into t values ({})", "commit"],
    &["insert into t select {}"],
    &["begin; insert into t values ({}); commit"],
    &["update seen set last = {} where client = {c}; insert into t values ({})"],
    // All wait for each other.
    &["begin", "update seen set last = {} where client = 0", "insert into t values ({})", "commit"],
    &["update seen set last = {} where client = 1; insert into t values ({})"],
    &["insert into t select max({}) from generate_series(1, 20000)"],
    &["create table made_{} ()"],
];

/// The first column of what a query answers, or the SQLSTATE of its error.
fn ask(client: &mut Client, text: &str) -> Result<Vec<String>, String> {
    let mut rows = Vec::new();
    let mut error = None;
    for message in client.query(text) {
        match message.0 {
            'D' => rows.extend(
                message.values().swap_remove(0).map(|value| String::from_utf8_lossy(&value).into_owned()),
            ),
            'E' => error = message.field('C'),
            _ => {}
        }
    }
    error.map_or(Ok(rows), Err)
}

/// Asks the server to cancel what a connection does.
fn cancel(address: SocketAddr, (id, secret): (i32, i32)) {
    let request = [16, 80_877_102, id, secret].map(i32::to_be_bytes).concat();
    // The server may have more to do than to take it.
    if let Ok(mut stream) = TcpStream::connect(address) {
        let _ = stream.write_all(&request).and_then(|()| stream.read(&mut [0]));
    }
}

/// What a client was told.
#[derive(Default)]
struct Told {
    done: BTreeSet<i64>,
    cancelled: BTreeSet<i64>,
}

fn work(
    client: &mut Client,
    number: i64,
    index: u64,
    kind: usize,
    rng: &mut Rng,
    timed: bool,
) -> Result<(), String> {
    if timed {
        let limit = format!("set statement_timeout = '{} us'", 200 + rng.below(4_000));
        // It is cancelled itself now and then.
        while ask(client, &limit).is_err() {}
    }
    let texts = KINDS[kind];
    let mut outcome = Ok(());
    for text in texts {
        let text = text.replace("{}", &number.to_string()).replace("{c}", &index.to_string());
        if let Err(code) = ask(client, &text) {
            outcome = Err(code);
            break;
        }
    }
    if outcome.is_err() && texts.len() > 1 {
        while ask(client, "rollback").is_err() {}
    }
    if timed {
        while ask(client, "set statement_timeout = 0").is_err() {}
    }
    outcome
}

fn storm(name: &str, clients: u64, each: i64) {
    let scratch = Scratch::new(name);
    let options = Options::default().with_durability(Durability::Group);
    let db = Database::open(&scratch.0, options.clone()).expect("it opens");
    let mut running = Running::of(db, |config| Config { threads: 2, ..config });
    let mut control = running.connect();
    ask(&mut control, "create table t (id bigint primary key)").expect("made");
    ask(&mut control, "create table seen (client int primary key, last bigint)").expect("made");
    for client in 0..clients {
        ask(&mut control, &format!("insert into seen values ({client}, 0)")).expect("made");
    }
    let mut workers = Vec::new();
    for index in 0..clients {
        let mut client = running.connect();
        let (address, key) = (running.server().addresses()[0], client.key);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mut rng = Rng::new(depth::seed() + index);
        let pauses = rng.next_u64();
        let cancels = std::thread::spawn(move || {
            let mut rng = Rng::new(pauses);
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(rng.below(3_000)));
                cancel(address, key);
            }
        });
        workers.push(std::thread::spawn(move || {
            let mut told = Told::default();
            for round in 0..each {
                let number = 1 + round * 64 + index as i64;
                let kind = rng.below(KINDS.len() as u64) as usize;
                let timed = rng.chance(0.3);
                match work(&mut client, number, index, kind, &mut rng, timed) {
                    Ok(()) => drop(told.done.insert(number)),
                    Err(code) if code == "57014" => drop(told.cancelled.insert(number)),
                    Err(error) => panic!("client {index}, {number}: {error}"),
                }
            }
            stop.store(true, Ordering::Relaxed);
            cancels.join().expect("it cancels");
            told
        }));
    }
    let mut told = Told::default();
    for worker in workers {
        let of = worker.join().expect("it works");
        told.done.extend(of.done);
        told.cancelled.extend(of.cancelled);
    }
    let found = |client: &mut Client| -> BTreeSet<i64> {
        let text = "select id::text from t union all \
                    select replace(relname, 'made_', '') from pg_class where relname like 'made\\_%' and relkind = 'r'";
        ask(client, text).expect("read").iter().map(|number| number.parse().expect("a number")).collect()
    };
    let check = |found: &BTreeSet<i64>, when: &str| {
        let twice: Vec<_> = told.cancelled.intersection(found).collect();
        assert!(twice.is_empty(), "{when}: told that they were cancelled, and there: {twice:?}");
        let lost: Vec<_> = told.done.difference(found).collect();
        assert!(lost.is_empty(), "{when}: told that they were done, and not there: {lost:?}");
    };
    check(&found(&mut control), "at the end");
    println!("{} done, {} cancelled", told.done.len(), told.cancelled.len());
    assert!(!told.cancelled.is_empty() && !told.done.is_empty(), "one of both never happened");
    drop(control);
    running.stop();
    let db = Database::open(&scratch.0, options).expect("it opens again");
    let running = Running::of(db, |config| config);
    check(&found(&mut running.connect()), "after a restart");
}

#[test]
fn a_cancelled_statement_has_done_nothing() {
    storm("cancels", 4, depth::either(150, 2_500));
}
