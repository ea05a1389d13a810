//! The order of a crate's modules, from the bottom up, and what goes against it.
//!
//! ARCHITECTURE.md has a table for each crate of [`ORDERED`]: a floor a row, the lowest first. A module imports from
//! its own row and from the rows above it. A row may name a part of a module (`ops/commit`), which then stands there and not
//! where the rest of the module does. What goes against the order today is counted by the ratchet:
//!
//! | count | is |
//! |---|---|
//! | `upward` | a file's imports from a module on a higher floor, one for each such module |
//! | `impls` | files with an inherent `impl` of a type that is defined on another floor: its methods are called without an import |
//! | `cycles` | modules that import each other in a circle |

use crate::lexer::words;
use crate::markdown::{quoted, table};
use crate::measure::{Measure, Place};
use crate::modules::{Crate, Source, is_within, top, word};
use crate::repository::Repository;
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;

const PAGE: &str = "ARCHITECTURE.md";
/// The crates with a table of floors.
const ORDERED: [&str; 3] = ["engine", "sql", "pool"];

/// The rows of a table: a floor's name, and the modules on it. The lowest comes first.
struct Floors<'a>(Vec<(&'a str, Vec<&'a str>)>);

impl<'a> Floors<'a> {
    fn read(page: &'a str, of: &str) -> Option<Self> {
        let cell = |row: &[&'a str], at: usize| row.get(at).copied().unwrap_or_default();
        let rows = table(page, &header(of))?;
        Some(Self(rows.iter().map(|row| (cell(row, 0), quoted(cell(row, 1)).collect())).collect()))
    }

    /// The floor of a module, from 0, with the name that stands in its row.
    fn of(&self, module: &str) -> Option<(usize, &'a str)> {
        let rows = self.0.iter().enumerate();
        let named = rows.flat_map(|(at, (_, names))| names.iter().map(move |name| (at, *name)));
        named.filter(|(_, name)| is_within(module, name)).max_by_key(|(_, name)| name.len())
    }

    fn name(&self, floor: usize) -> &'a str {
        self.0[floor].0
    }
}

/// The first header cell of the table of floors of a crate.
fn header(of: &str) -> String {
    format!("floor of {of}")
}

/// Checks that the tables name each module once, and nothing else.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    let page = repository.text(PAGE).unwrap_or_default();
    let mut problems = Vec::new();
    for name in ORDERED {
        let made = Crate::new(repository, name);
        if made.sources.is_empty() {
            continue;
        }
        let Some(floors) = Floors::read(page, name) else {
            problems
                .push(format!("{PAGE}: no table of floors (its first header cell is `{}`)", header(name)));
            continue;
        };
        for module in made.tops().into_iter().filter(|module| floors.of(module).is_none()) {
            problems
                .push(format!("{PAGE}: no row for the module `{module}` of `{name}` in its table of floors"));
        }
        let mut seen = BTreeSet::new();
        for named in floors.0.iter().flat_map(|(_, names)| names) {
            if !made.has(named) {
                problems.push(format!("{PAGE}: `{named}` has a floor and is no module of `{name}`"));
            }
            if !seen.insert(named) {
                problems.push(format!("{PAGE}: `{named}` of `{name}` stands on two floors"));
            }
        }
    }
    problems
}

/// Counts `upward`, `impls` and `cycles`.
pub(crate) fn measures(repository: &Repository) -> Vec<Measure> {
    let page = repository.text(PAGE).unwrap_or_default();
    let mut upward = Measure {
        name: "upward",
        is: "imports from a higher floor, one for each file and module",
        advice: "move what is imported down, or the importing code up (the floors stand in ARCHITECTURE.md)",
        places: Vec::new(),
    };
    let mut impls = Measure {
        name: "impls",
        is: "files with an inherent impl of a type that is defined on another floor",
        advice: "write a function over the type, or move the method to the floor of its type",
        places: Vec::new(),
    };
    let mut cycles = Measure {
        name: "cycles",
        is: "modules that import each other in a circle",
        advice: "cut one of the imports that close the circle",
        places: Vec::new(),
    };
    for folder in folders(repository) {
        let made = Crate::new(repository, folder);
        circles(&made, &mut cycles.places);
        if let Some(floors) = Floors::read(page, folder) {
            arrows(&made, &floors, &mut upward.places);
            away(&made, &floors, &mut impls.places);
        }
    }
    vec![upward, impls, cycles]
}

/// The folders that are crates.
fn folders(repository: &Repository) -> BTreeSet<&str> {
    let roots = repository.rust().filter_map(|file| file.path.split_once("/src/"));
    let is_crate = |folder: &&str| repository.file(&format!("{folder}/Cargo.toml")).is_some();
    roots.map(|(folder, _)| folder).filter(is_crate).collect()
}

/// Adds a place for each file and module on a higher floor that it imports from.
fn arrows(made: &Crate<'_>, floors: &Floors<'_>, places: &mut Vec<Place>) {
    for source in &made.sources {
        let Some((own, _)) = floors.of(&source.module) else { continue };
        let mut seen = BTreeSet::new();
        for import in made.imports(source) {
            let Some((other, name)) = floors.of(&import.module) else { continue };
            if other > own && seen.insert(name) {
                let (from, to) = (floors.name(own), floors.name(other));
                places.push(Place::new(
                    source,
                    import.at,
                    format!("`{name}` is on the floor {to}, above {from}"),
                ));
            }
        }
    }
}

/// Adds a place for each file with an inherent `impl` of a type from another floor.
fn away(made: &Crate<'_>, floors: &Floors<'_>, places: &mut Vec<Place>) {
    let types = made.types();
    for source in &made.sources {
        let Some((own, _)) = floors.of(&source.module) else { continue };
        let home = |name: &str| {
            let defined = types.get(name)?;
            let imported = made.imports(source).into_iter().find(|import| import.name == name);
            let module = match &imported {
                Some(import) => defined.iter().find(|module| is_within(module, &import.module)),
                None => defined.iter().find(|module| **module == source.module),
            };
            let module = module.or(defined.first())?;
            Some(floors.of(module)?.0)
        };
        let foreign = inherent(source).into_iter().find_map(|(at, name)| {
            let floor = home(name).filter(|floor| *floor != own)?;
            Some((
                at,
                format!(
                    "`{name}` is defined on the floor {}, not on {}",
                    floors.name(floor),
                    floors.name(own)
                ),
            ))
        });
        places.extend(foreign.map(|(at, what)| Place::new(source, at, what)));
    }
}

/// The inherent `impl` blocks of a file: where they begin, and of which type they are.
fn inherent<'s>(source: &'s Source<'_>) -> Vec<(usize, &'s str)> {
    let code = &source.code;
    let mut found = Vec::new();
    for at in words(code, "impl") {
        let item = code[..at].trim_end();
        if !(item.is_empty() || item.ends_with(['{', '}', ';', ']'])) {
            continue;
        }
        let rest = &code[at + "impl".len()..];
        let rest = rest[generics(rest)..].trim_start();
        let head = &rest[..rest.find('{').unwrap_or(rest.len())];
        if words(head, "for").any(|at| !head[at + "for".len()..].starts_with('<')) {
            continue;
        }
        let path = &head[..head.find(|next: char| next == '<' || next.is_whitespace()).unwrap_or(head.len())];
        found.push((at, word(path.rsplit("::").next().unwrap_or_default())));
    }
    found
}

/// The length of the generic parameters `<…>` at the start of `text`.
fn generics(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if !text[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if byte == b'>' { at + 1 } else { 0 };
        }
    }
    0
}

/// Adds a place for each module in a circle: an import that leads on in it.
fn circles(made: &Crate<'_>, places: &mut Vec<Place>) {
    let mut graph = DiGraphMap::<&str, (), RandomState>::new();
    let mut imports: BTreeMap<(&str, String), (&Source<'_>, usize)> = BTreeMap::new();
    let known = made.tops();
    for source in made.sources.iter().filter(|source| !source.module.is_empty()) {
        let from = top(&source.module);
        for import in made.imports(source) {
            let Some(to) = known.get(top(&import.module)).filter(|to| **to != from) else { continue };
            graph.add_edge(from, to, ());
            imports.entry((from, (*to).to_owned())).or_insert((source, import.at));
        }
    }
    for circle in tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1) {
        for ((from, to), (source, at)) in &imports {
            let leads_on = circle.contains(from) && circle.contains(&to.as_str());
            let first = imports.keys().find(|(other, next)| other == from && circle.contains(&next.as_str()));
            if leads_on && first.is_some_and(|(_, next)| next == to) {
                let what = format!("`{from}` imports `{to}`, in a circle of {}", circle.len());
                places.push(Place::new(source, *at, what));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "| floor of engine | modules | holds |\n|---|---|---|\n| ground | `log` | log |\n| middle | `hot`, `ops` | rows |\n| top | `ops/big`, `db` | handles |\n";

    fn repository<'a>(path: &'a str, text: &'a str) -> Vec<(&'a str, &'a str)> {
        let mut files = vec![
            (PAGE, TABLE),
            ("engine/Cargo.toml", ""),
            ("engine/src/lib.rs", "//! E.\nuse crate::db::Database;\npub use db::Handle;\n"),
            ("engine/src/log.rs", "//! L.\npub(crate) struct Log<T> {\n    a: T,\n}\n"),
            ("engine/src/hot/mod.rs", "//! H.\nuse crate::log;\nuse super::ops::X;\n"),
            ("engine/src/ops/mod.rs", "//! O.\nmod big;\nuse crate::log;\n"),
            ("engine/src/ops/big.rs", "//! B.\nuse super::X;\nuse crate::db;\n"),
            ("engine/src/db.rs", "//! D.\nuse crate::log;\nimpl Handle {}\nstruct Handle;\n"),
        ];
        files.retain(|(at, _)| *at != path);
        files.push((path, text));
        files
    }

    fn measured(path: &str, text: &str) -> Vec<String> {
        let files = repository(path, text);
        let measures = measures(&Repository::of(&files));
        measures
            .iter()
            .flat_map(|measure| {
                measure
                    .places
                    .iter()
                    .map(|place| format!("{} {}:{} {}", measure.name, place.path, place.line, place.what))
            })
            .collect()
    }

    #[test]
    fn the_order_is_kept() {
        assert_eq!(measured("engine/src/x.txt", ""), Vec::<String>::new());
        let allowed = "//! H.\nimpl<T: Fn() -> u8> std::fmt::Debug for crate::log::Log<T> {}\nfn f(a: impl Log) -> impl Log {}\n#[cfg(test)]\nimpl Log {}\n";
        assert_eq!(measured("engine/src/hot/mod.rs", allowed), Vec::<String>::new());
    }

    #[test]
    fn what_goes_against_it_is_counted() {
        let whole = "//! H.\nuse crate::log::Log;\nimpl<T: Fn() -> u8> Log<T>\nwhere\n    for<'a> T: A<'a>,\n{\n}\nimpl Log<u8> {}\n";
        let cases: [(&str, &str, &[&str]); 7] = [
            (
                "engine/src/log.rs",
                "//! L.\nuse crate::{hot::A, hot::B};\n",
                &[
                    "upward engine/src/log.rs:2 `hot` is on the floor middle, above ground",
                    "cycles engine/src/db.rs:2 `db` imports `log`, in a circle of 4",
                    "cycles engine/src/hot/mod.rs:2 `hot` imports `log`",
                    "cycles engine/src/log.rs:2 `log` imports `hot`",
                    "cycles engine/src/ops/big.rs:3 `ops` imports `db`",
                ],
            ),
            (
                "engine/src/hot/mod.rs",
                "//! H.\nfn f(a: super::db::A, b: crate::db::B) {}\n",
                &["upward engine/src/hot/mod.rs:2 `db`"],
            ),
            (
                "engine/src/hot/mod.rs",
                "//! H.\nfn f(a: crate::Handle) {}\n",
                &["upward engine/src/hot/mod.rs:2 `db`"],
            ),
            (
                "engine/src/ops/mod.rs",
                "//! O.\nmod big;\nuse big::X;\n",
                &["upward engine/src/ops/mod.rs:3 `ops/big` is on the floor top"],
            ),
            (
                "engine/src/hot/mod.rs",
                whole,
                &["impls engine/src/hot/mod.rs:3 `Log` is defined on the floor ground, not on middle"],
            ),
            (
                "engine/src/hot/mod.rs",
                "//! H.\nimpl crate::log::Log<u8> {}\n",
                &["impls engine/src/hot/mod.rs:2 `Log`"],
            ),
            (
                "engine/src/ops/mod.rs",
                "//! O.\nuse crate::hot;\n",
                &[
                    "cycles engine/src/hot/mod.rs:3 `hot` imports `ops`, in a circle of 2",
                    "cycles engine/src/ops/mod.rs:2",
                ],
            ),
        ];
        for (path, text, expected) in cases {
            let found = measured(path, text);
            assert_eq!(found.len(), expected.len(), "{path} {text}: {found:?}");
            assert!(found.iter().zip(expected).all(|(found, wanted)| found.starts_with(wanted)), "{found:?}");
        }
    }

    #[test]
    fn each_module_has_its_floor() {
        let twice = TABLE.replace("`db`", "`db`, `hot`");
        let cases = [
            (PAGE, "", "no table of floors"),
            (PAGE, &*TABLE.replace(", `db`", ""), "no row for the module `db`"),
            (PAGE, &*TABLE.replace("`db`", "`db`, `ghost`"), "`ghost` has a floor"),
            (PAGE, &*twice, "`hot` of `engine` stands on two floors"),
            ("engine/src/new.rs", "//! N.\n", "no row for the module `new`"),
        ];
        for (path, text, expected) in cases {
            let problems = check(&Repository::of(&repository(path, text)));
            assert!(problems.len() == 1 && problems[0].contains(expected), "{expected}: {problems:?}");
        }
        assert_eq!(check(&Repository::of(&repository("a.txt", ""))), Vec::<String>::new());
    }
}
