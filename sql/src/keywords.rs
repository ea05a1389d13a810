//! The keywords of PostgreSQL 15, and what each may name (`pg_get_keywords`). The lexer looks up each word once, so that the parser
//! asks the token and not a list; what writes names as SQL quotes all that are not free.

use std::sync::LazyLock;

/// Says what a keyword may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Category {
    /// Nothing, unless it is quoted.
    Reserved,
    /// Functions and types, and no columns.
    NoColumn,
    /// Columns and tables, and no functions or types.
    NoFunction,
    /// Everything.
    Free,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Keyword {
    pub(crate) word: &'static str,
    pub(crate) category: Category,
    /// Does it name a column of a result without AS in front?
    pub(crate) is_label: bool,
}

const RESERVED: &str = "\
    all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create \
    current_catalog current_date current_role current_time current_timestamp current_user default deferrable desc \
    distinct do else end except false fetch for foreign from grant group having in initially intersect into lateral \
    leading limit localtime localtimestamp not null offset on only or order placing primary references returning select \
    session_user some symmetric table then to trailing true union unique user using variadic when where window with";

const NO_COLUMN: &str = "\
    authorization binary collation concurrently cross current_schema freeze full ilike inner is isnull join left like \
    natural notnull outer overlaps right similar tablesample verbose";

const NO_FUNCTION: &str = "\
    between bigint bit boolean char character coalesce dec decimal exists extract float greatest grouping inout int \
    integer interval least national nchar none normalize nullif numeric out overlay position precision real row setof \
    smallint substring time timestamp treat trim values varchar xmlattributes xmlconcat xmlelement xmlexists xmlforest \
    xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable";

const FREE: &str = "\
    abort absolute access action add admin after aggregate also alter always asensitive assertion assignment at atomic \
    attach attribute backward before begin breadth by cache call called cascade cascaded catalog chain characteristics \
    checkpoint class close cluster columns comment comments commit committed compression configuration conflict \
    connection constraints content continue conversion copy cost csv cube current cursor cycle data database day \
    deallocate declare defaults deferred definer delete delimiter delimiters depends depth detach dictionary disable \
    discard document domain double drop each enable encoding encrypted enum escape event exclude excluding exclusive \
    execute explain expression extension external family filter finalize first following force forward function functions \
    generated global granted groups handler header hold hour identity if immediate immutable implicit import include \
    including increment index indexes inherit inherits inline input insensitive insert instead invoker isolation key \
    label language large last leakproof level listen load local location lock locked logged mapping match matched \
    materialized maxvalue merge method minute minvalue mode month move name names new next nfc nfd nfkc nfkd no \
    normalized nothing notify nowait nulls object of off oids old operator option options ordinality others over \
    overriding owned owner parallel parameter parser partial partition passing password plans policy preceding prepare \
    prepared preserve prior privileges procedural procedure procedures program publication quote range read reassign \
    recheck recursive ref referencing refresh reindex relative release rename repeatable replace replica reset restart \
    restrict return returns revoke role rollback rollup routine routines rows rule savepoint schema schemas scroll search \
    second security sequence sequences serializable server session set sets share show simple skip snapshot sql stable \
    standalone start statement statistics stdin stdout storage stored strict strip subscription support sysid system \
    tables tablespace temp template temporary text ties transaction transform trigger truncate trusted type types uescape \
    unbounded uncommitted unencrypted unknown unlisten unlogged until update vacuum valid validate validator value \
    varying version view views volatile whitespace within without work wrapper write xml year yes zone";

/// Words that need AS in front, where they name a column of a result.
const NO_BARE_LABEL: &str = "\
    array as char character create day except fetch filter for from grant group having hour intersect into isnull limit \
    minute month notnull offset on order over overlaps precision returning second to union varying where window with \
    within without year";

/// Bytes of the longest keyword.
pub(crate) const LONGEST: usize = 17;

/// Slots of the table: more than twice as many as there are keywords.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 10;

/// All keywords in their order, and where to find one: a word's slot, or one behind it, holds one more than its place.
struct Keywords {
    all: Vec<Keyword>,
    slots: [u16; SLOTS],
}

static KEYWORDS: LazyLock<Keywords> = LazyLock::new(|| {
    let lists = [
        (RESERVED, Category::Reserved),
        (NO_COLUMN, Category::NoColumn),
        (NO_FUNCTION, Category::NoFunction),
        (FREE, Category::Free),
    ];
    let labelled = |word: &str| !NO_BARE_LABEL.split_whitespace().any(|known| known == word);
    let mut all: Vec<Keyword> = lists
        .iter()
        .flat_map(|(words, category)| words.split_whitespace().map(|word| (word, *category)))
        .map(|(word, category)| Keyword { word, category, is_label: labelled(word) })
        .collect();
    all.sort_unstable_by_key(|keyword| keyword.word);
    let mut slots = [0; SLOTS];
    for (place, keyword) in all.iter().enumerate() {
        let free = probed(keyword.word).find(|slot| slots[*slot] == 0);
        slots[free.expect("there are more slots than keywords")] = place as u16 + 1;
    }
    Keywords { all, slots }
});

/// The slots of a word, which is not empty, in the order in which they are looked at.
fn probed(word: &str) -> impl Iterator<Item = usize> {
    let bytes = word.as_bytes();
    let byte = |at: usize| u32::from(bytes[at]);
    let mixed =
        byte(0) | byte(bytes.len() / 2) << 8 | byte(bytes.len() - 1) << 16 | (bytes.len() as u32) << 24;
    let first = (mixed.wrapping_mul(0x9e37_79b9) >> (u32::BITS - SLOT_BITS)) as usize;
    (0..SLOTS).map(move |step| (first + step) % SLOTS)
}

/// The keyword that a word in lower case is.
pub(crate) fn keyword(word: &str) -> Option<&'static Keyword> {
    if word.is_empty() || word.len() > LONGEST {
        return None;
    }
    let known = &*KEYWORDS;
    let found = probed(word)
        .map_while(|slot| known.slots[slot].checked_sub(1))
        .map(|place| &known.all[usize::from(place)])
        .find(|keyword| keyword.word == word)?;
    Some(found)
}

/// All keywords in their order.
pub(crate) fn all() -> &'static [Keyword] {
    &KEYWORDS.all
}

/// True if a name that is this word is written in quotes (`quote_identifier`).
pub(crate) fn is_quoted(word: &str) -> bool {
    keyword(word).is_some_and(|keyword| keyword.category != Category::Free)
}

/// Is the text a word that stands for a value, without parentheses?
pub(crate) fn is_value(text: &str) -> bool {
    let words =
        ["current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "current_user"];
    let more = ["session_user", "user", "current_role", "current_catalog", "current_schema"];
    words.iter().chain(&more).any(|word| text.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_keyword_is_found_and_nothing_else() {
        assert_eq!(all().len(), 460, "PostgreSQL 15 has so many");
        for known in all() {
            assert_eq!(keyword(known.word), Some(known));
            assert!(keyword(&format!("{}x", known.word)).is_none_or(|other| other.word != known.word));
        }
        assert_eq!(all().iter().map(|known| known.word.len()).max(), Some(LONGEST));
        let labels =
            NO_BARE_LABEL.split_whitespace().filter(|word| keyword(word).is_none_or(|known| known.is_label));
        assert_eq!(labels.count(), 0, "what needs AS is a keyword");
        for word in ["", "a", "nam", "selects", "seIect", "\u{e9}", "current_timestamps"] {
            assert_eq!(keyword(word), None, "{word}");
        }
        assert!(is_quoted("user") && is_quoted("left") && is_quoted("between") && !is_quoted("name"));
    }
}
