//! System catalogs in statements: their tables, and the functions and casts that look into them.
//!
//! Expressions read no tables, so that what looks a thing up by its number is bound to a list of all answers (definitions are
//! few, and statements on catalogs rare).

use super::query::{column_name, has_aggregate};
use super::{Binder, Typed};
use crate::error::{Error, Result};
use crate::expr::{Call, Comparison, Expr};
use crate::parser::ast::{ObjectName, Select, TableRef};
use crate::plan::{BoundQuery, Column, Plan};
use crate::types::{Datum, Type, display};

impl Binder<'_> {
    /// The rows of a system table, if the name is one.
    pub(super) fn system_table(&mut self, name: &ObjectName) -> Option<BoundQuery> {
        let schema = match name.schema.as_deref() {
            Some(schema @ ("pg_catalog" | "information_schema")) => schema,
            None if name.name.starts_with("pg_") => "pg_catalog",
            _ => return None,
        };
        let system = self.catalog.system(schema, &name.name)?;
        self.system = true;
        let column = |(name, ty): &(&str, Type)| Column { name: (*name).to_owned(), ty: *ty, modifier: -1 };
        let columns = system.columns.iter().map(column).collect();
        let rows = system.rows.into_iter().map(|row| row.into_iter().map(Expr::Const).collect()).collect();
        Some(BoundQuery { plan: Plan::Values(rows), columns, locks: false })
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
        let grouped = select.items.iter().any(|item| has_aggregate(&item.expr));
        if grouped || !select.from.iter().any(is_empty) {
            return None;
        }
        let column = |item: &crate::parser::ast::Item| {
            let name = item.alias.clone().unwrap_or_else(|| column_name(&item.expr));
            Column { name, ty: Type::Text, modifier: -1 }
        };
        self.system = true;
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
            "pg_table_is_visible"
            | "pg_type_is_visible"
            | "pg_function_is_visible"
            | "has_table_privilege"
            | "has_schema_privilege"
            | "has_database_privilege" => Ok(Some(Typed::constant(Datum::Bool(true), Type::Bool, at))),
            "pg_is_in_recovery" | "pg_relation_is_publishable" => {
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
                self.system = true;
                let answers: Vec<(i64, String)> = answers
                    .into_iter()
                    .filter(|(_, column, _)| *column == 0)
                    .map(|(oid, _, text)| (oid, text))
                    .collect();
                self.told(args, name, &answers, at)
            }
            "col_description" => {
                let answers = self.catalog.comments();
                self.system = true;
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
                self.system = true;
                self.told(args, name, &answers, at)
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
                self.system = true;
                self.told(args, name, &answers, at)
            }
            _ => Ok(None),
        }
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
        Ok(self.implicit(first, Type::Oid)?.expr)
    }

    /// `'t'::regclass` is the number of a thing, `oid::regclass` its name.
    pub(super) fn registered(&mut self, arg: Typed, kind: &str, at: u32) -> Result<Typed> {
        let names = match kind {
            "regclass" => {
                self.system = true;
                self.catalog.relation_names()
            }
            "regtype" => Type::all().map(|ty| (ty.oid().into(), ty.sql_name().to_owned())).collect(),
            "regnamespace" => vec![(11, "pg_catalog".to_owned()), (2200, "public".to_owned())],
            _ => Vec::new(),
        };
        if let (Type::Unknown | Type::Text, Expr::Const(Datum::Text(wanted))) = (arg.ty, &arg.expr) {
            if let Ok(oid) = wanted.parse::<u32>() {
                return Ok(Typed::constant(Datum::Int(oid.into()), Type::Oid, at));
            }
            let bare = wanted.trim_start_matches("public.").trim_start_matches("pg_catalog.");
            let alias = Type::from_name(bare).filter(|_| kind == "regtype").map(Type::sql_name);
            let found = names.iter().find(|(_, name)| name == bare || Some(name.as_str()) == alias);
            let (code, what) = match kind {
                "regclass" => ("42P01", "relation"),
                "regtype" => ("42704", "type"),
                _ => ("3F000", "schema"),
            };
            let missing = || Error::new(code, format!("{what} \"{wanted}\" does not exist")).at(at);
            return Ok(Typed::constant(Datum::Int(found.ok_or_else(missing)?.0), Type::Oid, at));
        }
        let oid = self.implicit(arg, Type::Oid)?;
        let other = Expr::Output(Box::new(oid.expr.clone()), Type::Oid);
        Ok(looked_up(oid.expr, &names, other, at))
    }
}

/// The answer for a number.
fn looked_up(oid: Expr, answers: &[(i64, String)], other: Expr, at: u32) -> Typed {
    let equal = |wanted: i64| {
        Expr::Call(Call::Compare(Comparison::Equal), vec![oid.clone(), Expr::Const(Datum::Int(wanted))])
    };
    let whens =
        answers.iter().map(|(wanted, answer)| (equal(*wanted), Expr::Const(Datum::text(answer)))).collect();
    Typed::new(Expr::Case(whens, Box::new(other)), Type::Text, at)
}

fn format_type(args: &[Datum], _: &crate::expr::Env<'_>) -> crate::expr::Made {
    let Datum::Int(oid) = args[0] else { return Ok(Datum::Null) };
    let modifier = if let Datum::Int(modifier) = args[1] { modifier as i32 } else { -1 };
    let ty = u32::try_from(oid).ok().and_then(Type::from_oid);
    Ok(Datum::text(ty.map_or("???".to_owned(), |ty| display(ty, modifier))))
}
