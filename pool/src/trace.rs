//! Requests of a trace, and the binary format in which they are captured.
//!
//! ```text
//!   header    0  magic "thcltrce"      8  format, 1     12  bytes of a page    16  pages of an extent    20  0
//!             24 CRC-32C of 0..24      28 0
//!   block     0  records n             4  CRC-32C of the records, started from the block's number
//!             8  n records of 28 bytes: page 8, version 8, microseconds of thought 4, stream 2, kind 1, told 1, 0 ×4
//!   end       0  0                     4  CRC-32C of the 8 bytes that follow    8  requests of all blocks
//! ```
//!
//! All numbers little-endian. A file without an end was cut off; that is said when its last block was given out. The *version*
//! is that of the page which was read, 0 where none is known; the simulator does not look at it.

use std::fmt;
use std::io::{Read, Write};

use thermocline_base::checksum::{crc32c, crc32c_append};

use crate::cache::Told;

/// The kind of a request for a page above the level that is simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TraceKind {
    /// It is read.
    Read = 0,
    /// It is changed, and read before that.
    Write = 1,
    /// It is freed.
    Free = 2,
    /// It is written without having been read.
    Create = 3,
}

/// A request of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceRequest {
    /// Which page.
    pub page: u64,
    /// Which of its versions, or 0.
    pub version: u64,
    /// Processor time before the request, in microseconds.
    pub think_us: u32,
    /// Whose request it is.
    pub stream: u16,
    /// Its kind.
    pub kind: TraceKind,
    /// The reader's knowledge of its pages.
    pub told: Told,
}

impl TraceRequest {
    /// A request of stream 0 that nothing else is known of.
    #[must_use]
    pub const fn new(page: u64, kind: TraceKind) -> Self {
        Self { page, version: 0, think_us: 0, stream: 0, kind, told: Told::Nothing }
    }
}

/// Why a trace cannot be read.
#[derive(Debug)]
pub enum TraceError {
    /// The file system's error.
    Io(std::io::Error),
    /// It is no trace of the kind that was expected.
    Foreign(String),
    /// It is of a later format.
    Newer(u32),
    /// It ends too early.
    Cut(String),
    /// A part does not check out.
    Damaged(String),
    /// A line is wrong.
    Line {
        /// Its number, from 1.
        line: u64,
        /// The fault.
        what: String,
    },
    /// The requests are more than the policy can take.
    TooLong(String),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot read the trace: {error}"),
            Self::Foreign(what) => write!(f, "no trace that can be read: {what}"),
            Self::Newer(format) => {
                write!(f, "the trace is of format {format}, this version reads 1: use a newer thermocline")
            }
            Self::Cut(what) => write!(f, "the trace is truncated: {what}; capture or copy it again"),
            Self::Damaged(what) => write!(f, "the trace is damaged: {what}; capture or copy it again"),
            Self::Line { line, what } => write!(f, "line {line} of the trace: {what}"),
            Self::TooLong(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for TraceError {}

impl From<std::io::Error> for TraceError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Self::Cut("it ends in the middle of something".to_owned()),
            _ => Self::Io(error),
        }
    }
}

/// The result of reading a trace.
pub type Result<T> = std::result::Result<T, TraceError>;

/// Requests, one batch after the other.
pub trait TraceSource: Send {
    /// Adds the next requests to `batch`; `false` if there are none any more.
    ///
    /// # Errors
    /// What is wrong with the trace; the requests before that have been given out.
    fn next_batch(&mut self, batch: &mut Vec<TraceRequest>) -> Result<bool>;

    /// The length of its pages, if it has one of its own.
    fn page_bytes(&self) -> Option<u32> {
        None
    }
}

/// Requests that are in memory.
impl TraceSource for std::vec::IntoIter<TraceRequest> {
    fn next_batch(&mut self, batch: &mut Vec<TraceRequest>) -> Result<bool> {
        let before = batch.len();
        batch.extend(self.by_ref().take(BATCH));
        Ok(batch.len() > before)
    }
}

/// Requests that are given out at once, about.
pub const BATCH: usize = 16_384;

/// The first bytes of a file of our own format.
pub const MAGIC: [u8; 8] = *b"thcltrce";
const FORMAT: u32 = 1;
const HEADER: usize = 32;
const RECORD: usize = 28;
const BLOCK_RECORDS: usize = 4096;
const BLOCK_RECORDS_MOST: usize = 1 << 20;

/// Writes a trace in our own format.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    to: W,
    records: Vec<u8>,
    blocks: u64,
    requests: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace of pages of one length.
    ///
    /// # Errors
    /// The writer's.
    pub fn new(mut to: W, page_bytes: u32, extent_pages: u32) -> std::io::Result<Self> {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        header[12..16].copy_from_slice(&page_bytes.to_le_bytes());
        header[16..20].copy_from_slice(&extent_pages.to_le_bytes());
        let sum = crc32c(&header[..24]);
        header[24..28].copy_from_slice(&sum.to_le_bytes());
        to.write_all(&header)?;
        Ok(Self { to, records: Vec::with_capacity(BLOCK_RECORDS * RECORD), blocks: 0, requests: 0 })
    }

    /// Adds a request.
    ///
    /// # Errors
    /// The writer's.
    pub fn push(&mut self, request: &TraceRequest) -> std::io::Result<()> {
        let mut record = [0; RECORD];
        record[..8].copy_from_slice(&request.page.to_le_bytes());
        record[8..16].copy_from_slice(&request.version.to_le_bytes());
        record[16..20].copy_from_slice(&request.think_us.to_le_bytes());
        record[20..22].copy_from_slice(&request.stream.to_le_bytes());
        (record[22], record[23]) = (request.kind as u8, request.told as u8);
        self.records.extend_from_slice(&record);
        self.requests += 1;
        if self.records.len() >= BLOCK_RECORDS * RECORD { self.write_block() } else { Ok(()) }
    }

    fn write_block(&mut self) -> std::io::Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        self.to.write_all(&((self.records.len() / RECORD) as u32).to_le_bytes())?;
        self.to.write_all(&sum_of(self.blocks, &self.records).to_le_bytes())?;
        self.to.write_all(&self.records)?;
        self.records.clear();
        self.blocks += 1;
        Ok(())
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// The writer's.
    pub fn finish(mut self) -> std::io::Result<W> {
        self.write_block()?;
        let requests = self.requests.to_le_bytes();
        self.to.write_all(&0_u32.to_le_bytes())?;
        self.to.write_all(&crc32c(&requests).to_le_bytes())?;
        self.to.write_all(&requests)?;
        self.to.flush()?;
        Ok(self.to)
    }
}

fn sum_of(block: u64, records: &[u8]) -> u32 {
    crc32c_append(crc32c(&block.to_le_bytes()), records)
}

/// Reads a trace in our own format.
pub struct TraceReader<R> {
    from: R,
    page_bytes: u32,
    blocks: u64,
    requests: u64,
    ended: bool,
    records: Vec<u8>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

impl<R: Read> TraceReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When it is none, or that of a later format.
    pub fn new(mut from: R) -> Result<Self> {
        let mut header = [0; HEADER];
        from.read_exact(&mut header)
            .map_err(|_| TraceError::Cut("it is shorter than its header".to_owned()))?;
        if header[..8] != MAGIC {
            return Err(TraceError::Foreign("it does not begin as ours do".to_owned()));
        }
        match u32_at(&header, 8) {
            FORMAT => {}
            newer if newer > FORMAT => return Err(TraceError::Newer(newer)),
            other => return Err(TraceError::Damaged(format!("format {other}"))),
        }
        if crc32c(&header[..24]) != u32_at(&header, 24) {
            return Err(TraceError::Damaged("its header does not check out".to_owned()));
        }
        let page_bytes = u32_at(&header, 12);
        Ok(Self { from, page_bytes, blocks: 0, requests: 0, ended: false, records: Vec::new() })
    }

    fn read_end(&mut self, sum: u32) -> Result<()> {
        let mut requests = [0; 8];
        self.from.read_exact(&mut requests)?;
        if crc32c(&requests) != sum {
            return Err(TraceError::Damaged("its end does not check out".to_owned()));
        }
        let told = u64::from_le_bytes(requests);
        if told != self.requests {
            let read = self.requests;
            return Err(TraceError::Damaged(format!("it has {read} requests and says {told}")));
        }
        self.ended = true;
        Ok(())
    }
}

impl<R: Read + Send> TraceSource for TraceReader<R> {
    fn next_batch(&mut self, batch: &mut Vec<TraceRequest>) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let cut = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => TraceError::Cut("it has no end".to_owned()),
            _ => TraceError::Io(error),
        };
        let mut head = [0; 8];
        self.from.read_exact(&mut head).map_err(cut)?;
        let (count, sum) = (u32_at(&head, 0) as usize, u32_at(&head, 4));
        if count == 0 {
            self.read_end(sum)?;
            return Ok(false);
        }
        let block = self.blocks;
        if count > BLOCK_RECORDS_MOST {
            return Err(TraceError::Damaged(format!("block {block} has {count} records")));
        }
        self.records.resize(count * RECORD, 0);
        self.from.read_exact(&mut self.records).map_err(cut)?;
        if sum_of(block, &self.records) != sum {
            return Err(TraceError::Damaged(format!("block {block} does not check out")));
        }
        for record in self.records.chunks_exact(RECORD) {
            batch.push(decoded(record).ok_or_else(|| {
                TraceError::Damaged(format!("block {block} has a record of an unknown kind"))
            })?);
        }
        self.blocks += 1;
        self.requests += count as u64;
        Ok(true)
    }

    fn page_bytes(&self) -> Option<u32> {
        Some(self.page_bytes)
    }
}

fn decoded(record: &[u8]) -> Option<TraceRequest> {
    let kind = match record[22] {
        0 => TraceKind::Read,
        1 => TraceKind::Write,
        2 => TraceKind::Free,
        3 => TraceKind::Create,
        _ => return None,
    };
    let told = match record[23] {
        0 => Told::Nothing,
        1 => Told::Sequential,
        2 => Told::Random,
        _ => return None,
    };
    Some(TraceRequest {
        page: u64_at(record, 0),
        version: u64_at(record, 8),
        think_us: u32_at(record, 16),
        stream: u16::from_le_bytes([record[20], record[21]]),
        kind,
        told,
    })
}
