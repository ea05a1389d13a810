//! System catalogs in statements: their tables, and the functions and casts that look into them.
//!
//! Expressions read no tables, so that what looks a thing up by its number is bound to a list of all answers (definitions are
//! few, and statements on catalogs rare).

use super::query::column_name;
use super::registered::{looked_up, searched};
use super::{Binder, Typed};
use crate::error::{Error, Result};
use crate::expr::{Call, Comparison, Expr};
use crate::names;
use crate::parser::ast::{ObjectName, Select, TableRef};
use crate::plan::{BoundQuery, Plan};
use crate::types::{Column, Datum, Type, display};

impl Binder<'_> {
    /// The rows of a system table, if the name is one.
    pub(super) fn system_table(&mut self, name: &ObjectName) -> Option<BoundQuery> {
        let schema = match name.schema.as_deref() {
            Some(schema @ ("pg_catalog" | "information_schema")) => schema,
            None if name.name.starts_with("pg_") => "pg_catalog",
            None if self.search_path().iter().any(|schema| schema == "information_schema") => {
                "information_schema"
            }
            _ => return None,
        };
        if (schema, name.name.as_str()) == ("pg_catalog", "pg_settings") {
            return Some(self.settings_table());
        }
        let system = self.catalog.pg_table(schema, &name.name)?;
        self.rebinds = true;
        let column = |(name, ty): &(&str, Type)| Column { name: (*name).to_owned(), ty: *ty, modifier: -1 };
        let columns = system.columns.iter().map(column).collect();
        let rows = system.rows.into_iter().map(|row| row.into_iter().map(Expr::Const).collect()).collect();
        Some(BoundQuery { plan: Plan::Values(rows), columns, locks: false })
    }

    /// `pg_settings`: the values are asked when the statement runs.
    fn settings_table(&mut self) -> BoundQuery {
        self.asks = true;
        let named = crate::functions::functions_named("current_setting");
        let call = named.iter().find(|function| function.args.len() == 1).expect("it is registered").call;
        let text = |text: &str| Expr::Const(Datum::text(text));
        let row = |(name, default): (&str, &str)| {
            vec![text(name), Expr::Call(call, vec![text(name)]), text(default), text(default)]
        };
        let columns = ["name", "setting", "boot_val", "reset_val"];
        BoundQuery {
            plan: Plan::Values(crate::settings::defaults().map(row).collect()),
            columns: columns
                .map(|name| Column { name: name.to_owned(), ty: Type::Text, modifier: -1 })
                .into(),
            locks: false,
        }
    }

    /// A query over system tables that never have rows, if it is one: it has none, whatever else it says.
    pub(super) fn nothing_there(&mut self, select: &Select) -> Option<BoundQuery> {
        fn is_empty(reference: &TableRef) -> bool {
            match reference {
                TableRef::Table { name, .. } => {
                    let ours = name.schema.as_deref().is_none_or(|schema| schema == "pg_catalog");
                    let names =
                        ["pg_policy", "pg_statistic_ext", "pg_publication", "pg_inherits", "pg_trigger"];
                    ours && names.contains(&name.name.as_str())
                }
                TableRef::Join { kind: crate::parser::ast::JoinKind::Inner, left, right, .. } => {
                    is_empty(left) || is_empty(right)
                }
                TableRef::Join { kind: crate::parser::ast::JoinKind::Left, left, .. } => is_empty(left),
                _ => false,
            }
        }
        // An aggregate of nothing is a row.
        let grouped = select.items.iter().any(|item| self.has_own_aggregate(&item.expr));
        if grouped || !select.from.iter().any(is_empty) {
            return None;
        }
        let column = |item: &crate::parser::ast::Item| {
            let name = item.alias.clone().unwrap_or_else(|| column_name(&item.expr));
            Column { name, ty: Type::Text, modifier: -1 }
        };
        self.rebinds = true;
        Some(BoundQuery {
            plan: Plan::Values(Vec::new()),
            locks: false,
            columns: select.items.iter().map(column).collect(),
        })
    }

    /// Functions that know of definitions.
    pub(super) fn system_function(&mut self, name: &str, args: &[Typed], at: u32) -> Result<Option<Typed>> {
        let said = |text: &str, ty: Type| Ok(Some(Typed::constant(Datum::text(text), ty, at)));
        match name {
            "pg_get_userbyid" => said("postgres", Type::Name),
            "pg_encoding_to_char" => said("UTF8", Type::Name),
            "pg_table_is_visible" => {
                let oid = self.oid_argument(args, name, at)?;
                self.rebinds = true;
                let all = self.catalog.relation_names().into_iter();
                let seen = all.map(|(oid, full)| (Datum::Int(oid), Datum::Bool(self.is_visible(&full))));
                Ok(Some(Typed::new(searched(oid, seen.collect()), Type::Bool, at)))
            }
            "pg_type_is_visible"
            | "pg_function_is_visible"
            | "pg_collation_is_visible"
            | "pg_opclass_is_visible"
            | "pg_operator_is_visible"
            | "has_table_privilege"
            | "has_column_privilege"
            | "has_any_column_privilege"
            | "has_sequence_privilege"
            | "has_schema_privilege"
            | "has_database_privilege" => Ok(Some(Typed::constant(Datum::Bool(true), Type::Bool, at))),
            "pg_is_in_recovery" | "pg_relation_is_publishable" | "pg_is_other_temp_schema" => {
                Ok(Some(Typed::constant(Datum::Bool(false), Type::Bool, at)))
            }
            // Columns of catalogs that are arrays in PostgreSQL are null texts here. Arrays have their own function.
            "array_to_string"
                if matches!(args.first().map(|arg| &arg.expr), Some(Expr::Const(Datum::Text(_)))) =>
            {
                Err(Error::unsupported("arrays").at(at))
            }
            "obj_description" => {
                let answers = self.catalog.comments();
                self.rebinds = true;
                let answers: Vec<(i64, String)> = answers
                    .into_iter()
                    .filter(|(_, column, _)| *column == 0)
                    .map(|(oid, _, text)| (oid, text))
                    .collect();
                self.told(args, name, &answers, at)
            }
            "col_description" => {
                let answers = self.catalog.comments();
                self.rebinds = true;
                let oid = self.oid_argument(args, name, at)?;
                let Some(number) = args.get(1).cloned() else { return Ok(None) };
                let number = self.implicit(number, Type::Int4)?.expr;
                let equal = |expr: &Expr, wanted: i64| {
                    Expr::Call(
                        Call::Compare(Comparison::Equal),
                        vec![expr.clone(), Expr::Const(Datum::Int(wanted))],
                    )
                };
                let whens =
                    answers.iter().filter(|(_, column, _)| *column != 0).map(|(wanted, column, text)| {
                        let both = Expr::And(vec![equal(&oid, *wanted), equal(&number, *column)]);
                        (both, Expr::Const(Datum::text(text)))
                    });
                let expr = Expr::Case(whens.collect(), Box::new(Expr::Const(Datum::Null)));
                Ok(Some(Typed::new(expr, Type::Text, at)))
            }
            "pg_get_viewdef" => {
                let answers = self.catalog.view_texts();
                self.rebinds = true;
                let mut args = args.to_vec();
                if let Some(view) =
                    args.first_mut().filter(|view| view.ty == Type::Unknown || view.ty.is_string())
                {
                    let found = self.explicit(view.clone(), Type::Regclass, crate::types::NO_MOD, at);
                    // PostgreSQL looks when the statement runs.
                    *view = found.map_err(Error::nowhere)?;
                }
                self.told(&args, name, &answers, at)
            }
            "to_regclass" | "to_regtype" | "to_regnamespace" if args.len() == 1 => {
                let kind = match name {
                    "to_regclass" => Type::Regclass,
                    "to_regtype" => Type::Regtype,
                    _ => Type::Regnamespace,
                };
                self.registered_or_null(args[0].clone(), kind, at).map(Some)
            }
            "pg_my_temp_schema" => Ok(Some(Typed::constant(Datum::Int(0), Type::Oid, at))),
            "current_schemas" if args.len() == 1 => {
                let all = self.implicit(args[0].clone(), Type::Bool)?;
                self.rebinds = true;
                let list =
                    |names: &[String]| Expr::Const(Datum::Array(names.iter().map(Datum::text).collect()));
                let mut path = self.search_path();
                let without = list(&path);
                if !path.iter().any(|schema| schema == "pg_catalog") {
                    path.insert(0, "pg_catalog".to_owned());
                }
                let with = list(&path);
                let expr = Expr::Case(vec![(all.expr, with)], Box::new(without));
                Ok(Some(Typed::new(expr, Type::NameArray, at)))
            }
            "current_schema" if args.is_empty() => {
                self.rebinds = true;
                let first = self.search_path().first().map_or(Datum::Null, Datum::text);
                Ok(Some(Typed::constant(first, Type::Name, at)))
            }
            "pg_client_encoding" => said("UTF8", Type::Name),
            // There are no functions, rules, triggers, partitions or statistics of users.
            "pg_get_functiondef"
            | "pg_get_function_arguments"
            | "pg_get_function_identity_arguments"
            | "pg_get_function_result"
            | "pg_get_ruledef"
            | "pg_get_triggerdef"
            | "pg_get_partkeydef"
            | "pg_get_statisticsobjdef" => Ok(Some(Typed::constant(Datum::Null, Type::Text, at))),
            "pg_get_serial_sequence" if args.len() == 2 => self.serial_sequence(args, at).map(Some),
            "pg_table_size" | "pg_relation_size" | "pg_total_relation_size" if !args.is_empty() => {
                let oid = self.oid_argument(&args[..1], name, at)?;
                self.rebinds = true;
                let names = self.catalog.relation_names();
                let mut sizes = Vec::new();
                for table in self.catalog.names() {
                    if let Some((oid, _)) = names.iter().find(|(_, name)| *name == table) {
                        sizes.push((*oid, self.catalog.size(&table).to_string()));
                    }
                }
                let found = looked_up(oid, &sizes, Expr::Const(Datum::Null), at);
                self.explicit(found, Type::Int8, -1, at).map(Some)
            }
            "pg_get_indexdef" if args.len() == 3 => {
                let oid = self.oid_argument(&args[..1], name, at)?;
                let place = self.implicit(args[1].clone(), Type::Int4)?.expr;
                self.rebinds = true;
                let answers = self.catalog.definitions(false);
                let whole = looked_up(oid, &answers, Expr::Const(Datum::Null), at).expr;
                Ok(Some(Typed::new(Expr::Call(Call::Many(index_part), vec![whole, place]), Type::Text, at)))
            }
            "shobj_description" | "array_to_string" => Ok(Some(Typed::constant(Datum::Null, Type::Text, at))),
            "pg_get_expr" => {
                let first = args.first().cloned();
                first.map(|first| self.implicit(first, Type::Text)).transpose()
            }
            // There are no partitions: a table is its own only ancestor.
            "pg_partition_ancestors" => {
                Ok(Some(Typed::new(self.oid_argument(args, name, at)?, Type::Oid, at)))
            }
            "format_type" => {
                let oid = self.oid_argument(args, name, at)?;
                let modifier = match args.get(1).cloned() {
                    Some(modifier) => self.implicit(modifier, Type::Int4)?.expr,
                    None => Expr::Const(Datum::Null),
                };
                Ok(Some(Typed::new(Expr::Call(Call::All(format_type), vec![oid, modifier]), Type::Text, at)))
            }
            "pg_get_indexdef" | "pg_get_constraintdef" => {
                let answers = self.catalog.definitions(name == "pg_get_constraintdef");
                self.rebinds = true;
                self.told(args, name, &answers, at)
            }
            _ => Ok(None),
        }
    }

    /// The sequence that belongs to a column, by the names of table and column.
    fn serial_sequence(&mut self, args: &[Typed], at: u32) -> Result<Typed> {
        let (table, column) =
            (self.implicit(args[0].clone(), Type::Text)?, self.implicit(args[1].clone(), Type::Text)?);
        self.rebinds = true;
        let objects = self.catalog.objects();
        let mut keys = Vec::new();
        for (name, row) in objects.sequences() {
            if let Some((table, column)) = &row.owner {
                let shown = Datum::text(names::qualified(name));
                let owned = |table: String| (Datum::text(format!("{table}\0{column}")), shown.clone());
                keys.push(owned(names::qualified(table)));
                if self.is_visible(table) {
                    keys.push(owned(crate::names::quoted(names::plain(table))));
                }
            }
        }
        let joined = Expr::Call(
            Call::Many(|args, _| {
                let (Datum::Text(table), Datum::Text(column)) = (&args[0], &args[1]) else {
                    unreachable!("texts are expected")
                };
                let parts = names::written(table);
                let parts: Vec<String> = parts.iter().map(|part| crate::names::quoted(part)).collect();
                Ok(Datum::text(format!("{}\0{column}", parts.join("."))))
            }),
            vec![table.expr, column.expr],
        );
        Ok(Typed::new(super::registered::searched(joined, keys), Type::Text, at))
    }

    /// What is told of the thing whose number is the first argument; null of any other.
    fn told(
        &mut self,
        args: &[Typed],
        name: &str,
        answers: &[(i64, String)],
        at: u32,
    ) -> Result<Option<Typed>> {
        let oid = self.oid_argument(args, name, at)?;
        Ok(Some(looked_up(oid, answers, Expr::Const(Datum::Null), at)))
    }

    fn oid_argument(&mut self, args: &[Typed], name: &str, at: u32) -> Result<Expr> {
        let first = args.first().cloned();
        let first =
            first.ok_or_else(|| Error::new("42883", format!("function {name}() does not exist")).at(at))?;
        // Where a relation is asked for, its name will do.
        let relations = ["pg_table_size", "pg_relation_size", "pg_total_relation_size"];
        if relations.contains(&name) {
            let named = self.implicit(first, Type::Regclass)?;
            return Ok(self.implicit(named, Type::Oid)?.expr);
        }
        Ok(self.implicit(first, Type::Oid)?.expr)
    }
}

/// The column of an index at this place, of its definition; the definition at place 0.
fn index_part(args: &[Datum], _: &crate::expr::Env<'_>) -> crate::expr::Made {
    let (Datum::Text(whole), Datum::Int(place)) = (&args[0], &args[1]) else {
        unreachable!("a text and a number are expected")
    };
    if *place == 0 {
        return Ok(args[0].clone());
    }
    let columns = whole.rsplit_once(" (").map_or("", |(_, columns)| columns.trim_end_matches(')'));
    let column = usize::try_from(*place - 1).ok().and_then(|place| columns.split(", ").nth(place));
    Ok(column.map_or(Datum::Null, |column| Datum::text(column.trim_end_matches(" DESC"))))
}

fn format_type(args: &[Datum], _: &crate::expr::Env<'_>) -> crate::expr::Made {
    let Datum::Int(oid) = args[0] else { return Ok(Datum::Null) };
    let modifier = if let Datum::Int(modifier) = args[1] { modifier as i32 } else { -1 };
    let ty = u32::try_from(oid).ok().and_then(Type::from_oid);
    // With a modifier, if only one that says nothing, it is the type that has no length of its own.
    if ty == Some(Type::BpChar) && args[1] == Datum::Int(-1) {
        return Ok(Datum::text("bpchar"));
    }
    Ok(Datum::text(ty.map_or("???".to_owned(), |ty| display(ty, modifier))))
}
