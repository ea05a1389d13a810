//! The files of the repository: what git tracks or would track, read once.
//!
//! Without git (a source archive) the directories are walked instead, without `target` and hidden ones other than
//! `.ci`, `.cargo` and `.github`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One text file.
pub(crate) struct File {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    /// Its contents.
    pub(crate) text: String,
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
        let read = |path: String| fs::read_to_string(root.join(&path)).ok().map(|text| File { path, text });
        Self { root: root.to_owned(), files: paths.into_iter().filter_map(read).collect() }
    }

    /// One made of pairs of path and text, for tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut files: Vec<File> =
            files.iter().map(|&(path, text)| File { path: path.to_owned(), text: text.to_owned() }).collect();
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Self { root: PathBuf::from("nowhere"), files }
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        let at = self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()?;
        Some(&self.files[at].text)
    }

    /// Is there such a file, or a directory with one?
    pub(crate) fn exists(&self, path: &str) -> bool {
        let directory = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self.files.iter().any(|file| file.path == path || file.path.starts_with(&directory))
            || self.root.join(path).exists()
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
    fn walking_finds_what_git_finds() {
        let root = Repository::here().root;
        let Some(tracked) = tracked(&root) else { return };
        let walked = walk(&root);
        for path in tracked.iter().filter(|path| path.ends_with(".rs") && root.join(path).exists()) {
            assert!(walked.contains(path), "{path} was not found by walking");
        }
    }
}
