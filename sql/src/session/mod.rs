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

mod define;
mod settings;

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_engine::{Database, Isolation, Savepoint, Transaction, TransactionOptions, block_on};

use crate::bind::Binder;
use crate::catalog::{Catalog, Column as TableColumn, HIDDEN_KEY, Index, Table, sql_type};
use crate::error::{Error, Result, aborted};
use crate::expr::Context;
use crate::parser::ast::{Modes, Statement};
use crate::parser::{Parsed, parse};
use crate::plan::{Bound, Column};
use crate::run::change::{Outcome, STALE};
use crate::run::source::EngineSource;
use crate::run::{Executor, Row};
use crate::types::{Datum, Type, text};
use settings::Settings;

/// How often a statement runs again that others were in the way of.
const TRIES: u32 = 100;

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
    pub notices: Vec<String>,
}

impl Answer {
    fn tagged(tag: &str) -> Self {
        Self { tag: tag.to_owned(), ..Self::default() }
    }

    /// A value as PostgreSQL writes it; none is null (or no such row and column).
    #[must_use]
    pub fn text(&self, row: usize, column: usize) -> Option<String> {
        let value = self.rows.get(row)?.get(column)?;
        if value.is_null() {
            return None;
        }
        let column = &self.columns[column];
        let shown = text::show(value, column.ty);
        // A char has the length of its column.
        if column.ty == Type::BpChar && column.modifier >= 4 {
            let length = (column.modifier - 4) as usize;
            return Some(format!("{shown:<length$}"));
        }
        Some(shown)
    }
}

/// An open transaction of a session.
struct Open {
    transaction: Transaction,
    savepoints: Vec<(String, Savepoint)>,
    failed: bool,
    isolation: Isolation,
    /// When it began, in microseconds since 1970.
    now: i64,
    /// No statement has run in it yet.
    fresh: bool,
}

/// A connection to a database: runs statements one after the other.
pub struct Session {
    db: Database,
    open: Option<Open>,
    settings: Settings,
    clock: std::sync::Arc<dyn Clock>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("in_transaction", &self.open.is_some()).finish_non_exhaustive()
    }
}

/// A statement that was parsed and bound, to be run any number of times.
#[derive(Debug)]
pub struct Prepared {
    statement: Parsed,
    bound: Option<Bound>,
    parameters: Vec<Type>,
    /// The definitions that it was bound with.
    schemas: Vec<thermocline_engine::TableSchema>,
}

impl Prepared {
    /// Types of `$1`, `$2`, ….
    #[must_use]
    pub fn parameters(&self) -> &[Type] {
        &self.parameters
    }

    /// Columns of the rows that it returns.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        match &self.bound {
            Some(Bound::Query(query)) => &query.columns,
            Some(Bound::Insert(it)) => it.returning.as_ref().map_or(&[], |returning| &returning.columns),
            Some(Bound::Update(it)) => it.returning.as_ref().map_or(&[], |returning| &returning.columns),
            Some(Bound::Delete(it)) => it.returning.as_ref().map_or(&[], |returning| &returning.columns),
            None => &[],
        }
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
        Self { db: db.clone(), open: None, settings: Settings::default(), clock }
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
        let mut parsed = match parse(text) {
            Ok(parsed) => parsed,
            Err(error) => return Err(self.failed(error)),
        };
        let statement = match (parsed.pop(), parsed.is_empty()) {
            (None, _) => return Ok(Answer::default()),
            (Some(statement), true) => statement,
            (Some(_), false) => {
                let error = Error::new("42601", "cannot insert multiple commands into a prepared statement");
                return Err(self.failed(error));
            }
        };
        self.statement(&statement, None, parameters).await.map_err(|error| error.locate(text))
    }

    /// Runs all statements of a text, one after the other, each with a transaction of its own if none is open. Ends with the
    /// first error.
    ///
    /// # Errors
    /// As [`Session::execute`]; what the statements before have done stays.
    pub fn run(&mut self, text: &str, mut see: impl FnMut(Answer)) -> Result<()> {
        let parsed = match parse(text) {
            Ok(parsed) => parsed,
            Err(error) => return Err(self.failed(error)),
        };
        for statement in &parsed {
            see(block_on(self.statement(statement, None, &[])).map_err(|error| error.locate(text))?);
        }
        Ok(())
    }

    /// Parses and binds a statement. `types`: of parameters, as far as they are known.
    ///
    /// # Errors
    /// As [`Session::execute`].
    pub fn prepare(&mut self, text: &str, types: &[Type]) -> Result<Prepared> {
        let mut parsed = parse(text).map_err(|error| self.failed(error))?;
        let (Some(statement), true) = (parsed.pop(), parsed.is_empty()) else {
            return Err(Error::new("42601", "cannot insert multiple commands into a prepared statement"));
        };
        let mut known = types.to_vec();
        known.resize((statement.parameters as usize).max(types.len()), Type::Unknown);
        let (bound, parameters) =
            self.bind(&statement.statement, known).map_err(|error| self.failed(error.locate(text)))?;
        let schemas = self.schemas(bound.as_ref());
        Ok(Prepared { statement, bound, parameters, schemas })
    }

    /// Runs a prepared statement. It is bound anew if a definition has changed since.
    ///
    /// # Errors
    /// As [`Session::execute`].
    pub fn execute_prepared(&mut self, prepared: &mut Prepared, parameters: &[Datum]) -> Result<Answer> {
        block_on(async {
            let same = |schema: &thermocline_engine::TableSchema| {
                self.db.table(schema.name()).is_ok_and(|table| table.schema() == *schema)
            };
            if !prepared.schemas.iter().all(same) {
                let (bound, _) = self.bind(&prepared.statement.statement, prepared.parameters.clone())?;
                prepared.schemas = self.schemas(bound.as_ref());
                prepared.bound = bound;
            }
            self.statement(&prepared.statement, prepared.bound.as_ref(), parameters).await
        })
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
        if let Some(open) = &mut self.open {
            open.failed = true;
        }
        error
    }

    fn bind(&self, statement: &Statement, types: Vec<Type>) -> Result<(Option<Bound>, Vec<Type>)> {
        let catalog = EngineCatalog { db: &self.db };
        let now = self.open.as_ref().map_or_else(|| self.clock.wall_us(), |open| open.now);
        let mut binder = Binder::new(&catalog, types, now);
        let bound = binder.statement(statement)?;
        Ok((bound, binder.parameters))
    }

    /// Definitions that a bound statement depends on.
    fn schemas(&self, bound: Option<&Bound>) -> Vec<thermocline_engine::TableSchema> {
        let mut names = Vec::new();
        match bound {
            Some(Bound::Query(query)) => tables_of(&query.plan, &mut names),
            Some(Bound::Insert(it)) => {
                names.push(it.table.name.clone());
                tables_of(&it.plan, &mut names);
            }
            Some(Bound::Update(it)) => {
                names.push(it.table.name.clone());
                tables_of(&it.plan, &mut names);
            }
            Some(Bound::Delete(it)) => {
                names.push(it.table.name.clone());
                tables_of(&it.plan, &mut names);
            }
            None => {}
        }
        names.sort();
        names.dedup();
        names.iter().filter_map(|name| self.db.table(name).ok()).map(|table| table.schema()).collect()
    }

    async fn statement(
        &mut self,
        parsed: &Parsed,
        bound: Option<&Bound>,
        parameters: &[Datum],
    ) -> Result<Answer> {
        if self.open.as_ref().is_some_and(|open| open.failed)
            && !matches!(parsed.statement, Statement::Commit | Statement::Rollback | Statement::RollbackTo(_))
        {
            return Err(aborted());
        }
        let answer = self.dispatch(parsed, bound, parameters).await;
        if let Some(open) = &mut self.open {
            open.fresh =
                open.fresh && matches!(parsed.statement, Statement::Begin(_) | Statement::SetTransaction(_));
        }
        answer.map_err(|error| self.failed(error))
    }

    async fn dispatch(
        &mut self,
        parsed: &Parsed,
        bound: Option<&Bound>,
        parameters: &[Datum],
    ) -> Result<Answer> {
        match &parsed.statement {
            Statement::Query(_) | Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => {
                self.rows_statement(parsed, bound, parameters).await
            }
            Statement::Begin(modes) => self.begin(modes),
            Statement::Commit => self.commit().await,
            Statement::Rollback => Ok(self.rollback()),
            Statement::Savepoint(name) => self.savepoint(name),
            Statement::Release(name) => self.release(name),
            Statement::RollbackTo(name) => self.rollback_to(name),
            Statement::SetTransaction(modes) => self.set_transaction(modes),
            Statement::Set { local: _, name, value } => self.settings.set(name, value.as_deref()),
            Statement::Show(name) => self.show(name),
            Statement::Reset(name) => Ok(self.settings.reset(name.as_deref())),
            Statement::Nothing(tag) => Ok(Answer::tagged(tag)),
            Statement::Refused(what) => Err(Error::unsupported(what)),
            Statement::AlterIndex => Err(Error::unsupported("ALTER INDEX")),
            definition => {
                if self.open.is_some() {
                    let error = Error::new("25001", "definitions cannot run inside a transaction block yet");
                    return Err(
                        error.hint("End the transaction first; each definition is a transaction of its own.")
                    );
                }
                self.define(definition)
            }
        }
    }

    // Statements on rows.

    async fn rows_statement(
        &mut self,
        parsed: &Parsed,
        bound: Option<&Bound>,
        parameters: &[Datum],
    ) -> Result<Answer> {
        let fresh;
        let bound = match bound {
            Some(bound) => bound,
            None => {
                let types = parameters.iter().map(|_| Type::Unknown).collect();
                let (bound, types) = self.bind(&parsed.statement, types)?;
                check_parameters(&types, parameters)?;
                fresh = bound.expect("it is a statement on rows");
                &fresh
            }
        };
        if parameters.len() < parsed.parameters as usize {
            let (given, needed) = (parameters.len(), parsed.parameters);
            let message =
                format!("bind message supplies {given} parameters, but prepared statement requires {needed}");
            return Err(Error::new("08P01", message));
        }
        let statement = self.clock.wall_us();
        let now = self.open.as_ref().map_or(statement, |open| open.now);
        let context = Context { parameters: parameters.to_vec(), now, statement };
        let outcome = match &mut self.open {
            Some(open) => run_open(&self.db, open, bound, &context).await?,
            None => run_alone(&self.db, bound, &context).await?,
        };
        Ok(answer_of(bound, outcome))
    }

    // Transactions.

    fn options(modes: &Modes, default: Isolation) -> (TransactionOptions, Isolation) {
        let isolation = match modes.isolation.as_deref() {
            Some("serializable") => Isolation::Serializable,
            Some("repeatable read") => Isolation::Snapshot,
            Some(_) => Isolation::ReadCommitted,
            None => default,
        };
        let options = TransactionOptions::new().isolation(isolation);
        let options = if modes.read_only == Some(true) { options.read_only() } else { options };
        (options, isolation)
    }

    fn begin(&mut self, modes: &Modes) -> Result<Answer> {
        let mut answer = Answer::tagged("BEGIN");
        if self.open.is_some() {
            answer.notices.push("there is already a transaction in progress".to_owned());
            return Ok(answer);
        }
        let (options, isolation) = Self::options(modes, self.settings.isolation);
        let transaction = self.db.begin(options)?;
        let now = self.clock.wall_us();
        self.open =
            Some(Open { transaction, savepoints: Vec::new(), failed: false, isolation, now, fresh: true });
        Ok(answer)
    }

    fn set_transaction(&mut self, modes: &Modes) -> Result<Answer> {
        let mut answer = Answer::tagged("SET");
        let Some(open) = &mut self.open else {
            answer.notices.push("SET TRANSACTION can only be used in transaction blocks".to_owned());
            return Ok(answer);
        };
        if !open.fresh {
            return Err(Error::new(
                "25001",
                "SET TRANSACTION ISOLATION LEVEL must be called before any query",
            ));
        }
        let (options, isolation) = Self::options(modes, open.isolation);
        open.transaction = self.db.begin(options)?;
        open.isolation = isolation;
        Ok(answer)
    }

    async fn commit(&mut self) -> Result<Answer> {
        match self.open.take() {
            Some(open) if open.failed => Ok(Answer::tagged("ROLLBACK")),
            Some(open) => {
                open.transaction.commit().await?;
                Ok(Answer::tagged("COMMIT"))
            }
            None => {
                let mut answer = Answer::tagged("COMMIT");
                answer.notices.push("there is no transaction in progress".to_owned());
                Ok(answer)
            }
        }
    }

    fn rollback(&mut self) -> Answer {
        let mut answer = Answer::tagged("ROLLBACK");
        match self.open.take() {
            Some(open) => open.transaction.rollback(),
            None => answer.notices.push("there is no transaction in progress".to_owned()),
        }
        answer
    }

    fn open_for(&mut self, statement: &str) -> Result<&mut Open> {
        self.open
            .as_mut()
            .ok_or_else(|| Error::new("25P01", format!("{statement} can only be used in transaction blocks")))
    }

    fn savepoint(&mut self, name: &str) -> Result<Answer> {
        let open = self.open_for("SAVEPOINT")?;
        let savepoint = open.transaction.savepoint()?;
        open.savepoints.push((name.to_owned(), savepoint));
        Ok(Answer::tagged("SAVEPOINT"))
    }

    fn release(&mut self, name: &str) -> Result<Answer> {
        let open = self.open_for("RELEASE SAVEPOINT")?;
        let place =
            open.savepoints.iter().rposition(|(known, _)| known == name).ok_or_else(|| no_savepoint(name))?;
        open.savepoints.truncate(place);
        Ok(Answer::tagged("RELEASE"))
    }

    fn rollback_to(&mut self, name: &str) -> Result<Answer> {
        let open = self.open_for("ROLLBACK TO SAVEPOINT")?;
        let place =
            open.savepoints.iter().rposition(|(known, _)| known == name).ok_or_else(|| no_savepoint(name))?;
        open.transaction.rollback_to(&open.savepoints[place].1)?;
        open.savepoints.truncate(place + 1);
        open.failed = false;
        Ok(Answer::tagged("ROLLBACK"))
    }

    fn show(&self, name: &str) -> Result<Answer> {
        let isolation = self.open.as_ref().map_or(self.settings.isolation, |open| open.isolation);
        let value = self.settings.show(name, isolation)?;
        Ok(Answer {
            tag: "SHOW".to_owned(),
            columns: vec![Column { name: name.to_owned(), ty: Type::Text, modifier: -1 }],
            rows: vec![vec![Datum::text(value)]],
            count: 1,
            notices: Vec::new(),
        })
    }
}

fn no_savepoint(name: &str) -> Error {
    Error::new("3B001", format!("savepoint \"{name}\" does not exist"))
}

/// Are the values of the forms that the types have?
fn check_parameters(types: &[Type], values: &[Datum]) -> Result<()> {
    for (place, (ty, value)) in types.iter().zip(values).enumerate() {
        let fits = match value {
            Datum::Null => true,
            Datum::Bool(_) => *ty == Type::Bool,
            Datum::Int(value) => ty.is_integer() && text::fits(*value, *ty),
            Datum::Float(_) => matches!(ty, Type::Float4 | Type::Float8),
            Datum::Numeric(_) => *ty == Type::Numeric,
            Datum::Text(_) => ty.is_string(),
            Datum::Bytes(_) => *ty == Type::Bytea,
            Datum::Date(_) => *ty == Type::Date,
            Datum::Time(_) => *ty == Type::Time,
            Datum::Timestamp(_) => matches!(ty, Type::Timestamp | Type::TimestampTz),
            Datum::Interval(_) => *ty == Type::Interval,
            Datum::Uuid(_) => *ty == Type::Uuid,
            Datum::Record(_) => false,
        };
        if !fits {
            let message = format!("the value of parameter ${} is no {}", place + 1, ty.sql_name());
            return Err(Error::new("42804", message).hint("Datum::read makes values of a type from text."));
        }
    }
    Ok(())
}

fn answer_of(bound: &Bound, outcome: Outcome) -> Answer {
    let returning = |returning: &Option<crate::plan::Returning>| {
        returning.as_ref().map_or(Vec::new(), |returning| returning.columns.clone())
    };
    let (tag, columns) = match bound {
        Bound::Query(query) => (format!("SELECT {}", outcome.count), query.columns.clone()),
        Bound::Insert(it) => (format!("INSERT 0 {}", outcome.count), returning(&it.returning)),
        Bound::Update(it) => (format!("UPDATE {}", outcome.count), returning(&it.returning)),
        Bound::Delete(it) => (format!("DELETE {}", outcome.count), returning(&it.returning)),
    };
    Answer { tag, columns, rows: outcome.rows, count: outcome.count, notices: Vec::new() }
}

async fn run_bound(
    db: &Database,
    transaction: &mut Transaction,
    bound: &Bound,
    context: &Context,
) -> Result<Outcome> {
    let mut source = EngineSource::new(db, transaction);
    let mut executor = Executor { source: &mut source, context };
    match bound {
        Bound::Query(query) => {
            let rows: Vec<Row> = executor.rows(&query.plan, &[]).await?;
            Ok(Outcome { count: rows.len() as u64, rows })
        }
        Bound::Insert(insert) => executor.insert(insert).await,
        Bound::Update(update) => executor.update(update).await,
        Bound::Delete(delete) => executor.delete(delete).await,
    }
}

/// A statement in a transaction of its own.
async fn run_alone(db: &Database, bound: &Bound, context: &Context) -> Result<Outcome> {
    let options = TransactionOptions::new().isolation(Isolation::Snapshot);
    let options = if matches!(bound, Bound::Query(_)) { options.read_only() } else { options };
    let mut tries = 0;
    loop {
        let mut transaction = db.begin(options)?;
        let ran = run_bound(db, &mut transaction, bound, context).await;
        let done = match ran {
            Ok(outcome) => transaction.commit().await.map(|()| outcome).map_err(Error::from),
            Err(error) => Err(error),
        };
        tries += 1;
        match done {
            Err(error) if ["40001", "40P01"].contains(&error.code) && tries < TRIES => {}
            done => return done,
        }
    }
}

/// A statement in an open transaction. At read committed it is undone and runs again when rows have changed under it.
async fn run_open(db: &Database, open: &mut Open, bound: &Bound, context: &Context) -> Result<Outcome> {
    if matches!(bound, Bound::Query(_)) {
        return run_bound(db, &mut open.transaction, bound, context).await;
    }
    let start = open.transaction.savepoint()?;
    let mut tries = 0;
    loop {
        let ran = run_bound(db, &mut open.transaction, bound, context).await;
        tries += 1;
        match ran {
            Err(error)
                if error.message == STALE && open.isolation == Isolation::ReadCommitted && tries < TRIES =>
            {
                open.transaction.rollback_to(&start)?;
            }
            ran => return ran,
        }
    }
}

/// Names of the tables that a plan reads.
fn tables_of(plan: &crate::plan::Plan, names: &mut Vec<String>) {
    use crate::plan::Plan;
    match plan {
        Plan::Unit | Plan::Values(_) | Plan::Series { .. } => {}
        Plan::Scan { table, .. } => names.push(table.name.clone()),
        Plan::Filter(input, _)
        | Plan::Project(input, _)
        | Plan::Sort(input, _)
        | Plan::Distinct(input, _)
        | Plan::Cut(input, _)
        | Plan::Aggregate { input, .. }
        | Plan::Limit { input, .. } => tables_of(input, names),
        Plan::Apply(input, subs) => {
            tables_of(input, names);
            subs.iter().for_each(|sub| tables_of(&sub.plan, names));
        }
        Plan::Join(join) => {
            tables_of(&join.left, names);
            tables_of(&join.right, names);
        }
        Plan::SetOp { left, right, .. } => {
            tables_of(left, names);
            tables_of(right, names);
        }
    }
}

/// The engine's definitions.
struct EngineCatalog<'d> {
    db: &'d Database,
}

impl Catalog for EngineCatalog<'_> {
    fn table(&self, name: &str) -> Option<std::sync::Arc<Table>> {
        let schema = self.db.table(name).ok()?.schema();
        let columns: Vec<TableColumn> = schema
            .column_list()
            .iter()
            .map(|column| {
                let (ty, modifier) = sql_type(column.ty);
                TableColumn {
                    name: column.name.clone(),
                    ty,
                    modifier,
                    nullable: column.nullable,
                    stored: column.ty,
                    default: column.default.clone(),
                    numbered: column.auto_increment,
                    hidden: column.name == HIDDEN_KEY,
                }
            })
            .collect();
        let index = |index: &thermocline_engine::IndexSchema, unique: bool| Index {
            name: index.name().to_owned(),
            ordered: index.kind() == thermocline_engine::IndexKind::Ordered,
            unique,
            columns: index
                .columns()
                .map(|(column, descending)| {
                    (schema.column_index(column).expect("an index is on columns of its table"), descending)
                })
                .collect(),
        };
        let mut indexes: Vec<Index> = schema.primary().iter().map(|it| index(it, true)).collect();
        indexes.extend(schema.secondary().iter().map(|it| index(it, it.is_unique())));
        Some(std::sync::Arc::new(Table {
            name: name.to_owned(),
            columns,
            primary: schema.primary().map(|_| 0),
            indexes,
            rows: 1000,
        }))
    }

    fn names(&self) -> Vec<String> {
        self.db.table_names()
    }
}
