//! `thermocline-lab classify`: from a file and from a socket, and what it says of damage.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::{command, directory, errors, lab, results};

/// Runs the benchmark tiny, and leaves its log in `dir`.
fn leave_a_log(dir: &Path) -> PathBuf {
    let json = dir.join("bench.json");
    let data = dir.join("data");
    let paths = [&json, &data].map(|path| path.to_str().expect("a path of text"));
    let mut arguments =
        vec!["bench", "classify", "--accesses", "200k", "--rows", "5k", "--quantum-accesses", "500"];
    arguments.extend([
        "--rounds",
        "1",
        "--threads",
        "2",
        "--quiet",
        "--json",
        paths[0],
        "--data-dir",
        paths[1],
    ]);
    let output = lab(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(results(&output).starts_with("classify"), "{}", results(&output));
    let value = json_of(&json);
    assert_eq!(value["settings"]["benchmark"], "classify");
    assert_eq!(value["quanta"], 400);
    let read = value["backward_bytes_read"].as_u64().expect("a number");
    assert!(read > 0 && read <= value["log_bytes"].as_u64().expect("a number"));
    assert!(value["forward_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    let share = value["hot_share_of_accesses"].as_f64().expect("a number");
    assert!((0.5..1.0).contains(&share), "a tenth of the rows has {share} of the accesses");
    data.join("accesses.log")
}

fn json_of(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("written")).expect("JSON")
}

#[test]
fn a_log_is_classified_from_both_ends_and_damage_is_named() {
    let outer = directory();
    let log = leave_a_log(outer.path());
    let json = outer.path().join("classify.json");
    let [log_text, json_text] = [&log, &json].map(|path| path.to_str().expect("a path of text"));
    let mut hot = Vec::new();
    for algorithm in ["forward", "backward"] {
        let arguments =
            ["classify", log_text, "--rows", "500", "--algorithm", algorithm, "--json", json_text];
        let output = lab(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        assert!(results(&output).contains("500 rows"), "{}", results(&output));
        let value = json_of(&json);
        assert_eq!((&value["hot_rows"], &value["algorithm"]), (&Value::from(500), &Value::from(algorithm)));
        hot.push(value["density_min"].as_f64().expect("a number"));
    }
    assert!((hot[0] / hot[1] - 1.0).abs() < 1e-6, "{hot:?}");
    let rows = outer.path().join("rows.csv");
    let rows_text = rows.to_str().expect("a path of text");
    let output = lab(&["classify", log_text, "--rows", "500", "--json", json_text, "--out", rows_text]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let (rows, value) = (std::fs::read_to_string(&rows).expect("written"), json_of(&json));
    let mut lines = rows.lines();
    assert_eq!(lines.next(), Some("move,table,key_hash,bytes,accesses_a_quantum"));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    let count = |what: &str| rows.iter().filter(|row| row[0] == what).count();
    assert_eq!(count("stay") + count("come"), 500);
    assert_eq!(value["misplaced_cold_rows"], count("come"));
    assert_eq!(value["misplaced_hot_rows"], count("leave"));
    assert!(count("leave") > 0, "a log of hot rows only has some that do not belong there");
    let temperatures: Vec<f64> = rows[..500].iter().map(|row| row[4].parse().expect("a number")).collect();
    assert!(temperatures.is_sorted_by(|one, next| one >= next), "the hottest come first");
    assert!(rows.iter().all(|row| u64::from_str_radix(row[2], 16).is_ok()), "hashes");

    // What is written is not what is read, by whatever name, and has a file of its own.
    let before = std::fs::read(&log).expect("readable");
    let indirect = log.parent().expect("a directory").join(".").join(log.file_name().expect("a name"));
    for arguments in [
        ["--out", indirect.to_str().expect("a path of text"), "--json", json_text],
        ["--out", rows_text, "--json", log_text],
        ["--out", json_text, "--json", json_text],
    ] {
        let output = lab(&[&["classify", log_text], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{}", results(&output));
        assert!(errors(&output).contains("are one file"), "{}", errors(&output));
    }
    assert!(std::fs::read(&log).expect("readable") == before, "the log is as it was");

    // A full disk is told.
    if Path::new("/dev/full").exists() {
        let output = lab(&["classify", log_text, "--rows", "500", "--out", "/dev/full"]);
        assert_eq!(output.status.code(), Some(1), "{}", results(&output));
        assert!(errors(&output).contains("/dev/full"), "{}", errors(&output));
    }

    let output = lab(&["classify", log_text, "--budget", "112000"]);
    assert!(results(&output).contains("1,000 rows"), "{}", results(&output));

    let mut bytes = std::fs::read(&log).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&log, &bytes).expect("writable");
    let output = lab(&["classify", log_text, "--rows", "500", "--algorithm", "forward"]);
    assert_eq!(output.status.code(), Some(1), "{}", results(&output));
    assert!(results(&output).contains("DAMAGED"), "{}", results(&output));

    std::fs::write(&log, "dear diary").expect("writable");
    let output = lab(&["classify", log_text]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("no access log"), "{}", errors(&output));
}

/// Runs `classify --listen` while `send` sends to the address that it is told; what it printed.
fn received(arguments: &[&str], send: impl FnOnce(&str)) -> String {
    let temporary = directory();
    let listen = [&["classify", "--listen", "127.0.0.1:0", "--quiet"], arguments].concat();
    let mut child = command(temporary.path(), &listen)
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut said = BufReader::new(child.stderr.take().expect("it was asked for"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it says where it listens");
    send(line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")));
    let mut text = String::new();
    child.stdout.take().expect("it was asked for").read_to_string(&mut text).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{text}");
    assert_eq!(std::fs::read_dir(temporary.path()).expect("there").count(), 0, "a file was left behind");
    text
}

#[test]
fn a_log_is_received_from_another_machine() {
    let outer = directory();
    let bytes = std::fs::read(leave_a_log(outer.path())).expect("readable");
    let text = received(&["--rows", "100"], |address| {
        TcpStream::connect(address).expect("it listens").write_all(&bytes).expect("it reads");
    });
    assert!(text.contains("100 rows"), "{text}");
}

/// A database sends what its transactions access while they run.
#[test]
fn a_running_database_sends_its_log() {
    let text = received(&["--rows", "50"], |address| {
        let ycsb =
            ["bench", "ycsb", "--workload", "c", "--records", "2000", "--warm-up", "0", "--seconds", "2"];
        let output = lab(&[&ycsb[..], &["--no-calibration", "--quiet", "--access-log", address]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    });
    assert!(text.contains("50 rows"), "{text}");
    let output = lab(&["bench", "point", "--records", "10", "--access-log", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("cannot write an access log to 127.0.0.1:1"), "{}", errors(&output));
}
