//! Calls: functions, operators and aggregates, by the types of their arguments.

use super::coerce::in_form;
use super::query::{has_equality, has_order};
use super::scope::Barred;
use super::{Binder, Typed};
use crate::error::{Error, Result, nearest};
use crate::expr::{Call, Comparison, Expr, Made};
use crate::functions::aggregates::{Aggregate, aggregates_named, is_aggregate};
use crate::functions::{
    Resolved, function_names, functions_named, is_elsewhere, is_type_elsewhere, operators_named, resolve,
    resolve_operator,
};
use crate::parser::ast;
use crate::plan::{AggregateCall, SortKey};
use crate::types::{Datum, Shape, Type};

impl Binder<'_> {
    /// The types of arguments, with what is known of parameters by now.
    pub(super) fn types(&self, args: &[Typed]) -> Vec<Type> {
        let ty = |typed: &Typed| match typed.expr {
            Expr::Param(index) if typed.ty == Type::Unknown => self.parameters[index],
            _ => typed.ty,
        };
        args.iter().map(ty).collect()
    }

    /// An operator with one or two operands.
    pub(super) fn operator(&mut self, name: &str, args: Vec<Typed>, at: u32) -> Result<Typed> {
        if let [left, right] = &args[..]
            && left.ty == Type::Record
            && right.ty == Type::Record
        {
            let [left, right] = <[Typed; 2]>::try_from(args).expect("there are two");
            return self.compare_records(name, left, right, at);
        }
        // Operators of JSON take arrays of texts, too.
        if !args.iter().any(|arg| arg.ty.is_json())
            && let Some(found) = self.array_operator(name, &args, at)?
        {
            return Ok(found);
        }
        let types = self.types(&args);
        let all = operators_named(name);
        match resolve_operator(all, &types) {
            Resolved::One(operator) => {
                let mut exprs = Vec::with_capacity(args.len());
                for (arg, ty) in args.into_iter().zip(operator.args) {
                    exprs.push(self.implicit(arg, *ty)?.expr);
                }
                Ok(Typed::new(
                    in_form(Expr::Call(operator.call, exprs), operator.returns),
                    operator.returns,
                    at,
                ))
            }
            // Text and anything: the other side is written as text.
            Resolved::None
                if name == "||"
                    && types.len() == 2
                    && types.iter().any(|ty| ty.is_string() || *ty == Type::Unknown) =>
            {
                let mut exprs = Vec::new();
                for arg in args {
                    exprs.push(self.as_text(arg)?);
                }
                let operator = all.iter().find(|operator| operator.args == [Type::Text, Type::Text]);
                let call = operator.expect("texts are joined by ||").call;
                Ok(Typed::new(Expr::Call(call, exprs), Type::Text, at))
            }
            Resolved::None => Err(no_operator(name, &types).at(at)),
            Resolved::Ambiguous => {
                let message = format!("operator is not unique: {}", shown_operator(name, &types));
                Err(Error::new("42725", message).at(at).hint(
                    "Could not choose a best candidate operator. You might need to add explicit type casts.",
                ))
            }
        }
    }

    fn as_text(&mut self, arg: Typed) -> Result<Expr> {
        if arg.ty.is_string() || arg.ty == Type::Unknown {
            return Ok(self.implicit(arg, Type::Text)?.expr);
        }
        let at = arg.at;
        Ok(self.explicit(arg, Type::Text, -1, at)?.expr)
    }

    /// Fields are compared one by one, each pair by its own operator's types.
    fn compare_records(&mut self, name: &str, left: Typed, right: Typed, at: u32) -> Result<Typed> {
        let comparison = comparison_of(name, at)?;
        let (Expr::Record(lefts, left_shape), Expr::Record(rights, right_shape)) = (&left.expr, &right.expr)
        else {
            return Self::compare_values(name, left, right, at);
        };
        if lefts.len() != rights.len() {
            return Err(Error::new("42601", "unequal number of entries in row expressions").at(at));
        }
        // One that has become an element of an array has the types of its shape alone.
        let types = |typed: &Typed, shape: &Shape| match typed.fields.len() == shape.types.len() {
            true => typed.fields.clone(),
            false => shape.types.clone(),
        };
        let (left_types, right_types) = (types(&left, left_shape), types(&right, right_shape));
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let mut nested = Vec::new();
        for place in 0..lefts.len() {
            let (left, left_ty) = (&lefts[place], left_types[place]);
            let (right, right_ty) = (&rights[place], right_types[place]);
            let both = vec![Typed::field(left, left_ty, at), Typed::field(right, right_ty, at)];
            if both.iter().all(|field| field.ty == Type::Record) {
                // A row value within another one is compared as a value.
                nested.push(place);
                a.push(left.clone());
                b.push(right.clone());
                continue;
            }
            let compared = self.operator(name, both, at)?;
            let Expr::Call(_, sides) = compared.expr else {
                return Err(Error::unsupported("a comparison of nested row values").at(at));
            };
            let mut sides = sides.into_iter();
            a.extend(sides.next());
            b.extend(sides.next());
        }
        if comparison == Comparison::Equal && !nested.is_empty() {
            // A condition that consists of terms: equal fields may be keys of a join, and a nested row value is none.
            let terms = a.into_iter().zip(b).enumerate().map(|(place, (left, right))| {
                let call = match nested.contains(&place) {
                    true => Call::Two(|a, b| compare_as_values(Comparison::Equal, a, b)),
                    false => Call::Compare(Comparison::Equal),
                };
                Expr::Call(call, vec![left, right])
            });
            return Ok(Typed::new(Expr::And(terms.collect()), Type::Bool, at));
        }
        let shape = Shape::unnamed(vec![Type::Record; a.len()]);
        let args = vec![Expr::Record(a, shape.clone()), Expr::Record(b, shape)];
        Ok(Typed::new(Expr::Call(Call::Compare(comparison), args), Type::Bool, at))
    }

    /// Row values as values, in which nulls are equal (`record_cmp`).
    pub(super) fn compare_values(name: &str, left: Typed, right: Typed, at: u32) -> Result<Typed> {
        let call = match comparison_of(name, at)? {
            Comparison::Equal => Call::Two(|a, b| compare_as_values(Comparison::Equal, a, b)),
            Comparison::NotEqual => Call::Two(|a, b| compare_as_values(Comparison::NotEqual, a, b)),
            Comparison::Less => Call::Two(|a, b| compare_as_values(Comparison::Less, a, b)),
            Comparison::LessEqual => Call::Two(|a, b| compare_as_values(Comparison::LessEqual, a, b)),
            Comparison::Greater => Call::Two(|a, b| compare_as_values(Comparison::Greater, a, b)),
            Comparison::GreaterEqual => Call::Two(|a, b| compare_as_values(Comparison::GreaterEqual, a, b)),
        };
        Ok(Typed::new(Expr::Call(call, vec![left.expr, right.expr]), Type::Bool, at))
    }

    pub(super) fn call(&mut self, call: &ast::Call, at: u32) -> Result<Typed> {
        let name = match &call.name[..] {
            [schema, name] if schema == "pg_catalog" => name.as_str(),
            [schema, name] if schema == "information_schema" && name == "_pg_expandarray" => name.as_str(),
            [name] => name.as_str(),
            names => {
                return Err(
                    Error::new("42883", format!("function {}() does not exist", names.join("."))).at(at)
                );
            }
        };
        if let Some(over) = &call.over {
            return self.window_call(name, call, over, at);
        }
        if is_aggregate(name) {
            return self.aggregate(name, call, at);
        }
        if super::window::window_function(name).is_some() {
            let message = format!("window function {name} requires an OVER clause");
            return Err(Error::new("42809", message).at(at));
        }
        if call.distinct || !call.order.is_empty() || call.filter.is_some() || call.star {
            let message =
                format!("DISTINCT, ORDER BY, FILTER or * specified, but {name} is not an aggregate function");
            return Err(Error::new("42809", message).at(at));
        }
        if crate::functions::is_volatile(name) {
            self.volatile += 1;
        }
        if let Some(found) = self.sequence_function(name, &call.args, at)? {
            return Ok(found);
        }
        if let Some(found) = self.json_function(name, &call.args, at)? {
            return Ok(found);
        }
        let mut args = Vec::with_capacity(call.args.len());
        for arg in &call.args {
            args.push(self.expr(arg)?);
        }
        match name {
            "timezone" if args.get(1).is_some_and(|arg| arg.ty == Type::Time) => {
                return Err(
                    Error::unsupported("AT TIME ZONE of a time, which makes a time with time zone,").at(at)
                );
            }
            "concat" | "concat_ws" | "format" => return self.concat(name, args, at),
            "pg_typeof" if args.len() == 1 => {
                self.mute(&args[0]);
                return Ok(Typed::constant(Datum::Int(args[0].ty.oid().into()), Type::Regtype, at));
            }
            _ => {}
        }
        if let Some(found) = self.set_in_expression(name, &args, at)? {
            return Ok(found);
        }
        if let Some(found) = self.array_function(name, &args, at)? {
            return Ok(found);
        }
        if let Some(found) = self.system_function(name, &args, at)? {
            return Ok(found);
        }
        Ok(Self::or_null(self.function(name, args, at)?))
    }

    /// A value whose type nothing has said is a text.
    pub(super) fn implicit_text(&mut self, typed: Typed) -> Result<Typed> {
        if typed.ty == Type::Unknown { self.implicit(typed, Type::Text) } else { Ok(typed) }
    }

    pub(super) fn function(&mut self, name: &str, args: Vec<Typed>, at: u32) -> Result<Typed> {
        let types = self.types(&args);
        let all = functions_named(name);
        self.asks |= crate::functions::session::asks_session(name);
        match resolve(all, &types, |function| function.args) {
            Resolved::One(function) => {
                let mut exprs = Vec::with_capacity(args.len());
                for (arg, ty) in args.into_iter().zip(function.args) {
                    exprs.push(self.implicit(arg, *ty)?.expr);
                }
                Ok(Typed::new(
                    in_form(Expr::Call(function.call, exprs), function.returns),
                    function.returns,
                    at,
                ))
            }
            Resolved::None => {
                // A type's name as a function is a cast.
                if let ([_], Some(ty)) = (&args[..], Type::from_name(name)) {
                    let arg = args.into_iter().next().expect("there is one");
                    return self.explicit(arg, ty, -1, at);
                }
                let error = no_function(name, &types).at(at);
                if error.code == "0A000" {
                    return Err(error);
                }
                let near = nearest(name, function_names()).filter(|near| *near != name && all.is_empty());
                Err(match near {
                    Some(near) => error.hint(format!("Perhaps you meant the function \"{near}\".")),
                    None => error.hint(NO_FUNCTION),
                })
            }
            Resolved::Ambiguous => Err(ambiguous(name, &types).at(at)),
        }
    }

    /// Takes anything, and writes it as text.
    fn concat(&mut self, name: &str, args: Vec<Typed>, at: u32) -> Result<Typed> {
        if args.is_empty() || (name == "concat_ws" && args.len() < 2) {
            let types = self.types(&args);
            return Err(no_function(name, &types).at(at));
        }
        let mut exprs = Vec::with_capacity(args.len());
        for (place, arg) in args.into_iter().enumerate() {
            let is_any = name == "concat" || place > 0;
            let arg = if is_any { self.mute_text(arg)? } else { arg };
            // Its output, not its cast.
            if matches!(arg.ty, Type::Bool | Type::BpChar) {
                exprs.push(Expr::Output(Box::new(arg.expr), arg.ty));
            } else {
                exprs.push(self.as_text(arg)?);
            }
        }
        let call = crate::functions::concat_call(name);
        Ok(Typed::new(Expr::Call(call, exprs), Type::Text, at))
    }

    fn aggregate(&mut self, name: &str, call: &ast::Call, at: u32) -> Result<Typed> {
        let level = self.level_of_aggregate(call);
        if level + 1 < self.frames.len() {
            return self.aggregate_of(level, name, call, at);
        }
        if let Some(clause) = self.frame().no_aggregates {
            return Err(
                Error::new("42803", format!("aggregate functions are not allowed in {clause}")).at(at)
            );
        }
        let Some(group) = self.frame().group.as_mut() else {
            return Err(Error::new("42803", "aggregate functions are not allowed here").at(at));
        };
        if std::mem::replace(&mut group.inside, true) {
            return Err(Error::new("42803", "aggregate function calls cannot be nested").at(at));
        }
        let bound = self.aggregate_inside(name, call, at);
        let group = self.frame().group.as_mut().expect("grouping was there before");
        group.inside = false;
        let (aggregate, ty) = bound?;
        // The same call twice is computed once.
        let written = ast::Expr { at, depth: 1, kind: ast::ExprKind::Call(Box::new(call.clone())) };
        let known = group.as_written.iter().position(|(other, _)| *other == written);
        let place = known.unwrap_or_else(|| {
            group.calls.push(aggregate);
            group.as_written.push((written, ty));
            group.calls.len() - 1
        });
        let column = group.keys.len() + place;
        Ok(Typed::new(Expr::Column(column), ty, at))
    }

    /// An aggregate of a query around the present one, whose columns alone it is made of.
    fn aggregate_of(&mut self, level: usize, name: &str, call: &ast::Call, at: u32) -> Result<Typed> {
        let frame = &self.frames[level];
        if frame.no_aggregates.is_none() && frame.group.is_none() {
            self.regroup = Some(level);
            return Err(Error::new("42803", "aggregate functions are not allowed here").at(at));
        }
        let inner = self.frames.split_off(level + 1);
        let bound = self.aggregate(name, call, at);
        self.frames.extend(inner);
        Ok(self.brought_in(bound?, level))
    }

    fn aggregate_inside(&mut self, name: &str, call: &ast::Call, at: u32) -> Result<(AggregateCall, Type)> {
        // Sub-queries of the arguments are answered before grouping.
        self.change_subs();
        let bound = self.barring(Barred::Aggregate, |binder| binder.aggregate_parts(name, call, at));
        self.change_subs();
        bound
    }

    /// Puts the sub-queries of aggregates where those of the query are collected, and those there.
    fn change_subs(&mut self) {
        let frame = self.frame();
        if let Some(group) = &mut frame.group {
            std::mem::swap(&mut frame.subs, &mut group.subs);
        }
    }

    pub(super) fn aggregate_parts(
        &mut self,
        name: &str,
        call: &ast::Call,
        at: u32,
    ) -> Result<(AggregateCall, Type)> {
        if let Some(made) = self.json_aggregate(name, call)? {
            return Ok(made);
        }
        let mut args = Vec::new();
        for arg in &call.args {
            args.push(self.expr(arg)?);
        }
        let types = self.types(&args);
        let (aggregate, wanted, ty): (Aggregate, Vec<Type>, Type) = if call.star {
            if name != "count" {
                return Err(no_function(name, &[]).at(at));
            }
            (Aggregate::CountAll, Vec::new(), Type::Int8)
        } else {
            if name == "array_agg" && types.len() == 1 {
                let element = types[0];
                if element == Type::Unknown {
                    return Err(ambiguous(name, &types).at(at));
                }
                let array = Self::array_type(element, at)?;
                return self.aggregate_call(call, (Aggregate::Array, vec![element], array), args);
            }
            let rows = aggregates_named(name);
            let any = rows.iter().find(|row| row.1 == [Type::Unknown] && types.len() == 1);
            if name == "count" && !call.distinct {
                args = args.into_iter().map(|arg| self.mute_text(arg)).collect::<Result<_>>()?;
            }
            match any {
                Some(row) => {
                    let arg = if types[0] == Type::Unknown { Type::Text } else { types[0] };
                    let min_max = row.2 == Type::Unknown;
                    if min_max
                        && matches!(
                            arg,
                            Type::Bool | Type::Uuid | Type::Bytea | Type::Record | Type::Json | Type::Jsonb
                        )
                    {
                        return Err(no_function(name, &types).at(at).hint(NO_FUNCTION));
                    }
                    let arg = if min_max && arg == Type::Varchar { Type::Text } else { arg };
                    (row.3, vec![arg], if min_max { arg } else { row.2 })
                }
                None => match resolve(rows, &types, |row| row.1) {
                    Resolved::One(row) => (row.3, row.1.to_vec(), row.2),
                    Resolved::None => {
                        return Err(no_function(name, &types).at(at).hint(NO_FUNCTION));
                    }
                    Resolved::Ambiguous => {
                        return Err(ambiguous(name, &types).at(at));
                    }
                },
            }
        };
        self.aggregate_call(call, (aggregate, wanted, ty), args)
    }

    /// The call of an aggregate whose types are known.
    pub(super) fn aggregate_call(
        &mut self,
        call: &ast::Call,
        (aggregate, wanted, ty): (Aggregate, Vec<Type>, Type),
        args: Vec<Typed>,
    ) -> Result<(AggregateCall, Type)> {
        let mut exprs = Vec::new();
        let place_of = |expr: &Expr| match expr {
            Expr::Column(place) | Expr::Outer(place) => Some((*place, matches!(expr, Expr::Outer(_)))),
            _ => None,
        };
        let places: Vec<_> = args.iter().map(|arg| place_of(&arg.expr)).filter(Option::is_some).collect();
        for (arg, ty) in args.into_iter().zip(wanted) {
            if call.distinct {
                has_equality(ty, arg.at)?;
            }
            exprs.push(if ty == Type::Record { arg.expr } else { self.implicit(arg, ty)?.expr });
        }
        let filter = match &call.filter {
            Some(filter) => {
                let clause = Barred::Clause("FILTER");
                Some(self.barring(clause, |binder| binder.condition(filter, "FILTER"))?)
            }
            None => None,
        };
        let mut order = Vec::new();
        for item in &call.order {
            let typed = self.expr(&item.expr)?;
            // Rows that are alike have one place in the order.
            if call.distinct && !call.args.contains(&item.expr) && !places.contains(&place_of(&typed.expr)) {
                let message =
                    "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
                return Err(Error::new("42P10", message).at(item.expr.at));
            }
            let typed = if typed.ty == Type::Unknown { self.implicit(typed, Type::Text)? } else { typed };
            has_order(typed.ty, item.expr.at)?;
            order.push(SortKey {
                expr: typed.expr,
                descending: item.descending,
                nulls_first: item.nulls_first,
            });
        }
        let distinct = call.distinct;
        Ok((AggregateCall { aggregate, args: exprs, each: Vec::new(), distinct, filter, order }, ty))
    }
}

/// The comparison that row values have by this name.
fn comparison_of(name: &str, at: u32) -> Result<Comparison> {
    let found = operators_named(name).iter().find_map(|operator| match operator.call {
        Call::Compare(comparison) => Some(comparison),
        _ => None,
    });
    found.ok_or_else(|| no_operator(name, &[Type::Record, Type::Record]).at(at))
}

/// Compares two row values as values, of whatever fields.
fn compare_as_values(comparison: Comparison, a: &Datum, b: &Datum) -> Made {
    if let (Datum::Record(a), Datum::Record(b)) = (a, b) {
        a.may_compare(b)?;
    }
    Ok(Datum::Bool(comparison.holds(a.compare(b))))
}

/// An operator that these types do not have, or one that PostgreSQL alone has.
pub(super) fn no_operator(name: &str, types: &[Type]) -> Error {
    if is_elsewhere(name, types) {
        return Error::unsupported(format!("operator {}", shown_operator(name, types)));
    }
    unknown_operator(name, types)
}

/// An operator that these types do not have.
pub(super) fn unknown_operator(name: &str, types: &[Type]) -> Error {
    let error = Error::new("42883", format!("operator does not exist: {}", shown_operator(name, types)));
    error.hint(
        "No operator matches the given name and argument types. You might need to add explicit type casts.",
    )
}

fn shown_operator(name: &str, types: &[Type]) -> String {
    match types {
        [arg] => format!("{name} {}", arg.sql_name()),
        [left, right] => format!("{} {name} {}", left.sql_name(), right.sql_name()),
        _ => name.to_owned(),
    }
}

/// A function that these types do not have, or one that PostgreSQL alone has.
pub(super) fn no_function(name: &str, types: &[Type]) -> Error {
    let is_cast = types.len() == 1 && Type::from_name(name).is_none() && is_type_elsewhere(name);
    if is_elsewhere(name, types) || is_cast {
        return Error::unsupported(format!("function {}", shown_function(name, types)));
    }
    Error::new("42883", format!("function {} does not exist", shown_function(name, types)))
}

/// Several functions fit equally well.
pub(super) fn ambiguous(name: &str, types: &[Type]) -> Error {
    Error::new("42725", format!("function {} is not unique", shown_function(name, types)))
        .hint("Could not choose a best candidate function. You might need to add explicit type casts.")
}

/// An argument without a type does not say which array or element another one is.
pub(super) fn no_polymorphic() -> Error {
    Error::new("42804", "could not determine polymorphic type because input has type unknown")
}

const NO_FUNCTION: &str =
    "No function matches the given name and argument types. You might need to add explicit type casts.";

fn shown_function(name: &str, types: &[Type]) -> String {
    let types: Vec<&str> = types.iter().map(|ty| ty.sql_name()).collect();
    format!("{name}({})", types.join(", "))
}
