//! Structs that should consist of parts: of types of ours with private fields.
//!
//! A visible field of another type can be read and changed from anywhere, so no file holds its rules. Modules inside of the
//! struct's own see its private fields, too; these are not counted.

use crate::lexer::{line, without_tests, words};
use crate::measure::{Measure, Place};
use crate::modules::word;
use crate::repository::Repository;
use std::collections::BTreeMap;

/// The files of the structs, and their names.
const WHOLES: [(&str, &str); 3] = [
    ("engine/src/session/mod.rs", "Session"),
    ("engine/src/session/db.rs", "Inner"),
    ("sql/src/session/mod.rs", "Session"),
];
/// Types that only point to a value.
const POINTERS: [&str; 3] = ["Arc", "Box", "Rc"];

/// Locks and atomics, which guard nothing by themselves.
const LOCKS: &str = "base/src/sync";

/// Counts the visible fields that are no parts.
pub(crate) fn open(repository: &Repository) -> Measure {
    let guarding = Guarding::new(repository);
    let mut places = Vec::new();
    for (path, name) in WHOLES {
        let Some(file) = repository.file(path) else { continue };
        let code = without_tests(file.code());
        for field in
            structs(&code).filter(|(_, found, _)| *found == name).flat_map(|(_, _, body)| fields(&code, body))
        {
            if field.visible && !guarding.knows(path, field.ty) {
                let what = format!("`{name}.{}` is visible, and its type guards nothing", field.name);
                places.push(Place { path: path.to_owned(), line: line(&code, field.at), what });
            }
        }
    }
    Measure {
        name: "open",
        is: "visible fields of a whole whose type isn't one of ours with private fields",
        advice: "put the field into a part, a struct with private fields and methods",
        places,
    }
}

/// Checks that the structs stand where [`WHOLES`] says.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    let missing = WHOLES.iter().filter(|(path, name)| match repository.file(path) {
        Some(file) => structs(file.code()).all(|(_, found, _)| found != *name),
        None => repository.exists("xtask/src/parts.rs"),
    });
    missing
        .map(|(path, name)| format!("{path}: no struct `{name}`: say in xtask/src/parts.rs where it is"))
        .collect()
}

/// The types that guard what they hold, by crate and name. Of several in a crate that share a name each must.
struct Guarding(BTreeMap<(String, String), bool>);

impl Guarding {
    fn new(repository: &Repository) -> Self {
        let mut found = BTreeMap::new();
        let files = repository.rust().filter(|file| !file.path.starts_with(LOCKS));
        for (file, folder) in files.filter_map(|file| Some((file, file.path.split_once("/src/")?.0))) {
            let code = without_tests(file.code());
            for (_, name, body) in structs(&code) {
                let guards = fields(&code, body).iter().any(|field| !field.visible);
                *found.entry((folder.to_owned(), name.to_owned())).or_insert(true) &= guards;
            }
        }
        Self(found)
    }

    /// Does the type `ty`, as the file `path` spells it, guard what it holds? Of a trait object nothing but methods is visible.
    fn knows(&self, path: &str, ty: &str) -> bool {
        let head = head(ty);
        let own = path.split_once("/src/").map_or("", |(folder, _)| folder);
        let mut named = self.0.iter().filter(|((_, name), _)| name == head);
        let near = self.0.get(&(own.to_owned(), head.to_owned()));
        head.starts_with("dyn ")
            || near.copied().or_else(|| named.next().map(|(_, guards)| *guards)).unwrap_or(false)
    }
}

/// The structs of `code`: where they begin, their names, and the range of their fields.
fn structs(code: &str) -> impl Iterator<Item = (usize, &str, std::ops::Range<usize>)> {
    words(code, "struct").map(|at| {
        let rest = &code[at + "struct".len()..];
        let name = word(rest.trim_start());
        let open = rest.find(['{', '(', ';']).unwrap_or(rest.len());
        let inner = &rest[open..];
        let length = if inner.starts_with(';') { 0 } else { closing(inner) };
        let start = at + "struct".len() + open;
        (at, name, start + usize::from(length > 0)..start + length)
    })
}

/// Where the bracket that opens at the start of `text` is closed.
fn closing(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// A field of a struct.
struct Field<'a> {
    at: usize,
    visible: bool,
    /// Empty in a tuple.
    name: &'a str,
    ty: &'a str,
}

fn fields(code: &str, body: std::ops::Range<usize>) -> Vec<Field<'_>> {
    let mut found = Vec::new();
    let mut at = body.start;
    while at < body.end {
        let mut rest = code[at..body.end].trim_start();
        while rest.starts_with("#[") {
            rest = rest[closing(&rest[1..]) + 2..].trim_start();
        }
        if rest.is_empty() {
            break;
        }
        let start = body.end - rest.len();
        let field = &rest[..comma(rest)];
        at = start + field.len() + 1;
        let visible = word(field) == "pub";
        let mut spelt = if visible { field["pub".len()..].trim_start() } else { field };
        if visible && spelt.starts_with('(') {
            spelt = spelt[closing(spelt) + 1..].trim_start();
        }
        let (name, ty) = match spelt[word(spelt).len()..].strip_prefix(':').filter(|ty| !ty.starts_with(':'))
        {
            Some(ty) => (word(spelt), ty.trim()),
            None => ("", spelt.trim()),
        };
        found.push(Field { at: start, visible, name, ty });
    }
    found
}

/// Where the first comma stands that is inside of no bracket.
fn comma(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b'>' if text[..at].ends_with('-') => {}
            b')' | b']' | b'}' | b'>' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

/// The name of the type that a field's type is or points to.
fn head(ty: &str) -> &str {
    let path = &ty[..ty.find('<').unwrap_or(ty.len())];
    if path.starts_with("dyn ") {
        return path;
    }
    let name = path.rsplit("::").next().unwrap_or_default().trim();
    match ty.strip_suffix('>') {
        Some(inner) if POINTERS.contains(&name) => head(&inner[path.len() + 1..]),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_fields(fields: &str) -> Vec<String> {
        let text = format!("//! D.\npub(crate) struct Inner {{\n    {fields}\n}}\n");
        let files = [
            (WHOLES[1].0, &*text),
            (
                "a/src/b.rs",
                "struct Part<T> {\n    a: T,\n}\nstruct Raw { pub(crate) a: u8, b: u8 }\nstruct Open { pub(crate) a: u8, pub b: u8 }\nstruct Pair(pub u8, pub u8);\nstruct One(u8);\n",
            ),
            ("a/src/c.rs", "struct Twice { a: u8 }\n"),
            ("base/src/sync/mod.rs", "struct Lock<T> { a: T }\n"),
            ("engine/src/e.rs", "struct Near { a: u8 }\n"),
            (
                "a/src/d.rs",
                "struct Near { pub a: u8 }\nstruct Twice { pub a: u8 }\n#[cfg(test)]\nstruct Part { pub a: u8 }\n",
            ),
        ];
        open(&Repository::of(&files))
            .places
            .iter()
            .map(|place| format!("{}:{}", place.line, place.what))
            .collect()
    }

    #[test]
    fn parts_are_no_open_fields() {
        let private = [
            "a: u8,",
            "pub a: Near",
            "pub(crate) a: Part<u8>, b: Vec<u8>",
            "/// A.\n    #[cfg(a = \"b\")]\n    pub a: Arc<Part<(u8, u8)>>,",
            "pub a: Raw, b: Arc<dyn std::fmt::Debug + 'static>",
            "pub a: std::sync::Arc<crate::b::One>, c: fn(u8, u8) -> u8,",
        ];
        for fields in private {
            assert_eq!(open_fields(fields), Vec::<String>::new(), "{fields}");
        }
        let visible = [
            "pub(crate) a: u8,",
            "pub(in crate::b) a: Option<Part<u8>>, b: u8",
            "pub(super) a: Mutex<Part<u8>>,",
            "pub a: Open,",
            "pub a: base::sync::Lock<u8>",
            "pub a: Pair,",
            "pub a: Twice,",
            "b: HashMap<u8, u8>, #[cfg(any(a, b))] pub a: (u8, u8),",
        ];
        for fields in visible {
            let found = open_fields(fields);
            assert!(found.len() == 1 && found[0].starts_with("3:`Inner.a` is visible"), "{fields} {found:?}");
        }
    }

    #[test]
    fn a_whole_that_moves_is_missed() {
        let here = |text: &str| check(&Repository::of(&[(WHOLES[1].0, text)]));
        assert_eq!(here("struct Inner {}\n"), Vec::<String>::new());
        assert!(here("struct Other {}\n").concat().contains("no struct `Inner`"));
    }
}
