//! Functions that make rows: in FROM a table, in a select list a row for each of their values.
//!
//! Each is an expression that makes an array, or `generate_series`, which makes its values one by one;
//! [`Extension::Sets`](crate::plan::Extension) opens several of them side by side, and puts nulls where one is at its end.

use super::call::{ambiguous, no_function};
use super::{Binder, Typed};
use crate::error::{Error, Result};
use crate::expr::{Call, Env, Expr, Made};
use crate::functions::{json, patterns};
use crate::keywords::{self, Category, Keyword};
use crate::parser::ast;
use crate::plan::SetExpr;
use crate::types::{Datum, Record, Type};

/// Columns from here on are values of functions that make rows, and have no place yet.
pub(super) const SET_BASE: usize = 1 << 41;
/// All such columns.
pub(super) const SETS: std::ops::Range<usize> = SET_BASE..2 * SET_BASE;

/// A function, and the columns that its values are: names (none: the function's) and types.
pub(super) type SetCall = (SetExpr, Vec<(Option<&'static str>, Type)>);

impl Binder<'_> {
    /// The call of a function that makes rows; none if it is no such function.
    pub(super) fn set_function(&mut self, name: &str, args: &[Typed], at: u32) -> Result<Option<SetCall>> {
        let one = |call: fn(&Datum) -> Made, arg: Expr| Expr::Call(Call::One(call), vec![arg]);
        let (expr, columns) = match (name, args) {
            ("unnest", [array]) => match array.ty.element() {
                Some(element) => (array.expr.clone(), vec![(None, element)]),
                None if array.ty == Type::Unknown => return Err(ambiguous(name, &[array.ty]).at(at)),
                None => return Ok(None),
            },
            ("unnest", arrays) if arrays.len() > 1 => {
                let elements: Option<Vec<Type>> = arrays.iter().map(|array| array.ty.element()).collect();
                let Some(elements) = elements else { return Ok(None) };
                let exprs = arrays.iter().map(|array| array.expr.clone()).collect();
                (Expr::Call(Call::All(zipped), exprs), elements.into_iter().map(|ty| (None, ty)).collect())
            }
            ("generate_subscripts", [array, dimension]) if array.ty.element().is_some() => {
                let dimension = self.implicit(dimension.clone(), Type::Int4)?;
                // Vectors of the system catalogs count from 0.
                let vector = matches!(array.ty, Type::Int2Vector | Type::OidVector);
                let call = Call::Two(if vector { places } else { subscripts });
                (Expr::Call(call, vec![array.expr.clone(), dimension.expr]), vec![(None, Type::Int4)])
            }
            ("generate_series", args) if (2..=3).contains(&args.len()) => {
                return self.series(args, at).map(Some);
            }
            (name, [value]) if name.starts_with("json") => {
                let ty = if name.starts_with("jsonb") { Type::Jsonb } else { Type::Json };
                type Made1 = fn(&Datum) -> Made;
                let (call, columns): (Made1, Vec<(Option<&str>, Type)>) = match name {
                    "json_array_elements" => {
                        (|a| json::elements(a, false, "json_array_elements"), vec![(Some("value"), ty)])
                    }
                    "jsonb_array_elements" => {
                        (|a| json::elements(a, false, "jsonb_array_elements"), vec![(Some("value"), ty)])
                    }
                    "json_array_elements_text" => (
                        |a| json::elements(a, true, "json_array_elements_text"),
                        vec![(Some("value"), Type::Text)],
                    ),
                    "jsonb_array_elements_text" => (
                        |a| json::elements(a, true, "jsonb_array_elements_text"),
                        vec![(Some("value"), Type::Text)],
                    ),
                    "json_object_keys" => (|a| json::keys(a, "json_object_keys"), vec![(None, Type::Text)]),
                    "jsonb_object_keys" => (|a| json::keys(a, "jsonb_object_keys"), vec![(None, Type::Text)]),
                    "json_each" => (
                        |a| json::pairs(a, false, "json_each"),
                        vec![(Some("key"), Type::Text), (Some("value"), ty)],
                    ),
                    "jsonb_each" => (
                        |a| json::pairs(a, false, "jsonb_each"),
                        vec![(Some("key"), Type::Text), (Some("value"), ty)],
                    ),
                    "json_each_text" => (
                        |a| json::pairs(a, true, "json_each_text"),
                        vec![(Some("key"), Type::Text), (Some("value"), Type::Text)],
                    ),
                    "jsonb_each_text" => (
                        |a| json::pairs(a, true, "jsonb_each_text"),
                        vec![(Some("key"), Type::Text), (Some("value"), Type::Text)],
                    ),
                    _ => return Ok(None),
                };
                let value = self.implicit(value.clone(), ty)?;
                (one(call, value.expr), columns)
            }
            ("regexp_split_to_table" | "regexp_matches", args) if (2..=3).contains(&args.len()) => {
                let exprs = self.texts(args)?;
                if name == "regexp_matches" {
                    (Expr::Call(Call::Many(patterns::regexp_matches), exprs), vec![(None, Type::TextArray)])
                } else {
                    (Expr::Call(Call::Many(patterns::regexp_split), exprs), vec![(None, Type::Text)])
                }
            }
            ("string_to_table", [_, _] | [_, _, _]) => {
                let Some(array) = self.array_function("string_to_array", args, at)? else { return Ok(None) };
                (array.expr, vec![(None, Type::Text)])
            }
            // Elements with their places, as rows of `x` and `n`.
            ("_pg_expandarray", [array])
                if array.ty.element().is_some_and(|ty| ty.is_integer() || ty == Type::Oid) =>
            {
                let element = array.ty.element().expect("it has elements");
                let columns = vec![(Some("x"), element), (Some("n"), Type::Int4)];
                (one(placed, array.expr.clone()), columns)
            }
            ("pg_get_keywords", []) => {
                (Expr::Const(keyword_rows()), KEYWORD_COLUMNS.map(|(name, ty)| (Some(name), ty)).into())
            }
            ("aclexplode" | "pg_options_to_table", _) => {
                return Err(Error::unsupported(format!("function {name}")).at(at));
            }
            _ => return Ok(None),
        };
        Ok(Some((SetExpr::Array(expr), columns)))
    }

    fn texts(&mut self, args: &[Typed]) -> Result<Vec<Expr>> {
        let text = |arg: &Typed| Ok(self.implicit(arg.clone(), Type::Text)?.expr);
        args.iter().map(text).collect()
    }

    /// `generate_series` of integers, numerics or timestamps.
    fn series(&mut self, args: &[Typed], at: u32) -> Result<SetCall> {
        let is_time = |ty: Type| matches!(ty, Type::Date | Type::Timestamp | Type::TimestampTz);
        let types = self.types(args);
        if types.iter().all(|ty| *ty == Type::Unknown) {
            return Err(ambiguous("generate_series", &types).at(at));
        }
        let none = || no_function("generate_series", &types).at(at);
        if args.iter().any(|arg| is_time(arg.ty)) {
            let [from, to, step] = args else {
                return Err(none());
            };
            let zoned = from.ty == Type::TimestampTz || to.ty == Type::TimestampTz || from.ty == Type::Date;
            let ty = if zoned { Type::TimestampTz } else { Type::Timestamp };
            let exprs = [
                self.implicit(from.clone(), ty)?.expr,
                self.implicit(to.clone(), ty)?.expr,
                self.implicit(step.clone(), Type::Interval)?.expr,
            ];
            return Ok((SetExpr::Series(exprs, ty), vec![(None, ty)]));
        }
        let common = self.common_type(args, "generate_series").map_err(|_| none())?;
        if common != Type::Numeric && !common.is_integer() {
            return Err(none());
        }
        let (mut exprs, ty, _) = self.unify(args.to_vec(), "generate_series")?;
        if exprs.len() == 2 {
            exprs.push(Expr::Const(match ty {
                Type::Numeric => Datum::Numeric(crate::types::Numeric::Small(1, 0)),
                _ => Datum::Int(1),
            }));
        }
        let exprs = <[Expr; 3]>::try_from(exprs).expect("there are three");
        Ok((SetExpr::Series(exprs, ty), vec![(None, ty)]))
    }

    /// A function that makes rows within an expression: a column behind the row's.
    pub(super) fn set_in_expression(&mut self, name: &str, args: &[Typed], at: u32) -> Result<Option<Typed>> {
        let Some((set, columns)) = self.set_function(name, args, at)? else { return Ok(None) };
        let ty = match columns[..] {
            [(_, ty)] => ty,
            _ if name == "_pg_expandarray" => Type::Record,
            // Several arrays are unnested in FROM only.
            _ if name == "unnest" => return Ok(None),
            _ => return Err(Error::unsupported(format!("function {name} outside of FROM")).at(at)),
        };
        let frame = self.frame();
        if let Some(barred) = frame.barred {
            return Err(barred.no_sets().at(at));
        }
        let clause = frame.no_aggregates.unwrap_or("this place");
        let Some(sets) = &mut frame.sets else {
            return Err(Error::new("0A000", format!("set-returning functions are not allowed in {clause}"))
                .at(at)
                .hint("Put the function into FROM, or into the select list."));
        };
        sets.push(set);
        let column = SET_BASE + sets.len() - 1;
        let fields =
            if ty == Type::Record { columns.iter().map(|(_, ty)| *ty).collect() } else { Vec::new() };
        Ok(Some(Typed { fields, ..Typed::new(Expr::Column(column), ty, at) }))
    }

    /// A field of a row value: of one that is written out `f1`, `f2`, …; of one of `_pg_expandarray` `x` and `n`.
    pub(super) fn row_field(&mut self, row: &ast::Expr, name: &str, at: u32) -> Result<Typed> {
        let row = self.expr(row)?;
        if row.ty != Type::Record {
            let message = format!(
                "column notation .{name} applied to type {}, which is not a composite type",
                row.ty.sql_name()
            );
            return Err(Error::new("42809", message).at(row.at));
        }
        let none = || {
            let message = format!("could not identify column \"{name}\" in record data type");
            Error::new("42703", message).at(at)
        };
        // Behind an outer join a table's row may be null.
        let record = if let Expr::Case(_, row) = &row.expr { row } else { &row.expr };
        let place = if let Expr::Record(_, shape) = record {
            shape.names.iter().position(|known| known == name)
        } else {
            ["x", "n"].iter().position(|known| *known == name)
        };
        let place = place.ok_or_else(none)?;
        // A column of a sub-query has lost the types: these rows are of numbers of columns.
        let ty = row.fields.get(place).copied().unwrap_or([Type::Int2, Type::Int4][place]);
        let field = Call::Two(|row, place| match (row, place) {
            (Datum::Record(fields), Datum::Int(place)) => Ok(fields[*place as usize].clone()),
            (row, _) => unreachable!("a row value is expected: {row:?}"),
        });
        let place = Expr::Const(Datum::Int(place as i64));
        Ok(Typed::new(Expr::Call(field, vec![row.expr, place]), ty, at))
    }
}

/// Arrays side by side, with nulls where one is at its end.
fn zipped(arrays: &[Datum], _: &Env<'_>) -> Made {
    let items = |array: &Datum| match array {
        Datum::Array(all) => all.clone(),
        _ => [].into(),
    };
    let all: Vec<_> = arrays.iter().map(items).collect();
    let longest = all.iter().map(|items| items.len()).max().unwrap_or(0);
    let row = |place: usize| {
        Datum::Record(Record::bare(
            all.iter().map(|items| items.get(place).cloned().unwrap_or(Datum::Null)).collect::<Vec<_>>(),
        ))
    };
    Ok(Datum::Array((0..longest).map(row).collect()))
}

const KEYWORD_COLUMNS: [(&str, Type); 5] = [
    ("word", Type::Text),
    ("catcode", Type::Char),
    ("barelabel", Type::Bool),
    ("catdesc", Type::Text),
    ("baredesc", Type::Text),
];

/// The rows of `pg_get_keywords()`.
fn keyword_rows() -> Datum {
    let row = |keyword: &Keyword| {
        let (letter, about) = match keyword.category {
            Category::Reserved => ("R", "reserved"),
            Category::NoColumn => ("T", "reserved (can be function or type name)"),
            Category::NoFunction => ("C", "unreserved (cannot be function or type name)"),
            Category::Free => ("U", "unreserved"),
        };
        Datum::Record(Record::bare([
            Datum::text(keyword.word),
            Datum::text(letter),
            Datum::Bool(keyword.is_label),
            Datum::text(about),
            Datum::text(if keyword.is_label { "can be bare label" } else { "requires AS" }),
        ]))
    };
    Datum::Array(keywords::all().iter().map(row).collect())
}

fn placed(array: &Datum) -> Made {
    let Datum::Array(items) = array else { unreachable!("an array is expected: {array:?}") };
    let pair = |(place, item): (usize, &Datum)| {
        Datum::Record(Record::bare([item.clone(), Datum::Int(place as i64 + 1)]))
    };
    Ok(Datum::Array(items.iter().enumerate().map(pair).collect()))
}

fn subscripts(array: &Datum, dimension: &Datum) -> Made {
    let Datum::Array(items) = array else { unreachable!("an array is expected: {array:?}") };
    let count = if matches!(dimension, Datum::Int(1)) { items.len() as i64 } else { 0 };
    Ok(Datum::Array((1..=count).map(Datum::Int).collect()))
}

fn places(vector: &Datum, dimension: &Datum) -> Made {
    let Datum::Array(numbers) = subscripts(vector, dimension)? else { unreachable!("it makes an array") };
    Ok(Datum::Array((0..numbers.len() as i64).map(Datum::Int).collect()))
}
