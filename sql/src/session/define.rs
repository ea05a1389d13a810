//! Definitions that the engine has: tables, keys, indexes, columns added, dropped and renamed. The rest is refused by name.

use thermocline_engine::{Error as EngineError, IndexSchema, SchemaError, TableSchema, Tiering};
use thermocline_row as row;

use super::{Answer, EngineCatalog, Session};
use crate::bind::Binder;
use crate::catalog::{Catalog, Column, HIDDEN_KEY};
use crate::error::{Error, Result};
use crate::parser::ast::{Alter, ColumnDef, CreateIndex, CreateTable, Names, ObjectName, Statement};
use crate::run::source::stored_value;
use crate::types::{Type, display, numeric_parts};

/// The name given to a key, and its columns.
type Key = (Option<String>, Names);

impl Session {
    pub(super) fn define(&mut self, statement: &Statement) -> Result<Answer> {
        match statement {
            Statement::CreateTable(create) => self.create_table(create),
            Statement::CreateIndex(create) => self.create_index(create),
            Statement::DropTable { names, if_exists } => self.drop_tables(names, *if_exists),
            Statement::DropIndex { names, if_exists } => self.drop_indexes(names, *if_exists),
            Statement::AlterTable { name, if_exists, actions } => self.alter_table(name, *if_exists, actions),
            Statement::Truncate(names) => {
                for name in names {
                    self.known(name)?;
                }
                for name in names {
                    self.db.truncate_table(&name.name)?;
                }
                Ok(Answer::tagged("TRUNCATE TABLE"))
            }
            other => unreachable!("no definition: {other:?}"),
        }
    }

    fn schema_of(name: &ObjectName) -> Result<()> {
        match name.schema.as_deref() {
            None | Some("public") => Ok(()),
            Some(schema) => {
                Err(Error::new("3F000", format!("schema \"{schema}\" does not exist")).at(name.at))
            }
        }
    }

    pub(super) fn known(&self, name: &ObjectName) -> Result<()> {
        Self::schema_of(name)?;
        if self.db.table(&name.name).is_err() {
            return Err(Error::new("42P01", format!("relation \"{}\" does not exist", name.name)).at(name.at));
        }
        Ok(())
    }

    fn create_table(&mut self, create: &CreateTable) -> Result<Answer> {
        Self::schema_of(&create.name)?;
        let name = &create.name.name;
        if self.db.table(name).is_ok() {
            let message = format!("relation \"{name}\" already exists");
            if create.if_not_exists {
                let mut answer = Answer::tagged("CREATE TABLE");
                answer.notice(format!("{message}, skipping"));
                return Ok(answer);
            }
            return Err(Error::new("42P07", message));
        }
        let mut schema = TableSchema::new(name).tiering(tiering(&create.options)?);
        let mut columns = Vec::new();
        for column in &create.columns {
            if columns.iter().any(|other: &row::Column| other.name == column.name) {
                return Err(Error::new(
                    "42701",
                    format!("column \"{}\" specified more than once", column.name),
                ));
            }
            columns.push(self.column(column)?);
        }
        let (mut primary, mut uniques): (Option<Key>, Vec<Key>) = (None, Vec::new());
        let more =
            || Error::new("42P16", format!("multiple primary keys for table \"{name}\" are not allowed"));
        for column in &create.columns {
            let own = vec![(column.name.clone(), column.at)];
            if column.primary && primary.replace((None, own.clone())).is_some() {
                return Err(more().at(column.at));
            }
            if column.unique {
                uniques.push((None, own));
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
        for (column, at) in primary.iter().chain(&uniques).flat_map(|(_, names)| names) {
            let Some(found) = columns.iter_mut().find(|other| other.name == *column) else {
                return Err(
                    Error::new("42703", format!("column \"{column}\" named in key does not exist")).at(*at)
                );
            };
            if primary.as_ref().is_some_and(|(_, names)| names.iter().any(|(key, _)| key == column)) {
                found.nullable = false;
            }
        }
        match primary {
            Some((given, names)) => {
                let index = given.unwrap_or_else(|| format!("{name}_pkey"));
                schema = schema.primary_key(IndexSchema::ordered(&index, &bare(&names)));
            }
            None => {
                columns.push(row::Column::new(HIDDEN_KEY, row::Type::Int8).auto_increment());
                schema = schema.primary_key(IndexSchema::hash(&format!("{name}_row"), &[HIDDEN_KEY]));
            }
        }
        for (given, names) in uniques {
            let index = given.unwrap_or_else(|| format!("{name}_{}_key", bare(&names).join("_")));
            schema = schema.index(IndexSchema::ordered(&index, &bare(&names)).unique());
        }
        self.db.create_table(schema.columns(columns))?;
        Ok(Answer::tagged("CREATE TABLE"))
    }

    /// A column as the engine stores it.
    fn column(&self, column: &ColumnDef) -> Result<row::Column> {
        let serial = match column.ty.name.last().map_or("", String::as_str) {
            "serial" | "serial4" => Some(row::Type::Int4),
            "bigserial" | "serial8" => Some(row::Type::Int8),
            "smallserial" | "serial2" => Some(row::Type::Int2),
            _ => None,
        };
        if let Some(ty) = serial {
            return Ok(row::Column::new(column.name.clone(), ty).auto_increment());
        }
        let (ty, modifier) = Binder::type_of(&column.ty)?;
        let stored = stored_type(ty, modifier).ok_or_else(|| {
            let error =
                Error::unsupported(format!("a column of type {}", display(ty, modifier))).at(column.ty.at);
            match ty {
                Type::Numeric => error.hint("Say how many digits: numeric(p, s), of at most 38 in all."),
                _ => error,
            }
        })?;
        let mut stored_column = row::Column::new(column.name.clone(), stored);
        stored_column.nullable = !column.not_null && !column.primary;
        if column.identity {
            if !ty.is_integer() {
                return Err(Error::new("22023", "identity column type must be smallint, integer, or bigint")
                    .at(column.at));
            }
            stored_column.nullable = false;
            return Ok(stored_column.auto_increment());
        }
        if let Some(default) = &column.default {
            let target = Column {
                name: column.name.clone(),
                ty,
                modifier,
                nullable: true,
                stored,
                default: None,
                numbered: false,
                hidden: false,
            };
            let catalog = EngineCatalog { db: &self.db };
            let mut binder = Binder::new(&catalog, Vec::new(), self.clock.wall_us());
            let datum = binder.constant_default(default, &target)?;
            if !datum.is_null() {
                let value = stored_value(&datum, stored)
                    .ok_or_else(|| Error::unsupported("this default").at(default.at))?;
                stored_column.default = Some(value);
            }
        }
        Ok(stored_column)
    }

    pub(super) fn create_index(&mut self, create: &CreateIndex) -> Result<Answer> {
        self.known(&create.table)?;
        let catalog = EngineCatalog { db: &self.db };
        let table = catalog.table(&create.table.name).expect("it was just there");
        let names: Vec<&str> = create.columns.iter().map(|(name, _, _)| name.as_str()).collect();
        for (name, _, _) in &create.columns {
            if !table.columns.iter().any(|column| column.name == *name && !column.hidden) {
                return Err(Error::new("42703", format!("column \"{name}\" does not exist")));
            }
        }
        let base = format!("{}_{}_idx", table.name, names.join("_"));
        let taken = |name: &str| self.owner_of(name).is_some();
        let name = match &create.name {
            Some(name) => name.clone(),
            None => (0..)
                .map(|n| if n == 0 { base.clone() } else { format!("{base}{n}") })
                .find(|name| !taken(name))
                .expect("numbers do not end"),
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
        match self.db.create_index(&table.name, index) {
            Ok(_) => Ok(Answer::tagged("CREATE INDEX")),
            Err(EngineError::DuplicateKey { key, .. }) => {
                Err(Error::new("23505", format!("could not create unique index \"{name}\""))
                    .detail(format!("Key {key} is duplicated.")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The table that has an index with this name.
    fn owner_of(&self, index: &str) -> Option<String> {
        self.db.table_names().into_iter().find(|table| {
            self.db.table(table).is_ok_and(|table| {
                let schema = table.schema();
                schema.secondary().iter().chain(schema.primary()).any(|other| other.name() == index)
            })
        })
    }

    fn drop_tables(&mut self, names: &[ObjectName], if_exists: bool) -> Result<Answer> {
        let mut answer = Answer::tagged("DROP TABLE");
        for name in names {
            Self::schema_of(name)?;
            match self.db.drop_table(&name.name) {
                Ok(()) => {}
                Err(EngineError::UnknownTable { .. }) if if_exists => {
                    answer.notice(format!("table \"{}\" does not exist, skipping", name.name));
                }
                Err(EngineError::UnknownTable { .. }) => {
                    return Err(Error::new("42P01", format!("table \"{}\" does not exist", name.name)));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(answer)
    }

    fn drop_indexes(&mut self, names: &[ObjectName], if_exists: bool) -> Result<Answer> {
        let mut answer = Answer::tagged("DROP INDEX");
        for name in names {
            Self::schema_of(name)?;
            let Some(table) = self.owner_of(&name.name) else {
                if if_exists {
                    answer.notice(format!("index \"{}\" does not exist, skipping", name.name));
                    continue;
                }
                return Err(Error::new("42704", format!("index \"{}\" does not exist", name.name)));
            };
            self.db.drop_index(&table, &name.name).map_err(|error| match error {
                EngineError::Schema(SchemaError::PrimaryKey { .. }) => {
                    let (index, owner) = (&name.name, &table);
                    let message = format!(
                        "cannot drop index {index} because constraint {index} on table {owner} requires it"
                    );
                    Error::new("2BP01", message)
                }
                other => other.into(),
            })?;
        }
        Ok(answer)
    }

    fn alter_table(&mut self, name: &ObjectName, if_exists: bool, actions: &[Alter]) -> Result<Answer> {
        let mut answer = Answer::tagged("ALTER TABLE");
        if if_exists && self.db.table(&name.name).is_err() {
            answer.notice(format!("relation \"{}\" does not exist, skipping", name.name));
            return Ok(answer);
        }
        self.known(name)?;
        if actions.len() > 1 {
            return Err(Error::unsupported("several actions in one ALTER TABLE").at(name.at));
        }
        let table = &name.name;
        let has = |session: &Self, column: &str| {
            session.db.table(table).is_ok_and(|table| table.schema().column_index(column).is_some())
        };
        let missing = |column: &str| {
            Error::new("42703", format!("column \"{column}\" of relation \"{table}\" does not exist"))
        };
        for action in actions {
            match action {
                Alter::AddColumn { column, if_not_exists } => {
                    if has(self, &column.name) {
                        let message =
                            format!("column \"{}\" of relation \"{table}\" already exists", column.name);
                        if *if_not_exists {
                            answer.notice(format!("{message}, skipping"));
                            continue;
                        }
                        return Err(Error::new("42701", message));
                    }
                    if column.primary || column.unique || column.identity {
                        return Err(Error::unsupported("a key on a column that is added").at(column.at));
                    }
                    let stored = self.column(column)?;
                    if stored.auto_increment {
                        return Err(Error::unsupported("adding a numbered column").at(column.at));
                    }
                    self.db.add_column(table, stored).map_err(|error| match error {
                        EngineError::Schema(SchemaError::NoDefault { .. }) => {
                            let name = &column.name;
                            Error::new(
                                "23502",
                                format!("column \"{name}\" of relation \"{table}\" contains null values"),
                            )
                        }
                        other => other.into(),
                    })?;
                }
                Alter::DropColumn { name, if_exists, .. } => {
                    if !has(self, name) {
                        if *if_exists {
                            answer.notice(format!(
                                "column \"{name}\" of relation \"{table}\" does not exist, skipping"
                            ));
                            continue;
                        }
                        return Err(missing(name));
                    }
                    self.db.drop_column(table, name).map_err(|error| match error {
                        EngineError::Schema(SchemaError::ColumnInUse { index, .. }) => {
                            Error::unsupported(format!("dropping column \"{name}\" with index \"{index}\""))
                                .hint("Drop the index first.")
                        }
                        other => other.into(),
                    })?;
                }
                Alter::RenameColumn { from, to, at } => {
                    if !has(self, from) {
                        return Err(Error::new("42703", format!("column \"{from}\" does not exist")).at(*at));
                    }
                    if has(self, to) {
                        return Err(Error::new(
                            "42701",
                            format!("column \"{to}\" of relation \"{table}\" already exists"),
                        ));
                    }
                    self.db.rename_column(table, from, to)?;
                }
                Alter::AddKey { key, at } => self.add_key(name, key, *at)?,
                Alter::RenameTo(to) => {
                    if self.db.table(to).is_ok() {
                        return Err(Error::new("42P07", format!("relation \"{to}\" already exists")));
                    }
                    self.db.rename_table(table, to)?;
                }
            }
        }
        Ok(answer)
    }
}

fn bare(names: &Names) -> Vec<&str> {
    names.iter().map(|(name, _)| name.as_str()).collect()
}

/// The type that stores all values of a type, and no others; none if the engine has none.
fn stored_type(ty: Type, modifier: i32) -> Option<row::Type> {
    Some(match ty {
        Type::Bool => row::Type::Boolean,
        Type::Int2 => row::Type::Int2,
        Type::Int4 => row::Type::Int4,
        Type::Int8 => row::Type::Int8,
        Type::Float4 => row::Type::Float4,
        Type::Float8 => row::Type::Float8,
        Type::Numeric => {
            let (precision, scale) = numeric_parts(modifier)?;
            if !(0..=precision).contains(&scale) || precision > 38 {
                return None;
            }
            row::Type::Decimal { precision: precision as u8, scale: scale as u8 }
        }
        Type::Text => row::Type::Text,
        Type::Varchar if modifier < 4 => row::Type::Text,
        Type::Varchar => row::Type::Varchar(u32::try_from(modifier - 4).ok()?),
        Type::BpChar if modifier >= 4 => row::Type::Char(u32::try_from(modifier - 4).ok()?),
        Type::Bytea => row::Type::Bytes,
        Type::Date => row::Type::Date,
        Type::Time if matches!(modifier, -1 | 6) => row::Type::Time,
        Type::Timestamp if matches!(modifier, -1 | 6) => row::Type::Timestamp,
        Type::TimestampTz if matches!(modifier, -1 | 6) => row::Type::TimestampTz,
        Type::Interval if modifier == -1 => row::Type::Interval,
        Type::Uuid => row::Type::Uuid,
        _ => return None,
    })
}

/// `WITH (tiering = …)`; `fillfactor` is accepted and means nothing.
fn tiering(options: &[(String, String)]) -> Result<Tiering> {
    let mut found = Tiering::default();
    for (name, value) in options {
        match name.as_str() {
            "tiering" => found = value.parse::<Tiering>()?,
            "fillfactor" | "autovacuum_enabled" | "oids" => {}
            other => return Err(Error::new("22023", format!("unrecognized parameter \"{other}\""))),
        }
    }
    Ok(found)
}
