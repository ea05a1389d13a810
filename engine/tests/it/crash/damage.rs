//! Files that are not what was written: flipped, cut, missing, foreign, newer. Each is named by `verify` and by the
//! error that opening gives; or it was bytes that do not matter, and everything is there. Never anything in between.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use thermocline_base::checksum::crc32c;
use thermocline_base::io::{Io, MemoryIo, OpenMode};
use thermocline_base::rng::Rng;
use thermocline_engine::{Database, Durability, Error};

use super::workload::Run;
use super::{State, dump, open, path, tiny};

/// A database that was closed, with images, several segments, and log that is in no image.
fn closed() -> (&'static MemoryIo, &'static State) {
    static CLOSED: OnceLock<(MemoryIo, State)> = OnceLock::new();
    let (io, state) = CLOSED.get_or_init(|| closed_with(11));
    (io, state)
}

fn closed_with(seed: u64) -> (MemoryIo, State) {
    let mut run = Run::new(seed, tiny(Durability::Group));
    run.steps(150);
    run.checkpoint();
    run.steps(25);
    run.close();
    (run.io.memory().copy(), run.state().clone())
}

fn files(io: &MemoryIo) -> Vec<(PathBuf, Vec<u8>)> {
    let files = io.files().into_iter();
    files.filter(|(path, _)| path.extension().is_none_or(|extension| extension != "lock")).collect()
}

/// Where something must be found, or may be harmless.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Named,
    Harmless,
}

/// Verifies and opens a damaged copy: both must name `file`, or whoever reads what is missing must be told its name, or all must be
/// there. `whole`: what the file was; once it is that again, all is there, whatever was done with the rest.
fn examine(io: &MemoryIo, file: &Path, whole: &[u8], state: &State, what: &str) -> Outcome {
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
    // What is missing as a whole is named by its directory.
    let directory = file.parent().and_then(|dir| dir.to_str()).expect("a directory");
    let named = |text: &str| text.contains(name) || text.contains(directory);
    let verified = Database::verify_with(path(), Arc::new(io.copy()));
    let served = io.copy();
    let opened = open(&served, &tiny(Durability::Group));
    match opened {
        Ok(db) => {
            let found = match dump(&db) {
                Ok(found) => found,
                Err(error) if kind(file) == "image" => {
                    assert!(named(&error), "{what}: {error}");
                    let report = verified.unwrap_or_else(|error| panic!("{what}: verify: {error}"));
                    assert!(report.findings.iter().any(|finding| named(finding)), "{what}: {report:?}");
                    db.checkpoint().unwrap_or_else(|error| panic!("{what}: {error}"));
                    db.close().unwrap_or_else(|error| panic!("{what}: {error}"));
                    let there = served.open(file, OpenMode::Write).expect("it stays while rows are in it");
                    there.set_len(0).and_then(|()| there.write_at(0, whole)).expect("it is restored");
                    let db = open(&served, &tiny(Durability::Group)).expect("all files are whole");
                    let found = dump(&db).unwrap_or_else(|error| panic!("{what}, restored: {error}"));
                    assert!(found == *state, "{what}, restored: {}", state.difference(&found));
                    return Outcome::Named;
                }
                Err(error) => panic!("{what}: {error}"),
            };
            assert!(found == *state, "{what} gives a wrong result: {}", state.difference(&found));
            let report = verified.unwrap_or_else(|error| panic!("{what}: verify: {error}"));
            // The images of a table that was dropped or emptied since are checked, and not needed.
            let unneeded = |finding: &String| kind(file) == "image" && named(finding);
            assert!(report.findings.iter().all(unneeded), "{what} is found but opens: {report:?}");
            Outcome::Harmless
        }
        Err(
            error @ (Error::Damaged { .. }
            | Error::NewerFormat { .. }
            | Error::NotADatabase { .. }
            | Error::Io(_)),
        ) => {
            assert!(named(&error.to_string()), "{what}: {error}");
            match verified {
                Ok(report) => {
                    assert!(report.findings.iter().any(|finding| named(finding)), "{what}: {report:?}");
                }
                Err(error) => assert!(named(&error.to_string()), "{what}: verify: {error}"),
            }
            Outcome::Named
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

fn kind(file: &Path) -> &'static str {
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
    match name {
        "thermocline.db" => "superblock",
        _ if name.starts_with("manifest-") => "manifest",
        _ if name.ends_with(".img") => "image",
        _ if name.ends_with(".log") => "segment",
        _ => panic!("{name} is of no kind"),
    }
}

#[test]
fn flipped_bits() {
    let (io, state) = closed();
    let mut rng = Rng::new(5);
    let mut named = std::collections::BTreeMap::new();
    for (file, bytes) in files(io) {
        let mut positions: Vec<u64> = (0..60).map(|_| rng.below(bytes.len() as u64)).collect();
        // All of what starts a file, sampled.
        positions.extend((0..70).step_by(3).filter(|at| *at < bytes.len() as u64));
        if kind(&file) == "superblock" {
            positions.extend(0..44);
        }
        // And where a segment's records start.
        positions.extend((4096..4250).step_by(7).filter(|at| *at < bytes.len() as u64));
        for at in positions {
            let copy = io.copy();
            let bit = 1 << rng.below(8);
            copy.flip(&file, at, bit);
            let what = format!("bit {bit:#x} of byte {at} of {}", file.display());
            let outcome = examine(&copy, &file, &bytes, state, &what);
            *named.entry(kind(&file)).or_insert(0) += usize::from(outcome == Outcome::Named);
            // Behind the superblock stand the ends of the other files, twice, and nothing.
            let all_matters = kind(&file) == "manifest" || kind(&file) == "superblock" && at < 44;
            if all_matters {
                assert_eq!(outcome, Outcome::Named, "{what} must be found");
            }
        }
    }
    assert_eq!(named.len(), 4, "{named:?}");
    assert!(named.values().all(|count| *count >= 20), "{named:?}");
}

#[test]
fn cut_files() {
    let (io, state) = closed();
    for (file, bytes) in files(io) {
        let len = bytes.len() as u64;
        for cut in [0, 1, 17, len / 2, len.saturating_sub(1)] {
            let copy = io.copy();
            copy.open(&file, OpenMode::Write).expect("it is there").set_len(cut).expect("it is cut");
            let what = format!("{} cut to {cut} of {len} bytes", file.display());
            let outcome = examine(&copy, &file, &bytes, state, &what);
            // What ends a segment or an image file may be unused, or of a chunk that has a newer image.
            let all_matters = matches!(kind(&file), "superblock" | "manifest");
            if all_matters || kind(&file) == "image" && cut < 64 {
                assert_eq!(outcome, Outcome::Named, "{what}");
            }
        }
    }
}

#[test]
fn missing_files() {
    let (io, state) = closed();
    let mut named = 0;
    for (file, bytes) in files(io) {
        let copy = io.copy();
        copy.remove(&file).expect("it is removed");
        let outcome = examine(&copy, &file, &bytes, state, &format!("{} is missing", file.display()));
        named += usize::from(outcome == Outcome::Named);
        // Segments that wait for the log to come are not missed.
        assert!(outcome == Outcome::Named || kind(&file) == "segment", "{}", file.display());
    }
    assert!(named >= 5, "{named} files are missed");
}

#[test]
fn a_missing_manifest_is_missed_by_a_database_without_rows() {
    let io = MemoryIo::new();
    let db = open(&io, &tiny(Durability::Group)).expect("a new database");
    let schema = thermocline_engine::TableSchema::new("empty")
        .column(thermocline_engine::row::Column::new("id", thermocline_engine::row::Type::Int8));
    db.create_table(schema).expect("a table");
    db.close().expect("it closes");
    let manifest = files(&io).into_iter().find(|(file, _)| kind(file) == "manifest").expect("it is there").0;
    io.remove(&manifest).expect("it is removed");
    assert!(matches!(open(&io, &tiny(Durability::Group)), Err(Error::Damaged { .. })));
}

#[test]
fn files_of_another_database() {
    let (io, state) = closed();
    // The same run, so the same names; but another id.
    let (other, _) = closed_with(11);
    for (file, bytes) in files(&other) {
        let copy = io.copy();
        let there = copy.open(&file, OpenMode::Create).expect("it opens");
        there.set_len(0).and_then(|()| there.write_at(0, &bytes)).expect("it is replaced");
        let what = format!("{} of another database", file.display());
        // With the other superblock, it is all other files that are foreign.
        let blamed = if kind(&file) == "superblock" { path().join("checkpoint/x") } else { file };
        assert_eq!(examine(&copy, &blamed, &bytes, state, &what), Outcome::Named, "{what}");
    }
}

#[test]
fn newer_formats() {
    let (io, _) = closed();
    let mut kinds = std::collections::BTreeSet::new();
    for (file, mut bytes) in files(io) {
        bytes[8..12].copy_from_slice(&9_u32.to_le_bytes());
        // A newer program would have made the checksum right.
        let sum_at = match kind(&file) {
            "superblock" => Some(40),
            "image" => Some(60),
            "segment" => Some(64),
            _ => None,
        };
        if let Some(at) = sum_at {
            let sum = crc32c(&bytes[..at]);
            bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        }
        let copy = io.copy();
        copy.open(&file, OpenMode::Write).and_then(|there| there.write_at(0, &bytes)).expect("it is changed");
        match open(&copy, &tiny(Durability::Group)) {
            Err(Error::NewerFormat { file: named, found: 9, .. }) => assert_eq!(named, file),
            outcome => panic!("{}: {:?}", file.display(), outcome.err()),
        }
        kinds.insert(kind(&file));
    }
    assert_eq!(kinds.len(), 4);
}
