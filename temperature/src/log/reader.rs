//! Finds its way through an access log, from either end.
//!
//! Only the heads of blocks are read here, and what the classifier asks for. From the end: the tail of the last block
//! leads to its head, that to the first block of its section, and that to the block before the section. When anything
//! on that way is damaged (a torn end is the usual case), the whole log is walked from its beginning instead, where
//! each head leads to the next; behind a damaged one the next head is searched for. Nothing is served whose checksum
//! is wrong, and each damage is named once.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use thermocline_base::checksum::Seed;
use thermocline_base::io::File;

use super::error::{Damage, LogError};
use super::format::{
    self, BLOCK_HEADER_BYTES, BLOCK_MAGIC, BadHeader, Block, FILE_HEADER_BYTES, FileHeader, Part, TAIL_BYTES,
};

/// A readable access log.
#[derive(Debug)]
pub struct LogReader {
    file: Arc<dyn File>,
    len: u64,
    header: FileHeader,
    seed: Seed,
}

/// Blocks with one dictionary, in the order of the file.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) blocks: Vec<Block>,
}

/// Bytes of one or more parts of a block.
#[derive(Debug, Default)]
pub(crate) struct PartBytes {
    bytes: Vec<u8>,
    start: u32,
}

impl PartBytes {
    /// The bytes of `part`, which is one of those that were read.
    pub(crate) fn of(&self, part: Part) -> &[u8] {
        let at = (part.at - self.start) as usize;
        &self.bytes[at..at + part.len as usize]
    }
}

impl LogReader {
    /// Opens a log. Its end is where the file ends now.
    ///
    /// # Errors
    /// The file's, and when it is no access log of this version.
    pub fn open(file: Arc<dyn File>) -> Result<Self, LogError> {
        let len = file.len()?;
        let mut bytes = [0; FILE_HEADER_BYTES];
        let read = file.read_full_at(0, &mut bytes)?;
        let path = || file.path().display().to_string();
        let header = FileHeader::decode(&bytes[..read]).map_err(|bad| match bad {
            BadHeader::NotALog => LogError::NotALog { path: path() },
            BadHeader::Version(found) => LogError::OtherVersion { path: path(), found },
        })?;
        let seed = header.seed();
        Ok(Self { file, len, header, seed })
    }

    /// Length of the log.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// Length of a quantum in microseconds; 0 if they were counted otherwise.
    #[must_use]
    pub fn quantum_us(&self) -> u64 {
        self.header.quantum_us
    }

    /// When it was begun, in microseconds since 1970.
    #[must_use]
    pub fn start_wall_us(&self) -> i64 {
        self.header.start_wall_us
    }

    fn block_at(&self, offset: u64) -> Result<Result<Block, &'static str>, LogError> {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        let read = self.file.read_full_at(offset, &mut bytes)?;
        Ok(Block::decode(&bytes[..read], offset, self.seed).and_then(|block| {
            if block.end() <= self.len { Ok(block) } else { Err("the file ends inside of a block") }
        }))
    }

    /// All blocks that can be found from the beginning, by section.
    pub(crate) fn sections(&self, damages: &mut Vec<Damage>) -> Result<VecDeque<Section>, LogError> {
        let mut sections: VecDeque<Section> = VecDeque::new();
        let mut offset = FILE_HEADER_BYTES as u64;
        while offset < self.len {
            match self.block_at(offset)? {
                Ok(block) => {
                    offset = block.end();
                    let last = sections.back_mut().filter(|last| last.blocks[0].section == block.section);
                    match last {
                        Some(last) => last.blocks.push(block),
                        None => sections.push_back(Section { blocks: vec![block] }),
                    }
                }
                Err(what) => {
                    let next = self.next_block(offset + 8)?;
                    damages.push(Damage { offset, bytes: next - offset, what });
                    offset = next;
                }
            }
        }
        Ok(sections)
    }

    /// The first place from `from` on where a block begins, or the end.
    fn next_block(&self, from: u64) -> Result<u64, LogError> {
        const PIECE: usize = 1 << 20;
        let mut piece = vec![0; PIECE];
        let mut start = from.next_multiple_of(8);
        while start < self.len {
            let read = self.file.read_full_at(start, &mut piece)?;
            for at in (0..read.saturating_sub(3)).step_by(8) {
                let offset = start + at as u64;
                if format::u32_at(&piece, at) == BLOCK_MAGIC && self.block_at(offset)?.is_ok() {
                    return Ok(offset);
                }
            }
            if read < PIECE {
                break;
            }
            start += PIECE as u64;
        }
        Ok(self.len)
    }

    /// The section that ends where the file ends or where another begins; none if that cannot be told from there.
    fn section_before(&self, end: SectionEnd) -> Result<Option<Section>, LogError> {
        let last = match end {
            SectionEnd::File => {
                let mut tail = [0; TAIL_BYTES];
                let Some(at) = self.len.checked_sub(TAIL_BYTES as u64) else { return Ok(None) };
                let read = self.file.read_full_at(at, &mut tail)?;
                let length = format::tail_length(&tail[..read]).map(u64::from);
                let Some(offset) = length.and_then(|length| self.len.checked_sub(length)) else {
                    return Ok(None);
                };
                offset
            }
            SectionEnd::LastBlock(offset) => offset,
        };
        let Ok(block) = self.block_at(last)? else { return Ok(None) };
        let mut blocks = Vec::new();
        let mut offset = block.section;
        while offset < last {
            let Ok(block) = self.block_at(offset)? else { return Ok(None) };
            offset = block.end();
            blocks.push(block);
        }
        if offset != last {
            return Ok(None);
        }
        blocks.push(block);
        Ok(Some(Section { blocks }))
    }

    /// Sections from the end of the log to its beginning.
    pub(crate) fn backwards(&self) -> FromEnd<'_> {
        FromEnd { reader: self, next: Next::Jump(SectionEnd::File) }
    }

    /// Reads parts of a block that stand side by side and verifies them.
    pub(crate) fn read_parts(
        &self,
        block: &Block,
        parts: Range<usize>,
        into: &mut PartBytes,
    ) -> Result<Result<(), Damage>, LogError> {
        let parts = &block.parts[parts];
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Ok(Ok(())) };
        let len = (last.at + last.len - first.at) as usize;
        into.start = first.at;
        into.bytes.resize(len, 0);
        let read = self.file.read_full_at(block.offset + u64::from(first.at), &mut into.bytes)?;
        let whole = read == len
            && parts.iter().all(|part| Block::part_sum(self.seed, block.offset, into.of(*part)) == part.sum);
        let what = "the checksum of a part of a block is wrong";
        Ok(if whole {
            Ok(())
        } else {
            Err(Damage { offset: block.offset + u64::from(first.at), bytes: len as u64, what })
        })
    }
}

/// Where a section ends.
#[derive(Clone, Copy, Debug)]
enum SectionEnd {
    File,
    /// Its last block begins here.
    LastBlock(u64),
}

#[derive(Debug)]
enum Next {
    /// Not looked at yet.
    Jump(SectionEnd),
    /// From a walk over the whole log.
    Walked(VecDeque<Section>),
    Nothing,
}

/// Gives the sections of a log, the last one first.
#[derive(Debug)]
pub(crate) struct FromEnd<'a> {
    reader: &'a LogReader,
    next: Next,
}

impl FromEnd<'_> {
    pub(crate) fn next(&mut self, damages: &mut Vec<Damage>) -> Result<Option<Section>, LogError> {
        if let Next::Jump(end) = self.next {
            if matches!(end, SectionEnd::File) && self.reader.len <= FILE_HEADER_BYTES as u64 {
                self.next = Next::Nothing;
                return Ok(None);
            }
            if let Some(section) = self.reader.section_before(end)? {
                self.next = match section.blocks[0].previous {
                    0 => Next::Nothing,
                    offset => Next::Jump(SectionEnd::LastBlock(offset)),
                };
                return Ok(Some(section));
            }
            let mut sections = self.reader.sections(damages)?;
            if let SectionEnd::LastBlock(offset) = end {
                // What comes behind was given already.
                sections.retain(|section| section.blocks[0].offset <= offset);
            }
            self.next = Next::Walked(sections);
        }
        match &mut self.next {
            Next::Walked(sections) => Ok(sections.pop_back()),
            Next::Jump(_) | Next::Nothing => Ok(None),
        }
    }
}
