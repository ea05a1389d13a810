//! Tables and indexes: made, dropped, emptied. First the engine's definition changes, then the rows of the hidden tables.

use thermocline_engine::{Error as EngineError, IndexSchema, TableSchema};
use thermocline_row as row;

use super::rewrite::no_column_of;
use super::tiering::tiering;
use super::unique::may_index;
use crate::bind::Binder;
use crate::catalog::{Catalog, Column, HIDDEN_INDEX, HIDDEN_KEY, Identity, sql_type};
use crate::error::{Error, Result};
use crate::names::{self, quoted};
use crate::objects::Change;
use crate::objects::rows::{ColumnRow, DefaultRow, Object};
use crate::parser::ast::{ColumnDef, CreateIndex, CreateTable, Names, ObjectName, Written};
use crate::parser::edited;
use crate::session::{Answer, Session};
use crate::types::stored::stored_value;
use crate::types::{Datum, NO_MOD, Type, numeric_parts};

/// The name given to a key, and its columns.
type Key = (Option<String>, Names);

impl Session {
    /// Is there a table with this name?
    pub(in crate::session) fn known(&self, name: &ObjectName) -> Result<()> {
        if self.tables.table(&name.name).is_err() {
            if self.is_relation(&name.name) {
                return Err(Error::new("42809", format!("\"{}\" is not a table", name.name)));
            }
            return Err(self.no_relation(name));
        }
        Ok(())
    }

    /// Is the name one of a table, an index, a view or a sequence?
    pub(super) fn is_relation(&self, name: &str) -> bool {
        self.tables.table(name).is_ok()
            || self.objects.view(name).is_some()
            || self.objects.sequence(name).is_some()
            || self.owner_of(name).is_some()
    }

    /// A full name that no relation has, for what belongs to a table (`ChooseRelationName`).
    pub(super) fn free_name(
        &self,
        table: &str,
        columns: Option<&str>,
        label: &str,
        taken: &[String],
    ) -> String {
        let (schema, plain) = (names::schema_of(table), names::plain(table));
        (0..)
            .map(|number| names::within(schema, &names::made(plain, columns, label, number)))
            .find(|name| !taken.contains(name) && !self.is_relation(name))
            .expect("numbers do not end")
    }

    pub(super) async fn create_table(&mut self, create: &CreateTable) -> Result<Answer> {
        let name = &create.name.name;
        if self.is_relation(name) {
            let message = format!("relation \"{name}\" already exists");
            if create.if_not_exists {
                let mut answer = Answer::tagged("CREATE TABLE");
                answer.notices.push(crate::session::Notice {
                    severity: "NOTICE",
                    code: "42P07",
                    message: format!("{message}, skipping"),
                });
                return Ok(answer);
            }
            return Err(Error::new("42P07", message));
        }
        let whole;
        let create = if create.likes.is_empty() {
            create
        } else {
            whole = self.with_likes(create)?;
            &whole
        };
        let mut schema = TableSchema::new(name);
        if let Some(tiering) = tiering(&create.options)? {
            schema = schema.tiering(tiering);
        }
        let (mut columns, mut changes) = (Vec::new(), Vec::new());
        for column in &create.columns {
            if columns.iter().any(|other: &row::Column| other.name == column.name) {
                return Err(Error::new(
                    "42701",
                    format!("column \"{}\" specified more than once", column.name),
                ));
            }
            columns.push(self.column(name, column, &mut changes)?);
        }
        let (primary, uniques) = keys_of(create)?;
        for (column, at) in primary.iter().chain(&uniques).flat_map(|(_, names)| names) {
            let Some(found) = columns.iter_mut().find(|other| other.name == *column) else {
                return Err(
                    Error::new("42703", format!("column \"{column}\" named in key does not exist")).at(*at)
                );
            };
            if primary.as_ref().is_some_and(|(_, names)| names.iter().any(|(key, _)| key == column)) {
                found.nullable = false;
            }
            may_index(Self::type_kept(&changes, found), found.ty, "btree")?;
        }
        let mut taken: Vec<String> = vec![name.clone()];
        match primary {
            Some((given, names)) => {
                let index = match given {
                    Some(given) => names::within(names::schema_of(name), &given),
                    None => self.free_name(name, None, "pkey", &taken),
                };
                taken.push(index.clone());
                let index = names::plain(&index);
                schema = schema.primary_key(IndexSchema::ordered(index, &bare(&names)));
            }
            None => {
                columns.push(row::Column::new(HIDDEN_KEY, row::Type::Int8).auto_increment());
                schema = schema.primary_key(IndexSchema::hash(HIDDEN_INDEX, &[HIDDEN_KEY]));
            }
        }
        for (given, columns) in uniques {
            let columns = bare(&columns);
            let index = match given {
                Some(given) => names::within(names::schema_of(name), &given),
                None => self.free_name(name, Some(&names::joined(columns.iter().copied())), "key", &taken),
            };
            schema = schema.index(IndexSchema::ordered(names::plain(&index), &columns).unique());
            taken.push(index);
        }
        let schema = schema.columns(columns);
        self.constraints_of(create, &schema, &mut changes)?;
        self.transaction().create_table(schema).await?;
        self.look_again()?;
        self.record(&changes).await?;
        self.after_likes(create).await?;
        Ok(Answer::tagged("CREATE TABLE"))
    }

    /// The type of a column that is being made.
    fn type_kept(changes: &[Change], column: &row::Column) -> Type {
        let kept = changes.iter().find_map(|change| match change {
            Change::Put(_, name, Object::Column(row)) if *name == column.name => row.ty,
            _ => None,
        });
        kept.and_then(|(oid, _)| Type::from_oid(oid)).unwrap_or_else(|| sql_type(column.ty).0)
    }

    /// A column as the engine stores it, and what is kept of it beside that.
    pub(super) fn column(
        &self,
        table: &str,
        column: &ColumnDef,
        changes: &mut Vec<Change>,
    ) -> Result<row::Column> {
        let serial = match column.ty.name.last().map_or("", String::as_str) {
            "serial" | "serial4" => Some(Type::Int4),
            "bigserial" | "serial8" => Some(Type::Int8),
            "smallserial" | "serial2" => Some(Type::Int2),
            _ => None,
        };
        let (ty, modifier) = match serial {
            Some(ty) => (ty, NO_MOD),
            None => Binder::type_of(&column.ty)?,
        };
        let stored = stored_type(ty, modifier).ok_or_else(|| no_column_of(ty, modifier, column.ty.at))?;
        let mut kept = ColumnRow::default();
        if sql_type(stored) != (ty, modifier) {
            kept.ty = Some((ty.oid(), modifier));
        }
        let mut stored_column = row::Column::new(column.name.clone(), stored);
        stored_column.nullable = !column.not_null && !column.primary;
        let numbered = serial.is_some() || column.identity.is_some();
        if numbered {
            let default = column.default.as_ref();
            if let Some(default) = default {
                let what = if serial.is_some() { "default values" } else { "default and identity" };
                let name = &column.name;
                let message = format!("multiple {what} specified for column \"{name}\" of table \"{table}\"");
                let message = if serial.is_some() {
                    message
                } else {
                    message.replace("multiple default", "both default")
                };
                return Err(Error::new("42601", message).at(default.expr.at));
            }
            if !ty.is_integer() {
                return Err(Error::new("22023", "identity column type must be smallint, integer, or bigint"));
            }
            stored_column.nullable = false;
            let options = column.identity.as_ref().map_or_else(Default::default, |it| it.options.clone());
            let mut row = Self::sequence_row(&options, Some(ty))?;
            let taken: Vec<String> = changes
                .iter()
                .filter_map(|change| match change {
                    Change::PutSequence(name, ..) => Some(name.clone()),
                    _ => None,
                })
                .collect();
            let name = self.free_name(table, Some(&column.name), "seq", &taken);
            row.owner = Some((table.to_owned(), column.name.clone()));
            row.identity = column.identity.is_some();
            kept.identity = column.identity.as_ref().map(|identity| identity.always);
            kept.default = DefaultRow::Text(next_value_of(&name));
            let start = row.start;
            changes.push(Change::PutSequence(name, row, Some((start, false))));
        } else if let Some(default) = &column.default {
            let target = plain_column(&column.name, ty, modifier, stored);
            (stored_column.default, kept.default, _) = self.default_row(default, &target)?;
        }
        if kept != ColumnRow::default() {
            changes.push(Change::Put(table.to_owned(), column.name.clone(), Object::Column(kept)));
        }
        Ok(stored_column)
    }

    /// A default as the engine keeps it, if it is a constant; what a hidden row keeps of it, which is its text where the constant
    /// does not say that; and its text.
    pub(super) fn default_row(
        &self,
        default: &Written,
        target: &Column,
    ) -> Result<(Option<row::Value>, DefaultRow, String)> {
        let catalog = self.catalog();
        let mut binder = Binder::new(&catalog, Vec::new(), self.local()).for_keeping();
        let bound = binder.default_expr(&default.expr, target)?;
        if !binder.parameters.is_empty() {
            return Err(Error::new("42P02", "there is no parameter $1").at(default.expr.at));
        }
        let text = edited(&default.text, binder.zone_edits(&default.text, default.at));
        let mut text = binder.default_shown(&default.expr, text, target)?;
        let (value, row) = match Binder::constant_default(&bound) {
            Some(Datum::Null) => (None, DefaultRow::Engine),
            Some(datum) => match stored_value(&datum, target.stored) {
                Some(value) => {
                    let stored = Column { default: Some(value.clone()), ..target.clone() };
                    if binder.has_read_now {
                        text = crate::pg_catalog::default_text(&stored).unwrap_or(text);
                    }
                    let is_said = crate::pg_catalog::default_text(&stored).as_ref() == Some(&text);
                    (Some(value), if is_said { DefaultRow::Engine } else { DefaultRow::Text(text.clone()) })
                }
                None => (None, DefaultRow::Text(text.clone())),
            },
            None => {
                // PostgreSQL shows the sequence as what it is.
                let sequence = binder.sequence_of(&default.expr).map(|name| next_value_of(&name));
                (None, DefaultRow::Text(sequence.unwrap_or_else(|| text.clone())))
            }
        };
        Ok((value, row, text))
    }

    pub(super) async fn create_index(&mut self, create: &CreateIndex) -> Result<Answer> {
        self.make_index(create, false).await
    }

    /// Makes an index; `constraint`: it is that of a unique key, and goes with the key only.
    pub(super) async fn make_index(&mut self, create: &CreateIndex, constraint: bool) -> Result<Answer> {
        self.known(&create.table)?;
        let catalog = self.catalog();
        let table = catalog.table(&create.table.name).expect("it was just there");
        let names: Vec<&str> = create.columns.iter().map(|(name, _, _)| name.as_str()).collect();
        let method = create.method.as_ref().map_or("btree", |(method, _)| method.as_str());
        for (name, ..) in &create.columns {
            let found = table.columns.iter().find(|column| column.name == *name && !column.hidden);
            let Some(column) = found else {
                return Err(Error::new("42703", format!("column \"{name}\" does not exist")));
            };
            may_index(column.ty, column.stored, method)?;
        }
        let taken = |name: &str| self.is_relation(name);
        let name = match &create.name {
            Some(name) => names::within(names::schema_of(&table.name), name),
            None => self.free_name(
                &table.name,
                Some(&names::joined(told_apart(&names).iter().map(String::as_str))),
                if constraint { "key" } else { "idx" },
                &[],
            ),
        };
        if taken(&name) {
            let message = format!("relation \"{name}\" already exists");
            if create.if_not_exists {
                let mut answer = Answer::tagged("CREATE INDEX");
                answer.notice(format!("{message}, skipping"));
                return Ok(answer);
            }
            return Err(Error::new("42P07", message));
        }
        let name = names::plain(&name).to_owned();
        let mut index = match create.method.as_ref().map(|(method, at)| (method.as_str(), *at)) {
            None | Some(("btree", _)) => IndexSchema::ordered(&name, &names),
            Some(("hash", at)) if create.unique => {
                return Err(
                    Error::new("0A000", "access method \"hash\" does not support unique indexes").at(at)
                );
            }
            Some(("hash", _)) => IndexSchema::hash(&name, &names),
            Some((method @ ("gin" | "gist" | "brin" | "spgist"), at)) => {
                return Err(Error::unsupported(format!("access method {method}")).at(at));
            }
            Some((method, at)) => {
                return Err(Error::new("42704", format!("access method \"{method}\" does not exist")).at(at));
            }
        };
        for (column, _, _) in create.columns.iter().filter(|(_, _, descending)| *descending) {
            index = index.descending(column);
        }
        if create.unique {
            index = index.unique();
        }
        let made = self.transaction().create_index(&table.name, index).await;
        self.look_again()?;
        match made {
            Ok(_) => self.index_made(&table.name, &name, create.unique && !constraint).await,
            Err(EngineError::DuplicateKey { key, .. }) => {
                Err(Error::new("23505", format!("could not create unique index \"{name}\""))
                    .detail(format!("Key {key} is duplicated.")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The table that has an index with this full name.
    pub(super) fn owner_of(&self, index: &str) -> Option<String> {
        let (schema, plain) = (names::schema_of(index), names::plain(index));
        let mut known = self.index_names.borrow_mut();
        let tables = self.tables.names();
        // Names of tables that are gone go, too.
        if known.len() > 2 * tables.len() {
            known.clear();
        }
        tables.into_iter().filter(|table| names::schema_of(table) == schema).find(|name| {
            let Ok(table) = self.tables.table(name) else { return false };
            // The names of its indexes are read when its definition has changed.
            let identity = Identity::of(&table);
            let entry = known.entry(name.clone()).or_default();
            if entry.0 != identity || self.own_tables {
                let schema = table.schema();
                let all = schema.secondary().iter().chain(schema.primary());
                *entry = (identity, all.map(|index| index.name().to_owned()).collect());
            }
            entry.1.iter().any(|other| other == plain)
        })
    }

    pub(super) async fn drop_tables(
        &mut self,
        names: &[ObjectName],
        if_exists: bool,
        cascade: bool,
    ) -> Result<Answer> {
        let mut answer = Answer::tagged("DROP TABLE");
        let mut going: Vec<String> = Vec::new();
        for name in names {
            self.schema_there(name)?;
            if self.tables.table(&name.name).is_ok() {
                going.push(name.name.clone());
            } else if self.is_relation(&name.name) {
                return Err(Error::new("42809", format!("\"{}\" is not a table", name.name)));
            } else if if_exists {
                answer.notice(format!("table \"{}\" does not exist, skipping", name.name));
            } else {
                return Err(Error::new("42P01", format!("table \"{}\" does not exist", name.name)));
            }
        }
        let mut changes = self.dependents(&going, "table", cascade, &mut answer)?;
        changes.extend(self.drop_all(&going).await?);
        self.record(&changes).await?;
        Ok(answer)
    }

    /// Drops tables, and says what else goes with them.
    pub(super) async fn drop_all(&mut self, going: &[String]) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        for name in going {
            changes.extend(self.objects.about(name).into_iter().map(Change::Remove));
            let owned = self
                .objects
                .sequences()
                .filter(|(_, row)| row.owner.as_ref().is_some_and(|(t, _)| t == name));
            changes.extend(owned.map(|(sequence, _)| Change::RemoveSequence(sequence.to_owned())));
            self.transaction().drop_table(name).await?;
            self.look_again()?;
        }
        Ok(changes)
    }

    pub(super) async fn drop_indexes(&mut self, names: &[ObjectName], if_exists: bool) -> Result<Answer> {
        let mut answer = Answer::tagged("DROP INDEX");
        for name in names {
            self.schema_there(name)?;
            let Some(table) = self.owner_of(&name.name) else {
                if if_exists {
                    answer.notice(format!("index \"{}\" does not exist, skipping", name.name));
                    continue;
                }
                return Err(Error::new("42704", format!("index \"{}\" does not exist", name.name)));
            };
            let index = names::plain(&name.name).to_owned();
            let found = self.tables.table(&table)?;
            let schema = found.schema();
            let is_key = schema.primary().is_some_and(|key| key.name() == index)
                || schema.secondary().iter().any(|other| other.name() == index && other.is_unique())
                    && !self.objects.is_unique_index(&table, &index);
            if is_key {
                let of = format!("constraint {index} on table {table}");
                let message = format!("cannot drop index {index} because {of} requires it");
                return Err(Error::new("2BP01", message).hint(format!("You can drop {of} instead.")));
            }
            let dropped = self.transaction().drop_index(&table, &index).await;
            self.look_again()?;
            dropped?;
            self.index_gone(&table, &index).await?;
        }
        Ok(answer)
    }

    /// Empties tables.
    pub(super) async fn truncate(
        &mut self,
        names: &[ObjectName],
        restart: bool,
        cascade: bool,
    ) -> Result<Answer> {
        let mut answer = Answer::tagged("TRUNCATE TABLE");
        let all = self.truncated(names, cascade, &mut answer)?;
        for name in &all {
            self.transaction().truncate_table(name).await?;
        }
        self.look_again()?;
        if restart {
            self.record(&self.restarted(&all)).await?;
        }
        Ok(answer)
    }
}

/// The names of an index's columns, in which a name that comes again gets a number (`ChooseIndexColumnNames`).
fn told_apart(names: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = Vec::with_capacity(names.len());
    for name in names {
        let numbered = (1..).map(|number| format!("{name}{number}"));
        let free = std::iter::once((*name).to_owned()).chain(numbered).find(|name| !all.contains(name));
        all.extend(free);
    }
    all
}

/// The keys of a table that is made.
fn keys_of(create: &CreateTable) -> Result<(Option<Key>, Vec<Key>)> {
    let name = &create.name.name;
    let (mut primary, mut uniques): (Option<Key>, Vec<Key>) = (None, Vec::new());
    let more = || Error::new("42P16", format!("multiple primary keys for table \"{name}\" are not allowed"));
    for column in &create.columns {
        let own = vec![(column.name.clone(), column.at)];
        let given = column.key_name.clone();
        if column.primary && primary.replace((given.clone(), own.clone())).is_some() {
            return Err(more().at(column.at));
        }
        if column.unique {
            uniques.push((given.filter(|_| !column.primary), own));
        }
    }
    for key in &create.keys {
        let given = (key.name.clone(), key.columns.clone());
        if !key.primary {
            uniques.push(given);
        } else if primary.replace(given).is_some() {
            return Err(more());
        }
    }
    // Keys on equal columns are one, which has the first name that is given.
    let mut keys: Vec<Key> = primary.iter().cloned().collect();
    for (given, columns) in uniques {
        match keys.iter_mut().find(|(_, known)| bare(known) == bare(&columns)) {
            Some((name, _)) => *name = name.take().or(given),
            None => keys.push((given, columns)),
        }
    }
    let primary = primary.map(|_| keys.remove(0));
    Ok((primary, keys))
}

/// The default of a column that a sequence numbers, as PostgreSQL writes it.
pub(super) fn next_value_of(sequence: &str) -> String {
    format!("nextval('{}'::regclass)", quoted(sequence).replace('\'', "''"))
}

/// A column without rules.
pub(super) fn plain_column(name: &str, ty: Type, modifier: i32, stored: row::Type) -> Column {
    Column {
        name: name.to_owned(),
        ty,
        modifier,
        nullable: true,
        stored,
        default: None,
        numbered: false,
        default_text: None,
        identity: None,
        hidden: false,
    }
}

pub(super) fn bare(names: &Names) -> Vec<&str> {
    names.iter().map(|(name, _)| name.as_str()).collect()
}

/// The type that stores all values of a type; none if the engine has none.
pub(super) fn stored_type(ty: Type, modifier: i32) -> Option<row::Type> {
    Some(match ty {
        Type::Bool => row::Type::Boolean,
        Type::Int2 => row::Type::Int2,
        Type::Int4 => row::Type::Int4,
        Type::Int8 => row::Type::Int8,
        Type::Float4 => row::Type::Float4,
        Type::Float8 => row::Type::Float8,
        Type::Numeric => {
            match numeric_parts(modifier) {
                Some((precision, scale)) if (0..=precision).contains(&scale) && precision <= 38 => {
                    row::Type::Decimal { precision: precision as u8, scale: scale as u8 }
                }
                // Each number has a scale of its own, or more digits than the engine's decimals.
                _ => row::Type::Bytes,
            }
        }
        Type::Text | Type::Json | Type::Jsonb => row::Type::Text,
        Type::Varchar if modifier < 4 => row::Type::Text,
        Type::Varchar => row::Type::Varchar(u32::try_from(modifier - 4).ok()?),
        Type::BpChar if modifier >= 4 => row::Type::Char(u32::try_from(modifier - 4).ok()?),
        Type::Bytea => row::Type::Bytes,
        Type::Date => row::Type::Date,
        Type::Time => row::Type::Time,
        Type::Timestamp => row::Type::Timestamp,
        Type::TimestampTz => row::Type::TimestampTz,
        Type::Interval => row::Type::Interval,
        Type::Uuid => row::Type::Uuid,
        ty if ty.element().is_some() => row::Type::Bytes,
        _ => return None,
    })
}
