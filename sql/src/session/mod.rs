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

mod activity;
mod attempt;
mod constraints;
mod copy;
mod cursors;
mod ddl;
mod explains;
mod prepared;
mod prepares;
mod settings;
mod transaction;

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_engine::{Database, Isolation, Savepoint, Tables, Transaction, block_on};

use crate::bind::Binder;
use crate::catalog::Identity;
use crate::error::{Error, Result, aborted};
use crate::exec::{Pending, Rows};
use crate::expr::Context;
use crate::expr::memory::{Held, Spare};
use crate::expr::pace::{GiveWay, Pace};
use crate::names::{self, quoted};
use crate::objects::sequences::SessionSequences;
use crate::parser::ast::{Copy, Statement};
use crate::parser::parse_within;
use crate::plan::Bound;
use crate::settings::{self as known_settings, Values};
use crate::shared::Common;
use crate::shared::facts::{Facts, TransactionLocks};
use crate::shared::interrupt::Interrupt;
use crate::types::{Column, Datum, Type, text};
use attempt::changed_result;
use settings::Settings;

pub use copy::{CopyFormat, CopyIn, Copying};
pub use prepared::Prepared;

/// What a statement came to.
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
    /// What PostgreSQL would have sent beside the answer.
    pub notices: Vec<Notice>,
    /// The memory that its rows take, charged to the memory limit for as long as this lives.
    pub held: Option<std::sync::Arc<Held>>,
}

/// What a client should know though nothing went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// `NOTICE` or `WARNING`.
    pub severity: &'static str,
    /// SQLSTATE.
    pub code: &'static str,
    /// What happened, in one line.
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
        self.columns[column].write_text(value, &mut shown);
        Some(shown)
    }
}

/// What a token becomes, about: itself, an expression as it was written, and as it was bound.
const TOKEN_BYTES: usize = 400;

/// An open transaction of a session.
struct Open {
    transaction: Transaction,
    /// Names, and how many looks of foreign keys were put off before each.
    savepoints: Vec<(String, Savepoint, usize)>,
    /// What SET CONSTRAINTS has said.
    constraints: constraints::ConstraintModes,
    /// What foreign keys ask for when it commits.
    deferred: Vec<Pending>,
    /// It has changed the system tables: what they say is `Session::objects`, and nobody else's.
    defines: bool,
    failed: bool,
    isolation: Isolation,
    /// When it began, in microseconds since 1970.
    now: i64,
    /// No statement has run in it yet.
    fresh: bool,
    /// No statement of it has needed a snapshot yet.
    unseeing: bool,
    /// It stands round the statements of one request, none of which said BEGIN.
    implicit: bool,
    read_only: bool,
    /// Settings before the first one that it has changed.
    settings: Option<Values>,
    /// Settings are those of the transaction only.
    local_settings: bool,
    /// Gives its advisory locks back when it ends.
    advisory: Option<TransactionLocks>,
}

/// What binding a statement has shown of it.
struct Noted {
    /// It looks at definitions.
    rebinds: bool,
    /// It asks the session.
    asks: bool,
    /// Tables that it would mean, were they there.
    absent: Vec<String>,
}

/// A connection to a database: runs statements one after the other.
pub struct Session {
    db: Database,
    /// Tables as the session finds them.
    tables: Tables,
    /// They are those of the open transaction, which has changed definitions.
    own_tables: bool,
    open: Option<Open>,
    settings: Settings,
    clock: std::sync::Arc<dyn Clock>,
    interrupt: Interrupt,
    cursors: cursors::Cursors,
    /// What SQL's PREPARE has kept.
    prepares: prepares::Prepares,
    /// What the system tables say, as the statement that runs knows it.
    objects: std::sync::Arc<crate::objects::Objects>,
    /// The schemas of the search path that are there.
    path: std::sync::Arc<[String]>,
    /// The states of settings and system tables that it was made of, and a number that changes with it.
    path_of: (u64, u64),
    path_number: u64,
    shared: Option<std::sync::Arc<crate::objects::Shared>>,
    sequences: SessionSequences,
    /// What expressions know of it.
    facts: std::sync::Arc<Facts>,
    /// What the list of clients was told last, and of which settings.
    resting: Option<crate::shared::activity::Doing>,
    noted_settings: Option<u64>,
    /// Counts what the statement does that runs, if it is explained.
    meter: Option<std::sync::Arc<crate::expr::meter::Meter>>,
    /// How statements let others have a turn.
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
            open: None,
            settings: Settings::default(),
            clock,
            interrupt: Interrupt::default(),
            cursors: cursors::Cursors::default(),
            prepares: prepares::Prepares::default(),
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

    /// What statements of the database's own run with.
    fn own_context(&self) -> Context {
        Context {
            interrupt: self.interrupt.clone(),
            now: self.now_us(),
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

    /// Sets a setting of the session, as SET does.
    ///
    /// # Errors
    /// No such setting (42704), a value that it cannot have (22023, 0A000).
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        self.settings.set(name, Some(&[value.to_owned()])).map(drop)
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

    fn describe_inner(&mut self, statement: &mut Prepared, types: &[Type]) -> Result<()> {
        let mut known = types.to_vec();
        known.resize((statement.statement.parameters as usize).max(types.len()), Type::Unknown);
        let bound = self.bind_noting(&statement.statement.statement, known);
        let (bound, parameters, noted) = bound?;
        statement.definitions = bound.as_ref().map_or(Vec::new(), Bound::tables);
        statement.parameters = parameters;
        statement.volatile = noted.rebinds;
        statement.asks = noted.asks;
        statement.absent = noted.absent;
        statement.objects = self.objects.version;
        statement.path = self.path_number;
        if let Statement::Show(name) = &statement.statement.statement {
            statement.shown = if name == "all" {
                ["name", "setting"].map(text_column).into()
            } else {
                vec![text_column(&known_settings::written(name)?)]
            };
        }
        if let Statement::Explain(_, options) = &statement.statement.statement {
            let ty = if options.json { Type::Json } else { Type::Text };
            statement.shown = vec![Column { ty, ..text_column("QUERY PLAN") }];
        }
        if let Statement::Execute { name, .. } = &statement.statement.statement {
            statement.shown = self.named_columns(name)?;
        }
        if let Statement::Fetch { name, moving: false, .. } = &statement.statement.statement {
            statement.shown = self.cursors.columns(name)?;
        }
        statement.bound = bound;
        if statement.copying().is_some() {
            self.describe_copy(statement)?;
        }
        Ok(())
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
    /// As [`Session::execute`]; rows that were handed over before mean nothing then.
    pub async fn execute_to(
        &mut self,
        prepared: &mut Prepared,
        parameters: Vec<Datum>,
        rows: &mut dyn Rows,
    ) -> Result<Answer> {
        self.execute_inner(prepared, parameters, rows, true).await
    }

    /// `fixed`: its columns must be those that it was described with.
    async fn execute_inner(
        &mut self,
        prepared: &mut Prepared,
        parameters: Vec<Datum>,
        rows: &mut dyn Rows,
        fixed: bool,
    ) -> Result<Answer> {
        self.note_begin(&prepared.text);
        if !prepared.is_end() {
            check_open(self)?;
            self.refresh_objects().map_err(|error| self.failed(error))?;
        }
        let statement = &prepared.statement.statement;
        if transaction::needs_snapshot(statement) {
            self.take_snapshot().map_err(|error| self.failed(error))?;
        }
        let boundary = matches!(statement, Statement::Begin(_) | Statement::SetTransaction(_));
        let mut answer = self.dispatch(prepared, parameters, rows, fixed).await;
        if answer.is_ok()
            && self.open.is_none()
            && let Err(error) = self.sequences.settle().await
        {
            answer = Err(error);
        }
        match &mut self.open {
            Some(open) => open.fresh = open.fresh && boundary,
            None => self.facts.transaction_ended(),
        }
        self.end_definitions();
        let answer = answer.map_err(|error| self.failed(error.locate(&prepared.text)));
        self.note_rest();
        let mut answer = answer?;
        for notice in &mut answer.notices {
            if let Some(shown) = names::shown(&notice.message, &self.path) {
                notice.message = shown;
            }
        }
        Ok(answer)
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

    /// The open transaction has failed. What it did since its last savepoint, or all, is undone at once: others wait for its locks,
    /// and its client may be long in saying ROLLBACK.
    pub(super) fn fail(&mut self) {
        let Some(open) = self.open.as_mut().filter(|open| !open.failed) else { return };
        open.failed = true;
        let undone = open.savepoints.last().map(|(_, savepoint, _)| open.transaction.rollback_to(savepoint));
        if !matches!(undone, Some(Ok(()))) {
            open.transaction.abort();
            open.advisory = None;
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

    /// Has the open transaction failed?
    fn is_failed(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.failed)
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

    /// Names and values of all settings.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        match &self.open {
            Some(open) => self.settings.all(open.isolation, open.read_only),
            None => self.settings.all(self.settings.isolation, self.settings.read_only),
        }
    }

    fn set_setting(&mut self, local: bool, name: &str, value: Option<&[String]>) -> Result<Answer> {
        let before = self.settings.values().clone();
        let mut answer = self.settings.set(name, value)?;
        match &mut self.open {
            Some(open) if !open.implicit => {
                open.settings.get_or_insert(before);
                if local {
                    open.local_settings = true;
                }
            }
            _ if local => {
                self.settings.restore(before);
                answer.warn("25P01", "SET LOCAL can only be used in transaction blocks");
            }
            _ => {}
        }
        Ok(answer)
    }

    /// How long a statement may take.
    #[must_use]
    pub fn statement_timeout(&self) -> Option<std::time::Duration> {
        self.settings.statement_timeout
    }

    /// Binds a statement of the database's own: names without a schema in it are those of `public`.
    fn bind_own(&self, statement: &Statement) -> Result<Option<Bound>> {
        let catalog = self.catalog();
        Binder::new(&catalog, Vec::new(), self.now_us()).over_public().statement(statement)
    }

    /// Binds a statement: what it is bound to, types of its parameters, and what else was noted of it.
    fn bind_noting(
        &self,
        statement: &Statement,
        types: Vec<Type>,
    ) -> Result<(Option<Bound>, Vec<Type>, Noted)> {
        let catalog = self.catalog();
        let mut binder = Binder::new(&catalog, types, self.now_us());
        // The query within.
        let within = match statement {
            Statement::Declare { query, .. } | Statement::Copy(Copy::Out(query, _)) => {
                Some(Statement::Query((**query).clone()))
            }
            // Its parameters are those of the statement that is explained.
            Statement::Explain(explained, _) => {
                binder.statement(explained)?;
                None
            }
            _ => None,
        };
        let bound = binder.statement(within.as_ref().unwrap_or(statement))?;
        let noted = Noted { rebinds: binder.rebinds, asks: binder.asks, absent: binder.absent };
        Ok((bound, binder.parameters, noted))
    }

    async fn dispatch(
        &mut self,
        prepared: &mut Prepared,
        parameters: Vec<Datum>,
        rows: &mut dyn Rows,
        fixed: bool,
    ) -> Result<Answer> {
        if let Statement::Declare { name, hold, .. } = &prepared.statement.statement {
            let (name, hold) = (name.clone(), *hold);
            self.may_declare(&name, hold)?;
            let mut kept: Vec<Vec<Datum>> = Vec::new();
            let answer = self.rows_statement(prepared, parameters, &mut kept, false).await?;
            let columns = prepared.bound.as_ref().map_or(Vec::new(), |bound| bound.columns().to_vec());
            return Ok(self.declare(&name, hold, columns, (kept, answer.held)));
        }
        if prepared.bound.is_some() {
            return self.rows_statement(prepared, parameters, rows, fixed).await;
        }
        match &prepared.statement.statement {
            Statement::Begin(modes) => self.begin(modes),
            Statement::Commit => self.commit().await,
            Statement::Rollback => Ok(self.rollback()),
            Statement::Savepoint(name) => self.savepoint(name),
            Statement::Release(name) => self.release(name),
            Statement::RollbackTo(name) => self.rollback_to(name).await,
            Statement::SetTransaction(modes) => self.set_transaction(modes),
            // Names are kept as they have to be written.
            Statement::Set { local, name, value: Some(value) } if name == "search_path" => {
                let value: Vec<String> = value.iter().map(|name| quoted(name)).collect();
                self.set_setting(*local, name, Some(&value))
            }
            Statement::Set { local, name, value } => self.set_setting(*local, name, value.as_deref()),
            Statement::Show(name) if name == "all" => {
                let all = self.settings();
                for (name, value) in &all {
                    rows.row(&[Datum::text(name), Datum::text(value)]);
                }
                Ok(Answer { count: all.len() as u64, ..Answer::tagged("SHOW") })
            }
            Statement::Show(name) => {
                rows.row(&[Datum::text(self.setting(name)?)]);
                Ok(Answer { count: 1, ..Answer::tagged("SHOW") })
            }
            Statement::Reset(name) => self.settings.reset(name.as_deref()),
            Statement::Nothing(tag) => Ok(Answer::tagged(tag)),
            Statement::Refused(what) => Err(Error::unsupported(what)),
            Statement::Fetch { name, direction, moving } => {
                if fixed && !moving && self.cursors.columns(name)? != prepared.shown {
                    return Err(changed_result());
                }
                let (name, direction, moving) = (name.clone(), *direction, *moving);
                self.fetch(&name, direction, moving, rows).await
            }
            Statement::Close(name) => self.close_cursor(name.as_deref()),
            Statement::Copy(_) => {
                Err(Error::new("0A000", "COPY FROM STDIN needs a client that sends the rows"))
            }
            Statement::Deallocate(name) => self.deallocate(name.as_deref()),
            Statement::Prepare { name, types, statement, before } => {
                let (name, types, statement) = (name.clone(), types.clone(), statement.clone());
                let before = *before;
                self.prepare_named(&name, &types, &statement).map_err(|mut error| {
                    error.position = error.position.map(|position| position + before);
                    error
                })
            }
            Statement::Execute { name, args } => {
                if fixed && self.named_columns(name)? != prepared.shown {
                    return Err(changed_result());
                }
                let (name, args) = (name.clone(), args.clone());
                self.execute_named(&name, &args, rows).await
            }
            Statement::Explain(statement, options) => {
                let (statement, options) = (statement.clone(), *options);
                let types = prepared.parameters.clone();
                let lines = self.explain(&statement, options, &types, parameters).await?;
                for line in &lines {
                    rows.row(&[Datum::text(line)]);
                }
                Ok(Answer { count: lines.len() as u64, ..Answer::tagged("EXPLAIN") })
            }
            Statement::SetConstraints { names, deferred } => {
                let (names, deferred) = (names.clone(), *deferred);
                self.set_constraints(&names, deferred).await
            }
            Statement::LockShared(names) => {
                for name in names {
                    let mut name = name.clone();
                    self.settle(&mut name);
                    self.known(&name)?;
                }
                if self.open.as_ref().is_none_or(|open| open.implicit) {
                    return Err(Error::new("25P01", "LOCK TABLE can only be used in transaction blocks"));
                }
                Ok(Answer::tagged("LOCK TABLE"))
            }
            Statement::Discard => {
                if self.open.as_ref().is_some_and(|open| !open.implicit) {
                    return Err(Error::new("25001", "DISCARD ALL cannot run inside a transaction block"));
                }
                self.settings.reset(None)?;
                self.cursors.clear();
                self.prepares.clear();
                self.sequences.discard();
                self.facts.unlock_all();
                Ok(Answer::tagged("DISCARD ALL"))
            }
            Statement::AlterIndex => Err(Error::unsupported("ALTER INDEX")),
            // A sequence's position is a row: it changes within a transaction.
            Statement::AlterSequence { name, if_exists, options, rename: None } => {
                let (mut name, if_exists, mut options) = (name.clone(), *if_exists, options.clone());
                self.settle(&mut name);
                self.settle_options(&mut options);
                self.alter_sequence(&name, if_exists, &options).await
            }
            definition => self.definition(definition).await,
        }
    }
}

/// Is the open transaction, if there is one, still good?
fn check_open(session: &Session) -> Result<()> {
    if session.is_failed() { Err(aborted()) } else { Ok(()) }
}

fn text_column(name: &str) -> Column {
    Column { name: name.to_owned(), ty: Type::Text, modifier: -1 }
}

fn several() -> Error {
    Error::new("42601", "cannot insert multiple commands into a prepared statement")
}

/// Are the values of the forms that the types have?
fn check_parameters(types: &[Type], values: &[Datum]) -> Result<()> {
    for (place, (ty, value)) in types.iter().zip(values).enumerate() {
        let fits = match value {
            Datum::Null => true,
            Datum::Bool(_) => *ty == Type::Bool,
            Datum::Int(value) => {
                (ty.is_integer() && text::fits(*value, *ty))
                    || ((*ty == Type::Oid || ty.is_registered()) && u32::try_from(*value).is_ok())
            }
            Datum::Float(_) => matches!(ty, Type::Float4 | Type::Float8),
            Datum::Numeric(_) => *ty == Type::Numeric,
            Datum::Text(_) => ty.is_string() || *ty == Type::Char || ty.is_json(),
            Datum::Bytes(_) => *ty == Type::Bytea,
            Datum::Date(_) => *ty == Type::Date,
            Datum::Time(_) => *ty == Type::Time,
            Datum::Timestamp(_) => matches!(ty, Type::Timestamp | Type::TimestampTz),
            Datum::Interval(_) => *ty == Type::Interval,
            Datum::Uuid(_) => *ty == Type::Uuid,
            Datum::Record(_) => false,
            Datum::Array(_) => ty.element().is_some(),
        };
        if !fits {
            let message = format!("the value of parameter ${} is no {}", place + 1, ty.sql_name());
            return Err(Error::new("42804", message).hint("Datum::read makes values of a type from text."));
        }
    }
    Ok(())
}
