//! A small run ends with figures of everything that was asked for.

use super::*;

fn settings(dir: &Path, store: &str) -> SiberiaSettings {
    SiberiaSettings {
        rows: 2_000,
        cold_share: 0.7,
        cold_access: vec![0.1],
        updates: 0.1,
        think_us: 0,
        clients: 4,
        threads: 2,
        store: store.to_owned(),
        clean: true,
        promote: true,
        frame_bytes: 64 << 10,
        paced: false,
        moving: false,
        migrate_rows: 500,
        memory_limit_bytes: Some(256 << 20),
        seconds: 0.1,
        data_dir: dir.to_owned(),
        seed: 1,
    }
}

#[test]
fn a_small_run_in_memory_reports_the_machinery() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let report = run(&settings(dir.path(), "memory"), false, true).expect("it runs");
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("valid JSON");
    assert!(json["machinery"]["hot_ns"]["median"].as_f64().is_some_and(|value| value > 0.0), "{json}");
    assert_eq!(json["machinery"]["notices"][0], 140, "{json}");
    assert!(json["machinery"]["notices"][1].as_u64().is_some_and(|count| count > 0), "{json}");
    assert_eq!(json["cold"]["rows_cold"], 1_400);
    assert!(json["cpu_us_per_migrated_row"]["median"].as_f64().is_some_and(|value| value > 0.0));
    assert_eq!(report.shares.len(), 2);
    assert!(report.to_table().contains("memo with hit"), "{}", report.to_table());
}

#[test]
fn a_small_run_over_pages_reads_the_device() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // Less would stay in the store's memory.
    let wanted = SiberiaSettings {
        rows: 300_000,
        updates: 0.0,
        paced: true,
        moving: true,
        ..settings(dir.path(), "pages")
    };
    let report = run(&wanted, false, true).expect("it runs");
    let share = &report.shares[1];
    let reads = share.device_reads_per_cold_access.expect("the store reads a device");
    assert!(reads.median > 0.3 && reads.median < 1.5, "{reads}");
    assert!(share.device_us.is_some_and(|device| device.median > 0.0));
    assert!(share.reachable_share.is_some_and(|share| share.median > 0.0));
    let paced = report.paced.as_ref().expect("it was asked for");
    assert!(paced.moved_per_s > 0.0 && paced.p50_us <= paced.p999_us, "{paced:?}");
    let moving = report.moving.as_ref().expect("it was asked for");
    assert!(
        moving.still_per_s.median > 0.0 && moving.lost.max < 1.0 && moving.rows_per_s >= 500.0,
        "{moving:?}"
    );
    assert!(report.calibration.is_none() && report.to_table().contains("left out"));
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let good = settings(dir.path(), "memory");
    let refused = |settings: SiberiaSettings| match run(&settings, false, true) {
        Err(SiberiaError::Setting(said)) => said,
        other => panic!("not refused: {other:?}"),
    };
    assert!(refused(SiberiaSettings { cold_share: 1.0, ..good.clone() }).contains("--cold-share"));
    assert!(refused(SiberiaSettings { threads: 8, ..good.clone() }).contains("--clients"));
    assert!(refused(SiberiaSettings { updates: 1.5, ..good.clone() }).contains("--updates"));
    assert!(refused(SiberiaSettings { store: "tape".to_owned(), ..good }).contains("--store"));
}
