//! LIKE, ILIKE, SIMILAR TO and regular expressions.
//!
//! Regular expressions are those of the crate `regex`, which runs in linear time; what PostgreSQL's have beyond it (back
//! references, lookaround) is refused (0A000). The last patterns of a thread are kept compiled.

use std::cell::RefCell;

use regex::Regex;

use super::casts::str;
use crate::error::{Error, Result};
use crate::expr::{Env, Made};
use crate::types::Datum;

/// Compiled patterns that a thread keeps.
const KEPT: usize = 16;

thread_local! {
    static PATTERNS: RefCell<Vec<(String, Regex)>> = const { RefCell::new(Vec::new()) };
}

/// Runs `with` on the compiled pattern.
pub(super) fn compiled<T>(pattern: &str, flags: &str, with: impl FnOnce(&Regex) -> T) -> Result<T> {
    let key = format!("(?s{flags}){pattern}");
    PATTERNS.with_borrow_mut(|kept| {
        if let Some(at) = kept.iter().position(|(known, _)| *known == key) {
            let entry = kept.remove(at);
            kept.push(entry);
        } else {
            let regex = Regex::new(&translate(&key)).map_err(|error| {
                let reason = error.to_string();
                let last = reason.lines().last().unwrap_or("").trim_start_matches("error: ").to_owned();
                // PostgreSQL has these.
                if ["look-around", "backreferences"].iter().any(|what| last.starts_with(what)) {
                    return Error::unsupported(format!(
                        "a regular expression with {}",
                        &last[..last.find(',').unwrap_or(last.len())]
                    ));
                }
                Error::new("2201B", format!("invalid regular expression: {last}"))
            })?;
            if kept.len() >= KEPT {
                kept.remove(0);
            }
            kept.push((key, regex));
        }
        Ok(with(&kept.last().expect("one was just put there").1))
    })
}

/// PostgreSQL's escapes that the crate spells otherwise.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut signs = pattern.chars();
    while let Some(sign) = signs.next() {
        if sign != '\\' {
            out.push(sign);
            continue;
        }
        match signs.next() {
            Some('m') => out.push_str(r"\b{start}"),
            Some('M') => out.push_str(r"\b{end}"),
            Some('y') => out.push_str(r"\b"),
            Some('Y') => out.push_str(r"\B"),
            Some('Z') => out.push_str(r"\z"),
            Some(other) => {
                out.push('\\');
                out.push(other);
            }
            None => out.push('\\'),
        }
    }
    out
}

pub(super) fn matches(text: &Datum, pattern: &Datum, fold: bool, negated: bool) -> Made {
    let found = compiled(str(pattern), if fold { "i" } else { "" }, |regex| regex.is_match(str(text)))?;
    Ok(Datum::Bool(found != negated))
}

pub(super) fn like(text: &Datum, pattern: &Datum, fold: bool, negated: bool) -> Made {
    let found = if fold {
        let (text, pattern) = (str(text).to_lowercase(), str(pattern).to_lowercase());
        like_bytes(text.as_bytes(), pattern.as_bytes())?
    } else {
        like_bytes(str(text).as_bytes(), str(pattern).as_bytes())?
    };
    Ok(Datum::Bool(found != negated))
}

/// Does the text match the pattern of `%`, `_` and `\`? Goes back to the last `%` only, which is enough.
fn like_bytes(text: &[u8], pattern: &[u8]) -> Result<bool> {
    let (mut t, mut p) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    loop {
        let matched = match pattern.get(p) {
            Some(b'%') => {
                back = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some(b'_') if t < text.len() => {
                t += character(text, t);
                p += 1;
                true
            }
            Some(b'\\') => match pattern.get(p + 1) {
                None => {
                    if t >= text.len() && back.is_none() {
                        return Ok(false);
                    }
                    return Err(Error::new("22025", "LIKE pattern must not end with escape character"));
                }
                Some(byte) if text.get(t) == Some(byte) => {
                    t += 1;
                    p += 2;
                    true
                }
                Some(_) => false,
            },
            Some(byte) if *byte != b'_' && text.get(t) == Some(byte) => {
                t += 1;
                p += 1;
                true
            }
            None if t == text.len() => return Ok(true),
            _ => false,
        };
        if !matched {
            match back {
                Some((after, from)) if from < text.len() => {
                    let next = from + character(text, from);
                    back = Some((after, next));
                    (p, t) = (after, next);
                }
                _ => return Ok(false),
            }
        }
    }
}

/// Bytes of the character at this place.
fn character(text: &[u8], at: usize) -> usize {
    1 + text[at + 1..].iter().take_while(|byte| **byte & 0xc0 == 0x80).count()
}

/// A pattern with another escape sign, brought to `\`.
pub(super) fn like_escape(pattern: &Datum, escape: &Datum) -> Made {
    let (pattern, escape) = (str(pattern), str(escape));
    let mut signs = escape.chars();
    let (sign, more) = (signs.next(), signs.next());
    if more.is_some() {
        return Err(Error::new("22025", "invalid escape string")
            .hint("Escape string must be empty or one character."));
    }
    let mut out = String::with_capacity(pattern.len());
    let mut signs = pattern.chars();
    while let Some(c) = signs.next() {
        if Some(c) == sign {
            out.push('\\');
            out.extend(signs.next());
        } else if c == '\\' {
            out.push_str("\\\\");
        } else {
            out.push(c);
        }
    }
    Ok(Datum::text(out))
}

/// A pattern of SIMILAR TO as a regular expression (`similar_to_escape`).
pub(super) fn similar_escape(pattern: &str, escape: Option<char>) -> String {
    let mut out = String::from("^(?:");
    let (mut in_class, mut escaped, mut marks) = (false, false, 0);
    for c in pattern.chars() {
        if escaped {
            match (c, marks) {
                // What stands before the first mark takes as little as it can, and what is between them as much.
                ('"', 0) => {
                    out.insert_str(out.len(), ")(");
                    out.replace_range(..4, "^(?U:");
                    marks = 1;
                }
                ('"', 1) => {
                    out.push_str(")(?:");
                    marks = 2;
                }
                _ if c.is_alphanumeric() => out.push(c),
                _ => out.extend(['\\', c]),
            }
            escaped = false;
        } else if Some(c) == escape {
            escaped = true;
        } else if in_class {
            if c == '\\' {
                out.push('\\');
            }
            out.push(c);
            in_class = c != ']';
        } else {
            match c {
                '[' => {
                    in_class = true;
                    out.push(c);
                }
                '%' => out.push_str(".*"),
                '_' => out.push('.'),
                '(' => out.push_str("(?:"),
                '\\' | '.' | '^' | '$' => {
                    out.push('\\');
                    out.push(c);
                }
                _ => out.push(c),
            }
        }
    }
    out.push_str(")$");
    out
}

/// The sign that an ESCAPE clause names; none if it is empty.
fn escape_sign(escape: &str) -> Result<Option<char>> {
    let mut signs = escape.chars();
    match (signs.next(), signs.next()) {
        (sign, None) => Ok(sign),
        _ => Err(Error::new("22025", "invalid escape string")
            .hint("Escape string must be empty or one character.")),
    }
}

pub(super) fn similar(args: &[Datum]) -> Made {
    let escape = escape_sign(args.get(1).map_or("\\", str))?;
    Ok(Datum::text(similar_escape(str(&args[0]), escape)))
}

/// `substring(text SIMILAR pattern ESCAPE escape)`: what matches between the two marks, or the whole if there are none.
pub(super) fn substring_similar(args: &[Datum]) -> Made {
    let escape = escape_sign(str(&args[2]))?;
    substring_matching(&args[0], &Datum::text(similar_escape(str(&args[1]), escape)))
}

/// The first match, or the first group of it.
pub(super) fn substring_matching(text: &Datum, pattern: &Datum) -> Made {
    let text = str(text);
    let found = compiled(str(pattern), "", |regex| {
        let groups = regex.captures(text)?;
        let group = if groups.len() > 1 { groups.get(1) } else { groups.get(0) };
        group.map(|group| Datum::text(group.as_str()))
    })?;
    Ok(found.unwrap_or(Datum::Null))
}

/// `regexp_replace(text, pattern, replacement [, flags])`
pub(super) fn regexp_replace(args: &[Datum], env: &Env<'_>) -> Made {
    let flags = args.get(3).map_or("", str);
    if let Some(other) = flags.chars().find(|flag| !"gi".contains(*flag)) {
        return Err(Error::new("22023", format!("invalid regular expression option: \"{other}\"")));
    }
    // `\1` and `\&` are the crate's `${1}` and `${0}`.
    let mut replacement = String::new();
    let mut signs = str(&args[2]).chars();
    while let Some(c) = signs.next() {
        match c {
            '$' => replacement.push_str("$$"),
            '\\' => match signs.next() {
                Some('&') => replacement.push_str("${0}"),
                Some(digit) if digit.is_ascii_digit() => replacement.push_str(&format!("${{{digit}}}")),
                Some(other) => replacement.push(other),
                None => replacement.push('\\'),
            },
            other => replacement.push(other),
        }
    }
    let text = str(&args[0]);
    let limit = usize::from(!flags.contains('g'));
    let fold = if flags.contains('i') { "i" } else { "" };
    // The text between matches, and for each match no more than its replacement with all of the text in it.
    let memory = &env.context.memory;
    let replaced = compiled(str(&args[1]), fold, |regex| {
        let (mut out, mut from) = (String::new(), 0);
        for (number, found) in regex.captures_iter(text).enumerate() {
            if limit > 0 && number == limit {
                break;
            }
            let whole = found.get(0).expect("a match has a whole");
            out.push_str(&text[from..whole.start()]);
            found.expand(&replacement, &mut out);
            from = whole.end();
            if number % 64 == 63 {
                memory.has_room_for(3 * out.len() as u64)?;
            }
        }
        out.push_str(&text[from..]);
        Result::Ok(out)
    })??;
    Ok(Datum::text(replaced))
}

/// The flags of a regular expression that are known: whether all matches are wanted, and how letters are compared.
fn flags(args: &[Datum], global: bool) -> Result<(bool, &'static str)> {
    let given = args.get(2).map_or("", str);
    match given.chars().find(|flag| !"gics".contains(*flag)) {
        Some(other) => Err(Error::new("22023", format!("invalid regular expression option: \"{other}\""))),
        None if given.contains('g') && !global => Err(Error::new(
            "22023",
            "this regular expression function does not support the \"global\" option",
        )),
        None => Ok((given.contains('g'), if given.contains('i') { "i" } else { "" })),
    }
}

/// The groups of a match, or the match where there are none.
fn groups(found: &regex::Captures<'_>) -> Datum {
    let from = usize::from(found.len() > 1);
    let group = |place: usize| found.get(place).map_or(Datum::Null, |it| Datum::text(it.as_str()));
    Datum::Array((from..found.len()).map(group).collect())
}

pub(super) fn regexp_match(args: &[Datum], _: &Env<'_>) -> Made {
    let (_, fold) = flags(args, false)?;
    let text = str(&args[0]);
    let found = compiled(str(&args[1]), fold, |regex| regex.captures(text).map(|found| groups(&found)))?;
    Ok(found.unwrap_or(Datum::Null))
}

/// The matches, each an array of its groups: all with `g`, else the first.
pub(crate) fn regexp_matches(args: &[Datum], _: &Env<'_>) -> Made {
    let (all, fold) = flags(args, true)?;
    let text = str(&args[0]);
    let limit = if all { usize::MAX } else { 1 };
    let found = compiled(str(&args[1]), fold, |regex| {
        regex.captures_iter(text).take(limit).map(|found| groups(&found)).collect()
    })?;
    Ok(Datum::Array(found))
}

/// What stands between matches. An empty match at an end, or right behind another one, parts nothing.
pub(crate) fn regexp_split(args: &[Datum], _: &Env<'_>) -> Made {
    let (_, fold) = flags(args, false)?;
    let text = str(&args[0]);
    let parts = compiled(str(&args[1]), fold, |regex| {
        let (mut parts, mut from) = (Vec::new(), 0);
        for found in regex.find_iter(text) {
            if found.is_empty() && (found.start() == from || found.start() == text.len()) {
                continue;
            }
            parts.push(Datum::text(&text[from..found.start()]));
            from = found.end();
        }
        parts.push(Datum::text(&text[from..]));
        parts
    })?;
    Ok(Datum::Array(parts.into()))
}

pub(super) fn regexp_like(args: &[Datum], _: &Env<'_>) -> Made {
    let (_, fold) = flags(args, false)?;
    compiled(str(&args[1]), fold, |regex| Datum::Bool(regex.is_match(str(&args[0]))))
}

pub(super) fn regexp_count(args: &[Datum], _: &Env<'_>) -> Made {
    compiled(str(&args[1]), "", |regex| Datum::Int(regex.find_iter(str(&args[0])).count() as i64))
}

pub(super) fn regexp_substr(args: &[Datum], _: &Env<'_>) -> Made {
    let found = compiled(str(&args[1]), "", |regex| {
        regex.find(str(&args[0])).map(|found| Datum::text(found.as_str()))
    })?;
    Ok(found.unwrap_or(Datum::Null))
}
