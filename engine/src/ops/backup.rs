//! Online backup: a directory that opens as a database with everything committed before the call.
//!
//! A checkpoint is made, so that little log has to be copied. Then nothing that its manifest names may be removed, and
//! the log is not truncated, until the copy is whole: the images (immutable) and the manifest first, then the log up
//! to one position, the *cut*. It was durable when the manifest was picked, and no definition changed in between:
//! behind it, the log may speak of definitions that the manifest does not know. Commits and changes go on meanwhile.
//! Nothing behind the cut is copied: one segment is read after the other while the log grows, and a record in a later
//! one would prove that the bytes missing in an earlier one had been durable.

use std::path::Path;

use thermocline_base::io::OpenMode;

use crate::checkpoint::manifest::image_path;
use crate::checkpoint::{Superblock, dir_of};
use crate::db::{Database, Inner};
use crate::error::{Error, Result};

const PIECE_BYTES: usize = 1 << 20;

/// Ends the hold on the files when it is dropped.
struct Held<'a>(&'a Inner);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.release_files();
    }
}

impl Database {
    /// Copies the database into `directory`, which must be empty or missing, while it goes on working. The copy opens
    /// as a database and has everything that was committed before the call.
    ///
    /// # Errors
    /// The directory is not empty; the database is in memory, read-only or keeps no log; the disk is full or failed.
    pub fn backup(&self, directory: impl AsRef<Path>) -> Result<()> {
        let (inner, directory) = (self.inner(), directory.as_ref());
        let Some(log) = inner.log() else {
            return Err(Error::InvalidOption {
                option: "backup",
                reason: "only an open database with a log can be copied; close it, and copy its directory"
                    .to_owned(),
            });
        };
        if inner.io.exists(directory)? && !inner.io.list(directory)?.is_empty() {
            return Err(Error::NotADatabase {
                directory: directory.to_path_buf(),
                found: "it is not empty".to_owned(),
            });
        }
        self.checkpoint()?;
        let (manifest, cut) = {
            let _definition = inner.definition.lock();
            let Some(manifest) = inner.hold_files() else { return Ok(()) };
            (manifest, log.durable())
        };
        let _held = Held(inner);
        inner.io.create_dir_all(directory)?;
        let (from, to) = (dir_of(&inner.dir), dir_of(directory));
        inner.io.create_dir_all(&to)?;
        for &number in manifest.files.keys() {
            inner.copy_file(&image_path(&from, number), &image_path(&to, number), u64::MAX)?;
        }
        manifest.write(&*inner.io, &to)?;
        let to = crate::log::dir_of(directory);
        inner.io.create_dir_all(&to)?;
        for (from, bytes) in log.segments(manifest.log_start, cut) {
            let name = from.file_name().expect("a segment has a name");
            inner.copy_file(&from, &to.join(name), bytes)?;
        }
        inner.io.sync_dir(&to)?;
        inner.io.sync_dir(directory)?;
        // Last: without it the directory is no database.
        let superblock = Superblock { database: manifest.database, created_us: inner.clock.wall_us() };
        superblock.create(&*inner.io, directory)?;
        tracing::info!(directory = %directory.display(), bytes = manifest.files.values().sum::<u64>(), "backed up");
        Ok(())
    }
}

impl Inner {
    /// Copies the first `bytes` of a file; the copy is as long as the file.
    fn copy_file(&self, from: &Path, to: &Path, bytes: u64) -> Result<()> {
        let source = self.io.open(from, OpenMode::Read)?;
        let target = self.io.open(to, OpenMode::Create)?;
        let mut piece = vec![0; PIECE_BYTES];
        let len = source.len()?;
        target.set_len(len)?;
        let (mut offset, end) = (0, len.min(bytes));
        while offset < end {
            let wanted = (end - offset).min(PIECE_BYTES as u64) as usize;
            let got = source.read_full_at(offset, &mut piece[..wanted])?;
            if got == 0 {
                break;
            }
            target.write_at(offset, &piece[..got])?;
            offset += got as u64;
        }
        target.sync_data()?;
        Ok(())
    }
}
