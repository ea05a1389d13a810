//! Storage parameters of tables: `WITH (tiering = …)` of CREATE TABLE, and SET and RESET of ALTER TABLE.
//!
//! PostgreSQL's own parameters are accepted and mean nothing here. The engine keeps the tiering that a table has, and not
//! whether a statement has said it: RESET gives it that of a table that is made now.

use thermocline_engine::{IndexSchema, TableSchema, Tiering};
use thermocline_row as row;

use crate::error::{Error, Result};
use crate::parser::ast::StorageOption;
use crate::session::Session;

/// PostgreSQL's parameters of tables, but those that begin with `autovacuum_`.
const KNOWN: &[&str] = &[
    "fillfactor",
    "log_autovacuum_min_duration",
    "oids",
    "parallel_workers",
    "toast_tuple_target",
    "user_catalog_table",
    "vacuum_index_cleanup",
    "vacuum_truncate",
];

/// The tiering that a list of parameters says.
pub(super) fn tiering(options: &[StorageOption]) -> Result<Option<Tiering>> {
    let mut found = None;
    for StorageOption { space, name, value } in options {
        match (space.as_deref(), name.as_str()) {
            (Some(space), _) if space != "toast" => {
                return Err(Error::new("22023", format!("unrecognized parameter namespace \"{space}\"")));
            }
            (None, "tiering") if found.is_some() => {
                return Err(Error::new("22023", "parameter \"tiering\" specified more than once"));
            }
            (None, "tiering") => found = Some(named(value.as_deref().unwrap_or("true"))?),
            (_, name) if KNOWN.contains(&name) || name.starts_with("autovacuum_") => {}
            (_, name) => return Err(Error::new("22023", format!("unrecognized parameter \"{name}\""))),
        }
    }
    Ok(found)
}

fn named(value: &str) -> Result<Tiering> {
    value.parse().map_err(|_| {
        Error::new("22023", format!("invalid value for enum option \"tiering\": {value}"))
            .detail("Valid values are \"auto\", \"hot\", \"cold\", \"frozen\" and \"paged\".")
    })
}

impl Session {
    /// `ALTER TABLE … SET (…)`
    pub(super) async fn set_parameters(&mut self, table: &str, options: &[StorageOption]) -> Result<()> {
        let Some(tiering) = tiering(options)? else { return Ok(()) };
        self.transaction().alter_tiering(table, tiering).await?;
        self.look_again()
    }

    /// `ALTER TABLE … RESET (…)`; an unknown parameter has no value to lose.
    pub(super) async fn reset_parameters(&mut self, table: &str, options: &[StorageOption]) -> Result<()> {
        if options.iter().any(|option| option.value.is_some()) {
            return Err(Error::new("42601", "RESET must not include values for parameters"));
        }
        if !options.iter().any(|option| option.space.is_none() && option.name == "tiering") {
            return Ok(());
        }
        let tiering = self.tiering_of_new_tables(table).await?;
        self.transaction().alter_tiering(table, tiering).await?;
        self.look_again()
    }

    /// The tiering of a table that does not say one: the engine gives it as it makes one.
    async fn tiering_of_new_tables(&mut self, beside: &str) -> Result<Tiering> {
        let name = self.free_name(beside, None, "new", &[]);
        let schema = TableSchema::new(&name)
            .column(row::Column::new("key", row::Type::Int8))
            .primary_key(IndexSchema::hash("key", &["key"]));
        self.transaction().create_table(schema).await?;
        self.look_again()?;
        let found = self.tables.table(&name)?.schema().row_tiering();
        self.transaction().drop_table(&name).await?;
        self.look_again()?;
        Ok(found)
    }
}
