//! Constraints and sequences in the system catalogs.

use super::tables::{
    Relation, columns_of, hashed, is_primary, list as array_of, numbers, oid_of, schema_oid, text, yes,
};
use crate::catalog::{Catalog, Foreign, System, Table};
use crate::names::{plain, quoted, schema_of, within};
use crate::objects::Objects;
use crate::objects::rows::ActionRow;
use crate::types::{Datum, Type};
use Type::{Bool, Char, Int4, Int8, Name, Oid, Text};

/// A constraint, as `pg_constraint` has it.
pub(super) struct Constraint {
    pub(super) oid: i64,
    pub(super) name: String,
    pub(super) table: String,
    pub(super) definition: String,
    pub(super) kind: &'static str,
    pub(super) relation: i64,
    index: i64,
    pub(super) columns: Vec<i64>,
    /// The parent's OID and columns, and the actions, of a foreign key.
    foreign: Option<(i64, Vec<i64>, ActionRow, ActionRow)>,
    pub(super) deferrable: bool,
    pub(super) deferred: bool,
}

impl Constraint {
    /// Of a foreign key: the parent's OID and columns, and the letters of its actions on update and delete.
    pub(super) fn foreign_parts(&self) -> Option<(i64, &[i64], &'static str, &'static str)> {
        let (parent, theirs, update, delete) = self.foreign.as_ref()?;
        Some((*parent, theirs, letter(*update), letter(*delete)))
    }
}

fn letter(action: ActionRow) -> &'static str {
    match action {
        ActionRow::NoAction => "a",
        ActionRow::Restrict => "r",
        ActionRow::Cascade => "c",
        ActionRow::SetNull => "n",
        ActionRow::SetDefault => "d",
    }
}

fn clause(what: &str, action: ActionRow) -> String {
    let action = match action {
        ActionRow::NoAction => return String::new(),
        ActionRow::Restrict => "RESTRICT",
        ActionRow::Cascade => "CASCADE",
        ActionRow::SetNull => "SET NULL",
        ActionRow::SetDefault => "SET DEFAULT",
    };
    format!(" ON {what} {action}")
}

fn list(names: &[String]) -> String {
    names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}

/// A foreign key as it would be written.
fn foreign_definition(key: &Foreign) -> String {
    let (columns, parent, theirs) = (list(&key.columns), quoted(&key.parent), list(&key.parent_columns));
    let mut shown = format!("FOREIGN KEY ({columns}) REFERENCES {parent}({theirs})");
    shown += &clause("UPDATE", key.on_update);
    shown += &clause("DELETE", key.on_delete);
    if key.deferrable {
        shown += " DEFERRABLE";
    }
    if key.deferred {
        shown += " INITIALLY DEFERRED";
    }
    shown
}

/// The numbers of columns, as `pg_attribute` counts them.
fn places(table: &Table, names: &[String]) -> Vec<i64> {
    let shown: Vec<&str> =
        table.columns.iter().filter(|column| !column.hidden).map(|column| column.name.as_str()).collect();
    let place = |name: &String| shown.iter().position(|known| known == name).map(|place| place as i64 + 1);
    names.iter().filter_map(place).collect()
}

/// All constraints that have a name: keys, checks, foreign keys.
pub(super) fn constraints(relations: &[Relation<'_>], objects: &Objects) -> Vec<Constraint> {
    let mut all = Vec::new();
    let oid = |name: &str| match oid_of(relations, name) {
        Datum::Int(oid) => oid,
        _ => 0,
    };
    for relation in relations {
        if let Some((table, index)) = relation.index().filter(|(_, index)| index.unique)
            && (is_primary(table, index) || !objects.is_unique_index(&table.name, &index.name))
        {
            let (kind, words) = if is_primary(table, index) { ("p", "PRIMARY KEY") } else { ("u", "UNIQUE") };
            all.push(Constraint {
                oid: relation.oid,
                name: relation.name.to_owned(),
                table: table.name.clone(),
                definition: format!("{words} ({})", columns_of(table, index, false)),
                kind,
                relation: oid(&table.name),
                index: relation.oid,
                columns: numbers(table, index),
                foreign: None,
                deferrable: false,
                deferred: false,
            });
        }
        let Some(table) = relation.table() else { continue };
        let of = |name: &str| hashed(&format!("{}:{name}", table.name));
        for (name, condition) in &table.checks {
            all.push(Constraint {
                oid: of(name),
                name: name.clone(),
                table: table.name.clone(),
                definition: format!("CHECK (({condition}))"),
                kind: "c",
                relation: relation.oid,
                index: 0,
                columns: Vec::new(),
                foreign: None,
                deferrable: false,
                deferred: false,
            });
        }
        for key in &table.foreign {
            let parent = relations.iter().find_map(|it| it.table().filter(|table| table.name == key.parent));
            let theirs = parent.map_or(Vec::new(), |parent| places(parent, &key.parent_columns));
            // The key of the parent that it refers to.
            let referred = parent.and_then(|parent| {
                let places = parent.places(&key.parent_columns)?;
                let index = &parent.indexes[parent.unique_on(&places)?];
                let full = within(schema_of(&parent.name), &index.name);
                relations.iter().find(|it| it.index().is_some() && it.full == full).map(|it| it.oid)
            });
            all.push(Constraint {
                oid: of(&key.name),
                name: key.name.clone(),
                table: table.name.clone(),
                definition: foreign_definition(key),
                kind: "f",
                relation: relation.oid,
                index: referred.unwrap_or(0),
                columns: places(table, &key.columns),
                foreign: Some((oid(&key.parent), theirs, key.on_update, key.on_delete)),
                deferrable: key.deferrable,
                deferred: key.deferred,
            });
        }
    }
    all
}

pub(super) fn pg_constraint(relations: &[Relation<'_>], objects: &Objects) -> System {
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
        ("confupdtype", Char),
        ("confdeltype", Char),
        ("confmatchtype", Char),
        ("conislocal", Bool),
        ("coninhcount", Int4),
        ("connoinherit", Bool),
        ("conkey", Type::Int2Array),
        ("confkey", Type::Int2Array),
        ("conbin", Text),
    ];
    let array = array_of;
    let row = |one: Constraint| {
        let (parent, theirs, update, delete, matching) = match &one.foreign {
            Some((oid, theirs, update, delete)) => {
                (*oid, array(theirs), letter(*update), letter(*delete), "s")
            }
            None => (0, Datum::Null, " ", " ", " "),
        };
        vec![
            Datum::Int(one.oid),
            text(&one.name),
            Datum::Int(schema_oid(schema_of(&one.table))),
            text(one.kind),
            yes(one.deferrable),
            yes(one.deferred),
            yes(true),
            Datum::Int(one.relation),
            Datum::Int(0),
            Datum::Int(one.index),
            Datum::Int(0),
            Datum::Int(parent),
            text(update),
            text(delete),
            text(matching),
            yes(true),
            Datum::Int(0),
            yes(false),
            if one.columns.is_empty() { Datum::Null } else { array(&one.columns) },
            theirs,
            if one.kind == "c" { text(one.definition.trim_start_matches("CHECK ")) } else { Datum::Null },
        ]
    };
    System { columns, rows: constraints(relations, objects).into_iter().map(row).collect() }
}

pub(super) fn pg_sequence(relations: &[Relation<'_>], catalog: &dyn Catalog) -> System {
    let columns = vec![
        ("seqrelid", Oid),
        ("seqtypid", Oid),
        ("seqstart", Int8),
        ("seqincrement", Int8),
        ("seqmax", Int8),
        ("seqmin", Int8),
        ("seqcache", Int8),
        ("seqcycle", Bool),
    ];
    let row = |relation: &Relation<'_>| {
        let row = catalog.objects().sequence(&relation.full)?;
        let int = Datum::Int;
        Some(vec![
            int(relation.oid),
            int(row.ty.into()),
            int(row.start),
            int(row.increment),
            int(row.max),
            int(row.min),
            int(row.cache),
            yes(row.cycle),
        ])
    };
    System { columns, rows: relations.iter().filter_map(row).collect() }
}

pub(super) fn pg_sequences(catalog: &dyn Catalog) -> System {
    let columns = vec![
        ("schemaname", Name),
        ("sequencename", Name),
        ("sequenceowner", Name),
        ("data_type", Text),
        ("start_value", Int8),
        ("min_value", Int8),
        ("max_value", Int8),
        ("increment_by", Int8),
        ("cycle", Bool),
        ("cache_size", Int8),
        ("last_value", Int8),
    ];
    let rows = catalog.objects().sequences().map(|(name, row)| {
        let int = Datum::Int;
        let last = match catalog.sequences().position(name) {
            Ok((last, true)) => int(last),
            _ => Datum::Null,
        };
        vec![
            text(schema_of(name)),
            text(plain(name)),
            text("postgres"),
            text(Type::from_oid(row.ty).map_or("bigint", Type::sql_name)),
            int(row.start),
            int(row.min),
            int(row.max),
            int(row.increment),
            yes(row.cycle),
            int(row.cache),
            last,
        ]
    });
    System { columns, rows: rows.collect() }
}

/// Which column a sequence belongs to: what drivers and tools ask `pg_depend` for.
pub(super) fn pg_depend(relations: &[Relation<'_>], catalog: &dyn Catalog) -> System {
    let columns = vec![
        ("classid", Oid),
        ("objid", Oid),
        ("objsubid", Int4),
        ("refclassid", Oid),
        ("refobjid", Oid),
        ("refobjsubid", Int4),
        ("deptype", Char),
    ];
    let row = |relation: &Relation<'_>| {
        let row = catalog.objects().sequence(&relation.full)?;
        let (table, column) = row.owner.as_ref()?;
        let parent = relations.iter().find(|it| it.table().is_some_and(|it| it.name == *table))?;
        let place = places(parent.table()?, std::slice::from_ref(column)).pop()?;
        let (class, int) = (Datum::Int(1259), Datum::Int);
        let kind = text(if row.identity { "i" } else { "a" });
        Some(vec![class.clone(), int(relation.oid), int(0), class, int(parent.oid), int(place), kind])
    };
    System { columns, rows: relations.iter().filter_map(row).collect() }
}
