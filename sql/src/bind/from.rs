//! FROM and WHERE: relations, their joins, and the order in which inner joins are done.
//!
//! All relations that inner joins connect are collected with all conditions on them; each condition goes to where its columns
//! are: into a scan (and so into the choice of its index), into a join, or behind the joins. Joins are ordered greedily: the
//! relation with the fewest rows first (a unique key that is given makes one row), then the smallest one that an equality
//! connects. Outer joins are one relation to those around them.

use std::cell::RefCell;
use std::rc::Rc;

use super::query::{applied, place_answers, place_subs};
use super::recursive::Within;
use super::scope::{FrameKind, Naming, ScopeColumn, THERE};
use super::{Binder, SUB_BASE, Typed};
use crate::catalog::Table;
use crate::depth;
use crate::error::{Error, NOWHERE, Result};
use crate::expr::{Call, Comparison, Expr};
use crate::optimize::access;
use crate::parser::ast::{self, Alias, ExprKind, JoinKind, JoinOn, TableRef};
use crate::plan::{Access, Join, Plan, Sub, SubKind};
use crate::types::Type;

/// Something that has rows, with its columns counted from 0.
pub(super) struct Relation {
    plan: Plan,
    columns: Vec<ScopeColumn>,
    tables: Vec<String>,
    primary_keys: Vec<(String, Vec<String>)>,
    width: usize,
    /// For each row of what stands before it: those of its values that it needs, by places in all relations.
    lateral: Option<Vec<Expr>>,
}

impl Relation {
    /// An outer join may put nulls in place of its rows: each of its tables gets a column that is null then and only then. A key's does;
    /// a table without one gets a column more.
    fn may_be_absent(&mut self) {
        let mut constant = None;
        for table in &self.tables {
            let mine = |column: &&ScopeColumn| column.table == *table;
            if self.columns.iter().filter(mine).any(|column| column.name == THERE) {
                continue;
            }
            let key = self.primary_keys.iter().find(|(name, _)| name == table).map(|(_, key)| key);
            let is_key =
                |column: &&ScopeColumn| key.is_some_and(|key| key.contains(&column.name)) && !column.merged;
            let there = match self.columns.iter().filter(mine).find(is_key) {
                Some(key) => key.clone(),
                None => ScopeColumn {
                    table: table.clone(),
                    name: String::new(),
                    ty: Type::Bool,
                    modifier: crate::types::NO_MOD,
                    index: *constant.get_or_insert(self.width),
                    used: None,
                    merged: false,
                    hidden: true,
                },
            };
            self.columns.push(ScopeColumn { name: THERE.to_owned(), hidden: true, ..there });
        }
        if constant.is_some() {
            let plan = std::mem::replace(&mut self.plan, Plan::Unit);
            let all = (0..self.width).map(Expr::Column);
            let all = all.chain([Expr::Const(crate::types::Datum::Bool(true))]).collect();
            self.plan = Plan::Project(Box::new(plan), all);
            self.width += 1;
        }
    }

    /// Makes a lateral relation one that stands alone: what it needs is of the query around it.
    pub(super) fn alone(&mut self) {
        let Some(captures) = self.lateral.take() else { return };
        let plan = std::mem::replace(&mut self.plan, Plan::Unit);
        let (kind, width) = (JoinKind::Inner, self.width);
        let join = join_of(kind, Plan::Unit, plan, 0, width, Vec::new(), Some(captures));
        self.plan = Plan::Join(Box::new(join));
    }
}

/// Relations that inner joins connect, side by side in one row.
#[derive(Default)]
struct Flat {
    relations: Vec<(usize, Relation)>,
    width: usize,
    conditions: Vec<Expr>,
}

impl Binder<'_> {
    /// The rows of FROM that WHERE keeps, and how many columns they have. The frame gets their columns.
    pub(super) fn from(&mut self, refs: &[TableRef], condition: Option<&ast::Expr>) -> Result<(Plan, usize)> {
        let mut flat = Flat::default();
        if refs.len() > depth::SIDE_BY_SIDE {
            return Err(depth::too_large("relations in one FROM", depth::SIDE_BY_SIDE));
        }
        for reference in refs {
            let (mine, tables, keys) = self.flatten(reference, &mut flat)?;
            for table in tables {
                if self.frame().tables.contains(&table) {
                    let message = format!("table name \"{table}\" specified more than once");
                    return Err(Error::new("42712", message));
                }
                self.frame().tables.push(table);
            }
            self.frame().primary_keys.extend(keys);
            self.frame().columns.extend(mine);
        }
        if let Some(condition) = condition {
            self.frame().no_aggregates = Some("WHERE");
            let bound = self.condition(condition, "WHERE")?;
            self.frame().no_aggregates = None;
            conjuncts(bound, &mut flat.conditions);
        }
        if flat.relations.is_empty() {
            let (mut plan, mut width) = (Plan::Unit, 0);
            let subs = std::mem::take(&mut self.frame().subs);
            plan = applied(plan, subs, &mut width);
            let mut conditions = flat.conditions;
            conditions.iter_mut().for_each(|condition| place_subs(condition, 0));
            return Ok((filtered(plan, conditions), width));
        }
        let subs = std::mem::take(&mut self.frame().subs);
        let (plan, map, _, total) = joined(flat, subs);
        for column in &mut self.frame().columns {
            column.index = map[column.index];
        }
        Ok((plan, total))
    }

    /// Adds the relations of an inner join; returns its columns by their places in the flat row.
    #[allow(clippy::type_complexity, reason = "three lists that go to three places")]
    fn flatten(
        &mut self,
        reference: &TableRef,
        flat: &mut Flat,
    ) -> Result<(Vec<ScopeColumn>, Vec<String>, Vec<(String, Vec<String>)>)> {
        if let TableRef::Join { kind: JoinKind::Inner | JoinKind::Cross, left, right, on } = reference {
            let (mut columns, mut tables, mut keys) = self.flatten(left, flat)?;
            let outside = self.frame().columns.clone();
            // A lateral relation on the right sees the left side.
            self.frame().columns.extend(columns.iter().cloned());
            let (more, more_tables, more_keys) = self.flatten(right, flat)?;
            for table in &more_tables {
                if tables.contains(table) {
                    let message = format!("table name \"{table}\" specified more than once");
                    return Err(Error::new("42712", message));
                }
            }
            tables.extend(more_tables);
            keys.extend(more_keys);
            let (all, mut equal) = match on {
                JoinOn::Using(names) => {
                    let (all, equal, _) = self.using(columns, more, names, (JoinKind::Inner, 0))?;
                    (all, equal)
                }
                JoinOn::Natural => {
                    let names = shared_names(&columns, &more);
                    let (all, equal, _) = self.using(columns, more, &names, (JoinKind::Inner, 0))?;
                    (all, equal)
                }
                JoinOn::On(_) | JoinOn::None => {
                    columns.extend(more);
                    (columns, Vec::new())
                }
            };
            flat.conditions.append(&mut equal);
            if let JoinOn::On(condition) = on {
                let before = std::mem::replace(&mut self.frame().columns, all.clone());
                let saved = std::mem::take(&mut self.frame().tables);
                self.frame().tables = tables.clone();
                let bound = self.join_condition(condition);
                self.frame().columns = before;
                self.frame().tables = saved;
                conjuncts(bound?, &mut flat.conditions);
            }
            self.frame().columns = outside;
            return Ok((all, tables, keys));
        }
        let mut relation = self.relation(reference)?;
        let base = flat.width;
        flat.width += relation.width;
        let mut columns = std::mem::take(&mut relation.columns);
        columns.iter_mut().for_each(|column| column.index += base);
        let (tables, keys) =
            (std::mem::take(&mut relation.tables), std::mem::take(&mut relation.primary_keys));
        flat.relations.push((base, relation));
        Ok((columns, tables, keys))
    }

    fn join_condition(&mut self, condition: &ast::Expr) -> Result<Expr> {
        self.frame().no_aggregates = Some("JOIN conditions");
        let bound = self.beside_nothing(|binder| binder.condition(condition, "JOIN/ON"));
        self.frame().no_aggregates = None;
        bound
    }

    fn relation(&mut self, reference: &TableRef) -> Result<Relation> {
        self.relations += 1;
        if self.relations > depth::RELATIONS {
            return Err(depth::too_large("relations", depth::RELATIONS));
        }
        match reference {
            TableRef::Table { name, alias } => {
                if let Some(relation) = self.working_table(name, alias)? {
                    return Ok(relation);
                }
                let cte = name
                    .schema
                    .is_none()
                    .then(|| self.ctes.iter().rposition(|known| known.cte.name == name.name));
                if let Some(place) = cte.flatten() {
                    return self.cte(place, alias);
                }
                let mut bound = self.system_table(name);
                if bound.is_none() {
                    let full = self.relation_named(name).ok_or_else(|| self.unknown_table(name))?;
                    self.named_relations.push(full.clone());
                    self.note_relation(&full, name, alias.name.is_some());
                    if let Some(table) = self.catalog.table(&full) {
                        return self.table_relation(&table, alias);
                    }
                    bound = self.sequence_relation(&full)?;
                    if bound.is_none() {
                        bound = self.view(&full)?;
                    }
                }
                let bound = bound.ok_or_else(|| self.unknown_table(name))?;
                let table = alias.name.as_ref().unwrap_or(&name.name);
                derived(bound, table, &alias.columns, None, name.at)
            }
            TableRef::Query { query, lateral, alias, at } => {
                let Some(name) = &alias.name else {
                    return Err(Error::new("42601", "subquery in FROM must have an alias")
                        .at(*at)
                        .hint("For example, FROM (SELECT ...) [AS] foo."));
                };
                let kind = if *lateral { FrameKind::Sub } else { FrameKind::Derived };
                let (bound, captures) = self.nested(kind, |binder| binder.query(query))?;
                let lateral = (*lateral && !captures.is_empty()).then_some(captures);
                derived(bound, name, &alias.columns, lateral, *at)
            }
            TableRef::Function { call, lateral: _, ordinality, alias } => {
                self.function_relation(call, *ordinality, alias)
            }
            TableRef::Join { kind, left, right, on }
                if !self.frame().columns.is_empty() && (is_lateral(left) || is_lateral(right)) =>
            {
                self.lateral_join(*kind, left, right, on)
            }
            TableRef::Join { kind, left, right, on } => self.outer_join(*kind, left, right, on),
        }
    }

    /// The columns of a view.
    pub(crate) fn columns_of_view(&mut self, name: &str) -> Result<Vec<crate::types::Column>> {
        Ok(self.view_query(name)?.map_or(Vec::new(), |bound| bound.columns))
    }

    /// The query of a view, if the name is one's.
    fn view(&mut self, name: &str) -> Result<Option<crate::plan::BoundQuery>> {
        match self.catalog.objects().view(name).and_then(|_| self.catalog.view_columns(name)) {
            Some(columns) => {
                Ok(Some(crate::plan::BoundQuery { plan: Plan::Values(Vec::new()), columns, locks: false }))
            }
            None => self.view_query(name),
        }
    }

    /// The query of a view, if the name is one's: bound as if nothing were around it.
    fn view_query(&mut self, name: &str) -> Result<Option<crate::plan::BoundQuery>> {
        let catalog = self.catalog;
        let Some(view) = catalog.objects().view(name) else { return Ok(None) };
        if self.views.iter().any(|own| own == name) {
            let message = format!("infinite recursion detected in rules for relation \"{name}\"");
            return Err(Error::new("42P17", message));
        }
        let parsed = crate::parser::parse(&view.query).map_err(Error::nowhere)?.pop();
        let Some(ast::Statement::Query(query)) = parsed.map(|parsed| parsed.statement) else {
            unreachable!("a view is kept as its query")
        };
        let (frames, ctes) = (std::mem::take(&mut self.frames), std::mem::take(&mut self.ctes));
        let recursive = std::mem::take(&mut self.recursive);
        let named = std::mem::take(&mut self.named_relations);
        let elsewhere = std::mem::take(&mut self.named_elsewhere);
        self.views.push(name.to_owned());
        let bound = self
            .kept(view.names.clone(), |binder| binder.nested(FrameKind::Sub, |binder| binder.query(&query)));
        self.views.pop();
        (self.frames, self.ctes, self.recursive) = (frames, ctes, recursive);
        (self.named_relations, self.named_elsewhere) = (named, elsewhere);
        let (mut bound, _) = bound.map_err(Error::nowhere)?;
        for (column, name) in bound.columns.iter_mut().zip(&view.columns) {
            column.name.clone_from(name);
        }
        Ok(Some(bound))
    }

    /// A sequence as a relation of one row.
    fn sequence_relation(&mut self, name: &str) -> Result<Option<crate::plan::BoundQuery>> {
        if self.catalog.objects().sequence(name).is_none() {
            return Ok(None);
        }
        let (last, called) = self.catalog.sequences().position(name)?;
        self.rebinds = true;
        let values = [
            ("last_value", Type::Int8, crate::types::Datum::Int(last)),
            ("log_cnt", Type::Int8, crate::types::Datum::Int(0)),
            ("is_called", Type::Bool, crate::types::Datum::Bool(called)),
        ];
        let columns = values.iter().map(|(name, ty, _)| crate::types::Column {
            name: (*name).to_owned(),
            ty: *ty,
            modifier: -1,
        });
        let columns = columns.collect();
        let row = values.into_iter().map(|(_, _, value)| Expr::Const(value)).collect();
        Ok(Some(crate::plan::BoundQuery { plan: Plan::Values(vec![row]), columns, locks: false }))
    }

    pub(super) fn table_columns(
        table: &Table,
        name: &str,
        aliases: &[String],
    ) -> (Vec<ScopeColumn>, crate::plan::Used) {
        let used = Rc::new(RefCell::new(vec![false; table.columns.len()]));
        let columns = table.columns.iter().enumerate().map(|(index, column)| ScopeColumn {
            table: name.to_owned(),
            name: aliases.get(index).unwrap_or(&column.name).clone(),
            ty: column.ty,
            modifier: column.modifier,
            index,
            used: Some((used.clone(), index)),
            merged: false,
            hidden: column.hidden,
        });
        (columns.collect(), used)
    }

    fn table_relation(&mut self, table: &std::sync::Arc<Table>, alias: &Alias) -> Result<Relation> {
        let name = &alias.name.clone().unwrap_or_else(|| crate::names::plain(&table.name).to_owned());
        let visible = table.columns.iter().filter(|column| !column.hidden).count();
        if alias.columns.len() > visible {
            let (given, has) = (alias.columns.len(), visible);
            let message =
                format!("table \"{name}\" has {has} columns available but {given} columns specified");
            return Err(Error::new("42P10", message));
        }
        let (mut columns, used) = Self::table_columns(table, name, &alias.columns);
        self.note_scan(&used, table, alias.columns.len());
        let named = (self.frame().naming != Naming::None).then_some(self.named);
        if let Some(scan) = named {
            self.named += 1;
            let frame = self.frame();
            if frame.naming == Naming::First {
                frame.naming = Naming::None;
            }
            frame.named.push((name.clone(), table.clone(), scan));
            columns.push(ScopeColumn {
                table: name.clone(),
                name: String::new(),
                ty: Type::Int8,
                modifier: -1,
                index: columns.len(),
                used: None,
                merged: true,
                hidden: true,
            });
        }
        let key = table.primary.map(|primary| &table.indexes[primary]);
        let key =
            key.map(|key| key.columns.iter().map(|(column, _)| columns[*column].name.clone()).collect());
        Ok(Relation {
            plan: Plan::Scan { table: table.clone(), used, access: Access::Table, filter: Vec::new(), named },
            width: columns.len(),
            columns,
            tables: vec![name.clone()],
            primary_keys: key.map(|key| (name.clone(), key)).into_iter().collect(),
            lateral: None,
        })
    }

    fn function_relation(&mut self, call: &ast::Expr, ordinality: bool, alias: &Alias) -> Result<Relation> {
        let ExprKind::Call(written) = &call.kind else {
            return Err(Error::unsupported("this function in FROM").at(call.at));
        };
        let name = written.name.last().cloned().unwrap_or_default();
        let (((mut plan, made), subs), captures) = self.nested(FrameKind::Sub, |binder| {
            binder.frames.push(super::scope::Frame {
                barred: Some(super::scope::Barred::From),
                no_aggregates: Some("functions in FROM"),
                ..super::scope::Frame::default()
            });
            let bound = binder.exprs(&written.args).and_then(|args| {
                match binder.set_function(&name, &args, call.at)? {
                    Some((set, columns)) => Ok((Plan::Set(set), columns)),
                    // Any other function is a table of one row.
                    None => {
                        // Its arguments are bound once more.
                        binder.frame().subs.clear();
                        let typed = binder.call(written, call.at)?;
                        let typed = binder.implicit_text(typed)?;
                        Ok((Plan::Values(vec![vec![typed.expr]]), vec![(None, typed.ty)]))
                    }
                }
            });
            let frame = binder.frames.pop().expect("the frame was just put there");
            Ok((bound?, frame.subs))
        })?;
        plan = with_answers(plan, subs, captures.len(), made.len());
        let table = alias.name.clone().unwrap_or(name);
        let mut names = alias.columns.iter();
        let mut columns: Vec<crate::types::Column> = made
            .into_iter()
            .map(|(own, ty)| {
                let name = names.next().cloned();
                let name = name.or_else(|| own.map(str::to_owned)).unwrap_or_else(|| table.clone());
                crate::types::Column { name, ty, modifier: -1 }
            })
            .collect();
        if columns.len() == 1 && !ordinality {
            self.scalars.push(table.clone());
        }
        if ordinality {
            plan = Plan::Numbered(Box::new(plan));
            let name = names.next().cloned().unwrap_or_else(|| "ordinality".to_owned());
            columns.push(crate::types::Column { name, ty: Type::Int8, modifier: -1 });
        }
        let lateral = (!captures.is_empty()).then_some(captures);
        derived(crate::plan::BoundQuery { plan, columns, locks: false }, &table, &[], lateral, call.at)
    }

    fn outer_join(
        &mut self,
        kind: JoinKind,
        left: &TableRef,
        right: &TableRef,
        on: &JoinOn,
    ) -> Result<Relation> {
        let outside = self.frame().columns.clone();
        let (on_left, on_right) = match kind {
            JoinKind::Left => (None, Some(Within::OuterJoin)),
            JoinKind::Right => (Some(Within::OuterJoin), None),
            JoinKind::Full => (Some(Within::OuterJoin), Some(Within::OuterJoin)),
            JoinKind::Inner | JoinKind::Cross => (None, None),
        };
        let mut left = self.standing(on_left, |binder| binder.side(left))?;
        self.frame().columns = left.columns.clone();
        let mut right = self.standing(on_right, |binder| binder.side(right))?;
        self.frame().columns = outside.clone();
        left.alone();
        let names_left = |relation: &Relation| {
            relation.lateral.iter().flatten().any(|capture| !capture.columns().is_empty())
        };
        if kind != JoinKind::Left {
            if names_left(&right) {
                let message = "invalid reference to a FROM-clause entry beside a LATERAL one";
                return Err(Error::new("42P10", message)
                    .detail("The combining JOIN type must be INNER or LEFT for a LATERAL reference."));
            }
            right.alone();
        }
        if matches!(kind, JoinKind::Right | JoinKind::Full) {
            left.may_be_absent();
        }
        if matches!(kind, JoinKind::Left | JoinKind::Full) {
            right.may_be_absent();
        }
        let (left_width, right_width) = (left.width, right.width);
        let mut more = right.columns.clone();
        more.iter_mut().for_each(|column| column.index += left_width);
        let mut tables = left.tables.clone();
        tables.extend(right.tables.iter().cloned());
        let names = match on {
            JoinOn::Using(names) => names.clone(),
            JoinOn::Natural => shared_names(&left.columns, &more),
            _ => Vec::new(),
        };
        let (columns, mut conditions, merged) =
            self.using(left.columns.clone(), more, &names, (kind, left_width + right_width))?;
        let (mut asks, mut judged) = (Vec::new(), Vec::new());
        if let JoinOn::On(condition) = on {
            self.frame().columns = columns.clone();
            let saved = std::mem::replace(&mut self.frame().tables, tables.clone());
            let subs = std::mem::take(&mut self.frame().subs);
            let bound = self.join_condition(condition);
            self.frame().columns = outside;
            self.frame().tables = saved;
            asks = std::mem::replace(&mut self.frame().subs, subs);
            let mut terms = Vec::new();
            conjuncts(bound?, &mut terms);
            let is_asking = |term: &Expr| term.columns().iter().any(|column| *column >= SUB_BASE);
            let (asking, plain): (Vec<_>, Vec<_>) = terms.into_iter().partition(is_asking);
            conditions.extend(plain);
            judged = asking;
        }
        place_answers(&mut asks, left_width + right_width);
        judged.iter_mut().for_each(|term| place_subs(term, left_width + right_width));
        let primary_keys = left.primary_keys.into_iter().chain(right.primary_keys).collect();
        let lateral = right.lateral;
        let join = join_of(kind, left.plan, right.plan, left_width, right_width, conditions, lateral);
        let mut plan = Plan::Join(Box::new(Join { asks, judged, ..join }));
        let width = left_width + right_width + merged.len();
        if !merged.is_empty() {
            let exprs = (0..left_width + right_width).map(Expr::Column).chain(merged).collect();
            plan = Plan::Project(Box::new(plan), exprs);
        }
        Ok(Relation { plan, columns, tables, primary_keys, width, lateral: None })
    }

    /// An outer join that may name relations that stand before it: lateral as a whole.
    fn lateral_join(
        &mut self,
        kind: JoinKind,
        left: &TableRef,
        right: &TableRef,
        on: &JoinOn,
    ) -> Result<Relation> {
        let naming = self.frame().naming;
        let ((mut relation, inside), captures) = self.nested(FrameKind::Sub, |binder| {
            binder.frame().of_join = true;
            binder.frames.push(super::scope::Frame { naming, ..super::scope::Frame::default() });
            let bound = binder.outer_join(kind, left, right, on);
            let inside = binder.frames.pop().expect("the frame was just put there");
            Ok((bound?, inside))
        })?;
        let frame = self.frame();
        frame.naming = inside.naming;
        frame.named.extend(inside.named);
        frame.names_itself |= inside.names_itself;
        relation.lateral = (!captures.is_empty()).then_some(captures);
        Ok(relation)
    }

    /// One side of an outer join: a relation of its own, inner joins within it done.
    fn side(&mut self, reference: &TableRef) -> Result<Relation> {
        if !matches!(reference, TableRef::Join { kind: JoinKind::Inner | JoinKind::Cross, .. }) {
            return self.relation(reference);
        }
        let mut flat = Flat::default();
        let around = std::mem::take(&mut self.frame().subs);
        let (mut columns, tables, primary_keys) = self.flatten(reference, &mut flat)?;
        let asked = std::mem::replace(&mut self.frame().subs, around);
        let asks = !asked.is_empty();
        let (mut plan, map, width, _) = joined(flat, asked);
        columns.iter_mut().for_each(|column| column.index = map[column.index]);
        if asks {
            plan = Plan::Cut(Box::new(plan), width);
        }
        Ok(Relation { plan, columns, tables, primary_keys, width, lateral: None })
    }

    /// Columns of a join with USING: the named ones once and first; their equalities; and, of a full join, in which either side
    /// may be null, the values of those columns, which stand behind both sides.
    fn using(
        &mut self,
        left: Vec<ScopeColumn>,
        right: Vec<ScopeColumn>,
        names: &[String],
        (kind, width): (JoinKind, usize),
    ) -> Result<(Vec<ScopeColumn>, Vec<Expr>, Vec<Expr>)> {
        let (mut left, mut right) = (left, right);
        let (mut first, mut conditions, mut merged) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            let find = |columns: &[ScopeColumn], side: &str| {
                let found = columns
                    .iter()
                    .position(|column| column.name == *name && !column.merged && !column.hidden);
                found.ok_or_else(|| {
                    let message =
                        format!("column \"{name}\" specified in USING clause does not exist in {side} table");
                    Error::new("42703", message)
                })
            };
            let (a, b) = (find(&left, "left")?, find(&right, "right")?);
            self.note_joined(&left[a]);
            self.note_joined(&right[b]);
            let typed = |column: &ScopeColumn| {
                column.note();
                Typed {
                    modifier: column.modifier,
                    ..Typed::new(Expr::Column(column.index), column.ty, NOWHERE)
                }
            };
            let sides = vec![typed(&left[a]), typed(&right[b])];
            conditions.push(self.operator("=", sides.clone(), NOWHERE)?.expr);
            if kind == JoinKind::Full {
                let (index, ty) = (width + merged.len(), self.common_type(&sides, "JOIN/USING")?);
                let modifier = super::coerce::common_modifier(&sides, ty);
                let sides = sides.into_iter().map(|side| Ok(self.as_common(side, ty, "JOIN/USING")?.expr));
                merged.push(Expr::Coalesce(sides.collect::<Result<_>>()?));
                // It is found by its name alone.
                let (table, name) = (String::new(), name.clone());
                first.push(ScopeColumn {
                    table,
                    name,
                    ty,
                    modifier,
                    index,
                    used: None,
                    merged: false,
                    hidden: false,
                });
                (left[a].merged, right[b].merged) = (true, true);
                continue;
            }
            let (shown, other) = if kind == JoinKind::Right {
                (&mut right[b], &mut left[a])
            } else {
                (&mut left[a], &mut right[b])
            };
            other.merged = true;
            first.push(shown.clone());
            shown.merged = true;
        }
        first.extend(left);
        first.extend(right);
        // What is shown first stands once more under its table's name.
        Ok((first, conditions, merged))
    }
}

/// The rows of a function whose arguments ask sub-queries: it runs once for their answers, which stand behind its captures.
fn with_answers(mut plan: Plan, subs: Vec<Sub>, captures: usize, columns: usize) -> Plan {
    if subs.is_empty() {
        return plan;
    }
    let answers = subs.len();
    let outer = |expr: &mut Expr| {
        expr.rewrite(&mut |node| {
            if let Expr::Column(index) = node
                && *index >= SUB_BASE
            {
                *node = Expr::Outer(captures + *index - SUB_BASE);
            }
        });
    };
    match &mut plan {
        Plan::Set(set) => set.exprs_mut().iter_mut().for_each(outer),
        Plan::Values(rows) => rows.iter_mut().flatten().for_each(outer),
        other => unreachable!("a function in FROM is no {other:?}"),
    }
    let lateral = (0..captures).map(Expr::Outer).chain((0..answers).map(Expr::Column)).collect();
    let join = Join {
        kind: JoinKind::Inner,
        left: applied(Plan::Unit, subs, &mut 0),
        right: plan,
        left_width: answers,
        right_width: columns,
        equal: Vec::new(),
        on: Vec::new(),
        lateral: Some(lateral),
        asks: Vec::new(),
        judged: Vec::new(),
    };
    let made = (answers..answers + columns).map(Expr::Column).collect();
    Plan::Project(Box::new(Plan::Join(Box::new(join))), made)
}

/// May something in it name relations that stand before it?
fn is_lateral(reference: &TableRef) -> bool {
    match reference {
        TableRef::Table { .. } => false,
        TableRef::Query { lateral, .. } => *lateral,
        TableRef::Function { .. } => true,
        TableRef::Join { left, right, .. } => is_lateral(left) || is_lateral(right),
    }
}

fn shared_names(left: &[ScopeColumn], right: &[ScopeColumn]) -> Vec<String> {
    let visible = |column: &&ScopeColumn| !column.merged && !column.hidden;
    let in_right = |name: &String| right.iter().filter(visible).any(|column| column.name == *name);
    left.iter().filter(visible).map(|column| column.name.clone()).filter(in_right).collect()
}

/// A query in FROM.
pub(super) fn derived(
    bound: crate::plan::BoundQuery,
    name: &str,
    aliases: &[String],
    lateral: Option<Vec<Expr>>,
    at: u32,
) -> Result<Relation> {
    if aliases.len() > bound.columns.len() {
        let (has, given) = (bound.columns.len(), aliases.len());
        let message = format!("table \"{name}\" has {has} columns available but {given} columns specified");
        return Err(Error::new("42P10", message).at(at));
    }
    let columns = bound.columns.iter().enumerate().map(|(index, column)| ScopeColumn {
        table: name.to_owned(),
        name: aliases.get(index).unwrap_or(&column.name).clone(),
        ty: column.ty,
        modifier: column.modifier,
        index,
        used: None,
        merged: false,
        hidden: false,
    });
    Ok(Relation {
        columns: columns.collect(),
        width: bound.columns.len(),
        plan: bound.plan,
        tables: vec![name.to_owned()],
        primary_keys: Vec::new(),
        lateral,
    })
}

/// The terms of a conjunction. Row values are equal if all of their fields are: as two keys they would be, too, where the same field of
/// both is null.
pub(super) fn conjuncts(expr: Expr, out: &mut Vec<Expr>) {
    match expr {
        Expr::And(terms) => terms.into_iter().for_each(|term| conjuncts(term, out)),
        Expr::Const(crate::types::Datum::Bool(true)) => {}
        Expr::Call(call @ Call::Compare(Comparison::Equal), sides) => match <[Expr; 2]>::try_from(sides) {
            Ok([Expr::Record(lefts, _), Expr::Record(rights, _)]) => {
                let pairs = lefts.into_iter().zip(rights);
                out.extend(pairs.map(|(left, right)| Expr::Call(call, vec![left, right])));
            }
            Ok(sides) => out.push(Expr::Call(call, sides.into())),
            Err(sides) => out.push(Expr::Call(call, sides)),
        },
        other => out.push(other),
    }
}

fn filtered(plan: Plan, conditions: Vec<Expr>) -> Plan {
    if conditions.is_empty() { plan } else { Plan::Filter(Box::new(plan), conditions) }
}

/// Moves columns to where joining has put them.
fn mapped(expr: &mut Expr, map: &[usize]) {
    expr.rewrite(&mut |node| {
        if let Expr::Column(index) = node
            && *index < SUB_BASE
        {
            *index = map[*index];
        }
    });
}

/// Joins all relations, and asks what is left, conditions with sub-queries last: the plan, where each column went, how many there
/// are, and how many with the answers behind them.
fn joined(flat: Flat, mut subs: Vec<Sub>) -> (Plan, Vec<usize>, usize, usize) {
    let (plan, map, width, mut behind) = ordered(flat);
    for sub in &mut subs {
        sub.captures.iter_mut().for_each(|capture| mapped(capture, &map));
        if let SubKind::In(arg) | SubKind::Quantified { arg, .. } = &mut sub.kind {
            mapped(arg, &map);
        }
    }
    let mut total = width;
    let plan = applied(plan, subs, &mut total);
    for condition in &mut behind {
        mapped(condition, &map);
        place_subs(condition, width);
    }
    (filtered(plan, behind), map, width, total)
}

/// Joins all relations: the plan, where each column went, how many there are, and the conditions that are left.
fn ordered(flat: Flat) -> (Plan, Vec<usize>, usize, Vec<Expr>) {
    let mut relations: Vec<Option<(usize, Relation)>> = flat.relations.into_iter().map(Some).collect();
    for (_, relation) in relations.iter_mut().flatten() {
        if relation.lateral.iter().flatten().all(|capture| capture.columns().is_empty()) {
            relation.alone();
        }
    }
    let (mut conditions, mut behind) = (Vec::new(), Vec::new());
    // Relations stand side by side, in their order.
    let bases: Vec<usize> = relations.iter().flatten().map(|(base, _)| *base).collect();
    let home = |column: usize| bases.partition_point(|base| *base <= column) - 1;
    for mut condition in flat.conditions {
        let columns = condition.columns();
        if columns.is_empty() || columns.iter().any(|column| *column >= SUB_BASE) {
            behind.push(condition);
            continue;
        }
        let place = home(columns[0]);
        let (base, relation) = relations[place].as_mut().expect("nothing is joined yet");
        // Within a lateral relation `Outer` means what that captures.
        let stays = relation.lateral.is_some() && has_outer(&condition);
        if !stays && columns.iter().all(|column| home(*column) == place) {
            condition.shift(-(*base as isize));
            pushed(&mut relation.plan, condition);
        } else {
            conditions.push(condition);
        }
    }
    // The relations of each condition that are not joined yet, and the conditions of each relation.
    let mut homes: Vec<Vec<usize>> = Vec::with_capacity(conditions.len());
    let mut conditions_of: Vec<Vec<usize>> = vec![Vec::new(); relations.len()];
    for (number, condition) in conditions.iter().enumerate() {
        let mut mine: Vec<usize> = condition.columns().into_iter().map(home).collect();
        mine.sort_unstable();
        mine.dedup();
        mine.iter().for_each(|place| conditions_of[*place].push(number));
        homes.push(mine);
    }
    let needs: Vec<Vec<usize>> = relations
        .iter()
        .map(|it| {
            let captures = it.iter().flat_map(|(_, relation)| relation.lateral.iter().flatten());
            captures.flat_map(Expr::columns).map(home).collect()
        })
        .collect();
    let rows_of: Vec<f64> =
        relations.iter().flatten().map(|(_, relation)| access::rows(&relation.plan)).collect();
    let mut map = vec![0; flat.width];
    let mut is_placed = vec![false; relations.len()];
    // An equality connects it with those that are joined.
    let mut is_connected = vec![false; relations.len()];
    let mut joined: Option<(Plan, usize, f64)> = None;
    for _ in 0..relations.len() {
        let next = (0..relations.len())
            .filter(|place| !is_placed[*place] && needs[*place].iter().all(|need| is_placed[*need]))
            .min_by(|a, b| {
                let alone = |place: usize| joined.is_some() && !is_connected[place];
                alone(*a).cmp(&alone(*b)).then(rows_of[*a].total_cmp(&rows_of[*b]))
            })
            .expect("a lateral relation needs only those before it");
        let (base, relation) = relations[next].take().expect("it is not joined yet");
        is_placed[next] = true;
        let start = joined.as_ref().map_or(0, |(_, width, _)| *width);
        (0..relation.width).for_each(|column| map[base + column] = start + column);
        let mut mine = Vec::new();
        for number in std::mem::take(&mut conditions_of[next]) {
            homes[number].retain(|home| *home != next);
            match homes[number][..] {
                [] => {
                    let mut condition = conditions[number].clone();
                    mapped(&mut condition, &map);
                    mine.push(condition);
                }
                [last] => is_connected[last] |= is_equality(&conditions[number]),
                _ => {}
            }
        }
        let rows = rows_of[next];
        joined = Some(match joined {
            None => (relation.plan, relation.width, rows),
            Some((left, width, left_rows)) => {
                let mut lateral = relation.lateral;
                lateral.iter_mut().flatten().for_each(|capture| mapped(capture, &map));
                let keyed = mine.iter().any(is_equality);
                let join =
                    join_of(JoinKind::Inner, left, relation.plan, width, relation.width, mine, lateral);
                let plan = Plan::Join(Box::new(join));
                let rows = if keyed { left_rows.max(rows) } else { left_rows * rows };
                (plan, width + relation.width, rows)
            }
        });
    }
    let (plan, width, _) = joined.expect("there is a relation");
    (plan, map, width, behind)
}

fn is_equality(expr: &Expr) -> bool {
    matches!(expr, Expr::Call(Call::Compare(Comparison::Equal), _))
}

/// A condition on one relation, as deep in it as it can stand.
fn pushed(plan: &mut Plan, condition: Expr) {
    match plan {
        Plan::Scan { table, access, filter, .. } => {
            filter.push(condition);
            *access = access::choose(table, filter);
        }
        Plan::Join(join)
            if matches!(join.kind, JoinKind::Left | JoinKind::Inner)
                && condition.columns().iter().all(|column| *column < join.left_width) =>
        {
            pushed(&mut join.left, condition);
            // Fewer rows on the left may be worth a look at an index each.
            by_index(join);
        }
        Plan::Filter(_, conditions) => conditions.push(condition),
        other => {
            let inner = std::mem::replace(other, Plan::Unit);
            *other = Plan::Filter(Box::new(inner), vec![condition]);
        }
    }
}

/// Joins two plans on conditions over both rows.
fn join_of(
    kind: JoinKind,
    left: Plan,
    mut right: Plan,
    left_width: usize,
    right_width: usize,
    conditions: Vec<Expr>,
    lateral: Option<Vec<Expr>>,
) -> Join {
    let (mut equal, mut on) = (Vec::new(), Vec::new());
    for mut condition in conditions {
        let columns = condition.columns();
        let in_right = |column: &usize| *column >= left_width;
        // A condition of the right side alone narrows it, whether the left side is kept or not. Within a lateral side `Outer` means
        // what that captures.
        if matches!(kind, JoinKind::Left | JoinKind::Inner)
            && !(lateral.is_some() && has_outer(&condition))
            && !columns.is_empty()
            && columns.iter().all(in_right)
        {
            condition.shift(-(left_width as isize));
            pushed(&mut right, condition);
            continue;
        }
        match condition {
            Expr::Call(Call::Compare(Comparison::Equal), sides) if lateral.is_none() => {
                let [a, b] = <[Expr; 2]>::try_from(sides).expect("a comparison has two sides");
                let (a_right, b_right) = (a.columns(), b.columns());
                let only = |columns: &[usize], right: bool| {
                    !columns.is_empty() && columns.iter().all(|column| (*column >= left_width) == right)
                };
                if only(&a_right, false) && only(&b_right, true) {
                    equal.push((a, shifted(b, left_width)));
                } else if only(&a_right, true) && only(&b_right, false) {
                    equal.push((b, shifted(a, left_width)));
                } else {
                    on.push(Expr::Call(Call::Compare(Comparison::Equal), vec![a, b]));
                }
            }
            other => on.push(other),
        }
    }
    let (asks, judged) = (Vec::new(), Vec::new());
    let mut join = Join { kind, left, right, left_width, right_width, equal, on, lateral, asks, judged };
    by_index(&mut join);
    join
}

fn shifted(mut expr: Expr, by: usize) -> Expr {
    expr.shift(-(by as isize));
    expr
}

/// Makes it an index join: for each row of the left side the right one is looked up, where that touches fewer rows.
fn by_index(join: &mut Join) {
    if join.lateral.is_some()
        || join.equal.is_empty()
        || !matches!(join.kind, JoinKind::Inner | JoinKind::Left)
    {
        return;
    }
    let left_rows = access::rows(&join.left);
    let Plan::Scan { table, access, filter, .. } = &mut join.right else { return };
    // The filter of the scan with the equalities in it: what the left row gives stands there as `Outer`. Places of captures
    // are behind those that the scan may have already, which are none: it is no lateral one.
    if filter.iter().any(has_outer) {
        return;
    }
    let mut with: Vec<Expr> = filter.clone();
    let mut captures = Vec::new();
    for (left, right) in &join.equal {
        with.push(Expr::Call(
            Call::Compare(Comparison::Equal),
            vec![right.clone(), Expr::Outer(captures.len())],
        ));
        captures.push(left.clone());
    }
    let found = access::choose(table, &with);
    let looks_up = matches!(&found, Access::Index { equal, .. } if equal.iter().any(has_outer));
    // A look at an index costs about what four rows of a scan do.
    let each = access::rows_of(table, &found, &with);
    if looks_up && left_rows * (4.0 + each) < access::rows_of(table, access, filter) {
        *filter = with;
        *access = found;
        join.equal.clear();
        join.lateral = Some(captures);
    }
}

fn has_outer(expr: &Expr) -> bool {
    let mut found = false;
    expr.walk(&mut |node| found |= matches!(node, Expr::Outer(_)));
    found
}
