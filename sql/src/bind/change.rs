//! INSERT, UPDATE, DELETE: the rows that they make or find, as plans; what they return, as expressions over those rows.

use std::sync::Arc;

use super::query::{applied, made_by, place_subs, rows_with_subs};
use super::scope::{Frame, Naming, ScopeColumn};
use super::{Binder, Typed};
use crate::catalog::Table;
use crate::error::{Error, Result, nearest};
use crate::expr::{Call, Expr};
use crate::functions::Context as Cast;
use crate::parser::ast::{
    self, Alias, Assignment, Conflict, Delete, ExprKind, Insert, Overriding, SetExpr, TableRef, Update,
};
use crate::plan::{BoundConflict, BoundDelete, BoundInsert, BoundUpdate, Plan, Sub, SubKind};
use crate::types::{Datum, NO_MOD, Type};

fn column_of(table: &Table, name: &str, at: u32) -> Result<usize> {
    let visible = |column: &crate::catalog::Column| !column.hidden && column.name == name;
    table.columns.iter().position(visible).ok_or_else(|| {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        let error = Error::new("42703", message).at(at);
        let names = table.columns.iter().filter(|column| !column.hidden).map(|column| column.name.as_str());
        match nearest(name, names) {
            Some(near) => error.hint(format!("Perhaps you meant the column \"{near}\".")),
            None => error,
        }
    })
}

/// The column that an assignment names, which no other one may.
fn target(table: &Table, (name, at): (&str, u32), all: &[(usize, Expr)]) -> Result<usize> {
    let column = column_of(table, name, at)?;
    if all.iter().any(|(other, _)| *other == column) {
        return Err(Error::new("42601", format!("multiple assignments to same column \"{name}\"")));
    }
    Ok(column)
}

impl Binder<'_> {
    /// What stands in a column that a statement gives no value.
    pub(crate) fn default_of(&mut self, table: &Table, column: usize) -> Result<Expr> {
        let column = &table.columns[column];
        let Some(text) = &column.default_text else {
            let default = column.default.as_ref().map_or(Datum::Null, crate::types::stored::datum_of);
            return Ok(Expr::Const(match (default, column.ty) {
                (default @ Datum::Text(_), Type::BpChar) => {
                    crate::types::text::fit(default, column.ty, column.modifier, false)?
                }
                (default, ty) => default.in_form_of(ty),
            }));
        };
        let parsed = crate::parser::parse_expr(text);
        let bound =
            parsed.and_then(|expr| self.kept(Vec::new(), |binder| binder.default_expr(&expr, column)));
        bound.map_err(Error::nowhere)
    }

    /// A default, for a column.
    pub(crate) fn default_expr(&mut self, expr: &ast::Expr, column: &crate::catalog::Column) -> Result<Expr> {
        let frames = std::mem::take(&mut self.frames);
        self.frames.push(Frame { no_aggregates: Some("DEFAULT expressions"), ..Frame::default() });
        let bound = self.expr(expr).and_then(|typed| {
            let (at, from) = (typed.at, typed.ty);
            self.assigned(typed, column).map_err(|error| match error.code {
                "42804" => {
                    let (name, ty, from) = (&column.name, column.ty.sql_name(), from.sql_name());
                    let message =
                        format!("column \"{name}\" is of type {ty} but default expression is of type {from}");
                    Error::new("42804", message)
                        .at(at)
                        .hint("You will need to rewrite or cast the expression.")
                        .nowhere()
                }
                _ => error,
            })
        });
        let inside = std::mem::replace(&mut self.frames, frames);
        if inside.iter().any(|frame| !frame.subs.is_empty()) {
            return Err(Error::new("0A000", "cannot use subquery in DEFAULT expression").at(expr.at));
        }
        bound.map_err(|error| match error.code {
            "42703" | "42P01"
                if error.message.starts_with("column ") || error.message.starts_with("missing FROM") =>
            {
                Error::new("0A000", "cannot use column reference in DEFAULT expression").at_that_of(&error)
            }
            _ => error,
        })
    }

    /// The text of a default, as the catalogs show it: constants as PostgreSQL shows them, and before the column's type has changed
    /// them; other expressions as they were written.
    pub(crate) fn default_shown(
        &mut self,
        expr: &ast::Expr,
        text: String,
        column: &crate::catalog::Column,
    ) -> Result<String> {
        let string = match &expr.kind {
            ExprKind::Int(_) | ExprKind::Number(_) | ExprKind::Bool(_) => false,
            ExprKind::Str(_) => true,
            ExprKind::Cast(arg, ty) if matches!(arg.kind, ExprKind::Str(_)) && ty.mods.is_empty() => false,
            // Words that are values are shown in capitals.
            _ if crate::keywords::is_value(&text) => return Ok(text.to_ascii_uppercase()),
            _ => return Ok(text),
        };
        let mut typed = self.expr(expr)?;
        if string && let Some(read) = self.coerce(typed.clone(), column.ty, NO_MOD, Cast::Assignment)? {
            typed = read;
        }
        match &typed.expr {
            Expr::Const(value) => Ok(crate::types::text::constant(value, typed.ty)),
            _ => Ok(text),
        }
    }

    /// The condition of a CHECK constraint, over the columns of its table.
    pub(crate) fn check_expr(&mut self, expr: &ast::Expr, table: &Table) -> Result<Expr> {
        let frames = std::mem::take(&mut self.frames);
        let name = crate::names::plain(&table.name);
        let (columns, used) = Self::table_columns(table, name, &[]);
        if self.meanings.is_some() {
            self.note_scan(&used, &Arc::new(table.clone()), 0);
        }
        let tables = vec![name.to_owned()];
        let no_aggregates = Some("check constraints");
        self.frames.push(Frame { columns, tables, no_aggregates, ..Frame::default() });
        let bound = self.condition(expr, "CHECK");
        let inside = std::mem::replace(&mut self.frames, frames);
        if inside.iter().any(|frame| !frame.subs.is_empty()) {
            return Err(Error::new("0A000", "cannot use subquery in check constraint").at(expr.at));
        }
        bound
    }

    /// An expression over the columns of a table, as USING of ALTER COLUMN TYPE has it.
    pub(crate) fn value_over(&mut self, expr: &ast::Expr, table: &Table) -> Result<Typed> {
        let name = crate::names::plain(&table.name);
        let (columns, _) = Self::table_columns(table, name, &[]);
        let no_aggregates = Some("transform expressions");
        self.frames.push(Frame { columns, tables: vec![name.to_owned()], no_aggregates, ..Frame::default() });
        let bound = self.expr(expr);
        let inside = self.frames.pop();
        if inside.is_some_and(|frame| !frame.subs.is_empty()) {
            return Err(Error::new("0A000", "cannot use subquery in transform expression").at(expr.at));
        }
        bound
    }

    /// The CHECK constraints of a table.
    pub(crate) fn checks(&mut self, table: &Table) -> Result<Vec<(String, Expr)>> {
        let mut all = Vec::with_capacity(table.checks.len());
        for (name, text) in &table.checks {
            let parsed = crate::parser::parse_expr(text);
            let bound =
                parsed.and_then(|expr| self.kept(Vec::new(), |binder| binder.check_expr(&expr, table)));
            all.push((name.clone(), bound.map_err(Error::nowhere)?));
        }
        Ok(all)
    }

    /// What all columns of a row have that is given none.
    fn defaults(&mut self, table: &Table, given: &[usize]) -> Result<Vec<Expr>> {
        (0..table.columns.len())
            .map(|column| match given.contains(&column) {
                true => Ok(Expr::Const(Datum::Null)),
                false => self.default_of(table, column),
            })
            .collect()
    }

    pub(super) fn insert(&mut self, insert: &Insert) -> Result<BoundInsert> {
        let table = self.table(&insert.table)?;
        let known = self.ctes.len();
        self.know(&insert.with)?;
        let mut targets = Vec::new();
        for (name, at) in &insert.columns {
            let column = column_of(&table, name, *at)?;
            if targets.contains(&column) {
                return Err(
                    Error::new("42701", format!("column \"{name}\" specified more than once")).at(*at)
                );
            }
            targets.push(column);
        }
        if insert.columns.is_empty() {
            targets = (0..table.columns.len()).filter(|column| !table.columns[*column].hidden).collect();
        }
        let source = self.insert_source(insert, &table, &targets);
        let (plan, given) = self.forget(known, source)?;
        let name = insert.alias.as_ref().unwrap_or(&insert.table.name);
        let (columns, _) = Self::table_columns(&table, name, &[]);
        let conflict = match &insert.conflict {
            Some(conflict) => Some(self.conflict(conflict, &table, columns.clone())?),
            None => None,
        };
        self.frames.push(Frame { columns, tables: vec![name.clone()], ..Frame::default() });
        let returning = self.returning(&insert.returning);
        self.frames.pop();
        let checks = self.checks(&table)?;
        Ok(BoundInsert { table, plan, given, checks, conflict, returning: returning? })
    }

    /// The rows to insert, with all columns of the table, and which of these the statement gives.
    fn insert_source(
        &mut self,
        insert: &Insert,
        table: &Arc<Table>,
        targets: &[usize],
    ) -> Result<(Plan, Vec<bool>)> {
        let mut given = vec![false; table.columns.len()];
        let Some(source) = &insert.source else {
            return Ok((Plan::Values(vec![self.defaults(table, &[])?]), given));
        };
        let too_many = |count: usize, at: u32| {
            if count > targets.len() {
                return Err(Error::new("42601", "INSERT has more expressions than target columns").at(at));
            }
            if count < targets.len() && !insert.columns.is_empty() {
                return Err(Error::new("42601", "INSERT has more target columns than expressions")
                    .at(insert.columns[count].1));
            }
            Ok(())
        };
        if let SetExpr::Values(rows) = &source.body
            && source.order.is_empty()
            && source.limit.is_none()
            && source.with.is_empty()
        {
            return self.insert_values((rows, insert.overriding), table, targets, &too_many);
        }
        let ((mut bound, _), written) = self.keeping_unknown(|binder| binder.sub_query(source))?;
        too_many(bound.columns.len(), source.at)?;
        let mut exprs = self.defaults(table, &targets[..bound.columns.len()])?;
        for (place, column) in bound.columns.iter().enumerate() {
            let target = &table.columns[targets[place]];
            if target.identity.is_some() && insert.overriding == Some(Overriding::User) {
                exprs[targets[place]] = self.default_of(table, targets[place])?;
                continue;
            }
            if target.identity == Some(true) && insert.overriding.is_none() {
                return Err(always(&target.name));
            }
            // A literal or a parameter in the list of a SELECT has the type of its column.
            let at = written.get(place).copied().unwrap_or(source.at);
            let literal = made_by(&mut bound.plan, place).filter(|_| column.ty == Type::Unknown);
            let typed = match literal {
                Some(expr) => Typed::new(expr.clone(), Type::Unknown, at),
                None => Typed { modifier: column.modifier, ..Typed::new(Expr::Column(place), column.ty, at) },
            };
            exprs[targets[place]] = self.assigned(typed, &table.columns[targets[place]])?;
            given[targets[place]] = true;
        }
        Ok((Plan::Project(Box::new(bound.plan), exprs), given))
    }

    fn insert_values(
        &mut self,
        (rows, overriding): (&[Vec<ast::Expr>], Option<Overriding>),
        table: &Arc<Table>,
        targets: &[usize],
        check: &dyn Fn(usize, u32) -> Result<()>,
    ) -> Result<(Plan, Vec<bool>)> {
        let mut given = vec![false; table.columns.len()];
        let mut out = Vec::with_capacity(rows.len());
        self.frames.push(Frame { no_aggregates: Some("VALUES"), ..Frame::default() });
        for row in rows {
            if row.len() != rows[0].len() {
                return Err(Error::new("42601", "VALUES lists must all be the same length").at(row[0].at));
            }
            let past = row.get(targets.len()).or(row.last()).map_or(0, |expr| expr.at);
            check(row.len(), past)?;
            let mut exprs = self.defaults(table, &targets[..row.len()])?;
            for (expr, target) in row.iter().zip(targets) {
                let identity = table.columns[*target].identity;
                if expr.kind == ExprKind::Default
                    || (identity.is_some() && overriding == Some(Overriding::User))
                {
                    exprs[*target] = self.default_of(table, *target)?;
                    continue;
                }
                if identity == Some(true) && overriding.is_none() {
                    return Err(always(&table.columns[*target].name));
                }
                let typed = self.expr(expr)?;
                exprs[*target] = self.assigned(typed, &table.columns[*target])?;
                given[*target] = true;
            }
            out.push(exprs);
        }
        let frame = self.frames.pop().expect("the frame was just put there");
        // A number that one row gives and another leaves to the table.
        let mixed = rows.iter().any(|row| row.iter().any(|expr| expr.kind == ExprKind::Default));
        if mixed && table.columns.iter().enumerate().any(|(column, it)| it.numbered && given[column]) {
            given.iter_mut().zip(&table.columns).for_each(|(given, column)| *given &= !column.numbered);
        }
        if frame.subs.is_empty() {
            return Ok((Plan::Values(out), given));
        }
        Ok((rows_with_subs(out, frame.subs), given))
    }

    fn conflict(
        &mut self,
        conflict: &Conflict,
        table: &Arc<Table>,
        columns: Vec<ScopeColumn>,
    ) -> Result<BoundConflict> {
        let index = self.conflict_index(conflict, table)?;
        let Some((set, condition)) = &conflict.update else {
            return Ok(BoundConflict { index, update: None });
        };
        if index.is_none() {
            return Err(Error::new(
                "42601",
                "ON CONFLICT DO UPDATE requires inference specification or constraint name",
            )
            .at(conflict.at)
            .hint("For example, ON CONFLICT (column_name)."));
        }
        let mut all = columns;
        let name = all.first().map(|column| column.table.clone()).unwrap_or_default();
        let (mut excluded, _) = Self::table_columns(table, "excluded", &[]);
        excluded.iter_mut().for_each(|column| column.index += table.columns.len());
        // A name without a table means the row that is there.
        excluded.iter_mut().for_each(|column| column.merged = true);
        all.extend(excluded);
        let tables = vec![name, "excluded".to_owned()];
        self.frames.push(Frame { columns: all, tables, no_aggregates: Some("UPDATE"), ..Frame::default() });
        let bound = self.assignments(set, table).and_then(|set| {
            let condition = match condition {
                Some(condition) => Some(self.condition(condition, "WHERE")?),
                None => None,
            };
            Ok((set, condition))
        });
        let frame = self.frames.pop().expect("the frame was just put there");
        if !frame.subs.is_empty() {
            return Err(Error::unsupported("a sub-query in ON CONFLICT DO UPDATE").at(conflict.at));
        }
        Ok(BoundConflict { index, update: Some(bound?) })
    }

    fn conflict_index(&self, conflict: &Conflict, table: &Table) -> Result<Option<usize>> {
        if let Some(name) = &conflict.constraint {
            let found = table.indexes.iter().position(|index| index.unique && index.name == *name);
            return found.map(Some).ok_or_else(|| {
                let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
                Error::new("42704", message).at(conflict.at)
            });
        }
        if conflict.columns.is_empty() {
            return Ok(None);
        }
        let mut wanted = Vec::new();
        for (name, at) in &conflict.columns {
            wanted.push(column_of(table, name, *at)?);
        }
        wanted.sort_unstable();
        let matches = |index: &crate::catalog::Index| {
            let mut columns: Vec<usize> = index.columns.iter().map(|(column, _)| *column).collect();
            columns.sort_unstable();
            index.unique && columns == wanted
        };
        table.indexes.iter().position(matches).map(Some).ok_or_else(|| {
            let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
            Error::new("42P10", message)
        })
    }

    /// Columns and their new values.
    fn assignments(&mut self, set: &[Assignment], table: &Arc<Table>) -> Result<Vec<(usize, Expr)>> {
        let mut all: Vec<(usize, Expr)> = Vec::new();
        for assignment in set {
            if let (columns @ [_, _, ..], ExprKind::Scalar(query)) =
                (&assignment.columns[..], &assignment.value.kind)
            {
                self.assigned_row(columns, (query, assignment.value.at), table, &mut all)?;
                continue;
            }
            let values: Vec<&ast::Expr> = match (&assignment.columns[..], &assignment.value.kind) {
                ([_], _) => vec![&assignment.value],
                (columns, ExprKind::Row(values)) if values.len() == columns.len() => values.iter().collect(),
                (_, ExprKind::Row(_)) => {
                    let message = "number of columns does not match number of values";
                    return Err(Error::new("42601", message).at(assignment.columns[0].1));
                }
                _ => {
                    let message =
                        "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression";
                    return Err(Error::new("0A000", message).at(assignment.value.at));
                }
            };
            for ((name, at), value) in assignment.columns.iter().zip(values) {
                let column = target(table, (name, *at), &all)?;
                let expr = if value.kind == ExprKind::Default {
                    self.default_of(table, column)?
                } else {
                    let typed = self.expr(value)?;
                    self.updated(typed, &table.columns[column])?
                };
                all.push((column, expr));
            }
        }
        Ok(all)
    }

    /// The new value of a column.
    fn updated(&mut self, value: Typed, column: &crate::catalog::Column) -> Result<Expr> {
        if column.identity == Some(true) {
            let name = &column.name;
            let message = format!("column \"{name}\" can only be updated to DEFAULT");
            let detail = format!("Column \"{name}\" is an identity column defined as GENERATED ALWAYS.");
            return Err(Error::new("428C9", message).detail(detail));
        }
        self.assigned(value, column)
    }

    /// `(a, b) = (SELECT …)`: the query is asked once, and its one row, or nulls, goes into the columns.
    fn assigned_row(
        &mut self,
        columns: &[(String, u32)],
        (query, at): (&ast::Query, u32),
        table: &Arc<Table>,
        all: &mut Vec<(usize, Expr)>,
    ) -> Result<()> {
        let before = self.volatile;
        let (bound, captures) = self.sub_query(query)?;
        let volatile = self.volatile > before;
        if bound.columns.len() != columns.len() {
            let message = "number of columns does not match number of values";
            return Err(Error::new("42601", message).at(at));
        }
        let types: Vec<Type> = bound.columns.iter().map(|column| column.ty).collect();
        let fields = (0..types.len()).map(Expr::Column).collect();
        let row = Expr::Record(fields, crate::types::Shape::unnamed(types));
        let plan = Plan::Project(Box::new(bound.plan), vec![row]);
        let row = self.lifted(Sub { plan, captures, kind: SubKind::Scalar, volatile }, Type::Record, at);
        let field = Call::Two(|row, place| match (row, place) {
            (Datum::Record(fields), Datum::Int(place)) => Ok(fields[*place as usize].clone()),
            _ => Ok(Datum::Null),
        });
        for (place, ((name, at), made)) in columns.iter().zip(&bound.columns).enumerate() {
            let column = target(table, (name, *at), all)?;
            let value = Expr::Call(field, vec![row.expr.clone(), Expr::Const(Datum::Int(place as i64))]);
            let typed = Typed { modifier: made.modifier, ..Typed::new(value, made.ty, *at) };
            all.push((column, self.updated(typed, &table.columns[column])?));
        }
        Ok(())
    }

    /// The rows of the table (first, then what names them) and of what it is joined with.
    fn changed_rows(
        &mut self,
        table: &ast::ObjectName,
        alias: &Option<String>,
        others: &[TableRef],
        condition: Option<&ast::Expr>,
    ) -> Result<(Arc<Table>, Plan, usize)> {
        let found = self.table(table)?;
        let alias = Alias { name: alias.clone(), columns: Vec::new() };
        let mut refs = vec![TableRef::Table {
            name: ast::ObjectName {
                schema: Some(crate::names::schema_of(&found.name).to_owned()),
                ..table.clone()
            },
            alias,
        }];
        refs.extend(others.iter().cloned());
        self.frame().naming = Naming::First;
        let (plan, width) = self.from(&refs, condition)?;
        let own = found.columns.len();
        self.frame().columns.iter().take(own).for_each(ScopeColumn::note);
        Ok((found, plan, width))
    }

    pub(super) fn update(&mut self, update: &Update) -> Result<BoundUpdate> {
        let known = self.ctes.len();
        self.know(&update.with)?;
        self.frames.push(Frame::default());
        let bound = self.update_inside(update);
        self.frames.pop();
        self.forget(known, bound)
    }

    fn update_inside(&mut self, update: &Update) -> Result<BoundUpdate> {
        let (table, plan, mut width) =
            self.changed_rows(&update.table, &update.alias, &update.from, update.condition.as_ref())?;
        self.frame().no_aggregates = Some("UPDATE");
        let set = self.assignments(&update.set, &table)?;
        let subs = std::mem::take(&mut self.frame().subs);
        let base = width;
        let plan = applied(plan, subs, &mut width);
        let mut exprs: Vec<Expr> =
            self.frame().columns.iter().map(|column| Expr::Column(column.index)).collect();
        let own = exprs.len();
        // RETURNING sees the row after the change at the places of the table's columns.
        self.frame().columns.iter_mut().enumerate().for_each(|(place, column)| column.index = place);
        let mut columns = Vec::new();
        for (column, mut expr) in set {
            place_subs(&mut expr, base);
            columns.push(column);
            exprs.push(expr);
        }
        let others: Vec<ScopeColumn> = self.frame().columns.clone();
        if !update.returning.is_empty() {
            others.iter().for_each(ScopeColumn::note);
        }
        let returning = self.returning(&update.returning)?;
        let plan = Plan::Project(Box::new(plan), exprs);
        let scan = self.frame().named[0].2;
        let checks = self.checks(&table)?;
        Ok(BoundUpdate { table, plan, scan, width: own, columns, checks, returning })
    }

    pub(super) fn delete(&mut self, delete: &Delete) -> Result<BoundDelete> {
        let known = self.ctes.len();
        self.know(&delete.with)?;
        self.frames.push(Frame::default());
        let bound = self.delete_inside(delete);
        self.frames.pop();
        self.forget(known, bound)
    }

    fn delete_inside(&mut self, delete: &Delete) -> Result<BoundDelete> {
        let (table, plan, _) =
            self.changed_rows(&delete.table, &delete.alias, &delete.using, delete.condition.as_ref())?;
        let exprs: Vec<Expr> = self.frame().columns.iter().map(|column| Expr::Column(column.index)).collect();
        self.frame().columns.iter_mut().enumerate().for_each(|(place, column)| column.index = place);
        let returning = self.returning(&delete.returning)?;
        let scan = self.frame().named[0].2;
        Ok(BoundDelete { table, plan: Plan::Project(Box::new(plan), exprs), scan, returning })
    }

    /// Is an expression the same wherever it is evaluated, so that a constant may stand for it?
    pub(super) fn is_constant(bound: &Expr) -> bool {
        let mut constant = true;
        bound.walk(&mut |node| {
            constant &= match node {
                Expr::Column(_) | Expr::Outer(_) | Expr::Param(_) | Expr::Input(..) => false,
                Expr::Call(Call::None(_) | Call::OneIn(_) | Call::TwoIn(_), _) => false,
                Expr::Output(_, ty) => !ty.shows_zone(),
                _ => true,
            };
        });
        constant
    }

    /// A default as the constant that it is; none if it is none.
    pub(crate) fn constant_default(bound: &Expr) -> Option<Datum> {
        if !Self::is_constant(bound) {
            return None;
        }
        // What needs the session, such as `nextval`, fails here.
        let context = crate::expr::Context::default();
        bound.eval(&crate::expr::Env { row: &[], outer: &[], context: &context }).ok()
    }
}

/// A value for a column that has always the sequence's.
fn always(name: &str) -> Error {
    Error::new("428C9", format!("cannot insert a non-DEFAULT value into column \"{name}\""))
        .detail(format!("Column \"{name}\" is an identity column defined as GENERATED ALWAYS."))
        .hint("Use OVERRIDING SYSTEM VALUE to override.")
}
