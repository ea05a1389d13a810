//! Statements that nobody has written: those of the golden files with their parts exchanged, left out and doubled. None of them panics;
//! what it answers is not looked at.
//!
//! `THERMOCLINE_MUTATIONS` says how many; a statement that panics is shown. The entrance of the fuzz target runs them, too.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use thermocline_base::depth;
use thermocline_base::rng::Rng;
use thermocline_engine::{Database, Options};
use thermocline_sql::Session;

/// The tokens of a text, more or less.
fn tokens(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' => rest[1..].find('\'').map_or(rest.len(), |end| end + 2),
            c if c.is_alphanumeric() || c == '_' => {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '.').unwrap_or(rest.len())
            }
            c if c.is_whitespace() => c.len_utf8(),
            c if "<>=!|:-+*/~@#&".contains(c) => {
                rest.find(|c: char| !"<>=!|:-+*/~@#&".contains(c)).unwrap_or(rest.len())
            }
            c => c.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        if !token.trim().is_empty() {
            all.push(token.to_owned());
        }
        rest = after;
    }
    all
}

/// Where what stands in parentheses begins and ends.
fn groups(tokens: &[String]) -> Vec<std::ops::Range<usize>> {
    let (mut open, mut all) = (Vec::new(), Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "(" => open.push(at),
            ")" => all.extend(open.pop().map(|from| from..at + 1)),
            _ => {}
        }
    }
    all
}

/// The statements of the golden files, file by file.
fn corpus() -> Vec<Vec<String>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut files: Vec<_> =
        std::fs::read_dir(dir).expect("it is there").map(|it| it.expect("a file").path()).collect();
    files.sort();
    let statements = |path: &std::path::PathBuf| {
        let mut all: Vec<String> = Vec::new();
        for line in std::fs::read_to_string(path).expect("it is read").lines() {
            if let Some(first) = line.strip_prefix("> ") {
                all.push(first.to_owned());
            } else if let (Some(more), Some(last)) = (line.strip_prefix("| "), all.last_mut()) {
                *last += &format!(" {more}");
            }
        }
        all
    };
    files.iter().map(statements).collect()
}

fn pick<'p, T>(rng: &mut Rng, from: &'p [T]) -> &'p T {
    &from[rng.below(from.len() as u64) as usize]
}

fn mutated(rng: &mut Rng, statement: &str, all: &[Vec<String>], words: &[String]) -> String {
    let mut parts = tokens(statement);
    for _ in 0..rng.between(1, 3) {
        if parts.is_empty() {
            break;
        }
        let at = rng.below(parts.len() as u64) as usize;
        match rng.below(8) {
            0 => drop(parts.remove(at)),
            1 => parts.insert(at, parts[at].clone()),
            2 => {
                let other = rng.below(parts.len() as u64) as usize;
                parts.swap(at, other);
            }
            3 | 4 => parts[at].clone_from(pick(rng, words)),
            5 => parts.insert(at, pick(rng, words).clone()),
            kind => {
                // What stands in parentheses here or there, in place of such a part or of a word.
                let file: &Vec<String> = pick(rng, all);
                let other = tokens(pick::<String>(rng, file));
                let theirs = groups(&other);
                if theirs.is_empty() {
                    continue;
                }
                let theirs = pick(rng, &theirs).clone();
                let mine = groups(&parts);
                let place = if kind == 6 && !mine.is_empty() { pick(rng, &mine).clone() } else { at..at + 1 };
                parts.splice(place, other[theirs].iter().cloned());
            }
        }
        if parts.len() > 400 {
            break;
        }
    }
    parts.join(" ")
}

#[test]
fn no_statement_panics() {
    let all = corpus();
    let words: Vec<String> = all.iter().flatten().flat_map(|statement| tokens(statement)).collect();
    let count = std::env::var("THERMOCLINE_MUTATIONS").ok().and_then(|count| count.parse().ok());
    let count: u64 = count.unwrap_or(depth::either(3_000, 60_000));
    let mut rng = Rng::new(depth::seed());
    let mut panicked: Vec<String> = Vec::new();
    let mut done = 0;
    while done < count && panicked.len() < 20 {
        // A file's statements, each followed by others like it.
        let file = pick(&mut rng, &all).clone();
        let options = Options::default().with_memory_limit(Some(64 << 20));
        let db = Database::open_in_memory(options).expect("it opens");
        let mut session = Session::new(&db);
        for statement in &file {
            let _ = session.execute("set statement_timeout = '30ms'", &[]);
            let _ = session.execute(statement, &[]);
            if !rng.chance(0.3) {
                continue;
            }
            for _ in 0..2 {
                let text = mutated(&mut rng, statement, &all, &words);
                done += 1;
                let ran = catch_unwind(AssertUnwindSafe(|| {
                    let _ = session.execute(&text, &[]);
                    thermocline_sql::fuzzing::statements(&text);
                }));
                if ran.is_err() {
                    panicked.push(text);
                    session = Session::new(&db);
                }
            }
        }
    }
    assert!(panicked.is_empty(), "{}", panicked.join("\n"));
}
