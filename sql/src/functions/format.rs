//! `format`: a text with values in the places that it names, as PostgreSQL's `text_format` fills them.

use super::casts::str;
use crate::error::{Error, Result};
use crate::expr::{Env, Made};
use crate::names::quoted;
use crate::types::Datum;

/// A place for a value: `%[position$][-][width]type`.
#[derive(Default)]
struct Place {
    /// Which argument, counted from 1; none: the next one.
    position: Option<usize>,
    /// Fewest characters; blanks stand before the value, or behind it.
    width: i64,
    left: bool,
    /// The argument that says the width: its position, or the next one.
    width_from: Option<Option<usize>>,
    kind: char,
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new("22023", message)
}

fn unterminated() -> Error {
    invalid("unterminated format() type specifier").hint("For a single \"%\" use \"%%\".")
}

type Signs<'t> = std::iter::Peekable<std::str::Chars<'t>>;

/// A number, if one stands there.
fn number(signs: &mut Signs<'_>) -> Result<Option<i64>> {
    let mut found = None;
    while let Some(digit) = signs.peek().and_then(|sign| sign.to_digit(10)) {
        signs.next();
        let more = found.unwrap_or(0i64) * 10 + i64::from(digit);
        if more > i64::from(i32::MAX) {
            return Err(Error::new("22003", "number is out of range"));
        }
        found = Some(more);
    }
    if signs.peek().is_none() && found.is_some() {
        return Err(unterminated());
    }
    Ok(found)
}

/// The position that stands before a `$`.
fn position(number: i64) -> Result<usize> {
    usize::try_from(number)
        .ok()
        .filter(|place| *place > 0)
        .ok_or_else(|| invalid("format specifies argument 0, but arguments are numbered from 1"))
}

/// Reads a place behind its `%`.
fn place(signs: &mut Signs<'_>) -> Result<Place> {
    let mut place = Place::default();
    let first = number(signs)?;
    if let Some(first) = first {
        if signs.next_if_eq(&'$').is_some() {
            place.position = Some(position(first)?);
        } else {
            place.width = first;
        }
    }
    if place.position.is_some() || first.is_none() {
        while signs.next_if_eq(&'-').is_some() {
            place.left = true;
        }
        if signs.next_if_eq(&'*').is_some() {
            place.width_from = Some(match number(signs)? {
                Some(number) => {
                    if signs.next_if_eq(&'$').is_none() {
                        return Err(invalid("width argument position must be ended by \"$\""));
                    }
                    Some(position(number)?)
                }
                None => None,
            });
        } else if let Some(width) = number(signs)? {
            place.width = width;
        }
    }
    place.kind = signs.next().ok_or_else(unterminated)?;
    Ok(place)
}

/// The text of a value that a place takes; the binder has made texts of all arguments.
fn shown(kind: char, value: &Datum) -> Result<String> {
    Ok(match (kind, value) {
        ('s', Datum::Null) => String::new(),
        ('s', value) => str(value).to_owned(),
        ('I', Datum::Null) => {
            return Err(Error::new("22004", "null values cannot be formatted as an SQL identifier"));
        }
        ('I', value) => quoted(str(value)),
        ('L', Datum::Null) => "NULL".to_owned(),
        ('L', value) => crate::types::text::literal(str(value)),
        (other, _) => {
            let message = format!("unrecognized format() type specifier \"{other}\"");
            return Err(invalid(message).hint("For a single \"%\" use \"%%\"."));
        }
    })
}

/// `format(pattern, value, …)`.
pub(super) fn format(args: &[Datum], env: &Env<'_>) -> Made {
    let Some((pattern, values)) = args.split_first().filter(|(pattern, _)| !pattern.is_null()) else {
        return Ok(Datum::Null);
    };
    let mut out = String::new();
    let mut signs = str(pattern).chars().peekable();
    let mut next = 0;
    let argument = |position: Option<usize>, next: &mut usize| {
        *next = position.unwrap_or(*next + 1);
        values.get(*next - 1).ok_or_else(|| invalid("too few arguments for format()"))
    };
    while let Some(sign) = signs.next() {
        if sign != '%' {
            out.push(sign);
            continue;
        }
        if signs.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let mut place = place(&mut signs)?;
        if !"sIL".contains(place.kind) {
            shown(place.kind, &Datum::Null)?;
        }
        if let Some(from) = place.width_from {
            match argument(from, &mut next)? {
                Datum::Null => place.width = 0,
                width => {
                    let width = str(width);
                    let bad =
                        || Error::new("22P02", format!("invalid input syntax for type integer: \"{width}\""));
                    place.width = width.trim().parse::<i32>().map_err(|_| bad())?.into();
                    place.left |= place.width < 0;
                }
            }
        }
        let value = shown(place.kind, argument(place.position, &mut next)?)?;
        let width = usize::try_from(place.width.unsigned_abs()).unwrap_or(usize::MAX);
        let blanks = width.saturating_sub(value.chars().count());
        env.context.memory.has_room_for((out.len() + value.len() + blanks) as u64)?;
        if place.left {
            out.push_str(&value);
        }
        out.extend(std::iter::repeat_n(' ', blanks));
        if !place.left {
            out.push_str(&value);
        }
    }
    Ok(Datum::text(out))
}
