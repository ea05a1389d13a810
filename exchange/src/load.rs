//! Reading rows into a table, some hundreds in a transaction.
//!
//! A column that a line does not name gets its default, or the next number where the column counts; one that it says is null
//! is null where the column takes that. What the database refuses is told with its line. Rows of transactions before that
//! stay: a file may be longer than memory.

use std::io::{BufRead, BufReader, Read};

use serde_json::Value as Json;
use thermocline_engine::row::{EncodedRow, Layout, Value};
use thermocline_engine::{Database, Error, Table, TransactionOptions};

use crate::text::{from_field, from_json};
use crate::{ExchangeError, Format};

/// A transaction has no more rows than this, nor more bytes.
const ROWS: usize = 500;
const BYTES: usize = 1 << 20;

/// Reads rows into a table, one a line, and tells after each transaction how many are in. Gives how many there were.
///
/// # Errors
/// There is no such table; a line is none, or does not fit, which is told with its number and column. `told` has heard how
/// many rows are in then.
pub fn load(
    db: &Database,
    table: &str,
    format: Format,
    input: impl Read,
    told: &mut dyn FnMut(u64),
) -> Result<u64, ExchangeError> {
    let table = db.table(table)?;
    let mut rows = Rows { db, layout: table.layout(), table, waiting: Vec::new(), bytes: 0, rows: 0, told };
    match format {
        Format::Csv => read_csv(input, &mut rows)?,
        Format::Json => read_json(input, &mut rows)?,
    }
    rows.commit()?;
    Ok(rows.rows)
}

fn read_csv(input: impl Read, rows: &mut Rows<'_>) -> Result<(), ExchangeError> {
    let mut reader = csv::Reader::from_reader(input);
    let places = reader.headers().map_err(csv_error)?.iter().map(|name| rows.column(1, name));
    let places: Vec<usize> = places.collect::<Result<_, _>>()?;
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(csv_error)? {
        let line = record.position().map_or(0, csv::Position::line);
        let fields = places.iter().zip(&record);
        rows.add(line, fields.map(|(place, field)| (*place, field)), from_field)?;
    }
    Ok(())
}

fn csv_error(error: csv::Error) -> ExchangeError {
    let line = error.position().map_or(1, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(error) => ExchangeError::Io(error),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => ExchangeError::Line {
            line,
            reason: format!("it has {len} fields, where the first line names {expected_len} columns"),
        },
        csv::ErrorKind::Utf8 { err, .. } => {
            ExchangeError::Line { line, reason: format!("field {} is no UTF-8", err.field() + 1) }
        }
        kind => ExchangeError::Line { line, reason: format!("it is no CSV: {kind:?}") },
    }
}

fn read_json(input: impl Read, rows: &mut Rows<'_>) -> Result<(), ExchangeError> {
    for (text, line) in BufReader::new(input).lines().zip(1..) {
        let text = text?;
        if text.trim().is_empty() {
            continue;
        }
        let json: Json = serde_json::from_str(&text)
            .map_err(|error| ExchangeError::Line { line, reason: format!("it is no JSON: {error}") })?;
        let Json::Object(object) = json else {
            return Err(ExchangeError::Line { line, reason: "it is no JSON object".to_owned() });
        };
        let places = object.keys().map(|name| rows.column(line, name));
        let places: Vec<usize> = places.collect::<Result<_, _>>()?;
        rows.add(line, places.into_iter().zip(object.values()), from_json)?;
    }
    Ok(())
}

/// Rows on their way into a table.
struct Rows<'a> {
    db: &'a Database,
    table: Table,
    layout: std::sync::Arc<Layout>,
    /// With their lines.
    waiting: Vec<(u64, EncodedRow)>,
    bytes: usize,
    /// In the table.
    rows: u64,
    told: &'a mut dyn FnMut(u64),
}

impl Rows<'_> {
    fn column(&self, line: u64, name: &str) -> Result<usize, ExchangeError> {
        self.layout.column_index(name).map_err(|_| ExchangeError::Column {
            line,
            column: name.to_owned(),
            reason: format!("table {:?} has no such column", self.table.name()),
        })
    }

    fn add<F: Copy>(
        &mut self,
        line: u64,
        fields: impl Iterator<Item = (usize, F)>,
        value_of: impl Fn(F, thermocline_engine::row::Type) -> Result<Value, String>,
    ) -> Result<(), ExchangeError> {
        let columns = self.layout.columns();
        let mut values = vec![Value::Null; columns.len()];
        // Null because the line says so, where that is allowed.
        let mut nulls = Vec::new();
        for (place, field) in fields {
            let column = &columns[place];
            values[place] = value_of(field, column.ty).map_err(|reason| ExchangeError::Column {
                line,
                column: column.name.clone(),
                reason,
            })?;
            if values[place].is_null() && column.nullable {
                nulls.push(place);
            }
        }
        let row = self.encode(&values, &nulls).map_err(|source| ExchangeError::Row { line, source })?;
        self.bytes += row.len();
        self.waiting.push((line, row));
        if self.waiting.len() >= ROWS || self.bytes >= BYTES { self.commit() } else { Ok(()) }
    }

    /// The row. A null that was said does not become a default.
    fn encode(&self, values: &[Value], nulls: &[usize]) -> Result<EncodedRow, Error> {
        let mut row = EncodedRow::new();
        self.table.encode_values(values, &mut row)?;
        let filled = |place: &usize| !self.layout.is_null(&row, *place);
        if nulls.iter().any(filled) {
            let mut values = self.layout.decode(&row).map_err(|error| self.table.error(error))?;
            nulls.iter().for_each(|place| values[*place] = Value::Null);
            self.layout.encode_row(&values, &mut row).map_err(|error| self.table.error(error))?;
        }
        Ok(row)
    }

    fn commit(&mut self) -> Result<(), ExchangeError> {
        let (rows, table) = (&self.waiting, &self.table);
        let mut at = 0;
        let outcome = self.db.run(TransactionOptions::new(), async |transaction| {
            for (line, row) in rows {
                at = *line;
                transaction.insert(table, row).await?;
            }
            Ok(())
        });
        outcome.map_err(|source| ExchangeError::Row { line: at, source })?;
        self.rows += self.waiting.len() as u64;
        self.bytes = 0;
        self.waiting.clear();
        (self.told)(self.rows);
        Ok(())
    }
}
