//! Keywords of PostgreSQL 15 that are not free as names, by what they may not name (`pg_get_keywords`). The parser asks whether a
//! word can stand as a name; what writes names as SQL quotes all of them.

/// Words that name nothing unless they are quoted.
pub(crate) const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "current_catalog",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "intersect",
    "into",
    "lateral",
    "leading",
    "limit",
    "localtime",
    "localtimestamp",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "placing",
    "primary",
    "references",
    "returning",
    "select",
    "session_user",
    "some",
    "symmetric",
    "table",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "when",
    "where",
    "window",
    "with",
];

/// Words that may name functions and types, and no columns.
pub(crate) const NO_COLUMN: &[&str] = &[
    "authorization",
    "binary",
    "collation",
    "concurrently",
    "cross",
    "current_schema",
    "freeze",
    "full",
    "ilike",
    "inner",
    "is",
    "isnull",
    "join",
    "left",
    "like",
    "natural",
    "notnull",
    "outer",
    "overlaps",
    "right",
    "similar",
    "tablesample",
    "verbose",
];

/// Words that may name columns and tables, and no functions or types.
pub(crate) const NO_FUNCTION: &[&str] = &[
    "between",
    "bigint",
    "bit",
    "boolean",
    "char",
    "character",
    "coalesce",
    "dec",
    "decimal",
    "exists",
    "extract",
    "float",
    "greatest",
    "grouping",
    "inout",
    "int",
    "integer",
    "interval",
    "least",
    "national",
    "nchar",
    "none",
    "normalize",
    "nullif",
    "numeric",
    "out",
    "overlay",
    "position",
    "precision",
    "real",
    "row",
    "setof",
    "smallint",
    "substring",
    "time",
    "timestamp",
    "treat",
    "trim",
    "values",
    "varchar",
    "xmlattributes",
    "xmlconcat",
    "xmlelement",
    "xmlexists",
    "xmlforest",
    "xmlnamespaces",
    "xmlparse",
    "xmlpi",
    "xmlroot",
    "xmlserialize",
    "xmltable",
];

/// Words that may name everything.
const FREE: &str = "\
    abort absolute access action add admin after aggregate also alter always asensitive assertion \
    assignment at atomic attach attribute backward before begin breadth by cache call called cascade \
    cascaded catalog chain characteristics checkpoint class close cluster columns comment comments commit \
    committed compression configuration conflict connection constraints content continue conversion copy \
    cost csv cube current cursor cycle data database day deallocate declare defaults deferred definer \
    delete delimiter delimiters depends depth detach dictionary disable discard document domain double \
    drop each enable encoding encrypted enum escape event exclude excluding exclusive execute explain \
    expression extension external family filter finalize first following force forward function functions \
    generated global granted groups handler header hold hour identity if immediate immutable implicit \
    import include including increment index indexes inherit inherits inline input insensitive insert \
    instead invoker isolation key label language large last leakproof level listen load local location \
    lock locked logged mapping match matched materialized maxvalue merge method minute minvalue mode \
    month move name names new next nfc nfd nfkc nfkd no normalized nothing notify nowait nulls object of \
    off oids old operator option options ordinality others over overriding owned owner parallel parameter \
    parser partial partition passing password plans policy preceding prepare prepared preserve prior \
    privileges procedural procedure procedures program publication quote range read reassign recheck \
    recursive ref referencing refresh reindex relative release rename repeatable replace replica reset \
    restart restrict return returns revoke role rollback rollup routine routines rows rule savepoint \
    schema schemas scroll search second security sequence sequences serializable server session set sets \
    share show simple skip snapshot sql stable standalone start statement statistics stdin stdout storage \
    stored strict strip subscription support sysid system tables tablespace temp template temporary text \
    ties transaction transform trigger truncate trusted type types uescape unbounded uncommitted \
    unencrypted unknown unlisten unlogged until update vacuum valid validate validator value varying \
    version view views volatile whitespace within without work wrapper write xml year yes zone";

/// Words that need AS in front, where they name a column of a result.
const NO_BARE_LABEL: &str = "\
    array as char character create day except fetch filter for from grant group having hour intersect \
    into isnull limit minute month notnull offset on order over overlaps precision returning second to \
    union varying where window with within without year";

/// All keywords in their order, with the letter of their category and whether they name a column of a result without AS
/// (`pg_get_keywords`).
pub(crate) fn all() -> Vec<(&'static str, char, bool)> {
    let lists = [(RESERVED, 'R'), (NO_COLUMN, 'T'), (NO_FUNCTION, 'C')];
    let mut all: Vec<(&str, char)> =
        lists.iter().flat_map(|(words, category)| words.iter().map(|word| (*word, *category))).collect();
    all.extend(FREE.split_whitespace().map(|word| (word, 'U')));
    all.sort_unstable();
    let needs_as = |word: &str| NO_BARE_LABEL.split_whitespace().any(|known| known == word);
    all.into_iter().map(|(word, category)| (word, category, !needs_as(word))).collect()
}

/// True if a name that is this word is written in quotes (`quote_identifier`).
pub(crate) fn is_keyword(word: &str) -> bool {
    [RESERVED, NO_COLUMN, NO_FUNCTION].iter().any(|list| list.binary_search(&word).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_in_order() {
        for list in [RESERVED, NO_COLUMN, NO_FUNCTION] {
            assert!(list.is_sorted(), "they are searched by halves: {list:?}");
        }
        assert!(is_keyword("user") && is_keyword("left") && is_keyword("between") && !is_keyword("name"));
    }
}
