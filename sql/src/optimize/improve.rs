//! What a plan as a whole tells about the reading of its tables: an order that an index has already, so that nothing is
//! sorted and a limit ends the scan; the least and the greatest value of a column, which are the ends of an index.

use super::access::in_order;
use crate::expr::Expr;
use crate::functions::aggregates::Aggregate;
use crate::parser::ast::JoinKind;
use crate::plan::{Access, AggregateCall, Plan, SortKey, Sub, SubKind};
use crate::types::Datum;

/// Improves a whole plan. `limited`: its first rows are asked for before the others.
pub(crate) fn improve(plan: &mut Plan, limited: bool) {
    improve_under(plan, limited);
}

/// `limited`: only the first rows are asked for.
fn improve_under(plan: &mut Plan, limited: bool) {
    if let Plan::Sort(input, keys) = plan {
        if comes_in_order(input, keys, limited) {
            let input = std::mem::replace(&mut **input, Plan::Unit);
            *plan = input;
            return improve_under(plan, limited);
        }
    } else if let Some(ends) = ends_of_index(plan) {
        *plan = ends;
    } else if let Plan::Distinct(input, None) = plan
        && let Plan::Project(_, exprs) = &**input
        && !limited
    {
        // Groups without aggregates: they come when all rows have, and faster.
        let keys = (0..exprs.len()).map(Expr::Column).collect();
        let input = Box::new(std::mem::replace(&mut **input, Plan::Unit));
        *plan = Plan::Aggregate { input, keys, calls: Vec::new() };
    }
    match plan {
        Plan::Unit
        | Plan::Values(_)
        | Plan::Made(_)
        | Plan::Scan { .. }
        | Plan::Set(_)
        // It was improved before it was shared.
        | Plan::Shared(_)
        | Plan::Working(_) => {}
        Plan::Limit { input, .. } => improve_under(input, true),
        Plan::Project(input, _) | Plan::Filter(input, _) | Plan::Cut(input, _) => {
            improve_under(input, limited);
        }
        Plan::Lock { input, few, .. } => {
            *few = limited;
            improve_under(input, limited);
            // Rows that are sorted are all there before the first is locked.
            *few &= streams(input);
        }
        Plan::Apply(input, subs) => {
            improve_under(input, false);
            improve_subs(subs);
        }
        Plan::Aggregate { input, .. }
        | Plan::Sort(input, _)
        | Plan::Distinct(input, _)
        | Plan::Extend(input, _)
        | Plan::Numbered(input) => {
            improve_under(input, false);
        }
        Plan::Recursive(query) => {
            improve_under(&mut query.base, false);
            improve_under(&mut query.step, false);
        }
        Plan::Join(join) => {
            improve_under(&mut join.left, false);
            improve_under(&mut join.right, false);
            improve_subs(&mut join.asks);
        }
        Plan::SetOp { left, right, .. } => {
            improve_under(left, false);
            improve_under(right, false);
        }
    }
}

fn improve_subs(subs: &mut [Sub]) {
    for sub in subs {
        // Whether there is a row is known by the first one.
        improve_under(&mut sub.plan, matches!(sub.kind, SubKind::Exists));
    }
}

/// Does a plan hand its rows on as a scan finds them?
fn streams(plan: &Plan) -> bool {
    match plan {
        Plan::Scan { .. } => true,
        Plan::Project(input, _) | Plan::Filter(input, _) | Plan::Cut(input, _) => streams(input),
        _ => false,
    }
}

/// Makes a plan give its rows in this order, if an index of it has the order.
fn comes_in_order(plan: &mut Plan, keys: &[SortKey], limited: bool) -> bool {
    let Some(wanted) = keys
        .iter()
        .map(|key| match key.expr {
            Expr::Column(column) => Some((column, key.descending, key.nulls_first)),
            _ => None,
        })
        .collect::<Option<Vec<_>>>()
    else {
        return false;
    };
    scans_in_order(plan, wanted, limited)
}

fn scans_in_order(plan: &mut Plan, mut wanted: Vec<(usize, bool, bool)>, limited: bool) -> bool {
    match plan {
        Plan::Project(input, exprs) => {
            for (column, ..) in &mut wanted {
                match exprs[*column] {
                    Expr::Column(below) => *column = below,
                    _ => return false,
                }
            }
            scans_in_order(input, wanted, limited)
        }
        Plan::Filter(input, _) => scans_in_order(input, wanted, limited),
        // Both keep their left side before they go on, so that a limit ends nothing early.
        Plan::Join(join) if matches!(join.kind, JoinKind::Inner | JoinKind::Left) => {
            wanted.iter().all(|(column, ..)| *column < join.left_width)
                && scans_in_order(&mut join.left, wanted, false)
        }
        Plan::Scan { table, access, filter, .. } => {
            let Some(found) = in_order(table, access, filter, &wanted, limited) else { return false };
            *access = found;
            true
        }
        _ => false,
    }
}

/// The least and greatest values of columns of one table, each read off the end of an index, in place of an aggregation.
fn ends_of_index(plan: &Plan) -> Option<Plan> {
    let Plan::Aggregate { input, keys, calls } = plan else { return None };
    let Plan::Scan { .. } = **input else { return None };
    if !keys.is_empty() || calls.is_empty() {
        return None;
    }
    let subs = calls.iter().map(|call| end_of_index(input, call)).collect::<Option<Vec<_>>>()?;
    Some(Plan::Apply(Box::new(Plan::Unit), subs))
}

fn end_of_index(input: &Plan, call: &AggregateCall) -> Option<Sub> {
    let descends = match call.aggregate {
        Aggregate::Min => false,
        Aggregate::Max => true,
        _ => return None,
    };
    let ([Expr::Column(column)], None) = (&call.args[..], &call.filter) else { return None };
    let mut scan = input.clone();
    let Plan::Scan { filter, .. } = &mut scan else { unreachable!("the caller has looked") };
    // The aggregates pass over nulls, which stand at the upper end of an index.
    filter.push(Expr::IsNull(Box::new(Expr::Column(*column)), true));
    if !scans_in_order(&mut scan, vec![(*column, descends, descends)], true) {
        return None;
    }
    // What the scan knows of enclosing queries goes down with it.
    let mut outer = 0;
    let Plan::Scan { filter, access, .. } = &scan else { unreachable!("it still is one") };
    let mut see = |node: &Expr| {
        if let Expr::Outer(place) = node {
            outer = outer.max(*place + 1);
        }
    };
    filter.iter().for_each(|condition| condition.walk(&mut see));
    if let Access::Index { equal, low, high, .. } = access {
        let bounds = low.iter().chain(high).map(|(bound, _)| bound);
        equal.iter().chain(bounds).for_each(|value| value.walk(&mut see));
    }
    let one = Some(Expr::Const(Datum::Int(1)));
    let first = Plan::Limit {
        input: Box::new(Plan::Project(Box::new(scan), vec![Expr::Column(*column)])),
        limit: one,
        offset: None,
    };
    let captures = (0..outer).map(Expr::Outer).collect();
    Some(Sub { plan: first, captures, kind: SubKind::Scalar, volatile: false })
}
