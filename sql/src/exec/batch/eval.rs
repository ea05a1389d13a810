//! Expressions over a lot: a kernel where there is one, else row by row.
//!
//! Rules:
//! - *What a row would not have evaluated is not evaluated*: AND and OR go on with the rows that are still undecided, if what follows
//!   can fail.
//! - *The error of the first row counts.* A failure names its row; the caller looks at the rows before it, and may find another one.
//! - *One meaning*: whatever has no kernel here runs by [`Expr::eval`].

use std::rc::Rc;

use super::vector::{IntForm, Lot, Values, Vector};
use crate::error::Error;
use crate::expr::kernel::{Arithmetic, Kernel};
use crate::expr::{Call, Comparison, Context, Env, Expr};
use crate::types::{Datum, Numeric};

/// A row that has no value, since evaluating it has failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) row: usize,
    pub(super) error: Box<Error>,
}

type Found<'b> = Result<Rc<Vector<'b>>, Failure>;

/// The surroundings of expressions.
#[derive(Clone, Copy)]
pub(super) struct Evaluator<'e> {
    pub(super) context: &'e Context,
    pub(super) outer: &'e [Datum],
}

/// True if calls of the expression answer alike wherever they stand.
pub(super) fn is_steady(expr: &Expr) -> bool {
    let mut steady = true;
    expr.walk(&mut |node| steady &= !matches!(node, Expr::Call(call, _) if !call.is_constant()));
    steady
}

/// True if a row may have no value of it.
fn may_fail(expr: &Expr) -> bool {
    let mut may = false;
    expr.walk(&mut |node| {
        may |= match node {
            Expr::Call(call, _) => !matches!(call, Call::Compare(_) | Call::Kernel(Kernel::IntToNumeric)),
            Expr::Input(..) | Expr::Output(..) | Expr::Fit(..) | Expr::Elements(..) | Expr::AnyOf { .. } => {
                true
            }
            _ => false,
        }
    });
    may
}

/// One side of an operation over 64 bits.
#[derive(Clone, Copy)]
enum Side<'v> {
    One(i64),
    Many(&'v [i64]),
}

/// Calls `make` with the values of both sides in each row.
#[inline(always)]
fn zip<T>(left: Side<'_>, right: Side<'_>, rows: usize, make: impl Fn(i64, i64) -> T) -> Vec<T> {
    match (left, right) {
        (Side::Many(a), Side::Many(b)) => a.iter().zip(b).map(|(a, b)| make(*a, *b)).collect(),
        (Side::Many(a), Side::One(b)) => a.iter().map(|a| make(*a, b)).collect(),
        (Side::One(a), Side::Many(b)) => b.iter().map(|b| make(a, *b)).collect(),
        (Side::One(a), Side::One(b)) => (0..rows).map(|_| make(a, b)).collect(),
    }
}

fn compare_ints(comparison: Comparison, left: Side<'_>, right: Side<'_>, rows: usize) -> Vec<bool> {
    match comparison {
        Comparison::Less => zip(left, right, rows, |a, b| a < b),
        Comparison::LessEqual => zip(left, right, rows, |a, b| a <= b),
        Comparison::Equal => zip(left, right, rows, |a, b| a == b),
        Comparison::NotEqual => zip(left, right, rows, |a, b| a != b),
        Comparison::GreaterEqual => zip(left, right, rows, |a, b| a >= b),
        Comparison::Greater => zip(left, right, rows, |a, b| a > b),
    }
}

/// Null where one of both is.
fn either_null(left: &Vector<'_>, right: &Vector<'_>) -> Option<Vec<bool>> {
    match (&left.nulls, &right.nulls) {
        (None, None) => None,
        (Some(nulls), None) | (None, Some(nulls)) => Some(nulls.clone()),
        (Some(a), Some(b)) => Some(a.iter().zip(b).map(|(a, b)| a | b).collect()),
    }
}

/// The mantissa of a number at a scale; none where it is not exact in 64 bits.
fn mantissa_at(number: &Numeric, scale: u16) -> Option<i64> {
    let Numeric::Small(mantissa, from) = number else { return None };
    let more = scale.checked_sub(*from)?;
    mantissa.checked_mul(10_i64.checked_pow(u32::from(more))?)
}

/// Both sides as integers of one kind; decimals as integers of one scale.
fn int_sides<'v>(left: &'v Vector<'_>, right: &'v Vector<'_>) -> Option<(Side<'v>, Side<'v>)> {
    let one = |form: IntForm, value: &Datum| form.int(value).map(Side::One);
    let scaled = |scale: u16, value: &Datum| match value {
        Datum::Numeric(number) => mantissa_at(number, scale).map(Side::One),
        _ => None,
    };
    Some(match (&left.values, &right.values) {
        (Values::Ints(form, a), Values::Ints(other, b)) if form == other => (Side::Many(a), Side::Many(b)),
        (Values::Ints(form, a), Values::One(b)) => (Side::Many(a), one(*form, b)?),
        (Values::One(a), Values::Ints(form, b)) => (one(*form, a)?, Side::Many(b)),
        (Values::Scaled(scale, a), Values::Scaled(other, b)) if scale == other => {
            (Side::Many(a), Side::Many(b))
        }
        (Values::Scaled(scale, a), Values::One(b)) => (Side::Many(a), scaled(*scale, b)?),
        (Values::One(a), Values::Scaled(scale, b)) => (scaled(*scale, a)?, Side::Many(b)),
        _ => return None,
    })
}

/// The answer of a comparison; none where there is no kernel.
pub(super) fn compared<'b>(
    comparison: Comparison,
    left: &Vector<'b>,
    right: &Vector<'b>,
    rows: usize,
) -> Option<Vector<'b>> {
    if matches!(&left.values, Values::One(Datum::Null)) || matches!(&right.values, Values::One(Datum::Null)) {
        return Some(Vector::one(Datum::Null));
    }
    if let Some((a, b)) = int_sides(left, right) {
        return Some(Vector::bools(compare_ints(comparison, a, b, rows), either_null(left, right)));
    }
    let (texts, value, comparison) = match (&left.values, &right.values) {
        (Values::Texts(texts), Values::One(value)) => (texts, value, comparison),
        (Values::One(value), Values::Texts(texts)) => (texts, value, comparison.flipped()),
        (Values::Texts(a), Values::Texts(b)) if a.form == b.form => {
            let holds = |row| comparison.holds(a.get(row).cmp(b.get(row)));
            return Some(Vector::bools((0..rows).map(holds).collect(), either_null(left, right)));
        }
        (Values::Floats(a), Values::Floats(b)) => {
            let order = |(a, b): (&f64, &f64)| Datum::Float(*a).compare(&Datum::Float(*b));
            let holds = a.iter().zip(b).map(|pair| comparison.holds(order(pair))).collect();
            return Some(Vector::bools(holds, either_null(left, right)));
        }
        _ => return None,
    };
    let bytes = texts.form.bytes(value)?;
    let holds: Vec<bool> = match comparison {
        Comparison::Equal => (0..rows).map(|row| texts.get(row) == bytes).collect(),
        Comparison::NotEqual => (0..rows).map(|row| texts.get(row) != bytes).collect(),
        _ => (0..rows).map(|row| comparison.holds(texts.get(row).cmp(bytes))).collect(),
    };
    Some(Vector::bools(holds, either_null(left, right)))
}

/// Integers that an operation makes; the first row, not a null, where it makes none.
fn operated(
    (operation, width): (Arithmetic, u8),
    (left, right): (Side<'_>, Side<'_>),
    rows: usize,
    is_null: impl Fn(usize) -> bool,
) -> Result<Vec<i64>, usize> {
    #[inline(always)]
    fn run(
        (left, right): (Side<'_>, Side<'_>),
        rows: usize,
        make: impl Fn(i64, i64) -> Option<i64>,
    ) -> (Vec<i64>, bool) {
        let missing = std::cell::Cell::new(false);
        let made = zip(left, right, rows, |a, b| {
            let made = make(a, b);
            missing.set(missing.get() | made.is_none());
            made.unwrap_or(0)
        });
        (made, missing.get())
    }
    let sides = (left, right);
    let (made, missing) = match operation {
        Arithmetic::Add => run(sides, rows, |a, b| Arithmetic::Add.of_ints(width, a, b)),
        Arithmetic::Subtract => run(sides, rows, |a, b| Arithmetic::Subtract.of_ints(width, a, b)),
        Arithmetic::Multiply => run(sides, rows, |a, b| Arithmetic::Multiply.of_ints(width, a, b)),
    };
    if missing {
        let at = |side, row: usize| match side {
            Side::One(value) => value,
            Side::Many(values) => values[row],
        };
        let fails = |row: &usize| {
            !is_null(*row) && operation.of_ints(width, at(left, *row), at(right, *row)).is_none()
        };
        if let Some(row) = (0..rows).find(fails) {
            return Err(row);
        }
    }
    Ok(made)
}

/// Decimals as integers of a scale.
fn rescaled(vector: &Vector<'_>, scale: u16) -> Option<Vec<i64>> {
    let Values::Scaled(from, values) = &vector.values else { return None };
    let factor = 10_i64.checked_pow(u32::from(scale.checked_sub(*from)?))?;
    values.iter().map(|value| value.checked_mul(factor)).collect()
}

/// Decimals that an operation makes; none where 64 bits do not hold them, or there is no kernel.
fn decimals<'b>(
    operation: Arithmetic,
    left: &Vector<'b>,
    right: &Vector<'b>,
    rows: usize,
) -> Option<Vector<'b>> {
    let scale_of = |vector: &Vector<'_>| match &vector.values {
        Values::Scaled(scale, _) | Values::One(Datum::Numeric(Numeric::Small(_, scale))) => Some(*scale),
        _ => None,
    };
    let (a, b) = (scale_of(left)?, scale_of(right)?);
    let scale = operation.scale(a, b)?;
    // Sums have terms of one scale, products factors of their own.
    let (to_a, to_b) = if operation == Arithmetic::Multiply { (a, b) } else { (scale, scale) };
    let (mut room_a, mut room_b) = (None, None);
    fn side<'v>(vector: &'v Vector<'_>, scale: u16, room: &'v mut Option<Vec<i64>>) -> Option<Side<'v>> {
        Some(match &vector.values {
            Values::One(Datum::Numeric(number)) => Side::One(mantissa_at(number, scale)?),
            Values::Scaled(from, values) if *from == scale => Side::Many(values),
            _ => Side::Many(room.insert(rescaled(vector, scale)?)),
        })
    }
    let sides = (side(left, to_a, &mut room_a)?, side(right, to_b, &mut room_b)?);
    let nulls = either_null(left, right);
    let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls[row]);
    let made = operated((operation, 8), sides, rows, is_null).ok()?;
    Some(Vector { values: Values::Scaled(scale, made.into()), nulls })
}

impl Evaluator<'_> {
    /// The values of an expression for the rows of a lot, which has some.
    pub(super) fn eval<'b>(&self, expr: &Expr, lot: &Lot<'b>) -> Found<'b> {
        match expr {
            Expr::Column(index) => Ok(lot.column(*index)),
            Expr::Const(value) => Ok(Rc::new(Vector::one(value.clone()))),
            Expr::Outer(index) => Ok(Rc::new(Vector::one(self.outer[*index].clone()))),
            Expr::Param(_) => self.once(expr),
            Expr::And(terms) => self.junction(terms, false, lot),
            Expr::Or(terms) => self.junction(terms, true, lot),
            _ if expr.columns().is_empty() && is_steady(expr) => self.once(expr),
            Expr::Not(arg) => {
                let arg = self.eval(arg, lot)?;
                let flipped = (0..lot.rows).map(|row| arg.truth(row) != Some(true)).collect();
                let nulls = (0..lot.rows).map(|row| arg.truth(row).is_none()).collect();
                Ok(Rc::new(Vector::bools(flipped, Some(nulls))))
            }
            Expr::IsNull(arg, negated) => {
                let arg = self.eval(arg, lot)?;
                match &arg.values {
                    // A row value is null if its fields are.
                    Values::One(_) | Values::Datums(_) => self.by_row(expr, lot),
                    _ => {
                        let holds = (0..lot.rows).map(|row| arg.is_null(row) != *negated).collect();
                        Ok(Rc::new(Vector::bools(holds, None)))
                    }
                }
            }
            Expr::Call(Call::Compare(comparison), sides) => {
                let (left, right) = (self.eval(&sides[0], lot)?, self.eval(&sides[1], lot)?);
                match compared(*comparison, &left, &right, lot.rows) {
                    Some(made) => Ok(Rc::new(made)),
                    None => self.by_row(expr, lot),
                }
            }
            Expr::Call(Call::Kernel(kernel), args) => self.kernel(*kernel, args, expr, lot),
            _ => self.by_row(expr, lot),
        }
    }

    /// The values of several expressions.
    pub(super) fn all<'x, 'b>(
        &self,
        exprs: impl IntoIterator<Item = &'x Expr>,
        lot: &Lot<'b>,
    ) -> Result<Vec<Rc<Vector<'b>>>, Failure> {
        exprs.into_iter().map(|expr| self.eval(expr, lot)).collect()
    }

    fn kernel<'b>(&self, kernel: Kernel, args: &[Expr], expr: &Expr, lot: &Lot<'b>) -> Found<'b> {
        let first = self.eval(&args[0], lot)?;
        let made = match kernel {
            Kernel::IntToNumeric => match &first.values {
                Values::Ints(IntForm::Int, values) => {
                    let nulls = first.nulls.clone();
                    Some(Vector { values: Values::Scaled(0, values.clone()), nulls })
                }
                _ => None,
            },
            Kernel::Int(operation, width) => {
                let second = self.eval(&args[1], lot)?;
                match int_sides(&first, &second) {
                    Some(sides) => {
                        let nulls = either_null(&first, &second);
                        let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls[row]);
                        match operated((operation, width), sides, lot.rows, is_null) {
                            Ok(made) => {
                                Some(Vector { values: Values::Ints(IntForm::Int, made.into()), nulls })
                            }
                            // The form over values has the error.
                            Err(_) => None,
                        }
                    }
                    None => None,
                }
            }
            Kernel::Numeric(operation) => decimals(operation, &first, &*self.eval(&args[1], lot)?, lot.rows),
        };
        match made {
            Some(made) => Ok(Rc::new(made)),
            None => self.by_row(expr, lot),
        }
    }

    /// The value of an expression that asks for no row.
    fn once<'b>(&self, expr: &Expr) -> Found<'b> {
        let env = Env { row: &[], outer: self.outer, context: self.context };
        match expr.eval(&env) {
            Ok(value) => Ok(Rc::new(Vector::one(value))),
            Err(error) => Err(Failure { row: 0, error: Box::new(error) }),
        }
    }

    /// The values, row by row.
    fn by_row<'b>(&self, expr: &Expr, lot: &Lot<'b>) -> Found<'b> {
        let mut columns = expr.columns();
        columns.sort_unstable();
        columns.dedup();
        let vectors: Vec<(usize, Rc<Vector<'_>>)> =
            columns.into_iter().map(|column| (column, lot.column(column))).collect();
        let mut row = vec![Datum::Null; lot.width()];
        let mut made = Vec::with_capacity(lot.rows);
        for at in 0..lot.rows {
            for (column, vector) in &vectors {
                row[*column] = vector.datum(at);
            }
            let env = Env { row: &row, outer: self.outer, context: self.context };
            let value = self.context.check().and_then(|()| expr.eval(&env));
            made.push(value.map_err(|error| Failure { row: at, error: Box::new(error) })?);
        }
        Ok(Rc::new(Vector { values: Values::Datums(made), nulls: None }))
    }

    /// AND (until one is false) or OR (until one is `decisive`, true).
    fn junction<'b>(&self, terms: &[Expr], decisive: bool, lot: &Lot<'b>) -> Found<'b> {
        let (mut decided, mut unknown) = (vec![false; lot.rows], vec![false; lot.rows]);
        for term in terms {
            let open: Option<Vec<u32>> = (may_fail(term) && decided.contains(&true)).then(|| {
                let rows = decided.iter().zip(0..).filter(|(decided, _)| !**decided);
                rows.map(|(_, row)| row).collect()
            });
            match open {
                None => {
                    let truth = self.eval(term, lot)?;
                    for row in 0..lot.rows {
                        match truth.truth(row) {
                            Some(value) => decided[row] |= value == decisive,
                            None => unknown[row] = true,
                        }
                    }
                }
                Some(open) if open.is_empty() => break,
                Some(open) => {
                    let of_part = |failure: Failure| Failure { row: open[failure.row] as usize, ..failure };
                    let truth = self.eval(term, &lot.at(&open)).map_err(of_part)?;
                    for (at, row) in open.iter().enumerate() {
                        match truth.truth(at) {
                            Some(value) => decided[*row as usize] |= value == decisive,
                            None => unknown[*row as usize] = true,
                        }
                    }
                }
            }
        }
        // Where a term has decided, the unknown ones do not count.
        let nulls: Vec<bool> =
            unknown.iter().zip(&decided).map(|(unknown, decided)| *unknown && !decided).collect();
        let values = decided.iter().map(|decided| *decided == decisive).collect();
        Ok(Rc::new(Vector::bools(values, nulls.contains(&true).then_some(nulls))))
    }

    /// The rows of a lot of which a condition holds.
    pub(super) fn holding(&self, condition: &Expr, lot: &Lot<'_>) -> Result<Vec<u32>, Failure> {
        let truth = self.eval(condition, lot)?;
        let rows = 0..u32::try_from(lot.rows).expect("a batch has some thousand rows");
        Ok(match (&truth.values, &truth.nulls) {
            (Values::Bools(values), None) => rows.filter(|row| values[*row as usize]).collect(),
            _ => rows.filter(|row| truth.truth(*row as usize) == Some(true)).collect(),
        })
    }
}
