//! EXPLAIN and its options.

use super::Parser;
use super::ast::{ExplainOptions, Statement};
use super::lexer::Kind;
use crate::error::{Error, Result};

impl Parser<'_> {
    /// EXPLAIN of a statement on rows.
    pub(super) fn explain(&mut self) -> Result<Statement> {
        self.advance();
        let mut options = ExplainOptions::default();
        if self.kind() == &Kind::Sign(b'(') && !self.opens_query() {
            self.explain_options(&mut options)?;
        } else {
            options.analyze = self.word("analyze") || self.word("analyse");
            self.word("verbose");
        }
        Ok(Statement::Explain(Box::new(self.statement()?), options))
    }

    /// A parenthesis of a query, not of options.
    fn opens_query(&self) -> bool {
        match self.ahead(1) {
            Kind::Sign(sign) => *sign == b'(',
            _ => ["select", "values", "with", "table"].iter().any(|word| self.is_word_ahead(1, word)),
        }
    }

    fn explain_options(&mut self, options: &mut ExplainOptions) -> Result<()> {
        let (mut timing, mut summary, mut wal) = (None, None, false);
        self.in_parentheses(|parser| {
            parser.list(|parser| {
                let at = parser.at();
                let name = parser.label()?;
                match name.as_str() {
                    "analyze" | "analyse" => options.analyze = parser.is_on(&name)?,
                    "timing" => timing = Some(parser.is_on(&name)?),
                    "summary" => summary = Some(parser.is_on(&name)?),
                    "wal" => wal = parser.is_on(&name)?,
                    // There are no costs, and buffers and settings are not told.
                    "costs" | "verbose" | "buffers" | "settings" => drop(parser.is_on(&name)?),
                    "format" => options.json = parser.is_json(at)?,
                    _ => {
                        let message = format!("unrecognized EXPLAIN option \"{name}\"");
                        return Err(Error::new("42601", message).at(at));
                    }
                }
                Ok(())
            })
        })?;
        for (asked, name) in [(wal, "WAL"), (timing == Some(true), "TIMING")] {
            if asked && !options.analyze {
                return Err(Error::new("22023", format!("EXPLAIN option {name} requires ANALYZE")));
            }
        }
        options.timing = timing.unwrap_or(true);
        options.summary = summary;
        Ok(())
    }

    /// The value of a switch; none is on.
    fn is_on(&mut self, name: &str) -> Result<bool> {
        let on = match self.kind() {
            Kind::Sign(b',' | b')') => return Ok(true),
            Kind::End => return Err(self.unexpected()),
            Kind::Int(0) => Some(false),
            Kind::Int(1) => Some(true),
            Kind::Word(word) => switch(word),
            Kind::Str(text) => switch(text),
            _ => None,
        };
        let on = on.ok_or_else(|| Error::new("42601", format!("{name} requires a Boolean value")))?;
        self.advance();
        Ok(on)
    }

    fn is_json(&mut self, at: u32) -> Result<bool> {
        let format = match self.kind() {
            Kind::Word(word) => word.to_string(),
            Kind::Str(text) => text.to_string(),
            _ => return Err(self.unexpected()),
        };
        self.advance();
        match format.as_str() {
            "text" => Ok(false),
            "json" => Ok(true),
            "xml" | "yaml" => Err(Error::unsupported(format!("EXPLAIN in the format {format}")).at(at)),
            _ => {
                let message = format!("unrecognized value for EXPLAIN option \"format\": \"{format}\"");
                Err(Error::new("22023", message).at(at))
            }
        }
    }
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "true" => Some(true),
        "off" | "false" => Some(false),
        _ => None,
    }
}
