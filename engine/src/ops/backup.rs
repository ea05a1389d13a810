//! Online backup: a directory that opens as a database with everything committed before the call returned.
//!
//! A checkpoint is made, so that little log has to be copied. Then nothing that its manifest names may be removed, and
//! the log is not cut, until the copy is whole: the images (immutable) and the manifest first, then the log as far as
//! it is durable by then. A manifest is good with any later cut of the log, so commits go on meanwhile.

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
        if inner.log().is_none() {
            return Err(Error::InvalidOption {
                option: "backup",
                reason: "only an open database with a log can be copied; close it, and copy its directory"
                    .to_owned(),
            });
        }
        if inner.io.exists(directory)? && !inner.io.list(directory)?.is_empty() {
            return Err(Error::NotADatabase {
                directory: directory.to_path_buf(),
                found: "it is not empty".to_owned(),
            });
        }
        self.checkpoint()?;
        let Some(manifest) = inner.hold_files() else { return Ok(()) };
        let _held = Held(inner);
        self.flush()?;
        inner.io.create_dir_all(directory)?;
        let (from, to) = (dir_of(&inner.dir), dir_of(directory));
        inner.io.create_dir_all(&to)?;
        for &number in manifest.files.keys() {
            inner.copy_file(&image_path(&from, number), &image_path(&to, number))?;
        }
        manifest.write(&*inner.io, &to)?;
        let (from, to) = (crate::log::dir_of(&inner.dir), crate::log::dir_of(directory));
        inner.io.create_dir_all(&to)?;
        let mut segments = inner.io.list(&from)?;
        segments.sort_unstable();
        for name in segments {
            inner.copy_file(&from.join(&name), &to.join(&name))?;
        }
        inner.io.sync_dir(&to)?;
        // Last: without it the directory is no database.
        let superblock = Superblock { database: manifest.database, created_us: inner.clock.wall_us() };
        superblock.create(&*inner.io, directory)?;
        tracing::info!(directory = %directory.display(), bytes = manifest.files.values().sum::<u64>(), "backed up");
        Ok(())
    }
}

impl Inner {
    fn copy_file(&self, from: &Path, to: &Path) -> Result<()> {
        let source = self.io.open(from, OpenMode::Read)?;
        let target = self.io.open(to, OpenMode::Create)?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut offset = 0;
        loop {
            let got = source.read_full_at(offset, &mut piece)?;
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
