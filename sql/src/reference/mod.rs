//! The pages of `docs/use/sql`, written from the registries, and the test that they are current.
//!
//! `cargo xtask docs-sql` writes them: it runs this test with [`WRITE`] set. What stands in no registry (statements, and functions
//! that the binder knows by their names) is listed in [`examples`] with an example, which has to parse or to run.

mod examples;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use thermocline_engine::{Database, Options};

use crate::functions::aggregates::AGGREGATES;
use crate::functions::{function_groups, operators_all};
use crate::session::Session;
use crate::types::{Category, Type};

/// Names the variable that has the pages written.
const WRITE: &str = "THERMOCLINE_WRITE_REFERENCE";

const MADE: &str =
    "<!-- Made by `cargo xtask docs-sql`: change the registries in `sql/src`, not this page. -->\n\n";

/// A type as readers know it.
fn shown(ty: Type) -> String {
    match ty {
        Type::Unknown => "any".to_owned(),
        ty => ty.sql_name().to_owned(),
    }
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn signature(args: &[Type], returns: Type) -> String {
    let args: Vec<String> = args.iter().map(|ty| shown(*ty)).collect();
    format!("({}) → {}", args.join(", "), shown(returns))
}

/// A table with a row for each name, and all of its forms in it.
fn overloads(rows: impl Iterator<Item = (String, String)>) -> String {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, form) in rows {
        all.entry(name).or_default().push(form);
    }
    let mut out = String::from("| name | takes → gives |\n|---|---|\n");
    for (name, forms) in all {
        writeln!(out, "| `{}` | {} |", cell(&name), cell(&forms.join("; ")))
            .expect("strings take everything");
    }
    out
}

fn session() -> Session {
    let options = Options::default().with_memory_limit(Some(128 << 20));
    let mut session = Session::new(&Database::open_in_memory(options).expect("it opens"));
    session
        .run(
            "create table numbers (n int primary key, s serial); insert into numbers values (1), (2), (3)",
            |_| {},
        )
        .expect("it runs");
    session
}

/// Examples with what they answer.
fn answered(examples: &[(&str, &str)]) -> String {
    let mut session = session();
    let mut out = String::from("| function | example | gives |\n|---|---|---|\n");
    for (name, example) in examples {
        let answer = session.execute(&format!("select {example}"), &[]);
        let answer = answer.unwrap_or_else(|error| panic!("{example}: {error}"));
        let rows = (0..answer.rows.len()).map(|row| answer.text(row, 0).unwrap_or_else(|| "null".to_owned()));
        let rows = rows.collect::<Vec<_>>().join(", ");
        writeln!(out, "| `{name}` | `{}` | {} |", cell(example), cell(&rows))
            .expect("strings take everything");
    }
    out
}

fn functions() -> String {
    let mut out = format!("{MADE}# Functions\n\n");
    out += "Those of PostgreSQL 15 with the same names. `any` stands for a value of whatever type.\n";
    for (title, table) in function_groups() {
        let rows = table.iter().map(|it| (it.name.to_owned(), signature(it.args, it.returns)));
        write!(out, "\n## {title}\n\n{}", overloads(rows)).expect("strings take everything");
    }
    let rows =
        AGGREGATES.iter().map(|(name, args, returns, _)| ((*name).to_owned(), signature(args, *returns)));
    write!(
        out,
        "\n## Aggregates\n\nWith DISTINCT, ORDER BY and FILTER, and over windows.\n\n{}",
        overloads(rows)
    )
    .expect("strings take everything");
    let names: Vec<String> = crate::bind::window_functions().map(|name| format!("`{name}`")).collect();
    write!(out, "\n## Window functions\n\n{}.\n", names.join(", ")).expect("strings take everything");
    for (title, all) in examples::FUNCTIONS {
        write!(out, "\n## {title}\n\n{}", answered(all)).expect("strings take everything");
    }
    out
}

fn operators() -> String {
    let rows = operators_all().map(|it| {
        let args: Vec<String> = it.args.iter().map(|ty| shown(*ty)).collect();
        let form = match &args[..] {
            [one] => format!("{} {one} → {}", it.name, shown(it.returns)),
            [left, right] => format!("{left} {} {right} → {}", it.name, shown(it.returns)),
            _ => unreachable!("an operator has one side or two"),
        };
        (it.name.to_owned(), form)
    });
    format!(
        "{MADE}# Operators\n\nBeside these: AND, OR, NOT, IS [NOT] NULL, TRUE, FALSE, UNKNOWN and DISTINCT FROM, BETWEEN, IN, \
         LIKE, ILIKE and SIMILAR TO, CASE, COALESCE, NULLIF, GREATEST, LEAST, ANY and ALL over arrays and queries. Arrays compare \
         and concatenate by their elements.\n\n{}",
        overloads(rows)
    )
}

fn types() -> String {
    let mut out = format!("{MADE}# Types\n\n");
    out += "An array of one dimension exists of each type that has its OID in the last column.\n\n";
    out += "| type | internal name | OID | array's OID |\n|---|---|---|---|\n";
    for ty in Type::all().filter(|ty| ty.element().is_none()) {
        if matches!(ty.category(), Category::Unknown | Category::Pseudo) {
            continue;
        }
        let array = ty.array().map_or(String::new(), |array| array.oid().to_string());
        writeln!(out, "| `{}` | `{}` | {} | {array} |", ty.sql_name(), ty.name(), ty.oid())
            .expect("strings take everything");
    }
    out
}

fn settings() -> String {
    let mut out = format!("{MADE}# Settings\n\n");
    out += "By SET, SET LOCAL, RESET, SHOW, `set_config` and `current_setting`, and as a client's options. Names with a dot \
            (`my.setting`) are the application's own.\n\n| setting | default | takes |\n|---|---|---|\n";
    for (name, default, takes) in crate::settings::described() {
        let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
        writeln!(out, "| `{name}` | {default} | {takes} |").expect("strings take everything");
    }
    out
}

fn statements() -> String {
    let mut out = format!("{MADE}# SQL\n\n");
    out += "What is understood of PostgreSQL 15's SQL. What is missing is refused by name (0A000); what differs stands on a page of \
            [its own](../sql.md#what-differs-from-postgresql-15).\n\n";
    out += "- [Functions](functions.md), aggregates and window functions\n- [Operators](operators.md)\n- [Types](types.md)\n- \
            [Settings](settings.md)\n\n## Statements\n\n| statement | for example |\n|---|---|\n";
    for (name, example) in examples::STATEMENTS {
        writeln!(out, "| {name} | `{}` |", cell(example)).expect("strings take everything");
    }
    out
}

fn pages() -> [(&'static str, String); 5] {
    [
        ("README.md", statements()),
        ("functions.md", functions()),
        ("operators.md", operators()),
        ("types.md", types()),
        ("settings.md", settings()),
    ]
}

#[test]
fn the_pages_are_current() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/use/sql");
    for (name, text) in pages() {
        let path = directory.join(name);
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, text).expect("the page can be written");
            continue;
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == text,
            "docs/use/sql/{name} is not what the registries say: run `cargo xtask docs-sql`"
        );
    }
}

#[test]
fn examples_of_statements_parse() {
    use crate::parser::ast::Statement;
    for (name, example) in examples::STATEMENTS {
        let parsed =
            crate::parser::parse(example).unwrap_or_else(|error| panic!("{name}: {example}: {error}"));
        assert!(
            !parsed.iter().any(|one| matches!(one.statement, Statement::Refused(_))),
            "{name}: {example} is refused"
        );
    }
}
