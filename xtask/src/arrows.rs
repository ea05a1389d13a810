//! The arrows between crates, as ARCHITECTURE.md draws them.
//!
//! The page is the only place where they stand: this module reads its table of crates and compares it with the manifests. A
//! crate without a row is a mistake too, so nothing grows unseen. Development dependencies are free. The modules of a crate
//! have floors instead (see [`crate::floors`]).

use crate::lexer::{line, without_tests};
use crate::markdown::{quoted, table};
use crate::repository::Repository;
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = "ARCHITECTURE.md";
const SOURCES: &str = "engine/src/";
/// First header cell of the table.
const CRATES: &str = "crate";
/// Dependencies that the engine never has: runtimes, sockets, and crates that know SQL or Arrow.
const NOT_IN_ENGINE: [&str; 10] =
    ["tokio", "async-std", "smol", "futures", "mio", "socket2", "hyper", "datafusion", "arrow", "sqlparser"];

/// A crate and those that it may use.
type Rows<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Runs the checks of this module.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    let mut problems = Vec::new();
    let page = repository.text(PAGE).unwrap_or_default();
    match rows(page, CRATES) {
        Some(rows) => crates(repository, &rows, &mut problems),
        None => problems.push(format!("{PAGE}: no table of crates (its first header cell is `{CRATES}`)")),
    }
    problems
}

/// The backquoted names of the first cell of each row, with those of its second.
fn rows<'a>(page: &'a str, first: &str) -> Option<Rows<'a>> {
    let mut found = Rows::new();
    for row in table(page, first)? {
        let cell = row.get(1).copied().unwrap_or_default();
        let names: BTreeSet<&str> = quoted(cell).collect();
        for name in quoted(row.first().copied().unwrap_or_default()) {
            found.insert(name.trim_end_matches('/'), names.clone());
        }
    }
    Some(found)
}

fn crates(repository: &Repository, allowed: &Rows<'_>, problems: &mut Vec<String>) {
    let parse = |path: &str| repository.text(path).unwrap_or_default().parse::<toml::Table>();
    let members: BTreeSet<String> = match parse("Cargo.toml") {
        Ok(root) => {
            let members =
                root.get("workspace").and_then(|it| it.get("members")).and_then(toml::Value::as_array);
            members.into_iter().flatten().filter_map(toml::Value::as_str).map(str::to_owned).collect()
        }
        Err(error) => return problems.push(format!("Cargo.toml: {error}")),
    };
    for name in allowed.keys().filter(|name| !members.contains(**name)) {
        problems.push(format!(
            "{PAGE}: `{name}` stands in the table of crates and is no member of the workspace"
        ));
    }
    for member in &members {
        let manifest = match parse(&format!("{member}/Cargo.toml")) {
            Ok(manifest) => manifest,
            Err(error) => {
                problems.push(format!("{member}/Cargo.toml: {error}"));
                continue;
            }
        };
        let Some(allowed) = allowed.get(member.as_str()) else {
            problems.push(format!("{PAGE}: no row for the crate `{member}` in the table of crates"));
            continue;
        };
        let mut used = BTreeSet::new();
        dependencies(&manifest, &mut used);
        for name in used {
            let ours = name.strip_prefix("thermocline-");
            // A row names folders: the package `thermocline-bench` stands in `lab/bench`.
            let is_drawn =
                |package: &str| allowed.iter().any(|folder| folder.rsplit('/').next() == Some(package));
            if ours.is_some_and(|package| !is_drawn(package)) {
                problems.push(format!("{member}/Cargo.toml: `{name}`: no such arrow in {PAGE}"));
            }
            let family = NOT_IN_ENGINE
                .iter()
                .any(|no| name == *no || name.strip_prefix(no).is_some_and(|x| x.starts_with('-')));
            if ["base", "engine"].contains(&member.as_str()) && family {
                problems.push(format!(
                    "{member}/Cargo.toml: `{name}`: the engine knows no runtime, socket or SQL"
                ));
            }
        }
    }
    for file in repository.rust().filter(|file| file.path.starts_with(SOURCES)) {
        let code = without_tests(file.code());
        for (at, found) in code.match_indices("std::net") {
            problems.push(format!(
                "{}:{}: `{found}`: the engine knows no sockets",
                file.path,
                line(&code, at)
            ));
        }
    }
}

/// Names of the dependencies in a manifest that are not for tests only.
fn dependencies(manifest: &toml::Table, used: &mut BTreeSet<String>) {
    for (key, value) in manifest {
        let Some(inner) = value.as_table() else { continue };
        match key.as_str() {
            "dependencies" | "build-dependencies" => used.extend(inner.keys().cloned()),
            "dev-dependencies" => {}
            _ => dependencies(inner, used),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: &str = "| crate | may depend on | knows nothing of |\n|---|---|---|\n| `base` | – | tables |\n| `engine` | `base` | sockets |\n";

    fn problems_with(path: &str, text: &str) -> Vec<String> {
        let mut files = vec![
            (PAGE, TABLES),
            ("Cargo.toml", "[workspace]\nmembers = [\"base\", \"engine\"]\n"),
            ("base/Cargo.toml", "[dependencies]\ncrc32c = \"1\"\n"),
            (
                "engine/Cargo.toml",
                "[dependencies]\nthermocline-base = \"1\"\n[dev-dependencies]\ntokio = \"1\"\n",
            ),
            ("engine/src/lib.rs", "//! E.\nuse crate::txn::A;\n"),
        ];
        files.retain(|(at, _)| *at != path);
        files.push((path, text));
        check(&Repository::of(&files))
    }

    #[test]
    fn passes_what_is_drawn() {
        assert_eq!(problems_with("engine/src/lib.rs", "//! E. std::net\n"), Vec::<String>::new());
    }

    #[test]
    fn a_folder_below_another_is_named_by_its_last_part() {
        let tables =
            TABLES.replace("| `base` | sockets", "| `base`, `lab/tool` | sockets") + "| `lab/tool` | – |\n";
        let files = [
            (PAGE, tables.as_str()),
            ("Cargo.toml", "[workspace]\nmembers = [\"base\", \"engine\", \"lab/tool\"]\n"),
            ("base/Cargo.toml", ""),
            ("lab/tool/Cargo.toml", ""),
            ("engine/Cargo.toml", "[dependencies]\nthermocline-tool = \"1\"\n"),
        ];
        assert_eq!(check(&Repository::of(&files)), Vec::<String>::new());
    }

    #[test]
    fn finds_each() {
        let no_row = TABLES.replace("| `engine` | `base` | sockets |\n", "");
        let ghost = format!("{TABLES}| `ghost` | – |\n");
        let cases = [
            ("base/Cargo.toml", "[dependencies]\nthermocline-engine = \"1\"\n", "no such arrow"),
            ("base/Cargo.toml", "[dependencies]\nthermocline-lab = \"1\"\n", "no such arrow"),
            (
                "base/Cargo.toml",
                "[target.'cfg(unix)'.dependencies]\nthermocline-engine = \"1\"\n",
                "no such arrow",
            ),
            ("engine/Cargo.toml", "[dependencies]\ntokio-util = \"1\"\n", "no runtime"),
            ("Cargo.toml", "[workspace]\nmembers = [\"engine\"]\n", "no member"),
            ("engine/src/lib.rs", "//! E.\nuse std::net::TcpStream;\n", "no sockets"),
            (PAGE, &no_row, "no row for the crate `engine`"),
            (PAGE, &ghost, "`ghost` stands in"),
        ];
        for (path, text, expected) in cases {
            let problems = problems_with(path, text);
            assert_eq!(problems.len(), 1, "{path} {text}: {problems:?}");
            assert!(problems[0].contains(expected), "{problems:?}");
        }
    }
}
