//! Wrong arguments: exit code 2, one clear line that names the culprit, and what would be right.

use crate::{errors, thermocline};

fn refused(arguments: &[&str], said: &[&str]) {
    let output = thermocline(arguments);
    let errors = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed a result");
    let first = errors.lines().next().unwrap_or_default();
    for text in said {
        assert!(first.contains(text), "{arguments:?}: no {text:?} in {first:?}");
    }
}

#[test]
fn values_that_cannot_be() {
    refused(&["demo", "--warehouses", "0"], &["--warehouses", "at least 1"]);
    refused(&["demo", "--seconds", "-1"], &["--seconds"]);
    refused(&["serve", "--memory-limit", "lots"], &["--memory-limit", "lots", "1GiB"]);
    refused(&["serve", "--durability", "maybe"], &["--durability"]);
    refused(&["memory-server", "--memory", "64MiB"], &["--listen HOST:PORT or --socket PATH"]);
    refused(&["tpch"], &["tpch"]);
}

#[test]
fn directories_and_files_that_cannot_be_written() {
    let outer = tempfile::tempdir().expect("a temporary directory");
    let file = outer.path().join("file");
    std::fs::write(&file, "text").expect("writable");
    let below = file.join("below");
    let below = below.to_str().expect("a temporary path is text");
    let outer = outer.path().to_str().expect("a temporary path is text");
    let json = format!("{outer}/not/there/result.json");
    refused(&["demo", "--data-dir", below], &["data directory", below, "--data-dir"]);
    refused(&["demo", "--data-dir", outer], &["is not empty"]);
    refused(&["demo", "--json", &json], &[&json]);
    refused(&["demo", "--plot", outer], &[outer, "is a directory"]);
    refused(&["check", below], &[below, "is no directory"]);
}

#[test]
fn commands_that_have_moved_say_where() {
    let to = "cargo run --release -p thermocline-lab -- ";
    for arguments in [
        &["bench", "tpcc", "--warehouses", "4"][..],
        &["bench", "--help"],
        &["repro", "table1"],
        &["simulate", "--trace", "model:ods"],
        &["classify", "access.log"],
    ] {
        refused(arguments, &["thermocline-lab", &format!("{to}{}", arguments.join(" "))]);
    }
}

#[test]
fn help_and_version_are_answers() {
    for arguments in [&["--help"][..], &["--version"], &["serve", "--help"], &["help", "check"]] {
        let output = thermocline(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", errors(&output));
        assert!(!output.stdout.is_empty());
    }
    let output = thermocline(&["--help"]);
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names: Vec<_> = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let expected = [
        "demo",
        "sql",
        "serve",
        "passwd",
        "tables",
        "dump",
        "load",
        "backup",
        "restore",
        "check",
        "inspect",
        "memory-server",
        "help",
    ];
    assert_eq!(names, expected, "{help}");
}
