//! Reading the log after a crash: what is whole, in order, and where it ends.
//!
//! The log ends at the first position where no record checks out. That is where a crash tore it, *unless* something
//! proves that the bytes there had been durable; then they are damaged, and the reader says so:
//!
//! | proof | what it says |
//! |---|---|
//! | the caller's: a checkpoint, a clean close, what was noted after each sync | the log was durable up to here |
//! | a segment behind it of a later generation | recovery had found a whole log up to that segment |
//! | a segment behind it whose header says so | the log was durable up to here when the segment was made |
//! | a valid record behind it whose durable gap says so | the same |
//!
//! A valid record alone proves nothing: a crash may keep a later write and lose an earlier one. What no proof covers is
//! the last batch before a crash: whether it was torn or damaged later, its bytes cannot tell.
//!
//! Segments of an older generation that start behind one of a newer generation are superseded: they had been made
//! ahead by a run that crashed before it used them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_base::checksum::Seed;
use thermocline_base::ids::Lsn;
use thermocline_base::io::{File, Io, OpenMode};
use thermocline_pool::store::StoreEnd;

use super::error::LogError;
use super::record::{self, ALIGN, HEADER_BYTES, Header, Kind};
use super::segment::{HeaderError, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentName, record_seed};

/// How much is read at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// A record, whole and in its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) lsn: Lsn,
    pub(crate) kind: Kind,
    pub(crate) payload: &'a [u8],
}

/// Where the log ends, and which files it consists of: what [`super::Log::open`] goes on from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LogEnd {
    /// The position behind the last record.
    pub(crate) lsn: Lsn,
    /// The highest generation that any file has.
    pub(crate) generation: u32,
    /// The segments that hold the log that was read, and where each ends.
    pub(crate) keep: Vec<(SegmentName, Lsn)>,
    /// Files that hold nothing of it.
    pub(crate) discard: Vec<SegmentName>,
    /// Up to where the cold store had been durable, as its marks say.
    pub(crate) store: StoreEnd,
}

impl LogEnd {
    /// A log without files that starts at `lsn`.
    #[cfg(test)]
    pub(crate) fn fresh(lsn: Lsn) -> Self {
        Self { lsn, generation: 0, keep: Vec::new(), discard: Vec::new(), store: StoreEnd::default() }
    }

    /// A log that starts anew at `lsn`, whatever stands in `dir`: after a run that kept no log, what is there is of no
    /// use. The files go when the log is opened.
    #[cfg(test)]
    pub(crate) fn abandon(io: &dyn Io, dir: &Path, lsn: Lsn) -> Result<Self, LogError> {
        let names = segment_names(io, dir)?;
        let generation = names.iter().map(|name| name.generation).max().unwrap_or(0);
        Ok(Self { lsn, generation, keep: Vec::new(), discard: names, store: StoreEnd::default() })
    }
}

/// Reads the records of a log. A lending iterator: [`LogReader::next`].
#[derive(Debug)]
pub(crate) struct LogReader {
    io: Arc<dyn Io>,
    dir: PathBuf,
    database: [u8; 16],
    from: Lsn,
    durable: Lsn,
    /// Every file that looks like a segment, by position and generation.
    names: Vec<SegmentName>,
    /// The segments of the log, gap or no gap, without superseded ones.
    chain: Vec<SegmentHeader>,
    /// Files without a valid header, with what is wrong.
    broken: Vec<(SegmentName, &'static str)>,
    /// Which segment `position` is in.
    current: usize,
    position: u64,
    /// Bytes from `window_start` on.
    window: Vec<u8>,
    window_start: u64,
    /// The segment that was read last.
    file: Option<(usize, Arc<dyn File>)>,
    ended: bool,
    /// The latest end of the cold store that a mark has named.
    store: StoreEnd,
}

impl LogReader {
    /// Reads from the record that starts at `from`. `durable`: up to where the log is known to have been durable.
    pub(crate) fn open(
        io: Arc<dyn Io>,
        dir: &Path,
        database: [u8; 16],
        from: Lsn,
        durable: Lsn,
    ) -> Result<Self, LogError> {
        let names = segment_names(&*io, dir)?;
        let (mut valid, mut broken) = (Vec::new(), Vec::new());
        for name in &names {
            let file = io.open(&name.path(dir), OpenMode::Read)?;
            match SegmentHeader::read(&*file, *name, &database) {
                Ok(header) => valid.push(header),
                Err(HeaderError::Invalid(what)) => broken.push((*name, what)),
                Err(HeaderError::Log(error)) => return Err(error),
            }
        }
        let superseded = |name: SegmentName| {
            let by = |other: &SegmentHeader| {
                other.name.first <= name.first && other.name.generation > name.generation
            };
            valid.iter().any(by)
        };
        let chain: Vec<SegmentHeader> =
            valid.iter().filter(|header| !superseded(header.name)).copied().collect();
        broken.retain(|(name, _)| !superseded(*name));
        let current = chain.iter().rposition(|header| header.name.first <= from);
        let reader = Self {
            dir: dir.to_path_buf(),
            names,
            broken,
            current: current.unwrap_or(0),
            position: from.0,
            window: Vec::new(),
            window_start: from.0,
            file: None,
            ended: false,
            store: StoreEnd::default(),
            io,
            database,
            from,
            durable,
            chain,
        };
        let holds = current.is_some_and(|index| from.0 <= reader.end_of(index));
        // A log that starts at 0 may have crashed before it had a segment.
        if !holds && (from.0 > 0 || reader.chain.iter().any(|header| header.durable.0 > 0)) {
            reader.judge()?;
            return Err(LogError::Missing { dir: reader.dir, lsn: from });
        }
        if !holds {
            let mut reader = reader;
            reader.judge()?;
            reader.ended = true;
            return Ok(reader);
        }
        Ok(reader)
    }

    /// The next record that has something to say, `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Record<'_>>, LogError> {
        let (lsn, header) = loop {
            if self.ended {
                return Ok(None);
            }
            match self.whole_record() {
                Ok(Some(header)) => {
                    let lsn = self.position;
                    self.position += u64::from(header.span);
                    if header.kind == Kind::Mark {
                        self.note_mark(lsn, header.payload);
                    }
                    if !matches!(header.kind, Kind::Void | Kind::Mark) {
                        break (lsn, header);
                    }
                }
                Ok(None) => {
                    self.judge()?;
                    self.ended = true;
                }
                Err(error) => return Err(error),
            }
        };
        let at = (lsn - self.window_start + HEADER_BYTES) as usize;
        let payload = &self.window[at..at + header.payload as usize];
        Ok(Some(Record { lsn: Lsn(lsn), kind: header.kind, payload }))
    }

    fn note_mark(&mut self, lsn: u64, bytes: u32) {
        let at = (lsn - self.window_start + HEADER_BYTES) as usize;
        if let Some(end) = record::read_store_mark(&self.window[at..at + bytes as usize]) {
            self.store = self.store.and(end);
        }
    }

    /// Where the log ends. Reads what is left of it.
    pub(crate) fn finish(mut self) -> Result<LogEnd, LogError> {
        while self.next()?.is_some() {}
        let lsn = Lsn(self.position);
        let mut keep = Vec::new();
        for (index, header) in self.chain.iter().enumerate() {
            let end = self.end_of(index).min(lsn.0);
            if header.name.first < lsn && end > self.from.0 {
                keep.push((header.name, Lsn(end)));
            }
        }
        let kept = |name: &SegmentName| keep.iter().any(|(kept, _)| kept == name);
        let discard = self.names.iter().copied().filter(|name| !kept(name)).collect();
        let generation = self.names.iter().map(|name| name.generation).max().unwrap_or(0);
        Ok(LogEnd { lsn, generation, keep, discard, store: self.store })
    }

    /// Where a segment of the chain ends: where the next one starts, or when it is full.
    fn end_of(&self, index: usize) -> u64 {
        let header = &self.chain[index];
        let full = header.name.first.0 + header.bytes;
        self.chain.get(index + 1).map_or(full, |next| full.min(next.name.first.0))
    }

    fn seed(&self, generation: u32) -> Seed {
        record_seed(&self.database, generation)
    }

    /// The record at `position`, if there is a whole one. Its bytes are in the window then.
    fn whole_record(&mut self) -> Result<Option<Header>, LogError> {
        while self.position >= self.end_of(self.current) {
            let next = self.current + 1;
            if self.chain.get(next).is_none_or(|segment| segment.name.first.0 != self.end_of(self.current)) {
                return Ok(None);
            }
            self.current = next;
        }
        if !self.load(HEADER_BYTES)? {
            return Ok(None);
        }
        let at = (self.position - self.window_start) as usize;
        let Some(header) = Header::peek(first_header(&self.window[at..])) else { return Ok(None) };
        if !self.load(HEADER_BYTES + u64::from(header.payload))? {
            return Ok(None);
        }
        let at = (self.position - self.window_start) as usize;
        let (head, rest) = self.window[at..].split_at(HEADER_BYTES as usize);
        let seed = self.seed(self.chain[self.current].name.generation);
        let payload = &rest[..header.payload as usize];
        if !Header::check(first_header(head), seed, Lsn(self.position), [payload, &[]]) {
            return Ok(None);
        }
        // The rest of the span holds nothing, but must have had its place, in this generation.
        Ok(self.reaches(self.position + u64::from(header.span)).then_some(header))
    }

    /// Does the generation at `position` reach up to `end` without a gap?
    fn reaches(&self, end: u64) -> bool {
        let mut index = self.current;
        while self.end_of(index) < end {
            let Some(next) = self.chain.get(index + 1) else { return false };
            if next.name.first.0 != self.end_of(index)
                || next.name.generation != self.chain[index].name.generation
            {
                return false;
            }
            index += 1;
        }
        true
    }

    /// Brings `len` bytes from `position` on into the window, if the log has them.
    fn load(&mut self, len: u64) -> Result<bool, LogError> {
        let needed = self.position + len;
        if !self.reaches(needed) {
            return Ok(false);
        }
        let mut end = self.window_start + self.window.len() as u64;
        if needed <= end {
            return Ok(true);
        }
        // Drop what is behind us before more comes in.
        if self.position < end {
            self.window.drain(..(self.position - self.window_start) as usize);
        } else {
            self.window.clear();
            end = self.position;
        }
        self.window_start = self.position;
        let mut index = self.current;
        while end < needed {
            while self.end_of(index) <= end {
                index += 1;
            }
            let segment = self.chain[index];
            let piece = (self.end_of(index) - end).min(PIECE_BYTES.max(needed - end));
            let old = self.window.len();
            self.window.resize(old + piece as usize, 0);
            let file = match &self.file {
                Some((open, file)) if *open == index => Arc::clone(file),
                _ => self.io.open(&segment.name.path(&self.dir), OpenMode::Read)?,
            };
            // The header has proved the length; a file cut since then reads as zeros, which check out nowhere.
            file.read_full_at(SEGMENT_HEADER_BYTES + (end - segment.name.first.0), &mut self.window[old..])?;
            self.file = Some((index, file));
            end += piece;
        }
        Ok(true)
    }

    /// No record checks out at `position`: is that the end, or damage?
    fn judge(&self) -> Result<(), LogError> {
        let Some(proof) = self.proof()? else { return Ok(()) };
        let place = self.missing_place().unwrap_or(self.position);
        let lsn = Lsn(place);
        let broken = self.broken.iter().find(|(name, _)| name.first == lsn);
        if let Some((name, what)) = broken {
            let what = format!("{what}, but {proof}");
            return Err(LogError::Damaged { file: name.path(&self.dir), offset: 0, lsn, what });
        }
        let holder = self
            .chain
            .get(self.current)
            .filter(|header| header.name.first.0 <= place && place < self.end_of(self.current));
        match holder {
            Some(header) => Err(LogError::Damaged {
                file: header.name.path(&self.dir),
                offset: SEGMENT_HEADER_BYTES + (self.position - header.name.first.0),
                lsn,
                what: format!("no record checks out there, but {proof}"),
            }),
            None => Err(LogError::Missing { dir: self.dir.clone(), lsn }),
        }
    }

    /// Where the record at `position` runs on into a segment that is not there.
    fn missing_place(&self) -> Option<u64> {
        let at = usize::try_from(self.position.checked_sub(self.window_start)?).ok()?;
        let bytes = self.window.get(at..)?.get(..HEADER_BYTES as usize)?;
        let header = Header::peek(first_header(bytes))?;
        let end = self.end_of(self.current);
        let next = self.chain.get(self.current + 1);
        let gap = next.is_none_or(|next| next.name.first.0 != end);
        (gap && self.position + u64::from(header.span) > end).then_some(end)
    }

    /// What proves that the log had been durable beyond `position`?
    fn proof(&self) -> Result<Option<String>, LogError> {
        if self.durable.0 > self.position {
            return Ok(Some(format!("the log is known to have been durable up to {}", self.durable)));
        }
        let generation = self
            .chain
            .iter()
            .rfind(|header| header.name.first.0 <= self.position)
            .map_or(0, |header| header.name.generation);
        for header in &self.chain {
            let path = header.name.path(&self.dir);
            if header.durable.0 > self.position {
                let durable = header.durable;
                return Ok(Some(format!("{} says that the log was durable up to {durable}", path.display())));
            }
            if header.name.first.0 > self.position && generation > 0 && header.name.generation > generation {
                let first = header.name.first;
                return Ok(Some(format!("{} continues a log that was whole up to {first}", path.display())));
            }
        }
        for name in self.chain.iter().map(|header| header.name).chain(self.broken.iter().map(|b| b.0)) {
            if let Some(lsn) = self.proving_record(name)? {
                return Ok(Some(format!("the record at {lsn} was made when it was durable")));
            }
        }
        Ok(None)
    }

    /// A valid record in the file that was made when the log was durable beyond `position`.
    fn proving_record(&self, name: SegmentName) -> Result<Option<Lsn>, LogError> {
        let file: Arc<dyn File> = self.io.open(&name.path(&self.dir), OpenMode::Read)?;
        let mut len = file.len()?.saturating_sub(SEGMENT_HEADER_BYTES);
        if let Some(index) = self.chain.iter().position(|header| header.name == name) {
            len = len.min(self.end_of(index) - name.first.0);
        }
        let seed = self.seed(name.generation);
        let mut at = self.position.saturating_sub(name.first.0).next_multiple_of(ALIGN);
        // `bytes` are those from `start` on.
        let (mut bytes, mut start) = (Vec::new(), at);
        let fill = |bytes: &mut Vec<u8>, at: u64, count: u64| -> Result<(), LogError> {
            bytes.resize(count.max(PIECE_BYTES).min(len - at) as usize, 0);
            let got = file.read_full_at(SEGMENT_HEADER_BYTES + at, bytes)?;
            bytes[got..].fill(0);
            Ok(())
        };
        while at + HEADER_BYTES <= len {
            if at + HEADER_BYTES > start + bytes.len() as u64 {
                start = at;
                fill(&mut bytes, at, HEADER_BYTES)?;
            }
            let lsn = Lsn(name.first.0 + at);
            let claim = Header::peek(first_header(&bytes[(at - start) as usize..]))
                .filter(|header| header.durable(lsn).0 > self.position);
            if let Some(header) = claim {
                let count = HEADER_BYTES + u64::from(header.payload);
                if at + count > start + bytes.len() as u64 && at + count <= len {
                    start = at;
                    fill(&mut bytes, at, count)?;
                }
                let record = &bytes[(at - start) as usize..];
                if let Some(payload) = record.get(HEADER_BYTES as usize..count as usize)
                    && Header::check(first_header(record), seed, lsn, [payload, &[]])
                {
                    return Ok(Some(lsn));
                }
            }
            at += ALIGN;
        }
        Ok(None)
    }
}

/// Every file that is called like a segment, in order.
fn segment_names(io: &dyn Io, dir: &Path) -> Result<Vec<SegmentName>, LogError> {
    let files = if io.exists(dir)? { io.list(dir)? } else { Vec::new() };
    let mut names: Vec<SegmentName> = files.iter().filter_map(|name| SegmentName::parse(name)).collect();
    names.sort_unstable();
    Ok(names)
}

fn first_header(bytes: &[u8]) -> &[u8; HEADER_BYTES as usize] {
    bytes[..HEADER_BYTES as usize].try_into().expect("the bytes of a header")
}
