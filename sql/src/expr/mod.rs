//! Bound expressions, and how they run: a tree whose nodes hold the functions that they call.
//!
//! Overloads, casts and types are settled when a statement is bound, so a node is a function pointer and its arguments. The
//! tree is walked, not compiled to closures: both cost an indirect call a node, and a tree can be looked at (for indexes,
//! constants, columns in use), shown and kept. Columns, constants and parameters are lent ([`Expr::lend`]), so that a comparison
//! or a sum over them allocates nothing.
//!
//! Expressions never read tables: sub-queries are lifted out of them when they are bound, and stand here as columns.
//!
//! A statement's expressions share a [`Context`]: its parameters and times, the memory that it keeps ([`memory`]), its turns
//! between those of other statements ([`pace`]), and the way of its rows to a client ([`outlet`]).

pub(crate) mod kernel;
pub(crate) mod later;
pub(crate) mod memory;
pub(crate) mod meter;
pub(crate) mod outlet;
pub(crate) mod pace;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use thermocline_base::clock::{Clock, SystemClock};

use self::kernel::Kernel;
use crate::error::{Error, Result};
use crate::shared::interrupt::{Cause, Interrupt};
use crate::types::{Datum, Local, Record, Shape, Type, text};

/// The result of a function.
pub(crate) type Made = Result<Datum>;

/// A time by which a statement has to be done; the clock is looked at with every so many rows.
#[derive(Debug)]
pub(crate) struct Deadline {
    clock: Arc<dyn Clock>,
    at_us: i64,
    rows: std::cell::Cell<u8>,
}

impl Deadline {
    pub(crate) fn new(clock: Arc<dyn Clock>, at_us: i64) -> Self {
        Self { clock, at_us, rows: std::cell::Cell::new(0) }
    }

    /// The same time on the clock of timers.
    fn at_ns(&self) -> u64 {
        let left_us = u64::try_from(self.at_us - self.clock.wall_us()).unwrap_or(0);
        SystemClock.now_ns() + left_us * 1000
    }

    fn is_over(&self) -> bool {
        self.clock.wall_us() >= self.at_us
    }
}

impl Context {
    /// Is the statement to go on?
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(deadline) = &self.deadline {
            let rows = deadline.rows.get().wrapping_add(1);
            deadline.rows.set(rows);
            if rows == 0 && deadline.clock.wall_us() >= deadline.at_us {
                return Err(Cause::TimedOut.error());
            }
        }
        self.interrupt.check()
    }
}

/// The surroundings of a statement's expressions, which do not change while it runs.
#[derive(Debug, Default)]
pub(crate) struct Context {
    pub(crate) interrupt: Interrupt,
    /// When the statement has to be done.
    pub(crate) deadline: Option<Deadline>,
    pub(crate) parameters: Vec<Datum>,
    /// The transaction's time, and the session's zone.
    pub(crate) local: Local,
    /// The time at which the statement began.
    pub(crate) statement: i64,
    /// The session's sequences; none where constants are computed.
    pub(crate) sequences: Option<crate::objects::sequences::SessionSequences>,
    /// The session, for functions that ask it; none where nothing does.
    pub(crate) facts: Option<Arc<crate::shared::facts::Facts>>,
    /// The transaction only reads: sequences stand still in it.
    pub(crate) read_only: bool,
    /// Counts the work of each operator, for EXPLAIN ANALYZE.
    pub(crate) meter: Option<Arc<meter::Meter>>,
    /// When it lets others have a turn.
    pub(crate) pace: pace::Pace,
    /// The memory that it keeps.
    pub(crate) memory: memory::Memory,
    /// The memory of an operator, before its rows go to a file.
    pub(crate) grant: memory::Grant,
    /// Work for its next pause.
    pub(crate) later: later::Later,
    /// The way of its rows to a client while it runs; none: they stay until it has ended.
    pub(crate) outlet: Option<outlet::Outlet>,
}

/// All that an expression may look at.
#[derive(Clone, Copy)]
pub(crate) struct Env<'e> {
    pub(crate) row: &'e [Datum],
    /// Values of enclosing queries that this one refers to.
    pub(crate) outer: &'e [Datum],
    pub(crate) context: &'e Context,
}

/// The form of a function. All but `All` answer null when an argument is null.
#[derive(Clone, Copy)]
pub(crate) enum Call {
    None(fn(&Env<'_>) -> Made),
    One(fn(&Datum) -> Made),
    Two(fn(&Datum, &Datum) -> Made),
    /// The same, which look at the surroundings too, such as the session's zone: they answer otherwise elsewhere.
    OneIn(fn(&Datum, &Env<'_>) -> Made),
    TwoIn(fn(&Datum, &Datum, &Env<'_>) -> Made),
    /// Any number of arguments, none of them null.
    Many(fn(&[Datum], &Env<'_>) -> Made),
    /// Any number, nulls too.
    All(fn(&[Datum], &Env<'_>) -> Made),
    /// A comparison of two values of one form.
    Compare(Comparison),
    /// A function that has a form over columns, too.
    Kernel(Kernel),
}

impl Call {
    /// Does it answer the same wherever it is called with the same arguments, so that a constant may stand for it?
    pub(crate) fn is_constant(self) -> bool {
        matches!(self, Call::One(_) | Call::Two(_) | Call::Compare(_) | Call::Kernel(_))
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Call")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Less,
    LessEqual,
    Equal,
    NotEqual,
    GreaterEqual,
    Greater,
}

impl Comparison {
    #[inline]
    pub(crate) fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Less => order == Ordering::Less,
            Self::LessEqual => order != Ordering::Greater,
            Self::Equal => order == Ordering::Equal,
            Self::NotEqual => order != Ordering::Equal,
            Self::GreaterEqual => order != Ordering::Less,
            Self::Greater => order == Ordering::Greater,
        }
    }

    /// The same with the sides exchanged.
    pub(crate) fn flipped(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessEqual => Self::GreaterEqual,
            Self::GreaterEqual => Self::LessEqual,
            Self::Greater => Self::Less,
            same => same,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Const(Datum),
    Column(usize),
    Outer(usize),
    Param(usize),
    Call(Call, Vec<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    IsNull(Box<Expr>, bool),
    IsBool(Box<Expr>, Option<bool>, bool),
    IsDistinct(Box<Expr>, Box<Expr>, bool),
    /// The second is evaluated where the first is true.
    Case(Vec<(Expr, Expr)>, Box<Expr>),
    Coalesce(Vec<Expr>),
    /// Null where the condition holds, else the value.
    NullIf(Box<Expr>, Box<Expr>),
    Extreme(bool, Vec<Expr>),
    /// Is the value one of the constants? Their set, and whether a null is among them.
    InSet(Box<Expr>, Arc<std::collections::HashSet<Datum>>, bool),
    /// Does an operator with two sides and a truth value hold for one, or `all`, of an array's elements?
    AnyOf {
        call: Call,
        all: bool,
        arg: Box<Expr>,
        array: Box<Expr>,
    },
    /// An array with an expression made of each element, which is that one's only column.
    Elements(Box<Expr>, Box<Expr>),
    Record(Vec<Expr>, Arc<Shape>),
    /// Text read as a value of this type.
    Input(Box<Expr>, Type, i32),
    /// A value of this type as text.
    Output(Box<Expr>, Type),
    Fit(Box<Expr>, Type, i32, bool),
}

impl Expr {
    pub(crate) fn is_const(&self) -> bool {
        matches!(self, Expr::Const(_))
    }

    /// The value in this environment.
    pub(crate) fn eval(&self, env: &Env<'_>) -> Made {
        match self {
            Expr::Const(value) => Ok(value.clone()),
            Expr::Column(index) => Ok(env.row[*index].clone()),
            Expr::Outer(index) => Ok(env.outer[*index].clone()),
            Expr::Param(index) => env.parameter(*index).cloned(),
            Expr::Call(call, args) => apply(*call, args, env),
            Expr::And(terms) => junction(terms, false, env),
            Expr::Or(terms) => junction(terms, true, env),
            Expr::Not(arg) => Ok(match arg.eval(env)? {
                Datum::Bool(value) => Datum::Bool(!value),
                _ => Datum::Null,
            }),
            Expr::IsNull(arg, negated) => Ok(Datum::Bool(is_null(&*arg.lend(env)?, *negated))),
            Expr::IsBool(arg, wanted, negated) => {
                let found = match &*arg.lend(env)? {
                    Datum::Bool(value) => Some(*value),
                    _ => None,
                };
                Ok(Datum::Bool((found == *wanted) != *negated))
            }
            Expr::IsDistinct(left, right, negated) => {
                Ok(Datum::Bool((*left.lend(env)? != *right.lend(env)?) != *negated))
            }
            _ => self.eval_rest(env),
        }
    }

    fn eval_rest(&self, env: &Env<'_>) -> Made {
        match self {
            Expr::Case(whens, other) => {
                for (condition, value) in whens {
                    if matches!(condition.eval(env)?, Datum::Bool(true)) {
                        return value.eval(env);
                    }
                }
                other.eval(env)
            }
            Expr::Coalesce(args) => {
                for arg in args {
                    let value = arg.eval(env)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Ok(Datum::Null)
            }
            Expr::NullIf(condition, value) => {
                if matches!(condition.eval(env)?, Datum::Bool(true)) {
                    Ok(Datum::Null)
                } else {
                    value.eval(env)
                }
            }
            Expr::Extreme(greatest, args) => {
                let wanted = if *greatest { Ordering::Greater } else { Ordering::Less };
                let mut best = Datum::Null;
                for arg in args {
                    let value = arg.eval(env)?;
                    if !value.is_null() && (best.is_null() || value.compare(&best) == wanted) {
                        best = value;
                    }
                }
                Ok(best)
            }
            Expr::InSet(arg, set, has_null) => {
                let value = arg.lend(env)?;
                if value.is_null() {
                    return Ok(Datum::Null);
                }
                Ok(if set.contains(&*value) {
                    Datum::Bool(true)
                } else if *has_null {
                    Datum::Null
                } else {
                    Datum::Bool(false)
                })
            }
            Expr::AnyOf { call, all, arg, array } => {
                let (value, array) = (arg.lend(env)?, array.lend(env)?);
                let Datum::Array(items) = &*array else { return Ok(Datum::Null) };
                if value.is_null() && !items.is_empty() {
                    return Ok(Datum::Null);
                }
                let mut unknown = false;
                for item in items.iter() {
                    let holds = match call {
                        _ if item.is_null() => Datum::Null,
                        Call::Compare(comparison) => Datum::Bool(comparison.holds(value.compare(item))),
                        Call::Two(function) => function(&value, item)?,
                        Call::TwoIn(function) => function(&value, item, env)?,
                        _ => unreachable!("an operator has two sides"),
                    };
                    match holds {
                        Datum::Bool(holds) if holds != *all => return Ok(Datum::Bool(!*all)),
                        Datum::Bool(_) => {}
                        _ => unknown = true,
                    }
                }
                Ok(if unknown { Datum::Null } else { Datum::Bool(*all) })
            }
            Expr::Elements(array, each) => {
                let array = array.lend(env)?;
                let Datum::Array(items) = &*array else { return Ok(Datum::Null) };
                let made =
                    items.iter().map(|item| each.eval(&Env { row: std::slice::from_ref(item), ..*env }));
                Ok(Datum::Array(made.collect::<Result<_>>()?))
            }
            Expr::Record(args, shape) => {
                let values: Result<Vec<Datum>> = args.iter().map(|arg| arg.eval(env)).collect();
                Ok(Datum::Record(Record::new(shape, values?)))
            }
            Expr::Input(arg, ty, modifier) => match arg.lend(env)?.as_text() {
                Some(value) => text::input(value, *ty, *modifier, &env.context.local),
                None => Ok(Datum::Null),
            },
            Expr::Output(arg, ty) => {
                let value = arg.lend(env)?;
                Ok(if value.is_null() {
                    Datum::Null
                } else {
                    Datum::text(text::show(&value, *ty, &env.context.local.zone))
                })
            }
            Expr::Fit(arg, ty, modifier, explicit) => {
                let value = arg.eval(env)?;
                if value.is_null() { Ok(value) } else { text::fit(value, *ty, *modifier, *explicit) }
            }
            _ => unreachable!("eval has these"),
        }
    }

    /// The value, borrowed where it stands somewhere.
    #[inline]
    pub(crate) fn lend<'e>(&'e self, env: &Env<'e>) -> Result<Cow<'e, Datum>> {
        Ok(match self {
            Expr::Column(index) => Cow::Borrowed(&env.row[*index]),
            Expr::Const(value) => Cow::Borrowed(value),
            Expr::Outer(index) => Cow::Borrowed(&env.outer[*index]),
            Expr::Param(index) => Cow::Borrowed(env.parameter(*index)?),
            _ => Cow::Owned(self.eval(env)?),
        })
    }

    /// Is it true (neither false nor null)?
    #[inline]
    pub(crate) fn holds(&self, env: &Env<'_>) -> Result<bool> {
        Ok(matches!(*self.lend(env)?, Datum::Bool(true)))
    }

    /// Calls `see` with each node, outermost first.
    pub(crate) fn walk(&self, see: &mut impl FnMut(&Expr)) {
        see(self);
        match self {
            Expr::Const(_) | Expr::Column(_) | Expr::Outer(_) | Expr::Param(_) => {}
            Expr::Call(_, args)
            | Expr::And(args)
            | Expr::Or(args)
            | Expr::Coalesce(args)
            | Expr::Extreme(_, args)
            | Expr::Record(args, _) => args.iter().for_each(|arg| arg.walk(see)),
            Expr::Not(arg)
            | Expr::IsNull(arg, _)
            | Expr::IsBool(arg, ..)
            | Expr::InSet(arg, ..)
            | Expr::Input(arg, ..)
            | Expr::Output(arg, _)
            | Expr::Elements(arg, _)
            | Expr::Fit(arg, ..) => arg.walk(see),
            Expr::AnyOf { arg: left, array: right, .. }
            | Expr::IsDistinct(left, right, _)
            | Expr::NullIf(left, right) => {
                left.walk(see);
                right.walk(see);
            }
            Expr::Case(whens, other) => {
                for (condition, value) in whens {
                    condition.walk(see);
                    value.walk(see);
                }
                other.walk(see);
            }
        }
    }

    /// Changes each node in place, innermost first.
    pub(crate) fn rewrite(&mut self, change: &mut impl FnMut(&mut Expr)) {
        match self {
            Expr::Const(_) | Expr::Column(_) | Expr::Outer(_) | Expr::Param(_) => {}
            Expr::Call(_, args)
            | Expr::And(args)
            | Expr::Or(args)
            | Expr::Coalesce(args)
            | Expr::Extreme(_, args)
            | Expr::Record(args, _) => args.iter_mut().for_each(|arg| arg.rewrite(change)),
            Expr::Not(arg)
            | Expr::IsNull(arg, _)
            | Expr::IsBool(arg, ..)
            | Expr::InSet(arg, ..)
            | Expr::Input(arg, ..)
            | Expr::Output(arg, _)
            | Expr::Elements(arg, _)
            | Expr::Fit(arg, ..) => arg.rewrite(change),
            Expr::AnyOf { arg: left, array: right, .. }
            | Expr::IsDistinct(left, right, _)
            | Expr::NullIf(left, right) => {
                left.rewrite(change);
                right.rewrite(change);
            }
            Expr::Case(whens, other) => {
                for (condition, value) in whens {
                    condition.rewrite(change);
                    value.rewrite(change);
                }
                other.rewrite(change);
            }
        }
        change(self);
    }

    /// The columns of the row that it looks at.
    pub(crate) fn columns(&self) -> Vec<usize> {
        let mut all = Vec::new();
        self.walk(&mut |node| {
            if let Expr::Column(index) = node {
                all.push(*index);
            }
        });
        all
    }

    /// Moves all columns by `by` places.
    pub(crate) fn shift(&mut self, by: isize) {
        self.rewrite(&mut |node| {
            if let Expr::Column(index) = node {
                *index = index.checked_add_signed(by).expect("a column stays within its row");
            }
        });
    }
}

impl<'e> Env<'e> {
    #[inline]
    fn parameter(&self, index: usize) -> Result<&'e Datum> {
        self.context
            .parameters
            .get(index)
            .ok_or_else(|| Error::new("08P01", format!("there is no value for parameter ${}", index + 1)))
    }
}

/// Of a row value: all of its fields, or none, are null.
fn is_null(value: &Datum, negated: bool) -> bool {
    match value {
        Datum::Record(fields) => fields.iter().all(|field| field.is_null() != negated),
        value => value.is_null() != negated,
    }
}

/// A text or array of so many bytes is looked at when it is made.
const LARGE: usize = 64 << 10;

/// Is there room for a value that was just made, and for another one like it?
#[inline]
fn fitting(made: Datum, env: &Env<'_>) -> Made {
    let bytes = match &made {
        Datum::Text(text) | Datum::Jsonb(text) => text.len(),
        Datum::Bytes(bytes) => bytes.len(),
        Datum::Array(all) => size_of_val(&**all),
        _ => return Ok(made),
    };
    if bytes >= LARGE {
        env.context.memory.has_room_for(bytes as u64)?;
    }
    Ok(made)
}

#[inline]
fn apply(call: Call, args: &[Expr], env: &Env<'_>) -> Made {
    match (call, args) {
        (Call::Compare(comparison), [left, right]) => {
            let (left, right) = (left.lend(env)?, right.lend(env)?);
            if left.is_null() || right.is_null() {
                return Ok(Datum::Null);
            }
            if let (Datum::Record(a), Datum::Record(b)) = (&*left, &*right) {
                return compare_records(comparison, a, b);
            }
            Ok(Datum::Bool(comparison.holds(left.compare(&right))))
        }
        (Call::Two(function), [left, right]) => {
            let (left, right) = (left.lend(env)?, right.lend(env)?);
            if left.is_null() || right.is_null() {
                Ok(Datum::Null)
            } else {
                fitting(function(&left, &right)?, env)
            }
        }
        (Call::Kernel(kernel), [left, right]) => {
            let (left, right) = (left.lend(env)?, right.lend(env)?);
            if left.is_null() || right.is_null() { Ok(Datum::Null) } else { kernel.two(&left, &right) }
        }
        (Call::One(function), [arg]) => {
            let arg = arg.lend(env)?;
            if arg.is_null() { Ok(Datum::Null) } else { function(&arg) }
        }
        (Call::Kernel(kernel), [arg]) => {
            let arg = arg.lend(env)?;
            if arg.is_null() { Ok(Datum::Null) } else { kernel.one(&arg) }
        }
        (Call::TwoIn(function), [left, right]) => {
            let (left, right) = (left.lend(env)?, right.lend(env)?);
            if left.is_null() || right.is_null() {
                Ok(Datum::Null)
            } else {
                fitting(function(&left, &right, env)?, env)
            }
        }
        (Call::OneIn(function), [arg]) => {
            let arg = arg.lend(env)?;
            if arg.is_null() { Ok(Datum::Null) } else { fitting(function(&arg, env)?, env) }
        }
        (Call::None(function), []) => function(env),
        (Call::Many(function), args) => {
            let values: Vec<Datum> = args.iter().map(|arg| arg.eval(env)).collect::<Result<_>>()?;
            if values.iter().any(Datum::is_null) {
                Ok(Datum::Null)
            } else {
                fitting(function(&values, env)?, env)
            }
        }
        (Call::All(function), args) => {
            let values: Vec<Datum> = args.iter().map(|arg| arg.eval(env)).collect::<Result<_>>()?;
            fitting(function(&values, env)?, env)
        }
        _ => unreachable!("the registry's functions have as many arguments as they are called with"),
    }
}

/// Row values compare field by field; a null decides nothing unless an earlier field has decided.
pub(crate) fn compare_records(comparison: Comparison, a: &[Datum], b: &[Datum]) -> Made {
    let equality = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
    let mut unknown = false;
    for (a, b) in a.iter().zip(b) {
        if a.is_null() || b.is_null() {
            if equality {
                unknown = true;
                continue;
            }
            return Ok(Datum::Null);
        }
        if let (Datum::Record(a), Datum::Record(b)) = (a, b) {
            a.may_compare(b)?;
        }
        let order = a.compare(b);
        if order != Ordering::Equal {
            return Ok(Datum::Bool(comparison.holds(order)));
        }
    }
    Ok(if unknown { Datum::Null } else { Datum::Bool(comparison.holds(Ordering::Equal)) })
}

/// AND (until one is false) or OR (until one is `decisive`, true).
fn junction(terms: &[Expr], decisive: bool, env: &Env<'_>) -> Made {
    let mut unknown = false;
    for term in terms {
        match *term.lend(env)? {
            Datum::Bool(value) if value == decisive => return Ok(Datum::Bool(decisive)),
            Datum::Bool(_) => {}
            _ => unknown = true,
        }
    }
    Ok(if unknown { Datum::Null } else { Datum::Bool(!decisive) })
}
