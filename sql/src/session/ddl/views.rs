//! CREATE and DROP VIEW, COMMENT.
//!
//! A view is kept as the text of its query, with stars written out, so that columns which its tables get later are not its own.
//! It is bound anew where it stands in a statement.

use crate::bind::Binder;
use crate::error::{Error, Result};
use crate::objects::Change;
use crate::objects::rows::{CommentRow, Kind, Object, ViewRow};
use crate::parser::ast::{Commented, CreateView, ObjectName, Statement};
use crate::parser::{Edits, edited};
use crate::session::{Answer, Session};

impl Session {
    pub(super) async fn create_view(&mut self, view: &CreateView) -> Result<Answer> {
        let name = &view.name.name;
        let before = self.objects.view(name).cloned();
        if self.is_relation(name) && (before.is_none() || !view.replace) {
            if before.is_none() && view.replace {
                return Err(Error::new("42809", format!("\"{name}\" is not a view")));
            }
            return Err(Error::new("42P07", format!("relation \"{name}\" already exists")));
        }
        let catalog = self.catalog();
        let mut binder = Binder::new(&catalog, Vec::new(), self.local()).for_keeping();
        let bound = binder.statement(&Statement::Query(view.query.clone()))?.expect("a query is bound");
        if !binder.parameters.is_empty() {
            return Err(Error::new("42P02", "there is no parameter $1"));
        }
        if bound.locks() {
            return Err(Error::unsupported("FOR UPDATE in a view"));
        }
        let mut reads = std::mem::take(&mut binder.named_relations);
        if reads.contains(name) {
            return Err(Error::new(
                "42P17",
                format!("infinite recursion detected in rules for relation \"{name}\""),
            ));
        }
        reads.sort();
        reads.dedup();
        let mut names = std::mem::take(&mut binder.named_elsewhere);
        names.sort();
        names.dedup();
        let mut edits = written_out(&view.text, view.at, &binder.stars);
        edits.extend(binder.zone_edits(&view.text, view.at));
        let query = edited(&view.text, edits);
        let mut columns: Vec<String> = bound.columns().iter().map(|column| column.name.clone()).collect();
        if view.columns.len() > columns.len() {
            return Err(Error::new("42601", "CREATE VIEW specifies more column names than columns"));
        }
        columns.iter_mut().zip(&view.columns).for_each(|(name, given)| name.clone_from(given));
        for (place, column) in columns.iter().enumerate() {
            if columns[..place].contains(column) {
                return Err(Error::new("42701", format!("column \"{column}\" specified more than once")));
            }
        }
        if let Some(before) = &before {
            self.may_replace(
                name,
                before,
                &columns,
                &bound.columns().iter().map(|it| it.ty).collect::<Vec<_>>(),
            )?;
        }
        let row = ViewRow { query, columns, reads, names };
        self.record(&[Change::Put(String::new(), name.clone(), Object::View(row))]).await?;
        Ok(Answer::tagged("CREATE VIEW"))
    }

    /// A view keeps its columns when it is replaced; it may get more.
    fn may_replace(
        &self,
        name: &str,
        before: &ViewRow,
        columns: &[String],
        types: &[crate::types::Type],
    ) -> Result<()> {
        if columns.len() < before.columns.len() {
            return Err(Error::new("42P16", "cannot drop columns from view"));
        }
        let text = format!("select * from {}", crate::names::quoted(name));
        let old = crate::parser::parse(&text)?.pop().expect("it is a statement");
        let old = self.bind_own(&old.statement)?.expect("a query is bound");
        for (place, (old, name)) in old.columns().iter().zip(columns).enumerate() {
            if old.name != *name {
                let message = format!("cannot change name of view column \"{}\" to \"{name}\"", old.name);
                let hint = "Use ALTER VIEW ... RENAME COLUMN ... to change name of view column instead.";
                return Err(Error::new("42P16", message).hint(hint));
            }
            if old.ty != types[place] {
                let (from, to) = (old.ty.sql_name(), types[place].sql_name());
                let message =
                    format!("cannot change data type of view column \"{name}\" from {from} to {to}");
                return Err(Error::new("42P16", message));
            }
        }
        Ok(())
    }

    pub(super) async fn drop_views(
        &mut self,
        names: &[ObjectName],
        if_exists: bool,
        cascade: bool,
    ) -> Result<Answer> {
        let mut answer = Answer::tagged("DROP VIEW");
        let mut going = Vec::new();
        for name in names {
            self.schema_there(name)?;
            let shown = &name.name;
            if self.objects.view(shown).is_some() {
                going.push(shown.clone());
            } else if self.is_relation(shown) {
                return Err(Error::new("42809", format!("\"{shown}\" is not a view")));
            } else if if_exists {
                answer.notice(format!("view \"{shown}\" does not exist, skipping"));
            } else {
                return Err(Error::new("42P01", format!("view \"{shown}\" does not exist")));
            }
        }
        let mut changes = self.dependents(&going, "view", cascade, &mut answer)?;
        for name in going {
            changes.extend(self.objects.about(&name).into_iter().map(Change::Remove));
            changes.push(Change::Remove((Kind::View, String::new(), name)));
        }
        self.record(&changes).await?;
        Ok(answer)
    }

    pub(super) async fn comment(&mut self, about: &Commented, text: Option<&str>) -> Result<Answer> {
        let text = text.filter(|text| !text.is_empty());
        let (kind, owner, name) = match about {
            Commented::Other => return Ok(Answer::tagged("COMMENT")),
            Commented::Relation(what, name) => {
                self.schema_there(name)?;
                let shown = &name.name;
                let there = match *what {
                    "table" => self.tables.table(shown).is_ok(),
                    "view" => self.objects.view(shown).is_some(),
                    "sequence" => self.objects.sequence(shown).is_some(),
                    _ => self.owner_of(shown).is_some(),
                };
                if !there {
                    if self.is_relation(shown) {
                        let article = if *what == "index" { "an" } else { "a" };
                        return Err(Error::new("42809", format!("\"{shown}\" is not {article} {what}")));
                    }
                    return Err(Error::new("42P01", format!("relation \"{shown}\" does not exist")));
                }
                (Kind::Comment, String::new(), shown.clone())
            }
            Commented::Column(table, column) => {
                let in_view = self.objects.view(&table.name).map(|view| view.columns.contains(column));
                let there = match in_view {
                    Some(there) => there,
                    None => {
                        self.known(table)?;
                        self.tables.table(&table.name)?.schema().column_index(column).is_some()
                    }
                };
                if !there {
                    let message =
                        format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
                    return Err(Error::new("42703", message));
                }
                (Kind::ColumnComment, table.name.clone(), column.clone())
            }
            Commented::Constraint(name, table) => {
                self.known(table)?;
                let found =
                    crate::catalog::Catalog::table(&self.catalog(), &table.name).expect("it is known");
                let there = found.checks.iter().any(|(own, _)| own == name)
                    || found.foreign.iter().any(|key| key.name == *name)
                    || found.indexes.iter().any(|index| index.unique && index.name == *name);
                if !there {
                    let message =
                        format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
                    return Err(Error::new("42704", message));
                }
                (Kind::ConstraintComment, table.name.clone(), name.clone())
            }
        };
        let change = match text {
            None => Change::Remove((kind, owner, name)),
            Some(text) => {
                let row = CommentRow { text: text.to_owned() };
                let object = match kind {
                    Kind::ColumnComment => Object::ColumnComment(row),
                    Kind::ConstraintComment => Object::ConstraintComment(row),
                    _ => Object::Comment(row),
                };
                Change::Put(owner, name, object)
            }
        };
        self.record(&[change]).await?;
        Ok(Answer::tagged("COMMENT"))
    }
}

/// The edits of a query, which begins at a place of its statement, by which columns stand for each star.
fn written_out(text: &str, at: u32, stars: &[(u32, usize, Vec<String>)]) -> Edits {
    let edit = |(place, parts, columns): &(u32, usize, Vec<String>)| {
        let start = place.checked_sub(at)? as usize;
        // `t.*` is as long as its star is far.
        let star = star_in(text.get(start..)?, *parts)?;
        Some((start..start + star + 1, columns.join(", ")))
    };
    stars.iter().filter_map(edit).collect()
}

/// Where the star stands behind so many names.
fn star_in(text: &str, parts: usize) -> Option<usize> {
    let mut quoted = false;
    let mut points = 0;
    for (at, sign) in text.char_indices() {
        match sign {
            '"' => quoted = !quoted,
            '.' if !quoted => points += 1,
            '*' if !quoted && points == parts => return Some(at),
            _ => {}
        }
    }
    None
}
