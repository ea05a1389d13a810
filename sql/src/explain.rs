//! Plans as text, for EXPLAIN: one line an operator, what it reads from below it and further in. Names are PostgreSQL's, costs
//! are left out: plans are ordered by keys and counts of rows, not by costs.

use crate::plan::{Access, Bound, Extension, KeyPart, Plan};

/// The lines of a statement's plan.
pub(crate) fn lines(bound: &Bound) -> Vec<String> {
    let mut out = Vec::new();
    match bound {
        Bound::Query(query) => plan(&query.plan, 0, &mut out),
        Bound::Insert(it) => change("Insert", &it.table.name, &it.plan, &mut out),
        Bound::Update(it) => change("Update", &it.table.name, &it.plan, &mut out),
        Bound::Delete(it) => change("Delete", &it.table.name, &it.plan, &mut out),
    }
    out
}

fn change(what: &str, table: &str, input: &Plan, out: &mut Vec<String>) {
    line(0, format!("{what} on {table}"), out);
    plan(input, 1, out);
}

fn line(depth: usize, text: String, out: &mut Vec<String>) {
    if depth == 0 {
        out.push(text);
    } else {
        out.push(format!("{}->  {text}", " ".repeat(6 * depth - 4)));
    }
}

fn scan(plan: &Plan) -> Option<String> {
    let Plan::Scan { table, access, filter, .. } = plan else { return None };
    let mut text = match access {
        Access::Table => format!("Seq Scan on {}", table.name),
        Access::Points { index, keys } => {
            let index = &table.indexes[*index];
            let columns = index.columns.iter().take(keys.first().map_or(0, Vec::len));
            let names: Vec<&str> = columns.map(|(column, _)| table.columns[*column].name.as_str()).collect();
            let each = keys.iter().flatten().any(|part| matches!(part, KeyPart::Each(_)));
            let points = if each { "= ANY".to_owned() } else { format!("in {} points", keys.len()) };
            let (name, of) = (&index.name, &table.name);
            format!("Index Scan using {name} on {of} ({} {points})", names.join(", "))
        }
        Access::Index { index, equal, low, high, backward } => {
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
            format!("{how} using {} on {} ({})", index.name, table.name, terms.join(", "))
        }
    };
    if !filter.is_empty() {
        let s = if filter.len() == 1 { "" } else { "s" };
        text.push_str(&format!(", {} condition{s}", filter.len()));
    }
    Some(text)
}

fn plan(node: &Plan, depth: usize, out: &mut Vec<String>) {
    let one = |text: &str, input: &Plan, out: &mut Vec<String>| {
        line(depth, text.to_owned(), out);
        plan(input, depth + 1, out);
    };
    match node {
        Plan::Unit => line(depth, "Result".to_owned(), out),
        Plan::Values(rows) => line(depth, format!("Values ({} rows)", rows.len()), out),
        Plan::Scan { .. } => line(depth, scan(node).expect("it is a scan"), out),
        Plan::Unnest(_) => line(depth, "Function Scan on unnest".to_owned(), out),
        Plan::Series { .. } => line(depth, "Function Scan on generate_series".to_owned(), out),
        Plan::Filter(input, _) => one("Filter", input, out),
        // What only computes columns says nothing of how rows are found.
        Plan::Project(input, _) | Plan::Cut(input, _) | Plan::Numbered(input) => plan(input, depth, out),
        Plan::Extend(input, Extension::Sets(_)) => one("ProjectSet", input, out),
        Plan::Extend(input, Extension::Windows(_)) => one("WindowAgg", input, out),
        Plan::Working(_) => line(depth, "WorkTable Scan".to_owned(), out),
        Plan::Recursive(query) => {
            line(depth, "Recursive Union".to_owned(), out);
            plan(&query.base, depth + 1, out);
            plan(&query.step, depth + 1, out);
        }
        Plan::Sort(input, _) => one("Sort", input, out),
        Plan::Distinct(input, _) => one("Unique", input, out),
        Plan::Lock { input, .. } => one("LockRows", input, out),
        Plan::Limit { input, .. } => one("Limit", input, out),
        Plan::Aggregate { input, keys, .. } => {
            one(if keys.is_empty() { "Aggregate" } else { "HashAggregate" }, input, out);
        }
        Plan::Apply(input, subs) => {
            plan(input, depth, out);
            for (number, sub) in subs.iter().enumerate() {
                line(depth + 1, format!("SubPlan {}", number + 1), out);
                plan(&sub.plan, depth + 2, out);
            }
        }
        Plan::SetOp { op, all, left, right } => {
            let all = if *all { " ALL" } else { "" };
            line(depth, format!("{op:?}{all}"), out);
            plan(left, depth + 1, out);
            plan(right, depth + 1, out);
        }
        Plan::Join(join) => {
            let how = if join.lateral.is_some() || join.equal.is_empty() { "Nested Loop" } else { "Hash" };
            let kind = match (join.kind, how) {
                (crate::parser::ast::JoinKind::Inner | crate::parser::ast::JoinKind::Cross, "Hash") => {
                    " Join".to_owned()
                }
                (crate::parser::ast::JoinKind::Inner | crate::parser::ast::JoinKind::Cross, _) => {
                    String::new()
                }
                (kind, _) => format!(" {kind:?} Join"),
            };
            line(depth, format!("{how}{kind}"), out);
            plan(&join.left, depth + 1, out);
            plan(&join.right, depth + 1, out);
        }
    }
}
