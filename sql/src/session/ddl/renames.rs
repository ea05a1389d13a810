//! New names of relations and columns, in the texts that definitions keep: queries of views, and conditions of CHECK.
//!
//! Names that mean the renamed object are changed, and no other word ([`crate::bind::Meanings`]). Each changed text is bound over
//! the new definitions; where a name would mean something else there, the renaming is refused.

use crate::bind::{Binder, Meaning, Meanings};
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::names;
use crate::objects::Change;
use crate::objects::rows::{CheckRow, Kind, Object, ViewRow};
use crate::parser::ast::{ObjectName, ViewAction};
use crate::parser::edited;
use crate::session::{Answer, Session};

/// A relation or column that gets another name.
#[derive(Clone, Copy)]
pub(super) enum Renaming<'n> {
    /// A table or view, by its full names.
    Relation { from: &'n str, to: &'n str },
    /// A column of a table.
    Column { table: &'n str, from: &'n str, to: &'n str },
}

/// The texts that a renaming changes.
pub(super) struct Rewritten {
    /// Views, and what the names of their queries meant before.
    views: Vec<(String, ViewRow, Meanings)>,
    /// Conditions of the table, by the names of their constraints.
    checks: Vec<(String, String, Meanings)>,
}

impl Renaming<'_> {
    fn relation(&self) -> &str {
        match self {
            Self::Relation { from, .. } => from,
            Self::Column { table, .. } => table,
        }
    }

    /// The relation after the renaming.
    fn relation_now(&self) -> &str {
        match self {
            Self::Relation { to, .. } => to,
            Self::Column { table, .. } => table,
        }
    }

    /// The object as it is called after the renaming.
    fn now(&self, meaning: Meaning) -> Meaning {
        match (*self, meaning) {
            (Self::Relation { from, to }, Meaning::Relation { full, aliased }) if full == from => {
                Meaning::Relation { full: to.to_owned(), aliased }
            }
            (Self::Relation { from, to }, Meaning::Column { table, column, aliased }) if table == from => {
                Meaning::Column { table: to.to_owned(), column, aliased }
            }
            (Self::Column { table: own, from, to }, Meaning::Column { table, column, aliased })
                if table == own && column == from =>
            {
                Meaning::Column { table, column: to.to_owned(), aliased }
            }
            (_, meaning) => meaning,
        }
    }

    fn query(&self, text: &str, meanings: &Meanings) -> String {
        let edits = match *self {
            Self::Relation { from, to } => meanings.relation_renamed(text, from, to),
            Self::Column { table, from, to } => meanings.column_renamed(text, table, from, to),
        };
        edited(text, edits)
    }

    fn condition(&self, text: &str, meanings: &Meanings) -> String {
        let edits = match *self {
            Self::Relation { from, to } => meanings.owner_renamed(text, names::plain(from), names::plain(to)),
            Self::Column { table, from, to } => meanings.column_renamed(text, table, from, to),
        };
        edited(text, edits)
    }

    /// The refusal of a renaming that a text does not take.
    fn refused(&self, by: &str) -> Error {
        let what = match self {
            Self::Relation { .. } => "a relation",
            Self::Column { .. } => "a column",
        };
        Error::unsupported(format!("renaming {what} that {by} names in this way"))
            .hint(format!("Drop {by} first, and create it again."))
    }
}

impl Session {
    /// The texts that a renaming is going to change, as they will be.
    pub(super) fn rewritten(&self, renaming: Renaming<'_>) -> Result<Rewritten> {
        let catalog = self.catalog();
        let binder = || Binder::new(&catalog, Vec::new(), self.local());
        let (mut views, mut checks) = (Vec::new(), Vec::new());
        let relation = renaming.relation();
        for (name, row) in self.objects.views().filter(|(_, row)| row.reads.iter().any(|it| it == relation)) {
            let meanings = binder().meanings_of_view(row)?;
            let mut new = ViewRow { query: renaming.query(&row.query, &meanings), ..row.clone() };
            if let Renaming::Relation { from, to } = renaming {
                new.reads.iter_mut().filter(|read| *read == from).for_each(|read| to.clone_into(read));
                // The query names it with its schema now.
                new.names.retain(|(_, full)| full != from);
            }
            views.push((name.to_owned(), new, meanings));
        }
        if let Some(table) = catalog.table(relation) {
            for (name, condition) in &table.checks {
                let meanings = binder().meanings_of_check(&table, condition)?;
                checks.push((name.clone(), renaming.condition(condition, &meanings), meanings));
            }
        }
        Ok(Rewritten { views, checks })
    }

    /// Keeps the texts of a renaming that is done, if their names mean what they meant.
    pub(super) async fn keep_rewritten(&mut self, renaming: Renaming<'_>, texts: Rewritten) -> Result<()> {
        let relation = renaming.relation_now();
        let view = |(name, row, _): &(String, ViewRow, Meanings)| {
            Change::Put(String::new(), name.clone(), Object::View(row.clone()))
        };
        let check = |(name, condition, _): &(String, String, Meanings)| {
            let row = CheckRow { condition: condition.clone() };
            Change::Put(relation.to_owned(), name.clone(), Object::Check(row))
        };
        let changes: Vec<Change> =
            texts.views.iter().map(view).chain(texts.checks.iter().map(check)).collect();
        self.record(&changes).await?;
        let catalog = self.catalog();
        let binder = || Binder::new(&catalog, Vec::new(), self.local());
        let same = |before: &Meanings, after: Result<Meanings>| {
            after.is_ok_and(|after| before.means(&after, &|meaning| renaming.now(meaning)))
        };
        for (name, row, before) in &texts.views {
            if !same(before, binder().meanings_of_view(row)) {
                return Err(renaming.refused(&format!("view {}", names::plain(name))));
            }
        }
        let table = catalog.table(relation);
        for (name, condition, before) in &texts.checks {
            let table = table.as_ref().expect("it has constraints");
            if !same(before, binder().meanings_of_check(table, condition)) {
                return Err(renaming.refused(&format!("constraint {name}")));
            }
        }
        Ok(())
    }

    /// Does the query of a view name a column of a table? One that cannot be bound any more may.
    pub(super) fn view_names(&self, view: &ViewRow, table: &str, column: &str) -> bool {
        let catalog = self.catalog();
        let reads = view.reads.iter().any(|read| read == table);
        let names = || Binder::new(&catalog, Vec::new(), self.local()).meanings_of_view(view);
        reads && names().map_or(true, |names| names.has_column(table, column))
    }

    pub(super) async fn alter_view(
        &mut self,
        name: &ObjectName,
        if_exists: bool,
        action: &ViewAction,
    ) -> Result<Answer> {
        let mut answer = Answer::tagged("ALTER VIEW");
        let view = &name.name;
        if self.objects.view(view).is_none() {
            if self.is_relation(view) {
                return Err(Error::new("42809", format!("\"{view}\" is not a view")));
            }
            if if_exists {
                answer.notice(format!("relation \"{view}\" does not exist, skipping"));
                return Ok(answer);
            }
            return Err(self.no_relation(name).nowhere());
        }
        match action {
            ViewAction::RenameTo(to) => self.rename_view(view, to).await?,
            ViewAction::RenameColumn { from, to } => self.rename_view_column(view, from, to).await?,
            ViewAction::Nothing => {}
        }
        Ok(answer)
    }

    /// `RENAME TO` of a view.
    pub(super) async fn rename_view(&mut self, from: &str, to: &str) -> Result<()> {
        let to = &names::checked(names::schema_of(from), to)?;
        if self.is_relation(to) {
            return Err(Error::new("42P07", format!("relation \"{to}\" already exists")));
        }
        self.move_view(from, to).await
    }

    async fn rename_view_column(&mut self, view: &str, from: &str, to: &str) -> Result<()> {
        let mut row = self.objects.view(view).expect("it is known").clone();
        let Some(place) = row.columns.iter().position(|column| column == from) else {
            return Err(Error::new("42703", format!("column \"{from}\" does not exist")));
        };
        if row.columns.iter().any(|column| column == to) {
            let message = format!("column \"{to}\" of relation \"{view}\" already exists");
            return Err(Error::new("42701", message));
        }
        // Names of columns of views are not told apart in the queries of others yet.
        if let Some((other, _)) =
            self.objects.views().find(|(_, other)| other.reads.iter().any(|it| it == view))
        {
            return Err(Error::unsupported(format!(
                "renaming a column of a view that view \"{other}\" reads"
            ))
            .hint("Drop the other view first, and create it again."));
        }
        to.clone_into(&mut row.columns[place]);
        let mut changes = vec![Change::Put(String::new(), view.to_owned(), Object::View(row))];
        let comment = (Kind::ColumnComment, view.to_owned(), from.to_owned());
        if let Some(object) = self.objects.get(&comment).cloned() {
            changes.extend([Change::Remove(comment), Change::Put(view.to_owned(), to.to_owned(), object)]);
        }
        self.record(&changes).await
    }
}
