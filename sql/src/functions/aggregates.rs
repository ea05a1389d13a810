//! Aggregates: what they are called, what they return, and their running state.
//!
//! Sums of integers are kept in 128 bits and become `numeric` or `int8` at the end, so that no order of the rows overflows
//! before the sum does; those of floats are kept as PostgreSQL keeps them (Youngs and Cramer, for variances).

use std::cmp::Ordering;
use std::sync::LazyLock;

use super::casts::{float, int, numeric, str};
use super::index::ByName;
use crate::error::{Error, Result};
use crate::expr::Made;
use crate::types::numeric::Numeric;
use crate::types::{Datum, Record, Type};

/// An aggregate for arguments of some types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aggregate {
    CountAll,
    Count,
    Min,
    Max,
    SumInt8,
    SumInt,
    SumNumeric,
    SumFloat(Type),
    SumInterval,
    AverageInt,
    AverageNumeric,
    AverageFloat,
    AverageInterval,
    And,
    Or,
    BitAnd,
    BitOr,
    Join,
    /// Nulls, too.
    Array,
    /// Of texts that are JSON; `lines`: each behind a line's end.
    JsonArray {
        lines: bool,
        binary: bool,
    },
    /// Of keys and texts that are JSON.
    JsonObject {
        binary: bool,
    },
    /// Sample or population (`true`), and its root.
    Variance {
        population: bool,
        root: bool,
    },
    VarianceNumeric {
        population: bool,
        root: bool,
    },
}

/// Name, type of the argument, type of the result, the aggregate. `Unknown` stands for any type, also as the result.
type Row = (&'static str, &'static [Type], Type, Aggregate);

use Type::{Bool, Float4, Float8, Int2, Int4, Int8, Interval, Text};

pub(crate) const AGGREGATES: &[Row] = &[
    ("count", &[Type::Unknown], Int8, Aggregate::Count),
    ("sum", &[Int2], Int8, Aggregate::SumInt),
    ("sum", &[Int4], Int8, Aggregate::SumInt),
    ("sum", &[Int8], Type::Numeric, Aggregate::SumInt8),
    ("sum", &[Type::Numeric], Type::Numeric, Aggregate::SumNumeric),
    ("sum", &[Float4], Float4, Aggregate::SumFloat(Float4)),
    ("sum", &[Float8], Float8, Aggregate::SumFloat(Float8)),
    ("sum", &[Interval], Interval, Aggregate::SumInterval),
    ("avg", &[Int2], Type::Numeric, Aggregate::AverageInt),
    ("avg", &[Int4], Type::Numeric, Aggregate::AverageInt),
    ("avg", &[Int8], Type::Numeric, Aggregate::AverageInt),
    ("avg", &[Type::Numeric], Type::Numeric, Aggregate::AverageNumeric),
    ("avg", &[Float4], Float8, Aggregate::AverageFloat),
    ("avg", &[Float8], Float8, Aggregate::AverageFloat),
    ("avg", &[Interval], Interval, Aggregate::AverageInterval),
    ("bool_and", &[Bool], Bool, Aggregate::And),
    ("every", &[Bool], Bool, Aggregate::And),
    ("bool_or", &[Bool], Bool, Aggregate::Or),
    ("bit_and", &[Int2], Int2, Aggregate::BitAnd),
    ("bit_and", &[Int4], Int4, Aggregate::BitAnd),
    ("bit_and", &[Int8], Int8, Aggregate::BitAnd),
    ("bit_or", &[Int2], Int2, Aggregate::BitOr),
    ("bit_or", &[Int4], Int4, Aggregate::BitOr),
    ("bit_or", &[Int8], Int8, Aggregate::BitOr),
    ("string_agg", &[Text, Text], Text, Aggregate::Join),
    ("variance", &[Float8], Float8, Aggregate::Variance { population: false, root: false }),
    ("var_samp", &[Float8], Float8, Aggregate::Variance { population: false, root: false }),
    ("var_pop", &[Float8], Float8, Aggregate::Variance { population: true, root: false }),
    ("stddev", &[Float8], Float8, Aggregate::Variance { population: false, root: true }),
    ("stddev_samp", &[Float8], Float8, Aggregate::Variance { population: false, root: true }),
    ("stddev_pop", &[Float8], Float8, Aggregate::Variance { population: true, root: true }),
    (
        "variance",
        &[Type::Numeric],
        Type::Numeric,
        Aggregate::VarianceNumeric { population: false, root: false },
    ),
    (
        "var_samp",
        &[Type::Numeric],
        Type::Numeric,
        Aggregate::VarianceNumeric { population: false, root: false },
    ),
    (
        "var_pop",
        &[Type::Numeric],
        Type::Numeric,
        Aggregate::VarianceNumeric { population: true, root: false },
    ),
    ("stddev", &[Type::Numeric], Type::Numeric, Aggregate::VarianceNumeric { population: false, root: true }),
    (
        "stddev_samp",
        &[Type::Numeric],
        Type::Numeric,
        Aggregate::VarianceNumeric { population: false, root: true },
    ),
    (
        "stddev_pop",
        &[Type::Numeric],
        Type::Numeric,
        Aggregate::VarianceNumeric { population: true, root: true },
    ),
    ("variance", &[Int2], Type::Numeric, Aggregate::VarianceNumeric { population: false, root: false }),
    ("variance", &[Int4], Type::Numeric, Aggregate::VarianceNumeric { population: false, root: false }),
    ("variance", &[Int8], Type::Numeric, Aggregate::VarianceNumeric { population: false, root: false }),
    ("var_samp", &[Int2], Type::Numeric, Aggregate::VarianceNumeric { population: false, root: false }),
    ("var_samp", &[Int4], Type::Numeric, Aggregate::VarianceNumeric { population: false, root: false }),
    ("var_samp", &[Int8], Type::Numeric, Aggregate::VarianceNumeric { population: false, root: false }),
    ("var_pop", &[Int2], Type::Numeric, Aggregate::VarianceNumeric { population: true, root: false }),
    ("var_pop", &[Int4], Type::Numeric, Aggregate::VarianceNumeric { population: true, root: false }),
    ("var_pop", &[Int8], Type::Numeric, Aggregate::VarianceNumeric { population: true, root: false }),
    ("stddev", &[Int2], Type::Numeric, Aggregate::VarianceNumeric { population: false, root: true }),
    ("stddev", &[Int4], Type::Numeric, Aggregate::VarianceNumeric { population: false, root: true }),
    ("stddev", &[Int8], Type::Numeric, Aggregate::VarianceNumeric { population: false, root: true }),
    ("stddev_samp", &[Int2], Type::Numeric, Aggregate::VarianceNumeric { population: false, root: true }),
    ("stddev_samp", &[Int4], Type::Numeric, Aggregate::VarianceNumeric { population: false, root: true }),
    ("stddev_samp", &[Int8], Type::Numeric, Aggregate::VarianceNumeric { population: false, root: true }),
    ("stddev_pop", &[Int2], Type::Numeric, Aggregate::VarianceNumeric { population: true, root: true }),
    ("stddev_pop", &[Int4], Type::Numeric, Aggregate::VarianceNumeric { population: true, root: true }),
    ("stddev_pop", &[Int8], Type::Numeric, Aggregate::VarianceNumeric { population: true, root: true }),
    ("min", &[Type::Unknown], Type::Unknown, Aggregate::Min),
    ("max", &[Type::Unknown], Type::Unknown, Aggregate::Max),
];

/// Is there an aggregate with this name?
pub(crate) fn is_aggregate(name: &str) -> bool {
    const ANY: [&str; 5] = ["array_agg", "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg"];
    ANY.contains(&name) || !aggregates_named(name).is_empty()
}

/// The rows with this name.
pub(crate) fn aggregates_named(name: &str) -> &'static [&'static Row] {
    static BY_NAME: LazyLock<ByName<Row>> = LazyLock::new(|| ByName::new(AGGREGATES.iter(), |row| row.0));
    BY_NAME.named(name)
}

/// What an aggregate has seen.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Count(i64),
    /// The sum and how many there were.
    Int(i128, i64),
    Numeric(Numeric, i64),
    /// Count, sum, sum of squared differences from the mean.
    Float(f64, f64, f64),
    /// Exact count, sum, sum of squares.
    Squares(Numeric, Numeric, i64),
    Value(Datum),
    Text(String, bool),
    Array(Vec<Datum>),
}

impl Aggregate {
    pub(crate) fn start(self) -> State {
        match self {
            Self::CountAll | Self::Count => State::Count(0),
            Self::SumInt | Self::SumInt8 | Self::AverageInt => State::Int(0, 0),
            Self::SumNumeric | Self::AverageNumeric => State::Numeric(Numeric::ZERO, 0),
            Self::SumFloat(_) | Self::AverageFloat | Self::Variance { .. } => State::Float(0.0, 0.0, 0.0),
            Self::VarianceNumeric { .. } => State::Squares(Numeric::ZERO, Numeric::ZERO, 0),
            Self::Join => State::Text(String::new(), false),
            Self::Array | Self::JsonArray { .. } | Self::JsonObject { .. } => State::Array(Vec::new()),
            Self::AverageInterval => State::Value(Datum::Null),
            _ => State::Value(Datum::Null),
        }
    }

    /// Does its state grow with the values that it takes?
    pub(crate) fn keeps(self) -> bool {
        matches!(self, Self::Join | Self::Array | Self::JsonArray { .. } | Self::JsonObject { .. })
    }

    /// Takes a row's arguments. Nulls count for `count(*)` only.
    #[inline]
    /// Does it take a first argument that is null?
    pub(crate) fn takes_nulls(self) -> bool {
        matches!(self, Self::Array | Self::JsonArray { .. } | Self::JsonObject { .. })
    }

    pub(crate) fn take(self, state: &mut State, args: &[Datum]) -> Result<()> {
        if args.first().is_some_and(Datum::is_null) && !self.takes_nulls() {
            return Ok(());
        }
        match state {
            State::Count(count) => *count += 1,
            State::Array(all) => match args {
                [key, _] if key.is_null() => {
                    return Err(Error::new("22023", "field name must not be null"));
                }
                [_, _] => all.push(Datum::Record(Record::bare(args))),
                _ => all.push(args[0].clone()),
            },
            State::Int(sum, count) => {
                *sum += i128::from(int(&args[0]));
                *count += 1;
            }
            State::Numeric(sum, count) => {
                *sum = sum.add(numeric(&args[0]))?;
                *count += 1;
            }
            State::Float(count, sum, squares) => self.take_float(count, sum, squares, float(&args[0]))?,
            State::Squares(sum, squares, count) => {
                let value = match &args[0] {
                    Datum::Int(value) => Numeric::Small(*value, 0),
                    other => numeric(other).clone(),
                };
                *sum = sum.add(&value)?;
                *squares = squares.add(&value.mul(&value)?)?;
                *count += 1;
            }
            State::Text(text, any) => {
                if *any && !args[1].is_null() {
                    text.push_str(str(&args[1]));
                }
                text.push_str(str(&args[0]));
                *any = true;
            }
            State::Value(value) => self.take_value(value, &args[0])?,
        }
        Ok(())
    }

    fn take_float(self, count: &mut f64, sum: &mut f64, squares: &mut f64, value: f64) -> Result<()> {
        if let Self::SumFloat(ty) = self {
            let new = if ty == Float4 { f64::from(*sum as f32 + value as f32) } else { *sum + value };
            if new.is_infinite() && sum.is_finite() && value.is_finite() {
                return Err(Error::new("22003", "value out of range: overflow"));
            }
            *sum = if *count == 0.0 { value } else { new };
            *count += 1.0;
            return Ok(());
        }
        let before = *sum;
        *count += 1.0;
        *sum += value;
        if *count > 1.0 {
            let delta = value * *count - *sum;
            *squares += delta * delta / (*count * (*count - 1.0));
            if sum.is_infinite() || squares.is_infinite() {
                if before.is_finite() && value.is_finite() {
                    return Err(Error::new("22003", "value out of range: overflow"));
                }
                *squares = f64::NAN;
            }
        } else if !value.is_finite() {
            *squares = f64::NAN;
        }
        Ok(())
    }

    fn take_value(self, best: &mut Datum, value: &Datum) -> Result<()> {
        if best.is_null() && self != Self::AverageInterval {
            *best = value.clone();
            return Ok(());
        }
        match self {
            Self::Min if value.compare(best) == Ordering::Less => *best = value.clone(),
            Self::Max if value.compare(best) == Ordering::Greater => *best = value.clone(),
            Self::And => {
                *best = Datum::Bool(matches!((&*best, value), (Datum::Bool(true), Datum::Bool(true))));
            }
            Self::Or => {
                *best =
                    Datum::Bool(matches!(&*best, Datum::Bool(true)) || matches!(value, Datum::Bool(true)));
            }
            Self::BitAnd => *best = Datum::Int(int(best) & int(value)),
            Self::BitOr => *best = Datum::Int(int(best) | int(value)),
            Self::SumInterval => *best = super::dates::interval_plus(best, value)?,
            Self::AverageInterval => {
                // The sum and the count together.
                let (sum, count) = match best {
                    Datum::Record(pair) => (super::dates::interval_plus(&pair[0], value)?, int(&pair[1]) + 1),
                    _ => (value.clone(), 1),
                };
                *best = Datum::Record(Record::bare([sum, Datum::Int(count)]));
            }
            _ => {}
        }
        Ok(())
    }

    /// The result.
    pub(crate) fn finish(self, state: State) -> Made {
        Ok(match state {
            State::Array(all) if all.is_empty() => Datum::Null,
            State::Array(all) => self.collected(all)?,
            State::Count(count) => Datum::Int(count),
            State::Int(_, 0) | State::Numeric(_, 0) => Datum::Null,
            State::Int(sum, count) => match self {
                Self::SumInt => {
                    Datum::Int(i64::try_from(sum).map_err(|_| Error::new("22003", "bigint out of range"))?)
                }
                Self::SumInt8 => Datum::Numeric(Numeric::from_i128(sum, 0)),
                _ => Datum::Numeric(Numeric::from_i128(sum, 0).div(&Numeric::Small(count, 0))?),
            },
            State::Numeric(sum, count) => match self {
                Self::AverageNumeric => Datum::Numeric(sum.div(&Numeric::Small(count, 0))?),
                _ => Datum::Numeric(sum),
            },
            State::Float(0.0, _, _) => Datum::Null,
            State::Float(count, sum, squares) => match self {
                Self::SumFloat(_) => Datum::Float(sum),
                Self::AverageFloat => Datum::Float(sum / count),
                Self::Variance { population, root } => {
                    if !population && count < 2.0 {
                        return Ok(Datum::Null);
                    }
                    let variance = squares / if population { count } else { count - 1.0 };
                    Datum::Float(if root { variance.sqrt() } else { variance })
                }
                _ => unreachable!("floats are summed by these"),
            },
            State::Squares(sum, squares, count) => self.variance(&sum, &squares, count)?,
            State::Text(text, any) => {
                if any {
                    Datum::text(text)
                } else {
                    Datum::Null
                }
            }
            State::Value(Datum::Record(pair)) if self == Self::AverageInterval => {
                super::dates::interval_divided(&pair[0], &Datum::Float(int(&pair[1]) as f64))?
            }
            State::Value(value) => value,
        })
    }

    /// Values that were kept one by one.
    fn collected(self, all: Vec<Datum>) -> Made {
        Ok(match self {
            Self::JsonArray { lines, binary } => {
                let parts: Vec<&str> = all.iter().map(str).collect();
                let whole = format!("[{}]", parts.join(if lines { ", \n " } else { ", " }));
                if binary {
                    Datum::Jsonb(crate::types::json::normal(&whole)?.into())
                } else {
                    Datum::text(whole)
                }
            }
            Self::JsonObject { binary } => {
                let mut out = String::from("{ ");
                for (place, pair) in all.iter().enumerate() {
                    let Datum::Record(pair) = pair else { unreachable!("a key and a value were kept") };
                    out.push_str(if place > 0 { ", " } else { "" });
                    crate::types::json::quote(str(&pair[0]), &mut out);
                    out.push_str(" : ");
                    out.push_str(str(&pair[1]));
                }
                out.push_str(" }");
                if binary { Datum::Jsonb(crate::types::json::normal(&out)?.into()) } else { Datum::text(out) }
            }
            _ => Datum::Array(all.into()),
        })
    }

    /// `numeric_stddev_internal`
    fn variance(self, sum: &Numeric, squares: &Numeric, count: i64) -> Made {
        let Self::VarianceNumeric { population, root } = self else {
            unreachable!("squares are summed for variances")
        };
        if count == 0 || (!population && count == 1) {
            return Ok(Datum::Null);
        }
        let n = Numeric::Small(count, 0);
        let above = n.mul(squares)?.sub(&sum.mul(sum)?)?;
        if above.is_nan() || above.signum() <= 0 {
            return Ok(Datum::Numeric(if above.is_nan() { Numeric::NaN } else { Numeric::ZERO }));
        }
        let below = n.mul(&if population { n.clone() } else { Numeric::Small(count - 1, 0) })?;
        let variance = above.div(&below)?;
        // The root has as many digits as the variance.
        let scale = variance.scale();
        Ok(Datum::Numeric(if root { variance.sqrt_to(scale) } else { variance }))
    }
}
