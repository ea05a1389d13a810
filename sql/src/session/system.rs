//! The system catalogs: `pg_catalog` and a little of `information_schema`, as rows made from the definitions when a statement is
//! bound.
//!
//! OIDs of tables and indexes are made of their names: they stay as long as the names do, in this process and the next.

use crate::catalog::{Catalog, Index, System, Table};
use crate::types::{Category, Datum, Type, display};
use Type::{Bool, Char, Float4, Int2, Int4, Name, Oid, Text};

const PG_CATALOG: i64 = 11;
const PUBLIC: i64 = 2200;
const INFORMATION_SCHEMA: i64 = 13_000;
const OWNER: i64 = 10;
/// OIDs below this one are the system's.
const FIRST: i64 = 16_384;

/// A relation: a table, or an index of one.
pub(super) struct Relation<'t> {
    oid: i64,
    name: &'t str,
    table: &'t Table,
    index: Option<&'t Index>,
}

/// FNV-1a, within the OIDs that are free.
fn hashed(name: &str) -> i64 {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    FIRST + i64::from(hash) % (i64::from(i32::MAX) - FIRST)
}

/// All tables and indexes with their OIDs; what would share one gets the next.
fn relations(tables: &[std::sync::Arc<Table>]) -> Vec<Relation<'_>> {
    let mut all: Vec<Relation<'_>> = Vec::new();
    for table in tables {
        all.push(Relation { oid: 0, name: &table.name, table, index: None });
        let shown = table.indexes.iter().filter(|index| !is_hidden(table, index));
        all.extend(shown.map(|index| Relation { oid: 0, name: &index.name, table, index: Some(index) }));
    }
    all.sort_by_key(|relation| relation.name);
    let mut taken = std::collections::HashSet::new();
    for relation in &mut all {
        let mut oid = hashed(relation.name);
        while !taken.insert(oid) {
            oid += 1;
        }
        relation.oid = oid;
    }
    all
}

fn is_hidden(table: &Table, index: &Index) -> bool {
    index.columns.iter().any(|(column, _)| table.columns[*column].hidden)
}

fn is_primary(table: &Table, index: &Index) -> bool {
    table.primary.is_some_and(|primary| table.indexes[primary].name == index.name)
}

fn quoted(name: &str) -> String {
    let plain = name.starts_with(|sign: char| sign.is_ascii_lowercase() || sign == '_')
        && name.chars().all(|sign| sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '_');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn columns_of(table: &Table, index: &Index, direction: bool) -> String {
    let shown = index.columns.iter().map(|(column, descending)| {
        let suffix = if *descending && direction { " DESC" } else { "" };
        quoted(&table.columns[*column].name) + suffix
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn text(value: impl AsRef<str>) -> Datum {
    Datum::text(value)
}

fn yes(value: bool) -> Datum {
    Datum::Bool(value)
}

/// All tables that a catalog knows.
pub(super) fn tables(catalog: &dyn Catalog) -> Vec<std::sync::Arc<Table>> {
    catalog.names().iter().filter_map(|name| catalog.table(name)).collect()
}

/// Definitions of indexes (or of the constraints that are indexes) by OID.
pub(super) fn definitions(catalog: &dyn Catalog, constraints: bool) -> Vec<(i64, String)> {
    let tables = tables(catalog);
    let indexes =
        relations(&tables).into_iter().filter_map(|it| it.index.map(|index| (it.oid, it.table, index)));
    indexes
        .filter(|(_, table, index)| !constraints || is_primary(table, index))
        .map(|(oid, table, index)| {
            if constraints {
                return (oid, format!("PRIMARY KEY ({})", columns_of(table, index, false)));
            }
            let unique = if index.unique { "UNIQUE " } else { "" };
            let method = if index.ordered { "btree" } else { "hash" };
            let (name, on) = (quoted(&index.name), quoted(&table.name));
            let columns = columns_of(table, index, true);
            (oid, format!("CREATE {unique}INDEX {name} ON public.{on} USING {method} ({columns})"))
        })
        .collect()
}

/// Names of relations by OID.
pub(super) fn names(catalog: &dyn Catalog) -> Vec<(i64, String)> {
    relations(&tables(catalog)).iter().map(|relation| (relation.oid, quoted(relation.name))).collect()
}

/// The system table with this name; none if there is no such one.
pub(super) fn system(catalog: &dyn Catalog, schema: &str, name: &str) -> Option<System> {
    if schema == "information_schema" {
        return information_schema(catalog, name);
    }
    let all = tables(catalog);
    Some(match name {
        "pg_class" => pg_class(&relations(&all)),
        "pg_attribute" => pg_attribute(&relations(&all)),
        "pg_attrdef" => pg_attrdef(&relations(&all)),
        "pg_index" => pg_index(&relations(&all)),
        "pg_constraint" => pg_constraint(&relations(&all)),
        "pg_tables" => System {
            columns: vec![
                ("schemaname", Name),
                ("tablename", Name),
                ("tableowner", Name),
                ("hasindexes", Bool),
            ],
            rows: all
                .iter()
                .map(|table| vec![text("public"), text(&table.name), text("postgres"), yes(true)])
                .collect(),
        },
        "pg_namespace" => System {
            columns: vec![("oid", Oid), ("nspname", Name), ("nspowner", Oid), ("nspacl", Text)],
            rows: [
                (PG_CATALOG, "pg_catalog"),
                (PUBLIC, "public"),
                (INFORMATION_SCHEMA, "information_schema"),
            ]
            .map(|(oid, name)| vec![Datum::Int(oid), text(name), Datum::Int(OWNER), Datum::Null])
            .into(),
        },
        "pg_am" => System {
            columns: vec![("oid", Oid), ("amname", Name), ("amtype", Char)],
            rows: [(2, "heap", "t"), (403, "btree", "i"), (405, "hash", "i")]
                .map(|(oid, name, kind)| vec![Datum::Int(oid), text(name), text(kind)])
                .into(),
        },
        "pg_type" => pg_type(),
        "pg_database" => pg_database(),
        "pg_roles" | "pg_user" | "pg_authid" => pg_roles(),
        "pg_description" => System {
            columns: vec![("objoid", Oid), ("classoid", Oid), ("objsubid", Int4), ("description", Text)],
            rows: Vec::new(),
        },
        "pg_collation" => System { columns: vec![("oid", Oid), ("collname", Name)], rows: Vec::new() },
        "pg_inherits" => System {
            columns: vec![
                ("inhrelid", Oid),
                ("inhparent", Oid),
                ("inhseqno", Int4),
                ("inhdetachpending", Bool),
            ],
            rows: Vec::new(),
        },
        "pg_policy"
        | "pg_statistic_ext"
        | "pg_publication"
        | "pg_publication_rel"
        | "pg_publication_namespace"
        | "pg_trigger"
        | "pg_rewrite"
        | "pg_enum"
        | "pg_extension"
        | "pg_foreign_table"
        | "pg_foreign_server"
        | "pg_partitioned_table"
        | "pg_event_trigger"
        | "pg_range"
        | "pg_shdescription"
        | "pg_depend" => System { columns: vec![("oid", Oid)], rows: Vec::new() },
        _ => return None,
    })
}

fn pg_class(relations: &[Relation<'_>]) -> System {
    let columns = vec![
        ("oid", Oid),
        ("relname", Name),
        ("relnamespace", Oid),
        ("reltype", Oid),
        ("reloftype", Oid),
        ("relowner", Oid),
        ("relam", Oid),
        ("reltablespace", Oid),
        ("relpages", Int4),
        ("reltuples", Float4),
        ("reltoastrelid", Oid),
        ("relhasindex", Bool),
        ("relisshared", Bool),
        ("relpersistence", Char),
        ("relkind", Char),
        ("relnatts", Int2),
        ("relchecks", Int2),
        ("relhasrules", Bool),
        ("relhastriggers", Bool),
        ("relrowsecurity", Bool),
        ("relforcerowsecurity", Bool),
        ("relispopulated", Bool),
        ("relreplident", Char),
        ("relispartition", Bool),
        ("relacl", Text),
        ("reloptions", Text),
    ];
    let row = |relation: &Relation<'_>| {
        let table = relation.table;
        let (kind, method, count) = match relation.index {
            None => ("r", 2, table.columns.iter().filter(|column| !column.hidden).count()),
            Some(index) => ("i", if index.ordered { 403 } else { 405 }, index.columns.len()),
        };
        let indexed = relation.index.is_none() && table.indexes.iter().any(|index| !is_hidden(table, index));
        let zero = Datum::Int(0);
        vec![
            Datum::Int(relation.oid),
            text(relation.name),
            Datum::Int(PUBLIC),
            zero.clone(),
            zero.clone(),
            Datum::Int(OWNER),
            Datum::Int(method),
            zero.clone(),
            zero.clone(),
            Datum::Float(-1.0),
            zero.clone(),
            yes(indexed),
            yes(false),
            text("p"),
            text(kind),
            Datum::Int(count as i64),
            zero,
            yes(false),
            yes(false),
            yes(false),
            yes(false),
            yes(true),
            text("d"),
            yes(false),
            Datum::Null,
            Datum::Null,
        ]
    };
    System { columns, rows: relations.iter().map(row).collect() }
}

fn pg_attribute(relations: &[Relation<'_>]) -> System {
    let columns = vec![
        ("attrelid", Oid),
        ("attname", Name),
        ("atttypid", Oid),
        ("attlen", Int2),
        ("attnum", Int2),
        ("attndims", Int4),
        ("atttypmod", Int4),
        ("attnotnull", Bool),
        ("atthasdef", Bool),
        ("atthasmissing", Bool),
        ("attidentity", Char),
        ("attgenerated", Char),
        ("attisdropped", Bool),
        ("attislocal", Bool),
        ("attcollation", Oid),
        ("attoptions", Text),
        ("attacl", Text),
    ];
    let mut rows = Vec::new();
    for relation in relations {
        let places: Vec<usize> = match relation.index {
            Some(index) => index.columns.iter().map(|(column, _)| *column).collect(),
            None => (0..relation.table.columns.len()).collect(),
        };
        let shown =
            places.into_iter().map(|place| &relation.table.columns[place]).filter(|column| !column.hidden);
        for (number, column) in shown.enumerate() {
            let whole = relation.index.is_none();
            rows.push(vec![
                Datum::Int(relation.oid),
                text(&column.name),
                Datum::Int(column.ty.oid().into()),
                Datum::Int(column.ty.length().into()),
                Datum::Int(number as i64 + 1),
                Datum::Int(0),
                Datum::Int(column.modifier.into()),
                yes(whole && (!column.nullable || column.numbered)),
                yes(whole && column.default.is_some()),
                yes(false),
                text(if whole && column.numbered { "d" } else { "" }),
                text(""),
                yes(false),
                yes(true),
                Datum::Int(0),
                Datum::Null,
                Datum::Null,
            ]);
        }
    }
    System { columns, rows }
}

/// A default as it would be written.
fn default_text(column: &crate::catalog::Column) -> Option<String> {
    let value = crate::run::datum_of(column.default.as_ref()?);
    let shown = crate::types::text::show(&value, column.ty);
    Some(match column.ty.category() {
        Category::Number | Category::Boolean if column.ty != Type::Bool => shown,
        _ if column.ty == Type::Bool => if shown == "t" { "true" } else { "false" }.to_owned(),
        _ => format!("'{}'::{}", shown.replace('\'', "''"), column.ty.sql_name()),
    })
}

fn pg_attrdef(relations: &[Relation<'_>]) -> System {
    let mut rows = Vec::new();
    for relation in relations.iter().filter(|relation| relation.index.is_none()) {
        let shown = relation.table.columns.iter().filter(|column| !column.hidden);
        for (number, column) in shown.enumerate() {
            if let Some(default) = default_text(column) {
                let oid = hashed(&format!("{}.{}", relation.name, column.name));
                let number = Datum::Int(number as i64 + 1);
                rows.push(vec![Datum::Int(oid), Datum::Int(relation.oid), number, text(default)]);
            }
        }
    }
    System { columns: vec![("oid", Oid), ("adrelid", Oid), ("adnum", Int2), ("adbin", Text)], rows }
}

/// The numbers of an index's columns, as `pg_attribute` counts them.
fn numbers(table: &Table, index: &Index) -> Vec<String> {
    let number = |column: usize| table.columns[..=column].iter().filter(|it| !it.hidden).count();
    index.columns.iter().map(|(column, _)| number(*column).to_string()).collect()
}

fn oid_of(relations: &[Relation<'_>], name: &str) -> Datum {
    let found = relations.iter().find(|relation| relation.name == name && relation.index.is_none());
    Datum::Int(found.map_or(0, |relation| relation.oid))
}

fn pg_index(relations: &[Relation<'_>]) -> System {
    let columns = vec![
        ("indexrelid", Oid),
        ("indrelid", Oid),
        ("indnatts", Int2),
        ("indnkeyatts", Int2),
        ("indisunique", Bool),
        ("indisprimary", Bool),
        ("indisexclusion", Bool),
        ("indimmediate", Bool),
        ("indisclustered", Bool),
        ("indisvalid", Bool),
        ("indisready", Bool),
        ("indislive", Bool),
        ("indisreplident", Bool),
        ("indkey", Text),
        ("indexprs", Text),
        ("indpred", Text),
    ];
    let row = |relation: &Relation<'_>| {
        let (table, index) = (relation.table, relation.index?);
        Some(vec![
            Datum::Int(relation.oid),
            oid_of(relations, &table.name),
            Datum::Int(index.columns.len() as i64),
            Datum::Int(index.columns.len() as i64),
            yes(index.unique),
            yes(is_primary(table, index)),
            yes(false),
            yes(true),
            yes(false),
            yes(true),
            yes(true),
            yes(true),
            yes(false),
            text(numbers(table, index).join(" ")),
            Datum::Null,
            Datum::Null,
        ])
    };
    System { columns, rows: relations.iter().filter_map(row).collect() }
}

fn pg_constraint(relations: &[Relation<'_>]) -> System {
    let columns = vec![
        ("oid", Oid),
        ("conname", Name),
        ("connamespace", Oid),
        ("contype", Char),
        ("condeferrable", Bool),
        ("condeferred", Bool),
        ("convalidated", Bool),
        ("conrelid", Oid),
        ("contypid", Oid),
        ("conindid", Oid),
        ("conparentid", Oid),
        ("confrelid", Oid),
        ("conkey", Text),
    ];
    let row = |relation: &Relation<'_>| {
        let (table, index) = (relation.table, relation.index?);
        is_primary(table, index).then(|| {
            vec![
                Datum::Int(relation.oid),
                text(relation.name),
                Datum::Int(PUBLIC),
                text("p"),
                yes(false),
                yes(false),
                yes(true),
                oid_of(relations, &table.name),
                Datum::Int(0),
                Datum::Int(relation.oid),
                Datum::Int(0),
                Datum::Int(0),
                text(format!("{{{}}}", numbers(table, index).join(","))),
            ]
        })
    };
    System { columns, rows: relations.iter().filter_map(row).collect() }
}

fn pg_type() -> System {
    let columns = vec![
        ("oid", Oid),
        ("typname", Name),
        ("typnamespace", Oid),
        ("typowner", Oid),
        ("typlen", Int2),
        ("typtype", Char),
        ("typisdefined", Bool),
        ("typdelim", Char),
        ("typrelid", Oid),
        ("typelem", Oid),
        ("typarray", Oid),
        ("typnotnull", Bool),
        ("typbasetype", Oid),
        ("typtypmod", Int4),
        ("typcollation", Oid),
    ];
    let row = |ty: Type| {
        let zero = Datum::Int(0);
        vec![
            Datum::Int(ty.oid().into()),
            text(ty.name()),
            Datum::Int(PG_CATALOG),
            Datum::Int(OWNER),
            Datum::Int(ty.length().into()),
            text(if matches!(ty.category(), Category::Pseudo | Category::Unknown) { "p" } else { "b" }),
            yes(true),
            text(","),
            zero.clone(),
            zero.clone(),
            zero.clone(),
            yes(false),
            zero.clone(),
            Datum::Int(-1),
            zero,
        ]
    };
    System { columns, rows: Type::all().map(row).collect() }
}

fn pg_database() -> System {
    let columns = vec![
        ("oid", Oid),
        ("datname", Name),
        ("datdba", Oid),
        ("encoding", Int4),
        ("datlocprovider", Char),
        ("datistemplate", Bool),
        ("datallowconn", Bool),
        ("datconnlimit", Int4),
        ("datcollate", Text),
        ("datctype", Text),
        ("daticulocale", Text),
        ("dattablespace", Oid),
        ("datacl", Text),
    ];
    let row = vec![
        Datum::Int(5),
        text("postgres"),
        Datum::Int(OWNER),
        Datum::Int(6),
        text("c"),
        yes(false),
        yes(true),
        Datum::Int(-1),
        text("C.UTF-8"),
        text("C.UTF-8"),
        Datum::Null,
        Datum::Int(1663),
        Datum::Null,
    ];
    System { columns, rows: vec![row] }
}

fn pg_roles() -> System {
    let columns = vec![
        ("oid", Oid),
        ("rolname", Name),
        ("usename", Name),
        ("usesysid", Oid),
        ("rolsuper", Bool),
        ("rolinherit", Bool),
        ("rolcreaterole", Bool),
        ("rolcreatedb", Bool),
        ("rolcanlogin", Bool),
        ("rolreplication", Bool),
        ("rolbypassrls", Bool),
        ("rolconnlimit", Int4),
        ("rolvaliduntil", Type::TimestampTz),
    ];
    let (oid, name) = (Datum::Int(OWNER), text("postgres"));
    let mut row = vec![oid.clone(), name.clone(), name, oid];
    row.extend((0..7).map(|_| yes(true)));
    row.extend([Datum::Int(-1), Datum::Null]);
    System { columns, rows: vec![row] }
}

fn information_schema(catalog: &dyn Catalog, name: &str) -> Option<System> {
    let all = tables(catalog);
    Some(match name {
        "tables" => System {
            columns: vec![
                ("table_catalog", Name),
                ("table_schema", Name),
                ("table_name", Name),
                ("table_type", Text),
            ],
            rows: all
                .iter()
                .map(|table| vec![text("postgres"), text("public"), text(&table.name), text("BASE TABLE")])
                .collect(),
        },
        "schemata" => System {
            columns: vec![("catalog_name", Name), ("schema_name", Name), ("schema_owner", Name)],
            rows: ["pg_catalog", "public", "information_schema"]
                .map(|name| vec![text("postgres"), text(name), text("postgres")])
                .into(),
        },
        "columns" => {
            let mut rows = Vec::new();
            for table in &all {
                for (number, column) in table.columns.iter().filter(|column| !column.hidden).enumerate() {
                    rows.push(vec![
                        text("postgres"),
                        text("public"),
                        text(&table.name),
                        text(&column.name),
                        Datum::Int(number as i64 + 1),
                        default_text(column).map_or(Datum::Null, text),
                        text(if column.nullable && !column.numbered { "YES" } else { "NO" }),
                        text(display(column.ty, -1)),
                        text(column.ty.name()),
                    ]);
                }
            }
            System {
                columns: vec![
                    ("table_catalog", Name),
                    ("table_schema", Name),
                    ("table_name", Name),
                    ("column_name", Name),
                    ("ordinal_position", Int4),
                    ("column_default", Text),
                    ("is_nullable", Text),
                    ("data_type", Text),
                    ("udt_name", Name),
                ],
                rows,
            }
        }
        _ => return None,
    })
}
