//! Transactions, SET and SHOW, and the statements that are known and refused with their names.

use super::Parser;
use super::ast::{Modes, Statement};
use super::lexer::Kind;
use crate::error::{Error, Result};
use crate::types::interval::{self, Limits};

impl Parser<'_> {
    pub(super) fn session_statement(&mut self) -> Result<Statement> {
        let Kind::Word(word) = self.kind().clone() else { return Err(self.unexpected()) };
        let statement = match word.keyword() {
            "begin" => {
                self.advance();
                let _ = self.word("work") || self.word("transaction");
                Statement::Begin(self.modes()?)
            }
            "start" => {
                self.advance();
                self.expect_word("transaction")?;
                Statement::Begin(self.modes()?)
            }
            "commit" | "end" => {
                self.advance();
                if self.is_word("prepared") {
                    return Ok(self.refused("two-phase commit"));
                }
                self.end_of_transaction()?;
                Statement::Commit
            }
            "rollback" | "abort" => self.rollback()?,
            "savepoint" => {
                self.advance();
                Statement::Savepoint(self.name()?)
            }
            "release" => {
                self.advance();
                self.word("savepoint");
                Statement::Release(self.name()?)
            }
            "set" => self.set()?,
            "show" => {
                self.advance();
                Statement::Show(self.setting()?)
            }
            "reset" => {
                self.advance();
                Statement::Reset(if self.word("all") { None } else { Some(self.setting()?) })
            }
            "vacuum" => self.nothing("VACUUM"),
            "analyze" | "analyse" => self.nothing("ANALYZE"),
            "declare" => self.declare()?,
            "fetch" => self.fetch(false)?,
            "move" => self.fetch(true)?,
            "close" => self.close()?,
            "discard" => {
                self.advance();
                if self.word("all") {
                    Statement::Discard
                } else if self.word("sequences") {
                    Statement::DiscardSequences
                } else if self.word("plans") {
                    Statement::Nothing("DISCARD PLANS")
                } else if self.word("temp") || self.word("temporary") {
                    Statement::Nothing("DISCARD TEMP")
                } else {
                    return Err(self.unexpected());
                }
            }
            "deallocate" => {
                self.advance();
                self.word("prepare");
                Statement::Deallocate(if self.word("all") { None } else { Some(self.name()?) })
            }
            "comment" => self.comment()?,
            "prepare" => self.prepare()?,
            "execute" => self.execute()?,
            "explain" => self.explain()?,
            "lock" => self.lock_table()?,
            // Nobody listens, since LISTEN is refused.
            "unlisten" => self.nothing("UNLISTEN"),
            "merge" | "listen" | "notify" | "grant" | "revoke" | "do" | "call" | "reindex" | "cluster"
            | "refresh" | "security" | "import" | "load" | "checkpoint" | "reassign" => {
                self.refused(word.to_uppercase())
            }
            _ => return Err(self.unexpected()),
        };
        Ok(statement)
    }

    fn nothing(&mut self, tag: &'static str) -> Statement {
        self.refused("");
        Statement::Nothing(tag)
    }

    fn end_of_transaction(&mut self) -> Result<()> {
        let _ = self.word("work") || self.word("transaction");
        if self.word("and") {
            self.refuse(&[("chain", "AND CHAIN")])?;
            self.expect_word("no")?;
            self.expect_word("chain")?;
        }
        Ok(())
    }

    fn rollback(&mut self) -> Result<Statement> {
        self.advance();
        if self.is_word("prepared") {
            return Ok(self.refused("two-phase commit"));
        }
        let _ = self.word("work") || self.word("transaction");
        if self.word("to") {
            self.word("savepoint");
            return Ok(Statement::RollbackTo(self.name()?));
        }
        self.end_of_transaction()?;
        Ok(Statement::Rollback)
    }

    fn modes(&mut self) -> Result<Modes> {
        let mut modes = Modes::default();
        loop {
            if self.words(&["isolation", "level"]) {
                let level = if self.word("serializable") {
                    "serializable"
                } else if self.words(&["repeatable", "read"]) {
                    "repeatable read"
                } else if self.words(&["read", "committed"]) {
                    "read committed"
                } else if self.words(&["read", "uncommitted"]) {
                    "read uncommitted"
                } else {
                    return Err(self.unexpected());
                };
                modes.isolation = Some(level.to_owned());
            } else if self.words(&["read", "only"]) {
                modes.read_only = Some(true);
            } else if self.words(&["read", "write"]) {
                modes.read_only = Some(false);
            } else if self.words(&["not", "deferrable"]) || self.word("deferrable") {
            } else if self.kind() != &Kind::Sign(b',') {
                return Ok(modes);
            }
            self.sign(b',');
        }
    }

    /// The name of a setting.
    fn setting(&mut self) -> Result<String> {
        if self.words(&["time", "zone"]) {
            return Ok("timezone".to_owned());
        }
        if self.words(&["session", "authorization"]) {
            return Ok("session_authorization".to_owned());
        }
        if self.words(&["transaction", "isolation", "level"]) {
            return Ok("transaction_isolation".to_owned());
        }
        let mut name = self.label()?;
        while self.sign(b'.') {
            name.push('.');
            name.push_str(&self.label()?);
        }
        Ok(name)
    }

    fn set(&mut self) -> Result<Statement> {
        self.advance();
        if self.word("transaction") {
            return Ok(Statement::SetTransaction(self.modes()?));
        }
        if self.words(&["session", "characteristics", "as", "transaction"]) {
            let modes = self.modes()?;
            let (name, value) = match (modes.isolation, modes.read_only) {
                (Some(level), None) => ("default_transaction_isolation", level),
                (None, Some(only)) => {
                    ("default_transaction_read_only", if only { "on" } else { "off" }.to_owned())
                }
                _ => return Ok(self.refused("SET SESSION CHARACTERISTICS of several kinds")),
            };
            return Ok(Statement::Set { local: false, name: name.to_owned(), value: Some(vec![value]) });
        }
        if self.word("constraints") {
            let names = if self.word("all") { Vec::new() } else { self.list(Self::object)? };
            let deferred = self.word("deferred");
            if !deferred {
                self.expect_word("immediate")?;
            }
            return Ok(Statement::SetConstraints { names, deferred });
        }
        let local = self.word("local");
        let authorization = self.is_word("session") && self.is_word_ahead(1, "authorization");
        if !local && !authorization {
            self.word("session");
        }
        if self.words(&["time", "zone"]) {
            let value = self.zone()?;
            return Ok(Statement::Set { local, name: "timezone".to_owned(), value });
        }
        self.refuse(&[("xml option", "SET XML OPTION"), ("catalog", "SET CATALOG")])?;
        // These take their value without a sign.
        let bare = self.is_one_of(&["role", "session", "names", "schema"]);
        let role = self.is_word("role");
        let name = if self.word("names") {
            "client_encoding".to_owned()
        } else if self.word("schema") {
            "search_path".to_owned()
        } else {
            self.setting()?
        };
        let sign = (!bare || role) && (self.op("=") || self.word("to"));
        if !bare && !sign {
            return Err(self.unexpected());
        }
        let ends = matches!(self.kind(), Kind::End | Kind::Sign(b';')) && name == "client_encoding";
        if ends || self.word("default") {
            return Ok(Statement::Set { local, name, value: None });
        }
        let values = self.list(|parser| {
            let minus = parser.op("-");
            let text = match parser.kind() {
                Kind::Word(word) => word.to_string(),
                Kind::Quoted(name) => name.to_string(),
                Kind::Str(text) => text.to_string(),
                Kind::Int(number) => number.to_string(),
                Kind::Number(number) => number.to_string(),
                _ => return Err(parser.unexpected()),
            };
            parser.advance();
            Ok(if minus { format!("-{text}") } else { text })
        })?;
        Ok(Statement::Set { local, name, value: Some(values) })
    }

    /// The zone of SET TIME ZONE; none: that of the session's beginning.
    fn zone(&mut self) -> Result<Option<Vec<String>>> {
        if self.word("local") || self.word("default") {
            return Ok(None);
        }
        let minus = self.op("-");
        if !minus {
            self.op("+");
        }
        let at = self.at();
        let zone = match self.kind() {
            Kind::Int(number) => number.to_string(),
            Kind::Number(number) => number.to_string(),
            _ if minus => return Err(self.unexpected()),
            Kind::Word(word) if word.is("interval") => {
                return self.interval_zone(at).map(|zone| Some(vec![zone]));
            }
            Kind::Word(word) => word.to_string(),
            Kind::Quoted(name) => name.to_string(),
            Kind::Str(text) => text.to_string(),
            _ => return Err(self.unexpected()),
        };
        self.advance();
        Ok(Some(vec![if minus { format!("-{zone}") } else { zone }]))
    }

    /// `INTERVAL '+05:30' HOUR TO MINUTE`, as a text that the setting takes.
    fn interval_zone(&mut self, at: u32) -> Result<String> {
        self.advance();
        let Kind::Str(text) = self.kind().clone() else { return Err(self.unexpected()) };
        self.advance();
        let mut limits = Limits::default();
        if self.words(&["hour", "to", "minute"]) {
            limits = Limits { first: Some(3), last: Some(4) };
        } else if self.word("hour") {
            limits = Limits { first: Some(3), last: Some(3) };
        } else if self.word("minute") {
            limits = Limits { first: Some(4), last: Some(4) };
        } else if self.is_one_of(&["year", "month", "day", "second"]) {
            let message = "time zone interval must be HOUR or HOUR TO MINUTE";
            return Err(Error::new("42601", message).at(at));
        }
        let span = interval::parse(&text, limits).map_err(|error| error.at(at))?;
        Ok(format!("INTERVAL '{}'", interval::show(span)))
    }

    /// `PREPARE name [(types)] AS statement`: the statement is kept as its text.
    fn prepare(&mut self) -> Result<Statement> {
        self.advance();
        if self.is_word("transaction") && !self.is_word_ahead(1, "as") {
            return Ok(self.refused("two-phase commit"));
        }
        let name = self.name()?;
        let types = if self.sign(b'(') {
            let types = self.list(Self::type_name)?;
            self.expect_sign(b')')?;
            types
        } else {
            Vec::new()
        };
        self.expect_word("as")?;
        let start = self.at() as usize;
        self.refuse(&[("merge", "MERGE")])?;
        if !self.is_one_of(&["select", "values", "with", "insert", "update", "delete", "table"]) {
            return Err(self.unexpected());
        }
        let before = self.parameters;
        self.statement()?;
        // Its parameters are its own.
        self.parameters = before;
        let before = self.text[..start].chars().count();
        Ok(Statement::Prepare { name, types, statement: self.text_since(start), before })
    }

    fn execute(&mut self) -> Result<Statement> {
        self.advance();
        let name = self.name()?;
        let mut args = Vec::new();
        if self.sign(b'(') {
            args = if self.kind() == &Kind::Sign(b')') { Vec::new() } else { self.exprs()? };
            self.expect_sign(b')')?;
        }
        Ok(Statement::Execute { name, args })
    }

    /// LOCK TABLE: what only keeps definitions away is held anyhow; stronger modes are refused.
    fn lock_table(&mut self) -> Result<Statement> {
        self.advance();
        self.word("table");
        self.word("only");
        let names = self.list(Self::object)?;
        if !self.words(&["in", "access", "share", "mode"]) {
            return Ok(self.refused("LOCK TABLE in a mode other than ACCESS SHARE"));
        }
        self.word("nowait");
        Ok(Statement::LockShared(names))
    }
}
