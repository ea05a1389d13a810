//! Checkpoints: what is on disk besides the log.
//!
//! ```text
//!  database/
//!    thermocline.db                 superblock: this is a database, and which one; durable ends of the other files
//!    checkpoint/manifest-N          what the newest checkpoint consists of (N hexadecimal)
//!    checkpoint/NNNNNNNN.img        images of chunks, append-only while it is written, then immutable
//!    log/…                          what happened since
//! ```
//!
//! A checkpoint is a manifest. It names one image for every chunk that has rows; images of chunks that did not change
//! are carried over from the manifest before. Rules:
//!
//! * Image files are durable before the manifest that names them, and the manifest is durable under its name before
//!   anything that only its predecessor needs is removed. So at every moment the newest manifest is whole and all its
//!   files are there; one that is not is damage, never a crash.
//! * A chunk's replay position ([`ChunkImage::replay`]) is noted before its timestamp is drawn (`ReplayPositionBeforeTimestamp`), by
//!   whoever makes the image.
//! * A manifest is written only once the log is durable past every timestamp that it images (`CheckpointAfterLog`), by
//!   whoever writes it.
//! * Every byte that is read back is covered by a checksum that starts from the database, the file and the position.
//!
//! Image files are numbered and never changed, nor is a number used again while a manifest knows it. A file of whose
//! bytes less than half is still referenced is *mostly dead*: the next checkpoint writes its chunks anew.

pub(crate) mod ends;
pub(crate) mod error;
pub(crate) mod format;
pub(crate) mod loader;
pub(crate) mod manifest;
pub(crate) mod state;
pub(crate) mod superblock;
pub(crate) mod writer;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub(crate) use ends::{DurableEnds, Ends, FoundEnds};
pub(crate) use error::CheckpointError;
pub(crate) use format::{Base, ChunkHeader, ChunkImage, FROZEN_ROWS};
pub(crate) use loader::Images;
pub(crate) use manifest::{Manifest, ManifestBuilder, RunState};
pub(crate) use state::{Checkpoints, Durable};
pub(crate) use superblock::Superblock;
pub(crate) use writer::{ImageFile, ImageWriter};

/// The directory of the checkpoints inside a database's.
pub(crate) fn dir_of(database: &Path) -> PathBuf {
    database.join("checkpoint")
}
