//! Prepared statements: a statement, what it was bound to, and the definitions that this stands on; SQL's PREPARE, EXECUTE and
//! DEALLOCATE. Clients' own prepared statements are theirs (the protocol's), under names of their own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::attempt::REBINDS;
use super::{Answer, Session};
use crate::bind::Binder;
use crate::catalog::Identity;
use crate::error::{Error, Result};
use crate::exec::Rows;
use crate::expr::{Context, Env};
use crate::parser::Parsed;
use crate::parser::ast::{Copy, Expr, Statement, TypeName};
use crate::plan::Bound;
use crate::settings;
use crate::types::{Column, Datum, Type, text};

/// A statement that was parsed and bound, to be run any number of times.
#[derive(Debug)]
pub struct Prepared {
    pub(super) statement: Parsed,
    /// The text that it stands in, for the positions of errors.
    pub(super) text: std::sync::Arc<str>,
    pub(super) bound: Option<Bound>,
    pub(super) parameters: Vec<Type>,
    /// It looks at definitions: it is bound anew each time.
    pub(super) volatile: bool,
    /// Its expressions ask the session.
    pub(super) asks: bool,
    /// Columns that rows of a COPY FROM have.
    pub(super) copied_columns: usize,
    /// The columns of statements such as SHOW, which are not bound.
    pub(super) shown: Vec<Column>,
    /// The tables that it was bound with, by the names by which it has found them.
    pub(super) definitions: Vec<(String, Identity)>,
    /// The state of the hidden tables that it was bound with.
    pub(super) objects: u64,
    /// The number of the search path that it was bound with.
    pub(super) path: u64,
    /// Tables that it would mean, were they there: full names.
    pub(super) absent: Vec<String>,
    /// The memory that a long text takes.
    pub(super) _held: Option<std::sync::Arc<crate::expr::memory::Held>>,
}

impl Prepared {
    /// A statement before it is described.
    pub(super) fn unbound(statement: Parsed, text: std::sync::Arc<str>) -> Self {
        Self {
            statement,
            text,
            bound: None,
            parameters: Vec::new(),
            copied_columns: 0,
            volatile: false,
            asks: false,
            shown: Vec::new(),
            definitions: Vec::new(),
            objects: 0,
            path: 0,
            absent: Vec::new(),
            _held: None,
        }
    }

    /// Types of `$1`, `$2`, ….
    #[must_use]
    pub fn parameters(&self) -> &[Type] {
        &self.parameters
    }

    /// Columns of the rows that it returns.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        match &self.bound {
            Some(_) if matches!(self.statement.statement, Statement::Declare { .. }) => &[],
            Some(bound) => bound.columns(),
            None => &self.shown,
        }
    }

    /// Does it return rows, if only rows without columns?
    #[must_use]
    pub fn returns_rows(&self) -> bool {
        match &self.bound {
            Some(Bound::Query(_)) => matches!(self.statement.statement, Statement::Query(_)),
            Some(Bound::Insert(it)) => it.returning.is_some(),
            Some(Bound::Update(it)) => it.returning.is_some(),
            Some(Bound::Delete(it)) => it.returning.is_some(),
            None => !self.shown.is_empty(),
        }
    }

    /// True if it reads and does nothing else: a transaction round it changes nothing of it.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        matches!(&self.bound, Some(Bound::Query(query)) if !query.locks)
    }

    /// Are its columns those of another statement or a cursor, which it names?
    #[must_use]
    pub fn names_another(&self) -> bool {
        matches!(self.statement.statement, Statement::Fetch { .. } | Statement::Execute { .. })
    }

    /// Is a prepared statement to be forgotten, by its name, or all?
    #[must_use]
    pub fn deallocates(&self) -> Option<Option<&str>> {
        match &self.statement.statement {
            Statement::Deallocate(name) => Some(name.as_deref()),
            Statement::Discard => Some(None),
            _ => None,
        }
    }

    /// Does it begin or end a transaction, so that none has to be opened for it?
    #[must_use]
    pub fn is_boundary(&self) -> bool {
        use Statement::{Begin, Commit, Rollback};
        matches!(self.statement.statement, Begin(_) | Commit | Rollback)
    }

    /// Does it end a transaction, so that it runs in a failed one as well?
    #[must_use]
    pub fn is_end(&self) -> bool {
        matches!(self.statement.statement, Statement::Commit | Statement::Rollback | Statement::RollbackTo(_))
    }
}

/// The properties of a statement that its binding has shown.
pub(super) struct Noted {
    /// It looks at definitions.
    pub(super) rebinds: bool,
    /// It asks the session.
    pub(super) asks: bool,
    /// Tables that it would mean, were they there.
    pub(super) absent: Vec<String>,
}

/// The statements that PREPARE has kept, by their names.
#[derive(Default)]
pub(super) struct Prepares(HashMap<String, Slot>);

/// A statement, which is taken out while it runs.
type Slot = Rc<RefCell<Option<Prepared>>>;

/// A statement that runs. It goes back into its slot however that ends: a future that is dropped ends nothing but its run.
struct Running(Slot, Option<Prepared>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.replace(self.1.take());
    }
}

impl Prepares {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

fn missing(name: &str) -> Error {
    Error::new("26000", format!("prepared statement \"{name}\" does not exist"))
}

impl Session {
    pub(super) fn describe_inner(&mut self, statement: &mut Prepared, types: &[Type]) -> Result<()> {
        let mut known = types.to_vec();
        known.resize((statement.statement.parameters as usize).max(types.len()), Type::Unknown);
        let (bound, parameters, noted) = self.bind_first(&statement.statement.statement, &known)?;
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
                vec![text_column(&settings::written(name)?)]
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

    /// Binds a statement for the first time. It is refused only if tables and hidden tables were those of one moment: a condition may
    /// name a column that another session's definition has taken from its table since the hidden tables were read.
    fn bind_first(
        &mut self,
        statement: &Statement,
        types: &[Type],
    ) -> Result<(Option<Bound>, Vec<Type>, Noted)> {
        let mut bindings = 1;
        loop {
            let version = self.objects.version;
            let outcome = self.bind_noting(statement, types.to_vec());
            if outcome.is_ok() || bindings == REBINDS {
                return outcome;
            }
            self.refresh_objects()?;
            if self.objects.version == version {
                return outcome;
            }
            bindings += 1;
        }
    }

    /// Binds a statement of the database's own: names without a schema in it are those of `public`.
    pub(super) fn bind_own(&self, statement: &Statement) -> Result<Option<Bound>> {
        let catalog = self.catalog();
        Binder::new(&catalog, Vec::new(), self.local()).over_public().statement(statement)
    }

    /// Binds a statement: what it is bound to, types of its parameters, and what else was noted of it.
    pub(super) fn bind_noting(
        &self,
        statement: &Statement,
        types: Vec<Type>,
    ) -> Result<(Option<Bound>, Vec<Type>, Noted)> {
        let catalog = self.catalog();
        let mut binder = Binder::new(&catalog, types, self.local());
        binder.is_fetched = matches!(statement, Statement::Declare { .. });
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

    pub(super) fn prepare_named(
        &mut self,
        name: &str,
        types: &[TypeName],
        statement: &str,
    ) -> Result<Answer> {
        if self.prepares.0.contains_key(name) {
            return Err(Error::new("42P05", format!("prepared statement \"{name}\" already exists")));
        }
        let types =
            types.iter().map(|ty| Binder::type_of(ty).map(|(ty, _)| ty)).collect::<Result<Vec<Type>>>()?;
        let prepared = self.prepare(statement, &types)?;
        self.prepares.0.insert(name.to_owned(), Rc::new(RefCell::new(Some(prepared))));
        Ok(Answer::tagged("PREPARE"))
    }

    pub(super) fn named_columns(&self, name: &str) -> Result<Vec<Column>> {
        let slot = self.prepares.0.get(name).ok_or_else(|| missing(name))?;
        Ok(slot.borrow().as_ref().map_or(Vec::new(), |prepared| prepared.columns().to_vec()))
    }

    pub(super) async fn execute_named(
        &mut self,
        name: &str,
        args: &[Expr],
        rows: &mut dyn Rows,
    ) -> Result<Answer> {
        let slot = self.prepares.0.get(name).ok_or_else(|| missing(name))?.clone();
        let types = slot.borrow().as_ref().map_or(Vec::new(), |prepared| prepared.parameters().to_vec());
        if types.len() != args.len() {
            let message = format!("wrong number of parameters for prepared statement \"{name}\"");
            let detail = format!("Expected {} parameters but got {}.", types.len(), args.len());
            return Err(Error::new("42601", message).detail(detail));
        }
        let mut values = Vec::with_capacity(args.len());
        let context =
            Context { local: self.local(), sequences: Some(self.sequences.clone()), ..Context::default() };
        for (arg, ty) in args.iter().zip(types) {
            let catalog = self.catalog();
            let mut binder = Binder::new(&catalog, Vec::new(), self.local());
            let bound = binder.argument(arg, ty)?;
            values.push(bound.eval(&Env { row: &[], outer: &[], context: &context })?);
        }
        let taken = slot.take();
        let mut running = Running(slot, taken);
        let Some(prepared) = &mut running.1 else {
            return Err(Error::new("55000", "the prepared statement is running already"));
        };
        let ran = Box::pin(self.rows_statement(prepared, values, rows, true)).await;
        ran.map_err(Error::nowhere)
    }

    pub(super) fn deallocate(&mut self, name: Option<&str>) -> Result<Answer> {
        match name {
            Some(name) => {
                self.prepares.0.remove(name).ok_or_else(|| missing(name))?;
                Ok(Answer::tagged("DEALLOCATE"))
            }
            None => {
                self.prepares.clear();
                Ok(Answer::tagged("DEALLOCATE ALL"))
            }
        }
    }
}

fn text_column(name: &str) -> Column {
    Column { name: name.to_owned(), ty: Type::Text, modifier: -1 }
}

/// Are the values of the forms that the types have?
pub(super) fn check_parameters(types: &[Type], values: &[Datum]) -> Result<()> {
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
            Datum::Char(_) => *ty == Type::BpChar,
            Datum::Jsonb(_) => *ty == Type::Jsonb,
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
