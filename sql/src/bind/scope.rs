//! Names: the tables of a query and their columns, and the queries around it.

use std::sync::Arc;

use super::{Binder, Typed};
use crate::catalog::Table;
use crate::error::{Error, Result, nearest};
use crate::expr::Expr;
use crate::parser::ast;
use crate::plan::{AggregateCall, SetExpr, Sub, Used, WindowCall};
use crate::types::Type;

/// A column that a name can mean.
#[derive(Clone, Debug)]
pub(super) struct ScopeColumn {
    pub(super) table: String,
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) modifier: i32,
    /// Its place in the row.
    pub(super) index: usize,
    /// Where to note that it is in use.
    pub(super) used: Option<(Used, usize)>,
    /// Found with its table's name only, and not by `*`: the other one of a column of USING.
    pub(super) merged: bool,
    pub(super) hidden: bool,
}

/// Grouping of a query: what its rows are after it.
#[derive(Default)]
pub(super) struct Group {
    /// As written, the column if it is one, and its type.
    pub(super) keys: Vec<(ast::Expr, Option<usize>, Typed)>,
    pub(super) calls: Vec<AggregateCall>,
    pub(super) as_written: Vec<(ast::Expr, Type)>,
    /// Sub-queries in arguments of its aggregates: they are answered before grouping.
    pub(super) subs: Vec<Sub>,
    /// While the arguments of an aggregate are bound.
    pub(super) inside: bool,
}

/// What a frame is to the names around it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// The tables of a SELECT; what it does not find, the frame around it may.
    #[default]
    Select,
    /// A sub-query: what it finds around it, it captures.
    Sub,
    /// A sub-query in FROM: it does not see the tables beside it.
    Derived,
}

/// What is being bound in which no function makes rows, and no window function stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Barred {
    /// Arguments of an aggregate.
    Aggregate,
    /// Arguments of a window function.
    Window,
    /// The window itself.
    Definition,
    /// CASE or COALESCE, in which window functions may stand.
    Expression(&'static str),
    /// FILTER or HAVING.
    Clause(&'static str),
    /// Arguments of a function in FROM.
    From,
}

impl Barred {
    /// What a function that makes rows is refused with.
    pub(super) fn no_sets(self) -> Error {
        let message = match self {
            Self::Aggregate => {
                "aggregate function calls cannot contain set-returning function calls".to_owned()
            }
            Self::Window => "window function calls cannot contain set-returning function calls".to_owned(),
            Self::Definition => {
                "set-returning functions in window definitions are not supported yet".to_owned()
            }
            Self::Expression(what) | Self::Clause(what) => {
                format!("set-returning functions are not allowed in {what}")
            }
            Self::From => "set-returning functions must appear at top level of FROM".to_owned(),
        };
        Error::new("0A000", message)
            .hint("You might be able to move the set-returning function into a LATERAL FROM item.")
    }

    /// What a window function is refused with, if it is.
    pub(super) fn no_window(self) -> Option<Error> {
        Some(match self {
            Self::Aggregate => {
                Error::new("42803", "aggregate function calls cannot contain window function calls")
            }
            Self::Window => Error::new("42P20", "window function calls cannot be nested"),
            Self::Definition => Error::new("42P20", "window functions are not allowed in window definitions"),
            Self::Expression(_) => return None,
            Self::Clause(what) => Error::new("42P20", format!("window functions are not allowed in {what}")),
            Self::From => Error::new("42P20", "window functions are not allowed in functions in FROM"),
        })
    }
}

/// Tables of FROM whose rows are numbered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Naming {
    #[default]
    None,
    /// The first one.
    First,
    All,
}

/// The column that is null where an outer join has put nulls in place of a table's row.
pub(super) const THERE: &str = "\u{1}there";

/// The columns that PostgreSQL adds to each table.
const SYSTEM_COLUMNS: [&str; 6] = ["tableoid", "ctid", "xmin", "xmax", "cmin", "cmax"];

/// A query that is being bound.
#[derive(Default)]
pub(super) struct Frame {
    pub(super) kind: FrameKind,
    /// It is an outer join's, which is lateral as a whole: the tables around it are beside it.
    pub(super) of_join: bool,
    pub(super) columns: Vec<ScopeColumn>,
    /// Names of tables, for messages and `t.*`.
    pub(super) tables: Vec<String>,
    /// Names of the primary key's columns, by table.
    pub(super) primary_keys: Vec<(String, Vec<String>)>,
    /// Expressions of the query around it, which this one finds as `Outer`.
    pub(super) captures: Vec<Expr>,
    /// Sub-queries that have no place yet, of expressions before grouping and behind it.
    pub(super) subs: Vec<Sub>,
    /// Functions that make rows; none: they are not allowed now.
    pub(super) sets: Option<Vec<SetExpr>>,
    /// Window functions; none: they are not allowed now.
    pub(super) windows: Option<Vec<WindowCall>>,
    /// Its FROM names the recursive query whose step it is part of.
    pub(super) names_itself: bool,
    /// What is being bound of it that allows neither of the two.
    pub(super) barred: Option<Barred>,
    /// The WINDOW clause.
    pub(super) named_windows: Vec<(String, ast::Over)>,
    pub(super) group: Option<Group>,
    /// It groups, if only for an aggregate that stands in a sub-query.
    pub(super) grouped: bool,
    pub(super) naming: Naming,
    /// Tables whose rows are numbered: the name in the query, and the scan's number. The number is a nameless column.
    pub(super) named: Vec<(String, Arc<Table>, usize)>,
    /// Aggregates are not allowed now; the clause, for the message.
    pub(super) no_aggregates: Option<&'static str>,
}

impl Frame {
    fn find(&self, table: Option<&str>, name: &str, at: u32) -> Result<Option<&ScopeColumn>> {
        let mut found = None;
        for column in &self.columns {
            let matches = match table {
                Some(table) => column.table == table,
                None => !column.merged,
            };
            if !matches || column.name != name || column.hidden && name != THERE {
                continue;
            }
            if found.is_some_and(|other: &ScopeColumn| other.index == column.index) {
                continue;
            }
            if found.is_some() {
                return Err(Error::new("42702", format!("column reference \"{name}\" is ambiguous")).at(at));
            }
            found = Some(column);
        }
        Ok(found)
    }
}

impl ScopeColumn {
    pub(super) fn note(&self) {
        if let Some((used, column)) = &self.used {
            used.borrow_mut()[*column] = true;
        }
    }
}

impl Binder<'_> {
    /// The level of the query that a name's column is of; nothing is captured on the way.
    fn level_of(&self, names: &[String]) -> Option<usize> {
        let (table, name) = match names {
            [name] => (None, name.as_str()),
            [.., table, name] => (Some(table.as_str()), name.as_str()),
            [] => return None,
        };
        let mut level = self.frames.len().checked_sub(1)?;
        loop {
            let frame = &self.frames[level];
            let is_row = table.is_none() && frame.tables.iter().any(|known| known == name);
            if is_row || !matches!(frame.find(table, name, crate::error::NOWHERE), Ok(None)) {
                return Some(level);
            }
            level = match frame.kind {
                FrameKind::Derived => self.around(level)?,
                _ => level.checked_sub(1)?,
            };
        }
    }

    /// Are columns of the table in sight?
    fn sees(&self, table: &str) -> bool {
        let mut level = self.frames.len().checked_sub(1);
        while let Some(here) = level {
            let frame = &self.frames[here];
            if frame.columns.iter().any(|column| column.table == table) {
                return true;
            }
            level = if frame.kind == FrameKind::Derived { self.around(here) } else { here.checked_sub(1) };
        }
        false
    }

    /// The level of the query around a sub-query in FROM; its own query is beside it, joins within that are as well.
    fn around(&self, level: usize) -> Option<usize> {
        let mut around = level.checked_sub(2)?;
        while self.frames[around].of_join {
            around = around.checked_sub(2)?;
        }
        Some(around)
    }

    /// Binds the condition of a join, which names what it joins and what is around the query.
    pub(super) fn beside_nothing<T>(&mut self, bind: impl FnOnce(&mut Self) -> T) -> T {
        let mut hidden = Vec::new();
        let mut level = self.frames.len() - 1;
        while level >= 2 && self.frames[level - 1].of_join {
            level -= 2;
            hidden.push((level, std::mem::take(&mut self.frames[level].columns)));
        }
        let bound = bind(self);
        hidden.into_iter().for_each(|(level, columns)| self.frames[level].columns = columns);
        bound
    }

    /// The level of the query that an aggregate belongs to: the innermost one that its arguments have columns of
    /// (`check_agg_arguments`); the present one, if they have none.
    pub(super) fn level_of_aggregate(&self, call: &ast::Call) -> usize {
        let here = self.frames.len() - 1;
        let order = call.order.iter().map(|item| &item.expr);
        let mut waiting: Vec<&ast::Expr> =
            call.args.iter().chain(call.filter.as_ref()).chain(order).collect();
        let mut innermost = None;
        while let Some(expr) = waiting.pop() {
            match &expr.kind {
                ast::ExprKind::Column(names) | ast::ExprKind::Star(names) => {
                    innermost = innermost.max(self.level_of(names));
                }
                ast::ExprKind::Scalar(_)
                | ast::ExprKind::Exists(_)
                | ast::ExprKind::ArrayQuery(_)
                | ast::ExprKind::InQuery(..) => return here,
                _ => waiting.extend(super::query::parts_of(expr)),
            }
        }
        innermost.unwrap_or(here)
    }

    /// Does the expression call an aggregate of the present query, outside of its sub-queries?
    pub(super) fn has_own_aggregate(&self, expr: &ast::Expr) -> bool {
        if let ast::ExprKind::Call(call) = &expr.kind
            && call.over.is_none()
            && call.name.last().is_some_and(|name| crate::functions::aggregates::is_aggregate(name))
            && self.level_of_aggregate(call) == self.frames.len() - 1
        {
            return true;
        }
        super::query::parts_of(expr).into_iter().any(|part| self.has_own_aggregate(part))
    }

    /// A value of an enclosing query, as the present one finds it: captured by the sub-queries in between.
    pub(super) fn brought_in(&mut self, mut typed: Typed, from: usize) -> Typed {
        for level in from + 1..self.frames.len() {
            if self.frames[level].kind == FrameKind::Sub {
                typed.expr = self.captured(level, typed.expr);
            }
        }
        typed
    }

    /// The value that a sub-query captures of the query around it.
    fn captured(&mut self, level: usize, value: Expr) -> Expr {
        let captures = &mut self.frames[level].captures;
        let known = captures.iter().position(|capture| match (capture, &value) {
            (Expr::Column(a), Expr::Column(b)) | (Expr::Outer(a), Expr::Outer(b)) => a == b,
            _ => false,
        });
        Expr::Outer(known.unwrap_or_else(|| {
            captures.push(value);
            captures.len() - 1
        }))
    }

    pub(super) fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("expressions are bound within a query")
    }

    /// Binds something that allows no functions which make rows.
    pub(super) fn barring<T>(
        &mut self,
        what: Barred,
        bind: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let before = self.frame().barred;
        // In an aggregate nothing else counts: its arguments are no more than that.
        let expression = matches!(what, Barred::Expression(_)) && before.is_some();
        self.frame().barred = if expression { before } else { Some(what) };
        let bound = bind(self);
        self.frame().barred = before;
        bound
    }

    /// A column by its names.
    pub(super) fn column(&mut self, names: &[String], at: u32) -> Result<Typed> {
        let (table, name) = match names {
            [name] => (None, name.as_str()),
            [table, name] | [_, table, name] => (Some(table.as_str()), name.as_str()),
            _ => return Err(Error::new("42601", "improper qualified name (too many dotted names)").at(at)),
        };
        let level = self.frames.len() - 1;
        match self.column_at(level, table, name, at)? {
            Some(found) => Ok(found),
            None => match self.scalar_table(table, name, at)? {
                Some(found) => Ok(found),
                None if table.is_none() && self.is_table(name) => self.whole_row(names, at),
                None => Err(self.unknown_column(table, name, at)),
            },
        }
    }

    /// A row of a table as a value.
    pub(super) fn whole_row(&mut self, table: &[String], at: u32) -> Result<Typed> {
        let name = table.last().expect("a name has a part");
        let all = self.columns_of(std::slice::from_ref(name), at)?;
        let names = self.names_of_columns(name);
        let record = self.record(all, Some(names), at);
        // Where an outer join has put nulls in its place, there is no row. What groups by its columns need not have that one.
        let there = self.column_at(self.frames.len() - 1, Some(name), THERE, at);
        let Ok(Some(there)) = there else { return Ok(record) };
        let absent = Expr::IsNull(Box::new(there.expr), false);
        let expr = Expr::Case(vec![(absent, Expr::Const(crate::types::Datum::Null))], Box::new(record.expr));
        Ok(Typed { expr, ..record })
    }

    /// Is the name that of a table of this query, or of one around it?
    fn is_table(&self, name: &str) -> bool {
        self.frames.iter().any(|frame| frame.tables.iter().any(|table| table == name))
    }

    /// The names of a table's columns, in the innermost query that has the table.
    fn names_of_columns(&self, table: &str) -> Vec<String> {
        let frame = self.frames.iter().rev().find(|frame| frame.tables.iter().any(|known| known == table));
        let columns = frame.into_iter().flat_map(|frame| &frame.columns);
        let mut mine: Vec<&ScopeColumn> = Vec::new();
        for column in columns.filter(|column| column.table == table && !column.hidden) {
            // A column of USING stands there twice.
            if mine.iter().all(|other| other.index != column.index) {
                mine.push(column);
            }
        }
        mine.into_iter().map(|column| column.name.clone()).collect()
    }

    /// The columns that `table.*` means within an expression; with no table all of the query's.
    pub(super) fn columns_of(&mut self, table: &[String], at: u32) -> Result<Vec<Typed>> {
        let names: Vec<Vec<String>> = match table.last() {
            Some(table) => {
                let columns = self.names_of_columns(table).into_iter();
                columns.map(|column| vec![table.clone(), column]).collect()
            }
            None => {
                let columns = self.frame().columns.iter();
                let shown = columns.filter(|column| !column.hidden && !column.merged);
                shown.map(|column| vec![column.table.clone(), column.name.clone()]).collect()
            }
        };
        if let (Some(table), []) = (table.last(), &names[..])
            && !self.is_table(table)
        {
            let message = format!("missing FROM-clause entry for table \"{table}\"");
            return Err(Error::new("42P01", message).at(at));
        }
        names.iter().map(|names| self.column(names, at)).collect()
    }

    /// The value of a function in FROM, by the name that stands for its table.
    fn scalar_table(&mut self, table: Option<&str>, name: &str, at: u32) -> Result<Option<Typed>> {
        if table.is_some() || !self.scalars.iter().any(|known| known == name) {
            return Ok(None);
        }
        let of_table = |column: &&ScopeColumn| column.table == name && !column.hidden;
        let column = self.frames.iter().rev().find_map(|frame| frame.columns.iter().find(of_table));
        let Some(column) = column.map(|column| column.name.clone()) else { return Ok(None) };
        self.column_at(self.frames.len() - 1, Some(name), &column, at)
    }

    fn column_at(&mut self, level: usize, table: Option<&str>, name: &str, at: u32) -> Result<Option<Typed>> {
        let frame = &self.frames[level];
        if let Some(column) = frame.find(table, name, at)? {
            column.note();
            let noted = self.meanings.is_some().then(|| column.clone());
            let mut typed = Typed::new(Expr::Column(column.index), column.ty, at);
            typed.modifier = column.modifier;
            if let Some(group) = frame.group.as_ref().filter(|group| !group.inside) {
                let place = group.keys.iter().position(|(_, key, _)| *key == Some(column.index));
                let Some(place) = place else {
                    return Err(ungrouped(&column.table, name).at(at));
                };
                typed.expr = Expr::Column(place);
            }
            if let Some(column) = noted {
                self.note_column(&column, at);
            }
            return Ok(Some(typed));
        }
        if level == 0 {
            return Ok(None);
        }
        match self.frames[level].kind {
            FrameKind::Select => return self.column_at(level - 1, table, name, at),
            FrameKind::Derived => {
                let Some(around) = self.around(level) else { return Ok(None) };
                let Some(mut typed) = self.column_at(around, table, name, at)? else { return Ok(None) };
                // The joins on the way hand it on.
                for join in (around + 1..level).filter(|join| self.frames[*join].of_join).collect::<Vec<_>>()
                {
                    typed.expr = self.captured(join, typed.expr);
                }
                return Ok(Some(typed));
            }
            FrameKind::Sub => {}
        }
        let Some(mut typed) = self.column_at(level - 1, table, name, at)? else { return Ok(None) };
        typed.expr = self.captured(level, typed.expr);
        Ok(Some(typed))
    }

    fn unknown_column(&self, table: Option<&str>, name: &str, at: u32) -> Error {
        let frame = self.frames.last().expect("a query is being bound");
        let shown = match table {
            Some(table) => {
                if !self.sees(table) && self.is_table(table) {
                    let message = format!("invalid reference to FROM-clause entry for table \"{table}\"");
                    let hint = format!(
                        "There is an entry for table \"{table}\", but it cannot be referenced from this part of the query."
                    );
                    return Error::new("42P01", message).at(at).hint(hint);
                }
                if !self.is_table(table) {
                    return Error::new("42P01", format!("missing FROM-clause entry for table \"{table}\""))
                        .at(at);
                }
                format!("column {table}.{name} does not exist")
            }
            None => format!("column \"{name}\" does not exist"),
        };
        if SYSTEM_COLUMNS.contains(&name) && !frame.tables.is_empty() {
            return Error::unsupported(format!("the system column \"{name}\"")).at(at);
        }
        let error = Error::new("42703", shown).at(at);
        let candidates = frame.columns.iter().filter(|column| !column.hidden);
        let candidates = candidates.filter(|column| table.is_none_or(|table| column.table == table));
        let near = nearest(name, candidates.clone().map(|column| column.name.as_str()));
        let near = near.and_then(|near| candidates.clone().find(|column| column.name == near));
        match near {
            Some(column) => error.hint(format!(
                "Perhaps you meant to reference the column \"{}.{}\".",
                column.table, column.name
            )),
            None => error,
        }
    }
}

pub(super) fn ungrouped(table: &str, name: &str) -> Error {
    Error::new(
        "42803",
        format!(
            "column \"{table}.{name}\" must appear in the GROUP BY clause or be used in an aggregate function"
        ),
    )
}
