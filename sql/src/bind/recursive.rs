//! WITH RECURSIVE: a union whose right side names the query itself.

use super::from::{Relation, derived};
use super::{Binder, Typed};
use crate::error::{Error, NOWHERE, Result};
use crate::expr::Expr;
use crate::parser::ast::{Alias, Cte, ObjectName, SetExpr, SetOp};
use crate::plan::{BoundQuery, Plan, Recursive};

impl Binder<'_> {
    /// The rows of the last step, if the name is that of a recursive query whose step is being bound.
    pub(super) fn working_table(&mut self, name: &ObjectName, alias: &Alias) -> Result<Option<Relation>> {
        if name.schema.is_some() {
            return Ok(None);
        }
        let Some(known) = self.recursive.iter_mut().rev().find(|known| known.0 == name.name) else {
            return Ok(None);
        };
        known.3 = true;
        let bound = BoundQuery { plan: Plan::Working(known.1), columns: known.2.clone(), locks: false };
        let table = alias.name.as_ref().unwrap_or(&name.name);
        derived(bound, table, &alias.columns, None, name.at).map(Some)
    }

    /// A union of a query that may name itself on the right.
    pub(super) fn recursive_query(
        &mut self,
        cte: &Cte,
        all: bool,
        (left, right): (&SetExpr, &SetExpr),
    ) -> Result<BoundQuery> {
        let query = &cte.query;
        if !query.order.is_empty() || query.limit.is_some() || query.offset.is_some() {
            return Err(Error::new("0A000", "ORDER BY and LIMIT in a recursive query are not implemented")
                .at(query.at)
                .hint("Put them into the query that reads it."));
        }
        let known = self.ctes.len();
        self.ctes.extend(query.with.iter().cloned());
        let bound = self.recursive_union(cte, all, left, right);
        self.ctes.truncate(known);
        bound
    }

    fn recursive_union(
        &mut self,
        cte: &Cte,
        all: bool,
        left: &SetExpr,
        right: &SetExpr,
    ) -> Result<BoundQuery> {
        let base = self.set_expr(left)?;
        let mut columns = base.columns.clone();
        for (column, name) in columns.iter_mut().zip(&cte.columns) {
            column.name.clone_from(name);
        }
        let number = self.recursions;
        self.recursions += 1;
        self.recursive.push((cte.name.clone(), number, columns.clone(), false));
        let step = self.set_expr(right);
        let named = self.recursive.pop().is_some_and(|known| known.3);
        let step = step?;
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
        let plan = if named {
            Plan::Recursive(Box::new(Recursive { number, all, base: base.plan, step }))
        } else {
            Plan::SetOp { op: SetOp::Union, all, left: Box::new(base.plan), right: Box::new(step) }
        };
        Ok(BoundQuery { plan, columns, locks: false })
    }
}
