//! Chores of the repository: `cargo xtask <chore>`.
//!
//! - `tidy [--tighten]` checks the habits of the house (see [`tidy`]); `--tighten` lowers the numbers of the ratchet to what
//!   is left (see [`ratchet`]). `cargo test -p xtask` runs the same checks.
//! - `places <table> [folder]` lists what the ratchet counts.
//! - `prose <revision>` proves that since a commit only comments have changed (see [`prose`]).
//! - `docs-commands [--run] [--seconds n] [--built]` lists or runs the commands of README and docs (see [`commands`]).
//! - `docs-sql` writes the pages of `docs/use/sql` from the registries of crate `sql` (see [`mod@reference`]).
//!
//! Nothing in here is part of the product, and the product depends on nothing in here.

mod arrows;
mod commands;
mod docs;
mod floors;
mod lexer;
mod markdown;
mod measure;
mod modules;
mod parts;
mod prose;
mod ratchet;
mod reference;
mod repository;
mod rules;
mod sources;
mod tidy;

use repository::Repository;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy [--tighten]
       cargo xtask places <table> [<folder>]
       cargo xtask prose <revision>
       cargo xtask docs-commands [--run] [--seconds <n>] [--built]
       cargo xtask docs-sql";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let repository = Repository::here();
    let outcome = match words.as_slice() {
        ["tidy"] => tidy::report(&repository),
        ["tidy", "--tighten"] => {
            ratchet::tighten(&repository).and_then(|()| tidy::report(&Repository::here()))
        }
        ["places", name] => ratchet::list(&repository, name, None),
        ["places", name, key] => ratchet::list(&repository, name, Some(key)),
        ["prose", revision] => prose::prove(&repository, revision),
        ["docs-sql"] => reference::write(&repository),
        ["docs-commands"] => commands::list(&repository),
        ["docs-commands", "--run"] => commands::run(&repository, 2, false),
        ["docs-commands", "--run", "--seconds", n, rest @ ..] if matches!(rest, [] | ["--built"]) => {
            match n.parse() {
                Ok(seconds) => commands::run(&repository, seconds, !rest.is_empty()),
                Err(_) => Err(format!("`--seconds {n}` is not a number of seconds\n{USAGE}")),
            }
        }
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
