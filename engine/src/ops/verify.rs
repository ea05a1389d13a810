//! Verification: every checksum of every file of a closed database, without building it in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_base::io::{Io, StdIo};

use crate::catalog::schema::decode_catalog;
use crate::checkpoint::superblock::LOCK_FILE;
use crate::checkpoint::{CheckpointError, Images, Manifest, Superblock, dir_of};
use crate::db::Database;
use crate::error::{Error, Result};
use crate::log::LogReader;
use crate::log::record::{Commit, Kind, Part};
use crate::ops::recover::newest_manifest;

/// What a verification has looked at, and what it has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// Tables in the catalog.
    pub tables: u64,
    /// Images of chunks that were read.
    pub chunk_images: u64,
    /// Rows in them.
    pub rows: u64,
    /// Records of the log that were read.
    pub log_records: u64,
    /// Everything that is wrong, in words that name the file.
    pub findings: Vec<String>,
}

impl Database {
    /// Reads every file of the database in this directory and checks every checksum. The database must not be open.
    ///
    /// # Errors
    /// The directory is no database, is open, or cannot be read at all. Damage is a finding, not an error.
    pub fn verify(directory: impl AsRef<Path>) -> Result<Verification> {
        verify(directory.as_ref(), &(Arc::new(StdIo) as Arc<dyn Io>))
    }
}

/// Verifies over any [`Io`].
pub(crate) fn verify(directory: &Path, io: &Arc<dyn Io>) -> Result<Verification> {
    let mut report = Verification::default();
    let nothing = || Error::NotADatabase {
        directory: directory.to_path_buf(),
        found: "there is nothing to verify".to_owned(),
    };
    if !io.exists(directory)? {
        return Err(nothing());
    }
    let superblock = match Superblock::open(io, directory) {
        Ok(found) => found.ok_or_else(nothing)?,
        Err(error @ CheckpointError::Damaged { .. }) => {
            report.findings.push(Error::from(error).to_string());
            return Ok(report);
        }
        Err(error) => return Err(error.into()),
    };
    let _lock = io.lock_exclusive(&directory.join(LOCK_FILE)).map_err(|error| {
        if error.is_locked() { Error::Locked { directory: directory.to_path_buf() } } else { error.into() }
    })?;
    let checkpoints = dir_of(directory);
    let manifest = match newest_manifest(&**io, directory, superblock.database) {
        Ok(manifest) => manifest.unwrap_or_else(|| Manifest::empty(superblock.database)),
        Err(error) => {
            report.findings.push(error.to_string());
            return Ok(report);
        }
    };
    if !manifest.catalog.is_empty() {
        match decode_catalog(&manifest.catalog) {
            Ok((tables, _, _)) => report.tables = tables.len() as u64,
            Err(what) => report.findings.push(format!("the catalog of the newest manifest: {what}")),
        }
    }
    verify_images(&manifest, Images::new(Arc::clone(io), checkpoints, superblock.database), &mut report);
    verify_log(io, crate::log::dir_of(directory), &manifest, &mut report);
    Ok(report)
}

fn verify_images(manifest: &Manifest, images: Images, report: &mut Verification) {
    let mut buffer = Vec::new();
    for image in manifest.chunks.values() {
        let mut rows = 0;
        let outcome = images.load(image, &mut buffer, |_, _, _| {
            rows += 1;
            Ok::<(), CheckpointError>(())
        });
        report.chunk_images += 1;
        report.rows += rows;
        if let Err(error) = outcome {
            report.findings.push(Error::from(error).to_string());
        }
    }
    drop(images);
}

fn verify_log(io: &Arc<dyn Io>, dir: PathBuf, manifest: &Manifest, report: &mut Verification) {
    let mut read = || -> std::result::Result<(), String> {
        let words = |error: crate::log::error::LogError| error.to_string();
        let mut reader = LogReader::open(
            Arc::clone(io),
            &dir,
            manifest.database,
            manifest.log_start,
            manifest.log_durable,
        )
        .map_err(words)?;
        while let Some(record) = reader.next().map_err(words)? {
            let lsn = record.lsn;
            let bad = |error| format!("the log in {}: the record at position {lsn}: {error}", dir.display());
            match record.kind {
                Kind::Commit => {
                    for write in Commit::decode(record.payload).map_err(bad)?.writes {
                        write.map_err(bad)?;
                    }
                }
                Kind::Part => {
                    for write in Part::decode(record.payload).map_err(bad)?.writes {
                        write.map_err(bad)?;
                    }
                }
                _ => {}
            }
            report.log_records += 1;
        }
        reader.finish().map(drop).map_err(words)
    };
    if let Err(finding) = read() {
        report.findings.push(finding);
    }
}
