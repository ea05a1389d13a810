//! Files that are not those of the database as it was last: missing, emptied, cut, older copies, of another file or database, with a
//! flipped bit; one of them, or a directory put together from two moments. After a clean close and after a process that died.
//!
//! Whatever is drawn, the opening refuses, or a reader is told, or the answers are right; and `check` says the same as the opening.
//! Faults are drawn by seed: a sample in the gate, a thousand in `.ci/deep files`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_base::depth;
use thermocline_base::io::{Io, MemoryIo, OpenMode};
use thermocline_base::rng::Rng;
use thermocline_engine::{ColdStoreKind, Database, Durability, Error, Options};

use super::workload::Run;
use super::{State, dump, open, path, tiny};

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A database at the end of a run, with what it may hold.
struct Base {
    what: String,
    options: Options,
    files: Files,
    allowed: Vec<State>,
    /// The files at moments before, with what a database of those may hold.
    earlier: Vec<(Files, Vec<State>)>,
    /// Those of the same run of another database.
    foreign: Files,
}

/// How a run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Closed,
    Killed,
}

fn files_of(io: &MemoryIo) -> Files {
    io.files().into_iter().filter(|(path, _)| path.extension().is_none_or(|of| of != "lock")).collect()
}

impl Base {
    fn new(seed: u64, end: End, durability: Durability, cold: bool) -> Self {
        let options = tiny(durability).with_cold_store(ColdStoreKind::Pages);
        let play = |turns: u64| {
            let mut run = Run::new(seed, options.clone());
            if cold {
                run = run.cold().freezes();
            }
            let mut earlier = Vec::new();
            for _ in 0..turns {
                run.steps(45);
                let states = run.allowed(run.io.operations()).iter().map(|event| event.state.clone());
                earlier.push((files_of(run.io.memory()), states.collect()));
            }
            if end == End::Closed {
                run.close();
            }
            (run, earlier)
        };
        let (run, earlier) = play(8);
        let allowed = run.allowed(run.io.operations()).iter().map(|event| event.state.clone()).collect();
        let (other, _) = play(6);
        Self {
            what: format!("{end:?}, {durability}, cold rows {cold}, seed {seed}"),
            files: files_of(run.io.memory()),
            foreign: files_of(other.io.memory()),
            options,
            allowed,
            earlier,
        }
    }
}

/// Files of one kind can be taken for each other.
fn kind(file: &Path) -> &str {
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
    match name {
        _ if name.starts_with("manifest-") => "manifest",
        _ if name.starts_with("journal-") => "journal",
        _ if name.ends_with(".img") => "image",
        _ if name.ends_with(".log") => "segment",
        _ => name,
    }
}

/// Draws what happens to the files, and tells it; with states that are right then as well.
fn draw(base: &Base, rng: &mut Rng) -> (Files, Vec<State>, String) {
    let mut files = base.files.clone();
    let pick = |files: &Files, rng: &mut Rng| {
        // Each kind as often, however many files it has.
        let mut kinds: Vec<&str> = files.keys().map(|file| kind(file)).collect();
        kinds.dedup();
        let wanted = kinds[rng.below(kinds.len() as u64) as usize].to_owned();
        let of_kind: Vec<&PathBuf> = files.keys().filter(|file| kind(file) == wanted).collect();
        // The newest as often as all others.
        let at = if rng.chance(0.5) { of_kind.len() - 1 } else { rng.below(of_kind.len() as u64) as usize };
        of_kind[at].clone()
    };
    let file = pick(&files, rng);
    let len = files[&file].len() as u64;
    let name = file.display().to_string();
    let (earlier, states) = &base.earlier[rng.below(base.earlier.len() as u64) as usize];
    let mut also = Vec::new();
    let what = match rng.below(9) {
        0 => {
            files.remove(&file);
            format!("{name} is missing")
        }
        1 => {
            files.insert(file, Vec::new());
            format!("{name} is empty")
        }
        2 => {
            // Where records, groups and pages begin, or anywhere.
            let step = [1, 8, 64, 512, 4096][rng.below(5) as usize];
            let cut = rng.below(len + 1) / step * step;
            files.get_mut(&file).expect("it is there").truncate(cut as usize);
            format!("{name} is cut to {cut} of {len}")
        }
        3 | 4 => {
            let file = pick(earlier, rng);
            files.insert(file.clone(), earlier[&file].clone());
            format!("{} is an older copy", file.display())
        }
        5 => {
            let others: Vec<PathBuf> =
                files.keys().filter(|other| kind(other) == kind(&file) && **other != file).cloned().collect();
            let Some(other) = others.get(rng.below(others.len().max(1) as u64) as usize) else {
                return draw(base, rng);
            };
            let (one, two) = (files[&file].clone(), files[other].clone());
            files.insert(file, two);
            files.insert(other.clone(), one);
            format!("{name} and {} are swapped", other.display())
        }
        6 => {
            let other = pick(&base.foreign, rng);
            files.insert(other.clone(), base.foreign[&other].clone());
            format!("{} is of another database", other.display())
        }
        7 => {
            let bytes = files.get_mut(&file).expect("it is there");
            let at = if rng.chance(0.5) { rng.below(len.min(256)) } else { rng.below(len) };
            bytes[at as usize] ^= 1 << rng.below(8);
            format!("a bit of byte {at} of {name} is flipped")
        }
        _ => {
            // A directory that was restored file by file, or in part.
            let whole_kinds = rng.chance(0.5);
            let seed = rng.next_u64();
            let is_old = |file: &Path| {
                let of = if whole_kinds { kind(file) } else { file.to_str().expect("a name") };
                let sum = of.bytes().fold(seed, |sum, byte| sum.rotate_left(7) ^ u64::from(byte));
                Rng::new(sum).chance(0.5)
            };
            let all: Vec<PathBuf> = files.keys().chain(earlier.keys()).cloned().collect();
            let mut old = Vec::new();
            // With the file that knows the ends of the others, the database may be as it was then.
            if is_old(&path().join("thermocline.db")) {
                also.clone_from(states);
            }
            for file in all {
                if is_old(&file) {
                    match earlier.get(&file) {
                        Some(bytes) => files.insert(file.clone(), bytes.clone()),
                        None => files.remove(&file),
                    };
                    old.push(file.display().to_string());
                }
            }
            format!("of a moment before are {}", old.join(", "))
        }
    };
    (files, also, what)
}

/// What came of a fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    Refused,
    Told,
    Right,
}

/// Opens what is there. Only errors that name a file, and answers that are right, pass.
fn judge(base: &Base, files: Files, also: &[State], what: &str) -> Outcome {
    let directories = ["", "log", "checkpoint", "cold"].map(|name| path().join(name));
    let io = MemoryIo::with_files(directories.to_vec(), files);
    let verified = Database::verify_with(path(), Arc::new(io.copy()));
    let found = match &verified {
        Ok(report) => report.findings.clone(),
        Err(error) => vec![error.to_string()],
    };
    let opened = open(&io.copy(), &base.options);
    let db = match opened {
        Ok(db) => db,
        Err(
            error @ (Error::Damaged { .. }
            | Error::NewerFormat { .. }
            | Error::NotADatabase { .. }
            | Error::ColdStore { .. }
            | Error::Io(_)),
        ) => {
            assert!(!found.is_empty(), "{what}: check finds nothing, and the opening refuses: {error}");
            // Nothing was changed by the first one that would let the second one pass.
            let again = io.copy();
            let first = open(&again, &base.options).err().map(|error| error.to_string());
            let second = open(&again, &base.options).err().map(|error| error.to_string());
            assert!(first.is_some() && second.is_some(), "{what}: it is refused once only: {first:?}");
            return Outcome::Refused;
        }
        Err(error) => panic!("{what}: {error}"),
    };
    match dump(&db) {
        Ok(state) => {
            // A session without a log that has not been closed leaves nothing, and the opening says so.
            let admitted = db.statistics().lost_volatile_session && state == state.emptied();
            if !base.allowed.contains(&state) && !also.contains(&state) && !admitted {
                let last = base.allowed.last().expect("there is a state");
                panic!("{what}: wrong in silence: {}; check says {found:?}", last.difference(&state));
            }
            // Fences and filters are made again, hints are done without, and so are images of tables that have gone since.
            let harmless = |finding: &String| {
                ["no row is lost", "temperatures", ".img"].iter().any(|what| finding.contains(what))
            };
            let serious: Vec<&String> = found.iter().filter(|finding| !harmless(finding)).collect();
            assert!(serious.is_empty(), "{what}: all is right, and check says {serious:?}");
            Outcome::Right
        }
        Err(told) => {
            assert!(told.contains("cold store") || told.contains(".img is damaged"), "{what}: {told}");
            assert!(!found.is_empty(), "{what}: check finds nothing, and a reader is told {told}");
            Outcome::Told
        }
    }
}

impl Base {
    /// The database as it is: all is right, so that a fault is what makes it wrong.
    fn is_sound(&self) {
        assert_eq!(judge(self, self.files.clone(), &[], &self.what), Outcome::Right, "{}", self.what);
    }
}

fn faults(end: End, durability: Durability, cold: bool, count: u64) -> BTreeMap<Outcome, u64> {
    let mut outcomes = BTreeMap::new();
    let bases = depth::either(2, 10);
    for number in 0..bases {
        let base = Base::new(depth::seed() + 40 + number, end, durability, cold);
        base.is_sound();
        let mut rng = Rng::new(depth::seed() + 7 * number);
        for _ in 0..count / bases {
            let (files, also, what) = draw(&base, &mut rng);
            let what = format!("{what} ({})", base.what);
            *outcomes.entry(judge(&base, files, &also, &what)).or_default() += 1;
        }
    }
    outcomes
}

fn checked(end: End, durability: Durability, cold: bool) {
    let outcomes = faults(end, durability, cold, depth::either(60, 250));
    let of = |outcome| outcomes.get(&outcome).copied().unwrap_or(0);
    assert!(of(Outcome::Refused) + of(Outcome::Told) > 10, "hardly anything was noticed: {outcomes:?}");
    println!("{end:?}, {durability}, cold rows {cold}: {outcomes:?}");
}

#[test]
fn faults_of_files_after_a_clean_close() {
    checked(End::Closed, Durability::Group, true);
}

#[test]
fn faults_of_files_after_a_kill() {
    checked(End::Killed, Durability::Group, true);
}

#[test]
fn faults_of_files_without_cold_rows() {
    checked(End::Closed, Durability::Group, false);
    checked(End::Killed, Durability::Sync, false);
}

#[test]
fn faults_of_files_of_a_database_without_a_log() {
    checked(End::Closed, Durability::Off, true);
}

/// What no file may be without: each is taken away alone.
#[test]
fn each_file_is_missed() {
    for (end, cold) in [(End::Closed, true), (End::Killed, true), (End::Closed, false), (End::Killed, false)]
    {
        let base = Base::new(3, end, Durability::Group, cold);
        for file in base.files.keys() {
            for emptied in [false, true] {
                let mut files = base.files.clone();
                match emptied {
                    true => drop(files.insert(file.clone(), Vec::new())),
                    false => drop(files.remove(file)),
                }
                let what = format!(
                    "{} is {} ({})",
                    file.display(),
                    if emptied { "empty" } else { "missing" },
                    base.what
                );
                let outcome = judge(&base, files, &[], &what);
                // Spare segments, and those made ahead, hold nothing; nothing is known without its own file.
                let may_go = matches!(kind(file), "segment" | "journal");
                let is_told = outcome == Outcome::Told && kind(file) == "image";
                assert!(outcome == Outcome::Refused || is_told || may_go, "{what}: {outcome:?}");
            }
        }
    }
}

/// The last segment of the log, and the newest of the store's journal, after a clean close: the files that nothing in their own
/// directory tells of.
#[test]
fn the_newest_files_are_missed() {
    let base = Base::new(5, End::Closed, Durability::Group, true);
    let io = MemoryIo::with_files(
        ["", "log", "checkpoint", "cold"].map(|name| path().join(name)).to_vec(),
        base.files.clone(),
    );
    // A reopening puts a commit into a segment of its own.
    let db = open(&io, &base.options).expect("it opens");
    let name = db.table_names().into_iter().next().expect("a table");
    db.rename_table(&name, "renamed").expect("it is renamed");
    db.close().expect("it closes");
    let segments = files_of(&io).into_keys().filter(|file| kind(file) == "segment");
    // The first one of the newest generation has the last commit; those behind it wait for the log to come.
    let name = |file: &PathBuf| file.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
    let newest = segments.max_by_key(|file| {
        let name = name(file);
        let (first, generation) = name.split_once('-').expect("both numbers");
        (generation.to_owned(), std::cmp::Reverse(first.to_owned()))
    });
    let newest = newest.expect("there is a log");
    for cut in [None, Some(0), Some(4096)] {
        let copy = io.copy();
        match cut {
            None => copy.remove(&newest).expect("it goes"),
            Some(to) => {
                copy.open(&newest, OpenMode::Write).and_then(|file| file.set_len(to)).expect("it is cut");
            }
        }
        let error =
            open(&copy, &base.options).err().unwrap_or_else(|| panic!("{cut:?}: it opens")).to_string();
        assert!(error.contains("log") && error.contains("restore"), "{error}");
        let report = Database::verify_with(path(), Arc::new(copy.copy())).expect("it can be checked");
        assert!(!report.findings.is_empty(), "{cut:?}");
    }
}
