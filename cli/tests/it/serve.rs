//! `thermocline serve` and `thermocline passwd`: what they ask of files and addresses, and how a server ends.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_thermocline"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("it has an input");
    stdin.write_all(input.as_bytes()).expect("it is written");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn refused(arguments: &[&str], why: &str) {
    let output = run(arguments, "");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(why), "{arguments:?}: {said}");
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("the path is a text")
}

#[test]
fn a_password_file_is_its_owners_alone_and_says_no_password() {
    let dir = tempfile::tempdir().expect("there is room for a directory");
    let (file, data) = (dir.path().join("passwords"), dir.path().join("data"));
    // What stood there, and was open to others, is replaced.
    std::fs::write(&file, "postgres:old").expect("it is written");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("its mode is set");
    refused(&["serve", "--data-dir", shown(&data), "--password-file", shown(&file)], "chmod 600");
    let output = run(&["passwd", shown(&file)], "secret\n");
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&file).expect("it is read");
    assert!(text.starts_with("postgres:SCRAM-SHA-256$4096:") && !text.contains("secret"), "{text}");
    let mode = std::fs::metadata(&file).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(run(&["passwd", shown(&file)], "\n").status.code(), Some(2));
    refused(&["serve", "--data-dir", shown(&data), "--password-file", "/nowhere/at/all"], "cannot read");
    assert!(!data.exists(), "nothing was made");
}

#[test]
fn addresses_that_others_reach_have_to_be_meant() {
    let dir = tempfile::tempdir().expect("there is room for a directory");
    let data = dir.path().join("data");
    refused(&["serve", "--data-dir", shown(&data), "--metrics", "0.0.0.0:0"], "--metrics-for-others");
    refused(&["serve", "--data-dir", shown(&data), "--listen", "0.0.0.0:0"], "--password-file");
    refused(&["serve", "--data-dir", shown(&data), "--metrics-for-others"], "--metrics");
}

#[test]
fn a_server_ends_when_it_is_told_and_its_rows_are_there_again() {
    let dir = tempfile::tempdir().expect("there is room for a directory");
    let data = dir.path().join("data");
    let mut child = Command::new(env!("CARGO_BIN_EXE_thermocline"))
        .args(["serve", "--data-dir", shown(&data), "--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut said = BufReader::new(child.stderr.take().expect("it was asked for")).lines();
    let listening = said.by_ref().map(|line| line.expect("text")).find(|line| line.contains("listening"));
    assert!(listening.is_some_and(|line| line.contains("psql -h 127.0.0.1 -p ")), "it says where it listens");
    let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill is there");
    assert!(told.success());
    assert!(said.any(|line| line.expect("text").contains("ending")), "it says that it ends");
    assert_eq!(child.wait().expect("it was ours").code(), Some(0));
    assert!(run(&["check", shown(&data)], "").status.success());
}
