//! Kernels: functions that have a form over columns beside the one over values. Both forms share one body.
//!
//! | kernel | over integers of a width | over decimals of one scale each |
//! |---|---|---|
//! | +, −, × | [`Arithmetic::of_ints`] | the same of 8 bytes, over integers of one scale, while they hold the result |
//! | a cast of an integer to `numeric` | the value itself, of scale 0 | – |
//!
//! Where a body has no answer (an overflow), the form over values is called, which has the error or the greater number.

use super::Made;
use crate::error::Error;
use crate::types::numeric::MAX_SCALE;
use crate::types::{Datum, Numeric};

/// A function with both forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Arithmetic of integers, with the bytes of the result.
    Int(Arithmetic, u8),
    /// Arithmetic of `numeric`.
    Numeric(Arithmetic),
    /// An integer as `numeric`.
    IntToNumeric,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
}

impl Arithmetic {
    /// The result where it fits into so many bytes.
    #[inline]
    pub(crate) fn of_ints(self, width: u8, a: i64, b: i64) -> Option<i64> {
        let made = match self {
            Self::Add => a.checked_add(b),
            Self::Subtract => a.checked_sub(b),
            Self::Multiply => a.checked_mul(b),
        };
        made.filter(|made| match width {
            2 => i16::try_from(*made).is_ok(),
            4 => i32::try_from(*made).is_ok(),
            _ => true,
        })
    }

    /// The scale of the result of numbers with these scales; none where it is beyond those that there are.
    pub(crate) fn scale(self, a: u16, b: u16) -> Option<u16> {
        match self {
            Self::Add | Self::Subtract => Some(a.max(b)),
            Self::Multiply => a.checked_add(b).filter(|scale| u32::from(*scale) <= MAX_SCALE),
        }
    }
}

impl Kernel {
    /// The form over one value that is not null.
    pub(crate) fn one(self, value: &Datum) -> Made {
        match self {
            Self::IntToNumeric => Ok(Datum::Numeric(Numeric::Small(int(value), 0))),
            Self::Int(..) | Self::Numeric(_) => unreachable!("arithmetic has two arguments"),
        }
    }

    /// The form over two values, neither of them null.
    #[inline]
    pub(crate) fn two(self, a: &Datum, b: &Datum) -> Made {
        match self {
            Self::Int(operation, width) => match operation.of_ints(width, int(a), int(b)) {
                Some(made) => Ok(Datum::Int(made)),
                None => Err(out_of_range(width)),
            },
            Self::Numeric(operation) => {
                let (a, b) = (numeric(a), numeric(b));
                let made = match operation {
                    Arithmetic::Add => a.add(b),
                    Arithmetic::Subtract => a.sub(b),
                    Arithmetic::Multiply => a.mul(b),
                };
                made.map(Datum::Numeric)
            }
            Self::IntToNumeric => unreachable!("a cast has one argument"),
        }
    }
}

fn int(value: &Datum) -> i64 {
    match value {
        Datum::Int(value) => *value,
        other => unreachable!("an integer was bound, not {other:?}"),
    }
}

fn numeric(value: &Datum) -> &Numeric {
    match value {
        Datum::Numeric(value) => value,
        other => unreachable!("a numeric was bound, not {other:?}"),
    }
}

/// The error of an integer that does not fit into so many bytes.
#[cold]
pub(crate) fn out_of_range(width: u8) -> Error {
    let ty = match width {
        2 => "smallint",
        4 => "integer",
        _ => "bigint",
    };
    Error::new("22003", format!("{ty} out of range"))
}
