//! `thermocline-lab bench ssd`, and traces that benchmarks of databases capture: what comes out can be simulated and replayed.

use std::path::Path;

use serde_json::Value;
use thermocline_bench::inspect::inspect;

use crate::{directory, errors, lab, results};

fn json(path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("it was written")).expect("JSON")
}

#[test]
fn a_benchmark_captures_what_can_be_simulated_and_replayed() {
    let dir = directory();
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let trace = path("reads.trace");
    // Some 40 MB of rows in 30 MiB: most reads go to the page file.
    let output = lab(&[
        "bench",
        "ycsb",
        "--workload",
        "c",
        "--records",
        "150000",
        "--field-bytes",
        "20",
        "--warm-up",
        "0",
        "--seconds",
        "1",
        "--memory-limit",
        "30MiB",
        "--threads",
        "2",
        "--in-flight",
        "4",
        "--no-calibration",
        "--capture",
        &trace,
        "-q",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let out = path("simulated.json");
    let output = lab(&[
        "simulate",
        "--trace",
        &trace,
        "--policies",
        "tac-told,lru",
        "--dram",
        "0",
        "--ssd",
        "4MiB",
        "--page",
        "4KiB",
        "--json",
        &out,
        "-q",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let rows = json(&out)["rows"].as_array().expect("rows").len();
    assert!(rows >= 2, "a row a policy");
    let replayed = path("replayed.json");
    let output = lab(&[
        "bench",
        "ssd",
        "--trace",
        &trace,
        "--ssd-size",
        "4MiB",
        "--threads",
        "2",
        "--in-flight",
        "16",
        "--profile",
        "network-volume",
        "--json",
        &replayed,
        "-q",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let found = json(&replayed);
    assert!(found["requests"].as_u64().expect("a number") > 100, "{found}");
    assert!(found["reads"].as_u64() >= found["hits"].as_u64(), "{found}");
    assert!(results(&output).contains("emulated: network-volume"));
}

#[test]
fn the_three_ways_are_measured_with_all_that_explains_them() {
    let dir = directory();
    let file = dir.path().join("found.json");
    let file = file.to_str().expect("text");
    let data = dir.path().join("data");
    let data = data.to_str().expect("text");
    let output = lab(&[
        "bench",
        "ssd",
        "--workload",
        "ycsb-a",
        "--records",
        "150000",
        "--warm-up",
        "0",
        "--seconds",
        "1",
        "--memory-limit",
        "30MiB",
        "--threads",
        "2",
        "--in-flight",
        "16",
        "--restart",
        "--no-calibration",
        "--data-dir",
        data,
        "--kills",
        "1",
        "--json",
        file,
        "-q",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let found = json(file);
    for name in [
        "hit_ratio",
        "simulated_hit_ratio",
        "best_hit_ratio",
        "hit_ratio_without_heat",
        "last_hit_ratio",
        "restart_hit_ratio",
        "cpu_us_per_hit",
        "merge_bytes_saved",
        "share_of_local",
        "gain",
        "moved",
        "rewritten",
    ] {
        assert!(found[name].is_number(), "{name} in {found}");
    }
    assert!(found["best_hit_ratio"].as_f64() >= found["simulated_hit_ratio"].as_f64());
    assert!(results(&output).contains("in the simulator"));
    // What lies on the SSD is told afterwards.
    let (database, ssd) = (format!("{data}/database"), format!("{data}/ssd-cache"));
    let inspected = inspect(Path::new(&database), None, None, Some(Path::new(&ssd))).expect("it opens");
    let text = inspected.to_table();
    assert!(text.contains("in the cold store") && text.contains("(filters, fences)"), "{text}");
}

#[test]
fn a_trace_that_is_none_is_refused() {
    let dir = directory();
    let path = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("writable");
        path.to_str().expect("text").to_owned()
    };
    let (foreign, cut) = (path("foreign", &[0, 200, 1, 2]), path("cut", b"thcltrce"));
    for (trace, more, code, says) in [
        (&foreign, &[][..], 1, "neither ours nor text"),
        (&cut, &[], 1, "truncated"),
        (&"nowhere".to_owned(), &[], 2, "cannot open the trace"),
        (&foreign, &["--ssd-policy", "mru"], 2, "name some of tac"),
        (&foreign, &["--restart"], 2, "cannot be used with"),
    ] {
        let arguments = [&["bench", "ssd", "--trace", trace, "--ssd-size", "1MiB", "-q"], more].concat();
        let output = lab(&arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", errors(&output));
        assert!(errors(&output).contains(says), "{arguments:?}: {}", errors(&output));
    }
    let nowhere = dir.path().join("no/such/folder/trace");
    let output = lab(&[
        "bench",
        "ycsb",
        "--records",
        "10",
        "--no-calibration",
        "--capture",
        nowhere.to_str().expect("text"),
        "-q",
    ]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("cannot write the trace"), "{}", errors(&output));
}
