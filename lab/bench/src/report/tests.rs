//! Reports as text and as JSON.

use super::*;
use crate::drive::KindMeasured;
use crate::latency::Latencies;
use crate::settings::{Benchmark, Mix};
use serde_json::Value;

fn condition(number: u32, statement: &str, violations: &[&str]) -> Condition {
    Condition {
        number,
        statement: statement.into(),
        checked: 40,
        violated: violations.len() as u64,
        violations: violations.iter().map(|violation| (*violation).to_owned()).collect(),
    }
}

fn report() -> Report {
    let mut latencies = Latencies::default();
    (1..=1000_u64).for_each(|value| latencies.record(value * 1000));
    let measured = Measured {
        seconds: 2.0,
        kinds: vec![
            KindMeasured { name: "payment", commits: 3_000_000, latencies: latencies.clone() },
            KindMeasured { name: "new-order", commits: 1_000_000, latencies },
        ],
        rolled_back: 10,
        gave_up: 0,
        samples: vec![Sample { at_seconds: 1.0, throughput_tps: 2e6 }],
    };
    let settings = Settings {
        benchmark: Benchmark::Tpcc { warehouses: 4, skewed_growth: false, deck: Mix::Standard },
        threads: 2,
        in_flight: 32,
        warm_up_seconds: 1.0,
        seconds: 2.0,
        isolation: "snapshot".into(),
        durability: "group".into(),
        memory_limit_bytes: None,
        access_log: None,
        data_dir: "/tmp/x".into(),
        seed: 1,
        hold_snapshot: false,
        grow_rows: None,
        until_bytes: None,
        freeze_threads: None,
        checkpoint_interval_seconds: None,
        storage: Default::default(),
        paging: Default::default(),
    };
    let mut throughput = Throughput::of(&measured, 1);
    throughput.aborts.insert("write-conflict".into(), 1234);
    throughput.waits.insert("cold_reads".into(), Wait { count: 1000, seconds: 0.5 });
    throughput.memory_bytes.insert("versions".into(), 1 << 30);
    throughput.disturbed = vec![Disturbed {
        what: "shift",
        at_seconds: 5.0,
        before_tps: 1e6,
        least_tps: 2e5,
        back_seconds: Some(12.0),
    }];
    throughput.cold = Cold { reads: 4321, rows_cold: 1_000_000, ..Cold::default() };
    throughput.conditions =
        Some(vec![condition(1, "sums agree", &[]), condition(2, "numbers follow", &["district 3"])]);
    Report::new(settings, None, Outcome::Throughput(Box::new(throughput)))
}

#[test]
fn the_json_is_one_object_with_everything_in_it() {
    let json: Value = serde_json::from_str(&report().to_json()).expect("valid JSON");
    assert_eq!(json["settings"]["benchmark"], "tpcc");
    assert_eq!(json["settings"]["warehouses"], 4);
    assert_eq!(json["throughput_tps"], 2e6);
    assert_eq!(json["by_type"]["payment"]["commits"], 3_000_000);
    assert!(json["latency_us"]["p999"].as_f64().is_some_and(|value| value > 990.0));
    assert_eq!(json["aborts"]["write-conflict"], 1234);
    assert_eq!(json["waits"]["cold_reads"]["count"], 1000);
    assert_eq!(json["memory_bytes"]["versions"], 1 << 30);
    assert_eq!(json["cold"]["reads"], 4321);
    assert_eq!(json["disturbed"][0]["back_seconds"], 12.0);
    for name in [
        "device_reads",
        "device_write_bytes",
        "filter_false_positives",
        "migrated_rows",
        "promoted_rows",
        "memo_rows",
        "rows_cold",
        "bytes_per_cold_row",
        "cpu_us_per_migrated_row",
        "cancelled_snapshots",
        "memory_waits",
        "memory_wait_us_max",
    ] {
        assert!(json["cold"][name].is_number(), "{name} is missing");
    }
    assert!(json["calibration"].is_null());
    assert!(json["machine"]["cpu"].is_string() && json["machine"]["kernel"].is_string());
    let memory = ["rss_bytes_max", "anonymous_bytes_max", "unattributed_bytes_max"];
    let others = ["seconds", "cpu_seconds", "log_bytes", "checkpoints", "samples", "levels"];
    for name in memory.into_iter().chain(others) {
        assert!(json.get(name).is_some(), "{name} is missing");
    }
}

#[test]
fn the_table_shows_the_broken_condition() {
    let report = report();
    assert!(!report.is_consistent());
    let table = report.to_table();
    for text in [
        "2,000,000 transactions/s",
        "new-order",
        "write-conflict 1,234",
        "1.0 GiB",
        "1,000,000 rows (0.0 bytes of memory each), 4,321 reads",
        "at 5 s: 1,000,000/s before, 200,000/s at the least, 90 % of that again after 12 s",
        "1. holds",
        "1 of 2 conditions are VIOLATED",
        "district 3",
    ] {
        assert!(table.contains(text), "no {text:?} in\n{table}");
    }
}

#[test]
fn numbers_are_grouped() {
    for (value, text) in [(0.0, "0"), (999.4, "999"), (1000.0, "1,000"), (1234567.0, "1,234,567")] {
        assert_eq!(grouped(value), text);
    }
}
