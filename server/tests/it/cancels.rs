//! Cancels and time-outs at any moment of a statement: who is told that it was cancelled finds nothing of it, and who is told that it
//! was done finds all of it, after a kill as well. A client that is told of a cancel does its work again.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use thermocline_base::depth;
use thermocline_base::rng::Rng;
use thermocline_engine::{Database, Durability, Options};

use super::client::Client;
use super::{Config, Running};

/// Says where the database of a server is that is to be killed: in the process of that server alone.
const DIRECTORY: &str = "THERMOCLINE_CANCELS_DIRECTORY";
/// Instead of an SQLSTATE: the connection has ended.
const GONE: &str = "gone";
/// Told of a cancel, or of a time-out.
const CANCELLED: &str = "57014";

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

/// Ways in which a client makes a row with a number, or something that is named by it.
const KINDS: [&[&str]; 13] = [
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
    &["create index made_{} on seen (last)"],
    &["create sequence made_{}"],
    &["create view made_{} as select client from seen"],
    &["begin", "create table made_{} (a int)", "create index on made_{} (a)", "commit"],
];

/// The first column of what a query answers, or the SQLSTATE of its error.
fn ask(client: &mut Client, text: &str) -> Result<Vec<String>, String> {
    let mut rows = Vec::new();
    let mut error = None;
    if client.stream.write_all(&Client::message('Q', &[text.as_bytes(), &[0]].concat())).is_err() {
        return Err(GONE.to_owned());
    }
    loop {
        let message = client.read().ok_or(GONE)?;
        match message.0 {
            'D' => rows.extend(
                message.values().swap_remove(0).map(|value| String::from_utf8_lossy(&value).into_owned()),
            ),
            'E' => {
                error = message.field('C');
                if error.as_deref() != Some(CANCELLED) {
                    // The code alone does not say which conflict it was.
                    eprintln!("{text}: {:?}", message.field('M'));
                }
            }
            'Z' => return error.map_or(Ok(rows), Err),
            _ => {}
        }
    }
}

/// Asks until it is not cancelled.
fn insist(client: &mut Client, text: &str) -> Result<(), String> {
    loop {
        match ask(client, text) {
            Err(code) if code == CANCELLED => {}
            answer => return answer.map(drop),
        }
    }
}

/// Asks the server to cancel what a connection does.
fn cancel(address: SocketAddr, (id, secret): (i32, i32)) {
    let request = [16, 80_877_102, id, secret].map(i32::to_be_bytes).concat();
    // The server may have more to do than to take it.
    if let Ok(mut stream) = TcpStream::connect(address) {
        let _ = stream.write_all(&request).and_then(|()| stream.read(&mut [0]));
    }
}

/// The answers that clients were told.
#[derive(Default)]
struct Told {
    done: BTreeSet<i64>,
    cancelled: BTreeSet<i64>,
}

impl Told {
    fn add(&mut self, other: Self) {
        self.done.extend(other.done);
        self.cancelled.extend(other.cancelled);
    }

    /// Compares it with what a server has.
    fn check(&self, client: &mut Client, when: &str) {
        let text = "select id::text from t union all \
                    select replace(relname, 'made_', '') from pg_class where relname ~ '^made_[0-9]*$'";
        let found = ask(client, text).expect("read");
        let found = found.iter().map(|number| number.parse().expect("a number")).collect();
        let twice: Vec<_> = self.cancelled.intersection(&found).collect();
        assert!(twice.is_empty(), "{when}: told that they were cancelled, and there: {twice:?}");
        let lost: Vec<_> = self.done.difference(&found).collect();
        assert!(lost.is_empty(), "{when}: told that they were done, and not there: {lost:?}");
    }

    /// Both happened.
    fn conclude(&self) {
        println!("{} done, {} cancelled", self.done.len(), self.cancelled.len());
        assert!(!self.cancelled.is_empty() && !self.done.is_empty(), "one of both never happened");
    }
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
        insist(client, &format!("set statement_timeout = '{} us'", 200 + rng.below(4_000)))?;
    }
    let texts = KINDS[kind];
    let mut outcome = Ok(());
    for text in texts {
        let text = text.replace("{}", &number.to_string()).replace("{c}", &index.to_string());
        outcome = ask(client, &text).map(drop);
        if outcome.is_err() {
            break;
        }
    }
    // Should the connection have ended by now: what was told before stands.
    if outcome.is_err() && texts.len() > 1 {
        let _ = insist(client, "rollback");
    }
    if timed {
        let _ = insist(client, "set statement_timeout = 0");
    }
    outcome
}

fn prepare(control: &mut Client, clients: u64) {
    ask(control, "create table t (id bigint primary key)").expect("made");
    ask(control, "create table seen (client int primary key, last bigint)").expect("made");
    for client in 0..clients {
        ask(control, &format!("insert into seen values ({client}, 0)")).expect("made");
    }
}

/// Clients that work and are cancelled, each until it has done so many things or its connection has ended. `answers`: how many there
/// were. Their numbers begin with `first`.
fn begin(
    address: SocketAddr,
    clients: u64,
    (first, each): (i64, i64),
    answers: &Arc<AtomicU64>,
) -> Vec<JoinHandle<Told>> {
    let connect = |index| {
        let mut client = Client::connect(address);
        client.startup(&[("user", "postgres"), ("application_name", "it")]);
        let (key, answers) = (client.key, Arc::clone(answers));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mut rng = Rng::new(depth::seed() + first.unsigned_abs() + index);
        let pauses = rng.next_u64();
        let cancels = std::thread::spawn(move || {
            let mut rng = Rng::new(pauses);
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(rng.below(3_000)));
                cancel(address, key);
            }
        });
        std::thread::spawn(move || {
            let mut told = Told::default();
            for round in 0..each {
                let number = first + round * 64 + index as i64;
                let kind = rng.below(KINDS.len() as u64) as usize;
                let timed = rng.chance(0.3);
                match work(&mut client, number, index, kind, &mut rng, timed) {
                    Ok(()) => drop(told.done.insert(number)),
                    Err(code) if code == CANCELLED => drop(told.cancelled.insert(number)),
                    Err(code) if code == GONE => break,
                    Err(error) => panic!("client {index}, {number}: {error}"),
                }
                answers.fetch_add(1, Ordering::Relaxed);
            }
            stop.store(true, Ordering::Relaxed);
            cancels.join().expect("it cancels");
            told
        })
    };
    (0..clients).map(connect).collect()
}

fn join(workers: Vec<JoinHandle<Told>>) -> Told {
    let mut told = Told::default();
    workers.into_iter().for_each(|worker| told.add(worker.join().expect("it works")));
    told
}

fn options() -> Options {
    Options::default().with_durability(Durability::Group)
}

fn serve(directory: &Path) -> Running {
    let db = Database::open(directory, options()).expect("it opens");
    Running::of(db, |config| Config { threads: 2, ..config })
}

#[test]
fn a_cancelled_statement_has_done_nothing() {
    const CLIENTS: u64 = 4;
    let scratch = Scratch::new("cancels");
    let mut running = serve(&scratch.0);
    let mut control = running.connect();
    prepare(&mut control, CLIENTS);
    let address = running.server().addresses()[0];
    let each = depth::either(150, 2_500);
    let told = join(begin(address, CLIENTS, (1, each), &Arc::default()));
    told.check(&mut control, "at the end");
    told.conclude();
    drop(control);
    running.stop();
    told.check(&mut serve(&scratch.0).connect(), "after a restart");
}

/// A server of a process of its own, which does not outlive the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// This binary again, which runs `test` there.
    fn start(test: &str, directory: &Path) -> (Self, SocketAddr) {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["--exact", test, "--nocapture"]).env(DIRECTORY, directory).stdout(Stdio::piped());
        let mut process = Self(command.spawn().expect("it starts"));
        let lines = BufReader::new(process.0.stdout.take().expect("its output")).lines();
        let told =
            lines.map_while(Result::ok).find_map(|line| line.strip_prefix("listens on ")?.parse().ok());
        (process, told.expect("it says where it listens"))
    }

    /// The process that [`Process::start`] has started.
    fn run(directory: &OsStr) -> ! {
        let running = serve(Path::new(directory));
        println!("\nlistens on {}", running.server().addresses()[0]);
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn a_cancelled_statement_has_done_nothing_where_the_server_is_killed() {
    const CLIENTS: u64 = 4;
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        Process::run(&directory);
    }
    let test = "cancels::a_cancelled_statement_has_done_nothing_where_the_server_is_killed";
    let scratch = Scratch::new("cancels-killed");
    prepare(&mut serve(&scratch.0).connect(), CLIENTS);
    let mut rng = Rng::new(depth::seed());
    let mut told = Told::default();
    for round in 0..depth::either(3, 40) {
        let (process, address) = Process::start(test, &scratch.0);
        let answers = Arc::default();
        let workers = begin(address, CLIENTS, (1 + round * 1_000_000, i64::MAX >> 8), &answers);
        let enough = 50 + rng.below(300);
        while answers.load(Ordering::Relaxed) < enough {
            assert!(!workers.iter().any(JoinHandle::is_finished), "a client has ended by itself");
            std::thread::sleep(Duration::from_micros(100));
        }
        drop(process);
        told.add(join(workers));
        told.check(&mut serve(&scratch.0).connect(), &format!("killed after {enough} answers"));
    }
    told.conclude();
}
