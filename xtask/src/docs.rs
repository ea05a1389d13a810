//! The rules that the documentation keeps.
//!
//! - Links to files and headings of the repository lead somewhere.
//! - Each page under `docs/` can be reached from `docs/README.md`.
//! - The README's Rust example is `sql/examples/quickstart.rs`, which compiles and runs.
//! - Each Rust program (with a `main`) in `docs/use/` is an `engine/examples/guide_*.rs`, and each of these is in the guide.
//! - Each dependency is explained in `docs/change/dependencies.md`, and each that is explained is one.

use crate::markdown::{Block, anchors, blocks, links, prose, quoted};
use crate::repository::{File, Repository};
use std::collections::BTreeSet;

const INDEX: &str = "docs/README.md";
const README: &str = "README.md";
const EXAMPLE: &str = "sql/examples/quickstart.rs";
const GUIDE: &str = "docs/use/";
const GUIDE_EXAMPLES: &str = "engine/examples/guide_";
const DEPENDENCIES: &str = "docs/change/dependencies.md";

/// Runs the checks of this module.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    let mut problems = Vec::new();
    for file in repository.markdown() {
        for (line, target) in links(&file.text) {
            if let Err(why) = resolve(repository, file, target) {
                problems.push(format!("{}:{line}: the link `{target}` leads nowhere: {why}", file.path));
            }
        }
    }
    unreachable(repository, &mut problems);
    example(repository, &mut problems);
    guide(repository, &mut problems);
    dependencies(repository, &mut problems);
    problems
}

/// The path that a link of `file` leads to; none if it leaves the repository.
fn resolve(repository: &Repository, file: &File, target: &str) -> Result<Option<String>, String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(None);
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { Some(file.path.clone()) } else { join(&file.path, path) };
    let path = path.ok_or("it leaves the repository")?;
    if !repository.exists(&path) {
        return Err(format!("no {path}"));
    }
    if path.ends_with(".md") && !anchor.is_empty() {
        let text = repository.text(&path).unwrap_or_default();
        if !anchors(text).iter().any(|known| known == anchor) {
            return Err(format!("no heading #{anchor} in {path}"));
        }
    }
    Ok(Some(path))
}

/// `target` as seen from the file `from`, or none if it leaves the repository.
fn join(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn unreachable(repository: &Repository, problems: &mut Vec<String>) {
    let mut reached = BTreeSet::from([INDEX.to_owned()]);
    let mut open = vec![INDEX.to_owned()];
    while let Some(path) = open.pop() {
        let Some(file) = repository.files.iter().find(|file| file.path == path) else { continue };
        for (_, target) in links(&file.text) {
            if let Ok(Some(next)) = resolve(repository, file, target)
                && reached.insert(next.clone())
            {
                open.push(next);
            }
        }
    }
    for file in repository.markdown().filter(|file| file.path.starts_with("docs/")) {
        if !reached.contains(&file.path) {
            problems.push(format!("{}: no way leads here from {INDEX}: link it from its index", file.path));
        }
    }
}

fn example(repository: &Repository, problems: &mut Vec<String>) {
    let (Some(readme), Some(example)) = (repository.text(README), repository.text(EXAMPLE)) else {
        return problems.push(format!("{README} or {EXAMPLE}: missing"));
    };
    let expected = program(example);
    let shown: Vec<_> = blocks(readme).into_iter().filter(|block| block.info.starts_with("rust")).collect();
    match shown.as_slice() {
        [block] if block.lines == expected => {}
        [block] => problems
            .push(format!("{README}:{}: not what stands in {EXAMPLE}: copy it from there", block.line)),
        _ => problems.push(format!("{README}: shows {} Rust blocks; one is checked, {EXAMPLE}", shown.len())),
    }
}

/// The lines of an example between its header and its test.
fn program(text: &str) -> Vec<&str> {
    let text = text.split("\n#[cfg(test)]").next().unwrap_or(text).trim_end();
    text.lines().skip_while(|line| line.starts_with("//!") || line.is_empty()).collect()
}

fn guide(repository: &Repository, problems: &mut Vec<String>) {
    let examples: Vec<&File> =
        repository.files.iter().filter(|file| file.path.starts_with(GUIDE_EXAMPLES)).collect();
    let mut shown = BTreeSet::new();
    for file in repository.markdown().filter(|file| file.path.starts_with(GUIDE)) {
        // Without a `main` it is a part of a program.
        let is_program = |block: &Block<'_>| {
            block.info.starts_with("rust") && block.lines.iter().any(|line| line.starts_with("fn main"))
        };
        for block in blocks(&file.text).into_iter().filter(is_program) {
            match examples.iter().find(|example| program(&example.text) == block.lines) {
                Some(example) => _ = shown.insert(&example.path),
                None => problems.push(format!(
                    "{}:{}: no {GUIDE_EXAMPLES}*.rs: copy it from there",
                    file.path, block.line
                )),
            }
        }
    }
    for example in examples.iter().filter(|example| !shown.contains(&example.path)) {
        problems.push(format!("{}: no page of {GUIDE} shows it as it is", example.path));
    }
}

fn dependencies(repository: &Repository, problems: &mut Vec<String>) {
    let Some(page) = repository.text(DEPENDENCIES) else {
        return problems.push(format!("{DEPENDENCIES}: missing"));
    };
    let mut used = BTreeSet::new();
    for file in repository.files.iter().filter(|file| file.path.ends_with("Cargo.toml")) {
        match file.text.parse::<toml::Table>() {
            Ok(manifest) => collect_dependencies(&manifest, &mut used),
            Err(error) => problems.push(format!("{}: {error}", file.path)),
        }
    }
    let explained: BTreeSet<&str> = prose(page)
        .filter_map(|(_, line)| line.strip_prefix("| ")?.split('|').next())
        .flat_map(quoted)
        .collect();
    for name in used.iter().filter(|name| !explained.contains(name.as_str())) {
        problems.push(format!("{DEPENDENCIES}: `{name}` is used and not explained"));
    }
    for name in explained.iter().filter(|&&name| !used.contains(name)) {
        problems.push(format!("{DEPENDENCIES}: `{name}` is explained and not used"));
    }
}

/// Adds the names of all dependencies in `table`, at any depth, except our own crates.
fn collect_dependencies(table: &toml::Table, used: &mut BTreeSet<String>) {
    for (key, value) in table {
        let Some(inner) = value.as_table() else { continue };
        if ["dependencies", "dev-dependencies", "build-dependencies"].contains(&key.as_str()) {
            let ours = |name: &str, how: &toml::Value| {
                name.starts_with("thermocline-")
                    || how.get("path").is_some()
                    || how.get("workspace").is_some()
            };
            // What is inherited from the workspace is counted there.
            used.extend(inner.iter().filter(|(name, how)| !ours(name, how)).map(|(name, _)| name.clone()));
        } else {
            collect_dependencies(inner, used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [(&str, &str); 8] = [
        (README, "# A\n\n[the docs](docs/README.md#pages)\n\n```rust\nfn main() {}\n```\n"),
        (INDEX, "# Pages\n\n[dependencies](change/dependencies.md) [up](../README.md) [guide](use/a.md)\n"),
        ("docs/use/a.md", "```rust\nfn main() {}\n```\n"),
        (
            "engine/examples/guide_a.rs",
            "//! Example.\n\nfn main() {}\n\n#[cfg(test)]\n#[test]\nfn it_runs() {}\n",
        ),
        (DEPENDENCIES, "| crate | why |\n|---|---|\n| `b` | good |\n"),
        (EXAMPLE, "//! Example.\n\nfn main() {}\n"),
        ("Cargo.toml", "[workspace.dependencies]\nthermocline-base = { path = \"base\" }\nb = \"1\"\n"),
        ("a/Cargo.toml", "[target.'cfg(unix)'.dependencies]\nb = { workspace = true }\n"),
    ];

    #[test]
    fn passes_what_is_good() {
        assert_eq!(check(&Repository::of(&GOOD)), Vec::<String>::new());
    }

    #[test]
    fn finds_each() {
        let cases = [
            (README, "```rust\nfn main() {}\n```\n[x](docs/none.md)", "`docs/none.md` leads nowhere"),
            (README, "```rust\nfn main() {}\n```\n[x](docs/README.md#none)", "no heading #none"),
            (README, "```rust\nfn main() {}\n```\n[x](../../x)", "leaves the repository"),
            (README, "```rust\nfn main() { }\n```", "not what stands in"),
            (
                "docs/use/a.md",
                "```rust\nfn main() {}\n```\n\n```rust\nfn main() { }\n```",
                "copy it from there",
            ),
            ("docs/use/a.md", "# A guide\n", "no page of docs/use/ shows it"),
            (INDEX, "# Pages\n\n[guide](use/a.md)\n", "no way leads here"),
            (DEPENDENCIES, "| `c` | good |\n| `b` | good |\n", "`c` is explained and not used"),
            (
                "Cargo.toml",
                "[workspace.dependencies]\nb = \"1\"\nc = \"1\"\n",
                "`c` is used and not explained",
            ),
        ];
        for (path, text, expected) in cases {
            let files: Vec<_> =
                GOOD.iter().map(|&(at, good)| (at, if at == path { text } else { good })).collect();
            let problems = check(&Repository::of(&files));
            assert_eq!(problems.len(), 1, "{path} {text}: {problems:?}");
            assert!(problems[0].contains(expected), "{problems:?}");
        }
    }
}
