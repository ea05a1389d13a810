//! The superblock: the file that makes a directory a database.
//!
//! ```text
//! thermocline.db = magic "THERMOCL" | format u32 | 0 u32 | database 16 bytes | created u64 (µs since 1970) | crc u32
//!                | … | durable ends of the other files, from format 2 on ([`super::ends`])
//! ```
//!
//! Written once, under another name first, so that it is whole or not there; of what stands behind it parts are written again.
//! The database's id goes into every checksum of every other file: files of two databases do not pass for each other. A file of
//! format 1 is replaced by one with ends when its database is opened for writing.

use std::path::Path;
use std::sync::Arc;

use thermocline_base::checksum::crc32c;
use thermocline_base::io::{Io, OpenMode};

use super::ends::{self, DurableEnds};
use super::error::CheckpointError;
use super::format::{Decoder, Encoder};
use super::manifest::write_whole;

/// The superblock's name.
pub(crate) const FILE: &str = "thermocline.db";
/// The file whose lock says that the database is open.
pub(crate) const LOCK_FILE: &str = "thermocline.lock";
const MAGIC: &[u8; 8] = b"THERMOCL";
/// The format of the directory as a whole.
const FORMAT: u32 = 2;
const BYTES: usize = 44;

/// What the superblock says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Superblock {
    /// The database's id.
    pub(crate) database: [u8; 16],
    /// When it was made, microseconds since 1970.
    pub(crate) created_us: i64,
    format: u32,
}

impl Superblock {
    /// That of a database that is being made.
    pub(crate) fn new(database: [u8; 16], created_us: i64) -> Self {
        Self { database, created_us, format: FORMAT }
    }

    /// True if the ends of the other files stand behind it.
    pub(crate) fn has_ends(&self) -> bool {
        self.format >= 2
    }

    /// Makes the directory a database. Durable when this returns, but for the directory's own name in its parent,
    /// which is synced too if the parent allows it.
    pub(crate) fn create(&self, io: &dyn Io, dir: &Path) -> Result<(), CheckpointError> {
        self.create_with(DurableEnds::default(), io, dir)
    }

    /// Makes the directory, which has files up to these ends, a database.
    pub(crate) fn create_with(
        &self,
        ends: DurableEnds,
        io: &dyn Io,
        dir: &Path,
    ) -> Result<(), CheckpointError> {
        let mut bytes = Encoder::default();
        bytes.raw(MAGIC);
        bytes.u32(FORMAT);
        bytes.u32(0);
        bytes.raw(&self.database);
        bytes.raw(&self.created_us.to_le_bytes());
        let sum = crc32c(&bytes.0);
        bytes.u32(sum);
        assert_eq!(bytes.0.len(), BYTES, "the length of a superblock");
        ends::begin(&mut bytes.0, &self.database, ends);
        write_whole(io, dir, FILE, &bytes.0)?;
        if let Some(parent) = dir.parent() {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            // Not ours; if it cannot be synced, the database is as durable as its directory's name.
            let _ = io.sync_dir(parent);
        }
        Ok(())
    }

    /// Reads the superblock of a directory; `None` if there is no directory or nothing in it, so that a database may
    /// be made there.
    pub(crate) fn open(io: &Arc<dyn Io>, dir: &Path) -> Result<Option<Self>, CheckpointError> {
        if !io.exists(dir)? {
            return Ok(None);
        }
        let path = dir.join(FILE);
        if !io.exists(&path)? {
            // A lock, or a superblock that a crash kept from its name, is the start of a database.
            let temporary = format!("{FILE}.tmp");
            let mut names = io.list(dir)?;
            names.retain(|name| name != LOCK_FILE && *name != temporary);
            let found = match names.first() {
                Some(first) => format!("the file {first}"),
                None if io.exists(&super::dir_of(dir))? || io.exists(&crate::log::dir_of(dir))? => {
                    "checkpoints or a log".to_owned()
                }
                None => return Ok(None),
            };
            return Err(CheckpointError::NotADatabase { dir: dir.to_path_buf(), found });
        }
        let file = io.open(&path, OpenMode::Read)?;
        let mut bytes = [0; BYTES];
        let got = file.read_full_at(0, &mut bytes)?;
        let damaged = |offset: usize, what: &str| CheckpointError::Damaged {
            file: path.clone(),
            offset: offset as u64,
            what: what.to_owned(),
        };
        if got < BYTES {
            return Err(damaged(got, "the file was cut"));
        }
        let (body, sum) = bytes.split_at(BYTES - 4);
        let checks_out = crc32c(body).to_le_bytes() == *sum;
        if &body[..8] != MAGIC {
            return Err(damaged(0, "it does not start like a superblock"));
        }
        if !checks_out {
            return Err(damaged(8, "it does not check out"));
        }
        let mut fields = Decoder(&body[8..]);
        let version = fields.u32().expect("it is long enough");
        if version > FORMAT {
            return Err(CheckpointError::Newer { file: path, version, known: FORMAT });
        }
        let database = body[16..32].try_into().expect("sixteen bytes");
        let created_us = i64::from_le_bytes(body[32..40].try_into().expect("eight bytes"));
        Ok(Some(Self { database, created_us, format: version }))
    }
}
