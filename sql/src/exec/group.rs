//! GROUP BY and aggregates, row by row; what memory does not hold goes to a file.
//!
//! ```text
//! rows ─► a group that is there ─────────────────────────► its aggregates ─► groups
//!    └──► a new group, beyond the grant ─► partition by the hash of its keys ─► file ─► each partition anew, one level down
//! ```
//!
//! Rules:
//! - A row whose group is there is taken at once; so the rows of a group are all here, or all in one partition.
//! - Groups come in the order in which their first rows came, but for those of partitions, which come behind.
//! - Below the levels of [`Beyond`] rows stay in memory, as they do where there are no files: they are refused (53200) where the limit
//!   does not hold them.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use super::batch::Pipeline;
use super::sort::{order, sorted_places};
use super::spill::Beyond;
use super::{Executor, Flow, Row, Sink, Source};
use crate::error::Result;
use crate::expr::memory::{Kept, size_behind, size_of_row};
use crate::expr::{Context, Env, Expr};
use crate::functions::aggregates::State;
use crate::plan::{AggregateCall, Plan};
use crate::types::Datum;

/// The groups of one level, as rows come.
pub(super) struct Grouping<'g> {
    context: &'g Context,
    outer: &'g [Datum],
    keys: &'g [Expr],
    calls: &'g [AggregateCall],
    groups: Vec<(Row, Vec<Running>)>,
    places: HashMap<Row, usize>,
    kept: Kept<'g>,
    beyond: Beyond,
    key: Row,
    args: Row,
}

impl<'g> Grouping<'g> {
    fn new(
        context: &'g Context,
        outer: &'g [Datum],
        (keys, calls): (&'g [Expr], &'g [AggregateCall]),
        beyond: Beyond,
    ) -> Self {
        let mut groups = Vec::new();
        if keys.is_empty() {
            groups.push((Row::new(), calls.iter().map(Running::start).collect()));
        }
        let (places, kept) = (HashMap::new(), context.memory.kept());
        Self { context, outer, keys, calls, groups, places, kept, beyond, key: Row::new(), args: Row::new() }
    }

    fn take(&mut self, row: &[Datum]) -> Result<()> {
        let env = Env { row, outer: self.outer, context: self.context };
        self.key.clear();
        for expr in self.keys {
            self.key.push(expr.eval(&env)?);
        }
        self.take_with_key(row)
    }

    /// Takes a row whose key stands in `self.key`.
    fn take_with_key(&mut self, row: &[Datum]) -> Result<()> {
        let env = Env { row, outer: self.outer, context: self.context };
        let mut place = 0;
        if !self.keys.is_empty() {
            place = match self.places.get(&self.key) {
                Some(place) => *place,
                None if self.beyond.begins(self.kept.bytes(), self.context)? => {
                    // The key is evaluated once, as the arguments are.
                    let left: Row = self.key.iter().chain(row).cloned().collect();
                    self.beyond.push(&self.key, &left, self.context);
                    return Ok(());
                }
                None => {
                    // It stands in the list and in the table, which has room for twice as many.
                    let states = self.calls.len() * size_of::<Running>();
                    self.kept.add(2 * size_of_row(&self.key) + 64 + states)?;
                    self.groups.push((self.key.clone(), self.calls.iter().map(Running::start).collect()));
                    self.places.insert(self.key.clone(), self.groups.len() - 1);
                    self.groups.len() - 1
                }
            };
        }
        for (call, running) in self.calls.iter().zip(&mut self.groups[place].1) {
            running.take(call, &env, &mut self.args, &mut self.kept)?;
        }
        Ok(())
    }

    /// Hands the groups over, and those of the levels below.
    async fn finish(self, sink: &mut dyn FnMut(&mut Row) -> Flow) -> Flow {
        let Self { context, outer, keys, calls, groups, places, kept, beyond, .. } = self;
        drop(places);
        for (mut row, running) in groups {
            for (call, running) in calls.iter().zip(running) {
                row.push(running.finish(call, context).await?);
            }
            if sink(&mut row)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if context.is_due() {
                context.pause().await?;
            }
        }
        drop(kept);
        group_parts(beyond, context, outer, (keys, calls), sink).await
    }
}

/// Groups the rows that were left beyond the grant, behind their keys, and hands the groups over.
async fn group_parts(
    beyond: Beyond,
    context: &Context,
    outer: &[Datum],
    (keys, calls): (&[Expr], &[AggregateCall]),
    sink: &mut dyn FnMut(&mut Row) -> Flow,
) -> Flow {
    let below = beyond.below();
    for mut part in beyond.parts(context).await? {
        let mut grouping = Grouping::new(context, outer, (keys, calls), below.twin(context)?);
        while let Some(mut key) = part.next().await? {
            let row = key.split_off(keys.len());
            grouping.key = key;
            grouping.take_with_key(&row)?;
            if context.is_due() {
                context.pause().await?;
            }
        }
        if Box::pin(grouping.finish(sink)).await?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

impl<S: Source> Executor<'_, S> {
    pub(super) async fn aggregate(
        &mut self,
        input: &Plan,
        keys: &[Expr],
        calls: &[AggregateCall],
        outer: &[Datum],
        sink: Sink<'_>,
    ) -> Result<()> {
        if outer.is_empty()
            && let Some(pipeline) = Pipeline::of_groups(input, keys, calls)
        {
            return Box::pin(self.group_batches(&pipeline, keys, calls, sink)).await;
        }
        let mut grouping = Grouping::new(self.context, outer, (keys, calls), Beyond::new());
        let mut see = |row: &mut Row| grouping.take(row).map(|()| ControlFlow::Continue(()));
        self.run(input, outer, &mut see).await?;
        grouping.finish(sink).await.map(drop)
    }
}

/// An aggregate of a group while rows come.
struct Running {
    state: State,
    seen: HashSet<Row>,
    /// Arguments behind their sort keys, where the aggregate wants an order.
    kept: Vec<Row>,
}

impl Running {
    fn start(call: &AggregateCall) -> Self {
        Self { state: call.aggregate.start(), seen: HashSet::new(), kept: Vec::new() }
    }

    #[inline]
    fn take(
        &mut self,
        call: &AggregateCall,
        env: &Env<'_>,
        args: &mut Row,
        memory: &mut Kept<'_>,
    ) -> Result<()> {
        if let Some(filter) = &call.filter
            && !filter.holds(env)?
        {
            return Ok(());
        }
        args.clear();
        for arg in &call.args {
            args.push(arg.eval(env)?);
        }
        if call.distinct {
            if args[0].is_null() && !call.aggregate.takes_nulls() || self.seen.contains(args) {
                return Ok(());
            }
            memory.add(2 * size_of_row(args))?;
            self.seen.insert(args.clone());
        }
        // A value that grows is copied when it is finished.
        if call.aggregate.keeps() {
            memory.add(2 * args.iter().map(|arg| size_of::<Datum>() + size_behind(arg)).sum::<usize>())?;
        }
        if call.order.is_empty() && !call.distinct {
            return call.aggregate.take(&mut self.state, args);
        }
        let mut kept = call.order.iter().map(|key| key.expr.eval(env)).collect::<Result<Row>>()?;
        kept.append(args);
        memory.row(&kept)?;
        self.kept.push(kept);
        Ok(())
    }

    async fn finish(mut self, call: &AggregateCall, context: &Context) -> Result<Datum> {
        let keys = call.order.len();
        if !self.kept.is_empty() {
            let kept = &self.kept;
            // PostgreSQL sorts what it makes distinct.
            let by_values = |a: &Row, b: &Row| {
                a.iter().zip(b).map(|(a, b)| a.compare_nulls_last(b)).fold(Ordering::Equal, Ordering::then)
            };
            let compare = |a: usize, b: usize| match keys {
                0 => by_values(&kept[a], &kept[b]),
                _ => order(&call.order, &kept[a], &kept[b]),
            };
            for place in sorted_places(context, kept.len(), compare).await? {
                let args = &kept[place as usize][keys..];
                if call.each.is_empty() {
                    call.aggregate.take(&mut self.state, args)?;
                } else {
                    let env = Env { row: args, outer: &[], context };
                    let each: Row = call.each.iter().map(|expr| expr.eval(&env)).collect::<Result<_>>()?;
                    call.aggregate.take(&mut self.state, &each)?;
                }
                if context.is_due() {
                    context.pause().await?;
                }
            }
        }
        call.aggregate.finish(self.state)
    }
}
