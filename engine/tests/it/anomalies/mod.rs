//! Golden scripts: one for each anomaly, played at all four isolation levels, the levels that allow it included with
//! the reason; and scripts of what waits for what.
//!
//! The scripts are the text files beside this one; their language is explained in [`runner`].

mod late_snapshot;
mod runner;

macro_rules! anomalies {
    ($($name:ident)+) => {
        $(
            #[test]
            fn $name() {
                runner::play_anomaly(
                    concat!(stringify!($name), ".txt"),
                    include_str!(concat!(stringify!($name), ".txt")),
                );
            }
        )+
    };
}

macro_rules! behaviours {
    ($($name:ident)+) => {
        $(
            #[test]
            fn $name() {
                runner::play(
                    concat!(stringify!($name), ".txt"),
                    include_str!(concat!(stringify!($name), ".txt")),
                );
            }
        )+
    };
}

anomalies! {
    g0_dirty_write
    g1a_aborted_read
    g1b_intermediate_read
    g1c_circular_information_flow
    otv_observed_transaction_vanishes
    pmp_predicate_many_preceders
    p4_lost_update
    g_single_read_skew
    g2_item_write_skew
    g2_predicate_write_skew
    phantom
    read_only_anomaly
}

behaviours! {
    deadlock
    first_updater_wins
    idle_abort
    key_changes
    pruning_under_snapshots
    row_locks
    savepoints
    unique_keys
    unique_refusals
}

/// Every script beside this file is played, so none rots.
#[test]
fn every_script_is_played() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/anomalies");
    let this = include_str!("mod.rs");
    for entry in std::fs::read_dir(folder).expect("the folder of the scripts") {
        let name = entry.expect("a file").file_name().into_string().expect("a plain name");
        if let Some(name) = name.strip_suffix(".txt") {
            assert!(this.lines().any(|line| line.trim() == name), "script {name} is not played");
        }
    }
}
