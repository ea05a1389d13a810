//! What a crash, a fault or damage may leave of a database, compared with what was acknowledged.
//!
//! A database is driven over a [`RecordingIo`] without background threads, so that one seed gives one run:
//! [`workload`] generates it and remembers, for every transaction and change of definitions, the state after it and
//! from which operation on it must survive. A crash image is then *right* if it opens to one of those states, not
//! older than what had to survive and not newer than what had begun. The events of a run follow each other, so every
//! such state holds whole transactions, and each with all that it depends on.
//!
//! | file | proves |
//! |---|---|
//! | [`images`] | every crash image of a run recovers to a right state, twice, and verifies |
//! | [`scenarios`] | the interleavings of the design that end in a crash, each caught when its rule is off |
//! | [`faults`] | a device that fails or fills up at any operation loses nothing acknowledged |
//! | `definitions` | a crash around a change of a definition leaves the old one or the new one, and whole transactions |
//! | [`damage`] | flipped, cut, missing, foreign and newer files are named, never served |
//! | [`backups`] | a backup under load holds everything committed before the call, and nothing by halves |
//! | [`cold`] | the same for rows that leave memory, come back, and are changed where they are |
//! | `cold_definitions` | the same for definitions of tables with cold rows that change |
//! | `files` | files that are missing, cut, older, swapped, foreign: refused, told, or right, and `check` agrees |
//! | [`frozen`] | the same for rows that freeze and thaw, with and without those that leave |
//! | `paged` | the same for rows that go over to the paged side, whose pages no crash keeps |
//! | [`loads`] | a bulk load is there as a whole or not at all |
//! | [`kill9`] | the same for a real process that is killed |

mod backups;
mod ballast;
mod cold;
mod cold_definitions;
mod cold_faults;
mod damage;
#[cfg(feature = "model")]
mod definitions;
mod faults;
mod files;
mod frozen;
mod images;
mod kill9;
mod loads;
mod paged;
mod scenarios;
mod workload;

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::ControlFlow;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use thermocline_base::io::{Io, MemoryIo, OpenMode, RecordingIo};
use thermocline_engine::row::{KeyBuf, Value};
use thermocline_engine::{Database, Durability, Options, Result, Table, Tiering, TransactionOptions};

/// Where the databases of these tests are.
fn path() -> &'static Path {
    Path::new("/db")
}

/// Small constants reach the edges: 16 KiB segments, a ring of 64 KiB, parts of 8 KiB.
fn tiny(durability: Durability) -> Options {
    Options::default()
        .with_durability(durability)
        .with_memory_limit(Some(1 << 30))
        .with_threads(Some(1))
        .with_part_bytes(8 << 10)
        .with_log_buffer_bytes(64 << 10)
        .with_log_segment_bytes(16 << 10)
        .with_cold_block_bytes(8 << 10)
        .with_cold_threads(0)
}

/// Opens without threads. Pages of a paged side are nothing that a crash could keep: each opening has new ones, and few of them in memory.
fn open(io: &(impl Io + Clone + 'static), options: &Options) -> Result<Database> {
    let mut options = options.clone();
    if options.tiering == Tiering::Paged {
        let pages = MemoryIo::new().open(Path::new("pages"), OpenMode::CreateNew);
        options = options
            .with_paged_file(Some(pages.expect("a file in memory")))
            .with_paged_bytes(1)
            .with_memory_limit(Some(64 << 20));
    }
    Database::open_with(path(), options, Arc::new(io.clone()), false)
}

/// Polls once.
fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs a future that may wait for the log, and flushes the log for it; `None` if flushing does not help.
fn try_drive<F: Future>(db: &Database, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for round in 0..50 {
        if let Poll::Ready(output) = poll(future.as_mut()) {
            return Some(output);
        }
        // Its error is the future's, too.
        let _ = db.step_flush();
        // Who writes to a cold store that is behind with its work waits for that.
        if round > 2 {
            let _ = db.cold_steps().store_work();
        }
    }
    None
}

/// As [`try_drive`], where nothing stands in the way of flushing.
fn drive<F: Future>(db: &Database, future: F) -> F::Output {
    try_drive(db, future).expect("flushing the log lets it go on")
}

/// One table: columns, indexes, rows by their first column.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct TableState {
    columns: Vec<String>,
    indexes: Vec<String>,
    /// Is its key one that nobody sees?
    hidden: bool,
    rows: BTreeMap<i64, String>,
}

impl TableState {
    /// How many entries all its indexes have.
    fn entries(&self) -> usize {
        self.rows.len() * (self.indexes.len() + usize::from(self.hidden))
    }
}

/// A whole database.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct State(BTreeMap<String, TableState>);

impl State {
    /// The same tables without their rows.
    fn emptied(&self) -> Self {
        let emptied = |table: &TableState| TableState { rows: BTreeMap::new(), ..table.clone() };
        Self(self.0.iter().map(|(name, table)| (name.clone(), emptied(table))).collect())
    }

    /// What differs, in words that fit on a screen.
    fn difference(&self, other: &Self) -> String {
        for (name, table) in &self.0 {
            let Some(there) = other.0.get(name) else { return format!("table {name} is missing there") };
            if (&table.columns, &table.indexes) != (&there.columns, &there.indexes) {
                return format!("table {name} is defined differently: {table:?} and {there:?}");
            }
            let ids = table.rows.keys().chain(there.rows.keys());
            for id in ids {
                let (here, there) = (table.rows.get(id), there.rows.get(id));
                if here != there {
                    let short =
                        |row: Option<&String>| row.map(|row| row.chars().take(60).collect::<String>());
                    return format!("row {id} of {name}: {:?} and {:?}", short(here), short(there));
                }
            }
        }
        match other.0.keys().find(|name| !self.0.contains_key(*name)) {
            Some(name) => format!("table {name} is missing here"),
            None => "nothing".to_owned(),
        }
    }
}

fn render(values: &[Value]) -> String {
    format!("{values:?}")
}

fn id_of(values: &[Value]) -> i64 {
    match values[0] {
        Value::Int8(id) => id,
        _ => unreachable!("the first column is an id"),
    }
}

/// Reads a whole database, and checks that its indexes and rows belong together.
fn dump(db: &Database) -> std::result::Result<State, String> {
    let mut state = State::default();
    let mut entries = 0;
    for name in db.table_names() {
        let table = db.table(&name).map_err(|error| error.to_string())?;
        let contents = dump_table(db, &table).map_err(|error| format!("table {name}: {error}"))?;
        entries += contents.entries();
        state.0.insert(name, contents);
    }
    // While a database works, entries of what is to be pruned are there, too. Cold rows have theirs elsewhere.
    let found = db.statistics().index_entries;
    if found < entries as u64 && !db.cold_steps().is_open() {
        return Err(format!("the indexes have {found} entries, the rows should have {entries}"));
    }
    Ok(state)
}

fn dump_table(db: &Database, table: &Table) -> std::result::Result<TableState, String> {
    let (schema, layout) = (table.schema(), table.layout());
    let mut rows: Vec<Vec<u8>> = Vec::new();
    let indexes: Vec<_> = schema
        .primary()
        .into_iter()
        .chain(schema.secondary())
        .map(|index| table.index(index.name()))
        .collect::<Result<_>>()
        .map_err(|error| error.to_string())?;
    let read = async {
        let mut tx = db.begin(TransactionOptions::new().read_only())?;
        tx.scan_table(table, |row| {
            rows.push(row.to_vec());
            ControlFlow::Continue(())
        })
        .await?;
        let mut lost = None;
        for index in &indexes {
            for row in &rows {
                let mut key = KeyBuf::new();
                index.key_of(row, &mut key)?;
                let mut found = 0;
                tx.read_all(index, &key, |candidate| {
                    found += usize::from(candidate == row);
                    ControlFlow::Continue(())
                })
                .await?;
                if found != 1 {
                    lost = Some(format!("index {} finds a row {found} times", index.name()));
                }
            }
        }
        Ok::<_, thermocline_engine::Error>(lost)
    };
    if let Some(lost) = drive(db, read).map_err(|error| error.to_string())? {
        return Err(lost);
    }
    let mut state = TableState {
        columns: schema.column_list().iter().map(|column| column.name.clone()).collect(),
        indexes: schema
            .primary()
            .into_iter()
            .chain(schema.secondary())
            .map(|i| i.name().to_owned())
            .collect(),
        hidden: schema.primary().is_none(),
        rows: BTreeMap::new(),
    };
    for row in &rows {
        let values = layout.decode(row).map_err(|error| error.to_string())?;
        let id = id_of(&values);
        if state.rows.insert(id, render(&values)).is_some() {
            return Err(format!("two rows have the id {id}"));
        }
    }
    Ok(state)
}

/// Opens what a crash has left; its state, and how many operations that took.
fn recover(image: &MemoryIo, options: &Options) -> std::result::Result<(State, RecordingIo, usize), String> {
    let io = RecordingIo::new(image);
    let db = open(&io, options).map_err(|error| format!("it does not open: {error}"))?;
    let operations = io.operations();
    let state = dump(&db)?;
    check_entries(&db, &state)?;
    if db.cold_steps().is_open() {
        settle(&db)?;
        check_places(&db, &state)?;
    }
    Ok((state, io, operations))
}

/// Do the indexes in memory have the entries of the rows in memory, and of nothing else?
fn check_entries(db: &Database, state: &State) -> std::result::Result<(), String> {
    let mut entries = db.cold_steps().notices().0 + db.cold_steps().notices().1;
    for (name, contents) in &state.0 {
        let table = db.table(name).map_err(|error| error.to_string())?;
        let rows = db.cold_steps().rows_in_memory(&table);
        entries += rows * (contents.indexes.len() + usize::from(contents.hidden));
    }
    let found = db.statistics().index_entries;
    if found != entries as u64 {
        return Err(format!("the indexes have {found} entries, the rows should have {entries}"));
    }
    Ok(())
}

/// Cleans until nothing is left to clean.
fn settle(db: &Database) -> std::result::Result<(), String> {
    let steps = db.cold_steps();
    for _ in 0..20 {
        if !drive(db, steps.clean_once()).map_err(|error| format!("cleaning: {error}"))? {
            break;
        }
        db.step_maintenance();
    }
    if (steps.notices(), steps.undecided()) != ((0, 0), 0) {
        let notices = steps.notices();
        return Err(format!("{notices:?} notices and {} undecided batches stay", steps.undecided()));
    }
    Ok(())
}

/// Is every row of a settled database in one place only, and nothing else anywhere?
fn check_places(db: &Database, state: &State) -> std::result::Result<(), String> {
    let steps = db.cold_steps();
    let again = dump(db)?;
    if again != *state {
        return Err(format!("after cleaning: {}", state.difference(&again)));
    }
    for (name, contents) in &state.0 {
        let table = db.table(name).map_err(|error| error.to_string())?;
        let in_memory = steps.rows_in_memory(&table);
        if contents.hidden {
            continue;
        }
        let last = contents.rows.keys().next_back().copied().unwrap_or(0) + 20;
        let mut records = 0;
        for id in 0..last {
            let here = steps.records(&table, &KeyBuf::new().i64(id));
            if here > usize::from(contents.rows.contains_key(&id)) && !steps.was_emptied(&table) {
                return Err(format!("row {id} of {name} has {here} records"));
            }
            records += here;
        }
        if in_memory + records != contents.rows.len() && !steps.was_emptied(&table) {
            return Err(format!(
                "{name} has {} rows, {in_memory} of them in memory, but {records} records",
                contents.rows.len()
            ));
        }
    }
    Ok(())
}
