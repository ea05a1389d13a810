//! As much of Rust's lexical structure as tidy needs: which bytes are code, and which code belongs to tests.
//!
//! Blanking keeps every byte position and line number, so that what is found in the blanked text can be reported in
//! the original one.

use std::ops::Range;

/// The kinds of text that are no code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Up to the end of its line, or of its block.
    Comment,
    /// A string or a character, with its quotes.
    Literal,
}

/// Where comments and literals stand, in their order.
pub(crate) fn pieces(source: &str) -> Vec<(Range<usize>, Kind)> {
    let bytes = source.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (length, kind) = if rest.starts_with(b"//") {
            (rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len()), Kind::Comment)
        } else if rest.starts_with(b"/*") {
            (block_comment(rest), Kind::Comment)
        } else if let Some(length) = raw_string(bytes, at) {
            (length, Kind::Literal)
        } else if rest[0] == b'"' {
            (quoted(rest, b'"'), Kind::Literal)
        } else if rest[0] == b'\'' && is_character(rest) {
            (quoted(rest, b'\''), Kind::Literal)
        } else {
            at += 1;
            continue;
        };
        found.push((at..at + length, kind));
        at += length;
    }
    found
}

/// `source` with comments and the insides of string and character literals replaced by spaces.
pub(crate) fn code(source: &str) -> String {
    let mut out = source.as_bytes().to_vec();
    for (range, _) in pieces(source) {
        for byte in &mut out[range] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    String::from_utf8(out).expect("whole literals and comments were blanked, so no character was cut")
}

/// The words of `source` without its comments; a literal is one word.
pub(crate) fn without_comments(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut from = 0;
    for (range, kind) in pieces(source) {
        found.extend(source[from..range.start].split_whitespace());
        from = range.end;
        found.extend((kind == Kind::Literal).then_some(&source[range]));
    }
    found.extend(source[from..].split_whitespace());
    found
}

/// `code` (as [`code`] returns it) with items under `#[cfg(test)]` or `#[cfg(all(test, …))]` blanked as well.
pub(crate) fn without_tests(code: &str) -> String {
    let mut out = code.as_bytes().to_vec();
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(") {
        let start = from + found;
        let condition = &code[start + "#[cfg(".len()..];
        from = start + 1;
        if !["test)", "all(test,", "all(test)"].iter().any(|prefix| condition.starts_with(prefix)) {
            continue;
        }
        let end = start + item_length(&code.as_bytes()[start..]);
        for byte in &mut out[start..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        from = end;
    }
    String::from_utf8(out).expect("items begin and end at ASCII characters")
}

/// Length of the item that begins at the start of `bytes` with an attribute: up to its `;` or its closing brace.
fn item_length(bytes: &[u8]) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && *byte == b'}' {
                    return at + 1;
                }
            }
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    bytes.len()
}

fn block_comment(bytes: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Length of the raw string literal that begins at `at`, if one does.
fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let prefix = [&b"br"[..], b"cr", b"r"].into_iter().find(|prefix| rest.starts_with(prefix))?;
    if at > 0 && is_word(bytes[at - 1]) {
        return None;
    }
    let hashes = rest[prefix.len()..].iter().take_while(|&&byte| byte == b'#').count();
    let open = prefix.len() + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = &rest[open + 1..];
    let length = body.windows(close.len()).position(|window| window == close).unwrap_or(body.len());
    Some((open + 1 + length + close.len()).min(rest.len()))
}

fn quoted(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Does a quote begin a character literal (and not a lifetime)?
fn is_character(bytes: &[u8]) -> bool {
    match bytes.get(1) {
        Some(b'\\') => true,
        Some(byte) if byte.is_ascii() => bytes.get(2) == Some(&b'\''),
        // A character outside of ASCII: lifetimes may be spelt with those, but ours never are.
        Some(_) => true,
        None => false,
    }
}

/// May `byte` stand in an identifier?
pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Positions in `text` where `word` stands as a whole word.
pub(crate) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = at == 0 || !is_word(bytes[at - 1]);
        let after = bytes.get(at + word.len()).is_none_or(|&byte| !is_word(byte));
        before && after
    })
}

/// The number of the line that holds position `at`, from 1.
pub(crate) fn line(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_what_is_no_code() {
        let source = "a // x\nb /* x /* x */ x */ c \"x \\\" x\" d r#\"x \" x\"# e 'x' f 'life g '\\'' h b\"x\"\n'ß' i";
        let blanked = code(source);
        assert_eq!(blanked.len(), source.len());
        assert!(!blanked.contains('x'), "{blanked}");
        let left: String = blanked.split_whitespace().collect();
        assert_eq!(left, "abcdef'lifeghbi");
    }

    #[test]
    fn words_without_comments() {
        let source = "//! A.\nfn a() { // b\n    f(\"// c  d\", 'e') /* f */\n}\n";
        assert_eq!(without_comments(source), ["fn", "a()", "{", "f(", "\"// c  d\"", ",", "'e'", ")", "}"]);
    }

    #[test]
    fn raw_identifiers_and_names_that_end_in_r_are_code() {
        assert_eq!(code("r#type var\"x\" for r in x"), "r#type var    for r in x");
    }

    #[test]
    fn test_items_are_blanked() {
        let source = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { c } }\nfn d() {}\n#[cfg(test)]\nuse e::f;\nfn g() {}";
        let left = without_tests(&code(source));
        for (word, stays) in [("a", true), ("b", false), ("c", false), ("d", true), ("e", false), ("g", true)]
        {
            assert_eq!(words(&left, word).next().is_some(), stays, "{word}");
        }
        assert_eq!(line(&left, left.find("fn g").expect("it stays")), 7);
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(words("todo todos my_todo (todo)", "todo").collect::<Vec<_>>(), [0, 20]);
    }
}
