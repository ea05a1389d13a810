//! Statements to bound trees: names, types and functions looked up, casts put in, sub-queries lifted out of expressions.
//!
//! | file | binds |
//! |---|---|
//! | `scope` | names to columns, of this query and of those around it |
//! | `expr` | expressions |
//! | `array` | arrays |
//! | `call` | functions, operators, aggregates |
//! | `coerce` | casts, common types |
//! | `query` | SELECT and what stands around it |
//! | `from` | tables and joins, and in which order they are joined |
//! | `change` | INSERT, UPDATE, DELETE, and the defaults and conditions of their columns |
//! | `sequence` | functions of sequences |
//! | `recursive` | WITH, and WITH RECURSIVE |
//! | `sets` | functions that make rows |
//! | `window` | window functions |
//! | `layers` | where answers of sub-queries, values of windows and rows of functions stand |
//! | `json` | JSON of values of any type |
//! | `meanings` | what the names of a kept text mean, for renaming |
//! | `names` | names of relations, by schema or search path |
//! | `registered` | OIDs that are shown by names: `regclass` and its like |
//! | `system` | system catalogs, and functions that know of definitions |

mod array;
mod call;
mod change;
mod coerce;
mod expr;
mod from;
mod json;
mod layers;
mod meanings;
mod names;
mod query;
mod recursive;
mod registered;
mod scope;
pub(crate) mod sequence;
mod sets;
mod system;
mod window;

#[cfg(test)]
pub(crate) use window::window_functions;

pub(crate) use meanings::{Meaning, Meanings};

use std::rc::Rc;
use std::sync::Arc;

use crate::catalog::{Catalog, Table};
use crate::depth;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::optimize::improve;
use crate::parser::ast::{ObjectName, Statement};
use crate::plan::{Bound, Plan};
use crate::types::{Datum, Local, Type};
use recursive::{KnownCte, Recursion, Within};
use scope::Frame;

/// Columns from here on are answers of sub-queries that have no place yet.
const SUB_BASE: usize = 1 << 40;

/// An expression with its type.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub(crate) expr: Expr,
    pub(crate) ty: Type,
    pub(crate) modifier: i32,
    pub(crate) at: u32,
    /// Types of the fields of a row value.
    pub(crate) fields: Vec<Type>,
}

impl Typed {
    fn new(expr: Expr, ty: Type, at: u32) -> Self {
        Self { expr, ty, modifier: crate::types::NO_MOD, at, fields: Vec::new() }
    }

    /// The field of a row value.
    fn field(expr: &Expr, ty: Type, at: u32) -> Self {
        let fields = if let Expr::Record(_, shape) = expr { shape.types.clone() } else { Vec::new() };
        Self { fields, ..Self::new(expr.clone(), ty, at) }
    }

    fn constant(value: Datum, ty: Type, at: u32) -> Self {
        Self::new(Expr::Const(value), ty, at)
    }
}

/// Where a statement names a parameter.
#[derive(Clone, Copy, Debug, Default)]
struct Mentions {
    all: usize,
    /// Those that say nothing of its type.
    mute: usize,
    /// It was taken for a text for want of a type.
    assumed: bool,
}

/// Binds statements over a catalog.
pub(crate) struct Binder<'c> {
    catalog: &'c dyn Catalog,
    frames: Vec<Frame>,
    ctes: Vec<Rc<KnownCte>>,
    /// Types of `$n`; unknown until something says.
    pub(crate) parameters: Vec<Type>,
    mentions: Vec<Mentions>,
    /// The transaction's time and the session's zone, for literals such as `'today'`.
    local: Local,
    /// A literal such as `'now'` has been read, which is kept as the time that it was.
    pub(crate) has_read_now: bool,
    /// How many scans number their rows.
    named: usize,
    /// Rows are locked.
    locks: bool,
    /// The rows are fetched a number at a time: the first ones are to be there soon.
    pub(crate) is_fetched: bool,
    /// It looks at definitions, and so is bound anew each time.
    pub(crate) rebinds: bool,
    /// Its expressions ask the session.
    pub(crate) asks: bool,
    /// Views that are being bound, the innermost last.
    views: Vec<String>,
    /// Functions in FROM that have one column: the names of their tables, which stand for the value.
    scalars: Vec<String>,
    /// Recursive queries that are being bound.
    recursive: Vec<Recursion>,
    /// Where in the query around it the present part stands, as far as recursive queries must not be named there.
    within: Vec<Within>,
    /// The next list of a SELECT keeps literals of no type as they are, and then says where its columns are written.
    keeps_unknown: bool,
    kept_at: Vec<u32>,
    /// The level of a query that has to be bound as one that groups, for an aggregate of it in a sub-query.
    regroup: Option<usize>,
    regroups: usize,
    /// The recursive queries of whose steps rows were named, one after the other.
    workings: Vec<usize>,
    /// Counts calls of functions that answer otherwise each time.
    volatile: usize,
    /// How many WITH queries were bound.
    shared: usize,
    /// Queries within each other, and relations so far.
    levels: usize,
    relations: usize,
    /// How many recursive queries there are.
    recursions: usize,
    /// Tables and views that a query names, for what depends on them.
    pub(crate) named_relations: Vec<String>,
    /// Names without a schema that mean a relation outside of `public`, and its full name.
    pub(crate) named_elsewhere: Vec<(String, String)>,
    /// Full names that a name would have meant rather, if they were there.
    pub(crate) absent: Vec<String>,
    /// While a kept text is bound: what its names mean.
    kept: Option<names::Kept>,
    /// Stars of the statement: where each stands, behind how many names, and the columns that it means.
    pub(crate) stars: Vec<(u32, usize, Vec<String>)>,
    /// Of a text that is going to be kept: its literals that mean another time in another zone, or later, where each stands, and what
    /// means the same for good.
    moments: Option<Vec<(u32, String)>>,
    /// Meanings of the names in a kept text, where they are asked for.
    meanings: Option<meanings::Meanings>,
}

impl<'c> Binder<'c> {
    pub(crate) fn new(catalog: &'c dyn Catalog, parameters: Vec<Type>, local: Local) -> Self {
        Self {
            catalog,
            frames: Vec::new(),
            ctes: Vec::new(),
            parameters,
            mentions: Vec::new(),
            has_read_now: false,
            local,
            named: 0,
            locks: false,
            is_fetched: false,
            rebinds: false,
            asks: false,
            views: Vec::new(),
            scalars: Vec::new(),
            recursive: Vec::new(),
            within: Vec::new(),
            keeps_unknown: false,
            kept_at: Vec::new(),
            regroup: None,
            regroups: 0,
            workings: Vec::new(),
            volatile: 0,
            shared: 0,
            levels: 0,
            relations: 0,
            recursions: 0,
            named_relations: Vec::new(),
            named_elsewhere: Vec::new(),
            absent: Vec::new(),
            kept: None,
            stars: Vec::new(),
            moments: None,
            meanings: None,
        }
    }

    /// Binds a statement that reads or changes rows; `None` for any other.
    pub(crate) fn statement(&mut self, statement: &Statement) -> Result<Option<Bound>> {
        let mut bound = match statement {
            Statement::Query(query) => Bound::Query(Box::new(self.top_query(query)?)),
            Statement::Insert(insert) => Bound::Insert(Box::new(self.insert(insert)?)),
            Statement::Update(update) => Bound::Update(Box::new(self.update(update)?)),
            Statement::Delete(delete) => Bound::Delete(Box::new(self.delete(delete)?)),
            _ => return Ok(None),
        };
        let plan = match &mut bound {
            Bound::Query(query) => &mut query.plan,
            Bound::Insert(insert) => &mut insert.plan,
            Bound::Update(update) => &mut update.plan,
            Bound::Delete(delete) => &mut delete.plan,
        };
        self.finish(plan)?;
        self.settle_parameters()?;
        Ok(Some(bound))
    }

    /// A parameter that something has taken without saying its type is a text. One that only stands where any type may, or nowhere,
    /// has none.
    fn settle_parameters(&mut self) -> Result<()> {
        let known = self.mentions.iter().zip(&mut self.parameters);
        for (place, (mentions, ty)) in known.enumerate() {
            if (*ty == Type::Unknown || mentions.assumed) && mentions.all == mentions.mute {
                let message = format!("could not determine data type of parameter ${}", place + 1);
                return Err(Error::new("42P18", message));
            }
        }
        for ty in &mut self.parameters {
            if *ty == Type::Unknown {
                *ty = Type::Text;
            }
        }
        Ok(())
    }

    /// Notes that a value stands where any type may (`"any"`).
    fn mute(&mut self, typed: &Typed) {
        if let Expr::Param(index) = typed.expr {
            let mentions = &mut self.mentions[index];
            mentions.mute += usize::from(self.parameters[index] == Type::Unknown || mentions.assumed);
        }
    }

    /// A value that stands where any type may, as a text if nothing has said its type yet.
    fn mute_text(&mut self, typed: Typed) -> Result<Typed> {
        self.mute(&typed);
        if let (Expr::Param(index), Type::Unknown) = (&typed.expr, typed.ty) {
            self.mentions[*index].assumed |= self.parameters[*index] == Type::Unknown;
        }
        self.implicit_text(typed)
    }

    /// Looks at a plan as a whole, if it is not too deep for that.
    fn finish(&mut self, plan: &mut Plan) -> Result<()> {
        depth::has_stack_under(plan.levels())?;
        recursive::unshared(plan);
        improve::improve(plan, self.is_fetched && !self.locks);
        Ok(())
    }

    /// Binds a query within another one.
    fn deeper<T>(&mut self, bind: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        depth::has_stack()?;
        if self.levels >= depth::LEVELS {
            return Err(depth::too_deep());
        }
        self.levels += 1;
        let bound = bind(self);
        self.levels -= 1;
        bound
    }

    fn table(&mut self, name: &ObjectName) -> Result<Arc<Table>> {
        let Some(full) = self.relation_named(name) else { return Err(self.unknown_table(name)) };
        if self.catalog.objects().view(&full).is_some() {
            return Err(Error::unsupported("changing a table through a view").at(name.at));
        }
        self.catalog.table(&full).ok_or_else(|| self.unknown_table(name))
    }
}
