//! Each figure, tiny: the shape of its result is right. The speed that it shows does not matter here.

use super::*;

fn report(figure: Figure) -> serde_json::Value {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data_dir = dir.path().to_owned();
    let settings = ReproSettings { scale: 0.0002, seconds: 0.03, threads: 2, data_dir, seed: 1 };
    let report = run(figure, &settings, true).unwrap_or_else(|error| panic!("{figure}: {error}"));
    let out = tempfile::tempdir().expect("a temporary directory");
    let plots = report.plot(out.path()).expect("writable");
    assert_eq!(plots.len(), report.panels.len());
    for plot in plots {
        let svg = std::fs::read_to_string(plot).expect("written");
        assert!(svg.contains("polyline") || svg.contains("circle"), "{svg}");
    }
    let table = report.to_table();
    for panel in &report.panels {
        assert!(table.contains(&panel.title), "{table}");
        for series in &panel.series {
            assert!(table.contains(&series.name), "{table}");
            assert!(series.points.iter().all(|point| point.ours.median.is_finite()), "{table}");
        }
    }
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("valid JSON");
    assert_eq!(json["figure"], figure.name());
    assert_eq!(json["settings"]["scale"], 0.0002);
    json
}

/// Names of a panel's series, and how many points each has.
fn shape(panel: &serde_json::Value) -> Vec<(String, usize)> {
    let series = panel["series"].as_array().expect("a list");
    series
        .iter()
        .map(|of| {
            (of["name"].as_str().expect("text").to_owned(), of["points"].as_array().expect("a list").len())
        })
        .collect()
}

fn named(names: &[&str], points: usize) -> Vec<(String, usize)> {
    names.iter().map(|name| ((*name).to_owned(), points)).collect()
}

#[test]
fn figure_8_has_both_think_times_and_the_papers_numbers() {
    let json = report(Figure::SiberiaFig8);
    assert_eq!(shape(&json["panels"][0]), named(&["no think time", "500 µs think time"], 9));
    let points = &json["panels"][0]["series"][0]["points"];
    assert_eq!((&points[1]["x"], &points[1]["paper"]), (&95.0.into(), &7.0.into()));
    assert_eq!((&points[8]["x"], &points[8]["paper"]), (&50.0.into(), &37.0.into()));
    assert!(points[0]["paper"].is_null());
}

#[test]
fn figure_9_has_twelve_steps_and_rows_that_moved() {
    let json = report(Figure::Fig9);
    let names = ["reads, 0 % cold", "reads, 5 % cold", "updates, 5 % cold"];
    assert_eq!(shape(&json["panels"][0]), named(&names, 12));
    assert!(
        json["setup"].as_str().expect("text").contains("396"),
        "a tenth of 4,000 rows moves: {}",
        json["setup"]
    );
}

#[test]
fn table_1_has_a_memo_of_each_kind() {
    let json = report(Figure::Table1);
    let points = &json["panels"][0]["series"][0]["points"];
    assert_eq!(points[0]["label"], "empty memo");
    assert_eq!(points[2]["paper"], 15.14);
    let setup = json["setup"].as_str().expect("text");
    // A tenth of 2,800 cold rows was updated; 2,800 moved in batches of a thousand.
    assert!(setup.contains("280 notices of ends") && setup.contains("3 of batches"), "{setup}");
}

#[test]
fn figures_11_and_12_have_two_stores_and_two_numbers_of_clients() {
    for figure in [Figure::Fig11, Figure::Fig12] {
        let json = report(figure);
        let all = ["32 memory", "32 file", "64 memory", "64 file"];
        assert_eq!(shape(&json["panels"][0]), named(&all, 11));
        assert_eq!(shape(&json["panels"][1]), named(&all, 11));
        for panel in [2, 3] {
            assert_eq!(shape(&json["panels"][panel]), named(&["32 clients", "64 clients"], 11));
        }
        let reads = &json["panels"][3]["series"][0]["points"];
        assert_eq!(reads[0]["ours"]["max"], 0.0, "{figure}: no cold access, no read of the device");
        assert!(reads[10]["ours"]["median"].as_f64().is_some_and(|reads| reads > 0.0), "{figure}");
    }
}

#[test]
fn ycsb_has_a_line_for_each_ratio() {
    let json = report(Figure::Fig14);
    let ratios = ["1:1", "1:2", "1:4", "1:8"];
    assert_eq!(shape(&json["panels"][0]), named(&ratios, 5));
    assert_eq!(shape(&json["panels"][1]), named(&ratios, 5));
    let cold = &json["panels"][1]["series"];
    assert_eq!(cold[0]["points"][0]["ours"]["max"], 0.0, "all is in memory at 1:1");
    let share = cold[3]["points"][0]["ours"]["median"].as_f64().expect("a number");
    assert!(share > 5.0, "at 1:8 and θ 0.5 only {share} % of the operations were cold");
}

#[test]
fn classification_has_both_ends() {
    let json = report(Figure::Classify);
    assert_eq!(shape(&json["panels"][0]), named(&["backward", "forward"], 3));
}

#[test]
fn names_are_known_with_and_without_the_papers() {
    for figure in Figure::ALL {
        assert_eq!(figure.name().parse(), Ok(figure));
    }
    assert_eq!("fig8".parse(), Ok(Figure::SiberiaFig8));
    assert_eq!("siberia-fig13".parse(), Ok(Figure::Fig13));
    assert!("fig10".parse::<Figure>().expect_err("it plots nothing").contains("fig11"));
}

#[test]
fn the_emulated_ssd_does_what_the_paper_says() {
    let json = report(Figure::TacTable1);
    for point in json["panels"][0]["series"][0]["points"].as_array().expect("a list") {
        let (ours, paper) = (point["ours"]["median"].as_f64(), point["paper"].as_f64());
        let ratio = ours.expect("a number") / paper.expect("a number");
        assert!((ratio - 1.0).abs() < 0.03, "{point}");
    }
}

#[test]
fn figures_of_the_ssd_have_their_policies_and_sizes() {
    let policies = ["tac", "opt", "arc", "lru", "fifo", "clock"];
    for figure in [Figure::TacFig3, Figure::TacFig4] {
        let json = report(figure);
        assert_eq!(shape(&json["panels"][1]), named(&["ours"], 6), "{figure}");
        assert_eq!(json["panels"][0]["series"][0]["points"][0]["ours"]["median"], 1.0, "TAC against itself");
        assert!(
            json["notes"]
                .as_array()
                .expect("a list")
                .iter()
                .any(|note| note == "both devices are emulated, all seconds of I/O are simulated")
        );
        if figure == Figure::TacFig3 {
            assert_eq!(shape(&json["panels"][3]), named(&policies, 5));
        }
    }
    let json = report(Figure::TacFig5);
    assert_eq!(shape(&json["panels"][0]), named(&policies, 4));
    let json = report(Figure::TacFig6);
    let points = &json["panels"][0]["series"][0]["points"];
    let seconds = |at: usize| points[at]["ours"]["median"].as_f64().expect("a number");
    assert!(seconds(3) < seconds(0), "sorted writes take less: {points}");
    let json = report(Figure::TacFig12);
    let points = &json["panels"][0]["series"][0]["points"];
    assert_eq!((&points[0]["ours"]["median"], &points[4]["paper"]), (&1.0.into(), &3.7.into()));
    assert!(points[4]["ours"]["median"].as_f64().is_some_and(|gain| gain > 1.0), "{points}");
}

#[test]
fn the_bands_of_figure_1_have_each_quarter_of_the_time() {
    let json = report(Figure::TacFig1);
    let quarters = ["quarter 1", "quarter 2", "quarter 3", "quarter 4"];
    assert_eq!(shape(&json["panels"][0]), named(&quarters, 40));
    for series in json["panels"][0]["series"].as_array().expect("a list") {
        let points = series["points"].as_array().expect("a list");
        let sum: f64 = points.iter().filter_map(|point| point["ours"]["median"].as_f64()).sum();
        assert!((sum - 40.0).abs() < 1e-6, "a mean of one, not {}", sum / 40.0);
    }
}

#[test]
fn figures_of_the_star_have_their_streams_and_sizes() {
    let streams = ["1 stream", "4 streams", "8 streams"];
    let number = |point: &serde_json::Value| point["ours"]["median"].as_f64().expect("a number");
    let json = report(Figure::TacFig7);
    assert_eq!(shape(&json["panels"][0]), named(&["tac", "indexes placed on it"], 3));
    assert_eq!(shape(&json["panels"][1]), named(&["no SSD", "tac", "indexes placed on it"], 3));
    assert_eq!(shape(&json["panels"][2]), named(&streams, 5));
    let gain = &json["panels"][0]["series"][0]["points"];
    assert_eq!((&gain[0]["paper"], &gain[2]["paper"]), (&3.0.into(), &5.3.into()));
    // At the set-up's own rows the range has the same runs.
    for (at, series) in json["panels"][2]["series"].as_array().expect("a list").iter().enumerate() {
        assert_eq!(series["points"][2]["ours"], gain[at]["ours"]);
    }
    let json = report(Figure::TacFig8);
    assert_eq!(shape(&json["panels"][0]), named(&["ours"], 20));
    let json = report(Figure::TacFig9);
    let read = &json["panels"][0]["series"];
    assert_eq!(number(&read[1]["points"][0]), 0.0, "no SSD, no reads of it");
    assert!(number(&read[0]["points"][6]) < number(&read[0]["points"][0]), "{read}");
    assert_eq!(json["panels"][1]["series"][0]["points"][4]["paper"], 83.0);
    let json = report(Figure::TacFig10);
    assert_eq!(shape(&json["panels"][0]), named(&streams, 7));
    let eight = &json["panels"][0]["series"][2]["points"];
    assert!(number(&eight[5]) < number(&eight[0]), "all in use is on the SSD: {eight}");
    let json = report(Figure::TacFig11);
    let eight = &json["panels"][0]["series"][2]["points"];
    assert_eq!((number(&eight[0]), &eight[5]["paper"]), (1.0, &12.0.into()));
}

#[test]
fn growth_has_both_runs_rows_and_space() {
    let json = report(Figure::Growth);
    let series =
        |panel: &serde_json::Value| shape(panel).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let panels = json["panels"].as_array().expect("a list");
    assert_eq!(series(&panels[0]), ["growing", "in memory"]);
    assert_eq!(series(&panels[2]), ["growing", "in memory"]);
    assert_eq!(series(&panels[3]).len(), 4);
    assert_eq!(series(&panels[4]), ["memory", "limit", "cold store", "log and checkpoints"]);
    for panel in panels {
        assert!(shape(panel).iter().all(|(_, points)| *points > 0), "{panel}");
    }
    let first = |panel: usize, series: usize| {
        panels[panel]["series"][series]["points"][0]["ours"]["median"].as_f64().expect("a number")
    };
    let kept = panels[1]["series"][0]["points"].as_array().expect("a list").last().expect("a point");
    assert_eq!(kept["paper"], 93.0);
    assert!(first(3, 0) > 300.0, "a warehouse has half a million rows: {}", panels[3]);
    assert_eq!(first(4, 1), 128.0);
    assert!(first(4, 0) <= 128.0 * 1.05, "memory is within the limit: {}", panels[4]);
    assert!(first(4, 3) > 0.0, "there is a log: {}", panels[4]);
    assert!(
        json["setup"].as_str().expect("text").starts_with("1 warehouse of TPC-C, memory limit 128.0 MiB")
    );
}
