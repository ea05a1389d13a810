//! English in comments: riddles that are counted, and the proof that a change touches nothing else.
//!
//! A riddle hides the actor behind one of the words of [`HIDING`] (better: the reader, the writer, the waiter), or opens a doc
//! with a question instead of what the thing is or does.

use crate::lexer::{Kind, is_word, line, pieces, without_comments, words};
use crate::measure::{Measure, Place};
use crate::repository::{File, Repository};
use std::collections::BTreeSet;

/// Words that hide the actor.
const HIDING: [&str; 4] = ["who", "whom", "nobody", "somebody"];
/// First words of a doc that asks.
const ASKING: [&str; 6] = ["What", "How", "Who", "Whom", "Whether", "So many"];

/// Counts the lines with a riddle: of comments in Rust, and of all text in Markdown.
pub(crate) fn riddles(repository: &Repository) -> Measure {
    let mut places = Vec::new();
    for file in repository.rust() {
        for comment in comments(file) {
            places.extend(riddle(&comment).map(|what| Place {
                path: file.path.clone(),
                line: comment.line,
                what,
            }));
        }
    }
    for file in repository.markdown() {
        let lines = (1..).zip(file.text.lines());
        let comments = lines.map(|(line, text)| Comment { line, text, opens_doc: false });
        places.extend(comments.filter_map(|comment| {
            riddle(&comment).map(|what| Place { path: file.path.clone(), line: comment.line, what })
        }));
    }
    Measure {
        name: "prose",
        is: "lines that hide the actor (who, whom, nobody, somebody), or docs that open with a question (What, How, Who, Whether, So many)",
        advice: "begin with the subject, and name the actor: the reader, the writer, the waiter",
        places,
    }
}

/// A line of a comment, without what makes it one.
struct Comment<'a> {
    line: usize,
    text: &'a str,
    /// It is the first line of a doc comment.
    opens_doc: bool,
}

fn comments(file: &File) -> Vec<Comment<'_>> {
    let mut found: Vec<Comment<'_>> = Vec::new();
    // The mark and the last line of the doc comment before.
    let mut before = ("", 0);
    // The line of the last comment, and where that begins.
    let (mut first, mut counted) = (1, 0);
    for (range, _) in pieces(&file.text).into_iter().filter(|(_, kind)| *kind == Kind::Comment) {
        let text = &file.text[range.clone()];
        first += line(&file.text[counted..], range.start - counted) - 1;
        counted = range.start;
        let mark =
            ["///", "//!", "/**", "/*!"].into_iter().find(|mark| text.starts_with(mark)).unwrap_or_default();
        let is_doc = !mark.is_empty() && !["////", "/***"].iter().any(|plain| text.starts_with(plain));
        for (at, text) in text.lines().enumerate() {
            let text = text.trim_start_matches(['/', '!', '*', ' ']);
            let opens_doc = is_doc && at == 0 && before != (mark, first - 1);
            found.push(Comment { line: first + at, text, opens_doc });
        }
        before = if is_doc { (mark, first + text.lines().count() - 1) } else { ("", 0) };
    }
    found
}

/// The riddle in a line, if there is one.
fn riddle(comment: &Comment<'_>) -> Option<String> {
    let lower = comment.text.to_ascii_lowercase();
    let asks = ASKING.into_iter().find(|asking| {
        let behind = comment.text.strip_prefix(asking);
        behind.is_some_and(|behind| !behind.bytes().next().is_some_and(is_word))
    });
    match HIDING.into_iter().find(|hiding| words(&lower, hiding).next().is_some()) {
        Some(hiding) => Some(format!("`{hiding}` hides the actor")),
        None if comment.opens_doc => asks.map(|asking| format!("a doc opens with `{asking}`")),
        None => None,
    }
}

/// Proves that between the commit `revision` and the working tree only comments of Rust files changed, doc comments included.
/// Markdown and the ratchet may have changed, too: both are named. The program is the same, but for the help texts that `clap`
/// makes of doc comments, and for tests in docs.
///
/// # Errors
/// If anything else has changed, or git does not know the commit.
pub(crate) fn prove(repository: &Repository, revision: &str) -> Result<(), String> {
    let mut changed = repository.git(&["diff", "--name-only", "-z", "--no-renames", revision, "--"])?;
    changed.push_str(&repository.git(&["ls-files", "-z", "--others", "--exclude-standard"])?);
    let changed: BTreeSet<&str> = changed.split('\0').filter(|path| !path.is_empty()).collect();
    let mut problems = Vec::new();
    let (mut files, mut besides) = (0, Vec::new());
    for path in changed {
        if path.ends_with(".md") || path == "ratchet.toml" {
            besides.push(path);
            continue;
        }
        files += 1;
        let before = repository.git(&["show", &format!("{revision}:{path}")]).ok();
        problems.extend(difference(path, before.as_deref(), repository.text(path)));
    }
    if !problems.is_empty() {
        return Err(format!(
            "{}\nprose: {} files differ in more than comments",
            problems.join("\n"),
            problems.len()
        ));
    }
    println!("prose: {files} files differ from {revision}, in comments only");
    if !besides.is_empty() {
        println!("changed besides: {}", besides.join(", "));
    }
    Ok(())
}

/// The first difference between two texts of a file that is no comment.
fn difference(path: &str, before: Option<&str>, after: Option<&str>) -> Option<String> {
    let (Some(before), Some(after)) = (before, after) else {
        return Some(format!("{path}: it is new, gone, or no text"));
    };
    if !path.ends_with(".rs") {
        return Some(format!("{path}: it has changed and is no Rust file"));
    }
    let (before, after) = (without_comments(before), without_comments(after));
    let differs = before.iter().zip(&after).position(|(before, after)| before != after);
    let at = differs.or((before.len() != after.len()).then(|| before.len().min(after.len())))?;
    let excerpt = |words: &[&str]| words[at.saturating_sub(3)..(at + 4).min(words.len())].join(" ");
    Some(format!("{path}: `{}` was `{}`", excerpt(&after), excerpt(&before)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn riddles_are_found() {
        let cases: [(&str, &[usize]); 12] = [
            ("//! A.\n/// What it is.\nfn a() {}\n", &[2]),
            ("//! A.\n/// A thing.\n/// What it is.\nfn a() {}\n", &[]),
            ("//! How it goes.\n\n/// So many rows.\nfn a() {}\n", &[1, 3]),
            (
                "//! A.\n/// Whatever.\nstruct A {\n    /// How many.\n    a: u8,\n    /// Whether.\n    b: u8,\n}\n",
                &[4, 6],
            ),
            ("//! A.\n// What it is.\n//// What it is.\nfn a() {}\n", &[]),
            ("//! A.\nfn a() {} // Nobody, and somebody\n", &[2]),
            ("//! A.\nfn who() { f(\"who\") }\n", &[]),
            ("//! A.\n/*\n * Who comes.\n */\n", &[3]),
            ("//! A.\n/** What\n who\n whole\n*/\nfn a() {}\n", &[2, 3]),
            ("//! A.\n\n/// Who waits, whom\nfn a() {}\n", &[3]),
            ("//! A.\n/// A.\n#[b]\n/// What.\nfn a() {}\n", &[4]),
            ("//! A.\n//! What.\n/// How.\nfn a() {}\n", &[3]),
        ];
        for (text, expected) in cases {
            let found = riddles(&Repository::of(&[("a.rs", text)])).places;
            let lines: Vec<usize> = found.iter().map(|place| place.line).collect();
            assert_eq!(lines, expected, "{text}");
        }
        let page = riddles(&Repository::of(&[("a.md", "# What\n\nIt says who.\n")])).places;
        assert_eq!(page.iter().map(|place| place.line).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn only_comments_may_differ() {
        let before = "//! A.\n/// B.\nfn a() {\n    f(\"b  c\"); // d\n}\n";
        let comments = "//! Another.\n\nfn a() {\n    // e\n    f(\"b  c\");\n}\n";
        assert_eq!(difference("a.rs", Some(before), Some(comments)), None);
        let cases = [
            (before.replace("b  c", "b c"), "`a() { f( \"b c\" ); }` was `a() { f( \"b  c\" ); }`"),
            (before.replace("f(", "g("), "`fn a() { g( \"b  c\" ); }` was"),
            (before.replace("}\n", "}\nfn b() {}\n"), "fn b() {}"),
            (before.replace("// d\n}", "// d }"), "a.rs: `"),
        ];
        for (after, expected) in cases {
            let found = difference("a.rs", Some(before), Some(&after)).unwrap_or_default();
            assert!(found.contains(expected), "{after}: {found}");
        }
        assert!(difference("a.rs", None, Some(before)).is_some());
        assert!(difference("a.toml", Some("a"), Some("b")).is_some());
    }
}
