//! As much of Markdown as tidy needs: fenced blocks, links, headings and tables.

/// A fenced block.
pub(crate) struct Block<'a> {
    /// Line of the opening fence, from 1.
    pub(crate) line: usize,
    /// The words behind the opening fence.
    pub(crate) info: &'a str,
    /// The lines between the fences.
    pub(crate) lines: Vec<&'a str>,
}

/// The fenced blocks of `text`.
pub(crate) fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut found: Vec<Block<'_>> = Vec::new();
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        match line.trim_start().strip_prefix("```") {
            Some(_) if open => open = false,
            Some(info) => {
                open = true;
                found.push(Block { line: number + 1, info: info.trim(), lines: Vec::new() });
            }
            None if open => found.last_mut().expect("one is open").lines.push(line),
            None => {}
        }
    }
    found
}

/// The lines of `text` outside of fenced blocks, with their numbers from 1.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fence && !fenced).then_some((number + 1, line))
    })
}

/// The targets of links `[…](target)` in `text`, with their lines.
pub(crate) fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // What stands in backquotes is no link.
        let mut quoted = false;
        for (at, byte) in line.bytes().enumerate() {
            quoted ^= byte == b'`';
            if !quoted && line.as_bytes()[at..].starts_with(b"](") {
                let target = &line[at + 2..];
                let end = target.find([')', ' ']).unwrap_or(target.len());
                found.push((number, &target[..end]));
            }
        }
    }
    found
}

/// The anchors that the headings of `text` make, as the common forges do it.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let heading = |line: &str| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len() && title.starts_with(' ')).then(|| slug(title.trim()))
    };
    prose(text).filter_map(|(_, line)| heading(line)).collect()
}

fn slug(title: &str) -> String {
    let keep = |letter: char| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    };
    title.to_lowercase().chars().filter_map(keep).collect()
}

/// The cells of the rows of the table whose first header cell is `first`, without the header.
pub(crate) fn table<'a>(text: &'a str, first: &str) -> Option<Vec<Vec<&'a str>>> {
    let mut lines = text.lines().map(cells).skip_while(|row| row.first() != Some(&first));
    lines.next()?;
    Some(lines.skip(1).take_while(|row| !row.is_empty()).collect())
}

fn cells(line: &str) -> Vec<&str> {
    let inner = line.trim().strip_prefix('|').and_then(|line| line.strip_suffix('|'));
    inner.map(|inner| inner.split('|').map(str::trim).collect()).unwrap_or_default()
}

/// The words that stand in backquotes.
pub(crate) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A title, *here*\n\n[a](b.md#c) `[no](link)` and [d](e \"f\")\n\n```sh\ncargo x\n# no heading\n[g](h)\n```\n\n| crate | may use |\n|---|---|\n| `a` | `b`, `c` |\n| `d` | – |\n\nend\n";

    #[test]
    fn takes_it_apart() {
        assert_eq!(links(TEXT), [(3, "b.md#c"), (3, "e")]);
        assert_eq!(anchors(TEXT), ["a-title-here"]);
        let blocks = blocks(TEXT);
        assert_eq!((blocks.len(), blocks[0].line, blocks[0].info), (1, 5, "sh"));
        assert_eq!(blocks[0].lines, ["cargo x", "# no heading", "[g](h)"]);
        let table = table(TEXT, "crate").expect("it is there");
        assert_eq!(table, [["`a`", "`b`, `c`"], ["`d`", "–"]]);
        assert_eq!(quoted(table[0][1]).collect::<Vec<_>>(), ["b", "c"]);
    }
}
