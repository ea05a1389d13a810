//! `thermocline-lab repro`: figures, tiny; their files, and what is refused.

use serde_json::Value;

use crate::{directory, errors, lab, results};

#[test]
fn a_figure_is_printed_and_its_files_are_written() {
    let outer = directory();
    let out = outer.path().join("figures");
    let out = out.to_str().expect("a path of text");
    let arguments =
        ["repro", "table1", "siberia-fig8", "--scale", "0.0002", "--seconds", "0.1", "--out", out, "-q"];
    let output = lab(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let text = results(&output);
    for part in ["table1, scale 0.0002", "empty memo", "11.1", "siberia-fig8", "no think time", "paper"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    for file in ["table1.txt", "table1.json", "table1.svg", "siberia-fig8.json", "siberia-fig8.svg"] {
        let text = std::fs::read_to_string(outer.path().join("figures").join(file)).expect("it was written");
        assert!(text.len() > 300, "{file}: {text}");
    }
}

#[test]
fn json_goes_to_standard_output() {
    let output = lab(&["repro", "classify", "--scale", "0.0001", "--seconds", "0.1", "--json", "--quiet"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let value: Value = serde_json::from_str(&results(&output)).expect("one JSON object");
    assert_eq!(value["figure"], "classify");
    assert_eq!(value["panels"][0]["series"][1]["name"], "forward");
}

#[test]
fn what_cannot_be_is_refused() {
    for (arguments, says) in [
        (&["repro", "fig10"][..], "name one of siberia-fig8"),
        (&["repro", "fig8", "--scale", "0"], "--scale"),
        (&["repro", "fig8", "--scale", "2"], "--scale"),
        (&["repro", "fig8", "--seconds", "-1"], "--seconds"),
        (&["repro", "fig8", "--out", "/dev/null/figures"], "choose another --out"),
        (&["repro"], "FIGURE"),
    ] {
        let output = lab(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", errors(&output));
        assert!(errors(&output).contains(says), "{arguments:?}: {}", errors(&output));
    }
}
