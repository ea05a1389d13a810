//! Expressions.

use std::collections::HashSet;
use std::sync::Arc;

use super::scope::Barred;
use super::sets::SETS;
use super::{Binder, Mentions, SUB_BASE, Typed};
use crate::depth;
use crate::error::{Error, Result};
use crate::expr::{Call, Comparison, Expr};
use crate::functions::{Context, Resolved, operators_named, resolve_operator};
use crate::parser::ast::{self, ExprKind, Like, Quantified};
use crate::plan::{Sub, SubKind};
use crate::types::{Datum, NO_MOD, Numeric, Shape, Type};

/// From so many constants on a list is looked up by hash.
const SET_FROM: usize = 8;

impl Binder<'_> {
    /// The expression, bound. Behind grouping, what equals a key is that key.
    pub(super) fn expr(&mut self, expr: &ast::Expr) -> Result<Typed> {
        let at = expr.at;
        depth::has_stack()?;
        if let Some(group) = self.frames.last().and_then(|frame| frame.group.as_ref())
            && !group.inside
            && let Some(place) = group.keys.iter().position(|(key, _, _)| key == expr)
        {
            let mut typed = group.keys[place].2.clone();
            (typed.expr, typed.at) = (Expr::Column(place), at);
            if self.meanings.is_some() {
                let key = group.keys[place].0.clone();
                self.note_alike(&key, expr);
            }
            return Ok(typed);
        }
        Ok(match &expr.kind {
            ExprKind::Null => Typed::constant(Datum::Null, Type::Unknown, at),
            ExprKind::Bool(value) => Typed::constant(Datum::Bool(*value), Type::Bool, at),
            ExprKind::Int(value) => {
                let ty = if i32::try_from(*value).is_ok() { Type::Int4 } else { Type::Int8 };
                Typed::constant(Datum::Int(*value), ty, at)
            }
            ExprKind::Number(text) => self.number(text, at)?,
            ExprKind::Str(text) => Typed::constant(Datum::text(text), Type::Unknown, at),
            ExprKind::Param(number) => self.parameter(*number, at),
            ExprKind::Default => {
                return Err(Error::new("42601", "DEFAULT is not allowed in this context").at(at));
            }
            ExprKind::Column(names) => self.column(names, at)?,
            ExprKind::Star(names) if names.is_empty() => {
                return Err(Error::unsupported("a whole row as a value").at(at));
            }
            ExprKind::Star(names) => self.whole_row(names, at)?,
            ExprKind::Unary(op, arg) => {
                let arg = self.expr(arg)?;
                Self::or_null(self.operator(op, vec![arg], at)?)
            }
            ExprKind::Binary(op, left, right) => {
                let written = [left, right].iter().all(|side| matches!(side.kind, ExprKind::Row(_)));
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                // Rows of tables are values, in which nulls are equal; row values that are written out have fields.
                if !written && left.ty == Type::Record && right.ty == Type::Record {
                    return Self::compare_values(op, left, right, at);
                }
                Self::or_null(self.operator(op, vec![left, right], at)?)
            }
            ExprKind::And(terms) => Typed::new(Expr::And(self.booleans(terms, "AND")?), Type::Bool, at),
            ExprKind::Or(terms) => Typed::new(Expr::Or(self.booleans(terms, "OR")?), Type::Bool, at),
            ExprKind::Not(arg) => {
                let arg = self.condition(arg, "NOT")?;
                Typed::new(Expr::Not(Box::new(arg)), Type::Bool, at)
            }
            ExprKind::IsNull(arg, negated) => {
                let arg = self.expr(arg)?;
                self.mute(&arg);
                Typed::new(Expr::IsNull(Box::new(arg.expr), *negated), Type::Bool, at)
            }
            ExprKind::IsBool(arg, wanted, negated) => {
                let shown = match (wanted, negated) {
                    (Some(true), false) => "IS TRUE",
                    (Some(true), true) => "IS NOT TRUE",
                    (Some(false), false) => "IS FALSE",
                    (Some(false), true) => "IS NOT FALSE",
                    (None, false) => "IS UNKNOWN",
                    (None, true) => "IS NOT UNKNOWN",
                };
                let arg = self.condition(arg, shown)?;
                Typed::new(Expr::IsBool(Box::new(arg), *wanted, *negated), Type::Bool, at)
            }
            ExprKind::Case { arg, whens, other } => self.barring(Barred::Expression("CASE"), |binder| {
                binder.case(arg.as_deref(), whens, other.as_deref(), at)
            })?,
            ExprKind::Call(call) => self.call(call, at)?,
            ExprKind::Cast(arg, name) => {
                let (ty, modifier) = Self::type_of(name)?;
                if ty.element().is_some() && matches!(&arg.kind, ExprKind::Array(items) if items.is_empty()) {
                    return Ok(Typed::constant(Datum::Array([].into()), ty, at));
                }
                let arg = self.expr(arg)?;
                self.explicit(arg, ty, modifier, at)?
            }
            ExprKind::Refused(what) => return Err(Error::unsupported(what).at(at)),
            _ => return self.expr_rest(expr),
        })
    }

    fn expr_rest(&mut self, expr: &ast::Expr) -> Result<Typed> {
        let at = expr.at;
        Ok(match &expr.kind {
            ExprKind::IsDistinct(left, right, negated) => {
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                let equal = self.operator("=", vec![left, right], at)?;
                let Expr::Call(_, mut sides) = equal.expr else {
                    return Err(Error::unsupported("IS DISTINCT FROM of these values").at(at));
                };
                let right = sides.pop().expect("two sides");
                let left = sides.pop().expect("two sides");
                Typed::new(Expr::IsDistinct(Box::new(left), Box::new(right), *negated), Type::Bool, at)
            }
            ExprKind::In(arg, list, negated) => self.in_list(arg, list, *negated, at)?,
            ExprKind::InQuery(arg, query, negated) => {
                let found = self.quantified("=", false, arg, query, at)?;
                if *negated { Typed { expr: Expr::Not(Box::new(found.expr)), ..found } } else { found }
            }
            ExprKind::Quantified { op, all, arg, of } => match of {
                Quantified::Query(query) => self.quantified(op, *all, arg, query, at)?,
                Quantified::Array(array) => self.any_of_array(op, *all, arg, array, at)?,
            },
            ExprKind::Between { arg, low, high, symmetric, negated } => {
                let (arg, low, high) = (self.expr(arg)?, self.expr(low)?, self.expr(high)?);
                let between = if *symmetric {
                    let one = self.between(arg.clone(), low.clone(), high.clone(), at)?;
                    Expr::Or(vec![one, self.between(arg, high, low, at)?])
                } else {
                    self.between(arg, low, high, at)?
                };
                let expr = if *negated { Expr::Not(Box::new(between)) } else { between };
                Typed::new(expr, Type::Bool, at)
            }
            ExprKind::Like { kind, arg, pattern, escape, negated } => {
                self.like(*kind, arg, pattern, escape.as_deref(), *negated, at)?
            }
            ExprKind::Row(fields) => {
                let mut all = Vec::new();
                for field in fields {
                    match &field.kind {
                        ExprKind::Star(names) => all.extend(self.columns_of(names, field.at)?),
                        _ => all.push(self.expr(field)?),
                    }
                }
                self.record(all, None, at)
            }
            ExprKind::Array(items) => self.array(items, at)?,
            ExprKind::ArrayQuery(query) => self.array_query(query, at)?,
            ExprKind::Field(row, name) => self.row_field(row, name, at)?,
            ExprKind::Subscript(array, place) => self.subscript(array, place, at)?,
            ExprKind::Exists(query) => {
                let before = self.volatile;
                let (bound, captures) = self.sub_query(query)?;
                let (plan, volatile) = (bound.plan, self.volatile > before);
                self.lifted(Sub { plan, captures, kind: SubKind::Exists, volatile }, Type::Bool, at)
            }
            ExprKind::Scalar(query) => {
                let before = self.volatile;
                let (bound, captures) = self.sub_query(query)?;
                let volatile = self.volatile > before;
                let [column] = &bound.columns[..] else {
                    return Err(Error::new("42601", "subquery must return only one column").at(at));
                };
                let (ty, modifier) = (column.ty, column.modifier);
                let sub = Sub { plan: bound.plan, captures, kind: SubKind::Scalar, volatile };
                Typed { modifier, ..self.lifted(sub, ty, at) }
            }
            ExprKind::Coalesce(args) => {
                let all = self.barring(Barred::Expression("COALESCE"), |binder| binder.exprs(args))?;
                let (exprs, ty, modifier) = self.unify(all, "COALESCE")?;
                Typed { modifier, ..Typed::new(Expr::Coalesce(exprs), ty, at) }
            }
            ExprKind::Extreme(greatest, args) => {
                let all = self.exprs(args)?;
                let what = if *greatest { "GREATEST" } else { "LEAST" };
                let (exprs, ty, modifier) = self.unify(all, what)?;
                Typed { modifier, ..Typed::new(Expr::Extreme(*greatest, exprs), ty, at) }
            }
            ExprKind::NullIf(left, right) => {
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                // A literal has the type that it is compared with.
                let other = self.types(std::slice::from_ref(&right))[0];
                let left = match other {
                    _ if self.types(std::slice::from_ref(&left))[0] != Type::Unknown => left,
                    Type::Unknown | Type::Varchar => self.implicit(left, Type::Text)?,
                    other => self.implicit(left, other)?,
                };
                let value = self.compared_as(left.clone(), other)?;
                let is_null =
                    [&left, &right].iter().any(|side| matches!(side.expr, Expr::Const(Datum::Null)));
                let equal = self.operator("=", vec![left, right], at)?;
                // Nothing equals null, which is seen before either side is evaluated.
                if is_null {
                    return Ok(Typed { at, ..value });
                }
                let expr = Expr::NullIf(Box::new(equal.expr), Box::new(value.expr.clone()));
                Typed { expr, at, ..value }
            }
            ExprKind::Collate(arg, name) => {
                let name = name.last().map_or("", String::as_str);
                if !["C", "POSIX", "default", "ucs_basic"].contains(&name) {
                    let message = format!("collation \"{name}\" for encoding \"UTF8\" does not exist");
                    return Err(Error::new("42704", message).at(at));
                }
                self.expr(arg)?
            }
            _ => unreachable!("expr has these"),
        })
    }

    /// The value as `=` compares it with one of another type: an integer beside a numeric is one.
    fn compared_as(&mut self, value: Typed, other: Type) -> Result<Typed> {
        /// Types that PostgreSQL compares with each other as they are.
        const FAMILIES: [&[Type]; 4] = [
            &[Type::Int2, Type::Int4, Type::Int8],
            &[Type::Float4, Type::Float8],
            &[Type::Date, Type::Timestamp, Type::TimestampTz],
            &[Type::Name, Type::Text],
        ];
        let ty = value.ty;
        let other = if other == Type::Name && ty != Type::Name { Type::Text } else { other };
        if FAMILIES.iter().any(|family| family.contains(&ty) && family.contains(&other)) {
            return Ok(value);
        }
        match resolve_operator(operators_named("="), &[ty, other]) {
            Resolved::One(operator) if operator.args[0] != ty => self.implicit(value, operator.args[0]),
            _ => Ok(value),
        }
    }

    /// A row value of these fields. What is shown by a name is a text in it.
    pub(super) fn record(&mut self, all: Vec<Typed>, names: Option<Vec<String>>, at: u32) -> Typed {
        let (mut exprs, mut types) = (Vec::new(), Vec::new());
        for field in all {
            let field = if field.ty.is_registered() { self.shown_registered(field) } else { field };
            self.mute(&field);
            types.push(field.ty);
            exprs.push(field.expr);
        }
        let fields = types.clone();
        let mut shape = Shape::unnamed(types);
        if let Some(names) = names {
            shape = Arc::new(Shape { names, types: fields.clone() });
        }
        Typed { fields, ..Typed::new(Expr::Record(exprs, shape), Type::Record, at) }
    }

    pub(super) fn exprs(&mut self, all: &[ast::Expr]) -> Result<Vec<Typed>> {
        all.iter().map(|expr| self.expr(expr)).collect()
    }

    pub(super) fn condition(&mut self, expr: &ast::Expr, what: &str) -> Result<Expr> {
        let typed = self.expr(expr)?;
        self.boolean(typed, what)
    }

    fn booleans(&mut self, terms: &[ast::Expr], what: &str) -> Result<Vec<Expr>> {
        terms.iter().map(|term| self.condition(term, what)).collect()
    }

    fn number(&mut self, text: &str, at: u32) -> Result<Typed> {
        let value = Numeric::parse(text)
            .ok_or_else(|| Error::new("22003", "value overflows numeric format").at(at))?;
        // Minus and the least bigint are one literal here.
        if value.scale() == 0
            && !text.contains(['.', 'e', 'E'])
            && let Numeric::Small(number, 0) = value
        {
            return Ok(Typed::constant(Datum::Int(number), Type::Int8, at));
        }
        Ok(Typed::constant(Datum::Numeric(value), Type::Numeric, at))
    }

    fn parameter(&mut self, number: u32, at: u32) -> Typed {
        let index = number as usize - 1;
        if self.parameters.len() <= index {
            self.parameters.resize(index + 1, Type::Unknown);
        }
        if self.mentions.len() <= index {
            self.mentions.resize(index + 1, Mentions::default());
        }
        self.mentions[index].all += 1;
        Typed::new(Expr::Param(index), self.parameters[index], at)
    }

    fn case(
        &mut self,
        arg: Option<&ast::Expr>,
        whens: &[(ast::Expr, ast::Expr)],
        other: Option<&ast::Expr>,
        at: u32,
    ) -> Result<Typed> {
        let arg = match arg {
            Some(arg) => {
                let arg = self.expr(arg)?;
                Some(if arg.ty == Type::Unknown { self.implicit(arg, Type::Text)? } else { arg })
            }
            None => None,
        };
        let (mut conditions, mut values) = (Vec::new(), Vec::new());
        for (condition, value) in whens {
            let condition = match &arg {
                Some(arg) => {
                    let wanted = self.expr(condition)?;
                    let place = wanted.at;
                    Self::or_null(self.operator("=", vec![arg.clone(), wanted], place)?).expr
                }
                None => self.condition(condition, "CASE/WHEN")?,
            };
            conditions.push(condition);
            values.push(self.expr(value)?);
        }
        values.push(match other {
            Some(other) => self.expr(other)?,
            None => Typed::constant(Datum::Null, Type::Unknown, at),
        });
        // PostgreSQL looks at ELSE first.
        values.rotate_right(1);
        let (mut exprs, ty, modifier) = self.unify(values, "CASE")?;
        let other = exprs.remove(0);
        let whens = conditions.into_iter().zip(exprs).collect();
        Ok(Typed { modifier, ..Typed::new(Expr::Case(whens, Box::new(other)), ty, at) })
    }

    fn between(&mut self, arg: Typed, low: Typed, high: Typed, at: u32) -> Result<Expr> {
        let above = Self::or_null(self.operator(">=", vec![arg.clone(), low], at)?);
        let below = Self::or_null(self.operator("<=", vec![arg, high], at)?);
        Ok(Expr::And(vec![above.expr, below.expr]))
    }

    fn in_list(&mut self, arg: &ast::Expr, list: &[ast::Expr], negated: bool, at: u32) -> Result<Typed> {
        let arg = self.expr(arg)?;
        let mut items = self.exprs(list)?;
        // The items have one type together with the argument, where they have one; else each is compared by itself.
        let plain = items.iter().all(|item| item.ty != Type::Record) && arg.ty != Type::Record;
        let mut arg = arg;
        if plain {
            let mut all = items.clone();
            all.push(arg.clone());
            if let Ok(ty) = self.common_type(&all, "IN") {
                if arg.ty == Type::Unknown {
                    arg = self.implicit(arg, ty)?;
                }
                let mut same = Vec::new();
                for item in items {
                    same.push(self.as_common(item, ty, "IN")?);
                }
                items = same;
            }
        }
        // Items without columns are one array, if there are several; the others are compared one by one.
        let is_alone = |item: &Typed| item.expr.columns().iter().any(|column| *column < SUB_BASE);
        let alone = items.iter().filter(|item| !is_alone(item)).count() < 2;
        let mut terms = Vec::with_capacity(items.len());
        for item in items {
            let is_alone = alone || is_alone(&item);
            let term = self.operator("=", vec![arg.clone(), item], at)?;
            terms.push(if is_alone { Self::or_null(term).expr } else { term.expr });
        }
        let expr = as_set(terms);
        Ok(Typed::new(if negated { Expr::Not(Box::new(expr)) } else { expr }, Type::Bool, at))
    }

    fn like(
        &mut self,
        kind: Like,
        arg: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ast::Expr>,
        negated: bool,
        at: u32,
    ) -> Result<Typed> {
        let (arg, mut pattern) = (self.expr(arg)?, self.expr(pattern)?);
        if kind == Like::Similar {
            let mut args = vec![pattern];
            if let Some(escape) = escape {
                args.push(self.expr(escape)?);
            }
            pattern = self.function("similar_to_escape", args, at)?;
        } else if let Some(escape) = escape {
            let escape = self.expr(escape)?;
            pattern = self.function("like_escape", vec![pattern, escape], at)?;
        }
        let op = match (kind, negated) {
            (Like::Exact, false) => "~~",
            (Like::Exact, true) => "!~~",
            (Like::Folded, false) => "~~*",
            (Like::Folded, true) => "!~~*",
            (Like::Similar, false) => "~",
            (Like::Similar, true) => "!~",
        };
        Ok(Self::or_null(self.operator(op, vec![arg, pattern], at)?))
    }

    // Sub-queries.

    /// A sub-query takes a place behind the row's columns, and is answered before the expression runs.
    pub(super) fn lifted(&mut self, sub: Sub, ty: Type, at: u32) -> Typed {
        let subs = &mut self.frame().subs;
        subs.push(sub);
        let column = SUB_BASE + subs.len() - 1;
        Typed::new(Expr::Column(column), ty, at)
    }

    fn quantified(
        &mut self,
        op: &str,
        all: bool,
        arg: &ast::Expr,
        query: &ast::Query,
        at: u32,
    ) -> Result<Typed> {
        let arg = self.expr(arg)?;
        if arg.expr.columns().iter().any(|column| SETS.contains(column)) {
            return Err(Error::new("42804", "row comparison operator must not return a set").at(at));
        }
        let before = self.volatile;
        let (bound, captures) = self.sub_query(query)?;
        let volatile = self.volatile > before;
        let wanted = if arg.ty == Type::Record { arg.fields.len() } else { 1 };
        if bound.columns.len() != wanted {
            let what = if bound.columns.len() > wanted { "too many" } else { "too few" };
            return Err(Error::new("42601", format!("subquery has {what} columns")).at(at));
        }
        // Both sides as the operator takes them: the query's columns are cast in a projection.
        let sides = if let Expr::Record(fields, _) = arg.expr {
            fields.into_iter().zip(arg.fields).map(|(expr, ty)| Typed::new(expr, ty, at)).collect()
        } else {
            vec![arg]
        };
        let (mut args, mut columns) = (Vec::new(), Vec::new());
        let mut comparison = Comparison::Equal;
        for (place, (side, column)) in sides.into_iter().zip(&bound.columns).enumerate() {
            let inner = Typed { modifier: column.modifier, ..Typed::new(Expr::Column(place), column.ty, at) };
            let compared = self.operator(op, vec![side, inner], at)?;
            let Expr::Call(Call::Compare(found), both) = compared.expr else {
                return Err(Error::unsupported(format!("operator {op} with ANY or ALL")).at(at));
            };
            comparison = found;
            let [outer, inner] = <[Expr; 2]>::try_from(both).expect("a comparison has two sides");
            args.push(outer);
            columns.push(inner);
        }
        let record = args.len() > 1;
        let (arg, columns) = if record {
            let shape = Shape::unnamed(vec![Type::Record; args.len()]);
            (Expr::Record(args, shape.clone()), vec![Expr::Record(columns, shape)])
        } else {
            (args.pop().expect("one side"), columns)
        };
        let plan = crate::plan::Plan::Project(Box::new(bound.plan), columns);
        let kind = if comparison == Comparison::Equal && !all && !record {
            SubKind::In(arg)
        } else {
            SubKind::Quantified { comparison, all, arg }
        };
        Ok(self.lifted(Sub { plan, captures, kind, volatile }, Type::Bool, at))
    }

    /// A value for a column: by an assignment cast.
    pub(super) fn assigned(&mut self, value: Typed, column: &crate::catalog::Column) -> Result<Expr> {
        let (at, from) = (value.at, value.ty);
        match self.coerce(value, column.ty, column.modifier, Context::Assignment)? {
            Some(typed) => Ok(typed.expr),
            None => {
                let (name, ty) = (&column.name, column.ty.sql_name());
                let message = format!(
                    "column \"{name}\" is of type {ty} but expression is of type {}",
                    from.sql_name()
                );
                Err(Error::new("42804", message)
                    .at(at)
                    .hint("You will need to rewrite or cast the expression."))
            }
        }
    }

    /// An argument of EXECUTE, as its parameter's type.
    pub(crate) fn argument(&mut self, expr: &ast::Expr, ty: Type) -> Result<Expr> {
        self.lone(expr, ty, "EXECUTE")
    }

    /// An expression without rows (LIMIT, an argument), as this type.
    pub(super) fn lone(&mut self, expr: &ast::Expr, ty: Type, what: &str) -> Result<Expr> {
        self.frames.push(super::scope::Frame { no_aggregates: Some("LIMIT"), ..Default::default() });
        let typed = self.expr(expr);
        let frame = self.frames.pop().expect("the frame was just put there");
        let typed = typed?;
        if names_column(&typed.expr) {
            let message = format!("argument of {what} must not contain variables");
            return Err(Error::new("42P10", message).at(typed.at));
        }
        if !frame.subs.is_empty() || !frame.captures.is_empty() {
            return Err(Error::unsupported(format!("a sub-query or column in {what}")).at(expr.at));
        }
        let (at, from) = (typed.at, typed.ty);
        match self.coerce(typed, ty, NO_MOD, Context::Assignment)? {
            Some(typed) => Ok(typed.expr),
            None => {
                let message = format!(
                    "argument of {what} must be type {}, not type {}",
                    ty.sql_name(),
                    from.sql_name()
                );
                Err(Error::new("42804", message).at(at))
            }
        }
    }
}

/// Does an expression name a column of a query?
fn names_column(expr: &Expr) -> bool {
    let mut found = false;
    expr.walk(&mut |node| found |= matches!(node, Expr::Outer(_) | Expr::Column(0..SUB_BASE)));
    found
}

/// A chain of equalities of one value with constants is a set.
pub(super) fn as_set(terms: Vec<Expr>) -> Expr {
    let equal = |term: &Expr| matches!(term, Expr::Call(Call::Compare(Comparison::Equal), sides) if sides[1].is_const());
    if terms.len() < SET_FROM || !terms.iter().all(equal) {
        return if terms.len() == 1 { terms.into_iter().next().expect("one") } else { Expr::Or(terms) };
    }
    let mut set = HashSet::new();
    let (mut has_null, mut arg) = (false, None);
    for term in terms {
        let Expr::Call(_, sides) = term else { unreachable!("they are calls") };
        let [left, right] = <[Expr; 2]>::try_from(sides).expect("a comparison has two sides");
        let Expr::Const(value) = right else { unreachable!("the right side is a constant") };
        if value.is_null() {
            has_null = true;
        } else {
            set.insert(value);
        }
        arg = Some(left);
    }
    Expr::InSet(Box::new(arg.expect("there are terms")), set.into(), has_null)
}
