//! `thermocline check`: silent about what is whole, loud about what is not.

use std::path::{Path, PathBuf};

use thermocline_bench::settings::{Benchmark, Mix};

use crate::{directory, errors, leave, results, thermocline};

/// Runs a tiny TPC-C that leaves its database in `dir`.
fn leave_a_database(dir: &Path) {
    leave(Benchmark::Tpcc { warehouses: 1, skewed_growth: false, deck: Mix::Standard }, dir, 0.5, None);
}

fn check(dir: &Path) -> std::process::Output {
    thermocline(&["check", dir.to_str().expect("a path of text")])
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() { files.extend(self::files(&path)) } else { files.push(path) }
    }
    files
}

#[test]
fn a_database_that_is_whole_passes_and_a_flipped_bit_is_found() {
    let outer = directory();
    let dir = outer.path().join("database");
    leave_a_database(&dir);
    let output = check(&dir);
    assert_eq!(output.status.code(), Some(0), "{}{}", results(&output), errors(&output));
    assert!(results(&output).contains("12 conditions hold"), "{}", results(&output));

    // In the middle of the largest file, which is full of data.
    let largest =
        files(&dir).into_iter().max_by_key(|file| file.metadata().expect("there").len()).expect("some");
    let mut bytes = std::fs::read(&largest).expect("readable");
    let middle = bytes.iter().rposition(|byte| *byte != 0).expect("not all zero") / 2;
    bytes[middle] ^= 4;
    std::fs::write(&largest, &bytes).expect("writable");
    let output = check(&dir);
    assert_eq!(output.status.code(), Some(1), "{}{}", results(&output), errors(&output));
    let said = results(&output) + &errors(&output);
    let name = largest.file_name().expect("it has one").to_str().expect("text");
    assert!(said.contains(name), "no {name} in {said}");
}

#[test]
fn a_directory_without_a_database_is_refused() {
    let outer = directory();
    std::fs::write(outer.path().join("letter.txt"), "dear").expect("writable");
    let output = check(outer.path());
    assert_eq!(output.status.code(), Some(2), "{}{}", results(&output), errors(&output));
    assert!(outer.path().join("letter.txt").exists());
    assert_eq!(files(outer.path()).len(), 1, "a check writes nothing");
}
