//! Where the rows of a database are, and how warm: what `inspect` prints.

use std::path::{Path, PathBuf};

use serde::Serialize;
use thermocline_engine::{ColdStoreKind, Database, Error, IndexOnSsd, Options, SsdShares};

use crate::report::{grouped, size};
use crate::run::open_to_look;

/// A database as it is.
#[derive(Clone, Debug, Serialize)]
pub struct Inspected {
    /// The version of Thermocline.
    pub version: &'static str,
    /// Its directory.
    pub dir: PathBuf,
    /// The kind of its cold store, if it has one.
    pub cold_store: Option<String>,
    /// The memory limit under which it was looked at.
    pub memory_limit_bytes: Option<u64>,
    /// Memory by use, as the limit counts it.
    pub memory_bytes: Vec<(&'static str, u64)>,
    /// Rows outside of memory.
    pub rows_cold: u64,
    /// Bytes of memory that each of them takes: filters, fences and notices.
    pub bytes_per_cold_row: f64,
    /// Bytes of the cold store on disk.
    pub cold_disk_bytes: u64,
    /// The SSD as it was used last, if its file is named.
    pub ssd: Option<InspectedSsd>,
    /// Accesses a second and byte from which on a row is hot, if temperatures are known; 0: all that is accessed fits.
    pub threshold: Option<f64>,
    /// By table, in the order of their names.
    pub tables: Vec<InspectedTable>,
}

/// The SSD below the cold store, as the opening before has left it.
#[derive(Clone, Debug, Serialize)]
pub struct InspectedSsd {
    /// Its file.
    pub path: PathBuf,
    /// Was it on, and if not, why.
    pub state: String,
    /// Which part of the pages that readers came by for it gave in that opening.
    pub hit_ratio: f64,
    /// Bytes written to it in that opening.
    pub bytes_written: u64,
    /// By table and index.
    pub indexes: Vec<InspectedShare>,
    /// Bytes of filters and fences in the cold store.
    pub rest_bytes: u64,
    /// Those of them on the SSD.
    pub rest_ssd_bytes: u64,
}

/// An index with its share of the SSD.
#[derive(Clone, Debug, Serialize)]
pub struct InspectedShare {
    /// The table.
    pub table: String,
    /// The index; the primary key's is that of the rows.
    pub index: String,
    /// Bytes in the cold store.
    pub bytes: u64,
    /// Bytes on the SSD.
    pub ssd_bytes: u64,
}

impl InspectedSsd {
    fn of(path: &Path, shares: SsdShares) -> Self {
        let counts = shares.saved.unwrap_or_default();
        let index = |of: IndexOnSsd| InspectedShare {
            table: of.table,
            index: of.index,
            bytes: of.share.bytes,
            ssd_bytes: of.share.ssd_bytes,
        };
        Self {
            path: path.to_owned(),
            state: counts.state.to_string(),
            hit_ratio: if counts.reads == 0 { 0.0 } else { counts.hits as f64 / counts.reads as f64 },
            bytes_written: counts.bytes_written,
            indexes: shares.indexes.into_iter().map(index).collect(),
            rest_bytes: shares.rest.bytes,
            rest_ssd_bytes: shares.rest.ssd_bytes,
        }
    }

    fn to_table(&self) -> String {
        let mut text = format!(
            "SSD          {}, {:.1} % of the pages from there, {} written (when it was used last)\n",
            self.state,
            100.0 * self.hit_ratio,
            size(self.bytes_written)
        );
        let share = |bytes: u64, ssd: u64| format!("{:.1} %", 100.0 * ssd as f64 / bytes.max(1) as f64);
        let mut lines =
            vec![["table", "index", "in the cold store", "on the SSD", "share"].map(str::to_owned).to_vec()];
        for of in &self.indexes {
            let numbers = [size(of.bytes), size(of.ssd_bytes), share(of.bytes, of.ssd_bytes)];
            lines.push([of.table.clone(), of.index.clone()].into_iter().chain(numbers).collect());
        }
        let numbers =
            [size(self.rest_bytes), size(self.rest_ssd_bytes), share(self.rest_bytes, self.rest_ssd_bytes)];
        lines.push(["(filters, fences)".to_owned(), String::new()].into_iter().chain(numbers).collect());
        text += &aligned(&lines);
        text.push('\n');
        text
    }
}

/// A table.
#[derive(Clone, Debug, Serialize)]
pub struct InspectedTable {
    /// Its name.
    pub name: String,
    /// Where may its rows go: `auto`, `hot`, `cold`, `frozen`?
    pub tiering: String,
    /// Rows in memory.
    pub rows_hot: u64,
    /// Bytes of their versions.
    pub bytes_hot: u64,
    /// Those of the rows in memory that are frozen.
    pub rows_frozen: u64,
    /// Bytes of their blocks.
    pub bytes_frozen: u64,
    /// Rows in the cold store; ended ones count until they are removed.
    pub rows_cold: u64,
    /// Bytes of their keys and records.
    pub bytes_cold: u64,
    /// Memory of the access filters.
    pub filter_bytes: u64,
    /// Reads of the device that a look for an absent primary key costs on average.
    pub filter_error_rate: f64,
    /// Notices of batches in the update memo.
    pub memo_batches: u64,
    /// Notices of ends in the update memo.
    pub memo_ends: u64,
    /// Its temperatures; none if nothing is known.
    pub temperatures: Option<Histogram>,
}

/// The temperatures of a table's rows, estimated from a sample.
#[derive(Clone, Debug, Serialize)]
pub struct Histogram {
    /// From the coldest to the warmest.
    pub steps: Vec<Step>,
    /// Rows that belong into memory, and their bytes.
    pub rows_warm: u64,
    /// See `rows_warm`.
    pub bytes_warm: u64,
    /// Rows of which nothing is known: they were not accessed for long, or never.
    pub rows_unknown: u64,
}

/// Rows of about one temperature.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Step {
    /// Accesses a second, at least.
    pub from_per_s: f64,
    /// Accesses a second, less than that; none for the last step.
    pub below_per_s: Option<f64>,
    /// Rows.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Looks at the database in `dir`, which no process may have open for writing, and changes nothing of it. `ssd`: the file of the
/// SSD that it was used with.
///
/// # Errors
/// As [`Database::open`]; there must be a database.
pub fn inspect(
    dir: &Path,
    memory_limit: Option<u64>,
    cold_store: Option<ColdStoreKind>,
    ssd: Option<&Path>,
) -> Result<Inspected, Error> {
    let mut options = Options::default().with_memory_limit(memory_limit);
    if let Some(path) = ssd {
        // Whoever looks has no SSD of any length: what was saved of it is read.
        options = options.with_ssd_cache(Some(path.to_owned())).with_ssd_cache_bytes(1);
    }
    let database = open_to_look(dir, options, cold_store)?;
    let statistics = database.statistics();
    let temperatures = database.temperatures();
    let mut tables = Vec::new();
    for name in database.table_names() {
        let table = database.table(&name)?;
        let (of, notices) = (table.statistics(), table.memo_notices());
        let known = temperatures.as_ref().and_then(|known| known.tables.get(&table.id()));
        let histogram = known.map(|known| {
            let above = known.steps.iter().skip(1).map(|step| Some(step.from)).chain([None]);
            let steps = known.steps.iter().zip(above).map(|(step, below_per_s)| Step {
                from_per_s: step.from,
                below_per_s,
                rows: step.rows,
                bytes: step.bytes,
            });
            let rows: u64 = known.steps.iter().map(|step| step.rows).sum();
            Histogram {
                steps: steps.collect(),
                rows_warm: known.hot.rows,
                bytes_warm: known.hot.bytes,
                rows_unknown: (of.rows_hot + of.rows_cold).saturating_sub(rows),
            }
        });
        tables.push(InspectedTable {
            name,
            tiering: format!("{:?}", of.tiering).to_lowercase(),
            rows_hot: of.rows_hot,
            bytes_hot: of.bytes_hot,
            rows_frozen: of.rows_frozen,
            bytes_frozen: of.bytes_frozen,
            rows_cold: of.rows_cold,
            bytes_cold: of.bytes_cold,
            filter_bytes: of.filter_bytes,
            filter_error_rate: of.filter_error_rate,
            memo_batches: notices.batches,
            memo_ends: notices.ends,
            temperatures: histogram,
        });
    }
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    let inspected = Inspected {
        version: env!("CARGO_PKG_VERSION"),
        dir: dir.to_owned(),
        cold_store: Database::cold_store_in(dir)?.map(|kind| kind.to_string()),
        memory_limit_bytes: statistics.memory_limit,
        memory_bytes: statistics.memory.parts().collect(),
        rows_cold: statistics.cold.rows_cold,
        bytes_per_cold_row: statistics.cold.bytes_per_cold_row,
        cold_disk_bytes: statistics.cold.disk_bytes,
        ssd: match ssd {
            Some(path) => database.ssd_shares()?.map(|shares| InspectedSsd::of(path, shares)),
            None => None,
        },
        threshold: temperatures.map(|known| known.threshold),
        tables,
    };
    database.close()?;
    Ok(inspected)
}

/// An aligned table: the first column to the left, the others to the right.
#[must_use]
pub fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        for (column, cell) in line.iter().enumerate() {
            let pad = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
            text += &if column == 0 { format!("{cell}{pad}") } else { format!("  {pad}{cell}") };
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

impl Inspected {
    /// The result as one JSON object.
    ///
    /// # Panics
    /// Never: a report has string keys only.
    #[must_use]
    pub fn to_json(&self) -> String {
        crate::report::json(self)
    }

    /// The result for people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let count = |number: u64| grouped(number as f64);
        let mut text = format!(
            "cold store   {}\n",
            match &self.cold_store {
                Some(kind) => format!(
                    "{kind}, {} rows, {} on disk, {:.2} B of memory a row",
                    count(self.rows_cold),
                    size(self.cold_disk_bytes),
                    self.bytes_per_cold_row
                ),
                None => "none: no row has left memory".to_owned(),
            }
        );
        let used = self.memory_bytes.iter().filter(|(_, bytes)| *bytes > 0);
        let used: Vec<String> = used.map(|(name, bytes)| format!("{name} {}", size(*bytes))).collect();
        text += &format!("memory       {}\n\n", used.join(", "));
        if let Some(ssd) = &self.ssd {
            text += &ssd.to_table();
        }
        let head = [
            "table",
            "rows hot",
            "bytes hot",
            "frozen",
            "bytes",
            "rows cold",
            "bytes cold",
            "filters",
            "errors",
            "memo",
        ];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        for table in &self.tables {
            lines.push(vec![
                table.name.clone(),
                count(table.rows_hot),
                size(table.bytes_hot),
                count(table.rows_frozen),
                size(table.bytes_frozen),
                count(table.rows_cold),
                size(table.bytes_cold),
                size(table.filter_bytes),
                format!("{:.2} %", 100.0 * table.filter_error_rate),
                count(table.memo_batches + table.memo_ends),
            ]);
        }
        text += &aligned(&lines);
        text += "\n";
        let known: Vec<_> = self
            .tables
            .iter()
            .filter_map(|table| Some((&table.name, table.temperatures.as_ref()?)))
            .collect();
        let Some((_, first)) = known.first() else {
            text += "temperatures are unknown: they are measured when half of the memory limit is used\n";
            return text;
        };
        text += "rows by accesses a second (estimated from a sample)\n";
        let mut head = vec!["table".to_owned(), "unknown".to_owned()];
        head.extend(first.steps.iter().map(|step| match step.below_per_s {
            Some(below) if step.from_per_s == 0.0 => format!("<{}", rate(below)),
            _ => format!("{}+", rate(step.from_per_s)),
        }));
        head.push("warm".to_owned());
        let mut lines = vec![head];
        for (name, histogram) in known {
            let mut line = vec![name.clone(), count(histogram.rows_unknown)];
            line.extend(histogram.steps.iter().map(|step| count(step.rows)));
            line.push(count(histogram.rows_warm));
            lines.push(line);
        }
        text + &aligned(&lines)
    }
}

/// A power of four in few characters.
fn rate(per_s: f64) -> String {
    if per_s >= 1.0 { grouped(per_s) } else { format!("1/{}", grouped(1.0 / per_s)) }
}
