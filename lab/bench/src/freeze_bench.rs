//! Blocks of frozen rows alone: order lines of TPC-C, made into blocks and read again, on one thread.
//!
//! ```text
//!   encode     rows as they stand in memory → blocks; processor time of the thread, drawing the rows not counted
//!   check      every row of every block is compared with what was pushed, and every byte with its checksum
//!   points     rows and single columns at random positions: of all blocks, and of one (which the caches hold)
//!   scan       sum of ol_amount where ol_quantity is at most 5: all groups are read, none is left out
//! ```
//!
//! Then the same rows in a table of the engine (`freeze_bench/engine.rs`): memory, freezing, reads and changes, hot and frozen.
//!
//! A row's bytes are compared with those of the hot store, as measured in the table: version and slot. GB/s of a scan count the two columns as rows have them: 10 bytes a row.

use std::fmt;
use std::ops::ControlFlow;

mod engine;

use serde::Serialize;
use thermocline_base::rng::Rng;
use thermocline_engine::row::{Decimal, Layout, RowError, Value};
use thermocline_frozen::{Block, BlockMeta, Builder, Choice, Condition, MAX_ROWS, Predicate};
use thermocline_workloads::tpcc::lines::{Lines, Strings};
use thermocline_workloads::tpcc::schema::OrderLine;

use crate::machine::Machine;
use crate::report::{grouped, json, size};
use crate::time;

/// Reads of each measure of points, if there are not fewer rows.
const POINTS: u32 = 1_000_000;
const SCANS: u32 = 5;

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct FreezeSettings {
    /// Order lines.
    pub rows: u64,
    /// The strings of `ol_dist_info`.
    pub strings: Strings,
    /// Warehouses that they are of.
    pub warehouses: u16,
    /// The smallest encodings, instead of those of O(1).
    pub smallest: bool,
    /// Of the rows.
    pub seed: u64,
}

/// Other outputs of a run, where there are some.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    /// The rows as CSV.
    pub csv: Option<Vec<u8>>,
    /// The blocks, one after another.
    pub blocks: Option<Vec<u8>>,
}

/// A column: its encodings and its bytes.
#[derive(Clone, Debug, Serialize)]
pub struct ColumnReport {
    /// Its name.
    pub column: String,
    /// That of the first block.
    pub encoding: String,
    /// In all blocks.
    pub bytes: u64,
    /// A row.
    pub bytes_per_row: f64,
    /// Its bytes in rows over its bytes in blocks.
    pub ratio: f64,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct FreezeReport {
    rows: u64,
    blocks: usize,
    strings: String,
    warehouses: u16,
    choice: String,
    seed: u64,
    machine: Machine,
    encode_rows_per_s: f64,
    encode_cpu_us_per_row: f64,
    row_bytes: f64,
    block_bytes_per_row: f64,
    hot_bytes_per_row: f64,
    times_smaller_than_hot: f64,
    meta_bytes_per_block: usize,
    point_row_ns: f64,
    point_row_cached_ns: f64,
    point_column_ns: f64,
    point_column_cached_ns: f64,
    scan_rows_per_s: f64,
    scan_gb_per_s: f64,
    verify_gb_per_s: f64,
    engine: engine::EngineReport,
    columns: Vec<ColumnReport>,
}

/// Why there is no result.
#[derive(Debug)]
pub enum FreezeError {
    /// A row could not be made.
    Row(RowError),
    /// The engine's.
    Engine(thermocline_engine::Error),
    /// A block could not be made or read.
    Block(thermocline_frozen::Error),
    /// A row came back as another one.
    Differs {
        /// The number of the block.
        block: u64,
        /// The row's position.
        position: u16,
    },
}

impl fmt::Display for FreezeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FreezeError::Row(error) => error.fmt(f),
            FreezeError::Engine(error) => error.fmt(f),
            FreezeError::Block(error) => error.fmt(f),
            FreezeError::Differs { block, position } => {
                write!(
                    f,
                    "block {block}, position {position}: not the row that was frozen; this is a defect, report it"
                )
            }
        }
    }
}

impl std::error::Error for FreezeError {}

impl From<RowError> for FreezeError {
    fn from(error: RowError) -> Self {
        Self::Row(error)
    }
}

impl From<thermocline_frozen::Error> for FreezeError {
    fn from(error: thermocline_frozen::Error) -> Self {
        Self::Block(error)
    }
}

/// Rows of one block as they stand in memory.
#[derive(Default)]
struct Rows {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Rows {
    /// The next rows, at most those of a block.
    fn draw(
        &mut self,
        count: u64,
        lines: &mut Lines,
        layout: &Layout,
        csv: Option<&mut Vec<u8>>,
    ) -> Result<(), RowError> {
        self.bytes.clear();
        self.ends.clear();
        let (mut row, mut values, mut csv) = (Vec::new(), Vec::new(), csv);
        for _ in 0..count {
            let (line, text) = lines.next_line();
            values_of(line, text, &mut values);
            layout.encode(&values, &mut row)?;
            self.bytes.extend_from_slice(&row);
            self.ends.push(self.bytes.len());
            if let Some(csv) = &mut csv {
                let fields: Vec<String> = values.iter().map(Value::to_string).collect();
                csv.extend(fields.join(",").bytes());
                csv.push(b'\n');
            }
        }
        Ok(())
    }

    fn iter(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        (0..).zip(begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end]))
    }
}

fn values_of(line: &OrderLine, text: &str, values: &mut Vec<Value>) {
    values.clear();
    let amount = Decimal::new(line.ol_amount.scaled(), 2).unwrap_or_default();
    values.extend([
        Value::Int4(line.ol_o_id),
        Value::Int2(line.ol_d_id),
        Value::Int4(line.ol_w_id),
        Value::Int2(line.ol_number),
        Value::Int4(line.ol_i_id),
        Value::Int4(line.ol_supply_w_id),
        line.ol_delivery_d.map_or(Value::Null, Value::Timestamp),
        Value::Int2(line.ol_quantity),
        Value::Decimal(amount),
        Value::Text(text.to_owned()),
    ]);
}

/// Runs the measurement.
///
/// # Errors
/// A row that does not come back as it was.
pub fn run(settings: &FreezeSettings, outputs: &mut Outputs) -> Result<FreezeReport, FreezeError> {
    let layout = Layout::new(&Lines::columns(settings.strings))?;
    let mut lines = Lines::new(settings.warehouses.into(), settings.strings, settings.seed);
    let choice = if settings.smallest { Choice::Smallest } else { Choice::PointReads };
    let mut builder = Builder::new(&layout);
    let (mut rows, mut blocks): (Rows, Vec<(BlockMeta, Vec<u8>)>) = (Rows::default(), Vec::new());
    let (mut left, mut row_bytes, mut encode_s) = (settings.rows.max(1), 0, 0.0);
    let mut out = Vec::new();
    while left > 0 {
        let count = left.min(MAX_ROWS as u64);
        rows.draw(count, &mut lines, &layout, outputs.csv.as_mut())?;
        row_bytes += rows.bytes.len();
        let begin = time::now();
        for (position, row) in rows.iter() {
            builder.push(position, row)?;
        }
        let number = blocks.len() as u64;
        let bytes = builder.finish(number, choice)?;
        encode_s += begin.elapsed().as_secs_f64();
        let meta = BlockMeta::parse(&bytes, &layout)?;
        for (position, row) in rows.iter() {
            if !meta.block(&bytes).row_into(position, &mut out) || out != row {
                return Err(FreezeError::Differs { block: number, position });
            }
        }
        blocks.push((meta, bytes));
        left -= count;
    }
    let views: Vec<Block<'_>> = blocks.iter().map(|(meta, bytes)| meta.block(bytes)).collect();
    let begin = time::now();
    views.iter().try_for_each(Block::verify)?;
    let verify_s = begin.elapsed().as_secs_f64();
    let block_bytes: usize = views.iter().map(Block::bytes_len).sum();
    if let Some(all) = &mut outputs.blocks {
        views.iter().for_each(|block| all.extend_from_slice(block.bytes()));
    }
    let count = settings.rows.max(1) as f64;
    let scan_s = scan(&views)?;
    let engine = engine::run(settings).map_err(FreezeError::Engine)?;
    let block_bytes_per_row = block_bytes as f64 / count;
    Ok(FreezeReport {
        rows: settings.rows.max(1),
        blocks: views.len(),
        strings: match settings.strings {
            Strings::Tpcc => "tpcc",
            Strings::Ch => "ch: 88,800 generated surnames, drawn in proportion to rank^-0.7",
            Strings::Long => "long",
        }
        .to_owned(),
        warehouses: settings.warehouses,
        choice: if settings.smallest { "smallest" } else { "point reads" }.to_owned(),
        seed: settings.seed,
        machine: Machine::here(),
        encode_rows_per_s: count / encode_s,
        encode_cpu_us_per_row: encode_s * 1e6 / count,
        row_bytes: row_bytes as f64 / count,
        block_bytes_per_row,
        hot_bytes_per_row: engine.hot_bytes_per_row,
        times_smaller_than_hot: engine.hot_bytes_per_row / block_bytes_per_row,
        meta_bytes_per_block: views.first().map_or(0, |block| block.meta().memory()),
        point_row_ns: points(&views, |block, at| usize::from(block.row_into(at, &mut out)) + out.len()),
        point_row_cached_ns: points(&views[..1], |block, at| {
            usize::from(block.row_into(at, &mut out)) + out.len()
        }),
        point_column_ns: points(&views, |block, at| block.int(4, at).unwrap_or(0) as usize),
        point_column_cached_ns: points(&views[..1], |block, at| block.int(4, at).unwrap_or(0) as usize),
        scan_rows_per_s: count / scan_s,
        scan_gb_per_s: 10.0 * count / scan_s / 1e9,
        verify_gb_per_s: block_bytes as f64 / verify_s / 1e9,
        engine,
        columns: columns(&views, count),
    })
}

/// Nanoseconds of a read at a random position.
fn points(blocks: &[Block<'_>], mut read: impl FnMut(&Block<'_>, u16) -> usize) -> f64 {
    let mut random = Rng::new(7);
    let count = blocks.iter().map(Block::len).sum::<u32>().min(POINTS);
    let begin = time::now();
    let mut sum = 0;
    for _ in 0..count {
        let block = &blocks[random.below(blocks.len() as u64) as usize];
        sum += read(block, random.below(block.span().into()) as u16);
    }
    std::hint::black_box(sum);
    begin.elapsed().as_nanos() as f64 / f64::from(count)
}

/// Seconds of a scan, the fastest of some.
fn scan(blocks: &[Block<'_>]) -> Result<f64, FreezeError> {
    let predicates =
        [Predicate { column: OrderLine::OL_QUANTITY, condition: Condition::LessOrEqual(Value::Int2(5)) }];
    let mut best = f64::INFINITY;
    for _ in 0..SCANS {
        let begin = time::now();
        let mut sum = 0i128;
        for block in blocks {
            block.scan(&[OrderLine::OL_AMOUNT], &predicates, &[], |vector| {
                let amounts = vector.ints(0);
                let mut part = 0i64;
                for (word, amounts) in vector.selected().iter().zip(amounts.chunks(64)) {
                    for (bit, amount) in amounts.iter().enumerate() {
                        part += amount & 0i64.wrapping_sub((word >> bit & 1) as i64);
                    }
                }
                sum += i128::from(part);
                ControlFlow::Continue(())
            })?;
        }
        std::hint::black_box(sum);
        best = best.min(begin.elapsed().as_secs_f64());
    }
    Ok(best)
}

fn columns(blocks: &[Block<'_>], rows: f64) -> Vec<ColumnReport> {
    let Some(first) = blocks.first() else { return Vec::new() };
    let report = |(index, info): (usize, thermocline_frozen::ColumnInfo<'_>)| {
        let infos = blocks.iter().filter_map(|block| block.columns().nth(index));
        let (bytes, row_bytes) =
            infos.fold((0, 0), |sums, info| (sums.0 + info.bytes, sums.1 + info.row_bytes));
        ColumnReport {
            column: info.name.to_owned(),
            encoding: info.encoding.to_owned(),
            bytes: bytes as u64,
            bytes_per_row: bytes as f64 / rows,
            ratio: row_bytes as f64 / bytes as f64,
        }
    };
    first.columns().enumerate().map(report).collect()
}

impl FreezeReport {
    /// The result as one JSON object.
    ///
    /// # Panics
    /// Never: a report has string keys only.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// The result for people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut text = String::new();
        let lines = [
            (
                "rows",
                format!(
                    "{} order lines in {} blocks, strings: {}",
                    grouped(self.rows as f64),
                    self.blocks,
                    self.strings
                ),
            ),
            (
                "machine",
                format!("{}, {} cores, {}", self.machine.cpu, self.machine.cores, self.machine.kernel),
            ),
            (
                "encode",
                format!(
                    "{} rows/s on one core ({:.3} µs a row)",
                    grouped(self.encode_rows_per_s),
                    self.encode_cpu_us_per_row
                ),
            ),
            (
                "space",
                format!(
                    "{:.2} bytes a row, encoded rows {:.1}, hot {:.0} ({:.2} times smaller)",
                    self.block_bytes_per_row,
                    self.row_bytes,
                    self.hot_bytes_per_row,
                    self.times_smaller_than_hot
                ),
            ),
            (
                "point reads",
                format!(
                    "a row {:.0} ns, in caches {:.0}; one column {:.0} ns, in caches {:.0}",
                    self.point_row_ns,
                    self.point_row_cached_ns,
                    self.point_column_ns,
                    self.point_column_cached_ns
                ),
            ),
            ("scan", format!("{} rows/s, {:.2} GB/s", grouped(self.scan_rows_per_s), self.scan_gb_per_s)),
            (
                "verify",
                format!(
                    "{:.2} GB/s; {} beside a block",
                    self.verify_gb_per_s,
                    size(self.meta_bytes_per_block as u64)
                ),
            ),
        ];
        let engine = &self.engine;
        let of_engine = [
            (
                "in a table",
                format!(
                    "{:.1} bytes a row hot, {:.1} frozen ({:.2} times smaller), and {:.1} of the key's entry",
                    engine.hot_bytes_per_row,
                    engine.frozen_bytes_per_row,
                    engine.hot_bytes_per_row / engine.frozen_bytes_per_row,
                    engine.entry_bytes_per_row
                ),
            ),
            (
                "freezing",
                format!(
                    "{} rows frozen, {} rows/s ({:.3} µs of processor time a row)",
                    grouped(engine.rows_frozen as f64),
                    grouped(engine.freeze_rows_per_s),
                    engine.cpu_us_per_frozen_row
                ),
            ),
            (
                "reads",
                format!(
                    "by key at random {:.0} ns hot, {:.0} frozen",
                    engine.read_hot_ns, engine.read_frozen_ns
                ),
            ),
            (
                "changes",
                format!(
                    "a row of orders at random {:.0} ns hot, {:.0} frozen ({:.2} times); in sequence {:.0}, {:.0} ({:.2} times)",
                    engine.update_hot_random_ns,
                    engine.update_frozen_random_ns,
                    engine.update_frozen_random_ns / engine.update_hot_random_ns,
                    engine.update_hot_sequence_ns,
                    engine.update_frozen_sequence_ns,
                    engine.update_frozen_sequence_ns / engine.update_hot_sequence_ns
                ),
            ),
        ];
        for (name, line) in lines.into_iter().chain(of_engine) {
            text.push_str(&format!("{name:<12} {line}\n"));
        }
        for column in &self.columns {
            text.push_str(&format!(
                "  {:<16} {:<26} {:>7.3} bytes a row, {:>7.1} times smaller\n",
                column.column, column.encoding, column.bytes_per_row, column.ratio
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_of_each_kind_of_strings_comes_back() {
        for strings in [Strings::Tpcc, Strings::Ch, Strings::Long] {
            for smallest in [false, true] {
                let settings = FreezeSettings { rows: 3000, strings, warehouses: 2, smallest, seed: 3 };
                let mut outputs = Outputs { csv: Some(Vec::new()), blocks: Some(Vec::new()) };
                let report = run(&settings, &mut outputs).unwrap();
                assert!(report.block_bytes_per_row < report.row_bytes, "{report:?}");
                assert_eq!(report.columns.len(), 10);
                // A last chunk that is less than a quarter full stays hot.
                assert!(report.engine.rows_frozen > 500, "{:?}", report.engine);
                let csv = String::from_utf8(outputs.csv.unwrap()).unwrap();
                assert_eq!(
                    (csv.lines().count(), csv.lines().all(|line| line.split(',').count() == 10)),
                    (3000, true)
                );
                assert_eq!(
                    outputs.blocks.unwrap().len() as f64,
                    (report.block_bytes_per_row * 3000.0).round()
                );
                assert!(report.to_json().contains("times_smaller_than_hot"));
            }
        }
    }
}
