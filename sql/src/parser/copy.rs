//! COPY, in its form with options in parentheses and the older one without.

use super::ast::{Copy, CopyOptions, Query, Statement};
use super::lexer::Kind;
use super::{Parser, parse};
use crate::error::{Error, Result};

impl Parser<'_> {
    pub(super) fn copy(&mut self) -> Result<Statement> {
        self.expect_word("copy")?;
        self.word("binary");
        let copy = if self.sign(b'(') {
            self.refuse_change("COPY of a changing statement", self.at())?;
            let query = self.query()?;
            self.expect_sign(b')')?;
            self.expect_word("to")?;
            self.standard_stream("stdout")?;
            Copy::Out(Box::new(query), self.copy_options()?)
        } else {
            let table = self.object()?;
            let columns = if self.kind() == &Kind::Sign(b'(') { self.column_names()? } else { Vec::new() };
            if self.word("from") {
                self.standard_stream("stdin")?;
                let options = self.copy_options()?;
                if self.is_word("where") {
                    return Err(Error::unsupported("COPY FROM with WHERE").at(self.at()));
                }
                Copy::In { table, columns, options }
            } else {
                self.expect_word("to")?;
                self.standard_stream("stdout")?;
                let options = self.copy_options()?;
                let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
                let wanted: Vec<String> = columns.iter().map(|(name, _)| quoted(name)).collect();
                let wanted = if wanted.is_empty() { "*".to_owned() } else { wanted.join(", ") };
                let schema = table.schema.as_ref().map_or(String::new(), |schema| quoted(schema) + ".");
                Copy::Out(
                    Box::new(select(&format!("select {wanted} from {schema}{}", quoted(&table.name)))?),
                    options,
                )
            }
        };
        Ok(Statement::Copy(copy))
    }

    fn standard_stream(&mut self, name: &str) -> Result<()> {
        if matches!(self.kind(), Kind::Str(_)) || self.is_word("program") {
            return Err(Error::unsupported("COPY with a file or program of the server")
                .at(self.at())
                .hint("Use STDIN or STDOUT; psql's \\copy reads and writes files of the client."));
        }
        // Either word is taken for both, as PostgreSQL's grammar does.
        if self.word(name) || self.word("stdin") || self.word("stdout") {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn copy_options(&mut self) -> Result<CopyOptions> {
        let mut found = Found::default();
        self.word("with");
        if self.sign(b'(') {
            self.list(|parser| parser.copy_option(&mut found, true))?;
            self.expect_sign(b')')?;
        } else {
            while !matches!(self.kind(), Kind::End | Kind::Sign(b';')) && !self.is_word("where") {
                self.copy_option(&mut found, false)?;
            }
        }
        found.options()
    }

    /// `listed`: in parentheses, where switches may have values.
    fn copy_option(&mut self, found: &mut Found, listed: bool) -> Result<()> {
        let at = self.at();
        let Kind::Word(word) = self.kind().clone() else { return Err(self.unexpected()) };
        self.advance();
        match &*word {
            "csv" => found.csv = true,
            "binary" => return Err(Error::unsupported("COPY in the binary format").at(at)),
            "format" => {
                let format = match self.kind() {
                    Kind::Word(word) => word.to_string(),
                    Kind::Str(text) => text.to_string(),
                    _ => return Err(self.unexpected()),
                };
                match format.as_str() {
                    "text" => {}
                    "csv" => found.csv = true,
                    "binary" => return Err(Error::unsupported("COPY in the binary format").at(at)),
                    other => {
                        return Err(
                            Error::new("22023", format!("COPY format \"{other}\" not recognized")).at(at)
                        );
                    }
                }
                self.advance();
            }
            "header" => found.header = !listed || self.copy_switch("header", " or \"match\"")?,
            "freeze" => drop(!listed || self.copy_switch("freeze", "")?),
            "delimiter" | "delimiters" => found.delimiter = Some(self.one_byte("delimiter")?),
            "null" => found.null = Some(self.copy_text()?),
            "quote" => found.quote = Some(self.one_byte("quote")?),
            "escape" => found.escape = Some(self.one_byte("escape")?),
            "encoding" => {
                let encoding = self.copy_text()?;
                if !["utf8", "utf-8", "unicode"].contains(&encoding.to_lowercase().as_str()) {
                    return Err(Error::unsupported(format!("COPY in the encoding \"{encoding}\"")).at(at));
                }
            }
            option @ ("force_quote" | "force_not_null" | "force_null" | "force" | "oids") => {
                return Err(Error::unsupported(format!("COPY option \"{option}\"")).at(at));
            }
            other => return Err(Error::new("42601", format!("option \"{other}\" not recognized")).at(at)),
        }
        Ok(())
    }

    fn copy_switch(&mut self, option: &str, or: &str) -> Result<bool> {
        let value = match self.kind() {
            Kind::Word(word) => word.to_string(),
            Kind::Str(text) => text.to_lowercase(),
            Kind::Int(number) => number.to_string(),
            _ => return Ok(true),
        };
        let value = match value.as_str() {
            "true" | "on" | "1" => true,
            "false" | "off" | "0" => false,
            "match" => return Err(Error::unsupported("COPY with HEADER MATCH").at(self.at())),
            _ => return Err(Error::new("42601", format!("{option} requires a Boolean value{or}"))),
        };
        self.advance();
        Ok(value)
    }

    fn copy_text(&mut self) -> Result<String> {
        self.word("as");
        let Kind::Str(text) = self.kind() else { return Err(self.unexpected()) };
        let text = text.to_string();
        self.advance();
        Ok(text)
    }

    fn one_byte(&mut self, what: &str) -> Result<u8> {
        let at = self.at();
        match self.copy_text()?.as_bytes() {
            [byte] if !matches!(byte, b'\n' | b'\r') => Ok(*byte),
            _ => Err(Error::new("0A000", format!("COPY {what} must be a single one-byte character")).at(at)),
        }
    }
}

#[derive(Default)]
struct Found {
    csv: bool,
    header: bool,
    delimiter: Option<u8>,
    null: Option<String>,
    quote: Option<u8>,
    escape: Option<u8>,
}

impl Found {
    fn options(self) -> Result<CopyOptions> {
        let quote = self.quote.unwrap_or(b'"');
        let delimiter = self.delimiter.unwrap_or(if self.csv { b',' } else { b'\t' });
        if !self.csv && (self.quote.is_some() || self.escape.is_some()) {
            return Err(Error::new("0A000", "COPY quote and escape available only in CSV mode"));
        }
        if !self.csv
            && (delimiter.is_ascii_lowercase() || delimiter.is_ascii_digit() || b"\\.".contains(&delimiter))
        {
            let shown = char::from(delimiter);
            return Err(Error::new("22023", format!("COPY delimiter cannot be \"{shown}\"")));
        }
        if self.csv && delimiter == quote {
            return Err(Error::new("22023", "COPY delimiter and quote must be different"));
        }
        let null = self.null.unwrap_or_else(|| if self.csv { "" } else { "\\N" }.to_owned());
        if null.contains(['\n', '\r']) || null.as_bytes().contains(&delimiter) {
            return Err(Error::new(
                "22023",
                "COPY null representation cannot use newline, carriage return or the delimiter",
            ));
        }
        let escape = self.escape.unwrap_or(quote);
        Ok(CopyOptions { csv: self.csv, header: self.header, delimiter, null, quote, escape })
    }
}

/// The query of a text of ours.
fn select(text: &str) -> Result<Query> {
    match parse(text)?.pop().map(|parsed| parsed.statement) {
        Some(Statement::Query(mut query)) => {
            query.at = crate::error::NOWHERE;
            Ok(query)
        }
        _ => unreachable!("the text is a query"),
    }
}
