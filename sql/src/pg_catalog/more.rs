//! System catalogs that tools ask for and that say little here: types' own, collations, operator classes, and views over the
//! others (`pg_indexes`, `information_schema`).

use super::constraints::{Constraint, constraints};
use super::tables::{OWNER, PG_CATALOG, Relation, default_text, text, yes};
use crate::catalog::{Catalog, System};
use crate::names::{plain, schema_of};
use crate::types::{Category, Datum, Type, display, numeric_parts};
use Type::{Bool, Char, Float4, Int2, Int4, Int8, Name, Oid, Regproc, Text, TextArray};

fn nothing(columns: &[(&'static str, Type)]) -> System {
    System { columns: columns.to_vec(), rows: Vec::new() }
}

/// One of these tables; none if the name is none of them.
pub(super) fn more(catalog: &dyn Catalog, relations: &[Relation<'_>], name: &str) -> Option<System> {
    Some(match name {
        "pg_range" => nothing(&[
            ("rngtypid", Oid),
            ("rngsubtype", Oid),
            ("rngmultitypid", Oid),
            ("rngcollation", Oid),
            ("rngsubopc", Oid),
            ("rngcanonical", Regproc),
            ("rngsubdiff", Regproc),
        ]),
        "pg_enum" => {
            nothing(&[("oid", Oid), ("enumtypid", Oid), ("enumsortorder", Float4), ("enumlabel", Name)])
        }
        "pg_extension" => nothing(&[
            ("oid", Oid),
            ("extname", Name),
            ("extowner", Oid),
            ("extnamespace", Oid),
            ("extrelocatable", Bool),
            ("extversion", Text),
            ("extconfig", Type::OidArray),
            ("extcondition", TextArray),
        ]),
        "pg_available_extensions" => nothing(&[
            ("name", Name),
            ("default_version", Text),
            ("installed_version", Text),
            ("comment", Text),
        ]),
        "pg_trigger" => nothing(&[
            ("oid", Oid),
            ("tgrelid", Oid),
            ("tgparentid", Oid),
            ("tgname", Name),
            ("tgfoid", Oid),
            ("tgtype", Int2),
            ("tgenabled", Char),
            ("tgisinternal", Bool),
            ("tgconstrrelid", Oid),
            ("tgconstrindid", Oid),
            ("tgconstraint", Oid),
            ("tgdeferrable", Bool),
            ("tginitdeferred", Bool),
        ]),
        "pg_proc" => nothing(&[
            ("oid", Oid),
            ("proname", Name),
            ("pronamespace", Oid),
            ("proowner", Oid),
            ("prolang", Oid),
            ("prokind", Char),
            ("proretset", Bool),
            ("pronargs", Int2),
            ("prorettype", Oid),
            ("proargtypes", Type::OidVector),
            ("proallargtypes", Type::OidArray),
            ("proargmodes", TextArray),
            ("proargnames", TextArray),
            ("prosrc", Text),
        ]),
        "pg_auth_members" => {
            nothing(&[("roleid", Oid), ("member", Oid), ("grantor", Oid), ("admin_option", Bool)])
        }
        "pg_language" => nothing(&[("oid", Oid), ("lanname", Name), ("lanowner", Oid)]),
        "pg_shdescription" => nothing(&[("objoid", Oid), ("classoid", Oid), ("description", Text)]),
        "pg_matviews" => nothing(&[
            ("schemaname", Name),
            ("matviewname", Name),
            ("matviewowner", Name),
            ("definition", Text),
        ]),
        "pg_tablespace" => System {
            columns: vec![
                ("oid", Oid),
                ("spcname", Name),
                ("spcowner", Oid),
                ("spcacl", Text),
                ("spcoptions", TextArray),
            ],
            rows: [(1663, "pg_default"), (1664, "pg_global")]
                .map(|(oid, name)| {
                    vec![Datum::Int(oid), text(name), Datum::Int(OWNER), Datum::Null, Datum::Null]
                })
                .into(),
        },
        "pg_collation" => System {
            columns: vec![
                ("oid", Oid),
                ("collname", Name),
                ("collnamespace", Oid),
                ("collowner", Oid),
                ("collprovider", Char),
                ("collisdeterministic", Bool),
                ("collencoding", Int4),
                ("collcollate", Text),
                ("collctype", Text),
            ],
            rows: [(100, "default", "d"), (950, "C", "c"), (951, "POSIX", "c")]
                .map(|(oid, name, provider)| {
                    vec![
                        Datum::Int(oid),
                        text(name),
                        Datum::Int(PG_CATALOG),
                        Datum::Int(OWNER),
                        text(provider),
                        yes(true),
                        Datum::Int(-1),
                        if provider == "c" { text(name) } else { Datum::Null },
                        if provider == "c" { text(name) } else { Datum::Null },
                    ]
                })
                .into(),
        },
        "pg_opclass" => pg_opclass(),
        "pg_indexes" => System {
            columns: vec![
                ("schemaname", Name),
                ("tablename", Name),
                ("indexname", Name),
                ("tablespace", Name),
                ("indexdef", Text),
            ],
            rows: {
                let definitions = catalog.definitions(false);
                let row = |relation: &Relation<'_>| {
                    let (table, index) = relation.index()?;
                    let (_, definition) = definitions.iter().find(|(oid, _)| *oid == relation.oid)?;
                    Some(vec![
                        text(schema_of(&table.name)),
                        text(plain(&table.name)),
                        text(&index.name),
                        Datum::Null,
                        text(definition),
                    ])
                };
                relations.iter().filter_map(row).collect()
            },
        },
        _ => return None,
    })
}

/// The operator class that an index on a column of this type has.
pub(super) fn opclass_of(ty: Type, ordered: bool) -> i64 {
    i64::from(ty.oid()) * 2 + i64::from(ordered) + 100_000
}

/// Operator classes: one for each type and kind of index. Their OIDs are this database's own.
fn pg_opclass() -> System {
    let columns = vec![
        ("oid", Oid),
        ("opcmethod", Oid),
        ("opcname", Name),
        ("opcnamespace", Oid),
        ("opcowner", Oid),
        ("opcfamily", Oid),
        ("opcintype", Oid),
        ("opcdefault", Bool),
        ("opckeytype", Oid),
    ];
    let mut rows = Vec::new();
    for ty in Type::all().filter(|ty| !matches!(ty.category(), Category::Pseudo | Category::Unknown)) {
        for (ordered, method) in [(true, 403), (false, 405)] {
            rows.push(vec![
                Datum::Int(opclass_of(ty, ordered)),
                Datum::Int(method),
                text(format!("{}_ops", ty.name())),
                Datum::Int(PG_CATALOG),
                Datum::Int(OWNER),
                Datum::Int(0),
                Datum::Int(ty.oid().into()),
                yes(true),
                Datum::Int(0),
            ]);
        }
    }
    System { columns, rows }
}

/// `typcategory`
pub(super) fn category_of(ty: Type) -> &'static str {
    match ty.category() {
        Category::Boolean => "B",
        Category::Number => "N",
        Category::String => "S",
        Category::DateTime => "D",
        Category::TimeSpan => "T",
        Category::User => "U",
        Category::Internal => "Z",
        Category::Unknown => "X",
        Category::Pseudo => "P",
        Category::Array => "A",
    }
}

fn kind_of(constraint: &Constraint) -> &'static str {
    match constraint.kind {
        "p" => "PRIMARY KEY",
        "u" => "UNIQUE",
        "f" => "FOREIGN KEY",
        _ => "CHECK",
    }
}

fn yes_no(value: bool) -> Datum {
    text(if value { "YES" } else { "NO" })
}

/// Views of `information_schema` over constraints, columns and the rest; none if the name is none of them.
pub(super) fn information(catalog: &dyn Catalog, relations: &[Relation<'_>], name: &str) -> Option<System> {
    let all = || constraints(relations, catalog.objects());
    let db = || text("postgres");
    let schema = |full: &str| text(schema_of(full));
    Some(match name {
        "schemata" => System {
            columns: vec![("catalog_name", Name), ("schema_name", Name), ("schema_owner", Name)],
            rows: super::tables::schemas(catalog.objects())
                .into_iter()
                .map(|(_, name)| vec![db(), text(name), text("postgres")])
                .collect(),
        },
        "columns" => columns(relations),
        "views" => System {
            columns: vec![
                ("table_catalog", Name),
                ("table_schema", Name),
                ("table_name", Name),
                ("view_definition", Type::Varchar),
                ("check_option", Type::Varchar),
                ("is_updatable", Type::Varchar),
                ("is_insertable_into", Type::Varchar),
            ],
            rows: catalog
                .objects()
                .views()
                .map(|(name, view)| {
                    let definition = text(format!(" {};", view.query));
                    let (schema, name) = (schema(name), text(plain(name)));
                    vec![db(), schema, name, definition, text("NONE"), yes_no(false), yes_no(false)]
                })
                .collect(),
        },
        "sequences" => System {
            columns: vec![
                ("sequence_catalog", Name),
                ("sequence_schema", Name),
                ("sequence_name", Name),
                ("data_type", Type::Varchar),
                ("start_value", Type::Varchar),
                ("minimum_value", Type::Varchar),
                ("maximum_value", Type::Varchar),
                ("increment", Type::Varchar),
                ("cycle_option", Type::Varchar),
            ],
            rows: catalog
                .objects()
                .sequences()
                .filter(|(_, row)| !row.identity)
                .map(|(name, row)| {
                    let shown = |number: i64| text(number.to_string());
                    vec![
                        db(),
                        schema(name),
                        text(plain(name)),
                        text(Type::from_oid(row.ty).map_or("bigint", Type::sql_name)),
                        shown(row.start),
                        shown(row.min),
                        shown(row.max),
                        shown(row.increment),
                        yes_no(row.cycle),
                    ]
                })
                .collect(),
        },
        "table_constraints" => System {
            columns: vec![
                ("constraint_catalog", Name),
                ("constraint_schema", Name),
                ("constraint_name", Name),
                ("table_catalog", Name),
                ("table_schema", Name),
                ("table_name", Name),
                ("constraint_type", Type::Varchar),
                ("is_deferrable", Type::Varchar),
                ("initially_deferred", Type::Varchar),
                ("enforced", Type::Varchar),
            ],
            rows: all()
                .iter()
                .map(|one| {
                    vec![
                        db(),
                        schema(&one.table),
                        text(&one.name),
                        db(),
                        schema(&one.table),
                        text(plain(&one.table)),
                        text(kind_of(one)),
                        yes_no(one.deferrable),
                        yes_no(one.deferred),
                        yes_no(true),
                    ]
                })
                .collect(),
        },
        "key_column_usage" => usage(relations, &all(), true),
        "constraint_column_usage" => usage(relations, &all(), false),
        "check_constraints" => System {
            columns: vec![
                ("constraint_catalog", Name),
                ("constraint_schema", Name),
                ("constraint_name", Name),
                ("check_clause", Type::Varchar),
            ],
            rows: all()
                .iter()
                .filter(|one| one.kind == "c")
                .map(|one| {
                    let clause = one.definition.trim_start_matches("CHECK ");
                    vec![db(), schema(&one.table), text(&one.name), text(clause)]
                })
                .collect(),
        },
        "referential_constraints" => {
            let keys = all();
            let rule = |letter: &str| {
                text(match letter {
                    "r" => "RESTRICT",
                    "c" => "CASCADE",
                    "n" => "SET NULL",
                    "d" => "SET DEFAULT",
                    _ => "NO ACTION",
                })
            };
            let row = |one: &Constraint| {
                let (parent, theirs, update, delete) = one.foreign_parts()?;
                let meant = |key: &&Constraint| {
                    key.relation == parent
                        && ["p", "u"].contains(&key.kind)
                        && key.columns.len() == theirs.len()
                        && theirs.iter().all(|column| key.columns.contains(column))
                };
                let unique = keys.iter().find(meant);
                Some(vec![
                    db(),
                    schema(&one.table),
                    text(&one.name),
                    db(),
                    unique.map_or(Datum::Null, |key| schema(&key.table)),
                    unique.map_or(Datum::Null, |key| text(&key.name)),
                    text("NONE"),
                    rule(update),
                    rule(delete),
                ])
            };
            System {
                columns: vec![
                    ("constraint_catalog", Name),
                    ("constraint_schema", Name),
                    ("constraint_name", Name),
                    ("unique_constraint_catalog", Name),
                    ("unique_constraint_schema", Name),
                    ("unique_constraint_name", Name),
                    ("match_option", Type::Varchar),
                    ("update_rule", Type::Varchar),
                    ("delete_rule", Type::Varchar),
                ],
                rows: keys.iter().filter_map(row).collect(),
            }
        }
        _ => return None,
    })
}

/// Columns of keys (`own`), or those that constraints look at: of a foreign key, the parent's.
fn usage(relations: &[Relation<'_>], all: &[Constraint], own: bool) -> System {
    let mut columns = vec![
        ("constraint_catalog", Name),
        ("constraint_schema", Name),
        ("constraint_name", Name),
        ("table_catalog", Name),
        ("table_schema", Name),
        ("table_name", Name),
        ("column_name", Name),
    ];
    if own {
        columns.extend([("ordinal_position", Int4), ("position_in_unique_constraint", Int4)]);
    }
    let mut rows = Vec::new();
    for one in all.iter().filter(|one| !own || one.kind != "c") {
        let (oid, numbers) = match one.foreign_parts() {
            Some((parent, theirs, ..)) if !own => (parent, theirs),
            _ => (one.relation, &one.columns[..]),
        };
        let table = relations.iter().find(|it| it.oid == oid).and_then(Relation::table);
        let Some(table) = table else { continue };
        let shown: Vec<&str> =
            table.columns.iter().filter(|column| !column.hidden).map(|column| column.name.as_str()).collect();
        for (place, number) in numbers.iter().enumerate() {
            let Some(column) = usize::try_from(*number - 1).ok().and_then(|place| shown.get(place)) else {
                continue;
            };
            let (schema, of) = (schema_of(&one.table), &table.name);
            let parts = ["postgres", schema, &one.name, "postgres", schema_of(of), plain(of), column];
            let mut row: Vec<Datum> = parts.map(text).into();
            if own {
                let place = Datum::Int(place as i64 + 1);
                row.push(place.clone());
                row.push(if one.kind == "f" { place } else { Datum::Null });
            }
            rows.push(row);
        }
    }
    System { columns, rows }
}

fn columns(relations: &[Relation<'_>]) -> System {
    let columns = vec![
        ("table_catalog", Name),
        ("table_schema", Name),
        ("table_name", Name),
        ("column_name", Name),
        ("ordinal_position", Int4),
        ("column_default", Type::Varchar),
        ("is_nullable", Type::Varchar),
        ("data_type", Type::Varchar),
        ("character_maximum_length", Int4),
        ("numeric_precision", Int4),
        ("numeric_precision_radix", Int4),
        ("numeric_scale", Int4),
        ("datetime_precision", Int4),
        ("udt_catalog", Name),
        ("udt_schema", Name),
        ("udt_name", Name),
        ("is_identity", Type::Varchar),
        ("identity_generation", Type::Varchar),
        ("is_generated", Type::Varchar),
        ("generation_expression", Type::Varchar),
        ("is_updatable", Type::Varchar),
        ("collation_name", Name),
    ];
    let mut rows = Vec::new();
    let mut add = |table: &str,
                   number: usize,
                   name: &str,
                   (ty, modifier): (Type, i32),
                   of: Option<&crate::catalog::Column>| {
        let int = |value: Option<i64>| value.map_or(Datum::Null, Datum::Int);
        let length = matches!(ty, Type::Varchar | Type::BpChar).then_some(i64::from(modifier) - 4);
        let bits = match ty {
            Int2 => Some(16),
            Int4 => Some(32),
            Int8 => Some(64),
            Float4 => Some(24),
            Type::Float8 => Some(53),
            _ => None,
        };
        let parts = if ty == Type::Numeric { numeric_parts(modifier) } else { None };
        let precision = bits.or(parts.map(|(precision, _)| i64::from(precision)));
        let radix = if bits.is_some() { Some(2) } else { (ty == Type::Numeric).then_some(10) };
        let scale = if ty.is_integer() { Some(0) } else { parts.map(|(_, scale)| i64::from(scale)) };
        let timed = matches!(ty, Type::Time | Type::Timestamp | Type::TimestampTz | Type::Interval);
        let digits = if timed { Some(6) } else { (ty == Type::Date).then_some(0) };
        let identity = of.and_then(|column| column.identity);
        let nullable = of.is_none_or(|column| column.nullable && !column.numbered);
        let shown = if ty.element().is_some() { "ARRAY".to_owned() } else { display(ty, -1) };
        rows.push(vec![
            text("postgres"),
            text(schema_of(table)),
            text(plain(table)),
            text(name),
            Datum::Int(number as i64 + 1),
            of.and_then(default_text).map_or(Datum::Null, text),
            yes_no(nullable),
            text(shown),
            int(length.filter(|length| *length > 0)),
            int(precision),
            int(radix),
            int(scale),
            int(digits),
            text("postgres"),
            text("pg_catalog"),
            text(ty.name()),
            yes_no(identity.is_some()),
            identity.map_or(Datum::Null, |always| text(if always { "ALWAYS" } else { "BY DEFAULT" })),
            text("NEVER"),
            Datum::Null,
            yes_no(of.is_some()),
            Datum::Null,
        ]);
    };
    for relation in relations {
        if let Some(table) = relation.table() {
            for (number, column) in table.columns.iter().filter(|column| !column.hidden).enumerate() {
                add(&table.name, number, &column.name, (column.ty, column.modifier), Some(column));
            }
        }
        if let Some(columns) = relation.view() {
            for (number, column) in columns.iter().enumerate() {
                add(&relation.full, number, &column.name, (column.ty, column.modifier), None);
            }
        }
    }
    System { columns, rows }
}
