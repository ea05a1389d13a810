//! Every benchmark, tiny: it runs, its result has everything in it, and nothing is left behind.

use std::process::Stdio;

use serde_json::Value;

use crate::{command, directory, errors, lab, results};

/// Runs a benchmark with `--json`, checks what all results have in common, and returns the result.
fn result(benchmark: &str, arguments: &[&str]) -> Value {
    let outer = directory();
    let json = outer.path().join("result.json");
    let mut all = vec!["bench", benchmark, "--quiet", "--json", json.to_str().expect("a path of text")];
    all.extend(arguments);
    let output = lab(&all);
    assert_eq!(output.status.code(), Some(0), "{all:?}: {}", errors(&output));
    assert!(
        errors(&output).is_empty() || errors(&output).starts_with("note:"),
        "not quiet: {}",
        errors(&output)
    );
    assert!(results(&output).starts_with(benchmark), "{}", results(&output));
    let text = std::fs::read_to_string(&json).expect("the result was written");
    let value: Value = serde_json::from_str(&text).expect("the result is JSON");
    assert_eq!(value["settings"]["benchmark"], benchmark);
    for name in ["cpu", "cores", "kernel"] {
        assert!(!value["machine"][name].is_null(), "machine.{name} is missing");
    }
    for name in ["threads", "seed", "isolation", "durability", "data_dir"] {
        assert!(!value["settings"][name].is_null(), "settings.{name} is missing");
    }
    value
}

/// The result of a benchmark that counts transactions.
pub(crate) fn throughput(benchmark: &str, arguments: &[&str]) -> Value {
    let mut all = vec!["--threads", "2", "--in-flight", "8", "--warm-up", "0.1"];
    all.extend(arguments);
    let value = result(benchmark, &all);
    assert!(value["throughput_tps"].as_f64().is_some_and(|tps| tps > 0.0), "{value}");
    let latency = &value["latency_us"];
    let percentiles: Vec<f64> = ["p50", "p95", "p99", "p999", "max"]
        .iter()
        .map(|name| latency[name].as_f64().unwrap_or_else(|| panic!("latency_us.{name} is missing")))
        .collect();
    assert!(percentiles[0] > 0.0 && percentiles.is_sorted(), "{percentiles:?}");
    let (commits, seconds) =
        (value["commits"].as_f64().expect("a number"), value["seconds"].as_f64().expect("one"));
    assert!((value["throughput_tps"].as_f64().expect("a number") - commits / seconds).abs() < 1.0);
    let by_type = value["by_type"].as_object().expect("an object");
    let sum: f64 = by_type.values().map(|kind| kind["commits"].as_f64().expect("a number")).sum();
    assert_eq!(sum, commits);
    assert!(value["aborts"].is_object() && value["log_bytes"].is_u64() && value["checkpoints"].is_u64());
    let memory = value["memory_bytes"].as_object().expect("an object");
    assert!(memory.values().any(|bytes| bytes.as_u64().is_some_and(|bytes| bytes > 0)), "{memory:?}");
    assert!(value["rss_bytes_max"].as_u64().is_some_and(|bytes| bytes > 1 << 20));
    value
}

#[test]
fn ycsb_runs_every_workload() {
    for workload in ["a", "b", "c", "d", "e", "F"] {
        let value = throughput(
            "ycsb",
            &["--workload", workload, "--records", "2000", "--seconds", "0.3", "--no-calibration"],
        );
        assert_eq!(value["settings"]["workload"], workload.to_ascii_lowercase());
        assert!(value["calibration"].is_null());
        assert_eq!(value["load_rows"], 2000);
    }
}

#[test]
fn ycsb_tells_how_throughput_comes_back() {
    let options =
        ["--records", "2000", "--seconds", "3", "--shift", "1", "--shift-every", "1.5", "--restart"];
    let value = throughput("ycsb", &[&options[..], &["--no-calibration"]].concat());
    let disturbed = value["disturbed"].as_array().expect("a list");
    let whats: Vec<_> = disturbed.iter().map(|of| of["what"].as_str()).collect();
    assert_eq!(whats, [Some("shift"), Some("shift"), Some("restart")]);
    for of in disturbed {
        let (before, least) = (of["before_tps"].as_f64(), of["least_tps"].as_f64());
        assert!(before > Some(0.0) && least <= before, "{of}");
    }
    let levels = value["levels"].as_array().expect("a list");
    assert!(levels.len() >= 3, "one a second: {levels:?}");
    assert!(levels.iter().all(|level| level["memory_bytes"].as_u64() > Some(100_000)), "{levels:?}");
}

#[test]
fn ycsb_takes_a_share_of_reads_and_a_held_snapshot() {
    let value = throughput(
        "ycsb",
        &[
            "--read-percent",
            "75",
            "--theta",
            "0",
            "--fields",
            "2",
            "--field-bytes",
            "20",
            "--records",
            "2k",
            "--seconds",
            "0.3",
            "--hold-snapshot",
            "--isolation",
            "read-committed",
            "--durability",
            "async",
            "--no-calibration",
        ],
    );
    assert_eq!(value["settings"]["read_percent"], 75);
    assert_eq!(value["settings"]["hold_snapshot"], true);
    assert_eq!(value["settings"]["isolation"], "read-committed");
    assert!(value["log_bytes"].as_u64().is_some_and(|bytes| bytes > 0));
}

#[test]
fn point_reads_after_a_calibration() {
    let value = throughput("point", &["--records", "5000", "--seconds", "0.3"]);
    let calibration = &value["calibration"];
    for name in ["dram_random_read_ns", "device_reads_per_s_depth64", "fdatasync_per_s"] {
        assert!(
            calibration[name].as_f64().is_some_and(|found| found > 0.0),
            "calibration.{name}: {calibration}"
        );
    }
    // The calibration's own memory is not the database's.
    assert!(
        value["rss_bytes_max"].as_u64().is_some_and(|bytes| bytes < 800 << 20),
        "{}",
        value["rss_bytes_max"]
    );
}

#[test]
fn tpcc_runs_all_kinds_and_stays_consistent() {
    let outer = directory();
    let plot = outer.path().join("plot.svg");
    let value = throughput(
        "tpcc",
        &[
            "--warehouses",
            "1",
            "--seconds",
            "1",
            "--no-calibration",
            "--plot",
            plot.to_str().expect("a path of text"),
        ],
    );
    for kind in ["new-order", "payment", "order-status", "delivery", "stock-level"] {
        assert!(value["by_type"][kind]["commits"].as_u64().is_some_and(|commits| commits > 0), "no {kind}");
    }
    let conditions = value["conditions"].as_array().expect("they were checked");
    assert_eq!(conditions.len(), 12);
    assert!(conditions.iter().all(|condition| condition["violated"] == 0), "{conditions:?}");
    let svg = std::fs::read_to_string(&plot).expect("the plot was written");
    assert!(svg.starts_with("<svg") && svg.contains("transactions/s"));
}

#[test]
fn delete_gives_memory_back() {
    let value = result("delete", &["--records", "200000", "--threads", "2", "--no-calibration"]);
    assert_eq!(value["rows_deleted"], 180_000);
    assert!(value["given_back_percent"].as_f64().is_some_and(|percent| percent > 60.0), "{value}");
}

#[test]
fn rows_that_migrate_give_memory_back() {
    let value = result("delete", &["--migrate", "--records", "600000", "--threads", "2", "--no-calibration"]);
    assert_eq!((&value["rows_migrated"], &value["rows_deleted"]), (&540_000.into(), &0.into()));
    let number = |name: &str| value[name].as_f64().expect("a number");
    // With so few rows much of what is left is the store's buffers, which are as large for many.
    assert!(number("given_back_of_theirs_percent") > 40.0, "{value}");
    let (all, store) = (number("resident_bytes_per_cold_row"), number("store_bytes_per_cold_row"));
    assert!((0.5..20.0).contains(&all) && (0.5..6.0).contains(&store), "{value}");
    assert_eq!(value["cold"]["migrated_rows"], 540_000, "{value}");
}

#[test]
fn the_store_gets_what_suits_a_limit() {
    let outer = directory();
    let blocks = |limit: &[&str]| {
        let json = outer.path().join("result.json");
        let json_text = json.to_str().expect("a path of text");
        let all = ["bench", "store", "--quiet", "--no-calibration", "--records", "50k", "--seconds", "0.1"];
        let output = lab(&[&all[..], &["--json", json_text], limit].concat());
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        let text = std::fs::read_to_string(&json).expect("written");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        value["block_memory_bytes_max"].as_u64().expect("a number")
    };
    let (small, usual) = (blocks(&["--memory-limit", "16MiB"]), blocks(&[]));
    // Of 256 KiB and of 32 MiB.
    assert!(small > 0 && small * 8 < usual, "{small} bytes of blocks, {usual} without a limit");
}

#[test]
fn recovery_opens_what_a_killed_process_left() {
    let value =
        result("recovery", &["--warehouses", "1", "--log-mb", "2", "--threads", "2", "--no-calibration"]);
    assert!(value["commits"].as_u64().is_some_and(|commits| commits > 0));
    assert!(value["log_bytes"].as_u64().is_some_and(|bytes| bytes >= 2 << 20));
    assert!(value["open_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    assert_eq!(value["conditions"].as_array().map(Vec::len), Some(12));
    assert_eq!(value["cold"]["migrated_rows"], 0, "there is no memory limit: {value}");
}

#[test]
fn progress_goes_to_standard_error() {
    let output = lab(&[
        "bench",
        "point",
        "--records",
        "1000",
        "--warm-up",
        "0",
        "--seconds",
        "0.2",
        "--no-calibration",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(
        errors(&output).contains("loading") && !results(&output).contains("loading"),
        "{}",
        errors(&output)
    );
    assert!(!errors(&output).contains('\x1b'), "escape sequences where no terminal is");
}

/// Processes that a process has started.
fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it runs");
    text.split_whitespace().map(|child| child.parse().expect("a number")).collect()
}

/// A letter for what a process does; none: it is gone.
fn state(pid: u32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit(')').next()?.split_whitespace().next().map(str::to_owned)
}

/// Ctrl-C and a request to terminate remove the temporary directories as well: the database's, and that of a memory server's key.
#[test]
fn an_interrupt_leaves_nothing_behind() {
    use rustix::process::{Pid, Signal, kill_process};
    let remote = ["--tiering", "paged", "--pager", "remote"];
    for (signal, more, made) in [(Signal::INT, &[][..], 1), (Signal::TERM, &[], 1), (Signal::INT, &remote, 2)]
    {
        let temporary = directory();
        let mut child = command(
            temporary.path(),
            &[&["bench", "point", "--records", "1000", "--seconds", "600", "--no-calibration"], more]
                .concat(),
        )
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
        // Its first words come when the directory and the handler are there.
        let mut errors = std::io::BufReader::new(child.stderr.take().expect("it was asked for"));
        let mut line = String::new();
        std::io::BufRead::read_line(&mut errors, &mut line).expect("text");
        assert!(line.contains("loading"), "{line}");
        assert_eq!(std::fs::read_dir(temporary.path()).expect("still there").count(), made);
        let pid = Pid::from_child(&child);
        let servers = children(child.id());
        assert_eq!(servers.len() + 1, made, "{servers:?}");
        kill_process(pid, signal).expect("it runs");
        let status = child.wait().expect("it ends");
        assert_eq!(status.code(), Some(130));
        // Whoever has them now may let them be zombies for a while.
        while servers.iter().any(|server| state(*server).is_some_and(|state| state != "Z")) {
            std::thread::yield_now();
        }
        assert_eq!(std::fs::read_dir(temporary.path()).expect("still there").count(), 0);
    }
}
