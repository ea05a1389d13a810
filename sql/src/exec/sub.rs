//! Sub-queries: answered for each row, and for equal captures once; one that calls a volatile function, for each row anew, unless
//! it captures nothing.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::rc::Rc;

use super::{Executor, Row, Sink, Source};
use crate::error::{Error, Result};
use crate::expr::memory::{Kept, size_behind, size_of_row};
use crate::expr::{Comparison, Context, Env};
use crate::plan::{Plan, Sub, SubKind};
use crate::types::Datum;

/// What a sub-query has answered for some captures.
enum Answer {
    Value(Datum),
    /// The values, and whether a null is among them.
    Set(HashSet<Datum>, bool),
    Rows(Vec<Datum>),
}

/// Bytes of an answer.
fn size_of_answer(answer: &Answer) -> usize {
    64 + match answer {
        Answer::Value(value) => size_behind(value),
        Answer::Set(set, _) => set.iter().map(|value| 2 * size_of::<Datum>() + size_behind(value)).sum(),
        Answer::Rows(all) => all.iter().map(|value| size_of::<Datum>() + size_behind(value)).sum(),
    }
}

/// The most answers of one sub-query that are kept.
const KEPT: usize = 1 << 16;

/// Answers of the sub-queries of an operator, each by its captures.
pub(super) struct Answers<'e> {
    known: Vec<HashMap<Row, Rc<Answer>>>,
    kept: Kept<'e>,
}

impl<'e> Answers<'e> {
    pub(super) fn none(subs: &[Sub], context: &'e Context) -> Self {
        Self { known: subs.iter().map(|_| HashMap::new()).collect(), kept: context.memory.kept() }
    }
}

impl<S: Source> Executor<'_, S> {
    pub(super) async fn apply(
        &mut self,
        input: &Plan,
        subs: &[Sub],
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let context = self.context;
        let mut all = self.rows(input, outer).await?;
        let mut answers = Answers::none(subs, context);
        for mut row in std::mem::take(&mut all.rows) {
            all.kept.remove(size_of_row(&row));
            self.ask(subs, &mut answers, &mut row, outer).await?;
            if sink(&mut row)?.is_break() {
                break;
            }
            if context.is_due() {
                context.pause().await?;
            }
        }
        Ok(())
    }

    /// Puts what the sub-queries say of a row behind it.
    pub(super) async fn ask(
        &mut self,
        subs: &[Sub],
        answers: &mut Answers<'_>,
        row: &mut Row,
        outer: &[Datum],
    ) -> Result<()> {
        for (sub, known) in subs.iter().zip(&mut answers.known) {
            let captures = {
                let env = self.env(row, outer);
                sub.captures.iter().map(|capture| capture.eval(&env)).collect::<Result<Row>>()?
            };
            let answer = match known.get(&captures) {
                Some(answer) => answer.clone(),
                None => {
                    let answer = Rc::new(self.answer(sub, &captures).await?);
                    let lasts = !sub.volatile || sub.captures.is_empty();
                    if lasts && known.len() < KEPT {
                        answers.kept.add(2 * size_of_row(&captures) + size_of_answer(&answer))?;
                        known.insert(captures, answer.clone());
                    }
                    answer
                }
            };
            let value = self.judged(sub, &answer, row, outer)?;
            row.push(value);
        }
        Ok(())
    }

    async fn answer(&mut self, sub: &Sub, captures: &[Datum]) -> Result<Answer> {
        match &sub.kind {
            SubKind::Exists => {
                let mut any = false;
                self.run(&sub.plan, captures, &mut |_| {
                    any = true;
                    Ok(ControlFlow::Break(()))
                })
                .await?;
                Ok(Answer::Value(Datum::Bool(any)))
            }
            SubKind::Scalar => {
                let mut found = None;
                self.run(&sub.plan, captures, &mut |row| {
                    if found.is_some() {
                        let message = "more than one row returned by a subquery used as an expression";
                        return Err(Error::new("21000", message));
                    }
                    found = row.drain(..).next();
                    Ok(ControlFlow::Continue(()))
                })
                .await?;
                Ok(Answer::Value(found.unwrap_or(Datum::Null)))
            }
            SubKind::In(_) => {
                let (mut set, mut has_null) = (HashSet::new(), false);
                let mut kept = self.context.memory.kept();
                self.run(&sub.plan, captures, &mut |row| {
                    let value = row.swap_remove(0);
                    if value.is_null() {
                        has_null = true;
                    } else if !set.contains(&value) {
                        kept.add(2 * size_of::<Datum>() + size_behind(&value))?;
                        set.insert(value);
                    }
                    Ok(ControlFlow::Continue(()))
                })
                .await?;
                Ok(Answer::Set(set, has_null))
            }
            SubKind::Quantified { .. } => {
                let mut all = Vec::new();
                let mut kept = self.context.memory.kept();
                self.run(&sub.plan, captures, &mut |row| {
                    let value = row.swap_remove(0);
                    kept.add(size_of::<Datum>() + size_behind(&value))?;
                    all.push(value);
                    Ok(ControlFlow::Continue(()))
                })
                .await?;
                Ok(Answer::Rows(all))
            }
        }
    }

    /// What the answer says of a row.
    fn judged(&self, sub: &Sub, answer: &Answer, row: &[Datum], outer: &[Datum]) -> Result<Datum> {
        let env: Env<'_> = self.env(row, outer);
        Ok(match (&sub.kind, answer) {
            (SubKind::In(arg), Answer::Set(set, has_null)) => {
                if set.is_empty() && !has_null {
                    return Ok(Datum::Bool(false));
                }
                let value = arg.eval(&env)?;
                if value.is_null() {
                    Datum::Null
                } else if set.contains(&value) {
                    Datum::Bool(true)
                } else if *has_null {
                    Datum::Null
                } else {
                    Datum::Bool(false)
                }
            }
            (SubKind::Quantified { comparison, all, arg }, Answer::Rows(rows)) => {
                let value = arg.eval(&env)?;
                let mut unknown = false;
                for other in rows {
                    match compared(*comparison, &value, other) {
                        Some(held) if held != *all => return Ok(Datum::Bool(held)),
                        Some(_) => {}
                        None => unknown = true,
                    }
                }
                if unknown { Datum::Null } else { Datum::Bool(*all) }
            }
            (_, Answer::Value(value)) => value.clone(),
            _ => unreachable!("each kind of sub-query has its kind of answer"),
        })
    }
}

fn compared(comparison: Comparison, a: &Datum, b: &Datum) -> Option<bool> {
    let (Datum::Record(left), Datum::Record(right)) = (a, b) else {
        return (!a.is_null() && !b.is_null()).then(|| comparison.holds(a.compare(b)));
    };
    match crate::expr::compare_records(comparison, left, right) {
        Ok(Datum::Bool(held)) => Some(held),
        _ => None,
    }
}
