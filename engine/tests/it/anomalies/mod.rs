//! Golden scripts: one for each anomaly, played at all four isolation levels, the levels that allow it included with
//! the reason; and scripts of what waits for what. All of them are played again while rows move between memory and the cold
//! store.
//!
//! The scripts are the text files beside this one; their language is explained in [`runner`].

mod late_snapshot;
mod runner;

use crate::moves::World;
use thermocline_engine::ColdStoreKind::{Direct, Memory, Pages};

macro_rules! scripts {
    (anomalies: $($anomaly:ident)+; behaviours: $($behaviour:ident)+;) => {
        $(
            #[test]
            fn $anomaly() {
                let (file, text) = script!($anomaly);
                runner::check_levels(file, text);
                runner::play(file, text, &[World::Still]);
            }
        )+
        $(
            #[test]
            fn $behaviour() {
                let (file, text) = script!($behaviour);
                runner::play(file, text, &[World::Still]);
            }
        )+

        /// The same scripts while rows leave memory and come back between any two steps. Nothing is different.
        mod moving {
            use super::runner;

            $(
                #[test]
                fn $anomaly() {
                    let (file, text) = script!($anomaly);
                    runner::play(file, text, super::MOVING);
                }
            )+
            $(
                #[test]
                fn $behaviour() {
                    let (file, text) = script!($behaviour);
                    runner::play(file, text, super::MOVING);
                }
            )+
        }
    };
}

macro_rules! script {
    ($name:ident) => {
        (
            concat!(stringify!($name), ".txt"),
            include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/it/anomalies/",
                stringify!($name),
                ".txt"
            )),
        )
    };
}

/// Worlds in which rows move.
const MOVING: &[World] = &[
    World::Cold(Memory),
    World::ToAndFro(Memory),
    World::Random(Memory, 1),
    World::Random(Memory, 2),
    World::Random(Memory, 3),
    World::Random(Memory, 4),
    World::Governed(Memory),
    World::Frozen,
    World::Paged,
    World::Ladder(Memory, 7),
    World::Ladder(Pages, 8),
    World::Cold(Pages),
    World::Random(Pages, 5),
    World::Random(Direct, 6),
];

scripts! {
    anomalies:
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
    read_only_anomaly;

    behaviours:
    deadlock
    first_updater_wins
    idle_abort
    key_changes
    pruning_under_snapshots
    row_locks
    savepoints
    unique_keys
    unique_refusals;
}

/// Every script beside this file is played, so none rots.
#[test]
fn every_script_is_played() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/anomalies");
    let this = include_str!("mod.rs");
    for entry in std::fs::read_dir(folder).expect("the folder of the scripts") {
        let name = entry.expect("a file").file_name().into_string().expect("a plain name");
        if let Some(name) = name.strip_suffix(".txt") {
            let plays = |line: &str| line.trim().trim_end_matches(';') == name;
            assert!(this.lines().any(plays), "script {name} is not played");
        }
    }
}
