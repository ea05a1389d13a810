//! Joins: by hash where sides are equal, by running the right side for each left row where it is looked up in an index or is
//! lateral, else by comparing each left row with each right one. A condition that asks sub-queries is asked of the pairs for which
//! all else holds.

use std::collections::HashMap;
use std::ops::ControlFlow;

use super::inner::Bounds;
use super::sub::Answers;
use super::{Executor, KeptRows, Row, Sink, Source};
use crate::error::Result;
use crate::expr::memory::size_of_row;
use crate::expr::{Env, Expr};
use crate::parser::ast::JoinKind;
use crate::plan::Join;
use crate::types::Datum;

/// Right rows that a left row is compared with at once: with more, it waits until the left side has been read.
const AT_ONCE: usize = 64;

impl<S: Source> Executor<'_, S> {
    pub(super) async fn join(&mut self, join: &Join, outer: &[Datum], sink: Sink<'_>) -> Result<()> {
        if let Some(captures) = &join.lateral {
            return self.join_each(join, captures, outer, sink).await;
        }
        let context = self.context;
        let all_right = self.rows(&join.right, outer).await?;
        let right = &all_right.rows;
        let mut matched = vec![false; right.len()];
        let keeps_left = matches!(join.kind, JoinKind::Left | JoinKind::Full);
        let keeps_right = matches!(join.kind, JoinKind::Right | JoinKind::Full);
        if right.is_empty() && !keeps_left {
            return Ok(());
        }
        let keys = |side: fn(&(Expr, Expr)) -> &Expr, row: &[Datum]| -> Result<Option<Row>> {
            let env = Env { row, outer, context };
            let mut key = Row::with_capacity(join.equal.len());
            for pair in &join.equal {
                let value = side(pair).eval(&env)?;
                if value.is_null() {
                    return Ok(None);
                }
                key.push(value);
            }
            Ok(Some(key))
        };
        let mut kept = context.memory.kept();
        let mut table: HashMap<Row, Vec<u32>> = HashMap::new();
        if !join.equal.is_empty() {
            for (place, row) in right.iter().enumerate() {
                if let Some(key) = keys(|pair| &pair.1, row)? {
                    // The table has room for twice as many.
                    kept.add(2 * size_of_row(&key) + 64)?;
                    table.entry(key).or_default().push(place as u32);
                }
                if context.is_due() {
                    context.pause().await?;
                }
            }
        }
        let all: Vec<u32> =
            if join.equal.is_empty() { (0..right.len() as u32).collect() } else { Vec::new() };
        // Without equalities a range narrows the right rows that are compared.
        let bounds = match join.equal.is_empty() && right.len() > AT_ONCE {
            true => Bounds::of(
                &join.on,
                |column| column >= join.left_width,
                |value| {
                    let columns = value.columns();
                    !columns.is_empty() && columns.iter().all(|column| *column < join.left_width)
                },
            ),
            false => None,
        };
        let in_order = match &bounds {
            Some(bounds) => bounds.order(context, right, join.left_width).await?,
            None => Vec::new(),
        };
        let in_question = |row: &[Datum]| -> Result<&[u32]> {
            if let Some(bounds) = &bounds {
                let env = Env { row, outer, context };
                return bounds.within(&in_order, right, join.left_width, &env);
            }
            if join.equal.is_empty() {
                return Ok(&all);
            }
            Ok(match keys(|pair| &pair.0, row)? {
                Some(key) => table.get(&key).map_or(&[], Vec::as_slice),
                None => &[],
            })
        };
        let mut both = Row::new();
        let (mut stopped, mut removed) = (false, 0);
        // Left rows that meet many right ones, and all that come behind the first of them.
        let mut later = KeptRows::none(context);
        let mut see = |row: &mut Row| {
            let candidates = in_question(row)?;
            if candidates.len() > AT_ONCE || !later.rows.is_empty() || !join.asks.is_empty() {
                later.push(row)?;
                return Ok(ControlFlow::Continue(()));
            }
            let mut found = false;
            for place in candidates {
                let place = *place as usize;
                both.clear();
                both.extend_from_slice(row);
                both.extend_from_slice(&right[place]);
                if !all_hold(&join.on, &Env { row: &both, outer, context })? {
                    removed += 1;
                    continue;
                }
                found = true;
                matched[place] = true;
                if sink(&mut both)?.is_break() {
                    stopped = true;
                    return Ok(ControlFlow::Break(()));
                }
            }
            if !found && keeps_left {
                both.clear();
                both.extend_from_slice(row);
                both.resize(join.left_width + join.right_width, Datum::Null);
                let flow = sink(&mut both)?;
                stopped |= flow.is_break();
                return Ok(flow);
            }
            Ok(ControlFlow::Continue(()))
        };
        self.run(&join.left, outer, &mut see).await?;
        let mut answers = Answers::none(&join.asks, context);
        for row in later.rows {
            if stopped {
                break;
            }
            let candidates = in_question(&row)?;
            let mut found = false;
            for place in candidates {
                let place = *place as usize;
                both.clear();
                both.extend_from_slice(&row);
                both.extend_from_slice(&right[place]);
                if all_hold(&join.on, &Env { row: &both, outer, context })?
                    && self.answers_hold(join, &mut answers, &mut both, outer).await?
                {
                    found = true;
                    matched[place] = true;
                    if sink(&mut both)?.is_break() {
                        stopped = true;
                        break;
                    }
                } else {
                    removed += 1;
                }
                if context.is_due() {
                    context.pause().await?;
                }
            }
            if !found && keeps_left && !stopped {
                both.clear();
                both.extend_from_slice(&row);
                both.resize(join.left_width + join.right_width, Datum::Null);
                stopped |= sink(&mut both)?.is_break();
            }
        }
        if let Some(meter) = &context.meter {
            meter.note_removed(&join.on, removed);
        }
        if keeps_right && !stopped {
            for (row, _) in right.iter().zip(&matched).filter(|(_, matched)| !**matched) {
                let mut both = vec![Datum::Null; join.left_width];
                both.extend_from_slice(row);
                if sink(&mut both)?.is_break() {
                    break;
                }
                if context.is_due() {
                    context.pause().await?;
                }
            }
        }
        Ok(())
    }

    /// Asks the sub-queries of the condition about a pair of rows.
    async fn answers_hold(
        &mut self,
        join: &Join,
        answers: &mut Answers<'_>,
        both: &mut Row,
        outer: &[Datum],
    ) -> Result<bool> {
        if join.asks.is_empty() {
            return Ok(true);
        }
        let width = both.len();
        self.ask(&join.asks, answers, both, outer).await?;
        let hold = all_hold(&join.judged, &self.env(both, outer))?;
        both.truncate(width);
        Ok(hold)
    }

    /// Runs the right side for each left row.
    async fn join_each(
        &mut self,
        join: &Join,
        captures: &[Expr],
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let context = self.context;
        let mut left = self.rows(&join.left, outer).await?;
        let mut removed = 0;
        let mut answers = Answers::none(&join.asks, context);
        for row in std::mem::take(&mut left.rows) {
            if context.is_due() {
                context.pause().await?;
            }
            left.kept.remove(size_of_row(&row));
            let env = Env { row: &row, outer, context };
            let inner = captures.iter().map(|capture| capture.eval(&env)).collect::<Result<Row>>()?;
            let (mut found, mut stopped) = (false, false);
            let mut both = Row::new();
            // Pairs about which sub-queries are asked, when all of the right side is there.
            let mut later = KeptRows::none(context);
            let mut see = |right: &mut Row| {
                both.clear();
                both.extend_from_slice(&row);
                both.append(right);
                if !all_hold(&join.on, &Env { row: &both, outer, context })? {
                    removed += 1;
                    return Ok(ControlFlow::Continue(()));
                }
                if !join.asks.is_empty() {
                    later.push(&mut both)?;
                    return Ok(ControlFlow::Continue(()));
                }
                found = true;
                let flow = sink(&mut both)?;
                stopped |= flow.is_break();
                Ok(flow)
            };
            self.run(&join.right, &inner, &mut see).await?;
            for mut both in later.rows {
                if self.answers_hold(join, &mut answers, &mut both, outer).await? {
                    found = true;
                    if sink(&mut both)?.is_break() {
                        stopped = true;
                        break;
                    }
                }
            }
            if !found && !stopped && join.kind == JoinKind::Left {
                let mut both = row;
                both.resize(join.left_width + join.right_width, Datum::Null);
                stopped |= sink(&mut both)?.is_break();
            }
            if stopped {
                break;
            }
        }
        if let Some(meter) = &context.meter {
            meter.note_removed(&join.on, removed);
        }
        Ok(())
    }
}

fn all_hold(conditions: &[Expr], env: &Env<'_>) -> Result<bool> {
    for condition in conditions {
        if !condition.holds(env)? {
            return Ok(false);
        }
    }
    Ok(true)
}
