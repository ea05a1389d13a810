//! The list of all that PostgreSQL has, much of which this crate has not: functions, aggregates and operators, by names and types,
//! types, and relations of its catalogs (`elsewhere.txt`, which `tests/record_elsewhere.py` writes). It is asked when a call fits nothing
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

/// Has PostgreSQL a type of this name?
pub(crate) fn is_type_elsewhere(name: &str) -> bool {
    ALL.lines().filter_map(|line| line.strip_prefix("type ")).any(|known| known == name)
}

/// Does a call with arguments of these types fit something that PostgreSQL has?
pub(crate) fn is_elsewhere(name: &str, types: &[Type]) -> bool {
    let takes_any = |line: &str| {
        let (fixed, known) = line.split_once(' ').expect("a number stands before the name");
        known == name && fixed.parse().is_ok_and(|fixed: usize| types.len() > fixed)
    };
    if ALL.lines().filter_map(|line| line.strip_prefix("variadic ")).any(takes_any) {
        return true;
    }
    ALL.lines().any(|line| {
        let mut words = line.split(' ');
        words.next() == Some(name)
            && words.clone().count() == types.len()
            && words.clone().zip(types).all(|(wanted, given)| takes(wanted, *given))
            && agrees(words.zip(types.iter().copied()))
    })
}

/// Are arguments of any type, and elements of arrays, of one type; and those that need only be compatible of one category?
fn agrees<'a>(pairs: impl Iterator<Item = (&'a str, Type)>) -> bool {
    let (mut one, mut like) = (None, None);
    pairs.filter(|(_, given)| *given != Type::Unknown).all(|(wanted, given)| {
        let element = if wanted.ends_with("array") { given.element().unwrap_or(given) } else { given };
        match wanted {
            "anyarray" | "anynonarray" | "anyelement" => *one.get_or_insert(element) == element,
            "anycompatible" | "anycompatiblearray" | "anycompatiblenonarray" => {
                *like.get_or_insert(element.category()) == element.category()
            }
            _ => true,
        }
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
