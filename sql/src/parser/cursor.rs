//! Cursors: DECLARE, FETCH, MOVE, CLOSE.

use super::Parser;
use super::ast::{Fetch, Statement};
use super::lexer::Kind;
use crate::error::{Error, Result};

impl Parser<'_> {
    pub(super) fn declare(&mut self) -> Result<Statement> {
        self.advance();
        let name = self.name()?;
        let mut forward = false;
        loop {
            if self.is_word("binary") {
                return Err(Error::unsupported("a binary cursor").at(self.at()));
            }
            if self.words(&["no", "scroll"]) {
                forward = true;
            } else if !(self.word("insensitive") || self.word("asensitive") || self.word("scroll")) {
                break;
            }
        }
        self.expect_word("cursor")?;
        let hold = self.words(&["with", "hold"]);
        if !hold {
            self.words(&["without", "hold"]);
        }
        self.expect_word("for")?;
        Ok(Statement::Declare { name, hold, forward, query: Box::new(self.query()?) })
    }

    /// FETCH and MOVE: PostgreSQL's directions, all of them.
    pub(super) fn fetch(&mut self, moving: bool) -> Result<Statement> {
        self.advance();
        let direction = if self.word("next") {
            Fetch::Forward(1)
        } else if self.word("prior") {
            Fetch::Forward(-1)
        } else if self.word("first") {
            Fetch::Absolute(1)
        } else if self.word("last") {
            Fetch::Absolute(-1)
        } else if self.word("absolute") {
            Fetch::Absolute(self.whole()?)
        } else if self.word("relative") {
            Fetch::Relative(self.whole()?)
        } else if self.word("all") {
            Fetch::Forward(i64::MAX)
        } else {
            let sign = if self.word("backward") {
                -1
            } else {
                self.word("forward");
                1
            };
            if self.word("all") {
                Fetch::Forward(sign * i64::MAX)
            } else if matches!(self.kind(), Kind::Int(_) | Kind::Op("-")) {
                Fetch::Forward(sign * self.whole()?)
            } else {
                Fetch::Forward(sign)
            }
        };
        let _ = self.word("from") || self.word("in");
        Ok(Statement::Fetch { name: self.name()?, direction, moving })
    }

    pub(super) fn close(&mut self) -> Result<Statement> {
        self.advance();
        Ok(Statement::Close(if self.word("all") { None } else { Some(self.name()?) }))
    }

    fn whole(&mut self) -> Result<i64> {
        let minus = self.op("-");
        let Kind::Int(number) = *self.kind() else { return Err(self.unexpected()) };
        self.advance();
        Ok(if minus { -number } else { number })
    }
}
