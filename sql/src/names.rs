//! Names of relations within schemas, and search paths.
//!
//! The engine's tables have flat names. A relation of the schema `public` has its plain name there, as it always had; one of
//! another schema has the schema's name in front, between two signs that no name of SQL can hold ([`MARK`]):
//!
//! ```text
//! public.orders   orders
//! app.orders      ␂app␂orders
//! ```
//!
//! Inside of this crate tables, views and sequences are known by these *full* names, in the hidden tables too. Three functions
//! lead out of them: [`plain`], [`schema_of`], and [`shown`] for messages. Indexes belong to their tables, in whose schema they
//! are: the engine knows them by their plain names.
//!
//! Limit: a full name of a table has at most 63 bytes, since the engine's names do.

use crate::error::{Error, Result};
use crate::keywords::is_quoted;

/// The first sign of names that the database gives itself, and no statement can.
pub(crate) const OWN: char = '\u{1}';

/// Stands before and behind the schema in a full name.
pub(crate) const MARK: char = '\u{2}';

/// The schema whose relations have plain names.
pub(crate) const PUBLIC: &str = "public";

/// Schemas that are PostgreSQL's own.
pub(crate) const SYSTEM: [&str; 2] = ["pg_catalog", "information_schema"];

/// Bytes of a name that the engine takes.
const NAME_BYTES: usize = 63;

/// The full name of a relation.
pub(crate) fn within(schema: &str, name: &str) -> String {
    if schema == PUBLIC { name.to_owned() } else { format!("{MARK}{schema}{MARK}{name}") }
}

fn parts(full: &str) -> (&str, &str) {
    full.strip_prefix(MARK).and_then(|rest| rest.split_once(MARK)).unwrap_or((PUBLIC, full))
}

/// The name of a relation without its schema.
pub(crate) fn plain(full: &str) -> &str {
    parts(full).1
}

/// The schema that a relation is in.
pub(crate) fn schema_of(full: &str) -> &str {
    parts(full).0
}

/// A name as SQL has to write it; a full one of another schema than `public` with that.
pub(crate) fn quoted(name: &str) -> String {
    if name.starts_with(MARK) {
        return qualified(name);
    }
    let plain = name.starts_with(|sign: char| sign.is_ascii_lowercase() || sign == '_')
        && name.chars().all(|sign| sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '_')
        && !is_quoted(name);
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// The name with its schema, as SQL writes it.
pub(crate) fn qualified(full: &str) -> String {
    let (schema, name) = parts(full);
    format!("{}.{}", quoted(schema), quoted(name))
}

/// The name as SQL writes it, with its schema where the path would not find it. `is_found`: does the path find this one?
pub(crate) fn visible(full: &str, is_found: bool) -> String {
    if is_found { quoted(plain(full)) } else { qualified(full) }
}

/// A full name that the engine can have.
pub(crate) fn checked(schema: &str, name: &str) -> Result<String> {
    let full = within(schema, name);
    if full.len() > NAME_BYTES {
        let most = NAME_BYTES - 2;
        let message = format!("the names \"{schema}\" and \"{name}\" have more than {most} bytes together");
        return Err(Error::new("42622", message).hint("Take a shorter name for the schema or for the table."));
    }
    Ok(full)
}

/// The name of something that belongs to others, whose names it is made of: `orders_id_seq`. The longer of the two is cut until all of
/// it fits (`makeObjectName`). `number`: how many such names were taken.
pub(crate) fn made(first: &str, second: Option<&str>, label: &str, number: usize) -> String {
    let label = if number == 0 { format!("_{label}") } else { format!("_{label}{number}") };
    let between = usize::from(second.is_some());
    let second = second.unwrap_or("");
    let room = NAME_BYTES.saturating_sub(label.len() + between);
    let (mut one, mut two) = (first.len(), second.len());
    while one + two > room {
        if one > two {
            one -= 1;
        } else {
            two -= 1;
        }
    }
    let second = if between == 1 { format!("_{}", cut(second, two)) } else { String::new() };
    format!("{}{second}{label}", cut(first, one))
}

/// The columns that the name of a key or an index is made of (`ChooseIndexNameAddition`).
pub(crate) fn joined<'n>(columns: impl IntoIterator<Item = &'n str>) -> String {
    let mut all = String::new();
    for name in columns {
        if !all.is_empty() {
            all.push('_');
        }
        all.push_str(name);
        if all.len() > NAME_BYTES {
            break;
        }
    }
    all
}

/// The first so many bytes of a text, or fewer where they would end within a character.
fn cut(text: &str, mut bytes: usize) -> &str {
    while !text.is_char_boundary(bytes) {
        bytes -= 1;
    }
    &text[..bytes]
}

/// A message with the names in it as users know them: without the schema between quotes, as PostgreSQL quotes names of relations,
/// and with it elsewhere, unless the path has the schema.
pub(crate) fn shown(text: &str, path: &[String]) -> Option<String> {
    let mut at = text.find(MARK)?;
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    loop {
        out.push_str(&rest[..at]);
        let Some((schema, after)) = rest[at + MARK.len_utf8()..].split_once(MARK) else {
            out.push_str(&rest[at..]);
            return Some(out);
        };
        if !out.ends_with('"') && !path.iter().any(|known| known == schema) {
            out.push_str(&quoted(schema));
            out.push('.');
        }
        rest = after;
        match rest.find(MARK) {
            Some(next) => at = next,
            None => {
                out.push_str(rest);
                return Some(out);
            }
        }
    }
}

/// The error with the names in it as users know them.
pub(crate) fn shown_error(mut error: Error, path: &[String]) -> Error {
    let show = |text: &mut String| {
        if let Some(shown) = shown(text, path) {
            *text = shown;
        }
    };
    show(&mut error.message);
    [&mut error.detail, &mut error.hint].into_iter().flatten().for_each(show);
    if let Some(about) = &mut error.about {
        for name in [&mut about.table, &mut about.constraint].into_iter().flatten() {
            if name.starts_with(MARK) {
                *name = plain(name).to_owned();
            }
        }
        about.context.iter_mut().for_each(show);
    }
    error
}

/// The parts of a name as it is written: folded where they are not quoted.
pub(crate) fn written(text: &str) -> Vec<String> {
    list(text, '.')
}

/// The schemas that a `search_path` names.
pub(crate) fn path(setting: &str) -> Vec<String> {
    list(setting, ',').into_iter().filter(|name| !name.is_empty()).collect()
}

fn list(text: &str, between: char) -> Vec<String> {
    let (mut parts, mut part, mut quoted) = (Vec::new(), String::new(), false);
    let mut signs = text.trim().chars().peekable();
    while let Some(sign) = signs.next() {
        match sign {
            '"' if quoted && signs.next_if_eq(&'"').is_some() => part.push('"'),
            '"' => quoted = !quoted,
            sign if sign == between && !quoted => parts.push(std::mem::take(&mut part)),
            sign if quoted => part.push(sign),
            sign if sign.is_whitespace() => {}
            sign => part.extend(sign.to_lowercase()),
        }
    }
    parts.push(part);
    parts
}

/// Names have 63 bytes, as PostgreSQL's; what is longer is cut between two characters.
pub(crate) fn fitting(name: &str) -> &str {
    cut(name, NAME_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_apart_as_they_were_put_together() {
        assert_eq!(within("public", "t"), "t");
        let full = within("App", "orders");
        assert_eq!((schema_of(&full), plain(&full)), ("App", "orders"));
        assert_eq!((schema_of("t"), plain("t")), ("public", "t"));
        assert_eq!(qualified(&full), "\"App\".orders");
        assert_eq!(checked("s", &"n".repeat(61)).expect_err("it is too long").code, "42622");
        assert!(checked("s", &"n".repeat(60)).is_ok());
    }

    #[test]
    fn names_are_made_to_fit() {
        assert_eq!(made("t", Some("a"), "key", 0), "t_a_key");
        assert_eq!(made("t", None, "pkey", 2), "t_pkey2");
        let long = "l".repeat(63);
        assert_eq!(made(&long, None, "pkey", 0), format!("{}_pkey", "l".repeat(58)));
        let both = made(&long, Some(&long), "key", 0);
        assert_eq!(both, format!("{}_{}_key", "l".repeat(29), "l".repeat(29)));
        assert_eq!(made(&"ä".repeat(31), None, "pkey", 0), format!("{}_pkey", "ä".repeat(29)));
    }

    #[test]
    fn messages_show_names_as_users_know_them() {
        let path = ["public".to_owned(), "near".to_owned()];
        let text =
            format!("\"{}\" and view {}, {}", within("far", "t"), within("far", "v"), within("near", "w"));
        assert_eq!(shown(&text, &path).as_deref(), Some("\"t\" and view far.v, w"));
        assert_eq!(shown("nothing", &path), None);
        assert_eq!(shown("\u{2}cut", &path).as_deref(), Some("\u{2}cut"));
    }

    #[test]
    fn paths_are_lists_of_names() {
        assert_eq!(path("\"$user\", public"), ["$user", "public"]);
        assert_eq!(path("A, \"B, c\""), ["a", "B, c"]);
        assert_eq!(path("\"\""), [""; 0]);
        assert_eq!(written("App.\"T.x\""), ["app", "T.x"]);
    }
}
