//! COPY: rows as lines of text, in PostgreSQL's own format and as CSV.
//!
//! Rows come in pieces of any length. Whole lines are read into rows, which are inserted [`BATCH`] at a time; what is left waits
//! for the next piece. Errors say the line.

use std::sync::Arc;

use super::dispatch::check_open;
use super::{Answer, Prepared, Session};
use crate::bind::Binder;

use crate::catalog::{Catalog, Table};
use crate::error::{Error, Result};
use crate::expr::pace::Pace;
use crate::expr::{Context, Env, Expr};
use crate::parser::ast::{Copy, CopyOptions, Statement};
use crate::plan::{Bound, BoundInsert, Plan};
use crate::types::{Column, Datum, Zone, text};

/// Rows that are inserted together.
const BATCH: usize = 1000;
/// Bytes of rows that are inserted together, about.
const BATCH_BYTES: usize = 1 << 20;
/// Longest line, in bytes: as long as a row may be, and its escapes.
const LINE_BYTES: usize = 4 << 20;

/// Which way a statement copies.
#[derive(Clone, Debug)]
pub enum Copying {
    /// The client sends rows of so many columns.
    In(usize),
    /// The client gets rows.
    Out(CopyFormat),
}

/// The look of rows as text.
#[derive(Clone, Debug)]
pub struct CopyFormat(CopyOptions);

/// Rows on their way into a table.
#[derive(Debug)]
pub struct CopyIn {
    table: Arc<Table>,
    /// Columns of the table, in the order of the lines.
    targets: Vec<usize>,
    options: CopyOptions,
    /// The values of columns that the lines do not have.
    defaults: Vec<Expr>,
    checks: Vec<(String, Expr)>,
    /// Rows that were read and not inserted.
    batch: Vec<Vec<Datum>>,
    batch_bytes: usize,
    /// The line of the first of them.
    batch_line: u64,
    left: Vec<u8>,
    /// Lines that were read.
    line: u64,
    count: u64,
    /// `\.` was read, or an error found: what follows means nothing.
    ended: bool,
    /// When it has let others have a turn.
    pace: Pace,
}

impl Prepared {
    /// Is it a COPY, and which way?
    #[must_use]
    pub fn copying(&self) -> Option<Copying> {
        match &self.statement.statement {
            Statement::Copy(Copy::In { .. }) => Some(Copying::In(self.copied_columns)),
            Statement::Copy(Copy::Out(_, options)) => Some(Copying::Out(CopyFormat(options.clone()))),
            _ => None,
        }
    }
}

impl CopyFormat {
    /// The line with the names of the columns, if one is wanted.
    pub fn header(&self, columns: &[Column], out: &mut Vec<u8>) {
        if self.0.header {
            for (place, column) in columns.iter().enumerate() {
                self.field(place, Some(&column.name), out);
            }
            out.push(b'\n');
        }
    }

    /// Writes a row and the end of its line; times with a zone as `zone` shows them.
    pub fn line(
        &self,
        columns: &[Column],
        row: &[Datum],
        zone: &Zone,
        scratch: &mut String,
        out: &mut Vec<u8>,
    ) {
        for (place, (column, value)) in columns.iter().zip(row).enumerate() {
            scratch.clear();
            column.write_text(value, zone, scratch);
            self.field(place, (!value.is_null()).then_some(&**scratch), out);
        }
        out.push(b'\n');
    }

    fn field(&self, place: usize, value: Option<&str>, out: &mut Vec<u8>) {
        let options = &self.0;
        if place > 0 {
            out.push(options.delimiter);
        }
        let Some(value) = value else { return out.extend(options.null.bytes()) };
        if options.csv {
            let special = |byte: u8| {
                byte == options.delimiter || byte == options.quote || matches!(byte, b'\n' | b'\r')
            };
            if value != options.null && !value.bytes().any(special) && value != "\\." {
                return out.extend(value.bytes());
            }
            out.push(options.quote);
            for byte in value.bytes() {
                if byte == options.quote || byte == options.escape {
                    out.push(options.escape);
                }
                out.push(byte);
            }
            return out.push(options.quote);
        }
        for byte in value.bytes() {
            match byte {
                b'\\' => out.extend(b"\\\\"),
                b'\n' => out.extend(b"\\n"),
                b'\r' => out.extend(b"\\r"),
                b'\t' => out.extend(b"\\t"),
                0x08 => out.extend(b"\\b"),
                0x0b => out.extend(b"\\v"),
                0x0c => out.extend(b"\\f"),
                byte if byte == options.delimiter => out.extend([b'\\', byte]),
                byte => out.push(byte),
            }
        }
    }
}

impl Session {
    /// Columns that rows of a COPY FROM have, and which of the table they are.
    fn copy_targets(&self, statement: &Statement) -> Result<(Arc<Table>, Vec<usize>)> {
        let Statement::Copy(Copy::In { table: name, columns, .. }) = statement else {
            unreachable!("only COPY FROM has targets")
        };
        let catalog = self.catalog();
        let table = self.found(name).and_then(|full| catalog.table(&full));
        let table = table.ok_or_else(|| {
            Error::new("42P01", format!("relation \"{}\" does not exist", name.name)).at(name.at)
        })?;
        let mut targets = Vec::new();
        for (column, at) in columns {
            let place = table.columns.iter().position(|other| other.name == *column && !other.hidden);
            let place = place.ok_or_else(|| {
                let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
                Error::new("42703", message).at(*at)
            })?;
            if targets.contains(&place) {
                return Err(
                    Error::new("42701", format!("column \"{column}\" specified more than once")).at(*at)
                );
            }
            targets.push(place);
        }
        if columns.is_empty() {
            targets = (0..table.columns.len()).filter(|column| !table.columns[*column].hidden).collect();
        }
        Ok((table, targets))
    }

    /// Describes a COPY: its table or query is looked at.
    pub(super) fn describe_copy(&mut self, prepared: &mut Prepared) -> Result<()> {
        match &prepared.statement.statement {
            Statement::Copy(Copy::Out(..)) => {}
            statement => prepared.copied_columns = self.copy_targets(statement)?.1.len(),
        }
        Ok(())
    }

    /// Begins a COPY FROM; a transaction is opened round it if there is none.
    ///
    /// # Errors
    /// A table or column that is not there; a transaction that only reads (25006).
    pub fn copy_begin(&mut self, prepared: &Prepared) -> Result<CopyIn> {
        self.note_begin(&prepared.text);
        check_open(self)?;
        self.begin_implicit()?;
        self.limit_waits()?;
        let Statement::Copy(Copy::In { options, .. }) = &prepared.statement.statement else {
            return Err(Error::new("55000", "the statement is no COPY FROM"));
        };
        if self.only_reads() {
            return Err(
                self.failed(Error::new("25006", "cannot execute COPY FROM in a read-only transaction"))
            );
        }
        let (table, targets) =
            self.copy_targets(&prepared.statement.statement).map_err(|error| self.failed(error))?;
        let catalog = self.catalog();
        let mut binder = Binder::new(&catalog, Vec::new(), self.local());
        let defaults = (0..table.columns.len()).map(|column| binder.default_of(&table, column));
        let rules =
            defaults.collect::<Result<Vec<_>>>().and_then(|defaults| Ok((defaults, binder.checks(&table)?)));
        let (mut defaults, checks) = rules.map_err(|error| self.failed(error))?;
        targets.iter().for_each(|target| defaults[*target] = Expr::Const(Datum::Null));
        let options = options.clone();
        Ok(CopyIn {
            table,
            targets,
            options,
            defaults,
            checks,
            batch: Vec::new(),
            batch_bytes: 0,
            batch_line: 0,
            left: Vec::new(),
            line: 0,
            count: 0,
            ended: false,
            pace: Pace::new(self.give_way),
        })
    }

    /// Takes the next piece of the rows.
    ///
    /// # Errors
    /// A line that is no row, with its number; what an INSERT would be refused for.
    pub async fn copy_data(&mut self, copy: &mut CopyIn, bytes: &[u8]) -> Result<()> {
        if copy.ended {
            return Ok(());
        }
        copy.left.extend(bytes);
        let taken = self.copy_lines(copy, false).await;
        self.copied(copy, taken)
    }

    /// Ends a COPY FROM: a last line without its end counts.
    ///
    /// # Errors
    /// As [`Session::copy_data`].
    pub async fn copy_end(&mut self, mut copy: CopyIn) -> Result<Answer> {
        let taken = if copy.ended { Ok(()) } else { self.copy_lines(&mut copy, true).await };
        self.copied(&mut copy, taken)?;
        Ok(Answer { count: copy.count, ..Answer::tagged(&format!("COPY {}", copy.count)) })
    }

    fn copied(&mut self, copy: &mut CopyIn, taken: Result<()>) -> Result<()> {
        taken.map_err(|error| {
            copy.ended = true;
            let row = error.about.as_ref().and_then(|about| about.row);
            let line = row.map_or(copy.line, |row| copy.batch_line + row as u64);
            let place = || format!("COPY {}, line {line}", copy.table.name);
            self.failed(error.context(place))
        })
    }

    /// Reads all whole lines, and inserts their rows as soon as there are many.
    async fn copy_lines(&mut self, copy: &mut CopyIn, last: bool) -> Result<()> {
        let mut context = Context { pace: std::mem::take(&mut copy.pace), ..self.own_context() };
        let taken = self.copy_lines_with(copy, last, &context).await;
        copy.pace = std::mem::take(&mut context.pace);
        taken
    }

    async fn copy_lines_with(&mut self, copy: &mut CopyIn, last: bool, context: &Context) -> Result<()> {
        let left = std::mem::take(&mut copy.left);
        let mut rest = &left[..];
        while let Some((line, after)) = next_line(rest, &copy.options, last)? {
            copy.line += 1;
            rest = after;
            match line {
                Line::End => {
                    copy.ended = true;
                    break;
                }
                Line::Row(_) if copy.options.header && copy.line == 1 => continue,
                Line::Row(line) => {
                    let row = row(copy, line, context)?;
                    if copy.batch.is_empty() {
                        copy.batch_line = copy.line;
                    }
                    copy.batch_bytes += crate::expr::memory::size_of_row(&row);
                    copy.batch.push(row);
                }
            }
            if copy.batch.len() == BATCH || copy.batch_bytes > BATCH_BYTES {
                self.copy_batch(copy, context).await?;
            }
            if context.is_due() {
                context.pause().await?;
            }
        }
        if rest.len() > LINE_BYTES {
            return Err(Error::new("54000", format!("a line is longer than {LINE_BYTES} bytes")));
        }
        // Rows of the next piece come to those that wait; nothing comes behind the last one.
        let done = left.len() - rest.len();
        copy.left = left;
        copy.left.drain(..done);
        if last || copy.ended {
            self.copy_batch(copy, context).await?;
        }
        Ok(())
    }

    async fn copy_batch(&mut self, copy: &mut CopyIn, context: &Context) -> Result<()> {
        if copy.batch.is_empty() {
            return Ok(());
        }
        copy.batch_bytes = 0;
        let mut given = vec![false; copy.table.columns.len()];
        copy.targets.iter().for_each(|target| given[*target] = true);
        let insert = BoundInsert {
            table: copy.table.clone(),
            plan: Plan::Made(std::mem::take(&mut copy.batch)),
            given,
            checks: copy.checks.clone(),
            conflict: None,
            returning: None,
        };
        let bound = Bound::Insert(Box::new(insert));
        self.take_snapshot()?;
        let open =
            self.open.as_mut().ok_or_else(|| Error::new("25P01", "the transaction of the COPY has ended"))?;
        open.fresh = false;
        copy.count += self.run_tree(&bound, context, &mut Vec::new()).await?;
        Ok(())
    }
}

/// A row of the table from a line.
fn row(copy: &CopyIn, line: &str, context: &Context) -> Result<Vec<Datum>> {
    let env = Env { row: &[], outer: &[], context };
    let mut row = Vec::with_capacity(copy.defaults.len());
    for default in &copy.defaults {
        row.push(default.eval(&env)?);
    }
    let mut targets = copy.targets.iter();
    // Fields that are too many are told of first.
    let mut failed = None;
    let mut take = |field: Option<&str>| {
        let Some(target) = targets.next() else {
            return Err(Error::new("22P04", "extra data after last expected column"));
        };
        let Some(field) = field.filter(|_| failed.is_none()) else { return Ok(()) };
        let column = &copy.table.columns[*target];
        match text::input(field, column.ty, column.modifier, &context.local) {
            Ok(value) => row[*target] = value,
            Err(error) => {
                let (table, line, name) = (&copy.table.name, copy.line, &column.name);
                failed =
                    Some(error.context(|| format!("COPY {table}, line {line}, column {name}: \"{field}\"")));
            }
        }
        Ok(())
    };
    if copy.options.csv {
        csv_fields(line, &copy.options, &mut take)?;
    } else {
        text_fields(line, &copy.options, &mut take)?;
    }
    match (failed, targets.next()) {
        (Some(error), _) => Err(error),
        (None, Some(missing)) => {
            let name = &copy.table.columns[*missing].name;
            Err(Error::new("22P04", format!("missing data for column \"{name}\"")))
        }
        (None, None) => Ok(row),
    }
}

/// Takes the fields of a line, one after the other; none is null.
type Take<'t> = &'t mut dyn FnMut(Option<&str>) -> Result<()>;

enum Line<'l> {
    Row(&'l str),
    /// `\.`
    End,
}

/// The next whole line, and what stands behind it. The `last` line needs no end.
fn next_line<'b>(bytes: &'b [u8], options: &CopyOptions, last: bool) -> Result<Option<(Line<'b>, &'b [u8])>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let end =
        if options.csv { csv_end(bytes, options) } else { bytes.iter().position(|byte| *byte == b'\n') };
    let (line, rest) = match end {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None if last => (bytes, &bytes[bytes.len()..]),
        None => return Ok(None),
    };
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = std::str::from_utf8(line)
        .ok()
        .filter(|text| !text.contains('\0'))
        .ok_or_else(|| Error::new("22021", "invalid byte sequence for encoding \"UTF8\""))?;
    if text == "\\." {
        return Ok(Some((Line::End, rest)));
    }
    Ok(Some((Line::Row(text), rest)))
}

/// Where the line ends: a line end within quotes does not count.
fn csv_end(bytes: &[u8], options: &CopyOptions) -> Option<usize> {
    let mut quoted = false;
    let mut place = 0;
    while place < bytes.len() {
        let byte = bytes[place];
        if quoted && byte == options.escape && options.escape != options.quote {
            place += 1;
        } else if byte == options.quote {
            quoted = !quoted;
        } else if byte == b'\n' && !quoted {
            return Some(place);
        }
        place += 1;
    }
    None
}

fn csv_fields(line: &str, options: &CopyOptions, take: Take<'_>) -> Result<()> {
    let (delimiter, quote, escape) =
        (char::from(options.delimiter), char::from(options.quote), char::from(options.escape));
    let mut signs = line.chars().peekable();
    loop {
        let (mut field, mut inside, mut was_quoted) = (String::new(), false, false);
        let more = loop {
            match signs.next() {
                None if inside => return Err(Error::new("22P04", "unterminated CSV quoted field")),
                None => break false,
                Some(sign) if inside => {
                    if sign == escape && signs.peek().is_some_and(|next| *next == quote || *next == escape) {
                        field.extend(signs.next());
                    } else if sign == quote {
                        inside = false;
                    } else {
                        field.push(sign);
                    }
                }
                Some(sign) if sign == delimiter => break true,
                Some(sign) if sign == quote => {
                    inside = true;
                    was_quoted = true;
                }
                Some(sign) => field.push(sign),
            }
        };
        let is_null = !was_quoted && field == options.null;
        take((!is_null).then_some(&*field))?;
        if !more {
            return Ok(());
        }
    }
}

fn text_fields(line: &str, options: &CopyOptions, take: Take<'_>) -> Result<()> {
    if !line.contains('\\') {
        let mut fields = line.split(char::from(options.delimiter));
        return fields.try_for_each(|field| take((field != options.null).then_some(field)));
    }
    let mut rest = line;
    loop {
        let (mut end, mut escaped) = (rest.len(), false);
        for (place, byte) in rest.bytes().enumerate() {
            if escaped {
                escaped = false;
            } else if byte == b'\\' {
                escaped = true;
            } else if byte == options.delimiter {
                end = place;
                break;
            }
        }
        let raw = &rest[..end];
        if raw == options.null {
            take(None)?;
        } else {
            take(Some(&unescaped(raw)?))?;
        }
        if end == rest.len() {
            return Ok(());
        }
        rest = &rest[end + 1..];
    }
}

/// Text without the escapes of COPY.
fn unescaped(raw: &str) -> Result<String> {
    if !raw.contains('\\') {
        return Ok(raw.to_owned());
    }
    let bytes = raw.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut place = 0;
    while place < bytes.len() {
        if bytes[place] != b'\\' || place + 1 == bytes.len() {
            out.push(bytes[place]);
            place += 1;
            continue;
        }
        let sign = bytes[place + 1];
        place += 2;
        let number = |from: usize, most: usize, radix: u32| {
            let digits =
                bytes[from..].iter().take(most).take_while(|byte| char::from(**byte).is_digit(radix)).count();
            let text = std::str::from_utf8(&bytes[from..from + digits]).unwrap_or("");
            (u32::from_str_radix(text, radix).ok(), digits)
        };
        match sign {
            b'b' => out.push(0x08),
            b'f' => out.push(0x0c),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(0x0b),
            b'0'..=b'7' => {
                let (value, digits) = number(place - 1, 3, 8);
                out.push(value.unwrap_or(0) as u8);
                place += digits - 1;
            }
            b'x' => match number(place, 2, 16) {
                (Some(value), digits) => {
                    out.push(value as u8);
                    place += digits;
                }
                (None, _) => out.push(b'x'),
            },
            other => out.push(other),
        }
    }
    String::from_utf8(out).map_err(|_| Error::new("22021", "invalid byte sequence for encoding \"UTF8\""))
}
