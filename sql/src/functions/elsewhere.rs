//! The list of all that PostgreSQL has, much of which this crate has not: functions, aggregates and operators, by names and types,
//! and relations of its catalogs (`elsewhere.txt`, which `tests/record_elsewhere.py` writes). It is asked when a call fits nothing
//! here, so that what is missing is told from what is wrong.

use super::is_coercible;
use crate::types::Type;

const ALL: &str = include_str!("elsewhere.txt");

/// Has PostgreSQL a catalog or view of this name? Those of its own schema need none in front.
pub(crate) fn is_relation_elsewhere(schema: Option<&str>, name: &str) -> bool {
    let schema = schema.unwrap_or("pg_catalog");
    let is_it = |line: &str| line.split_once('.') == Some((schema, name));
    ALL.lines().filter_map(|line| line.strip_prefix("relation ")).any(is_it)
}

/// Does a call with arguments of these types fit something that PostgreSQL has?
pub(crate) fn is_elsewhere(name: &str, types: &[Type]) -> bool {
    ALL.lines().any(|line| {
        let mut words = line.split(' ');
        words.next() == Some(name)
            && words.clone().count() == types.len()
            && words.zip(types).all(|(wanted, given)| takes(wanted, *given))
    })
}

fn takes(wanted: &str, given: Type) -> bool {
    match wanted {
        _ if given == Type::Unknown => true,
        "anyarray" | "anycompatiblearray" => given.element().is_some(),
        "anynonarray" | "anycompatiblenonarray" => given.element().is_none(),
        "any" | "anyelement" | "anycompatible" => true,
        _ => Type::from_name(wanted).is_some_and(|wanted| wanted == given || is_coercible(given, wanted)),
    }
}
