//! Writing the rows of a table, as one moment had them.

use std::io::Write;
use std::ops::ControlFlow;

use serde_json::{Map, Value as Json};
use thermocline_engine::{Database, Isolation, TransactionOptions};

use crate::text::{to_field, to_json};
use crate::{ExchangeError, Format};

/// Writes all rows of a table, one a line. Gives how many there were.
///
/// # Errors
/// There is no such table, rows cannot be read, or the text cannot be written.
pub fn dump(db: &Database, table: &str, format: Format, out: impl Write) -> Result<u64, ExchangeError> {
    let table = db.table(table)?;
    let layout = table.layout();
    let names: Vec<&str> = layout.columns().iter().map(|column| column.name.as_str()).collect();
    let mut lines = Lines::new(out, format, &names)?;
    let mut outcome = Ok(0_u64);
    // One snapshot, and no second try: lines that were written cannot be taken back.
    let options = TransactionOptions::new().isolation(Isolation::Snapshot).read_only();
    let mut transaction = db.begin(options)?;
    let scan = transaction.scan_table(&table, |row| {
        let values = layout.decode(row).map_err(|error| table.error(error).into());
        let written = values.and_then(|values| lines.write(&names, &values));
        match (&mut outcome, written) {
            (Ok(rows), Ok(())) => {
                *rows += 1;
                ControlFlow::Continue(())
            }
            (_, Err(error)) => {
                outcome = Err(error);
                ControlFlow::Break(())
            }
            (Err(_), Ok(())) => ControlFlow::Break(()),
        }
    });
    thermocline_engine::block_on(scan)?;
    thermocline_engine::block_on(transaction.commit())?;
    lines.end()?;
    outcome
}

/// Where rows go.
enum Lines<W: Write> {
    Csv(Box<csv::Writer<W>>),
    Json(std::io::BufWriter<W>),
}

impl<W: Write> Lines<W> {
    fn new(out: W, format: Format, names: &[&str]) -> Result<Self, ExchangeError> {
        Ok(match format {
            Format::Csv => {
                let mut writer = csv::Writer::from_writer(out);
                writer.write_record(names).map_err(failed)?;
                Self::Csv(Box::new(writer))
            }
            Format::Json => Self::Json(std::io::BufWriter::new(out)),
        })
    }

    fn write(
        &mut self,
        names: &[&str],
        values: &[thermocline_engine::row::Value],
    ) -> Result<(), ExchangeError> {
        match self {
            Self::Csv(writer) => writer.write_record(values.iter().map(to_field)).map_err(failed),
            Self::Json(writer) => {
                let pairs =
                    names.iter().zip(values).map(|(name, value)| ((*name).to_owned(), to_json(value)));
                let object = Json::Object(pairs.collect::<Map<_, _>>());
                Ok(writeln!(writer, "{object}")?)
            }
        }
    }

    fn end(self) -> Result<(), ExchangeError> {
        match self {
            Self::Csv(mut writer) => Ok(writer.flush()?),
            Self::Json(mut writer) => Ok(writer.flush()?),
        }
    }
}

fn failed(error: csv::Error) -> ExchangeError {
    ExchangeError::Io(error.into())
}
