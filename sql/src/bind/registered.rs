//! OIDs that are shown by names: `regclass`, `regtype`, `regnamespace`.
//!
//! Expressions read no tables, so a cast between a name and its OID is bound to a list of all names (definitions are few, and
//! statements on catalogs rare), sorted and searched by halves.

use super::{Binder, Typed};
use crate::error::{Error, NOWHERE, Result};
use crate::expr::{Call, Env, Expr, Made};
use crate::names;
use crate::parser::ast;
use crate::plan::{BoundQuery, Plan};
use crate::types::{Datum, Type};

/// PostgreSQL's own relations: their names have OIDs, though nothing else shows them.
const SYSTEM: &[(i64, &str)] = &[
    (1213, "pg_tablespace"),
    (1247, "pg_type"),
    (1249, "pg_attribute"),
    (1255, "pg_proc"),
    (1259, "pg_class"),
    (1260, "pg_authid"),
    (1262, "pg_database"),
    (2224, "pg_sequence"),
    (2396, "pg_shdescription"),
    (2601, "pg_am"),
    (2604, "pg_attrdef"),
    (2605, "pg_cast"),
    (2606, "pg_constraint"),
    (2608, "pg_depend"),
    (2609, "pg_description"),
    (2610, "pg_index"),
    (2611, "pg_inherits"),
    (2612, "pg_language"),
    (2615, "pg_namespace"),
    (2616, "pg_opclass"),
    (2617, "pg_operator"),
    (2618, "pg_rewrite"),
    (2620, "pg_trigger"),
    (3079, "pg_extension"),
    (3456, "pg_collation"),
    (3501, "pg_enum"),
    (3541, "pg_range"),
];

impl Binder<'_> {
    /// All names of a kind, as they are shown.
    fn names_of(&mut self, kind: Type) -> Vec<(i64, String)> {
        let owned = |(oid, name): &(i64, &str)| (*oid, (*name).to_owned());
        match kind {
            Type::Regclass => {
                self.rebinds = true;
                let named = |(oid, full): (i64, String)| (oid, names::visible(&full, self.is_visible(&full)));
                let mut all: Vec<_> = self.catalog.relation_names().into_iter().map(named).collect();
                all.extend(SYSTEM.iter().map(owned));
                all.push((0, "-".to_owned()));
                all
            }
            Type::Regtype => Type::all().map(|ty| (ty.oid().into(), ty.sql_name().to_owned())).collect(),
            Type::Regnamespace => {
                self.rebinds = true;
                let all = self.catalog.schema_names().into_iter();
                all.map(|(oid, name)| (oid, crate::names::quoted(&name))).collect()
            }
            Type::Regproc => {
                let all = crate::functions::functions_by_oid();
                all.map(|(oid, name)| (oid, name.to_owned())).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The OID that a name means; none if there is no such thing.
    fn oid_named(&mut self, wanted: &str, kind: Type) -> Option<i64> {
        if wanted == "-" {
            return Some(0);
        }
        if let Ok(oid) = wanted.parse::<u32>() {
            return Some(oid.into());
        }
        if kind == Type::Regtype {
            return type_named(wanted).map(|ty| ty.oid().into());
        }
        let parts = names::written(wanted);
        let plain = parts.last()?;
        let schema = parts.len().checked_sub(2).map(|place| parts[place].as_str());
        if kind == Type::Regclass {
            return self.relation_oid(schema, plain);
        }
        let name = crate::names::quoted(plain);
        let found = self.names_of(kind).into_iter().find(|(_, known)| *known == name);
        found.map(|(oid, _)| oid).filter(|_| schema.is_none_or(|schema| schema == "pg_catalog"))
    }

    /// The OID of a relation, an index among them: PostgreSQL's own come first.
    fn relation_oid(&mut self, schema: Option<&str>, name: &str) -> Option<i64> {
        self.rebinds = true;
        let system = SYSTEM.iter().find(|(_, known)| *known == name).map(|(oid, _)| *oid);
        if let Some(oid) = system.filter(|_| schema.is_none_or(|schema| schema == "pg_catalog")) {
            return Some(oid);
        }
        let all = self.catalog.relation_names();
        let path = schema.map_or_else(|| self.search_path(), |schema| vec![schema.to_owned()]);
        path.iter().find_map(|schema| {
            let full = names::within(schema, name);
            all.iter().find(|(_, known)| *known == full).map(|(oid, _)| *oid)
        })
    }

    /// A name, or a number, as an OID of this kind.
    pub(super) fn registered(&mut self, from: Typed, kind: Type) -> Result<Typed> {
        let at = from.at;
        match &from.expr {
            Expr::Const(Datum::Null) => Ok(Typed::constant(Datum::Null, kind, at)),
            Expr::Const(Datum::Text(wanted)) => {
                let wanted = wanted.clone();
                let oid = self.oid_named(&wanted, kind).ok_or_else(|| missing(&wanted, kind).at(at))?;
                Ok(Typed::constant(Datum::Int(oid), kind, at))
            }
            _ => {
                let name = self.implicit(from, Type::Text)?;
                let found = self.oids_by_name(name.expr, kind);
                let fail = match kind {
                    Type::Regtype => Call::Many(|args, _| Err(missing(text(&args[0]), Type::Regtype))),
                    Type::Regnamespace => {
                        Call::Many(|args, _| Err(missing(text(&args[0]), Type::Regnamespace)))
                    }
                    _ => Call::Many(|args, _| Err(missing(text(&args[0]), Type::Regclass))),
                };
                let [name, found] = found;
                Ok(Typed::new(Expr::Coalesce(vec![found, Expr::Call(fail, vec![name])]), kind, at))
            }
        }
    }

    /// The name again, and what OID it means: null if there is none.
    fn oids_by_name(&mut self, name: Expr, kind: Type) -> [Expr; 2] {
        let mut all: Vec<(Datum, Datum)> = Vec::new();
        for (oid, shown) in self.names_of(kind) {
            all.push((Datum::text(shown), Datum::Int(oid)));
        }
        if kind == Type::Regclass {
            let named = |(oid, full): (i64, String)| (Datum::text(names::qualified(&full)), Datum::Int(oid));
            all.extend(self.catalog.relation_names().into_iter().map(named));
            let plain = Expr::Call(
                Call::One(|name| {
                    let parts = names::written(text(name));
                    let parts: Vec<String> = parts.iter().map(|part| crate::names::quoted(part)).collect();
                    let name = parts.join(".");
                    Ok(Datum::text(name.strip_prefix("pg_catalog.").unwrap_or(&name)))
                }),
                vec![name.clone()],
            );
            return [name, searched(plain, all)];
        }
        if kind == Type::Regtype {
            all.extend(Type::all().map(|ty| (Datum::text(ty.name()), Datum::Int(ty.oid().into()))));
        }
        let plain = Expr::Call(Call::One(|name| Ok(Datum::text(bare(text(name))))), vec![name.clone()]);
        [name, searched(plain, all)]
    }

    /// `to_regclass` and its like: null where a name means nothing.
    pub(super) fn registered_or_null(&mut self, arg: Typed, kind: Type, at: u32) -> Result<Typed> {
        let arg = self.implicit(arg, Type::Text)?;
        let expr = match &arg.expr {
            Expr::Const(Datum::Text(wanted)) => {
                let wanted = wanted.clone();
                Expr::Const(self.oid_named(&wanted, kind).map_or(Datum::Null, Datum::Int))
            }
            _ => {
                let [_, found] = self.oids_by_name(arg.expr, kind);
                found
            }
        };
        Ok(Typed::new(expr, kind, at))
    }

    /// The name of an OID; its number where nothing has it.
    pub(super) fn shown_registered(&mut self, from: Typed) -> Typed {
        let names = self.names_of(from.ty);
        let other = Expr::Output(Box::new(from.expr.clone()), Type::Oid);
        looked_up(from.expr, &names, other, from.at)
    }

    /// The query with the names of what it answers OIDs of that are shown so.
    pub(super) fn with_names(&mut self, bound: BoundQuery) -> Result<BoundQuery> {
        if !bound.columns.iter().any(|column| column.ty.is_registered()) {
            return Ok(bound);
        }
        let mut exprs = Vec::with_capacity(bound.columns.len());
        for (place, column) in bound.columns.iter().enumerate() {
            let typed = Typed::new(Expr::Column(place), column.ty, NOWHERE);
            exprs.push(if column.ty.is_registered() {
                self.shown_registered(typed).expr
            } else {
                typed.expr
            });
        }
        Ok(BoundQuery { plan: Plan::Project(Box::new(bound.plan), exprs), ..bound })
    }
}

/// The answer for a number.
pub(super) fn looked_up(oid: Expr, answers: &[(i64, String)], other: Expr, at: u32) -> Typed {
    let all = answers.iter().map(|(oid, answer)| (Datum::Int(*oid), Datum::text(answer)));
    Typed::new(Expr::Coalesce(vec![searched(oid, all.collect()), other]), Type::Text, at)
}

/// What stands beside a key; null if the key is not there.
pub(super) fn searched(key: Expr, mut all: Vec<(Datum, Datum)>) -> Expr {
    all.sort_by(|(a, _), (b, _)| a.compare(b));
    let (keys, values): (Vec<Datum>, Vec<Datum>) = all.into_iter().unzip();
    let list = |all: Vec<Datum>| Expr::Const(Datum::Array(all.into()));
    Expr::Call(Call::Many(found), vec![key, list(keys), list(values)])
}

fn found(args: &[Datum], _: &Env<'_>) -> Made {
    let (Datum::Array(keys), Datum::Array(values)) = (&args[1], &args[2]) else {
        unreachable!("keys and values are lists")
    };
    let place = keys.binary_search_by(|key| key.compare(&args[0]));
    Ok(place.map_or(Datum::Null, |place| values[place].clone()))
}

fn text(value: &Datum) -> &str {
    value.as_text().unwrap_or_else(|| unreachable!("a text is expected: {value:?}"))
}

fn missing(wanted: &str, kind: Type) -> Error {
    let (code, what) = match kind {
        Type::Regclass => ("42P01", "relation"),
        Type::Regtype => ("42704", "type"),
        Type::Regnamespace => ("3F000", "schema"),
        _ => ("42883", "function"),
    };
    Error::new(code, format!("{what} \"{wanted}\" does not exist"))
}

/// A name without the schema that all types and functions are in, and without quotes.
fn bare(name: &str) -> String {
    let name = if name.contains('"') { names::written(name).join(".") } else { name.to_owned() };
    name.strip_prefix("pg_catalog.").map(str::to_owned).unwrap_or(name)
}

/// The type that a text names, with whatever modifiers.
fn type_named(wanted: &str) -> Option<Type> {
    let parsed = crate::parser::parse(&format!("select null::{wanted}")).ok()?;
    let [one] = &parsed[..] else { return None };
    let ast::Statement::Query(query) = &one.statement else { return None };
    let ast::SetExpr::Select(select) = &query.body else { return None };
    let [item] = &select.items[..] else { return None };
    match &item.expr.kind {
        ast::ExprKind::Cast(arg, name) if matches!(arg.kind, ast::ExprKind::Null) => {
            Binder::type_of(name).ok().map(|(ty, _)| ty)
        }
        _ => None,
    }
}
