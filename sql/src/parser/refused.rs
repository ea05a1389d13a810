//! Statements and clauses that PostgreSQL's grammar has and this database has not: known by their words, and refused with their names (0A000).
//!
//! A statement is known by the words that it begins with, a clause by the word at which parsing would stop. Everything else stays an
//! error of syntax. `sql/tests/grammar.py` compares both with PostgreSQL.

use super::Parser;
use super::ast::Statement;
use super::lexer::Kind;
use crate::error::{Error, Result};

/// Kinds of objects that CREATE, ALTER, DROP and COMMENT ON name, longer ones before those that they begin with.
const OBJECTS: &[&str] = &[
    "access method",
    "aggregate",
    "cast",
    "collation",
    "constraint trigger",
    "conversion",
    "database",
    "default conversion",
    "default privileges",
    "domain",
    "event trigger",
    "extension",
    "foreign data wrapper",
    "foreign table",
    "function",
    "global temporary",
    "global temp",
    "group",
    "language",
    "large object",
    "local temporary",
    "local temp",
    "materialized view",
    "operator class",
    "operator family",
    "operator",
    "owned",
    "policy",
    "procedural language",
    "procedure",
    "publication",
    "recursive view",
    "role",
    "routine",
    "rule",
    "server",
    "statistics",
    "subscription",
    "system",
    "tablespace",
    "temporary",
    "temp",
    "text search configuration",
    "text search dictionary",
    "text search parser",
    "text search template",
    "transform",
    "trigger",
    "trusted language",
    "trusted procedural language",
    "type",
    "unlogged",
    "user mapping",
    "user",
];

impl Parser<'_> {
    /// Are these the next words? They stand with one space between.
    pub(super) fn is_phrase(&self, phrase: &str) -> bool {
        phrase.split(' ').enumerate().all(|(ahead, word)| self.is_word_ahead(ahead, word))
    }

    /// Refuses a clause that begins with one of these phrases, each with what it is called.
    pub(super) fn refuse(&self, clauses: &[(&str, &str)]) -> Result<()> {
        match clauses.iter().find(|(phrase, _)| self.is_phrase(phrase)) {
            Some((_, what)) => Err(Error::unsupported(what).at(self.at())),
            None => Ok(()),
        }
    }

    /// CREATE, ALTER, DROP of, or COMMENT ON, something of a kind that is known.
    pub(super) fn refused_object(&mut self, verb: &str) -> Result<Statement> {
        match OBJECTS.iter().find(|kind| self.is_phrase(kind)) {
            Some(kind) => Ok(self.refused(format!("{verb} {}", kind.to_uppercase()))),
            None => Err(self.unexpected()),
        }
    }

    /// Takes the rest of the statement. Commands in parentheses, and those of a body in SQL, have semicolons of their own.
    pub(super) fn refused(&mut self, what: impl Into<String>) -> Statement {
        let (mut open, mut bodies) = (0_usize, 0_usize);
        loop {
            match self.kind() {
                Kind::End => break,
                Kind::Sign(b';') if open == 0 && bodies == 0 => break,
                Kind::Sign(b'(') => open += 1,
                Kind::Sign(b')') => open = open.saturating_sub(1),
                Kind::Word(word) if word.is("begin") && self.is_word_ahead(1, "atomic") => bodies += 1,
                Kind::Word(word) if word.is("case") && bodies > 0 => bodies += 1,
                Kind::Word(word) if word.is("end") => bodies = bodies.saturating_sub(1),
                _ => {}
            }
            self.advance();
        }
        Statement::Refused(what.into())
    }
}
