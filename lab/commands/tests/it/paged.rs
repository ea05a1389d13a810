//! `bench paged`, tiny: each pager has its turns, reads what was written, and is told about; what cannot be is refused.

use serde_json::Value;

use crate::{directory, errors, lab, results};

#[test]
fn each_pager_has_its_turns() {
    let outer = directory();
    let json = outer.path().join("result.json");
    let pagers = if cfg!(target_os = "linux") {
        "memory,own,own-spread,os,os-spread,remote"
    } else {
        "memory,own,own-spread,remote"
    };
    let arguments =
        ["bench", "paged", "--quiet", "--records", "200K", "--record-bytes", "400", "--memory", "16MiB"];
    let more =
        ["--seconds", "0.2", "--warm-up", "0.1", "--rounds", "1", "--in-flight", "8", "--pager", pagers];
    let to = ["--remote-profile", "ethernet-25g", "--json", json.to_str().expect("a path of text")];
    let all = [&arguments[..], &more[..], &to[..]].concat();
    let output = lab(&all);
    let said = errors(&output);
    if output.status.code() == Some(1) && said.contains("name a directory on a disk") {
        // The temporary directory is in memory: nothing to page from.
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(results(&output).starts_with("paged: 200000 tuples"), "{}", results(&output));
    let value: Value = serde_json::from_str(&std::fs::read_to_string(&json).expect("written")).expect("JSON");
    let medians = value["medians"].as_array().expect("a list");
    assert_eq!(medians.len(), pagers.split(',').count());
    for (run, pager) in medians.iter().zip(pagers.split(',')) {
        assert_eq!(run["contender"], pager);
        assert!(run["accesses_per_s"].as_f64().expect("a number") > 0.0, "{run}");
        let paged = run["paged_bytes"].as_u64().expect("a number");
        assert_eq!(paged == 0, pager == "memory", "{run}");
        assert_eq!(run["net_faults"], 0, "{run}");
        if pager.starts_with("own") || pager == "remote" {
            let limit = (16 << 20) - run["pinned_bytes"].as_u64().expect("a number");
            assert!(run["resident_bytes"].as_u64().expect("a number") <= limit, "{run}");
        }
    }
    let emulated = value["emulated"].as_array().expect("a list");
    assert!(emulated.iter().any(|text| text.as_str().is_some_and(|text| text.contains("ethernet-25g"))));
    assert!(value["device"]["reads_per_s"].as_f64().is_some_and(|reads| reads > 0.0));
}

#[test]
fn settings_that_cannot_be() {
    let cases: [(&[&str], &str); 4] = [
        (&["--pager", "swap"], "memory, own, own-spread"),
        (&["--record-bytes", "5000"], "16 to 4096"),
        (&["--memory", "1MiB"], "at least 16 MiB"),
        (&["--memory", "16MiB", "--in-flight", "4K"], "more frames"),
    ];
    for (arguments, said) in cases {
        let output = lab(&[&["bench", "paged"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", errors(&output));
        assert!(errors(&output).contains(said), "{arguments:?}: no {said:?} in {}", errors(&output));
    }
}
