//! Meanings of the names in a text that a definition keeps: which relation or column each one stands for.
//!
//! A kept text is not changed by words, for a word may mean a table here, its column there, and an alias elsewhere. The binder
//! notes each name as it looks it up, with its place in the text; a renaming changes the names that mean the renamed object
//! ([`Meanings::column_renamed`], [`Meanings::relation_renamed`]), and binds the text once more to see that every name
//! means what it did ([`Meanings::means`]).
//!
//! Names of views that the text reads are noted, names within those views are not: their texts are their own.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use super::Binder;
use super::query::parts_of;
use super::scope::ScopeColumn;
use crate::catalog::Table;
use crate::error::{Error, NOWHERE, Result};
use crate::names;
use crate::objects::rows::ViewRow;
use crate::parser::ast::{self, ExprKind, Statement};
use crate::parser::{Edits, name_at};
use crate::plan::Used;

/// The object that a name stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Meaning {
    /// A relation, by its full name. `aliased`: the query gives it another one.
    Relation { full: String, aliased: bool },
    /// A column of a table. `aliased`: the query calls it otherwise.
    Column { table: String, column: String, aliased: bool },
    /// A column of something else, by the name of that in the query.
    Other { table: String, column: String },
}

/// The names of a text, by their places.
#[derive(Debug, Default)]
pub(crate) struct Meanings {
    all: Vec<(u32, Meaning)>,
    /// Places of columns that give a column of a query its name.
    labels: HashSet<u32>,
    /// Scans, and how many columns of each have aliases.
    scans: Vec<(Used, Arc<Table>, usize)>,
}

impl Meanings {
    fn of_column(&self, column: &ScopeColumn) -> Meaning {
        let known = column.used.as_ref().and_then(|(used, place)| {
            let scan = self.scans.iter().find(|(scan, ..)| Rc::ptr_eq(scan, used))?;
            Some((scan, *place))
        });
        match known {
            Some(((_, table, aliases), place)) => Meaning::Column {
                table: table.name.clone(),
                column: table.columns[place].name.clone(),
                aliased: place < *aliases,
            },
            None => Meaning::Other { table: column.table.clone(), column: column.name.clone() },
        }
    }

    /// Does a name mean this column of a table?
    pub(crate) fn has_column(&self, table: &str, column: &str) -> bool {
        self.all.iter().any(
            |(_, it)| matches!(it, Meaning::Column { table: t, column: c, .. } if t == table && c == column),
        )
    }

    /// The edits of the text by which names of a column are its new one.
    pub(crate) fn column_renamed(&self, text: &str, table: &str, from: &str, to: &str) -> Edits {
        let edit = |(at, meaning): &(u32, Meaning)| {
            let Meaning::Column { table: own, column, aliased: false } = meaning else { return None };
            let parts = name_at(text, *at)?;
            let (last, name) = parts.last()?;
            if own != table || column != from || name != from {
                return None;
            }
            let label =
                if self.labels.contains(at) { format!(" AS {}", names::quoted(from)) } else { String::new() };
            Some((last.clone(), names::quoted(to) + &label))
        };
        self.all.iter().filter_map(edit).collect()
    }

    /// The edits of a query by which names of a relation in FROM are its new one. What the query calls it stays.
    pub(crate) fn relation_renamed(&self, text: &str, from: &str, to: &str) -> Edits {
        let edit = |(at, meaning): &(u32, Meaning)| {
            let Meaning::Relation { full, aliased } = meaning else { return None };
            let parts = name_at(text, *at)?;
            if full != from {
                return None;
            }
            let (first, last) = (parts.first()?.0.start, parts.last()?.0.end);
            let alias = format!(" AS {}", names::quoted(names::plain(from)));
            let alias = if *aliased { "" } else { &alias };
            Some((first..last, format!("{}{alias}", names::qualified(to))))
        };
        self.all.iter().filter_map(edit).collect()
    }

    /// The edits of a condition on the rows of a table by which names with the table before them have its new one.
    pub(crate) fn owner_renamed(&self, text: &str, from: &str, to: &str) -> Edits {
        let edit = |(at, _): &(u32, Meaning)| {
            let parts = name_at(text, *at)?;
            let is_column = |name: &str| {
                let means = |it: &Meaning| matches!(it, Meaning::Column { column, .. } if column == name);
                self.all.iter().any(|(other, it)| other == at && means(it))
            };
            let (range, name) = match &parts[..] {
                [.., owner, (_, last)] if is_column(last) => owner,
                // A row as a whole.
                [.., last] if !is_column(&last.1) => last,
                _ => return None,
            };
            (name == from).then(|| (range.clone(), names::quoted(to)))
        };
        self.all.iter().filter_map(edit).collect()
    }

    /// Do the names of an edited text mean what these do, one after the other? `now`: what an object is called now.
    pub(crate) fn means(&self, edited: &Meanings, now: &dyn Fn(Meaning) -> Meaning) -> bool {
        self.in_order(now) == edited.in_order(&|meaning| meaning)
    }

    fn in_order(&self, now: &dyn Fn(Meaning) -> Meaning) -> Vec<(usize, Meaning)> {
        let mut places: Vec<u32> = self.all.iter().map(|(at, _)| *at).collect();
        places.sort_unstable();
        places.dedup();
        let rank = |at: u32| places.binary_search(&at).expect("it is one of them");
        let named = |meaning: &Meaning| match now(meaning.clone()) {
            // An edit gives an alias to a relation that had none.
            Meaning::Relation { full, .. } => Meaning::Relation { full, aliased: true },
            other => other,
        };
        let mut all: Vec<_> = self.all.iter().map(|(at, meaning)| (rank(*at), named(meaning))).collect();
        all.sort();
        all.dedup();
        all
    }
}

impl Binder<'_> {
    /// Meanings of the names in the query of a view.
    pub(crate) fn meanings_of_view(mut self, view: &ViewRow) -> Result<Meanings> {
        self.meanings = Some(Meanings::default());
        let parsed = crate::parser::parse(&view.query).map_err(Error::nowhere)?.pop();
        let Some(Statement::Query(query)) = parsed.map(|parsed| parsed.statement) else {
            unreachable!("a view is kept as its query")
        };
        self.kept(view.names.clone(), |binder| binder.top_query(&query)).map_err(Error::nowhere)?;
        Ok(self.meanings.take().unwrap_or_default())
    }

    /// Meanings of the names in a condition on the rows of a table.
    pub(crate) fn meanings_of_check(mut self, table: &Table, condition: &str) -> Result<Meanings> {
        self.meanings = Some(Meanings::default());
        let parsed = crate::parser::parse_expr(condition).map_err(Error::nowhere)?;
        self.kept(Vec::new(), |binder| binder.check_expr(&parsed, table)).map_err(Error::nowhere)?;
        Ok(self.meanings.take().unwrap_or_default())
    }

    fn notes(&mut self) -> Option<&mut Meanings> {
        self.meanings.as_mut().filter(|_| self.views.is_empty())
    }

    pub(super) fn note_scan(&mut self, used: &Used, table: &Arc<Table>, aliases: usize) {
        if let Some(notes) = self.notes() {
            notes.scans.push((used.clone(), table.clone(), aliases));
        }
    }

    pub(super) fn note_relation(&mut self, full: &str, name: &ast::ObjectName, aliased: bool) {
        if let Some(notes) = self.notes() {
            notes.all.push((name.at, Meaning::Relation { full: full.to_owned(), aliased }));
        }
    }

    pub(super) fn note_column(&mut self, column: &ScopeColumn, at: u32) {
        if let Some(notes) = self.notes() {
            let meaning = notes.of_column(column);
            notes.all.push((at, meaning));
        }
    }

    /// A column of USING or of a natural join, which no place of the text is noted of.
    pub(super) fn note_joined(&mut self, column: &ScopeColumn) {
        self.note_column(column, NOWHERE);
    }

    /// An item of a select list without a name of its own.
    pub(super) fn note_label(&mut self, expr: &ast::Expr) {
        if matches!(expr.kind, ExprKind::Column(_))
            && let Some(notes) = self.notes()
        {
            notes.labels.insert(expr.at);
        }
    }

    /// An expression that is not bound, for it is written as a bound one is.
    pub(super) fn note_alike(&mut self, bound: &ast::Expr, expr: &ast::Expr) {
        let Some(notes) = self.notes() else { return };
        let mut pairs = vec![(bound, expr)];
        while let Some((bound, expr)) = pairs.pop() {
            let known: Vec<Meaning> =
                notes.all.iter().filter(|(at, _)| *at == bound.at).map(|(_, it)| it.clone()).collect();
            if matches!(bound.kind, ExprKind::Column(_)) {
                notes.all.extend(known.into_iter().map(|meaning| (expr.at, meaning)));
            }
            pairs.extend(parts_of(bound).into_iter().zip(parts_of(expr)));
        }
    }
}
