//! INSERT, UPDATE, DELETE.

use super::Parser;
use super::ast::{Assignment, Conflict, Cte, Delete, Insert, Item, Overriding, Statement, Update};
use super::lexer::Kind;
use crate::error::{Error, Result};

impl Parser<'_> {
    fn change_alias(&mut self) -> Result<Option<String>> {
        if self.word("as") {
            return self.name().map(Some);
        }
        Ok(match self.kind() {
            Kind::Quoted(_) => Some(self.name()?),
            Kind::Word(word) if !word.is_one_of(&["set", "using", "where", "returning"]) => {
                Some(self.name()?)
            }
            _ => None,
        })
    }

    fn returning(&mut self) -> Result<Vec<Item>> {
        if self.word("returning") { self.items() } else { Ok(Vec::new()) }
    }

    pub(super) fn insert(&mut self, with: Vec<Cte>) -> Result<Statement> {
        self.expect_word("insert")?;
        self.expect_word("into")?;
        let table = self.object()?;
        let alias = if self.word("as") { Some(self.name()?) } else { None };
        let has_columns = self.kind() == &Kind::Sign(b'(') && !self.begins_query_ahead();
        let columns =
            if has_columns { self.in_parentheses(|parser| parser.list(Self::target))? } else { Vec::new() };
        let mut overriding = None;
        if self.word("overriding") {
            overriding = Some(if self.word("system") {
                Overriding::System
            } else {
                self.expect_word("user")?;
                Overriding::User
            });
            self.expect_word("value")?;
        }
        let source = if self.words(&["default", "values"]) { None } else { Some(self.query()?) };
        let conflict = if self.is_word("on") { Some(self.conflict()?) } else { None };
        let returning = self.returning()?;
        Ok(Statement::Insert(Box::new(Insert {
            table,
            alias,
            columns,
            source,
            overriding,
            conflict,
            returning,
            with,
        })))
    }

    fn begins_query_ahead(&self) -> bool {
        ["select", "values", "with", "table"].iter().any(|word| self.is_word_ahead(1, word))
            || self.ahead(1) == &Kind::Sign(b'(')
    }

    /// A column of the key that ON CONFLICT names.
    fn arbiter(&mut self) -> Result<(String, u32)> {
        let (at, is_expression) = (self.at(), self.kind() == &Kind::Sign(b'('));
        if is_expression || matches!(self.ahead(1), Kind::Sign(b'(' | b'.')) {
            return Err(Error::unsupported("ON CONFLICT with an expression").at(at));
        }
        let column = self.placed_name()?;
        if !matches!(self.kind(), Kind::Sign(b',' | b')')) {
            return Err(Error::unsupported("ON CONFLICT with a collation or an operator class").at(self.at()));
        }
        Ok(column)
    }

    fn conflict(&mut self) -> Result<Conflict> {
        let at = self.at();
        self.expect_word("on")?;
        self.expect_word("conflict")?;
        let (mut columns, mut constraint) = (Vec::new(), None);
        if self.kind() == &Kind::Sign(b'(') {
            columns = self.in_parentheses(|parser| parser.list(Self::arbiter))?;
            if self.is_word("where") {
                return Err(
                    Error::unsupported("ON CONFLICT with the condition of a partial index").at(self.at())
                );
            }
        } else if self.words(&["on", "constraint"]) {
            constraint = Some(self.name()?);
        }
        self.expect_word("do")?;
        if self.word("nothing") {
            return Ok(Conflict { at, columns, constraint, update: None });
        }
        self.expect_word("update")?;
        self.expect_word("set")?;
        let set = self.list(Self::assignment)?;
        let condition = if self.word("where") { Some(self.expr()?) } else { None };
        Ok(Conflict { at, columns, constraint, update: Some((set, condition)) })
    }

    /// A column that is assigned to.
    fn target(&mut self) -> Result<(String, u32)> {
        let column = self.placed_name()?;
        if matches!(self.kind(), Kind::Sign(b'[' | b'.')) {
            return Err(Error::unsupported("an assignment to a part of a column").at(self.at()));
        }
        Ok(column)
    }

    fn assignment(&mut self) -> Result<Assignment> {
        let columns = if self.kind() == &Kind::Sign(b'(') {
            self.in_parentheses(|parser| parser.list(Self::target))?
        } else {
            vec![self.target()?]
        };
        if !self.op("=") {
            return Err(self.unexpected());
        }
        Ok(Assignment { columns, value: self.expr()? })
    }

    pub(super) fn update(&mut self, with: Vec<Cte>) -> Result<Statement> {
        self.expect_word("update")?;
        self.word("only");
        let table = self.object()?;
        let alias = self.change_alias()?;
        self.expect_word("set")?;
        let set = self.list(Self::assignment)?;
        let from = if self.word("from") { self.list(Self::table_ref)? } else { Vec::new() };
        let condition = self.change_condition()?;
        let returning = self.returning()?;
        Ok(Statement::Update(Box::new(Update { table, alias, set, from, condition, returning, with })))
    }

    fn change_condition(&mut self) -> Result<Option<super::ast::Expr>> {
        if !self.word("where") {
            return Ok(None);
        }
        if self.words(&["current", "of"]) {
            return Err(Error::unsupported("WHERE CURRENT OF").at(self.at()));
        }
        self.expr().map(Some)
    }

    pub(super) fn delete(&mut self, with: Vec<Cte>) -> Result<Statement> {
        self.expect_word("delete")?;
        self.expect_word("from")?;
        self.word("only");
        let table = self.object()?;
        let alias = self.change_alias()?;
        let using = if self.word("using") { self.list(Self::table_ref)? } else { Vec::new() };
        let condition = self.change_condition()?;
        let returning = self.returning()?;
        Ok(Statement::Delete(Box::new(Delete { table, alias, using, condition, returning, with })))
    }
}
