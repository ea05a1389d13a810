//! Functions of text and bytes. Characters are code points; upper and lower case are Unicode's simple mappings, as in
//! PostgreSQL with the locale `C.UTF-8`.

use super::casts::{int, str};
use crate::error::{Error, Result};
use crate::expr::{Env, Made};
use crate::types::Datum;

/// Most bytes of a text that a function makes.
const MAX_TEXT: usize = 1 << 30;

fn made(text: impl AsRef<str>) -> Made {
    Ok(Datum::text(text))
}

/// Is there room for a text of so many bytes, which is made once and copied once?
fn room_for(length: Option<usize>, env: &Env<'_>) -> Result<()> {
    match length {
        Some(length) if length <= MAX_TEXT => env.context.memory.has_room_for(2 * length as u64),
        _ => Err(too_large()),
    }
}

fn too_large() -> Error {
    Error::new("54000", "requested length too large")
}

pub(super) fn bytes(value: &Datum) -> &[u8] {
    match value {
        Datum::Bytes(bytes) => bytes,
        other => unreachable!("a bytea is expected: {other:?}"),
    }
}

pub(super) fn join(a: &Datum, b: &Datum) -> Made {
    let (a, b) = (str(a), str(b));
    let mut out = String::with_capacity(a.len() + b.len());
    out.push_str(a);
    out.push_str(b);
    made(out)
}

pub(super) fn join_bytes(a: &Datum, b: &Datum) -> Made {
    Ok(Datum::Bytes([bytes(a), bytes(b)].concat().into()))
}

pub(super) fn starts_with(a: &Datum, b: &Datum) -> Made {
    Ok(Datum::Bool(str(a).starts_with(str(b))))
}

pub(super) fn length(a: &Datum) -> Made {
    Ok(Datum::Int(str(a).chars().count() as i64))
}

/// The one character that a mapping gives; what would become several stays.
fn simple(c: char, mut mapped: impl Iterator<Item = char>) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

fn to_lower(c: char) -> char {
    simple(c, c.to_lowercase())
}

fn to_upper(c: char) -> char {
    simple(c, c.to_uppercase())
}

pub(super) fn lower(a: &Datum) -> Made {
    made(str(a).chars().map(to_lower).collect::<String>())
}

pub(super) fn upper(a: &Datum) -> Made {
    made(str(a).chars().map(to_upper).collect::<String>())
}

pub(super) fn initcap(a: &Datum) -> Made {
    let mut inside = false;
    let capital = |c: char| {
        let out = if inside { to_lower(c) } else { to_upper(c) };
        inside = c.is_alphanumeric();
        out
    };
    made(str(a).chars().map(capital).collect::<String>())
}

/// The characters from the place `from` (1 is the first), `count` of them.
fn part(text: &str, from: i64, count: Option<i64>) -> Made {
    let end = match count {
        Some(count) if count < 0 => return Err(Error::new("22011", "negative substring length not allowed")),
        Some(count) => from.saturating_add(count),
        None => i64::MAX,
    };
    let start = from.max(1);
    if end <= start {
        return made("");
    }
    let skip = usize::try_from(start - 1).unwrap_or(usize::MAX);
    let take = usize::try_from(end - start).unwrap_or(usize::MAX);
    made(text.chars().skip(skip).take(take).collect::<String>())
}

pub(super) fn substring(a: &Datum, from: &Datum) -> Made {
    part(str(a), int(from), None)
}

pub(super) fn substring_for(args: &[Datum]) -> Made {
    part(str(&args[0]), int(&args[1]), Some(int(&args[2])))
}

pub(super) fn left(a: &Datum, n: &Datum) -> Made {
    let (text, n) = (str(a), int(n));
    let count = if n < 0 { text.chars().count() as i64 + n } else { n };
    made(text.chars().take(usize::try_from(count).unwrap_or(0)).collect::<String>())
}

pub(super) fn right(a: &Datum, n: &Datum) -> Made {
    let (text, n) = (str(a), int(n));
    let all = text.chars().count() as i64;
    let skip = if n < 0 { -n } else { (all - n).max(0) };
    made(text.chars().skip(usize::try_from(skip).unwrap_or(0)).collect::<String>())
}

/// Filled (or cut) to a length, on the left or on the right.
pub(super) fn pad(args: &[Datum], on_left: bool, env: &Env<'_>) -> Made {
    let (text, length) = (str(&args[0]), usize::try_from(int(&args[1])).unwrap_or(0));
    let fill = args.get(2).map_or(" ", str);
    if length > MAX_TEXT / 4 {
        return Err(too_large());
    }
    let count = text.chars().count();
    if count >= length || fill.is_empty() {
        return made(text.chars().take(length).collect::<String>());
    }
    let widest = fill.chars().map(char::len_utf8).max().unwrap_or(1);
    room_for((length - count).checked_mul(widest).map(|padding| padding + text.len()), env)?;
    let padding: String = fill.chars().cycle().take(length - count).collect();
    made(if on_left { padding + text } else { text.to_owned() + &padding })
}

pub(super) fn trim(args: &[Datum], left: bool, right: bool) -> Made {
    let signs = args.get(1).map_or(" ", str);
    let of = |c: char| signs.contains(c);
    let mut text = str(&args[0]);
    if left {
        text = text.trim_start_matches(of);
    }
    if right {
        text = text.trim_end_matches(of);
    }
    made(text)
}

pub(super) fn replace(args: &[Datum], env: &Env<'_>) -> Made {
    let (text, from, to) = (str(&args[0]), str(&args[1]), str(&args[2]));
    if from.is_empty() {
        return Ok(args[0].clone());
    }
    if to.len() > from.len() {
        let more = text.matches(from).count().checked_mul(to.len() - from.len());
        room_for(more.map(|more| more + text.len()), env)?;
    }
    made(text.replace(from, to))
}

pub(super) fn repeat(args: &[Datum], env: &Env<'_>) -> Made {
    let (text, count) = (str(&args[0]), usize::try_from(int(&args[1])).unwrap_or(0));
    room_for(text.len().checked_mul(count), env)?;
    made(text.repeat(count))
}

pub(super) fn reverse(a: &Datum) -> Made {
    made(str(a).chars().rev().collect::<String>())
}

pub(super) fn position(a: &Datum, part: &Datum) -> Made {
    let (text, part) = (str(a), str(part));
    Ok(Datum::Int(text.find(part).map_or(0, |at| text[..at].chars().count() as i64 + 1)))
}

pub(super) fn translate(args: &[Datum]) -> Made {
    let (from, to): (Vec<char>, Vec<char>) =
        (str(&args[1]).chars().collect(), str(&args[2]).chars().collect());
    let map = |c: char| match from.iter().position(|f| *f == c) {
        None => Some(c),
        Some(at) => to.get(at).copied(),
    };
    made(str(&args[0]).chars().filter_map(map).collect::<String>())
}

pub(super) fn split_part(args: &[Datum]) -> Made {
    let (text, separator, n) = (str(&args[0]), str(&args[1]), int(&args[2]));
    if n == 0 {
        return Err(Error::new("22023", "field position must not be zero"));
    }
    let parts: Vec<&str> =
        if separator.is_empty() || text.is_empty() { vec![text] } else { text.split(separator).collect() };
    let index = if n > 0 { n - 1 } else { parts.len() as i64 + n };
    made(usize::try_from(index).ok().and_then(|index| parts.get(index)).copied().unwrap_or(""))
}

pub(super) fn ascii(a: &Datum) -> Made {
    Ok(Datum::Int(str(a).chars().next().map_or(0, |c| i64::from(u32::from(c)))))
}

pub(super) fn chr(a: &Datum) -> Made {
    let code = int(a);
    if code < 0 {
        return Err(Error::new("54000", "character number must be positive"));
    }
    if code == 0 {
        return Err(Error::new("54000", "null character not permitted"));
    }
    match u32::try_from(code).ok().and_then(char::from_u32) {
        Some(c) => made(c.to_string()),
        None if code > 0x10_ffff => {
            Err(Error::new("54000", format!("requested character too large for encoding: {code}")))
        }
        None => Err(Error::new("54000", format!("requested character not valid for encoding: {code}"))),
    }
}

pub(super) fn to_hex(a: &Datum, narrow: bool) -> Made {
    made(if narrow { format!("{:x}", int(a) as i32) } else { format!("{:x}", int(a)) })
}

pub(super) fn overlay(args: &[Datum]) -> Made {
    let (text, new, from) = (str(&args[0]), str(&args[1]), int(&args[2]));
    let count = args.get(3).map_or(new.chars().count() as i64, int);
    if from <= 0 {
        return Err(Error::new("22011", "negative substring length not allowed"));
    }
    let head: String = text.chars().take((from - 1) as usize).collect();
    let skip = from.saturating_add(count).saturating_sub(1).max(0) as usize;
    let tail: String = text.chars().skip(skip).collect();
    made(head + new + &tail)
}

pub(super) fn length_of_char(a: &Datum) -> Made {
    Ok(Datum::Int(crate::types::without_blanks(str(a)).chars().count() as i64))
}

pub(super) fn quote_literal(a: &Datum) -> Made {
    made(crate::types::text::literal(str(a)))
}

pub(super) fn quote_ident(a: &Datum) -> Made {
    made(crate::names::quoted(str(a)))
}

/// All arguments one after the other, nulls left out. They are texts: the binder has cast them.
pub(super) fn concat(args: &[Datum]) -> Made {
    made(args.iter().filter(|arg| !arg.is_null()).map(str).collect::<String>())
}

pub(super) fn concat_ws(args: &[Datum]) -> Made {
    if args[0].is_null() {
        return Ok(Datum::Null);
    }
    let parts: Vec<&str> = args[1..].iter().filter(|arg| !arg.is_null()).map(str).collect();
    made(parts.join(str(&args[0])))
}
