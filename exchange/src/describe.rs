//! Tables and their definitions for people.

use std::fmt::Write;

use thermocline_engine::{Database, IndexKind, IndexSchema};

use crate::ExchangeError;

/// All tables: their columns, keys and indexes, and about how many rows they have in memory and outside of it.
///
/// # Errors
/// The database is closed.
pub fn describe(db: &Database) -> Result<String, ExchangeError> {
    let mut text = String::new();
    for name in db.table_names() {
        let table = db.table(&name)?;
        let (schema, of) = (table.schema(), table.statistics());
        let _ = writeln!(text, "{name}  ({} rows in memory, {} cold)", of.rows_hot, of.rows_cold);
        for column in schema.column_list() {
            let null = if column.nullable { "" } else { " not null" };
            let default =
                column.default.as_ref().map(|value| format!(" default {value}")).unwrap_or_default();
            let auto = if column.auto_increment { " auto-increment" } else { "" };
            let _ = writeln!(text, "  {} {}{null}{default}{auto}", column.name, column.ty);
        }
        match schema.primary() {
            Some(primary) => _ = writeln!(text, "  primary key {}", index(primary)),
            None => _ = writeln!(text, "  no key of its own"),
        }
        for secondary in schema.secondary() {
            let _ = writeln!(text, "  index {}", index(secondary));
        }
    }
    Ok(text)
}

fn index(schema: &IndexSchema) -> String {
    let columns = schema
        .columns()
        .map(|(name, descending)| if descending { format!("{name} desc") } else { name.to_owned() });
    let columns: Vec<String> = columns.collect();
    let kind = match schema.kind() {
        IndexKind::Hash => "hash",
        IndexKind::Ordered => "ordered",
    };
    let unique = if schema.is_unique() { ", unique" } else { "" };
    format!("{} ({}) {kind}{unique}", schema.name(), columns.join(", "))
}
