//! Arrays of one dimension: their text (`{1,NULL,"a b"}`) and binary form (`array_send`: dimensions, a flag for nulls, the OID of
//! the elements, length and lower bound, then each element with its length).
//!
//! More dimensions, and bounds that do not begin at 1, are refused.

use std::sync::Arc;

use super::{Datum, Local, Type, Zone, text};
use crate::error::{Error, Result};

fn malformed(whole: &str, detail: &str) -> Error {
    Error::new("22P02", format!("malformed array literal: \"{whole}\"")).detail(detail)
}

fn dimensions() -> Error {
    Error::unsupported("an array of several dimensions")
}

fn element_of(ty: Type) -> Type {
    ty.element().expect("the type is one of arrays")
}

/// Is it a vector of the system catalogs? Its text has no braces, and its elements count from 0 (here, from 1).
fn is_vector(ty: Type) -> bool {
    matches!(ty, Type::Int2Vector | Type::OidVector)
}

/// Reads an array from its text.
pub(super) fn input(whole: &str, ty: Type, modifier: i32, local: &Local) -> Result<Datum> {
    let element = element_of(ty);
    if is_vector(ty) {
        let parts = whole.split_ascii_whitespace().map(|part| text::input(part, element, modifier, local));
        return Ok(Datum::Array(parts.collect::<Result<_>>()?));
    }
    let trimmed = whole.trim_matches(|sign: char| sign.is_ascii_whitespace());
    if trimmed.starts_with('[') {
        return Err(Error::unsupported("an array with bounds of its own"));
    }
    let Some(inner) = trimmed.strip_prefix('{') else {
        return Err(malformed(whole, "Array value must start with \"{\" or dimension information."));
    };
    let mut signs = inner.chars().peekable();
    let mut all = Vec::new();
    loop {
        while signs.next_if(char::is_ascii_whitespace).is_some() {}
        let (mut value, mut quoted) = (String::new(), false);
        match signs.peek() {
            None => return Err(malformed(whole, "Unexpected end of input.")),
            Some('{') => return Err(dimensions()),
            Some('}') if all.is_empty() => {
                signs.next();
                break;
            }
            Some('"') => {
                quoted = true;
                signs.next();
                loop {
                    match signs.next() {
                        None => return Err(malformed(whole, "Unexpected end of input.")),
                        Some('"') => break,
                        Some('\\') => value.extend(signs.next()),
                        Some(sign) => value.push(sign),
                    }
                }
                while signs.next_if(char::is_ascii_whitespace).is_some() {}
            }
            Some(_) => {
                while let Some(sign) = signs.next_if(|sign| !matches!(sign, ',' | '}' | '"' | '{')) {
                    value.extend(if sign == '\\' { signs.next() } else { Some(sign) });
                }
                value.truncate(value.trim_end().len());
                if value.is_empty() {
                    let sign = signs.peek().copied().unwrap_or('}');
                    return Err(malformed(whole, &format!("Unexpected \"{sign}\" character.")));
                }
            }
        }
        all.push(if !quoted && value.eq_ignore_ascii_case("null") {
            Datum::Null
        } else {
            text::input(&value, element, modifier, local)?
        });
        match signs.next() {
            Some(',') => {}
            Some('}') => break,
            Some(sign) => return Err(malformed(whole, &format!("Unexpected \"{sign}\" character."))),
            None => return Err(malformed(whole, "Unexpected end of input.")),
        }
    }
    if signs.any(|sign| !sign.is_ascii_whitespace()) {
        return Err(malformed(whole, "Junk after closing right brace."));
    }
    Ok(Datum::Array(all.into()))
}

/// Writes an array as text.
pub(super) fn output(all: &[Datum], ty: Type, zone: &Zone, out: &mut String) {
    let element = ty.element().unwrap_or(Type::Text);
    if is_vector(ty) {
        let shown: Vec<String> = all.iter().map(|value| text::show(value, element, zone)).collect();
        return out.push_str(&shown.join(" "));
    }
    out.push('{');
    for (place, value) in all.iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        if value.is_null() {
            out.push_str("NULL");
            continue;
        }
        let shown = text::show(value, element, zone);
        let plain = !shown.is_empty()
            && !shown.eq_ignore_ascii_case("null")
            && !shown
                .chars()
                .any(|sign| sign.is_ascii_whitespace() || matches!(sign, '{' | '}' | ',' | '"' | '\\'));
        if plain {
            out.push_str(&shown);
            continue;
        }
        out.push('"');
        for sign in shown.chars() {
            if matches!(sign, '"' | '\\') {
                out.push('\\');
            }
            out.push(sign);
        }
        out.push('"');
    }
    out.push('}');
}

/// Writes an array in binary form.
pub(crate) fn write_binary(all: &[Datum], ty: Type, out: &mut Vec<u8>) {
    let element = ty.element().unwrap_or(Type::Text);
    let nulls = all.iter().any(Datum::is_null);
    let mut int = |value: i32| out.extend(value.to_be_bytes());
    int(i32::from(!all.is_empty()));
    int(i32::from(nulls));
    int(element.oid().cast_signed());
    if all.is_empty() {
        return;
    }
    int(all.len() as i32);
    int(i32::from(!is_vector(ty)));
    for value in all {
        if value.is_null() {
            out.extend((-1i32).to_be_bytes());
            continue;
        }
        let at = out.len();
        out.extend([0; 4]);
        value.write_binary(element, out);
        let length = (out.len() - at - 4) as i32;
        out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }
}

/// Reads an array from its binary form.
pub(crate) fn read_binary(bytes: &[u8], ty: Type) -> Result<Datum> {
    let wrong = || {
        let message = format!("incorrect binary data format for type {}", ty.sql_name());
        Error::new("22P03", message).detail(format!("The value has {} bytes.", bytes.len()))
    };
    let element = element_of(ty);
    let mut rest = bytes;
    let int = |rest: &mut &[u8]| {
        let (head, tail) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
        *rest = tail;
        Ok::<i32, Error>(i32::from_be_bytes(*head))
    };
    let (dimensions_given, _, oid) = (int(&mut rest)?, int(&mut rest)?, int(&mut rest)?);
    if oid.cast_unsigned() != element.oid() {
        return Err(
            Error::new("42804", "wrong element type in a binary array").detail(format!("Its OID is {oid}."))
        );
    }
    if dimensions_given == 0 {
        return Ok(Datum::Array(Arc::from([])));
    }
    if dimensions_given != 1 {
        return Err(dimensions());
    }
    let (count, _) = (int(&mut rest)?, int(&mut rest)?);
    // Each element has its length before it.
    if count < 0 || count as usize > rest.len() / 4 {
        return Err(wrong());
    }
    let mut all = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let length = int(&mut rest)?;
        if length < 0 {
            all.push(Datum::Null);
            continue;
        }
        let (value, tail) = rest.split_at_checked(length as usize).ok_or_else(wrong)?;
        rest = tail;
        all.push(Datum::read_binary(value, element)?);
    }
    if rest.is_empty() { Ok(Datum::Array(all.into())) } else { Err(wrong()) }
}
