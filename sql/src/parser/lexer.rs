//! Text to tokens, by the rules of PostgreSQL's scanner (`scan.l`): nested comments, quoted names, the five kinds of
//! strings, parameters, operators of several signs that end where a comment begins, and a `+` or `-` at the end of an
//! operator only where PostgreSQL allows it.

use std::borrow::Cow;
use std::ops::Deref;

use crate::error::{Error, Result};
use crate::keywords::{self, Category, Keyword};

/// A token and where it stands, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Token<'t> {
    pub(crate) kind: Kind<'t>,
    pub(crate) at: u32,
    pub(crate) end: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind<'t> {
    /// A name or keyword.
    Word(Word<'t>),
    /// A name in double quotes.
    Quoted(Cow<'t, str>),
    Int(i64),
    /// A number with a point or exponent, or one that `i64` does not hold.
    Number(Cow<'t, str>),
    Str(Cow<'t, str>),
    /// `B'…'` or `X'…'`.
    Bits,
    Param(u32),
    Op(&'t str),
    /// One of `( ) [ ] , ; . :`
    Sign(u8),
    /// `::`
    Cast,
    End,
}

/// A token without quotes, in lower case, and the keyword that it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Word<'t> {
    text: Cow<'t, str>,
    keyword: Option<&'static Keyword>,
}

impl<'t> Word<'t> {
    fn new(written: &'t str) -> Self {
        let bytes = written.as_bytes();
        let mut lower = [0; keywords::LONGEST];
        let is_lower = !bytes.iter().any(u8::is_ascii_uppercase);
        let keyword = if is_lower {
            keywords::keyword(written)
        } else if let Some(lower) = lower.get_mut(..bytes.len()) {
            lower.copy_from_slice(bytes);
            lower.make_ascii_lowercase();
            std::str::from_utf8(lower).ok().and_then(keywords::keyword)
        } else {
            None
        };
        let text = match keyword {
            Some(keyword) => Cow::Borrowed(keyword.word),
            None if is_lower => Cow::Borrowed(written),
            None => Cow::Owned(written.to_ascii_lowercase()),
        };
        Self { text, keyword }
    }

    /// Is it this keyword?
    #[inline]
    pub(crate) fn is(&self, word: &str) -> bool {
        debug_assert!(keywords::keyword(word).is_some(), "{word} is a keyword of PostgreSQL");
        self.keyword.is_some_and(|keyword| keyword.word == word)
    }

    /// Is it one of these keywords?
    #[inline]
    pub(crate) fn is_one_of(&self, words: &[&str]) -> bool {
        self.keyword.is_some() && words.iter().any(|word| self.is(word))
    }

    /// The keyword that it is, or nothing that any is.
    #[inline]
    pub(crate) fn keyword(&self) -> &'static str {
        self.keyword.map_or("", |keyword| keyword.word)
    }

    /// May it name what keywords of this category may not?
    #[inline]
    pub(crate) fn is_no(&self, category: Category) -> bool {
        self.keyword.is_none_or(|keyword| keyword.category != category)
    }

    /// May it name a column of a result without AS in front?
    #[inline]
    pub(crate) fn is_label(&self) -> bool {
        self.keyword.is_none_or(|keyword| keyword.is_label)
    }

    pub(crate) fn into_owned(self) -> String {
        self.text.into_owned()
    }
}

impl Deref for Word<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

/// Tokens for which room is asked at once.
const TOKENS: usize = 4096;

/// The tokens of `text`, with one of kind `End` behind them. `room` is asked for so many more, a number at a time.
pub(crate) fn tokens<'t>(text: &'t str, room: &mut dyn FnMut(usize) -> Result<()>) -> Result<Vec<Token<'t>>> {
    let mut lexer = Lexer { text, bytes: text.as_bytes(), at: 0 };
    let mut all = Vec::with_capacity((text.len() / 4 + 2).min(TOKENS));
    loop {
        if all.len() % TOKENS == TOKENS - 1 {
            room(TOKENS)?;
        }
        let token = lexer.next()?;
        let last = token.kind == Kind::End;
        all.push(token);
        if last {
            return Ok(all);
        }
    }
}

/// The statements of `text` one by one, each with the byte that it begins at. The last one is what is left: nothing but space at
/// times, or a text that cannot be read.
pub(crate) fn statements(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut lexer = Lexer { text, bytes: text.as_bytes(), at: 0 };
    let mut begin = Some(0);
    std::iter::from_fn(move || {
        let from = begin?;
        let ends = loop {
            match lexer.next() {
                Ok(Token { kind: Kind::Sign(b';'), .. }) => break Some(lexer.at),
                Ok(Token { kind: Kind::End, .. }) | Err(_) => break None,
                Ok(_) => {}
            }
        };
        begin = ends;
        Some((from, &text[from..ends.unwrap_or(text.len())]))
    })
}

/// The first token of a text: where it begins and ends. None if there is none.
pub(crate) fn first(text: &str) -> Option<(usize, usize)> {
    let token = Lexer { text, bytes: text.as_bytes(), at: 0 }.next().ok()?;
    (token.kind != Kind::End).then_some((token.at as usize, token.end as usize))
}

/// The name that a text begins with, folded as names are, and where it begins and ends. None if it begins with something else.
pub(crate) fn first_name(text: &str) -> Option<(String, usize, usize)> {
    let token = Lexer { text, bytes: text.as_bytes(), at: 0 }.next().ok()?;
    match token.kind {
        Kind::Word(name) => Some((name.into_owned(), token.at as usize, token.end as usize)),
        Kind::Quoted(name) => Some((name.into_owned(), token.at as usize, token.end as usize)),
        _ => None,
    }
}

struct Lexer<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
}

/// A text in which `escape` stands before the code of a sign: four digits, or six behind a plus. Two surrogates are one sign.
fn unescaped(body: &str, escape: char) -> std::result::Result<String, &'static str> {
    let (mut out, mut rest, mut high) = (String::new(), body, None);
    loop {
        let Some(at) = rest.find(escape) else {
            out.push_str(rest);
            return if high.is_none() { Ok(out) } else { Err("invalid Unicode surrogate pair") };
        };
        out.push_str(&rest[..at]);
        if at > 0 && high.is_some() {
            return Err("invalid Unicode surrogate pair");
        }
        rest = &rest[at + escape.len_utf8()..];
        if let Some(after) = rest.strip_prefix(escape).filter(|_| high.is_none()) {
            out.push(escape);
            rest = after;
            continue;
        }
        let (skip, count) = if rest.starts_with('+') { (1, 6) } else { (0, 4) };
        let digits = rest
            .get(skip..skip + count)
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let digits = digits.ok_or("invalid Unicode escape")?;
        rest = &rest[skip + count..];
        let code = u32::from_str_radix(digits, 16).expect("they are digits");
        let code = match (high.take(), code) {
            (None, 0xd800..=0xdbff) => {
                high = Some(code);
                continue;
            }
            (Some(high), 0xdc00..=0xdfff) => 0x1_0000 + ((high - 0xd800) << 10) + (code - 0xdc00),
            (Some(_), _) | (None, 0xdc00..=0xdfff) => return Err("invalid Unicode surrogate pair"),
            (None, code) => code,
        };
        out.push(char::from_u32(code).filter(|sign| *sign != '\0').ok_or("invalid Unicode escape value")?);
    }
}

const OPERATOR: &[u8] = b"+-*/<>=~!@#%^&|`?";

fn starts_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn in_word(byte: u8) -> bool {
    starts_word(byte) || byte.is_ascii_digit() || byte == b'$'
}

impl<'t> Lexer<'t> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn next(&mut self) -> Result<Token<'t>> {
        self.skip()?;
        let start = self.at;
        let kind = self.kind(start)?;
        Ok(Token { kind, at: start as u32, end: self.at as u32 })
    }

    fn kind(&mut self, start: usize) -> Result<Kind<'t>> {
        if start >= self.bytes.len() {
            return Ok(Kind::End);
        }
        let byte = self.bytes[start];
        let quote = self.peek(1) == b'\'';
        Ok(match byte {
            b'\'' => self.plain_string(0)?,
            b'e' | b'E' if quote => self.escape_string()?,
            b'n' | b'N' if quote => self.plain_string(1)?,
            b'b' | b'B' | b'x' | b'X' if quote => {
                self.plain_string(1)?;
                Kind::Bits
            }
            b'u' | b'U' if self.peek(1) == b'&' && matches!(self.peek(2), b'\'' | b'"') => {
                self.unicode(self.peek(2))?
            }
            b'"' => self.quoted_name()?,
            b'$' if self.peek(1).is_ascii_digit() => self.parameter()?,
            b'$' => self.dollar_string()?,
            b'0'..=b'9' => self.number()?,
            b'.' if self.peek(1).is_ascii_digit() => self.number()?,
            b'(' | b')' | b'[' | b']' | b',' | b';' | b'.' => {
                self.at += 1;
                Kind::Sign(byte)
            }
            b':' if self.peek(1) == b':' => {
                self.at += 2;
                Kind::Cast
            }
            b':' => {
                self.at += 1;
                Kind::Sign(b':')
            }
            _ if starts_word(byte) => self.word(),
            _ if OPERATOR.contains(&byte) => self.operator(),
            _ => return Err(self.near(start)),
        })
    }

    fn near(&self, start: usize) -> Error {
        let rest: String = self.text[start..].chars().take(1).collect();
        Error::new("42601", format!("syntax error at or near \"{rest}\"")).at(start as u32)
    }

    fn unterminated(&self, what: &str, start: usize) -> Error {
        let near = &self.text[start..];
        Error::new("42601", format!("unterminated {what} at or near \"{near}\"")).at(start as u32)
    }

    fn skip(&mut self) -> Result<()> {
        loop {
            match self.peek(0) {
                b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'-' if self.peek(1) == b'-' => {
                    while self.at < self.bytes.len() && self.bytes[self.at] != b'\n' {
                        self.at += 1;
                    }
                }
                b'/' if self.peek(1) == b'*' => self.comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn comment(&mut self) -> Result<()> {
        let start = self.at;
        let mut depth = 0usize;
        loop {
            if self.at >= self.bytes.len() {
                return Err(self.unterminated("/* comment", start));
            }
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', b'/') => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    fn word(&mut self) -> Kind<'t> {
        let start = self.at;
        while self.at < self.bytes.len() && in_word(self.bytes[self.at]) {
            self.at += 1;
        }
        Kind::Word(Word::new(&self.text[start..self.at]))
    }

    /// The text up to the closing `quote`; two of them stand for one.
    fn until(&mut self, quote: u8, what: &str, start: usize) -> Result<Cow<'t, str>> {
        let from = self.at;
        let mut doubled = false;
        loop {
            match self.bytes.get(self.at) {
                None => return Err(self.unterminated(what, start)),
                Some(&byte) if byte == quote => {
                    if self.peek(1) != quote {
                        break;
                    }
                    doubled = true;
                    self.at += 2;
                }
                Some(_) => self.at += 1,
            }
        }
        let body = &self.text[from..self.at];
        self.at += 1;
        let quote = char::from(quote);
        Ok(if doubled {
            Cow::Owned(body.replace(&format!("{quote}{quote}"), &quote.to_string()))
        } else {
            Cow::Borrowed(body)
        })
    }

    fn plain_string(&mut self, prefix: usize) -> Result<Kind<'t>> {
        let start = self.at;
        self.at += prefix + 1;
        let mut all = self.until(b'\'', "quoted string", start)?;
        // Strings that only white space with a line break parts are one.
        while self.continues() {
            self.at += 1;
            let more = self.until(b'\'', "quoted string", start)?;
            all.to_mut().push_str(&more);
        }
        Ok(Kind::Str(all))
    }

    fn continues(&mut self) -> bool {
        let mut at = self.at;
        let mut line = false;
        while let Some(byte) = self.bytes.get(at).filter(|byte| byte.is_ascii_whitespace()) {
            line |= *byte == b'\n';
            at += 1;
        }
        let goes_on = line && self.bytes.get(at) == Some(&b'\'');
        if goes_on {
            self.at = at;
        }
        goes_on
    }

    fn escape_string(&mut self) -> Result<Kind<'t>> {
        let start = self.at;
        self.at += 2;
        let mut out = Vec::new();
        loop {
            match (self.bytes.get(self.at).copied(), self.peek(1)) {
                (None, _) => return Err(self.unterminated("quoted string", start)),
                (Some(b'\''), b'\'') => {
                    out.push(b'\'');
                    self.at += 2;
                }
                (Some(b'\''), _) => break,
                (Some(b'\\'), next) => self.escape(next, &mut out)?,
                (Some(byte), _) => {
                    out.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        match String::from_utf8(out) {
            Ok(text) if !text.contains('\0') => Ok(Kind::Str(Cow::Owned(text))),
            _ => Err(Error::new("22021", "invalid byte sequence for encoding \"UTF8\"").at(start as u32)),
        }
    }

    /// One escape of an `E'…'` string.
    fn escape(&mut self, next: u8, out: &mut Vec<u8>) -> Result<()> {
        let at = self.at;
        let digits = |from: usize, most: usize, radix: u32| -> (u32, usize) {
            let taken =
                self.bytes[from..].iter().take(most).take_while(|byte| char::from(**byte).is_digit(radix));
            let count = taken.count();
            (u32::from_str_radix(&self.text[from..from + count], radix).unwrap_or(0), count)
        };
        let bad = || Error::new("22025", "invalid Unicode escape").at(at as u32);
        let length = match next {
            b'b' => push(out, 8),
            b'f' => push(out, 12),
            b'n' => push(out, b'\n'),
            b'r' => push(out, b'\r'),
            b't' => push(out, b'\t'),
            b'0'..=b'7' => {
                let (code, count) = digits(at + 1, 3, 8);
                out.push(code as u8);
                1 + count
            }
            b'x' => {
                let (code, count) = digits(at + 2, 2, 16);
                out.push(if count == 0 { b'x' } else { code as u8 });
                2 + count
            }
            b'u' | b'U' => {
                let wanted = if next == b'u' { 4 } else { 8 };
                let (code, count) = digits(at + 2, wanted, 16);
                let sign = char::from_u32(code).filter(|_| count == wanted).ok_or_else(bad)?;
                out.extend(sign.encode_utf8(&mut [0; 4]).as_bytes());
                2 + count
            }
            0 => return Err(self.unterminated("quoted string", at)),
            other => push(out, other),
        };
        self.at += length;
        Ok(())
    }

    /// `U&'…'` or `U&"…"`, with the UESCAPE behind it.
    fn unicode(&mut self, quote: u8) -> Result<Kind<'t>> {
        let start = self.at;
        self.at += 2;
        let (body, is_name) = match quote {
            b'"' => (self.quoted_name()?, true),
            _ => (self.plain_string(0)?, false),
        };
        let escape = self.uescape()?;
        let (Kind::Quoted(body) | Kind::Str(body)) = body else { unreachable!("it was quoted") };
        let text =
            unescaped(&body, escape).map_err(|message| Error::new("42601", message).at(start as u32))?;
        Ok(if is_name { Kind::Quoted(Cow::Owned(text)) } else { Kind::Str(Cow::Owned(text)) })
    }

    /// The sign that `UESCAPE '…'` names, if that is next; else the backslash.
    fn uescape(&mut self) -> Result<char> {
        let before = self.at;
        self.skip()?;
        let word =
            self.bytes.get(self.at..self.at + 7).is_some_and(|word| word.eq_ignore_ascii_case(b"uescape"));
        if !word || in_word(self.peek(7)) {
            self.at = before;
            return Ok('\\');
        }
        self.at += 7;
        self.skip()?;
        let start = self.at;
        let bad = |message| Error::new("42601", message).at(start as u32);
        if self.peek(0) != b'\'' {
            return Err(bad("UESCAPE must be followed by a simple string literal"));
        }
        let Kind::Str(text) = self.plain_string(0)? else { unreachable!("it is a string") };
        let mut signs = text.chars();
        match (signs.next(), signs.next()) {
            (Some(sign), None)
                if !sign.is_ascii_hexdigit() && !"+'\"".contains(sign) && !sign.is_ascii_whitespace() =>
            {
                Ok(sign)
            }
            _ => Err(bad("invalid Unicode escape character")),
        }
    }

    fn quoted_name(&mut self) -> Result<Kind<'t>> {
        let start = self.at;
        self.at += 1;
        let name = self.until(b'"', "quoted identifier", start)?;
        if name.is_empty() {
            return Err(
                Error::new("42601", "zero-length delimited identifier at or near \"\"\"\"").at(start as u32)
            );
        }
        Ok(Kind::Quoted(name))
    }

    fn parameter(&mut self) -> Result<Kind<'t>> {
        let start = self.at;
        self.at += 1;
        while self.peek(0).is_ascii_digit() {
            self.at += 1;
        }
        let number = self.text[start + 1..self.at].parse().ok().filter(|number| (1..=65535).contains(number));
        let missing = || {
            Error::new("42P02", format!("there is no parameter {}", &self.text[start..self.at]))
                .at(start as u32)
        };
        number.map(Kind::Param).ok_or_else(missing)
    }

    fn dollar_string(&mut self) -> Result<Kind<'t>> {
        let start = self.at;
        let mut end = start + 1;
        while self.bytes.get(end).is_some_and(|byte| in_word(*byte) && *byte != b'$') {
            end += 1;
        }
        if self.bytes.get(end) != Some(&b'$') {
            return Err(self.near(start));
        }
        let tag = &self.text[start..=end];
        let body = end + 1;
        let Some(length) = self.text[body..].find(tag) else {
            return Err(self.unterminated("dollar-quoted string", start));
        };
        self.at = body + length + tag.len();
        Ok(Kind::Str(Cow::Borrowed(&self.text[body..body + length])))
    }

    fn number(&mut self) -> Result<Kind<'t>> {
        let start = self.at;
        let digits = |lexer: &mut Self| {
            while lexer.peek(0).is_ascii_digit() {
                lexer.at += 1;
            }
        };
        digits(self);
        let mut whole = true;
        if self.peek(0) == b'.' && self.peek(1) != b'.' {
            whole = false;
            self.at += 1;
            digits(self);
        }
        if matches!(self.peek(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
            if self.peek(1 + sign).is_ascii_digit() {
                whole = false;
                self.at += 1 + sign;
                digits(self);
            }
        }
        if starts_word(self.peek(0)) {
            let mut end = self.at;
            while self.bytes.get(end).is_some_and(|byte| in_word(*byte)) {
                end += 1;
            }
            let near = &self.text[start..end];
            return Err(Error::new(
                "42601",
                format!("trailing junk after numeric literal at or near \"{near}\""),
            )
            .at(start as u32));
        }
        let text = &self.text[start..self.at];
        Ok(match text.parse() {
            Ok(number) if whole => Kind::Int(number),
            _ => Kind::Number(Cow::Borrowed(text)),
        })
    }

    fn operator(&mut self) -> Kind<'t> {
        let start = self.at;
        let mut end = start;
        while self.bytes.get(end).is_some_and(|byte| OPERATOR.contains(byte)) {
            // A comment ends the operator.
            if end > start && matches!(&self.bytes[end..], [b'-', b'-', ..] | [b'/', b'*', ..]) {
                break;
            }
            end += 1;
        }
        // A sign at the end belongs to what follows, unless the operator has a sign that no SQL operator has.
        let unusual = self.bytes[start..end].iter().any(|byte| b"~!@#%^&|`?".contains(byte));
        while end - start > 1 && !unusual && matches!(self.bytes[end - 1], b'+' | b'-') {
            end -= 1;
        }
        self.at = end;
        match &self.text[start..end] {
            "!=" => Kind::Op("<>"),
            other => Kind::Op(other),
        }
    }
}

fn push(out: &mut Vec<u8>, byte: u8) -> usize {
    out.push(byte);
    2
}
