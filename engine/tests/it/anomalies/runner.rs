//! Plays scripts of interleaved transactions on one thread, polling their futures by hand, so that every run is the
//! same.
//!
//! ```text
//! # A comment.
//! == snapshot, serializable: prevented, because …   a section: played once for each level, on a fresh table
//! rows 1=10 2=20                                    rows before the script begins: id=value
//! T1: begin                                         at the section's level, or: begin serializable read-only no-wait
//! T1: read 1 -> 10                                  the row's value, or none
//! T2: update 1 12 -> waits                          the step waits for another transaction
//! T2: waits                                         … and still does
//! T1: commit                                        without "->", a step has to end with ok
//! T2: resumes -> error 40001                        … until now. An error is SQLSTATE: message, or a start of that
//! T2: rollback
//! maintain                                          one step of maintenance
//! garbage -> 0                                      rows with versions that wait to be pruned
//! entries -> 6                                      entries in all indexes
//! ```
//!
//! The table is `t (id primary key, value, code)` with an ordered index over `value` and a unique one over `code`,
//! which may be null. Steps of a transaction:
//!
//! | step | outcome |
//! |---|---|
//! | `read id`, `read-code code` | the value, or `none` |
//! | `scan from..to` (end excluded), `find value` | `id=value …` in order of value, id; or `none` |
//! | `insert id value [code]`, `upsert id value` | `ok` |
//! | `update id value`, `code id code`, `key id new-id`, `delete id` | `ok`, or `none` if there is no such row |
//! | `lock id key-share\|share\|update` | `ok`, or `none` |
//! | `savepoint name`, `rollback-to name` | `ok` |
//! | `commit`, `rollback` | `ok`; the transaction is over |

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use thermocline_base::io::MemoryIo;
use thermocline_engine::row::{Column, EncodedRow, KeyBuf, RowEditor, RowError, Type, Value};
use thermocline_engine::{
    Database, Direction, Durability, Error, IndexSchema, Isolation, KeyRange, LockMode, MaintenanceSteps,
    Options, Savepoint, Table, TableSchema, Transaction, TransactionOptions, block_on,
};

use crate::moves::{Mover, Watch, World, within};

/// A script is played in much less.
const LIMIT: Duration = Duration::from_secs(120);
/// The ids of the scripts are below.
const KEYS: i64 = 16;
/// The outcome of a step that counts what is there, where there is more than the script knows of.
const NOT_JUDGED: &str = "not judged";

const LEVELS: [Isolation; 4] =
    [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::RepeatableRead, Isolation::Serializable];

/// A script section: which levels, what is claimed of them, and the numbered lines.
struct Section<'s> {
    levels: Vec<Isolation>,
    verdict: &'s str,
    line: usize,
    steps: Vec<(usize, &'s str)>,
}

fn sections(text: &str) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(heading) = line.strip_prefix("==") {
            let (levels, verdict) = heading.split_once(':').expect("a section has a verdict behind a colon");
            sections.push(Section {
                levels: levels.split(',').map(|level| level.trim().parse().expect("a level")).collect(),
                verdict: verdict.trim(),
                line: number + 1,
                steps: Vec::new(),
            });
        } else if !line.is_empty() {
            let section = sections.last_mut().expect("a section comes first");
            section.steps.push((number + 1, line));
        }
    }
    sections
}

/// A script about an anomaly: all four levels have to be there, and a level that allows it has to say why.
pub(super) fn check_levels(file: &str, text: &str) {
    let mut seen = Vec::new();
    for section in sections(text) {
        seen.extend_from_slice(&section.levels);
        let reasoned = section.verdict.starts_with("allowed, because ");
        assert!(
            reasoned || section.verdict.starts_with("prevented"),
            "{file}:{}: the verdict is \"prevented …\" or \"allowed, because …\"",
            section.line
        );
    }
    seen.sort_unstable();
    assert_eq!(seen, LEVELS, "{file}: every level once");
}

/// Plays a script in each of these worlds.
pub(super) fn play(file: &'static str, text: &'static str, worlds: &'static [World]) {
    assert!(text.starts_with("# "), "{file}: a script begins with what it is about");
    within(LIMIT, move |watch| {
        for section in sections(text) {
            for &level in &section.levels {
                for &world in worlds {
                    play_section(file, &section, level, world, watch);
                }
            }
        }
    });
}

fn play_section(file: &str, section: &Section<'_>, level: Isolation, world: World, watch: &Watch) {
    let mut stage = Stage::new(level, world);
    for &(line, step) in &section.steps {
        let (command, expected) = match step.split_once("->") {
            Some((command, expected)) => (command.trim(), expected.trim()),
            None => (step, if step.ends_with(": waits") { "waits" } else { "ok" }),
        };
        watch.note(format!("{file}:{line} at {level}, {world:?}: {command}"), &stage.database);
        let outcome = stage.step(command);
        let matches = match expected.strip_prefix("error ") {
            Some(_) => outcome.starts_with(expected),
            None => outcome == expected,
        };
        assert!(
            matches || outcome == NOT_JUDGED,
            "{file}:{line} at {level}, {world:?}\n     step: {command}\n expected: {expected}\n      got: {outcome}"
        );
        stage.mover.step();
    }
    let waiting: Vec<&String> =
        stage.actors.iter().filter(|(_, actor)| actor.step.is_some()).map(|(name, _)| name).collect();
    assert!(
        waiting.is_empty(),
        "{file}: at the end of the section at {level}, {world:?}, {waiting:?} still wait"
    );
    stage.actors.clear();
    stage.mover.settle(&stage.maintenance);
}

type StepFuture = Pin<Box<dyn Future<Output = (Option<Transaction>, String)>>>;

/// A transaction of a script: at rest, or inside a step.
#[derive(Default)]
struct Actor {
    transaction: Option<Transaction>,
    step: Option<StepFuture>,
    savepoints: BTreeMap<String, Savepoint>,
}

struct Stage {
    level: Isolation,
    world: World,
    database: Database,
    maintenance: MaintenanceSteps,
    table: Table,
    actors: BTreeMap<String, Actor>,
    mover: Mover,
}

fn number(word: &str) -> i64 {
    word.parse().unwrap_or_else(|_| panic!("{word:?} is not a number"))
}

fn key(id: i64) -> KeyBuf {
    KeyBuf::new().i64(id)
}

fn outcome_of<T>(result: Result<T, Error>, show: impl FnOnce(T) -> String) -> String {
    match result {
        Ok(value) => show(value),
        Err(error) => format!("error {}: {error}", error.sqlstate()),
    }
}

fn found(found: Option<()>) -> String {
    if found.is_some() { "ok" } else { "none" }.to_owned()
}

fn shown(mut rows: Vec<(i64, i64)>) -> String {
    if rows.is_empty() {
        return "none".to_owned();
    }
    rows.sort_by_key(|&(id, value)| (value, id));
    rows.iter().map(|(id, value)| format!("{id}={value}")).collect::<Vec<_>>().join(" ")
}

impl Stage {
    fn new(level: Isolation, world: World) -> Self {
        let options = world
            .options(Options::default())
            .with_durability(Durability::Off)
            // The store's work is done while a step waits for it.
            .with_cold_threads(0)
            .with_isolation(level)
            // An idle transaction is aborted by the second step of maintenance that finds it idle.
            .with_idle_limit(Some(Duration::ZERO));
        let database = Database::open_with(Path::new("/memory"), options, Arc::new(MemoryIo::new()), false)
            .expect("the options are fine");
        let table = database
            .create_table(
                TableSchema::new("t")
                    .column(Column::new("id", Type::Int8))
                    .column(Column::new("value", Type::Int8))
                    .column(Column::new("code", Type::Int8).nullable())
                    .primary_key(IndexSchema::hash("t_key", &["id"]))
                    .index(IndexSchema::ordered("t_value", &["value"]))
                    .index(IndexSchema::hash("t_code", &["code"]).unique()),
            )
            .expect("the definition is fine");
        let maintenance = database.maintenance_steps();
        let mover = Mover::new(world, &database, &table, 0..KEYS);
        Self { level, world, database, maintenance, table, actors: BTreeMap::new(), mover }
    }

    fn step(&mut self, command: &str) -> String {
        if let Some((name, command)) = command.split_once(':') {
            let mut actor = self.actors.remove(name).unwrap_or_default();
            let outcome = self.step_of(&mut actor, command.trim());
            self.actors.insert(name.to_owned(), actor);
            return outcome;
        }
        let words: Vec<&str> = command.split_whitespace().collect();
        match *words {
            ["rows", ref rows @ ..] => {
                block_on(async {
                    let mut tx = self.database.begin(TransactionOptions::new()).expect("it begins");
                    for row in rows {
                        let (id, value) = row.split_once('=').expect("id=value");
                        let row = [Value::Int8(number(id)), Value::Int8(number(value)), Value::Null];
                        tx.insert_values(&self.table, &row).await.expect("a fresh row");
                    }
                    tx.commit().await.expect("nobody else is there");
                });
                "ok".to_owned()
            }
            ["maintain"] => {
                self.maintenance.step();
                "ok".to_owned()
            }
            ["prune"] => {
                self.maintenance.prune();
                "ok".to_owned()
            }
            // Records, notices and what they keep are counted too. When nobody is there, all rows can be brought back first.
            ["garbage" | "entries"] if self.world != World::Still && !self.is_alone() => {
                NOT_JUDGED.to_owned()
            }
            ["garbage"] => {
                self.mover.settle(&self.maintenance);
                self.database.statistics().garbage_items.to_string()
            }
            ["entries"] => {
                self.mover.settle(&self.maintenance);
                self.database.statistics().index_entries.to_string()
            }
            _ => panic!("no such step: {command:?}"),
        }
    }

    /// Is no transaction open?
    fn is_alone(&self) -> bool {
        self.actors.values().all(|actor| actor.transaction.is_none() && actor.step.is_none())
    }

    fn step_of(&self, actor: &mut Actor, command: &str) -> String {
        let words: Vec<&str> = command.split_whitespace().collect();
        match *words {
            ["begin", ref words @ ..] => {
                assert!(actor.step.is_none(), "a transaction that waits cannot begin another one");
                let mut options = TransactionOptions::new().isolation(self.level);
                for &word in words {
                    options = match word {
                        "read-only" => options.read_only(),
                        "no-wait" => options.no_wait(),
                        level => options.isolation(level.parse().expect("a level")),
                    };
                }
                actor.savepoints.clear();
                actor.transaction = Some(self.database.begin(options).expect("it begins"));
                "ok".to_owned()
            }
            ["savepoint", name] => {
                let transaction = actor.transaction.as_mut().expect("it has begun");
                outcome_of(transaction.savepoint(), |savepoint| {
                    actor.savepoints.insert(name.to_owned(), savepoint);
                    "ok".to_owned()
                })
            }
            ["rollback-to", name] => {
                let transaction = actor.transaction.as_mut().expect("it has begun");
                outcome_of(transaction.rollback_to(&actor.savepoints[name]), |()| "ok".to_owned())
            }
            ["rollback"] => {
                // A step that waits is dropped with its transaction.
                assert!(actor.step.take().is_some() || actor.transaction.is_some(), "it has begun");
                actor.transaction = None;
                "ok".to_owned()
            }
            ["resumes" | "waits"] => self.poll(actor),
            _ => {
                assert!(actor.step.is_none(), "the step before still waits");
                let transaction = actor.transaction.take().expect("it has begun");
                let words = words.iter().map(|&word| word.to_owned()).collect();
                actor.step = Some(Box::pin(run(self.table.clone(), transaction, words)));
                self.poll(actor)
            }
        }
    }

    fn poll(&self, actor: &mut Actor) -> String {
        let step = actor.step.as_mut().expect("a step waits");
        match self.mover.poll(step.as_mut()) {
            Poll::Pending => "waits".to_owned(),
            Poll::Ready((transaction, outcome)) => {
                actor.step = None;
                actor.transaction = transaction;
                outcome
            }
        }
    }
}

/// One step that may wait, with the transaction that it belongs to.
async fn run(table: Table, mut tx: Transaction, words: Vec<String>) -> (Option<Transaction>, String) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (layout, primary) = (table.layout(), table.primary());
    let refused = |error: RowError| table.error(error);
    let row_of = |row: &[u8]| {
        (layout.i64(row, 0).expect("an id is not null"), layout.i64(row, 1).expect("a value is not null"))
    };
    let mut rows = Vec::new();
    let outcome = match *words {
        ["read", id] => outcome_of(tx.read(&primary, &key(number(id)), |row| row_of(row).1).await, |value| {
            value.map_or_else(|| "none".to_owned(), |value| value.to_string())
        }),
        ["read-code", code] => {
            let index = table.index("t_code").expect("it is there");
            let code = index.key_of_values(&[Value::Int8(number(code))]).expect("a number");
            outcome_of(tx.read(&index, &code, |row| row_of(row).1).await, |value| {
                value.map_or_else(|| "none".to_owned(), |value| value.to_string())
            })
        }
        ["scan", range] => {
            let (from, to) = range.split_once("..").expect("from..to");
            let (from, to) = (key(number(from)), key(number(to)));
            let range = KeyRange::between(Bound::Included(&from), Bound::Excluded(&to));
            let index = table.index("t_value").expect("it is there");
            let result = tx
                .scan(&index, range, Direction::Forward, |row| {
                    rows.push(row_of(row));
                    ControlFlow::Continue(())
                })
                .await;
            outcome_of(result, |()| shown(rows))
        }
        ["find", value] => {
            let index = table.index("t_value").expect("it is there");
            let result = tx
                .read_all(&index, &key(number(value)), |row| {
                    rows.push(row_of(row));
                    ControlFlow::Continue(())
                })
                .await;
            outcome_of(result, |()| shown(rows))
        }
        ["insert", id, value] => {
            let row = [Value::Int8(number(id)), Value::Int8(number(value)), Value::Null];
            outcome_of(tx.insert_values(&table, &row).await, |_| "ok".to_owned())
        }
        ["insert", id, value, code] => {
            let row = [Value::Int8(number(id)), Value::Int8(number(value)), Value::Int8(number(code))];
            outcome_of(tx.insert_values(&table, &row).await, |_| "ok".to_owned())
        }
        ["upsert", id, value] => {
            let mut row = EncodedRow::new();
            table
                .encode_values(&[Value::Int8(number(id)), Value::Int8(number(value)), Value::Null], &mut row)
                .expect("a row");
            outcome_of(tx.upsert(&table, &row).await, |_| "ok".to_owned())
        }
        ["update", id, value] => {
            let edit = |row: &mut RowEditor<'_>| row.set_i64(1, number(value)).map_err(refused);
            outcome_of(tx.update(&primary, &key(number(id)), edit).await, found)
        }
        ["code", id, code] => {
            let edit = |row: &mut RowEditor<'_>| row.set_i64(2, number(code)).map_err(refused);
            outcome_of(tx.update(&primary, &key(number(id)), edit).await, found)
        }
        ["key", id, new] => {
            let edit = |row: &mut RowEditor<'_>| row.set_i64(0, number(new)).map_err(refused);
            outcome_of(tx.update(&primary, &key(number(id)), edit).await, found)
        }
        ["delete", id] => outcome_of(tx.delete(&primary, &key(number(id))).await, |deleted| {
            if deleted { "ok" } else { "none" }.to_owned()
        }),
        ["lock", id, mode] => {
            let mode = match mode {
                "key-share" => LockMode::KeyShare,
                "share" => LockMode::Share,
                "update" => LockMode::Update,
                other => panic!("no such mode: {other}"),
            };
            outcome_of(tx.lock(&primary, &key(number(id)), mode).await, |locked| {
                if locked { "ok" } else { "none" }.to_owned()
            })
        }
        ["commit"] => return (None, outcome_of(tx.commit().await, |()| "ok".to_owned())),
        _ => panic!("no such step: {words:?}"),
    };
    (Some(tx), outcome)
}
