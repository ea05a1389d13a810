//! CREATE, ALTER and DROP SCHEMA, and SET SCHEMA of relations.

use super::Parser;
use super::ast::{SchemaOf, Statement};
use super::lexer::Kind;
use crate::error::{Error, Result};

impl Parser<'_> {
    /// What stands behind CREATE SCHEMA. Without a name the role's is the schema's.
    pub(super) fn create_schema(&mut self) -> Result<Statement> {
        let if_not_exists = self.if_exists(true);
        let mut name = if self.is_word("authorization") { None } else { Some(self.name()?) };
        if self.word("authorization") {
            let role = self.role()?;
            name.get_or_insert(role);
        }
        if !matches!(self.kind(), Kind::End | Kind::Sign(b';')) {
            if self.is_one_of(&["create", "grant"]) {
                return Err(Error::unsupported("CREATE SCHEMA with definitions behind it").at(self.at()));
            }
            return Err(self.unexpected());
        }
        Ok(Statement::CreateSchema { name: name.expect("one of both is there"), if_not_exists })
    }

    pub(super) fn drop_schema(&mut self) -> Result<Statement> {
        let if_exists = self.if_exists(false);
        let names = self.list(Self::name)?;
        Ok(Statement::DropSchema { names, if_exists, cascade: self.cascades() })
    }

    /// ALTER SCHEMA: its owner is accepted, as there is one role.
    pub(super) fn alter_schema(&mut self) -> Result<Statement> {
        self.name()?;
        if self.words(&["owner", "to"]) {
            self.role()?;
            return Ok(Statement::Nothing("ALTER SCHEMA"));
        }
        if self.words(&["rename", "to"]) {
            return Ok(self.refused("ALTER SCHEMA RENAME"));
        }
        Err(self.unexpected())
    }

    /// `CURRENT_USER`, `SESSION_USER` and `CURRENT_ROLE` are the one role.
    fn role(&mut self) -> Result<String> {
        if self.is_one_of(&["current_user", "session_user", "current_role"]) {
            self.advance();
            return Ok("postgres".to_owned());
        }
        self.name()
    }

    /// ALTER VIEW, ALTER SEQUENCE or ALTER TABLE behind these words, if it is SET SCHEMA; else nothing is taken.
    pub(super) fn set_schema(&mut self, kind: SchemaOf) -> Result<Option<Statement>> {
        let start = self.next;
        let if_exists = self.if_exists(false);
        self.word("only");
        let name = self.object()?;
        if !self.words(&["set", "schema"]) {
            self.next = start;
            return Ok(None);
        }
        let schema = self.name()?;
        Ok(Some(Statement::SetSchema { kind, name, if_exists, schema }))
    }
}
