//! Writing an image file: chunk after chunk, row after row, in large sequential writes.
//!
//! Nothing is part of the database before a manifest names it, so a writer that fails or is dropped leaves only a file
//! that the next sweep removes.

use std::path::Path;
use std::sync::Arc;

use thermocline_base::checksum::Seed;
use thermocline_base::ids::Timestamp;
use thermocline_base::io::{Appender, Io, OpenMode};

use super::error::CheckpointError;
use super::format::{
    BLOCK_BYTES, BLOCK_HEADER_BYTES, Base, BlockHeader, ChunkHeader, ChunkImage, Encoder, FILE_HEADER_BYTES,
    FILE_MAGIC, FORMAT, FROZEN_ROWS, PIECE_BYTES, ROW_BYTES, image_seed,
};
use super::manifest::image_path;

/// Writes are gathered up to this size.
const WRITE_BYTES: usize = 256 << 10;
/// What has been written is synced in pieces of this size.
const SYNC_BYTES: u64 = 16 << 20;

/// A finished image file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ImageFile {
    pub(crate) number: u64,
    /// How long it is.
    pub(crate) bytes: u64,
}

/// Writes one image file.
pub(crate) struct ImageWriter<'a> {
    io: Arc<dyn Io>,
    dir: &'a Path,
    appender: Appender,
    number: u64,
    seed: Seed,
    /// Told the size of every write after it, so that it may sleep.
    pace: &'a mut dyn FnMut(u64),
    /// What has not been written yet; the block that is being filled stands at the end.
    buffer: Vec<u8>,
    /// The position of the buffer's first byte.
    written: u64,
    /// Synced up to here.
    synced: u64,
    open: Option<OpenChunk>,
}

struct OpenChunk {
    header: ChunkHeader,
    offset: u64,
    rows: u64,
    sequence: u32,
    /// Where the header of the block that is being filled stands in the buffer.
    block: usize,
}

impl std::fmt::Debug for ImageWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageWriter").field("number", &self.number).field("bytes", &self.bytes()).finish()
    }
}

impl<'a> ImageWriter<'a> {
    /// Starts file `number` in `dir`. `pace` is told the size of every write, and may sleep.
    pub(crate) fn create(
        io: &Arc<dyn Io>,
        dir: &'a Path,
        database: &[u8; 16],
        number: u64,
        pace: &'a mut dyn FnMut(u64),
    ) -> Result<Self, CheckpointError> {
        io.create_dir_all(dir)?;
        // A file of this number can only be the rest of a checkpoint that failed.
        let file = io.open_direct(&image_path(dir, number), OpenMode::Create)?;
        file.set_len(0)?;
        let mut header = Encoder::default();
        header.raw(FILE_MAGIC);
        header.u32(FORMAT);
        header.u32(0);
        header.raw(database);
        header.u64(number);
        header.0.resize(FILE_HEADER_BYTES - 4, 0);
        let sum = thermocline_base::checksum::crc32c(&header.0);
        header.u32(sum);
        let mut buffer = header.0;
        buffer.reserve(WRITE_BYTES + BLOCK_BYTES);
        Ok(Self {
            io: Arc::clone(io),
            seed: image_seed(database, number),
            written: 0,
            synced: 0,
            open: None,
            dir,
            appender: Appender::new(file, 0, WRITE_BYTES),
            number,
            pace,
            buffer,
        })
    }

    /// How long the file is so far: a reason to go on in another one.
    pub(crate) fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Starts the image of a chunk.
    ///
    /// # Panics
    /// When another one has not been ended.
    pub(crate) fn begin(&mut self, header: ChunkHeader) {
        assert!(self.open.is_none(), "images are written one after the other");
        self.open =
            Some(OpenChunk { header, offset: self.bytes(), rows: 0, sequence: 0, block: self.buffer.len() });
        self.buffer.extend_from_slice(&[0; BLOCK_HEADER_BYTES]);
    }

    /// Adds a row to the image.
    ///
    /// # Panics
    /// When no image has been begun.
    pub(crate) fn row(&mut self, slot: u16, begin: Timestamp, bytes: &[u8]) -> Result<(), CheckpointError> {
        let open = self.open.as_ref().expect("a row belongs to an image");
        let filled = self.buffer.len() - open.block - BLOCK_HEADER_BYTES;
        if filled > 0 && filled + ROW_BYTES + bytes.len() > BLOCK_BYTES {
            self.seal_block(false)?;
        }
        self.buffer.extend_from_slice(&slot.to_le_bytes());
        self.buffer.extend_from_slice(&begin.0.to_le_bytes());
        let len = u32::try_from(bytes.len()).expect("a row is smaller than 4 GiB");
        self.buffer.extend_from_slice(&len.to_le_bytes());
        self.buffer.extend_from_slice(bytes);
        self.open.as_mut().expect("a row belongs to an image").rows += 1;
        Ok(())
    }

    /// Says which rows of a base are the chunk's.
    ///
    /// # Panics
    /// When no image has been begun.
    pub(crate) fn frozen(&mut self, base: u64, slots: &[u64]) -> Result<(), CheckpointError> {
        let mut bytes = Encoder::default();
        bytes.u64(base);
        slots.iter().for_each(|&word| bytes.u64(word));
        self.row(0, FROZEN_ROWS, &bytes.0)
    }

    /// Writes the base of a chunk.
    ///
    /// # Panics
    /// When an image has been begun.
    pub(crate) fn base(
        &mut self,
        id: u64,
        of: &ChunkHeader,
        hidden: &[u64],
        block: &[u8],
    ) -> Result<Base, CheckpointError> {
        self.begin(Base::header(id, of));
        let keys: Vec<u8> = hidden.iter().flat_map(|key| key.to_le_bytes()).collect();
        let pieces = [&keys[..]].into_iter().chain(block.chunks(PIECE_BYTES));
        for (number, piece) in pieces.enumerate() {
            let number = u16::try_from(number).expect("a block has fewer than 2^16 pieces");
            self.row(number, Timestamp(0), piece)?;
        }
        self.end().map(|image| Base::of(&image))
    }

    /// Ends the image of the chunk.
    ///
    /// # Panics
    /// When no image has been begun.
    pub(crate) fn end(&mut self) -> Result<ChunkImage, CheckpointError> {
        self.seal_block(true)?;
        let open = self.open.take().expect("an image that ends was begun");
        Ok(ChunkImage {
            header: open.header,
            file: self.number,
            offset: open.offset,
            bytes: self.bytes() - open.offset,
            rows: open.rows,
            replay: open.header.replay,
            base: None,
        })
    }

    /// Forgets the image that was begun; its bytes stay as dead ones.
    pub(crate) fn abandon(&mut self) {
        if let Some(open) = self.open.take() {
            self.buffer.truncate(open.block);
        }
    }

    /// Makes the file durable.
    ///
    /// # Panics
    /// When an image has not been ended.
    pub(crate) fn finish(mut self) -> Result<ImageFile, CheckpointError> {
        assert!(self.open.is_none(), "an image that was begun is ended");
        self.write()?;
        self.appender.write()?;
        // What was written to fill the last block is none of the file's.
        self.appender.file().set_len(self.written)?;
        self.appender.file().sync_data()?;
        self.io.sync_dir(self.dir)?;
        Ok(ImageFile { number: self.number, bytes: self.written })
    }

    fn seal_block(&mut self, last: bool) -> Result<(), CheckpointError> {
        let start = self.written;
        let open = self.open.as_mut().expect("a block belongs to an image");
        let position = start + open.block as u64;
        let (header, payload) = self.buffer[open.block..].split_at_mut(BLOCK_HEADER_BYTES);
        let block = BlockHeader {
            chunk: open.header,
            payload: u32::try_from(payload.len()).expect("a block is smaller than 4 GiB"),
            sequence: open.sequence,
            last,
            rows: open.rows,
        };
        header.copy_from_slice(&block.seal(self.seed.at(position), payload));
        if self.buffer.len() >= WRITE_BYTES {
            self.write()?;
        }
        let next = self.buffer.len();
        let open = self.open.as_mut().expect("a block belongs to an image");
        open.sequence += 1;
        open.block = next;
        if !last {
            self.buffer.extend_from_slice(&[0; BLOCK_HEADER_BYTES]);
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), CheckpointError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let mut rest = &self.buffer[..];
        while !rest.is_empty() {
            rest = &rest[self.appender.push(rest)..];
            if !rest.is_empty() {
                self.appender.write()?;
            }
        }
        let bytes = self.buffer.len() as u64;
        self.written += bytes;
        self.buffer.clear();
        if self.written - self.synced >= SYNC_BYTES {
            // In pieces, so that the log's syncs do not wait behind a whole image.
            self.appender.file().sync_data()?;
            self.synced = self.written;
        }
        (self.pace)(bytes);
        Ok(())
    }
}
