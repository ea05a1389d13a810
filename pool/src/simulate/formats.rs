//! Traces of others: comma-separated values, MSR Cambridge's, and `oracleGeneral`.
//!
//! | format | a request | becomes |
//! |---|---|---|
//! | CSV | `page[,kind[,stream]]`, kind one of `r w f c` or `read write free create`; a first line of words is a heading | itself |
//! | MSR Cambridge (Narayanan, Donnelly and Rowstron, FAST 2008) | `timestamp,host,disk,Read or Write,offset,bytes,response time` | each page that its bytes touch; disk n counts from n × 2^40 |
//! | `oracleGeneral` (libCacheSim) | 24 bytes: seconds u32, object u64, bytes u32, next access i64 | a read of one page, whatever the object's length |
//!
//! A write of MSR's covers its pages or not; both count as [`TraceKind::Create`]: below a file system nothing is read first.

use std::io::{BufRead, BufReader, Read};

use crate::cache::Told;
use crate::trace::{BATCH, Result, TraceError, TraceKind, TraceRequest, TraceSource};

/// Pages of one disk of MSR's.
const DISK_PAGES: u64 = 1 << 40;

/// Lines of one of the two text formats.
struct Lines<R> {
    from: BufReader<R>,
    text: String,
    line: u64,
}

impl<R: Read> Lines<R> {
    fn new(from: R) -> Self {
        Self { from: BufReader::with_capacity(1 << 18, from), text: String::new(), line: 0 }
    }

    /// The next line that is not empty.
    fn next(&mut self) -> Result<Option<&str>> {
        loop {
            self.text.clear();
            self.line += 1;
            match self.from.read_line(&mut self.text) {
                Ok(0) => return Ok(None),
                Ok(_) if self.text.trim().is_empty() => {}
                Ok(_) => return Ok(Some(self.text.trim())),
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    return Err(TraceError::Foreign("it is no text".to_owned()));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Reads comma-separated values.
pub struct CsvReader<R>(Lines<R>);

impl<R: Read> CsvReader<R> {
    /// Of a text.
    pub fn new(from: R) -> Self {
        Self(Lines::new(from))
    }
}

fn csv_request(text: &str) -> std::result::Result<TraceRequest, String> {
    let mut fields = text.split(',').map(str::trim);
    let page = fields.next().unwrap_or_default();
    let page = page.parse().map_err(|_| format!("{page:?} is no page number"))?;
    let kind = match fields.next().unwrap_or("r").to_ascii_lowercase().as_str() {
        "r" | "read" | "" => TraceKind::Read,
        "w" | "write" => TraceKind::Write,
        "f" | "free" => TraceKind::Free,
        "c" | "create" => TraceKind::Create,
        other => return Err(format!("{other:?} is none of read, write, free, create")),
    };
    let stream = fields.next().unwrap_or("0");
    let stream = stream.parse().map_err(|_| format!("{stream:?} is no stream from 0 to 65535"))?;
    match fields.next() {
        None => Ok(TraceRequest { stream, ..TraceRequest::new(page, kind) }),
        Some(_) => Err("more than page, kind and stream".to_owned()),
    }
}

impl<R: Read + Send> TraceSource for CsvReader<R> {
    fn next_batch(&mut self, batch: &mut Vec<TraceRequest>) -> Result<bool> {
        let before = batch.len();
        while batch.len() < before + BATCH {
            let Some(text) = self.0.next()? else { break };
            let is_heading = text.starts_with(|first: char| first.is_alphabetic());
            match csv_request(text) {
                Ok(request) => batch.push(request),
                Err(_) if is_heading && self.0.line == 1 => {}
                Err(what) => return Err(TraceError::Line { line: self.0.line, what }),
            }
        }
        Ok(batch.len() > before)
    }
}

/// Reads MSR Cambridge's lines.
pub struct MsrReader<R> {
    lines: Lines<R>,
    page_bytes: u64,
}

impl<R: Read> MsrReader<R> {
    /// Of a text; offsets become pages of so many bytes.
    pub fn new(from: R, page_bytes: u32) -> Self {
        Self { lines: Lines::new(from), page_bytes: u64::from(page_bytes.max(1)) }
    }
}

/// Is this a line of MSR's?
#[must_use]
pub fn is_msr(line: &str) -> bool {
    msr_request(line, 4096).is_ok()
}

fn msr_request(text: &str, page_bytes: u64) -> std::result::Result<(u64, u64, TraceKind, u16), String> {
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    let [_, _, disk, kind, offset, bytes, _] = fields[..] else {
        return Err(format!("{} fields instead of seven", fields.len()));
    };
    let number = |what: &str, text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is no {what}"));
    let (disk, offset, bytes) = (number("disk", disk)?, number("offset", offset)?, number("length", bytes)?);
    let kind = match kind.to_ascii_lowercase().as_str() {
        "read" => TraceKind::Read,
        "write" => TraceKind::Create,
        other => return Err(format!("{other:?} is neither Read nor Write")),
    };
    let stream = u16::try_from(disk).map_err(|_| format!("disk {disk} is too large a number"))?;
    let end = offset.checked_add(bytes.max(1)).ok_or("offset and length are too large")?;
    let (first, last) = (offset / page_bytes, (end - 1) / page_bytes);
    if last >= DISK_PAGES || last - first > 1 << 20 {
        return Err(format!("{bytes} bytes at {offset} are too many or too far"));
    }
    Ok((disk * DISK_PAGES + first, last - first + 1, kind, stream))
}

impl<R: Read + Send> TraceSource for MsrReader<R> {
    fn next_batch(&mut self, batch: &mut Vec<TraceRequest>) -> Result<bool> {
        let before = batch.len();
        while batch.len() < before + BATCH {
            let Some(text) = self.lines.next()? else { break };
            let request = msr_request(text, self.page_bytes);
            let (first, pages, kind, stream) =
                request.map_err(|what| TraceError::Line { line: self.lines.line, what })?;
            let of = |page| TraceRequest { stream, ..TraceRequest::new(page, kind) };
            batch.extend((first..first + pages).map(of));
        }
        Ok(batch.len() > before)
    }
}

/// Reads libCacheSim's `oracleGeneral`.
pub struct OracleReader<R>(R, Vec<u8>);

const ORACLE_RECORD: usize = 24;

impl<R: Read> OracleReader<R> {
    /// Of its records.
    pub fn new(from: R) -> Self {
        Self(from, Vec::new())
    }
}

impl<R: Read + Send> TraceSource for OracleReader<R> {
    fn next_batch(&mut self, batch: &mut Vec<TraceRequest>) -> Result<bool> {
        self.1.clear();
        let most = (BATCH * ORACLE_RECORD) as u64;
        self.0.by_ref().take(most).read_to_end(&mut self.1)?;
        let (records, rest) = self.1.as_chunks::<ORACLE_RECORD>();
        batch.extend(records.iter().map(|record| {
            let page = u64::from_le_bytes(std::array::from_fn(|byte| record[4 + byte]));
            TraceRequest { told: Told::Nothing, ..TraceRequest::new(page, TraceKind::Read) }
        }));
        match rest.len() {
            0 => Ok(!records.is_empty()),
            rest => Err(TraceError::Cut(format!("its last record has {rest} of {ORACLE_RECORD} bytes"))),
        }
    }
}
