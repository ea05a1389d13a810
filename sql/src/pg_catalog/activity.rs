//! Running statements in the system catalogs: `pg_stat_activity`, `pg_locks`, `pg_stat_user_tables`, `pg_statio_user_tables`.
//!
//! They have the columns of PostgreSQL 15; what neither engine nor server tells is null.

use super::tables::{OWNER, Relation, text, yes};
use crate::catalog::{Catalog, System};
use crate::names::{plain, schema_of};
use crate::shared::activity::Doing;
use crate::shared::advisory::Key;
use crate::types::{Datum, Type};
use Type::{Bool, Int2, Int4, Int8, Name, Oid, Text, TimestampTz};

/// The OID of the one database.
const DATABASE: i64 = 5;

/// One of these tables; none if the name is none of them.
pub(super) fn activity(catalog: &dyn Catalog, relations: &[Relation<'_>], name: &str) -> Option<System> {
    Some(match name {
        "pg_stat_activity" => pg_stat_activity(catalog),
        "pg_locks" => pg_locks(catalog),
        "pg_stat_user_tables" | "pg_stat_all_tables" => pg_stat_user_tables(relations),
        "pg_statio_user_tables" | "pg_statio_all_tables" => pg_statio_user_tables(relations),
        _ => return None,
    })
}

fn time(at: Option<i64>) -> Datum {
    at.map_or(Datum::Null, Datum::Timestamp)
}

fn pg_stat_activity(catalog: &dyn Catalog) -> System {
    let columns = vec![
        ("datid", Oid),
        ("datname", Name),
        ("pid", Int4),
        ("leader_pid", Int4),
        ("usesysid", Oid),
        ("usename", Name),
        ("application_name", Text),
        ("client_addr", Text),
        ("client_hostname", Text),
        ("client_port", Int4),
        ("backend_start", TimestampTz),
        ("xact_start", TimestampTz),
        ("query_start", TimestampTz),
        ("state_change", TimestampTz),
        ("wait_event_type", Text),
        ("wait_event", Text),
        ("state", Text),
        ("backend_xid", Text),
        ("backend_xmin", Text),
        ("query_id", Int8),
        ("query", Text),
        ("backend_type", Text),
    ];
    let waits = catalog.common().map_or(Vec::new(), |common| common.locks.all());
    let backends = catalog.common().map_or(Vec::new(), |common| common.activity.backends());
    let row = |backend: std::sync::Arc<crate::shared::activity::Backend>| {
        let seen = backend.seen().clone();
        let waits = waits.iter().any(|(number, _, granted)| *number == backend.number && !granted);
        let event = match seen.doing {
            Doing::Active if waits => Some(("Lock", "advisory")),
            Doing::Active => None,
            _ => Some(("Client", "ClientRead")),
        };
        let shown = |value: Option<&str>| value.map_or(Datum::Null, text);
        vec![
            Datum::Int(DATABASE),
            text("postgres"),
            Datum::Int(backend.number.into()),
            Datum::Null,
            Datum::Int(OWNER),
            text("postgres"),
            text(&*seen.application),
            backend.client.address.map_or(Datum::Null, |address| text(address.ip().to_string())),
            Datum::Null,
            // PostgreSQL's sign of a Unix socket.
            Datum::Int(backend.client.address.map_or(-1, |address| address.port().into())),
            time(Some(backend.began)),
            time(seen.transaction_start),
            time(seen.query_start),
            time(Some(seen.changed)),
            shown(event.map(|(kind, _)| kind)),
            shown(event.map(|(_, event)| event)),
            text(seen.doing.name()),
            Datum::Null,
            Datum::Null,
            Datum::Null,
            text(seen.query.as_deref().unwrap_or("")),
            text("client backend"),
        ]
    };
    System { columns, rows: backends.into_iter().map(row).collect() }
}

fn pg_locks(catalog: &dyn Catalog) -> System {
    let columns = vec![
        ("locktype", Text),
        ("database", Oid),
        ("relation", Oid),
        ("page", Int4),
        ("tuple", Int2),
        ("virtualxid", Text),
        ("transactionid", Text),
        ("classid", Oid),
        ("objid", Oid),
        ("objsubid", Int2),
        ("virtualtransaction", Text),
        ("pid", Int4),
        ("mode", Text),
        ("granted", Bool),
        ("fastpath", Bool),
        ("waitstart", TimestampTz),
    ];
    let all = catalog.common().map_or(Vec::new(), |common| common.locks.all());
    let row = |(number, lock, granted): (i32, crate::shared::advisory::Lock, bool)| {
        let half = |value: i32| Datum::Int(i64::from(value as u32));
        let (class, object, kind) = match lock.key {
            Key::One(key) => (half((key >> 32) as i32), half(key as i32), 1),
            Key::Two(class, object) => (half(class), half(object), 2),
        };
        let mut row = vec![text("advisory"), Datum::Int(DATABASE)];
        row.resize(7, Datum::Null);
        row.extend([class, object, Datum::Int(kind), Datum::Null, Datum::Int(number.into())]);
        row.push(text(if lock.exclusive { "ExclusiveLock" } else { "ShareLock" }));
        row.extend([yes(granted), yes(false), Datum::Null]);
        row
    };
    System { columns, rows: all.into_iter().map(row).collect() }
}

fn pg_stat_user_tables(relations: &[Relation<'_>]) -> System {
    let mut columns = vec![("relid", Oid), ("schemaname", Name), ("relname", Name)];
    let counts = [
        "seq_scan",
        "seq_tup_read",
        "idx_scan",
        "idx_tup_fetch",
        "n_tup_ins",
        "n_tup_upd",
        "n_tup_del",
        "n_tup_hot_upd",
        "n_live_tup",
        "n_dead_tup",
        "n_mod_since_analyze",
        "n_ins_since_vacuum",
    ];
    columns.extend(counts.map(|name| (name, Int8)));
    let times = ["last_vacuum", "last_autovacuum", "last_analyze", "last_autoanalyze"];
    columns.extend(times.map(|name| (name, TimestampTz)));
    let more = ["vacuum_count", "autovacuum_count", "analyze_count", "autoanalyze_count"];
    columns.extend(more.map(|name| (name, Int8)));
    let width = columns.len();
    let row = |relation: &Relation<'_>| {
        let table = relation.table()?;
        let mut row =
            vec![Datum::Int(relation.oid), text(schema_of(&relation.full)), text(plain(&relation.full))];
        row.resize(width, Datum::Null);
        row[11] = Datum::Int(i64::try_from(table.rows).unwrap_or(i64::MAX));
        Some(row)
    };
    System { columns, rows: relations.iter().filter_map(row).collect() }
}

/// Tables, of whose blocks no reads are counted.
fn pg_statio_user_tables(relations: &[Relation<'_>]) -> System {
    let mut columns = vec![("relid", Oid), ("schemaname", Name), ("relname", Name)];
    let counts = [
        "heap_blks_read",
        "heap_blks_hit",
        "idx_blks_read",
        "idx_blks_hit",
        "toast_blks_read",
        "toast_blks_hit",
        "tidx_blks_read",
        "tidx_blks_hit",
    ];
    columns.extend(counts.map(|name| (name, Int8)));
    let width = columns.len();
    let row = |relation: &Relation<'_>| {
        relation.table()?;
        let mut row =
            vec![Datum::Int(relation.oid), text(schema_of(&relation.full)), text(plain(&relation.full))];
        row.resize(width, Datum::Null);
        Some(row)
    };
    System { columns, rows: relations.iter().filter_map(row).collect() }
}
