//! The one registry of functions, operators and casts, and the resolution of overloads.
//!
//! Rows are PostgreSQL's (`pg_proc`, `pg_operator`, `pg_cast`), with the Rust function that does the work; `tests/catalog.txt`
//! holds what PostgreSQL 15 says of them, and a test compares. Resolution follows the documentation's chapter "Type
//! Conversion": exact matches, then those reached by implicit casts, most exact arguments, preferred types, and for
//! arguments of unknown type the category that the candidates agree on.

pub(crate) mod aggregates;
mod casts;
mod codecs;
mod dates;
mod elsewhere;
mod format;
mod formats;
mod index;
mod input;
pub(crate) mod json;
mod maths;
mod number_formats;
mod operators;
pub(crate) mod patterns;
mod proc;
pub(crate) mod session;
mod strings;
#[cfg(test)]
mod tests;

pub(crate) use casts::{CastHow, Context, cast, is_coercible};
pub(crate) use elsewhere::{is_elsewhere, is_relation_elsewhere, is_type_elsewhere};
pub(crate) use input::{functions_by_oid, input_of};
pub(crate) use operators::{Operator, operators_named};

use std::sync::LazyLock;

use crate::expr::Call;
use crate::types::{Category, Type};
use index::ByName;

/// A function.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) args: &'static [Type],
    pub(crate) returns: Type,
    pub(crate) call: Call,
}

/// The functions with this name.
pub(crate) fn functions_named(name: &str) -> &'static [&'static Function] {
    static FUNCTIONS: LazyLock<ByName<Function>> =
        LazyLock::new(|| ByName::new(proc::TABLES.iter().copied().flatten(), |function| function.name));
    FUNCTIONS.named(name)
}

/// Does a function answer otherwise each time that it is called, or do something (`provolatile`)?
pub(crate) fn is_volatile(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "random",
        "gen_random_uuid",
        "clock_timestamp",
        "nextval",
        "setval",
        "currval",
        "lastval",
        "set_config",
        "pg_sleep",
        "pg_sleep_for",
        "pg_sleep_until",
    ];
    NAMES.contains(&name) || name.contains("advisory_")
}

/// Functions by what they are about.
#[cfg(test)]
pub(crate) fn function_groups() -> impl Iterator<Item = (&'static str, &'static [Function])> {
    let titles = [
        "Texts",
        "Numbers",
        "Times",
        "The server",
        "JSON",
        "Digests and encodings",
        "Advisory locks",
        "The session",
    ];
    assert_eq!(titles.len(), proc::TABLES.len(), "each table has a title");
    titles.into_iter().zip(proc::TABLES.iter().copied())
}

#[cfg(test)]
pub(crate) use operators::all as operators_all;

pub(crate) fn function_names() -> impl Iterator<Item = &'static str> {
    proc::TABLES.iter().flat_map(|table| table.iter()).map(|function| function.name)
}

/// The call of `concat`, `concat_ws` or `format`, which take any number of texts.
pub(crate) fn concat_call(name: &str) -> Call {
    match name {
        "format" => Call::All(format::format),
        "concat_ws" => Call::All(|args, _| strings::concat_ws(args)),
        _ => Call::All(|args, _| strings::concat(args)),
    }
}

/// A timestamp so much later on the clock of a zone.
pub(crate) fn later(
    at: &crate::types::Datum,
    by: &crate::types::Datum,
    zone: &crate::types::Zone,
) -> crate::expr::Made {
    dates::shift_in(at, by, false, zone)
}

/// What resolution came to.
pub(crate) enum Resolved<T> {
    One(T),
    None,
    Ambiguous,
}

/// Chooses among candidates by the types of arguments.
pub(crate) fn resolve<T: Copy>(
    all: &[T],
    args: &[Type],
    types: impl Fn(T) -> &'static [Type],
) -> Resolved<T> {
    let fitting = |candidate: &T| types(*candidate).len() == args.len();
    if let Some(exact) = all.iter().find(|candidate| types(**candidate) == args) {
        return Resolved::One(*exact);
    }
    let mut left: Vec<T> = all
        .iter()
        .filter(|candidate| fitting(candidate))
        .filter(|candidate| types(**candidate).iter().zip(args).all(|(to, from)| is_coercible(*from, *to)))
        .copied()
        .collect();
    if left.len() <= 1 {
        return left.first().map_or(Resolved::None, |one| Resolved::One(*one));
    }
    // Most exact matches; a varchar is a text here, as binary-coercible types are.
    let base = |ty: Type| if ty == Type::Varchar { Type::Text } else { ty };
    let exact = |candidate: &T| {
        types(*candidate).iter().zip(args).filter(|(to, from)| **from != Type::Unknown && to == from).count()
    };
    keep_best(&mut left, exact);
    // Then most preferred types where there is no exact match.
    let preferred = |candidate: &T| {
        let pairs = types(*candidate).iter().zip(args);
        pairs
            .filter(|(to, from)| {
                **from != Type::Unknown
                    && (base(**to) == base(**from) || (to.category() == from.category() && to.is_preferred()))
            })
            .count()
    };
    keep_best(&mut left, preferred);
    if left.len() == 1 {
        return Resolved::One(left[0]);
    }
    if !args.contains(&Type::Unknown) {
        return Resolved::Ambiguous;
    }
    // Unknown arguments: the string category if any candidate takes it there, else the one that all agree on.
    let mut categories: Vec<Option<(Category, bool)>> = vec![None; args.len()];
    let mut agreed = true;
    for (place, from) in args.iter().enumerate() {
        if *from != Type::Unknown {
            continue;
        }
        let mut found: Option<(Category, bool)> = None;
        let mut conflict = false;
        for candidate in &left {
            let ty = types(*candidate)[place];
            match found {
                None => found = Some((ty.category(), ty.is_preferred())),
                Some((category, preferred)) if category == ty.category() => {
                    found = Some((category, preferred || ty.is_preferred()));
                }
                Some(_) if ty.category() == Category::String => {
                    found = Some((Category::String, ty.is_preferred()));
                }
                Some((Category::String, _)) => {}
                Some(_) => conflict = true,
            }
        }
        if conflict && found.is_none_or(|(category, _)| category != Category::String) {
            agreed = false;
            break;
        }
        categories[place] = found;
    }
    if agreed {
        let narrowed: Vec<T> = left
            .iter()
            .filter(|candidate| {
                categories.iter().zip(types(**candidate)).all(|(wanted, ty)| {
                    wanted.is_none_or(|(category, preferred)| {
                        category == ty.category() && (!preferred || ty.is_preferred())
                    })
                })
            })
            .copied()
            .collect();
        if !narrowed.is_empty() {
            left = narrowed;
        }
        if left.len() == 1 {
            return Resolved::One(left[0]);
        }
    }
    // The known arguments all of one type: the unknown ones are taken to be of that type, too.
    let mut known = args.iter().filter(|ty| **ty != Type::Unknown).map(|ty| base(*ty));
    if let Some(first) = known.next()
        && known.all(|ty| ty == first)
    {
        let same: Vec<T> = left
            .iter()
            .filter(|candidate| types(**candidate).iter().all(|to| is_coercible(first, *to)))
            .copied()
            .collect();
        if let [one] = same[..] {
            return Resolved::One(one);
        }
    }
    Resolved::Ambiguous
}

fn keep_best<T: Copy>(left: &mut Vec<T>, score: impl Fn(&T) -> usize) {
    let best = left.iter().map(&score).max().unwrap_or(0);
    left.retain(|candidate| score(candidate) == best);
}

/// Chooses a binary operator: an unknown side is first taken to be of the other side's type.
pub(crate) fn resolve_operator(all: &[&'static Operator], args: &[Type]) -> Resolved<&'static Operator> {
    if let [left, right] = *args {
        let assumed = match (left, right) {
            (Type::Unknown, right) if right != Type::Unknown => Some([right, right]),
            (left, Type::Unknown) if left != Type::Unknown => Some([left, left]),
            _ => None,
        };
        if let Some(assumed) = assumed {
            let assumed = assumed.map(|ty| if ty == Type::Varchar { Type::Text } else { ty });
            if let Some(exact) = all.iter().find(|operator| operator.args == assumed) {
                return Resolved::One(exact);
            }
        }
    }
    resolve(all, args, |operator| operator.args)
}
