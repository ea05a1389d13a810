//! Functions that make rows: their values one by one, so that no series has to be kept.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::{Executor, KeptRows, Row, Sink, Source};
use crate::error::{Error, Result};
use crate::expr::Env;
use crate::expr::memory::size_of_row;
use crate::plan::{Plan, SetExpr};
use crate::types::{Datum, Numeric, Type, Zone};

/// Values that are made for a row at once: with more, the row waits until the input has been read.
const AT_ONCE: usize = 64;

/// The values of a function.
pub(crate) enum Values {
    Array(Arc<[Datum]>, usize),
    Integers {
        next: Option<i64>,
        to: i64,
        step: i64,
    },
    Numerics {
        next: Option<Numeric>,
        to: Numeric,
        step: Numeric,
    },
    /// Times, which are counted on in a zone.
    Times {
        next: Option<Datum>,
        to: Datum,
        step: Datum,
        ahead: bool,
        zone: Zone,
    },
    None,
}

fn no_step() -> Error {
    Error::new("22023", "step size cannot equal zero")
}

impl Values {
    pub(crate) fn of(set: &SetExpr, env: &Env<'_>) -> Result<Self> {
        let (args, ty) = match set {
            SetExpr::Array(array) => {
                return Ok(match array.eval(env)? {
                    Datum::Array(all) => Self::Array(all, 0),
                    _ => Self::None,
                });
            }
            SetExpr::Series(args, ty) => (args, *ty),
        };
        let [from, to, step] = [args[0].eval(env)?, args[1].eval(env)?, args[2].eval(env)?];
        Ok(match (from, to, step) {
            (Datum::Int(from), Datum::Int(to), Datum::Int(step)) => {
                if step == 0 {
                    return Err(no_step());
                }
                Self::Integers { next: Some(from), to, step }
            }
            (Datum::Numeric(from), Datum::Numeric(to), Datum::Numeric(step)) => {
                if [&from, &to, &step].iter().any(|number| !number.is_finite()) {
                    return Err(Error::new("22023", "start, stop and step value must be finite"));
                }
                if step.signum() == 0 {
                    return Err(no_step());
                }
                Self::Numerics { next: Some(from), to, step }
            }
            (from @ Datum::Timestamp(_), to @ Datum::Timestamp(_), Datum::Interval(step)) => {
                let ahead = crate::types::span(step);
                if ahead == 0 {
                    return Err(no_step());
                }
                let zone = if ty == Type::TimestampTz { env.context.local.zone.clone() } else { Zone::UTC };
                Self::Times { next: Some(from), to, step: Datum::Interval(step), ahead: ahead > 0, zone }
            }
            _ => Self::None,
        })
    }

    pub(crate) fn next(&mut self) -> Result<Option<Datum>> {
        Ok(match self {
            Self::None => None,
            Self::Array(all, place) => {
                *place += 1;
                all.get(*place - 1).cloned()
            }
            Self::Integers { next, to, step } => {
                let value = next.take().filter(|value| if *step > 0 { *value <= *to } else { *value >= *to });
                *next = value.and_then(|value| value.checked_add(*step));
                value.map(Datum::Int)
            }
            Self::Numerics { next, to, step } => {
                let within = |value: &Numeric| {
                    if step.signum() > 0 { value.compare(to).is_le() } else { value.compare(to).is_ge() }
                };
                let Some(value) = next.take().filter(within) else { return Ok(None) };
                *next = Some(value.add(step)?);
                Some(Datum::Numeric(value))
            }
            Self::Times { next, to, step, ahead, zone } => {
                let within = |value: &Datum| {
                    if *ahead { value.compare(to).is_le() } else { value.compare(to).is_ge() }
                };
                let Some(value) = next.take().filter(within) else { return Ok(None) };
                *next = Some(crate::functions::later(&value, step, zone)?);
                Some(value)
            }
        })
    }
}

/// The next row: this one, and behind it the next values. Whether there is one.
fn next_row(row: &[Datum], sets: &mut [Values], out: &mut Row) -> Result<bool> {
    out.clear();
    out.extend_from_slice(row);
    let mut any = false;
    for set in sets {
        let value = set.next()?;
        any |= value.is_some();
        out.push(value.unwrap_or(Datum::Null));
    }
    Ok(any)
}

impl<S: Source> Executor<'_, S> {
    /// A row for each value.
    pub(super) async fn set(&mut self, set: &SetExpr, outer: &[Datum], sink: Sink<'_>) -> Result<()> {
        let context = self.context;
        let mut values = Values::of(set, &self.env(&[], outer))?;
        while let Some(value) = values.next()? {
            let mut row = match value {
                Datum::Record(fields) => fields.to_vec(),
                value => vec![value],
            };
            context.check()?;
            if sink(&mut row)?.is_break() {
                break;
            }
            if context.is_due() {
                context.pause().await?;
            }
        }
        Ok(())
    }

    /// The row once for each value of the functions, which stand side by side behind it.
    pub(super) async fn sets(
        &mut self,
        input: &Plan,
        sets: &[SetExpr],
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let context = self.context;
        // Rows with many values, and the values that they have not made yet, behind those that came before them.
        let mut later = KeptRows::none(context);
        let mut begun: Vec<Vec<Values>> = Vec::new();
        let mut stopped = false;
        let mut out = Row::new();
        let mut see = |row: &mut Row| {
            let env = Env { row, outer, context };
            let mut values = sets.iter().map(|set| Values::of(set, &env)).collect::<Result<Vec<_>>>()?;
            if begun.is_empty() {
                for _ in 0..AT_ONCE {
                    context.check()?;
                    if !next_row(row, &mut values, &mut out)? {
                        return Ok(ControlFlow::Continue(()));
                    }
                    if sink(&mut out)?.is_break() {
                        stopped = true;
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            later.push(row)?;
            begun.push(values);
            Ok(ControlFlow::Continue(()))
        };
        self.run(input, outer, &mut see).await?;
        if stopped {
            return Ok(());
        }
        let KeptRows { rows, mut kept } = later;
        for (row, mut values) in rows.into_iter().zip(begun) {
            while next_row(&row, &mut values, &mut out)? {
                context.check()?;
                if sink(&mut out)?.is_break() {
                    return Ok(());
                }
                if context.is_due() {
                    context.pause().await?;
                }
            }
            kept.remove(size_of_row(&row));
        }
        Ok(())
    }
}
