//! WITH queries: bound once, however often they are named; and WITH RECURSIVE, a union whose right side names the query itself.
//!
//! Where a recursive query may name itself is PostgreSQL's rule (`checkWellFormedRecursion`): once, on the right side of the union, and
//! there neither in a sub-query, nor where an outer join may put nulls instead, nor where rows are taken away (42P19). What is
//! allowed beyond that would have no answer, or no end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::from::{Relation, derived};
use super::{Binder, Typed};
use crate::error::{Error, NOWHERE, Result};
use crate::expr::Expr;
use crate::optimize::access;
use crate::parser::ast::{Alias, Cte, ObjectName, Query, SetExpr, SetOp};
use crate::plan::{BoundQuery, Plan, Recursive, Shared};
use crate::types::Column;

/// A WITH query that names can mean.
#[derive(Debug)]
pub(super) struct KnownCte {
    pub(super) cte: Cte,
    /// What it was bound to the first time.
    bound: RefCell<Option<(Rc<Shared>, Vec<Column>)>>,
    is_named: Cell<bool>,
    /// The number of frames around the query that it stands before.
    level: usize,
}

/// Where a name stands that a recursive query must not be named by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Within {
    SubQuery,
    OuterJoin,
    Intersect,
    Except,
}

/// A recursive query that is being bound.
#[derive(Debug)]
pub(super) struct Recursion {
    name: String,
    number: usize,
    columns: Vec<Column>,
    /// The step has named it.
    named: bool,
    part: Part,
    /// How many places of the binder's list stand around it.
    within: usize,
    /// How many WITH queries are known around it: later ones go before it.
    ctes: usize,
}

impl Recursion {
    pub(super) fn is_named(&self) -> bool {
        self.named
    }

    pub(super) fn set_named(&mut self, named: bool) {
        self.named = named;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Base,
    Step,
    /// It is no union.
    Whole,
}

fn refused(what: impl Into<String>) -> Error {
    Error::new("42P19", what)
}

impl Binder<'_> {
    /// Binds something that stands within this.
    pub(super) fn standing<T>(
        &mut self,
        within: Option<Within>,
        bind: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let before = self.within.len();
        self.within.extend(within);
        let bound = bind(self);
        self.within.truncate(before);
        bound
    }

    /// Puts the WITH queries of a query before those that are known.
    pub(super) fn know(&mut self, with: &[Cte]) -> Result<()> {
        for (place, cte) in with.iter().enumerate() {
            if with[..place].iter().any(|other| other.name == cte.name) {
                let message = format!("WITH query name \"{}\" specified more than once", cte.name);
                return Err(Error::new("42712", message).at(cte.at));
            }
        }
        let level = self.frames.len();
        let known = |cte: &Cte| {
            let (bound, is_named) = (RefCell::default(), Cell::new(false));
            Rc::new(KnownCte { cte: cte.clone(), bound, is_named, level })
        };
        self.ctes.extend(with.iter().map(known));
        Ok(())
    }

    /// Forgets WITH queries when what they stand before is bound. Those that nothing has named are bound for their errors.
    pub(super) fn forget<T>(&mut self, known: usize, bound: Result<T>) -> Result<T> {
        let bound = bound.and_then(|bound| {
            for place in known..self.ctes.len() {
                if !self.ctes[place].is_named.get() {
                    self.cte(place, &Alias::default())?;
                }
            }
            Ok(bound)
        });
        self.ctes.truncate(known);
        bound
    }

    /// Has any of these recursive queries not ended yet?
    fn is_open(&self, steps: &[usize]) -> bool {
        let mut open = self.recursive.iter().filter(|known| known.part == Part::Step);
        open.any(|known| steps.contains(&known.number))
    }

    /// The rows of a WITH query.
    pub(super) fn cte(&mut self, place: usize, alias: &Alias) -> Result<Relation> {
        let known = self.ctes[place].clone();
        known.is_named.set(true);
        let cte = &known.cte;
        let names = if alias.columns.is_empty() { &cte.columns } else { &alias.columns };
        let name = alias.name.as_ref().unwrap_or(&cte.name);
        let before = known.bound.borrow().clone();
        if let Some((shared, columns)) = before {
            let bound = BoundQuery { plan: Plan::Shared(shared), columns, locks: false };
            return derived(bound, name, names, None, NOWHERE);
        }
        // It sees those before it only, and what is around the query that it stands before.
        let hidden = self.ctes.split_off(place);
        let frames = self.frames.split_off(known.level);
        let (workings, volatile) = (self.workings.len(), self.volatile);
        let bound = self.nested(super::scope::FrameKind::Sub, |binder| match &cte.query.body {
            _ if !cte.recursive => binder.query(&cte.query),
            SetExpr::Op { op: SetOp::Union, all, left, right } => {
                binder.recursive_query(cte, *all, (left, right))
            }
            _ => binder.whole_query(cte),
        });
        self.frames.extend(frames);
        self.ctes.extend(hidden);
        let (mut bound, captures) = bound?;
        let (has, given) = (bound.columns.len(), cte.columns.len());
        if given > has {
            let message = format!(
                "WITH query \"{}\" has {has} columns available but {given} columns specified",
                cte.name
            );
            return Err(Error::new("42P10", message).at(cte.at));
        }
        if !captures.is_empty() {
            return self.correlated(&known, bound, captures, volatile, (name, names));
        }
        // What reads rows of a step of a recursive query around it has others in the next one.
        if !self.is_open(&self.workings[workings..]) {
            self.finish(&mut bound.plan)?;
            let (number, rows) = (self.shared, access::rows(&bound.plan));
            self.shared += 1;
            let once = cte.materialized || self.volatile > volatile;
            let shared = Rc::new(Shared { number, name: cte.name.clone(), plan: bound.plan, rows, once });
            known.bound.replace(Some((shared.clone(), bound.columns.clone())));
            bound.plan = Plan::Shared(shared);
        }
        derived(bound, name, names, None, NOWHERE)
    }

    /// The rows of a WITH query that names columns of queries around it: it has others for each of their rows.
    fn correlated(
        &mut self,
        known: &KnownCte,
        bound: BoundQuery,
        captures: Vec<Expr>,
        volatile: usize,
        (name, names): (&str, &[String]),
    ) -> Result<Relation> {
        if self.volatile > volatile {
            let what = "a WITH query that calls volatile functions and names columns of a query around it";
            return Err(Error::unsupported(what).at(known.cte.at));
        }
        let level = known.level.saturating_sub(1);
        let bring =
            |capture| self.brought_in(Typed::new(capture, crate::types::Type::Unknown, NOWHERE), level).expr;
        let captures = captures.into_iter().map(bring).collect();
        let mut relation = derived(bound, name, names, Some(captures), NOWHERE)?;
        relation.alone();
        Ok(relation)
    }

    /// The rows of the last step, if the name is that of a recursive query whose step is being bound.
    pub(super) fn working_table(&mut self, name: &ObjectName, alias: &Alias) -> Result<Option<Relation>> {
        if name.schema.is_some() {
            return Ok(None);
        }
        let Some(place) = self.recursive.iter().rposition(|known| known.name == name.name) else {
            return Ok(None);
        };
        let known = &mut self.recursive[place];
        if self.ctes[known.ctes.min(self.ctes.len())..].iter().any(|inner| inner.cte.name == name.name) {
            return Ok(None);
        }
        let query = &name.name;
        let reference = |where_: &str| {
            refused(format!("recursive reference to query \"{query}\" must not appear {where_}")).at(name.at)
        };
        match known.part {
            Part::Step => {}
            Part::Base => return Err(reference("within its non-recursive term")),
            Part::Whole => {
                let form = "non-recursive-term UNION [ALL] recursive-term";
                return Err(refused(format!("recursive query \"{query}\" does not have the form {form}")));
            }
        }
        let within = &self.within[known.within..];
        match within.iter().find(|it| **it == Within::SubQuery).or(within.first()) {
            None => {}
            Some(Within::SubQuery) => return Err(reference("within a subquery")),
            Some(Within::OuterJoin) => return Err(reference("within an outer join")),
            Some(Within::Intersect) => return Err(reference("within INTERSECT")),
            Some(Within::Except) => return Err(reference("within EXCEPT")),
        }
        if std::mem::replace(&mut known.named, true) {
            return Err(reference("more than once"));
        }
        let bound =
            BoundQuery { plan: Plan::Working(known.number), columns: known.columns.clone(), locks: false };
        let number = known.number;
        self.workings.push(number);
        self.frame().names_itself = true;
        let table = alias.name.as_ref().unwrap_or(&name.name);
        derived(bound, table, &alias.columns, None, name.at).map(Some)
    }

    fn recursion(&self, cte: &Cte, part: Part) -> Recursion {
        let (within, ctes) = (self.within.len(), self.ctes.len());
        let (name, columns) = (cte.name.clone(), Vec::new());
        Recursion { name, number: 0, columns, named: false, part, within, ctes }
    }

    /// A query of WITH RECURSIVE that is no union: it must not name itself.
    fn whole_query(&mut self, cte: &Cte) -> Result<BoundQuery> {
        let recursion = self.recursion(cte, Part::Whole);
        self.recursive.push(recursion);
        let bound = self.query(&cte.query);
        self.recursive.pop();
        bound
    }

    /// A union of a query that may name itself on the right.
    fn recursive_query(
        &mut self,
        cte: &Cte,
        all: bool,
        (left, right): (&SetExpr, &SetExpr),
    ) -> Result<BoundQuery> {
        let query = &cte.query;
        let known = self.ctes.len();
        self.know(&query.with)?;
        let bound = self.recursive_union(cte, all, left, right);
        match self.forget(known, bound)? {
            Some(bound) => match unsupported(query) {
                Some(what) => {
                    let message = format!("{what} in a recursive query is not implemented");
                    Err(Error::new("0A000", message)
                        .at(query.at)
                        .hint("Put it into the query that reads it."))
                }
                None => Ok(bound),
            },
            // It does not name itself.
            None => self.query(query),
        }
    }

    fn recursive_union(
        &mut self,
        cte: &Cte,
        all: bool,
        left: &SetExpr,
        right: &SetExpr,
    ) -> Result<Option<BoundQuery>> {
        let recursion = self.recursion(cte, Part::Base);
        self.recursive.push(recursion);
        let base = self.set_expr(left);
        self.recursive.pop();
        let base = base?;
        let mut columns = base.columns.clone();
        for (column, name) in columns.iter_mut().zip(&cte.columns) {
            column.name.clone_from(name);
        }
        let number = self.recursions;
        self.recursions += 1;
        let recursion = self.recursion(cte, Part::Step);
        self.recursive.push(Recursion { number, columns: columns.clone(), ..recursion });
        let step = self.set_expr(right);
        let named = self.recursive.pop().is_some_and(|known| known.named);
        let step = step?;
        if !named {
            return Ok(None);
        }
        if step.columns.len() != columns.len() {
            return Err(
                Error::new("42601", "each UNION query must have the same number of columns").at(cte.query.at)
            );
        }
        let mut exprs = Vec::with_capacity(columns.len());
        for (place, (mine, theirs)) in columns.iter_mut().zip(&step.columns).enumerate() {
            let typed = |ty| Typed::new(Expr::Column(place), ty, NOWHERE);
            let overall = self.common_type(&[typed(mine.ty), typed(theirs.ty)], "UNION")?;
            if overall != mine.ty {
                let message = format!(
                    "recursive query \"{}\" column {} has type {} in non-recursive term but type {} overall",
                    cte.name,
                    place + 1,
                    mine.ty.sql_name(),
                    overall.sql_name()
                );
                return Err(Error::new("42804", message)
                    .at(cte.query.at)
                    .hint("Cast the output of the non-recursive term to the correct type."));
            }
            exprs.push(self.as_common(typed(theirs.ty), mine.ty, "UNION")?.expr);
            mine.modifier =
                if mine.modifier == theirs.modifier { mine.modifier } else { crate::types::NO_MOD };
        }
        let step = Plan::Project(Box::new(step.plan), exprs);
        let plan = Plan::Recursive(Box::new(Recursive { number, all, base: base.plan, step }));
        Ok(Some(BoundQuery { plan, columns, locks: false }))
    }
}

/// What a recursive query has that none may have.
fn unsupported(query: &Query) -> Option<&'static str> {
    match () {
        () if !query.order.is_empty() => Some("ORDER BY"),
        () if query.offset.is_some() => Some("OFFSET"),
        () if query.limit.is_some() => Some("LIMIT"),
        () if !query.locks.is_empty() => Some("FOR UPDATE/SHARE"),
        () => None,
    }
}

/// Puts WITH queries that are named once where they are named: but for those that run once wherever that is.
pub(super) fn unshared(plan: &mut Plan) {
    if let Plan::Shared(_) = plan {
        let Plan::Shared(mut taken) = std::mem::replace(plan, Plan::Unit) else { unreachable!("it is one") };
        *plan = match Rc::get_mut(&mut taken) {
            Some(alone) if !alone.once => std::mem::replace(&mut alone.plan, Plan::Unit),
            _ => Plan::Shared(taken),
        };
        if matches!(plan, Plan::Shared(_)) {
            return;
        }
        return unshared(plan);
    }
    plan.inputs_mut(&mut unshared);
}
