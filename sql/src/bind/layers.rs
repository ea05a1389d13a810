//! The layers of a query behind its grouping: answers of sub-queries, values of window functions, and functions that make rows.
//!
//! Expressions name such values by columns that have no place yet (from `SUB_BASE`, `WINDOW_BASE`, `SET_BASE` on). Each becomes a
//! column of the first layer in which all is there that it is made of: a sub-query may compare the value of a window function, and a
//! function that makes rows may be called for the rows of another one. Those of one layer make their rows side by side, as
//! PostgreSQL's do.

use std::collections::HashMap;

use super::sets::SET_BASE;
use super::window::WINDOW_BASE;
use super::{Binder, SUB_BASE};
use crate::expr::Expr;
use crate::plan::{Extension, Plan, SetExpr, Sub, SubKind, WindowCall};

/// Where values that had no place have got one.
#[derive(Default)]
pub(super) struct Placed(HashMap<usize, usize>);

impl Placed {
    /// Has all that the expressions are made of a place?
    fn has_all<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>) -> bool {
        let is_there = |column: &usize| *column < SUB_BASE || self.0.contains_key(column);
        exprs.into_iter().all(|expr| expr.columns().iter().all(is_there))
    }

    pub(super) fn put(&self, expr: &mut Expr) {
        expr.rewrite(&mut |node| {
            if let Expr::Column(index) = node
                && let Some(place) = self.0.get(index)
            {
                *index = *place;
            }
        });
    }
}

fn parts_of_sub(sub: &Sub) -> impl Iterator<Item = &Expr> {
    let arg = match &sub.kind {
        SubKind::In(arg) | SubKind::Quantified { arg, .. } => Some(arg),
        SubKind::Scalar | SubKind::Exists => None,
    };
    sub.captures.iter().chain(arg)
}

fn put_sub(placed: &Placed, sub: &mut Sub) {
    sub.captures.iter_mut().for_each(|capture| placed.put(capture));
    match &mut sub.kind {
        SubKind::In(arg) | SubKind::Quantified { arg, .. } => placed.put(arg),
        SubKind::Scalar | SubKind::Exists => {}
    }
}

fn put_window(placed: &Placed, call: &mut WindowCall) {
    let parts = call.args.iter_mut().chain(&mut call.filter).chain(&mut call.partition);
    parts.chain(call.order.iter_mut().map(|key| &mut key.expr)).for_each(|expr| placed.put(expr));
}

fn take(plan: &mut Plan) -> Box<Plan> {
    Box::new(std::mem::replace(plan, Plan::Unit))
}

impl Binder<'_> {
    /// Puts what the frame has gathered behind the plan's columns, `having` behind the sub-queries that it asks.
    pub(super) fn layered(
        &mut self,
        mut plan: Plan,
        mut width: usize,
        having: Option<Expr>,
    ) -> (Plan, Placed) {
        let frame = self.frame();
        let mut subs: Vec<(usize, Sub)> = std::mem::take(&mut frame.subs).into_iter().enumerate().collect();
        let windows = frame.windows.take().unwrap_or_default();
        let mut sets: Vec<(usize, SetExpr)> =
            frame.sets.take().unwrap_or_default().into_iter().enumerate().collect();
        let mut placed = Placed::default();
        plan = answered(plan, &mut subs, &mut placed, &mut width);
        if let Some(mut having) = having {
            placed.put(&mut having);
            plan = Plan::Filter(Box::new(plan), vec![having]);
        }
        if !windows.is_empty() {
            let mut windows = windows;
            windows.iter_mut().for_each(|call| put_window(&placed, call));
            let places = (0..windows.len()).map(|number| (WINDOW_BASE + number, width + number));
            placed.0.extend(places);
            width += windows.len();
            plan = Plan::Extend(Box::new(plan), Extension::Windows(windows));
            plan = answered(plan, &mut subs, &mut placed, &mut width);
        }
        while !sets.is_empty() {
            let (mut now, later): (Vec<_>, Vec<_>) =
                sets.into_iter().partition(|(_, set)| placed.has_all(set.exprs()));
            assert!(!now.is_empty(), "a function that makes rows is made of what stands before it");
            now.iter_mut().flat_map(|(_, set)| set.exprs_mut()).for_each(|expr| placed.put(expr));
            let numbers =
                now.iter().enumerate().map(|(place, (number, _))| (SET_BASE + number, width + place));
            placed.0.extend(numbers);
            width += now.len();
            let exprs = now.into_iter().map(|(_, set)| set).collect();
            plan = Plan::Extend(take(&mut plan), Extension::Sets(exprs));
            sets = later;
        }
        assert!(subs.is_empty(), "a sub-query asks for what stands before it");
        (plan, placed)
    }
}

/// The plan with the answers of those sub-queries behind its columns that have all they ask for.
fn answered(plan: Plan, subs: &mut Vec<(usize, Sub)>, placed: &mut Placed, width: &mut usize) -> Plan {
    let mut now = Vec::new();
    for (number, mut sub) in std::mem::take(subs) {
        if placed.has_all(parts_of_sub(&sub)) {
            put_sub(placed, &mut sub);
            placed.0.insert(SUB_BASE + number, *width + now.len());
            now.push(sub);
        } else {
            subs.push((number, sub));
        }
    }
    if now.is_empty() {
        return plan;
    }
    *width += now.len();
    Plan::Apply(Box::new(plan), now)
}
