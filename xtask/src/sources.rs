//! The rules that every source file keeps.
//!
//! - A Rust file opens with `//!`.
//! - No unfinished work: no `todo!`, `dbg!`, `unimplemented!`, and none of the words that mark some.
//! - `#[ignore]` gives a reason.
//! - At most [`LINES_MAX`] lines.
//! - No path of one machine in any text file.
//! - A rule that stands is asked for by `on(…)`, not by `!off(…)`.
//! - The engine's atomics and locks are those of `base::sync`, or the model checker would not see them.

use crate::lexer::{line, without_tests, words};
use crate::measure::{Measure, Place};
use crate::repository::{File, Repository};

const LINES_MAX: usize = 1000;

/// Macros that mark unfinished work, without their `!`.
const MACROS: [&str; 3] = ["todo", "dbg", "unimplemented"];
/// Words that mark unfinished work, in halves, so that this file may stand in the repository.
const MARKS: [(&str, &str); 3] = [("FIX", "ME"), ("XX", "X"), ("TO", "DO")];
/// Roots of paths that exist on one machine only, in halves as well.
const MACHINE: [(&str, &str); 4] = [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/"), ("/Us", "ers/")];
/// Words in front of a number, in halves as well.
const NUMBERED: [(&str, &str); 4] =
    [("inter", "leaving "), ("Inter", "leaving "), ("se", "ed 00"), ("architec", "ture §")];
/// Types that the engine takes from `base::sync` and not from `std`.
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
        negated(file, &mut problems);
        length(file, &mut problems);
    }
    for file in &repository.files {
        marks(file, &mut problems);
        machine_paths(file, &mut problems);
        references(file, &mut problems);
    }
    problems
}

fn opening(file: &File, problems: &mut Vec<String>) {
    if !file.text.starts_with("//! ") {
        problems.push(format!("{}:1: opens without `//!`: say what the file is for", file.path));
    }
}

fn unfinished_macros(file: &File, problems: &mut Vec<String>) {
    let code = file.code();
    for name in MACROS {
        for at in words(code, name).filter(|at| code[at + name.len()..].starts_with('!')) {
            problems.push(format!("{}:{}: `{name}!`: finish it", file.path, line(code, at)));
        }
    }
}

fn ignored(file: &File, problems: &mut Vec<String>) {
    let code = file.code();
    for (at, found) in code.match_indices("#[ignore") {
        let reason = file.text[at + found.len()..].trim_start().strip_prefix('=').map(str::trim_start);
        if !reason.is_some_and(|reason| reason.starts_with('"') && !reason.starts_with("\"\"")) {
            let line = line(code, at);
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
    let code = without_tests(file.code());
    for path in BEHIND_FACADE {
        // An `Ordering` is the same type wherever it is taken from.
        for at in words(&code, path).filter(|at| !code[at + path.len()..].starts_with("::Ordering")) {
            let line = line(&code, at);
            problems.push(format!("{}:{line}: `{path}`: take it from `thermocline_base::sync`", file.path));
        }
    }
}

/// A rule that is not switched off is asked for by `on`: a `!` before `off` is easily missed.
fn negated(file: &File, problems: &mut Vec<String>) {
    const OWN: &str = "base/src/mutation.rs";
    let code = file.code();
    for at in words(code, "off").filter(|at| code[at + "off".len()..].starts_with('(') && file.path != OWN) {
        let path =
            code[..at].trim_end_matches(|part: char| part == ':' || part == '_' || part.is_alphanumeric());
        if path.ends_with('!') {
            problems.push(format!("{}:{}: `!off(…)`: say `on(…)`", file.path, line(code, at)));
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

fn length(file: &File, problems: &mut Vec<String>) {
    let lines = file.text.lines().count();
    if lines > LINES_MAX {
        problems
            .push(format!("{}: {lines} lines: part it (over {LINES_MAX} are too many to read)", file.path));
    }
}

/// Counts the blocks of unsafe code, those of tests included.
pub(crate) fn unsafe_blocks(repository: &Repository) -> Measure {
    let mut places = Vec::new();
    for file in repository.rust() {
        let code = file.code();
        for at in words(code, "unsafe").filter(|at| code[at + "unsafe".len()..].trim_start().starts_with('{'))
        {
            places.push(Place {
                path: file.path.clone(),
                line: line(code, at),
                what: "an unsafe block".to_owned(),
            });
        }
    }
    Measure {
        name: "unsafe",
        is: "blocks of unsafe code",
        advice: "use a safe wrapper that is there, or take another block away",
        places,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(path: &str, text: &str) -> Vec<String> {
        check(&Repository::of(&[(path, text)]))
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
            (
                "a.rs",
                "//! A.\nfn a() { if b && !mutation::off(Rule::C) {} }\n".to_owned(),
                "a.rs:2: `!off(…)`",
            ),
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
            ("a.rs", "//! A.\nfn a() { if b || mutation::off(Rule::C) || on(Rule::D) {} }\n"),
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
    fn unsafe_blocks_are_counted() {
        let text = "//! A. unsafe {}\nunsafe fn a() { unsafe { b() } }\nunsafe impl C {}\nfn d() {\n    unsafe\n    {}\n}\n";
        let places = unsafe_blocks(&Repository::of(&[("a.rs", text)])).places;
        assert_eq!(places.iter().map(|place| place.line).collect::<Vec<_>>(), [2, 5]);
    }
}
