//! CREATE, DROP, ALTER, TRUNCATE of tables and indexes. What cannot be defined yet is named and refused here.

use super::Parser;
use super::ast::{
    Alter, ColumnDef, CreateIndex, CreateTable, IdentityDef, KeyDef, SchemaOf, SequenceOptions, Statement,
    StorageOption, ViewAction,
};
use super::lexer::Kind;
use crate::error::{Error, Result};

/// Clauses behind the columns of CREATE TABLE.
pub(super) const TABLE_CLAUSES: [(&str, &str); 6] = [
    ("inherits", "INHERITS"),
    ("partition", "PARTITION BY"),
    ("using", "CREATE TABLE … USING"),
    ("on commit", "ON COMMIT"),
    ("tablespace", "TABLESPACE"),
    ("as", "CREATE TABLE with columns and AS"),
];

/// Clauses behind the columns of a key.
const KEY_CLAUSES: [(&str, &str); 6] = [
    ("include", "INCLUDE"),
    ("with", "parameters of a key"),
    ("using index tablespace", "TABLESPACE"),
    ("deferrable", "a deferrable key"),
    ("initially", "a deferrable key"),
    ("not valid", "NOT VALID"),
];

impl Parser<'_> {
    pub(super) fn create(&mut self) -> Result<Statement> {
        self.expect_word("create")?;
        if self.word("table") {
            return self.create_table();
        }
        if self.word("schema") {
            return self.create_schema();
        }
        let replace = self.words(&["or", "replace"]);
        if self.word("view") {
            return self.create_view(replace);
        }
        if replace {
            return self.refused_object("CREATE");
        }
        if self.word("sequence") {
            return self.create_sequence();
        }
        let unique = self.word("unique");
        if self.word("index") {
            return self.create_index(unique);
        }
        if unique {
            return Err(self.unexpected());
        }
        self.refused_object("CREATE")
    }

    fn create_table(&mut self) -> Result<Statement> {
        let if_not_exists = self.if_exists(true);
        let name = self.object()?;
        let mut table = CreateTable {
            name,
            if_not_exists,
            columns: Vec::new(),
            keys: Vec::new(),
            checks: Vec::new(),
            foreign: Vec::new(),
            options: Vec::new(),
            likes: Vec::new(),
        };
        if self.begins_table_of_query() {
            return self.create_table_as(table.name, if_not_exists);
        }
        if self.is_word("of") || self.is_word("partition") {
            return Ok(self.refused("CREATE TABLE OF and PARTITION OF"));
        }
        self.refuse(&TABLE_CLAUSES)?;
        self.expect_sign(b'(')?;
        if !self.sign(b')') {
            self.list(|parser| parser.element(&mut table))?;
            self.expect_sign(b')')?;
        }
        loop {
            if self.word("with") {
                table.options = self.storage_options()?;
            } else if self.words(&["without", "oids"]) {
            } else {
                self.refuse(&TABLE_CLAUSES)?;
                return Ok(Statement::CreateTable(Box::new(table)));
            }
        }
    }

    pub(super) fn storage_options(&mut self) -> Result<Vec<StorageOption>> {
        self.in_parentheses(|parser| {
            parser.list(|parser| {
                let (mut space, mut name) = (None, parser.label()?);
                if parser.sign(b'.') {
                    space = Some(std::mem::replace(&mut name, parser.label()?));
                }
                let mut value = None;
                if parser.op("=") {
                    let minus = if parser.op("-") { "-" } else { "" };
                    let text = match parser.kind() {
                        Kind::Word(word) => word.to_string(),
                        Kind::Str(text) => text.to_string(),
                        Kind::Int(number) => format!("{minus}{number}"),
                        Kind::Number(number) => format!("{minus}{number}"),
                        _ => return Err(parser.unexpected()),
                    };
                    parser.advance();
                    value = Some(text);
                }
                Ok(StorageOption { space, name, value })
            })
        })
    }

    /// A column or a constraint of a table.
    fn element(&mut self, table: &mut CreateTable) -> Result<()> {
        let at = self.at();
        let constraint = if self.word("constraint") { Some(self.name()?) } else { None };
        if self.is_phrase("primary key") || self.is_word("unique") {
            table.keys.push(self.key(constraint)?);
        } else if self.is_word("check") {
            table.checks.push(self.check(constraint)?);
        } else if self.is_word("foreign") {
            table.foreign.push(self.foreign_key(constraint)?);
        } else if self.is_word("exclude") {
            return Err(Error::unsupported("EXCLUDE").at(at));
        } else if self.is_word("like") {
            let like = self.like(table.columns.len())?;
            table.likes.push(like);
        } else if constraint.is_some() {
            return Err(self.unexpected());
        } else {
            let column = self.column_def()?;
            table.columns.push(column);
        }
        Ok(())
    }

    /// `PRIMARY KEY (…)` or `UNIQUE (…)`
    fn key(&mut self, name: Option<String>) -> Result<KeyDef> {
        let primary = self.words(&["primary", "key"]);
        if !primary {
            self.expect_word("unique")?;
        }
        if self.words(&["nulls", "distinct"]) && primary {
            return Err(self.unexpected());
        }
        self.refuse(&[
            ("nulls not distinct", "NULLS NOT DISTINCT"),
            ("using index", "a key that takes an index"),
        ])?;
        let columns = self.column_names()?;
        self.words(&["not", "deferrable"]);
        self.refuse(&KEY_CLAUSES)?;
        Ok(KeyDef { name, columns, primary })
    }

    fn column_def(&mut self) -> Result<ColumnDef> {
        let (name, at) = self.placed_name()?;
        let ty = self.type_name()?;
        let mut column = ColumnDef {
            name,
            at,
            ty,
            not_null: false,
            default: None,
            primary: false,
            unique: false,
            key_name: None,
            identity: None,
            checks: Vec::new(),
            references: Vec::new(),
        };
        loop {
            let at = self.at();
            let constraint = if self.word("constraint") { Some(self.name()?) } else { None };
            if self.words(&["not", "null"]) {
                column.not_null = true;
            } else if self.word("null") {
            } else if self.words(&["primary", "key"]) {
                column.primary = true;
                column.key_name = constraint;
            } else if self.word("unique") {
                column.unique = true;
                column.key_name = constraint;
            } else if self.word("default") {
                column.default = Some(self.written(Self::expr)?);
            } else if self.word("generated") {
                column.identity = Some(self.identity()?);
            } else if self.word("collate") {
                self.collation()?;
            } else if self.is_word("check") {
                column.checks.push(self.check(constraint)?);
            } else if self.is_word("references") {
                let own = vec![(column.name.clone(), column.at)];
                let foreign = self.references(constraint, own, at)?;
                column.references.push(foreign);
            } else {
                self.refuse(&[
                    ("deferrable", "a deferrable constraint"),
                    ("initially", "a deferrable constraint"),
                    ("not deferrable", "NOT DEFERRABLE of a column"),
                    ("compression", "COMPRESSION"),
                    ("storage", "STORAGE of a column"),
                    ("options", "OPTIONS of a column"),
                    ("using index tablespace", "TABLESPACE"),
                    ("with", "parameters of a key"),
                    ("nulls not distinct", "NULLS NOT DISTINCT"),
                ])?;
                return Ok(column);
            }
        }
    }

    /// `ALWAYS` or `BY DEFAULT`: whether it is the first.
    pub(super) fn always(&mut self) -> Result<bool> {
        let always = self.word("always");
        if !always {
            self.expect_word("by")?;
            self.expect_word("default")?;
        }
        Ok(always)
    }

    /// The words behind GENERATED: `ALWAYS AS IDENTITY (…)`.
    pub(super) fn identity(&mut self) -> Result<IdentityDef> {
        let at = self.at();
        let always = self.always()?;
        self.expect_word("as")?;
        if !self.word("identity") {
            return Err(Error::unsupported("a generated column").at(at));
        }
        let mut options = SequenceOptions::default();
        if self.sign(b'(') {
            options = self.sequence_options()?;
            self.expect_sign(b')')?;
        }
        Ok(IdentityDef { always, options })
    }

    /// The collation behind COLLATE: all that are known order by bytes.
    pub(super) fn collation(&mut self) -> Result<()> {
        let at = self.at();
        let mut collation = self.label()?;
        while self.sign(b'.') {
            collation = self.label()?;
        }
        if !["C", "POSIX", "default", "ucs_basic"].contains(&&*collation) {
            return Err(Error::unsupported(format!("collation \"{collation}\"")).at(at));
        }
        Ok(())
    }

    fn create_index(&mut self, unique: bool) -> Result<Statement> {
        self.word("concurrently");
        let if_not_exists = self.if_exists(true);
        let name = if self.is_word("on") { None } else { Some(self.name()?) };
        self.expect_word("on")?;
        self.word("only");
        let table = self.object()?;
        let method = if self.word("using") {
            let at = self.at();
            Some((self.name()?, at))
        } else {
            None
        };
        let columns = self.in_parentheses(|parser| parser.list(Self::index_column))?;
        self.refuse(&[("include", "INCLUDE"), ("nulls not distinct", "NULLS NOT DISTINCT")])?;
        self.words(&["nulls", "distinct"]);
        if self.word("with") {
            self.storage_options()?;
        }
        self.refuse(&[("tablespace", "TABLESPACE"), ("where", "a partial index")])?;
        Ok(Statement::CreateIndex(Box::new(CreateIndex {
            name,
            if_not_exists,
            unique,
            table,
            method,
            columns,
        })))
    }

    fn index_column(&mut self) -> Result<(String, u32, bool)> {
        let at = self.at();
        if self.kind() == &Kind::Sign(b'(') || self.ahead(1) == &Kind::Sign(b'(') {
            return Err(Error::unsupported("an index on an expression").at(at));
        }
        let name = self.name()?;
        if self.word("collate") {
            self.label()?;
        }
        // An operator class: all of them order by bytes here, as the collation "C" does.
        if let Kind::Word(class) = self.kind()
            && class.ends_with("_ops")
        {
            self.advance();
        }
        if self.kind() == &Kind::Sign(b'(') || matches!(self.ahead(1), Kind::Sign(b'(')) {
            return Err(Error::unsupported("an operator class with parameters").at(self.at()));
        }
        let descending = self.word("desc");
        if !descending {
            self.word("asc");
        }
        let place = self.at();
        if self.word("nulls") {
            let first = self.word("first");
            if !first {
                self.expect_word("last")?;
            }
            if first != descending {
                return Err(Error::unsupported("an index with this order of nulls").at(place));
            }
        }
        Ok((name, at, descending))
    }

    pub(super) fn drop_statement(&mut self) -> Result<Statement> {
        self.expect_word("drop")?;
        if self.word("schema") {
            return self.drop_schema();
        }
        let (sequence, view) = (self.word("sequence"), self.is_word("view"));
        if sequence || self.word("view") {
            let if_exists = self.if_exists(false);
            let names = self.list(Self::object)?;
            let cascade = self.cascades();
            return Ok(if view {
                Statement::DropView { names, if_exists, cascade }
            } else {
                Statement::DropSequence { names, if_exists, cascade }
            });
        }
        let table = self.word("table");
        if !table && !self.word("index") {
            return self.refused_object("DROP");
        }
        if !table {
            self.word("concurrently");
        }
        let if_exists = self.if_exists(false);
        let names = self.list(Self::object)?;
        let cascade = self.cascades();
        Ok(if table {
            Statement::DropTable { names, if_exists, cascade }
        } else {
            Statement::DropIndex { names, if_exists }
        })
    }

    pub(super) fn alter(&mut self) -> Result<Statement> {
        self.expect_word("alter")?;
        if self.is_word("index") {
            self.refused("ALTER INDEX");
            return Ok(Statement::AlterIndex);
        }
        if self.word("schema") {
            return self.alter_schema();
        }
        if self.word("sequence") {
            return match self.set_schema(SchemaOf::Sequence)? {
                Some(moved) => Ok(moved),
                None => self.alter_sequence(),
            };
        }
        if self.word("view") {
            return match self.set_schema(SchemaOf::View)? {
                Some(moved) => Ok(moved),
                None => self.alter_view(),
            };
        }
        if !self.word("table") {
            return self.refused_object("ALTER");
        }
        if self.is_phrase("all in") {
            return Ok(self.refused("ALTER TABLE ALL IN TABLESPACE"));
        }
        if let Some(moved) = self.set_schema(SchemaOf::Table)? {
            return Ok(moved);
        }
        let if_exists = self.if_exists(false);
        self.word("only");
        let name = self.object()?;
        self.op("*");
        let actions = self.list(Self::alter_action)?;
        Ok(Statement::AlterTable { name, if_exists, actions })
    }

    fn alter_view(&mut self) -> Result<Statement> {
        let if_exists = self.if_exists(false);
        let name = self.object()?;
        let action = if self.words(&["rename", "to"]) {
            ViewAction::RenameTo(self.name()?)
        } else if self.word("rename") {
            self.word("column");
            let from = self.name()?;
            self.expect_word("to")?;
            ViewAction::RenameColumn { from, to: self.name()? }
        } else if self.words(&["owner", "to"]) {
            self.label()?;
            ViewAction::Nothing
        } else if self.is_one_of(&["alter", "set", "reset"]) {
            return Ok(self.refused("this form of ALTER VIEW"));
        } else {
            return Err(self.unexpected());
        };
        Ok(Statement::AlterView { name, if_exists, action })
    }

    fn alter_action(&mut self) -> Result<Alter> {
        let start = self.at();
        if self.word("rename") {
            if self.word("to") {
                return Ok(Alter::RenameTo(self.name()?));
            }
            if self.is_word("constraint") {
                return Err(Error::unsupported("RENAME CONSTRAINT").at(start));
            }
            self.word("column");
            let (from, at) = self.placed_name()?;
            self.expect_word("to")?;
            return Ok(Alter::RenameColumn { from, to: self.name()?, at });
        }
        if self.word("add") {
            let named = self.is_word("constraint");
            let ahead = if named { 2 } else { 0 };
            let is_key = self.is_word_ahead(ahead, "primary") || self.is_word_ahead(ahead, "unique");
            if is_key {
                let name = if self.word("constraint") { Some(self.name()?) } else { None };
                return Ok(Alter::AddKey { key: self.key(name)?, at: start });
            }
            if self.is_one_of(&["constraint", "check", "foreign", "exclude"]) {
                let name = if self.word("constraint") { Some(self.name()?) } else { None };
                if self.is_word("check") {
                    return Ok(Alter::AddCheck(self.check(name)?));
                }
                if self.is_word("foreign") {
                    return Ok(Alter::AddForeign(self.foreign_key(name)?));
                }
                return Err(Error::unsupported("this form of ADD CONSTRAINT").at(start));
            }
            self.word("column");
            let if_not_exists = self.if_exists(true);
            return Ok(Alter::AddColumn { column: Box::new(self.column_def()?), if_not_exists });
        }
        if self.word("drop") {
            if self.word("constraint") {
                let if_exists = self.if_exists(false);
                let name = self.name()?;
                return Ok(Alter::DropConstraint { name, if_exists, cascade: self.cascades() });
            }
            self.word("column");
            let if_exists = self.if_exists(false);
            let (name, at) = self.placed_name()?;
            return Ok(Alter::DropColumn { name, at, if_exists, cascade: self.cascades() });
        }
        if self.word("alter") {
            self.refuse(&[("constraint", "ALTER CONSTRAINT")])?;
            self.word("column");
            return self.alter_column();
        }
        if self.words(&["owner", "to"]) {
            self.label()?;
            return Ok(Alter::Nothing);
        }
        if self.words(&["validate", "constraint"]) {
            return Ok(Alter::Validate(self.name()?));
        }
        let (sets, ahead) = (self.is_word("set"), self.ahead(1) == &Kind::Sign(b'('));
        if ahead && (sets || self.is_word("reset")) {
            self.advance();
            let options = self.storage_options()?;
            return Ok(if sets { Alter::SetParameters(options) } else { Alter::ResetParameters(options) });
        }
        self.refuse(&[
            ("set", "this form of ALTER TABLE … SET"),
            ("enable", "ALTER TABLE … ENABLE"),
            ("disable", "ALTER TABLE … DISABLE"),
            ("cluster on", "ALTER TABLE … CLUSTER"),
            ("inherit", "ALTER TABLE … INHERIT"),
            ("no inherit", "ALTER TABLE … INHERIT"),
            ("of", "ALTER TABLE … OF"),
            ("not of", "ALTER TABLE … OF"),
            ("attach partition", "ALTER TABLE … ATTACH PARTITION"),
            ("detach partition", "ALTER TABLE … DETACH PARTITION"),
            ("replica identity", "ALTER TABLE … REPLICA IDENTITY"),
            ("force row", "ALTER TABLE … FORCE ROW LEVEL SECURITY"),
            ("no force", "ALTER TABLE … FORCE ROW LEVEL SECURITY"),
            ("options", "ALTER TABLE … OPTIONS"),
        ])?;
        Err(self.unexpected())
    }

    pub(super) fn truncate(&mut self) -> Result<Statement> {
        self.expect_word("truncate")?;
        self.word("table");
        let names = self.list(|parser| {
            parser.word("only");
            let name = parser.object()?;
            parser.op("*");
            Ok(name)
        })?;
        let restart = self.words(&["restart", "identity"]);
        self.words(&["continue", "identity"]);
        Ok(Statement::Truncate { names, restart, cascade: self.cascades() })
    }

    /// `CASCADE` or, if not, `RESTRICT`, which is what holds where nothing is said.
    pub(super) fn cascades(&mut self) -> bool {
        let cascade = self.word("cascade");
        if !cascade {
            self.word("restrict");
        }
        cascade
    }
}
