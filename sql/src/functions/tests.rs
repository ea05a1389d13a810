//! The registry against what PostgreSQL 15 says of itself (`tests/catalog.txt`, written by `tests/record_catalog.py`).

use std::collections::HashSet;

use super::casts::{CASTS, Context};
use super::{aggregates, operators, proc};
use crate::types::Type;

/// Functions that are syntax in PostgreSQL, and so no rows of `pg_proc` under these names.
const SYNTAX: [&str; 6] =
    ["current_date", "current_timestamp", "localtime", "localtimestamp", "current_catalog", "current_role"];

fn names(types: &[Type]) -> String {
    types.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(",")
}

#[test]
fn every_row_is_one_of_postgresql() {
    let known: HashSet<&str> = include_str!("../../tests/catalog.txt").lines().collect();
    let mut ours = Vec::new();
    for function in proc::TABLES.iter().flat_map(|table| table.iter()) {
        if !SYNTAX.contains(&function.name) && function.name != "user" {
            // The last argument of these has a default there.
            let bool_defaulted =
                ["jsonb_set", "jsonb_insert"].contains(&function.name) && function.args.len() == 3;
            let time_defaulted = function.name == "pg_terminate_backend" && function.args.len() == 1;
            ours.push(format!(
                "function {}({}{}) {}",
                function.name,
                names(function.args),
                match (bool_defaulted, time_defaulted) {
                    (true, _) => ",bool",
                    (_, true) => ",int8",
                    _ => "",
                },
                function.returns.name()
            ));
        }
    }
    for operator in operators::all() {
        ours.push(format!(
            "operator {}({}) {}",
            operator.name,
            names(operator.args),
            operator.returns.name()
        ));
    }
    for (name, args, returns, _) in aggregates::AGGREGATES {
        if !args.contains(&Type::Unknown) {
            ours.push(format!("aggregate {name}({}) {}", names(args), returns.name()));
        }
    }
    for (from, to, context, _) in CASTS {
        let context = match context {
            Context::Implicit => 'i',
            Context::Assignment => 'a',
            Context::Explicit => 'e',
        };
        ours.push(format!("cast {} {} {context}", from.name(), to.name()));
    }
    assert!(ours.len() > 400, "the tables are there");
    let unknown: Vec<&String> = ours.iter().filter(|row| !known.contains(row.as_str())).collect();
    assert!(unknown.is_empty(), "PostgreSQL does not have: {unknown:#?}");
}

#[test]
fn types_have_the_numbers_of_postgresql() {
    let known: HashSet<&str> = include_str!("../../tests/catalog.txt").lines().collect();
    for oid in 1..4000 {
        if let Some(ty) = Type::from_oid(oid) {
            let row = format!("type {} {oid} {}", ty.name(), ty.length());
            assert!(known.contains(row.as_str()), "{row}");
        }
    }
}
