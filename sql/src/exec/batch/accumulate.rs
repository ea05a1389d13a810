//! Aggregates of groups, taken a column at a time.
//!
//! Counts, sums of integers and decimals, and extremes of what stands in 64 bits have lists with a place a group; every other aggregate,
//! and those whose argument changes its kind, has the states of [`Aggregate::take`], a group each.

use std::rc::Rc;

use super::eval::Failure;
use super::vector::{IntForm, Values, Vector};
use crate::exec::Row;
use crate::expr::memory::{Kept, size_behind};
use crate::functions::aggregates::{Aggregate, State};
use crate::types::{Datum, Numeric};

/// The kind of 64 bits whose extremes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Int(IntForm),
    Scaled(u16),
}

impl Form {
    fn datum(self, value: i64) -> Datum {
        match self {
            Self::Int(form) => form.datum(value),
            Self::Scaled(scale) => Datum::Numeric(Numeric::Small(value, scale)),
        }
    }

    /// The kind of a vector, with its values.
    fn of<'v>(vector: &'v Vector<'_>) -> Option<(Self, &'v [i64])> {
        match &vector.values {
            Values::Ints(form, values) => Some((Self::Int(*form), values)),
            Values::Scaled(scale, values) => Some((Self::Scaled(*scale), values)),
            _ => None,
        }
    }
}

#[derive(Debug)]
enum Kind {
    Counts(Vec<i64>),
    /// Sums and counts.
    Sums(Form, Vec<(i128, i64)>),
    /// Least or greatest values, where there are some.
    Extremes(Form, Vec<Option<i64>>),
    States(Vec<State>),
}

/// An aggregate of all groups.
#[derive(Debug)]
pub(super) struct Accumulator {
    aggregate: Aggregate,
    /// None: no row has come.
    kind: Option<Kind>,
}

impl Accumulator {
    pub(super) fn new(aggregate: Aggregate) -> Self {
        Self { aggregate, kind: None }
    }

    /// Bytes that a group takes.
    pub(super) const GROUP_BYTES: usize = 2 * size_of::<State>();

    /// The lists that fit a first argument.
    fn kind_for(&self, argument: Option<&Vector<'_>>, groups: usize) -> Kind {
        match (self.aggregate, argument.and_then(Form::of)) {
            (Aggregate::CountAll | Aggregate::Count, _) => Kind::Counts(vec![0; groups]),
            (
                Aggregate::SumInt | Aggregate::SumInt8 | Aggregate::AverageInt,
                Some((form @ Form::Int(IntForm::Int), _)),
            )
            | (Aggregate::SumNumeric | Aggregate::AverageNumeric, Some((form @ Form::Scaled(_), _))) => {
                Kind::Sums(form, vec![(0, 0); groups])
            }
            (Aggregate::Min | Aggregate::Max, Some((form, _))) => Kind::Extremes(form, vec![None; groups]),
            _ => Kind::States(vec![self.aggregate.start(); groups]),
        }
    }

    /// Takes the arguments of rows, whose groups these are, of so many.
    pub(super) fn take(
        &mut self,
        arguments: &[Rc<Vector<'_>>],
        (groups, count): (&[u32], usize),
        kept: &mut Kept<'_>,
    ) -> Result<(), Failure> {
        let first = arguments.first().map(|vector| &**vector);
        let mut kind = match self.kind.take() {
            Some(kind) => kind,
            None => self.kind_for(first, count),
        };
        let form = first.and_then(Form::of).map(|(form, _)| form);
        if let Kind::Sums(known, _) | Kind::Extremes(known, _) = &kind
            && form != Some(*known)
        {
            kind = Kind::States(self.states(kind));
        }
        let taken = self.take_rows(&mut kind, arguments, (groups, count), kept);
        self.kind = Some(kind);
        taken
    }

    fn take_rows(
        &self,
        kind: &mut Kind,
        arguments: &[Rc<Vector<'_>>],
        (groups, count): (&[u32], usize),
        kept: &mut Kept<'_>,
    ) -> Result<(), Failure> {
        let rows = 0..groups.len();
        let first = arguments.first().map(|vector| &**vector);
        let is_null = |row: usize| first.is_some_and(|vector| vector.is_null(row));
        match kind {
            Kind::Counts(counts) => {
                counts.resize(count, 0);
                let all = first.is_none_or(|vector| {
                    vector.nulls.is_none() && !matches!(vector.values, Values::One(_) | Values::Datums(_))
                });
                if all {
                    groups.iter().for_each(|group| counts[*group as usize] += 1);
                } else {
                    rows.filter(|row| !is_null(*row)).for_each(|row| counts[groups[row] as usize] += 1);
                }
            }
            Kind::Sums(_, sums) => {
                sums.resize(count, (0, 0));
                let vector = first.expect("a sum has an argument");
                let (_, values) = Form::of(vector).expect("the kind was looked at");
                let mut add = |row: usize| {
                    let (sum, count) = &mut sums[groups[row] as usize];
                    *sum += i128::from(values[row]);
                    *count += 1;
                };
                match &vector.nulls {
                    None => rows.for_each(add),
                    Some(nulls) => rows.filter(|row| !nulls[*row]).for_each(&mut add),
                }
            }
            Kind::Extremes(_, best) => {
                best.resize(count, None);
                let (_, values) = first.and_then(Form::of).expect("the kind was looked at");
                let greatest = self.aggregate == Aggregate::Max;
                for row in rows.filter(|row| !is_null(*row)) {
                    let (best, value) = (&mut best[groups[row] as usize], values[row]);
                    *best = Some(match *best {
                        None => value,
                        Some(known) if greatest => known.max(value),
                        Some(known) => known.min(value),
                    });
                }
            }
            Kind::States(states) => {
                states.resize(count, self.aggregate.start());
                let mut args = Row::new();
                for row in rows {
                    args.clear();
                    args.extend(arguments.iter().map(|vector| vector.datum(row)));
                    let mut take = || {
                        // A value that grows is copied when it is finished.
                        if self.aggregate.keeps() {
                            let bytes = |arg: &Datum| size_of::<Datum>() + size_behind(arg);
                            kept.add(2 * args.iter().map(bytes).sum::<usize>())?;
                        }
                        self.aggregate.take(&mut states[groups[row] as usize], &args)
                    };
                    take().map_err(|error| Failure { row, error: Box::new(error) })?;
                }
            }
        }
        Ok(())
    }

    /// The states of what was taken so far.
    fn states(&self, kind: Kind) -> Vec<State> {
        match kind {
            Kind::Counts(counts) => counts.into_iter().map(State::Count).collect(),
            Kind::Sums(form, sums) => sums.into_iter().map(|sum| Self::sum_state(form, sum)).collect(),
            Kind::Extremes(form, best) => {
                let value = |best: Option<i64>| best.map_or(Datum::Null, |value| form.datum(value));
                best.into_iter().map(|best| State::Value(value(best))).collect()
            }
            Kind::States(states) => states,
        }
    }

    fn sum_state(form: Form, (sum, count): (i128, i64)) -> State {
        match form {
            Form::Int(_) => State::Int(sum, count),
            Form::Scaled(_) if count == 0 => State::Numeric(Numeric::ZERO, 0),
            Form::Scaled(scale) => State::Numeric(Numeric::from_i128(sum, scale), count),
        }
    }

    /// The states of so many groups.
    pub(super) fn finish(mut self, count: usize) -> Vec<State> {
        let Some(kind) = self.kind.take() else { return vec![self.aggregate.start(); count] };
        let mut states = self.states(kind);
        states.resize(count, self.aggregate.start());
        states
    }
}
