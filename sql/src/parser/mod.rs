//! PostgreSQL's SQL as text to statements: recursive descent, with the precedence of PostgreSQL's grammar for expressions.
//!
//! | file | parses |
//! |---|---|
//! | `lexer` | tokens |
//! | `expr` | expressions, type names |
//! | `query` | SELECT, VALUES, WITH, joins |
//! | `change` | INSERT, UPDATE, DELETE |
//! | `copy` | COPY |
//! | `cursor` | DECLARE, FETCH, MOVE, CLOSE |
//! | `definition` | CREATE, ALTER, DROP, TRUNCATE |
//! | `explain` | EXPLAIN |
//! | `constraint` | constraints, sequences, views, comments |
//! | `schema` | schemas |
//! | `refused` | what is known and refused by its name |
//! | `session` | transactions, SET, SHOW |
//!
//! Depth is bounded ([`MAX_DEPTH`]): a text of nothing but parentheses is refused (54001) and ends nothing. Why this is
//! written here and no library's: `docs/understand/decisions/0013-parser.md`.

pub(crate) mod ast;
mod change;
mod constraint;
mod copy;
mod cursor;
mod definition;
mod derived;
mod explain;
mod expr;
mod lexer;
mod query;
mod refused;
mod schema;
mod session;
mod window;

use ast::{ObjectName, Statement};
pub(crate) use lexer::statements;
use lexer::{Kind, Token};

use crate::error::{Error, Result};
use crate::keywords::Category;
use crate::names::fitting;

/// Most levels that a statement's tree has, and that calls of the parser have.
pub(crate) const MAX_DEPTH: u32 = 200;

/// A statement and where it begins.
#[derive(Clone, Debug)]
pub(crate) struct Parsed {
    pub(crate) statement: Statement,
    /// The greatest `$n`.
    pub(crate) parameters: u32,
}

/// The expression that a text is, all of it: one that a definition keeps.
pub(crate) fn parse_expr(text: &str) -> Result<ast::Expr> {
    let tokens = lexer::tokens(text, &mut |_| Ok(()))?;
    let mut parser = Parser { text, tokens, next: 0, depth: 0, parameters: 0 };
    let expr = parser.expr()?;
    if parser.kind() == &Kind::End { Ok(expr) } else { Err(parser.unexpected()) }
}

/// Parts of a text that others stand for: their first and last bytes, and what is written there.
pub(crate) type Edits = Vec<(std::ops::Range<usize>, String)>;

/// The text with its edits made. They do not overlap; of several at one place the first one counts.
pub(crate) fn edited(text: &str, mut edits: Edits) -> String {
    edits.sort_by_key(|(range, _)| range.start);
    edits.dedup_by_key(|(range, _)| range.start);
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    for (range, new) in edits {
        out.push_str(&text[done..range.start]);
        out.push_str(&new);
        done = range.end;
    }
    out.push_str(&text[done..]);
    out
}

/// The token that begins at a place of a text; none if none does.
pub(crate) fn token_at(text: &str, start: usize) -> Option<std::ops::Range<usize>> {
    let rest = text.get(start..)?;
    let token = lexer::first(rest)?;
    (token.0 == 0).then(|| start..start + token.1)
}

/// The parts of a name that begins at a place of a text, `a.b.c`: where each stands, and what it is.
pub(crate) fn name_at(text: &str, start: u32) -> Option<Vec<(std::ops::Range<usize>, String)>> {
    let mut at = start as usize;
    let mut parts = Vec::new();
    loop {
        let (name, begin, end) = lexer::first_name(text.get(at..)?)?;
        if parts.is_empty() && begin != 0 {
            return None;
        }
        parts.push((at + begin..at + end, fitted(name)));
        at += end;
        let point = lexer::first(&text[at..]).filter(|(from, to)| &text[at + from..at + to] == ".");
        let Some((_, to)) = point else { return Some(parts) };
        at += to;
        // The star of `t.*` is no name.
        if lexer::first_name(&text[at..]).is_none() {
            return Some(parts);
        }
    }
}

/// All statements of a text.
pub(crate) fn parse(text: &str) -> Result<Vec<Parsed>> {
    parse_within(text, &mut |_| Ok(()))
}

/// The same; `room` is asked for so many tokens more, where there are very many.
pub(crate) fn parse_within(text: &str, room: &mut dyn FnMut(usize) -> Result<()>) -> Result<Vec<Parsed>> {
    let tokens = lexer::tokens(text, room).map_err(|error| error.locate(text))?;
    let mut parser = Parser { text, tokens, next: 0, depth: 0, parameters: 0 };
    parser.statements().map_err(|error| error.locate(text))
}

pub(crate) struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token<'t>>,
    next: usize,
    depth: u32,
    parameters: u32,
}

impl<'t> Parser<'t> {
    fn statements(&mut self) -> Result<Vec<Parsed>> {
        let mut all = Vec::new();
        loop {
            while self.sign(b';') {}
            if self.kind() == &Kind::End {
                return Ok(all);
            }
            self.parameters = 0;
            let statement = self.statement()?;
            all.push(Parsed { statement, parameters: self.parameters });
            if !matches!(self.kind(), Kind::End | Kind::Sign(b';')) {
                return Err(self.unexpected());
            }
        }
    }

    fn statement(&mut self) -> Result<Statement> {
        if self.kind() == &Kind::Sign(b'(') {
            let query = self.query()?;
            return Ok(self.query_statement(query));
        }
        let Kind::Word(word) = self.kind() else { return Err(self.unexpected()) };
        match word.keyword() {
            "select" | "values" | "table" => {
                let query = self.query()?;
                Ok(self.query_statement(query))
            }
            "with" => self.with_statement(),
            "insert" => self.insert(Vec::new()),
            "update" => self.update(Vec::new()),
            "delete" => self.delete(Vec::new()),
            "create" => self.create(),
            "drop" => self.drop_statement(),
            "alter" => self.alter(),
            "truncate" => self.truncate(),
            "copy" => self.copy(),
            _ => self.session_statement(),
        }
    }

    // Tokens.

    fn kind(&self) -> &Kind<'t> {
        &self.tokens[self.next].kind
    }

    fn ahead(&self, count: usize) -> &Kind<'t> {
        &self.tokens[(self.next + count).min(self.tokens.len() - 1)].kind
    }

    fn at(&self) -> u32 {
        self.tokens[self.next].at
    }

    fn advance(&mut self) {
        if self.next + 1 < self.tokens.len() {
            self.next += 1;
        }
    }

    fn unexpected(&self) -> Error {
        let token = &self.tokens[self.next];
        if token.kind == Kind::End {
            return Error::new("42601", "syntax error at end of input").at(token.at);
        }
        let found = &self.text[token.at as usize..token.end as usize];
        Error::new("42601", format!("syntax error at or near \"{found}\"")).at(token.at)
    }

    #[inline]
    fn is_word(&self, word: &str) -> bool {
        matches!(self.kind(), Kind::Word(found) if found.is(word))
    }

    #[inline]
    fn is_word_ahead(&self, count: usize, word: &str) -> bool {
        matches!(self.ahead(count), Kind::Word(found) if found.is(word))
    }

    #[inline]
    fn is_one_of(&self, words: &[&str]) -> bool {
        matches!(self.kind(), Kind::Word(found) if found.is_one_of(words))
    }

    /// Takes this keyword, if it is next.
    #[inline]
    fn word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.advance();
        }
        found
    }

    /// Takes all of these keywords, or none.
    fn words(&mut self, words: &[&str]) -> bool {
        let found = words.iter().enumerate().all(|(ahead, word)| self.is_word_ahead(ahead, word));
        if found {
            words.iter().for_each(|_| self.advance());
        }
        found
    }

    fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.word(word) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn sign(&mut self, sign: u8) -> bool {
        let found = self.kind() == &Kind::Sign(sign);
        if found {
            self.advance();
        }
        found
    }

    fn expect_sign(&mut self, sign: u8) -> Result<()> {
        if self.sign(sign) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn op(&mut self, op: &str) -> bool {
        let found = matches!(self.kind(), Kind::Op(found) if *found == op);
        if found {
            self.advance();
        }
        found
    }

    /// The same with the bound on depth kept.
    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH {
            return Err(too_deep().at(self.at()));
        }
        crate::depth::has_stack()?;
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// One or more, with commas between.
    fn list<T>(&mut self, mut parse: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut all = vec![parse(self)?];
        while self.sign(b',') {
            all.push(parse(self)?);
        }
        Ok(all)
    }

    fn in_parentheses<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.expect_sign(b'(')?;
        let parsed = parse(self)?;
        self.expect_sign(b')')?;
        Ok(parsed)
    }

    // Names.

    /// A name that keywords of the `refused` categories are not.
    fn name_unless(&mut self, refused: &[Category]) -> Result<String> {
        let name = match self.kind() {
            // Such names are the database's own.
            Kind::Quoted(name)
                if name.starts_with(crate::names::OWN) || name.contains(crate::names::MARK) =>
            {
                return Err(
                    Error::new("42602", format!("invalid name \"{}\"", name.escape_debug())).at(self.at())
                );
            }
            Kind::Quoted(name) => name.to_string(),
            Kind::Word(word) if refused.iter().all(|category| word.is_no(*category)) => word.to_string(),
            _ => return Err(self.unexpected()),
        };
        self.advance();
        Ok(fitted(name))
    }

    /// The name of a column, table or alias.
    fn name(&mut self) -> Result<String> {
        self.name_unless(&[Category::Reserved, Category::NoColumn])
    }

    /// Any word: after a point, or after `AS`.
    fn label(&mut self) -> Result<String> {
        self.name_unless(&[])
    }

    fn placed_name(&mut self) -> Result<(String, u32)> {
        let at = self.at();
        Ok((self.name()?, at))
    }

    fn object(&mut self) -> Result<ObjectName> {
        let at = self.at();
        let mut name = self.name()?;
        let mut schema = None;
        while self.sign(b'.') {
            schema = Some(std::mem::replace(&mut name, self.label()?));
        }
        Ok(ObjectName { schema, name, at })
    }

    /// A column behind its table, which may have its schema; no table if the name has one part.
    fn column_of_table(&mut self) -> Result<(Option<ObjectName>, String)> {
        let at = self.at();
        let mut parts = vec![self.name()?];
        while self.sign(b'.') {
            parts.push(self.label()?);
        }
        let column = parts.pop().expect("a name has a part");
        let table = parts.pop().map(|name| ObjectName { schema: parts.pop(), name, at });
        Ok((table, column))
    }

    fn column_names(&mut self) -> Result<Vec<(String, u32)>> {
        self.in_parentheses(|parser| parser.list(Self::placed_name))
    }

    /// `IF [NOT] EXISTS`.
    fn if_exists(&mut self, not: bool) -> bool {
        if not { self.words(&["if", "not", "exists"]) } else { self.words(&["if", "exists"]) }
    }
}

/// The name, which is seldom too long.
fn fitted(name: String) -> String {
    if fitting(&name).len() == name.len() { name } else { fitting(&name).to_owned() }
}

fn too_deep() -> Error {
    Error::new("54001", "stack depth limit exceeded")
        .hint(format!("Nest expressions and queries less than {MAX_DEPTH} levels deep."))
}

#[cfg(test)]
mod tests;
