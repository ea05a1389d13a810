//! Rows that go over to pages of a file or of memory servers, by the options of every command that opens a database.

use std::path::Path;
use std::process::{Command, Output};

/// More rows than fit under the limit.
const ROWS: u32 = 150_000;
/// Rows of a statement.
const STEP: u32 = 10_000;
const LIMIT: &str = "40MiB";

fn thermocline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thermocline")).args(arguments).output().expect("the binary runs")
}

fn said(arguments: &[&str]) -> String {
    let output = thermocline(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("it is text")
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("the path is a text")
}

#[test]
fn rows_go_over_to_pages_with_each_pager_and_are_there_without_one() {
    let mut fill = "create table t (id int primary key, s text);".to_owned();
    // A statement keeps its rows in memory until it ends.
    for first in (1..=ROWS).step_by(STEP as usize) {
        let last = first + STEP - 1;
        fill +=
            &format!("insert into t select i, repeat('x', 200) from generate_series({first}, {last}) g (i);");
    }
    let count = "select count(*) || ' rows, ' || sum(id) || ', ' || sum(length(s)) as found from t";
    let expected = format!("{ROWS} rows, {}, {}", u64::from(ROWS) * u64::from(ROWS + 1) / 2, ROWS * 200);
    for pager in [
        &["own"][..],
        &["own", "--remote", "spawn:2"],
        &["os"],
        &["remote"],
        &["remote", "--remote-copies", "1"],
    ] {
        let dir = tempfile::tempdir().expect("there is room for a directory");
        let data = dir.path().join("data");
        let with =
            ["sql", shown(&data), "--memory-limit", LIMIT, "--tiering", "paged", "--create", "--pager"];
        let with = [&with[..], pager, &["-c"]].concat();
        said(&[&with[..], &[&fill, "-c", count]].concat());
        // Those that open it again have the same rows, with these options and without them.
        assert!(said(&[&with[..], &[count]].concat()).contains(&expected), "{pager:?}");
        assert!(said(&["sql", shown(&data), "-c", count]).contains(&expected), "{pager:?}");
        assert!(thermocline(&["check", shown(&data)]).status.success(), "{pager:?}");
    }
}

#[test]
fn options_of_servers_that_mean_nothing_are_refused() {
    let dir = tempfile::tempdir().expect("there is room for a directory");
    let data = dir.path().join("data");
    let others = [
        (&["--remote-bytes", "1GiB"][..], "--remote-bytes says nothing without --remote"),
        (&["--pager", "own", "--remote-seal"], "--remote-seal says nothing without --remote"),
        (&["--remote", "spawn:1", "--remote-copies", "2"], "needs --pager remote"),
        (&["--pager", "os", "--remote", "spawn:1", "--remote-copies", "1"], "needs --pager remote"),
        (&["--pager", "remote", "--remote-plain"], "--remote-seal"),
        (
            &["--pager", "remote", "--remote-key", "/nowhere/at/all", "--remote", "127.0.0.1:1"],
            "/nowhere/at/all",
        ),
        (&["--pager", "tape"], "own, os, remote"),
        (&["--tiering", "lukewarm"], "lukewarm"),
    ];
    let commands =
        [&["sql", "--create", "-c", "select 1", shown(&data)][..], &["serve", "--data-dir", shown(&data)]];
    let refused = |command: &[&str], options: &[&str], why: &str| {
        let output = thermocline(&[command, options].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{command:?} {options:?}: {said}");
    };
    for (options, why) in others {
        commands.iter().for_each(|command| refused(command, options, why));
    }
    // A server that does not answer is waited for.
    let absent = ["--pager", "remote", "--remote", "127.0.0.1:1"];
    refused(commands[0], &absent, "127.0.0.1:1");
    refused(commands[1], &absent[2..], "127.0.0.1:1");
}
