//! DISTINCT, UNION, INTERSECT and EXCEPT: rows told apart; what memory does not hold goes to files.
//!
//! ```text
//! row ─► is there ─► passed over
//!    └─► new ─► kept, and handed over
//!    └─► new, beyond the grant ─► partition by its hash ─► file ─► each partition anew, one level down
//!
//! INTERSECT, EXCEPT: rows of the right side are counted, then those of the left one ask the counts; beyond the grant both sides are
//! parted by one hash, and each pair of partitions is compared anew
//! ```
//!
//! Rows come in the order in which they came first, but for those of partitions, which come behind.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use super::spill::Beyond;
use super::{Executor, Flow, Row, Sink, Source};
use crate::error::Result;
use crate::expr::memory::{Kept, size_of_row};
use crate::expr::{Context, Env, Expr};
use crate::parser::ast::SetOp;
use crate::plan::Plan;
use crate::types::Datum;

const MORE: Flow = Ok(ControlFlow::Continue(()));

/// Rows that have come, to tell those that come again.
struct Unique<'u> {
    context: &'u Context,
    /// The values that tell a row from others; none: all of them.
    keys: Option<&'u [Expr]>,
    outer: &'u [Datum],
    seen: HashSet<Row>,
    kept: Kept<'u>,
    beyond: Beyond,
}

impl<'u> Unique<'u> {
    fn new(context: &'u Context, keys: Option<&'u [Expr]>, outer: &'u [Datum], beyond: Beyond) -> Self {
        Self { context, keys, outer, seen: HashSet::new(), kept: context.memory.kept(), beyond }
    }

    /// True if a row is the first of its kind. One that may be, but is beyond the grant, is left for [`Unique::finish`].
    fn is_new(&mut self, row: &Row) -> Result<bool> {
        let Some(keys) = self.keys else { return self.is_new_by(row, row) };
        let env = Env { row, outer: self.outer, context: self.context };
        let key = keys.iter().map(|key| key.eval(&env)).collect::<Result<Row>>()?;
        self.is_new_by(&key, row)
    }

    fn is_new_by(&mut self, key: &Row, row: &[Datum]) -> Result<bool> {
        if self.seen.contains(key) {
            return Ok(false);
        }
        if self.beyond.begins(self.kept.bytes(), self.context)? {
            self.beyond.push(key, row, self.context);
            return Ok(false);
        }
        // The table has room for twice as many.
        self.kept.add(size_of_row(key) + 32)?;
        Ok(self.seen.insert(key.clone()))
    }

    /// Hands over the first rows of each kind among those that were left.
    async fn finish(self, sink: &mut dyn FnMut(&mut Row) -> Flow) -> Flow {
        let Self { context, keys, outer, seen, kept, beyond } = self;
        drop((seen, kept));
        let below = beyond.below();
        for mut part in beyond.parts(context).await? {
            let mut unique = Unique::new(context, keys, outer, below.twin(context)?);
            while let Some(mut row) = part.next().await? {
                if unique.is_new(&row)? && sink(&mut row)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                if context.is_due() {
                    context.pause().await?;
                }
            }
            if Box::pin(unique.finish(sink)).await?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        MORE
    }
}

/// A row of one side or both.
struct Counted {
    /// Its rows on the right side, less those that a row of the left side has taken.
    right: usize,
    /// It has been handed over.
    shown: bool,
}

/// The two sides of INTERSECT or EXCEPT.
struct Sides<'s> {
    context: &'s Context,
    op: SetOp,
    all: bool,
    rows: HashMap<Row, Counted>,
    kept: Kept<'s>,
    right: Beyond,
    left: Beyond,
}

impl<'s> Sides<'s> {
    fn new(context: &'s Context, (op, all): (SetOp, bool), beyond: Beyond) -> Result<Self> {
        let (rows, kept, left) = (HashMap::new(), context.memory.kept(), beyond.twin(context)?);
        Ok(Self { context, op, all, rows, kept, right: beyond, left })
    }

    fn keep(&mut self, row: Row, counted: Counted) -> Result<()> {
        self.kept.add(2 * size_of_row(&row))?;
        self.rows.insert(row, counted);
        Ok(())
    }

    /// Counts a row of the right side.
    fn count(&mut self, row: &mut Row) -> Result<()> {
        if let Some(counted) = self.rows.get_mut(row) {
            counted.right += 1;
            return Ok(());
        }
        if self.right.begins(self.kept.bytes(), self.context)? {
            self.right.push(row, row, self.context);
            return Ok(());
        }
        self.keep(std::mem::take(row), Counted { right: 1, shown: false })
    }

    /// All rows of the right side have come: if some were left, so are those of the left side that may be equal to them.
    fn turn(&mut self) -> Result<()> {
        self.left = self.right.twin(self.context)?;
        Ok(())
    }

    /// True if a row of the left side belongs to the answer. One that may, but is beyond the grant, is left for [`Sides::finish`].
    fn shows(&mut self, row: &Row) -> Result<bool> {
        if let Some(counted) = self.rows.get_mut(row) {
            let is_right = counted.right > 0;
            if self.all {
                counted.right -= usize::from(is_right);
                return Ok(is_right == (self.op == SetOp::Intersect));
            }
            return Ok(
                is_right == (self.op == SetOp::Intersect) && !std::mem::replace(&mut counted.shown, true)
            );
        }
        let is_kept = self.op == SetOp::Except && !self.all;
        if self.left.has_begun() || is_kept && self.left.begins(self.kept.bytes(), self.context)? {
            self.left.push(row, row, self.context);
            return Ok(false);
        }
        if is_kept {
            self.keep(row.clone(), Counted { right: 0, shown: true })?;
        }
        Ok(self.op == SetOp::Except)
    }

    /// Hands over what belongs to the answer among the rows that were left.
    async fn finish(self, sink: &mut dyn FnMut(&mut Row) -> Flow) -> Flow {
        let Self { context, op, all, rows, kept, right, left } = self;
        drop((rows, kept));
        let below = right.below();
        let mut rights = right.parts(context).await?;
        for (place, mut left) in left.parts(context).await?.into_iter().enumerate() {
            let mut sides = Sides::new(context, (op, all), below.twin(context)?)?;
            if let Some(right) = rights.get_mut(place) {
                while let Some(mut row) = right.next().await? {
                    sides.count(&mut row)?;
                    if context.is_due() {
                        context.pause().await?;
                    }
                }
            }
            sides.turn()?;
            while let Some(mut row) = left.next().await? {
                if sides.shows(&row)? && sink(&mut row)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                if context.is_due() {
                    context.pause().await?;
                }
            }
            if Box::pin(sides.finish(sink)).await?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        MORE
    }
}

/// Is a plan sorted so that rows with equal keys stand side by side? None: it is not sorted.
fn is_side_by_side(plan: &Plan, keys: &[Expr]) -> Option<bool> {
    let Plan::Sort(_, order) = plan else { return None };
    let column = |expr: &Expr| if let Expr::Column(column) = expr { Some(*column) } else { None };
    let ordered: Option<HashSet<usize>> =
        order.iter().take(keys.len()).map(|key| column(&key.expr)).collect();
    let wanted: Option<HashSet<usize>> = keys.iter().map(column).collect();
    Some(ordered.is_some() && ordered == wanted)
}

impl<S: Source> Executor<'_, S> {
    /// The first row of each kind: as `keys` tell them apart, or all values.
    pub(super) async fn distinct(
        &mut self,
        input: &Plan,
        keys: Option<&[Expr]>,
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let context = self.context;
        let order = keys.and_then(|keys| is_side_by_side(input, keys));
        if let (Some(true), Some(keys)) = (order, keys) {
            let mut last: Option<Row> = None;
            let mut see = |row: &mut Row| {
                let env = Env { row, outer, context };
                let key = keys.iter().map(|key| key.eval(&env)).collect::<Result<Row>>()?;
                if last.as_ref() == Some(&key) {
                    return MORE;
                }
                last = Some(key);
                sink(row)
            };
            return self.run(input, outer, &mut see).await;
        }
        // An order is not to be lost.
        let beyond = if order.is_some() { Beyond::none() } else { Beyond::new() };
        let mut unique = Unique::new(context, keys, outer, beyond);
        let mut stopped = false;
        let mut see = |row: &mut Row| {
            let flow = if unique.is_new(row)? { sink(row)? } else { ControlFlow::Continue(()) };
            stopped |= flow.is_break();
            Ok(flow)
        };
        self.run(input, outer, &mut see).await?;
        if stopped { Ok(()) } else { unique.finish(sink).await.map(drop) }
    }

    pub(super) async fn set_op(
        &mut self,
        (op, all): (SetOp, bool),
        (left, right): (&Plan, &Plan),
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        let context = self.context;
        let mut stopped = false;
        if op == SetOp::Union {
            let mut unique = Unique::new(context, None, outer, Beyond::new());
            for side in [left, right] {
                let mut see = |row: &mut Row| {
                    let flow =
                        if all || unique.is_new(row)? { sink(row)? } else { ControlFlow::Continue(()) };
                    stopped |= flow.is_break();
                    Ok(flow)
                };
                self.run(side, outer, &mut see).await?;
                if stopped {
                    return Ok(());
                }
            }
            return unique.finish(sink).await.map(drop);
        }
        let mut sides = Sides::new(context, (op, all), Beyond::new())?;
        self.run(right, outer, &mut |row| sides.count(row).map(|()| ControlFlow::Continue(()))).await?;
        sides.turn()?;
        let mut see = |row: &mut Row| {
            let flow = if sides.shows(row)? { sink(row)? } else { ControlFlow::Continue(()) };
            stopped |= flow.is_break();
            Ok(flow)
        };
        self.run(left, outer, &mut see).await?;
        if stopped { Ok(()) } else { sides.finish(sink).await.map(drop) }
    }
}
