//! The golden files: what PostgreSQL 15 answers (`tests/record.py` writes it), this crate answers, too.
//!
//! `THERMOCLINE_GOLDEN` names a directory of further files, for what is generated and recorded anew (`.ci/deep`).
//! Behind a remark `-- only the code`, messages and positions of the next statement's error are not compared.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use thermocline_engine::{Database, Options};
use thermocline_sql::{Answer, Session};

struct Case {
    statement: String,
    expected: Vec<String>,
    only_code: bool,
    line: usize,
}

fn cases(text: &str) -> Vec<Case> {
    let mut all: Vec<Case> = Vec::new();
    let mut only_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("--") {
            only_code |= line == "-- only the code";
        } else if let Some(statement) = line.strip_prefix("> ") {
            let statement = statement.to_owned();
            all.push(Case { statement, expected: Vec::new(), only_code, line: number + 1 });
            only_code = false;
        } else if let Some(more) = line.strip_prefix("| ") {
            let last = all.last_mut().expect("a statement comes first");
            last.statement = format!("{}\n{more}", last.statement);
        } else if !line.is_empty() {
            all.last_mut().expect("a statement comes first").expected.push(line.to_owned());
        }
    }
    all
}

fn escape(value: Option<String>) -> String {
    match value {
        None => "\\N".to_owned(),
        Some(text) => {
            text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
        }
    }
}

fn lines(statement: &str, answer: &Answer) -> Vec<String> {
    let makes_table = statement.starts_with("create table") || statement.contains(" into ");
    if answer.columns.is_empty() && (makes_table || !answer.tag.starts_with("SELECT")) {
        return vec![format!("# {}", answer.tag)];
    }
    let mut header = String::from("?");
    for column in &answer.columns {
        write!(header, " {}:{}", column.ty.name(), column.name.replace(' ', "_"))
            .expect("strings take everything");
    }
    let mut rows: Vec<String> = (0..answer.rows.len())
        .map(|row| {
            let values: Vec<String> =
                (0..answer.columns.len()).map(|column| escape(answer.text(row, column))).collect();
            format!("  {}", values.join("\t"))
        })
        .collect();
    if !statement.to_lowercase().contains("order by") {
        rows.sort();
    }
    let mut out = vec![if header == "?" { "? ".to_owned() } else { header }];
    out.extend(rows);
    out
}

/// What differs in a file, and how many statements it has.
fn check(path: &Path) -> (Vec<String>, usize) {
    let text = std::fs::read_to_string(path).expect("the file can be read");
    let db =
        Database::open_in_memory(Options::default().with_memory_limit(Some(256 << 20))).expect("it opens");
    let mut session = Session::new(&db);
    let mut wrong = Vec::new();
    let all = cases(&text);
    for case in &all {
        let found = match session.execute(&case.statement, &[]) {
            Ok(answer) => lines(&case.statement, &answer),
            Err(error) => {
                let position = error.position.map_or("-".to_owned(), |position| position.to_string());
                vec![format!("! {} {position} {}", error.code, error.message)]
            }
        };
        let cut = |lines: &[String]| -> Vec<String> {
            let code = |line: &String| {
                if line.starts_with('!') { line.chars().take(7).collect() } else { line.clone() }
            };
            if case.only_code { lines.iter().map(code).collect() } else { lines.to_vec() }
        };
        let trim = |lines: Vec<String>| -> Vec<String> {
            lines.iter().map(|line| line.trim_end_matches(' ').to_owned()).collect()
        };
        if trim(cut(&found)) != trim(cut(&case.expected)) {
            let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            wrong.push(format!(
                "{file}:{}\n> {}\nPostgreSQL:\n{}\nhere:\n{}\n",
                case.line,
                case.statement,
                case.expected.join("\n"),
                found.join("\n")
            ));
        }
    }
    (wrong, all.len())
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the directory can be read");
    let mut all: Vec<PathBuf> = entries
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "golden"))
        .collect();
    all.sort();
    all
}

#[test]
fn answers_are_those_of_postgresql() {
    let mut directories = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"))];
    directories.extend(std::env::var_os("THERMOCLINE_GOLDEN").map(PathBuf::from));
    let (mut wrong, mut statements) = (Vec::new(), 0);
    for path in directories.iter().flat_map(|directory| files(directory)) {
        let (mine, count) = check(&path);
        wrong.extend(mine);
        statements += count;
    }
    assert!(statements > 100, "the golden files are there");
    assert!(wrong.is_empty(), "{} of {statements} statements:\n{}", wrong.len(), wrong.join("\n"));
}
