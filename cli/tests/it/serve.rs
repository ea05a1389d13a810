//! The binary: what it asks of its files and addresses before it serves.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_thermocline-server"))
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
    refused(&["--data-dir", shown(&data), "--password-file", shown(&file)], "chmod 600");
    let output = run(&["--write-password-file", shown(&file)], "secret\n");
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&file).expect("it is read");
    assert!(text.starts_with("postgres:SCRAM-SHA-256$4096:") && !text.contains("secret"), "{text}");
    let mode = std::fs::metadata(&file).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(run(&["--write-password-file", shown(&file)], "\n").status.code(), Some(2));
    refused(&["--data-dir", shown(&data), "--password-file", "/nowhere/at/all"], "cannot read");
    assert!(!data.exists(), "nothing was made");
}

#[test]
fn addresses_that_others_reach_have_to_be_meant() {
    let dir = tempfile::tempdir().expect("there is room for a directory");
    let data = dir.path().join("data");
    refused(&["--data-dir", shown(&data), "--metrics", "0.0.0.0:0"], "--metrics-for-others");
    refused(&["--data-dir", shown(&data), "--listen", "0.0.0.0:0"], "--password-file");
    refused(&["--data-dir", shown(&data), "--metrics-for-others"], "--metrics");
}
