//! GROUP BY and aggregates, row by row; what memory does not hold goes to a file.
//!
//! ```text
//! rows ─► a group that is there ─────────────────────────► its aggregates ─► groups
//!    └──► a new group, beyond the grant ─► partition by the hash of its keys ─► file ─► each partition anew, one level down
//! ```
//!
//! Rules:
//! - Aggregates that take their arguments in an order, or each of them once, have them sorted, with those of all groups, when all rows have
//!   come.
//! - A row whose group is there is taken at once; so the rows of a group are all here, or all in one partition.
//! - Groups come in the order in which their first rows came, but for those of partitions, which come behind.
//! - Below the levels of [`Beyond`] rows stay in memory, as they do where there are no files: they are refused (53200) where the limit
//!   does not hold them.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use super::batch::Pipeline;
use super::sorter::{Sorted, Sorter};
use super::spill::Beyond;
use super::{Executor, Flow, Row, Sink, Source};
use crate::error::Result;
use crate::expr::memory::{Kept, size_behind, size_of_row};
use crate::expr::{Context, Env, Expr};
use crate::functions::aggregates::State;
use crate::plan::{AggregateCall, Plan, SortKey};
use crate::types::Datum;

/// The groups of one level, as rows come.
pub(super) struct Grouping<'g> {
    context: &'g Context,
    outer: &'g [Datum],
    keys: &'g [Expr],
    calls: &'g [AggregateCall],
    groups: Vec<(Row, Vec<State>)>,
    /// Of each call, what it keeps if it takes its arguments in an order.
    ordered: Vec<Option<Ordered<'g>>>,
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
            groups.push((Row::new(), calls.iter().map(|call| call.aggregate.start()).collect()));
        }
        let is_ordered = |call: &AggregateCall| call.distinct || !call.order.is_empty();
        let ordered =
            calls.iter().map(|call| is_ordered(call).then(|| Ordered::new(context, call))).collect();
        let (places, kept) = (HashMap::new(), context.memory.kept());
        Self {
            context,
            outer,
            keys,
            calls,
            groups,
            ordered,
            places,
            kept,
            beyond,
            key: Row::new(),
            args: Row::new(),
        }
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
                    let states = self.calls.len() * size_of::<State>();
                    self.kept.add(2 * size_of_row(&self.key) + 64 + states)?;
                    self.groups.push((
                        self.key.clone(),
                        self.calls.iter().map(|call| call.aggregate.start()).collect(),
                    ));
                    self.places.insert(self.key.clone(), self.groups.len() - 1);
                    self.groups.len() - 1
                }
            };
        }
        let states = &mut self.groups[place].1;
        for ((call, state), ordered) in self.calls.iter().zip(states).zip(&mut self.ordered) {
            if let Some(filter) = &call.filter
                && !filter.holds(&env)?
            {
                continue;
            }
            self.args.clear();
            for arg in &call.args {
                self.args.push(arg.eval(&env)?);
            }
            if let Some(ordered) = ordered {
                ordered.take(place, &env, &self.args)?;
                continue;
            }
            // A value that grows is copied when it is finished.
            if call.aggregate.keeps() {
                let bytes = self.args.iter().map(|arg| size_of::<Datum>() + size_behind(arg));
                self.kept.add(2 * bytes.sum::<usize>())?;
            }
            call.aggregate.take(state, &self.args)?;
        }
        Ok(())
    }

    /// Hands the groups over, and those of the levels below.
    async fn finish(self, sink: &mut dyn FnMut(&mut Row) -> Flow) -> Flow {
        let Self { context, outer, keys, calls, groups, places, mut kept, beyond, ordered, .. } = self;
        drop(places);
        let mut arguments = Vec::with_capacity(calls.len());
        for ordered in ordered {
            arguments.push(match ordered {
                Some(ordered) => Some(Box::pin(ordered.sorted()).await?),
                None => None,
            });
        }
        for (group, (mut row, states)) in groups.into_iter().enumerate() {
            for ((call, mut state), arguments) in calls.iter().zip(states).zip(&mut arguments) {
                if let Some(arguments) = arguments {
                    arguments.give(group, &mut state, context, &mut kept).await?;
                }
                row.push(call.aggregate.finish(state)?);
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

/// An aggregate that takes its arguments in an order, or each of them once: they are sorted by group when all rows have come.
///
/// Rows of the sorter: the place of the group, what the order asks for, the arguments.
struct Ordered<'g> {
    call: &'g AggregateCall,
    sorter: Sorter<'g>,
    /// Distinct arguments of groups, up to the grant: what comes again is not sorted.
    seen: HashSet<Row>,
    kept: Kept<'g>,
    most: u64,
}

impl<'g> Ordered<'g> {
    fn new(context: &'g Context, call: &'g AggregateCall) -> Self {
        let ascending =
            |column| SortKey { expr: Expr::Column(column), descending: false, nulls_first: false };
        let mut keys = vec![ascending(0)];
        keys.extend(
            call.order
                .iter()
                .zip(1..)
                .map(|(key, column)| SortKey { expr: Expr::Column(column), ..key.clone() }),
        );
        if call.distinct {
            // As PostgreSQL, which sorts what it makes distinct.
            let first = keys.len();
            keys.extend((first..first + call.args.len()).map(ascending));
        }
        let (sorter, kept) = (Sorter::new(context, keys), context.memory.kept());
        Self { call, sorter, seen: HashSet::new(), kept, most: context.grant.operator }
    }

    /// Takes the arguments of a row of a group.
    fn take(&mut self, group: usize, env: &Env<'_>, args: &[Datum]) -> Result<()> {
        if self.call.distinct && args[0].is_null() && !self.call.aggregate.takes_nulls() {
            return Ok(());
        }
        let group = Datum::Int(i64::try_from(group).expect("memory holds fewer groups"));
        if self.call.distinct {
            let row: Row = std::iter::once(&group).chain(args).cloned().collect();
            if self.seen.contains(&row) {
                return Ok(());
            }
            if self.kept.bytes() < self.most {
                self.kept.add(2 * size_of_row(&row))?;
                self.seen.insert(row);
            }
        }
        let mut row = vec![group];
        for key in &self.call.order {
            row.push(key.expr.eval(env)?);
        }
        row.extend_from_slice(args);
        self.sorter.push(&row, &[])
    }

    async fn sorted(self) -> Result<Arguments<'g>> {
        let Self { call, sorter, seen, kept, .. } = self;
        drop((seen, kept));
        let mut arguments = Arguments { call, sorted: sorter.sorted().await?, next: Row::new() };
        arguments.advance().await?;
        Ok(arguments)
    }
}

/// The arguments of an [`Ordered`] aggregate, group by group.
struct Arguments<'g> {
    call: &'g AggregateCall,
    sorted: Sorted<'g>,
    /// Empty: there are no more.
    next: Row,
}

impl Arguments<'_> {
    async fn advance(&mut self) -> Result<()> {
        if !self.sorted.next(&mut self.next).await? {
            self.next.clear();
        }
        Ok(())
    }

    /// Hands the arguments of a group to its aggregate. Groups come in their order.
    async fn give(
        &mut self,
        group: usize,
        state: &mut State,
        context: &Context,
        kept: &mut Kept<'_>,
    ) -> Result<()> {
        let begin = 1 + self.call.order.len();
        let mut last: Option<Row> = None;
        while matches!(self.next.first(), Some(Datum::Int(place)) if usize::try_from(*place) == Ok(group)) {
            let args = self.next.split_off(begin);
            if !self.call.distinct || last.as_ref() != Some(&args) {
                if self.call.aggregate.keeps() {
                    kept.add(args.iter().map(|arg| size_of::<Datum>() + size_behind(arg)).sum())?;
                }
                if self.call.each.is_empty() {
                    self.call.aggregate.take(state, &args)?;
                } else {
                    let env = Env { row: &args, outer: &[], context };
                    let each: Row =
                        self.call.each.iter().map(|expr| expr.eval(&env)).collect::<Result<_>>()?;
                    self.call.aggregate.take(state, &each)?;
                }
            }
            last = Some(args);
            self.advance().await?;
            if context.is_due() {
                context.pause().await?;
            }
        }
        Ok(())
    }
}
