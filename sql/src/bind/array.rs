//! Arrays in expressions: `ARRAY[…]`, subscripts, ANY and ALL, and the functions and operators over arrays of any type, which have
//! no rows in the registry.

use super::call::{no_function, no_operator, no_polymorphic, unknown_operator};
use super::expr::as_set;
use super::{Binder, Typed};
use crate::error::{Error, Result};
use crate::expr::{Call, Comparison, Env, Expr, Made};
use crate::functions::aggregates::Aggregate;
use crate::functions::{Resolved, operators_named, resolve_operator};
use crate::parser::ast::{self, ExprKind};
use crate::plan::{AggregateCall, Plan, Sub, SubKind};
use crate::types::{Datum, NO_MOD, Type};

/// Elements of an array, at the most (`MaxArraySize`).
const MOST_ITEMS: i64 = 134_217_727;

impl Binder<'_> {
    /// The array type of elements.
    pub(super) fn array_type(element: Type, at: u32) -> Result<Type> {
        let message = || format!("could not find array type for data type {}", element.sql_name());
        let refused = || match element.element() {
            Some(_) => Error::unsupported(format!("an array of {}", element.sql_name())),
            None => Error::new("42704", message()),
        };
        element.array().ok_or_else(|| refused().at(at))
    }

    /// `ARRAY[…]`
    pub(super) fn array(&mut self, items: &[ast::Expr], at: u32) -> Result<Typed> {
        if items.is_empty() {
            return Err(Error::new("42P18", "cannot determine type of empty array")
                .at(at)
                .hint("Explicitly cast to the desired type, for example ARRAY[]::integer[]."));
        }
        let items = self.exprs(items)?;
        if items.iter().any(|item| item.ty.element().is_some()) {
            return Err(Error::unsupported("an array of several dimensions").at(at));
        }
        let (items, ty, modifier) = self.unify(items, "ARRAY")?;
        let ty = Self::array_type(ty, at)?;
        Ok(Typed { modifier, ..Typed::new(made(items), ty, at) })
    }

    /// `ARRAY(query)`: the one column of the query, as an array.
    pub(super) fn array_query(&mut self, query: &ast::Query, at: u32) -> Result<Typed> {
        let before = self.volatile;
        let (bound, captures) = self.sub_query(query)?;
        let volatile = self.volatile > before;
        let [column] = &bound.columns[..] else {
            return Err(Error::new("42601", "subquery must return only one column").at(at));
        };
        let ty = Self::array_type(column.ty, at)?;
        let call = AggregateCall {
            aggregate: Aggregate::Array,
            args: vec![Expr::Column(0)],
            each: Vec::new(),
            distinct: false,
            filter: None,
            order: Vec::new(),
        };
        let all = Plan::Aggregate { input: Box::new(bound.plan), keys: Vec::new(), calls: vec![call] };
        let filled = Expr::Coalesce(vec![Expr::Column(0), Expr::Const(Datum::Array([].into()))]);
        let plan = Plan::Project(Box::new(all), vec![filled]);
        Ok(self.lifted(Sub { plan, captures, kind: SubKind::Scalar, volatile }, ty, at))
    }

    pub(super) fn subscript(&mut self, array: &ast::Expr, place: &ast::Expr, at: u32) -> Result<Typed> {
        let array = self.expr(array)?;
        if array.ty == Type::Jsonb {
            let place = self.expr(place)?;
            let place = self.explicit(place, Type::Text, NO_MOD, at)?;
            let path = Typed::new(made(vec![place.expr]), Type::TextArray, at);
            return self.operator("#>", vec![array, path], at);
        }
        let Some(element) = array.ty.element() else {
            let message = format!(
                "cannot subscript type {} because it does not support subscripting",
                array.ty.sql_name()
            );
            return Err(Error::new("42804", message).at(array.at));
        };
        let place = self.expr(place)?;
        let mut place = self.implicit(place, Type::Int4)?;
        if matches!(array.ty, Type::Int2Vector | Type::OidVector) {
            // Vectors of the system catalogs count from 0.
            let one = Typed::constant(Datum::Int(1), Type::Int4, at);
            place = self.operator("+", vec![place, one], at)?;
        }
        let modifier = array.modifier;
        Ok(Typed {
            modifier,
            ..Typed::new(Expr::Call(Call::Two(at_place), vec![array.expr, place.expr]), element, at)
        })
    }

    /// `value op ANY (array)`, `ALL`. An array that is written out is a list.
    pub(super) fn any_of_array(
        &mut self,
        op: &str,
        all: bool,
        arg: &ast::Expr,
        array: &ast::Expr,
        at: u32,
    ) -> Result<Typed> {
        let mut arg = self.expr(arg)?;
        if let ExprKind::Array(items) = &array.kind
            && !items.is_empty()
        {
            let items = self.exprs(items)?;
            // Without a known type among them, the argument's.
            let (items, ty) = if items.iter().all(|item| item.ty == Type::Unknown) {
                (items, Type::Unknown)
            } else {
                let (items, ty, _) = self.unify(items, "ARRAY")?;
                (items.into_iter().map(|item| Typed::new(item, ty, at)).collect(), ty)
            };
            let mut terms = Vec::new();
            for item in items {
                let item = if ty == Type::Unknown { item } else { Typed { ty, ..item } };
                let term = self.operator(op, vec![arg.clone(), item], at)?;
                if term.ty != Type::Bool {
                    return Err(no_condition(at));
                }
                terms.push(term.expr);
            }
            return Ok(Typed::new(if all { Expr::And(terms) } else { as_set(terms) }, Type::Bool, at));
        }
        let mut array = self.expr(array)?;
        if let Expr::Param(index) = array.expr
            && array.ty == Type::Unknown
        {
            array.ty = self.parameters[index];
        }
        if array.ty == Type::Unknown {
            let element = if arg.ty == Type::Unknown { Type::Text } else { arg.ty };
            let element = if element == Type::Varchar { Type::Text } else { element };
            array = self.implicit(array, Self::array_type(element, at)?)?;
        }
        let Some(element) = array.ty.element() else {
            return Err(Error::new("42809", "op ANY/ALL (array) requires array on right side").at(at));
        };
        if arg.ty == Type::Unknown {
            arg = self.implicit(arg, element)?;
        }
        let all_named = operators_named(op);
        let Resolved::One(operator) = resolve_operator(all_named, &[arg.ty, element]) else {
            // The same operator between the value and an element says what is wrong.
            let stands = Typed::new(Expr::Const(Datum::Null), element, at);
            self.operator(op, vec![arg, stands], at)?;
            return Err(Error::unsupported(format!("operator {op} with ANY or ALL of an array")).at(at));
        };
        let &[own, theirs] = operator.args else { unreachable!("it was found by two arguments") };
        if operator.returns != Type::Bool {
            return Err(no_condition(at));
        }
        let arg = self.implicit(arg, own)?;
        let array = self.implicit(array, Self::array_type(theirs, at)?)?;
        let expr =
            Expr::AnyOf { call: operator.call, all, arg: Box::new(arg.expr), array: Box::new(array.expr) };
        Ok(Typed::new(expr, Type::Bool, at))
    }

    /// An operator with an array among its operands.
    pub(super) fn array_operator(&mut self, name: &str, args: &[Typed], at: u32) -> Result<Option<Typed>> {
        let found = self.array_operator_of(name, args, at);
        let types = self.types(args);
        found.map_err(|error| if error.code == "42804" { no_operator(name, &types).at(at) } else { error })
    }

    fn array_operator_of(&mut self, name: &str, args: &[Typed], at: u32) -> Result<Option<Typed>> {
        let [left, right] = args else { return Ok(None) };
        let array = match (left.ty.element(), right.ty.element()) {
            (None, None) => return Ok(None),
            (Some(_), _) => left.ty,
            (None, Some(_)) => right.ty,
        };
        let (mut left, mut right) = (left.clone(), right.clone());
        let mut a = array;
        if name == "||" {
            // Arrays and elements need only be compatible (`anycompatiblearray`).
            let one = |typed: &Typed| typed.ty.element().is_none() && typed.ty != Type::Unknown;
            let (before, behind) = (one(&left), one(&right));
            let elements: Vec<Typed> = [&left, &right]
                .into_iter()
                .filter(|side| side.ty != Type::Unknown)
                .map(|side| {
                    let ty = side.ty.element().unwrap_or(side.ty);
                    Typed::new(Expr::Const(Datum::Null), ty, side.at)
                })
                .collect();
            let element = self.common_type(&elements, "ARRAY")?;
            a = Self::array_type(element, at)?;
            let wrap = |binder: &mut Self, typed: Typed| -> Result<Typed> {
                let inner = binder.implicit(typed, element)?;
                Ok(Typed::new(made(vec![inner.expr]), a, at))
            };
            if before {
                left = wrap(self, left)?;
            }
            if behind {
                right = wrap(self, right)?;
            }
        }
        // The others take two arrays of one type (`anyarray`).
        if name != "||" && left.ty.element().zip(right.ty.element()).is_some_and(|(one, other)| one != other)
        {
            return Err(unknown_operator(name, &self.types(args)).at(at));
        }
        let (left, right) = (self.implicit(left, a)?, self.implicit(right, a)?);
        let both = vec![left.expr, right.expr];
        let comparison = match name {
            "=" => Some(Comparison::Equal),
            "<>" => Some(Comparison::NotEqual),
            "<" => Some(Comparison::Less),
            "<=" => Some(Comparison::LessEqual),
            ">" => Some(Comparison::Greater),
            ">=" => Some(Comparison::GreaterEqual),
            _ => None,
        };
        if let Some(comparison) = comparison {
            return Ok(Some(Typed::new(Expr::Call(Call::Compare(comparison), both), Type::Bool, at)));
        }
        Ok(Some(match name {
            "||" => Typed::new(Expr::Call(Call::All(joined), both), a, at),
            "@>" => Typed::new(Expr::Call(Call::Two(contains), both), Type::Bool, at),
            "<@" => {
                let flipped: Vec<Expr> = both.into_iter().rev().collect();
                Typed::new(Expr::Call(Call::Two(contains), flipped), Type::Bool, at)
            }
            "&&" => Typed::new(Expr::Call(Call::Two(overlaps), both), Type::Bool, at),
            _ => return Ok(None),
        }))
    }

    /// A function over arrays of any type.
    pub(super) fn array_function(&mut self, name: &str, args: &[Typed], at: u32) -> Result<Option<Typed>> {
        let types = self.types(args);
        let is_lost = match name {
            "array_length" | "array_upper" | "array_lower" | "array_ndims" | "cardinality"
            | "array_to_string" | "array_fill" => types.first() == Some(&Type::Unknown),
            _ => false,
        };
        if is_lost {
            return Err(no_polymorphic());
        }
        let found = self.array_function_of(name, args, at);
        found.map_err(|error| if error.code == "42804" { no_function(name, &types).at(at) } else { error })
    }

    /// The array type that functions have whose arrays and elements need only be compatible: the common one of all of them.
    fn compatible(&self, name: &str, args: &[Typed], at: u32) -> Result<Option<Type>> {
        let arrays: &[usize] = match (name, args.len()) {
            ("array_append" | "array_position" | "array_positions" | "array_remove", 2)
            | ("array_replace", 3) => &[0],
            ("array_prepend", 2) => &[1],
            ("array_cat", 2) => &[0, 1],
            _ => return Ok(None),
        };
        let mut elements = Vec::new();
        for (place, ty) in self.types(args).into_iter().enumerate() {
            let element =
                if arrays.contains(&place) && ty != Type::Unknown { ty.element() } else { Some(ty) };
            let Some(element) = element else { return Ok(None) };
            elements.push(Typed::new(Expr::Const(Datum::Null), element, at));
        }
        Self::array_type(self.common_type(&elements, name)?, at).map(Some)
    }

    fn array_function_of(&mut self, name: &str, args: &[Typed], at: u32) -> Result<Option<Typed>> {
        let array = match self.compatible(name, args, at)? {
            Some(array) => Some(array),
            None => args.iter().map(|arg| arg.ty).find(|ty| ty.element().is_some()),
        };
        let element = array.and_then(|array| array.element());
        if name == "string_to_array" && (2..=3).contains(&args.len()) {
            let mut exprs = Vec::new();
            for arg in args {
                exprs.push(self.implicit(arg.clone(), Type::Text)?.expr);
            }
            return Ok(Some(Typed::new(Expr::Call(Call::All(split), exprs), Type::TextArray, at)));
        }
        if name == "array_fill" && (2..=3).contains(&args.len()) {
            return self.filled(args, at).map(Some);
        }
        let (Some(element), Some(array)) = (element, array) else { return Ok(None) };
        // What each argument is: the array, an element, or a type of its own.
        let (call, returns, wanted): (Call, Type, Vec<Type>) = match (name, args.len()) {
            ("array_length" | "array_upper", 2) => (Call::Two(length), Type::Int4, vec![array, Type::Int4]),
            ("array_lower", 2) => (Call::Two(lower), Type::Int4, vec![array, Type::Int4]),
            ("array_ndims", 1) => (Call::One(dimensions), Type::Int4, vec![array]),
            ("cardinality", 1) => {
                (Call::One(|all| Ok(Datum::Int(items(all).len() as i64))), Type::Int4, vec![array])
            }
            ("array_position", 2) => (Call::All(position), Type::Int4, vec![array, element]),
            ("array_append", 2) => (Call::All(appended), array, vec![array, element]),
            ("array_prepend", 2) => (Call::All(prepended), array, vec![element, array]),
            ("array_cat", 2) => (Call::All(joined), array, vec![array, array]),
            ("array_replace", 3) => (Call::All(replaced), array, vec![array, element, element]),
            ("array_positions", 2) => (Call::All(positions), Type::Int4Array, vec![array, element]),
            ("array_remove", 2) => (Call::All(removed), array, vec![array, element]),
            ("array_to_string", 2 | 3) => {
                // Elements as they are written.
                let element = Expr::Output(Box::new(Expr::Column(0)), element);
                let mut exprs = if args[0].ty == Type::BpCharArray {
                    vec![Expr::Elements(Box::new(args[0].expr.clone()), Box::new(element))]
                } else {
                    vec![self.explicit(args[0].clone(), Type::TextArray, NO_MOD, at)?.expr]
                };
                for arg in &args[1..] {
                    exprs.push(self.implicit(arg.clone(), Type::Text)?.expr);
                }
                return Ok(Some(Typed::new(Expr::Call(Call::All(shown), exprs), Type::Text, at)));
            }
            _ => return Ok(None),
        };
        let mut exprs = Vec::new();
        for (arg, ty) in args.iter().zip(wanted) {
            exprs.push(self.implicit(arg.clone(), ty)?.expr);
        }
        Ok(Some(Typed::new(Expr::Call(call, exprs), returns, at)))
    }
}

impl Binder<'_> {
    /// `array_fill(value, lengths [, lower bounds])`.
    fn filled(&mut self, args: &[Typed], at: u32) -> Result<Typed> {
        let value = args[0].clone();
        let array = Self::array_type(value.ty, at)?;
        let mut exprs = vec![value.expr];
        for bounds in &args[1..] {
            exprs.push(self.implicit(bounds.clone(), Type::Int4Array)?.expr);
        }
        Ok(Typed::new(Expr::Call(Call::All(fill), exprs), array, at))
    }
}

fn no_condition(at: u32) -> Error {
    Error::new("42809", "op ANY/ALL (array) requires operator to yield boolean").at(at)
}

/// An array of these elements.
fn made(items: Vec<Expr>) -> Expr {
    Expr::Call(Call::All(|items, _| Ok(Datum::Array(items.into()))), items)
}

fn items(array: &Datum) -> &[Datum] {
    match array {
        Datum::Array(all) => all,
        other => unreachable!("an array is expected: {other:?}"),
    }
}

fn at_place(array: &Datum, place: &Datum) -> Made {
    let Datum::Int(place) = place else { unreachable!("the place is an integer") };
    let found = usize::try_from(*place - 1).ok().and_then(|place| items(array).get(place));
    Ok(found.cloned().unwrap_or(Datum::Null))
}

fn length(array: &Datum, dimension: &Datum) -> Made {
    let all = items(array);
    let first = matches!(dimension, Datum::Int(1));
    Ok(if first && !all.is_empty() { Datum::Int(all.len() as i64) } else { Datum::Null })
}

fn lower(array: &Datum, dimension: &Datum) -> Made {
    let first = matches!(dimension, Datum::Int(1));
    Ok(if first && !items(array).is_empty() { Datum::Int(1) } else { Datum::Null })
}

fn dimensions(array: &Datum) -> Made {
    Ok(if items(array).is_empty() { Datum::Null } else { Datum::Int(1) })
}

/// A null is found as well.
fn position(args: &[Datum], _: &Env<'_>) -> Made {
    if args[0].is_null() {
        return Ok(Datum::Null);
    }
    let found = items(&args[0]).iter().position(|item| *item == args[1]);
    Ok(found.map_or(Datum::Null, |place| Datum::Int(place as i64 + 1)))
}

/// A null joined to an array is nothing.
fn joined(args: &[Datum], _: &Env<'_>) -> Made {
    Ok(match (args[0].is_null(), args[1].is_null()) {
        (true, _) => args[1].clone(),
        (_, true) => args[0].clone(),
        _ => Datum::Array(items(&args[0]).iter().chain(items(&args[1])).cloned().collect()),
    })
}

fn appended(args: &[Datum], env: &Env<'_>) -> Made {
    joined(&[args[0].clone(), Datum::Array([args[1].clone()].into())], env)
}

fn prepended(args: &[Datum], env: &Env<'_>) -> Made {
    joined(&[Datum::Array([args[0].clone()].into()), args[1].clone()], env)
}

fn removed(args: &[Datum], _: &Env<'_>) -> Made {
    if args[0].is_null() {
        return Ok(Datum::Null);
    }
    Ok(Datum::Array(items(&args[0]).iter().filter(|item| **item != args[1]).cloned().collect()))
}

fn replaced(args: &[Datum], _: &Env<'_>) -> Made {
    if args[0].is_null() {
        return Ok(Datum::Null);
    }
    let one = |item: &Datum| if *item == args[1] { args[2].clone() } else { item.clone() };
    Ok(Datum::Array(items(&args[0]).iter().map(one).collect()))
}

fn positions(args: &[Datum], _: &Env<'_>) -> Made {
    if args[0].is_null() {
        return Ok(Datum::Null);
    }
    let places = items(&args[0]).iter().enumerate().filter(|(_, item)| **item == args[1]);
    Ok(Datum::Array(places.map(|(place, _)| Datum::Int(place as i64 + 1)).collect()))
}

/// An array of one value, whose lengths and lower bounds are given.
fn fill(args: &[Datum], env: &Env<'_>) -> Made {
    if args[1..].iter().any(Datum::is_null) {
        return Err(Error::new("22004", "dimension array or low bound array cannot be null"));
    }
    if args[1..].iter().any(|bounds| items(bounds).iter().any(Datum::is_null)) {
        return Err(Error::new("22004", "dimension values cannot be null"));
    }
    let bound = |at: usize| args.get(at).map(items);
    let length = match bound(1) {
        Some([Datum::Int(length)]) => *length,
        Some([]) => 0,
        _ => return Err(Error::unsupported("an array of several dimensions")),
    };
    if bound(2).is_some_and(|bounds| !matches!(bounds, [] | [Datum::Int(1)])) {
        return Err(Error::unsupported("an array with bounds of its own"));
    }
    if !(0..=MOST_ITEMS).contains(&length) {
        let message = format!("array size exceeds the maximum allowed ({MOST_ITEMS})");
        return Err(Error::new("54000", message));
    }
    env.context.memory.has_room_for(length as u64 * size_of::<Datum>() as u64)?;
    Ok(Datum::Array(std::iter::repeat_n(args[0].clone(), length as usize).collect()))
}

/// Nulls are in no array.
fn contains(array: &Datum, parts: &Datum) -> Made {
    let all = items(array);
    Ok(Datum::Bool(items(parts).iter().all(|part| !part.is_null() && all.contains(part))))
}

fn overlaps(array: &Datum, other: &Datum) -> Made {
    let all = items(array);
    Ok(Datum::Bool(items(other).iter().any(|part| !part.is_null() && all.contains(part))))
}

fn text(value: &Datum) -> &str {
    value.as_text().unwrap_or_else(|| unreachable!("a text is expected: {value:?}"))
}

/// `array_to_string`: nulls are left out unless it is said what stands for them.
fn shown(args: &[Datum], _: &Env<'_>) -> Made {
    if args[0].is_null() || args[1].is_null() {
        return Ok(Datum::Null);
    }
    let instead = args.get(2).filter(|instead| !instead.is_null()).map(text);
    let parts =
        items(&args[0]).iter().filter_map(|item| if item.is_null() { instead } else { Some(text(item)) });
    Ok(Datum::text(parts.collect::<Vec<_>>().join(text(&args[1]))))
}

/// `string_to_array`: without a delimiter, sign by sign.
fn split(args: &[Datum], _: &Env<'_>) -> Made {
    if args[0].is_null() {
        return Ok(Datum::Null);
    }
    let whole = text(&args[0]);
    let null = args.get(2).filter(|null| !null.is_null()).map(text);
    let part = |part: &str| if Some(part) == null { Datum::Null } else { Datum::text(part) };
    Ok(Datum::Array(match &args[1] {
        _ if whole.is_empty() => [].into(),
        Datum::Null => whole.chars().map(|sign| part(sign.encode_utf8(&mut [0; 4]))).collect(),
        delimiter if text(delimiter).is_empty() => [part(whole)].into(),
        delimiter => whole.split(text(delimiter)).map(part).collect(),
    }))
}
