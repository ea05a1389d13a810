//! Wrong arguments: exit code 2, one clear line that names the culprit, and what would be right.

use crate::{errors, lab};

fn refused(arguments: &[&str], said: &[&str]) {
    let output = lab(arguments);
    let errors = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed a result");
    let first = errors.lines().next().unwrap_or_default();
    for text in said {
        assert!(first.contains(text), "{arguments:?}: no {text:?} in {first:?}");
    }
}

#[test]
fn numbers_that_cannot_be() {
    refused(&["bench", "tpcc", "--warehouses", "0"], &["--warehouses", "at least 1"]);
    refused(&["bench", "ycsb", "--records", "none"], &["--records", "no whole number"]);
    refused(&["bench", "ycsb", "--theta", "-1"], &["--theta", "0 (uniform)"]);
    refused(
        &["bench", "ycsb", "--shift", "20", "--seconds", "20", "--no-calibration"],
        &["--shift", "not before the end"],
    );
    refused(&["bench", "ycsb", "--read-percent", "101"], &["--read-percent", "from 0 to 100"]);
    refused(&["bench", "point", "--threads", "0"], &["--threads", "at least 1"]);
    refused(&["bench", "point", "--seconds", "0"], &["--seconds", "more than 0"]);
    refused(&["bench", "point", "--seconds", "-1"], &["--seconds"]);
    refused(&["bench", "delete", "--percent", "120"], &["--percent", "from 0 to 100"]);
}

#[test]
fn sizes_that_are_none() {
    refused(&["bench", "tpcc", "--memory-limit", "lots"], &["--memory-limit", "lots", "1GiB"]);
    refused(&["bench", "tpcc", "--memory-limit", "0"], &["--memory-limit", "more than 0"]);
}

#[test]
fn names_that_are_none() {
    refused(&["bench", "ycsb", "--workload", "g"], &["--workload", "'g'"]);
    refused(&["bench", "tpcc", "--durability", "maybe"], &["--durability", "'maybe'"]);
    refused(&["bench", "tpcc", "--isolation", "none"], &["--isolation", "'none'"]);
    refused(&["bench", "tpch"], &["tpch"]);
    let ycsb = ["bench", "ycsb", "--no-calibration", "--quiet"];
    let with = |more: &[&'static str]| [&ycsb[..], more].concat();
    refused(&with(&["--profile", "floppy"]), &["--profile", "network-volume"]);
    refused(&with(&["--ssd", "cache"]), &["--ssd-size"]);
    refused(
        &with(&["--ssd", "cache", "--ssd-size", "1MiB", "--ssd-policy", "best"]),
        &["--ssd-policy", "tac"],
    );
    refused(&["bench", "ssd", "--ssd-size", "0%"], &["--ssd-size"]);
}

#[test]
fn options_that_exclude_each_other() {
    refused(&["bench", "ycsb", "--workload", "a", "--read-percent", "50"], &["cannot be used with"]);
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
    refused(&["bench", "point", "--data-dir", below], &["data directory", below, "--data-dir"]);
    refused(&["bench", "point", "--data-dir", outer], &["is not empty"]);
    refused(&["bench", "point", "--json", &json], &[&json]);
    refused(&["bench", "point", "--plot", outer], &[outer, "is a directory"]);
}

#[test]
fn help_and_version_are_answers() {
    for arguments in [&["--help"][..], &["--version"], &["bench", "tpcc", "--help"], &["help", "repro"]] {
        let output = lab(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", errors(&output));
        assert!(!output.stdout.is_empty());
    }
}
