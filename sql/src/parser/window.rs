//! Windows: `OVER (PARTITION BY … ORDER BY … ROWS …)`, `OVER name`, and the WINDOW clause.

use super::Parser;
use super::ast::{Over, WindowBound, WindowRange};
use super::lexer::Kind;
use crate::error::{Error, Result};

impl Parser<'_> {
    /// What stands behind OVER.
    pub(super) fn over(&mut self) -> Result<Over> {
        if self.kind() == &Kind::Sign(b'(') {
            return self.window();
        }
        Ok(Over { base: Some(self.name()?), ..Over::default() })
    }

    /// The WINDOW clause: windows by name.
    pub(super) fn named_windows(&mut self) -> Result<Vec<(String, Over)>> {
        self.list(|parser| {
            let name = parser.name()?;
            parser.expect_word("as")?;
            Ok((name, parser.window()?))
        })
    }

    fn window(&mut self) -> Result<Over> {
        self.in_parentheses(|parser| {
            let mut over = Over { written_out: true, ..Over::default() };
            if !parser.is_one_of(&["partition", "order", "rows", "range", "groups"])
                && parser.kind() != &Kind::Sign(b')')
            {
                over.base = Some(parser.name()?);
            }
            if parser.words(&["partition", "by"]) {
                over.partition = parser.exprs()?;
            }
            if parser.words(&["order", "by"]) {
                over.order = parser.order_items()?;
            }
            let at = parser.at();
            if parser.word("groups") {
                return Err(Error::unsupported("GROUPS in a window").at(at));
            }
            let rows = parser.word("rows");
            if rows || parser.word("range") {
                over.range = Some(parser.range(rows)?);
            }
            Ok(over)
        })
    }

    fn range(&mut self, rows: bool) -> Result<WindowRange> {
        let at = self.at();
        let (start, end) = if self.word("between") {
            let start = self.bound()?;
            self.expect_word("and")?;
            (start, self.bound()?)
        } else {
            (self.bound()?, WindowBound::Current)
        };
        let offset = |bound: &WindowBound| matches!(bound, WindowBound::Before(_) | WindowBound::Behind(_));
        if !rows && (offset(&start) || offset(&end)) {
            return Err(Error::unsupported("RANGE with a distance").at(at));
        }
        let refused = |message: &str| Err(Error::new("42P20", message).at(at));
        match (&start, &end) {
            (WindowBound::Last, _) => return refused("frame start cannot be UNBOUNDED FOLLOWING"),
            (_, WindowBound::First) => return refused("frame end cannot be UNBOUNDED PRECEDING"),
            (WindowBound::Current, WindowBound::Before(_)) => {
                return refused("frame starting from current row cannot have preceding rows");
            }
            (WindowBound::Behind(_), WindowBound::Before(_) | WindowBound::Current) => {
                return refused("frame starting from following row cannot end with current row");
            }
            _ => {}
        }
        if self.word("exclude") && !self.words(&["no", "others"]) {
            return Err(Error::unsupported("EXCLUDE in a window").at(at));
        }
        Ok(WindowRange { rows, start, end })
    }

    fn bound(&mut self) -> Result<WindowBound> {
        if self.words(&["unbounded", "preceding"]) {
            return Ok(WindowBound::First);
        }
        if self.words(&["unbounded", "following"]) {
            return Ok(WindowBound::Last);
        }
        if self.words(&["current", "row"]) {
            return Ok(WindowBound::Current);
        }
        let distance = self.expr()?;
        if self.word("preceding") {
            return Ok(WindowBound::Before(distance));
        }
        self.expect_word("following")?;
        Ok(WindowBound::Behind(distance))
    }
}
