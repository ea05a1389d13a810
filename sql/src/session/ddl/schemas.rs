//! Schemas: the search path, what names in definitions mean by it, CREATE and DROP SCHEMA, SET SCHEMA.
//!
//! Definitions work on full names ([`crate::names`]): [`Session::settled`] puts them in place of those that a statement has. What
//! is made goes into the schema that it names, or into the first one of the path; everything else is found by the path.

use std::sync::Arc;

use super::renames::Renaming;
use super::tables::next_value_of;
use crate::error::{Error, Result};
use crate::names;
use crate::objects::Change;
use crate::objects::rows::{ColumnRow, DefaultRow, Kind, Object, SchemaRow};
use crate::parser::ast::{Alter, Commented, ForeignDef, ObjectName, SchemaOf, SequenceOptions, Statement};
use crate::session::{Answer, Session};

impl Session {
    /// Makes the search path of what the setting says and of the schemas that are there.
    pub(super) fn refresh_path(&mut self) {
        let of = (self.settings.version, self.objects.version);
        if of == self.path_of {
            return;
        }
        self.path_of = of;
        let mut path: Vec<String> = Vec::new();
        for name in names::path(&self.setting("search_path").unwrap_or_default()) {
            let name = if name == "$user" { "postgres".to_owned() } else { name };
            if self.objects.has_schema(&name) && !path.contains(&name) {
                path.push(name);
            }
        }
        if self.path[..] != path[..] {
            self.path = Arc::from(path);
            self.path_number += 1;
            self.sequences.set_path(self.path.clone());
        }
    }

    /// The full name of the relation that a name means.
    pub(in crate::session) fn found(&self, name: &ObjectName) -> Option<String> {
        let there =
            |schema: &String| Some(names::within(schema, &name.name)).filter(|full| self.is_relation(full));
        match &name.schema {
            Some(schema) => there(schema),
            None => self.path.iter().find_map(there),
        }
    }

    /// The full name of a relation that is to be made.
    fn target(&self, name: &ObjectName) -> Result<String> {
        self.schema_there(name)?;
        let schema =
            match &name.schema {
                Some(schema) => schema,
                None => self.path.iter().find(|schema| *schema != "pg_catalog").ok_or_else(|| {
                    Error::new("3F000", "no schema has been selected to create in").at(name.at)
                })?,
            };
        if names::SYSTEM.contains(&&**schema) {
            let message = format!("permission denied to create \"{schema}.{}\"", name.name);
            return Err(
                Error::new("42501", message).detail("System catalog modifications are currently disallowed.")
            );
        }
        names::checked(schema, &name.name)
    }

    /// Is the schema there that a name has?
    pub(super) fn schema_there(&self, name: &ObjectName) -> Result<()> {
        match &name.schema {
            Some(schema) if !self.objects.has_schema(schema) => Err(no_schema(schema).at(name.at)),
            _ => Ok(()),
        }
    }

    /// The name with the full one in place of what was written; what nothing has is looked for where it would be first.
    pub(in crate::session) fn settle(&self, name: &mut ObjectName) {
        name.name = self.found(name).unwrap_or_else(|| {
            let schema = name.schema.as_deref().or(self.path.first().map(String::as_str));
            names::within(schema.unwrap_or(names::PUBLIC), &name.name)
        });
    }

    pub(in crate::session) fn settle_options(&self, options: &mut SequenceOptions) {
        if let Some(Some((table, _))) = &mut options.owner {
            self.settle(table);
        }
    }

    /// Parents of foreign keys; a table may be its own.
    fn settle_parents<'k>(&self, keys: impl IntoIterator<Item = &'k mut ForeignDef>, own: &str) {
        for key in keys {
            let meant = key.parent.schema.as_ref().is_none_or(|schema| schema == names::schema_of(own));
            let is_own = meant && key.parent.name == names::plain(own) && self.found(&key.parent).is_none();
            if is_own {
                own.clone_into(&mut key.parent.name);
            } else {
                self.settle(&mut key.parent);
            }
        }
    }

    /// A definition with full names.
    pub(super) fn settled(&self, statement: &Statement) -> Result<Statement> {
        let mut statement = statement.clone();
        match &mut statement {
            Statement::CreateTable(create) => {
                create.name.name = self.target(&create.name)?;
                let own = create.name.name.clone();
                self.settle_parents(create.columns.iter_mut().flat_map(|it| &mut it.references), &own);
                self.settle_parents(&mut create.foreign, &own);
                create.likes.iter_mut().for_each(|like| self.settle(&mut like.table));
            }
            Statement::CreateTableAs(create) => create.name.name = self.target(&create.name)?,
            Statement::CreateView(view) => view.name.name = self.target(&view.name)?,
            Statement::CreateSequence { name, options, .. } => {
                name.name = self.target(name)?;
                self.settle_options(options);
            }
            Statement::CreateIndex(create) => self.settle(&mut create.table),
            Statement::AlterSequence { name, options, .. } => {
                self.settle(name);
                self.settle_options(options);
            }
            Statement::AlterTable { name, actions, .. } => {
                self.settle(name);
                for action in actions {
                    match action {
                        Alter::AddForeign(key) => self.settle(&mut key.parent),
                        Alter::AddColumn { column, .. } => {
                            column.references.iter_mut().for_each(|key| self.settle(&mut key.parent));
                        }
                        _ => {}
                    }
                }
            }
            Statement::DropTable { names, .. }
            | Statement::DropSequence { names, .. }
            | Statement::DropView { names, .. }
            | Statement::DropIndex { names, .. }
            | Statement::Truncate { names, .. } => names.iter_mut().for_each(|name| self.settle(name)),
            Statement::SetSchema { name, .. } | Statement::AlterView { name, .. } => self.settle(name),
            Statement::Comment { about, .. } => match about {
                Commented::Relation(_, name)
                | Commented::Column(name, _)
                | Commented::Constraint(_, name) => {
                    self.settle(name);
                }
                Commented::Other => {}
            },
            _ => {}
        }
        Ok(statement)
    }

    pub(super) async fn create_schema(&mut self, name: &str, if_not_exists: bool) -> Result<Answer> {
        let mut answer = Answer::tagged("CREATE SCHEMA");
        if name.starts_with("pg_") {
            return Err(Error::new("42939", format!("unacceptable schema name \"{name}\""))
                .detail("The prefix \"pg_\" is reserved for system schemas."));
        }
        if self.objects.has_schema(name) {
            let message = format!("schema \"{name}\" already exists");
            if if_not_exists {
                answer.notice(format!("{message}, skipping"));
                return Ok(answer);
            }
            return Err(Error::new("42P06", message));
        }
        let change = match name {
            names::PUBLIC => Change::Remove((Kind::Schema, String::new(), name.to_owned())),
            _ => {
                let row = Object::Schema(SchemaRow { dropped: false });
                Change::Put(String::new(), name.to_owned(), row)
            }
        };
        self.record(&[change]).await?;
        Ok(answer)
    }

    pub(super) async fn drop_schemas(
        &mut self,
        wanted: &[String],
        if_exists: bool,
        cascade: bool,
    ) -> Result<Answer> {
        let mut answer = Answer::tagged("DROP SCHEMA");
        let mut going: Vec<&str> = Vec::new();
        for name in wanted {
            if names::SYSTEM.contains(&&**name) {
                let message =
                    format!("cannot drop schema {name} because it is required by the database system");
                return Err(Error::new("2BP01", message));
            }
            if self.objects.has_schema(name) {
                going.push(name);
            } else if if_exists {
                answer.notice(format!("schema \"{name}\" does not exist, skipping"));
            } else {
                return Err(no_schema(name));
            }
        }
        let inside = |full: &&String| going.contains(&names::schema_of(full));
        let tables: Vec<String> =
            crate::catalog::Catalog::names(&self.catalog()).iter().filter(inside).cloned().collect();
        let views: Vec<String> = self.objects.views().map(|(name, _)| name.to_owned()).collect();
        let views: Vec<String> = views.iter().filter(inside).cloned().collect();
        let owned = |owner: &Option<(String, String)>| {
            owner.as_ref().is_some_and(|(table, _)| tables.contains(table))
        };
        let sequences = self.objects.sequences().filter(|(_, row)| !owned(&row.owner));
        let sequences: Vec<String> = sequences.map(|(name, _)| name.to_owned()).collect();
        let sequences: Vec<String> = sequences.iter().filter(inside).cloned().collect();
        let members = [("table", &tables), ("view", &views), ("sequence", &sequences)];
        let members = members.into_iter().flat_map(|(kind, all)| all.iter().map(move |full| (kind, full)));
        let mut members: Vec<String> =
            members.map(|(kind, full)| format!("{kind} {}", names::qualified(full))).collect();
        if !members.is_empty() && !cascade {
            let message = match &going[..] {
                [one] => format!("cannot drop schema {one} because other objects depend on it"),
                _ => "cannot drop desired object(s) because other objects depend on them".to_owned(),
            };
            let schema = going.join(", ");
            let all: Vec<String> =
                members.iter().map(|it| format!("{it} depends on schema {schema}")).collect();
            return Err(Error::new("2BP01", message)
                .detail(all.join("\n"))
                .hint("Use DROP ... CASCADE to drop the dependent objects too."));
        }
        let gone: Vec<String> = tables.iter().chain(&views).cloned().collect();
        let mut more = Answer::default();
        let mut changes = self.dependents(&gone, "schema", true, &mut more)?;
        members.extend(
            more.notices
                .iter()
                .filter_map(|notice| notice.message.strip_prefix("drop cascades to ").map(str::to_owned)),
        );
        match &members[..] {
            [] => {}
            [one] => answer.notice(format!("drop cascades to {one}")),
            all => answer.notice(format!("drop cascades to {} other objects", all.len())),
        }
        for name in &sequences {
            changes.extend(self.sequence_gone(name, &mut answer));
        }
        for name in views {
            changes.extend(self.objects.about(&name).into_iter().map(Change::Remove));
            changes.push(Change::Remove((Kind::View, String::new(), name)));
        }
        for name in going {
            let (owner, name) = (String::new(), name.to_owned());
            changes.push(match &*name {
                names::PUBLIC => Change::Put(owner, name, Object::Schema(SchemaRow { dropped: true })),
                _ => Change::Remove((Kind::Schema, owner, name)),
            });
        }
        let tables = self.drop_all(&tables).await?;
        changes.extend(tables);
        self.record(&changes).await?;
        Ok(answer)
    }

    /// SET SCHEMA: the relation keeps its name, and the sequences of its columns come along.
    pub(super) async fn set_schema(
        &mut self,
        kind: SchemaOf,
        name: &ObjectName,
        if_exists: bool,
        schema: &str,
    ) -> Result<Answer> {
        let tag = match kind {
            SchemaOf::Table => "ALTER TABLE",
            SchemaOf::View => "ALTER VIEW",
            SchemaOf::Sequence => "ALTER SEQUENCE",
        };
        let mut answer = Answer::tagged(tag);
        let from = &name.name;
        if !self.is_relation(from) {
            if if_exists {
                answer.notice(format!("relation \"{}\" does not exist, skipping", names::plain(from)));
                return Ok(answer);
            }
            return Err(self.no_relation(name));
        }
        let (view, sequence) = (self.objects.view(from).cloned(), self.objects.sequence(from).cloned());
        match kind {
            SchemaOf::View if view.is_none() => {
                return Err(Error::new("42809", format!("\"{from}\" is not a view")));
            }
            SchemaOf::Sequence if sequence.is_none() => {
                return Err(Error::new("42809", format!("\"{from}\" is not a sequence")));
            }
            _ => {}
        }
        if !self.objects.has_schema(schema) {
            return Err(no_schema(schema));
        }
        if names::SYSTEM.contains(&schema) {
            return Err(Error::new("42501", format!("permission denied for schema {schema}")));
        }
        let to = names::checked(schema, names::plain(from))?;
        if to == *from {
            return Ok(answer);
        }
        if self.is_relation(&to) {
            let message = format!("relation \"{to}\" already exists in schema \"{schema}\"");
            return Err(Error::new("42P07", message));
        }
        if view.is_some() {
            return self.move_view(from, &to).await.map(|()| answer);
        }
        if let Some(row) = sequence {
            if let Some((table, column)) = row.owner {
                let message = "cannot move an owned sequence into another schema";
                let detail =
                    format!("Sequence \"{from}\" is linked to table \"{table}\" (column \"{column}\").");
                return Err(Error::new("0A000", message).detail(detail));
            }
            return self.move_sequence(from, &to).await.map(|()| answer);
        }
        if self.tables.table(from).is_err() {
            return Err(Error::new("42809", format!("\"{from}\" is not a table")));
        }
        self.move_table(from, &to).await?;
        let owned: Vec<String> = self
            .objects
            .sequences()
            .filter(|(_, row)| row.owner.as_ref().is_some_and(|(table, _)| *table == to))
            .map(|(name, _)| name.to_owned())
            .collect();
        for sequence in owned {
            let to = names::within(schema, names::plain(&sequence));
            self.move_sequence(&sequence, &to).await?;
        }
        Ok(answer)
    }

    /// Gives a view another full name, wherever it stands.
    pub(super) async fn move_view(&mut self, from: &str, to: &str) -> Result<()> {
        let row = self.objects.view(from).cloned().expect("it is there");
        let renaming = Renaming::Relation { from, to };
        let texts = self.rewritten(renaming)?;
        let mut changes = vec![Change::Remove((Kind::View, String::new(), from.to_owned()))];
        changes.push(Change::Put(String::new(), to.to_owned(), Object::View(row)));
        changes.extend(self.comments_to(from, to));
        self.record(&changes).await?;
        self.keep_rewritten(renaming, texts).await
    }

    /// The comments on a relation that gets another full name.
    fn comments_to(&self, from: &str, to: &str) -> Vec<Change> {
        let mut changes = Vec::new();
        for name in self.objects.about(from) {
            let object = self.objects.get(&name).expect("it was just named").clone();
            let (_, owner, own) = name.clone();
            changes.push(Change::Remove(name));
            let (owner, own) = if owner.is_empty() { (owner, to.to_owned()) } else { (to.to_owned(), own) };
            changes.push(Change::Put(owner, own, object));
        }
        changes
    }

    /// Gives a sequence another full name, in the defaults that take its values, too.
    pub(super) async fn move_sequence(&mut self, from: &str, to: &str) -> Result<()> {
        let row = self.objects.sequence(from).cloned().expect("it is there");
        let at = self.sequences.position(from)?;
        let mut changes =
            vec![Change::RemoveSequence(from.to_owned()), Change::PutSequence(to.to_owned(), row, Some(at))];
        for (table, column, kept) in self.numbered_by(from) {
            let kept = ColumnRow { default: DefaultRow::Text(next_value_of(to)), ..kept };
            changes.push(Change::Put(table, column, Object::Column(kept)));
        }
        changes.extend(self.comments_to(from, to));
        self.record(&changes).await
    }

    /// The error of a name that no relation has.
    pub(super) fn no_relation(&self, name: &ObjectName) -> Error {
        if let Err(error) = self.schema_there(name) {
            return error;
        }
        let plain = names::plain(&name.name);
        let shown =
            name.schema.as_ref().map_or_else(|| plain.to_owned(), |schema| format!("{schema}.{plain}"));
        Error::new("42P01", format!("relation \"{shown}\" does not exist")).at(name.at)
    }
}

fn no_schema(name: &str) -> Error {
    Error::new("3F000", format!("schema \"{name}\" does not exist"))
}
