//! A run of a database that one seed determines, and what must survive of it.
//!
//! Every row has an id (its first column), a number `k` that is unique among live rows, and a text. Transactions
//! insert, update, delete, move ids and numbers about (numbers of deleted rows come back), roll back to savepoints,
//! and now and then are too large for one record. Between them: all changes of definitions, checkpoints, flushes, and
//! the maintenance that packs and drops chunks. Some commits wait together for one flush, with readers among them.
//!
//! In a run that is [`Run::cold`], rows migrate, are promoted and cleaned away meanwhile, by futures that are polled now
//! and then, so that a migration is between its steps while transactions change its rows. In one that [`Run::freezes`],
//! tables are frozen and thawed now and then.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use thermocline_base::io::{MemoryIo, RecordingIo};
use thermocline_base::rng::Rng;
use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{
    ColdStoreKind, Database, Durability, Error, IndexSchema, Options, Result, TableSchema, Tiering,
    Transaction, TransactionOptions,
};

use super::{State, TableState, drive, open, poll, render, try_drive};

/// A table as it should be.
#[derive(Clone, Debug)]
struct Model {
    keyed: bool,
    columns: Vec<String>,
    indexes: Vec<String>,
    rows: BTreeMap<i64, Vec<Value>>,
}

type Tables = BTreeMap<String, Model>;

/// Something that happened as a whole.
pub(super) struct Event {
    /// The state after it.
    pub(super) state: State,
    /// Before this many operations nothing of it can be on disk.
    begun: usize,
    /// After this many operations a crash must not take it.
    sure: Option<usize>,
}

type Pending = Pin<Box<dyn Future<Output = Result<()>>>>;

/// A run, and what is known of it.
pub(super) struct Run {
    pub(super) io: RecordingIo,
    pub(super) options: Options,
    db: Option<Database>,
    rng: Rng,
    /// Chooses what is defined among the changes of a transaction.
    defining: Rng,
    tables: Tables,
    events: Vec<Event>,
    /// Commits on their way, each with the event that it must not overtake.
    pending: Vec<(usize, Pending)>,
    next: i64,
    free_numbers: Vec<i32>,
    names: u32,
    /// Faults are expected: what has failed.
    tolerant: bool,
    pub(super) errors: Vec<Error>,
    /// Rows leave memory and come back.
    cold: bool,
    /// Tables freeze and thaw.
    freezes: bool,
    /// Rows that have frozen, so that a test can tell whether it has tested something.
    pub(super) frozen: u64,
    /// What moves rows or cleans, under way.
    moves: Vec<Pending>,
    /// Is one of them a round of cleaning? There is one at a time.
    cleans: Rc<Cell<bool>>,
    /// What has moved or was cleaned away, so that a test can tell whether it has tested something.
    pub(super) moved: Rc<Cell<usize>>,
    /// Rows that have left memory with their chunk, the same.
    pub(super) left: Rc<Cell<usize>>,
    /// Changes of definitions in transactions, the same.
    pub(super) defined: Rc<Cell<usize>>,
}

/// The errors that a device may be answered with.
fn is_typed(error: &Error) -> bool {
    matches!(error, Error::LogFailed { .. } | Error::DiskFull { .. } | Error::Io(_) | Error::ColdStore { .. })
}

impl Run {
    /// A new database.
    pub(super) fn new(seed: u64, options: Options) -> Self {
        let io = RecordingIo::new(&MemoryIo::new());
        let db = open(&io, &options).expect("a new database");
        let empty = Event { state: State::default(), begun: 0, sure: Some(0) };
        Self {
            io,
            options,
            db: Some(db),
            rng: Rng::new(seed),
            defining: Rng::new(!seed),
            tables: BTreeMap::new(),
            events: vec![empty],
            pending: Vec::new(),
            next: 1,
            free_numbers: Vec::new(),
            names: 0,
            tolerant: false,
            errors: Vec::new(),
            cold: false,
            freezes: false,
            frozen: 0,
            moves: Vec::new(),
            cleans: Rc::default(),
            moved: Rc::default(),
            left: Rc::default(),
            defined: Rc::default(),
        }
    }

    /// Rows leave memory and come back from now on.
    pub(super) fn cold(mut self) -> Self {
        self.cold = true;
        self
    }

    /// Tables freeze and thaw from now on.
    pub(super) fn freezes(mut self) -> Self {
        self.freezes = true;
        self
    }

    /// Freezes a table, or thaws it; in a database of paged tables its rows go over, or come back.
    fn freeze(&mut self) {
        let (steps, tables) = (self.db().cold_steps(), self.db().table_names());
        if tables.is_empty() {
            return;
        }
        let name = &tables[self.rng.below(tables.len() as u64) as usize];
        let table = self.db().table(name).expect("it exists");
        if self.rng.chance(0.8) {
            let paged = self.options.tiering == Tiering::Paged;
            let gone = if paged { steps.page_out(&table) } else { steps.freeze(&table) };
            self.frozen += gone.expect("memory is enough");
        } else {
            steps.thaw(&table).expect("memory is enough");
        }
    }

    /// From now on errors are expected.
    pub(super) fn tolerate(&mut self) {
        self.tolerant = true;
    }

    /// `true`: it went well. Panics at errors that nobody expects.
    fn judge(&mut self, outcome: Result<()>, what: &str) -> bool {
        match outcome {
            Ok(()) => true,
            Err(error) => {
                assert!(self.tolerant && is_typed(&error), "{what}: {error}");
                self.errors.push(error);
                false
            }
        }
    }

    /// Has the log failed? Readers are told that all is well then if they have seen nothing that it lacks.
    fn log_failed(&self) -> bool {
        self.errors.iter().any(|error| matches!(error, Error::LogFailed { .. }))
    }

    /// The open database.
    pub(super) fn db(&self) -> Database {
        self.db.clone().expect("the database is open")
    }

    /// The newest state.
    pub(super) fn state(&self) -> &State {
        &self.events.last().expect("there is a first event").state
    }

    fn logged(&self) -> bool {
        self.options.durability != Durability::Off
    }

    /// Goes on for so many steps.
    pub(super) fn steps(&mut self, count: usize) {
        for _ in 0..count {
            if self.cold && self.rng.chance(0.5) {
                self.move_about();
                continue;
            }
            if self.freezes && self.rng.chance(0.12) {
                self.freeze();
                continue;
            }
            match self.rng.below(100) {
                0..60 => self.write(false),
                60..64 => self.write(true),
                64..72 => self.read(),
                72..80 => self.flush(),
                80..86 => self.checkpoint(),
                86..89 => self.db().step_maintenance(),
                89..91 if !self.tolerant && self.rng.chance(0.2) => self.reopen(),
                _ => self.define(),
            }
            if self.pending.len() > 4 {
                self.flush();
            }
        }
    }

    fn push(&mut self, begun: usize, tables: Tables) {
        let state = tables
            .iter()
            .map(|(name, model)| {
                let rows = model.rows.iter().map(|(id, row)| (*id, render(row))).collect();
                let (columns, indexes) = (model.columns.clone(), model.indexes.clone());
                let table = TableState { columns, indexes, hidden: !model.keyed, rows };
                (name.clone(), table)
            })
            .collect();
        self.tables = tables;
        self.events.push(Event { state: State(state), begun, sure: None });
    }

    /// Everything up to this event survives from now on.
    fn sure(&mut self, event: usize) {
        let operations = self.io.operations();
        for event in self.events[..=event].iter_mut().rev() {
            if event.sure.is_some() {
                break;
            }
            event.sure = Some(operations);
        }
    }

    fn last(&self) -> usize {
        self.events.len() - 1
    }

    fn poll_pending(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain_mut(|(event, future)| match poll(future.as_mut()) {
            Poll::Ready(outcome) => {
                if self.judge(outcome, "a commit") && self.waits() {
                    self.sure(*event);
                }
                false
            }
            Poll::Pending => true,
        });
        self.pending = pending;
    }

    /// Is a commit acknowledged only when it is durable?
    fn waits(&self) -> bool {
        matches!(self.options.durability, Durability::Sync | Durability::Group)
    }

    /// Flushes the log.
    pub(super) fn flush(&mut self) {
        let outcome = self.db().step_flush();
        let flushed = self.judge(outcome, "a flush");
        self.poll_pending();
        self.poll_moves();
        assert!(self.pending.is_empty() || !flushed, "a flush lets every commit go");
        if flushed && self.logged() {
            self.sure(self.last());
        }
    }

    /// Makes a checkpoint.
    pub(super) fn checkpoint(&mut self) {
        let outcome = self.db().checkpoint();
        let made = self.judge(outcome, "a checkpoint");
        self.poll_pending();
        if made && self.logged() {
            self.sure(self.last());
        }
    }

    /// Something about cold rows: what is under way goes on, or something else begins.
    fn move_about(&mut self) {
        let (steps, tables) = (self.db().cold_steps(), self.db().table_names());
        let choice = self.rng.below(if self.freezes { 15 } else { 12 });
        if choice < 4 || tables.is_empty() || self.moves.len() > 3 {
            return self.poll_moves();
        }
        let name = &tables[self.rng.below(tables.len() as u64) as usize];
        let table = self.db().table(name).expect("it exists");
        let moved = Rc::clone(&self.moved);
        let note = move |count: usize| moved.set(moved.get() + count);
        let ids: Vec<i64> = self.tables[name].rows.keys().copied().collect();
        match choice {
            4..7 => {
                let (seed, share) = (self.rng.next_u64(), 1 + self.rng.below(7));
                let layout = table.layout();
                self.moves.push(Box::pin(async move {
                    let mut rng = Rng::new(seed);
                    let which = |row: &[u8]| layout.i64(row, 0).is_some() && rng.below(8) < share;
                    steps.migrate_batch(&table, which).await.map(note)
                }));
            }
            7 if !ids.is_empty() && self.tables[name].keyed => {
                let key = KeyBuf::new().i64(ids[self.rng.below(ids.len() as u64) as usize]);
                self.moves.push(Box::pin(async move {
                    steps.promote_one(&table, &key).await.map(|promoted| note(usize::from(promoted)))
                }));
            }
            8 | 9 if !self.cleans.get() => {
                let cleans = Rc::clone(&self.cleans);
                cleans.set(true);
                self.moves.push(Box::pin(async move {
                    let cleaned = steps.clean_once().await;
                    cleans.set(false);
                    cleaned.map(|cleaned| note(usize::from(cleaned)))
                }));
            }
            11 | 12 if self.freezes => {
                self.frozen += steps.freeze(&table).expect("memory is enough");
                let (choice, left) = (self.rng.next_u64(), Rc::clone(&self.left));
                self.moves.push(Box::pin(async move {
                    let rows = steps.leave_one(&table, choice).await?;
                    left.set(left.get() + rows);
                    Ok(())
                }));
            }
            10 | 13 | 14 => _ = steps.store_work(),
            _ => self.db().step_maintenance(),
        }
        self.poll_moves();
    }

    /// What is under way between memory and the cold store goes on, as far as it can without the disk.
    fn poll_moves(&mut self) {
        let mut moves = std::mem::take(&mut self.moves);
        moves.retain_mut(|future| match poll(future.as_mut()) {
            // Its table was dropped meanwhile.
            Poll::Ready(Err(Error::TableDropped { .. })) => false,
            Poll::Ready(outcome) => {
                self.judge(outcome, "a move");
                false
            }
            Poll::Pending => true,
        });
        self.moves = moves;
    }

    /// Lets go of what is under way: a migration is given up between its steps.
    pub(super) fn drop_moves(&mut self) {
        self.moves.clear();
        self.cleans.set(false);
    }

    /// Closes and opens.
    pub(super) fn reopen(&mut self) {
        self.close();
        let db = open(&self.io, &self.options).expect("it opens again");
        let found = super::dump(&db).expect("a whole database");
        assert!(found == *self.state(), "after closing and opening: {}", self.state().difference(&found));
        self.db = Some(db);
    }

    /// Closes.
    pub(super) fn close(&mut self) {
        self.pending.clear();
        self.drop_moves();
        self.db.take().expect("it is open").close().expect("it closes");
        self.sure(self.last());
    }

    /// The states that a crash after so many operations may leave.
    pub(super) fn allowed(&self, operations: usize) -> &[Event] {
        let sure = |event: &Event| event.sure.is_some_and(|sure| sure <= operations);
        let first = self.events.iter().rposition(sure).expect("the first state is sure");
        let last = self.events.iter().rposition(|event| event.begun < operations || event.begun == 0);
        &self.events[first..=last.expect("the first state has begun").max(first)]
    }

    fn begin(&self) -> Transaction {
        self.db().begin(TransactionOptions::new()).expect("a transaction")
    }

    fn read(&mut self) {
        let event = self.last();
        let tx = self.begin();
        // What it sees, present or absent, is what the last event left.
        let name = self.tables.keys().next().cloned();
        let db = self.db();
        let read = async move {
            let mut tx = tx;
            if let Some(name) = name {
                let table = db.table(&name)?;
                tx.scan_table(&table, |_| std::ops::ControlFlow::Break(())).await?;
            }
            tx.commit().await
        };
        let mut read: Pending = Box::pin(read);
        match poll(read.as_mut()) {
            Poll::Ready(outcome) => {
                if self.judge(outcome, "a reader")
                    && self.waits()
                    && !self.tables.is_empty()
                    && !self.log_failed()
                {
                    self.sure(event);
                }
            }
            Poll::Pending => self.pending.push((event, read)),
        }
    }

    fn number(&mut self) -> i32 {
        if self.rng.chance(0.5) && !self.free_numbers.is_empty() {
            let index = self.rng.below(self.free_numbers.len() as u64) as usize;
            return self.free_numbers.swap_remove(index);
        }
        self.next += 1;
        i32::try_from(self.next).expect("a short run")
    }

    fn text(&mut self, large: bool) -> String {
        let len = if large { self.rng.between(1_000, 3_000) } else { self.rng.between(0, 80) };
        let letter = char::from(b'a' + self.rng.below(26) as u8);
        std::iter::repeat_n(letter, len as usize).collect()
    }

    fn row(&mut self, model: &Model, large: bool) -> Vec<Value> {
        self.next += 1;
        let id = self.next;
        let mut row =
            vec![Value::Int8(id), Value::Int4(self.number()), Value::from(self.text(large).as_str())];
        while row.len() < model.columns.len() {
            row.push(Value::Int4(self.rng.next_u32() as i32));
        }
        row
    }

    /// One transaction.
    fn write(&mut self, large: bool) {
        if self.tables.is_empty() {
            return self.define();
        }
        if large {
            self.flush_if_pending();
        }
        let defines = self.defining.chance(0.1);
        if defines && !self.moves.is_empty() {
            // A move that waits for space in the log holds its table.
            self.flush();
        }
        let begun = self.io.operations();
        let mut tx = self.begin();
        let mut tables = self.tables.clone();
        let mut freed = Vec::new();
        let count = if large { self.rng.between(8, 24) } else { self.rng.between(1, 6) };
        for _ in 0..count {
            let savepoint = tx.savepoint().expect("a savepoint");
            let mut undone = tables.clone();
            let undo = self.rng.chance(0.1);
            let into = if undo { &mut undone } else { &mut tables };
            if defines && self.defining.chance(0.4) || into.is_empty() {
                self.define_within(&mut tx, into);
            } else {
                self.change(&mut tx, into, large, &mut freed);
            }
            if undo {
                tx.rollback_to(&savepoint).expect("a rollback to a savepoint");
            }
        }
        if self.rng.chance(0.05) {
            tx.rollback();
            return;
        }
        let committed = self.db().statistics().commits;
        let mut commit: Pending = Box::pin(tx.commit());
        let mut outcome = poll(commit.as_mut());
        if outcome.is_pending() && self.db().statistics().commits == committed {
            // It waits for space in the log, and is written in several flushes; those before it go first.
            if let Some(done) = try_drive(&self.db(), commit.as_mut()) {
                outcome = Poll::Ready(done);
            }
            self.poll_pending();
        }
        if self.db().statistics().commits == committed {
            // It was rolled back, or is now; or savepoints had left nothing of it.
            if let Poll::Ready(outcome) = outcome
                && self.judge(outcome, "a commit")
            {
                self.push(begun, tables);
                let (empty, before) = (&self.events[self.last()], &self.events[self.last() - 1]);
                assert!(empty.state == before.state, "a transaction that was acknowledged was committed");
                self.events.pop();
            }
            return;
        }
        self.push(begun, tables);
        // A number that a savepoint gave back may have been freed twice.
        freed.sort_unstable();
        freed.dedup();
        freed.retain(|number| !self.in_use(*number));
        self.free_numbers.append(&mut freed);
        match outcome {
            Poll::Ready(outcome) => {
                if self.judge(outcome, "a commit") && self.waits() {
                    self.sure(self.last());
                }
            }
            Poll::Pending => self.pending.push((self.last(), commit)),
        }
    }

    fn in_use(&self, number: i32) -> bool {
        let has = |row: &Vec<Value>| matches!(row[1], Value::Int4(taken) if taken == number);
        self.tables.values().any(|model| model.rows.values().any(has)) || self.free_numbers.contains(&number)
    }

    fn flush_if_pending(&mut self) {
        if !self.pending.is_empty() {
            self.flush();
        }
    }

    /// One change of one row.
    fn change(&mut self, tx: &mut Transaction, tables: &mut Tables, large: bool, freed: &mut Vec<i32>) {
        let which = self.rng.below(tables.len() as u64) as usize;
        let (name, model) = tables.iter_mut().nth(which).expect("it exists");
        let db = self.db();
        let table = tx.table(name).expect("it exists");
        let old = if model.rows.is_empty() || self.rng.chance(0.4) {
            None
        } else {
            let which = self.rng.below(model.rows.len() as u64) as usize;
            model.rows.values().nth(which).cloned()
        };
        let Some(old) = old else {
            let row = self.row(model, large);
            drive(&db, tx.insert_values(&table, &row)).expect("an insert");
            model.rows.insert(super::id_of(&row), row);
            return;
        };
        let id = super::id_of(&old);
        let Value::Int4(number) = old[1] else { unreachable!("the second column is a number") };
        let (index, key) = if model.keyed && self.rng.chance(0.5) {
            (table.primary(), KeyBuf::new().i64(id))
        } else if model.indexes.iter().any(|index| index == "by_k") {
            (table.index("by_k").expect("it exists"), KeyBuf::new().i32(number))
        } else if model.keyed {
            (table.primary(), KeyBuf::new().i64(id))
        } else {
            return;
        };
        let mut new = old;
        match self.rng.below(if large { 5 } else { 10 }) {
            0..5 => new[2] = Value::from(self.text(large).as_str()),
            5 => {
                new[1] = Value::Int4(self.number());
                freed.push(number);
            }
            6 => {
                self.next += 1;
                new[0] = Value::Int8(self.next);
            }
            7 => {
                let column = self.rng.below(new.len() as u64 - 2) as usize + 2;
                new[column] = if column == 2 { Value::from("") } else { Value::Null };
            }
            _ => {
                assert!(drive(&db, tx.delete(&index, &key)).expect("a delete"), "{name} has row {id}");
                model.rows.remove(&id);
                freed.push(number);
                return;
            }
        }
        let update = tx.update(&index, &key, |row| {
            for (column, value) in new.iter().enumerate() {
                row.set_value(column, value)?;
            }
            Ok(())
        });
        drive(&db, update).expect("an update").unwrap_or_else(|| panic!("{name} has row {id}"));
        model.rows.remove(&id);
        model.rows.insert(super::id_of(&new), new);
    }

    /// One change of definitions, by itself.
    fn define(&mut self) {
        // A move that waits for space in the log holds its table.
        if !self.moves.is_empty() {
            self.flush();
        }
        let begun = self.io.operations();
        let db = self.db();
        let mut tables = self.tables.clone();
        let Some(definition) = self.definition(&mut tables) else { return };
        let committed = db.statistics().commits;
        let outcome = definition.alone(&db);
        let done = self.judge(outcome, "a change of definitions");
        if !done && self.db().statistics().commits == committed {
            // Nothing has happened. Else it is there, as a commit is whose log has failed, and a restart may not find it.
            return;
        }
        self.push(begun, tables);
        if done && self.logged() {
            self.sure(self.last());
        }
    }

    /// One change of definitions among the changes of a transaction.
    fn define_within(&mut self, tx: &mut Transaction, tables: &mut Tables) {
        let mut changed = tables.clone();
        std::mem::swap(&mut self.rng, &mut self.defining);
        let definition = self.definition(&mut changed);
        std::mem::swap(&mut self.rng, &mut self.defining);
        let Some(definition) = definition else { return };
        let db = self.db();
        let outcome = drive(&db, definition.within(tx));
        if self.judge(outcome, "a change of definitions") {
            *tables = changed;
            self.defined.set(self.defined.get() + 1);
        }
    }

    /// Chooses a change of definitions, and makes it in the model.
    fn definition(&mut self, tables: &mut Tables) -> Option<Definition> {
        let count = tables.len() as u64;
        let name = match count {
            0 => String::new(),
            _ => tables.keys().nth(self.rng.below(count) as usize).expect("it exists").clone(),
        };
        let choice = if count < 2 { 0 } else { self.rng.below(16) };
        self.names += 1;
        let fresh = format!("n{}", self.names);
        Some(match choice {
            0 | 12 if count < 5 => self.create(tables),
            0 | 1 => {
                tables.remove(&name);
                Definition::Drop(name)
            }
            2 => {
                tables.get_mut(&name).expect("it exists").rows.clear();
                Definition::Truncate(name)
            }
            3..6 => {
                let model = tables.get_mut(&name).expect("it exists");
                model.columns.push(fresh.clone());
                for row in model.rows.values_mut() {
                    row.push(Value::Int4(5));
                }
                Definition::AddColumn(name, fresh)
            }
            6 => {
                let model = tables.get_mut(&name).expect("it exists");
                if model.columns.len() < 4 {
                    return None;
                }
                let column = model.columns.remove(3);
                for row in model.rows.values_mut() {
                    row.remove(3);
                }
                Definition::DropColumn(name, column)
            }
            7 | 10..12 => {
                let model = tables.get_mut(&name).expect("it exists");
                if let Some(position) = model.indexes.iter().position(|index| index == "by_k") {
                    model.indexes.remove(position);
                    Definition::DropIndex(name)
                } else if self.options.cold_store == ColdStoreKind::Direct {
                    // Its slots have no room for the entries of another index.
                    return None;
                } else {
                    // A round of cleaning that stands still would be waited for.
                    self.drop_moves();
                    model.indexes.push("by_k".to_owned());
                    Definition::CreateIndex(name)
                }
            }
            8 => {
                let model = tables.remove(&name).expect("it exists");
                tables.insert(fresh.clone(), model);
                Definition::Rename(name, fresh)
            }
            _ => {
                let model = tables.get_mut(&name).expect("it exists");
                let column = model.columns.get_mut(3)?;
                let old = std::mem::replace(column, fresh.clone());
                Definition::RenameColumn(name, old, fresh)
            }
        })
    }

    fn create(&mut self, tables: &mut Tables) -> Definition {
        let name = format!("t{}", self.names);
        let mut schema = TableSchema::new(&name)
            .column(Column::new("id", Type::Int8))
            .column(Column::new("k", Type::Int4))
            .column(Column::new("v", Type::Text))
            .index(IndexSchema::ordered("by_k", &["k"]).unique());
        let mut indexes = vec!["by_k".to_owned()];
        let keyed = self.rng.chance(0.7);
        if keyed {
            let hash = self.rng.chance(0.5);
            let make = if hash { IndexSchema::hash } else { IndexSchema::ordered };
            schema = schema.primary_key(make("key", &["id"]));
            indexes.insert(0, "key".to_owned());
        }
        let columns = ["id", "k", "v"].map(str::to_owned).to_vec();
        tables.insert(name, Model { keyed, columns, indexes, rows: BTreeMap::new() });
        Definition::Create(schema)
    }
}

/// A change of definitions that has been chosen.
enum Definition {
    Create(TableSchema),
    Drop(String),
    Truncate(String),
    AddColumn(String, String),
    DropColumn(String, String),
    CreateIndex(String),
    DropIndex(String),
    Rename(String, String),
    RenameColumn(String, String, String),
}

impl Definition {
    fn column(name: &str) -> Column {
        Column::new(name, Type::Int4).nullable().default(5)
    }

    fn index() -> IndexSchema {
        IndexSchema::ordered("by_k", &["k"]).unique()
    }

    fn alone(&self, db: &Database) -> Result<()> {
        match self {
            Self::Create(schema) => db.create_table(schema.clone()).map(drop),
            Self::Drop(table) => db.drop_table(table),
            Self::Truncate(table) => db.truncate_table(table),
            Self::AddColumn(table, column) => db.add_column(table, Self::column(column)),
            Self::DropColumn(table, column) => db.drop_column(table, column),
            Self::CreateIndex(table) => db.create_index(table, Self::index()).map(drop),
            Self::DropIndex(table) => db.drop_index(table, "by_k"),
            Self::Rename(from, to) => db.rename_table(from, to),
            Self::RenameColumn(table, from, to) => db.rename_column(table, from, to),
        }
    }

    async fn within(&self, tx: &mut Transaction) -> Result<()> {
        match self {
            Self::Create(schema) => tx.create_table(schema.clone()).await.map(drop),
            Self::Drop(table) => tx.drop_table(table).await,
            Self::Truncate(table) => tx.truncate_table(table).await,
            Self::AddColumn(table, column) => tx.add_column(table, Self::column(column)).await,
            Self::DropColumn(table, column) => tx.drop_column(table, column).await,
            Self::CreateIndex(table) => tx.create_index(table, Self::index()).await.map(drop),
            Self::DropIndex(table) => tx.drop_index(table, "by_k").await,
            Self::Rename(from, to) => tx.rename_table(from, to).await,
            Self::RenameColumn(table, from, to) => tx.rename_column(table, from, to).await,
        }
    }
}
