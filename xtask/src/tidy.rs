//! `cargo xtask tidy`: the habits of the house that a program can check.
//!
//! Each check takes the repository and returns what is wrong, one message a place, as `path:line: what, and what to
//! do`. The checks:
//!
//! | module | checks |
//! |---|---|
//! | [`sources`] | `//!` on top, no unfinished work, reasons of ignored tests, lengths, paths of one machine |
//! | [`arrows`] | dependencies between crates as ARCHITECTURE.md draws them |
//! | [`floors`] | each module has a floor in ARCHITECTURE.md |
//! | [`ratchet`] | counts that may only fall: imports against the floors, circles, open fields, riddles in comments, unsafe blocks |
//! | [`parts`] | the structs whose fields are counted stand where they are looked for |
//! | [`docs`] | links, reachable pages, the README's example, dependencies that are explained |
//! | [`commands`] | commands in the docs are marked as such and known |
//! | [`rules`] | each rule that a test can switch off is in the table of the tests that miss it |

use crate::repository::Repository;
use crate::{arrows, commands, docs, floors, parts, ratchet, rules, sources};

/// Everything that is wrong.
fn problems(repository: &Repository) -> Vec<String> {
    let checks = [
        sources::check,
        arrows::check,
        floors::check,
        parts::check,
        docs::check,
        commands::check,
        rules::check,
        ratchet::check,
    ];
    checks.iter().flat_map(|check| check(repository)).collect()
}

/// Prints what is wrong.
///
/// # Errors
/// If anything is.
pub(crate) fn report(repository: &Repository) -> Result<(), String> {
    let problems = problems(repository);
    if problems.is_empty() {
        println!("tidy: {} files, nothing to mend", repository.files.len());
        return Ok(());
    }
    for problem in &problems {
        println!("{problem}");
    }
    Err(format!("tidy: {} to mend", problems.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let problems = problems(&Repository::here());
        assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    }
}
