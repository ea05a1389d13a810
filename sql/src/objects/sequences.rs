//! Sequences: values that are given once, whatever becomes of the transaction that takes them.
//!
//! The row of a sequence says how far values have been reserved. A session that finds none left reserves the next [`RESERVED`]
//! by a transaction of its own, under one lock for all sessions; between these the values come from memory ([`Ahead`]). So a
//! value is never given twice, a crash loses at most those that were reserved, and a rollback takes none back.
//!
//! A reservation is committed and not waited for: the log has it before whatever is committed with its values, so these are durable
//! only with it. A statement that commits nothing of its own waits before its client is told ([`SessionSequences::settle`]), once
//! for all values that it took from reservations of which nobody knows yet that they are durable.
//!
//! A transaction that has made or reset a sequence keeps its position itself (`Inner::own`) and writes it when it
//! commits: another transaction would wait for it, and not see it. Others that want a value meanwhile are refused (55P03).

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use thermocline_engine::row::Value;
use thermocline_engine::{
    Change as RowChange, Changed, Database, LockMode, LockWait, Locked, TransactionOptions, block_on,
};

use super::rows::SequenceRow;
use super::{Objects, SEQUENCES, Shared};
use crate::error::{Error, Result};
use crate::names;
use crate::names::OWN;

/// Values that are reserved at once, as PostgreSQL logs them.
const RESERVED: u32 = 32;

/// Numbers of reservations, of all databases of the process.
static RESERVATIONS: AtomicU64 = AtomicU64::new(0);

/// Values that are reserved and not given yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The last value, and whether it was given (else it is the next one).
    pub(crate) last: i64,
    pub(crate) called: bool,
    /// How many follow it that are reserved.
    left: u32,
    /// The number of the reservation that they are of.
    reservation: u64,
}

/// Reserved values of all sequences of a database, and the last reservations that are known to be durable.
#[derive(Debug, Default)]
pub(crate) struct Ahead(Mutex<HashMap<String, Position>>, Mutex<HashMap<String, u64>>);

impl Ahead {
    /// Forgets what is reserved: the sequence goes on from its row.
    pub(crate) fn forget(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    fn is_durable(&self, name: &str, reservation: u64) -> bool {
        let known = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(name).is_some_and(|durable| *durable >= reservation)
    }

    fn note_durable(&self, name: String, reservation: u64) {
        let mut known = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        let durable = known.entry(name).or_default();
        *durable = reservation.max(*durable);
    }

    /// The position of a sequence, if values of it are reserved.
    pub(crate) fn position(&self, name: &str) -> Option<(i64, bool)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(name).map(|position| (position.last, position.called))
    }
}

/// The value behind `position`; none: the sequence is at its end.
fn next(row: &SequenceRow, last: i64, called: bool) -> Option<i64> {
    if !called {
        return Some(last);
    }
    let next = last.checked_add(row.increment).filter(|next| (row.min..=row.max).contains(next));
    next.or_else(|| row.cycle.then_some(if row.increment > 0 { row.min } else { row.max }))
}

fn exhausted(name: &str, row: &SequenceRow) -> Error {
    let (what, bound) = if row.increment > 0 { ("maximum", row.max) } else { ("minimum", row.min) };
    Error::new("2200H", format!("nextval: reached {what} value of sequence \"{name}\" ({bound})"))
}

/// What a session knows of sequences; statements reach it from their expressions.
#[derive(Clone, Debug)]
pub(crate) struct SessionSequences(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    db: Database,
    shared: Option<Arc<Shared>>,
    objects: Arc<Objects>,
    path: Arc<[String]>,
    /// Sequences that the open transaction has made or reset, and how many savepoints there were then; the last one counts.
    own: BTreeMap<String, Vec<(Position, usize)>>,
    /// The values that this session got last.
    current: HashMap<String, i64>,
    last: Option<String>,
    /// Sequences of whose values the client must not be told yet, and the reservations that they came from.
    unsettled: Vec<(String, u64)>,
}

impl SessionSequences {
    pub(crate) fn new(db: &Database) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            db: db.clone(),
            shared: None,
            objects: Arc::default(),
            path: Arc::from([names::PUBLIC.to_owned()]),
            own: BTreeMap::new(),
            current: HashMap::new(),
            last: None,
            unsettled: Vec::new(),
        })))
    }

    fn with<T>(&self, run: impl FnOnce(&mut Inner) -> T) -> T {
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the next statement knows of definitions.
    pub(crate) fn refresh(&self, shared: Option<Arc<Shared>>, objects: Arc<Objects>) {
        self.with(|inner| {
            inner.shared = shared;
            inner.objects = objects;
        });
    }

    /// Where names without a schema are looked for.
    pub(crate) fn set_path(&self, path: Arc<[String]>) {
        self.with(|inner| inner.path = path);
    }

    /// The full name of the sequence that a text names; behind [`OWN`] it stands as it is.
    pub(crate) fn named(&self, text: &str) -> Result<String> {
        if let Some(full) = text.strip_prefix(OWN) {
            return Ok(full.to_owned());
        }
        let parts = names::written(text);
        self.with(|inner| {
            let found = match &parts[..] {
                [.., schema, name] => Some(names::within(schema, name)),
                [name] => {
                    let mut all = inner.path.iter().map(|schema| names::within(schema, name));
                    all.find(|full| inner.objects.sequence(full).is_some())
                }
                [] => None,
            };
            found.filter(|full| inner.objects.sequence(full).is_some()).ok_or_else(|| missing(text))
        })
    }

    /// The open transaction has made or reset a sequence: it is kept here until it ends.
    pub(crate) fn keep(&self, name: &str, last: i64, called: bool, savepoints: usize) {
        let position = Position { last, called, left: u32::MAX, reservation: 0 };
        self.with(|inner| {
            let all = inner.own.entry(name.to_owned()).or_default();
            all.retain(|(_, since)| *since < savepoints);
            all.push((position, savepoints));
        });
    }

    /// What the transaction has to write of the sequences that it keeps.
    pub(crate) fn kept(&self) -> Vec<(String, i64, bool)> {
        self.with(|inner| {
            let last = |(name, all): (&String, &Vec<(Position, usize)>)| {
                all.last().map(|(at, _)| (name.clone(), at.last, at.called))
            };
            inner.own.iter().filter_map(last).collect()
        })
    }

    /// The transaction has ended, or has gone back to a savepoint with so many before it.
    pub(crate) fn ended(&self, savepoints: usize) {
        self.with(|inner| {
            let Inner { shared, own, .. } = inner;
            own.retain(|name, all| {
                all.retain(|(_, since)| *since < savepoints);
                if all.is_empty()
                    && let Some(shared) = &shared
                {
                    shared.sequences.forget(name);
                }
                !all.is_empty()
            });
        });
    }

    /// Waits until all values that the session has taken are durably reserved. To be called before a client is told what a statement or
    /// a transaction has given it.
    pub(crate) async fn settle(&self) -> Result<()> {
        let unsettled = self.with(|inner| {
            if inner.unsettled.is_empty() {
                return None;
            }
            let shared = inner.shared.clone()?;
            Some((std::mem::take(&mut inner.unsettled), inner.db.clone(), shared))
        });
        let Some((taken, db, shared)) = unsettled else { return Ok(()) };
        // Whoever reads is told when what it could see is durable.
        let table = db.table(SEQUENCES)?;
        let index = table.primary();
        let key = index.key_of_values(&[Value::Text(taken[0].0.clone())])?;
        let mut transaction = db.begin(TransactionOptions::new().read_only())?;
        transaction.read(&index, &key, |_| ()).await?;
        transaction.commit().await?;
        taken.into_iter().for_each(|(name, reservation)| shared.sequences.note_durable(name, reservation));
        Ok(())
    }

    /// DISCARD ALL.
    pub(crate) fn discard(&self) {
        self.with(|inner| {
            inner.current.clear();
            inner.last = None;
        });
    }

    pub(crate) fn next_value(&self, name: &str) -> Result<i64> {
        self.with(|inner| {
            let value = inner.next_value(name)?;
            inner.current.insert(name.to_owned(), value);
            inner.last = Some(name.to_owned());
            Ok(value)
        })
    }

    pub(crate) fn current_value(&self, name: &str) -> Result<i64> {
        self.with(|inner| {
            inner.row(name)?;
            inner.current.get(name).copied().ok_or_else(|| {
                Error::new(
                    "55000",
                    format!("currval of sequence \"{name}\" is not yet defined in this session"),
                )
            })
        })
    }

    pub(crate) fn last_value(&self) -> Result<i64> {
        self.with(|inner| {
            let name = inner.last.as_ref().filter(|name| inner.objects.sequence(name).is_some());
            let value = name.and_then(|name| inner.current.get(name));
            value.copied().ok_or_else(|| Error::new("55000", "lastval is not yet defined in this session"))
        })
    }

    /// The next value is the one behind `value`, or, if it was not `called`, `value` itself.
    pub(crate) fn set_value(&self, name: &str, value: i64, called: bool) -> Result<i64> {
        self.with(|inner| {
            let row = inner.row(name)?;
            if !(row.min..=row.max).contains(&value) {
                let (min, max) = (row.min, row.max);
                let message =
                    format!("setval: value {value} is out of bounds for sequence \"{name}\" ({min}..{max})");
                return Err(Error::new("22003", message));
            }
            match inner.own.get_mut(name).and_then(|all| all.last_mut()) {
                Some((position, _)) => {
                    *position = Position { last: value, called, left: u32::MAX, reservation: 0 }
                }
                None => {
                    inner.write_position(name, value, called)?;
                    let reservation = RESERVATIONS.fetch_add(1, Ordering::Relaxed) + 1;
                    inner.note_unsettled(name, reservation);
                }
            }
            if called {
                inner.current.insert(name.to_owned(), value);
            }
            Ok(value)
        })
    }

    /// The position, as `select last_value from s` tells it.
    pub(crate) fn position(&self, name: &str) -> Result<(i64, bool)> {
        self.with(|inner| {
            if let Some((own, _)) = inner.own.get(name).and_then(|all| all.last()) {
                return Ok((own.last, own.called));
            }
            if let Some(position) = inner.shared.as_ref().and_then(|shared| shared.sequences.position(name)) {
                return Ok(position);
            }
            stored(&inner.db, name)
        })
    }
}

/// The position that the row of a sequence has.
fn stored(db: &Database, name: &str) -> Result<(i64, bool)> {
    let table = db.table(SEQUENCES)?;
    let (layout, index) = (table.layout(), table.primary());
    let key = index.key_of_values(&[Value::Text(name.to_owned())])?;
    let mut transaction = db.begin(TransactionOptions::new().read_only())?;
    let see = |row: &[u8]| (layout.i64(row, 2).unwrap_or(0), layout.bool(row, 3).unwrap_or(false));
    let found = block_on(transaction.read(&index, &key, see))?;
    transaction.rollback();
    found.ok_or_else(|| missing(name))
}

fn missing(name: &str) -> Error {
    Error::new("42P01", format!("relation \"{name}\" does not exist"))
}

impl Inner {
    /// The client must not be told of this sequence before the reservation is durable.
    fn note_unsettled(&mut self, name: &str, reservation: u64) {
        match self.unsettled.iter_mut().find(|(of, _)| of == name) {
            Some((_, newest)) => *newest = reservation.max(*newest),
            None => self.unsettled.push((name.to_owned(), reservation)),
        }
    }

    fn row(&self, name: &str) -> Result<SequenceRow> {
        self.objects.sequence(name).cloned().ok_or_else(|| missing(name))
    }

    fn next_value(&mut self, name: &str) -> Result<i64> {
        let row = self.row(name)?;
        if let Some((position, _)) = self.own.get_mut(name).and_then(|all| all.last_mut()) {
            let value = next(&row, position.last, position.called).ok_or_else(|| exhausted(name, &row))?;
            (position.last, position.called) = (value, true);
            return Ok(value);
        }
        let shared = self.shared.clone().ok_or_else(|| missing(name))?;
        let mut all = shared.sequences.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(position) = all.get_mut(name)
            && position.left > 0
        {
            let value = next(&row, position.last, position.called).ok_or_else(|| exhausted(name, &row))?;
            *position = Position { last: value, called: true, left: position.left - 1, ..*position };
            let reservation = position.reservation;
            if !shared.sequences.is_durable(name, reservation) {
                self.note_unsettled(name, reservation);
            }
            return Ok(value);
        }
        // One more than is given now: all of them are behind the row's position then.
        let mut first = None;
        let mut count = 0;
        self.edit(name, |last, called| {
            let (mut at, mut was) = (last, called);
            (first, count) = (None, 0);
            while count < RESERVED {
                let Some(value) = next(&row, at, was) else { break };
                first.get_or_insert(value);
                (at, was, count) = (value, true, count + 1);
            }
            (at, was)
        })?;
        let Some(value) = first else { return Err(exhausted(name, &row)) };
        let reservation = RESERVATIONS.fetch_add(1, Ordering::Relaxed) + 1;
        all.insert(name.to_owned(), Position { last: value, called: true, left: count - 1, reservation });
        self.note_unsettled(name, reservation);
        Ok(value)
    }

    fn write_position(&self, name: &str, value: i64, called: bool) -> Result<()> {
        let shared = self.shared.clone().ok_or_else(|| missing(name))?;
        let mut all = shared.sequences.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.edit(name, |_, _| (value, called))?;
        all.remove(name);
        Ok(())
    }

    /// Moves the position in the sequence's row, in a transaction of its own. Waits for nobody: what has locked the row is a
    /// transaction that has changed the sequence, perhaps one of this very thread.
    fn edit(&self, name: &str, mut change: impl FnMut(i64, bool) -> (i64, bool)) -> Result<()> {
        let table = self.db.table(SEQUENCES)?;
        let (layout, index) = (table.layout(), table.primary());
        let key = index.key_of_values(&[Value::Text(name.to_owned())])?;
        let mut transaction = self.db.begin(TransactionOptions::new())?;
        let edited = block_on(async {
            let mut statement = transaction.statement()?;
            match statement.lock(&index, &key, LockMode::Update, LockWait::NoWait, |_| ()).await {
                Ok(Locked::Locked(())) => {}
                Ok(_) => return Err(missing(name)),
                Err(thermocline_engine::Error::WouldWait { .. }) => {
                    let message = format!("sequence \"{name}\" is being changed by another transaction");
                    return Err(
                        Error::new("55P03", message).hint("Try again when that transaction has ended.")
                    );
                }
                Err(error) => return Err(error.into()),
            }
            let changed = statement
                .change(&index, &key, |row| {
                    let last = layout.i64(row.row(), 2).unwrap_or(0);
                    let called = layout.bool(row.row(), 3).unwrap_or(false);
                    let (last, called) = change(last, called);
                    row.set_value(2, &Value::Int8(last)).map_err(|source| table.error(source))?;
                    row.set_value(3, &Value::Boolean(called)).map_err(|source| table.error(source))?;
                    Ok((RowChange::Update, ()))
                })
                .await?;
            if matches!(changed, Changed::Updated(()) | Changed::Left(())) {
                Ok(())
            } else {
                Err(missing(name))
            }
        });
        edited?;
        // Once it is decided it is in the log, before whatever is committed with its values.
        let decided = Cell::new(false);
        let mut commit = pin!(transaction.commit_with(|| decided.set(true)));
        match commit.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(committed) => Ok(committed?),
            Poll::Pending if decided.get() => Ok(()),
            Poll::Pending => Ok(block_on(commit)?),
        }
    }
}
