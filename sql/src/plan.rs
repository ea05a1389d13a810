//! The bound tree: what a statement does, with all names, types and functions settled.
//!
//! Rows are vectors of values; expressions name their columns by place. A sub-query is a plan with *captures*: expressions of
//! the row outside, whose values it finds as `Outer`; so it can be run for a row, and its answer kept for equal captures.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use crate::catalog::{Identity, Table};
use crate::expr::{Comparison, Expr};
use crate::functions::aggregates::Aggregate;
use crate::parser::ast::{JoinKind, LockWait, SetOp, Strength};
use crate::types::{Column, Datum, Type};

/// Columns of a table that anything asks for.
pub(crate) type Used = Rc<RefCell<Vec<bool>>>;

#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// One row without columns.
    Unit,
    Values(Vec<Vec<Expr>>),
    /// Rows that are there already: those of a COPY.
    Made(Vec<Vec<Datum>>),
    Scan {
        table: Arc<Table>,
        used: Used,
        access: Access,
        filter: Vec<Expr>,
        /// The statement changes or locks the table's rows: behind its columns stands the number by which the row is found
        /// again. The scan's own number among such scans of the statement.
        named: Option<usize>,
    },
    Filter(Box<Plan>, Vec<Expr>),
    Project(Box<Plan>, Vec<Expr>),
    Join(Box<Join>),
    /// The row, and a value for each sub-query.
    Apply(Box<Plan>, Vec<Sub>),
    Aggregate {
        input: Box<Plan>,
        keys: Vec<Expr>,
        calls: Vec<AggregateCall>,
    },
    Sort(Box<Plan>, Vec<SortKey>),
    /// Keeps the first of equal rows; by these expressions, or by all columns.
    Distinct(Box<Plan>, Option<Vec<Expr>>),
    Limit {
        input: Box<Plan>,
        limit: Option<Expr>,
        offset: Option<Expr>,
    },
    SetOp {
        op: SetOp,
        all: bool,
        left: Box<Plan>,
        right: Box<Plan>,
    },
    /// A row for each value of a function.
    Set(SetExpr),
    /// A WITH query that is named several times.
    Shared(Rc<Shared>),
    /// The row, and behind it its number, from 1.
    Numbered(Box<Plan>),
    /// The first so many columns.
    Cut(Box<Plan>, usize),
    /// The row, and values behind it.
    Extend(Box<Plan>, Extension),
    /// `WITH RECURSIVE`: the rows of `base`, and what `step` makes of them, and of these, until it makes none.
    Recursive(Box<Recursive>),
    /// The rows that the last step of the recursive query with this number has made.
    Working(usize),
    /// Rows whose tables' rows are locked, one after the other, as they are then.
    Lock {
        input: Box<Plan>,
        targets: Vec<LockTarget>,
        /// Only the first rows are asked for, and the input stops when it is told to: it is read a few rows at a time.
        few: bool,
    },
}

impl Plan {
    /// The plans whose rows it reads, but not that of a shared one.
    pub(crate) fn inputs(&self) -> Vec<&Plan> {
        match self {
            Plan::Unit
            | Plan::Values(_)
            | Plan::Made(_)
            | Plan::Scan { .. }
            | Plan::Set(_)
            | Plan::Shared(_)
            | Plan::Working(_) => Vec::new(),
            Plan::Filter(input, _)
            | Plan::Project(input, _)
            | Plan::Sort(input, _)
            | Plan::Distinct(input, _)
            | Plan::Numbered(input)
            | Plan::Cut(input, _)
            | Plan::Extend(input, _)
            | Plan::Aggregate { input, .. }
            | Plan::Limit { input, .. }
            | Plan::Lock { input, .. } => vec![input],
            Plan::Apply(input, subs) => {
                let subs = subs.iter().map(|sub| &sub.plan);
                std::iter::once(&**input).chain(subs).collect()
            }
            Plan::SetOp { left, right, .. } => vec![left, right],
            Plan::Join(join) => join.inputs().collect(),
            Plan::Recursive(query) => vec![&query.base, &query.step],
        }
    }

    /// Calls `see` with each plan whose rows it reads, but not with that of a shared one.
    pub(crate) fn inputs_mut(&mut self, see: &mut dyn FnMut(&mut Plan)) {
        match self {
            Plan::Unit
            | Plan::Values(_)
            | Plan::Made(_)
            | Plan::Scan { .. }
            | Plan::Set(_)
            | Plan::Shared(_)
            | Plan::Working(_) => {}
            Plan::Filter(input, _)
            | Plan::Project(input, _)
            | Plan::Sort(input, _)
            | Plan::Distinct(input, _)
            | Plan::Numbered(input)
            | Plan::Cut(input, _)
            | Plan::Extend(input, _)
            | Plan::Aggregate { input, .. }
            | Plan::Limit { input, .. }
            | Plan::Lock { input, .. } => see(input),
            Plan::Apply(input, subs) => {
                see(input);
                subs.iter_mut().for_each(|sub| see(&mut sub.plan));
            }
            Plan::SetOp { left, right, .. } => {
                see(left);
                see(right);
            }
            Plan::Join(join) => join.inputs_mut().for_each(see),
            Plan::Recursive(query) => {
                see(&mut query.base);
                see(&mut query.step);
            }
        }
    }

    /// True if it makes a row at the most, as a unique index says.
    pub(crate) fn is_of_one_row(&self) -> bool {
        let mut plan = self;
        loop {
            plan = match plan {
                Plan::Project(input, _) | Plan::Filter(input, _) | Plan::Cut(input, _) => input,
                Plan::Scan { table, access: Access::Index { index, equal, .. }, .. } => {
                    let index = &table.indexes[*index];
                    return index.unique && index.columns.len() == equal.len();
                }
                _ => return false,
            };
        }
    }

    /// Operators above each other, at the most. It is no recursion: it says whether there may be one.
    pub(crate) fn levels(&self) -> usize {
        let mut deepest = 0;
        let mut seen = std::collections::HashMap::new();
        let mut waiting = vec![(self, 1)];
        while let Some((plan, level)) = waiting.pop() {
            deepest = deepest.max(level);
            if let Plan::Shared(shared) = plan {
                // Once for each depth that is greater than those before.
                let known = seen.entry(shared.number).or_insert(0);
                if *known < level {
                    *known = level;
                    waiting.push((&shared.plan, level + 1));
                }
            }
            waiting.extend(plan.inputs().into_iter().map(|input| (input, level + 1)));
        }
        deepest
    }
}

/// Values behind the columns of rows.
#[derive(Clone, Debug)]
pub(crate) enum Extension {
    /// A row for each value of these functions, side by side; null where one has no more.
    Sets(Vec<SetExpr>),
    Windows(Vec<WindowCall>),
}

/// A function that makes rows.
#[derive(Clone, Debug)]
pub(crate) enum SetExpr {
    /// The elements of an array.
    Array(Expr),
    /// `generate_series`: from, to, step; of integers, numerics or timestamps, and their type. Its values are made one by one.
    Series([Expr; 3], Type),
}

impl SetExpr {
    pub(crate) fn exprs(&self) -> &[Expr] {
        match self {
            Self::Array(array) => std::slice::from_ref(array),
            Self::Series(args, _) => args,
        }
    }

    pub(crate) fn exprs_mut(&mut self) -> &mut [Expr] {
        match self {
            Self::Array(array) => std::slice::from_mut(array),
            Self::Series(args, _) => args,
        }
    }
}

/// A WITH query that is named several times: it runs once, and its rows are kept.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) number: usize,
    pub(crate) name: String,
    pub(crate) plan: Plan,
    /// Rows that it makes, about.
    pub(crate) rows: f64,
    /// It is MATERIALIZED, or makes other rows each time: it runs once even where a sub-query alone names it.
    pub(crate) once: bool,
}

/// A recursive query.
#[derive(Clone, Debug)]
pub(crate) struct Recursive {
    pub(crate) number: usize,
    /// UNION ALL: rows that were there before are kept.
    pub(crate) all: bool,
    pub(crate) base: Plan,
    pub(crate) step: Plan,
}

/// A window function, or an aggregate over a window.
#[derive(Clone, Debug)]
pub(crate) struct WindowCall {
    pub(crate) function: WindowFunction,
    pub(crate) args: Vec<Expr>,
    pub(crate) filter: Option<Expr>,
    pub(crate) partition: Vec<Expr>,
    pub(crate) order: Vec<SortKey>,
    pub(crate) frame: WindowFrame,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowFunction {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile,
    Lag,
    Lead,
    FirstValue,
    LastValue,
    NthValue,
    Aggregate(Aggregate),
}

/// Which rows of a partition a window function looks at.
#[derive(Clone, Debug)]
pub(crate) struct WindowFrame {
    /// By rows; else by groups of rows that are equal in order.
    pub(crate) rows: bool,
    pub(crate) start: FrameEnd,
    pub(crate) end: FrameEnd,
}

#[derive(Clone, Debug)]
pub(crate) enum FrameEnd {
    First,
    Before(Expr),
    Current,
    Behind(Expr),
    Last,
}

/// A table whose rows are locked.
#[derive(Clone, Debug)]
pub(crate) struct LockTarget {
    pub(crate) table: Arc<Table>,
    /// The scan that numbers its rows.
    pub(crate) scan: usize,
    /// Where the number stands in the row.
    pub(crate) place: usize,
    pub(crate) strength: Strength,
    pub(crate) wait: LockWait,
}

/// How a table is read.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    Table,
    /// Rows of an index whose first columns equal these values, the next one between bounds.
    Index {
        index: usize,
        equal: Vec<Expr>,
        low: Option<(Expr, bool)>,
        high: Option<(Expr, bool)>,
        /// From its end to its beginning.
        backward: bool,
        /// What reads the rows relies on their order.
        in_order: bool,
    },
    /// Rows of an index whose first columns equal one of these lists of values.
    Points {
        index: usize,
        keys: Vec<Vec<KeyPart>>,
    },
}

/// What a column of an index has to equal.
#[derive(Clone, Debug)]
pub(crate) enum KeyPart {
    One(Expr),
    /// Each element of this array, one after the other.
    Each(Expr),
}

#[derive(Clone, Debug)]
pub(crate) struct Join {
    pub(crate) kind: JoinKind,
    pub(crate) left: Plan,
    pub(crate) right: Plan,
    pub(crate) left_width: usize,
    pub(crate) right_width: usize,
    /// Equal on both sides: an expression of the left row and one of the right row.
    pub(crate) equal: Vec<(Expr, Expr)>,
    /// What else must hold, over both rows.
    pub(crate) on: Vec<Expr>,
    /// For each left row the right side is run, with these values of it as its outer ones.
    pub(crate) lateral: Option<Vec<Expr>>,
    /// Sub-queries of the condition, and what must hold over both rows and the answers behind them.
    pub(crate) asks: Vec<Sub>,
    pub(crate) judged: Vec<Expr>,
}

impl Join {
    /// The plans whose rows it reads.
    fn inputs(&self) -> impl Iterator<Item = &Plan> {
        [&self.left, &self.right].into_iter().chain(self.asks.iter().map(|sub| &sub.plan))
    }

    fn inputs_mut(&mut self) -> impl Iterator<Item = &mut Plan> {
        [&mut self.left, &mut self.right].into_iter().chain(self.asks.iter_mut().map(|sub| &mut sub.plan))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Sub {
    pub(crate) plan: Plan,
    pub(crate) captures: Vec<Expr>,
    pub(crate) kind: SubKind,
    /// It calls a function that answers otherwise each time: equal captures may have other answers.
    pub(crate) volatile: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum SubKind {
    /// The one column of the one row, or null.
    Scalar,
    Exists,
    /// Is the value among the rows?
    In(Expr),
    Quantified {
        comparison: Comparison,
        all: bool,
        arg: Expr,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct AggregateCall {
    pub(crate) aggregate: Aggregate,
    pub(crate) args: Vec<Expr>,
    /// The values that it takes, made of the arguments; empty: the arguments themselves.
    pub(crate) each: Vec<Expr>,
    pub(crate) distinct: bool,
    pub(crate) filter: Option<Expr>,
    pub(crate) order: Vec<SortKey>,
}

impl AggregateCall {
    /// Its expressions over the rows that are grouped.
    pub(crate) fn exprs_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let order = self.order.iter_mut().map(|key| &mut key.expr);
        self.args.iter_mut().chain(&mut self.filter).chain(order)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SortKey {
    pub(crate) expr: Expr,
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
}

/// A query, bound.
#[derive(Clone, Debug)]
pub(crate) struct BoundQuery {
    pub(crate) plan: Plan,
    /// It locks rows, so its transaction is none that only reads.
    pub(crate) locks: bool,
    pub(crate) columns: Vec<Column>,
}

/// What a change returns: expressions over the row (and the rows that it was joined with).
#[derive(Clone, Debug)]
pub(crate) struct Returning {
    pub(crate) exprs: Vec<Expr>,
    pub(crate) columns: Vec<Column>,
}

#[derive(Clone, Debug)]
pub(crate) struct BoundInsert {
    pub(crate) table: Arc<Table>,
    /// Makes rows of the table's columns; where `given` is false, the default is still to come.
    pub(crate) plan: Plan,
    pub(crate) given: Vec<bool>,
    /// CHECK constraints: names and conditions over the table's columns.
    pub(crate) checks: Vec<(String, Expr)>,
    pub(crate) conflict: Option<BoundConflict>,
    pub(crate) returning: Option<Returning>,
}

/// Columns and their new values.
pub(crate) type Assignments = Vec<(usize, Expr)>;

#[derive(Clone, Debug)]
pub(crate) struct BoundConflict {
    /// The index that decides; none: any.
    pub(crate) index: Option<usize>,
    /// New values by column, over the row in the table and behind it the one that was to be inserted; and a condition.
    pub(crate) update: Option<(Assignments, Option<Expr>)>,
}

#[derive(Clone, Debug)]
pub(crate) struct BoundUpdate {
    pub(crate) table: Arc<Table>,
    /// Makes the table's row, what names it, what it was joined with, and the new values in the order of `columns`.
    pub(crate) plan: Plan,
    /// The scan that numbers the table's rows.
    pub(crate) scan: usize,
    /// Where the new values begin.
    pub(crate) width: usize,
    pub(crate) columns: Vec<usize>,
    /// As those of an insert.
    pub(crate) checks: Vec<(String, Expr)>,
    pub(crate) returning: Option<Returning>,
}

#[derive(Clone, Debug)]
pub(crate) struct BoundDelete {
    pub(crate) table: Arc<Table>,
    /// Makes the table's row, what names it, and what it was joined with.
    pub(crate) plan: Plan,
    /// The scan that numbers the table's rows.
    pub(crate) scan: usize,
    pub(crate) returning: Option<Returning>,
}

#[derive(Clone, Debug)]
pub(crate) enum Bound {
    Query(Box<BoundQuery>),
    Insert(Box<BoundInsert>),
    Update(Box<BoundUpdate>),
    Delete(Box<BoundDelete>),
}

impl Bound {
    /// Columns of the rows that it returns.
    pub(crate) fn columns(&self) -> &[Column] {
        match self {
            Bound::Query(query) => &query.columns,
            Bound::Insert(it) => it.returning.as_ref().map_or(&[], |returning| &returning.columns),
            Bound::Update(it) => it.returning.as_ref().map_or(&[], |returning| &returning.columns),
            Bound::Delete(it) => it.returning.as_ref().map_or(&[], |returning| &returning.columns),
        }
    }

    /// Does it lock rows?
    pub(crate) fn locks(&self) -> bool {
        matches!(self, Bound::Query(query) if query.locks)
    }

    /// Does it change a table that foreign keys are about?
    pub(crate) fn has_foreign_keys(&self) -> bool {
        let table = match self {
            Bound::Query(_) => return false,
            Bound::Insert(it) => &it.table,
            Bound::Update(it) => &it.table,
            Bound::Delete(it) => &it.table,
        };
        !table.foreign.is_empty() || !table.referenced.is_empty()
    }

    /// The tables that it depends on, as it was bound with them.
    pub(crate) fn tables(&self) -> Vec<(String, Identity)> {
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        match self {
            Bound::Query(query) => tables_of(&query.plan, &mut seen, &mut names),
            Bound::Insert(it) => {
                names.push((it.table.name.clone(), it.table.identity));
                tables_of(&it.plan, &mut seen, &mut names);
            }
            Bound::Update(it) => {
                names.push((it.table.name.clone(), it.table.identity));
                tables_of(&it.plan, &mut seen, &mut names);
            }
            Bound::Delete(it) => {
                names.push((it.table.name.clone(), it.table.identity));
                tables_of(&it.plan, &mut seen, &mut names);
            }
        }
        names.sort();
        names.dedup();
        names
    }
}

/// The tables that a plan reads, as it was bound with them.
fn tables_of(plan: &Plan, seen: &mut HashSet<usize>, names: &mut Vec<(String, Identity)>) {
    match plan {
        Plan::Unit | Plan::Values(_) | Plan::Made(_) | Plan::Set(_) | Plan::Working(_) => {}
        // It is asked for as often as it is named, so its tables are looked for once.
        Plan::Shared(shared) => {
            if seen.insert(shared.number) {
                tables_of(&shared.plan, seen, names);
            }
        }
        Plan::Scan { table, .. } => names.push((table.name.clone(), table.identity)),
        Plan::Filter(input, _)
        | Plan::Project(input, _)
        | Plan::Sort(input, _)
        | Plan::Distinct(input, _)
        | Plan::Numbered(input)
        | Plan::Extend(input, _)
        | Plan::Cut(input, _)
        | Plan::Lock { input, .. }
        | Plan::Aggregate { input, .. }
        | Plan::Limit { input, .. } => tables_of(input, seen, names),
        Plan::Apply(input, subs) => {
            tables_of(input, seen, names);
            subs.iter().for_each(|sub| tables_of(&sub.plan, seen, names));
        }
        Plan::Recursive(query) => {
            tables_of(&query.base, seen, names);
            tables_of(&query.step, seen, names);
        }
        Plan::Join(join) => join.inputs().for_each(|input| tables_of(input, seen, names)),
        Plan::SetOp { left, right, .. } => {
            tables_of(left, seen, names);
            tables_of(right, seen, names);
        }
    }
}
