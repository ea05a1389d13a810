//! Settings that say how PostgreSQL plans, keeps memory, or writes its log. Clients, pools and dumps send them; here they are
//! checked and told again, and change no answer.
//!
//! Numbers are kept in the setting's unit, and shown in the largest unit that divides them (`convert_int_from_base_unit`).

use super::switch;
use crate::error::{Error, Result};

/// The values that such a setting takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Hint {
    Switch,
    Choice(&'static [&'static str]),
    Text,
    Real(f64, f64),
    /// A whole number of a unit, and its bounds.
    Whole(Unit, i64, i64),
}

/// The unit of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unit {
    None,
    /// A number of kilobytes.
    Memory(i64),
    /// A number of milliseconds.
    Time(i64),
}

const MAX: i64 = i32::MAX as i64;

/// Units of memory in kilobytes, the largest first.
const MEMORY: &[(&str, f64)] =
    &[("TB", 1_073_741_824.0), ("GB", 1_048_576.0), ("MB", 1024.0), ("kB", 1.0), ("B", 1.0 / 1024.0)];
/// Units of time in milliseconds, the largest first.
const TIME: &[(&str, f64)] =
    &[("d", 86_400_000.0), ("h", 3_600_000.0), ("min", 60_000.0), ("s", 1000.0), ("ms", 1.0), ("us", 0.001)];

impl Unit {
    /// Its name, the units that are known beside it, and its size in the smallest whole one.
    fn scale(self) -> (&'static str, &'static [(&'static str, f64)], f64) {
        match self {
            Self::None => ("", &[], 1.0),
            Self::Memory(1) => ("kB", MEMORY, 1.0),
            Self::Memory(size) => ("8kB", MEMORY, size as f64),
            Self::Time(1) => ("ms", TIME, 1.0),
            Self::Time(1000) => ("s", TIME, 1000.0),
            Self::Time(size) => ("min", TIME, size as f64),
        }
    }

    /// The number that a text is in this unit; none if it is no number of it.
    fn parse(self, text: &str) -> Option<f64> {
        let (_, units, own) = self.scale();
        let text = text.trim();
        let end = text.find(|sign: char| !(sign.is_ascii_digit() || ".+-".contains(sign)));
        let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
        let number: f64 = digits.parse().ok()?;
        match unit.trim() {
            "" => Some(number),
            unit => units.iter().find(|(known, _)| *known == unit).map(|(_, size)| number * size / own),
        }
    }

    /// The number in the largest unit that divides it.
    fn show(self, number: i64) -> String {
        let (_, units, own) = self.scale();
        if number <= 0 {
            return number.to_string();
        }
        let whole = number as f64 * own;
        let found = units.iter().find(|(_, size)| *size >= 1.0 && whole % size == 0.0);
        found.map_or_else(|| number.to_string(), |(unit, size)| format!("{}{unit}", whole / size))
    }
}

/// An amount of memory as it is shown, in kilobytes.
pub(super) fn kilobytes(text: &str) -> Option<i64> {
    Unit::Memory(1).parse(text).map(|amount| amount as i64)
}

fn invalid(name: &str, wanted: &str) -> Error {
    Error::new("22023", format!("invalid value for parameter \"{name}\": \"{wanted}\""))
}

/// A whole number of a unit between bounds, as it is shown; and what it is in the unit.
pub(super) fn whole(
    name: &str,
    wanted: &str,
    (unit, least, most): (Unit, i64, i64),
) -> Result<(String, i64)> {
    let number = unit.parse(wanted).filter(|number| number.abs() < 1e15);
    let number = number.ok_or_else(|| invalid(name, wanted))?.round_ties_even() as i64;
    if !(least..=most).contains(&number) {
        let (shown, ..) = unit.scale();
        let blank = if shown.is_empty() { "" } else { " " };
        let range = format!("({least} .. {most})");
        let message =
            format!("{number}{blank}{shown} is outside the valid range for parameter \"{name}\" {range}");
        return Err(Error::new("22023", message));
    }
    Ok((unit.show(number), number))
}

/// A value of a setting, as it is shown.
pub(super) fn checked(name: &str, wanted: &str, hint: Hint) -> Result<String> {
    Ok(match hint {
        Hint::Text => wanted.to_owned(),
        Hint::Switch => {
            let message = || format!("parameter \"{name}\" requires a Boolean value");
            let on = switch(wanted).ok_or_else(|| Error::new("22023", message()))?;
            if on { "on" } else { "off" }.to_owned()
        }
        Hint::Choice(all) => {
            let found = all.iter().find(|known| known.eq_ignore_ascii_case(wanted));
            let found = found.copied().or_else(|| {
                let word = if switch(wanted)? { "on" } else { "off" };
                all.iter().find(|known| **known == word).copied()
            });
            let hint = || format!("Available values: {}.", all.join(", "));
            found.ok_or_else(|| invalid(name, wanted).hint(hint()))?.to_owned()
        }
        Hint::Real(least, most) => {
            let number: f64 = wanted.trim().parse().map_err(|_| invalid(name, wanted))?;
            if !(least..=most).contains(&number) {
                let most = if most == f64::MAX { "1.79769e+308".to_owned() } else { most.to_string() };
                let range = format!("({least} .. {most})");
                let message = format!("{number} is outside the valid range for parameter \"{name}\" {range}");
                return Err(Error::new("22023", message));
            }
            number.to_string()
        }
        Hint::Whole(unit, least, most) => whole(name, wanted, (unit, least, most))?.0,
    })
}

/// The values that a setting takes, for the page of settings.
#[cfg(test)]
pub(super) fn takes(name: &str, hint: Hint) -> &'static str {
    match hint {
        _ if name == "work_mem" => {
            "a number with B, kB, MB, GB or TB: the memory of an operator, or of a cursor, before rows go to files; at its \
             default a 32nd of the memory limit, between 1 and 256 MiB"
        }
        _ if name == "temp_file_limit" => {
            "a number with B, kB, MB, GB or TB: the files of a statement together (53400); -1: no limit"
        }
        Hint::Switch => "on, off; changes no answer",
        Hint::Choice(_) => "PostgreSQL's words; changes no answer",
        Hint::Text => "any text; changes no answer",
        Hint::Real(..) | Hint::Whole(Unit::None, ..) => "a number; changes no answer",
        Hint::Whole(Unit::Memory(_), ..) => "a number with B, kB, MB, GB or TB; changes no answer",
        Hint::Whole(Unit::Time(_), ..) => "a number with us, ms, s, min, h or d; changes no answer",
    }
}

/// Settings, their defaults, and what they take.
pub(super) const HINTS: &[(&str, &str, Hint)] = &[
    ("backend_flush_after", "0", Hint::Whole(Unit::Memory(8), 0, 256)),
    ("check_function_bodies", "on", Hint::Switch),
    ("commit_delay", "0", Hint::Whole(Unit::None, 0, 100000)),
    ("commit_siblings", "5", Hint::Whole(Unit::None, 0, 1000)),
    ("compute_query_id", "auto", Hint::Choice(&["auto", "regress", "on", "off"])),
    ("constraint_exclusion", "partition", Hint::Choice(&["partition", "on", "off"])),
    ("cpu_index_tuple_cost", "0.005", Hint::Real(0.0, f64::MAX)),
    ("cpu_operator_cost", "0.0025", Hint::Real(0.0, f64::MAX)),
    ("cpu_tuple_cost", "0.01", Hint::Real(0.0, f64::MAX)),
    ("cursor_tuple_fraction", "0.1", Hint::Real(0.0, 1.0)),
    ("deadlock_timeout", "1s", Hint::Whole(Unit::Time(1), 1, MAX)),
    ("debug_pretty_print", "on", Hint::Switch),
    ("debug_print_parse", "off", Hint::Switch),
    ("debug_print_plan", "off", Hint::Switch),
    ("debug_print_rewritten", "off", Hint::Switch),
    ("default_statistics_target", "100", Hint::Whole(Unit::None, 1, 10000)),
    ("default_text_search_config", "pg_catalog.simple", Hint::Text),
    ("default_toast_compression", "pglz", Hint::Choice(&["pglz", "lz4"])),
    ("effective_cache_size", "4GB", Hint::Whole(Unit::Memory(8), 1, MAX)),
    ("effective_io_concurrency", "1", Hint::Whole(Unit::None, 0, 1000)),
    ("enable_async_append", "on", Hint::Switch),
    ("enable_bitmapscan", "on", Hint::Switch),
    ("enable_gathermerge", "on", Hint::Switch),
    ("enable_hashagg", "on", Hint::Switch),
    ("enable_hashjoin", "on", Hint::Switch),
    ("enable_incremental_sort", "on", Hint::Switch),
    ("enable_indexonlyscan", "on", Hint::Switch),
    ("enable_indexscan", "on", Hint::Switch),
    ("enable_material", "on", Hint::Switch),
    ("enable_memoize", "on", Hint::Switch),
    ("enable_mergejoin", "on", Hint::Switch),
    ("enable_nestloop", "on", Hint::Switch),
    ("enable_parallel_append", "on", Hint::Switch),
    ("enable_parallel_hash", "on", Hint::Switch),
    ("enable_partition_pruning", "on", Hint::Switch),
    ("enable_partitionwise_aggregate", "off", Hint::Switch),
    ("enable_partitionwise_join", "off", Hint::Switch),
    ("enable_seqscan", "on", Hint::Switch),
    ("enable_sort", "on", Hint::Switch),
    ("enable_tidscan", "on", Hint::Switch),
    ("force_parallel_mode", "off", Hint::Choice(&["off", "on", "regress"])),
    ("from_collapse_limit", "8", Hint::Whole(Unit::None, 1, MAX)),
    ("geqo", "on", Hint::Switch),
    ("geqo_effort", "5", Hint::Whole(Unit::None, 1, 10)),
    ("geqo_generations", "0", Hint::Whole(Unit::None, 0, MAX)),
    ("geqo_pool_size", "0", Hint::Whole(Unit::None, 0, MAX)),
    ("geqo_seed", "0", Hint::Real(0.0, 1.0)),
    ("geqo_selection_bias", "2", Hint::Real(1.5, 2.0)),
    ("geqo_threshold", "12", Hint::Whole(Unit::None, 2, MAX)),
    ("gin_fuzzy_search_limit", "0", Hint::Whole(Unit::None, 0, MAX)),
    ("gin_pending_list_limit", "4MB", Hint::Whole(Unit::Memory(1), 64, MAX)),
    ("hash_mem_multiplier", "2", Hint::Real(1.0, 1000.0)),
    ("jit_above_cost", "100000", Hint::Real(-1.0, f64::MAX)),
    ("jit_expressions", "on", Hint::Switch),
    ("jit_inline_above_cost", "500000", Hint::Real(-1.0, f64::MAX)),
    ("jit_optimize_above_cost", "500000", Hint::Real(-1.0, f64::MAX)),
    ("jit_tuple_deforming", "on", Hint::Switch),
    ("join_collapse_limit", "8", Hint::Whole(Unit::None, 1, MAX)),
    ("log_duration", "off", Hint::Switch),
    ("log_error_verbosity", "default", Hint::Choice(&["terse", "default", "verbose"])),
    ("log_lock_waits", "off", Hint::Switch),
    ("log_min_duration_statement", "-1", Hint::Whole(Unit::Time(1), -1, MAX)),
    (
        "log_min_error_statement",
        "error",
        Hint::Choice(&[
            "debug5", "debug4", "debug3", "debug2", "debug1", "info", "notice", "warning", "error", "log",
            "fatal", "panic",
        ]),
    ),
    (
        "log_min_messages",
        "warning",
        Hint::Choice(&[
            "debug5", "debug4", "debug3", "debug2", "debug1", "info", "notice", "warning", "error", "log",
            "fatal", "panic",
        ]),
    ),
    ("log_statement", "none", Hint::Choice(&["none", "ddl", "mod", "all"])),
    ("log_temp_files", "-1", Hint::Whole(Unit::Memory(1), -1, MAX)),
    ("logical_decoding_work_mem", "64MB", Hint::Whole(Unit::Memory(1), 64, MAX)),
    ("maintenance_io_concurrency", "10", Hint::Whole(Unit::None, 0, 1000)),
    ("maintenance_work_mem", "64MB", Hint::Whole(Unit::Memory(1), 1024, MAX)),
    ("max_parallel_maintenance_workers", "2", Hint::Whole(Unit::None, 0, 1024)),
    ("max_parallel_workers", "8", Hint::Whole(Unit::None, 0, 1024)),
    ("max_parallel_workers_per_gather", "2", Hint::Whole(Unit::None, 0, 1024)),
    ("max_stack_depth", "2MB", Hint::Whole(Unit::Memory(1), 100, MAX)),
    ("min_parallel_index_scan_size", "512kB", Hint::Whole(Unit::Memory(8), 0, 715_827_882)),
    ("min_parallel_table_scan_size", "8MB", Hint::Whole(Unit::Memory(8), 0, 715_827_882)),
    ("parallel_leader_participation", "on", Hint::Switch),
    ("parallel_setup_cost", "1000", Hint::Real(0.0, f64::MAX)),
    ("parallel_tuple_cost", "0.1", Hint::Real(0.0, f64::MAX)),
    ("plan_cache_mode", "auto", Hint::Choice(&["auto", "force_generic_plan", "force_custom_plan"])),
    ("random_page_cost", "4", Hint::Real(0.0, f64::MAX)),
    ("recursive_worktable_factor", "10", Hint::Real(0.001, 1e6)),
    ("seq_page_cost", "1", Hint::Real(0.0, f64::MAX)),
    ("stats_fetch_consistency", "cache", Hint::Choice(&["none", "cache", "snapshot"])),
    ("synchronize_seqscans", "on", Hint::Switch),
    ("tcp_keepalives_count", "0", Hint::Whole(Unit::None, 0, MAX)),
    ("tcp_keepalives_idle", "0", Hint::Whole(Unit::Time(1000), 0, MAX)),
    ("tcp_keepalives_interval", "0", Hint::Whole(Unit::Time(1000), 0, MAX)),
    ("tcp_user_timeout", "0", Hint::Whole(Unit::Time(1), 0, MAX)),
    ("temp_buffers", "8MB", Hint::Whole(Unit::Memory(8), 100, 1_073_741_823)),
    ("temp_file_limit", "-1", Hint::Whole(Unit::Memory(1), -1, MAX)),
    ("temp_tablespaces", "", Hint::Text),
    ("track_activities", "on", Hint::Switch),
    ("track_counts", "on", Hint::Switch),
    ("track_functions", "none", Hint::Choice(&["none", "pl", "all"])),
    ("track_io_timing", "off", Hint::Switch),
    ("track_wal_io_timing", "off", Hint::Switch),
    ("update_process_title", "on", Hint::Switch),
    ("vacuum_cost_delay", "0", Hint::Whole(Unit::Time(1), 0, 100)),
    ("vacuum_cost_limit", "200", Hint::Whole(Unit::None, 1, 10000)),
    ("vacuum_cost_page_dirty", "20", Hint::Whole(Unit::None, 0, 10000)),
    ("vacuum_cost_page_hit", "1", Hint::Whole(Unit::None, 0, 10000)),
    ("vacuum_cost_page_miss", "2", Hint::Whole(Unit::None, 0, 10000)),
    ("vacuum_failsafe_age", "1600000000", Hint::Whole(Unit::None, 0, 2_100_000_000)),
    ("vacuum_freeze_min_age", "50000000", Hint::Whole(Unit::None, 0, 1_000_000_000)),
    ("vacuum_freeze_table_age", "150000000", Hint::Whole(Unit::None, 0, 2_000_000_000)),
    ("vacuum_multixact_failsafe_age", "1600000000", Hint::Whole(Unit::None, 0, 2_100_000_000)),
    ("vacuum_multixact_freeze_min_age", "5000000", Hint::Whole(Unit::None, 0, 1_000_000_000)),
    ("vacuum_multixact_freeze_table_age", "150000000", Hint::Whole(Unit::None, 0, 2_000_000_000)),
    ("work_mem", "4MB", Hint::Whole(Unit::Memory(1), 64, MAX)),
];
