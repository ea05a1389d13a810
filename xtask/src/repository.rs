//! The files of the repository: what git tracks or would track, read once.
//!
//! Without git (a source archive) the directories are walked instead, without `target` and hidden ones other than
//! `.ci`, `.cargo` and `.github`.

use crate::lexer;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One text file.
pub(crate) struct File {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    /// Its contents.
    pub(crate) text: String,
    code: OnceCell<String>,
}

impl File {
    fn new(path: String, text: String) -> Self {
        Self { path, text, code: OnceCell::new() }
    }

    /// Its text as Rust, without comments and literals (see [`lexer::code`]).
    pub(crate) fn code(&self) -> &str {
        self.code.get_or_init(|| lexer::code(&self.text))
    }
}

/// All text files of the repository.
pub(crate) struct Repository {
    /// Where it stands.
    pub(crate) root: PathBuf,
    /// Sorted by path.
    pub(crate) files: Vec<File>,
}

impl Repository {
    /// The repository that this crate belongs to.
    pub(crate) fn here() -> Self {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository");
        let mut paths = tracked(root).unwrap_or_else(|| walk(root));
        paths.sort_unstable();
        paths.dedup();
        // A file that is not UTF-8 is no text, and one that git tracks may have been removed: both are left out.
        let read = |path: String| fs::read_to_string(root.join(&path)).ok().map(|text| File::new(path, text));
        Self { root: root.to_owned(), files: paths.into_iter().filter_map(read).collect() }
    }

    /// One made of pairs of path and text, for tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut files: Vec<File> =
            files.iter().map(|&(path, text)| File::new(path.to_owned(), text.to_owned())).collect();
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Self { root: PathBuf::from("nowhere"), files }
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.file(path).map(|file| file.text.as_str())
    }

    /// One file.
    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        let at = self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()?;
        Some(&self.files[at])
    }

    /// Is there such a file, or a directory with one?
    pub(crate) fn exists(&self, path: &str) -> bool {
        let directory = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self.files.iter().any(|file| file.path == path || file.path.starts_with(&directory))
            || self.root.join(path).exists()
    }

    /// The output of a command of git in the repository.
    ///
    /// # Errors
    /// If git is not there, or the command fails.
    pub(crate) fn git(&self, arguments: &[&str]) -> Result<String, String> {
        let mut git = Command::new("git");
        git.args(["-c", "safe.directory=*"]).args(arguments).current_dir(&self.root);
        let output = git.output().map_err(|error| format!("git does not start: {error}"))?;
        if !output.status.success() {
            return Err(format!(
                "git {}: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            ));
        }
        String::from_utf8(output.stdout).map_err(|_| format!("git {}: not UTF-8", arguments.join(" ")))
    }

    /// The lines of files that are newer than the last commit that changed the file `path`. None if git knows of no such commit.
    pub(crate) fn added_since_change_of(&self, path: &str) -> BTreeMap<String, Vec<Range<usize>>> {
        let commit = self.git(&["log", "-1", "--format=%H", "--", path]).unwrap_or_default();
        let diff = match commit.trim() {
            "" => String::new(),
            commit => self.git(&["diff", "--unified=0", "--no-prefix", commit, "--"]).unwrap_or_default(),
        };
        added(&diff)
    }

    /// The Rust files.
    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// The Markdown files.
    pub(crate) fn markdown(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".md"))
    }
}

/// The lines that a diff without context adds, by file.
fn added(diff: &str) -> BTreeMap<String, Vec<Range<usize>>> {
    let mut found: BTreeMap<String, Vec<Range<usize>>> = BTreeMap::new();
    let mut path = "";
    for line in diff.lines() {
        if let Some(next) = line.strip_prefix("+++ ") {
            path = next;
        } else if let Some((_, behind)) = line.strip_prefix("@@ ").and_then(|hunk| hunk.split_once('+')) {
            let numbers = behind.split(' ').next().unwrap_or_default();
            let (first, count) = numbers.split_once(',').unwrap_or((numbers, "1"));
            if let (Ok(first), Ok(count)) = (first.parse::<usize>(), count.parse::<usize>()) {
                found.entry(path.to_owned()).or_default().push(first..first + count);
            }
        }
    }
    found
}

fn tracked(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let names = String::from_utf8(output.stdout).ok()?;
    Some(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

fn walk(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            let hidden = name.starts_with('.') && ![".ci", ".cargo", ".github"].contains(&name.as_str());
            if hidden || name == "target" {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else if let Ok(relative) = path.strip_prefix(root) {
                found.push(relative.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_this_file() {
        let repository = Repository::here();
        assert!(
            repository
                .text("xtask/src/repository.rs")
                .is_some_and(|text| text.contains("fn finds_this_file"))
        );
        assert!(repository.exists("xtask/src") && !repository.exists("xtask/sr"));
        assert!(repository.files.iter().all(|file| !file.path.contains("target/debug")));
    }

    #[test]
    fn added_lines_of_a_diff() {
        let diff = "diff --git a.rs a.rs\n--- a.rs\n+++ a.rs\n@@ -3 +4,2 @@ fn a\n-x\n+y\n+z\n@@ -9,2 +11 @@\n+v\n+++ b.rs\n@@ -1 +0,0 @@\n";
        let found = added(diff);
        assert_eq!(found["a.rs"], [4..6, 11..12]);
        assert!(found["b.rs"].iter().all(std::ops::Range::is_empty));
    }

    #[test]
    fn walking_finds_what_git_finds() {
        let root = Repository::here().root;
        let Some(tracked) = tracked(&root) else { return };
        let walked = walk(&root);
        for path in tracked.iter().filter(|path| path.ends_with(".rs") && root.join(path).exists()) {
            assert!(walked.contains(path), "{path} was not found by walking");
        }
    }
}
