//! ALTER TABLE.

use thermocline_engine::{Error as EngineError, SchemaError};

use super::renames::Renaming;
use super::tables::plain_column;
use crate::catalog::{Catalog, sql_type};
use crate::error::{Error, Result};
use crate::names::{self, quoted};
use crate::objects::Change;
use crate::objects::rows::{ColumnRow, DefaultRow, ForeignRow, Kind, Object};
use crate::parser::ast::{Alter, ColumnDef, ObjectName, Written};
use crate::session::{Answer, Session};

impl Session {
    pub(super) async fn alter_table(
        &mut self,
        name: &ObjectName,
        if_exists: bool,
        actions: &[Alter],
    ) -> Result<Answer> {
        let mut answer = Answer::tagged("ALTER TABLE");
        if if_exists && !self.is_relation(&name.name) {
            answer.notice(format!("relation \"{}\" does not exist, skipping", name.name));
            return Ok(answer);
        }
        // Sequences and views have an owner, too.
        if matches!(actions, [Alter::Nothing]) && self.is_relation(&name.name) {
            return Ok(answer);
        }
        if let [Alter::RenameTo(to)] = actions
            && self.objects.view(&name.name).is_some()
        {
            return self.rename_view(&name.name, to).await.map(|()| answer);
        }
        self.known(name)?;
        let table = &name.name;
        for (place, action) in actions.iter().enumerate() {
            let twice = |column: &String| {
                let before = actions[..place].iter();
                before
                    .clone()
                    .any(|other| matches!(other, Alter::SetType { column: own, .. } if own == column))
            };
            match action {
                Alter::SetType { column, .. } if twice(column) => {
                    return Err(Error::new(
                        "0A000",
                        format!("cannot alter type of column \"{column}\" twice"),
                    ));
                }
                Alter::AddColumn { column, if_not_exists } => {
                    self.add_column(table, column, *if_not_exists, &mut answer).await?;
                }
                Alter::DropColumn { name, if_exists, cascade, .. } => {
                    self.drop_column(table, name, *if_exists, *cascade, &mut answer).await?;
                }
                Alter::RenameColumn { from, to, at } => self.rename_column(table, from, to, *at).await?,
                Alter::RenameTo(to) => self.rename_table(table, to).await?,
                Alter::SetParameters(options) => self.set_parameters(table, options).await?,
                Alter::ResetParameters(options) => self.reset_parameters(table, options).await?,
                Alter::AddKey { key, .. } => self.add_key(name, key).await?,
                Alter::AddCheck(check) => self.add_check(table, check).await?,
                Alter::AddForeign(foreign) => self.add_foreign(table, foreign).await?,
                Alter::DropConstraint { name, if_exists, cascade } => {
                    self.drop_constraint(table, name, *if_exists, *cascade, &mut answer).await?;
                }
                Alter::Validate(name) => self.validate_constraint(table, name)?,
                Alter::SetDefault { column, default, .. } => {
                    self.set_default(table, column, default.as_ref()).await?;
                }
                Alter::SetNotNull { column, not_null, .. } => {
                    self.set_not_null(table, column, *not_null).await?;
                }
                Alter::SetType { column, at, ty, using } => {
                    self.set_type(table, (column, *at), ty, using.as_ref()).await?;
                }
                Alter::AddIdentity { column, identity } => self.add_identity(table, column, identity).await?,
                Alter::SetIdentity { column, always } => self.set_identity(table, column, *always).await?,
                Alter::DropIdentity { column, if_exists } => {
                    if !self.drop_identity(table, column, *if_exists).await? {
                        let what = format!("column \"{column}\" of relation \"{table}\"");
                        answer.notice(format!("{what} is not an identity column, skipping"));
                    }
                }
                Alter::Nothing => {}
            }
        }
        Ok(answer)
    }

    /// VALIDATE CONSTRAINT: all that are there hold.
    fn validate_constraint(&self, table: &str, name: &str) -> Result<()> {
        let found = self.catalog().table(table).expect("it is known");
        if found.checks.iter().any(|(own, _)| own == name) || found.foreign.iter().any(|key| key.name == name)
        {
            return Ok(());
        }
        if found.indexes.iter().any(|index| index.name == name && !self.objects.is_unique_index(table, name))
        {
            let what = "is not a foreign key or check constraint";
            return Err(Error::new("42809", format!("constraint \"{name}\" of relation \"{table}\" {what}")));
        }
        Err(Error::new("42704", format!("constraint \"{name}\" of relation \"{table}\" does not exist")))
    }

    fn has_column(&self, table: &str, column: &str) -> bool {
        self.tables.table(table).is_ok_and(|table| table.schema().column_index(column).is_some())
    }

    pub(super) fn column_known(&self, table: &str, column: &str) -> Result<()> {
        if self.has_column(table, column) {
            return Ok(());
        }
        Err(Error::new("42703", format!("column \"{column}\" of relation \"{table}\" does not exist")))
    }

    /// The row that is kept of a column.
    pub(super) fn kept(&self, table: &str, column: &str) -> ColumnRow {
        self.objects.column(table, column).cloned().unwrap_or_default()
    }

    pub(super) async fn keep(&mut self, table: &str, column: &str, row: ColumnRow) -> Result<()> {
        if row == ColumnRow::default() {
            let name = (Kind::Column, table.to_owned(), column.to_owned());
            return self.record(&[Change::Remove(name)]).await;
        }
        self.record(&[Change::Put(table.to_owned(), column.to_owned(), Object::Column(row))]).await
    }

    async fn add_column(
        &mut self,
        table: &str,
        column: &ColumnDef,
        if_not_exists: bool,
        answer: &mut Answer,
    ) -> Result<()> {
        let name = &column.name;
        if self.has_column(table, name) {
            let message = format!("column \"{name}\" of relation \"{table}\" already exists");
            if if_not_exists {
                answer.notice(format!("{message}, skipping"));
                return Ok(());
            }
            return Err(Error::new("42701", message));
        }
        if column.primary {
            return Err(Error::unsupported("a primary key on a column that is added").at(column.at));
        }
        let mut changes = Vec::new();
        let mut stored = self.column(table, column, &mut changes)?;
        let computed = changes.iter().any(|change| {
            matches!(change, Change::Put(_, _, Object::Column(row)) if matches!(row.default, DefaultRow::Text(_)))
        });
        // Rows that are there get what the default computes, and NOT NULL holds from then on.
        let not_null = computed && !stored.nullable;
        if computed {
            stored.nullable = true;
        }
        let added = self.transaction().add_column(table, stored).await;
        added.map_err(|error| match error {
            EngineError::Schema(SchemaError::NoDefault { .. }) => {
                Error::new("23502", format!("column \"{name}\" of relation \"{table}\" contains null values"))
            }
            other => other.into(),
        })?;
        self.look_again()?;
        self.record(&changes).await?;
        if computed {
            let column = quoted(name);
            self.internal(&format!("update {} set {column} = default", quoted(table))).await?;
        }
        if not_null {
            let kept = ColumnRow { not_null, ..self.kept(table, name) };
            self.keep(table, name, kept).await?;
        }
        let own = ObjectName { schema: None, name: table.to_owned(), at: column.at };
        if column.unique {
            let columns = vec![(name.clone(), column.at)];
            let key = crate::parser::ast::KeyDef { name: None, columns, primary: false };
            self.add_key(&own, &key).await?;
        }
        for check in &column.checks {
            self.add_column_check(table, name, check).await?;
        }
        for foreign in &column.references {
            self.add_foreign(table, foreign).await?;
        }
        Ok(())
    }

    async fn drop_column(
        &mut self,
        table: &str,
        name: &str,
        if_exists: bool,
        cascade: bool,
        answer: &mut Answer,
    ) -> Result<()> {
        if !self.has_column(table, name) {
            let message = format!("column \"{name}\" of relation \"{table}\" does not exist");
            if if_exists {
                answer.notice(format!("{message}, skipping"));
                return Ok(());
            }
            return Err(Error::new("42703", message));
        }
        let schema = self.tables.table(table)?.schema();
        if schema.primary().is_some_and(|key| key.columns().any(|(column, _)| column == name)) {
            return Err(Error::unsupported(format!("dropping column \"{name}\" of the primary key")));
        }
        let mut changes = self.dependents_of_column(table, name, cascade, answer)?;
        for index in
            schema.secondary().iter().filter(|index| index.columns().any(|(column, _)| column == name))
        {
            self.transaction().drop_index(table, index.name()).await?;
        }
        self.transaction().drop_column(table, name).await?;
        self.look_again()?;
        let owned = self.objects.sequences().filter(|(_, row)| {
            row.owner.as_ref().is_some_and(|(own, column)| own == table && column == name)
        });
        changes.extend(owned.map(|(sequence, _)| Change::RemoveSequence(sequence.to_owned())));
        let own = |kind| Change::Remove((kind, table.to_owned(), name.to_owned()));
        changes.extend([own(Kind::Column), own(Kind::ColumnComment)]);
        self.record(&changes).await
    }

    async fn rename_column(&mut self, table: &str, from: &str, to: &str, at: u32) -> Result<()> {
        if !self.has_column(table, from) {
            return Err(Error::new("42703", format!("column \"{from}\" does not exist")).at(at));
        }
        if self.has_column(table, to) {
            let message = format!("column \"{to}\" of relation \"{table}\" already exists");
            return Err(Error::new("42701", message));
        }
        let renaming = Renaming::Column { table, from, to };
        let texts = self.rewritten(renaming)?;
        self.transaction().rename_column(table, from, to).await?;
        self.look_again()?;
        let mut changes = Vec::new();
        for name in self.objects.about(table) {
            let object = self.objects.get(&name).expect("it was just named").clone();
            let (kind, owner, own) = name.clone();
            match object {
                object if own == from && matches!(kind, Kind::Column | Kind::ColumnComment) => {
                    changes.push(Change::Remove(name));
                    changes.push(Change::Put(owner, to.to_owned(), object));
                }
                _ => {}
            }
        }
        let new = |names: &[String]| -> Vec<String> {
            names.iter().map(|name| if name == from { to.to_owned() } else { name.clone() }).collect()
        };
        for (child, name, row) in self.objects.foreign() {
            let mut changed = row.clone();
            if child == table {
                changed.columns = new(&row.columns);
            }
            if row.parent == table {
                changed.parent_columns = new(&row.parent_columns);
            }
            if changed != *row {
                changes.push(Change::Put(child.to_owned(), name.to_owned(), Object::Foreign(changed)));
            }
        }
        for (name, row) in self.objects.sequences() {
            if row.owner.as_ref().is_some_and(|(own, column)| own == table && column == from) {
                let mut row = row.clone();
                row.owner = Some((table.to_owned(), to.to_owned()));
                changes.push(Change::PutSequence(name.to_owned(), row, None));
            }
        }
        self.record(&changes).await?;
        self.keep_rewritten(renaming, texts).await
    }

    async fn rename_table(&mut self, table: &str, to: &str) -> Result<()> {
        let to = &names::checked(names::schema_of(table), to)?;
        if self.is_relation(to) {
            return Err(Error::new("42P07", format!("relation \"{to}\" already exists")));
        }
        self.move_table(table, to).await
    }

    /// Gives a table another full name, wherever it stands.
    pub(super) async fn move_table(&mut self, table: &str, to: &str) -> Result<()> {
        let renaming = Renaming::Relation { from: table, to };
        let texts = self.rewritten(renaming)?;
        self.transaction().rename_table(table, to).await?;
        self.look_again()?;
        let mut changes = Vec::new();
        for name in self.objects.about(table) {
            let object = self.objects.get(&name).expect("it was just named").clone();
            let (_, owner, own) = name.clone();
            changes.push(Change::Remove(name));
            let object = match object {
                Object::Foreign(row) if row.parent == table => {
                    Object::Foreign(ForeignRow { parent: to.to_owned(), ..row })
                }
                other => other,
            };
            let (owner, own) = if owner.is_empty() { (owner, to.to_owned()) } else { (to.to_owned(), own) };
            changes.push(Change::Put(owner, own, object));
        }
        for (child, name, row) in
            self.objects.foreign().filter(|(child, _, row)| *child != table && row.parent == table)
        {
            let row = ForeignRow { parent: to.to_owned(), ..row.clone() };
            changes.push(Change::Put(child.to_owned(), name.to_owned(), Object::Foreign(row)));
        }
        for (name, row) in self.objects.sequences() {
            if let Some((_, column)) = row.owner.as_ref().filter(|(own, _)| own == table) {
                let mut row = row.clone();
                row.owner = Some((to.to_owned(), column.clone()));
                changes.push(Change::PutSequence(name.to_owned(), row, None));
            }
        }
        self.record(&changes).await?;
        self.keep_rewritten(renaming, texts).await
    }

    async fn set_default(&mut self, table: &str, column: &str, default: Option<&Written>) -> Result<()> {
        self.column_known(table, column)?;
        let mut kept = self.kept(table, column);
        if kept.identity.is_some() {
            let message = format!("column \"{column}\" of relation \"{table}\" is an identity column");
            return Err(Error::new("42601", message));
        }
        let schema = self.tables.table(table)?.schema();
        let stored = schema.column_list().iter().find(|it| it.name == column).expect("it is known").clone();
        kept.default = match default {
            None if stored.default.is_none() => DefaultRow::Engine,
            None => DefaultRow::Dropped,
            Some(default) => {
                let (ty, modifier) = match kept.ty {
                    Some((oid, modifier)) => {
                        (crate::types::Type::from_oid(oid).unwrap_or(sql_type(stored.ty).0), modifier)
                    }
                    None => sql_type(stored.ty),
                };
                let target = plain_column(column, ty, modifier, stored.ty);
                match self.default_row(default, &target).map_err(Error::nowhere)? {
                    // The engine's default stays as it was made: rows may stand in it.
                    (Some(_), _, text) => DefaultRow::Text(text),
                    (None, DefaultRow::Engine, _) => DefaultRow::Dropped,
                    (None, row, _) => row,
                }
            }
        };
        self.keep(table, column, kept).await
    }

    async fn set_not_null(&mut self, table: &str, column: &str, not_null: bool) -> Result<()> {
        self.column_known(table, column)?;
        let mut kept = self.kept(table, column);
        let schema = self.tables.table(table)?.schema();
        let stored = schema.column_list().iter().find(|it| it.name == column).expect("it is known");
        if not_null {
            if !stored.nullable || kept.not_null {
                return Ok(());
            }
            self.transaction().lock_table(table).await?;
            let (name, own) = (quoted(column), quoted(table));
            if !self.internal(&format!("select 1 from {own} where {name} is null limit 1")).await?.is_empty()
            {
                let message = format!("column \"{column}\" of relation \"{table}\" contains null values");
                return Err(Error::new("23502", message).table(table).column(column));
            }
            kept.not_null = true;
            return self.keep(table, column, kept).await;
        }
        let catalog = self.catalog();
        let known = catalog.table(table).expect("it is known");
        let primary = known.primary.map(|primary| &known.indexes[primary]);
        if primary
            .is_some_and(|key| key.columns.iter().any(|(place, _)| known.columns[*place].name == column))
        {
            return Err(Error::new("42P16", format!("column \"{column}\" is in a primary key")));
        }
        if kept.identity.is_some() {
            let message = format!("column \"{column}\" of relation \"{table}\" is an identity column");
            return Err(Error::new("42601", message));
        }
        if !stored.nullable {
            return self.make_nullable(table, column).await;
        }
        kept.not_null = false;
        self.keep(table, column, kept).await
    }
}
