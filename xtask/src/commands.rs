//! The commands of README, CONTRIBUTING and `docs/`: each is run by a suite, or says why not.
//!
//! A block whose fence says `sh` holds one command a line and is run, from the root of the repository, by
//! `cargo xtask docs-commands --run`; what `.ci/run` has as a step of its own is left to it. A block that cannot be run
//! there says `sh not-run: reason`. Other fences (`text`, `console`, …) hold no commands.
//!
//! Shortened for the run: the number behind `--seconds` becomes the one that is asked for; with `--built`, programs are those that
//! `cargo test --workspace` has built, and none is built anew. A command that leaves a file behind in the repository fails.

use crate::markdown::blocks;
use crate::repository::Repository;
use std::process::Command;
use std::time::Instant;

const CI: &str = ".ci/run";

/// A command of the documentation.
struct Documented<'a> {
    path: &'a str,
    line: usize,
    text: &'a str,
    /// Is it a step of `.ci/run`?
    in_ci: bool,
}

/// Checks that each block of commands is marked as one.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    let mut problems = Vec::new();
    for file in repository.markdown() {
        for block in blocks(&file.text) {
            let (word, rest) = block.info.split_once(' ').unwrap_or((block.info, ""));
            let reason = rest.strip_prefix("not-run:").is_some_and(|reason| !reason.trim().is_empty());
            let problem = match word {
                "" => "a fence says what it holds: `sh`, `rust`, `text`, …",
                "bash" | "shell" | "zsh" => "commands stand in a fence that says `sh`",
                "sh" if !(rest.is_empty() || reason) => {
                    "a fence says `sh` or `sh not-run: reason`, nothing else"
                }
                "sh" if block.lines.iter().any(|line| line.ends_with('\\')) => "a command stands on one line",
                "sh" if rest.is_empty()
                    && block.lines.iter().any(|line| line.trim().starts_with("thermocline")) =>
                {
                    "a fresh clone has no `thermocline` to run: `cargo run --release -- …`"
                }
                _ => continue,
            };
            problems.push(format!("{}:{}: {problem}", file.path, block.line));
        }
    }
    problems
}

fn documented(repository: &Repository) -> Vec<Documented<'_>> {
    let ci = repository.text(CI).unwrap_or_default();
    let mut found = Vec::new();
    for file in repository.markdown() {
        for block in blocks(&file.text).into_iter().filter(|block| block.info == "sh") {
            for (at, text) in block.lines.into_iter().enumerate() {
                let text = text.trim();
                if !text.is_empty() && !text.starts_with('#') {
                    let in_ci = ci.lines().any(|line| line.ends_with(text));
                    found.push(Documented { path: &file.path, line: block.line + 1 + at, text, in_ci });
                }
            }
        }
    }
    found
}

/// `command` with the number behind `--seconds` replaced.
fn shortened(command: &str, seconds: u32) -> String {
    let mut words: Vec<String> = command.split(' ').map(str::to_owned).collect();
    for at in 1..words.len() {
        if words[at - 1] == "--seconds" {
            words[at] = seconds.to_string();
        }
    }
    words.join(" ")
}

/// `command` with the programs that `cargo test --workspace` has built.
fn with_built_programs(command: &str) -> String {
    let built = "\"${CARGO_TARGET_DIR:-target}\"/debug/thermocline";
    let command = command.replace("cargo run --release -p thermocline-lab --", &format!("{built}-lab"));
    command.replace("cargo run --release --", built)
}

/// Prints the commands, each with the suite that runs it.
///
/// # Errors
/// Never.
pub(crate) fn list(repository: &Repository) -> Result<(), String> {
    for command in documented(repository) {
        let by = if command.in_ci { "step of .ci/run" } else { "docs-commands" };
        println!("{}:{}: {} [{by}]", command.path, command.line, command.text);
    }
    Ok(())
}

/// Runs those that `.ci/run` does not have as steps.
///
/// # Errors
/// If one fails or leaves files behind.
pub(crate) fn run(repository: &Repository, seconds: u32, built: bool) -> Result<(), String> {
    let before = state(repository)?;
    let mut done: Vec<String> = Vec::new();
    for command in documented(repository).into_iter().filter(|command| !command.in_ci) {
        let text = shortened(command.text, seconds);
        let text = if built { with_built_programs(&text) } else { text };
        if done.contains(&text) {
            continue;
        }
        println!("$ {text}    # {}:{}", command.path, command.line);
        #[allow(clippy::disallowed_methods, reason = "chores use nothing of the product")]
        let began = Instant::now();
        let status = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &text])
            .current_dir(&repository.root)
            .status()
            .map_err(|error| format!("bash: {error}"))?;
        let place = format!("{}:{}: `{text}`", command.path, command.line);
        if !status.success() {
            return Err(format!("{place} failed: {status}"));
        }
        if state(repository)? != before {
            return Err(format!("{place} left files behind or changed some: see `git status`"));
        }
        println!("# {:.1} s", began.elapsed().as_secs_f64());
        done.push(text);
    }
    println!("docs-commands: {} run", done.len());
    Ok(())
}

fn state(repository: &Repository) -> Result<Vec<u8>, String> {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "status", "--porcelain", "-z"])
        .current_dir(&repository.root)
        .output()
        .map_err(|error| format!("git: {error}"))?;
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_marked() {
        let cases = [
            ("```sh\ncargo a\n```\n", None),
            ("```sh not-run: needs a server\ncargo a\n```\n", None),
            ("```text\ncargo a\n```\n", None),
            ("```\ncargo a\n```\n", Some("says what it holds")),
            ("```sh not-run:\ncargo a\n```\n", Some("nothing else")),
            ("```sh quickly\ncargo a\n```\n", Some("nothing else")),
            ("```bash\ncargo a\n```\n", Some("says `sh`")),
            ("```sh\ncargo a \\\n  b\n```\n", Some("on one line")),
            ("```sh\nthermocline demo\n```\n", Some("no `thermocline` to run")),
            ("```sh not-run: needs a server\nthermocline demo\n```\n", None),
        ];
        for (text, expected) in cases {
            let problems = check(&Repository::of(&[("a.md", text)]));
            match expected {
                None => assert_eq!(problems, Vec::<String>::new(), "{text}"),
                Some(expected) => {
                    assert!(problems.len() == 1 && problems[0].contains(expected), "{text}: {problems:?}");
                }
            }
        }
    }

    #[test]
    fn commands_are_found_shortened_and_left_to_ci() {
        let text = "```sh\n# a comment\ncargo run -- --seconds 20 --x\ncargo test\n```\n\n```sh not-run: x\nrm a\n```\n";
        let repository = Repository::of(&[("a.md", text), (CI, "step tests cargo test\n")]);
        let found: Vec<_> = documented(&repository).iter().map(|it| (it.line, it.text, it.in_ci)).collect();
        assert_eq!(found, [(3, "cargo run -- --seconds 20 --x", false), (4, "cargo test", true)]);
        assert_eq!(shortened(found[0].1, 2), "cargo run -- --seconds 2 --x");
        let built =
            |command| with_built_programs(command).replace("\"${CARGO_TARGET_DIR:-target}\"", "target");
        assert_eq!(built("cargo run --release -- a"), "target/debug/thermocline a");
        assert_eq!(built("cargo run --release -p thermocline-lab -- b"), "target/debug/thermocline-lab b");
    }
}
