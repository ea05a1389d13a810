//! Window functions: calls with OVER, lifted out of a select list as sub-queries are.

use super::call::{no_function, no_polymorphic};
use super::query::has_order;
use super::scope::Barred;
use super::{Binder, Typed};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::functions::aggregates::is_aggregate;
use crate::functions::is_coercible;
use crate::parser::ast::{self, Over, WindowBound};
use crate::plan::{FrameEnd, SortKey, WindowCall, WindowFrame, WindowFunction};
use crate::types::{Datum, Type};

/// Columns from here on are values of window functions, and have no place yet.
pub(super) const WINDOW_BASE: usize = 1 << 42;

/// The functions that exist only with OVER.
const FUNCTIONS: &[(&str, WindowFunction)] = &[
    ("row_number", WindowFunction::RowNumber),
    ("rank", WindowFunction::Rank),
    ("dense_rank", WindowFunction::DenseRank),
    ("percent_rank", WindowFunction::PercentRank),
    ("cume_dist", WindowFunction::CumeDist),
    ("ntile", WindowFunction::Ntile),
    ("lag", WindowFunction::Lag),
    ("lead", WindowFunction::Lead),
    ("first_value", WindowFunction::FirstValue),
    ("last_value", WindowFunction::LastValue),
    ("nth_value", WindowFunction::NthValue),
];

/// Names of window functions.
#[cfg(test)]
pub(crate) fn window_functions() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().map(|(name, _)| *name)
}

/// The window function with this name.
pub(super) fn window_function(name: &str) -> Option<WindowFunction> {
    FUNCTIONS.iter().find(|(known, _)| *known == name).map(|(_, function)| *function)
}

impl Binder<'_> {
    /// A call with OVER.
    pub(super) fn window_call(
        &mut self,
        name: &str,
        call: &ast::Call,
        over: &Over,
        at: u32,
    ) -> Result<Typed> {
        if let Some(refused) = self.frame().barred.and_then(Barred::no_window) {
            return Err(refused.at(at));
        }
        if self.frame().windows.is_none() {
            let clause = self.frame().no_aggregates.unwrap_or("this place");
            return Err(Error::new("42P20", format!("window functions are not allowed in {clause}"))
                .at(at)
                .hint("They stand in a select list or in ORDER BY."));
        }
        let (function, ty) =
            self.barring(Barred::Window, |binder| binder.window_parts(name, call, over, at))?;
        let windows = self.frame().windows.as_mut().expect("it is there");
        windows.push(function);
        let column = WINDOW_BASE + windows.len() - 1;
        Ok(Typed::new(Expr::Column(column), ty, at))
    }

    fn window_parts(
        &mut self,
        name: &str,
        call: &ast::Call,
        over: &Over,
        at: u32,
    ) -> Result<(WindowCall, Type)> {
        let over = self.window_meant(over, at)?;
        let (partition, order) = self.barring(Barred::Definition, |binder| binder.window_keys(&over))?;
        let frame = match &over.range {
            None => WindowFrame { rows: false, start: FrameEnd::First, end: FrameEnd::Current },
            Some(range) => WindowFrame {
                rows: range.rows,
                start: self.frame_end(&range.start)?,
                end: self.frame_end(&range.end)?,
            },
        };
        let made = |function, args, filter| WindowCall { function, args, filter, partition, order, frame };
        if let Some(function) = window_function(name) {
            if call.filter.is_some() {
                return Err(Error::new(
                    "0A000",
                    "FILTER is not implemented for non-aggregate window functions",
                )
                .at(at));
            }
            let mut args = Vec::with_capacity(call.args.len());
            for arg in &call.args {
                args.push(self.expr(arg)?);
            }
            let (args, ty) = self.window_arguments(name, function, args, at)?;
            return Ok((made(function, args, None), ty));
        }
        if !is_aggregate(name) {
            let message =
                format!("OVER specified, but {name} is not a window function nor an aggregate function");
            return Err(Error::new("42809", message).at(at));
        }
        if call.distinct {
            return Err(Error::new("0A000", "DISTINCT is not implemented for window functions").at(at));
        }
        if !call.order.is_empty() {
            return Err(
                Error::new("0A000", "aggregate ORDER BY is not implemented for window functions").at(at)
            );
        }
        let (aggregate, ty) = self.aggregate_parts(name, call, at)?;
        Ok((made(WindowFunction::Aggregate(aggregate.aggregate), aggregate.args, aggregate.filter), ty))
    }

    /// Expressions by which a window parts its rows, and orders them.
    fn window_keys(&mut self, over: &Over) -> Result<(Vec<Expr>, Vec<SortKey>)> {
        let mut partition = Vec::new();
        for expr in &over.partition {
            let typed = self.expr(expr)?;
            partition.push(self.known(typed)?.expr);
        }
        let mut order = Vec::new();
        for item in &over.order {
            let typed = self.expr(&item.expr)?;
            let typed = self.known(typed)?;
            has_order(typed.ty, item.expr.at)?;
            order.push(SortKey {
                expr: typed.expr,
                descending: item.descending,
                nulls_first: item.nulls_first,
            });
        }
        Ok((partition, order))
    }

    /// The window with what the one it names adds to it.
    fn window_meant(&mut self, over: &Over, at: u32) -> Result<Over> {
        let Some(name) = &over.base else { return Ok(over.clone()) };
        let known = self.frame().named_windows.iter().find(|(known, _)| known == name).cloned();
        let Some((_, base)) = known else {
            return Err(Error::new("42704", format!("window \"{name}\" does not exist")).at(at));
        };
        let base = self.window_meant(&base, at)?;
        if !over.written_out {
            return Ok(base);
        }
        let refused = |what: &str| Err(Error::new("42P20", format!("{what} of window \"{name}\"")).at(at));
        if !over.partition.is_empty() {
            return refused("cannot override PARTITION BY clause");
        }
        if !base.order.is_empty() && !over.order.is_empty() {
            return refused("cannot override ORDER BY clause");
        }
        let order = if over.order.is_empty() { base.order } else { over.order.clone() };
        Ok(Over {
            base: None,
            written_out: true,
            partition: base.partition,
            order,
            range: over.range.clone(),
        })
    }

    fn frame_end(&mut self, bound: &WindowBound) -> Result<FrameEnd> {
        Ok(match bound {
            WindowBound::First => FrameEnd::First,
            WindowBound::Last => FrameEnd::Last,
            WindowBound::Current => FrameEnd::Current,
            WindowBound::Before(distance) => FrameEnd::Before(self.lone(distance, Type::Int8, "ROWS")?),
            WindowBound::Behind(distance) => FrameEnd::Behind(self.lone(distance, Type::Int8, "ROWS")?),
        })
    }

    fn window_arguments(
        &mut self,
        name: &str,
        function: WindowFunction,
        args: Vec<Typed>,
        at: u32,
    ) -> Result<(Vec<Expr>, Type)> {
        use WindowFunction as F;
        let types = self.types(&args);
        let none = || no_function(name, &types).at(at);
        let is_value = types.first() != Some(&Type::Unknown) || function == F::Ntile;
        if !is_value && types.len() < 3 {
            return Err(no_polymorphic());
        }
        let is_count = |ty: &Type| *ty == Type::Unknown || is_coercible(*ty, Type::Int4);
        let count = match function {
            F::Ntile => types.first(),
            _ => types.get(1),
        };
        if count.is_some_and(|ty| !is_count(ty)) {
            return Err(none());
        }
        match (function, &args[..]) {
            (F::RowNumber | F::Rank | F::DenseRank, []) => Ok((Vec::new(), Type::Int8)),
            (F::PercentRank | F::CumeDist, []) => Ok((Vec::new(), Type::Float8)),
            (F::Ntile, [count]) => {
                let count = self.implicit(count.clone(), Type::Int4)?;
                Ok((vec![count.expr], Type::Int4))
            }
            (F::FirstValue | F::LastValue, [value]) => {
                let value = self.known(value.clone())?;
                Ok((vec![value.expr], value.ty))
            }
            (F::NthValue, [value, place]) => {
                let value = self.known(value.clone())?;
                let place = self.implicit(place.clone(), Type::Int4)?;
                Ok((vec![value.expr, place.expr], value.ty))
            }
            (F::Lag | F::Lead, [value, rest @ ..]) if rest.len() <= 2 => {
                let mut both = vec![value.clone()];
                both.extend(rest.get(1).cloned());
                self.common_type(&both, name).map_err(|_| none())?;
                let (mut values, ty, _) = self.unify(both, name)?;
                let distance = match rest.first() {
                    Some(distance) => self.implicit(distance.clone(), Type::Int4)?.expr,
                    None => Expr::Const(Datum::Int(1)),
                };
                values.insert(1, distance);
                Ok((values, ty))
            }
            _ => Err(none()),
        }
    }

    /// The value at a type that is known.
    fn known(&mut self, typed: Typed) -> Result<Typed> {
        if typed.ty == Type::Unknown { self.implicit(typed, Type::Text) } else { Ok(typed) }
    }
}
