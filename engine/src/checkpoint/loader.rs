//! Reading images back: any number of threads, each chunk on its own.

use std::path::PathBuf;
use std::sync::Arc;

use thermocline_base::checksum::crc32c;
use thermocline_base::ids::Timestamp;
use thermocline_base::io::{File, Io, OpenMode};

use super::error::CheckpointError;
use super::format::{
    BLOCK_HEADER_BYTES, Base, BlockHeader, ChunkImage, Decoder, FILE_HEADER_BYTES, FILE_MAGIC, FORMAT,
    image_seed,
};
use super::manifest::image_path;

/// The image files of a database.
#[derive(Clone, Debug)]
pub(crate) struct Images {
    io: Arc<dyn Io>,
    dir: PathBuf,
    database: [u8; 16],
}

impl Images {
    /// Those in `dir`.
    pub(crate) fn new(io: Arc<dyn Io>, dir: PathBuf, database: [u8; 16]) -> Self {
        Self { io, dir, database }
    }

    /// Gives every row of an image to `each`: slot, begin timestamp, bytes. `buffer` is for blocks, and worth keeping
    /// from chunk to chunk. Rows of a block are given only after the block has checked out; nothing damaged is given.
    pub(crate) fn load<E: From<CheckpointError>>(
        &self,
        image: &ChunkImage,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(u16, Timestamp, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let file = self.open_file(image.file)?;
        let seed = image_seed(&self.database, image.file);
        let end = image.offset.saturating_add(image.bytes);
        let (mut at, mut rows) = (image.offset, 0);
        for sequence in 0.. {
            let damaged = |what: &str| self.damaged(image, at, what);
            let mut header = [0; BLOCK_HEADER_BYTES];
            if file.read_full_at(at, &mut header).map_err(CheckpointError::from)? < BLOCK_HEADER_BYTES {
                return Err(damaged("the file was cut").into());
            }
            let len = BlockHeader::payload_of(&header)
                .filter(|len| at + BLOCK_HEADER_BYTES as u64 + u64::from(*len) <= end)
                .ok_or_else(|| damaged("there is no block"))?;
            buffer.resize(len as usize, 0);
            let body = at + BLOCK_HEADER_BYTES as u64;
            if file.read_full_at(body, buffer).map_err(CheckpointError::from)? < buffer.len() {
                return Err(damaged("the file was cut").into());
            }
            let block = BlockHeader::open(&header, seed.at(at), buffer)
                .ok_or_else(|| damaged("a block does not check out"))?;
            if block.chunk != image.header || block.sequence != sequence {
                return Err(damaged("a block is of another image").into());
            }
            let mut rest = Decoder(buffer);
            while !rest.0.is_empty() {
                let row = (|| {
                    let (slot, begin, len) = (rest.u16()?, Timestamp(rest.u64()?), rest.u32()?);
                    Some((slot, begin, rest.raw(len as usize)?))
                })();
                let (slot, begin, bytes) = row.ok_or_else(|| damaged("a row is longer than its block"))?;
                each(slot, begin, bytes)?;
                rows += 1;
            }
            if block.rows != rows {
                return Err(damaged("the number of rows is wrong").into());
            }
            at = body + u64::from(len);
            if block.last {
                break;
            }
        }
        if at != end || rows != image.rows {
            let what = format!("{rows} of {} rows, {at} instead of {end} as its end", image.rows);
            return Err(self.damaged(image, at, &what).into());
        }
        Ok(())
    }

    /// Can the files of an image be opened, and are they of this database?
    pub(crate) fn look(&self, image: &ChunkImage) -> Result<(), CheckpointError> {
        self.open_file(image.file)?;
        image.base.map_or(Ok(()), |base| self.open_file(base.file).map(|_| ()))
    }

    /// Reads the base of an image: the hidden keys of its rows, if they have any, and the block's bytes.
    pub(crate) fn load_base(
        &self,
        image: &ChunkImage,
        base: &Base,
        buffer: &mut Vec<u8>,
    ) -> Result<(Vec<u64>, Vec<u8>), CheckpointError> {
        let (mut hidden, mut block, mut next) = (Vec::new(), Vec::new(), 0);
        let of = base.image(&image.header);
        self.load(&of, buffer, |number, _, piece| {
            if number != next {
                return Err(self.damaged(&of, of.offset, "a piece of a frozen chunk is missing"));
            }
            next += 1;
            if number == 0 {
                let keys = piece.chunks_exact(8);
                hidden.extend(keys.map(|key| u64::from_le_bytes(key.try_into().expect("eight bytes"))));
            } else {
                block.extend_from_slice(piece);
            }
            Ok(())
        })?;
        Ok((hidden, block))
    }

    /// Which slots of a chunk have rows of its base, from what an image says of it; with the base.
    pub(crate) fn frozen_slots(
        &self,
        image: &ChunkImage,
        bytes: &[u8],
    ) -> Result<(Base, Vec<u64>), CheckpointError> {
        let damaged = |what| self.damaged(image, image.offset, what);
        let mut fields = Decoder(bytes);
        let id = fields.u64().ok_or_else(|| damaged("it does not say in which base its rows are"))?;
        let base = image.base.filter(|base| base.id == id);
        let base = base.ok_or_else(|| damaged("its rows are in a base that the manifest does not name"))?;
        let slots = std::iter::from_fn(|| fields.u64()).collect();
        Ok((base, slots))
    }

    fn open_file(&self, number: u64) -> Result<Arc<dyn File>, CheckpointError> {
        let path = image_path(&self.dir, number);
        let file = self.io.open(&path, OpenMode::Read)?;
        let mut bytes = [0; FILE_HEADER_BYTES];
        let got = file.read_full_at(0, &mut bytes)?;
        let damaged = |offset: usize, what: &str| CheckpointError::Damaged {
            file: path.clone(),
            offset: offset as u64,
            what: what.to_owned(),
        };
        if got < FILE_HEADER_BYTES {
            return Err(damaged(got, "the file was cut"));
        }
        let (body, sum) = bytes.split_at(FILE_HEADER_BYTES - 4);
        if &body[..8] != FILE_MAGIC || crc32c(body).to_le_bytes() != *sum {
            return Err(damaged(0, "the file's header does not check out"));
        }
        let mut fields = Decoder(&body[8..]);
        let version = fields.u32().expect("it is long enough");
        if version > FORMAT {
            return Err(CheckpointError::Newer { file: path, version, known: FORMAT });
        }
        if body[16..32] != self.database {
            return Err(CheckpointError::Foreign { file: path });
        }
        if body[32..40] != number.to_le_bytes() {
            return Err(damaged(32, "the file is another one, renamed"));
        }
        Ok(file)
    }

    pub(crate) fn damaged(&self, image: &ChunkImage, offset: u64, what: &str) -> CheckpointError {
        CheckpointError::DamagedChunk {
            file: image_path(&self.dir, image.file),
            offset,
            table: image.header.table,
            chunk: image.header.chunk,
            what: what.to_owned(),
        }
    }
}
