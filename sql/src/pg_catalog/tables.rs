//! The system catalogs: `pg_catalog` and a little of `information_schema`, as rows made from the definitions when a statement is
//! bound.
//!
//! OIDs of tables and indexes are made of their names: they stay as long as the names do, in this process and the next.

use super::more::{category_of, information, more, opclass_of};
use super::shapes::Shapes;
use crate::catalog::{Catalog, Index, System, Table};
use crate::functions::input_of;
use crate::names::{plain, qualified, quoted, schema_of, within};
use crate::objects::Objects;
use crate::types::Column;
use crate::types::{Category, Datum, Type};
use Type::{Bool, Char, Float4, Int2, Int4, Name, Oid, Text};

pub(super) const PG_CATALOG: i64 = 11;
const PUBLIC: i64 = 2200;
const INFORMATION_SCHEMA: i64 = 13_000;
pub(super) const OWNER: i64 = 10;
/// OIDs below this one are the system's.
const FIRST: i64 = 16_384;

/// A relation: a table, an index of one, a view or a sequence.
pub(super) struct Relation<'t> {
    pub(super) oid: i64,
    /// Without its schema.
    pub(super) name: &'t str,
    /// With it, as `names` puts them together.
    pub(super) full: String,
    kind: RelationKind<'t>,
}

#[derive(Clone, Copy)]
enum RelationKind<'t> {
    Table(&'t Table),
    Index(&'t Table, &'t Index),
    /// A view's columns are known when it is bound.
    View(&'t [Column]),
    Sequence,
}

impl<'t> Relation<'t> {
    pub(super) fn table(&self) -> Option<&'t Table> {
        match self.kind {
            RelationKind::Table(table) => Some(table),
            _ => None,
        }
    }

    pub(super) fn view(&self) -> Option<&'t [Column]> {
        match self.kind {
            RelationKind::View(columns) => Some(columns),
            _ => None,
        }
    }

    pub(super) fn index(&self) -> Option<(&'t Table, &'t Index)> {
        match self.kind {
            RelationKind::Index(table, index) => Some((table, index)),
            _ => None,
        }
    }
}

/// The definitions of which relations are made.
pub(super) struct All {
    tables: Vec<std::sync::Arc<Table>>,
    views: Vec<(String, Vec<Column>)>,
    sequences: Vec<String>,
}

/// All relations that a catalog knows, with the columns of views.
fn all(catalog: &dyn Catalog) -> All {
    let shapes = Shapes::new(catalog);
    all_with(catalog, |view| shapes.of(view))
}

/// All relations that a catalog knows. No view is bound for that: it is said to have no columns.
fn all_named(catalog: &dyn Catalog) -> All {
    all_with(catalog, |_| Vec::new())
}

fn all_with(catalog: &dyn Catalog, view: impl Fn(&str) -> Vec<Column>) -> All {
    let objects = catalog.objects();
    All {
        tables: tables(catalog),
        views: objects.views().map(|(name, _)| (name.to_owned(), view(name))).collect(),
        sequences: objects.sequences().map(|(name, _)| name.to_owned()).collect(),
    }
}

/// FNV-1a, within the OIDs that are free.
pub(super) fn hashed(name: &str) -> i64 {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    FIRST + i64::from(hash) % (i64::from(i32::MAX) - FIRST)
}

/// The OID of a schema.
pub(super) fn schema_oid(name: &str) -> i64 {
    match name {
        "pg_catalog" => PG_CATALOG,
        "public" => PUBLIC,
        "information_schema" => INFORMATION_SCHEMA,
        // No relation has such a name.
        other => hashed(&format!("{}{other}", crate::names::MARK)),
    }
}

/// All schemas by OID.
pub(super) fn schemas(objects: &Objects) -> Vec<(i64, String)> {
    let all = crate::names::SYSTEM.into_iter().chain(objects.schemas());
    all.map(|name| (schema_oid(name), name.to_owned())).collect()
}

/// All relations with their OIDs; what would share one gets the next.
fn relations(of: &All) -> Vec<Relation<'_>> {
    let mut all: Vec<Relation<'_>> = Vec::new();
    let mut add = |full: &str, name, kind| {
        all.push(Relation { oid: 0, name, full: full.to_owned(), kind });
    };
    for table in &of.tables {
        add(&table.name, plain(&table.name), RelationKind::Table(table));
        for index in table.indexes.iter().filter(|index| !is_hidden(table, index)) {
            let full = within(schema_of(&table.name), &index.name);
            add(&full, &index.name, RelationKind::Index(table, index));
        }
    }
    of.views.iter().for_each(|(name, columns)| add(name, plain(name), RelationKind::View(columns)));
    of.sequences.iter().for_each(|name| add(name, plain(name), RelationKind::Sequence));
    all.sort_by(|a, b| a.full.cmp(&b.full));
    let mut taken = std::collections::HashSet::new();
    for relation in &mut all {
        let mut oid = hashed(&relation.full);
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

pub(super) fn is_primary(table: &Table, index: &Index) -> bool {
    table.primary.is_some_and(|primary| table.indexes[primary].name == index.name)
}

pub(super) fn columns_of(table: &Table, index: &Index, direction: bool) -> String {
    let shown = index.columns.iter().map(|(column, descending)| {
        let suffix = if *descending && direction { " DESC" } else { "" };
        quoted(&table.columns[*column].name) + suffix
    });
    shown.collect::<Vec<_>>().join(", ")
}

pub(super) fn text(value: impl AsRef<str>) -> Datum {
    Datum::text(value)
}

pub(super) fn yes(value: bool) -> Datum {
    Datum::Bool(value)
}

/// All tables that a catalog knows.
pub(super) fn tables(catalog: &dyn Catalog) -> Vec<std::sync::Arc<Table>> {
    catalog.names().iter().filter_map(|name| catalog.table(name)).collect()
}

/// Definitions of indexes, or of constraints, by OID.
pub(super) fn definitions(catalog: &dyn Catalog, constraints: bool) -> Vec<(i64, String)> {
    let all = all_named(catalog);
    let relations = relations(&all);
    if constraints {
        let found = super::constraints::constraints(&relations, catalog.objects());
        return found.into_iter().map(|it| (it.oid, it.definition)).collect();
    }
    let indexes = relations.iter().filter_map(|it| it.index().map(|(table, index)| (it.oid, table, index)));
    indexes
        .map(|(oid, table, index)| {
            let unique = if index.unique { "UNIQUE " } else { "" };
            let method = if index.ordered { "btree" } else { "hash" };
            let (name, on) = (quoted(&index.name), qualified(&table.name));
            let columns = columns_of(table, index, true);
            (oid, format!("CREATE {unique}INDEX {name} ON {on} USING {method} ({columns})"))
        })
        .collect()
}

/// Full names of relations by OID.
pub(super) fn names(catalog: &dyn Catalog) -> Vec<(i64, String)> {
    relations(&all_named(catalog)).into_iter().map(|relation| (relation.oid, relation.full)).collect()
}

/// Queries of views by OID.
pub(super) fn view_texts(catalog: &dyn Catalog) -> Vec<(i64, String)> {
    let all = all_named(catalog);
    let relations = relations(&all);
    let text = |relation: &Relation<'_>| {
        let view = catalog.objects().view(&relation.full)?;
        Some((relation.oid, format!(" {};", view.query)))
    };
    relations.iter().filter_map(text).collect()
}

/// Comments: OID, number of the column, text.
pub(super) fn comments(catalog: &dyn Catalog) -> Vec<(i64, i64, String)> {
    let all = all(catalog);
    let (relations, objects) = (relations(&all), catalog.objects());
    let mut found = Vec::new();
    for relation in &relations {
        let mut note = |number: usize, text: Option<&str>| {
            found.extend(text.map(|text| (relation.oid, number as i64, text.to_owned())));
        };
        note(0, objects.comment(&relation.full));
        let names: Vec<&str> = match relation.kind {
            RelationKind::Table(table) => shown_columns(table).map(|column| column.name.as_str()).collect(),
            RelationKind::View(columns) => columns.iter().map(|column| column.name.as_str()).collect(),
            _ => Vec::new(),
        };
        for (place, name) in names.into_iter().enumerate() {
            note(place + 1, objects.column_comment(&relation.full, name));
        }
    }
    for one in super::constraints::constraints(&relations, objects) {
        if let Some(text) = objects.constraint_comment(&one.table, &one.name) {
            found.push((one.oid, 0, text.to_owned()));
        }
    }
    found
}

fn shown_columns(table: &Table) -> impl Iterator<Item = &crate::catalog::Column> {
    table.columns.iter().filter(|column| !column.hidden)
}

/// The system table with this name; none if there is no such one.
pub(super) fn pg_table(catalog: &dyn Catalog, schema: &str, name: &str) -> Option<System> {
    system_of(catalog, &all(catalog), schema, name)
}

/// The same, asked for its columns only: its rows say nothing.
pub(super) fn columns_only(catalog: &dyn Catalog, schema: &str, name: &str) -> Option<System> {
    let nothing = All { tables: Vec::new(), views: Vec::new(), sequences: Vec::new() };
    let found = system_of(catalog, &nothing, schema, name)?;
    Some(System { rows: Vec::new(), ..found })
}

fn system_of(catalog: &dyn Catalog, all: &All, schema: &str, name: &str) -> Option<System> {
    let relations = relations(all);
    if schema == "information_schema" {
        return information_schema(catalog, name).or_else(|| information(catalog, &relations, name));
    }
    Some(match name {
        "pg_class" => pg_class(&relations),
        "pg_attribute" => pg_attribute(&relations),
        "pg_attrdef" => pg_attrdef(&relations),
        "pg_index" => pg_index(&relations),
        "pg_constraint" => super::constraints::pg_constraint(&relations, catalog.objects()),
        "pg_timezone_names" => super::zones::pg_timezone_names(),
        "pg_sequence" => super::constraints::pg_sequence(&relations, catalog),
        "pg_sequences" => super::constraints::pg_sequences(catalog),
        "pg_depend" => super::constraints::pg_depend(&relations, catalog),
        "pg_views" => System {
            columns: vec![
                ("schemaname", Name),
                ("viewname", Name),
                ("viewowner", Name),
                ("definition", Text),
            ],
            rows: catalog
                .objects()
                .views()
                .map(|(name, view)| {
                    let definition = text(format!(" {};", view.query));
                    vec![text(schema_of(name)), text(plain(name)), text("postgres"), definition]
                })
                .collect(),
        },
        "pg_tables" => System {
            columns: vec![
                ("schemaname", Name),
                ("tablename", Name),
                ("tableowner", Name),
                ("hasindexes", Bool),
            ],
            rows: all
                .tables
                .iter()
                .map(|table| {
                    let name = &table.name;
                    vec![text(schema_of(name)), text(plain(name)), text("postgres"), yes(true)]
                })
                .collect(),
        },
        "pg_namespace" => System {
            columns: vec![("oid", Oid), ("nspname", Name), ("nspowner", Oid), ("nspacl", Text)],
            rows: schemas(catalog.objects())
                .into_iter()
                .map(|(oid, name)| vec![Datum::Int(oid), text(name), Datum::Int(OWNER), Datum::Null])
                .collect(),
        },
        "pg_am" => System {
            columns: vec![("oid", Oid), ("amname", Name), ("amtype", Char), ("amcanorder", Bool)],
            rows: [(2, "heap", "t"), (403, "btree", "i"), (405, "hash", "i")]
                .map(|(oid, name, kind)| {
                    // PostgreSQL 9.5 had the last one, and drivers that tell versions by it still ask.
                    vec![Datum::Int(oid), text(name), text(kind), yes(name == "btree")]
                })
                .into(),
        },
        "pg_type" => pg_type(),
        "pg_database" => pg_database(),
        "pg_roles" | "pg_user" | "pg_authid" => pg_roles(),
        "pg_description" => System {
            columns: vec![("objoid", Oid), ("classoid", Oid), ("objsubid", Int4), ("description", Text)],
            rows: catalog
                .comments()
                .into_iter()
                .map(|(oid, number, about)| {
                    let class = if relations.iter().any(|it| it.oid == oid) { 1259 } else { 2606 };
                    vec![Datum::Int(oid), Datum::Int(class), Datum::Int(number), text(about)]
                })
                .collect(),
        },
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
        | "pg_rewrite"
        | "pg_foreign_table"
        | "pg_foreign_server"
        | "pg_partitioned_table"
        | "pg_event_trigger" => System { columns: vec![("oid", Oid)], rows: Vec::new() },
        name => {
            return more(catalog, &relations, name)
                .or_else(|| super::activity::activity(catalog, &relations, name));
        }
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
        ("relfilenode", Oid),
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
        ("reloptions", Type::TextArray),
    ];
    let row = |relation: &Relation<'_>| {
        let (kind, method, count) = match relation.kind {
            RelationKind::Table(table) => ("r", 2, shown_columns(table).count()),
            RelationKind::Index(_, index) => {
                ("i", if index.ordered { 403 } else { 405 }, index.columns.len())
            }
            RelationKind::View(columns) => ("v", 0, columns.len()),
            RelationKind::Sequence => ("S", 0, 3),
        };
        let table = relation.table();
        let indexed = table.is_some_and(|table| table.indexes.iter().any(|index| !is_hidden(table, index)));
        let checks = Datum::Int(table.map_or(0, |table| table.checks.len() as i64));
        // Foreign keys are triggers to PostgreSQL, and psql asks for them where there are such.
        let keyed = table.is_some_and(|table| !table.foreign.is_empty() || !table.referenced.is_empty());
        let options = match (&relation.kind, table.and_then(|table| table.tiering)) {
            (RelationKind::Table(_), Some(tiering)) => {
                Datum::Array([text(format!("tiering={tiering}"))].into())
            }
            _ => Datum::Null,
        };
        let zero = Datum::Int(0);
        vec![
            Datum::Int(relation.oid),
            text(relation.name),
            Datum::Int(schema_oid(schema_of(&relation.full))),
            zero.clone(),
            zero.clone(),
            Datum::Int(OWNER),
            Datum::Int(method),
            zero.clone(),
            Datum::Int(relation.oid),
            zero.clone(),
            Datum::Float(table.map_or(-1.0, |table| table.rows as f64)),
            zero.clone(),
            yes(indexed),
            yes(false),
            text("p"),
            text(kind),
            Datum::Int(count as i64),
            checks,
            yes(kind == "v"),
            yes(keyed),
            yes(false),
            yes(false),
            yes(true),
            text("d"),
            yes(false),
            Datum::Null,
            options,
        ]
    };
    System { columns, rows: relations.iter().map(row).collect() }
}

fn pg_attribute(relations: &[Relation<'_>]) -> System {
    let columns = vec![
        ("attrelid", Oid),
        ("attname", Name),
        ("atttypid", Oid),
        ("attstattarget", Int4),
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
        ("attinhcount", Int4),
        ("attcollation", Oid),
        ("attcompression", Char),
        ("attstorage", Char),
        ("attoptions", Type::TextArray),
        ("attacl", Text),
        ("attfdwoptions", Type::TextArray),
    ];
    let mut rows = Vec::new();
    let mut add = |oid: i64,
                   number: usize,
                   name: &str,
                   ty: Type,
                   modifier: i32,
                   table: Option<&crate::catalog::Column>| {
        let identity = match table {
            Some(column) if column.identity == Some(true) => "a",
            Some(column) if column.identity.is_some() || column.numbered => "d",
            _ => "",
        };
        rows.push(vec![
            Datum::Int(oid),
            text(name),
            Datum::Int(ty.oid().into()),
            Datum::Int(-1),
            Datum::Int(ty.length().into()),
            Datum::Int(number as i64 + 1),
            Datum::Int(0),
            Datum::Int(modifier.into()),
            yes(table.is_some_and(|column| !column.nullable || column.numbered)),
            yes(table.is_some_and(|column| default_text(column).is_some())),
            yes(false),
            text(identity),
            text(""),
            yes(false),
            yes(true),
            Datum::Int(0),
            Datum::Int(0),
            text(""),
            text(if ty.length() < 0 { "x" } else { "p" }),
            Datum::Null,
            Datum::Null,
            Datum::Null,
        ]);
    };
    for relation in relations {
        match relation.kind {
            RelationKind::Table(table) => {
                for (number, column) in shown_columns(table).enumerate() {
                    add(relation.oid, number, &column.name, column.ty, column.modifier, Some(column));
                }
            }
            RelationKind::Index(table, index) => {
                for (number, (place, _)) in index.columns.iter().enumerate() {
                    let column = &table.columns[*place];
                    add(relation.oid, number, &column.name, column.ty, column.modifier, None);
                }
            }
            RelationKind::View(columns) => {
                for (number, column) in columns.iter().enumerate() {
                    add(relation.oid, number, &column.name, column.ty, column.modifier, None);
                }
            }
            RelationKind::Sequence => {
                let columns = [("last_value", Type::Int8), ("log_cnt", Type::Int8), ("is_called", Bool)];
                for (number, (name, ty)) in columns.into_iter().enumerate() {
                    add(relation.oid, number, name, ty, -1, None);
                }
            }
        }
    }
    System { columns, rows }
}

/// A default as it would be written.
pub(crate) fn default_text(column: &crate::catalog::Column) -> Option<String> {
    if column.identity.is_some() {
        return None;
    }
    if let Some(text) = &column.default_text {
        return Some(text.clone());
    }
    let value = crate::types::stored::datum_of(column.default.as_ref()?);
    // Numbers are mostly written as integers, or with as many digits as the column has; another text is kept beside the value.
    Some(match column.ty.category() {
        Category::Number => match crate::types::text::show(&value, column.ty, &crate::types::Zone::UTC) {
            shown if !shown.starts_with('-') => shown,
            shown if column.ty.is_integer() => format!("'{shown}'::integer"),
            shown => format!("'{shown}'::numeric"),
        },
        _ => crate::types::text::constant(&value, column.ty),
    })
}

fn pg_attrdef(relations: &[Relation<'_>]) -> System {
    let mut rows = Vec::new();
    for (relation, table) in relations.iter().filter_map(|it| it.table().map(|table| (it, table))) {
        for (number, column) in shown_columns(table).enumerate() {
            if let Some(default) = default_text(column) {
                let oid = hashed(&format!("{}.{}", relation.full, column.name));
                let number = Datum::Int(number as i64 + 1);
                rows.push(vec![Datum::Int(oid), Datum::Int(relation.oid), number, text(default)]);
            }
        }
    }
    System { columns: vec![("oid", Oid), ("adrelid", Oid), ("adnum", Int2), ("adbin", Text)], rows }
}

/// The numbers of an index's columns, as `pg_attribute` counts them.
pub(super) fn numbers(table: &Table, index: &Index) -> Vec<i64> {
    let number = |column: usize| table.columns[..=column].iter().filter(|it| !it.hidden).count();
    index.columns.iter().map(|(column, _)| number(*column) as i64).collect()
}

/// Numbers as an array.
pub(super) fn list(numbers: &[i64]) -> Datum {
    Datum::Array(numbers.iter().map(|number| Datum::Int(*number)).collect())
}

pub(super) fn oid_of(relations: &[Relation<'_>], name: &str) -> Datum {
    let found = relations.iter().find(|relation| relation.full == name && relation.table().is_some());
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
        ("indnullsnotdistinct", Bool),
        ("indkey", Type::Int2Vector),
        ("indcollation", Type::OidVector),
        ("indclass", Type::OidVector),
        ("indoption", Type::Int2Vector),
        ("indexprs", Text),
        ("indpred", Text),
    ];
    let row = |relation: &Relation<'_>| {
        let (table, index) = relation.index()?;
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
            yes(false),
            list(&numbers(table, index)),
            list(&index.columns.iter().map(|_| 0).collect::<Vec<_>>()),
            list(
                &index
                    .columns
                    .iter()
                    .map(|(column, _)| opclass_of(table.columns[*column].ty, index.ordered))
                    .collect::<Vec<_>>(),
            ),
            // Descending, and so nulls first.
            list(&index.columns.iter().map(|(_, down)| if *down { 3 } else { 0 }).collect::<Vec<_>>()),
            Datum::Null,
            Datum::Null,
        ])
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
        ("typbyval", Bool),
        ("typtype", Char),
        ("typcategory", Char),
        ("typispreferred", Bool),
        ("typisdefined", Bool),
        ("typdelim", Char),
        ("typrelid", Oid),
        ("typelem", Oid),
        ("typarray", Oid),
        ("typinput", Type::Regproc),
        ("typnotnull", Bool),
        ("typbasetype", Oid),
        ("typtypmod", Int4),
        ("typndims", Int4),
        ("typcollation", Oid),
        ("typdefault", Text),
        ("typacl", Text),
    ];
    let row = |ty: Type| {
        let zero = Datum::Int(0);
        vec![
            Datum::Int(ty.oid().into()),
            text(ty.name()),
            Datum::Int(PG_CATALOG),
            Datum::Int(OWNER),
            Datum::Int(ty.length().into()),
            yes((1..=8).contains(&ty.length())),
            text(if matches!(ty.category(), Category::Pseudo | Category::Unknown) { "p" } else { "b" }),
            text(category_of(ty)),
            yes(ty.is_preferred()),
            yes(true),
            text(","),
            zero.clone(),
            Datum::Int(ty.element().map_or(0, |element| element.oid().into())),
            Datum::Int(ty.array().map_or(0, |array| array.oid().into())),
            Datum::Int(input_of(ty)),
            yes(false),
            zero.clone(),
            Datum::Int(-1),
            zero.clone(),
            zero,
            Datum::Null,
            Datum::Null,
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
    let objects = catalog.objects();
    Some(match name {
        "tables" => System {
            columns: vec![
                ("table_catalog", Name),
                ("table_schema", Name),
                ("table_name", Name),
                ("table_type", Type::Varchar),
            ],
            rows: all
                .iter()
                .map(|table| (table.name.as_str(), "BASE TABLE"))
                .chain(objects.views().map(|(name, _)| (name, "VIEW")))
                .map(|(name, kind)| {
                    vec![text("postgres"), text(schema_of(name)), text(plain(name)), text(kind)]
                })
                .collect(),
        },
        _ => return None,
    })
}
