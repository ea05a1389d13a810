//! `thermocline demo`, small: both runs, side by side.

use serde_json::Value;

use crate::{directory, errors, results, thermocline};

#[test]
fn both_runs_stand_side_by_side() {
    let outer = directory();
    let [plot, json] = ["demo.svg", "demo.json"].map(|name| outer.path().join(name));
    let paths = [&plot, &json].map(|path| path.to_str().expect("a path of text"));
    let mut arguments = vec!["demo", "--warehouses", "1", "--times", "2", "--seconds", "1", "--threads", "2"];
    arguments.extend(["--in-flight", "2", "--quiet", "--plot", paths[0], "--json", paths[1]]);
    let output = thermocline(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}{}", results(&output), errors(&output));
    let text = results(&output);
    for part in
        ["in memory", "under ", "transactions/s", "rows in the cold store", "all 12 hold", "its limit"]
    {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let value: Value = serde_json::from_str(&std::fs::read_to_string(json).expect("written")).expect("JSON");
    let cold = |run: &str| value[run]["cold"]["rows_cold"].as_u64().expect("a number");
    assert_eq!(cold("in_memory"), 0);
    assert!(cold("limited") > 1_000, "{}", cold("limited"));
    let limit = value["limited"]["settings"]["memory_limit_bytes"].as_u64().expect("a number");
    let memory = value["limited"]["memory_bytes"].as_object().expect("an object");
    let used: u64 = memory.values().map(|bytes| bytes.as_u64().expect("a number")).sum();
    assert!(used <= limit, "{used} of {limit}");
    let svg = std::fs::read_to_string(plot).expect("written");
    assert!(svg.contains("in memory") && svg.contains("polyline"), "{svg}");
}

#[test]
fn what_cannot_be_is_refused() {
    for (arguments, says) in [
        (&["demo", "--times", "0.5"][..], "a number of times"),
        (&["demo", "--warehouses", "0"], "at least 1"),
        (&["demo", "--plot", "/nowhere/plot.svg"], "cannot write"),
    ] {
        let output = thermocline(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", errors(&output));
        assert!(errors(&output).contains(says), "{arguments:?}: {}", errors(&output));
    }
}
