//! Plans for EXPLAIN: a tree of what each operator is, with what EXPLAIN ANALYZE has counted, as text or JSON (`write`).
//!
//! Names are PostgreSQL's. Costs are left out: plans are ordered by keys and counts of rows, not by costs.

mod write;

use std::collections::HashSet;

use crate::exec::measured;
use crate::expr::meter::{Measured, Meter};
use crate::names::plain as plain_name;
use crate::parser::ast::JoinKind;
use crate::plan::{Access, Bound, Extension, Join, KeyPart, Plan, SetExpr, Sub};

pub(crate) use write::{json, text};

/// An operator and those below it.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// `SubPlan 1`: what stands above it.
    label: Option<String>,
    /// Its line.
    line: String,
    /// What JSON says of it: name and value.
    facts: Vec<(&'static str, String)>,
    measured: Option<Measured>,
    /// Rows that its conditions have taken: of a scan or filter, of a join.
    removed: Option<(&'static str, u64)>,
    below: Vec<Node>,
}

/// What was counted beside the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) planning_ns: u64,
    /// None: the statement did not run.
    pub(crate) execution_ns: Option<u64>,
}

impl Node {
    fn new(kind: impl Into<String>) -> Self {
        let kind = kind.into();
        Self { line: kind.clone(), facts: vec![("Node Type", kind)], ..Self::default() }
    }

    fn with(mut self, below: impl IntoIterator<Item = Node>) -> Self {
        self.below.extend(below);
        self
    }

    fn fact(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.facts.push((name, value.into()));
        self
    }

    fn line(mut self, line: impl Into<String>) -> Self {
        self.line = line.into();
        self
    }
}

/// The tree of a statement. With a meter, what it has counted; `changed`: rows that a change has returned, and its time.
pub(crate) fn tree(bound: &Bound, meter: Option<&Meter>, changed: Option<Measured>) -> Node {
    let shown = &mut HashSet::new();
    let mut change = |what: &str, table: &str, input: &Plan| {
        let table = plain_name(table);
        let mut node = Node::new("ModifyTable").line(format!("{what} on {table}"));
        node = node.fact("Operation", what).fact("Relation Name", table);
        node.measured = changed;
        node.with([plan(input, meter, shown)])
    };
    match bound {
        Bound::Query(query) => plan(&query.plan, meter, &mut HashSet::new()),
        Bound::Insert(it) => change("Insert", &it.table.name, &it.plan),
        Bound::Update(it) => change("Update", &it.table.name, &it.plan),
        Bound::Delete(it) => change("Delete", &it.table.name, &it.plan),
    }
}

fn scan(table: &crate::catalog::Table, access: &Access, conditions: usize) -> Node {
    let of = plain_name(&table.name);
    let node = match access {
        Access::Table => Node::new("Seq Scan").line(format!("Seq Scan on {of}")),
        Access::Points { index, keys } => {
            let index = &table.indexes[*index];
            let columns = index.columns.iter().take(keys.first().map_or(0, Vec::len));
            let names: Vec<&str> = columns.map(|(column, _)| table.columns[*column].name.as_str()).collect();
            let each = keys.iter().flatten().any(|part| matches!(part, KeyPart::Each(_)));
            let points = if each { "= ANY".to_owned() } else { format!("in {} points", keys.len()) };
            let condition = format!("{} {points}", names.join(", "));
            let line = format!("Index Scan using {} on {of} ({condition})", index.name);
            Node::new("Index Scan").line(line).fact("Index Name", &index.name).fact("Index Cond", condition)
        }
        Access::Index { index, equal, low, high, backward, .. } => {
            let index = &table.indexes[*index];
            let mut terms: Vec<String> = Vec::new();
            for (place, (column, _)) in index.columns.iter().enumerate().take(equal.len() + 1) {
                let name = &table.columns[*column].name;
                if place < equal.len() {
                    terms.push(format!("{name} ="));
                } else {
                    let bound = |bound: &Option<(crate::expr::Expr, bool)>, sign: &str| {
                        bound
                            .as_ref()
                            .map(|(_, same)| format!("{name} {sign}{}", if *same { "=" } else { "" }))
                    };
                    terms.extend(bound(low, ">"));
                    terms.extend(bound(high, "<"));
                }
            }
            let how = if *backward { "Index Scan Backward" } else { "Index Scan" };
            let line = format!("{how} using {} on {of} ({})", index.name, terms.join(", "));
            Node::new("Index Scan")
                .line(line)
                .fact("Scan Direction", if *backward { "Backward" } else { "Forward" })
                .fact("Index Name", &index.name)
                .fact("Index Cond", terms.join(", "))
        }
    };
    let mut node = node.fact("Relation Name", of);
    if conditions > 0 {
        let s = if conditions == 1 { "" } else { "s" };
        node.line += &format!(", {conditions} condition{s}");
    }
    node
}

fn join(join: &Join) -> Node {
    let is_nested = join.lateral.is_some() || join.equal.is_empty();
    let kind = match join.kind {
        JoinKind::Inner | JoinKind::Cross => None,
        kind => Some(format!("{kind:?}")),
    };
    let line = match (is_nested, &kind) {
        (true, None) => "Nested Loop".to_owned(),
        (false, None) => "Hash Join".to_owned(),
        (true, Some(kind)) => format!("Nested Loop {kind} Join"),
        (false, Some(kind)) => format!("Hash {kind} Join"),
    };
    let node = Node::new(if is_nested { "Nested Loop" } else { "Hash Join" }).line(line);
    node.fact("Join Type", kind.unwrap_or_else(|| "Inner".to_owned()))
}

fn plan(node: &Plan, meter: Option<&Meter>, shown: &mut HashSet<usize>) -> Node {
    let mut below = |input: &Plan| plan(input, meter, shown);
    let removed = |conditions| meter.map(|meter| ("Rows Removed by Filter", meter.removed_by(conditions)));
    let mut made = match node {
        Plan::Unit => Node::new("Result"),
        Plan::Made(rows) => Node::new("Values Scan").line(format!("Values ({} rows)", rows.len())),
        Plan::Values(rows) => Node::new("Values Scan").line(format!("Values ({} rows)", rows.len())),
        Plan::Scan { table, access, filter, .. } => {
            Node { removed: removed(filter), ..scan(table, access, filter.len()) }
        }
        Plan::Set(SetExpr::Array(_)) => Node::new("Function Scan").line("Function Scan on unnest"),
        Plan::Set(SetExpr::Series(..)) => Node::new("Function Scan").line("Function Scan on generate_series"),
        Plan::Shared(shared) => {
            let node = Node::new("CTE Scan").line(format!("CTE Scan on {}", shared.name));
            let node = node.fact("CTE Name", &shared.name);
            // Its plan is shown where it is read first.
            if shown.insert(shared.number) {
                let label = Some(format!("CTE {}", shared.name));
                node.with([Node { label, ..plan(&shared.plan, meter, shown) }])
            } else {
                node
            }
        }
        Plan::Filter(input, conditions) => {
            Node { removed: removed(conditions), ..Node::new("Filter").with([below(input)]) }
        }
        // What only computes columns says nothing of how rows are found.
        Plan::Project(input, _) | Plan::Cut(input, _) | Plan::Numbered(input) => return below(input),
        Plan::Extend(input, Extension::Sets(_)) => Node::new("ProjectSet").with([below(input)]),
        Plan::Extend(input, Extension::Windows(_)) => Node::new("WindowAgg").with([below(input)]),
        Plan::Working(_) => Node::new("WorkTable Scan"),
        Plan::Recursive(query) => Node::new("Recursive Union").with([below(&query.base), below(&query.step)]),
        Plan::Sort(input, _) => Node::new("Sort").with([below(input)]),
        Plan::Distinct(input, _) => Node::new("Unique").with([below(input)]),
        Plan::Lock { input, .. } => Node::new("LockRows").with([below(input)]),
        Plan::Limit { input, .. } => Node::new("Limit").with([below(input)]),
        Plan::Aggregate { input, keys, .. } => {
            let line = if keys.is_empty() { "Aggregate" } else { "HashAggregate" };
            let strategy = if keys.is_empty() { "Plain" } else { "Hashed" };
            Node::new("Aggregate").line(line).fact("Strategy", strategy).with([below(input)])
        }
        Plan::Apply(input, subs) => {
            let mut made = below(input);
            made.below.extend(asked(subs, meter, shown));
            return made;
        }
        Plan::SetOp { op, all, left, right } => {
            let line = format!("{op:?}{}", if *all { " ALL" } else { "" });
            Node::new("SetOp").line(&line).fact("Command", line).with([below(left), below(right)])
        }
        Plan::Join(it) => Node {
            removed: meter.map(|meter| ("Rows Removed by Join Filter", meter.removed_by(&it.on))),
            ..join(it)
                .with([below(&it.left), below(&it.right)].into_iter().chain(asked(&it.asks, meter, shown)))
        },
    };
    made.measured = meter.map(|meter| measured(meter, node).unwrap_or_default());
    made
}

/// The plans of sub-queries, below the operator that asks them.
fn asked(subs: &[Sub], meter: Option<&Meter>, shown: &mut HashSet<usize>) -> Vec<Node> {
    let labelled = |(number, sub): (usize, &Sub)| Node {
        label: Some(format!("SubPlan {}", number + 1)),
        ..plan(&sub.plan, meter, shown)
    };
    subs.iter().enumerate().map(labelled).collect()
}
