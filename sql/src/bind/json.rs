//! JSON of values of any type: what has no rows in the registry because it takes everything, and what takes a table's whole row.
//!
//! A value becomes the text of its JSON by its type, which is known here; null becomes null, and what builds around it writes
//! `null`. A `jsonb` is the same text brought to its form at the end.

use super::call::no_polymorphic;
use super::{Binder, Typed};
use crate::error::{Error, Result};
use crate::expr::{Call, Env, Expr, Made};
use crate::functions::aggregates::Aggregate;
use crate::parser::ast;
use crate::plan::AggregateCall;
use crate::types::{Category, Datum, NO_MOD, Type, json};

fn text(value: &Datum) -> &str {
    value.as_text().unwrap_or_else(|| unreachable!("a text is expected: {value:?}"))
}

fn one(call: fn(&Datum) -> Made, arg: Expr) -> Expr {
    Expr::Call(Call::One(call), vec![arg])
}

/// Null as JSON has it.
fn or_null(value: Expr) -> Expr {
    Expr::Coalesce(vec![value, Expr::Const(Datum::text("null"))])
}

impl Binder<'_> {
    /// The text of a value's JSON; and whether it is a row or an array.
    fn json_of(&mut self, arg: Typed) -> Result<(Expr, bool)> {
        let ty = match arg.expr {
            Expr::Param(index) if arg.ty == Type::Unknown => self.parameters[index],
            _ => arg.ty,
        };
        let output = |expr: Expr| Expr::Output(Box::new(expr), ty);
        Ok(match ty {
            Type::Json | Type::Jsonb => (arg.expr, false),
            Type::Unknown => {
                let arg = self.implicit(arg, Type::Text)?;
                (one(quoted, arg.expr), false)
            }
            Type::Bool => {
                let shown = |value: &Datum| {
                    Ok(Datum::text(if matches!(value, Datum::Bool(true)) { "true" } else { "false" }))
                };
                (one(shown, arg.expr), false)
            }
            Type::Timestamp | Type::TimestampTz => (one(moment, output(arg.expr)), false),
            Type::Record => {
                (Expr::Call(Call::OneIn(crate::functions::json::of_record), vec![arg.expr]), true)
            }
            ty if ty.element().is_some() => {
                let element = Typed::new(Expr::Column(0), ty.element().expect("it has elements"), arg.at);
                let each = or_null(self.json_of(element)?.0);
                let all = Expr::Elements(Box::new(arg.expr), Box::new(each));
                (one(compact_array, all), true)
            }
            ty if ty.category() == Category::Number && !ty.is_registered() => {
                (one(number, output(arg.expr)), false)
            }
            ty if ty.is_registered() => {
                let shown = self.explicit(arg.clone(), Type::Text, NO_MOD, arg.at)?;
                (one(quoted, shown.expr), false)
            }
            _ => (one(quoted, output(arg.expr)), false),
        })
    }

    /// The text of the JSON of an argument that may have any type.
    fn json_of_any(&mut self, written: &ast::Expr) -> Result<Expr> {
        let arg = self.expr(written)?;
        let arg = self.mute_text(arg)?;
        Ok(self.json_of(arg)?.0)
    }

    /// A key as a text.
    fn json_key(&mut self, arg: Typed) -> Result<Expr> {
        let at = arg.at;
        if arg.ty == Type::Unknown {
            return Ok(self.implicit(arg, Type::Text)?.expr);
        }
        if arg.ty.element().is_some() || matches!(arg.ty, Type::Json | Type::Jsonb | Type::Record) {
            return Err(Error::new("22023", "key value must be scalar, not array, composite, or json").at(at));
        }
        if arg.ty == Type::BpChar {
            return Ok(Expr::Output(Box::new(arg.expr), arg.ty));
        }
        Ok(self.explicit(arg, Type::Text, NO_MOD, at)?.expr)
    }

    /// A function that makes JSON of anything.
    pub(super) fn json_function(&mut self, name: &str, args: &[ast::Expr], at: u32) -> Result<Option<Typed>> {
        let binary = name.contains("jsonb");
        let ty = if binary { Type::Jsonb } else { Type::Json };
        let made = |expr: Expr| {
            let expr = if binary { one(normalized, expr) } else { expr };
            Ok(Some(Typed::new(expr, ty, at)))
        };
        match (name, args) {
            ("to_json" | "to_jsonb" | "row_to_json" | "array_to_json", [arg]) => {
                let arg = self.expr(arg)?;
                if self.types(std::slice::from_ref(&arg)) == [Type::Unknown] {
                    return Err(no_polymorphic());
                }
                let (value, _) = self.json_of(arg)?;
                made(value)
            }
            ("json_build_array" | "jsonb_build_array", args) => {
                let mut parts = Vec::new();
                for arg in args {
                    parts.push(or_null(self.json_of_any(arg)?));
                }
                made(Expr::Call(Call::All(spaced_array), parts))
            }
            ("json_build_object" | "jsonb_build_object", args) => {
                if args.len() % 2 == 1 {
                    return Err(Error::new("22023", "argument list must have even number of elements").hint(
                        format!("The arguments of {name}() must consist of alternating keys and values."),
                    ));
                }
                let mut parts = Vec::new();
                for pair in args.chunks(2) {
                    let key = self.expr(&pair[0])?;
                    let key = self.mute_text(key)?;
                    parts.push(self.json_key(key)?);
                    parts.push(self.json_of_any(&pair[1])?);
                }
                made(Expr::Call(Call::All(if binary { build_jsonb } else { spaced_object }), parts))
            }
            (
                "json_extract_path"
                | "json_extract_path_text"
                | "jsonb_extract_path"
                | "jsonb_extract_path_text",
                [whole, steps @ ..],
            ) => {
                let whole = self.expr(whole)?;
                let mut path = Vec::new();
                for step in steps {
                    let step = self.expr(step)?;
                    path.push(self.implicit(step, Type::Text)?.expr);
                }
                let path = Expr::Call(Call::All(|items, _| Ok(Datum::Array(items.into()))), path);
                let op = if name.ends_with("_text") { "#>>" } else { "#>" };
                let whole = self.implicit(whole, ty)?;
                self.operator(op, vec![whole, Typed::new(path, Type::TextArray, at)], at).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// An aggregate that makes JSON of anything, if the name is one's, and its type.
    pub(super) fn json_aggregate(
        &mut self,
        name: &str,
        call: &ast::Call,
    ) -> Result<Option<(AggregateCall, Type)>> {
        let binary = name.starts_with("jsonb");
        let ty = if binary { Type::Jsonb } else { Type::Json };
        let (aggregate, args, made) = match (name, &call.args[..]) {
            ("json_agg" | "jsonb_agg", [arg]) => {
                let arg = self.expr(arg)?;
                if self.types(std::slice::from_ref(&arg)) == [Type::Unknown] {
                    return Err(no_polymorphic());
                }
                let (value, structured) = self.json_of(in_place(&arg, 0))?;
                let lines = structured && !binary;
                (Aggregate::JsonArray { lines, binary }, vec![arg], vec![or_null(value)])
            }
            ("json_object_agg" | "jsonb_object_agg", [key, value]) => {
                let (key, value) = (self.expr(key)?, self.expr(value)?);
                let (key, value) = (self.mute_text(key)?, self.mute_text(value)?);
                let name = self.json_key(in_place(&key, 0))?;
                let held = or_null(self.json_of(in_place(&value, 1))?.0);
                (Aggregate::JsonObject { binary }, vec![key, value], vec![name, held])
            }
            _ => return Ok(None),
        };
        // Values are told apart and sorted as they are, and made JSON behind that.
        let wanted = args.iter().map(|arg| arg.ty).collect();
        let (mut bound, ty) = self.aggregate_call(call, (aggregate, wanted, ty), args)?;
        if bound.distinct {
            bound.each = made;
        } else {
            let args = std::mem::take(&mut bound.args);
            bound.args = made;
            for expr in &mut bound.args {
                expr.rewrite(&mut |node| {
                    if let Expr::Column(place) = node {
                        *node = args[*place].clone();
                    }
                });
            }
        }
        Ok(Some((bound, ty)))
    }
}

/// An argument as a column of the row of arguments.
fn in_place(arg: &Typed, place: usize) -> Typed {
    Typed { expr: Expr::Column(place), ..arg.clone() }
}

fn quoted(value: &Datum) -> Made {
    let mut out = String::new();
    json::quote(text(value), &mut out);
    Ok(Datum::text(out))
}

/// A number; what is none (`NaN`) is a string.
fn number(value: &Datum) -> Made {
    let digits = text(value).trim_start_matches('-');
    if digits.starts_with(|sign: char| sign.is_ascii_digit()) { Ok(value.clone()) } else { quoted(value) }
}

/// A timestamp as ISO 8601 writes it.
fn moment(value: &Datum) -> Made {
    quoted(&Datum::text(json::moment(text(value))))
}

fn normalized(value: &Datum) -> Made {
    Ok(Datum::Jsonb(json::normal(text(value))?.into()))
}

fn compact_array(all: &Datum) -> Made {
    let Datum::Array(items) = all else { unreachable!("an array is expected: {all:?}") };
    let parts: Vec<&str> = items.iter().map(text).collect();
    Ok(Datum::text(format!("[{}]", parts.join(","))))
}

fn spaced_array(items: &[Datum], _: &Env<'_>) -> Made {
    let parts: Vec<&str> = items.iter().map(text).collect();
    Ok(Datum::text(format!("[{}]", parts.join(", "))))
}

/// Keys and values by turns.
fn written_object(parts: &[Datum], comma: &str, colon: &str, null: &str) -> Made {
    let mut out = String::from("{");
    for (place, pair) in parts.chunks(2).enumerate() {
        if place > 0 {
            out.push_str(comma);
        }
        if pair[0].is_null() {
            let message = format!("argument {}{null}", place * 2 + 1);
            return Err(Error::new("22023", message).hint("Object keys should be text."));
        }
        json::quote(text(&pair[0]), &mut out);
        out.push_str(colon);
        out.push_str(if pair[1].is_null() { "null" } else { text(&pair[1]) });
    }
    out.push('}');
    Ok(Datum::text(out))
}

fn spaced_object(parts: &[Datum], _: &Env<'_>) -> Made {
    written_object(parts, ", ", " : ", " cannot be null")
}

fn build_jsonb(parts: &[Datum], _: &Env<'_>) -> Made {
    written_object(parts, ", ", ": ", ": key must not be null")
}
