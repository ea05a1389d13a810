//! Chores of the repository: `cargo xtask <chore>`.
//!
//! - `tidy [--tighten]` checks the habits of the house (see [`tidy`]); `--tighten` lowers the ratchets to what the
//!   files have become. `cargo test -p xtask` runs the same checks.
//! - `docs-commands [--run] [--seconds n]` lists or runs the commands of README and docs (see [`commands`]).
//! - `docs-sql` writes the pages of `docs/sql` from the registries of crate `sql` (see [`mod@reference`]).
//!
//! Nothing in here is part of the product, and the product depends on nothing in here.

mod arrows;
mod commands;
mod docs;
mod lexer;
mod markdown;
mod reference;
mod repository;
mod rules;
mod sources;
mod tidy;

use repository::Repository;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy [--tighten]
       cargo xtask docs-commands [--run] [--seconds <n>]
       cargo xtask docs-sql";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let repository = Repository::here();
    let outcome = match words.as_slice() {
        ["tidy"] => tidy::report(&repository),
        ["tidy", "--tighten"] => sources::tighten(&repository).and_then(|()| tidy::report(&repository)),
        ["docs-sql"] => reference::write(&repository),
        ["docs-commands"] => commands::list(&repository),
        ["docs-commands", "--run"] => commands::run(&repository, 2),
        ["docs-commands", "--run", "--seconds", n] => match n.parse() {
            Ok(seconds) => commands::run(&repository, seconds),
            Err(_) => Err(format!("`--seconds {n}` is not a number of seconds\n{USAGE}")),
        },
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
