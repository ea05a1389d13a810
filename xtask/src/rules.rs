//! The rules of the protocols that a test can switch off, and the tests that miss them.
//!
//! The table under `## Rules that are switched off` of `docs/change/testing.md` has a row for each file that switches some
//! off. Each rule of an `enum Rule` stands in a row, and the file of that row names it.

use std::collections::BTreeSet;

use crate::markdown::{prose, quoted};
use crate::repository::Repository;

const PAGE: &str = "docs/change/testing.md";
const HEADING: &str = "## Rules that are switched off";

/// Runs the checks of this module.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    let rules = rules(repository);
    if rules.is_empty() {
        return Vec::new();
    }
    let page = repository.text(PAGE).unwrap_or_default();
    let rows = prose(page)
        .skip_while(|(_, line)| *line != HEADING)
        .skip(1)
        .take_while(|(_, line)| !line.starts_with('#'))
        .filter(|(_, line)| line.starts_with("| `"));
    let mut problems = Vec::new();
    let mut named = BTreeSet::new();
    for (line, row) in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let file = cells.first().and_then(|cell| quoted(cell).next()).unwrap_or_default();
        let Some(text) = repository.text(file) else {
            problems.push(format!("{PAGE}:{line}: no file {file}"));
            continue;
        };
        for rule in cells.get(1).into_iter().flat_map(|cell| quoted(cell)) {
            if !rules.contains(rule) {
                problems.push(format!("{PAGE}:{line}: there is no rule {rule}"));
            } else if !text.contains(rule) {
                problems.push(format!("{PAGE}:{line}: {file} does not switch {rule} off"));
            }
            named.insert(rule);
        }
    }
    let missing = rules.iter().filter(|rule| !named.contains(rule.as_str()));
    problems.extend(missing.map(|rule| format!("{PAGE}: no row says which test misses the rule {rule}")));
    problems
}

/// The variants of each `enum Rule`.
fn rules(repository: &Repository) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in repository.rust() {
        let mut lines = file.text.lines().skip_while(|line| !line.starts_with("pub enum Rule ")).skip(1);
        found.extend(
            lines
                .by_ref()
                .take_while(|line| *line != "}")
                .filter_map(|line| line.trim().strip_suffix(','))
                .filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()))
                .filter_map(|line| line.split(' ').next().map(str::to_owned)),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_a_row_and_its_file_names_it() {
        const RULES: (&str, &str) = ("a.rs", "pub enum Rule {\n    /// One.\n    One = 1,\n    Two,\n}\n");
        let found =
            |page: &str, test: &str| check(&Repository::of(&[RULES, (PAGE, page), ("test.rs", test)]));
        let page = format!(
            "{HEADING}\n\n| file | rules | step |\n|---|---|---|\n| `test.rs` | `One`, `Two` | model |\n"
        );
        assert_eq!(found(&page, "Rule::One Rule::Two"), Vec::<String>::new());
        let says = |page: &str, test: &str, expected: &str| {
            let problems = found(page, test);
            assert!(problems.len() == 1 && problems[0].contains(expected), "{problems:?}");
        };
        says(&page, "Rule::One", "does not switch Two off");
        says(&page.replace(", `Two`", ""), "Rule::One", "misses the rule Two");
        says(&page.replace("`Two`", "`Two`, `Three`"), "Rule::One Rule::Two", "no rule Three");
    }
}
