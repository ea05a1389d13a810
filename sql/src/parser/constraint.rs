//! Constraints of tables, sequences, views, comments: what definitions keep beside the engine's.

use super::Parser;
use super::ast::{
    Action, Alter, CheckDef, Commented, CreateView, Expr, ForeignDef, Names, SequenceOptions, Statement,
    Written,
};
use super::lexer::Kind;
use crate::error::{Error, Result};

impl Parser<'_> {
    /// What `parse` parses, and its text.
    pub(super) fn written(&mut self, parse: impl FnOnce(&mut Self) -> Result<Expr>) -> Result<Written> {
        let start = self.at() as usize;
        let expr = parse(self)?;
        Ok(Written { expr, text: self.text_since(start), at: start as u32 })
    }

    /// The text from a place to the end of the last token that was taken.
    pub(super) fn text_since(&self, start: usize) -> String {
        let end = self.next.checked_sub(1).map_or(start, |last| self.tokens[last].end as usize);
        self.text[start..end.max(start)].to_owned()
    }

    /// `CHECK (condition) [NO INHERIT]`
    pub(super) fn check(&mut self, name: Option<String>) -> Result<CheckDef> {
        let at = self.at();
        self.expect_word("check")?;
        let condition = self.in_parentheses(|parser| parser.written(Self::expr))?;
        self.words(&["no", "inherit"]);
        self.words(&["not", "deferrable"]);
        self.refuse(&[("not valid", "NOT VALID")])?;
        Ok(CheckDef { name, condition, at })
    }

    /// `FOREIGN KEY (columns) REFERENCES …`
    pub(super) fn foreign_key(&mut self, name: Option<String>) -> Result<ForeignDef> {
        let at = self.at();
        self.expect_word("foreign")?;
        self.expect_word("key")?;
        let columns = self.column_names()?;
        self.references(name, columns, at)
    }

    pub(super) fn references(&mut self, name: Option<String>, columns: Names, at: u32) -> Result<ForeignDef> {
        self.expect_word("references")?;
        let parent = self.object()?;
        let parent_columns = if self.kind() == &Kind::Sign(b'(') { self.column_names()? } else { Vec::new() };
        let mut foreign = ForeignDef {
            name,
            columns,
            parent,
            parent_columns,
            on_delete: Action::Nothing,
            on_update: Action::Nothing,
            deferrable: false,
            deferred: false,
            at,
        };
        loop {
            let at = self.at();
            if self.words(&["match", "full"]) || self.words(&["match", "partial"]) {
                return Err(Error::unsupported("MATCH FULL and MATCH PARTIAL").at(at));
            } else if self.words(&["match", "simple"]) {
            } else if self.words(&["on", "delete"]) {
                foreign.on_delete = self.action()?;
            } else if self.words(&["on", "update"]) {
                foreign.on_update = self.action()?;
            } else if self.words(&["not", "deferrable"]) {
                foreign.deferrable = false;
            } else if self.word("deferrable") {
                foreign.deferrable = true;
            } else if self.words(&["initially", "deferred"]) {
                (foreign.deferrable, foreign.deferred) = (true, true);
            } else if self.words(&["initially", "immediate"]) {
                foreign.deferred = false;
            } else if self.words(&["not", "valid"]) {
                return Err(Error::unsupported("NOT VALID").at(at));
            } else {
                return Ok(foreign);
            }
        }
    }

    fn action(&mut self) -> Result<Action> {
        let at = self.at();
        let action = if self.words(&["no", "action"]) {
            Action::Nothing
        } else if self.word("restrict") {
            Action::Restrict
        } else if self.word("cascade") {
            Action::Cascade
        } else if self.words(&["set", "null"]) {
            Action::SetNull
        } else if self.words(&["set", "default"]) {
            Action::SetDefault
        } else {
            return Err(self.unexpected());
        };
        if self.kind() == &Kind::Sign(b'(') {
            return Err(Error::unsupported("SET NULL and SET DEFAULT of some columns").at(at));
        }
        Ok(action)
    }

    /// `ALTER COLUMN name …`
    pub(super) fn alter_column(&mut self) -> Result<Alter> {
        let start = self.at();
        let (column, at) = self.placed_name()?;
        if self.words(&["set", "default"]) {
            return Ok(Alter::SetDefault { column, at, default: Some(self.written(Self::expr)?) });
        }
        if self.words(&["drop", "default"]) {
            return Ok(Alter::SetDefault { column, at, default: None });
        }
        let not_null = self.words(&["set", "not", "null"]);
        if not_null || self.words(&["drop", "not", "null"]) {
            return Ok(Alter::SetNotNull { column, at, not_null });
        }
        if self.words(&["set", "data", "type"]) || self.word("type") {
            let ty = self.type_name()?;
            if self.word("collate") {
                self.collation()?;
            }
            let using = if self.word("using") { Some(self.written(Self::expr)?) } else { None };
            return Ok(Alter::SetType { column, at, ty, using });
        }
        if self.words(&["add", "generated"]) {
            return Ok(Alter::AddIdentity { column, identity: self.identity()? });
        }
        if self.words(&["set", "generated"]) {
            let always = self.always()?;
            self.refuse(&[("set", "SET GENERATED with options"), ("restart", "SET GENERATED with options")])?;
            return Ok(Alter::SetIdentity { column, always });
        }
        if self.words(&["drop", "identity"]) {
            return Ok(Alter::DropIdentity { column, if_exists: self.if_exists(false) });
        }
        // How values are kept and what is known of them changes no answer.
        if self.words(&["set", "statistics"]) {
            self.signed()?;
            return Ok(Alter::Nothing);
        }
        if self.words(&["set", "storage"]) {
            self.label()?;
            return Ok(Alter::Nothing);
        }
        Err(Error::unsupported("this form of ALTER COLUMN").at(start))
    }

    pub(super) fn create_sequence(&mut self) -> Result<Statement> {
        let if_not_exists = self.if_exists(true);
        let name = self.object()?;
        Ok(Statement::CreateSequence { name, if_not_exists, options: self.sequence_options()? })
    }

    pub(super) fn alter_sequence(&mut self) -> Result<Statement> {
        let if_exists = self.if_exists(false);
        let name = self.object()?;
        let rename = if self.words(&["rename", "to"]) { Some(self.name()?) } else { None };
        self.refuse(&[("set", "ALTER SEQUENCE … SET"), ("owner to", "ALTER SEQUENCE … OWNER TO")])?;
        Ok(Statement::AlterSequence { name, if_exists, options: self.sequence_options()?, rename })
    }

    pub(super) fn sequence_options(&mut self) -> Result<SequenceOptions> {
        let mut all = SequenceOptions::default();
        loop {
            if self.word("as") {
                all.ty = Some(self.type_name()?);
            } else if self.word("increment") {
                self.word("by");
                all.increment = Some(self.signed()?);
            } else if self.word("start") {
                self.word("with");
                all.start = Some(self.signed()?);
            } else if self.word("minvalue") {
                all.min = Some(Some(self.signed()?));
            } else if self.word("maxvalue") {
                all.max = Some(Some(self.signed()?));
            } else if self.words(&["no", "minvalue"]) {
                all.min = Some(None);
            } else if self.words(&["no", "maxvalue"]) {
                all.max = Some(None);
            } else if self.words(&["no", "cycle"]) {
                all.cycle = Some(false);
            } else if self.word("cycle") {
                all.cycle = Some(true);
            } else if self.word("cache") {
                all.cache = Some(self.signed()?);
            } else if self.words(&["sequence", "name"]) {
                self.object()?;
            } else if self.word("restart") {
                self.word("with");
                let number = matches!(self.kind(), Kind::Int(_) | Kind::Op("-" | "+"));
                all.restart = Some(if number { Some(self.signed()?) } else { None });
            } else if self.words(&["owned", "by"]) {
                all.owner = Some(self.owner()?);
            } else {
                return Ok(all);
            }
        }
    }

    /// `NONE`, or a table and its column.
    fn owner(&mut self) -> Result<Option<(super::ast::ObjectName, String)>> {
        if self.word("none") {
            return Ok(None);
        }
        let at = self.at();
        let (Some(table), column) = self.column_of_table()? else {
            let error = Error::new("42601", "invalid OWNED BY option").at(at);
            return Err(error.hint("Specify OWNED BY table.column or OWNED BY NONE."));
        };
        Ok(Some((table, column)))
    }

    fn signed(&mut self) -> Result<i64> {
        let minus = self.op("-");
        if !minus {
            self.op("+");
        }
        let number = match self.kind() {
            Kind::Int(number) => *number,
            Kind::Number(text) => text
                .parse::<i128>()
                .ok()
                .and_then(|number| i64::try_from(if minus { -number } else { number }).ok())
                .map(|number| if minus { number.wrapping_neg() } else { number })
                .ok_or_else(|| self.unexpected())?,
            _ => return Err(self.unexpected()),
        };
        self.advance();
        Ok(if minus { number.wrapping_neg() } else { number })
    }

    pub(super) fn create_view(&mut self, replace: bool) -> Result<Statement> {
        let name = self.object()?;
        let columns = if self.kind() == &Kind::Sign(b'(') {
            self.column_names()?.into_iter().map(|(name, _)| name).collect()
        } else {
            Vec::new()
        };
        if self.is_word("with") {
            return Err(Error::unsupported("options of a view").at(self.at()));
        }
        self.expect_word("as")?;
        let at = self.at();
        let mut query = self.query()?;
        if super::derived::leftmost_into(&mut query.body).is_some() {
            return Err(Error::new("0A000", "views must not contain SELECT INTO"));
        }
        let text = self.text_since(at as usize);
        if self.is_word("with") {
            return Err(Error::unsupported("WITH CHECK OPTION").at(self.at()));
        }
        Ok(Statement::CreateView(Box::new(CreateView { name, replace, columns, query, text, at })))
    }

    pub(super) fn comment(&mut self) -> Result<Statement> {
        self.advance();
        self.expect_word("on")?;
        let about = if self.word("column") {
            let at = self.at();
            let (Some(table), column) = self.column_of_table()? else {
                return Err(Error::new("42601", "column name must be qualified").at(at));
            };
            Commented::Column(table, column)
        } else if self.word("constraint") {
            let name = self.name()?;
            self.expect_word("on")?;
            self.refuse(&[("domain", "COMMENT ON CONSTRAINT of a domain")])?;
            Commented::Constraint(name, self.object()?)
        } else if let Some(kind) =
            ["table", "index", "view", "sequence"].into_iter().find(|kind| self.word(kind))
        {
            Commented::Relation(kind, self.object()?)
        } else if self.is_one_of(&["database", "schema", "role", "extension", "type", "function"])
            && self.is_word_ahead(2, "is")
        {
            self.advance();
            self.label()?;
            Commented::Other
        } else {
            return self.refused_object("COMMENT ON");
        };
        self.expect_word("is")?;
        let text = match self.kind().clone() {
            Kind::Str(text) => Some(text.into_owned()),
            Kind::Word(word) if word.is("null") => None,
            _ => return Err(self.unexpected()),
        };
        self.advance();
        Ok(Statement::Comment { about, text })
    }
}
