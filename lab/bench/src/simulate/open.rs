//! Opens a trace: what it is packed in and which format it has is seen from its first bytes.
//!
//! | first bytes | is |
//! |---|---|
//! | `1f 8b` | gzip, whatever is within |
//! | `28 b5 2f fd` | zstd, whatever is within; several frames one after the other |
//! | `thcltrce` | a trace of our own |
//! | a line of seven fields with `Read` or `Write` | MSR Cambridge |
//! | text | comma-separated values |
//! | anything else | `oracleGeneral`, if the file's name says so |

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use thermocline_pool::simulate::formats::{CsvReader, MsrReader, OracleReader, is_msr};
use thermocline_pool::simulate::trace::{MAGIC, TraceError, TraceReader, TraceSource};

use super::{Result, SimulateError, SimulateSettings};

/// Formats of traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceFormat {
    /// Ours.
    Thermocline,
    /// Comma-separated values.
    Csv,
    /// MSR Cambridge's.
    Msr,
    /// libCacheSim's.
    OracleGeneral,
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const LOOK: usize = 1 << 12;

/// Opens a trace.
///
/// # Errors
/// When there is none, or none of a known format.
pub fn open(path: &Path, settings: &SimulateSettings) -> Result<Box<dyn TraceSource>> {
    open_with(path, settings.format, settings.page_bytes)
}

/// Opens a trace for pages of some length, of whatever format it is.
///
/// # Errors
/// When there is none, or none of a known format.
pub fn open_as(path: &Path, page_bytes: u64) -> Result<Box<dyn TraceSource>> {
    open_with(path, None, page_bytes)
}

fn open_with(path: &Path, format: Option<TraceFormat>, page_bytes: u64) -> Result<Box<dyn TraceSource>> {
    let of = |error| SimulateError::Trace { name: path.display().to_string(), error };
    let file = File::open(path).map_err(|error| {
        SimulateError::Setting(format!(
            "cannot open the trace {}: {error}; name a file, or model:NAME",
            path.display()
        ))
    })?;
    if path.is_dir() {
        return Err(SimulateError::Setting(format!("{} is a directory; name a trace in it", path.display())));
    }
    source(Box::new(file), &path.to_string_lossy(), format, page_bytes).map_err(of)
}

fn first_bytes<R: Read>(from: &mut BufReader<R>) -> std::result::Result<Vec<u8>, TraceError> {
    Ok(from.fill_buf()?.iter().take(LOOK).copied().collect())
}

fn source(
    file: Box<dyn Read + Send>,
    name: &str,
    format: Option<TraceFormat>,
    page_bytes: u64,
) -> std::result::Result<Box<dyn TraceSource>, TraceError> {
    let mut packed = BufReader::with_capacity(1 << 18, file);
    let first = first_bytes(&mut packed)?;
    let plain: Box<dyn Read + Send> = if first.starts_with(&GZIP) {
        Box::new(MultiGzDecoder::new(packed))
    } else if first.starts_with(&ZSTD) {
        Box::new(ZstdFrames::new(packed)?)
    } else {
        Box::new(packed)
    };
    let mut plain = BufReader::with_capacity(1 << 18, plain);
    let first = first_bytes(&mut plain)?;
    let format = match format {
        Some(format) => format,
        None => guess(&first, name)?,
    };
    Ok(match format {
        TraceFormat::Thermocline => Box::new(TraceReader::new(plain)?),
        TraceFormat::Csv => Box::new(CsvReader::new(plain)),
        TraceFormat::Msr => Box::new(MsrReader::new(plain, page_bytes as u32)),
        TraceFormat::OracleGeneral => Box::new(OracleReader::new(plain)),
    })
}

fn guess(first: &[u8], name: &str) -> std::result::Result<TraceFormat, TraceError> {
    // A prefix of the magic is a trace of ours that was cut off.
    if first.starts_with(&MAGIC) || !first.is_empty() && MAGIC.starts_with(first) {
        return Ok(TraceFormat::Thermocline);
    }
    if name.to_ascii_lowercase().contains("oraclegeneral") {
        return Ok(TraceFormat::OracleGeneral);
    }
    let is_text = |byte: &u8| matches!(byte, b'\n' | b'\r' | b'\t' | b' '..=b'~');
    if first.is_empty() {
        return Err(TraceError::Foreign("it is empty".to_owned()));
    }
    if !first.iter().all(is_text) {
        return Err(TraceError::Foreign(
            "it is neither ours nor text; if it is of oracleGeneral, say --format oracle-general".to_owned(),
        ));
    }
    let line = first.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(if is_msr(String::from_utf8_lossy(line).trim()) { TraceFormat::Msr } else { TraceFormat::Csv })
}

type Frame<R> = StreamingDecoder<BufReader<R>, FrameDecoder>;

/// Frames of zstd, one after the other; those that hold no data are skipped.
struct ZstdFrames<R: Read> {
    frame: Option<Frame<R>>,
}

impl<R: Read> ZstdFrames<R> {
    fn new(packed: BufReader<R>) -> std::io::Result<Self> {
        Ok(Self { frame: next_frame(packed, FrameDecoder::new())? })
    }
}

fn next_frame<R: Read>(mut packed: BufReader<R>, decoder: FrameDecoder) -> std::io::Result<Option<Frame<R>>> {
    while !packed.fill_buf()?.is_empty() {
        let head = packed.fill_buf()?;
        // Frames without data: 0x184D2A5?, then their length.
        if head.len() >= 8 && head[1..4] == [0x2a, 0x4d, 0x18] && head[0] & 0xf0 == 0x50 {
            let length = u32::from_le_bytes(std::array::from_fn(|byte| head[4 + byte]));
            std::io::copy(&mut packed.by_ref().take(8 + u64::from(length)), &mut std::io::sink())?;
            continue;
        }
        let frame = StreamingDecoder::new_with_decoder(packed, decoder);
        return frame.map(Some).map_err(|error| std::io::Error::other(format!("zstd: {error}")));
    }
    Ok(None)
}

impl<R: Read> Read for ZstdFrames<R> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        while let Some(frame) = &mut self.frame {
            match frame.read(bytes) {
                Ok(0) if !bytes.is_empty() => {}
                Ok(count) => return Ok(count),
                // What ends within a frame was cut off.
                Err(error) => match frame.get_mut().fill_buf() {
                    Ok([]) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    _ => return Err(error),
                },
            }
            let (packed, decoder) = match self.frame.take() {
                Some(frame) => frame.into_parts(),
                None => break,
            };
            self.frame = next_frame(packed, decoder)?;
        }
        Ok(0)
    }
}
