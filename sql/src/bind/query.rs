//! SELECT: from the tables through grouping, the select list, DISTINCT and ORDER BY to LIMIT; VALUES; set operations; WITH.

use super::coerce::common_modifier;
use super::recursive::{Recursion, Within};
use super::scope::{Barred, Frame, FrameKind, Group, Naming, ScopeColumn};
use super::{Binder, SUB_BASE, Typed};
use crate::depth;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::parser::ast::{self, ExprKind, LockWait, Locking, OrderItem, Query, Select, SetExpr, Strength};
use crate::plan::{AggregateCall, BoundQuery, Join, LockTarget, Plan, SortKey, Sub, SubKind};
use crate::types::{Column, Type};

/// Expressions of a select list, bound, with their names.
struct Output {
    exprs: Vec<Typed>,
    names: Vec<String>,
    /// Expressions as they are written, and their places.
    written: Vec<(ast::Expr, usize)>,
}

impl Binder<'_> {
    /// A query that stands by itself.
    pub(super) fn top_query(&mut self, query: &Query) -> Result<BoundQuery> {
        let (bound, captures) = self.sub_query(query)?;
        debug_assert!(captures.is_empty(), "nothing is around it");
        let bound = self.with_names(bound)?;
        Ok(BoundQuery { locks: self.locks, ..bound })
    }

    /// A query within another one, and the expressions of that one which it needs.
    pub(super) fn sub_query(&mut self, query: &Query) -> Result<(BoundQuery, Vec<Expr>)> {
        self.standing(Some(Within::SubQuery), |binder| {
            binder.nested(FrameKind::Sub, |binder| binder.query(query))
        })
    }

    pub(super) fn nested<T>(
        &mut self,
        kind: FrameKind,
        bind: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(T, Vec<Expr>)> {
        self.frames.push(Frame { kind, ..Frame::default() });
        let bound = bind(self);
        let frame = self.frames.pop().expect("the frame was just put there");
        Ok((bound?, frame.captures))
    }

    pub(super) fn query(&mut self, query: &Query) -> Result<BoundQuery> {
        self.deeper(|binder| {
            let known = binder.ctes.len();
            binder.know(&query.with)?;
            let bound = binder.query_body(query);
            binder.forget(known, bound)
        })
    }

    fn query_body(&mut self, query: &Query) -> Result<BoundQuery> {
        let mut bound = match &query.body {
            SetExpr::Select(select) => self.select(select, &query.order, &query.locks)?,
            _ if !query.locks.is_empty() => {
                return Err(not_lockable(&query.locks[0], "UNION/INTERSECT/EXCEPT").at(query.at));
            }
            body => {
                let mut bound = self.set_expr(body)?;
                self.order_output(&mut bound, &query.order)?;
                bound
            }
        };
        let count = |binder: &mut Self, expr: &Option<ast::Expr>, what: &str| match expr {
            Some(expr) => binder.lone(expr, Type::Int8, what).map(Some),
            None => Ok(None),
        };
        let limit = count(self, &query.limit, "LIMIT")?;
        let offset = count(self, &query.offset, "OFFSET")?;
        if limit.is_some() || offset.is_some() {
            bound.plan = Plan::Limit { input: Box::new(bound.plan), limit, offset };
        }
        Ok(bound)
    }

    pub(super) fn set_expr(&mut self, body: &SetExpr) -> Result<BoundQuery> {
        match body {
            SetExpr::Select(select) => self.select(select, &[], &[]),
            SetExpr::Query(query) => self.query(query),
            SetExpr::Values(rows) => {
                self.keeps_unknown = false;
                self.values(rows)
            }
            SetExpr::Op { op, all, left, right } => {
                depth::has_stack()?;
                let keeps_unknown = std::mem::take(&mut self.keeps_unknown);
                let (on_left, on_right) = match (op, all) {
                    (ast::SetOp::Intersect, true) => (Some(Within::Intersect), Some(Within::Intersect)),
                    (ast::SetOp::Except, true) => (Some(Within::Except), Some(Within::Except)),
                    (ast::SetOp::Except, false) => (None, Some(Within::Except)),
                    _ => (None, None),
                };
                let (mut left, left_at) =
                    self.standing(on_left, |binder| binder.keeping_unknown(|binder| binder.set_expr(left)))?;
                let (mut right, right_at) = self
                    .standing(on_right, |binder| binder.keeping_unknown(|binder| binder.set_expr(right)))?;
                let name = match op {
                    ast::SetOp::Union => "UNION",
                    ast::SetOp::Intersect => "INTERSECT",
                    ast::SetOp::Except => "EXCEPT",
                };
                if left.columns.len() != right.columns.len() {
                    let message = format!("each {name} query must have the same number of columns");
                    return Err(Error::new("42601", message));
                }
                let mut columns = Vec::new();
                for (a, b) in left.columns.iter().zip(&right.columns) {
                    let typed = |column: &Column| Typed {
                        modifier: column.modifier,
                        ..Typed::new(Expr::Column(0), column.ty, crate::error::NOWHERE)
                    };
                    let both = [typed(a), typed(b)];
                    let ty = self.common_type(&both, name)?;
                    columns.push(Column { name: a.name.clone(), ty, modifier: common_modifier(&both, ty) });
                }
                // Literals and parameters have the type of the column.
                if keeps_unknown {
                    self.kept_at.clone_from(&left_at);
                }
                for (side, at) in [(&mut left, left_at), (&mut right, right_at)] {
                    for (place, (column, at)) in columns.iter().zip(at).enumerate() {
                        self.settle_unknown(side, place, column.ty, at)?;
                    }
                }
                let left = self.cast_columns(left, &columns, name)?;
                let right = self.cast_columns(right, &columns, name)?;
                let plan = Plan::SetOp { op: *op, all: *all, left: Box::new(left), right: Box::new(right) };
                Ok(BoundQuery { plan, columns, locks: false })
            }
        }
    }

    /// Binds a query whose literals and parameters keep having no type, if they have none: what stands around it says; and where its
    /// columns are written.
    pub(super) fn keeping_unknown<T>(
        &mut self,
        bind: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(T, Vec<u32>)> {
        self.keeps_unknown = true;
        self.kept_at.clear();
        let bound = bind(self);
        self.keeps_unknown = false;
        Ok((bound?, std::mem::take(&mut self.kept_at)))
    }

    /// Gives a type to a column of a query that is a literal or a parameter of none.
    fn settle_unknown(&mut self, query: &mut BoundQuery, place: usize, ty: Type, at: u32) -> Result<()> {
        if query.columns[place].ty != Type::Unknown {
            return Ok(());
        }
        if let Some(expr) = made_by(&mut query.plan, place) {
            let typed = Typed::new(expr.clone(), Type::Unknown, at);
            *expr = self.implicit(typed, ty)?.expr;
        }
        query.columns[place].ty = ty;
        Ok(())
    }

    /// The query's rows with its columns at these types.
    pub(super) fn cast_columns(&mut self, query: BoundQuery, to: &[Column], what: &str) -> Result<Plan> {
        if query.columns.iter().zip(to).all(|(from, to)| from.ty == to.ty) {
            return Ok(query.plan);
        }
        let mut exprs = Vec::new();
        for (place, (from, to)) in query.columns.iter().zip(to).enumerate() {
            let typed = Typed::new(Expr::Column(place), from.ty, crate::error::NOWHERE);
            exprs.push(self.as_common(typed, to.ty, what)?.expr);
        }
        Ok(Plan::Project(Box::new(query.plan), exprs))
    }

    fn values(&mut self, rows: &[Vec<ast::Expr>]) -> Result<BoundQuery> {
        let width = rows[0].len();
        self.frames.push(Frame { no_aggregates: Some("VALUES"), ..Frame::default() });
        let bound = rows.iter().map(|row| self.exprs(row)).collect::<Result<Vec<_>>>();
        let frame = self.frames.pop().expect("the frame was just put there");
        let bound = bound?;
        if let Some(row) = bound.iter().find(|row| row.len() != width) {
            let at = row.first().map_or(crate::error::NOWHERE, |typed| typed.at);
            return Err(Error::new("42601", "VALUES lists must all be the same length").at(at));
        }
        let mut columns = Vec::new();
        let mut out: Vec<Vec<Expr>> = vec![Vec::new(); bound.len()];
        for place in 0..width {
            let all: Vec<Typed> = bound.iter().map(|row| row[place].clone()).collect();
            let (exprs, ty, modifier) = self.unify(all, "VALUES")?;
            out.iter_mut().zip(exprs).for_each(|(row, expr)| row.push(expr));
            columns.push(Column { name: format!("column{}", place + 1), ty, modifier });
        }
        if !frame.subs.is_empty() {
            return Ok(BoundQuery { plan: rows_with_subs(out, frame.subs), columns, locks: false });
        }
        Ok(BoundQuery { plan: Plan::Values(out), columns, locks: false })
    }

    /// ORDER BY of a set operation or VALUES: output columns by name or number.
    fn order_output(&mut self, bound: &mut BoundQuery, order: &[OrderItem]) -> Result<()> {
        if order.is_empty() {
            return Ok(());
        }
        let mut keys = Vec::new();
        for item in order {
            let place = match &item.expr.kind {
                ExprKind::Int(number) => place_of(*number, bound.columns.len(), item.expr.at)?,
                ExprKind::Column(names) if names.len() == 1 => {
                    let found = bound.columns.iter().position(|column| column.name == names[0]);
                    found.ok_or_else(|| {
                        Error::new("42703", format!("column \"{}\" does not exist", names[0]))
                            .at(item.expr.at)
                    })?
                }
                _ => {
                    return Err(Error::new("0A000", "invalid UNION/INTERSECT/EXCEPT ORDER BY clause")
                        .at(item.expr.at)
                        .detail("Only result column names can be used, not expressions or functions.")
                        .hint("Add the expression/function to every SELECT, or move the UNION into a FROM clause."));
                }
            };
            has_order(bound.columns[place].ty, item.expr.at)?;
            keys.push(sort_key(Expr::Column(place), item));
        }
        let plan = std::mem::replace(&mut bound.plan, Plan::Unit);
        bound.plan = Plan::Sort(Box::new(plan), keys);
        Ok(())
    }

    fn select(&mut self, select: &Select, order: &[OrderItem], locks: &[Locking]) -> Result<BoundQuery> {
        let naming = if locks.is_empty() { Naming::None } else { Naming::All };
        let (keeps_unknown, stars) = (self.keeps_unknown, self.stars.len());
        let named: Vec<bool> = self.recursive.iter().map(Recursion::is_named).collect();
        let mut grouped = false;
        loop {
            self.frames.push(Frame { grouped, naming, ..Frame::default() });
            let bound = self.select_inside(select, order, locks);
            self.frames.pop();
            // A sub-query has an aggregate of this query, which is bound once more as one that groups.
            if bound.is_ok() || grouped || self.regroup.take_if(|level| *level == self.frames.len()).is_none()
            {
                return bound;
            }
            self.regroups += 1;
            if self.regroups > depth::REGROUPS {
                return Err(depth::too_large("aggregates of queries around them", depth::REGROUPS));
            }
            grouped = true;
            self.keeps_unknown = keeps_unknown;
            self.stars.truncate(stars);
            self.recursive.iter_mut().zip(&named).for_each(|(known, named)| known.set_named(*named));
        }
    }

    fn select_inside(
        &mut self,
        select: &Select,
        order: &[OrderItem],
        locks: &[Locking],
    ) -> Result<BoundQuery> {
        let keeps_unknown = std::mem::take(&mut self.keeps_unknown);
        if let Some(nothing) = self.nothing_there(select) {
            return Ok(nothing);
        }
        let (mut plan, mut width) = self.from(&select.from, select.condition.as_ref())?;
        let grouped = !select.group.is_empty()
            || select.having.is_some()
            || self.frame().grouped
            || select.items.iter().any(|item| self.has_own_aggregate(&item.expr))
            || order.iter().any(|item| self.has_own_aggregate(&item.expr));
        if self.frame().names_itself
            && (select.items.iter().any(|item| self.has_own_aggregate(&item.expr))
                || select.having.as_ref().is_some_and(|having| self.has_own_aggregate(having))
                || order.iter().any(|item| self.has_own_aggregate(&item.expr)))
        {
            let message = "aggregate functions are not allowed in a recursive query's recursive term";
            return Err(Error::new("42P19", message));
        }
        if let Some(lock) = locks.first() {
            match () {
                () if select.distinct.is_some() => return Err(not_lockable(lock, "DISTINCT clause")),
                () if !select.group.is_empty() => return Err(not_lockable(lock, "GROUP BY clause")),
                () if select.having.is_some() => return Err(not_lockable(lock, "HAVING clause")),
                () if grouped => return Err(not_lockable(lock, "aggregate functions")),
                () => {}
            }
        }
        let ungrouped = width;
        if grouped {
            let keys = self.group_keys(select)?;
            let subs = std::mem::take(&mut self.frame().subs);
            plan = applied(plan, subs, &mut width);
            self.frame().group = Some(Group { keys, ..Group::default() });
        } else {
            self.frame().group = None;
        }
        let having = match &select.having {
            Some(having) => {
                let clause = Barred::Clause("HAVING");
                Some(self.barring(clause, |binder| binder.condition(having, "HAVING"))?)
            }
            None => None,
        };
        // From here on, rows can be made and windows looked at.
        self.frame().sets = Some(Vec::new());
        self.frame().windows = Some(Vec::new());
        self.frame().named_windows.clone_from(&select.windows);
        if let Some(into) = &select.into {
            return Err(Error::new("42601", "SELECT ... INTO is not allowed here").at(into.at));
        }
        let mut output = self.items(&select.items, keeps_unknown)?;
        let items = output.exprs.len();
        let distinct_on = self.distinct_keys(select, &mut output)?;
        let order_keys = self.order_keys(select, order, &mut output)?;
        if let (Some(on), Some(keys)) = (&select.distinct, &distinct_on) {
            leads_the_order(on, keys, &order_keys)?;
        }
        let targets = self.lock_targets(locks, &mut output)?;
        // Grouping is complete now: its aggregates are known.
        if let Some(group) = self.frame().group.take() {
            let mut keys: Vec<Expr> = group.keys.iter().map(|(_, _, typed)| typed.expr.clone()).collect();
            keys.iter_mut().for_each(|key| place_subs(key, ungrouped));
            let mut calls = group.calls;
            calls.iter_mut().flat_map(AggregateCall::exprs_mut).for_each(|expr| place_subs(expr, width));
            plan = applied(plan, group.subs, &mut width);
            width = keys.len() + calls.len();
            plan = Plan::Aggregate { input: Box::new(plan), keys, calls };
        }
        let (mut plan, placed) = self.layered(plan, width, having);
        let mut exprs = Vec::with_capacity(output.exprs.len());
        for typed in &output.exprs {
            let mut expr = typed.expr.clone();
            placed.put(&mut expr);
            exprs.push(expr);
        }
        let all = exprs.len();
        plan = Plan::Project(Box::new(plan), exprs);
        plan = match distinct_on {
            None => plan,
            Some(keys) if keys.is_empty() => {
                let plan = Plan::Distinct(Box::new(plan), None);
                if order_keys.is_empty() { plan } else { Plan::Sort(Box::new(plan), order_keys.clone()) }
            }
            Some(keys) => {
                let keys: Vec<Expr> = keys.into_iter().map(Expr::Column).collect();
                let sorted =
                    if order_keys.is_empty() { plan } else { Plan::Sort(Box::new(plan), order_keys.clone()) };
                Plan::Distinct(Box::new(sorted), Some(keys))
            }
        };
        if select.distinct.is_none() && !order_keys.is_empty() {
            plan = Plan::Sort(Box::new(plan), order_keys);
        }
        if !targets.is_empty() {
            self.locks = true;
            plan = Plan::Lock { input: Box::new(plan), targets, few: false };
        }
        if all > items {
            plan = Plan::Cut(Box::new(plan), items);
        }
        if keeps_unknown {
            self.kept_at = output.exprs.iter().take(items).map(|typed| typed.at).collect();
        }
        let columns = output.exprs.iter().take(items).zip(output.names);
        let columns =
            columns.map(|(typed, name)| Column { name, ty: typed.ty, modifier: typed.modifier }).collect();
        Ok(BoundQuery { plan, columns, locks: false })
    }

    /// The tables whose rows are locked; their rows' numbers become columns of the output.
    fn lock_targets(&mut self, locks: &[Locking], output: &mut Output) -> Result<Vec<LockTarget>> {
        let mut targets: Vec<LockTarget> = Vec::new();
        let named = self.frame().named.clone();
        for lock in locks {
            for of in &lock.of {
                if !named.iter().any(|(name, ..)| *name == of.name) {
                    let message = format!(
                        "relation \"{}\" in {} clause not found in FROM clause",
                        of.name,
                        clause(lock)
                    );
                    return Err(Error::new("42P01", message).at(of.at));
                }
            }
            for (name, table, scan) in &named {
                if !lock.of.is_empty() && !lock.of.iter().any(|of| of.name == *name) {
                    continue;
                }
                if let Some(known) = targets.iter_mut().find(|target| target.scan == *scan) {
                    // The strongest of several, and the least patient.
                    known.strength = known.strength.max(lock.strength);
                    known.wait = if lock.wait == LockWait::Wait { known.wait } else { lock.wait };
                    continue;
                }
                let columns = &self.frame().columns;
                let number = columns.iter().find(|column| column.name.is_empty() && column.table == *name);
                let number = number.expect("a scan that numbers its rows has a nameless column").index;
                targets.push(LockTarget {
                    table: table.clone(),
                    scan: *scan,
                    place: output.exprs.len(),
                    strength: lock.strength,
                    wait: lock.wait,
                });
                output.exprs.push(Typed::new(Expr::Column(number), Type::Int8, crate::error::NOWHERE));
            }
        }
        Ok(targets)
    }

    /// The keys of GROUP BY: expressions, numbers of output columns, or names of them.
    fn group_keys(&mut self, select: &Select) -> Result<Vec<(ast::Expr, Option<usize>, Typed)>> {
        let mut keys = Vec::new();
        self.frame().no_aggregates = Some("GROUP BY");
        for written in &select.group {
            let mut meant = written.clone();
            match &written.kind {
                ExprKind::Int(number) => {
                    let place = place_of(*number, select.items.len(), written.at).map_err(|_| {
                        Error::new("42P10", format!("GROUP BY position {number} is not in select list"))
                            .at(written.at)
                    })?;
                    meant = select.items[place].expr.clone();
                }
                // The name of an input column goes before that of an output column.
                ExprKind::Column(names) if names.len() == 1 && self.column(names, written.at).is_err() => {
                    let named = select.items.iter().find(|item| item.alias.as_ref() == Some(&names[0]));
                    if let Some(item) = named {
                        meant = item.expr.clone();
                    }
                }
                _ => {}
            }
            let typed = self.expr(&meant)?;
            let typed = if typed.ty == Type::Unknown { self.implicit(typed, Type::Text)? } else { typed };
            has_equality(typed.ty, written.at)?;
            let column = match typed.expr {
                Expr::Column(index) if index < SUB_BASE => Some(index),
                _ => None,
            };
            keys.push((meant, column, typed));
        }
        self.frame().no_aggregates = None;
        self.add_functional_columns(&mut keys);
        Ok(keys)
    }

    /// All columns of a table whose whole primary key is grouped by belong to the group.
    fn add_functional_columns(&mut self, keys: &mut Vec<(ast::Expr, Option<usize>, Typed)>) {
        let frame = self.frames.last().expect("a query is being bound");
        let mut more: Vec<ScopeColumn> = Vec::new();
        for table in &frame.tables {
            let Some(primary) = frame.primary_keys.iter().find(|(name, _)| name == table) else { continue };
            let mine: Vec<&ScopeColumn> =
                frame.columns.iter().filter(|column| column.table == *table).collect();
            let grouped = |name: &String| {
                let column = mine.iter().find(|column| column.name == *name);
                column.is_some_and(|column| keys.iter().any(|(_, key, _)| *key == Some(column.index)))
            };
            if primary.1.iter().all(grouped) && !primary.1.is_empty() {
                more.extend(mine.into_iter().filter(|column| !column.hidden).cloned());
            }
        }
        for column in more {
            if keys.iter().any(|(_, key, _)| *key == Some(column.index)) {
                continue;
            }
            column.note();
            let at = crate::error::NOWHERE;
            let written = ast::Expr {
                at,
                depth: 1,
                kind: ExprKind::Column(vec![column.table.clone(), column.name.clone()]),
            };
            let mut typed = Typed::new(Expr::Column(column.index), column.ty, at);
            typed.modifier = column.modifier;
            keys.push((written, Some(column.index), typed));
        }
    }

    /// The select list, with `*` written out. Literals of no type are texts, unless they are kept for what stands around the query.
    fn items(&mut self, items: &[ast::Item], keeps_unknown: bool) -> Result<Output> {
        let mut output = Output { exprs: Vec::new(), names: Vec::new(), written: Vec::new() };
        for item in items {
            if let ExprKind::Star(names) = &item.expr.kind {
                self.star(names, item.expr.at, &mut output)?;
                continue;
            }
            if item.alias.is_none() {
                self.note_label(&item.expr);
            }
            let mut typed = self.expr(&item.expr)?;
            let is_kept = keeps_unknown && matches!(typed.expr, Expr::Const(_) | Expr::Param(_));
            if typed.ty == Type::Unknown && !is_kept {
                typed = self.implicit(typed, Type::Text)?;
            }
            output.names.push(item.alias.clone().unwrap_or_else(|| column_name(&item.expr)));
            output.written.push((item.expr.clone(), output.exprs.len()));
            output.exprs.push(typed);
        }
        Ok(output)
    }

    fn star(&mut self, names: &[String], at: u32, output: &mut Output) -> Result<()> {
        let table = names.last();
        let frame = self.frames.last().expect("a query is being bound");
        if frame.tables.is_empty() {
            return Err(Error::new("42601", "SELECT * with no tables specified is not valid").at(at));
        }
        if let Some(table) = table
            && !frame.tables.contains(table)
        {
            return Err(
                Error::new("42P01", format!("missing FROM-clause entry for table \"{table}\"")).at(at)
            );
        }
        let columns: Vec<ScopeColumn> = frame
            .columns
            .iter()
            .filter(|column| !column.hidden && table.map_or(!column.merged, |table| column.table == *table))
            .cloned()
            .collect();
        let mut seen = Vec::new();
        if self.views.is_empty() {
            let written = |column: &ScopeColumn| {
                format!("{}.{}", crate::names::quoted(&column.table), crate::names::quoted(&column.name))
            };
            self.stars.push((at, names.len(), columns.iter().map(written).collect()));
        }
        for column in columns {
            // The column of USING stands there twice.
            if table.is_some() && seen.contains(&column.index) {
                continue;
            }
            seen.push(column.index);
            column.note();
            let mut typed = Typed::new(Expr::Column(column.index), column.ty, at);
            typed.modifier = column.modifier;
            if let Some(group) = &self.frame().group {
                let place = group.keys.iter().position(|(_, key, _)| *key == Some(column.index));
                let Some(place) = place else {
                    return Err(super::scope::ungrouped(&column.table, &column.name).at(at));
                };
                typed.expr = Expr::Column(place);
            }
            output.names.push(column.name);
            output.exprs.push(typed);
        }
        Ok(())
    }

    /// Columns of the output that DISTINCT ON keeps one row of each of; an empty list: DISTINCT.
    fn distinct_keys(&mut self, select: &Select, output: &mut Output) -> Result<Option<Vec<usize>>> {
        let Some(on) = &select.distinct else { return Ok(None) };
        for place in (0..output.exprs.len()).filter(|_| on.is_empty()) {
            self.text_at(output, place)?;
            has_equality(output.exprs[place].ty, output.exprs[place].at)?;
        }
        let mut keys = Vec::new();
        for expr in on {
            let place = self.output_column(expr, output, "DISTINCT ON")?;
            self.text_at(output, place)?;
            keys.push(place);
        }
        Ok(Some(keys))
    }

    fn order_keys(
        &mut self,
        select: &Select,
        order: &[OrderItem],
        output: &mut Output,
    ) -> Result<Vec<SortKey>> {
        let visible = output.exprs.len();
        let mut keys = Vec::new();
        for item in order {
            let place = self.output_column(&item.expr, output, "ORDER BY")?;
            if select.distinct.as_ref().is_some_and(Vec::is_empty) && place >= visible {
                return Err(Error::new(
                    "42P10",
                    "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                )
                .at(item.expr.at));
            }
            self.text_at(output, place)?;
            has_order(output.exprs[place].ty, item.expr.at)?;
            // Of equal values there is no other order (`targetIsInSortList`).
            if !keys.iter().any(|key: &SortKey| matches!(key.expr, Expr::Column(known) if known == place)) {
                keys.push(sort_key(Expr::Column(place), item));
            }
        }
        Ok(keys)
    }

    /// Gives a type to a column that is sorted or told apart: a literal that kept none is a text.
    fn text_at(&mut self, output: &mut Output, place: usize) -> Result<()> {
        if output.exprs[place].ty == Type::Unknown {
            output.exprs[place] = self.implicit(output.exprs[place].clone(), Type::Text)?;
        }
        Ok(())
    }

    /// The output column that an expression of ORDER BY means; one is added where it is none of the list.
    fn output_column(&mut self, expr: &ast::Expr, output: &mut Output, what: &str) -> Result<usize> {
        match &expr.kind {
            ExprKind::Int(number) => {
                return place_of(*number, output.names.len(), expr.at).map_err(|_| {
                    Error::new("42P10", format!("{what} position {number} is not in select list")).at(expr.at)
                });
            }
            ExprKind::Column(names) if names.len() == 1 => {
                let mut found = (0..output.names.len()).filter(|place| output.names[*place] == names[0]);
                if let Some(first) = found.next() {
                    let same = |place: usize| match (&output.exprs[first].expr, &output.exprs[place].expr) {
                        (Expr::Column(a), Expr::Column(b)) => a == b,
                        _ => false,
                    };
                    if found.all(same) {
                        return Ok(first);
                    }
                    return Err(
                        Error::new("42702", format!("{what} \"{}\" is ambiguous", names[0])).at(expr.at)
                    );
                }
            }
            _ => {}
        }
        if let Some((known, place)) = output.written.iter().find(|(known, _)| known == expr) {
            self.note_alike(known, expr);
            return Ok(*place);
        }
        let typed = self.expr(expr)?;
        let typed = if typed.ty == Type::Unknown { self.implicit(typed, Type::Text)? } else { typed };
        if let Expr::Column(index) = typed.expr {
            let known =
                output.exprs.iter().position(|other| matches!(other.expr, Expr::Column(it) if it == index));
            if let Some(known) = known {
                return Ok(known);
            }
        }
        output.written.push((expr.clone(), output.exprs.len()));
        output.exprs.push(typed);
        Ok(output.exprs.len() - 1)
    }

    /// `RETURNING` over the columns of this frame.
    pub(super) fn returning(&mut self, items: &[ast::Item]) -> Result<Option<crate::plan::Returning>> {
        if items.is_empty() {
            return Ok(None);
        }
        self.frame().no_aggregates = Some("RETURNING");
        let output = self.items(items, false)?;
        if !self.frame().subs.is_empty() {
            return Err(Error::unsupported("a sub-query in RETURNING"));
        }
        let columns = output.exprs.iter().zip(output.names);
        let columns =
            columns.map(|(typed, name)| Column { name, ty: typed.ty, modifier: typed.modifier }).collect();
        let exprs = output.exprs.into_iter().map(|typed| typed.expr).collect();
        Ok(Some(crate::plan::Returning { exprs, columns }))
    }
}

/// The literal or parameter that makes a column of a plan, if it is one.
pub(super) fn made_by(plan: &mut Plan, place: usize) -> Option<&mut Expr> {
    match plan {
        Plan::Project(_, made) => {
            made.get_mut(place).filter(|expr| matches!(expr, Expr::Const(_) | Expr::Param(_)))
        }
        Plan::Cut(input, _)
        | Plan::Sort(input, _)
        | Plan::Limit { input, .. }
        | Plan::Distinct(input, _)
        | Plan::Lock { input, .. } => made_by(input, place),
        _ => None,
    }
}

/// The expressions of DISTINCT ON stand first in ORDER BY, in any order among themselves (`transformDistinctOnClause`).
fn leads_the_order(on: &[ast::Expr], keys: &[usize], order: &[SortKey]) -> Result<()> {
    let place_in_on = |key: &SortKey| match key.expr {
        Expr::Column(place) => keys.iter().position(|known| *known == place),
        _ => None,
    };
    let leading = order.iter().take_while(|key| place_in_on(key).is_some()).count();
    let (first, rest) = order.split_at(leading);
    let late = rest.iter().find_map(place_in_on);
    let is_missing = |number: &usize| {
        let place = keys[*number];
        !first.iter().any(|key| matches!(key.expr, Expr::Column(known) if known == place))
    };
    let missing = (0..keys.len()).filter(|_| !rest.is_empty()).find(is_missing);
    match late.or(missing) {
        None => Ok(()),
        Some(number) => {
            let message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
            Err(Error::new("42P10", message).at(on[number].at))
        }
    }
}

/// Texts of `json` have no order.
pub(super) fn has_order(ty: Type, at: u32) -> Result<()> {
    if ty == Type::Json {
        return Err(Error::new("42883", "could not identify an ordering operator for type json").at(at));
    }
    Ok(())
}

/// Texts of `json` are never equal, however alike.
pub(super) fn has_equality(ty: Type, at: u32) -> Result<()> {
    if ty == Type::Json {
        return Err(Error::new("42883", "could not identify an equality operator for type json").at(at));
    }
    Ok(())
}

fn clause(lock: &Locking) -> &'static str {
    match lock.strength {
        Strength::Update => "FOR UPDATE",
        Strength::NoKeyUpdate => "FOR NO KEY UPDATE",
        Strength::Share => "FOR SHARE",
        Strength::KeyShare => "FOR KEY SHARE",
    }
}

fn not_lockable(lock: &Locking, what: &str) -> Error {
    Error::new("0A000", format!("{} is not allowed with {what}", clause(lock)))
}

fn sort_key(expr: Expr, item: &OrderItem) -> SortKey {
    SortKey { expr, descending: item.descending, nulls_first: item.nulls_first }
}

fn place_of(number: i64, count: usize, at: u32) -> Result<usize> {
    let place = usize::try_from(number - 1).ok().filter(|place| *place < count);
    place.ok_or_else(|| {
        Error::new("42P10", format!("ORDER BY position {number} is not in select list")).at(at)
    })
}

/// Puts answers of sub-queries behind the first `width` columns.
pub(super) fn place_subs(expr: &mut Expr, width: usize) {
    expr.rewrite(&mut |node| {
        if let Expr::Column(index) = node
            && (SUB_BASE..SUB_BASE * 2).contains(index)
        {
            *index = *index - SUB_BASE + width;
        }
    });
}

/// Sub-queries whose answers stand behind so many columns find those before them there.
pub(super) fn place_answers(subs: &mut [Sub], width: usize) {
    for sub in subs {
        sub.captures.iter_mut().for_each(|capture| place_subs(capture, width));
        match &mut sub.kind {
            SubKind::In(arg) | SubKind::Quantified { arg, .. } => place_subs(arg, width),
            SubKind::Scalar | SubKind::Exists => {}
        }
    }
}

/// The plan with the answers of sub-queries behind its columns. A sub-query may need the answer of one before it.
pub(super) fn applied(plan: Plan, mut subs: Vec<Sub>, width: &mut usize) -> Plan {
    if subs.is_empty() {
        return plan;
    }
    place_answers(&mut subs, *width);
    *width += subs.len();
    Plan::Apply(Box::new(plan), subs)
}

/// The name of a column that none is given to.
pub(super) fn column_name(expr: &ast::Expr) -> String {
    figured(expr).0
}

/// A name, and whether it is one that a cast around the expression keeps (`FigureColname`).
fn figured(expr: &ast::Expr) -> (String, bool) {
    let strong = |name: &str| (name.to_owned(), true);
    match &expr.kind {
        ExprKind::Column(names) => (names.last().cloned().unwrap_or_default(), true),
        ExprKind::Call(call) => (call.name.last().cloned().unwrap_or_default(), true),
        ExprKind::Cast(arg, ty) => match figured(arg) {
            (name, true) => (name, true),
            _ => {
                let fields = ty.name.len() == 2 && ty.name[0] == "interval";
                let name = if fields { &ty.name[0] } else { ty.name.last().expect("a type has a name") };
                (Type::from_name(name).map_or(name.clone(), |ty| ty.name().to_owned()), false)
            }
        },
        ExprKind::Case { other, .. } => match other.as_deref().map(figured) {
            Some((name, true)) => (name, true),
            _ => ("case".to_owned(), false),
        },
        ExprKind::Coalesce(_) => strong("coalesce"),
        ExprKind::NullIf(..) => strong("nullif"),
        ExprKind::Extreme(true, _) => strong("greatest"),
        ExprKind::Extreme(false, _) => strong("least"),
        ExprKind::Exists(_) => strong("exists"),
        ExprKind::Row(_) => strong("row"),
        ExprKind::Array(_) | ExprKind::ArrayQuery(_) => strong("array"),
        ExprKind::Field(_, name) => strong(name),
        ExprKind::Subscript(array, _) => figured(array),
        ExprKind::Bool(_) => ("bool".to_owned(), false),
        ExprKind::Collate(arg, _) => figured(arg),
        ExprKind::Scalar(query) => match innermost(&query.body) {
            SetExpr::Select(select) => match select.items.first() {
                Some(item) => item.alias.clone().map_or_else(|| figured(&item.expr), |alias| (alias, true)),
                None => ("?column?".to_owned(), false),
            },
            SetExpr::Values(_) => strong("column1"),
            _ => ("?column?".to_owned(), false),
        },
        _ => ("?column?".to_owned(), false),
    }
}

/// The query that stands in any number of parentheses.
fn innermost(body: &SetExpr) -> &SetExpr {
    match body {
        SetExpr::Query(query) => innermost(&query.body),
        body => body,
    }
}

/// The expressions that an expression is made of, but for those of its sub-queries.
pub(super) fn parts_of(expr: &ast::Expr) -> Vec<&ast::Expr> {
    match &expr.kind {
        ExprKind::Call(call) => {
            let over = call.over.as_deref().into_iter();
            let over =
                over.flat_map(|over| over.partition.iter().chain(over.order.iter().map(|it| &it.expr)));
            call.args.iter().chain(over).collect()
        }
        ExprKind::Unary(_, arg)
        | ExprKind::Not(arg)
        | ExprKind::IsNull(arg, _)
        | ExprKind::IsBool(arg, ..)
        | ExprKind::Cast(arg, _)
        | ExprKind::InQuery(arg, ..)
        | ExprKind::Collate(arg, _)
        | ExprKind::Field(arg, _)
        | ExprKind::Quantified { arg, of: ast::Quantified::Query(_), .. } => vec![arg],
        ExprKind::Binary(_, left, right)
        | ExprKind::IsDistinct(left, right, _)
        | ExprKind::Subscript(left, right)
        | ExprKind::NullIf(left, right)
        | ExprKind::Quantified { arg: left, of: ast::Quantified::Array(right), .. } => vec![left, right],
        ExprKind::And(all)
        | ExprKind::Or(all)
        | ExprKind::Row(all)
        | ExprKind::Array(all)
        | ExprKind::Coalesce(all)
        | ExprKind::Extreme(_, all) => all.iter().collect(),
        ExprKind::In(arg, list, _) => std::iter::once(&**arg).chain(list).collect(),
        ExprKind::Between { arg, low, high, .. } => vec![arg, low, high],
        ExprKind::Like { arg, pattern, escape, .. } => {
            [arg, pattern].into_iter().chain(escape).map(|part| &**part).collect()
        }
        ExprKind::Case { arg, whens, other } => {
            let ends = arg.iter().chain(other).map(|part| &**part);
            ends.chain(whens.iter().flat_map(|(condition, value)| [condition, value])).collect()
        }
        _ => Vec::new(),
    }
}

/// Rows of VALUES that have sub-queries: these are answered once, and the rows made of their answers.
pub(super) fn rows_with_subs(mut rows: Vec<Vec<Expr>>, subs: Vec<Sub>) -> Plan {
    let (answers, width) = (subs.len(), rows.first().map_or(0, Vec::len));
    // What the rows know of enclosing queries goes down with the answers.
    let mut outer = 0;
    for expr in rows.iter().flatten() {
        expr.walk(&mut |node| {
            if let Expr::Outer(place) = node {
                outer = outer.max(*place + 1);
            }
        });
    }
    for expr in rows.iter_mut().flatten() {
        expr.rewrite(&mut |node| {
            if let Expr::Column(index) = node
                && *index >= SUB_BASE
            {
                *node = Expr::Outer(outer + *index - SUB_BASE);
            }
        });
    }
    let captures = (0..outer).map(Expr::Outer).chain((0..answers).map(Expr::Column)).collect();
    let join = Join {
        kind: ast::JoinKind::Inner,
        left: applied(Plan::Unit, subs, &mut 0),
        right: Plan::Values(rows),
        left_width: answers,
        right_width: width,
        equal: Vec::new(),
        on: Vec::new(),
        lateral: Some(captures),
        asks: Vec::new(),
        judged: Vec::new(),
    };
    let made = (answers..answers + width).map(Expr::Column).collect();
    Plan::Project(Box::new(Plan::Join(Box::new(join))), made)
}
