//! `thermocline-lab simulate`: a trace and a model, their files, and what is refused.

use serde_json::Value;

use crate::{directory, errors, lab, results};

#[test]
fn a_trace_and_a_model_are_simulated() {
    let dir = directory();
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let lines: String = (0..900).map(|at| format!("{},r\n", at % 300)).collect();
    std::fs::write(path("trace.csv"), lines).expect("writable");
    let traces = format!("{},model:ods", path("trace.csv"));
    let (json, out) = (path("result.json"), path("plots"));
    let output = lab(&[
        "simulate",
        "--trace",
        &traces,
        "--policies",
        "lru,tac",
        "--ssd",
        "1MiB,4MiB",
        "--page",
        "4KiB",
        "--scale",
        "0.001",
        "--json",
        &json,
        "--out",
        &out,
        "-q",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let text = results(&output);
    for part in ["emulated", "fusion-io", "model:ods", "hits %", "none"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let value: Value = serde_json::from_str(&std::fs::read_to_string(json).expect("written")).expect("JSON");
    // 256 pages lose a loop of 300 under LRU; 1,024 keep it.
    assert_eq!((&value["rows"][1]["ssd_hits"], &value["rows"][2]["ssd_hits"]), (&0.into(), &600.into()));
    for file in ["simulate.txt", "simulate.json", "simulate-0-hits.svg", "simulate-1-io.svg"] {
        let text = std::fs::read_to_string(dir.path().join("plots").join(file)).expect("it was written");
        assert!(text.contains("mulated"), "{file}: {text}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let dir = directory();
    let foreign = dir.path().join("foreign");
    std::fs::write(&foreign, [0_u8, 200, 1, 2]).expect("writable");
    let foreign = foreign.to_str().expect("text");
    for (arguments, code, says) in [
        (&["--trace", "model:none", "--ssd", "1GiB"][..], 2, "name one of tpcc-150"),
        (&["--trace", "model:scan", "--ssd", "1GiB", "--policies", "mru"], 2, "name some of tac"),
        (&["--trace", "model:scan", "--ssd", "1GiB", "--device", "ssd=tape"], 2, "name one of hdd-7200"),
        (&["--trace", "model:scan", "--ssd", "1GiB", "--page", "5000"], 2, "power of two"),
        (&["--trace", "model:scan", "--ssd", "64KiB"], 2, "too small for an extent"),
        (&["--trace", "nowhere.csv", "--ssd", "1GiB"], 2, "cannot open the trace"),
        (&["--trace", foreign, "--ssd", "1GiB"], 1, "neither ours nor text"),
        (&["--ssd", "1GiB"], 2, "--trace"),
    ] {
        let output = lab(&[&["simulate", "-q"], arguments].concat());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", errors(&output));
        assert!(errors(&output).contains(says), "{arguments:?}: {}", errors(&output));
    }
}
