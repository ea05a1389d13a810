//! Tables that are made of others: CREATE TABLE AS, SELECT INTO, and LIKE in CREATE TABLE.
//!
//! The columns of the other one become a definition in SQL, which is read as if a user had written it.

use super::tables::stored_type;
use crate::catalog::{Catalog, Table};
use crate::error::{Error, Result};
use crate::expr::Context;
use crate::names::{self, quoted};
use crate::objects::Change;
use crate::objects::rows::{CommentRow, Kind, Object};
use crate::parser::ast::{CreateIndex, CreateTable, CreateTableAs, Insert, LikeDef, ObjectName, Statement};
use crate::session::{Answer, Session};
use crate::types::{Column, Datum, Type, display};

/// A type as a definition writes it.
fn written(ty: Type, modifier: i32) -> String {
    // A literal that nothing has given a type is a text.
    if ty == Type::Unknown { "text".to_owned() } else { display(ty, modifier) }
}

/// Reads a definition that was written here.
fn read(text: &str) -> Result<CreateTable> {
    match crate::parser::parse(text)?.pop().map(|parsed| parsed.statement) {
        Some(Statement::CreateTable(create)) => Ok(*create),
        _ => Err(Error::new("XX000", "the definition of a table cannot be read")),
    }
}

impl Session {
    pub(super) async fn create_table_as(&mut self, create: &CreateTableAs) -> Result<Answer> {
        let name = &create.name.name;
        if create.if_not_exists && self.is_relation(name) {
            let mut answer = Answer::tagged("CREATE TABLE AS");
            answer.notice(format!("relation \"{name}\" already exists, skipping"));
            answer.notices[0].code = "42P07";
            return Ok(answer);
        }
        let query = Statement::Query(create.query.clone());
        let (bound, parameters, _) = self.bind_noting(&query, Vec::new())?;
        if !parameters.is_empty() {
            return Err(Error::new("42P02", "there is no parameter $1"));
        }
        let mut columns = bound.expect("a query is bound").columns().to_vec();
        if create.columns.len() > columns.len() {
            return Err(Error::new("42601", "too many column names were specified"));
        }
        columns.iter_mut().zip(&create.columns).for_each(|(column, given)| column.name.clone_from(given));
        let definitions: Vec<String> = columns.iter().map(definition).collect::<Result<_>>()?;
        let text = format!("create table {} ({})", quoted(names::plain(name)), definitions.join(", "));
        let mut table = read(&text)?;
        table.name.name.clone_from(name);
        table.options.clone_from(&create.options);
        let made = self.create_table(&table).await?;
        if !create.with_data {
            return Ok(Answer { tag: "CREATE TABLE AS".to_owned(), ..made });
        }
        let insert = Statement::Insert(Box::new(Insert {
            table: ObjectName {
                schema: Some(names::schema_of(name).to_owned()),
                name: names::plain(name).to_owned(),
                at: create.name.at,
            },
            alias: None,
            columns: Vec::new(),
            source: Some(create.query.clone()),
            overriding: None,
            conflict: None,
            returning: Vec::new(),
            with: Vec::new(),
        }));
        let (bound, ..) = self.bind_noting(&insert, Vec::new())?;
        let bound = bound.expect("an insert is bound");
        let level = self.open.as_ref().map(|open| (open.isolation, open.read_only));
        self.facts.begin(self.settings.values(), level.expect("definitions run in a transaction"));
        let context = Context { facts: Some(self.facts.clone()), ..self.own_context() };
        let mut none: Vec<Vec<Datum>> = Vec::new();
        let count = self.run_tree(&bound, &context, &mut none).await?;
        Ok(Answer { tag: format!("SELECT {count}"), count, ..made })
    }

    /// A definition with the columns of the tables that it is like.
    pub(super) fn with_likes(&self, create: &CreateTable) -> Result<CreateTable> {
        let mut whole = create.clone();
        // From the last one on, so that the places of those before stay.
        for like in create.likes.iter().rev() {
            let more = self.like(like)?;
            let behind = like.behind;
            whole.columns.splice(behind..behind, more.columns);
            whole.checks.extend(more.checks);
            whole.keys.extend(more.keys);
        }
        Ok(whole)
    }

    /// The columns, conditions and keys that LIKE takes over.
    fn like(&self, like: &LikeDef) -> Result<CreateTable> {
        let source = self.source_of(like)?;
        let mut parts = Vec::new();
        for column in source.columns.iter().filter(|column| !column.hidden) {
            let mut text = format!("{} {}", quoted(&column.name), written(column.ty, column.modifier));
            if !column.nullable {
                text += " not null";
            }
            match column.identity {
                Some(always) if like.identity => {
                    text += if always {
                        " generated always as identity"
                    } else {
                        " generated by default as identity"
                    };
                }
                _ if like.defaults => {
                    if let Some(default) = crate::pg_catalog::default_text(column) {
                        text += &format!(" default {default}");
                    }
                }
                _ => {}
            }
            parts.push(text);
        }
        if like.constraints {
            for (name, condition) in &source.checks {
                parts.push(format!("constraint {} check ({condition})", quoted(name)));
            }
        }
        if like.indexes {
            for (place, index) in source.indexes.iter().enumerate().filter(|(_, index)| index.unique) {
                let columns: Vec<&crate::catalog::Column> =
                    index.columns.iter().map(|(column, _)| &source.columns[*column]).collect();
                if columns.iter().any(|column| column.hidden)
                    || self.objects.is_unique_index(&source.name, &index.name)
                {
                    continue;
                }
                let what = if source.primary == Some(place) { "primary key" } else { "unique" };
                let columns: Vec<String> = columns.iter().map(|column| quoted(&column.name)).collect();
                parts.push(format!("{what} ({})", columns.join(", ")));
            }
        }
        read(&format!("create table t ({})", parts.join(", ")))
    }

    /// The table, or the columns of the view, that LIKE names.
    fn source_of(&self, like: &LikeDef) -> Result<Table> {
        let name = &like.table.name;
        if let Some(table) = self.catalog().table(name) {
            return Ok(Table { ..(*table).clone() });
        }
        if self.objects.view(name).is_none() {
            return Err(self.no_relation(&like.table));
        }
        let text = format!("select * from {}", quoted(name));
        let query = crate::parser::parse(&text)?.pop().expect("it is a statement");
        let bound = self.bind_own(&query.statement)?.expect("a query is bound");
        let column = |column: &Column| {
            let stored = stored_type(column.ty, column.modifier).unwrap_or(thermocline_row::Type::Text);
            super::tables::plain_column(&column.name, column.ty, column.modifier, stored)
        };
        Ok(Table {
            name: name.clone(),
            identity: crate::catalog::Identity::default(),
            columns: bound.columns().iter().map(column).collect(),
            primary: None,
            indexes: Vec::new(),
            rows: 0,
            tiering: None,
            checks: Vec::new(),
            foreign: Vec::new(),
            referenced: Vec::new(),
        })
    }

    /// Makes what LIKE takes over beside the definition of the table: its other indexes, and comments.
    pub(super) async fn after_likes(&mut self, create: &CreateTable) -> Result<()> {
        for like in &create.likes {
            let source = self.source_of(like)?;
            let indexes = source.indexes.iter().filter(|index| {
                like.indexes
                    && (!index.unique || self.objects.is_unique_index(&source.name, &index.name))
                    && index.columns.iter().all(|(column, _)| !source.columns[*column].hidden)
            });
            let indexes: Vec<CreateIndex> = indexes
                .map(|index| CreateIndex {
                    name: None,
                    if_not_exists: false,
                    unique: index.unique,
                    table: create.name.clone(),
                    method: (!index.ordered).then(|| ("hash".to_owned(), create.name.at)),
                    columns: index
                        .columns
                        .iter()
                        .map(|(column, descending)| (source.columns[*column].name.clone(), 0, *descending))
                        .collect(),
                })
                .collect();
            for index in &indexes {
                self.make_index(index, false).await?;
            }
            if like.comments {
                let mut changes = Vec::new();
                for column in &source.columns {
                    let name = (Kind::ColumnComment, source.name.clone(), column.name.clone());
                    if let Some(Object::ColumnComment(row)) = self.objects.get(&name) {
                        let comment = Object::ColumnComment(CommentRow { text: row.text.clone() });
                        changes.push(Change::Put(create.name.name.clone(), column.name.clone(), comment));
                    }
                }
                self.record(&changes).await?;
            }
        }
        Ok(())
    }
}

/// The definition of a column that takes the values of a query's column.
fn definition(column: &Column) -> Result<String> {
    if matches!(column.ty, Type::Record | Type::Void) {
        let message = format!("column \"{}\" has pseudo-type {}", column.name, column.ty.sql_name());
        return Err(Error::new("42P16", message));
    }
    Ok(format!("{} {}", quoted(&column.name), written(column.ty, column.modifier)))
}
