//! Histories of sessions that lock, change and insert the same few rows: PostgreSQL 15 has answered them
//! (`tests/histories.py` draws and records them), and each step is answered alike here: rows, tags, SQLSTATEs, who waits, and
//! which step ends the wait. Differences are named below, with their reason.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use thermocline_sql::{Answer, Common, Error, Session};

use super::sessions::{database, run};

/// What a session says, and the lines of all answers that it brings.
struct Step {
    letter: char,
    statement: String,
    expected: Vec<String>,
}

struct History {
    number: usize,
    schema: Vec<String>,
    steps: Vec<Step>,
}

fn parse(text: &str) -> Vec<History> {
    let mut all: Vec<History> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(number) = line.strip_prefix("history ") {
            let number = number.parse().expect("a number");
            all.push(History { number, schema: Vec::new(), steps: Vec::new() });
            continue;
        }
        let history = all.last_mut().expect("a history begins");
        if let Some(statement) = line.strip_prefix("> ") {
            history.schema.push(statement.to_owned());
        } else if let Some(statement) = line.get(1..).and_then(|rest| rest.strip_prefix("> ")) {
            let letter = line.chars().next().expect("a letter");
            history.steps.push(Step { letter, statement: statement.to_owned(), expected: Vec::new() });
        } else {
            history.steps.last_mut().expect("a step").expected.push(line.to_owned());
        }
    }
    all
}

/// Notes that what waits may go on.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

type Running = Pin<Box<dyn Future<Output = (Session, Result<Answer, Error>)>>>;

/// A session, or the statement that it waits in.
struct Client {
    session: Option<Session>,
    running: Option<Running>,
    woken: Arc<Woken>,
    /// The step that it has been waiting since.
    since: usize,
}

impl Client {
    fn begin(&mut self, statement: &str, step: usize) {
        let mut session = self.session.take().expect("the session waits for nothing");
        let statement = statement.to_owned();
        self.since = step;
        self.woken.0.store(true, Ordering::SeqCst);
        self.running = Some(Box::pin(async move {
            let answer = session.execute_async(&statement, &[]).await;
            (session, answer)
        }));
    }

    /// The answer, if there is one by now. A statement that gives way wakes itself; one that waits is woken by what ends the wait.
    fn poll(&mut self) -> Option<Result<Answer, Error>> {
        let running = self.running.as_mut()?;
        let waker = Waker::from(self.woken.clone());
        while self.woken.0.swap(false, Ordering::SeqCst) {
            if let Poll::Ready((session, answer)) = running.as_mut().poll(&mut Context::from_waker(&waker)) {
                self.session = Some(session);
                self.running = None;
                return Some(answer);
            }
        }
        None
    }
}

fn lines(letter: char, answer: Result<Answer, Error>) -> Vec<String> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return vec![format!("{letter}! {}", error.code)],
    };
    let mut lines: Vec<String> = (0..answer.rows.len())
        .map(|row| {
            let values: Vec<String> = (0..answer.columns.len())
                .map(|column| answer.text(row, column).unwrap_or_else(|| "\\N".to_owned()))
                .collect();
            format!("{letter}| {}", values.join(" "))
        })
        .collect();
    lines.push(format!("{letter}# {}", answer.tag));
    lines
}

/// The first step that is answered in another way, if any: `step`, PostgreSQL's answers, those found here.
fn difference(history: &History) -> Option<(usize, Vec<String>)> {
    let (db, common) = (database(), Arc::new(Common::default()));
    let mut first = Session::new(&db);
    history.schema.iter().for_each(|statement| {
        run(&mut first, statement);
    });
    let mut clients: BTreeMap<char, Client> = history
        .steps
        .iter()
        .map(|step| {
            let session = Session::new(&db).with_common(&common, i32::from(step.letter as u8));
            let woken = Arc::new(Woken(AtomicBool::new(false)));
            (step.letter, Client { session: Some(session), running: None, woken, since: 0 })
        })
        .collect();
    for (number, step) in history.steps.iter().enumerate() {
        let client = clients.get_mut(&step.letter).expect("each letter has a session");
        client.begin(&step.statement, number);
        let mut answers: BTreeMap<char, Vec<String>> = BTreeMap::new();
        let own = match client.poll() {
            Some(answer) => lines(step.letter, answer),
            None => vec![format!("{}~", step.letter)],
        };
        // The longest waiter goes first, as in PostgreSQL's queues.
        while let Some((letter, answer)) = {
            let mut order: Vec<(&char, &mut Client)> = clients.iter_mut().collect();
            order.sort_by_key(|(_, client)| client.since);
            order.into_iter().find_map(|(letter, client)| Some((*letter, client.poll()?)))
        } {
            answers.insert(letter, lines(letter, answer));
        }
        let mut found = own;
        if let Some(late) = answers.remove(&step.letter) {
            found = late;
        }
        found.extend(answers.into_values().flatten());
        let trim = |lines: &[String]| -> Vec<String> {
            lines.iter().map(|line| line.trim_end().to_owned()).collect()
        };
        if trim(&found) != trim(&step.expected) {
            return Some((number, found));
        }
    }
    None
}

/// Why a history goes on in another way here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Both find the deadlock, in another session: an insertion that has to wait for a key takes back what it has claimed, and who
    /// has waited for that looks again, and closes the circle then. In PostgreSQL the circle is closed by the insertion.
    Victim,
    /// A writer that waits for a unique key has not changed its row yet; in PostgreSQL its new version stands, and others wait for it.
    WaitsUnchanged,
    /// PostgreSQL keeps the lock of a row that a statement has waited for, and then has found not to be one of its rows.
    KeepsLock,
    /// PostgreSQL waits for all that share a row's lock, and says then that the row has changed; here the first change decides.
    ToldEarlier,
    /// A key share that has waited goes on if the row has the keys that were read; PostgreSQL says that the row has changed.
    KeyStays,
    /// A circle through an advisory lock and a row is not seen: `lock_timeout` ends it.
    AdvisoryCircle,
    /// PostgreSQL refuses what may not be serializable as soon as it is dangerous, and needs not be so; here reads are looked at
    /// again at the commit.
    JudgedAtCommit,
    /// What was read has changed by the commit, which is refused; PostgreSQL sees that an order is left.
    JudgedMoreStrictly,
}

impl Why {
    /// Is the difference of the kind that the name says?
    fn explains(self, expected: &[String], found: &[String]) -> bool {
        let has = |lines: &[String], what: &str| lines.iter().any(|line| &line[1..] == what);
        match self {
            Self::Victim => has(expected, "! 40P01") || has(found, "! 40P01"),
            Self::WaitsUnchanged => has(expected, "~") || has(expected, "! 40P01"),
            Self::KeepsLock => expected.len() < found.len(),
            Self::ToldEarlier => !has(expected, "! 40001") && has(found, "! 40001"),
            Self::KeyStays => has(expected, "! 40001") && !has(found, "! 40001"),
            Self::AdvisoryCircle => has(expected, "! 40P01") && has(found, "~"),
            Self::JudgedAtCommit => has(expected, "! 40001") && expected != found,
            Self::JudgedMoreStrictly => has(found, "! 40001") && !has(expected, "! 40001"),
        }
    }
}

fn check(level: &str, named: &[(Why, &[usize])]) {
    let path = format!("{}/tests/histories/{level}.txt", env!("CARGO_MANIFEST_DIR"));
    let histories = parse(&std::fs::read_to_string(path).expect("the histories can be read"));
    assert!(histories.len() >= 66, "{level} has {} histories", histories.len());
    let mut wrong = Vec::new();
    for history in &histories {
        let why = named.iter().find(|(_, numbers)| numbers.contains(&history.number)).map(|(why, _)| *why);
        let (number, found) = match (difference(history), why) {
            (None, None) => continue,
            (None, Some(why)) => {
                wrong.push(format!("{level} {}: it is answered alike, not {why:?}\n", history.number));
                continue;
            }
            (Some((number, found)), Some(why)) if why.explains(&history.steps[number].expected, &found) => {
                continue;
            }
            (Some(difference), _) => difference,
        };
        let mut text = format!("{level} {}:\n", history.number);
        for statement in &history.schema {
            text += &format!("> {statement}\n");
        }
        for step in &history.steps[..number] {
            text += &format!("{}> {}\n{}\n", step.letter, step.statement, step.expected.join("\n"));
        }
        let Step { letter, statement, expected } = &history.steps[number];
        let (expected, found) = (expected.join("\n"), found.join("\n"));
        wrong.push(format!("{text}{letter}> {statement}\nPostgreSQL:\n{expected}\nhere:\n{found}\n"));
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), histories.len(), wrong.join("\n"));
}

#[test]
fn at_read_committed() {
    check(
        "read_committed",
        &[(Why::KeepsLock, &[19]), (Why::WaitsUnchanged, &[20]), (Why::Victim, &[30, 44])],
    );
}

#[test]
fn at_repeatable_read() {
    check(
        "repeatable_read",
        &[(Why::WaitsUnchanged, &[3, 39]), (Why::ToldEarlier, &[19]), (Why::Victim, &[28, 30, 35, 56])],
    );
}

#[test]
fn at_serializable() {
    check(
        "serializable",
        &[
            (Why::KeyStays, &[1]),
            (Why::JudgedAtCommit, &[2, 8, 10, 12, 13, 21, 22, 30, 35, 36, 41, 42, 44, 53, 58, 63]),
            (Why::JudgedMoreStrictly, &[64, 65]),
            (Why::AdvisoryCircle, &[46]),
            (Why::Victim, &[33, 40]),
        ],
    );
}
