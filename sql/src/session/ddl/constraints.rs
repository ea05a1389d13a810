//! CHECK constraints and foreign keys: made with their table or added to it, dropped; what depends on a table or a column.

use std::sync::Arc;

use thermocline_engine::TableSchema;
use thermocline_row as row;

use super::tables::plain_column;
use crate::bind::Binder;
use crate::catalog::{Catalog, Index, Table, sql_type};
use crate::error::{Error, Result};
use crate::names::{self, quoted};
use crate::objects::Change;
use crate::objects::rows::{ActionRow, CheckRow, ForeignRow, Kind, Object};
use crate::parser::ast::{Action, CheckDef, CreateTable, ForeignDef, ObjectName};
use crate::parser::edited;
use crate::session::{Answer, Session};
use crate::types::{Datum, Type};

fn action(action: Action) -> ActionRow {
    match action {
        Action::Nothing => ActionRow::NoAction,
        Action::Restrict => ActionRow::Restrict,
        Action::Cascade => ActionRow::Cascade,
        Action::SetNull => ActionRow::SetNull,
        Action::SetDefault => ActionRow::SetDefault,
    }
}

/// Do values of both types have one form?
fn comparable(a: Type, b: Type) -> bool {
    let kind = |ty: Type| match ty {
        Type::Int2 | Type::Int4 | Type::Int8 => Type::Int8,
        Type::Text | Type::Varchar => Type::Text,
        Type::Float4 | Type::Float8 => Type::Float8,
        other => other,
    };
    kind(a) == kind(b)
}

impl Session {
    /// Runs a statement that a definition needs, in its transaction.
    pub(super) async fn internal(&mut self, text: &str) -> Result<Vec<Vec<Datum>>> {
        let statement = crate::parser::parse(text)?.pop().expect("it is a statement").statement;
        let bound = self.bind_own(&statement)?.expect("it is one on rows");
        let context = self.own_context();
        let mut found: Vec<Vec<Datum>> = Vec::new();
        self.run_tree(&bound, &context, &mut found).await?;
        Ok(found)
    }

    /// The table that a schema will be, as far as its constraints are bound over it.
    fn table_of(schema: &TableSchema, changes: &[Change]) -> Table {
        let columns = schema.column_list().iter().map(|column: &row::Column| {
            let kept = changes.iter().find_map(|change| match change {
                Change::Put(_, name, Object::Column(row)) if *name == column.name => row.ty,
                _ => None,
            });
            let (ty, modifier) = match kept.and_then(|(oid, modifier)| Some((Type::from_oid(oid)?, modifier)))
            {
                Some(known) => known,
                None => sql_type(column.ty),
            };
            let mut made = plain_column(&column.name, ty, modifier, column.ty);
            made.hidden = column.name == crate::catalog::HIDDEN_KEY;
            made
        });
        let columns: Vec<_> = columns.collect();
        let indexes = schema.primary().into_iter().chain(schema.secondary().iter()).enumerate();
        let indexes = indexes.map(|(place, index)| Index {
            name: index.name().to_owned(),
            ordered: true,
            unique: index.is_unique() || (place == 0 && schema.primary().is_some()),
            columns: index
                .columns()
                .map(|(name, descending)| {
                    let place = columns.iter().position(|column| column.name == name);
                    (place.expect("an index is on columns of its table"), descending)
                })
                .collect(),
        });
        Table {
            identity: crate::catalog::Identity::default(),
            name: schema.name().to_owned(),
            indexes: indexes.collect(),
            columns,
            primary: schema.primary().map(|_| 0),
            rows: 0,
            tiering: None,
            checks: Vec::new(),
            foreign: Vec::new(),
            referenced: Vec::new(),
        }
    }

    /// The rows of all constraints of a table that is made.
    pub(super) fn constraints_of(
        &self,
        create: &CreateTable,
        schema: &TableSchema,
        changes: &mut Vec<Change>,
    ) -> Result<()> {
        let table = Self::table_of(schema, changes);
        let mut taken: Vec<String> = schema.primary().iter().map(|key| key.name().to_owned()).collect();
        taken.extend(schema.secondary().iter().map(|key| key.name().to_owned()));
        // Names that are given come first.
        let checks = create.columns.iter().flat_map(|column| &column.checks).chain(&create.checks);
        let named = checks.filter_map(|check| Some((check.name.as_ref()?, true)));
        let foreign = create.columns.iter().flat_map(|column| &column.references).chain(&create.foreign);
        for (name, check) in named.chain(foreign.clone().filter_map(|key| Some((key.name.as_ref()?, false))))
        {
            if taken.contains(name) {
                let message = match check {
                    true => format!("check constraint \"{name}\" already exists"),
                    false => format!("constraint \"{name}\" for relation \"{}\" already exists", table.name),
                };
                return Err(Error::new("42710", message));
            }
            taken.push(name.clone());
        }
        for column in &create.columns {
            for check in &column.checks {
                changes.push(self.check_row(&table, Some(&column.name), check, &mut taken)?);
            }
        }
        for check in &create.checks {
            changes.push(self.check_row(&table, None, check, &mut taken)?);
        }
        for key in foreign {
            changes.push(self.foreign_row(&table, key, &mut taken)?);
        }
        Ok(())
    }

    fn check_row(
        &self,
        table: &Table,
        column: Option<&str>,
        check: &CheckDef,
        taken: &mut Vec<String>,
    ) -> Result<Change> {
        let catalog = self.catalog();
        let mut binder = Binder::new(&catalog, Vec::new(), self.local()).for_keeping();
        let bound = binder.check_expr(&check.condition.expr, table)?;
        if !binder.parameters.is_empty() {
            return Err(Error::new("42P02", "there is no parameter $1").at(check.at));
        }
        let name = check.name.clone().unwrap_or_else(|| {
            let mut used = bound.columns();
            used.sort_unstable();
            used.dedup();
            let about = match (&used[..], column) {
                (_, Some(column)) => Some(column),
                ([one], None) => Some(table.columns[*one].name.as_str()),
                _ => None,
            };
            free(names::plain(&table.name), about, "check", taken)
        });
        taken.push(name.clone());
        let (text, at) = (&check.condition.text, check.condition.at);
        let condition = edited(text, binder.zone_edits(text, at));
        Ok(Change::Put(table.name.clone(), name, Object::Check(CheckRow { condition })))
    }

    fn foreign_row(&self, table: &Table, key: &ForeignDef, taken: &mut Vec<String>) -> Result<Change> {
        self.schema_there(&key.parent)?;
        let parent = if key.parent.name == table.name {
            None
        } else {
            self.known(&key.parent).map_err(Error::nowhere)?;
            self.catalog().table(&key.parent.name)
        };
        let parent: &Table = parent.as_deref().unwrap_or(table);
        let places = |of: &Table, names: &[(String, u32)]| -> Result<Vec<usize>> {
            let place = |(name, _): &(String, u32)| {
                let found = of.columns.iter().position(|column| column.name == *name && !column.hidden);
                let message =
                    format!("column \"{name}\" referenced in foreign key constraint does not exist");
                found.ok_or_else(|| Error::new("42703", message))
            };
            names.iter().map(place).collect()
        };
        let own = places(table, &key.columns)?;
        let theirs = if key.parent_columns.is_empty() {
            let primary = parent.primary.map(|primary| &parent.indexes[primary]);
            let primary =
                primary.filter(|key| key.columns.iter().all(|(column, _)| !parent.columns[*column].hidden));
            let none = || {
                let message = format!("there is no primary key for referenced table \"{}\"", parent.name);
                Error::new("42704", message)
            };
            primary.ok_or_else(none)?.columns.iter().map(|(column, _)| *column).collect()
        } else {
            places(parent, &key.parent_columns)?
        };
        if own.len() != theirs.len() {
            let message = "number of referencing and referenced columns for foreign key disagree";
            return Err(Error::new("42830", message));
        }
        if parent.unique_on(&theirs).is_none() {
            let message = format!(
                "there is no unique constraint matching given keys for referenced table \"{}\"",
                parent.name
            );
            return Err(Error::new("42830", message));
        }
        let names: Vec<String> = own.iter().map(|place| table.columns[*place].name.clone()).collect();
        let columns = names::joined(names.iter().map(String::as_str));
        let free = || free(names::plain(&table.name), Some(&columns), "fkey", taken);
        let name = key.name.clone().unwrap_or_else(free);
        for (a, b) in own.iter().zip(&theirs) {
            let (a, b) = (&table.columns[*a], &parent.columns[*b]);
            if !comparable(a.ty, b.ty) {
                let detail = format!(
                    "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
                    a.name,
                    b.name,
                    a.ty.sql_name(),
                    b.ty.sql_name()
                );
                let message = format!("foreign key constraint \"{name}\" cannot be implemented");
                return Err(Error::new("42804", message).detail(detail));
            }
        }
        taken.push(name.clone());
        let row = ForeignRow {
            columns: names,
            parent: parent.name.clone(),
            parent_columns: theirs.iter().map(|place| parent.columns[*place].name.clone()).collect(),
            on_delete: action(key.on_delete),
            on_update: action(key.on_update),
            deferrable: key.deferrable,
            deferred: key.deferred,
        };
        Ok(Change::Put(table.name.clone(), name, Object::Foreign(row)))
    }

    /// Names that constraints of a table have.
    fn constraint_names(&self, table: &Table) -> Vec<String> {
        let mut all: Vec<String> = table.indexes.iter().map(|index| index.name.clone()).collect();
        all.extend(table.checks.iter().map(|(name, _)| name.clone()));
        all.extend(table.foreign.iter().map(|key| key.name.clone()));
        all
    }

    /// A table, and the names its constraints have, which a new one cannot have.
    fn may_add(&self, table: &str, name: Option<&String>) -> Result<(Arc<Table>, Vec<String>)> {
        let found = self.catalog().table(table).expect("it is known");
        let taken = self.constraint_names(&found);
        if let Some(name) = name.filter(|name| taken.contains(name)) {
            let message = format!("constraint \"{name}\" for relation \"{table}\" already exists");
            return Err(Error::new("42710", message));
        }
        Ok((found, taken))
    }

    pub(super) async fn add_check(&mut self, table: &str, check: &CheckDef) -> Result<()> {
        let (found, mut taken) = self.may_add(table, check.name.as_ref())?;
        let change = self.check_row(&found, None, check, &mut taken)?;
        self.put_check(table, change).await
    }

    /// One that stands behind a column that is added.
    pub(super) async fn add_column_check(
        &mut self,
        table: &str,
        column: &str,
        check: &CheckDef,
    ) -> Result<()> {
        let (found, mut taken) = self.may_add(table, check.name.as_ref())?;
        let change = self.check_row(&found, Some(column), check, &mut taken)?;
        self.put_check(table, change).await
    }

    async fn put_check(&mut self, table: &str, change: Change) -> Result<()> {
        let Change::Put(_, name, Object::Check(row)) = &change else { unreachable!("it is a check") };
        let broken = format!("select 1 from {} where ({}) is false limit 1", quoted(table), row.condition);
        if !self.internal(&broken).await.map_err(Error::nowhere)?.is_empty() {
            let message =
                format!("check constraint \"{name}\" of relation \"{table}\" is violated by some row");
            return Err(Error::new("23514", message).table(table).constraint(name));
        }
        self.record(&[change]).await
    }

    pub(super) async fn add_foreign(&mut self, table: &str, key: &ForeignDef) -> Result<()> {
        // Neither table may change before the key holds.
        self.hold(table).await?;
        self.hold(&key.parent.name).await?;
        let (found, mut taken) = self.may_add(table, key.name.as_ref())?;
        let change = self.foreign_row(&found, key, &mut taken)?;
        let Change::Put(_, name, Object::Foreign(row)) = &change else { unreachable!("it is a foreign key") };
        let pairs = row.columns.iter().zip(&row.parent_columns);
        let equal: Vec<String> = pairs.map(|(a, b)| format!("p.{} = c.{}", quoted(b), quoted(a))).collect();
        let there: Vec<String> = row.columns.iter().map(|a| format!("c.{} is not null", quoted(a))).collect();
        let columns: Vec<String> = row.columns.iter().map(|a| format!("c.{}", quoted(a))).collect();
        let orphans = format!(
            "select {} from {} c where {} and not exists (select 1 from {} p where {}) limit 1",
            columns.join(", "),
            quoted(table),
            there.join(" and "),
            quoted(&row.parent),
            equal.join(" and ")
        );
        if let Some(orphan) = self.internal(&orphans).await?.first() {
            let message =
                format!("insert or update on table \"{table}\" violates foreign key constraint \"{name}\"");
            let shown = crate::exec::shown(&found, &row.columns, orphan, &self.settings.zone);
            let detail = format!("Key {shown} is not present in table \"{}\".", row.parent);
            return Err(Error::new("23503", message).detail(detail).table(table).constraint(name));
        }
        self.record(&[change]).await
    }

    pub(super) async fn drop_constraint(
        &mut self,
        table: &str,
        name: &str,
        if_exists: bool,
        cascade: bool,
        answer: &mut Answer,
    ) -> Result<()> {
        let found = self.catalog().table(table).expect("it is known");
        let kind = if found.checks.iter().any(|(own, _)| own == name) {
            Kind::Check
        } else if found.foreign.iter().any(|key| key.name == name) {
            Kind::Foreign
        } else if let Some(place) = found.indexes.iter().position(|index| index.unique && index.name == name)
            && !self.objects.is_unique_index(table, name)
        {
            if found.primary == Some(place) {
                return Err(Error::unsupported("dropping a primary key"));
            }
            let changes = self.dependents_of_key(&found, place, cascade, answer)?;
            self.transaction().drop_index(table, name).await?;
            self.look_again()?;
            return self.record(&changes).await;
        } else {
            let message = format!("constraint \"{name}\" of relation \"{table}\" does not exist");
            if if_exists {
                answer.notice(format!("{message}, skipping"));
                return Ok(());
            }
            return Err(Error::new("42704", message));
        };
        let own = |kind| Change::Remove((kind, table.to_owned(), name.to_owned()));
        self.record(&[own(kind), own(Kind::ConstraintComment)]).await
    }

    /// Foreign keys that need a unique key: an error, or, with CASCADE, the changes that drop them.
    pub(super) fn dependents_of_key(
        &self,
        table: &Table,
        index: usize,
        cascade: bool,
        answer: &mut Answer,
    ) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        let name = &table.indexes[index].name;
        for key in &table.referenced {
            let places = table.places(&key.parent_columns).unwrap_or_default();
            let fits = |it: &Index| {
                it.unique
                    && it.columns.len() == places.len()
                    && it.columns.iter().all(|(c, _)| places.contains(c))
            };
            let others = table.indexes.iter().enumerate().any(|(other, it)| other != index && fits(it));
            if !fits(&table.indexes[index]) || others {
                continue;
            }
            let what = format!("constraint {} on table {}", key.name, key.child);
            if !cascade {
                let (owner, kind) = (&table.name, "constraint");
                let message =
                    format!("cannot drop {kind} {name} on table {owner} because other objects depend on it");
                return Err(Error::new("2BP01", message)
                    .detail(format!("{what} depends on index {name}"))
                    .hint("Use DROP ... CASCADE to drop the dependent objects too."));
            }
            answer.notice(format!("drop cascades to {what}"));
            changes.push(Change::Remove((Kind::Foreign, key.child.clone(), key.name.clone())));
        }
        Ok(changes)
    }

    /// The dependents of tables or views that are to be dropped: an error, or, with CASCADE, the changes that drop it.
    pub(super) fn dependents(
        &self,
        going: &[String],
        kind: &str,
        cascade: bool,
        answer: &mut Answer,
    ) -> Result<Vec<Change>> {
        let (mut changes, mut found) = (Vec::new(), Vec::new());
        for (child, name, row) in self.objects.foreign() {
            if going.contains(&row.parent) && !going.iter().any(|own| own == child) {
                found.push((format!("constraint {name} on table {child}"), format!("table {}", row.parent)));
                changes.push(Change::Remove((Kind::Foreign, child.to_owned(), name.to_owned())));
            }
        }
        // Views on views go, too.
        let mut gone = going.to_vec();
        let mut more = true;
        while more {
            more = false;
            for (name, view) in self.objects.views() {
                let Some(read) = view.reads.iter().find(|read| gone.contains(read)) else { continue };
                if gone.iter().any(|own| own == name) {
                    continue;
                }
                let of = if self.objects.view(read).is_some() { "view" } else { "table" };
                found.push((format!("view {name}"), format!("{of} {read}")));
                gone.push(name.to_owned());
                changes.push(Change::Remove((Kind::View, String::new(), name.to_owned())));
                changes.extend(self.objects.about(name).into_iter().map(Change::Remove));
                more = true;
            }
        }
        if found.is_empty() {
            return Ok(changes);
        }
        if !cascade {
            let all: Vec<String> = found.iter().map(|(what, of)| format!("{what} depends on {of}")).collect();
            let message = match going {
                [one] => format!("cannot drop {kind} {one} because other objects depend on it"),
                _ => "cannot drop desired object(s) because other objects depend on them".to_owned(),
            };
            return Err(Error::new("2BP01", message)
                .detail(all.join("\n"))
                .hint("Use DROP ... CASCADE to drop the dependent objects too."));
        }
        match &found[..] {
            [(one, _)] => answer.notice(format!("drop cascades to {one}")),
            all => answer.notice(format!("drop cascades to {} other objects", all.len())),
        }
        Ok(changes)
    }

    /// A view whose query names a column of a table.
    pub(super) fn view_of_column(&self, table: &str, column: &str) -> Option<&str> {
        let mut views = self.objects.views();
        let found = views.find(|(_, view)| self.view_names(view, table, column));
        found.map(|(name, _)| name)
    }

    /// Refuses a type of a column that keys could not compare any more.
    pub(super) fn keys_stay_comparable(&self, table: &Table, column: &str, ty: Type) -> Result<()> {
        for (child, name, row) in self.objects.foreign() {
            let pairs = row.columns.iter().zip(&row.parent_columns);
            let others = pairs.filter_map(|(own, theirs)| {
                let (as_child, as_parent) = (child == table.name, row.parent == table.name);
                match () {
                    () if as_child && own == column => Some((row.parent.as_str(), theirs)),
                    () if as_parent && theirs == column => Some((child, own)),
                    () => None,
                }
            });
            for (other, place) in others {
                let Some(other) = self.catalog().table(other) else { continue };
                let Some(found) = other.columns.iter().find(|it| it.name == *place) else { continue };
                if other.name != table.name && !comparable(found.ty, ty) {
                    let (a, b) = (ty.sql_name(), found.ty.sql_name());
                    let detail = format!(
                        "Key columns \"{column}\" and \"{place}\" are of incompatible types: {a} and {b}."
                    );
                    let message = format!("foreign key constraint \"{name}\" cannot be implemented");
                    return Err(Error::new("42804", message).detail(detail));
                }
            }
        }
        Ok(())
    }

    /// The dependents of a column that is to be dropped: its own constraints go with it, others are an error or go with CASCADE.
    pub(super) fn dependents_of_column(
        &self,
        table: &str,
        column: &str,
        cascade: bool,
        answer: &mut Answer,
    ) -> Result<Vec<Change>> {
        let (mut changes, mut found) = (Vec::new(), Vec::new());
        let known = self.catalog().table(table).expect("it is known");
        let place = known.columns.iter().position(|it| it.name == column);
        let catalog = self.catalog();
        let mut binder = Binder::new(&catalog, Vec::new(), self.local());
        let used = binder
            .checks(&known)?
            .into_iter()
            .filter(|(_, condition)| place.is_some_and(|place| condition.columns().contains(&place)));
        changes.extend(used.map(|(name, _)| Change::Remove((Kind::Check, table.to_owned(), name))));
        let named = |names: &[String]| names.iter().any(|name| name == column);
        for (child, name, row) in self.objects.foreign() {
            let own = child == table && named(&row.columns);
            if own || (row.parent == table && named(&row.parent_columns)) {
                if !own {
                    found.push(format!("constraint {name} on table {child}"));
                }
                changes.push(Change::Remove((Kind::Foreign, child.to_owned(), name.to_owned())));
            }
        }
        for (name, _) in self.objects.views().filter(|(_, view)| self.view_names(view, table, column)) {
            found.push(format!("view {name}"));
            let below = self.dependents(&[name.to_owned()], "view", true, &mut Answer::default())?;
            changes.push(Change::Remove((Kind::View, String::new(), name.to_owned())));
            changes.extend(below);
        }
        if found.is_empty() {
            return Ok(changes);
        }
        if !cascade {
            let of = format!("column {column} of table {table}");
            let all: Vec<String> = found.iter().map(|what| format!("{what} depends on {of}")).collect();
            let message = format!("cannot drop {of} because other objects depend on it");
            return Err(Error::new("2BP01", message)
                .detail(all.join("\n"))
                .hint("Use DROP ... CASCADE to drop the dependent objects too."));
        }
        match &found[..] {
            [one] => answer.notice(format!("drop cascades to {one}")),
            all => answer.notice(format!("drop cascades to {} other objects", all.len())),
        }
        Ok(changes)
    }

    /// The tables that TRUNCATE empties, with those that refer to them if it cascades.
    pub(super) fn truncated(
        &self,
        names: &[ObjectName],
        cascade: bool,
        answer: &mut Answer,
    ) -> Result<Vec<String>> {
        let mut all: Vec<String> = Vec::new();
        for name in names {
            self.known(name)?;
            if !all.contains(&name.name) {
                all.push(name.name.clone());
            }
        }
        let mut at = 0;
        while let Some(parent) = all.get(at).cloned() {
            at += 1;
            for (child, _, row) in self.objects.foreign() {
                if row.parent != parent || all.iter().any(|own| own == child) {
                    continue;
                }
                if !cascade {
                    let message = "cannot truncate a table referenced in a foreign key constraint";
                    return Err(Error::new("0A000", message)
                        .detail(format!("Table \"{child}\" references \"{parent}\"."))
                        .hint(format!(
                            "Truncate table \"{child}\" at the same time, or use TRUNCATE ... CASCADE."
                        )));
                }
                answer.notice(format!("truncate cascades to table \"{child}\""));
                all.push(child.to_owned());
            }
        }
        Ok(all)
    }

    /// The sequences of tables, back at their start.
    pub(super) fn restarted(&self, tables: &[String]) -> Vec<Change> {
        let owned = self
            .objects
            .sequences()
            .filter(|(_, row)| row.owner.as_ref().is_some_and(|(table, _)| tables.contains(table)));
        owned.map(|(name, row)| Change::Position(name.to_owned(), row.start, false)).collect()
    }
}

/// A name that no constraint of the table has (`ChooseConstraintName`).
fn free(table: &str, columns: Option<&str>, label: &str, taken: &[String]) -> String {
    (0..)
        .map(|number| names::made(table, columns, label, number))
        .find(|name| !taken.contains(name))
        .expect("numbers do not end")
}
