//! The modules of a crate: their files, what each of them imports, and where types are defined.
//!
//! A module is named by its path below `src`: `ops/commit`. Tests are left out: modules that are declared under
//! `cfg(test)`, those named `tests` or `…_tests`, and test items inside of other files.

use crate::lexer::{is_word, line, without_tests, words};
use crate::repository::{File, Repository};
use std::collections::{BTreeMap, BTreeSet};

/// The modules of one crate, without tests.
pub(crate) struct Crate<'a> {
    /// Its files; the crate's root is the one whose module has an empty name.
    pub(crate) sources: Vec<Source<'a>>,
    known: BTreeSet<String>,
    /// Names that the root hands on, with the paths that they stand for.
    reexports: BTreeMap<String, String>,
}

/// A file that holds a module.
pub(crate) struct Source<'a> {
    pub(crate) file: &'a File,
    pub(crate) module: String,
    /// Its text without comments, literals and tests.
    pub(crate) code: String,
}

impl Source<'_> {
    /// `path:line` of the position `at`.
    pub(crate) fn place(&self, at: usize) -> (String, usize) {
        (self.file.path.clone(), line(&self.code, at))
    }
}

/// An import: where it stands, the module that it leads to, and the last name of its path.
pub(crate) struct Import<'s> {
    pub(crate) at: usize,
    pub(crate) module: String,
    pub(crate) name: &'s str,
}

impl<'a> Crate<'a> {
    /// Reads the crate in the folder `name`.
    pub(crate) fn new(repository: &'a Repository, name: &'a str) -> Self {
        let prefix = format!("{name}/src/");
        let mut sources = Vec::new();
        let mut tests = BTreeSet::new();
        for file in repository.rust() {
            let Some(module) = file.path.strip_prefix(&prefix).and_then(module) else { continue };
            let all = file.code();
            let code = without_tests(all);
            let below = if module.is_empty() { String::new() } else { format!("{module}/") };
            let declared: BTreeSet<&str> = declarations(&code).collect();
            tests.extend(
                declarations(all)
                    .filter(|name| !declared.contains(name))
                    .map(|name| format!("{below}{name}")),
            );
            sources.push(Source { file, module, code });
        }
        sources.retain(|source| {
            let named = source.module.split('/').any(|part| part == "tests" || part.ends_with("_tests"));
            !named && !tests.iter().any(|test| is_within(&source.module, test))
        });
        let known =
            sources.iter().map(|source| source.module.clone()).filter(|name| !name.is_empty()).collect();
        let mut found = Self { sources, known, reexports: BTreeMap::new() };
        if let Some(root) = found.sources.iter().find(|source| source.module.is_empty()) {
            let handed_on = paths(root, &found.known);
            found.reexports = handed_on
                .into_iter()
                .map(|(_, path)| (path.last().copied().unwrap_or_default().to_owned(), path.join("/")))
                .collect();
        }
        found
    }

    /// The modules at the top, without the root.
    pub(crate) fn tops(&self) -> BTreeSet<&str> {
        self.known.iter().map(|module| top(module)).collect()
    }

    /// Is there a module of this name?
    pub(crate) fn has(&self, module: &str) -> bool {
        self.known.iter().any(|known| is_within(known, module))
    }

    /// The imports of a file from the crate's modules, its own included.
    pub(crate) fn imports<'s>(&self, source: &'s Source<'_>) -> Vec<Import<'s>> {
        let resolve = |(at, path): (usize, Vec<&'s str>)| {
            let name = path.last().copied()?;
            let spelt = path.join("/");
            let first = top(&spelt);
            let module = match self.reexports.get(first) {
                Some(real) if !self.has(first) => self.module_of(real)?,
                _ => self.module_of(&spelt)?,
            };
            Some(Import { at, module, name })
        };
        paths(source, &self.known).into_iter().filter_map(resolve).collect()
    }

    /// The module that `path` leads into.
    fn module_of(&self, path: &str) -> Option<String> {
        let mut path = path;
        while !self.known.contains(path) {
            path = path.rsplit_once('/')?.0;
        }
        Some(path.to_owned())
    }

    /// The modules that define types, by the types' names.
    pub(crate) fn types(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for source in &self.sources {
            for keyword in ["struct", "enum", "union"] {
                for at in words(&source.code, keyword) {
                    let name = word(source.code[at + keyword.len()..].trim_start());
                    found.entry(name).or_default().push(&source.module);
                }
            }
        }
        found
    }
}

/// The name of the module in the file `path` below `src`: empty for a root.
fn module(path: &str) -> Option<String> {
    let path = path.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    Some(if ["lib", "main"].contains(&path) { String::new() } else { path.to_owned() })
}

/// Is `module` the same as `outer` or inside of it?
pub(crate) fn is_within(module: &str, outer: &str) -> bool {
    module.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The first name of a module's path.
pub(crate) fn top(module: &str) -> &str {
    module.split('/').next().unwrap_or_default()
}

/// The identifier at the start of `text`.
pub(crate) fn word(text: &str) -> &str {
    &text[..text.bytes().take_while(|&byte| is_word(byte)).count()]
}

/// Names of the modules that `code` declares to stand in files of their own.
fn declarations(code: &str) -> impl Iterator<Item = &str> {
    words(code, "mod").filter_map(|at| {
        let rest = code[at + "mod".len()..].trim_start();
        let name = word(rest);
        rest[name.len()..].starts_with(';').then_some(name)
    })
}

/// The paths into the crate that a file names, from the crate's root, with their positions.
fn paths<'s>(source: &'s Source<'_>, known: &BTreeSet<String>) -> Vec<(usize, Vec<&'s str>)> {
    let code = &source.code;
    let own: Vec<&str> = source.module.split('/').filter(|part| !part.is_empty()).collect();
    let mut found = Vec::new();
    let heads = ["crate", "super", "self", "use"];
    for (at, head) in heads.iter().flat_map(|&head| words(code, head).map(move |at| (at, head))) {
        let mut rest = &code[at..];
        let mut above: Vec<&str> = Vec::new();
        if head == "use" {
            // A path that begins with a child of this module.
            rest = rest[head.len()..].trim_start();
            let child = own.iter().copied().chain([word(rest)]).collect::<Vec<_>>().join("/");
            if !known.contains(&child) {
                continue;
            }
        } else if code[..at].ends_with("::") || !rest[head.len()..].starts_with("::") {
            continue;
        }
        let mut depth = own.len();
        let mut from_root = false;
        while let Some((head, next)) = rest.split_once("::") {
            match head {
                "crate" => from_root = true,
                "self" => {}
                "super" if depth > 0 => depth -= 1,
                _ => break,
            }
            rest = next;
        }
        if !from_root {
            above.extend(own.iter().take(depth));
        }
        leaves(rest, &above, code.len(), &mut found);
    }
    found.sort_unstable();
    found
}

/// Adds the paths of a use tree (`a::{b, c::d as e}`) at the start of `text`, which ends where the code of `length` bytes does;
/// returns the text behind it.
fn leaves<'s>(
    text: &'s str,
    above: &[&'s str],
    length: usize,
    found: &mut Vec<(usize, Vec<&'s str>)>,
) -> &'s str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = leaves(rest, above, length, found).trim_start();
            match rest.strip_prefix(',').map(str::trim_start) {
                Some(next) if !next.starts_with('}') => rest = next,
                next => return next.unwrap_or(rest).strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let name = word(text);
    let rest = &text[name.len()..];
    let mut path = above.to_vec();
    path.extend(Some(name).filter(|name| !["", "self"].contains(name)));
    match rest.strip_prefix("::") {
        Some(next) if next.starts_with('{') || next.bytes().next().is_some_and(is_word) => {
            return leaves(next, &path, length, found);
        }
        _ => found.push((length - text.len(), path)),
    }
    let rest = rest.strip_prefix("::*").unwrap_or(rest);
    match rest.trim_start().strip_prefix("as ") {
        Some(alias) => &alias[word(alias).len()..],
        None => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let files = [
            (
                "a/src/lib.rs",
                "//! A.\nmod b;\nmod c;\nmod helped;\n#[cfg(test)]\nmod played;\npub use c::d::{Deep, E as F};\n",
            ),
            ("a/src/b.rs", "//! B.\n"),
            ("a/src/c/mod.rs", "//! C.\nmod d;\n"),
            ("a/src/c/d.rs", "//! D.\n"),
            ("a/src/played.rs", "//! Tests.\nuse crate::b;\n"),
            ("a/src/b/some_tests.rs", "//! Tests.\nuse crate::b;\n"),
        ];
        let mut files: Vec<_> = files.into_iter().filter(|(at, _)| *at != path).collect();
        files.push((path, text));
        let repository = Repository::of(&files);
        let made = Crate::new(&repository, "a");
        let source = made.sources.iter().find(|source| source.file.path == path).expect("no test");
        let show = |import: Import<'_>| {
            format!("{} {} {}", line(&source.code, import.at), import.module, import.name)
        };
        made.imports(source).into_iter().map(show).collect()
    }

    #[test]
    fn paths_lead_to_modules() {
        let cases: [(&str, &str, &[&str]); 9] = [
            ("a/src/b.rs", "use crate::c::d::X;", &["1 c/d X"]),
            (
                "a/src/b.rs",
                "use crate::{\nc::{self, d::{X, Y as Z}},\nb,\n};",
                &["2 c c", "2 c/d X", "2 c/d Y", "3 b b"],
            ),
            ("a/src/b.rs", "use crate::Deep;", &["1 c/d Deep"]),
            ("a/src/b.rs", "fn f() -> crate::c::X<u8> { crate::c::d::g::<u8>() }", &["1 c X", "1 c/d g"]),
            ("a/src/b.rs", "use super::c::*;\nuse super::super::c;", &["1 c c"]),
            ("a/src/c/mod.rs", "mod d;\npub use d::X;\nuse self::d::Y;", &["2 c/d X", "3 c/d Y"]),
            ("a/src/c/d.rs", "use super::X;\nuse super::super::b;", &["1 c X", "2 b b"]),
            ("a/src/b.rs", "#[cfg(test)]\nmod tests { use crate::c; }\n// crate::c\n", &[]),
            ("a/src/b.rs", "use std::c;\nuse other::crate_c::d;\nuse crate::Unknown;", &[]),
        ];
        for (path, text, expected) in cases {
            assert_eq!(found(path, text), expected, "{path} {text}");
        }
    }

    #[test]
    fn tests_are_no_modules() {
        let repository = Repository::of(&[
            ("a/src/main.rs", "#[cfg(all(test, unix))]\nmod played;\nmod b;\n"),
            ("a/src/played/mod.rs", "mod more;\n"),
            ("a/src/played/more.rs", "struct X;\n"),
            ("a/src/b.rs", "struct X;\nenum Y { Z }\n"),
            ("a/src/b/tests/one.rs", "struct X;\n"),
            ("other/src/c.rs", "struct X;\n"),
        ]);
        let made = Crate::new(&repository, "a");
        assert_eq!(made.tops().into_iter().collect::<Vec<_>>(), ["b"]);
        assert_eq!(made.types()["X"], ["b"]);
        assert!(made.has("b") && !made.has("played"));
    }
}
