//! Casts: of literals and parameters to what their surroundings want, of values to columns, and the common type of several.

use super::{Binder, Typed};
use crate::error::{Error, Result};
use crate::expr::{Call, Expr};
use crate::functions::{CastHow, Context, cast, is_coercible};
use crate::parser::ast::TypeName;
use crate::types::{Category, Datum, NO_MOD, Type, Zone, numeric_mod, text};

impl Binder<'_> {
    /// The type and modifier that a name means.
    pub(crate) fn type_of(name: &TypeName) -> Result<(Type, i32)> {
        if name.array {
            let (element, modifier) = Self::type_of(&TypeName { array: false, ..name.clone() })?;
            let array = element.array();
            let refused = || Error::unsupported(format!("an array of {}", element.sql_name())).at(name.at);
            return Ok((array.ok_or_else(refused)?, modifier));
        }
        let bare = match &name.name[..] {
            [schema, bare] if schema == "pg_catalog" => bare,
            [interval, fields] if interval == "interval" && fields == "fields" => {
                let digits = name.mods.get(1).map_or(0, |digits| digits.clamp(&0, &6) + 1);
                return Ok((Type::Interval, (digits << 8 | name.mods[0]) as i32));
            }
            names => names.last().expect("a name has a part"),
        };
        let Some(ty) = Type::from_name(bare) else {
            if crate::functions::is_type_elsewhere(bare) {
                return Err(Error::unsupported(format!("type {bare}")).at(name.at));
            }
            let error = Error::new("42704", format!("type \"{bare}\" does not exist")).at(name.at);
            return Err(match crate::error::nearest(bare, Type::names()) {
                Some(near) => error.hint(format!("Perhaps you meant the type \"{near}\".")),
                None => error,
            });
        };
        Ok((ty, modifier(ty, name)?))
    }

    /// The expression as a value of the type, if the context allows it.
    pub(super) fn coerce(
        &mut self,
        from: Typed,
        to: Type,
        modifier: i32,
        context: Context,
    ) -> Result<Option<Typed>> {
        let at = from.at;
        if to.is_registered()
            && (from.ty == Type::Unknown || (from.ty.is_string() && context == Context::Explicit))
        {
            return self.registered(from, to).map(Some);
        }
        if from.ty.is_registered() && to.is_string() && context >= Context::Assignment {
            let shown = self.shown_registered(from);
            return self.coerce(shown, to, modifier, context);
        }
        if from.ty == Type::Unknown {
            if let Expr::Param(index) = from.expr {
                if to != Type::Unknown && self.parameters[index] == Type::Unknown {
                    self.parameters[index] = to;
                }
                let known = Typed { ty: self.parameters[index], ..from };
                return if known.ty == Type::Unknown {
                    Ok(Some(known))
                } else {
                    self.coerce(known, to, modifier, context)
                };
            }
            if to == Type::Unknown {
                return Ok(Some(from));
            }
            if let Expr::Const(value) = &from.expr {
                let value = match value {
                    Datum::Text(literal) => {
                        let fields = if to == Type::Interval { modifier } else { NO_MOD };
                        let read = text::input(literal, to, fields, &self.literals())
                            .map_err(|error| error.at(at))?;
                        let relative = is_relative(literal, to);
                        let zoned = to.shows_zone() && !self.literals().zone.is_utc();
                        match &mut self.moments {
                            Some(moments) if self.kept.is_none() => {
                                self.has_read_now |= relative;
                                if relative || zoned {
                                    moments.push((at, text::show(&read, to, &Zone::UTC)));
                                }
                            }
                            // What depends on the time is read when the statement runs.
                            _ if relative => {
                                let expr = Expr::Input(Box::new(from.expr), to, fields);
                                return Ok(Some(fitted(Typed::new(expr, to, at), modifier, context)));
                            }
                            _ => {}
                        }
                        read
                    }
                    _ => Datum::Null,
                };
                let typed = fitted(Typed::constant(value, to, at), modifier, context);
                return self.folded(typed).map(Some);
            }
        }
        let Some(how) = cast(from.ty, to, context) else { return Ok(None) };
        let known = from.modifier;
        let arg = from.expr;
        let mut typed = match how {
            CastHow::Nothing => Typed { expr: arg, ..from },
            CastHow::Relabel => Typed::new(arg, to, at),
            CastHow::By(call) => Typed::new(Expr::Call(call, vec![arg]), to, at),
            CastHow::Input => Typed::new(Expr::Input(Box::new(arg), to, NO_MOD), to, at),
            CastHow::Output => {
                let expr = Expr::Output(Box::new(arg), from.ty);
                Typed::new(in_form(expr, to), to, at)
            }
            CastHow::Elements => {
                let (one, other) = from.ty.element().zip(to.element()).expect("both are arrays");
                let element = Typed::new(Expr::Column(0), one, at);
                let each = self.coerce(element, other, NO_MOD, context)?.expect("elements are cast so");
                Typed::new(Expr::Elements(Box::new(arg), Box::new(each.expr)), to, at)
            }
        };
        if modifier != NO_MOD && !(matches!(how, CastHow::Nothing) && known == modifier) {
            typed = fitted(typed, modifier, context);
        } else if !matches!(how, CastHow::Nothing) {
            typed.modifier = NO_MOD;
        }
        // What depends on the session's zone is no constant.
        let constant = matches!(&typed.expr, Expr::Call(call, args) if call.is_constant() && args.iter().all(Expr::is_const))
            || matches!(&typed.expr, Expr::Fit(arg, ..) if arg.is_const())
            || matches!(&typed.expr, Expr::Output(arg, ty) if arg.is_const() && !ty.shows_zone());
        if constant { self.folded(typed).map(Some) } else { Ok(Some(typed)) }
    }

    /// A constant expression as its value; one that fails is left to fail when it runs.
    fn folded(&mut self, mut typed: Typed) -> Result<Typed> {
        if !typed.expr.is_const() {
            let context = crate::expr::Context::default();
            let env = crate::expr::Env { row: &[], outer: &[], context: &context };
            match typed.expr.eval(&env) {
                Ok(value) => typed.expr = Expr::Const(value),
                Err(_) => return Ok(typed),
            }
        }
        Ok(typed)
    }

    /// A function or an operator that answers null for a null, as null where an argument is the constant null: what stands beside it
    /// is not evaluated (`eval_const_expressions`). A constant that fails does so first.
    pub(super) fn or_null(mut typed: Typed) -> Typed {
        if let Expr::Call(call, args) = &typed.expr
            && !matches!(call, Call::None(_) | Call::All(_))
            && args.iter().any(|arg| matches!(arg, Expr::Const(Datum::Null)))
            // Columns beside it do not fail; a comparison of one with null is known to those that choose an index.
            && args.iter().any(|arg| !matches!(arg, Expr::Const(_) | Expr::Column(_) | Expr::Outer(_) | Expr::Param(_)))
            && !args.iter().any(has_failing_constant)
        {
            typed.expr = Expr::Const(Datum::Null);
        }
        typed
    }

    /// An argument of a function or operator.
    pub(super) fn implicit(&mut self, from: Typed, to: Type) -> Result<Typed> {
        let (at, ty) = (from.at, from.ty);
        self.coerce(from, to, NO_MOD, Context::Implicit)?.ok_or_else(|| {
            let (from, to) = (ty.sql_name(), to.sql_name());
            Error::new("42804", format!("cannot convert type {from} to {to}")).at(at)
        })
    }

    /// `CAST`.
    pub(super) fn explicit(&mut self, from: Typed, to: Type, modifier: i32, at: u32) -> Result<Typed> {
        let ty = from.ty;
        self.coerce(from, to, modifier, Context::Explicit)?.ok_or_else(|| {
            let (from, to) = (ty.sql_name(), to.sql_name());
            Error::new("42846", format!("cannot cast type {from} to {to}")).at(at)
        })
    }

    /// A condition.
    pub(super) fn boolean(&mut self, from: Typed, what: &str) -> Result<Expr> {
        let (at, ty) = (from.at, from.ty);
        match self.coerce(from, Type::Bool, NO_MOD, Context::Implicit)? {
            Some(typed) => Ok(typed.expr),
            None => {
                let found = ty.sql_name();
                Err(Error::new("42804", format!("argument of {what} must be type boolean, not type {found}"))
                    .at(at))
            }
        }
    }

    /// The type that several expressions have together (`select_common_type`).
    pub(super) fn common_type(&self, all: &[Typed], what: &str) -> Result<Type> {
        let ty_of = |typed: &Typed| match typed.expr {
            Expr::Param(index) if typed.ty == Type::Unknown => self.parameters[index],
            _ => typed.ty,
        };
        let Some(first) = all.first() else { return Ok(Type::Text) };
        if ty_of(first) != Type::Unknown && all.iter().all(|typed| ty_of(typed) == ty_of(first)) {
            return Ok(ty_of(first));
        }
        let mut best = Type::Unknown;
        for typed in all {
            let ty = ty_of(typed);
            if ty == Type::Unknown || ty == best {
                continue;
            }
            if best == Type::Unknown {
                best = ty;
            } else if ty.category() != best.category() {
                let message =
                    format!("{what} types {} and {} cannot be matched", best.sql_name(), ty.sql_name());
                return Err(Error::new("42804", message).at(typed.at));
            } else if !best.is_preferred() && is_coercible(best, ty) && !is_coercible(ty, best) {
                best = ty;
            }
        }
        Ok(if best == Type::Unknown { Type::Text } else { best })
    }

    /// All expressions at their common type.
    pub(super) fn unify(&mut self, all: Vec<Typed>, what: &str) -> Result<(Vec<Expr>, Type, i32)> {
        let ty = self.common_type(&all, what)?;
        let modifier = common_modifier(&all, ty);
        let mut exprs = Vec::with_capacity(all.len());
        for typed in all {
            exprs.push(self.as_common(typed, ty, what)?.expr);
        }
        Ok((exprs, ty, modifier))
    }

    pub(super) fn as_common(&mut self, typed: Typed, ty: Type, what: &str) -> Result<Typed> {
        let (at, from) = (typed.at, typed.ty);
        let found = self.coerce(typed, ty, NO_MOD, Context::Implicit)?;
        found.ok_or_else(|| {
            let message = format!("{what} could not convert type {} to {}", from.sql_name(), ty.sql_name());
            Error::new("42846", message).at(at)
        })
    }
}

/// The modifier that all of them have.
pub(super) fn common_modifier(all: &[Typed], ty: Type) -> i32 {
    match all.split_first() {
        Some((first, rest))
            if first.ty == ty && rest.iter().all(|it| it.ty == ty && it.modifier == first.modifier) =>
        {
            first.modifier
        }
        _ => NO_MOD,
    }
}

/// The expression, which makes texts, with these in the form of the type's values.
pub(super) fn in_form(expr: Expr, ty: Type) -> Expr {
    match ty {
        Type::BpChar => Expr::Call(Call::One(|value| Ok(value.clone().in_form_of(Type::BpChar))), vec![expr]),
        Type::Jsonb => Expr::Call(Call::One(|value| Ok(value.clone().in_form_of(Type::Jsonb))), vec![expr]),
        _ => expr,
    }
}

/// Is there a constant in it that has no value, such as `1 / 0`?
fn has_failing_constant(expr: &Expr) -> bool {
    let context = crate::expr::Context::default();
    let env = crate::expr::Env { row: &[], outer: &[], context: &context };
    let mut fails = false;
    expr.walk(&mut |node| fails |= Binder::is_constant(node) && node.eval(&env).is_err());
    fails
}

fn fitted(mut typed: Typed, modifier: i32, context: Context) -> Typed {
    if modifier != NO_MOD {
        let (ty, explicit) = (typed.ty, context == Context::Explicit);
        typed.expr = Expr::Fit(Box::new(typed.expr), ty, modifier, explicit);
        typed.modifier = modifier;
    }
    typed
}

/// Does the literal mean another time at each run?
fn is_relative(literal: &str, ty: Type) -> bool {
    ty.category() == Category::DateTime
        && ["now", "today", "tomorrow", "yesterday"]
            .iter()
            .any(|word| literal.to_ascii_lowercase().contains(word))
}

/// The modifier of a type as written.
fn modifier(ty: Type, name: &TypeName) -> Result<i32> {
    let bad = |message: String| Err(Error::new("22023", message).at(name.at));
    Ok(match (ty, &name.mods[..]) {
        (_, []) => NO_MOD,
        (Type::Numeric, [precision, rest @ ..]) => {
            let scale = rest.first().copied().unwrap_or(0);
            if !(1..=1000).contains(precision) {
                return bad(format!("NUMERIC precision {precision} must be between 1 and 1000"));
            }
            if !(-1000..=1000).contains(&scale) {
                return bad(format!("NUMERIC scale {scale} must be between -1000 and 1000"));
            }
            numeric_mod(*precision as i32, scale as i32)
        }
        (Type::Varchar | Type::BpChar, [length]) => {
            let shown = if ty == Type::Varchar { "varchar" } else { "char" };
            if *length < 1 {
                return bad(format!("length for type {shown} must be at least 1"));
            }
            if *length > 10_485_760 {
                return bad(format!("length for type {shown} cannot exceed 10485760"));
            }
            *length as i32 + 4
        }
        (Type::Time | Type::Timestamp | Type::TimestampTz, [digits]) => (*digits).clamp(0, 6) as i32,
        (Type::Interval, [digits]) => ((digits.clamp(&0, &6) + 1) << 8 | 5) as i32,
        _ => {
            let shown = ty.sql_name();
            return Err(
                Error::new("42601", format!("type modifier is not allowed for type \"{shown}\"")).at(name.at)
            );
        }
    })
}
