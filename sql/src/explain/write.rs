//! The tree of a plan as text and as JSON, as PostgreSQL lays them out.

use std::fmt::Write;

use super::{Node, Times};
use crate::expr::meter::Measured;

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// The counts of an operator, as they stand behind its line.
fn counts(measured: Measured, timing: bool) -> String {
    if measured.loops == 0 {
        return " (never executed)".to_owned();
    }
    let time = match timing {
        true => format!("time={:.3}..{:.3} ", measured.first_ms(), measured.total_ms()),
        false => String::new(),
    };
    format!(" (actual {time}rows={} loops={})", measured.rows_each(), measured.loops)
}

impl Node {
    /// Rows that conditions have taken, each time that it ran.
    fn removed_each(&self) -> Option<(&'static str, u64)> {
        let loops = self.measured?.loops.max(1);
        self.removed.filter(|(_, rows)| *rows > 0).map(|(name, rows)| (name, (rows + loops / 2) / loops))
    }
}

/// The lines of a tree. `timing`: with the times of the operators.
pub(crate) fn text(root: &Node, timing: bool, times: Option<Times>) -> Vec<String> {
    let mut out = Vec::new();
    lines(root, None, timing, &mut out);
    if let Some(times) = times {
        out.push(format!("Planning Time: {:.3} ms", ms(times.planning_ns)));
        out.extend(times.execution_ns.map(|ns| format!("Execution Time: {:.3} ms", ms(ns))));
    }
    out
}

/// `column`: where the text of the operator above begins; none: there is none.
fn lines(node: &Node, column: Option<usize>, timing: bool, out: &mut Vec<String>) {
    let measured = node.measured.map_or(String::new(), |measured| counts(measured, timing));
    let column = match (column, &node.label) {
        (None, _) => {
            out.push(format!("{}{measured}", node.line));
            0
        }
        (Some(column), label) => {
            let mut arrow = column + 2;
            if let Some(label) = label {
                out.push(format!("{}{label}", " ".repeat(arrow)));
                arrow += 2;
            }
            out.push(format!("{}->  {}{measured}", " ".repeat(arrow), node.line));
            arrow + 4
        }
    };
    if let Some((name, rows)) = node.removed_each() {
        out.push(format!("{}{name}: {rows}", " ".repeat(column + 2)));
    }
    node.below.iter().for_each(|below| lines(below, Some(column), timing, out));
}

/// The tree as JSON.
pub(crate) fn json(root: &Node, timing: bool, times: Option<Times>) -> String {
    let mut out = String::from("[\n  {\n    \"Plan\": ");
    object(root, 2, timing, &mut out);
    if let Some(times) = times {
        write!(out, ",\n    \"Planning Time\": {:.3}", ms(times.planning_ns))
            .expect("strings take everything");
        if let Some(ns) = times.execution_ns {
            write!(out, ",\n    \"Execution Time\": {:.3}", ms(ns)).expect("strings take everything");
        }
    }
    out.push_str("\n  }\n]");
    out
}

fn object(node: &Node, depth: usize, timing: bool, out: &mut String) {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut facts: Vec<(&str, String)> = Vec::new();
    facts.extend(node.facts.iter().map(|(name, value)| (*name, quoted(value))));
    facts.extend(node.label.as_ref().map(|label| ("Subplan Name", quoted(label))));
    if let Some(measured) = node.measured {
        if timing {
            facts.push(("Actual Startup Time", format!("{:.3}", measured.first_ms())));
            facts.push(("Actual Total Time", format!("{:.3}", measured.total_ms())));
        }
        facts.push(("Actual Rows", measured.rows_each().to_string()));
        facts.push(("Actual Loops", measured.loops.to_string()));
    }
    facts.extend(node.removed_each().map(|(name, rows)| (name, rows.to_string())));
    let indent = "  ".repeat(depth + 1);
    let shown: Vec<String> =
        facts.iter().map(|(name, value)| format!("{indent}\"{name}\": {value}")).collect();
    out.push_str("{\n");
    out.push_str(&shown.join(",\n"));
    if !node.below.is_empty() {
        write!(out, ",\n{indent}\"Plans\": [").expect("strings take everything");
        for (place, below) in node.below.iter().enumerate() {
            out.push_str(if place == 0 { "\n" } else { ",\n" });
            out.push_str(&"  ".repeat(depth + 2));
            object(below, depth + 2, timing, out);
        }
        write!(out, "\n{indent}]").expect("strings take everything");
    }
    write!(out, "\n{}}}", "  ".repeat(depth)).expect("strings take everything");
}
