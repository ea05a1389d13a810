//! Sessions: statements one after the other, their transactions, settings, answers.
//!
//! | state | a statement | its error |
//! |---|---|---|
//! | idle | runs in a transaction of its own, at snapshot isolation, and again when it could not be serialized | ends that transaction |
//! | open | runs in the open transaction | makes it failed |
//! | failed | is refused (25P02), but for ROLLBACK, COMMIT (which rolls back) and ROLLBACK TO | |
//!
//! In an open transaction at *read committed* each scan of a statement takes a snapshot of its own, as the engine's operations
//! do; a statement that meets a row that has changed since it read it is undone and runs again.
//!
//! | file | holds |
//! |---|---|
//! | `mod` | the session, and its users' methods |
//! | `dispatch` | each kind of statement, and the end of all of them |
//! | `prepared` | statements, bound; PREPARE and EXECUTE |
//! | `attempt` | the loop in which a statement on rows runs until it is done |
//! | `transaction` | BEGIN to COMMIT, savepoints, SET CONSTRAINTS |
//! | `settings` | SET and SHOW |
//! | `cursors`, `copy`, `explains` | DECLARE and FETCH, and portals; COPY; EXPLAIN |
//! | `ddl` | definitions |
//! | `activity` | what other sessions see of it |

mod activity;
mod attempt;
mod copy;
mod cursors;
mod ddl;
mod dispatch;
mod explains;
mod prepared;
mod settings;
mod transaction;

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_engine::{Database, Tables, block_on};

use crate::catalog::Identity;
use crate::error::{Error, Result, aborted};
use crate::exec::Rows;
use crate::expr::Context;
use crate::expr::memory::{Held, Spare};
use crate::expr::pace::{GiveWay, Pace};
use crate::names;
use crate::objects::sequences::SessionSequences;
use crate::parser::parse_within;
use crate::pg_catalog::Described;
use crate::shared::Common;
use crate::shared::facts::Facts;
use crate::shared::interrupt::Interrupt;
use crate::types::{Column, Datum, Local, Type, Zone};
use prepared::check_parameters;
use settings::Settings;
use transaction::Open;

pub use copy::{CopyFormat, CopyIn, Copying};
pub use cursors::Remainder;
pub use prepared::Prepared;

/// The result of a statement.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// PostgreSQL's command tag: `SELECT 3`, `INSERT 0 1`.
    pub tag: String,
    /// Columns of the rows; empty if the statement returns none.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Vec<Datum>>,
    /// Rows returned or changed.
    pub count: u64,
    /// The zone in which its times are shown.
    pub zone: Zone,
    /// Notices that PostgreSQL would have sent beside the answer.
    pub notices: Vec<Notice>,
    /// The memory that its rows take, charged to the memory limit for as long as this lives.
    pub held: Option<std::sync::Arc<Held>>,
}

/// A message for the client though nothing went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// `NOTICE` or `WARNING`.
    pub severity: &'static str,
    /// SQLSTATE.
    pub code: &'static str,
    /// The message, in one line.
    pub message: String,
}

impl Answer {
    fn tagged(tag: &str) -> Self {
        Self { tag: tag.to_owned(), ..Self::default() }
    }

    fn notice(&mut self, message: impl Into<String>) {
        self.notices.push(Notice { severity: "NOTICE", code: "00000", message: message.into() });
    }

    fn warn(&mut self, code: &'static str, message: impl Into<String>) {
        self.notices.push(Notice { severity: "WARNING", code, message: message.into() });
    }

    /// A value as PostgreSQL writes it; none is null (or no such row and column).
    #[must_use]
    pub fn text(&self, row: usize, column: usize) -> Option<String> {
        let value = self.rows.get(row)?.get(column)?;
        if value.is_null() {
            return None;
        }
        let mut shown = String::new();
        self.columns[column].write_text(value, &self.zone, &mut shown);
        Some(shown)
    }
}

/// Bytes that a token becomes, about: itself, an expression as it was written, and as it was bound.
const TOKEN_BYTES: usize = 400;

/// A connection to a database: runs statements one after the other.
pub struct Session {
    db: Database,
    /// Tables as the session finds them.
    tables: Tables,
    /// They are those of the open transaction, which has changed definitions.
    own_tables: bool,
    described: Described,
    open: Option<Open>,
    settings: Settings,
    clock: std::sync::Arc<dyn Clock>,
    interrupt: Interrupt,
    cursors: cursors::Cursors,
    /// The statements that SQL's PREPARE has kept.
    prepares: prepared::Prepares,
    /// The hidden tables, as the statement that runs knows them.
    objects: std::sync::Arc<crate::objects::Objects>,
    /// The schemas of the search path that are there.
    path: std::sync::Arc<[String]>,
    /// The states of settings and hidden tables that it was made of, and a number that changes with it.
    path_of: (u64, u64),
    path_number: u64,
    shared: Option<std::sync::Arc<crate::objects::Shared>>,
    sequences: SessionSequences,
    /// The part of it that expressions know.
    facts: std::sync::Arc<Facts>,
    /// The list of clients was told last that it does this, and has these settings.
    resting: Option<crate::shared::activity::Doing>,
    noted_settings: Option<u64>,
    /// Counts what the statement does that runs, if it is explained.
    meter: Option<std::sync::Arc<crate::expr::meter::Meter>>,
    /// Lets other tasks have a turn.
    give_way: GiveWay,
    spare: Spare,
    /// Names of indexes by table, as they were when a name was looked for.
    index_names: std::cell::RefCell<std::collections::HashMap<String, (Identity, Vec<String>)>>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("in_transaction", &self.open.is_some()).finish_non_exhaustive()
    }
}

impl Session {
    /// A session on a database.
    #[must_use]
    pub fn new(db: &Database) -> Self {
        Self::with_clock(db, std::sync::Arc::new(SystemClock))
    }

    /// A session that takes the time of `now()` from this clock.
    #[must_use]
    pub fn with_clock(db: &Database, clock: std::sync::Arc<dyn Clock>) -> Self {
        Self {
            db: db.clone(),
            tables: db.tables(),
            own_tables: false,
            described: Described::default(),
            open: None,
            settings: Settings::default(),
            clock,
            interrupt: Interrupt::default(),
            cursors: cursors::Cursors::default(),
            prepares: prepared::Prepares::default(),
            objects: std::sync::Arc::default(),
            path: std::sync::Arc::from([names::PUBLIC.to_owned()]),
            path_of: (0, 0),
            path_number: 0,
            shared: None,
            sequences: SessionSequences::new(db),
            facts: std::sync::Arc::new(Facts::new(Common::of_process(), None)),
            resting: None,
            noted_settings: None,
            meter: None,
            give_way: || Box::pin(thermocline_engine::yield_now()),
            spare: Spare::default(),
            index_names: std::cell::RefCell::default(),
        }
    }

    /// The same session, whose statements let the other tasks of the thread have a turn in this way, some 5,000 times a second.
    #[must_use]
    pub fn with_give_way(mut self, give_way: GiveWay) -> Self {
        self.give_way = give_way;
        self
    }

    /// The context of statements of the database's own.
    fn own_context(&self) -> Context {
        Context {
            interrupt: self.interrupt.clone(),
            local: self.local(),
            statement: self.clock.wall_us(),
            sequences: Some(self.sequences.clone()),
            pace: Pace::new(self.give_way),
            memory: self.spare.take(&self.db),
            ..Context::default()
        }
    }

    /// The same session, sharing locks and numbers with others; `number`: what it is known by (`pg_backend_pid`).
    #[must_use]
    pub fn with_common(mut self, common: &std::sync::Arc<Common>, number: i32) -> Self {
        self.facts = std::sync::Arc::new(Facts::new(common.clone(), Some(number)));
        self
    }

    /// The same session, whose statements end when this is raised.
    #[must_use]
    pub fn with_interrupt(mut self, interrupt: Interrupt) -> Self {
        self.interrupt = interrupt;
        self
    }

    /// Says that the statement that ran was given up by dropping its future: the transaction has failed.
    pub fn abandon(&mut self) {
        self.meter = None;
        self.fail();
    }

    /// Sets a setting that the session is opened with: RESET goes back to it.
    ///
    /// # Errors
    /// No such setting (42704), a value that it cannot have (22023, 0A000).
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        self.settings.open_with(name, value)
    }

    /// A number that is another one after a setting has changed.
    #[must_use]
    pub fn settings_version(&self) -> u64 {
        self.settings.version
    }

    /// Runs one statement, blocking the calling thread while it waits.
    ///
    /// # Errors
    /// Whatever PostgreSQL refuses, with its SQLSTATE; a text of several statements.
    pub fn execute(&mut self, text: &str, parameters: &[Datum]) -> Result<Answer> {
        block_on(self.execute_async(text, parameters))
    }

    /// The same without blocking.
    ///
    /// # Errors
    /// As [`Session::execute`].
    pub async fn execute_async(&mut self, text: &str, parameters: &[Datum]) -> Result<Answer> {
        let mut statements = self.parse(text)?;
        let Some(mut statement) = statements.pop() else { return Ok(Answer::default()) };
        if !statements.is_empty() {
            return Err(self.failed(several()));
        }
        self.describe(&mut statement, &vec![Type::Unknown; parameters.len()])?;
        check_parameters(&statement.parameters, parameters).map_err(|error| self.failed(error))?;
        self.answer(&mut statement, parameters).await
    }

    async fn answer(&mut self, statement: &mut Prepared, parameters: &[Datum]) -> Result<Answer> {
        let mut rows: Vec<Vec<Datum>> = Vec::new();
        let mut answer = self.execute_inner(statement, parameters.to_vec(), &mut rows, false).await?;
        answer.rows = rows;
        answer.columns = statement.columns().to_vec();
        answer.zone = self.settings.zone.clone();
        Ok(answer)
    }

    /// Runs all statements of a text, one after the other, each with a transaction of its own if none is open. Ends with the
    /// first error. Each statement is read when its turn comes, so that a script may be as long as it likes.
    ///
    /// # Errors
    /// As [`Session::execute`]; what the statements before have done stays.
    pub fn run(&mut self, text: &str, mut see: impl FnMut(Answer)) -> Result<()> {
        for (begin, one) in crate::parser::statements(text) {
            self.run_one(one, &mut see).map_err(|mut error| {
                if let Some(position) = &mut error.position {
                    *position += text[..begin].chars().count();
                }
                error
            })?;
        }
        Ok(())
    }

    /// Runs the statement of a text, if it has one.
    fn run_one(&mut self, text: &str, see: &mut impl FnMut(Answer)) -> Result<()> {
        for mut statement in self.parse(text)? {
            self.describe(&mut statement, &[])?;
            see(block_on(self.answer(&mut statement, &[]))?);
        }
        Ok(())
    }

    /// The statements of a text, to be described and then run.
    ///
    /// # Errors
    /// Syntax errors.
    pub fn parse(&mut self, text: &str) -> Result<Vec<Prepared>> {
        let memory = self.spare.take(&self.db);
        let mut kept = memory.kept();
        let parsed = parse_within(text, &mut |tokens| kept.add(tokens * TOKEN_BYTES));
        let parsed = parsed.map_err(|error| self.failed(error))?;
        kept.leave();
        let held = self.spare.leave(memory).map(std::sync::Arc::new);
        let text: std::sync::Arc<str> = text.into();
        let prepared = parsed
            .into_iter()
            .map(|statement| Prepared { _held: held.clone(), ..Prepared::unbound(statement, text.clone()) });
        Ok(prepared.collect())
    }

    /// Parses and binds a statement. `types`: of parameters, as far as they are known.
    ///
    /// # Errors
    /// As [`Session::execute`].
    pub fn prepare(&mut self, text: &str, types: &[Type]) -> Result<Prepared> {
        let mut statements = self.parse(text)?;
        let (Some(mut statement), true) = (statements.pop(), statements.is_empty()) else {
            return Err(self.failed(several()));
        };
        self.describe(&mut statement, types)?;
        Ok(statement)
    }

    /// Binds a statement: names, types and functions are settled, its parameters and columns known. `types`: of parameters,
    /// as far as they are known.
    ///
    /// # Errors
    /// As [`Session::execute`].
    pub fn describe(&mut self, statement: &mut Prepared, types: &[Type]) -> Result<()> {
        if self.is_failed() && !statement.is_end() {
            return Err(aborted());
        }
        self.refresh_objects().map_err(|error| self.failed(error))?;
        let described = self.describe_inner(statement, types);
        described.map_err(|error| self.failed(error.locate(&statement.text)))
    }

    /// Runs a prepared statement. It is bound anew if a definition has changed since.
    ///
    /// # Errors
    /// As [`Session::execute`].
    pub fn execute_prepared(&mut self, prepared: &mut Prepared, parameters: &[Datum]) -> Result<Answer> {
        block_on(self.answer(prepared, parameters))
    }

    /// Runs a prepared statement and hands its rows over one by one; the answer has none.
    ///
    /// # Errors
    /// As [`Session::execute`]; rows that were handed over before mean nothing then, but those that have left through
    /// [`Rows::outlet`] cannot be taken back.
    pub async fn execute_to(
        &mut self,
        prepared: &mut Prepared,
        parameters: Vec<Datum>,
        rows: &mut dyn Rows,
    ) -> Result<Answer> {
        self.execute_inner(prepared, parameters, rows, true).await
    }

    /// Is a transaction open, and has it failed? As the protocol tells it: `I`, `T` or `E`.
    #[must_use]
    pub fn status(&self) -> char {
        match &self.open {
            None => 'I',
            Some(open) if open.failed => 'E',
            Some(_) => 'T',
        }
    }

    fn failed(&mut self, error: Error) -> Error {
        self.fail();
        names::shown_error(error, &self.path)
    }

    /// The time that `now()` tells: when the open transaction began, or now; microseconds since 1970.
    #[must_use]
    pub fn now_us(&self) -> i64 {
        self.open.as_ref().map_or_else(|| self.clock.wall_us(), |open| open.now)
    }

    /// The time and the zone in which texts of times are read now.
    #[must_use]
    pub fn local(&self) -> Local {
        Local { now_us: self.now_us(), zone: self.settings.zone.clone() }
    }

    /// The value of a setting, as SHOW tells it.
    ///
    /// # Errors
    /// No such setting (42704).
    pub fn setting(&self, name: &str) -> Result<String> {
        let (isolation, read_only) = match &self.open {
            Some(open) => (open.isolation, open.read_only),
            None => (self.settings.isolation, self.settings.read_only),
        };
        self.settings.show(name, isolation, read_only)
    }

    /// The longest time that a statement may take.
    #[must_use]
    pub fn statement_timeout(&self) -> Option<std::time::Duration> {
        self.settings.statement_timeout
    }

    /// The time for which its client may send nothing now, and the error that ends it then. A client that is amid a request is not idle.
    #[must_use]
    pub fn idle_limit(&self) -> Option<(std::time::Duration, Error)> {
        match &self.open {
            None => self.settings.idle_session_timeout.map(|limit| {
                (limit, Error::new("57P05", "terminating connection due to idle-session timeout"))
            }),
            Some(open) if open.implicit => None,
            Some(_) => self.settings.idle_in_transaction_timeout.map(|limit| {
                (limit, Error::new("25P03", "terminating connection due to idle-in-transaction timeout"))
            }),
        }
    }
}

fn several() -> Error {
    Error::new("42601", "cannot insert multiple commands into a prepared statement")
}
