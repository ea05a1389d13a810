//! Counts that may only fall: `ratchet.toml`.
//!
//! A table of the file is a [`Measure`], an entry of it the number of places that a folder or a file may have. A folder without an
//! entry may have none. A number that is higher than the count is an error, so that what has been gained stays gained;
//! `cargo xtask tidy --tighten` lowers it. No chore raises one. A file that is no Rust (Markdown) is counted only where an
//! entry names it or its folder.

use crate::measure::{Measure, Place};
use crate::repository::Repository;
use crate::{floors, parts, prose, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

const FILE: &str = "ratchet.toml";
/// The number of places that a message names.
const NAMED: usize = 20;
const HEAD: &str = "# Counts that may only fall, by folder or file (`cargo xtask tidy`). `cargo xtask tidy --tighten` writes this file and lowers its
# numbers to what is left; `cargo xtask places <table> [folder]` lists the places.
";

/// The numbers of the file, by table and by folder.
type Numbers = BTreeMap<String, BTreeMap<String, usize>>;

/// Everything that is counted.
fn measures(repository: &Repository) -> Vec<Measure> {
    let mut found = floors::measures(repository);
    found.extend([parts::open(repository), prose::riddles(repository), sources::unsafe_blocks(repository)]);
    found
}

/// Compares the counts with the numbers of the file.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    let numbers = match read(repository) {
        Ok(numbers) => numbers,
        Err(problem) => return vec![problem],
    };
    let measures = measures(repository);
    let mut problems: Vec<String> = numbers
        .keys()
        .filter(|name| measures.iter().all(|measure| measure.name != *name))
        .map(|name| format!("{FILE}: nothing is counted as `{name}`"))
        .collect();
    for measure in &measures {
        let allowed = numbers.get(measure.name).cloned().unwrap_or_default();
        for key in keys(measure, &allowed) {
            let number = allowed.get(&key).copied().unwrap_or_default();
            let count = measure.places.iter().filter(|place| place.is_in(&key)).count();
            if count > number {
                problems.push(too_many(repository, measure, &key, count, number));
            } else if count < number {
                problems.push(format!(
                    "{FILE}: [{}] {key} = {number}: only {count} are left: run `cargo xtask tidy --tighten`",
                    measure.name
                ));
            }
        }
    }
    problems
}

/// The folders and files that are counted by themselves.
fn keys(measure: &Measure, allowed: &BTreeMap<String, usize>) -> BTreeSet<String> {
    let rust = measure.places.iter().filter(|place| place.path.ends_with(".rs"));
    let folders = rust.map(|place| place.path.split('/').next().unwrap_or_default().to_owned());
    folders.chain(allowed.keys().cloned()).collect()
}

/// The message for a count above its number. It names the places on lines that are newer than the numbers, if git knows any.
fn too_many(repository: &Repository, measure: &Measure, key: &str, count: usize, number: usize) -> String {
    let Measure { name, is, advice, places } = measure;
    let all: Vec<&Place> = places.iter().filter(|place| place.is_in(key)).collect();
    let added = repository.added_since_change_of(FILE);
    let is_new = |place: &Place| {
        added.get(&place.path).is_some_and(|lines| lines.iter().any(|range| range.contains(&place.line)))
    };
    let new: Vec<&Place> = all.iter().copied().filter(|place| is_new(place)).collect();
    let (named, which) = if new.is_empty() { (all, "") } else { (new, " on new lines") };
    let mut message =
        format!("{FILE}: [{name}] {key} = {number}, and now {count} ({is}): {advice}. Places{which}:");
    for place in named.iter().take(NAMED) {
        message.push_str(&format!("\n    {place}"));
    }
    if named.len() > NAMED {
        message.push_str(&format!(
            "\n    … and {} more: `cargo xtask places {name} {key}`",
            named.len() - NAMED
        ));
    }
    message
}

fn read(repository: &Repository) -> Result<Numbers, String> {
    let text = repository.text(FILE).ok_or_else(|| format!("{FILE}: missing"))?;
    let tables: toml::Table = text.parse().map_err(|error| format!("{FILE}: {error}"))?;
    let mut found = Numbers::new();
    for (name, table) in &tables {
        let entries = table.as_table().ok_or_else(|| format!("{FILE}: `{name}` is no table"))?;
        for (key, number) in entries {
            let number = number.as_integer().and_then(|number| usize::try_from(number).ok());
            let number = number.ok_or_else(|| format!("{FILE}: [{name}] {key}: not a number"))?;
            found.entry(name.clone()).or_default().insert(key.clone(), number);
        }
    }
    Ok(found)
}

/// The file's text with each number lowered to its count.
fn tightened(repository: &Repository) -> Result<String, String> {
    let numbers = read(repository)?;
    let mut text = HEAD.to_owned();
    for measure in measures(repository) {
        text.push_str(&format!("\n# {}\n[{}]\n", measure.is, measure.name));
        for (key, number) in numbers.get(measure.name).into_iter().flatten() {
            let count = measure.places.iter().filter(|place| place.is_in(key)).count();
            let bare = key.bytes().all(|byte| crate::lexer::is_word(byte) || byte == b'-');
            let key = if bare { key.clone() } else { format!("\"{key}\"") };
            text.push_str(&format!("{key} = {}\n", count.min(*number)));
        }
    }
    Ok(text)
}

/// Lowers the numbers of the file to the counts.
///
/// # Errors
/// If the file cannot be read or written.
pub(crate) fn tighten(repository: &Repository) -> Result<(), String> {
    fs::write(repository.root.join(FILE), tightened(repository)?).map_err(|error| format!("{FILE}: {error}"))
}

/// Prints the places of a measure.
///
/// # Errors
/// If nothing is counted by that name.
pub(crate) fn list(repository: &Repository, name: &str, key: Option<&str>) -> Result<(), String> {
    let measures = measures(repository);
    let measure = measures.iter().find(|measure| measure.name == name);
    let measure = measure.ok_or_else(|| {
        let names: Vec<&str> = measures.iter().map(|measure| measure.name).collect();
        format!("nothing is counted as `{name}`; known are {}", names.join(", "))
    })?;
    let places = measure.places.iter().filter(|place| key.is_none_or(|key| place.is_in(key)));
    let count = places.inspect(|place| println!("{place}")).count();
    println!("{count} {}", measure.is);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository<'a>(numbers: &'a str, text: &'a str) -> Repository {
        Repository::of(&[(FILE, numbers), ("a/src/b.rs", text), ("docs/c.md", "It says who.\n")])
    }

    const TWO: &str = "//! B.\n// nobody\nfn f() {} // who\n";

    #[test]
    fn numbers_only_fall() {
        let cases = [
            ("[prose]\na = 2\n", ""),
            ("[prose]\na = 1\n", "ratchet.toml: [prose] a = 1, and now 2"),
            ("[prose]\n", "[prose] a = 0, and now 2"),
            ("[prose]\na = 3\n", "only 2 are left: run `cargo xtask tidy --tighten`"),
            ("[prose]\na = 2\n\"a/src/b.rs\" = 1\n", "[prose] a/src/b.rs = 1, and now 2"),
            ("[prose]\na = 2\ngone = 1\n", "[prose] gone = 1: only 0 are left"),
            ("[prose]\na = 2\n\"docs/c.md\" = 0\n", "[prose] docs/c.md = 0, and now 1"),
            ("[prose]\na = 2\n[ghosts]\nb = 1\n", "nothing is counted as `ghosts`"),
            ("[prose]\na = \"2\"\n", "not a number"),
        ];
        for (numbers, expected) in cases {
            let problems = check(&repository(numbers, TWO));
            assert_eq!(problems.len(), usize::from(!expected.is_empty()), "{numbers}: {problems:?}");
            assert!(problems.iter().all(|problem| problem.contains(expected)), "{problems:?}");
        }
        let message = check(&repository("[prose]\na = 1\n", TWO)).concat();
        assert!(
            message.contains("\n    a/src/b.rs:2: ") && message.contains("\n    a/src/b.rs:3: "),
            "{message}"
        );
    }

    #[test]
    fn tightening_lowers_and_never_raises() {
        let numbers = "[prose]\na = 7\n\"a/src/b.rs\" = 1\n";
        let text = tightened(&repository(numbers, TWO)).expect("it can be read");
        let of = |text: &str| read(&repository(text, TWO)).expect("it can be read");
        assert_eq!(of(&text)["prose"], BTreeMap::from([("a".to_owned(), 2), ("a/src/b.rs".to_owned(), 1)]));
        assert_eq!(tightened(&repository(&text, TWO)), Ok(text));
    }
}
