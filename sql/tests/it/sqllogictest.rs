//! Scripts of SQLite's sqllogictest, as the dialect `postgresql`: statements, and queries with their answers.
//!
//! ```text
//! statement ok          query IT rowsort [label]       hash-threshold 8
//! CREATE TABLE …        SELECT …                       skipif sqlite
//!                       ----                           onlyif postgresql
//!                       1                              halt
//!                       a
//! ```
//!
//! Answers are values, one a line, or how many there are and their MD5. The sample in `tests/sqllogictest` is run always;
//! `THERMOCLINE_SQLLOGICTEST` names a folder of more (`.ci/deep outside`). `tests/sqllogictest/known.txt` lists what is known to
//! differ, as `file:line`; a line of it that does not differ any more fails, so that the list shrinks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use md5::{Digest, Md5};
use thermocline_engine::{Database, Options};
use thermocline_sql::{Answer, Session};

const DIALECT: &str = "postgresql";

/// A line of a script, with the lines that belong to it.
enum Record<'t> {
    Statement { text: String, fails: bool },
    Query { text: String, types: &'t str, sort: &'t str, expected: Vec<&'t str> },
    Threshold(usize),
    Halt,
}

/// The records of a script that are for this dialect, each with the line that it begins at.
fn records(script: &str) -> Vec<(usize, Record<'_>)> {
    let mut all = Vec::new();
    let mut lines = script.lines().enumerate().peekable();
    let mut is_mine = true;
    while let Some((number, line)) = lines.next() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut rest = |ends: fn(&str) -> bool| {
            let mut found = Vec::new();
            while let Some((_, line)) = lines.next_if(|(_, line)| !ends(line)) {
                found.push(line);
            }
            found
        };
        let record = match words[..] {
            [] => continue,
            ["skipif", dialect] => {
                is_mine &= dialect != DIALECT;
                continue;
            }
            ["onlyif", dialect] => {
                is_mine &= dialect == DIALECT;
                continue;
            }
            ["halt"] => Record::Halt,
            ["hash-threshold", count] => Record::Threshold(count.parse().expect("a number")),
            ["statement", outcome] => {
                let text = rest(|line| line.trim().is_empty()).join("\n");
                Record::Statement { text, fails: outcome == "error" }
            }
            ["query", types, ref how @ ..] => {
                let text = rest(|line| line.trim().is_empty() || line == "----").join("\n");
                let mut expected = rest(|line| line.trim().is_empty());
                if !expected.is_empty() {
                    expected.remove(0);
                }
                Record::Query { text, types, sort: how.first().copied().unwrap_or("nosort"), expected }
            }
            _ => panic!("line {}: {line}", number + 1),
        };
        if std::mem::replace(&mut is_mine, true) {
            all.push((number + 1, record));
        }
    }
    all
}

/// A value as sqllogictest writes it in a column of type integer, real or text.
fn shown(value: Option<String>, ty: char) -> String {
    let Some(value) = value else { return "NULL".to_owned() };
    let value = match &*value {
        "t" if ty != 'T' => "1".to_owned(),
        "f" if ty != 'T' => "0".to_owned(),
        _ => value,
    };
    let number = || value.parse::<f64>().unwrap_or(0.0);
    match ty {
        // What is behind the point is cut off.
        'I' => value.split('.').next().unwrap_or_default().replace("-0", "0").parse::<i64>().map_or_else(
            |_| (number() as i64).to_string(),
            |whole| {
                if value.starts_with('-') && whole > 0 { (-whole).to_string() } else { whole.to_string() }
            },
        ),
        'R' => format!("{:.3}", number()),
        _ if value.is_empty() => "(empty)".to_owned(),
        _ => value.chars().map(|sign| if (' '..='~').contains(&sign) { sign } else { '@' }).collect(),
    }
}

/// All values of an answer, in the order that `sort` says.
fn values(answer: &Answer, types: &str, sort: &str) -> Vec<String> {
    let row = |row| types.chars().enumerate().map(|(at, ty)| shown(answer.text(row, at), ty)).collect();
    let mut rows: Vec<Vec<String>> = (0..answer.rows.len()).map(row).collect();
    if sort == "rowsort" {
        rows.sort_unstable();
    }
    let mut all: Vec<String> = rows.into_iter().flatten().collect();
    if sort == "valuesort" {
        all.sort_unstable();
    }
    all
}

/// The values as the script has them: with more of them than `threshold`, their MD5.
fn written(values: &[String], threshold: usize) -> Vec<String> {
    if threshold == 0 || values.len() <= threshold {
        return values.to_vec();
    }
    let mut hash = Md5::new();
    values.iter().for_each(|value| hash.update(format!("{value}\n")));
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    vec![format!("{} values hashing to {digest}", values.len())]
}

/// Differences of a script, each with its line, and how many records it has.
fn run(script: &str) -> (Vec<(usize, String)>, usize) {
    let options = Options::default().with_memory_limit(Some(512 << 20));
    let mut session = Session::new(&Database::open_in_memory(options).expect("it opens"));
    let (mut wrong, mut count, mut threshold) = (Vec::new(), 0, 0);
    for (line, record) in records(script) {
        count += 1;
        match record {
            Record::Halt => break,
            Record::Threshold(values) => threshold = values,
            Record::Statement { text, fails } => match session.execute(&text, &[]) {
                Ok(_) if fails => wrong.push((line, format!("{text}\n  has no error"))),
                Err(error) if !fails => wrong.push((line, format!("{text}\n  {error}"))),
                _ => {}
            },
            Record::Query { text, types, sort, expected } => {
                let found = match session.execute(&text, &[]) {
                    Err(error) => Err(error.to_string()),
                    Ok(answer) if answer.columns.len() != types.len() => {
                        Err(format!("{} columns", answer.columns.len()))
                    }
                    Ok(answer) => Ok(values(&answer, types, sort)),
                };
                // Short answers stand there in full beside a threshold.
                let is_hash = matches!(expected[..], [only] if only.contains(" values hashing to "));
                let same = found.as_ref().is_ok_and(|found| {
                    written(found, if is_hash { threshold.max(1) } else { 0 }) == expected
                        || *found == expected
                });
                if !same {
                    let found = match &found {
                        Ok(found) => written(found, threshold.max(20)).join(" "),
                        Err(error) => error.clone(),
                    };
                    wrong.push((
                        line,
                        format!("{text}\n  expected: {}\n  here:     {found}", expected.join(" ")),
                    ));
                }
            }
        }
    }
    (wrong, count)
}

fn scripts(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            scripts(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "test") {
            all.push(path);
        }
    }
}

#[test]
fn scripts_have_their_answers() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sqllogictest");
    let known = std::fs::read_to_string(sample.join("known.txt")).expect("the list can be read");
    let known: BTreeSet<&str> = known
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let folders: Vec<PathBuf> =
        [sample].into_iter().chain(std::env::var_os("THERMOCLINE_SQLLOGICTEST").map(PathBuf::from)).collect();
    let (mut found, mut run_files, mut counted) = (Vec::new(), BTreeSet::new(), 0);
    for folder in &folders {
        let mut all = Vec::new();
        scripts(folder, &mut all);
        all.sort_unstable();
        let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let workers = std::thread::available_parallelism().map_or(1, usize::from);
            for _ in 0..workers.min(all.len()) {
                scope.spawn(|| {
                    while let Some(path) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let name = path.strip_prefix(folder).expect("it lies within").display().to_string();
                        let script = std::fs::read_to_string(path).expect("it can be read");
                        let (wrong, count) = run(&script);
                        results.lock().expect("no thread panics").push((name, wrong, count));
                    }
                });
            }
        });
        let mut results = results.into_inner().expect("no thread panics");
        results.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for (name, wrong, count) in results {
            counted += count;
            found.extend(wrong.into_iter().map(|(line, what)| (format!("{name}:{line}"), what)));
            run_files.insert(name);
        }
    }
    let places: BTreeSet<&str> = found.iter().map(|(place, _)| &**place).collect();
    let is_run = |place: &str| place.rsplit_once(':').is_some_and(|(file, _)| run_files.contains(file));
    let gone: Vec<&&str> = known.iter().filter(|place| is_run(place) && !places.contains(**place)).collect();
    let new: Vec<String> = found
        .iter()
        .filter(|(place, _)| !known.contains(&**place))
        .map(|(place, what)| format!("{place}: {what}"))
        .collect();
    assert!(counted > 100, "the sample is there");
    assert!(new.is_empty(), "{} of {counted} records:\n{}", new.len(), new.join("\n"));
    assert!(gone.is_empty(), "these do not differ any more, so that they leave known.txt: {gone:?}");
}
