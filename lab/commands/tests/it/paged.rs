//! `bench paged`, tiny: each pager has its turns and is told about; what cannot be is refused.

use serde_json::Value;

use crate::{directory, errors, lab, results};

#[test]
fn each_pager_has_its_turns() {
    let outer = directory();
    let json = outer.path().join("result.json");
    let pagers =
        if cfg!(target_os = "linux") { "memory,own,os,remote,cold" } else { "memory,own,remote,cold" };
    let arguments =
        ["bench", "paged", "--quiet", "--records", "120K", "--record-bytes", "400", "--memory", "40MiB"];
    let more =
        ["--seconds", "0.2", "--warm-up", "0.1", "--rounds", "1", "--in-flight", "8", "--pager", pagers];
    let to = ["--remote-profile", "ethernet-25g", "--json", json.to_str().expect("a path of text")];
    let output = lab(&[&arguments[..], &more[..], &to[..]].concat());
    let said = errors(&output);
    if output.status.code() == Some(1) && said.contains("name another") && said.contains("tmpfs") {
        // The temporary directory is in memory: nothing to page from.
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(results(&output).starts_with("paged: 120000 rows"), "{}", results(&output));
    let value: Value = serde_json::from_str(&std::fs::read_to_string(&json).expect("written")).expect("JSON");
    let medians = value["medians"].as_array().expect("a list");
    assert_eq!(medians.len(), pagers.split(',').count());
    for (run, pager) in medians.iter().zip(pagers.split(',')) {
        assert_eq!(run["contender"], pager);
        assert!(run["throughput_tps"].as_f64().expect("a number") > 0.0, "{run}");
        let is_paged = ["own", "os", "remote"].contains(&pager);
        assert_eq!(run["paged"]["rows"].as_u64().is_some_and(|rows| rows > 0), is_paged, "{run}");
        if is_paged {
            let medium = if pager == "remote" { "remote" } else { "file" };
            assert_eq!(run["paged"]["medium"], medium, "{run}");
        }
    }
    let emulated = value["emulated"].as_array().expect("a list");
    assert!(emulated.iter().any(|text| text.as_str().is_some_and(|text| text.contains("ethernet-25g"))));
}

#[test]
fn settings_that_cannot_be() {
    let cases: [(&[&str], &str); 3] = [
        (&["--pager", "swap"], "memory, own, os"),
        (&["--memory", "1MiB", "--pager", "own"], "16 MiB"),
        (&["--records", "many"], "--records"),
    ];
    for (arguments, said) in cases {
        let output = lab(&[&["bench", "paged"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", errors(&output));
        assert!(errors(&output).contains(said), "{arguments:?}: no {said:?} in {}", errors(&output));
    }
}
