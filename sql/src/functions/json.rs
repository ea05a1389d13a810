//! Functions and operators over `json` and `jsonb` (their form: [`crate::types::json`]).

use super::casts::{int, str};
use super::{Function, operators::Operator};
use crate::error::{Error, Result};
use crate::expr::{Call, Comparison, Env, Made};
use crate::types::json::{self, Json};
use crate::types::{Datum, Numeric, Record, Type, Zone, text};
use Type::{Bool, Int4, Json as Plain, Jsonb, Text, TextArray};

const fn op(name: &'static str, args: &'static [Type], returns: Type, call: Call) -> Operator {
    Operator { name, args, returns, call }
}

const fn row(name: &'static str, args: &'static [Type], returns: Type, call: Call) -> Function {
    Function { name, args, returns, call }
}

pub(super) const OPERATORS: &[Operator] = &[
    op("->", &[Plain, Text], Plain, Call::Two(field)),
    op("->", &[Plain, Int4], Plain, Call::Two(element)),
    op("->>", &[Plain, Text], Text, Call::Two(|a, b| bare(&field(a, b)?))),
    op("->>", &[Plain, Int4], Text, Call::Two(|a, b| bare(&element(a, b)?))),
    op("#>", &[Plain, TextArray], Plain, Call::Two(path)),
    op("#>>", &[Plain, TextArray], Text, Call::Two(|a, b| bare(&path(a, b)?))),
    op("->", &[Jsonb, Text], Jsonb, Call::Two(field)),
    op("->", &[Jsonb, Int4], Jsonb, Call::Two(element)),
    op("->>", &[Jsonb, Text], Text, Call::Two(|a, b| bare(&field(a, b)?))),
    op("->>", &[Jsonb, Int4], Text, Call::Two(|a, b| bare(&element(a, b)?))),
    op("#>", &[Jsonb, TextArray], Jsonb, Call::Two(path)),
    op("#>>", &[Jsonb, TextArray], Text, Call::Two(|a, b| bare(&path(a, b)?))),
    op("=", &[Jsonb, Jsonb], Bool, Call::Compare(Comparison::Equal)),
    op("<>", &[Jsonb, Jsonb], Bool, Call::Compare(Comparison::NotEqual)),
    op("<", &[Jsonb, Jsonb], Bool, Call::Compare(Comparison::Less)),
    op("<=", &[Jsonb, Jsonb], Bool, Call::Compare(Comparison::LessEqual)),
    op(">", &[Jsonb, Jsonb], Bool, Call::Compare(Comparison::Greater)),
    op(">=", &[Jsonb, Jsonb], Bool, Call::Compare(Comparison::GreaterEqual)),
    op("@>", &[Jsonb, Jsonb], Bool, Call::Two(|a, b| json::contains(str(a), str(b)).map(Datum::Bool))),
    op("<@", &[Jsonb, Jsonb], Bool, Call::Two(|a, b| json::contains(str(b), str(a)).map(Datum::Bool))),
    op("?", &[Jsonb, Text], Bool, Call::Two(|a, b| exists(a, str(b)).map(Datum::Bool))),
    op("?|", &[Jsonb, TextArray], Bool, Call::Two(|a, b| exist(a, b, false))),
    op("?&", &[Jsonb, TextArray], Bool, Call::Two(|a, b| exist(a, b, true))),
    op("||", &[Jsonb, Jsonb], Jsonb, Call::Two(joined)),
    op("-", &[Jsonb, Text], Jsonb, Call::Two(|a, b| without(a, &[str(b)]))),
    op("-", &[Jsonb, TextArray], Jsonb, Call::Two(|a, b| without(a, &texts(b)))),
    op("-", &[Jsonb, Int4], Jsonb, Call::Two(without_element)),
    op("#-", &[Jsonb, TextArray], Jsonb, Call::Two(without_path)),
];

pub(super) const FUNCTIONS: &[Function] = &[
    row("json_array_length", &[Plain], Int4, Call::One(length)),
    row("jsonb_array_length", &[Jsonb], Int4, Call::One(length)),
    row("json_typeof", &[Plain], Text, Call::One(|a| Ok(Datum::text(json::kind(str(a)))))),
    row("jsonb_typeof", &[Jsonb], Text, Call::One(|a| Ok(Datum::text(json::kind(str(a)))))),
    row("json_strip_nulls", &[Plain], Plain, Call::One(|a| stripped(a, ","))),
    row("jsonb_strip_nulls", &[Jsonb], Jsonb, Call::One(|a| stripped(a, ", "))),
    row("jsonb_pretty", &[Jsonb], Text, Call::One(pretty)),
    row("jsonb_set", &[Jsonb, TextArray, Jsonb], Jsonb, Call::Many(|a, _| set(a))),
    row("jsonb_set", &[Jsonb, TextArray, Jsonb, Bool], Jsonb, Call::Many(|a, _| set(a))),
    row("jsonb_insert", &[Jsonb, TextArray, Jsonb], Jsonb, Call::Many(|a, _| insert(a))),
    row("jsonb_insert", &[Jsonb, TextArray, Jsonb, Bool], Jsonb, Call::Many(|a, _| insert(a))),
    row("jsonb_exists", &[Jsonb, Text], Bool, Call::Two(|a, b| exists(a, str(b)).map(Datum::Bool))),
    row(
        "jsonb_contains",
        &[Jsonb, Jsonb],
        Bool,
        Call::Two(|a, b| json::contains(str(a), str(b)).map(Datum::Bool)),
    ),
    row("jsonb_concat", &[Jsonb, Jsonb], Jsonb, Call::Two(joined)),
];

/// A `json` as a `jsonb`.
pub(super) fn to_jsonb(value: &Datum) -> Made {
    Ok(Datum::Jsonb(json::normal(str(value))?.into()))
}

/// The JSON of a row value: an object of its fields.
pub(crate) fn of_record(value: &Datum, env: &Env<'_>) -> Made {
    let mut out = String::new();
    write_value(value, Type::Record, &env.context.local.zone, &mut out);
    Ok(Datum::text(out))
}

/// Writes the JSON of a value (`datum_to_json`).
fn write_value(value: &Datum, ty: Type, zone: &Zone, out: &mut String) {
    let shown = || text::show(value, ty, zone);
    match (value, ty) {
        (Datum::Null, _) => out.push_str("null"),
        (Datum::Bool(value), _) => out.push_str(if *value { "true" } else { "false" }),
        (Datum::Record(row), _) => {
            out.push('{');
            for (place, (name, ty, value)) in row.fields().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                json::quote(&name, out);
                out.push(':');
                write_value(value, ty, zone, out);
            }
            out.push('}');
        }
        (Datum::Array(items), ty) => {
            let element = ty.element().unwrap_or(Type::Text);
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write_value(item, element, zone, out);
            }
            out.push(']');
        }
        (Datum::Jsonb(text), _) => out.push_str(text),
        (Datum::Text(text), Plain | Jsonb) => out.push_str(text),
        (Datum::Timestamp(_), _) => json::quote(&json::moment(&shown()), out),
        (Datum::Int(_) | Datum::Float(_) | Datum::Numeric(_), _) => {
            let shown = shown();
            let digits = shown.trim_start_matches('-');
            if digits.starts_with(|sign: char| sign.is_ascii_digit()) {
                out.push_str(&shown);
            } else {
                json::quote(&shown, out);
            }
        }
        _ => json::quote(&shown(), out),
    }
}

fn made(text: Option<&str>) -> Datum {
    text.map_or(Datum::Null, Datum::text)
}

fn field(value: &Datum, key: &Datum) -> Made {
    json::field(str(value), str(key)).map(made)
}

fn element(value: &Datum, place: &Datum) -> Made {
    json::element(str(value), int(place)).map(made)
}

fn bare(value: &Datum) -> Made {
    if value.is_null() {
        return Ok(Datum::Null);
    }
    Ok(json::bare(str(value))?.map_or(Datum::Null, Datum::text))
}

/// The texts of an array that has no null among them.
fn texts(array: &Datum) -> Vec<&str> {
    items(array).iter().filter(|item| !item.is_null()).map(str).collect()
}

fn items(array: &Datum) -> &[Datum] {
    match array {
        Datum::Array(all) => all,
        other => unreachable!("an array is expected: {other:?}"),
    }
}

/// What a path leads to, from the document at the first argument.
fn path(value: &Datum, path: &Datum) -> Made {
    let mut at = str(value);
    for step in items(path) {
        if step.is_null() {
            return Ok(Datum::Null);
        }
        let step = str(step);
        let next = match json::kind(at) {
            "object" => json::field(at, step)?,
            "array" => match step.trim().parse::<i64>() {
                Ok(place) => json::element(at, place)?,
                Err(_) => None,
            },
            _ => None,
        };
        match next {
            Some(next) => at = next,
            None => return Ok(Datum::Null),
        }
    }
    Ok(Datum::text(at))
}

fn length(value: &Datum) -> Made {
    match json::open(str(value))? {
        Json::Array(all) => Ok(Datum::Int(all.len() as i64)),
        Json::Object(_) => Err(Error::new("22023", "cannot get array length of a non-array")),
        _ => Err(Error::new("22023", "cannot get array length of a scalar")),
    }
}

/// Is the text a key of the object, an element of the array, or the string itself?
fn exists(value: &Datum, key: &str) -> Result<bool> {
    Ok(match json::open(str(value))? {
        Json::Object(fields) => fields.iter().any(|(known, _)| known == key),
        Json::Array(all) => {
            let mut found = false;
            for item in all {
                found = found || matches!(json::open(item)?, Json::Text(text) if text == key);
            }
            found
        }
        Json::Text(text) => text == key,
        _ => false,
    })
}

fn exist(value: &Datum, keys: &Datum, all: bool) -> Made {
    for key in texts(keys) {
        if exists(value, key)? != all {
            return Ok(Datum::Bool(!all));
        }
    }
    Ok(Datum::Bool(all))
}

/// A value of `jsonb` of these fields.
fn object(fields: Vec<(String, &str)>) -> String {
    let mut out = String::from("{");
    for (place, (key, value)) in json::sorted_fields(fields).into_iter().enumerate() {
        if place > 0 {
            out.push_str(", ");
        }
        json::quote(&key, &mut out);
        out.push_str(": ");
        out.push_str(value);
    }
    out.push('}');
    out
}

fn array(items: &[&str]) -> String {
    format!("[{}]", items.join(", "))
}

fn joined(left: &Datum, right: &Datum) -> Made {
    let (a, b) = (str(left), str(right));
    let whole = match (json::open(a)?, json::open(b)?) {
        (Json::Object(mut fields), Json::Object(more)) => {
            fields.extend(more);
            object(fields)
        }
        (Json::Array(items), Json::Array(more)) => array(&[items, more].concat()),
        (Json::Array(items), _) => array(&[items, vec![b]].concat()),
        (_, Json::Array(more)) => array(&[vec![a], more].concat()),
        _ => array(&[a, b]),
    };
    Ok(Datum::text(whole))
}

fn without(value: &Datum, keys: &[&str]) -> Made {
    match json::open(str(value))? {
        Json::Object(mut fields) => {
            fields.retain(|(key, _)| !keys.contains(&key.as_str()));
            Ok(Datum::text(object(fields)))
        }
        Json::Array(items) => {
            let mut left = Vec::new();
            for item in items {
                if !matches!(json::open(item)?, Json::Text(text) if keys.contains(&text.as_str())) {
                    left.push(item);
                }
            }
            Ok(Datum::text(array(&left)))
        }
        _ => Err(Error::new("22023", "cannot delete from scalar")),
    }
}

fn without_element(value: &Datum, place: &Datum) -> Made {
    match json::open(str(value))? {
        Json::Array(mut items) => {
            if let Some(place) = json::at(int(place), items.len()) {
                items.remove(place);
            }
            Ok(Datum::text(array(&items)))
        }
        Json::Object(_) => Err(Error::new("22023", "cannot delete from object using integer index")),
        _ => Err(Error::new("22023", "cannot delete from scalar")),
    }
}

/// What is done to the place that a path leads to.
#[derive(Clone, Copy)]
enum Edit<'v> {
    Delete,
    /// The new value; whether it is added where there is none.
    Set(&'v str, bool),
    /// The new value; whether it goes behind the element.
    Insert(&'v str, bool),
}

/// The steps of a path.
fn steps(path: &Datum) -> Result<Vec<&str>> {
    let all = items(path);
    if let Some(place) = all.iter().position(Datum::is_null) {
        let message = format!("path element at position {} is null", place + 1);
        return Err(Error::new("22004", message));
    }
    Ok(all.iter().map(str).collect())
}

fn without_path(value: &Datum, path: &Datum) -> Made {
    if matches!(json::kind(str(value)), "string" | "number" | "boolean" | "null") {
        return Err(Error::new("22023", "cannot delete path in scalar"));
    }
    edited(str(value), &steps(path)?, 0, Edit::Delete).map(Datum::text)
}

fn set(args: &[Datum]) -> Made {
    if matches!(json::kind(str(&args[0])), "string" | "number" | "boolean" | "null") {
        return Err(Error::new("22023", "cannot set path in scalar"));
    }
    let create = !matches!(args.get(3), Some(Datum::Bool(false)));
    edited(str(&args[0]), &steps(&args[1])?, 0, Edit::Set(str(&args[2]), create)).map(Datum::text)
}

fn insert(args: &[Datum]) -> Made {
    if matches!(json::kind(str(&args[0])), "string" | "number" | "boolean" | "null") {
        return Err(Error::new("22023", "cannot set path in scalar"));
    }
    let behind = matches!(args.get(3), Some(Datum::Bool(true)));
    edited(str(&args[0]), &steps(&args[1])?, 0, Edit::Insert(str(&args[2]), behind)).map(Datum::text)
}

/// The document with what a path leads to changed.
fn edited(text: &str, path: &[&str], level: usize, edit: Edit<'_>) -> Result<String> {
    let Some(step) = path.get(level) else { return Ok(text.to_owned()) };
    let last = level + 1 == path.len();
    match json::open(text)? {
        Json::Object(fields) => {
            let found = fields.iter().position(|(key, _)| key == step);
            let mut owned: Vec<(String, String)> =
                fields.into_iter().map(|(key, value)| (key, value.to_owned())).collect();
            match (found, last, edit) {
                (Some(place), true, Edit::Delete) => drop(owned.remove(place)),
                (Some(place), true, Edit::Set(value, _)) => value.clone_into(&mut owned[place].1),
                (Some(_), true, Edit::Insert(..)) => {
                    return Err(Error::new("22023", "cannot replace existing key")
                        .hint("Try using the function jsonb_set to replace key value."));
                }
                (Some(place), false, edit) => {
                    owned[place].1 = edited(&owned[place].1, path, level + 1, edit)?;
                }
                (None, true, Edit::Set(value, true) | Edit::Insert(value, _)) => {
                    owned.push(((*step).to_owned(), value.to_owned()));
                }
                (None, ..) => {}
            }
            Ok(object(owned.iter().map(|(key, value)| (key.clone(), value.as_str())).collect()))
        }
        Json::Array(items) => {
            let place = step.trim().parse::<i64>().map_err(|_| {
                let message = format!("path element at position {} is not an integer: \"{step}\"", level + 1);
                Error::new("22P02", message)
            })?;
            let found = json::at(place, items.len());
            let mut owned: Vec<String> = items.into_iter().map(str::to_owned).collect();
            // Beyond the ends is before the first or behind the last element.
            let end = if place < 0 { 0 } else { owned.len() };
            match (found, last, edit) {
                (Some(place), true, Edit::Delete) => drop(owned.remove(place)),
                (Some(place), true, Edit::Set(value, _)) => value.clone_into(&mut owned[place]),
                (Some(place), true, Edit::Insert(value, behind)) => {
                    owned.insert(place + usize::from(behind), value.to_owned());
                }
                (Some(place), false, edit) => owned[place] = edited(&owned[place], path, level + 1, edit)?,
                (None, true, Edit::Set(value, true) | Edit::Insert(value, _)) => {
                    owned.insert(end, value.to_owned());
                }
                (None, ..) => {}
            }
            Ok(array(&owned.iter().map(String::as_str).collect::<Vec<_>>()))
        }
        _ => Ok(text.to_owned()),
    }
}

/// Without the fields whose value is null.
fn stripped(value: &Datum, comma: &str) -> Made {
    fn write(text: &str, comma: &str, out: &mut String) -> Result<()> {
        match json::open(text)? {
            Json::Object(fields) => {
                out.push('{');
                let mut first = true;
                for (key, value) in fields.into_iter().filter(|(_, value)| json::kind(value) != "null") {
                    if !std::mem::take(&mut first) {
                        out.push_str(comma);
                    }
                    json::quote(&key, out);
                    out.push_str(if comma == "," { ":" } else { ": " });
                    write(value, comma, out)?;
                }
                out.push('}');
            }
            Json::Array(items) => {
                out.push('[');
                for (place, item) in items.into_iter().enumerate() {
                    if place > 0 {
                        out.push_str(comma);
                    }
                    write(item, comma, out)?;
                }
                out.push(']');
            }
            _ => out.push_str(text),
        }
        Ok(())
    }
    json::check_depth(str(value))?;
    let mut out = String::new();
    write(str(value), comma, &mut out)?;
    Ok(Datum::text(out))
}

fn pretty(value: &Datum) -> Made {
    fn write(text: &str, depth: usize, out: &mut String) -> Result<()> {
        let inside = "    ".repeat(depth + 1);
        match json::open(text)? {
            Json::Object(fields) => {
                out.push_str("{\n");
                for (place, (key, value)) in fields.into_iter().enumerate() {
                    out.push_str(if place > 0 { ",\n" } else { "" });
                    out.push_str(&inside);
                    json::quote(&key, out);
                    out.push_str(": ");
                    write(value, depth + 1, out)?;
                }
                out.push_str(&format!("\n{}}}", "    ".repeat(depth)));
            }
            Json::Array(items) => {
                out.push_str("[\n");
                for (place, item) in items.into_iter().enumerate() {
                    out.push_str(if place > 0 { ",\n" } else { "" });
                    out.push_str(&inside);
                    write(item, depth + 1, out)?;
                }
                out.push_str(&format!("\n{}]", "    ".repeat(depth)));
            }
            _ => out.push_str(text),
        }
        Ok(())
    }
    let mut out = String::new();
    write(str(value), 0, &mut out)?;
    // An empty container stands on two lines there, too.
    Ok(Datum::text(out.replace("{\n\n", "{\n").replace("[\n\n", "[\n")))
}

/// Casts of `jsonb` to what its scalars are.
pub(super) fn to_number(value: &Datum, ty: Type) -> Result<Numeric> {
    match json::open(str(value))? {
        Json::Number(digits) => json::number(digits),
        other => Err(cannot_cast(&other, ty)),
    }
}

pub(super) fn to_bool(value: &Datum) -> Made {
    match json::open(str(value))? {
        Json::Bool(value) => Ok(Datum::Bool(value)),
        other => Err(cannot_cast(&other, Bool)),
    }
}

fn cannot_cast(found: &Json<'_>, ty: Type) -> Error {
    let kind = match found {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "numeric",
        Json::Text(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    };
    Error::new("22023", format!("cannot cast jsonb {kind} to type {}", ty.sql_name()))
}

/// A part of a value, which is a `jsonb` if that is one.
fn like(value: &Datum, part: &str) -> Datum {
    if matches!(value, Datum::Jsonb(_)) { Datum::Jsonb(part.into()) } else { Datum::text(part) }
}

/// The elements of an array, or its texts; the keys of an object, or its fields as pairs: what makes rows.
pub(crate) fn elements(value: &Datum, bare_texts: bool, name: &str) -> Made {
    let made = |text: &str| if bare_texts { bare(&Datum::text(text)) } else { Ok(like(value, text)) };
    match json::open(str(value))? {
        Json::Array(items) => Ok(Datum::Array(items.into_iter().map(made).collect::<Result<_>>()?)),
        Json::Object(_) if name.starts_with("jsonb") => {
            Err(Error::new("22023", "cannot extract elements from an object"))
        }
        Json::Object(_) => Err(Error::new("22023", format!("cannot call {name} on a non-array"))),
        _ if name.starts_with("jsonb") => Err(Error::new("22023", "cannot extract elements from a scalar")),
        _ => Err(Error::new("22023", format!("cannot call {name} on a scalar"))),
    }
}

pub(crate) fn keys(value: &Datum, name: &str) -> Made {
    let fields = fields_of(value, name)?;
    Ok(Datum::Array(fields.into_iter().map(|(key, _)| Datum::text(key)).collect()))
}

pub(crate) fn pairs(value: &Datum, bare_texts: bool, name: &str) -> Made {
    let pair = |(key, held): (String, &str)| -> Made {
        let held = if bare_texts { bare(&Datum::text(held))? } else { like(value, held) };
        Ok(Datum::Record(Record::bare([Datum::text(key), held])))
    };
    let fields = fields_of(value, name)?;
    Ok(Datum::Array(fields.into_iter().map(pair).collect::<Result<_>>()?))
}

fn fields_of<'v>(value: &'v Datum, name: &str) -> Result<Vec<(String, &'v str)>> {
    match json::open(str(value))? {
        Json::Object(fields) => Ok(fields),
        Json::Array(_) if name.ends_with("_keys") => {
            Err(Error::new("22023", format!("cannot call {name} on an array")))
        }
        Json::Array(_) if !name.starts_with("jsonb") => {
            Err(Error::new("22023", "cannot deconstruct an array as an object"))
        }
        _ if name.starts_with("json_each") => Err(Error::new("22023", "cannot deconstruct a scalar")),
        _ if name.ends_with("_keys") => Err(Error::new("22023", format!("cannot call {name} on a scalar"))),
        _ => Err(Error::new("22023", format!("cannot call {name} on a non-object"))),
    }
}
