//! The arrows between crates and between the engine's modules, as ARCHITECTURE.md draws them.
//!
//! The page is the only place where they stand: this module reads its two tables and compares them with the manifests
//! and with the paths that the sources name. A crate or module without a row is a mistake too, so nothing grows
//! unseen. A module whose second cell says `any other`
//! imports nothing of the engine but itself, and what stands behind a `but`. Tests are free: development dependencies and code under `cfg(test)` are not looked at.

use crate::lexer::{code, is_word, line, without_tests};
use crate::markdown::{quoted, table};
use crate::repository::{File, Repository};
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = "ARCHITECTURE.md";
const SOURCES: &str = "engine/src/";
/// First header cells of the two tables.
const CRATES: &str = "crate";
const MODULES: &str = "module";
/// Instead of the names of all other modules.
const ANY_OTHER: &str = "any other";
/// What the engine never depends on: runtimes, sockets and what knows SQL or Arrow.
const NOT_IN_ENGINE: [&str; 10] =
    ["tokio", "async-std", "smol", "futures", "mio", "socket2", "hyper", "datafusion", "arrow", "sqlparser"];

/// A name and the names that it may use, or may not.
type Rows<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Runs the checks of this module.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    let mut problems = Vec::new();
    let page = repository.text(PAGE).unwrap_or_default();
    match rows(page, CRATES) {
        Some(rows) => crates(repository, &rows, &mut problems),
        None => problems.push(format!("{PAGE}: no table of crates (its first header cell is `{CRATES}`)")),
    }
    match rows(page, MODULES) {
        Some(rows) => modules(repository, &rows, &mut problems),
        None => problems.push(format!("{PAGE}: no table of modules (its first header cell is `{MODULES}`)")),
    }
    problems
}

/// The backquoted names of the first cell of each row, with those of its second.
fn rows<'a>(page: &'a str, first: &str) -> Option<Rows<'a>> {
    let mut found = Rows::new();
    for row in table(page, first)? {
        let cell = row.get(1).copied().unwrap_or_default();
        let any_other = cell.starts_with(ANY_OTHER).then_some(ANY_OTHER);
        let names: BTreeSet<&str> = quoted(cell).chain(any_other).collect();
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
            if ours.is_some_and(|folder| !allowed.contains(folder)) {
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
        let code = without_tests(&code(&file.text));
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

fn modules(repository: &Repository, forbidden: &Rows<'_>, problems: &mut Vec<String>) {
    let files: Vec<(&File, Vec<&str>)> =
        repository.rust().filter_map(|file| Some((file, module_path(&file.path)?))).collect();
    let known: BTreeSet<&str> = files.iter().filter_map(|(_, path)| path.first().copied()).collect();
    if known.is_empty() {
        return;
    }
    for name in known.iter().filter(|name| !forbidden.contains_key(**name)) {
        problems
            .push(format!("{PAGE}: no row for the module `{name}` of the engine in the table of modules"));
    }
    let named = forbidden.values().flatten().filter(|name| **name != ANY_OTHER).chain(forbidden.keys());
    for name in named.filter(|name| !known.contains(**name)) {
        problems
            .push(format!("{PAGE}: `{name}` stands in the table of modules and is no module of the engine"));
    }
    for (file, path) in &files {
        let Some(forbidden) = path.first().and_then(|module| forbidden.get(module)) else { continue };
        if path.last() == Some(&"tests") {
            continue;
        }
        let code = without_tests(&code(&file.text));
        for (at, name) in imports(&code, path.len()) {
            let other = known.contains(name) && name != path[0];
            // Behind "any other but" stand the exceptions.
            if other && forbidden.contains(ANY_OTHER) != forbidden.contains(name) {
                let (line, module) = (line(&code, at), path[0]);
                problems
                    .push(format!("{}:{line}: `{module}` imports nothing of `{name}` ({PAGE})", file.path));
            }
        }
    }
}

/// The path of the engine's module that a file holds: none for files of other crates, empty for the crate's root.
fn module_path(path: &str) -> Option<Vec<&str>> {
    let inner = path.strip_prefix(SOURCES)?.strip_suffix(".rs")?;
    let mut parts: Vec<&str> = inner.split('/').collect();
    if ["mod", "lib"].contains(parts.last()?) {
        parts.pop();
    }
    Some(parts)
}

/// Top-level modules that code at module depth `depth` names through `crate::…` or enough `super::`s, with positions.
fn imports(code: &str, depth: usize) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let bytes = code.as_bytes();
    for (at, _) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        if at > 0 && (is_word(bytes[at - 1]) || code[..at].ends_with("super::")) {
            continue;
        }
        let mut rest = &code[at..];
        let mut supers = 0;
        while let Some(next) = rest.strip_prefix("super::") {
            rest = next;
            supers += 1;
        }
        match rest.strip_prefix("crate::") {
            Some(next) => rest = next,
            None if supers == depth => {}
            None => continue,
        }
        found.extend(heads(rest).into_iter().map(|name| (at, name)));
    }
    found
}

/// The first names of a path or of a group of paths `{a::b, c::{d, e}}` at the start of `text`.
fn heads(text: &str) -> Vec<&str> {
    let word = |text: &'_ str| text.bytes().take_while(|&byte| is_word(byte)).count();
    if !text.starts_with('{') {
        return vec![&text[..word(text)]];
    }
    let mut found = Vec::new();
    let mut depth = 0_usize;
    let mut expected = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && (byte == b',' || (byte == b'{' && at == 0)) {
            expected = true;
        } else if expected && is_word(byte) {
            found.push(&text[at..at + word(&text[at..])]);
            expected = false;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: &str = "| crate | may depend on | knows nothing of |\n|---|---|---|\n| `base` | – | tables |\n| `engine` | `base` | sockets |\n\n| module | imports nothing of |\n|---|---|\n| `row/` | `txn`, `hot` |\n| `hot` | `txn` |\n| `txn` | – |\n| `log` | any other |\n";

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
            ("engine/src/row/mod.rs", "//! R.\n"),
            ("engine/src/row/key.rs", "//! K. See [`crate::txn`].\nuse super::A;\n"),
            ("engine/src/hot.rs", "//! H.\nuse crate::row;\n#[cfg(test)]\nmod tests { use crate::txn; }\n"),
            ("engine/src/txn/mod.rs", "//! T.\nuse crate::{hot, row};\n"),
            ("engine/src/log/mod.rs", "//! L.\nuse crate::log::a;\nuse crate::SomeType;\n"),
        ];
        files.retain(|(at, _)| *at != path);
        files.push((path, text));
        check(&Repository::of(&files))
    }

    #[test]
    fn passes_what_is_drawn() {
        assert_eq!(
            problems_with("engine/src/txn/mod.rs", "//! T.\nuse crate::{hot, row};\n"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn finds_each() {
        let no_row = TABLES.replace("| `txn` | – |\n", "");
        let ghost = format!("{TABLES}| `ghost` | – |\n");
        let cases = [
            ("base/Cargo.toml", "[dependencies]\nthermocline-engine = \"1\"\n", "no such arrow"),
            (
                "base/Cargo.toml",
                "[target.'cfg(unix)'.dependencies]\nthermocline-engine = \"1\"\n",
                "no such arrow",
            ),
            ("engine/Cargo.toml", "[dependencies]\ntokio-util = \"1\"\n", "no runtime"),
            ("Cargo.toml", "[workspace]\nmembers = [\"engine\"]\n", "no member"),
            ("engine/src/lib.rs", "//! E.\nuse std::net::TcpStream;\n", "no sockets"),
            ("engine/src/row/mod.rs", "//! R.\nuse crate::txn::{A, B};\n", "`row` imports nothing of `txn`"),
            ("engine/src/row/mod.rs", "//! R.\nuse super::hot::A;\n", "`row` imports nothing of `hot`"),
            ("engine/src/row/key.rs", "//! K.\nuse super::super::{txn};\n", "`row` imports nothing of `txn`"),
            (
                "engine/src/row/key.rs",
                "//! K.\nfn a() -> crate::hot::A {}\n",
                "`row` imports nothing of `hot`",
            ),
            (
                "engine/src/hot.rs",
                "//! H.\nuse crate::{row::{A, hot}, txn::B};\n",
                "`hot` imports nothing of `txn`",
            ),
            ("engine/src/log/mod.rs", "//! L.\nuse crate::row;\n", "`log` imports nothing of `row`"),
            (PAGE, &no_row, "no row for the module `txn`"),
            (PAGE, &ghost, "`ghost` stands in"),
        ];
        for (path, text, expected) in cases {
            let problems = problems_with(path, text);
            assert_eq!(problems.len(), 1, "{path} {text}: {problems:?}");
            assert!(problems[0].contains(expected), "{problems:?}");
        }
    }

    #[test]
    fn heads_of_groups() {
        assert_eq!(heads("{a::b, c::{d, e}, f as g}, h"), ["a", "c", "f"]);
        assert_eq!(heads("a::b"), ["a"]);
    }
}
