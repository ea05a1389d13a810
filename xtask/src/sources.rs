//! What every source file keeps.
//!
//! - A Rust file opens with `//!`.
//! - No unfinished work: no `todo!`, `dbg!`, `unimplemented!`, and none of the words that mark some.
//! - `#[ignore]` gives a reason.
//! - At most [`LINES_MAX`] lines; those of `xtask/ratchet.toml` may only shrink.
//! - No path of somebody's machine in any text file.
//! - The engine's atomics and locks are those of `base::sync`, or the model checker would not see them.

use crate::lexer::{code, line, without_tests, words};
use crate::repository::{File, Repository};
use std::collections::BTreeMap;
use std::fs;

const LINES_MAX: usize = 1000;
const RATCHET: &str = "xtask/ratchet.toml";

/// Macros that mark unfinished work, without their `!`.
const MACROS: [&str; 3] = ["todo", "dbg", "unimplemented"];
/// Words that mark unfinished work, in halves, so that this file may stand in the repository.
const MARKS: [(&str, &str); 3] = [("FIX", "ME"), ("XX", "X"), ("TO", "DO")];
/// Roots of paths that exist on one machine only, in halves as well.
const MACHINE: [(&str, &str); 4] = [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/"), ("/Us", "ers/")];
/// Words in front of a number, in halves as well.
const NUMBERED: [(&str, &str); 4] =
    [("inter", "leaving "), ("Inter", "leaving "), ("se", "ed 00"), ("architec", "ture §")];
/// What the engine takes from `base::sync` and not from `std`.
const BEHIND_FACADE: [&str; 4] =
    ["std::sync::atomic", "std::sync::Mutex", "std::sync::RwLock", "std::hint::spin_loop"];

/// Where the engine runs threads of its own that no model could drive: recovery, before anybody else is there.
const NOT_MODELLED: [&str; 1] = ["engine/src/ops/recover.rs"];

/// Runs the checks of this module.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    let mut problems = Vec::new();
    for file in repository.rust() {
        opening(file, &mut problems);
        unfinished_macros(file, &mut problems);
        ignored(file, &mut problems);
        facade(file, &mut problems);
    }
    for file in &repository.files {
        marks(file, &mut problems);
        machine_paths(file, &mut problems);
        references(file, &mut problems);
    }
    lengths(repository, &mut problems);
    problems
}

fn opening(file: &File, problems: &mut Vec<String>) {
    if !file.text.starts_with("//! ") {
        problems.push(format!("{}:1: opens without `//!`: say what the file is for", file.path));
    }
}

fn unfinished_macros(file: &File, problems: &mut Vec<String>) {
    let code = code(&file.text);
    for name in MACROS {
        for at in words(&code, name).filter(|at| code[at + name.len()..].starts_with('!')) {
            problems.push(format!("{}:{}: `{name}!`: finish it", file.path, line(&code, at)));
        }
    }
}

fn ignored(file: &File, problems: &mut Vec<String>) {
    let code = code(&file.text);
    for (at, found) in code.match_indices("#[ignore") {
        let reason = file.text[at + found.len()..].trim_start().strip_prefix('=').map(str::trim_start);
        if !reason.is_some_and(|reason| reason.starts_with('"') && !reason.starts_with("\"\"")) {
            let line = line(&code, at);
            problems.push(format!(
                "{}:{line}: a test is ignored without a reason: `#[ignore = \"…\"]`",
                file.path
            ));
        }
    }
}

fn facade(file: &File, problems: &mut Vec<String>) {
    let test = file.path.ends_with("/tests.rs") || file.path.contains("/tests/");
    if !file.path.starts_with("engine/src/") || test || NOT_MODELLED.contains(&&*file.path) {
        return;
    }
    let code = without_tests(&code(&file.text));
    for path in BEHIND_FACADE {
        // An `Ordering` is the same type wherever it is taken from.
        for at in words(&code, path).filter(|at| !code[at + path.len()..].starts_with("::Ordering")) {
            let line = line(&code, at);
            problems.push(format!("{}:{line}: `{path}`: take it from `thermocline_base::sync`", file.path));
        }
    }
}

fn marks(file: &File, problems: &mut Vec<String>) {
    for (head, tail) in MARKS {
        let mark = format!("{head}{tail}");
        for at in words(&file.text, &mark) {
            problems.push(format!("{}:{}: {mark}: finish it", file.path, line(&file.text, at)));
        }
    }
}

/// References by number, to texts that the repository does not hold.
fn references(file: &File, problems: &mut Vec<String>) {
    for (head, tail) in NUMBERED {
        let reference = format!("{head}{tail}");
        for (at, found) in file.text.match_indices(&reference) {
            if file.text[at + found.len()..].starts_with(|next: char| next.is_ascii_digit()) {
                let line = line(&file.text, at);
                problems.push(format!(
                    "{}:{line}: `{reference}N` leads nowhere: name the rule, or the paper by authors and year",
                    file.path
                ));
            }
        }
    }
}

fn machine_paths(file: &File, problems: &mut Vec<String>) {
    for (head, tail) in MACHINE {
        let path = format!("{head}{tail}");
        for (at, _) in file.text.match_indices(&path) {
            // Inside of a longer path or an address it is something else.
            let before = file.text[..at].chars().next_back();
            if !before.is_some_and(|before| before.is_alphanumeric() || "._-~*}".contains(before)) {
                let line = line(&file.text, at);
                problems.push(format!("{}:{line}: `{path}…` is a path of one machine", file.path));
            }
        }
    }
}

fn lengths(repository: &Repository, problems: &mut Vec<String>) {
    let allowed = match ratchet(repository) {
        Ok(allowed) => allowed,
        Err(problem) => return problems.push(problem),
    };
    for file in repository.rust() {
        let lines = file.text.lines().count();
        let path = &file.path;
        match allowed.get(path) {
            None if lines > LINES_MAX => {
                problems
                    .push(format!("{path}: {lines} lines: part it (over {LINES_MAX} are too many to read)"));
            }
            Some(&limit) if lines > limit => {
                problems
                    .push(format!("{path}: {lines} lines, {limit} allowed by {RATCHET}: it may only shrink"));
            }
            Some(&limit) if lines < limit => {
                problems.push(format!("{path}: only {lines} lines: run `cargo xtask tidy --tighten`"));
            }
            _ => {}
        }
    }
    for path in allowed.keys().filter(|path| repository.text(path).is_none()) {
        problems.push(format!("{RATCHET}: {path} is gone: run `cargo xtask tidy --tighten`"));
    }
}

fn ratchet(repository: &Repository) -> Result<BTreeMap<String, usize>, String> {
    let text = repository.text(RATCHET).ok_or_else(|| format!("{RATCHET}: missing"))?;
    let table: toml::Table = text.parse().map_err(|error| format!("{RATCHET}: {error}"))?;
    let lines =
        table.get("lines").and_then(toml::Value::as_table).ok_or(format!("{RATCHET}: no table `lines`"))?;
    let entry = |(path, lines): (&String, &toml::Value)| {
        let lines = lines.as_integer().and_then(|lines| usize::try_from(lines).ok());
        lines.map(|lines| (path.clone(), lines)).ok_or(format!("{RATCHET}: {path}: not a number of lines"))
    };
    lines.iter().map(entry).collect()
}

/// Lowers the entries of the ratchet to the lines that the files have, and drops those that need none.
///
/// # Errors
/// If the ratchet cannot be read or written.
pub(crate) fn tighten(repository: &Repository) -> Result<(), String> {
    let head = repository.text(RATCHET).ok_or_else(|| format!("{RATCHET}: missing"))?;
    let comments = head.lines().take_while(|line| line.starts_with('#'));
    let mut text: String = comments.map(|line| format!("{line}\n")).collect();
    text.push_str("[lines]\n");
    for (path, limit) in ratchet(repository)? {
        let lines = repository.text(&path).map_or(0, |text| text.lines().count()).min(limit);
        if lines > LINES_MAX {
            text.push_str(&format!("\"{path}\" = {lines}\n"));
        }
    }
    fs::write(repository.root.join(RATCHET), text).map_err(|error| format!("{RATCHET}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(path: &str, text: &str) -> Vec<String> {
        check(&Repository::of(&[
            (path, text),
            (RATCHET, "[lines]\n\"long.rs\" = 1200\n"),
            ("long.rs", &long(1200)),
        ]))
    }

    fn long(lines: usize) -> String {
        "//! Long.\n".repeat(lines)
    }

    #[test]
    fn finds_each() {
        let mark = format!("{}{}", MARKS[0].0, MARKS[0].1);
        let machine = format!("\"{}{}x\"", MACHINE[0].0, MACHINE[0].1);
        let cases = [
            ("a.rs", "fn a() {}\n".to_owned(), "a.rs:1: opens without"),
            ("a.rs", format!("//! A.\nfn a() {{ {}!() }}\n", MACROS[0]), "a.rs:2: `todo!`"),
            ("a.rs", format!("//! A.\n// {mark}\n"), "a.rs:2: FIX"),
            ("a.sh", format!("# {mark}\n"), "a.sh:1: FIX"),
            ("a.rs", "//! A.\n#[ignore]\nfn a() {}\n".to_owned(), "a.rs:2: a test is ignored"),
            ("a.rs", "//! A.\n#[ignore = \"\"]\nfn a() {}\n".to_owned(), "a.rs:2: a test is ignored"),
            ("a.md", format!("see {machine}\n"), "a.md:1: `/wo"),
            ("a.md", format!("see {}{}1\n", NUMBERED[2].0, NUMBERED[2].1), "leads nowhere"),
            ("a.rs", long(1001), "a.rs: 1001 lines: part it"),
            (
                "engine/src/a.rs",
                "//! A.\nuse std::sync::atomic::AtomicU8;\n".to_owned(),
                "a.rs:2: `std::sync::atomic`",
            ),
        ];
        for (path, text, expected) in cases {
            let problems = problems_of(path, &text);
            assert_eq!(problems.len(), 1, "{path} {text}: {problems:?}");
            assert!(problems[0].contains(expected), "{problems:?}");
        }
    }

    #[test]
    fn passes_what_is_allowed() {
        let cases = [
            ("a.rs", "//! A.\n// a dbg!() in a comment\nconst A: &str = \"todo!()\";\n"),
            ("a.rs", "//! A.\n#[ignore = \"takes minutes; run by the nightly job\"]\nfn a() {}\n"),
            ("a.md", "https://example.org/work/x and ./work/ and frame/work/\n"),
            ("base/src/a.rs", "//! A.\nuse std::sync::atomic::AtomicU8;\n"),
            ("engine/src/a.rs", "//! A.\nuse std::sync::atomic::Ordering;\n"),
            ("engine/src/a.rs", "//! A.\n#[cfg(test)]\nmod tests { use std::sync::atomic::AtomicU8; }\n"),
        ];
        for (path, text) in cases {
            assert_eq!(problems_of(path, text), Vec::<String>::new(), "{path} {text}");
        }
    }

    #[test]
    fn the_ratchet_only_tightens() {
        for (lines, expected) in [(1201, "may only shrink"), (1199, "--tighten")] {
            let files = [(RATCHET, "[lines]\n\"long.rs\" = 1200\n"), ("long.rs", &*long(lines))];
            let problems = check(&Repository::of(&files));
            assert!(problems.len() == 1 && problems[0].contains(expected), "{problems:?}");
        }
        let gone = check(&Repository::of(&[(RATCHET, "[lines]\n\"gone.rs\" = 1200\n")]));
        assert!(gone.len() == 1 && gone[0].contains("gone.rs is gone"), "{gone:?}");
    }
}
